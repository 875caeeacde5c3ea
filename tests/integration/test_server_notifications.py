"""Notifications of other systems over HTTP: one event for each entity, all or none, and once."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.harness.application import problem_code, running_application, subscribe
from tests.unit.server.test_notifications import PIECE, change, entity, notification


@pytest.fixture
def client(tmp_path: Path) -> Iterator[httpx.Client]:
    with running_application(tmp_path) as client:
        yield client


def notify(client: httpx.Client, path: str, body: Any, **params: Any) -> httpx.Response:
    return client.post(f"/v1/{path}/notifications", json=body, params=params)


def test_ngsi_ld_notification_is_an_event_for_each_entity(client: httpx.Client) -> None:
    """Sent again, it is a duplicate; what is delivered is the entity with its context."""
    id = subscribe(client, 'ce.subscriptionid = "urn:ngsi-ld:Subscription:7" and ce.type = "ParkingSpot"')["id"]
    body = notification(entity(1), entity(2))
    answer = notify(client, "ngsi-ld", body)
    assert (answer.status_code, answer.json()) == (202, {"accepted": 2, "duplicates": 0, "matched": 2, "rejected": []})
    assert notify(client, "ngsi-ld", body).json()["duplicates"] == 2
    got = client.get(f"/v1/subscriptions/{id}/events").json()["events"]
    assert [each["event"]["data"]["id"] for each in got] == ["urn:ngsi-ld:Spot:1", "urn:ngsi-ld:Spot:2"]
    verbose = notify(client, "ngsi-ld", body | {"id": "urn:n:2"}, verbose=True, source="urn:city").json()
    assert [each["source"] for each in verbose["events"]] == ["urn:city", "urn:city"]


def test_ngsi_ld_notification_is_taken_whole_or_not_at_all(client: httpx.Client) -> None:
    """One entity that cannot be read: the error names it, and no event of the notification is stored."""
    bad = entity(2, deep=[[[]]] * 3, **{"@context": 5})
    bad["wrong"] = {"a": 1, "a.b": {"": "x" * 10}} | {str(number): number for number in range(20_000)}
    refused = notify(client, "ngsi-ld", notification(entity(1), bad))
    assert refused.status_code == 422, refused.text
    assert client.get("/v1/events").json()["events"] == []
    assert notify(client, "ngsi-ld", notification(entity(1))).json()["accepted"] == 1


def test_notifications_that_are_none_are_refused(client: httpx.Client) -> None:
    for path in ("ngsi-ld", "onerecord"):
        refused = notify(client, path, {"type": "Subscription"})
        assert (refused.status_code, problem_code(refused)) == (422, "invalid-event")
        broken = client.post(f"/v1/{path}/notifications", content=b"{", headers={"Content-Type": "application/json"})
        assert (broken.status_code, problem_code(broken)) == (400, "malformed-json")


def test_one_record_notification_is_an_event_about_its_object(client: httpx.Client) -> None:
    """By the same bytes it is known again; by others it is another event about the same object."""
    id = subscribe(
        client, 'ce.notificationtype = "LOGISTICS_OBJECT_UPDATED" and ce.changedproperties contains "grossWeight"'
    )["id"]
    first = notify(client, "onerecord", change({"@id": PIECE}))
    assert (first.status_code, first.json()["accepted"]) == (202, 1)
    assert notify(client, "onerecord", change({"@id": PIECE})).json()["duplicates"] == 1
    later = change({"@id": PIECE}, **{"api:isTriggeredBy": {"@id": "https://1r.example.com/action-requests/2"}})
    assert notify(client, "onerecord", later).json()["accepted"] == 1
    got = client.get(f"/v1/subscriptions/{id}/events").json()["events"]
    assert [each["event"]["subject"] for each in got] == [PIECE, PIECE]


def test_one_record_notification_without_type_or_in_flattened_form_is_an_event(client: httpx.Client) -> None:
    """The object is matched with what the other nodes of the document say of it."""
    ids = [
        subscribe(client, each)["id"]
        for each in ('ce.type endswith "#LogisticsObject"', "grossWeight > 4 kg and grossWeight < 12 lb")
    ]
    sent = change({"@id": PIECE})
    context = {"@context": {**sent.pop("@context"), "cargo": "https://onerecord.iata.org/ns/cargo#"}}
    unit = {"@id": "https://onerecord.iata.org/ns/code-lists/MeasurementUnitCode#KGM"}
    weight = {"@id": "_:b1", "@type": "cargo:Value", "cargo:numericalValue": 5, "cargo:unit": unit}
    graph = [
        sent,
        {"@id": PIECE, "@type": "cargo:Piece", "cargo:grossWeight": {"@id": "_:b1"}},
        weight,
        {"@id": "urn:x", "cargo:y": 1},
    ]
    untyped = {name: value for name, value in sent.items() if name != "api:hasLogisticsObjectType"}
    for body in ({**context, **untyped}, {**context, "@graph": graph}):
        answer = notify(client, "onerecord", body)
        assert (answer.status_code, answer.json()["accepted"]) == (202, 1), answer.text
    assert [len(client.get(f"/v1/subscriptions/{each}/events").json()["events"]) for each in ids] == [1, 1]
