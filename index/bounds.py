"""The lower and upper bounds of intervals by row, checked for many rows at once. What Algorithm 9 of CTPS reads as
`cell.list` and Algorithm 5 forgets to store (erratum 6).

Few intervals stand in a dict. Many stand in two arrays indexed by row (`float64[capacity]` each, NaN where a row has no
interval), because then a check costs a few nanoseconds a row.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from index.row_bits import RowArray

__all__ = ["Bounds"]

ARRAY_SHARE = 5
"""Arrays are made when more than 1/2⁵ of all rows have an interval: then they take at most 512 bytes for each of
them."""
FEW_INTERVALS = 64
"""So many intervals always stay in the dict: numpy's overhead would cost more than the checks."""
QUANTILES = (0.02, 0.98)
"""The range leaves out a fiftieth of the bounds at each side, so that a few wild ones do not flatten the slots."""
LARGEST = 1e300
"""Range ends are cut here, so that differences and their products with the slot count stay finite."""
NARROWEST = 1e-300
"""The least width of a range, so that its inverse stays finite."""

Floats = npt.NDArray[np.float64]


class Bounds:
    """Row → (low, high). Invariant: one form is in use; the arrays hold `len(self)` intervals."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._few: dict[int, tuple[float, float]] = {}
        self._arrays: tuple[Floats, Floats] | None = None
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, row: int) -> bool:
        return row in self._few if self._arrays is None else not np.isnan(self._arrays[0][row])

    def put(self, row: int, low: float, high: float) -> None:
        """Store the interval of `row`, which has none."""
        self._count += 1
        if self._arrays is not None:
            self._arrays[0][row], self._arrays[1][row] = low, high
            return
        self._few[row] = (low, high)
        if self._count > _array_limit(self._capacity):
            rows, lows, highs = self._columns()
            self._arrays = _blank(self._capacity), _blank(self._capacity)
            self._arrays[0][rows], self._arrays[1][rows] = lows, highs
            self._few = {}

    def drop(self, row: int) -> tuple[float, float]:
        """Forget the interval of `row` and return it."""
        self._count -= 1
        if self._arrays is None:
            return self._few.pop(row)
        lows, highs = self._arrays
        found = float(lows[row]), float(highs[row])
        lows[row] = highs[row] = np.nan
        return found

    def holding(self, rows: RowArray, value: float) -> npt.NDArray[np.bool_]:
        """For each of `rows`, whether it has an interval with `low <= value <= high`. Costs 10 to 20 ns a row in
        arrays, some 150 ns in the dict."""
        if self._arrays is not None:
            lows, highs = self._arrays
            return (lows[rows] <= value) & (highs[rows] >= value)
        few = self._few
        return np.array([row in few and few[row][0] <= value <= few[row][1] for row in rows.tolist()], dtype=np.bool_)

    def range(self) -> tuple[float, float]:
        """(low, width) of the range in which most finite bounds lie; `(0, 1)` without any. The width is positive."""
        _, lows, highs = self._columns()
        both = np.concatenate([lows, highs])
        finite = both[np.isfinite(both)]
        if not finite.size:
            return 0.0, 1.0
        ends = np.quantile(np.clip(finite, -LARGEST, LARGEST), QUANTILES)
        low, high = float(ends[0]), float(ends[1])
        return low, max(high - low, NARROWEST)

    def by_cell(self, low: float, per_unit: float, slots: int) -> Iterator[tuple[tuple[int, int], RowArray]]:
        """(upper slot, lower slot) → its rows, for the slots that `GemIndex.slot` gives one bound at a time."""
        rows, lows, highs = self._columns()
        codes = _slots(highs, low, per_unit, slots) * slots + _slots(lows, low, per_unit, slots)
        order = np.argsort(codes, kind="stable")
        rows, codes = rows[order], codes[order]
        starts = np.flatnonzero(np.diff(codes, prepend=-1))
        for start, end in zip(starts.tolist(), [*starts[1:].tolist(), rows.size], strict=True):
            code = int(codes[start])
            yield (code // slots, code % slots), rows[start:end]

    def grow(self, capacity: int) -> None:
        """Make room for rows below `capacity`; when too few rows are left for arrays, they become a dict again."""
        if self._arrays is not None:
            if self._count <= _array_limit(capacity) // 2:
                self._few = {row: (low, high) for row, low, high in self.contents()}
                self._arrays = None
            else:
                more = capacity - self._capacity
                lows, highs = (np.concatenate([each, _blank(more)]) for each in self._arrays)
                self._arrays = lows, highs
        self._capacity = capacity

    def contents(self) -> list[tuple[int, float, float]]:
        """All (row, low, high), ascending by row."""
        rows, lows, highs = self._columns()
        return sorted(zip(rows.tolist(), lows.tolist(), highs.tolist(), strict=True))

    def _columns(self) -> tuple[RowArray, Floats, Floats]:
        """Rows, lows and highs as parallel arrays."""
        if self._arrays is not None:
            lows, highs = self._arrays
            rows = np.flatnonzero(~np.isnan(lows)).astype(np.int32)
            return rows, lows[rows], highs[rows]
        pairs = np.array(list(self._few.values()), dtype=np.float64).reshape(-1, 2)
        return np.array(list(self._few), dtype=np.int32), pairs[:, 0], pairs[:, 1]


def _array_limit(capacity: int) -> int:
    return max(FEW_INTERVALS, capacity >> ARRAY_SHARE)


def _blank(size: int) -> Floats:
    return np.full(size, np.nan)


def _slots(values: Floats, low: float, per_unit: float, slots: int) -> npt.NDArray[np.int64]:
    """`GemIndex.slot` of each of `values`, with the same operations in the same order."""
    with np.errstate(over="ignore"):
        places = (values - low) * per_unit
    return np.clip(places, 0, slots - 1).astype(np.int64)
