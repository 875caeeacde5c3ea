"""Texts and patterns that would take the server's time: decided later, by the same rule, and told."""

import asyncio
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import httpx
import pytest

from kindcast.semantic import Event
from kindcast.server.api.health import readyz
from kindcast.server.api.problem_types import Problem
from kindcast.server.broker import broker as broker_module
from kindcast.server.broker.publishing import EventMatches
from tests.harness.application import problem_code, publish, running_application, subscribe
from tests.harness.broker import event, matched, new, run, running

COSTLY = ".{0,900}z"
LONG_TEXT = "a" * 6_000

PATIENCE_SECONDS = 30.0
"""Only a failing test waits so long."""


def late_messages(client: httpx.Client, id: str) -> list[str]:
    """The ends of the texts that a subscription got, once something was decided about them."""
    page = client.get(f"/v1/subscriptions/{id}/events", params={"wait": 20})
    return [message["event"]["data"]["a"][-1] for message in page.json()["events"]]


def test_costly_search_is_decided_late_and_holds_up_nobody(tmp_path: Path) -> None:
    """The publisher is told that it is undecided, the subscriber gets it a little later, and what is false is false."""
    with running_application(tmp_path) as client:
        found = subscribe(client, f'a matches "{COSTLY}"')["id"]
        missing = subscribe(client, f'not a matches "{COSTLY}"')["id"]
        answer = client.post("/v1/events", json={"a": LONG_TEXT + "z"}).json()
        assert (answer["matched"], answer["events"][0]["undecided"]) == (0, 2)
        assert publish(client, a="short z") == 1
        deadline = time.monotonic() + PATIENCE_SECONDS
        got: list[str] = []
        while len(got) < 2 and time.monotonic() < deadline:
            got = late_messages(client, found)
        assert got == ["z", "z"]
        assert client.get(f"/v1/events/{answer['events'][0]['sequence']}/trace").json()["undecided"] == []
        assert client.get(f"/v1/subscriptions/{missing}/events").json()["events"] == []


def test_two_attributes_with_thousands_of_values_hold_up_nobody(tmp_path: Path) -> None:
    """An order is decided by the least and the greatest values, equality by what values have in common. Versions have
    an order of their own: too many pairs of them are compared later."""
    with running_application(tmp_path) as client:
        put = client.put("/v1/attributes/older", json={"kind": "version"})
        assert put.status_code == 201, put.text
        expressions = ("low < high", "low = high", "every low < high", "not low >= high")
        wanted = [subscribe(client, each)["id"] for each in expressions]
        data = {"low": [f"a{each}" for each in range(4_000)], "high": [f"b{each}" for each in range(4_000)]}
        answer = client.post("/v1/match", json={"event": data}, timeout=PATIENCE_SECONDS).json()
        assert {each["subscription"] for each in answer["matches"]} == {wanted[0], *wanted[2:]}
        late = subscribe(client, "older < newer")["id"]
        versions = {
            "older": [f"2.{each}" for each in range(200)],
            "newer": [f"1.{each}" for each in range(199)] + ["3.1"],
        }
        told = client.post("/v1/events", json=versions).json()
        assert (told["matched"], told["events"][0]["undecided"]) == (0, 1)
        page = client.get(f"/v1/subscriptions/{late}/events", params={"wait": 20}).json()
        assert [message["late"] for message in page["events"]] == [True]


@pytest.mark.parametrize(
    ("expression", "data"),
    [
        ("some items (a < b and c > {})", {"items": [{"a": 1, "b": 0, "c": each} for each in range(1_999)]}),
        ("every items (a < b or c >= 0 or c > {})", {"items": [{"a": 1, "b": 0, "c": each} for each in range(1_999)]}),
        ('text contains "aaaaaz{}"', {"text": "a" * 3_000_000}),
    ],
    ids=["some", "every", "contains"],
)
def test_large_events_for_many_subscriptions_are_decided_later(
    tmp_path: Path, expression: str, data: dict[str, object]
) -> None:
    """Each test takes little time, and all together hold up nobody."""
    expressions = [expression.format(each) for each in range(100)]
    with running_application(tmp_path) as client:
        for each in expressions:
            subscribe(client, each)
        told = client.post("/v1/events", json=data).json()
        assert told["events"][0]["undecided"] > 0


def test_preview_of_a_costly_search_is_decided_too(tmp_path: Path) -> None:
    """`/v1/match` asks beside the writer, as for operators."""
    with running_application(tmp_path) as client:
        id = subscribe(client, f'a matches "{COSTLY}"')["id"]
        for text, wanted in ((LONG_TEXT + "z", [id]), (LONG_TEXT, [])):
            said = client.post("/v1/match", json={"event": {"a": text}}).json()
            assert [each["subscription"] for each in said["matches"]] == wanted
            assert said["undecided"] == []


def test_pattern_of_too_many_states_is_refused(tmp_path: Path) -> None:
    """With what it has and what is allowed."""
    with running_application(tmp_path) as client:
        answer = client.post("/v1/subscriptions", json={"where": {"matches": ["a", r"\pL{1,50}"]}})
        assert (answer.status_code, problem_code(answer)) == (422, "invalid-subscription")
        assert "59,853 states" in answer.text
        assert "20,000 are allowed" in answer.text


# ── reads beside the writer ─────────────────────────────────────────────────────────────────────────────────────────


def test_events_that_are_only_matched_let_publishers_in_between(tmp_path: Path) -> None:
    """However many there are; and when whoever asked has left, the rest is not matched."""

    async def body() -> None:
        async with running(tmp_path) as broker:
            await broker.create_subscription(new("s", 'a matches "b+c"'))
            events = [event(a="x" * 50).event] * 5_000
            asked = asyncio.ensure_future(broker.match(events))
            await asyncio.sleep(0)
            assert await matched(broker, a="abc") == 1
            assert not asked.done()
            assert len(await asked) == len(events)
            left = asyncio.ensure_future(broker.match(events))
            await asyncio.sleep(0)
            left.cancel()
            assert await matched(broker, a="abbc") == 1
            assert broker.waiting == 0

    run(body)


def test_other_commands_do_not_wait_for_each_request_that_only_matches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those wait until everything else is answered. Then one slice of one of them is matched at a time."""
    done: list[str] = []

    def matching(state: object, now: float, events: Sequence[Event], *more: object) -> list[EventMatches]:
        done.extend("matched" for _ in events)
        return [EventMatches([]) for _ in events]

    monkeypatch.setattr(broker_module, "match_events", matching)

    async def body() -> None:
        async with running(tmp_path) as broker:
            gate, held = threading.Event(), threading.Event()

            def hold(connection: object) -> None:
                held.set()
                gate.wait()

            holding = asyncio.ensure_future(broker.execute(hold))
            await asyncio.to_thread(held.wait)  # what is sent from now on waits together
            asked = [asyncio.ensure_future(broker.match([event(a=1).event])) for _ in range(5)]
            writing = asyncio.ensure_future(broker.execute(lambda connection: done.append("written")))
            while broker.waiting < 1 + len(asked) + 1:
                await asyncio.sleep(0.001)
            gate.set()
            await asyncio.gather(holding, writing, *asked)
            assert done == ["written", *["matched"] * len(asked)]

    run(body)


def test_request_that_matches_for_too_long_is_ended_in_words(tmp_path: Path) -> None:
    """An explanation whose texts are too long says that it is undecided."""
    with running_application(tmp_path, max_match_seconds=0.001) as client:
        answer = client.post("/v1/match", json={"events": [{"a": LONG_TEXT}] * 2_000})
        assert (answer.status_code, problem_code(answer)) == (422, "too-costly")
    with running_application(tmp_path) as client:
        asked = {"event": {"a": LONG_TEXT}, "subscription": f'a matches "{COSTLY}"'}
        told = client.post("/v1/explain", json=asked).json()
        assert told["matches"] is None
        assert "takes too long" in told["summary"]
        sequence = client.post("/v1/events", json={"a": LONG_TEXT}).json()["events"][0]["sequence"]
        id = subscribe(client, f'a matches "{COSTLY}"')["id"]
        told = client.get(f"/v1/events/{sequence}/trace?subscription={id}").json()["explanation"]
        assert told["matches"] is None


def test_costly_search_in_a_negated_group_delays_no_other_event(tmp_path: Path) -> None:
    """It is part of the calls of operators, so its subscription stays undecided, with the reason."""
    with running_application(tmp_path) as client:
        held_up = subscribe(client, f'b = 1 and not (similar("x", @b, ?n) and ?n > 2 and a matches "{COSTLY}")')
        found = client.post("/v1/match", json={"event": {"a": LONG_TEXT, "b": ["1", 1]}}).json()
        (undecided,) = found["undecided"]
        assert undecided["subscription"] == held_up["id"]
        assert undecided["reason"] == "a long text or many values take too long in a negated group"


def test_server_whose_thread_makes_no_progress_is_not_ready(tmp_path: Path) -> None:
    """A thread that lives is not enough: the oldest command must not wait for too long."""

    async def body() -> None:
        async with running(tmp_path, max_command_seconds=0.05) as broker:
            assert await readyz(broker, broker.settings, keys_in_place=True) == {"status": "ready"}
            gate = threading.Event()
            held = asyncio.ensure_future(broker.execute(lambda connection: gate.wait()))
            while broker.oldest_wait <= 0.05:
                await asyncio.sleep(0.01)
            with pytest.raises(Problem, match="oldest waiting command"):
                await readyz(broker, broker.settings, keys_in_place=True)
            gate.set()
            await held
            assert await readyz(broker, broker.settings, keys_in_place=True) == {"status": "ready"}

    run(body)
