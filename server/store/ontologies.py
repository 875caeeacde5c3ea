"""Ontology documents, every version as it was uploaded."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Column, Connection, Row, delete, insert, select, update

from server.store.tables import ontologies

__all__ = [
    "StoredOntology",
    "activate",
    "active_documents",
    "add_version",
    "delete_ontology",
    "find_same",
    "find_version",
    "list_ontologies",
    "list_versions",
]

_DESCRIPTION: tuple[Column[Any], ...] = (
    ontologies.c.name,
    ontologies.c.version,
    ontologies.c.sha256,
    ontologies.c.format,
    ontologies.c.report,
    ontologies.c.active,
    ontologies.c.created_at,
)
"""All but the document, which may be many megabytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredOntology:
    """A version as it is stored. `format` is what its parser was told, so that it reads the same again."""

    name: str
    sha256: str
    format: str
    document: bytes
    report: dict[str, Any]


def add_version(connection: Connection, ontology: StoredOntology, *, now: float) -> int:
    """Store another version, not yet active; returns its number, from 1 upwards by name."""
    query = select(ontologies.c.version).where(ontologies.c.name == ontology.name)
    version = max(connection.execute(query.order_by(ontologies.c.version.desc()).limit(1)).scalars(), default=0) + 1
    connection.execute(
        insert(ontologies).values(
            name=ontology.name,
            version=version,
            sha256=ontology.sha256,
            format=ontology.format,
            document=ontology.document,
            report=ontology.report,
            active=False,
            created_at=now,
        )
    )
    return version


def activate(connection: Connection, name: str, version: int) -> None:
    """Make this version, and no other of the name, the active one."""
    connection.execute(
        update(ontologies).where(ontologies.c.name == name).values(active=ontologies.c.version == version)
    )


def delete_ontology(connection: Connection, name: str) -> None:
    """Forget every version of a name."""
    connection.execute(delete(ontologies).where(ontologies.c.name == name))


def active_documents(connection: Connection) -> Sequence[Row[Any]]:
    """The active versions with their documents, by name: what makes the vocabulary."""
    return connection.execute(select(ontologies).where(ontologies.c.active).order_by(ontologies.c.name)).all()


def find_same(connection: Connection, name: str, sha256: str) -> Row[Any] | None:
    """The newest version of a name with these bytes."""
    query = select(*_DESCRIPTION).where(ontologies.c.name == name, ontologies.c.sha256 == sha256)
    return connection.execute(query.order_by(ontologies.c.version.desc()).limit(1)).one_or_none()


def find_version(connection: Connection, name: str, version: int) -> Row[Any] | None:
    """One version with its document."""
    query = select(ontologies).where(ontologies.c.name == name, ontologies.c.version == version)
    return connection.execute(query).one_or_none()


def list_ontologies(connection: Connection) -> Sequence[Row[Any]]:
    """One row a name, the active version if there is one, else the newest; by name."""
    rows = connection.execute(select(*_DESCRIPTION).order_by(ontologies.c.name, ontologies.c.version)).all()
    chosen: dict[str, Row[Any]] = {}
    for row in rows:
        if row.name not in chosen or not chosen[row.name].active:
            chosen[row.name] = row
    return list(chosen.values())


def list_versions(connection: Connection, name: str) -> Sequence[Row[Any]]:
    """Every version of a name, newest first."""
    query = select(*_DESCRIPTION).where(ontologies.c.name == name)
    return connection.execute(query.order_by(ontologies.c.version.desc())).all()
