"""Stored ontologies: every version of each document as uploaded, with the records read from it.

`shared_ontologies` has the names of the ontologies that all tenants share. Only the tenant `default` changes them; the
others have copies.

`meanings` has the numbers of the matching rules under which the database was served, and the effect of each change.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Column, Connection, Row, delete, insert, select, update

from kindcast.server.store.tables import meanings, ontologies, shared_ontologies, subscriptions

__all__ = [
    "StoredOntology",
    "activate",
    "active_records",
    "active_versions",
    "add_version",
    "begin",
    "copy_version",
    "delete_ontology",
    "find_document",
    "find_previous",
    "find_same",
    "find_version",
    "find_whole",
    "has_subscriptions",
    "keep_records",
    "latest",
    "list_ontologies",
    "list_versions",
    "mark_shared",
    "match_shared",
    "own_names",
    "shared_names",
    "shared_versions",
]

_DESCRIPTION: tuple[Column[Any], ...] = (
    ontologies.c.name,
    ontologies.c.version,
    ontologies.c.sha256,
    ontologies.c.format,
    ontologies.c.report,
    ontologies.c.active,
    ontologies.c.created_at,
    ontologies.c.reason,
    ontologies.c.relations,
    ontologies.c.activated_at,
)
"""All columns except the document and its records, which may have many megabytes each."""

_RECORDS: tuple[Column[Any], ...] = (*_DESCRIPTION, ontologies.c.records)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredOntology:
    """A stored version. `format` is the format that its parser used, so that it reads the same again. `records` are the
    encoded records that were read. `reason` and `relations` (sorted) are the options of the upload."""

    name: str
    sha256: str
    format: str
    document: bytes
    report: dict[str, Any]
    records: bytes
    reason: str = "none"
    relations: tuple[str, ...] = ()


def add_version(connection: Connection, ontology: StoredOntology, *, now: float) -> int:
    """Stores another version, which is not active yet. Returns its number; the versions of a name count from 1."""
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
            records=ontology.records,
            reason=ontology.reason,
            relations=list(ontology.relations),
        )
    )
    return version


def activate(connection: Connection, name: str, version: int, *, now: float) -> None:
    """Makes this version the only active one of its name."""
    named = ontologies.c.name == name
    connection.execute(update(ontologies).where(named).values(active=ontologies.c.version == version))
    connection.execute(update(ontologies).where(named, ontologies.c.version == version).values(activated_at=now))


def delete_ontology(connection: Connection, name: str) -> None:
    """Deletes every version of a name."""
    connection.execute(delete(ontologies).where(ontologies.c.name == name))
    connection.execute(delete(shared_ontologies).where(shared_ontologies.c.name == name))


def active_records(connection: Connection) -> Sequence[Row[Any]]:
    """The active versions with their records, by name. They make the vocabulary."""
    return connection.execute(select(*_RECORDS).where(ontologies.c.active).order_by(ontologies.c.name)).all()


def active_versions(connection: Connection) -> list[list[Any]]:
    """[name, version] of each active version, by name."""
    query = select(ontologies.c.name, ontologies.c.version).where(ontologies.c.active).order_by(ontologies.c.name)
    return [[name, version] for name, version in connection.execute(query)]


def find_document(connection: Connection, name: str, version: int) -> bytes:
    """The document of an existing version, as it was uploaded."""
    query = select(ontologies.c.document).where(ontologies.c.name == name, ontologies.c.version == version)
    document: bytes = connection.execute(query).scalar_one()
    return document


def keep_records(connection: Connection, name: str, version: int, records: bytes) -> None:
    """Stores the records of a document that was read again, because they were missing or had an older form."""
    those = (ontologies.c.name == name) & (ontologies.c.version == version)
    connection.execute(update(ontologies).where(those).values(records=records))


def find_same(connection: Connection, name: str, sha256: str, reason: str, relations: Sequence[str]) -> Row[Any] | None:
    """Returns the newest version of a name with these bytes and these options; None if there is none."""
    query = select(*_DESCRIPTION).where(
        ontologies.c.name == name, ontologies.c.sha256 == sha256, ontologies.c.reason == reason
    )
    rows = connection.execute(query.order_by(ontologies.c.version.desc()))
    return next((row for row in rows if row.relations == list(relations)), None)


def find_version(connection: Connection, name: str, version: int) -> Row[Any] | None:
    """One version with its records."""
    query = select(*_RECORDS).where(ontologies.c.name == name, ontologies.c.version == version)
    return connection.execute(query).one_or_none()


def find_previous(connection: Connection, name: str) -> int | None:
    """Returns the version that was active before the current one; None if there was none."""
    query = select(ontologies.c.version).where(
        ontologies.c.name == name, ontologies.c.active.is_(False), ontologies.c.activated_at.is_not(None)
    )
    return connection.execute(query.order_by(ontologies.c.activated_at.desc()).limit(1)).scalar_one_or_none()


def list_ontologies(connection: Connection) -> Sequence[Row[Any]]:
    """One row per name, in order of names: the active version if there is one, otherwise the newest."""
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


def mark_shared(connection: Connection, name: str) -> None:
    """Marks the ontology as shared by all tenants."""
    if name not in shared_names(connection):
        connection.execute(insert(shared_ontologies).values(name=name))


def shared_names(connection: Connection) -> set[str]:
    """The names of the ontologies that all tenants share."""
    return set(connection.execute(select(shared_ontologies.c.name)).scalars())


def own_names(connection: Connection) -> set[str]:
    """The names of the ontologies that belong to this tenant alone."""
    return set(connection.execute(select(ontologies.c.name).distinct()).scalars()) - shared_names(connection)


def shared_versions(connection: Connection) -> list[Row[Any]]:
    """Every version of every shared ontology, by name, without documents."""
    shared = ontologies.c.name.in_(select(shared_ontologies.c.name))
    query = select(*_DESCRIPTION).where(shared).order_by(ontologies.c.name, ontologies.c.version)
    return list(connection.execute(query))


def find_whole(connection: Connection, name: str, version: int) -> dict[str, Any]:
    """All columns of an existing version."""
    these = ontologies.c.name == name, ontologies.c.version == version
    return dict(connection.execute(select(ontologies).where(*these)).one()._mapping)


def copy_version(connection: Connection, whole: dict[str, Any]) -> None:
    """Stores a copy of a version of a shared ontology from another tenant, under the same number. It is not active
    yet."""
    mark_shared(connection, whole["name"])
    connection.execute(insert(ontologies).values({**whole, "active": False}))


def match_shared(connection: Connection, wanted: Sequence[Row[Any]]) -> None:
    """Makes the same versions of shared ontologies active as in `wanted`, whose versions are all stored here."""
    for each in wanted:
        this = ontologies.c.name == each.name, ontologies.c.version == each.version
        active = {"active": each.active, "activated_at": each.activated_at}
        connection.execute(update(ontologies).where(*this).values(active))


def latest(connection: Connection) -> Row[Any] | None:
    """Returns (meaning, since, impact) of the matching rules under which this database was last served; None from
    before rules had numbers."""
    return connection.execute(select(meanings).order_by(meanings.c.meaning.desc()).limit(1)).one_or_none()


def begin(connection: Connection, meaning: int, *, since: float, impact: dict[str, Any] | None) -> None:
    """Stores that these matching rules are used from now on."""
    connection.execute(insert(meanings).values(meaning=meaning, since=since, impact=impact))


def has_subscriptions(connection: Connection) -> bool:
    """Whether there is any subscription."""
    return connection.execute(select(subscriptions.c.number).limit(1)).first() is not None
