"""The elementary predicates of every row: the association table of Le Subscribe, read from the side of the rows.

    row ─▶ begin, length        axis, operand [begin : begin + length]

An operand is the number of a predicate (keys, concepts, presence) or a bound. Where a lower bound and the upper one
behind it are of one test, which one value must satisfy, the axis of the lower one is stored as `~axis`.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["Predicates", "RowPredicates"]

Rows = npt.NDArray[np.int32]
Numbers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class Predicates(NamedTuple):
    """See above: `begin` is `int64[rows]`, `length` `int32[rows]` (0 for a row that is not there), `axis` is `int32`,
    `operand` `float64`."""

    begin: Numbers
    length: Rows
    axis: Rows
    operand: Floats


class RowPredicates:
    """Rows come and go. A row that goes leaves a gap; when gaps are half of all, everything moves together."""

    def __init__(self) -> None:
        none = np.zeros(0, dtype=np.int32)
        self.table = Predicates(np.zeros(0, dtype=np.int64), none, none, np.zeros(0))
        self._end = self._gaps = 0

    def add(self, rows: Rows, first: Numbers, axis: Rows, operand: Floats) -> None:
        """Row `rows[i]` has `axis` and `operand[first[i] : first[i + 1]]`. Amortised linear."""
        begin, length, known_axis, known_operand = self.table
        most = int(rows.max(initial=-1)) + 1
        if most > begin.size:
            more = max(most, begin.size * 3 // 2) - begin.size
            begin = np.concatenate([begin, np.zeros(more, dtype=np.int64)])
            length = np.concatenate([length, np.zeros(more, dtype=np.int32)])
        end = self._end + axis.size
        if end > known_axis.size:
            more = max(end, known_axis.size * 3 // 2) - known_axis.size
            known_axis = np.concatenate([known_axis, np.zeros(more, dtype=np.int32)])
            known_operand = np.concatenate([known_operand, np.zeros(more)])
        known_axis[self._end : end], known_operand[self._end : end] = axis, operand
        begin[rows], length[rows] = self._end + first[:-1], np.diff(first)
        self._end = end
        self.table = Predicates(begin, length, known_axis, known_operand)

    def of(self, row: int) -> tuple[Rows, Floats]:
        """(axes, `~axis` for the lower bound of one test with the next; operands)."""
        begin = int(self.table.begin[row])
        own = slice(begin, begin + int(self.table.length[row]))
        return self.table.axis[own], self.table.operand[own]

    def remove(self, row: int) -> None:
        """Forget a row."""
        self._gaps += int(self.table.length[row])
        self.table.length[row] = 0
        if self._gaps > 1024 and 2 * self._gaps > self._end:
            self._close_gaps()

    def _close_gaps(self) -> None:
        begin, length, axis, operand = self.table
        there = np.flatnonzero(length)
        lengths = length[there].astype(np.int64)
        starts = np.cumsum(lengths) - lengths
        at = np.repeat(begin[there] - starts, lengths) + np.arange(int(lengths.sum()))
        begin[there] = starts
        self.table = Predicates(begin, length, axis[at], operand[at])
        self._end, self._gaps = at.size, 0
