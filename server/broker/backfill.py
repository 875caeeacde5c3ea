"""Backfill: stored events for a new subscription, stored with it in one transaction.

    stored events ──read and match, beside the writer──▶ Backfill ──create_with, one command──▶ subscription,
                                                            ▲           │                        late matches
                                                            └── the few events accepted since ───┘

The matches get new positions, in the order of their events and before every new event, like late matches. If the
process is killed, either the subscription with all its matches is stored, or nothing. Since the subscription was in no
matcher before, no event is delivered twice. All events are matched under the active vocabulary.
"""

from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import Row

from kindcast.semantic import Compiled, InvalidEvent, Matcher, Vocabulary
from kindcast.semantic.events import ReadEvent
from kindcast.semantic.operators import Failure
from kindcast.server.broker.group import Group
from kindcast.server.broker.publishing import as_bindings, keep_parked_vocabulary
from kindcast.server.broker.retractions import retract_late
from kindcast.server.cloudevents import EventReader, arrived
from kindcast.server.errors import BackfillTooLarge
from kindcast.server.operators.registry import Registry
from kindcast.server.settings import Settings
from kindcast.server.store import pending as pending_store
from kindcast.server.store.events import list_events
from kindcast.server.store.matches import insert_matches, packed
from kindcast.server.strict_json import decode

__all__ = ["PAGE", "Backfill", "Outdated", "create_with"]

PAGE = 1_000
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

    def feed(self, rows: Sequence[Row[Any]]) -> None:
        """Matches the next stored events. An event that cannot be read any more is counted and skipped. Raises
        `BackfillTooLarge`."""
        self.read += len(rows)
        if self.read > self._max_events:
            raise BackfillTooLarge(
                f"more than {self._max_events:,} events were accepted since start_at: choose a later start_at"
            )
        read: list[ReadEvent] = []
        sequences: list[int] = []
        for row in rows:
            try:
                event = self._reader.from_object(decode(row.body.encode())).event
                read.append(self._matcher.read(arrived(event, row.accepted_at)))
                sequences.append(row.sequence)
            except InvalidEvent:
                self.unreadable += 1
            self.through = row.sequence
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
    rest = list_events(group.connection, after=backfill.through, type=None, limit=PAGE)
    if len(rest) >= PAGE:
        raise Outdated
    backfill.feed(rest)
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
    there = pending_store.matched_before(connection, [event for event, _ in matched])  # others were deleted
    kept = [(event, bindings) for event, bindings in matched if event in there]
    first = state.sequence + 1
    state.sequence += len(kept)
    places = [(first + index, event, 1) for index, (event, _) in enumerate(kept)]
    newly = pending_store.note_late(connection, places, state.last_accepted_at)
    insert_matches(
        connection, [packed(first + index, event, {number: told}) for index, (event, told) in enumerate(kept)]
    )
    group.totals.update(matches=len(kept), matched=newly)
    retract_late(group, {event: [number] for event, _ in kept})


def _store_undecided(group: Group, number: int, undecided: Sequence[tuple[int, Failure]]) -> None:
    there = pending_store.matched_before(group.connection, [event for event, _ in undecided])
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
        if event in there
    ]
    if rows:
        keep_parked_vocabulary(group)
        pending_store.insert_parked(group.connection, rows)
        group.totals["parked"] += len(rows)
        group.parked = True
