"""Real documents of NGSI-LD and ONE Record, in notifications to a real server."""

import gzip
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from kindcast import Client
from tests.harness.server_process import running_server

ENVIRONMENT = "https://raw.githubusercontent.com/smart-data-models/dataModel.Environment/master/context.jsonld"
"""Where the entities of the data say that their context is."""


def test_notifications_of_real_brokers_are_events(tmp_path: Path, shared_data: Path) -> None:
    """Each entity of the smart data models in one notification, each notification of ONE Record's documentation."""
    folder = shared_data / "jsonld"
    if not folder.is_dir():
        pytest.skip(f"no JSON-LD documents at {folder}")
    entities = [json.loads(path.read_text("utf-8")) for path in sorted((folder / "ngsi-ld").glob("*[a-z].jsonld"))]
    entities = [each for each in entities if "id" in each]
    context = json.loads((folder / "ngsi-ld" / "environment-context.jsonld").read_text("utf-8"))
    notifications = sorted((folder / "onerecord" / "examples").glob("Notification_example*.json"))
    assert len(entities) == 19
    assert len(notifications) == 6
    with running_server(tmp_path / "data") as server, httpx.Client(base_url=server.url, trust_env=False) as http:
        uploaded = http.put("/v1/contexts", params={"url": ENVIRONMENT}, json=context, timeout=60)
        assert uploaded.status_code == 201, uploaded.text
        sent: dict[str, Any] = {"id": "urn:n:1", "type": "Notification", "@context": ENVIRONMENT, "data": []}
        sent["data"] = [{name: value for name, value in each.items() if name != "@context"} for each in entities]
        told = http.post("/v1/ngsi-ld/notifications", json=sent, timeout=60)
        assert (told.status_code, told.json().get("accepted")) == (202, len(entities)), told.text
        listed = http.get("/v1/events").json()["events"]
        assert [each["event"]["subject"] for each in listed] == [each["id"] for each in entities]
        for path in notifications:
            headers = {"Content-Type": "application/ld+json"}
            told = http.post("/v1/onerecord/notifications", content=path.read_bytes(), headers=headers, timeout=60)
            assert (told.status_code, told.json().get("accepted")) == (202, 1), (path.name, told.text)
        kinds = {each["event"]["type"].rpartition("#")[2] for each in http.get("/v1/events").json()["events"][19:]}
        assert kinds == {"Piece", "Shipment"}


def test_one_record_notifications_reach_subscribers_by_kind(tmp_path: Path, shared_data: Path) -> None:
    """With the ontology loaded, whoever asks for a class gets the objects of its subclasses, as a reference too; what
    is said of an embedded object can be asked for. The ontology's own prefix is empty, and `cargo:` means it."""
    folder = shared_data / "jsonld" / "onerecord"
    if not folder.is_dir():
        pytest.skip(f"no ONE Record documents at {folder}")
    ontology = gzip.decompress((folder / "IATA-1R-DM-2026-07.ttl.gz").read_bytes())
    notifications = [path.read_bytes() for path in sorted((folder / "examples").glob("Notification_example*.json"))]
    with running_server(tmp_path / "data") as server, Client(server.url) as client:
        client.put_ontology("onerecord", ontology, content_type="text/turtle")
        expressions = ("ce.type isa cargo:LogisticsObject", "@type isa Shipment", 'goodsDescription contains "awesome"')
        ids = [client.subscribe(each)["id"] for each in expressions]
        headers = {"Content-Type": "application/ld+json"}
        with httpx.Client(base_url=server.url, trust_env=False, timeout=60) as http:
            for body in notifications:
                http.post("/v1/onerecord/notifications", content=body, headers=headers).raise_for_status()
        got = [[each["event"]["subject"] for each in client.pull(id, limit=100)["events"]] for id in ids]
    shipment = "https://1r.example.com/logistics-objects/1a8ded38-1804-467c-a369-81a411416b3c"
    shipments = sum(b"cargo#Shipment" in body for body in notifications)
    assert [len(each) for each in got] == [len(notifications), shipments, 1]
    assert got[2] == [shipment]
    assert 0 < shipments < len(notifications)
