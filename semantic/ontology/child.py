"""The program of isolated child processes: it imports the task, reads the payload, closes the fence and runs the task.

It is run by its path in a new interpreter. Only the imports of the task are loaded. The packages of this file are
entered without their `__init__`, which would import the matcher, the units and the grammar, and take most of a second.
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


# The fence: after its imports, a child may only compute. Everything else is refused, and recorded.
#
# There are two fences. The operating system limits address space, processor time, written bytes, processes, and open
# files (to those that are open already, so native code cannot open a file either). In Python, an audit hook refuses
# every event except a few harmless ones. So it also refuses events that later versions of Python add.

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
        "os.killpg",  # the child kills its own group when the parent has ended
        "sys._current_frames",
        "sys._getframe",
        "sys._getframemodulename",
        "sys.unraisablehook",
        "time.sleep",
    }
)
"""Audit events of pure computation."""

PROGRAM_EVENTS: Final = frozenset(
    {
        *("fcntl.fcntl", "fcntl.ioctl", "os.listdir", "os.mkdir", "os.posix_spawn", "os.remove", "os.rmdir"),
        *("os.scandir", "os.waitpid", "shutil.rmtree", "signal.pthread_sigmask", "subprocess.Popen"),
        *("tempfile.mkdtemp", "tempfile.mkstemp"),
    }
)
"""Additional audit events of starting a program and waiting for it. Files may be opened only in the scratch folder."""

STARTS: Final = frozenset({"subprocess.Popen", "os.posix_spawn"})
"""The audit events that start a program. Their first argument is its path."""

RECORDED = 50
"""The maximum number of refusals that are recorded."""


class Fence:
    """The limits and the audit hook of a child. Once closed, a fence cannot be opened: an audit hook cannot be removed,
    and hard limits cannot be raised."""

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
        """The refused events, as "event: first argument"."""
        self._memory = memory
        self._cpu_seconds = cpu_seconds
        self._open_files = open_files
        self._file_bytes = file_bytes
        self._programs = frozenset(programs)
        self._folder = folder and os.path.join(os.path.realpath(folder), "")
        self._allowed = HARMLESS | frozenset(events) | (PROGRAM_EVENTS if programs else frozenset())

    def close(self) -> None:
        """Sets the limits and adds the audit hook. Limits that the platform does not support are skipped."""
        used = resource.getrusage(resource.RUSAGE_SELF)
        seconds = int(used.ru_utime + used.ru_stime + self._cpu_seconds) + 1
        _limit("RLIMIT_CORE", 0)
        _limit("RLIMIT_FSIZE", self._file_bytes)
        _limit("RLIMIT_CPU", seconds, seconds + 2)  # the first signal tells the cause, the second always kills
        if not self._programs:
            _limit("RLIMIT_NPROC", 0)  # has no effect for root, whom the audit hook stops
        _limit("RLIMIT_NOFILE", _lowest_free() + self._open_files)
        _limit("RLIMIT_AS", self._memory)
        sys.addaudithook(self.check)

    def check(self, event: str, arguments: tuple[Any, ...]) -> None:
        """The audit hook. Raises PermissionError for a refused event, and ModuleNotFoundError for an import."""
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
        """Whether `path` may be opened: it is in the scratch folder, is the null device, or is an open descriptor."""
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
    """Sets a limit, but never above the present hard limit."""
    kind = getattr(resource, name, None)
    if kind is None:
        return
    ceiling = resource.getrlimit(kind)[1]
    wanted = [soft, soft if hard is None else hard]
    if ceiling != resource.RLIM_INFINITY:
        wanted = [min(each, ceiling) for each in wanted]
    try:
        resource.setrlimit(kind, (wanted[0], wanted[1]))
    except (OSError, ValueError):  # this platform does not support it
        return


def _lowest_free() -> int:
    """Returns the number of the next free descriptor. With this limit no descriptor can be opened."""
    spare = os.dup(2)
    os.close(spare)
    return spare


PACKAGE = Path(__file__).absolute().parents[2]
"""The folder of the package `kindcast`, by the path of this file: through a link in a checkout, or in a wheel."""
SHORT = ("kindcast", "kindcast.semantic", "kindcast.semantic.ontology")
"""The packages whose `__init__` is not run."""

ENCODINGS = ("ascii", "cp1252", "latin_1", "utf_16", "utf_16_be", "utf_16_le", "utf_8", "utf_8_sig")
ISO_8859 = (*range(1, 12), *range(13, 17))
"""Codecs that documents may declare. Python loads each from a file at its first use, so they are loaded in advance."""

REPORT_SECONDS = 0.1
"""The interval between two reports of one stage."""


def main() -> NoReturn:
    """Runs the task and ends the process. The result or the error is sent in frames; a crash has an exit status."""
    faulthandler.enable()
    _enter_packages()
    from kindcast.semantic.ontology import framing

    kind, header = framing.frame(0)
    assert kind == framing.HEADER
    told = framing.unpacked(header)
    sys.path[:] = told["path"]
    answers = os.dup(1)
    os.dup2(2, 1)  # a library may print to standard output, which must not mix with the frames
    _Child(answers, told).run()


class _Child:
    """The run of one task."""

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
        gc.disable()  # records have no reference cycles and the process is short; this halves the time of a large one
        self._fence.close()
        try:
            result = task(payload, self._report)
            self._send(framing.RESULT, result)
        except BaseException as error:  # a panic of native code is not an Exception
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
        """Returns the peak memory in bytes. It is read from /proc where possible, because the peak in `getrusage` of a
        child includes that of its parent before the child's program started."""
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
    """Imports the function of a task "module:function", and the codecs that it may need."""
    module, _, function = task.partition(":")
    found: Callable[..., bytes] = getattr(importlib.import_module(module), function)
    for name in (*ENCODINGS, *(f"iso8859_{part}" for part in ISO_8859)):
        "".encode(name)
    return found


def _open_status() -> int:
    """Opens /proc/self/status before the fence is closed, and returns its descriptor, or -1 if there is none. Also
    makes this process the first to be killed when the system runs out of memory."""
    try:
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
        return os.open("/proc/self/status", os.O_RDONLY)
    except OSError:
        return -1


def _end_with_the_parent() -> None:
    """Kills the process group when the parent closes the pipe: it has ended, or needs no answer. Runs in a thread."""
    while os.read(0, 1):
        pass
    os.killpg(0, signal.SIGKILL)


def _described(error: BaseException) -> dict[str, Any]:
    """Returns an error as data: the names of its classes, the most specific first, its message and its position."""
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
    """Writes the traceback of an unexpected error to standard error, without reading any source file."""
    at = error.__traceback__
    while at is not None:
        code = at.tb_frame.f_code
        sys.stderr.write(f"{code.co_filename}:{at.tb_lineno} in {code.co_name}\n")
        at = at.tb_next
    sys.stderr.flush()


if __name__ == "__main__":
    main()
