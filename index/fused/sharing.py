"""Shared positions: equal clauses of different subscriptions, stored once in a segment.

rows of a cluster that ask the same ─▶ one position, found and checked once ─▶ expanded: all of its rows

A cluster shares where that saves a quarter of its rows at least, and where there is something to check: the rows of a
list under the only column are copied as they stand. Such rows match often, and all that is found is copied once more to
be expanded; so nothing is shared where they are many. A shared position gets a tombstone when its last row is removed.
What a clause means beside its record (a program) is a row's own, so that such clusters do not share.
"""

from bisect import bisect_left
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from kindcast.index.compiling import compiled, nth
from kindcast.index.fused.arrays import Bytes, Codes, Floats, Ints
from kindcast.index.fused.layout import Groups, RowGroup

__all__ = ["Shared", "SharedArrays", "share"]

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

    def kill(self, row: int) -> tuple[int, list[int]]:
        """Mark `row` as gone from all groups: how many there were, and the positions that have no row left."""
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
        """The find with the rows of each group in its stead, in memory that `room` gives. Costs what copying costs, and
        for each group two places in memory."""
        begin, members, _, gone = self.arrays
        more = _counted(buffer, starts, self._positions, self.left)
        found = room(int(more[-1]))
        some_gone = self._members > self.left_in_all
        _expand(buffer[: starts[-1]], self._positions, begin, members, gone, some_gone, found)
        return found[: more[-1]], more

    def with_rows(self, rows: Codes, ends: Floats, gone: Bytes) -> RowGroup:
        """Rows of a cluster and what they ask, each shared one in the stead of its group. `gone` is of the moment that
        all of a merge sees."""
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

    def check_invariants(self, dead: Bytes, rows: Codes) -> None:
        """Raise AssertionError if a structural invariant is broken; `dead` (tombstones) and `rows` are per position."""
        arrays = self.arrays
        left = np.add.reduceat(1 - arrays.gone.astype(np.int64), arrays.begin[:-1])
        assert (left == self.left).all(), (left, self.left)
        assert self.left_in_all == left.sum(), (left, self.left_in_all)
        assert (np.diff(arrays.begin) > 1).all(), arrays.begin
        assert (rows[self.place] == ~np.arange(self.place.size)).all(), (rows, self.place)
        assert np.count_nonzero(rows < 0) == self.place.size, (rows, self.place)
        assert ((dead[self.place] == 0) == (left > 0)).all(), (dead, left)
        assert (np.diff(arrays.rows[arrays.by_row]) >= 0).all(), arrays.by_row


def share(groups: Groups) -> tuple[Groups, SharedArrays | None]:
    """The same clusters, in which rows that ask the same are one, `~g` for group g; None if nothing is worth it. Sorts
    one word per row, and those that share by all that they ask."""
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
    """A word for each line; equal lines have equal ones, and others seldom."""
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
    """Where each item of a find begins once it has the rows of its groups."""
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
    """Write the rows of a find to `found`, and of each `~(positions + g)` in it those of group g that are there."""
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
