"""Every strategy decides every candidate, asks nothing twice, and keeps to the order that its paper gives it."""

from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kindcast.semantic.planner.problem import Estimates, Literals, Undecided
from kindcast.semantic.planner.strategies import PLANNERS, UnknownPlanner, greedy, naive, new_strategy, sequential
from tests.unit.semantic.planner.instances import candidates, evaluated

PREDICATES = 6
Asked = list[list[tuple[int, bool]]]


@pytest.mark.parametrize("planner", sorted(PLANNERS))
@given(
    asked=candidates(),
    outcomes=st.lists(st.sampled_from([True, True, False, False, None]), min_size=PREDICATES, max_size=PREDICATES),
    holds=st.lists(st.floats(0, 1), min_size=PREDICATES, max_size=PREDICATES),
    cost=st.lists(st.floats(0.001, 10), min_size=PREDICATES, max_size=PREDICATES),
)
def test_plan_whatever_the_estimates_decides_all_candidates(
    planner: str, asked: Asked, outcomes: list[bool | None], holds: list[float], cost: list[float]
) -> None:
    """Estimates, even wrong ones, change the order and never the result."""
    strategy = new_strategy(planner)
    for predicate in range(PREDICATES):
        strategy.learned(predicate, holds[predicate], cost[predicate])
    for chain, literals in enumerate(asked):
        strategy.add(chain, [p for p, _ in literals], [want for _, want in literals])
    undecided = Undecided(Literals.of(asked), PREDICATES)
    estimates = Estimates(np.array(holds), np.array(cost))
    evaluated(strategy.plan(undecided, estimates, range(len(asked))), undecided, outcomes)
    assert undecided.unsettled() == 0
    wrong = [any(outcomes[p] is (not wanted) for p, wanted in each) for each in asked]
    failed = [any(outcomes[p] is None for p, _ in each) for each in asked]
    assert undecided.satisfied() == [c for c in range(len(asked)) if not wrong[c] and not failed[c]]
    for chain in range(len(asked)):
        strategy.remove(chain)


def test_new_strategy_unknown_name_lists_the_known_ones() -> None:
    """The error teaches."""
    with pytest.raises(UnknownPlanner, match="greedy, naive, sequential, sub_order"):
        new_strategy("best")


def test_naive_shared_predicate_is_remembered_but_not_used_ahead() -> None:
    """The second candidate asks its first predicate although its second one is known to be false already."""
    undecided = Undecided(Literals.of([[(0, True)], [(1, True), (0, True)]]), 2)
    assert evaluated(naive(undecided), undecided, [False, True]) == [0, 1]


def test_sequential_decided_candidate_goes_on_with_what_others_need() -> None:
    """Erratum 19: what nobody needs any more is not evaluated, and not counted; what another one needs is."""
    undecided = Undecided(Literals.of([[(0, True), (1, True), (2, True)], [(2, True)]]), 3)
    assert evaluated(sequential(undecided), undecided, [False, True, True]) == [0, 2]


@settings(deadline=None)
@given(candidates(predicates=5, most=5), st.lists(st.booleans(), min_size=5, max_size=5))
def test_sequential_never_costs_more_than_d_times_the_best_schedule(asked: Asked, outcomes: list[bool]) -> None:
    """Theorem 2, for each event: against the smallest set of predicates that decides all candidates."""
    undecided = Undecided(Literals.of(asked), 5)
    spent = len(evaluated(sequential(undecided), undecided, outcomes))
    longest = max(map(len, asked), default=0)
    assert spent <= longest * _least(asked, outcomes)


def _least(asked: Asked, outcomes: list[bool]) -> int:
    """The fewest predicates that decide every candidate, known beforehand."""
    for size in range(6):
        for chosen in combinations(range(5), size):
            if all(_decides(set(chosen), literals, outcomes) for literals in asked):
                return size
    raise AssertionError("all predicates together decide everything")


def _decides(chosen: set[int], literals: list[tuple[int, bool]], outcomes: list[bool]) -> bool:
    wrong = [p for p, wanted in literals if outcomes[p] is not wanted]
    return any(p in chosen for p in wrong) if wrong else all(p in chosen for p, _ in literals)


def test_greedy_popular_predicate_comes_first() -> None:
    """With equal chances and costs, what most candidates hold settles most."""
    undecided = Undecided(Literals.of([[(0, True), (1, True)], [(2, True), (1, True)], [(3, True), (1, True)]]), 4)
    assert evaluated(
        greedy(undecided, Estimates(np.full(4, 0.5), np.ones(4))), undecided, [True, False, True, True]
    ) == [1]


def test_greedy_cheap_predicate_comes_before_an_expensive_one() -> None:
    """The same work for less."""
    estimates = Estimates(np.array([0.5, 0.5]), np.array([10.0, 1.0]))
    undecided = Undecided(Literals.of([[(0, True), (1, True)]]), 2)
    assert evaluated(greedy(undecided, estimates), undecided, [False, False]) == [1]


def test_greedy_negated_predicate_that_likely_holds_is_asked_early() -> None:
    """`not p` is settled by p being true."""
    estimates = Estimates(np.array([0.9, 0.9]), np.array([1.0, 1.0]))
    undecided = Undecided(Literals.of([[(0, True), (1, False)]]), 2)
    assert evaluated(greedy(undecided, estimates), undecided, [True, True]) == [1]


@given(candidates())
def test_greedy_always_takes_the_largest_expected_gain(asked: Asked) -> None:
    """The heap agrees with a look at all predicates, step by step."""
    holds = np.array([0.1, 0.3, 0.5, 0.7, 0.9, 0.2])
    undecided = Undecided(Literals.of(asked), PREDICATES)
    for predicate in greedy(undecided, Estimates(holds, np.ones(PREDICATES))):
        gains = [_gain(asked, undecided, p, float(holds[p])) for p in range(PREDICATES)]
        assert gains[predicate] == pytest.approx(max(gains))
        undecided.settle(predicate, predicate % 2 == 0)


def _gain(asked: Asked, undecided: Undecided, predicate: int, holds: float) -> float:
    if undecided.outcome[predicate] != -1:
        return 0.0
    total = 0.0
    for candidate, literals in enumerate(asked):
        for p, wanted in literals:
            if p == predicate and undecided.is_open(candidate):
                fails = 1 - holds if wanted else holds
                total += fails * int(undecided.remaining[candidate]) + (1 - fails)
    return total


def test_least_of_a_shared_false_predicate_is_one() -> None:
    """The yardstick of Theorem 2 itself."""
    assert _least([[(0, True), (1, True)], [(1, True), (2, True)]], [True, False, True, True, True]) == 1
    assert all(_least([[(0, True)]], list(o)) == 1 for o in product([True, False], repeat=5))
