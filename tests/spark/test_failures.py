"""What breaks under way: workers, drivers, disks. Outputs stay right, and another run carries on."""

import json
import os
import shutil
import signal
import sys
import threading
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import kindcast.spark_jobs.__main__ as commands
from kindcast.semantic.ontology import read
from kindcast.spark_jobs import output as output_module
from kindcast.spark_jobs.match import match_archive
from kindcast.spark_jobs.output import Done, Output, UnitWriter
from kindcast.spark_jobs.reading import ReadOptions
from kindcast.spark_jobs.report import UnusableOutput
from kindcast.spark_jobs.snapshot import Inputs, Snapshot, write_snapshot
from tests.harness.spark_process import JobProcess, python_workers

FILES, EVENTS = 30, 3_000
SHOP = """@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> . @prefix : <http://example.org/> .
:Laptop rdfs:subClassOf :Computer . :Tablet rdfs:subClassOf :Computer . :Sofa a rdfs:Class .
"""
ASKED = {"computers": "target isa Computer", "cheap": "price < 100", "sofas": "target isa Sofa and price >= 1000"}


@pytest.fixture
def inputs(tmp_path: Path) -> Inputs:
    """A shop, three subscriptions and an archive of many files over two days, one of them damaged."""
    (tmp_path / "shop.ttl").write_text(SHOP, encoding="utf-8")
    lines = [json.dumps({"id": id, "expression": text}) for id, text in ASKED.items()]
    (tmp_path / "asked.ndjson").write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "in").mkdir()
    for file in range(FILES):
        events = [
            {"target": ("Laptop", "Sofa", "Tablet")[n % 3], "price": n, "ts": 86_400 * (file % 2)}
            for n in range(EVENTS)
        ]
        text = "\n".join(json.dumps(each) for each in events)
        (tmp_path / "in" / f"{file:02}.ndjson").write_text(text + ("\n{" if file == 7 else "\n"), encoding="utf-8")
    return Inputs(ontologies=(tmp_path / "shop.ttl",), subscriptions=tmp_path / "asked.ndjson")


def command(folder: Path) -> list[str]:
    places = ["--archive", str(folder / "in"), "--output", str(folder / "out"), "--time", "ts"]
    named = ["--ontology", str(folder / "shop.ttl"), "--subscriptions", str(folder / "asked.ndjson")]
    return ["match", *places, *named, "--master", "local[2]"]


def check_right(folder: Path) -> None:
    """Every event once, with the right subscriptions; the bad line in quarantine."""
    found = pq.read_table(folder / "out").to_pylist()
    assert len({row["id"] for row in found}) == len(found) == FILES * EVENTS
    for row in found:
        number = int(row["id"].rpartition(":")[2]) - 1
        wanted = [name for name, holds in (("cheap", number < 100), ("computers", number % 3 != 1)) if holds]
        wanted += ["sofas"] if number % 3 == 1 and number >= 1000 else []
        assert sorted(row["subscriptions"]) == wanted, row
        assert row["day"] == f"1970-01-0{1 + int(row['id'][:2]) % 2}"
    (bad,) = pq.read_table(folder / "out" / "_quarantine").to_pylist()
    assert (bad["file"], bad["line"]) == ("07.ndjson", EVENTS + 1)


def run_here(spark: SparkSession, folder: Path, inputs: Inputs) -> dict[str, list[int]]:
    """The same job in the session of the tests; returns how much was done by stage, in order."""
    seen: dict[str, list[int]] = {}
    snapshot = inputs.snapshot(folder / "out" / "_kindcast" / "snapshots")
    match_archive(
        spark,
        str(folder / "in"),
        folder / "out",
        snapshot,
        read=ReadOptions(time_from="ts"),
        progress=lambda stage, done, total: seen.setdefault(stage, []).append(done),
    )
    return seen


@pytest.mark.slow
def test_job_whose_driver_is_killed_carries_on_where_it_was(
    tmp_path: Path, inputs: Inputs, spark: SparkSession
) -> None:
    """Nothing is seen before all is done; the next run does only what is missing."""
    job = JobProcess(*command(tmp_path))
    for line in job.told():
        if line.get("stage") == "match" and line["done"] >= 4:
            break
    job.kill()
    assert not list((tmp_path / "out").glob("day=*"))
    seen = run_here(spark, tmp_path, inputs)
    assert seen["match"][0] >= 4
    check_right(tmp_path)


@pytest.mark.slow
def test_job_on_a_full_disk_fails_with_the_reason_and_carries_on_later(
    tmp_path: Path, inputs: Inputs, spark: SparkSession
) -> None:
    """No file may become larger than 8 KiB here; half a file is never taken for one."""
    job = JobProcess(*command(tmp_path), file_blocks=8)
    *_, last = job.told()
    assert job.wait() == 1
    assert "File too large" in last["problem"] or "EFBIG" in last["problem"], last
    assert not list((tmp_path / "out").glob("day=*"))
    run_here(spark, tmp_path, inputs)
    check_right(tmp_path)


def test_job_whose_workers_are_killed_ends_right(tmp_path: Path, inputs: Inputs, spark: SparkSession) -> None:
    """Spark starts another worker and tries the task again."""
    killed: list[int] = []
    ended = threading.Event()

    def kill() -> None:
        while not ended.wait(0.05) and len(killed) < 2:
            for worker in python_workers()[:1]:
                os.kill(worker, signal.SIGKILL)
                killed.append(worker)
                time.sleep(0.2)

    killing = threading.Thread(target=kill)
    killing.start()
    try:
        run_here(spark, tmp_path, inputs)
    finally:
        ended.set()
        killing.join()
    assert killed
    check_right(tmp_path)


# ── putting in place, step by step ──────────────────────────────────────────────────────────────────────────────────


def staged(output: Output, units: dict[str, dict[str, int]]) -> list[Done]:
    """Units that wrote so many rows into each folder."""
    done = []
    for unit, folders in units.items():
        writer = UnitWriter(output.folder, unit)
        for folder, rows in folders.items():
            writer.write(folder, pa.table({"unit": [unit] * rows}))
        done.append(writer.finish({"events": 1}))
    return done


def test_worker_that_outlives_its_job_leaves_no_half_unit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next job throws away what is unfinished just when a worker of the killed one finishes it: never is a unit
    there without its files."""
    output = Output(tmp_path / "out")
    with output.locked():
        pass
    written = output_module._write_json

    def remove_some(path: Path, ignore_errors: bool = False) -> None:
        """What a removal has done when it is half done."""
        for file in path.rglob("*.parquet"):
            file.unlink()

    def late(path: Path, content: object) -> None:
        monkeypatch.setattr(output_module, "_write_json", written)
        with monkeypatch.context() as patch:
            patch.setattr(shutil, "rmtree", remove_some)
            with Output(output.folder).locked():
                pass
        written(path, content)

    monkeypatch.setattr(output_module, "_write_json", late)
    with pytest.raises(FileNotFoundError):
        staged(output, {"a": {"day=1": 1}})
    with output.locked():
        assert output.done() == {}
        assert staged(output, {"a": {"day=1": 2}}) == [output.done()["a"]]


def rows_in(folder: Path) -> dict[str, dict[str, int]]:
    """Day → unit → rows, as a reader sees them."""
    found: dict[str, dict[str, int]] = {}
    for place in sorted(folder.glob("day=*")):
        counts = found.setdefault(place.name, {})
        for path in place.glob("*.parquet"):
            for row in pq.read_table(path).to_pylist():
                counts[row["unit"]] = counts.get(row["unit"], 0) + 1
    return found


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # the child of this fork uses no threads
def test_commit_that_dies_at_any_step_is_carried_on(tmp_path: Path) -> None:
    """Each run dies one step of the file system later than the one before; a reader sees old days and new days, never
    half ones; the next run sees the new ones."""
    old = {"day=1": {"a": 2, "b": 1}, "day=2": {"a": 1}, "day=3": {"b": 1}}
    new = {"day=1": {"a": 2, "c": 3}, "day=2": {"a": 1}, "day=4": {"c": 1}}
    steps = 0
    while True:
        folder = tmp_path / str(steps)
        first, second = Output(folder), Output(folder)
        with first.locked():
            first.commit(staged(first, {"a": {"day=1": 2, "day=2": 1}, "b": {"day=1": 1, "day=3": 1}}))
        assert rows_in(folder) == old
        child = os.fork()
        if child == 0:
            _die_after(steps)
            with second.locked():
                kept = second.done()["a"]
                second.commit([kept, *staged(second, {"c": {"day=1": 3, "day=4": 1}})])
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        seen = rows_in(folder)
        assert all(counts in (old.get(day), new.get(day)) for day, counts in seen.items()), (steps, seen)
        third = Output(folder)
        with third.locked():
            units = third.done()
            missing = {} if "c" in units else {"c": {"day=1": 3, "day=4": 1}}
            third.commit([units["a"], *(staged(third, missing) if missing else [units["c"]])])
        assert rows_in(folder) == new, steps
        if status == 0:
            break
        steps += 1
    assert steps > 10


def _die_after(steps: int) -> None:
    """End this process, as a kill would, at the step number `steps` that changes the file system."""
    left = [steps]

    def hook(event: str, arguments: object) -> None:
        if event in ("os.rename", "os.link", "os.remove", "os.rmdir", "os.mkdir"):
            if left[0] == 0:
                os._exit(9)
            left[0] -= 1

    sys.addaudithook(hook)


def test_second_job_for_one_output_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two would undo each other's work, also two streams: the second one removed what the first one was writing."""
    out = tmp_path / "out"
    with Output(out).locked(), pytest.raises(UnusableOutput, match="another job"):  # noqa: SIM117
        with Output(out).locked():
            pass
    (tmp_path / "in").mkdir()
    asked = ["--ontology", str(tmp_path / "absent.ttl"), "--subscriptions", str(tmp_path / "absent.ndjson")]
    with Output(out).held():
        assert commands.main(["stream", "--archive", str(tmp_path / "in"), "--output", str(out), *asked]) == 1
    assert "another job is writing" in json.loads(capsys.readouterr().out)["problem"]


def test_output_that_cannot_be_written_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its option, with the reason and what to do."""
    (tmp_path / "file").touch()
    monkeypatch.setattr(commands, "_match", lambda given: given.output.mkdir(parents=True))
    assert commands.main(["match", "--archive", "in", "--output", str(tmp_path / "file" / "out")]) == 1
    problem = json.loads(capsys.readouterr().out)["problem"]
    assert "cannot be written: Not a directory" in problem
    assert problem.startswith("--output ")


def test_days_that_no_job_wrote_are_not_replaced(tmp_path: Path) -> None:
    """An archive by day, named as the output: its files stay."""
    (tmp_path / "day=1").mkdir()
    (tmp_path / "day=1" / "raw.ndjson").write_text("{}\n", encoding="utf-8")
    with pytest.raises(UnusableOutput, match="day=1 was not written by this job"):  # noqa: SIM117
        with Output(tmp_path).locked():
            pass
    assert (tmp_path / "day=1" / "raw.ndjson").exists()


def test_job_run_again_after_a_change_does_only_what_changed(
    tmp_path: Path, inputs: Inputs, spark: SparkSession
) -> None:
    """A file that came is matched, one that went is gone from the output."""
    run_here(spark, tmp_path, inputs)
    (tmp_path / "in" / "00.ndjson").unlink()
    (tmp_path / "in" / "98.ndjson").write_text('{"target": "Sofa", "price": 5000, "ts": 172800}\n', encoding="utf-8")
    seen = run_here(spark, tmp_path, inputs)
    assert seen["match"][0] == FILES - 1
    ids = set(pq.read_table(tmp_path / "out")["id"].to_pylist())
    assert {id.partition(":")[0] for id in ids} == {f"{n:02}.ndjson" for n in [*range(1, FILES), 98]}


def test_tasks_of_several_files_give_the_same_rows(
    tmp_path: Path, inputs: Inputs, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond a number of files, each task has several."""
    monkeypatch.setattr(output_module, "MOST_TASKS", 4)
    monkeypatch.setattr(output_module, "TASKS_OF_A_CORE", 1)
    seen = run_here(spark, tmp_path, inputs)
    assert set(seen["match"]) <= {0, 7, 15, 22, FILES}
    assert seen["match"][-1] == FILES
    check_right(tmp_path)


def test_subscriptions_in_several_shards_give_the_same_rows(
    tmp_path: Path, inputs: Inputs, spark: SparkSession
) -> None:
    """Held together, or one after the other: parts of an event that were matched apart are one row again."""
    ontology = read(SHOP.encode(), format="turtle")
    many = [(f"s{n}", f"price between [{n}, {n + 100}]") for n in range(0, EVENTS, 50)] + list(ASKED.items())
    found = []
    for shards, together in ((1, 1_000), (3, 1_000), (3, 1)):
        snapshot: Snapshot = write_snapshot(tmp_path / f"snap{shards}", [ontology], many, shards=shards)
        out = tmp_path / f"out{shards}-{together}"
        summary = match_archive(spark, str(tmp_path / "in" / "07.ndjson"), out, snapshot, together=together)
        assert (summary["events"], summary["quarantined"], summary["shards"]) == (EVENTS, 1, shards)
        rows = pq.read_table(out).to_pylist()
        found.append({row["id"]: sorted(row["subscriptions"]) for row in rows})
        assert len(rows) == EVENTS
    assert found[0] == found[1] == found[2]
