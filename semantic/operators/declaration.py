"""Operators: functions that answer expensive predicates, with what they say of themselves.

@operator("locIn", cost=0.02, selectivity=0.1)
def loc_in(event, region): ...
"""

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from semantic.errors import InvalidDeclaration

__all__ = ["Operator", "operator", "operators_by_name"]

NAME = r"[A-Za-z_][A-Za-z0-9_]*"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Operator:
    """An operator. `function(event, *arguments)` gets the event as attribute → tuple of values, then the constants and
    the values of attributes (`@name`, a tuple) of the call in their order; variables are not passed.

    It returns a bool; in a call with variables an iterable of tuples, one value for each distinct variable in order of
    first appearance (for a single variable the bare value will do). `None` and what is empty mean no. `cost` (seconds)
    and `selectivity` (probability) are only what to assume before anything was learned. `version` tells apart two
    operators of one name: their answers are never shared.
    """

    name: str
    function: Callable[..., Any]
    cost: float = 0.001
    selectivity: float = 0.5
    version: str = "1"
    signature: inspect.Signature = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not re.fullmatch(NAME, self.name):
            raise InvalidDeclaration(f"operator {self.name!r}: a name is letters, digits and _, no digit first")
        if not 0 <= self.selectivity <= 1:
            raise InvalidDeclaration(f"operator {self.name!r}: selectivity is a probability, not {self.selectivity}")
        if not 0 < self.cost < float("inf"):
            raise InvalidDeclaration(f"operator {self.name!r}: cost is a number of seconds, not {self.cost}")
        object.__setattr__(self, "signature", inspect.signature(self.function))

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """The function itself."""
        return self.function(*arguments, **named)

    def takes(self, arguments: int) -> bool:
        """Whether the function can be called with an event and so many arguments."""
        try:
            self.signature.bind(None, *range(arguments))
        except TypeError:
            return False
        return True


def operator(
    name: str, *, cost: float = 0.001, selectivity: float = 0.5, version: str = "1"
) -> Callable[[Callable[..., Any]], Operator]:
    """Make a function an operator. Raises `InvalidDeclaration` for a name or number that makes no sense.

    >>> @operator("longer", cost=0.01)
    ... def longer(event, length):
    ...     return any(len(name) > length for name in event.get("name", ()))
    >>> longer({"name": ("kindcast",)}, 3)
    True
    """

    def made(function: Callable[..., Any]) -> Operator:
        return Operator(name=name, function=function, cost=cost, selectivity=selectivity, version=version)

    return made


def operators_by_name(operators: Any) -> Mapping[str, Operator]:
    """Raises `InvalidDeclaration` for what is no operator, and for two of one name."""
    found: dict[str, Operator] = {}
    for each in operators:
        if not isinstance(each, Operator):
            raise InvalidDeclaration(f"{each!r} is no operator: decorate the function with @operator(name)")
        if each.name in found:
            raise InvalidDeclaration(f"there are two operators of the name {each.name!r}")
        found[each.name] = each
    return found
