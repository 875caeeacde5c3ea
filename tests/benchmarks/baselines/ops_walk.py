"""OPS's way: one subscription after the other, one condition after the other, concepts by walking up from the event's.

OPS (Wang et al.), which the CTPS paper compares with, matches the graph of each subscription by itself.
Here a subscription is a row of conditions, and the walk ends at the first that fails; a concept is compared with those
above the event's, parent by parent. Compiled, and without the graph search of the original: faster than it.
"""

import numpy as np
import numpy.typing as npt

from kindcast.index.jit import compiled
from tests.benchmarks.baselines.conditions import Ints
from tests.benchmarks.workload_papers import CONCEPT, Drawing

__all__ = ["OpsWalk"]

Bools = npt.NDArray[np.bool_]


class OpsWalk:
    """Exact. `match` costs the conditions of each subscription up to the first that fails."""

    def __init__(self, drawing: Drawing) -> None:
        self._asked = np.ascontiguousarray(drawing.asked)
        self._low, self._high = np.ascontiguousarray(drawing.low), np.ascontiguousarray(drawing.high)
        self._is_concept = np.array([kind == CONCEPT for kind in drawing.kinds])
        concepts = int(self._is_concept.sum())
        size = (1 << (drawing.height + 1)) - 1 if concepts else 0
        self._parent = (np.arange(size, dtype=np.int32) - 1) // 2  # of node n; -1 of the root
        node_of = np.full(int(drawing.most) + size, -1, dtype=np.int32)
        if concepts:
            node_of[_places(drawing.height)] = np.arange(size, dtype=np.int32)
        self._node_of = node_of  # values of concepts are places in a walk from the root
        self._nodes = drawing.nodes if concepts else np.zeros((len(self._low), 0), dtype=np.int32)

    def match(self, event: Ints) -> Ints:
        """The numbers of the subscriptions that `event` matches, ascending."""
        return _walk(
            self._asked, self._low, self._high, self._is_concept, self._nodes, self._parent, self._node_of, event
        )


def _places(height: int) -> Ints:
    """For each node of the complete binary tree its place in a walk from the root."""
    size = (1 << (height + 1)) - 1
    places = np.zeros(size, dtype=np.int32)
    for node in range(size // 2):
        below = (1 << (height - int(np.log2(node + 1)))) - 1
        places[2 * node + 1] = places[node] + 1
        places[2 * node + 2] = places[node] + 1 + below
    return places


@compiled
def _walk(
    asked: Bools, low: Ints, high: Ints, is_concept: Bools, nodes: Ints, parent: Ints, node_of: Ints, event: Ints
) -> Ints:
    found = np.empty(asked.shape[0], dtype=np.int32)
    count = 0
    for row in range(asked.shape[0]):
        passes, concept = True, 0
        for j in range(event.size):
            value = event[j]
            if is_concept[j]:
                if asked[row, j]:
                    node, wanted = (node_of[value] if value >= 0 else -1), nodes[row, concept]
                    while node >= 0 and node != wanted:
                        node = parent[node]
                    passes = node >= 0
                concept += 1
            elif asked[row, j]:
                passes = value >= 0 and low[row, j] <= value <= high[row, j]
            if not passes:
                break
        found[count] = row
        count += passes
    return found[:count].copy()
