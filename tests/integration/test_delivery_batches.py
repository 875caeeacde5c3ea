"""Fewer requests to a sink, where a subscriber asks for them: several messages in one, or time between two. Order,
signatures and the promise of at least once are those of single messages."""

import itertools
import json
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook

from kindcast.server.delivery.outbox import Courier, _groups, _Page, _throttled_until
from kindcast.server.store.deliveries import StoredMatch, Subscriber
from tests.harness.application import problem_code, running_application, show, subscribe, ticket
from tests.harness.receiver import Receiver, running_receiver
from tests.harness.waiting import until

PATHS = (f"/{number}" for number in itertools.count())


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    folder = tmp_path_factory.mktemp("data")
    with running_application(folder, allow_private_sinks=True, webhook_delays_seconds=(0.3,) * 5) as client:
        yield client


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with running_receiver() as running:
        yield running


def prepared(client: httpx.Client, receiver: Receiver, count: int, **more: Any) -> tuple[dict[str, Any], str]:
    """A subscription for which `count` events wait when it is resumed, and its path."""
    path = next(PATHS)
    made = subscribe(client, f"path = '{path}'", sink=receiver.url + path, **more)
    client.post(f"/v1/subscriptions/{made['id']}/pause", headers=ticket(made)).raise_for_status()
    client.post(f"/v1/subscriptions/{made['id']}/resume", headers=ticket(made)).raise_for_status()
    body = "\n".join(json.dumps({"path": path, "n": n}) for n in range(count))
    if count:
        headers = {"Content-Type": "application/x-ndjson"}
        client.post("/v1/events", content=body, headers=headers).raise_for_status()
    return made, path


def told(receiver: Receiver, path: str, *, status: int = 200) -> list[list[int]]:
    """The numbers of the events, by request that was answered so."""
    bodies = [json.loads(each.body) for each in receiver.requests(path) if each.status == status]
    return [[(each.get("event") or each)["data"]["n"] for each in body] for body in bodies]


def settled(client: httpx.Client, receiver: Receiver, made: dict[str, Any], count: int) -> dict[str, Any]:
    """The subscription, when so many messages were sent to it."""

    def shown() -> dict[str, Any]:
        told: dict[str, Any] = show(client, made).json()
        return told

    def all_sent() -> dict[str, Any]:
        told = shown()
        return told if told["pending"] == 0 and told["times_sent"] - told["times_failed"] >= count else {}

    return until(all_sent, told=shown)


@pytest.mark.parametrize(
    ("format", "media_type"),
    [("message", "application/json"), ("cloudevents", "application/cloudevents-batch+json")],
)
def test_messages_that_wait_come_together_in_order_and_signed(
    client: httpx.Client, receiver: Receiver, format: str, media_type: str
) -> None:
    path = next(PATHS)
    receiver.script(path, *[500] * 4)  # so that all are there when it is taken
    settings = {"batch": 4, "format": format}
    made = subscribe(client, f"path = '{path}'", sink=receiver.url + path, protocolsettings=settings)
    body = "\n".join(json.dumps({"path": path, "n": n}) for n in range(10))
    client.post("/v1/events", content=body, headers={"Content-Type": "application/x-ndjson"}).raise_for_status()
    shown = settled(client, receiver, made, 10)
    requests = [each for each in receiver.requests(path) if each.status == 200]
    found = told(receiver, path)
    assert [n for each in found for n in each] == list(range(10))
    assert max(map(len, found)) == 4
    assert {each.headers["content-type"] for each in requests} == {media_type}
    assert len({each.headers["webhook-id"] for each in requests}) == len(requests) < 8
    for each in requests:
        Webhook(made["secret"]).verify(each.body, each.headers)
    assert (shown["times_sent"], shown["times_failed"]) == (14, 4)
    cursors = [int(each.get("cursor") or each["kindcastcursor"]) for one in requests for each in json.loads(one.body)]
    assert cursors == sorted(set(cursors))
    attempts = client.get(f"/v1/subscriptions/{made['id']}/attempts").json()["attempts"]
    assert len(attempts) == 14


def test_refused_request_comes_again_with_the_same_messages_and_id(client: httpx.Client, receiver: Receiver) -> None:
    """Although more have come meanwhile; these come behind it."""
    path = next(PATHS)
    receiver.script(path, *[500] * 4)
    made = subscribe(client, f"path = '{path}'", sink=receiver.url + path, protocolsettings={"batch": 10})
    events = [{"path": path, "n": n} for n in range(6)]
    client.post("/v1/events", json=events[0]).raise_for_status()
    receiver.wait_for(path, 1)
    for event in events[1:]:
        client.post("/v1/events", json=event).raise_for_status()
    settled(client, receiver, made, 6)
    first, second, *_ = receiver.requests(path)
    assert (first.status, second.status) == (500, 500)
    assert (first.body, first.headers["webhook-id"]) == (second.body, second.headers["webhook-id"])
    found = told(receiver, path)
    assert found[0] == [0]
    assert [n for each in found for n in each] == list(range(6))
    assert len(found) < 6
    shown = show(client, made).json()
    assert (shown["times_sent"], shown["times_failed"], shown["status"]) == (10, 4, "active")


def test_time_between_two_requests_is_kept_and_nothing_is_lost(client: httpx.Client, receiver: Receiver) -> None:
    made, path = prepared(client, receiver, 3, throttling=0.7)
    assert show(client, made).json()["throttling"] == 0.7
    times = []
    for count in (1, 2, 3):
        receiver.wait_for(path, count)
        times.append(time.monotonic())
    assert [json.loads(each.body)["event"]["data"]["n"] for each in receiver.requests(path)] == [0, 1, 2]
    assert all(later - earlier >= 0.6 for earlier, later in itertools.pairwise(times))
    client.patch(f"/v1/subscriptions/{made['id']}", json={"throttling": None}, headers=ticket(made)).raise_for_status()
    assert show(client, made).json()["throttling"] is None


def test_more_matches_of_a_subscription_that_rests_are_not_looked_at(
    client: httpx.Client, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until its time has come, or its owner changes it."""
    looked: list[int] = []
    deliver = Courier.deliver

    async def counted(courier: Courier, number: int, announced: Any) -> float | None:
        looked.append(number)
        return await deliver(courier, number, announced)

    made, path = prepared(client, receiver, 1, throttling=3_600)
    settled(client, receiver, made, 1)
    client.post("/v1/events", json={"path": path, "n": 1}).raise_for_status()
    time.sleep(0.3)  # it has found out that it has to wait
    monkeypatch.setattr(Courier, "deliver", counted)
    for n in range(2, 22):
        client.post("/v1/events", json={"path": path, "n": n}).raise_for_status()
    time.sleep(0.3)
    assert len(looked) <= 1, looked
    client.patch(f"/v1/subscriptions/{made['id']}", json={"throttling": None}, headers=ticket(made)).raise_for_status()
    settled(client, receiver, made, 22)
    assert looked != []


def test_digest_of_a_while_is_throttling_with_batches(client: httpx.Client, receiver: Receiver) -> None:
    """What came during the pause comes as one request."""
    made, path = prepared(client, receiver, 0, throttling=1.0, protocolsettings={"batch": 100})
    for n in range(8):
        client.post("/v1/events", json={"path": path, "n": n}).raise_for_status()
    settled(client, receiver, made, 8)
    found = told(receiver, path)
    assert [n for each in found for n in each] == list(range(8))
    assert len(found) <= 3


def test_batches_that_are_switched_off_while_they_fail_lose_nothing(client: httpx.Client, receiver: Receiver) -> None:
    path = next(PATHS)
    receiver.script(path, 500, 500)
    made = subscribe(client, f"path = '{path}'", sink=receiver.url + path, protocolsettings={"batch": 10})
    for n in range(5):
        client.post("/v1/events", json={"path": path, "n": n}).raise_for_status()
    receiver.wait_for(path, 1)
    values = {"protocolsettings": {}}
    client.patch(f"/v1/subscriptions/{made['id']}", json=values, headers=ticket(made)).raise_for_status()
    settled(client, receiver, made, 5)
    bodies = [json.loads(each.body) for each in receiver.requests(path) if each.status == 200]
    seen = {each["event"]["data"]["n"] for body in bodies for each in (body if isinstance(body, list) else [body])}
    assert seen == set(range(5))


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"protocolsettings": {"batch": 0}}, "sink-refused"),
        ({"protocolsettings": {"batch": 1_001}}, "sink-refused"),
        ({"protocolsettings": {"batch": True}}, "sink-refused"),
        ({"protocolsettings": {"batch": "9"}}, "sink-refused"),
        ({"throttling": 0}, "invalid-request"),
        ({"throttling": -1}, "invalid-request"),
        ({"throttling": 86_401}, "invalid-request"),
        ({"throttling": "often"}, "invalid-request"),
        ({"throttling": "5"}, "invalid-request"),
        ({"throttling": True}, "invalid-request"),
        ({"throttling": 1, "sink": None}, "invalid-request"),
    ],
)
def test_wrong_wishes_are_refused(client: httpx.Client, receiver: Receiver, more: dict[str, Any], code: str) -> None:
    body = {"expression": "n = 1", "sink": receiver.url + "/never"} | more
    refused = client.post("/v1/subscriptions", json={name: each for name, each in body.items() if each is not None})
    assert (refused.status_code, problem_code(refused)) == (422, code)
    assert refused.json()["detail"]


def test_time_between_requests_counts_from_failures_too_and_not_from_the_future() -> None:
    """A clock that ran ahead, and was set back, stops nobody."""
    now = time.time()
    asked: list[tuple[float | None, float | None, float | None, float]] = [
        (None, now + 864_000, None, 0.0),
        (60.0, now - 10, None, now + 50),
        (60.0, now - 10, now - 5, now + 55),
        (60.0, now + 864_000, None, 0.0),
        (60.0, None, None, 60.0),
    ]
    for throttling, last_success, last_failure, wanted in asked:
        subscriber = SimpleNamespace(throttling=throttling, last_success=last_success, last_failure=last_failure)
        assert _throttled_until(cast(Subscriber, subscriber)) == wanted


@given(
    st.sets(st.integers(1, 60), max_size=20).map(sorted),
    st.none() | st.integers(1, 8),
    st.none() | st.tuples(st.integers(1, 60), st.integers(0, 9)).map(lambda it: (it[0], it[0] + it[1])),
)
def test_groups_are_the_page_in_order(positions: list[int], size: int | None, failed: tuple[int, int] | None) -> None:
    """Each message once, none too large; what failed is as it was, as far as it is still there."""
    page = [StoredMatch(position, position, "{}", None, "v") for position in positions]

    class Asking:
        protocolsettings = None if size is None else {"batch": size}

    groups = list(_groups(_Page(cast(Subscriber, Asking()), page, True, 0, after=0), failed))
    assert [match for group in groups for match in group] == page
    assert all(1 <= len(group) <= (size or 1) for group in groups)
    if failed is not None and groups and failed[0] == positions[0]:
        assert all(match.position <= failed[1] for match in groups[0])
