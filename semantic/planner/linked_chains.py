"""Linked chains: all subscribed conjunctions of expensive predicates, in an order that is good for most events.

A chain is the predicates of one clause, from top to bottom by cost / (1 - probability of passing), the best order for
the chain alone; ties go by the number of the predicate in all chains, so that links never cross. Equal predicates of
two chains are linked: asked once, known to both. Liu et al. (2007), section 4.2, with its slips mended:

    cost of a chain      C = Σ c_i · Π_{j<i} p_j
    u before v           w(u, v) = Σ_e (1 - p_e) · (P_v · C'_u - P_u · C'_v)     over the links e, see `pair_weights`
    order of all         edges u → v with w(u, v) < 0, most negative first, one way in and one way out of each chain and
                         no cycle (directed Kruskal, section 4.2.5); what is left are fragments, and those that are
                         expected to settle most literals per cost come first (the paper leaves the joining open)

A new chain is put beside the neighbour with which it saves most, without reordering the others.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kindcast.semantic.planner.kernels import join_fragments, pair_weights, shared_pairs, walk_fragments
from kindcast.semantic.planner.problem import CERTAIN

__all__ = ["MOST_PAIRS", "Chains", "LinkedChains", "Node", "order_chains"]

MOST_PAIRS = 20_000_000
"""Pairs of chains weighed exactly: some seconds and 400 MB. Above it each chain is weighed against few neighbours."""
LEAST = 1e-300
"""Stands for a probability that has become 0 by underflow, where one is divided by it."""
NEIGHBOURS = 4
"""Neighbours in the order of P / C to either side, for each shared predicate, where not all pairs are weighed."""

Ints = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Node:
    """A predicate in a chain: its number, the probability that it comes out as wanted, its cost. A negated predicate
    has another number than the predicate itself: to ask one tells the other, but it settles different chains."""

    predicate: int
    passing: float
    cost: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "passing", min(max(self.passing, CERTAIN), 1.0 - CERTAIN))

    @property
    def rank(self) -> tuple[float, int]:
        """Its position in every chain, ascending."""
        return self.cost / (1.0 - self.passing), self.predicate


class Chains:
    """Chains as arrays, from top to bottom: chain `c` has the nodes `first[c] : first[c + 1]` of `node` (int32, numbers
    of predicates), `passing` and `cost` (float64). Immutable."""

    __slots__ = ("chain", "cost", "first", "node", "passing")

    def __init__(self, first: Ints, node: Ints, passing: Floats, cost: Floats) -> None:
        """The nodes of a chain in any order. Cost: sorting them."""
        passing = np.clip(passing, CERTAIN, 1.0 - CERTAIN)
        chain = np.repeat(np.arange(len(first) - 1, dtype=np.int32), np.diff(first))
        from_top = np.lexsort((node, cost / (1.0 - passing), chain))
        self.first, self.chain = first, chain
        self.node, self.passing, self.cost = node[from_top], passing[from_top], cost[from_top]

    @classmethod
    def of(cls, chains: Sequence[Sequence[Node]]) -> "Chains":
        """From the nodes of each chain."""
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
        """For each node: P, the probability that all above it pass, and C, the expected cost of those."""
        above, before = np.ones(len(self.node)), np.zeros(len(self.node))
        starts, lengths = self.first[:-1], np.diff(self.first)
        for depth in range(1, int(lengths.max(initial=0))):
            at = starts[lengths > depth] + depth
            above[at] = above[at - 1] * self.passing[at - 1]
            before[at] = before[at - 1] + above[at - 1] * self.cost[at - 1]
        return above, before


def order_chains(chains: Chains, *, most_pairs: int = MOST_PAIRS) -> Ints:
    """The numbers of `chains` in the order in which to evaluate them, `int32[chains]`. Deterministic. Cost: a merge of
    two chains for each pair that shares a predicate, or, where there are more than `most_pairs`, for the nearest
    neighbours. Compiled, without the interpreter lock."""
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
    """Which chains hold each predicate, the predicates numbered densely as `node`."""

    def __init__(self, chains: Chains) -> None:
        self._chains = chains
        known, node = np.unique(chains.node, return_inverse=True)
        self.node = node.astype(np.int32)
        self._by_predicate = np.argsort(self.node, kind="stable")
        self._held = np.bincount(self.node, minlength=len(known))
        self.first_holder = np.zeros(len(known) + 1, dtype=np.int32)
        np.cumsum(self._held, out=self.first_holder[1:])

    def pair_count(self) -> int:
        """At most so many pairs of chains share a predicate."""
        held = self._held.astype(np.int64)
        return int((held * (held - 1) // 2).sum())

    def pairs(self) -> Ints:
        chains = self._chains
        return shared_pairs(chains.first, self.node, self.first_holder, chains.chain[self._by_predicate])

    def near_pairs(self) -> Ints:
        """Holders of one predicate that are near each other in the order of P / C, `NEIGHBOURS` to either side."""
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
        """For each chain: the literals that evaluating it alone is expected to settle, over its expected cost."""
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
    """Chains by name, a number, and where each stands. Owned by one thread.

    Those that were ordered together are arrays, and what they share is found there; those that were put beside them
    later are held by themselves.

        position   float64 by name: chains are evaluated by ascending position, NaN for one that is not there

    Invariant: `_sorted` are the positions of all chains, ascending, no two alike.
    """

    def __init__(self) -> None:
        self._position = np.zeros(0)
        self._sorted: list[float] = []
        self._base = Chains.of([])
        self._names = np.zeros(0, dtype=np.int64)
        self._place: dict[int, int] = {}  # name -> number in `_base`, of those that are there still
        self._ratio, self._owner, self._first = np.zeros(0), np.zeros(0, dtype=np.int32), np.zeros(1, dtype=np.int64)
        self._own: dict[int, tuple[Node, ...]] = {}
        self._holders: dict[int, list[tuple[float, int]]] = {}  # of `_own`: predicate -> (C / P of its node, name)

    @classmethod
    def ordered(cls, names: npt.NDArray[np.int64], chains: Chains, *, most_pairs: int = MOST_PAIRS) -> "LinkedChains":
        """Chain `c` of `chains` under `names[c]`, all in the order of `order_chains`. Touches nothing that others do:
        any thread may call it."""
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
        """Put a chain where it saves most: beside one neighbour. Costs a few merges for each of its predicates, and
        moves nothing else."""
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
        """Raises KeyError for a chain that is not there."""
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
        """Where they stand; infinite for one that is not there. A look-up each."""
        chosen = np.asarray(names, dtype=np.int64)
        if not len(self._position):
            return np.full(len(chosen), np.inf)
        found = self._position[np.minimum(chosen, len(self._position) - 1)]
        found[(chosen >= len(self._position)) | np.isnan(found)] = np.inf
        return found

    def check_invariants(self) -> None:
        """Raise AssertionError if positions and chains disagree. Slow; for tests."""
        there = [*self._place, *self._own]
        assert len(set(there)) == len(there) == len(self._sorted), there
        assert sorted(self._position[there].tolist()) == self._sorted
        assert len(set(self._sorted)) == len(self._sorted), self._sorted
        assert int(np.isfinite(self._position).sum()) == len(there)
        held = sorted((node.predicate, ratio, name) for name in self._own for ratio, node in _ratios(self._own[name]))
        assert held == sorted((each, *pair) for each, pairs in self._holders.items() for pair in pairs)

    def _best(self, nodes: tuple[Node, ...]) -> tuple[int, bool]:
        """(the chain beside which these nodes save most, or -1; whether behind it)."""
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
        """Chains that share a predicate, at most `NEIGHBOURS` to either side of each in the order of P / C among those
        that were ordered together, and as many among the others."""
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
    """Each node with C / P of what stands above it: the smaller, the likelier and cheaper it is reached."""
    above, before = 1.0, 0.0
    for node in nodes:
        yield before / max(above, LEAST), node
        before += above * node.cost
        above *= node.passing
