"""Calls of operators, as they are shared: what two subscriptions ask alike is asked once.

Two calls are the same when operator and version, constants, names of attributes and the pattern of variables agree:
`near(?a, ?b)` is `near(?c, ?d)` and not `near(?a, ?a)`. docs/matching-semantics.md, rule 17.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from semantic.model import AttributeRef, Constant, OperatorCall, Term, Variable
from semantic.operators.declaration import Operator
from semantic.operators.readings import EventView, reading
from semantic.units import Units

__all__ = ["MOST_BINDINGS", "Answer", "Call", "OperatorFailed", "ask", "unified"]

MOST_BINDINGS = 1_000
"""Bindings that one call may return: they multiply when they are joined."""


class OperatorFailed(Exception):
    """An operator raised, or returned what it must not; nothing is decided by it."""


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

    def __str__(self) -> str:
        return f"{self.operator}({', '.join(map(_shown, self.arguments))})"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a call came to: whether it holds, and, in a call with variables, the distinct bindings, one value a
    variable."""

    holds: bool
    bindings: tuple[tuple[Any, ...], ...] = ()


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
    if any(name not in event for name in call.attributes):
        return Answer(False)
    arguments = [_argument(each, event) for each in call.arguments if not isinstance(each, int)]
    try:
        returned = operator.function(event, *arguments)
        return _answer(call, returned, units)
    except OperatorFailed:
        raise
    except Exception as error:  # whatever a plug-in raises is its failure and nobody else's
        raise OperatorFailed(f"{call} raised {type(error).__name__}: {error}") from error


def _answer(call: Call, returned: object, units: Units) -> Answer:
    if not call.variables:
        if returned is None or isinstance(returned, bool):
            return Answer(bool(returned))
        if isinstance(returned, list | tuple | set | frozenset):
            return Answer(len(returned) > 0)
        raise OperatorFailed(f"{call} returned {type(returned).__name__}; a bool is expected")
    if returned is None or returned is False:
        return Answer(False)
    if isinstance(returned, bool | str | Mapping) or not hasattr(returned, "__iter__"):
        raise OperatorFailed(f"{call} returned {type(returned).__name__}; bindings are expected, a tuple each")
    found: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for number, binding in enumerate(returned):
        if number == MOST_BINDINGS:
            raise OperatorFailed(f"{call} returned more than {MOST_BINDINGS:,} bindings")
        values = binding if isinstance(binding, tuple) else (binding,)
        if len(values) != call.variables:
            raise OperatorFailed(f"{call} returned a binding of {len(values)} values for {call.variables} variables")
        found.setdefault(tuple(reading(value, units) for value in values), values)
    return Answer(bool(found), tuple(found.values()))


def _argument(argument: Constant | AttributeRef, event: EventView) -> object:
    if isinstance(argument, AttributeRef):
        return event[argument.name]
    value = argument.value
    return (value.iri or value.text) if isinstance(value, Term) else value


def _shown(argument: Constant | AttributeRef | int) -> str:
    if isinstance(argument, int):
        return f"?{argument + 1}"
    if isinstance(argument, AttributeRef):
        return f"@{argument.name}"
    value = argument.value
    return repr(value) if isinstance(value, str) else str(getattr(value, "text", value))
