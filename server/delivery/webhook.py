"""The webhook sender: one attempt signs, posts and judges the answer. No queue, no schedule, no database.

It follows Standard Webhooks 1.0.0 (headers `webhook-id`, `webhook-timestamp`, `webhook-signature`) and the CloudEvents
webhook rules. 2xx is success. A redirect is a failure and is never followed. 410 ends the deliveries. 429, 502, 503 and
504 ask for a pause, and Retry-After is obeyed. One deadline covers name resolution, connection, TLS and answer. Only
the status of the answer counts. Its body is read up to a small limit, so that the connection can be reused, and is
ignored.

    courier --Delivery--> WebhookSender.send --Connections--> sink --status--> Outcome --> courier
"""

import asyncio
import base64
import logging
import re
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Literal

import httpcore
from standardwebhooks import Webhook

from kindcast.server.clock import CLOCK
from kindcast.server.security.egress import Connections, EarlyAnswer, EndlessAnswer, SinkRefused, check_sink

__all__ = ["Delivery", "Outcome", "WebhookSender", "causes", "check_protocol"]

log = logging.getLogger(__name__)

MAX_ANSWER_BYTES = 65_536
"""How much of an answer's body is read: enough for any sensible answer, so that the connection can be kept, and too
little to fill the memory."""

DRAIN_SECONDS = 1.0
"""How long the body of an answer is read, after its status has decided the outcome."""

SHORT_DRAIN_SECONDS = 0.1
"""The same for an endpoint whose last answer did not end."""

MAX_UNFINISHED = 100_000
"""The maximum number of remembered endpoints whose answers do not end. When there are more, the list is cleared."""

MAX_DRAINED = 1_024
"""If there are more attempts and answers at the same time, answers are not read and their connections are closed."""

MAX_HEADERS = 32
"""The maximum number of extra headers of a subscription."""

MAX_HEADER_LENGTH = 4_096
"""The maximum length of the value of an extra header. Web servers refuse 8 KiB of headers in total."""

REDIRECTS = frozenset({301, 302, 303, 307, 308})
SLOW_DOWN = frozenset({429, 502, 503, 504})
"""Status codes of a sink, or of a proxy before it, that is overloaded."""

_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_HEADER_VALUE = re.compile(r"([\x21-\x7e]([\t\x20-\x7e]*[\x21-\x7e])?)?")  # no white space at its ends
_RESERVED_HEADERS = frozenset(
    [
        *("host", "content-length", "content-type", "transfer-encoding", "connection", "keep-alive", "upgrade", "te"),
        *("trailer", "expect", "proxy-authorization", "user-agent"),
        *("webhook-id", "webhook-timestamp", "webhook-signature", "webhook-request-origin"),
    ]
)
"""Headers that this server or the protocol sets."""

MAX_BATCH = 1_000
"""The maximum number of messages in one request, if a subscriber wants batches."""

ORIGIN = b"WebHook-Request-Origin"
NO_CONSENT = (
    "the sink does not consent: its answer to OPTIONS must have a 2xx status and the header WebHook-Allowed-Origin, "
    "with * or the value of WebHook-Request-Origin"
)

_METHODS = ("POST", "PUT")
_FORMATS = ("message", "cloudevents")
_USER_AGENT = "kindcast"


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """A request to a sink with one message or a batch. `message_id` is the same at every attempt. `secret` has the form
    `whsec_…`, and so has `old_secret`, which also signs during a rotation."""

    sink: str
    secret: str
    message_id: str
    body: bytes
    old_secret: str | None = None
    content_type: str = "application/json"
    protocolsettings: Mapping[str, Any] = field(default_factory=dict)
    sinkcredential: Mapping[str, Any] = field(default_factory=dict)
    traceparent: str | None = None
    """The trace that the sink may continue. A header of this name from the subscriber has priority."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of an attempt. `gone`: the sink wants no more messages (410). `detail` never contains text from the
    sink.

    `slow_down` asks for a pause of the whole endpoint. `retry_after` is the sink's Retry-After in seconds from now.
    `unfinished`: an earlier answer of the endpoint did not end.
    """

    kind: Literal["delivered", "failed", "gone"]
    at: float
    status_code: int | None = None
    detail: str = ""
    slow_down: bool = False
    retry_after: float | None = None
    unfinished: bool = False


CONSENT_SECONDS = 86_400.0
"""How long the consent of a sink is valid. After a restart the sink is asked again."""
ASKING_SECONDS = 1.0
"""How long other messages to a sink wait before they look again, while the sink is asked for its consent."""
MAX_CONSENTS = 100_000
"""The maximum number of remembered consents. When there are more, all are asked again."""


@dataclass(slots=True)
class _Consent:
    """The consent of a sink. `pause` is the number of seconds between two requests, from its `WebHook-Allowed-Rate`."""

    until: float
    pause: float
    sent_at: float


class WebhookSender:
    """Posts messages over guarded connections, on one event loop. `send` may run any number of times concurrently.

    It opens at most one connection per running `send`, so the caller sets the limit. With an `origin`, a sink is asked
    for its consent before the first message (section 4 of CloudEvents' HTTP Webhook specification). So nobody can make
    this server send messages to a service that does not want them.
    """

    def __init__(
        self,
        *,
        allow_private: bool,
        timeout: float,
        any_https_port: bool = False,
        origin: str = "",
    ) -> None:
        self._origin = origin
        self._consents: dict[str, _Consent] = {}
        self._asking: set[str] = set()  # the sinks whose rate is not known yet
        self._allow_private = allow_private
        self._any_https_port = any_https_port
        self._timeout = timeout
        self._connections = Connections(allow_private=allow_private)
        self._attempts: set[asyncio.Task[None]] = set()
        self._unfinished: set[str] = set()

    @property
    def under_way(self) -> int:
        """The number of running attempts, including answers that are being read."""
        return len(self._attempts)

    def ready_at(self, sink: str) -> float:
        """Returns when the rate of the sink allows the next message, in seconds since 1970; 0 if it may be sent now."""
        if sink in self._asking:
            return CLOCK.now() + ASKING_SECONDS
        consent = self._consents.get(sink)
        if consent is None or not consent.pause or consent.sent_at > CLOCK.now():
            return 0.0
        return consent.sent_at + consent.pause

    async def send(self, delivery: Delivery) -> Outcome:
        """Makes one attempt. Ends within the timeout and raises nothing except cancellation."""
        told: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        if self._origin:  # now, so that no other message to this sink is sent before the attempt begins
            if (consent := self._valid_consent(delivery.sink)) is None:
                self._asking.add(delivery.sink)
            else:
                consent.sent_at = CLOCK.now()
        attempt = asyncio.create_task(self._attempt(delivery, told))
        self._attempts.add(attempt)
        attempt.add_done_callback(self._attempts.discard)
        attempt.add_done_callback(lambda _: self._asking.discard(delivery.sink))
        try:
            return await told
        except asyncio.CancelledError:
            attempt.cancel()
            raise

    async def _attempt(self, delivery: Delivery, told: "asyncio.Future[Outcome]") -> None:
        """Sets the outcome when the status has arrived, and then reads the rest of the answer for a moment."""
        origin = delivery.sink.partition("://")[2].partition("/")[0]
        unfinished = origin in self._unfinished
        try:
            async with asyncio.timeout(self._timeout) as deadline, AsyncExitStack() as stack:
                if self._origin and (refusal := await self._refusal_of(delivery.sink)) is not None:
                    _tell(told, refusal)
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
        except EarlyAnswer as error:
            _tell(told, _failure(f"the sink answers requests twice: {error}"))
        except (httpcore.ProtocolError, httpcore.UnsupportedProtocol):
            _tell(told, _failure("the sink closed the connection without an answer, or did not answer in HTTP"))
        except Exception:
            if not told.done():
                log.exception("an attempt at a webhook failed unexpectedly")
            _tell(told, _failure("the attempt failed because of an error in the server: see the log of the server"))

    async def close(self) -> None:
        """Closes all connections. No `send` may be running."""
        for attempt in list(self._attempts):
            attempt.cancel()
        if self._attempts:
            await asyncio.wait(self._attempts)
        await self._connections.close()

    async def _refusal_of(self, url: str) -> Outcome | None:
        """Returns the failure of the attempt if the sink does not consent to messages of this server; None if it does.
        It is asked now unless its last consent is still valid."""
        if self._valid_consent(url) is None:
            sink = check_sink(url, allow_private=self._allow_private, any_https_port=self._any_https_port)
            asked = [(b"Host", sink.netloc), (b"User-Agent", _USER_AGENT.encode()), (ORIGIN, self._origin.encode())]
            async with self._connections.request(sink, "OPTIONS", asked) as answer:
                headers = {name.lower(): value.decode("latin-1").strip() for name, value in answer.headers}
                await _drain(answer)
            allowed = headers.get(b"webhook-allowed-origin", "").lower()
            if not 200 <= answer.status < 300 or allowed not in ("*", self._origin.lower()):
                detail = f"{NO_CONSENT}; the status was {answer.status}"
                return replace(_judge(answer), kind="failed", status_code=None, detail=detail)
            if len(self._consents) >= MAX_CONSENTS:
                self._consents.clear()
            now, pause = CLOCK.now(), _pause(headers.get(b"webhook-allowed-rate"))
            self._consents[url] = _Consent(now + CONSENT_SECONDS, pause, sent_at=now)
            self._asking.discard(url)
        return None

    def _valid_consent(self, url: str) -> _Consent | None:
        consent = self._consents.get(url)
        return consent if consent is not None and consent.until > CLOCK.now() else None

    @asynccontextmanager
    async def _posted(self, delivery: Delivery) -> AsyncIterator[httpcore.Response]:
        sink = check_sink(delivery.sink, allow_private=self._allow_private, any_https_port=self._any_https_port)
        check_protocol(delivery.protocolsettings, delivery.sinkcredential)
        headers = [(b"Host", sink.netloc), *_headers(delivery)]
        if self._origin:
            headers.append((ORIGIN, self._origin.encode()))
        method = str(delivery.protocolsettings.get("method", "POST"))
        async with self._connections.request(sink, method, headers, delivery.body) as answer:
            yield answer


def _pause(rate: str | None) -> float:
    """Returns the seconds between two requests for a `WebHook-Allowed-Rate` in requests per minute; 0 if there is no
    limit.

    >>> _pause("120"), _pause("*"), _pause("0"), _pause(None)
    (0.5, 0.0, 60.0, 0.0)
    """
    if rate is None or not rate.isascii() or not rate.isdigit() or len(rate) > 9:
        return 0.0
    return 60.0 / max(1, int(rate))


def check_protocol(protocolsettings: Mapping[str, Any], sinkcredential: Mapping[str, Any]) -> None:
    """Checks the delivery options of a subscription when it is created. Raises `SinkRefused`."""
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
                f"the header {name!r} must be text of at most {MAX_HEADER_LENGTH} visible ASCII characters, "
                "without white space at its ends"
            )
    if sinkcredential:
        _authorization(sinkcredential)


def _headers(delivery: Delivery) -> list[tuple[bytes, bytes]]:
    now = datetime.fromtimestamp(CLOCK.now(), UTC)
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
        case {"credentialtype": "ACCESSTOKEN", "accesstoken": str(token)} if token and _HEADER_VALUE.fullmatch(token):
            return f"Bearer {token}"
        case {"credentialtype": "PLAIN", "identifier": str(name), "secret": str(secret)}:
            if ":" in name:
                raise SinkRefused(
                    "the identifier in sinkcredential must have no colon: HTTP Basic authentication has none"
                )
            return "Basic " + base64.b64encode(f"{name}:{secret}".encode()).decode("ascii")
    raise SinkRefused(
        "sinkcredential must hold credentialtype ACCESSTOKEN with accesstoken (visible ASCII characters, without white "
        "space at its ends), or PLAIN with identifier and secret"
    )


def _judge(answer: httpcore.Response) -> Outcome:
    now, status = CLOCK.now(), answer.status
    if 200 <= status < 300:
        return Outcome(kind="delivered", at=now, status_code=status)
    if status == 410:
        return Outcome(
            kind="gone", at=now, status_code=status, detail="the sink answered 410, so it wants no more messages"
        )
    detail = f"the sink answered {status}"
    if status in REDIRECTS:
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
    """Returns the seconds of a Retry-After header; None if it is absent or cannot be read. A date may have any of the
    three forms of HTTP, which are all in UTC."""
    for name, value in answer.headers:
        if name.lower() == b"retry-after":
            text = value.decode("latin-1").strip()
            if text.isascii() and text.isdigit():
                return float(text[:9])
            try:
                date = parsedate_to_datetime(text)
                return max(0.0, (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() - now)
            except (ValueError, TypeError, OverflowError, IndexError, OSError):  # for any text that a sink may send
                return None
    return None


async def _drain(answer: httpcore.Response) -> None:
    """Reads the rest of a short answer. The status has decided the outcome already, so an error here changes nothing.
    If the answer is too long, the connection is closed."""
    length = 0
    try:
        async for chunk in answer.aiter_stream():
            length += len(chunk)
            if length > MAX_ANSWER_BYTES:
                return
    except (httpcore.NetworkError, httpcore.ProtocolError):
        return


def _tell(told: "asyncio.Future[Outcome]", outcome: Outcome) -> None:
    """Sets the outcome, unless it is set already."""
    if not told.done():
        told.set_result(outcome)


def _failure(detail: str) -> Outcome:
    return Outcome(kind="failed", at=CLOCK.now(), detail=detail)


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yields an error and those from which it was raised, each once: such a chain may be circular."""
    seen: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in seen:
        seen.append(cause)
        yield cause
        cause = cause.__cause__ or cause.__context__


def _network_words(error: Exception) -> str:
    for cause in causes(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"the certificate of the sink is not trusted: {cause.verify_message}"
        if isinstance(cause, ssl.SSLError) and cause.reason == "WRONG_VERSION_NUMBER":
            return "the sink does not speak TLS: use http://, or the port that speaks it"
        if isinstance(cause, ssl.SSLError):
            return f"the TLS handshake failed: {cause.reason or 'unknown reason'}"
    if isinstance(error, httpcore.ConnectError | httpcore.ConnectTimeout):
        return "no connection to the sink"
    if isinstance(error, EndlessAnswer):
        return f"the answer of the sink has no status: {error}"
    return "the sink closed the connection"
