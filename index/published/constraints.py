"""A clause as DEXIN has it: at most one interval, or one point, on each axis.

    axis of numbers    a column of numbers: `low <= v <= high`; a point is an interval with two equal ends
    axis of names      a column of keys, a column of concepts, an attribute that must be there: one operand

A clause with several conditions on one column has them on several axes: the column and its *copies*. What the paper
lacks (negation, alternatives, `below`, forbidden attributes) becomes what is surely needed, and the clause is
*inexact*: its candidates are verified.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from index.clause import Clause, ConceptTest, IntervalTest, Key, KeyTest, Predicate

__all__ = ["Constraints", "NameAxis", "NumberAxis", "constraints_of", "free_copy"]


class NumberAxis(NamedTuple):
    column: int
    copy: int = 0


class NameAxis(NamedTuple):
    """`kind` is "key" (also of a concept that is asked for exactly), "concept" or "present"."""

    kind: str
    place: int
    copy: int = 0


Axis = TypeVar("Axis", NumberAxis, NameAxis)


@dataclass(slots=True)
class Constraints:
    """Every match satisfies them; if `exact`, everything that satisfies them is a match."""

    intervals: list[tuple[NumberAxis, float, float]]
    points: list[tuple[NameAxis, Key]]
    exact: bool


def constraints_of(clause: Clause) -> Constraints | None:
    """`clause` taken apart, or None if no event can match it. Linear."""
    if clause.forbidden and not clause.required.isdisjoint(clause.forbidden):
        return None
    found = Constraints([], [], not clause.forbidden)
    bare = set(clause.required)
    used: set[NumberAxis | NameAxis] = set()
    for predicate in clause.predicates:
        if not predicate.negated:
            held = _constrain(predicate, found, used)
            if held is None:
                return None
            if held:
                bare.discard(predicate.attribute)
                continue
        found.exact = False
        bare.add(predicate.attribute)
    found.points.extend((NameAxis("present", attribute), True) for attribute in sorted(bare))
    return found


def _constrain(predicate: Predicate, found: Constraints, used: set[NumberAxis | NameAxis]) -> bool | None:
    """Add `predicate` to `found`; False if one constraint cannot say it, None if it never holds."""
    if len(predicate.tests) == 1:
        [(column, test)] = predicate.tests
    else:
        tests = [pair for pair in predicate.tests if _can_hold(pair[1])]
        if len(tests) != 1:
            return False if tests else None
        [(column, test)] = tests
    if isinstance(test, IntervalTest):
        if not test.low <= test.high:
            return None
        found.intervals.append((free_copy(NumberAxis(column), used), test.low, test.high))
        return True
    if not _can_hold(test):
        return None
    if isinstance(test, KeyTest):
        if len(test.keys) != 1:
            return False
        [key] = test.keys
        if isinstance(key, float):
            found.intervals.append((free_copy(NumberAxis(column), used), key, key))
        else:
            found.points.append((free_copy(NameAxis("key", column), used), key))
        return True
    if test.below or len(test.within) + len(test.exactly) != 1:
        return False
    for concept in test.within:
        found.points.append((free_copy(NameAxis("concept", column), used), concept))
    for concept in test.exactly:
        found.points.append((free_copy(NameAxis("key", column), used), concept))
    return True


def _can_hold(test: ConceptTest | KeyTest | IntervalTest) -> bool:
    if isinstance(test, IntervalTest):
        return test.low <= test.high
    if isinstance(test, KeyTest):
        return any(not (isinstance(key, float) and math.isnan(key)) for key in test.keys)
    return bool(test.within or test.below or test.exactly)


def free_copy(axis: Axis, used: set[NumberAxis | NameAxis]) -> Axis:
    """The first copy of `axis` that a clause does not use yet, used from now on."""
    while axis in used:
        axis = axis._replace(copy=axis.copy + 1)
    used.add(axis)
    return axis
