"""Matching trees as flat arrays, for a compiled search.

    node   axis, star (don't-care edge), edges first … last, rows first … last, successors first … last
    edge   the code of its operand, ascending within a node; or its bound, where the axis is one of bounds
    codes  operand of an axis ─▶ number, the same in all trees

An absent edge is -1.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple, cast

import numpy as np
import numpy.typing as npt

from index.published.decision_tree import Node

__all__ = ["Codes", "TreeArrays", "tree_arrays"]

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
