"""Messages as they come, for one reader who stays: `follow` reads them, and both streams write what it yields.

    follow ──pages, pauses, the end──┬──▶ stream: server-sent events, one long answer
                                     └──▶ websocket.py

Server-sent events:

    id: 42                      the cursor; a browser sends it back as Last-Event-ID and goes on there
    event: match
    data: {"cursor": "42", "event": …}

    event: expiring             once, a day before the subscription ends; data: {"expiring": "…"}

Between matches a comment shows that the connection lives. `event: end` with a reason comes last: `shutdown` (connect
again), `deleted`, `expired` or `hidden` (do not). A slow reader costs no memory: pages are read from the store only as
fast as the connection takes them, and at most one page is held.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Literal

from fastapi.sse import KEEPALIVE_COMMENT, format_sse_event
from sqlalchemy import Connection

from kindcast.server.broker import Broker
from kindcast.server.clock import CLOCK
from kindcast.server.delivery.message import encode, expiring, message_of, start_of, subscriber_of
from kindcast.server.delivery.wakeup import Wakeups
from kindcast.server.errors import HiddenAttribute, RecordDamaged
from kindcast.server.security.payloads import Reader
from kindcast.server.store.deliveries import StoredMatch, Subscriber, find_subscriber, read_matches

__all__ = ["End", "Expiring", "Start", "find_start", "follow", "stream"]

End = Literal["shutdown", "deleted", "expired", "damaged", "hidden"]
"""Why a stream ends."""

PAGE_MESSAGES = 256
PAGE_BYTES = 1 << 20
"""Held per stream at most, save for one event that is larger."""

RETRY_MILLISECONDS = 1_000
"""What we ask a reader to wait before it connects again."""


@dataclass(frozen=True, slots=True)
class Expiring:
    """The subscription ends within a day, then."""

    at: str


@dataclass(frozen=True, slots=True)
class Start:
    """Where a stream begins. `over`: the subscription has expired and there is nothing left to send."""

    subscriber: Subscriber
    after: int
    reader: Reader
    over: bool


async def find_start(broker: Broker, id: str, after: str | None, reader: Reader) -> Start:
    """Checks what the reader asks for, before the answer begins. Raises `UnknownSubscription`, `HiddenAttribute`,
    `InvalidCursor`, `CursorGone`."""

    def read(connection: Connection) -> Start:
        subscriber = subscriber_of(connection, id)
        reader.check(connection, subscriber.number)
        start = start_of(connection, subscriber, after)
        left = read_matches(connection, subscriber.number, after=start, limit=1, byte_budget=1)
        return Start(subscriber, start, reader, over=_has_expired(subscriber) and not left)

    return await broker.read(read)


async def follow(
    broker: Broker, wakeups: Wakeups, start: Start, ping_seconds: float
) -> AsyncIterator[list[StoredMatch] | Expiring | End | None]:
    """What a reader gets from `start` on: pages of matches; once that the subscription will end, for each end; None
    when nothing has come for so many seconds; last the reason why there is no more. A page is read when the one before
    was taken."""
    number, after, told = start.subscriber.number, start.after, None

    def read(connection: Connection) -> tuple[Subscriber | None, list[StoredMatch]]:
        start.reader.check(connection, number)  # it may have been declared meanwhile
        found = read_matches(connection, number, after=after, limit=PAGE_MESSAGES, byte_budget=PAGE_BYTES)
        return find_subscriber(connection, number), found

    with wakeups.watch(number) as woken:
        while not wakeups.closed:
            woken.clear()
            try:
                subscriber, page = await broker.read(read)
            except RecordDamaged:
                yield "damaged"
                return
            except HiddenAttribute:
                yield "hidden"
                return
            if page:
                yield page
                after = page[-1].position
            if subscriber is None:
                yield "deleted"
                return
            if (soon := expiring(subscriber)) is not None and soon != told:
                told = soon
                yield Expiring(soon)
            if page:
                continue
            if _has_expired(subscriber):
                yield "expired"
                return
            try:
                async with asyncio.timeout(min(ping_seconds, max(0.0, subscriber.expires_at - CLOCK.now()))):
                    await woken.wait()
            except TimeoutError:
                yield None
    yield "shutdown"


async def stream(broker: Broker, wakeups: Wakeups, start: Start, ping_seconds: float) -> AsyncIterator[bytes]:
    """The lines of the answer, from `start` until the subscription ends, the server stops or the reader leaves."""
    yield format_sse_event(retry=RETRY_MILLISECONDS)
    async for step in follow(broker, wakeups, start, ping_seconds):
        if step is None:
            yield KEEPALIVE_COMMENT
        elif isinstance(step, str):
            yield format_sse_event(event="end", data_str=f'{{"reason":"{step}"}}')
        elif isinstance(step, Expiring):
            yield format_sse_event(event="expiring", data_str=f'{{"expiring":"{step.at}"}}')
        else:
            for match in step:
                chosen = start.subscriber.id, match, start.subscriber.attributes, start.reader.shown
                data = encode(message_of(*chosen)).decode()
                yield format_sse_event(id=str(match.position), event="match", data_str=data)


def _has_expired(subscriber: Subscriber) -> bool:
    return subscriber.status == "expired" or subscriber.expires_at <= CLOCK.now()
