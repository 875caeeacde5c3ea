"""The flat arrays that the kernels read: those of a segment, and those of the concept graph.

A segment lays its rows out cluster by cluster, in a cluster by access path, and gives each a *position*:

    cluster    rows that read the same columns under the same required and forbidden attributes; a *slot* is one of
               its conjuncts: ordered slots first, then keys, then concepts
    list       rows of a cluster that ask one slot for the same point, key or concept: found by that value, or by
               each concept above it
    upper      rows of a cluster with one ordered slot and no lower bound, ascending by the upper one: a suffix matches
    lower      the mirror image: a prefix matches
    block      up to `BLOCK_ROWS` other rows of a cluster: always looked at
    masks      of a long list or a block: for each slot and cell the rows that a value in that cell may let through
    record     what a row asks: (low, high) for each ordered slot, one code for each other slot, and what it emits

`Packed` holds them all in one array per type, since a kernel call costs some 100 ns for each array argument.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from kindcast.index.concept_graph import ConceptGraph
from kindcast.index.jit import compiled, nth

__all__ = [
    "BLOCK_ROWS",
    "CELLS",
    "Bytes",
    "Codes",
    "Floats",
    "GraphArrays",
    "GraphShape",
    "Ints",
    "Packed",
    "SegmentArrays",
    "Words",
    "graph_arrays",
    "graph_shape",
    "pack",
    "unpack",
    "walk_up",
]

BLOCK_ROWS = 1 << 14
"""Rows of a block: ten slots of its masks, 20 KB an event, stay in a second-level cache while events go by."""

Ints = npt.NDArray[Any]
"""`int64`. What kernels take out of arrays is a plain number there, so the type checker is not told more."""
Codes = npt.NDArray[Any]
"""`int32`."""
Words = npt.NDArray[Any]
"""`uint64`."""
Bytes = npt.NDArray[Any]
"""`uint8`."""
Floats = npt.NDArray[Any]
"""`float64`."""


class SegmentArrays(NamedTuple):
    """C clusters, S slots, n positions, L lists, B blocks, K columns. Immutable, except for `tombstones` and their
    number in `sizes`.

    `emit` is what a match gives: the row, `~position` where a program has to be asked first, or `~(n + g)` for group g
    of rows that share the position. Columns are numbered within the segment, ordered ones first; `local` leads to them
    from the numbers of the engine (-1: not read).
    `sizes`: the most lists and blocks that one cluster can offer an event, ancestors aside; the most slots of a
    cluster; the most rows behind one set of masks; how many positions have a tombstone.

    The bounds of ordered column k are `bounds[bound_from[k] : bound_from[k + 1]]`, sorted and distinct (see
    `kindcast.index.fused.kernels`).
    """

    emit: Codes  # [n]
    local: Codes  # engine's column number → column
    records: Codes
    lists: Codes  # [4L] code, begin, end, masks; by slot, by ascending code; masks -1: none
    coarse: Codes  # coarse index: how many of the slot's lists have codes below (x << shift)
    bucket_table: Codes
    cluster_from: Ints  # [C+1] positions of a cluster
    slot_from: Ints  # [C+1] slots of a cluster
    ordered: Ints  # [C] how many of its slots are ordered
    plain: Ints  # [C] how many are no concept slots
    record_from: Ints  # [C+1] first of the cluster's records
    upper_from: Ints  # [C] positions; the upper rows end where the lower ones begin
    lower_from: Ints  # [C] the lower rows end with the cluster
    block_from: Ints  # [C+1] blocks of a cluster
    slot_column: Ints  # [S]
    list_from: Ints  # [S+1] lists of a slot
    index_from: Ints  # [S+1]
    index_shift: Ints  # [S]
    block_begin: Ints  # [B] positions
    block_end: Ints  # [B]
    block_mask: Ints  # [B]
    block_far: Ints  # [B] 1 if all events go through it before the next block
    far: Ints  # the far blocks
    far_cluster: Ints  # and their clusters
    column_how: Ints  # [K]
    column_codes: Ints  # [K] how many codes an ordered column has
    bound_from: Ints
    bucket_from: Ints
    sizes: Ints  # [4]
    bounds: Floats
    bucket_steps: Floats  # least, most and steps a unit, for each ordered column
    tombstones: Bytes  # [n] tombstones: 1 where the row has been removed
    masks: Words


class Packed(NamedTuple):
    """The arrays of a segment one after the other, by type, in the order of `SegmentArrays`; array f of all ends where
    `ends[f]` says, in the array of its type."""

    ends: Ints
    codes: Codes
    ints: Ints
    floats: Floats
    bytes: Bytes
    words: Words


def pack(arrays: SegmentArrays) -> tuple[Packed, SegmentArrays]:
    """`arrays` in one array a type, and as views of these."""
    joined: list[npt.NDArray[np.generic]] = []
    views: list[npt.NDArray[np.generic]] = []
    ends: list[int] = []
    for dtype in (np.int32, np.int64, np.float64, np.uint8, np.uint64):
        parts = [part for part in arrays if part.dtype == dtype]
        whole = np.concatenate(parts)
        at = 0
        for part in parts:
            views.append(whole[at : at + part.size])
            at += part.size
            ends.append(at)
        joined.append(whole)
    return Packed(np.array(ends, dtype=np.int64), *joined), SegmentArrays(*views)


@compiled
def unpack(packed: Packed) -> SegmentArrays:
    """The views again, inside a kernel."""
    e, c, i, f, b, w = packed.ends, packed.codes, packed.ints, packed.floats, packed.bytes, packed.words
    return SegmentArrays(
        c[: e[0]],
        c[e[0] : e[1]],
        c[e[1] : e[2]],
        c[e[2] : e[3]],
        c[e[3] : e[4]],
        c[e[4] : e[5]],
        i[: e[6]],
        i[e[6] : e[7]],
        i[e[7] : e[8]],
        i[e[8] : e[9]],
        i[e[9] : e[10]],
        i[e[10] : e[11]],
        i[e[11] : e[12]],
        i[e[12] : e[13]],
        i[e[13] : e[14]],
        i[e[14] : e[15]],
        i[e[15] : e[16]],
        i[e[16] : e[17]],
        i[e[17] : e[18]],
        i[e[18] : e[19]],
        i[e[19] : e[20]],
        i[e[20] : e[21]],
        i[e[21] : e[22]],
        i[e[22] : e[23]],
        i[e[23] : e[24]],
        i[e[24] : e[25]],
        i[e[25] : e[26]],
        i[e[26] : e[27]],
        i[e[27] : e[28]],
        f[: e[29]],
        f[e[29] : e[30]],
        b[: e[31]],
        w[: e[32]],
    )


# ── the concept graph as arrays for the kernels: the parents of each concept, and a bit set of its descendants ────────

#     parents, entries    concept c ─▶ parents[parent_from[c] : parent_from[c + 1]]; a first step may be an entry
#     cells               the concepts in the order of a walk from the roots, cut into `CELLS` runs of equal length
#     cell_bits           concept c ─▶ one bit for each cell in which c has a descendant (or itself)
#     share               concept c ─▶ the part of all concepts that is c or below: how selective it is to ask for c
#
# A row that asks for c may match a value in cell t only if bit t of `cell_bits[c]` is set; this holds in any DAG. No
# closure is stored: kernels walk up from a value, which costs some nanoseconds for each concept above it.


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
