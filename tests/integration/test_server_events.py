"""Events over HTTP: every mode, duplicates, bad input, reading back, tracing, matching and explaining."""

import asyncio
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from kindcast.semantic.shipped_vocabularies import shipped
from kindcast.server.api import events
from kindcast.server.broker import Broker, publishing
from kindcast.server.cloudevents import EventReader
from kindcast.server.errors import StoreUnavailable
from tests.harness.application import problem_code, running_application

EVENT = {"specversion": "1.0", "id": "1", "source": "urn:shop", "type": "offer", "data": {"price": 350}}
STRUCTURED = "application/cloudevents+json"
BATCH = "application/cloudevents-batch+json"
LINES = "application/x-ndjson"
CHEAP_COMPUTER = "target isa Computer and price <= 400"


@pytest.fixture
def client(tmp_path: Path) -> Iterator[httpx.Client]:
    with running_application(tmp_path) as client:
        yield client


@pytest.fixture
def shop(client: httpx.Client) -> httpx.Client:
    """A client of a server that knows the shipped shop."""
    answer = client.put("/v1/ontologies/shop", content=shipped("shop").read_bytes())
    assert answer.status_code == 201
    return client


def publish(client: httpx.Client, body: Any, content_type: str = "application/json", **headers: str) -> Any:
    content = body if isinstance(body, str | bytes) else json.dumps(body)
    named = {"Content-Type": content_type} | {name.replace("_", "-"): value for name, value in headers.items()}
    return client.post("/v1/events", content=content, headers=named)


def accepted(answer: Any) -> dict[str, Any]:
    assert answer.status_code == 202, answer.text
    document: dict[str, Any] = answer.json()
    return document


def subscribe(client: httpx.Client, expression: str = "", **more: Any) -> str:
    answer = client.post("/v1/subscriptions", json={"expression": expression, **more})
    assert answer.status_code == 201, answer.text
    id: str = answer.json()["id"]
    return id


def stored(client: httpx.Client) -> list[dict[str, Any]]:
    """The CloudEvents in the log."""
    return [each["event"] for each in client.get("/v1/events").json()["events"]]


# ── modes ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_publish_every_mode_arrives_as_the_same_event(client: httpx.Client) -> None:
    """Structured, binary and batch give the same stored event, but for its id."""
    accepted(publish(client, EVENT, STRUCTURED))
    binary = {"ce_specversion": "1.0", "ce_id": "2", "ce_source": "urn:shop", "ce_type": "offer"}
    accepted(publish(client, EVENT["data"], "application/json", **binary))
    accepted(publish(client, [EVENT | {"id": "3"}, EVENT | {"id": "4"}], BATCH))
    accepted(publish(client, json.dumps(EVENT | {"id": "5"}), LINES))
    events = stored(client)
    assert [event["id"] for event in events] == ["1", "2", "3", "4", "5"]
    for event in events:
        assert event | EVENT | {"id": event["id"]} == event


def test_publish_plain_object_is_answered_with_its_id_and_sequence(client: httpx.Client) -> None:
    """The answer says under which id and sequence it is kept, and how many subscriptions got it."""
    subscribe(client, "price <= 400")
    answer = accepted(publish(client, {"price": 350}))
    (event,) = answer["events"]
    assert (answer["accepted"], answer["duplicates"], answer["matched"], answer["rejected"]) == (1, 0, 1, [])
    assert (event["sequence"], event["matched"], event["notes"]) == (1, 1, [])
    assert stored(client)[0]["id"] == event["id"]


def test_publish_lines_a_bad_one_does_not_stop_the_rest(client: httpx.Client) -> None:
    """Bad lines are reported with index, line and problem; the others are accepted."""
    body = '{"price": 1}\n\n{"price": NaN}\n{"ce.type": "x"}\n{"price": 2}\n'
    answer = accepted(publish(client, body, LINES))
    assert answer["accepted"] == 2
    assert [(each["index"], each["line"]) for each in answer["rejected"]] == [(1, 3), (2, 4)]
    codes = [each["problem"]["type"].rpartition("/")[2] for each in answer["rejected"]]
    assert codes == ["malformed-json", "invalid-event"]
    assert len(stored(client)) == 2


def test_publish_terse_answer_counts_only(client: httpx.Client) -> None:
    """?verbose=false leaves the list of events out, for bulk."""
    answer = accepted(client.post("/v1/events?verbose=false", content="{}\n{}\n", headers={"Content-Type": LINES}))
    assert answer == {"accepted": 2, "duplicates": 0, "matched": 0, "rejected": []}


def test_publish_notes_cover_every_attribute_up_to_a_hundred(client: httpx.Client) -> None:
    """Also those that nobody asks about, nested and in arrays too; a terse answer makes and keeps none."""
    client.put("/v1/attributes/weight", json={"unit": "kg", "kind": "number"}).raise_for_status()
    subscribe(client, "price <= 400")
    data = {"price": 350, "boxes": [{"weight": f"{number} USD"} for number in range(3)], "weight": "5 EUR"}
    event = accepted(publish(client, data))["events"][0]
    assert event["matched"] == 1
    assert {(note["code"], note["attribute"]) for note in event["notes"]} == {
        ("wrong-dimension", "weight"),
        ("wrong-dimension", "boxes.weight"),
    }
    many = accepted(publish(client, {f"box{number}": {"weight": "5 USD"} for number in range(150)}))["events"][0]
    assert len(many["notes"]) == 100
    terse = accepted(client.post("/v1/events?verbose=false", json=data))
    assert terse == {"accepted": 1, "duplicates": 0, "matched": 1, "rejected": []}
    kept = client.get("/v1/events").json()["events"]
    assert [len(each["notes"]) for each in kept] == [len(event["notes"]), 100, 0]
    asked = client.post("/v1/match", json={"event": data}).json()
    assert asked["notes"] == event["notes"]


def test_publish_nothing_is_accepted_as_nothing(client: httpx.Client) -> None:
    """An empty batch and empty lines are no error."""
    for body, content_type in (("[]", BATCH), ("\n\n", LINES)):
        assert accepted(publish(client, body, content_type))["accepted"] == 0


# ── duplicates ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_publish_same_event_again_is_a_duplicate(client: httpx.Client) -> None:
    """The same source and id are accepted once, with the sequence of the first; a subscriber gets one message."""
    id = subscribe(client)
    first = accepted(publish(client, EVENT, STRUCTURED))["events"][0]
    again = accepted(publish(client, EVENT, STRUCTURED))
    assert (again["accepted"], again["duplicates"]) == (0, 1)
    assert again["events"][0] == first | {"duplicate": True}
    assert len(client.get(f"/v1/subscriptions/{id}/events").json()["events"]) == 1


def test_publish_same_id_with_another_body_is_noted(client: httpx.Client) -> None:
    """The first body stands; the note `differs` tells the publisher that it contradicts itself."""
    accepted(publish(client, EVENT, STRUCTURED))
    again = accepted(publish(client, EVENT | {"data": {"price": 1}}, STRUCTURED))
    assert [note["code"] for note in again["events"][0]["notes"]] == ["differs"]
    assert stored(client)[0]["data"] == {"price": 350}


def test_publish_duplicates_within_one_request(client: httpx.Client) -> None:
    """Also inside a batch the first wins; another source with the same id is another event."""
    batch = [EVENT, EVENT | {"data": {}}, EVENT, EVENT | {"source": "urn:other"}]
    answer = accepted(publish(client, batch, BATCH))
    assert (answer["accepted"], answer["duplicates"]) == (2, 2)
    assert [each.get("duplicate", False) for each in answer["events"]] == [False, True, True, False]
    assert [len(each["notes"]) for each in answer["events"]] == [0, 1, 0, 0]
    assert [each["sequence"] for each in answer["events"]] == [1, 1, 1, 2]


# ── bad input ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("body", "content_type", "status", "code"),
    [
        ("{", "application/json", 400, "malformed-json"),
        ('{"price": NaN}', "application/json", 400, "malformed-json"),
        ('{"price": 1e999}', "application/json", 400, "malformed-json"),
        ('{"a": "\\ud800"}', "application/json", 400, "malformed-json"),
        ('{"a": ' + "[" * 65 + "]" * 65 + "}", "application/json", 400, "too-deep"),
        ("[" * 100_000, "application/json", 400, "too-deep"),
        ('{"n": 123456789012345678901234567890123}', "application/json", 422, "invalid-event"),
        ('{"ce": {"type": "x"}}', "application/json", 422, "invalid-event"),
        ("[1]", "application/json", 422, "invalid-event"),
        ('{"specversion": "1.0"}', STRUCTURED, 422, "invalid-event"),
        ("{}", BATCH, 400, "malformed-request"),
        ("nope\n{", LINES, 422, "no-event-accepted"),
        ("a,b", "text/csv", 415, "unsupported-media-type"),
        ("", "application/cloudevents+avro", 415, "unsupported-media-type"),
    ],
)
def test_publish_bad_input_is_refused_and_stored_nowhere(
    client: httpx.Client, body: str, content_type: str, status: int, code: str
) -> None:
    """What cannot be understood is answered with what is wrong, and leaves no trace."""
    answer = publish(client, body, content_type)
    assert (answer.status_code, problem_code(answer)) == (status, code)
    assert stored(client) == []


@pytest.mark.parametrize("content_type", [BATCH, LINES])
def test_errors_of_many_events_are_bounded(client: httpx.Client, content_type: str) -> None:
    """Each wrong member of each event had an error of its own: 12 MB were answered with 198 MB."""
    wrong = {"specversion": "1.0", **{f"A{number}": 1 for number in range(50)}}

    def send(events: list[dict[str, Any]]) -> httpx.Response:
        body = json.dumps(events) if content_type == BATCH else "\n".join(json.dumps(each) for each in events)
        answer: httpx.Response = publish(client, body, content_type)
        return answer

    refused = send([wrong] * 300)
    assert (refused.status_code, problem_code(refused)) == (422, "no-event-accepted")
    told = refused.json()
    assert "no event can be read (`rejected` has the first 100 of 300): " in told["detail"]
    assert [each["index"] for each in told["rejected"]] == list(range(100))
    partly = accepted(send([wrong] * 300 + [EVENT]))
    assert partly["accepted"] == 1
    assert [each["index"] for each in partly["rejected"]] == list(range(300))
    for listed in (told["rejected"], partly["rejected"]):
        counts = [len(each["problem"].get("errors", ())) for each in listed]
        assert counts == [10] * 10 + [0] * (len(listed) - 10)
        details = [each["problem"]["detail"] for each in listed]
        assert all(each.endswith(" (and at least 10 more, see errors)") for each in details[:10])
        assert all(each.startswith("/A0: ") and each.endswith(" (and at least 1 more)") for each in details[10:])


def test_errors_of_many_events_of_a_type_are_bounded(client: httpx.Client) -> None:
    """As those of the envelope: what a schema, a match or a delivered match finds wrong."""
    members = {f"a{number}": {"type": "integer"} for number in range(30)}
    assert client.put("/v1/schemas/t", json={"type": "object", "properties": members}).status_code == 201
    wrong = EVENT | {"type": "t", "data": dict.fromkeys(members, "x")}
    events = [wrong | {"id": str(number)} for number in range(30)]
    alone = publish(client, wrong, STRUCTURED).json()
    assert len(alone["errors"]) == 30
    assert alone["detail"].endswith(" (and 29 more, see errors)")
    published = publish(client, events, BATCH).json()["rejected"]
    matched = client.post("/v1/match", json={"events": events}).json()["results"]
    shapeless = [{"event": {"specversion": "1.0", **{f"A{number}": 1 for number in range(30)}}}] * 30
    delivered = client.post("/v1/matches", json={"matches": shapeless}).json()["rejected"]
    for listed in (published, matched, delivered):
        assert len(listed) == 30
        assert sum(len(each["problem"].get("errors", ())) for each in listed) <= 100
        assert all(" more" in each["problem"]["detail"] for each in listed)


@pytest.mark.parametrize("year", ["0001", "1600", "2300", "9999"])
def test_time_of_any_year_is_accepted(client: httpx.Client, year: str) -> None:
    """Beyond the dates that the index can compare, the time is only a string. It was refused as no date-time."""
    time = f"{year}-12-31T23:59:59Z"
    text, later = (subscribe(client, each) for each in (f'ce.time = "{time}"', "ce.time > 2020-01-01T00:00:00Z"))
    answer = accepted(publish(client, {**EVENT, "time": time}, STRUCTURED))
    assert (answer["accepted"], answer["matched"]) == (1, 1)
    assert stored(client)[0]["time"] == time
    found = [len(client.get(f"/v1/subscriptions/{each}/events").json()["events"]) for each in (text, later)]
    assert found == [1, 0]


def test_a_number_that_is_too_large_has_its_place(client: httpx.Client) -> None:
    """As a pointer, and in a batch with the place of its event. The other events are accepted."""
    number = '{"n": 1, "x": {"a/b": [1.5, -1e999]}}'
    enveloped = json.dumps({"specversion": "1.0", "id": "1", "source": "s", "type": "t"})
    told = publish(client, f"[{enveloped}, {number}]", BATCH).json()
    assert (told["accepted"], [each["index"] for each in told["rejected"]]) == (1, [1])
    for content_type, body in (("application/json", number), (LINES, number), (BATCH, f"[{number}]")):
        told = publish(client, body, content_type).json()
        told = told["rejected"][0]["problem"] if "rejected" in told else told
        assert told["errors"] == [
            {"code": "malformed-json", "detail": "a number is too large for a double", "pointer": "/x/a~1b/1"}
        ]
    told = client.post("/v1/check", content=number, headers={"Content-Type": "application/json"}).json()
    assert [each["pointer"] for each in told["errors"]] == ["/x/a~1b/1"]


def test_a_fault_has_its_place_in_what_was_sent(client: httpx.Client) -> None:
    """In a CloudEvent that is one JSON document the data is its member `data`; else the body is the data."""
    data = {"a": {"b/c": [1, 10**400]}}
    inside = "/a/b~1c/1"
    whole = {**EVENT, "data": data}

    def places(answer: httpx.Response) -> list[str]:
        told = answer.json()
        told = told["rejected"][-1]["problem"] if "rejected" in told else told
        return [each["pointer"] for each in told["errors"]]

    assert places(publish(client, data)) == [inside]
    assert places(publish(client, data, ce_id="1", ce_source="s", ce_type="t", ce_specversion="1.0")) == [inside]
    assert places(publish(client, whole, STRUCTURED)) == ["/data" + inside]
    assert places(publish(client, [{**EVENT, "id": "2"}, whole], BATCH)) == ["/data" + inside]
    assert places(publish(client, json.dumps(whole), LINES)) == ["/data" + inside]
    assert places(publish(client, json.dumps(data), LINES)) == [inside]
    assert places(publish(client, {**EVENT, "time": "noon"}, STRUCTURED)) == ["/time"]
    expression = {"subscription": "n = 1"}
    for path, more in (("/v1/match", {}), ("/v1/explain", expression)):
        assert places(client.post(path, json={"event": data, **more})) == ["/event" + inside]
        assert places(client.post(path, json={"event": whole, **more})) == ["/event/data" + inside]
        assert places(client.post(path, json={"event": {**EVENT, "time": "noon"}, **more})) == ["/event/time"]
    listed = client.post("/v1/match", json={"events": [EVENT, whole]}).json()["results"]
    assert [each["pointer"] for each in listed[1]["problem"]["errors"]] == ["/data" + inside]


@pytest.mark.parametrize(
    "path",
    ["events", "matches", "subscriptions", "subscriptions/import", "check", "match", "ngsi-ld/notifications"],
)
def test_compressed_body_is_refused_in_words(client: httpx.Client, path: str) -> None:
    """Content-Encoding is not silently ignored."""
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    answer = client.post(f"/v1/{path}", content=b"\x1f\x8b", headers=headers)
    assert (answer.status_code, problem_code(answer)) == (415, "unsupported-encoding")


def test_publish_more_than_a_request_may_hold_is_refused(tmp_path: Path) -> None:
    """Both bounds, events and bytes, are settings and are told."""
    with running_application(tmp_path, max_events_per_request=2, max_body_bytes=1_000) as client:
        events = publish(client, "{}\n{}\n{}", LINES)
        assert (events.status_code, problem_code(events)) == (413, "too-many-events")
        announced = publish(client, " " * 1_001)
        chunked = client.post("/v1/events", content=iter([b" " * 600] * 2), headers={"Content-Type": LINES})
        for answer in (announced, chunked):
            assert (answer.status_code, problem_code(answer)) == (413, "body-too-large")
        assert stored(client) == []


# ── matching, explaining, tracing ───────────────────────────────────────────────────────────────────────────────────


def test_match_tells_who_would_match_and_stores_nothing(shop: httpx.Client) -> None:
    """The paper's example: John's computer at 450 is too dear, at 350 it matches."""
    id = subscribe(shop, CHEAP_COMPUTER)
    answer = shop.post("/v1/match", json={"events": [{"target": "laptop", "price": price} for price in (450, 350)]})
    assert [[match["subscription"] for match in each["matches"]] for each in answer.json()["results"]] == [[], [id]]
    single = shop.post("/v1/match", json={"event": {"target": "Notebook", "price": 350}}).json()
    assert single["matches"] == [{"subscription": id, "bindings": []}]
    assert stored(shop) == []
    assert shop.get(f"/v1/subscriptions/{id}/events").json()["events"] == []


def test_match_events_that_cannot_be_read_stand_in_their_place(client: httpx.Client) -> None:
    """One bad event of several is a problem in its place."""
    results = client.post("/v1/match", json={"events": [{}, {"ce": 1}, 5]}).json()["results"]
    assert ["problem" in each for each in results] == [False, True, True]
    single = client.post("/v1/match", json={"event": {"ce": 1}})
    assert (single.status_code, problem_code(single)) == (422, "invalid-event")


@pytest.mark.parametrize("body", [{}, {"event": {}, "events": []}, {"event": {}, "more": 1}, {"events": {}}])
def test_match_malformed_request_is_refused(client: httpx.Client, body: dict[str, Any]) -> None:
    """Exactly one of `event` and `events`, and nothing else."""
    answer = client.post("/v1/match", json=body)
    assert (answer.status_code, problem_code(answer)) == (422, "invalid-request")


def test_explain_says_that_the_price_alone_stands_in_the_way(shop: httpx.Client) -> None:
    """Per predicate the verdict and the path; the summary names the one thing that is missing."""
    id = subscribe(shop, CHEAP_COMPUTER)
    event = {"target": "Notebook", "price": 450}
    for asked in (id, CHEAP_COMPUTER):
        said = shop.post("/v1/explain", json={"event": event, "subscription": asked}).json()
        assert not said["matches"]
        assert "price alone" in said["summary"]
        kind, price = said["clauses"][0]["predicates"]
        assert (kind["verdict"], price["verdict"]) == (True, False)
        assert kind["values"][0]["path"][0] == "Laptop"
        assert kind["values"][0]["path"][-1] == "Computer"


def test_explain_bad_expression_names_the_place(shop: httpx.Client) -> None:
    """What is neither an id nor an expression is refused like a subscription."""
    answer = shop.post("/v1/explain", json={"event": {}, "subscription": "target isa Computr"})
    assert (answer.status_code, problem_code(answer)) == (422, "invalid-subscription")
    assert answer.json()["errors"][0]["column"] == 12


def test_trace_follows_an_event_to_its_deliveries(shop: httpx.Client) -> None:
    """Accepted when, under which vocabulary, by whom matched, and whether they have it."""
    id = subscribe(shop, CHEAP_COMPUTER)
    ticket = shop.post("/v1/subscriptions", json={"expression": "price exists"}).json()
    sequence = accepted(publish(shop, {"target": "laptop", "price": 350}))["events"][0]["sequence"]
    shop.post(
        f"/v1/subscriptions/{ticket['id']}/ack",
        json={"cursor": str(sequence)},
        headers={"Kindcast-Ticket": ticket["ticket"]},
    )
    trace = shop.get(f"/v1/events/{sequence}/trace").json()
    assert trace["vocabulary_version"] == shop.get("/v1/ontologies").json()["vocabulary_version"]
    states = {each["subscription"]: each["state"] for each in trace["deliveries"]}
    assert states == {id: "pending", ticket["id"]: "delivered"}
    assert trace["event"]["data"] == {"target": "laptop", "price": 350}


def test_trace_explains_why_a_subscription_got_nothing(shop: httpx.Client) -> None:
    """It did not match, or it was made later: the trace says which."""
    dear = subscribe(shop, CHEAP_COMPUTER)
    sequence = accepted(publish(shop, {"target": "laptop", "price": 450}))["events"][0]["sequence"]
    late = subscribe(shop, "price exists")
    why = shop.get(f"/v1/events/{sequence}/trace?subscription={dear}").json()["explanation"]
    assert (why["matches"], why["recorded"], why["circumstances"]) == (False, False, [])
    why = shop.get(f"/v1/events/{sequence}/trace?subscription={late}").json()["explanation"]
    assert (why["matches"], why["recorded"]) == (True, False)
    assert "after the event" in why["circumstances"][0]


def test_trace_of_unknown_event_is_not_found(client: httpx.Client) -> None:
    """Neither an event nor a subscription that never was can be traced."""
    answer = client.get("/v1/events/7/trace")
    assert (answer.status_code, problem_code(answer)) == (404, "unknown-event")
    accepted(publish(client, {}))
    answer = client.get("/v1/events/1/trace?subscription=sub_nobody")
    assert (answer.status_code, problem_code(answer)) == (404, "unknown-subscription")


# ── reading back ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_list_events_pages_by_cursor_and_filters_by_type(client: httpx.Client) -> None:
    """Oldest first; the cursor leads on; a type narrows it."""
    for number in range(5):
        accepted(publish(client, {"n": number}, ce_type="odd" if number % 2 else "even"))
    page = client.get("/v1/events?limit=3").json()
    rest = client.get(f"/v1/events?limit=3&after={page['cursor']}").json()
    numbers = [each["event"]["data"]["n"] for each in (*page["events"], *rest["events"])]
    assert numbers == [0, 1, 2, 3, 4]
    assert rest["cursor"] == "5"
    assert client.get("/v1/events?after=5").json() == {"events": [], "cursor": "5"}
    odd = client.get("/v1/events?type=odd").json()["events"]
    assert [each["event"]["data"]["n"] for each in odd] == [1, 3]


def test_publish_note_of_an_ambiguous_term_reaches_the_publisher(client: httpx.Client) -> None:
    """What the event may also mean is told in the answer, and kept with the event."""
    two = """
    @prefix : <http://e/> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
    :A rdfs:subClassOf :X ; rdfs:label "bank" . :B rdfs:subClassOf :Y ; rdfs:label "bank" .
    """
    client.put("/v1/ontologies/two", content=two, headers={"Content-Type": "text/turtle"})
    answer = accepted(publish(client, {"place": "bank"}))
    assert [note["code"] for note in answer["events"][0]["notes"]] == ["ambiguous-term"]
    kept = client.get("/v1/events").json()["events"][0]["notes"]
    assert kept == answer["events"][0]["notes"]


def test_publish_type_that_the_server_filled_in_is_not_noted(client: httpx.Client) -> None:
    """`isa` alone looks at the type too; only a type that the publisher gave may be a mistake."""
    shop = "<http://e/Laptop> <http://www.w3.org/2000/01/rdf-schema#subClassOf> <http://e/Computer> ."
    client.put("/v1/ontologies/shop", content=shop, headers={"Content-Type": "text/turtle"})
    assert client.post("/v1/subscriptions", json={"expression": "isa Computer"}).status_code == 201
    plain = accepted(publish(client, {"@type": "Laptop"}))["events"][0]
    assert (plain["matched"], plain["notes"]) == (1, [])
    assert client.post("/v1/match", json={"event": {"n": 1}}).json()["notes"] == []
    given = accepted(client.post("/v1/events", json={"n": 1}, headers={"ce-type": "Lapptop"}))["events"][0]
    assert [note["code"] for note in given["notes"]] == ["unknown-term"]


def test_event_that_matches_too_many_is_refused_before_it_is_stored(tmp_path: Path) -> None:
    """With a limit; alone it is an error, among others it alone is rejected. Nothing of it is left."""
    with running_application(tmp_path, max_matches_per_event=2) as client:
        for number in range(3):
            assert client.post("/v1/subscriptions", json={"expression": f"n >= {number}"}).status_code == 201
        answer = client.post("/v1/events", json={"n": 2})
        assert (answer.status_code, problem_code(answer)) == (422, "too-many-matches")
        assert "matches 3 subscriptions" in answer.json()["detail"]
        lines = b'{"n": 1}\n{"n": 5}\n{"n": 0}'
        told = client.post("/v1/events", content=lines, headers={"Content-Type": LINES}).json()
        assert (told["accepted"], told["matched"]) == (2, 3)
        assert [(each["line"], each["problem"]["type"].rpartition("/")[2]) for each in told["rejected"]] == [
            (2, "too-many-matches")
        ]
        twice = json.dumps([{**EVENT, "data": {"n": 9}}] * 2).encode()
        answer = client.post("/v1/events", content=twice, headers={"Content-Type": BATCH})
        assert (answer.status_code, problem_code(answer)) == (422, "no-event-accepted")
        assert [each["event"]["data"]["n"] for each in client.get("/v1/events").json()["events"]] == [1, 0]
        assert "kindcast_matches_total 3.0" in client.get("/metrics").text


def test_store_that_refuses_the_rest_of_a_large_fan_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer tells which events are on disk and which are not; where none is, it is an error."""
    monkeypatch.setattr(publishing, "MATCHES_TRIED", 6)
    monkeypatch.setattr(publishing.publish, "__kwdefaults__", {"at_most": 5, "ahead": None})
    submit, taken = Broker._submit, [1]

    async def refusing(broker: Broker, work: Any, **more: Any) -> Any:
        if more.get("publication") is not None:
            if not taken[0]:
                raise StoreUnavailable
            taken[0] -= 1
        return await submit(broker, work, **more)

    monkeypatch.setattr(Broker, "_submit", refusing)
    batch = [{"specversion": "1.0", "type": "t", "source": "/s", "id": f"{n}", "data": {"n": n}} for n in range(6)]
    with running_application(tmp_path) as client:
        for _ in range(3):
            subscribe(client, "n >= 0")
        told = publish(client, batch, BATCH)
        assert (told.status_code, told.json()["accepted"]) == (202, 2)
        problems = {each["index"]: each["problem"]["type"].rpartition("/")[2] for each in told.json()["rejected"]}
        assert problems == dict.fromkeys(range(2, 6), "store-unavailable")
        assert [each["id"] for each in stored(client)] == ["0", "1"]
        refused = publish(client, batch, BATCH)
        assert (refused.status_code, problem_code(refused)) == (503, "store-unavailable")


def test_batches_do_not_wait_for_the_threads_that_build_vocabularies() -> None:
    """A few tenants could keep all threads of the event loop busy for minutes."""
    done = threading.Event()

    async def scenario() -> int:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(1))
        building = loop.run_in_executor(None, done.wait)
        body = b"\n".join(json.dumps({"n": number, "text": "x" * 100}).encode() for number in range(200))
        try:
            async with asyncio.timeout(30.0):
                decoded = await events._decoded(EventReader(max_events=500), None, LINES, [], body, None)
        finally:
            done.set()
            await building
        return len(decoded.events)

    assert asyncio.run(scenario()) == 200
