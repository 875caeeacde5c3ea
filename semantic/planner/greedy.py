"""Strategy `greedy`: always the predicate that is expected to settle most undecided work per second of its cost.

After the edge coverage of Liu et al., "Near-optimal algorithms for shared filter evaluation in data stream systems"
(SIGMOD 2008). The work is the literals of open candidates that nobody has evaluated yet. A predicate settles its own
literals for certain, and, where it does not come out as wanted, all those of the candidates that hold it:

    expected work of p = sum over its open holders of  q · (literals left) + (1 - q) · 1,   q = chance of not as wanted
"""

from collections.abc import Iterator

import numpy as np

from kindcast.semantic.planner.heap import build_heap, push_all, take_best
from kindcast.semantic.planner.problem import CERTAIN, WAIT, Estimates, Undecided

__all__ = ["greedy"]


def greedy(undecided: Undecided, estimates: Estimates) -> Iterator[int]:
    """The predicates to evaluate, in order; the caller settles or begins each before it asks for the next.

    Cost: O(log predicates) for each one evaluated or no longer needed; some microseconds.
    """
    holds = np.clip(estimates.holds, CERTAIN, 1 - CERTAIN)
    miss = np.stack((holds, 1 - holds), axis=1)  # by wanted outcome: `false` is missed where it holds
    cost = np.ascontiguousarray(estimates.cost, dtype=np.float64)
    gains, predicates = np.empty(len(cost)), np.empty(len(cost), dtype=np.int32)
    counts = (miss, cost, undecided.popularity, undecided.work)
    size = build_heap(*counts, gains, predicates)
    while True:
        while undecided.grown:
            new = undecided.grown.pop()
            if size + len(new) > len(gains):
                gains = np.concatenate([gains, np.empty(size + len(new))])
                predicates = np.concatenate([predicates, np.empty(size + len(new), dtype=np.int32)])
            size = push_all(new, *counts, gains, predicates, size)
        best, size = take_best(undecided.outcome, *counts, gains, predicates, size)
        if best >= 0:
            yield best
        elif undecided.under_way:
            yield WAIT
        elif not undecided.grown:
            return
