"""Matches that were found elsewhere, by a Spark job with the same matcher: stored and delivered as if found here.

    new event     ──▶ stored, with these matches at its position; nothing is matched here
    known event   ──▶ late matches, of the subscriptions that do not have it yet

A subscription gets an event once, however often its match is sent: over a request that is repeated, a job that starts
again, or a publisher that sent the event here before.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kindcast.server.broker.group import Group
from kindcast.server.broker.late_matches import LateMatches
from kindcast.server.broker.publishing import Given, Outcome, Publication, Refused, Results, publish_matched
from kindcast.server.broker.state import LiveSubscriptions
from kindcast.server.errors import TooManyMatches
from kindcast.server.store import pending as pending_store
from kindcast.server.store.matches import had_by

__all__ = ["Accepted", "Wanted", "accept_matches"]

Wanted = Mapping[str, str | None]
"""The subscriptions that an event matches, by id, with the bindings as JSON or None."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """What became of the events, one result each, and of their matches: how many are `new`, how many were there before
    (`repeated`), and the subscriptions that get nothing, each with how many matches it misses: no such subscription, or
    it is paused or has expired."""

    results: Results
    new: int
    repeated: int
    silent: Mapping[str, int] = field(default_factory=dict)

    def __add__(self, other: "Accepted") -> "Accepted":
        """What became of both."""
        silent = Counter(self.silent)
        silent.update(other.silent)
        return Accepted(self.results + other.results, self.new + other.new, self.repeated + other.repeated, silent)


def accept_matches(group: Group, publication: Publication, wanted: Sequence[Wanted]) -> Accepted:
    """Store the matches `wanted` of the events of a publication, each event once, and the events that are not known
    yet. Costs a look at each match, and one at all matches that a known event has."""
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
            new += outcome.matched
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
        if event in waited:  # what operators were to decide here is decided
            group.totals["parked_matched"] += len(pending_store.take(group.connection, event, left))
        new += len(left)
        late.add(event, left)
    late.store()
    return Accepted(results, new, repeated, silent)


def _too_many(outcome: Outcome | Refused, more: int, limit: int | None) -> TooManyMatches | None:
    """Why an event does not get so many more matches."""
    if limit is None or not more or not isinstance(outcome, Outcome) or outcome.matched + more <= limit:
        return None
    told = f"the event would match {outcome.matched + more:,} subscriptions"
    return TooManyMatches(f"{told}, and an event may match {limit:,} at most")


def _given(live: LiveSubscriptions, wanted: Wanted, now: float, silent: dict[str, int]) -> Given:
    """By number, without those that get no matches now, which are counted in `silent`."""
    given: dict[int, str | None] = {}
    for id, bindings in wanted.items():
        known = live.find(id)
        if known is None or not known.matching or known.expires_at <= now:
            silent[id] = silent.get(id, 0) + 1
        else:
            given[known.number] = bindings
    return given
