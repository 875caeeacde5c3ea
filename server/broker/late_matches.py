"""Late matches: decisions of operators, matches that were found elsewhere, and the backfill of a new subscription.

They are matches of events that are stored already, so they get new positions.

    decided     ──▶ the pending row is deleted ──▶ if it matches: a match at the next position
    not decided ──▶ the time of the next try, or given up: noted on the subscription
    from elsewhere (`POST /v1/matches`) ──▶ stored with their events, or as late matches of stored events

A candidate that is no longer pending (its subscription was deleted, or another answer came first) is skipped, so there
is at most one match per event and subscription.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Row

from kindcast.semantic import Compiled, InvalidEvent, Matcher, Vocabulary
from kindcast.semantic.events import ReadEvent
from kindcast.semantic.operators import Failure
from kindcast.server.broker.group import Group
from kindcast.server.broker.publishing import (
    Given,
    Outcome,
    Publication,
    Refused,
    Results,
    as_bindings,
    keep_parked_vocabulary,
    publish_matched,
    retract_late,
)
from kindcast.server.broker.state import LiveSubscriptions
from kindcast.server.cloudevents import EventReader, arrived
from kindcast.server.errors import BackfillTooLarge, TooManyMatches
from kindcast.server.operators.registry import Registry
from kindcast.server.settings import Settings
from kindcast.server.store import pending as pending_store
from kindcast.server.store.events import WholeEvents, last_sequence, list_whole_events
from kindcast.server.store.matches import MatchList, had_by, insert_matches, pack_bindings, packed
from kindcast.server.store.pending import Retry
from kindcast.server.store.postings import Numbers

__all__ = [
    "BACKFILL_PAGE",
    "Accepted",
    "Backfill",
    "LateDecisions",
    "LateMatches",
    "Outdated",
    "Wanted",
    "accept_matches",
    "create_with",
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


# ── backfill: stored events for a new subscription, stored with it in one transaction ─────────────────────────────────
#
#     stored events ──read and match, beside the writer──▶ Backfill ──create_with, one command──▶ subscription,
#                                                             ▲           │                        late matches
#                                                             └── the few events accepted since ───┘
#
# The matches get new positions, in the order of their events and before every new event, like late matches. If the
# process is killed, either the subscription with all its matches is stored, or nothing. Since the subscription was in
# no matcher before, no event is delivered twice. All events are matched under the active vocabulary.

BACKFILL_PAGE = 1_000
"""The number of events that are read and matched at one time. It is also the maximum number that the command itself
matches."""
NAME = "new"


class Outdated(Exception):
    """The vocabulary or the operators changed while the events were read, or too many events arrived meanwhile."""


class Backfill:
    """The matches of one expression with the stored events after a sequence number. Only one thread at a time may use
    it."""

    def __init__(
        self,
        matcher: Matcher,
        compiled: Compiled,
        vocabulary: Vocabulary,
        operators: Registry,
        settings: Settings,
        *,
        after: int,
    ) -> None:
        """`matcher` must be empty, have this vocabulary and call no operators."""
        self.vocabulary, self.operators = vocabulary, operators
        self.through = after
        """Events up to this sequence number have been read."""
        self.read = self.unreadable = 0
        self.matched: list[tuple[int, str | None]] = []
        """The sequence number and the bindings of each match, in order."""
        self.undecided: list[tuple[int, Failure]] = []
        """Events that operators must decide."""
        self._matcher = matcher
        self._matcher.add_compiled(NAME, compiled)
        self._reader = EventReader(max_events=settings.max_events_per_request)
        self._max_events, self._max_matches = settings.backfill_events, settings.backfill_matches

    def feed(self, page: WholeEvents) -> None:
        """Matches the next stored events. An event that cannot be read any more is counted and skipped. Raises
        `BackfillTooLarge`."""
        self.read += len(page.rows) + len(page.damaged)
        self.unreadable += len(page.damaged)
        if self.read > self._max_events:
            raise BackfillTooLarge(
                f"more than {self._max_events:,} events were accepted since start_at: choose a later start_at"
            )
        read: list[ReadEvent] = []
        sequences: list[int] = []
        for row in page.rows:
            try:
                event = self._reader.stored(row.body)
                read.append(self._matcher.read(arrived(event, row.accepted_at)))
                sequences.append(row.sequence)
            except InvalidEvent:
                self.unreadable += 1
        self.through = page.through
        table = self._matcher.match_read(read)
        bounds = table.offsets.tolist()
        for number, sequence in enumerate(sequences):
            if bounds[number + 1] > bounds[number]:
                bindings = None if table.bindings is None else as_bindings(table.bindings[bounds[number]])
                self.matched.append((sequence, bindings))
            else:
                self.undecided += [(sequence, failure) for failure in table.undecided.get(number, {}).values()]
        if len(self.matched) + len(self.undecided) > self._max_matches:
            raise BackfillTooLarge(
                f"more than {self._max_matches:,} stored events match: choose a later start_at, or a narrower "
                f"expression"
            )


def create_with(group: Group, backfill: Backfill, create: Callable[[Group], Row[Any]]) -> Row[Any]:
    """Creates a subscription with the matches of stored events, including the newest events. Raises `Outdated`,
    `BackfillTooLarge`, and the errors of `create`."""
    state = group.state
    if backfill.vocabulary is not state.vocabulary or backfill.operators is not state.operators:
        raise Outdated
    backfill.feed(list_whole_events(group.connection, after=backfill.through, limit=BACKFILL_PAGE))
    if backfill.through < last_sequence(group.connection):
        raise Outdated
    found = [sequence for sequence, _ in (*backfill.matched, *backfill.undecided)]
    there = pending_store.matched_before(group.connection, found)  # the retention has deleted the others
    backfill.matched = [each for each in backfill.matched if each[0] in there]
    backfill.undecided = [each for each in backfill.undecided if each[0] in there]
    row = create(group)
    _store_matches(group, row.number, backfill.matched)
    _store_undecided(group, row.number, backfill.undecided)
    return row


def _store_matches(group: Group, number: int, matched: Sequence[tuple[int, str | None]]) -> None:
    connection, state = group.connection, group.state
    before = (state.sequence, state.last_accepted_at)

    def undo() -> None:
        state.sequence, state.last_accepted_at = before

    group.on_undo(undo)
    state.last_accepted_at = max(group.now, state.last_accepted_at)
    first = state.sequence + 1
    state.sequence += len(matched)
    places = [(first + index, event, 1) for index, (event, _) in enumerate(matched)]
    newly = pending_store.note_late(connection, places, state.last_accepted_at)
    insert_matches(
        connection, [packed(first + index, event, {number: told}) for index, (event, told) in enumerate(matched)]
    )
    group.totals.update(matches=len(matched), matched=newly)
    retract_late(group, {event: [number] for event, _ in matched})


def _store_undecided(group: Group, number: int, undecided: Sequence[tuple[int, Failure]]) -> None:
    rows: list[pending_store.ParkedRow] = [
        {
            "event": event,
            "subscription": number,
            "vocabulary_version": group.state.vocabulary.version,
            "reason": failure.reason,
            "kind": failure.kind,
            "tries": 0,
            "parked_at": group.now,
            "next_try_at": group.now,
        }
        for event, failure in undecided
    ]
    if rows:
        keep_parked_vocabulary(group)
        pending_store.insert_parked(group.connection, rows)
        group.totals["parked"] += len(rows)
        group.parked = True
