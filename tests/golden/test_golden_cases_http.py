"""Every golden case over HTTP: upload, declare, subscribe, publish, pull; then the next version."""

from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from tests.golden.case_files import Case, Document, GoldenEvent, cases
from tests.harness.application import problem_code, running_application

CASES = cases()


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_golden_case_over_http(case: Case, tmp_path: Path) -> None:
    """What is delivered is what the file says, under the first version of the document and under the next."""
    with running_application(tmp_path / "data") as client:
        _upload(client, case.ontology)
        _declare(client, case.declarations)
        ids = {name: _subscribe(client, text) for name, text in case.subscriptions.items()}
        assert _delivered(client, ids, case.events) == [event.expected for event in case.events]
        for text, code in case.refused.items():
            refused = client.post("/v1/subscriptions", json={"expression": text})
            assert problem_code(refused) == "invalid-subscription"
            assert [each["code"] for each in refused.json()["errors"]] == [code]
        for each in case.invalid:
            rejected = client.post("/v1/events", json=each["event"])
            assert problem_code(rejected) == "invalid-event"
            assert {error["pointer"]: error["code"] for error in rejected.json()["errors"]} == each["problems"]
        if case.later is not None:
            document, events = case.later
            _upload(client, document)
            assert _delivered(client, ids, events) == [event.expected for event in events]


def _upload(client: httpx.Client, document: Document) -> None:
    asked = {"relations": ",".join(document.relations)} if document.relations else {}
    headers = {"Content-Type": "text/turtle"}
    answer = client.put("/v1/ontologies/case", content=document.data, params=asked, headers=headers)
    assert answer.status_code == 201, answer.text


def _declare(client: httpx.Client, declarations: dict[str, Any]) -> None:
    """Attributes and event types each by itself, synonyms as one table."""
    calls = [
        (f"{kind}/{name}", body)
        for kind in ("attributes", "schemas")
        for name, body in declarations.get(kind, {}).items()
    ]
    if "synonyms" in declarations:
        calls.append(("synonyms/case", declarations["synonyms"]))
    for path, body in calls:
        answer = client.put(f"/v1/{path}", json=body)
        assert answer.status_code == 201, answer.text


def _subscribe(client: httpx.Client, text: str) -> str:
    answer = client.post("/v1/subscriptions", json={"expression": text})
    assert answer.status_code == 201, answer.text
    id: str = answer.json()["id"]
    return id


def _delivered(client: httpx.Client, ids: dict[str, str], events: list[GoldenEvent]) -> list[list[str]]:
    """For each event, published as a CloudEvent, the names of the subscriptions that get it, sorted."""
    sequences = []
    for event in events:
        context = {"id": str(uuid4()), "type": "golden", "source": "/golden"} | event.context
        document = context | {"specversion": "1.0", "data": event.data}
        answer = client.post("/v1/events", json=document, headers={"Content-Type": "application/cloudevents+json"})
        assert answer.status_code == 202, answer.text
        assert answer.json()["accepted"] == 1, answer.text
        sequences.append(str(answer.json()["events"][0]["sequence"]))
    got = {name: _pulled(client, id) for name, id in ids.items()}
    return [sorted(name for name, cursors in got.items() if sequence in cursors) for sequence in sequences]


def _pulled(client: httpx.Client, id: str) -> set[str]:
    answer = client.get(f"/v1/subscriptions/{id}/events", params={"after": "0", "limit": 1_000})
    assert answer.status_code == 200, answer.text
    return {message["cursor"] for message in answer.json()["events"]}
