"""Isolated child processes for work on untrusted documents: the parent's side.

run_isolated ──task, payload──▶ child: import → limits, audit hook → task(payload) ──result, or an error as data──▶ back

Each task runs in a new, restricted process, which is killed afterwards with all processes that it started.

A task is a function "module:function" of this project, `(payload: bytes, progress: Progress) -> bytes`. Its name comes
from the calling code, never from a client. If a limit or a crash ends the child early, the OntologyError says which.
"""

import logging
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kindcast.semantic import errors
from kindcast.semantic.errors import OntologyError, TooCostly
from kindcast.semantic.ontology import framing
from kindcast.semantic.ontology.records import Progress, silent

__all__ = ["Cancelled", "Cost", "Isolation", "run_isolated"]

POLL_SECONDS = 0.1
"""The interval in which the parent checks whether to stop the child, while the child sends nothing."""

STDERR_BYTES = 1 << 16
"""The last bytes of the child's standard error that are kept, because the end explains a crash."""

CHUNK = 1 << 20
_INHERITED = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT")  # some Pythons do not start without them
_CHILD: Final = str(Path(__file__).with_name("child.py"))
_log = logging.getLogger("kindcast.isolation")


class Cancelled(Exception):
    """Raised if the caller cancelled the work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Isolation:
    """The resources and permissions of a child. The defaults suffice for documents within the default `Limits`, and
    allow only computation.

    `programs` are the full paths of the programs that the task may start. With `folder`, the child gets an empty
    folder, which is its TMPDIR and the only place where it may open files. The folder is deleted with its content when
    the child has ended. `events` are additional audit events that the task may raise.
    """

    memory: int = 4 << 30  # bytes of address space of each process
    cpu_seconds: float = 300.0  # of each process
    wall_seconds: float = 600.0
    open_files: int = 0  # in addition to the pipes to the parent
    file_bytes: int = 0  # maximum size of a file that is written
    programs: tuple[str, ...] = ()
    folder: bool = False
    events: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The resources that a child used, as the operating system reports them, and the audit events that were refused."""

    cpu_seconds: float
    peak_bytes: int
    wall_seconds: float
    refused: tuple[str, ...]


def run_isolated(
    task: str,
    payload: bytes,
    isolation: Isolation | None = None,
    *,
    progress: Progress | None = None,
    cancelled: threading.Event | None = None,
    account: Callable[[Cost], None] | None = None,
) -> bytes:
    """Runs `task` on `payload` in a child process and returns its result. Blocks. Any number of threads may call it at
    the same time.

    `progress` is called in this thread. `account` is called once when the child has ended, also after an error. Cost:
    the start of an interpreter and the imports of the task.

    Raises the error of the task if it is an OntologyError; TooCostly for a limit, a crash or any other error of the
    task; Cancelled; RuntimeError if no child can be started.
    """
    isolation = isolation or Isolation()
    with _scratch(isolation) as folder:
        run = _Run(task, payload, isolation, folder, progress or silent, cancelled or threading.Event())
        try:
            run.converse()
        finally:
            cost = run.end()
            if account is not None:
                account(cost)
        return run.outcome()


@contextmanager
def _scratch(isolation: Isolation) -> Iterator[str]:
    """Creates the child's folder and deletes it afterwards. Yields its path, or "" without `isolation.folder`."""
    if not isolation.folder:
        yield ""
        return
    folder = tempfile.mkdtemp(prefix="kindcast-")
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _Run:
    """One child process: its start, the exchange with it, its end and its cost."""

    def __init__(
        self,
        task: str,
        payload: bytes,
        isolation: Isolation,
        folder: str,
        progress: Progress,
        cancelled: threading.Event,
    ) -> None:
        self._isolation = isolation
        self._progress = progress
        self._cancelled = cancelled
        self._began = time.monotonic()
        self._late = False
        self._ready = False
        self._answers = bytearray()
        self._said = bytearray()
        self._result: bytes | None = None
        self._error: dict[str, Any] | None = None
        self._end: dict[str, Any] = {}
        self._status: int | None = None
        self._used: Any = None
        self._process = _started(folder)
        self._to_send = [*_frame(framing.HEADER, _header(task, isolation, folder)), *_frame(framing.PAYLOAD, payload)]

    def converse(self) -> None:
        """Sends the payload and receives the answers, until the child closes its pipe or the time is over."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        deadline = self._began + self._isolation.wall_seconds
        with selectors.DefaultSelector() as selector:
            for pipe, events, handle in (
                (process.stdin, selectors.EVENT_WRITE, self._send),
                (process.stdout, selectors.EVENT_READ, self._receive),
                (process.stderr, selectors.EVENT_READ, self._hear),
            ):
                os.set_blocking(pipe.fileno(), False)
                selector.register(pipe, events, handle)
            while process.stdout in selector.get_map():
                if self._cancelled.is_set():
                    raise Cancelled("the reading was stopped")
                if time.monotonic() >= deadline:
                    self._late = True
                    return
                for key, _ in selector.select(POLL_SECONDS):
                    if not key.data(key.fd):
                        selector.unregister(key.fileobj)

    def end(self) -> Cost:
        """Kills the child and all processes that it started, if they still run, and returns what the child used."""
        process = self._process
        with suppress(ProcessLookupError, PermissionError):  # some systems report an ended process by the second one
            os.killpg(process.pid, signal.SIGKILL)  # the child was not waited for, so its id is not reused
        _, status, self._used = os.wait4(process.pid, 0)
        self._status = process.returncode = os.waitstatus_to_exitcode(status)
        assert process.stderr is not None
        while self._hear(process.stderr.fileno()):
            pass
        for pipe in (process.stdin, process.stdout, process.stderr):
            assert pipe is not None
            pipe.close()
        scale = 1 if sys.platform == "darwin" else 1_024
        cost = Cost(
            cpu_seconds=self._used.ru_utime + self._used.ru_stime,
            peak_bytes=int(self._end.get("peak_bytes") or self._used.ru_maxrss * scale),
            wall_seconds=time.monotonic() - self._began,
            refused=tuple(str(each) for each in self._end.get("refused", ())),
        )
        if cost.refused:
            _log.warning("a document made its reader try a forbidden action: %s", "; ".join(cost.refused))
        return cost

    def outcome(self) -> bytes:
        """Returns the result, or raises the error."""
        if self._late:
            raise TooCostly(
                f"reading it takes longer than {self._isolation.wall_seconds:,.0f} seconds and was stopped", "wall"
            )
        if not self._ready:
            raise RuntimeError(f"no child process could be started: {self._last_words() or self._status}")
        if self._error is not None:
            raise _as_error(self._error, self._isolation)
        if self._result is None or self._status != 0:
            raise self._death()
        return self._result

    def _send(self, descriptor: int) -> bool:
        """Sends as much as the pipe takes, and returns whether there is more. The pipe stays open, so that the child
        sees that the parent is alive."""
        try:
            while self._to_send:
                sent = os.write(descriptor, self._to_send[0][:CHUNK])
                self._to_send[0] = self._to_send[0][sent:]
                if not self._to_send[0]:
                    del self._to_send[0]
        except BlockingIOError:
            return True
        except BrokenPipeError:
            pass  # the child has ended; its answers say why
        return False

    def _receive(self, descriptor: int) -> bool:
        """Receives some of the answers, and returns whether more may come."""
        piece = os.read(descriptor, CHUNK)
        self._answers += piece
        if len(self._answers) > self._isolation.memory:  # more than the child's memory can hold
            return False
        while len(self._answers) >= framing.PREFIX.size:
            kind, length = framing.PREFIX.unpack_from(self._answers)
            end = framing.PREFIX.size + length
            if len(self._answers) < end:
                break
            try:
                self._take(kind, bytes(memoryview(self._answers)[framing.PREFIX.size : end]))
            except (ValueError, TypeError):  # not a valid message
                return False
            del self._answers[:end]
        return bool(piece)

    def _take(self, kind: bytes, data: bytes) -> None:
        if kind == framing.RESULT:
            self._result = data
        elif kind == framing.READY:
            self._ready = True
        elif kind == framing.PROGRESS:
            stage, done, total = framing.unpacked(data)
            self._progress(str(stage)[:64], int(done), None if total is None else int(total))
        elif kind == framing.ERROR:
            self._error = dict(framing.unpacked(data))
        elif kind == framing.END:
            self._end = dict(framing.unpacked(data))

    def _hear(self, descriptor: int) -> bool:
        """Receives some of the child's standard error, and returns whether more may come."""
        try:
            piece = os.read(descriptor, CHUNK)
        except BlockingIOError:
            return False
        self._said += piece
        del self._said[:-STDERR_BYTES]
        return bool(piece)

    def _last_words(self) -> str:
        return self._said.decode("utf-8", "replace").strip()

    def _death(self) -> OntologyError:
        """Returns the error for a child that ended without an answer, from its exit status and its standard error."""
        assert self._status is not None
        words = self._last_words()
        used = self._used.ru_utime + self._used.ru_stime
        if self._status == -signal.SIGXCPU or (self._status == -signal.SIGKILL and used >= self._isolation.cpu_seconds):
            return TooCostly(_needs(f"more than {self._isolation.cpu_seconds:,.0f} seconds of processor time"), "cpu")
        if self._status == -signal.SIGKILL or "memory allocation of" in words or "MemoryError" in words:
            return _out_of_memory(self._isolation)
        _log.error("the process that reads documents ended with %s: %s", self._status, words)
        how = f"signal {signal.Signals(-self._status).name}" if self._status < 0 else f"status {self._status}"
        return TooCostly(
            f"the process that read the document crashed ({how}); "
            "the document may be nested too deeply, or need more memory",
            "crash",
        )


def _started(folder: str) -> "subprocess.Popen[bytes]":
    environment = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    environment |= {"LC_ALL": "C.UTF-8", "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    if folder:
        environment["TMPDIR"] = folder
    options = ["-I", "-S", "-X", "utf8"]
    if sys.dont_write_bytecode:
        options.append("-B")
    if sys.pycache_prefix:
        options += ["-X", f"pycache_prefix={sys.pycache_prefix}"]
    try:
        return subprocess.Popen(
            [sys.executable, *options, _CHILD],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=folder or "/",
            env=environment,
            bufsize=0,
            start_new_session=True,
        )
    except OSError as error:
        raise RuntimeError(f"no child process could be started: {error}") from error


def _header(task: str, isolation: Isolation, folder: str) -> bytes:
    fence = {
        "memory": isolation.memory,
        "cpu_seconds": isolation.cpu_seconds,
        "open_files": isolation.open_files,
        "file_bytes": isolation.file_bytes,
        "programs": isolation.programs,
        "folder": folder,
        "events": isolation.events,
    }
    return framing.packed({"task": task, "path": [os.path.abspath(each) for each in sys.path], "fence": fence})


def _frame(kind: bytes, data: bytes) -> Iterator[memoryview]:
    yield memoryview(framing.PREFIX.pack(kind, len(data)))
    if data:
        yield memoryview(data)


def _as_error(told: dict[str, Any], isolation: Isolation) -> OntologyError:
    """Recreates the error of a task, as the most specific of its classes that is an OntologyError."""
    kinds, detail = told["kinds"], str(told["detail"])
    for name in kinds:
        kind = getattr(errors, str(name), None)
        if isinstance(kind, type) and issubclass(kind, OntologyError) and kind is not TooCostly:
            return kind(detail, line=told["line"], column=told["column"])
        if kind is TooCostly:
            return TooCostly(detail, told["limit"] or "crash")
    if "MemoryError" in kinds:
        return _out_of_memory(isolation)
    if "RecursionError" in kinds:
        return TooCostly("the document is nested too deeply", "crash")
    _log.error("the process that reads documents failed: %s: %s", kinds[0], detail)
    return TooCostly(f"its reader failed ({kinds[0]}: {detail:.200}); please report this", "crash")


def _out_of_memory(isolation: Isolation) -> TooCostly:
    return TooCostly(_needs(f"more than {isolation.memory >> 20:,} MiB of memory"), "memory")


def _needs(what: str) -> str:
    return f"reading the document takes {what} and was stopped; make the document smaller, or raise the limit"
