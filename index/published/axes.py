"""What DEXIN stores: for each axis the constraint of every row, and the rows by slot or by operand.

    axis of numbers i   low[i, row], high[i, row]; place[i, row] of both in the slots; rows by place
    axis of names p     operand[p, row], a run of rows; 0 where the row does not ask; rows by operand

A row stands twice on every axis of numbers, once on every axis of names, as in the paper (2NM). The arrays of an axis
have an entry for every row, whether it asks or not: 20 bytes of numbers, 4 of names, and 8 or 4 more where it asks.
"""

from collections.abc import Hashable
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
import numpy.typing as npt

from index.compiling import compiled
from index.published.constraints import NameAxis, NumberAxis
from index.published.growing_runs import LOWER, GrowingRuns
from index.published.slots import BEYOND, HIGH, LOW, MOST_SLOTS, Slotting, drawn, place_of, rows_before

__all__ = ["Axes", "Intervals", "Points", "View"]

Rows = npt.NDArray[np.int32]
Numbers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bits = npt.NDArray[np.uint64]
Array = TypeVar("Array", bound=npt.NDArray[Any])


class Intervals(NamedTuple):
    """Constraints on axes of numbers: `int64`, `int32` and two `float64` of one length."""

    axis: Numbers
    row: Rows
    low: Floats
    high: Floats


class Points(NamedTuple):
    """Constraints on axes of names: `int64`, `int32`, `int64` of one length; `run` as `Axes.run_of` gives it."""

    axis: Numbers
    row: Rows
    run: Numbers


class View(NamedTuple):
    """All arrays, as kernels take them. Bits are 64 rows a word; beside the row of a slot's entry stands the place of
    its other end; `before` is as `slots.rows_before` fills it."""

    alive: Bits
    low: Floats
    high: Floats
    place: npt.NDArray[np.uint16]
    number_asks: Bits
    number_count: Numbers
    slotting: Slotting
    before: Numbers
    slot_start: Numbers
    slot_length: Numbers
    slot_entries: Numbers
    operand: Rows
    name_asks: Bits
    name_count: Numbers
    name_start: Numbers
    name_length: Numbers
    name_rows: Rows


class Axes:
    """The constraints of rows `0 … room-1`. Invariant: `alive` are the rows that some event can match; no other row
    stands on any axis."""

    def __init__(self, slot_rows: int) -> None:
        self._slot_rows = slot_rows
        self.numbers: dict[NumberAxis, int] = {}
        self.names: dict[NameAxis, int] = {}
        self.operands: dict[tuple[int, Hashable], int] = {}
        """(axis of names, operand) → its run, from 1 on."""
        self._room = 0
        self._alive: Bits = np.zeros(0, dtype=np.uint64)
        self._low: Floats = np.zeros((0, 0))
        self._high: Floats = np.zeros((0, 0))
        self._place: npt.NDArray[np.uint16] = np.zeros((0, 0, 2), dtype=np.uint16)
        self._number_asks: Bits = np.zeros((0, 0), dtype=np.uint64)
        self._name_asks: Bits = np.zeros((0, 0), dtype=np.uint64)
        self._number_count: Numbers = np.zeros(0, dtype=np.int64)
        self._name_count: Numbers = np.zeros(0, dtype=np.int64)
        self._drawn_at: Numbers = np.zeros(0, dtype=np.int64)
        self._operand: Rows = np.zeros((0, 0), dtype=np.int32)
        self._by_slot, self._by_name = GrowingRuns(np.int64), GrowingRuns(np.int32)
        self._slotting = drawn([], slot_rows)
        self._view: View | None = None

    def number_axis(self, axis: NumberAxis) -> int:
        """Its number, from now on."""
        return self.numbers.setdefault(axis, len(self.numbers))

    def name_axis(self, axis: NameAxis) -> int:
        """Its number, from now on."""
        return self.names.setdefault(axis, len(self.names))

    def run_of(self, axis: int, operand: Hashable) -> int:
        """The run of those that ask for `operand`, from now on."""
        return self.operands.setdefault((axis, operand), len(self.operands) + 1)

    def insert(self, rows: Rows, intervals: Intervals, points: Points) -> None:
        """Put `rows` on their axes, none twice on one. Linear, and amortised the drawing of slots."""
        self._view = None
        self._grow(int(rows.max(initial=-1)) + 1)
        _set(self._alive, rows)
        if intervals.row.size or len(self._slotting.base) < len(self.numbers):
            self._insert_intervals(intervals)
        if points.row.size:
            self._operand[points.axis, points.row] = points.run
            _ask(points.axis, points.row, self._name_asks)
            np.add.at(self._name_count, points.axis, 1)
            self._by_name.append(points.run, points.row)

    def remove(self, row: int) -> None:
        """Take `row`, which was inserted, off all its axes: one look through each slot that it stands in."""
        self._view = None
        word, bit = row >> 6, np.uint64(1) << np.uint64(row & 63)
        self._alive[word] &= ~bit
        for i in np.flatnonzero(self._number_asks[:, word] & bit).tolist():
            for side in (LOW, HIGH):
                self._by_slot.remove(int(self._slotting.base[i, side]) + int(self._place[i, row, side]) - 1, row)
            self._low[i, row], self._high[i, row] = -np.inf, np.inf
            self._place[i, row] = 0, BEYOND
            self._number_asks[i, word] &= ~bit
            self._number_count[i] -= 1
        for p in np.flatnonzero(self._name_asks[:, word] & bit).tolist():
            self._by_name.remove(int(self._operand[p, row]), row)
            self._operand[p, row] = 0
            self._name_asks[p, word] &= ~bit
            self._name_count[p] -= 1

    def view(self) -> View:
        """The arrays as they are now; until the next change they stay so."""
        view = self._view
        if view is None:
            before = np.zeros((len(self.numbers), 2, MOST_SLOTS + 3), dtype=np.int64)
            rows_before(self._slotting, self._by_slot.length, before)
            view = self._view = View(
                self._alive,
                self._low,
                self._high,
                self._place,
                self._number_asks,
                self._number_count,
                self._slotting,
                before,
                self._by_slot.start,
                self._by_slot.length,
                cast(Numbers, self._by_slot.entries),
                self._operand,
                self._name_asks,
                self._name_count,
                self._by_name.start,
                self._by_name.length,
                cast(Rows, self._by_name.entries),
            )
        return view

    def check_invariants(self) -> None:
        """Raise AssertionError if a row stands in another place than its constraint says."""
        self._by_slot.check_invariants()
        self._by_name.check_invariants()
        alive = np.unpackbits(self._alive.view(np.uint8), bitorder="little").astype(bool)
        for i in range(len(self.numbers)):
            asks = np.unpackbits(self._number_asks[i].view(np.uint8), bitorder="little").astype(bool)
            assert not np.any(asks & ~alive), i
            assert int(asks.sum()) == self._number_count[i], (i, self._number_count)
            assert np.array_equal(asks[: self._room], self._place[i, :, LOW] != 0), i
            for side, ends in ((LOW, self._low), (HIGH, self._high)):
                for place in range(1, int(self._slotting.edge_count[i, side]) + 2):
                    for row in _run(self._by_slot, int(self._slotting.base[i, side]) + place - 1).tolist():
                        assert asks[row], (i, side, place, row)
                        assert self._place[i, row, side] == place, (i, side, place, row)
                        assert self._slotting.least[i, side, place] <= ends[i, row], (i, side, place, row)
                        assert self._slotting.most[i, side, place] >= ends[i, row], (i, side, place, row)
        for (p, operand), run in self.operands.items():
            for row in _run(self._by_name, run).tolist():
                assert self._operand[p, row] == run, (p, operand, row)
        stored = [int(self._by_slot.length.sum()), int(self._by_name.length.sum())]
        assert stored == [2 * int(self._number_count.sum()), int(self._name_count.sum())], stored

    def _grow(self, rows: int) -> None:
        """Room for `rows` rows and for the axes that are known."""
        numbers, names, old = len(self.numbers), len(self.names), self._room
        if rows > old:
            self._room = (max(rows, old * 3 // 2) + 63) // 64 * 64
            self._alive = np.concatenate([self._alive, np.zeros(self._room // 64 - old // 64, dtype=np.uint64)])
        if rows > old or numbers > len(self._low):
            self._low = _grown(self._low, (numbers, self._room), -np.inf)
            self._high = _grown(self._high, (numbers, self._room), np.inf)
            beyond = np.array([0, BEYOND], dtype=np.uint16)
            self._place = _grown(self._place, (numbers, self._room, 2), beyond)
            self._number_asks = _grown(self._number_asks, (numbers, self._room // 64), 0)
        if rows > old or names > len(self._operand):
            self._operand = _grown(self._operand, (names, self._room), 0)
            self._name_asks = _grown(self._name_asks, (names, self._room // 64), 0)
        self._number_count = _grown(self._number_count, (numbers,), 0)
        self._drawn_at = _grown(self._drawn_at, (numbers,), 0)
        self._name_count = _grown(self._name_count, (names,), 0)
        self._by_name.grow(len(self.operands) + 1)

    def _insert_intervals(self, intervals: Intervals) -> None:
        axis, row, lows, highs = intervals
        _write(axis, row, lows, highs, self._low, self._high, self._number_asks)
        np.add.at(self._number_count, axis, 1)
        due = self._number_count > np.maximum(2 * self._drawn_at, 2 * self._slot_rows)
        if due.any() or len(self._slotting.base) < len(self.numbers):
            self._draw()
        else:
            self._by_slot.append(*_placed(axis, row, self._low, self._high, self._place, self._slotting))

    def _draw(self) -> None:
        """Slots for what is stored now, and everything into them."""
        asking = [np.flatnonzero(_unpacked(bits)) for bits in self._number_asks]
        self._slotting = drawn(
            [(self._low[i, rows], self._high[i, rows]) for i, rows in enumerate(asking)], self._slot_rows
        )
        axis = np.repeat(np.arange(len(asking)), [rows.size for rows in asking])
        row = np.concatenate(asking).astype(np.int32)
        runs, entries = _placed(axis, row, self._low, self._high, self._place, self._slotting)
        self._by_slot.fill(int((self._slotting.edge_count + 1).sum()), runs, entries)
        self._drawn_at = self._number_count.copy()


def _unpacked(bits: Bits) -> npt.NDArray[np.uint8]:
    return np.unpackbits(bits.view(np.uint8), bitorder="little")


def _run(runs: GrowingRuns, run: int) -> Rows:
    found = runs.entries[runs.start[run] : runs.start[run] + runs.length[run]]
    return (found & LOWER).astype(np.int32)


def _grown(old: Array, shape: tuple[int, ...], empty: object) -> Array:
    """`old` in the corner of an array of `shape`, `empty` elsewhere; `old` itself if it has that shape."""
    if old.shape == shape:
        return old
    new = np.empty(shape, dtype=old.dtype)
    new[...] = empty
    new[tuple(slice(size) for size in old.shape)] = old
    return cast(Array, new)


@compiled
def _set(bits: Bits, rows: Rows) -> None:
    for row in rows:
        bits[row >> 6] |= np.uint64(1) << np.uint64(row & 63)


@compiled
def _ask(axis: Numbers, row: Rows, asks: Bits) -> None:
    for k in range(axis.size):
        asks[axis[k], row[k] >> 6] |= np.uint64(1) << np.uint64(row[k] & 63)


@compiled
def _write(axis: Numbers, row: Rows, lows: Floats, highs: Floats, low: Floats, high: Floats, asks: Bits) -> None:
    for k in range(axis.size):
        low[axis[k], row[k]] = lows[k]
        high[axis[k], row[k]] = highs[k]
        asks[axis[k], row[k] >> 6] |= np.uint64(1) << np.uint64(row[k] & 63)


@compiled
def _placed(
    axis: Numbers,
    row: Rows,
    low: Floats,
    high: Floats,
    place: npt.NDArray[np.uint16],
    slotting: Slotting,
) -> tuple[Numbers, Numbers]:
    """For both ends of each constraint, in turn, the run and the entry: the row, beside it the other end's place."""
    runs, entries = np.empty(2 * axis.size, dtype=np.int64), np.empty(2 * axis.size, dtype=np.int64)
    for k in range(axis.size):
        i, r = axis[k], row[k]
        for side in range(2):
            end = low[i, r] if side == 0 else high[i, r]
            at = place_of(slotting.edges[i, side], slotting.edge_count[i, side], end)
            place[i, r, side] = at
            runs[2 * k + side] = slotting.base[i, side] + at - 1
            entries[2 * k + 1 - side] = r + (at << 32)
            slotting.least[i, side, at] = min(slotting.least[i, side, at], end)
            slotting.most[i, side, at] = max(slotting.most[i, side, at], end)
    return runs, entries
