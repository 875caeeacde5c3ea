"""Late matches: decisions of operators written in one transaction, as matches, non-matches or failed attempts.

    decided     ──▶ the parked row is deleted ──▶ if it matches: a match at the next position
    not decided ──▶ the time of the next try, or given up: noted on the subscription

A candidate that is no longer pending (its subscription was deleted, or another answer came first) is skipped, so there
is at most one match per event and subscription.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kindcast.server.broker.group import Group
from kindcast.server.broker.retractions import retract_late
from kindcast.server.store import pending as pending_store
from kindcast.server.store.matches import MatchList, insert_matches, packed
from kindcast.server.store.pending import Retry

__all__ = ["LateDecisions", "LateMatches", "record_decisions", "retry_given_up"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LateDecisions:
    """The decisions about the candidates of one event, by subscription number. `matched` has the bindings as JSON text,
    or None; `retries` are the candidates that are tried again or given up."""

    event: int
    matched: Mapping[int, str | None] = field(default_factory=dict)
    unmatched: Sequence[int] = ()
    retries: Sequence[Retry] = ()


def record_decisions(group: Group, decisions: Sequence[LateDecisions]) -> None:
    """Stores all decisions. Costs a few statements and one row per event."""
    late = LateMatches(group)
    retries: list[Retry] = []
    for each in decisions:
        retries += each.retries
        there = pending_store.take(group.connection, each.event, [*each.matched, *each.unmatched])
        matched = {number: told for number, told in each.matched.items() if number in there}
        group.totals.update(parked_matched=len(matched), parked_unmatched=len(there) - len(matched))
        late.add(each.event, matched)
    late.store()
    group.totals["parked_given_up"] += pending_store.postpone(group.connection, retries, group.now)


class LateMatches:
    """Matches of events that are stored already, each event's at the next position."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self._lists: list[MatchList] = []
        self._places: list[tuple[int, int, int]] = []
        self._told: dict[int, list[int]] = {}
        state = group.state
        before = (state.sequence, state.last_accepted_at)

        def undo() -> None:
            state.sequence, state.last_accepted_at = before

        group.on_undo(undo)
        state.last_accepted_at = max(group.now, state.last_accepted_at)

    def add(self, event: int, matched: Mapping[int, str | None]) -> None:
        """The subscriptions that get an event now, by number with the bindings as JSON text or None; nobody who has
        it."""
        if not matched:
            return
        state = self._group.state
        state.sequence += 1
        self._group.touched.update(matched)
        self._told.setdefault(event, []).extend(matched)
        self._places.append((state.sequence, event, len(matched)))
        self._lists.append(packed(state.sequence, event, matched))

    def store(self) -> None:
        """Insert them."""
        group = self._group
        first = pending_store.note_late(group.connection, self._places, group.state.last_accepted_at)
        group.totals.update(matches=sum(each.size for each in self._lists), matched=first)
        insert_matches(group.connection, self._lists)
        retract_late(self._group, self._told)


def retry_given_up(group: Group) -> int:
    """Makes every candidate that was given up due again, if its event is still kept. Returns how many there are."""
    again = pending_store.retry_given_up(group.connection, group.now)
    group.totals["parked_given_up"] -= again
    group.parked = again > 0
    return again
