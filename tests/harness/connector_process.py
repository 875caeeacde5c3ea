"""`kindcast connect` as a process of its own, that a test may kill and start again."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from tests.harness.forked_process import ForkedProcess, with_bytecode

__all__ = ["ConnectorProcess", "running_connector"]

PATIENCE_SECONDS = 60.0


class ConnectorProcess:
    """At most one process at a time. What it says is in `<folder>/connector.log`, its progress in `connector.ndjson`,
    of all starts in one file."""

    def __init__(self, folder: Path, broker: str, server: str, *options: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.log, self.progress = folder / "connector.log", folder / "connector.ndjson"
        self._arguments = ["connect", broker, "--server", server, "--state", str(folder / "state"), "--json", *options]
        self._process: ForkedProcess | None = None

    def start(self) -> None:
        self.log.touch()
        self.progress.touch()
        self._process = ForkedProcess(
            "kindcast.server.cli", self._arguments, with_bytecode(), self.log, output=self.progress
        )

    def returncode(self) -> int | None:
        """None while it runs."""
        return None if self._process is None else self._process.poll()

    def wait(self) -> int:
        """Until it ends by itself; its exit status."""
        assert self._process is not None
        return self._process.wait(PATIENCE_SECONDS)

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """SIGTERM; the exit status."""
        return self._end(signal.SIGTERM)

    def totals(self) -> dict[str, float]:
        """The last line of progress."""
        lines = self.progress.read_text("utf-8").splitlines()
        return msgspec.json.decode(lines[-1], type=dict[str, float]) if lines else {}

    def said(self) -> str:
        return self.log.read_text("utf-8")

    def _end(self, how: signal.Signals) -> int:
        assert self._process is not None
        self._process.send_signal(how)
        return self._process.wait(PATIENCE_SECONDS)


@contextmanager
def running_connector(folder: Path, broker: str, server: str, *options: str) -> Iterator[ConnectorProcess]:
    connector = ConnectorProcess(folder, broker, server, *options)
    connector.start()
    try:
        yield connector
    finally:
        connector.kill()
