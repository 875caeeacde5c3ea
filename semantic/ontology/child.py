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
from typing import Any, Final, NoReturn

__all__ = ["Fence"]


# What a child may do once it has everything that it needs: compute. Everything else is refused, and recorded.
#
# Two fences. The system's: limits of address space, processor time, open files (as many as are open already, so that
# native code cannot open one either), written bytes, processes. Python's: an audit hook that refuses every event but a
# few harmless ones, also those that later versions of Python may add.

HARMLESS: Final = frozenset(
    {
        "array.__new__",
        "builtins.id",
        "code.__new__",
        "cpython._PySys_ClearAuditHooks",
        "gc.get_objects",
        "gc.get_referents",
        "gc.get_referrers",
        "object.__delattr__",
        "object.__getattr__",
        "object.__setattr__",
        "os.killpg",  # the child ends its own group when the parent is gone
        "sys._current_frames",
        "sys._getframe",
        "sys._getframemodulename",
        "sys.unraisablehook",
        "time.sleep",
    }
)
"""Audit events of plain computing."""

PROGRAM_EVENTS: Final = frozenset(
    {
        *("fcntl.fcntl", "fcntl.ioctl", "os.listdir", "os.mkdir", "os.posix_spawn", "os.remove", "os.rmdir"),
        *("os.scandir", "os.waitpid", "shutil.rmtree", "signal.pthread_sigmask", "subprocess.Popen"),
        *("tempfile.mkdtemp", "tempfile.mkstemp"),
    }
)
"""What starting a program and waiting for it may need as well; files only in the scratch folder."""

STARTS: Final = frozenset({"subprocess.Popen", "os.posix_spawn"})
"""Those that start one; its path comes first."""

RECORDED = 50
"""Refusals that are kept."""


class Fence:
    """Closed once, for good: an audit hook cannot be removed, and hard limits cannot be raised."""

    def __init__(
        self,
        *,
        memory: int,
        cpu_seconds: float,
        open_files: int = 0,
        file_bytes: int = 0,
        programs: tuple[str, ...] = (),
        folder: str = "",
        events: tuple[str, ...] = (),
    ) -> None:
        self.refused: list[str] = []
        """The events that were refused, as "event: first argument"."""
        self._memory = memory
        self._cpu_seconds = cpu_seconds
        self._open_files = open_files
        self._file_bytes = file_bytes
        self._programs = frozenset(programs)
        self._folder = folder and os.path.join(os.path.realpath(folder), "")
        self._allowed = HARMLESS | frozenset(events) | (PROGRAM_EVENTS if programs else frozenset())

    def close(self) -> None:
        """From here on. Some platforms know fewer limits than others; what they know is set."""
        used = resource.getrusage(resource.RUSAGE_SELF)
        seconds = int(used.ru_utime + used.ru_stime + self._cpu_seconds) + 1
        _limit("RLIMIT_CORE", 0)
        _limit("RLIMIT_FSIZE", self._file_bytes)
        _limit("RLIMIT_CPU", seconds, seconds + 2)  # the first signal tells why, the second one ends in any case
        if not self._programs:
            _limit("RLIMIT_NPROC", 0)  # not for root, whom the audit hook stops
        _limit("RLIMIT_NOFILE", _lowest_free() + self._open_files)
        _limit("RLIMIT_AS", self._memory)
        sys.addaudithook(self.check)

    def check(self, event: str, arguments: tuple[Any, ...]) -> None:
        """The audit hook. Raises PermissionError, or ModuleNotFoundError, for what is refused."""
        if event in self._allowed:
            if event in STARTS and arguments[0] not in self._programs:
                self._refuse(event, arguments)
            return
        if event == "import":
            self._record(event, arguments)
            raise ModuleNotFoundError(
                f"{arguments[0]} was not loaded before the document, and no module may be loaded now"
            )
        if event == "open" and self._folder and self._within(arguments[0]):
            return
        self._refuse(event, arguments)

    def _within(self, path: Any) -> bool:
        """Whether a file may be opened: in the scratch folder, or nowhere; or it is open already."""
        if isinstance(path, int):
            return True
        text = os.fsdecode(path) if isinstance(path, str | bytes) else ""
        return text == os.devnull or os.path.join(os.path.realpath(text), "").startswith(self._folder)

    def _refuse(self, event: str, arguments: tuple[Any, ...]) -> None:
        self._record(event, arguments)
        raise PermissionError(f"refused while a document is read: {self.refused[-1]}")

    def _record(self, event: str, arguments: tuple[Any, ...]) -> None:
        if len(self.refused) < RECORDED:
            self.refused.append(f"{event}: {arguments[0]!r:.200}" if arguments else event)


def _limit(name: str, soft: int, hard: int | None = None) -> None:
    """Set a limit, never above the one that is there."""
    kind = getattr(resource, name, None)
    if kind is None:
        return
    ceiling = resource.getrlimit(kind)[1]
    wanted = [soft, soft if hard is None else hard]
    if ceiling != resource.RLIM_INFINITY:
        wanted = [min(each, ceiling) for each in wanted]
    try:
        resource.setrlimit(kind, (wanted[0], wanted[1]))
    except (OSError, ValueError):  # this platform does not know it
        return


def _lowest_free() -> int:
    """The number that the next descriptor would get: with it as the limit, none is opened any more."""
    spare = os.dup(2)
    os.close(spare)
    return spare


PACKAGE = Path(__file__).absolute().parents[2]
"""`kindcast`, as this file was found: through a link of a checkout, or in a wheel."""
SHORT = ("kindcast", "kindcast.semantic", "kindcast.semantic.ontology")
"""Packages that are entered without running their `__init__`."""

ENCODINGS = ("ascii", "cp1252", "latin_1", "utf_16", "utf_16_be", "utf_16_le", "utf_8", "utf_8_sig")
ISO_8859 = (*range(1, 12), *range(13, 17))
"""Codecs that documents may ask for: Python loads each from a file when it is first used, which is too late here."""

REPORT_SECONDS = 0.1
"""Between two reports of one stage."""


def main() -> NoReturn:
    """Ends the process in any case. Frames, or the exit status, say what happened."""
    faulthandler.enable()
    _enter_packages()
    from kindcast.semantic.ontology import framing

    kind, header = framing.frame(0)
    assert kind == framing.HEADER
    told = framing.unpacked(header)
    sys.path[:] = told["path"]
    answers = os.dup(1)
    os.dup2(2, 1)  # what a library prints is no frame
    _Child(answers, told).run()


class _Child:
    """One task, done once."""

    def __init__(self, answers: int, told: dict[str, Any]) -> None:
        from kindcast.semantic.ontology import framing

        self._framing = framing
        self._answers = answers
        self._told = told
        self._fence = Fence(**told["fence"])
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
        package.__path__ = [str(PACKAGE.joinpath(*name.split(".")[1:]))]
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
