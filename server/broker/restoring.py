"""From the store to the state: what a start does, and nothing else may be needed.

active records ──decode──▶ ontologies, declarations ──▶ vocabulary ──▶ matcher ◀── trees of subscriptions that match now
"""

import logging
import time
from functools import partial
from threading import Thread

from sqlalchemy import Connection

from index.fused.warming import warm_up
from semantic import Matcher, Vocabulary
from semantic.canonicalise import EventLimits
from server.broker.declaring import active_declarations
from server.broker.records import active_ontologies
from server.broker.state import Live, State
from server.broker.sweeping import Sweeper
from server.broker.vocabularies import fill, keep_notes
from server.settings import Settings
from server.store import ledger, subscriptions

__all__ = ["restore"]

_log = logging.getLogger("kindcast.broker")


def restore(connection: Connection, settings: Settings, sweeper: Sweeper) -> State:
    """Everything that the last server had. Raises `StoreUnreadable` rather than serve less.

    Costs the building of the vocabulary and the compilation of the live subscriptions.
    """
    started = time.perf_counter()
    ledger.open_ledger(connection)
    declared = active_declarations(connection)
    vocabulary = Vocabulary.from_ontologies(active_ontologies(connection, settings), **declared.arguments())
    new_matcher = partial(Matcher, engine=settings.engine, limits=EventLimits(depth=settings.max_json_depth))
    matcher = new_matcher(vocabulary)
    matcher.canonicalise({"quantity": "1 kg"})  # units are built when first needed: not on the first publisher's time
    if settings.engine == "fused":
        warm_up()  # and so are the kernels of the index
    Thread(target=vocabulary.index_labels, name="kindcast-labels", daemon=True).start()  # only mistakes need them
    keep_notes(connection, list(fill(matcher, list(subscriptions.trees(connection, live_only=True)))))
    commits, sequence, last = ledger.position(connection)
    state = State(matcher, new_matcher, declared, commits=commits, sequence=sequence, last_accepted_at=last)
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
