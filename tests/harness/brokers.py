"""Real message brokers of the tests' own, on free ports, that a test may kill and start again on the same data.

Where a broker is not installed, tests skip and say so (Debian: `apt install mosquitto nats-server rabbitmq-server`).
"""

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.harness.ports import free_port

__all__ = ["Broker", "running_mosquitto", "running_nats"]

PATIENCE_SECONDS = 60.0
FOLDERS = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"])


class Broker:
    """One process on one port and one folder, at most."""

    def __init__(
        self, scheme: str, port: int, command: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.port = port
        self.url = f"{scheme}://127.0.0.1:{port}"
        self.log = folder / "broker.log"
        self._command, self._folder = command, folder
        self._environment = os.environ | dict(environment or {})
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Returns when it listens."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                cwd=self._folder,
                env=self._environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        until = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1.0).close()
                return
            except OSError:
                assert self._process.poll() is None, self.log.read_text("utf-8", "replace")
                assert time.monotonic() < until, self.log.read_text("utf-8", "replace")
                time.sleep(0.02)

    def kill(self) -> None:
        """SIGKILL to it and its children."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """An orderly end."""
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, how)
            self._process.wait(PATIENCE_SECONDS)


def program(name: str, package: str) -> str:
    """Its path; skips the test where it is not installed."""
    found = shutil.which(name, path=FOLDERS)
    if found is None:
        pytest.skip(f"{name} is not installed (Debian: apt install {package})")
    return found


@contextmanager
def _running(broker: Broker) -> Iterator[Broker]:
    broker.start()
    try:
        yield broker
    finally:
        broker.kill()


@contextmanager
def running_mosquitto(folder: Path) -> Iterator[Broker]:
    """An MQTT broker that saves its sessions to disk after every change."""
    path = program("mosquitto", "mosquitto")
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    (folder / "mosquitto.conf").write_text(
        f"listener {port} 127.0.0.1\nallow_anonymous true\npersistence true\npersistence_location {folder}/\n"
        "autosave_interval 1\nautosave_on_changes true\nmax_queued_messages 0\nmax_inflight_messages 0\n"
        f"user {os.environ.get('USER', 'root') if os.getuid() else 'root'}\n"
    )
    with _running(Broker("mqtt", port, [path, "-c", str(folder / "mosquitto.conf")], folder)) as broker:
        yield broker


@contextmanager
def running_nats(folder: Path) -> Iterator[Broker]:
    """A NATS server with JetStream, on disk."""
    path = program("nats-server", "nats-server")
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    command = [path, "-a", "127.0.0.1", "-p", str(port), "--jetstream", "--store_dir", str(folder)]
    with _running(Broker("nats", port, command, folder)) as broker:
        yield broker
