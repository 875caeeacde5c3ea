"""Walking the tree for every subscription, as G-ToPSS does: does the walk from the event's concept to the root pass the
concept that is asked for?

A subscription that passes the equality on its string, found by hash, is checked attribute by attribute and given up at
the first that fails. Compiled like the engines, one kernel a batch.
"""

from typing import Any

import numba
import numpy as np
import numpy.typing as npt

from tests.benchmarks.workload_papers import CONCEPT, STRING, Drawing

__all__ = ["TreeWalk"]

Ints = npt.NDArray[np.int32]


class TreeWalk:
    """Over a drawing with concepts: three of them, a string that may be free, two intervals."""

    def __init__(self, drawing: Drawing) -> None:
        self._drawing = drawing
        self._nodes = np.ascontiguousarray(
            drawing.nodes[:, [j for j, kind in enumerate(drawing.kinds) if kind == CONCEPT]]
        )
        self._text = drawing.kinds.index(STRING)
        texts = np.where(drawing.asked[:, self._text], drawing.low[:, self._text], -1)
        order = np.argsort(texts, kind="stable")
        self._order = order.astype(np.int32)
        most = int(max(texts.max(initial=0), drawing.values[:, self._text].max(initial=0)))
        self._starts = np.searchsorted(texts[order], np.arange(-1, most + 2)).astype(np.int64)
        numbers = [j for j in range(len(drawing.kinds)) if drawing.kinds[j] not in (CONCEPT, STRING)]
        self._low, self._high = (np.ascontiguousarray(bound[:, numbers]) for bound in (drawing.low, drawing.high))
        self._numbers = numbers
        size = (1 << (drawing.height + 1)) - 1
        self._above = np.array([(node - 1) // 2 for node in range(size)], dtype=np.int32)  # -1 above the root

    @property
    def nbytes(self) -> int:
        """Of the index and what it checks."""
        arrays: list[npt.NDArray[Any]] = [self._nodes, self._order, self._starts, self._low, self._high]
        return sum(array.nbytes for array in arrays)

    def match(self, start: int, stop: int) -> Ints:
        """The rows of the events `start … stop-1`, event after event."""
        drawing = self._drawing
        nodes = np.ascontiguousarray(drawing.event_nodes[start:stop, : self._nodes.shape[1]])
        values = drawing.values[start:stop]
        found: Ints = _walk(
            nodes,
            np.ascontiguousarray(values[:, self._text]),
            np.ascontiguousarray(values[:, self._numbers]),
            self._above,
            self._nodes,
            self._order,
            self._starts,
            self._low,
            self._high,
        )
        return found


@numba.njit(cache=True)
def _walk(
    nodes: Ints, texts: Ints, values: Ints, above: Ints, asked: Ints, order: Ints, starts: Any, low: Ints, high: Ints
) -> Any:
    found = np.empty(1024, dtype=np.int32)
    count = 0
    for event in range(nodes.shape[0]):
        for bucket in (0, texts[event] + 1):  # those that leave the string free, those that ask for this one
            for place in range(starts[bucket], starts[bucket + 1]):
                row = order[place]
                holds = True
                for j in range(asked.shape[1]):
                    node, wanted = nodes[event, j], asked[row, j]
                    while node != wanted and node >= 0:
                        node = above[node]
                    if node != wanted:
                        holds = False
                        break
                if not holds:
                    continue
                for j in range(values.shape[1]):
                    if not low[row, j] <= values[event, j] <= high[row, j]:
                        holds = False
                        break
                if holds:
                    if count == found.size:
                        found = np.concatenate((found, np.empty_like(found)))
                    found[count] = row
                    count += 1
    return found[:count]
