"""Processes that begin with everything imported: each is a fork of a template, which imports once for all tests.

    test ──socket──▶ template ──fork──▶ supervisor ──fork──▶ the process: an environment of its own; a session and
                                            │                 a log too, or the open files of a shell's command
                                            └── tells the test its number, and how it ended

To import the server and to load its kernels takes longer than all else that most tests do with one. Other tests start
it as a user does.
"""

import atexit
import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

from kindcast.index import jit
from kindcast.index.compilation import call_all

__all__ = ["ForkedProcess", "template", "with_bytecode"]

MODULES = (
    "kindcast.server.app",
    "kindcast.server.cli.application",
    "kindcast.server.cli.serve",
    "kindcast.server.client",
    "kindcast.server.connectors.amqp",
    "kindcast.server.connectors.kafka",
    "kindcast.server.connectors.mqtt",
    "kindcast.server.connectors.nats",
    "kindcast.server.connectors.redis_streams",
    "kindcast.server.connectors.source",
    "kindcast.semantic.ontology.loader",
    "kindcast.semantic.ontology.reasoning",
    "anyio._backends._asyncio",
    "pint",
    "uvloop",
    "uvicorn.loops.uvloop",
    "uvicorn.protocols.http.httptools_impl",
    "uvicorn.lifespan.on",
)
"""What a server or a connector that runs has imported."""

BYTECODE = Path(__file__).resolve().parents[2] / ".pytest_cache" / "bytecode"


def with_bytecode() -> dict[str, str]:
    """The variables of this process. Where it writes no bytecode, other processes still keep theirs, out of the way:
    else each of many starts would compile every library anew."""
    inherited = dict(os.environ)
    if inherited.pop("PYTHONDONTWRITEBYTECODE", ""):
        inherited["PYTHONPYCACHEPREFIX"] = str(BYTECODE)
    return inherited


class ForkedProcess:
    """A Python module as a process, with the part of `subprocess.Popen` that tests use."""

    def __init__(
        self,
        module: str,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        log: Path,
        output: Path | None = None,
    ) -> None:
        """`output` is the file of its standard output; `log` that of its errors, and of both without `output`."""
        self._connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._connection.connect(template())
        asked = {"module": module, "arguments": arguments, "environment": dict(environment), "log": str(log)}
        asked["output"] = str(output or log)
        self._connection.sendall(json.dumps({**asked, "folder": os.getcwd()}).encode() + b"\n")
        self._told = self._connection.makefile("r")
        self.pid = int(self._told.readline())
        self._connection.setblocking(False)
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Its exit status, as `Popen` has it; None while it runs."""
        if self.returncode is None:
            with contextlib.suppress(BlockingIOError):
                told = self._connection.recv(64)
                self.returncode = int(told)
                self._told.close()
                self._connection.close()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Raises `subprocess.TimeoutExpired`."""
        deadline = time.monotonic() + (timeout or float("inf"))
        while (status := self.poll()) is None:
            left = deadline - time.monotonic()
            if left <= 0:
                raise subprocess.TimeoutExpired("a forked process", timeout or 0.0)
            select.select([self._connection], [], [], min(left, 60.0))
        return status

    def send_signal(self, number: int) -> None:
        """Nothing, where it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)


SHARED = "TEMPLATE_OF_SERVERS"
"""The variable with the address of the template that the workers of a parallel run share."""
PATIENCE_SECONDS = 120.0


def share_template() -> None:
    """Starts a template for this process and those that it starts. It may not be ready yet when this returns."""
    os.environ[SHARED], _ = _start_template()


@cache
def template() -> str:
    """The address of the shared template, or of one of this process. It ends when the process that started it does."""
    if place := os.environ.get(SHARED):
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not os.path.exists(place):
            assert time.monotonic() < deadline, "the shared template did not start"
            time.sleep(0.05)
        return place
    place, process = _start_template()
    assert process.stdout is not None
    assert process.stdout.readline(), "the template did not start"
    return place


def _start_template() -> "tuple[str, subprocess.Popen[bytes]]":
    place = str(Path(tempfile.mkdtemp(prefix="kindcast-template-")) / "socket")
    process = subprocess.Popen(
        [sys.executable, "-m", __name__, place],
        cwd=Path(__file__).parents[2],
        env=with_bytecode(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    _kept.append(process)
    return place, process


_kept: "list[subprocess.Popen[bytes]]" = []


def _serve(place: str) -> str | None:
    """Until the other side closes our input; then None. In each new process: which module it is to run."""
    for name in MODULES:
        importlib.import_module(name)
    jit.load_kernels()
    call_all()
    _use_once()
    gc.collect()
    gc.freeze()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(place + ".new")
    listener.listen()
    os.rename(place + ".new", place)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no supervisor is waited for
    os.write(sys.stdout.fileno(), b"ready\n")
    while True:
        readable, _, _ = select.select([sys.stdin, listener], [], [])
        if sys.stdin in readable:
            shutil.rmtree(os.path.dirname(place), ignore_errors=True)
            return None
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            return _supervise(connection)
        connection.close()


def _use_once() -> None:
    """What each server would build at its first use: units, the trusted certificates, and what FastAPI derives from the
    routes."""
    from kindcast import Matcher, Vocabulary
    from kindcast.server.app import routes
    from kindcast.server.security.egress import Connections

    Matcher(Vocabulary()).canonicalise({"quantity": "1 kg"})
    Connections(allow_private=False)
    for route in routes():
        route.matches({"type": "http", "method": "GET", "path": "/none", "headers": []})


def _supervise(connection: socket.socket) -> str:
    """Forks the process and returns in it what it is to run; else waits for its end, tells it, and exits."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    first, files, _, _ = socket.recv_fds(connection, 1, 3)
    asked = json.loads(first + connection.makefile("rb").readline())
    pid = os.fork()
    if pid == 0:
        connection.close()
        return _become(asked, files)
    for file in files:
        os.close(file)
    with contextlib.suppress(OSError):  # the test may have ended
        connection.sendall(b"%d\n" % pid)
        _, status = os.waitpid(pid, 0)
        connection.sendall(b"%d" % os.waitstatus_to_exitcode(status))
    os._exit(0)


def _become(asked: dict[str, Any], files: list[int]) -> str:
    """A folder, files, variables and arguments of its own; with a log, a session too."""
    os.chdir(asked["folder"])
    if "log" in asked:
        os.setsid()
        written = [os.open(asked[each], os.O_WRONLY | os.O_CREAT | os.O_APPEND) for each in ("output", "log")]
        files = [os.open(os.devnull, os.O_RDONLY), *written]
    for target, file in enumerate(files):
        os.dup2(file, target)
        os.close(file)
    os.environ.clear()
    os.environ.update(asked["environment"])
    sys.path[1:1] = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    sys.dont_write_bytecode = bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))
    time.tzset()
    module: str = asked["module"]
    sys.argv = [module, *asked["arguments"]]
    return module


def _run(module: str) -> int:
    """Runs a module as a program does; returns its exit status."""
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if isinstance(end.code, str):
            sys.stderr.write(f"{end.code}\n")
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException as error:
        sys.excepthook(*sys.exc_info())
        if isinstance(error, KeyboardInterrupt):
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
        return 1
    return 0


def _end(status: int) -> NoReturn:
    """Ends as Python does, but without freeing what the template had imported, which takes longer than most commands:
    each page of memory would be copied first."""
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    asked_for = _serve(sys.argv[1])
    if asked_for is not None:
        _end(_run(asked_for))
