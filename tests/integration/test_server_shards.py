"""Sharded matching: the subscriptions in several parts, each matched beside the publishers by one of the servers.

What several processes do under load, while they are killed, is in `tests/acceptance/test_several_servers.py`.
"""

import asyncio
import random
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
from pydantic import ValidationError
from sqlalchemy import Connection, create_engine, text

from kindcast import Event, Matcher
from kindcast.semantic.events import ReadEvent
from kindcast.server.broker import subscription_commands
from kindcast.server.broker.expiry import Sweeper
from kindcast.server.broker.group import Group
from kindcast.server.broker.membership import SharedOut
from kindcast.server.broker.shards import BrokerAccess, LeaseLost, Shard, Shards
from kindcast.server.errors import StoreInUse
from kindcast.server.settings import Settings
from kindcast.server.store.backup import backup
from kindcast.server.store.database import Database
from kindcast.server.store.shards import StoredSubscription
from tests.harness.application import running_application, show, subscribe, ticket, waiting
from tests.harness.postgresql import PostgreSQL, driver_url
from tests.harness.receiver import running_receiver
from tests.harness.waiting import until

TURTLE = """
@prefix : <http://e/> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
:Laptop rdfs:subClassOf :Computer ; rdfs:label "laptop" . :Slate rdfs:label "slate" .
"""
LATER = f"{TURTLE} :Slate rdfs:subClassOf :Computer ."
SHARDS = 4
CSV = {"Content-Type": "text/csv"}


@pytest.fixture
def database(postgresql: PostgreSQL) -> str:
    """The URL of a database of our own."""
    return postgresql.new_database()


@contextmanager
def running_servers(
    database: str, tmp_path: Path, count: int = 1, shards: int | None = SHARDS, **settings: Any
) -> Iterator[list[httpx.Client]]:
    """So many servers on one database, in one process."""
    settings = {"lease_seconds": 10.0, "shards": shards, **settings}
    with ExitStack() as stack:
        yield [
            stack.enter_context(running_application(tmp_path / str(number), database=database, **settings))
            for number in range(count)
        ]


def send(client: httpx.Client, **data: Any) -> dict[str, Any]:
    answer = client.post("/v1/events", json=data)
    assert answer.status_code == 202, answer.text
    told: dict[str, Any] = answer.json()
    assert told["matched"] is None
    assert [each["matched"] for each in told["events"]] == [None]
    return told


def shards_of(client: httpx.Client) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.get("/v1/status").json()["shards"]
    return found


def settled(client: httpx.Client) -> None:
    """Every shard has matched every event."""
    until(lambda: not any(each["events"] for each in shards_of(client)))


def run_sql(database: str, *statements: str) -> None:
    """Executes the statements in one transaction that no server's group is beside."""
    engine = create_engine(driver_url(database))
    with engine.begin() as connection:
        for each in ("SELECT FROM ledger FOR UPDATE", *statements):
            connection.execute(text(each))
    engine.dispose()


def joined(server: str) -> str:
    """The statement with which a server joins that does nothing."""
    return (
        "INSERT INTO servers (id, program, alive_until, applied)"
        f" VALUES ('{server}', '', clock_timestamp() + interval '1 hour', 1000000)"
    )


def leased(server: str, *shards: int) -> str:
    """The statement that gives shards to a server, whoever had them."""
    rows = ", ".join(f"({-1 - shard}, '{server}', 1)" for shard in shards)
    return (
        f"INSERT INTO leases (subscription, server, fence) VALUES {rows}"
        " ON CONFLICT (subscription) DO UPDATE SET server = excluded.server, fence = leases.fence + 1"
    )


@contextmanager
def held_elsewhere(database: str) -> Iterator[None]:
    """Meanwhile another server holds all shards, and does nothing."""
    run_sql(database, joined("elsewhere"), leased("elsewhere", *range(SHARDS)))
    try:
        yield
    finally:
        run_sql(database, "DELETE FROM servers WHERE id = 'elsewhere'")


def put_ontology(client: httpx.Client, document: str) -> None:
    answer = client.put("/v1/ontologies/x", content=document, headers={"Content-Type": "text/turtle"})
    assert answer.is_success, answer.text


def test_a_random_history_is_matched_as_its_order_says(database: str, tmp_path: Path) -> None:
    """Four shards at two servers. Subscriptions come, pause, go on and go, and the words change; each event is for
    those that were there when it was accepted, in the words of then, once, and in order."""
    chance = random.Random(11)
    with running_servers(database, tmp_path, 2) as servers:
        put_ontology(servers[0], LATER)
        put_ontology(servers[1], TURTLE)
        slate_is_computer = False
        made: dict[str, dict[str, Any]] = {}
        lots: dict[str, int] = {}
        paused = set[str]()
        due: dict[str, list[int]] = {}
        for number in range(120):
            client, what = chance.choice(servers), chance.random()
            if what < 0.2 or not made:
                lot = chance.randrange(3)
                new = subscribe(client, f"target isa Computer and lot = {lot}")
                made[new["id"]], lots[new["id"]], due[new["id"]] = new, lot, []
            elif what < 0.26:
                id = chance.choice(list(made))
                assert client.delete(f"/v1/subscriptions/{id}", headers=ticket(made.pop(id))).status_code == 200
                paused.discard(id)
            elif what < 0.36:
                id = chance.choice(list(made))
                verb = "resume" if id in paused else "pause"
                answer = client.post(f"/v1/subscriptions/{id}/{verb}", headers=ticket(made[id]))
                assert answer.status_code == 200, answer.text
                paused ^= {id}
            elif what < 0.4:
                slate_is_computer = not slate_is_computer
                version = 1 if slate_is_computer else 2
                assert client.post(f"/v1/ontologies/x/activate?version={version}").status_code == 200
            else:
                target, lot = chance.choice(("laptop", "slate", "printer")), chance.randrange(3)
                send(client, target=target, lot=lot, number=number)
                if target == "laptop" or (target == "slate" and slate_is_computer):
                    for id in made.keys() - paused:
                        if lots[id] == lot:
                            due[id].append(number)
        settled(servers[0])
        for id, each in made.items():
            assert [message["number"] for message in waiting(servers[0], each)] == due[id], id
        assert sum(len(due[id]) for id in made) > 50
        ledger = servers[0].get("/v1/status").json()["ledger"]
        assert ledger["matches"] == ledger["pending"] + ledger["discarded"]


def test_a_subscription_that_the_same_group_deleted_gets_no_match(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log does not tell of the deletion yet when the shard stores what it has found."""
    written, sweeper, deleted = Shards._written, Sweeper(Settings(data=tmp_path)), list[str]()

    def written_after_deletion(shards: Shards, group: Group, **found: Any) -> None:
        if found["number"] == 1 and found["matches"].lists and not deleted:
            subscription_commands.delete(group, made["id"], made["ticket"], sweeper)
            deleted.append(made["id"])
        written(shards, group, **found)

    monkeypatch.setattr(Shards, "_written", written_after_deletion)
    with running_servers(database, tmp_path) as (server,):
        made, other = subscribe(server, "n = 1"), subscribe(server, "n = 1")  # of the shards 1 and 2
        send(server, n=1)
        until(lambda: len(waiting(server, other)) == 1)
        until(lambda: deleted)
        settled(server)
        ledger = server.get("/v1/status").json()["ledger"]
        assert (ledger["matches"], ledger["pending"], ledger["discarded"]) == (1, 1, 0)


def test_a_shard_that_is_behind_matches_by_what_was_then(database: str, tmp_path: Path) -> None:
    """It comes to the log long after: subscriptions were paused, deleted, renewed, or have ended since, words have
    changed, and an ontology is not deleted before."""
    engine = create_engine(driver_url(database))
    with running_servers(database, tmp_path, sweep_seconds=0.1) as (client,):
        put_ontology(client, LATER)
        with held_elsewhere(database):
            kept, paused, deleted, again = (subscribe(client, "target isa Computer") for _ in range(4))
            ends = subscribe(client, "n >= 0", ttl_seconds=2)
            client.post(f"/v1/subscriptions/{again['id']}/pause", headers=ticket(again))
            send(client, target="slate", n=1)
            put_ontology(client, TURTLE)
            client.post(f"/v1/subscriptions/{paused['id']}/pause", headers=ticket(paused))
            client.post(f"/v1/subscriptions/{again['id']}/resume", headers=ticket(again))
            send(client, target="slate", n=2)
            send(client, target="laptop", n=3)
            assert client.delete(f"/v1/subscriptions/{deleted['id']}", headers=ticket(deleted)).status_code == 200
            assert client.delete("/v1/ontologies/x").status_code == 409
            until(lambda: show(client, ends).json()["status"] == "expired")
            send(client, target="laptop", n=4)
            behind = shards_of(client)
            assert [each["events"] for each in behind] == [4] * SHARDS
            assert {each["server"] for each in behind} == {"elsewhere"}
        settled(client)
        got = {
            name: [each["n"] for each in waiting(client, made)]
            for name, made in {"kept": kept, "paused": paused, "again": again}.items()
        }
        assert got == {"kept": [1, 3, 4], "paused": [1], "again": [3, 4]}
        with engine.connect() as connection:
            query = text(
                "SELECT count(*) FROM events, subscriptions WHERE subscriptions.id = :id AND accepted_at < expires_at"
            )
            in_time = connection.execute(query, {"id": ends["id"]}).scalar_one()
        renewed = client.post(f"/v1/subscriptions/{ends['id']}/renew", json={"ttl_seconds": 60}, headers=ticket(ends))
        assert renewed.status_code == 200
        assert [each["n"] for each in waiting(client, ends)] == [1, 2, 3][:in_time]
        assert in_time
        ledger = client.get("/v1/status").json()["ledger"]
        assert ledger["accepted"] == 4
        assert ledger["matches"] == ledger["pending"] + ledger["discarded"] == 6 + in_time
    engine.dispose()


def test_a_server_that_joins_takes_its_part_and_one_that_ends_leaves_it(database: str, tmp_path: Path) -> None:
    def holders(client: httpx.Client) -> set[str]:
        return {each["server"] for each in shards_of(client)}

    with running_servers(database, tmp_path) as (first,):
        made = [subscribe(first, f"n >= {number}") for number in range(8)]
        until(lambda: None not in holders(first))
        with running_servers(database, tmp_path / "second") as (second,):
            until(lambda: len(holders(first)) == 2 and None not in holders(first))
            counted = [each["server"] for each in shards_of(second)]
            assert sorted(map(counted.count, set(counted))) == [2, 2]
            send(second, n=9)
            settled(first)
        until(lambda: len(holders(first)) == 1 and None not in holders(first))
        send(first, n=9)
        settled(first)
        assert [len(waiting(first, each)) for each in made] == [2] * 8


def test_a_server_leaves_to_others_what_is_more_than_its_part(database: str, tmp_path: Path) -> None:
    """A server ends and the one that holds the last shards looks at all leases anew, while a third one lives: it keeps
    those, and holds no other one that it does not match."""
    with running_servers(database, tmp_path) as (client,):
        made = [subscribe(client, f"n >= {number}") for number in range(8)]
        run_sql(database, joined("ending"), joined("idle"), leased("ending", 0, 1))
        run_sql(database, "DELETE FROM servers WHERE id = 'ending'", "NOTIFY kindcast, ''")
        send(client, n=9)

        def keeps_its_part() -> bool:
            held = [each["events"] for each in shards_of(client) if each["server"] is not None]
            return held == [0, 0]

        until(keeps_its_part, seconds=20.0)
        run_sql(database, "DELETE FROM servers WHERE id = 'idle'")
        settled(client)
        assert [len(waiting(client, each)) for each in made] == [1] * 8


def test_no_server_holds_two_shards_more_than_another(database: str, tmp_path: Path) -> None:
    """Four shards and three servers: whoever is not the first by its id holds one."""
    with running_servers(database, tmp_path) as (client,):
        name = client.get("/v1/status").json()["server"]

        def held() -> int:
            return [each["server"] for each in shards_of(client)].count(name)

        until(lambda: held() == SHARDS)
        run_sql(database, joined("-1"), joined("-2"), "NOTIFY kindcast, ''")
        until(lambda: held() == 1, seconds=20.0)
        run_sql(database, "DELETE FROM servers WHERE id = '-2'", "NOTIFY kindcast, ''")
        until(lambda: held() == 2, seconds=20.0)


def test_a_server_that_wrongly_believes_to_hold_a_shard_takes_others(database: str, tmp_path: Path) -> None:
    """After a crash PostgreSQL may have lost a heartbeat, so that another server took leases meanwhile."""
    with running_servers(database, tmp_path) as (client,):
        made = [subscribe(client, f"n >= {number}") for number in range(8)]
        until(lambda: None not in [each["server"] for each in shards_of(client)])
        run_sql(database, joined("elsewhere"), leased("elsewhere", 0, 1))
        send(client, n=9)
        until(lambda: [bool(each["events"]) for each in shards_of(client)] == [True, True, False, False], seconds=20.0)
        run_sql(database, leased("", 0, 1), leased("elsewhere", 2, 3))  # it gives back two and takes the others
        until(lambda: not any(each["events"] for each in shards_of(client)), seconds=20.0)
        send(client, n=9)
        until(lambda: [bool(each["events"]) for each in shards_of(client)] == [False, False, True, True], seconds=20.0)
        run_sql(database, "DELETE FROM servers WHERE id = 'elsewhere'")
        settled(client)
        assert [len(waiting(client, each)) for each in made] == [2] * 8


def test_a_load_that_stops_before_its_end_leaves_no_cursor_open(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while the exception is still there, whose frames hold the rows."""
    with running_servers(database, tmp_path) as (client,):
        made = [subscribe(client, f"n >= {number}") for number in range(8)]
        send(client, n=9)
        settled(client)  # so that its place is after them
    read, wanted, cursors = Database.read, Shards._wanted, list[int]()

    def watched(self: Database, work: Callable[[Connection], Any]) -> Any:
        def watched_work(connection: Connection) -> Any:
            try:
                return work(connection)
            except LeaseLost:
                there = text("SELECT count(*) FROM pg_cursors WHERE name <> ''")
                cursors.append(connection.execute(there).scalar_one())
                raise

        return read(self, watched_work)

    def stopped(self: Shards, number: int, found: Iterator[StoredSubscription]) -> Iterator[StoredSubscription]:
        for each in wanted(self, number, found):
            if len(cursors) < SHARDS:
                raise LeaseLost
            yield each

    monkeypatch.setattr(Database, "read", watched)
    monkeypatch.setattr(Shards, "_wanted", stopped)
    with running_servers(database, tmp_path) as (client,):
        send(client, n=9)
        settled(client)
        assert [len(waiting(client, each)) for each in made] == [2] * 8
    assert set(cursors) == {0}


def test_a_shard_without_new_events_follows_the_vocabulary_in_force(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever that is by then. One under which no event was accepted is not stored, and cannot be asked for."""
    load, asked = Shards._load, list[str | None]()

    async def watched(self: Shards, number: int, before: Shard | None, version: str | None = None) -> Shard:
        asked.append(version)
        return await load(self, number, before, version)

    monkeypatch.setattr(Shards, "_load", watched)
    with running_servers(database, tmp_path) as [client]:
        until(lambda: len(asked) == SHARDS)
        client.put("/v1/ontologies/x", content=TURTLE, headers={"Content-Type": "text/turtle"}).raise_for_status()
        made = subscribe(client, "target isa Computer")
        until(lambda: len(asked) == 2 * SHARDS)
        assert set(asked) == {None}
        send(client, target="laptop")
        settled(client)
        assert waiting(client, made) == [{"target": "laptop"}]


class IdleShards(Shards):
    """Shards with an empty log, of a server that holds all leases."""

    def __init__(self) -> None:
        leases = SimpleNamespace(listeners=[], fence=lambda key: 1, shared_out=self._shared_out, take=self._taken)
        super().__init__(cast(BrokerAccess, SimpleNamespace(leases=leases)), 1, max_events=1, look_seconds=60.0)
        self.waits = asyncio.Event()

    async def _shared_out(self, keys: list[int]) -> SharedOut:
        return SharedOut(keys, [], 1)

    async def _taken(self, keys: list[int]) -> list[int]:
        return keys

    async def _load(self, number: int, before: Shard | None, version: str | None = None) -> Shard:
        return cast(Shard, SimpleNamespace(hurries=False))

    async def _step(self, shard: Shard, fence: int) -> bool:
        self.waits.set()
        return False


@pytest.mark.parametrize("turns", range(12))
def test_a_shard_ends_although_an_event_comes_at_the_same_time(turns: int) -> None:
    """The event comes so many turns of the event loop after the shard was told to end."""

    async def ends() -> None:
        shards = IdleShards()
        shards.start()
        await shards.waits.wait()
        ending = asyncio.create_task(shards.stop())
        for _ in range(turns):
            await asyncio.sleep(0)
        shards.wake()
        async with asyncio.timeout(20.0):
            await ending

    asyncio.run(ends())


def test_another_number_of_shards_beside_other_servers_is_refused(database: str, tmp_path: Path) -> None:
    with running_servers(database, tmp_path):
        for other, asked in ((2, "with 2"), (None, "without shards")):
            with (
                pytest.raises(StoreInUse, match=f"with 4 shards, and this server was started {asked}: use --shards 4"),
                running_servers(database, tmp_path / "x", 1, other),
            ):
                pass


def test_the_number_of_shards_changes_when_all_is_matched(database: str, tmp_path: Path) -> None:
    """Every subscription gets every event once, in order, whatever the number of shards was when it was accepted. While
    a shard is behind, the number stays."""
    made, sent = [], 0

    def round_of(client: httpx.Client, shards: int | None) -> None:
        nonlocal sent
        assert len(client.get("/v1/status").json().get("shards") or ()) == (shards or 0)
        made.extend(subscribe(client, "n >= 0") for _ in range(3))
        gone = subscribe(client, "n >= 0")
        for _ in range(3):
            assert client.post("/v1/events", json={"n": sent}).status_code == 202
            sent += 1
        client.delete(f"/v1/subscriptions/{gone['id']}", headers=ticket(gone))
        paused, *_ = made
        client.post(f"/v1/subscriptions/{paused['id']}/pause", headers=ticket(paused))
        client.post(f"/v1/subscriptions/{paused['id']}/resume", headers=ticket(paused))
        if shards:
            settled(client)

    for shards in (SHARDS, 2, None, 7):
        with running_servers(database, tmp_path, shards=shards) as (client,):
            round_of(client, shards)
    run_sql(database, joined("elsewhere"), leased("elsewhere", *range(7)))
    with running_servers(database, tmp_path, shards=7) as (client,):
        send(client, n=sent)
    run_sql(database, "DELETE FROM servers WHERE id = 'elsewhere'")
    for other, asked in ((3, "with 3"), (None, "without shards")):
        with (
            pytest.raises(StoreInUse, match=f"7 shards that have yet to match .* {asked}: use --shards 7 until"),
            running_servers(database, tmp_path, 1, other),
        ):
            pass
    with running_servers(database, tmp_path, shards=7) as (client,):
        settled(client)
    with running_servers(database, tmp_path, 2, 3) as (client, other_client):
        until(lambda: len({each["server"] for each in shards_of(client)} - {None}) == 2)
        send(other_client, n=sent + 1)
        settled(client)
        for number, each in enumerate(made):
            assert [got["n"] for got in waiting(client, each)] == list(range(number // 3 * 3, sent + 2))


def test_a_database_without_shards_gets_them_and_loses_nothing(database: str, tmp_path: Path) -> None:
    """What was accepted before was matched then, and is not matched again; while another server uses the database
    without shards, one with shards does not start."""
    with running_servers(database, tmp_path, shards=None) as (client,):
        made = subscribe(client, "n >= 0")
        assert client.post("/v1/events", json={"n": 1}).json()["matched"] == 1
        with pytest.raises(StoreInUse, match="without shards"), running_servers(database, tmp_path / "x"):
            pass
    with running_servers(database, tmp_path) as (client,):
        send(client, n=2)
        settled(client)
        assert waiting(client, made) == [{"n": 1}, {"n": 2}]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"database": "postgresql:///x", "max_matches_per_event": 5},
        {"database": "postgresql:///x", "key_limits": {"matches_per_event": 5}},
        {"database": "postgresql:///x", "index_bytes": 1 << 30},
    ],
)
def test_settings_that_shards_cannot_have_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="shards"):
        Settings(shards=2, **settings)


def test_tenants_are_listed_without_the_connection_of_the_writer(database: str, tmp_path: Path) -> None:
    """Its transaction was begun by the reader, so that the next event could not be stored."""
    with running_servers(database, tmp_path) as [client]:
        key = client.post("/v1/keys", json={"role": "admin"}).json()["key"]
        client.headers["Authorization"] = f"Bearer {key}"
        limits = client.patch("/v1/tenants/default", json={"limits": {"subscriptions": 5}})
        assert limits.status_code == 200, limits.text
        for number in range(1, 4):
            subscribe(client, "n = 1")
            [tenant] = client.get("/v1/tenants").json()["tenants"]
            assert tenant["used"]["subscriptions"] == number
            send(client, n=1)


def test_matches_from_elsewhere_are_refused(database: str, tmp_path: Path) -> None:
    with running_servers(database, tmp_path) as (client,):
        made = subscribe(client, "n = 1")
        event = {"specversion": "1.0", "source": "s", "id": "1", "type": "t", "data": {"n": 1}}
        answer = client.post("/v1/matches", json={"matches": [{"event": event, "subscriptions": [made["id"]]}]})
        assert answer.status_code == 501
        assert "no matches from elsewhere" in answer.text


def test_an_event_with_an_unexpected_error_does_not_stop_a_shard(
    database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It matches nothing, and the next ones are matched."""
    read = Matcher.read

    def failing(self: Matcher, event: Event, *known: Any) -> ReadEvent:
        if event.data == {"n": 2} and len(self):
            raise RuntimeError("nobody thought of this")
        return read(self, event, *known)

    monkeypatch.setattr(Matcher, "read", failing)
    with running_servers(database, tmp_path) as (client,):
        made = subscribe(client, "n > 0")
        for n in (1, 2, 3):
            send(client, n=n)
        settled(client)
        assert waiting(client, made) == [{"n": 1}, {"n": 3}]


def test_match_says_which_shards_it_asked(database: str, tmp_path: Path) -> None:
    """All of them at a server that has all."""
    with running_servers(database, tmp_path) as (client,):
        made = [subscribe(client, "n = 1") for _ in range(5)]

        def told() -> dict[str, Any]:
            found: dict[str, Any] = client.post("/v1/match", json={"event": {"n": 1}}).json()
            return found

        until(lambda: len(told()["matches"]) == 5)
        answer = told()
        assert answer["shards"] == {"asked": [0, 1, 2, 3], "of": SHARDS}
        assert {each["subscription"] for each in answer["matches"]} == {each["id"] for each in made}
        explained = client.post("/v1/explain", json={"event": {"n": 1}, "subscription": made[0]["id"]}).json()
        assert explained["matches"]
        assert "index" not in explained


def test_a_trace_says_that_a_shard_has_not_read_the_event(database: str, tmp_path: Path) -> None:
    """The subscription will get it, and was not paused."""
    with running_servers(database, tmp_path) as (client,):
        made = subscribe(client, "n = 1")
        send(client, n=0)
        settled(client)
        engine = create_engine(driver_url(database))
        with engine.begin() as connection:  # as long as the rows are locked, no shard can store its place
            connection.execute(text("SELECT * FROM shards FOR UPDATE"))
            sequence = send(client, n=1)["events"][0]["sequence"]
            traced = client.get(f"/v1/events/{sequence}/trace?subscription={made['id']}").json()["explanation"]
        engine.dispose()
        assert (traced["matches"], traced["recorded"]) == (True, False)
        assert traced["circumstances"] == ["the shard of the subscription has not matched the event yet"]
        settled(client)
        traced = client.get(f"/v1/events/{sequence}/trace?subscription={made['id']}").json()["explanation"]
        assert (traced["matches"], traced["recorded"], traced["circumstances"]) == (True, True, [])


def test_a_plan_counts_the_clauses_of_all_shards_here(database: str, tmp_path: Path) -> None:
    with running_servers(database, tmp_path) as (client,):
        made = [subscribe(client, f'n = {n} and similar("x", @t, ?s) and ?s > 0.5') for n in range(3)]

        def held() -> int:
            (clause,) = client.get(f"/v1/subscriptions/{made[0]['id']}/plan").json()["clauses"]
            count: int = clause["calls"][0]["held_by_clauses"]
            return count

        until(lambda: held() == 3)


def test_candidates_for_operators_are_decided_later(database: str, tmp_path: Path) -> None:
    """A shard parks them with the event, as a publisher does without shards. What the operator knows came in while
    shards were there."""
    with running_servers(database, tmp_path, 2, plugins=False) as (first, second):
        answer = first.put("/v1/operator-data/tables/blocked", content="name\nAcme\n", headers=CSV)
        assert answer.status_code == 201, answer.text
        made = subscribe(second, 'n = 1 and inTable("blocked", @from)')
        send(first, n=1, **{"from": "Acme"})
        send(second, n=1, **{"from": "Bolt"})
        settled(first)
        until(lambda: first.get("/v1/status").json()["ledger"]["parked_waiting"] == 0)
        assert [each["from"] for each in waiting(first, made)] == ["Acme"]
        ledger = first.get("/v1/status").json()["ledger"]
        assert (ledger["parked"], ledger["parked_matched"], ledger["parked_unmatched"]) == (2, 1, 1)


def test_webhooks_get_what_shards_find(database: str, tmp_path: Path) -> None:
    with running_receiver() as receiver, running_servers(database, tmp_path, 2, allow_private_sinks=True) as servers:
        for number in range(6):
            subscribe(servers[number % 2], "n >= 0", sink=f"{receiver.url}/{number}")
        for n in range(5):
            send(servers[n % 2], n=n)
        for number in range(6):
            receiver.wait_for(f"/{number}", 5)
            assert [each.message["event"]["data"]["n"] for each in receiver.requests(f"/{number}")] == list(range(5))


def test_readiness_depends_on_the_lag_of_the_shards(database: str, tmp_path: Path) -> None:
    """Those here count; of those elsewhere there is a warning."""
    with running_servers(database, tmp_path, max_shard_lag_seconds=0.2) as (client,):
        subscribe(client, "n >= 0")
        send(client, n=1)
        settled(client)
        assert client.get("/readyz").status_code == 200
        assert 'kindcast_shard_lag_events{shard="3"} 0.0' in client.get("/metrics").text
        engine = create_engine(driver_url(database))
        with engine.begin() as connection:
            connection.execute(text("SELECT * FROM shards FOR UPDATE"))  # no shard can say that it is further
            send(client, n=2)
            until(lambda: client.get("/readyz").status_code == 503)
            assert "behind" in client.get("/readyz").json()["detail"]
        engine.dispose()
        until(lambda: client.get("/readyz").status_code == 200)
        with held_elsewhere(database):
            until(lambda: {each["server"] for each in shards_of(client)} == {"elsewhere"})
            send(client, n=3)
            until(lambda: "elsewhere are behind" in client.get("/readyz").json().get("warning", ""))
            assert 'kindcast_shard_lag_events{shard="3"} 1.0' in client.get("/metrics").text


def test_events_that_a_shard_has_yet_to_match_are_kept(database: str, tmp_path: Path) -> None:
    """However old they are; and there is no backup while there are any."""
    with running_servers(database, tmp_path, sweep_seconds=0.05, retention_seconds=0.5) as (client,):

        def numbers() -> list[int]:
            return [each["event"]["data"]["n"] for each in client.get("/v1/events").json()["events"]]

        made = subscribe(client, "n >= 0")
        with held_elsewhere(database):
            send(client, n=1)
            time.sleep(1.0)
            send(client, n=2)
            assert numbers() == [1, 2]
            with pytest.raises(StoreInUse, match="some shards are behind"):
                backup(database, tmp_path / "data", tmp_path / "backup")
        until(lambda: not numbers())
        shown = show(client, made).json()
        assert (shown["pending"], shown["discarded"]) == (0, 2)
        ledger = client.get("/v1/status").json()["ledger"]
        assert (ledger["matches"], ledger["discarded"]) == (2, 2)
    assert backup(database, tmp_path / "data", tmp_path / "backup")
