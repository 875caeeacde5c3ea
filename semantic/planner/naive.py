"""Strategy `naive`: candidates one after another, each until a literal fails; an outcome is remembered, no more.

The baseline of Liu et al. (2007), section 5.2: a predicate is asked as soon as its turn comes, even where another
outcome has already decided the candidate.
"""

from collections.abc import Iterator

from semantic.planner.problem import NOT_NEEDED, UNDER_WAY, UNKNOWN, WAIT, Undecided

__all__ = ["naive"]


def naive(undecided: Undecided) -> Iterator[int]:
    """The predicates to evaluate, in order; the caller settles or begins each before it asks for the next."""
    first, predicate = undecided.literals.first.tolist(), undecided.literals.predicate.tolist()
    wanted = undecided.literals.wanted.tolist()
    candidates = list(range(len(undecided.literals)))
    while candidates:
        later = []
        for candidate in candidates:
            if undecided.state[candidate] == NOT_NEEDED:
                continue
            for literal in range(first[candidate], first[candidate + 1]):
                asked = predicate[literal]
                if undecided.outcome[asked] == UNKNOWN:
                    yield asked
                if undecided.outcome[asked] == UNDER_WAY:
                    later.append(candidate)
                    break
                if undecided.outcome[asked] == 1 - wanted[literal]:
                    break
        if later and undecided.under_way:
            yield WAIT
        candidates = later
