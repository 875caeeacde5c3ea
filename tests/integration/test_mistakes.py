"""A hundred typical mistakes, each with the sentence that its maker sees: `tests/golden/mistakes.json`.

A mistake is one object: `about` (in words), `where` it is made, what is given there, and a part of what it `says`:

    python   "subscribe": text, or "given": texts and "event": data, or "explain": text and "event"
    http     "request": [method, path], "body", "status"
    cli      "arguments", "status"; spark the same, of `kindcast spark`
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from kindcast.semantic import InvalidSubscription, Matcher, Vocabulary, explain
from kindcast.semantic.ontology import read_several
from kindcast.semantic.shipped_vocabularies import shipped
from tests.harness.application import running_application
from tests.integration.conftest import Kindcast

MISTAKES: list[dict[str, Any]] = json.loads(
    (Path(__file__).parent.parent / "golden" / "mistakes.json").read_text(encoding="utf-8")
)
OTHERS = b"""
@prefix : <http://example.org/> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
@prefix owl: <http://www.w3.org/2002/07/owl#> . @prefix obo: <http://purl.obolibrary.org/obo/> .
:Galaxies rdfs:subClassOf :Thing ; rdfs:label "Galaxies" .
:Weakness79 rdfs:subClassOf :Thing ; rdfs:label "CWE-79" .
<https://schema.org/Person> rdfs:subClassOf :Thing ; rdfs:label "Human" .
:Printer rdfs:subClassOf :Thing ; rdfs:label "Office printer" .
:Typewriter rdfs:label "Typewriter" ; owl:deprecated true ; obo:IAO_0100001 :Printer .
:seller a owl:ObjectProperty . :email a owl:DatatypeProperty . :listPrice a owl:DatatypeProperty .
"""
GIVEN = {
    "not.ttl": "# Notes\n\nA page.\n",
    "events.json": '{"price": 350}\n',
    "good.ndjson": '{"id": "a", "expression": "price < 400"}\n',
    "cut.json": '{"attributes": {',
    "declarations.json": '{"attributes": 5}',
}
"""The files of those who make mistakes on the command line."""
EVENT = {"amount": 31, "fee": "350 USD", "temp": "86 degF", "digits": "12"}
"""What was published before the mistakes over HTTP are made."""


def _of(*where: str) -> list[Any]:
    return [pytest.param(each, id=each["about"]) for each in MISTAKES if each["where"] in where]


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    """The shop, and what the mistakes need beside it."""
    documents = [("shop.ttl", shipped("shop.ttl").read_bytes()), ("others.ttl", OTHERS)]
    return Vocabulary(read_several(documents))


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A server with the same, some events, and a subscription to temperatures."""
    with running_application(tmp_path_factory.mktemp("mistakes")) as client:
        for name, body in (("shop", shipped("shop.ttl").read_bytes()), ("others", OTHERS)):
            put = client.put(f"/v1/ontologies/{name}", content=body, headers={"content-type": "text/turtle"})
            assert put.is_success, put.text
        assert client.post("/v1/events", json=EVENT).json()["accepted"] == 1
        assert client.post("/v1/subscriptions", json={"expression": "amount > 30 degC"}).status_code == 201
        yield client


def test_there_are_a_hundred_mistakes_at_every_place() -> None:
    """No place is forgotten, none is there twice, and none is without its sentence."""
    assert len(MISTAKES) >= 100
    assert {each["where"] for each in MISTAKES} == {"python", "http", "cli", "spark"}
    assert len({(each["where"], each["about"]) for each in MISTAKES}) == len(MISTAKES)
    assert all(len(each["says"]) > 10 for each in MISTAKES)


@pytest.mark.parametrize("mistake", _of("python"))
def test_mistake_in_python_is_told(mistake: dict[str, Any], vocabulary: Vocabulary) -> None:
    """Errors and notes of a subscription, the notes of an event, the summary of an explanation."""
    matcher = Matcher(vocabulary)
    for number, text in enumerate(mistake.get("given", ())):
        matcher.add(str(number), text)
    if "subscribe" in mistake:
        try:
            said = "\n".join(note.detail for note in matcher.add("mistaken", mistake["subscribe"]).notes)
        except InvalidSubscription as error:
            said = str(error)
    elif "explain" in mistake:
        said = explain(vocabulary, mistake["explain"], mistake["event"])["summary"]
    else:
        said = "\n".join(note.detail for note in matcher.notes(mistake["event"]))
    assert mistake["says"] in said


@pytest.mark.parametrize("mistake", [each for each in _of("python") if "subscribe" in each.values[0]])
def test_mistake_in_an_expression_is_told_over_http_too(mistake: dict[str, Any], client: httpx.Client) -> None:
    """The same sentence, in the notes of the answer or in its problem document; near names stand beside it."""
    told = client.post("/v1/subscriptions", json={"expression": mistake["subscribe"]}).json()
    sentence = mistake["says"].partition(" (near:")[0]
    assert sentence in "\n".join(_texts(told))


@pytest.mark.parametrize("mistake", _of("http"))
def test_mistake_over_http_is_told(mistake: dict[str, Any], client: httpx.Client) -> None:
    """In the notes of an answer, or in its problem document."""
    answer = client.request(*mistake["request"], json=mistake["body"])
    assert answer.status_code == mistake["status"], answer.text
    assert mistake["says"] in "\n".join(_texts(answer.json()))


@pytest.mark.parametrize("mistake", _of("cli", "spark"))
def test_mistake_on_the_command_line_is_told(
    mistake: dict[str, Any], kindcast: Kindcast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the terminal, with the exit status that scripts see, and without a traceback."""
    monkeypatch.setenv("KINDCAST_SERVER", "http://127.0.0.1:9")
    folder = tmp_path / "given"
    folder.mkdir()
    (folder / "empty").mkdir()
    for name, text in GIVEN.items():
        (folder / name).write_text(text, encoding="utf-8")
    ran = kindcast(*(each.replace("{folder}", str(folder)) for each in mistake["arguments"]))
    said = " ".join((ran.out + ran.err).replace("│", " ").split())
    assert mistake["says"] in said
    assert ran.status == mistake["status"]
    assert "Traceback" not in said


def _texts(value: Any) -> Iterator[str]:
    """Every string in a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _texts(each)
