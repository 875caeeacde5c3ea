"""NATS with JetStream, with the client library nats-py: a source that is a durable pull consumer with explicit
acknowledgements."""

import asyncio
import logging
import ssl
import time
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from datetime import UTC
from typing import Any, TypeVar

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import ConnectionClosedError, NoRespondersError
from nats.errors import Error as NatsError
from nats.errors import TimeoutError as NatsTimeout
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy
from nats.js.errors import APIError, BadRequestError, NoStreamResponseError, NotFoundError

from kindcast.server.connectors.bindings import NATS, Content
from kindcast.server.connectors.broker_url import BrokerUrl, Topic
from kindcast.server.connectors.source import BrokerLost, BrokerRefused, Received

__all__ = ["NatsClient", "NatsSource", "connect", "is_too_large"]


def _matters(record: logging.LogRecord) -> bool:
    """Whether a line of asyncio's log is not the one that it writes at the end of each connection with TLS, because of
    how the library opens it."""
    return "eof_received() has no effect" not in str(record.msg)


logging.getLogger("asyncio").addFilter(_matters)

CONNECT_SECONDS = 10.0
CONNECT_PAUSE_SECONDS = 0
CLOSE_SECONDS = 2.0
ACK_SECONDS = 20.0
"""NATS sends a message again after this time without an acknowledgement."""

CHECKED_EVERY = 5.0
"""The seconds between two checks that the consumers of an idle source are there."""

CONTENT_TYPE = "content-type"
MESSAGE_ID = "Nats-Msg-Id"

PERMISSIONS_ERR = "permissions violation"

T = TypeVar("T")

_AWAY = (NatsError, OSError, TimeoutError)


class NatsClient(Client):
    """The client of the library, with four additions. It sends no credentials without TLS if TLS was requested; the
    library would leave the choice to the server. It says at once when the server refuses a permission, or when the
    connection breaks; the library waits for an answer that never comes. `close` ends also after a failed TLS handshake,
    where the library would wait without end."""

    def __init__(self) -> None:
        super().__init__()
        self._refusals: list[tuple[str, asyncio.Future[str | None]]] = []
        self.first_error: Exception | None = None

    async def note(self, error: Exception) -> None:
        """Called by the library for each error of the connection."""
        self.first_error = self.first_error or error
        told = str(error).removeprefix("nats: ")
        if PERMISSIONS_ERR in told:
            for named, refusal in self._refusals:
                if not refusal.done() and ("publish" not in told or named in told):
                    refusal.set_result(told)

    async def note_end(self) -> None:
        """Called by the library when the connection is closed, for whatever reason."""
        for _, refusal in self._refusals:
            if not refusal.done():
                refusal.set_result(None)

    async def permitted(self, call: Coroutine[Any, Any, T], subject: str = "") -> T:
        """Awaits a call that the server answers. Raises `BrokerRefused` if this user may not publish to `subject`, by
        default any, or may not read the answer, and `ConnectionClosedError`."""
        asked = asyncio.ensure_future(call)
        refusal: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        named = f'"{subject.lower()}"' if subject else ""  # the library converts the server's words to lower case
        entry = (named, refusal)
        self._refusals.append(entry)
        try:
            await asyncio.wait((asked, refusal), return_when=asyncio.FIRST_COMPLETED)
            if not asked.done():
                if (told := refusal.result()) is None:
                    raise ConnectionClosedError
                raise BrokerRefused(f"NATS refuses: {told}")
            return asked.result()
        finally:
            asked.add_done_callback(_taken)
            asked.cancel()
            self._refusals.remove(entry)

    async def close(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await super().close()

    def _connect_command(self) -> bytes:
        if self.options.get("tls") is not None and not self._server_info.get("tls_required"):
            raise NatsError("the broker does not support TLS")
        return super()._connect_command()


def _taken(asked: "asyncio.Future[Any]") -> None:
    """Takes the error of a call that is over for its caller. Otherwise asyncio logs it: the library makes an error of
    its own of a cancellation."""
    if not asked.cancelled():
        asked.exception()


async def connect(url: BrokerUrl, *, address: str | None = None) -> NatsClient:
    """Opens a connection that does not reconnect by itself and never uses another server than this one: the server list
    of a cluster is ignored. `address` is where to connect, if the host was resolved already. Raises `BrokerLost`,
    `BrokerRefused`."""
    host, port = url.hosts[0]
    place = address or host
    place = f"[{place}]" if ":" in place else place
    client = NatsClient()
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            await client.connect(
                f"{'tls' if url.tls else 'nats'}://{place}:{port}",
                user=url.user if url.password is not None else None,
                password=url.password,
                token=url.user if url.password is None else None,
                tls=ssl.create_default_context() if url.tls else None,
                tls_hostname=host,  # servers may require TLS also at nats://
                allow_reconnect=False,
                connect_timeout=int(CONNECT_SECONDS),
                max_reconnect_attempts=1,  # of the first connection; 0 means without end
                reconnect_time_wait=CONNECT_PAUSE_SECONDS,
                error_cb=client.note,
                closed_cb=client.note_end,
            )
    except (NatsError, OSError, TimeoutError) as error:
        await client.close()
        if "authorization" in str(error).lower():
            raise BrokerRefused(f"the broker refuses: {error}") from error
        cause = client.first_error or error  # the last one may be only that no server is left to try
        raise BrokerLost(str(cause) or "no answer") from cause
    except BaseException:
        await client.close()
        raise
    return client


def is_too_large(client: Client, body: bytes, headers: Mapping[str, str]) -> bool:
    """Whether the server refuses a message, and closes the connection. The library counts the body without the
    headers."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return len(f"NATS/1.0\r\n{lines}\r\n".encode()) + len(body) > client.max_payload


class NatsSource:
    """Reads subjects of a stream with the durable consumer `group`. Several connectors with the same group share the
    messages."""

    binding = NATS
    dropped = 0

    def __init__(self, url: BrokerUrl, topics: Sequence[Topic], group: str, window: int, *, create: bool) -> None:
        self._url, self._topics, self._group, self._window, self._create = url, topics, group, window, create
        self._client: NatsClient | None = None
        self._jetstream: JetStreamContext | None = None
        self._consumers: list[JetStreamContext.PullSubscription] = []
        self._checked_at = time.monotonic()

    async def open(self) -> bool:
        self._client = await connect(self._url)
        self._jetstream = self._client.jetstream(timeout=CONNECT_SECONDS)
        try:
            for number, topic in enumerate(self._topics):
                self._consumers.append(await self._client.permitted(self._consumer(topic, number)))
        except BadRequestError as error:
            raise BrokerRefused(f"NATS refuses: {error.description}") from error
        except _AWAY as error:
            raise BrokerLost(str(error) or type(error).__name__) from error
        return True

    async def _consumer(self, topic: Topic, number: int) -> JetStreamContext.PullSubscription:
        assert self._jetstream is not None
        try:
            stream = await self._jetstream.find_stream_name_by_subject(topic.filter)
        except NotFoundError:
            if not self._create:
                raise BrokerRefused(
                    f"no stream of NATS holds the subject {topic.filter}, so its messages cannot be acknowledged; "
                    "create one, or use --create"
                ) from None
            stream = f"{self._group}-{number}"
            try:
                await self._jetstream.add_stream(name=stream, subjects=[topic.filter])
            except BadRequestError as error:
                raise BrokerRefused(
                    f"NATS refuses to create the stream {stream} for {topic.filter}: {error.description}; "
                    "choose another --group, or create a stream"
                ) from error
        except NoRespondersError:
            raise BrokerRefused(
                "this NATS server runs without JetStream: start it with nats-server --jetstream"
            ) from None
        config = ConsumerConfig(
            durable_name=self._group if number == 0 else f"{self._group}-{number}",
            filter_subject=topic.filter,
            deliver_policy=DeliverPolicy.ALL,
            ack_policy=AckPolicy.EXPLICIT,
            ack_wait=ACK_SECONDS,
            max_ack_pending=self._window,
        )
        name = config.durable_name
        assert name is not None
        with suppress(NotFoundError):
            found = (await self._jetstream.consumer_info(stream, name)).config
            if found.filter_subject != topic.filter:
                raise BrokerRefused(
                    f"the group {name} reads {found.filter_subject} of the stream {stream}, and NATS allows a group "
                    f"one subject: choose another --group for {topic.filter}"
                )
            if found.deliver_subject or found.ack_policy != AckPolicy.EXPLICIT or (found.max_deliver or 0) > 0:
                raise BrokerRefused(
                    f"this command cannot use the consumer {name} of the stream {stream}: it needs a pull "
                    "consumer with explicit acknowledgements and without a limit of deliveries; choose another --group"
                )
        return await self._jetstream.pull_subscribe(topic.filter, durable=name, stream=stream, config=config)

    async def read(self, limit: int, seconds: float) -> list[Received]:
        assert self._client is not None
        found: list[Received] = []
        self._consumers.append(self._consumers.pop(0))  # each subject is the first one in turn
        for consumer in self._consumers:
            fetched = consumer.fetch(limit - len(found), timeout=seconds / len(self._consumers))
            try:
                found += map(_received, await self._client.permitted(fetched))
            except (NatsTimeout, TimeoutError):
                self._check()
            except _AWAY as error:
                raise BrokerLost(str(error) or type(error).__name__) from error
            if len(found) == limit:
                break
        if not found and time.monotonic() - self._checked_at > CHECKED_EVERY:
            await self._check_consumers()
        return found

    async def _check_consumers(self) -> None:
        """Raises `BrokerLost` if a consumer was deleted, perhaps with its stream: NATS does not answer its reads."""
        assert self._client is not None
        try:
            for consumer in self._consumers:
                await self._client.permitted(consumer.consumer_info())
        except _AWAY as error:
            raise BrokerLost(str(error) or type(error).__name__) from error
        self._checked_at = time.monotonic()

    async def acknowledge(self, messages: Sequence[Received]) -> None:
        assert self._client is not None
        try:
            await self._client.permitted(_acknowledge(messages))
        except _AWAY as error:
            raise BrokerLost(str(error) or type(error).__name__) from error

    async def put_aside(self, message: Received, topic: str, reason: str) -> None:
        assert self._client is not None
        assert self._jetstream is not None
        told = reason.encode("ascii", "replace").decode().replace("\n", " ").replace("\r", " ")
        headers = {**(message.handle.headers or {}), "Kindcast-Problem": told, "Kindcast-Topic": message.topic}
        headers.pop(MESSAGE_ID, None)
        if is_too_large(self._client, message.content.body, headers):
            raise BrokerRefused(
                f"a bad message of {message.topic} is too large for {topic} together with its reason: "
                "raise max_payload of NATS, or leave --dead-letters out"
            )
        try:
            await self._client.permitted(self._jetstream.publish(topic, message.content.body, headers=headers))
        except NoStreamResponseError:
            raise BrokerRefused(
                f"no stream of NATS holds the subject {topic}, so bad messages would be lost; "
                "create one, or leave --dead-letters out"
            ) from None
        except APIError as error:
            raise BrokerRefused(f"the stream for {topic} does not take a bad message: {error.description}") from error
        except _AWAY as error:
            raise BrokerLost(str(error) or type(error).__name__) from error

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()

    def _check(self) -> None:
        if self._client is None or not self._client.is_connected:
            raise BrokerLost("the connection broke")


async def _acknowledge(messages: Sequence[Received]) -> None:
    await asyncio.gather(*(message.handle.ack_sync(timeout=CONNECT_SECONDS) for message in messages))


def _received(message: Msg) -> Received:
    headers: dict[str, Any] = dict(message.headers or {})
    lower = {name.lower(): value for name, value in headers.items()}
    told = message.metadata
    at = told.timestamp.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    stored = f"{told.stream}-{told.sequence.stream}-{int(told.timestamp.timestamp() * 1e6)}"
    return Received(
        topic=message.subject,
        content=Content(message.data, lower.get(CONTENT_TYPE), {n: v for n, v in lower.items() if n.startswith("ce-")}),
        handle=message,
        identity=headers.get(MESSAGE_ID) or stored,
        time=at,
    )
