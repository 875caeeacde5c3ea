"""Row allocation: which rows exist, where each is stored, and which numbers are free.

take ─▶ lowest free row ─▶ IN_MEMTABLE ─▶ FROZEN          give_back ─▶ free again
                        └▶ NEVER (no event can match it)
"""

import heapq
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from kindcast.index.fused.arrays import Bytes, Codes

__all__ = ["FROZEN", "IN_MEMTABLE", "NEVER", "NOWHERE", "RowLocations"]

NOWHERE, IN_MEMTABLE, FROZEN, NEVER = range(4)
"""Where a row is: free, in a memtable, in a segment, or stored but unable to match anything."""


class RowLocations:
    """Invariant: `size` counts all rows that were ever given out; of these, the free ones are `NOWHERE`."""

    def __init__(self, state: Bytes | None = None) -> None:
        """`state`: where each row of an earlier engine is, `uint8[rows]`."""
        self._state = np.zeros(0, dtype=np.uint8) if state is None else state
        self.size = self._state.size
        self._free: list[int] = np.flatnonzero(self._state == NOWHERE).tolist()  # ascending, which is a heap
        self.repeating = 0
        """Rows of several alternatives, which a search may find more than once."""

    def __len__(self) -> int:
        return self.size - len(self._free)

    @property
    def nbytes(self) -> int:
        """About the bytes: an entry of the heap is a pointer and a number."""
        return self._state.nbytes + 40 * len(self._free)

    @property
    def next_nbytes(self) -> int:
        """The bytes that the next row may take."""
        return 40 if self._free or self.size < self._state.size else max(64, self.size)

    def state(self) -> npt.NDArray[np.uint8]:
        """Where each row is: a view."""
        return self._state[: self.size]

    def take(self) -> int:
        """Take the lowest free row; the caller must then say where it is stored."""
        if self._free:
            return heapq.heappop(self._free)
        if self.size == self._state.size:
            self._state = np.concatenate([self._state, np.zeros(max(64, self.size), dtype=np.uint8)])
        self.size += 1
        return self.size - 1

    def give_back(self, row: int) -> None:
        """`row` is free."""
        self._state[row] = NOWHERE
        heapq.heappush(self._free, row)

    def shrink(self) -> None:
        """Forget free rows behind the last that is not. Linear."""
        used = np.flatnonzero(self.state())
        self.size = int(used[-1]) + 1 if used.size else 0
        self._state = self._state[: self.size].copy()
        self._free = [row for row in self._free if row < self.size]
        heapq.heapify(self._free)

    def put(self, rows: int | Sequence[int] | Codes, where: int | Bytes) -> None:
        """Each of `rows` is there now."""
        self._state[rows] = where

    def where(self, row: int) -> int:
        """`NOWHERE` also for a row that there never was."""
        return int(self._state[row]) if 0 <= row < self.size else NOWHERE

    def check_invariants(self) -> None:
        """Raise AssertionError if a structural invariant is broken."""
        assert sorted(self._free) == np.flatnonzero(self.state() == NOWHERE).tolist(), (self._free, self.state())
