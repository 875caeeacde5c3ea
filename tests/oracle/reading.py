"""How the oracle reads a published event: attribute → values, each with its readings (rules 1 to 4, 9 and 15).

Recursive and unbounded: for tests only. Units are a handful, with exact fractions, so that what the product converts by
tables and pint is checked against a second opinion.
"""

import ipaddress
import math
import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

from tests.oracle.linked_data import Item, Thing, Year, items_of, names_of, things_of
from tests.oracle.world import Declaration, World

__all__ = ["Dimension", "Reading", "attributes_of", "dates", "elements_of", "instant", "measure", "of_epoch", "of_kind"]

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
    "mm[Hg]": ("pressure", Fraction("133.322387415"), Fraction(0)),
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
    in NFC; `amount` is (dimension, number in base units), the dimension of a product as its powers; `amounts` has the
    lowest and the highest double of an interval; `dates` are the first and the last microsecond of a date (rule 26)."""

    text: str | None = None
    root: str | None = None
    number: int | float | None = None
    boolean: bool | None = None
    instant: datetime | None = None
    amount: tuple[Dimension, float] | None = None
    concepts: frozenset[str] = frozenset()
    amounts: tuple[Dimension, float, float] | None = None
    also: frozenset[str] = frozenset()
    dates: tuple[datetime, datetime] | None = None
    is_duration: bool = False
    types: frozenset[str] = frozenset()
    """Classes that a graph states of a node (rule 21)."""

    @property
    def is_numeric(self) -> bool:
        """Whether it is a number, with a unit or without."""
        return self.number is not None or self.amount is not None


def attributes_of(
    data: Any, context: Mapping[str, Any], world: World, *, everywhere: bool = False, whole: "Stated | None" = None
) -> dict[str, list[Reading]]:
    """Every attribute of an event with its values, upwards along the attribute hierarchies too. `everywhere`: every
    object is asked what it states (rule 22). `whole`: what an element states in its array."""
    attributes: dict[str, list[Reading]] = {}
    if isinstance(data, Thing):
        stating = [(path, thing, found) for path, thing in things_of(data) if (found := _stated_by(thing, world))]
        told = [thing for _, thing, _ in stating]
        for item in items_of(data):
            if any(item.value is each for each in told):
                continue  # it is one value with what it states
            names = names_of(item.path, world)
            names += [(each, each) for each in world.broader("ce.type") if item.path == ("@type",)]
            unit = _unit_beside(names[0][1], item, world)
            for name, declared in names:
                attributes.setdefault(name, []).append(_read(declared, item.value, unit, world))
        for path, thing, found in stating:
            for name, declared in names_of(path, world):
                own = _read(declared, thing, None, world) if thing.iri is not None or thing.types else Reading()
                whole = _read(declared, found, None, world)
                concepts = own.concepts | whole.concepts
                both = replace(own, amount=whole.amount, amounts=whole.amounts, concepts=concepts)
                attributes.setdefault(name, []).append(both)
            _add_number(attributes, path, thing, found, world)
        _add_number(attributes, (), data, whole, world)
    pairs: list[tuple[str, Any, str | None]] = [(f"ce.{name}", value, None) for name, value in context.items()]
    if isinstance(data, Mapping):
        flat = list(_flat("", data, None, world, everywhere=everywhere))
        if whole is not None and not whole.comparator:
            flat = [
                (raw, value, whole.unit if raw == whole.member and not isinstance(value, str) else unit)
                for raw, value, unit in flat
            ]
        pairs += flat + [("ce.type", value, None) for name, value, _ in flat if name == "@type" and type(value) is str]
    for raw, value, unit in pairs:
        for name in _broader(raw, world):
            attributes.setdefault(name, []).append(_read(name, value, unit, world))
    return attributes


def _add_number(
    attributes: dict[str, list[Reading]],
    path: tuple[str, ...],
    thing: Thing,
    found: "Stated | Coded | None",
    world: World,
) -> None:
    """The number of what a node states has its unit under its own name too."""
    for member in thing.members if isinstance(found, Stated) and not found.comparator else ():
        for name, declared in names_of((*path, member), world):
            if _local(member) == found.member:
                attributes.setdefault(name, []).append(_read(declared, found.number, found.unit, world))


def _local(iri: str) -> str:
    return iri[max(iri.rfind(each) for each in "#/:") + 1 :]


def _stated_by(thing: Thing, world: World) -> "Stated | Coded | None":
    """What a node of a graph states, by the local names of its properties."""
    plain = {_local(name): values[0] for name, values in thing.members.items() if values and "\n" not in name}
    plain = {name: each.iri if isinstance(each, Thing) else each for name, each in plain.items()}
    nowhere = replace(world, declarations={})
    return _stated("node", plain, nowhere, everywhere=True) or _stated_code("node", plain, nowhere, everywhere=True)


def elements_of(data: Any, attribute: str, world: World, *, everywhere: bool) -> list[tuple[Any, "Stated | None"]]:
    """The objects in arrays at `attribute` (rule 3), the nodes of a graph there (rule 21), with the quantity that each
    states."""
    if isinstance(data, Thing):
        things = [thing for path, thing in things_of(data) if attribute in dict(names_of(path, world))]
        said = [(thing, _stated_by(thing, world)) for thing in things]
        return [(thing, found if isinstance(found, Stated) else None) for thing, found in said]
    found = _objects("", data, inside_array=False)
    return [
        (element, _stated(raw, element, world, everywhere=everywhere))
        for raw, element in found
        if attribute in _broader(raw, world)
    ]


def _broader(raw: str, world: World) -> list[str]:
    """The attributes that a published name means; one of the data never means one of the context (rule 1)."""
    found = list(world.broader(world.attribute(raw)))
    if raw.startswith("ce."):
        return found
    return [each for each in found if not each.startswith("ce.")] or [raw]


def _is_exact(number: str) -> bool:
    """An integer is rounded nowhere (rule 4)."""
    return not re.fullmatch(r"\s*-?[0-9]+\s*", number) or Fraction(float(number)) == Fraction(number.strip())


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


@dataclass(frozen=True)
class Stated:
    """The quantity that an object states (rule 22)."""

    number: int | float
    unit: str
    member: str
    comparator: str | None = None


@dataclass(frozen=True)
class Coded:
    """The codes that an object states, each with its system."""

    codes: frozenset[tuple[str, str]]


def _codes(node: Mapping[str, Any], declared: Mapping[str, str]) -> set[tuple[str, str]]:
    """What an object states by itself, or in its codings."""
    if "coding" in node and "code" not in declared:
        listed = node["coding"] if isinstance(node["coding"], list) else [node["coding"]]
        if all(isinstance(each, Mapping) for each in listed):
            return {pair for each in listed for pair in _code(each, declared)}
    return _code(node, declared)


def _code(node: Mapping[str, Any], declared: Mapping[str, str]) -> set[tuple[str, str]]:
    code = next(
        (node[each] for each in [declared.get("code", "code"), "notation"] if isinstance(node.get(each), str)), None
    )
    if "code" in declared:
        code = node.get(declared["code"])
    system = node.get(declared.get("system", "system"), declared.get("in"))
    return {(system, code)} if isinstance(system, str) and isinstance(code, str) and system and code else set()


def _stated_code(name: str, node: Mapping[str, Any], world: World, *, everywhere: bool) -> Coded | None:
    declared = world.declaration(world.attribute(name)).code if name else None
    if not name or not (declared or everywhere):
        return None
    found = _codes(node, declared if isinstance(declared, Mapping) else {})
    return Coded(frozenset(found)) if found else None


def _stated(name: str, node: Mapping[str, Any], world: World, *, everywhere: bool) -> Stated | None:
    """What an object states: by known members, or by those that are declared."""
    if not name:
        return None
    if _is_quantity(node):
        return Stated(node["value"], _unit_of(node), "value")
    declared = world.declaration(world.attribute(name)).quantity
    if not declared and not everywhere:
        return None
    named: Mapping[str, str] = declared if isinstance(declared, Mapping) else {}
    numbers = (
        [named["number"]] if "number" in named else ["value", "numericValue", "numericalValue", "hasNumericalValue"]
    )
    known = ["unitCode", "unit", "hasUnit", "currency", "currencyUnit", "unitText"]
    units = [node.get(each) for each in ([named["unit"]] if "unit" in named else known)]
    if "unit" not in named and node.get("system") in ("http://unitsofmeasure.org", "http://unitsofmeasure.org/"):
        units = [node.get("code"), *units]
    texts = [each for each in units if isinstance(each, str)]
    member = next((each for each in numbers if each in node), None)
    number = None if member is None else node[member]
    if isinstance(number, str) and re.fullmatch(NUMBER, number):
        number = float(number)
    if member is None or isinstance(number, bool) or not isinstance(number, int | float) or not texts:
        return None
    unit = next((each for each in texts if each in UNITS), texts[0])
    return Stated(number, unit, member, node.get("comparator"))


def _flat(
    name: str, node: Any, unit: str | None, world: World, *, everywhere: bool = False
) -> Iterator[tuple[str, Any, str | None]]:
    """(dotted name, scalar or what an object states, the unit beside it) for everything in `node` (rule 1)."""
    if isinstance(node, Mapping):
        stated = _stated(name, node, world, everywhere=everywhere)
        coded = None if stated else _stated_code(name, node, world, everywhere=everywhere)
        if stated or coded:
            yield name, stated or coded, None
        for key, value in node.items():
            inner = f"{name}.{key}" if name else key
            beside = _declared_unit(inner, node, world)
            if stated and key == stated.member and not isinstance(value, str) and not stated.comparator:
                beside = stated.unit
            yield from _flat(inner, value, beside, world, everywhere=everywhere)
    elif isinstance(node, list):
        for each in node:
            yield from _flat(name, each, unit, world, everywhere=everywhere)
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
        sum(each is not None for each in node.values()) == 2  # null is no value (rule 1)
        and isinstance(value, int | float)
        and not isinstance(value, bool)
        and any(isinstance(node.get(key), str) for key in UNIT_KEYS)
    )


def _unit_of(node: Mapping[str, Any]) -> str:
    return str(next(node[key] for key in UNIT_KEYS if node.get(key) is not None))


def _declared_unit(name: str, parent: Mapping[str, Any], world: World) -> str | None:
    """The unit in a declared sibling of `name` (rule 15)."""
    sibling = world.declaration(world.attribute(name)).unit_from
    texts = (each for each in parent.items() if isinstance(each[1], str))
    return next((value for key, value in texts if sibling and world.attribute(key) == sibling.rpartition(".")[2]), None)


def _unit_beside(name: str, item: Item, world: World) -> str | None:
    """The unit that a graph states beside a number, in the sibling that the declaration of `name` names (rule 15)."""
    sibling = world.declaration(name).unit_from
    if (
        not sibling
        or item.around is None
        or isinstance(item.value, bool)
        or not isinstance(item.value, int | float | str)
    ):
        return None
    stated = (values for each, values in item.around.members.items() if _local(each) == sibling.rpartition(".")[2])
    texts = (values[0].iri if isinstance(values[0], Thing) else values[0] for values in stated if len(values) == 1)
    return next((each for each in texts if isinstance(each, str)), None)


def dates(text: str, *, year: bool) -> tuple[datetime, datetime] | None:
    """The first and the last microsecond of a date, a month, or, if `year`, a year, in UTC (rule 26)."""
    if not re.fullmatch(r"[0-9]{4}(-[0-9]{2}){1,2}", text) and not (year and re.fullmatch("[0-9]{4}", text)):
        return None
    try:
        first = datetime.fromisoformat((text + "-01-01")[:10]).replace(tzinfo=UTC)
    except ValueError:
        return None
    if not 1685 <= first.year <= 2254:  # what lies at the edge is not asked about
        return None
    after = first
    while after.isoformat()[: len(text)] == text:
        after += timedelta(days=1)
    return first, after - timedelta(microseconds=1)


def of_epoch(number: int | float) -> datetime | None:
    """Seconds since 1970, or milliseconds where that would be outside of what date-times are (rule 26)."""
    for scale in (10**6, 10**3):
        if abs(number) * scale <= 2**53:
            return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(
                microseconds=math.floor(Fraction(Decimal(repr(number))) * scale)
            )
    return None


def duration(text: str) -> tuple[str, float] | None:
    """A duration without years and months as a time (rule 26); here of days, hours and minutes."""
    found = re.fullmatch(r"P(?:([0-9]+)D)?(?:T(?:([0-9]+)H)?(?:([0-9]+)M)?)?", text)
    if found is None or not any(found.groups()):
        return None
    days, hours, minutes = (int(each or 0) for each in found.groups())
    return "time", float(((days * 24 + hours) * 60 + minutes) * 60)


def of_kind(kind: str, order: str, left: str | None, right: str | None) -> bool:
    """Versions part by part, and addresses by what Python has of them (rule 26)."""
    if left is None or right is None:
        return False
    if kind == "ip":
        try:
            address = ipaddress.ip_address(left)
            return order == "=" and address in ipaddress.ip_network(right)
        except (ValueError, TypeError):
            return False
    one, other = _version(left), _version(right)
    if one is None or other is None:
        return False
    longest = max(len(one[0]), len(other[0]))
    keys = [(each[0] + [0] * (longest - len(each[0])), *each[1:]) for each in (one, other)]
    tests = {
        "=": keys[0] == keys[1],
        "<": keys[0] < keys[1],
        "<=": keys[0] <= keys[1],
        ">": keys[0] > keys[1],
        ">=": keys[0] >= keys[1],
    }
    return tests[order]


def _version(text: str) -> tuple[list[int], bool, list[tuple[bool, int, str]]] | None:
    """Numeric parts, whether it is no pre-release, and the labels of one."""
    found = re.fullmatch(r"[vV]?([0-9.]*[0-9])(-[0-9A-Za-z.-]+)?([+][0-9A-Za-z.-]+)?", text)
    if found is None or "" in found[1].split(".") or "" in (found[2] or "-a")[1:].split("."):
        return None
    labels = found[2][1:].split(".") if found[2] else []
    keys = [(not each.isdigit(), int(each) if each.isdigit() else 0, each) for each in labels]
    return [int(each) for each in found[1].split(".")], not labels, keys


def _is_compared(name: str, declared: Declaration) -> bool:
    """Whether quantities under this name may have a comparator: declared, or by its end."""
    ends = ("Quantity", "Age", "Count", "Distance", "Duration")
    last = name.rpartition(".")[2]
    rest = next((last.removesuffix(each) for each in ends if last.endswith(each)), "")
    return bool(declared.quantity) or bool(re.search("[a-z0-9]$", rest))


def _interval(comparator: str, amount: tuple[str, float]) -> tuple[Dimension, float, float]:
    """The lowest and the highest double that compares so."""
    dimension, number = amount
    if comparator in ("<", "<="):
        return dimension, -math.inf, number if comparator == "<=" else math.nextafter(number, -math.inf)
    return dimension, number if comparator == ">=" else math.nextafter(number, math.inf), math.inf


def _read(name: str, value: Any, unit: str | None, world: World) -> Reading:
    declared = world.declaration(name)
    if isinstance(value, bool):
        return Reading(boolean=value)
    if isinstance(value, Coded):
        return Reading(concepts=frozenset(iri for each in value.codes for iri in world.coded(*each)))
    if isinstance(value, Stated):
        amount = measure(value.number, value.unit)
        if value.comparator is None or amount is None:
            return Reading(amount=amount)
        return Reading(amounts=_interval(value.comparator, amount)) if _is_compared(name, declared) else Reading()
    if isinstance(value, Thing):
        types = frozenset(each for name in value.types for each in world.named(name))
        if value.iri is None:
            return Reading(types=types)
        text, concepts = unicodedata.normalize("NFC", value.iri), frozenset(world.named(value.iri))
        return Reading(
            text, world.root_word(value.iri), concepts=concepts, types=types, also=frozenset(world.words(value.iri))
        )
    if isinstance(value, int | float):
        unit = unit or declared.unit
        moment = of_epoch(value) if declared.kind == "instant" else None
        return Reading(number=value, instant=moment, amount=measure(value, unit) if unit else None)
    text, root = unicodedata.normalize("NFC", value), world.root_word(value)
    within = declared.code.get("in") if isinstance(declared.code, Mapping) else None
    coded = world.coded(within, text) if within else set()
    others = {found.expand(each["as"]) for each in declared.reads if (found := re.fullmatch(each["match"], text))}
    of_others = {iri for each in others for iri in world.meant(each, declared.range)}
    of_others |= {iri for each in others if within for iri in world.coded(within, each)}
    concepts = frozenset(world.meant(text, declared.range) | coded | of_others)
    also = frozenset({*map(world.root_word, others), *world.words(text)})
    if declared.kind == "number" and re.fullmatch(rf"\s*{NUMBER}\s*", value) and _is_exact(value):
        unit = unit or declared.unit
        amount = measure(float(value), unit) if unit else None
        return Reading(text, root, number=float(value), amount=amount, concepts=concepts, also=also)
    quantity = re.fullmatch(rf"\s*({NUMBER})\s+(\S+)\s*", value)
    return Reading(
        text,
        root,
        instant=instant(value),
        amount=measure(float(quantity.group(1)), quantity.group(2)) if quantity else duration(value),
        concepts=concepts,
        also=also,
        dates=dates(value, year=declared.kind == "instant" or isinstance(value, Year)),
        is_duration=duration(value) is not None,
    )
