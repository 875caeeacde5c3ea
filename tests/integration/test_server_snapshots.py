"""The snapshot beside the database: a start uses it, and never needs or trusts it."""

import asyncio
import json
import logging
import shutil
import sqlite3
import time
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from kindcast import Event
from kindcast.server.broker import Broker, startup
from tests.harness.broker import Breaking, new, run, running
from tests.harness.server_process import ServerProcess, running_server

TURTLE = b"""@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> . @prefix : <http://example.org/> .
:Laptop rdfs:subClassOf :Computer . """
ASKED = {
    "kind": "target isa Computer",
    "cheap": "price <= 5",
    "named": 'name startswith "HP"',
    "either": "price <= 7 or price > 100",
}
EVENT = {"target": "http://example.org/Laptop", "price": 4, "name": "HP 1"}
USED = "(with a snapshot of "
ODD = "the snapshot of the subscriptions is not used"


@pytest.fixture(autouse=True)
def told(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """What the broker says."""
    caplog.set_level(logging.INFO, "kindcast.broker")
    return caplog


@asynccontextmanager
async def started(data: Path, told: pytest.LogCaptureFixture, **settings: Any) -> AsyncIterator[Broker]:
    """A broker on `data`; `told` has what was said since its start."""
    told.clear()
    async with running(data, **settings) as broker:
        yield broker


async def settle(data: Path, **settings: Any) -> None:
    """An ontology and a few subscriptions, and an orderly stop."""
    async with running(data, **settings) as broker:
        await broker.put_ontology("shop", TURTLE, format="turtle", activate=True)
        for id, text in ASKED.items():
            await broker.create_subscription(new(id, text))


async def matches(broker: Broker, data: dict[str, Any] = EVENT) -> set[str]:
    """Who would get an event."""
    (found,) = await broker.match([Event(data)])
    return {match.subscription for match in found.matches}


def folder(data: Path) -> Path:
    """Where the snapshots are."""
    return data / "kindcast.db.index"


def killed(data: Path) -> Path:
    """What a server that is killed now leaves behind: its files, without a lock."""
    left = data.parent / f"{data.name} left"
    shutil.copytree(data, left, ignore=shutil.ignore_patterns("*.lock"))
    return left


def test_start_after_an_orderly_stop_uses_the_snapshot(tmp_path: Path, told: pytest.LogCaptureFixture) -> None:
    """What came and went after it is applied on top."""

    async def body() -> None:
        await settle(tmp_path / "data")
        (written,) = folder(tmp_path / "data").iterdir()
        async with started(tmp_path / "data", told) as broker:
            assert f"{USED}4)" in told.text
            assert await matches(broker) == set(ASKED)
            await broker.delete_subscription("cheap", "ticket")
            await broker.pause("either", "ticket")
            await broker.create_subscription(new("more", "price = 4"))
            await broker.create_subscription(new("gone", "price = 4"))
            await broker.delete_subscription("gone", "ticket")
            left = killed(tmp_path / "data")
            assert list(folder(left).iterdir()) == [folder(left) / written.name], "an old one"
        async with started(left, told) as broker:
            assert USED in told.text
            assert await matches(broker) == {"kind", "named", "more"}
            broker.state.matcher.check_invariants()
            await broker.resume("either", "ticket")
            assert await matches(broker) == {"kind", "named", "more", "either"}

    run(body)


@pytest.mark.parametrize(("few", "waits"), [(4, False), (3, True)])
def test_start_waits_for_kernels_only_with_many_subscriptions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: pytest.LogCaptureFixture, few: int, waits: bool
) -> None:
    """With few, kernels run as Python until they are compiled."""
    waited: list[bool] = []
    monkeypatch.setattr(startup, "FEW", few)
    monkeypatch.setattr(startup, "warm_up", lambda: waited.append(True))
    monkeypatch.setattr(startup, "warm_up_beside", lambda: waited.append(False))

    async def body() -> None:
        await settle(tmp_path / "data")  # has none at its start, and four at its end
        async with started(tmp_path / "data", told):
            assert waited == [False, waits]

    run(body)


def test_start_after_subscriptions_expired_meanwhile_matches_none_of_them(
    tmp_path: Path, told: pytest.LogCaptureFixture
) -> None:
    """They are in the snapshot still, and stay renewable."""

    async def body() -> None:
        async with running(tmp_path) as broker:
            await broker.create_subscription(replace(new("brief", "price = 4"), expires_at=time.time() + 0.5))
            await broker.create_subscription(new("long", "price = 4"))
        await asyncio.sleep(0.6)
        async with started(tmp_path, told) as broker:
            assert USED in told.text
            await broker.execute(lambda connection: None)  # a group, which sweeps
            assert await matches(broker) == {"long"}
            await broker.renew("brief", "ticket", time.time() + 60)
            assert await matches(broker) == {"long", "brief"}

    run(body)


def test_start_takes_in_ends_that_were_moved_since(tmp_path: Path, told: pytest.LogCaptureFixture) -> None:
    """Renewed: it matches on; ended sooner: it expires then; renewed after it had expired: it matches again."""

    async def body() -> None:
        data = tmp_path / "data"
        soon = time.time() + 1.0
        async with running(data) as broker:
            for id in ("renewed", "expired"):
                await broker.create_subscription(replace(new(id, "price = 4"), expires_at=soon))
            for id in ("long", "cut"):
                await broker.create_subscription(new(id, "price = 4"))
        async with started(data, told) as broker:
            await broker.renew("renewed", "ticket", soon + 600)
            await broker.renew("cut", "ticket", time.time() + 0.1)
            while (await matches(broker)) != {"renewed", "long"}:
                await asyncio.sleep(0.05)
            await broker.execute(lambda connection: None)  # a group, which sweeps
            await broker.renew("expired", "ticket", soon + 600)
            left = killed(data)
        async with started(left, told) as broker:
            assert f"{USED}4)" in told.text
            assert await matches(broker) == {"renewed", "long", "expired"}
            assert broker.state.live_subscriptions["cut"].status == "expired"
            assert broker.state.live_subscriptions["renewed"].expires_at == soon + 600

    run(body)


def test_start_after_a_kill_between_snapshot_and_store_uses_the_one_before(
    tmp_path: Path, told: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The newest is whole, but the store does not name it: what was noted since the one before goes with that."""

    async def body() -> None:
        await settle(tmp_path / "data")
        with monkeypatch.context() as patched:
            patched.setattr("kindcast.server.broker.writer_thread.BrokerThread._name", lambda *_: False)
            async with running(tmp_path / "data") as broker:
                await broker.delete_subscription("cheap", "ticket")
                await broker.create_subscription(new("more", "price = 4"))
        assert len(list(folder(tmp_path / "data").iterdir())) == 2
        async with started(tmp_path / "data", told) as broker:
            assert f"{USED}4)" in told.text
            assert await matches(broker) == {*ASKED, "more"} - {"cheap"}
        assert len(list(folder(tmp_path / "data").iterdir())) == 1

    run(body)


def test_snapshot_that_the_store_cannot_name_is_not_used(
    tmp_path: Path, told: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit fails: the server goes on, and the one before, with what was noted, is good still."""

    async def body() -> None:
        await settle(tmp_path / "data")
        breaking = Breaking(monkeypatch)
        async with running(tmp_path / "data") as broker:
            await broker.delete_subscription("cheap", "ticket")
            breaking.times = 1
        breaking.times = 0
        async with started(tmp_path / "data", told) as broker:
            assert f"{USED}4)" in told.text
            assert await matches(broker) == set(ASKED) - {"cheap"}

    run(body)


def test_start_on_a_database_that_another_hand_changed_compiles_again(
    tmp_path: Path, told: pytest.LogCaptureFixture
) -> None:
    """A row that was deleted without a note, and one that came so."""

    async def body() -> None:
        await settle(tmp_path)
        with sqlite3.connect(tmp_path / "kindcast.db") as connection:
            connection.execute("DELETE FROM subscriptions WHERE id = 'cheap'")
        connection.close()
        async with started(tmp_path, told) as broker:
            assert ODD in told.text
            assert "differ from the recorded changes" in told.text
            assert await matches(broker) == set(ASKED) - {"cheap"}

    run(body)


def test_start_after_a_time_without_snapshots_does_not_use_an_old_one(
    tmp_path: Path, told: pytest.LogCaptureFixture
) -> None:
    """Nothing was noted meanwhile, so nobody knows what it lacks."""

    async def body() -> None:
        await settle(tmp_path)
        async with running(tmp_path, snapshot_changes=0) as broker:
            await broker.delete_subscription("cheap", "ticket")
            await broker.create_subscription(new("more", "price = 4"))
        async with started(tmp_path, told) as broker:
            assert "the database does not name it" in told.text
            assert await matches(broker) == {*ASKED, "more"} - {"cheap"}
        async with started(tmp_path, told) as broker:
            assert f"{USED}4)" in told.text

    run(body)


def test_start_under_another_vocabulary_compiles_again(tmp_path: Path, told: pytest.LogCaptureFixture) -> None:
    """Killed right after an ontology was changed, the snapshot is of the vocabulary before."""

    async def body() -> None:
        data = tmp_path / "data"
        await settle(data)
        async with running(data) as broker:
            other = TURTLE + b":Phone rdfs:subClassOf :Computer ."
            await broker.put_ontology("shop", other, format="turtle", activate=True)
            left = killed(data)
        async with started(left, told) as broker:
            assert ODD in told.text
            assert "another vocabulary" in told.text
            assert await matches(broker, {"target": "http://example.org/Phone"}) == {"kind"}
        async with started(left, told) as broker:
            assert USED in told.text
            assert await matches(broker, {"target": "http://example.org/Phone"}) == {"kind"}

    run(body)


@pytest.mark.parametrize("file", ["fused.index", "subscriptions.books", "server.roll"])
@pytest.mark.parametrize("damage", ["gone", "short", "changed"])
def test_start_with_a_damaged_snapshot_compiles_again(
    tmp_path: Path, told: pytest.LogCaptureFixture, file: str, damage: str
) -> None:
    """It says so, matches as before, and writes a new one when it stops."""

    async def body() -> None:
        await settle(tmp_path)
        (written,) = folder(tmp_path).iterdir()
        path = written / file
        whole = path.read_bytes()
        path.unlink()
        if damage == "short":
            path.write_bytes(whole[: len(whole) // 2])
        elif damage == "changed":
            place = next(place for place in range(len(whole) // 2, len(whole)) if whole[place])
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        async with started(tmp_path, told) as broker:
            assert ODD in told.text
            assert await matches(broker) == set(ASKED)
        async with started(tmp_path, told) as broker:
            assert USED in told.text
            assert await matches(broker) == set(ASKED)

    run(body)


def test_start_with_a_snapshot_of_another_database_trusts_nothing_in_it(
    tmp_path: Path, told: pytest.LogCaptureFixture
) -> None:
    """Numbers are alike there, ids are not; nor in one that is of a later time than the database."""

    async def body() -> None:
        one, other = tmp_path / "one", tmp_path / "other"
        await settle(one)
        async with running(other) as broker:
            await broker.put_ontology("shop", TURTLE, format="turtle", activate=True)
            for number in range(5):
                await broker.create_subscription(new(f"other{number}", "price = 4"))
        (foreign,) = folder(one).iterdir()
        (own,) = folder(other).iterdir()
        shutil.rmtree(own)
        shutil.copytree(foreign, own)
        async with started(other, told) as broker:
            assert "it belongs to another database" in told.text
            assert await matches(broker) == {f"other{number}" for number in range(5)}
            broker.state.matcher.check_invariants()
        backup = killed(one)
        async with running(one) as broker:
            await broker.create_subscription(new("later", "price = 4"))
        (newer,) = folder(one).iterdir()
        shutil.copytree(newer, folder(backup) / newer.name)
        async with started(killed(backup), told) as broker:
            assert f"{USED}4)" in told.text, "its own is there as well"
            assert await matches(broker) == set(ASKED)
        (older,) = (each for each in folder(backup).iterdir() if each.name != newer.name)
        shutil.rmtree(older)
        async with started(backup, told) as broker:
            assert "another database or another time" in told.text
            assert await matches(broker) == set(ASKED)

    run(body)


def test_snapshots_are_written_where_and_when_the_settings_say(tmp_path: Path, told: pytest.LogCaptureFixture) -> None:
    """Not at all; in a folder of their own; in an idle moment, which also clears away what was cut short."""

    async def body() -> None:
        data, elsewhere = tmp_path / "data", tmp_path / "elsewhere"
        await settle(data, snapshot_changes=0)
        assert not folder(data).exists()
        async with started(data, told, snapshot=elsewhere):
            pass
        (first,) = elsewhere.iterdir()
        assert first.name.isdigit()
        async with started(data, told, snapshot=elsewhere, snapshot_changes=2, sweep_seconds=0.1) as broker:
            assert USED in told.text
            cut = elsewhere / ".1.part"
            cut.mkdir()
            await broker.create_subscription(new("more", "price = 4"))
            await broker.create_subscription(new("yet more", "price = 4"))
            while first.exists() or cut.exists():
                await asyncio.sleep(0.02)
        (second,) = elsewhere.iterdir()
        assert second.name > first.name
        async with started(data, told, engine="naive", snapshot=elsewhere) as broker:
            assert USED not in told.text
            assert await matches(broker) == {*ASKED, "more", "yet more"}

    run(body)


def test_start_where_no_snapshot_can_be_written_serves_all_the_same(
    tmp_path: Path, told: pytest.LogCaptureFixture
) -> None:
    """A file stands in the place of the folder."""

    async def body() -> None:
        blocked = tmp_path / "blocked"
        blocked.write_text("no folder")
        await settle(tmp_path / "data", snapshot=blocked)
        assert "no snapshot of the subscriptions was written" in told.text
        async with started(tmp_path / "data", told, snapshot=blocked) as broker:
            assert await matches(broker) == set(ASKED)

    run(body)


def call(server: ServerProcess, path: str, body: Any) -> Any:
    """One request; its answer, decoded."""
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(server.url + path, json.dumps(body).encode(), headers, method="POST")
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.loads(answer.read())


def test_server_killed_after_a_snapshot_loses_nothing(tmp_path: Path) -> None:
    """A real process, a real SIGKILL: what came after the snapshot matches as what is in it."""
    with running_server(tmp_path) as server:
        ids = {call(server, "/v1/subscriptions", {"expression": f"price <= {n}"})["id"] for n in range(4, 9)}
        server.stop()
        server.start()
        ids |= {call(server, "/v1/subscriptions", {"expression": f"price <= {n}"})["id"] for n in range(9, 12)}
        server.kill()
        server.start()
        event = {"specversion": "1.0", "id": "1", "source": "/t", "type": "t", "data": EVENT}
        found = call(server, "/v1/match", {"event": event})
        assert {match["subscription"] for match in found["matches"]} == ids
