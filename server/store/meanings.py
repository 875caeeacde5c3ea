"""The rules of matching that this database was served with, and how each change affected its subscriptions."""

from typing import Any

from sqlalchemy import Connection, Row, insert, select

from kindcast.server.store.tables import meanings, subscriptions

__all__ = ["begin", "has_subscriptions", "latest"]


def latest(connection: Connection) -> Row[Any] | None:
    """(meaning, since, impact) of the rules that this database was last served by; None before rules had a number."""
    return connection.execute(select(meanings).order_by(meanings.c.meaning.desc()).limit(1)).one_or_none()


def begin(connection: Connection, meaning: int, *, since: float, impact: dict[str, Any] | None) -> None:
    """Stores that these rules of matching hold from now on."""
    connection.execute(insert(meanings).values(meaning=meaning, since=since, impact=impact))


def has_subscriptions(connection: Connection) -> bool:
    """Whether there is any subscription."""
    return connection.execute(select(subscriptions.c.number).limit(1)).first() is not None
