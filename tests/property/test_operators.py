"""Subscriptions with operators, under every planner, match as the rules say: random expressions, answers, failures."""

import random
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from semantic import InvalidSubscription, Matcher, Vocabulary, explain
from semantic.language import to_tree
from semantic.model import (
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
from semantic.operators.declaration import Operator
from semantic.operators.readings import reading
from semantic.planner.strategies import PLANNERS
from tests.oracle.operators import Failure, decide
from tests.oracle.world import World

NAMES = ("p", "q", "r")
PLAIN = World()
EMPTY = Vocabulary.from_ontologies([])


def answer(name: str, data: Mapping[str, Any], variables: int, *constants: Any) -> Any:
    """What operator `name` says of an event: any answer, but always the same one; sometimes it fails."""
    chance = random.Random(f"{data['seed']} {name} {variables} {constants}")
    if chance.random() < data["failing"]:
        raise Failure
    if not variables:
        return chance.random() < 0.5
    values = (1, 2, 3, Quantity(1, "kg"), Quantity(1000, "g"), Quantity(2, "kg"))
    return [tuple(chance.choice(values) for _ in range(variables)) for _ in range(chance.choice((0, 1, 2, 4)))]


def operators() -> list[Operator]:
    """The operators as a matcher gets them: their last constant tells how many variables the call has."""

    def function(name: str) -> Any:
        def called(event: Mapping[str, tuple[Any, ...]], *given: Any) -> Any:
            *constants, variables = [each for each in given if not isinstance(each, tuple)]
            assert all(isinstance(each, int) for each in constants)
            return answer(name, {key: event[key][0] for key in ("seed", "failing")}, variables, *constants)

        return called

    return [Operator(name=name, function=function(name)) for name in NAMES]


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
            assert told["matches"] is (expected[name][0] is True), told
            assert told["summary"]
        for match in found.matches:
            rows = {
                frozenset((name, reading(value, EMPTY.units)) for name, value in binding) for binding in match.bindings
            }
            if not failing:
                assert rows == expected[match.subscription][1]
