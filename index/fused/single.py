"""One event through one segment, in one call: for the event that comes alone, as most do.

A batch of one costs some 15 µs before anything is matched: arrays that are made for one event, and several calls of
kernels, each of which unpacks what it is given. Here the values of an event go into one array, and one call answers
with its rows in order. Whatever else there is (newest rows, several segments, programs, small clusters that are found
together, several values in a column) goes the way of batches.

    LoweredEvent ─▶ Columns.values_of ─▶ match_single: match_segment ─▶ distinct_rows ─▶ rows
"""

import numpy as np

from index.compiling import compiled
from index.fused.arrays import Bytes, Codes, Floats, Ints, Packed, Words
from index.fused.graph_arrays import GraphArrays
from index.fused.matching import match_segment
from index.fused.runs import distinct_rows

__all__ = ["match_single"]


@compiled
def match_single(
    ends: Ints,
    codes: Codes,
    ints: Ints,
    floats: Floats,
    bytes: Bytes,
    words: Words,
    parent_from: Ints,
    parents: Codes,
    entry_from: Ints,
    entries: Codes,
    columns: Codes,
    values: Floats,
    visits: Ints,
    cells_of: Bytes,
    marked: Bytes,
    above: Codes,
    passes: int,
    room: int,
    capacity: int,
) -> Codes:
    """The rows that match, ascending, each once, all below `capacity`. The first six arguments are a `Packed`, the next
    four a `GraphArrays`: a tuple of arrays costs the caller more than its arrays. `values` has the number or the code
    of each of `columns`; `room` is for so many rows at first. The rest is as in `match_segment`."""
    packed = Packed(ends, codes, ints, floats, bytes, words)
    graph = GraphArrays(parent_from, parents, entry_from, entries)
    own = np.full(values.size, -1, dtype=np.int32)
    for s in range(values.size):
        if 0.0 <= values[s] < 2147483648.0:
            own[s] = np.int32(values[s])
    kinds = np.zeros(1, dtype=np.int32)
    several_index = np.full(1, -1, dtype=np.int32)
    visits_from = np.zeros(2, dtype=np.int64)
    visits_from[1] = visits.size
    starts = np.empty(passes + 1, dtype=np.int64)
    buffer = match_segment(
        packed,
        graph,
        columns,
        own,
        values,
        kinds,
        several_index,
        np.zeros(1, dtype=np.int64),
        visits_from,
        visits,
        cells_of,
        marked,
        above,
        np.empty(0, dtype=np.int32),
        np.zeros(2, dtype=np.int64),
        np.empty(room, dtype=np.int32),
        starts,
    )
    offsets = np.zeros(2, dtype=np.int64)
    offsets[1] = starts[passes]
    return distinct_rows(offsets, buffer[: starts[passes]], capacity)[1]
