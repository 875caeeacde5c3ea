"""The `matching_tree` engine: the tree of Aguilera et al., "Matching events in a content-based subscription system".

    clauses ─▶ one path each: the axes they ask for, most popular first ─▶ switch over index axes ─▶ trees
    event   ─▶ down every edge that it satisfies, and every don't-care edge ─▶ leaves

| in the paper | here |
|---|---|
| elementary test, result | an axis (column and way of asking), an operand; one node for all operands of an axis |
| don't-care edges, collapsed chains | `decision_tree` |
| successor nodes (erratum 24) | `successors`: for trees of equalities, and events with one value an axis |
| factoring of index attributes | `_Factored`: a switch by the value of an axis that nearly all ask for with `=` |
| pre-process | `plant`; what does not care about an index attribute is copied, and reported once (erratum 25) |

A node for an axis of bounds follows every edge whose bound holds; several values follow several edges (erratum 25). The
paper's bound of the expected time is of equality tests only; it is plotted, not asserted (erratum 23).
"""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from index.clause import Clause, ClauseRow, LoweredEvent
from index.column_batch import ColumnBatch
from index.concept_graph import ConceptGraph
from index.engine import RowTable
from index.fused.runs import distinct_rows
from index.published.axis_readings import Axis, AxisReadings, Reader
from index.published.built_engine import FEWEST_FRESH, BuiltEngine, Rows
from index.published.candidates import Candidates
from index.published.decision_tree import Path, plant
from index.published.elementary import AtLeast, AtMost, Elementary, Equal, Present, Within
from index.published.successors import annotate
from index.published.tree_arrays import tree_arrays
from index.published.tree_search import Said, search_trees

__all__ = ["MatchingTreeEngine"]

INDEXED_SHARE = 0.95
"""An axis becomes a switch when at least so many clauses ask for it with `=`: the others are copied to every branch."""
MOST_COPIES = 4.0
"""Clauses stored in all branches together, in clauses: what factoring may cost in memory."""


class MatchingTreeEngine(BuiltEngine):
    """Exact matching down a tree. `match` costs the nodes that it visits, some ns each."""

    def __init__(self, graph: ConceptGraph, *, fewest_fresh: int = FEWEST_FRESH) -> None:
        super().__init__(graph, _Factored, fewest_fresh)

    def match_columns(self, batch: ColumnBatch) -> RowTable:
        """What `match_batch` gives for `batch.lowered()`."""
        self._settle()
        structure = self._structure
        if not batch.is_flat or self._fresh or not isinstance(structure, _Factored):
            return self.match_batch(batch.lowered())
        return self._alive(structure.match_columns(batch))


class _Factored:
    """A switch over the index axis, if there is one, and a tree behind each of its values."""

    def __init__(self, graph: ConceptGraph, clauses: Mapping[ClauseRow, Clause]) -> None:
        self._candidates = Candidates(graph, clauses)
        keyed = {row: _keyed(parts.elementary) for row, parts in self._candidates.parts.items()}
        popular = Counter(axis for operands in keyed.values() for axis in operands)
        self._axes = sorted(popular, key=lambda axis: (-popular[axis], axis[0].__name__, axis[1:]))
        is_bound = [issubclass(kind, AtLeast | AtMost) for kind, _, _ in self._axes]
        self._at_least = np.array([kind is AtLeast for kind, _, _ in self._axes], dtype=np.bool_)
        number = {axis: at for at, axis in enumerate(self._axes)}
        paths: dict[int, Path] = {
            row: tuple(sorted((number[axis], operand) for axis, operand in operands.items()))
            for row, operands in keyed.items()
        }
        codes: list[dict[Hashable, int]] = [{} for _ in self._axes]
        for path in paths.values():
            for axis, operand in path:
                codes[axis].setdefault(operand, len(codes[axis]))
        self._reader = Reader(graph, self._axes, codes)
        self._index = _index_axis(self._axes, popular, paths)
        branches: dict[Hashable, list[tuple[int, Path]]] = {None: []}
        indifferent = [(row, path) for row, path in paths.items() if not self._switched(path)]
        for row, path in paths.items():
            if self._switched(path):
                operand = path[self._place(path)][1]
                rest = tuple(pair for pair in path if pair[0] != self._index)
                branches.setdefault(operand, []).append((row, rest))
        roots = [plant([*found, *indifferent], is_bound) for found in branches.values()]
        annotated = [annotate(root) for root in roots]
        self._trees, tops = tree_arrays(roots, codes)
        self._by_successors = np.zeros(self._trees.axis.size, dtype=np.bool_)
        self._by_successors[tops] = annotated
        self._else = tops[0]
        self._root_of_code = np.full(0 if self._index is None else len(codes[self._index]), tops[0], dtype=np.int32)
        for operand, top in zip(branches, tops, strict=True):
            if operand is not None and self._index is not None:
                self._root_of_code[codes[self._index][operand]] = top

    def _switched(self, path: Path) -> bool:
        return any(axis == self._index for axis, _ in path)

    def _place(self, path: Path) -> int:
        return next(at for at, (axis, _) in enumerate(path) if axis == self._index)

    def match(self, event: LoweredEvent) -> Rows:
        return self.match_batch([event]).rows

    def match_batch(self, events: Sequence[LoweredEvent]) -> RowTable:
        """The rows for each event, ascending."""
        return self._candidates.all_verified(self._found(self._reader.of_events(events)), events)

    def match_columns(self, batch: ColumnBatch) -> RowTable:
        """The same for a batch without events of several values."""
        found = self._found(self._reader.of_columns(batch))
        return self._candidates.all_verified(found, batch.lowered()) if self._candidates.inexact.any() else found

    def _found(self, readings: AxisReadings) -> RowTable:
        """The rows of every leaf that each event reaches, each once."""
        firsts, codes, values = readings
        events = len(values)
        root_firsts, roots = np.arange(events + 1, dtype=np.int64), np.full(events, self._else, dtype=np.int32)
        if self._index is not None:
            root_firsts, roots = self._switch(firsts[self._index :: len(self._axes)], firsts, codes)
        said = Said(firsts, codes, values, self._at_least, root_firsts, roots)
        offsets, rows = search_trees(self._trees, said, self._by_successors)
        return RowTable(*distinct_rows(offsets, rows, self._candidates.size))

    def _switch(
        self, starts: npt.NDArray[np.int64], firsts: npt.NDArray[np.int64], codes: npt.NDArray[np.int32]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
        """The trees of each event: those of its values of the index axis, or the one for all others."""
        assert self._index is not None
        ends = firsts[self._index + 1 :: len(self._axes)]
        found = [self._root_of_code[codes[start:end]] for start, end in zip(starts, ends, strict=False)]
        roots = [each if each.size else np.array([self._else], dtype=np.int32) for each in found]
        none = np.zeros(0, dtype=np.int32)
        return np.cumsum([0, *(each.size for each in roots)], dtype=np.int64), np.concatenate([none, *roots])


def _index_axis(axes: Sequence[Axis], popular: Counter[Axis], paths: Mapping[int, Path]) -> int | None:
    """The number of the axis to factor by, if it is asked by nearly all and copying the others stays cheap."""
    for at, axis in enumerate(axes):
        if axis[0] is Equal and axis[2] == 0 and popular[axis] >= INDEXED_SHARE * len(paths):
            values = {operand for path in paths.values() for number, operand in path if number == at}
            copies = (len(paths) - popular[axis]) * len(values) + popular[axis]
            if copies <= MOST_COPIES * len(paths):
                return at
    return None


def _keyed(predicates: Sequence[Elementary]) -> dict[Axis, Hashable]:
    """Axis → operand of each predicate of a clause."""
    found: dict[Axis, Hashable] = {}
    count: Counter[tuple[type, int]] = Counter()
    for each in predicates:
        match each:
            case Equal(column, operand) | Within(column, operand) | AtLeast(column, operand) | AtMost(column, operand):
                place: tuple[type, int] = type(each), column
            case Present(attribute):
                place, operand = (Present, attribute), True
        found[(*place, count[place])] = operand
        count[place] += 1
    return found
