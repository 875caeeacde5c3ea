"""The search of matching trees, compiled: many events, one call.

What an event says to each axis is a run of codes, the operands that its values satisfy; to an axis of bounds it is one
value. A search follows every edge that the event satisfies and every don't-care edge; with successor nodes it goes down
the edges with operands as far as they lead, and on from there (erratum 24), each node once.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple, cast

import numpy as np
import numpy.typing as npt

from kindcast.index.compiling import compiled
from kindcast.index.published.matching_tree.decision_tree import Node

__all__ = ["Codes", "Said", "search_trees", "tree_arrays"]


# Matching trees as flat arrays, for a compiled search.
#
#     node   axis, star (don't-care edge), edges first … last, rows first … last, successors first … last
#     edge   the code of its operand, ascending within a node; or its bound, where the axis is one of bounds
#     codes  operand of an axis ─▶ number, the same in all trees
#
# An absent edge is -1.

Numbers = npt.NDArray[np.int32]
Codes = Sequence[Mapping[Hashable, int]]
"""By axis: operand → code."""


class TreeArrays(NamedTuple):
    """`axis`, `star` are `int32[nodes]`; `edges`, `rows`, `successors` are `int32[nodes + 1]`, where those of a node
    begin in the arrays behind; `bounded` is `bool[nodes]`."""

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


def tree_arrays(roots: Iterable[Node], codes: Codes) -> tuple[TreeArrays, list[int]]:
    """All trees in one, and the number of each root. Linear in nodes and edges."""
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


# ── tree search ───────────────────────────────────────────────────────────────────────────────────────────────────────

Longs = npt.NDArray[np.int64]


class Said(NamedTuple):
    """Of e events to a axes: `firsts` is `int64[e * a + 1]`, where the codes of each event and axis begin in `codes`;
    `values` is `float64[e, a]`, what bounds are held to, NaN for nothing; `at_least` is `bool[a]`: bounds that hold up
    to the value, else from it on. `roots` are those of the trees to search, event after event by `root_firsts`."""

    firsts: Longs
    codes: Numbers
    values: npt.NDArray[np.float64]
    at_least: npt.NDArray[np.bool_]
    root_firsts: Longs
    roots: Numbers


@compiled
def search_trees(trees: TreeArrays, said: Said, by_successors: npt.NDArray[np.bool_]) -> tuple[Longs, Numbers, Longs]:
    """Offsets `int64[e + 1]` and rows, in no order; a row again for each tree that holds it; the edges followed and the
    successors visited for each event, `int64[e]`: the paper's measure. `by_successors[root]` where the tree is
    annotated; it counts for events that have no axis with several codes."""
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
    """The child behind the edge with this operand, or -1: a binary search."""
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
    """A copy with room for `least` or more."""
    larger = np.empty(2 * least, dtype=np.int32)
    larger[:used] = array[:used]
    return larger
