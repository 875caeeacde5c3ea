"""Strategy `naive`: candidates one after another, each until a literal fails; an outcome is remembered, no more.

The baseline of Liu et al. (2007), section 5.2: a predicate is asked as soon as its turn comes, even where another
outcome has already decided the candidate.
"""

from collections.abc import Iterator

import numpy as np

from kindcast.semantic.planner.kernels import next_in_turn
from kindcast.semantic.planner.problem import WAIT, Undecided

__all__ = ["naive"]


def naive(undecided: Undecided) -> Iterator[int]:
    """The predicates to evaluate, in order; the caller settles or begins each before it asks for the next."""
    literals = undecided.literals
    order = np.arange(len(literals), dtype=np.int32)
    while len(order):
        waiting = np.empty_like(order)
        place = step = count = 0
        while True:
            place, step, count, asked = next_in_turn(
                order,
                place,
                step,
                waiting,
                count,
                literals.first,
                literals.predicate,
                literals.wanted,
                undecided.outcome,
                undecided.state,
                undecided.waits,
            )
            if asked < 0:
                break
            yield asked
        order = waiting[:count]
        if len(order) and undecided.under_way:
            yield WAIT
