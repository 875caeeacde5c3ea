"""Operators in separate processes: a process that hangs, crashes or sends too much is killed and replaced.

A thread cannot be stopped from outside; a process can. Each worker is a fresh interpreter (never a fork of a process
with threads) and the leader of its own process group. Parent and worker exchange frames of JSON
(`kindcast.semantic.operators.worker`).

    ask ──▶ a free worker, or a new one ──frame──▶ function ──frame──▶ values
              timeout, cancellation, crash, oversized answer ──▶ the process group is killed ──▶ the calls fail

In a frame, a scalar is written as itself. Any other value is a list whose first element is its type, so that a tuple is
read as a tuple and 1 km as a quantity: `["q", 1, "km"]`. Reading a frame creates values and runs no code.
"""

import contextlib
import json
import os
import selectors
import signal
import struct
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kindcast import semantic
from kindcast.semantic.model import Instant, Quantity
from kindcast.semantic.operators.failures import OperatorFailed

__all__ = ["HEADER", "START_SECONDS", "Cancellation", "Workers", "read", "to_wire"]


HEADER = struct.Struct(">Q")
"""Header of a frame: the length of the JSON that follows, in bytes (unsigned, 8 bytes, big-endian)."""


def written(value: object) -> bytes:
    """Returns `value` as JSON in UTF-8. Raises TypeError for something that is not a value of an event or of an
    answer."""
    return json.dumps(to_wire(value), ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


def read(text: bytes) -> Any:
    """Returns the value that `written` encoded. Raises ValueError."""
    return from_wire(json.loads(text.decode("utf-8", "surrogatepass")))


def to_wire(value: object) -> object:
    """Returns a value in the form that is written as JSON. Raises TypeError.

    >>> to_wire((1, Quantity(2, "km")))
    ['t', 1, ['q', 2, 'km']]
    """
    match value:
        case None | bool() | int() | float() | str():
            return value
        case np.generic():
            return value.item()
        case Quantity(number, unit):
            return ["q", number, unit]
        case Instant(text):
            return ["i", text]
        case Mapping():
            return ["d", *([to_wire(key), to_wire(each)] for key, each in value.items())]
        case list() | tuple() | set() | frozenset():
            return ["t", *map(to_wire, value)]
    raise TypeError(f"{type(value).__name__} is not a value of an event or of an answer")


def from_wire(value: Any) -> Any:
    """Returns the value from the form of `to_wire`. Raises ValueError."""
    if not isinstance(value, list):
        return value
    match value:
        case ["q", number, unit]:
            return Quantity(number, unit)
        case ["i", text]:
            return Instant(text)
        case ["d", *items]:
            return {from_wire(key): from_wire(each) for key, each in items}
        case ["t", *items]:
            return tuple(map(from_wire, items))
    raise ValueError(f"{value!r:.60} is not a value")


START_SECONDS = 60.0
"""Maximum seconds that a worker may take to import its function. This time does not count as time of the call."""
MOST_BYTES = 10_000_000
"""Maximum bytes of an answer: ten times as much as a thousand bindings of long texts."""
PROGRAM = """
import sys
from importlib.util import module_from_spec, spec_from_file_location
folder = sys.argv[1]
found = spec_from_file_location("kindcast", f"{folder}/__init__.py", submodule_search_locations=[folder])
sys.modules["kindcast"] = package = module_from_spec(found)
found.loader.exec_module(package)
from kindcast.semantic.operators.worker import main
main()
"""
"""The program of a worker. It imports our package from the folder from which this process imported it. Nothing else in
the parent of that folder becomes importable."""


class Cancellation:
    """Cancels calls from another thread. The workers that run them are killed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[_Worker] = set()
        self._cancelled = False

    def is_cancelled(self) -> bool:
        return self._cancelled

    def cancel(self) -> None:
        """Cancels all current and later calls that use this object: they end with `OperatorFailed`."""
        with self._lock:
            self._cancelled = True
            for worker in self._running:
                worker.kill()

    def _begin(self, worker: "_Worker") -> None:
        with self._lock:
            self._running.add(worker)
            if self._cancelled:
                worker.kill()

    def _end(self, worker: "_Worker") -> None:
        with self._lock:
            self._running.discard(worker)


class Workers:
    """A pool of at most `most` processes for one function, started when needed. Thread-safe."""

    def __init__(self, target: str, *, most: int, timeout: float | None) -> None:
        """`target` is the `module:name` by which a worker imports the function. `timeout`: seconds, or None."""
        self._target = target
        self._timeout = timeout
        self._free: list[_Worker] = []
        self._busy: set[_Worker] = set()
        self._slots = threading.BoundedSemaphore(most)
        self._lock = threading.Lock()
        self._finalizer = weakref.finalize(self, _end_all, self._free, self._busy)

    def ask(self, asked: Sequence[tuple[Any, ...]], cancellation: Cancellation | None = None) -> list[Any]:
        """Returns the answer of the function to each of `asked`: a value or an `OperatorFailed`. Blocks while all
        workers are busy."""
        cancellation = cancellation or Cancellation()
        with self._slots:
            if cancellation.is_cancelled():
                return [OperatorFailed("was cancelled")] * len(asked)
            with self._lock:
                worker = self._free.pop() if self._free else _Worker(self._target)
                self._busy.add(worker)
            cancellation._begin(worker)
            try:
                return worker.ask(asked, self._timeout)
            except OperatorFailed as failure:
                worker.kill()
                return [OperatorFailed("was cancelled") if cancellation.is_cancelled() else failure] * len(asked)
            finally:
                cancellation._end(worker)
                with self._lock:
                    self._busy.discard(worker)
                    if worker.alive:
                        self._free.append(worker)
                    else:
                        worker.release()

    def processes(self) -> list[int]:
        """Returns the ids of the live processes."""
        with self._lock:
            return [worker.pid for worker in (*self._free, *self._busy) if worker.alive]

    def close(self) -> None:
        """Kills all processes. Running calls fail."""
        with self._lock:
            _end_all(self._free, self._busy)


def _end_all(free: "list[_Worker]", busy: "set[_Worker]") -> None:
    for worker in (*free, *busy):
        worker.kill()
    for worker in free:  # the thread that uses a busy worker releases it
        worker.release()
    free.clear()


class _Worker:
    """A worker process. One thread at a time may call `ask`; any thread may call `kill`."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._ready = False
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(Path(semantic.__file__).parents[1])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            bufsize=0,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input, self._output = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._input, False)
        os.set_blocking(self._output, False)
        self.alive = True
        self.pid = self._process.pid

    def ask(self, asked: Sequence[tuple[Any, ...]], timeout: float | None) -> list[Any]:
        """Returns the answer to each of `asked`: a value or an `OperatorFailed`. Raises `OperatorFailed` if the worker
        cannot be used any more."""
        if not self._ready:
            first = {"path": list(sys.path), "target": self._target}
            said = self._exchange(written(first), time.monotonic() + START_SECONDS, "did not start in time")
            if "failed" in said:
                raise OperatorFailed(f"{self._target} cannot be run: {said['failed']}")
            self._ready = True
        try:
            frame = written([tuple(each) for each in asked])
        except TypeError as error:
            return [OperatorFailed(str(error), for_good=True)] * len(asked)
        deadline = None if timeout is None else time.monotonic() + timeout
        answers = self._exchange(frame, deadline, f"took longer than {timeout} seconds and was stopped").get("answers")
        if not isinstance(answers, list) or len(answers) != len(asked):
            raise OperatorFailed("its process sent a reply of the wrong form")
        return [_outcome(each) for each in answers]

    def kill(self) -> None:
        """Kills the process and its process group. May be called twice, from any thread."""
        with self._lock:
            if not self.alive:
                return
            self.alive = False
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
            self._process.wait()

    def release(self) -> None:
        """Closes the pipes of an ended process. Called by the thread that used the process last."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _exchange(self, frame: bytes, deadline: float | None, late: str) -> dict[str, Any]:
        """Sends one frame and reads one frame. `late` is the message at the deadline. Raises `OperatorFailed`."""
        sending = memoryview(HEADER.pack(len(frame)) + frame)
        got = bytearray()
        wanted = HEADER.size
        with selectors.DefaultSelector() as selector:
            selector.register(self._input, selectors.EVENT_WRITE)
            selector.register(self._output, selectors.EVENT_READ)
            while len(got) < wanted:
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    raise OperatorFailed(late, kind="timed_out")
                for key, _ in selector.select(left):
                    if key.fd == self._input:
                        sending = sending[self._write(sending) :]
                        if not sending:
                            selector.unregister(self._input)
                        continue
                    got += self._read(wanted - len(got))
                    if wanted == HEADER.size == len(got):
                        wanted += HEADER.unpack(got)[0]
                        if wanted > MOST_BYTES:
                            raise OperatorFailed(f"answered with {wanted:,} bytes; {MOST_BYTES:,} are allowed")
        try:
            said = json.loads(bytes(got[HEADER.size :]))
        except ValueError as error:
            raise OperatorFailed("its process sent a reply of the wrong form") from error
        if not isinstance(said, dict):
            raise OperatorFailed("its process sent a reply of the wrong form")
        return said

    def _write(self, data: memoryview) -> int:
        try:
            return os.write(self._input, data)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise OperatorFailed("its process died") from error

    def _read(self, most: int) -> bytes:
        try:
            found = os.read(self._output, most)
        except BlockingIOError:
            return b""
        except OSError as error:
            raise OperatorFailed("its process died") from error
        if not found:
            raise OperatorFailed("its process died")
        return found


def _outcome(said: Any) -> Any:
    if "failed" in said:
        return OperatorFailed(said["failed"], for_good=said["for_good"], after=said["after"])
    return from_wire(said["value"])
