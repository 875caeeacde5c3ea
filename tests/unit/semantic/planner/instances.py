"""Small planning problems, and what evaluating them costs, by trying everything."""

from collections.abc import Callable, Iterator, Sequence
from itertools import product

from hypothesis import strategies as st

from kindcast.semantic.planner.problem import Undecided
from kindcast.semantic.planner.strategies import Node

__all__ = ["candidates", "chain_cost", "evaluated", "expected_cost_of_two"]


def candidates(predicates: int = 6, most: int = 6) -> st.SearchStrategy[list[list[tuple[int, bool]]]]:
    """Candidates as (predicate, wanted outcome) pairs, no predicate twice."""
    literal = st.tuples(st.integers(0, predicates - 1), st.booleans())
    one = st.lists(literal, min_size=1, max_size=4, unique_by=lambda pair: pair[0])
    return st.lists(one, max_size=most)


def evaluated(plan: Iterator[int], undecided: Undecided, outcomes: Sequence[bool | None]) -> list[int]:
    """The predicates that `plan` asks for, each settled with its outcome."""
    asked = []
    for predicate in plan:
        assert undecided.outcome[predicate] == -1, "a predicate is asked twice"
        undecided.settle(predicate, outcomes[predicate])
        asked.append(predicate)
    return asked


def chain_cost(chain: Sequence[Node]) -> float:
    """The expected cost of one chain, from top to bottom."""
    total, reached = 0.0, 1.0
    for node in chain:
        total += reached * node.cost
        reached *= node.passing
    return total


def expected_cost_of_two(first: Sequence[Node], second: Sequence[Node]) -> float:
    """The expected cost of two chains, the first one first, over all outcomes of their predicates."""
    chance = {node.predicate: node.passing for node in (*first, *second)}
    cost = {node.predicate: node.cost for node in (*first, *second)}
    total = 0.0
    for outcome in product((True, False), repeat=len(chance)):
        truth = dict(zip(chance, outcome, strict=True))
        weight = 1.0
        for predicate, holds in truth.items():
            weight *= chance[predicate] if holds else 1 - chance[predicate]
        total += weight * sum(cost[predicate] for predicate in _asked((first, second), truth.__getitem__))
    return total


def _asked(chains: Sequence[Sequence[Node]], truth: Callable[[int], bool]) -> set[int]:
    """What linked chains ask in this order: a chain with a node known to be false is not begun."""
    known: dict[int, bool] = {}
    for chain in chains:
        if any(known.get(node.predicate) is False for node in chain):
            continue
        for node in chain:
            if node.predicate not in known:
                known[node.predicate] = truth(node.predicate)
            if not known[node.predicate]:
                break
    return set(known)
