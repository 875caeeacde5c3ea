"""How the oracle reads a published event: attribute → values, each with its readings (rules 1 to 4, 9 and 15).

Recursive and unbounded: for tests only. Units are a handful, with exact fractions, so that what the product converts by
tables and pint is checked against a second opinion.
"""

import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

from tests.oracle.world import World

__all__ = ["Dimension", "Reading", "attributes_of", "elements_of", "instant", "measure"]

UNITS = {
    "K": ("temperature", Fraction(1), Fraction(0)),
    "degC": ("temperature", Fraction(1), Fraction("273.15")),
    "http://qudt.org/vocab/unit/DEG_C": ("temperature", Fraction(1), Fraction("273.15")),
    "degF": ("temperature", Fraction(5, 9), Fraction("459.67") * 5 / 9),
    "kg": ("mass", Fraction(1), Fraction(0)),
    "g": ("mass", Fraction(1, 1000), Fraction(0)),
    "lb": ("mass", Fraction("0.45359237"), Fraction(0)),
    "m": ("length", Fraction(1), Fraction(0)),
    "s": ("time", Fraction(1), Fraction(0)),
    "day": ("time", Fraction(86_400), Fraction(0)),
    "year": ("time", Fraction("365.25") * 86_400, Fraction(0)),
    "USD": ("USD", Fraction(1), Fraction(0)),
    "EUR": ("EUR", Fraction(1), Fraction(0)),
}
"""Unit → (dimension, factor, offset in base units)."""
UNIT_KEYS = ("unit", "unitCode", "unitText", "currency")
NUMBER = r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
DATE_TIME = r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?([Zz]|[+-][0-9]{2}:[0-9]{2})?"

Dimension = str | tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Reading:
    """One published value and all that it may be read as. `text` is the published string and `root` its root word, both
    in NFC; `amount` is (dimension, number in base units), the dimension of a product as its powers."""

    text: str | None = None
    root: str | None = None
    number: int | float | None = None
    boolean: bool | None = None
    instant: datetime | None = None
    amount: tuple[Dimension, float] | None = None
    concepts: frozenset[str] = frozenset()

    @property
    def is_numeric(self) -> bool:
        """Whether it is a number, with a unit or without."""
        return self.number is not None or self.amount is not None


def attributes_of(data: Any, context: Mapping[str, Any], world: World) -> dict[str, list[Reading]]:
    """Every attribute of an event with its values, upwards along the attribute hierarchies too."""
    pairs: list[tuple[str, Any, str | None]] = [(f"ce.{name}", value, None) for name, value in context.items()]
    if isinstance(data, Mapping):
        flat = list(_flat("", data, None, world))
        pairs += flat + [("ce.type", value, None) for name, value, _ in flat if name == "@type" and type(value) is str]
    attributes: dict[str, list[Reading]] = {}
    for raw, value, unit in pairs:
        for name in world.broader(world.attribute(raw)):
            attributes.setdefault(name, []).append(_read(name, value, unit, world))
    return attributes


def elements_of(data: Any, attribute: str, world: World) -> list[Mapping[str, Any]]:
    """The objects in arrays at `attribute` (rule 3)."""
    found = _objects("", data, inside_array=False)
    return [element for raw, element in found if attribute in world.broader(world.attribute(raw))]


def measure(number: int | float, unit: str) -> tuple[str, float] | None:
    """The quantity in base units, exact until it is rounded once (rule 15); None for an unknown unit."""
    if unit not in UNITS:
        return None
    dimension, factor, offset = UNITS[unit]
    return dimension, float(Fraction(Decimal(repr(number))) * factor + offset)


def instant(text: str) -> datetime | None:
    """The date-time that a string names; without offset it is UTC."""
    if not re.fullmatch(DATE_TIME, text):
        return None
    fraction = re.search(r"\.[0-9]+", text)
    plain = re.sub(r"\.[0-9]+", "", text).upper().replace(" ", "T").replace("Z", "+00:00")
    try:
        moment = datetime.fromisoformat(plain)
    except ValueError:
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return moment + timedelta(microseconds=int((fraction.group() if fraction else ".0")[1:7].ljust(6, "0")))


def _flat(name: str, node: Any, unit: str | None, world: World) -> Iterator[tuple[str, Any, str | None]]:
    """(dotted name, scalar or quantity object, the unit that stands beside it) for everything in `node` (rule 1)."""
    if isinstance(node, Mapping):
        quantity = bool(name) and _is_quantity(node)
        if quantity:
            yield name, node, None
        for key, value in node.items():
            inner = f"{name}.{key}" if name else key
            beside = _unit_of(node) if quantity and key == "value" else _declared_unit(inner, node, world)
            yield from _flat(inner, value, beside, world)
    elif isinstance(node, list):
        for each in node:
            yield from _flat(name, each, unit, world)
    elif node is not None:
        yield name, node, unit


def _objects(name: str, node: Any, *, inside_array: bool) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(dotted name, object) for every object that is an element of an array."""
    if isinstance(node, Mapping):
        if inside_array:
            yield name, node
        for key, value in node.items():
            yield from _objects(f"{name}.{key}" if name else key, value, inside_array=False)
    elif isinstance(node, list):
        for each in node:
            yield from _objects(name, each, inside_array=True)


def _is_quantity(node: Mapping[str, Any]) -> bool:
    value = node.get("value")
    return (
        len(node) == 2
        and isinstance(value, int | float)
        and not isinstance(value, bool)
        and any(isinstance(node.get(key), str) for key in UNIT_KEYS)
    )


def _unit_of(node: Mapping[str, Any]) -> str:
    return str(next(node[key] for key in UNIT_KEYS if key in node))


def _declared_unit(name: str, parent: Mapping[str, Any], world: World) -> str | None:
    """The unit in a declared sibling of `name` (rule 15)."""
    sibling = world.declaration(world.attribute(name)).unit_from
    texts = (each for each in parent.items() if isinstance(each[1], str))
    return next((value for key, value in texts if sibling and world.attribute(key) == sibling.rpartition(".")[2]), None)


def _read(name: str, value: Any, unit: str | None, world: World) -> Reading:
    declared = world.declaration(name)
    if isinstance(value, bool):
        return Reading(boolean=value)
    if isinstance(value, Mapping):
        return Reading(amount=measure(value["value"], _unit_of(value)))
    if isinstance(value, int | float):
        unit = unit or declared.unit
        return Reading(number=value, amount=measure(value, unit) if unit else None)
    text, root = unicodedata.normalize("NFC", value), world.root_word(value)
    if declared.kind == "number" and re.fullmatch(rf"\s*{NUMBER}\s*", value):
        amount = measure(float(value), declared.unit) if declared.unit else None
        return Reading(text, root, number=float(value), amount=amount)
    quantity = re.fullmatch(rf"\s*({NUMBER})\s+(\S+)\s*", value)
    concepts = world.readings(text, declared.range) or world.readings(root, declared.range)
    return Reading(
        text,
        root,
        instant=instant(value),
        amount=measure(float(quantity.group(1)), quantity.group(2)) if quantity else None,
        concepts=frozenset(concepts),
    )
