"""Stored events for new subscriptions: all from a place on, once, in order, before the new ones; or nothing at all."""

import random
import re
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from kindcast.server.broker import broker, late_matches
from kindcast.server.broker.group import Group
from kindcast.server.broker.late_matches import Backfill
from kindcast.server.store import events
from tests.harness.application import problem_code, publish, running_application, show, subscribe, waiting
from tests.harness.operator_service import running_service
from tests.harness.receiver import running_receiver
from tests.harness.server_thread import running_app
from tests.integration.test_server_operators import register, until


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The setting of a database of our own; skips where no PostgreSQL is installed."""
    if request.param == "sqlite":
        return {}
    return {"database": request.getfixturevalue("postgresql").new_database()}


@pytest.fixture
def client(tmp_path: Path) -> Iterator[httpx.Client]:
    with running_application(tmp_path, backfill_events=50, backfill_matches=20) as client:
        yield client


def messages(client: httpx.Client, made: dict[str, Any]) -> list[dict[str, Any]]:
    page: dict[str, Any] = client.get(f"/v1/subscriptions/{made['id']}/events", params={"limit": 10_000}).json()
    found: list[dict[str, Any]] = page["events"]
    return found


def totals(client: httpx.Client) -> dict[str, float]:
    lines = re.findall(r"^(kindcast_(?:events|matches)_\w+) (\S+)$", client.get("/metrics").text, re.M)
    return {name: float(value) for name, value in lines}


def test_events_of_an_earlier_version_that_checked_less_are_read(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`subject` could have control characters. Such an event is still found, explained and counted."""
    event = {"specversion": "1.0", "id": "1", "source": "/s", "type": "t", "subject": "a\nb", "data": {"n": 1}}
    with monkeypatch.context() as patched:
        patched.setattr("kindcast.server.cloudevents._CONTROL", re.compile("(?!)"))
        sent = client.post("/v1/events", json=event, headers={"Content-Type": "application/cloudevents+json"})
        assert sent.status_code == 202, sent.text
    made = subscribe(client, "n = 1", start_at="2020-01-01T00:00:00Z")
    assert waiting(client, made) == [{"n": 1}]
    trace = client.get("/v1/events/1/trace", params={"subscription": made["id"]})
    assert (trace.status_code, trace.json().get("explanation", {}).get("matches")) == (200, True)
    begun = client.post("/v1/backtests", json={"expression": "n = 1"}).json()
    until(lambda: client.get(f"/v1/backtests/{begun['id']}").json()["status"] == "done")
    result = client.get(f"/v1/backtests/{begun['id']}").json()["result"]
    assert (result["matched"], result["unreadable"]) == (1, 0)


def test_events_that_the_retention_deletes_meanwhile_are_not_counted(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the reading of the stored events and the storing of the matches."""
    for n in range(5):
        publish(client, n=n)

    def create(group: Group, *rest: Any) -> Any:
        events.discard_before(group.connection, 4)
        return late_matches.create_with(group, *rest)

    monkeypatch.setattr(broker, "create_with", create)
    made = subscribe(client, "n >= 0", start_at="2020-01-01T00:00:00Z")
    assert waiting(client, made) == [{"n": 3}, {"n": 4}]
    assert made["backfill"]["matched"] == 2


def test_past_events_come_as_if_it_had_been_there(tmp_path: Path, store: dict[str, Any]) -> None:
    """From each start the same messages as a subscription got that was there all the time; then the new ones; also
    after a restart."""
    draw = random.Random(14)
    with running_application(tmp_path, **store) as client:
        there = subscribe(client, "n < 5 and tag = 'a'")
        for number in range(60):
            publish(client, n=draw.randrange(10), tag=draw.choice("ab"), number=number)
        listed = client.get("/v1/events", params={"limit": 100}).json()["events"]
        middle = listed[30]
        starts = {"earliest": 0, middle["accepted_at"]: 30, middle["sequence"]: 30}
        asked = {start: subscribe(client, "n < 5 and tag = 'a'", start_at=start) for start in starts}
        nothing = subscribe(client, "n < 5", start_at="2999-01-01T00:00:00Z")
        for number in range(60, 80):
            publish(client, n=draw.randrange(10), tag=draw.choice("ab"), number=number)
        told = totals(client)
    matches = told["kindcast_matches_delivered_total"] + told["kindcast_matches_pending"]
    with running_application(tmp_path, **store) as client:
        expected = waiting(client, there)
        assert len(expected) > 10
        for start, made in asked.items():
            found = messages(client, made)
            assert [each["event"]["data"] for each in found] == [
                each for each in expected if each["number"] >= starts[start]
            ]
            assert [each.get("late", False) for each in found] == [
                each["event"]["data"]["number"] < 60 for each in found
            ]
            cursors = [int(each["cursor"]) for each in found]
            assert cursors == sorted(set(cursors))
            late = [each for each in found if each.get("late")]
            assert [listed[each["sequence"] - 1]["event"] for each in late] == [each["event"] for each in late]
            assert not any("sequence" in each for each in found if each not in late)
            assert made["backfill"]["events"] == 60 - starts[start]
            assert made["backfill"]["matched"] == sum(starts[start] <= each["number"] < 60 for each in expected)
            assert show(client, made).json()["pending"] == len(found)
        assert nothing["backfill"] == {"events": 0, "matched": 0, "undecided": 0, "unreadable": 0}
        assert [each["number"] >= 60 for each in waiting(client, nothing)] == [True] * len(waiting(client, nothing))
        assert matches == len(waiting(client, nothing)) + sum(
            len(waiting(client, each)) for each in (there, *asked.values())
        )


def test_no_event_is_missing_or_comes_twice_while_others_publish(tmp_path: Path) -> None:
    """Events that are accepted while a subscription is being created are either past or new."""
    with running_app(tmp_path) as url, httpx.Client(base_url=url, timeout=60) as client:

        def write() -> None:
            with httpx.Client(base_url=url, timeout=60) as publisher:
                for number in range(150):
                    publish(publisher, number=number)

        writing = threading.Thread(target=write)
        writing.start()
        made = [subscribe(client, "number >= 0", start_at="earliest") for _ in range(8)]
        writing.join()
        for each in made:
            found = messages(client, each)
            assert [message["event"]["data"]["number"] for message in found] == list(range(150))


def test_damaged_event_is_counted_and_skipped(client: httpx.Client, tmp_path: Path) -> None:
    """One event that is not what was accepted costs a new subscription no other."""
    for number in range(3):
        publish(client, n=number)
    with closing(sqlite3.connect(tmp_path / "kindcast.db")) as store, store:
        store.execute("UPDATE events SET body = replace(body, '1', '2') WHERE sequence = 2")
    made = subscribe(client, "n >= 0", start_at="earliest")
    assert made["backfill"] == {"events": 3, "matched": 2, "undecided": 0, "unreadable": 1}
    assert waiting(client, made) == [{"n": 0}, {"n": 2}]
    assert "event 2" in client.get("/readyz").json()["warning"]


def test_no_event_is_missing_where_the_last_ones_fill_more_than_a_page(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command that creates the subscription reads one page. If there is more, everything is read again."""
    for number in range(3):
        publish(client, n=number)
    create_with, begun = late_matches.create_with, []

    def behind(group: Group, backfill: Backfill, create: Any) -> Any:
        if not begun:  # as if all events had been accepted just now
            backfill.through, backfill.matched = 0, []
        begun.append(backfill)
        return create_with(group, backfill, create)

    monkeypatch.setattr(broker, "create_with", behind)
    monkeypatch.setattr(events, "PAGE_BYTES", 1)
    assert waiting(client, subscribe(client, "n >= 0", start_at="earliest")) == [{"n": 0}, {"n": 1}, {"n": 2}]
    assert len(begun) == 2


def test_failed_creation_leaves_nothing(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The subscription and its messages are one transaction."""
    publish(client, n=1)
    before = totals(client)
    with monkeypatch.context() as patch:
        patch.setattr(late_matches, "retract_late", _fail)
        answer = client.post("/v1/subscriptions", json={"expression": "n = 1", "start_at": "earliest"})
        assert answer.status_code == 500
    assert client.get("/v1/subscriptions").json()["subscriptions"] == []
    assert totals(client) == before
    assert publish(client, n=1) == 0
    made = subscribe(client, "n = 1", start_at="earliest")
    assert waiting(client, made) == [{"n": 1}, {"n": 1}]


def _fail(*_: Any) -> None:
    raise RuntimeError("the disk is on fire")


def test_more_than_the_limits_is_refused(client: httpx.Client) -> None:
    """Nothing is created; a later start is accepted."""
    client.post("/v1/events", content=b'{"n": 1}\n' * 25, headers={"Content-Type": "application/x-ndjson"})
    wish = {"expression": "n = 1", "start_at": "earliest"}
    assert problem_code(client.post("/v1/subscriptions", json=wish)) == "backfill-too-large"
    client.post("/v1/events", content=b'{"m": 1}\n' * 30, headers={"Content-Type": "application/x-ndjson"})
    assert problem_code(client.post("/v1/subscriptions", json={**wish, "expression": "k = 1"})) == "backfill-too-large"
    assert client.get("/v1/subscriptions").json()["subscriptions"] == []
    first = client.get("/v1/events").json()["events"][10]["sequence"]
    made = subscribe(client, "n = 1", start_at=first)
    assert made["backfill"] == {"events": 45, "matched": 15, "undecided": 0, "unreadable": 0}


@pytest.mark.parametrize("start", ["", "yesterday", 0, -1, True, 1.5, [], "9999-99-99", 1 << 60])
def test_what_is_no_start_is_refused(client: httpx.Client, start: Any) -> None:
    answer = client.post("/v1/subscriptions", json={"expression": "", "start_at": start})
    assert problem_code(answer) == "invalid-request"
    assert answer.json()["errors"][0]["pointer"].startswith("/start_at")


def test_an_imported_line_has_no_start(client: httpx.Client) -> None:
    line = b'{"expression": "", "start_at": "earliest"}'
    told = client.post("/v1/subscriptions/import", content=line, headers={"Content-Type": "application/x-ndjson"})
    assert told.json()["rejected"][0]["problem"]["errors"][0]["pointer"] == "/start_at"


def test_webhook_gets_past_events_first(tmp_path: Path) -> None:
    with running_application(tmp_path, allow_private_sinks=True) as client, running_receiver() as receiver:
        for number in range(5):
            publish(client, n=number)
        subscribe(client, "n >= 2", start_at="earliest", sink=f"{receiver.url}/past")
        publish(client, n=5)
        got = receiver.wait_for("/past", 4)
        assert [each.message["event"]["data"]["n"] for each in got] == [2, 3, 4, 5]


def test_operators_decide_past_events_too(tmp_path: Path) -> None:
    """They are asked after the subscription was created, as of new events."""
    settings = {"allow_private_sinks": True, "plugins": False}
    with running_service() as service, running_application(tmp_path, **settings) as client:
        assert register(client, service, "yes", timeout_seconds=20).status_code == 201
        for number in range(3):
            publish(client, n=number)
        made = subscribe(client, "n >= 1 and yes()", start_at="earliest")
        assert made["backfill"] == {"events": 3, "matched": 0, "undecided": 2, "unreadable": 0}
        until(lambda: len(waiting(client, made)) == 2)
        assert sorted(each["n"] for each in waiting(client, made)) == [1, 2]
