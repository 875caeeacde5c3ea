"""`python -m tests.benchmarks.greedy_variants`: whether another weight, a look ahead, or chance asks less than greedy.

Predicates asked an event where all hold with the same probability and cost the same, so that nothing but the order
tells: 2,000 subscriptions over 2,000 predicates, under Zipf's law. Beside them what any strategy must ask in the mean.

    r^a          greedy, an open candidate of r literals counted as r^a where it is settled at once (greedy: a = 1)
    two steps    the best of eight by what it settles and what the best predicate after it is expected to settle
    harmonic     any open candidate, any of its predicates, by chance over cost (Liu et al., SIGMOD 2008)
"""

import sys
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from kindcast.semantic.planner.problem import OPEN, UNKNOWN, Undecided
from tests.benchmarks.operator_workload import Setting, Workload

__all__ = ["VARIANTS", "asked"]

Order = Callable[[Undecided, float], Iterator[int]]
Floats = npt.NDArray[np.float64]
LOOKED_AT = 8
"""Predicates whose next step is weighed."""
EVENTS = 8


def by_weight(exponent: float, *, ahead: bool = False) -> Order:
    """The open predicate with the largest expected work, literals counted to the power of `exponent`."""

    def order(undecided: Undecided, holds: float) -> Iterator[int]:
        while undecided.unsettled():
            gain = _gains(undecided, undecided.state == OPEN, undecided.remaining, exponent, holds)
            yield _two_steps(undecided, gain, exponent, holds) if ahead else int(gain.argmax())

    return order


def harmonic(undecided: Undecided, holds: float) -> Iterator[int]:
    """By chance, always the same."""
    chance = np.random.default_rng(1)
    first, predicate = undecided.literals.first, undecided.literals.predicate
    while undecided.unsettled():
        candidate = chance.choice(np.flatnonzero(undecided.state == OPEN))
        own = predicate[first[candidate] : first[candidate + 1]]
        yield int(chance.choice(own[undecided.outcome[own] == UNKNOWN]))


VARIANTS: dict[str, Order] = {
    **{f"r^{exponent:g}": by_weight(exponent) for exponent in (-1, 0, 1, 2)},
    "two steps": by_weight(1, ahead=True),
    "harmonic": harmonic,
}


def asked(workload: Workload, order: Order, truth: npt.NDArray[np.bool_]) -> int:
    """How many predicates an order asks for one event."""
    undecided = Undecided(workload.literals, workload.predicates)
    count = 0
    for predicate in order(undecided, float(workload.holds[0])):
        undecided.settle(predicate, bool(truth[predicate]))
        count += 1
    return count


def _gains(
    undecided: Undecided,
    open_ones: npt.NDArray[np.bool_],
    remaining: npt.NDArray[np.int32],
    exponent: float,
    holds: float,
    without: int = -1,
) -> Floats:
    literals = undecided.literals
    owner = np.repeat(np.arange(len(literals)), np.diff(literals.first))
    live = open_ones[owner] & (undecided.outcome[literals.predicate] == UNKNOWN) & (literals.predicate != without)
    weight = (1.0 - holds) * remaining[owner[live]].astype(np.float64) ** exponent + holds
    return np.bincount(literals.predicate[live], weights=weight, minlength=undecided.predicates)


def _two_steps(undecided: Undecided, gain: Floats, exponent: float, holds: float) -> int:
    best, found = -1.0, 0
    for predicate in np.argpartition(-gain, LOOKED_AT)[:LOOKED_AT].tolist():
        open_ones, remaining = undecided.state == OPEN, undecided.remaining.copy()
        own = undecided.holders(predicate)
        own = own[open_ones[own]]
        decided = open_ones.copy()
        decided[own] = False
        missed = _gains(undecided, decided, remaining, exponent, holds, predicate).max()
        remaining[own] -= 1
        open_ones[own[remaining[own] == 0]] = False
        held = _gains(undecided, open_ones, np.maximum(remaining, 1), exponent, holds, predicate).max()
        value = gain[predicate] + (1.0 - holds) * missed + holds * held
        if value > best:
            best, found = value, predicate
    return found


def main(subscriptions: int, predicates: int) -> None:
    """Prints a table."""
    rows = ["any strategy", "sub_order", "greedy", *VARIANTS]
    sys.stdout.write(f"{'Zipf':14}" + "".join(f"{name:>14}" for name in rows) + "\n")
    for zipf in (0.8, 1.0, 1.2):
        workload = Workload(Setting(subscriptions=subscriptions, predicates=predicates, zipf=zipf))
        truths = list(workload.events(EVENTS))
        found = [[workload.any_strategy(truth) for truth in truths]]
        found += [[workload.asked(name, truth)[1] for truth in truths] for name in ("sub_order", "greedy")]
        found += [[float(asked(workload, order, truth)) for truth in truths] for order in VARIANTS.values()]
        sys.stdout.write(f"{zipf:<14}" + "".join(f"{float(np.mean(each)):14.1f}" for each in found) + "\n")


if __name__ == "__main__":
    main(*(int(each) for each in sys.argv[1:3]) if len(sys.argv) > 2 else (2_000, 2_000))
