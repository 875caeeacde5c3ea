"""Group commit: several commands share one transaction, which begins when the first command needs it.

command 1 ─┐                  a command that fails is undone alone: in the store by its savepoint, or the first one
command 2 ─┤ savepoint   ──▶ COMMIT (one fsync) ──▶ answers        by its transaction; in memory by its undo steps
command 3 ─┘ savepoint        a commit that fails is undone by all undo steps, the last one first
"""

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Protocol, TypeVar

import numpy as np
from msgspec import structs
from sqlalchemy import Connection, RootTransaction
from sqlalchemy.exc import DBAPIError, IntegrityError, SQLAlchemyError

from kindcast.semantic import Compiled, Matcher
from kindcast.semantic.subscriptions import DescribedMany
from kindcast.semantic.vocabulary import Declarations
from kindcast.server.broker.state import SILENT, Live, State
from kindcast.server.clock import CLOCK
from kindcast.server.errors import StoreUnavailable, StoreUnreadable
from kindcast.server.store import ledger, servers, shards, subscriptions
from kindcast.server.store.database import reason_of
from kindcast.server.store.postings import Numbers

__all__ = [
    "SILENT",
    "Admitted",
    "ConnectionLost",
    "Group",
    "GroupBroken",
    "StateOutdated",
    "Touched",
    "admit",
    "admit_many",
    "forget",
    "introduce",
    "introduce_many",
    "set_expiry",
    "set_status",
    "swap_matcher",
]


T = TypeVar("T")

_log = logging.getLogger("kindcast.broker")

MANY_MATCHES = 10_000
"""From this many matches on, duplicates are removed in NumPy, before Python objects are made."""

MATCHES_KEPT = 4_000_000
"""If one command has more matches than this, only the distinct subscriptions are kept, because a document may have a
thousand times as many matches."""


class GroupBroken(Exception):
    """The transaction is lost, with all its changes."""


class ConnectionLost(GroupBroken):
    """The connection had ended before the transaction began, as after a restart of the database. Nothing was done, so
    the group may be executed again on a new connection."""


class StateOutdated(GroupBroken):
    """Another server has activated another vocabulary or other operators, or this server is too far behind. The state
    must be read again, and the group executed again."""


class Touched(Collection[int]):
    """The numbers of the subscriptions that a commit concerns: those that were `changed`, and those that only got a
    match. As a collection, it has both without duplicates. Building it costs some ns per match, at the first use."""

    def __init__(self, changed: set[int], matched: Numbers) -> None:
        self.changed = changed
        self.matched = matched
        """`int64[matches]`. A subscription is listed once for each match."""

    @cached_property
    def _all(self) -> set[int]:
        numbers = self.matched if self.matched.size < MANY_MATCHES else _distinct(self.matched)
        return self.changed.union(numbers.tolist())

    def __contains__(self, number: object) -> bool:
        return number in self._all

    def __iter__(self) -> Iterator[int]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    def __bool__(self) -> bool:
        return bool(self.changed) or self.matched.size > 0


class Others(Protocol):
    """The servers that share the database. `id` is this server, `channel` that of NOTIFY."""

    id: str
    channel: str

    def lock(self, connection: Connection) -> None:
        """Called when a transaction begins. Waits for the other servers and applies what they committed. Raises
        `StateOutdated`, `StoreUnreadable`, and errors of the database."""
        ...


class Group:
    """A transaction, the state that it changes, and the undo steps of these changes. For the broker's thread only."""

    def __init__(self, connection: Connection, state: State, others: Others | None = None) -> None:
        """`others` are the servers that share the database; None if it cannot be shared."""
        self._connection = connection
        self._others = others
        self._transaction: RootTransaction | None = None
        self._undo: list[Callable[[], None]] = []
        self.state = state
        self.now = CLOCK.now()
        self.touched: set[int] = set()
        """The numbers of the subscriptions that got a match or were changed, except those noted with `touch`."""
        self._matched: list[Numbers] = []
        self._joined_from = 0
        """The index in `_matched` where the part of the current command begins."""
        self.parked = False
        """Whether a candidate was parked or is due at once."""
        self.was_sent = False
        """Whether the database was told to commit. If it did not answer, only the ledger says whether it did."""
        self.totals: Counter[str] = Counter()
        """The numbers that the commit adds to the totals of the ledger."""
        self._noted: dict[int, str] = {}
        """The number and id of each subscription that was added, removed or changed in this group."""
        self._for_shards: list[shards.ShardChange] = []
        self._others_read: list[str] = []
        """What other servers must read again after this group: kinds of `servers.Change`."""

    @property
    def connection(self) -> Connection:
        """The writing connection, inside the transaction, which begins now if necessary. Raises `GroupBroken`:
        `ConnectionLost` and `StateOutdated` if the group may be executed again."""
        if self._transaction is None:
            try:
                self._transaction = self._connection.begin()
                if self._others is not None:
                    self._others.lock(self._connection)
            except (SQLAlchemyError, StoreUnreadable) as error:
                is_lost = isinstance(error, DBAPIError) and error.connection_invalidated
                raise (ConnectionLost if is_lost else GroupBroken) from error
            self.state.live_subscriptions.reads(self._connection)
        return self._connection

    @property
    def is_shared(self) -> bool:
        """Whether other servers may use the database."""
        return self._others is not None

    @property
    def writes(self) -> bool:
        """Whether there is anything to commit."""
        return self._transaction is not None

    def on_undo(self, step: Callable[[], None]) -> None:
        """Registers the undo step of a change of the state that was just made."""
        self._undo.append(step)

    def touch(self, numbers: Numbers) -> None:
        """Notes that these subscriptions got a match."""
        self._matched.append(numbers)
        mine = self._matched[self._joined_from :]
        if len(mine) > 1 and sum(each.size for each in mine[1:]) > MATCHES_KEPT:  # the first array may be a merged one
            self._matched[self._joined_from :] = [_distinct(np.concatenate(mine))]

    def all_touched(self) -> Touched:
        """The subscriptions that got a match or were changed."""
        if len(self._matched) == 1:
            return Touched(self.touched, self._matched[0])
        return Touched(self.touched, np.concatenate([np.zeros(0, dtype=np.int64), *self._matched]))

    def note(self, live: Live, *, told: bool = True) -> None:
        """Notes that a subscription was added, removed or changed. `told`: the delivery must be notified."""
        self._noted.setdefault(live.number, live.id)
        if told:
            self.touched.add(live.number)

    def tell_shards(self, before: Live | None, after: Live | None, tree: str | None = None) -> None:
        """Notes a change of a subscription at this place of the log, if matching is sharded. `tree` is that of a
        deleted subscription."""
        live = after or before
        if not self.state.shards or live is None:
            return
        was, matching = (each is not None and each.status not in SILENT for each in (before, after))
        if was or matching or after is None:
            was_end, ends_at = (live.expires_at if each is None else each.expires_at for each in (before, after))
            self._for_shards.append(
                shards.ShardChange(self.state.sequence, live.number, live.id, was, was_end, matching, ends_at, tree)
            )

    @property
    def deleted(self) -> set[int]:
        """The subscriptions that this group has deleted, if matching is sharded. The log has them after the commit."""
        return {each.subscription for each in self._for_shards if each.tree is not None}

    @property
    def lengthens_log(self) -> bool:
        """Whether the shards have work after this group."""
        return self.totals["accepted"] > 0 or bool(self._for_shards)

    def others_read(self, kind: str) -> None:
        """Notes that other servers must read their vocabulary or their operators again."""
        kinds = len(self._others_read)
        self._others_read.append(kind)
        self.on_undo(lambda: self._others_read.__delitem__(slice(kinds, None)))

    def run(self, work: Callable[["Group"], T]) -> T:
        """Runs one command in its own savepoint. The first command of the transaction needs none. If the command
        raises, its changes are undone and the exception is raised again.

        Raises `StoreUnavailable` if the database refuses a change, `GroupBroken` if the whole transaction is lost.
        """
        undone, noted, for_shards = len(self._undo), len(self._noted), len(self._for_shards)
        touched, matched, totals = self.touched.copy(), len(self._matched), self.totals.copy()
        self._joined_from = matched
        savepoint = self._connection.begin_nested() if self.writes else None
        connection = self.connection
        try:
            result = work(self)
            if savepoint is not None:
                savepoint.commit()
        except BaseException as error:
            self._take_back(undone)
            self.touched, self.totals = touched, totals
            del self._matched[matched:]
            del self._for_shards[for_shards:]
            while len(self._noted) > noted:
                self._noted.popitem()
            try:
                if savepoint is not None:
                    savepoint.rollback()
                else:
                    connection.rollback()
                    self._transaction = None
            except SQLAlchemyError as broken:
                raise GroupBroken from broken
            if self._connection.invalidated:
                raise GroupBroken from error
            if isinstance(error, DBAPIError) and not isinstance(error, IntegrityError):
                _log.error("the database refused a change: %s", error.orig)
                raise StoreUnavailable.because(reason_of(error)) from error
            raise
        return result

    def commit(self) -> None:
        """Commits. Raises `SQLAlchemyError`; `BrokerThread` then finds out whether the group is on disk."""
        assert self._transaction is not None
        if self.state.snapshot is not None and self._noted:
            subscriptions.note_changed(self._connection, self._noted)
        if self._others is not None:
            servers.note_changes(self._connection, self.state.commits + 1, self._changes())
        if self._for_shards:
            shards.log_changes(self._connection, self._for_shards, self.state.shards)
        ledger.count(
            self._connection,
            sequence=self.state.sequence,
            more=self.totals,
            wakes=None if self._others is None else (self._others.channel, self._others.id),
            commit=self.state.commits + 1,
        )
        self.was_sent = True
        self._transaction.commit()
        self.committed()

    def committed(self) -> None:
        """Counts the commit, which is on disk."""
        self.state.commits += 1
        if self._others_read:
            self.state.put_in_force = self.state.commits
        self.state.changes_since_snapshot += len(self._noted)

    def _changes(self) -> Iterator[servers.Change]:
        """Yields what other servers must know besides the events."""
        for number, id in self._noted.items():
            yield servers.Change(servers.SUBSCRIPTION, number, id)
        for number in self.touched - self._noted.keys():
            yield servers.Change(servers.TOLD, number)
        for kind in dict.fromkeys(self._others_read):
            yield servers.Change(kind, id=self.state.vocabulary.version if kind == servers.ACTIVATION else "")
        if self.parked:
            yield servers.Change(servers.PARKED)

    def undo(self) -> None:
        """Undoes every change of the state."""
        self._take_back(0)

    def _take_back(self, down_to: int) -> None:
        while len(self._undo) > down_to:
            self._undo.pop()()


def _distinct(numbers: Numbers) -> Numbers:
    among = np.zeros(int(numbers.max(initial=0)) + 1, dtype=np.bool_)
    among[numbers] = True
    return np.flatnonzero(among)


# ── changes ───────────────────────────────────────────────────────────────────────────────────────────────────────────
# Changes of the state in memory, each with its undo step.
#
# The commands change the store in the same group, so both changes succeed or both fail. A `Live` is the state at the
# time it was read; each function returns the state after its change.


def introduce(group: Group, live: Live, *, has_sink: bool) -> Live:
    """Adds a new subscription that does not match yet; `admit` makes it match. Nobody can wait for it yet, so the
    delivery must know of it only if it has a sink."""
    introduce_many(group, [live], {live.number} if has_sink else ())
    return live


def introduce_many(group: Group, lives: Sequence[Live], with_sink: Collection[int]) -> None:
    """Adds new subscriptions as `introduce`. `with_sink` are the numbers of those that have a sink."""
    live_subscriptions = group.state.live_subscriptions
    begun: list[str] = []

    def undo() -> None:
        for id in begun:
            live_subscriptions.drop(id)

    group.on_undo(undo)
    for live in lives:
        live_subscriptions.keep(live)
        begun.append(live.id)
        group.note(live, told=live.number in with_sink)
    if group.state.shards:
        for live in lives:
            group.tell_shards(None, live)


def admit(group: Group, live: Live, compiled: Compiled) -> Live:
    """Adds a subscription to the matcher: the next event may match it."""
    live_subscriptions = group.state.live_subscriptions
    if group.state.shards:
        return live_subscriptions.enter(live)
    live_subscriptions.matcher.add_compiled(live.id, compiled)
    live = live_subscriptions.enter(live)

    def undo() -> None:
        live_subscriptions.leave(live.id)
        live_subscriptions.matcher.remove(live.id)

    group.on_undo(undo)
    return live


@dataclass(frozen=True, slots=True)
class Admitted:
    """A subscription to admit together with others: its stored tree, and its index among the described subscriptions,
    if any."""

    live: Live
    tree: Mapping[str, Any]
    place: int | None


def admit_many(group: Group, admitted: Sequence[Admitted], described: DescribedMany) -> None:
    """Calls `admit` for each. All must be `described` under the active vocabulary. Those without a `place` are compiled
    from their trees."""
    live_subscriptions = group.state.live_subscriptions
    matcher = live_subscriptions.matcher
    if group.state.shards:
        return

    def undo() -> None:
        for each in admitted:
            if each.live.id in matcher:
                live_subscriptions.leave(each.live.id)
                matcher.remove(each.live.id)

    group.on_undo(undo)
    matcher.add_described(described, {each.place: each.live.id for each in admitted if each.place is not None})
    restored = matcher.restore_many((each.live.id, each.tree) for each in admitted if each.place is None)
    live_subscriptions.enter_many([each.live for each in admitted if each.live.id in matcher])
    for error in restored.refused.values():
        raise error


def exclude(group: Group, live: Live) -> Live:
    """Removes a subscription from the matcher, if it is there."""
    if not live.matching:
        return live
    live_subscriptions = group.state.live_subscriptions
    if group.state.shards:
        return live_subscriptions.put_aside(live)
    tree = live_subscriptions.matcher.tree(live.id)
    after = live_subscriptions.leave(live.id)
    live_subscriptions.matcher.remove(live.id)

    def undo() -> None:
        live_subscriptions.matcher.restore(live.id, tree)
        live_subscriptions.enter(live)

    group.on_undo(undo)
    return after


def set_status(group: Group, live: Live, status: str) -> Live:
    """Sets the status. A subscription whose new status is silent is removed from the matcher."""
    live_subscriptions, before = group.state.live_subscriptions, live
    if status in SILENT:
        live = exclude(group, live)
    if not live.matching:
        group.on_undo(partial(live_subscriptions.keep, live))
        live = live_subscriptions.put_aside(structs.replace(live, status=status))
    group.note(live)
    group.tell_shards(before, live)
    return live


def set_expiry(group: Group, live: Live, expires_at: float) -> Live:
    """Sets the end time."""
    live_subscriptions = group.state.live_subscriptions
    group.on_undo(partial(live_subscriptions.set_end, live.id, live.expires_at))
    live_subscriptions.set_end(live.id, expires_at)
    group.note(live, told=False)
    after = structs.replace(live, expires_at=expires_at)
    group.tell_shards(live, after)
    return after


def forget(group: Group, live: Live, tree: str | None = None) -> None:
    """Removes a deleted subscription from the state. Shards need its `tree`."""
    group.tell_shards(live, None, tree)
    live = exclude(group, live)
    live_subscriptions = group.state.live_subscriptions
    live_subscriptions.drop(live.id)
    group.on_undo(partial(live_subscriptions.keep, live))
    group.note(live)


def swap_matcher(group: Group, matcher: Matcher, declarations: Declarations) -> None:
    """Replaces the matcher by one under another vocabulary. Subscriptions that the new matcher does not hold are kept
    aside. `declarations` are those of the new vocabulary."""
    state, before, declared_before = group.state, group.state.live_subscriptions, group.state.declarations
    kept_before = state.parked_under
    state.live_subscriptions, state.declarations = before.under(matcher), declarations
    state.parked_under = ""  # another server may have deleted the stored parts of the new vocabulary

    def undo() -> None:
        state.live_subscriptions, state.declarations = before, declared_before
        state.parked_under = kept_before

    group.on_undo(undo)
