"""Stored records back to ontologies: what a start and an activation read in place of documents.

Nothing is parsed and nothing is reasoned again. Only a version whose records are missing (it was stored by a server
that kept none) or were written in another form is read from its document, once, and its records are kept.
"""

import logging
from typing import Any

from sqlalchemy import Connection, Row

from semantic import OntologyError
from semantic.ontology import Ontology
from semantic.ontology.encoding import decode, encode
from semantic.ontology.isolated_reading import read_isolated
from server.broker.documents import document_limits, isolation
from server.errors import StoreUnreadable
from server.settings import Settings
from server.store import ontologies

__all__ = ["active_ontologies", "decoded"]

_log = logging.getLogger("kindcast.broker")


def decoded(records: bytes | None) -> Ontology | None:
    """The ontology that was encoded; None where that is missing, or in a form that this version does not read."""
    if records is None:
        return None
    try:
        return decode(records)
    except OntologyError:
        return None


def active_ontologies(connection: Connection, settings: Settings) -> list[Ontology]:
    """All that is in force, by name. `connection` writes. Raises `StoreUnreadable` rather than give less."""
    return [decoded(row.records) or _read_again(connection, row, settings) for row in _rows(connection)]


def _rows(connection: Connection) -> list[Row[Any]]:
    return list(ontologies.active_records(connection))


def _read_again(connection: Connection, row: Row[Any], settings: Settings) -> Ontology:
    _log.info("reading the stored ontology %s, version %d, again", row.name, row.version)
    document = ontologies.find_document(connection, row.name, row.version)
    try:
        ontology = read_isolated(
            document,
            format=row.format,
            name=row.name,
            limits=document_limits(settings),
            reason=row.reason,
            relations=row.relations,
            isolation=isolation(settings),
        )
    except OntologyError as error:
        detail = f"the stored ontology {row.name!r}, version {row.version}, cannot be read: {error}"
        raise StoreUnreadable(detail) from error
    ontologies.keep_records(connection, row.name, row.version, encode(ontology))
    return ontology
