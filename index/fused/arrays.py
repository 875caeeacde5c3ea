"""The flat arrays of a segment, as the kernels read them.

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

from kindcast.index.jit import compiled

__all__ = ["BLOCK_ROWS", "Bytes", "Codes", "Floats", "Ints", "Packed", "SegmentArrays", "Words", "pack", "unpack"]

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
