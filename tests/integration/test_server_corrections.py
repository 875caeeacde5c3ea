"""Corrections: an event that withdraws another one reaches exactly those who got it, once, in whichever order."""

import contextlib
import random
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.harness.application import problem_code, running_application, subscribe
from tests.harness.operator_service import OperatorService
from tests.harness.waiting import until

EPCIS = {
    "properties": {"eventID": {"type": "string"}},
    "x-kindcast-subject": "eventID",
    "x-kindcast-revision": "errorDeclaration.declarationTime",
    "x-kindcast-retracts": "errorDeclaration",
}
STIX = {"x-kindcast-subject": "id", "x-kindcast-revision": "modified", "x-kindcast-retracts": "revoked"}
ACTIVITY = {"x-kindcast-subject": "id"}
UNDO = {"x-kindcast-subject": "id", "x-kindcast-retracts": ["object", "object.id"]}
SOURCE = "urn:warehouse"


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The setting of a database of our own; skips where no PostgreSQL is installed."""
    if request.param == "sqlite":
        return {}
    return {"database": request.getfixturevalue("postgresql").new_database()}


@pytest.fixture
def client(tmp_path: Path, database: dict[str, Any]) -> Iterator[httpx.Client]:
    with running_application(tmp_path, **database) as client:
        declare(client)
        yield client


def declare(client: httpx.Client) -> None:
    for name, schema in (("ObjectEvent", EPCIS), ("indicator", STIX), ("Create", ACTIVITY), ("Undo", UNDO)):
        assert client.put(f"/v1/schemas/{name}", json=schema).status_code == 201


def event(kind: str, id: str, /, **data: Any) -> dict[str, Any]:
    return {"specversion": "1.0", "id": id, "source": SOURCE, "type": kind, "data": data}


def publish(client: httpx.Client, *events: dict[str, Any]) -> dict[str, Any]:
    headers = {"Content-Type": "application/cloudevents-batch+json"}
    answer = client.post("/v1/events", json=events, headers=headers)
    assert answer.status_code == 202, answer.text
    told: dict[str, Any] = answer.json()
    return told


def got(client: httpx.Client, id: str) -> list[tuple[str, str]]:
    """What a subscription got, in order: ("event", id) or ("retracted", id of the withdrawn event)."""
    page = client.get(f"/v1/subscriptions/{id}/events", params={"limit": 1_000}).json()["events"]
    return [
        ("retracted", each["retracted"]["id"]) if each.get("retracted") else ("event", each["event"]["id"])
        for each in page
    ]


def epcis(number: int, *, error: str | None = None, **data: Any) -> dict[str, Any]:
    """An observation of an object, or its error declaration, which repeats the id of the event."""
    declared = {} if error is None else {"errorDeclaration": {"declarationTime": error, "reason": "incorrect_data"}}
    return event("ObjectEvent", f"urn:uuid:{number}", eventID=f"urn:uuid:{number}", **data, **declared)


def test_error_declaration_reaches_those_who_got_the_event(client: httpx.Client) -> None:
    """Who matches the declaration as well gets it as an event too; who matches only it gets no retraction."""
    both = subscribe(client, 'bizStep = "shipping"')["id"]
    first = subscribe(client, 'bizStep = "shipping" and errorDeclaration.reason missing')["id"]
    second = subscribe(client, 'errorDeclaration.reason = "incorrect_data"')["id"]
    other = subscribe(client, 'bizStep = "receiving"')["id"]
    publish(client, epcis(1, bizStep="shipping"))
    declared = epcis(1, error="2026-03-01T00:00:00Z", bizStep="shipping")
    assert publish(client, declared)["accepted"] == 1
    one = "urn:uuid:1"
    assert got(client, both) == [("event", one), ("event", one), ("retracted", one)]
    assert got(client, first) == [("event", one), ("retracted", one)]
    assert got(client, second) == [("event", one)]
    assert got(client, other) == []
    assert publish(client, declared)["duplicates"] == 1
    assert publish(client, epcis(1, error="2026-03-02T00:00:00Z", bizStep="shipping"))["accepted"] == 1
    assert [each for each in got(client, first) if each[0] == "retracted"] == [("retracted", one)]


def test_retraction_names_the_withdrawn_event(client: httpx.Client) -> None:
    """By source, id and sequence, beside the event that withdraws it; the trace of that tells of the message."""
    id = subscribe(client, 'bizStep = "shipping" and errorDeclaration.reason missing')["id"]
    sequence = publish(client, epcis(1, bizStep="shipping"))["events"][0]["sequence"]
    publish(client, epcis(1, error="2026-03-01T00:00:00Z", bizStep="shipping"))
    message = client.get(f"/v1/subscriptions/{id}/events").json()["events"][-1]
    assert message["retracted"] == {"source": SOURCE, "id": "urn:uuid:1", "sequence": sequence}
    assert message["event"]["data"]["errorDeclaration"]["reason"] == "incorrect_data"
    assert not message.get("late")
    trace = client.get("/v1/events/2/trace", params={"subscription": id}).json()
    assert [each["subscription"] for each in trace["deliveries"]] == [id]
    assert not trace["explanation"]["recorded"]


def test_retraction_that_comes_first_follows_the_event(client: httpx.Client) -> None:
    """Also in one batch, in either order; a source withdraws its own events only."""
    id = subscribe(client, 'bizStep = "shipping" and errorDeclaration.reason missing')["id"]
    publish(client, epcis(1, error="2026-03-01T00:00:00Z"))
    publish(client, epcis(1, bizStep="shipping"))
    publish(client, epcis(2, error="2026-03-01T00:00:00Z"), epcis(2, bizStep="shipping"))
    publish(client, epcis(3, bizStep="shipping"), epcis(3, error="2026-03-01T00:00:00Z"))
    elsewhere = epcis(1, bizStep="shipping") | {"source": "urn:other"}
    publish(client, elsewhere)
    expected = [(kind, f"urn:uuid:{number}") for number in (1, 2, 3) for kind in ("event", "retracted")]
    assert got(client, id) == [*expected, ("event", "urn:uuid:1")]


def test_event_that_is_kept_for_a_late_match_can_be_withdrawn(tmp_path: Path) -> None:
    """The retention has deleted its first match, but not yet the one of a subscription that read past events."""
    with running_application(tmp_path) as client:
        declare(client)
        early = subscribe(client, "epc exists")["id"]
        publish(client, epcis(1, epc="a"), epcis(2, other="b"))
        late = subscribe(client, "epc exists", start_at="earliest")["id"]
    with contextlib.closing(sqlite3.connect(tmp_path / "kindcast.db")) as database, database:
        database.execute("UPDATE late SET decided_at = decided_at + 3600")
    with running_application(tmp_path, retention_seconds=0.05, sweep_seconds=0.05) as client:
        until(lambda: client.get(f"/v1/subscriptions/{early}/events?after=0").status_code == 410)
        publish(client, epcis(1, error="2026-01-01T00:00:00Z"))
        assert got(client, late) == [("event", "urn:uuid:1"), ("retracted", "urn:uuid:1")]


def test_revisions_are_events_of_their_own(client: httpx.Client) -> None:
    """One id in three revisions; revoking withdraws all that are not newer, and a later revision stands."""
    id = subscribe(client, "name exists")["id"]

    def revision(month: int, **more: Any) -> dict[str, Any]:
        modified = f"2026-{month:02}-01T00:00:00Z"
        return event("indicator", "indicator--1", id="indicator--1", modified=modified, **({"name": "n"} | more))

    assert publish(client, revision(1), revision(2), revision(2))["duplicates"] == 1
    assert publish(client, revision(3, revoked=True), revision(4, revoked=False, name="m"))["accepted"] == 2
    assert publish(client, revision(1))["duplicates"] == 1
    one = "indicator--1"
    assert got(client, id) == [*[("event", one)] * 4, ("retracted", one), ("retracted", one)]
    page = client.get(f"/v1/subscriptions/{id}/events").json()["events"]
    assert [each["retracted"]["sequence"] for each in page if "retracted" in each] == [1, 2]
    listed = client.get("/v1/events").json()["events"]
    assert {each["event"]["id"] for each in listed} == {one}


def test_one_revision_written_differently_is_accepted_once(client: httpx.Client) -> None:
    """Revisions are the same if they are the same date-time or number, however they are written, and no rounding."""

    def revision(modified: object) -> dict[str, Any]:
        return event("indicator", "indicator--1", id="indicator--1", modified=modified)

    same = [
        ("2026-01-01T00:00:00Z", "2026-01-01T01:00:00+01:00", "2026-01-01T00:00:00.000Z"),
        (1, 1.0, "1", "01.0", "1e0"),
        ("final", "final"),
    ]
    told = publish(client, *(revision(each) for group in same for each in group))
    assert (told["accepted"], told["duplicates"]) == (3, 7)
    others = [
        str(1 << 53),
        str((1 << 53) + 1),
        0.5,
        "2026-01-01T00:00:00.0000001Z",
        "2026-01-01T00:00:00.0000002Z",
        "Final",
    ]
    assert publish(client, *map(revision, others))["accepted"] == len(others)


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        (str(1 << 53), str((1 << 53) + 1)),
        ("9", "10"),
        ("2026-01-01T00:30:00+01:00", "2026-01-01T00:00:00Z"),
        ("2026-01-01T00:00:00.00000019Z", "2026-01-01T00:00:00.0000002Z"),
    ],
)
def test_a_newer_revision_stands(client: httpx.Client, older: object, newer: object) -> None:
    id = subscribe(client, "name exists")["id"]
    publish(client, event("indicator", "i", id="i", modified=newer, name="n"))
    publish(client, event("indicator", "i", id="i", modified=older, revoked=True))
    assert got(client, id) == [("event", "i")]


def test_subscription_that_has_ended_gets_retractions_of_its_events(client: httpx.Client) -> None:
    """It can still be read and renewed, and would go on with an event that nobody stands by."""
    made = subscribe(client, "name exists", ttl_seconds=1)
    publish(client, event("Create", "1", id="a", name="n"))
    deadline = time.monotonic() + 30
    while not client.get(f"/v1/subscriptions/{made['id']}/events").json().get("expired"):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    publish(client, event("Undo", "2", id="b", object="a"), event("Create", "3", id="c", name="n"))
    assert got(client, made["id"]) == [("event", "1"), ("retracted", "1")]
    renewed = client.post(
        f"/v1/subscriptions/{made['id']}/renew", json={"ttl_seconds": 600}, headers={"Kindcast-Ticket": made["ticket"]}
    )
    assert renewed.status_code == 200
    publish(client, event("Create", "4", id="d", name="n"))
    assert got(client, made["id"]) == [("event", "1"), ("retracted", "1"), ("event", "4")]


def test_undo_withdraws_the_activity_that_it_names(client: httpx.Client) -> None:
    """By its IRI, or as a node."""
    id = subscribe(client, 'ce.type = "Create"')["id"]
    publish(
        client,
        event("Create", "1", id="urn:a:1"),
        event("Create", "2", id="urn:a:2"),
        event("Create", "3", id="urn:a:3"),
    )
    publish(client, event("Undo", "4", id="urn:a:4", object="urn:a:1"))
    publish(client, event("Undo", "5", id="urn:a:5", object={"type": "Create", "id": "urn:a:2"}))
    assert got(client, id)[3:] == [("retracted", "1"), ("retracted", "2")]


def document(client: httpx.Client, id: str, data: Any, kind: str, media_type: str = "application/json") -> int:
    """Publishes an envelope; how many of its events are accepted."""
    whole = {
        "specversion": "1.0",
        "id": id,
        "source": SOURCE,
        "type": kind,
        "datacontenttype": media_type,
        "data": data,
    }
    answer = client.post("/v1/events", json=whole, headers={"Content-Type": "application/cloudevents+json"})
    assert answer.status_code == 202, answer.text
    return int(answer.json()["accepted"])


def named(client: httpx.Client, id: str) -> list[str]:
    """The events that a subscription got, by what they are about; those that it was told are withdrawn with a minus."""
    page = client.get(f"/v1/subscriptions/{id}/events", params={"limit": 1_000}).json()["events"]
    return [
        f"-{each['retracted']['id'].split('#')[1]}" if "retracted" in each else str(each["event"]["id"].split("#")[1])
        for each in page
    ]


EPCIS_URL = "https://ref.gs1.org/standards/epcis/epcis-context.jsonld"
EPCIS_CONTEXT = {"@context": {"@vocab": "https://ref.gs1.org/epcis/", "type": "@type", "eventID": "@id"}}


@pytest.mark.parametrize("linked", [False, True], ids=["plain", "JSON-LD"])
def test_error_declarations_in_documents_of_several_events(client: httpx.Client, linked: bool) -> None:
    """Before and after the event, in the same document and in another; a document of one event withdraws too."""
    client.put("/v1/contexts", params={"url": EPCIS_URL}, json=EPCIS_CONTEXT).raise_for_status()
    id = subscribe(client, 'bizStep = "shipping" and errorDeclaration.reason missing')["id"]

    def told(number: int, *, error: bool = False) -> dict[str, Any]:
        declared = {"declarationTime": "2026-03-01T00:00:00Z", "reason": "incorrect_data"}
        data = {"type": "ObjectEvent", "eventID": f"urn:e:{number}", "bizStep": "shipping"}
        return data | ({"errorDeclaration": declared} if error else {})

    def send(name: str, *events: dict[str, Any]) -> int:
        context = {"@context": EPCIS_URL} if linked else {}
        body = {**context, "type": "EPCISDocument", "epcisBody": {"eventList": list(events)}}
        return document(client, name, body, "ObjectEvent", "application/ld+json" if linked else "application/json")

    assert send("d1", told(1), told(2), told(3, error=True)) == 3
    assert send("d2", told(3), told(1, error=True), told(4), told(4, error=True)) == 4
    assert send("d2", told(3), told(1, error=True), told(4), told(4, error=True)) == 0
    assert send("d3", told(2, error=True)) == 1
    got = named(client, id)
    assert sorted(got) == sorted(f"{sign}urn:e:{n}" for n in (1, 2, 3, 4) for sign in ("", "-"))
    assert all(got.index(f"urn:e:{n}") < got.index(f"-urn:e:{n}") for n in (1, 2, 3, 4))


def test_undo_and_revoked_in_documents_of_several_events(client: httpx.Client) -> None:
    activities = subscribe(client, '`@type` = "https://www.w3.org/ns/activitystreams#Create"')["id"]
    indicators = subscribe(client, "pattern exists")["id"]
    context = "https://www.w3.org/ns/activitystreams"
    made = [{"type": "Create", "id": f"urn:a:{n}", "actor": "urn:b"} for n in (1, 2)]
    undone = [
        {"type": "Undo", "id": "urn:a:3", "object": "urn:a:1"},
        {"type": "Undo", "id": "urn:a:4", "object": made[1]},
    ]
    page = {"@context": context, "type": "Collection", "items": [undone[1], *made, undone[0]]}
    assert document(client, "p1", page, "activity", "application/ld+json") == 4
    assert sorted(named(client, activities)) == ["-urn:a:1", "-urn:a:2", "urn:a:1", "urn:a:2"]

    def indicator(number: int, day: int, **more: Any) -> dict[str, Any]:
        return {
            "type": "indicator",
            "id": f"indicator--{number}",
            "modified": f"2026-03-0{day}T00:00:00Z",
            "pattern": "p",
        } | more

    first = {"type": "bundle", "id": "bundle--1", "objects": [indicator(1, 1), indicator(2, 1), indicator(2, 3)]}
    second = {
        "type": "bundle",
        "id": "bundle--2",
        "objects": [indicator(1, 2, revoked=True), indicator(2, 2, revoked=True)],
    }
    assert document(client, "b1", first, "indicator") == 3
    assert document(client, "b2", second, "indicator") == 2
    told = [each for each in named(client, indicators) if each.startswith("-")]
    assert told == ["-indicator--1", "-indicator--2"]  # the newer revision of the second stands


def test_corrections_are_declared_well_or_refused(client: httpx.Client) -> None:
    """Names of attributes; what is declared may be added to a type, and not changed."""
    for wrong in ({"x-kindcast-subject": 5}, {"x-kindcast-revision": ["a", "b"]}, {"x-kindcast-retracts": ["a", ""]}):
        refused = client.put("/v1/schemas/wrong", json=wrong)
        assert (refused.status_code, problem_code(refused)) == (422, "invalid-declaration")
    changed = client.put("/v1/schemas/Create", json={"x-kindcast-subject": "ce.id"})
    assert (changed.status_code, problem_code(changed)) == (422, "invalid-declaration")
    assert client.get("/v1/schemas/Undo").json()["declaration"] == UNDO


def test_late_match_of_a_withdrawn_event_is_followed_by_its_retraction(tmp_path: Path) -> None:
    """The operator answers only after the event was withdrawn; a second subscription had it in time."""
    service = OperatorService()
    settings: dict[str, Any] = {"allow_private_sinks": True, "plugins": False, "operator_delays_seconds": (0.1,) * 200}
    with running_application(tmp_path, **settings) as client:
        declare(client)
        answer = client.put("/v1/operators/yes", json={"url": f"{service.url}/yes", "timeout_seconds": 5})
        assert answer.status_code == 201, answer.text
        late = subscribe(client, 'bizStep = "shipping" and yes()')["id"]
        early = subscribe(client, 'bizStep = "shipping"')["id"]
        publish(client, epcis(1, bizStep="shipping"))
        publish(client, epcis(1, error="2026-03-01T00:00:00Z"))
        expected = [("event", "urn:uuid:1"), ("retracted", "urn:uuid:1")]
        assert (got(client, early), got(client, late)) == (expected, [])
        service.start()
        try:
            deadline = time.monotonic() + 60
            while len(got(client, late)) < 2 and time.monotonic() < deadline:
                time.sleep(0.05)
        finally:
            service.kill()
        assert (got(client, early), got(client, late)) == (expected, expected)


@pytest.mark.parametrize("seed", range(3))
def test_retractions_reach_exactly_the_recipients(tmp_path: Path, database: dict[str, Any], seed: int) -> None:
    """Random events and error declarations, in random batches with repetitions and a restart in between: a subscriber
    gets each event of its kind once, and each that is withdrawn is retracted once, after it."""
    chance = random.Random(seed)
    numbers = range(30)
    steps = {number: chance.choice(["shipping", "receiving", "packing"]) for number in numbers}
    withdrawn = set(chance.sample(numbers, 15))
    log = [epcis(number, bizStep=steps[number]) for number in numbers]
    log += [epcis(number, error="2026-03-01T00:00:00Z") for number in sorted(withdrawn)]
    log += chance.choices(log, k=20)
    chance.shuffle(log)
    ids: dict[str, str] = {}
    with running_application(tmp_path, **database) as client:
        declare(client)
        for step in ("shipping", "receiving"):
            ids[step] = subscribe(client, f'bizStep = "{step}"')["id"]
        _publish_in_batches(client, log[:30], chance)
    with running_application(tmp_path, **database) as client:
        _publish_in_batches(client, log[30:], chance)
        for step, id in ids.items():
            messages = got(client, id)
            mine = {f"urn:uuid:{number}" for number in numbers if steps[number] == step}
            assert sorted(name for kind, name in messages if kind == "event") == sorted(mine)
            retracted = [name for kind, name in messages if kind == "retracted"]
            assert sorted(retracted) == sorted(mine & {f"urn:uuid:{number}" for number in withdrawn})
            assert all(messages.index(("event", name)) < messages.index(("retracted", name)) for name in retracted)


def _publish_in_batches(client: httpx.Client, log: list[dict[str, Any]], chance: random.Random) -> None:
    while log:
        size = chance.randint(1, 8)
        publish(client, *log[:size])
        log = log[size:]
