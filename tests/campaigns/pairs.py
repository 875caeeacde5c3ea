"""The same events by HTTP, through each kind of broker, and through Spark, as an archive and as a stream, give the same
pairs of event and subscription: those of the events' own definition (`tests/harness/event_pairs.py`). Each part is
killed once on the way.

    http                 the server
    kafka                connector, server, in turn; the mock cluster of librdkafka cannot be killed
    nats, mosquitto, rabbitmq, redis
                         connector, server, all connections, broker
    spark batch          the job with its driver, which is run again; then a Python worker
    spark stream         the server, then the stream, which is started again; it delivers to the server's queues

Subscriptions are made on a server, and what it has for each of them is pulled. Of an archive, and of a stream as well,
the Parquet is read. Data and logs of a part that failed are kept in `build/campaigns/pairs/SEED`.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from tests.campaigns.campaign import STATE, Outcome, Told
from tests.harness.event_pairs import BROKERS, DrawnEvents, Found, Pairs, by_broker, by_http, matched, subscribed
from tests.harness.spark_process import python_workers

__all__ = ["ABOUT", "PARTS", "add_options", "run"]

ABOUT = "events by HTTP, through each broker and through Spark give the same pairs, with a kill of each part"
FILES = 20
PATIENCE_SECONDS = 600.0
SHOWN = 5
"""Of the pairs that differ."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """How many, and which ways."""
    parser.add_argument("--events", type=int, default=100_000, help="a multiple of 4")
    parser.add_argument("--parts", default=",".join(PARTS), help="some of: %(default)s")


def run(options: Any, told: Told) -> Outcome:
    """One way after the other, each in a new folder."""
    events, parts = DrawnEvents(options.seed, options.events), options.parts.split(",")
    expected = events.pairs()
    failures, killed = [], []
    for number, part in enumerate(parts):
        told(number, len(parts), part)
        folder = STATE / "pairs" / str(options.seed) / part.replace(" ", "-")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        began = time.monotonic()
        try:
            found = PARTS[part](folder, events)
        except (AssertionError, OSError, RuntimeError) as error:
            found = Found(set(), wrong=[repr(error)])
        if wrong := _differences(found, expected):
            failures.append(f"{part}: {wrong}; {folder}")
        else:
            shutil.rmtree(folder)
        kills = ", ".join(f"{many} {what}" if many > 1 else what for what, many in found.killed.items())
        killed.append(f"{part} ({kills} killed; {time.monotonic() - began:,.0f} s)")
    told(len(parts), len(parts), f"{len(failures)} parts differ")
    summary = f"{len(expected):,} pairs of {options.events:,} events by {', '.join(killed)}"
    return Outcome(f"{summary}: {len(failures)} of {len(parts)} ways differ from the definition", failures)


def _differences(found: Found, expected: Pairs) -> str:
    """What is wrong, in words; nothing if all is well."""
    told = [*found.wrong[:SHOWN]]
    for name, pairs in (("missing", expected - found.pairs), ("too many", found.pairs - expected)):
        if pairs:
            told.append(f"{len(pairs):,} pairs are {name}, as {sorted(pairs)[:SHOWN]}")
    return "; ".join(told)


# ── Spark ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def by_spark_batch(folder: Path, events: DrawnEvents) -> Found:
    """`kindcast spark match`: killed when some files are done and nothing is in place, and run again; then one of its
    workers is killed."""
    killed = Counter[str]()
    archive, output = folder / "in", folder / "out"
    archive.mkdir()
    for file in range(FILES):
        _put(archive, events, file)
    with subscribed(folder / "server") as (server, texts):
        given = ("match", "--archive", str(archive), "--output", str(output), "--server", server.url)
        job = _started(folder, *given)
        _until(job, lambda: any((output / "_kindcast" / "staged").glob("*")))
        _kill(job)
        assert not list(output.glob("day=*")), "it was killed too late"
        killed["driver"] += 1
        job = _started(folder, *given)
        _until(job, lambda: _worker_killed(job))
        killed["worker"] += 1
        assert job.wait(PATIENCE_SECONDS) == 0, _said(folder)
        return Found(_written(output, texts), killed)


def by_spark_stream(folder: Path, events: DrawnEvents) -> Found:
    """`kindcast spark stream --deliver`: the server is killed when the first matches are there, the stream when it has
    matches that nobody takes; both are started again. What was written must be what was delivered."""
    killed = Counter[str]()
    incoming, output = folder / "in", folder / "out"
    incoming.mkdir()
    with subscribed(folder / "server") as (server, texts):
        places = ("--archive", str(incoming), "--output", str(output))
        given = ("stream", *places, "--server", server.url, "--deliver", server.url)
        _put(incoming, events, 0)
        job = _started(folder, *given, "--every", "0.2")
        _until(job, lambda: any(output.glob("batch=*")) and not _waiting(output))
        server.kill()
        killed["server"] += 1
        for file in range(1, FILES // 2):
            _put(incoming, events, file)
        _until(job, lambda: _waiting(output))
        _kill(job)
        killed["stream"] += 1
        server.start()
        for file in range(FILES // 2, FILES):
            _put(incoming, events, file)
        assert _started(folder, *given, "--once").wait(PATIENCE_SECONDS) == 0, _said(folder)
        pairs = matched(server, texts)
        differ = _differences(Found(_written(output, texts)), pairs)
        return Found(pairs, killed, [f"written, against what was delivered: {differ}"] if differ else [])


def _put(folder: Path, events: DrawnEvents, file: int) -> None:
    """Every so many events, in a file that appears whole."""
    writing = folder / f".{file:02}"
    lines = (json.dumps(events.event(number)) for number in range(file, events.count, FILES))
    writing.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    writing.rename(folder / f"{file:02}.ndjson")


def _started(folder: Path, *arguments: str) -> "subprocess.Popen[bytes]":
    """`kindcast spark …`, in a process group with all that it starts."""
    command = [sys.executable, "-m", "kindcast.server.cli", "spark", *arguments, "--master", "local[2]", "--json"]
    with (folder / "spark.log").open("ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)


def _said(folder: Path) -> str:
    return (folder / "spark.log").read_text(encoding="utf-8", errors="replace")[-2_000:]


def _until(job: "subprocess.Popen[bytes]", holds: Callable[[], Any]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    try:
        while not holds():
            assert job.poll() is None, f"it ended with {job.returncode}"
            assert time.monotonic() < deadline, "it did not come true in time"
            time.sleep(0.02)
    except BaseException:
        _kill(job)
        raise


def _kill(job: "subprocess.Popen[bytes]") -> None:
    if job.poll() is None:
        os.killpg(job.pid, signal.SIGKILL)
    job.wait()


def _worker_killed(job: "subprocess.Popen[bytes]") -> bool:
    for worker in python_workers(job.pid)[:1]:
        os.kill(worker, signal.SIGKILL)
        return True
    return False


def _waiting(output: Path) -> bool:
    """Whether there are matches that are not delivered."""
    return any(output.glob("batch=*/_outbox/*.ndjson"))


def _written(output: Path, texts: dict[str, str]) -> Pairs:
    """Raises AssertionError where an event has two rows."""
    table = pq.read_table(output, columns=["id", "subscriptions"])
    rows = {int(row["id"]): row["subscriptions"] for row in table.to_pylist()}
    assert len(rows) == table.num_rows, "an event twice"
    return {(number, texts[id]) for number, ids in rows.items() for id in ids}


PARTS: dict[str, Callable[[Path, DrawnEvents], Found]] = {
    "http": by_http,
    **{name: partial(by_broker, name=name) for name in BROKERS},
    "spark batch": by_spark_batch,
    "spark stream": by_spark_stream,
}
