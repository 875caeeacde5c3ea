"""Small clusters, which are searched together. For data in which nearly every row has a different attribute set.

Visiting a cluster costs some 100 ns, regardless of its size. So clusters with few rows are stored at the end of the
segment, and one set of masks over all their positions excludes rows:

    attributes   absent attributes exclude the rows that require them; present ones exclude the rows that forbid them
    cells        a value in a column excludes the rows whose test of the column holds only in other cells

The records of the remaining rows are checked, as in other clusters.
"""

import sys
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from kindcast.index.clause import AttributeId
from kindcast.index.fused.arrays import (
    CELLS,
    Bytes,
    Codes,
    GraphArrays,
    GraphShape,
    Ints,
    Packed,
    SegmentArrays,
    Words,
    grown,
    unpack,
    walk_up,
)
from kindcast.index.fused.columns import CONCEPT, KEY, ORDERED
from kindcast.index.fused.kernels import distinct_codes, number_code
from kindcast.index.fused.layout import ClusterKey
from kindcast.index.jit import compiled, lowest_bit

__all__ = ["FEWEST_SCATTERED", "SCATTERED_ROWS", "Scattered", "ScatteredArrays", "match_scattered", "scattered_arrays"]

SCATTERED_ROWS = 64
"""A cluster with fewer rows is small: visiting it costs more than a word in each mask."""
FEWEST_SCATTERED = 64
"""Minimum number of small clusters to be searched together. If there are fewer, each is visited."""
MOST_COLUMNS = 64
"""Maximum number of columns with masks. The columns that most rows test get masks, of 8 bytes per row."""
MOST_ATTRIBUTES = 1024
"""Maximum number of attributes with a mask, of one bit per row. Other attributes are checked row by row."""
REMEMBERED_BYTES = 1 << 23
"""Maximum memory for cached results, which are some words per kind of event, and for the kinds: sets of attributes."""


class ScatteredArrays(NamedTuple):
    """The masks of the clusters from `first[0]` on. Their n positions begin at `first[1]`; w = ceil(n / 64) words."""

    first: Ints  # [2]
    cluster: Codes  # [n] the cluster of each position
    columns: Codes  # [K] of the segment, the most selective first
    masks: Words  # [K * CELLS * w] by column, by cell
    required: Codes  # [A] attributes, ascending
    lacking: Words  # [A * w] the rows that require each
    forbidden: Codes  # [F]
    having: Words  # [F * w] the rows that forbid each
    required_from: Ints  # [C + 1] attributes of each cluster that have no mask
    required_rest: Codes
    forbidden_from: Ints
    forbidden_rest: Codes


class Scattered:
    """The arrays, and a cache of the remaining rows by kind of event."""

    def __init__(self, arrays: ScatteredArrays) -> None:
        self.arrays = arrays
        words = (arrays.cluster.size + 63) // 64
        self._all = _full(arrays.cluster.size, words)
        self._lacking = arrays.lacking.reshape(arrays.required.size, words)
        self._having = arrays.having.reshape(arrays.forbidden.size, words)
        self._known: dict[frozenset[AttributeId], Words] = {}
        self._known_bytes = 0

    @property
    def nbytes(self) -> int:
        """Size of the arrays and the cache in bytes."""
        return sum(array.nbytes for array in self.arrays) + self._known_bytes

    def left_by(self, presents: Sequence[frozenset[AttributeId]]) -> Words:
        """Returns `uint64[kinds, w]`: for each kind of event, the rows whose attribute sets agree with it, as far as
        masks can decide. Costs some ns per attribute and 64 rows, once per kind."""
        return np.array([self._fitting(present) for present in presents], dtype=np.uint64).reshape(-1, self._all.size)

    def forget(self) -> None:
        """Clears the cache."""
        self._known.clear()
        self._known_bytes = 0

    def _fitting(self, present: frozenset[AttributeId]) -> Words:
        known = self._known.get(present)
        if known is None:
            has = np.array(sorted(present), dtype=np.int32)
            lacks = ~np.isin(self.arrays.required, has, assume_unique=True)
            hurts = np.isin(self.arrays.forbidden, has, assume_unique=True)
            out = np.bitwise_or.reduce(self._lacking[lacks], axis=0, initial=np.uint64(0))
            out |= np.bitwise_or.reduce(self._having[hurts], axis=0, initial=np.uint64(0))
            known = self._all & ~out
            size = known.nbytes + sys.getsizeof(present) + 100
            if self._known_bytes + size > REMEMBERED_BYTES:
                self.forget()
            self._known[present] = known
            self._known_bytes += size
        return known


def scattered_arrays(
    clusters: Sequence[ClusterKey], arrays: SegmentArrays, shape: GraphShape | None, first: int
) -> ScatteredArrays:
    """Returns the arrays for the clusters from `first` on. Costs about 1 µs per row and slot."""
    begin = int(arrays.cluster_from[first])
    sizes = np.diff(arrays.cluster_from[first:])
    count = int(arrays.cluster_from[-1]) - begin
    words = (count + 63) // 64
    small = clusters[first:]
    starts = (arrays.cluster_from[first:-1] - begin).tolist()
    required, lacking, required_rest = _attribute_masks([key[0] for key in small], starts, sizes.tolist(), words)
    forbidden, having, forbidden_rest = _attribute_masks([key[1] for key in small], starts, sizes.tolist(), words)
    slots = np.arange(arrays.slot_from[first], arrays.slot_from[-1])
    asking = np.bincount(
        arrays.slot_column[slots],
        weights=np.repeat(sizes, np.diff(arrays.slot_from[first:])),
        minlength=arrays.column_how.size,
    )
    columns = np.argsort(-asking, kind="stable")[:MOST_COLUMNS]
    columns = columns[asking[columns] > 0]
    masks = np.tile(_full(count, words), columns.size * CELLS)
    place = np.full(arrays.column_how.size, -1, dtype=np.int64)
    place[columns] = np.arange(columns.size)
    cell_bits = np.zeros(0, dtype=np.uint64) if shape is None else shape.cell_bits
    _clear_cells(arrays, first, begin, place, cell_bits, words, masks)
    return ScatteredArrays(
        np.array([first, begin], dtype=np.int64),
        np.repeat(np.arange(first, len(clusters), dtype=np.int32), sizes),
        columns.astype(np.int32),
        masks,
        required,
        lacking,
        forbidden,
        having,
        *required_rest,
        *forbidden_rest,
    )


def _attribute_masks(
    sets: Sequence[frozenset[AttributeId]], starts: Sequence[int], sizes: Sequence[int], words: int
) -> tuple[Codes, Words, tuple[Ints, Codes]]:
    """Returns the most frequent attributes, a mask of rows for each, and the other attributes of each set."""
    times: dict[AttributeId, int] = {}
    for each in sets:
        for attribute in each:
            times[attribute] = times.get(attribute, 0) + 1
    masked = sorted(sorted(times, key=lambda attribute: (-times[attribute], attribute))[:MOST_ATTRIBUTES])
    place = {attribute: at for at, attribute in enumerate(masked)}
    bits = np.zeros((len(masked), words * 64), dtype=np.bool_)
    rest: list[list[int]] = []
    for each, start, size in zip(sets, starts, sizes, strict=True):
        rest.append([])
        for attribute in each:
            if attribute in place:
                bits[place[attribute], start : start + size] = True
            else:
                rest[-1].append(attribute)
    rest_from = np.zeros(len(rest) + 1, dtype=np.int64)
    np.cumsum([len(each) for each in rest], out=rest_from[1:])
    listed = np.array([attribute for each in rest for attribute in each], dtype=np.int32)
    packed = np.packbits(bits, axis=1, bitorder="little").view(np.uint64)
    return np.array(masked, dtype=np.int32), packed.ravel(), (rest_from, listed)


def _full(count: int, words: int) -> Words:
    """Returns `count` ones, followed by zeros."""
    bits = np.zeros(words * 64, dtype=np.bool_)
    bits[:count] = True
    return np.packbits(bits, bitorder="little").view(np.uint64)


@compiled
def _among(columns: Codes, column: int, start: int, end: int) -> bool:
    found = False
    for i in range(start, end):
        found |= columns[i] == column
    return found


@compiled
def _clear_cells(
    arrays: SegmentArrays, first: int, begin: int, place: Ints, cell_bits: Words, words: int, masks: Words
) -> None:
    """Removes each row from the masks of the cells in which its test cannot hold. Of several slots on one column, only
    the first is used, because different values of an event may satisfy them in different cells."""
    for cluster in range(first, arrays.ordered.size):
        slot, width = arrays.slot_from[cluster], arrays.slot_from[cluster + 1] - arrays.slot_from[cluster]
        ordered = arrays.ordered[cluster]
        stride = width + ordered + 1
        for position in range(arrays.cluster_from[cluster], arrays.cluster_from[cluster + 1]):
            at = arrays.record_from[cluster] + (position - arrays.cluster_from[cluster]) * stride
            row = position - begin
            bit = ~(np.uint64(1) << np.uint64(row & 63))
            for j in range(width):
                column = arrays.slot_column[slot + j]
                if place[column] < 0 or _among(arrays.slot_column, column, slot, slot + j):
                    continue
                start = place[column] * CELLS * words + (row >> 6)
                how = arrays.column_how[column]
                if how == ORDERED:
                    size = arrays.column_codes[column]
                    low = arrays.records[at + 2 * j] * CELLS // size
                    high = arrays.records[at + 2 * j + 1] * CELLS // size
                    for cell in range(CELLS):
                        if cell < low or cell > high:
                            masks[start + cell * words] &= bit
                    continue
                code = arrays.records[at + ordered + j]
                reach = np.uint64(1) << np.uint64(code & (CELLS - 1))
                if how == CONCEPT:
                    reach = cell_bits[code]
                for cell in range(CELLS):
                    if not (reach >> np.uint64(cell)) & np.uint64(1):
                        masks[start + cell * words] &= bit


@compiled
def match_scattered(
    packed: Packed,
    scattered: ScatteredArrays,
    left_by: Words,
    graph: GraphArrays,
    columns: Codes,
    all_codes: Codes,
    all_numbers: Ints,
    kinds: Codes,
    present_from: Ints,
    present: Ints,
    several_index: Codes,
    several_from: Ints,
    cells_of: Bytes,
    marked: Bytes,
    above: Codes,
    buffer: Codes,
    starts: Ints,
) -> Codes:
    """Finds the rows in small clusters that each event matches, in the form of `match_segment`.
    `present[present_from[k] : …]` are the attributes of kind k."""
    segment = unpack(packed)
    # Local names, because reading an array from the tuple costs two atomic operations each time.
    cluster_from, slot_from, slot_column = segment.cluster_from, segment.slot_from, segment.slot_column
    records, record_from, ordered_slots, plain_slots = (
        segment.records,
        segment.record_from,
        segment.ordered,
        segment.plain,
    )
    tombstones, local, column_how, column_codes = (
        segment.tombstones,
        segment.local,
        segment.column_how,
        segment.column_codes,
    )
    all_bounds, bound_from, table_all, bucket_from, steps = (
        segment.bounds,
        segment.bound_from,
        segment.bucket_table,
        segment.bucket_from,
        segment.bucket_steps,
    )
    cluster_of, masks = scattered.cluster, scattered.masks
    required_from, required = scattered.required_from, scattered.required_rest
    forbidden_from, forbidden = scattered.forbidden_from, scattered.forbidden_rest
    first, begin = scattered.first[0], scattered.first[1]
    rest = required.size + forbidden.size > 0
    words = left_by.shape[1]
    events, width_all = kinds.size, columns.size
    concepts = graph.parent_from.size - 1
    where = np.full(column_how.size, -1, dtype=np.int64)
    mark_base = np.zeros(width_all, dtype=np.int64)
    concept_at = np.empty(width_all, dtype=np.int64)
    concept_count = 0
    for s in range(width_all):
        if columns[s] < local.size and local[columns[s]] >= 0:
            where[local[columns[s]]] = s
            if column_how[local[columns[s]]] == CONCEPT:
                mark_base[s] = concept_count * concepts
                concept_at[concept_count] = s
                concept_count += 1
    want = np.empty(all_codes.size, dtype=np.int32)
    want_from = np.zeros(width_all, dtype=np.int64)
    want_to = np.zeros(width_all, dtype=np.int64)
    united = np.empty(words, dtype=np.uint64)
    above_from = np.zeros(width_all + 1, dtype=np.int64)
    left = np.empty(words, dtype=np.uint64)
    has = np.zeros(1, dtype=np.uint8)
    if rest:
        most = max(_highest(required), _highest(forbidden), _highest(present))
        has = np.zeros(most + 1, dtype=np.uint8)
    used = 0
    for event in range(events):
        starts[event] = used
        kind = kinds[event]
        some = np.uint64(0)
        for w in range(words):
            left[w] = left_by[kind, w]
            some |= left[w]
        for k in range(column_how.size):
            s = where[k]
            if s < 0:
                continue
            first_value, last_value = event * width_all + s, event * width_all + s + 1
            if several_index[event] >= 0:
                first_value = several_from[several_index[event] * width_all + s]
                last_value = several_from[several_index[event] * width_all + s + 1]
            at = first_value - event * width_all if several_index[event] < 0 else first_value
            for i in range(first_value, last_value):
                want[at + i - first_value] = all_codes[i]
                if column_how[k] == ORDERED:
                    want[at + i - first_value] = number_code(
                        all_numbers[i],
                        all_bounds[bound_from[k] : bound_from[k + 1]],
                        table_all[bucket_from[k] : bucket_from[k + 1]],
                        steps[3 * k],
                        steps[3 * k + 1],
                        steps[3 * k + 2],
                    )
            want_from[s], want_to[s] = at, distinct_codes(want, at, at + last_value - first_value)
        for i in range(scattered.columns.size):
            if some == 0:
                break
            k = scattered.columns[i]
            s = where[k]
            if s < 0 or want_from[s] == want_to[s]:
                continue
            alone = want_to[s] - want_from[s] == 1
            if not alone:
                united[:] = 0
            for at in range(want_from[s], want_to[s]):
                if column_how[k] == ORDERED:
                    cell = np.int64(want[at]) * CELLS // column_codes[k]
                elif column_how[k] == KEY:
                    cell = np.int64(want[at] & (CELLS - 1))
                else:
                    cell = np.int64(cells_of[want[at]])
                mask = masks[(i * CELLS + cell) * words : (i * CELLS + cell + 1) * words]
                some = np.uint64(0)
                if alone:
                    for w in range(words):
                        left[w] &= mask[w]
                        some |= left[w]
                else:
                    for w in range(words):
                        united[w] |= mask[w]
            if not alone:
                for w in range(words):
                    left[w] &= united[w]
                    some |= left[w]
        if some == 0:
            continue
        top = 0
        for c in range(concept_count):
            s = concept_at[c]
            above_from[c] = top
            for i in range(want_from[s], want_to[s]):
                top = walk_up(graph, want[i], marked, mark_base[s], above, top)
        above_from[concept_count] = top
        if rest:
            for i in range(present_from[kind], present_from[kind + 1]):
                has[present[i]] = 1
        for w in range(words):
            word = left[w]
            while word:
                row = w * 64 + np.int64(lowest_bit(word))
                word &= word - np.uint64(1)
                position = begin + row
                if tombstones[position]:
                    continue
                cluster = cluster_of[row]
                good = True
                if rest:
                    c = cluster - first
                    for i in range(required_from[c], required_from[c + 1]):
                        good &= has[required[i]] != 0
                    for i in range(forbidden_from[c], forbidden_from[c + 1]):
                        good &= has[forbidden[i]] == 0
                slot, width = slot_from[cluster], slot_from[cluster + 1] - slot_from[cluster]
                ordered, plain = ordered_slots[cluster], plain_slots[cluster]
                stride = width + ordered + 1
                at = record_from[cluster] + (position - cluster_from[cluster]) * stride
                for j in range(width):
                    if not good:
                        break
                    s = where[slot_column[slot + j]]
                    good = False
                    if s < 0:
                        continue
                    if j >= plain:
                        good = marked[mark_base[s] + records[at + ordered + j]] != 0
                        continue
                    least = records[at + 2 * j if j < ordered else at + ordered + j]
                    most = records[at + 2 * j + 1 if j < ordered else at + ordered + j]
                    for i in range(want_from[s], want_to[s]):
                        good |= (least <= want[i]) & (want[i] <= most)
                if good:
                    if used == buffer.size:
                        buffer = grown(buffer, used, 2 * buffer.size + 64)
                    buffer[used] = records[at + stride - 1]
                    used += 1
        for c in range(concept_count):
            for i in range(above_from[c], above_from[c + 1]):
                marked[mark_base[concept_at[c]] + above[i]] = 0
        if rest:
            for i in range(present_from[kind], present_from[kind + 1]):
                has[present[i]] = 0
    starts[events] = used
    return buffer


@compiled
def _highest(attributes: Ints) -> int:
    most = 0
    for attribute in attributes:
        most = max(most, attribute)
    return most
