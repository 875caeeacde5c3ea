"""The `dexin` engine: Algorithms 1 to 4 of "DEXIN", dynamic exclusive and inclusive matching, section 3.

An event goes through a pipeline with one stage for each *axis* that some clause constrains; what is left of the clauses
after the last stage has matched (Algorithm 3). A stage works in one of two ways:

    exclusive (Algorithm 1)   walk the rows whose constraint fails, and take them out; costs the share δ that fails
    inclusive (Algorithm 2)   walk the rows that are left, and check each; costs what is left

Before each event the matching rate ρ = 1 - δ of every axis is found, and Algorithm 4, low-matching-rate-first-fit, puts
the lowest first: exclusive as long as the rates so far leave more than the stage would exclude, inclusive afterwards.

Corrected (errata 9 to 13): bounds are closed on both sides, an open one having been moved to the next double, so the
rules for boundary types fall away; `!=` and other negations are verified on what is left; the rows before and behind a
value are counted exactly, so ρ lies in [0, 1]; the test is `ε > δ`. Bounds stand in one sorted array instead of slots
with trees inside: a slot for each bound, since the structure is built over many clauses at once.

The paper has numbers only. A key, a concept and the presence of an attribute are axes as well, where the rows that fail
are those that ask for something else; an axis that the event lacks fails for all rows that constrain it.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol, cast

import numpy as np
import numpy.typing as npt

from index.clause import Clause, ClauseRow, ColumnId, ConceptId, Key, LoweredEvent
from index.concept_graph import ConceptGraph
from index.published.built_engine import FEWEST_FRESH, BuiltEngine, Rows
from index.published.candidates import Candidates
from index.published.elementary import AtLeast, AtMost, Elementary, Equal, Present, Within

__all__ = ["DexinEngine"]

Alive = npt.NDArray[np.bool_]


class DexinEngine(BuiltEngine):
    """Exact matching by a pipeline of axes. `match` costs one binary search or look-up for each axis, then what the
    stages walk."""

    def __init__(self, graph: ConceptGraph, *, fewest_fresh: int = FEWEST_FRESH) -> None:
        super().__init__(graph, _Pipeline, fewest_fresh)


class _Stage(Protocol):
    """What one axis knows of one event."""

    failing: int
    """How many rows it would exclude."""

    def exclude(self, alive: Alive) -> None:
        """Algorithm 1: take the rows that fail out of `alive`."""

    def include(self, rows: Rows) -> Rows:
        """Algorithm 2: those of `rows` that do not fail."""


class _Pipeline:
    """Algorithm 3 over some clauses."""

    def __init__(self, graph: ConceptGraph, clauses: Mapping[ClauseRow, Clause]) -> None:
        self._candidates = Candidates(graph, clauses)
        self._all = np.zeros(self._candidates.size, dtype=np.bool_)
        numbers: dict[ColumnId, dict[int, tuple[float, float]]] = {}
        named: dict[tuple[bool, ColumnId, int], list[tuple[Key, int]]] = {}
        present: dict[int, list[int]] = {}
        for row, parts in self._candidates.parts.items():
            self._all[row] = True
            copies: dict[tuple[bool, ColumnId], int] = {}
            for each in parts.elementary:
                match each:
                    case AtLeast(column, bound):
                        low, high = numbers.setdefault(column, {}).get(row, (-np.inf, np.inf))
                        numbers[column][row] = max(low, bound), high
                    case AtMost(column, bound):
                        low, high = numbers.setdefault(column, {}).get(row, (-np.inf, np.inf))
                        numbers[column][row] = low, min(high, bound)
                    case Present(attribute):
                        present.setdefault(attribute, []).append(row)
                    case _:
                        place = isinstance(each, Within), each.column
                        copies[place] = copies.get(place, -1) + 1
                        named.setdefault((*place, copies[place]), []).append((_operand(each), row))
        size = self._candidates.size
        self._axes: list[_Numbers | _Names | _Presence] = [
            *(_Numbers(column, intervals, size) for column, intervals in numbers.items()),
            *(_Names(graph, is_concept, column, pairs, size) for (is_concept, column, _), pairs in named.items()),
            *(_Presence(attribute, rows, size) for attribute, rows in present.items()),
        ]

    def match(self, event: LoweredEvent) -> Rows:
        alive = self._all.copy()
        exclusive, inclusive = _first_fit([axis.stage(event) for axis in self._axes], len(self._candidates.parts))
        for stage in exclusive:
            stage.exclude(alive)
        rows = np.flatnonzero(alive).astype(np.int32)
        for stage in inclusive:
            rows = stage.include(rows)
        return self._candidates.verified(rows, event)


def _first_fit(stages: Sequence[_Stage], clauses: int) -> tuple[Sequence[_Stage], Sequence[_Stage]]:
    """Algorithm 4: the stages that exclude, in order, and those that include after them."""
    ordered = sorted((stage for stage in stages if stage.failing), key=lambda stage: -stage.failing)
    left = 1.0
    for number, stage in enumerate(ordered):
        failing = stage.failing / clauses
        if number and left <= failing:
            return ordered[:number], ordered[number:]
        left *= 1.0 - failing
    return ordered, ()


def _operand(predicate: Elementary) -> Key:
    return predicate.key if isinstance(predicate, Equal) else cast(Key, cast(Within, predicate).concept)


class _Numbers:
    """Intervals of one column: rows by lower and by upper bound. For several values, what the smallest and the largest
    of them allow."""

    def __init__(self, column: ColumnId, intervals: Mapping[int, tuple[float, float]], size: int) -> None:
        self._column = column
        rows = np.fromiter(intervals, dtype=np.int32, count=len(intervals))
        low = np.array([low for low, _ in intervals.values()], dtype=np.float64)
        high = np.array([high for _, high in intervals.values()], dtype=np.float64)
        by_low, by_high = np.argsort(low, kind="stable"), np.argsort(high, kind="stable")
        self.lows, self.rows_by_low = low[by_low], rows[by_low]
        self.highs, self.rows_by_high = high[by_high], rows[by_high]
        self.low, self.high = np.full(size, -np.inf), np.full(size, np.inf)
        self.low[rows], self.high[rows] = low, high
        self.rows = rows
        self.constrains = np.zeros(size, dtype=np.bool_)
        self.constrains[rows] = True

    def stage(self, event: LoweredEvent) -> _Stage:
        values = cast(tuple[float, ...], event.values.get(self._column, ()))
        return _NumberStage(self, min(values), max(values)) if values else _AllFail(self.rows, self.constrains)


class _NumberStage:
    def __init__(self, axis: _Numbers, least: float, most: float) -> None:
        self._axis, self._least, self._most = axis, least, most
        self._above = int(np.searchsorted(axis.lows, most, side="right"))  # from here on the lower bound is above
        self._below = int(np.searchsorted(axis.highs, least, side="left"))  # up to here the upper bound is below
        # An interval without any number in it (two bounds that contradict each other) may fail on both sides.
        self.failing = min(len(axis.lows) - self._above + self._below, len(axis.lows))

    def exclude(self, alive: Alive) -> None:
        alive[self._axis.rows_by_low[self._above :]] = False
        alive[self._axis.rows_by_high[: self._below]] = False

    def include(self, rows: Rows) -> Rows:
        return rows[(self._axis.low[rows] <= self._most) & (self._axis.high[rows] >= self._least)]


class _Names:
    """Keys or concepts of one column, at most one a row."""

    def __init__(
        self, graph: ConceptGraph, is_concept: bool, column: ColumnId, pairs: Sequence[tuple[Key, int]], size: int
    ) -> None:
        self._graph, self._is_concept, self._column = graph, is_concept, column
        found: dict[Key, list[int]] = {}
        for key, row in pairs:
            found.setdefault(key, []).append(row)
        self._rows_of = {key: np.array(rows, dtype=np.int32) for key, rows in found.items()}
        self._rows = np.array([row for _, row in pairs], dtype=np.int32)
        self._constrains = np.zeros(size, dtype=np.bool_)
        self._constrains[self._rows] = True

    def stage(self, event: LoweredEvent) -> _Stage:
        keys: set[Key] = set(event.values.get(self._column, ()))
        if self._is_concept:
            keys = {cast(Key, upper) for key in keys for upper in self._graph.ancestors(cast(ConceptId, key))}
        passing = [self._rows_of[key] for key in keys if key in self._rows_of]
        if not passing:
            return _AllFail(self._rows, self._constrains)
        return _NameStage(self._rows, self._constrains, np.concatenate(passing))


class _NameStage:
    def __init__(self, rows: Rows, constrains: Alive, passing: Rows) -> None:
        self.failing = len(rows) - len(passing)
        self._fails = constrains.copy()
        self._fails[passing] = False

    def exclude(self, alive: Alive) -> None:
        alive &= ~self._fails

    def include(self, rows: Rows) -> Rows:
        return rows[~self._fails[rows]]


class _Presence:
    """Rows that only need an attribute to be there."""

    def __init__(self, attribute: int, rows: Sequence[int], size: int) -> None:
        self._attribute = attribute
        self._rows = np.array(rows, dtype=np.int32)
        self._constrains = np.zeros(size, dtype=np.bool_)
        self._constrains[self._rows] = True

    def stage(self, event: LoweredEvent) -> _Stage:
        rows = self._rows[:0] if self._attribute in event.present else self._rows
        return _AllFail(rows, self._constrains)


class _AllFail:
    """Every row of the axis fails; or none does, where there are no `rows`."""

    def __init__(self, rows: Rows, constrains: Alive) -> None:
        self.failing = len(rows)
        self._rows, self._constrains = rows, constrains

    def exclude(self, alive: Alive) -> None:
        alive[self._rows] = False

    def include(self, rows: Rows) -> Rows:
        return rows[~self._constrains[rows]]
