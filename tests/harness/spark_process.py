"""A job in a process of its own, so that it can be killed; and the Python workers of a session."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kindcast.spark_jobs.session import WORKER_DAEMON

__all__ = ["JobProcess", "python_workers"]

DAEMONS = (b"pyspark.daemon", WORKER_DAEMON.encode())
"""The modules whose forks are workers."""


class JobProcess:
    """`python -m kindcast.spark_jobs …`, in a group of its own with the Java and the workers that it starts."""

    def __init__(self, *arguments: str, file_blocks: int | None = None) -> None:
        """`file_blocks`: no file may be larger than so many KiB: what a full disk is like."""
        limit = f"ulimit -f {file_blocks}; " if file_blocks else ""
        self._process = subprocess.Popen(
            ["bash", "-c", f'{limit}exec "$0" -m kindcast.spark_jobs "$@"', sys.executable, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )

    def told(self) -> Iterator[dict[str, Any]]:
        """Its lines, until it ends."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            yield json.loads(line)

    def leave(self) -> None:
        """Ends the reading of its lines, as the end of the command that started it does."""
        assert self._process.stdout is not None
        self._process.stdout.close()

    def kill(self) -> None:
        """All of it, at once."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self.wait()

    def wait(self) -> int:
        status = self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        return status


def python_workers(job: int | None = None) -> list[int]:
    """The Python workers of a job, by default of this process: the forks of a daemon."""
    parents, daemons = {}, set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            command = (stat.parent / "cmdline").read_bytes()
        except OSError:
            continue  # it has ended
        parents[int(stat.parent.name)] = int(fields[1])
        if any(each in DAEMONS for each in command.split(b"\0")):
            daemons.add(int(stat.parent.name))

    def below(process: int) -> bool:
        while process not in (0, job or os.getpid()):
            process = parents.get(process, 0)
        return process != 0

    return [process for process in daemons if parents[process] in daemons and below(process)]
