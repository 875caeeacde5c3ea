"""What is looked up for a kind of event: laid out once for a batch, done for each of its events.

Which clusters an event visits follows from its attributes alone, and with them which lists, ranges and blocks there
are to look at. A batch has few kinds and many events, and a straight list of steps leaves the processor nothing to
mispredict where nested loops over clusters and slots would.

    kind ─▶ clusters it visits ─▶ lookups by value, lookups by concept, ranges, near blocks
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from index.compiling import compiled, nth
from index.fused.arrays import Ints, SegmentArrays

__all__ = ["BY_CONCEPT", "BY_VALUE", "NEAR", "RANGE", "Steps", "lay_steps"]

Rows = npt.NDArray[np.int64]

BY_VALUE, BY_CONCEPT, RANGE, NEAR = 0, 1, 2, 3
"""The sorts of steps, as columns of `Steps.begin`."""


class Steps(NamedTuple):
    """The steps of kind `k`, of sort `t`, stand from `begin[k, t]` to `begin[k + 1, t]`. A visit is a place in
    `visits`; a column is one of the batch."""

    begin: Rows  # int64[kinds + 1, 4]
    slots_at: Ints  # [visits + 1] where the slots of a visit stand in column_of
    column_of: Ints  # the column of each slot, -1 in the first where the batch lacks one
    by_value: Rows  # [:, 7] column, shift, first and last of the coarse index, first list, slot within, visit
    by_concept: Rows  # [:, 4] column, slot, slot within, visit
    ranges: Rows  # [:, 5] column, begin, end, by its lower bound, visit
    near: Rows  # [:, 4] begin, end, masks, visit


@compiled
def lay_steps(segment: SegmentArrays, where: Ints, visits_from: Ints, visits: Ints) -> Steps:
    """The steps for kinds whose clusters are `visits[visits_from[k] : visits_from[k + 1]]`. `where` is the batch's
    column of each column of the segment, or -1; a cluster that needs one of those has no steps."""
    kinds = visits_from.size - 1
    slots_at = np.zeros(visits.size + 1, dtype=np.int64)
    values, concepts, blocks = 0, 0, 0
    for visit in range(visits.size):
        cluster = visits[nth(visit)]
        width = segment.slot_from[nth(cluster + 1)] - segment.slot_from[nth(cluster)]
        slots_at[nth(visit + 1)] = slots_at[nth(visit)] + width
        values += segment.plain[nth(cluster)]
        concepts += width - segment.plain[nth(cluster)]
        blocks += segment.block_from[nth(cluster + 1)] - segment.block_from[nth(cluster)]
    begin = np.zeros((kinds + 1, 4), dtype=np.int64)
    column_of = np.empty(slots_at[nth(visits.size)], dtype=np.int64)
    by_value = np.empty((values, 7), dtype=np.int64)
    by_concept = np.empty((concepts, 4), dtype=np.int64)
    ranges = np.empty((2 * visits.size, 5), dtype=np.int64)
    near = np.empty((blocks, 4), dtype=np.int64)
    count = np.zeros(4, dtype=np.int64)
    for kind in range(kinds):
        for visit in range(visits_from[nth(kind)], visits_from[nth(kind + 1)]):
            cluster = visits[nth(visit)]
            own = slots_at[nth(visit)]
            slot = segment.slot_from[nth(cluster)]
            width = segment.slot_from[nth(cluster + 1)] - slot
            absent = False
            for j in range(width):
                column = where[nth(segment.slot_column[nth(slot + j)])]
                absent |= column < 0
                column_of[nth(own + j)] = column
            if absent:
                column_of[nth(own)] = -1
                continue
            for j in range(width):
                lists = segment.list_from[nth(slot + j)]
                if lists == segment.list_from[nth(slot + j + 1)]:
                    continue
                if j < segment.plain[nth(cluster)]:
                    step = by_value[nth(count[BY_VALUE])]
                    step[0] = column_of[nth(own + j)]
                    step[1] = segment.index_shift[nth(slot + j)]
                    step[2] = segment.index_from[nth(slot + j)]
                    step[3] = segment.index_from[nth(slot + j + 1)] - 2
                    step[4], step[5], step[6] = lists, j, visit
                    count[BY_VALUE] += 1
                else:
                    step = by_concept[nth(count[BY_CONCEPT])]
                    step[0], step[1], step[2], step[3] = column_of[nth(own + j)], slot + j, j, visit
                    count[BY_CONCEPT] += 1
            upper, lower = segment.upper_from[nth(cluster)], segment.lower_from[nth(cluster)]
            for by_lower in range(2):
                first, last = (lower, segment.cluster_from[nth(cluster + 1)]) if by_lower else (upper, lower)
                if first < last:
                    step = ranges[nth(count[RANGE])]
                    step[0], step[1], step[2], step[3], step[4] = column_of[nth(own)], first, last, by_lower, visit
                    count[RANGE] += 1
            for block in range(segment.block_from[nth(cluster)], segment.block_from[nth(cluster + 1)]):
                if not segment.block_far[nth(block)]:
                    step = near[nth(count[NEAR])]
                    step[0], step[1] = segment.block_begin[nth(block)], segment.block_end[nth(block)]
                    step[2], step[3] = segment.block_mask[nth(block)], visit
                    count[NEAR] += 1
        begin[nth(kind + 1)] = count
    return Steps(begin, slots_at, column_of, by_value, by_concept, ranges, near)
