"""Aliases over HTTP: a declaration with versions and a dry run (rule 24)."""

import itertools
from pathlib import Path

from tests.harness.application import problem_code, running_application, subscribe

SCHEMA = b"""
@prefix s: <https://schema.org/> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
s:Car rdfs:subClassOf s:Vehicle .
"""
TABLE = {"prefixes": {"http://schema.org/": "https://schema.org/"}}


def test_aliases_are_declared_told_of_and_taken_back(tmp_path: Path) -> None:
    """A car of the other form is one while the table is there; the dry run says so before."""
    path, car = "/v1/aliases/web", {"@context": {"@vocab": "http://schema.org/"}, "@type": "Car", "price": 5}
    numbers = itertools.count()
    with running_application(tmp_path) as client:
        client.put("/v1/ontologies/s", content=SCHEMA, headers={"Content-Type": "text/turtle"}).raise_for_status()
        subscribe(client, id="car", expression="isa Vehicle and <https://schema.org/price> < 9")

        def matched() -> int:
            event = {"specversion": "1.0", "id": str(next(numbers)), "source": "/s", "type": "t", "data": car}
            answer = client.post("/v1/events", json=event, headers={"Content-Type": "application/cloudevents+json"})
            return int(answer.raise_for_status().json()["matched"])

        assert matched() == 0
        tried = client.put(path, json=TABLE, params={"dry_run": True}).json()
        assert tried["impact"]["subscriptions"]["changed"] == 1
        assert matched() == 0
        assert [client.put(path, json=TABLE).status_code for _ in range(2)] == [201, 200]
        assert matched() == 1
        assert client.get("/v1/aliases").json()["aliases"][0]["declaration"] == TABLE
        assert client.get(path).json()["versions"][0]["version"] == 1
        refused = client.put("/v1/aliases/other", json={"prefixes": {"http://schema.org/": "http://e.org/"}})
        assert (refused.status_code, problem_code(refused)) == (422, "invalid-declaration")
    with running_application(tmp_path) as client:  # a restart reads it again
        assert matched() == 1
        assert client.delete(path).status_code == 200
        assert matched() == 0


def test_spellings_are_declared_and_told_of(tmp_path: Path) -> None:
    """Plurals and hyphens mean the concept while a table says so, and the publisher is told."""
    path, event = "/v1/aliases/words", {"target": "LAP-TOPS"}
    shop = b"@prefix : <urn:s:> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .\n:L rdfs:subClassOf :C ;"
    shop += b'rdfs:label "Lap top" .'
    with running_application(tmp_path) as client:
        client.put("/v1/ontologies/s", content=shop, headers={"Content-Type": "text/turtle"}).raise_for_status()
        subscribe(client, id="car", expression="target isa C")
        assert client.post("/v1/events", json=event).json()["matched"] == 0
        refused = client.post("/v1/subscriptions", json={"expression": 'target isa "lap-tops"'})
        assert problem_code(refused) == "invalid-subscription"
        assert client.put(path, json={"spellings": ["de"]}).status_code == 422
        tried = client.put(path, json={"spellings": ["en"]}, params={"dry_run": True}).json()
        assert tried["impact"]["subscriptions"]["changed"] == 1
        assert client.put(path, json={"spellings": ["en"]}).status_code == 201
        told = client.post("/v1/events", json=event).json()
        assert told["matched"] == 1
        assert [note["code"] for note in told["events"][0]["notes"]] == ["other-spelling"]
        assert subscribe(client, expression="target isa lap-tops")["canonical"] == "target isa <urn:s:L>"
    with running_application(tmp_path) as client:
        assert client.post("/v1/events", json=event).json()["matched"] == 2


ROOMS = b"""
@prefix b: <http://e.org/b#> . @prefix owl: <http://www.w3.org/2002/07/owl#> .
b:isPointOf a owl:ObjectProperty . b:isPartOf a owl:ObjectProperty .
b:sensor a b:Sensor ; b:isPointOf b:unit . b:unit b:isPartOf b:floor . b:floor a b:Floor .
"""


def test_union_of_relations_is_a_declaration(tmp_path: Path) -> None:
    """A sensor of a part is within the whole; what uses the union is flagged when it goes."""
    path, union = "/v1/relations/within", {"union": ["isPointOf", "isPartOf"]}
    with running_application(tmp_path) as client:
        content = {"params": {"relations": "isPointOf,isPartOf"}, "headers": {"Content-Type": "text/turtle"}}
        client.put("/v1/ontologies/rooms", content=ROOMS, **content).raise_for_status()  # type: ignore[arg-type]
        asked = {"expression": "x within floor"}
        assert problem_code(client.post("/v1/subscriptions", json=asked)) == "invalid-subscription"
        assert [client.put(path, json=union).status_code for _ in range(2)] == [201, 200]
        created = subscribe(client, **asked)
        assert "<urn:kindcast:relation:within>" in created["canonical"]
        assert client.post("/v1/events", json={"x": "sensor"}).json()["matched"] == 1
        assert client.get("/v1/relations").json()["relations"][0]["declaration"] == union
        assert client.get(path).json()["version"] == 1
        for wrong in ({}, {"union": []}, {"union": [" "]}, {"union": ["a"], "other": 1}):
            assert problem_code(client.put("/v1/relations/wrong", json=wrong)) == "invalid-declaration"
        gone = client.delete(path, params={"dry_run": True}).json()
        assert gone["impact"]["subscriptions"]["changed"] == 1
        assert client.delete(path).status_code == 200
        assert client.post("/v1/events", json={"x": "sensor"}).json()["matched"] == 0


def test_declaration_without_a_name_is_refused(tmp_path: Path) -> None:
    """A blank is not a name, of any kind."""
    with running_application(tmp_path) as client:
        for kind in ("attributes", "synonyms", "aliases"):
            refused = client.put(f"/v1/{kind}/%20", json={})
            assert (refused.status_code, problem_code(refused)) == (400, "invalid-request")
