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
from kindcast.server.broker.publishing import Given, Outcome, Publication, Results, publish_matched
from kindcast.server.broker.state import LiveSubscriptions
from kindcast.server.errors import TooManyMatches
from kindcast.server.store import pending as pending_store
from kindcast.server.store.matches import recipients_of

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
    late = LateMatches(group)
    for index, (outcome, matches) in enumerate(zip(results, given, strict=True)):
        if not isinstance(outcome, Outcome):
            continue
        if not outcome.duplicate:
            new += outcome.matched
            continue
        left = _not_there(group, outcome.sequence, matches)
        repeated += len(matches) - len(left)
        limit = publication.max_matches
        if limit is not None and left and outcome.matched + len(left) > limit:
            told = f"the event would match {outcome.matched + len(left):,} subscriptions"
            results[index] = TooManyMatches(f"{told}, and an event may match {limit:,} at most")
            continue
        new += len(left)
        late.add(outcome.sequence, left)
    late.store()
    return Accepted(results, new, repeated, silent)


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


def _not_there(group: Group, event: int, given: Given) -> Given:
    """Those that do not have the event yet. What operators were to decide of them here is decided."""
    if not given:
        return given
    there = {each.number for each in recipients_of(group.connection, event)}
    left = {number: told for number, told in given.items() if number not in there}
    waited = pending_store.take(group.connection, event, left)
    group.totals["parked_matched"] += len(waited)
    return left
