"""The strategies by name, behind one protocol.

| name | asks next | from |
|---|---|---|
| `greedy` | what is expected to settle most undecided work per cost | Liu et al., SIGMOD 2008 |
| `sub_order` | the chains in an order made beside the events, each from the top | Liu et al. 2007, section 4.2 |
| `sequential` | all predicates of any open candidate | Liu et al. 2007, Algorithm 1 |
| `naive` | candidate by candidate, remembering outcomes | Liu et al. 2007, section 5.2 |
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Protocol

from kindcast.semantic.planner.greedy import greedy
from kindcast.semantic.planner.naive import naive
from kindcast.semantic.planner.problem import Estimates, Undecided
from kindcast.semantic.planner.sequential import sequential
from kindcast.semantic.planner.sub_order import SubOrder

__all__ = ["PLANNERS", "Strategy", "UnknownPlanner", "new_strategy"]


class UnknownPlanner(ValueError):
    """There is no planner of this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no planner {name!r}; there are {', '.join(sorted(PLANNERS))}")


class Strategy(Protocol):
    """Knows the chain of every clause with operators, and orders the predicates of one event. One owner. Predicates
    have the same numbers for `learned` and `add`; those of an event's problem are its own."""

    def learned(self, predicate: int, holds: float, cost: float) -> None:
        """What is expected of a predicate from now on: the probability that it holds, what asking costs. Told before
        the first clause that has it comes."""

    def add(self, chain: int, predicates: Sequence[int], wanted: Sequence[bool]) -> None:
        """A clause came, with its predicates and the outcome that it wants of each."""

    def remove(self, chain: int) -> None:
        """A clause went."""

    def plan(self, undecided: Undecided, estimates: Estimates, chains: Sequence[int]) -> Iterator[int]:
        """The predicates of this event to evaluate, in order; the caller settles or begins each before it asks for the
        next. `WAIT`: all that is left hangs on what is under way; the caller settles some of it. Candidate `c` is the
        clause `chains[c]`."""


class _Orderless:
    """A strategy that needs no preparation."""

    def __init__(self, order: Callable[[Undecided, Estimates], Iterator[int]]) -> None:
        self._order = order

    def learned(self, predicate: int, holds: float, cost: float) -> None:
        """Estimates come with each event."""

    def add(self, chain: int, predicates: Sequence[int], wanted: Sequence[bool]) -> None:
        """Nothing to prepare."""

    def remove(self, chain: int) -> None:
        """Nothing was prepared."""

    def plan(self, undecided: Undecided, estimates: Estimates, chains: Sequence[int]) -> Iterator[int]:
        return self._order(undecided, estimates)


PLANNERS: Final[Mapping[str, Callable[[], Strategy]]] = {
    "greedy": lambda: _Orderless(greedy),
    "sub_order": SubOrder,
    "sequential": lambda: _Orderless(lambda undecided, estimates: sequential(undecided)),
    "naive": lambda: _Orderless(lambda undecided, estimates: naive(undecided)),
}


def new_strategy(name: str) -> Strategy:
    """Raises `UnknownPlanner`."""
    if name not in PLANNERS:
        raise UnknownPlanner(name)
    return PLANNERS[name]()
