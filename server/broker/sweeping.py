"""What time does: subscriptions expire, are purged a week later, and old events are deleted.

Expiry itself needs no sweep to be exact: an event is never matched for a subscription whose time is over. The sweep
marks such subscriptions and takes them out of the matcher, so that they cost nothing.

Retention wins over everything: an event older than it is deleted even if a subscriber has not taken it (it counts as
discarded in the ledger), so a forgotten subscription cannot fill the disk.
"""

import heapq
import logging
import time
from collections.abc import Iterable
from functools import partial

from server.broker.changes import forget, set_status
from server.broker.group import Group, GroupBroken
from server.broker.state import Live
from server.settings import Settings
from server.store import events, subscriptions

__all__ = ["Sweeper"]

_log = logging.getLogger("kindcast.broker")

EVENTS_PER_SWEEP = 2_000
"""Deleted in one group; the rest follows in the next ones, so that publishers wait for milliseconds only."""

PATIENCE_SECONDS = 1.0
"""Before a sweep that failed is tried again."""

SUBSCRIPTIONS_PER_SWEEP = 500
"""Expired or purged in one group, for the same reason."""


class Sweeper:
    """Decides what is due. The broker's thread only."""

    def __init__(self, settings: Settings) -> None:
        self._interval = settings.sweep_seconds
        self._retention = settings.retention_seconds
        self._grace = settings.grace_seconds
        self._next = 0.0
        self._not_before = 0.0
        self._ends: list[tuple[float, str]] = []  # a heap; a renewed subscription is put back when its old end comes

    def watch(self, live: Live) -> None:
        """Note when a subscription ends. Needed when it is new, revived, or ends earlier than it did."""
        heapq.heappush(self._ends, (live.expires_at, live.id))

    def watch_all(self, subscriptions: Iterable[Live]) -> None:
        """`watch` each; for a start."""
        self._ends += [(live.expires_at, live.id) for live in subscriptions]
        heapq.heapify(self._ends)

    def due_at(self) -> float:
        """When to sweep next."""
        due = min(self._next, self._ends[0][0]) if self._ends else self._next
        return max(due, self._not_before)

    def postpone(self) -> None:
        """Not now: the store cannot be reached."""
        self._not_before = time.time() + PATIENCE_SECONDS

    def sweep(self, group: Group) -> None:
        """Do what is due, a bounded piece of it. A sweep that fails is tried again; commands go on meanwhile."""
        if group.now < self._not_before:
            return
        try:
            if self._ends and self._ends[0][0] <= group.now:
                group.run(self._expire)
            if group.now >= self._next:
                more = group.run(self._clean)
                self._next = group.now if more else group.now + self._interval
        except GroupBroken:
            raise
        except Exception:
            _log.exception("the sweep failed, and is tried again")
            self.postpone()

    def _expire(self, group: Group) -> None:
        ended: list[Live] = []
        while self._ends and self._ends[0][0] <= group.now and len(ended) < SUBSCRIPTIONS_PER_SWEEP:
            entry = heapq.heappop(self._ends)
            group.on_undo(partial(heapq.heappush, self._ends, entry))
            live = group.state.live.get(entry[1])
            if live is None or live.status == "expired":
                continue
            if live.expires_at > group.now:
                self.watch(live)  # it was renewed meanwhile
            else:
                ended.append(live)
                set_status(group, live, "expired")
        subscriptions.expire(group.connection, [live.number for live in ended])

    def _clean(self, group: Group) -> bool:
        """Purge and delete; whether there may be more."""
        connection = group.connection
        over = group.now - self._grace
        purged = [live for live in group.state.live.values() if live.status == "expired" and live.expires_at <= over]
        for live in purged[:SUBSCRIPTIONS_PER_SWEEP]:
            group.totals.update(subscriptions.delete_subscription(connection, live.number))
            forget(group, live)
        before = events.first_to_keep(connection, group.now - self._retention, at_most=EVENTS_PER_SWEEP)
        if before is not None:
            group.totals.update(events.discard_before(connection, before))
        return before is not None or len(purged) > SUBSCRIPTIONS_PER_SWEEP
