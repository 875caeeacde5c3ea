"""A server in the background: `kindcast serve --detach` and `kindcast stop`, with real processes."""

import fcntl
import json
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from kindcast.server.cli import serve
from tests.harness.forked_command import write_command
from tests.harness.forked_process import template

WAIT_SECONDS = 60


class Ran:
    """What a command printed, and its exit status."""

    def __init__(self, *command: str) -> None:
        ended = subprocess.run(command, capture_output=True, encoding="utf-8", check=False, timeout=2 * WAIT_SECONDS)
        self.status, self.out, self.err = ended.returncode, ended.stdout, ended.stderr

    @property
    def json(self) -> dict[str, Any]:
        """The one JSON value of its output."""
        assert self.status == 0, self.err
        read: dict[str, Any] = json.loads(self.out)
        return read


Kindcast = Callable[..., Ran]


@pytest.fixture(scope="module")
def kindcast(tmp_path_factory: pytest.TempPathFactory) -> Kindcast:
    """Commands run as processes of their own: a server that one of them starts is no child of the tests. It starts as
    everywhere, while the commands are forks of a process that has imported everything."""
    programs = tmp_path_factory.mktemp("programs")
    write_command(programs, template())
    return partial(Ran, str(programs / "kindcast"))


@pytest.fixture
def data(tmp_path: Path, kindcast: Kindcast) -> Iterator[Path]:
    """A data folder whose server is stopped in the end."""
    folder = tmp_path / "data"
    yield folder
    kindcast("stop", "--data", str(folder))


def test_serve_detached_is_ready_when_the_command_returns(kindcast: Kindcast, data: Path) -> None:
    """The next command needs to wait for nothing; stopping leaves what was stored, and no state file."""
    started = kindcast("serve", "--detach", "--port", "0", "--data", str(data), "--json").json
    assert httpx.get(f"{started['listening']}/readyz").status_code == 200
    assert Path(started["log"]).read_text("utf-8").count(started["listening"]) >= 1
    stopped = kindcast("stop", "--data", str(data), "--json")
    assert (stopped.status, stopped.json) == (0, {"stopped": started["pid"]})
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{started['listening']}/readyz")
    assert (data / "kindcast.db").exists()
    assert not (data / serve.STATE).exists()


def test_serve_detached_shows_a_command_to_stop_that_can_be_copied(kindcast: Kindcast, tmp_path: Path) -> None:
    """The name of the folder is quoted where a shell needs that."""
    started = kindcast("serve", "--detach", "--port", "0", "--data", str(tmp_path / "my data"))
    shown = started.err.partition("stop: kindcast ")[2]
    assert kindcast(*shlex.split(shown)).status == 0, started.err


def test_serve_detached_twice_is_refused_and_names_the_first(kindcast: Kindcast, data: Path) -> None:
    """One server for a data folder; the one that runs goes on."""
    first = kindcast("serve", "--detach", "--port", "0", "--data", str(data), "--json").json
    second = kindcast("serve", "--detach", "--port", "0", "--data", str(data))
    assert second.status == 1
    assert first["listening"] in second.err
    assert f"kindcast stop --data {data}" in second.err
    assert httpx.get(f"{first['listening']}/readyz").status_code == 200


def test_serve_detached_that_cannot_start_shows_why(kindcast: Kindcast, data: Path) -> None:
    """The reason is in the log of a process that is gone; the command shows it, once."""
    ran = kindcast("serve", "--detach", "--host", "0.0.0.0", "--port", "0", "--data", str(data))
    assert ran.status == 1
    assert ran.err.count("kindcast key create --role admin") == 1
    assert str(data / serve.LOG) in ran.err


def test_server_that_cannot_write_its_state_says_so(kindcast: Kindcast, data: Path) -> None:
    """A folder that this user may not write, or a full disk: `kindcast stop` would not find the server."""
    data.mkdir()
    (data / serve.STATE).symlink_to(data / "absent" / "file")
    ran = kindcast("serve", "--detach", "--port", "0", "--data", str(data))
    assert ran.status == 1
    assert ran.err.startswith(f"error: the server could not start: {data / serve.STATE}: No such file or directory\n")
    log = (data / serve.LOG).read_text("utf-8")
    assert "Traceback" not in log
    assert "listens on" not in log


def test_serve_detached_that_is_not_awaited_says_that_it_still_starts(kindcast: Kindcast, data: Path) -> None:
    """Without an address nobody can be told one."""
    started = kindcast("serve", "--detach", "--wait", "0", "--port", "0", "--data", str(data), "--json").json
    assert started["listening"] is None
    until = time.monotonic() + WAIT_SECONDS
    while kindcast("stop", "--data", str(data)).status != 0:
        assert time.monotonic() < until
        time.sleep(0.2)


def test_repair_needs_a_stopped_server(kindcast: Kindcast, data: Path, tmp_path: Path) -> None:
    """Also one that has not announced itself: while it starts it holds the lock of the database alone."""
    assert kindcast("serve", "--detach", "--port", "0", "--data", str(data)).status == 0
    witness = data / "kindcast.db.witness"
    for flags in ((), ("--accept-loss",)):
        ran = kindcast("repair", "--data", str(data), *flags)
        assert (ran.status, ran.out) == (1, "")
        assert f"a server runs in {data}, at http://127.0.0.1:" in ran.err
        assert f"kindcast stop --data {data}" in ran.err
        assert witness.exists()
    assert kindcast("stop", "--data", str(data)).status == 0
    before = sorted(data.iterdir())
    assert kindcast("repair", "--data", str(data)).status == 0
    assert sorted(data.iterdir()) == before
    with (data / "kindcast.db.lock").open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for command in (("repair", "--accept-loss"), ("stop",)):  # as a server that starts, perhaps for long
            ran = kindcast(*command, "--data", str(data))
            assert (ran.status, f"a server is starting in {data}\n" in ran.err) == (1, True)
    assert witness.exists()


def test_stop_without_a_server_says_so(kindcast: Kindcast, tmp_path: Path) -> None:
    """Nothing was started here."""
    ran = kindcast("stop", "--data", str(tmp_path))
    assert ran.status == 1
    assert f"no server runs in {tmp_path}" in ran.err


def test_stop_and_repair_know_the_folder_of_the_variable(
    kindcast: Kindcast, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the command that started the server does. If the folder is given, a wrong setting does not matter."""
    monkeypatch.setenv("KINDCAST_DATA", str(data))
    assert kindcast("serve", "--detach", "--port", "0").status == 0
    assert f"a server runs in {data}" in kindcast("repair").err
    stopped = kindcast("stop")
    assert (stopped.status, stopped.err) == (0, "")
    assert "the database is intact" in kindcast("repair").out
    monkeypatch.setenv("KINDCAST_PORT", "none")
    assert kindcast("repair").status == 2
    assert kindcast("repair", "--data", str(data)).status == 0


def test_stop_after_a_kill_stops_no_stranger(kindcast: Kindcast, data: Path) -> None:
    """What a killed server left names a process id that may be another's by now; the lock tells."""
    started = kindcast("serve", "--detach", "--port", "0", "--data", str(data), "--json").json
    os.kill(started["pid"], signal.SIGKILL)
    state = data / serve.STATE
    state.write_text(state.read_text("utf-8").replace(str(started["pid"]), str(os.getpid())), encoding="utf-8")
    assert kindcast("stop", "--data", str(data)).status == 1
    assert kindcast("serve", "--detach", "--port", "0", "--data", str(data)).status == 0


def test_log_of_a_server_has_times_and_levels(kindcast: Kindcast, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As lines, or as JSON throughout: a failure to start is a record as well, and is told once to who started it."""
    log = data / "server.log"
    first = kindcast("serve", "--data", str(data), "--port", "0", "--detach", "--json").json
    assert kindcast("stop", "--data", str(data)).status == 0
    lines = [line for line in log.read_text("utf-8").splitlines() if "kindcast.server:" in line]
    assert [line.split(" ", 2)[1] for line in lines] == ["INFO", "INFO"]
    assert first["listening"] in lines[0]
    assert lines[1].endswith("stopped")
    log.write_text("")
    monkeypatch.setenv("KINDCAST_LOG_FORMAT", "json")
    monkeypatch.setenv("KINDCAST_PROT", "9000")
    again = kindcast("serve", "--data", str(data), "--port", "0", "--detach", "--json").json
    port = again["listening"].rpartition(":")[2]
    other = kindcast("serve", "--data", f"{data}-2", "--port", port, "--detach")
    assert kindcast("stop", "--data", str(data)).status == 0
    records = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
    assert {"time", "level", "logger", "message"} <= set(records[0])
    assert "KINDCAST_PROT has no effect" in records[0]["message"]
    _, failure = [json.loads(line) for line in (Path(f"{data}-2") / "server.log").read_text("utf-8").splitlines()]
    assert failure["level"] == "critical"
    assert other.status == 1
    assert other.err.count(f"port {port}") == 1
    assert "{" not in other.err


def test_folder_that_cannot_be_made_is_told_in_words(kindcast: Kindcast, tmp_path: Path) -> None:
    """A file is in its place or above it. No command makes or looks for anything there."""
    (tmp_path / "file").write_text("")
    for data in (tmp_path / "file", tmp_path / "file" / "data"):
        for command in (("serve", "--port", "0"), ("serve", "--detach"), ("stop",), ("repair",)):
            ran = kindcast(*command, "--data", str(data))
            assert (ran.status, ran.err.splitlines()[0]) == (1, f"error: {tmp_path}/file is a file and not a folder")
