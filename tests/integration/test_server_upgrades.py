"""Servers of different versions on one database: a later version changes the tables while the others go on, or is
refused."""

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from sqlalchemy import Connection, create_engine, inspect, text

from kindcast.server.store.ledger import LAYOUT
from tests.harness.next_version import BREAKS, COLUMN, TABLE, VARIABLE
from tests.harness.postgresql import PostgreSQL, driver_url
from tests.harness.server_process import ServerProcess, running_server
from tests.harness.waiting import until
from tests.integration.test_server_keys import Keyed

NEXT = "tests.harness.next_version"


@pytest.fixture
def database(postgresql: PostgreSQL) -> str:
    return postgresql.new_database()


@contextmanager
def connected(database: str) -> Iterator[Connection]:
    engine = create_engine(driver_url(database))
    try:
        with engine.connect() as connection:
            yield connection
    finally:
        engine.dispose()


def layout_of(server: ServerProcess) -> int:
    return int(httpx.get(f"{server.url}/v1/status", timeout=30.0).json()["layout"])


def subscribe(server: ServerProcess) -> str:
    answer = httpx.post(f"{server.url}/v1/subscriptions", json={"expression": "n exists"}, timeout=30.0)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def publish(server: ServerProcess, id: int) -> int:
    """Returns the number of matches."""
    event = {"specversion": "1.0", "id": str(id), "source": "upgrades", "type": "t", "data": {"n": id}}
    headers = {"Content-Type": "application/cloudevents+json"}
    answer = httpx.post(f"{server.url}/v1/events", json=event, headers=headers, timeout=30.0)
    assert answer.status_code == 202, answer.text
    return int(answer.json()["events"][0]["matched"])


def received(server: ServerProcess, subscription: str) -> list[int]:
    page = httpx.get(f"{server.url}/v1/subscriptions/{subscription}/events?limit=1000", timeout=30.0).json()
    return [each["event"]["data"]["n"] for each in page["events"]]


@contextmanager
def publishing(server: ServerProcess) -> Iterator[list[int]]:
    """Publishes one event after another while the block runs. Each must be accepted; the list grows with them."""
    done, failed, stop = list[int](), list[BaseException](), threading.Event()

    def run() -> None:
        try:
            for id in itertools.count():
                if stop.is_set():
                    return
                publish(server, id)
                done.append(id)
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield done
    finally:
        stop.set()
        thread.join()
    assert not failed, failed


def test_a_later_version_adds_to_the_tables_beside_servers_of_this_one(database: str, tmp_path: Path) -> None:
    """Nobody has to stop: what one version acknowledged holds at the other, this version starts again beside it, and at
    the end all are of the later one."""
    settings = {"KINDCAST_DATABASE": database}
    with (
        running_server(tmp_path / "first", settings) as first,
        running_server(tmp_path / "second", settings) as second,
        running_server(tmp_path / "later", settings, start=False, module=NEXT) as later,
    ):
        mine = subscribe(second)
        with publishing(first) as published:
            until(lambda: published)
            later.start()
            assert {layout_of(server) for server in (first, second, later)} == {LAYOUT + 1}
            theirs = subscribe(later)
            assert publish(later, -1) == publish(second, -2) == 2
            second.stop()
            second.start()
            count = len(published)
            until(lambda: len(published) > count)
        ids = received(later, mine)
        assert sorted(ids) == [-2, -1, *published]
        assert received(second, mine) == ids
        assert set(received(first, theirs)) >= {-1, -2}
        first.kill()
        with running_server(tmp_path / "first", settings, module=NEXT) as newer:
            assert received(newer, mine) == ids
        with connected(database) as connection:
            rows = connection.execute(text(f"SELECT {COLUMN} FROM subscriptions")).scalars().all()
            assert rows == ["grey", "grey"]
            assert inspect(connection).has_table(TABLE)


def test_the_tables_of_a_tenant_are_changed_when_a_later_version_opens_them(database: str, tmp_path: Path) -> None:
    """The tenant is in use at a server of this version, which goes on with it."""
    settings = {"KINDCAST_DATABASE": database}
    with (
        running_server(tmp_path / "first", settings) as first,
        running_server(tmp_path / "later", settings, start=False, module=NEXT) as later,
        httpx.Client(base_url=first.url, timeout=30.0) as at_first,
        httpx.Client(base_url=later.url, timeout=30.0) as at_later,
    ):
        tenant = Keyed(at_first).key("admin", tenant="one")

        def published(client: httpx.Client) -> int:
            return int(client.post("/v1/events", json={"n": 1}, headers=tenant).json()["matched"])

        made = at_first.post("/v1/subscriptions", json={"expression": "n exists"}, headers=tenant)
        assert (made.status_code, published(at_first)) == (201, 1)
        later.start()
        assert [published(client) for client in (at_later, at_first, at_later)] == [1, 1, 1]
        page = at_first.get(f"/v1/subscriptions/{made.json()['id']}/events", headers=tenant).json()
        assert len(page["events"]) == 4
        with connected(database) as connection:
            columns = "SELECT table_schema FROM information_schema.columns WHERE column_name = :name"
            there = sorted(connection.execute(text(columns), {"name": COLUMN}).scalars())
        assert [name.startswith("kindcast_tenant_") for name in there] == [True, False]


@pytest.mark.parametrize("table", ["ledger", "subscriptions"])
def test_a_long_query_delays_the_later_version_and_nobody_else(database: str, tmp_path: Path, table: str) -> None:
    """The tables cannot be changed while it reads one. A start that is killed meanwhile changes nothing."""
    settings = {"KINDCAST_DATABASE": database}
    with (
        running_server(tmp_path / "first", settings) as first,
        running_server(tmp_path / "later", settings, start=False, module=NEXT) as later,
    ):
        subscribe(first)
        with connected(database) as connection, publishing(first) as published:
            connection.execute(text(f"SELECT count(*) FROM {table}")).scalar_one()
            later.start(wait=False)
            waits = "SELECT count(*) FROM pg_locks WHERE mode = 'AccessExclusiveLock' AND NOT granted"
            with connected(database) as watching:
                for _ in range(2):  # the first attempt, and a later one
                    until(lambda: watching.execute(text(waits)).scalar_one())
                    until(lambda: not watching.execute(text(waits)).scalar_one())
                    watching.rollback()
                    count = len(published)
                    until(lambda count=count: len(published) > count)  # type: ignore[misc]
            later.kill()
            assert layout_of(first) == LAYOUT
            later.start(wait=False)
            connection.rollback()
            until(lambda: layout_of(first) == LAYOUT + 1)
        later.wait_until_ready()
        assert publish(later, -1) == 1


def test_a_later_version_that_others_do_not_fit_waits_for_their_end(database: str, tmp_path: Path) -> None:
    settings = {"KINDCAST_DATABASE": database}
    with (
        running_server(tmp_path / "first", settings) as first,
        running_server(tmp_path / "later", {**settings, VARIABLE: BREAKS}, start=False, module=NEXT) as later,
    ):
        with pytest.raises(AssertionError, match=f"in layout {LAYOUT}, not {LAYOUT + 1}: stop the other servers first"):
            later.start()
        mine = subscribe(first)
        assert (publish(first, 1), layout_of(first)) == (1, LAYOUT)
        first.stop()
        later.start()
        assert received(later, mine) == [1]
        with pytest.raises(AssertionError, match=f"knows layout {LAYOUT + 1} .* knows layouts 1 to {LAYOUT}"):
            first.start()
        assert publish(later, 2) == 1


def test_this_version_opens_what_a_later_one_only_added_to(tmp_path: Path) -> None:
    """Also with SQLite: to go back, nothing has to be restored."""
    with running_server(tmp_path, module=NEXT) as later:
        mine = subscribe(later)
        assert publish(later, 1) == 1
        later.stop()
    with running_server(tmp_path) as server:
        assert layout_of(server) == LAYOUT + 1
        theirs = subscribe(server)
        assert publish(server, 2) == 2
        server.stop()
    with running_server(tmp_path, {VARIABLE: BREAKS}, module=NEXT) as later:
        assert (received(later, mine), received(later, theirs)) == ([1, 2], [2])


def test_layout_that_this_version_does_not_know_is_refused(tmp_path: Path) -> None:
    """A server does not guess what a newer one meant, and leaves the database as it is."""
    with running_server(tmp_path, {VARIABLE: BREAKS}, module=NEXT) as later:
        later.stop()
    refused = pytest.raises(AssertionError, match=f"knows layout {LAYOUT + 1} .* knows layouts 1 to {LAYOUT}")
    with refused, running_server(tmp_path):
        pass
    with running_server(tmp_path, {VARIABLE: BREAKS}, module=NEXT) as later:
        assert layout_of(later) == LAYOUT + 1
