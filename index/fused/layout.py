"""The layout of a segment: groups of rows → codes, access paths, lists, ranges, blocks and masks in flat arrays.

In a cluster, each row is listed under its most selective slot, if that slot is selective enough:

    test of the slot                  selectivity                          access path
    interval that is one point, key   1 / distinct values in the slot      look-up by the value
    concept                           its share of the hierarchy           look-up by each concept above the value
    one-sided interval, one slot      always selective                     a range of the rows sorted by their bound
    other intervals                   never selective: rows in blocks      masks
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt

from kindcast.index.clause import AttributeId
from kindcast.index.fused.arrays import BLOCK_ROWS, CELLS, Codes, Floats, GraphShape, Ints, SegmentArrays, Words
from kindcast.index.fused.columns import CONCEPT, KEY, ORDERED, Columns, Parts
from kindcast.index.fused.kernels import Bounds, bounds_of
from kindcast.index.jit import compiled

__all__ = [
    "ClusterKey",
    "Groups",
    "Place",
    "RowGroup",
    "groups_of_places",
    "lay_out",
    "merged",
    "no_pause",
    "places_of",
]


ClusterKey = tuple[frozenset[AttributeId], frozenset[AttributeId], tuple[tuple[int, int], ...], bool]
"""Required attributes, forbidden attributes, the reading and column of each slot, and whether rows have residual
predicates."""

SELECTIVE = 0.25
"""A row is listed if at most this share of the events is expected to read it in its list. Otherwise a block is
cheaper."""
FEW_ROWS = 8
"""A cluster of up to this number of rows is one block, because checking them costs less than looking up values."""
MASKED_ROWS = 24
"""Lists with fewer rows have no masks, which saves memory. Their rows are checked one by one."""
FAR_BLOCKS = 2
"""Clusters with more than this number of blocks are matched block by block, so that masks stay in the cache."""
NO_INDEX = np.zeros(0, dtype=np.int32)


def no_pause() -> None:
    """Does not pause. For work that a caller waits for."""


@dataclass(frozen=True, slots=True)
class RowGroup:
    """The rows of a cluster, `int32[n]`, and the two ends of each slot, `float64[n, slots, 2]`. Codes and concepts are
    integers with two equal ends. A negative row `~g` is group g of rows with shared tests
    (`kindcast.index.fused.segment`)."""

    rows: Codes
    ends: Floats


@dataclass(frozen=True, slots=True)
class Layout:
    """The arrays of a segment, the row at each position, and the engine's numbers of the columns."""

    arrays: SegmentArrays
    rows: Codes
    columns: list[int]


def lay_out(
    groups: Mapping[ClusterKey, RowGroup],
    shape: GraphShape | None,
    block_rows: int = BLOCK_ROWS,
    *,
    masked: bool = True,
    dense: int | None = None,
    pause: Callable[[], None] = no_pause,
) -> Layout:
    """Returns the arrays for `groups`. `shape` is required if a slot reads concepts. Costs about 1 µs per row and slot.
    Clusters from number `dense` on are small: each is one block without masks."""
    read = sorted({slot for _, _, slots, _ in groups for slot in slots})
    places = {slot: place for place, slot in enumerate(read)}
    ordered = sum(how == ORDERED for how, _ in read)
    seen: dict[int, list[Floats]] = {}
    for (_, _, slots, _), group in groups.items():
        for j, slot in enumerate(slots):
            if slot[0] == ORDERED:
                seen.setdefault(places[slot], []).append(group.ends[:, j].ravel())
    bounds = bounds_of(seen, ordered)
    seen.clear()
    making = _Making(bounds, shape, block_rows, masked, sum(group.rows.size for group in groups.values()))
    placed = [
        (group, [(how, places[how, number]) for how, number in slots], asked)
        for (_, _, slots, asked), group in groups.items()
    ]
    for each in placed[:dense]:
        pause()
        making.add_cluster(*each)
    if dense is not None:
        making.add_small_clusters(placed[dense:], pause)
    return making.finished(read)


class _Making:
    """Builds the arrays of `SegmentArrays`, cluster by cluster."""

    def __init__(
        self, bounds: Bounds, shape: GraphShape | None, block_rows: int, masked: bool, all_positions: int
    ) -> None:
        self.bounds = bounds
        self.shape = shape
        self.block_rows = block_rows
        self.masked = masked
        self.all_positions = all_positions
        self.rows: list[Codes] = []
        self.emit: list[Codes] = []
        self.records: list[Codes] = []
        self.masks: list[Words] = []
        self.index: list[Codes] = []
        self.clusters: list[tuple[int, int, int, int, int, int, int]] = []
        self.slots: list[tuple[int, int, int]] = []  # column, shift, lists
        self.lists: list[Ints] = []  # code, begin, end, mask
        self.blocks: list[tuple[int, int, int, int]] = []  # begin, end, mask, far
        self.positions = 0
        self.mask_words = 0

    def add_cluster(self, group: RowGroup, slots: Sequence[tuple[int, int]], asked: bool) -> None:
        width = len(slots)
        rows, low, high, paths = group.rows, *self._codes(group.ends, slots), None
        if rows.size <= FEW_ROWS:
            paths = np.full(rows.size, width, dtype=np.int64)
            order = np.argsort(rows, kind="stable")
        else:
            paths = self._paths(group.ends, low, slots)
            by_code = np.zeros(rows.size, dtype=np.int32)
            for j in range(width):
                by_code = np.where(paths == j, low[j], by_code)
            if width:
                by_code = np.where(paths == width + 1, high[0], np.where(paths == width + 2, low[0], by_code))
            order = np.lexsort((rows, by_code, paths))
        rows, paths = rows[order], paths[order]
        low, high = [each[order] for each in low], [each[order] for each in high]
        cuts = np.searchsorted(paths, np.arange(width + 4))
        words: list[Words | None] = [None] * width
        for j, (_, column) in enumerate(slots):
            lists = self._lists(low[j], int(cuts[j]), int(cuts[j + 1]), j, slots, low, high, words)
            self.lists.append(lists)
            self.slots.append((column, self._add_index(lists), len(lists)))
        begin, end = int(cuts[width]), int(cuts[width + 1])
        spans = [(start, min(start + self.block_rows, end)) for start in range(begin, end, self.block_rows)]
        for start, stop in spans:
            mask = self._masks(start, stop, -1, slots, low, high, words)
            far = mask >= 0 and len(spans) > FAR_BLOCKS
            self.blocks.append((self.positions + start, self.positions + stop, mask, far))
        plain = sum(how != CONCEPT for how, _ in slots)
        ordered = sum(how == ORDERED for how, _ in slots)
        upper, lower = self.positions + end, self.positions + int(cuts[width + 2])
        self.clusters.append((rows.size, width, ordered, plain, len(spans), upper, lower))
        self.rows.append(rows)
        emit = self._emitted(rows, asked)
        self.emit.append(emit)
        self.records.append(_records(low, high, ordered, emit))
        self.positions += rows.size

    def add_small_clusters(
        self, placed: Sequence[tuple[RowGroup, Sequence[tuple[int, int]], bool]], pause: Callable[[], None]
    ) -> None:
        """Adds many clusters at once, because the fixed cost of `add_cluster` exceeds the cost of their rows."""
        low_at: dict[int, list[Ints]] = {}  # by column: positions of its low (or only) codes in the records …
        high_at: dict[int, list[Ints]] = {}
        low: dict[int, list[Floats]] = {}  # … and the ends for these positions
        high: dict[int, list[Floats]] = {}
        how_of: dict[int, int] = {}
        sizes: list[int] = []
        emit_at: list[Ints] = []
        at = 0
        for group, slots, asked in placed:
            pause()
            order = np.argsort(group.rows, kind="stable")
            rows, ends = group.rows[order], group.ends[order]
            ordered = sum(how == ORDERED for how, _ in slots)
            plain = sum(how != CONCEPT for how, _ in slots)
            stride = len(slots) + ordered + 1
            lines = at + stride * np.arange(rows.size)
            for j, (how, column) in enumerate(slots):
                how_of[column] = how
                low_at.setdefault(column, []).append(lines + (2 * j if how == ORDERED else ordered + j))
                low.setdefault(column, []).append(ends[:, j, 0])
                if how == ORDERED:
                    high_at.setdefault(column, []).append(lines + 2 * j + 1)
                    high.setdefault(column, []).append(ends[:, j, 1])
                self.slots.append((column, 0, 0))
                self.index.append(NO_INDEX)
            emit_at.append(lines + stride - 1)
            sizes.append(stride * rows.size)
            at += sizes[-1]
            begin, end = self.positions, self.positions + rows.size
            self.blocks.append((begin, end, -1, 0))
            self.clusters.append((rows.size, len(slots), ordered, plain, 1, end, end))
            self.rows.append(rows)
            self.emit.append(self._emitted(rows, asked))
            self.positions = end
        records = np.empty(at, dtype=np.int32)
        for column, how in how_of.items():
            records[np.concatenate(low_at[column])] = self._code(np.concatenate(low[column]), how, column)
            if how == ORDERED:
                records[np.concatenate(high_at[column])] = self._code(np.concatenate(high[column]), how, column)
        if placed:
            records[np.concatenate(emit_at)] = np.concatenate(self.emit[-len(placed) :])
            self.records += np.split(records, np.cumsum(sizes)[:-1])

    def finished(self, read: Sequence[tuple[int, int]]) -> Layout:
        """Returns the layout with all clusters in order."""
        clusters = np.array(self.clusters, dtype=np.int64).reshape(-1, 7)
        slots = np.array(self.slots, dtype=np.int64).reshape(-1, 3)
        lists = np.concatenate([*self.lists, np.empty((0, 4), dtype=np.int64)])
        blocks = np.array(self.blocks, dtype=np.int64).reshape(-1, 4)
        block_from = _starts(clusters[:, 4])
        far = np.flatnonzero(blocks[:, 3])
        local = np.full(max((number for _, number in read), default=-1) + 1, -1, dtype=np.int32)
        for place, (_, number) in enumerate(read):
            local[number] = place
        column_codes = np.zeros(len(read), dtype=np.int64)
        column_codes[: self.bounds.start.size - 1] = 2 * np.diff(self.bounds.start) + 1
        offered = int(clusters[:, 1].max(initial=0) + clusters[:, 4].max(initial=0)) + 2
        longest = max(_longest(*lists[:, 1:].T), _longest(*blocks[:, :3].T))
        arrays = SegmentArrays(
            emit=_joined(self.emit, np.int32),
            local=local,
            records=_joined(self.records, np.int32),
            lists=lists.astype(np.int32).ravel(),
            coarse=_joined(self.index, np.int32),
            bucket_table=self.bounds.table,
            cluster_from=_starts(clusters[:, 0]),
            slot_from=_starts(clusters[:, 1]),
            ordered=clusters[:, 2],
            plain=clusters[:, 3],
            record_from=_starts(np.array([each.size for each in self.records], dtype=np.int64)),
            upper_from=clusters[:, 5],
            lower_from=clusters[:, 6],
            block_from=block_from,
            slot_column=slots[:, 0],
            list_from=_starts(slots[:, 2]),
            index_from=_starts(np.array([each.size for each in self.index], dtype=np.int64)),
            index_shift=slots[:, 1],
            block_begin=blocks[:, 0],
            block_end=blocks[:, 1],
            block_mask=blocks[:, 2],
            block_far=blocks[:, 3],
            far=far,
            far_cluster=np.searchsorted(block_from, far, side="right") - 1,
            column_how=np.array([how for how, _ in read], dtype=np.int64),
            column_codes=column_codes,
            bound_from=self.bounds.start,
            bucket_from=self.bounds.table_start,
            sizes=np.array([offered, clusters[:, 1].max(initial=0), longest, 0], dtype=np.int64),
            bounds=self.bounds.values,
            bucket_steps=self.bounds.steps,
            tombstones=np.zeros(self.positions, dtype=np.uint8),
            masks=_joined(self.masks, np.uint64),
        )
        return Layout(arrays, _joined(self.rows, np.int32), [number for _, number in read])

    def _emitted(self, rows: Codes, asked: bool) -> Codes:
        """Returns what the kernel emits for the next positions: the row, or a negative number that leads to it."""
        positions: Codes = np.arange(self.positions, self.positions + rows.size, dtype=np.int32)
        return ~positions if asked else np.where(rows < 0, rows - np.int32(self.all_positions), rows)

    def _codes(self, ends: Floats, slots: Sequence[tuple[int, int]]) -> tuple[list[Codes], list[Codes]]:
        """Returns the low and the high code of every row for each slot."""
        low: list[Codes] = []
        high: list[Codes] = []
        for j, (how, column) in enumerate(slots):
            low.append(self._code(ends[:, j, 0], how, column))
            high.append(self._code(ends[:, j, 1], how, column) if how == ORDERED else low[-1])
        return low, high

    def _code(self, ends: Floats, how: int, column: int) -> Codes:
        if how != ORDERED:
            return ends.astype(np.int32)
        values = self.bounds.values[self.bounds.start[column] : self.bounds.start[column + 1]]
        codes: Codes = (2 * np.searchsorted(values, ends) + 1).astype(np.int32)
        return codes

    def _paths(self, ends: Floats, low: list[Codes], slots: Sequence[tuple[int, int]]) -> Ints:
        """Returns the access path of each row: the slot of its list, or `width` for blocks, `width + 1` for the range
        by upper bound, `width + 2` for the range by lower bound."""
        width, size = len(slots), len(ends)
        expected = np.full((size, width + 1), SELECTIVE, dtype=np.float32)
        for j, (how, _) in enumerate(slots):
            if how == CONCEPT:
                assert self.shape is not None, slots
                expected[:, j] = self.shape.share[low[j]]
            else:
                point = ends[:, j, 0] == ends[:, j, 1]
                expected[:, j] = np.where(point, 1.0 / max(np.unique(low[j][point]).size, 1), 1.0)
        paths: Ints = np.argmin(expected, axis=1)
        if width == 1 and slots[0][0] == ORDERED:
            open_low, open_high = np.isneginf(ends[:, 0, 0]), np.isposinf(ends[:, 0, 1])
            paths = np.where(paths != 1, paths, np.where(open_low, 2, np.where(open_high, 3, 1)))
        return paths

    def _lists(
        self,
        codes: Codes,
        begin: int,
        end: int,
        access: int,
        slots: Sequence[tuple[int, int]],
        low: list[Codes],
        high: list[Codes],
        words: list[Words | None],
    ) -> Ints:
        starts = begin + np.flatnonzero(np.diff(codes[begin:end], prepend=-1))
        ends = np.append(starts[1:], end)[: starts.size]
        masks = np.full(starts.size, -1, dtype=np.int64)
        if len(slots) > 1:
            for place in np.flatnonzero(ends - starts >= MASKED_ROWS).tolist():
                masks[place] = self._masks(int(starts[place]), int(ends[place]), access, slots, low, high, words)
        return np.column_stack([codes[starts].astype(np.int64), self.positions + starts, self.positions + ends, masks])

    def _masks(
        self,
        begin: int,
        end: int,
        access: int,
        slots: Sequence[tuple[int, int]],
        low: list[Codes],
        high: list[Codes],
        words: list[Words | None],
    ) -> int:
        narrowing = [j for j in range(len(slots)) if j != access]
        if end - begin < MASKED_ROWS or not narrowing or not self.masked:
            return -1
        length = (end - begin + 63) // 64
        masks = np.zeros(len(narrowing) * CELLS * length, dtype=np.uint64)
        for place, j in enumerate(narrowing):
            known = words[j]
            if known is None:
                known = words[j] = self._cell_words(low[j], high[j], *slots[j])
            _transpose_cells(known[begin:end], masks, place * CELLS * length)
        self.masks.append(masks)
        at, self.mask_words = self.mask_words, self.mask_words + masks.size
        return at

    def _cell_words(self, low: Codes, high: Codes, how: int, column: int) -> Words:
        """Returns for each row the cells whose values may satisfy it, with one bit per cell."""
        if how == CONCEPT:
            assert self.shape is not None, column
            return self.shape.cell_bits[low]
        if how == KEY:
            return np.uint64(1) << (low & (CELLS - 1)).astype(np.uint64)
        size = int(2 * (self.bounds.start[column + 1] - self.bounds.start[column]) + 1)
        first = (low.astype(np.int64) * CELLS // size).astype(np.uint64)
        last = (high.astype(np.int64) * CELLS // size).astype(np.uint64)
        ones = np.uint64(0xFFFF_FFFF_FFFF_FFFF)
        return (ones << first) & (ones >> (np.uint64(CELLS - 1) - last))

    def _add_index(self, lists: Ints) -> int:
        """Adds the coarse index of the lists of a slot. Returns its shift."""
        if not len(lists):
            self.index.append(np.zeros(0, dtype=np.int32))
            return 0
        codes = lists[:, 0]
        shift = max(0, int(codes[-1]).bit_length() - int(2 * len(lists)).bit_length())
        edges = np.arange((int(codes[-1]) >> shift) + 2) << shift
        self.index.append(np.searchsorted(codes, edges).astype(np.int32))
        return shift


@compiled
def _transpose_cells(words: Words, masks: Words, start: int) -> None:
    """Transposes a word of cells per row to a mask of rows per cell: bit r of mask t is bit t of `words[r]`. Mask t is
    written at `masks[start + t * length :]`. `length` is the number of words for `words.size` bits."""
    length = (words.size + 63) // 64
    for row in range(words.size):
        word = words[row]
        place = row >> 6
        bit = np.uint64(1) << np.uint64(row & 63)
        for cell in range(64):
            if (word >> np.uint64(cell)) & np.uint64(1):
                masks[start + cell * length + place] |= bit


def _records(low: list[Codes], high: list[Codes], ordered: int, emit: Codes) -> Codes:
    records = np.empty((emit.size, ordered + len(low) + 1), dtype=np.int32)
    for j, codes in enumerate(low):
        if j < ordered:
            records[:, 2 * j], records[:, 2 * j + 1] = codes, high[j]
        else:
            records[:, ordered + j] = codes
    records[:, -1] = emit
    return records.ravel()


def _longest(begins: Ints, ends: Ints, masks: Ints) -> int:
    return int((ends - begins)[masks >= 0].max(initial=0))


def _joined(parts: Sequence[npt.NDArray[np.generic]], dtype: type) -> npt.NDArray:  # type: ignore[type-arg]
    return np.concatenate([*parts, np.empty(0, dtype=dtype)])


def _starts(sizes: Ints) -> Ints:
    starts = np.zeros(len(sizes) + 1, dtype=np.int64)
    np.cumsum(sizes, out=starts[1:])
    return starts


# Groups of rows by cluster: the input of the segment layout, and the form in which segments are merged.
#
# parts of a clause ──▶ places: a cluster and the ends of each slot, one place per alternative ──▶ groups
# groups of several segments and memtables ──▶ one

Groups = dict[ClusterKey, RowGroup]
Place = tuple[ClusterKey, tuple[float, ...]]
"""A cluster, and the two ends of each slot as a flat tuple."""


def places_of(parts: Parts, columns: Columns) -> tuple[Place, ...]:
    """Returns the places of a clause in segments. Assigns numbers to its columns and keys. Some µs per alternative."""
    asked = bool(parts.rest)
    places = []
    for alternative in parts.alternatives:
        placed = []
        for how, column, low, high in alternative:
            number = columns.number(column, how)
            if how == KEY:
                code = float(columns.key(number, low))
                placed.append(((how, number), code, code))
            else:
                placed.append(((how, number), float(cast(float, low)), float(cast(float, high))))
        placed.sort()
        slots = tuple(slot for slot, _, _ in placed)
        ends = tuple(end for _, low_end, high_end in placed for end in (low_end, high_end))
        places.append(((parts.required, parts.forbidden, slots, asked), ends))
    return tuple(places)


def groups_of_places(stored: Iterable[tuple[int, Sequence[Place]]]) -> Groups:
    """Groups new rows by cluster. Costs 1 µs per row."""
    growing: dict[ClusterKey, tuple[list[int], list[float]]] = {}
    for row, places in stored:
        for key, placed in places:
            rows, ends = growing.setdefault(key, ([], []))
            rows.append(row)
            ends += placed
    return {
        key: RowGroup(
            np.array(rows, dtype=np.int32), np.array(ends, dtype=np.float64).reshape(len(rows), len(key[2]), 2)
        )
        for key, (rows, ends) in growing.items()
    }


def merged(parts: Sequence[Groups]) -> Groups:
    """Merges several groups into one."""
    by_key: dict[ClusterKey, list[RowGroup]] = {}
    for groups in parts:
        for key, group in groups.items():
            by_key.setdefault(key, []).append(group)
    return {
        key: found[0]
        if len(found) == 1
        else RowGroup(np.concatenate([each.rows for each in found]), np.concatenate([each.ends for each in found]))
        for key, found in by_key.items()
    }
