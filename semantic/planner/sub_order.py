"""Strategy `sub_order`: the open candidates in the order of their linked chains, each chain from top to bottom.

Liu et al. (2007), section 4.2.2; `semantic.planner.linked_chains` makes the order.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from semantic.planner.estimates import Estimates
from semantic.planner.problem import OPEN, UNKNOWN, WAIT, Undecided

__all__ = ["sub_order"]


def sub_order(undecided: Undecided, estimates: Estimates, positions: Sequence[float]) -> Iterator[int]:
    """The predicates to evaluate, in order; the caller settles or begins each before it asks for the
    next. `positions[c]` is
    where the chain of candidate `c` stands. Cost: one sort of candidates and literals."""
    literals = undecided.literals
    passing = estimates.passing(literals.predicate, literals.wanted)
    ranks = estimates.cost[literals.predicate] / (1.0 - passing)
    owner = np.repeat(np.arange(len(literals)), np.diff(literals.first))
    from_top = literals.predicate[np.lexsort((literals.predicate, ranks, owner))].tolist()
    first = literals.first.tolist()
    candidates = np.argsort(np.asarray(positions, dtype=np.float64), kind="stable").tolist()
    while candidates:
        later = []
        for candidate in candidates:
            for asked in from_top[first[candidate] : first[candidate + 1]]:
                if not undecided.is_open(candidate):
                    break
                if undecided.outcome[asked] == UNKNOWN:
                    yield asked
            if undecided.state[candidate] == OPEN:
                later.append(candidate)
        if later and undecided.under_way:
            yield WAIT
        candidates = later
