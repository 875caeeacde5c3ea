"""Stored declarations, every version of each: attributes, synonyms, exchange rates, event types and others; and stored
operators: remote ones, the data of built-in ones, the subscriptions that call them, and statistics."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from sqlalchemy import Connection, Row, and_, delete, func, insert, select, update

from kindcast.server.store.tables import declarations, learned, operator_data, operator_uses, operators, subscriptions

__all__ = [
    "StoredDeclaration",
    "activate",
    "active",
    "add_version",
    "count_uses",
    "delete_data",
    "delete_declaration",
    "delete_operator",
    "digest",
    "find_learned",
    "find_same",
    "keep_learned",
    "list_active",
    "list_data",
    "list_operators",
    "list_versions",
    "note_uses",
    "put_data",
    "put_operator",
    "uses_of",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredDeclaration:
    """One version of a declaration, which has a kind and a name."""

    kind: str
    name: str
    body: Any

    @property
    def sha256(self) -> str:
        return digest(self.body)


def digest(body: Any) -> str:
    """The digest of a body. The order of its members does not count."""
    return hashlib.sha256(msgspec.json.encode(body, order="sorted")).hexdigest()


def add_version(connection: Connection, declared: StoredDeclaration, *, now: float) -> int:
    """Stores another version, which is not active yet. Returns its number; the versions of a name count from 1."""
    those = _those(declared.kind, declared.name)
    newest = select(declarations.c.version).where(those).order_by(declarations.c.version.desc()).limit(1)
    version = max(connection.execute(newest).scalars(), default=0) + 1
    connection.execute(
        insert(declarations).values(
            kind=declared.kind,
            name=declared.name,
            version=version,
            sha256=declared.sha256,
            body=declared.body,
            active=False,
            created_at=now,
        )
    )
    return version


def activate(connection: Connection, kind: str, name: str, version: int) -> None:
    """Makes this version the active one of its name."""
    connection.execute(update(declarations).where(_those(kind, name)).values(active=declarations.c.version == version))


def delete_declaration(connection: Connection, kind: str, name: str) -> None:
    """Deletes every version of a name."""
    connection.execute(delete(declarations).where(_those(kind, name)))


def active(connection: Connection) -> Sequence[Row[Any]]:
    """All active declarations, by kind and name."""
    query = select(declarations).where(declarations.c.active)
    return connection.execute(query.order_by(declarations.c.kind, declarations.c.name)).all()


def list_active(connection: Connection, kind: str) -> Sequence[Row[Any]]:
    """The active declarations of one kind, by name."""
    query = select(declarations).where(declarations.c.active, declarations.c.kind == kind)
    return connection.execute(query.order_by(declarations.c.name)).all()


def list_versions(connection: Connection, kind: str, name: str) -> Sequence[Row[Any]]:
    """Every version of a name, newest first."""
    query = select(declarations).where(_those(kind, name))
    return connection.execute(query.order_by(declarations.c.version.desc())).all()


def find_same(connection: Connection, declared: StoredDeclaration) -> Row[Any] | None:
    """The newest version with the same body."""
    query = select(declarations).where(_those(declared.kind, declared.name), declarations.c.sha256 == declared.sha256)
    return connection.execute(query.order_by(declarations.c.version.desc()).limit(1)).one_or_none()


def _those(kind: str, name: str) -> Any:
    return and_(declarations.c.kind == kind, declarations.c.name == name)


# ── stored operators: remote ones, data of built-in ones, the subscriptions that call them, and statistics ────────────


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
