"""Pull and acknowledge: a subscriber reads pages at its own pace, and acknowledges up to a cursor.

    pull(after, limit, wait) --> messages, cursor      as often as wanted: reading changes nothing
    acknowledge(cursor)      --> acked                  the next pull starts there, also after a restart

A long poll sleeps until the broker announces a commit that concerns the subscription; nothing is polled.
"""

import asyncio

from sqlalchemy import Connection

from kindcast.server.broker import Broker
from kindcast.server.delivery.message import Page, expiring, message_of, parse_cursor, start_of, subscriber_of
from kindcast.server.delivery.wakeup import Wakeups
from kindcast.server.security.payloads import Reader
from kindcast.server.security.tickets import Claim, check_ticket
from kindcast.server.store.deliveries import Subscriber, acknowledge, read_matches

__all__ = ["DEFAULT_LIMIT", "MAX_LIMIT", "acknowledge_cursor", "pull"]

DEFAULT_LIMIT = 100
MAX_LIMIT = 10_000
"""Messages of one pull."""

MAX_PAGE_BYTES = 16 << 20
"""Of the events in one pull: a page ends early rather than filling the memory of both sides."""


async def pull(
    broker: Broker, wakeups: Wakeups, id: str, reader: Reader, *, after: str | None, limit: int, wait: float
) -> Page:
    """The next messages. Waits up to `wait` seconds for the first one; an empty page means that nothing came.

    Raises `UnknownSubscription`, `HiddenAttribute`, `InvalidCursor`, `CursorGone`.
    """

    def read(connection: Connection) -> tuple[Subscriber, Page]:
        subscriber = subscriber_of(connection, id)
        reader.check(connection, subscriber.number)
        start = start_of(connection, subscriber, after)
        found = read_matches(connection, subscriber.number, after=start, limit=limit, byte_budget=MAX_PAGE_BYTES)
        messages = [message_of(id, match, subscriber.attributes, reader.shown) for match in found]
        cursor = messages[-1].cursor if messages else str(start)
        return subscriber, Page(messages, cursor, expiring(subscriber))

    subscriber, page = await broker.read(read)
    if page.events or wait <= 0:
        return page
    with wakeups.watch(subscriber.number) as woken:
        try:
            async with asyncio.timeout(wait):
                while not page.events and not wakeups.closed:
                    woken.clear()
                    _, page = await broker.read(read)
                    if not page.events:
                        await woken.wait()
        except TimeoutError:
            pass
    return page


async def acknowledge_cursor(broker: Broker, id: str, cursor: str, ticket: Claim | str | None) -> int:
    """Acknowledges everything up to the cursor; returns the subscription's cursor, which never moves back. On disk when
    it returns.

    Raises `UnknownSubscription`, `TicketMissing`, `TicketWrong`, `InvalidCursor`.
    """

    def write(connection: Connection) -> tuple[int, int]:
        subscriber = subscriber_of(connection, id)
        check_ticket(ticket, subscriber.ticket_hash, subscriber.created_by)
        return subscriber.number, acknowledge(connection, subscriber, parse_cursor(connection, cursor))

    _, acked = await broker.execute(write, lambda done: {done[0]})
    return acked
