"""Strategy `sequential`: Algorithm 1 of Liu et al. (2007), section 4.1.

Pick any open candidate and evaluate all its predicates that some open candidate still needs, even when the candidate
itself is decided on the way. At most d times as many evaluations as the best schedule for this very event, where d is
the most predicates that a candidate has (Theorem 2); with unequal costs d · Cmax / Cmin (section 4.3).
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from kindcast.semantic.planner.kernels import next_of_open
from kindcast.semantic.planner.problem import OPEN, WAIT, Undecided

__all__ = ["sequential", "walk_open"]


def sequential(undecided: Undecided) -> Iterator[int]:
    """The predicates to evaluate, in order; the caller settles or begins each before it asks for the next."""
    order = np.arange(len(undecided.literals), dtype=np.int32)
    return walk_open(undecided, order, undecided.literals.predicate, to_the_end=True)


def walk_open(
    undecided: Undecided, order: npt.NDArray[np.int32], literal: npt.NDArray[np.int32], *, to_the_end: bool
) -> Iterator[int]:
    """The open candidates in `order`, each with its predicates as they stand in `literal`, till it is decided or, with
    `to_the_end`, all of them that somebody needs. Those that hang on what is under way come once more."""
    first = undecided.literals.first
    while len(order):
        place = step = 0
        while True:
            place, step, asked = next_of_open(
                order,
                place,
                step,
                to_the_end,
                first,
                literal,
                undecided.outcome,
                undecided.state,
                undecided.waits,
                undecided.popularity,
            )
            if asked < 0:
                break
            yield asked
        order = order[undecided.state[order] == OPEN]
        if len(order) and undecided.under_way:
            yield WAIT
