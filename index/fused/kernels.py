"""The matching kernel: matches a batch of events against one segment.

    event ─▶ steps of its kind ─▶ lists, ranges, blocks ─▶ AND of one mask per slot ─▶ rows left ─▶ check of records

The first pass visits all clusters of each event, without their far blocks. Each further pass matches all events against
one far block, so that the masks of the block stay in the cache. Lists are looked up in waves: the memory for all lists
of a wave is prefetched before the first list is read. The body is one loop in one function, because a call that takes
many arrays costs as much as a short list. The arrays of masks are cut to slices, because flat signed offsets compile to
gathers.

If an event has several values in a column, a conjunct holds if one of the values satisfies it; each conjunct is decided
separately. Lists are looked up for every value. The masks of all values of a column are united before the AND with the
masks of other columns. A record is checked against all values. Values that no bound distinguishes are reduced to one.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kindcast.index.fused.arrays import (
    CELLS,
    Bytes,
    Codes,
    Floats,
    GraphArrays,
    Ints,
    Packed,
    SegmentArrays,
    grown,
    unpack,
    walk_up,
)
from kindcast.index.fused.columns import KEY, ORDERED
from kindcast.index.jit import compiled, lowest_bit, nth, prefetch

__all__ = ["Bounds", "bounds_of", "distinct_codes", "match_segment", "number_code"]


# The steps for a kind of event: computed once per batch, executed for each of its events.
#
# The attributes of an event alone determine the clusters that it visits, and so the lists, ranges and blocks that the
# kernel must read. A batch has few kinds and many events. A flat list of steps avoids the branch mispredictions of
# nested loops over clusters and slots.
#
#     kind ─▶ clusters it visits ─▶ lookups by value, lookups by concept, ranges, near blocks

Rows = npt.NDArray[np.int64]

BY_VALUE, BY_CONCEPT, RANGE, NEAR = 0, 1, 2, 3
"""The types of steps, as column numbers of `Steps.begin`."""


class Steps(NamedTuple):
    """The steps of type `t` for kind `k` are those from `begin[k, t]` to before `begin[k + 1, t]`. A visit is an index
    of `visits`; a column is a column of the batch."""

    begin: Rows  # int64[kinds + 1, 4]
    slots_at: Ints  # [visits + 1] where the slots of each visit begin in column_of
    column_of: Ints  # the column of each slot; -1 in the first slot if the batch lacks a column
    by_value: Rows  # [:, 7] column, shift, first and last of coarse index, first list, slot in cluster, visit
    by_concept: Rows  # [:, 4] column, slot, slot in cluster, visit
    ranges: Rows  # [:, 5] column, begin, end, whether sorted by lower bound, visit
    near: Rows  # [:, 4] begin, end, masks, visit


@compiled
def lay_steps(segment: SegmentArrays, where: Ints, visits_from: Ints, visits: Ints) -> Steps:
    """Returns the steps of all kinds. Kind `k` visits the clusters `visits[visits_from[k] : visits_from[k + 1]]`.
    `where[c]` is the batch's column for column `c` of the segment, or -1 if the batch lacks it. A cluster that needs
    a missing column gets no steps."""
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
        for i in range(count.size):  # a row at once would be compiled for seconds: see `grown`
            begin[nth(kind + 1), nth(i)] = count[nth(i)]
    return Steps(begin, slots_at, column_of, by_value, by_concept, ranges, near)


# Encoding of numbers by the bounds of a segment.
#
# The code of a number is its rank among the sorted distinct bounds b0 < b1 < …: 2i + 1 if it equals bi, otherwise twice
# the number of bounds below it. So `low <= v <= high` needs one comparison of integers on each side:
#
#     value      … b0 … b1 …            row with bounds bi, bj:  [2i + 1, 2j + 1]
#     code       0  1 2  3 4


class Bounds(NamedTuple):
    """The sorted distinct bounds of a segment in each ordered column. Ordered columns are the first of a segment.

    Column k has the bounds `values[start[k] : start[k + 1]]`. Buckets of equal width divide the range of its finite
    bounds; `table[table_start[k] + bucket]` is the number of bounds in lower buckets. `steps[3k : 3k + 3]` holds the
    least finite bound, the greatest finite bound, and the number of buckets per unit, which is zero if equal widths are
    impossible.
    """

    start: Ints
    values: Floats
    steps: Floats
    table: Codes
    table_start: Ints


def bounds_of(seen: Mapping[int, list[Floats]], count: int) -> Bounds:
    """Returns the bounds of `count` columns. `seen` maps column k to arrays with all its bounds, in any order."""
    sorted_values = [np.unique(np.concatenate(seen.get(k, [np.empty(0)]))) for k in range(count)]
    steps: list[float] = []
    tables = []
    for values in sorted_values:
        finite = values[np.isfinite(values)]
        least, most = (float(finite[0]), float(finite[-1])) if finite.size else (0.0, 0.0)
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            scale = float(np.float64(values.size) / (np.float64(most) - np.float64(least))) if most > least else 0.0
        if not 0.0 < scale < 1e300:
            scale = 0.0
        steps += (least, most, scale)
        tables.append(_bucket_table(values, least, most, scale, values.size + 2))
    return Bounds(
        _starts([values.size for values in sorted_values]),
        np.concatenate([*sorted_values, np.empty(0)]),
        np.array(steps, dtype=np.float64),
        np.concatenate([*tables, np.empty(0, dtype=np.int32)]),
        _starts([table.size for table in tables]),
    )


@compiled
def _bucket(value: float, least: float, most: float, scale: float) -> int:
    if scale == 0.0 or value <= least:
        return 0
    return int((min(value, most) - least) * scale)


@compiled
def _bucket_table(values: Floats, least: float, most: float, scale: float, size: int) -> Codes:
    """Returns `int32[size + 1]`: for each bucket, how many of the sorted `values` are in lower buckets. `size` is
    greater than every bucket number."""
    table = np.zeros(size + 1, dtype=np.int32)
    for value in values:
        table[_bucket(value, least, most, scale) + 1] += 1
    for bucket in range(size):
        table[bucket + 1] += table[bucket]
    return table


@compiled
def number_code(value: float, bounds: Floats, table: Codes, least: float, most: float, scale: float) -> int:
    """Returns the code of `value` among the `bounds` of one column, or -1 for NaN. `table`, `least`, `most` and `scale`
    are the column's buckets. The code is exact for every distribution, because the bounds of one bucket are bisected.
    The function takes few arrays, because each array costs time in every call."""
    if np.isnan(value):
        return -1
    bucket = 0
    if scale != 0.0 and value > least:
        bucket = int((min(value, most) - least) * scale)
    low, high = int(table[nth(bucket)]), int(table[nth(bucket + 1)])
    end = high
    while low < high:
        middle = (low + high) >> 1
        if bounds[nth(middle)] < value:
            low = middle + 1
        else:
            high = middle
    code = 2 * low
    if low < end and bounds[nth(low)] == value:
        code += 1
    return code


def _starts(sizes: list[int]) -> Ints:
    starts = np.zeros(len(sizes) + 1, dtype=np.int64)
    np.cumsum(np.array(sizes, dtype=np.int64), out=starts[1:])
    return starts


WAVE = 64
"""Maximum number of lists in a wave. Most events have fewer, and what is prefetched for a wave fits the L1 cache."""
COPIED = 32
"""Number of rows that are copied together if none of them has a tombstone."""
FEW_VALUES = 16
"""Up to this number of values, insertion sort is used."""


@compiled
def distinct_codes(codes: Codes, begin: int, end: int) -> int:
    """Sorts `codes[begin:end]` in place and removes duplicates and negative codes (no value). Returns the end of the
    codes that are left."""
    if end - begin > FEW_VALUES:
        codes[begin:end].sort()
    else:
        for i in range(begin + 1, end):
            code, to = codes[nth(i)], i
            while to > begin and codes[nth(to - 1)] > code:
                codes[nth(to)] = codes[nth(to - 1)]
                to -= 1
            codes[nth(to)] = code
    at = begin
    for i in range(begin, end):
        code = codes[nth(i)]
        if code >= 0 and (at == begin or codes[nth(at - 1)] != code):
            codes[nth(at)] = code
            at += 1
    return at


@compiled
def match_segment(
    packed: Packed,
    graph: GraphArrays,
    columns: Codes,
    all_codes: Codes,
    all_numbers: Floats,
    kinds: Codes,
    several_index: Codes,
    several_from: Ints,
    visits_from: Ints,
    visits: Ints,
    cells_of: Bytes,
    marked: Bytes,
    above: Codes,
    before: Codes,
    before_from: Ints,
    buffer: Codes,
    starts: Ints,
) -> Codes:
    """Matches a batch against a segment. Columns, values and kinds are those of `EventBatch`. An event of kind `k`
    visits the clusters `visits[visits_from[k] : visits_from[k + 1]]`.

    Returns the buffer, or a larger copy of it. The rows that pass p found for event e begin at
    `starts[p * events + e]` and end at the next start. In the first pass, the rows of event e that were found elsewhere
    come first: `before[before_from[e] : before_from[e + 1]]`. `marked` is all zero before and after the call;
    `cells_of` is the cell of each concept."""
    segment = unpack(packed)
    # Local names, because reading an array from the tuple costs two atomic operations each time.
    block_begin = segment.block_begin
    block_end = segment.block_end
    block_mask = segment.block_mask
    bound_from = segment.bound_from
    all_bounds = segment.bounds
    bucket_from = segment.bucket_from
    bucket_steps = segment.bucket_steps
    bucket_table = segment.bucket_table
    cluster_from = segment.cluster_from
    coarse = segment.coarse
    column_codes = segment.column_codes
    column_how = segment.column_how
    tombstones = segment.tombstones
    emit = segment.emit
    far_blocks = segment.far
    far_cluster = segment.far_cluster
    index_from = segment.index_from
    index_shift = segment.index_shift
    list_from = segment.list_from
    all_lists = segment.lists
    local = segment.local
    masks = segment.masks
    ordered_slots = segment.ordered
    plain_slots = segment.plain
    record_from = segment.record_from
    records = segment.records
    sizes = segment.sizes
    events, width_all = kinds.size, columns.size
    concepts = graph.parent_from.size - 1
    has_tombstones = sizes[3] > 0
    # The batch's column for each column of the segment; the codes and cells of all values.
    where = np.full(column_how.size, -1, dtype=np.int64)
    mark_base = np.zeros(width_all, dtype=np.int64)
    concept_at = np.empty(width_all, dtype=np.int64)
    concept_count = 0
    want = np.full(all_codes.size, -1, dtype=np.int32)
    cells = np.zeros(all_codes.size, dtype=np.uint8)
    several_to = several_from[: several_from.size - 1].copy()  # the end of the distinct codes of each event and column
    for s in range(width_all):
        if columns[nth(s)] >= local.size or local[nth(columns[nth(s)])] < 0:
            continue
        k = int(local[nth(columns[nth(s)])])
        where[nth(k)] = s
        how = column_how[nth(k)]
        if how == ORDERED:
            size = column_codes[nth(k)]
            bounds = all_bounds[bound_from[nth(k)] : bound_from[nth(k + 1)]]
            table = bucket_table[bucket_from[nth(k)] : bucket_from[nth(k + 1)]]
            least, most = bucket_steps[nth(3 * k)], bucket_steps[nth(3 * k + 1)]
            scale = bucket_steps[nth(3 * k + 2)]
            for e in range(events):
                code = number_code(all_numbers[nth(e * width_all + s)], bounds, table, least, most, scale)
                want[nth(e * width_all + s)] = code
                if code >= 0:
                    cells[nth(e * width_all + s)] = code * CELLS // size
            for place in range(s, several_to.size, width_all):
                for i in range(several_from[nth(place)], several_from[nth(place + 1)]):
                    want[nth(i)] = number_code(all_numbers[nth(i)], bounds, table, least, most, scale)
                several_to[nth(place)] = distinct_codes(want, several_from[nth(place)], several_from[nth(place + 1)])
                for i in range(several_from[nth(place)], several_to[nth(place)]):
                    cells[nth(i)] = want[nth(i)] * CELLS // size
        elif how == KEY:
            for e in range(events):
                code = all_codes[nth(e * width_all + s)]
                want[nth(e * width_all + s)] = code
                cells[nth(e * width_all + s)] = code & (CELLS - 1)
        else:
            mark_base[nth(s)] = concept_count * concepts
            concept_at[nth(concept_count)] = s
            concept_count += 1
            for e in range(events):
                code = all_codes[nth(e * width_all + s)]
                want[nth(e * width_all + s)] = code
                if code >= 0:
                    cells[nth(e * width_all + s)] = cells_of[nth(code)]
        if how != ORDERED:
            for place in range(s, several_to.size, width_all):
                for i in range(several_from[nth(place)], several_from[nth(place + 1)]):
                    want[nth(i)] = all_codes[nth(i)]
                several_to[nth(place)] = distinct_codes(want, several_from[nth(place)], several_from[nth(place + 1)])
                for i in range(several_from[nth(place)], several_to[nth(place)]):
                    code = want[nth(i)]
                    cells[nth(i)] = code & (CELLS - 1) if how == KEY else cells_of[nth(code)]
    above_from = np.zeros(width_all + 1, dtype=np.int64)
    listed_from = np.zeros(width_all + 1, dtype=np.int64)
    offered = sizes[0]
    steps = lay_steps(segment, where, visits_from, visits)
    step_from, slots_at, column_of = steps.begin, steps.slots_at, steps.column_of
    by_value, by_concept, ranges, near = steps.by_value, steps.by_concept, steps.ranges, steps.near
    # The row ranges to check: begin, end, masks, access slot, visit.
    todo = np.empty((WAVE + offered + width_all * 16, 5), dtype=np.int64)
    looked_step = np.empty(WAVE, dtype=np.int64)
    looked_code = np.empty(WAVE, dtype=np.int64)
    looked_from = np.empty(WAVE, dtype=np.int64)
    looked_to = np.empty(WAVE, dtype=np.int64)
    value = np.empty(sizes[1] + 1, dtype=np.int32)
    value_from = np.empty(sizes[1] + 1, dtype=np.int64)
    value_to = np.empty(sizes[1] + 1, dtype=np.int64)
    base = np.empty(sizes[1] + 1, dtype=np.int64)
    picked = np.empty(sizes[2] + 64, dtype=np.int64)
    left = np.empty(sizes[2] // 64 + 10, dtype=np.uint64)
    united = np.empty(sizes[2] // 64 + 10, dtype=np.uint64)
    mask_at = np.empty(sizes[1] + 1, dtype=np.int64)
    used = 0
    item = 0
    for far in range(-1, far_blocks.size):
        for event in range(events):
            starts[nth(item)] = used
            item += 1
            if far < 0 and before_from[nth(event)] < before_from[nth(event + 1)]:
                low, high = before_from[nth(event)], before_from[nth(event + 1)]
                if used + (high - low) > buffer.size:
                    buffer = grown(buffer, used, 2 * buffer.size + (high - low))
                for i in range(low, high):
                    buffer[nth(used)] = before[nth(i)]
                    used += 1
            first, last = visits_from[nth(kinds[nth(event)])], visits_from[nth(kinds[nth(event)] + 1)]
            if far >= 0:
                end = last
                while first < last:
                    middle = (first + last) >> 1
                    if visits[nth(middle)] < far_cluster[nth(far)]:
                        first = middle + 1
                    else:
                        last = middle
                if first == end or visits[nth(first)] != far_cluster[nth(far)]:
                    continue
                last = first + 1
            if first == last:
                continue
            row = event * width_all
            own_values = several_index[nth(event)] * width_all  # negative if no column has several values
            top = 0
            for k in range(concept_count):
                s = concept_at[nth(k)]
                above_from[nth(s)] = top
                if own_values >= 0:
                    for i in range(several_from[nth(own_values + s)], several_to[nth(own_values + s)]):
                        top = walk_up(graph, want[nth(i)], marked, mark_base[nth(s)], above, top)
                elif want[nth(row + s)] >= 0:
                    top = walk_up(graph, want[nth(row + s)], marked, mark_base[nth(s)], above, top)
                listed_from[nth(s)] = top
            kind = kinds[nth(event)]
            look, look_end = step_from[nth(kind), BY_VALUE], step_from[nth(kind + 1), BY_VALUE]
            climb, climb_end = step_from[nth(kind), BY_CONCEPT], step_from[nth(kind + 1), BY_CONCEPT]
            span, span_end = step_from[nth(kind), RANGE], step_from[nth(kind + 1), RANGE]
            close, close_end = step_from[nth(kind), NEAR], step_from[nth(kind + 1), NEAR]
            taken = 0  # how many values of the next lookup are done
            if far >= 0:  # only the far block
                look, climb, span, close = look_end, climb_end, span_end, close_end
            alone = far >= 0
            while alone or look < look_end or climb < climb_end or span < span_end or close < close_end:
                count = 0
                if alone:
                    alone = False
                    block = far_blocks[nth(far)]
                    todo[0, 0], todo[0, 1] = block_begin[nth(block)], block_end[nth(block)]
                    todo[0, 2], todo[0, 3], todo[0, 4] = block_mask[nth(block)], -1, first
                    count = (
                        slots_at[nth(first)] == slots_at[nth(first + 1)] or column_of[nth(slots_at[nth(first)])] >= 0
                    )
                elif look < look_end:
                    wave = 0
                    if own_values >= 0:
                        while wave < WAVE and look < look_end:
                            at = own_values + by_value[nth(look), 0]
                            if several_from[nth(at)] + taken < several_to[nth(at)]:
                                looked_step[nth(wave)] = look
                                looked_code[nth(wave)] = want[nth(several_from[nth(at)] + taken)]
                                wave += 1
                                taken += 1
                            else:
                                look += 1
                                taken = 0
                    else:
                        wave = min(WAVE, look_end - look)
                        for i in range(wave):
                            looked_step[nth(i)] = look + i
                            looked_code[nth(i)] = want[nth(row + by_value[nth(look + i), 0])]
                        look += wave
                    for i in range(wave):
                        step = looked_step[nth(i)]
                        at = by_value[nth(step), 2] + (max(looked_code[nth(i)], 0) >> by_value[nth(step), 1])
                        looked_from[nth(i)] = min(at, by_value[nth(step), 3])
                        prefetch(coarse, looked_from[nth(i)])
                    for i in range(wave):
                        at, lists = looked_from[nth(i)], by_value[nth(looked_step[nth(i)]), 4]
                        looked_from[nth(i)] = lists + coarse[nth(at)]
                        looked_to[nth(i)] = lists + coarse[nth(at + 1)]
                        prefetch(all_lists, 4 * looked_from[nth(i)])
                    for i in range(wave):
                        step, code = looked_step[nth(i)], looked_code[nth(i)]
                        low, high = looked_from[nth(i)], looked_to[nth(i)]
                        while low < high:
                            middle = (low + high) >> 1
                            if all_lists[nth(4 * middle)] < code:
                                low = middle + 1
                            else:
                                high = middle
                        if low < looked_to[nth(i)] and all_lists[nth(4 * low)] == code:
                            begin, visit = all_lists[nth(4 * low + 1)], by_value[nth(step), 6]
                            todo[nth(count), 0], todo[nth(count), 1] = begin, all_lists[nth(4 * low + 2)]
                            todo[nth(count), 2], todo[nth(count), 3] = (
                                all_lists[nth(4 * low + 3)],
                                by_value[nth(step), 5],
                            )
                            todo[nth(count), 4] = visit
                            count += 1
                            cluster = visits[nth(visit)]
                            stride = slots_at[nth(visit + 1)] - slots_at[nth(visit)] + ordered_slots[nth(cluster)] + 1
                            prefetch(records, record_from[nth(cluster)] + (begin - cluster_from[nth(cluster)]) * stride)
                elif climb < climb_end:
                    s, slot = by_concept[nth(climb), 0], by_concept[nth(climb), 1]
                    j, visit = by_concept[nth(climb), 2], by_concept[nth(climb), 3]
                    climb += 1
                    lists, lists_end = list_from[nth(slot)], list_from[nth(slot + 1)]
                    a, a_end = above_from[nth(s)], listed_from[nth(s)]
                    if a_end - a > todo.shape[0]:
                        todo = np.empty((2 * (a_end - a), 5), dtype=np.int64)
                    if lists_end - lists < a_end - a:
                        for at in range(lists, lists_end):
                            if marked[nth(mark_base[nth(s)] + all_lists[nth(4 * at)])]:
                                todo[nth(count), 0], todo[nth(count), 1] = (
                                    all_lists[nth(4 * at + 1)],
                                    all_lists[nth(4 * at + 2)],
                                )
                                todo[nth(count), 2], todo[nth(count), 3] = all_lists[nth(4 * at + 3)], j
                                todo[nth(count), 4] = visit
                                count += 1
                    else:
                        shift, coarse_last = index_shift[nth(slot)], index_from[nth(slot + 1)] - 2
                        for each in range(a, a_end):
                            code = above[nth(each)]
                            at = min(index_from[nth(slot)] + (code >> shift), coarse_last)
                            low, high = lists + coarse[nth(at)], lists + coarse[nth(at + 1)]
                            end = high
                            while low < high:
                                middle = (low + high) >> 1
                                if all_lists[nth(4 * middle)] < code:
                                    low = middle + 1
                                else:
                                    high = middle
                            if low < end and all_lists[nth(4 * low)] == code:
                                todo[nth(count), 0], todo[nth(count), 1] = (
                                    all_lists[nth(4 * low + 1)],
                                    all_lists[nth(4 * low + 2)],
                                )
                                todo[nth(count), 2], todo[nth(count), 3] = all_lists[nth(4 * low + 3)], j
                                todo[nth(count), 4] = visit
                                count += 1
                elif span < span_end:
                    code = want[nth(row + ranges[nth(span), 0])]
                    begin, end, visit = ranges[nth(span), 1], ranges[nth(span), 2], ranges[nth(span), 4]
                    by_lower = ranges[nth(span), 3]
                    if own_values >= 0:  # the least or greatest value matches every range that any value matches
                        at = own_values + ranges[nth(span), 0]
                        code = -1
                        if several_from[nth(at)] < several_to[nth(at)]:
                            code = want[nth(several_to[nth(at)] - 1 if by_lower else several_from[nth(at)])]
                    span += 1
                    if code < 0:
                        continue
                    cluster = visits[nth(visit)]
                    origin = record_from[nth(cluster)] - cluster_from[nth(cluster)] * 3
                    low, high = begin, end
                    if by_lower:  # sorted by lower bound: the rows whose lower bound is at most the value
                        while low < high:
                            middle = (low + high) >> 1
                            if records[nth(origin + 3 * middle)] <= code:
                                low = middle + 1
                            else:
                                high = middle
                        end = low
                    else:  # sorted by upper bound: the rows whose upper bound is at least the value
                        while low < high:
                            middle = (low + high) >> 1
                            if records[nth(origin + 3 * middle + 1)] < code:
                                low = middle + 1
                            else:
                                high = middle
                        begin = low
                    todo[0, 0], todo[0, 1], todo[0, 2], todo[0, 3], todo[0, 4] = begin, end, -1, 0, visit
                    count = 1
                else:
                    todo[0, 0], todo[0, 1] = near[nth(close), 0], near[nth(close), 1]
                    todo[0, 2], todo[0, 3], todo[0, 4] = near[nth(close), 2], -1, near[nth(close), 3]
                    close += 1
                    count = 1
                for i in range(count):
                    low, high, mask, access = todo[nth(i), 0], todo[nth(i), 1], todo[nth(i), 2], todo[nth(i), 3]
                    visit = todo[nth(i), 4]
                    cluster, own = visits[nth(visit)], slots_at[nth(visit)]
                    width = slots_at[nth(visit + 1)] - own
                    if used + (high - low) > buffer.size:
                        buffer = grown(buffer, used, 2 * buffer.size + (high - low))
                    if width == (access >= 0):  # nothing is left to check
                        if has_tombstones:
                            for begin in range(low, high, COPIED):
                                end = min(begin + COPIED, high)
                                gone = np.uint8(0)
                                for position in range(begin, end):
                                    gone |= tombstones[nth(position)]
                                if gone == 0:
                                    for position in range(end - begin):
                                        buffer[nth(used + position)] = emit[nth(begin + position)]
                                    used += end - begin
                                    continue
                                for position in range(begin, end):
                                    buffer[nth(used)] = emit[nth(position)]
                                    used += tombstones[nth(position)] == 0
                        else:
                            for position in range(high - low):
                                buffer[nth(used + position)] = emit[nth(low + position)]
                            used += high - low
                        continue
                    ordered, plain = ordered_slots[nth(cluster)], plain_slots[nth(cluster)]
                    stride = width + ordered + 1
                    origin = record_from[nth(cluster)] - cluster_from[nth(cluster)] * stride
                    for j in range(width):
                        s = column_of[nth(own + j)]
                        value[nth(j)] = want[nth(row + s)]
                        base[nth(j)] = mark_base[nth(s)]
                    if own_values >= 0:
                        for j in range(width):
                            s = column_of[nth(own + j)]
                            value_from[nth(j)] = several_from[nth(own_values + s)]
                            value_to[nth(j)] = several_to[nth(own_values + s)]
                    if mask < 0 and own_values < 0:
                        at = origin + low * stride
                        for position in range(low, high):
                            good = True
                            for j in range(ordered):
                                good &= (records[nth(at + 2 * j)] <= value[nth(j)]) & (
                                    value[nth(j)] <= records[nth(at + 2 * j + 1)]
                                )
                            for j in range(ordered, plain):
                                good &= records[nth(at + ordered + j)] == value[nth(j)]
                            for j in range(plain, width):
                                good &= marked[nth(base[nth(j)] + records[nth(at + ordered + j)])] != 0
                            if has_tombstones:
                                good &= tombstones[nth(position)] == 0
                            buffer[nth(used)] = records[nth(at + stride - 1)]
                            used += good
                            at += stride
                        continue
                    words = (high - low + 63) >> 6
                    if mask >= 0 and own_values >= 0:
                        narrowing = 0
                        for j in range(width):
                            if j == access:
                                continue
                            cell_before = -1
                            united[:words] = 0
                            for v in range(value_from[nth(j)], value_to[nth(j)]):
                                cell = int(cells[nth(v)])
                                if cell != cell_before:
                                    at = mask + (narrowing * 64 + cell) * words
                                    m = masks[at : at + words]
                                    for w in range(words):
                                        united[nth(w)] |= m[w]
                                cell_before = cell
                            for w in range(words):
                                left[nth(w)] = united[nth(w)] if narrowing == 0 else left[nth(w)] & united[nth(w)]
                            narrowing += 1
                    elif mask >= 0:
                        narrowing = 0
                        for j in range(width):
                            if j != access:
                                mask_at[nth(narrowing)] = (
                                    mask + (narrowing * 64 + int(cells[nth(row + column_of[nth(own + j)])])) * words
                                )
                                narrowing += 1
                        m = masks[mask_at[0] : mask_at[0] + words]
                        for w in range(words):
                            left[nth(w)] = m[w]
                        j = 1
                        while j + 3 <= narrowing:
                            m1 = masks[mask_at[nth(j)] : mask_at[nth(j)] + words]
                            m2 = masks[mask_at[nth(j + 1)] : mask_at[nth(j + 1)] + words]
                            m3 = masks[mask_at[nth(j + 2)] : mask_at[nth(j + 2)] + words]
                            for w in range(words):
                                left[nth(w)] &= m1[w] & m2[w] & m3[w]
                            j += 3
                        while j < narrowing:
                            m = masks[mask_at[nth(j)] : mask_at[nth(j)] + words]
                            for w in range(words):
                                left[nth(w)] &= m[w]
                            j += 1
                    found = high - low
                    if mask >= 0:
                        found = 0
                        left[words : words + 8] = 0
                        for group in range(0, words, 8):
                            some = left[nth(group)] | left[nth(group + 1)] | left[nth(group + 2)] | left[nth(group + 3)]
                            some |= (
                                left[nth(group + 4)]
                                | left[nth(group + 5)]
                                | left[nth(group + 6)]
                                | left[nth(group + 7)]
                            )
                            if some == 0:
                                continue
                            for w in range(group, group + 8):
                                word = left[nth(w)]
                                while word:
                                    picked[nth(found)] = low + w * 64 + int(lowest_bit(word))
                                    found += 1
                                    word &= word - np.uint64(1)
                    if own_values >= 0:
                        for f in range(found):
                            position = picked[nth(f)] if mask >= 0 else low + f
                            at = origin + position * stride
                            good = not has_tombstones or tombstones[nth(position)] == 0
                            for j in range(plain):
                                least_code = records[nth(at + 2 * j if j < ordered else at + ordered + j)]
                                most_code = records[nth(at + 2 * j + 1 if j < ordered else at + ordered + j)]
                                holds = False
                                for v in range(value_from[nth(j)], value_to[nth(j)]):
                                    holds |= (least_code <= want[nth(v)]) & (want[nth(v)] <= most_code)
                                good &= holds
                            for j in range(plain, width):
                                good &= marked[nth(base[nth(j)] + records[nth(at + ordered + j)])] != 0
                            buffer[nth(used)] = records[nth(at + stride - 1)]
                            used += good
                        continue
                    if width == 2 and ordered == 2 and not has_tombstones:  # two intervals, the most common case
                        v, w = value[0], value[1]
                        for f in range(found):
                            at = origin + picked[nth(f)] * 5
                            good = (records[nth(at)] <= v) & (v <= records[nth(at + 1)])
                            good &= (records[nth(at + 2)] <= w) & (w <= records[nth(at + 3)])
                            buffer[nth(used)] = records[nth(at + 4)]
                            used += good
                        continue
                    for f in range(found):
                        position = picked[nth(f)]
                        at = origin + position * stride
                        good = True
                        for j in range(ordered):
                            good &= (records[nth(at + 2 * j)] <= value[nth(j)]) & (
                                value[nth(j)] <= records[nth(at + 2 * j + 1)]
                            )
                        for j in range(ordered, plain):
                            good &= records[nth(at + ordered + j)] == value[nth(j)]
                        for j in range(plain, width):
                            good &= marked[nth(base[nth(j)] + records[nth(at + ordered + j)])] != 0
                        if has_tombstones:
                            good &= tombstones[nth(position)] == 0
                        buffer[nth(used)] = records[nth(at + stride - 1)]
                        used += good
            for k in range(concept_count):
                s = concept_at[nth(k)]
                for i in range(above_from[nth(s)], listed_from[nth(s)]):
                    marked[nth(mark_base[nth(s)] + above[nth(i)])] = 0
    starts[nth(item)] = used
    return buffer
