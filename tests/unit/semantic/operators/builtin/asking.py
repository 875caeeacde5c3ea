"""One built-in operator, asked through a matcher as a subscriber would."""

from collections.abc import Iterable
from typing import Any

from kindcast import InvalidSubscription, Matcher, Operator, Vocabulary

__all__ = ["bindings", "holds", "reason", "refused"]

EMPTY = Vocabulary.from_ontologies([])


def _decided(operators: Iterable[Operator], expression: str, data: dict[str, Any]) -> Any:
    matcher = Matcher(EMPTY, operators=operators)
    matcher.add("s", expression)
    return matcher.decide(data)


def holds(operators: Iterable[Operator], expression: str, **data: Any) -> bool:
    """Whether an event with this data matches."""
    decided = _decided(operators, expression, data)
    assert decided.undecided == [], decided.undecided
    return bool(decided.matches)


def bindings(operators: Iterable[Operator], expression: str, **data: Any) -> list[tuple[Any, ...]]:
    """The values of the variables, in the order of their names."""
    decided = _decided(operators, expression, data)
    assert decided.undecided == [], decided.undecided
    return [tuple(value for _, value in row) for match in decided.matches for row in match.bindings]


def reason(operators: Iterable[Operator], expression: str, **data: Any) -> str:
    """Why the operator has no answer."""
    (undecided,) = _decided(operators, expression, data).undecided
    return str(undecided.reason)


def refused(operators: Iterable[Operator], expression: str) -> str:
    """Why the subscription is refused."""
    try:
        Matcher(EMPTY, operators=operators).add("s", expression)
    except InvalidSubscription as error:
        return str(error.problems[0].detail)
    raise AssertionError("it is taken")
