"""A limit means the same in °F and °C over a flat's real readings, wherever the publisher puts the unit.

The unit stands in the sibling attribute that the event's schema names, beside the value in an object, or inside it.
"""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kindcast import Event, Matcher, Vocabulary

from .known_answers import EVERY, FAHRENHEIT, sample

READING = {
    "title": "A sensor's reading",
    "type": "object",
    "required": ["value", "sensor"],
    "properties": {
        "sensor": {"type": "string"},
        "unit": {"type": "string"},
        "value": {"type": ["number", "string", "object"], "x-kindcast-unit-from": "unit"},
    },
}
SUBSCRIPTIONS = {
    "fahrenheit": "type isa Temperature_Sensor and value > 86 degF",
    "celsius": "type isa Temperature_Sensor and value > 30 degC",
    "exactly fahrenheit": "type isa Temperature_Sensor and value = 77 degF",
    "exactly celsius": "type isa Temperature_Sensor and value = 25 degC",
}


def sibling(reading: dict[str, Any]) -> dict[str, Any]:
    return reading


def beside(reading: dict[str, Any]) -> dict[str, Any]:
    return {key: each for key, each in reading.items() if key != "unit"} | {
        "value": {"value": reading["value"], "unit": reading["unit"]}
    }


def inside(reading: dict[str, Any]) -> dict[str, Any]:
    return {key: each for key, each in reading.items() if key != "unit"} | {
        "value": f"{reading['value']} {reading['unit']}"
    }


@pytest.mark.slow
@pytest.mark.parametrize("place", [sibling, beside, inside])
def test_limit_in_fahrenheit_and_celsius_selects_the_same_readings(
    shared_data: Path, place: Callable[[dict[str, Any]], dict[str, Any]]
) -> None:
    """442 of 285,954 readings lie above; those of exactly 25 °C are 77 °F. Every event fits its type. All readings near
    a limit are published, and some of the others."""
    brick = shared_data / "ontologies" / "Brick-1.5.ttl"
    matcher = Matcher(Vocabulary.from_files(brick, schemas={"reading": READING}))
    matcher.add_many(SUBSCRIPTIONS.items())
    published = list(sample(shared_data, 10 * EVERY))
    equal = sum(each["value"] == 25 and each["type"].endswith("Temperature_Sensor") for each in published)
    found: dict[str, list[int]] = {name: [] for name in SUBSCRIPTIONS}
    events = (Event(place(each), {"type": "reading"}) for each in published)
    for number, matches in enumerate(matcher.match_batch(events)):
        for match in matches:
            found[match.subscription].append(number)
    assert len(found["fahrenheit"]) == FAHRENHEIT[1]
    assert found["fahrenheit"] == found["celsius"]
    assert found["exactly fahrenheit"] == found["exactly celsius"]
    assert len(found["exactly fahrenheit"]) == equal > 0
    assert {published[number]["value"] for number in found["exactly fahrenheit"]} == {25}


@pytest.mark.parametrize("place", [sibling, beside, inside])
def test_reading_of_thirty_celsius_is_exactly_86_fahrenheit(
    place: Callable[[dict[str, Any]], dict[str, Any]],
) -> None:
    """Not 30.000000000000057: conversion is exact."""
    matcher = Matcher(Vocabulary.from_ontologies([], schemas={"reading": READING}))
    matcher.add("exactly", "value = 86 degF")
    matcher.add("above", "value > 86 degF")
    values = (30.0, 30, 29.9999999999, 30.0000000001)
    rows = ({"sensor": "s", "value": value, "unit": "degC", "@type": "reading"} for value in values)
    found = Counter((match.subscription, n) for n, row in enumerate(rows) for match in matcher.match(place(row)))
    assert found == Counter([("exactly", 0), ("exactly", 1), ("above", 3)])
