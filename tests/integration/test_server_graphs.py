"""Events that are graphs over HTTP: every content type and mode reads alike; what is delivered is what was sent."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.harness.application import problem_code, running_application, subscribe

EX = "http://example.org/"
PIECE = {"@context": {"ex": EX}, "@id": "ex:p1", "@type": "ex:Piece", "ex:weight": 12.5, "ex:from": {"@id": "ex:vie"}}
TURTLE = f"<{EX}p1> a <{EX}Piece> ; <{EX}weight> 12.5 ; <{EX}from> <{EX}vie> ."
XSD = "http://www.w3.org/2001/XMLSchema#"
JSON_LD, JSON = "application/ld+json", "application/json"
ASKED = f'`@type` = "{EX}Piece" and weight > 12 and `<{EX}weight>` < 13 and from = "{EX}vie"'


@pytest.fixture
def client(tmp_path: Path) -> Iterator[httpx.Client]:
    with running_application(tmp_path) as client:
        yield client


def publish(client: httpx.Client, body: Any, kind: str, **headers: str) -> httpx.Response:
    content = body if isinstance(body, str) else json.dumps(body)
    return client.post("/v1/events", content=content, headers={"Content-Type": kind, **headers})


def test_a_graph_is_read_alike_however_it_is_published(client: httpx.Client) -> None:
    id = subscribe(client, ASKED)["id"]
    event = {"specversion": "1.0", "source": "/s", "type": "t"}
    plain = {"ce-specversion": "1.0", "ce-source": "/s", "ce-type": "t"}
    structured = "application/cloudevents+json"
    encoded = base64.b64encode(TURTLE.encode()).decode()
    answers = [
        publish(client, PIECE, JSON),
        publish(client, PIECE, f"{JSON_LD}; charset=utf-8"),
        publish(client, [PIECE], JSON_LD),
        publish(client, TURTLE, "text/turtle"),
        publish(client, TURTLE, "application/trig", **plain, **{"ce-id": "1"}),
        publish(client, {**event, "id": "2", "datacontenttype": "text/turtle", "data": TURTLE}, structured),
        publish(client, {**event, "id": "3", "datacontenttype": "text/turtle", "data_base64": encoded}, structured),
        publish(client, [{**event, "id": "4", "data": PIECE}], "application/cloudevents-batch+json"),
        publish(client, json.dumps(PIECE | {"ex:n": 9}) + "\n" + json.dumps({"weight": 1}), "application/x-ndjson"),
    ]
    assert [(each.status_code, each.json()["matched"]) for each in answers] == [(202, 1)] * len(answers)
    got = [each["event"]["data"] for each in client.get(f"/v1/subscriptions/{id}/events").json()["events"]]
    assert got == [PIECE, PIECE, [PIECE], TURTLE, TURTLE, TURTLE, TURTLE, PIECE, PIECE | {"ex:n": 9}]
    asked = client.post(
        "/v1/match", json={"event": {**event, "id": "5", "datacontenttype": "text/turtle", "data": TURTLE}}
    )
    assert [each["subscription"] for each in asked.json()["matches"]] == [id]


def test_the_same_document_again_is_a_duplicate(client: httpx.Client) -> None:
    """Without an envelope a document of a graph is known by its bytes."""
    assert publish(client, TURTLE, "text/turtle").json()["accepted"] == 1
    assert publish(client, TURTLE, "text/turtle").json()["duplicates"] == 1
    assert publish(client, TURTLE + "\n", "text/turtle").json()["accepted"] == 1


@pytest.mark.parametrize("kind", [JSON, "application/x-ndjson"])
def test_the_same_graph_in_plain_json_again_is_a_duplicate(client: httpx.Client, kind: str) -> None:
    """Without an id its digest is its id (rule 21). What is read as plain JSON gets a new id each time."""
    subscribe(client, ASKED)
    first = publish(client, PIECE, kind).json()
    again = publish(client, dict(reversed(PIECE.items())), kind).json()
    assert (first["accepted"], first["matched"], again["duplicates"], again["matched"]) == (1, 1, 1, 0)
    assert again["events"][0]["id"] == first["events"][0]["id"]
    (stored,) = client.get("/v1/events").json()["events"]
    assert stored["event"]["id"] == first["events"][0]["id"]
    assert stored["event"]["data"] == PIECE
    assert publish(client, {**PIECE, "ex:weight": 13}, kind).json()["accepted"] == 1
    for other in ({"weight": 1}, {"@context": "http://unknown.example/", "weight": 1}):
        assert [publish(client, other, kind).json()["accepted"] for _ in range(2)] == [1, 1]


def test_the_id_that_a_graph_gets_is_the_id_that_subscriptions_see(client: httpx.Client) -> None:
    """It is part of the event that is matched, also with headers of CloudEvents but without an id."""
    id = publish(client, PIECE, JSON, **{"ce-source": "/other"}).json()["events"][0]["id"]
    subscribe(client, f'ce.id = "{id}" and weight > 12')
    assert publish(client, PIECE, JSON, **{"ce-source": "/third"}).json()["matched"] == 1
    assert publish(client, PIECE, JSON, **{"ce-source": "/third"}).json()["duplicates"] == 1


def test_a_document_of_several_events_is_taken_whole_or_not_at_all(client: httpx.Client) -> None:
    id = subscribe(client, "weight >= 2")["id"]
    headers = {"ce-specversion": "1.0", "ce-source": "/s", "ce-type": "t", "ce-id": "7"}
    graph = {"@context": {"ex": EX}, "@graph": [{"@id": f"ex:{n}", "ex:weight": n} for n in (1, 2, 3)]}
    answer = publish(client, graph, JSON_LD, **headers)
    assert (answer.status_code, answer.json()["accepted"], answer.json()["matched"]) == (202, 3, 2), answer.text
    assert publish(client, graph, JSON_LD, **headers).json()["duplicates"] == 3
    got = [each["event"] for each in client.get(f"/v1/subscriptions/{id}/events").json()["events"]]
    assert [each["id"] for each in got] == [f"7#{EX}2", f"7#{EX}3"]
    assert [each["data"] for each in got] == [{"@context": {"ex": EX}, **each} for each in graph["@graph"][1:]]
    graph["@graph"].append({"@id": "ex:4", "ex:weight": {"@value": "INF", "@type": f"{XSD}double"}})
    refused = publish(client, graph, JSON_LD)
    assert (refused.status_code, problem_code(refused)) == (422, "invalid-event")
    assert len(client.get("/v1/events").json()["events"]) == 3


def test_unknown_contexts_are_refused_with_all_urls_where_the_type_says_json_ld(client: httpx.Client) -> None:
    document = {"@context": ["http://a.example/x", "http://b.example/y"], "weight": 20}
    refused = publish(client, document, JSON_LD)
    assert (refused.status_code, problem_code(refused)) == (422, "unknown-context")
    assert refused.json()["contexts"] == ["http://a.example/x", "http://b.example/y"]
    assert "near" not in refused.json()["detail"]
    subscribe(client, "weight > 12")
    taken = publish(client, document, JSON).json()
    assert taken["matched"] == 1
    assert [note["code"] for note in taken["events"][0]["notes"]] == ["unknown-context"]
    context = {"@context": {"@vocab": EX}}
    for url in document["@context"]:
        assert client.put("/v1/contexts", params={"url": url}, json=context).is_success
    assert publish(client, document, JSON_LD).json()["matched"] == 1
    assert publish(client, "<a> <b> .", "text/turtle").status_code == 422


def test_observations_in_one_document_are_events_that_share_their_sensor(client: httpx.Client) -> None:
    """RDF with several roots, as observations are published; a graph of circles alone has no event."""
    id = subscribe(client, 'hasSimpleResult > 20 and madeBySensor.label = "roof"')["id"]
    sosa = "http://www.w3.org/ns/sosa/"
    observations = "".join(
        f"<x:o{n}> a <{sosa}Observation> ; <{sosa}hasSimpleResult> {n} ; <{sosa}madeBySensor> <x:s> . "
        for n in (19, 21)
    )
    answer = publish(client, observations + f'<x:s> a <{sosa}Sensor> ; <{EX}label> "roof" .', "text/turtle")
    assert (answer.json()["accepted"], answer.json()["matched"]) == (2, 1), answer.text
    (message,) = client.get(f"/v1/subscriptions/{id}/events").json()["events"]
    assert message["event"]["id"].endswith("#1")
    circle = f"<x:p> <{sosa}hosts> <x:s> . <x:s> <{sosa}isHostedBy> <x:p> ."
    assert problem_code(publish(client, circle, "text/turtle")) == "invalid-event"
