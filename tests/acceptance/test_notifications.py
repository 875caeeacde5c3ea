"""Real documents of NGSI-LD and ONE Record, in notifications to a real server."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

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
