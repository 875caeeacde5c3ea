"""The checker of the crash test: it must see each kind of broken promise, or its silence means nothing."""

from typing import Any

import pytest

from tests.harness.crash_history import COMPUTERS, History, Made, broken_promises

A, B, C = ("urn:p", "a"), ("urn:p", "b"), ("urn:p", "c")


def data(lot: int, target: str = COMPUTERS[0]) -> dict[str, Any]:
    return {"target": target, "lot": lot}


@pytest.fixture
def history() -> History:
    """Two subscriptions to lot 0, one with a webhook; then `a` and `b` answered, `c` in doubt."""
    history = History()
    for id, path in (("s1", None), ("s2", "/hook")):
        history.made[id] = Made(id, "ticket", 0, path, history.note("subscribed"))
    history.begin([(A, data(0)), (B, data(0)), (C, data(1))])
    history.promised({"events": [{"source": "urn:p", "id": "a", "sequence": 1}]})
    history.promised({"events": [{"source": "urn:p", "id": "b", "sequence": 2}]})
    return history


def event(key: tuple[str, str], sequence: int) -> dict[str, Any]:
    return {"source": key[0], "id": key[1], "sequence": sequence}


def message(key: tuple[str, str], sequence: int) -> dict[str, Any]:
    return {"cursor": str(sequence), "event": {"source": key[0], "id": key[1]}}


STORED = [event(A, 1), event(B, 2)]
MESSAGES = [message(A, 1), message(B, 2)]
ARRIVED = [("msg_1", MESSAGES[0]), ("msg_1", MESSAGES[0]), ("msg_2", MESSAGES[1])]


def check(history: History, **other: Any) -> list[str]:
    kept = {"stored": STORED, "pulled": {"s1": MESSAGES, "s2": MESSAGES}, "arrived": {"/hook": ARRIVED}}
    return broken_promises(history, **(kept | other))


def test_checker_kept_promises_is_silent(history: History) -> None:
    """All kept, with a webhook sent twice, and the event in doubt stored or not."""
    assert check(history) == []
    assert check(history, stored=[*STORED, event(C, 3)]) == []
    assert list(history.in_doubt()) == [C]


@pytest.mark.parametrize(
    ("stored", "word"),
    [
        ([event(A, 1)], "stored as nothing"),
        ([event(A, 1), event(B, 3)], "as 2 and is stored as [3]"),
        ([*STORED, event(B, 4)], "2 times"),
        ([*STORED, event(("urn:p", "x"), 4)], "never sent"),
    ],
)
def test_checker_wrong_events_speaks(history: History, stored: list[dict[str, Any]], word: str) -> None:
    """A lost event, one under another sequence, one stored twice, one from nowhere."""
    assert any(word in fault for fault in check(history, stored=stored))


@pytest.mark.parametrize(
    ("messages", "word"),
    [
        ([message(A, 1)], "never came"),
        ([message(B, 2), message(A, 1)], "out of order"),
        ([message(A, 1), message(A, 1), message(B, 2)], "twice"),
        ([*MESSAGES, message(C, 3)], "does not match"),
    ],
)
def test_checker_wrong_pull_speaks(history: History, messages: list[dict[str, Any]], word: str) -> None:
    """A match that is missing, out of order, repeated, or not for this subscription."""
    assert any(word in fault for fault in check(history, pulled={"s1": messages, "s2": MESSAGES}))


def test_checker_lost_subscription_speaks(history: History) -> None:
    """A subscription that was answered and is gone."""
    assert any("s1 was answered with 201 and is gone" in fault for fault in check(history, pulled={"s2": MESSAGES}))


@pytest.mark.parametrize(
    ("arrived", "word"),
    [
        (ARRIVED[:2], "never arrived"),
        ([ARRIVED[0], ("msg_other", MESSAGES[0]), ARRIVED[2]], "one to one"),
        ([ARRIVED[0], ("msg_1", MESSAGES[1])], "one to one"),
        ([ARRIVED[2], ARRIVED[0]], "out of order"),
    ],
)
def test_checker_wrong_webhooks_speaks(history: History, arrived: list[tuple[str, dict[str, Any]]], word: str) -> None:
    """A webhook that never came, changed or shared its id, or overtook another."""
    assert any(word in fault for fault in check(history, arrived={"/hook": arrived}))


def test_checker_another_sequence_for_the_same_event_speaks(history: History) -> None:
    """An event that is answered again must be told its first sequence."""
    history.promised({"events": [{"source": "urn:p", "id": "a", "sequence": 9}]})
    assert any("promised as 1, and again as 9" in fault for fault in check(history))
