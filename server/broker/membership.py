"""Membership of one server among the servers that share a PostgreSQL database: it sends heartbeats, is notified when
others commit or leave, applies what they commit to its own state, prepares the vocabulary that another one is about to
activate, and takes leases.

    every fifth of `lease_seconds` ──▶ "I live until …", by the clock of the database; who else does?
    NOTIFY of another server ──▶ wakes the broker's thread, which reads the log
    another one lives no more ──▶ listeners: the outbox and late matching look at all that waits
    another one builds a vocabulary ──▶ the same vocabulary and a matcher are built here, and swapped in when it commits

A lease is the right of a server to deliver for a subscription. It lasts while its server sends heartbeats. Its fence is
a number that grows when another server takes the lease. Each write of a delivery checks the fence, so a server that
lost its lease without noticing changes nothing. With SQLite this server holds every lease.
"""

import asyncio
import logging
import selectors
import socket
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from kindcast.semantic import Matcher, Vocabulary
from kindcast.server.broker import garbage_collection
from kindcast.server.broker.expiry import Sweeper
from kindcast.server.broker.group import SILENT, StateOutdated, Touched
from kindcast.server.broker.state import Live, State
from kindcast.server.broker.vocabulary_commands import active_declarations, fill, unpacked
from kindcast.server.clock import CLOCK
from kindcast.server.errors import ServerError
from kindcast.server.operators.registry import Registry
from kindcast.server.store import ledger, servers, subscriptions
from kindcast.server.store.database import STUCK_SECONDS, Database
from kindcast.server.store.matches import cache_of, matched_between
from kindcast.server.worker_threads import short_turns

__all__ = [
    "Applied",
    "Leases",
    "Membership",
    "OtherServers",
    "Preparation",
    "PreparedVocabulary",
    "ReadTrees",
]

BEATS_PER_LEASE = 5
PAUSE_SECONDS = 0.5
"""The pause before the database is tried again."""
READ_AGAIN = "everything is read again when it is activated"

T = TypeVar("T")

_log = logging.getLogger("kindcast.broker")


class Membership:
    """The membership of this server: a thread with its own connection. `woken`, `changed` and `upcoming` are called on
    the event loop that created it. The argument of `upcoming` is the token of the vocabulary that another server is
    about to activate; None if there is none any more."""

    def __init__(
        self,
        database: Database,
        id: str,
        program: str,
        lease_seconds: float,
        applied: Callable[[], int],
        woken: Callable[[], None],
        changed: Callable[[], None],
        upcoming: Callable[[str | None], None],
    ) -> None:
        self.id = id
        self._database = database
        self._program = program
        self._seconds = lease_seconds
        self._applied = applied
        self._woken = woken
        self._changed = changed
        self._upcoming = upcoming
        self._token: str | None = None
        self._loop = asyncio.get_running_loop()
        self._living: frozenset[str] = frozenset()
        self._lives_until = 0.0
        self._missed_until = 0
        """The last commit that may have been answered without waiting for this server, because it was silent."""
        self.lapses = 0
        """How often a heartbeat was late, including the first one. Leases from before may belong to another server now.
        May be read in any thread."""
        self._stopped = threading.Event()
        self._stop: socket.socket | None = None
        """The thread waits for notifications, and for the close of this end of a pair."""
        self._thread: threading.Thread | None = None

    @property
    def lives(self) -> bool:
        """Whether the other servers count this server as live, as far as it knows. May be read in any thread."""
        return time.monotonic() < self._lives_until

    @property
    def is_current(self) -> bool:
        """Whether what this server has in memory holds: it is live, and it has applied what the others committed while
        it was silent. May be read in any thread."""
        return self.lives and self._applied() >= self._missed_until

    def start(self) -> None:
        """Sends the first heartbeat and starts the thread. Raises the errors of the driver."""
        with self._database.listening() as connection:
            self._beat(connection)
        stopping, self._stop = socket.socketpair()
        self._thread = threading.Thread(target=self._run, args=(stopping,), name="kindcast-membership", daemon=True)
        self._thread.start()

    async def stop(self) -> None:
        """Leaves the servers. The leases of this server are free at once."""
        if self._thread is not None and self._stop is not None:
            self._stopped.set()
            self._stop.close()
            await asyncio.to_thread(self._thread.join)

    def _run(self, stopping: socket.socket) -> None:
        with stopping:
            while not self._stopped.is_set():
                try:
                    with self._database.listening() as connection, selectors.DefaultSelector() as selector:
                        selector.register(connection, selectors.EVENT_READ)
                        selector.register(stopping, selectors.EVENT_READ)
                        self._listen(connection, selector)
                except Exception as error:  # an error of the driver, which is installed only for PostgreSQL
                    _log.error("the database cannot be reached; trying again: %s", error)
                    self._stopped.wait(PAUSE_SECONDS)

    def _listen(self, connection: Any, selector: selectors.BaseSelector) -> None:
        connection.execute("SET synchronous_commit = off")  # a lost heartbeat is followed by the next one
        connection.execute(f"LISTEN {self._database.channel}")
        pause = self._seconds / BEATS_PER_LEASE
        while not self._stopped.is_set():
            self._beat(connection)
            connection.execute(servers.END_STUCK, (STUCK_SECONDS,))
            if connection.execute(servers.COMMITS).fetchone() != (self._applied(),):
                self._tell(self._woken)  # a notification was missed
            until = time.monotonic() + pause
            while not self._stopped.is_set() and (left := until - time.monotonic()) > 0:
                payloads = {each.payload for each in connection.notifies(timeout=0)}
                if not payloads:
                    selector.select(left)
                if payloads - {self.id, "", servers.UPCOMING}:
                    self._tell(self._woken)
                if servers.UPCOMING in payloads:
                    self._look_ahead(connection)
                if "" in payloads:
                    break  # a server has left
        connection.execute(servers.LEAVE, (self.id,))
        connection.execute("SELECT pg_notify(%s, '')", (self._database.channel,))

    def _beat(self, connection: Any) -> None:
        began, asked = time.monotonic(), CLOCK.running
        beat = connection.execute(servers.BEAT, (self.id, self._program, ledger.LAYOUT, self._seconds, self._applied()))
        (there,) = beat.fetchone()
        CLOCK.compare(there, asked)
        living = frozenset(id for id, _ in connection.execute(servers.LIVING).fetchall())
        lapsed = began > self._lives_until
        if lapsed:
            if self.lapses:
                _log.warning("this server was silent for more than %g s: the others went on without it", self._seconds)
            self.lapses += 1  # first: the old leases must not count when it is live again
            (self._missed_until,) = connection.execute(servers.COMMITS).fetchone()  # later commits wait for it
        self._lives_until = began + self._seconds
        if lapsed or self._living - living:
            self._tell(self._changed)
        self._living = living
        self._look_ahead(connection)

    def _look_ahead(self, connection: Any) -> None:
        row = connection.execute(servers.UPCOMING_NOW, (self.id,)).fetchone()
        token = None if row is None else row[0]
        if token != self._token:
            self._token = token
            self._tell(partial(self._upcoming, token))

    def _tell(self, listener: Callable[[], None]) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(listener)


class BrokerAccess(Protocol):
    """The part of the broker's interface that leases use."""

    async def read(self, work: Callable[[Connection], T]) -> T: ...

    async def execute(
        self, work: Callable[[Connection], T], announce: Callable[[T], Collection[int]] | None = None
    ) -> T: ...


class SharedOut(NamedTuple):
    """The leases that the database gives to this server, those that no live server holds, the number of live servers,
    and how many of them come before this one in the order of their ids."""

    mine: list[int]
    free: list[int]
    living: int
    before: int = 0

    def part(self, count: int) -> int:
        """Returns how many of `count` leases this server should hold. No other server should hold two more or less.

        >>> [SharedOut([], [], living=3, before=before).part(4) for before in range(3)]
        [2, 1, 1]
        """
        each, more = divmod(count, max(1, self.living))
        return each + (self.before < more)


class Leases:
    """The leases of this server. For one event loop."""

    def __init__(self, broker: BrokerAccess) -> None:
        self._broker = broker
        self._held: dict[int, int] = {}
        self._since = 0
        """The value of `Membership.lapses` when the leases were taken."""
        self.membership: Membership | None = None
        """The membership; None with SQLite, where there are no other servers."""
        self.listeners: list[Callable[[], None]] = []
        """Called when leases of other servers may be free, or when this server may have lost its own."""

    def changed(self) -> None:
        """Called when another server has ended, or when a heartbeat of this server was late."""
        self._forget()  # leases that are still ours are read again
        for listener in self.listeners:
            listener()

    async def take(self, numbers: Collection[int]) -> list[int]:
        """Takes the leases of these subscriptions, if no other live server has them. Returns the subscriptions for
        which this server delivers now, in their order. Cost: one read, and one small transaction if some are new to it.
        Raises `StoreUnavailable`."""
        member = self.membership
        if member is None:
            return list(numbers)
        if not member.lives:
            return []
        if member.lapses != self._since:
            self._forget()
        since = self._since
        new = [number for number in numbers if number not in self._held]
        if new:
            others = await self._broker.read(lambda connection: servers.leased_to_others(connection, member.id, new))
            free = [number for number in new if number not in others]
            if free:
                taken = await self._broker.execute(lambda connection: servers.take_leases(connection, member.id, free))
                if since == member.lapses:
                    self._held |= taken
        return [number for number in numbers if self.fence(number) is not None]

    async def release(self, number: int) -> None:
        """Gives up a lease, which another server may take at once. The lease may be one that only the database still
        gives to this server. Raises `StoreUnavailable`."""
        self._held.pop(number, None)
        if (member := self.membership) is not None:
            await self._broker.execute(lambda connection: servers.release_lease(connection, member.id, number))

    async def shared_out(self, numbers: Collection[int]) -> SharedOut:
        """Returns who holds these leases, as the database says, and forgets those that it does not give to this server
        with the same fence. Raises `StoreUnavailable`."""
        member = self.membership
        if member is None:
            return SharedOut(list(numbers), [], 1)

        def look(connection: Connection) -> tuple[dict[int, int], set[int], list[str]]:
            return (
                servers.held_leases(connection, member.id, numbers),
                servers.leased_to_others(connection, member.id, numbers),
                [id for id, _ in servers.living(connection)],
            )

        mine, others, living = await self._broker.read(look)
        for number in numbers:
            if self._held.get(number) != mine.get(number):
                self._held.pop(number, None)
        free = [each for each in numbers if each not in mine and each not in others]
        before = sum(id < member.id for id in living)
        return SharedOut([each for each in numbers if each in mine], free, len(living), before)

    def fence(self, number: int) -> int | None:
        """Returns the fence of a lease; None if this server does not hold it."""
        if self.membership is None:
            return 0
        if not self.membership.lives or self._since != self.membership.lapses:
            return None
        return self._held.get(number)

    def _forget(self) -> None:
        self._held.clear()
        if self.membership is not None:
            self._since = self.membership.lapses

    def valid(self, connection: Connection, fences: Collection[tuple[int, int]]) -> set[tuple[int, int]]:
        """Returns those of these (subscription, fence) that are valid now. Must run in a group."""
        if self.membership is None:
            return set(fences)
        there = servers.held_leases(connection, self.membership.id, {number for number, _ in fences})
        return there.items() & set(fences)


# ── applies the commits of other servers on the same database to the state of this server ─────────────────────────────

#     NOTIFY, or a group begins ──▶ the ledger says: commits that are not ours ──▶ changes since ──▶ state, sweeper
#                                                                                    │             └─▶ listeners
#                                   another vocabulary, other operators, too far behind: everything is read again
#
# A group that matches events holds the lock of the ledger and has applied all earlier commits. So an event is matched
# against exactly the subscriptions that were committed before it, at any server.


__all__ = ["Applied", "OtherServers"]


@dataclass(slots=True)
class Applied:
    """The effect of commits of other servers."""

    touched: Touched = field(default_factory=lambda: Touched(set(), np.zeros(0, dtype=np.int64)))
    parked: bool = False


class OtherServers:
    """The commits of other servers. For the broker's thread only."""

    def __init__(
        self,
        id: str,
        channel: str,
        state: State,
        sweeper: Sweeper,
        read_all: Callable[[Connection], State],
        tell: Callable[[Applied], None],
    ) -> None:
        """`channel` is that of NOTIFY. `read_all` restores a state from the store, in one snapshot. `tell` is called
        with what was applied."""
        self.id = id
        self.channel = channel
        self._state = state
        self._sweeper = sweeper
        self._read_all = read_all
        self._tell = tell
        self._timeline: str | None = None
        self.prepared: PreparedVocabulary | None = None
        """The vocabulary that another server is about to activate, if this server has prepared it. Another thread may
        set this."""

    def lock(self, connection: Connection) -> None:
        """Called at the beginning of a group. Waits for the other servers and applies their commits. Raises
        `StateOutdated`."""
        self._catch_up(connection, servers.lock_ledger(connection))

    def follow(self, connection: Connection) -> None:
        """Applies commits of other servers without a lock. Raises `StateOutdated`."""
        with connection.begin():
            connection.exec_driver_sql(servers.SNAPSHOT)
            self._catch_up(connection, servers.read_ledger(connection))

    def read_again(self, connection: Connection) -> None:
        """Brings the state up to date after `StateOutdated`: swaps in the vocabulary that this server has prepared, or
        reads everything again. The thread does nothing else meanwhile, so that nothing is matched with the outdated
        state."""
        state = self._state
        with connection.begin():
            connection.exec_driver_sql(servers.SNAPSHOT)
            state.live_subscriptions.reads(connection)
            fresh = self._swapped_or_none(connection) or self._read_all(connection)
            is_far = _is_far_behind(fresh.commits, state) or fresh.commits < state.commits
            applied, _ = self._announcement(
                connection, servers.changes_after(connection, state.commits), fresh.sequence
            )
            if is_far:
                numbers = state.live_subscriptions.all_numbers() | fresh.live_subscriptions.all_numbers()
                applied.touched = Touched(numbers, applied.touched.matched)
        cache_of(connection).forget()
        state.live_subscriptions, state.declarations = fresh.live_subscriptions, fresh.declarations
        state.operators, state.parked_under = fresh.operators, ""
        state.commits, state.sequence = fresh.commits, fresh.sequence
        state.last_accepted_at = max(state.last_accepted_at, fresh.last_accepted_at)
        state.snapshot, state.changes_since_snapshot = fresh.snapshot, fresh.changes_since_snapshot
        self._sweeper.look_again()
        applied.parked = True
        self._tell(applied)
        with connection.begin():  # if this fails, the next heartbeat says it
            servers.note_applied(connection, self.id, state.commits)

    def _swapped_or_none(self, connection: Connection) -> State | None:
        try:
            return self._swapped(connection)
        except SQLAlchemyError:
            raise
        except Exception:
            _log.exception("the prepared vocabulary is not used because of an error")
            return None

    def _swapped(self, connection: Connection) -> State | None:
        """Returns the present state, if nothing or little must be compiled: the vocabulary that was activated is the
        one that this server has prepared, or the one that it has already. Returns None for another vocabulary, and if
        something else has changed.

        Cost: some 0.5 µs per subscription, and the compilation of the subscriptions that were changed meanwhile.
        """
        prepared, self.prepared = self.prepared, None
        state, now = self._state, servers.read_ledger(connection)
        if state.shards or now.commits < state.commits or _is_far_behind(now.commits, state):
            return None  # with shards, there is little to read
        began, noted, changed = time.perf_counter(), servers.changes_after(connection, state.commits), 0
        activated = _last_activated(noted)
        if activated == state.vocabulary.version:
            self._apply(connection, noted)
            live_subscriptions = state.live_subscriptions
        elif prepared is not None and prepared.fits(activated, state.operators, now.commits):
            self._apply(connection, noted)
            changed = prepared.catch_up(connection)
            live_subscriptions = state.live_subscriptions.under(prepared.matcher)
        else:
            return None
        here = len(live_subscriptions), live_subscriptions.numbers_sum()
        if subscriptions.numbers_of_all(connection) != here:
            _log.error("everything is read again: this server has other subscriptions than the database")
            return None
        fresh = State(live_subscriptions, state.new_matcher, active_declarations(connection), state.operators)
        fresh.snapshot, fresh.commits, fresh.sequence = now.snapshot, now.commits, now.sequence
        if now.snapshot == state.snapshot:
            fresh.changes_since_snapshot = state.changes_since_snapshot + len(noted)
        fresh.last_accepted_at = ledger.position(connection)[2]
        _log.info(
            "%s vocabulary %s in %.3f s: %d subscriptions, of which %d were changed meanwhile",
            "kept the" if activated == state.vocabulary.version else "swapped in the prepared",
            activated,
            time.perf_counter() - began,
            len(live_subscriptions),
            changed,
        )
        return fresh

    def _catch_up(self, connection: Connection, locked: servers.Locked) -> None:
        state = self._state
        ledger.check_readable(locked.readable_from)
        if self._is_promoted(connection):
            _log.warning("a replica of the database was promoted, which may lack commits: everything is read again")
            state.commits = -servers.KEPT_COMMITS - 1
        if locked.commits == state.commits:
            return
        if locked.commits < state.commits:
            _log.error(
                "the database has %d commits, but there were %d before: it lost commits", locked.commits, state.commits
            )
            raise StateOutdated
        if _is_far_behind(locked.commits, state):
            raise StateOutdated
        noted = servers.changes_after(connection, state.commits)
        if any(each.kind in (servers.ACTIVATION, servers.OPERATORS) for each in noted):
            raise StateOutdated
        self._apply(connection, noted)
        applied, numbers = self._announcement(connection, noted, locked.sequence)
        state.changes_since_snapshot += len(numbers)
        if state.snapshot != locked.snapshot:
            state.snapshot, state.changes_since_snapshot = locked.snapshot, 0
        _, _, accepted_at = ledger.position(connection)
        state.commits, state.sequence = locked.commits, locked.sequence
        state.last_accepted_at = max(state.last_accepted_at, accepted_at)
        self._tell(applied)

    def _is_promoted(self, connection: Connection) -> bool:
        """Whether a replica was promoted since the last look. It may lack commits that this server has applied, and
        others may have made as many since. Asks once for each connection."""
        before = self._timeline
        if "timeline" not in connection.info:
            connection.info["timeline"] = self._timeline = servers.timeline(connection)
        return before not in (None, self._timeline)

    def _announcement(
        self, connection: Connection, noted: Collection[servers.Change], sequence: int
    ) -> tuple[Applied, set[int]]:
        numbers = {each.subscription for each in noted if each.kind == servers.SUBSCRIPTION}
        told = {each.subscription for each in noted if each.kind == servers.TOLD}
        matched = matched_between(connection, self._state.sequence, sequence)
        parked = any(each.kind == servers.PARKED for each in noted)
        return Applied(Touched(numbers | told, matched), parked), numbers

    def _apply(self, connection: Connection, noted: Collection[servers.Change]) -> None:
        """Updates each changed subscription from its row. May be done twice."""
        live_subscriptions = self._state.live_subscriptions
        latest: dict[int, str] = {}
        for each in noted:
            if each.kind == servers.SUBSCRIPTION:
                latest.pop(each.subscription, None)
                latest[each.subscription] = each.id  # in the order of the last change
        if not latest:
            return
        rows = {row.number: row for row in subscriptions.states(connection, list(latest))}
        if self._state.shards:  # there is no other state
            for there in rows.values():
                if there.status != "expired":
                    self._sweeper.watch(Live(there.number, there.id, there.status, there.expires_at, matching=False))
            return
        compiled = [number for number in latest if number in rows and rows[number].status not in SILENT]
        # Everything is read before anything is changed, so that a broken connection leaves the state unchanged.
        stored = {row.number: row for row in subscriptions.trees(connection, live_only=True, numbers=compiled)}
        new: list[int] = []
        for number, id in latest.items():
            row = rows.get(number)
            known = live_subscriptions.find(id)
            if known is not None and known.number != number and row is None:
                continue  # a later subscription with the same id
            if row is not None and known is not None and known.matching and row.status not in SILENT:
                live_subscriptions.set_end(id, row.expires_at)
                self._sweeper.watch(live_subscriptions[id])
                continue
            if known is not None and known.matching:
                live_subscriptions.leave(id)
                live_subscriptions.matcher.remove(id)
            live_subscriptions.aside.pop(id, None)
            if row is not None:
                live = live_subscriptions.put_aside(Live(number, id, row.status, row.expires_at, matching=False))
                if row.status not in SILENT:
                    new.append(number)
                if row.status != "expired":
                    self._sweeper.watch(live)
        if new:
            trees = [stored[number] for number in new if number in stored]
            for _ in fill(live_subscriptions.matcher, trees):
                pass  # the server that made the change stored the changed notes
            live_subscriptions.enter_found([latest[number] for number in new])


def _is_far_behind(commits: int, state: State) -> bool:
    return state.commits < commits - servers.KEPT_COMMITS


def _last_activated(noted: Collection[servers.Change]) -> str | None:
    """Returns the version of the vocabulary that was activated last; None if none was, or if operators changed."""
    if any(each.kind == servers.OPERATORS for each in noted):
        return None
    return next((each.id for each in reversed(list(noted)) if each.kind == servers.ACTIVATION), None)


# ── prepares the vocabulary that another server is about to activate ──────────────────────────────────────────────────

#     the other server               announces the vocabulary ──compiles──▶ waits until all have prepared it ──▶ commits
#     this server, beside its work     └──▶ builds it, compiles all subscriptions ──▶ says so                      │
#     this server's broker thread                                     applies the latest changes, swaps it in  ◀───┘
#
# What was prepared counts only for the activation of exactly this version. Else everything is read again, as if nothing
# had been prepared.

FEW_CHANGES = 100
"""While more subscriptions than this were changed since the last look, they are compiled before the swap."""


class PreparedVocabulary:
    """A vocabulary that is not active yet, with a matcher that has the subscriptions of one commit."""

    def __init__(self, vocabulary: Vocabulary, state: State, operators: Registry, read: "ReadTrees") -> None:
        """Compiles the subscriptions that were `read`. `operators` are those of `state` before `read`. May run in any
        thread, beside the thread that owns `state`."""
        self.vocabulary = vocabulary
        self._operators = operators
        self._commit = read.commit
        self._numbers = {row.id: row.number for row in read.rows}
        with short_turns(), garbage_collection.paused():
            self.matcher: Matcher = state.empty_matcher(vocabulary)
            self._fill(read.rows)
            vocabulary.index_labels()  # now, so that nobody waits for it later
            self.matcher.canonicalise({"quantity": "1 kg"})

    def fits(self, activated: str | None, operators: Registry, commits: int) -> bool:
        """Whether this is the vocabulary that was `activated`, the operators are those from before, and the log still
        has all changes of subscriptions."""
        return (
            activated == self.vocabulary.version
            and operators is self._operators
            and self._commit >= commits - servers.KEPT_COMMITS
        )

    def catch_up(self, connection: Connection) -> int:
        """Applies the changes of subscriptions that were committed since the last call, as this transaction sees them.
        Returns how many were compiled or removed. Only one thread may call this."""
        commit = servers.read_ledger(connection).commits
        latest = {
            each.subscription: each.id
            for each in servers.changes_after(connection, self._commit)
            if each.kind == servers.SUBSCRIPTION
        }
        rows = subscriptions.trees(connection, live_only=True, numbers=list(latest))
        active = {row.id: row for row in rows if row.status not in SILENT}
        changed = 0
        for id in set(latest.values()):
            row = active.get(id)
            if row is not None and self._numbers.get(id) == row.number:
                del active[id]  # a number always has the same tree
                continue
            changed += 1
            self._numbers.pop(id, None)
            if id in self.matcher:
                self.matcher.remove(id)
        with short_turns():
            self._fill(active.values())
        self._numbers.update((row.id, row.number) for row in active.values())
        self._commit = commit
        return changed

    def _fill(self, rows: Collection[Any]) -> None:
        for _ in fill(self.matcher, rows):
            pass  # the server that activates the vocabulary stores the notes


@dataclass(frozen=True, slots=True)
class ReadTrees:
    """The trees of all subscriptions that match, as of one commit."""

    commit: int
    rows: list[Any]

    @classmethod
    def of(cls, connection: Connection) -> "ReadTrees":
        with short_turns(), subscriptions.all_trees(connection, live_only=True) as found:
            rows = [row for row in found if row.status not in SILENT]
        return cls(servers.read_ledger(connection).commits, rows)


class PreparingBroker(BrokerAccess, Protocol):
    """The part of the broker's interface that a preparation uses."""

    @property
    def name(self) -> str: ...

    @property
    def state(self) -> State: ...

    async def follow(self) -> None: ...


class Preparation:
    """Prepares the vocabularies that other servers are about to activate. For one event loop."""

    def __init__(self, broker: PreparingBroker, give: Callable[[PreparedVocabulary | None], None]) -> None:
        """`give` is called with each prepared vocabulary, and with None when it is no longer needed."""
        self._broker = broker
        self._give = give
        self._token: str | None = None
        self._task: asyncio.Task[None] | None = None

    def upcoming(self, token: str | None) -> None:
        """Called when another server is about to activate a vocabulary, or when that is over."""
        self._token = token
        self._give(None)
        if self._task is not None:
            self._task.cancel()
        self._task = None if token is None else asyncio.create_task(self._prepare(token), name="preparing a vocabulary")

    async def stop(self) -> None:
        """Ends the preparation that is running."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _prepare(self, token: str) -> None:
        """Prepares a vocabulary and says so. If that is not possible, says that the activation need not wait."""
        began = time.perf_counter()
        try:
            prepared = await self._made(token)
        except ServerError as error:
            _log.error("a vocabulary cannot be prepared; %s: %s", READ_AGAIN, error)
            prepared = None
        except Exception:
            _log.exception("a vocabulary cannot be prepared; %s", READ_AGAIN)
            prepared = None
        if token != self._token:
            return
        if prepared is not None:
            self._give(prepared)
            count, seconds = len(prepared.matcher), time.perf_counter() - began
            _log.info("prepared vocabulary %s: %d subscriptions in %.1f s", prepared.vocabulary.version, count, seconds)
        try:
            await self._broker.execute(lambda connection: servers.note_prepared(connection, token, self._broker.name))
        except ServerError as error:
            _log.warning("another server was not told that a vocabulary is prepared: %s", error)

    async def _made(self, token: str) -> PreparedVocabulary | None:
        """Returns the prepared vocabulary; None if it is not wanted any more or cannot be built here."""
        await self._broker.follow()
        found = await self._broker.read(partial(servers.find_upcoming, token=token))
        state = self._broker.state
        base, operators = state.vocabulary, state.operators
        if found is None or state.shards or found.base != base.version:
            return None
        vocabulary = await asyncio.to_thread(unpacked, base, found.content)
        if vocabulary.version != found.version:
            raise ValueError(f"the announced vocabulary is {found.version}, but {vocabulary.version} was built")
        read = await self._broker.read(ReadTrees.of)
        prepared = await asyncio.to_thread(PreparedVocabulary, vocabulary, state, operators, read)
        while await self._broker.read(prepared.catch_up) > FEW_CHANGES:
            pass
        return prepared
