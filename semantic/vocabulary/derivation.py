"""Derived attributes: values that are computed by arithmetic for attributes that an event does not have.

S-ToPSS calls them mapping functions ("experience = now - graduation"). A published value takes precedence: if the event
has the attribute, nothing is derived. An undefined result (division by zero, a number plus a mass) makes the attribute
absent, with a note.

Expressions are written `now - graduation`, `price * quantity`, `(high - low) / 2`. The language has numbers, quantities
(`5 kg`, `5 "kg/m3"`), attributes (in backquotes if the name is not an identifier), aggregates of attributes
(`sum(items.price)`, rule 26), `now`, `year(…)`, the four operations and parentheses. It has a parser of its own; no
expression is ever evaluated as Python code.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from itertools import product
from typing import TYPE_CHECKING, Literal, TypeVar

from kindcast.semantic.errors import InvalidDeclaration, Problem, SemanticError
from kindcast.semantic.model import AGGREGATES, Note, Value, aggregate_name, aggregate_of
from kindcast.semantic.units import Units
from kindcast.semantic.units.kinds import format_instant
from kindcast.semantic.units.measure import product_of

if TYPE_CHECKING:
    from kindcast.semantic.vocabulary.attributes import AttributeScheme
    from kindcast.semantic.vocabulary.event_schemas import EventSchemas

__all__ = [
    "Attribute",
    "Calculation",
    "Derivations",
    "Expression",
    "Negated",
    "Now",
    "Number",
    "Year",
    "derive",
    "names_in",
    "parse_arithmetic",
]

# ── the language of expressions ──────────────────────────────────────────────────────────────────────────────────────

T = TypeVar("T")

LONGEST = 500
"""Maximum length of an expression in characters; people write some dozens."""
DEEPEST = 16
"""Maximum nesting of parentheses and signs."""
MOST_NODES = 64
"""Maximum number of numbers, names and operations. Values are exact fractions; an operation adds at most some thousand
bits to a result."""
MOST_ATTRIBUTES = 8
"""Maximum number of different attributes in one expression."""


@dataclass(frozen=True, slots=True)
class Number:
    """A number, with or without a unit."""

    number: Fraction
    unit: str | None = None


@dataclass(frozen=True, slots=True)
class Now:
    """The time of the event: its `ce.time`, or else the time at which it is read."""


@dataclass(frozen=True, slots=True)
class Attribute:
    """The value of an attribute of the same event, or of an aggregate of one, under the name that predicates use."""

    name: str


@dataclass(frozen=True, slots=True)
class Year:
    """The calendar year (UTC) of a date-time, as a number."""

    moment: "Expression"


@dataclass(frozen=True, slots=True)
class Negated:
    """The negation of a number or a quantity."""

    item: "Expression"


@dataclass(frozen=True, slots=True)
class Calculation:
    """One of the four operations on two expressions."""

    operator: Literal["+", "-", "*", "/"]
    left: "Expression"
    right: "Expression"


Expression = Number | Now | Attribute | Year | Negated | Calculation

TOKEN = re.compile(
    r"\s*(?:(?P<number>[0-9]{1,40}(?:\.[0-9]{1,40})?(?:[eE][+-]?[0-9]{1,2})?)"
    r"|(?P<name>[^\W\d]\w*(?:\.[^\W\d]\w*)*)"
    r"|`(?P<quoted>[^`]+)`"
    r'|"(?P<unit>[^"]+)"'
    r"|(?P<sign>[-+*/()]))"
)


def parse_arithmetic(text: str) -> Expression:
    """Parses `text`. Linear. Raises `InvalidDeclaration`, which says where the error is.

    >>> names_in(parse_arithmetic("now - graduation"))
    ('graduation',)
    """
    if len(text) > LONGEST:
        raise InvalidDeclaration(f"an expression has at most {LONGEST} characters")
    parser = _Parser(text)
    found = parser.sum(0)
    parser.end()
    if len(names_in(found)) > MOST_ATTRIBUTES:
        raise InvalidDeclaration(f"an expression has at most {MOST_ATTRIBUTES} attributes")
    return found


def names_in(expression: Expression) -> tuple[str, ...]:
    """Returns the distinct attributes that `expression` reads, as written, in order of first appearance."""
    match expression:
        case Attribute(name):
            return (name,)
        case Year(inner) | Negated(inner):
            return names_in(inner)
        case Calculation(_, left, right):
            return tuple(dict.fromkeys((*names_in(left), *names_in(right))))
        case _:
            return ()


class _Parser:
    """Recursive-descent parser, bounded by `DEEPEST` and `MOST_NODES`. Operations of one precedence associate to the
    left."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._nodes = 0

    def sum(self, depth: int) -> Expression:
        found = self._product(depth)
        while sign := self._sign("+-"):
            found = self._counted(Calculation(sign, found, self._product(depth)))  # type: ignore[arg-type]
        return found

    def end(self) -> None:
        if self._text[self._at :].strip():
            raise self._error("an operation (+ - * /) or the end of the expression is expected")

    def _product(self, depth: int) -> Expression:
        found = self._factor(depth)
        while sign := self._sign("*/"):
            found = self._counted(Calculation(sign, found, self._factor(depth)))  # type: ignore[arg-type]
        return found

    def _factor(self, depth: int) -> Expression:
        if depth > DEEPEST:
            raise self._error(f"nested deeper than {DEEPEST} levels")
        if self._sign("-"):
            return self._negated(self._factor(depth + 1))
        if self._sign("("):
            return self._closed(self.sum(depth + 1))
        token = TOKEN.match(self._text, self._at)
        if token is None or token["sign"] or token["unit"]:
            raise self._error("a number, the name of an attribute, now or ( is expected")
        self._at = token.end()
        if token["number"]:
            return self._counted(Number(Fraction(token["number"]), self._unit()))
        if token["name"] == "now":
            return self._counted(Now())
        if token["name"] == "year" and self._sign("("):
            return self._counted(Year(self._closed(self.sum(depth + 1))))
        if token["name"] in AGGREGATES and self._sign("("):
            inner = TOKEN.match(self._text, self._at)
            if inner is None or not (inner["name"] or inner["quoted"]):
                raise self._error("the name of an attribute is expected")
            self._at = inner.end()
            return self._counted(
                Attribute(self._closed(aggregate_name(token["name"], inner["quoted"] or inner["name"])))
            )
        return self._counted(Attribute(token["quoted"] or token["name"]))

    def _negated(self, item: Expression) -> Expression:
        """Returns the negation of `item`. `-5 degC` is a quantity 5 degrees below zero, not the opposite of 5 degC."""
        return Number(-item.number, item.unit) if isinstance(item, Number) else self._counted(Negated(item))

    def _closed(self, found: T) -> T:
        if not self._sign(")"):
            raise self._error("a closing parenthesis is expected")
        return found

    def _unit(self) -> str | None:
        """Reads the unit that follows a number: a name or a quoted text. Returns None if there is none."""
        token = TOKEN.match(self._text, self._at)
        unit = (token["name"] or token["unit"]) if token else None
        if unit is not None and token is not None:
            self._at = token.end()
        return unit

    def _sign(self, signs: str) -> str | None:
        token = TOKEN.match(self._text, self._at)
        if token is None or not token["sign"] or token["sign"] not in signs:
            return None
        self._at = token.end()
        return token["sign"]

    def _counted(self, node: Expression) -> Expression:
        self._nodes += 1
        if self._nodes > MOST_NODES:
            raise InvalidDeclaration(f"an expression has at most {MOST_NODES} numbers, names and operations")
        return node

    def _error(self, detail: str) -> InvalidDeclaration:
        rest = self._text[self._at :].strip()[:20]
        where = f"at {rest!r}" if rest else "at the end"
        return InvalidDeclaration(f"the expression {self._text!r} is wrong {where}: {detail}")


# ── exact evaluation of expressions over the values of an event ──────────────────────────────────────────────────────
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

    def undefined(self, why: object) -> Note:
        """Returns the note that an event gives it no value."""
        detail = f"{self.attribute} = {self.text} is undefined for this event: {why}"
        return Note("derived-undefined", self.attribute, detail)


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
    def of(cls, scheme: "AttributeScheme", schemas: "EventSchemas", units: Units) -> "Derivations":
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
            notes.append(derivation.undefined(problem))
        if number == MOST_RESULTS:
            break
    return tuple(found.values())


def _ranged(name: str) -> str:
    aggregate = aggregate_of(name)
    return name if aggregate is None else aggregate[1]


def _resolved(node: Expression, scheme: "AttributeScheme", units: Units) -> Expression:
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
