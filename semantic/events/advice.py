"""Notes for publishers about values and names that probably have another meaning than intended.

These notes are never part of the meaning of an event. They are computed only when they are read.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from kindcast.semantic.flatten import QuantityObject
from kindcast.semantic.model import Instant, Note, Quantity, Value
from kindcast.semantic.ontology.records import local_name
from kindcast.semantic.units.measure import in_words, is_number, not_a_quantity, surprising_unit
from kindcast.semantic.vocabulary.attributes import AttributeDeclaration
from kindcast.semantic.vocabulary.event_types import QuantityMembers, stated_value
from kindcast.semantic.vocabulary.labels import NearNames
from kindcast.semantic.vocabulary.vocabulary import Vocabulary, unknown_term

__all__ = [
    "CONTEXT",
    "DATES",
    "advice_on_name",
    "advice_on_unit",
    "advice_on_value",
    "published_in_words",
    "says_what_to_write",
]

CONTEXT = "ce"
"""The first segment of the names of context attributes."""
AMOUNT = "amount:"
DATES = frozenset({"instant", "since", "until", "day", "month", "year"})
"""The readings of date-times and dates."""
LONGEST_TERM = 100
"""The maximum length in characters of the name of a concept. A longer string is a text."""
NOT_NUMERIC = frozenset({"concept", "text", "version", "ip"})


def advice_on_name(name: str, known: NearNames) -> Iterator[Note]:
    """Yields a note if an attribute is unknown and its name is similar to a known name."""
    near = None if "@" in name else known.nearest(name)  # graphs have generated names such as name.@type
    if near is not None:
        detail = f"{name} is not an attribute of any subscription, declaration or vocabulary; did you mean {near}?"
        yield Note("near-attribute", name, detail)


def advice_on_value(
    name: str, value: Value, vocabulary: Vocabulary, readings: Collection[str] = (), unit: str | None = None
) -> Iterator[Note]:
    """Yields notes about one value of `name`. `readings` are those in which subscriptions compare the attribute
    (`number`, `amount:temperature`). `unit` is the unit that the value has from another attribute."""
    if name.startswith(f"{CONTEXT}.") and "text" in readings:
        readings = {*readings} - {"number"}  # filters of CloudEvents compare a context attribute as text and as number
    said = vocabulary.units.parse(value.text) if value.text is not None else None
    stated = unit or (said.unit if said is not None else _unit_of(value.published))
    if value.amount is not None and stated is not None:
        written = published_in_words(value)
        yield from advice_on_unit(name, stated, vocabulary, f"{written} {stated}" if is_number(written) else written)
    declaration = vocabulary.attributes.declaration(name)
    kind = None if declaration is None else declaration.kind
    measured = unit or (None if declaration is None else declaration.unit)
    is_beyond = measured is not None and vocabulary.units.knows(measured)  # a double does not hold its amount
    amounts = sorted(each.removeprefix(AMOUNT) for each in readings if each.startswith(AMOUNT))
    if value.amount is not None or (value.number is not None and not is_beyond and "number" not in readings):
        yield from _advice_on_number(name, value, declaration, readings, amounts)
    if value.text is None or value.is_numeric or value.concepts or kind in NOT_NUMERIC:
        return
    if "concept" in readings and kind is None and len(value.text) <= LONGEST_TERM and value.instant is None:
        yield unknown_term(name, value.text, vocabulary)
    if (amounts or "number" in readings) and is_number(value.text):
        detail = (
            f"{value.text!r} is a text, but subscriptions compare {name} with numbers: publish it without quotes, or "
            "declare kind number for the attribute"
        )
        yield Note("numeric-text", name, detail)
    elif value.instant is None and value.dates is None:
        wrong = not_a_quantity(value.text, vocabulary.units.knows)
        if wrong is not None and (says_what_to_write(wrong) or amounts or "number" in readings or kind == "number"):
            yield Note("not-a-quantity", name, f"{value.text!r} is a text, not a quantity: {wrong}")


def _advice_on_number(
    name: str, value: Value, declaration: AttributeDeclaration | None, readings: Collection[str], amounts: Sequence[str]
) -> Iterator[Note]:
    """Yields a note if a quantity is compared with plain numbers only, or a plain number with quantities of the
    dimensions `amounts` or with date-times only."""
    written, compare = published_in_words(value), f"but subscriptions compare {name} with"
    if value.amount is not None:
        if value.number is None and "number" in readings and not amounts:
            detail = f"{written} is {in_words(value.dimension or '')}, {compare} plain numbers"
            yield Note("quantity-for-number", name, f"{detail}: declare the unit of the attribute")
    elif amounts:
        beside = None if declaration is None else declaration.unit_from
        declare = "publish a unit, or declare unit or unit_from for the attribute"
        advice = f"publish its unit as {beside}" if beside else declare
        detail = f"{written} is a plain number, {compare} {in_words(amounts[0])}: {advice}"
        yield Note("plain-number", name, detail)
    elif (declaration is None or declaration.kind is None) and not DATES.isdisjoint(readings):
        detail = f"{written} is a plain number, {compare} date-times: declare kind instant for the attribute"
        yield Note("plain-number", name, detail)


def says_what_to_write(wrong: str | None) -> bool:
    """Whether a message of `not_a_quantity` says what to write instead. Other messages are given only if subscriptions
    or a declaration expect a number."""
    return wrong is not None and ": " in wrong


def advice_on_unit(name: str, unit: str, vocabulary: Vocabulary, written: str) -> Iterator[Note]:
    """Yields a note if the name of a unit is also used for another unit. No note if the declared unit of the attribute
    has the same dimension: then the unit is intended."""
    surprising = surprising_unit(unit)
    if surprising is None:
        return
    declaration = vocabulary.attributes.declaration(name)
    units = vocabulary.units
    expected = None if declaration is None else declaration.unit
    if expected is not None and units.knows(expected) and units.dimension(expected) == units.dimension(unit):
        return
    is_read, instead = surprising
    yield Note("surprising-unit", name, f"{unit} in {written} is read as {is_read}; write {instead}")


def published_in_words(value: Value | Any) -> str:
    """Returns a value as it was published: texts and quantities without quotes, at most 60 characters."""
    published = value.published if isinstance(value, Value) else value
    if isinstance(published, Mapping):
        stated = _stated(published)
        if stated is not None:
            published = f"{stated[0]} {local_name(stated[1]) if '://' in stated[1] else stated[1]}"
        else:
            published = dict(published)
    elif isinstance(published, Quantity):
        published = f"{published.value} {published.unit}"
    elif isinstance(published, Instant):
        published = published.text
    elif isinstance(published, bool):
        published = "true" if published else "false"
    text = str(published)
    return text if len(text) <= 60 else text[:59] + "…"


def _unit_of(published: Any) -> str | None:
    """Returns the unit that an object states beside its value."""
    stated = _stated(published) if isinstance(published, Mapping) else None
    return None if stated is None else stated[1]


def _stated(published: Mapping[str, Any]) -> tuple[Any, str] | None:
    """Returns (number, unit) of an object that states a quantity (rule 22); None if it states none. Whether the unit is
    known does not matter."""
    found = stated_value(published, QuantityMembers(), None, bool)
    if found is not None and isinstance(found.scalar, QuantityObject):
        return found.scalar.value, found.scalar.unit
    unit = next((each for key, each in published.items() if key != "value" and isinstance(each, str)), None)
    return (published["value"], unit) if unit and "value" in published else None
