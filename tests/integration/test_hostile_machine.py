"""What a machine can do to a server: a clock that jumps, files that lose what they had."""

import shutil
import sqlite3
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from sqlalchemy import Connection

from kindcast.server.clock import CLOCK, instant
from kindcast.server.errors import StoreUnreadable
from kindcast.server.settings import Settings
from kindcast.server.store import ledger
from kindcast.server.store.database import Database
from kindcast.server.store.integrity import Witness, examine, path_of
from tests.harness.application import problem_code, publish, running_application, show, subscribe, ticket, waiting
from tests.harness.receiver import running_receiver
from tests.integration.conftest import Kindcast

DAYS = 86_400.0


def test_clock_that_jumps_ahead_ends_nothing_until_it_is_confirmed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No event is deleted and no subscription expires; after a restart neither; confirmed, both."""
    try:
        with running_application(tmp_path, sweep_seconds=0.01) as client:
            mine = subscribe(client, "price >= 1", ttl_seconds=DAYS)
            publish(client, price=1)
            monkeypatch.setattr(CLOCK, "_wall", lambda: time.time() + 10 * DAYS)
            for price in (2, 3):
                assert publish(client, price=price) == 1
            assert "clock" in client.get("/readyz").json()["warning"]
        with running_application(tmp_path, sweep_seconds=0.01) as client:
            assert publish(client, price=4) == 1
            assert [each["price"] for each in waiting(client, mine)] == [1, 2, 3, 4]
            assert "864,000 s" in client.post("/v1/clock/confirm").json()["was"]
            assert client.get("/readyz").json() == {"status": "ready"}
            assert publish(client, price=5) == 0
            assert show(client, mine).status_code in (200, 404)
            assert len(client.get("/v1/events").json()["events"]) == 1
    finally:
        monkeypatch.undo()
        CLOCK.restart()


def test_clock_that_was_wrong_for_a_while_delays_and_hides_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Meanwhile all answers go by the counted time, and so do lifetimes, signatures and the export. A failure in the
    future, written by a clock that was wrong from the start, does not delay the next attempt."""
    real, quiet = time.time, {"allow_private_sinks": True, "webhook_delays_seconds": (3_600.0,)}
    try:
        with running_receiver() as receiver:
            with running_application(tmp_path, **quiet) as client:
                mine = subscribe(client, "price >= 1", ttl_seconds=DAYS, sink=receiver.script("/hook", 500))
                monkeypatch.setattr(time, "time", lambda: real() + 10 * DAYS)
                monkeypatch.setattr(CLOCK, "_wall", time.time)
                assert show(client, mine).json()["status"] == "active"
                assert client.get("/v1/subscriptions/export").text.count("\n") == 1
                assert subscribe(client, "price >= 9", ttl_seconds=DAYS)["expires_at"] < instant(real() + 2 * DAYS)
                publish(client, price=1)
                (request,) = receiver.wait_for("/hook", 1)
                assert abs(int(request.headers["webhook-timestamp"]) - real()) < DAYS
                receiver.wait_until(lambda: show(client, mine).json()["status"] == "failing", "the outcome")
                assert show(client, mine).json()["next_attempt_at"] < instant(real() + DAYS)
            monkeypatch.undo()
            CLOCK.restart()
            with closing(sqlite3.connect(tmp_path / "kindcast.db")) as database, database:
                later = "UPDATE subscriptions SET last_failure = ?, next_attempt_at = ? WHERE status = 'failing'"
                assert database.execute(later, (real() + DAYS, real() + 2 * DAYS)).rowcount == 1
            with running_application(tmp_path, **quiet):
                receiver.wait_for("/hook", 2)
    finally:
        monkeypatch.undo()
        CLOCK.restart()


def test_database_that_lost_commits_is_refused_and_the_repair_is_named(tmp_path: Path, kindcast: Kindcast) -> None:
    """An older copy, an empty file: nothing acknowledged vanishes without a word."""
    data, database = tmp_path / "data", tmp_path / "data" / "kindcast.db"
    with running_application(data) as client:
        mine = subscribe(client, "price >= 1")
        publish(client, price=1)
    older = shutil.copy(database, tmp_path / "older.db")
    with running_application(data) as client:
        publish(client, price=2)
    for lost in (older, None):
        database.unlink()
        if lost is None:
            database.touch()
        else:
            shutil.copy(lost, database)
        with pytest.raises(StoreUnreadable, match=f"kindcast repair --data {data}"), running_application(data):
            pass
        assert examine(database)["missing_commits"] > 0
    shutil.copy(older, database)
    told = kindcast("repair", "--data", str(data))
    assert (told.status, "commits are missing" in told.out) == (1, True)
    assert kindcast("repair", "--data", str(data), "--accept-loss").status == 0
    with running_application(data) as client:
        assert [each["price"] for each in waiting(client, mine)] == [1]


def test_full_disk_is_not_ready(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite may still accept small changes then, such as the one by which `/readyz` tries whether it does."""
    with running_application(tmp_path) as client:
        usage = shutil.disk_usage(tmp_path)
        monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=4_096))
        told = client.get("/readyz")
        assert (told.status_code, problem_code(told)) == (503, "not-ready")
        assert "disk" in told.json()["detail"]
        monkeypatch.undo()
        assert client.get("/readyz").json() == {"status": "ready"}


def test_server_whose_database_was_deleted_accepts_nothing(tmp_path: Path) -> None:
    """What it wrote to the deleted file would be lost when it stops."""
    with running_application(tmp_path / "data") as client:
        assert client.post("/v1/events", json={"n": 1}).status_code == 202
        (tmp_path / "data").rename(tmp_path / "moved")
        for _ in range(2):
            refused = client.post("/v1/events", json={"n": 2})
            assert (refused.status_code, problem_code(refused)) == (503, "store-unavailable")
            assert "was deleted or moved away" in refused.json()["detail"]
        told = client.get("/readyz")
        assert (told.status_code, problem_code(told)) == (503, "not-ready")
        assert "was deleted or moved away" in told.json()["detail"]
        (tmp_path / "moved").rename(tmp_path / "data")
        assert client.get("/readyz").json() == {"status": "ready"}
        assert client.post("/v1/events", json={"n": 3}).status_code == 202
        assert [each["event"]["data"] for each in client.get("/v1/events").json()["events"]] == [{"n": 1}, {"n": 3}]


def test_server_whose_keys_were_deleted_makes_no_key_and_no_tenant(tmp_path: Path) -> None:
    """They were answered 201, and lost when the server stopped."""
    with running_application(tmp_path / "data") as client:
        admin = client.post("/v1/keys", json={"role": "admin"}).json()["key"]
        client.headers["Authorization"] = f"Bearer {admin}"
        keys = tmp_path / "data" / "kindcast.system.db"
        keys.rename(tmp_path / "moved")
        for way, body in (("/v1/keys", {"role": "publisher"}), ("/v1/tenants", {"name": "bakery"})):
            refused = client.post(way, json=body)
            assert (refused.status_code, problem_code(refused)) == (503, "store-unavailable")
            assert "was deleted or moved away" in refused.json()["detail"]
        told = client.get("/readyz")
        assert (told.status_code, problem_code(told)) == (503, "not-ready")
        assert "the file of the keys" in told.json()["detail"]
        (tmp_path / "moved").rename(keys)
        assert client.get("/readyz").json() == {"status": "ready"}
        assert client.post("/v1/tenants", json={"name": "bakery"}).status_code == 201


def test_database_that_another_program_has_locked_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing was done, so the request may be sent again. It was an internal error."""
    event = {"specversion": "1.0", "source": "s", "id": "1", "type": "t", "data": {"price": 1}}
    kind = {"Content-Type": "application/cloudevents+json"}
    with running_application(tmp_path, busy_timeout_seconds=0.1) as client:
        with closing(sqlite3.connect(tmp_path / "kindcast.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            refused = client.post("/v1/events", json=event, headers=kind)
            assert (refused.status_code, problem_code(refused)) == (503, "store-unavailable")
            assert "Retry-After" in refused.headers
            assert "database is locked" in refused.json()["detail"]
            unready = client.get("/readyz")
            assert problem_code(unready) == "not-ready"
            assert "database is locked" in unready.json()["detail"]
        assert client.get("/readyz").json() == {"status": "ready"}
        assert client.post("/v1/events", json=event, headers=kind).json()["accepted"] == 1
    assert "commands are refused: database is locked" in caplog.text
    assert "Traceback" not in caplog.text


def test_repair_also_looks_at_the_other_tenants(tmp_path: Path, kindcast: Kindcast) -> None:
    """It said that nothing is missing, while a tenant could not be opened."""
    bakery = {"Kindcast-Tenant": "bakery"}
    with running_application(tmp_path) as client:
        admin = client.post("/v1/keys", json={"role": "admin"}).json()["key"]
        client.headers["Authorization"] = f"Bearer {admin}"
        client.post("/v1/keys", json={"role": "publisher", "tenant": "bakery"}).raise_for_status()
        assert client.post("/v1/events", json={"price": 1}, headers=bakery).status_code == 202
    (tmp_path / "tenants" / "bakery" / "kindcast.db").write_bytes(b"")
    with running_application(tmp_path) as client:
        client.headers["Authorization"] = f"Bearer {admin}"
        refused = client.get("/v1/events", headers=bakery)
        assert (refused.status_code, problem_code(refused)) == (503, "store-damaged")
    told = kindcast("repair", "--data", str(tmp_path))
    assert told.status == 1
    assert "tenant bakery:" in told.out
    assert "0 commits are missing" not in told.out
    assert kindcast("repair", "--data", str(tmp_path), "--accept-loss").status == 0
    with running_application(tmp_path) as client:
        client.headers["Authorization"] = f"Bearer {admin}"
        assert client.get("/v1/events", headers=bakery).json()["events"] == []


def test_end_waits_for_a_read_so_that_the_write_ahead_log_is_merged(tmp_path: Path) -> None:
    """Otherwise commits are still in the file beside the database, and a copy of the database alone lacks them."""
    database = Database(Settings(data=tmp_path))
    begun, may_end = threading.Event(), threading.Event()

    def read(connection: Connection) -> int:
        connection.exec_driver_sql("SELECT count(*) FROM ledger")
        begun.set()
        assert may_end.wait(10.0)
        return 1

    with ThreadPoolExecutor(2) as threads:
        with database.open() as connection, connection.begin():
            ledger.open_ledger(connection)
        reading = threads.submit(database.read, read)
        assert begun.wait(10.0)
        end = threads.submit(database.close)
        assert not wait([end], timeout=0.2).done
        may_end.set()
        assert reading.result(timeout=10.0) == 1
        end.result(timeout=10.0)
    assert not list(tmp_path.glob("*.db-wal"))
    assert examine(tmp_path / "kindcast.db")["damage"] == []


def test_stored_event_that_was_damaged_is_found(tmp_path: Path) -> None:
    """By its digest, whatever it holds; events that are whole are not accused, those of an older server neither."""
    older = shutil.copytree(Path(__file__).parents[1] / "fixtures" / "commit_96216f5" / "data", tmp_path / "older")
    assert examine(older / "kindcast.db")["damage"] == []
    database = tmp_path / "kindcast.db"
    with running_application(tmp_path) as client:
        publish(client, price=1, name="Köln ✓", much=10**15, little=1e-9, deep=[{"a": None}])
        headers = {"ce-specversion": "1.0", "ce-id": "7", "ce-source": "/s", "ce-type": "t"}
        for kind, content in (("text/plain", b"plain"), ("application/octet-stream", b"\x00\xff")):
            sent = client.post("/v1/events", content=content, headers=headers | {"ce-id": kind, "Content-Type": kind})
            assert sent.status_code == 202
    assert examine(database)["damage"] == []
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("UPDATE events SET body = replace(body, '\"price\":1', '\"price\":3')")
    assert examine(database)["damage"] == ["1 stored events are not what was accepted: 1"]


def test_witness_that_was_cut_off_does_not_keep_a_whole_database_from_starting(tmp_path: Path) -> None:
    """It is written again."""
    with running_application(tmp_path) as client:
        publish(client, price=1)
    witness = path_of(tmp_path / "kindcast.db")
    before = Witness(witness).read()
    witness.write_bytes(witness.read_bytes()[:7])
    with running_application(tmp_path) as client:
        publish(client, price=2)
    after = Witness(witness).read()
    assert before is not None
    assert after is not None
    assert after.commits > before.commits


def damage(database: Path, statement: str) -> None:
    with closing(sqlite3.connect(database)) as connection, connection:
        assert connection.execute(statement).rowcount == 1


def ready(client: httpx.Client, holds: Callable[[httpx.Response], bool]) -> httpx.Response:
    """What `/readyz` says, once it says so."""
    deadline = time.monotonic() + 30.0
    while not holds(answer := client.get("/readyz")):
        assert time.monotonic() < deadline, answer.text
        time.sleep(0.02)
    return answer


def is_checked(answer: httpx.Response) -> bool:
    return "records were checked" in answer.json().get("check", "")


def test_damaged_event_is_told_and_never_delivered(tmp_path: Path) -> None:
    """Whoever reads it is told; who passes it over goes on; the check after the start finds it."""
    database = tmp_path / "kindcast.db"
    settings = {"allow_private_sinks": True, "check_after_seconds": 0.01, "webhook_delays_seconds": (0.1,) * 10_000}
    with running_receiver() as receiver:
        sink = receiver.script("/hook", *[500] * 10_000)  # takes nothing
        with running_application(tmp_path, **settings) as client:
            mine = subscribe(client, "price >= 1")
            pushed = subscribe(client, "price >= 2", sink=sink)
            for price in (1, 2, 3):
                publish(client, price=price)
            assert "warning" not in ready(client, is_checked).json()
        damage(database, "UPDATE events SET body = replace(body, '\"price\":2', '\"price\":9') WHERE sequence = 2")
        with running_application(tmp_path, **settings) as client:
            address = f"/v1/subscriptions/{mine['id']}"
            assert waiting(client, mine) == [{"price": 1}]  # up to the damaged one
            client.post(f"{address}/ack", json={"cursor": "1"}, headers=ticket(mine)).raise_for_status()
            for way in (f"{address}/events", "/v1/events?after=1", "/v1/events/2/trace"):
                answer = client.get(way)
                assert (answer.status_code, problem_code(answer)) == (503, "record-damaged"), way
                assert "kindcast check" in answer.json()["detail"]
            assert 'data: {"reason":"damaged"}' in client.get(f"{address}/stream").text
            assert [each["sequence"] for each in client.get("/v1/events/recent").json()["events"]] == [3, 1]
            client.post(f"{address}/ack", json={"cursor": "2"}, headers=ticket(mine)).raise_for_status()
            assert waiting(client, mine) == [{"price": 3}]
            deadline = time.monotonic() + 30.0
            while "the stored event 2 is damaged" not in (told := show(client, pushed).json())["status_reason"]:
                assert time.monotonic() < deadline, told
                time.sleep(0.02)
            assert {each.message["event"]["data"]["price"] for each in receiver.requests()} <= {2}
            assert "damaged: event 2" in ready(client, is_checked).json()["warning"]
    assert examine(database)["damage"] == ["1 stored events are not what was accepted: 2"]


@pytest.mark.parametrize("subscribers", [1, 70], ids=["short list", "long list"])
def test_damaged_matches_are_told_and_never_read_as_others(tmp_path: Path, subscribers: int) -> None:
    """One bit of a list of subscriptions: the event must not go to another one."""
    database = tmp_path / "kindcast.db"
    with running_application(tmp_path) as client:
        made = [subscribe(client, "price >= 1") for _ in range(subscribers)]
        publish(client, price=1)
    with closing(sqlite3.connect(database)) as connection, connection:
        (numbers,) = connection.execute("SELECT subscriptions FROM match_lists").fetchone()
        changed = numbers[:2] + bytes([numbers[2] ^ 4]) + numbers[3:]
        connection.execute("UPDATE match_lists SET subscriptions = ?", (changed,))
    assert examine(database)["damage"] == ["the list of matches at position 1 is damaged"]
    with running_application(tmp_path, check_after_seconds=0.01) as client:
        answer = client.get(f"/v1/subscriptions/{made[0]['id']}/events")
        assert (answer.status_code, problem_code(answer)) == (503, "store-damaged")
        assert "matches of position 1" in ready(client, is_checked).json()["warning"]


def test_malformed_pages_are_a_clear_failure(tmp_path: Path, kindcast: Kindcast) -> None:
    """Requests that need them are told, `/readyz` and the log say it, and what to do; nothing is a 500."""
    database = tmp_path / "kindcast.db"
    with running_application(tmp_path) as client:
        for number in range(60):
            publish(client, name=f"needle-{number}-", filler="x" * 3_000)
    content = bytearray(database.read_bytes())
    page = content.index(b"needle-30-") // 4_096 * 4_096
    content[page : page + 100] = b"\xff" * 100
    database.write_bytes(content)
    with running_application(tmp_path, check_after_seconds=3_600.0) as client:
        answers = [client.get("/v1/events", params={"after": number, "limit": 1}) for number in range(60)]
        told = {(each.status_code, problem_code(each)) for each in answers if each.status_code != 200}
        assert told == {(503, "store-damaged")}
        unready = client.get("/readyz")
        assert (unready.status_code, problem_code(unready)) == (503, "not-ready")
        assert f"kindcast repair --data {tmp_path}" in unready.json()["detail"]
    with running_application(tmp_path, check_after_seconds=0.01) as client:  # found without anybody who asks
        assert "damaged" in ready(client, lambda answer: answer.status_code == 503).json()["detail"]
    assert kindcast("repair", "--data", str(tmp_path)).status == 1
