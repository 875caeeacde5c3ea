"""A carrier's extension of ONE Record: subscribers to a kind get exactly the objects of that kind and of those beneath
it, from Python, over HTTP and in Spark, before and after a newer version of the model is activated, whose impact is
told. Which ones are right is worked out from the documents' expanded form and the models' own statements.
"""

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from rdflib import RDFS, Graph, URIRef

from kindcast import Matcher, Vocabulary
from kindcast.semantic.model import Event
from kindcast.semantic.ontology import read
from kindcast.spark_jobs.match import match_archive
from kindcast.spark_jobs.snapshot import write_snapshot
from tests.harness.application import running_application
from tests.oracle.linked_data import event_of

ASKED = ("LogisticsObject", "Shipment", "SpecificShipment", "LogisticsEvent")
JSON_LD = "application/ld+json"
OWN = Path(__file__).resolve().parents[2] / "docs" / "examples" / "carrier"
Answers = dict[str, set[str]]
"""Document → the kinds whose subscribers get it."""


class Models:
    """Two versions of a model, an extension of it, and documents by name."""

    def __init__(self, old: bytes, new: bytes, extension: bytes, documents: dict[str, Any]) -> None:
        self.versions = (old, new)
        self.extension = extension
        self.documents = documents

    def right(self, version: int) -> Answers:
        """What is right, from statements alone."""
        graph = Graph().parse(data=self.versions[version], format="turtle").parse(data=self.extension, format="turtle")
        found = {}
        for name, document in self.documents.items():
            kinds = {each for kind in event_of(document).types for each in above(graph, kind)}
            found[name] = {each for each in ASKED if any(kind.endswith(f"#{each}") for kind in kinds)}
        return found


def above(graph: Graph, kind: str) -> set[str]:
    return {str(each) for each in graph.transitive_objects(URIRef(kind), RDFS.subClassOf)}


@pytest.fixture(scope="module", params=["of our own", "of the standard"])
def models(request: pytest.FixtureRequest) -> Models:
    """Small models of our own, and the standard's where they are at hand."""
    if request.param == "of our own":
        old, new, extension = ((OWN / f"{name}.ttl").read_bytes() for name in ("cargo-2025", "cargo-2026", "extension"))
        return Models(old, new, extension, read_documents(OWN / "documents"))
    folder = request.getfixturevalue("shared_data") / "jsonld" / "onerecord"
    old, new = (
        gzip.decompress((folder / f"IATA-1R-DM-{month}.ttl.gz").read_bytes()) for month in ("2025-07", "2026-07")
    )
    documents = read_documents(folder / "examples")
    kind = "https://carrier.example/ns#SpecificShipment"
    specific = json.loads(json.dumps(documents["Shipment_with_Piece"]).replace("cargo:Shipment", kind))
    extension = (OWN / "extension.ttl").read_text("utf-8")
    extension = extension.replace("https://cargo.example/ns#", "https://onerecord.iata.org/ns/cargo#")
    cargo = "https://onerecord.iata.org/ns/cargo#"
    update = {"@type": f"{cargo}StatusUpdateEvent", f"{cargo}eventName": "Delivered"}
    return Models(old, new, extension.encode(), {**documents, "SpecificShipment": specific, "StatusUpdate": update})


def read_documents(folder: Path) -> dict[str, Any]:
    return {file.stem: json.loads(file.read_text("utf-8")) for file in sorted(folder.glob("*.json"))}


def test_right_answers_are_more_than_nothing(models: Models) -> None:
    """Each kind has objects, the newer version has one more event, and nothing else changes."""
    old, new = models.right(0), models.right(1)
    assert {kind for kinds in old.values() for kind in kinds} == set(ASKED)
    gained = {name: new[name] - old[name] for name in old if new[name] != old[name]}
    assert {"LogisticsEvent"} in gained.values()
    assert all(old[name] <= new[name] for name in old)


@pytest.mark.parametrize("version", [0, 1], ids=["older", "newer"])
def test_python_gives_each_subscriber_the_right_ones(models: Models, version: int) -> None:
    ontologies = [read(data, format="turtle") for data in (models.versions[version], models.extension)]
    matcher = Matcher(Vocabulary.from_ontologies(ontologies))
    for kind in ASKED:
        matcher.add(kind, f"isa {kind}")
    events = [Event(document, {"datacontenttype": JSON_LD}) for document in models.documents.values()]
    one_by_one = [{match.subscription for match in matcher.match(event)} for event in events]
    together = [{match.subscription for match in each} for each in matcher.match_batch(events)]
    assert dict(zip(models.documents, one_by_one, strict=True)) == models.right(version)
    assert together == one_by_one


def test_http_gives_each_subscriber_the_right_ones_before_and_after_activation(models: Models, tmp_path: Path) -> None:
    turtle = {"Content-Type": "text/turtle"}
    with running_application(tmp_path, plugins=False) as client:
        client.put("/v1/ontologies/cargo", content=models.versions[0], headers=turtle).raise_for_status()
        client.put("/v1/ontologies/carrier", content=models.extension, headers=turtle).raise_for_status()
        ids = {
            kind: client.post("/v1/subscriptions", json={"expression": f"isa {kind}"}).json()["id"] for kind in ASKED
        }

        def delivered(round: str) -> Answers:
            for name, document in models.documents.items():
                head = {"specversion": "1.0", "id": f"{round}-{name}", "source": "/s", "type": "t"}
                event = {**head, "datacontenttype": JSON_LD, "data": document}
                kind = {"Content-Type": "application/cloudevents+json"}
                client.post("/v1/events", json=event, headers=kind).raise_for_status()
            found: Answers = {name: set() for name in models.documents}
            for kind, id in ids.items():
                page = client.get(f"/v1/subscriptions/{id}/events", params={"after": 0, "limit": 1_000}).json()
                for message in page["events"]:
                    which, _, name = message["event"]["id"].partition("-")
                    if which == round:
                        found[name].add(kind)
            return found

        assert delivered("before") == models.right(0)
        stored = client.put(
            "/v1/ontologies/cargo", content=models.versions[1], headers=turtle, params={"activate": False}
        ).json()
        told = []
        for dry in (True, False):
            answer = client.post("/v1/ontologies/cargo/activate", params={"version": stored["version"], "dry_run": dry})
            told.append(answer.json()["impact"]["subscriptions"])
            if dry:
                assert delivered("between") == models.right(0)
        assert told[0] == told[1]
        changed = {each["id"] for each in told[0]["listed"]}
        gaining = {kind for kind in ASKED if gains(models, kind)}
        assert changed == {ids[kind] for kind in gaining}
        assert "LogisticsEvent" in gaining
        assert delivered("after") == models.right(1)


def gains(models: Models, kind: str) -> bool:
    """Whether the newer version has more beneath a kind than the older one, or less."""
    beneath = []
    for version in models.versions:
        graph = Graph().parse(data=version, format="turtle").parse(data=models.extension, format="turtle")
        beneath.append(
            {each for each in set(graph.subjects()) if any(one.endswith(f"#{kind}") for one in above(graph, str(each)))}
        )
    return beneath[0] != beneath[1]


@pytest.mark.parametrize("version", [0, 1], ids=["older", "newer"])
def test_spark_gives_each_subscriber_the_right_ones(
    models: Models, version: int, spark: SparkSession, tmp_path: Path
) -> None:
    ontologies = [read(data, format="turtle") for data in (models.versions[version], models.extension)]
    snapshot = write_snapshot(tmp_path / "snapshot", ontologies, [(kind, f"isa {kind}") for kind in ASKED])
    lines = []
    for name, document in models.documents.items():
        head = {"specversion": "1.0", "id": name, "source": "/s", "type": "t", "datacontenttype": JSON_LD}
        lines.append(json.dumps({**head, "data": document}) + "\n")
    (tmp_path / "events.ndjson").write_text("".join(lines), encoding="utf-8")
    summary = match_archive(spark, str(tmp_path / "events.ndjson"), tmp_path / "out", snapshot)
    rows = pq.read_table(tmp_path / "out", columns=["id", "subscriptions"]).to_pylist()
    assert summary["quarantined"] == 0
    assert {row["id"]: set(row["subscriptions"]) for row in rows} == models.right(version)
