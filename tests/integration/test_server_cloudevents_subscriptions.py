"""The CloudEvents Subscriptions API, and what it brings: CloudEvents, signed, read by their own libraries."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from cloudevents.v1.http import from_http
from standardwebhooks import Webhook

from tests.harness.application import problem_code, running_application, subscribe
from tests.harness.receiver import Receiver, running_receiver

PATH = "/v1/cloudevents/subscriptions"
SINK = "https://endpoint.example.com/webhook"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with running_application(tmp_path_factory.mktemp("data"), allow_private_sinks=True) as client:
        yield client


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with running_receiver() as running:
        yield running


def created(client: httpx.Client, **members: Any) -> dict[str, Any]:
    answer = client.post(PATH, json={"sink": SINK, "protocol": "HTTP", **members})
    assert answer.status_code == 201, answer.text
    told: dict[str, Any] = answer.json()
    assert answer.headers["location"] == f"{PATH}/{told['id']}"
    return told


def event(client: httpx.Client, **attributes: str) -> None:
    headers = {"ce-specversion": "1.0", "ce-source": "/s", **{f"ce-{name}": text for name, text in attributes.items()}}
    answer = client.post("/v1/events", json={"n": 1}, headers=headers)
    assert answer.status_code == 202, answer.text


def test_discovery(client: httpx.Client) -> None:
    for path, methods in ((PATH, "GET, HEAD, OPTIONS, POST"), (f"{PATH}/x", "DELETE, GET, HEAD, OPTIONS, PUT")):
        answer = client.options(path)
        assert (answer.status_code, answer.headers["allow"]) == (200, methods)
        assert set(answer.json()["dialects"]) > {"exact", "prefix", "suffix", "all", "any", "not"}


def test_events_arrive_as_cloudevents_that_both_libraries_read(client: httpx.Client, receiver: Receiver) -> None:
    made = created(client, sink=f"{receiver.url}/ce", types=["sale"], filters=[{"prefix": {"subject": "a"}}])
    event(client, id="1", type="sale", subject="abc")
    event(client, id="2", type="sale", subject="b")
    event(client, id="3", type="other", subject="abc")
    event(client, id="4", type="sale", subject="axe")
    receiver.wait_until(lambda: len(receiver.requests("/ce")) >= 2)
    first, second = receiver.requests("/ce")
    assert first.headers["content-type"] == "application/cloudevents+json"
    Webhook(made["secret"]).verify(first.body, first.headers)
    read = from_http(first.headers, first.body)
    assert (read["id"], read["type"], read["subject"], read.data) == ("1", "sale", "abc", {"n": 1})
    assert read["kindcastsubscription"] == made["id"]
    assert from_http(second.headers, second.body)["id"] == "4"


@pytest.mark.parametrize(
    ("filters", "ids"),
    [
        ([], "123"),
        ([{"exact": {"type": "com.b"}}], "2"),
        ([{"prefix": {"type": "com.", "subject": "x"}}], "1"),
        ([{"suffix": {"type": ".b"}}], "2"),
        ([{"all": [{"prefix": {"type": "com."}}, {"not": {"exact": {"subject": "x1"}}}]}], "2"),
        ([{"any": [{"exact": {"type": "com.a"}}, {"exact": {"type": "org.c"}}]}], "13"),
        ([{"not": {"prefix": {"type": "com."}}}], "3"),
    ],
    ids=["none", "exact", "prefix", "suffix", "all", "any", "not"],
)
def test_each_dialect(client: httpx.Client, filters: list[Any], ids: str) -> None:
    made = created(client, filters=filters, source="/dialects")
    for id, type, subject in (("1", "com.a", "x1"), ("2", "com.b", "y"), ("3", "org.c", "x2")):
        event(client, id=f"{id}-{made['id']}", type=type, subject=subject, source="/dialects")
    page = client.get(f"/v1/subscriptions/{made['id']}/events").json()
    assert "".join(message["event"]["id"][0] for message in page["events"]) == ids


def test_life_of_a_subscription(client: httpx.Client) -> None:
    headers = {"X-Key": "secret"}
    made = created(
        client,
        types=["sale"],
        protocolsettings={"headers": headers},
        sinkcredential={"credentialtype": "ACCESSTOKEN", "accesstoken": "t0k3n"},
    )
    path, ticket = f"{PATH}/{made['id']}", {"Kindcast-Ticket": made["ticket"]}
    shown = client.get(path).json()
    assert shown == {name: value for name, value in made.items() if name not in ("ticket", "secret")}
    assert shown["protocolsettings"] == {"format": "cloudevents", "headers": {"X-Key": "(hidden)"}}
    assert "t0k3n" not in client.get(path).text
    assert shown in client.get(PATH).json()

    assert problem_code(client.put(path, json=shown)) == "ticket-missing"
    moved = client.put(path, json={**shown, "sink": "https://endpoint.example.com/other"}, headers=ticket)
    assert moved.json() == {**shown, "sink": "https://endpoint.example.com/other"}
    elsewhere = {"sink": "https://elsewhere.example/hook"}
    for secrets in ({}, {"sinkcredential": None}, {"protocolsettings": None}):
        answer = client.put(path, json={**shown, **elsewhere, **secrets}, headers=ticket)
        assert (answer.status_code, problem_code(answer)) == (400, "sink-refused"), secrets
    for change in ({"types": ["x"]}, {"filters": [{"exact": {"type": "x"}}]}, {"source": "/x"}, {"id": "other"}):
        answer = client.put(path, json={**shown, **change}, headers=ticket)
        assert (answer.status_code, problem_code(answer)) == (400, "invalid-request"), change
    assert client.put(path, json=shown, headers={**ticket, "If-Match": '"old"'}).status_code == 412

    assert client.delete(path, headers=ticket).json() == moved.json()
    assert client.get(path).status_code == 404


def test_bad_requests_are_400(client: httpx.Client) -> None:
    good = {"sink": SINK, "protocol": "HTTP"}
    for body in (
        {"protocol": "HTTP"},
        {"sink": SINK},
        {**good, "protocol": "MQTT5"},
        {**good, "sink": "mailto:x@example.com"},
        {**good, "filters": [{"cesql": "x"}]},
        {**good, "filters": [{"sql": "1 = 1"}]},
        {**good, "filters": [{"exact": {}}]},
        {**good, "filters": {}},
        {**good, "config": {"x": "y"}},
        {**good, "protocolsettings": {"format": "xml"}},
        {**good, "protocolsettings": 1},
        *({**good, "protocolsettings": nothing} for nothing in (0, "", [], False)),
        {**good, "expression": "a = 1"},
    ):
        answer = client.post(PATH, json=body)
        assert answer.status_code == 400, body
        problem_code(answer)


def test_null_is_an_absent_member(client: httpx.Client) -> None:
    names = ("source", "types", "config", "filters", "protocolsettings", "sinkcredential")
    made, plain = created(client, **dict.fromkeys(names)), created(client)
    differing = ("id", "ticket", "secret", "expires_at")
    assert made | dict.fromkeys(differing) == plain | dict.fromkeys(differing)


def test_subscriptions_of_the_other_api_appear_with_our_dialect_and_pages_follow(client: httpx.Client) -> None:
    pulled = subscribe(client, "a = 1")
    sent = subscribe(client, "a = 1", sink=SINK)
    assert client.get(f"{PATH}/{pulled['id']}").status_code == 404
    assert client.get(f"{PATH}/{sent['id']}").json()["filters"] == [
        {"https://kindcast.dev/dialects/semantic/v1": "a = 1"}
    ]
    found, url = [], f"{PATH}?limit=2"
    while url:
        answer = client.get(url)
        assert len(answer.json()) <= 2
        found += [each["id"] for each in answer.json()]
        url = answer.links.get("next", {}).get("url", "")
    assert sent["id"] in found
    assert pulled["id"] not in found
    assert len(found) == len(set(found))


def test_put_keeps_the_form_of_messages_that_it_does_not_name(client: httpx.Client) -> None:
    """CloudEvents stay CloudEvents, with headers alone, and with an empty list of filters as it was sent."""
    made = created(client, filters=[])
    headers = {"Kindcast-Ticket": made["ticket"]}
    body: dict[str, Any] = {"sink": f"{SINK}/2", "protocol": "HTTP", "filters": []}
    for more in ({}, {"protocolsettings": {"headers": {"X-A": "b"}}}):
        told = client.put(f"{PATH}/{made['id']}", json={**body, **more}, headers=headers)
        assert told.status_code == 200, told.text
        assert told.json()["protocolsettings"]["format"] == "cloudevents"
    plain = subscribe(client, "n = 1", sink=SINK)
    headers = {"Kindcast-Ticket": plain["ticket"]}
    shown = client.get(f"{PATH}/{plain['id']}").json()
    told = client.put(f"{PATH}/{plain['id']}", json=shown, headers=headers)
    assert told.status_code == 200, told.text
    assert "format" not in told.json().get("protocolsettings", {})
