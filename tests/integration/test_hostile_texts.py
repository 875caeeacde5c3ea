"""Texts and patterns that would take the server's time: decided later, by the same rule, and told."""

import time
from pathlib import Path

import httpx

from tests.harness.application import problem_code, publish, running_application, subscribe

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
