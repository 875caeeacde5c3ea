"""Graphs are read beside the writer's thread: in order, within the budgets of a request, for one vocabulary."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kindcast import Matcher, Vocabulary
from kindcast.semantic import Event, InvalidEvent, Problem
from kindcast.semantic.events.linked_data import reference
from kindcast.semantic.model import Node
from kindcast.server.broker.graph_reading import GraphReading, values_of
from kindcast.server.broker.group import Group
from kindcast.server.broker.publishing import _Reading
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


def test_what_was_read_under_another_vocabulary_is_read_again() -> None:
    vocabulary = Vocabulary()
    state = SimpleNamespace(matcher=Matcher(vocabulary), vocabulary=vocabulary, last_accepted_at=0.0)
    reading = _Reading(cast(Group, SimpleNamespace(state=state, now=0.0)))
    refused = ReadGraph(vocabulary, InvalidEvent([Problem("no-event", "so it was read")]))
    event = Event(QUICK, {})
    assert reading.event(event, refused) is refused.event
    assert not isinstance(reading.event(event, replace(refused, vocabulary=Vocabulary())), InvalidEvent)
