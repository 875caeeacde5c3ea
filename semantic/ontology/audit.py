"""What a child may do once it has everything that it needs: compute. Everything else is refused, and recorded.

Two fences. The system's: limits of address space, processor time, open files (as many as are open already, so that
native code cannot open one either), written bytes, processes. Python's: an audit hook that refuses every event but a
few harmless ones, also those that later versions of Python may add.
"""

import os
import resource
import sys
from typing import Any, Final

__all__ = ["Fence"]

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
            raise ModuleNotFoundError(f"{arguments[0]} was not loaded before, and nothing is loaded now")
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
