"""Late matches: decisions of operators, and matches that were found elsewhere, written in one transaction.

    decided     ──▶ the pending row is deleted ──▶ if it matches: a match at the next position
    not decided ──▶ the time of the next try, or given up: noted on the subscription
    from elsewhere (`POST /v1/matches`) ──▶ stored with their events, or as late matches of stored events

A candidate that is no longer pending (its subscription was deleted, or another answer came first) is skipped, so there
is at most one match per event and subscription.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kindcast.server.broker.group import Group
from kindcast.server.broker.publishing import Given, Outcome, Publication, Refused, Results, publish_matched
from kindcast.server.broker.retractions import retract_late
from kindcast.server.broker.state import LiveSubscriptions
from kindcast.server.errors import TooManyMatches
from kindcast.server.store import pending as pending_store
from kindcast.server.store.matches import MatchList, had_by, insert_matches, pack_bindings, packed
from kindcast.server.store.pending import Retry
from kindcast.server.store.postings import Numbers

__all__ = [
    "Accepted",
    "LateDecisions",
    "LateMatches",
    "Wanted",
    "accept_matches",
    "record_decisions",
    "retry_given_up",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class LateDecisions:
    """The decisions about the candidates of one event, by subscription number. `matched` maps to the bindings as JSON
    text, or None. `retries` are the candidates that are tried again or given up."""

    event: int
    matched: Mapping[int, str | None] = field(default_factory=dict)
    unmatched: Sequence[int] = ()
    retries: Sequence[Retry] = ()


def record_decisions(group: Group, decisions: Sequence[LateDecisions]) -> None:
    """Stores all decisions. Cost: a few statements, and one row per event."""
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
    """New matches of stored events. The matches of each event get the next position."""

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
        """Adds the subscriptions that get an event now: number → bindings as JSON text or None. None of them may have
        it already."""
        if not matched:
            return
        state = self._group.state
        state.sequence += 1
        self._group.touched.update(matched)
        self._told.setdefault(event, []).extend(matched)
        self._places.append((state.sequence, event, len(matched)))
        self._lists.append(packed(state.sequence, event, matched))

    def add_found(
        self, event: int, numbers: Numbers, subscriptions: bytes, bindings: Sequence[str | None] | None
    ) -> None:
        """Like `add`, for many subscriptions with ascending numbers, which are packed as `subscriptions`."""
        state = self._group.state
        state.sequence += 1
        self._group.touch(numbers)
        self._told.setdefault(event, []).extend(numbers.tolist())
        self._places.append((state.sequence, event, numbers.size))
        bound = None if bindings is None else pack_bindings(bindings)
        self._lists.append(MatchList(state.sequence, event, numbers.size, subscriptions, bound))

    def store(self) -> None:
        """Inserts the matches."""
        group = self._group
        first = pending_store.note_late(group.connection, self._places, group.state.last_accepted_at)
        group.totals.update(matches=sum(each.size for each in self._lists), matched=first)
        insert_matches(group.connection, self._lists)
        retract_late(self._group, self._told)


def retry_given_up(group: Group) -> int:
    """Makes every given-up candidate due again, if its event is still stored. Returns how many there are."""
    again = pending_store.retry_given_up(group.connection, group.now)
    group.totals["parked_given_up"] -= again
    group.parked = again > 0
    return again


Wanted = Mapping[str, str | None]
"""The subscriptions that an event matches: id → bindings as JSON text or None."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """The result of each event, and the counts of their matches: `new` ones, and those that were stored before
    (`repeated`). `silent` maps each subscription that gets nothing, because it does not exist, is paused or has
    expired, to the number of its matches."""

    results: Results
    new: int
    repeated: int
    silent: Mapping[str, int] = field(default_factory=dict)

    def __add__(self, other: "Accepted") -> "Accepted":
        """Returns the sum of two results."""
        silent = Counter(self.silent)
        silent.update(other.silent)
        return Accepted(self.results + other.results, self.new + other.new, self.repeated + other.repeated, silent)


def accept_matches(group: Group, publication: Publication, wanted: Sequence[Wanted]) -> Accepted:
    """Stores the matches `wanted` of the events of a publication, each event once, and the events that are not stored
    yet. Cost: one lookup per match, and a read of all matches of a known event."""
    silent: dict[str, int] = {}
    given = [_given(group.state.live_subscriptions, each, group.now, silent) for each in wanted]
    results: Results = list(publish_matched(group, publication, given))
    new = repeated = 0
    known: dict[int, dict[int, str | None]] = {}
    places: dict[int, list[int]] = {}
    for index, (outcome, matches) in enumerate(zip(results, given, strict=True)):
        if isinstance(outcome, Outcome) and outcome.duplicate:
            known.setdefault(outcome.sequence, {}).update(matches)
            places.setdefault(outcome.sequence, []).append(index)
        elif isinstance(outcome, Outcome):
            new += outcome.matched or 0
    there = had_by(group.connection, known)
    waited = pending_store.waited_for(group.connection, list(known))
    late = LateMatches(group)
    for event, matches in known.items():
        left = {number: told for number, told in matches.items() if number not in there[event]}
        repeated += len(matches) - len(left)
        if too_many := _too_many(results[places[event][0]], len(left), publication.max_matches):
            for index in places[event]:
                results[index] = too_many
            continue
        if event in waited:  # these candidates are decided now
            group.totals["parked_matched"] += len(pending_store.take(group.connection, event, left))
        new += len(left)
        late.add(event, left)
    late.store()
    return Accepted(results, new, repeated, silent)


def _too_many(outcome: Outcome | Refused, more: int, limit: int | None) -> TooManyMatches | None:
    """Returns the error if an event would get too many matches, else None."""
    matched = (outcome.matched or 0) + more if isinstance(outcome, Outcome) else 0
    if limit is None or not more or matched <= limit:
        return None
    told = f"the event would match {matched:,} subscriptions"
    return TooManyMatches(f"{told}, but an event may match at most {limit:,}")


def _given(live: LiveSubscriptions, wanted: Wanted, now: float, silent: dict[str, int]) -> Given:
    """Returns the wanted subscriptions by number. Those that get no matches now are left out and counted in
    `silent`."""
    given: dict[int, str | None] = {}
    for id, bindings in wanted.items():
        known = live.find(id)
        if known is None or not known.matching or known.expires_at <= now:
            silent[id] = silent.get(id, 0) + 1
        else:
            given[known.number] = bindings
    return given
