"""The concept graph as arrays for the kernels: the parents of each concept, and a bit set of its descendants.

    parents, entries    concept c ─▶ parents[parent_from[c] : parent_from[c + 1]]; a first step may be an entry
    cells               the concepts in the order of a walk from the roots, cut into `CELLS` runs of equal length
    cell_bits           concept c ─▶ one bit for each cell in which c has a descendant (or itself)
    share               concept c ─▶ the part of all concepts that is c or below: how selective it is to ask for c

A row that asks for c may match a value in cell t only if bit t of `cell_bits[c]` is set; this holds in any DAG. No
closure is stored: kernels walk up from a value, which costs some nanoseconds for each concept above it.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from kindcast.index.concept_graph import ConceptGraph
from kindcast.index.fused.arrays import Bytes, Codes, Floats, Ints, Words
from kindcast.index.jit import compiled, nth

__all__ = ["CELLS", "GraphArrays", "GraphShape", "graph_arrays", "graph_shape", "walk_up"]

CELLS = 64
"""Cells of every column: one word for a row. More cost memory and time, fewer let more rows through."""


class GraphArrays(NamedTuple):
    """`int64[n+1]` and `int32[edges]`, twice. Read-only views of the graph."""

    parent_from: Ints
    parents: Codes
    entry_from: Ints
    entries: Codes


class GraphShape(NamedTuple):
    """What is derived from the edges, for the layout of segments: `uint8[n]`, `uint64[n]`, `float64[n]`."""

    cells: Bytes
    cell_bits: Words
    share: Floats


def graph_arrays(graph: ConceptGraph) -> GraphArrays:
    """The edges of `graph`, with the same array types for every graph."""
    parent_from, parents, entry_from, entries = graph.edges()
    return GraphArrays(
        _frozen(parent_from, np.int64),
        _frozen(parents, np.int32),
        _frozen(entry_from, np.int64),
        _frozen(entries, np.int32),
    )


def graph_shape(graph: GraphArrays) -> GraphShape:
    """Costs one walk upwards from every concept, compiled: about 0.3 µs each at ten ancestors."""
    return GraphShape(*_shape(graph, _walk_order(graph)))


@compiled
def walk_up(graph: GraphArrays, concept: int, marked: Bytes, base: int, above: Codes, top: int) -> int:
    """Mark `concept` and all above it in `marked[base:]` and list them at `above[top:]`; returns the end of the list.
    Concepts that are marked already are neither listed nor left again."""
    last = top
    if not marked[nth(base + concept)]:
        marked[nth(base + concept)] = 1
        above[nth(last)] = concept
        last += 1
    first = top
    # The first step alone may follow entries, from the concept itself even if it was marked before.
    for i in range(graph.entry_from[nth(concept)], graph.entry_from[nth(concept + 1)]):
        upper = graph.entries[nth(i)]
        if not marked[nth(base + upper)]:
            marked[nth(base + upper)] = 1
            above[nth(last)] = upper
            last += 1
    while first < last:
        lower = above[nth(first)]
        first += 1
        for i in range(graph.parent_from[nth(lower)], graph.parent_from[nth(lower + 1)]):
            upper = graph.parents[nth(i)]
            if not marked[nth(base + upper)]:
                marked[nth(base + upper)] = 1
                above[nth(last)] = upper
                last += 1
    return last


@compiled
def _shape(graph: GraphArrays, order: Codes) -> tuple[Bytes, Words, Floats]:
    size = graph.parent_from.size - 1
    cells = np.zeros(size, dtype=np.uint8)
    bits = np.zeros(size, dtype=np.uint64)
    share = np.zeros(size, dtype=np.float64)
    for place in range(size):
        cells[order[place]] = place * CELLS // size
    marked = np.zeros(size, dtype=np.uint8)
    above = np.empty(size, dtype=np.int32)
    for concept in range(size):
        count = walk_up(graph, concept, marked, 0, above, 0)
        for i in range(count):
            upper = above[i]
            marked[upper] = 0
            bits[upper] |= np.uint64(1) << np.uint64(cells[concept])
            share[upper] += 1.0 / size
    return cells, bits, share


@compiled
def _walk_order(graph: GraphArrays) -> Codes:
    """All concepts, each soon after its first parent or class, so that relatives share cells."""
    size = graph.parent_from.size - 1
    first_child = np.full(size + 1, -1, dtype=np.int32)
    next_child = np.full(size + 1, -1, dtype=np.int32)
    for concept in range(size - 1, -1, -1):
        upper = size  # the roots hang under one more node
        if graph.parent_from[concept + 1] > graph.parent_from[concept]:
            upper = graph.parents[graph.parent_from[concept]]
        elif graph.entry_from[concept + 1] > graph.entry_from[concept]:
            upper = graph.entries[graph.entry_from[concept]]
        next_child[concept] = first_child[upper]
        first_child[upper] = concept
    order = np.empty(size, dtype=np.int32)
    seen = np.zeros(size, dtype=np.uint8)
    waiting = np.empty(size + 1, dtype=np.int32)
    done = 0
    for start in range(-1, size):  # what hangs on a cycle of entries is reached only from itself
        node = first_child[size] if start < 0 else start
        if start >= 0 and seen[start]:
            continue
        depth = 0
        alone = start >= 0
        while node >= 0 or depth > 0:
            if node < 0:
                depth -= 1
                node = next_child[waiting[depth]]
                if depth == 0 and alone:
                    break
                continue
            if seen[node]:
                node = next_child[node] if not (alone and depth == 0) else -1
                continue
            seen[node] = 1
            order[done] = node
            done += 1
            waiting[depth] = node
            depth += 1
            node = first_child[node]
    return order


def _frozen(array: npt.NDArray[np.integer], dtype: type) -> npt.NDArray[Any]:
    """A read-only view, converted where need be: kernels are compiled for one type of array."""
    view: npt.NDArray[Any] = np.ascontiguousarray(array, dtype=dtype).view()
    view.setflags(write=False)
    return view
