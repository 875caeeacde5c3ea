"""Calls of operators, as they are shared: what two subscriptions ask alike is asked once.

Two calls are the same when operator and version, constants, names of attributes and the pattern of variables agree:
`near(?a, ?b)` is `near(?c, ?d)` and not `near(?a, ?a)`. docs/matching-semantics.md, rule 17.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kindcast.semantic.model import AttributeRef, Constant, OperatorCall, Variable
from kindcast.semantic.operators.declaration import KINDS, Operator, constant_given
from kindcast.semantic.operators.failures import OperatorFailed
from kindcast.semantic.operators.isolation import Cancellation
from kindcast.semantic.operators.readings import EventView, reading
from kindcast.semantic.operators.running import run
from kindcast.semantic.units import Units

__all__ = [
    "MOST_BINDINGS",
    "Answer",
    "Call",
    "OperatorFailed",
    "Remembered",
    "ask",
    "ask_several",
    "unified",
]

MOST_BINDINGS = 1_000
"""Bindings that one call may return: they multiply when they are joined."""


@dataclass(frozen=True, slots=True)
class Remembered:
    """What an operator's function may return in place of a value: one that it had already. `seconds` is what it took
    to find, once; 0.0 where that was told before, so that nothing is learned twice."""

    value: object
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Call:
    """A call without the names of its variables: an int in `arguments` is a variable, by first appearance."""

    operator: str
    version: str
    arguments: tuple[Constant | AttributeRef | int, ...]

    @property
    def variables(self) -> int:
        """How many distinct variables it has."""
        return max((each + 1 for each in self.arguments if isinstance(each, int)), default=0)

    @property
    def attributes(self) -> tuple[str, ...]:
        """The attributes whose values it is given."""
        return tuple(each.name for each in self.arguments if isinstance(each, AttributeRef))

    def given(self, event: EventView) -> list[object]:
        """What the function gets after the event."""
        return [_argument(each, event) for each in self.arguments if not isinstance(each, int)]

    def __str__(self) -> str:
        return f"{self.operator}({', '.join(map(_shown, self.arguments))})"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a call came to: whether it holds, and, in a call with variables, the distinct bindings, one value a
    variable. `seconds`: what it took, where that is not the time of asking."""

    holds: bool
    bindings: tuple[tuple[Any, ...], ...] = ()
    seconds: float | None = None


def unified(call: OperatorCall, operators: Mapping[str, Operator]) -> tuple[Call, tuple[str, ...]]:
    """The shared form of `call`, and the names of its distinct variables by first appearance."""
    numbers: dict[str, int] = {}
    arguments = tuple(
        numbers.setdefault(each.name, len(numbers)) if isinstance(each, Variable) else each for each in call.arguments
    )
    return Call(call.name, operators[call.name].version, arguments), tuple(numbers)


def ask(call: Call, operator: Operator, event: EventView, units: Units) -> Answer:
    """Call the operator. False without calling it where the event lacks an attribute that it asks for.

    Raises `OperatorFailed`, whatever the operator did.
    """
    answer = ask_several([(call, event)], operator, units)[0]
    if isinstance(answer, OperatorFailed):
        raise answer
    return answer


def ask_several(
    asked: Sequence[tuple[Call, EventView]],
    operator: Operator,
    units: Units,
    *,
    cancellation: Cancellation | None = None,
) -> list[Answer | OperatorFailed]:
    """The answers of one operator to several calls, on one event or on many, in their order; at once, where it can."""
    found: list[Answer | OperatorFailed] = [Answer(False)] * len(asked)
    real = [number for number, (call, event) in enumerate(asked) if all(name in event for name in call.attributes)]
    given = [(event, *call.given(event)) for call, event in (asked[number] for number in real)]
    for number, outcome in zip(real, run(operator, given, cancellation=cancellation) if given else (), strict=True):
        found[number] = _told(asked[number][0], operator, outcome, units)
    return found


def _told(call: Call, operator: Operator, outcome: Any, units: Units) -> Answer | OperatorFailed:
    if isinstance(outcome, OperatorFailed):
        return outcome.of(call)
    try:
        if isinstance(outcome, Remembered):
            return replace(_answer(call, operator, outcome.value, units), seconds=outcome.seconds)
        return _answer(call, operator, outcome, units)
    except OperatorFailed as failure:
        return failure.of(call)
    except Exception as error:  # an iterable of bindings may raise anything, and so may what is in it
        return OperatorFailed(f"raised {type(error).__name__}: {error}").of(call)


def _answer(call: Call, operator: Operator, returned: object, units: Units) -> Answer:
    if not call.variables:
        if returned is None or isinstance(returned, bool):
            return Answer(bool(returned))
        if isinstance(returned, list | tuple | set | frozenset):
            return Answer(len(returned) > 0)
        raise OperatorFailed(f"returned {type(returned).__name__}; a bool is expected")
    if returned is None or returned is False:
        return Answer(False)
    if isinstance(returned, bool | str | Mapping) or not hasattr(returned, "__iter__"):
        raise OperatorFailed(f"returned {type(returned).__name__}; bindings are expected, a tuple each")
    found: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for number, binding in enumerate(returned):
        if number == MOST_BINDINGS:
            raise OperatorFailed(f"returned more than {MOST_BINDINGS:,} bindings")
        values = binding if isinstance(binding, tuple) else (binding,)
        if len(values) != call.variables:
            raise OperatorFailed(f"returned a binding of {len(values)} values for {call.variables} variables")
        for place, value in enumerate(values if operator.binds else ()):
            declared = operator.binds[place]  # type: ignore[index]
            if KINDS.get(type(value)) != KINDS[declared]:
                raise OperatorFailed(f"bound a {type(value).__name__}, {declared.__name__} is declared")
        found.setdefault(tuple(reading(value, units) for value in values), values)
    return Answer(bool(found), tuple(found.values()))


def _argument(argument: Constant | AttributeRef, event: EventView) -> object:
    if isinstance(argument, AttributeRef):
        return event[argument.name]
    return constant_given(argument)


def _shown(argument: Constant | AttributeRef | int) -> str:
    if isinstance(argument, int):
        return f"?{argument + 1}"
    if isinstance(argument, AttributeRef):
        return f"@{argument.name}"
    value = argument.value
    return repr(value) if isinstance(value, str) else str(getattr(value, "text", value))
