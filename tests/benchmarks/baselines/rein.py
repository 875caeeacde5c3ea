"""REIN, small: rectangle intersection by exclusion, with buckets of ends (Qian et al., INFOCOM 2014).

    attribute ─┬─ lower ends in buckets: all rows of the buckets above the value's, some of its own   ─┐
               └─ upper ends in buckets: all rows of the buckets below the value's, some of its own   ─┴─▶ marked

What is not marked after the last attribute has matched. Exact. A row that does not ask for an attribute is in none of
its buckets; an event without the attribute marks all that are.
"""

import numpy as np
import numpy.typing as npt

from kindcast.index.jit import compiled, lowest_bit
from tests.benchmarks.baselines.conditions import Ints, intervals
from tests.benchmarks.workload_papers import Drawing

__all__ = ["Rein"]

BUCKETS = 1_000
"""Buckets of one list. The paper finds some hundreds to thousands alike."""

Numbers = npt.NDArray[np.int64]
Bits = npt.NDArray[np.uint64]


class Rein:
    """Built once over a drawing. `match` costs a mark for every end on the wrong side of a value."""

    def __init__(self, drawing: Drawing) -> None:
        self._low, self._high = intervals(drawing)
        self._top = np.maximum(1, np.where(drawing.asked, drawing.high, 0).max(axis=0)).astype(np.int64) + 1
        attributes = range(len(self._low))
        asked = [np.flatnonzero(drawing.asked[:, j]) for j in attributes]
        self._of_low = _Buckets([self._low[j, asked[j]] for j in attributes], asked, self._top)
        self._of_high = _Buckets([self._high[j, asked[j]] for j in attributes], asked, self._top)

    def match(self, event: Ints) -> Ints:
        """The numbers of the subscriptions that `event` matches, ascending."""
        low, high = self._of_low, self._of_high
        return _exclude(self._low, self._high, self._top, low.first, low.rows, high.first, high.rows, event)


class _Buckets:
    """`rows[first[j, b] : first[j, b + 1]]` are those whose end on attribute `j` is in bucket `b`."""

    def __init__(self, ends: list[Ints], asked: list[Numbers], top: Numbers) -> None:
        self.first = np.zeros((len(ends), BUCKETS + 1), dtype=np.int64)
        rows, total = [], 0
        for j, (values, those) in enumerate(zip(ends, asked, strict=True)):
            bucket = values.astype(np.int64) * BUCKETS // top[j]
            self.first[j, 0] = total
            self.first[j, 1:] = total + np.cumsum(np.bincount(bucket, minlength=BUCKETS))
            rows.append(those[np.argsort(bucket, kind="stable")])
            total += those.size
        self.rows = np.concatenate(rows).astype(np.int32)


@compiled
def _exclude(
    low: Ints,
    high: Ints,
    top: Numbers,
    low_first: Numbers,
    low_rows: Ints,
    high_first: Numbers,
    high_rows: Ints,
    event: Ints,
) -> Ints:
    size = low.shape[1]
    marked = np.zeros((size + 63) // 64, dtype=np.uint64)
    for j in range(event.size):
        value = event[j]
        if value < 0:
            _mark(low_rows[low_first[j, 0] : low_first[j, BUCKETS]], marked)
            continue
        own = min(value * BUCKETS // top[j], BUCKETS - 1)
        for at in range(low_first[j, own], low_first[j, own + 1]):
            row = low_rows[at]
            marked[row >> 6] |= np.uint64(low[j, row] > value) << np.uint64(row & 63)
        _mark(low_rows[low_first[j, own + 1] : low_first[j, BUCKETS]], marked)
        for at in range(high_first[j, own], high_first[j, own + 1]):
            row = high_rows[at]
            marked[row >> 6] |= np.uint64(high[j, row] < value) << np.uint64(row & 63)
        _mark(high_rows[high_first[j, 0] : high_first[j, own]], marked)
    return _unmarked(marked, size)


@compiled
def _mark(rows: Ints, marked: Bits) -> None:
    for row in rows:
        marked[row >> 6] |= np.uint64(1) << np.uint64(row & 63)


@compiled
def _unmarked(marked: Bits, size: int) -> Ints:
    found = np.empty(64, dtype=np.int32)
    count = 0
    for word in range(marked.size):
        left = ~marked[word]
        if count + 64 > found.size:
            larger = np.empty(2 * found.size, dtype=np.int32)
            larger[:count] = found[:count]
            found = larger
        while left:
            row = (word << 6) + lowest_bit(left)
            left &= left - np.uint64(1)
            if row < size:
                found[count] = row
                count += 1
    return found[:count]
