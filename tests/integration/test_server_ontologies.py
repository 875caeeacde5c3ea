"""Ontologies and concepts over HTTP: upload, versions, swap, delete, search, resolve, browse."""

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.harness.application import problem_code, running_application

PREFIXES = """
@prefix : <http://example.org/> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
@prefix owl: <http://www.w3.org/2002/07/owl#> .
@prefix dcterms: <http://purl.org/dc/terms/> .
"""
COMPUTERS = (
    PREFIXES
    + """
:Computer a owl:Class ; rdfs:label "computer"@en, "Rechner"@de .
:Laptop a owl:Class ; rdfs:subClassOf :Computer ; rdfs:label "laptop"@en, "Notebook"@de .
:Bank a owl:Class ; rdfs:label "bank"@en .
"""
)
RIVERS = PREFIXES + ':RiverBank a owl:Class ; rdfs:label "bank"@en .'
TURTLE = {"Content-Type": "text/turtle"}


@pytest.fixture
def client(tmp_path: Path) -> Iterator[httpx.Client]:
    with running_application(tmp_path) as client:
        yield client


def put(client: httpx.Client, name: str, document: str, **params: Any) -> Any:
    return client.put(f"/v1/ontologies/{name}", content=document.encode(), headers=TURTLE, params=params)


def subscribe(client: httpx.Client, expression: str) -> dict[str, Any]:
    answer = client.post("/v1/subscriptions", json={"expression": expression})
    assert answer.status_code == 201, answer.text
    created: dict[str, Any] = answer.json()
    return created


def matched(client: httpx.Client, **event: Any) -> list[str]:
    """Who would match an event with these data."""
    answer = client.post("/v1/match", json={"event": event})
    assert answer.status_code == 200, answer.text
    return [match["subscription"] for match in answer.json()["matches"]]


def vocabulary_version(client: httpx.Client) -> str:
    version: str = client.get("/v1/ontologies").json()["vocabulary_version"]
    return version


# ── upload ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_put_new_document_answers_its_load_report(client: httpx.Client) -> None:
    """The report counts what an ontologist checks first; the location leads to the ontology."""
    answer = put(client, "computers", COMPUTERS)
    assert answer.status_code == 201
    report = answer.json()
    expected = {"name": "computers", "version": 1, "active": True, "format": "turtle", "concepts": 3, "edges": 1}
    assert report | expected == report
    for name in ("sha256", "triples", "roots", "max_depth", "multi_parent", "synonyms", "languages", "merged"):
        assert name in report
    for name in ("deprecated", "unresolved_imports", "warnings", "vocabulary_version"):
        assert name in report
    assert client.get(answer.headers["location"]).json()["sha256"] == report["sha256"]


def test_put_same_bytes_again_is_the_same_version(client: httpx.Client) -> None:
    """Uploading what is there already changes nothing; other bytes are another version."""
    first = put(client, "computers", COMPUTERS)
    again = put(client, "computers", COMPUTERS)
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json()["version"] == 1
    other = put(client, "computers", COMPUTERS + ":Tablet rdfs:subClassOf :Computer .")
    assert (other.status_code, other.json()["version"]) == (201, 2)
    assert other.json()["vocabulary_version"] != first.json()["vocabulary_version"]
    back = put(client, "computers", COMPUTERS)
    assert (back.status_code, back.json()["version"], back.json()["active"]) == (200, 1, True)
    assert back.json()["vocabulary_version"] == first.json()["vocabulary_version"]


@pytest.mark.parametrize("content_type", [None, "application/octet-stream", "application/x-www-form-urlencoded"])
def test_put_document_of_unsaid_type_is_recognised(client: httpx.Client, content_type: str | None) -> None:
    """What curl sends by itself says nothing, and the first characters decide; gzip is taken off."""
    headers = {} if content_type is None else {"Content-Type": content_type}
    answer = client.put("/v1/ontologies/x", content=gzip.compress(COMPUTERS.encode()), headers=headers)
    assert (answer.status_code, answer.json()["concepts"]) == (201, 3)


def test_put_format_parameter_wins_over_the_content_type(client: httpx.Client) -> None:
    """?format= names the syntax where a client cannot set the header."""
    triples = "<http://e/A> <http://www.w3.org/2000/01/rdf-schema#subClassOf> <http://e/B> ."
    answer = client.put("/v1/ontologies/x?format=nt", content=triples, headers={"Content-Type": "application/rdf+xml"})
    assert (answer.status_code, answer.json()["format"]) == (201, "n-triples")


def test_list_total_counts_concepts_as_each_ontology_does(client: httpx.Client) -> None:
    """Without individuals."""
    put(client, "computers", COMPUTERS + ":mine a :Laptop, owl:NamedIndividual .")
    put(client, "rivers", RIVERS)
    told = client.get("/v1/ontologies").json()
    assert [each["concepts"] for each in told["ontologies"]] == [3, 1]
    assert told["concepts"] == 4


def test_put_malformed_document_names_the_line(client: httpx.Client) -> None:
    """A document that cannot be parsed is refused with the line, and leaves everything as it was."""
    before = vocabulary_version(client)
    answer = put(client, "x", PREFIXES + "\n:A rdfs:subClassOf :B\n:C rdfs:subClassOf .")
    assert (answer.status_code, problem_code(answer)) == (400, "malformed-ontology")
    assert answer.json()["errors"][0]["line"] > 5
    assert vocabulary_version(client) == before
    assert client.get("/v1/ontologies").json()["ontologies"] == []


@pytest.mark.parametrize("document", ["", " \n"])
@pytest.mark.parametrize("dry_run", [False, True])
def test_put_empty_document_is_refused(client: httpx.Client, document: str, dry_run: bool) -> None:
    """A transfer that failed left it; as a new version it would flag each subscription."""
    put(client, "shop", COMPUTERS)
    id = subscribe(client, "target isa Computer")["id"]
    answer = put(client, "shop", document, dry_run=dry_run)
    assert (answer.status_code, problem_code(answer)) == (400, "malformed-ontology")
    assert "the document is empty" in answer.json()["detail"]
    assert matched(client, target="laptop") == [id]


def test_put_unknown_content_type_is_refused(client: httpx.Client) -> None:
    """Nobody here reads PDF."""
    answer = client.put("/v1/ontologies/x", content=b"%PDF", headers={"Content-Type": "application/pdf"})
    assert (answer.status_code, problem_code(answer)) == (415, "unsupported-format")


def test_put_oversized_document_is_refused(tmp_path: Path) -> None:
    """The bound counts bytes as they come in, announced or not."""
    with running_application(tmp_path, max_ontology_bytes=1_000) as client:
        announced = client.put("/v1/ontologies/x", content=b" " * 1_001, headers=TURTLE)
        chunked = client.put("/v1/ontologies/x", content=iter([b" " * 600] * 2), headers=TURTLE)
        for answer in (announced, chunked):
            assert (answer.status_code, problem_code(answer)) == (413, "body-too-large")


def test_put_relation_that_the_document_lacks_is_refused(client: httpx.Client) -> None:
    """Relations are not silently left out."""
    answer = client.put("/v1/ontologies/x?relations=http://e/partOf", content=COMPUTERS.encode(), headers=TURTLE)
    assert (answer.status_code, problem_code(answer)) == (422, "unknown-relation")
    assert "it has no relations" in answer.json()["detail"]


@pytest.mark.parametrize("name", ["a b", ".hidden", "x" * 101, "ä"])
def test_put_bad_name_is_refused(client: httpx.Client, name: str) -> None:
    """Names are plain, so that they fit in addresses."""
    answer = put(client, name, COMPUTERS)
    assert (answer.status_code, problem_code(answer)) == (422, "invalid-request")


# ── versions and the swap ───────────────────────────────────────────────────────────────────────────────────────────


def test_put_new_version_recompiles_live_subscriptions(client: httpx.Client) -> None:
    """After a new version the same subscription matches what is beneath its concept now."""
    put(client, "computers", COMPUTERS)
    id = subscribe(client, "target isa Computer")["id"]
    assert matched(client, target="slate") == []
    slates = ':Slate rdfs:subClassOf :Computer ; rdfs:label "slate"@en .'
    answer = put(client, "computers", COMPUTERS + slates)
    none = {"count": 0, "listed": []}
    assert answer.json()["subscriptions"] == {"recompiled": 1, "changed": 1, "flagged": none, "unflagged": none}
    assert matched(client, target="slate") == [id]
    assert matched(client, target="laptop") == [id]


def test_put_without_activation_changes_nothing_until_activated(client: httpx.Client) -> None:
    """?activate=false stores a version; activating swaps to it, and back to an earlier one."""
    first = put(client, "computers", COMPUTERS).json()
    id = subscribe(client, "target isa Computer")["id"]
    stored = put(
        client, "computers", COMPUTERS + ':Slate rdfs:subClassOf :Computer ; rdfs:label "slate" .', activate=False
    )
    assert (stored.status_code, stored.json()["active"]) == (201, False)
    assert vocabulary_version(client) == first["vocabulary_version"]
    assert matched(client, target="slate") == []
    assert client.post("/v1/ontologies/computers/activate?version=2").status_code == 200
    assert matched(client, target="slate") == [id]
    versions = client.get("/v1/ontologies/computers/versions").json()["versions"]
    assert [(each["version"], each["active"]) for each in versions] == [(2, True), (1, False)]
    client.post("/v1/ontologies/computers/activate?version=1")
    assert matched(client, target="slate") == []
    missing = client.post("/v1/ontologies/computers/activate?version=9")
    assert (missing.status_code, problem_code(missing)) == (404, "unknown-ontology")


def test_swap_concept_that_is_gone_is_flagged_and_comes_back(client: httpx.Client) -> None:
    """A subscription keeps its IRI: while no ontology has it, a note says so; when it is back, it matches again."""
    put(client, "computers", COMPUTERS)
    created = subscribe(client, "target isa Laptop")
    answer = put(client, "computers", PREFIXES + ":Computer a owl:Class .")
    assert answer.json()["subscriptions"]["flagged"] == {"count": 1, "listed": [created["id"]]}
    assert matched(client, target="laptop") == []
    notes = client.get(f"/v1/subscriptions/{created['id']}").json()["notes"]
    assert "http://example.org/Laptop" in str(notes)
    client.post("/v1/ontologies/computers/activate?version=1")
    assert matched(client, target="laptop") == [created["id"]]
    assert client.get(f"/v1/subscriptions/{created['id']}").json()["notes"] == []


def test_swap_replacement_is_followed_and_undone(client: httpx.Client) -> None:
    """A concept that another version replaces is matched as its replacement, and as itself after going back: the stored
    subscription never changes."""
    put(client, "computers", COMPUTERS)
    id = subscribe(client, "target isa Laptop")["id"]
    replaced = """
    :Laptop owl:deprecated true ; dcterms:isReplacedBy :Portable .
    :Portable a owl:Class ; rdfs:label "portable"@en .
    """
    put(client, "computers", COMPUTERS + replaced)
    assert matched(client, target="portable") == [id]
    client.post("/v1/ontologies/computers/activate?version=1")
    assert matched(client, target="portable") == []
    assert matched(client, target="laptop") == [id]


def test_restart_restores_ontologies_versions_and_meaning(tmp_path: Path) -> None:
    """The same vocabulary version, the same reports, the same matches, from the store alone."""
    with running_application(tmp_path) as client:
        put(client, "rivers", RIVERS)
        put(client, "computers", COMPUTERS)
        put(client, "computers", COMPUTERS + ":Slate rdfs:subClassOf :Computer .", activate=False)
        id = subscribe(client, "target isa Computer")["id"]
        before = client.get("/v1/ontologies").json()
    with running_application(tmp_path) as client:
        assert client.get("/v1/ontologies").json() == before
        assert matched(client, target="Notebook") == [id]
        assert len(client.get("/v1/ontologies/computers/versions").json()["versions"]) == 2


# ── delete ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_delete_while_subscriptions_depend_on_it_is_refused(client: httpx.Client) -> None:
    """An ontology goes when nobody needs it: while one does, the answer names who; another that has the concept too
    frees it."""
    put(client, "computers", COMPUTERS)
    created = subscribe(client, "target isa Laptop")
    answer = client.delete("/v1/ontologies/computers")
    assert (answer.status_code, problem_code(answer)) == (409, "ontology-in-use")
    assert answer.json()["subscriptions"] == [created["id"]]
    put(client, "copy", COMPUTERS)
    assert client.delete("/v1/ontologies/computers").status_code == 200
    assert matched(client, target="laptop") == [created["id"]]
    assert [each["name"] for each in client.get("/v1/ontologies").json()["ontologies"]] == ["copy"]


def test_delete_unknown_ontology_is_not_found(client: httpx.Client) -> None:
    """Nothing of this name was ever uploaded."""
    for answer in (client.delete("/v1/ontologies/none"), client.get("/v1/ontologies/none")):
        assert (answer.status_code, problem_code(answer)) == (404, "unknown-ontology")


# ── concepts ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_resolve_term_in_any_way_of_writing_it(client: httpx.Client) -> None:
    """Label in any language, folded label, short form and IRI all mean the same."""
    put(client, "computers", COMPUTERS)
    found = {
        term: client.get("/v1/concepts/resolve", params={"term": term}).json()
        for term in ("laptop", "NOTEBOOK", "Laptop", "http://example.org/Laptop", "<http://example.org/Laptop>")
    }
    assert {each["candidates"][0]["iri"] for each in found.values()} == {"http://example.org/Laptop"}
    assert {term: each["level"] for term, each in found.items()} == {
        "laptop": "label",
        "NOTEBOOK": "folded",
        "Laptop": "short",
        "http://example.org/Laptop": "iri",
        "<http://example.org/Laptop>": "iri",
    }


def test_resolve_ambiguous_term_lists_all_and_browsing_refuses_it(client: httpx.Client) -> None:
    """Resolving tells every candidate; browsing from a term that means two things asks which."""
    put(client, "computers", COMPUTERS)
    put(client, "rivers", RIVERS)
    found = client.get("/v1/concepts/resolve?term=bank").json()
    assert found["ambiguous"]
    assert {each["iri"] for each in found["candidates"]} == {"http://example.org/Bank", "http://example.org/RiverBank"}
    answer = client.get("/v1/concepts/ancestors?term=bank")
    assert (answer.status_code, problem_code(answer)) == (409, "ambiguous-term")
    assert len(answer.json()["candidates"]) == 2
    assert all("curie" in each for each in answer.json()["candidates"])
    refused = client.post("/v1/subscriptions", json={"expression": "target isa bank"})
    assert (refused.status_code, problem_code(refused)) == (422, "invalid-subscription")
    assert len(refused.json()["errors"][0]["suggestions"]) == 2


def test_resolve_unknown_term_suggests_near_ones(client: httpx.Client) -> None:
    """A misspelt label is answered with what it might have been."""
    put(client, "computers", COMPUTERS)
    for path in ("resolve", "children"):
        answer = client.get(f"/v1/concepts/{path}", params={"term": "labtop"})
        assert (answer.status_code, problem_code(answer)) == (404, "unknown-concept")
        assert answer.json()["suggestions"][0]["iri"] == "http://example.org/Laptop"


def test_browse_walks_up_and_down_in_pages(client: httpx.Client) -> None:
    """Ancestors, descendants and children; a page ends with a cursor for the next one."""
    classes = "".join(f':C{number} rdfs:subClassOf :Laptop ; rdfs:label "model {number}" .' for number in range(5))
    put(client, "computers", COMPUTERS + classes)

    def walk(path: str, term: str, **params: Any) -> Any:
        return client.get(f"/v1/concepts/{path}", params={"term": term, **params}).json()

    above = walk("ancestors", "model 3")
    assert {each["label"] for each in above["concepts"]} == {"laptop", "computer"}
    assert above["concept"]["label"] == "model 3"
    assert walk("descendants", "computer")["count"] == 6
    first = walk("children", "laptop", limit=3)
    second = walk("children", "laptop", limit=3, cursor=first["cursor"])
    assert len(first["concepts"]) == 3
    assert second["cursor"] is None
    labels = {each["label"] for each in (*first["concepts"], *second["concepts"])}
    assert labels == {f"model {number}" for number in range(5)}


def test_search_finds_labels_of_every_language(client: httpx.Client) -> None:
    """A part of a label is enough; `label` is the one to show, `matched` the one that was found."""
    put(client, "computers", COMPUTERS)
    (hit,) = client.get("/v1/concepts?q=noteb").json()["concepts"]
    expected = {"iri": "http://example.org/Laptop", "label": "laptop", "matched": "Notebook", "lang": "de"}
    assert hit == expected
    assert client.get("/v1/concepts?q=noteb&lang=de").json()["concepts"][0]["label"] == "Notebook"
