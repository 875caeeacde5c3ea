"""The `matching_tree` engine: the tree of Aguilera et al., "Matching events in a content-based subscription system".

    clauses ─▶ one path each: the axes they ask for, most popular first ─▶ switch over index axes ─▶ trees
    event   ─▶ down every edge that it satisfies, and every don't-care edge ─▶ leaves

| in the paper | here |
|---|---|
| elementary test, result | an axis (column and way of asking), an operand; one node for all operands of an axis |
| don't-care edges, collapsed chains | `decision_tree` |
| successor nodes (erratum 24) | `successors`: for trees of equalities, and events with one value an axis |
| factoring of index attributes | `_Factored`: a switch by the values of axes that most ask for with `=` |
| pre-process | `plant`; what does not care about an index attribute is copied, and reported once (erratum 25) |

A node for an axis of bounds follows every edge whose bound holds; several values follow several edges (erratum 25). The
paper's bound of the expected time is of equality tests only; it is plotted, not asserted (erratum 23).
"""

import heapq
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import partial
from itertools import product
from operator import mul
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from kindcast.index.clause import Clause, ClauseRow, LoweredEvent
from kindcast.index.columns import ColumnBatch
from kindcast.index.concept_graph import ConceptGraph
from kindcast.index.engine import RowTable, row_table
from kindcast.index.errors import UnknownRow
from kindcast.index.fused.runs import distinct_rows
from kindcast.index.naive import clause_matches
from kindcast.index.published.axis_readings import Axis, AxisReadings, Reader
from kindcast.index.published.elementary import AtLeast, AtMost, Elementary, Equal, Parts, Present, Within, parts_of
from kindcast.index.published.matching_tree.decision_tree import Path, annotate, plant
from kindcast.index.published.matching_tree.search import Said, search_trees, tree_arrays

__all__ = ["MatchingTreeEngine"]


# An engine whose structure is built over many clauses at once, and never changed.
#
#     add ─▶ fresh clauses, asked by definition ─▶ enough of them: a structure over all clauses
#     remove ─▶ out of the fresh ones, or taken out of what the structure finds
#
# So `matching_tree` is the published structure and its matching, nothing else. Adding costs the building of the
# structure, spread over as many additions as an eighth of the clauses.

Rows = npt.NDArray[np.int32]

FEWEST_FRESH = 64
"""Fresh clauses before a structure is built at all: asking them costs some 100 µs an event."""
FRESH_SHARE = 8
"""A structure is built again when the fresh clauses are an eighth of all."""


class Structure(Protocol):
    """A published structure over some clauses, by row. Immutable."""

    def match(self, event: LoweredEvent) -> Rows:
        """The rows whose clauses match `event`, in any order, each once."""


@runtime_checkable
class BatchStructure(Structure, Protocol):
    """A structure that takes many events in one call."""

    def match_batch(self, events: Sequence[LoweredEvent]) -> RowTable:
        """`match` for each event, in order, the rows ascending."""


class StructureFactory(Protocol):
    def __call__(self, graph: ConceptGraph, clauses: Mapping[ClauseRow, Clause]) -> Structure: ...


class BuiltEngine:
    """Invariant: a stored row is fresh or in the structure, and never both; rows of the structure that were removed, or
    used again, are in `_gone`."""

    def __init__(self, graph: ConceptGraph, build: StructureFactory, fewest_fresh: int) -> None:
        self._graph = graph
        self._build = build
        self._fewest_fresh = fewest_fresh
        self._clauses: dict[ClauseRow, Clause] = {}
        self._free: list[ClauseRow] = []
        self._fresh: dict[ClauseRow, Clause] = {}
        self._built: set[ClauseRow] = set()
        self._gone = np.zeros(0, dtype=np.bool_)
        self._structure: Structure | None = None

    def __len__(self) -> int:
        return len(self._clauses)

    def add(self, clause: Clause) -> ClauseRow:
        """Store `clause` at the lowest free row."""
        row = heapq.heappop(self._free) if self._free else ClauseRow(len(self._clauses))
        self._clauses[row] = clause
        self._fresh[row] = clause
        return row

    def add_many(self, clauses: Iterable[Clause]) -> list[ClauseRow]:
        """`add` each in turn; the structure is built when the next event comes."""
        return [self.add(clause) for clause in clauses]

    def remove(self, row: ClauseRow) -> None:
        """Forget the clause at `row`. Raises `UnknownRow`."""
        if self._clauses.pop(row, None) is None:
            raise UnknownRow(row)
        if self._fresh.pop(row, None) is None:
            self._built.discard(row)
            self._gone[row] = True
        heapq.heappush(self._free, row)

    def match(self, event: LoweredEvent) -> Rows:
        """The rows whose clauses match `event`, ascending."""
        self._settle()
        fresh = [row for row, clause in self._fresh.items() if clause_matches(self._graph, clause, event)]
        if self._structure is None:
            return np.array(sorted(fresh), dtype=np.int32)
        found = self._structure.match(event)
        found = found[~self._gone[found]]
        return np.sort(np.concatenate([found, np.array(fresh, dtype=np.int32)]))

    def match_batch(self, events: Sequence[LoweredEvent]) -> RowTable:
        """`match` for each event, in order."""
        self._settle()
        if self._fresh or not isinstance(self._structure, BatchStructure):
            return row_table([self.match(event) for event in events])
        return self._alive(self._structure.match_batch(events))

    def check_invariants(self) -> None:
        """Raise AssertionError if the books of rows disagree."""
        assert self._fresh.keys().isdisjoint(self._built), (self._fresh.keys(), self._built)
        assert self._fresh.keys() | self._built == self._clauses.keys(), (self._fresh, self._built)
        assert sorted([*self._clauses, *self._free]) == list(range(len(self._clauses) + len(self._free)))
        assert not any(self._gone[row] for row in self._built), self._gone

    def _settle(self) -> None:
        """Build the structure again if too many clauses are not in it."""
        if len(self._fresh) > max(self._fewest_fresh, len(self._clauses) // FRESH_SHARE):
            self._rebuild()

    def _alive(self, found: RowTable) -> RowTable:
        """What the structure found, without the rows that were removed."""
        kept = ~self._gone[found.rows]
        if kept.all():
            return found
        offsets = np.concatenate([[0], np.cumsum(kept)])[found.offsets].astype(np.int64)
        return RowTable(offsets, found.rows[kept])

    def _rebuild(self) -> None:
        self._structure = self._build(self._graph, self._clauses)
        self._built = set(self._clauses)
        self._gone = np.zeros(len(self._clauses) + len(self._free), dtype=np.bool_)
        self._fresh = {}


# ── candidates ────────────────────────────────────────────────────────────────────────────────────────────────────────
# Clauses in a structure: their parts, and the verification of candidates that the structure cannot decide.


class Candidates:
    """The clauses that some event can match, by row. Immutable.

    `parts[row]`; `size` is above every row; `inexact[row]` where a candidate is always verified, `bounded[row]` where
    it is if the event has several values in a column.
    """

    def __init__(self, graph: ConceptGraph, clauses: Mapping[ClauseRow, Clause]) -> None:
        self._graph = graph
        self._clauses = dict(clauses)
        self.size = max(clauses, default=-1) + 1
        self.parts: dict[ClauseRow, Parts] = {}
        self.inexact = np.zeros(self.size, dtype=np.bool_)
        self.bounded = np.zeros(self.size, dtype=np.bool_)
        for row, clause in clauses.items():
            parts = parts_of(clause)
            if parts is not None:
                self.parts[row] = parts
                self.inexact[row] = not parts.exact
                self.bounded[row] = any(isinstance(each, AtLeast | AtMost) for each in parts.elementary)

    def verified(self, rows: Rows, event: LoweredEvent) -> Rows:
        """Those of `rows` that match `event`: the exact ones as they are, the others by definition."""
        doubtful = self.inexact[rows]
        if any(len(values) > 1 for values in event.values.values()):
            doubtful = doubtful | self.bounded[rows]
        if not doubtful.any():
            return rows
        asked = rows[doubtful]
        graph, clauses = self._graph, self._clauses
        good = [row for row in asked.tolist() if clause_matches(graph, clauses[ClauseRow(row)], event)]
        return np.concatenate([rows[~doubtful], np.array(good, dtype=np.int32)])

    def all_verified(self, found: RowTable, events: Sequence[LoweredEvent]) -> RowTable:
        """The same for a batch; rows stay in their order."""
        several = np.array(
            [any(len(values) > 1 for values in event.values.values()) for event in events], dtype=np.bool_
        )
        event_of = np.repeat(np.arange(len(events)), np.diff(found.offsets))
        doubtful = self.inexact[found.rows] | (self.bounded[found.rows] & several[event_of])
        if not doubtful.any():
            return found
        kept = np.ones(found.rows.size, dtype=np.bool_)
        for at in np.flatnonzero(doubtful).tolist():
            clause = self._clauses[ClauseRow(int(found.rows[at]))]
            kept[at] = clause_matches(self._graph, clause, events[event_of[at]])
        offsets = np.concatenate([[0], np.cumsum(kept)])[found.offsets].astype(np.int64)
        return RowTable(offsets, found.rows[kept])


# ── the engine ────────────────────────────────────────────────────────────────────────────────────────────────────────

INDEXED_SHARE = 0.75
"""An axis becomes an index when at least so many clauses ask for it with `=`: the others are copied to every branch."""
MOST_INDEX_AXES = 8
"""Index axes at most: the branches are the combinations of their values."""
MOST_COPIES = 4.0
"""Clauses stored in all branches together, in clauses: what all index axes together may cost in memory."""


class MatchingTreeEngine(BuiltEngine):
    """Exact matching down a tree. `match` costs the nodes that it visits, some ns each."""

    def __init__(
        self, graph: ConceptGraph, *, fewest_fresh: int = FEWEST_FRESH, most_index_axes: int = MOST_INDEX_AXES
    ) -> None:
        super().__init__(graph, partial(_Factored, most_index_axes=most_index_axes), fewest_fresh)

    def match_columns(self, batch: ColumnBatch) -> RowTable:
        """What `match_batch` gives for `batch.lowered()`."""
        self._settle()
        structure = self._structure
        if not batch.is_flat or self._fresh or not isinstance(structure, _Factored):
            return self.match_batch(batch.lowered())
        return self._alive(structure.match_columns(batch))

    def visits(self, events: Sequence[LoweredEvent]) -> npt.NDArray[np.int64]:
        """The paper's measure of time: edges followed and successors visited for each event, `int64[events]`. Clauses
        that are not in the tree yet are brought into it."""
        return self._tree().visits(events)

    @property
    def space(self) -> int:
        """The paper's measure of space: edges of all trees, and the sizes of their successor sets."""
        return self._tree().space

    @property
    def index_axes(self) -> int:
        """How many axes are factored."""
        return self._tree().index_axes

    def _tree(self) -> "_Factored":
        if self._fresh or self._structure is None:
            self._rebuild()
        structure = self._structure
        assert isinstance(structure, _Factored)
        return structure


class _Factored:
    """A switch over the index axes, if there are any, and a tree behind each combination of their values."""

    def __init__(
        self, graph: ConceptGraph, clauses: Mapping[ClauseRow, Clause], most_index_axes: int = MOST_INDEX_AXES
    ) -> None:
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
        self._index = _index_axes(self._axes, popular, paths, most_index_axes)
        self._values = np.array([len(codes[axis]) for axis in self._index], dtype=np.int64)
        self._strides = np.array(
            [np.prod(self._values[at + 1 :] + 1) for at in range(len(self._index))], dtype=np.int64
        )
        strides = self._strides.tolist()
        branches: dict[int, list[tuple[int, Path]]] = {}
        for row, path in paths.items():
            asked = dict(path)
            digits = [
                (codes[axis][asked[axis]],) if axis in asked else range(len(codes[axis]) + 1) for axis in self._index
            ]
            rest = tuple(pair for pair in path if pair[0] not in self._index)
            for chosen in product(*digits):
                branch = sum(map(mul, chosen, strides))
                branches.setdefault(branch, []).append((row, rest))
        roots = [plant([], is_bound), *(plant(found, is_bound) for found in branches.values())]
        annotated = [annotate(root) for root in roots]
        self._trees, tops = tree_arrays(roots, codes)
        self._by_successors = np.zeros(self._trees.axis.size, dtype=np.bool_)
        self._by_successors[tops] = annotated
        self._root_of = np.full(int(np.prod(self._values + 1)), tops[0], dtype=np.int32)
        self._root_of[list(branches)] = tops[1:]

    @property
    def index_axes(self) -> int:
        return len(self._index)

    @property
    def space(self) -> int:
        trees = self._trees
        return int(trees.children.size + (trees.star >= 0).sum() + trees.later.size)

    def visits(self, events: Sequence[LoweredEvent]) -> npt.NDArray[np.int64]:
        """Edges followed and successors visited."""
        return self._searched(self._reader.of_events(events))[2]

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
        offsets, rows, _ = self._searched(readings)
        return RowTable(*distinct_rows(offsets, rows, self._candidates.size))

    def _searched(
        self, readings: AxisReadings
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32], npt.NDArray[np.int64]]:
        firsts, codes, values = readings
        root_firsts, roots = self._switch(len(values), firsts, codes)
        said = Said(firsts, codes, values, self._at_least, root_firsts, roots)
        return search_trees(self._trees, said, self._by_successors)

    def _switch(
        self, events: int, firsts: npt.NDArray[np.int64], codes: npt.NDArray[np.int32]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
        """The trees of each event: those of its values of the index axes, `value + 1` being any other one."""
        axes = len(self._axes)
        starts = firsts[:-1].reshape(events, axes)[:, self._index]
        counts = np.diff(firsts).reshape(events, axes)[:, self._index]
        if (counts <= 1).all():
            known = np.append(codes, np.int32(0))[starts]
            places = np.where(counts == 1, known, self._values) @ self._strides
            return np.arange(events + 1, dtype=np.int64), self._root_of[places]
        found: list[list[int]] = []
        strides = self._strides.tolist()
        for start, count in zip(starts.tolist(), counts.tolist(), strict=True):
            digits = [
                codes[first : first + size].tolist() or [other]
                for first, size, other in zip(start, count, self._values.tolist(), strict=True)
            ]
            found.append([sum(map(mul, chosen, strides)) for chosen in product(*digits)])
        places = np.array([place for each in found for place in each], dtype=np.int64)
        return np.cumsum([0, *map(len, found)], dtype=np.int64), self._root_of[places]


def _index_axes(axes: Sequence[Axis], popular: Counter[Axis], paths: Mapping[int, Path], most: int) -> list[int]:
    """The numbers of the axes to factor by, most popular first: those that most clauses ask for, as long as copying the
    clauses that do not care stays within `MOST_COPIES`."""
    found: list[int] = []
    copies = np.ones(len(paths))
    for at, axis in enumerate(axes):
        if len(found) == most or axis[0] is not Equal or axis[2] != 0 or popular[axis] < INDEXED_SHARE * len(paths):
            continue
        operands = [next((value for number, value in path if number == at), None) for path in paths.values()]
        values = len({each for each in operands if each is not None})
        more = copies * np.array([1 if each is not None else values + 1 for each in operands])
        if more.sum() <= MOST_COPIES * len(paths):
            found.append(at)
            copies = more
    return sorted(found)


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
