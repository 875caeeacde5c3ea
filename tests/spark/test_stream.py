"""Streams: exactly once through restarts, repeated events dropped, subscriptions that change under way."""

import json
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from kindcast.spark_jobs import stream
from kindcast.spark_jobs.output import worst_of
from kindcast.spark_jobs.report import UnusableOutput
from kindcast.spark_jobs.snapshot import Inputs, Snapshot, write_snapshot
from kindcast.spark_jobs.stream import start_stream, stream_events

SHOP = b"""@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> . @prefix : <http://example.org/> .
:Laptop rdfs:subClassOf :Computer ; rdfs:label "laptop" . :Tablet rdfs:subClassOf :Computer .
"""


@pytest.fixture
def inputs(tmp_path: Path) -> Inputs:
    """A shop and its subscriptions, in files that tests change."""
    (tmp_path / "shop.ttl").write_bytes(SHOP)
    subscribe(tmp_path, {"computers": "target isa Computer"})
    (tmp_path / "in").mkdir()
    return Inputs(ontologies=(tmp_path / "shop.ttl",), subscriptions=tmp_path / "subscriptions.ndjson")


def subscribe(folder: Path, subscriptions: dict[str, str]) -> None:
    lines = [json.dumps({"id": id, "expression": text}) for id, text in subscriptions.items()]
    (folder / "subscriptions.ndjson").write_text("\n".join(lines) + "\n", encoding="utf-8")


def put(folder: Path, name: str, events: Iterable[dict[str, Any] | str]) -> None:
    """A file that appears whole."""
    lines = [each if isinstance(each, str) else json.dumps(each) for each in events]
    (folder / ".arriving").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / ".arriving").rename(folder / "in" / name)


def offer(id: str, target: str) -> dict[str, Any]:
    return {"specversion": "1.0", "id": id, "source": "/shop", "type": "offer", "data": {"target": target}}


@pytest.fixture
def drain(spark: SparkSession, tmp_path: Path, inputs: Inputs) -> Callable[[], None]:
    """Start the stream, let it match all that is there, and end."""

    def run(newest: Callable[[], Snapshot] | None = None) -> None:
        events = stream_events(spark, "files", {"path": str(tmp_path / "in")})
        snapshot = newest or (lambda: inputs.snapshot(tmp_path / "snapshots"))
        query = start_stream(events, tmp_path / "out", snapshot, trigger_seconds=None)
        query.awaitTermination()

    return run


def rows(folder: Path) -> dict[str, list[str]]:
    """Event → who got it; each event once."""
    found = pq.read_table(folder / "out").to_pylist()
    assert len({row["id"] for row in found}) == len(found)
    return {row["id"]: sorted(row["subscriptions"]) for row in found}


def test_stream_matches_new_files_once_and_carries_on_after_a_restart(
    tmp_path: Path, drain: Callable[[], None]
) -> None:
    """A second run takes only what is new; an event that comes again is dropped, a bad line is told of."""
    put(tmp_path, "one.ndjson", [offer("1", "laptop"), "{broken", offer("2", "sofa")])
    drain()
    assert rows(tmp_path) == {"1": ["computers"], "2": []}
    put(tmp_path, "two.ndjson", [offer("1", "laptop"), offer("3", "Tablet"), offer("3", "Tablet")])
    drain()
    drain()
    assert rows(tmp_path) == {"1": ["computers"], "2": [], "3": ["computers"]}
    (bad,) = [each for path in (tmp_path / "out").rglob("_quarantine/*") for each in pq.read_table(path).to_pylist()]
    assert (bad["file"], bad["line"], bad["text"]) == ("one.ndjson", 2, "{broken")


def test_everything_of_a_batch_is_on_disk_before_it_has_its_name(
    tmp_path: Path, drain: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also what cannot be read, and the counts: without them a stream could not go on after a loss of power."""
    flushed: set[str] = set()
    monkeypatch.setattr(stream, "sync", lambda path: flushed.add(path.name))
    put(tmp_path, "a.ndjson", [offer("1", "Laptop"), "{broken"])
    drain()
    batch = tmp_path / "out" / "batch=000000000"
    assert {"_batch.json", "_quarantine", "lines.parquet"} <= {path.name for path in batch.rglob("*")} <= flushed


def test_stream_reads_folders_as_an_archive_has_them(tmp_path: Path, drain: Callable[[], None]) -> None:
    """Files of one name in two folders are different files, `name=value` is data, and other files do not matter."""
    subscribe(tmp_path, {"computers": "target isa Computer", "german": 'shop = "de"'})
    for folder in ("a", "b", "shop=de", "_hidden"):
        (tmp_path / "in" / folder).mkdir()
        put(tmp_path, f"{folder}/x.ndjson", [{"target": "laptop"}])
    (tmp_path / "in" / "readme.txt").write_text("no events", encoding="utf-8")
    drain()
    assert rows(tmp_path) == {
        "a/x.ndjson:1": ["computers"],
        "b/x.ndjson:1": ["computers"],
        "shop=de/x.ndjson:1": ["computers", "german"],
    }


def test_stream_reads_files_of_any_age(tmp_path: Path, drain: Callable[[], None]) -> None:
    """A file keeps its time when it is moved: it may come long after it was written, and after newer ones."""
    put(tmp_path, "new.ndjson", [offer("1", "laptop")])
    drain()
    put(tmp_path, "old.ndjson", [offer("2", "laptop")])
    os.utime(tmp_path / "in" / "old.ndjson", (time.time() - 30 * 86_400,) * 2)
    drain()
    assert rows(tmp_path) == {"1": ["computers"], "2": ["computers"]}


def test_stream_goes_on_with_an_empty_file_in_place_of_one_that_is_gone(
    tmp_path: Path, drain: Callable[..., None], inputs: Inputs
) -> None:
    """The checkpoint has the name of the file, so the batch cannot do without it."""
    put(tmp_path, "one.ndjson", [offer("1", "laptop")])

    def newest() -> Snapshot:
        (tmp_path / "in" / "one.ndjson").unlink()
        return inputs.snapshot(tmp_path / "snapshots")

    with pytest.raises(Exception, match=r"one\.ndjson") as ended:
        drain(newest)
    assert "one.ndjson" in worst_of(ended.value)
    (tmp_path / "in" / "one.ndjson").write_bytes(b"")
    put(tmp_path, "two.ndjson", [offer("2", "laptop")])
    drain()
    assert rows(tmp_path) == {"2": ["computers"]}


def test_stream_takes_each_declared_revision_of_an_event_once(tmp_path: Path, drain: Callable[..., None]) -> None:
    """From the batch on in which the type declares revisions; before, there is only the id. A line that is no event
    does not matter."""
    note = {"specversion": "1.0", "id": "n1", "source": "/notes", "type": "note"}
    revisions = [note | {"data": {"ref": "r", "rev": rev}} for rev in range(3)]
    declared = {"x-kindcast-subject": "ref", "x-kindcast-revision": "rev", "x-kindcast-retracts": "revoked"}
    asked = [(f"rev {rev}", f"rev = {rev}") for rev in range(6)]
    plain = write_snapshot(tmp_path / "plain", (), asked)
    revised = write_snapshot(tmp_path / "revised", (), asked, declarations={"schemas": {"note": declared}})
    withdrawn = note | {"data": {"ref": "r", "rev": 5, "revoked": True}}

    def matched() -> list[str]:
        return sorted(name for row in pq.read_table(tmp_path / "out").to_pylist() for name in row["subscriptions"])

    put(tmp_path, "one.ndjson", revisions)
    drain(lambda: plain)
    assert matched() == ["rev 0"]
    put(tmp_path, "two.ndjson", [*revisions[1:], "{broken", note | {"data": {"ref": "r", "rev": {"of": 3}}}, withdrawn])
    put(tmp_path, "three.ndjson", revisions[1:])
    drain(lambda: revised)
    put(tmp_path, "four.ndjson", [withdrawn, revisions[2]])
    drain(lambda: revised)
    assert matched() == ["rev 0", "rev 1", "rev 2", "rev 5"]
    assert {row["id"] for row in pq.read_table(tmp_path / "out").to_pylist()} == {"n1"}


def test_stream_takes_changed_subscriptions_and_ontologies_from_the_next_batch_on(
    tmp_path: Path, drain: Callable[[], None]
) -> None:
    """No restart of anything but the file: what was matched stays as it was."""
    put(tmp_path, "one.ndjson", [offer("1", "laptop")])
    drain()
    subscribe(tmp_path, {"sofas": "target isa Sofa", "laptops": "target isa Laptop"})
    (tmp_path / "shop.ttl").write_bytes(SHOP + b":Sofa a rdfs:Class .")
    put(tmp_path, "two.ndjson", [offer("2", "laptop"), offer("3", "Sofa")])
    drain()
    assert rows(tmp_path) == {"1": ["computers"], "2": ["laptops"], "3": ["sofas"]}
    versions = {row["vocabulary_version"] for row in pq.read_table(tmp_path / "out").to_pylist()}
    assert len(versions) == 2


def test_stream_that_crashes_in_a_batch_does_it_again(tmp_path: Path, drain: Any, inputs: Inputs) -> None:
    """Before the folder of the batch is in place nothing is seen of it; after the restart it is there once."""
    put(tmp_path, "one.ndjson", [offer("1", "laptop")])

    def crash() -> Snapshot:
        raise RuntimeError("the power is gone")

    with pytest.raises(Exception, match="the power is gone"):
        drain(crash)
    assert not list((tmp_path / "out").glob("batch=*"))
    drain()
    assert rows(tmp_path) == {"1": ["computers"]}


def test_stream_whose_checkpoint_is_gone_refuses_to_pass_over_events(tmp_path: Path, drain: Callable[[], None]) -> None:
    """Its batches would be numbered from 0 again, and taken for those that are there."""
    put(tmp_path, "one.ndjson", [offer("1", "laptop")])
    drain()
    (tmp_path / "out" / "_kindcast").rename(tmp_path / "elsewhere")
    with pytest.raises(UnusableOutput, match="checkpoint is missing"):
        drain()
