"""Expiry and retention: subscriptions expire and are purged a week later; old events are deleted.

Expiry is exact without a sweep: an event never matches an expired subscription. The sweep marks expired subscriptions
and removes them from the matcher, so that they cost nothing.

Retention has priority: an older event is deleted even if a subscriber has not received it, and the ledger counts the
match as discarded. So a forgotten subscription cannot fill the disk. An event that a shard has not matched yet is kept.
"""

import heapq
import logging
import math
from functools import partial

import msgspec

from kindcast.server.broker.group import Group, GroupBroken, forget, set_status
from kindcast.server.broker.state import Live, LiveSubscriptions
from kindcast.server.clock import CLOCK
from kindcast.server.settings import Settings
from kindcast.server.store import event_days, events, servers, shards, subscriptions
from kindcast.server.store.matches import cache_of

__all__ = ["Sweeper"]

_log = logging.getLogger("kindcast.broker")

EVENTS_PER_SWEEP = 2_000
"""The maximum number of events deleted in one group. The others follow in the next groups, so that publishers wait only
for milliseconds."""

PATIENCE_SECONDS = 1.0
"""The pause before a failed sweep is tried again."""

SUBSCRIPTIONS_PER_SWEEP = 500
"""The maximum number of subscriptions expired or purged in one group, for the same reason."""

ATTEMPTS_PER_SWEEP = 5_000
"""The maximum number of attempts of deleted subscriptions that are erased in one group: some tens of ms."""

LOOK_AHEAD = 10_000
"""How many of the subscriptions that end first are known at one time. Finding them takes some ms for a million
subscriptions."""


class Sweeper:
    """Runs the sweeps that are due. For the broker's thread only."""

    def __init__(self, settings: Settings) -> None:
        self._interval = settings.sweep_seconds
        self._retention = settings.retention_seconds
        self._grace = settings.grace_seconds
        self._next = 0.0
        self._not_before = 0.0
        self._ends: list[tuple[float, str]] = []  # a heap; a renewed subscription is put back when its old end comes
        self.drops = False
        """Whether a partition of old events may be dropped: `drop`."""
        self._until = -math.inf
        """The heap has all subscriptions that end up to this time and have not ended."""
        self._most = LOOK_AHEAD
        """The heap is read anew when it has more entries, because new subscriptions would fill the memory."""

    def watch(self, live: Live) -> None:
        """Records an end time. Call it for a subscription that is new, revived, or ends earlier than before."""
        if live.expires_at <= self._until:
            heapq.heappush(self._ends, (live.expires_at, live.id))
            if len(self._ends) > self._most:
                self.look_again()

    def look_again(self) -> None:
        """Called when all subscriptions may have changed."""
        self._ends, self._until = [], -math.inf

    def erase(self, group: Group, live: Live) -> None:
        """Deletes a subscription. If it has many attempts, the next sweeps erase them."""
        tree = None
        if group.state.shards:  # a shard may still have to match events for it
            tree = msgspec.json.encode(subscriptions.tree_of(group.connection, live.number)).decode()
        gone, more = subscriptions.delete_subscription(group.connection, live.number, at_most=ATTEMPTS_PER_SWEEP)
        group.totals.update(gone)
        forget(group, live, tree)
        if more:
            self._next = group.now

    def due_at(self) -> float:
        """The time of the next sweep."""
        return max(min(self._next, self._until, self._first), self._not_before)

    @property
    def _first(self) -> float:
        return self._ends[0][0] if self._ends else math.inf

    def postpone(self) -> None:
        """Delays the next sweep, because the store cannot be reached."""
        self._not_before = CLOCK.now() + PATIENCE_SECONDS

    def sweep(self, group: Group) -> None:
        """Runs one bounded sweep. A failed sweep is tried again later, and commands are executed meanwhile."""
        if group.now < self._not_before:
            return
        try:
            if min(self._until, self._first) <= group.now:
                group.run(self._expire)
            if group.now >= self._next:
                more = group.run(self._clean)
                self._next = group.now if more else group.now + self._interval
        except GroupBroken:
            raise
        except Exception:
            _log.exception("the expiry sweep failed; it will be tried again")
            self.postpone()

    def drop(self, group: Group) -> None:
        """Drops a partition of old events, in a group of its own: nobody reads events until it ends."""
        self.drops = False
        try:
            if group.run(lambda group: event_days.drop_expired(group.connection, group.now - self._retention)):
                self._next = group.now  # there may be another one
        except GroupBroken:
            raise
        except Exception:
            _log.exception("old events could not be dropped; it will be tried again")

    def _expire(self, group: Group) -> None:
        live_subscriptions, ended = group.state.live_subscriptions, list[Live]()
        while len(ended) < SUBSCRIPTIONS_PER_SWEEP:
            if self._first > group.now and self._until <= group.now:
                self._look_ahead(live_subscriptions)
            if self._first > group.now:
                break
            entry = heapq.heappop(self._ends)
            group.on_undo(partial(self._put_back, entry))
            live = live_subscriptions.find(entry[1])
            if live is None or live.status == "expired":
                continue
            if live.expires_at > group.now:
                self.watch(live)  # it was renewed meanwhile
            else:
                ended.append(live)
                set_status(group, live, "expired")
        subscriptions.expire(group.connection, [live.number for live in ended])

    def _clean(self, group: Group) -> bool:
        """Purges expired subscriptions and deletes old events. Returns whether there may be more to do."""
        connection = group.connection
        over = group.now - self._grace
        purged = group.state.live_subscriptions.purgeable(over, SUBSCRIPTIONS_PER_SWEEP + 1)
        for live in purged[:SUBSCRIPTIONS_PER_SWEEP]:
            self.erase(group, live)
        if group.is_shared:
            servers.clean(connection, group.state.commits)
        unmatched = None
        if group.state.shards:
            shards.clean(connection)
            unmatched = shards.first_unmatched(connection)
        left = subscriptions.erase_leftovers(connection, at_most=ATTEMPTS_PER_SWEEP)
        since = group.now - self._retention
        before = events.first_to_keep(connection, since, at_most=EVENTS_PER_SWEEP, but_from=unmatched)
        if before is not None:
            group.on_undo(cache_of(connection).forget)
            group.totals.update(events.discard_before(connection, before))
        elif event_days.has_days(connection):
            self.drops = event_days.find_expired(connection, since) is not None
        return left or before is not None or len(purged) > SUBSCRIPTIONS_PER_SWEEP

    def _look_ahead(self, live_subscriptions: LiveSubscriptions) -> None:
        """Reads the subscriptions that end next."""
        self._ends, self._until = live_subscriptions.soonest(LOOK_AHEAD)
        heapq.heapify(self._ends)
        self._most = len(self._ends) + LOOK_AHEAD

    def _put_back(self, entry: tuple[float, str]) -> None:
        heapq.heappush(self._ends, entry)
