"""The `matching_tree` engine: the tree of Aguilera et al., "Matching events in a content-based subscription system".

    clauses ─▶ one path per clause: its axes, most popular first ─▶ switch over index axes ─▶ trees
    event   ─▶ down every edge that it satisfies, and every don't-care edge ─▶ leaves

| in the paper | here |
|---|---|
| elementary test, result | an axis (column and comparison), an operand; one node for all operands of an axis |
| don't-care edges, collapsed chains | `Node` |
| successor nodes (erratum 24) | `successors`: for trees of equalities, and events with one value per axis |
| factoring of index attributes | `_Factored`: a switch by the values of axes that most clauses test with `=` |
| pre-process | `plant`; clauses without a test of an index attribute are copied, and reported once (erratum 25) |

At a node for an axis of bounds, the search follows every edge whose bound holds. Several values follow several edges
(erratum 25). The paper's bound of the expected time holds for equality tests only; it is plotted, not asserted
(erratum 23).

A node of a tree tests an axis, its edges are the results, and one of its edges is the don't-care edge.

    node      tests one axis; operand ─▶ child for each operand in a clause; `star` is the don't-care edge
    leaf      the rows whose predicates are exactly those on the path to it
    collapsed a node tests the first axis in any clause below it, so no node has only a don't-care edge

Axes are ordered by the number of clauses that test them, in descending order.

One compiled call searches the trees for many events. On an axis of equality, an event has a run of codes: the operands
that its values satisfy. On an axis of bounds, it has one value. A search follows every edge that the event satisfies
and every don't-care edge. With successor nodes, it descends along edges with operands until no edge matches, and
continues at the successors of the last node (erratum 24). It visits each node once.
"""

import heapq
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from operator import mul
from typing import NamedTuple, Protocol, cast, runtime_checkable

import numpy as np
import numpy.typing as npt

from kindcast.index.clause import Clause, ClauseRow, LoweredEvent
from kindcast.index.concept_graph import ConceptGraph
from kindcast.index.engine import ColumnBatch, Engine, RowTable, row_table
from kindcast.index.errors import UnknownRow
from kindcast.index.fused.search import distinct_rows
from kindcast.index.jit import compiled
from kindcast.index.naive import clause_matches
from kindcast.index.published.shared import (
    AtLeast,
    AtMost,
    Axis,
    AxisReadings,
    Elementary,
    Equal,
    OperandCodes,
    Parts,
    Present,
    Reader,
    Within,
    parts_of,
)

__all__ = ["MatchingTreeEngine", "Node", "Path", "Said", "annotate", "plant", "search_trees", "tree_arrays"]


Rows = npt.NDArray[np.int32]
Path = tuple[tuple[int, Hashable], ...]
"""The tests of a clause as pairs (axis, operand), sorted by axis. Each axis occurs once."""

LEAF = 1 << 30
"""The axis of a leaf. It is greater than all other axes."""


@dataclass(slots=True, eq=False)
class Node:
    """A node of a tree. `by_star` says whether the don't-care edge of `parent` leads to it; otherwise an edge with an
    operand does."""

    axis: int
    parent: "Node | None" = None
    by_star: bool = False
    edges: dict[Hashable, "Node"] = field(default_factory=dict)
    star: "Node | None" = None
    rows: Rows = field(default_factory=lambda: np.zeros(0, dtype=np.int32))
    bounds: npt.NDArray[np.float64] | None = None
    """The operands in ascending order, if the axis is an axis of bounds."""
    ordered: list["Node"] = field(default_factory=list)
    successors: tuple["Node", ...] = ()

    def children(self) -> Iterator["Node"]:
        yield from self.edges.values()
        if self.star is not None:
            yield self.star


def plant(clauses: Sequence[tuple[int, Path]], is_bound: Iterable[bool]) -> Node:
    """Builds the tree of (row, path) pairs and returns its root. `is_bound[axis]` is true if the operands of the axis
    are bounds. Linear in the number of nodes, which is at most the total length of all paths, and one don't-care edge
    for each."""
    bound_axes = list(is_bound)
    top: list[Node] = []
    waiting: list[tuple[list[tuple[int, Path, int]], Node | None, bool, Hashable]] = [
        ([(row, path, 0) for row, path in clauses], None, False, None)
    ]
    while waiting:
        group, parent, by_star, operand = waiting.pop()
        axis = min((path[at][0] for _, path, at in group if at < len(path)), default=LEAF)
        node = Node(axis, parent, by_star)
        if parent is None:
            top.append(node)
        elif by_star:
            parent.star = node
        else:
            parent.edges[operand] = node
        if axis == LEAF:
            node.rows = np.array([row for row, _, _ in group], dtype=np.int32)
            continue
        asking: dict[Hashable, list[tuple[int, Path, int]]] = {}
        indifferent = []
        for row, path, at in group:
            if at < len(path) and path[at][0] == axis:
                asking.setdefault(path[at][1], []).append((row, path, at + 1))
            else:
                indifferent.append((row, path, at))
        if bound_axes[axis]:
            node.bounds = np.array(sorted(asking), dtype=np.float64)  # type: ignore[type-var]
        waiting.extend((found, node, False, value) for value, found in asking.items())
        if indifferent:
            waiting.append((indifferent, node, True, None))
    _order(top[0])
    return top[0]


def _order(root: Node) -> None:
    """Fills `ordered` of the nodes for axes of bounds, after all children exist."""
    stack = [root]
    while stack:
        node = stack.pop()
        if node.bounds is not None:
            node.ordered = [node.edges[bound] for bound in node.bounds.tolist()]
        stack.extend(node.children())


# Successor nodes: the nodes at which a blocked search continues, so that it need not try both edges of each node.
#
# A search for an event with one value per axis follows edges with operands only. At a node where no edge matches, or at
# a leaf, all other matching leaves are below
#
#     the don't-care edge of this node, or
#     a node that is reached by the same path if one or more edges of its last run of operands are replaced by
#     don't-care edges
#
# (erratum 24; Aguilera et al., the section on optimisations). Nodes that are reached through another of these nodes are
# left out: if one replaced edge leads to a node, the nodes with further edges replaced *after* it are successors of
# that node. If a path beside the run tests an axis that the run skips (its don't-care edges are collapsed), the search
# continues there. All successors are computed in advance by a walk beside the run.

MOST_SUCCESSORS = 64
"""Maximum number of successors of a node. If a node has more, its tree is searched along both edges."""


def annotate(root: Node) -> bool:
    """Fills `successors` of every node. Returns False if a node has too many successors or tests an axis of bounds; the
    tree is then searched without successors."""
    stack = [root]
    while stack:
        node = stack.pop()
        if node.bounds is not None:
            return False
        found = _beside(node)
        if len(found) > MOST_SUCCESSORS:
            return False
        node.successors = tuple(found) if node.star is None else (node.star, *found)
        stack.extend(node.children())
    return True


def _beside(node: Node) -> list[Node]:
    """Returns the nodes beside the last run of edges with operands above `node`."""
    run: list[tuple[int, object]] = []
    top = node
    while top.parent is not None and not top.by_star:
        operand = next(value for value, child in top.parent.edges.items() if child is top)
        run.append((top.parent.axis, operand))
        top = top.parent
    run.reverse()
    found: dict[frozenset[int], Node] = {}
    waiting: list[tuple[Node, int, frozenset[int]]] = [(top, 0, frozenset())]
    while waiting and len(found) <= 4 * MOST_SUCCESSORS:
        here, at, replaced = waiting.pop()
        if at == len(run):
            if replaced:
                found[replaced] = here
            continue
        axis, operand = run[at]
        if here.axis > axis:  # a collapsed chain, which does not test this axis
            waiting.append((here, at + 1, replaced | {at}))
            continue
        if here.axis < axis:  # it tests an axis that the run skips, because the run is collapsed
            found[replaced] = here
            continue
        child = here.edges.get(operand)
        if child is not None:
            waiting.append((child, at + 1, replaced))
        if here.star is not None:
            waiting.append((here.star, at + 1, replaced | {at}))
    return [
        node
        for replaced, node in found.items()
        if not any(other < replaced and min(replaced - other) > max(other) for other in found)
    ]


# Matching trees as flat arrays, for a compiled search.
#
#     node   axis, star (don't-care edge), edges first … last, rows first … last, successors first … last
#     edge   the code of its operand, ascending within a node; or its bound, if the axis is an axis of bounds
#     codes  operand of an axis ─▶ number, the same in all trees
#
# An absent edge is -1.

Numbers = npt.NDArray[np.int32]


class TreeArrays(NamedTuple):
    """Trees as arrays. `axis` and `star` are `int32[nodes]`; `bounded` is `bool[nodes]`. `edges`, `rows` and
    `successors` are `int32[nodes + 1]`: the offsets of each node in the arrays that follow them (`codes`, `bounds` and
    `children`; `clauses`; `later`)."""

    axis: Numbers
    star: Numbers
    bounded: npt.NDArray[np.bool_]
    edges: Numbers
    codes: Numbers
    bounds: npt.NDArray[np.float64]
    children: Numbers
    rows: Numbers
    clauses: Numbers
    successors: Numbers
    later: Numbers


def tree_arrays(roots: Iterable[Node], codes: OperandCodes) -> tuple[TreeArrays, list[int]]:
    """Returns all trees as one set of arrays, and the node number of each root. Linear in nodes and edges."""
    number: dict[int, int] = {}
    nodes: list[Node] = []
    tops: list[int] = []
    for root in roots:
        tops.append(len(nodes))
        waiting = [root]
        while waiting:
            node = waiting.pop()
            number[id(node)] = len(nodes)
            nodes.append(node)
            waiting.extend(node.children())
    edges, rows, successors = ([0] for _ in range(3))
    of_codes: list[int] = []
    of_bounds: list[float] = []
    children: list[int] = []
    later: list[int] = []
    for node in nodes:
        if node.bounds is not None:
            of_bounds.extend(node.bounds.tolist())
            of_codes.extend([-1] * len(node.ordered))
            children.extend(number[id(child)] for child in node.ordered)
        else:
            coded = sorted((codes[node.axis][operand], number[id(child)]) for operand, child in node.edges.items())
            of_codes.extend(code for code, _ in coded)
            of_bounds.extend([0.0] * len(coded))
            children.extend(child for _, child in coded)
        later.extend(number[id(each)] for each in node.successors)
        edges.append(len(children))
        rows.append(rows[-1] + node.rows.size)
        successors.append(len(later))
    clauses = np.concatenate([node.rows for node in nodes]) if nodes else np.zeros(0, dtype=np.int32)
    arrays = TreeArrays(
        np.array([node.axis for node in nodes], dtype=np.int32),
        np.array([-1 if node.star is None else number[id(node.star)] for node in nodes], dtype=np.int32),
        np.array([node.bounds is not None for node in nodes], dtype=np.bool_),
        *_int32(edges, of_codes),
        np.array(of_bounds, dtype=np.float64),
        *_int32(children, rows),
        clauses.astype(np.int32),
        *_int32(successors, later),
    )
    return arrays, tops


def _int32(first: Sequence[int], second: Sequence[int]) -> tuple[Numbers, Numbers]:
    return cast(tuple[Numbers, Numbers], tuple(np.array(each, dtype=np.int32) for each in (first, second)))


Longs = npt.NDArray[np.int64]


class Said(NamedTuple):
    """The values of e events on a axes. `firsts` is `int64[e * a + 1]`: the offsets of each event and axis in `codes`.
    `values` is `float64[e, a]`: the values that are compared with bounds, NaN for no value. `at_least` is `bool[a]`:
    true if the bounds up to the value hold, false if the bounds from the value on hold. `roots` are the roots of the
    trees to search; `root_firsts` has their offsets per event."""

    firsts: Longs
    codes: Numbers
    values: npt.NDArray[np.float64]
    at_least: npt.NDArray[np.bool_]
    root_firsts: Longs
    roots: Numbers


@compiled
def search_trees(trees: TreeArrays, said: Said, by_successors: npt.NDArray[np.bool_]) -> tuple[Longs, Numbers, Longs]:
    """Returns offsets `int64[e + 1]`; the rows of each event, unsorted, with a row repeated for each tree that holds
    it; and the number of edges followed and successors visited for each event, `int64[e]`, which is the paper's
    measure. `by_successors[root]` is true if the tree is annotated. Successors are used for events that have at most
    one code on each axis."""
    events, axes = said.values.shape
    edges, codes, children, axis_of = trees.edges, trees.codes, trees.children, trees.axis
    star, bounded, bounds, rows = trees.star, trees.bounded, trees.bounds, trees.rows
    offsets = np.zeros(events + 1, dtype=np.int64)
    found = np.empty(1024, dtype=np.int32)
    stack = np.empty(256, dtype=np.int32)
    visited = np.full(axis_of.size, -1, dtype=np.int32)
    total = 0
    steps = np.zeros(events, dtype=np.int64)
    for event in range(events):
        firsts = said.firsts[event * axes : (event + 1) * axes + 1]
        single = (firsts[1:] - firsts[:-1]).max() <= 1 if axes > 0 else True
        for at in range(said.root_firsts[event], said.root_firsts[event + 1]):
            root = said.roots[at]
            annotated = by_successors[root] and single
            depth, stack[0] = 1, root
            while depth > 0:
                depth -= 1
                node = stack[depth]
                if annotated:
                    while node >= 0 and visited[node] != event:
                        visited[node] = event
                        first = firsts[axis_of[node]] if edges[node] < edges[node + 1] else -1
                        last = firsts[axis_of[node] + 1] if first >= 0 else -1
                        child = _edge(edges, codes, children, node, said.codes[first]) if first < last else -1
                        if child < 0:
                            break
                        node = child
                        steps[event] += 1
                    else:
                        continue
                count = rows[node + 1] - rows[node]
                if count > 0:
                    if total + count > found.size:
                        found = _larger(found, total, total + count)
                    found[total : total + count] = trees.clauses[rows[node] : rows[node + 1]]
                    total += count
                first_edge, last_edge = edges[node], edges[node + 1]
                further = trees.successors[node + 1] - trees.successors[node] + last_edge - first_edge + 1
                if depth + further > stack.size:
                    stack = _larger(stack, depth, depth + further)
                if annotated:
                    for k in range(trees.successors[node], trees.successors[node + 1]):
                        stack[depth] = trees.later[k]
                        depth += 1
                    steps[event] += trees.successors[node + 1] - trees.successors[node]
                    continue
                before = depth
                if star[node] >= 0:
                    stack[depth] = star[node]
                    depth += 1
                axis = axis_of[node]
                if first_edge == last_edge:
                    pass
                elif not bounded[node]:
                    for k in range(firsts[axis], firsts[axis + 1]):
                        child = _edge(edges, codes, children, node, said.codes[k])
                        if child >= 0:
                            stack[depth] = child
                            depth += 1
                elif said.at_least[axis]:
                    for k in range(first_edge, last_edge):
                        if not bounds[k] <= said.values[event, axis]:
                            break
                        stack[depth] = children[k]
                        depth += 1
                else:
                    for k in range(last_edge - 1, first_edge - 1, -1):
                        if not bounds[k] >= said.values[event, axis]:
                            break
                        stack[depth] = children[k]
                        depth += 1
                steps[event] += depth - before
        offsets[event + 1] = total
    return offsets, found[:total], steps


@compiled
def _edge(edges: Numbers, codes: Numbers, children: Numbers, node: int, code: int) -> int:
    """Returns the child below the edge with this operand, or -1. A binary search."""
    low, high = edges[node], edges[node + 1]
    while low < high:
        middle = (low + high) // 2
        if codes[middle] < code:
            low = middle + 1
        else:
            high = middle
    if low < edges[node + 1] and codes[low] == code:
        return int(children[low])
    return -1


@compiled
def _larger(array: Numbers, used: int, least: int) -> Numbers:
    """Returns a copy with room for at least `least` entries."""
    larger = np.empty(2 * least, dtype=np.int32)
    larger[:used] = array[:used]
    return larger


# An engine whose structure is built for many clauses at once and is immutable.
#
#     add ─▶ fresh clauses, matched by definition ─▶ if there are enough: a structure over all clauses
#     remove ─▶ from the fresh clauses, or filtered from the results of the structure
#
# So `matching_tree` is the published structure and its matching, and nothing else. The cost of building the structure
# is spread over as many additions as an eighth of the clauses.


FEWEST_FRESH = 64
"""Minimum number of fresh clauses before a structure is built. Matching this many costs some 100 µs per event."""
FRESH_SHARE = 8
"""The structure is rebuilt when more than an eighth of all clauses are fresh."""


class Structure(Protocol):
    """A published structure over some clauses, by row. Immutable."""

    def match(self, event: LoweredEvent) -> Rows:
        """Returns the rows whose clauses match `event`, unsorted, without duplicates."""


@runtime_checkable
class BatchStructure(Structure, Protocol):
    """A structure that matches many events in one call."""

    def match_batch(self, events: Sequence[LoweredEvent]) -> RowTable:
        """Returns the result of `match` for each event, in order, with ascending rows."""


class StructureFactory(Protocol):
    def __call__(self, graph: ConceptGraph, clauses: Mapping[ClauseRow, Clause]) -> Structure: ...


class BuiltEngine(Engine):
    """An engine over an immutable structure. Invariant: a stored row is either fresh or in the structure. Rows of the
    structure that were removed, or removed and reused, are in `_gone`."""

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
        """Stores `clause` at the lowest free row."""
        row = heapq.heappop(self._free) if self._free else ClauseRow(len(self._clauses))
        self._clauses[row] = clause
        self._fresh[row] = clause
        return row

    def remove(self, row: ClauseRow) -> None:
        """Removes the clause at `row`. Raises `UnknownRow`."""
        if self._clauses.pop(row, None) is None:
            raise UnknownRow(row)
        if self._fresh.pop(row, None) is None:
            self._built.discard(row)
            self._gone[row] = True
        heapq.heappush(self._free, row)

    def match(self, event: LoweredEvent) -> Rows:
        """Returns the rows whose clauses match `event`, in ascending order."""
        self._settle()
        fresh = [row for row, clause in self._fresh.items() if clause_matches(self._graph, clause, event)]
        if self._structure is None:
            return np.array(sorted(fresh), dtype=np.int32)
        found = self._structure.match(event)
        found = found[~self._gone[found]]
        return np.sort(np.concatenate([found, np.array(fresh, dtype=np.int32)]))

    def match_batch(self, events: Sequence[LoweredEvent]) -> RowTable:
        """Returns the result of `match` for each event, in order."""
        self._settle()
        if self._fresh or not isinstance(self._structure, BatchStructure):
            return row_table([self.match(event) for event in events])
        return self._alive(self._structure.match_batch(events))

    def check_invariants(self) -> None:
        """Raises AssertionError if the tables of rows are inconsistent."""
        assert self._fresh.keys().isdisjoint(self._built), (self._fresh.keys(), self._built)
        assert self._fresh.keys() | self._built == self._clauses.keys(), (self._fresh, self._built)
        assert sorted([*self._clauses, *self._free]) == list(range(len(self._clauses) + len(self._free)))
        assert not any(self._gone[row] for row in self._built), self._gone

    def _settle(self) -> None:
        """Rebuilds the structure if too many clauses are not in it."""
        if len(self._fresh) > max(self._fewest_fresh, len(self._clauses) // FRESH_SHARE):
            self._rebuild()

    def _alive(self, found: RowTable) -> RowTable:
        """Returns the rows in `found` without the removed rows."""
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


# Clauses in a structure: their parts, and the verification of candidates that the structure cannot decide.


class Candidates:
    """The clauses that some event can match, by row. Immutable.

    `parts[row]` are the predicates of a clause. `size` is greater than every row. If `inexact[row]`, a candidate is
    always verified; if `bounded[row]`, it is verified for events with several values in a column.
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

    def all_verified(self, found: RowTable, events: Sequence[LoweredEvent]) -> RowTable:
        """Returns the found rows that match their event, in the same order. Exact rows are kept; the others are matched
        by definition."""
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


INDEXED_SHARE = 0.75
"""Minimum share of clauses that must test an axis with `=` for it to become an index axis. The other clauses are
copied to every branch."""
MOST_INDEX_AXES = 8
"""Maximum number of index axes. There is a branch for each combination of their values."""
MOST_COPIES = 4.0
"""Maximum number of copies in all branches, per clause. This limits the memory for index axes."""


class MatchingTreeEngine(BuiltEngine):
    """Exact matching by a tree. `match` costs some ns per visited node."""

    reads_columns = True

    def __init__(
        self, graph: ConceptGraph, *, fewest_fresh: int = FEWEST_FRESH, most_index_axes: int = MOST_INDEX_AXES
    ) -> None:
        super().__init__(graph, partial(_Factored, most_index_axes=most_index_axes), fewest_fresh)

    def match_columns(self, batch: ColumnBatch) -> RowTable:
        """Returns the result of `match_batch` for `batch.lowered()`."""
        self._settle()
        structure = self._structure
        if not batch.is_flat or self._fresh or not isinstance(structure, _Factored):
            return self.match_batch(batch.lowered())
        return self._alive(structure.match_columns(batch))

    def visits(self, events: Sequence[LoweredEvent]) -> npt.NDArray[np.int64]:
        """Returns the paper's measure of time: the number of edges followed and successors visited for each event,
        `int64[events]`. Fresh clauses are put into the tree first."""
        return self._tree().visits(events)

    @property
    def space(self) -> int:
        """The paper's measure of space: the number of edges of all trees plus the sizes of their successor sets."""
        return self._tree().space

    @property
    def index_axes(self) -> int:
        """The number of index axes."""
        return self._tree().index_axes

    def _tree(self) -> "_Factored":
        if self._fresh or self._structure is None:
            self._rebuild()
        structure = self._structure
        assert isinstance(structure, _Factored)
        return structure


class _Factored:
    """A switch over the index axes, if there are any, with a tree for each combination of their values."""

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
        """Returns the number of edges followed and successors visited for each event."""
        return self._searched(self._reader.of_events(events))[2]

    def match(self, event: LoweredEvent) -> Rows:
        return self.match_batch([event]).rows

    def match_batch(self, events: Sequence[LoweredEvent]) -> RowTable:
        """Returns the matching rows of each event, in ascending order."""
        return self._candidates.all_verified(self._found(self._reader.of_events(events)), events)

    def match_columns(self, batch: ColumnBatch) -> RowTable:
        """Returns the result of `match_batch` for a batch whose events have at most one value per column."""
        found = self._found(self._reader.of_columns(batch))
        return self._candidates.all_verified(found, batch.lowered()) if self._candidates.inexact.any() else found

    def _found(self, readings: AxisReadings) -> RowTable:
        """Returns the rows of all leaves that each event reaches, without duplicates."""
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
        """Returns offsets per event, and the roots of the trees for its codes on the index axes. If no value of an
        event has a code on an axis, the number of codes of the axis is used as its code."""
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
    """Returns the numbers of the index axes, most popular first. These are axes that most clauses test, as long as the
    copies of the other clauses stay within `MOST_COPIES`."""
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
    """Maps the axis of each predicate of a clause to its operand."""
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
