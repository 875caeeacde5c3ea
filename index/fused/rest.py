"""What is asked of rows after their records: a program for each such row, as arrays that merges copy.

    rows      ascending, each once                 programs    number i is that of `rows[i]`

Programs name columns and keys by the engine's numbers, which never change; so they mean the same in every segment.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from index.clause import Predicate
from index.compiling import compiled
from index.fused.arrays import Bytes, Codes, Ints
from index.fused.columns import Columns
from index.fused.programs import ProgramArrays, Programs

__all__ = ["GrowingRest", "Rest", "joined_rests", "rest_of_rows"]


class Rest(NamedTuple):
    """See above. No array is longer than what is used."""

    rows: Codes
    programs: ProgramArrays


class GrowingRest:
    """Predicates of rows, one row after the other."""

    def __init__(self) -> None:
        self._programs = Programs()
        self._of: dict[int, int] = {}

    def __contains__(self, row: int) -> bool:
        return row in self._of

    @property
    def nbytes(self) -> int:
        """The bytes of the programs."""
        return sum(array.nbytes for array in self._programs.arrays())

    def add(self, row: int, predicates: Iterable[Predicate], columns: Columns) -> None:
        """What is asked of `row`; numbers its columns and keys."""
        self._of[row] = self._programs.add(predicates, columns)

    def discard(self, row: int) -> None:
        """`row` is gone, or had nothing to ask."""
        self._of.pop(row, None)

    def rest(self) -> Rest | None:
        """All of it as arrays; None for no rows."""
        rows, numbers = (np.array(list(each), dtype=np.int32) for each in (self._of, self._of.values()))
        return rest_of_rows(rows, numbers, self._programs.arrays())


def rest_of_rows(rows: Codes, numbers: Codes, programs: ProgramArrays) -> Rest | None:
    """The programs `numbers` of the given rows, which may repeat (with the same program each time) and stand in any
    order; None for no rows. Costs some ns a test."""
    if not rows.size:
        return None
    rows, first = np.unique(rows, return_index=True)
    return Rest(rows, _chosen(programs, np.ascontiguousarray(numbers[first], dtype=np.int32)))


def joined_rests(parts: Sequence[Rest | None]) -> Rest | None:
    """All of them, of rows that are in one of them only."""
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
    """The programs `numbers`, in this order."""
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
    """Of compressed rows with `starts`, the rows `chosen`: their starts, and the places of their members."""
    new = np.zeros(chosen.size + 1, dtype=np.int64)
    for i in range(chosen.size):
        new[i + 1] = new[i] + starts[chosen[i] + 1] - starts[chosen[i]]
    places = np.empty(new[-1], dtype=np.int64)
    for i in range(chosen.size):
        for at in range(new[i], new[i + 1]):
            places[at] = starts[chosen[i]] + at - new[i]
    return new, places
