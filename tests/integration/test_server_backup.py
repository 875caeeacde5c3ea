"""`kindcast backup`, `restore` and `check`: from SQLite to PostgreSQL and back, while servers run, and broken off."""

import errno
import json
import os
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import create_engine, inspect

from kindcast import Client
from kindcast.server.broker import Broker, broker
from kindcast.server.errors import StoreUnreadable
from kindcast.server.settings import Settings
from kindcast.server.store import backup as store
from kindcast.server.store.integrity import write_witness
from kindcast.server.store.system import SystemStore
from kindcast.server.store.tables import metadata
from tests.harness.application import publish, running_application, show, subscribe, ticket, waiting
from tests.harness.postgresql import PostgreSQL, driver_url
from tests.harness.receiver import running_receiver
from tests.harness.server_thread import running_app
from tests.integration.conftest import Kindcast

OLDER = Path(__file__).resolve().parents[1] / "fixtures" / "commit_96216f5" / "data"
TURTLE = """
@prefix : <http://e/> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
:Laptop rdfs:subClassOf :Computer ; rdfs:label "laptop" .
"""


def rows_of(database: Path) -> dict[str, list[tuple[Any, ...]]]:
    """All rows of all tables but those that caches and single starts change."""
    with closing(sqlite3.connect(database)) as connection:
        names = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        there = {
            name: sorted(connection.execute(f"SELECT * FROM {name}"), key=repr) for name in names if name != "unsaved"
        }
        there["ledger"] = connection.execute("SELECT sequence, accepted, matches, delivered FROM ledger").fetchall()
        return there


def pulled(client: httpx.Client, made: dict[str, Any]) -> list[tuple[str, Any]]:
    page = client.get(f"/v1/subscriptions/{made['id']}/events").json()
    return [(each["cursor"], each["event"]["data"]) for each in page["events"]]


def filled(client: httpx.Client, sink: str) -> dict[str, dict[str, Any]]:
    """Subscriptions of all kinds, with what waits for them."""
    client.put("/v1/ontologies/shop", content=TURTLE, headers={"Content-Type": "text/turtle"}).raise_for_status()
    client.put("/v1/attributes/price", json={"unit": "EUR"}).raise_for_status()
    made = {
        "read": subscribe(client, "target isa Computer"),
        "paused": subscribe(client, "target isa Computer"),
        "sink": subscribe(client, "target isa Computer", sink=sink),
    }
    path = f"/v1/subscriptions/{made['read']['id']}"
    for n in range(5):
        assert publish(client, target="laptop", n=n, text="Übergröße, 漢字, \u0001") == 3
    client.post(f"{path}/ack", json={"cursor": "2"}, headers=ticket(made["read"])).raise_for_status()
    paused = f"/v1/subscriptions/{made['paused']['id']}/pause"
    client.post(paused, headers=ticket(made["paused"])).raise_for_status()
    gone = subscribe(client, "n = 1")  # its number, the greatest, must not come back
    client.delete(f"/v1/subscriptions/{gone['id']}", headers=ticket(gone)).raise_for_status()
    return made


def test_all_of_a_server_goes_to_postgresql_and_back(
    tmp_path: Path, postgresql: PostgreSQL, kindcast: Kindcast
) -> None:
    """Each backup is made while the server runs. Cursors, tickets, ends, what waits, keys: all is as it was, and the
    rows of the second backup are those of the first."""
    first, second, url = tmp_path / "first", tmp_path / "second", postgresql.new_database()
    sinks = {"allow_private_sinks": True, "webhook_delays_seconds": (3_600.0,) * 3}
    with running_receiver() as receiver:
        sink = receiver.script("/hook", 500)
        with running_application(tmp_path / "data", **sinks) as client:
            made = filled(client, sink)
            receiver.wait_for("/hook", 1)
            before = {name: show(client, each).json() for name, each in made.items()}
            while before["sink"]["status"] != "failing":
                before["sink"] = show(client, made["sink"]).json()
            told = kindcast("backup", str(first), "--data", str(tmp_path / "data"))
            assert told.status == 0, told.err
            assert publish(client, target="laptop", n=99) == 2  # after it
        assert kindcast("check", str(first)).status == 0
        assert kindcast("restore", str(first), "--database", url).status == 0
        with running_application(tmp_path / "other", database=url, **sinks) as client:
            assert {name: show(client, each).json() for name, each in made.items()} == before
            assert [cursor for cursor, _ in pulled(client, made["read"])] == ["3", "4", "5"]
            assert kindcast("check", "--database", url).status == 0
            assert kindcast("backup", str(second), "--database", url, "--data", str(tmp_path / "other")).status == 0
        assert kindcast("restore", str(second), "--data", str(tmp_path / "third")).status == 0
        one, other = rows_of(first / "kindcast.db"), rows_of(second / "kindcast.db")
        assert one.keys() == other.keys() >= metadata.tables.keys() - {"unsaved"}
        assert one["sqlite_sequence"] == [("subscriptions", 4)]
        for name, rows in one.items():
            assert other[name] == rows, name
        with running_application(tmp_path / "third", **sinks) as client:
            assert {name: show(client, each).json() for name, each in made.items()} == before
            resumed = f"/v1/subscriptions/{made['sink']['id']}/resume"
            client.post(resumed, headers=ticket(made["sink"])).raise_for_status()
            receiver.wait_for("/hook", 6)
            assert [int(each.message["cursor"]) for each in receiver.requests("/hook")] == [1, 1, 2, 3, 4, 5]
            assert publish(client, target="laptop", n=6) == 2
            assert [cursor for cursor, _ in pulled(client, made["read"])] == ["3", "4", "5", "6"]


def test_keys_and_tenants_go_to_postgresql_and_back(tmp_path: Path, postgresql: PostgreSQL, kindcast: Kindcast) -> None:
    data = tmp_path / "data"
    ruler = kindcast("key", "create", "--role", "admin", "--data", str(data), "--json").json["key"]
    with running_application(data) as client:
        client.headers["Authorization"] = f"Bearer {ruler}"
        answer = client.post("/v1/tenants", json={"name": "bakery"})
        assert answer.is_success, answer.text
        made = client.post("/v1/subscriptions", json={"expression": "n = 1"}, headers={"Kindcast-Tenant": "bakery"})
        assert made.is_success, made.text
        assert kindcast("backup", str(tmp_path / "b"), "--data", str(data)).status == 0
    assert (tmp_path / "b" / "tenants" / "bakery" / "kindcast.db").exists()
    path, headers = f"/v1/subscriptions/{made.json()['id']}", {"Authorization": f"Bearer {ruler}"}
    mine, url = headers | {"Kindcast-Tenant": "bakery"}, postgresql.new_database()
    assert kindcast("restore", str(tmp_path / "b"), "--data", str(tmp_path / "again")).status == 0
    with running_application(tmp_path / "again") as client:
        assert client.get(path).status_code == 401
        assert client.get(path, headers=mine).status_code == 200
    killed = [sys.executable, "-c", KILLED, str(tmp_path / "b"), "after a tenant", url]
    assert subprocess.run(killed, check=False).returncode == -signal.SIGKILL
    assert kindcast("restore", str(tmp_path / "b"), "--database", url).status == 0
    with running_application(tmp_path / "there", database=url) as client:
        assert client.get(path).status_code == 401
        assert client.get(path, headers=headers).status_code == 404
        assert client.get(path, headers=mine).status_code == 200
        assert client.post("/v1/events", json={"n": 1}, headers=mine).json()["matched"] == 1
        assert client.post("/v1/tenants", json={"name": "never-used"}, headers=headers).status_code == 201
        checked = kindcast("check", "--database", url, "--json")
        assert (checked.status, checked.json["damage"], checked.json["rows"]["events"]) == (0, [], 1)
        assert kindcast("backup", str(tmp_path / "c"), "--database", url).status == 0
    assert kindcast("restore", str(tmp_path / "c"), "--data", str(tmp_path / "home")).status == 0
    assert kindcast("check", "--data", str(tmp_path / "home"), "--json").json["rows"]["events"] == 1
    with running_application(tmp_path / "home") as client:
        page = client.get(f"{path}/events", headers=mine).json()
        assert [each["event"]["data"] for each in page["events"]] == [{"n": 1}]
    with closing(sqlite3.connect(tmp_path / "home" / "tenants" / "bakery" / "kindcast.db")) as connection:
        connection.execute("UPDATE events SET body = replace(body, '\"n\":1', '\"n\":7')")
        connection.commit()
    found = kindcast("check", "--data", str(tmp_path / "home"), "--json")
    assert (found.status, [each.split(":")[0] for each in found.json["damage"]]) == (1, ["tenant bakery"])


def test_tenant_whose_deletion_was_broken_off_is_in_a_backup(tmp_path: Path, kindcast: Kindcast) -> None:
    """As after a kill between the renaming of its folder and the commit: the tenant still exists."""
    data = tmp_path / "data"
    ruler = kindcast("key", "create", "--role", "admin", "--data", str(data), "--json").json["key"]
    headers = {"Authorization": f"Bearer {ruler}", "Kindcast-Tenant": "bakery"}
    with running_application(data) as client:
        client.post("/v1/tenants", json={"name": "bakery"}, headers={"Authorization": headers["Authorization"]})
        assert client.post("/v1/events", json={"n": 1}, headers=headers).status_code == 202
    keys = SystemStore(Settings(data=data))
    keys.open()
    (made_at,) = [each.created_at for each in keys.tenants() if each.name == "bakery"]
    keys.close()
    (data / "tenants" / "bakery").rename(data / "tenants" / f"bakery.deleted-{made_at!r}")
    assert kindcast("backup", str(tmp_path / "b"), "--data", str(data)).status == 0
    assert kindcast("restore", str(tmp_path / "b"), "--data", str(tmp_path / "again")).status == 0
    with running_application(tmp_path / "again") as client:
        assert len(client.get("/v1/events", headers=headers).json()["events"]) == 1


def test_tenant_whose_first_use_was_broken_off_stops_no_backup(
    tmp_path: Path, kindcast: Kindcast, where: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after a kill when its tables were just made. On PostgreSQL no back-up could be made, also of others that a
    server was opening; on SQLite the check of it found damage."""

    def break_off(*_: Any, **__: Any) -> None:
        raise OSError(errno.EIO, "broken off")

    data, database = tmp_path / "data", [f"--database={each}" for each in where.values()]
    with running_application(data, **where) as client:
        ruler = client.post("/v1/keys", json={"role": "admin"}).json()["key"]
        client.headers["Authorization"] = f"Bearer {ruler}"
        client.post("/v1/tenants", json={"name": "bakery"}).raise_for_status()
        monkeypatch.setattr(broker, "restore", break_off)
        broken = client.post("/v1/events", json={"n": 1}, headers={"Kindcast-Tenant": "bakery"})
        assert broken.status_code == 503
        monkeypatch.undo()
    assert kindcast("backup", str(tmp_path / "b"), "--data", str(data), *database).status == 0
    assert kindcast("check", "--data", str(tmp_path / "b")).status == 0


@pytest.mark.parametrize("begun", [b"", None], ids=["empty", "without tables"])
def test_tenant_whose_first_use_was_broken_off_is_no_damage(
    tmp_path: Path, kindcast: Kindcast, begun: bytes | None
) -> None:
    """No back-up could be made, and the checks found damage. What is being deleted is not copied either."""
    data = tmp_path / "data"
    kindcast("key", "create", "--role", "admin", "--data", str(data))
    with running_application(data):
        pass
    for name in ("bakery", "kitchen.deleted-0123"):
        (data / "tenants" / name).mkdir(parents=True)
    shutil.copy(data / "kindcast.db", data / "tenants" / "kitchen.deleted-0123")
    database = data / "tenants" / "bakery" / "kindcast.db"
    if begun is None:
        with closing(sqlite3.connect(database)) as connection:
            connection.execute("PRAGMA journal_mode=WAL")
    else:
        database.write_bytes(begun)
    assert kindcast("backup", str(tmp_path / "b"), "--data", str(data)).status == 0
    assert not (tmp_path / "b" / "tenants").exists()
    assert kindcast("check", "--data", str(data)).status == 0
    assert kindcast("repair", "--data", str(data)).status == 0
    assert "tenants" not in kindcast("doctor", "--data", str(data)).out


def test_check_reads_the_other_tenants_if_one_cannot_be_opened(tmp_path: Path, kindcast: Kindcast) -> None:
    with running_application(tmp_path):
        pass
    for name in ("bakery", "kitchen"):
        (tmp_path / "tenants" / name).mkdir(parents=True)
        (tmp_path / "tenants" / name / "kindcast.db").write_bytes(b"no database" * 1_000)
    found = kindcast("check", "--data", str(tmp_path), "--json")
    assert (found.status, [each.split(":")[0] for each in found.json["damage"]]) == (
        1,
        ["tenant bakery", "tenant kitchen"],
    )


def test_keys_go_to_postgresql_and_back(tmp_path: Path, postgresql: PostgreSQL, kindcast: Kindcast) -> None:
    data, url = tmp_path / "data", postgresql.new_database()
    ruler = kindcast("key", "create", "--role", "admin", "--data", str(data), "--json").json["key"]
    with running_application(data):
        assert kindcast("backup", str(tmp_path / "b"), "--data", str(data)).status == 0
    assert kindcast("restore", str(tmp_path / "b"), "--database", url).status == 0
    with running_application(tmp_path / "other", database=url) as client:
        assert client.get("/v1/keys").status_code == 401
        assert client.get("/v1/keys", headers={"Authorization": f"Bearer {ruler}"}).status_code == 200


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_a_backup_under_load_is_one_moment(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest, kindcast: Kindcast
) -> None:
    """While events are published: those of the backup are the first ones, each with its matches."""
    url = request.getfixturevalue("postgresql").new_database() if kind == "postgresql" else None
    settings = {} if url is None else {"database": url}
    with running_application(tmp_path / "data", **settings) as client:
        made = subscribe(client, "n >= 0")
        over, published = threading.Event(), 0

        def load() -> None:
            nonlocal published
            while not over.is_set():
                assert publish(client, n=published) == 1
                published += 1

        thread = threading.Thread(target=load)
        thread.start()
        try:
            while published < 20:
                over.wait(0.01)
            before = published
            where = ("--data", str(tmp_path / "data"), *(() if url is None else ("--database", url)))
            told = kindcast("backup", str(tmp_path / "b"), *where, "--json")
            after = published + 1
            checked = kindcast("check", *where, "--json")
        finally:
            over.set()
            thread.join()
    assert told.status == checked.status == 0
    assert before <= told.json["sequence"] <= after
    assert checked.json["rows"]["events"] >= told.json["sequence"]
    assert kindcast("check", str(tmp_path / "b")).status == 0
    assert kindcast("restore", str(tmp_path / "b"), "--data", str(tmp_path / "again")).status == 0
    with running_application(tmp_path / "again") as client:
        found = [each["n"] for each in waiting(client, made)]
    assert found == list(range(min(told.json["sequence"], len(found))))


KILLED = """
import os, signal, sys
from pathlib import Path
from kindcast.server.store import backup

def kill(*arguments, **more):
    os.kill(os.getpid(), signal.SIGKILL)

import_tables = backup._import_tables
if sys.argv[2] == "after a tenant":
    backup._import_tables = lambda path, *more: (import_tables if path.parent.name == "bakery" else kill)(path, *more)
    backup.restore(Path(sys.argv[1]), sys.argv[3], Path("unused"))
elif sys.argv[2] == "folder":
    copied, backup.shutil.copyfile = backup.shutil.copyfile, lambda *a: (copied(*a), kill())
    backup.restore(Path(sys.argv[1]), None, Path(sys.argv[3]))
elif sys.argv[2].isdigit():
    rename, left = backup.os.rename, iter(range(int(sys.argv[2])))
    backup.os.rename = lambda *a: kill() if next(left, None) is None else rename(*a)
    backup.restore(Path(sys.argv[1]), None, Path(sys.argv[3]))
else:
    backup._copy_last_number = kill
    backup.restore(Path(sys.argv[1]), sys.argv[3], Path("unused"))
"""


def test_a_restore_that_is_killed_leaves_nothing(tmp_path: Path, postgresql: PostgreSQL, kindcast: Kindcast) -> None:
    """Neither half a folder nor half a database; afterwards it can be done again."""
    with running_application(tmp_path / "data") as client:
        made = filled(client, "https://sink.example/")
    assert kindcast("backup", str(tmp_path / "b"), "--data", str(tmp_path / "data")).status == 0
    url, again = postgresql.new_database(), tmp_path / "again"
    for kind, target in (("folder", str(again)), ("database", url)):
        ran = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "b"), kind, target], check=False)
        assert ran.returncode == -signal.SIGKILL
    assert not again.exists()
    engine = create_engine(driver_url(url))
    assert inspect(engine).get_table_names() == []
    engine.dispose()
    assert kindcast("restore", str(tmp_path / "b"), "--data", str(again)).status == 0
    assert kindcast("restore", str(tmp_path / "b"), "--database", url).status == 0
    assert [each for each in os.listdir(tmp_path) if "unfinished" in each] == []
    for settings in ({"data": again}, {"data": tmp_path / "more", "database": url}):
        with running_application(settings.pop("data"), **settings) as client:  # type: ignore[arg-type]
            assert len(waiting(client, made["read"])) == 3


def test_what_was_changed_in_a_backup_is_found_and_not_restored(tmp_path: Path, kindcast: Kindcast) -> None:
    with running_application(tmp_path / "data") as client:
        subscribe(client, "n = 1")
        publish(client, n=1)
        publish(client, n=2)
    backup = tmp_path / "b"
    assert kindcast("backup", str(backup), "--data", str(tmp_path / "data")).status == 0
    with closing(sqlite3.connect(backup / "kindcast.db")) as connection:
        connection.execute("UPDATE events SET body = replace(body, '\"n\":1', '\"n\":7')")
        connection.execute("UPDATE ledger SET delivered = 5")
        connection.commit()
    told = kindcast("check", str(backup), "--json")
    assert told.status == 1
    assert [each.split(":")[0] for each in told.json["damage"]] == [
        "kindcast.db has changed since the backup was made",
        "damaged",
        "the ledger does not add up",
    ]
    refused = kindcast("restore", str(backup), "--data", str(tmp_path / "again"))
    assert refused.status == 1
    assert "is damaged" in refused.err
    assert not (tmp_path / "again").exists()
    (backup / "backup.json").write_text(json.dumps({"made_at": 1}))
    assert "is not a backup" in kindcast("restore", str(backup), "--data", str(tmp_path / "again")).err
    made = {"made_at": 1, "program": "x", "source": "sqlite", "layout": 1, "commits": 1, "sequence": 1}
    (tmp_path / "outside").write_text("x")
    (backup / "backup.json").write_text(json.dumps({**made, "files": {"tenants/../../outside": ""}}))
    refused = kindcast("restore", str(backup), "--data", str(tmp_path / "again"))
    assert "it names 'tenants/../../outside', which is outside of it" in refused.err
    refused = kindcast("restore", str(tmp_path / "absent"), "--data", str(tmp_path / "again"))
    assert f"there is no backup at {tmp_path / 'absent'}: " in refused.err


def test_check_says_that_the_write_ahead_log_is_missing(tmp_path: Path, kindcast: Kindcast) -> None:
    """All commits may be in it while a server runs."""
    database = tmp_path / "kindcast.db"
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")  # so a server begins it
    write_witness(database, 12)
    told = kindcast("check", "--data", str(tmp_path))
    assert told.status == 1
    assert "none of its 12 commits: put its write-ahead log back, kindcast.db-wal" in " ".join(told.err.split())


@pytest.mark.parametrize("tenant", [False, True])
def test_backup_without_the_newest_commits_is_not_made(tmp_path: Path, kindcast: Kindcast, tenant: bool) -> None:
    """A restore would begin with a witness of its own, and nobody would notice what is missing."""
    data = tmp_path / "data"
    with running_application(data) as client:
        publish(client, n=1)
    database = data / "kindcast.db"
    if tenant:
        (data / "tenants" / "one").mkdir(parents=True)
        database = Path(shutil.copy(database, data / "tenants" / "one"))
    write_witness(database, 1_000)
    told = kindcast("backup", str(tmp_path / "copied"), "--data", str(data))
    assert told.status == 1
    assert f"{database} lacks the newest" in " ".join(told.err.split())
    assert [each.name for each in tmp_path.iterdir()] == ["data"]


def test_commands_leave_no_files_in_the_folder_of_a_stopped_server(tmp_path: Path, kindcast: Kindcast) -> None:
    data = tmp_path / "data"
    with running_application(data) as client:
        client.post("/v1/keys", json={"role": "admin"}).raise_for_status()
    before = sorted(data.iterdir())
    assert not [each for each in before if each.name.endswith(("-shm", "-wal"))]
    for arguments in (("check",), ("backup", str(tmp_path / "copied")), ("repair",), ("doctor",)):
        told = kindcast(*arguments, "--data", str(data))
        assert sorted(data.iterdir()) == before, told.err


@pytest.mark.parametrize("name", ["50%25", "a?b", "a#b"])
def test_folder_may_have_any_name(tmp_path: Path, kindcast: Kindcast, name: str) -> None:
    """Characters that mean something else in the URL of a database are characters of the name."""
    data, copied, again = tmp_path / name, tmp_path / f"{name} copied", tmp_path / f"{name} again"
    with running_application(data) as client:
        made = subscribe(client, "n = 1")
        publish(client, n=1)
    assert [each.name for each in tmp_path.iterdir()] == [name]
    assert (data / "kindcast.db").exists()
    assert kindcast("backup", str(copied), "--data", str(data)).status == 0
    for checked in (("--data", str(data)), (str(copied),)):
        told = kindcast("check", *checked, "--json")
        assert (told.status, told.json["rows"]["events"]) == (0, 1), told.err
    assert (
        kindcast("doctor", "--data", str(data), "--json").json["checks"][-2]["detail"].startswith(f"{data}/kindcast.db")
    )
    assert kindcast("restore", str(copied), "--data", str(again)).status == 0
    with running_application(again) as client:
        assert len(waiting(client, made)) == 1


@pytest.mark.parametrize("has_log", [False, True])
def test_folder_that_cannot_be_written_is_read_without_files_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_log: bool
) -> None:
    """On a read-only mount SQLite cannot make its log. If there is one, a server may run elsewhere."""
    database = tmp_path / "kindcast.db"
    with closing(sqlite3.connect(database)) as writer:
        writer.execute("PRAGMA journal_mode=WAL")
        writer.execute("CREATE TABLE a (b)")
    if has_log:
        Path(f"{database}-wal").touch()
    monkeypatch.setattr(os, "access", lambda *_: False)
    with store.reading(database) as connection:
        connection.exec_driver_sql("SELECT * FROM a").all()
        assert [each.name for each in tmp_path.iterdir() if each.name.endswith("-shm")] == ["kindcast.db-shm"] * has_log


def test_nothing_that_is_there_is_overwritten(tmp_path: Path, postgresql: PostgreSQL, kindcast: Kindcast) -> None:
    """Neither a folder that has something nor a database that a server uses or used."""
    data, url = str(tmp_path / "data"), postgresql.new_database()
    with running_application(tmp_path / "data"):
        assert kindcast("backup", str(tmp_path / "b"), "--data", data).status == 0
    assert "not empty" in kindcast("backup", str(tmp_path / "b"), "--data", data).err
    assert "not empty" in kindcast("restore", str(tmp_path / "b"), "--data", data).err
    with running_application(tmp_path / "other", database=url):
        assert "a server uses the database" in kindcast("restore", str(tmp_path / "b"), "--database", url).err
    assert "has tables of kindcast" in kindcast("restore", str(tmp_path / "b"), "--database", url).err
    assert "there is no database" in kindcast("backup", str(tmp_path / "c"), "--data", str(tmp_path / "none")).err
    assert not (tmp_path / "c").exists()
    empty = postgresql.new_database()
    assert "there are no tables of kindcast" in kindcast("backup", str(tmp_path / "c"), "--database", empty).err


@pytest.mark.parametrize("form", ["link", "mount"])
def test_an_empty_folder_that_exists_is_filled(
    tmp_path: Path, kindcast: Kindcast, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    """It may be a link or a mount, which cannot be replaced, and then it has `lost+found`."""
    with running_application(tmp_path / "data") as client:
        publish(client, n=1)
    there, rename = tmp_path / "there", os.rename
    (tmp_path / "real" / "lost+found").mkdir(parents=True)
    if form == "link":
        there.symlink_to(tmp_path / "real")
    else:
        there = tmp_path / "real"

    def of_a_mount(source: Path, target: Path) -> None:
        if Path(target) == there:
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
        rename(source, target)

    monkeypatch.setattr(os, "rename", of_a_mount)
    made = kindcast("backup", str(there), "--data", str(tmp_path / "data"))
    assert (made.status, made.err.count("error")) == (0, 0)
    assert kindcast("check", str(there)).status == 0
    assert sorted(os.listdir(there)) == ["backup.json", "kindcast.db", "kindcast.system.db", "lost+found"]
    rename(tmp_path / "real", tmp_path / "b")
    (tmp_path / "real").mkdir()
    assert kindcast("restore", str(tmp_path / "b"), "--data", str(there)).status == 0
    with running_application(there) as client:
        assert len(client.get("/v1/events").json()["events"]) == 1


@pytest.mark.parametrize("moved", range(1, 3))
def test_server_refuses_a_folder_whose_restore_was_killed(tmp_path: Path, kindcast: Kindcast, moved: int) -> None:
    """It would begin without the data."""
    with running_application(tmp_path / "data") as client:
        publish(client, n=1)
    assert kindcast("backup", str(tmp_path / "b"), "--data", str(tmp_path / "data")).status == 0
    (there := tmp_path / "there").mkdir()
    ran = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "b"), str(moved), str(there)], check=False)
    assert ran.returncode == -signal.SIGKILL
    with pytest.raises(StoreUnreadable, match="the newest commits are missing"), running_application(there):
        pass


def test_disk_without_room_is_named(tmp_path: Path, kindcast: Kindcast) -> None:
    """By the folder that has no room, which may be on another disk than what is copied."""
    data, copied, again = tmp_path / "data", tmp_path / "copied", tmp_path / "again"
    with running_application(data):
        pass
    assert kindcast("backup", str(copied), "--data", str(data)).status == 0
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16_384, hard))
    try:
        ran = kindcast("restore", str(copied), "--data", str(again))
        made = kindcast("backup", str(again), "--data", str(data))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, ignored)
    assert (ran.status, ran.err) == (1, f"error: {again}: File too large\n")
    assert f"{data / 'kindcast.db'} cannot be copied to {tmp_path / '.again.unfinished'}" in made.err
    assert not again.exists()
    again.symlink_to("nowhere")
    for command in (("backup", str(again), "--data", str(data)), ("restore", str(copied), "--data", str(again))):
        assert kindcast(*command).err == f"error: {again} is a link to nowhere, which does not exist\n"


def test_a_database_that_cannot_be_opened_is_told_without_its_password(
    tmp_path: Path, postgresql: PostgreSQL, kindcast: Kindcast, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By every command, also if the password is a parameter of the URL; and a wrong setting is a wrong call."""
    empty = f"{postgresql.new_database()}&password=hidden"
    absent = empty.replace("/database_", "/absent_")
    with running_application(tmp_path / "data"):
        assert kindcast("backup", str(tmp_path / "b"), "--data", str(tmp_path / "data")).status == 0
    commands = (["check"], ["backup", str(tmp_path / "c")], ["restore", str(tmp_path / "b")], ["doctor"])
    for command in (*commands, ["key", "list", "--data", str(tmp_path)]):
        monkeypatch.setenv("KINDCAST_DATABASE", absent)
        ran = kindcast(*command)
        assert ran.status == 1, ran
        assert "absent_" in ran.out + ran.err
        assert "hidden" not in ran.out + ran.err
        monkeypatch.setenv("KINDCAST_DATABASE", "postgresql://kindcast:hidden@host:x5/name")
        ran = kindcast(*command)
        assert ran.status == (1 if command == ["doctor"] else 2), ran
        assert "database: this is not the URL of a database" in " ".join((ran.out + ran.err).split())
        assert "hidden" not in ran.out + ran.err
    monkeypatch.setenv("KINDCAST_DATABASE", empty)
    for command in commands[:2]:
        ran = kindcast(*command)
        assert ran.status == 1, ran
        assert "hidden" not in ran.err
        assert len(ran.err.splitlines()) == 1
    assert kindcast("restore", str(tmp_path / "b")).status == 0
    assert "hidden" not in kindcast("restore", str(tmp_path / "b")).err


@pytest.mark.parametrize(("by", "said"), [(-1, "start a server of this version"), (1, "use the version of kindcast")])
def test_a_backup_of_another_layout_is_not_copied_between_databases(
    tmp_path: Path, postgresql: PostgreSQL, kindcast: Kindcast, by: int, said: str
) -> None:
    """It says what to do; a data folder gets it as it is."""
    with running_application(tmp_path / "data"):
        pass
    with closing(sqlite3.connect(tmp_path / "data" / "kindcast.db")) as connection, connection:
        connection.execute("UPDATE ledger SET layout = layout + ?", (by,))
    assert kindcast("backup", str(tmp_path / "b"), "--data", str(tmp_path / "data")).status == 0
    refused = kindcast("restore", str(tmp_path / "b"), "--database", postgresql.new_database())
    assert refused.status == 1
    told = " ".join(refused.err.split())
    assert f"has layout {store.LAYOUT + by}, and this version copies layout {store.LAYOUT}: {said}" in told
    assert kindcast("restore", str(tmp_path / "b"), "--data", str(tmp_path / "again")).status == 0


def test_an_older_data_folder_is_checked_and_says_that_a_server_must_convert_it(
    tmp_path: Path, postgresql: PostgreSQL, kindcast: Kindcast
) -> None:
    """Layout 4 has no packed matches and no column for them. A damaged event is still found."""
    data, backup = shutil.copytree(OLDER, tmp_path / "data"), tmp_path / "b"
    made = kindcast("backup", str(backup), "--data", str(data))
    assert (made.status, "kindcast restore" in made.err, "--database" in made.err) == (0, True, False)
    assert kindcast("check", str(backup), "--json").json["damage"] == []
    refused = kindcast("restore", str(backup), "--database", postgresql.new_database())
    assert "has layout 4, and this version copies layout" in " ".join(refused.err.split())
    with closing(sqlite3.connect(data / "kindcast.db")) as connection, connection:
        connection.execute("UPDATE events SET body = replace(body, '310', '311') WHERE sequence = 1")
    damaged = kindcast("check", "--data", str(data), "--json")
    assert damaged.json == {
        "damage": ["damaged: event 1"],
        "rows": {"events": 6, "lists of matches": 0, "pages of matches": 0},
    }


def test_a_data_folder_of_layout_9_is_checked_completely(tmp_path: Path, kindcast: Kindcast) -> None:
    """Its ledger lacks columns of later layouts; the totals are in others."""
    with running_application(tmp_path) as client:
        subscribe(client, "n = 1")
        publish(client, n=1)
    with closing(sqlite3.connect(tmp_path / "kindcast.db")) as connection, connection:
        for column in ("shown_from", "readable_from"):
            connection.execute(f"ALTER TABLE ledger DROP COLUMN {column}")
        connection.execute("UPDATE ledger SET layout = 9")
    found = kindcast("check", "--data", str(tmp_path), "--json").json
    assert (found["damage"], found["rows"]["events"]) == ([], 1)
    with closing(sqlite3.connect(tmp_path / "kindcast.db")) as connection, connection:
        connection.execute("UPDATE ledger SET matches = 5")
    found = kindcast("check", "--data", str(tmp_path), "--json").json
    assert found["damage"] == ["the ledger does not add up: matches = delivered + pending + dead + discarded"]


def test_check_says_that_a_later_version_wrote_the_database(tmp_path: Path, kindcast: Kindcast) -> None:
    """This version does not know what is right in it."""
    with running_application(tmp_path):
        pass
    with closing(sqlite3.connect(tmp_path / "kindcast.db")) as connection, connection:
        connection.execute("UPDATE ledger SET layout = 99, readable_from = 99")
    ran = kindcast("check", "--data", str(tmp_path))
    assert ran.status == 1
    assert f"knows layout 99 of its tables, and this one knows layouts 1 to {store.LAYOUT}" in " ".join(ran.err.split())


def test_status_of_a_server(tmp_path: Path, kindcast: Kindcast, monkeypatch: pytest.MonkeyPatch) -> None:
    """The totals add up, also for people; while the server refuses changes, the status is 1."""
    with running_app(tmp_path) as url, Client(url) as client:
        client.subscribe("n >= 0")
        for n in range(3):
            client.publish({"n": n})
        told = kindcast("status", "--server", url, "--json")
        assert told.status == 0, told.err
        assert (told.json["database"], told.json["servers"], told.json["queue"]["waiting"]) == ("sqlite", [], 0)
        assert told.json["subscriptions"] == {"active": 1}
        shown = kindcast("status", "--server", url).out
        assert "3 = 0 delivered + 3 pending + 0 dead + 0 discarded" in shown
        assert "takes requests" in shown
        monkeypatch.setattr(Broker, "trouble", "the database refused the last change")
        refusing = kindcast("status", "--server", url)
        assert refusing.status == 1
        assert "the database refused the last change" in refusing.out
