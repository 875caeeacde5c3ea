"""The matching tree: nodes test an axis, edges are results, one edge of each node does not care.

    node      tests one axis; operand ─▶ child for each result that some clause asks for; `star`, the don't-care edge
    leaf      the rows whose predicates stand on the way to it
    collapsed a node tests the first axis that some clause below it asks for: none has a don't-care edge alone

Axes are ordered by how many clauses ask for them, most first.
"""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

__all__ = ["Node", "Path", "annotate", "plant"]


Rows = npt.NDArray[np.int32]
Path = tuple[tuple[int, Hashable], ...]
"""What a clause asks for: (axis, operand), by ascending axis, each axis once."""

LEAF = 1 << 30
"""The axis of a leaf: behind all others."""


@dataclass(slots=True, eq=False)
class Node:
    """`parent` and `value` say how it is reached: by an edge with an operand, or by the don't-care edge."""

    axis: int
    parent: "Node | None" = None
    by_star: bool = False
    edges: dict[Hashable, "Node"] = field(default_factory=dict)
    star: "Node | None" = None
    rows: Rows = field(default_factory=lambda: np.zeros(0, dtype=np.int32))
    bounds: npt.NDArray[np.float64] | None = None
    """The operands in order, where the axis is one of bounds."""
    ordered: list["Node"] = field(default_factory=list)
    successors: tuple["Node", ...] = ()

    def children(self) -> Iterator["Node"]:
        yield from self.edges.values()
        if self.star is not None:
            yield self.star


def plant(clauses: Sequence[tuple[int, Path]], is_bound: Iterable[bool]) -> Node:
    """The tree of (row, path) pairs. `is_bound[axis]` tells axes whose operands are bounds. Linear in nodes, each of
    which is some clause's: at most the length of all paths, and a don't-care edge for each."""
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
    """Children by bound, once all are there."""
    stack = [root]
    while stack:
        node = stack.pop()
        if node.bounds is not None:
            node.ordered = [node.edges[bound] for bound in node.bounds.tolist()]
        stack.extend(node.children())


# ── successors ────────────────────────────────────────────────────────────────────────────────────────────────────────
# Successor nodes: where a search goes on once it is blocked, so that it need not try both edges of each node.
#
# A search for one value an axis goes down the edges with operands only. At a node where none fits, or at a leaf, all
# further leaves that match lie below
#
#     the don't-care edge of this node, and
#     the nodes that are reached by the same path with one or more edges of its last run of operands not caring
#
# (erratum 24; Aguilera et al., the section on optimisations). Of those the ones that another one leads to are left out:
# where one replaced edge gives a node, nodes with further edges replaced *behind* it are its own successors. Where a
# path beside the run asks for an axis that the run passes over (its don't-care edges are collapsed), the search goes on
# there. All are found beforehand, by walking the tree beside the run.

MOST_SUCCESSORS = 64
"""Successors of one node; a node with more is given up, and its tree searched along both edges."""


def annotate(root: Node) -> bool:
    """Fill `successors` of every node. False if some node has too many, or an axis of bounds is among them: the tree is
    then searched without."""
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
    """The nodes beside the last run of operands above `node`."""
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
        if here.axis > axis:  # a collapsed chain: it does not care about this axis
            waiting.append((here, at + 1, replaced | {at}))
            continue
        if here.axis < axis:  # it asks for an axis that the run, being collapsed, passes over
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
