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

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import cast

import numpy as np

from index.clause import Clause, ClauseRow, ConceptId, LoweredEvent
from index.concept_graph import ConceptGraph
from index.published.built_engine import FEWEST_FRESH, BuiltEngine, Rows
from index.published.candidates import Candidates
from index.published.decision_tree import Path, plant
from index.published.elementary import AtLeast, AtMost, Elementary, Equal, Present, Within
from index.published.successors import annotate

__all__ = ["MatchingTreeEngine"]

INDEXED_SHARE = 0.95
"""An axis becomes a switch when at least so many clauses ask for it with `=`: the others are copied to every branch."""
MOST_COPIES = 4.0
"""Clauses stored in all branches together, in clauses: what factoring may cost in memory."""

Axis = tuple[type, int, int]
"""How it is asked (the kind of predicate), of which column or attribute, and the how-manieth time in the clause."""


class MatchingTreeEngine(BuiltEngine):
    """Exact matching down a tree. `match` costs the nodes that it visits, some hundred ns each."""

    def __init__(self, graph: ConceptGraph, *, fewest_fresh: int = FEWEST_FRESH) -> None:
        super().__init__(graph, _Factored, fewest_fresh)


class _Factored:
    """A switch over the index axis, if there is one, and a tree behind each of its values."""

    def __init__(self, graph: ConceptGraph, clauses: Mapping[ClauseRow, Clause]) -> None:
        self._candidates = Candidates(graph, clauses)
        keyed = {row: _keyed(parts.elementary) for row, parts in self._candidates.parts.items()}
        popular = Counter(axis for operands in keyed.values() for axis in operands)
        self._axes = sorted(popular, key=lambda axis: (-popular[axis], axis[0].__name__, axis[1:]))
        self._is_bound = [issubclass(kind, AtLeast | AtMost) for kind, _, _ in self._axes]
        number = {axis: at for at, axis in enumerate(self._axes)}
        paths: dict[int, Path] = {
            row: tuple(sorted((number[axis], operand) for axis, operand in operands.items()))
            for row, operands in keyed.items()
        }
        self._reader = _Reader(graph, self._axes)
        self._index = _index_axis(self._axes, popular, paths)
        branches: dict[Hashable, list[tuple[int, Path]]] = {None: []}
        indifferent = [(row, path) for row, path in paths.items() if not self._switched(path)]
        for row, path in paths.items():
            if self._switched(path):
                operand = path[self._place(path)][1]
                rest = tuple(pair for pair in path if pair[0] != self._index)
                branches.setdefault(operand, []).append((row, rest))
        self._trees = {operand: _Tree([*found, *indifferent], self._is_bound) for operand, found in branches.items()}

    def _switched(self, path: Path) -> bool:
        return any(axis == self._index for axis, _ in path)

    def _place(self, path: Path) -> int:
        return next(at for at, (axis, _) in enumerate(path) if axis == self._index)

    def match(self, event: LoweredEvent) -> Rows:
        read = self._reader.read(event)
        switched = read.get(self._index, ()) if self._index is not None else ()
        trees = [self._trees[operand] for operand in switched if operand in self._trees] or [self._trees[None]]
        found = [rows for tree in trees for rows in tree.leaves(read)]
        if not found:
            return np.zeros(0, dtype=np.int32)
        rows = np.concatenate(found)
        return self._candidates.verified(np.unique(rows) if len(trees) > 1 else rows, event)


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


class _Reader:
    """What an event says to each axis: the operands that its values satisfy, or the value that bounds are held to."""

    def __init__(self, graph: ConceptGraph, axes: Sequence[Axis]) -> None:
        self._graph = graph
        self._of_column: dict[int, list[tuple[int, type]]] = {}
        self._of_attribute: dict[int, list[int]] = {}
        for at, (kind, place, _) in enumerate(axes):
            if kind is Present:
                self._of_attribute.setdefault(place, []).append(at)
            else:
                self._of_column.setdefault(place, []).append((at, kind))

    def read(self, event: LoweredEvent) -> dict[int | None, tuple[Hashable, ...]]:
        """Axis → operands; an axis that the event does not have is missing."""
        read: dict[int | None, tuple[Hashable, ...]] = {}
        for column, values in event.values.items():
            above: tuple[Hashable, ...] | None = None
            for at, kind in self._of_column.get(column, ()):
                if kind is Equal:
                    read[at] = values
                elif kind is Within:
                    if above is None:
                        concepts = cast(tuple[ConceptId, ...], values)
                        above = tuple({upper for each in concepts for upper in self._graph.ancestors(each)})
                    read[at] = above
                else:
                    numbers = cast(tuple[float, ...], values)
                    read[at] = (max(numbers) if kind is AtLeast else min(numbers), kind)
        for attribute in event.present:
            for at in self._of_attribute.get(attribute, ()):
                read[at] = (True,)
        return read


class _Tree:
    """One tree, searched by successor nodes where that is possible."""

    def __init__(self, clauses: Sequence[tuple[int, Path]], is_bound: Sequence[bool]) -> None:
        self._root = plant(clauses, is_bound)
        self._annotated = annotate(self._root)

    def leaves(self, read: Mapping[int | None, tuple[Hashable, ...]]) -> list[Rows]:
        """The rows of every leaf that the event reaches, each leaf once."""
        if self._annotated and all(len(operands) == 1 for operands in read.values()):
            return self._by_successors(read)
        found: list[Rows] = []
        stack = [self._root]
        while stack:
            node = stack.pop()
            if node.rows.size:
                found.append(node.rows)
            if node.star is not None:
                stack.append(node.star)
            operands = read.get(node.axis)
            if operands is None:
                continue
            if node.bounds is not None:
                value, kind = operands
                if kind is AtLeast:
                    stack.extend(node.ordered[: bisect_right(node.bounds, cast(float, value))])
                else:
                    stack.extend(node.ordered[bisect_left(node.bounds, cast(float, value)) :])
            else:
                edges = node.edges
                stack.extend(edges[operand] for operand in operands if operand in edges)
        return found

    def _by_successors(self, read: Mapping[int | None, tuple[Hashable, ...]]) -> list[Rows]:
        """Down the edges with operands as far as they go, then on at the successors; each node once (erratum 24)."""
        found: list[Rows] = []
        visited: set[int] = set()
        stack = [self._root]
        while stack:
            node = stack.pop()
            while id(node) not in visited:
                visited.add(id(node))
                operands = read.get(node.axis)
                child = node.edges.get(operands[0]) if operands else None
                if child is None:
                    if node.rows.size:
                        found.append(node.rows)
                    stack.extend(node.successors)
                    break
                node = child
        return found
