"""`kindcast doctor`: what it says of a machine, a data folder and a server, and with which exit status."""

import errno
import json
import os
import re
import shutil
import socket
import sqlite3
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import create_engine, text

from kindcast.server.cli import doctor
from kindcast.server.store import integrity
from tests.harness.application import running_application
from tests.harness.postgresql import PostgreSQL, driver_url
from tests.harness.server_process import running_server
from tests.integration.conftest import Kindcast, Ran


@pytest.fixture(autouse=True)
def _free_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever else runs on this machine."""
    monkeypatch.setenv("KINDCAST_PORT", "0")


def of(ran: Ran, check: str) -> list[dict[str, Any]]:
    return [each for each in ran.json["checks"] if each["check"] == check]


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data folder of a server that has stored something and was stopped."""
    data = tmp_path_factory.mktemp("stopped") / "data"
    with running_server(data) as server:
        httpx.post(f"{server.url}/v1/events", json={"price": 1}).raise_for_status()
        server.stop()
    return data


@pytest.fixture
def folder(stopped: Path, tmp_path: Path) -> Path:
    """A copy of it that the test may change."""
    return shutil.copytree(stopped, tmp_path / "data")


def test_machine_that_can_run_a_server_is_told_so(kindcast: Kindcast, folder: Path) -> None:
    """Every check has a line, nothing is changed, and the exit status is that of success."""
    before = {path: path.read_bytes() for path in folder.glob("*") if path.is_file()}
    ran = kindcast("doctor", "--data", str(folder), "--json")
    assert {path: path.read_bytes() for path in folder.glob("*") if path.is_file()} == before
    checks = ("kindcast", "libraries", "settings", "Java", "kernels", "files", "clock", "port", "disk", "data")
    assert list(dict.fromkeys(each["check"] for each in ran.json["checks"])) == list(checks)
    assert (ran.status, ran.json["problems"]) == (0, 0)
    assert all(each["advice"] for each in ran.json["checks"] if each["state"] != "ok")
    for_people = kindcast("doctor", "--data", str(folder))
    assert for_people.status == 0
    assert "0 problems, " in for_people.out
    assert "kindcast.db is intact" in for_people.out


def test_server_that_runs_is_asked(kindcast: Kindcast, tmp_path: Path) -> None:
    """Its files are its own; what it says of itself counts."""
    with running_server(tmp_path / "data") as server:
        ran = kindcast("doctor", "--data", str(tmp_path / "data"), "--json")
    assert ran.status == 0
    assert of(ran, "server")[0]["detail"].startswith(f"{server.url} is ready")
    assert not of(ran, "data")
    assert server.url in of(ran, "port")[0]["detail"]


def test_damaged_database_is_a_problem(kindcast: Kindcast, folder: Path) -> None:
    """Found without a server, with what to do, and the exit status of a failure."""
    with sqlite3.connect(folder / "kindcast.db") as connection:
        connection.execute("UPDATE events SET body = x'00'")
    connection.close()
    ran = kindcast("doctor", "--data", str(folder), "--json")
    assert ran.status == 1
    wrong = [each for each in of(ran, "data") if each["state"] == "problem"]
    assert "1 stored events are not what was accepted" in wrong[0]["detail"]
    assert "kindcast repair" in wrong[0]["advice"]


def test_file_that_is_no_database_is_a_problem(kindcast: Kindcast, folder: Path) -> None:
    """Of the keys as well as of the events."""
    (folder / "kindcast.system.db").write_bytes(b"no database" * 1_000)
    ran = kindcast("doctor", "--data", str(folder), "--json")
    assert ran.status == 1
    assert "kindcast.system.db: file is not a database" in of(ran, "data")[-1]["detail"]


def test_database_that_was_deleted_is_a_problem(kindcast: Kindcast, folder: Path) -> None:
    """A server would not start: the witness says that there was something."""
    (folder / "kindcast.db").unlink()
    ran = kindcast("doctor", "--data", str(folder), "--json")
    assert (ran.status, ran.json["problems"]) == (1, 2)
    assert of(ran, "data")[0]["detail"] == f"{folder}/kindcast.db is empty or missing"


def test_database_of_a_tenant_that_lost_all_is_a_problem(kindcast: Kindcast, folder: Path) -> None:
    """It was called intact, while requests to the tenant were refused."""
    (folder / "tenants" / "bakery").mkdir(parents=True)
    (folder / "tenants" / "bakery" / "kindcast.db").write_bytes(b"")
    shutil.copy(folder / "kindcast.db.witness", folder / "tenants" / "bakery")
    ran = kindcast("doctor", "--data", str(folder), "--json")
    assert ran.status == 1
    assert f"{folder}/tenants/bakery/kindcast.db is empty or missing" in [each["detail"] for each in of(ran, "data")]


def test_file_of_another_user_is_a_problem(kindcast: Kindcast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after `kindcast key create` as root: the server does not start."""
    keys, allowed = tmp_path / "kindcast.system.db", os.access
    keys.touch()
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != keys and allowed(path, mode))
    ran = kindcast("doctor", "--data", str(tmp_path), "--json")
    assert ran.status == 1
    assert f"{keys} cannot be written by this user" in [each["detail"] for each in of(ran, "disk")]


def test_database_of_another_user_is_not_called_lost(
    kindcast: Kindcast, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To accept the loss would be the wrong advice."""
    opened = Path.open

    def refused(path: Path, *arguments: Any, **more: Any) -> Any:
        if path.name == "kindcast.db":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return opened(path, *arguments, **more)

    monkeypatch.setattr(Path, "open", refused)
    for command in ("repair",), ("check",), ("backup", str(tmp_path / "copy")):
        ran = kindcast(*command, "--data", str(folder))
        assert (ran.status, ran.out, ran.err) == (1, "", f"error: {folder}/kindcast.db: Permission denied\n")
    (found,) = of(kindcast("doctor", "--data", str(folder), "--json"), "data")
    assert (found["state"], found["detail"]) == ("problem", f"{folder}/kindcast.db: Permission denied")


def test_database_of_a_killed_server_is_not_changed(kindcast: Kindcast, folder: Path, tmp_path: Path) -> None:
    """What is in its write-ahead log stays there: only a server brings it into the database."""
    with closing(sqlite3.connect(folder / "kindcast.db")) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.execute("UPDATE ledger SET commits = commits + 1")
        connection.commit()
        killed = tmp_path / "killed"
        shutil.copytree(folder, killed, ignore=shutil.ignore_patterns("*-shm"))
    files = [killed / "kindcast.db", killed / "kindcast.db-wal"]
    before = [path.read_bytes() for path in files]
    assert before[1]
    ran = kindcast("doctor", "--data", str(killed), "--json")
    assert "is intact" in of(ran, "data")[0]["detail"]
    assert [path.read_bytes() for path in files] == before


def test_database_of_a_later_version_is_a_problem(kindcast: Kindcast, folder: Path) -> None:
    """As the server says when it is started."""
    with sqlite3.connect(folder / "kindcast.db") as connection:
        connection.execute("UPDATE ledger SET layout = 99, readable_from = 99")
    connection.close()
    ran = kindcast("doctor", "--data", str(folder), "--json")
    assert ran.status == 1
    assert "has layout 99; this version knows layouts up to" in of(ran, "data")[0]["detail"]


def test_clock_that_jumped_since_a_server_wrote_is_a_problem(
    kindcast: Kindcast, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As far as the machine has run since: CLOCK_BOOTTIME tells it."""
    real = time.time
    monkeypatch.setattr(integrity.time, "time", lambda: real() + 86_400)
    ran = kindcast("doctor", "--data", str(folder), "--json")
    assert ran.status == 1
    assert re.search(r"jumped ahead by 86,[34]\d\d s", of(ran, "clock")[0]["detail"])
    assert "kindcast clock confirm" in of(ran, "clock")[0]["advice"]


def test_port_that_another_program_has_is_a_problem(
    kindcast: Kindcast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the way out is named."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        monkeypatch.setenv("KINDCAST_PORT", str(taken.getsockname()[1]))
        ran = kindcast("doctor", "--data", str(tmp_path / "data"), "--json")
    assert ran.status == 1
    assert "is used by another program" in of(ran, "port")[0]["detail"]


def test_postgresql_is_asked_whether_it_can_be_used(
    kindcast: Kindcast, tmp_path: Path, postgresql: PostgreSQL, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it is empty, has data, or cannot be reached."""
    url = postgresql.new_database()

    def told(database: str) -> tuple[int, str, str]:
        monkeypatch.setenv("KINDCAST_DATABASE", database)
        ran = kindcast("doctor", "--data", str(tmp_path / "data"), "--json")
        [found] = of(ran, "data")
        return ran.status, found["state"], found["detail"]

    assert told(url)[:2] == (0, "ok")
    assert "nothing is stored" in told(url)[2]
    with running_application(tmp_path / "data", database=url):
        pass
    assert told(url)[:2] == (0, "ok")
    assert "commits" in told(url)[2]
    engine = create_engine(driver_url(url))
    with engine.begin() as connection:
        connection.execute(text("UPDATE ledger SET layout = 99, readable_from = 99"))
    engine.dispose()
    assert told(url)[:2] == (1, "problem")
    assert "layout 99" in told(url.replace("postgresql://", "postgresql+asyncpg://"))[2]
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "psycopg", None)
        assert "kindcast[postgres]" in told(url)[2]
    assert told(url.replace("/database_", "/absent_"))[:2] == (1, "problem")
    assert told("mysql://host/name")[:2] == (1, "problem")


def test_settings_are_checked(kindcast: Kindcast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable that nothing reads is a warning, a wrong one a problem; the other checks go on."""
    monkeypatch.setenv("KINDCAST_PROT", "9000")
    monkeypatch.setenv("KINDCAST_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KINDCAST_BROKER", "mqtt://localhost")
    ran = kindcast("doctor", "--data", str(tmp_path / "data"), "--json")
    assert [(each["state"], each["advice"]) for each in of(ran, "settings")] == [
        ("warning", "Did you mean KINDCAST_PORT?")
    ]
    monkeypatch.setenv("KINDCAST_RETENTION_SECONDS", "long")
    ran = kindcast("doctor", "--data", str(tmp_path / "data"), "--json")
    assert ran.status == 1
    assert "retention_seconds" in of(ran, "settings")[-1]["detail"]
    assert of(ran, "clock")


def test_file_in_place_of_the_folder_is_a_problem(kindcast: Kindcast, tmp_path: Path) -> None:
    """Nothing in it is looked for: it was said that a file is written again, though doctor writes none."""
    (tmp_path / "data").touch()
    ran = kindcast("doctor", "--data", str(tmp_path / "data"), "--json")
    assert (ran.status, ran.err) == (1, "")
    assert of(ran, "settings")[-1]["detail"] == f"{tmp_path}/data is a file and not a folder"


def test_full_disk_is_a_problem(kindcast: Kindcast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server on it accepts nothing."""
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 5 << 20}))
    ran = kindcast("doctor", "--data", str(tmp_path / "data"), "--json")
    assert ran.status == 1
    assert of(ran, "disk")[0]["state"] == "problem"


@pytest.mark.parametrize(
    ("installed", "needed", "says"),
    [
        ({"numpy": "1.9"}, ["numpy>=2.2"], "numpy is 1.9, and kindcast needs 2.2"),
        ({}, ["msgspec>=0.2"], "not installed"),
    ],
)
def test_libraries_that_do_not_fit_are_a_problem(
    installed: dict[str, str], needed: list[str], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after an upgrade of something else in the same environment. Those of extras are not needed."""

    def version(name: str) -> str:
        if name not in {"kindcast": "1", **installed}:
            raise doctor.metadata.PackageNotFoundError(name)
        return {"kindcast": "1", **installed}[name]

    monkeypatch.setattr(doctor.metadata, "version", version)
    monkeypatch.setattr(doctor.metadata, "requires", lambda _: [*needed, "pyspark>=4; extra == 'spark'"])
    _, found = list(doctor.versions())
    assert found.state == "problem"
    assert says in found.detail
    assert "pyspark" not in found.detail


def test_check_that_fails_itself_does_not_hide_the_others() -> None:
    """Whatever goes wrong in one is told as such."""

    def broken() -> Any:
        raise RuntimeError("no /proc")
        yield

    found = list(doctor._guarded("clock", broken))
    assert json.dumps(found[0].detail).count("no /proc") == 1
    assert found[0].state == "warning"
