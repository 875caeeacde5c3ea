"""What a server with its subscriptions and events takes: memory, disk, and starts, also the first one after an
upgrade."""

import shutil
import tempfile
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import httpx

from kindcast.server.cli.bench_load import bodies
from tests.benchmarks.experiments.publish_rates import subscribe
from tests.benchmarks.harness.experiment import Axes, Scale, Task
from tests.harness.server_process import ServerProcess, running_server

NAME = "server_size"
TITLE = "What a server takes"
PAPER = ""
PAPER_SHAPE = ""
AXES = Axes("subscriptions", "MB of memory", log_x=True)
SEED = 1

SIZES: dict[Scale, tuple[int, ...]] = {
    "quick": (1_000,),
    "default": (1_000, 10_000, 100_000),
    "full": (1_000, 10_000, 100_000, 1_000_000),
}
EVENTS: dict[Scale, int] = {"quick": 1_000, "default": 50_000, "full": 200_000}
IN_A_REQUEST = 100
SETTLE_SECONDS = 3.0
"""After which memory is read: what a server builds later is built."""


def tasks(scale: Scale) -> Sequence[Task]:
    """Small ones first."""
    return [Task("kindcast", n, {"n": n, "events": EVENTS[scale]}) for n in SIZES[scale]]


def measure(*, n: int, events: int) -> dict[str, Any]:
    """Resident MB of a real server that took `n` subscriptions and `events` events, then after a new start; bytes on
    disk a subscription (rows and snapshot) and an event (with its matches); seconds of a start until it is ready, from
    the snapshot and without one, as after an upgrade that compiles anew."""
    with tempfile.TemporaryDirectory(prefix="kindcast-size-") as name:
        folder = Path(name)
        with running_server(folder) as server:
            subscribe(server.url, n)
            server.stop()
            of_subscriptions = _bytes(folder)
            server.start()
            sent = _publish(server, n, events)
            time.sleep(SETTLE_SECONDS)
            working = server.resident_megabytes()
            server.stop()
            of_events = _bytes(folder) - of_subscriptions
            starts = [_start(server), _start(server)]
            time.sleep(SETTLE_SECONDS)
            idle = server.resident_megabytes()
            server.stop()
            shutil.rmtree(folder / "kindcast.db.index")
            anew = _start(server)
    return {
        "y": working,
        "started_mb": idle,
        "disk_bytes_a_subscription": round(of_subscriptions / n),
        "disk_bytes_an_event": round(of_events / events),
        "sent_bytes_an_event": round(sent / events),
        "start_seconds": round(min(starts), 2),
        "start_anew_seconds": round(anew, 2),
    }


def _publish(server: ServerProcess, n: int, events: int) -> int:
    """The bytes that were sent."""
    sent = 0
    headers = {"Content-Type": "application/x-ndjson"}
    with httpx.Client(base_url=server.url, timeout=600, trust_env=False) as client:
        for body in islice(bodies(n, IN_A_REQUEST), events // IN_A_REQUEST):
            client.post("/v1/events?verbose=false", content=body, headers=headers).raise_for_status()
            sent += len(body)
    return sent


def _start(server: ServerProcess) -> float:
    """Seconds until it is ready; one that runs is stopped before."""
    if server.running:
        server.stop()
    began = time.perf_counter()
    server.start()
    return time.perf_counter() - began


def _bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file() and file.suffix != ".log")
