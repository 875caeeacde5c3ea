"""A drawing as an engine takes it: clauses, and batches of events in columns.

Attribute `j` of the drawing is attribute `j` of the index, read in the column of the same number.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import overload

import numpy as np
import numpy.typing as npt

from kindcast.index.clause import (
    AttributeId,
    Clause,
    ColumnId,
    ConceptId,
    ConceptTest,
    IntervalTest,
    KeyTest,
    Predicate,
)
from kindcast.index.clause import Test as ClauseTest
from kindcast.index.concept_graph import ConceptGraph
from kindcast.index.engine import ColumnBatch, ColumnValues, KeyTable
from tests.benchmarks.workload_papers import CONCEPT, NUMBER, Drawing

__all__ = ["DrawnClauses", "drawn_clauses", "ends"]

ONE_SIDED = ("W2", "sparse")
"""Drawings whose intervals are bounds."""


@dataclass(frozen=True, slots=True)
class DrawnClauses:
    """What `run_engine` takes."""

    graph: ConceptGraph
    clauses: Sequence[Clause]
    batches: Sequence[ColumnBatch]


class LazyClauses(Sequence[Clause]):
    """The subscriptions as clauses, made when asked for: nobody keeps a million who need not."""

    def __init__(self, drawing: Drawing, numbers: range | None = None) -> None:
        self._drawing = drawing
        self._numbers = range(len(drawing.asked)) if numbers is None else numbers

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, at: int) -> Clause: ...
    @overload
    def __getitem__(self, at: slice) -> "LazyClauses": ...
    def __getitem__(self, at: int | slice) -> "Clause | LazyClauses":
        if isinstance(at, slice):
            return LazyClauses(self._drawing, self._numbers[at])
        return _clause(self._drawing, self._numbers[at])


def drawn_clauses(drawing: Drawing, batch: int) -> DrawnClauses:
    """Every subscription as one clause, the events in batches of `batch`."""
    size = (1 << (drawing.height + 1)) - 1 if CONCEPT in drawing.kinds else 0
    graph = ConceptGraph(size, ((node, (node - 1) // 2) for node in range(1, size)))
    clauses = LazyClauses(drawing)
    tables = [
        KeyTable([ConceptId(n) for n in range(size)] if kind == CONCEPT else _texts(drawing, j))
        for j, kind in enumerate(drawing.kinds)
    ]
    events = len(drawing.values)
    batches = [_batch(drawing, tables, start, min(start + batch, events)) for start in range(0, events, batch)]
    return DrawnClauses(graph, clauses, batches)


def _clause(drawing: Drawing, number: int) -> Clause:
    asked = [j for j in range(len(drawing.kinds)) if drawing.asked[number, j]]
    predicates = (Predicate(AttributeId(j), ((ColumnId(j), _test(drawing, number, j)),)) for j in asked)
    return Clause(tuple(predicates), frozenset(map(AttributeId, asked)))


def _test(drawing: Drawing, number: int, j: int) -> ClauseTest:
    low, high = int(drawing.low[number, j]), int(drawing.high[number, j])
    if drawing.kinds[j] == CONCEPT:
        return ConceptTest(within=frozenset([ConceptId(int(drawing.nodes[number, j]))]))
    if drawing.kinds[j] != NUMBER:
        return KeyTest(frozenset([f"v{low}"]))
    if low == high:
        return KeyTest(frozenset([float(low)]))
    least, most = ends(drawing, drawing.low[number, j : j + 1], drawing.high[number, j : j + 1])
    return IntervalTest(float(least[0]), float(most[0]))


def ends(
    drawing: Drawing, low: npt.NDArray[np.int32], high: npt.NDArray[np.int32]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """The ends of intervals as clauses have them. In the works of Le Subscribe they are `<=` and `>=`, which have one
    end; a drawing writes the other as the least or the greatest value."""
    least, most = low.astype(np.float64), high.astype(np.float64)
    if drawing.name in ONE_SIDED:
        bound = low < high
        upper = bound & (low <= 0)
        least[upper], most[bound & ~upper] = -np.inf, np.inf
    return least, most


def _texts(drawing: Drawing, j: int) -> list[str | int | float | bool | None]:
    return [f"v{value}" for value in range(int(drawing.values[:, j].max(initial=0)) + 1)]


def _batch(drawing: Drawing, tables: Sequence[KeyTable], start: int, stop: int) -> ColumnBatch:
    values = drawing.values[start:stop]
    patterns, kinds = np.unique(values >= 0, axis=0, return_inverse=True)
    presents = [frozenset(AttributeId(int(j)) for j in np.flatnonzero(pattern)) for pattern in patterns]
    columns = []
    for j, kind in enumerate(drawing.kinds):
        numbers = np.where(values[:, j] < 0, np.nan, values[:, j].astype(np.float64))
        if kind == NUMBER:
            columns.append(ColumnValues(ColumnId(j), numbers))
            continue
        places = drawing.event_nodes[start:stop, j] if kind == CONCEPT else values[:, j]
        columns.append(ColumnValues(ColumnId(j), numbers, tables[j], np.ascontiguousarray(places, dtype=np.int32)))
    return ColumnBatch(kinds.astype(np.int32).ravel(), presents, columns, {})
