"""Sent notices of expiry: one row per notice, with the announced end."""

from collections.abc import Iterable

import sqlalchemy as sa
from sqlalchemy import Connection
from sqlalchemy.dialects import postgresql, sqlite

from kindcast.server.store.deliveries import PUSHED_STATUSES
from kindcast.server.store.tables import expiry_notices as notices
from kindcast.server.store.tables import subscriptions

__all__ = ["NOTICE_SECONDS", "due_notices", "forget_notices", "note_told"]

NOTICE_SECONDS = 86_400.0
"""Before its end an owner is told. A subscription that lives no longer than that from its creation is told nothing, and
one that is renewed again and again for less is told once in so long."""


def due_notices(connection: Connection, now: float, after: tuple[float, int], limit: int) -> list[tuple[float, int]]:
    """(end, number) of subscriptions with a sink that end within a day of `now` and whose owners do not know it yet, in
    order, those behind `after`. Looks at all subscriptions once."""
    of, told = subscriptions.c, notices.c
    statement = (
        sa.select(of.expires_at, of.number)
        .outerjoin(notices, told.subscription == of.number)
        .where(
            of.sink.is_not(None),
            of.status.in_(PUSHED_STATUSES),
            of.expires_at > now,
            of.expires_at <= now + NOTICE_SECONDS,
            of.expires_at > of.created_at + NOTICE_SECONDS,
            sa.tuple_(of.expires_at, of.number) > sa.tuple_(sa.literal(after[0]), sa.literal(after[1])),
            told.subscription.is_(None) | ((told.ends_at != of.expires_at) & (told.told_at <= now - NOTICE_SECONDS)),
        )
        .order_by(of.expires_at, of.number)
        .limit(limit)
    )
    return [(end, number) for end, number in connection.execute(statement)]


def note_told(connection: Connection, told: Iterable[tuple[int, float]], now: float) -> None:
    """These owners know now: (subscription, the end that was named)."""
    dialect = sqlite if connection.dialect.name == "sqlite" else postgresql
    rows = [{"subscription": number, "ends_at": ends_at, "told_at": now} for number, ends_at in told]
    statement = dialect.insert(notices)
    changed = {"ends_at": statement.excluded.ends_at, "told_at": statement.excluded.told_at}
    connection.execute(statement.on_conflict_do_update(index_elements=["subscription"], set_=changed), rows)


def forget_notices(connection: Connection) -> None:
    """Deletes the rows of deleted subscriptions."""
    there = sa.select(subscriptions.c.number).where(subscriptions.c.number == notices.c.subscription)
    connection.execute(notices.delete().where(~there.exists()))
