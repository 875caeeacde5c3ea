"""Strategy `sub_order`: the open candidates in the order of their linked chains, each chain from top to bottom.

Liu et al. (2007), section 4.2.2; `semantic.planner.linked_chains` makes the order.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from semantic.planner.estimates import Estimates
from semantic.planner.problem import Undecided
from semantic.planner.sequential import walk_open
from semantic.planner.walks import sorted_from_top

__all__ = ["sub_order"]


def sub_order(undecided: Undecided, estimates: Estimates, positions: Sequence[float]) -> Iterator[int]:
    """The predicates to evaluate, in order; the caller settles or begins each before it asks for the next. The chain of
    candidate `c` stands at `positions[c]`. Cost: one sort of the candidates, and a walk over them."""
    literals = undecided.literals
    ranks = estimates.cost[literals.predicate] / (1.0 - estimates.passing(literals.predicate, literals.wanted))
    from_top = sorted_from_top(literals.first, literals.predicate, ranks)
    order = np.argsort(np.asarray(positions, dtype=np.float64), kind="stable").astype(np.int32)
    return walk_open(undecided, order, from_top, to_the_end=False)
