"""Graphs are read beside the writer's thread: in order, within the budgets of a request, for one vocabulary."""

import asyncio
import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kindcast import Matcher, Vocabulary
from kindcast.semantic import Event, InvalidEvent, Problem
from kindcast.semantic.events import Canonicaliser, TakesLong
from kindcast.semantic.events.linked_data import reference
from kindcast.semantic.model import Node
from kindcast.server.broker.graph_reading import GraphReading, values_of
from kindcast.server.broker.publishing import _Reading
from kindcast.server.broker.state import State
from kindcast.server.cloudevents import EventReader, ReadGraph
from kindcast.server.settings import Settings

EX = "http://example.org/"
QUICK = {"@context": {"@vocab": EX}, "p": 1}
SLOW = {"@context": {"@vocab": EX}, "p": 1, "@included": [{"@id": "urn:x:1", "q": 2}], "r": {"@id": "urn:x:1"}}
"""What no compiled context reads."""
PLAIN = {"p": 1}


def read(documents: list[Any], **settings: Any) -> list[str]:
    """What became of each document: the kind of its data, or the code of its refusal."""
    reading = GraphReading(Settings(**settings))
    events = [EventReader(max_events=100).from_object(each) for each in documents]
    told = []
    for each in asyncio.run(reading.read(events, Vocabulary())):
        if each.graph is None:
            told.append("plain")
        elif isinstance(each.graph.event, InvalidEvent):
            told.append(each.graph.event.problems[0].code)
        else:
            told.append("tree" if isinstance(each.graph.event.data, Node) else "document")
    return told


def test_documents_are_read_in_order_by_whatever_reads_them() -> None:
    several = {"@context": {"@vocab": EX}, "@graph": [{"p": 1}, {"p": 2}]}
    unknown = {"@context": "http://unknown.example/", "p": 1}
    assert read([SLOW, PLAIN, QUICK, several, unknown]) == ["tree", "plain", "tree", "several-events", "document"]
    assert read([QUICK]) == ["tree"]
    assert read([SLOW]) == ["tree"]


def test_documents_beyond_the_budgets_of_a_request_are_refused() -> None:
    values = values_of(QUICK, 100)
    assert values == 3
    found = read([QUICK, PLAIN, QUICK, QUICK], max_graph_values_per_request=2 * values)
    assert found == ["tree", "plain", "tree", "too-many-values"]
    found = read([SLOW, QUICK, SLOW, SLOW], max_graph_seconds_per_request=1e-9)
    assert found == ["tree", "tree", "reading-too-slow", "reading-too-slow"]


def test_a_document_that_takes_the_reference_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "MOST_SECONDS", -1.0)
    assert read([SLOW]) == ["reading-too-slow"]


def bundle(*objects: Any) -> dict[str, Any]:
    return {"type": "bundle", "id": "bundle--1", "objects": list(objects)}


def test_a_graph_in_an_envelope_of_plain_json_is_read_here_too() -> None:
    """It takes as long as any other; envelopes that hold none are no graphs, whatever their number."""
    assert read([bundle(SLOW)]) == ["tree"]
    assert read([bundle(QUICK), {"objects": 5}, bundle(SLOW), bundle(PLAIN)]) == ["tree", "plain", "tree", "plain"]
    assert read([bundle(QUICK, SLOW)]) == ["plain"], "of several nothing is read"
    assert read([bundle(PLAIN), bundle(PLAIN)], max_graph_values_per_request=1) == ["plain", "plain"]
    assert read([bundle(SLOW), bundle(SLOW)], max_graph_seconds_per_request=1e-9) == ["tree", "reading-too-slow"]


@pytest.mark.parametrize("lane", ["_quick", "_slow"])
def test_who_is_cancelled_keeps_the_lane_until_its_thread_has_ended(monkeypatch: pytest.MonkeyPatch, lane: str) -> None:
    """The thread goes on with the caches of the lane, and the next one must not use them beside it."""
    begun, may_end = threading.Event(), threading.Event()

    def waits(_: Canonicaliser, event: Event, *, quickly: bool = False) -> tuple[Event, tuple[()]]:
        if quickly and lane == "_slow":
            raise TakesLong
        begun.set()
        assert may_end.wait(60)
        return event, ()

    async def body() -> None:
        reading = GraphReading(Settings())
        lock: asyncio.Lock = getattr(reading, lane).lock
        events = [EventReader(max_events=100).from_object(each) for each in (QUICK, QUICK)]
        task = asyncio.create_task(reading.read(events, Vocabulary()))
        try:
            assert await asyncio.to_thread(begun.wait, 60)
            for _ in range(3):
                task.cancel()
                for _ in range(10):
                    await asyncio.sleep(0)
                assert lock.locked()
        finally:
            may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not lock.locked()

    monkeypatch.setattr(Canonicaliser, "graph_event", waits)
    asyncio.run(body())


def test_what_was_read_under_another_vocabulary_is_read_again() -> None:
    vocabulary = Vocabulary()
    state = SimpleNamespace(matcher=Matcher(vocabulary), vocabulary=vocabulary, last_accepted_at=0.0)
    reading = _Reading(cast(State, state), now=0.0)
    refused = ReadGraph(vocabulary, InvalidEvent([Problem("no-event", "so it was read")]))
    event = Event(QUICK, {})
    assert reading.event(event, refused) is refused.event
    assert not isinstance(reading.event(event, replace(refused, vocabulary=Vocabulary())), InvalidEvent)
