"""Residual predicates: one program per row that needs a check in addition to its record, in arrays that merges copy.

    rows      ascending, without duplicates        programs    program i belongs to `rows[i]`

Programs refer to columns and keys by the engine's numbers, which never change. So a program is valid in every segment.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from kindcast.index.clause import ColumnId, IntervalTest, Key, KeyTest, Predicate, can_hold
from kindcast.index.fused.arrays import Bytes, Codes, Floats, GraphArrays, Ints, walk_up
from kindcast.index.fused.columns import CONCEPT, KEY, ORDERED, Columns
from kindcast.index.jit import compiled

__all__ = [
    "INTERVAL",
    "KEYS",
    "BatchArrays",
    "Growing",
    "GrowingRest",
    "ProgramArrays",
    "Programs",
    "Rest",
    "ask_programs",
    "joined_rests",
    "mark_concepts",
    "rest_of_rows",
    "unmark_concepts",
]


# Predicates as programs, for rows in memtables and for predicates that records cannot express.
#
#     program ─▶ predicates (negated or not) ─▶ tests ─▶ column, and an interval or a sorted set of codes
#
# A program is evaluated for one event at a time, and costs some nanoseconds per predicate. It supports events with
# several values. Its semantics are those of `kindcast.index.clause`, without presence, which the caller has checked.

INTERVAL, KEYS, WITHIN, BELOW, EXACTLY = range(5)
"""The types of tests."""
FEW_NUMBERS = 4
"""The maximum number of numbers of one test that are compared one by one. More are keys, because a search among them
takes fewer steps."""


class ProgramArrays(NamedTuple):
    """P programs, Q predicates, T tests. The arrays may be longer than their used part."""

    predicate_from: Ints  # [P+1]
    test_from: Ints  # [Q+1]
    negated: Bytes  # [Q]
    test: Bytes  # [T] type of the test
    column: Codes  # [T] the engine's number
    low: Floats  # [T]
    high: Floats  # [T]
    operand_from: Ints  # [T+1]
    operands: Codes  # codes or concepts, ascending within a test


class BatchArrays(NamedTuple):
    """The arrays of `EventBatch`, and the batch's column for each column of the engine (-1 for none)."""

    columns: Codes
    codes: Codes
    numbers: Floats
    several_index: Codes
    several_from: Ints
    where: Ints
    mark_base: Ints  # [S] -1 unless the column holds concepts
    spare_base: int  # an additional region of marks, after those of the columns of concepts


class Programs:
    """A growing list of programs. Programs cannot be removed one by one."""

    def __init__(self) -> None:
        self._predicate_from = Growing(np.int64, [0])
        self._test_from = Growing(np.int64, [0])
        self._negated = Growing(np.uint8)
        self._test = Growing(np.uint8)
        self._column = Growing(np.int32)
        self._low = Growing(np.float64)
        self._high = Growing(np.float64)
        self._operand_from = Growing(np.int64, [0])
        self._operands = Growing(np.int32)

    def __len__(self) -> int:
        return self._predicate_from.size - 1

    @property
    def tests(self) -> int:
        """The number of tests of all programs."""
        return self._test.size

    def add(self, predicates: Iterable[Predicate], columns: Columns) -> int:
        """Adds a program that holds if all of `predicates` hold, and returns its number."""
        for predicate in predicates:
            for column, test in predicate.tests:
                if not can_hold(test):
                    continue
                if isinstance(test, IntervalTest):
                    self._add_test(INTERVAL, columns.number(column, ORDERED), (), test.low, test.high)
                elif isinstance(test, KeyTest):
                    self._add_keys(column, test.keys, columns)
                else:
                    number = columns.number(column, CONCEPT)
                    for asks, ids in ((WITHIN, test.within), (BELOW, test.below), (EXACTLY, test.exactly)):
                        if ids:
                            self._add_test(asks, number, sorted(ids))
            self._negated.append(predicate.negated)
            self._test_from.append(self._test.size)
        self._predicate_from.append(self._negated.size)
        return len(self) - 1

    def arrays(self) -> ProgramArrays:
        """Returns the arrays for kernels. They are valid until the next `add`."""
        return ProgramArrays(
            self._predicate_from.array,
            self._test_from.array,
            self._negated.array,
            self._test.array,
            self._column.array,
            self._low.array,
            self._high.array,
            self._operand_from.array,
            self._operands.array,
        )

    def _add_keys(self, column: ColumnId, keys: Collection[Key], columns: Columns) -> None:
        """Adds tests, one of which holds if a value is one of `keys`, which all have one type. A few numbers are tested
        as intervals, as in segments. As keys they would cost a look-up for each number of every event."""
        numbers = [key for key in keys if type(key) is float]
        if 0 < len(numbers) <= FEW_NUMBERS:
            for key in numbers:
                self._add_test(INTERVAL, columns.number(column, ORDERED), (), key, key)
        else:
            number = columns.number(column, KEY)
            self._add_test(KEYS, number, sorted(columns.key(number, key) for key in keys))

    def _add_test(self, asks: int, column: int, operands: Iterable[int], low: float = 0.0, high: float = 0.0) -> None:
        self._test.append(asks)
        self._column.append(column)
        self._low.append(low)
        self._high.append(high)
        for operand in operands:
            self._operands.append(operand)
        self._operand_from.append(self._operands.size)


class Growing:
    """An array that doubles when it is full. Earlier values of `array` keep their content."""

    __slots__ = ("array", "size")

    def __init__(self, dtype: type, first: Iterable[int] = ()) -> None:
        self.array: npt.NDArray[Any] = np.zeros(16, dtype=dtype)
        self.size = 0
        for value in first:
            self.append(value)

    def append(self, value: float) -> None:
        if self.size == self.array.size:
            self.array = np.concatenate([self.array, np.zeros_like(self.array)])
        self.array[self.size] = value
        self.size += 1


@compiled
def mark_concepts(graph: GraphArrays, batch: BatchArrays, event: int, marked: Bytes, above: Codes) -> None:
    """Marks every concept that is a value of `event` or above a value, column by column. The marked concepts of a
    column are listed from `above[mark_base]` on, terminated by -1."""
    width = batch.columns.size
    concepts = graph.parent_from.size - 1
    for s in range(width):
        if batch.mark_base[s] < 0:
            continue
        begin, end = event * width + s, event * width + s + 1
        if batch.several_index[event] >= 0:
            begin = batch.several_from[batch.several_index[event] * width + s]
            end = batch.several_from[batch.several_index[event] * width + s + 1]
        first = batch.mark_base[s]
        listed = first
        for i in range(begin, end):
            if batch.codes[i] >= 0:
                listed = walk_up(graph, batch.codes[i], marked, batch.mark_base[s], above, listed)
        if listed < first + concepts:
            above[listed] = -1


@compiled
def unmark_concepts(graph: GraphArrays, batch: BatchArrays, marked: Bytes, above: Codes) -> None:
    """Reverts `mark_concepts`."""
    concepts = graph.parent_from.size - 1
    for s in range(batch.columns.size):
        base = batch.mark_base[s]
        if base < 0:
            continue
        for i in range(base, base + concepts):
            if above[i] < 0:
                break
            marked[base + above[i]] = 0


@compiled
def ask_programs(
    programs: ProgramArrays,
    graph: GraphArrays,
    batch: BatchArrays,
    starts: Ints,
    asked: Codes,
    marked: Bytes,
    above: Codes,
    holds: Bytes,
) -> None:
    """Evaluates the programs in `asked`, and writes to `holds` whether all predicates of each hold for its event. Item
    i of `starts` belongs to event i modulo the number of events, and has the programs `starts[i] … starts[i + 1] - 1`.
    There is one call per batch, because each array in a tuple argument costs some ns."""
    predicate_from, test_from, negated = programs.predicate_from, programs.test_from, programs.negated
    test_asks, test_column, test_low, test_high = programs.test, programs.column, programs.low, programs.high
    operand_from, operands = programs.operand_from, programs.operands
    where, codes, numbers, mark_base = batch.where, batch.codes, batch.numbers, batch.mark_base
    several_index, several_from = batch.several_index, batch.several_from
    width = mark_base.size
    events = several_index.size
    for item in range(starts.size - 1):
        if starts[item] == starts[item + 1]:
            continue
        event = item % events
        if batch.spare_base > 0:
            mark_concepts(graph, batch, event, marked, above)
        for place in range(starts[item], starts[item + 1]):
            program = asked[place]
            good = True
            for predicate in range(predicate_from[program], predicate_from[program + 1]):
                satisfied = False
                for test in range(test_from[predicate], test_from[predicate + 1]):
                    s = where[test_column[test]] if test_column[test] < where.size else -1
                    if s < 0:
                        continue
                    begin, end = event * width + s, event * width + s + 1
                    if several_index[event] >= 0:
                        begin = several_from[several_index[event] * width + s]
                        end = several_from[several_index[event] * width + s + 1]
                    asks = test_asks[test]
                    first, last = operand_from[test], operand_from[test + 1]
                    if asks == INTERVAL:
                        for i in range(begin, end):
                            satisfied |= test_low[test] <= numbers[i] <= test_high[test]
                    elif asks in (KEYS, EXACTLY):
                        for i in range(begin, end):
                            code = codes[i]
                            low, high = first, last
                            while low < high:
                                middle = (low + high) >> 1
                                if operands[middle] < code:
                                    low = middle + 1
                                else:
                                    high = middle
                            satisfied |= low < last and operands[low] == code
                    elif asks == WITHIN:
                        for i in range(first, last):
                            satisfied |= marked[mark_base[s] + operands[i]] != 0
                    else:
                        for i in range(first, last):
                            operand = operands[i]
                            if marked[mark_base[s] + operand]:
                                satisfied |= _is_properly_above(graph, batch, operand, begin, end, marked, above)
                    if satisfied:
                        break
                if satisfied == (negated[predicate] != 0):
                    good = False
                    break
            holds[place] = good
        if batch.spare_base > 0:
            unmark_concepts(graph, batch, marked, above)


@compiled
def _is_properly_above(
    graph: GraphArrays,
    batch: BatchArrays,
    concept: int,
    begin: int,
    end: int,
    marked: Bytes,
    above: Codes,
) -> bool:
    """Whether a value other than `concept` is beneath it. `concept` must be marked."""
    itself = False
    others = False
    for i in range(begin, end):
        itself |= batch.codes[i] == concept
        others |= batch.codes[i] != concept
    if not itself or not others:
        return not itself
    base = batch.spare_base
    found = False
    for i in range(begin, end):
        if batch.codes[i] >= 0 and batch.codes[i] != concept:
            top = walk_up(graph, batch.codes[i], marked, base, above, base)
            found |= marked[base + concept] != 0
            for j in range(base, top):
                marked[base + above[j]] = 0
    return found


class Rest(NamedTuple):
    """Rows and their programs (see above). All arrays have their exact size."""

    rows: Codes
    programs: ProgramArrays


class GrowingRest:
    """Residual predicates of rows that are added one by one."""

    def __init__(self) -> None:
        self._programs = Programs()
        self._of: dict[int, int] = {}

    def __contains__(self, row: int) -> bool:
        return row in self._of

    @property
    def nbytes(self) -> int:
        """Size of the programs in bytes."""
        return sum(array.nbytes for array in self._programs.arrays())

    def add(self, row: int, predicates: Iterable[Predicate], columns: Columns) -> None:
        """Adds the residual predicates of `row`. Assigns numbers to their columns and keys."""
        self._of[row] = self._programs.add(predicates, columns)

    def discard(self, row: int) -> None:
        """Removes the program of `row`, if it has one."""
        self._of.pop(row, None)

    def rest(self) -> Rest | None:
        """Returns all programs as arrays, or None if there are no rows."""
        rows, numbers = (np.array(list(each), dtype=np.int32) for each in (self._of, self._of.values()))
        return rest_of_rows(rows, numbers, self._programs.arrays())


def rest_of_rows(rows: Codes, numbers: Codes, programs: ProgramArrays) -> Rest | None:
    """Returns the programs `numbers` of `rows`, or None if there are no rows. Rows may be unsorted and may repeat, with
    the same program each time. Costs some ns per test."""
    if not rows.size:
        return None
    rows, first = np.unique(rows, return_index=True)
    return Rest(rows, _chosen(programs, np.ascontiguousarray(numbers[first], dtype=np.int32)))


def joined_rests(parts: Sequence[Rest | None]) -> Rest | None:
    """Joins `parts`, which have no rows in common."""
    some = [part for part in parts if part is not None]
    if len(some) < 2:
        return some[0] if some else None
    of = [part.programs for part in some]
    programs = ProgramArrays(
        _joined_starts([each.predicate_from for each in of]),
        _joined_starts([each.test_from for each in of]),
        np.concatenate([each.negated for each in of]),
        np.concatenate([each.test for each in of]),
        np.concatenate([each.column for each in of]),
        np.concatenate([each.low for each in of]),
        np.concatenate([each.high for each in of]),
        _joined_starts([each.operand_from for each in of]),
        np.concatenate([each.operands for each in of]),
    )
    rows = np.concatenate([part.rows for part in some])
    return rest_of_rows(rows, np.arange(rows.size, dtype=np.int32), programs)


def _joined_starts(parts: Sequence[Ints]) -> Ints:
    sizes = [np.diff(part) for part in parts]
    starts = np.zeros(sum(size.size for size in sizes) + 1, dtype=np.int64)
    np.cumsum(np.concatenate(sizes), out=starts[1:])
    return starts


def _chosen(programs: ProgramArrays, numbers: Codes) -> ProgramArrays:
    """Returns the programs `numbers`, in this order."""
    predicate_from, predicates = _expanded(programs.predicate_from, numbers.astype(np.int64))
    test_from, tests = _expanded(programs.test_from, predicates)
    operand_from, operands = _expanded(programs.operand_from, tests)
    return ProgramArrays(
        predicate_from,
        test_from,
        _taken(programs.negated, predicates),
        _taken(programs.test, tests),
        _taken(programs.column, tests),
        _taken(programs.low, tests),
        _taken(programs.high, tests),
        operand_from,
        _taken(programs.operands, operands),
    )


def _taken(values: Bytes, places: Ints) -> Bytes:
    return values[places]


@compiled
def _expanded(starts: Ints, chosen: Ints) -> tuple[Ints, Ints]:
    """Selects the rows `chosen` of compressed rows with `starts`. Returns their new starts, and the places of their
    members."""
    new = np.zeros(chosen.size + 1, dtype=np.int64)
    for i in range(chosen.size):
        new[i + 1] = new[i] + starts[chosen[i] + 1] - starts[chosen[i]]
    places = np.empty(new[-1], dtype=np.int64)
    for i in range(chosen.size):
        for at in range(new[i], new[i + 1]):
            places[at] = starts[chosen[i]] + at - new[i]
    return new, places
