"""The predicates of a clause that are no equalities, one row of numbers a clause, to be checked on candidates.

    clause ─▶ (slot, low, high) …        slot: a column or an attribute that is asked about
    event  ─▶ least[slot], most[slot]    its smallest and largest value there; NaN where there is none

A condition holds when `most >= low` and `least <= high`: for one value that is the interval, and NaN never holds.
"""

import math
from collections.abc import Hashable, Iterable, Mapping

import numpy as np
import numpy.typing as npt

from index.clause import ClauseRow, LoweredEvent
from index.published.elementary import AtLeast, AtMost, Elementary, Present

__all__ = ["Conditions"]

Rows = npt.NDArray[np.int32]


class Conditions:
    """`match` of Le Subscribe, Figure 5, for many clauses at once. Immutable. Memory: 20 bytes for each row and the
    largest number of conditions of a clause."""

    def __init__(self, clauses: Mapping[ClauseRow, Iterable[Elementary]], size: int) -> None:
        listed = {row: list(predicates) for row, predicates in clauses.items()}
        width = max(map(len, listed.values()), default=0)
        self._slots: dict[Hashable, int] = {}
        self._slot = np.zeros((size, width), dtype=np.int32)  # slot 0 always holds
        self._low = np.full((size, width), -math.inf)
        self._high = np.full((size, width), math.inf)
        for row, predicates in listed.items():
            for at, predicate in enumerate(predicates):
                match predicate:
                    case AtLeast(column, bound):
                        self._low[row, at] = bound
                        self._slot[row, at] = self._slots.setdefault(column, len(self._slots) + 1)
                    case AtMost(column, bound):
                        self._high[row, at] = bound
                        self._slot[row, at] = self._slots.setdefault(column, len(self._slots) + 1)
                    case _:
                        self._slot[row, at] = self._slots.setdefault(predicate, len(self._slots) + 1)

    def holding(self, rows: Rows, event: LoweredEvent) -> Rows:
        """Those of `rows` whose conditions hold. Some ns a condition."""
        least = np.full(len(self._slots) + 1, math.nan)
        most = np.full(len(self._slots) + 1, math.nan)
        least[0] = most[0] = 0.0
        for key, slot in self._slots.items():
            if isinstance(key, Present):
                if key.attribute in event.present:
                    least[slot] = most[slot] = 0.0
            else:
                values = event.values.get(key)  # type: ignore[call-overload]
                if values:
                    least[slot], most[slot] = min(values), max(values)
        slots = self._slot[rows]
        good = (most[slots] >= self._low[rows]) & (least[slots] <= self._high[rows])
        return rows[good.all(axis=1)]
