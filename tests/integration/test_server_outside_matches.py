"""Matches that were found elsewhere: delivered as if found here, each once; what is wrong costs only itself."""

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from kindcast.semantic.shipped_vocabularies import shipped
from tests.harness.application import problem_code, publish, running_application, subscribe, ticket, waiting
from tests.harness.operator_service import running_service
from tests.harness.receiver import running_receiver
from tests.integration.test_server_operators import QUICK, register, trace, until

CLOUD_EVENT = {"Content-Type": "application/cloudevents+json"}


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The setting of a database of our own; skips where no PostgreSQL is installed."""
    if request.param == "sqlite":
        return {}
    return {"database": request.getfixturevalue("postgresql").new_database()}


@pytest.fixture
def client(tmp_path: Path) -> Iterator[httpx.Client]:
    with running_application(tmp_path) as client:
        yield client


def event(id: str, **data: Any) -> dict[str, Any]:
    return {"specversion": "1.0", "id": id, "source": "/elsewhere", "type": "offer", "data": data}


def deliver(client: httpx.Client, *matches: dict[str, Any]) -> dict[str, Any]:
    """As NDJSON."""
    body = b"".join(json.dumps(each).encode() + b"\n" for each in matches)
    answer = client.post("/v1/matches", content=body, headers={"Content-Type": "application/x-ndjson"})
    assert answer.status_code == 202, answer.text
    told: dict[str, Any] = answer.json()
    return told


def counts(told: dict[str, Any]) -> tuple[int, int, int, int]:
    return told["accepted"], told["duplicates"], told["matched"], told["repeated"]


def test_a_match_is_delivered_once_and_nothing_is_matched_here(tmp_path: Path, store: dict[str, Any]) -> None:
    """As one item, as a list, as lines; and again, also after a restart. No expression is asked here."""
    with running_application(tmp_path, **store) as client:
        first, second, other = subscribe(client, "n = 1"), subscribe(client, "n = 2"), subscribe(client, "n >= 0")
        one = {"event": event("a", n=7), "subscription": first["id"]}
        answer = client.post("/v1/matches", json=one)
        assert answer.status_code == 202, answer.text
        assert counts(answer.json()) == (1, 0, 1, 0)
        many = {"event": event("b", n=8), "subscriptions": [first["id"], second["id"]]}
        assert counts(client.post("/v1/matches", json={"matches": [one, many]}).json()) == (1, 1, 2, 1)
        assert counts(deliver(client, one, many)) == (0, 2, 0, 3)
        assert waiting(client, first) == [{"n": 7}, {"n": 8}]
        assert waiting(client, second) == [{"n": 8}]
        assert waiting(client, other) == []
    with running_application(tmp_path, **store) as client:
        assert counts(deliver(client, many, one)) == (0, 2, 0, 3)
        assert counts(deliver(client, {"event": event("a", n=7), "subscription": second["id"]})) == (0, 1, 1, 0)
        assert waiting(client, first) == [{"n": 7}, {"n": 8}]
        assert waiting(client, second) == [{"n": 8}, {"n": 7}]  # a late match comes after


def test_one_event_on_several_lines_is_one_event(client: httpx.Client) -> None:
    """Its matches stand at one position, and none of them is late."""
    made = [subscribe(client, f"n = {number}") for number in range(3)]
    told = deliver(client, *({"event": event("a", n=7), "subscription": each["id"]} for each in made))
    assert counts(told) == (1, 0, 3, 0)
    cursors = set()
    for each in made:
        (message,) = client.get(f"/v1/subscriptions/{each['id']}/events").json()["events"]
        assert not message.get("late", False)
        cursors.add(message["cursor"])
    assert len(cursors) == 1


def test_two_bodies_of_one_event_are_one_event(client: httpx.Client) -> None:
    """The first one is kept; who is named with either gets it, once, whether it was known before or not."""
    made = [subscribe(client, f"n = {number}") for number in range(3)]
    lines = [
        {"event": event("a", n=number), "subscriptions": [made[number]["id"], made[number + 1]["id"]]}
        for number in range(2)
    ]
    assert counts(deliver(client, *lines)) == (1, 1, 3, 1)
    assert counts(deliver(client, *lines)) == (0, 2, 0, 3)
    assert [waiting(client, each) for each in made] == [[{"n": 0}]] * 3


def test_what_was_matched_here_is_not_sent_again(client: httpx.Client) -> None:
    """An event that was published here first keeps its matches, and gets those that are missing."""
    here, elsewhere = subscribe(client, "n = 1"), subscribe(client, "n = 2")
    told = client.post("/v1/events", json=event("a", n=1), headers=CLOUD_EVENT)
    assert told.json()["matched"] == 1
    both = {"event": event("a", n=1), "subscriptions": [here["id"], elsewhere["id"]]}
    assert counts(deliver(client, both)) == (0, 1, 1, 1)
    assert waiting(client, here) == waiting(client, elsewhere) == [{"n": 1}]
    (row,) = client.get("/v1/events").json()["events"]
    assert row["matched"] == 2


def test_bindings_are_those_that_were_sent(client: httpx.Client) -> None:
    """With an event that is new, and with one that is known."""
    made = [subscribe(client, "n = 1"), subscribe(client, "n = 1")]
    for each, value in zip(made, ("x", "y"), strict=True):
        sent = {"event": event("a", n=1), "subscription": each["id"], "bindings": [{"which": value}]}
        assert counts(deliver(client, sent))[2:] == (1, 0)
    for each, value in zip(made, ("x", "y"), strict=True):
        (message,) = client.get(f"/v1/subscriptions/{each['id']}/events").json()["events"]
        assert message["bindings"] == [{"which": value}]


def test_who_gets_nothing_is_named(client: httpx.Client) -> None:
    """Gone, paused, expired or never there: the others get theirs."""
    live, paused, gone = (subscribe(client, "n = 1") for _ in range(3))
    assert client.post(f"/v1/subscriptions/{paused['id']}/pause", headers=ticket(paused)).is_success
    assert client.delete(f"/v1/subscriptions/{gone['id']}", headers=ticket(gone)).is_success
    names = [paused["id"], live["id"], gone["id"], "nobody"]
    told = deliver(client, {"event": event("a", n=1), "subscriptions": names})
    assert counts(told) == (1, 0, 1, 0)
    assert told["unmatched"] == 3
    assert sorted(told["silent"]) == sorted([paused["id"], gone["id"], "nobody"])
    assert waiting(client, live) == [{"n": 1}]


def test_what_is_wrong_costs_only_itself(client: httpx.Client) -> None:
    """Lines that are no matches are rejected with their line and a reason; a single one is the problem itself."""
    made = subscribe(client, "n = 1")
    good = {"event": event("good", n=1), "subscription": made["id"]}
    wrong: list[Any] = [
        7,
        {"event": event("a"), "subscription": made["id"], "more": 1},
        {"event": {"n": 1}, "subscription": made["id"]},
        {"event": {"specversion": "1.0", "id": "a", "type": "t"}, "subscription": made["id"]},
        {"event": event("a")},
        {"event": event("a"), "subscription": made["id"], "subscriptions": []},
        {"event": event("a"), "subscription": 7},
        {"event": event("a"), "subscriptions": "all"},
        {"event": event("a"), "subscriptions": [made["id"], 7]},
        {"event": event("a"), "subscription": made["id"], "bindings": {"x": 1}},
        {"event": event("a"), "subscriptions": [made["id"]], "bindings": [{"x": 1}]},
        {"event": event("a", ce={"x": 1}), "subscription": made["id"]},
    ]
    told = deliver(client, *wrong, good)
    assert counts(told) == (1, 0, 1, 0)
    assert [each["line"] for each in told["rejected"]] == list(range(1, len(wrong) + 1))
    assert all(each["problem"]["detail"] for each in told["rejected"])
    for each in wrong[1:]:
        answer = client.post("/v1/matches", json=each)
        assert answer.status_code in (400, 422), answer.text
        assert problem_code(answer)
    answer = client.post("/v1/matches", json={"matches": wrong})
    assert problem_code(answer) == "no-event-accepted"
    assert problem_code(client.post("/v1/matches", content=b"{", headers={"Content-Type": "text/plain"})) == (
        "unsupported-media-type"
    )
    assert waiting(client, made) == [{"n": 1}]


def test_too_much_is_refused_before_it_is_stored(tmp_path: Path) -> None:
    """More matches than a request, or an event, may have."""
    with running_application(tmp_path, max_matches_per_event=2, max_events_per_request=3) as client:
        made = [subscribe(client, "n = 1")["id"] for _ in range(3)]
        answer = client.post("/v1/matches", json={"event": event("a", n=1), "subscriptions": made})
        assert problem_code(answer) == "too-many-matches"
        assert counts(deliver(client, {"event": event("a", n=1), "subscriptions": made[:2]})) == (1, 0, 2, 0)
        answer = client.post("/v1/matches", json={"event": event("a", n=1), "subscription": made[2]})
        assert problem_code(answer) == "too-many-matches"
        four = [{"event": event(str(number)), "subscription": made[0]} for number in range(4)]
        assert problem_code(client.post("/v1/matches", json={"matches": four})) == "too-many-events"
        many = {"event": event("b"), "subscriptions": [str(number) for number in range(50_001)]}
        assert problem_code(client.post("/v1/matches", json=many)) == "too-many-events"
        assert len(client.get("/v1/events").json()["events"]) == 1


def test_what_an_operator_was_to_decide_is_decided(tmp_path: Path) -> None:
    """The match from elsewhere is the answer: the operator is not asked any more, and nothing comes twice."""
    with running_service() as service, running_application(tmp_path, **QUICK) as client:
        register(client, service, "yes")
        service.kill()
        made, other = subscribe(client, "yes()"), subscribe(client, "yes() and n = 1")
        sent = event("a", n=1)
        told = client.post("/v1/events", json=sent, headers=CLOUD_EVENT).json()["events"][0]
        assert told["undecided"] == 2
        assert counts(deliver(client, {"event": sent, "subscription": made["id"]})) == (0, 1, 1, 0)
        waits = [each["subscription"] for each in trace(client, told["sequence"])["undecided"]]
        assert waits == [other["id"]]
        service.start()
        client.post("/v1/operators/retry")
        until(lambda: waiting(client, other))
        assert waiting(client, made) == waiting(client, other) == [{"n": 1}]


def test_webhooks_get_them(tmp_path: Path) -> None:
    """A sink gets matches from elsewhere, and those found here, in order."""
    with running_receiver() as receiver, running_application(tmp_path, allow_private_sinks=True) as client:
        client.put("/v1/ontologies/shop", content=shipped("shop").read_bytes(), headers={"Content-Type": "text/turtle"})
        made = subscribe(client, "target isa Computer", sink=receiver.script("/hook"))
        for number in range(20):
            if number % 2:
                publish(client, target="laptop", number=number)
            else:
                deliver(client, {"event": event(str(number), number=number), "subscription": made["id"]})
        got = receiver.wait_for("/hook", 20)
        assert [each.message["event"]["data"]["number"] for each in got] == list(range(20))


def test_random_histories_give_each_pair_once(tmp_path: Path, store: dict[str, Any]) -> None:
    """Whatever is sent again, cut and mixed with publications and restarts: every pair once, none that nobody sent."""
    draw = random.Random(16)
    expected: dict[str, set[str]] = {}
    made: list[dict[str, Any]] = []
    for _ in range(3):
        with running_application(tmp_path, **store) as client:
            made += [subscribe(client, f"n = {draw.randrange(5)}") for _ in range(4)]
            for _ in range(30):
                lines = []
                for _ in range(draw.randrange(1, 6)):
                    name, n = str(draw.randrange(40)), draw.randrange(5)
                    chosen = draw.sample(made, draw.randrange(1, len(made)))
                    lines.append({"event": event(name, n=n), "subscriptions": [each["id"] for each in chosen]})
                if draw.random() < 0.3:  # published here: this server matches it, if it is new
                    sent = lines[0]["event"]
                    told = client.post("/v1/events", json=sent, headers=CLOUD_EVENT).json()
                    if told["accepted"]:
                        here = [each for each in made if each["expression"] == f"n = {sent['data']['n']}"]
                        for each in here:
                            expected.setdefault(each["id"], set()).add(sent["id"])
                deliver(client, *lines)
                for line in lines:
                    for id in line["subscriptions"]:
                        expected.setdefault(id, set()).add(line["event"]["id"])
            for each in made:
                page = client.get(f"/v1/subscriptions/{each['id']}/events", params={"limit": 1000}).json()["events"]
                got = [message["event"]["id"] for message in page]
                assert len(got) == len(set(got))
                assert set(got) == expected.get(each["id"], set())
