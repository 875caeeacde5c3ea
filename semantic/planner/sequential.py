"""Strategy `sequential`: Algorithm 1 of Liu et al. (2007), section 4.1.

Pick any open candidate and evaluate all its predicates that some open candidate still needs, even when the candidate
itself is decided on the way. At most d times as many evaluations as the best schedule for this very event, where d is
the most predicates that a candidate has (Theorem 2); with unequal costs d · Cmax / Cmin (section 4.3).
"""

from collections.abc import Iterator

from semantic.planner.problem import OPEN, WAIT, Undecided

__all__ = ["sequential"]


def sequential(undecided: Undecided) -> Iterator[int]:
    """The predicates to evaluate, in order; the caller settles or begins each before it asks for the next."""
    first, predicate = undecided.literals.first.tolist(), undecided.literals.predicate.tolist()
    candidates = list(range(len(undecided.literals)))
    while candidates:
        later = []
        for candidate in candidates:
            if undecided.is_open(candidate):
                for asked in predicate[first[candidate] : first[candidate + 1]]:
                    if undecided.needed(asked):
                        yield asked
            if undecided.state[candidate] == OPEN:
                later.append(candidate)
        if later and undecided.under_way:
            yield WAIT
        candidates = later
