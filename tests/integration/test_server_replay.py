"""Messages again from an earlier place, and changes under a condition."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.harness.application import problem_code, publish, running_application, show, subscribe, ticket, waiting
from tests.harness.receiver import running_receiver
from tests.harness.waiting import until


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with running_application(tmp_path_factory.mktemp("data")) as client:
        yield client


def replay(client: httpx.Client, made: dict[str, Any], body: dict[str, Any] | None = None) -> httpx.Response:
    return client.post(f"/v1/subscriptions/{made['id']}/replay", json=body or {}, headers=ticket(made))


def cursors(client: httpx.Client, made: dict[str, Any], after: str | None = None) -> list[str]:
    page = client.get(f"/v1/subscriptions/{made['id']}/events", params={} if after is None else {"after": after})
    return [message["cursor"] for message in page.json()["events"]]


def ack(client: httpx.Client, made: dict[str, Any], cursor: str) -> None:
    answer = client.post(f"/v1/subscriptions/{made['id']}/ack", json={"cursor": cursor}, headers=ticket(made))
    assert answer.status_code == 200


def matches_by_state(client: httpx.Client) -> dict[str, float]:
    found = re.findall(r"^kindcast_matches_(delivered|pending)(?:_total)? (\S+)", client.get("/metrics").text, re.M)
    return {state: float(value) for state, value in found}


def test_replay_from_a_cursor_a_moment_and_the_beginning(client: httpx.Client) -> None:
    made = subscribe(client, "n exists")
    for n in range(4):
        publish(client, n=n)
    all_of_them = cursors(client, made)
    ack(client, made, all_of_them[-1])
    assert waiting(client, made) == []
    assert replay(client, made, {"after": all_of_them[1]}).json()["cursor"] == all_of_them[1]
    assert waiting(client, made) == [{"n": 2}, {"n": 3}]
    assert replay(client, made, {"after": all_of_them[2]}).json()["cursor"] == all_of_them[1]  # never forward
    assert replay(client, made).status_code == 200
    assert cursors(client, made) == all_of_them
    events = client.get("/v1/events", params={"after": int(all_of_them[2]) - 1}).json()["events"]
    ack(client, made, all_of_them[-1])
    assert replay(client, made, {"since": events[0]["accepted_at"]}).status_code == 200
    assert all_of_them[2] in cursors(client, made)
    ack(client, made, all_of_them[-1])
    assert replay(client, made, {"since": datetime.now(UTC).isoformat()}).json()["cursor"] == all_of_them[-1]


def test_replay_keeps_the_sums_of_the_ledger(client: httpx.Client) -> None:
    made = subscribe(client, "m exists")
    for m in range(3):
        publish(client, m=m)
    before = matches_by_state(client)
    assert before["pending"] >= 3
    found = cursors(client, made)
    ack(client, made, found[-1])
    assert matches_by_state(client)["delivered"] == before["delivered"] + 3
    replay(client, made, {"after": found[0]})
    assert show(client, made).json()["pending"] == 2
    assert matches_by_state(client)["delivered"] == before["delivered"] + 1
    ack(client, made, found[-1])
    replay(client, made)
    assert matches_by_state(client) == before


def test_replay_tries_a_failed_webhook_again_at_once(tmp_path: Path) -> None:
    """Also where nothing was delivered, so that the cursor stays: who mended a webhook need not wait."""
    settings = {"allow_private_sinks": True, "webhook_delays_seconds": (3_600.0,)}
    with running_receiver() as receiver, running_application(tmp_path, **settings) as client:
        sink = receiver.script("/late", 500)
        made = subscribe(client, "n exists", sink=sink, protocol="HTTP")
        publish(client, n=1)
        until(lambda: show(client, made).json()["consecutive_errors"] == 1)
        assert replay(client, made).json()["cursor"] == made["cursor"]
        until(lambda: show(client, made).json()["pending"] == 0)
        assert show(client, made).json()["consecutive_errors"] == 0


def test_replay_during_an_attempt_is_not_undone_by_its_success(tmp_path: Path) -> None:
    with running_receiver() as receiver, running_application(tmp_path, allow_private_sinks=True) as client:
        made = subscribe(client, "n exists", sink=f"{receiver.url}/slow", protocol="HTTP")
        for n in range(2):
            publish(client, n=n)
        until(lambda: show(client, made).json()["pending"] == 0)
        receiver.swallow("/slow")
        publish(client, n=2)
        receiver.wait_for("/slow", 3)  # it is under way
        assert replay(client, made).json()["cursor"] == made["cursor"]
        receiver.release()
        requests = receiver.wait_for("/slow", 6)
        assert [each.message["event"]["data"]["n"] for each in requests] == [0, 1, 2, 0, 1, 2]
        until(lambda: show(client, made).json()["pending"] == 0)
        assert matches_by_state(client) == {"delivered": 3, "pending": 0}


def test_replay_never_goes_behind_the_beginning_of_a_subscription(client: httpx.Client) -> None:
    publish(client, k=1)
    made = subscribe(client, "k exists")
    publish(client, k=2)
    replay(client, made, {"after": "0"})
    replay(client, made, {"since": "2000-01-01T00:00:00"})
    assert waiting(client, made) == [{"k": 2}]


def test_replay_is_refused_to_strangers_and_for_bad_places(client: httpx.Client) -> None:
    made = subscribe(client)
    assert client.post(f"/v1/subscriptions/{made['id']}/replay", json={}).status_code == 401
    for body, code in (
        ({"after": "x"}, "invalid-cursor"),
        ({"after": "999999999"}, "invalid-cursor"),
        ({"since": "once"}, "invalid-request"),
        ({"after": "0", "since": "2026-01-01T00:00:00Z"}, "invalid-request"),
        ({"from": 1}, "invalid-request"),
    ):
        assert problem_code(replay(client, made, body)) == code


def test_ack_with_an_unknown_member_is_refused(client: httpx.Client) -> None:
    made = subscribe(client)
    answer = client.post(f"/v1/subscriptions/{made['id']}/ack", json={"cursor": "0", "cursro": 5}, headers=ticket(made))
    assert problem_code(answer) == "invalid-request"
    assert answer.json()["errors"] == [{"pointer": "/cursro", "detail": "unknown member; did you mean cursor?"}]


def test_a_change_with_if_match_takes_place_only_while_the_tag_is_the_same(client: httpx.Client) -> None:
    created = client.post("/v1/subscriptions", json={"expression": "e exists"})
    made, first = created.json(), created.headers["etag"]
    path = f"/v1/subscriptions/{made['id']}"
    publish(client, e=1)
    ack(client, made, cursors(client, made)[-1])
    assert show(client, made).headers["etag"] == first  # counters and the cursor are not part of it
    changed = client.patch(path, json={"metadata": {"a": 1}}, headers={**ticket(made), "If-Match": first})
    assert changed.status_code == 200
    second = changed.headers["etag"]
    assert second != first
    for method, more, body in (
        ("PATCH", "", {"metadata": {"a": 2}}),
        ("POST", "/pause", None),
        ("POST", "/resume", None),
        ("POST", "/renew", {}),
        ("POST", "/replay", {}),
        ("DELETE", "", None),
    ):
        for tag in (first, "", f"W/{second}"):
            answer = client.request(method, path + more, json=body, headers={**ticket(made), "If-Match": tag})
            assert (answer.status_code, problem_code(answer)) == (412, "precondition-failed"), (method, more, tag)
    assert show(client, made).headers["etag"] == second
    assert show(client, made).json()["metadata"] == {"a": 1}
    paused = client.post(f"{path}/pause", headers={**ticket(made), "If-Match": f'"other", {second}'})
    assert paused.headers["etag"] not in (first, second)
    assert client.delete(path, headers={**ticket(made), "If-Match": "*"}).status_code == 200


def test_a_subscription_without_a_lifetime_lives_30_days(client: httpx.Client) -> None:
    made = subscribe(client)
    lives = datetime.fromisoformat(made["expires_at"]) - datetime.fromisoformat(made["created_at"])
    assert 29.99 < lives.total_seconds() / 86_400 < 30.01
