"""Operators that answer at random, but always the same to the same question; here, in batches, in other processes."""

import random
from collections.abc import Mapping, Sequence
from typing import Any

from kindcast.semantic.model import Quantity
from kindcast.semantic.operators.declaration import Operator
from tests.oracle.operators import Failure

__all__ = ["NAMES", "answer", "operators"]

NAMES = ("p", "q", "r")


def answer(name: str, data: Mapping[str, Any], variables: int, *constants: Any) -> Any:
    """What operator `name` says of an event: any answer, but always the same one; sometimes it fails."""
    chance = random.Random(f"{data['seed']} {name} {variables} {constants}")
    if chance.random() < data["failing"]:
        raise Failure
    if not variables:
        return chance.random() < 0.5
    values = (1, 2, 3, Quantity(1, "kg"), Quantity(1000, "g"), Quantity(2, "kg"))
    return [tuple(chance.choice(values) for _ in range(variables)) for _ in range(chance.choice((0, 1, 2, 4)))]


def operators(how: str = "here") -> list[Operator]:
    """The operators as a matcher gets them: their last constant tells how many variables the call has. `how`: `here`,
    `batch`, `isolated`, or `kept` (answers are used again)."""
    if how == "isolated":
        return list(ISOLATED)
    functions = (p, q, r)
    if how == "batch":
        return [Operator(name=n, function=f, batch=b) for n, f, b in zip(NAMES, functions, BATCHES, strict=True)]
    if how == "kept":
        return [Operator(name=n, function=f, cache_key=_key) for n, f in zip(NAMES, functions, strict=True)]
    return [Operator(name=n, function=f, concurrency=2) for n, f in zip(NAMES, functions, strict=True)]


def _key(event: Mapping[str, tuple[Any, ...]], *given: Any) -> Any:
    return event["seed"], event["failing"]


def _called(name: str, event: Mapping[str, tuple[Any, ...]], given: Sequence[Any]) -> Any:
    *constants, variables = [each for each in given if not isinstance(each, tuple)]
    assert all(isinstance(each, int) for each in constants)
    return answer(name, {key: event[key][0] for key in ("seed", "failing")}, variables, *constants)


def p(event: Mapping[str, tuple[Any, ...]], *given: Any) -> Any:
    """One of three."""
    return _called("p", event, given)


def q(event: Mapping[str, tuple[Any, ...]], *given: Any) -> Any:
    """One of three."""
    return _called("q", event, given)


def r(event: Mapping[str, tuple[Any, ...]], *given: Any) -> Any:
    """One of three."""
    return _called("r", event, given)


def _batch(name: str) -> Any:
    def batch(asked: Sequence[tuple[Any, ...]]) -> list[Any]:
        found: list[Any] = []
        for event, *given in asked:
            try:
                found.append(_called(name, event, given))
            except Failure as failure:
                found.append(failure)
        return found

    return batch


BATCHES = tuple(map(_batch, NAMES))
ISOLATED = tuple(Operator(name=n, function=f, isolated=True, timeout=60) for n, f in zip(NAMES, (p, q, r), strict=True))
