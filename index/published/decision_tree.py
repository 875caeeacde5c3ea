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

__all__ = ["LEAF", "Node", "Path", "plant"]

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
