"""Applies the commits of other servers on the same database to the state of this server.

    NOTIFY, or a group begins ──▶ the ledger says: commits that are not ours ──▶ changes since ──▶ state, sweeper
                                                                                   │             └─▶ listeners
                                  another vocabulary, other operators, too far behind: everything is read again

A group that matches events holds the lock of the ledger and has applied all earlier commits. So an event is matched
against exactly the subscriptions that were committed before it, at any server.
"""

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

import numpy as np
from sqlalchemy import Connection

from kindcast.server.broker.expiry import Sweeper
from kindcast.server.broker.group import SILENT, StateOutdated, Touched
from kindcast.server.broker.state import Live, State
from kindcast.server.broker.vocabulary_commands import fill
from kindcast.server.errors import StoreUnreadable
from kindcast.server.store import ledger, servers, subscriptions
from kindcast.server.store.ledger import LAYOUT
from kindcast.server.store.matches import cache_of, matched_between

_log = logging.getLogger("kindcast.broker")

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
