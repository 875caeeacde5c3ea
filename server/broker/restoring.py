"""From the store to the state: what a start does, and nothing else may be needed.

active records ──decode──▶ ontologies, declarations ──▶ vocabulary ──▶ matcher ◀── trees of subscriptions that match now
                                                                         ▲
                                     the snapshot, if it may be used ────┘ less what is gone: then only trees that came
"""

import logging
import time
from collections.abc import Mapping
from functools import partial
from threading import Thread

from sqlalchemy import Connection

from index.fused.warming import warm_up
from semantic import Matcher, Vocabulary
from semantic.canonicalise import EventLimits
from server.broker import heap
from server.broker.changes import SILENT
from server.broker.declaring import active_declarations
from server.broker.records import active_ontologies
from server.broker.snapshots import Snapshots
from server.broker.state import Live, State
from server.broker.sweeping import Sweeper
from server.broker.vocabularies import fill, keep_notes
from server.operators.loading import restore_registry
from server.settings import Settings
from server.store import ledger, subscriptions

__all__ = ["restore"]

_log = logging.getLogger("kindcast.broker")


def restore(connection: Connection, settings: Settings, sweeper: Sweeper, snapshots: Snapshots) -> State:
    """Everything that the last server had. Raises `StoreUnreadable` rather than serve less.

    Costs the building of the vocabulary, some µs a subscription, and the compilation of those that the snapshot has
    not.
    """
    started = time.perf_counter()
    ledger.open_ledger(connection)
    declared = active_declarations(connection)
    vocabulary = Vocabulary.from_ontologies(active_ontologies(connection, settings), **declared.arguments())
    new_matcher = partial(
        Matcher, engine=settings.engine, planner="naive", limits=EventLimits(depth=settings.max_json_depth)
    )
    state = State(new_matcher(vocabulary), new_matcher, declared, operators=restore_registry(connection, settings))
    state.commits, state.sequence, state.last_accepted_at = ledger.position(connection)
    opened = snapshots.open(vocabulary, state.operators.known.values(), state.commits)
    if opened is None:
        matcher, numbers = state.empty_matcher(vocabulary), None
    else:
        matcher, numbers = opened
        matcher.defers = True
    state.matcher = matcher
    matcher.canonicalise({"quantity": "1 kg"})  # units are built when first needed: not on the first publisher's time
    if settings.engine == "fused":
        warm_up()  # and so are the kernels of the index
    Thread(target=vocabulary.index_labels, name="kindcast-labels", daemon=True).start()  # only mistakes need them
    with heap.building():
        everyone = (
            Live(row.number, row.id, row.status, row.expires_at, matching=False)
            for row in subscriptions.renewable(connection)
        )
        state.live = {live.id: live for live in everyone}
        _complete(connection, matcher, numbers, state.live)
        for live in state.live.values():
            live.matching = live.id in matcher
        sweeper.watch_all(live for live in state.live.values() if live.status != "expired")
    _log.info(
        "restored %d ontologies, %d subscriptions%s, %d events in %.1f s",
        len(vocabulary.ontologies),
        len(state.live),
        "" if numbers is None else f" (with a snapshot of {len(numbers)})",
        state.sequence,
        time.perf_counter() - started,
    )
    return state


def _complete(
    connection: Connection, matcher: Matcher, numbers: Mapping[str, int] | None, live: Mapping[str, Live]
) -> None:
    """Bring the matcher to what the store says, and the notes in the store to what the matcher says. `numbers` are
    those of the subscriptions that are in it already; None: there was nothing."""
    if numbers is None:
        keep_notes(connection, list(fill(matcher, subscriptions.trees(connection, live_only=True))))
        return
    for id, number in numbers.items():
        known = live.get(id)
        if known is None or known.number != number or known.status in SILENT:
            matcher.remove(id)
    late = [each.number for each in live.values() if each.status not in SILENT and each.id not in matcher]
    if late:
        keep_notes(connection, list(fill(matcher, subscriptions.trees(connection, live_only=True, numbers=late))))
