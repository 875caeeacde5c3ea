"""What Spark jobs of commit 96216f5 left (tests/fixtures): snapshot, output and checkpoint go on now as they were."""

import json
import os
import shutil
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from kindcast.spark_jobs.match import match_archive
from kindcast.spark_jobs.snapshot import Inputs, Snapshot
from kindcast.spark_jobs.stream import start_stream, stream_events

SAVED = Path(__file__).resolve().parents[1] / "fixtures" / "commit_96216f5"
EXPECTED = {
    "a0": ["by hook", "computers", "every event", "read halfway"],
    "a1": ["by hook", "computers", "every event", "read halfway"],
    "a2": ["by hook", "every event", "read halfway"],
    "a3": ["every event"],
    "a4": ["every event"],
    "a5": ["by hook", "computers", "every event", "read halfway"],
}
"""Event → subscriptions, as they stand in the output of that commit."""


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A copy, with its own place in the checkpoint, and with the times of files that the checkpoint knows. After a week
    Spark forgets a file that it read, and would take one of a later time for a new one."""
    folder = tmp_path / "saved"
    shutil.copytree(SAVED, folder)
    for path in (folder / "stream" / "_kindcast" / "checkpoint" / "sources").rglob("*"):
        if path.is_file():
            text = path.read_text(encoding="utf-8").replace("FIXTURES", str(folder))
            path.write_text(text, encoding="utf-8")
            for read in map(json.loads, text.splitlines()[1:]):
                os.utime(read["path"].removeprefix("file://"), ns=(read["timestamp"] * 1_000_000,) * 2)
    return folder


def inputs(saved: Path) -> Inputs:
    """What the jobs were asked to match by."""
    return Inputs(
        ontologies=(saved / "shop.ttl",),
        declarations=saved / "declarations.json",
        subscriptions=saved / "asked.ndjson",
        shards=2,
    )


def rows(output: Path) -> dict[str, list[str]]:
    """Event → subscriptions; each event once."""
    found = pq.read_table(output).to_pylist()
    assert set(Counter(row["id"] for row in found).values()) <= {1}
    return {row["id"]: sorted(row["subscriptions"]) for row in found}


def test_older_snapshot_opens_with_its_subscriptions(saved: Path) -> None:
    """Both shards, and they match what they matched; where rules mean something else since, they are compiled again."""
    snapshot = Snapshot.read(saved / "snapshot")
    vocabulary = snapshot.vocabulary()
    shards = [snapshot.matcher(number, vocabulary) for number in range(len(snapshot.shards))]
    assert sorted(name for shard in shards for name in shard) == EXPECTED["a0"]
    for line in (saved / "archive" / "one.ndjson").read_text(encoding="utf-8").splitlines()[:-1]:
        event = json.loads(line)
        matched = sorted(match.subscription for shard in shards for match in shard.match(event["data"]))
        assert matched == EXPECTED[event["id"]]


def test_older_output_of_an_archive_is_carried_on(saved: Path, spark: SparkSession) -> None:
    """The job runs again into the folder of an older one: each event once, what is no event in quarantine."""
    assert rows(saved / "matched") == EXPECTED
    snapshot = inputs(saved).snapshot(saved / "snapshots")
    summary = match_archive(spark, str(saved / "archive"), saved / "matched", snapshot)
    assert (summary["events"], summary["quarantined"]) == (6, 1)
    assert rows(saved / "matched") == EXPECTED


def test_older_stream_goes_on_behind_its_checkpoint(saved: Path, spark: SparkSession) -> None:
    """Files and events that it had are not taken again; new ones are, in the next batch."""
    assert sorted(rows(saved / "stream")) == ["a0", "a1", "a2", "a3", "a4"]
    snapshot = inputs(saved).snapshot(saved / "snapshots")
    old = (saved / "archive" / "one.ndjson").read_text(encoding="utf-8").splitlines()[0]
    new = (saved / "archive" / "two.ndjson").read_text(encoding="utf-8").splitlines()[1]
    (saved / ".three").write_text(f"{old}\n{new}\n", encoding="utf-8")
    (saved / ".three").rename(saved / "incoming" / "three.ndjson")
    for _ in range(2):
        events = stream_events(spark, "files", {"path": str(saved / "incoming")})
        start_stream(
            events, saved / "stream", lambda: snapshot, window="36500 days", trigger_seconds=None
        ).awaitTermination()
    assert rows(saved / "stream") == EXPECTED
    assert sorted(path.name for path in (saved / "stream").glob("batch=*")) == [f"batch={n:09}" for n in range(3)]
