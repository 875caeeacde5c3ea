"""Restores the broker's state from the store, with a saved matcher beside the database for a quick start.

active records ──decode──▶ ontologies, declarations ──▶ vocabulary ──▶ subscriptions ◀── rows and trees of all of them
                                                                             ▲
                                         the snapshot, if it may be used ────┘ then only rows that were noted since

`Snapshots` saves the matcher and verifies a saved one before it is used.
"""

import contextlib
import logging
import secrets
import shutil
import time
from collections.abc import Iterable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from threading import Timer
from typing import Any

from sqlalchemy import Connection, Row

from kindcast.semantic import Matcher, Vocabulary
from kindcast.semantic.changes import impact_of_rules, impact_report
from kindcast.semantic.errors import UnusableIndex, UnusableMatcher
from kindcast.semantic.events import EventLimits
from kindcast.semantic.matching import read_arrays, use_cache, warm_up, warm_up_beside, write_arrays
from kindcast.semantic.operators import Operator
from kindcast.server.broker import garbage_collection
from kindcast.server.broker.documents import active_ontologies
from kindcast.server.broker.group import SILENT
from kindcast.server.broker.state import Live, LiveSubscriptions, State, StoredSubscriptions
from kindcast.server.broker.vocabulary_commands import active_declarations, fill, keep_notes
from kindcast.server.operators.registry import restore_registry
from kindcast.server.settings import Settings
from kindcast.server.store import declarations, ledger, ontologies, shards, subscriptions
from kindcast.server.store.integrity import sync

__all__ = [
    "Snapshots",
    "restore",
]

# Upgrade report: how the matching rules of a newer version change the stored subscriptions.
#
# At the first start with other rules, the log names the subscriptions whose meaning has changed; `GET /v1/rules` shows
# the same. Nothing is refused. The report is stored, so that it can be read later.

_log = logging.getLogger("kindcast.broker")

LIVE = "server.roll"
KIND = "kindcast server 2"
PROGRAM = version("kindcast")
ENGINE = "fused"
"""The engine that can save its index. The indexes of other engines are always built from the subscriptions."""
DIGITS = 20
"""The number of digits in a folder's name, so that names sort like numbers."""
TOKEN_BYTES = 16
NOTED_PER_CHANGE = 10
"""This many small changes, such as renewals, count as one added or removed subscription, because a start applies them
fast."""


class Snapshots:
    """The snapshots of one server. They belong to the broker's thread, or to the thread that starts it. No method
    raises because of a bad snapshot: without one, a server only starts more slowly."""

    def __init__(self, settings: Settings) -> None:
        self._folder = settings.snapshot_folder
        self._every = settings.snapshot_changes if settings.engine == ENGINE and settings.shards is None else 0
        self._limits = EventLimits(depth=settings.max_json_depth)
        self._budget = settings.index_bytes
        self._written: tuple[str, int] | None = None
        """The vocabulary version and the change count of the matcher that was last written or opened."""

    def open(
        self, vocabulary: Vocabulary, operators: Iterable[Operator], token: str | None
    ) -> LiveSubscriptions | None:
        """Returns the subscriptions and the matcher of the snapshot with `token`, or None if it cannot be used. Nothing
        is logged if there is no snapshot."""
        if not self._every or (token is None and not self._folders()):
            return None
        try:
            if token is None:
                raise UnusableMatcher(self._folder, "the database does not name it")
            found = self._find(token)
            matcher = Matcher.open(found, vocabulary, operators=operators, limits=self._limits, budget=self._budget)
            live_subscriptions = LiveSubscriptions.opened(matcher, read_arrays(found / LIVE, KIND)[1])
        except (UnusableMatcher, UnusableIndex, OSError, ValueError, KeyError) as error:
            self.refuse(error)
            return None
        self._written = vocabulary.version, matcher.changes
        return live_subscriptions

    def refuse(self, why: object) -> None:
        """Logs that the snapshot is not used, and why."""
        _log.warning("the snapshot of the subscriptions is not used; all subscriptions are compiled again: %s", why)
        self._written = None

    def write_if_due(self, state: State) -> str | None:
        """Writes a snapshot if there were many changes since the last one. Called when no command waits.

        Returns the token of the snapshot. The caller stores it (`store.subscriptions.begin_snapshot`) before the next
        change, and then calls `keep_newest`.
        """
        if not self._every:
            return None
        changes = max(self._changes(state.matcher), state.changes_since_snapshot // NOTED_PER_CHANGE)
        return self._write(state) if changes >= self._every else None

    def write(self, state: State) -> str | None:
        """Writes a snapshot if anything changed since the last one. Returns its token."""
        return (
            self._write(state)
            if self._every and (self._changes(state.matcher) or state.changes_since_snapshot)
            else None
        )

    def keep_newest(self) -> None:
        """Deletes all snapshots except the newest, which the store now names."""
        with contextlib.suppress(OSError):
            newest = max(self._folders(), default=None)
            self._clear(*(each for each in self._all() if each != newest))

    def _changes(self, matcher: Matcher) -> int:
        """Returns how many changes a new snapshot would have in addition to the last one."""
        if self._written is None or self._written[0] != matcher.vocabulary.version:
            return len(matcher) + matcher.changes
        return matcher.changes - self._written[1]

    def _write(self, state: State) -> str | None:
        started = time.perf_counter()
        matcher, token = state.matcher, secrets.token_hex(TOKEN_BYTES)
        final = self._folder / f"{state.commits:0{DIGITS}}"
        part = self._folder / f".{state.commits}.part"
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._clear(final, part)
            part.mkdir(mode=0o700)
            matcher.save(part)
            write_arrays(part / LIVE, KIND, {"program": PROGRAM, "token": token}, state.live_subscriptions.arrays())
            part.rename(final)
            sync(self._folder)
        except OSError as error:
            _log.warning("no snapshot of the subscriptions was written to %s: %s", self._folder, error)
            with contextlib.suppress(OSError):
                self._clear(part)
            return None
        self._written = matcher.vocabulary.version, matcher.changes
        seconds = time.perf_counter() - started
        _log.info("wrote a snapshot of %d subscriptions in %.2f s", len(state.live_subscriptions), seconds)
        return token

    def _find(self, token: str) -> Path:
        """Returns the folder with the token. It is the newest, or the one before if the server was killed before the
        store named the newest. Raises `UnusableMatcher`, and errors of reading a file."""
        found = sorted(self._folders(), reverse=True)
        for folder in found:
            facts, _ = read_arrays(folder / LIVE, KIND)
            if facts["token"] != token:
                continue
            if facts["program"] != PROGRAM:
                raise UnusableMatcher(folder, f"it was written by version {facts['program']}; this is {PROGRAM}")
            return folder
        raise UnusableMatcher(
            self._folder, "it belongs to another database or another time" if found else "it is missing"
        )

    def _folders(self) -> list[Path]:
        try:
            return [each for each in self._all() if each.name.isdigit()]
        except OSError:
            return []

    def _all(self) -> list[Path]:
        """Returns the folders of snapshots, complete or not. Other files there are ignored."""
        if not self._folder.is_dir():
            return []
        return [each for each in self._folder.iterdir() if each.name.isdigit() or each.suffix == ".part"]

    @staticmethod
    def _clear(*folders: Path) -> None:
        for each in folders:
            if each.exists():
                shutil.rmtree(each)


LOGGED = 20
"""The maximum number of subscriptions in the log; the report has more."""
KEPT = 1_000
"""The maximum number of entries of each list in the report. Counts are complete."""


def tell_new_rules(connection: Connection, state: State) -> None:
    """Stores the number of the matching rules that serve this database. If the rules have changed, also stores the
    effect on the subscriptions. That costs a second vocabulary and one pass over the stored trees."""
    meaning = state.vocabulary.meaning
    known = ontologies.latest(connection)
    if known is not None and known.meaning >= meaning:
        return
    former = 1 if known is None else known.meaning
    impact = _impact(connection, state, former) if ontologies.has_subscriptions(connection) else None
    ontologies.begin(connection, meaning, since=time.time(), impact=impact)


def _impact(connection: Connection, state: State, former: int) -> dict[str, Any] | None:
    try:
        with subscriptions.all_trees(connection, live_only=True) as rows:
            trees = ((row.id, row.tree) for row in rows)
            found = impact_of_rules(state.vocabulary, state.declarations.arguments(), trees, former)
        report = impact_report(found, limit=KEPT)
    except Exception:  # a report must not prevent the start
        _log.exception("the effect of this version's rules of matching on the subscriptions could not be computed")
        return None
    changed = report["subscriptions"]
    _log.warning(
        "the rules of matching have changed since the last start: %d of %d subscriptions may match differently; "
        "`kindcast ontology rules` lists them",
        changed["changed"],
        changed["live"],
    )
    for each in changed["listed"][:LOGGED]:
        _log.warning("subscription %s: %s", each["id"], "; ".join(each["changes"]))
    return report


GRAPHS_SINCE = 3
"""The first matching rules that read JSON-LD as graphs."""


def keep_reading(connection: Connection, settings: Settings) -> None:
    """Stores how events in JSON-LD are read, as a declaration. So snapshots, backtests and Spark jobs over the data
    folder read them in the same way. A folder that an earlier version served continues with plain JSON (rule 21)."""
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
    """Returns whether the last matching rules of this database read JSON-LD as plain JSON."""
    known = ontologies.latest(connection)
    if known is not None:
        return bool(known.meaning < GRAPHS_SINCE)
    return ledger.position(connection)[0] > 0


FEW = 2_000
"""Up to this many stored subscriptions, an event takes at most some milliseconds while kernels run as Python."""
LATER_SECONDS = 0.5
"""The delay before optional parts are built, so that the server can answer first."""


# ── startup ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def restore(connection: Connection, settings: Settings, snapshots: Snapshots | None, *, alone: bool = True) -> State:
    """Restores the whole state of the last server. Raises `StoreUnreadable` if a part of it cannot be read. If it is
    not `alone`, other servers use the database now: nothing is written, and the transaction must be one snapshot.

    Cost: the construction of the vocabulary, some µs per subscription, and the compilation of the subscriptions that
    are not in the snapshot.
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
    if not settings.is_sqlite:
        shards.begin(connection, settings.shards, alone=alone)
    state = State(LiveSubscriptions(new_matcher(vocabulary)), new_matcher, declared, operators=operators)
    state.shards = settings.shards or 0
    state.commits, state.sequence, state.last_accepted_at = ledger.position(connection)
    _prepare_kernels(connection, settings)
    later = Timer(LATER_SECONDS, _build_later, (state.empty_matcher(vocabulary),))
    later.daemon = True
    later.start()
    if state.shards:
        state.live_subscriptions = StoredSubscriptions(state.empty_matcher(vocabulary))
        state.live_subscriptions.reads(connection)
        if alone:
            subscriptions.begin_snapshot(connection, None)
            tell_new_rules(connection, state)
        _log.info("restored %d ontologies, %d events; shards match", len(vocabulary.ontologies), state.sequence)
        return state
    with garbage_collection.paused():
        saved = _restore_subscriptions(connection, state, snapshots, alone=alone)
        if alone:
            tell_new_rules(connection, state)
    _log.info(
        "restored %d ontologies, %d subscriptions%s, %d events in %.1f s",
        len(vocabulary.ontologies),
        len(state.live_subscriptions),
        "" if saved is None else f" (with a snapshot of {saved})",
        state.sequence,
        time.perf_counter() - started,
    )
    return state


def _prepare_kernels(connection: Connection, settings: Settings) -> None:
    """Compiles and loads the kernels: in the background, unless many subscriptions need them at once."""
    if settings.cache is not None:
        use_cache(settings.cache)
    if settings.engine == "fused":
        (warm_up if subscriptions.numbers_of_all(connection)[0] > FEW else warm_up_beside)()


def _restore_subscriptions(
    connection: Connection, state: State, snapshots: Snapshots | None, *, alone: bool
) -> int | None:
    """Sets the subscriptions of `state`, from a snapshot if it may be used, else from the store. Returns the number of
    subscriptions in the snapshot; None if it was not used."""
    token, noted = subscriptions.snapshot_token(connection), subscriptions.changed_since_snapshot(connection)
    opened = None if snapshots is None else snapshots.open(state.vocabulary, state.operators.known.values(), token)
    saved = None if opened is None else len(opened.matcher)
    if snapshots is not None and opened is not None and not _catch_up(connection, opened, noted, writes=alone):
        snapshots.refuse("the subscriptions in the database differ from the recorded changes")
        opened = saved = None
    if opened is None:
        opened = LiveSubscriptions(state.empty_matcher(state.vocabulary))
        _read_all(connection, opened, writes=alone)
    state.live_subscriptions = opened
    if saved is None and alone:
        subscriptions.begin_snapshot(connection, None)
    else:
        state.snapshot, state.changes_since_snapshot = token, len(noted)
    return saved


def _build_later(matcher: Matcher) -> None:
    """Builds what would otherwise be built at its first use, so that no publisher waits for it: the units, and the
    index of labels for error messages. `matcher` must not be used elsewhere."""
    matcher.canonicalise({"quantity": "1 kg"})
    matcher.vocabulary.index_labels()


def _read_all(connection: Connection, live_subscriptions: LiveSubscriptions, *, writes: bool) -> None:
    """Adds every stored subscription. Updates the stored notes to those of the matcher."""
    for row in subscriptions.renewable(connection):
        live_subscriptions.put_aside(Live(row.number, row.id, row.status, row.expires_at, matching=False))
    with subscriptions.all_trees(connection, live_only=True) as rows:
        noted = list(fill(live_subscriptions.matcher, rows))
    if writes:
        keep_notes(connection, noted)
    live_subscriptions.enter_found(list(live_subscriptions.aside))


def _catch_up(
    connection: Connection, live_subscriptions: LiveSubscriptions, noted: Iterable[Row[Any]], *, writes: bool
) -> bool:
    """Updates subscriptions of a snapshot from the store: those in `noted`, and those whose expression had no meaning.
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
