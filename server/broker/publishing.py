"""The publish path: events are deduplicated, read, matched and stored with their matches in one transaction.

decoded ──known?──▶ duplicate
    └─▶ read ──▶ match_read ──slots──▶ rows of events, lists of matches, parked candidates ──▶ one insert for many
          └─where somebody wants notes: all values

No operator is called here: candidates that need one are stored with the event, and decided by
`kindcast.server.pending`. From the index to the list of matches, subscriptions are slots of the matcher; no name
is looked up.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from kindcast.semantic import CanonicalEvent, Event, InvalidEvent, Match, Note
from kindcast.semantic.events import Correction, ReadEvent, correction_of
from kindcast.semantic.explanations import as_json
from kindcast.semantic.matching import Failures, MatchTable
from kindcast.semantic.model import SubscriptionSlot
from kindcast.semantic.operators import Failure
from kindcast.server.broker.group import Group
from kindcast.server.broker.retractions import tell_corrections
from kindcast.server.broker.state import State
from kindcast.server.cloudevents import DecodedEvent, ReadGraph, arrived
from kindcast.server.errors import BrokerBusy, StoreUnavailable, TooManyMatches
from kindcast.server.store.corrections import correction_key
from kindcast.server.store.events import EventRow, Known, find_known, insert_events
from kindcast.server.store.matches import MatchList, insert_matches, pack_bindings
from kindcast.server.store.ontologies import active_versions
from kindcast.server.store.pending import ParkedRow, insert_parked, keep_vocabulary
from kindcast.server.store.postings import Numbers, pack_lists
from kindcast.server.store.shards import first_unmatched

__all__ = [
    "Ahead",
    "EventMatches",
    "EventNote",
    "Found",
    "Given",
    "Outcome",
    "Publication",
    "Refused",
    "Results",
    "as_bindings",
    "bindings_json",
    "first_unmatched_event",
    "in_order",
    "in_time",
    "keep_parked_vocabulary",
    "match_events",
    "publish",
    "publish_matched",
    "publish_together",
    "together",
]

ARRIVAL = "ce.received"
"""The attribute of the time of arrival."""
MAX_NOTES = 100
"""Notes on one event that its publisher gets and the store keeps."""

DIFFERS = "differs"

MATCHES_AT_ONCE = 1_000_000
"""Matches after which a command accepts no more events, so that others are served: some tenths of a second."""
READING_SECONDS = 0.05
"""For which the events of one request are read in a command, so that others are served: some 2,000 small events."""
MATCHES_TRIED = 3_000_000
"""That events could have at most which are matched in one call, while nothing is known of them."""

NUMBER_BITS = 40
"""For the number of a subscription beside that of an event."""


class EventNote(msgspec.Struct, frozen=True):
    """Something that the publisher should know. `code` is stable; `attribute` is empty where none is meant."""

    code: str
    attribute: str
    detail: str


class Outcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of an accepted event, or of one that was accepted before (`duplicate`). `matched` is None where
    shards match it later. `undecided`: how many subscriptions may get it as well, once operators have been asked."""

    id: str
    source: str
    sequence: int
    matched: int | None
    notes: list[EventNote]
    duplicate: bool = False
    undecided: int = 0


@dataclass(frozen=True, slots=True)
class EventMatches:
    """What one event would match; `problem` instead where it cannot be read. `undecided`: the subscriptions that hang
    on operators; `canonical` is the event as they need it. `shards`: those that were asked; None: there are none."""

    matches: list[Match]
    notes: tuple[Note, ...] = ()
    problem: InvalidEvent | None = None
    undecided: tuple[str, ...] = ()
    canonical: CanonicalEvent | None = None
    shards: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Publication:
    """The events of one request. Without `verbose` nothing is noted of them, and only what subscriptions ask about is
    read. An event that matches more than `max_matches` subscriptions is refused."""

    events: Sequence[DecodedEvent]
    verbose: bool = True
    max_matches: int | None = None


Given = Mapping[int, str | None]
"""The matches of an event that were found elsewhere: numbers of subscriptions, with the bindings as JSON or None."""

Refused = InvalidEvent | TooManyMatches | StoreUnavailable | BrokerBusy
"""Why an event is not accepted."""

Results = list[Outcome | Refused]
"""One for each event of a request."""


def publish(
    group: Group,
    publications: Sequence[Publication],
    observe: Callable[[float, int], None],
    *,
    at_most: int | None = MATCHES_AT_ONCE,
    ahead: "Ahead | None" = None,
) -> list[Results]:
    """Accept the events of one or more requests, in order. `observe(seconds, events)` is told how long it took to read
    and match them. Requests that come together are read, matched and stored together: a statement costs more than a
    row.

    Where they match very many subscriptions, only the first ones are accepted, at least one, until there are `at_most`
    matches or some more; and of each request only as many as are read in `READING_SECONDS`, at least one. There are
    fewer results then, and the others are to be published in a later command. With None all are accepted, some of them
    at a time too, since what a call finds is in memory. `ahead` is what was found of the same events before the group
    began.
    """
    events = [event for each in publications for event in each.events]
    asked = [number for number, each in enumerate(publications) for _ in each.events]
    left = [math.inf if at_most is None else READING_SECONDS] * len(publications)
    subscriptions = max(1, len(group.state.matcher))
    size = least = max(1, MATCHES_TRIED // subscriptions)
    before = group.totals["matches"]
    results: list[Outcome | Refused | None] = []
    while len(results) < len(events):
        start, matches = len(results), group.totals["matches"]
        some = slice(start, start + size)
        results += _published(group, events[some], asked[some], publications, left, observe, ahead)
        if at_most is not None and group.totals["matches"] - before >= at_most:
            break
        size = _next_size(size, least, group.totals["matches"] - matches, subscriptions)
    parts = iter(results)
    return [[found for found in islice(parts, len(each.events)) if found is not None] for each in publications]


def _next_size(size: int, least: int, matches: int, subscriptions: int) -> int:
    """How many events to match in the next call, after so many `matches` of the last `size` ones."""
    return min(2 * size, 4 * least) if matches < size * subscriptions // 100 else least


class Ahead:
    """Events of waiting requests, read and matched before their group begins, while another server may hold the lock of
    the database. What was found counts where the matcher is as it was; else it is found again, under the lock."""

    def __init__(self, state: State, publications: Sequence[Publication]) -> None:
        """Reads and matches, as `publish` does."""
        matcher = self._matcher = state.matcher
        self._changes = matcher.changes
        self._reads: dict[int, ReadEvent | InvalidEvent] = {}
        self._tables: dict[tuple[int, ...], MatchTable] = {}
        self.seconds = 0.0
        """That it took, and that no group has counted yet."""
        if matcher.may_ask(ARRIVAL):
            return  # the time is known when the group has begun
        began = time.perf_counter()
        events = [event for each in publications for event in each.events]
        subscriptions = max(1, len(matcher))
        size = least = max(1, MATCHES_TRIED // subscriptions)
        reads, start = _Reading(state, 0.0), 0
        while start < len(events) and time.perf_counter() - began < READING_SECONDS:
            some = events[start : start + size]
            read = [self._reads.setdefault(id(each), reads.event(each.event, each.graph)) for each in some]
            table = self._match([each for each in read if not isinstance(each, InvalidEvent)])
            start, size = start + size, _next_size(size, least, table.slots.size, subscriptions)
        self.seconds = time.perf_counter() - began

    def _match(self, reads: Sequence[ReadEvent]) -> MatchTable:
        table = self._tables[tuple(map(id, reads))] = self._matcher.match_read(reads)
        return table

    def holds(self, state: State) -> bool:
        """Whether the matcher is as it was."""
        return state.matcher is self._matcher and self._matcher.changes == self._changes

    def read(self, event: DecodedEvent) -> ReadEvent | InvalidEvent | None:
        """What an event was read as; None where it was not."""
        return self._reads.get(id(event))

    def table(self, reads: Sequence[ReadEvent]) -> MatchTable | None:
        """The matches of these events; None where they were not matched together, as where one came before."""
        return self._tables.get(tuple(map(id, reads)))


def _published(
    group: Group,
    events: Sequence[DecodedEvent],
    asked_by: Sequence[int],
    publications: Sequence[Publication],
    left: list[float],
    observe: Callable[[float, int], None],
    ahead: Ahead | None = None,
    given: Sequence[Given] | None = None,
) -> list[Outcome | Refused | None]:
    """What became of each event; None for those of a publication, which `asked_by` numbers, that has no more seconds
    `left`. Where their matches are `given`, none are looked for."""
    state = group.state
    said = _corrections(state, events)
    keys = [
        each.id if told is None else correction_key(each.id, told.revision)
        for each, told in zip(events, said, strict=True)
    ]
    asked = [(each.source, key) for each, key in zip(events, keys, strict=True) if not each.id_is_ours]
    known = find_known(group.connection, asked)
    results: list[Outcome | Refused | None] = [None] * len(events)
    fresh: list[tuple[int, DecodedEvent, ReadEvent, Sequence[Note]]] = []
    repeated: list[tuple[int, int]] = []  # (index, index of the first one among these)
    first: dict[tuple[str, str], int] = {}
    began = started = time.perf_counter()
    if ahead is not None and not ahead.holds(state):
        ahead = None
    reads = _Reading(state, group.now)
    for index, (each, number) in enumerate(zip(events, asked_by, strict=True)):
        if left[number] <= 0:
            continue
        key = (each.source, keys[index])
        if key in known:
            results[index] = _duplicate(each, known[key], state)
        elif key in first:
            repeated.append((index, first[key]))
        else:
            read = None if ahead is None else ahead.read(each)
            if read is None:
                read = reads.event(each.event, each.graph)
            if isinstance(read, InvalidEvent):
                results[index] = read
            else:
                first[key] = index
                fresh.append((index, each, read, read.notes(MAX_NOTES) if publications[number].verbose else ()))
        now = time.perf_counter()
        left[number] -= now - began
        began = now
    if given is not None:
        found = _as_given([given[index] for index, *_ in fresh])
    else:
        matching = [read for _, _, read, _ in fresh]
        known_table = None if ahead is None else ahead.table(matching)
        table = known_table if known_table is not None else state.matcher.match_read(matching)
        seconds = time.perf_counter() - started
        if ahead is not None:
            seconds, ahead.seconds = seconds + ahead.seconds, 0.0
        observe(seconds, len(fresh))
        found = in_order(state, table, group.now)
    rows = _Rows(group, found)
    for number, (index, each, _, noted) in enumerate(fresh):
        publication = publications[asked_by[index]]
        limit = publication.max_matches
        if limit is not None and rows.matched(number) > limit:
            results[index] = TooManyMatches(
                f"the event matches {rows.matched(number):,} subscriptions, but an event may match at most {limit:,}"
            )
            continue
        notes = (*each.notes, *noted) if publication.verbose else ()
        results[index] = rows.add(number, each, notes[:MAX_NOTES], key=keys[index])
    rows.store()
    if any(said):
        stored = ((index, results[index]) for index, *_ in fresh)
        tell_corrections(
            group,
            [
                (outcome.sequence, outcome.source, told)
                for index, outcome in stored
                if isinstance(outcome, Outcome) and (told := said[index]) is not None
            ],
        )
    for index, original in repeated:
        outcome = results[original]
        if not isinstance(outcome, Outcome):
            results[index] = outcome
            continue
        before = outcome.sequence, events[original].digest, outcome.matched or 0
        results[index] = _duplicate(events[index], before, state)
    group.totals["duplicates"] += sum(isinstance(each, Outcome) and each.duplicate for each in results)
    return results


def publish_together(group: Group, publication: Publication, observe: Callable[[float, int], None]) -> list[Outcome]:
    """Accept the events of one document. Raises `InvalidEvent` where one cannot be read, `TooManyMatches`, so that the
    command is undone and none is accepted."""
    events = publication.events
    (results,) = publish(group, [publication], observe, at_most=None)
    for result in results:
        if isinstance(result, TooManyMatches):
            raise result
    problems = [
        replace(
            problem,
            detail=f"event {index} ({events[index].id}): {problem.detail}" if len(events) > 1 else problem.detail,
        )
        for index, each in enumerate(results)
        if isinstance(each, InvalidEvent)
        for problem in each.problems
    ]
    if problems:
        raise InvalidEvent(problems[:MAX_NOTES])
    return [each for each in results if isinstance(each, Outcome)]


def publish_matched(group: Group, publication: Publication, given: Sequence[Given]) -> Results:
    """Accept events whose matches were found elsewhere: `given` are those of each event. Nothing is matched, and
    nothing parked. An event that was accepted before keeps the matches that it has: its `Outcome` is a duplicate."""
    events = publication.events
    results = _published(group, events, [0] * len(events), [publication], [math.inf], _unobserved, given=given)
    return [each for each in results if each is not None]


def _unobserved(seconds: float, events: int) -> None:
    """Nothing was matched."""


def match_events(
    state: State, now: float, events: Sequence[Event], graphs: Sequence[ReadGraph | None]
) -> list[EventMatches]:
    """What each event would match if it were published now; `graphs` are what they were read as. Changes nothing."""
    matcher, reads = state.matcher, _Reading(state, now)
    read = [reads.event(event, graph) for event, graph in zip(events, graphs, strict=True)]
    table = matcher.match_read([each for each in read if not isinstance(each, InvalidEvent)])
    slots, live = table.slots.tolist(), state.live_subscriptions.numbers_in_time(table.slots, now).tolist()
    found: list[EventMatches] = []
    number = 0
    for each in read:
        if isinstance(each, InvalidEvent):
            found.append(EventMatches([], problem=each))
            continue
        matches = [
            Match(matcher.name(slots[at]), table.bindings[at] if table.bindings else (), at in table.truncated)
            for at in range(*table.offsets[number : number + 2].tolist())
            if live[at]
        ]
        waiting = in_time(state, table.undecided.get(number, {}), now)
        open = [matcher.name(slot) for slot, _, _ in waiting]
        whole = each.canonical() if open else None
        found.append(EventMatches(matches, tuple(each.notes(MAX_NOTES)), undecided=tuple(open), canonical=whole))
        number += 1
    return found


def together(parts: Sequence[EventMatches], shards: Sequence[int]) -> EventMatches:
    """What an event matches of these shards of the subscriptions; notes and problem are those of the first part."""
    first, *others = parts
    return EventMatches(
        [match for each in parts for match in each.matches],
        first.notes,
        problem=first.problem,
        undecided=tuple(id for each in parts for id in each.undecided),
        canonical=next((each.canonical for each in others if each.canonical is not None), first.canonical),
        shards=tuple(shards),
    )


class Found(NamedTuple):
    """What some events match: the numbers of the subscriptions, ascending for each event; where those of each event
    begin, and the last one's end; the bindings of each as JSON, if any has some; and what operators have to decide, by
    event and slot."""

    numbers: Numbers
    bounds: Numbers
    bindings: list[str | None] | None
    undecided: Mapping[int, Failures]


def in_order(state: State, table: MatchTable, now: float | npt.NDArray[np.float64]) -> Found:
    """The matches of a table of subscriptions whose time is not over `now`, or at the time of each match."""
    numbers = state.live_subscriptions.numbers_in_time(table.slots, now)
    keys = np.repeat(np.arange(len(table), dtype=np.int64), np.diff(table.offsets)) << NUMBER_BITS | numbers
    bindings: list[str | None] | None = None
    if table.bindings is None:
        keys = np.sort(keys[numbers > 0])
    else:
        order = np.argsort(keys)
        order = order[numbers[order] > 0]
        keys = keys[order]
        bindings = [as_bindings(table.bindings[at]) for at in order.tolist()]
    bounds = np.searchsorted(keys, np.arange(len(table) + 1, dtype=np.int64) << NUMBER_BITS)
    return Found(keys & (1 << NUMBER_BITS) - 1, bounds, bindings, table.undecided)


def _as_given(given: Sequence[Given]) -> Found:
    """The matches that somebody else found."""
    pairs = [pair for each in given for pair in sorted(each.items())]
    bounds = np.zeros(len(given) + 1, dtype=np.int64)
    np.cumsum([len(each) for each in given], out=bounds[1:])
    numbers = np.array([number for number, _ in pairs], dtype=np.int64)
    bindings = [told for _, told in pairs]
    return Found(numbers, bounds, bindings if any(bindings) else None, {})


class _Rows:
    """The rows of one command's events, numbered as they come; `found` has what they match."""

    def __init__(self, group: Group, found: Found) -> None:
        self._group = group
        self._found = found
        self._packed = pack_lists(found.numbers, found.bounds)
        self._ends: list[int] = found.bounds.tolist()
        self._version = group.state.vocabulary.version
        self._events: list[EventRow] = []
        self._matches: list[MatchList] = []
        self._parked: list[ParkedRow] = []
        state = group.state
        before = (state.sequence, state.last_accepted_at)

        def undo() -> None:
            state.sequence, state.last_accepted_at = before

        group.on_undo(undo)
        state.last_accepted_at = max(group.now, state.last_accepted_at)  # a clock set back must not reorder the log

    def matched(self, number: int) -> int:
        """How many subscriptions the event of this number matches."""
        return self._ends[number + 1] - self._ends[number]

    def add(self, number: int, event: DecodedEvent, notes: Sequence[Note], *, key: str) -> Outcome:
        """The rows of one event, which has this number among those found; `key` is what it is known by again."""
        group, state, found = self._group, self._group.state, self._found
        state.sequence += 1
        matched = self.matched(number)
        if matched:
            start, end = self._ends[number : number + 2]
            bound = None if found.bindings is None else pack_bindings(found.bindings[start:end])
            self._matches.append(MatchList(state.sequence, None, matched, self._packed[number], bound))
        waiting = in_time(state, found.undecided.get(number, {}), group.now)
        self._parked += [self._parked_row(subscription, failure) for _, subscription, failure in waiting]
        told = [EventNote(note.code, note.attribute, note.detail) for note in notes]
        self._events.append(
            EventRow(
                sequence=state.sequence,
                source=event.source,
                id=key,
                type=event.type,
                digest=event.digest,
                body=event.body,
                accepted_at=state.last_accepted_at,
                vocabulary_version=self._version,
                matched=matched,
                notes=msgspec.json.encode(told).decode() if told else None,
            )
        )
        told_matched = None if state.shards else matched
        return Outcome(event.id, event.source, state.sequence, told_matched, told, undecided=len(waiting))

    def store(self) -> None:
        """Insert them, and count them."""
        insert_events(self._group.connection, self._events)
        insert_matches(self._group.connection, self._matches)
        self._group.touch(self._found.numbers)
        matches = sum(each.size for each in self._matches)
        self._group.totals.update(accepted=len(self._events), matched=len(self._matches), matches=matches)
        if self._group.state.shards and self._events:
            keep_parked_vocabulary(self._group)
        if self._parked:
            keep_parked_vocabulary(self._group)
            insert_parked(self._group.connection, self._parked)
            self._group.totals["parked"] += len(self._parked)
            self._group.parked = True

    def _parked_row(self, subscription: int, failure: Failure) -> ParkedRow:
        return {
            "event": self._group.state.sequence,
            "subscription": subscription,
            "vocabulary_version": self._version,
            "reason": failure.reason,
            "kind": failure.kind,
            "tries": 0,
            "parked_at": self._group.now,
            "next_try_at": self._group.now,
        }


def keep_parked_vocabulary(group: Group) -> None:
    """Write down what the active vocabulary is made of: candidates are decided under it, and shards match under it,
    perhaps after a restart."""
    state, before, version = group.state, group.state.parked_under, group.state.vocabulary.version
    if before != version:
        parts = active_versions(group.connection), state.declarations.to_json()
        keep_vocabulary(group.connection, version, *parts, unmatched=first_unmatched_event(group))
        state.parked_under = version

        def undo() -> None:
            state.parked_under = before

        group.on_undo(undo)


def first_unmatched_event(group: Group) -> int | None:
    """The first event that some shard has yet to match; None where all are matched."""
    return first_unmatched(group.connection) if group.state.shards else None


def _corrections(state: State, events: Sequence[DecodedEvent]) -> list[Correction | None]:
    """What each event says of corrections; nothing is looked at where no event type declares any."""
    schemas = state.vocabulary.schemas
    if not schemas.corrects:
        return [None] * len(events)
    return [_correction(state, each.event) for each in events]


def _correction(state: State, event: Event) -> Correction | None:
    try:
        return correction_of(state.matcher.published(event), state.vocabulary.schemas.types)
    except InvalidEvent:  # reading it will tell
        return None


class _Reading:
    """Reads the events of one command, which arrive together. Their time is one more text to read, so they have it only
    where something may ask for it."""

    def __init__(self, state: State, now: float) -> None:
        self._matcher = state.matcher
        self._vocabulary = state.vocabulary
        self._at = max(now, state.last_accepted_at) if self._matcher.may_ask(ARRIVAL) else None

    def event(self, event: Event, graph: ReadGraph | None = None) -> ReadEvent | InvalidEvent:
        known = None
        if graph is not None and graph.vocabulary is self._vocabulary:  # else it means something else by now
            if isinstance(graph.event, InvalidEvent):
                return graph.event
            tree = graph.event if self._at is None else arrived(graph.event, self._at)
            known = tree, graph.notes
        try:
            return self._matcher.read(event if self._at is None else arrived(event, self._at), known)
        except InvalidEvent as problem:
            return problem


def in_time(state: State, failures: Failures, now: float) -> list[tuple[int, int, Failure]]:
    """(slot, number, failure) of those whose time is not over."""
    if not failures:
        return []
    slots = np.array(sorted(failures), dtype=np.int32)
    numbers = state.live_subscriptions.numbers_in_time(slots, now).tolist()
    pairs = zip(slots.tolist(), numbers, strict=True)
    return [(slot, number, failures[SubscriptionSlot(slot)]) for slot, number in pairs if number]


def _duplicate(event: DecodedEvent, known: Known, state: State) -> Outcome:
    sequence, digest, count = known
    matched = None if state.shards else count
    notes = []
    if digest != event.digest:
        detail = "an event with this source and id was accepted before with another body; the first body is kept"
        notes.append(EventNote(DIFFERS, "", detail))
    return Outcome(event.id, event.source, sequence, matched, notes, duplicate=True)


def bindings_json(match: Match) -> str | None:
    """The bindings of a match as JSON: a list of objects, variable → value; None where there are none."""
    return as_bindings(match.bindings)


def as_bindings(bindings: tuple[tuple[tuple[str, Any], ...], ...]) -> str | None:
    """Bindings as JSON, as of `bindings_json`."""
    if not bindings:
        return None
    rows = [{name: as_json(value) for name, value in binding} for binding in bindings]
    return msgspec.json.encode(rows).decode()
