"""The two tables of undecided candidates and predicates."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kindcast.semantic.planner.problem import NOT_NEEDED, WAIT, Estimates, Literals, Undecided
from kindcast.semantic.planner.strategies import PLANNERS, new_strategy
from tests.unit.semantic.planner.instances import candidates

PREDICATES = 6


@given(candidates(), st.permutations(range(PREDICATES)), st.lists(st.sampled_from([True, False, None]), min_size=6))
def test_settle_in_any_order_states_follow_from_the_outcomes(
    asked: list[list[tuple[int, bool]]], order: list[int], outcomes: list[bool | None]
) -> None:
    """A candidate is false by one wrong outcome, satisfied by all, undecidable by failures alone; counts stay right."""
    undecided = Undecided(Literals.of(asked), PREDICATES)
    undecided.check_invariants()
    for predicate in order:
        undecided.settle(predicate, outcomes[predicate])
        undecided.check_invariants()
    wrong = [any(outcomes[p] is (not wanted) for p, wanted in each) for each in asked]
    failed = [any(outcomes[p] is None for p, _ in each) for each in asked]
    numbers = range(len(asked))
    assert undecided.satisfied() == [c for c in numbers if not wrong[c] and not failed[c]]
    assert undecided.undecidable() == [c for c in numbers if not wrong[c] and failed[c]]
    assert undecided.unsettled() == 0


def test_needed_predicate_of_decided_candidates_is_not_needed() -> None:
    """What only decided candidates hold need not be asked; who holds it is known all the same."""
    undecided = Undecided(Literals.of([[(0, True), (1, True)], [(2, True)]]), 3)
    undecided.settle(0, False)
    assert [undecided.needed(p) for p in range(3)] == [False, False, True]
    assert undecided.holders(1).tolist() == [0]
    assert [undecided.is_open(c) for c in range(2)] == [False, True]


def test_candidate_without_literals_is_satisfied_at_once() -> None:
    """Nothing is left to ask."""
    assert Undecided(Literals.of([[]]), 0).satisfied() == [0]


@pytest.mark.parametrize("planner", sorted(PLANNERS))
@settings(deadline=None)
@given(
    asked=candidates(),
    outcomes=st.lists(st.sampled_from([True, True, False, None]), min_size=PREDICATES, max_size=PREDICATES),
    seed=st.integers(0, 2**32 - 1),
)
def test_begin_several_under_way_decides_the_same_and_asks_nothing_for_nought(
    planner: str, asked: list[list[tuple[int, bool]]], outcomes: list[bool | None], seed: int
) -> None:
    """Whatever is begun, and in whatever order answers come: the same states as one by one, every predicate at most
    once, and what is begun has a holder that no answer under way can decide."""
    chance = random.Random(seed)  # not drawn as the plan goes: sub_order may refresh its order in the background
    strategy = new_strategy(planner)
    for predicate in range(PREDICATES):
        strategy.learned(predicate, 0.5, 1.0 + predicate)
    for chain, literals in enumerate(asked):
        strategy.add(chain, [p for p, _ in literals], [want for _, want in literals])
    undecided = Undecided(Literals.of(asked), PREDICATES)
    plan = strategy.plan(undecided, Estimates(np.full(PREDICATES, 0.5), np.arange(1.0, 7.0)), range(len(asked)))
    begun: list[int] = []
    seen: list[int] = []
    while (chosen := next(plan, None)) is not None:
        if chosen != WAIT:
            assert chosen not in seen
            seen.append(chosen)
            free = [c for c in undecided.holders(chosen).tolist() if undecided.is_open(c)]
            assert free or planner == "naive"
            undecided.begin(chosen)
            begun.append(chosen)
        undecided.check_invariants()
        while begun and (chosen == WAIT or len(begun) == 3 or chance.random() < 0.3):
            ended = begun.pop(chance.randrange(len(begun)))
            undecided.settle(ended, outcomes[ended])
            undecided.check_invariants()
            if chosen == WAIT:
                break
    for ended in begun:  # what was under way when something else decided the last candidate
        undecided.settle(ended, outcomes[ended])
    assert undecided.unsettled() == 0
    alone = Undecided(Literals.of(asked), PREDICATES)
    for predicate in range(PREDICATES):
        alone.settle(predicate, outcomes[predicate])
    assert undecided.state.tolist() == alone.state.tolist()


def test_group_one_satisfied_candidate_is_enough_for_the_others() -> None:
    """What only they hold is not needed any more; a candidate that decides nothing for others stops nobody."""
    undecided = Undecided(Literals.of([[(0, True)], [(1, True), (2, True)], [(1, True)]]), 3)
    undecided.group([0, 1], decisive=[0])
    undecided.settle(0, True)
    undecided.check_invariants()
    assert undecided.state.tolist() == [1, NOT_NEEDED, 0]
    assert [undecided.needed(p) for p in range(3)] == [False, True, False]
    undecided.settle(1, True)
    assert undecided.satisfied() == [0, 2]
    weak = Undecided(Literals.of([[(0, True)], [(1, True)]]), 2)
    weak.group([0, 1], decisive=[])
    weak.settle(0, True)
    assert weak.needed(1)
    at_once = Undecided(Literals.of([[], [(0, True)]]), 1)
    at_once.group([0, 1], decisive=[0, 1])
    assert not at_once.needed(0)
