"""The planners by name: in which order the predicates of an event are evaluated.

| name | evaluates next | from |
|---|---|---|
| `greedy` | the predicate that settles most undecided work per cost, as expected | Liu et al., SIGMOD 2008 |
| `sub_order` | chain by chain, in an order made in the background, each from the top | Liu et al. 2007, section 4.2 |
| `sequential` | all predicates of any open candidate | Liu et al. 2007, Algorithm 1 |
| `naive` | candidate by candidate, until a literal fails; outcomes are cached | Liu et al. 2007, section 5.2 |

`greedy` follows the edge coverage of Liu et al., "Near-optimal algorithms for shared filter evaluation in data stream
systems" (SIGMOD 2008). The work is the number of literals of open candidates that nobody has evaluated. A predicate
always settles its own literals; if it has not the wanted outcome, it settles all literals of the candidates that
contain it:

    expected work of p = sum over its open candidates of  q · (literals left) + (1 - q) · 1,   q = P(not as wanted)

`sub_order` evaluates along linked chains (`kindcast.semantic.planner.linked_chains`, section 4.2.5), one order for all
events (4.2.2):

    add, remove ─▶ the chain is placed beside a neighbour when the next event is planned, or taken out
    learned     ─▶ estimates that the order was made with and that are out of date
                         └─▶ enough of both: a new order of all chains in the background ─▶ used from the next event on

The order is as fresh as the statistics, within `STALE_SHARE`. It changes which predicates are evaluated, never what
matches.

`sequential` picks any open candidate and evaluates all its predicates that some open candidate still needs, even if the
candidate is decided meanwhile. It evaluates at most d times as many predicates as the best schedule for this event,
where d is the largest number of predicates of a candidate (Theorem 2); with unequal costs d · Cmax / Cmin (4.3).

`naive` is the baseline: it evaluates a predicate in its turn even if another outcome has already decided the candidate.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain as joined
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from kindcast.semantic.planner.kernels import (
    build_heap,
    next_in_turn,
    next_of_open,
    push_all,
    sorted_from_top,
    take_best,
)
from kindcast.semantic.planner.linked_chains import MOST_PAIRS, Chains, LinkedChains, Node
from kindcast.semantic.planner.problem import CERTAIN, OPEN, WAIT, Estimates, Undecided

__all__ = [
    "PLANNERS",
    "Strategy",
    "SubOrder",
    "UnknownPlanner",
    "at_once",
    "greedy",
    "in_thread",
    "naive",
    "new_strategy",
    "sequential",
    "sub_order",
]


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


STALE_SHARE = 1 / 8
"""All chains are ordered anew when so many of their nodes came, went, or have other estimates than the order knew."""
DRIFT = 1.5
"""An estimate holds no more when a probability, its complement or a cost is so many times what it was, or less."""
SELDOM = 0.01
"""Probabilities below this are alike: a node that passes so seldom is hardly ever passed."""
PLACED_SINGLY = 64
"""New chains that are put beside a neighbour one by one, some 100 µs each; of more, all stand last until the next order
of all."""
PAUSE = 20.0
"""Between two orders passes so many times what the last one took: a core spends at most a twentieth on them."""
THREAD = "kindcast-order"

_logger = logging.getLogger(__name__)
Run = Callable[[Callable[[], None]], None]


def sub_order(undecided: Undecided, estimates: Estimates, positions: npt.ArrayLike) -> Iterator[int]:
    """The predicates to evaluate, in order; the caller settles or begins each before it asks for the next. The chain of
    candidate `c` stands at `positions[c]`. Cost: one sort of the candidates, and a walk over them."""
    literals = undecided.literals
    ranks = estimates.cost[literals.predicate] / (1.0 - estimates.passing(literals.predicate, literals.wanted))
    from_top = sorted_from_top(literals.first, literals.predicate, ranks)
    order = np.argsort(np.asarray(positions, dtype=np.float64), kind="stable").astype(np.int32)
    return walk_open(undecided, order, from_top, to_the_end=False)


def at_once(run: Callable[[], None]) -> None:
    """Orders are made where they become due: the owner waits."""
    run()


def in_thread(run: Callable[[], None]) -> None:
    """Orders are made in a thread of their own; kernels there hold no interpreter lock."""
    threading.Thread(target=run, name=THREAD).start()


class SubOrder:
    """The strategy with its chains. One owner; the order of all is made by `run`.

    Nodes of chains are 2 · predicate, or 2 · predicate + 1 where the outcome `false` is wanted. `_holds` and `_cost`
    are what is expected of predicates now, `_ordered_holds` and `_ordered_cost` what the order in use was made with.
    """

    def __init__(self, *, run: Run = in_thread, most_pairs: int = MOST_PAIRS) -> None:
        self._run = run
        self._most_pairs = most_pairs
        self._chains: dict[int, tuple[int, ...]] = {}
        self._linked = LinkedChains()
        self._unplaced: dict[int, None] = {}
        self._holds, self._cost, self._ordered_holds, self._ordered_cost = (np.zeros(0) for _ in range(4))
        self._held = np.zeros(0, dtype=np.int64)
        self._drifted = np.zeros(0, dtype=np.bool_)
        self._nodes = 0
        self._changed_nodes = 0
        self._look = False
        self._coming: _Order | None = None
        self._since: set[int] = set()
        self._not_before = 0.0
        self.orders = 0
        """Orders of all chains that were made and taken into use."""

    def __len__(self) -> int:
        return len(self._chains)

    def learned(self, predicate: int, holds: float, cost: float) -> None:
        """What is expected of a predicate from now on. Some comparisons."""
        if predicate >= len(self._holds):
            self._grow(predicate)
        self._holds[predicate], self._cost[predicate] = holds, cost
        if not self._held[predicate]:  # no chain of the order has it
            self._ordered_holds[predicate], self._ordered_cost[predicate] = holds, cost
        known_holds, known_cost = float(self._ordered_holds[predicate]), float(self._ordered_cost[predicate])
        drifted = _drifted(holds, cost, known_holds, known_cost)
        if drifted != self._drifted[predicate]:
            self._drifted[predicate] = drifted
            self._look = True

    def add(self, chain: int, predicates: Sequence[int], wanted: Sequence[bool]) -> None:
        """Add a clause. The estimates of its predicates must be known."""
        nodes = tuple(2 * number + (not want) for number, want in zip(predicates, wanted, strict=True))
        self._chains[chain] = nodes
        self._unplaced[chain] = None
        self._changed(chain, nodes, 1)

    def remove(self, chain: int) -> None:
        """A clause went. Raises KeyError for one that is not there."""
        nodes = self._chains.pop(chain)
        self._unplaced.pop(chain, None)
        if chain in self._linked:
            self._linked.remove(chain)
        self._changed(chain, nodes, -1)

    def plan(self, undecided: Undecided, estimates: Estimates, chains: Sequence[int]) -> Iterator[int]:
        """As `Strategy.plan`. A chain that has no place yet stands last."""
        self._settle()
        return sub_order(undecided, estimates, self._linked.positions(chains))

    def order_now(self) -> None:
        """Order all chains with what is expected now, here; an order that is under way is not used."""
        self._coming = self._snapshot()
        self._coming.make()
        self._take()

    def check_invariants(self) -> None:
        """Raise AssertionError if the chains and their order disagree. Slow; for tests."""
        self._linked.check_invariants()
        assert all((chain in self._linked) is (chain not in self._unplaced) for chain in self._chains)
        assert len(self._linked) + len(self._unplaced) == len(self._chains)
        assert self._nodes == sum(map(len, self._chains.values())) == int(self._held.sum())
        held = np.bincount([node >> 1 for node in joined(*self._chains.values())], minlength=len(self._held))
        assert held.tolist() == self._held.tolist()

    def _changed(self, chain: int, nodes: tuple[int, ...], sign: int) -> None:
        for node in nodes:
            if node >> 1 >= len(self._held):
                self._grow(node >> 1)
            self._held[node >> 1] += sign
        self._nodes += sign * len(nodes)
        self._changed_nodes += len(nodes)
        self._look = True
        if self._coming is not None:
            self._since.add(chain)

    def _settle(self) -> None:
        """Take over an order that is there; begin one if it is due; give new chains their place."""
        if self._coming is not None and self._coming.done:
            self._take()
        if self._look and self._coming is None and time.monotonic() >= self._not_before:
            self._look = False
            stale = self._changed_nodes + int(self._held[self._drifted].sum())
            if stale > STALE_SHARE * self._nodes:
                self._coming = self._snapshot()
                self._run(self._coming.make)
                if self._coming.done:
                    self._take()
        if 0 < len(self._unplaced) <= PLACED_SINGLY:
            for chain in self._unplaced:
                self._linked.add(chain, map(self._node, self._chains[chain]))
            self._unplaced.clear()

    def _snapshot(self) -> "_Order":
        """Linear in the nodes; some tens of ns each."""
        self._since = set()
        names = np.fromiter(self._chains, dtype=np.int64, count=len(self._chains))
        first = np.zeros(len(names) + 1, dtype=np.int32)
        np.cumsum(np.fromiter(map(len, self._chains.values()), dtype=np.int64, count=len(names)), out=first[1:])
        nodes = np.fromiter(joined.from_iterable(self._chains.values()), dtype=np.int32, count=self._nodes)
        return _Order(names, first, nodes, self._holds.copy(), self._cost.copy(), self._most_pairs)

    def _take(self) -> None:
        """Use the order that was made, with what changed since it was begun."""
        order, self._coming = self._coming, None
        assert order is not None
        self._not_before = time.monotonic() + PAUSE * order.seconds
        if order.made is None:
            return
        self.orders += 1
        self._linked = order.made
        self._unplaced = {}
        self._changed_nodes = 0
        for chain in self._since:
            if chain in self._linked:
                self._linked.remove(chain)
            if chain in self._chains:
                self._unplaced[chain] = None
                self._changed_nodes += len(self._chains[chain])
        known = len(order.holds)
        self._ordered_holds[:known], self._ordered_cost[:known] = order.holds, order.cost
        self._drifted = _drifted(self._holds, self._cost, self._ordered_holds, self._ordered_cost)
        self._look = True

    def _node(self, number: int) -> Node:
        holds, cost = float(self._holds[number >> 1]), float(self._cost[number >> 1])
        return Node(number, 1.0 - holds if number & 1 else holds, cost)

    def _grow(self, predicate: int) -> None:
        more = 2 * predicate + 2 - len(self._holds)
        self._holds, self._cost, self._ordered_holds, self._ordered_cost = (
            np.concatenate([each, np.zeros(more)])
            for each in (self._holds, self._cost, self._ordered_holds, self._ordered_cost)
        )
        self._held = np.concatenate([self._held, np.zeros(more, dtype=np.int64)])
        self._drifted = np.concatenate([self._drifted, np.zeros(more, dtype=np.bool_)])


class _Order:
    """An order of all chains as they were at one moment. Any thread may make it; nobody else touches it meanwhile."""

    def __init__(
        self,
        names: npt.NDArray[np.int64],
        first: npt.NDArray[np.int32],
        nodes: npt.NDArray[np.int32],
        holds: npt.NDArray[np.float64],
        cost: npt.NDArray[np.float64],
        most_pairs: int,
    ) -> None:
        self.holds, self.cost = holds, cost
        self._chains = names, first, nodes
        self._most_pairs = most_pairs
        self.made: LinkedChains | None = None
        self.seconds = 0.0
        self.done = False

    def make(self) -> None:
        """Set `made`; if that fails, say why in the log: the order in use stays."""
        began = time.monotonic()
        try:
            names, first, nodes = self._chains
            holds = self.holds[nodes >> 1]
            passing = np.where(nodes & 1 == 1, 1.0 - holds, holds)
            chains = Chains(first, nodes, passing, self.cost[nodes >> 1])
            self.made = LinkedChains.ordered(names, chains, most_pairs=self._most_pairs)
        except Exception:
            _logger.exception("the order of operator calls could not be computed: the previous order is kept")
        self.seconds = time.monotonic() - began
        self.done = True


def _drifted(holds: Any, cost: Any, known_holds: Any, known_cost: Any) -> Any:
    """Whether estimates are no longer what they were known to be; of one predicate, or of many in arrays."""
    return (
        _apart(holds + SELDOM, known_holds + SELDOM)
        | _apart(1.0 - holds + SELDOM, 1.0 - known_holds + SELDOM)
        | _apart(cost, known_cost)
    )


def _apart(one: Any, other: Any) -> Any:
    return (one > DRIFT * other) | (other > DRIFT * one)


class UnknownPlanner(ValueError):
    """There is no planner of this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no planner {name!r}; known are {', '.join(sorted(PLANNERS))}")


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
