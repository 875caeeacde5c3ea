"""With `webhook_origin` a sink gets nothing before it has consented by OPTIONS, and no more than it allows."""

import time
from collections.abc import Iterator
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.harness.application import problem_code, publish, running_application, show, subscribe, ticket
from tests.harness.receiver import Receiver, running_receiver

ORIGIN = "events.example.org"


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with running_receiver() as running:
        yield running


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    more: dict[str, Any] = {"webhook_origin": ORIGIN, "webhook_delays_seconds": (0.3,) * 50}
    with running_application(tmp_path_factory.mktemp("data"), allow_private_sinks=True, **more) as client:
        yield client


@pytest.mark.parametrize("allowed", [ORIGIN, "*", "Events.Example.ORG"])
def test_sink_that_consents_is_asked_once_and_gets_its_messages(
    client: httpx.Client, receiver: Receiver, allowed: str
) -> None:
    path = f"/{allowed}"
    receiver.consents[path] = (200, {"WebHook-Allowed-Origin": allowed})
    subscribe(client, f"to = '{path}'", sink=receiver.url + path, sinkcredential=TOKEN)
    for n in range(3):
        publish(client, to=path, n=n)
    requests = receiver.wait_for(path, 3)
    assert [each.headers["webhook-request-origin"] for each in requests] == [ORIGIN] * 3
    (asked,) = [headers for where, headers in receiver.asked if where == path]
    assert asked["webhook-request-origin"] == ORIGIN
    assert "authorization" not in asked


TOKEN = {"credentialtype": "ACCESSTOKEN", "accesstoken": "hush"}


@pytest.mark.parametrize(
    ("status", "headers"),
    [
        (200, {}),
        (204, {"Allow": "POST"}),
        (200, {"WebHook-Allowed-Origin": "other.example.org"}),
        (403, {"WebHook-Allowed-Origin": "*"}),
        (302, {"WebHook-Allowed-Origin": "*", "Location": "/elsewhere"}),
        (501, {}),
    ],
)
def test_sink_that_does_not_consent_gets_nothing_until_it_does(
    client: httpx.Client, receiver: Receiver, status: int, headers: dict[str, str]
) -> None:
    """The status alone is no consent. The subscription says why nothing comes; a test message says it at once."""
    path = f"/refused-{status}-{len(headers)}-{headers.get('WebHook-Allowed-Origin', '')}"
    receiver.consents[path] = (status, headers)
    made = subscribe(client, f"to = '{path}'", sink=receiver.url + path)
    told = client.post(f"/v1/subscriptions/{made['id']}/test", headers=ticket(made)).json()
    assert told["outcome"] == "failed"
    assert "WebHook-Allowed-Origin" in told["detail"]
    publish(client, to=path, n=1)
    deadline = time.monotonic() + 30
    while (shown := show(client, made).json())["status"] != "failing" and time.monotonic() < deadline:
        time.sleep(0.05)
    assert "WebHook-Allowed-Origin" in shown["last_error"]
    assert receiver.requests(path) == []
    receiver.consents[path] = (200, {"WebHook-Allowed-Origin": "*"})
    (request,) = receiver.wait_for(path, 1)
    assert request.message["event"]["data"]["n"] == 1


def test_sink_that_is_overloaded_when_it_is_asked_is_asked_again_when_it_says(client: httpx.Client) -> None:
    """Its answer counts like one to a message. The subscription says what it was."""
    with running_receiver() as receiver:  # one of its own: all subscriptions at this address pause
        receiver.consents["/busy"] = (503, {"Retry-After": "3600"})
        made = subscribe(client, "to = '/busy'", sink=f"{receiver.url}/busy")
        publish(client, to="/busy", n=1)
        deadline = time.monotonic() + 30
        while (shown := show(client, made).json())["status"] != "failing" and time.monotonic() < deadline:
            time.sleep(0.05)
        assert "the status was 503" in shown["last_error"]
        failed, again = (datetime.fromisoformat(shown[name]) for name in ("last_failure", "next_attempt_at"))
        assert (again - failed).total_seconds() >= 3_600
        client.delete(f"/v1/subscriptions/{made['id']}", headers=ticket(made))


def test_rate_that_a_sink_allows_is_kept(client: httpx.Client, receiver: Receiver) -> None:
    path = "/slowly"
    receiver.consents[path] = (200, {"WebHook-Allowed-Origin": "*", "WebHook-Allowed-Rate": "100"})
    subscribe(client, f"to = '{path}'", sink=receiver.url + path)
    for n in range(4):
        publish(client, to=path, n=n)
    times = []
    for count in range(1, 5):
        receiver.wait_for(path, count)
        times.append(time.monotonic())
    assert [each.message["event"]["data"]["n"] for each in receiver.requests(path)] == [0, 1, 2, 3]
    assert all(later - earlier >= 0.5 for earlier, later in pairwise(times))


def test_rate_is_that_of_all_subscriptions_of_a_sink(client: httpx.Client, receiver: Receiver) -> None:
    """Also before the sink has been asked."""
    path = "/shared"
    receiver.consents[path] = (200, {"WebHook-Allowed-Origin": "*", "WebHook-Allowed-Rate": "1"})
    many = [subscribe(client, f"to = '{path}'", sink=receiver.url + path) for _ in range(8)]
    publish(client, to=path)
    receiver.wait_for(path, 1)
    told = client.post(f"/v1/subscriptions/{many[0]['id']}/test", headers=ticket(many[0])).json()  # a test is no other
    assert (told["outcome"], "WebHook-Allowed-Rate" in told["detail"]) == ("failed", True)
    assert len(receiver.requests(path)) == 1


def test_test_message_waits_a_moment_for_the_rate(client: httpx.Client, receiver: Receiver) -> None:
    path = "/tested"
    receiver.consents[path] = (200, {"WebHook-Allowed-Origin": "*", "WebHook-Allowed-Rate": "100"})
    made = subscribe(client, f"to = '{path}'", sink=receiver.url + path)
    times = []
    for count in range(1, 4):
        told = client.post(f"/v1/subscriptions/{made['id']}/test", headers=ticket(made)).json()
        assert told["outcome"] == "delivered"
        receiver.wait_for(path, count)
        times.append(time.monotonic())
    assert all(later - earlier >= 0.5 for earlier, later in pairwise(times))


def test_nobody_is_asked_where_no_origin_is_set(tmp_path: Path, receiver: Receiver) -> None:
    with running_application(tmp_path, allow_private_sinks=True) as client:
        subscribe(client, "n = 1", sink=receiver.url + "/unasked")
        publish(client, n=1)
        (request,) = receiver.wait_for("/unasked", 1)
    assert "webhook-request-origin" not in request.headers
    assert "/unasked" not in [where for where, _ in receiver.asked]


def test_header_of_the_origin_is_the_servers_own(client: httpx.Client, receiver: Receiver) -> None:
    headers = {"WebHook-Request-Origin": "other.example.org"}
    body = {"expression": "n = 1", "sink": receiver.url + "/x", "protocolsettings": {"headers": headers}}
    assert problem_code(client.post("/v1/subscriptions", json=body)) == "sink-refused"
