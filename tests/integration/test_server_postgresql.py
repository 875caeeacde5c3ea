"""The same server on PostgreSQL, one setting away. Skips where no PostgreSQL is installed."""

import asyncio
import json
import logging
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import Connection, Select, create_engine, event, inspect, make_url, text
from sqlalchemy.pool import NullPool

from kindcast import Event, Matcher
from kindcast.semantic.events import ReadEvent
from kindcast.server.broker import Broker
from kindcast.server.clock import Clock
from kindcast.server.errors import StoreInUse, StoreUnavailable, StoreUnreadable
from kindcast.server.settings import Settings
from kindcast.server.store import database as database_module
from kindcast.server.store import deliveries, event_days, matches, older_matches
from tests.harness.application import problem_code, running_application, subscribe, waiting
from tests.harness.older_layouts import make_layout_1, make_layout_2
from tests.harness.postgresql import PostgreSQL, driver_url
from tests.harness.server_process import running_server
from tests.harness.waiting import until
from tests.integration.conftest import Kindcast


@pytest.fixture
def database(postgresql: PostgreSQL) -> str:
    """The URL of a database of our own."""
    return postgresql.new_database()


def publish(client: httpx.Client, *events: dict[str, object]) -> dict[str, object]:
    batch = [{"specversion": "1.0", "source": "s", "type": "t", **event} for event in events]
    answer = client.post("/v1/events", json=batch, headers={"Content-Type": "application/cloudevents-batch+json"})
    assert answer.status_code == 202, answer.text
    document: dict[str, object] = answer.json()
    return document


def test_postgresql_whole_road_and_restart(database: str, tmp_path: Path) -> None:
    """Ontology, subscription, events, duplicates, pull, acknowledge, delete; then everything again after a restart."""
    turtle = """
    @prefix : <http://e/> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
    :Laptop rdfs:subClassOf :Computer ; rdfs:label "laptop"@en, "Notebook"@de .
    """
    with running_application(tmp_path, database=database) as client:
        answer = client.put("/v1/ontologies/x", content=turtle, headers={"Content-Type": "text/turtle"})
        assert answer.status_code == 201, answer.text
        body = {"expression": "target isa Computer", "metadata": {"name": "grün"}}
        created = client.post("/v1/subscriptions", json=body).json()
        ticket = {"Kindcast-Ticket": created["ticket"]}
        first = {"id": "1", "data": {"target": "Notebook", "text": "a\u0000b"}}
        assert publish(client, first, {"id": "2", "data": {"target": "car"}})["accepted"] == 2
        assert publish(client, first)["duplicates"] == 1
        page = client.get(f"/v1/subscriptions/{created['id']}/events").json()
        assert [message["event"]["id"] for message in page["events"]] == ["1"]
        assert page["events"][0]["event"]["data"]["text"] == "a\u0000b"
        ack = client.post(f"/v1/subscriptions/{created['id']}/ack", json={"cursor": page["cursor"]}, headers=ticket)
        assert ack.status_code == 200, ack.text
    with running_application(tmp_path, database=database) as client:
        seen = client.get(f"/v1/subscriptions/{created['id']}").json()
        assert (seen["cursor"], seen["pending"], seen["metadata"]) == ("1", 0, {"name": "grün"})
        assert publish(client, first, {"id": "3", "data": {"target": "laptop"}})["accepted"] == 1
        page = client.get(f"/v1/subscriptions/{created['id']}/events").json()
        assert [message["event"]["id"] for message in page["events"]] == ["3"]
        trace = client.get("/v1/events/3/trace").json()
        assert [each["state"] for each in trace["deliveries"]] == ["pending"]
        metrics = client.get("/metrics").text
        assert "kindcast_events_accepted_total 3.0" in metrics
        assert "kindcast_matches_delivered_total 1.0" in metrics
        assert client.delete(f"/v1/subscriptions/{created['id']}", headers=ticket).status_code == 200
        assert client.delete("/v1/ontologies/x").status_code == 200


async def _start_second(database: str, folder: Path) -> None:
    await Broker(Settings(data=folder, database=database)).start()


def test_postgresql_that_does_not_answer_ends_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the time for a connection, which the URL may name too; not after minutes."""
    monkeypatch.setitem(database_module.SILENCE, "connect_timeout", 2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgresql://x@127.0.0.1:{silent.getsockname()[1]}/x"
        with pytest.raises(StoreUnreadable, match="timeout expired"), running_application(tmp_path, database=url):
            pass
    named = database_module.normalised(f"{url}?connect_timeout=30")
    assert "connect_timeout" not in database_module.connect_arguments(named)


def test_postgresql_connection_that_ended_while_it_was_idle_is_replaced_before_a_group(
    database: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As after a restart. Nothing was sent on it, so nobody is refused and nothing is in doubt."""
    engine = create_engine(driver_url(database), isolation_level="AUTOCOMMIT")
    ended = text(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
        " WHERE pid <> pg_backend_pid() AND datname = current_database()"
    )
    with (
        running_application(tmp_path / "1", database=database) as client,
        running_application(tmp_path / "2", database=database) as other,
        engine.connect() as connection,
    ):
        for n in range(3):
            assert connection.execute(ended).scalar_one() > 0
            subscribe(client, "n = 1")
            there = other.post("/v1/match", json={"event": {"n": 1}}).json()["matches"]
            assert connection.execute(ended).scalar_one() > 0
            assert publish(other, {"id": str(n), "data": {"n": 1}})["matched"] == len(there) == n + 1
        assert client.get("/readyz").json()["status"] == "ready"
    assert "refused" not in caplog.text
    assert "could not be read" not in caplog.text
    engine.dispose()


@pytest.mark.slow
def test_postgresql_that_hangs_keeps_neither_the_status_nor_a_stop_waiting(
    postgresql: PostgreSQL, database: str, tmp_path: Path
) -> None:
    """What was accepted before is there after the next start."""
    with running_server(tmp_path, {"KINDCAST_DATABASE": database}) as server:
        with httpx.Client(base_url=server.url, trust_env=False, timeout=30) as client:
            publish(client, {"id": "1", "data": {}})
            with postgresql.hanging():
                told = client.get("/v1/status")
                assert (told.status_code, problem_code(told)) == (503, "store-unavailable")
                assert "has not answered" in told.json()["detail"]
                assert problem_code(client.get("/readyz")) == "not-ready"
                assert server.stop() == 1
        assert "PostgreSQL does not answer" in server.log.read_text(encoding="utf-8")
        server.start()
        with httpx.Client(base_url=server.url, trust_env=False, timeout=30) as client:
            assert client.get("/v1/status").json()["ledger"]["accepted"] == 1
        assert server.stop() == -signal.SIGTERM


def test_postgresql_server_that_does_not_share_is_refused(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Versions that know of no other servers hold the lock for themselves: beside such a one nobody starts."""
    monkeypatch.setattr(database_module, "LOCK_SECONDS", 0.3)
    engine = create_engine(driver_url(database))
    with engine.connect() as older:
        older.execute(text("SELECT pg_advisory_lock(:key)"), {"key": database_module.ADVISORY_LOCK})
        with pytest.raises(StoreInUse, match="does not share it"):
            asyncio.run(_start_second(database, tmp_path))
    engine.dispose()


def test_postgresql_without_a_free_connection_is_told_to_who_changes_the_vocabulary(
    database: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The answer does not blame the change, and the log has the reason of PostgreSQL."""
    url = make_url(driver_url(database))
    name, engine = url.database, create_engine(url.set(database="postgres"), isolation_level="AUTOCOMMIT")
    with running_application(tmp_path, database=database) as client, engine.connect() as connection:
        connection.execute(text(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false"))
        headers = {"Content-Type": "text/turtle"}
        answer = client.put("/v1/ontologies/pets", content="<urn:a> a <urn:b> .", headers=headers)
        assert (answer.status_code, problem_code(answer)) == (503, "store-unavailable")
        assert answer.json()["detail"] == "the database takes no further connection now: try again"
        assert "not currently accepting connections" in caplog.text
        connection.execute(text(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true"))
        assert client.put("/v1/ontologies/pets", content="<urn:a> a <urn:b> .", headers=headers).status_code == 201
    engine.dispose()


def test_postgresql_damaged_event_is_told_with_a_command_that_reads_it(database: str, tmp_path: Path) -> None:
    """`kindcast repair` reads SQLite alone."""
    with running_application(tmp_path, database=database) as client:
        assert publish(client, {"id": "1", "data": {"price": 1}})["accepted"] == 1
        engine = create_engine(driver_url(database))
        with engine.begin() as connection:
            connection.execute(text("UPDATE events SET body = replace(body, '1', '2')"))
        engine.dispose()
        assert "kindcast check" in client.get("/v1/events").json()["detail"]
        assert "kindcast check --database" in client.get("/readyz").json()["warning"]


def test_postgresql_commands_in_the_folder_of_a_stopped_server_ask_for_its_database(
    database: str, tmp_path: Path, kindcast: Kindcast
) -> None:
    """They would begin a SQLite database that the server does not use, or call the folder damaged."""
    with running_application(tmp_path, database=database):
        pass
    before = sorted(tmp_path.iterdir())
    for words in (("key", "create", "--role", "admin"), ("key", "list"), ("check",), ("repair", "--accept-loss")):
        refused = kindcast(*words, "--data", str(tmp_path))
        assert (refused.status, "database is elsewhere" in refused.err) == (1, True), words
    assert sorted(tmp_path.iterdir()) == before
    assert kindcast("key", "create", "--role", "admin", "--data", str(tmp_path), "--database", database).status == 0


def test_postgresql_refused_command_leaves_the_group(
    database: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A statement that fails spoils a PostgreSQL transaction; its savepoint keeps the others out of it. The log has the
    error once, and nothing of the driver."""

    def fails(connection: Connection) -> None:
        connection.execute(
            text("UPDATE ledger SET sequence = 1 / CAST(:n AS BIGINT)"), [{"n": n} for n in range(5_000)]
        )

    async def body() -> None:
        broker = Broker(Settings(data=tmp_path, database=database))
        await broker.start()
        try:
            results = await asyncio.gather(
                broker.execute(fails),
                broker.execute(lambda connection: 7),
                return_exceptions=True,
            )
            assert isinstance(results[0], StoreUnavailable)
            assert results[1] == 7
        finally:
            await broker.stop()

    asyncio.run(body())
    assert [each.name for each in caplog.records if each.levelno >= logging.WARNING] == ["kindcast.broker"]


def test_postgresql_event_with_an_unexpected_error_stops_no_other(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Events are matched before their transaction, too. There an error once ended the thread of the broker."""
    read = Matcher.read

    def failing(self: Matcher, event: Event, *known: Any) -> ReadEvent:
        if event.data == {"n": "bad"}:
            raise RuntimeError("nobody thought of this")
        return read(self, event, *known)

    monkeypatch.setattr(Matcher, "read", failing)
    with running_application(tmp_path, database=database) as client:
        created = client.post("/v1/subscriptions", json={"expression": "n exists"}).json()
        assert client.post("/v1/events", json={"n": "bad"}).status_code == 500
        assert client.post("/v1/events", json={"n": 1}).json()["matched"] == 1
        page = client.get(f"/v1/subscriptions/{created['id']}/events").json()
    assert [message["event"]["data"] for message in page["events"]] == [{"n": 1}]


def test_postgresql_older_layout_is_brought_to_the_present_one(postgresql: PostgreSQL, tmp_path: Path) -> None:
    """The same steps as on SQLite: columns are added, records filled in, and what was subscribed matches."""
    turtle = "@prefix : <http://e/> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> . :A rdfs:subClassOf :B ."
    older = postgresql.new_database()
    engine = create_engine(driver_url(older))
    make_layout_1(engine, {"x": [turtle]}, {"s": {"isa": ["target", {"iri": "http://e/B"}]}}, active=1)
    engine.dispose()
    for _ in range(2):
        with running_application(tmp_path, database=older) as client:
            assert client.post("/v1/match", json={"event": {"target": "A"}}).json()["matches"]
            assert client.get("/v1/subscriptions/s").json()["flagged"] is False
            assert client.put("/v1/attributes/value", json={"unit": "degF"}).status_code in (200, 201)
            told = client.post("/v1/ontologies/x/activate?version=1&dry_run=true").json()
            assert told["subscriptions"]["changed"] == 0


def test_postgresql_layout_2_keeps_cursors_and_takes_what_waits_for_operators(
    postgresql: PostgreSQL, tmp_path: Path
) -> None:
    """Old messages stand where they stood; a candidate is parked, given up, tried again, over restarts."""
    older = postgresql.new_database()
    engine = create_engine(driver_url(older))
    make_layout_2(engine, 5, acked=2)
    with engine.begin() as connection:  # it wrote the number of its subscription itself
        connection.execute(text("SELECT setval(pg_get_serial_sequence('subscriptions', 'number'), 1)"))
    engine.dispose()
    settings = {"database": older, "allow_private_sinks": True, "operator_delays_seconds": (), "plugins": False}
    nobody = {"url": "http://127.0.0.1:9/", "timeout_seconds": 0.2}
    with running_application(tmp_path, **settings) as client:
        page = client.get("/v1/subscriptions/s/events").json()["events"]
        assert [(each["cursor"], each["event"]["data"]["n"]) for each in page] == [("3", 3), ("4", 4), ("5", 5)]
        assert client.put("/v1/operators/nobody", json=nobody).status_code == 201
        hangs = client.post("/v1/subscriptions", json={"expression": "nobody()"}).json()
        assert client.post("/v1/events", json={"n": 6}).json()["events"][0]["undecided"] == 1
    for tries in (1, 2):
        with running_application(tmp_path, **settings) as client:
            until_given_up(client, 6)
            told = client.get(f"/v1/subscriptions/{hangs['id']}").json()
            assert (told["undecided"], told["waiting_for_operators"]) == (tries, 0)
            assert client.post("/v1/operators/retry").json() == {"again": 1}
            until_given_up(client, 6)


def test_postgresql_older_table_may_be_dropped_while_a_subscriber_reads(
    postgresql: PostgreSQL, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A snapshot keeps rows, but not a table that is dropped before the first look into it."""
    older = postgresql.new_database()
    engine = create_engine(driver_url(older))
    make_layout_2(engine, 5, acked=2)
    reads, erase, rows = threading.Event(), matches.erase_moved, deliveries._rows
    monkeypatch.setattr(matches, "erase_moved", lambda connection: erase(connection) if reads.is_set() else True)
    looks: list[str] = []

    def look(connection: Connection, query: Select[Any]) -> Iterator[Any]:
        looks.append("new" if "FROM match_lists" in str(query) else "older")
        if looks == ["new", "older"]:
            reads.set()
            until(lambda: not inspect(engine).has_table("matches"))
        yield from rows(connection, query)

    with running_application(tmp_path, database=older) as client:
        moved = "SELECT older_from > older_through AND older_from > 0 FROM ledger"
        with engine.connect() as connection:
            connection.execution_options(isolation_level="AUTOCOMMIT")
            until(lambda: connection.execute(text(moved)).scalar_one())
        monkeypatch.setattr(deliveries, "_rows", look)
        page = client.get("/v1/subscriptions/s/events").json()["events"]
        assert [(each["cursor"], each["event"]["data"]["n"]) for each in page] == [("3", 3), ("4", 4), ("5", 5)]
        assert looks == ["new", "older", "new"]
    engine.dispose()


def test_postgresql_older_matches_are_not_all_fetched_at_once(postgresql: PostgreSQL) -> None:
    """A pass of the move, and how far it goes, are read through cursors of the server."""
    older = postgresql.new_database()
    engine = create_engine(driver_url(older))
    make_layout_2(engine, 5, acked=2)
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE matches RENAME COLUMN sequence TO position"))
        connection.execute(text("ALTER TABLE matches ADD COLUMN event BIGINT"))
    cursors: list[str] = []
    event.listen(engine, "before_cursor_execute", lambda _, cursor, *__: cursors.append(type(cursor).__name__))
    with engine.connect() as connection:
        rows, through = older_matches.next_rows(connection, 1, 5)
    assert (rows.positions.tolist(), through) == ([1, 2, 3, 4, 5], 5)
    assert cursors == ["ServerCursor", "ServerCursor"]
    engine.dispose()


def until_given_up(client: httpx.Client, sequence: int) -> None:
    until(lambda: client.get(f"/v1/events/{sequence}/trace").json()["undecided"][0]["state"] == "given_up")


def test_postgresql_snapshot_is_named_and_what_changed_since_is_noted(
    database: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Imported, saved at the stop; then one goes, one comes, and the next start takes both in, without compiling."""
    lines = "\n".join(json.dumps({"expression": f"n = {n}"}) for n in range(4))
    caplog.set_level(logging.INFO, "kindcast.broker")
    with running_application(tmp_path, database=database) as client:
        made = client.post("/v1/subscriptions/import", content=lines).json()["created"]
        assert [each["line"] for each in made] == [1, 2, 3, 4]
    for _ in range(2):  # the first of these stops writes a snapshot again
        caplog.clear()
        with running_application(tmp_path, database=database) as client:
            assert "(with a snapshot of 4)" in caplog.text
            found = client.post("/v1/match", json={"event": {"n": 1}}).json()["matches"]
            assert [each["subscription"] for each in found] == [made[1]["id"]]
            gone = made.pop()
            headers = {"Kindcast-Ticket": gone["ticket"]}
            assert client.delete(f"/v1/subscriptions/{gone['id']}", headers=headers).status_code == 200
            client.post("/v1/subscriptions", json={"expression": "n = 9"})
            publish(client, {"id": str(len(made)), "source": "snapshots", "type": "a", "data": {"n": 9}})
    with running_application(tmp_path, database=database) as client:
        told = [each["event"]["id"] for each in client.get("/v1/events?type=a").json()["events"]]
        assert told == ["3", "2"]
        assert client.get("/v1/dead-letters").json()["dead_letters"] == []


# ── events by day ───────────────────────────────────────────────────────────────────────────────────────────────────

DAY = 86_400.0
LONG = {"ttl_seconds": 300 * DAY}
"""Subscriptions that outlive the days of a test."""


@pytest.fixture
def ahead(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Sets the clock of the servers to noon after so many days."""
    noon = time.time() // DAY * DAY + DAY / 2
    days, began = [0.0], time.monotonic()
    monkeypatch.setattr(Clock, "now", lambda _: noon + days[0] * DAY + time.monotonic() - began)

    def move(after: float) -> None:
        days[0] = after

    return move


@contextmanager
def connected(database: str) -> Iterator[Connection]:
    """A connection in a transaction, closed at the end of the block."""
    with create_engine(driver_url(database), poolclass=NullPool).begin() as connection:
        yield connection


def parts(database: str) -> int:
    """How many partitions there are."""
    with connected(database) as connection:
        there = event_days.partitions(connection)
    assert all(one.end <= other.start for one, other in pairwise(there))
    return len(there)


def ids(client: httpx.Client) -> list[str]:
    return [each["event"]["id"] for each in client.get("/v1/events").json()["events"]]


def test_postgresql_each_day_has_a_partition_and_the_retention_drops_it(
    database: str, tmp_path: Path, ahead: Callable[[float], None]
) -> None:
    """Events and repeats are found over days; what is older than the retention is gone, and may be published anew."""
    settings = {"database": database, "sweep_seconds": 0.05, "retention_seconds": 3 * DAY}
    with running_application(tmp_path, **settings) as client:
        made = subscribe(client, "n exists", **LONG)
        for day in range(3):
            ahead(day)
            publish(client, {"id": f"{day}", "data": {"n": day}}, {"id": f"{day}b", "data": {"n": day}})
        assert parts(database) == 3
        assert publish(client, {"id": "0", "data": {"n": 0}}, {"id": "1b", "data": {"n": 1}})["duplicates"] == 2
        assert waiting(client, made) == [{"n": n} for n in (0, 0, 1, 1, 2, 2)]
        assert ids(client) == ["0", "0b", "1", "1b", "2", "2b"]
    ahead(4.6)  # the events of two days are over
    with running_application(tmp_path, **settings) as client:
        until(lambda: parts(database) == 1)
        assert ids(client) == ["2", "2b"]
        assert client.get("/v1/events/1/trace").status_code == 404
        assert client.get(f"/v1/subscriptions/{made['id']}/events?after=0").status_code == 410
        page = client.get(f"/v1/subscriptions/{made['id']}/events?after=4").json()["events"]
        assert [each["event"]["id"] for each in page] == ["2", "2b"]
        told = publish(client, {"id": "0", "data": {"n": 7}}, {"id": "2", "data": {"n": 2}})
        assert (told["accepted"], told["duplicates"]) == (1, 1)
        assert "kindcast_matches_discarded_total 4.0" in client.get("/metrics").text
        assert parts(database) == 2
    with running_application(tmp_path, **settings) as client:
        assert ids(client) == ["2", "2b", "0"]


def test_postgresql_events_are_hidden_until_their_partition_is_dropped(
    database: str, tmp_path: Path, ahead: Callable[[float], None], kindcast: Kindcast
) -> None:
    """For readers, an event is gone when its retention ends, unless a late match needs it; a backup has what they
    see."""
    settings = {"database": database, "sweep_seconds": 0.05, "retention_seconds": DAY / 10}
    with running_application(tmp_path, **settings) as client:
        publish(client, *({"id": str(number), "data": {"n": number}} for number in range(4)))
        with connected(database) as connection:
            connection.execute(text("INSERT INTO late SELECT 99, 2, :at"), {"at": time.time() + 100 * DAY})
        ahead(0.2)
        until(lambda: ids(client) == ["1"])
        assert parts(database) == 1
        told = publish(client, {"id": "1", "data": {"n": 1}}, {"id": "2", "data": {"n": 2}})
        assert (told["duplicates"], told["accepted"]) == (1, 1)
        assert [each["sequence"] for each in client.get("/v1/events?after=2").json()["events"]] == [5]
        assert client.get("/v1/events/1/trace").status_code == 404
        assert client.get("/v1/events/2/trace").status_code == 200
        assert kindcast("check", "--database", database, "--json").json["rows"]["events"] == 2
        assert kindcast("backup", str(tmp_path / "b"), "--database", database).status == 0
        ahead(2)
        until(lambda: ids(client) == ["1"])
        time.sleep(0.3)
        assert parts(database) == 1
        with connected(database) as connection:
            connection.execute(text("DELETE FROM late"))
        until(lambda: parts(database) == 0)
        assert ids(client) == []
    assert kindcast("restore", str(tmp_path / "b"), "--data", str(tmp_path / "c")).status == 0
    with running_application(tmp_path / "c") as client:
        assert ids(client) == ["1", "2"]


def test_postgresql_long_reader_stops_neither_publishers_nor_a_new_day(
    database: str, tmp_path: Path, ahead: Callable[[float], None], caplog: pytest.LogCaptureFixture
) -> None:
    """While events are read, as by a backup, their partition is not dropped; afterwards it is."""
    caplog.set_level(logging.INFO, "kindcast.store")
    with running_application(tmp_path, database=database, sweep_seconds=0.05, retention_seconds=DAY) as client:
        publish(client, {"id": "1", "data": {"n": 1}})
        with connected(database) as reader:
            reader.execute(text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"))
            assert reader.execute(text("SELECT count(*) FROM events")).scalar_one() == 1
            ahead(3)
            until(lambda: "will be dropped later" in caplog.text)
            for number in range(2, 12):
                assert publish(client, {"id": str(number), "data": {"n": number}})["accepted"] == 1
            assert ids(client) == [str(number) for number in range(2, 12)]
            assert parts(database) == 2
            assert reader.execute(text("SELECT id FROM events")).scalars().all() == ["1"]
        until(lambda: parts(database) == 1)
        assert len(ids(client)) == 10


def test_postgresql_two_servers_begin_a_day_and_end_another_together(
    database: str, tmp_path: Path, ahead: Callable[[float], None]
) -> None:
    """Both publish without a pause while days begin; each day has one partition, and each is dropped once. An event
    that both publish is known to the second of them until its day was dropped."""
    settings = {"database": database, "sweep_seconds": 0.05, "retention_seconds": 3 * DAY}
    stop, sent, accepted = threading.Event(), [0, 0], defaultdict[str, list[tuple[int, int]]](list)
    begun, beginning = [0], [0]  # the day, at least and at most

    def publish_on(client: httpx.Client, server: int) -> None:
        while not stop.is_set():
            shared, least = str(sent[server]), begun[0]
            told = publish(client, {"id": f"{server}-{shared}", "data": {"n": 1}}, {"id": shared})
            sent[server] += 1
            assert told["accepted"] in (1, 2), told
            if told["accepted"] == 2:
                accepted[shared].append((least, beginning[0]))

    with (
        running_application(tmp_path / "one", **settings) as one,
        running_application(tmp_path / "two", **settings) as two,
        ThreadPoolExecutor() as pool,
    ):
        made = subscribe(one, "n exists", **LONG)
        running = [pool.submit(publish_on, client, number) for number, client in enumerate((one, two))]
        try:
            for day in range(6):
                beginning[0] = day
                ahead(day)
                begun[0] = day
                before = sent.copy()
                until(lambda before=before: all(now > was for now, was in zip(sent, before, strict=True)))  # type: ignore[misc]
            until(lambda: parts(database) <= 4)
        finally:
            stop.set()
        assert [each.result() for each in running] == [None, None]
        assert one.get(f"/v1/subscriptions/{made['id']}").json()["undecided"] == 0
        metrics = one.get("/metrics").text
        assert len(accepted) == max(sent)
        for days in accepted.values():
            assert len(days) == 1 or max(most for _, most in days) - min(least for least, _ in days) >= 3
        assert f"kindcast_events_accepted_total {sum(sent) + sum(map(len, accepted.values()))}.0" in metrics
        assert f"kindcast_matches_total {sum(sent)}.0" in metrics


CONVERTED = """
import asyncio, os, signal, sys
from pathlib import Path
from kindcast.server.broker import Broker
from kindcast.server.settings import Settings
from kindcast.server.store import event_days

event_days._attach = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(Broker(Settings(data=Path(sys.argv[1]), database=sys.argv[2])).start())
"""


def test_postgresql_conversion_to_days_that_is_killed_begins_again(database: str, tmp_path: Path) -> None:
    """It leaves the older layout; then all events, their repeats and their positions are as they were."""
    engine = create_engine(driver_url(database), poolclass=NullPool)
    make_layout_2(engine, 5, acked=2)
    with engine.begin() as connection:  # as in every real one
        connection.execute(text("ALTER TABLE events ADD UNIQUE (source, id)"))
    command = [sys.executable, "-c", CONVERTED, str(tmp_path / "killed"), database]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    tables = inspect(engine).get_table_names()
    assert "events" in tables
    assert "event_keys" not in tables
    for accepted in (1, 0):
        with running_application(tmp_path, database=database) as client:
            assert parts(database) == 1
            assert ids(client)[:5] == ["1", "2", "3", "4", "5"]
            told = publish(client, *({"id": str(n), "data": {"n": n}} for n in (1, 5, 6)))
            assert (told["accepted"], told["duplicates"]) == (accepted, 3 - accepted)
            page = client.get("/v1/subscriptions/s/events").json()["events"]
            assert [(each["cursor"], each["event"]["data"]["n"]) for each in page] == [(str(n), n) for n in range(3, 7)]
    assert inspect(engine).get_view_names() == ["events"]


def test_postgresql_restored_events_are_in_the_partitions_of_their_days(
    database: str, tmp_path: Path, ahead: Callable[[float], None], kindcast: Kindcast
) -> None:
    """Of a server on SQLite; events that are kept for long get longer partitions."""
    settings = {"retention_seconds": 300 * DAY}
    days = [0.0, 1.0, 5.0, 45.0, 46.0, 50.0]
    with running_application(tmp_path / "a", **settings) as client:
        for day in days:
            ahead(day)
            publish(client, {"id": str(day), "data": {"n": day}})
        assert kindcast("backup", str(tmp_path / "b"), "--data", str(tmp_path / "a")).status == 0
    assert kindcast("restore", str(tmp_path / "b"), "--database", database).status == 0
    assert parts(database) == 5  # one of four days
    with running_application(tmp_path / "c", database=database, **settings) as client:
        assert ids(client) == [str(day) for day in days]
        assert publish(client, *({"id": str(day), "data": {"n": day}} for day in days))["duplicates"] == 6
        assert kindcast("check", "--database", database, "--json").json["damage"] == []
