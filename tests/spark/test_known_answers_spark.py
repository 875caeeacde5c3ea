"""The known answers through Spark: a flat's real readings, in mixed units and languages, equal to the matcher's line
for line. The readings are not part of the project; where they are absent these tests skip, and readings of our own are
used.
"""

import importlib.resources
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from kindcast import Matcher, Vocabulary
from kindcast.semantic.ontology import Ontology
from kindcast.semantic.ontology.loader import read_several
from kindcast.spark_jobs.match import match_archive
from kindcast.spark_jobs.normalise import normalise_archive
from kindcast.spark_jobs.reading import ReadOptions
from kindcast.spark_jobs.snapshot import write_snapshot
from tests.acceptance.known_answers import ANSWERS, BRICK, FAHRENHEIT, sample, table_answers

UNIT_BESIDE = {"attributes": {"value": {"kind": "number", "unit_from": "unit"}}}
CELSIUS, IN_FAHRENHEIT = "http://qudt.org/vocab/unit/DEG_C", "http://qudt.org/vocab/unit/DEG_F"
LABELS = """@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> . @prefix brick:
<https://brickschema.org/schema/Brick#> .
brick:Air_Temperature_Sensor rdfs:label "Lufttemperaturfühler"@de , "capteur de température d'air"@fr .
brick:Zone_Air_Humidity_Sensor rdfs:label "区域空气湿度传感器"@zh .
"""
TOLD = {
    f"{BRICK}Air_Temperature_Sensor": (
        "Lufttemperaturfühler",
        "capteur de température d'air",
        "Air_Temperature_Sensor",
    ),
    f"{BRICK}Zone_Air_Humidity_Sensor": ("区域空气湿度传感器", "brick:Zone_Air_Humidity_Sensor"),
}


def mixed(events: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The same readings as three publishers would send them: °F here, another language there."""
    for number, event in enumerate(events):
        told = TOLD.get(event["type"])
        if told is not None and number % 3:
            event = event | {"type": told[number % len(told)]}
        if event["unit"] == CELSIUS and number % 2:
            event = event | {"value": round(event["value"] * 1.8 + 32, 9), "unit": IN_FAHRENHEIT}
        yield event


def questions() -> dict[str, tuple[str, int]]:
    """The eleven, with units where values have them: a bare number and a quantity never compare."""
    asked = dict(ANSWERS) | {"fahrenheit": FAHRENHEIT}
    for name in ("warm", "warm-bathroom"):
        asked[name] = (asked[name][0].replace("value > 30", "value > 30 degC"), asked[name][1])
    asked["humid"] = (asked["humid"][0] + " percent", asked["humid"][1])
    mild = " or ".join(f"value between [25 {unit}, 26 {unit})" for unit in ("degC", "percent", "lux"))
    asked["mild"] = (f"type isa <{BRICK}Sensor> and ({mild})", asked["mild"][1])
    return asked


def written(events: Iterator[dict[str, Any]], path: Path) -> list[dict[str, Any]]:
    kept = []
    with path.open("w", encoding="utf-8") as file:
        for event in events:
            file.write(json.dumps(event, ensure_ascii=False) + "\n")
            kept.append(event)
    return kept


@pytest.fixture(scope="module")
def ontologies(shared_data: Path) -> list[Ontology]:
    brick = (shared_data / "ontologies" / "Brick-1.5.ttl").read_bytes()
    return list(read_several([("Brick.ttl", brick), ("labels.ttl", LABELS.encode())]))


def by_line(folder: Path) -> dict[int, list[str]]:
    """Line of the archive → who got it."""
    table = pq.read_table(folder, columns=["id", "subscriptions"])
    ids = [int(id.rpartition(":")[2]) for id in table["id"].to_pylist()]
    assert len(set(ids)) == len(ids)
    return dict(zip(ids, map(sorted, table["subscriptions"].to_pylist()), strict=True))


def test_readings_as_they_are_give_the_known_answers(
    shared_data: Path, ontologies: list[Ontology], spark: SparkSession, tmp_path: Path
) -> None:
    """The archive as it was published, gzipped, by the unchanged questions."""
    asked = [(name, text) for name, (text, _) in ANSWERS.items()]
    snapshot = write_snapshot(tmp_path / "snapshot", ontologies, asked)
    archive = shared_data / "events" / "opensmarthome.ndjson.gz"
    summary = match_archive(spark, str(archive), tmp_path / "out", snapshot, read=ReadOptions(time_from="ts"))
    assert (summary["events"], summary["quarantined"]) == (285_954, 0)
    assert (summary["days"][0], summary["days"][-1], len(summary["days"])) == ("2017-03-08", "2017-06-06", 91)
    found = Counter(name for names in by_line(tmp_path / "out").values() for name in names)
    assert found == {name: count for name, (_, count) in ANSWERS.items() if count}


@pytest.mark.slow
def test_readings_in_mixed_units_and_languages_give_the_known_answers_line_for_line(
    shared_data: Path, ontologies: list[Ontology], spark: SparkSession, tmp_path: Path
) -> None:
    """A sample, normalised, then matched: each answer is that of `match_table` for the readings as they are, and for
    each line what the matcher says of the event itself."""
    asked = questions()
    snapshot = write_snapshot(
        tmp_path / "snapshot",
        ontologies,
        [(name, text) for name, (text, _) in asked.items()],
        declarations=UNIT_BESIDE,
    )
    as_they_are = list(sample(shared_data))
    events = written(mixed(iter(as_they_are)), tmp_path / "raw.ndjson")
    read = ReadOptions(time_from="ts")
    normalised = normalise_archive(
        spark, str(tmp_path / "raw.ndjson"), tmp_path / "normal", snapshot, read=read, split_bytes=8 << 20
    )
    assert (normalised["events"], normalised["quarantined"]) == (len(events), 0)
    assert normalised["changed"] > 0.7 * len(events)
    match_archive(spark, str(tmp_path / "normal"), tmp_path / "out", snapshot)
    found = by_line(tmp_path / "out")
    told = table_answers(Vocabulary(ontologies), as_they_are)
    told["fahrenheit"] = told["warm"]
    assert Counter(name for names in found.values() for name in names) == {name: n for name, n in told.items() if n}
    matcher = Matcher(Vocabulary(ontologies, **UNIT_BESIDE))
    matcher.add_many((name, text) for name, (text, _) in asked.items())
    said: dict[tuple[Any, ...], list[str]] = {}  # no question asks for more than these four
    for line, event in enumerate(events, 1):
        key = (event["type"], event["value"], event["unit"], event["room"])
        if key not in said:
            said[key] = sorted(match.subscription for match in matcher.match(event))
        assert found[line] == said[key], event


def test_packaged_brick_answers_over_readings_of_our_own(spark: SparkSession, tmp_path: Path) -> None:
    """The same kind of question, everywhere: the counts stand beside the readings that make them."""
    root = importlib.resources.files("brickschema") / "ontologies"
    versions = sorted(entry.name for entry in root.iterdir() if (entry / "Brick.ttl").is_file())
    brick = (root / versions[-1] / "Brick.ttl").read_bytes()
    ontologies = list(read_several([("Brick.ttl", brick), ("labels.ttl", LABELS.encode())]))
    kinds: dict[str, list[Any]] = {
        "Zone_Air_Temperature_Sensor": [18.5, 21.0, 25.5, 31.0],
        "Lufttemperaturfühler": [-2.7, {"value": 87.8, "unit": "degF"}, "31 degC"],
        "区域空气湿度传感器": [59.9, 60.0, 61.0],
        "Zone_Air_Temperature_Setpoint": [20.0],
        "Lufttemperaturfuehler": [20.0],  # no such label
    }
    events = [{"type": kind, "value": value} for kind, values in kinds.items() for value in values]
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw" / "a.ndjson").write_text("".join(json.dumps(each) + "\n" for each in events), encoding="utf-8")
    asked = {
        "temperature": "type isa Temperature_Sensor",
        "warm": "type isa Temperature_Sensor and value > 30 degC",
        "humid": "type isa Humidity_Sensor and value >= 60",
        "setpoint": "type isa brick:Setpoint",
    }
    declared = {"attributes": {"type": {"kind": "concept"}}}
    snapshot = write_snapshot(tmp_path / "snapshot", ontologies, asked.items(), declarations=declared)
    summary = normalise_archive(spark, str(tmp_path / "raw"), tmp_path / "normal", snapshot)
    assert (summary["events"], summary["unknown_terms"], summary["ambiguous_terms"]) == (12, 1, 0)
    assert "Lufttemperaturfuehler,unknown,1" in (tmp_path / "normal" / "_terms.csv").read_text("utf-8").replace('"', "")
    summary = match_archive(spark, str(tmp_path / "normal"), tmp_path / "out", snapshot)
    assert (summary["files"], summary["events"]) == (1, 12)  # what else lies there is no event
    found = Counter(name for names in by_line(tmp_path / "out").values() for name in names)
    assert found == {"temperature": 7, "warm": 2, "humid": 2, "setpoint": 1}
