"""Linked chains: all subscribed conjunctions of expensive predicates, in an order that is good for most events.

A chain is the predicates of one clause, from top to bottom by cost / (1 - probability of passing), the best order for
the chain alone; ties go by the number of the predicate in all chains, so that links never cross. Equal predicates of
two chains are linked: asked once, known to both. Liu et al. (2007), section 4.2, with its slips mended:

    cost of a chain      C = Σ c_i · Π_{j<i} p_j
    u before v           w(u, v) = Σ_e (1 - p_e) · (P_v · C'_u - P_u · C'_v)     over the links e, see `pair_weights`
    order of all         edges u → v with w(u, v) < 0, most negative first, one way in and one way out of each chain and
                         no circle; what is left are fragments, and those that are expected to settle most literals per
                         cost come first (the paper leaves the joining open)

A new chain is put beside the neighbour with which it saves most, without reordering the others.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from semantic.planner.estimates import CERTAIN
from semantic.planner.kernels import join_fragments, pair_weights, shared_pairs

__all__ = ["MOST_PAIRS", "LinkedChains", "Node", "order_chains"]

MOST_PAIRS = 20_000_000
"""Pairs of chains weighed exactly: some seconds and 400 MB. Above it each chain is weighed against few neighbours."""
LEAST = 1e-300
"""Stands for a probability that has become 0 by underflow, where one is divided by it."""
NEIGHBOURS = 4
"""Neighbours in the order of P / C to either side, for each shared predicate, where not all pairs are weighed."""


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
        """Where it stands in every chain, ascending."""
        return self.cost / (1.0 - self.passing), self.predicate


def order_chains(chains: Sequence[Sequence[Node]], *, most_pairs: int = MOST_PAIRS) -> list[int]:
    """The numbers of `chains` in the order in which to evaluate them. Deterministic. Cost: a merge of two chains for
    each pair that shares a predicate, or, where there are more than `most_pairs`, for the nearest neighbours."""
    if not chains:
        return []
    flat = _Flat(chains)
    pairs = flat.pairs() if flat.pair_count() <= most_pairs else flat.near_pairs()
    weights = pair_weights(pairs, flat.first, flat.node, flat.passing, flat.cost)
    backwards = weights > 0
    pairs[backwards] = pairs[backwards][:, ::-1]
    gain = np.abs(weights)
    keep = gain > 0
    pairs, gain = pairs[keep], gain[keep]
    best_first = np.lexsort((pairs[:, 1], pairs[:, 0], -gain))
    successor, predecessor = join_fragments(np.ascontiguousarray(pairs[best_first]), len(chains))
    return _joined(successor.tolist(), predecessor.tolist(), flat.settled_per_cost())


def _joined(successor: list[int], predecessor: list[int], merit: npt.NDArray[np.float64]) -> list[int]:
    """The fragments one after another, by the best merit of a chain in them."""
    fragments = []
    for head in range(len(successor)):
        if predecessor[head] == -1:
            fragment = [head]
            while successor[fragment[-1]] != -1:
                fragment.append(successor[fragment[-1]])
            fragments.append((-float(merit[fragment].max()), head, fragment))
    return [chain for _, _, fragment in sorted(fragments) for chain in fragment]


class _Flat:
    """Chains as arrays: the nodes of chain `c` at `first[c] : first[c + 1]`, from top to bottom."""

    def __init__(self, chains: Sequence[Sequence[Node]]) -> None:
        self.first = np.zeros(len(chains) + 1, dtype=np.int32)
        np.cumsum([len(chain) for chain in chains], out=self.first[1:])
        nodes = [node for chain in chains for node in sorted(chain, key=lambda node: node.rank)]
        numbers: dict[int, int] = {}
        self.node = np.array([numbers.setdefault(node.predicate, len(numbers)) for node in nodes], dtype=np.int32)
        self.passing = np.array([node.passing for node in nodes], dtype=np.float64)
        self.cost = np.array([node.cost for node in nodes], dtype=np.float64)
        self.chain = np.repeat(np.arange(len(chains), dtype=np.int32), np.diff(self.first))
        self._by_predicate = np.argsort(self.node, kind="stable")
        self._held = np.bincount(self.node, minlength=len(numbers))
        self.first_holder = np.zeros(len(numbers) + 1, dtype=np.int32)
        np.cumsum(self._held, out=self.first_holder[1:])

    def pair_count(self) -> int:
        """At most so many pairs of chains share a predicate."""
        held = self._held.astype(np.int64)
        return int((held * (held - 1) // 2).sum())

    def pairs(self) -> npt.NDArray[np.int32]:
        return shared_pairs(self.first, self.node, self.first_holder, self.chain[self._by_predicate])

    def near_pairs(self) -> npt.NDArray[np.int32]:
        """Holders of one predicate that are near each other in the order of P / C, `NEIGHBOURS` to either side."""
        above, before = self._above()
        ratio = above / np.maximum(before, LEAST)
        order = np.lexsort((self.chain, -ratio, self.node))
        owner, node = self.chain[order], self.node[order]
        found = []
        for distance in range(1, NEIGHBOURS + 1):
            same = node[distance:] == node[:-distance]
            found.append(np.stack((owner[:-distance][same], owner[distance:][same]), axis=1))
        pairs = np.sort(np.concatenate(found), axis=1)
        return np.ascontiguousarray(np.unique(pairs, axis=0))

    def settled_per_cost(self) -> npt.NDArray[np.float64]:
        """For each chain: the literals that evaluating it alone is expected to settle, over its expected cost."""
        above, _ = self._above()
        lengths = np.diff(self.first)[self.chain]
        together = np.bincount(self.node, weights=lengths, minlength=len(self._held))[self.node]
        popular = self._held[self.node]
        settled = above * ((1 - self.passing) * together + self.passing * popular)
        work = np.bincount(self.chain, weights=settled, minlength=len(self.first) - 1)
        cost = np.bincount(self.chain, weights=above * self.cost, minlength=len(self.first) - 1)
        return np.asarray(work / np.maximum(cost, LEAST), dtype=np.float64)

    def _above(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """For each node: P, the probability that all above it pass, and C, the expected cost of those."""
        above, before = np.ones(len(self.node)), np.zeros(len(self.node))
        starts, lengths = self.first[:-1], np.diff(self.first)
        for depth in range(1, int(lengths.max(initial=0))):
            at = starts[lengths > depth] + depth
            above[at] = above[at - 1] * self.passing[at - 1]
            before[at] = before[at - 1] + above[at - 1] * self.cost[at - 1]
        return above, before


class LinkedChains:
    """The chains of all subscriptions and where each stands. Owned by one thread.

    Invariant: `_sorted` are the labels of all chains, ascending; a chain stands before another if its label is smaller.
    """

    def __init__(self) -> None:
        self._chains: dict[int, tuple[Node, ...]] = {}
        self._label: dict[int, float] = {}
        self._sorted: list[float] = []
        self._holders: dict[int, list[tuple[float, int]]] = {}  # predicate -> (C / P of its node, chain), ascending

    def __len__(self) -> int:
        return len(self._chains)

    def reorder(self, chains: Mapping[int, Iterable[Node]]) -> None:
        """Take these chains instead of all there were, in the order of `order_chains`."""
        kept = {chain: _from_top(nodes) for chain, nodes in chains.items()}
        self.__init__()  # type: ignore[misc]
        names = list(kept)
        for place, number in enumerate(order_chains(list(kept.values()))):
            self._hold(names[number], kept[names[number]], float(place))

    def add(self, chain: int, nodes: Iterable[Node]) -> None:
        """Put a chain where it saves most: beside one neighbour. Costs a few merges for each of its predicates, and
        moves nothing else."""
        nodes = _from_top(nodes)
        best, beside, after = 0.0, -1, False
        for other in self._near(nodes):
            weight = _weight(nodes, self._chains[other])  # of the new chain before the other
            if abs(weight) > best:
                best, beside, after = abs(weight), other, weight > 0
        self._hold(chain, nodes, self._free_label(beside, after))

    def remove(self, chain: int) -> None:
        """Raises KeyError for a chain that is not there."""
        for ratio, node in _ratios(self._chains.pop(chain)):
            holders = self._holders[node.predicate]
            del holders[bisect_left(holders, (ratio, chain))]
            if not holders:
                del self._holders[node.predicate]
        del self._sorted[bisect_left(self._sorted, self._label.pop(chain))]

    def position(self, chain: int) -> float:
        """Chains are evaluated by ascending position."""
        return self._label[chain]

    def nodes(self, chain: int) -> tuple[Node, ...]:
        """From top to bottom."""
        return self._chains[chain]

    def _hold(self, chain: int, nodes: tuple[Node, ...], label: float) -> None:
        self._chains[chain] = nodes
        self._label[chain] = label
        insort(self._sorted, label)
        for ratio, node in _ratios(nodes):
            insort(self._holders.setdefault(node.predicate, []), (ratio, chain))

    def _near(self, nodes: tuple[Node, ...]) -> set[int]:
        """Chains that share a predicate, at most `NEIGHBOURS` to either side of each in the order of P / C."""
        found: set[int] = set()
        for ratio, node in _ratios(nodes):
            holders = self._holders.get(node.predicate, [])
            at = bisect_left(holders, (ratio, -1))
            found.update(chain for _, chain in holders[max(0, at - NEIGHBOURS) : at + NEIGHBOURS])
        return found

    def _free_label(self, beside: int, after: bool) -> float:
        if beside == -1:
            return self._sorted[-1] + 1.0 if self._sorted else 0.0
        at = bisect_right(self._sorted, self._label[beside]) - (not after)
        low = self._sorted[at - 1] if at else self._sorted[0] - 2.0
        high = self._sorted[at] if at < len(self._sorted) else self._sorted[-1] + 2.0
        middle = (low + high) / 2
        if low < middle < high:
            return middle
        self._spread()  # no number is left between two neighbours
        return self._free_label(beside, after)

    def _spread(self) -> None:
        place = {label: float(number) for number, label in enumerate(self._sorted)}
        self._label = {chain: place[label] for chain, label in self._label.items()}
        self._sorted = list(place.values())


def _from_top(nodes: Iterable[Node]) -> tuple[Node, ...]:
    return tuple(sorted(nodes, key=lambda node: node.rank))


def _ratios(nodes: tuple[Node, ...]) -> Iterable[tuple[float, Node]]:
    """Each node with C / P of what stands above it: the smaller, the likelier and cheaper it is reached."""
    above, before = 1.0, 0.0
    for node in nodes:
        yield before / max(above, LEAST), node
        before += above * node.cost
        above *= node.passing


def _weight(one: tuple[Node, ...], other: tuple[Node, ...]) -> float:
    """`w(one, other)`: negative where `one` should come first."""
    flat = _Flat((one, other))
    pair = np.array([[0, 1]], dtype=np.int32)
    return float(pair_weights(pair, flat.first, flat.node, flat.passing, flat.cost)[0])
