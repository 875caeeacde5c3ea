"""The publish path: events are deduplicated, read, matched and stored with their matches in one transaction.

decoded ──known?──▶ duplicate
    └─▶ read ──▶ match_read ──slots──▶ rows of events, lists of matches, parked candidates ──▶ one insert for many
          └─where somebody wants notes: all values

No operator is called here. Candidates that need an operator are stored with the event, and
`kindcast.server.late_matching` decides them. From the index to the list of matches, subscriptions are slots of the
matcher; no name is looked up.

Retractions: subscribers who got a withdrawn event get one message about that, no matter which of the two events came
first.
"""

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, islice
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from kindcast.semantic import CanonicalEvent, Event, InvalidEvent, Match, Note
from kindcast.semantic.events import (
    MOST_OF_ONE,
    READ_TOGETHER,
    Correction,
    ReadEvent,
    correction_key,
    correction_of,
    is_newer,
)
from kindcast.semantic.explanations import as_json
from kindcast.semantic.matching import Failures, MatchTable
from kindcast.semantic.model import SubscriptionSlot
from kindcast.semantic.operators import Failure
from kindcast.server.broker.group import Group
from kindcast.server.broker.state import State
from kindcast.server.cloudevents import DEFAULTS, DecodedEvent, ReadGraph, arrived
from kindcast.server.errors import BrokerBusy, StoreUnavailable, TooManyMatches
from kindcast.server.store.events import (
    EventRow,
    Known,
    add_correction,
    add_retraction,
    find_about,
    find_known,
    find_recipients,
    find_withdrawing,
    insert_events,
    mark_withdrawn,
    withdrawn_among,
)
from kindcast.server.store.matches import MatchList, insert_matches, pack_bindings, packed
from kindcast.server.store.ontologies import active_versions
from kindcast.server.store.pending import ParkedRow, insert_parked, keep_vocabulary, note_late
from kindcast.server.store.postings import Numbers, pack_lists
from kindcast.server.store.shards import first_unmatched

__all__ = [
    "DIFFERS",
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
    "retract_late",
    "tell_corrections",
    "together",
]

ARRIVAL = "ce.received"
"""The name of the attribute with the time of arrival."""
MAX_NOTES = 100
"""The maximum number of notes on one event, both in the answer to the publisher and in the store."""

DIFFERS = "differs"
"""The code of the note on an event whose id was that of an event with another body."""

MATCHES_AT_ONCE = 1_000_000
"""A command accepts no more events after this many matches, some tenths of a second, so that other commands are
executed."""
READING_SECONDS = 0.05
"""How long one command reads and matches the events of one request, so that other commands are executed. It is enough
for some 1,000 small events."""
PART_SECONDS = 0.02
"""Events are read and matched in parts that take about so long."""
FIRST_PART = 64
"""The number of events in the first part, whose time decides about the others."""
MATCHES_TRIED = 3_000_000
"""Events are matched in one call only up to this product of events and subscriptions, while their number of matches is
not known."""

NUMBER_BITS = 40
"""The bits for the number of a subscription in a sort key that also has the number of the event."""


class EventNote(msgspec.Struct, frozen=True):
    """A remark for the publisher. `code` is stable. `attribute` is empty if the note is about no attribute."""

    code: str
    attribute: str
    detail: str


class Outcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """The result of an event that was accepted now, or before (`duplicate`). `matched` is None if shards match it
    later. `undecided` is the number of subscriptions that may still get it, after operators were called."""

    id: str
    source: str
    sequence: int
    matched: int | None
    notes: list[EventNote]
    duplicate: bool = False
    undecided: int = 0


@dataclass(frozen=True, slots=True)
class EventMatches:
    """What one event would match, or the `problem` if it cannot be read. `undecided` are the subscriptions that depend
    on operators; `canonical` is the event as the operators need it. `shards` are the shards that were searched; None if
    there are none."""

    matches: list[Match]
    notes: tuple[Note, ...] = ()
    problem: InvalidEvent | None = None
    undecided: tuple[str, ...] = ()
    canonical: CanonicalEvent | None = None
    shards: tuple[int, ...] | None = None


class Publication(msgspec.Struct, frozen=True):
    """The events of one request. Without `verbose` no notes are made, and only the attributes that subscriptions use
    are read. An event that matches more than `max_matches` subscriptions is refused."""

    events: Sequence[DecodedEvent]
    verbose: bool = True
    max_matches: int | None = None


Given = Mapping[int, str | None]
"""The matches of an event that were found elsewhere: the number of each subscription → its bindings as JSON text, or
None."""

Refused = InvalidEvent | TooManyMatches | StoreUnavailable | BrokerBusy
"""Why an event is not accepted."""

Results = list[Outcome | Refused]
"""One result for each event of a request."""


def publish(
    group: Group,
    publications: Sequence[Publication],
    observe: Callable[[float, int], None],
    *,
    at_most: int | None = MATCHES_AT_ONCE,
    ahead: "Ahead | None" = None,
) -> list[Results]:
    """Accepts the events of one or more requests, in order. `observe(seconds, events)` is called with the time that
    reading and matching took. Requests in the same group are read, matched and stored together, because a statement
    costs more than a row.

    If the events have very many matches, only the first events are accepted, at least one, until there are `at_most`
    matches or slightly more. Of each request only as many events are accepted as can be read and matched in
    `READING_SECONDS`, at least one. Then there are fewer results than events, and the other events must be published in
    a later command. With `at_most=None` all events are accepted. They are still matched in parts, because the matches
    of one call are in memory. `ahead` has the matches of the same events that were found before the group began.
    """
    events = [event for each in publications for event in each.events]
    asked = [number for number, each in enumerate(publications) for _ in each.events]
    left = [math.inf if at_most is None else READING_SECONDS] * len(publications)
    parts = _PartSizes(group.state)
    before = group.totals["matches"]
    results: list[Outcome | Refused | None] = []
    while len(results) < len(events):
        start, matches = len(results), group.totals["matches"]
        some, began = slice(start, start + parts.size), time.perf_counter()
        results += _published(group, events[some], asked[some], publications, left, observe, ahead)
        matches = group.totals["matches"] - matches
        if at_most is not None and (group.totals["matches"] - before >= at_most or max(left) <= 0):
            break
        parts.learn(time.perf_counter() - began, matches)
    found = iter(results)
    return [[each for each in islice(found, len(one.events)) if each is not None] for one in publications]


class _PartSizes:
    """The sizes of the parts in which events are read and matched. A part takes about `PART_SECONDS`, and has few
    events if they match very many subscriptions."""

    def __init__(self, state: State) -> None:
        self._subscriptions = max(1, len(state.matcher))
        self._least = max(1, MATCHES_TRIED // self._subscriptions)
        self.size = min(FIRST_PART, self._least)
        """The size of the next part."""

    def learn(self, seconds: float, matches: int) -> None:
        """Determines the size of the next part from the time and the number of matches of the last one."""
        most = 4 * self._least if matches < self.size * self._subscriptions // 100 else self._least
        self.size = max(1, min(most, int(PART_SECONDS * self.size / max(seconds, 1e-6))))


class Ahead:
    """Events that are read and matched before their group begins: those of waiting requests, while another server may
    hold the lock of the database, and those of a large document, in several commands. The matches are used only if the
    matcher has not changed since; otherwise they are found again in the group. Then the events are read again only if a
    new subscription uses what no other used before."""

    def __init__(self, state: State) -> None:
        self._matcher = state.matcher
        self._changes, self._asked = self._matcher.changes, self._matcher.asked
        self._reading = _Reading(state, 0.0)
        self._reads: dict[int, ReadEvent | InvalidEvent] = {}
        self._notes: dict[int, Sequence[Note]] = {}
        self._tables: dict[int, tuple[MatchTable, int]] = {}
        self._done = 0
        self._parts = _PartSizes(state)
        self.seconds = 0.0
        """The seconds that reading and matching took and that no group has counted yet."""

    def match(self, events: Sequence[DecodedEvent], seconds: float, *, notes: bool = False) -> bool:
        """Reads and matches the next of `events`, which are the same at each call, for about so many seconds. With
        `notes` it also makes the notes about them. Returns whether all events are done, or cannot be matched before
        their time of arrival is known."""
        if self._matcher.may_ask(ARRIVAL):
            return True
        until = time.perf_counter() + seconds
        while self._done < len(events) and (began := time.perf_counter()) < until:
            some = events[self._done : self._done + self._parts.size]
            read = self._reading.each([each.event for each in some], [each.graph for each in some], noted=notes)
            self._reads.update(zip(map(id, some), read, strict=True))
            fresh = [each for each in read if not isinstance(each, InvalidEvent)]
            table = self._matcher.match_read(fresh)
            self._tables.update((id(each), (table, row)) for row, each in enumerate(fresh))
            if notes:
                for event, each in zip(some, read, strict=True):
                    if not isinstance(each, InvalidEvent):
                        self._notes[id(each)] = _notes_about(event.event, each)
            taken = time.perf_counter() - began
            self._parts.learn(taken, table.slots.size)
            self._done += len(some)
            self.seconds += taken
        return self._done >= len(events)

    def reads_hold(self, state: State) -> bool:
        """Whether the events as they were read, without the time of their arrival, can still be matched."""
        is_same = state.matcher is self._matcher and self._matcher.asked == self._asked
        return is_same and not self._matcher.may_ask(ARRIVAL)

    def matches_hold(self, state: State) -> bool:
        """Whether the matcher has not changed."""
        return self.reads_hold(state) and self._matcher.changes == self._changes

    def read(self, event: DecodedEvent) -> ReadEvent | InvalidEvent | None:
        """Returns an event as it was read; None if it was not read."""
        return self._reads.get(id(event))

    def notes(self, read: ReadEvent) -> Sequence[Note] | None:
        """Returns the notes about an event as it was read; None if they were not made."""
        return self._notes.get(id(read))

    def table(self, reads: Sequence[ReadEvent]) -> MatchTable | None:
        """Returns the matches of these events; None if one was not matched."""
        places = [self._tables.get(id(each)) for each in reads]
        if not places or None in places:
            return None
        known = [each for each in places if each is not None]
        parts = [list(rows) for _, rows in groupby(known, lambda each: id(each[0]))]
        return MatchTable.joined([rows[0][0].rows([row for _, row in rows]) for rows in parts])


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
    """Publishes some events. Returns the result of each event, or None if its publication, whose index is in
    `asked_by`, has no more seconds `left`. If `given` has the matches, the events are not matched."""
    if ahead is not None and not ahead.reads_hold(group.state):
        ahead = None
    part = _Part(group, events, asked_by, publications, left)
    seconds = part.read(ahead)
    if given is not None:
        found = _as_given([given[index] for index, *_ in part.fresh])
    else:
        table, more = part.match(ahead)
        observe(seconds + more, len(part.fresh))
        found = in_order(group.state, table, group.now)
    part.store(found)
    part.tell_corrections()
    part.tell_repeated()
    return part.results


class _Part:
    """Some events of a command, on their way into the store. The methods are called in their order here. See
    `_published`."""

    def __init__(
        self,
        group: Group,
        events: Sequence[DecodedEvent],
        asked_by: Sequence[int],
        publications: Sequence[Publication],
        left: list[float],
    ) -> None:
        self._group, self._state = group, group.state
        self._events, self._asked_by, self._publications, self._left = events, asked_by, publications, left
        self._corrections = _corrections(group.state, events)
        self._keys = [
            each.id if told is None else correction_key(each.id, told.revision)
            for each, told in zip(events, self._corrections, strict=True)
        ]
        self.results: list[Outcome | Refused | None] = [None] * len(events)
        self.fresh: list[tuple[int, DecodedEvent, ReadEvent, Sequence[Note]]] = []
        """The events that are not known yet, each with its index and the notes about it."""
        self._repeated: list[tuple[int, int]] = []  # (index, index of the first event with this key)

    def read(self, ahead: Ahead | None) -> float:
        """Reads the events that are not known. Returns the seconds that it took."""
        pairs = zip(self._events, self._keys, strict=True)
        known = find_known(self._group.connection, [(each.source, key) for each, key in pairs if not each.id_is_ours])
        results, left, first = self.results, self._left, dict[tuple[str, str], int]()
        began = started = time.perf_counter()
        reads = _Reading(self._state, self._group.now)
        together: dict[int, ReadEvent] = {}
        share = 0.0
        for index, (each, number) in enumerate(zip(self._events, self._asked_by, strict=True)):
            if index % READ_TOGETHER == 0 and ahead is None:
                some = range(index, min(index + READ_TOGETHER, len(results)))
                together = self._read_together(some, known, reads)
                now = time.perf_counter()
                share, began = (now - began) / len(some), now
            if left[number] <= 0:
                continue
            key = (each.source, self._keys[index])
            if key in known:
                results[index] = _duplicate(each, known[key], self._state)
            elif key in first:
                self._repeated.append((index, first[key]))
            else:
                read: ReadEvent | InvalidEvent | None = together.get(index) if ahead is None else ahead.read(each)
                if read is None:
                    read = reads.event(each.event, each.graph)
                if isinstance(read, InvalidEvent):
                    several = len(self._publications[number].events) > 1
                    results[index] = read.first(MOST_OF_ONE) if several else read
                else:
                    first[key] = index
                    notes = None if ahead is None else ahead.notes(read)
                    if notes is None:
                        notes = _notes_about(each.event, read) if self._publications[number].verbose else ()
                    self.fresh.append((index, each, read, notes))
            now = time.perf_counter()
            left[number] -= now - began + share
            began = now
        return began - started

    def _read_together(
        self, some: range, known: Collection[tuple[str, str]], reads: "_Reading"
    ) -> dict[int, ReadEvent]:
        """Reads those of some events that take less time together: index → the event as it was read."""
        events, asked_by, left = self._events, self._asked_by, self._left
        wanted = [
            index
            for index in some
            if left[asked_by[index]] > 0
            and events[index].graph is None
            and (events[index].source, self._keys[index]) not in known
        ]
        noted = any(self._publications[asked_by[index]].verbose for index in wanted)
        read = reads.together([events[index].event for index in wanted], noted=noted)
        return {index: each for index, each in zip(wanted, read, strict=True) if each is not None}

    def match(self, ahead: Ahead | None) -> tuple[MatchTable, float]:
        """Returns the matches of the events that are not known, and the seconds that it took to find them, now or
        before."""
        began = time.perf_counter()
        reads = [read for _, _, read, _ in self.fresh]
        table = ahead.table(reads) if ahead is not None and ahead.matches_hold(self._state) else None
        if table is None:
            table = self._state.matcher.match_read(reads)
            share = (time.perf_counter() - began) / max(1, len(reads))
            for index, *_ in self.fresh:
                self._left[self._asked_by[index]] -= share
        seconds = time.perf_counter() - began
        if ahead is not None:
            seconds, ahead.seconds = seconds + ahead.seconds, 0.0
        return table, seconds

    def store(self, found: "Found") -> None:
        """Stores the events with their matches, except those that match too many subscriptions."""
        rows = _Rows(self._group, found)
        for number, (index, each, _, noted) in enumerate(self.fresh):
            publication, matched = self._publications[self._asked_by[index]], rows.matched(number)
            limit = publication.max_matches
            if limit is not None and matched > limit:
                self.results[index] = TooManyMatches(
                    f"the event matches {matched:,} subscriptions, but an event may match at most {limit:,}"
                )
                continue
            notes = (*each.notes, *noted) if publication.verbose else ()
            self.results[index] = rows.add(number, each, notes[:MAX_NOTES], key=self._keys[index])
        rows.store()

    def tell_corrections(self) -> None:
        """Handles the corrections among the stored events."""
        stored = ((self.results[index], self._corrections[index]) for index, *_ in self.fresh)
        tell_corrections(
            self._group,
            [
                (outcome.sequence, outcome.source, told)
                for outcome, told in stored
                if isinstance(outcome, Outcome) and told is not None
            ],
        )

    def tell_repeated(self) -> None:
        """Sets the results of the events that occur again among these, and counts all that were known."""
        for index, original in self._repeated:
            outcome = self.results[original]
            if isinstance(outcome, Outcome):
                before = outcome.sequence, self._events[original].digest, outcome.matched or 0
                self.results[index] = _duplicate(self._events[index], before, self._state)
            else:
                self.results[index] = outcome
        told = (each for each in self.results if isinstance(each, Outcome))
        self._group.totals["duplicates"] += sum(each.duplicate for each in told)


def publish_together(
    group: Group, publication: Publication, observe: Callable[[float, int], None], ahead: Ahead | None = None
) -> list[Outcome]:
    """Accepts the events of one document. `ahead` has what was found of them before. Raises `InvalidEvent` if one of
    them cannot be read, and `TooManyMatches`. Then the command is undone, and no event is accepted."""
    events = publication.events
    (results,) = publish(group, [publication], observe, at_most=None, ahead=ahead)
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
    """Accepts events whose matches were found elsewhere: `given` has the matches of each event. Nothing is matched or
    parked. An event that was accepted before keeps its matches, and its `Outcome` is a duplicate."""
    events = publication.events
    results = _published(group, events, [0] * len(events), [publication], [math.inf], _unobserved, given=given)
    return [each for each in results if each is not None]


def _unobserved(seconds: float, events: int) -> None:
    """Does nothing, because nothing was matched."""


def match_events(
    state: State, now: float, events: Sequence[Event], graphs: Sequence[ReadGraph | None]
) -> list[EventMatches]:
    """Returns what each event would match if it were published now. `graphs` has the events that were read as linked
    data already. Changes nothing."""
    matcher = state.matcher
    read = _Reading(state, now).each(events, graphs, noted=True)
    table = matcher.match_read([each for each in read if not isinstance(each, InvalidEvent)])
    slots, live = table.slots.tolist(), state.live_subscriptions.numbers_in_time(table.slots, now).tolist()
    found: list[EventMatches] = []
    number = 0
    for event, each in zip(events, read, strict=True):
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
        notes = tuple(_notes_about(event, each))
        found.append(EventMatches(matches, notes, undecided=tuple(open), canonical=whole))
        number += 1
    return found


def _notes_about(event: Event, read: ReadEvent) -> list[Note]:
    """Returns the notes for the publisher, without those about attributes that the server filled in."""
    notes = read.notes(MAX_NOTES)
    if not notes:  # as for most events
        return []
    filled_in = {f"ce.{name}" for name, value in DEFAULTS.items() if event.context.get(name) == value}
    return [note for note in notes if note.attribute not in filled_in]


def together(parts: Sequence[EventMatches], shards: Sequence[int]) -> EventMatches:
    """Combines what an event matches in several shards. Notes and problem are those of the first part."""
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
    """The matches of some events. `numbers` are the numbers of the subscriptions, ascending for each event. The matches
    of event `i` are `bounds[i]` to `bounds[i + 1]`. `bindings` are those of each match as JSON text; None if no match
    has any. `undecided` has what operators must decide, by event and slot."""

    numbers: Numbers
    bounds: Numbers
    bindings: list[str | None] | None
    undecided: Mapping[int, Failures]


def in_order(state: State, table: MatchTable, now: float | npt.NDArray[np.float64]) -> Found:
    """Returns the matches of a table, without the subscriptions that have expired at the time `now`. `now` is one time,
    or one for each match."""
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
    """Returns the matches that were found elsewhere."""
    pairs = [pair for each in given for pair in sorted(each.items())]
    bounds = np.zeros(len(given) + 1, dtype=np.int64)
    np.cumsum([len(each) for each in given], out=bounds[1:])
    numbers = np.array([number for number, _ in pairs], dtype=np.int64)
    bindings = [told for _, told in pairs]
    return Found(numbers, bounds, bindings if any(bindings) else None, {})


class _Rows:
    """The rows of the events of one command. `found` has their matches, numbered in the order of the events."""

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
        state.last_accepted_at = max(group.now, state.last_accepted_at)  # never earlier than before

    def matched(self, number: int) -> int:
        """Returns how many subscriptions the event with this number matches."""
        return self._ends[number + 1] - self._ends[number]

    def add(self, number: int, event: DecodedEvent, notes: Sequence[Note], *, key: str) -> Outcome:
        """Adds the rows of one event, which has this number in `found`. `key` identifies the event if it is sent
        again."""
        group, state, found = self._group, self._group.state, self._found
        sequence = state.sequence = state.sequence + 1
        matched = self.matched(number)
        if matched:
            start, end = self._ends[number : number + 2]
            bound = None if found.bindings is None else pack_bindings(found.bindings[start:end])
            self._matches.append(MatchList(sequence, None, matched, self._packed[number], bound))
        waiting = in_time(state, found.undecided.get(number, {}), group.now) if found.undecided else []
        self._parked += [self._parked_row(subscription, failure) for _, subscription, failure in waiting]
        told = [EventNote(note.code, note.attribute, note.detail) for note in notes] if notes else []
        noted = msgspec.json.encode(told).decode() if told else None
        accepted_at, version = state.last_accepted_at, self._version
        self._events.append(
            EventRow(
                sequence, event.source, key, event.type, event.digest, event.body, accepted_at, version, matched, noted
            )
        )
        told_matched = None if state.shards else matched
        return Outcome(event.id, event.source, sequence, told_matched, told, undecided=len(waiting))

    def store(self) -> None:
        """Inserts the rows and adds them to the totals."""
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
    """Stores what the active vocabulary consists of. Candidates are decided and shards match under it, perhaps after a
    restart."""
    state, before, version = group.state, group.state.parked_under, group.state.vocabulary.version
    if before != version:
        parts = active_versions(group.connection), state.declarations.to_json()
        keep_vocabulary(group.connection, version, *parts, unmatched=first_unmatched_event(group))
        state.parked_under = version

        def undo() -> None:
            state.parked_under = before

        group.on_undo(undo)


def first_unmatched_event(group: Group) -> int | None:
    """Returns the first event that a shard has not matched yet; None if all events are matched."""
    return first_unmatched(group.connection) if group.state.shards else None


def _corrections(state: State, events: Sequence[DecodedEvent]) -> list[Correction | None]:
    """Returns the correction that each event declares, or None. Events are not read if no event type declares
    corrections."""
    schemas = state.vocabulary.schemas
    if not schemas.corrects:
        return [None] * len(events)
    return [_correction(state, each.event) for each in events]


def _correction(state: State, event: Event) -> Correction | None:
    try:
        return correction_of(state.matcher.published(event), state.vocabulary.schemas.types)
    except InvalidEvent:  # reading the event reports the problem
        return None


class _Reading:
    """Reads the events of one command, which have the same time of arrival. The time is an additional value to read, so
    it is added only if a subscription may use it."""

    def __init__(self, state: State, now: float) -> None:
        self._matcher = state.matcher
        self._vocabulary = state.vocabulary
        self._at = max(now, state.last_accepted_at) if self._matcher.may_ask(ARRIVAL) else None

    def together(self, events: Sequence[Event], *, noted: bool) -> list[ReadEvent | None]:
        """Reads the events that can be read together. None for the others."""
        at = self._at
        return self._matcher.read_together([each if at is None else arrived(each, at) for each in events], noted=noted)

    def each(
        self, events: Sequence[Event], graphs: Sequence[ReadGraph | None], *, noted: bool
    ) -> list[ReadEvent | InvalidEvent]:
        """Reads events, those of one shape together."""
        read: list[ReadEvent | InvalidEvent] = []
        for start in range(0, len(events), READ_TOGETHER):
            some = slice(start, start + READ_TOGETHER)
            together = self.together(events[some], noted=noted)
            each = zip(events[some], graphs[some], together, strict=True)
            read += [self.event(event, graph) if found is None else found for event, graph, found in each]
        return read

    def event(self, event: Event, graph: ReadGraph | None = None) -> ReadEvent | InvalidEvent:
        known = None
        if graph is not None and graph.vocabulary is self._vocabulary:  # otherwise its meaning may have changed
            if isinstance(graph.event, InvalidEvent):
                return graph.event
            tree = graph.event if self._at is None else arrived(graph.event, self._at)
            known = tree, graph.notes
        try:
            return self._matcher.read(event if self._at is None else arrived(event, self._at), known)
        except InvalidEvent as problem:
            return problem.with_traceback(None)  # its frames would keep what was read in memory


def in_time(state: State, failures: Failures, now: float) -> list[tuple[int, int, Failure]]:
    """Returns (slot, number, failure) of the subscriptions that have not expired."""
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
    """Returns the bindings of a match as JSON text, a list of objects (variable → value); None if there are none."""
    return as_bindings(match.bindings)


def as_bindings(bindings: tuple[tuple[tuple[str, Any], ...], ...]) -> str | None:
    """Returns bindings as JSON text, like `bindings_json`."""
    if not bindings:
        return None
    rows = [{name: as_json(value) for name, value in binding} for binding in bindings]
    return msgspec.json.encode(rows).decode()


# ── retractions ──────────────────────────────────────────────────────────────────────────────────────────────────────
#
#     an event that withdraws ──▶ events about its subject ──┐
#     an event about a subject that was withdrawn before ────┴──▶ for each a message to all who have it
#     a late match of an event that is withdrawn ───────────────▶ the same, to those who have it now
#
# The message has its own position. Its event is the withdrawing one, and it names the withdrawn one.


def tell_corrections(group: Group, told: Sequence[tuple[int, str, Correction]]) -> None:
    """Handles events that were stored in this command, each (sequence number, source, correction), in order: stores the
    correction, and sends the retractions. Cost: a few statements per event."""
    connection = group.connection
    for sequence, source, said in told:
        withdrawn: set[int] = set()
        for subject in said.withdraws:
            for about in find_about(connection, source, subject):
                if about.event not in withdrawn and not is_newer(about.revision, said.revision):
                    withdrawn.add(about.event)
                    _retract(group, about.event, by=sequence)
            add_correction(connection, source, subject, sequence, said.revision, withdraws=True)
        if said.subject in said.withdraws:
            continue  # its subject is what it withdraws, so it is no event about it
        before = find_withdrawing(connection, source, said.subject)
        add_correction(connection, source, said.subject, sequence, said.revision, withdraws=False)
        by = next((each.event for each in before if not is_newer(said.revision, each.revision)), None)
        if by is not None:
            _retract(group, sequence, by=by)


def retract_late(group: Group, matched: dict[int, list[int]]) -> None:
    """Sends retractions at once for late matches of this command whose event is already withdrawn. `matched` maps
    sequence numbers to subscriptions."""
    for withdrawn, by in withdrawn_among(group.connection, matched).items():
        _send_retraction(group, withdrawn, by, matched[withdrawn])


def _retract(group: Group, withdrawn: int, *, by: int) -> None:
    mark_withdrawn(group.connection, withdrawn, by)
    _send_retraction(group, withdrawn, by, find_recipients(group.connection, withdrawn))


def _send_retraction(group: Group, withdrawn: int, by: int, recipients: Collection[int]) -> None:
    """Sends one message to each recipient."""
    if not recipients:
        return
    connection, state = group.connection, group.state
    before = state.sequence

    def undo() -> None:
        state.sequence = before

    group.on_undo(undo)
    state.sequence += 1
    first = note_late(connection, [(state.sequence, by, len(recipients))], state.last_accepted_at)
    add_retraction(connection, state.sequence, withdrawn)
    insert_matches(connection, [packed(state.sequence, by, dict.fromkeys(recipients))])
    group.totals.update(matches=len(recipients), matched=first)
    group.touched.update(recipients)
