"""A server of kindcast for as long as an example runs, with its data in a folder that is removed afterwards."""

import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from kindcast import Client, ProblemError

__all__ = ["served"]

PATIENCE_SECONDS = 120.0
"""For a server to start; the first one on a machine compiles the index."""


@contextmanager
def served() -> Iterator[Client]:
    """A client of a new server on a free port of this machine."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder, (Path(folder) / "server.log").open("wb") as log:
        command = [
            sys.executable,
            "-m",
            "kindcast.server.cli",
            "serve",
            "--port",
            str(port),
            "--data",
            f"{folder}/data",
        ]
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        try:
            with Client(f"http://127.0.0.1:{port}") as client:
                wait_until_ready(client, process)
                yield client
        finally:
            process.terminate()
            process.wait(PATIENCE_SECONDS)


def wait_until_ready(client: Client, process: subprocess.Popen[bytes]) -> None:
    """Returns when the server takes requests; raises when it has ended or takes too long."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return client.ready()
        except (httpx.TransportError, ProblemError):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("the server did not start") from None
            time.sleep(0.05)
