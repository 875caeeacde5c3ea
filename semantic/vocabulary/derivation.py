"""Derived attributes: values that are computed for attributes that an event does not have.

S-ToPSS calls them mapping functions ("experience = now - graduation"). A published value takes precedence: if the event
has the attribute, nothing is derived. An undefined result (division by zero, a number plus a mass) makes the attribute
absent, with a note.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from itertools import product

from kindcast.semantic.errors import InvalidDeclaration, Problem, SemanticError
from kindcast.semantic.model import Note, Value, aggregate_name, aggregate_of
from kindcast.semantic.units import Units
from kindcast.semantic.units.kinds import format_instant
from kindcast.semantic.units.measure import product_of
from kindcast.semantic.vocabulary.arithmetic import (
    Attribute,
    Calculation,
    Expression,
    Negated,
    Now,
    Number,
    Year,
    names_in,
    parse_arithmetic,
)
from kindcast.semantic.vocabulary.attributes import AttributeScheme
from kindcast.semantic.vocabulary.event_schemas import EventSchemas

__all__ = ["Derivations", "derive"]


# Exact evaluation of expressions over the values of an event.
#
#     date-time - date-time     a time            number, ratio of amounts   a plain number
#     date-time ± time          a date-time       amount × amount            an amount of another dimension
#
# Numbers are fractions until they are rounded once, in `value_of`.

PLAIN = "dimensionless"
SECOND = 1_000_000
"""The unit of date-times: microseconds."""
FURTHEST = 1 << 53
"""The largest distance of a date-time from 1970, in microseconds (rule 4)."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Worth:
    """A number of a dimension, in base units. For a date-time: microseconds since 1970, without a dimension."""

    number: Fraction
    dimension: str | None = PLAIN

    @property
    def is_moment(self) -> bool:
        return self.dimension is None


class Undefined(Exception):
    """Raised if the expression has no value for this event."""


def worth_of(node: Expression, given: Mapping[str, Value], now: int, units: Units) -> Worth:
    """Evaluates an expression. Raises `Undefined`, and `SemanticError` if no unit measures the result. Linear in the
    expression. `now` is in microseconds since 1970."""
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
                raise Undefined("a date-time cannot be negated")
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
    raise Undefined(f"{name} is {str(value.published)[:40]!r}, not a number, a quantity or a date-time")


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
            raise Undefined("two date-times can be subtracted, not added")
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
    """Returns the result as a value with all its readings, as if it had been published. A plain number gets the
    declared unit of the attribute."""
    if worth.dimension is None:
        instant = round(worth.number)
        if abs(instant) > FURTHEST:
            raise Undefined("the date-time is not between July 1684 and June 2255")
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
    """Returns a double as its shortest decimal, as `Units` reads it."""
    return Fraction(Decimal(repr(number)))


def _decimal(number: Fraction) -> float:
    return number.numerator / number.denominator


MOST_RESULTS = 64
"""The maximum number of combinations of input values for one derived attribute of one event: inputs with several values
multiply."""


@dataclass(frozen=True, slots=True)
class Derivation:
    """The derivation of `attribute` by `expression` over `inputs`, with resolved names. `unit` is the declared unit."""

    attribute: str
    text: str
    expression: Expression
    inputs: tuple[str, ...]
    unit: str | None

    @property
    def reads(self) -> frozenset[str]:
        """The attributes that it depends on. For an aggregate, this is the attribute over which it ranges."""
        return frozenset(_ranged(name) for name in self.inputs)


class Derivations:
    """All derived attributes of one vocabulary, each after those that it reads. False if there are none."""

    def __init__(self, everywhere: Sequence[Derivation], by_type: Mapping[str, frozenset[str]]) -> None:
        self._all = tuple(everywhere)
        self._by_type = by_type

    def __bool__(self) -> bool:
        return bool(self._all)

    def __iter__(self) -> Iterator[Derivation]:
        return iter(self._all)

    @classmethod
    def of(cls, scheme: AttributeScheme, schemas: EventSchemas, units: Units) -> "Derivations":
        """Returns the derivations that attributes and event types declare, each after those of its inputs. Raises
        `InvalidDeclaration` for unknown units and for circular derivations."""
        texts = {name: each.derived for name, each in scheme.declarations.items() if each.derived is not None}
        owners: dict[str, frozenset[str]] = dict.fromkeys(texts, frozenset())  # no types: applies to every event
        problems: list[Problem] = []
        for name, domain in schemas.domains.items():
            if domain.derived is None:
                continue
            if texts.setdefault(name, domain.derived) != domain.derived:
                detail = f"attribute {name!r}: derived as {texts[name]}, and as {domain.derived} by an event type"
                problems.append(Problem("invalid-derivation", detail))
            owners.setdefault(name, frozenset(type for type, uses in schemas.uses.items() if name in uses))
        found: dict[str, Derivation] = {}
        for name, text in texts.items():
            declaration = scheme.declaration(name)
            try:
                expression = _resolved(parse_arithmetic(text), scheme, units)
            except SemanticError as error:
                problems.append(Problem("invalid-derivation", f"attribute {name!r}: {error}"))
                continue
            if not names_in(expression):
                detail = f"attribute {name!r}: {text} uses no attribute: name at least one"
                problems.append(Problem("invalid-derivation", detail))
                continue
            unit = declaration.unit if declaration else None
            found[name] = Derivation(name, text, expression, names_in(expression), unit)
        if problems:
            raise InvalidDeclaration(problems)
        return cls(_in_order(found), owners)

    def applying(self, types: frozenset[str]) -> Iterator[Derivation]:
        """Yields the derivations for all events, and those for events of one of `types`."""
        for each in self._all:
            owners = self._by_type[each.attribute]
            if not owners or owners & types:
                yield each


def derive(
    derivation: Derivation,
    attributes: Mapping[str, tuple[Value, ...]],
    now: int,
    units: Units,
    notes: list[Note],
) -> tuple[Value, ...]:
    """Returns the distinct values of a derived attribute: one for each combination of values of its inputs.
    `attributes` has the inputs by name, including aggregates. Empty if an input is absent. `now` is in microseconds
    since 1970."""
    values = [attributes.get(name, ()) for name in derivation.inputs]
    if not all(values):
        return ()
    found: dict[object, Value] = {}
    for number, each in enumerate(product(*values)):
        try:
            if number == MOST_RESULTS:
                raise Undefined(f"more than {MOST_RESULTS} combinations of values")
            worth = worth_of(derivation.expression, dict(zip(derivation.inputs, each, strict=True)), now, units)
            value = value_of(worth, derivation.unit, units)
            found.setdefault((value.number, value.amount, value.dimension, value.instant), value)
        except (Undefined, SemanticError) as problem:
            detail = f"{derivation.attribute} = {derivation.text} is undefined for this event: {problem}"
            notes.append(Note("derived-undefined", derivation.attribute, detail))
        if number == MOST_RESULTS:
            break
    return tuple(found.values())


def _ranged(name: str) -> str:
    aggregate = aggregate_of(name)
    return name if aggregate is None else aggregate[1]


def _resolved(node: Expression, scheme: AttributeScheme, units: Units) -> Expression:
    """Returns `node` with canonical names of attributes and checked units. Raises `UnknownUnit`."""
    match node:
        case Attribute(name):
            aggregate = aggregate_of(name)
            if aggregate is not None:
                return Attribute(aggregate_name(aggregate[0], scheme.resolve(aggregate[1])))
            return Attribute(scheme.resolve(name))
        case Number(_, unit):
            if unit is not None:
                units.dimension(unit)
            return node
        case Year(inner):
            return Year(_resolved(inner, scheme, units))
        case Negated(inner):
            return Negated(_resolved(inner, scheme, units))
        case Calculation(operator, left, right):
            return Calculation(operator, _resolved(left, scheme, units), _resolved(right, scheme, units))
        case _:
            return node


def _in_order(found: Mapping[str, Derivation]) -> list[Derivation]:
    """Returns the derivations in topological order: each after the derivations of its inputs. Raises
    `InvalidDeclaration` for a cycle."""
    ordered: dict[str, Derivation] = {}
    waiting = dict(sorted(found.items()))
    while waiting:
        ready = [name for name, each in waiting.items() if not each.reads & waiting.keys()]
        if not ready:
            circle = ", ".join(waiting)
            raise InvalidDeclaration(
                [Problem("invalid-derivation", f"{circle}: these attributes are derived from each other")]
            )
        for name in ready:
            ordered[name] = waiting.pop(name)
    return list(ordered.values())
