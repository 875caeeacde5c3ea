"""A compiled full scan: every interval of every subscription against the event, in blocks that stay in the cache.

What somebody writes in an afternoon who wants no index: no early end, vector instructions throughout. The full scan of
`workload_papers`, in numpy, is what the ratios of the other experiments refer to.
"""

import numpy as np
import numpy.typing as npt

from kindcast.index.jit import compiled
from tests.benchmarks.baselines.conditions import Ints, intervals
from tests.benchmarks.workload_papers import Drawing

__all__ = ["CompiledScan"]

BLOCK = 4096
"""Rows at a time: their marks and one column of both ends fit the first cache."""


class CompiledScan:
    """Exact. `match` costs two comparisons for each attribute of each subscription."""

    def __init__(self, drawing: Drawing) -> None:
        self._low, self._high = intervals(drawing)

    def match(self, event: Ints) -> Ints:
        """The numbers of the subscriptions that `event` matches, ascending."""
        return _scan(self._low, self._high, event)


@compiled
def _scan(low: Ints, high: Ints, event: Ints) -> Ints:
    size = low.shape[1]
    live = np.empty(BLOCK, dtype=np.uint8)
    found = np.empty(1024, dtype=np.int32)
    count = 0
    for start in range(0, size, BLOCK):
        stop = min(start + BLOCK, size)
        live[:] = 1
        for j in range(event.size):
            _narrow(low[j, start:stop], high[j, start:stop], event[j], live[: stop - start])
        if count + BLOCK > found.size:
            larger = np.empty(2 * found.size + BLOCK, dtype=np.int32)
            larger[:count] = found[:count]
            found = larger
        for i in range(stop - start):
            found[count] = start + i
            count += live[i]
    return found[:count]


@compiled
def _narrow(low: Ints, high: Ints, value: np.int32, live: npt.NDArray[np.uint8]) -> None:
    for i in range(live.size):
        live[i] &= np.uint8((low[i] <= value) & (high[i] >= value))
