"""Membership of one server among the servers that share a PostgreSQL database: it sends heartbeats, is notified when
others commit or leave, applies what they commit to its own state, and takes leases.

    every fifth of `lease_seconds` ──▶ "I live until …", by the clock of the database; who else does?
    NOTIFY of another server ──▶ wakes the broker's thread, which reads the log
    another one lives no more ──▶ listeners: the outbox and late matching look at all that waits

A lease is the right of a server to deliver for a subscription. It lasts while its server sends heartbeats. Its fence is
a number that grows when another server takes the lease. Each write of a delivery checks the fence, so a server that
lost its lease without noticing changes nothing. With SQLite this server holds every lease.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import numpy as np
from sqlalchemy import Connection

from kindcast.server.broker.expiry import Sweeper
from kindcast.server.broker.group import SILENT, StateOutdated, Touched
from kindcast.server.broker.state import Live, State
from kindcast.server.broker.vocabulary_commands import fill
from kindcast.server.errors import StoreUnreadable
from kindcast.server.store import ledger, servers, subscriptions
from kindcast.server.store.database import Database
from kindcast.server.store.ledger import LAYOUT
from kindcast.server.store.matches import cache_of, matched_between

__all__ = [
    "Applied",
    "Leases",
    "Membership",
    "OtherServers",
]

BEATS_PER_LEASE = 5
PAUSE_SECONDS = 0.5
"""The pause before the database is tried again."""

T = TypeVar("T")

_log = logging.getLogger("kindcast.broker")


class Membership:
    """The membership of this server: a thread with its own connection. `woken` and `changed` are called on the event
    loop that created it."""

    def __init__(
        self,
        database: Database,
        id: str,
        program: str,
        lease_seconds: float,
        applied: Callable[[], int],
        woken: Callable[[], None],
        changed: Callable[[], None],
    ) -> None:
        self.id = id
        self._database = database
        self._program = program
        self._seconds = lease_seconds
        self._applied = applied
        self._woken = woken
        self._changed = changed
        self._loop = asyncio.get_running_loop()
        self._living: frozenset[str] = frozenset()
        self._lives_until = 0.0
        self.lapses = 0
        """How often a heartbeat was late, including the first one. Leases from before may belong to another server now.
        May be read in any thread."""
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kindcast-membership", daemon=True)

    @property
    def lives(self) -> bool:
        """Whether the other servers count this server as live, as far as it knows. May be read in any thread."""
        return time.monotonic() < self._lives_until

    def start(self) -> None:
        """Sends the first heartbeat and starts the thread. Raises the errors of the driver."""
        with self._database.listening() as connection:
            self._beat(connection)
        self._thread.start()

    async def stop(self) -> None:
        """Leaves the servers. The leases of this server are free at once."""
        if self._thread.is_alive():
            self._stopped.set()
            await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                with self._database.listening() as connection:
                    self._listen(connection)
            except Exception as error:  # an error of the driver, which is installed only for PostgreSQL
                _log.error("the database cannot be reached; trying again: %s", error)
                self._stopped.wait(PAUSE_SECONDS)

    def _listen(self, connection: Any) -> None:
        connection.execute("SET synchronous_commit = off")  # a lost heartbeat is followed by the next one
        connection.execute(f"LISTEN {servers.CHANNEL}")
        pause = self._seconds / BEATS_PER_LEASE
        while not self._stopped.is_set():
            self._beat(connection)
            self._tell(self._woken)  # a notification may have been missed
            until = time.monotonic() + pause
            while not self._stopped.is_set() and (left := until - time.monotonic()) > 0:
                payloads = {each.payload for each in connection.notifies(timeout=min(left, pause), stop_after=1)}
                if payloads - {self.id, ""}:
                    self._tell(self._woken)
                if "" in payloads:
                    break  # a server has left
        connection.execute(servers.LEAVE, (self.id,))
        connection.execute("SELECT pg_notify(%s, '')", (servers.CHANNEL,))

    def _beat(self, connection: Any) -> None:
        began = time.monotonic()
        connection.execute(servers.BEAT, (self.id, self._program, self._seconds, self._applied()))
        living = frozenset(id for id, _ in connection.execute(servers.LIVING).fetchall())
        lapsed = began > self._lives_until
        if lapsed:
            self.lapses += 1  # first: the old leases must not count when it is live again
        self._lives_until = began + self._seconds
        if lapsed or self._living - living:
            self._tell(self._changed)
        self._living = living

    def _tell(self, listener: Callable[[], None]) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(listener)


class BrokerAccess(Protocol):
    """The part of the broker's interface that leases use."""

    async def read(self, work: Callable[[Connection], T]) -> T: ...

    async def execute(
        self, work: Callable[[Connection], T], announce: Callable[[T], Collection[int]] | None = None
    ) -> T: ...


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
        """Gives up a lease, which another server may take at once. Raises `StoreUnavailable`."""
        if (member := self.membership) is not None and self._held.pop(number, None) is not None:
            await self._broker.execute(lambda connection: servers.release_lease(connection, member.id, number))

    async def free_among(self, numbers: Collection[int]) -> tuple[list[int], int]:
        """Returns the leases that no other live server holds, and the number of live servers."""
        member = self.membership
        if member is None:
            return list(numbers), 1

        def look(connection: Connection) -> tuple[list[int], int]:
            others = servers.leased_to_others(connection, member.id, numbers)
            return [each for each in numbers if each not in others], len(servers.living(connection))

        return await self._broker.read(look)

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
    matchers_changed: bool = False
    """Whether the set of matching subscriptions has changed."""


class OtherServers:
    """The commits of other servers. For the broker's thread only."""

    def __init__(
        self,
        id: str,
        state: State,
        sweeper: Sweeper,
        read_all: Callable[[Connection], State],
        tell: Callable[[Applied], None],
    ) -> None:
        """`read_all` restores a state from the store, in one snapshot. `tell` is called with what was applied."""
        self.id = id
        self._state = state
        self._sweeper = sweeper
        self._read_all = read_all
        self._tell = tell
        self.trouble: str | None = None

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
        """Reads everything again after `StateOutdated`. The thread does nothing else meanwhile, so that nothing is
        matched with the outdated state."""
        state = self._state
        with connection.begin():
            connection.exec_driver_sql(servers.SNAPSHOT)
            state.live_subscriptions.reads(connection)
            fresh = self._read_all(connection)
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
        applied.parked = applied.matchers_changed = True
        with connection.begin():
            servers.note_applied(connection, self.id, state.commits)
        self._tell(applied)

    def _catch_up(self, connection: Connection, locked: servers.Locked) -> None:
        state = self._state
        if locked.layout != LAYOUT:
            raise StoreUnreadable(
                f"the database now has layout {locked.layout}, but this server reads layout {LAYOUT}: upgrade this "
                f"server"
            )
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
        applied.matchers_changed = bool(numbers)
        state.changes_since_snapshot += len(numbers)
        if state.snapshot != locked.snapshot:
            state.snapshot, state.changes_since_snapshot = locked.snapshot, 0
        _, _, accepted_at = ledger.position(connection)
        state.commits, state.sequence = locked.commits, locked.sequence
        state.last_accepted_at = max(state.last_accepted_at, accepted_at)
        self._tell(applied)

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
