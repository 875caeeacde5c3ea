"""`kindcast spark match` over three months of real readings, beside `pyarrow.json` and `match_table` in one process.

The readings and Brick 1.5 are not part of the project: KINDCAST_TEST_DATA names the folder with them, else they are
looked for in `shared/data` beside the checkout. Without them there are no points.
"""

import gzip
import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.json as pj

from tests.benchmarks.harness.experiment import Axes, Scale, Task

NAME = "spark_real"
TITLE = "kindcast spark match over real readings"
PAPER = ""
PAPER_SHAPE = ""
AXES = Axes("unit of values", "times the CPU of pyarrow.json and match_table", bars=True)
SEED = 0

ROOT = Path(__file__).resolve().parents[3]
DATA = Path(os.environ.get("KINDCAST_TEST_DATA") or ROOT.parent / "shared" / "data")
READINGS = "events/opensmarthome.ndjson.gz"
BRICK = "ontologies/Brick-1.5.ttl"
FASTEST = 300_000
"""Events a second that one process is to reach at least."""
ASKED = 2.0
RUNS = 4
"""Of both in turn; the fastest of each counts."""

BARE = (
    "type isa brick:Point",
    "type isa brick:Sensor",
    "type isa Temperature_Sensor",
    "type is Temperature_Sensor",
    "type isa Temperature_Sensor and value > 30",
    'type isa Air_Temperature_Sensor and value > 30 and room = "Bathroom"',
    "type isa brick:Sensor and value between [25, 26)",
    "type isa Humidity_Sensor and value >= 60",
    'type isa brick:Setpoint and room != "Toilet"',
    "type isa brick:Equipment",
    'room = "Kitchen" and value < 15',
    'sensor = "Room3_Brightness"',
    "type isa Illuminance_Sensor and value > 500",
    "type isa Outside_Air_Temperature_Sensor and value < 0",
    "ts between [1493596800, 1493683200) and type isa Sensor",
)
UNITS = {"value > 30": "value > 30 degC", "[25, 26)": "[25 degC, 26 degC)", ">= 60": ">= 60 percent"} | {
    "< 15": "< 59 degF",
    "> 500": "> 500 lux",
    "value < 0": "value < 0 degC",
}
BESIDE = {"attributes": {"value": {"kind": "number", "unit_from": "unit"}}}


def tasks(scale: Scale) -> Sequence[Task]:
    """Bare numbers, and numbers whose unit stands beside them."""
    if not (DATA / READINGS).exists():
        return []
    return [Task("15 subscriptions", x, {"units": x == "beside them"}) for x in ("none", "beside them")]


def measure(*, units: bool) -> dict[str, Any]:
    """CPU of all processes: of the one process, and of Java, its Python workers and this one during the job. Sessions
    and workers are started, and the snapshot opened, before."""
    from kindcast.semantic.ontology.loader import read_several
    from kindcast.spark_jobs.match import match_archive
    from kindcast.spark_jobs.reading import ReadOptions
    from kindcast.spark_jobs.session import spark_session
    from kindcast.spark_jobs.snapshot import write_snapshot

    ontologies = list(read_several([("Brick.ttl", (DATA / BRICK).read_bytes())]))
    asked = [_with_units(text) if units else text for text in BARE]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        declared = BESIDE if units else None
        snapshot = write_snapshot(folder / "snapshot", ontologies, list(enumerated(asked)), declarations=declared)
        matcher = snapshot.matcher(0, snapshot.vocabulary())
        session = spark_session(master="local[2]")
        alone: list[float] = []
        workers: list[float] = []
        whole: list[float] = []
        matches = set()
        try:
            for _ in range(1 + RUNS):
                began = time.process_time()
                table = pj.read_json(
                    pa.BufferReader(gzip.decompress((DATA / READINGS).read_bytes())),
                    read_options=pj.ReadOptions(use_threads=False, block_size=8 << 20),
                )
                found = matcher.match_table(table)
                alone.append(time.process_time() - began)
                before = _cpu_below()
                began = time.process_time()
                summary = match_archive(
                    session, str(DATA / READINGS), folder / "out", snapshot, read=ReadOptions(time_from="ts")
                )
                whole.append(_cpu_below() - before + time.process_time() - began)
                workers.append(summary["cpu_seconds"])
                shutil.rmtree(folder / "out")
                matches |= {len(found.slots), summary["matches"]}
        finally:
            session.stop()
    assert len(matches) == 1, matches
    events = len(table)
    one, job, every = min(alone[1:]), min(workers[1:]), min(whole[1:])
    return {
        "y": round(job / one, 2),
        "asked": ASKED,
        "alone_a_second": round(events / one),
        "alone_asked": FASTEST,
        "job_a_second": round(events / job),
        "with_java": round(every / one, 2),
        "matches_an_event": round(matches.pop() / events, 2),
    }


def enumerated(asked: Sequence[str]) -> Sequence[tuple[str, str]]:
    """The subscriptions with their ids."""
    return [(f"s{number}", text) for number, text in enumerate(asked)]


def _with_units(text: str) -> str:
    for bare, unit in UNITS.items():
        text = text.replace(bare, unit)
    return text


def _cpu_below() -> float:
    """Seconds of CPU that the processes below this one have used; those that ended count with their parents."""
    used: dict[int, tuple[int, float]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                said = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it ended meanwhile
            used[int(entry.name)] = int(said[1]), sum(map(int, said[11:15])) / os.sysconf("SC_CLK_TCK")
    own, total = {os.getpid()}, 0.0
    waiting = True
    while waiting:
        below = {number for number, (parent, _) in used.items() if parent in own} - own
        total += sum(used[number][1] for number in below)
        own |= below
        waiting = bool(below)
    return total
