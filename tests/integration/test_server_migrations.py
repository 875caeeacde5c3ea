"""A database of an older layout is brought to the present one at the start, with all that is in it."""

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path

import httpx
import pytest
from sqlalchemy import Connection, Engine, create_engine, delete, inspect, select, text, update

from kindcast.semantic.ontology.records import is_readable
from kindcast.semantic.vocabulary.vocabulary import MEANING
from kindcast.server.broker.expiry import Sweeper
from kindcast.server.store import matches
from kindcast.server.store.ledger import LAYOUT
from kindcast.server.store.tables import ledger, meanings, metadata, ontologies
from tests.harness.application import problem_code, publish, running_application, subscribe
from tests.harness.broker import run, running, stored
from tests.harness.older_layouts import DROPPED, DROPPED_BY_2, make_layout_1, make_layout_2, make_layout_3
from tests.harness.waiting import until

FIRST = """
@prefix : <http://e/> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
:Laptop rdfs:subClassOf :Computer ; rdfs:label "laptop"@en, "Notebook"@de .
"""
SECOND = FIRST + ':Slate rdfs:subClassOf :Computer ; rdfs:label "slate" .'
TREES = {
    "kind": {"isa": ["target", {"iri": "http://e/Computer"}]},
    "gone": {"isa": ["target", {"iri": "http://e/Typewriter"}]},
}


@pytest.fixture
def old(tmp_path: Path) -> Engine:
    """A database of layout 1, the second of two versions in force, in the folder of the test."""
    engine = create_engine(f"sqlite:///{tmp_path / 'kindcast.db'}")
    make_layout_1(engine, {"computers": [FIRST, SECOND]}, TREES, active=2)
    return engine


def columns(engine: Engine) -> dict[str, set[str]]:
    inspector = inspect(engine)
    return {name: {each["name"] for each in inspector.get_columns(name)} for name in inspector.get_table_names()}


def test_migration_gives_the_tables_of_a_new_database(old: Engine, tmp_path: Path) -> None:
    """Column for column what a new database has; before, it was really an older one."""
    before = columns(old)
    assert "declarations" not in before
    assert not any(before[table] & dropped for table, dropped in DROPPED.items())
    with running_application(tmp_path):
        pass
    assert columns(old) == {name: set(table.columns.keys()) for name, table in metadata.tables.items()}
    with old.connect() as connection:
        assert connection.execute(select(ledger.c.layout)).scalar_one() == LAYOUT


def test_migration_keeps_meaning_and_reads_each_document_once(old: Engine, tmp_path: Path) -> None:
    """What was subscribed matches as before; what it names and is gone is flagged; afterwards records alone are read,
    so that a document which nobody could read any more does not matter."""
    with running_application(tmp_path) as client:
        assert publish(client, target="Notebook") == 1
        assert client.get("/v1/subscriptions/gone").json()["flagged"] is True
        assert client.get("/v1/subscriptions/kind").json()["flagged"] is False
    with old.begin() as connection:
        rows = connection.execute(select(ontologies.c.version, ontologies.c.records)).all()
        assert {row.version: row.records is not None for row in rows} == {1: False, 2: True}
        connection.execute(update(ontologies).where(ontologies.c.version == 2).values(document=b"@@ not Turtle"))
    with running_application(tmp_path) as client:
        assert publish(client, target="slate") == 1
        assert client.get("/v1/ontologies/computers").json()["version"] == 2


def test_migration_of_a_version_that_is_not_in_force_reads_it_when_it_is_needed(old: Engine, tmp_path: Path) -> None:
    """Comparing, activating and going back work with versions of the older layout too."""
    with running_application(tmp_path) as client:
        found = client.get("/v1/ontologies/computers/diff?from=1&to=2").json()
        assert [each["iri"] for each in found["added"]["concepts"]] == ["http://e/Slate"]
        told = client.post("/v1/ontologies/computers/rollback").json()
        assert (told["version"], publish(client, target="slate")) == (1, 0)
    with old.connect() as connection:
        assert all(row.records for row in connection.execute(select(ontologies.c.records)))


def test_start_of_records_in_another_form_reads_the_document_again(tmp_path: Path) -> None:
    """Records that this version does not read are no loss: the document is there."""
    with running_application(tmp_path) as client:
        client.put("/v1/ontologies/computers", content=FIRST, headers={"Content-Type": "text/turtle"})
        subscribe(client, "target isa Computer")
    engine = create_engine(f"sqlite:///{tmp_path / 'kindcast.db'}")
    with engine.begin() as connection:
        connection.execute(update(ontologies).values(records=b"another time"))
    with running_application(tmp_path) as client:
        assert publish(client, target="Notebook") == 1
    with engine.connect() as connection:
        assert is_readable(connection.execute(select(ontologies.c.records)).scalar_one())


def test_start_after_the_rules_changed_uses_nothing_that_was_compiled_before(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The snapshot of the subscriptions is of another meaning, and so is the version of the vocabulary."""
    caplog.set_level("INFO", "kindcast.broker")
    with monkeypatch.context() as older:
        older.setattr("kindcast.semantic.vocabulary.vocabulary.MEANING", 1)
        older.setattr("kindcast.semantic.matching.saved_matcher.MEANING", 1)
        with running_application(tmp_path) as client:
            client.put("/v1/ontologies/computers", content=FIRST, headers={"Content-Type": "text/turtle"})
            subscribe(client, "target isa Computer")
            before = client.get("/v1/concepts?q=laptop").json()["vocabulary_version"]
    with running_application(tmp_path) as client:
        assert "the rules of matching have changed" in caplog.text
        assert publish(client, target="Notebook") == 1
        assert client.get("/v1/concepts?q=laptop").json()["vocabulary_version"] != before
    caplog.clear()
    with running_application(tmp_path) as client:
        assert "(with a snapshot of 1)" in caplog.text


def test_migration_that_is_interrupted_leaves_the_older_layout(
    old: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of it or nothing: a start that fails after the tables were changed can be tried again, by an older server
    too."""
    from kindcast.server.broker import broker

    def fail(*_: object) -> None:
        raise OSError("the disk is full")

    restore: Callable[..., object] = broker.restore
    monkeypatch.setattr(broker, "restore", lambda *all, **named: (restore(*all, **named), fail()))
    with pytest.raises(OSError, match="full"), running_application(tmp_path):
        pass
    before = columns(old)
    assert not any(before[table] & dropped for table, dropped in DROPPED.items())
    monkeypatch.undo()
    with running_application(tmp_path) as client:
        assert publish(client, target="slate") == 1


def test_migration_of_layout_2_keeps_cursors_and_what_waits(tmp_path: Path) -> None:
    """Cursors that clients hold mean the same: what was acknowledged is not sent again, the rest is, and new events
    come after it."""
    engine = create_engine(f"sqlite:///{tmp_path / 'kindcast.db'}")
    make_layout_2(engine, 5, acked=2)
    before = columns(engine)
    assert "sequence" in before["matches"]
    assert not any(before[table] & dropped for table, dropped in DROPPED_BY_2.items())
    with running_application(tmp_path) as client:
        page = client.get("/v1/subscriptions/s/events").json()["events"]
        assert [(each["cursor"], each["event"]["data"]["n"]) for each in page] == [("3", 3), ("4", 4), ("5", 5)]
        assert publish(client, n=6) == 1
        after = client.get("/v1/subscriptions/s/events?after=5").json()["events"]
        assert [(each["cursor"], each["event"]["data"]["n"], "late" in each) for each in after] == [("6", 6, False)]
        acked = client.post("/v1/subscriptions/s/ack", json={"cursor": "4"}, headers={"Kindcast-Ticket": "ticket"})
        assert acked.json() == {"cursor": "4"}
        assert "kindcast_matches_delivered_total 4.0" in client.get("/metrics").text
        assert "kindcast_matches_pending 2.0" in client.get("/metrics").text
        until(lambda: not inspect(engine).has_table("matches"))
        page = client.get("/v1/subscriptions/s/events").json()["events"]
        assert [(each["cursor"], each["event"]["data"]["n"]) for each in page] == [("5", 5), ("6", 6)]
    assert columns(engine) == {name: set(table.columns.keys()) for name, table in metadata.tables.items()}


def test_move_of_older_matches_that_is_interrupted_goes_on_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server ends after some of the matches have moved: the cursors and what waits are as they were, before the end
    and after each start; the last one leaves no older table."""
    engine = create_engine(f"sqlite:///{tmp_path / 'kindcast.db'}")
    make_layout_2(engine, 50, acked=7)
    monkeypatch.setattr(matches, "MOVED_POSITIONS", 5)
    store_move = matches.store_move
    moved: list[int] = []

    def some(connection: Connection, move: matches.Move) -> bool:
        if len(moved) % 4 == 3:
            raise OSError("the machine stopped")
        moved.append(move.block.last)
        return store_move(connection, move)

    def older_from() -> int:
        with engine.connect() as connection:
            return connection.execute(select(ledger.c.older_from)).scalar_one()

    monkeypatch.setattr(matches, "store_move", some)
    for reached in (16, 31):
        with running_application(tmp_path) as client:
            until(lambda reached=reached: older_from() == reached)  # type: ignore[misc]
            check_waiting(client, range(8, 51))
        assert inspect(engine).has_table("matches")
        moved.append(0)
    monkeypatch.setattr(matches, "store_move", store_move)
    with running_application(tmp_path) as client:
        until(lambda: not inspect(engine).has_table("matches"))
        check_waiting(client, range(8, 51))
        assert older_from() == 0


def test_new_matches_are_folded_before_all_older_ones_have_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Moving many of them takes hours, and what is not folded is in memory."""
    engine = create_engine(f"sqlite:///{tmp_path / 'kindcast.db'}")
    make_layout_2(engine, 5, acked=2)
    monkeypatch.setattr(matches, "FOLD_POSITIONS", 4)
    monkeypatch.setattr(matches, "store_move", lambda *_, **__: False)  # there is always more to move

    def folded_through() -> int:
        with engine.connect() as connection:
            return connection.execute(select(ledger.c.folded_through)).scalar_one()

    with running_application(tmp_path) as client:
        for number in range(6, 14):
            publish(client, n=number)
        until(lambda: folded_through() >= 9)
        page = client.get("/v1/subscriptions/s/events").json()["events"]
        assert [each["event"]["data"]["n"] for each in page] == list(range(3, 14))
    assert inspect(engine).has_table("matches")


def test_retention_that_waits_for_the_move_of_older_matches_says_that_nothing_is_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sweep would begin again at once, each time with a commit; what has moved is deleted."""
    make_layout_2(create_engine(f"sqlite:///{tmp_path / 'kindcast.db'}"), 5, acked=2)
    find_moves = matches.find_moves
    monkeypatch.setattr(matches, "find_moves", lambda _: [])
    monkeypatch.setattr(matches, "has_older", lambda _: False)

    async def body() -> None:
        async with running(tmp_path, retention_seconds=0.001, sweep_seconds=3600.0) as broker:
            sweeper = Sweeper(broker.settings)
            await asyncio.sleep(0.01)
            assert await broker.submit(sweeper._clean) is False
            assert await stored(broker) == [1, 2, 3, 4, 5]
            for move in await broker.read(find_moves):
                assert await broker.execute(partial(matches.store_move, move=move))
            assert await broker.submit(sweeper._clean) is True
            assert await broker.submit(sweeper._clean) is False
            assert await stored(broker) == []

    run(body)


def check_waiting(client: httpx.Client, numbers: range) -> None:
    page = client.get("/v1/subscriptions/s/events", params={"limit": 1000}).json()["events"]
    assert [(each["cursor"], each["event"]["data"]["n"]) for each in page] == [(str(n), n) for n in numbers]
    assert client.get("/v1/subscriptions/s").json()["pending"] == len(numbers)
    assert f"kindcast_matches_pending {len(numbers)}.0" in client.get("/metrics").text
    trace = client.get("/v1/events/9/trace").json()
    assert [each["subscription"] for each in trace["deliveries"]] == ["s"]


def test_rollback_without_an_earlier_version_is_refused(tmp_path: Path) -> None:
    """There is nothing to go back to."""
    with running_application(tmp_path) as client:
        client.put("/v1/ontologies/computers", content=FIRST, headers={"Content-Type": "text/turtle"})
        answer = client.post("/v1/ontologies/computers/rollback")
        assert (answer.status_code, problem_code(answer)) == (409, "nothing-before")


def test_migration_of_layout_3_finds_events_by_type_through_an_index(tmp_path: Path) -> None:
    """The index is there, the question uses it, and the answer is what it was."""
    engine = create_engine(f"sqlite:///{tmp_path / 'kindcast.db'}")
    make_layout_3(engine, ["a", "b", "a"])
    assert not inspect(engine).get_indexes("events")
    with running_application(tmp_path) as client:
        found = client.get("/v1/events", params={"type": "a", "after": 1}).json()["events"]
        assert [each["event"]["id"] for each in found] == ["3"]
    assert [each["name"] for each in inspect(engine).get_indexes("events")] == ["events_type"]
    with engine.connect() as connection:
        asked = "SELECT * FROM events WHERE sequence > 1 AND type = 'a' ORDER BY sequence LIMIT 9"
        plan = connection.execute(text(f"EXPLAIN QUERY PLAN {asked}")).all()
    assert "events_type" in str(plan), plan
    assert "TEMP B-TREE" not in str(plan), plan


def test_first_start_with_other_rules_tells_whom_they_touch(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A data folder of before rules had a number: the log and the answer name the subscriptions that mean something
    else; the next start says no more, and the report is still there."""
    with running_application(tmp_path) as client:
        assert client.put("/v1/synonyms/mine", json={"Hewlett-Packard": "HP"}).status_code == 201
        touched = subscribe(client, 'not brand startswith "Hew"')["id"]
        pair = subscribe(client, "a < b")["id"]
        subscribe(client, 'brand = "HP"')
        assert client.get("/v1/rules").json()["impact"] is None
    engine = create_engine(f"sqlite:///{tmp_path / 'kindcast.db'}")
    with engine.begin() as connection:
        connection.execute(delete(meanings))
    caplog.clear()
    with running_application(tmp_path) as client:
        told = client.get("/v1/rules").json()
        assert (told["meaning"], told["impact"]["subscriptions"]["live"]) == (MEANING, 3)
        listed = {each["id"]: each["changes"] for each in told["impact"]["subscriptions"]["listed"]}
        assert listed == {
            touched: ['brand startswith "Hew": gains 1 words'],
            pair: ["a < b: compares quantities and date-times as such, not as texts"],
        }
        assert publish(client, brand="Hewlett-Packard") == 1
    assert f"subscription {touched}: brand startswith" in caplog.text
    assert "2 of 3 subscriptions may match differently" in caplog.text
    caplog.clear()
    with running_application(tmp_path) as client:
        assert client.get("/v1/rules").json() == told
    assert "may match differently" not in caplog.text
