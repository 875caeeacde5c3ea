"""AMQP 0-9-1 (RabbitMQ) with the client library aio-pika: a source that reads queues with explicit acknowledgements."""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any

import aio_pika
import aiormq
from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractIncomingMessage
from aiormq.exceptions import (
    AMQPError,
    AuthenticationError,
    ChannelAccessRefused,
    ChannelNotFoundEntity,
    ChannelPreconditionFailed,
    InvalidFrameError,
    ProbableAuthenticationError,
)
from pamqp import decode
from yarl import URL

from kindcast.server.connectors.bindings import AMQP, Content
from kindcast.server.connectors.broker_url import BrokerUrl, Topic, tls_for
from kindcast.server.connectors.source import BrokerLost, BrokerRefused, Received

__all__ = ["AmqpSource", "broken_is_lost", "confirming_channel", "connect", "message_of"]

for _name in ("aio_pika", "aiormq"):
    logging.getLogger(_name).setLevel(logging.CRITICAL)  # they also log what they raise


# An error in a decoder of pamqp closes the connection, and the message would come again on the next one, without end.
# So these decoders take what any publisher may send.


def _moment(value: bytes) -> tuple[int, datetime | None]:
    """Decodes a time as pamqp does; None for one after the year 9999, for example because it is in microseconds."""
    try:
        return decode.timestamp(value)
    except (ValueError, OverflowError):
        return 8, None


def _short(value: bytes) -> tuple[int, str]:
    """Decodes a short text. Bytes that are not UTF-8 become `\\xf6`, so that different ids stay different."""
    end = 1 + value[0]
    return end, value[1:end].decode("utf-8", "backslashreplace")


def _table(value: bytes) -> tuple[int, dict[str, Any]]:
    """Decodes a table, the names as `_short`."""
    place, end = 4, 4 + int.from_bytes(value[:4])
    found: dict[str, Any] = {}
    while place < end:
        size, name = _short(value[place:end])
        place += size
        size, found[name] = decode.embedded_value(value[place:end])
        place += size
    return end, found


decode.METHODS["timestamp"] = decode.TABLE_MAPPING[b"T"] = _moment
decode.METHODS["shortstr"] = _short
decode.METHODS["table"] = decode.TABLE_MAPPING[b"F"] = _table

CONNECT_SECONDS = 10.0
HEARTBEAT_SECONDS = 20

AWAY = (AMQPError, aiormq.exceptions.AMQPException, OSError, TimeoutError, RuntimeError, StopAsyncIteration)
"""aio-pika raises RuntimeError for a closed connection or channel, and aiormq StopAsyncIteration for a connection that
breaks while it is made."""

_FORBIDDEN = (ChannelAccessRefused, ChannelPreconditionFailed)
"""A permission is missing, or the queue has other properties."""


@asynccontextmanager
async def broken_is_lost() -> AsyncIterator[None]:
    """A context manager that converts all errors of a broken connection, and timeouts, to `BrokerLost`. For calls that
    run when the connection breaks, aiormq raises a bare `Exception` or cancels them."""
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            yield
    except AWAY as error:
        raise BrokerLost(_words(error)) from error
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise BrokerLost("the connection broke") from error
    except Exception as error:
        if type(error) is Exception:
            raise BrokerLost("the connection broke") from error
        raise


async def connect(url: BrokerUrl, *, address: str | None = None) -> AbstractConnection:
    """Opens a connection that does not reconnect by itself. `address` is where to connect, if the host was resolved
    already. Raises `BrokerLost`, `BrokerRefused`."""
    host, port = url.hosts[0]
    place = URL.build(
        scheme=url.scheme,
        host=address or host,
        port=port,
        user=url.user or "guest",
        password=url.password or ("guest" if url.user is None else ""),
        path="/" + (url.path or "/"),
        query={"heartbeat": str(HEARTBEAT_SECONDS)},
    )
    async with broken_is_lost():
        try:
            return await _opened(aio_pika.Connection(place, ssl_context=tls_for(host) if url.tls else None))
        except (AuthenticationError, ProbableAuthenticationError) as error:
            raise BrokerRefused("the broker refuses the user or the password") from error
        except InvalidFrameError as error:
            raise BrokerLost(
                f"the broker closed the connection: is there a virtual host {url.path or '/'}, and may the user use it?"
            ) from error


async def _opened(connection: aio_pika.Connection) -> AbstractConnection:
    """Opens a new connection. If this fails, the connection is closed. Otherwise its destructor would do it, with a
    warning in the log if it runs in a thread without an event loop."""
    try:
        await connection.connect(timeout=CONNECT_SECONDS)
    except BaseException:
        await connection.close()
        raise
    return connection


async def confirming_channel(connection: AbstractConnection) -> AbstractChannel:
    """Opens a channel on which publishing raises `DeliveryError` if the message reaches no queue. By default the
    library does as if such a message were confirmed."""
    return await connection.channel(publisher_confirms=True, on_return_raises=True)


def _words(error: BaseException) -> str:
    return str(error) or type(error).__name__


class AmqpSource:
    """Reads queues. Several connectors that read one queue share its messages."""

    binding = AMQP
    dropped = 0

    def __init__(self, url: BrokerUrl, topics: Sequence[Topic], window: int, *, create: bool) -> None:
        self._url, self._topics, self._window, self._create = url, topics, window, create
        self._connection: AbstractConnection | None = None
        self._channel: AbstractChannel | None = None
        self._waiting: deque[tuple[str, AbstractIncomingMessage]] = deque()
        self._woken = asyncio.Event()
        self._lost = False

    async def open(self) -> bool:
        self._connection = await connect(self._url)
        self._connection.close_callbacks.add(self._on_closed)
        async with broken_is_lost():
            try:
                self._channel = await confirming_channel(self._connection)
                self._channel.close_callbacks.add(self._on_closed)
                underlay = await self._channel.get_underlay_channel()
                underlay.on_consumer_cancel_callbacks.add(self._on_closed)  # the queue was deleted
                await self._set_window()
                for topic in self._topics:
                    queue = await self._channel.declare_queue(topic.filter, durable=True, passive=not self._create)
                    await queue.consume(partial(self._take, topic.filter))
            except ChannelNotFoundEntity:
                raise BrokerRefused(f"there is no queue {topic.filter}; create one, or use --create") from None
            except _FORBIDDEN as error:
                raise BrokerRefused(f"the broker refuses: {error}") from error
        return True

    async def _set_window(self) -> None:
        assert self._channel is not None
        await self._channel.set_qos(prefetch_count=min(self._window, 65_535))

    async def read(self, limit: int, seconds: float) -> list[Received]:
        if not self._waiting and not self._lost:
            self._woken.clear()
            try:
                await asyncio.wait_for(self._woken.wait(), seconds)
            except TimeoutError:
                return []
        if self._lost:
            raise BrokerLost("the connection broke")
        return [_received(*self._waiting.popleft()) for _ in range(min(limit, len(self._waiting)))]

    async def acknowledge(self, messages: Sequence[Received]) -> None:
        """Acknowledges all messages in one frame, all or none, so that equal messages stay interchangeable."""
        if self._lost:
            raise BrokerLost("the connection broke")
        last = max((message.handle for message in messages), key=lambda each: each.delivery_tag or 0)
        assert all((each.delivery_tag or 0) > (last.delivery_tag or 0) for _, each in self._waiting)
        async with broken_is_lost():
            await last.ack(multiple=True)
            await self._set_window()  # its answer shows that the acknowledgement arrived

    async def put_aside(self, message: Received, topic: str, reason: str) -> None:
        """Publishes to the queue with this name."""
        assert self._channel is not None
        headers = {"kindcastproblem": reason, "kindcasttopic": message.topic}
        async with broken_is_lost():
            try:
                if self._create:
                    await self._channel.declare_queue(topic, durable=True)
                sent = message_of(message.content, message.identity, headers)
                await self._channel.default_exchange.publish(sent, topic, mandatory=True, timeout=CONNECT_SECONDS)
            except aio_pika.exceptions.DeliveryError as error:
                raise BrokerRefused(
                    f"the broker accepts no message for the queue {topic}: does the queue exist?"
                ) from error
            except _FORBIDDEN as error:
                raise BrokerRefused(f"a bad message cannot be put aside: the broker refuses: {error}") from error

    async def close(self) -> None:
        if self._connection is not None:
            with suppress(BrokerLost):
                async with broken_is_lost():
                    await self._connection.close()

    async def _take(self, queue: str, message: AbstractIncomingMessage) -> None:
        self._waiting.append((queue, message))
        self._woken.set()

    def _on_closed(self, *_: Any) -> None:
        self._lost = True
        self._woken.set()


def message_of(content: Content, id: str | None, more: dict[str, str] | None = None) -> aio_pika.Message:
    """Returns a persistent message."""
    return aio_pika.Message(
        content.body,
        content_type=content.content_type,
        headers={**content.headers, **(more or {})},
        message_id=id,
        delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
    )


def _received(queue: str, message: AbstractIncomingMessage) -> Received:
    headers = {name: _text(value) for name, value in message.headers.items() if value is not None}
    at = message.timestamp
    return Received(
        topic=queue,
        content=Content(message.body, message.content_type, headers),
        handle=message,
        identity=message.message_id,
        time=None if at is None else _time(at),
        again=bool(message.redelivered),
        more={} if message.routing_key in (None, "", queue) else {"routingkey": str(message.routing_key)},
    )


def _text(value: Any) -> str:
    """Returns the value of a header as CloudEvents writes it."""
    match value:
        case bytes():
            return value.decode("utf-8", "replace")
        case bool():
            return "true" if value else "false"
        case datetime():
            return _time(value)
        case _:
            return str(value)


def _time(at: datetime) -> str:
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")
