"""The webhook sender: one attempt signs, posts and judges the answer. No queue, no schedule, no database.

Follows Standard Webhooks 1.0.0 (headers `webhook-id`, `webhook-timestamp`, `webhook-signature`) and the CloudEvents
webhook rules: 2xx is success, a redirect is a failure and is never followed, 410 ends the deliveries, 429/502/504 ask
for a pause, and Retry-After is obeyed. One deadline covers name resolution, connection, TLS and answer. Of the answer
only the status counts: its body is read up to a small bound, to use the connection again, and thrown away.

    courier --Delivery--> WebhookSender.send --Connections--> sink --status--> Outcome --> courier
"""

import asyncio
import base64
import logging
import re
import ssl
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Literal

import httpcore
from standardwebhooks import Webhook

from kindcast.server.security.egress import Connections, Resolver, Sink, SinkRefused, check_sink

__all__ = ["Delivery", "Outcome", "WebhookSender", "check_protocol"]

log = logging.getLogger(__name__)

MAX_ANSWER_BYTES = 65_536
"""Of an answer's body: enough to finish any sensible one and keep the connection, too little to fill our memory."""

DRAIN_SECONDS = 1.0
"""For which the body of an answer is read, after its status has told the outcome."""

SHORT_DRAIN_SECONDS = 0.1
"""The same of an endpoint whose last answer did not end."""

MAX_UNFINISHED = 100_000
"""Endpoints remembered whose answers do not end; when there are more, they are forgotten."""

MAX_DRAINED = 1_024
"""Attempts and answers at one time above which no answer is drained: its connection is closed."""

MAX_HEADERS = 32
"""Extra headers of one subscription."""

MAX_HEADER_LENGTH = 4_096
"""Characters of an extra header's value; web servers refuse 8 KiB of headers in all."""

SLOW_DOWN = frozenset({429, 502, 503, 504})
"""Answers of a sink, or of a proxy before it, that has too much to do."""

_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e]*")
_RESERVED_HEADERS = frozenset(
    [
        *("host", "content-length", "content-type", "transfer-encoding", "connection", "keep-alive", "upgrade", "te"),
        *("trailer", "expect", "proxy-authorization", "user-agent"),
        *("webhook-id", "webhook-timestamp", "webhook-signature", "webhook-request-origin"),
    ]
)
"""What we, or the protocol, decide."""

MAX_BATCH = 1_000
"""Messages in one request, where a subscriber asks for batches."""

ORIGIN = b"WebHook-Request-Origin"
NO_CONSENT = (
    "the sink does not consent: it must answer OPTIONS by a status of 2xx with the header WebHook-Allowed-Origin that "
    "names the origin of the request or is *"
)

_METHODS = ("POST", "PUT")
_FORMATS = ("message", "cloudevents")
_USER_AGENT = "kindcast"


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One message on its way to one sink. `message_id` is the same on every attempt; `secret` is `whsec_…`, and so is
    `old_secret`, which signs as well while a rotation lasts."""

    sink: str
    secret: str
    message_id: str
    body: bytes
    old_secret: str | None = None
    content_type: str = "application/json"
    protocolsettings: Mapping[str, Any] = field(default_factory=dict)
    sinkcredential: Mapping[str, Any] = field(default_factory=dict)
    traceparent: str | None = None
    """The trace that the sink may go on with; a header of the subscriber's own wins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How an attempt ended. `gone`: the sink wants no more (410). `detail` never repeats what the sink sent.

    `slow_down` asks for a pause of the whole endpoint; `retry_after` is the sink's own wish in seconds from now.
    `unfinished`: an answer of the same endpoint, before this one, did not end.
    """

    kind: Literal["delivered", "failed", "gone"]
    at: float
    status_code: int | None = None
    detail: str = ""
    slow_down: bool = False
    retry_after: float | None = None
    unfinished: bool = False


CONSENT_SECONDS = 86_400.0
"""For which a sink's consent counts; a restart asks again."""
MAX_CONSENTS = 100_000
"""Remembered; when there are more, all are asked for again."""


@dataclass(slots=True)
class _Consent:
    """`pause`: the seconds between two requests that the sink allows, by its `WebHook-Allowed-Rate`."""

    until: float
    pause: float
    sent_at: float = 0.0


class WebhookSender:
    """Posts messages over guarded connections. One event loop; any number of `send` at a time.

    It opens no more connections than `send` is called concurrently: who calls sets the caps. With an `origin`, a sink
    is asked for its consent before the first message (section 4 of CloudEvents' HTTP Webhook specification), so that
    nobody can let this server send messages to a service that does not want them.
    """

    def __init__(
        self,
        *,
        allow_private: bool,
        timeout: float,
        any_https_port: bool = False,
        origin: str = "",
        resolver: Resolver | None = None,
    ) -> None:
        self._origin = origin
        self._consents: dict[str, _Consent] = {}
        self._allow_private = allow_private
        self._any_https_port = any_https_port
        self._timeout = timeout
        self._connections = Connections(allow_private=allow_private, resolver=resolver)
        self._attempts: set[asyncio.Task[None]] = set()
        self._unfinished: set[str] = set()

    @property
    def under_way(self) -> int:
        """Attempts, and answers that are being drained."""
        return len(self._attempts)

    def ready_at(self, sink: str) -> float:
        """When the rate that the sink allows lets the next message leave; 0 when it may now."""
        consent = self._consents.get(sink)
        if consent is None or not consent.pause or consent.sent_at > time.time():
            return 0.0
        return consent.sent_at + consent.pause

    async def send(self, delivery: Delivery) -> Outcome:
        """One attempt; ends within the timeout and raises nothing but cancellation."""
        told: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        attempt = asyncio.create_task(self._attempt(delivery, told))
        self._attempts.add(attempt)
        attempt.add_done_callback(self._attempts.discard)
        try:
            return await told
        except asyncio.CancelledError:
            attempt.cancel()
            raise

    async def _attempt(self, delivery: Delivery, told: "asyncio.Future[Outcome]") -> None:
        """Tells the outcome as soon as the status is here, and then drains the answer for a moment."""
        origin = delivery.sink.partition("://")[2].partition("/")[0]
        unfinished = origin in self._unfinished
        try:
            async with asyncio.timeout(self._timeout) as deadline, AsyncExitStack() as stack:
                if self._origin and not await self._consents_to(delivery.sink):
                    _tell(told, _failure(NO_CONSENT))
                    return
                answer = await stack.enter_async_context(self._posted(delivery))
                _tell(told, replace(_judge(answer), unfinished=unfinished))
                seconds = SHORT_DRAIN_SECONDS if unfinished else DRAIN_SECONDS
                deadline.reschedule(asyncio.get_running_loop().time() + seconds)
                if len(self._attempts) < MAX_DRAINED:
                    await _drain(answer)
                    self._unfinished.discard(origin)
        except TimeoutError:
            if told.done():
                if len(self._unfinished) >= MAX_UNFINISHED:
                    self._unfinished.clear()
                self._unfinished.add(origin)
            _tell(told, _failure(f"no answer within {self._timeout:g} s"))
        except SinkRefused as error:
            _tell(told, _failure(f"not sent: {error}"))
        except (httpcore.NetworkError, httpcore.TimeoutException) as error:
            _tell(told, _failure(_network_words(error)))
        except (httpcore.ProtocolError, httpcore.UnsupportedProtocol):
            _tell(told, _failure("the sink did not answer in HTTP"))
        except Exception:
            if not told.done():
                log.exception("an attempt at a webhook failed unexpectedly")
            _tell(told, _failure("the attempt failed because of an error in the server: see the log of the server"))

    async def close(self) -> None:
        """Closes all connections; no `send` may be under way."""
        for attempt in list(self._attempts):
            attempt.cancel()
        if self._attempts:
            await asyncio.wait(self._attempts)
        await self._connections.close()

    async def _consents_to(self, url: str) -> bool:
        """Whether the sink wants messages of this server, asked now unless it said so lately."""
        now = time.time()
        if (consent := self._consents.get(url)) is None or consent.until <= now:
            sink = check_sink(url, allow_private=self._allow_private, any_https_port=self._any_https_port)
            asked = [(b"Host", sink.netloc), (b"User-Agent", _USER_AGENT.encode()), (ORIGIN, self._origin.encode())]
            async with self._requested(sink, "OPTIONS", asked) as answer:
                headers = {name.lower(): value.decode("latin-1").strip() for name, value in answer.headers}
                await _drain(answer)
            allowed = headers.get(b"webhook-allowed-origin", "").lower()
            if not 200 <= answer.status < 300 or allowed not in ("*", self._origin.lower()):
                return False
            if len(self._consents) >= MAX_CONSENTS:
                self._consents.clear()
            consent = self._consents[url] = _Consent(
                now + CONSENT_SECONDS, _pause(headers.get(b"webhook-allowed-rate"))
            )
        consent.sent_at = now
        return True

    @asynccontextmanager
    async def _requested(
        self, sink: Sink, method: str, headers: list[tuple[bytes, bytes]], body: bytes = b""
    ) -> AsyncIterator[httpcore.Response]:
        url = httpcore.URL(scheme=sink.scheme, host=sink.host, port=sink.port, target=sink.target)
        async with (
            self._connections.to(sink.endpoint) as pool,
            pool.stream(method, url, headers=headers, content=body) as answer,
        ):
            yield answer

    @asynccontextmanager
    async def _posted(self, delivery: Delivery) -> AsyncIterator[httpcore.Response]:
        sink = check_sink(delivery.sink, allow_private=self._allow_private, any_https_port=self._any_https_port)
        check_protocol(delivery.protocolsettings, delivery.sinkcredential)
        headers = [(b"Host", sink.netloc), *_headers(delivery)]
        if self._origin:
            headers.append((ORIGIN, self._origin.encode()))
        method = str(delivery.protocolsettings.get("method", "POST"))
        async with self._requested(sink, method, headers, delivery.body) as answer:
            yield answer


def _pause(rate: str | None) -> float:
    """Seconds between two requests at a rate of `WebHook-Allowed-Rate`, requests a minute; 0 where it sets none.

    >>> _pause("120"), _pause("*"), _pause("0"), _pause(None)
    (0.5, 0.0, 60.0, 0.0)
    """
    if rate is None or not rate.isascii() or not rate.isdigit() or len(rate) > 9:
        return 0.0
    return 60.0 / max(1, int(rate))


def check_protocol(protocolsettings: Mapping[str, Any], sinkcredential: Mapping[str, Any]) -> None:
    """Checks what a subscription says about *how* to send, when it is created. Raises `SinkRefused`."""
    if (method := protocolsettings.get("method", "POST")) not in _METHODS:
        raise SinkRefused(f"method {method!r} is not supported; use {' or '.join(_METHODS)}")
    if (format := protocolsettings.get("format", "message")) not in _FORMATS:
        raise SinkRefused(f"format {format!r} is not supported; use {' or '.join(_FORMATS)}")
    batch = protocolsettings.get("batch")
    if batch is not None and (type(batch) is not int or not 1 <= batch <= MAX_BATCH):
        raise SinkRefused(f"protocolsettings.batch must be a number of messages from 1 to {MAX_BATCH:,}")
    headers = protocolsettings.get("headers", {})
    if not isinstance(headers, Mapping) or len(headers) > MAX_HEADERS:
        raise SinkRefused(f"protocolsettings.headers must be an object of at most {MAX_HEADERS} names and texts")
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name) or name.lower() in _RESERVED_HEADERS:
            raise SinkRefused(f"the header {name!r} cannot be set")
        if not isinstance(value, str) or len(value) > MAX_HEADER_LENGTH or not _HEADER_VALUE.fullmatch(value):
            raise SinkRefused(
                f"the header {name!r} must be text of at most {MAX_HEADER_LENGTH} visible ASCII characters"
            )
    if sinkcredential:
        _authorization(sinkcredential)


def _headers(delivery: Delivery) -> list[tuple[bytes, bytes]]:
    now = datetime.now(UTC)
    secrets = [delivery.secret] if delivery.old_secret is None else [delivery.secret, delivery.old_secret]
    signature = " ".join(Webhook(each).sign(delivery.message_id, now, delivery.body.decode()) for each in secrets)
    headers = {name.lower(): value for name, value in delivery.protocolsettings.get("headers", {}).items()}
    if delivery.traceparent is not None:
        headers.setdefault("traceparent", delivery.traceparent)
    if delivery.sinkcredential:
        headers["authorization"] = _authorization(delivery.sinkcredential)
    headers |= {
        "content-type": delivery.content_type,
        "user-agent": _USER_AGENT,
        "webhook-id": delivery.message_id,
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": signature,
    }
    return [(name.encode("ascii"), value.encode("ascii")) for name, value in headers.items()]


def _authorization(credential: Mapping[str, Any]) -> str:
    match credential:
        case {"credentialtype": "ACCESSTOKEN", "accesstoken": str(token)} if _HEADER_VALUE.fullmatch(token):
            return f"Bearer {token}"
        case {"credentialtype": "PLAIN", "identifier": str(name), "secret": str(secret)} if ":" not in name:
            return "Basic " + base64.b64encode(f"{name}:{secret}".encode()).decode("ascii")
    raise SinkRefused(
        "sinkcredential must hold credentialtype ACCESSTOKEN with accesstoken, or PLAIN with identifier and secret"
    )


def _judge(answer: httpcore.Response) -> Outcome:
    now, status = time.time(), answer.status
    if 200 <= status < 300:
        return Outcome(kind="delivered", at=now, status_code=status)
    if status == 410:
        return Outcome(
            kind="gone", at=now, status_code=status, detail="the sink answered 410, so it wants no more messages"
        )
    detail = f"the sink answered {status}"
    if 300 <= status < 400:
        detail += ": redirects are not followed: use the final URL as the sink"
    return Outcome(
        kind="failed",
        at=now,
        status_code=status,
        detail=detail,
        slow_down=status in SLOW_DOWN,
        retry_after=_retry_after(answer, now),
    )


def _retry_after(answer: httpcore.Response, now: float) -> float | None:
    """Seconds, from either form of Retry-After; what cannot be read counts as absent."""
    for name, value in answer.headers:
        if name.lower() == b"retry-after":
            text = value.decode("latin-1").strip()
            if text.isascii() and text.isdigit():
                return float(text[:9])
            try:
                return max(0.0, parsedate_to_datetime(text).timestamp() - now)
            except (ValueError, TypeError, OverflowError, IndexError, OSError):  # whatever a sink may write
                return None
    return None


async def _drain(answer: httpcore.Response) -> None:
    """Reads the rest of a short answer. The status has decided already, so a rest that breaks off changes nothing;
    leaving early closes the connection."""
    length = 0
    try:
        async for chunk in answer.aiter_stream():
            length += len(chunk)
            if length > MAX_ANSWER_BYTES:
                return
    except (httpcore.NetworkError, httpcore.ProtocolError):
        return


def _tell(told: "asyncio.Future[Outcome]", outcome: Outcome) -> None:
    """After the status the outcome stands, however the rest of the answer comes."""
    if not told.done():
        told.set_result(outcome)


def _failure(detail: str) -> Outcome:
    return Outcome(kind="failed", at=time.time(), detail=detail)


def _network_words(error: Exception) -> str:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLError):
            return f"the TLS handshake failed: {cause.reason or 'unknown reason'}"
        cause = cause.__cause__ or cause.__context__
    if isinstance(error, httpcore.ConnectError | httpcore.ConnectTimeout):
        return "no connection to the sink"
    return "the sink closed the connection"
