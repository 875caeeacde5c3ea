"""Arithmetic expressions of derived attributes: `now - graduation`, `price * quantity`, `(high - low) / 2`.

The language has numbers, quantities (`5 kg`, `5 "kg/m3"`), attributes (in backquotes if the name is not an identifier),
aggregates of attributes (`sum(items.price)`, rule 26), `now`, `year(…)`, the four operations and parentheses. It has a
parser of its own; no expression is ever evaluated as Python code. `derivation` evaluates parsed expressions.
"""

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, TypeVar

from kindcast.semantic.errors import InvalidDeclaration
from kindcast.semantic.model import AGGREGATES, aggregate_name

__all__ = ["Attribute", "Calculation", "Expression", "Negated", "Now", "Number", "Year", "names_in", "parse_arithmetic"]

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
