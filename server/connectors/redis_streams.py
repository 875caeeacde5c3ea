"""Redis Streams, by the client library redis-py: streams that a consumer group reads, whose entries we acknowledge."""

import secrets
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import Any

import msgspec
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, RedisError, ResponseError
from redis.exceptions import ConnectionError as RedisAway
from redis.exceptions import TimeoutError as RedisTimeout

from kindcast.server.connectors.bindings import REDIS, Content
from kindcast.server.connectors.broker_url import BrokerUrl, Topic
from kindcast.server.connectors.source import BrokerLost, BrokerRefused, Received

__all__ = ["RedisSource"]

CONNECT_SECONDS = 10.0
IDLE_SECONDS = 20.0
"""After so long without an acknowledgement an entry is taken over from a consumer, which may have been killed."""
CLAIMED_EVERY = 5.0
"""Seconds between two looks for such entries."""

DATA, CONTENT_TYPE = "data", "content-type"
CLOCK_FROM = 1_000_000_000_000
"""Milliseconds: ids from here on were made by Redis and tell the time; smaller ones were chosen."""

Fields = Mapping[bytes, bytes]


class RedisSource:
    """Reads streams through the consumer group `group`; where several connectors have the same group, they share the
    entries."""

    binding = REDIS

    def __init__(self, url: BrokerUrl, topics: Sequence[Topic], group: str, *, create: bool) -> None:
        self._url, self._topics, self._group, self._create = url, topics, group, create
        self._consumer = f"kindcast-{secrets.token_hex(6)}"
        self._client: Redis | None = None
        self._looked_at = 0.0

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
        found = await self._taken_over(limit)
        if found:
            return found
        streams = {topic.filter: ">" for topic in self._topics}
        async with self._talking() as client:
            answered = await client.xreadgroup(
                self._group, self._consumer, streams, count=limit, block=max(1, int(1000 * seconds))
            )
        return [
            _received(stream.decode(), id, fields)
            for stream, entries in answered or []
            for id, fields in entries
            if fields is not None  # deleted meanwhile
        ][:limit]

    async def _taken_over(self, limit: int) -> list[Received]:
        """Entries that another consumer has not acknowledged in time."""
        now = time.monotonic()
        if now - self._looked_at < CLAIMED_EVERY:
            return []
        found: list[Received] = []
        for topic in self._topics:
            async with self._talking() as client:
                _, entries, *_ = await client.xautoclaim(
                    topic.filter, self._group, self._consumer, int(1000 * IDLE_SECONDS), count=limit
                )
            found += [_received(topic.filter, id, fields) for id, fields in entries if fields is not None]
            if len(found) >= limit:
                return found  # there may be more: look again at once
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
        fields = {**message.handle[1], b"kindcast-problem": reason.encode(), b"kindcast-topic": message.topic.encode()}
        async with self._talking() as client:
            await client.xadd(topic, fields)

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
        """The client, whose types say less than Redis; raises `BrokerLost` and `BrokerRefused` for what it raises."""
        assert self._client is not None
        try:
            yield self._client
        except AuthenticationError as error:
            raise BrokerRefused(f"Redis refuses the user or the password: {error}") from error
        except (RedisAway, RedisTimeout, OSError, TimeoutError) as error:
            raise BrokerLost(str(error) or type(error).__name__) from error
        except ResponseError as error:
            if str(error).startswith(("NOGROUP", "UNBLOCKED")):  # the stream was deleted: it is to be opened again
                raise BrokerLost(str(error)) from error
            raise BrokerRefused(f"Redis refuses: {error}") from error


def _received(stream: str, id: bytes, fields: Fields) -> Received:
    name = id.decode()
    milliseconds = int(name.partition("-")[0])
    at = None
    if CLOCK_FROM <= milliseconds < 10 * CLOCK_FROM:
        told = datetime.fromtimestamp(milliseconds / 1000, UTC)
        at = told.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return Received(topic=stream, content=_content(fields), handle=(id, fields), identity=name, time=at)


def _content(fields: Fields) -> Content:
    """An entry with a field `data` alone, or beside the attributes of a CloudEvent, has its body there. Any other is a
    JSON object of its fields."""
    texts = {name.decode("utf-8", "replace"): value for name, value in fields.items()}
    headers = {name: value.decode("utf-8", "replace") for name, value in texts.items() if name != DATA}
    kind = headers.pop(CONTENT_TYPE, None)
    is_event = any(f"{prefix}specversion" in headers for prefix in REDIS.prefixes)
    if is_event or (DATA in texts and not headers):
        return Content(texts.get(DATA, b""), kind, headers if is_event else {})
    return Content(msgspec.json.encode({name: _value(value) for name, value in texts.items()}))


def _value(text: bytes) -> Any:
    """A field as JSON: a number, a boolean, null, an object or a list where it reads as one, else text."""
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return text.decode("utf-8", "replace")
    return text.decode() if isinstance(found, str) else msgspec.Raw(text)
