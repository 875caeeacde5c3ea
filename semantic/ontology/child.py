"""The child process, run by its path in a fresh interpreter: import, take the payload, close the fence, do the task.

Only what the task imports is loaded: the packages around this file are entered without their `__init__`, which would
bring the matcher, the units and the grammar, and take most of a second.
"""

import faulthandler
import gc
import importlib
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

PACKAGES = Path(__file__).resolve().parents[2]
SHORT = ("semantic", "semantic.ontology")
"""Packages that are entered without running their `__init__`."""

ENCODINGS = ("ascii", "cp1252", "latin_1", "utf_16", "utf_16_be", "utf_16_le", "utf_8", "utf_8_sig")
ISO_8859 = (*range(1, 12), *range(13, 17))
"""Codecs that documents may ask for: Python loads each from a file when it is first used, which is too late here."""

REPORT_SECONDS = 0.1
"""Between two reports of one stage."""


def main() -> NoReturn:
    """Ends the process, whatever happens; what happened is told in frames, or seen from how it ended."""
    faulthandler.enable()
    _enter_packages()
    from semantic.ontology import framing

    kind, header = framing.frame(0)
    assert kind == framing.HEADER
    told = framing.unpacked(header)
    sys.path[:] = [*told["path"], str(PACKAGES)]
    answers = os.dup(1)
    os.dup2(2, 1)  # what a library prints is no frame
    _Child(answers, told).run()


class _Child:
    """One task, done once."""

    def __init__(self, answers: int, told: dict[str, Any]) -> None:
        from semantic.ontology import audit, framing

        self._framing = framing
        self._answers = answers
        self._told = told
        self._fence = audit.Fence(**told["fence"])
        self._status = _open_status()
        self._stage, self._reported = "", 0.0

    def run(self) -> NoReturn:
        framing = self._framing
        task = _imported(self._told["task"])
        self._send(framing.READY, b"")
        kind, payload = framing.frame(0)
        assert kind == framing.PAYLOAD
        threading.Thread(target=_end_with_the_parent, daemon=True).start()
        gc.freeze()
        gc.disable()  # records are trees without circles, and the process ends soon: half of the time of a large one
        self._fence.close()
        try:
            result = task(payload, self._report)
            self._send(framing.RESULT, result)
        except BaseException as error:  # a panic of native code is none of Exception
            self._send(framing.ERROR, framing.packed(_described(error)))
        self._send(framing.END, framing.packed({"peak_bytes": self._peak(), "refused": self._fence.refused}))
        os._exit(0)

    def _report(self, stage: str, done: int, total: int | None) -> None:
        now = time.monotonic()
        if stage != self._stage or now - self._reported >= REPORT_SECONDS:
            self._stage, self._reported = stage, now
            self._send(self._framing.PROGRESS, self._framing.packed([stage, done, total]))

    def _send(self, kind: bytes, data: bytes) -> None:
        for piece in (self._framing.PREFIX.pack(kind, len(data)), data):
            rest = memoryview(piece)
            while rest:
                rest = rest[os.write(self._answers, rest) :]

    def _peak(self) -> int:
        """Bytes of memory at most in use. The system's own account of a child begins with that of its parent."""
        try:
            text = os.pread(self._status, 4_096, 0).decode("ascii", "replace")
            return int(text.partition("VmHWM:")[2].split()[0]) * 1_024
        except (OSError, ValueError, IndexError):
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            return peak if sys.platform == "darwin" else peak * 1_024


def _enter_packages() -> None:
    for name in SHORT:
        package = ModuleType(name)
        package.__path__ = [str(PACKAGES.joinpath(*name.split(".")))]
        sys.modules[name] = package
        parent, _, last = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], last, package)


def _imported(task: str) -> Callable[..., bytes]:
    """The function of a task "module:function", with everything that it will need."""
    module, _, function = task.partition(":")
    found: Callable[..., bytes] = getattr(importlib.import_module(module), function)
    for name in (*ENCODINGS, *(f"iso8859_{part}" for part in ISO_8859)):
        "".encode(name)
    return found


def _open_status() -> int:
    """A descriptor of this process's own account, while files can be opened; -1 where there is none. The system is also
    told whom to end first when memory runs out."""
    try:
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
        return os.open("/proc/self/status", os.O_RDONLY)
    except OSError:
        return -1


def _end_with_the_parent() -> None:
    """In a thread: the parent keeps the pipe open as long as it lives and wants the answer."""
    while os.read(0, 1):
        pass
    os.killpg(0, signal.SIGKILL)


def _described(error: BaseException) -> dict[str, Any]:
    """An error as data: the names of its classes, from its own to the root, and what it says."""
    if not hasattr(error, "detail") and not isinstance(error, MemoryError):
        _tell_where(error)
    return {
        "kinds": [each.__name__ for each in type(error).__mro__],
        "detail": str(getattr(error, "detail", error)),
        "line": getattr(error, "line", None),
        "column": getattr(error, "column", None),
        "limit": getattr(error, "limit", None),
    }


def _tell_where(error: BaseException) -> None:
    """The calls that led to a fault of ours, on standard error, without looking into any source file."""
    at = error.__traceback__
    while at is not None:
        code = at.tb_frame.f_code
        sys.stderr.write(f"{code.co_filename}:{at.tb_lineno} in {code.co_name}\n")
        at = at.tb_next
    sys.stderr.flush()


if __name__ == "__main__":
    main()
