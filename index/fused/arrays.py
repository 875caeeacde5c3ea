"""The flat arrays that kernels read: the arrays of a segment and of the concept graph.

The rows of a segment are ordered by cluster, then by access path. The index of a row in this order is its *position*:

    cluster    rows with the same columns and the same required and forbidden attributes; a *slot* is one of their
               conjuncts: ordered slots first, then keys, then concepts
    list       rows of a cluster with the same point, key or concept in one slot: found by a look-up of the value, or of
               each concept above the value
    upper      rows of a cluster with one ordered slot and no lower bound, sorted by upper bound: a suffix matches
    lower      rows of a cluster with one ordered slot and no upper bound, sorted by lower bound: a prefix matches
    block      up to `BLOCK_ROWS` other rows of a cluster, which are always checked
    masks      for a long list or a block: for each slot and cell, the rows that a value in the cell may satisfy
    record     the tests of a row: (low, high) per ordered slot, one code per other slot, and what a match emits

`Packed` holds all arrays in one array per type, because a kernel call costs some 100 ns per array argument.
"""

from collections.abc import Sequence
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
    "grown",
    "joined",
    "pack",
    "unpack",
    "walk_up",
]

BLOCK_ROWS = 1 << 14
"""Maximum number of rows in a block. The masks of ten slots, 20 KB per event, stay in the L2 cache for many events."""

Ints = npt.NDArray[Any]
"""`int64`. Elements of arrays are plain numbers in kernels, so the type is not more precise for the type checker."""
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

    `emit` is the result of a match: the row; `~position` if a program must be evaluated first; or `~(n + g)` for group
    g of rows that share the position. Columns are numbered within the segment, ordered columns first. `local` maps the
    column numbers of the engine to them (-1 for columns that are not in the segment).
    `sizes` are: the maximum number of lists and blocks of one cluster for an event, without ancestors; the maximum
    number of slots of a cluster; the maximum number of rows of one set of masks; the number of tombstones.

    The bounds of ordered column k are `bounds[bound_from[k] : bound_from[k + 1]]`, sorted and distinct (see
    `kindcast.index.fused.kernels`).
    """

    emit: Codes  # [n]
    local: Codes  # engine's column number → column
    records: Codes
    lists: Codes  # [4L] code, begin, end, masks (-1 for none); sorted by slot and code
    coarse: Codes  # coarse index: the number of lists of the slot with codes below (x << shift)
    bucket_table: Codes
    cluster_from: Ints  # [C+1] positions of a cluster
    slot_from: Ints  # [C+1] slots of a cluster
    ordered: Ints  # [C] number of its ordered slots
    plain: Ints  # [C] number of its slots that are not concept slots
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
    block_far: Ints  # [B] 1 if all events are matched against it before the next block
    far: Ints  # the far blocks
    far_cluster: Ints  # and their clusters
    column_how: Ints  # [K]
    column_codes: Ints  # [K] number of codes of an ordered column
    bound_from: Ints
    bucket_from: Ints
    sizes: Ints  # [4]
    bounds: Floats
    bucket_steps: Floats  # least, most and buckets per unit, for each ordered column
    tombstones: Bytes  # [n] 1 if the row was removed
    masks: Words


class Packed(NamedTuple):
    """The arrays of a segment, concatenated by type in the order of `SegmentArrays`. Array f ends at `ends[f]` in the
    array of its type."""

    ends: Ints
    codes: Codes
    ints: Ints
    floats: Floats
    bytes: Bytes
    words: Words


def pack(arrays: SegmentArrays) -> tuple[Packed, SegmentArrays]:
    """Concatenates `arrays` to one array per type. Returns these, and the arrays as views of them."""
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
    """Returns the arrays as views, inside a kernel."""
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

#     parents, entries    concept c ─▶ parents[parent_from[c] : parent_from[c + 1]]; the first step may be an entry
#     cells               the concepts in the order of a walk from the roots, in `CELLS` runs of equal length
#     cell_bits           concept c ─▶ one bit for each cell that contains c or a descendant of c
#     share               concept c ─▶ the share of all concepts that are c or below c: the selectivity of a test of c
#
# A row with a test of c can match a value in cell t only if bit t of `cell_bits[c]` is set; this is true in every DAG.
# The transitive closure is not stored: kernels walk up from a value, which costs some nanoseconds per ancestor.


CELLS = 64
"""Number of cells of every column: one word per row. More cells cost memory and time; fewer exclude fewer rows."""


class GraphArrays(NamedTuple):
    """The edges of the graph: `int64[n+1]` and `int32[edges]`, for parents and for entries. Read-only views."""

    parent_from: Ints
    parents: Codes
    entry_from: Ints
    entries: Codes


class GraphShape(NamedTuple):
    """Data derived from the edges, for the layout of segments: `uint8[n]`, `uint64[n]`, `float64[n]`."""

    cells: Bytes
    cell_bits: Words
    share: Floats


def graph_arrays(graph: ConceptGraph) -> GraphArrays:
    """Returns the edges of `graph`, with the same array types for every graph."""
    parent_from, parents, entry_from, entries = graph.edges()
    return GraphArrays(
        _frozen(parent_from, np.int64),
        _frozen(parents, np.int32),
        _frozen(entry_from, np.int64),
        _frozen(entries, np.int32),
    )


def graph_shape(graph: GraphArrays) -> GraphShape:
    """Derives the shape by a compiled walk upwards from every concept: about 0.3 µs per concept with ten ancestors."""
    return GraphShape(*_shape(graph, _walk_order(graph)))


@compiled
def walk_up(graph: GraphArrays, concept: int, marked: Bytes, base: int, above: Codes, top: int) -> int:
    """Marks `concept` and its ancestors in `marked[base:]`, and lists them at `above[top:]`. Returns the end of the
    list. Concepts that are already marked are not listed, and the walk does not continue from them."""
    last = top
    if not marked[nth(base + concept)]:
        marked[nth(base + concept)] = 1
        above[nth(last)] = concept
        last += 1
    first = top
    # Only the first step may follow entries, from the concept itself, even if it was already marked.
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
    """Returns all concepts, ordered so that each is near its first parent or class, so that relatives share cells."""
    size = graph.parent_from.size - 1
    first_child = np.full(size + 1, -1, dtype=np.int32)
    next_child = np.full(size + 1, -1, dtype=np.int32)
    for concept in range(size - 1, -1, -1):
        upper = size  # the roots are children of an additional node
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
    for start in range(-1, size):  # concepts below a cycle of entries can be reached only from the cycle
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
    """Returns a read-only view, converted if necessary, because kernels are compiled for one type of array."""
    view: npt.NDArray[Any] = np.ascontiguousarray(array, dtype=dtype).view()
    view.setflags(write=False)
    return view


def joined(parts: Sequence[Ints]) -> tuple[Ints, Ints]:
    """Returns the start of each of the arrays, and the arrays one after the other."""
    if len(parts) == 1:
        return np.array([0, parts[0].size], dtype=np.int64), parts[0]
    starts = np.zeros(len(parts) + 1, dtype=np.int64)
    np.cumsum([each.size for each in parts], out=starts[1:])
    return starts, np.concatenate([*parts, np.empty(0, dtype=np.int64)])


@compiled
def grown(buffer: Codes, used: int, size: int) -> Codes:
    """Returns an array of `size` numbers that begins with the first `used` of `buffer`. They are copied one by one: for
    an assignment of a slice, numba compiles a message about its shape, which takes seconds."""
    larger = np.empty(size, dtype=np.int32)
    for i in range(used):
        larger[i] = buffer[i]
    return larger
