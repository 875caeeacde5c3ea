"""From the store to the state: what a start does, and nothing else may be needed.

active documents ──read──▶ ontologies ──▶ vocabulary ──▶ matcher ◀── trees of subscriptions that match now
"""

import logging
import time
from functools import partial

from sqlalchemy import Connection

from semantic import Matcher, OntologyError, Vocabulary
from semantic.canonicalise import EventLimits
from semantic.ontology import Limits, read
from server.broker.state import Live, State
from server.broker.sweeping import Sweeper
from server.broker.vocabularies import fill
from server.errors import StoreUnreadable
from server.settings import Settings
from server.store import ledger, ontologies, subscriptions

__all__ = ["document_limits", "restore"]

_log = logging.getLogger("kindcast.broker")


def restore(connection: Connection, settings: Settings, sweeper: Sweeper) -> State:
    """Everything that the last server had. Raises `StoreUnreadable` rather than serve less.

    Costs the parsing of the active documents and the compilation of the live subscriptions.
    """
    started = time.perf_counter()
    ledger.open_ledger(connection)
    vocabulary = _vocabulary(connection, settings)
    new_matcher = partial(Matcher, engine=settings.engine, limits=EventLimits(depth=settings.max_json_depth))
    matcher = new_matcher(vocabulary)
    matcher.canonicalise({"quantity": "1 kg"})  # units are built when first needed: not on the first publisher's time
    for row, notes in fill(matcher, list(subscriptions.trees(connection, matching_only=True))):
        if notes != row.notes:
            subscriptions.change(connection, row.number, notes=notes)
    commits, sequence, last = ledger.position(connection)
    state = State(matcher, new_matcher, commits=commits, sequence=sequence, last_accepted_at=last)
    for row in subscriptions.renewable(connection):
        live = Live(row.number, row.id, row.status, row.expires_at, matching=row.id in matcher)
        state.live[row.id] = live
        if row.status != "expired":
            sweeper.watch(live)
    _log.info(
        "restored %d ontologies, %d subscriptions, %d events in %.1f s",
        len(vocabulary.ontologies),
        len(state.live),
        sequence,
        time.perf_counter() - started,
    )
    return state


def document_limits(settings: Settings) -> Limits:
    """Bounds on an ontology document, of which the size is set."""
    return Limits(bytes=2 * settings.max_ontology_bytes)


def _vocabulary(connection: Connection, settings: Settings) -> Vocabulary:
    limits = document_limits(settings)
    found = []
    for row in ontologies.active_documents(connection):
        try:
            found.append(read(row.document, format=row.format, name=row.name, limits=limits))
        except OntologyError as error:
            detail = f"the stored ontology {row.name!r}, version {row.version}, cannot be read: {error}"
            raise StoreUnreadable(detail) from error
    return Vocabulary.from_ontologies(found)
