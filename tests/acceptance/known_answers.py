"""The known answers: what eleven subscriptions catch of a flat's real sensor readings, computed elsewhere by rdflib.

The readings and Brick 1.5 are not part of the project; where they are absent these tests say so and skip. The same
questions over the Brick of the PyPI package `brickschema`, and readings of our own, run everywhere.

`match_table` and Spark read all of them, and each answer must be the known one. Slower ways read a sample, and must
give what `match_table` gives for it; KINDCAST_READINGS_EVERY=1 lets them read all.
"""

import gzip
import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from kindcast import Matcher, Vocabulary

__all__ = ["ANSWERS", "BRICK", "EVERY", "FAHRENHEIT", "readings", "sample", "table_answers"]

BRICK = "https://brickschema.org/schema/Brick#"
ANSWERS: dict[str, tuple[str, int]] = {
    "point": ("type isa brick:Point", 285_954),
    "sensor": ("type isa brick:Sensor", 283_870),
    "temperature": ("type isa Temperature_Sensor", 158_785),
    "temperature-only": ("type is Temperature_Sensor", 0),
    "warm": ("type isa Temperature_Sensor and value > 30", 442),
    "warm-bathroom": ('type isa Air_Temperature_Sensor and value > 30 and room = "Bathroom"', 180),
    "mild": (f"type isa <{BRICK}Sensor> and value between [25, 26)", 902),
    "humid": ("type isa Humidity_Sensor and value >= 60", 7_583),
    "setpoint": ('type isa brick:Setpoint and room != "Toilet"', 1_744),
    "equipment": ("type isa brick:Equipment", 0),
}
"""Name → (subscription, how many of the 285,954 readings it catches)."""

FAHRENHEIT = ("type isa Temperature_Sensor and value > 86 degF", 442)
"""Needs the unit that stands beside each value."""


def readings(folder: Path) -> Iterator[dict[str, Any]]:
    """The readings in time order, one object each."""
    with gzip.open(folder / "events" / "opensmarthome.ndjson.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


EVERY = int(os.environ.get("KINDCAST_READINGS_EVERY", "10"))


def sample(folder: Path, every: int = EVERY) -> Iterator[dict[str, Any]]:
    """Every tenth reading, and of the temperatures all that are near a limit of a question: at 25 °C, above 29.5 °C."""
    for number, each in enumerate(readings(folder)):
        near = each["value"] >= 29.5 or each["value"] == 25
        if number % every == 0 or (near and each["type"].endswith("Temperature_Sensor")):
            yield each


def table_answers(vocabulary: Vocabulary, events: Sequence[dict[str, Any]]) -> dict[str, int]:
    """How many of these events each subscription of `ANSWERS` catches, by `match_table`."""
    matcher = Matcher(vocabulary)
    matcher.add_many((name, text) for name, (text, _) in ANSWERS.items())
    table = matcher.match_table(pa.Table.from_pylist(list(events)))
    found = Counter(table.subscriptions(table.slots))
    return {name: found[name] for name in ANSWERS}
