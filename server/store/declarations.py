"""Stored declarations: attributes, synonyms, conversion rates and event types, every version of each."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from sqlalchemy import Connection, Row, and_, delete, insert, select, update

from kindcast.server.store.tables import declarations

__all__ = [
    "StoredDeclaration",
    "activate",
    "active",
    "add_version",
    "delete_declaration",
    "digest",
    "find_same",
    "list_active",
    "list_versions",
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
