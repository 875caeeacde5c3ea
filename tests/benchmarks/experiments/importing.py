"""How long `kindcast subscriptions import` takes, beside the same lines in the library."""

import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from kindcast.semantic import Matcher, Vocabulary
from kindcast.server.cli.bench_load import lines
from tests.benchmarks.experiments.publish_rates import cpu_seconds
from tests.benchmarks.harness.experiment import Axes, Scale, Task
from tests.harness.server_process import running_server

NAME = "importing"
TITLE = "Importing subscriptions"
PAPER = ""
PAPER_SHAPE = ""
AXES = Axes("subscriptions", "s", log_x=True, log_y=True)
SEED = 1

SIZES: dict[Scale, tuple[int, ...]] = {
    "quick": (1_000,),
    "default": (100_000, 1_000_000),
    "full": (100_000, 1_000_000),
}


def tasks(scale: Scale) -> Sequence[Task]:
    """Small ones first."""
    return [Task("kindcast", n, {"n": n}) for n in SIZES[scale]]


def measure(*, n: int) -> dict[str, Any]:
    """Seconds of the command, from its start until all tickets are in a file, and of `Matcher.add_many` in one process;
    microseconds a line by the clock and of the server's processor. Each line asks for an article below a price."""
    with (
        tempfile.TemporaryDirectory(prefix="kindcast-import-") as name,
        running_server(Path(name) / "data", {"KINDCAST_PLUGINS": "false"}) as server,
    ):
        file, tickets = Path(name) / "lines.ndjson", Path(name) / "tickets.ndjson"
        file.write_bytes(lines(0, n))
        command = ["subscriptions", "import", str(file), "--tickets", str(tickets), "--server", server.url]
        busy, began = cpu_seconds(server.number), time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-m", "kindcast.server.cli", *command], stderr=subprocess.PIPE, text=True, check=False
        )
        seconds = time.perf_counter() - began
        busy = cpu_seconds(server.number) - busy
        made = tickets.read_bytes().count(b"\n")
        assert (done.returncode, made) == (0, n), done.stderr
        trees = [
            (str(number), msgspec.json.decode(each)["where"])
            for number, each in enumerate(file.read_bytes().splitlines())
        ]
    matcher = Matcher(Vocabulary.from_ontologies([]))
    began = time.perf_counter()
    matcher.add_many(trees)
    library = time.perf_counter() - began
    return {
        "y": round(seconds, 1),
        "us_a_line": round(seconds / n * 1e6, 1),
        "server_us_a_line": round(busy / n * 1e6, 1),
        "library_seconds": round(library, 2),
    }
