"""What a machine can do to a server: a clock that jumps, files that lose what they had."""

import shutil
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from kindcast.server.clock import CLOCK
from kindcast.server.errors import StoreUnreadable
from kindcast.server.store.witness import Witness, examine, path_of
from tests.harness.application import publish, running_application, show, subscribe, waiting
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
