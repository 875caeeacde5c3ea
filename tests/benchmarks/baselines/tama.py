"""TAMA, small: layers of cells and counting (Zhao and Wu, ICDCS 2011). The published algorithm is *approximate*.

    attribute ─▶ layer l: its range in 2^l cells;   interval ─▶ the fewest cells that cover it
    event     ─▶ on each attribute one cell a layer ─▶ one count for each row there ─▶ rows with all counts

The cells of the last layer are the finest it knows, so an interval grows to whole cells: rows come out that do not
match (false positives), none is lost. `candidates` is the published algorithm; `match` asks each candidate once more.
"""

import numpy as np
import numpy.typing as npt

from kindcast.index.jit import compiled
from tests.benchmarks.baselines.conditions import Ints, intervals
from tests.benchmarks.workload_papers import Drawing

__all__ = ["Tama"]

LAYERS = 10
"""Bisections of a range: 1,024 cells at the finest."""

Numbers = npt.NDArray[np.int64]


class Tama:
    """Built once over a drawing. `match` costs an addition for each predicate that holds, then one look at each row."""

    def __init__(self, drawing: Drawing) -> None:
        self._low, self._high = intervals(drawing)
        self._top = np.maximum(1, np.where(drawing.asked, drawing.high, 0).max(axis=0)).astype(np.int64) + 1
        self._needed = drawing.asked.sum(axis=1).astype(np.uint8)
        cells = 2 << LAYERS
        counts = np.zeros((len(self._top), cells + 1), dtype=np.int64)
        asked = np.ascontiguousarray(drawing.asked.T)
        _place(asked, self._low, self._high, self._top, counts[:, 1:], np.zeros(0, dtype=np.int32))
        ends = np.cumsum(counts.ravel()).reshape(counts.shape)
        self._first = ends
        self._rows = np.empty(int(ends[-1, -1]), dtype=np.int32)
        _place(asked, self._low, self._high, self._top, ends[:, :-1].copy(), self._rows)

    def candidates(self, event: Ints) -> Ints:
        """What the published algorithm returns, ascending."""
        return _count(self._first, self._rows, self._top, self._needed, event)

    def match(self, event: Ints) -> Ints:
        """The numbers of the subscriptions that `event` matches, ascending."""
        return _refined(self.candidates(event), self._low, self._high, event)


@compiled
def _place(asked: npt.NDArray[np.bool_], low: Ints, high: Ints, top: Numbers, at: Numbers, rows: Ints) -> None:
    """Each interval to the cells that cover it. Cell `c` of layer `l` has the number 2^l + c. Without `rows`, `at[j,
    cell]` is counted up; with them, it is where the next row of the cell goes."""
    for j in range(asked.shape[0]):
        for row in range(asked.shape[1]):
            if not asked[j, row]:
                continue
            first = (1 << LAYERS) + (np.int64(low[j, row]) << LAYERS) // top[j]
            last = (1 << LAYERS) + (np.int64(high[j, row]) << LAYERS) // top[j]
            while first <= last:
                if first & 1:
                    if rows.size:
                        rows[at[j, first]] = row
                    at[j, first] += 1
                    first += 1
                if not last & 1:
                    if rows.size:
                        rows[at[j, last]] = row
                    at[j, last] += 1
                    last -= 1
                first >>= 1
                last >>= 1


@compiled
def _count(first: Numbers, rows: Ints, top: Numbers, needed: npt.NDArray[np.uint8], event: Ints) -> Ints:
    counts = np.zeros(needed.size, dtype=np.uint8)
    for j in range(event.size):
        if event[j] < 0 or event[j] >= top[j]:
            continue
        cell = (1 << LAYERS) + (np.int64(event[j]) << LAYERS) // top[j]
        while cell:
            for at in range(first[j, cell], first[j, cell + 1]):
                counts[rows[at]] += 1
            cell >>= 1
    found = np.empty(needed.size, dtype=np.int32)
    count = 0
    for row in range(needed.size):
        found[count] = row
        count += counts[row] == needed[row]
    return found[:count].copy()


@compiled
def _refined(rows: Ints, low: Ints, high: Ints, event: Ints) -> Ints:
    kept = np.empty(rows.size, dtype=np.int32)
    count = 0
    for row in rows:
        passes = True
        for j in range(event.size):
            passes = passes and low[j, row] <= event[j] <= high[j, row]
        kept[count] = row
        count += passes
    return kept[:count]
