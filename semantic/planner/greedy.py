"""Strategy `greedy`: always the predicate that is expected to settle most undecided work per second of its cost.

After the edge coverage of Liu et al., "Near-optimal algorithms for shared filter evaluation in data stream systems"
(SIGMOD 2008). The work is the literals of open candidates that nobody has evaluated yet. A predicate settles its own
literals for certain, and, where it does not come out as wanted, all those of the candidates that hold it:

    expected work of p = sum over its open holders of  q · (literals left) + (1 - q) · 1,   q = chance of not as wanted
"""

import heapq
from collections.abc import Iterator

import numpy as np

from semantic.planner.estimates import CERTAIN, Estimates
from semantic.planner.problem import UNKNOWN, Undecided

__all__ = ["greedy"]


def greedy(undecided: Undecided, estimates: Estimates) -> Iterator[int]:
    """The predicates to evaluate, in order; the caller settles each before it asks for the next.

    What a predicate settles only ever shrinks, so a heap whose entries are looked at again when they come up is exact.
    Cost: O(log predicates) for each one evaluated or no longer needed.
    """
    holds = np.clip(estimates.holds, CERTAIN, 1 - CERTAIN)
    fails = np.stack((holds, 1 - holds), axis=1)  # by wanted outcome: `false` is missed where it holds
    settled = fails * undecided.work + (1 - fails) * undecided.popularity
    gains = settled.sum(axis=1) / estimates.cost
    heap = [(-gain, predicate) for predicate, gain in enumerate(gains.tolist()) if gain > 0]
    heapq.heapify(heap)
    rows, cost = fails.tolist(), estimates.cost.tolist()
    while heap:
        negative, predicate = heap[0]
        if undecided.outcome[predicate] != UNKNOWN:
            heapq.heappop(heap)
            continue
        (work_no, work_yes), (held_no, held_yes) = (
            undecided.work[predicate].tolist(),
            undecided.popularity[predicate].tolist(),
        )
        miss_no, miss_yes = rows[predicate]
        gain = miss_no * work_no + (1 - miss_no) * held_no + miss_yes * work_yes + (1 - miss_yes) * held_yes
        gain /= cost[predicate]
        if gain <= 0:
            heapq.heappop(heap)
        elif -gain > negative + 1e-12 * gain:
            heapq.heapreplace(heap, (-gain, predicate))
        else:
            heapq.heappop(heap)
            yield predicate
