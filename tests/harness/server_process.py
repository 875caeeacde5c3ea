"""A real kindcast process on a real socket and a real data folder, that a test may stop, kill and start again."""

import http.client
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.harness.forked_process import ForkedProcess, with_bytecode
from tests.harness.ports import free_port

__all__ = ["PRODUCT", "ServerProcess", "fresh_servers", "running_server"]

PRODUCT = "kindcast.server.cli"
"""The module with the command line."""

FRESH = "FRESH_SERVERS"
"""The variable of the environment with which servers are no forks."""

PATIENCE_SECONDS = 60.0
"""For a start or an orderly stop; only a failing test ever waits this long."""

POLL_SECONDS = 0.02


class ServerProcess:
    """One data folder and one port; at most one process at a time. Log in `<data>/server.log`, all starts in one
    file."""

    def __init__(self, data: Path, environment: Mapping[str, str] | None = None, *, module: str = PRODUCT) -> None:
        """`module` has the command line; another one than the product's stands in for it."""
        self._module = module
        self.data = data
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = data / "server.log"
        self._environment = dict(environment or {})
        self._process: ForkedProcess | subprocess.Popen[bytes] | None = None

    def start(self, *, wait: bool = True, **environment: str) -> None:
        """Starts the process and, unless told otherwise, waits until it is ready. Variables given here count from now
        on."""
        self._environment |= environment
        self.data.mkdir(parents=True, exist_ok=True)
        arguments = ["serve", "--host", "127.0.0.1", "--port", str(self.port), "--data", str(self.data)]
        variables = with_bytecode() | self._environment
        if os.environ.get(FRESH):
            command = [sys.executable, "-m", self._module, *arguments]
            with self.log.open("ab") as log:
                self._process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=variables, start_new_session=True
                )
        else:
            self._process = ForkedProcess(self._module, arguments, variables, self.log)
        if wait:
            self.wait_until_ready()

    def kill(self) -> None:
        """SIGKILL: no chance to finish anything."""
        self._signal(signal.SIGKILL)

    def pause(self) -> None:
        """SIGSTOP: it does nothing, and notices nothing, until `go_on`."""
        assert self._process is not None, "not started"
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """SIGCONT."""
        assert self._process is not None, "not started"
        self._process.send_signal(signal.SIGCONT)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Sends this signal, and waits for an orderly end; returns the exit status."""
        return self._signal(number)

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def number(self) -> int:
        """The number of the process that runs."""
        assert self._process is not None, "not started"
        return self._process.pid

    def resident_megabytes(self) -> int:
        """Its memory now, as Linux counts it."""
        assert self._process is not None, "not started"
        status = Path(f"/proc/{self._process.pid}/status").read_text(encoding="utf-8")
        return int(status.partition("VmRSS:")[2].split()[0]) // 1_024

    def open_files(self) -> int:
        """How many files and sockets it has open."""
        assert self._process is not None, "not started"
        return len(os.listdir(f"/proc/{self._process.pid}/fd"))

    def _signal(self, number: signal.Signals) -> int:
        assert self._process is not None, "not started"
        self._process.send_signal(number)
        try:
            return self._process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise AssertionError(f"the server did not stop on {number.name}:\n{self._log_tail()}") from None

    def wait_until_ready(self) -> None:
        """For a start that did not wait."""
        assert self._process is not None
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise AssertionError(f"the server ended with {self._process.returncode}:\n{self._log_tail()}")
            if self._is_ready():
                return
            time.sleep(POLL_SECONDS)
        raise AssertionError(f"the server was not ready in time:\n{self._log_tail()}")

    def _is_ready(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5.0)
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == http.HTTPStatus.OK
        except OSError:
            return False  # nobody listens yet
        finally:
            connection.close()

    def _log_tail(self) -> str:
        return self.log.read_text(errors="replace")[-4_000:]


@contextmanager
def fresh_servers() -> Iterator[None]:
    """Servers that start meanwhile are processes of their own, as those of users, for runs that measure their time or
    memory. A fork copies each page of its template that it writes to, with the counts of references of all it uses."""
    before = os.environ.get(FRESH)
    os.environ[FRESH] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[FRESH]


@contextmanager
def running_server(
    data: Path,
    environment: Mapping[str, str] | None = None,
    *,
    start: bool = True,
    module: str = PRODUCT,
) -> Iterator[ServerProcess]:
    """A server, started unless told otherwise; killed if it still runs at the end of the block."""
    server = ServerProcess(data, environment, module=module)
    if start:
        server.start()
    try:
        yield server
    finally:
        if server.running:
            server.kill()
