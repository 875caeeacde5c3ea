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

__all__ = ["LateDecisions", "record_decisions", "retry_given_up"]


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
    connection, state = group.connection, group.state
    before = (state.sequence, state.last_accepted_at)

    def undo() -> None:
        state.sequence, state.last_accepted_at = before

    group.on_undo(undo)
    state.last_accepted_at = max(group.now, state.last_accepted_at)
    lists: list[MatchList] = []
    retries: list[Retry] = []
    told: dict[int, list[int]] = {}
    for each in decisions:
        retries += each.retries
        there = pending_store.take(connection, each.event, [*each.matched, *each.unmatched])
        late = [number for number in each.matched if number in there]
        group.totals.update(parked_matched=len(late), parked_unmatched=len(there) - len(late))
        if not late:
            continue
        state.sequence += 1
        first = pending_store.note_late(connection, state.sequence, each.event, state.last_accepted_at, len(late))
        group.totals.update(matches=len(late), matched=int(first))
        group.touched.update(late)
        told[each.event] = late
        lists.append(packed(state.sequence, each.event, {number: each.matched[number] for number in late}))
    insert_matches(connection, lists)
    retract_late(group, told)
    group.totals["parked_given_up"] += pending_store.postpone(connection, retries, group.now)


def retry_given_up(group: Group) -> int:
    """Makes every candidate that was given up due again, if its event is still kept. Returns how many there are."""
    again = pending_store.retry_given_up(group.connection, group.now)
    group.totals["parked_given_up"] -= again
    group.parked = again > 0
    return again
