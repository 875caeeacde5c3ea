"""Kernels over search results: residual programs, merging of passes into one table, ordering of rows.

A *find* is a buffer of rows and the places where each pass and event begins in it: pass p found for event e
`buffer[starts[p * events + e] : starts[p * events + e + 1]]`.
"""

import numpy as np

from kindcast.index.compiling import compiled, lowest_bit
from kindcast.index.fused.arrays import Bytes, Codes, Ints
from kindcast.index.fused.graph_arrays import GraphArrays
from kindcast.index.fused.residuals import BatchArrays, ProgramArrays, ask_programs

__all__ = ["count_rows", "distinct_rows", "gather_rows", "settle"]

FEW_ROWS = 24
"""So many rows are sorted by insertion; more go through one bit each, found again by a summary of the words."""


@compiled
def settle(
    buffer: Codes,
    starts: Ints,
    rows: Codes,
    program_of: Codes,
    programs: ProgramArrays,
    graph: GraphArrays,
    batch: BatchArrays,
    marked: Bytes,
    above: Codes,
) -> None:
    """Replace each `~position` in `buffer` by its row if the program of the position holds, else drop it; groups stay.
    `buffer` and `starts` are changed in place."""
    asked_from = np.zeros(starts.size, dtype=np.int64)
    count = 0
    for item in range(starts.size - 1):
        for i in range(starts[item], starts[item + 1]):
            count += buffer[i] < 0 and ~buffer[i] < rows.size
        asked_from[item + 1] = count
    if not count:
        return
    asked = np.empty(count, dtype=np.int32)
    holds = np.empty(count, dtype=np.uint8)
    count = 0
    for i in range(starts[starts.size - 1]):
        if buffer[i] < 0 and ~buffer[i] < rows.size:
            asked[count] = program_of[~buffer[i]]
            count += 1
    ask_programs(programs, graph, batch, asked_from, asked, marked, above, holds)
    used = 0
    at = 0
    count = 0
    for item in range(starts.size - 1):
        stop = starts[item + 1]
        starts[item] = used
        while at < stop:
            row = buffer[at]
            at += 1
            if row < 0 and ~row < rows.size:
                row = rows[~row]
                count += 1
                if not holds[count - 1]:
                    continue
            buffer[used] = row
            used += 1
    starts[starts.size - 1] = used


@compiled
def count_rows(offsets: Ints, starts: Ints) -> None:
    """Add to `offsets[e + 1]` what a find has for event e."""
    events = offsets.size - 1
    for item in range(starts.size - 1):
        offsets[item % events + 1] += starts[item + 1] - starts[item]


@compiled
def gather_rows(place: Ints, rows: Codes, buffer: Codes, starts: Ints) -> None:
    """Copy a find to `rows`, for event e from `place[e]` on; `place` moves on."""
    events = place.size
    for item in range(starts.size - 1):
        event = item % events
        first, last = starts[item], starts[item + 1]
        at = place[event]
        if last - first > 16:
            rows[at : at + last - first] = buffer[first:last]
        else:
            for i in range(first, last):
                rows[at + i - first] = buffer[i]
        place[event] = at + last - first


@compiled
def distinct_rows(offsets: Ints, rows: Codes, capacity: int) -> tuple[Ints, Codes]:
    """The same table with the rows of each event ascending, each once; all rows are below `capacity`. Costs a few ns a
    row and, for more than a few rows, capacity / 4,096 steps an event."""
    events = offsets.size - 1
    new_offsets = np.zeros(events + 1, dtype=np.int64)
    found = np.empty(rows.size, dtype=np.int32)
    bits = np.zeros((capacity >> 6) + 1, dtype=np.uint64)
    summary = np.zeros((capacity >> 12) + 1, dtype=np.uint64)
    one = np.uint64(1)
    at = 0
    for event in range(events):
        first = at
        if offsets[event + 1] - offsets[event] <= FEW_ROWS:
            for source in range(offsets[event], offsets[event + 1]):
                row = rows[source]
                to = at
                while to > first and found[to - 1] > row:
                    to -= 1
                if to > first and found[to - 1] == row:
                    continue
                for i in range(at, to, -1):
                    found[i] = found[i - 1]
                found[to] = row
                at += 1
        else:
            for source in range(offsets[event], offsets[event + 1]):
                number = int(rows[source])
                bits[number >> 6] |= one << np.uint64(number & 63)
                summary[number >> 12] |= one << np.uint64((number >> 6) & 63)
            for s in range(summary.size):
                filled = summary[s]
                summary[s] = 0
                while filled:
                    w = s * 64 + int(lowest_bit(filled))
                    filled &= filled - one
                    word = bits[w]
                    bits[w] = 0
                    while word:
                        found[at] = w * 64 + int(lowest_bit(word))
                        at += 1
                        word &= word - one
        new_offsets[event + 1] = at
    return new_offsets, found[:at]
