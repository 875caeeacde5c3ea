"""Stored operators: remote ones, data of built-in ones, the subscriptions that call them, and statistics."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Row, delete, func, insert, select, update

from kindcast.server.store.tables import learned, operator_data, operator_uses, operators, subscriptions

__all__ = [
    "count_uses",
    "delete_data",
    "delete_operator",
    "find_learned",
    "keep_learned",
    "list_data",
    "list_operators",
    "note_uses",
    "put_data",
    "put_operator",
    "uses_of",
]


def list_operators(connection: Connection) -> Sequence[Row[Any]]:
    """(name, body, created_at, changed_at) of all registrations, by name."""
    return connection.execute(select(operators).order_by(operators.c.name)).all()


def put_operator(connection: Connection, name: str, body: Mapping[str, Any], now: float) -> bool:
    """Stores a registration, and replaces the one of that name. Returns whether it is new."""
    changed = connection.execute(
        update(operators).where(operators.c.name == name).values(body=dict(body), changed_at=now)
    )
    if changed.rowcount:
        return False
    connection.execute(insert(operators).values(name=name, body=dict(body), created_at=now, changed_at=now))
    return True


def delete_operator(connection: Connection, name: str) -> bool:
    """Deletes a registration. Returns whether there was one."""
    return connection.execute(delete(operators).where(operators.c.name == name)).rowcount > 0


def list_data(connection: Connection) -> Sequence[Row[Any]]:
    """(kind, name, document, changed_at) of all uploaded data, by kind and name."""
    return connection.execute(select(operator_data).order_by(operator_data.c.kind, operator_data.c.name)).all()


def put_data(connection: Connection, kind: str, name: str, document: bytes, now: float) -> bool:
    """Stores a document, and replaces the one of that name. Returns whether it is new."""
    new = not delete_data(connection, kind, name)
    connection.execute(insert(operator_data).values(kind=kind, name=name, document=document, changed_at=now))
    return new


def delete_data(connection: Connection, kind: str, name: str) -> bool:
    """Deletes a document. Returns whether there was one."""
    those = (operator_data.c.kind == kind) & (operator_data.c.name == name)
    return connection.execute(delete(operator_data).where(those)).rowcount > 0


def note_uses(connection: Connection, subscription: int, names: Iterable[str]) -> None:
    """Stores which operators a new subscription calls."""
    rows = [{"operator": name, "subscription": subscription} for name in sorted(names)]
    if rows:
        connection.execute(insert(operator_uses), rows)


def count_uses(connection: Connection) -> dict[str, int]:
    """How many subscriptions call each operator."""
    query = select(operator_uses.c.operator, func.count()).group_by(operator_uses.c.operator)
    return {name: number for name, number in connection.execute(query)}


def uses_of(connection: Connection, name: str, *, limit: int) -> list[str]:
    """Ids of subscriptions that call an operator."""
    query = (
        select(subscriptions.c.id)
        .join_from(operator_uses, subscriptions, subscriptions.c.number == operator_uses.c.subscription)
        .where(operator_uses.c.operator == name)
        .order_by(subscriptions.c.number)
        .limit(limit)
    )
    return list(connection.execute(query).scalars())


def keep_learned(connection: Connection, records: Sequence[Mapping[str, Any]], now: float) -> None:
    """Stores the statistics of operators, and replaces earlier ones."""
    connection.execute(delete(learned))
    connection.execute(insert(learned).values(id=1, records=[dict(each) for each in records], kept_at=now))


def find_learned(connection: Connection) -> list[dict[str, Any]]:
    """The stored statistics of operators; an empty list for a new database."""
    found = connection.execute(select(learned.c.records)).scalar_one_or_none()
    return list(found or [])
