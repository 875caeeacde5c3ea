"""`Idempotency-Key`: a request that is sent again after a lost answer makes nothing twice, and gets the same answer."""

import json
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.harness.application import problem_code, publish, running_application, waiting
from tests.harness.killed_server import VARIABLE
from tests.harness.server_process import ServerProcess, running_server

SINK = {"sink": "http://127.0.0.1:9/hook", "protocolsettings": {"headers": {"X-Key": "hush"}}, "metadata": {"a": [1]}}


@pytest.fixture
def client(tmp_path: Path) -> Iterator[httpx.Client]:
    with running_application(tmp_path, allow_private_sinks=True) as client:
        yield client


def send(client: httpx.Client, key: str, path: str = "/v1/subscriptions", **body: Any) -> httpx.Response:
    return client.post(path, json=body, headers={"Idempotency-Key": key})


def count(client: httpx.Client) -> int:
    return len(client.get("/v1/subscriptions").json()["subscriptions"])


@pytest.mark.parametrize("more", [{}, SINK, {"types": ["a", "b"], "source": "urn:s", "attributes": ["n"]}])
def test_same_request_gets_the_same_answer_and_makes_nothing_new(client: httpx.Client, more: dict[str, Any]) -> None:
    """Also its ticket and its secret, which are stored nowhere as they are; in quotes, as the draft writes the header,
    the key is the same."""
    key = str(uuid.uuid4())
    first = send(client, key, expression="n = 1", **more)
    again = send(client, f'"{key}"', expression="n = 1", **more)
    assert (first.status_code, again.status_code) == (201, 201)
    assert again.json() == first.json()
    assert again.headers["location"] == first.headers["location"]
    assert count(client) == 1
    publish(client, n=1)
    made = first.json()
    told = client.get(f"/v1/subscriptions/{made['id']}").json()
    assert told["id"] == made["id"]
    removed = client.delete(f"/v1/subscriptions/{made['id']}", headers={"Kindcast-Ticket": again.json()["ticket"]})
    assert removed.status_code == 200


LINES = b'{"n": 1}\n\n{"n": oops}\n{"n": 2}\n{"specversion": "1.0", "id": "7", "source": "urn:s", "type": "t"}\n'


@pytest.mark.parametrize(
    ("kind", "body", "count"),
    [
        ("application/x-ndjson", LINES, 3),
        ("application/json", b'{"n": 1}', 1),
        ("text/plain", b"n is one", 1),
        ("text/turtle", b"<urn:a> a <urn:B> .", 1),
    ],
)
def test_events_without_ids_are_accepted_once(client: httpx.Client, kind: str, body: bytes, count: int) -> None:
    """Sent again with the same key, they are known; with another key they are other events."""

    def sent(key: str) -> tuple[int, int]:
        headers = {"Content-Type": kind, "ce-subject": "s", "Idempotency-Key": key}
        told = client.post("/v1/events", content=body, headers=headers).raise_for_status().json()
        return told["accepted"], told["duplicates"]

    key = str(uuid.uuid4())
    assert sent(key) == (count, 0)
    assert sent(key) == (0, count)
    assert client.get("/v1/events").json()["cursor"] == str(count)
    anew = {"application/x-ndjson": 2, "text/turtle": 0}.get(kind, 1)  # not the line with an id, nor the same graph
    assert sent(str(uuid.uuid4()))[0] == anew


@pytest.mark.parametrize("verbose", ["", "?verbose=false"])
def test_other_events_under_the_same_key_are_refused(client: httpx.Client, verbose: str) -> None:
    """As with other requests. A request of which only a part was accepted may be sent again, and new events of a longer
    one are accepted: the others are told. A key that can be guessed is refused."""
    key = {"Idempotency-Key": str(uuid.uuid4())}
    client.post("/v1/events", json={"n": 1}, headers=key).raise_for_status()
    other = client.post("/v1/events" + verbose, json={"n": 2}, headers=key)
    assert (other.status_code, problem_code(other)) == (422, "idempotency-key-reused")
    again = client.post("/v1/events", json={"n": 1}, headers=key).raise_for_status().json()
    assert (again["accepted"], again["duplicates"]) == (0, 1)

    lines = {"Idempotency-Key": str(uuid.uuid4()), "Content-Type": "application/x-ndjson"}
    client.post("/v1/events", content=b'{"n": 3}\n{"n": 4}\n', headers=lines).raise_for_status()
    for body in (b'{"n": 3}\n{"n": 5}\n', b'{"n": 5}\nnothing\n'):
        refused = client.post("/v1/events" + verbose, content=body, headers=lines)
        assert (refused.status_code, problem_code(refused)) == (422, "idempotency-key-reused")
    longer = client.post("/v1/events", content=b'{"n": 5}\n{"n": 4}\n{"n": 6}\n', headers=lines).json()
    assert (longer["accepted"], longer["duplicates"]) == (1, 2)
    assert [[note["code"] for note in each["notes"]] for each in longer["events"]] == [["differs"], [], []]
    assert [each["event"]["data"]["n"] for each in client.get("/v1/events").json()["events"]] == [1, 3, 4, 6]
    assert client.post("/v1/events", json={"n": 1}, headers={"Idempotency-Key": "short"}).status_code == 422


def test_other_keys_make_others_and_another_request_is_refused(client: httpx.Client) -> None:
    """Whatever is different of it: what it asks, or what is delivered where."""
    key = str(uuid.uuid4())
    first = send(client, key, expression="n = 1", **SINK).json()
    assert send(client, str(uuid.uuid4()), expression="n = 1", **SINK).json()["id"] != first["id"]
    for body in (
        SINK | {"expression": "n = 2"},
        SINK | {"expression": "n = 1", "metadata": {}},
        SINK | {"expression": "n = 1", "source": "urn:s"},
        SINK | {"expression": "n = 1", "sink": "http://127.0.0.1:9/other"},
        SINK | {"expression": "n = 1", "protocolsettings": {}},
        {"expression": "n = 1"},
        {"where": {"=": ["n", 1]}},
    ):
        refused = send(client, key, **body)
        assert refused.status_code == 422, body
        assert problem_code(refused) == "idempotency-key-reused"
    assert count(client) == 2


def test_another_end_or_start_is_another_request(client: httpx.Client) -> None:
    """Also if the first request asked for none. The first answer is given to the same request, however its times are
    written, and the subscription keeps its end."""
    publish(client, n=1)
    soon = (datetime.now(UTC) + timedelta(hours=1)).replace(microsecond=0)
    local = soon.astimezone(timezone(timedelta(hours=2)))
    since = soon - timedelta(days=2)
    asked: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({}, {"ttl_seconds": None}),
        ({"ttl_seconds": 3600}, {"ttl_seconds": 3600.0}),
        ({"ttl_seconds": 3601}, {"ttl_seconds": 3601, "start_at": None}),
        ({"expires_at": soon.isoformat()}, {"expires_at": local.isoformat()}),
        ({"expires_at": (soon + timedelta(seconds=1)).isoformat()}, {}),
        ({"start_at": "earliest"}, {"start_at": "earliest"}),
        ({"start_at": 2}, {"start_at": 2}),
        ({"start_at": since.isoformat()}, {"start_at": since.replace(tzinfo=None).isoformat()}),
        ({"start_at": "earliest", "ttl_seconds": 3600}, {}),
    ]
    for mine, repeated in asked:
        key = str(uuid.uuid4())
        first = send(client, key, expression="n = 1", **mine)
        assert first.status_code == 201, mine
        for others, _ in asked:
            again = send(client, key, expression="n = 1", **others)
            assert (again.status_code == 201) == (others == mine), (mine, others)
            if others != mine:
                assert problem_code(again) == "idempotency-key-reused"
        again = send(client, key, expression="n = 1", **(mine | repeated))
        told = ("id", "ticket", "expires_at")
        assert [again.json()[name] for name in told] == [first.json()[name] for name in told]
    assert count(client) == len(asked)


def test_a_renewal_is_no_other_request(client: httpx.Client) -> None:
    """The end that counts is that of the renewal."""
    key = str(uuid.uuid4())
    made = send(client, key, expression="n = 1", ttl_seconds=60).json()
    path, headers = f"/v1/subscriptions/{made['id']}", {"Kindcast-Ticket": made["ticket"]}
    renewed = client.post(f"{path}/renew", json={"ttl_seconds": 7200}, headers=headers).raise_for_status().json()
    again = send(client, key, expression="n = 1", ttl_seconds=60)
    assert (again.json()["ticket"], again.json()["expires_at"]) == (made["ticket"], renewed["expires_at"])
    assert problem_code(send(client, key, expression="n = 1", ttl_seconds=7200)) == "idempotency-key-reused"


def test_changed_subscription_is_not_what_the_request_made(client: httpx.Client) -> None:
    """A new sink, or a new secret: the first answer would be wrong now."""
    for change in ("patch", "rotate"):
        key = str(uuid.uuid4())
        made = send(client, key, expression="n = 1", **SINK).json()
        path, headers = f"/v1/subscriptions/{made['id']}", {"Kindcast-Ticket": made["ticket"]}
        if change == "patch":
            client.patch(path, json={"metadata": {"b": 2}}, headers=headers).raise_for_status()
        else:
            client.post(f"{path}/rotate-secret", headers=headers).raise_for_status()
        assert problem_code(send(client, key, expression="n = 1", **SINK)) == "idempotency-key-reused"


@pytest.mark.parametrize("key", ["1", "x" * 15, "x" * 256, ""])
def test_key_that_can_be_guessed_or_is_too_long_is_refused(client: httpx.Client, key: str) -> None:
    refused = send(client, key, expression="n = 1")
    assert problem_code(refused) == "invalid-request"
    assert "UUID" in refused.json()["detail"]
    assert count(client) == 0


def test_both_of_two_at_once_get_the_one_that_was_made(client: httpx.Client) -> None:
    key = str(uuid.uuid4())
    with ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(lambda _: send(client, key, expression="n = 1").json(), range(8)))
    assert len({each["id"] for each in answers}) == 1
    assert len({each["ticket"] for each in answers}) == 1
    assert count(client) == 1


def test_past_events_are_delivered_once(client: httpx.Client) -> None:
    """With `start_at`, and although an event came between the two requests."""
    publish(client, n=1)
    key = str(uuid.uuid4())
    first = send(client, key, expression="n >= 1", start_at="earliest").json()
    assert first["backfill"]["matched"] == 1
    publish(client, n=2)
    again = send(client, key, expression="n >= 1", start_at="earliest")
    assert again.status_code == 201
    assert again.json()["id"] == first["id"]
    assert waiting(client, first) == [{"n": 1}, {"n": 2}]


def test_import_that_broke_off_goes_on_where_it_was(client: httpx.Client) -> None:
    """The first half of the lines, then all of them: as if they had come once. A line that was changed is refused, and
    the others are not."""
    lines = [json.dumps({"id": f"old-{n}", "expression": f"n = {n}"} | (SINK if n % 2 else {})) for n in range(20)]
    headers = {"Idempotency-Key": str(uuid.uuid4())}

    def send_lines(some: list[str]) -> dict[str, Any]:
        answered = client.post("/v1/subscriptions/import", content="\n".join(some), headers=headers)
        told: dict[str, Any] = answered.raise_for_status().json()
        return told

    half = send_lines(lines[:10])
    whole = send_lines(lines)
    assert whole["rejected"] == []
    assert whole["created"][:10] == half["created"]
    assert len({each["id"] for each in whole["created"]}) == count(client) == 20
    longer = json.dumps(json.loads(lines[6]) | {"ttl_seconds": 3600})
    changed = send_lines([*lines[:4], json.dumps({"expression": "n = 99"}), lines[5], longer, *lines[7:]])
    assert [each["line"] for each in changed["rejected"]] == [5, 7]
    assert all(each["problem"]["type"].endswith("idempotency-key-reused") for each in changed["rejected"])
    assert count(client) == 20


def test_cloudevents_subscriptions_can_be_sent_again(client: httpx.Client) -> None:
    body = {"sink": "http://127.0.0.1:9/hook", "protocol": "HTTP", "filters": [{"exact": {"type": "a"}}]}
    key = str(uuid.uuid4())
    first = send(client, key, "/v1/cloudevents/subscriptions", **body)
    again = send(client, key, "/v1/cloudevents/subscriptions", **body)
    assert (first.status_code, again.status_code) == (201, 201)
    assert again.json() == first.json()
    refused = send(client, key, "/v1/cloudevents/subscriptions", **body | {"filters": []})
    assert problem_code(refused) == "idempotency-key-reused"


@pytest.mark.slow
def test_request_whose_answer_was_lost_with_the_server_is_sent_again(tmp_path: Path) -> None:
    """The server dies while it stores the subscription: nothing of it is there, or all; and dies after the answer."""
    key = str(uuid.uuid4())

    def sent(server: ServerProcess) -> dict[str, Any]:
        with httpx.Client(base_url=server.url, trust_env=False, timeout=30) as client:
            told: dict[str, Any] = send(client, key, expression="n = 1").raise_for_status().json()
            return told

    with running_server(
        tmp_path / "data", {VARIABLE: "subscribe 1 after"}, module="tests.harness.killed_server"
    ) as server:
        with pytest.raises(httpx.TransportError):
            sent(server)
        server.kill()
        server.start(**{VARIABLE: ""})
        first = sent(server)
        server.kill()
        server.start()
        again = sent(server)
        assert (again["id"], again["ticket"]) == (first["id"], first["ticket"])
        with httpx.Client(base_url=server.url, trust_env=False, timeout=30) as client:
            assert count(client) == 1


def test_keys_of_others_are_others(tmp_path: Path) -> None:
    """Two API keys that send one Idempotency-Key get two subscriptions."""
    with running_application(tmp_path) as client:
        admin = client.post("/v1/keys", json={"role": "admin"}).raise_for_status().json()["key"]
        bearer = {"Authorization": f"Bearer {admin}"}
        key = str(uuid.uuid4())
        made = []
        for _ in range(2):
            other = (
                client.post("/v1/keys", json={"role": "subscriber"}, headers=bearer).raise_for_status().json()["key"]
            )
            headers = {"Authorization": f"Bearer {other}", "Idempotency-Key": key}
            made.append(client.post("/v1/subscriptions", json={"expression": "n = 1"}, headers=headers).json())
        assert made[0]["id"] != made[1]["id"]
        assert made[0]["ticket"] != made[1]["ticket"]
