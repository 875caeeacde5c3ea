"""The child process that reads documents: what comes back from it, what ends it, and what it cannot do."""

import dataclasses
import json
import logging
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from kindcast.semantic.errors import OntologyError, TooCostly, UnsupportedFormat
from kindcast.semantic.ontology import framing, records
from kindcast.semantic.ontology.isolation import Cancelled, Cost, Isolation, run_isolated
from kindcast.semantic.ontology.loader import read_task
from kindcast.semantic.ontology.records import Limits

MIB = 1 << 20
PATIENCE_SECONDS = 30.0


def task(name: str) -> str:
    return f"tests.harness.isolated_tasks:{name}"


def cost_of(name: str, payload: bytes = b"", isolation: Isolation | None = None) -> tuple[Exception | None, Cost]:
    """How a task ended, and what it used."""
    costs: list[Cost] = []
    try:
        run_isolated(task(name), payload, isolation, account=costs.append)
    except Exception as error:
        return error, costs[0]
    return None, costs[0]


def is_gone(pid: int) -> bool:
    """Whether a process has ended, waited for or not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return True
    return state in "ZX"


def ends(pid: int) -> bool:
    """Whether a process that was sent a signal has ended of it."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not is_gone(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return is_gone(pid)


def program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"there is no program {name} here")
    return found


# ── what comes back ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("size", [0, 1, 70_000, 20_000_000])
def test_run_result_of_any_size_comes_back(size: int) -> None:
    """More than a pipe holds goes both ways without either side waiting for the other."""
    payload = random.Random(size).randbytes(min(size, 1_000)) * max(1, size // 1_000) if size else b""
    assert run_isolated(task("echo"), payload) == payload


def test_run_progress_is_told_in_order() -> None:
    """Each stage is told when it begins, at least."""
    told: list[tuple[str, int, int | None]] = []
    run_isolated(task("tell_progress"), b"", progress=lambda *step: told.append(step))
    assert [step for step in told if step[1] == 1] == [("unpack", 1, 2), ("parse", 1, 2)]


def test_reading_tells_each_stage_and_the_number_of_triples(monkeypatch: pytest.MonkeyPatch) -> None:
    """A document that takes long enough to report counts: every stage in its order, and numbers that grow."""
    monkeypatch.setattr(records, "SECONDS", 0.0)
    document = "".join(f"<urn:c{n}> a <http://www.w3.org/2002/07/owl#Class> .\n" for n in range(2 * records.EVERY))
    told: list[tuple[str, int, int | None]] = []
    options = {"limits": dataclasses.asdict(Limits()), "format": "turtle"}
    read_task(framing.joined(framing.packed(options), document.encode()), lambda *step: told.append(step))
    assert list(dict.fromkeys(stage for stage, _, _ in told)) == ["unpack", "parse", "extract", "encode"]
    assert [done for stage, done, _ in told if stage == "parse"] == [0, records.EVERY, 2 * records.EVERY]


def test_run_error_of_the_task_is_raised_with_its_place() -> None:
    """Errors cross as data, and are the same errors on this side."""
    with pytest.raises(OntologyError, match="line 3, column 7: a full stop is missing") as caught:
        run_isolated(task("refuse"), b"")
    assert (type(caught.value), caught.value.line, caught.value.column) == (OntologyError, 3, 7)
    with pytest.raises(UnsupportedFormat, match="hieroglyphs"):
        run_isolated(task("refuse"), b"hieroglyphs")


def test_run_what_a_library_prints_is_no_answer() -> None:
    """Standard output of the child is not the way of its answers."""
    assert run_isolated(task("write_to_the_answers"), b"") == b"still understood"


def test_run_several_at_one_time_keep_apart() -> None:
    """Children are independent, and so are the threads that wait for them."""
    results: dict[int, bytes] = {}

    def run(number: int) -> None:
        results[number] = run_isolated(task("echo"), bytes([number]) * 100_000)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {number: bytes([number]) * 100_000 for number in range(4)}


def test_run_task_that_does_not_exist_is_our_own_fault() -> None:
    """No document can cause this, so it is no error of a document."""
    with pytest.raises(RuntimeError, match="no child process could be started"):
        run_isolated(task("no_such_task"), b"")


# ── what ends it ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("name", "isolation", "limit"),
    [
        ("spin", Isolation(cpu_seconds=0.5), "cpu"),
        ("sleep", Isolation(wall_seconds=0.5), "wall"),
        ("allocate", Isolation(memory=512 * MIB), "memory"),
        ("exhaust_the_stack", Isolation(), "crash"),
        ("abort", Isolation(), "crash"),
        ("fail", Isolation(), "crash"),
    ],
)
def test_run_limit_or_crash_is_an_error_that_says_which(name: str, isolation: Isolation, limit: str) -> None:
    """Whatever a document does to its reader, the parent lives on and can say what happened."""
    logging.getLogger("kindcast.isolation").setLevel(logging.CRITICAL)
    try:
        error, cost = cost_of(name, b"", isolation)
    finally:
        logging.getLogger("kindcast.isolation").setLevel(logging.NOTSET)
    assert isinstance(error, TooCostly)
    assert error.limit == limit
    assert cost.cpu_seconds < isolation.cpu_seconds + 3.0
    assert cost.peak_bytes < max(isolation.memory, 600 * MIB)


def test_run_that_is_cancelled_ends_the_child() -> None:
    """Nobody wants the result any more, so nobody pays for it."""
    cancelled = threading.Event()
    costs: list[Cost] = []
    with pytest.raises(Cancelled):
        run_isolated(
            task("sleep"), b"", progress=lambda *step: cancelled.set(), cancelled=cancelled, account=costs.append
        )
    assert costs[0].wall_seconds < PATIENCE_SECONDS


def test_run_progress_that_raises_ends_the_child() -> None:
    """An error of the one who watches is raised, and leaves no child behind."""

    def watch(stage: str, done: int, total: int | None) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_isolated(task("sleep"), b"", progress=watch)


def test_run_programs_that_the_task_left_are_ended() -> None:
    """The whole group goes, not only the child itself."""
    sleep = program("sleep")
    isolation = Isolation(programs=(sleep,), folder=True, open_files=16)
    pid = int(run_isolated(task("leave_a_child"), sleep.encode(), isolation))
    assert ends(pid)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
def test_run_parent_that_is_killed_takes_the_child_with_it(repository: Path) -> None:
    """A server that dies leaves nothing that goes on computing for nobody."""
    script = (
        "from kindcast.semantic.ontology.isolation import Isolation, run_isolated\n"
        f"isolation = Isolation(programs=({program('sleep')!r},), folder=True, open_files=16)\n"
        "def tell(stage, done, total): print(done, flush=True)\n"
        f"run_isolated({task('leave_a_child_and_wait')!r}, {program('sleep').encode()!r}, isolation, progress=tell)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, cwd=repository, text=True)
    assert parent.stdout is not None
    with parent.stdout:
        left = int(parent.stdout.readline())
        child = int(parent.stdout.readline())
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    assert ends(child)
    assert ends(left)


# ── what it cannot do ───────────────────────────────────────────────────────────────────────────────────────────────


def test_child_cannot_open_a_file_in_python_or_natively(tmp_path: Path) -> None:
    """The audit hook stops Python and keeps a record; the limit of open files stops the libraries that ask nobody."""
    secret = tmp_path / "secret.ttl"
    secret.write_text("<urn:secret> <urn:p> <urn:o> .", encoding="utf-8")
    error, cost = cost_of("open_file", os.fsencode(secret))
    assert "PermissionError" in str(error)
    assert cost.refused == (f"open: {str(secret)!r}",)
    error, _ = cost_of("open_file_natively", os.fsencode(secret))
    assert "Too many open files" in str(error)
    unfenced = Isolation(open_files=1)
    assert cost_of("open_file_natively", os.fsencode(secret), unfenced)[0] is None


def test_child_cannot_connect() -> None:
    """A listener on this machine hears nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        error, cost = cost_of("connect", str(listener.getsockname()[1]).encode())
        assert error is not None
        assert cost.refused
        with pytest.raises(BlockingIOError):
            listener.accept()


def test_child_cannot_start_programs_load_code_or_import() -> None:
    """Nor does it get more to compute with than it began with."""
    assert cost_of("start_a_program", program("id").encode())[0] is not None
    _, cost = cost_of("load_native_code")
    assert cost.refused == ("ctypes.dlopen: None",)
    assert run_isolated(task("import_more"), b"") == b"refused"


def test_child_with_a_program_of_its_own_may_start_that_and_no_other() -> None:
    """A task that needs a program gets it, with an empty folder that is gone afterwards."""
    cat, other = program("cat"), program("id")
    isolation = Isolation(programs=(cat,), folder=True, open_files=16, file_bytes=1_000)
    assert run_isolated(task("program_in_the_folder"), cat.encode(), isolation) == b"written by the task"
    _, cost = cost_of("program_in_the_folder", other.encode(), isolation)
    assert cost.refused == (f"subprocess.Popen: {other!r}",)
    _, cost = cost_of("open_file", b"/etc/hostname", isolation)
    assert cost.refused == ("open: '/etc/hostname'",)


def test_child_knows_nothing_of_the_parents_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Passwords live in environments."""
    monkeypatch.setenv("KINDCAST_DATABASE", "postgresql://user:secret@host/")
    environment, folder = json.loads(run_isolated(task("environment"), b""))
    assert set(environment) <= {"PATH", "LD_LIBRARY_PATH", "LC_ALL", "LC_CTYPE"} | {
        f"{library}_NUM_THREADS" for library in ("OPENBLAS", "OMP", "MKL")
    }
    assert folder == "/"
