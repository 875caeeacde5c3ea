"""The known answers: what eleven subscriptions catch of a flat's real sensor readings, computed elsewhere by rdflib.

The readings and Brick 1.5 are not part of the project; where they are absent these tests say so and skip. The same
questions over the Brick of the PyPI package `brickschema`, and readings of our own, run everywhere.
"""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["ANSWERS", "readings"]

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
