"""`?reason=` over HTTP: what reasoning adds is subscribed to, stored, and there again after a restart."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.harness.application import problem_code, publish, running_application, subscribe
from tests.harness.hard_ontology import HARD

TURTLE = {"Content-Type": "text/turtle"}
PREFIXES = """
@prefix : <http://e/> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
@prefix owl: <http://www.w3.org/2002/07/owl#> .
@prefix xsd: <http://www.w3.org/2001/XMLSchema#> .
"""
DRINKS = (
    PREFIXES
    + """
:contains a owl:ObjectProperty ; rdfs:domain :Food . :Food a owl:Class . :Alcohol a owl:Class .
:Alcoholic a owl:Class ; owl:equivalentClass
    [ a owl:Restriction ; owl:onProperty :contains ; owl:someValuesFrom :Alcohol ] .
:Wine a owl:Class ; rdfs:subClassOf [ a owl:Restriction ; owl:onProperty :contains ; owl:someValuesFrom :Alcohol ] .
:lemonade :contains :sugar .
"""
)
NO_JAVA = "/no/such/java"
PIZZA = "http://www.co-ode.org/ontologies/pizza/pizza.owl#"


@pytest.fixture
def client(tmp_path: Path) -> Iterator[httpx.Client]:
    with running_application(tmp_path) as client:
        yield client


def put(client: httpx.Client, document: str, **params: Any) -> httpx.Response:
    return client.put("/v1/ontologies/drinks", content=document.encode(), headers=TURTLE, params=params)


def test_put_with_rdfs_adds_what_properties_say(client: httpx.Client) -> None:
    """The level and its additions stand in the report, and in what is stored."""
    report = put(client, DRINKS, reason="rdfs").json()
    assert (report["reason"], report["inferred"]) == ("rdfs", 1)
    assert report["inferred_examples"] == [["http://e/lemonade", "http://e/Food"]]
    subscribe(client, "drink isa <http://e/Food>")
    assert publish(client, drink="lemonade") == 1
    stored = client.get("/v1/ontologies/drinks").json()
    assert (stored["reason"], stored["inferred"]) == ("rdfs", 1)


@pytest.mark.slow
def test_same_document_with_another_level_is_another_version(client: httpx.Client) -> None:
    """Each level is a version of its own; each can be asked for again, and gone back to."""
    versions = [put(client, DRINKS, reason=reason).json()["version"] for reason in ("none", "owl", "rdfs", "owl")]
    assert versions == [1, 2, 3, 2]
    assert put(client, DRINKS).status_code == 200
    subscribe(client, "drink isa <http://e/Alcoholic>")
    assert publish(client, drink="Wine") == 0
    client.post("/v1/ontologies/drinks/activate", params={"version": 2}).raise_for_status()
    assert publish(client, drink="Wine") == 1


@pytest.mark.slow
def test_restart_reasons_no_more(tmp_path: Path) -> None:
    """The records are what is stored: without Java the server starts, and still knows."""
    with running_application(tmp_path) as client:
        assert put(client, DRINKS, reason="owl").json()["inferred"] == 3
        subscribe(client, "drink isa <http://e/Alcoholic>")
    with running_application(tmp_path, java=NO_JAVA) as client:
        assert publish(client, drink="Wine") == 1
        answer = put(client, DRINKS + ":Beer a owl:Class .", reason="owl")
        assert (answer.status_code, problem_code(answer)) == (501, "reasoner-unavailable")
        assert NO_JAVA in answer.json()["detail"]
        assert publish(client, drink="Wine") == 1


@pytest.mark.slow
def test_inconsistent_version_is_refused_and_the_old_one_serves(client: httpx.Client) -> None:
    """What contradicts itself would make everything beneath everything."""
    put(client, DRINKS, reason="owl").raise_for_status()
    subscribe(client, "drink isa <http://e/Alcoholic>")
    wrong = DRINKS + ":Wine owl:disjointWith :Alcoholic . :bottle a :Wine ."
    answer = put(client, wrong, reason="owl")
    assert (answer.status_code, problem_code(answer)) == (422, "inconsistent-ontology")
    assert client.get("/v1/ontologies/drinks").json()["version"] == 1
    assert publish(client, drink="Wine") == 1


@pytest.mark.slow
def test_pizza_is_classified_over_http(client: httpx.Client, shared_data: Path) -> None:
    """Everybody's first ontology: a margherita is vegetarian, and nothing is ice cream."""
    document = (shared_data / "ontologies/pizza.owl").read_bytes()
    answer = client.put("/v1/ontologies/pizza?reason=owl", content=document)
    assert answer.status_code == 201, answer.text
    report = answer.json()
    assert report["unsatisfiable"] == [PIZZA + "CheeseyVegetableTopping", PIZZA + "IceCream"]
    assert report["inferred"] == 86
    subscribe(client, f"order isa <{PIZZA}VegetarianPizza>")
    subscribe(client, f"order isa <{PIZZA}SpicyPizza>")
    assert publish(client, order="Margherita") == 1
    assert publish(client, order="AmericanHot") == 1
    assert publish(client, order="American") == 0


@pytest.mark.slow
def test_events_are_matched_while_a_reasoner_works(tmp_path: Path) -> None:
    """Reasoning happens beside everything else, and its end, a bad one here, changes nothing."""
    with running_application(tmp_path, reasoner_seconds=4.0) as client:
        put(client, DRINKS, reason="rdfs").raise_for_status()
        subscribe(client, "drink isa <http://e/Food>")
        headers = {**TURTLE, "Prefer": "respond-async"}
        job = client.put("/v1/ontologies/hard?reason=owl", content=HARD.encode(), headers=headers).headers["location"]
        stages, published = set[str](), 0
        deadline = time.monotonic() + 60
        while (told := client.get(job).json())["status"] == "running" and time.monotonic() < deadline:
            stages.add(told["progress"]["stage"])
            published += publish(client, drink="lemonade")
            time.sleep(0.02)
        assert "reason" in stages
        assert published > 10
        assert told["problem"]["type"].endswith("/ontology-too-costly")
        assert told["problem"]["limit"] == "wall"
        assert client.get("/v1/ontologies/hard").status_code == 404
