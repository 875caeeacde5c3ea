"""Systems of codes over HTTP, the client and the command line, and FHIR resources read by them (rule 22)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.harness.application import problem_code, running_application, subscribe

HPO = b"""
@prefix hp: <http://purl.obolibrary.org/obo/HP_> . @prefix owl: <http://www.w3.org/2002/07/owl#> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> . @prefix oio: <http://www.geneontology.org/formats/oboInOwl#> .
hp:0001627 a owl:Class ; rdfs:label "Abnormality of the heart" ; oio:id "HP:0001627" .
hp:0001644 a owl:Class ; rdfs:label "Dilated cardiomyopathy" ; rdfs:subClassOf hp:0001627 ; oio:id "HP:0001644" .
"""
SYSTEM: dict[str, Any] = {
    "identifiers": ["http://human-phenotype-ontology.org"],
    "iri": {"match": "HP:([0-9]{7})", "as": "http://purl.obolibrary.org/obo/HP_{1}"},
}
BY_NOTATION: dict[str, Any] = {
    "identifiers": ["http://human-phenotype-ontology.org", "http://purl.obolibrary.org/obo/HP_"],
    "notation": "http://www.geneontology.org/formats/oboInOwl#id",
}
CODE = {"coding": [{"system": "http://human-phenotype-ontology.org", "code": "HP:0001644"}]}
OBSERVATION = {
    "resourceType": "Observation",
    "code": CODE,
    "valueQuantity": {"value": 185, "unit": "mmHg", "system": "http://unitsofmeasure.org", "code": "mm[Hg]"},
}
ASKED = 'code isa "Abnormality of the heart" and valueQuantity > 140 "mm[Hg]"'


@pytest.fixture
def client(tmp_path: Path) -> Iterator[httpx.Client]:
    with running_application(tmp_path) as client:
        client.put("/v1/ontologies/hpo", content=HPO, headers={"Content-Type": "text/turtle"}).raise_for_status()
        yield client


def matched(client: httpx.Client, content_type: str = "application/fhir+json") -> int:
    answer = client.post("/v1/events", json=OBSERVATION, headers={"Content-Type": content_type})
    answer.raise_for_status()
    return int(answer.json()["matched"])


def test_observation_matches_by_its_codes_and_its_quantity(client: httpx.Client) -> None:
    """Before the system is declared, after, by IRIs and by notations; a dry run tells who gains; FHIR only."""
    subscribe(client, id="heart", expression=ASKED)
    assert matched(client) == 0
    path = "/v1/code-systems/hpo"
    tried = client.put(path, json=SYSTEM, params={"dry_run": True}).json()
    (heart,) = tried["impact"]["terms"]["listed"]
    assert heart["words"]["listed"] == [f"hpo: http://purl.obolibrary.org/obo/HP_000{each}" for each in (1627, 1644)]
    assert matched(client) == 0
    first, again = client.put(path, json=SYSTEM), client.put(path, json=SYSTEM)
    assert (first.status_code, again.status_code) == (201, 200)
    assert (matched(client), matched(client, "application/json")) == (1, 0)
    assert client.put(path, json=BY_NOTATION).json()["version"] == 2
    assert matched(client) == 1
    listed = client.get("/v1/code-systems").json()["code-systems"]
    assert [(each["name"], each["version"]) for each in listed] == [("hpo", 2)]
    assert [each["version"] for each in client.get(path).json()["versions"]] == [2, 1]
    assert client.delete(path).status_code == 200
    assert matched(client) == 0


def test_declaration_of_a_system_is_checked(client: httpx.Client) -> None:
    """Each mistake is named."""
    for wrong in (
        {},
        {"identifiers": []},
        {"identifiers": ["a"], "iri": "http://e/"},
        {"identifiers": ["a"], "iri": {"match": "(", "as": "x"}},
        {"identifiers": ["a"], "iri": {"match": "a", "as": "{1}"}},
        {"identifiers": ["a"], "notation": "http://e/code"},
        {"identifiers": ["a"], "template": "x"},
    ):
        refused = client.put("/v1/code-systems/wrong", json=wrong)
        assert (refused.status_code, problem_code(refused)) == (422, "invalid-declaration"), wrong
    assert client.put("/v1/code-systems/one", json={"identifiers": ["urn:a"]}).status_code == 201
    assert client.put("/v1/code-systems/two", json={"identifiers": ["urn:a"]}).status_code == 422
