"""Values that operators hand back, and what they compare as: kind and content.

Bindings join, and value constraints hold, between values of one kind: numbers, texts, booleans, date-times, and
quantities of one dimension (measured, so that 1 km is 1000 m). docs/matching-semantics.md, rule 17.
"""

import math
import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any

from kindcast.semantic.errors import InvalidQuantity, UnknownUnit
from kindcast.semantic.model import CanonicalEvent, Instant, Quantity, Term, Value
from kindcast.semantic.units import Units
from kindcast.semantic.units.instants import parse_instant

__all__ = ["EventCopy", "EventView", "Reading", "plain", "reading"]

Reading = tuple[str, Any]
"""(kind, content). Contents of one kind are ordered and hashable; `number` has 1 equal to 1.0."""


def reading(value: object, units: Units) -> Reading:
    """What `value` compares as. Raises ValueError for what no variable can hold, with the reason."""
    if isinstance(value, bool):
        return "boolean", value
    if isinstance(value, int | float):
        if not math.isfinite(value):
            raise ValueError(f"{value} is no number to compare")
        return "number", value
    if isinstance(value, str):
        return "text", unicodedata.normalize("NFC", value)
    if isinstance(value, Quantity):
        try:
            measure = units.measure(value.value, value.unit)
        except (UnknownUnit, InvalidQuantity) as error:
            raise ValueError(str(error)) from error
        return measure.dimension, measure.amount
    if isinstance(value, Instant):
        instant = parse_instant(value.text)
        if instant is None:
            raise ValueError(f"{value.text!r} is no date-time")
        return "instant", instant
    if isinstance(value, Term):
        return "text", value.iri or value.text
    raise ValueError(f"{type(value).__name__} is none of bool, int, float, str, Quantity and Instant")


def plain(value: Value) -> object:
    """A value of an event as an operator sees it: str as published, in NFC, number, bool; a quantity that was published
    as an object as `Quantity`."""
    published = value.published
    if isinstance(published, Mapping):
        number, unit = published.get("value"), next((published[key] for key in _UNIT_KEYS if key in published), None)
        return Quantity(number, unit) if isinstance(number, int | float) and isinstance(unit, str) else dict(published)
    return value.text if isinstance(published, str) and value.text is not None else published


_UNIT_KEYS = ("unit", "unitCode", "unitText", "currency")


class EventView(Mapping[str, tuple[Any, ...]]):
    """An event as operators see it: attribute → its values; an attribute that the event lacks has none. Read-only."""

    def __init__(self, event: CanonicalEvent) -> None:
        self._event = event
        self._seen: dict[str, tuple[Any, ...]] = {}

    def __getitem__(self, attribute: str) -> tuple[Any, ...]:
        found = self._seen.get(attribute)
        if found is None:
            found = tuple(plain(value) for value in self._event.attributes.get(attribute, ()))
            self._seen[attribute] = found
        return found

    def __contains__(self, attribute: object) -> bool:
        return attribute in self._event.attributes

    def __iter__(self) -> Iterator[str]:
        return iter(self._event.attributes)

    def __len__(self) -> int:
        return len(self._event.attributes)


class EventCopy(dict[str, tuple[Any, ...]]):
    """An `EventView` that was sent to another process."""

    def __missing__(self, attribute: str) -> tuple[Any, ...]:
        return ()
