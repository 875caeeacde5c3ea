"""The base class of all engines: clauses in, one by one or in columns; rows of matching clauses out."""

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
#     ColumnBatch ─┬─ kinds, presents       which attributes each event has: an index into a few distinct sets
#                  ├─ columns               the values: numbers as they are, or places in a table of distinct keys; one
#                  │                        an event, or any number of them between two offsets
#                  └─ several               events that are not in the columns, as `LoweredEvent`s
#
# Means the same as the `LoweredEvent`s that `lowered` gives; engines without a way of their own take those. Several
# values in a column are alternatives for each predicate by itself (docs/matching-semantics.md, rule 6): of `x > 5` and
# `x < 3` one may hold for the one value, one for the other.


# Many clauses of one form, their operands in columns: what a bulk of subscriptions is lowered to.
#
#     ClauseColumns ── required, forbidden     the same for all
#                   ├─ places                  which clause of the bulk each is
#                   └─ tests                   one column each: intervals, keys or concepts, an operand a clause
#
# `Engine.add_columns` takes the columns. `in_order` writes each clause as a `Clause`, for engines without a faster way.
# Only tests that are not negated and ask for one interval, one key or one concept can be columns.


@dataclass(frozen=True, slots=True)
class IntervalOperands:
    """An `IntervalTest` a clause, `low[i] <= v <= high[i]`: both `float64[n]`. With `is_key` the ends are equal,
    and the test is a `KeyTest` of one number."""

    attribute: AttributeId
    column: ColumnId
    low: npt.NDArray[np.float64]
    high: npt.NDArray[np.float64]
    is_key: bool = False

    def test(self, number: int) -> Test:
        """The test of clause `number`."""
        low = float(self.low[number])
        return KeyTest(frozenset([low])) if self.is_key else IntervalTest(low, float(self.high[number]))


@dataclass(frozen=True, slots=True)
class KeyOperands:
    """A `KeyTest` of one key a clause: `keys[places[i]]`, `places` is `int32[n]`. Keys of one type, none a float."""

    attribute: AttributeId
    column: ColumnId
    keys: Sequence[Key]
    places: npt.NDArray[np.int32]

    def test(self, number: int) -> Test:
        """The test of clause `number`."""
        return KeyTest(frozenset([self.keys[self.places[number]]]))


@dataclass(frozen=True, slots=True)
class ConceptOperands:
    """A `ConceptTest` of one concept a clause, `int32[n]`: within it, or with `exactly` it alone."""

    attribute: AttributeId
    column: ColumnId
    concepts: npt.NDArray[np.int32]
    exactly: bool = False

    def test(self, number: int) -> Test:
        """The test of clause `number`."""
        concept = frozenset([ConceptId(int(self.concepts[number]))])
        return ConceptTest(exactly=concept) if self.exactly else ConceptTest(within=concept)


OperandColumn = IntervalOperands | KeyOperands | ConceptOperands


@dataclass(frozen=True, slots=True)
class ClauseColumns:
    """n clauses; `places` is `int64[n]`, ascending: where each stands among all clauses of a bulk."""

    places: npt.NDArray[np.int64]
    required: frozenset[AttributeId]
    forbidden: frozenset[AttributeId]
    tests: tuple[OperandColumn, ...]

    def __len__(self) -> int:
        return self.places.size

    def clause(self, number: int) -> Clause:
        """Clause `number` of these by itself."""
        predicates = (Predicate(each.attribute, ((each.column, each.test(number)),)) for each in self.tests)
        return Clause(tuple(predicates), self.required, self.forbidden)

    def clauses(self) -> Iterator[Clause]:
        """Each by itself, in order: some µs a test."""
        return map(self.clause, range(len(self)))


def in_order(clauses: Iterable[tuple[int, Clause]], columns: Iterable[ClauseColumns], count: int) -> list[Clause]:
    """All `count` clauses of a bulk by their places: (place, clause) each, and those in columns."""
    found = dict(clauses)
    for each in columns:
        found.update(zip(each.places.tolist(), each.clauses(), strict=True))
    return [found[place] for place in range(count)]


@dataclass(slots=True, weakref_slot=True)
class KeyTable:
    """Distinct keys of one column; None stands for no value. Grows at its end only. `translations` belongs to
    engines: what they made of the keys, so that a batch does not ask for each of them again."""

    keys: list[Key | None] = field(default_factory=list)
    translations: dict[Any, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ColumnValues:
    """The values of every event in one column: `numbers` (`float64[values]`, NaN: none) if `table` is None, else
    `places` in it (`int32[values]`, -1 or the place of a None: none).

    Without `offsets` value `e` is that of event `e`. With `offsets` (`int64[events + 1]`, ascending from 0 to the
    number of values) event `e` has the values `offsets[e] … offsets[e + 1] - 1`: none, one or several. Those that are
    none count for nothing, equal ones as one; order means nothing.

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
        """The values of the events `start … stop-1`: views, but for the offsets."""
        if self.offsets is None:
            return ColumnValues(self.column, self.numbers[start:stop], self.table, self.places[start:stop])
        first, last = self.offsets[start], self.offsets[stop]
        numbers, places = self.numbers[first:last], self.places[first:last]
        return ColumnValues(self.column, numbers, self.table, places, self.offsets[start : stop + 1] - first)

    def keys(self) -> list[Key | None]:
        """Each value, or None."""
        if self.table is None:
            return [None if math.isnan(number) else number for number in self.numbers.tolist()]
        keys = [*self.table.keys, None]
        return [keys[place] for place in self.places.tolist()]

    def floats(self) -> npt.NDArray[np.float64]:
        """The numbers of a column that holds numbers, however it is stored, one a value; NaN: none."""
        if self.table is None:
            return self.numbers
        keys = np.array([np.nan if key is None else float(key) for key in [*self.table.keys, None]])
        found: npt.NDArray[np.float64] = keys[self.places]
        return found

    def distinct(self) -> tuple[Sequence[Key | None], npt.NDArray[np.int32]]:
        """Its distinct keys, and the place of each value's key among them (-1 or a None: none)."""
        if self.table is not None:
            return self.table.keys, self.places
        keys, places = np.unique(self.numbers, return_inverse=True)
        return [None if key != key else key for key in keys.tolist()], places.astype(np.int32)


@dataclass(frozen=True, slots=True)
class ColumnBatch:
    """See above. `kinds` is `int32[events]`. Several of `columns` may be of one column: an event has the values of all
    of them. An event in `several` has no values in `columns`; it costs some µs, where one in columns costs some ns a
    value."""

    kinds: npt.NDArray[np.int32]
    presents: Sequence[frozenset[AttributeId]]
    columns: Sequence[ColumnValues]
    several: Mapping[int, LoweredEvent] = field(default_factory=dict)

    @property
    def events(self) -> int:
        """How many events there are."""
        return self.kinds.size

    @property
    def is_flat(self) -> bool:
        """Whether every event is in the columns, with at most one value in each: no column has offsets, and none
        is there twice."""
        distinct = {each.column for each in self.columns if each.offsets is None}
        return not self.several and len(distinct) == len(self.columns)

    def part(self, start: int, stop: int) -> "ColumnBatch":
        """The events `start … stop-1`, numbered from 0; views, no copies but of offsets."""
        columns = [each.part(start, stop) for each in self.columns]
        several = {place - start: event for place, event in self.several.items() if start <= place < stop}
        return ColumnBatch(self.kinds[start:stop], self.presents, columns, several)

    def lowered(self) -> list[LoweredEvent]:
        """The same events one by one."""
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
    """The rows of a batch: event `i` matched `rows[offsets[i] : offsets[i + 1]]`, ascending.

    `offsets` is `int64[events + 1]`, `rows` is `int32[matches]`.
    """

    offsets: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int32]


class Engine(ABC):
    """An index over clauses. Exact: `match` returns all rows whose clause matches, and no other row.

    One thread may change an engine, and no other thread may read it meanwhile; several threads may read it together.
    The methods with a body here work for every engine; an engine overrides those that it can do faster.
    """

    reads_columns: ClassVar[bool] = False
    """Whether `match_columns` makes no object for each event, and may be called by several threads at the same time."""

    @abstractmethod
    def __len__(self) -> int:
        """How many clauses are stored."""

    @abstractmethod
    def add(self, clause: Clause) -> ClauseRow:
        """Store `clause` and return its row, the lowest free one. The next `match` finds it."""

    def add_many(self, clauses: Iterable[Clause]) -> list[ClauseRow]:
        """`add` for each clause, in order."""
        return [self.add(clause) for clause in clauses]

    def add_columns(
        self, clauses: Sequence[tuple[int, Clause]], columns: Sequence[ClauseColumns], count: int
    ) -> npt.NDArray[np.int32]:
        """`add_many` for `count` clauses, many of which have one form and are given as columns.

        The clauses are numbered 0 … count - 1: those of `clauses` are (number, clause), those of `columns` state their
        numbers. Returns the row for each number, `int32[count]`.
        """
        return np.array(self.add_many(in_order(clauses, columns, count)), dtype=np.int32)

    @abstractmethod
    def remove(self, row: ClauseRow) -> None:
        """Remove the clause at `row`; the row is free for another. Raises `UnknownRow` if nothing is stored there."""

    @abstractmethod
    def match(self, event: LoweredEvent) -> npt.NDArray[np.int32]:
        """The rows whose clauses match `event`: `int32[matches]`, ascending."""

    def match_batch(self, events: Sequence[LoweredEvent]) -> RowTable:
        """`match` for each event, in order."""
        return row_table([self.match(event) for event in events])

    def match_columns(self, batch: ColumnBatch) -> RowTable:
        """`match_batch` for `batch.lowered()`; the rows of an event are distinct, but in no order."""
        return self.match_batch(batch.lowered())

    def explain(self, event: LoweredEvent) -> dict[str, Any] | None:
        """Which structures are visited in which order, and how many rows are left after each, as JSON; None if the
        engine does not explain itself. Slow; for people."""
        return None

    def save(self, folder: Path) -> bool:
        """Write everything into files in `folder` that are named `*.index`, which `kindcast.index.registry.open_engine`
        opens. False: the engine has no file format, and nothing is written. Raises `OSError`."""
        return False

    @property
    def nbytes(self) -> int | None:
        """The bytes of index and caches; None if the engine does not measure them."""
        return None

    @property
    def structure(self) -> Mapping[str, int]:
        """How many parts of each kind there are, by name, for people who watch; empty if the engine tells nothing."""
        return {}

    @abstractmethod
    def check_invariants(self) -> None:
        """Raise AssertionError, with the internals in its text, if a structural invariant is broken. Slow; for
        tests."""


class EngineFactory(Protocol):
    """What the registry of engines holds: builds an empty engine over a concept graph."""

    def __call__(self, graph: ConceptGraph) -> Engine: ...


def row_table(found: Sequence[npt.NDArray[np.int32]]) -> RowTable:
    """The table of the rows of several events, one array each. Copies them.

    >>> table = row_table([np.array([1, 4], dtype=np.int32), np.array([], dtype=np.int32)])
    >>> table.offsets.tolist(), table.rows.tolist()
    ([0, 2, 2], [1, 4])
    """
    offsets = np.zeros(len(found) + 1, dtype=np.int64)
    np.cumsum([rows.size for rows in found], out=offsets[1:])
    return RowTable(offsets, np.concatenate(found) if found else np.array([], dtype=np.int32))
