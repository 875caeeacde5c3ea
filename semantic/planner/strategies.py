"""The strategies by name, behind one protocol.

| name | asks next | from |
|---|---|---|
| `greedy` | what is expected to settle most undecided work per cost | Liu et al., SIGMOD 2008 |
| `sub_order` | the chains in an order made beforehand, each from the top | Liu et al. 2007, section 4.2 |
| `sequential` | all predicates of any open candidate | Liu et al. 2007, Algorithm 1 |
| `naive` | candidate by candidate, remembering outcomes | Liu et al. 2007, section 5.2 |
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, Protocol

from semantic.planner.estimates import Estimates
from semantic.planner.greedy import greedy
from semantic.planner.linked_chains import LinkedChains, Node
from semantic.planner.naive import naive
from semantic.planner.problem import Undecided
from semantic.planner.sequential import sequential
from semantic.planner.sub_order import sub_order

__all__ = ["PLANNERS", "Strategy", "UnknownPlanner", "new_strategy"]


class UnknownPlanner(ValueError):
    """There is no planner of this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no planner {name!r}; there are {', '.join(sorted(PLANNERS))}")


class Strategy(Protocol):
    """Knows the chain of every clause with operators, and orders the predicates of one event. One owner."""

    def add(self, chain: int, nodes: Iterable[Node]) -> None:
        """A clause came."""

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

    def add(self, chain: int, nodes: Iterable[Node]) -> None:
        """Nothing to prepare."""

    def remove(self, chain: int) -> None:
        """Nothing was prepared."""

    def plan(self, undecided: Undecided, estimates: Estimates, chains: Sequence[int]) -> Iterator[int]:
        return self._order(undecided, estimates)


class _SubOrder:
    """The strategy with linked chains."""

    def __init__(self) -> None:
        self._chains = LinkedChains()

    def add(self, chain: int, nodes: Iterable[Node]) -> None:
        self._chains.add(chain, nodes)

    def remove(self, chain: int) -> None:
        self._chains.remove(chain)

    def plan(self, undecided: Undecided, estimates: Estimates, chains: Sequence[int]) -> Iterator[int]:
        return sub_order(undecided, estimates, [self._chains.position(each) for each in chains])


PLANNERS: Final[Mapping[str, Callable[[], Strategy]]] = {
    "greedy": lambda: _Orderless(greedy),
    "sub_order": _SubOrder,
    "sequential": lambda: _Orderless(lambda undecided, estimates: sequential(undecided)),
    "naive": lambda: _Orderless(lambda undecided, estimates: naive(undecided)),
}


def new_strategy(name: str) -> Strategy:
    """Raises `UnknownPlanner`."""
    if name not in PLANNERS:
        raise UnknownPlanner(name)
    return PLANNERS[name]()
