"""What an expression over the values of an event is worth, exactly.

    date-time - date-time     a time            number, ratio of amounts   a plain number
    date-time ± time          a date-time       amount × amount            an amount of another dimension

Numbers are fractions until they are rounded once, in `value_of`.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction

from semantic.instants import format_instant
from semantic.model import Value
from semantic.schemas.arithmetic import Attribute, Calculation, Expression, Negated, Now, Number, Year
from semantic.units import Units
from semantic.units.dimensions import product_of

__all__ = ["Undefined", "Worth", "value_of", "worth_of"]

PLAIN = "dimensionless"
SECOND = 1_000_000
"""Microseconds: what date-times are counted in."""
FURTHEST = 1 << 53
"""Microseconds either side of 1970 in which date-times lie (rule 4)."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Worth:
    """A number of a dimension, in base units; of a date-time the microseconds since 1970, with no dimension."""

    number: Fraction
    dimension: str | None = PLAIN

    @property
    def is_moment(self) -> bool:
        return self.dimension is None


class Undefined(Exception):
    """The expression has no value for this event."""


def worth_of(node: Expression, given: Mapping[str, Value], now: int, units: Units) -> Worth:
    """Raises `Undefined`, and `SemanticError` for what no unit measures. Linear in the expression; `now` is in
    microseconds since 1970."""
    match node:
        case Number(number, None):
            return Worth(number)
        case Number(number, unit):
            measure = units.measure(_decimal(number), unit or "")
            return Worth(_fraction(measure.amount), measure.dimension)
        case Now():
            return Worth(Fraction(now), None)
        case Attribute(name):
            return _worth_of_value(name, given[name])
        case Year(inner):
            moment = worth_of(inner, given, now, units)
            if not moment.is_moment:
                raise Undefined("year takes a date-time")
            return Worth(Fraction((EPOCH + timedelta(microseconds=math.floor(moment.number))).year))
        case Negated(inner):
            worth = worth_of(inner, given, now, units)
            if worth.is_moment:
                raise Undefined("a date-time has no opposite")
            return Worth(-worth.number, worth.dimension)
        case Calculation(operator, left, right):
            return _calculated(operator, worth_of(left, given, now, units), worth_of(right, given, now, units))


def _worth_of_value(name: str, value: Value) -> Worth:
    if value.instant is not None:
        return Worth(Fraction(value.instant), None)
    if value.amount is not None and value.dimension is not None:
        return Worth(_fraction(value.amount), value.dimension)
    if value.number is not None:
        return Worth(_fraction(value.number))
    raise Undefined(f"{name} is {str(value.published)[:40]!r}, no number, quantity or date-time")


def _calculated(operator: str, left: Worth, right: Worth) -> Worth:
    if operator in "+-":
        return _added(left, right, 1 if operator == "+" else -1)
    if left.dimension is None or right.dimension is None:
        raise Undefined("a date-time can be neither multiplied nor divided")
    if operator == "*":
        return Worth(left.number * right.number, product_of(left.dimension, right.dimension, 1))
    if right.number == 0:
        raise Undefined("division by zero")
    return Worth(left.number / right.number, product_of(left.dimension, right.dimension, -1))


def _added(left: Worth, right: Worth, sign: int) -> Worth:
    if left.is_moment and right.is_moment:
        if sign > 0:
            raise Undefined("two date-times have a difference, but no sum")
        return Worth((left.number - right.number) / SECOND, "time")
    if left.is_moment and right.dimension == "time":
        return Worth(left.number + sign * right.number * SECOND, None)
    if right.is_moment and left.dimension == "time" and sign > 0:
        return Worth(right.number + left.number * SECOND, None)
    if left.dimension != right.dimension:
        told = " and ".join(each.dimension or "a date-time" for each in (left, right))
        raise Undefined(f"{told} cannot be added")
    return Worth(left.number + sign * right.number, left.dimension)


def value_of(worth: Worth, unit: str | None, units: Units) -> Value:
    """The worth with its readings, as if it had been published: a plain number has the unit that the attribute is
    declared with."""
    if worth.dimension is None:
        instant = round(worth.number)
        if abs(instant) > FURTHEST:
            raise Undefined("the date-time lies beyond July 1684 to June 2255")
        moment = format_instant(instant)
        return Value(moment, instant=instant)  # no text: what was worked out was not written by anyone
    try:
        number = worth.number.numerator / worth.number.denominator
    except OverflowError:
        raise Undefined("the result leaves the range of a double") from None
    number += 0.0  # -0.0 becomes 0.0
    if worth.dimension == PLAIN:
        if unit is None:
            return Value(number, number=number)
        measure = units.measure(number, unit)
        return Value(number, number=number, amount=measure.amount, dimension=measure.dimension)
    if unit is not None and units.dimension(unit) == worth.dimension:
        bare = units.bare(number, unit)
        return Value(bare, number=bare, amount=number, dimension=worth.dimension)
    return Value(number, amount=number, dimension=worth.dimension)


def _fraction(number: float) -> Fraction:
    """A double as the shortest decimal that it stands for, as `Units` reads it."""
    return Fraction(Decimal(repr(number)))


def _decimal(number: Fraction) -> float:
    return number.numerator / number.denominator
