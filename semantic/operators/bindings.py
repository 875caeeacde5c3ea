"""Bindings of a clause: the bindings of its calls are joined, and value constraints filter the result.

docs/matching-semantics.md, rules 17 and 18: bindings are joined by equality of values of one kind; a constraint between
values of different kinds is false.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from kindcast.semantic.model import Arithmetic, Constant, ValueConstraint, Variable
from kindcast.semantic.operators.calls import OperatorFailed, Reading, reading
from kindcast.semantic.units import Units

__all__ = ["MOST_JOINED", "MOST_REPORTED", "holds", "joined", "reported", "variables_of"]

MOST_JOINED = 100_000
"""Joined bindings on the way: two calls of a thousand without a common variable make a million."""

MOST_REPORTED = 100
"""Bindings that a match carries."""


def joined(
    sources: Sequence[tuple[tuple[str, ...], Sequence[tuple[Any, ...]]]],
    constraints: Sequence[ValueConstraint],
    units: Units,
) -> list[dict[str, Any]]:
    """All joined bindings of `sources` (names, bindings) that satisfy `constraints`, each variable → value; one empty
    binding where there are no variables at all. Each constraint is asked as soon as its variables are bound.

    Raises `OperatorFailed` for more than `MOST_JOINED` on the way.
    """
    rows: list[dict[str, tuple[Reading, Any]]] = [{}]
    waiting = list(constraints)
    bound: set[str] = set()
    for names, bindings in sources:
        shared = [name for name in names if name in bound]
        by_key: dict[tuple[Reading, ...], list[dict[str, tuple[Reading, Any]]]] = {}
        for values in bindings:
            new = {name: (reading(value, units), value) for name, value in zip(names, values, strict=True)}
            by_key.setdefault(tuple(new[name][0] for name in shared), []).append(new)
        bound.update(names)
        ready = [each for each in waiting if variables_of(each) <= bound]
        waiting = [each for each in waiting if each not in ready]
        found: list[dict[str, tuple[Reading, Any]]] = []
        for row in rows:
            for new in by_key.get(tuple(row[name][0] for name in shared), ()):
                both = row | new
                if all(holds(each, {name: pair[0] for name, pair in both.items()}, units) for each in ready):
                    found.append(both)
                    if len(found) > MOST_JOINED:
                        raise OperatorFailed(f"joining the bindings gives more than {MOST_JOINED:,} combinations")
        rows = found
    return [{name: pair[1] for name, pair in row.items()} for row in rows if _hold_all(waiting, row, units)]


def reported(
    bindings: Iterable[Mapping[str, Any]], units: Units
) -> tuple[tuple[tuple[tuple[str, Any], ...], ...], bool]:
    """The distinct ones of `bindings`, sorted, at most `MOST_REPORTED`, each as (variable, value) pairs by name; and
    whether there were more."""
    distinct: dict[tuple[tuple[str, Reading], ...], tuple[tuple[str, Any], ...]] = {}
    for binding in bindings:
        pairs = tuple(sorted(binding.items()))
        distinct.setdefault(tuple((name, reading(value, units)) for name, value in pairs), pairs)
    in_order = [distinct[key] for key in sorted(distinct)]
    return tuple(in_order[:MOST_REPORTED]), len(in_order) > MOST_REPORTED


def _hold_all(constraints: Sequence[ValueConstraint], row: Mapping[str, tuple[Reading, Any]], units: Units) -> bool:
    return all(holds(each, {name: pair[0] for name, pair in row.items()}, units) for each in constraints)


def holds(constraint: ValueConstraint, bound: Mapping[str, Reading], units: Units) -> bool:
    """Whether a value constraint holds; false where a side has no value or the sides are of different kinds."""
    left, right = _value(constraint.left, bound, units), _value(constraint.right, bound, units)
    if left is None or right is None or left[0] != right[0]:
        return False
    if left[0] == "boolean" and constraint.order not in ("=", "!="):
        return False
    return _ORDERS[constraint.order](left[1], right[1])


def variables_of(node: ValueConstraint | Arithmetic | Variable | Constant) -> frozenset[str]:
    """The names of the variables in a value constraint."""
    if isinstance(node, Variable):
        return frozenset({node.name})
    if isinstance(node, Constant):
        return frozenset()
    return variables_of(node.left) | variables_of(node.right)


_ORDERS: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": lambda left, right: bool(left == right),
    "!=": lambda left, right: bool(left != right),
    "<": lambda left, right: bool(left < right),
    "<=": lambda left, right: bool(left <= right),
    ">": lambda left, right: bool(left > right),
    ">=": lambda left, right: bool(left >= right),
}


def _value(node: Arithmetic | Variable | Constant, bound: Mapping[str, Reading], units: Units) -> Reading | None:
    if isinstance(node, Variable):
        return bound.get(node.name)
    if isinstance(node, Constant):
        try:
            return reading(node.value, units)
        except ValueError:
            return None
    left, right = _value(node.left, bound, units), _value(node.right, bound, units)
    if left is None or right is None or not (_is_amount(left) and _is_amount(right)):
        return None
    try:
        return _calculated(node.operator, left, right)
    except (ZeroDivisionError, OverflowError):
        return None


def _calculated(operator: str, left: Reading, right: Reading) -> Reading | None:
    """Sums of one kind; products and quotients with a plain number; the quotient of one kind is a plain number."""
    (kind, a), (other, b) = left, right
    if operator in ("+", "-"):
        if kind != other:
            return None
        return kind, a + b if operator == "+" else a - b
    if operator == "*" and "number" in (kind, other):
        return (other if kind == "number" else kind), a * b
    if operator == "/" and other == "number":
        return kind, a / b
    return ("number", a / b) if operator == "/" and kind == other else None


def _is_amount(value: Reading) -> bool:
    return value[0] not in ("text", "boolean", "instant")
