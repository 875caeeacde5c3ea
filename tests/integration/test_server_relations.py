"""Relations over HTTP: asked for with the upload, followed by subscriptions, stored with the version, kept honest."""

from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from tests.harness.application import problem_code, running_application

BODY = b"""
@prefix : <http://example.org/> . @prefix owl: <http://www.w3.org/2002/07/owl#> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
:part_of a owl:TransitiveProperty ; rdfs:label "part of"@en . :near a owl:ObjectProperty .
:Heart a owl:Class ; rdfs:subClassOf :Organ ; :near :Lung . :Lung a owl:Class ; rdfs:subClassOf :Organ .
:Valve rdfs:subClassOf [ a owl:Restriction ; owl:onProperty :part_of ; owl:someValuesFrom :Heart ] .
"""


def put(client: httpx.Client, document: bytes = BODY, name: str = "body", **asked: str) -> Any:
    answer = client.put(
        f"/v1/ontologies/{name}", content=document, params=asked, headers={"Content-Type": "text/turtle"}
    )
    assert answer.status_code in (200, 201), answer.text
    return answer.json() | {"http_status": answer.status_code}


def subscribe(client: httpx.Client, text: str) -> Any:
    answer = client.post("/v1/subscriptions", json={"expression": text})
    assert answer.status_code == 201, answer.text
    return answer.json()


def matched(client: httpx.Client, thing: str) -> int:
    event = {"specversion": "1.0", "id": str(uuid4()), "type": "t", "source": "/s", "data": {"target": thing}}
    answer = client.post("/v1/events", json=event, headers={"Content-Type": "application/cloudevents+json"})
    assert answer.status_code == 202, answer.text
    count: int = answer.json()["events"][0]["matched"]
    return count


def test_upload_with_relations_reports_their_edges(tmp_path: Path) -> None:
    """By whatever name they are asked for; what was not asked for is not there."""
    with running_application(tmp_path) as client:
        report = put(client, relations="part of")
        assert report["relations"] == [{"iri": "http://example.org/part_of", "label": "part of", "edges": 1}]
        both = put(client, relations="transitive, near")
        assert [each["edges"] for each in both["relations"]] == [1, 1]
        assert put(client)["relations"] == []


def test_same_bytes_with_other_relations_are_another_version(tmp_path: Path) -> None:
    """And asked for in the same way once more, the same version."""
    with running_application(tmp_path) as client:
        assert (put(client)["version"], put(client, relations="part_of")["version"]) == (1, 2)
        again = put(client, relations="part_of")
        assert (again["version"], again["http_status"]) == (2, 200)
        versions = client.get("/v1/ontologies/body/versions").json()["versions"]
        assert [each["relations"] for each in versions] == [["part_of"], []]


def test_relation_survives_a_restart(tmp_path: Path) -> None:
    """What was read from the document is stored, edges of relations included."""
    with running_application(tmp_path) as client:
        put(client, relations="part_of")
        subscribe(client, "target part_of Organ")
    with running_application(tmp_path) as client:
        assert (matched(client, "Valve"), matched(client, "Heart")) == (1, 0)


def test_relation_that_a_version_lacks_flags_its_subscriptions(tmp_path: Path) -> None:
    """The dry run says so, the flag tells, nothing matches, also under `not`; the next version brings it back."""
    with running_application(tmp_path) as client:
        put(client, relations="part_of")
        asked = subscribe(client, "target part_of Heart")
        subscribe(client, "not target part_of Heart")
        assert asked["canonical"] == "target <http://example.org/part_of> <http://example.org/Heart>"
        assert (matched(client, "Valve"), matched(client, "Lung")) == (1, 1)
        put(client, activate="false")
        foretold = client.post("/v1/ontologies/body/activate", params={"version": 2, "dry_run": "true"}).json()
        assert foretold["subscriptions"]["changed"] == 2
        client.post("/v1/ontologies/body/activate", params={"version": 2})
        assert (matched(client, "Valve"), matched(client, "Lung")) == (0, 0)
        notes = client.get(f"/v1/subscriptions/{asked['id']}").json()["notes"]
        assert [note["code"] for note in notes] == ["gone-relation"]
        client.post("/v1/ontologies/body/rollback")
        assert (matched(client, "Valve"), matched(client, "Lung")) == (1, 1)


def test_ontology_whose_relation_is_followed_is_not_deleted(tmp_path: Path) -> None:
    """Its concepts may be another ontology's; the relation alone is reason enough."""
    edge = b"<http://example.org/Valve> <http://example.org/part_of> <http://example.org/Heart> ."
    with running_application(tmp_path) as client:
        put(client)
        put(client, edge, "edges", relations="part_of")
        subscribe(client, "target part_of Heart")
        refused = client.delete("/v1/ontologies/edges")
        assert (refused.status_code, problem_code(refused)) == (409, "ontology-in-use")


@pytest.mark.parametrize(
    ("relations", "says"),
    [
        (
            "partof",
            "no relation with the name 'partof'; near: part_of; it has (with their statements) near (1), part_of",
        ),
        ("part_of,nearby", "'nearby'"),
        ("http://example.org/Heart", "no relation with the name"),
    ],
)
def test_relation_that_is_not_there_is_refused_with_those_that_are(tmp_path: Path, relations: str, says: str) -> None:
    """And nothing is stored."""
    with running_application(tmp_path) as client:
        answer = client.put(
            "/v1/ontologies/body",
            content=BODY,
            params={"relations": relations},
            headers={"Content-Type": "text/turtle"},
        )
        assert (answer.status_code, problem_code(answer)) == (422, "unknown-relation")
        assert says in answer.json()["detail"]
        assert client.get("/v1/ontologies").json()["ontologies"] == []


def test_concepts_do_not_show_relations(tmp_path: Path) -> None:
    """Ancestors, descendants, children and search are those of is-a."""
    calls = (
        "/ancestors?term=Heart",
        "/descendants?term=Organ",
        "/children?term=Organ",
        "/resolve?term=Heart",
        "?q=heart",
    )
    answers = []
    for folder, relations in (("with", "part_of,near"), ("without", "")):
        with running_application(tmp_path / folder) as client:
            put(client, relations=relations)
            found = [client.get(f"/v1/concepts{call}").json() for call in calls]
            answers.append([each | {"vocabulary_version": ""} for each in found])
    assert answers[0] == answers[1]
    assert [each["iri"] for each in answers[0][0]["concepts"]] == ["http://example.org/Organ"]
