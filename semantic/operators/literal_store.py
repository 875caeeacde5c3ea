"""The literals of all clauses as flat arrays, so that those of ten thousand candidates are gathered in one step."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

__all__ = ["LiteralStore", "distinct"]

FIRST_ROOM = 64


class LiteralStore:
    """Numbers of calls and wanted outcomes, by clause. One owner.

        begin, length   by clause                      number, wanted   int32, int8: clause after clause, with gaps

    A clause that goes leaves a gap; when gaps are half of all, everything moves together.
    """

    def __init__(self) -> None:
        self._begin = np.zeros(FIRST_ROOM, dtype=np.int64)
        self._length = np.full(FIRST_ROOM, -1, dtype=np.int32)
        self._number = np.zeros(FIRST_ROOM, dtype=np.int32)
        self._wanted = np.zeros(FIRST_ROOM, dtype=np.int8)
        self._end = 0
        self._gaps = 0

    def add(self, clause: int, numbers: Sequence[int], wanted: Sequence[bool]) -> None:
        """Amortised constant for each literal; memory goes by the largest clause number."""
        if clause >= len(self._begin):
            room = 2 * clause + 2 - len(self._begin)
            self._begin = np.concatenate([self._begin, np.zeros(room, dtype=np.int64)])
            self._length = np.concatenate([self._length, np.full(room, -1, dtype=np.int32)])
        end = self._end + len(numbers)
        if end > len(self._number):
            self._number = np.concatenate([self._number, np.zeros(end, dtype=np.int32)])
            self._wanted = np.concatenate([self._wanted, np.zeros(end, dtype=np.int8)])
        self._number[self._end : end] = numbers
        self._wanted[self._end : end] = wanted
        self._begin[clause], self._length[clause] = self._end, len(numbers)
        self._end = end

    def remove(self, clause: int) -> None:
        """Forget a clause that is there."""
        self._gaps += int(self._length[clause])
        self._length[clause] = -1
        if self._gaps > FIRST_ROOM and 2 * self._gaps > self._end:
            self._close_gaps()

    def of(self, clauses: Sequence[int]) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], npt.NDArray[np.int8]]:
        """(first, number, wanted): those of `clauses[c]` at `first[c] : first[c + 1]`."""
        chosen = np.asarray(clauses, dtype=np.int64)
        length = self._length[chosen]
        first = np.zeros(len(chosen) + 1, dtype=np.int32)
        np.cumsum(length, out=first[1:])
        at = np.repeat(self._begin[chosen] - first[:-1], length) + np.arange(first[-1])
        return first, self._number[at], self._wanted[at]

    def _close_gaps(self) -> None:
        clauses = np.flatnonzero(self._length >= 0)
        first, number, wanted = self.of(clauses.tolist())
        self._begin[clauses] = first[:-1]
        self._end, self._gaps = len(number), 0
        self._number, self._wanted = number, wanted


def distinct(numbers: npt.NDArray[np.int32], below: int) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """(the distinct numbers, ascending; the place of each of `numbers` among them). Linear in `below`.

    >>> [each.tolist() for each in distinct(np.array([7, 3, 7], dtype=np.int32), 10)]
    [[3, 7], [1, 0, 1]]
    """
    if below > 16 * len(numbers) + 1024:  # few of many: sorting them is less
        found, places = np.unique(numbers, return_inverse=True)
        return found, places.astype(np.int32)
    there = np.zeros(below, dtype=np.int32)
    there[numbers] = 1
    found = np.flatnonzero(there).astype(np.int32)
    there[found] = np.arange(len(found), dtype=np.int32)
    return found, there[numbers]
