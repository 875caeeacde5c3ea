"""Clauses as the papers know them: conjunctions of elementary predicates, and whether that says all.

| elementary predicate | holds when |
|---|---|
| `Equal(column, key)` | some value is the key |
| `AtLeast(column, bound)`, `AtMost(column, bound)` | some value is not below, not above the bound |
| `Within(column, concept)` | some value is the concept or beneath it |
| `Present(attribute)` | the attribute has a value |

What the papers lack (negation, alternatives, `below`, forbidden attributes) becomes what is surely needed, and the
clause is *inexact*: its candidates are verified. So are those of an event with several values in a column, where a
lower and an upper bound may be met by two different ones.
"""

import math
from dataclasses import dataclass
from typing import cast

from kindcast.index.clause import (
    AttributeId,
    Clause,
    ColumnId,
    ConceptId,
    ConceptTest,
    IntervalTest,
    Key,
    KeyTest,
    Predicate,
    Test,
)

__all__ = ["AtLeast", "AtMost", "Elementary", "Equal", "Parts", "Present", "Within", "parts_of"]


@dataclass(frozen=True, slots=True)
class Equal:
    column: ColumnId
    key: Key


@dataclass(frozen=True, slots=True)
class AtLeast:
    column: ColumnId
    bound: float


@dataclass(frozen=True, slots=True)
class AtMost:
    column: ColumnId
    bound: float


@dataclass(frozen=True, slots=True)
class Within:
    column: ColumnId
    concept: ConceptId


@dataclass(frozen=True, slots=True)
class Present:
    attribute: AttributeId


Elementary = Equal | AtLeast | AtMost | Within | Present


@dataclass(frozen=True, slots=True)
class Parts:
    """Distinct elementary predicates of a clause, all of which every match satisfies; `exact` if, for an event with one
    value a column, they are all that is asked. `together`: the places of lower bounds that are of one test with the
    upper bound behind them; for several values they are all that is asked where one value satisfies both."""

    elementary: tuple[Elementary, ...]
    exact: bool
    together: tuple[int, ...] = ()


def parts_of(clause: Clause) -> Parts | None:
    """`clause` taken apart, or None if no event can match it. Linear."""
    if not clause.required.isdisjoint(clause.forbidden):
        return None
    found: dict[Elementary, None] = {}
    together: list[int] = []
    exact = not clause.forbidden
    bare = set(clause.required)
    for predicate in clause.predicates:
        elementary = _elementary(predicate)
        if elementary == []:
            return None
        if elementary is None:
            exact = False
            bare.add(predicate.attribute)
        else:
            bare.discard(predicate.attribute)
            if len(elementary) == 2:
                exact &= found.keys().isdisjoint(elementary)  # else they do not stand together
                together.append(len(found))
            found.update(dict.fromkeys(elementary))
    found.update((Present(attribute), None) for attribute in sorted(bare))
    return Parts(tuple(found), exact, tuple(together) if exact else ())


def _elementary(predicate: Predicate) -> list[Elementary] | None:
    """None for what no conjunction of elementary predicates says; empty for what never holds."""
    if predicate.negated:
        return None
    tests = [(column, test) for column, test in predicate.tests if _can_hold(test)]
    if not tests:
        return []
    if len(tests) > 1:
        return None
    [(column, test)] = tests
    match test:
        case IntervalTest(low, high) if low == high:
            return [Equal(column, low)]
        case IntervalTest(low, high):
            bounds: list[Elementary] = [AtMost(column, high)] if high < math.inf else []
            return [AtLeast(column, low), *bounds] if low > -math.inf or not bounds else bounds
        case KeyTest(keys) if len(keys) == 1:
            return [Equal(column, key) for key in keys]
        case ConceptTest(within, below, exactly) if not below and len(within) + len(exactly) == 1:
            return [*(Within(column, each) for each in within), *(Equal(column, cast(Key, each)) for each in exactly)]
        case _:
            return None


def _can_hold(test: Test) -> bool:
    if isinstance(test, IntervalTest):
        return test.low <= test.high
    return bool(test.keys) if isinstance(test, KeyTest) else bool(test.within or test.below or test.exactly)
