"""A subscription with all its descendants, as MIC has it: an entry for every combination of concepts beneath its own.

An event is one search in the sorted keys; what it finds is checked for its string and its intervals. The index grows by
the product of the descendants: 27 entries a subscription at the root of a tree of height 1. Compiled like the engines.
"""

from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from tests.benchmarks.baselines.event_expansion import checks_of, key_of
from tests.benchmarks.workload_papers import CONCEPT, Drawing

__all__ = ["SubscriptionExpansion"]

Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]


class SubscriptionExpansion:
    """Over a drawing whose first three attributes are concepts, all of them asked."""

    def __init__(self, drawing: Drawing) -> None:
        assert drawing.kinds[:3] == (CONCEPT,) * 3, drawing.kinds
        self._drawing = drawing
        self._size = (1 << (drawing.height + 1)) - 1
        nodes = np.ascontiguousarray(drawing.nodes[:, :3])
        keys, rows = _entries(nodes, self._size, int(_counts(nodes, self._size).sum()))
        order = np.argsort(keys, kind="stable")
        self._keys, self._rows = keys[order], rows[order]
        self._low, self._high = checks_of(drawing)

    @property
    def entries(self) -> int:
        """Of the index."""
        return int(self._keys.size)

    @property
    def nbytes(self) -> int:
        """Of the index and what it checks."""
        return int(self._keys.nbytes + self._rows.nbytes + self._low.nbytes + self._high.nbytes)

    def match(self, start: int, stop: int) -> Ints:
        """The rows of the events `start … stop-1`, event after event."""
        keys = key_of(self._drawing.event_nodes[start:stop], self._size)
        values = np.ascontiguousarray(self._drawing.values[start:stop, 3:])
        found: Ints = _look_up(keys, values, self._keys, self._rows, self._low, self._high)
        return found


def _counts(nodes: Ints, size: int) -> Longs:
    """Entries of each subscription."""
    depth = np.floor(np.log2(nodes.astype(np.int64) + 1)).astype(np.int64)
    height = int(np.log2(size + 1)) - 1
    counts: Longs = ((np.int64(1) << (height + 1 - depth)) - 1).prod(axis=1)
    return counts


@numba.njit(cache=True)
def _entries(nodes: Ints, size: int, count: int) -> Any:
    keys = np.empty(count, dtype=np.int64)
    rows = np.empty(count, dtype=np.int32)
    beneath = np.empty((3, size), dtype=np.int32)
    sizes = np.empty(3, dtype=np.int64)
    place = 0
    for row in range(nodes.shape[0]):
        for j in range(3):
            beneath[j, 0] = nodes[row, j]
            sizes[j], waiting = 1, 0
            while waiting < sizes[j]:
                child = 2 * beneath[j, waiting] + 1
                if child < size:
                    beneath[j, sizes[j]] = child
                    beneath[j, sizes[j] + 1] = child + 1
                    sizes[j] += 2
                waiting += 1
        for a in range(sizes[0]):
            for b in range(sizes[1]):
                for c in range(sizes[2]):
                    keys[place] = (np.int64(beneath[0, a]) * size + beneath[1, b]) * size + beneath[2, c]
                    rows[place] = row
                    place += 1
    return keys, rows


@numba.njit(cache=True)
def _look_up(events: Longs, values: Ints, keys: Longs, rows: Ints, low: Ints, high: Ints) -> Any:
    found = np.empty(1024, dtype=np.int32)
    count = 0
    for event in range(events.size):
        place = np.searchsorted(keys, events[event])
        while place < keys.size and keys[place] == events[event]:
            row = rows[place]
            holds = True
            for j in range(values.shape[1]):
                if not low[row, j] <= values[event, j] <= high[row, j]:
                    holds = False
                    break
            if holds:
                if count == found.size:
                    found = np.concatenate((found, np.empty_like(found)))
                found[count] = row
                count += 1
            place += 1
    return found[:count]
