"""`/asyncapi.json` by the AsyncAPI project's own schema, and what we send by CloudEvents' own library."""

import gzip
import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import httpx
import pytest
from cloudevents.v1.http import from_json
from jsonschema import Draft7Validator, Draft202012Validator
from websockets.sync.client import connect
from websockets.typing import Subprotocol

from tests.harness.application import publish, running_application, subscribe, ticket
from tests.harness.receiver import running_receiver
from tests.harness.server_thread import running_app

SCHEMA = Path(__file__).resolve().parents[1] / "fixtures" / "asyncapi" / "3.0.0.json.gz"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with running_application(tmp_path_factory.mktemp("data")) as client:
        yield client


@pytest.fixture(scope="module")
def document(client: httpx.Client) -> dict[str, Any]:
    told: dict[str, Any] = client.get("/asyncapi.json").json()
    return told


def test_the_document_is_asyncapi_3(document: dict[str, Any]) -> None:
    validator = Draft7Validator(json.loads(gzip.decompress(SCHEMA.read_bytes())))
    assert [error.message[:300] for error in validator.iter_errors(document)] == []
    for broken in (
        {**document, "asyncapi": "4"},
        {**document, "channels": {"x": {"adress": "/"}}},
        {**document, "operations": {"x": {"action": "shout", "channel": {"$ref": "#/channels/events"}}}},
    ):
        assert not validator.is_valid(broken)


def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    found = list(references(document))
    assert len(found) > 20
    for each in found:
        at: Any = document
        for step in each.removeprefix("#/").split("/"):
            at = at[step]
        assert at


def test_messages_are_as_described_and_cloudevents_reads_their_events(
    client: httpx.Client, document: dict[str, Any]
) -> None:
    made = subscribe(client, "n exists")
    publish(client, n=1)
    client.post(
        "/v1/events",
        content=b'{"n": 2}',
        headers={
            "Content-Type": "application/json",
            "ce-specversion": "1.0",
            "ce-id": "7",
            "ce-source": "/till",
            "ce-type": "sale",
            "ce-subject": "%C3%9Cn%C3%AF",
            "ce-time": "2026-11-23T08:00:00Z",
        },
    )
    payload = {**document["components"]["messages"]["match"]["payload"], "components": document["components"]}
    messages = client.get(f"/v1/subscriptions/{made['id']}/events").json()["events"]
    assert len(messages) == 2
    for message in messages:
        assert Draft202012Validator(payload).is_valid(message)
        assert not Draft202012Validator(payload).is_valid({**message, "cursor": 1})
    read = from_json(json.dumps(messages[1]["event"]))
    assert (read["id"], read["source"], read["type"], read["subject"]) == ("7", "/till", "sale", "Ünï")
    assert read.data == {"n": 2}


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({}, ("signedMatch", "signedNotice")),
        ({"batch": 5}, ("signedMatches", "signedNotices")),
        ({"format": "cloudevents"}, ("signedEvent", "signedEvent")),
        ({"format": "cloudevents", "batch": 5}, ("signedEvents", "signedEvents")),
    ],
)
def test_webhooks_are_as_described(
    settings: dict[str, Any], names: tuple[str, str], document: dict[str, Any], tmp_path: Path
) -> None:
    """A match and a notice, in each form that a subscriber may choose, as a real receiver gets it, and no other."""
    messages = document["components"]["messages"]
    with running_receiver() as receiver, running_application(tmp_path, allow_private_sinks=True) as client:
        made = subscribe(client, "n exists", sink=f"{receiver.url}/a", protocolsettings=settings)
        publish(client, n=1)
        receiver.wait_for("/a", 1)
        client.post(f"/v1/subscriptions/{made['id']}/test", headers=ticket(made))
        received = receiver.wait_for("/a", 2)
    components = {"components": document["components"]}
    for got, name in zip(received, names, strict=True):
        described = messages[name]
        assert described["contentType"] == got.headers["content-type"]
        assert set(described["headers"]["required"]) <= set(got.headers)
        fits = {
            each
            for each in document["channels"]["webhook"]["messages"]
            if Draft202012Validator(messages[each]["payload"] | components).is_valid(got.message)
        }
        assert fits == {name}


def test_what_travels_on_open_connections_is_described(tmp_path: Path) -> None:
    """Frames of WebSockets and data of streams: each fits one message of its operation."""
    with running_app(tmp_path) as address, httpx.Client(base_url=address, trust_env=False, timeout=30) as client:
        document = client.get("/asyncapi.json").json()
        made = subscribe(client, "n exists")
        messages = f"/v1/subscriptions/{made['id']}"
        socket = f"ws{address.removeprefix('http')}{messages}/ws"
        told: dict[str, list[Any]] = {}
        with client.stream("GET", "/v1/events/stream") as tail, client.stream("GET", f"{messages}/stream") as stream:
            publish(client, n=1)
            told["watch"] = list(islice(data_of(tail), 1))
            with connect(socket) as frames, connect(socket, subprotocols=[Subprotocol("cloudevents.json")]) as bare:
                told["push"] = [json.loads(bare.recv(timeout=30)), json.loads(frames.recv(timeout=30))]
                for said in ({"ack": "1"}, {"ack": "1", "ticket": made["ticket"]}):
                    frames.send(json.dumps(said))
                    told["push"].append(json.loads(frames.recv(timeout=30)))
                client.delete(messages, headers=ticket(made))
                told["push"].append(json.loads(frames.recv(timeout=30)))
            told["stream"] = list(data_of(stream))
    assert names_of(told["watch"], "watch", document) == ["watched"]
    assert names_of(told["stream"], "stream", document) == ["match", "streamEnded"]
    assert names_of(told["push"], "push", document) == ["event", "match", "refused", "acknowledged", "ended"]


def data_of(answer: httpx.Response) -> Iterator[Any]:
    """The data of the events of a stream."""
    return (json.loads(line.removeprefix("data: ")) for line in answer.iter_lines() if line.startswith("data: "))


def names_of(told: list[Any], operation: str, document: dict[str, Any]) -> list[str]:
    """The message of the operation that each of these is; fails if it is none or several."""
    names = [each["$ref"].rpartition("/")[2] for each in document["operations"][operation]["messages"]]
    payloads = {name: document["components"]["messages"][name]["payload"] for name in names}
    found = []
    for each in told:
        (name,) = (
            name
            for name, payload in payloads.items()
            if Draft202012Validator(payload | {"components": document["components"]}).is_valid(each)
        )
        found.append(name)
    return found


def references(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for each in value:
            yield from references(each)
    elif isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for each in value.values():
            yield from references(each)
