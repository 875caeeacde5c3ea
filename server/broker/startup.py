"""Restores the broker's state from the store. A start needs nothing else.

active records ──decode──▶ ontologies, declarations ──▶ vocabulary ──▶ subscriptions ◀── rows and trees of all of them
                                                                             ▲
                                         the snapshot, if it may be used ────┘ then only rows that were noted since
"""

import logging
import time
from collections.abc import Iterable
from functools import partial
from threading import Timer
from typing import Any

from sqlalchemy import Connection, Row

from kindcast.semantic import Matcher, Vocabulary
from kindcast.semantic.changes import impact_of_rules, impact_report
from kindcast.semantic.events import EventLimits
from kindcast.semantic.matching import use_cache, warm_up, warm_up_beside
from kindcast.server.broker import garbage_collection
from kindcast.server.broker.documents import active_ontologies
from kindcast.server.broker.group import SILENT
from kindcast.server.broker.snapshots import Snapshots
from kindcast.server.broker.state import Live, LiveSubscriptions, State
from kindcast.server.broker.vocabulary_commands import active_declarations, fill, keep_notes
from kindcast.server.operators.startup import restore_registry
from kindcast.server.settings import Settings
from kindcast.server.store import declarations, ledger, meanings, subscriptions

__all__ = ["restore"]


# Upgrade report: how a newer version's rules of matching change the stored subscriptions.
#
# The first start with other rules logs which subscriptions changed their meaning; `GET /v1/rules` shows the same.
# Nothing
# is refused. The report is stored, so that it can be read later.

_log = logging.getLogger("kindcast.broker")

LOGGED = 20
"""Subscriptions that the log names; the report names more."""
KEPT = 1_000
"""Entries of each list in the report; counts are complete."""


def tell_new_rules(connection: Connection, state: State) -> None:
    """Stores the number of the rules of matching that serve this database. If they have changed, also stores how the
    change affects the subscriptions, which costs a second vocabulary and one walk over the stored trees."""
    meaning = state.vocabulary.meaning
    known = meanings.latest(connection)
    if known is not None and known.meaning >= meaning:
        return
    former = 1 if known is None else known.meaning
    impact = _impact(connection, state, former) if meanings.has_subscriptions(connection) else None
    meanings.begin(connection, meaning, since=time.time(), impact=impact)


def _impact(connection: Connection, state: State, former: int) -> dict[str, Any] | None:
    rows = subscriptions.trees(connection, live_only=True)
    try:
        trees = ((row.id, row.tree) for row in rows)
        found = impact_of_rules(state.vocabulary, state.declarations.arguments(), trees, former)
        report = impact_report(found, limit=KEPT)
    except Exception:  # what only tells must not keep a server from starting
        _log.exception("the effect of this version's rules of matching on the subscriptions could not be computed")
        return None
    changed = report["subscriptions"]
    _log.warning(
        "the rules of matching have changed since the last start: %d of %d subscriptions may match otherwise; "
        "`kindcast ontology rules` lists them",
        changed["changed"],
        changed["live"],
    )
    for each in changed["listed"][:LOGGED]:
        _log.warning("subscription %s: %s", each["id"], "; ".join(each["changes"]))
    return report


GRAPHS_SINCE = 3
"""The rules of matching by which JSON-LD is first read as graphs."""


def keep_reading(connection: Connection, settings: Settings) -> None:
    """Stores how events in JSON-LD are read, as a declaration beside the others: so snapshots, backtests and Spark jobs
    over the data folder read the same. A folder that an earlier version has served goes on with plain JSON (rule
    21)."""
    known = declarations.list_active(connection, "reading")
    before: dict[str, str] = dict(known[0].body) if known else {}
    linked_data = settings.linked_data
    if linked_data == "auto":
        linked_data = "plain" if before.get("linked_data") == "plain" or _is_older(connection) else "graphs"
    chosen = {"linked_data": linked_data, "unknown_contexts": settings.unknown_contexts}
    body = {name: value for name, value in chosen.items() if value == "plain"}
    if body == before:
        return
    declarations.delete_declaration(connection, "reading", "events")
    if body:
        stored = declarations.StoredDeclaration(kind="reading", name="events", body=body)
        version = declarations.add_version(connection, stored, now=time.time())
        declarations.activate(connection, "reading", "events", version)


def _is_older(connection: Connection) -> bool:
    """Whether the rules of matching that this database was last served by read JSON-LD as plain JSON."""
    known = meanings.latest(connection)
    if known is not None:
        return bool(known.meaning < GRAPHS_SINCE)
    return ledger.position(connection)[0] > 0


FEW = 256
"""Stored subscriptions among which events are matched soon enough while kernels run as Python."""
LATER_SECONDS = 0.5
"""The server answers by then, and what can be built later does not keep it from that."""


# ── startup ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def restore(connection: Connection, settings: Settings, snapshots: Snapshots | None, *, alone: bool = True) -> State:
    """Restores the whole state of the last server. Raises `StoreUnreadable` if a part of it cannot be read. Not
    `alone`: other servers use the database now; nothing is written, and the transaction must be one snapshot.

    Costs the construction of the vocabulary, some µs per subscription, and the compilation of the subscriptions that
    the snapshot does not have.
    """
    started = time.perf_counter()
    if alone:
        ledger.open_ledger(connection)
        keep_reading(connection, settings)
    declared = active_declarations(connection)
    vocabulary = Vocabulary.shared(active_ontologies(connection, settings), **declared.arguments())
    new_matcher = partial(
        Matcher,
        engine=settings.engine,
        planner="naive",
        limits=EventLimits(depth=settings.max_json_depth),
        budget=settings.index_bytes,
    )
    operators = restore_registry(connection, settings)
    state = State(LiveSubscriptions(new_matcher(vocabulary)), new_matcher, declared, operators=operators)
    state.commits, state.sequence, state.last_accepted_at = ledger.position(connection)
    if settings.cache is not None:
        use_cache(settings.cache)
    if (
        settings.engine == "fused"
    ):  # kernels are compiled and loaded beside, unless many subscriptions need them at once
        (warm_up if subscriptions.numbers_of_all(connection)[0] > FEW else warm_up_beside)()
    later = Timer(LATER_SECONDS, _build_later, (state.empty_matcher(vocabulary),))
    later.daemon = True
    later.start()
    with garbage_collection.paused():
        token, noted = subscriptions.snapshot_token(connection), subscriptions.changed_since_snapshot(connection)
        opened = None if snapshots is None else snapshots.open(vocabulary, operators.known.values(), token)
        saved = 0 if opened is None else len(opened.matcher)
        if snapshots is not None and opened is not None and not _catch_up(connection, opened, noted, writes=alone):
            snapshots.refuse("the database has other subscriptions than those that were noted")
            opened = None
        if opened is None:
            state.live_subscriptions = LiveSubscriptions(state.empty_matcher(vocabulary))
            _read_all(connection, state.live_subscriptions, writes=alone)
        else:
            state.live_subscriptions = opened
        if opened is None and alone:
            subscriptions.begin_snapshot(connection, None)
        else:
            state.snapshot, state.changes_since_snapshot = token, len(noted)
        if alone:
            tell_new_rules(connection, state)
    _log.info(
        "restored %d ontologies, %d subscriptions%s, %d events in %.1f s",
        len(vocabulary.ontologies),
        len(state.live_subscriptions),
        "" if opened is None else f" (with a snapshot of {saved})",
        state.sequence,
        time.perf_counter() - started,
    )
    return state


def _build_later(matcher: Matcher) -> None:
    """Builds what is otherwise built when first needed, so that no publisher waits for it: the units, and the index of
    labels that only mistakes need. `matcher` is one of its own."""
    matcher.canonicalise({"quantity": "1 kg"})
    matcher.vocabulary.index_labels()


def _read_all(connection: Connection, live_subscriptions: LiveSubscriptions, *, writes: bool) -> None:
    """Adds every stored subscription, and updates the stored notes to what the matcher reports."""
    for row in subscriptions.renewable(connection):
        live_subscriptions.put_aside(Live(row.number, row.id, row.status, row.expires_at, matching=False))
    noted = list(fill(live_subscriptions.matcher, subscriptions.trees(connection, live_only=True)))
    if writes:
        keep_notes(connection, noted)
    live_subscriptions.enter_found(list(live_subscriptions.aside))


def _catch_up(
    connection: Connection, live_subscriptions: LiveSubscriptions, noted: Iterable[Row[Any]], *, writes: bool
) -> bool:
    """Updates subscriptions from a snapshot by the store: those in `noted`, and those whose expression had no meaning.
    Returns whether the result has exactly the subscriptions of the store."""
    live_subscriptions.matcher.defers = True
    for row in noted:
        if row.id in live_subscriptions.matcher and row.status is not None and row.status not in SILENT:
            live_subscriptions.set_end(row.id, row.expires_at)
            continue
        if row.id in live_subscriptions.matcher:
            live_subscriptions.leave(row.id)
            live_subscriptions.matcher.remove(row.id)
        live_subscriptions.aside.pop(row.id, None)
        if row.status is not None:
            live_subscriptions.put_aside(Live(row.number, row.id, row.status, row.expires_at, matching=False))
    late = [each.number for each in live_subscriptions.aside.values() if each.status not in SILENT]
    if late:
        rows = subscriptions.trees(connection, live_only=True, numbers=late)
        changed = list(fill(live_subscriptions.matcher, rows))
        if writes:
            keep_notes(connection, changed)
        live_subscriptions.enter_found(list(live_subscriptions.aside))
    return subscriptions.numbers_of_all(connection) == (len(live_subscriptions), live_subscriptions.numbers_sum())
