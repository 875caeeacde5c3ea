"""Spark gives the pairs of event and subscription that a server gives by HTTP and through brokers
(`tests/acceptance/test_connect_pairs.py`). The campaign `pairs` has many more events, and kills."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from kindcast.spark_jobs.match import match_archive
from kindcast.spark_jobs.snapshot import Inputs
from kindcast.spark_jobs.stream import start_stream, stream_events
from tests.harness.event_pairs import DrawnEvents, wishes

EVENTS = DrawnEvents(seed=16, count=2_000)
TEXTS = {f"s{number}": text for number, text in enumerate(wishes())}


@pytest.fixture
def inputs(tmp_path: Path) -> Inputs:
    """All subscriptions, and the events in two files."""
    lines = [json.dumps({"id": id, "expression": text}) for id, text in TEXTS.items()]
    (tmp_path / "asked.ndjson").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (tmp_path / "in").mkdir()
    for file in range(2):
        lines = [json.dumps(EVENTS.event(number)) for number in range(file, EVENTS.count, 2)]
        (tmp_path / "in" / f"{file}.ndjson").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return Inputs(subscriptions=tmp_path / "asked.ndjson")


def check_right(folder: Path) -> None:
    """Each event has one row, with its subscriptions."""
    rows = pq.read_table(folder / "out", columns=["id", "subscriptions"]).to_pylist()
    assert len(rows) == EVENTS.count
    assert {(int(row["id"]), TEXTS[id]) for row in rows for id in row["subscriptions"]} == EVENTS.pairs()


def test_an_archive_gives_the_same_pairs(tmp_path: Path, inputs: Inputs, spark: SparkSession) -> None:
    match_archive(spark, str(tmp_path / "in"), tmp_path / "out", inputs.snapshot(tmp_path / "snapshots"))
    check_right(tmp_path)


def test_a_stream_gives_the_same_pairs(tmp_path: Path, inputs: Inputs, spark: SparkSession) -> None:
    events = stream_events(spark, "files", {"path": str(tmp_path / "in")})
    query = start_stream(
        events, tmp_path / "out", lambda: inputs.snapshot(tmp_path / "snapshots"), trigger_seconds=None
    )
    query.awaitTermination()
    check_right(tmp_path)
