"""The two tables of undecided candidates and predicates."""

from hypothesis import given
from hypothesis import strategies as st

from semantic.planner.problem import Literals, Undecided
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
