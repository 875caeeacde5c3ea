"""Events in: deduplicated, read, matched and stored with their matches, all in the transaction that acknowledges them.

decoded ──known?──▶ duplicate
    └─▶ canonicalise ──▶ match_batch ──▶ rows of events, matches, parked candidates ──▶ one insert for many

No operator is called here: what hangs on one is parked with the event, and decided by `server.parking`.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from semantic import CanonicalEvent, Event, InvalidEvent, Match, Matcher, Note
from semantic.operators.telling import as_json
from semantic.results import Undecided
from server.broker.group import Group
from server.broker.state import State
from server.cloudevents import DecodedEvent
from server.store.events import EventRow, Known, MatchRow, find_known, insert_events, insert_matches
from server.store.ontologies import active_versions
from server.store.parking import ParkedRow, insert_parked, keep_vocabulary

__all__ = ["EventMatches", "EventNote", "Outcome", "bindings_json", "match_events", "publish"]

MAX_NOTES = 20
"""Notes on one event that its publisher gets and the store keeps."""

DIFFERS = "differs"


class EventNote(msgspec.Struct, frozen=True):
    """Something that the publisher should know. `code` is stable; `attribute` is empty where none is meant."""

    code: str
    attribute: str
    detail: str


class Outcome(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of an accepted event, or of one that was accepted before (`duplicate`). `undecided`: how many
    subscriptions may get it as well, once operators have been asked."""

    id: str
    source: str
    sequence: int
    matched: int
    notes: list[EventNote]
    duplicate: bool = False
    undecided: int = 0


@dataclass(frozen=True, slots=True)
class EventMatches:
    """What one event would match; `problem` instead where it cannot be read. `undecided`: the subscriptions that hang
    on operators; `canonical` is the event for whoever asks those."""

    matches: list[Match]
    notes: tuple[Note, ...] = ()
    problem: InvalidEvent | None = None
    undecided: tuple[str, ...] = ()
    canonical: CanonicalEvent | None = None


def publish(
    group: Group, events: Sequence[DecodedEvent], observe: Callable[[float, int], None]
) -> list[Outcome | InvalidEvent]:
    """Accept events, in order; one result each. `observe(seconds, events)` is told how long it took to read and match
    them."""
    state = group.state
    known = find_known(group.connection, [(each.source, each.id) for each in events if not each.id_is_ours])
    results: list[Outcome | InvalidEvent | None] = [None] * len(events)
    fresh: list[tuple[int, DecodedEvent, CanonicalEvent]] = []
    repeated: list[tuple[int, int]] = []  # (index, index of the first one in this very request)
    first: dict[tuple[str, str], int] = {}
    started = time.perf_counter()
    for index, each in enumerate(events):
        key = (each.source, each.id)
        if key in known:
            results[index] = _duplicate(each, known[key])
        elif key in first:
            repeated.append((index, first[key]))
        else:
            canonical = _canonical(state.matcher, each.event)
            if isinstance(canonical, InvalidEvent):
                results[index] = canonical
            else:
                first[key] = index
                fresh.append((index, each, canonical))
    found = state.matcher.match_batch([canonical for _, _, canonical in fresh])
    observe(time.perf_counter() - started, len(fresh))
    rows = _Rows(group)
    for number, (index, each, canonical) in enumerate(fresh):
        results[index] = rows.add(each, canonical.notes, found[number], found.undecided(number))
    rows.store()
    for index, original in repeated:
        outcome = results[original]
        assert isinstance(outcome, Outcome)
        results[index] = _duplicate(events[index], (outcome.sequence, events[original].digest, outcome.matched))
    group.totals["duplicates"] += sum(isinstance(each, Outcome) and each.duplicate for each in results)
    return [each for each in results if each is not None]


def match_events(group: Group, events: Sequence[Event]) -> list[EventMatches]:
    """What each event would match if it were published now. Changes nothing."""
    state, found = group.state, []
    for event in events:
        canonical = _canonical(state.matcher, event)
        if isinstance(canonical, InvalidEvent):
            found.append(EventMatches([], problem=canonical))
        else:
            decided = state.matcher.decide(canonical)
            matches = [each for each in decided.matches if _in_time(state, each, group.now)]
            open = tuple(each.subscription for each in decided.undecided if _in_time(state, each, group.now))
            found.append(EventMatches(matches, canonical.notes, undecided=open, canonical=canonical))
    return found


class _Rows:
    """The rows of one command's events, numbered as they come."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self._version = group.state.vocabulary.version
        self._events: list[EventRow] = []
        self._matches: list[MatchRow] = []
        self._parked: list[ParkedRow] = []
        self._hits = 0
        state = group.state
        before = (state.sequence, state.last_accepted_at)

        def undo() -> None:
            state.sequence, state.last_accepted_at = before

        group.on_undo(undo)
        state.last_accepted_at = max(group.now, state.last_accepted_at)  # a clock set back must not reorder the log

    def add(
        self, event: DecodedEvent, notes: tuple[Note, ...], matches: Sequence[Match], undecided: Sequence[Undecided]
    ) -> Outcome:
        """The rows of one event."""
        group, state = self._group, self._group.state
        state.sequence += 1
        matched = 0
        for match in matches:
            number = state.roll.number_in_time(match.subscription, group.now)
            if number is None:
                continue
            matched += 1
            group.touched.add(number)
            bindings = bindings_json(match)
            self._matches.append(
                {"subscription": number, "position": state.sequence, "bindings": bindings, "event": None}
            )
        waiting = [each for each in undecided if _in_time(state, each, group.now)]
        self._parked += [self._parked_row(each) for each in waiting]
        self._hits += matched > 0
        told = [EventNote(note.code, note.attribute, note.detail) for note in (*event.notes, *notes)[:MAX_NOTES]]
        self._events.append(
            {
                "sequence": state.sequence,
                "source": event.source,
                "id": event.id,
                "type": event.type,
                "digest": event.digest,
                "body": event.body,
                "accepted_at": state.last_accepted_at,
                "vocabulary_version": self._version,
                "matched": matched,
                "notes": msgspec.json.encode(told).decode() if told else None,
            }
        )
        return Outcome(event.id, event.source, state.sequence, matched, told, undecided=len(waiting))

    def store(self) -> None:
        """Insert them, and count them."""
        insert_events(self._group.connection, self._events)
        insert_matches(self._group.connection, self._matches)
        self._group.totals.update(accepted=len(self._events), matched=self._hits, matches=len(self._matches))
        if self._parked:
            self._keep_vocabulary()
            insert_parked(self._group.connection, self._parked)
            self._group.totals["parked"] += len(self._parked)
            self._group.parked = True

    def _parked_row(self, undecided: Undecided) -> ParkedRow:
        state = self._group.state
        return {
            "event": state.sequence,
            "subscription": state.roll.number(undecided.subscription),
            "vocabulary_version": self._version,
            "reason": undecided.reason,
            "tries": 0,
            "parked_at": self._group.now,
            "next_try_at": self._group.now,
        }

    def _keep_vocabulary(self) -> None:
        """Write down what the version is made of: the candidates are decided under it, perhaps after a restart."""
        state, before = self._group.state, self._group.state.parked_under
        if before != self._version:
            parts = active_versions(self._group.connection)
            keep_vocabulary(self._group.connection, self._version, parts, state.declarations.to_json())
            state.parked_under = self._version

            def undo() -> None:
                state.parked_under = before

            self._group.on_undo(undo)


def _canonical(matcher: Matcher, event: Event) -> CanonicalEvent | InvalidEvent:
    try:
        return matcher.canonicalise(event)
    except InvalidEvent as problem:
        return problem


def _in_time(state: State, match: Match | Undecided, now: float) -> bool:
    return state.roll.number_in_time(match.subscription, now) is not None


def _duplicate(event: DecodedEvent, known: Known) -> Outcome:
    sequence, digest, matched = known
    notes = []
    if digest != event.digest:
        detail = "an event with this source and id was accepted before with another body: that one stands"
        notes.append(EventNote(DIFFERS, "", detail))
    return Outcome(event.id, event.source, sequence, matched, notes, duplicate=True)


def bindings_json(match: Match) -> str | None:
    """Bindings as JSON: a list of objects, variable → value; None where there are none."""
    if not match.bindings:
        return None
    rows = [{name: as_json(value) for name, value in binding} for binding in match.bindings]
    return msgspec.json.encode(rows).decode()
