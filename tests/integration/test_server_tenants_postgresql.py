"""Tenants on PostgreSQL, a schema each, and several servers: what one does holds at the others.

What tenants have on both kinds of database is in `test_server_tenants.py` and `test_server_shared_ontologies.py`.
"""

import json
import logging
import threading
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from sqlalchemy import URL, Connection, create_engine, insert, text, update
from sqlalchemy.exc import OperationalError

from kindcast.server import tenants
from kindcast.server.broker import broker
from kindcast.server.broker.membership import Membership
from kindcast.server.errors import StoreInDoubt, StoreUnavailable, StoreUnreadable, TenantExists
from kindcast.server.settings import Settings
from kindcast.server.store import system
from kindcast.server.store.database import Database, in_schema, normalised, schema_of, schema_of_tenant
from kindcast.server.store.system import SYSTEM_LOCK, AuditEntry, SystemStore, about, audit
from tests.harness.application import problem_code, running_application
from tests.harness.postgresql import PostgreSQL, driver_url
from tests.harness.receiver import running_receiver
from tests.harness.server_process import running_server
from tests.integration.test_server_keys import Keyed, until
from tests.integration.test_server_several import running_two

HEAD = "@prefix : <http://x.org/> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> . "
CATS = HEAD + ":Cat rdfs:subClassOf :Pet ."
DOGS = HEAD + ":Cat rdfs:subClassOf :Pet . :Dog rdfs:subClassOf :Pet ."


@pytest.fixture
def database(postgresql: PostgreSQL) -> str:
    """The URL of a database of our own."""
    return postgresql.new_database()


def publish(client: httpx.Client, headers: dict[str, str], **data: Any) -> int:
    answer = client.post("/v1/events", json=data, headers=headers)
    assert answer.status_code == 202, answer.text
    matched: int = answer.json()["matched"]
    return matched


def subscribe(client: httpx.Client, expression: str, headers: dict[str, str], **more: Any) -> str:
    answer = client.post("/v1/subscriptions", json={"expression": expression, **more}, headers=headers)
    assert answer.status_code == 201, answer.text
    id: str = answer.json()["id"]
    return id


@pytest.mark.parametrize(("settings", "is_said"), [({}, False), ({"max_open_tenants": 256}, True)])
def test_more_tenants_than_connections_are_told_at_the_start(
    database: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, settings: dict[str, Any], is_said: bool
) -> None:
    with running_application(tmp_path, database=database, **settings):
        until(lambda: "tenants" in caplog.text or not is_said)
    assert ("lower max_open_tenants" in caplog.text) is is_said


def put(client: httpx.Client, document: str, headers: dict[str, str], **params: Any) -> httpx.Response:
    more = {"Content-Type": "text/turtle"}
    return client.put("/v1/ontologies/pets", content=document, headers=headers | more, params=params)


def schemas(database: str) -> list[str]:
    """The schemas of tenants that are there."""
    engine = create_engine(driver_url(database))
    with engine.connect() as connection:
        rows = connection.execute(text("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'kindcast%' ORDER BY 1"))
        found = list(rows.scalars())
    engine.dispose()
    return found


def test_what_a_tenant_does_at_one_server_holds_at_the_others(database: str, tmp_path: Path) -> None:
    """Keys, subscriptions, events once, an ontology of its own; and nothing of it in another tenant."""
    with running_two(database, tmp_path) as (first, second):
        keyed = Keyed(first)
        one, two = keyed.key("admin", tenant="one"), keyed.key("admin", tenant="two")
        id = subscribe(first, "a = 1", one)
        assert publish(second, one, a=1) == 1
        assert publish(second, two, a=1) == 0
        page = first.get(f"/v1/subscriptions/{id}/events", headers=one).json()
        assert [each["event"]["data"] for each in page["events"]] == [{"a": 1}]
        assert second.get(f"/v1/subscriptions/{id}", headers=two).status_code == 404
        event = {"specversion": "1.0", "source": "s", "id": "1", "type": "t", "data": {"a": 1}}
        headers = {"Content-Type": "application/cloudevents+json"}
        counted = [
            client.post("/v1/events", json=event, headers=headers | tenant).json()["duplicates"]
            for client, tenant in ((first, one), (second, one), (second, two), (first, two))
        ]
        assert counted == [0, 1, 0, 1]
        assert put(second, CATS, one).status_code == 201
        subscribe(first, "b isa Pet", one)
        assert publish(second, one, b="Cat") == 1
        assert first.post("/v1/subscriptions", json={"expression": "b isa Pet"}, headers=two).status_code == 422
        assert len(schemas(database)) == 2


def test_tenants_that_are_open_at_another_server_follow_a_shared_ontology(database: str, tmp_path: Path) -> None:
    """`both` is open at both servers, `far` at the other one only, `shut` at none."""
    with running_two(database, tmp_path, tenant_idle_seconds=3_600) as (first, second):
        keyed = Keyed(first)
        both, far, shut = (keyed.key("admin", tenant=name) for name in ("both", "far", "shut"))
        subscribe(first, "a exists", both)
        subscribe(second, "a exists", both)
        subscribe(second, "a exists", far)
        for document, kind in ((CATS, "Cat"), (DOGS, "Dog")):
            answer = put(first, document, keyed.admin, shared=True)
            assert answer.status_code == 201, answer.text
            assert answer.json()["others"]["tenants"] == 3
            for client, headers in ((first, both), (second, both), (second, far), (first, far), (second, shut)):
                until(lambda: kind in client.get("/v1/concepts", params={"q": kind}, headers=headers).text)  # noqa: B023
            if kind == "Cat":
                subscribe(second, "a isa Pet", far)
            assert publish(second, far, a=kind) == 2
        refused = first.delete("/v1/ontologies/pets", headers=keyed.admin, params={"shared": True})
        assert (problem_code(refused), refused.json()["count"]) == ("ontology-in-use", 1)


def test_a_tenant_that_one_server_deletes_is_closed_by_the_others(database: str, tmp_path: Path) -> None:
    """Its schema is dropped, and a later tenant of the same name has nothing of it, at any server."""
    with running_two(database, tmp_path, tenant_idle_seconds=3_600) as (first, second):
        keyed = Keyed(first)
        made = keyed.make("admin", tenant="shop")
        mine = {"Authorization": f"Bearer {made['key']}"}
        subscribe(first, "a = 1", mine)
        assert publish(second, mine, a=1) == 1
        [schema] = schemas(database)
        assert first.delete(f"/v1/keys/{made['id']}", headers=keyed.admin).status_code == 200
        assert first.delete("/v1/tenants/shop", headers=keyed.admin).status_code == 200
        again = keyed.key("admin", tenant="shop")
        for client in (second, first):
            assert client.get("/v1/subscriptions", headers=again).json()["subscriptions"] == []
            assert publish(client, again, a=1) == 0
            assert made["id"] not in client.get("/v1/usage", headers=again).text
        until(lambda: schema not in schemas(database))
        assert len(schemas(database)) == 1


def test_a_tenant_is_closed_at_all_servers_when_its_deletion_is_answered(database: str, tmp_path: Path) -> None:
    """So a later one of the same name loses nothing that another server accepts at once."""
    with running_two(database, tmp_path, tenant_idle_seconds=3_600) as (first, second):
        keyed = Keyed(first)
        admin = keyed.admin | {"Kindcast-Tenant": "shop"}
        for _ in range(3):
            assert first.post("/v1/tenants", json={"name": "shop"}, headers=keyed.admin).status_code == 201
            assert publish(second, admin, a=1) == 0
            id = subscribe(second, "a = 1", admin)
            assert first.get(f"/v1/subscriptions/{id}", headers=admin).status_code == 200
            assert first.delete("/v1/tenants/shop", headers=keyed.admin).status_code == 200
            refused = second.post("/v1/events", json={"a": 1}, headers=admin)
            assert problem_code(refused) == "unknown-tenant"


def test_a_server_that_uses_a_tenant_while_another_one_deletes_it_logs_no_error(
    database: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its tables may be gone when it closes the tenant. The database can be reached, and nothing is lost."""
    with running_two(database, tmp_path, tenant_idle_seconds=3_600) as (first, second):
        keyed = Keyed(first)
        admin = keyed.admin | {"Kindcast-Tenant": "shop"}
        for _ in range(4):
            assert first.post("/v1/tenants", json={"name": "shop"}, headers=keyed.admin).status_code == 201
            assert publish(second, admin, a=1) == 0
            with ThreadPoolExecutor(1) as pool:
                deleted = pool.submit(first.delete, "/v1/tenants/shop", headers=keyed.admin)
                while not deleted.done():
                    second.post("/v1/events", json={"a": 1}, headers=admin)
            assert deleted.result().status_code == 200
        said = [each.getMessage() for each in caplog.records if each.levelno >= logging.ERROR]
    assert not said


def test_a_tenant_that_one_server_deletes_leaves_no_files_at_another(database: str, tmp_path: Path) -> None:
    """Neither where it is closed at the time nor where the server is stopped."""
    snapshots = tmp_path / "second" / "tenants"
    with running_application(tmp_path / "first", database=database) as first:
        keyed = Keyed(first)
        made = [keyed.make("admin", tenant=name) for name in ("idle", "stopped", "kept")]
        headers = [{"Authorization": f"Bearer {each['key']}"} for each in made]

        def delete(number: int, name: str) -> None:
            assert first.delete(f"/v1/keys/{made[number]['id']}", headers=keyed.admin).status_code == 200
            assert first.delete(f"/v1/tenants/{name}", headers=keyed.admin).status_code == 200

        with running_application(tmp_path / "second", database=database, tenant_idle_seconds=0.1) as second:
            for each in headers:
                subscribe(second, "a = 1", each)
            until(lambda: len(list(snapshots.glob("*/kindcast.index"))) == 3)
            delete(0, "idle")
            until(lambda: len(list(snapshots.iterdir())) == 2)
        delete(1, "stopped")
        of_sqlite = snapshots / "stopped" / "kindcast.db"
        (of_sqlite.parent / "kindcast.index").mkdir(parents=True)
        of_sqlite.touch()
        with running_application(tmp_path / "second", database=database) as second:
            until(lambda: len(list(snapshots.glob("*/kindcast.index"))) == 1)
            until(lambda: len(list(snapshots.iterdir())) == 2)
            assert of_sqlite.exists()
            assert publish(second, headers[2], a=1) == 1


def test_one_server_at_a_time_drops_the_schemas_of_deleted_tenants(database: str, tmp_path: Path) -> None:
    """Another one looks again later: a schema that disappears while it looks would be an error."""
    store = SystemStore(Settings(data=tmp_path, database=database))
    store.open()
    engine = create_engine(driver_url(database))
    with engine.begin() as other:
        other.execute(text(f"SELECT pg_advisory_xact_lock({SYSTEM_LOCK})"))
        assert store.drop_deleted() == ([], 1)
    assert store.drop_deleted() == ([], 0)
    engine.dispose()
    store.close()


def test_the_store_of_keys_goes_on_after_its_connection_ended(database: str, tmp_path: Path) -> None:
    """As after a restart of PostgreSQL: reading and writing, once each."""
    store = SystemStore(Settings(data=tmp_path, database=database))
    store.open()
    engine = create_engine(driver_url(database), isolation_level="AUTOCOMMIT")
    others = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"

    def end_connections() -> None:
        with engine.connect() as connection:
            assert list(connection.execute(text(f"SELECT pg_terminate_backend(pid) {others}")).scalars()) == [True]
            until(lambda: connection.execute(text(f"SELECT count(*) {others}")).scalar_one() == 0)

    end_connections()
    before = store.changes()
    end_connections()
    store.add_tenant("one", {}, 1.0)
    assert store.changes() == before + 1
    assert [each.name for each in store.load()[2]] == ["one"]
    engine.dispose()
    store.close()


def test_keys_are_read_again_after_the_connection_ended(database: str, tmp_path: Path) -> None:
    """As after the promotion of a replica that lacks changes: as many others may have been made since."""
    with running_application(tmp_path, database=database) as client:
        keyed = Keyed(client)
        lost = keyed.key("publisher", tenant="shop")
        assert client.post("/v1/events", json={"a": 1}, headers=lost).status_code == 202
        engine = create_engine(driver_url(database))
        with engine.begin() as connection:
            connection.execute(text("DELETE FROM system_keys WHERE tenant = 'shop'"))
            others = text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = :of AND pid <> :me")
            me = connection.execute(text("SELECT pg_backend_pid()")).scalar_one()
            connection.execute(others, {"me": me, "of": engine.url.database})
        engine.dispose()
        until(lambda: client.post("/v1/events", json={"a": 1}, headers=lost).status_code == 401)


def test_an_error_of_the_store_of_keys_tells_clients_no_values(database: str, tmp_path: Path) -> None:
    """PostgreSQL repeats them in its message, and clients see that of the server."""
    store = SystemStore(Settings(data=tmp_path, database=database))
    store.open()
    with pytest.raises(StoreUnavailable) as told:
        store.run(lambda connection: connection.execute(text("SELECT CAST('confidential' AS integer)")).close())
    assert "confidential" not in str(told.value)
    with pytest.raises(StoreUnavailable, match="no_such_table"):
        store.run(lambda connection: connection.execute(text("SELECT * FROM no_such_table")).close())
    store.close()


def test_a_change_of_keys_whose_commit_got_no_answer_is_in_doubt(database: str, tmp_path: Path) -> None:
    """The connection ends within the commit. The answer was that nothing was changed: send it again."""
    store = SystemStore(Settings(data=tmp_path, database=database))
    store.open()
    ends = (
        "CREATE FUNCTION ends() RETURNS trigger LANGUAGE plpgsql AS"
        " 'BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END'",
        "CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON system_tenants DEFERRABLE INITIALLY DEFERRED"
        " FOR EACH ROW EXECUTE FUNCTION ends()",
    )
    for statement in ends:
        store.run(lambda connection, statement=statement: connection.execute(text(statement)).close())
    with pytest.raises(StoreInDoubt):
        store.add_tenant("one", {}, 1.0)
    assert store.load()[2] == []
    store.close()


def test_the_store_of_keys_goes_on_after_its_database_was_read_only(database: str, tmp_path: Path) -> None:
    """A session that PostgreSQL began as read-only stays read-only, also when others may write again."""
    engine = create_engine(driver_url(database), isolation_level="AUTOCOMMIT")
    store = SystemStore(Settings(data=tmp_path, database=database))
    store.open()
    ended = text(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname = :it"
    )
    with engine.connect() as connection:
        it = connection.execute(text("SELECT current_database()")).scalar_one()
        connection.execute(text(f"ALTER DATABASE {it} SET default_transaction_read_only = on"))
        connection.execute(ended, {"it": it})
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match="read-only"):
                store.add_tenant("one", {}, 1.0)
        assert store.tenants() == []
        connection.execute(text(f"ALTER DATABASE {it} RESET default_transaction_read_only"))
    store.add_tenant("one", {}, 1.0)
    assert [each.name for each in store.tenants()] == ["one"]
    engine.dispose()
    store.close()


def test_a_tenant_that_cannot_be_opened_leaves_no_connection_open(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when PostgreSQL has no connection left: otherwise each further request would take one more. Later it opens."""

    def no_connection(_: Membership) -> None:
        raise OSError("too many clients already")

    engine = create_engine(driver_url(database), isolation_level="AUTOCOMMIT")
    counted = text("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()")
    with running_application(tmp_path, database=database) as client, engine.connect() as connection:
        keyed = Keyed(client)
        headers = keyed.key("publisher", tenant="crowded")
        before = connection.execute(counted).scalar_one()
        with monkeypatch.context() as patched:
            patched.setattr(Membership, "start", no_connection)
            for _ in range(3):
                refused = client.post("/v1/events", json={"a": 1}, headers=headers)
                assert (refused.status_code, problem_code(refused)) == (503, "store-unavailable")
        until(lambda: connection.execute(counted).scalar_one() <= before)
        assert [each.name for each in threading.enumerate()].count("kindcast-broker") == 1  # that of `default`
        assert publish(client, headers, a=1) == 0
    engine.dispose()


def test_a_tenant_that_is_opened_while_the_database_ends_is_not_called_damaged(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As during a restart of PostgreSQL. A client tries again, and does not read the words of the driver."""

    def break_off(connection: Connection, *_: Any, **__: Any) -> None:
        with pytest.raises(OperationalError) as ended:
            connection.exec_driver_sql("SELECT pg_terminate_backend(pg_backend_pid())")
        raise ended.value

    with running_application(tmp_path, database=database) as client:
        headers = Keyed(client).key("publisher", tenant="shop")
        with monkeypatch.context() as patched:
            patched.setattr(broker, "restore", break_off)
            refused = client.post("/v1/events", json={"a": 1}, headers=headers)
        assert (refused.status_code, problem_code(refused)) == (503, "store-unavailable"), refused.text
        assert refused.json()["detail"] == "the database cannot be reached: try again"
        assert publish(client, headers, a=1) == 0


def test_a_tenant_has_no_usage_of_a_deleted_one_that_a_server_stored_late(database: str, tmp_path: Path) -> None:
    """A server may have counted it before the deletion and store it afterwards."""
    store = SystemStore(Settings(data=tmp_path, database=database))
    store.open()
    used = {"requests": 1, "refused": 0, "events": 2, "bytes": 3}
    store.add_tenant("shop", {}, 1.0)
    store.delete_tenant("shop", lambda _: None)
    store.add_usage("2026-11-29", [("key 1", "shop", used), ("key 1", "default", used)])
    store.add_tenant("shop", {}, 2.0)
    store.set_tenant_limits("default", {"subscriptions": 1.0}, 2.0)
    assert [each["tenant"] for each in store.used(tenant=None, since="2026-11-29")] == ["default"]
    store.close()


def test_servers_that_store_usage_at_the_same_time_store_all_of_it(database: str, tmp_path: Path) -> None:
    """Also the first usage of a key on a day, and in whatever order each of them counted the keys."""
    used = {"requests": 1, "refused": 0, "events": 2, "bytes": 3}
    stores = [SystemStore(Settings(data=tmp_path / name, database=database)) for name in ("first", "second")]
    rows = [(f"key {number}", "default", used) for number in range(20)]
    days = [f"2026-11-{number:02}" for number in range(1, 29)]
    for store in stores:
        store.open()

    def add(store: SystemStore, counted: list[tuple[str, str, dict[str, int]]]) -> None:
        for day in days:
            store.add_usage(day, counted)

    with ThreadPoolExecutor(2) as threads:
        for done in [threads.submit(add, stores[0], rows), threads.submit(add, stores[1], rows[::-1])]:
            done.result()
    stored = stores[0].used(tenant=None, since=days[0])
    assert len(stored) == len(days) * len(rows)
    assert all((each["requests"], each["events"], each["bytes"]) == (2, 4, 6) for each in stored)
    for store in stores:
        store.close()


def test_servers_that_make_the_same_tenant_at_the_same_time_make_it_once(database: str, tmp_path: Path) -> None:
    """The second one answered that the database reports an error."""
    first, second = (SystemStore(Settings(data=tmp_path / each, database=database)) for each in ("one", "two"))
    with ThreadPoolExecutor() as pool:
        later: list[Future[None]] = []

        def make(connection: Connection) -> None:
            connection.execute(insert(system.tenants).values(name="shop", created_at=1.0, limits={}, awake=0))
            later.append(pool.submit(second.add_tenant, "shop", {}, 2.0))
            until(lambda: connection.execute(text("SELECT 1 FROM pg_locks WHERE NOT granted")).first() is not None)

        first.open()
        second.open()
        first.run(make)
        with pytest.raises(TenantExists):
            later[0].result()
        assert [each.created_at for each in second.tenants()] == [1.0]
    first.close()
    second.close()


def test_a_server_that_is_silent_while_it_changes_keys_does_not_stop_the_others(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL ends its transaction, and it carries the change out again."""
    monkeypatch.setattr(system, "STUCK_SECONDS", 1)
    first, second = (SystemStore(Settings(data=tmp_path / name, database=database)) for name in ("first", "second"))
    first.open()
    second.open()
    begun, over = threading.Event(), threading.Event()

    def change(connection: Connection) -> None:
        connection.execute(update(about).values(changes=about.c.changes + 1))
        begun.set()
        assert over.wait(60.0)
        connection.execute(update(about).values(changes=about.c.changes + 1))

    before = second.changes()
    with ThreadPoolExecutor(2) as threads:
        silent = threads.submit(first.run, change)
        assert begun.wait(60.0)
        other = threads.submit(second.add_tenant, "shop", {}, 1.0)
        wait([other], 30.0)
        ended = other.done()
        over.set()
        silent.result()
        other.result()
    assert ended
    assert second.changes() == before + 3
    first.close()
    second.close()


def test_keys_are_on_disk_whatever_is_usual_in_the_database(database: str, tmp_path: Path) -> None:
    engine = create_engine(driver_url(database), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        name = connection.exec_driver_sql("SELECT current_database()").scalar_one()
        connection.exec_driver_sql(f"ALTER DATABASE {name} SET synchronous_commit = off")
    engine.dispose()
    store = SystemStore(Settings(data=tmp_path, database=database))
    store.open()
    assert store.run(lambda connection: connection.exec_driver_sql("SHOW synchronous_commit").scalar_one()) == "on"
    store.close()


def test_who_reads_on_in_the_audit_log_misses_no_entry_that_another_server_commits_late(
    database: str, tmp_path: Path
) -> None:
    """It has a lower number than an entry that is there already."""
    stores = [SystemStore(Settings(data=tmp_path / name, database=database)) for name in ("first", "second")]
    for store in stores:
        store.open()
    entries = [AuditEntry(at=1.0, tenant="default", who=f"key {n}", address="", action="", outcome=200) for n in (1, 2)]
    engine = create_engine(driver_url(database))
    with engine.connect() as connection, ThreadPoolExecutor(1) as thread:
        connection.execute(insert(audit), [msgspec.structs.asdict(entries[0])])  # by another server
        stores[0].record(entries[1:])
        reading = thread.submit(stores[1].audited, tenant=None, after=0, limit=10)
        wait([reading], 0.5)
        connection.commit()
        found = reading.result()
    engine.dispose()
    more = stores[1].audited(tenant=None, after=max(each["number"] for each in found), limit=10)
    assert [each["who"] for each in [*found, *more]] == ["key 1", "key 2"]
    for store in stores:
        store.close()


def test_webhooks_of_a_tenant_go_on_when_its_server_is_killed(database: str, tmp_path: Path) -> None:
    """Nobody asks the other server for this tenant: it opens it, because nobody else has it open."""
    with running_receiver() as receiver:
        sink = receiver.script("/hook", *[503] * 2, 200)
        settings: dict[str, Any] = {
            "allow_private_sinks": True,
            "webhook_delays_seconds": [1.0] * 20,
            "lease_seconds": 3,
        }
        environment = {f"KINDCAST_{name.upper()}": json.dumps(value) for name, value in settings.items()}
        with running_application(tmp_path / "second", database=database, **settings) as second:
            headers = Keyed(second).key("admin", tenant="hooks")
            with (
                running_server(tmp_path / "first", environment | {"KINDCAST_DATABASE": database}) as server,
                httpx.Client(base_url=server.url, timeout=30) as first,
            ):
                subscribe(first, "a exists", headers, sink=sink)
                assert publish(first, headers, a=1) == 1
                receiver.wait_for("/hook", 1)
                server.kill()
                receiver.wait_for("/hook", 3)
            found = second.get("/v1/tenants", headers=headers).json()["tenants"]
            assert [each["open"] for each in found] == [True]


def test_as_many_tenants_are_open_as_postgresql_has_connections_for(database: str, tmp_path: Path) -> None:
    """By default an eighth of its connections: 12 of 100, `default` among them. The others open when they are used."""
    with running_application(tmp_path, database=database) as client:
        keyed = Keyed(client)
        keys = [keyed.key("admin", tenant=f"t{number}") for number in range(14)]
        for headers in keys:
            assert publish(client, headers, a=1) == 0
        listed = client.get("/v1/tenants", headers=keyed.admin).json()["tenants"]
        assert sum(each["open"] for each in listed) == 12


def test_connections_that_lose_their_search_path_are_refused(database: str, tmp_path: Path) -> None:
    """As behind a pooler that drops the option: names would mean the tables of another tenant."""
    schema = schema_of_tenant("a-b", 1.0)
    url = in_schema(normalised(f"{database}&options=-cstatement_timeout%3D9s"), schema)
    assert schema_of(url) == schema == schema_of_tenant("a-b", 1.0)
    assert schema != schema_of_tenant("a-b", 2.0)

    def settings_of(url: URL) -> Settings:
        return Settings(data=tmp_path, database=url.render_as_string(hide_password=False))

    held = Database(settings_of(url))
    with held.open() as connection:
        assert connection.execute(text("SHOW statement_timeout")).scalar_one() == "9s"
        assert connection.execute(text("SELECT current_schemas(false)")).scalar_one() == [schema]
    held.close()
    for path in ("public", f"{schema},public"):
        lost = Database(settings_of(in_schema(url, path)))
        assert lost.schema == schema
        with pytest.raises(StoreUnreadable, match="pooler"):
            lost.open()
        lost.close()


def test_tenants_are_looked_after_although_servers_could_not_be_counted_at_the_start(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table that cannot be read for a moment does not end this work. It is tried again."""
    asked: list[int] = []

    def members(connection: Connection) -> list[Any]:
        asked.append(len(asked))
        if len(asked) <= 2:  # `Database.read` tries once more at once
            connection.exec_driver_sql("SELECT * FROM elsewhere")
        return []

    monkeypatch.setattr(tenants, "members", members)
    with running_application(tmp_path, database=database, tenant_idle_seconds=0.1):
        until(lambda: len(asked) >= 3)
