"""Server-sent events: one long response that carries each match of a subscription as it is decided.

    id: 42                      the cursor; a browser sends it back as Last-Event-ID and goes on there
    event: match
    data: {"cursor": "42", "event": …}

Between matches a comment shows that the connection lives. `event: end` with a reason comes last: `shutdown` (connect
again), `deleted` or `expired` (do not). A slow reader costs no memory: pages are read from the store only as fast as
the connection takes them, and at most one page is held.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from fastapi.sse import KEEPALIVE_COMMENT, format_sse_event
from sqlalchemy import Connection

from kindcast.server.broker import Broker
from kindcast.server.clock import CLOCK
from kindcast.server.delivery.message import encode, message_of, start_of, subscriber_of
from kindcast.server.delivery.wakeup import Wakeups
from kindcast.server.store.deliveries import StoredMatch, Subscriber, find_subscriber, read_matches

__all__ = ["Start", "find_start", "stream"]

PAGE_MESSAGES = 256
PAGE_BYTES = 1 << 20
"""Held per stream at most, save for one event that is larger."""

RETRY_MILLISECONDS = 1_000
"""What we ask a reader to wait before it connects again."""


@dataclass(frozen=True, slots=True)
class Start:
    """Where a stream begins. `over`: the subscription has expired and there is nothing left to send."""

    subscriber: Subscriber
    after: int
    over: bool


async def find_start(broker: Broker, id: str, after: str | None) -> Start:
    """Checks what the reader asks for, before the answer begins. Raises `UnknownSubscription`, `InvalidCursor`,
    `CursorGone`."""

    def read(connection: Connection) -> Start:
        subscriber = subscriber_of(connection, id)
        start = start_of(connection, subscriber, after)
        left = read_matches(connection, subscriber.number, after=start, limit=1, byte_budget=1)
        return Start(subscriber, start, over=_has_expired(subscriber) and not left)

    return await broker.read(read)


async def stream(broker: Broker, wakeups: Wakeups, start: Start, ping_seconds: float) -> AsyncIterator[bytes]:
    """The lines of the answer, from `start` until the subscription ends, the server stops or the reader leaves."""
    number, id, after = start.subscriber.number, start.subscriber.id, start.after

    def read(connection: Connection) -> tuple[Subscriber | None, list[StoredMatch]]:
        found = read_matches(connection, number, after=after, limit=PAGE_MESSAGES, byte_budget=PAGE_BYTES)
        return find_subscriber(connection, number), found

    yield format_sse_event(retry=RETRY_MILLISECONDS)
    with wakeups.watch(number) as woken:
        while not wakeups.closed:
            woken.clear()
            subscriber, page = await broker.read(read)
            for match in page:
                data = encode(message_of(id, match)).decode()
                yield format_sse_event(id=str(match.position), event="match", data_str=data)
                after = match.position
            if subscriber is None:
                yield _end("deleted")
                return
            if page:
                continue
            if _has_expired(subscriber):
                yield _end("expired")
                return
            try:
                async with asyncio.timeout(min(ping_seconds, max(0.0, subscriber.expires_at - CLOCK.now()))):
                    await woken.wait()
            except TimeoutError:
                yield KEEPALIVE_COMMENT
    yield _end("shutdown")


def _has_expired(subscriber: Subscriber) -> bool:
    return subscriber.status == "expired" or subscriber.expires_at <= CLOCK.now()


def _end(reason: str) -> bytes:
    return format_sse_event(event="end", data_str=f'{{"reason":"{reason}"}}')
