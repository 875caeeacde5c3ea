"""Streams as they run for long: in a process that is killed, and from a socket."""

import json
import socket
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from kindcast.spark_jobs.output import Output
from kindcast.spark_jobs.report import NoArchive
from kindcast.spark_jobs.snapshot import Inputs
from kindcast.spark_jobs.stream import Written, start_stream, stream_events
from tests.harness.spark_process import JobProcess

SHOP = b"""@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> . @prefix : <http://example.org/> .
:Laptop rdfs:subClassOf :Computer .
"""
IN_A_FILE = 50


@pytest.fixture
def inputs(tmp_path: Path) -> Inputs:
    """A shop, two subscriptions and a folder for what comes."""
    (tmp_path / "shop.ttl").write_bytes(SHOP)
    asked = {"computers": "target isa Computer", "cheap": "price < 10"}
    lines = [json.dumps({"id": id, "expression": text}) for id, text in asked.items()]
    (tmp_path / "asked.ndjson").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (tmp_path / "in").mkdir()
    return Inputs(ontologies=(tmp_path / "shop.ttl",), subscriptions=tmp_path / "asked.ndjson")


def offer(number: int) -> dict[str, Any]:
    data = {"target": ("Laptop", "Sofa")[number % 2], "price": number % 20}
    return {"specversion": "1.0", "id": str(number), "source": "/shop", "type": "offer", "data": data}


def wanted(number: int) -> list[str]:
    return [name for name, holds in (("cheap", number % 20 < 10), ("computers", number % 2 == 0)) if holds]


def put(folder: Path, file: int) -> None:
    """A file that appears whole; its last event came before."""
    numbers = [*range(file * IN_A_FILE, (file + 1) * IN_A_FILE), 0]
    writing = folder / f".{file:03}"
    writing.write_text("".join(json.dumps(offer(number)) + "\n" for number in numbers), encoding="utf-8")
    writing.rename(folder / "in" / f"{file:03}.ndjson")


def started(folder: Path) -> JobProcess:
    places = ["--archive", str(folder / "in"), "--output", str(folder / "out")]
    named = ["--ontology", str(folder / "shop.ttl"), "--subscriptions", str(folder / "asked.ndjson")]
    return JobProcess("stream", *places, *named, "--every", "0.1", "--master", "local[2]")


@pytest.mark.slow
def test_stream_whose_process_is_killed_in_a_batch_writes_each_event_once(
    tmp_path: Path, inputs: Inputs, spark: SparkSession
) -> None:
    """A stream tells what it leaves out: a line that is no subscription, and then a file that is gone while it runs; it
    keeps the subscriptions that it has. Then SIGKILL for Java and all workers while a batch is under way: the session
    of the tests carries on from the checkpoint."""
    asked = tmp_path / "asked.ndjson"
    subscriptions = asked.read_text(encoding="utf-8")
    asked.write_text(subscriptions + "nothing\n", encoding="utf-8")
    put(tmp_path, 0)
    job = started(tmp_path)
    building = tmp_path / "out" / "_kindcast" / "building"
    try:
        lines = job.told()
        notes = (line["note"] for line in lines if "note" in line)
        assert "line 3 was left out" in next(notes)
        next(line for line in lines if f": {IN_A_FILE} events" in str(line.get("stage", "")))
        asked.unlink()
        put(tmp_path, 1)
        assert "the subscriptions stay as they are" in next(notes)
        next(line for line in lines if f": {IN_A_FILE} events" in str(line.get("stage", "")))
        for file in range(2, 5):
            put(tmp_path, file)
        deadline = time.monotonic() + 60
        while not (building.is_dir() and any(building.iterdir())) and time.monotonic() < deadline:
            time.sleep(0.002)
    finally:
        job.kill()
    asked.write_text(subscriptions, encoding="utf-8")
    for file in range(5, 7):
        put(tmp_path, file)
    (tmp_path / "in" / "broken.ndjson").write_text("{broken\n", encoding="utf-8")
    again: list[Written] = []
    query = start_stream(
        stream_events(spark, "files", {"path": str(tmp_path / "in")}),
        tmp_path / "out",
        lambda: inputs.snapshot(tmp_path / "snapshots"),
        trigger_seconds=None,
        told=lambda _, written: again.append(written),
    )
    query.awaitTermination()
    assert sum(written.quarantined for written in again) == 1
    found = pq.read_table(tmp_path / "out").to_pylist()
    assert Counter(int(row["id"]) for row in found) == Counter(range(7 * IN_A_FILE))
    assert all(sorted(row["subscriptions"]) == wanted(int(row["id"])) for row in found)


@pytest.mark.slow
def test_stream_whose_command_is_killed_ends_without_another_event(tmp_path: Path, inputs: Inputs) -> None:
    """It stayed until the next batch, and its output was locked until then."""
    put(tmp_path, 0)
    job = started(tmp_path)
    next(line for line in job.told() if f": {IN_A_FILE} events" in str(line.get("stage", "")))
    job.leave()
    assert job.wait() == 1
    with Output(tmp_path / "out").held():
        pass


def test_stream_refuses_a_folder_with_a_link_to_itself(tmp_path: Path, spark: SparkSession) -> None:
    """Spark followed it, and the first batch never came."""
    (tmp_path / "loop").symlink_to(".")
    with pytest.raises(NoArchive, match=r"loop is a link to .* read twice: remove the link"):
        stream_events(spark, "files", {"path": str(tmp_path)})


def test_stream_from_a_socket_is_matched_line_by_line(tmp_path: Path, inputs: Inputs, spark: SparkSession) -> None:
    """What comes over a connection, a line that is no event included."""
    count = 30
    came: list[int] = []
    unread: list[int] = []
    all_came, done = threading.Event(), threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def send() -> None:
            connection, _ = server.accept()
            with connection:
                lines = [json.dumps(offer(number)) for number in range(count)]
                connection.sendall("".join(f"{line}\n" for line in [*lines, "{broken", lines[0]]).encode())
                done.wait(120)

        sending = threading.Thread(target=send)
        sending.start()

        def told(batch: int, written: Written) -> None:
            came.append(written.events)
            unread.append(written.quarantined)
            if sum(came) >= count:
                all_came.set()

        host, port = server.getsockname()
        query = start_stream(
            stream_events(spark, "socket", {"host": host, "port": str(port)}),
            tmp_path / "out",
            lambda: inputs.snapshot(tmp_path / "snapshots"),
            trigger_seconds=0.1,
            told=told,
        )
        try:
            assert all_came.wait(120), query.exception()
            query.processAllAvailable()
        finally:
            query.stop()
            done.set()
            sending.join()
    found = pq.read_table(tmp_path / "out").to_pylist()
    assert {int(row["id"]): sorted(row["subscriptions"]) for row in found} == {n: wanted(n) for n in range(count)}
    assert len(found) == count
    bad = [each for path in (tmp_path / "out").rglob("_quarantine/*") for each in pq.read_table(path).to_pylist()]
    assert [each["text"] for each in bad] == ["{broken"]
    assert sum(unread) == 1
