"""The server process of the demonstration: started on a free local port, awaited, stopped and cleaned up."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["StageFailed", "running_server"]

START_SECONDS = 60.0
"""A machine that is busy with other things starts a server in some seconds; more than this is a fault."""
STOP_SECONDS = 10.0


class StageFailed(Exception):
    """The server of the demonstration did not start; the message ends with what it said."""


@contextmanager
def running_server() -> Iterator[str]:
    """The address of a server that takes requests. Process and data are gone afterwards, whatever happened.

    The caller's KINDCAST_* settings are not passed on: the demonstration is the same for everybody.
    """
    with tempfile.TemporaryDirectory(prefix="kindcast-demo-") as folder:
        log = Path(folder) / "server.log"
        command = [
            sys.executable,
            "-m",
            "kindcast.server.cli",
            "serve",
            "--port",
            "0",
            "--data",
            f"{folder}/data",
            "--json",
        ]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("KINDCAST_")}
        with log.open("wb") as errors:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, env=environment, text=True
            )
        try:
            yield _address(process, log)
        finally:
            _stop(process)


def _address(process: "subprocess.Popen[str]", log: Path) -> str:
    """What the server says of itself once it takes requests; a server that ends before has failed."""
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        process.wait(START_SECONDS)
        raise StageFailed(f"the server did not start:\n{log.read_text(encoding='utf-8', errors='replace')}")
    return str(json.loads(line)["listening"])


def _stop(process: "subprocess.Popen[str]") -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()
