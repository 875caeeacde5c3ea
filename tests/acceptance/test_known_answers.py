"""The known answers come out exact, by batch, by table and over HTTP."""

import importlib.resources
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kindcast import Matcher, Vocabulary

from .known_answers import ANSWERS, FAHRENHEIT, readings, sample, table_answers

UNIT_BESIDE = {"value": {"kind": "number", "unit_from": "unit"}}


@pytest.fixture(scope="module")
def brick(shared_data: Path) -> Vocabulary:
    return Vocabulary.from_files(shared_data / "ontologies" / "Brick-1.5.ttl")


@pytest.fixture(scope="module")
def events(shared_data: Path) -> list[dict[str, Any]]:
    return list(readings(shared_data))


def loaded(vocabulary: Vocabulary, engine: str = "fused") -> Matcher:
    matcher = Matcher(vocabulary, engine=engine)
    matcher.add_many((name, text) for name, (text, _) in ANSWERS.items())
    return matcher


def expected() -> dict[str, int]:
    return {name: count for name, (_, count) in ANSWERS.items() if count}


def test_known_answers_by_batch_are_those_of_the_table(brick: Vocabulary, shared_data: Path) -> None:
    """Readings through `match_batch`, which gives the bit-set engine one event after the other."""
    events = list(sample(shared_data))
    found = Counter(match.subscription for matches in loaded(brick, "ctps").match_batch(events) for match in matches)
    assert {name: found[name] for name in ANSWERS} == table_answers(brick, events)
    assert found["warm"] == ANSWERS["warm"][1]


def test_known_answers_by_table_are_exact(brick: Vocabulary, events: list[dict[str, Any]]) -> None:
    """The same readings as an Arrow table, through `match_table`, by columns."""
    matcher = loaded(brick)
    table = matcher.match_table(pa.Table.from_pylist(events))
    assert len(table.offsets) == len(events) + 1
    assert dict(Counter(table.subscriptions(table.slots))) == expected()


def test_known_answer_in_fahrenheit_reads_the_unit_beside_the_value(
    shared_data: Path, events: list[dict[str, Any]]
) -> None:
    """Above 86 °F are the readings above 30 °C, with the unit in a declared sibling attribute."""
    path = shared_data / "ontologies" / "Brick-1.5.ttl"
    matcher = Matcher(Vocabulary.from_files(path, attributes=UNIT_BESIDE))
    matcher.add("warm", FAHRENHEIT[0])
    found = matcher.match_table(pa.Table.from_pylist(events))
    assert len(found.slots) == FAHRENHEIT[1]
    rows = [number for number in range(len(events)) if found.offsets[number] != found.offsets[number + 1]]
    by_row = matcher.match_batch(events[number] for number in rows)
    assert all(len(matches) == 1 for matches in by_row)


# ── the same kind of question, everywhere ───────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def packaged_brick() -> Iterator[Vocabulary]:
    root = importlib.resources.files("brickschema") / "ontologies"
    versions = sorted(entry.name for entry in root.iterdir() if (entry / "Brick.ttl").is_file())
    with importlib.resources.as_file(root / versions[-1] / "Brick.ttl") as path:
        yield Vocabulary.from_files(path)


def test_packaged_brick_answers_over_readings_of_our_own(packaged_brick: Vocabulary) -> None:
    """A small building: the counts are written beside the readings that make them."""
    space = "https://brickschema.org/schema/Brick#"
    kinds = {
        "Zone_Air_Temperature_Sensor": [18.5, 21.0, 25.5, 31.0],  # two of four at 25 and above
        "Outside_Air_Temperature_Sensor": [-2.7, 30.0, 30.1],
        "Zone_Air_Humidity_Sensor": [59.9, 60.0, 61.0],
        "Illuminance_Sensor": [0.0, 500.0],
        "Zone_Air_Temperature_Setpoint": [20.0],
    }
    events = [
        {"type": space + kind, "value": value, "room": "Bathroom" if value > 30 else "Kitchen"}
        for kind, values in kinds.items()
        for value in values
    ]
    matcher = loaded(packaged_brick)
    found = Counter(match.subscription for matches in matcher.match_batch(events) for match in matches)
    assert dict(found) == {
        "point": 13,
        "sensor": 12,
        "temperature": 7,
        "warm": 2,
        "warm-bathroom": 2,
        "mild": 1,
        "humid": 2,
        "setpoint": 1,
    }
