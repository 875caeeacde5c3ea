"""Every syntax over HTTP, by its content type, by its looks, packed; and what is broken leaves the old version."""

import gzip
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.harness.application import problem_code, running_application

OBO = "http://purl.obolibrary.org/obo/"
DOCUMENTS = {
    "text/obo": (
        "format-version: 1.4\nontology: cl\n\n[Term]\nid: CL:0000084\nname: T cell\nis_a: CL:0000542 ! lymphocyte\n\n"
        "[Term]\nid: CL:0000542\nname: lymphocyte\n"
    ),
    "text/owl-functional": (
        f"Prefix(:=<{OBO}>)\nOntology(\nSubClassOf(:CL_0000084 :CL_0000542)\n"
        'AnnotationAssertion(rdfs:label :CL_0000084 "T cell") AnnotationAssertion(rdfs:label :CL_0000542 "lymphocyte"))'
    ),
    "application/owl+xml": (
        f'<?xml version="1.0"?><Ontology xmlns="http://www.w3.org/2002/07/owl#" xml:base="{OBO}"><SubClassOf>'
        '<Class IRI="CL_0000084"/><Class IRI="CL_0000542"/></SubClassOf><AnnotationAssertion><AnnotationProperty '
        'abbreviatedIRI="rdfs:label"/><IRI>CL_0000084</IRI><Literal>T cell</Literal></AnnotationAssertion></Ontology>'
    ),
    "text/tab-separated-values": (
        "subject_id\tpredicate_id\tobject_id\nCL:0000084\trdfs:subClassOf\tCL:0000542\nCL:0000084\towl:sameAs\tBTO:1\n"
    ),
}


@pytest.fixture
def client(tmp_path: Path) -> Iterator[httpx.Client]:
    with running_application(tmp_path) as client:
        yield client


@pytest.mark.parametrize("media_type", DOCUMENTS)
@pytest.mark.parametrize("told", [True, False])
def test_document_of_every_kind_is_uploaded_and_understood(client: httpx.Client, media_type: str, told: bool) -> None:
    """A subscription to lymphocytes gets the T cell, in the short forms of OBO; plain with its type, packed without."""
    data = DOCUMENTS[media_type].encode()
    headers = {"Content-Type": media_type} if told else {"Content-Type": "application/octet-stream"}
    answer = client.put("/v1/ontologies/cl", content=data if told else gzip.compress(data), headers=headers)
    assert answer.status_code == 201, answer.text
    created = client.post("/v1/subscriptions", json={"expression": 'cell isa "CL:0000542"'})
    assert created.status_code == 201, created.text
    for written in ("CL_0000084", "CL:0000084", OBO + "CL_0000084"):
        matches = client.post("/v1/match", json={"event": {"cell": written}}).json()["matches"]
        assert [match["subscription"] for match in matches] == [created.json()["id"]]


def test_broken_obo_is_refused_and_the_old_version_serves(client: httpx.Client) -> None:
    """With the line; sloppy ones are stored, with warnings in the report."""
    headers = {"Content-Type": "text/obo"}
    good = DOCUMENTS["text/obo"]
    sloppy = client.put("/v1/ontologies/cl", content=(good + "nonsense\n").encode(), headers=headers)
    assert sloppy.status_code == 201, sloppy.text
    assert any("line 12: left out, because it is not a clause" in each for each in sloppy.json()["warnings"])
    broken = client.put("/v1/ontologies/cl", content=b"format-version: 1.4\n<html>\n", headers=headers)
    assert broken.status_code == 400, broken.text
    assert problem_code(broken) == "malformed-ontology"
    assert "line 2" in broken.json()["detail"]
    assert client.get("/v1/concepts/resolve", params={"term": "T cell"}).status_code == 200
