"""What a subscription gets of an event, and two secrets while one takes the place of the other."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from standardwebhooks import Webhook
from standardwebhooks.webhooks import WebhookVerificationError

from kindcast.server.delivery.message import chosen
from tests.harness.application import problem_code, publish, running_application, show, subscribe, ticket, waiting
from tests.harness.receiver import Answer, Received, Receiver, running_receiver

SALE: dict[str, Any] = {"price": 3, "size": {"width": 1, "height": 2}, "parts": [{"n": 1, "m": 2}, "x", {"n": 3}]}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with running_application(tmp_path_factory.mktemp("data"), allow_private_sinks=True) as client:
        yield client


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with running_receiver() as running:
        yield running


def received(receiver: Receiver, path: str, count: int) -> list[Received]:
    receiver.wait_until(lambda: len(receiver.requests(path)) >= count)
    return receiver.requests(path)


def verifies(secret: str, request: Received) -> bool:
    try:
        Webhook(secret).verify(request.body, request.headers)
    except WebhookVerificationError:
        return False
    return True


@pytest.mark.parametrize(
    ("attributes", "data"),
    [
        (["price"], {"price": 3}),
        (["size.width"], {"size": {"width": 1}}),
        (["size", "size.width"], {"size": {"width": 1, "height": 2}}),
        (["parts.n"], {"parts": [{"n": 1}, {"n": 3}]}),
        (["price.of", "none"], {}),
        ([], {}),
        (None, SALE),
    ],
    ids=["one", "within", "whole", "lists", "absent", "nothing", "all"],
)
def test_chosen_members_of_the_data_are_delivered(client: httpx.Client, attributes: Any, data: Any) -> None:
    """Whatever the expression asks about."""
    made = subscribe(client, "size.height = 2", attributes=attributes)
    publish(client, **SALE)
    assert waiting(client, made) == [data]
    assert show(client, made).json()["attributes"] == attributes
    client.delete(f"/v1/subscriptions/{made['id']}", headers=ticket(made))


def test_choice_is_changed_and_taken_away(client: httpx.Client, receiver: Receiver) -> None:
    """By PATCH; a webhook gets the same as a pull."""
    made = subscribe(client, "w exists", attributes=["w"], sink=f"{receiver.url}/chosen")
    publish(client, w=1, x=2)
    assert received(receiver, "/chosen", 1)[0].message["event"]["data"] == {"w": 1}
    path = f"/v1/subscriptions/{made['id']}"
    assert client.patch(path, json={"attributes": ["x"]}, headers=ticket(made)).json()["attributes"] == ["x"]
    publish(client, w=2, x=3)
    assert received(receiver, "/chosen", 2)[1].message["event"]["data"] == {"x": 3}
    assert client.patch(path, json={"attributes": None}, headers=ticket(made)).json()["attributes"] is None
    publish(client, w=3, x=4)
    assert received(receiver, "/chosen", 3)[2].message["event"]["data"] == {"w": 3, "x": 4}


def test_data_that_is_no_object_has_nothing_to_choose() -> None:
    assert chosen('{"id":"1","data":"text"}', ["a"]) == '{"id":"1"}'
    turtle = '{"id":"1","datacontenttype":"text/turtle","data":"<urn:a> <urn:p> 5 ."}'
    assert chosen(turtle, ["p"]) == '{"id":"1","datacontenttype":"text/turtle"}'


@pytest.mark.parametrize("attributes", [["a.b"], ["a.b.c"], ["a"]])
@pytest.mark.parametrize("data", [{"a.b": {"c": 1}}, {"a.b.c": 1}, {"a": {"b.c": 1}}, {"a": {"b": {"c": 1}}}])
def test_dots_in_names_of_members_are_as_good_as_nested_objects(attributes: list[str], data: dict[str, Any]) -> None:
    """`{"a.b": 1}` and `{"a": {"b": 1}}` are the same attribute (rule 1)."""
    whole = json.dumps({"data": {**data, "ab": 2, "x": {"a.b": 3}}})
    assert json.loads(chosen(whole, attributes)) == {"data": data}
    assert json.loads(chosen(whole, ["b", "ab.c", "aa.b"])) == {"data": {}}


def test_publishers_cannot_forge_the_members_of_a_message(receiver: Receiver, client: httpx.Client) -> None:
    """Neither the cursor, nor the subscription, the bindings, or the withdrawn event of a message in the format of
    CloudEvents."""
    sink = {"sink": f"{receiver.url}/forged", "protocolsettings": {"format": "cloudevents"}}
    made = subscribe(client, "forged exists", **sink)
    names = ("kindcastcursor", "kindcastsubscription", "kindcastbindings", "kindcastretracted")
    headers = {"ce-id": "1", "ce-source": "/s", "ce-type": "t", "ce-specversion": "1.0"}
    headers |= {f"ce-{name}": "forged" for name in names} | {"ce-other": "kept"}
    assert client.post("/v1/events", json={"forged": 1}, headers=headers).status_code == 202
    body = received(receiver, "/forged", 1)[0].body
    for name in names:
        assert body.count(name.encode()) == (name in names[:2]), body
    told = json.loads(body)
    assert (told["kindcastsubscription"], told["other"], told["data"]) == (made["id"], "kept", {"forged": 1})
    assert chosen('{"id":"1","data_base64":"AA=="}', ["a"]) == '{"id":"1"}'
    assert chosen('{"id":"1","data":[{"a":1,"b":2},3,[{"a":4}]]}', ["a"]) == '{"id":"1","data":[{"a":1},[{"a":4}]]}'


def test_retractions_are_told_from_matches_in_cloudevents(receiver: Receiver, client: httpx.Client) -> None:
    """The message is the event that withdraws. Which one it withdraws is an extension attribute."""
    schema = {"x-kindcast-subject": "id", "x-kindcast-retracts": "revoked"}
    assert client.put("/v1/schemas/indicator", json=schema).status_code == 201
    sink = {"sink": f"{receiver.url}/retracted", "protocolsettings": {"format": "cloudevents"}}
    subscribe(client, "name exists", **sink)
    for id, data in (("1", {"id": "i", "name": "n"}), ("2", {"id": "i", "revoked": True})):
        event = {"specversion": "1.0", "id": id, "source": "/retracted", "type": "indicator", "data": data}
        published = client.post("/v1/events", json=event, headers={"Content-Type": "application/cloudevents+json"})
        assert published.status_code == 202
    first, second = (json.loads(each.body) for each in received(receiver, "/retracted", 2))
    assert "kindcastretracted" not in first
    assert json.loads(second["kindcastretracted"])["id"] == first["id"] == "1"


def test_both_secrets_sign_while_a_rotation_lasts(client: httpx.Client, receiver: Receiver) -> None:
    made = subscribe(client, "r exists", sink=f"{receiver.url}/rotated")
    path = f"/v1/subscriptions/{made['id']}/rotate-secret"
    publish(client, r=1)
    (first,) = received(receiver, "/rotated", 1)
    assert client.post(path).status_code == 401
    before = show(client, made).headers["etag"]
    answer = client.post(path, headers=ticket(made))
    assert answer.status_code == 200
    second = answer.json()["secret"]
    assert second != made["secret"]
    assert answer.headers["etag"] != before
    assert "secret" not in show(client, made).json()
    publish(client, r=2)
    both = received(receiver, "/rotated", 2)[1]
    third = client.post(path, json={"overlap_seconds": 0}, headers=ticket(made)).json()["secret"]
    publish(client, r=3)
    last = received(receiver, "/rotated", 3)[2]
    secrets = (made["secret"], second, third)
    assert [verifies(each, first) for each in secrets] == [True, False, False]
    assert [verifies(each, both) for each in secrets] == [True, True, False]
    assert [verifies(each, last) for each in secrets] == [False, False, True]


def test_only_a_webhook_has_a_secret(client: httpx.Client) -> None:
    made = subscribe(client)
    path = f"/v1/subscriptions/{made['id']}/rotate-secret"
    assert problem_code(client.post(path, json={}, headers=ticket(made))) == "sink-missing"
    assert problem_code(client.post(path, json={"overlap_seconds": -1}, headers=ticket(made))) == "invalid-request"


@pytest.mark.parametrize("format", ["message", "cloudevents"])
def test_a_test_message_is_signed_and_changes_nothing(client: httpx.Client, receiver: Receiver, format: str) -> None:
    """Also while it is paused; the sink sees what it will see of an event, without a cursor."""
    path = f"/tested-{format}"
    made = subscribe(client, "t exists", sink=receiver.url + path, protocolsettings={"format": format})
    route = f"/v1/subscriptions/{made['id']}/test"
    assert problem_code(client.post(route)) == "ticket-missing"
    client.post(f"/v1/subscriptions/{made['id']}/pause", headers=ticket(made))
    before = show(client, made).json()
    told = client.post(route, headers=ticket(made)).json()
    assert (told["outcome"], told["status_code"], told["detail"]) == ("delivered", 200, "")
    assert 0 < told["seconds"] < 60
    (request,) = receiver.requests(path)
    assert verifies(made["secret"], request)
    assert request.headers["webhook-id"] == told["webhook_id"]
    event = request.message["event"] if format == "message" else request.message
    assert (event["type"], event["id"]) == ("io.kindcast.subscription.test", told["webhook_id"])
    assert "cursor" not in request.message
    assert "kindcastcursor" not in request.message
    assert show(client, made).json() == before
    assert client.get(f"/v1/subscriptions/{made['id']}/attempts").json()["attempts"] == []


def test_a_test_message_that_is_refused_is_told_and_not_retried(client: httpx.Client, receiver: Receiver) -> None:
    receiver.script("/refusing", Answer(503, (("Retry-After", "3600"),)))
    made = subscribe(client, "t2 exists", sink=f"{receiver.url}/refusing")
    told = client.post(f"/v1/subscriptions/{made['id']}/test", headers=ticket(made)).json()
    assert (told["outcome"], told["status_code"], told["detail"]) == ("failed", 503, "the sink answered 503")
    assert show(client, made).json()["times_failed"] == 0
    silent = subscribe(client, "t3 exists", sink="http://127.0.0.1:9/")
    told = client.post(f"/v1/subscriptions/{silent['id']}/test", headers=ticket(silent)).json()
    assert (told["outcome"], told["status_code"], told["detail"]) == ("failed", None, "no connection to the sink")


def test_only_a_webhook_can_be_tested(client: httpx.Client) -> None:
    made = subscribe(client)
    answer = client.post(f"/v1/subscriptions/{made['id']}/test", headers=ticket(made))
    assert problem_code(answer) == "sink-missing"
    assert client.post("/v1/subscriptions/none/test").status_code == 404
