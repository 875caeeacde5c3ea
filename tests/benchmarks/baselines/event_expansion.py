"""An event with all its ancestors, as S-ToPSS has it: every combination of them is looked up as it is.

Subscriptions stand under the key of their three concepts; each combination is one search in the sorted keys, and what
it finds is checked for its string and its intervals. Compiled like the engines, one kernel a batch.
"""

from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from tests.benchmarks.workload_papers import CONCEPT, Drawing

__all__ = ["EventExpansion", "checks_of", "key_of"]

Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]


class EventExpansion:
    """Over a drawing whose first three attributes are concepts, all of them asked."""

    def __init__(self, drawing: Drawing) -> None:
        assert drawing.kinds[:3] == (CONCEPT,) * 3, drawing.kinds
        self._drawing = drawing
        self._size = (1 << (drawing.height + 1)) - 1
        keys = key_of(drawing.nodes, self._size)
        order = np.argsort(keys, kind="stable")
        self._keys, self._order = keys[order], order.astype(np.int32)
        self._low, self._high = checks_of(drawing)

    @property
    def nbytes(self) -> int:
        """Of the index and what it checks."""
        return self._keys.nbytes + self._order.nbytes + self._low.nbytes + self._high.nbytes

    def match(self, start: int, stop: int) -> Ints:
        """The rows of the events `start … stop-1`, event after event."""
        nodes = np.ascontiguousarray(self._drawing.event_nodes[start:stop, :3])
        values = np.ascontiguousarray(self._drawing.values[start:stop, 3:])
        found: Ints = _expand(nodes, values, self._size, self._keys, self._order, self._low, self._high)
        return found


def key_of(nodes: Ints, size: int) -> Longs:
    """`int64[n]`: three concepts as one number."""
    wide = nodes[:, :3].astype(np.int64)
    key: Longs = (wide[:, 0] * size + wide[:, 1]) * size + wide[:, 2]
    return key


def checks_of(drawing: Drawing) -> tuple[Ints, Ints]:
    """Lowest and highest value of the attributes that are no concepts; all values where one is not asked."""
    asked = drawing.asked[:, 3:]
    low = np.where(asked, drawing.low[:, 3:], np.iinfo(np.int32).min)
    high = np.where(asked, drawing.high[:, 3:], np.iinfo(np.int32).max)
    return np.ascontiguousarray(low, dtype=np.int32), np.ascontiguousarray(high, dtype=np.int32)


@numba.njit(cache=True)
def _expand(nodes: Ints, values: Ints, size: int, keys: Longs, order: Ints, low: Ints, high: Ints) -> Any:
    found = np.empty(1024, dtype=np.int32)
    count = 0
    for event in range(nodes.shape[0]):
        first = nodes[event, 0]
        while True:
            second = nodes[event, 1]
            while True:
                third = nodes[event, 2]
                while True:
                    key = (np.int64(first) * size + second) * size + third
                    place = np.searchsorted(keys, key)
                    while place < keys.size and keys[place] == key:
                        row = order[place]
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
                    if third == 0:
                        break
                    third = (third - 1) // 2
                if second == 0:
                    break
                second = (second - 1) // 2
            if first == 0:
                break
            first = (first - 1) // 2
    return found[:count]
