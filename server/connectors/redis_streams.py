"""Redis Streams with the client library redis-py: a source that reads streams in a consumer group with explicit
acknowledgements."""

import secrets
import time
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import Any

import msgspec
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    MasterDownError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
)
from redis.exceptions import ConnectionError as RedisAway
from redis.exceptions import TimeoutError as RedisTimeout

from kindcast.server.connectors.bindings import REDIS, BadMessage, Content
from kindcast.server.connectors.broker_url import BrokerUrl, Topic
from kindcast.server.connectors.source import BrokerLost, BrokerRefused, Received

__all__ = ["RedisSource"]

CONNECT_SECONDS = 10.0
IDLE_SECONDS = 20.0
"""An entry is claimed from its consumer after this time without an acknowledgement, because the consumer may have been
killed."""
CLAIMED_EVERY = 5.0
"""The seconds between two searches for such entries."""

DATA, CONTENT_TYPE = "data", "content-type"
CLOCK_FROM = 1_000_000_000_000
"""Milliseconds. Ids from this value on were made by Redis and contain the time; smaller ones were chosen by the
publisher."""

_PASSING = (ReadOnlyError, OutOfMemoryError, MasterDownError)
_PASSING_WORDS = ("NOGROUP", "UNBLOCKED", "MISCONF", "NOREPLICAS")
"""Refusals that pass: another server takes over, memory or disk is full, or too few replicas are connected. The first
two words say that the stream was deleted. It must be opened again."""

Fields = Sequence[bytes]
"""Names and values in turn, as Redis has them: two fields may have one name, which redis-py's own answer would hide."""


class RedisSource:
    """Reads streams with the consumer group `group`. Several connectors with the same group share the entries."""

    binding = REDIS
    dropped = 0

    def __init__(self, url: BrokerUrl, topics: Sequence[Topic], group: str, *, create: bool) -> None:
        self._url, self._topics, self._group, self._create = url, topics, group, create
        self._consumer = f"kindcast-{secrets.token_hex(6)}"
        self._client: Redis | None = None
        self._looked_at = 0.0
        self._waiting: deque[Received] = deque()  # read from the broker, but beyond the limit

    async def open(self) -> bool:
        (host, port) = self._url.hosts[0]
        self._client = Redis(
            host=host,
            port=port,
            db=int(self._url.path or 0),
            username=self._url.user or None,
            password=self._url.password,
            ssl=self._url.tls,
            socket_connect_timeout=CONNECT_SECONDS,
            socket_timeout=CONNECT_SECONDS,
            retry=Retry(NoBackoff(), 0),
            protocol=2,  # answers are lists
        )
        for command in ("XREADGROUP", "XAUTOCLAIM"):
            self._client.set_response_callback(command, lambda response, **kwargs: response)
        for topic in self._topics:
            await self._make_group(topic.filter)
        return True

    async def _make_group(self, stream: str) -> None:
        async with self._talking() as client:
            try:
                await client.xgroup_create(stream, self._group, id="0", mkstream=self._create)
            except ResponseError as error:
                if "BUSYGROUP" in str(error):
                    return
                if "requires the key to exist" in str(error):
                    raise BrokerRefused(f"there is no stream {stream}; add an entry to it, or use --create") from None
                raise

    async def read(self, limit: int, seconds: float) -> list[Received]:
        if not self._waiting:
            self._waiting.extend(await self._taken_over(limit) or await self._new(limit, seconds))
        return [self._waiting.popleft() for _ in range(min(limit, len(self._waiting)))]

    async def _new(self, limit: int, seconds: float) -> list[Received]:
        """Returns new entries, at most `limit` of each stream, because Redis counts each stream separately."""
        streams = {topic.filter: ">" for topic in self._topics}
        async with self._talking() as client:
            answered = await client.xreadgroup(
                self._group, self._consumer, streams, count=limit, block=max(1, int(1000 * seconds))
            )
        return [
            _received(stream.decode(), id, fields)
            for stream, entries in answered or []
            for id, fields in filter(None, entries)
            if fields is not None  # deleted entry
        ]

    async def _taken_over(self, limit: int) -> list[Received]:
        """Claims entries that another consumer has not acknowledged in time."""
        now = time.monotonic()
        if now - self._looked_at < CLAIMED_EVERY:
            return []
        found: list[Received] = []
        for topic in self._topics:
            async with self._talking() as client:
                _, entries, *_ = await client.xautoclaim(
                    topic.filter, self._group, self._consumer, int(1000 * IDLE_SECONDS), count=limit
                )
            found += [_received(topic.filter, id, fields) for id, fields in filter(None, entries) if fields is not None]
            if len(found) >= limit:
                return found  # there may be more, so the next call searches at once
        self._looked_at = now
        return found

    async def acknowledge(self, messages: Sequence[Received]) -> None:
        ids: dict[str, list[bytes]] = defaultdict(list)
        for message in messages:
            ids[message.topic].append(message.handle[0])
        for stream, those in ids.items():
            async with self._talking() as client:
                await client.xack(stream, self._group, *those)

    async def put_aside(self, message: Received, topic: str, reason: str) -> None:
        added = (b"kindcast-problem", reason.encode(), b"kindcast-topic", message.topic.encode())
        async with self._talking() as client:
            await client.execute_command("XADD", topic, "*", *message.handle[1], *added)

    async def close(self) -> None:
        """Deletes the consumer if it has no pending entries."""
        if self._client is None:
            return
        with suppress(RedisError, OSError, TimeoutError):
            for topic in self._topics:
                if not await self._client.xpending_range(topic.filter, self._group, "-", "+", 1, self._consumer):
                    await self._client.xgroup_delconsumer(topic.filter, self._group, self._consumer)
        with suppress(RedisError, OSError, TimeoutError):
            await self._client.aclose()

    @asynccontextmanager
    async def _talking(self) -> AsyncIterator[Any]:
        """A context manager with the client. Converts its errors to `BrokerLost` and `BrokerRefused`."""
        assert self._client is not None
        try:
            yield self._client
        except AuthenticationError as error:
            raise BrokerRefused(f"Redis refuses the user or the password: {error}") from error
        except (RedisAway, RedisTimeout, OSError, TimeoutError) as error:
            raise BrokerLost(str(error) or type(error).__name__) from error
        except ResponseError as error:
            if isinstance(error, _PASSING) or str(error).startswith(_PASSING_WORDS):
                raise BrokerLost(str(error)) from error
            raise BrokerRefused(f"Redis refuses: {error}") from error
        except RedisError as error:  # for example an answer that is not Redis's protocol
            raise BrokerLost(str(error) or type(error).__name__) from error


def _received(stream: str, id: bytes, fields: Fields) -> Received:
    name = id.decode()
    milliseconds = int(name.partition("-")[0])
    at = None
    if CLOCK_FROM <= milliseconds < 10 * CLOCK_FROM:
        told = datetime.fromtimestamp(milliseconds / 1000, UTC)
        at = told.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    try:
        content = _content(fields)
    except BadMessage as error:
        content = Content(b"", problem=str(error))
    return Received(topic=stream, content=content, handle=(id, fields), identity=name, time=at)


def _content(fields: Fields) -> Content:
    """Returns the content of an entry. If it has only a field `data`, or also attributes of a CloudEvent, `data` is the
    body. Any other entry is a JSON object of its fields. Raises `BadMessage`."""
    values: dict[str, bytes] = {}
    for each, value in zip(fields[::2], fields[1::2], strict=True):
        name = _text(each, each)
        if name in values:
            raise BadMessage(f"several fields have the name {name}")
        values[name] = value
    headers = {name: _text(name.encode(), value) for name, value in values.items() if name != DATA}
    kind = headers.pop(CONTENT_TYPE, None)
    is_event = any(f"{prefix}specversion" in headers for prefix in REDIS.prefixes)
    if is_event or (DATA in values and not headers):
        return Content(values.get(DATA, b""), kind, headers if is_event else {})
    return Content(msgspec.json.encode({name: _value(name, value) for name, value in values.items()}))


def _text(name: bytes, value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise BadMessage(f"the field {name.decode('utf-8', 'replace')} is not UTF-8") from None


def _value(name: str, value: bytes) -> Any:
    """Returns a field as a JSON value: a number, boolean, null, object or list if it can be read as one, else text."""
    try:
        found = msgspec.json.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _text(name.encode(), value)
    return value.decode() if isinstance(found, str) else msgspec.Raw(value)
