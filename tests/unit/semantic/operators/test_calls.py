"""Which calls are the same, and what an operator may return."""

from typing import Any

import numpy as np
import pytest

from kindcast import Matcher, Vocabulary, operator
from kindcast.semantic.model import AttributeRef, Constant, OperatorCall, Quantity, Variable
from kindcast.semantic.operators.calls import MOST_BINDINGS, Answer, Call, EventView, OperatorFailed, ask, unified
from kindcast.semantic.operators.declaration import Operator
from kindcast.semantic.units import Units

UNITS = Units()


def call_of(*names: str) -> Call:
    """`p(?…)` with variables of these names, unified."""
    found, _ = unified(OperatorCall("p", tuple(map(Variable, names))), {"p": returning(True)})
    return found


def returning(value: Any) -> Operator:
    """An operator `p` that always says the same."""
    return Operator(name="p", function=lambda event, *given: value)


def answered(value: Any, variables: int, **data: Any) -> Answer:
    """What a call with so many variables makes of a returned value."""
    matcher = Matcher(Vocabulary.from_ontologies([]))
    call = Call("p", "1", tuple(range(variables)))
    return ask(call, returning(value), EventView(matcher.canonicalise(data)), UNITS)


def test_unified_names_of_variables_do_not_matter_but_their_pattern_does() -> None:
    """Rule 17: p(?a, ?b) is p(?c, ?d), and neither is p(?a, ?a)."""
    assert call_of("a", "b") == call_of("c", "d") != call_of("a", "a")
    assert call_of("a", "b", "a") == call_of("x", "y", "x")


def test_unified_constants_attributes_and_version_tell_calls_apart() -> None:
    """One more difference, another call."""
    calls = {
        unified(OperatorCall("p", arguments), {"p": Operator(name="p", function=lambda event: True, version=version)})[
            0
        ]
        for arguments in ((Constant(1),), (Constant(2),), (Constant(True),), (Constant("1"),), (AttributeRef("a"),))
        for version in ("1", "2")
    }
    assert len(calls) == 10


@pytest.mark.parametrize(
    ("value", "variables", "answer"),
    [
        (True, 0, Answer(True)),
        (None, 0, Answer(False)),
        ([], 0, Answer(False)),
        (None, 1, Answer(False)),
        (False, 1, Answer(False)),
        ([], 2, Answer(False)),
        ([1, (1.0,), True], 1, Answer(True, ((1,), (True,)))),
        ([(1, "a"), (1, "a")], 2, Answer(True, ((1, "a"),))),
        ([Quantity(1, "km"), Quantity(1000, "m")], 1, Answer(True, ((Quantity(1, "km"),),))),
        (iter([(5,)]), 1, Answer(True, ((5,),))),
        (np.bool_(True), 0, Answer(True)),
        (np.bool_(False), 1, Answer(False)),
        (np.arange(1, 3), 1, Answer(True, ((1,), (2,)))),
    ],
)
def test_ask_what_an_operator_may_return(value: Any, variables: int, answer: Answer) -> None:
    """Booleans; bindings, each kept once by what it compares as."""
    assert answered(value, variables) == answer


@pytest.mark.parametrize(
    ("value", "variables", "said"),
    [
        ("yes", 0, "a bool is expected"),
        (1, 0, "a bool is expected"),
        (True, 1, "an iterable of tuples is expected"),
        ("abc", 1, "an iterable of tuples is expected"),
        ({"n": 1}, 1, "an iterable of tuples is expected"),
        ([(1, 2)], 1, "2 values for 1 variables"),
        ([1], 2, "1 values for 2 variables"),
        ([float("nan")], 1, "not a number to compare"),
        ([object()], 1, "not a bool, int"),
        (["\ud800"], 1, "half of a surrogate pair"),
        ([10**400], 1, "too large"),
        ([Quantity(1, "apples")], 1, "apples"),
        (range(MOST_BINDINGS + 1), 1, "more than 1,000 bindings"),
    ],
)
def test_ask_rubbish_is_a_failure_with_its_reason(value: Any, variables: int, said: str) -> None:
    """Nothing that an operator returns is taken for an answer unless it is one."""
    with pytest.raises(OperatorFailed, match=said):
        answered(value, variables)


def test_ask_endless_bindings_stop_at_the_bound() -> None:
    """A generator that never ends costs a thousand steps."""

    def endless() -> Any:
        number = 0
        while True:
            yield number
            number += 1

    with pytest.raises(OperatorFailed, match="more than 1,000"):
        answered(endless(), 1)


def test_ask_absent_attribute_is_false_and_the_operator_is_not_called() -> None:
    """Rule 17."""
    called: list[Any] = []

    @operator("p")
    def p(event: Any, values: Any) -> bool:
        called.append(values)
        return True

    matcher = Matcher(Vocabulary.from_ontologies([]), operators=[p])
    matcher.add("s", "p(@image)")
    matcher.add("n", "not p(@image)")
    assert matcher.match({"other": 1}) == []
    assert called == []
    assert [match.subscription for match in matcher.match({"image": ["a", "b"]})] == ["s"]
    assert called == [("a", "b")]


def test_event_view_shows_values_as_published() -> None:
    """Strings, numbers, booleans; a quantity as an object becomes one; what is absent has no values."""
    matcher = Matcher(Vocabulary.from_ontologies([]))
    data = {"a": ["x", 5, True, 2.5], "q": {"value": 86, "unit": "degF"}, "big": 2**53}
    view = EventView(matcher.canonicalise(data))
    assert set(view["a"]) == {"x", 5, True, 2.5}
    assert view["q"] == (Quantity(86, "degF"),)
    assert (view["big"], view["nothing"]) == ((2**53,), ())
    assert "a" in view
    assert "nothing" not in view
    assert "q.value" in set(view)
    assert len(view) == len(set(view))
