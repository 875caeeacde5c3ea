"""The base class of all engines, and the column form of clauses and events.

An engine stores clauses, one by one or in columns, and returns the rows of the clauses that match an event.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from kindcast.index.clause import (
    AttributeId,
    Clause,
    ClauseRow,
    ColumnId,
    ConceptId,
    ConceptTest,
    IntervalTest,
    Key,
    KeyTest,
    LoweredEvent,
    Predicate,
    Test,
)
from kindcast.index.concept_graph import ConceptGraph

__all__ = [
    "ClauseColumns",
    "ColumnBatch",
    "ColumnValues",
    "ConceptOperands",
    "Engine",
    "EngineFactory",
    "IntervalOperands",
    "KeyOperands",
    "KeyTable",
    "OperandColumn",
    "RowTable",
    "in_order",
    "row_table",
]

# ── clauses and events in columns, for engines that need no object per clause or event ────────────────────────────────

# A batch of events:
#
#     ColumnBatch ─┬─ kinds, presents       the attributes of each event: an index into a few distinct sets
#                  ├─ columns               the values: numbers, or places in a table of distinct keys; one value per
#                  │                        event, or any number of values between two offsets
#                  └─ several               events that are not in the columns, as `LoweredEvent`s
#
# A batch is equivalent to its `lowered()` events; engines without a faster way use those. Several values in a column
# are alternatives for each predicate separately (docs/matching-semantics.md, rule 6): `x > 5` and `x < 3` may hold for
# two different values.


# Many clauses of one form with their operands in columns: the lowered form of a bulk of subscriptions.
#
#     ClauseColumns ── required, forbidden     the same for all clauses
#                   ├─ places                  the number of each clause in the bulk
#                   └─ tests                   a column per test: intervals, keys or concepts, one operand per clause
#
# `Engine.add_columns` takes the columns. `in_order` converts each clause to a `Clause`, for engines without a faster
# way. A test can be a column only if it is not negated and has one interval, one key or one concept.


@dataclass(frozen=True, slots=True)
class IntervalOperands:
    """An `IntervalTest` per clause, `low[i] <= v <= high[i]`; both are `float64[n]`. With `is_key` the ends are equal,
    and the test is a `KeyTest` of one number."""

    attribute: AttributeId
    column: ColumnId
    low: npt.NDArray[np.float64]
    high: npt.NDArray[np.float64]
    is_key: bool = False

    def test(self, number: int) -> Test:
        """Returns the test of clause `number`."""
        low = float(self.low[number])
        return KeyTest(frozenset([low])) if self.is_key else IntervalTest(low, float(self.high[number]))


@dataclass(frozen=True, slots=True)
class KeyOperands:
    """A `KeyTest` with one key per clause: `keys[places[i]]`; `places` is `int32[n]`. All keys have one type, not
    float."""

    attribute: AttributeId
    column: ColumnId
    keys: Sequence[Key]
    places: npt.NDArray[np.int32]

    def test(self, number: int) -> Test:
        """Returns the test of clause `number`."""
        return KeyTest(frozenset([self.keys[self.places[number]]]))


@dataclass(frozen=True, slots=True)
class ConceptOperands:
    """A `ConceptTest` with one concept per clause, `int32[n]`: within the concept, or with `exactly` only the
    concept."""

    attribute: AttributeId
    column: ColumnId
    concepts: npt.NDArray[np.int32]
    exactly: bool = False

    def test(self, number: int) -> Test:
        """Returns the test of clause `number`."""
        concept = frozenset([ConceptId(int(self.concepts[number]))])
        return ConceptTest(exactly=concept) if self.exactly else ConceptTest(within=concept)


OperandColumn = IntervalOperands | KeyOperands | ConceptOperands


@dataclass(frozen=True, slots=True)
class ClauseColumns:
    """n clauses of one form. `places` is `int64[n]`, ascending: the number of each clause in the bulk."""

    places: npt.NDArray[np.int64]
    required: frozenset[AttributeId]
    forbidden: frozenset[AttributeId]
    tests: tuple[OperandColumn, ...]

    def __len__(self) -> int:
        return self.places.size

    def clause(self, number: int) -> Clause:
        """Returns clause `number` of these as a `Clause`."""
        predicates = (Predicate(each.attribute, ((each.column, each.test(number)),)) for each in self.tests)
        return Clause(tuple(predicates), self.required, self.forbidden)

    def clauses(self) -> Iterator[Clause]:
        """Yields all clauses in order. Some µs per test."""
        return map(self.clause, range(len(self)))


def in_order(clauses: Iterable[tuple[int, Clause]], columns: Iterable[ClauseColumns], count: int) -> list[Clause]:
    """Returns all `count` clauses of a bulk, ordered by place. `clauses` are pairs (place, clause)."""
    found = dict(clauses)
    for each in columns:
        found.update(zip(each.places.tolist(), each.clauses(), strict=True))
    return [found[place] for place in range(count)]


@dataclass(slots=True, weakref_slot=True)
class KeyTable:
    """The distinct keys of a column; None means no value. Append-only. `translations` belongs to engines: they cache
    their codes of the keys there, so that a batch need not look up each key again."""

    keys: list[Key | None] = field(default_factory=list)
    translations: dict[Any, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ColumnValues:
    """The values of all events in one column. If `table` is None, they are `numbers` (`float64[values]`, NaN for no
    value), otherwise `places` in the table (`int32[values]`, -1 or the place of a None for no value).

    Without `offsets`, value `e` belongs to event `e`. With `offsets` (`int64[events + 1]`, ascending from 0 to the
    number of values), event `e` has the values `offsets[e] … offsets[e + 1] - 1`: none, one or several. Entries without
    a value are ignored. Duplicates and order have no meaning.

    >>> column = ColumnValues(ColumnId(0), np.array([1.5, 2.5, np.nan, 4.0]), offsets=np.array([0, 2, 2, 4]))
    >>> [event.values for event in ColumnBatch(np.zeros(3, np.int32), [frozenset()], [column]).lowered()]
    [{0: (1.5, 2.5)}, {}, {0: (4.0,)}]
    """

    column: ColumnId
    numbers: npt.NDArray[np.float64]
    table: KeyTable | None = None
    places: npt.NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, dtype=np.int32))
    offsets: npt.NDArray[np.int64] | None = None

    def part(self, start: int, stop: int) -> "ColumnValues":
        """Returns the values of the events `start … stop-1`. The arrays are views, except for the offsets."""
        if self.offsets is None:
            return ColumnValues(self.column, self.numbers[start:stop], self.table, self.places[start:stop])
        first, last = self.offsets[start], self.offsets[stop]
        numbers, places = self.numbers[first:last], self.places[first:last]
        return ColumnValues(self.column, numbers, self.table, places, self.offsets[start : stop + 1] - first)

    def keys(self) -> list[Key | None]:
        """Returns each value, or None for no value."""
        if self.table is None:
            return [None if math.isnan(number) else number for number in self.numbers.tolist()]
        keys = [*self.table.keys, None]
        return [keys[place] for place in self.places.tolist()]

    def floats(self) -> npt.NDArray[np.float64]:
        """Returns the values of a column of numbers, in either form of storage; NaN for no value."""
        if self.table is None:
            return self.numbers
        keys = np.array([np.nan if key is None else float(key) for key in [*self.table.keys, None]])
        found: npt.NDArray[np.float64] = keys[self.places]
        return found

    def distinct(self) -> tuple[Sequence[Key | None], npt.NDArray[np.int32]]:
        """Returns the distinct keys, and the place of each value among them (-1 or the place of a None for no
        value)."""
        if self.table is not None:
            return self.table.keys, self.places
        keys, places = np.unique(self.numbers, return_inverse=True)
        return [None if key != key else key for key in keys.tolist()], places.astype(np.int32)


@dataclass(frozen=True, slots=True)
class ColumnBatch:
    """A batch of events in columns (see above). `kinds` is `int32[events]`. Several entries of `columns` may be for the
    same column; an event has the values of all of them. An event in `several` has no values in `columns`; it costs some
    µs per value instead of some ns."""

    kinds: npt.NDArray[np.int32]
    presents: Sequence[frozenset[AttributeId]]
    columns: Sequence[ColumnValues]
    several: Mapping[int, LoweredEvent] = field(default_factory=dict)

    @property
    def events(self) -> int:
        """The number of events."""
        return self.kinds.size

    @property
    def is_flat(self) -> bool:
        """Whether every event is in the columns and has at most one value per column: no column has offsets, and no
        column occurs twice."""
        distinct = {each.column for each in self.columns if each.offsets is None}
        return not self.several and len(distinct) == len(self.columns)

    def part(self, start: int, stop: int) -> "ColumnBatch":
        """Returns the events `start … stop-1`, renumbered from 0. The arrays are views, except for the offsets."""
        columns = [each.part(start, stop) for each in self.columns]
        several = {place - start: event for place, event in self.several.items() if start <= place < stop}
        return ColumnBatch(self.kinds[start:stop], self.presents, columns, several)

    def lowered(self) -> list[LoweredEvent]:
        """Returns the events as `LoweredEvent`s."""
        found: list[dict[ColumnId, dict[Key, None]]] = [{} for _ in range(self.events)]
        for each in self.columns:
            event_of: Iterable[int] = range(self.events)
            if each.offsets is not None:
                event_of = np.repeat(np.arange(self.events), np.diff(each.offsets)).tolist()
            for event, key in zip(event_of, each.keys(), strict=True):
                if key is not None:
                    found[event].setdefault(each.column, {})[key] = None
        return [
            self.several[place]
            if place in self.several
            else LoweredEvent(self.presents[kind], {column: tuple(keys) for column, keys in values.items()})
            for place, (kind, values) in enumerate(zip(self.kinds.tolist(), found, strict=True))
        ]


@dataclass(frozen=True, slots=True)
class RowTable:
    """The matches of a batch. Event `i` has the rows `rows[offsets[i] : offsets[i + 1]]`, ascending.

    `offsets` is `int64[events + 1]`, `rows` is `int32[matches]`.
    """

    offsets: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int32]


class Engine(ABC):
    """An index over clauses. Engines are exact: `match` returns all rows whose clauses match, and no other rows.

    While a thread changes an engine, no other thread may read it. Several threads may read it at the same time. The
    methods with a body work for every engine; an engine overrides those for which it has a faster way.
    """

    reads_columns: ClassVar[bool] = False
    """Whether `match_columns` creates no object per event and can be called by several threads at the same time."""

    @abstractmethod
    def __len__(self) -> int:
        """The number of stored clauses."""

    @abstractmethod
    def add(self, clause: Clause) -> ClauseRow:
        """Stores `clause` and returns its row, which is the lowest free row. The next `match` finds it."""

    def add_many(self, clauses: Iterable[Clause]) -> list[ClauseRow]:
        """Adds all clauses in order, and returns their rows."""
        return [self.add(clause) for clause in clauses]

    def add_columns(
        self, clauses: Sequence[tuple[int, Clause]], columns: Sequence[ClauseColumns], count: int
    ) -> npt.NDArray[np.int32]:
        """Adds `count` clauses, many of which are given as columns of one form.

        The clauses are numbered 0 … count - 1. `clauses` are pairs (number, clause); `columns` contain the numbers of
        their clauses. Returns the row for each number, `int32[count]`.
        """
        return np.array(self.add_many(in_order(clauses, columns, count)), dtype=np.int32)

    @abstractmethod
    def remove(self, row: ClauseRow) -> None:
        """Removes the clause at `row`, which is then free. Raises `UnknownRow` if no clause is stored there."""

    @abstractmethod
    def match(self, event: LoweredEvent) -> npt.NDArray[np.int32]:
        """Returns the rows whose clauses match `event`: `int32[matches]`, ascending."""

    def match_batch(self, events: Sequence[LoweredEvent]) -> RowTable:
        """Returns the result of `match` for each event, in order."""
        return row_table([self.match(event) for event in events])

    def match_columns(self, batch: ColumnBatch) -> RowTable:
        """Returns the result of `match_batch` for `batch.lowered()`. The rows of an event are distinct but unsorted."""
        return self.match_batch(batch.lowered())

    def explain(self, event: LoweredEvent) -> dict[str, Any] | None:
        """Returns the visited structures in order, with the number of remaining rows after each, as JSON; None if the
        engine has no explanations. Slow; for people."""
        return None

    def save(self, folder: Path) -> bool:
        """Writes the index to files `*.index` in `folder`, which `kindcast.index.registry.open_engine` opens. Returns
        False, and writes nothing, if the engine has no file format. Raises `OSError`."""
        return False

    @property
    def nbytes(self) -> int | None:
        """Size of index and caches in bytes; None if the engine does not measure it."""
        return None

    @property
    def keys(self) -> int:
        """The number of different keys that clauses ever had, of which the engine keeps some after the clauses are
        removed; 0 if it keeps none. Takes constant time. May be read in any thread."""
        return 0

    @property
    def structure(self) -> Mapping[str, int]:
        """The number of parts of each kind by name, for monitoring; empty if the engine does not report it."""
        return {}

    @abstractmethod
    def check_invariants(self) -> None:
        """Raises AssertionError, with internals in its message, if a structural invariant is violated. Slow; for
        tests."""


class EngineFactory(Protocol):
    """A function in the registry of engines. It builds an empty engine for a concept graph."""

    def __call__(self, graph: ConceptGraph) -> Engine: ...


def row_table(found: Sequence[npt.NDArray[np.int32]]) -> RowTable:
    """Returns the table for the rows of several events, given as one array per event. Copies the arrays.

    >>> table = row_table([np.array([1, 4], dtype=np.int32), np.array([], dtype=np.int32)])
    >>> table.offsets.tolist(), table.rows.tolist()
    ([0, 2, 2], [1, 4])
    """
    offsets = np.zeros(len(found) + 1, dtype=np.int64)
    np.cumsum([rows.size for rows in found], out=offsets[1:])
    return RowTable(offsets, np.concatenate(found) if found else np.array([], dtype=np.int32))
