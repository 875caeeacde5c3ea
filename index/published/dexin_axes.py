"""The axes of DEXIN: the constraints of all rows by axis, the rows by slot or operand, and the two matching methods.

    axis of numbers i   low[i, row], high[i, row]; place[i, row] of both ends in the slots; rows by place
    axis of names p     operand[p, row] is a run of rows, 0 if the row has no constraint; rows by operand

A row is stored twice on every axis of numbers that it constrains and once on every axis of names, as in the paper
(2NM). The arrays of an axis have an entry for every row, constrained or not: 20 bytes for numbers, 4 for names. A
constraint takes another 8 (numbers) or 4 (names) bytes.

An axis reduces the remaining rows by one of two methods (section 3.3):

    exclude   a bit set of rows: visits the failing rows and clears them, or visits the passing rows and keeps them
    include   a list of `rows`: checks each row and keeps or drops it

Excluding visits the smaller of the two sets (erratum 13: Algorithm 3 copies the complement instead of starting with
it). Intervals are closed at both ends; open ends were moved to the next double. So only the ends in the slot of the
value are compared, and the slots before it are visited completely (errata 9 and 11).
"""

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
import numpy.typing as npt

from kindcast.index.clause import Clause, ConceptTest, IntervalTest, Key, KeyTest, Predicate
from kindcast.index.jit import compiled, lowest_bit
from kindcast.index.published.shared import LOWER, GrowingRuns

__all__ = [
    "SLOT_ROWS",
    "Asked",
    "Axes",
    "Constraints",
    "Intervals",
    "NameAxis",
    "NumberAxis",
    "Points",
    "Stages",
    "View",
    "constraints_of",
    "exclude",
    "free_copy",
    "include",
    "listed",
    "rates",
]


# A clause in DEXIN: at most one interval or point on each axis.
#
#     axis of numbers    a column of numbers: `low <= v <= high`; a point is an interval with two equal ends
#     axis of names      a column of keys, a column of concepts, or a required attribute: one operand
#
# Several conditions of a clause on one column are on several axes: the column and its *copies*. For features that the
# paper lacks (negation, alternatives, `below`, forbidden attributes), only necessary conditions are stored, and the
# clause is *inexact*: its candidates are verified.


class NumberAxis(NamedTuple):
    column: int
    copy: int = 0


class NameAxis(NamedTuple):
    """`kind` is "key" (also for an exact test of a concept), "concept" or "present"."""

    kind: str
    place: int
    copy: int = 0


Axis = TypeVar("Axis", NumberAxis, NameAxis)


@dataclass(slots=True)
class Constraints:
    """Conditions that every match satisfies. If `exact`, every event that satisfies them is a match."""

    intervals: list[tuple[NumberAxis, float, float]]
    points: list[tuple[NameAxis, Key]]
    exact: bool


def constraints_of(clause: Clause) -> Constraints | None:
    """Returns the constraints of `clause`, or None if no event can match it. Linear."""
    if clause.forbidden and not clause.required.isdisjoint(clause.forbidden):
        return None
    found = Constraints([], [], not clause.forbidden)
    bare = set(clause.required)
    used: set[NumberAxis | NameAxis] = set()
    for predicate in clause.predicates:
        if not predicate.negated:
            held = _constrain(predicate, found, used)
            if held is None:
                return None
            if held:
                bare.discard(predicate.attribute)
                continue
        found.exact = False
        bare.add(predicate.attribute)
    found.points.extend((NameAxis("present", attribute), True) for attribute in sorted(bare))
    return found


def _constrain(predicate: Predicate, found: Constraints, used: set[NumberAxis | NameAxis]) -> bool | None:
    """Adds `predicate` to `found`. Returns False if one constraint cannot express it, None if it never holds."""
    if len(predicate.tests) == 1:
        [(column, test)] = predicate.tests
    else:
        tests = [pair for pair in predicate.tests if _can_hold(pair[1])]
        if len(tests) != 1:
            return False if tests else None
        [(column, test)] = tests
    if isinstance(test, IntervalTest):
        if not test.low <= test.high:
            return None
        found.intervals.append((free_copy(NumberAxis(column), used), test.low, test.high))
        return True
    if not _can_hold(test):
        return None
    if isinstance(test, KeyTest):
        if len(test.keys) != 1:
            return False
        [key] = test.keys
        if isinstance(key, float):
            found.intervals.append((free_copy(NumberAxis(column), used), key, key))
        else:
            found.points.append((free_copy(NameAxis("key", column), used), key))
        return True
    if test.below or len(test.within) + len(test.exactly) != 1:
        return False
    for concept in test.within:
        found.points.append((free_copy(NameAxis("concept", column), used), concept))
    for concept in test.exactly:
        found.points.append((free_copy(NameAxis("key", column), used), concept))
    return True


def _can_hold(test: ConceptTest | KeyTest | IntervalTest) -> bool:
    if isinstance(test, IntervalTest):
        return test.low <= test.high
    if isinstance(test, KeyTest):
        return any(not (isinstance(key, float) and math.isnan(key)) for key in test.keys)
    return bool(test.within or test.below or test.exactly)


def free_copy(axis: Axis, used: set[NumberAxis | NameAxis]) -> Axis:
    """Returns the first copy of `axis` that is not in `used`, and adds it to `used`."""
    while axis in used:
        axis = axis._replace(copy=axis.copy + 1)
    used.add(axis)
    return axis


# Slots of DEXIN, section 3.3.1: the ends of the intervals of each axis, in up to 1,500 ranges.
#
#     axis i ─┬─ edges[i, LOW]   ─▶ slot of a lower end ─▶ run of rows
#             └─ edges[i, HIGH]  ─▶ slot of an upper end ─▶ run of rows
#
# The paper's slots divide a known range evenly. Here the edges are quantiles of the stored ends, so that skewed ends
# are distributed evenly, too. The edges are computed again when the number of ends of an axis has doubled. The rows in
# a slot are unsorted, as in one of the paper's variants (linked lists instead of RB-trees); they are compared one by
# one only in the slot of the value.
#
# Slots are numbered by *place*, from 1 on. A row without a constraint has place 0 as its lower end and `BEYOND` as its
# upper end.

Floats = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]
Places = npt.NDArray[np.uint16]

LOW, HIGH = 0, 1

MOST_SLOTS = 1500
"""Maximum number of slots of an array: τ in the paper's experiments."""
SLOT_ROWS = 32
"""Target minimum of rows per slot. With fewer rows, finding the slots costs more than comparing their rows."""
BEYOND = 65535
"""The place of an absent upper end."""
SAMPLED = 1 << 16
"""Size of the sample of ends for the quantiles: 40 ends per slot."""


class Slotting(NamedTuple):
    """The slots of `n` axes, for lower and upper ends. `edges` is `float64[n, 2, MOST_SLOTS-1]`, of which
    `edge_count[n, 2]` are used. `base[n, 2]` is the run of place 1. `least` and `most` (`float64[n, 2, MOST_SLOTS+2]`)
    are bounds of the ends in each place; removals do not make them narrower."""

    edges: Floats
    edge_count: Numbers
    base: Numbers
    least: Floats
    most: Floats


@compiled
def place_of(edges: Floats, count: int, value: float) -> int:
    """Returns 1 + the number of the first `count` edges that are at most `value`, in eleven steps without a branch."""
    first, left = 0, count
    while left > 1:
        half = left >> 1
        first += half if edges[first + half - 1] <= value else 0
        left -= half
    return first + 1 + (1 if left == 1 and edges[first] <= value else 0)


@compiled
def rows_before(slotting: Slotting, lengths: Numbers, out: Numbers) -> None:
    """Writes to `out[i, side, place]` the number of rows of axis `i` in the places before `place`, for formula (3)."""
    for i in range(slotting.base.shape[0]):
        for side in range(2):
            total = 0
            for place in range(1, slotting.edge_count[i, side] + 2):
                out[i, side, place] = total
                total += lengths[slotting.base[i, side] + place - 1]
            out[i, side, slotting.edge_count[i, side] + 2] = total


def drawn(ends: Sequence[tuple[Floats, Floats]], slot_rows: int) -> Slotting:
    """Returns empty slots for the (lower, upper) ends of several axes. Each is for at least `slot_rows` rows."""
    n = len(ends)
    chance = np.random.default_rng(n)
    edges = np.zeros((n, 2, MOST_SLOTS - 1))
    count = np.zeros((n, 2), dtype=np.int64)
    for i, pair in enumerate(ends):
        for side in (LOW, HIGH):
            found = _quantiles(pair[side], slot_rows, chance)
            edges[i, side, : found.size] = found
            count[i, side] = found.size
    base = np.concatenate([[0], np.cumsum(count.ravel() + 1)])[:-1].reshape(n, 2)
    wide = (n, 2, MOST_SLOTS + 2)
    return Slotting(edges, count, base, np.full(wide, np.inf), np.full(wide, -np.inf))


def _quantiles(ends: Floats, slot_rows: int, chance: np.random.Generator) -> Floats:
    """Returns edges that divide `ends` into slots of about equal size: ascending, distinct and finite."""
    slots = min(MOST_SLOTS, ends.size // slot_rows)
    if slots < 2:
        return np.zeros(0, dtype=np.float64)
    sample = np.sort(ends if ends.size <= SAMPLED else chance.choice(ends, SAMPLED))
    edges = np.unique(sample[np.arange(1, slots) * sample.size // slots])
    finite: Floats = edges[np.isfinite(edges)]
    return finite


Rows = npt.NDArray[np.int32]
Bits = npt.NDArray[np.uint64]
Array = TypeVar("Array", bound=npt.NDArray[Any])


class Intervals(NamedTuple):
    """Constraints on axes of numbers as parallel arrays: `int64`, `int32` and two `float64`."""

    axis: Numbers
    row: Rows
    low: Floats
    high: Floats


class Points(NamedTuple):
    """Constraints on axes of names as parallel arrays: `int64`, `int32`, `int64`. `run` is the result of
    `Axes.run_of`."""

    axis: Numbers
    row: Rows
    run: Numbers


class View(NamedTuple):
    """All arrays, for kernels. Bit sets have 64 rows per word. An entry of a slot holds a row in its lower 32 bits, and
    the place of the row's other end above them. `before` is the result of `rows_before`."""

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
    """The constraints of rows `0 … room-1`. Invariant: `alive` are the rows that some event can match; no other row is
    on any axis."""

    def __init__(self, slot_rows: int) -> None:
        self._slot_rows = slot_rows
        self.numbers: dict[NumberAxis, int] = {}
        self.names: dict[NameAxis, int] = {}
        self.operands: dict[tuple[int, Hashable], int] = {}
        """Map from (axis of names, operand) to its run, from 1 on."""
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
        """Returns the number of `axis`, which is assigned at the first call."""
        return self.numbers.setdefault(axis, len(self.numbers))

    def name_axis(self, axis: NameAxis) -> int:
        """Returns the number of `axis`, which is assigned at the first call."""
        return self.names.setdefault(axis, len(self.names))

    def run_of(self, axis: int, operand: Hashable) -> int:
        """Returns the run of the rows that require `operand`, which is assigned at the first call."""
        return self.operands.setdefault((axis, operand), len(self.operands) + 1)

    def insert(self, rows: Rows, intervals: Intervals, points: Points) -> None:
        """Inserts `rows` on their axes; no row is twice on one axis. Linear, plus the amortised computation of
        slots."""
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
        """Removes `row`, which must have been inserted, from all its axes. Costs a scan of each slot that holds it."""
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
        """Returns the current arrays. They are valid until the next change."""
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
        """Raises AssertionError if the place of a row does not agree with its constraint."""
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
        """Makes room for `rows` rows and all known axes."""
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
        """Computes slots for the stored ends, and inserts all ends into them."""
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
    """Returns an array of `shape` with `old` at its start and `empty` elsewhere, or `old` itself if it has that
    shape."""
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
    """Returns the run and the entry for both ends of each constraint, in turn. An entry is the row and the place of its
    other end."""
    runs, entries = np.empty(2 * axis.size, dtype=np.int64), np.empty(2 * axis.size, dtype=np.int64)
    for k in range(axis.size):
        i, r = axis[k], row[k]
        for side in range(2):
            end = low[i, r] if side == 0 else high[i, r]
            at = place_of(slotting.edges[i, side], slotting.edge_count[i, side], end)
            place[i, r, side] = at
            runs[2 * k + side] = slotting.base[i, side] + at - 1
            entries[2 * k + 1 - side] = r + (np.int64(at) << 32)
            slotting.least[i, side, at] = min(slotting.least[i, side, at], end)
            slotting.most[i, side, at] = max(slotting.most[i, side, at], end)
    return runs, entries


WORDS_COST = 1 / 128
"""Cost of a pass over the bits of all rows, relative to visiting each row."""


class Asked(NamedTuple):
    """The values of events by axis. In a view with `n` axes of numbers, event `e` has the numbers
    `numbers[number_first[e * n + i] : number_first[e * n + i + 1]]` on axis `i`. Axes of names have runs (from 1 on) in
    the same form."""

    number_first: Numbers
    numbers: Floats
    name_first: Numbers
    names: Rows


class Stages(NamedTuple):
    """The state of each axis for one event; axes of names follow the axes of numbers. `failing` is the number of
    failing rows, `walked` the number of rows that excluding them visits. `alpha`, `beta`, `least` and `most` are the
    places and extremes of the values. `several` is true for several numbers, so that the extremes alone do not
    decide."""

    failing: Floats
    walked: Floats
    alpha: Numbers
    beta: Numbers
    least: Floats
    most: Floats
    several: npt.NDArray[np.bool_]


@compiled
def rates(view: View, asked: Asked, event: int, stages: Stages) -> None:
    """Formula (3), without counting a row twice (erratum 12): all rows in the slots beyond the slot of the value, and a
    share of the rows in that slot."""
    axes = view.number_count.size
    words = WORDS_COST * 64 * view.alive.size
    for i in range(axes):
        first, last = asked.number_first[event * axes + i], asked.number_first[event * axes + i + 1]
        total = view.number_count[i]
        stages.several[i] = last - first > 1
        if first == last:
            stages.failing[i], stages.walked[i], stages.alpha[i], stages.beta[i] = total, min(total, words), 0, 0
            continue
        least = most = asked.numbers[first]
        for k in range(first + 1, last):
            least, most = min(least, asked.numbers[k]), max(most, asked.numbers[k])
        slotting = view.slotting
        alpha = place_of(slotting.edges[i, 0], slotting.edge_count[i, 0], most)
        beta = place_of(slotting.edges[i, 1], slotting.edge_count[i, 1], least)
        in_alpha = view.before[i, 0, alpha + 1] - view.before[i, 0, alpha]
        in_beta = view.before[i, 1, beta + 1] - view.before[i, 1, beta]
        above = total - view.before[i, 0, alpha + 1]
        above += in_alpha - _share(in_alpha, slotting.least[i, 0, alpha], slotting.most[i, 0, alpha], most, True)
        below = view.before[i, 1, beta]
        below += _share(in_beta, slotting.least[i, 1, beta], slotting.most[i, 1, beta], least, False)
        stages.failing[i] = min(float(total), above + below)
        stages.walked[i] = min(stages.failing[i], min(total - above, total - below) + words)
        stages.alpha[i], stages.beta[i], stages.least[i], stages.most[i] = alpha, beta, least, most
    names = view.name_count.size
    for p in range(names):
        passing = 0
        for k in range(asked.name_first[event * names + p], asked.name_first[event * names + p + 1]):
            passing += view.name_length[asked.names[k]]
        stages.several[axes + p] = False
        stages.failing[axes + p] = view.name_count[p] - passing
        stages.walked[axes + p] = passing + words


@compiled
def _share(rows: int, least: float, most: float, value: float, closed: bool) -> float:
    """Estimates how many of `rows` ends between `least` and `most` are below `value`, or equal to it if `closed`. Exact
    if the value is outside; otherwise assumes an even distribution, and never returns none or all."""
    if rows == 0 or value < least or (value == least and not closed):
        return 0.0
    if value > most or (value == most and closed):
        return float(rows)
    spread = (value - least) / (most - least)
    share = rows * spread if spread == spread else 0.5 * rows
    return min(max(share, 0.5), rows - 0.5)


@compiled
def exclude(view: View, asked: Asked, event: int, stages: Stages, axis: int, bits: Bits, kept: Bits) -> None:
    """Algorithm 1: removes the rows that fail on `axis` from `bits`. `kept` is scratch memory of the same size."""
    axes = view.number_count.size
    if axis < axes and stages.alpha[axis] > 0 and stages.walked[axis] == stages.failing[axis]:
        _clear_failing(view, stages, axis, bits)
        return
    if axis < axes:
        kept[:] = ~view.number_asks[axis]
        if stages.alpha[axis] > 0:
            _keep_passing(view, stages, axis, kept)
    else:
        p, names = axis - axes, view.name_count.size
        kept[:] = ~view.name_asks[p]
        for k in range(asked.name_first[event * names + p], asked.name_first[event * names + p + 1]):
            run = asked.names[k]
            for at in range(view.name_start[run], view.name_start[run] + view.name_length[run]):
                row = view.name_rows[at]
                kept[row >> 6] |= np.uint64(1) << np.uint64(row & 63)
    bits &= kept


@compiled
def _clear_failing(view: View, stages: Stages, i: int, bits: Bits) -> None:
    slotting, entries = view.slotting, view.slot_entries
    alpha, beta, least, most = stages.alpha[i], stages.beta[i], stages.least[i], stages.most[i]
    for place in range(alpha, slotting.edge_count[i, 0] + 2):
        run = slotting.base[i, 0] + place - 1
        for at in range(view.slot_start[run], view.slot_start[run] + view.slot_length[run]):
            row = entries[at] & LOWER
            fails = (place > alpha) or view.low[i, row] > most
            bits[row >> 6] &= ~(np.uint64(fails) << np.uint64(row & 63))
    for place in range(1, beta + 1):
        run = slotting.base[i, 1] + place - 1
        for at in range(view.slot_start[run], view.slot_start[run] + view.slot_length[run]):
            row = entries[at] & LOWER
            fails = (place < beta) or view.high[i, row] < least
            bits[row >> 6] &= ~(np.uint64(fails) << np.uint64(row & 63))


@compiled
def _keep_passing(view: View, stages: Stages, i: int, kept: Bits) -> None:
    """Visits the rows with one passing end, on the side with fewer of them. Keeps those whose other end passes."""
    slotting, entries = view.slotting, view.slot_entries
    alpha, beta, least, most = stages.alpha[i], stages.beta[i], stages.least[i], stages.most[i]
    low, high = view.low[i], view.high[i]
    if view.before[i, 0, alpha + 1] <= view.number_count[i] - view.before[i, 1, beta]:
        for place in range(1, alpha + 1):
            run = slotting.base[i, 0] + place - 1
            for at in range(view.slot_start[run], view.slot_start[run] + view.slot_length[run]):
                row, upper = entries[at] & LOWER, entries[at] >> 32
                passes = upper > beta
                if (place == alpha) | (upper == beta):  # rare, so well predicted, unlike `passes`
                    passes = (low[row] <= most) & (high[row] >= least)
                kept[row >> 6] |= np.uint64(passes) << np.uint64(row & 63)
    else:
        for place in range(beta, slotting.edge_count[i, 1] + 2):
            run = slotting.base[i, 1] + place - 1
            for at in range(view.slot_start[run], view.slot_start[run] + view.slot_length[run]):
                row, lower = entries[at] & LOWER, entries[at] >> 32
                passes = lower < alpha
                if (place == beta) | (lower == alpha):
                    passes = (low[row] <= most) & (high[row] >= least)
                kept[row >> 6] |= np.uint64(passes) << np.uint64(row & 63)


@compiled
def listed(bits: Bits, rows: Rows) -> int:
    """Writes the rows of `bits` to `rows`, in ascending order. Returns their number."""
    count = 0
    for word in range(bits.size):
        left = bits[word]
        while left:
            rows[count] = (word << 6) + lowest_bit(left)
            left &= left - np.uint64(1)
            count += 1
    return count


@compiled
def include(
    view: View,
    asked: Asked,
    event: int,
    stages: Stages,
    axis: int,
    rows: Rows,
    count: int,
    marked: npt.NDArray[np.bool_],
) -> int:
    """Algorithm 2: keeps those of the first `count` of `rows` that do not fail on `axis`, in place. Returns their
    number. `marked` is scratch memory with one entry per run of names, all False."""
    axes = view.number_count.size
    if axis < axes:
        first, last = asked.number_first[event * axes + axis], asked.number_first[event * axes + axis + 1]
        if stages.alpha[axis] == 0:
            return _not_asking(view.place[axis], rows, count)
        if last - first == 1:
            return _around(view, axis, stages.alpha[axis], stages.beta[axis], asked.numbers[first], rows, count)
        return _around_any(view, axis, asked.numbers[first:last], rows, count)
    p, names = axis - axes, view.name_count.size
    first, last = asked.name_first[event * names + p], asked.name_first[event * names + p + 1]
    operand = view.operand[p]
    left = 0
    if last - first <= 1:
        only = asked.names[first] if last > first else 0
        for k in range(count):
            row = rows[k]
            rows[left] = row
            left += (operand[row] == 0) | (operand[row] == only)
        return left
    marked[0] = True
    for k in range(first, last):
        marked[asked.names[k]] = True
    for k in range(count):
        row = rows[k]
        rows[left] = row
        left += marked[operand[row]]
    marked[0] = False
    for k in range(first, last):
        marked[asked.names[k]] = False
    return left


@compiled
def _not_asking(place: npt.NDArray[np.uint16], rows: Rows, count: int) -> int:
    left = 0
    for k in range(count):
        row = rows[k]
        rows[left] = row
        left += place[row, 0] == 0
    return left


@compiled
def _around(view: View, i: int, alpha: int, beta: int, value: float, rows: Rows, count: int) -> int:
    """Decides by place if possible, and by comparing the ends in the slots of the value."""
    place, low, high = view.place[i], view.low[i], view.high[i]
    left = 0
    for k in range(count):
        row = rows[k]
        lower, upper = place[row, 0], place[row, 1]
        rows[left] = row
        passes = (lower < alpha) & (upper > beta)
        if (lower == alpha) | (upper == beta):
            passes = (low[row] <= value) & (high[row] >= value)
        left += passes
    return left


@compiled
def _around_any(view: View, i: int, values: Floats, rows: Rows, count: int) -> int:
    place, low, high = view.place[i], view.low[i], view.high[i]
    left = 0
    for k in range(count):
        row = rows[k]
        passes = place[row, 0] == 0
        for value in values:
            passes = passes or low[row] <= value <= high[row]
        rows[left] = row
        left += passes
    return left
