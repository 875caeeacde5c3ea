"""The planners by name, which order the evaluation of the predicates of an event, and the linked chains of `sub_order`.

| name | evaluates next | from |
|---|---|---|
| `greedy` | the predicate that settles most undecided work per cost, as expected | Liu et al., SIGMOD 2008 |
| `sub_order` | chain by chain, in an order made in the background, each from the top | Liu et al. 2007, section 4.2 |
| `sequential` | all predicates of any open candidate | Liu et al. 2007, Algorithm 1 |
| `naive` | candidate by candidate, until a literal is false; outcomes are cached | Liu et al. 2007, section 5.2 |

`greedy` follows the edge coverage of Liu et al., "Near-optimal algorithms for shared filter evaluation in data stream
systems" (SIGMOD 2008). The work is the number of unevaluated literals of open candidates. An evaluation always settles
the literals of its predicate. If the outcome is not the one that a candidate wants, it settles all literals of the
candidate:

    expected work of p = sum over its open candidates of  q · (literals left) + (1 - q) · 1,   q = P(not as wanted)

`sub_order` evaluates along linked chains (`LinkedChains`, section 4.2.5), one order for all
events (4.2.2):

    add, remove ─▶ the chain is placed beside a neighbour when the next event is planned, or removed
    learned     ─▶ predicates whose estimates have changed since the order was made are marked
                         └─▶ enough of both: all chains are reordered in the background ─▶ used from the next event on

The order is as recent as the statistics, within `STALE_SHARE`. It changes which predicates are evaluated, but never
what matches.

`sequential` picks any open candidate and evaluates all its predicates that some open candidate still needs, even if the
candidate is decided meanwhile. It evaluates at most d times as many predicates as the best schedule for this event,
where d is the largest number of predicates of a candidate (Theorem 2); with unequal costs d · Cmax / Cmin (4.3).

`naive` is the baseline: it evaluates the predicates of a candidate in their order until one has not the wanted outcome,
even if the known outcome of a later predicate has already decided the candidate.
"""

import logging
import threading
import time
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain as joined
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from kindcast.semantic.planner.problem import (
    CERTAIN,
    OPEN,
    WAIT,
    Estimates,
    Undecided,
    build_heap,
    join_fragments,
    next_in_turn,
    next_of_open,
    pair_weights,
    push_all,
    shared_pairs,
    sorted_from_top,
    take_best,
    walk_fragments,
)

__all__ = [
    "MOST_PAIRS",
    "PLANNERS",
    "Chains",
    "LinkedChains",
    "Node",
    "Strategy",
    "SubOrder",
    "UnknownPlanner",
    "at_once",
    "greedy",
    "in_thread",
    "naive",
    "new_strategy",
    "order_chains",
    "sequential",
    "sub_order",
]

# ── linked chains: the conjunctions of expensive predicates of all subscriptions, in an order good for most events ──

# A chain has the predicates of one clause, sorted from top to bottom by cost / (1 - probability of passing), which is
# the best order for the chain alone. Ties are broken by the number of the predicate, in all chains alike, so that links
# never cross. Equal predicates of two chains are linked: they are evaluated once for both. After Liu et al. (2007),
# section 4.2, with corrections:
#
#     cost of a chain      C = Σ c_i · Π_{j<i} p_j
#     u before v           w(u, v) = Σ_e (1 - p_e) · (P_v · C'_u - P_u · C'_v)     over the links e, see `pair_weights`
#     order of all         edges u → v with w(u, v) < 0, most negative first, with at most one edge into and one edge
#                          out of each chain and no cycle (directed Kruskal, section 4.2.5). The results are fragments.
#                          They are ordered by their best chain: most literals settled per cost, as expected, first
#                          (the paper does not say how fragments are joined)
#
# A new chain is placed beside the neighbour with which it saves most; the other chains do not move.


MOST_PAIRS = 20_000_000
"""The maximum number of pairs that are weighed exactly: some seconds and 400 MB. With more pairs, each chain is weighed
against few neighbours."""
LEAST = 1e-300
"""Replaces a probability that became 0 by underflow, as a divisor."""
NEIGHBOURS = 4
"""If not all pairs are weighed: the neighbours weighed on either side, per shared predicate, in the order of P / C."""

Ints = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Node:
    """A predicate in a chain: its number, the probability of its wanted outcome, and its cost. A negated predicate has
    another number than the predicate itself. One evaluation decides both, but it settles different chains."""

    predicate: int
    passing: float
    cost: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "passing", min(max(self.passing, CERTAIN), 1.0 - CERTAIN))

    @property
    def rank(self) -> tuple[float, int]:
        """The sort key of the node in each chain, ascending."""
        return self.cost / (1.0 - self.passing), self.predicate


class Chains:
    """Chains as arrays. The nodes of chain `c`, from top to bottom, are at `first[c] : first[c + 1]` of `node` (int32,
    numbers of predicates), `passing` and `cost` (float64). Immutable."""

    __slots__ = ("chain", "cost", "first", "node", "passing")

    def __init__(self, first: Ints, node: Ints, passing: Floats, cost: Floats) -> None:
        """The nodes of a chain may be in any order. Cost: one sort of the nodes."""
        passing = np.clip(passing, CERTAIN, 1.0 - CERTAIN)
        chain = np.repeat(np.arange(len(first) - 1, dtype=np.int32), np.diff(first))
        from_top = np.lexsort((node, cost / (1.0 - passing), chain))
        self.first, self.chain = first, chain
        self.node, self.passing, self.cost = node[from_top], passing[from_top], cost[from_top]

    @classmethod
    def of(cls, chains: Sequence[Sequence[Node]]) -> "Chains":
        """Builds the arrays from the nodes of each chain."""
        first = np.zeros(len(chains) + 1, dtype=np.int32)
        np.cumsum([len(chain) for chain in chains], out=first[1:])
        nodes = [node for chain in chains for node in chain]
        return cls(
            first,
            np.array([node.predicate for node in nodes], dtype=np.int32),
            np.array([node.passing for node in nodes], dtype=np.float64),
            np.array([node.cost for node in nodes], dtype=np.float64),
        )

    def __len__(self) -> int:
        return len(self.first) - 1

    def above(self) -> tuple[Floats, Floats]:
        """Returns for each node P, the probability that all nodes above it pass, and C, their expected cost."""
        above, before = np.ones(len(self.node)), np.zeros(len(self.node))
        starts, lengths = self.first[:-1], np.diff(self.first)
        for depth in range(1, int(lengths.max(initial=0))):
            at = starts[lengths > depth] + depth
            above[at] = above[at - 1] * self.passing[at - 1]
            before[at] = before[at - 1] + above[at - 1] * self.cost[at - 1]
        return above, before


def order_chains(chains: Chains, *, most_pairs: int = MOST_PAIRS) -> Ints:
    """Returns the numbers of `chains` in the order of evaluation, `int32[chains]`. Deterministic. Cost: a merge of two
    chains for each pair that shares a predicate; with more than `most_pairs` pairs, only for the nearest neighbours.
    The expensive parts are compiled and do not hold the interpreter lock."""
    holders = _Holders(chains)
    pairs = holders.pairs() if holders.pair_count() <= most_pairs else holders.near_pairs()
    weights = pair_weights(pairs, chains.first, chains.node, chains.passing, chains.cost)
    backwards = weights > 0
    pairs[backwards] = pairs[backwards][:, ::-1]
    gain = np.abs(weights)
    keep = gain > 0
    pairs, gain = pairs[keep], gain[keep]
    best_first = np.lexsort((pairs[:, 1], pairs[:, 0], -gain))
    successor, predecessor = join_fragments(np.ascontiguousarray(pairs[best_first]), len(chains))
    heads = np.flatnonzero(predecessor == -1).astype(np.int32)
    merit, order = walk_fragments(heads, successor, holders.settled_per_cost())
    _, order = walk_fragments(heads[np.lexsort((heads, -merit))], successor, np.zeros(len(chains)))
    return order


class _Holders:
    """Maps each predicate to the chains that contain it. `node` has the predicates, numbered densely."""

    def __init__(self, chains: Chains) -> None:
        self._chains = chains
        known, node = np.unique(chains.node, return_inverse=True)
        self.node = node.astype(np.int32)
        self._by_predicate = np.argsort(self.node, kind="stable")
        self._held = np.bincount(self.node, minlength=len(known))
        self.first_holder = np.zeros(len(known) + 1, dtype=np.int32)
        np.cumsum(self._held, out=self.first_holder[1:])

    def pair_count(self) -> int:
        """Returns an upper bound of the number of pairs of chains that share a predicate."""
        held = self._held.astype(np.int64)
        return int((held * (held - 1) // 2).sum())

    def pairs(self) -> Ints:
        chains = self._chains
        return shared_pairs(chains.first, self.node, self.first_holder, chains.chain[self._by_predicate])

    def near_pairs(self) -> Ints:
        """Returns pairs of chains with a common predicate that are close in the order of P / C: `NEIGHBOURS` on either
        side."""
        above, before = self._chains.above()
        order = np.lexsort((self._chains.chain, before / np.maximum(above, LEAST), self.node))
        owner, node = self._chains.chain[order], self.node[order]
        found = []
        for distance in range(1, NEIGHBOURS + 1):
            same = node[distance:] == node[:-distance]
            found.append(np.stack((owner[:-distance][same], owner[distance:][same]), axis=1))
        pairs = np.sort(np.concatenate(found), axis=1)
        return np.ascontiguousarray(np.unique(pairs, axis=0))

    def settled_per_cost(self) -> Floats:
        """Returns for each chain the literals that its evaluation is expected to settle, divided by its expected
        cost."""
        chains = self._chains
        above, _ = chains.above()
        lengths = np.diff(chains.first)[chains.chain]
        together = np.bincount(self.node, weights=lengths, minlength=len(self._held))[self.node]
        popular = self._held[self.node]
        settled = above * ((1 - chains.passing) * together + chains.passing * popular)
        work = np.bincount(chains.chain, weights=settled, minlength=len(chains))
        cost = np.bincount(chains.chain, weights=above * chains.cost, minlength=len(chains))
        return np.asarray(work / np.maximum(cost, LEAST), dtype=np.float64)


class LinkedChains:
    """Chains by name, where a name is a number, and the position of each chain. Used by one thread only.

    Chains that were ordered together are stored as arrays, with an index of shared predicates. Chains that were added
    later are stored one by one.

        position   float64 by name: chains are evaluated by ascending position, NaN for one that is not there

    Invariant: `_sorted` are the positions of all chains, ascending, no two alike.
    """

    def __init__(self) -> None:
        self._position = np.zeros(0)
        self._sorted: list[float] = []
        self._base = Chains.of([])
        self._names = np.zeros(0, dtype=np.int64)
        self._place: dict[int, int] = {}  # name → number in `_base`, without removed chains
        self._ratio, self._owner, self._first = np.zeros(0), np.zeros(0, dtype=np.int32), np.zeros(1, dtype=np.int64)
        self._own: dict[int, tuple[Node, ...]] = {}
        self._holders: dict[int, list[tuple[float, int]]] = {}  # of `_own`: predicate → (C / P of its node, name)

    @classmethod
    def ordered(cls, names: npt.NDArray[np.int64], chains: Chains, *, most_pairs: int = MOST_PAIRS) -> "LinkedChains":
        """Builds the object with chain `c` of `chains` under the name `names[c]`, in the order of `order_chains`. It
        shares no state, so any thread may call it."""
        found = cls()
        order = order_chains(chains, most_pairs=most_pairs)
        found._position = np.full(int(names.max(initial=-1)) + 1, np.nan)
        found._position[names[order]] = np.arange(len(order), dtype=np.float64)
        found._sorted = np.arange(len(order), dtype=np.float64).tolist()
        found._base, found._names = chains, names
        found._place = dict(zip(names.tolist(), range(len(names)), strict=True))
        above, before = chains.above()
        ratio = before / np.maximum(above, LEAST)
        by_predicate = np.lexsort((ratio, chains.node))
        found._ratio, found._owner = ratio[by_predicate], chains.chain[by_predicate]
        held = np.bincount(chains.node, minlength=1)
        found._first = np.concatenate([[0], np.cumsum(held)])
        return found

    def __len__(self) -> int:
        return len(self._sorted)

    def __contains__(self, name: object) -> bool:
        return name in self._place or name in self._own

    def add(self, name: int, nodes: Iterable[Node]) -> None:
        """Adds a chain beside the neighbour with which it saves most. Costs a few merges for each of its predicates.
        Other chains do not move."""
        nodes = tuple(sorted(nodes, key=lambda node: node.rank))
        beside, after = self._best(nodes)
        position = self._free_position(beside, after)
        if name >= len(self._position):
            self._position = np.concatenate([self._position, np.full(2 * name + 2 - len(self._position), np.nan)])
        self._position[name] = position
        insort(self._sorted, position)
        self._own[name] = nodes
        for ratio, node in _ratios(nodes):
            insort(self._holders.setdefault(node.predicate, []), (ratio, name))

    def remove(self, name: int) -> None:
        """Removes a chain. Raises KeyError if it is not there."""
        if name in self._own:
            for ratio, node in _ratios(self._own.pop(name)):
                holders = self._holders[node.predicate]
                del holders[bisect_left(holders, (ratio, name))]
                if not holders:
                    del self._holders[node.predicate]
        else:
            del self._place[name]
        del self._sorted[bisect_left(self._sorted, float(self._position[name]))]
        self._position[name] = np.nan

    def positions(self, names: npt.ArrayLike) -> Floats:
        """Returns the positions of chains; infinity for an unknown chain. One look-up each."""
        chosen = np.asarray(names, dtype=np.int64)
        if not len(self._position):
            return np.full(len(chosen), np.inf)
        found = self._position[np.minimum(chosen, len(self._position) - 1)]
        found[(chosen >= len(self._position)) | np.isnan(found)] = np.inf
        return found

    def check_invariants(self) -> None:
        """Raises AssertionError if positions and chains disagree. Slow; for tests."""
        there = [*self._place, *self._own]
        assert len(set(there)) == len(there) == len(self._sorted), there
        assert sorted(self._position[there].tolist()) == self._sorted
        assert len(set(self._sorted)) == len(self._sorted), self._sorted
        assert int(np.isfinite(self._position).sum()) == len(there)
        held = sorted((node.predicate, ratio, name) for name in self._own for ratio, node in _ratios(self._own[name]))
        assert held == sorted((each, *pair) for each, pairs in self._holders.items() for pair in pairs)

    def _best(self, nodes: tuple[Node, ...]) -> tuple[int, bool]:
        """Returns (the chain beside which these nodes save most, or -1; whether the nodes come after that chain)."""
        near = self._near(nodes)
        if not near:
            return -1, False
        parts = [_arrays(nodes), *(self._arrays_of(each) for each in near)]
        first = np.zeros(len(parts) + 1, dtype=np.int32)
        np.cumsum([len(each[0]) for each in parts], out=first[1:])
        node, passing, cost = (np.concatenate(each) for each in zip(*parts, strict=True))
        pairs = np.zeros((len(near), 2), dtype=np.int32)
        pairs[:, 1] = np.arange(1, len(parts))
        weights = pair_weights(pairs, first, node, passing, cost)  # of the new chain before each of them
        best = int(np.abs(weights).argmax())
        if weights[best] == 0.0:
            return -1, False
        return near[best], bool(weights[best] > 0)

    def _arrays_of(self, name: int) -> tuple[Ints, Floats, Floats]:
        place = self._place.get(name)
        if place is None:
            return _arrays(self._own[name])
        own = slice(self._base.first[place], self._base.first[place + 1])
        return self._base.node[own], self._base.passing[own], self._base.cost[own]

    def _near(self, nodes: tuple[Node, ...]) -> list[int]:
        """Returns chains that share a predicate with `nodes`: for each predicate at most `NEIGHBOURS` on either side in
        the order of P / C among the chains that were ordered together, and as many among the others."""
        found: dict[int, None] = {}
        for ratio, node in _ratios(nodes):
            if node.predicate + 1 < len(self._first):
                begin, end = int(self._first[node.predicate]), int(self._first[node.predicate + 1])
                at = begin + int(self._ratio[begin:end].searchsorted(ratio))
                near = self._owner[max(begin, at - NEIGHBOURS) : min(end, at + NEIGHBOURS)]
                found.update((name, None) for name in self._names[near].tolist() if name in self._place)
            holders = self._holders.get(node.predicate, [])
            at = bisect_left(holders, (ratio, -1))
            found.update((name, None) for _, name in holders[max(0, at - NEIGHBOURS) : at + NEIGHBOURS])
        return list(found)

    def _free_position(self, beside: int, after: bool) -> float:
        if beside == -1:
            return self._sorted[-1] + 1.0 if self._sorted else 0.0
        at = bisect_right(self._sorted, float(self._position[beside])) - (not after)
        low = self._sorted[at - 1] if at else self._sorted[0] - 2.0
        high = self._sorted[at] if at < len(self._sorted) else self._sorted[-1] + 2.0
        middle = (low + high) / 2
        if low < middle < high:
            return middle
        self._spread()  # no number is left between two neighbours
        return self._free_position(beside, after)

    def _spread(self) -> None:
        there = np.flatnonzero(np.isfinite(self._position))
        self._position[there] = np.searchsorted(self._sorted, self._position[there])
        self._sorted = np.arange(len(there), dtype=np.float64).tolist()


def _arrays(nodes: tuple[Node, ...]) -> tuple[Ints, Floats, Floats]:
    return (
        np.array([node.predicate for node in nodes], dtype=np.int32),
        np.array([node.passing for node in nodes], dtype=np.float64),
        np.array([node.cost for node in nodes], dtype=np.float64),
    )


def _ratios(nodes: Iterable[Node]) -> Iterable[tuple[float, Node]]:
    """Yields each node with C / P of the nodes above it. The smaller the ratio, the likelier and cheaper the node is
    reached."""
    above, before = 1.0, 0.0
    for node in nodes:
        yield before / max(above, LEAST), node
        before += above * node.cost
        above *= node.passing


def naive(undecided: Undecided) -> Iterator[int]:
    """Yields the predicates to evaluate, in order. The caller must settle or begin each before it takes the next."""
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
    """Yields the predicates to evaluate, in order. The caller must settle or begin each before it takes the next.

    Cost: O(log predicates) for each one evaluated or no longer needed; some microseconds.
    """
    holds = np.clip(estimates.holds, CERTAIN, 1 - CERTAIN)
    miss = np.stack((holds, 1 - holds), axis=1)  # by wanted outcome: `false` is missed if it holds
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
    """Yields the predicates to evaluate, in order. The caller must settle or begin each before it takes the next."""
    order = np.arange(len(undecided.literals), dtype=np.int32)
    return walk_open(undecided, order, undecided.literals.predicate, to_the_end=True)


def walk_open(
    undecided: Undecided, order: npt.NDArray[np.int32], literal: npt.NDArray[np.int32], *, to_the_end: bool
) -> Iterator[int]:
    """Walks the open candidates in `order` (their numbers) and yields their predicates. `literal` has the predicates of
    all candidates, one candidate after the other, each in its order. A candidate is left when it is decided or, with
    `to_the_end`, when no open candidate needs more of its predicates. Candidates that wait for predicates under
    evaluation are walked again later."""
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
"""All chains are reordered if more than this share of their nodes was added, was removed, or has out-of-date estimates
in the order."""
DRIFT = 1.5
"""An estimate is out of date if a probability, its complement or a cost has changed by more than this factor."""
SELDOM = 0.01
"""Probabilities below this are regarded as equal, because a node with such a probability hardly ever passes."""
PLACED_SINGLY = 64
"""The number of new chains that are placed beside a neighbour one by one (about 100 µs each). If there are more, all of
them are last until all chains are reordered."""
PAUSE = 20.0
"""The pause between two reorderings, as a multiple of the duration of the last one: at most a twentieth of a core."""
THREAD = "kindcast-order"

_logger = logging.getLogger(__name__)
Run = Callable[[Callable[[], None]], None]


def sub_order(undecided: Undecided, estimates: Estimates, positions: npt.ArrayLike) -> Iterator[int]:
    """Yields the predicates to evaluate, in order. The caller must settle or begin each before it takes the next. The
    chain of candidate `c` is at `positions[c]`. Cost: one sort of the candidates and one walk over them."""
    literals = undecided.literals
    ranks = estimates.cost[literals.predicate] / (1.0 - estimates.passing(literals.predicate, literals.wanted))
    from_top = sorted_from_top(literals.first, literals.predicate, ranks)
    order = np.argsort(np.asarray(positions, dtype=np.float64), kind="stable").astype(np.int32)
    return walk_open(undecided, order, from_top, to_the_end=False)


def at_once(run: Callable[[], None]) -> None:
    """Runs a reordering in the calling thread, which waits for it."""
    run()


def in_thread(run: Callable[[], None]) -> None:
    """Runs a reordering in a new thread. The compiled functions hold no interpreter lock there."""
    threading.Thread(target=run, name=THREAD).start()


class SubOrder:
    """The strategy `sub_order` with its chains. Used by one thread; `run` starts the reorderings.

    The nodes of chains are 2 · predicate, or 2 · predicate + 1 if the wanted outcome is `false`. `_holds` and `_cost`
    are the current estimates; `_ordered_holds` and `_ordered_cost` are those of the order in use.
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
        """The number of reorderings that were completed and put to use."""

    def __len__(self) -> int:
        return len(self._chains)

    def learned(self, predicate: int, holds: float, cost: float) -> None:
        """Sets the estimates of a predicate. Costs some comparisons."""
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
        """Adds a clause. The estimates of its predicates must be known."""
        nodes = tuple(2 * number + (not want) for number, want in zip(predicates, wanted, strict=True))
        self._chains[chain] = nodes
        self._unplaced[chain] = None
        self._changed(chain, nodes, 1)

    def remove(self, chain: int) -> None:
        """Removes a clause. Raises KeyError if it is not there."""
        nodes = self._chains.pop(chain)
        self._unplaced.pop(chain, None)
        if chain in self._linked:
            self._linked.remove(chain)
        self._changed(chain, nodes, -1)

    def plan(self, undecided: Undecided, estimates: Estimates, chains: Sequence[int]) -> Iterator[int]:
        """See `Strategy.plan`. A chain without a position comes last."""
        self._settle()
        return sub_order(undecided, estimates, self._linked.positions(chains))

    def order_now(self) -> None:
        """Reorders all chains with the current estimates in this thread. A reordering in progress is discarded."""
        self._coming = self._snapshot()
        self._coming.make()
        self._take()

    def check_invariants(self) -> None:
        """Raises AssertionError if the chains and their order disagree. Slow; for tests."""
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
        """Takes over a finished order, starts a reordering if it is due, and places new chains."""
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
        """Copies the chains and estimates for a reordering. Linear in the nodes, some tens of ns each."""
        self._since = set()
        names = np.fromiter(self._chains, dtype=np.int64, count=len(self._chains))
        first = np.zeros(len(names) + 1, dtype=np.int32)
        np.cumsum(np.fromiter(map(len, self._chains.values()), dtype=np.int64, count=len(names)), out=first[1:])
        nodes = np.fromiter(joined.from_iterable(self._chains.values()), dtype=np.int32, count=self._nodes)
        return _Order(names, first, nodes, self._holds.copy(), self._cost.copy(), self._most_pairs)

    def _take(self) -> None:
        """Puts the finished order to use, with the changes since it was started."""
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
    """A reordering of all chains as they were at one moment. Any thread may run it; no other thread uses it
    meanwhile."""

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
        """Computes `made`. If that fails, it logs the error, and the order in use remains."""
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
    """Returns whether estimates differ too much from the known ones; for one predicate, or for arrays of them."""
    return (
        _apart(holds + SELDOM, known_holds + SELDOM)
        | _apart(1.0 - holds + SELDOM, 1.0 - known_holds + SELDOM)
        | _apart(cost, known_cost)
    )


def _apart(one: Any, other: Any) -> Any:
    return (one > DRIFT * other) | (other > DRIFT * one)


class UnknownPlanner(ValueError):
    """Raised if there is no planner with this name."""

    def __init__(self, name: str) -> None:
        super().__init__(f"there is no planner {name!r}; known are {', '.join(sorted(PLANNERS))}")


class Strategy(Protocol):
    """Knows the chain of each clause with operators, and orders the predicates of one event. Used by one thread.
    `learned` and `add` use the same numbers of predicates; the problem of an event has numbers of its own."""

    def learned(self, predicate: int, holds: float, cost: float) -> None:
        """Sets the estimates of a predicate: the probability that it holds and the cost of its evaluation. Must be
        called before `add` of the first clause with this predicate."""

    def add(self, chain: int, predicates: Sequence[int], wanted: Sequence[bool]) -> None:
        """Adds a clause with its predicates and the wanted outcome of each."""

    def remove(self, chain: int) -> None:
        """Removes a clause."""

    def plan(self, undecided: Undecided, estimates: Estimates, chains: Sequence[int]) -> Iterator[int]:
        """Yields the predicates of this event to evaluate, in order. The caller must settle or begin each before it
        takes the next. `WAIT` means that everything that remains depends on predicates under evaluation; the caller
        must settle one of them first. Candidate `c` is the clause `chains[c]`."""


class _Orderless:
    """A strategy that needs no preparation."""

    def __init__(self, order: Callable[[Undecided, Estimates], Iterator[int]]) -> None:
        self._order = order

    def learned(self, predicate: int, holds: float, cost: float) -> None:
        """Does nothing: the estimates come with each event."""

    def add(self, chain: int, predicates: Sequence[int], wanted: Sequence[bool]) -> None:
        """Does nothing."""

    def remove(self, chain: int) -> None:
        """Does nothing."""

    def plan(self, undecided: Undecided, estimates: Estimates, chains: Sequence[int]) -> Iterator[int]:
        return self._order(undecided, estimates)


PLANNERS: Final[Mapping[str, Callable[[], Strategy]]] = {
    "greedy": lambda: _Orderless(greedy),
    "sub_order": SubOrder,
    "sequential": lambda: _Orderless(lambda undecided, estimates: sequential(undecided)),
    "naive": lambda: _Orderless(lambda undecided, estimates: naive(undecided)),
}


def new_strategy(name: str) -> Strategy:
    """Returns a new strategy. Raises `UnknownPlanner`."""
    if name not in PLANNERS:
        raise UnknownPlanner(name)
    return PLANNERS[name]()
