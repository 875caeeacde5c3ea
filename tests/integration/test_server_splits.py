"""Documents of several events over HTTP: each event is what publishing it alone gives; envelopes are declared."""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from kindcast import Matcher, Vocabulary
from kindcast.semantic import Event
from tests.harness.application import problem_code, running_application, subscribe

EX = "http://example.org/"
EPCIS = "https://ref.gs1.org/standards/epcis/epcis-context.jsonld"
EPCIS_CONTEXT = {"@context": {"@vocab": "https://ref.gs1.org/epcis/", "type": "@type", "eventID": "@id"}}
ACTIVITY = "https://www.w3.org/ns/activitystreams"
CE = {"specversion": "1.0", "source": "/s", "type": "t"}
STRUCTURED, BATCH = "application/cloudevents+json", "application/cloudevents-batch+json"
ASKED = [f"n = {n}" for n in range(4)] + ['`@id` = "urn:e:1"', 'word = "a" and n > 1', 'ce.type = "t"', "lot exists"]
TREE = "https://w3id.org/tree#"


@pytest.fixture
def client(tmp_path: Path) -> Iterator[httpx.Client]:
    with running_application(tmp_path) as client:
        assert client.put("/v1/contexts", params={"url": EPCIS}, json=EPCIS_CONTEXT).status_code == 201
        yield client


def drawn(chance: random.Random) -> tuple[Any, str, list[Any]]:
    """A document, its content type, and its events as documents of their own."""
    listed: list[dict[str, Any]] = []
    for number in range(chance.randint(2, 4)):
        each: dict[str, Any] = {"n": chance.randrange(4), "word": chance.choice("ab")}
        listed.append(each | ({"id": f"urn:e:{number}"} if chance.random() < 0.6 else {}))
    kind = chance.choice(["epcis", "stix", "fhir", "as2", "graph", "turtle", "ldes", "own"])
    if kind == "stix":
        return {"type": "bundle", "id": "bundle--1", "objects": listed}, "application/json", listed
    if kind == "fhir":
        bundle = {"resourceType": "Bundle", "entry": [{"resource": each} for each in listed]}
        return bundle, "application/fhir+json", listed
    if kind == "own":
        data = {"lot": 5, "own": {"lines": listed}}
        return data, "application/json", [{**each, "lot": 5} for each in listed]
    if kind == "epcis":
        named = [{"eventID" if name == "id" else name: value for name, value in each.items()} for each in listed]
        inner = chance.choice([{}, {"@context": {"word": f"{EX}word"}}])
        document = {"@context": EPCIS, "type": "EPCISDocument", "epcisBody": {**inner, "eventList": named}}
        contexts = [EPCIS, inner["@context"]] if inner else EPCIS
        return (
            document,
            chance.choice(["application/json", "application/ld+json"]),
            [{"@context": contexts, **each} for each in named],
        )
    if kind == "as2":
        context = [ACTIVITY, {"@vocab": EX}]
        document = {"@context": context, "type": "Collection", "items": listed}
        return document, "application/ld+json", [{"@context": context, **each} for each in listed]
    context = {"@vocab": EX, "id": "@id"}
    alone = [{"@context": context, **each} for each in listed]
    if kind == "graph":
        return {"@context": context, "@graph": listed}, "application/ld+json", alone
    if kind == "ldes":
        tree = {**context, "tree": TREE}
        document = {"@context": tree, "id": "urn:e:stream", "tree:member": listed}
        return document, "application/ld+json", [{"@context": tree, **each} for each in listed]
    nodes = [f"<{each['id']}>" if "id" in each else f"_:b{number}" for number, each in enumerate(listed)]
    texts = [
        f'{node} <{EX}n> {each["n"]} ; <{EX}word> "{each["word"]}" .' for node, each in zip(nodes, listed, strict=True)
    ]
    return "\n".join(texts), "text/turtle", texts


@pytest.mark.parametrize("seed", range(4))
def test_each_event_of_a_document_is_what_publishing_it_alone_gives(client: httpx.Client, seed: int) -> None:
    """Over every way of publishing, of asking who would match, and of explaining."""
    chance = random.Random(seed)
    assert client.put("/v1/splits/own", json={"split": "own.lines", "inherit": "lot", "id": "id"}).status_code == 201
    ids = [subscribe(client, text)["id"] for text in ASKED]
    texts = dict(zip(ids, ASKED, strict=True))
    matcher = Matcher(
        Vocabulary(contexts={EPCIS: EPCIS_CONTEXT}, splits={"own": {"split": "own.lines", "inherit": "lot"}})
    )
    for text in ASKED:
        matcher.add(text, text)

    cursors: dict[str, str] = {}

    def pulled() -> list[tuple[str, str]]:
        got = []
        for id in ids:
            asked = {"limit": "1000"} | ({"after": cursors[id]} if id in cursors else {})
            page = client.get(f"/v1/subscriptions/{id}/events", params=asked).json()
            got += [(texts[id], each["event"]["id"]) for each in page["events"]]
            cursors[id] = page["cursor"]
        return sorted(got)

    def published(body: Any, kind: str, **headers: str) -> dict[str, Any]:
        content = body if isinstance(body, str) else json.dumps(body)
        answer = client.post("/v1/events", content=content, headers={"Content-Type": kind, **headers})
        assert answer.status_code == 202, answer.text
        told: dict[str, Any] = answer.json()
        return told

    for number in range(6):
        document, media_type, alone = drawn(chance)
        expected = []
        for place, each in enumerate(alone):
            event = {**CE, "id": f"{number}-{place}", "datacontenttype": media_type, "data": each}
            published(event, STRUCTURED)
            expected.append(sorted(text for text, _ in pulled()))
        structured = {**CE, "id": f"d{number}", "datacontenttype": media_type, "data": document}
        binary = {f"ce-{name}": value for name, value in CE.items()} | {"ce-id": f"b{number}"}
        line = {**structured, "id": f"n{number}"}
        ways = [
            (published(structured, STRUCTURED), structured["id"]),
            (published(document, media_type, **binary), f"b{number}"),
            (published([{**structured, "id": f"a{number}"}], BATCH), f"a{number}"),
            (published(json.dumps(line) + "\n" + json.dumps({"n": 99}), "application/x-ndjson"), f"n{number}"),
        ]
        got = pulled()
        suffixes: list[list[str]] = []
        for told, id in ways:
            names = [each["id"] for each in told["events"] if each["id"].startswith(f"{id}#")]
            assert [sorted(text for text, name in got if name == each) for each in names] == expected
            suffixes.append([name.removeprefix(id) for name in names])
        assert all(each == suffixes[0] for each in suffixes)
        asked = client.post("/v1/match", json={"event": structured}).json()
        assert [sorted(texts[one["subscription"]] for one in each["matches"]) for each in asked["events"]] == expected
        assert [each["id"] for each in asked["events"]] == [f"d{number}{each}" for each in suffixes[0]]
        several = client.post("/v1/match", json={"events": [structured, {"n": 99}]}).json()["results"]
        assert several[0]["events"] == asked["events"]
        explained = client.post("/v1/explain", json={"event": structured, "subscription": ids[1]}).json()
        assert [each["matches"] for each in explained["events"]] == [ASKED[1] in each for each in expected]
        parts = matcher.events_of(Event(document, {**CE, "id": f"d{number}", "datacontenttype": media_type}))
        assert [sorted(each.subscription for each in matcher.match(part)) for part in parts] == expected
        assert published(structured, STRUCTURED)["duplicates"] == len(alone)


def test_a_document_is_accepted_whole_or_not_at_all(client: httpx.Client) -> None:
    subscribe(client, "n exists")
    bundle = {"type": "bundle", "id": "bundle--1", "objects": [{"n": 1}, {"ce": 2}, {"n": 3}]}
    refused = client.post("/v1/events", json=bundle)
    assert (refused.status_code, problem_code(refused)) == (422, "invalid-event")
    lines = json.dumps(bundle) + "\n" + json.dumps({"n": 1})
    answer = client.post("/v1/events", content=lines, headers={"Content-Type": "application/x-ndjson"}).json()
    assert (answer["accepted"], [each["line"] for each in answer["rejected"]]) == (1, [1])
    assert len(client.get("/v1/events").json()["events"]) == 1


def test_without_an_envelope_ids_are_made_of_id_and_revision_or_of_the_document(client: httpx.Client) -> None:
    """The same document again is a duplicate; another one with the same `@id`, and no revision, is not."""
    objects = [{"id": "a--1", "modified": "2026-01-01T00:00:00Z", "n": 1}, {"id": "a--2", "n": 2}]
    bundle = {"type": "bundle", "id": "bundle--1", "objects": objects}
    told = client.post("/v1/events", json=bundle).json()["events"]
    assert told[0]["id"] == "a--1#2026-01-01T00:00:00Z"
    assert told[1]["id"].endswith("#1")
    assert client.post("/v1/events", json=bundle).json()["duplicates"] == 2
    answer = client.post("/v1/events", json={**bundle, "id": "bundle--2"}).json()
    assert (answer["duplicates"], answer["accepted"]) == (1, 1)


def test_dry_run_of_a_split_names_the_subscriptions_that_it_changes(client: httpx.Client) -> None:
    """What stands under the path is an event of its own: by its short name it matches, by the long one no longer."""
    texts = [
        "amount > 2",
        "order.lines.amount > 2",
        "some order.lines (amount > 2)",
        "ce.type isa Thing",
        "ce.id exists",
    ]
    client.put(
        "/v1/ontologies/x",
        content=b"<http://e/Thing> a <http://www.w3.org/2002/07/owl#Class> .",
        headers={"Content-Type": "text/turtle"},
    )
    ids = {text: subscribe(client, text)["id"] for text in texts}
    document = {"order": {"lines": [{"amount": 3}]}}
    declared = {"split": "order.lines"}

    def matching() -> set[str]:
        told = client.post("/v1/match", json={"event": document}).json()
        parts = told.get("events", [told])
        found = {one["subscription"] for part in parts for one in part["matches"]}
        return {text for text, id in ids.items() if id in found}

    before = matching()
    tried = client.put("/v1/splits/orders", params={"dry_run": True}, json=declared).json()
    changed = {each["id"]: each["changes"] for each in tried["impact"]["subscriptions"]["listed"]}
    assert matching() == before
    assert client.put("/v1/splits/orders", json=declared).json()["impact"] == tried["impact"]
    assert before ^ matching() == {"amount > 2", "order.lines.amount > 2", "some order.lines (amount > 2)"}
    assert changed.keys() == {ids[text] for text in texts[:4]}
    words = {each["attribute"]: each for each in tried["impact"]["attributes"]["listed"]}
    assert words["amount"]["words"]["listed"] == ["order.lines.amount"]
    assert words["order.lines.amount"]["words_gone"]["listed"] == ["order.lines.amount"]
    assert words["ce.type"]["words"]["listed"] == ["order.lines.@type"]
    back = client.delete("/v1/splits/orders", params={"dry_run": True}).json()
    words = {each["attribute"]: each for each in back["impact"]["attributes"]["listed"]}
    assert words["amount"]["words_gone"]["listed"] == ["order.lines.amount"]


def test_splits_are_declarations(client: httpx.Client) -> None:
    """Versions, dry run, the shipped ones, and what is refused."""
    split = {"split": "lines"}
    assert client.put("/v1/splits/own", params={"dry_run": True}, json=split).json()["dry_run"] is True
    before = client.get("/v1/splits").json()
    assert before["splits"] == []
    assert set(before["shipped"]) >= {"epcis", "fhir", "stix", "activitystreams", "ldes"}
    assert client.put("/v1/splits/own", json=split).status_code == 201
    assert client.put("/v1/splits/own", json=split).status_code == 200
    assert [each["name"] for each in client.get("/v1/splits").json()["splits"]] == ["own"]
    assert client.post("/v1/events", json={"lines": [{"n": 1}, {"n": 2}]}).json()["accepted"] == 2
    assert client.get("/v1/splits/own").json()["declaration"] == split
    assert client.get("/v1/splits/stix").json()["shipped"] is True
    assert client.delete("/v1/splits/own").status_code == 200
    assert client.post("/v1/events", json={"lines": [{"n": 1}, {"n": 2}]}).json()["accepted"] == 1
    for wrong in ({}, {"split": 5}, {"split": "a", "where": {"b": 1}}):
        refused = client.put("/v1/splits/wrong", json=wrong)
        assert (refused.status_code, problem_code(refused)) == (422, "invalid-declaration")
    assert client.get("/v1/splits/unheard-of").status_code == 404
