"""The fence of a child process, event by event, without closing it for good: what is let through, what is refused."""

import os
from pathlib import Path
from typing import Any

import pytest

from kindcast.semantic.ontology.child import HARMLESS, RECORDED, Fence


def fence(**more: Any) -> Fence:
    return Fence(memory=1 << 30, cpu_seconds=1.0, **more)


@pytest.mark.parametrize("event", sorted(HARMLESS))
def test_fence_computing_is_let_through(event: str) -> None:
    """What every library does all the time is neither refused nor recorded."""
    closed = fence()
    closed.check(event, ())
    assert closed.refused == []


@pytest.mark.parametrize(
    ("event", "arguments"),
    [
        ("open", ("/etc/passwd", "r", 0)),
        ("open", (0, "r", 0)),
        ("socket.__new__", (None, 2, 1, 0)),
        ("socket.connect", (None, ("127.0.0.1", 80))),
        ("socket.getaddrinfo", ("example.org", 80)),
        ("urllib.Request", ("http://example.org",)),
        ("subprocess.Popen", ("/bin/sh", [], None, None)),
        ("os.system", (b"true",)),
        ("os.exec", ("/bin/sh", [], None)),
        ("os.fork", ()),
        ("os.posix_spawn", ("/bin/sh", [], None)),
        ("os.listdir", ("/",)),
        ("os.remove", ("/x", -1)),
        ("ctypes.dlopen", ("libc.so.6",)),
        ("pickle.find_class", ("os", "system")),
        ("sqlite3.connect", (":memory:",)),
        ("an.event.of.a.later.python", ()),
    ],
)
def test_fence_everything_else_is_refused_and_recorded(event: str, arguments: tuple[Any, ...]) -> None:
    """Also what this version of Python does not know yet."""
    closed = fence()
    with pytest.raises(PermissionError, match="refused while a document is read"):
        closed.check(event, arguments)
    assert closed.refused == [f"{event}: {arguments[0]!r}" if arguments else event]


def test_fence_import_is_refused_as_a_module_that_is_not_there() -> None:
    """Libraries that can do without a module do without it."""
    closed = fence()
    with pytest.raises(ModuleNotFoundError):
        closed.check("import", ("wave", None, [], [], []))
    assert closed.refused == ["import: 'wave'"]


def test_fence_folder_is_the_one_place_for_files(tmp_path: Path) -> None:
    """Neither names that climb out of it nor links that lead out of it help."""
    folder = tmp_path / "inside"
    folder.mkdir()
    (folder / "link").symlink_to(tmp_path / "outside")
    closed = fence(folder=str(folder), programs=("/usr/bin/java",))
    for path in (folder / "file", folder, os.fsencode(folder / "bytes"), os.devnull, 3):
        closed.check("open", (path if not isinstance(path, Path) else str(path), "w", 0))
    for path in (folder / ".." / "outside", folder / "link", tmp_path / "inside2"):
        with pytest.raises(PermissionError):
            closed.check("open", (str(path), "w", 0))
    assert len(closed.refused) == 3


def test_fence_program_is_told_by_its_full_path() -> None:
    """The programs that were named, and the events that starting them raises."""
    closed = fence(programs=("/usr/bin/java",), events=("sqlite3.connect",))
    closed.check("subprocess.Popen", ("/usr/bin/java", ["java"], None, None))
    closed.check("os.posix_spawn", ("/usr/bin/java", ["java"], None))
    closed.check("sqlite3.connect", (":memory:",))
    for event in ("subprocess.Popen", "os.posix_spawn"):
        with pytest.raises(PermissionError):
            closed.check(event, ("java", ["java"], None, None))


def test_fence_record_is_bounded() -> None:
    """A document that tries a million times does not fill the memory with its tries."""
    closed = fence()
    for number in range(10 * RECORDED):
        with pytest.raises(PermissionError):
            closed.check("open", (f"/{number}" + "x" * 10_000, "r", 0))
    assert len(closed.refused) == RECORDED
    assert all(len(each) < 300 for each in closed.refused)
