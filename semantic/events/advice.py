"""Notes to publishers about values and names that probably mean something else.

Never part of the meaning of an event: it is asked for where somebody reads notes, and costs nothing otherwise.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from kindcast.semantic.model import Note, Quantity, Value
from kindcast.semantic.units.mistakes import in_words, is_number, not_a_quantity, surprising_unit
from kindcast.semantic.vocabulary.labels import NearNames
from kindcast.semantic.vocabulary.vocabulary import Vocabulary, unknown_term

__all__ = ["DATES", "advice_on_name", "advice_on_unit", "advice_on_value", "published_in_words"]

AMOUNT = "amount:"
DATES = frozenset({"instant", "since", "until", "day", "month", "year"})
"""Readings of date-times and dates."""
LONGEST_TERM = 100
"""Characters; a longer string is text and no name of a concept."""
NOT_NUMERIC = frozenset({"concept", "text", "version", "ip"})


def advice_on_name(name: str, known: NearNames) -> Iterator[Note]:
    """That an attribute is unknown and nearly the name of a known one."""
    near = None if "@" in name else known.nearest(name)  # graphs have name.@type and the like, which nobody misspells
    if near is not None:
        detail = f"{name} is not an attribute of any subscription, declaration or vocabulary; did you mean {near}?"
        yield Note("near-attribute", name, detail)


def advice_on_value(
    name: str, value: Value, vocabulary: Vocabulary, readings: Collection[str] = (), unit: str | None = None
) -> Iterator[Note]:
    """Notes about one value of `name`. `readings` are those that subscriptions ask of the attribute (`number`,
    `amount:temperature`), `unit` is that of another attribute from which the value has it."""
    declaration = vocabulary.attributes.declaration(name)
    said = vocabulary.units.parse(value.text) if value.text is not None else None
    stated = unit or (said.unit if said is not None else _unit_of(value.published))
    if value.amount is not None and stated is not None:
        written = published_in_words(value)
        yield from advice_on_unit(name, stated, vocabulary, f"{written} {stated}" if is_number(written) else written)
    amounts = sorted(each.removeprefix(AMOUNT) for each in readings if each.startswith(AMOUNT))
    kind = None if declaration is None else declaration.kind
    is_bare = value.number is not None and value.amount is None
    if is_bare and amounts and "number" not in readings:
        detail = (
            f"{published_in_words(value)} is a plain number, but subscriptions compare {name} with "
            f"{in_words(amounts[0])}: publish a unit, or declare unit or unit_from for the attribute"
        )
        yield Note("plain-number", name, detail)
    elif is_bare and kind is None and "number" not in readings and not DATES.isdisjoint(readings):
        detail = (
            f"{published_in_words(value)} is a plain number, but subscriptions compare {name} with date-times: declare "
            "kind instant for the attribute"
        )
        yield Note("plain-number", name, detail)
    elif value.amount is not None and value.number is None and "number" in readings and not amounts:
        detail = (
            f"{published_in_words(value)} is {in_words(value.dimension or '')}, but subscriptions compare {name} with "
            "plain numbers: declare the unit of the attribute"
        )
        yield Note("quantity-for-number", name, detail)
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
        if wrong is not None and (": " in wrong or amounts or "number" in readings or kind == "number"):
            yield Note("not-a-quantity", name, f"{value.text!r} is a text, not a quantity: {wrong}")


def advice_on_unit(name: str, unit: str, vocabulary: Vocabulary, written: str) -> Iterator[Note]:
    """That a unit is read as another one than it may be meant, by its name. Nothing where the attribute is declared
    with a unit of the same dimension: then it is meant."""
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
    """A value as its publisher wrote it: texts and quantities without quotes, at most 60 characters."""
    published = value.published if isinstance(value, Value) else value
    if isinstance(published, Mapping):
        unit = _unit_of(published)
        published = f"{published.get('value')} {unit}" if unit and "value" in published else dict(published)
    elif isinstance(published, Quantity):
        published = f"{published.value} {published.unit}"
    elif isinstance(published, bool):
        published = "true" if published else "false"
    text = str(published)
    return text if len(text) <= 60 else text[:59] + "…"


def _unit_of(published: Any) -> str | None:
    """The unit that an object states beside its value."""
    if not isinstance(published, Mapping):
        return None
    return next((each for key, each in published.items() if key != "value" and isinstance(each, str)), None)
