"""Derived attributes: what an attribute is worth where the event does not say it.

S-ToPSS calls them mapping functions ("experience = now - graduation"). A derived value replaces no published one: where
the event has the attribute, nothing is derived. What is undefined (division by zero, a number plus a mass) makes the
attribute absent, with a note.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from semantic.attributes import AttributeScheme
from semantic.errors import InvalidDeclaration, Problem, SemanticError
from semantic.model import Note, Value
from semantic.schemas.arithmetic import (
    Attribute,
    Calculation,
    Expression,
    Negated,
    Number,
    Year,
    names_in,
    parse_arithmetic,
)
from semantic.schemas.event_schemas import EventSchemas
from semantic.schemas.worth import Undefined, value_of, worth_of
from semantic.units import Units

__all__ = ["Derivation", "Derivations", "derive"]

MOST_RESULTS = 64
"""Combinations of values that one derived attribute may have in one event: they multiply where inputs have several."""


@dataclass(frozen=True, slots=True)
class Derivation:
    """`attribute` is worth `expression` over `inputs`, names resolved; `unit` is what it is declared to have."""

    attribute: str
    text: str
    expression: Expression
    inputs: tuple[str, ...]
    unit: str | None


class Derivations:
    """All derived attributes of one vocabulary, each after those that it reads. False where there are none."""

    def __init__(self, everywhere: Sequence[Derivation], by_type: Mapping[str, frozenset[str]]) -> None:
        self._all = tuple(everywhere)
        self._by_type = by_type

    def __bool__(self) -> bool:
        return bool(self._all)

    @classmethod
    def of(cls, scheme: AttributeScheme, schemas: EventSchemas, units: Units) -> "Derivations":
        """Raises `InvalidDeclaration` for unknown units and for attributes that are derived from themselves."""
        texts = {name: each.derived for name, each in scheme.declarations.items() if each.derived is not None}
        owners: dict[str, frozenset[str]] = dict.fromkeys(texts, frozenset())  # none: of every event
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
                detail = f"attribute {name!r}: {text} reads no attribute, so no event would lack it"
                problems.append(Problem("invalid-derivation", detail))
                continue
            unit = declaration.unit if declaration else None
            found[name] = Derivation(name, text, expression, names_in(expression), unit)
        if problems:
            raise InvalidDeclaration(problems)
        return cls(_in_order(found), owners)

    def applying(self, types: frozenset[str]) -> Iterator[Derivation]:
        """Those of every event, and those of the events of one of `types`."""
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
    """The values of a derived attribute, distinct: one for each combination of values of its inputs in the `attributes`
    of an event, none where an input is absent. `now` is in microseconds since 1970."""
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
            detail = f"{derivation.attribute} = {derivation.text} is not defined here: {problem}"
            notes.append(Note("derived-undefined", derivation.attribute, detail))
        if number == MOST_RESULTS:
            break
    return tuple(found.values())


# ── order ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _resolved(node: Expression, scheme: AttributeScheme, units: Units) -> Expression:
    """`node` with attributes by their canonical names and units that are known. Raises `UnknownUnit`."""
    match node:
        case Attribute(name):
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
    """Each derivation after those of its inputs. Raises `InvalidDeclaration` for a circle."""
    ordered: dict[str, Derivation] = {}
    waiting = dict(sorted(found.items()))
    while waiting:
        ready = [name for name, each in waiting.items() if not set(each.inputs) & waiting.keys()]
        if not ready:
            circle = ", ".join(waiting)
            raise InvalidDeclaration([Problem("invalid-derivation", f"{circle}: derived in a circle, of each other")])
        for name in ready:
            ordered[name] = waiting.pop(name)
    return list(ordered.values())
