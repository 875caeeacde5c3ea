"""Documents that mean harm cost bounded time and memory, open nothing, and leave the server serving.

Each of the corpus is read in a child process, whose account says what it used and what it was refused; a canary (a
listener on this machine, and a file) says whether anything got out.
"""

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from kindcast import Client, Vocabulary
from kindcast.semantic.errors import OntologyError
from kindcast.semantic.ontology import read_isolated
from kindcast.semantic.ontology.isolation import Cost
from kindcast.semantic.ontology.records import encode
from tests.harness.hostile import CORPUS, Canary, canary
from tests.harness.hostile.corpus import SHARE
from tests.harness.server_process import running_server

CPU_SECONDS = 60.0 if SHARE == 1 else 20.0
"""Of processor time that any of them may use; a million triples, as in the campaign, use some ten when idle."""
PEAK_BYTES = 1 << 30

BUILT = (
    *("chain_of_superclasses", "chain_of_properties", "chain_of_replacements", "circle_of_broader", "crowd_of_same"),
    *("labels_by_the_hundred_thousand_on_one_concept", "prefixes_by_the_hundred_thousand", "obo_circle_of_is_a"),
)
"""Those that can be read, and are meant for the server that makes a vocabulary of them."""

DOORS = tuple(name for name in CORPUS if name.startswith(("entity", "dtd", "parameter", "context_", "imports", "xml_")))
"""Those that cost little, and want to get out."""
HEAVY = ("gzip_bomb", "quadratic_blow_up_to_300_megabytes", "depth_of_brackets_that_stay_open", "obo_of_junk")

SHOP = b"""
@prefix : <http://example.org/> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
:Laptop rdfs:subClassOf :Computer .
"""
PROTEGE = b"""<?xml version="1.0"?>
<!DOCTYPE rdf:RDF [
    <!ENTITY owl "http://www.w3.org/2002/07/owl#" >
    <!ENTITY xsd "http://www.w3.org/2001/XMLSchema#" >
    <!ENTITY rdfs "http://www.w3.org/2000/01/rdf-schema#" >
    <!ENTITY rdf "http://www.w3.org/1999/02/22-rdf-syntax-ns#" >
    <!ENTITY pizza "http://www.co-ode.org/ontologies/pizza/pizza.owl#" >
]>
<rdf:RDF xmlns="&pizza;" xml:base="&pizza;" xmlns:owl="&owl;" xmlns:rdf="&rdf;" xmlns:rdfs="&rdfs;">
    <owl:Class rdf:about="&pizza;Pizza"/>
    <owl:Class rdf:about="&pizza;American">
        <rdfs:label rdf:datatype="&xsd;string">American</rdfs:label>
        <rdfs:subClassOf rdf:resource="&pizza;Pizza"/>
    </owl:Class>
</rdf:RDF>
"""


@pytest.fixture
def unharmed(tmp_path: Path) -> Iterator[Canary]:
    with canary(tmp_path) as bird:
        yield bird


@pytest.mark.slow
@pytest.mark.parametrize("name", CORPUS)
def test_hostile_document_costs_little_and_opens_nothing(name: str, unharmed: Canary) -> None:
    """It is refused by an error of its own or read, within bounds; nothing was even tried that had to be refused. What
    passes the reader cannot hold up the server that builds upon it: the same limits hold there."""
    document, format = CORPUS[name](unharmed)
    costs: list[Cost] = []
    shown: list[object] = []
    try:
        ontology = read_isolated(document, format=format or None, name="hostile", account=costs.append)
        shown += [encode(ontology), ontology.imports, ontology.warnings, ontology.concepts[:100]]
    except OntologyError as error:
        shown.append(str(error))
    (cost,) = costs
    assert "please report this" not in str(shown[0])  # a fault of the reader, if a harmless one
    assert len(str(shown[0])) < 2_000 or len(shown) > 1
    assert cost.refused == ()
    assert cost.cpu_seconds < CPU_SECONDS
    assert cost.peak_bytes < PEAK_BYTES
    assert unharmed.is_unharmed(*shown)
    if name in BUILT:
        began = time.process_time()
        with suppress(OntologyError):
            Vocabulary.from_ontologies([ontology])
        assert time.process_time() - began < CPU_SECONDS


def test_hostile_protege_style_entities_are_no_offence() -> None:
    """What ordinary tools write loads, and means what it says."""
    ontology = read_isolated(PROTEGE, format="application/rdf+xml")
    pizza = "http://www.co-ode.org/ontologies/pizza/pizza.owl#"
    assert ontology.edges == ((f"{pizza}American", f"{pizza}Pizza"),)
    assert ontology.warnings == ()


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "iso-8859-1", "iso-8859-15", "windows-1252", "us-ascii"])
def test_hostile_fence_lets_every_encoding_of_xml_through(encoding: str) -> None:
    """Codecs are loaded from files, which a child cannot open any more when the document asks for one."""
    declared = PROTEGE.decode().replace('version="1.0"', f'version="1.0" encoding="{encoding}"')
    if encoding == "utf-16-le":
        declared = "\ufeff" + declared.replace("utf-16-le", "utf-16")
    assert len(read_isolated(declared.encode(encoding), format="rdf-xml").edges) == 1


@pytest.mark.slow
def test_hostile_uploads_leave_a_server_serving(tmp_path: Path) -> None:
    """A real server: between uploads that mean harm it goes on publishing and matching, under the same vocabulary, and
    needs no more memory for them than for its own work."""
    folder = tmp_path / "bird"
    folder.mkdir()
    with running_server(tmp_path / "data") as server, Client(server.url) as client, canary(folder) as bird:
        client.put_ontology("shop", SHOP, format="turtle")
        subscription = client.subscribe("target isa Computer")["id"]
        before = client.ontologies()
        uploads = (*DOORS[::2], *HEAVY)  # `test_hostile_document_costs_little_and_opens_nothing` reads all
        for number, name in enumerate(uploads):
            document, format = CORPUS[name](bird)
            answer = _upload(server.url, "shop", document, format)
            assert answer.status_code in (201, 400, 422), (name, answer.text)
            assert bird.is_unharmed(answer.text), name
            if answer.status_code == 201:  # nothing but imports that nobody follows: the version before goes on
                httpx.post(f"{server.url}/v1/ontologies/shop/activate?version=1").raise_for_status()
            assert client.publish({"target": "Laptop", "n": number})["matched"] == 1, name
        assert client.ontologies()["vocabulary_version"] == before["vocabulary_version"]
        assert len(client.pull(subscription, limit=1_000)["events"]) == len(uploads)
        assert httpx.get(f"{server.url}/readyz").status_code == 200
        assert bird.is_unharmed(server.log.read_text(encoding="utf-8", errors="replace"))


def _upload(url: str, name: str, document: bytes, format: str) -> httpx.Response:
    params: dict[str, Any] = {"format": format} if format else {}
    headers = {"Content-Type": "application/octet-stream"}
    return httpx.put(f"{url}/v1/ontologies/{name}", content=document, params=params, headers=headers, timeout=120)
