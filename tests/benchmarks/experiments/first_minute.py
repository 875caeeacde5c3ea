"""How long a newcomer waits: for help, an empty server, the demonstration, the kernels; what an idle server holds."""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.benchmarks.harness.experiment import Axes, Scale, Task
from tests.harness.server_process import running_server

NAME = "first_minute"
TITLE = "The first minute: starts, and an idle server"
PAPER = ""
PAPER_SHAPE = ""
AXES = Axes("what", "seconds", bars=True)
SEED = 1

REPEATED: dict[Scale, int] = {"quick": 1, "default": 5, "full": 9}
STEPS = {
    "help": "kindcast --help",
    "server": "an empty server, until it takes requests",
    "demo": "kindcast demo, without its pauses",
    "kernels": "kernels compiled, with an empty cache",
    "loaded": "kernels loaded from the cache",
}
IDLE_SECONDS = 3.0
"""After which the memory of a server is read: what it builds later is built."""
WARM_UP = "from kindcast.index.compilation import warm_up; warm_up()"


def tasks(scale: Scale) -> Sequence[Task]:
    """One bar each."""
    return [
        Task("kindcast", STEPS[step], {"step": step, "times": 1 if step == "kernels" else REPEATED[scale]})
        for step in STEPS
    ]


def measure(*, step: str, times: int) -> dict[str, Any]:
    """Wall time and processor time of new processes, the median of `times` after one that fills the file cache and
    writes bytecode (the kernels are compiled once). Of a server also its memory, idle, in MB."""
    with tempfile.TemporaryDirectory(prefix="kindcast-first-") as folder:
        found = [_once(step, Path(folder) / str(number)) for number in range(times + (step != "kernels"))]
    kept = found[1:] or found
    return {
        "y": statistics.median(each["seconds"] for each in kept),
        "fastest": min(each["seconds"] for each in kept),
    } | {name: statistics.median(each[name] for each in kept) for name in kept[0] if name != "seconds"}


def _once(step: str, folder: Path) -> dict[str, float]:
    if step == "server":
        began = time.perf_counter()
        with running_server(folder) as server:
            seconds = time.perf_counter() - began
            time.sleep(IDLE_SECONDS)
            return {"seconds": round(seconds, 3), "idle_mb": server.resident_megabytes()}
    programs = {
        "help": ["-m", "kindcast.server.cli", "--help"],
        "demo": ["-m", "kindcast.server.cli", "demo", "--pace", "0"],
        "kernels": ["-c", WARM_UP],
        "loaded": ["-c", WARM_UP],
    }
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    if step == "kernels":
        environment["KINDCAST_CACHE"] = str(folder)
    return _timed([sys.executable, *programs[step]], environment)


def _timed(command: list[str], environment: Mapping[str, str]) -> dict[str, float]:
    before, began = os.times(), time.perf_counter()
    subprocess.run(command, env=environment, check=True, capture_output=True)
    seconds, after = time.perf_counter() - began, os.times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return {"seconds": round(seconds, 3), "cpu_seconds": round(used, 3)}
