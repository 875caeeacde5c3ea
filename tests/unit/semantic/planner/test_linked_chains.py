"""Linked chains: the cost model of the paper with its slips mended, and the order that follows from it."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kindcast.semantic.planner.problem import pair_weights
from kindcast.semantic.planner.strategies import Chains, LinkedChains, Node, order_chains
from tests.unit.semantic.planner.instances import chain_cost, expected_cost_of_two

PASSING = (0.1, 0.35, 0.5, 0.62, 0.8, 0.95)
COST = (1.0, 1.0, 2.5, 0.2, 4.0, 1.0)


def chain(*predicates: int) -> tuple[Node, ...]:
    """A chain over the predicates above, from top to bottom."""
    nodes = (Node(each, PASSING[each], COST[each]) for each in predicates)
    return tuple(sorted(nodes, key=lambda node: node.rank))


def weight(one: tuple[Node, ...], other: tuple[Node, ...]) -> float:
    """`w(one, other)`: negative where `one` should come first."""
    flat = Chains.of((one, other))
    pair = np.array([[0, 1]], dtype=np.int32)
    return float(pair_weights(pair, flat.first, flat.node, flat.passing, flat.cost)[0])


def order(some: list[tuple[Node, ...]], **options: int) -> list[int]:
    """The order of all, as a list."""
    found: list[int] = order_chains(Chains.of(some), **options).tolist()
    return found


def position(linked: LinkedChains, name: int) -> float:
    return float(linked.positions([name])[0])


chains = st.sets(st.integers(0, 5), min_size=1, max_size=4).map(lambda found: chain(*found))


@given(chains)
def test_chain_top_to_bottom_is_the_cheapest_order_of_its_predicates(one: tuple[Node, ...]) -> None:
    """Erratum 14: ascending c / (1 - p), not descending selectivity."""
    assert chain_cost(one) == pytest.approx(min(map(chain_cost, permutations(one))))


@settings(deadline=None)
@given(chains, chains)
def test_weight_of_two_chains_is_the_difference_of_their_expected_costs(
    one: tuple[Node, ...], other: tuple[Node, ...]
) -> None:
    """Errata 15 to 17: for several links and unequal costs, exact against all outcomes."""
    difference = expected_cost_of_two(one, other) - expected_cost_of_two(other, one)
    assert weight(one, other) == pytest.approx(difference, abs=1e-12)


def test_weight_of_chains_linked_at_the_top_is_zero() -> None:
    """Erratum 15: nothing stands above the link, so C is 0 and P/C is not asked for."""
    assert weight((Node(0, 0.2, 1.0), Node(1, 0.5, 1.0)), (Node(0, 0.2, 1.0), Node(2, 0.6, 1.0))) == 0.0


def test_order_of_two_chains_takes_the_cheaper_one() -> None:
    """Erratum 18: the edge that saves, not the one that costs; one direction only."""
    one, other = chain(0, 2), chain(2, 4)
    first = order([one, other])[0]
    cheaper = 0 if expected_cost_of_two(one, other) < expected_cost_of_two(other, one) else 1
    assert first == cheaper
    assert order([other, one])[0] == 1 - cheaper


@given(st.lists(chains, max_size=12), st.sampled_from([0, 20_000_000]))
def test_order_of_any_chains_is_a_permutation(some: list[tuple[Node, ...]], most_pairs: int) -> None:
    """Each chain once, with all pairs weighed or only near ones; the same chains give the same order."""
    found = order(some, most_pairs=most_pairs)
    assert sorted(found) == list(range(len(some)))
    assert found == order(some, most_pairs=most_pairs)


def test_order_of_chains_without_common_predicates_goes_by_merit() -> None:
    """Fragments: what settles most literals per cost comes first."""
    cheap = (Node(0, 0.5, 1.0),)
    dear = (Node(1, 0.5, 100.0),)
    assert order([dear, cheap]) == [1, 0]


@given(st.lists(chains, min_size=1, max_size=10), st.data())
def test_linked_chains_add_and_remove_keep_positions_distinct(
    some: list[tuple[Node, ...]], data: st.DataObject
) -> None:
    """Whatever comes and goes, every chain has a place of its own, and none moves when another goes."""
    linked = LinkedChains()
    for number, nodes in enumerate(some):
        linked.add(number, nodes)
    assert len({position(linked, number) for number in range(len(some))}) == len(linked) == len(some)
    gone = data.draw(st.integers(0, len(some) - 1))
    before = {number: position(linked, number) for number in range(len(some)) if number != gone}
    linked.remove(gone)
    assert {number: position(linked, number) for number in before} == before
    with pytest.raises(KeyError):
        linked.remove(gone)
    assert position(linked, gone) == np.inf
    linked.add(gone, some[gone])
    linked.check_invariants()


def test_linked_chains_new_chain_stands_on_the_better_side_of_its_neighbour() -> None:
    """Where one order saves, the incremental insertion takes it."""
    one, other = chain(0, 2), chain(2, 4)
    for first, second in ((one, other), (other, one)):
        linked = LinkedChains()
        linked.add(0, first)
        linked.add(1, second)
        second_goes_first = expected_cost_of_two(second, first) < expected_cost_of_two(first, second)
        assert (position(linked, 1) < position(linked, 0)) is second_goes_first


def test_linked_chains_many_insertions_at_one_place_still_find_room() -> None:
    """Labels are spread anew when no number is left between two neighbours."""
    linked = LinkedChains()
    linked.add(0, chain(2, 4))
    for number in range(1, 200):
        linked.add(number, chain(0, 2))
    positions = [position(linked, number) for number in range(200)]
    assert len(set(positions)) == 200


@given(st.lists(chains, min_size=1, max_size=8), st.lists(chains, max_size=4), st.sets(st.integers(0, 7)))
def test_linked_chains_ordered_together_take_the_order_of_all(
    some: list[tuple[Node, ...]], more: list[tuple[Node, ...]], gone: set[int]
) -> None:
    """Everything at once gives the order of `order_chains`, whatever comes and goes afterwards."""
    names = np.arange(len(some), dtype=np.int64) * 3
    linked = LinkedChains.ordered(names, Chains.of(some))
    assert sorted(names.tolist(), key=lambda name: position(linked, name)) == [3 * each for each in order(some)]
    assert len(linked) == len(some)
    for number, nodes in enumerate(more):
        linked.add(3 * number + 1, nodes)
        linked.check_invariants()
    kept = [each for each in order(some) if each not in gone]
    for each in gone & set(range(len(some))):
        linked.remove(3 * each)
        linked.check_invariants()
    assert sorted((3 * each for each in kept), key=lambda name: position(linked, name)) == [3 * each for each in kept]


def test_linked_chains_new_chain_finds_its_neighbour_among_those_ordered_together() -> None:
    """As beside one that was inserted by itself."""
    one, other = chain(0, 2), chain(2, 4)
    for first, second in ((one, other), (other, one)):
        linked = LinkedChains.ordered(np.array([7]), Chains.of([first]))
        linked.add(1, second)
        second_goes_first = expected_cost_of_two(second, first) < expected_cost_of_two(first, second)
        assert (position(linked, 1) < position(linked, 7)) is second_goes_first
