"""Late matches: decisions of operators written in one transaction, as matches, non-matches or failed attempts.

    decided by an operator ──▶ the parked row goes ──▶ a match at the next position, where it holds
    not decided            ──▶ its next try, or given up: told on the subscription

A candidate that is no longer pending (its subscription was deleted, or another answer came first) is skipped, so there
is at most one match per event and subscription.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kindcast.server.broker.group import Group
from kindcast.server.broker.retractions import retract_late
from kindcast.server.store import pending as pending_store
from kindcast.server.store.events import MatchRow, insert_matches
from kindcast.server.store.pending import Retry

__all__ = ["LateDecisions", "record_decisions", "retry_given_up"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LateDecisions:
    """What came of the candidates of one event, by the number of their subscription: `matched` with the bindings as
    JSON, or None; `unmatched`; and `retries`."""

    event: int
    matched: Mapping[int, str | None] = field(default_factory=dict)
    unmatched: Sequence[int] = ()
    retries: Sequence[Retry] = ()


def record_decisions(group: Group, decisions: Sequence[LateDecisions]) -> None:
    """Write them all. Costs a few statements per event, and one row per match."""
    connection, state = group.connection, group.state
    before = (state.sequence, state.last_accepted_at)

    def undo() -> None:
        state.sequence, state.last_accepted_at = before

    group.on_undo(undo)
    state.last_accepted_at = max(group.now, state.last_accepted_at)
    rows: list[MatchRow] = []
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
        rows += [(number, state.sequence, each.matched[number], each.event) for number in late]
    insert_matches(connection, rows)
    retract_late(group, told)
    group.totals["parked_given_up"] += pending_store.postpone(connection, retries, group.now)


def retry_given_up(group: Group) -> int:
    """All that was given up and is still kept is tried again from now on; returns how many."""
    again = pending_store.retry_given_up(group.connection, group.now)
    group.totals["parked_given_up"] -= again
    group.parked = again > 0
    return again
