"""One point in a process of its own, stopped when it takes too much memory or time."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["MEMORY", "SECONDS_AN_EVENT", "BeyondLimit", "measured_apart"]

MEMORY = 4 << 30
"""Bytes that a process may hold: where the papers let an engine stop."""
SECONDS_AN_EVENT = 1.0
"""An engine slower than this has left the picture, as in the papers."""
POLL = 0.05
"""Seconds between two looks at the memory of the process."""


class BeyondLimit(Exception):
    """The point could not be measured within the limits; its text says which."""


def measured_apart(
    experiment: str, arguments: Mapping[str, Any], *, seconds: float, memory: int = MEMORY
) -> dict[str, Any]:
    """What `measure` of the experiment returns for `arguments`. Raises `BeyondLimit`; `RuntimeError` where it fails."""
    command = [sys.executable, "-m", "tests.benchmarks.harness.child", experiment, json.dumps(dict(arguments))]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    ends, why = time.monotonic() + seconds, ""
    try:
        while process.poll() is None:
            if time.monotonic() > ends:
                why = f"{seconds:.0f} s"
            elif _resident(process.pid) > memory:
                why = f"{memory >> 30} GB"
            if why:
                raise BeyondLimit(why)
            try:
                process.wait(POLL)
            except subprocess.TimeoutExpired:
                continue
    finally:  # also where this process is told to end
        if process.returncode is None:
            process.kill()
            process.communicate()
    answer, trouble = process.communicate()
    if process.returncode == -9:  # the system took its memory away
        raise BeyondLimit("memory of the machine")
    if process.returncode:
        raise RuntimeError(f"{experiment} {dict(arguments)}: {trouble.strip() or f'exit {process.returncode}'}")
    found: dict[str, Any] = json.loads(answer.splitlines()[-1])
    return found


def _resident(process: int) -> int:
    """Bytes in memory; 0 where the system does not tell."""
    try:
        pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
