"""Code shared by the engines of several papers: clauses as conjunctions of elementary predicates, and runs of rows.

| elementary predicate | holds when |
|---|---|
| `Equal(column, key)` | some value is the key |
| `AtLeast(column, bound)`, `AtMost(column, bound)` | some value is at least, at most the bound |
| `Within(column, concept)` | some value is the concept or beneath it |
| `Present(attribute)` | the attribute has a value |

The papers lack negation, alternatives, `below` and forbidden attributes. A clause with these is replaced by predicates
that it implies, and is *inexact*: its candidates are verified. The candidates of an event with several values in a
column are verified, too, because two different values may satisfy a lower and an upper bound.

An event is converted for each axis to codes of operands, or to the value that is compared with bounds.

LoweredEvent ─┐   an axis of keys      ─▶ the codes of its column's values
ColumnBatch  ─┴─▶ an axis of concepts  ─▶ the codes of all concepts above them
                  an axis of bounds    ─▶ the largest value (`AtLeast`), the smallest (`AtMost`)
                  an axis of presence  ─▶ its single code, if the attribute is present
"""

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt

from kindcast.index.clause import (
    AttributeId,
    Clause,
    ColumnId,
    ConceptId,
    ConceptTest,
    IntervalTest,
    Key,
    KeyTest,
    LoweredEvent,
    Predicate,
    can_hold,
)
from kindcast.index.concept_graph import ConceptGraph
from kindcast.index.engine import ColumnBatch
from kindcast.index.jit import compiled

__all__ = [
    "LOWER",
    "AtLeast",
    "AtMost",
    "Axis",
    "AxisReadings",
    "Elementary",
    "Equal",
    "GrowingRuns",
    "OperandCodes",
    "Parts",
    "Present",
    "Reader",
    "Within",
    "parts_of",
]


@dataclass(frozen=True, slots=True)
class Equal:
    column: ColumnId
    key: Key


@dataclass(frozen=True, slots=True)
class AtLeast:
    column: ColumnId
    bound: float


@dataclass(frozen=True, slots=True)
class AtMost:
    column: ColumnId
    bound: float


@dataclass(frozen=True, slots=True)
class Within:
    column: ColumnId
    concept: ConceptId


@dataclass(frozen=True, slots=True)
class Present:
    attribute: AttributeId


Elementary = Equal | AtLeast | AtMost | Within | Present


@dataclass(frozen=True, slots=True)
class Parts:
    """The distinct elementary predicates of a clause. Every match satisfies all of them. If `exact`, every event with
    one value per column that satisfies them is a match. `together` are the places of lower bounds that belong to one
    test with the next upper bound. For several values, a single value must satisfy both."""

    elementary: tuple[Elementary, ...]
    exact: bool
    together: tuple[int, ...] = ()


def parts_of(clause: Clause) -> Parts | None:
    """Returns the parts of `clause`, or None if no event can match it. Linear."""
    if not clause.required.isdisjoint(clause.forbidden):
        return None
    found: dict[Elementary, None] = {}
    together: list[int] = []
    exact = not clause.forbidden
    bare = set(clause.required)
    for predicate in clause.predicates:
        elementary = _elementary(predicate)
        if elementary == []:
            return None
        if elementary is None:
            exact = False
            bare.add(predicate.attribute)
        else:
            bare.discard(predicate.attribute)
            if len(elementary) == 2:
                exact &= found.keys().isdisjoint(elementary)  # otherwise they are not adjacent
                together.append(len(found))
            found.update(dict.fromkeys(elementary))
    found.update((Present(attribute), None) for attribute in sorted(bare))
    return Parts(tuple(found), exact, tuple(together) if exact else ())


def _elementary(predicate: Predicate) -> list[Elementary] | None:
    """Returns elementary predicates equivalent to `predicate`: None if there are none, empty if it never holds."""
    if predicate.negated:
        return None
    tests = [(column, test) for column, test in predicate.tests if can_hold(test)]
    if not tests:
        return []
    if len(tests) > 1:
        return None
    [(column, test)] = tests
    match test:
        case IntervalTest(low, high) if low == high:
            return [Equal(column, low)]
        case IntervalTest(low, high):
            bounds: list[Elementary] = [AtMost(column, high)] if high < math.inf else []
            return [AtLeast(column, low), *bounds] if low > -math.inf or not bounds else bounds
        case KeyTest(keys) if len(keys) == 1:
            return [Equal(column, key) for key in keys]
        case ConceptTest(within, below, exactly) if not below and len(within) + len(exactly) == 1:
            return [*(Within(column, each) for each in within), *(Equal(column, cast(Key, each)) for each in exactly)]
        case _:
            return None


Axis = tuple[type, int, int]
"""The kind of predicate, the column or attribute, and the number of earlier predicates of both in the clause."""
AxisReadings = tuple[npt.NDArray[np.int64], npt.NDArray[np.int32], npt.NDArray[np.float64]]
"""`firsts`, `codes` and `values` as in `matching_tree.Said`."""

OperandCodes = Sequence[Mapping[Hashable, int]]
"""For each axis, a map from operands to codes."""


class Reader:
    """Converts events to values by axis. Axes that are added to its lists later are used from then on."""

    def __init__(self, graph: ConceptGraph, axes: Sequence[Axis], codes: OperandCodes) -> None:
        self._graph = graph
        self._axes = axes
        self._codes = codes

    def of_events(self, events: Sequence[LoweredEvent]) -> AxisReadings:
        """Converts events. Some hundred ns for each axis of each event."""
        values = np.full((len(events), len(self._axes)), np.nan)
        ends: list[int] = [0]
        codes: list[int] = []
        for number, event in enumerate(events):
            for axis, (kind, place, _) in enumerate(self._axes):
                if kind is Present:
                    codes += self._known(axis, (True,) if AttributeId(place) in event.present else ())
                else:
                    found = event.values.get(ColumnId(place), ())
                    if kind is AtLeast or kind is AtMost:
                        if found:
                            values[number, axis] = max(found) if kind is AtLeast else min(found)
                    else:
                        codes += self._known(axis, self._operands(kind, found))
                ends.append(len(codes))
        return np.array(ends, dtype=np.int64), np.array(codes, dtype=np.int32), values

    def of_columns(self, batch: ColumnBatch) -> AxisReadings:
        """Converts a batch whose events have at most one value per column. Some ns for each axis of each event, and a
        look-up for each distinct key."""
        events, axes = batch.events, len(self._axes)
        by_column = {int(each.column): each for each in batch.columns}
        values = np.full((events, axes), np.nan)
        counts = np.zeros((events, axes), dtype=np.int64)
        read: list[tuple[npt.NDArray[np.int64], list[int], npt.NDArray[np.int64]] | None] = []
        for axis, (kind, place, _) in enumerate(self._axes):
            listed: list[list[int]] = []
            places = np.full(events, -1, dtype=np.int64)
            if kind is Present:
                listed = [self._known(axis, (True,) if AttributeId(place) in each else ()) for each in batch.presents]
                places = batch.kinds.astype(np.int64)
            elif place in by_column:
                column = by_column[place]
                if kind is AtLeast or kind is AtMost:
                    values[:, axis] = column.floats()
                else:
                    keys, found = column.distinct()
                    places = found.astype(np.int64)
                    listed = [self._known(axis, self._operands(kind, () if key is None else (key,))) for key in keys]
            lengths = np.array([*(len(each) for each in listed), 0], dtype=np.int64)
            counts[:, axis] = lengths[places]
            read.append((lengths, [code for each in listed for code in each], places) if listed else None)
        firsts = np.concatenate([[0], np.cumsum(counts.ravel())]).astype(np.int64)
        codes = np.zeros(int(firsts[-1]), dtype=np.int32)
        for axis, each in enumerate(read):
            if each is not None:
                lengths, known, places = each
                _spread(codes, firsts[axis:-1:axes], counts[:, axis], lengths, np.array(known, dtype=np.int32), places)
        return firsts, codes, values

    def _operands(self, kind: type, values: Iterable[Key]) -> Iterable[Hashable]:
        if kind is Equal:
            return values
        assert kind is Within, kind
        return {upper for value in values for upper in self._graph.ancestors(cast(ConceptId, value))}

    def _known(self, axis: int, operands: Iterable[Hashable]) -> list[int]:
        codes = self._codes[axis]
        return [codes[operand] for operand in operands if operand in codes]


def _spread(
    codes: npt.NDArray[np.int32],
    firsts: npt.NDArray[np.int64],
    counts: npt.NDArray[np.int64],
    lengths: npt.NDArray[np.int64],
    known: npt.NDArray[np.int32],
    places: npt.NDArray[np.int64],
) -> None:
    """Copies the codes of every event's key to their positions."""
    starts = np.concatenate([[0], np.cumsum(lengths)])[places]
    total = int(counts.sum())
    step = np.arange(total) - np.repeat(np.cumsum(counts) - counts, counts)
    codes[np.repeat(firsts, counts) + step] = known[np.repeat(starts, counts) + step]


# ── runs of rows that grow and shrink, side by side in one array ──────────────────────────────────────────────────────

#     run ─▶ start, length, room        entries[start : start + length]
#
# An entry is a row. Entries of 64 bits have additional data in the upper half. A full run moves to a place with twice
# the room. When the array is full, all runs are laid out again, each with 1.5 times the room that it needs. A run is
# contiguous in memory; its rows are unsorted.


Entries = npt.NDArray[np.int32] | npt.NDArray[np.int64]
Numbers = npt.NDArray[np.int64]

LOWER = 0x7FFFFFFF
"""The mask of the row in an entry. An entry of 32 bits is only a row."""
FIRST_ROOM = 4
"""The room of a run when its first row is added."""


class GrowingRuns:
    """Runs `0 … len(start)-1`. Invariants: a row is at most once in a run; rooms do not overlap.

    `start` and `length` are `int64[runs]`, `entries` are `int32` or `int64`."""

    def __init__(self, dtype: type[np.int32] | type[np.int64]) -> None:
        self.start, self.length, self._room = (np.zeros(0, dtype=np.int64) for _ in range(3))
        self.entries: Entries = cast(Entries, np.zeros(0, dtype=dtype))
        self._used = 0

    def grow(self, runs: int) -> None:
        """Makes room for at least `runs` runs. New runs are empty."""
        if runs > self.start.size:
            more = np.zeros(max(runs, self.start.size * 3 // 2) - self.start.size, dtype=np.int64)
            self.start, self.length, self._room = (
                np.concatenate([each, more]) for each in (self.start, self.length, self._room)
            )

    def fill(self, runs: int, places: Numbers, entries: Entries) -> None:
        """Replaces the content: `entries[i]` is in run `places[i]` of `runs`. Linear."""
        self.length = np.bincount(places, minlength=runs).astype(np.int64)
        self._room = self.length.copy()
        self.start = np.cumsum(self.length) - self.length
        self.entries = np.empty_like(entries)
        self._used = entries.size
        _scatter(self.start.copy(), places, entries, self.entries)

    def append(self, places: Numbers, entries: Entries) -> None:
        """Adds `entries[i]` to run `places[i]`. Amortised constant per entry."""
        done = 0
        while done < entries.size:
            done, self._used = _append(
                self.start, self.length, self._room, self.entries, self._used, places, entries, done
            )
            if done < entries.size:
                self._lay_out(entries.size - done)

    def remove(self, run: int, row: int) -> None:
        """Removes `row` from `run`. Scans the run."""
        _remove(self.start, self.length, self.entries, run, row)

    def check_invariants(self) -> None:
        """Raises AssertionError if rooms overlap or a run is longer than its room."""
        order = np.lexsort((self._room, self.start))
        ends = self.start + self._room
        assert np.all(self.length <= self._room), (self.length, self._room)
        assert np.all(ends[order][:-1] <= self.start[order][1:]), (self.start, self._room)
        assert int(ends.max(initial=0)) <= self._used <= self.entries.size

    def _lay_out(self, coming: int) -> None:
        room = self.length + (self.length >> 1)
        start = np.cumsum(room) - room
        size = int(room.sum()) * 3 // 2 + (FIRST_ROOM + 2) * coming + 1024
        entries = np.empty(size, dtype=self.entries.dtype)
        _move(self.start, self.length, self.entries, start, entries)
        self.start, self._room, self.entries, self._used = start, room, entries, int(room.sum())


@compiled
def _scatter(at: Numbers, places: Numbers, entries: Entries, out: Entries) -> None:
    for i in range(places.size):
        out[at[places[i]]] = entries[i]
        at[places[i]] += 1


@compiled
def _move(start: Numbers, length: Numbers, entries: Entries, new_start: Numbers, out: Entries) -> None:
    for run in range(start.size):
        for i in range(length[run]):
            out[new_start[run] + i] = entries[start[run] + i]


@compiled
def _append(
    start: Numbers,
    length: Numbers,
    room: Numbers,
    arena: Entries,
    used: int,
    places: Numbers,
    entries: Entries,
    done: int,
) -> tuple[int, int]:
    """Adds entries from `done` on until the array is full. Returns the number of added entries and the used size."""
    for i in range(done, entries.size):
        run = places[i]
        if length[run] == room[run]:
            wanted = max(FIRST_ROOM, 2 * room[run])
            if used + wanted > arena.size:
                return i, used
            for k in range(length[run]):
                arena[used + k] = arena[start[run] + k]
            start[run] = used
            room[run] = wanted
            used += wanted
        arena[start[run] + length[run]] = entries[i]
        length[run] += 1
    return entries.size, used


@compiled
def _remove(start: Numbers, length: Numbers, entries: Entries, run: int, row: int) -> None:
    first = start[run]
    last = first + length[run] - 1
    for at in range(first, last + 1):
        if entries[at] & LOWER == row:
            entries[at] = entries[last]
            length[run] -= 1
            return
