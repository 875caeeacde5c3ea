"""JSON-LD contexts over HTTP and by the command line: stored versioned with the vocabulary, never fetched."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from kindcast import Client, Matcher
from kindcast.server.cli.spark import fetch_inputs, read_inputs
from kindcast.spark_jobs.snapshot import Inputs
from tests.harness.application import problem_code, running_application, subscribe
from tests.harness.server_thread import running_app

HERE, THERE = "https://example.com/here.jsonld", "https://example.com/there.jsonld"
CARGO = {"@context": {"cargo": "https://e.com/cargo#", "goods": "cargo:goodsDescription"}}


@pytest.fixture
def client(tmp_path: Path) -> Iterator[httpx.Client]:
    with running_application(tmp_path) as client:
        yield client


def put(client: httpx.Client, url: str, body: Any, **params: Any) -> httpx.Response:
    headers = {"Content-Type": "application/ld+json"}
    return client.put("/v1/contexts", json=body, params={"url": url} | params, headers=headers)


def test_context_is_a_version_of_the_vocabulary(client: httpx.Client) -> None:
    """Uploaded, listed, replaced, deleted; the same again is the same version, and a dry run changes nothing."""
    before = client.get("/v1/ontologies").json()["vocabulary_version"]
    tried = put(client, THERE, CARGO, dry_run=True)
    assert (tried.status_code, tried.json()["vocabulary_version"]) == (200, before)
    first, again = put(client, THERE, CARGO), put(client, THERE, CARGO)
    assert (first.status_code, again.status_code, again.json()["version"]) == (201, 200, 1)
    assert first.json()["vocabulary_version"] != before
    other = put(client, THERE, {"@context": {"cargo": "https://e.com/other#"}})
    assert (other.status_code, other.json()["version"]) == (201, 2)
    listed = client.get("/v1/contexts").json()
    assert [each["name"] for each in listed["contexts"]] == [THERE]
    assert "https://www.w3.org/ns/activitystreams" in listed["shipped"]
    shown = client.get("/v1/contexts", params={"url": THERE}).json()
    assert [each["version"] for each in shown["versions"]] == [2, 1]
    shipped = client.get("/v1/contexts", params={"url": listed["shipped"][0]}).json()
    assert shipped["shipped"]
    assert "@context" in shipped["declaration"]
    assert client.delete("/v1/contexts", params={"url": THERE}).status_code == 200
    assert client.get("/v1/contexts", params={"url": THERE}).status_code == 404
    assert client.get("/v1/ontologies").json()["vocabulary_version"] == before


def test_context_that_needs_unknown_ones_is_refused_with_all_of_them(client: httpx.Client) -> None:
    """So is taking one away that another needs."""
    needing = {"@context": [THERE, "https://example.com/third.jsonld"]}
    refused = put(client, HERE, needing)
    assert (refused.status_code, problem_code(refused)) == (422, "unknown-context")
    assert set(refused.json()["contexts"]) == {THERE, "https://example.com/third.jsonld"}
    assert put(client, THERE, CARGO).status_code == 201
    assert put(client, HERE, {"@context": [THERE]}).status_code == 201
    kept = client.delete("/v1/contexts", params={"url": THERE})
    assert (kept.status_code, problem_code(kept)) == (422, "unknown-context")
    assert kept.json()["detail"] == f"other contexts refer to {THERE}: delete or replace these first: {HERE}"
    wrong = put(client, HERE, {"@context": {"@id": "https://e.com/id"}})
    assert (wrong.status_code, problem_code(wrong)) == (422, "invalid-declaration")
    assert put(client, HERE, []).status_code == 400


def test_context_change_tells_the_attributes_that_gain_names(client: httpx.Client) -> None:
    """A subscription on `goodsDescription` is told that the term `goods` means it."""
    subscribe(client, 'goodsDescription contains "x"')
    told = put(client, THERE, CARGO, dry_run=True).json()
    assert told["subscriptions"]["changed"] == 1
    (changed,) = told["impact"]["attributes"]["listed"]
    assert (changed["attribute"], changed["words"]["listed"]) == ("goodsDescription", ["goods"])


def test_context_is_there_after_a_restart_and_its_prefixes_are_known(tmp_path: Path) -> None:
    """The stored subscription holds the IRI, so it needs the context no longer."""
    turtle = b"<https://e.com/cargo#Piece> <http://www.w3.org/2000/01/rdf-schema#subClassOf> <https://e.com/cargo#X> ."
    headers = {"Content-Type": "application/n-triples"}
    with running_application(tmp_path) as client:
        assert client.put("/v1/ontologies/cargo", content=turtle, headers=headers).status_code == 201
        refused = client.post("/v1/subscriptions", json={"expression": "target isa cargo:X"})
        assert refused.status_code == 422
        assert put(client, THERE, CARGO).status_code == 201
        subscribe(client, "target isa cargo:X")
        version = client.get("/v1/ontologies").json()["vocabulary_version"]
    with running_application(tmp_path) as client:
        assert client.get("/v1/ontologies").json()["vocabulary_version"] == version
        event = {"target": "https://e.com/cargo#Piece"}
        answered = client.post("/v1/events", json=event)
        assert answered.json()["events"][0]["matched"] == 1
        assert client.delete("/v1/contexts", params={"url": THERE}).json()["subscriptions"]["flagged"]["count"] == 0
        assert client.post("/v1/events", json=event).json()["events"][0]["matched"] == 1


@pytest.mark.parametrize("reads", [{}, {"linked_data": "plain"}, {"unknown_contexts": "plain"}])
def test_jobs_read_linked_data_as_the_server_does(tmp_path: Path, reads: dict[str, str]) -> None:
    """By the inputs from its URL and by those from its data folder: their vocabulary has the version of the server."""
    event = {"@context": {"@vocab": "http://p/"}, "price": {"@value": "5"}}
    matched, versions = set(), set()
    with running_app(tmp_path / "data", **reads) as url, Client(url) as client:
        version = client.ontologies()["vocabulary_version"]
        client.subscribe('price = "5"')
        matched.add(client.publish(event)["matched"])
        told = client.rules()["reading"]
        fetch_inputs(client, tmp_path / "fetched")
        read_inputs(tmp_path / "data", tmp_path / "read")
    assert told == {"linked_data": "graphs", "unknown_contexts": "refuse"} | reads
    for name in ("fetched", "read"):
        snapshot = Inputs(folder=tmp_path / name).snapshot(tmp_path / f"{name} output")
        versions.add(snapshot.vocabulary_version)
        matcher = Matcher(snapshot.vocabulary())
        matcher.add("s", 'price = "5"')
        matched.add(len(matcher.match(event)))
    assert versions == {version}
    assert matched == {0 if reads.get("linked_data") else 1}


def test_contexts_go_into_the_snapshots_of_jobs(tmp_path: Path) -> None:
    """Read from the data folder: the vocabulary of a job has the contexts, and the version, of the server."""
    with running_application(tmp_path / "data") as client:
        assert put(client, THERE, CARGO).status_code == 201
        version = client.get("/v1/ontologies").json()["vocabulary_version"]
    read_inputs(tmp_path / "data", tmp_path / "inputs")
    snapshot = Inputs(folder=tmp_path / "inputs").snapshot(tmp_path / "output")
    assert snapshot.vocabulary_version == version
    assert snapshot.vocabulary().contexts[THERE] == CARGO
