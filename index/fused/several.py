"""The kernel for events that have several values in a column: one event at a time through one segment.

A conjunct holds when some value satisfies it, each conjunct by itself. The access paths are walked for every value;
of blocks and long lists the masks of all values of a column are united before they meet. Not the hottest path, so it
checks each row in a plain loop.
"""

import numpy as np

from index.compiling import compiled, lowest_bit
from index.fused.arrays import Bytes, Codes, Ints, Packed, SegmentArrays, Words, unpack
from index.fused.bounds import number_code
from index.fused.conjuncts import KEY, ORDERED
from index.fused.graph_arrays import CELLS, GraphArrays
from index.fused.programs import BatchArrays, mark_concepts, unmark_concepts

__all__ = ["match_several"]


@compiled
def match_several(
    packed: Packed,
    graph: GraphArrays,
    batch: BatchArrays,
    kinds: Codes,
    visits_from: Ints,
    visits: Ints,
    cells_of: Bytes,
    marked: Bytes,
    above: Codes,
    buffer: Codes,
    starts: Ints,
) -> Codes:
    """Like `match_segment` in one pass, for the events in `several_index` only."""
    segment = unpack(packed)
    width_all = batch.columns.size
    where = np.full(segment.column_how.size, -1, dtype=np.int64)
    for s in range(width_all):
        if batch.columns[s] < segment.local.size and segment.local[batch.columns[s]] >= 0:
            where[segment.local[batch.columns[s]]] = s
    want = np.full(batch.codes.size, -1, dtype=np.int32)
    begin = np.empty(segment.sizes[1] + 1, dtype=np.int64)
    end = np.empty(segment.sizes[1] + 1, dtype=np.int64)
    base = np.empty(segment.sizes[1] + 1, dtype=np.int64)
    left = np.empty(segment.sizes[2] // 64 + 2, dtype=np.uint64)
    column = np.empty(segment.sizes[2] // 64 + 2, dtype=np.uint64)
    used = 0
    for event in range(kinds.size):
        starts[event] = used
        place = batch.several_index[event]
        if place < 0:
            continue
        for k in range(segment.column_how.size):
            s = where[k]
            if s >= 0:
                ordered_column = segment.column_how[k] == ORDERED
                if ordered_column:
                    bounds = segment.bounds[segment.bound_from[k] : segment.bound_from[k + 1]]
                    table = segment.bucket_table[segment.bucket_from[k] : segment.bucket_from[k + 1]]
                    steps = segment.bucket_steps[3 * k : 3 * k + 3]
                for i in range(
                    batch.several_from[place * width_all + s], batch.several_from[place * width_all + s + 1]
                ):
                    if ordered_column:
                        want[i] = number_code(batch.numbers[i], bounds, table, steps[0], steps[1], steps[2])
                    else:
                        want[i] = batch.codes[i]
        mark_concepts(graph, batch, event, marked, above)
        for visit in range(visits_from[kinds[event]], visits_from[kinds[event] + 1]):
            cluster = visits[visit]
            slot = segment.slot_from[cluster]
            width = segment.slot_from[cluster + 1] - slot
            ordered, plain = segment.ordered[cluster], segment.plain[cluster]
            absent = False
            for j in range(width):
                s = where[segment.slot_column[slot + j]]
                if s < 0:
                    absent = True
                    break
                begin[j] = batch.several_from[place * width_all + s]
                end[j] = batch.several_from[place * width_all + s + 1]
                base[j] = batch.mark_base[s]
            if absent:
                continue
            stride = width + ordered + 1
            origin = segment.record_from[cluster] - segment.cluster_from[cluster] * stride
            # Lists by list code, then blocks, then the two ranges, whose rows are all looked at.
            for j in range(width + 3):
                if j < width:
                    first, last = segment.list_from[slot + j], segment.list_from[slot + j + 1]
                elif j == width:
                    first, last = segment.block_from[cluster], segment.block_from[cluster + 1]
                else:
                    first, last = 0, 1
                for each in range(first, last):
                    if j < width:
                        code = segment.lists[4 * each]
                        asked = False
                        if j >= plain:
                            asked = marked[base[j] + code] != 0
                        else:
                            for i in range(begin[j], end[j]):
                                asked |= want[i] == code
                        if not asked:
                            continue
                        low, high = int(segment.lists[4 * each + 1]), int(segment.lists[4 * each + 2])
                        mask = int(segment.lists[4 * each + 3])
                    elif j == width:
                        low, high, mask = segment.block_begin[each], segment.block_end[each], segment.block_mask[each]
                    elif j == width + 1:
                        low, high, mask = segment.upper_from[cluster], segment.lower_from[cluster], -1
                    else:
                        low, high, mask = segment.lower_from[cluster], segment.cluster_from[cluster + 1], -1
                    words = (high - low + 63) >> 6
                    if mask >= 0:
                        _possible(segment, cells_of, want, begin, end, slot, width, j, mask, words, left, column)
                    if used + (high - low) > buffer.size:
                        larger = np.empty(2 * buffer.size + (high - low), dtype=np.int32)
                        larger[:used] = buffer[:used]
                        buffer = larger
                    for w in range(words):
                        word = left[w] if mask >= 0 else np.uint64(0xFFFF_FFFF_FFFF_FFFF)
                        while word:
                            position = low + w * 64 + int(lowest_bit(word))
                            word &= word - np.uint64(1)
                            if position >= high:
                                break
                            at = origin + position * stride
                            good = segment.dead[position] == 0
                            for c in range(width):
                                if c < ordered:
                                    holds = False
                                    for i in range(begin[c], end[c]):
                                        holds |= (segment.records[at + 2 * c] <= want[i]) & (
                                            want[i] <= segment.records[at + 2 * c + 1]
                                        )
                                elif c < plain:
                                    holds = False
                                    for i in range(begin[c], end[c]):
                                        holds |= segment.records[at + ordered + c] == want[i]
                                else:
                                    holds = marked[base[c] + segment.records[at + ordered + c]] != 0
                                good &= holds
                                if not good:
                                    break
                            buffer[used] = segment.emit[position]
                            used += good
        unmark_concepts(graph, batch, marked, above)
    starts[kinds.size] = used
    return buffer


@compiled
def _possible(
    segment: SegmentArrays,
    cells_of: Bytes,
    want: Codes,
    begin: Ints,
    end: Ints,
    slot: int,
    width: int,
    access: int,
    mask: int,
    words: int,
    left: Words,
    column: Words,
) -> None:
    """AND over the slots but `access` of the OR over their values, to `left`."""
    for w in range(words):
        left[w] = np.uint64(0xFFFF_FFFF_FFFF_FFFF)
    narrowing = 0
    for j in range(width):
        if j == access:
            continue
        k = segment.slot_column[slot + j]
        for w in range(words):
            column[w] = np.uint64(0)
        for i in range(begin[j], end[j]):
            if want[i] < 0:
                continue
            if segment.column_how[k] == ORDERED:
                cell = want[i] * CELLS // segment.column_codes[k]
            elif segment.column_how[k] == KEY:
                cell = int(want[i] & (CELLS - 1))
            else:
                cell = int(cells_of[want[i]])
            at = mask + (narrowing * CELLS + cell) * words
            for w in range(words):
                column[w] |= segment.masks[at + w]
        for w in range(words):
            left[w] &= column[w]
        narrowing += 1
