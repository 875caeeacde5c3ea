"""Dead letters: what waits for a webhook that was disabled by its failures. Nobody sends it until somebody says so.

They are the matches after the cursor, as anybody's; only the status of the subscription tells them from pending ones.
So nothing moves when a webhook is given up, nor when it is taken up again.
"""

from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, select

from server.store.deliveries import StoredMatch, Subscriber, find_subscriber, read_matches
from server.store.tables import subscriptions

__all__ = ["DISABLED", "DeadLetter", "is_dead", "list_dead"]

DISABLED = "disabled_by_failures"


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A match, and the subscription that did not get it."""

    subscriber: Subscriber
    match: StoredMatch


def is_dead() -> ColumnElement[bool]:
    """Whether what waits for a subscription is dead."""
    return subscriptions.c.status == DISABLED


def list_dead(
    connection: Connection, *, after: tuple[int, int], limit: int, byte_budget: int, only: str | None = None
) -> list[DeadLetter]:
    """The next ones after (number of a subscription, position), in that order; of one subscription, where its id is
    given. Fewer than `limit` when their events fill the byte budget (at least one comes)."""
    number, position = after
    query = select(subscriptions.c.number).where(is_dead(), subscriptions.c.number >= number)
    if only is not None:
        query = query.where(subscriptions.c.id == only)
    found: list[DeadLetter] = []
    for each in connection.execute(query.order_by(subscriptions.c.number)).scalars().all():
        subscriber = find_subscriber(connection, each)
        assert subscriber is not None, each
        start = max(subscriber.start, position) if each == number else subscriber.start
        left = limit - len(found)
        matches = read_matches(connection, each, after=start, limit=left, byte_budget=byte_budget)
        found += (DeadLetter(subscriber, match) for match in matches)
        byte_budget -= sum(len(match.body) for match in matches)
        if len(found) >= limit or byte_budget <= 0:
            break
    return found
