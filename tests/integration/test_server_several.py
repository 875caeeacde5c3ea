"""Several servers on one PostgreSQL: what one has acknowledged holds at the others from then on."""

import asyncio
import math
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import Connection, create_engine, text
from sqlalchemy.exc import OperationalError

from kindcast.semantic import Matcher, Vocabulary
from kindcast.server import late_matching
from kindcast.server.broker import Broker, membership
from kindcast.server.broker.membership import Membership, OtherServers, Preparation, PreparedVocabulary, ReadTrees
from kindcast.server.broker.startup import Snapshots
from kindcast.server.broker.state import LiveSubscriptions, State
from kindcast.server.broker.vocabulary_commands import unpacked
from kindcast.server.clock import CLOCK
from kindcast.server.errors import StoreInUse, StoreUnavailable
from kindcast.server.operators import operator_clients
from kindcast.server.operators.operator_clients import FAILURES
from kindcast.server.settings import Settings
from kindcast.server.store import servers
from kindcast.server.store.servers import (
    KEPT_COMMITS,
    CircuitState,
    claim_probe,
    commit_is_there,
    find_circuits,
    forget_circuit,
    store_circuit,
)
from tests.harness.application import publish, running_application, show, subscribe, ticket, waiting
from tests.harness.operator_service import running_service
from tests.harness.postgresql import PostgreSQL, driver_url, running_postgresql
from tests.harness.receiver import running_receiver
from tests.harness.server_process import running_server
from tests.harness.waiting import until

PREFIX = "@prefix : <http://e/> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> ."
TURTLE = f'{PREFIX} :Laptop rdfs:subClassOf :Computer ; rdfs:label "laptop" .'


@contextmanager
def running_two(database: str, tmp_path: Path, **settings: Any) -> Iterator[tuple[httpx.Client, httpx.Client]]:
    """Two servers on one database, in one process."""
    with ExitStack() as stack:
        first, second = (
            stack.enter_context(running_application(tmp_path / name, database=database, **settings))
            for name in ("first", "second")
        )
        yield first, second


@pytest.fixture
def database(postgresql: PostgreSQL) -> str:
    """The URL of a database of our own."""
    return postgresql.new_database()


def test_a_subscription_of_one_server_matches_events_of_the_other(database: str, tmp_path: Path) -> None:
    """Created, paused, resumed, renewed and deleted at one; each counts at the other at once."""
    with running_two(database, tmp_path) as (first, second):
        made = subscribe(first, "n = 1")
        path = f"/v1/subscriptions/{made['id']}"
        assert publish(second, n=1) == 1
        assert second.post(f"{path}/pause", headers=ticket(made)).status_code == 200
        assert publish(first, n=1) == 0
        assert first.post(f"{path}/resume", headers=ticket(made)).status_code == 200
        assert publish(second, n=1) == 1
        assert waiting(first, made) == waiting(second, made) == [{"n": 1}] * 2
        cursor = second.get(f"{path}/events").json()["cursor"]
        assert second.post(f"{path}/ack", json={"cursor": cursor}, headers=ticket(made)).status_code == 200
        assert waiting(first, made) == []
        assert first.delete(path, headers=ticket(made)).status_code == 200
        assert publish(second, n=1) == 0
        assert second.get(path).status_code == 404


def test_a_server_with_a_wrong_clock_ends_nothing(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its clock is days ahead when it starts: it uses the time of the database, and says so."""
    try:
        with running_application(tmp_path / "right", database=database, sweep_seconds=0.01) as client:
            mine = subscribe(client, "n = 1", ttl_seconds=86_400.0)
            publish(client, n=1)
        monkeypatch.setattr(CLOCK, "_wall", lambda: time.time() + 864_000.0)
        CLOCK.restart()
        with running_application(tmp_path / "wrong", database=database, sweep_seconds=0.01) as client:
            assert "864,000 s ahead of the database" in client.get("/readyz").json()["warning"]
            assert publish(client, n=1) == 1
            assert waiting(client, mine) == [{"n": 1}] * 2
    finally:
        monkeypatch.undo()
        CLOCK.restart()


def test_a_lifetime_from_a_server_whose_clock_is_behind_is_whole(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others do not end at once what it makes for an hour. It says that its clock is wrong."""
    try:
        monkeypatch.setattr(CLOCK, "_wall", lambda: time.time() - 864_000.0)
        CLOCK.restart()
        with running_application(tmp_path / "wrong", database=database) as client:
            assert "s behind the database" in client.get("/readyz").json()["warning"]
            mine = subscribe(client, "n = 1", ttl_seconds=3_600.0)
        monkeypatch.undo()
        CLOCK.restart()
        with running_application(tmp_path / "right", database=database, sweep_seconds=0.01) as client:
            assert publish(client, n=1) == 1
            assert waiting(client, mine) == [{"n": 1}]
    finally:
        monkeypatch.undo()
        CLOCK.restart()


def test_a_vocabulary_that_cannot_be_prepared_because_the_database_is_away_is_a_line_in_the_log(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """And no stack trace. The vocabulary holds at both servers."""

    async def away(*_: object) -> None:
        raise StoreUnavailable("the database cannot be reached")

    monkeypatch.setattr(Preparation, "_made", away)
    with running_two(database, tmp_path) as (first, second):
        ontology = "@prefix : <http://e/> . @prefix s: <http://www.w3.org/2000/01/rdf-schema#> . :A s:subClassOf :B ."
        put = first.put("/v1/ontologies/x", content=ontology, headers={"Content-Type": "text/turtle"})
        assert put.status_code == 201
        assert second.get("/v1/concepts/resolve?term=A").status_code == 200
    said = [each for each in caplog.records if "cannot be prepared" in each.getMessage()]
    assert [each.exc_info for each in said] == [None]


def test_what_a_promoted_replica_lacks_is_forgotten(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if others have made as many commits since: the number of a lost subscription may be that of another one."""
    with running_application(tmp_path, database=database) as client:
        lost, kept = subscribe(client, "n = 1"), subscribe(client, "n = 2")
        engine = create_engine(driver_url(database))
        with engine.begin() as connection:
            connection.execute(text("UPDATE ledger SET commits = commits + 5"))
            connection.execute(text("DELETE FROM subscriptions WHERE id = :id"), {"id": lost["id"]})
            there = connection.execute(text("SELECT pg_backend_pid()")).scalar_one()
            monkeypatch.setattr(servers, "timeline", lambda _: "00000009")
            others = text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = :of AND pid <> :me")
            connection.execute(others, {"me": there, "of": engine.url.database})
        engine.dispose()
        until(lambda: client.get("/readyz").status_code == 200)
        assert [publish(client, n=n) for n in (1, 2)] == [0, 1]
        assert waiting(client, kept) == [{"n": 2}]


def test_a_data_folder_is_of_one_server(database: str, tmp_path: Path) -> None:
    """The second server is refused while the first runs, and not afterwards."""
    with running_application(tmp_path, database=database) as client:
        refused = pytest.raises(StoreInUse, match="another server uses the data folder")
        with refused, running_application(tmp_path, database=database):
            pass
        assert publish(client, n=1) == 0
    with running_application(tmp_path, database=database):
        pass


def test_an_event_is_accepted_once_whichever_server_gets_it(database: str, tmp_path: Path) -> None:
    with running_two(database, tmp_path) as (first, second):
        event = {"specversion": "1.0", "source": "s", "id": "1", "type": "t", "data": {"n": 1}}
        headers = {"Content-Type": "application/cloudevents+json"}
        answers = [
            client.post("/v1/events", json=event, headers=headers).json()["events"][0] for client in (first, second)
        ]
        assert [each.get("duplicate", False) for each in answers] == [False, True]
        assert answers[0]["sequence"] == answers[1]["sequence"]


def test_an_activation_at_one_server_holds_at_the_other(database: str, tmp_path: Path) -> None:
    """Ontologies and declarations: what is published at the other after the answer is matched under them, and what was
    subscribed in between at the other is not lost."""
    with running_two(database, tmp_path) as (first, second):
        before = subscribe(second, "n = 1")
        answer = first.put("/v1/ontologies/x", content=TURTLE, headers={"Content-Type": "text/turtle"})
        assert answer.status_code == 201, answer.text
        made = subscribe(second, "target isa Computer")
        assert publish(first, target="laptop", n=1) == 2
        assert publish(second, target="laptop") == 1
        assert second.put("/v1/attributes/value", json={"unit": "degC"}).status_code in (200, 201)
        warm = subscribe(first, "value > 30 degC")
        assert publish(first, value="100 degF") == publish(second, value="100 degF") == 1
        assert len(waiting(first, warm)) == 2
        assert len(waiting(first, made)) == 2
        assert len(waiting(first, before)) == 1
        told = [client.get("/v1/concepts/resolve?term=laptop").json() for client in (first, second)]
        assert told[0]["vocabulary_version"] == told[1]["vocabulary_version"]


def test_an_activation_ends_although_the_other_server_could_not_say_that_it_has_it(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connection broke just then. It says so with a heartbeat."""
    said, failed = servers.note_applied, list[int]()

    def broken(connection: Connection, id: str, commits: int) -> None:
        if not failed:
            failed.append(commits)
            raise OperationalError("UPDATE servers", {}, OSError("the connection broke"))
        said(connection, id, commits)

    with running_two(database, tmp_path, lease_seconds=10.0) as (first, second):
        monkeypatch.setattr(servers, "note_applied", broken)
        answer = first.put("/v1/ontologies/x", content=TURTLE, headers={"Content-Type": "text/turtle"}, timeout=30.0)
        assert answer.status_code == 201, answer.text
        subscribe(second, "target isa Computer")
        assert publish(first, target="laptop") == 1
    assert len(failed) == 1


def test_activations_at_both_servers_at_once_all_hold(database: str, tmp_path: Path) -> None:
    """Each is built on the one before, whichever server made that: none is lost."""
    with running_two(database, tmp_path) as servers:
        done: list[int] = []

        def declare(number: int) -> None:
            path = f"/v1/attributes/a{number}"
            done.append(servers[number % 2].put(path, json={"unit": "degC"}).status_code)

        threads = [threading.Thread(target=declare, args=(number,)) for number in range(6)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert done == [201] * 6
        for server in servers:
            made = subscribe(server, " or ".join(f"a{number} > 30 degC" for number in range(6)))
            assert [publish(server, **{f"a{number}": "100 degF"}) > 0 for number in range(6)] == [True] * 6
            assert not made["notes"]


def test_operators_registered_at_one_server_are_known_at_the_other(database: str, tmp_path: Path) -> None:
    settings = {"allow_private_sinks": True, "plugins": False, "operator_delays_seconds": ()}
    with running_two(database, tmp_path, **settings) as (first, second):
        nobody = {"url": "http://127.0.0.1:9/", "timeout_seconds": 0.2}
        assert first.put("/v1/operators/nobody", json=nobody).status_code == 201
        made = subscribe(second, "nobody()")
        assert second.post("/v1/events", json={"n": 6}).json()["events"][0]["undecided"] == 1
        until(lambda: show(first, made).json()["undecided"] == 1)
        assert first.delete("/v1/operators/nobody").status_code == 409


def circuit_at(server: httpx.Client, name: str) -> dict[str, Any]:
    circuit: dict[str, Any] = server.get(f"/v1/operators/{name}").raise_for_status().json()["circuit"]
    return circuit


def test_the_circuit_of_an_operator_is_the_same_at_all_servers(database: str, tmp_path: Path) -> None:
    """It opens at one server: the other does not call the operator either. After the pause one of them calls it once;
    when that call is answered, the circuit closes at both. Another registration begins with a closed one."""
    settings = {"allow_private_sinks": True, "plugins": False, "operator_delays_seconds": ()}
    with running_service() as service, running_two(database, tmp_path, **settings) as (first, second):
        broken = {"url": f"{service.url}/error", "retries": 0}
        assert first.put("/v1/operators/broken", json=broken).status_code == 201
        subscribe(first, "broken()")
        until(lambda: circuit_at(second, "broken") == {"state": "closed"})
        began = time.monotonic()
        for n in range(5):
            first.post("/v1/match", json={"event": {"n": n}}).raise_for_status()
        assert service.asked()["/error"] == 5
        until(lambda: circuit_at(second, "broken").get("failures_in_a_row", 0) >= 5)
        for _ in range(40):  # both ask again and again, as long as some pauses last
            for server in (first, second):
                server.post("/v1/match", json={"event": {"n": 1}}).raise_for_status()
            time.sleep(0.1)
        asked = service.asked()["/error"]
        assert asked <= 5 + math.log2(1 + time.monotonic() - began)  # after pauses of 1, 2, 4, … s; 80 were wanted
        until(lambda: circuit_at(first, "broken") == circuit_at(second, "broken"))
        assert circuit_at(first, "broken")["failures_in_a_row"] == asked
        good = {"url": f"{service.url}/yes", "retries": 0}
        assert second.put("/v1/operators/broken", json=good).status_code == 200
        until(lambda: circuit_at(first, "broken") == circuit_at(second, "broken") == {"state": "closed"})
        assert len(first.post("/v1/match", json={"event": {"n": 1}}).json()["matches"]) == 1


def test_a_circuit_stays_open_after_a_restart_and_closes_at_both_by_one_call(database: str, tmp_path: Path) -> None:
    settings = {"allow_private_sinks": True, "plugins": False, "operator_delays_seconds": ()}
    with running_service() as service:
        with running_two(database, tmp_path, **settings) as (first, _):
            url = {"url": f"{service.url}/yes", "retries": 0}
            assert first.put("/v1/operators/there", json=url).status_code == 201
            subscribe(first, "there()")
            service.kill()
            for n in range(5):
                first.post("/v1/match", json={"event": {"n": n}}).raise_for_status()
            until(lambda: circuit_row(database, "there") is not None)
        with running_two(database, tmp_path, **settings) as (first, second):
            for server in (first, second):
                until(lambda server=server: circuit_at(server, "there")["state"] != "closed")
            service.start()
            until(lambda: first.post("/v1/match", json={"event": {"n": 1}}).json()["matches"])
            until(lambda: circuit_at(second, "there") == {"state": "closed"})


@pytest.mark.parametrize("step", ["submit", "read"])
def test_another_registration_does_not_take_over_the_circuit_of_the_one_before(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Although the state of that one was about to be stored, or had just been read, when the operator changed."""
    arrived, released, ended = threading.Event(), threading.Event(), threading.Event()
    execute = getattr(Broker, step)

    async def delayed(self: Broker, work: Any) -> Any:
        if released.is_set() and work is find_circuits:
            ended.set()  # the exchange that read before: they come one after another
        stores = isinstance(work, partial) and work.func is operator_clients._store_circuits
        found = None if stores else await execute(self, work)
        if stores or (work is find_circuits and found):
            arrived.set()
            await asyncio.to_thread(released.wait)
        if stores:
            found = await execute(self, work)
            ended.set()
        return found

    monkeypatch.setattr(Broker, step, delayed)
    settings = {"allow_private_sinks": True, "plugins": False, "operator_delays_seconds": ()}
    with running_service() as service, running_application(tmp_path, database=database, **settings) as server:
        broken = {"url": f"{service.url}/error", "retries": 0}
        server.put("/v1/operators/x", json=broken).raise_for_status()
        subscribe(server, "x()")
        for n in range(FAILURES):
            server.post("/v1/match", json={"event": {"n": n}}).raise_for_status()
        assert arrived.wait(20)
        server.put("/v1/operators/x", json=broken).raise_for_status()
        assert circuit_at(server, "x") == {"state": "closed"}
        released.set()
        assert ended.wait(20)
        assert circuit_row(database, "x") is None
        assert circuit_at(server, "x") == {"state": "closed"}


def circuit_row(database: str, name: str) -> Any:
    engine = create_engine(driver_url(database))
    with engine.connect() as connection:
        row = connection.execute(text("SELECT until FROM circuits WHERE operator = :name"), {"name": name}).first()
    engine.dispose()
    return row


def test_one_server_at_a_time_may_test_an_operator(database: str, tmp_path: Path) -> None:
    """By the clock of the database. The right ends with its time, or when the result is stored."""
    with running_application(tmp_path, database=database):
        engine = create_engine(driver_url(database))

        def claim(seconds: float = 60.0) -> bool:
            with engine.begin() as connection:
                return claim_probe(connection, "o", seconds)

        def store(left: float | None) -> None:
            with engine.begin() as connection:
                store_circuit(connection, CircuitState("o", 5, 2.0, left, "no\0 answer"))

        assert claim()  # nothing is known of it
        store(60.0)
        assert not claim()
        with engine.begin() as connection:
            told = find_circuits(connection)[0]
        assert (told.operator, told.failures, told.pause, told.reason) == ("o", 5, 2.0, "no answer")
        assert told.left is not None
        assert 50.0 < told.left <= 60.0
        store(-1.0)
        assert [claim(), claim()] == [True, False]
        store(-1.0)
        assert [claim(0.0), claim(0.0)] == [True, True]
        store(None)
        with engine.begin() as connection:
            assert find_circuits(connection)[0].left is None
            forget_circuit(connection, "o")
            assert find_circuits(connection) == []
        engine.dispose()


def test_statistics_of_operators_are_those_of_the_server_that_decides(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No lease ends meanwhile: a server that loses its lease reads what was stored, and forgets what was not."""
    monkeypatch.setattr(late_matching, "KEEP_SECONDS", 0.2)
    with running_service() as service:
        settings = {"allow_private_sinks": True, "plugins": False, "lease_seconds": 60.0}
        with running_two(database, tmp_path, **settings) as (first, second):
            first.put("/v1/operators/yes", json={"url": f"{service.url}/yes"}).raise_for_status()
            made = subscribe(first, "yes()")
            for n in range(3):
                second.post("/v1/events", json={"n": n}).raise_for_status()
            until(lambda: len(waiting(first, made)) == 3, told=lambda: waiting(first, made))

            def calls() -> list[int]:
                answers = [each.get("/v1/operators/yes").json() for each in (first, second)]
                return [each["learned"]["calls"] for each in answers]

            until(lambda: calls() == [3, 3], told=calls)


def test_a_stream_hears_of_events_of_the_other_server(database: str, tmp_path: Path) -> None:
    """A long poll at one ends when the other accepts a match: NOTIFY wakes, not a timer."""
    with running_two(database, tmp_path, lease_seconds=100.0) as (first, second):
        made = subscribe(first, "n = 1")
        later = threading.Timer(0.5, lambda: publish(second, n=1))
        later.start()
        began = time.monotonic()
        page = first.get(f"/v1/subscriptions/{made['id']}/events?wait=15").json()
        took = time.monotonic() - began
        later.join()
        assert [each["event"]["data"] for each in page["events"]] == [{"n": 1}]
        assert took < 10


def test_one_server_delivers_for_a_subscription(database: str, tmp_path: Path) -> None:
    """Both accept events; each message arrives once and in order."""
    with (
        running_receiver() as receiver,
        running_two(database, tmp_path, allow_private_sinks=True) as (first, second),
    ):
        subscribe(first, "n >= 0", sink=receiver.url + "/a")
        for n in range(20):
            assert publish((first, second)[n % 2], n=n) == 1
        receiver.wait_for("/a", 20)
        time.sleep(0.3)
        assert [each.message["event"]["data"]["n"] for each in receiver.requests("/a")] == list(range(20))


def test_status_shows_all_servers(database: str, tmp_path: Path) -> None:
    """Which live, how many subscriptions each delivers for, and one ledger."""
    settings = {"allow_private_sinks": True}
    with running_receiver() as receiver, running_two(database, tmp_path, **settings) as (first, second):
        subscribe(first, "n >= 0", sink=receiver.script("/a", *[500] * 1_000))
        publish(second, n=1)
        receiver.wait_for("/a", 1)
        told = [each.get("/v1/status").json() for each in (first, second)]
        names = [each["server"] for each in told]
        for each in told:
            assert [member["id"] for member in each["servers"]] == sorted(names)
            assert sum(member["leases"] for member in each["servers"]) == 1
            assert each["database"] == "postgresql"
            assert (each["ledger"]["accepted"], each["ledger"]["matches"], each["ledger"]["pending"]) == (1, 1, 1)
            assert each["lag_seconds"] > 0
            assert max(member["commit"] or 0 for member in each["servers"]) <= each["commits"]


def test_deliveries_go_on_at_the_other_server(database: str, tmp_path: Path) -> None:
    """The server that delivers stops: the other one takes its leases and what it owes."""
    settings = {"database": database, "allow_private_sinks": True}
    with running_receiver() as receiver, running_application(tmp_path / "second", **settings) as second:
        with running_application(tmp_path / "first", **settings) as first:
            subscribe(first, "n >= 0", sink=receiver.url + "/a")
            assert publish(first, n=0) == 1
            receiver.wait_for("/a", 1)
        assert publish(second, n=1) == 1
        receiver.wait_for("/a", 2)


def test_what_a_server_writes_without_its_lease_counts_for_nothing(database: str, tmp_path: Path) -> None:
    """A fence that is older than that of the table: the cursor stays where it is."""
    with running_application(tmp_path / "first", database=database) as first:
        made = subscribe(first, "n = 1", sink="https://sink.example/")
        publish(first, n=1)
        engine = create_engine(driver_url(database))

        async def body() -> tuple[int, int]:
            broker = Broker(Settings(data=tmp_path / "second", database=database))
            await broker.start()
            try:
                number = await broker.read(
                    lambda connection: connection.execute(text("SELECT number FROM subscriptions")).scalar_one()
                )
                until(lambda: broker.leases.membership is not None and broker.leases.membership.lives)
                assert await broker.leases.take([number]) == []  # the first one delivers
                with engine.begin() as connection:
                    connection.execute(text("UPDATE leases SET server = 'gone'"))
                assert await broker.leases.take([number]) == [number]
                fence = broker.leases.fence(number)
                assert fence == 2
                valid = await broker.execute(
                    lambda connection: broker.leases.valid(connection, {(number, 1), (number, fence)})
                )
                assert valid == {(number, fence)}
                broker.leases.membership.lapses += 1  # it was silent for too long, and nobody has said so here yet
                assert broker.leases.fence(number) is None
                assert await broker.leases.take([number]) == [number]
                assert broker.leases.fence(number) == fence
                return number, fence
            finally:
                await broker.stop()

        asyncio.run(body())
        engine.dispose()
        assert show(first, made).json()["pending"] == 1


def test_servers_of_versions_that_understand_each_other_run_beside_each_other(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as earlier:
        earlier.setattr("kindcast.server.broker.broker.version", lambda name: "0.0.1")
        first = running_application(tmp_path / "first", database=database)
        client = first.__enter__()
    try:
        with running_application(tmp_path / "second", database=database) as second:
            made = subscribe(client, "n = 1")
            assert publish(second, n=1) == 1
            assert show(client, made).json()["pending"] == 1
            programs = {each["program"] for each in second.get("/v1/status").json()["servers"]}
            assert len(programs) == 2
    finally:
        first.__exit__(None, None, None)


@pytest.mark.parametrize("part", ["format", "number"])
def test_a_server_that_another_one_would_misread_is_refused(database: str, tmp_path: Path, part: str) -> None:
    """Servers of one database match by the same rules and read what the others write."""
    with running_application(tmp_path / "first", database=database) as first:
        program = first.get("/v1/status").json()["servers"][0]["program"]
        other = re.sub(rf"(?<={part} )\d+", "999", program)
        engine = create_engine(driver_url(database))
        with engine.begin() as connection:
            connection.execute(
                text("INSERT INTO servers VALUES ('x', :program, clock_timestamp() + interval '1 hour', 0)"),
                {"program": other},
            )
        engine.dispose()
        with pytest.raises(StoreInUse, match=f"{part} 999 .* stop the other servers first"):
            asyncio.run(Broker(Settings(data=tmp_path / "second", database=database)).start())


def test_the_database_is_restarted(tmp_path: Path) -> None:
    """Connections end; the next requests are answered by new ones, or with 503 while a server cannot say in time that
    it lives, and nothing is lost."""
    with running_postgresql() as cluster, running_two(cluster.new_database(), tmp_path) as (first, second):
        made = subscribe(first, "n = 1")
        assert publish(second, n=1) == 1
        cluster.restart()

        def answer(server: httpx.Client, method: str, path: str, **body: Any) -> httpx.Response:
            """Asks until the answer is not 503."""
            given: list[httpx.Response] = []

            def is_given() -> bool:
                given.append(server.request(method, path, **body))
                return given[-1].status_code != 503

            until(is_given)
            return given[-1]

        for server in (first, second):
            assert answer(server, "GET", "/v1/events/1/trace").status_code == 200
            assert answer(server, "POST", "/v1/events", json={"n": 1}).status_code == 202
        for server in (first, second):
            page = answer(server, "GET", f"/v1/subscriptions/{made['id']}/events").json()
            assert len(page["events"]) == 3
            assert answer(server, "GET", "/readyz").status_code == 200


def test_a_server_that_cannot_write_its_heartbeat_is_not_ready(
    database: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It refuses all changes, and says so where it is looked after, and afterwards in its log."""
    with running_application(tmp_path, database=database, lease_seconds=1.0) as client:
        assert client.get("/readyz").status_code == 200
        engine = create_engine(driver_url(database))

        def rename(old: str, new: str) -> None:
            with engine.begin() as connection:
                connection.execute(text(f"ALTER TABLE {old} RENAME TO {new}"))

        rename("servers", "elsewhere")
        until(lambda: "in time" in client.post("/v1/events", json={"n": 1}).text)
        assert client.get("/readyz").status_code == 503
        rename("elsewhere", "servers")
        engine.dispose()
        until(lambda: client.get("/readyz").status_code == 200)
        assert client.get("/v1/status").json()["trouble"] is None
    assert "the others went on without it" in caplog.text


def test_a_server_that_others_did_not_wait_for_answers_nothing_from_before(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request that needs no database is refused as well, until the server has applied what it missed."""
    silent, outdated = set[str](), list[str]()
    beat, catch_up = Membership._beat, OtherServers._catch_up

    def broken(self: Membership, connection: Any) -> None:
        if self.id in silent:
            raise OSError("the connection broke")
        beat(self, connection)

    def late(self: OtherServers, connection: Connection, locked: servers.Locked) -> None:
        if self.id in outdated:
            raise OperationalError("SELECT", {}, OSError("the connection broke"))
        catch_up(self, connection, locked)

    monkeypatch.setattr(Membership, "_beat", broken)
    monkeypatch.setattr(OtherServers, "_catch_up", late)

    def answers(server: httpx.Client) -> list[int]:
        return [
            server.get("/v1/concepts/resolve?term=laptop").status_code,
            server.post("/v1/match", json={"event": {"target": "laptop"}}).status_code,
            server.post("/v1/subscriptions", json={"expression": "target isa Computer"}).status_code,
        ]

    with running_two(database, tmp_path, lease_seconds=1.0) as (first, second):
        name = second.get("/v1/status").json()["server"]
        silent.add(name)
        outdated.append(name)
        until(lambda: second.get("/v1/ontologies").status_code == 503)
        assert load(first).status_code == 201
        assert answers(second) == [503, 503, 503]
        assert [second.get(path).status_code for path in ("/healthz", "/metrics", "/v1/status")] == [200, 200, 200]
        assert "kindcast_database_up 0" in second.get("/metrics").text  # not asked for: it may not answer
        silent.clear()
        until(lambda: len(first.get("/v1/status").json()["servers"]) == 2)
        assert answers(second) == [503, 503, 503]
        outdated.clear()
        until(lambda: second.get("/v1/ontologies").status_code == 200)
        assert answers(second) == [200, 200, 201]


def test_a_server_that_is_silent_within_a_group_does_not_stop_the_others(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a pipeline of the driver PostgreSQL does not notice it: its own timeout is not running."""
    monkeypatch.setattr(membership, "STUCK_SECONDS", 1.0)
    engine = create_engine(driver_url(database))
    with running_application(tmp_path, database=database) as client, engine.connect() as silent:
        silent.exec_driver_sql("SET idle_in_transaction_session_timeout = '1s'")
        silent.commit()
        silent.exec_driver_sql("SELECT FROM ledger FOR UPDATE")
        silent.exec_driver_sql("CREATE TEMPORARY TABLE several (n integer)")
        silent.exec_driver_sql("INSERT INTO several VALUES (%s)", [(n,) for n in range(100)])
        try:
            assert client.post("/v1/events", json={"n": 1}, timeout=20.0).status_code == 202
        finally:
            silent.invalidate()
    engine.dispose()


@pytest.mark.parametrize("changes", [False, True])
def test_a_snapshot_is_used_if_another_server_only_accepted_events_meanwhile(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, changes: bool
) -> None:
    """Between writing and naming it. If it changed subscriptions, they are all compiled again."""
    caplog.set_level("INFO", logger="kindcast")
    meanwhile: list[Callable[[], object]] = []
    writes = Snapshots._write

    def write(self: Snapshots, state: State) -> str | None:
        token = writes(self, state)
        while meanwhile:
            meanwhile.pop()()
        return token

    monkeypatch.setattr(Snapshots, "_write", write)
    with running_application(tmp_path / "second", database=database) as second:
        with running_application(tmp_path / "first", database=database) as first:
            subscribe(first, "n = 1")
            meanwhile.append(lambda: subscribe(second, "n = 1") if changes else publish(second, n=1))
        caplog.clear()
        with running_application(tmp_path / "first", database=database) as first:
            assert ("with a snapshot of 1" in caplog.text) != changes
            assert publish(first, n=1) == (2 if changes else 1)


def test_servers_that_start_at_the_same_time_on_an_empty_database(database: str, tmp_path: Path) -> None:
    """One makes the tables, the others wait for it."""
    with ExitStack() as stack:
        started: list[httpx.Client] = []
        contexts = [running_application(tmp_path / str(number), database=database) for number in range(3)]
        threads = [threading.Thread(target=lambda each=each: started.append(each.__enter__())) for each in contexts]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        for context in contexts:
            stack.push(context)
        assert len(started) == 3
        made = subscribe(started[0], "n = 1")
        assert [publish(each, n=1) for each in started] == [1, 1, 1]
        assert len(waiting(started[2], made)) == 3


def test_a_commit_whose_answer_was_lost_is_looked_for_under_its_server(database: str, tmp_path: Path) -> None:
    """It is there where the group was committed, and only then: the commits of others, and names of transactions that
    PostgreSQL gives twice after a crash, say nothing."""
    with running_two(database, tmp_path) as (first, second):
        assert publish(first, n=1) == 0
        assert publish(second, n=1) == 0
        engine = create_engine(driver_url(database))
        with engine.begin() as connection:
            rows = connection.execute(text("SELECT server, commit FROM own_commits")).all()
            commits = connection.execute(text("SELECT commits FROM ledger")).scalar_one()
            assert len(rows) == 2
            assert max(commit for _, commit in rows) == commits
            for server, commit in rows:
                assert commit_is_there(connection, server, commit)
                assert not commit_is_there(connection, server, commit + 1)
        engine.dispose()


def test_a_job_of_one_server_is_told_by_all(database: str, tmp_path: Path) -> None:
    """An upload and a backtest; also those that failed. After a while they are forgotten everywhere."""
    headers = {"Content-Type": "text/turtle", "Prefer": "respond-async"}
    with running_two(database, tmp_path, max_jobs=3) as (first, second):

        def ended(begun: httpx.Response) -> dict[str, Any]:
            assert begun.status_code == 202, begun.text
            address = begun.headers["location"]
            assert second.get(address).json()["id"] == begun.json()["id"], "known at once"
            until(lambda: second.get(address).json()["status"] != "running")
            assert first.get(address).json() == second.get(address).json()
            found: dict[str, Any] = second.get(address).json()
            return found

        done = ended(first.put("/v1/ontologies/x", content=TURTLE, headers=headers))
        assert (done["status"], done["result"]["name"]) == ("done", "x")
        failed = ended(first.put("/v1/ontologies/y", content="no turtle", headers=headers))
        assert (failed["status"], failed["problem"]["status"]) == ("failed", 400)
        publish(second, n=1)
        assert ended(first.post("/v1/backtests", json={"expression": "n = 1"}))["result"]["matched"] == 1
        ended(first.post("/v1/backtests", json={"expression": "n = 1"}))
        until(lambda: second.get(f"/v1/jobs/{done['id']}").status_code == 404)
        assert second.get(f"/v1/jobs/{failed['id']}").status_code == 200


def test_a_job_whose_server_ended_is_unknown(database: str, tmp_path: Path) -> None:
    """What it was to do has not happened, or is seen by its effect; nobody waits for it for ever."""
    told = '{"id": "job_1", "status": "running", "progress": {"stage": "parse", "done": 1, "total": null}}'
    with running_application(tmp_path / "second", database=database) as second:
        engine = create_engine(driver_url(database))
        with engine.begin() as connection:
            connection.execute(
                text("INSERT INTO jobs (id, server, told, ended_at) VALUES ('job_1', 'x', :told, NULL)"), {"told": told}
            )
        assert second.get("/v1/jobs/job_1").status_code == 404
        with engine.begin() as connection:
            connection.execute(text("UPDATE jobs SET ended_at = clock_timestamp()"))
        assert second.get("/v1/jobs/job_1").json()["progress"]["stage"] == "parse"
        engine.dispose()


# ── an activation is prepared by all servers ──────────────────────────────────────────────────────────────────────────

SECOND = f'{TURTLE} :Slate rdfs:subClassOf :Computer ; rdfs:label "slate" .'
"""Another version, under which a slate is a computer too."""


def load(server: httpx.Client, document: str = TURTLE, name: str = "x") -> httpx.Response:
    return server.put(f"/v1/ontologies/{name}", content=document, headers={"Content-Type": "text/turtle"})


def before_commits(monkeypatch: pytest.MonkeyPatch, work: Callable[[], object], calls: int = 1) -> list[object]:
    """Has `work` done by a server that activates, after all servers have prepared and before the commit. Returns what
    it returned so far."""
    waits, done = Broker.wait_for_others, list[object]()

    async def wait(self: Broker, token: str, seconds: float) -> None:
        await waits(self, token, seconds)
        if len(done) < calls:
            done.append(await asyncio.to_thread(work))

    monkeypatch.setattr(Broker, "wait_for_others", wait)
    return done


def swapped(caplog: pytest.LogCaptureFixture) -> list[tuple[int, int]]:
    """Of each vocabulary that a server had prepared and swapped in: the subscriptions, and those changed meanwhile."""
    return [
        (int(subscriptions), int(changed))
        for subscriptions, changed in re.findall(r"swapped in .*: (\d+) subscriptions, of which (\d+)", caplog.text)
    ]


def compiled_again(caplog: pytest.LogCaptureFixture) -> int:
    """How often a server has read and compiled everything, at a start or later."""
    return sum(each.msg.startswith("restored ") for each in caplog.records)


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> pytest.LogCaptureFixture:
    """The log. Servers wait for each other as long as it takes."""
    monkeypatch.setattr("kindcast.server.broker.vocabulary_commands.PATIENCE_SECONDS", 10_000.0)
    caplog.set_level("INFO", logger="kindcast")
    return caplog


def nothing_is_left(database: str) -> bool:
    """No announcement, and no answer to one."""
    engine = create_engine(driver_url(database))
    with engine.connect() as connection:
        left = connection.execute(text("SELECT (SELECT count(*) FROM upcoming) + (SELECT count(*) FROM preparations)"))
        count = left.scalar_one()
    engine.dispose()
    return bool(count == 0)


def test_an_activation_is_prepared_by_the_other_server_which_accepts_meanwhile(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: pytest.LogCaptureFixture
) -> None:
    """It swaps in what it has prepared. What came, went, was paused or resumed at either server after it had prepared
    counts as well."""
    with running_two(database, tmp_path, lease_seconds=10.0) as (first, second):
        assert load(first).status_code == 201
        stays, goes, sleeps, wakes = (subscribe(second, f"target isa Computer and n = {n}") for n in range(4))
        paths = {each["id"]: f"/v1/subscriptions/{each['id']}" for each in (goes, sleeps, wakes)}
        assert first.post(f"{paths[wakes['id']]}/pause", headers=ticket(wakes)).status_code == 200
        came: list[dict[str, Any]] = []

        def work() -> list[int]:
            came.append(subscribe(second, "target isa Computer and n = 4"))
            came.append(subscribe(first, "target isa Computer and n = 5"))
            assert first.delete(paths[goes["id"]], headers=ticket(goes)).status_code == 200
            assert second.post(f"{paths[sleeps['id']]}/pause", headers=ticket(sleeps)).status_code == 200
            assert second.post(f"{paths[wakes['id']]}/resume", headers=ticket(wakes)).status_code == 200
            return [publish(second, target=each, n=0) for each in ("laptop", "slate")]

        done = before_commits(monkeypatch, work)
        before = compiled_again(log)
        assert load(first, SECOND).status_code == 201
        assert done == [[1, 0]], "the vocabulary from before is in force"
        assert [publish(second, target="slate", n=n) for n in range(6)] == [1, 0, 0, 1, 1, 1]
        assert [publish(first, target="slate", n=n) for n in range(6)] == [1, 0, 0, 1, 1, 1]
        assert swapped(log)[-1] == (5, 5)
        assert compiled_again(log) == before
        assert [len(waiting(first, each)) for each in (stays, *came)] == [3, 2, 2]
        assert nothing_is_left(database)


def test_every_change_of_the_vocabulary_is_prepared(
    database: str, tmp_path: Path, log: pytest.LogCaptureFixture
) -> None:
    """Ontologies, versions that return, declarations and deletions, in turns at both servers. A subscription loses its
    meaning and gets it back."""
    with running_two(database, tmp_path, lease_seconds=10.0) as (first, second):
        before = compiled_again(log)
        assert load(first).status_code == 201
        made = subscribe(second, "target isa Computer")
        warm = subscribe(second, "value > 30 degC")
        assert load(second, f'{PREFIX} :Slate rdfs:label "slate" .').status_code == 201
        assert [publish(each, target="laptop") for each in (first, second)] == [0, 0]
        assert first.post("/v1/ontologies/x/activate?version=1").status_code == 200
        assert [publish(each, target="laptop") for each in (first, second)] == [1, 1]
        assert load(first, f'{PREFIX} :Pan rdfs:label "pan" .', name="y").status_code == 201
        assert second.delete("/v1/ontologies/y").status_code == 200
        assert [publish(each, value=31) for each in (first, second)] == [0, 0]
        assert second.put("/v1/attributes/value", json={"unit": "degC"}).status_code == 201
        assert [publish(each, value=31) for each in (first, second)] == [1, 1]
        assert first.delete("/v1/attributes/value").status_code == 200
        assert [publish(each, value=31) for each in (first, second)] == [0, 0]
        assert [count for count, _ in swapped(log)] == [0, 2, 2, 2, 2, 2, 2]
        assert compiled_again(log) == before
        assert [len(waiting(first, each)) for each in (made, warm)] == [2, 2]


def test_an_activation_that_is_refused_leaves_nothing(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: pytest.LogCaptureFixture
) -> None:
    """A subscription needs the ontology, and came after all had prepared its deletion. The next activation is prepared
    and swapped in as usual."""
    with running_two(database, tmp_path, lease_seconds=10.0) as (first, second):
        assert load(first).status_code == 201
        done = before_commits(monkeypatch, lambda: subscribe(second, "target isa Computer")["id"])
        refused = first.delete("/v1/ontologies/x")
        assert refused.status_code == 409, refused.text
        assert str(done[0]) in refused.text
        assert nothing_is_left(database)
        assert len(swapped(log)) == 1
        assert [publish(each, target="laptop") for each in (first, second)] == [1, 1]
        assert load(second, SECOND).status_code == 201
        assert [publish(each, target="slate") for each in (first, second)] == [1, 1]
        assert len(swapped(log)) == 2


def test_what_does_not_fit_is_not_swapped_in(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: pytest.LogCaptureFixture
) -> None:
    """An operator was registered after the other server had prepared: it reads everything again."""
    settings = {"allow_private_sinks": True, "plugins": False, "lease_seconds": 10.0}
    with running_service() as service, running_two(database, tmp_path, **settings) as (first, second):
        body = {"url": f"{service.url}/yes"}
        done = before_commits(monkeypatch, lambda: second.put("/v1/operators/yes", json=body).status_code)
        before = compiled_again(log)
        assert load(first).status_code == 201
        assert done == [201]
        assert swapped(log) == []
        assert compiled_again(log) > before
        made = subscribe(second, "target isa Computer and yes()")
        assert second.post("/v1/events", json={"target": "laptop"}).status_code == 202
        until(lambda: len(waiting(first, made)) == 1)


def test_what_was_prepared_fits_one_version_alone() -> None:
    """Not another version, not after other operators, not beyond the end of the log."""
    vocabulary = Vocabulary.from_ontologies(())
    state = State(LiveSubscriptions(Matcher(vocabulary)), Matcher)
    prepared = PreparedVocabulary(vocabulary, state, state.operators, ReadTrees(7, []))
    assert prepared.fits(vocabulary.version, state.operators, 8)
    assert not prepared.fits("other", state.operators, 8)
    assert not prepared.fits(None, state.operators, 8)
    assert not prepared.fits(vocabulary.version, replace(state.operators), 8)
    assert not prepared.fits(vocabulary.version, state.operators, 8 + KEPT_COMMITS)


def test_a_vocabulary_that_is_activated_again_is_kept(
    database: str, tmp_path: Path, log: pytest.LogCaptureFixture
) -> None:
    """The other server compiles nothing. Whether a subscription that came meanwhile matches is not affected."""
    with running_two(database, tmp_path, lease_seconds=10.0) as (first, second):
        assert load(first).status_code == 201
        subscribe(second, "target isa Computer")
        before = compiled_again(log), len(swapped(log))
        assert first.post("/v1/ontologies/x/activate?version=1").status_code == 200
        assert "kept the vocabulary" in log.text
        subscribe(first, "target isa Computer")
        assert [publish(each, target="laptop") for each in (first, second)] == [2, 2]
        assert (compiled_again(log), len(swapped(log))) == before


def test_a_server_that_cannot_prepare_reads_the_vocabulary_after_the_commit(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: pytest.LogCaptureFixture
) -> None:
    """The activation does not wait for it."""

    def fail(*_: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr("kindcast.server.broker.membership.unpacked", fail)
    with running_two(database, tmp_path, lease_seconds=10.0) as (first, second):
        before = compiled_again(log)
        assert load(first).status_code == 201
        assert compiled_again(log) == before + 1
        made = subscribe(second, "target isa Computer")
        assert [publish(each, target="laptop") for each in (first, second)] == [1, 1]
        assert len(waiting(second, made)) == 2


def test_a_server_that_is_too_slow_is_not_waited_for(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: pytest.LogCaptureFixture
) -> None:
    """It reads the vocabulary after the commit. What it prepares later is not used."""
    goes_on, prepared = threading.Event(), threading.Event()

    def wait(*arguments: Any) -> Any:
        assert goes_on.wait(60.0)
        prepared.set()
        return unpacked(*arguments)

    monkeypatch.setattr("kindcast.server.broker.membership.unpacked", wait)
    monkeypatch.setattr("kindcast.server.broker.vocabulary_commands.PATIENCE_SECONDS", 0.0)
    with running_two(database, tmp_path, lease_seconds=10.0) as (first, second):
        before = compiled_again(log)
        assert load(first).status_code == 201
        assert compiled_again(log) == before + 1
        late = first.get("/v1/concepts/resolve?term=laptop").json()["vocabulary_version"]
        subscribe(second, "target isa Computer")
        assert "have not prepared the vocabulary" in log.text
        assert [publish(each, target="laptop") for each in (first, second)] == [1, 1]
        goes_on.set()
        assert prepared.wait(60.0)
        assert load(first, SECOND).status_code == 201
        assert [publish(each, target="slate") for each in (first, second)] == [1, 1]
        assert f"prepared vocabulary {late}" not in log.text


@pytest.mark.slow
def test_a_server_that_dies_before_its_activation_leaves_nothing(database: str, tmp_path: Path) -> None:
    """The other server is stopped for a while, so that the first one waits for it, and is killed. The other one then
    prepares the vocabulary, forgets it, and activates one itself."""
    settings = {"KINDCAST_DATABASE": database, "KINDCAST_LEASE_SECONDS": "8"}
    with running_server(tmp_path / "dies", settings) as dies, running_server(tmp_path / "lives", settings) as lives:
        client = httpx.Client(base_url=lives.url, timeout=60.0)
        assert load(client).status_code == 201
        subscribe(client, "target isa Computer")
        lives.pause()
        with httpx.Client(base_url=dies.url, timeout=60.0) as other:
            answers: list[type[Exception]] = []

            def activate() -> None:
                try:
                    load(other, SECOND)
                except httpx.TransportError as error:
                    answers.append(type(error))

            thread = threading.Thread(target=activate)
            thread.start()
            until(lambda: not nothing_is_left(database))
            dies.kill()
            thread.join()
        lives.go_on()
        assert len(answers) == 1, "it was not answered"
        until(lambda: client.get("/readyz").status_code == 200)
        assert [publish(client, target=each) for each in ("laptop", "slate")] == [1, 0]
        until(lambda: len(client.get("/v1/status").json()["servers"]) == 1, 60.0)
        assert load(client, SECOND).status_code == 201
        assert publish(client, target="slate") == 1
        assert nothing_is_left(database)
        dies.start()
        with httpx.Client(base_url=dies.url, timeout=60.0) as other:
            assert publish(other, target="slate") == 1
            assert other.post("/v1/ontologies/x/activate?version=1").status_code == 200
        assert [publish(client, target=each) for each in ("laptop", "slate")] == [1, 0]
        assert "swapped in the prepared vocabulary" in lives.log.read_text()
        client.close()
