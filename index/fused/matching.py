"""The kernel that takes a batch of events through one segment.

    event ─▶ clusters it visits ─▶ lists, ranges, blocks ─▶ AND of one mask a slot ─▶ rows left ─▶ records, exactly

First pass: each event, all of its clusters but their far blocks. Further passes: each far block, all events, so that a
block's masks stay in the cache. The body is one loop in one function, since a call that takes many arrays costs as much
as a short list; the arrays of masks are cut to slices, since flat signed offsets compile to gathers.
"""

import numpy as np

from index.compiling import compiled, lowest_bit, nth
from index.fused.arrays import Bytes, Codes, Floats, Ints, Packed, unpack
from index.fused.bounds import number_code
from index.fused.conjuncts import KEY, ORDERED
from index.fused.graph_arrays import CELLS, GraphArrays, walk_up

__all__ = ["match_segment"]


@compiled
def match_segment(
    packed: Packed,
    graph: GraphArrays,
    columns: Codes,
    all_codes: Codes,
    all_numbers: Floats,
    kinds: Codes,
    several_index: Codes,
    visits_from: Ints,
    visits: Ints,
    cells_of: Bytes,
    marked: Bytes,
    above: Codes,
    buffer: Codes,
    starts: Ints,
) -> Codes:
    """Match the events that have one value a column, the others being passed over. Event `e` visits the clusters
    `visits[visits_from[k] : visits_from[k + 1]]`, k being its kind. Returns the buffer, perhaps a larger one; of it,
    pass p found for event e what stands from `starts[p * events + e]` to the next start. `marked` is all zero before
    and after; `cells_of` is the cell of each concept."""
    segment = unpack(packed)
    # Names of their own: taken out of the tuple, an array costs two atomic steps each time.
    block_begin = segment.block_begin
    block_end = segment.block_end
    block_far = segment.block_far
    block_from = segment.block_from
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
    dead = segment.dead
    emit = segment.emit
    far_blocks = segment.far
    far_cluster = segment.far_cluster
    index_from = segment.index_from
    index_shift = segment.index_shift
    list_from = segment.list_from
    all_lists = segment.lists
    local = segment.local
    lower_from = segment.lower_from
    masks = segment.masks
    ordered_slots = segment.ordered
    plain_slots = segment.plain
    record_from = segment.record_from
    records = segment.records
    sizes = segment.sizes
    slot_column = segment.slot_column
    slot_from = segment.slot_from
    upper_from = segment.upper_from
    events, width_all = kinds.size, columns.size
    concepts = graph.parent_from.size - 1
    killed = sizes[3] > 0
    # Which of the batch's columns a column of the segment is; the codes and cells of all values.
    where = np.full(column_how.size, -1, dtype=np.int64)
    mark_base = np.zeros(width_all, dtype=np.int64)
    concept_at = np.empty(width_all, dtype=np.int64)
    concept_count = 0
    want = np.full((events, width_all), -1, dtype=np.int32)
    cells = np.zeros((events, width_all), dtype=np.uint8)
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
                want[nth(e), nth(s)] = code
                if code >= 0:
                    cells[nth(e), nth(s)] = code * CELLS // size
        elif how == KEY:
            for e in range(events):
                code = all_codes[nth(e * width_all + s)]
                want[nth(e), nth(s)] = code
                cells[nth(e), nth(s)] = code & (CELLS - 1)
        else:
            mark_base[nth(s)] = concept_count * concepts
            concept_at[nth(concept_count)] = s
            concept_count += 1
            for e in range(events):
                code = all_codes[nth(e * width_all + s)]
                want[nth(e), nth(s)] = code
                if code >= 0:
                    cells[nth(e), nth(s)] = cells_of[nth(code)]
    above_from = np.zeros(width_all + 1, dtype=np.int64)
    listed_from = np.zeros(width_all + 1, dtype=np.int64)
    offered = sizes[0]
    todo = np.empty((offered + width_all * 16, 4), dtype=np.int64)
    value = np.empty(sizes[1] + 1, dtype=np.int32)
    base = np.empty(sizes[1] + 1, dtype=np.int64)
    column_of = np.empty(sizes[1] + 1, dtype=np.int64)
    picked = np.empty(sizes[2] + 64, dtype=np.int64)
    left = np.empty(sizes[2] // 64 + 10, dtype=np.uint64)
    mask_at = np.empty(sizes[1] + 1, dtype=np.int64)
    used = 0
    item = 0
    for far in range(-1, far_blocks.size):
        for event in range(events):
            starts[nth(item)] = used
            item += 1
            if several_index[nth(event)] >= 0:
                continue
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
            top = 0
            for k in range(concept_count):
                s = concept_at[nth(k)]
                above_from[nth(s)] = top
                if want[nth(event), nth(s)] >= 0:
                    top = walk_up(graph, want[nth(event), nth(s)], marked, mark_base[nth(s)], above, top)
                listed_from[nth(s)] = top
            for visit in range(first, last):
                cluster = visits[nth(visit)]
                slot = slot_from[nth(cluster)]
                width = slot_from[nth(cluster + 1)] - slot
                ordered, plain = ordered_slots[nth(cluster)], plain_slots[nth(cluster)]
                absent = False
                for j in range(width):
                    s = where[nth(slot_column[nth(slot + j)])]
                    if s < 0:
                        absent = True
                        break
                    value[nth(j)] = want[nth(event), nth(s)]
                    absent |= value[nth(j)] < 0
                    base[nth(j)] = mark_base[nth(s)]
                    column_of[nth(j)] = s
                if absent:
                    continue
                # What to look at: (begin, end, masks, access slot).
                count = 0
                if far >= 0:
                    block = far_blocks[nth(far)]
                    todo[0, 0], todo[0, 1] = block_begin[nth(block)], block_end[nth(block)]
                    todo[0, 2], todo[0, 3] = block_mask[nth(block)], -1
                    count = 1
                else:
                    for j in range(width):
                        lists, lists_end = list_from[nth(slot + j)], list_from[nth(slot + j + 1)]
                        if lists == lists_end:
                            continue
                        a, a_end = 0, 1
                        if j >= plain:
                            a, a_end = above_from[nth(column_of[nth(j)])], listed_from[nth(column_of[nth(j)])]
                            if count + a_end - a + offered > todo.shape[0]:
                                wider = np.empty((2 * todo.shape[0] + a_end - a, 4), dtype=np.int64)
                                wider[:count] = todo[:count]
                                todo = wider
                            if lists_end - lists < a_end - a:
                                for at in range(lists, lists_end):
                                    if marked[nth(base[nth(j)] + all_lists[nth(4 * at)])]:
                                        todo[nth(count), 0], todo[nth(count), 1] = (
                                            all_lists[nth(4 * at + 1)],
                                            all_lists[nth(4 * at + 2)],
                                        )
                                        todo[nth(count), 2], todo[nth(count), 3] = all_lists[nth(4 * at + 3)], j
                                        count += 1
                                continue
                        shift = index_shift[nth(slot + j)]
                        coarse_from = index_from[nth(slot + j)]
                        coarse_end = index_from[nth(slot + j + 1)] - 1
                        while a < a_end:
                            code = value[nth(j)] if j < plain else above[nth(a)]
                            a += 1
                            at = coarse_from + (code >> shift)
                            if at >= coarse_end:
                                continue
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
                                count += 1
                    for near in range(block_from[nth(cluster)], block_from[nth(cluster + 1)]):
                        if not block_far[nth(near)]:
                            todo[nth(count), 0], todo[nth(count), 1] = block_begin[nth(near)], block_end[nth(near)]
                            todo[nth(count), 2], todo[nth(count), 3] = block_mask[nth(near)], -1
                            count += 1
                stride = width + ordered + 1
                origin = record_from[nth(cluster)] - cluster_from[nth(cluster)] * stride
                if far < 0:
                    upper, lower = upper_from[nth(cluster)], lower_from[nth(cluster)]
                    end = cluster_from[nth(cluster + 1)]
                    if upper < lower:  # ascending by their upper bound: those from the value on
                        low, high = upper, lower
                        while low < high:
                            middle = (low + high) >> 1
                            if records[nth(origin + 3 * middle + 1)] < value[0]:
                                low = middle + 1
                            else:
                                high = middle
                        todo[nth(count), 0], todo[nth(count), 1], todo[nth(count), 2], todo[nth(count), 3] = (
                            low,
                            lower,
                            -1,
                            0,
                        )
                        count += 1
                    if lower < end:  # ascending by their lower bound: those up to the value
                        low, high = lower, end
                        while low < high:
                            middle = (low + high) >> 1
                            if records[nth(origin + 3 * middle)] <= value[0]:
                                low = middle + 1
                            else:
                                high = middle
                        todo[nth(count), 0], todo[nth(count), 1], todo[nth(count), 2], todo[nth(count), 3] = (
                            lower,
                            low,
                            -1,
                            0,
                        )
                        count += 1
                for i in range(count):
                    low, high, mask, access = todo[nth(i), 0], todo[nth(i), 1], todo[nth(i), 2], todo[nth(i), 3]
                    if used + (high - low) > buffer.size:
                        larger = np.empty(2 * buffer.size + (high - low), dtype=np.int32)
                        larger[:used] = buffer[:used]
                        buffer = larger
                    if width == (access >= 0):  # nothing is left to check
                        if killed:
                            for position in range(low, high):
                                buffer[nth(used)] = emit[nth(position)]
                                used += dead[nth(position)] == 0
                        elif high - low <= 16:
                            for position in range(low, high):
                                buffer[nth(used)] = emit[nth(position)]
                                used += 1
                        else:
                            buffer[used : used + (high - low)] = emit[low:high]
                            used += high - low
                        continue
                    if mask < 0:
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
                            if killed:
                                good &= dead[nth(position)] == 0
                            buffer[nth(used)] = records[nth(at + stride - 1)]
                            used += good
                            at += stride
                        continue
                    words = (high - low + 63) >> 6
                    narrowing = 0
                    for j in range(width):
                        if j != access:
                            mask_at[nth(narrowing)] = (
                                mask + (narrowing * 64 + int(cells[nth(event), nth(column_of[nth(j)])])) * words
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
                    found = 0
                    left[words : words + 8] = 0
                    for group in range(0, words, 8):
                        some = left[nth(group)] | left[nth(group + 1)] | left[nth(group + 2)] | left[nth(group + 3)]
                        some |= (
                            left[nth(group + 4)] | left[nth(group + 5)] | left[nth(group + 6)] | left[nth(group + 7)]
                        )
                        if some == 0:
                            continue
                        for w in range(group, group + 8):
                            word = left[nth(w)]
                            while word:
                                picked[nth(found)] = low + w * 64 + int(lowest_bit(word))
                                found += 1
                                word &= word - np.uint64(1)
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
                        if killed:
                            good &= dead[nth(position)] == 0
                        buffer[nth(used)] = records[nth(at + stride - 1)]
                        used += good
            for k in range(concept_count):
                s = concept_at[nth(k)]
                for i in range(above_from[nth(s)], listed_from[nth(s)]):
                    marked[nth(mark_base[nth(s)] + above[nth(i)])] = 0
    starts[nth(item)] = used
    return buffer
