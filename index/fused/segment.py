"""A segment: rows that never change, except that a removed row gets a tombstone.

groups of rows, and their predicates ─▶ lay_out ─▶ Segment          Segment ─▶ groups of its live rows ─▶ merge

*Shared positions.* Equal clauses of different subscriptions are stored once:

    rows of a cluster with equal clauses ─▶ one position, found and checked once ─▶ expanded: all of its rows

A cluster shares positions if that saves at least a quarter of its rows and there is something to check: the rows of a
list under the only column are copied without a check. Rows that match often would be copied once more to be expanded,
so clusters with many such rows do not share. A shared position gets a tombstone when its last row is removed. A
residual program belongs to one row, so clusters with residual programs do not share.

*Cluster selection.* An event visits the clusters whose required attributes it has and whose forbidden attributes it
lacks:

    present attributes ─▶ clusters filed under them, and those that require nothing ─▶ all required? none forbidden?

Each cluster is filed under that one of its attributes that the fewest clusters require, so an event visits few of
thousands of clusters in vain.
"""

import sys
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, cast

import numpy as np
import numpy.typing as npt

from kindcast.index.clause import AttributeId
from kindcast.index.fused.arrays import (
    BLOCK_ROWS,
    Bytes,
    Codes,
    Floats,
    GraphShape,
    Ints,
    Packed,
    SegmentArrays,
    pack,
    unpack,
)
from kindcast.index.fused.columns import ORDERED
from kindcast.index.fused.layout import ClusterKey, Groups, RowGroup, lay_out, no_pause
from kindcast.index.fused.residuals import ProgramArrays, Rest, rest_of_rows
from kindcast.index.fused.small_clusters import (
    FEWEST_SCATTERED,
    SCATTERED_ROWS,
    Scattered,
    ScatteredArrays,
    scattered_arrays,
)
from kindcast.index.jit import compiled, nth

__all__ = ["Segment", "SharedArrays"]


AT_ONCE = 16
"""Rows that are copied together where none of them is a group."""
COPIED = 16
"""Nothing is shared if one row of so many has one column or none to check."""
SAVES = 4
"""A cluster shares if one row of so many is saved: what is found has to be copied once more."""

Bools = npt.NDArray[np.bool_]
Find = tuple[Codes, Ints]


class SharedArrays(NamedTuple):
    """Group g is at the position whose row is `~g`; its rows are `rows[begin[g] : begin[g + 1]]`, m in all."""

    begin: Ints  # [groups + 1]
    rows: Codes  # [m]
    by_row: Codes  # [m] places in `rows`, by ascending row
    gone: Bytes  # [m] 1 where the row has been removed


class Shared:
    """Immutable but for `arrays.gone` and `left`. Invariant: `left[g]` counts the rows of group g that are not gone."""

    def __init__(self, arrays: SharedArrays, rows: Codes) -> None:
        """`rows`: the row, or the group, at each position of the segment."""
        self.arrays = arrays
        self._positions = rows.size
        self._members = arrays.rows.size
        self.left_in_all = self._members - int(arrays.gone.sum())
        self.left = np.add.reduceat(1 - arrays.gone.astype(np.int64), arrays.begin[:-1])
        self.place = np.empty(arrays.begin.size - 1, dtype=np.int64)
        places = np.flatnonzero(rows < 0)
        self.place[~rows[places]] = places

    @property
    def nbytes(self) -> int:
        """The bytes of the arrays."""
        return sum(array.nbytes for array in self.arrays) + self.left.nbytes + self.place.nbytes

    def bury(self, row: int) -> tuple[int, list[int]]:
        """Marks `row` as removed in all groups. Returns the number of its groups, and the positions without any row
        left."""
        arrays = self.arrays
        count, empty = 0, []
        at = bisect_left(arrays.by_row, row, key=arrays.rows.__getitem__)
        while at < arrays.rows.size and arrays.rows[arrays.by_row[at]] == row:
            member = int(arrays.by_row[at])
            at += 1
            if not arrays.gone[member]:
                arrays.gone[member] = 1
                group = int(np.searchsorted(arrays.begin, member, side="right")) - 1
                self.left[group] -= 1
                self.left_in_all -= 1
                count += 1
                if not self.left[group]:
                    empty.append(int(self.place[group]))
        return count, empty

    def expanded(self, buffer: Codes, starts: Ints, room: Callable[[int], Codes]) -> Find:
        """Returns the find with each group replaced by its rows, in memory from `room`. The cost is that of copying the
        rows, plus two memory accesses per group."""
        begin, members, _, gone = self.arrays
        more = _counted(buffer, starts, self._positions, self.left)
        found = room(int(more[-1]))
        some_gone = self._members > self.left_in_all
        _expand(buffer[: starts[-1]], self._positions, begin, members, gone, some_gone, found)
        return found[: more[-1]], more

    def with_rows(self, rows: Codes, ends: Floats, gone: Bytes) -> RowGroup:
        """Returns rows of a cluster with their slot ends; each group is replaced by its rows. `gone` is the state of
        removals that the whole merge uses."""
        begin = self.arrays.begin
        counts = np.ones(rows.size, dtype=np.int64)
        own = np.flatnonzero(rows < 0)
        counts[own] = begin[~rows[own] + 1] - begin[~rows[own]]
        first = np.concatenate([[0], np.cumsum(counts)])
        every = np.repeat(rows, counts)
        alive = np.ones(every.size, dtype=np.bool_)
        for at in own.tolist():
            members = slice(int(begin[~rows[at]]), int(begin[~rows[at] + 1]))
            every[first[at] : first[at + 1]] = self.arrays.rows[members]
            alive[first[at] : first[at + 1]] = gone[members] == 0
        return RowGroup(every[alive], np.repeat(ends, counts, axis=0)[alive])

    def check_invariants(self, tombstones: Bytes, rows: Codes) -> None:
        """Raises AssertionError if a structural invariant is broken; `tombstones` and `rows` are by position."""
        arrays = self.arrays
        left = np.add.reduceat(1 - arrays.gone.astype(np.int64), arrays.begin[:-1])
        assert (left == self.left).all(), (left, self.left)
        assert self.left_in_all == left.sum(), (left, self.left_in_all)
        assert (np.diff(arrays.begin) > 1).all(), arrays.begin
        assert (rows[self.place] == ~np.arange(self.place.size)).all(), (rows, self.place)
        assert np.count_nonzero(rows < 0) == self.place.size, (rows, self.place)
        assert ((tombstones[self.place] == 0) == (left > 0)).all(), (tombstones, left)
        assert (np.diff(arrays.rows[arrays.by_row]) >= 0).all(), arrays.by_row


def share(groups: Groups) -> tuple[Groups, SharedArrays | None]:
    """Returns the clusters with equal rows replaced by one row `~g` for group g; None as the second result if sharing
    saves too little. Sorts one hash word per row, and rows that share by all their slot ends."""
    copied = sum(group.rows.size for (_, _, slots, _), group in groups.items() if len(slots) < 2)
    if COPIED * copied > sum(group.rows.size for group in groups.values()):
        return groups, None
    found: Groups = {}
    shared: list[Codes] = []
    for key, group in groups.items():
        found[key] = group
        _, _, slots, asked = key
        if asked or len(slots) < 2 or group.rows.size < 2:
            continue
        bits = np.ascontiguousarray(group.ends).view(np.uint64).reshape(group.rows.size, -1)
        words = np.sort(_mixed(bits))
        if SAVES * np.count_nonzero(words[1:] == words[:-1]) < group.rows.size:
            continue
        whole = bits.view(np.dtype((np.void, bits.dtype.itemsize * bits.shape[1]))).ravel()
        _, first, inverse, counts = np.unique(whole, return_index=True, return_inverse=True, return_counts=True)
        rows = group.rows[first].copy()
        order = np.argsort(inverse.ravel(), kind="stable")
        of_unique = np.split(group.rows[order], np.cumsum(counts)[:-1])
        several = np.flatnonzero(counts > 1)
        rows[several] = ~np.arange(len(shared), len(shared) + several.size, dtype=np.int32)
        shared += [of_unique[each] for each in several.tolist()]
        found[key] = RowGroup(rows, group.ends[first])
    if not shared:
        return groups, None
    members = np.concatenate(shared)
    begin = np.concatenate([[0], np.cumsum([each.size for each in shared])]).astype(np.int64)
    by_row = np.argsort(members, kind="stable").astype(np.int32)
    return found, SharedArrays(begin, members, by_row, np.zeros(members.size, dtype=np.uint8))


@compiled
def _mixed(bits: Ints) -> Ints:
    """Returns a hash word per line: equal lines have equal words, different lines rarely do."""
    words = np.zeros(bits.shape[0], dtype=np.uint64)
    for i in range(bits.shape[0]):
        word = np.uint64(0x9E37_79B9_7F4A_7C15)
        for j in range(bits.shape[1]):
            word = (word ^ bits[i, j]) * np.uint64(0xBF58_476D_1CE4_E5B9)
            word ^= word >> np.uint64(29)
        words[i] = word
    return words


@compiled
def _counted(buffer: Codes, starts: Ints, positions: int, left: Ints) -> Ints:
    """Returns the offsets of a find after its groups are replaced by their rows."""
    more = np.empty_like(starts)
    at = 0
    for item in range(starts.size - 1):
        more[item] = at
        at += starts[item + 1] - starts[item]
        for i in range(starts[item], starts[item + 1]):
            if buffer[nth(i)] < 0:
                at += left[nth(~buffer[nth(i)] - positions)] - 1
    more[starts.size - 1] = at
    return more


@compiled
def _expand(
    buffer: Codes, positions: int, begin: Ints, members: Codes, gone: Bytes, some_gone: bool, found: Codes
) -> None:
    """Writes the rows in `buffer` to `found`. `~(positions + g)` in `buffer` stands for the rows of group g that are
    not removed."""
    at = 0
    i = 0
    while i < buffer.size:
        if i + AT_ONCE <= buffer.size:
            signs = np.int32(0)
            for k in range(AT_ONCE):
                signs |= buffer[nth(i + k)]
            if signs >= 0:
                for k in range(AT_ONCE):
                    found[nth(at + k)] = buffer[nth(i + k)]
                at += AT_ONCE
                i += AT_ONCE
                continue
        for k in range(i, min(i + AT_ONCE, buffer.size)):
            row = buffer[nth(k)]
            if row >= 0:
                found[nth(at)] = row
                at += 1
                continue
            group = ~row - positions
            first, last = begin[nth(group)], begin[nth(group + 1)]
            if some_gone:
                for member in range(first, last):
                    if not gone[nth(member)]:
                        found[nth(at)] = members[nth(member)]
                        at += 1
            else:
                for member in range(last - first):
                    found[nth(at + member)] = members[nth(first + member)]
                at += last - first
        i += AT_ONCE


REMEMBERED_BYTES = 1 << 23
"""Maximum memory for cached clusters of attribute sets, and for these sets; a stream has few, of some hundred bytes."""


class Visiting:
    """Cluster selection in one segment. Immutable, except for its cache."""

    def __init__(self, clusters: Sequence[ClusterKey], pause: Callable[[], None]) -> None:
        """Some µs per cluster."""
        times: dict[AttributeId, int] = {}
        for required, _, _, _ in clusters:
            pause()
            for attribute in required:
                times[attribute] = times.get(attribute, 0) + 1
        under: dict[int, list[int]] = {}
        for number, (required, _, _, _) in enumerate(clusters):
            pause()
            rarest = min(required, key=lambda attribute: (times[attribute], attribute), default=None)
            under.setdefault(0 if rarest is None else rarest + 1, []).append(number)
        self._under_from, self._under = _rows(under.get(place, ()) for place in range(max(under, default=0) + 1))
        self._required_from, self._required = _rows(required for required, _, _, _ in clusters)
        self._forbidden_from, self._forbidden = _rows(forbidden for _, forbidden, _, _ in clusters)
        self._most = 1 + int(max(self._required.max(initial=0), self._forbidden.max(initial=0)))
        self._known: dict[frozenset[AttributeId], Ints] = {}
        self._known_bytes = 0

    @property
    def nbytes(self) -> int:
        """The bytes of the arrays and of what is cached."""
        lists = (self._under_from, self._under, self._required_from, self._required, self._forbidden_from)
        return sum(each.nbytes for each in lists) + self._forbidden.nbytes + self._known_bytes

    def clusters(self, present: frozenset[AttributeId]) -> Ints:
        """Returns the clusters that an event with exactly these attributes can match, in ascending order. Cost: a few
        nanoseconds per cluster filed under one of the attributes."""
        found = self._known.get(present)
        if found is None:
            found = _fitting(
                np.array(list(present), dtype=np.int64),
                self._most,
                self._under_from,
                self._under,
                self._required_from,
                self._required,
                self._forbidden_from,
                self._forbidden,
            )
            size = found.nbytes + sys.getsizeof(present) + 100
            if self._known_bytes + size > REMEMBERED_BYTES:
                self.forget()
            self._known[present] = found
            self._known_bytes += size
        return found

    def forget(self) -> None:
        """Clears the caches."""
        self._known.clear()
        self._known_bytes = 0


def _rows(parts: Iterable[Iterable[int]]) -> tuple[Ints, Ints]:
    lists = [list(part) for part in parts]
    starts = np.zeros(len(lists) + 1, dtype=np.int64)
    np.cumsum([len(each) for each in lists], out=starts[1:])
    return starts, np.array([each for part in lists for each in part], dtype=np.int64)


@compiled
def _fitting(
    present: Ints,
    most: int,
    under_from: Ints,
    under: Ints,
    required_from: Ints,
    required: Ints,
    forbidden_from: Ints,
    forbidden: Ints,
) -> Ints:
    """`under[under_from[a + 1] : …]` are the clusters under attribute a, the first of all those that require none."""
    has = np.zeros(most, dtype=np.uint8)
    room = under_from[1]
    for attribute in present:
        if attribute < most:
            has[attribute] = 1
        if attribute + 2 < under_from.size:
            room += under_from[attribute + 2] - under_from[attribute + 1]
    found = np.empty(room, dtype=np.int64)
    count = 0
    for i in range(-1, present.size):
        place = 0 if i < 0 else present[i] + 1
        if place + 1 >= under_from.size:
            continue
        for at in range(under_from[place], under_from[place + 1]):
            cluster = under[at]
            good = True
            for j in range(required_from[cluster], required_from[cluster + 1]):
                good &= has[required[j]] != 0
            for j in range(forbidden_from[cluster], forbidden_from[cluster + 1]):
                good &= has[forbidden[j]] == 0
            found[count] = cluster
            count += good
    return np.sort(found[:count])


class Living(NamedTuple):
    """The rows of a segment that were not removed at one point in time."""

    positions: Bools  # [positions] those without a tombstone
    gone: Bytes  # [members] 1 where a row was removed that shares its position with others


class Segment:
    """Immutable, except for the tombstones (`arrays.tombstones`) and the cache of `visiting`.

    Invariant: `live` counts the rows that were not removed; lists, ranges and blocks cover every position once.
    """

    def __init__(
        self,
        packed: Packed,
        rows: Codes,
        by_row: Codes,
        program_of: Codes,
        columns: list[int],
        clusters: list[ClusterKey],
        rest: Rest | None,
        scattered: ScatteredArrays | None = None,
        shared: SharedArrays | None = None,
        pause: Callable[[], None] = no_pause,
    ) -> None:
        """Makes a segment from its parts: the row at each position, the positions by row, the program of each position
        that has one, the engine's numbers of the columns, the clusters, the residual programs of the rows, the masks of
        the small clusters if they are found together, and the rows that share positions if some do."""
        self.packed = packed
        self.arrays: SegmentArrays = getattr(unpack, "py_func", unpack)(packed)
        self.rows = rows
        self.by_row = by_row
        self.program_of = program_of
        self.columns = columns
        self.clusters = clusters
        self.rest = rest
        self.shared = None if shared is None else Shared(shared, rows)
        self.stored = rows.size
        """The number of rows when the segment was made. A row with several positions counts at each."""
        self.live = rows.size - int(self.arrays.sizes[3])
        if shared is not None:
            self.stored += shared.rows.size - int(np.count_nonzero(rows < 0))
            self.live = int(
                np.count_nonzero(self.arrays.tombstones[rows >= 0] == 0) + np.count_nonzero(shared.gone == 0)
            )
        self.passes = 1 + self.arrays.far.size
        self.scattered = None if scattered is None else Scattered(scattered)
        self.is_plain = rest is None and shared is None and scattered is None
        """Whether all clusters are visited one by one and no row has a residual program or a shared position."""
        dense = len(clusters) if scattered is None else int(scattered.first[0])
        self.visiting = Visiting(clusters[:dense], pause)

    @classmethod
    def built(
        cls,
        groups: Groups,
        rest: Rest | None,
        shape: GraphShape | None,
        *,
        block_rows: int = BLOCK_ROWS,
        masked: bool = True,
        pause: Callable[[], None] = no_pause,
    ) -> "Segment":
        """Builds the segment for `groups`. Costs about 1 µs per row and slot. `pause` is called between small steps, so
        that other threads can take the GIL."""
        groups, shared = share(groups)
        groups, dense = _small_ones_last(groups, masked)
        layout = lay_out(groups, shape, block_rows, masked=masked, dense=dense, pause=pause)
        clusters = list(groups)
        packed, arrays = pack(layout.arrays)
        program_of = np.zeros(0, dtype=np.int32)
        if rest is not None:
            program_of = np.full(layout.rows.size, -1, dtype=np.int32)
            asked = np.repeat([key[3] for key in clusters], np.diff(arrays.cluster_from))
            program_of[asked] = np.searchsorted(rest.rows, layout.rows[asked])
        by_row = np.argsort(layout.rows, kind="stable").astype(np.int32)
        scattered = scattered_arrays(clusters, arrays, shape, dense) if dense < len(clusters) else None
        columns = layout.columns
        return cls(packed, layout.rows, by_row, program_of, columns, clusters, rest, scattered, shared, pause)

    @property
    def programs(self) -> ProgramArrays | None:
        """The residual programs of the rows; None if no cluster has any."""
        return None if self.rest is None else self.rest.programs

    @property
    def nbytes(self) -> int:
        """The bytes of all arrays."""
        rest = () if self.rest is None else (self.rest.rows, *self.rest.programs)
        arrays = sum(part.nbytes for part in (*self.packed, self.rows, self.by_row, self.program_of, *rest))
        scattered = 0 if self.scattered is None else self.scattered.nbytes
        shared = 0 if self.shared is None else self.shared.nbytes
        return int(arrays + self.visiting.nbytes + scattered + shared)

    @property
    def half_tombstones(self) -> bool:
        """Whether half of the rows are tombstones, so that compaction is due."""
        return 2 * self.live < self.stored

    def visits(self, present: frozenset[AttributeId]) -> Ints:
        """Returns the clusters that an event with exactly these attributes can match, in ascending order, without the
        small clusters."""
        return self.visiting.clusters(present)

    def forget(self) -> None:
        """Clears the caches."""
        self.visiting.forget()
        if self.scattered is not None:
            self.scattered.forget()

    def bury(self, row: int) -> int:
        """Puts a tombstone on every position that only `row` has, and removes `row` from shared positions. Returns the
        number of its positions, 0 if the row is not in this segment."""
        row_at = self.rows.__getitem__
        first = bisect_left(self.by_row, row, key=row_at)  # numpy's own would copy the whole order
        last = bisect_right(self.by_row, row, lo=first, key=row_at)
        positions = self.by_row[first:last]
        positions = positions[self.arrays.tombstones[positions] == 0]
        count = int(positions.size)
        if self.shared is not None:
            gone, empty = self.shared.bury(row)
            count += int(gone)
            positions = np.concatenate([positions, empty]).astype(np.int64)
        if positions.size:
            self.arrays.tombstones[positions] = 1
            self.arrays.sizes[3] += positions.size
        self.live -= count
        return count

    def groups(self, living: Living, pause: Callable[[], None] = no_pause) -> Groups:
        """Returns the rows in `living` as groups, the input of `built`."""
        arrays = self.arrays
        groups: Groups = {}
        for number, key in enumerate(self.clusters):
            pause()
            begin, end = arrays.cluster_from[number : number + 2].tolist()
            kept = living.positions[begin:end]
            if not kept.any():
                continue
            slots = key[2]
            ordered = sum(how == ORDERED for how, _ in slots)
            at = int(arrays.record_from[number])
            records = arrays.records[at : at + (end - begin) * (len(slots) + ordered + 1)]
            records = records.reshape(end - begin, len(slots) + ordered + 1)[kept]
            ends = np.empty((len(records), len(slots), 2))
            for j, slot in enumerate(slots):
                if j < ordered:
                    first = int(arrays.bound_from[self.columns.index(slot[1])])
                    ends[:, j] = arrays.bounds[first + (records[:, 2 * j : 2 * j + 2] >> 1)]
                else:
                    ends[:, j] = records[:, ordered + j, None]
            groups[key] = RowGroup(self.rows[begin:end][kept], ends)
            if self.shared is not None and (groups[key].rows < 0).any():
                groups[key] = self.shared.with_rows(groups[key].rows, ends, living.gone)
                if not groups[key].rows.size:
                    del groups[key]
        return groups

    def rest_of(self, living: Living) -> Rest | None:
        """Returns the residual predicates of the rows in `living`."""
        if self.rest is None:
            return None
        asked = np.flatnonzero(living.positions & (self.program_of >= 0))
        return rest_of_rows(self.rows[asked], self.program_of[asked], self.rest.programs)

    def living(self) -> Living:
        """Returns the rows that are not removed now."""
        gone = np.zeros(0, dtype=np.uint8) if self.shared is None else self.shared.arrays.gone.copy()
        return Living(cast(Bools, self.arrays.tombstones == 0), gone)

    def living_rows(self) -> Codes:
        """Returns the rows without a tombstone, once per position."""
        own: Codes = self.rows[(self.arrays.tombstones == 0) & (self.rows >= 0)]
        if self.shared is None:
            return own
        arrays = self.shared.arrays
        return np.concatenate([own, arrays.rows[arrays.gone == 0]])

    def check_invariants(self) -> None:
        """Raises AssertionError if a structural invariant is broken."""
        arrays = self.arrays
        # The living are counted.
        assert self.live == self.living_rows().size, (self.live, arrays.tombstones)
        if self.shared is not None:
            self.shared.check_invariants(arrays.tombstones, self.rows)
        assert arrays.sizes[3] == np.count_nonzero(arrays.tombstones), (arrays.sizes, arrays.tombstones)
        # Lists, ranges and blocks cover every position exactly once.
        spans = [
            *map(tuple, arrays.lists.reshape(-1, 4)[:, 1:3].tolist()),
            *zip(arrays.block_begin.tolist(), arrays.block_end.tolist(), strict=True),
            *zip(arrays.upper_from.tolist(), arrays.lower_from.tolist(), strict=True),
            *zip(arrays.lower_from.tolist(), arrays.cluster_from[1:].tolist(), strict=True),
        ]
        spans = sorted(span for span in spans if span[0] < span[1])
        assert [begin for begin, _ in spans] == [0, *(end for _, end in spans)][: len(spans)], spans
        assert not spans or spans[-1][1] == self.rows.size, (spans, self.rows.size)
        # The lists of a slot ascend by code.
        for begin, end in zip(arrays.list_from[:-1].tolist(), arrays.list_from[1:].tolist(), strict=True):
            codes = arrays.lists[4 * begin : 4 * end : 4]
            assert (np.diff(codes) > 0).all(), codes
        # A position gives its row, or itself where a program is asked.
        for number, key in enumerate(self.clusters):
            begin, end = arrays.cluster_from[number : number + 2].tolist()
            own, itself = self.rows[begin:end], ~np.arange(begin, end)
            expected = itself if key[3] else np.where(own < 0, own - self.rows.size, own)
            assert (arrays.emit[begin:end] == expected).all(), (key, arrays.emit[begin:end])
            # Where a program is asked, it is that of the row.
            if key[3]:
                assert self.rest is not None, key
                of_rows = self.rest.rows[self.program_of[begin:end]]
                assert (of_rows == self.rows[begin:end]).all(), (key, of_rows)
        assert (np.diff(self.rows[self.by_row]) >= 0).all(), self.by_row


def _small_ones_last(groups: Groups, masked: bool) -> tuple[Groups, int]:
    """Returns the clusters with the small ones last, and the number of clusters that are visited one by one."""
    small = [key for key, group in groups.items() if group.rows.size < SCATTERED_ROWS]
    if not masked or len(small) < FEWEST_SCATTERED:
        return groups, len(groups)
    large = {key: group for key, group in groups.items() if group.rows.size >= SCATTERED_ROWS}
    return large | {key: groups[key] for key in small}, len(large)
