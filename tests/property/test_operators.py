"""Subscriptions with operators, under every planner, match as the rules say: random expressions, answers, failures."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kindcast import InvalidSubscription, Matcher, Vocabulary, explain
from kindcast.semantic.language import to_tree
from kindcast.semantic.model import (
    All,
    AnyOf,
    Arithmetic,
    AttributeRef,
    Comparison,
    Constant,
    Expression,
    Not,
    OperatorCall,
    Quantity,
    ValueConstraint,
    Variable,
)
from kindcast.semantic.operators.calls import reading, stop
from kindcast.semantic.planner.learning import Experience
from kindcast.semantic.planner.strategies import PLANNERS
from tests.harness.answering_operators import ISOLATED, NAMES, answer, operators
from tests.oracle.operators import decide
from tests.oracle.world import World

PLAIN = World()
EMPTY = Vocabulary.from_ontologies([])


def function_of(name: str) -> Any:
    """The same operator as the oracle calls it: with the event's data and the number of variables."""
    return lambda data, variables, *constants: answer(name, data, constants[-1], *constants[:-1])


FUNCTIONS = {name: function_of(name) for name in NAMES}


@st.composite
def calls(draw: st.DrawFn) -> OperatorCall:
    """`p(@a, 1, ?x, ?y, 2)`: perhaps an attribute, which the event may lack, a constant, variables (one may stand
    twice), and how many distinct ones there are."""
    names = draw(st.lists(st.sampled_from("xyz"), max_size=2))
    attribute = draw(st.sampled_from([(), (), (), (AttributeRef("a"),), (AttributeRef("b"),)]))
    constant = Constant(draw(st.integers(0, 1)))
    return OperatorCall(
        draw(st.sampled_from(NAMES)), (*attribute, constant, *map(Variable, names), Constant(len(set(names))))
    )


sums = st.recursive(
    st.one_of(st.sampled_from("xyz").map(Variable), st.sampled_from([1, 2, Quantity(1, "kg")]).map(Constant)),
    lambda inner: st.builds(Arithmetic, st.sampled_from("+-*/"), inner, inner),
    max_leaves=3,
)
constraints = st.builds(ValueConstraint, sums, st.sampled_from(["=", "!=", "<", "<=", ">", ">="]), sums)
cheap = st.builds(Comparison, st.just("a"), st.sampled_from(["<", ">="]), st.integers(0, 2).map(Constant))


def expressions() -> st.SearchStrategy[Expression]:
    """Calls, constraints, cheap predicates, under and, or, not."""
    return st.recursive(
        st.one_of(calls(), calls(), cheap, constraints),
        lambda inner: st.one_of(
            st.lists(inner, min_size=1, max_size=3).map(tuple).map(All),
            st.lists(inner, min_size=1, max_size=3).map(tuple).map(AnyOf),
            inner.map(Not),
        ),
        max_leaves=6,
    )


@pytest.mark.parametrize("planner", sorted(PLANNERS))
@settings(deadline=None)
@given(
    asked=st.lists(expressions(), min_size=1, max_size=6),
    seeds=st.lists(st.integers(0, 1000), min_size=1, max_size=3),
    failing=st.sampled_from([0.0, 0.0, 0.3]),
)
def test_matcher_with_operators_decides_as_the_oracle(
    planner: str, asked: list[Expression], seeds: list[int], failing: float
) -> None:
    """Matches, bindings and what is undecided, event after event, while the planner learns."""
    matcher = Matcher(EMPTY, planner=planner, operators=operators())
    kept: dict[str, Expression] = {}
    for number, expression in enumerate(asked):
        try:
            matcher.add(str(number), to_tree(expression))
        except InvalidSubscription:
            continue
        kept[str(number)] = expression
    assume(kept)
    for seed in seeds:
        data = {"seed": seed, "failing": failing, "a": seed % 3}
        expected = {name: decide(expression, data, PLAIN, FUNCTIONS) for name, expression in kept.items()}
        found = matcher.decide(data)
        assert {each.subscription for each in found.matches} == {
            name for name, (verdict, _) in expected.items() if verdict
        }
        assert {each.subscription for each in found.undecided} == {
            name for name, (verdict, _) in expected.items() if verdict is None
        }
        for name in kept:
            told = explain(EMPTY, matcher[name], data, operators=operators())
            assert told["matches"] is expected[name][0], told
            assert told["summary"]
        for match in found.matches:
            rows = {
                frozenset((name, reading(value, EMPTY.units)) for name, value in binding) for binding in match.bindings
            }
            if not failing:
                assert rows == expected[match.subscription][1]


histories = st.lists(
    st.one_of(
        st.tuples(st.just("add"), expressions()),
        st.tuples(st.just("remove"), st.integers(0, 9)),
        st.tuples(st.just("drift"), st.tuples(st.floats(0, 1), st.floats(0.001, 1))),
        st.tuples(st.just("match"), st.integers(0, 1000)),
    ),
    max_size=12,
)


@pytest.mark.parametrize("planner", sorted(PLANNERS))
@settings(deadline=None)
@given(history=histories, first=expressions(), failing=st.sampled_from([0.0, 0.0, 0.3]))
def test_matcher_with_operators_decides_as_the_oracle_whatever_changes_between_events(
    planner: str, history: list[tuple[str, Any]], first: Expression, failing: float
) -> None:
    """Subscriptions come and go, and what is known of operators drifts; the threads that order chains come late."""
    matcher = Matcher(EMPTY, planner=planner, operators=operators())
    kept: dict[str, Expression] = {}
    for number, (step, what) in enumerate([("add", first), *history, ("match", 7)]):
        if step == "add":
            try:
                matcher.add(str(number), to_tree(what))
            except InvalidSubscription:
                continue
            kept[str(number)] = what
        elif step == "remove" and kept:
            name = sorted(kept)[what % len(kept)]
            matcher.remove(name)
            del kept[name]
        elif step == "drift":
            share, seconds = what
            known = matcher.layer.experience.as_records()
            asked = [record | {"held": share * record["asked"], "seconds": seconds} for record in known]
            matcher.layer.learned(Experience.from_records(asked))
        elif step == "match":
            data = {"seed": what, "failing": failing, "a": what % 3}
            expected = {name: decide(expression, data, PLAIN, FUNCTIONS)[0] for name, expression in kept.items()}
            found = matcher.decide(data)
            assert {each.subscription for each in found.matches} == {name for name, told in expected.items() if told}
            undecided = {name for name, told in expected.items() if told is None}
            assert {each.subscription for each in found.undecided} == undecided


FEWER = max(10, settings.default.max_examples // 6)
"""Examples of what is asked for every planner and every way."""
WAYS = {"threads": ("here", 3), "batch": ("batch", 1), "both": ("batch", 2), "kept": ("kept", 1)}
"""How operators run: (which ones, in how many threads)."""


def batch_decides_as_the_oracle(
    planner: str, way: tuple[str, int], asked: list[Expression], seeds: list[int], failing: float
) -> None:
    """Several events at once, whatever runs beside what: matches, bindings, and what is undecided."""
    how, threads = way
    matcher = Matcher(EMPTY, planner=planner, operators=operators(how), operator_threads=threads)
    kept: dict[str, Expression] = {}
    for number, expression in enumerate(asked):
        try:
            matcher.add(str(number), to_tree(expression))
        except InvalidSubscription:
            continue
        kept[str(number)] = expression
    events = [{"seed": seed, "failing": failing, "a": seed % 3} for seed in seeds]
    found = matcher.match_batch(events)
    for number, data in enumerate(events):
        expected = {name: decide(expression, data, PLAIN, FUNCTIONS) for name, expression in kept.items()}
        matched = {name for name, (verdict, _) in expected.items() if verdict}
        assert {match.subscription for match in found[number]} == matched
        undecided = {name for name, (verdict, _) in expected.items() if verdict is None}
        assert {each.subscription for each in found.undecided(number)} == undecided
        for match in found[number] if not failing else ():
            rows = {frozenset((name, reading(value, EMPTY.units)) for name, value in row) for row in match.bindings}
            assert rows == expected[match.subscription][1]


several = given(
    asked=st.lists(expressions(), min_size=1, max_size=6),
    seeds=st.lists(st.integers(0, 1000), min_size=1, max_size=4),
    failing=st.sampled_from([0.0, 0.0, 0.3]),
)


@pytest.mark.parametrize("way", sorted(WAYS))
@pytest.mark.parametrize("planner", sorted(PLANNERS))
@settings(deadline=None, max_examples=FEWER)
@several
def test_matcher_batch_threads_and_kept_answers_decide_as_the_oracle(
    planner: str, way: str, asked: list[Expression], seeds: list[int], failing: float
) -> None:
    """Neither running at once nor asking together changes a match."""
    batch_decides_as_the_oracle(planner, WAYS[way], asked, seeds, failing)


@pytest.mark.parametrize("planner", ["greedy", "naive"])
@settings(deadline=None, max_examples=FEWER)
@several
def test_matcher_with_isolated_operators_decides_as_the_oracle(
    planner: str, asked: list[Expression], seeds: list[int], failing: float
) -> None:
    """Through pipes and other interpreters the answers are the same; so are the failures."""
    batch_decides_as_the_oracle(planner, ("isolated", 2), asked, seeds, failing)


@pytest.fixture(autouse=True, scope="module")
def _no_process_is_left() -> Iterator[None]:
    yield
    for each in ISOLATED:
        stop(each)
