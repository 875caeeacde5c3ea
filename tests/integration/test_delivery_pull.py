"""Pull and acknowledge, over HTTP."""

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from kindcast import Client, ProblemError
from kindcast.server.store import deliveries
from tests.harness.server_thread import running_app
from tests.harness.waiting import until

BEGIN_SECONDS = 0.3
"""For a waiting pull to begin. If it begins later the test shows less, and still passes."""

PATIENCE_SECONDS = 30.0


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with running_app(tmp_path) as url, Client(url) as client:
        yield client


def publish(client: Client, *numbers: int) -> list[str]:
    """Publishes an event for each number; returns their cursors."""
    return [str(client.publish({"number": number})["events"][0]["sequence"]) for number in numbers]


def numbers_of(page: dict[str, Any]) -> list[int]:
    return [message["event"]["data"]["number"] for message in page["events"]]


def status_of(call: Any, *args: Any, **kwargs: Any) -> tuple[int, str]:
    """Status and type of the problem that a call must raise."""
    with pytest.raises(ProblemError) as problem:
        call(*args, **kwargs)
    return problem.value.status, problem.value.type.rpartition("/")[2]


def test_pull_messages_come_in_order_with_everything(client: Client) -> None:
    """A message has cursor, event, bindings, subscription and vocabulary version; the page ends with its cursor."""
    id = client.subscribe("number > 1")["id"]
    cursors = publish(client, 3, 1, 2)
    page = client.pull(id)
    assert numbers_of(page) == [3, 2]
    assert [message["cursor"] for message in page["events"]] == [cursors[0], cursors[2]]
    assert page["cursor"] == cursors[2]
    first = page["events"][0]
    assert first.keys() == {"cursor", "event", "bindings", "subscription", "vocabulary_version"}
    assert (first["subscription"], first["bindings"]) == (id, [])
    assert first["event"]["specversion"] == "1.0"


def test_pull_again_brings_the_same(client: Client) -> None:
    """Reading acknowledges nothing: without an acknowledgement the same messages come again."""
    id = client.subscribe("number exists")["id"]
    publish(client, 1, 2)
    assert client.pull(id) == client.pull(id)


def test_pull_after_and_limit_page_through(client: Client) -> None:
    """`limit` cuts, the page's cursor goes on, and the last page is empty and keeps the cursor."""
    id = client.subscribe("number exists")["id"]
    publish(client, 1, 2, 3)
    first = client.pull(id, limit=2)
    second = client.pull(id, after=first["cursor"], limit=2)
    third = client.pull(id, after=second["cursor"])
    assert [numbers_of(page) for page in (first, second, third)] == [[1, 2], [3], []]
    assert third["cursor"] == second["cursor"]


def test_ack_moves_the_start_forward_only(client: Client) -> None:
    """A pull starts after what was acknowledged; an older acknowledgement that comes late changes nothing."""
    id = client.subscribe("number exists")["id"]
    cursors = publish(client, 1, 2, 3)
    assert client.ack(id, cursors[1]) == {"cursor": cursors[1]}
    assert numbers_of(client.pull(id)) == [3]
    assert client.ack(id, cursors[0]) == {"cursor": cursors[1]}
    assert numbers_of(client.pull(id)) == [3]
    assert client.subscription(id)["cursor"] == cursors[1]
    assert numbers_of(client.pull(id, after=0)) == [1, 2, 3]


def test_ack_survives_a_restart(tmp_path: Path) -> None:
    """An acknowledgement that was answered is on disk."""
    with running_app(tmp_path) as url, Client(url) as client:
        made = client.subscribe("number exists")
        client.ack(made["id"], publish(client, 1, 2)[0])
    with running_app(tmp_path) as url, Client(url) as client:
        assert numbers_of(client.pull(made["id"])) == [2]


def test_ack_needs_the_ticket(client: Client) -> None:
    """Reading needs no ticket, moving the cursor needs the right one."""
    made = client.subscribe("number exists")
    [cursor] = publish(client, 1)
    other = Client(str(client.server))
    assert numbers_of(other.pull(made["id"])) == [1]
    assert status_of(other.ack, made["id"], cursor) == (401, "ticket-missing")
    assert status_of(other.ack, made["id"], cursor, ticket="wrong") == (403, "ticket-wrong")
    assert other.ack(made["id"], cursor, ticket=made["ticket"]) == {"cursor": cursor}
    other.close()


@pytest.mark.parametrize("cursor", ["", "x", "-1", "1.0", "٣", "1" * 30, "999999999"])
def test_cursor_that_is_none_of_ours_is_refused(client: Client, cursor: str) -> None:
    """Garbage, and a cursor beyond the last event, are errors and change nothing."""
    id = client.subscribe("number exists")["id"]
    publish(client, 1)
    assert status_of(client.pull, id, after=cursor) == (400, "invalid-cursor")
    assert status_of(client.ack, id, cursor) == (400, "invalid-cursor")
    assert numbers_of(client.pull(id)) == [1]


def test_pull_unknown_subscription_is_not_found(client: Client) -> None:
    """Pulling and acknowledging for nobody."""
    assert status_of(client.pull, "nobody") == (404, "unknown-subscription")
    assert status_of(client.ack, "nobody", "0", ticket="x") == (404, "unknown-subscription")


@pytest.mark.parametrize(
    "params", [{"limit": "0"}, {"limit": "10001"}, {"wait": "31"}, {"wait": "nan"}, {"limit": "x"}]
)
def test_pull_bounds_are_told(client: Client, params: dict[str, str]) -> None:
    """Limits and waits outside the bounds are refused as problem documents."""
    id = client.subscribe("number exists")["id"]
    answer = httpx.get(f"{client.server}/v1/subscriptions/{id}/events", params=params)
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"


def test_pull_wait_ends_with_the_first_match(client: Client) -> None:
    """A waiting pull returns the message that is published meanwhile; without the wake-up it would come back empty."""
    id = client.subscribe("number = 2")["id"]
    pages: list[dict[str, Any]] = []
    waiting = threading.Thread(target=lambda: pages.append(client.pull(id, wait=30)))
    waiting.start()
    time.sleep(BEGIN_SECONDS)
    publish(client, 1, 2)
    waiting.join(60)
    assert [numbers_of(page) for page in pages] == [[2]]


def test_pull_wait_without_match_comes_back_empty(client: Client) -> None:
    """The wait is an upper bound; then the page is empty and has the cursor it started from."""
    id = client.subscribe("number exists")["id"]
    [cursor] = publish(client, 1)
    assert client.pull(id, after=cursor, wait=0.2) == {"events": [], "cursor": cursor}


def test_pull_wait_ends_when_the_reader_leaves(tmp_path: Path) -> None:
    """So whoever gave up and asks again is not refused because of the request that it left."""
    with running_app(tmp_path) as url:
        admin = httpx.post(f"{url}/v1/keys", json={"role": "admin"}).json()["key"]
        body = {"role": "subscriber", "tenant": "default", "limits": {"connections": 1}}
        key = httpx.post(f"{url}/v1/keys", json=body, headers={"Authorization": f"Bearer {admin}"}).json()["key"]
        with Client(url, key=admin) as client:
            path = f"/v1/subscriptions/{client.subscribe('number exists')['id']}/events"
        with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=60) as other:
            with socket.create_connection((other.base_url.host, other.base_url.port)) as reader:
                asked = f"GET {path}?wait=30 HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {key}\r\n\r\n"
                reader.sendall(asked.encode())
                until(lambda: other.get(path).status_code == 429)
            until(lambda: other.get(path).status_code == 200, seconds=20)  # less than it would have waited


def test_pull_wait_goes_on_when_the_subscription_is_renewed(client: Client) -> None:
    """The wait ended at the end time that the subscription had when it began."""
    made = client.subscribe("number exists", ttl_seconds=4.0)
    pages: list[dict[str, Any]] = []
    waiting = threading.Thread(target=lambda: pages.append(client.pull(made["id"], wait=30)))
    waiting.start()
    time.sleep(BEGIN_SECONDS)
    client.renew(made["id"], ticket=made["ticket"], ttl_seconds=3_600.0)
    time.sleep(4.5)
    publish(client, 1)
    waiting.join(60)
    assert [numbers_of(page) for page in pages] == [[1]]


def test_pull_wait_says_that_the_last_day_began_meanwhile(client: Client) -> None:
    made = client.subscribe("number exists", ttl_seconds=86_400.0 + 3.0)
    assert "expiring" not in client.pull(made["id"])
    assert client.pull(made["id"], wait=5)["expiring"] == made["expires_at"]


def test_pull_wait_ends_when_the_subscription_is_deleted(client: Client) -> None:
    """Who waits for a subscription that goes away is told so at once."""
    id = client.subscribe("number exists")["id"]
    problems: list[tuple[int, str]] = []
    waiting = threading.Thread(target=lambda: problems.append(status_of(client.pull, id, wait=30)))
    waiting.start()
    time.sleep(BEGIN_SECONDS)
    client.unsubscribe(id)
    waiting.join(60)
    assert problems == [(404, "unknown-subscription")]


def test_pull_large_events_ends_the_page_early(client: Client) -> None:
    """A page has a bound in bytes too: it ends early, and goes on where it ended."""
    id = client.subscribe("number exists")["id"]
    for number in range(6):
        client.publish({"number": number, "filling": "x" * 6_000_000})
    first = client.pull(id)
    assert 1 <= len(first["events"]) < 6
    rest = client.pull(id, after=first["cursor"])
    assert numbers_of(first) + numbers_of(rest) == list(range(6))


def test_pull_paused_and_expired_subscriptions_can_be_read(client: Client) -> None:
    """What was matched before stays readable; nothing is matched meanwhile."""
    id = client.subscribe("number exists")["id"]
    publish(client, 1)
    client.pause(id)
    publish(client, 2)
    assert numbers_of(client.pull(id)) == [1]
    client.resume(id)
    publish(client, 3)
    assert numbers_of(client.pull(id)) == [1, 3]


def test_pull_cursor_before_the_retention_is_gone(tmp_path: Path) -> None:
    """Who missed messages that were deleted for their age is told so, and where to go on; a subscription that lost
    nothing reads on as before."""
    with running_app(tmp_path, retention_seconds=0.2, sweep_seconds=0.1) as url, Client(url) as client:
        loud = client.subscribe("number exists")["id"]
        quiet = client.subscribe("number = 99")["id"]
        [cursor] = publish(client, 1)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while client.events()["events"] and time.monotonic() < deadline:
            time.sleep(0.05)
        with pytest.raises(ProblemError) as problem:
            client.pull(loud)
        assert (problem.value.status, problem.value.type.rpartition("/")[2]) == (410, "cursor-gone")
        assert f"after={cursor}" in problem.value.detail
        assert problem.value.document["oldest"] == cursor
        assert status_of(lambda: next(client.listen(loud))) == (410, "cursor-gone")
        assert client.pull(quiet)["events"] == []
        assert client.pull(loud, after=cursor)["events"] == []
        client.ack(loud, cursor)
        assert client.pull(loud)["events"] == []


def test_events_that_wait_are_not_read_to_say_since_when(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With large events, one look at the status took many seconds."""
    with running_app(tmp_path) as url, Client(url) as client:
        id = client.subscribe("n exists")["id"]
        assert client.subscription(id)["pending_since"] is None
        client.publish({"n": 1})
        monkeypatch.setattr(deliveries, "is_whole", lambda *_: pytest.fail("an event was read"))
        assert client.subscription(id)["pending_since"] == client.events()["events"][0]["accepted_at"]
