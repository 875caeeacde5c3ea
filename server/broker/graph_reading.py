"""Reading of linked data before its events enter the writer's queue, so that no document delays the events of others.

    request ──quick lane: slices in turn──▶ compiled contexts read it ─────────▶ queue
                   └──slow lane: one document at a time──▶ PyLD, large RDF ────▶ queue

Each lane reads for one request at a time, in a worker thread, and requests take turns. So large or unusual documents
wait only for each other, and other requests continue. A graph may be inside an envelope of plain JSON.
"""

import asyncio
import dataclasses
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from kindcast.semantic import Event, InvalidEvent, Problem, Vocabulary
from kindcast.semantic.events import Canonicaliser, TakesLong
from kindcast.semantic.model import Node
from kindcast.server.cloudevents import DecodedEvent, ReadGraph, ReadingBudget, with_digest_as_id
from kindcast.server.settings import Settings
from kindcast.server.worker_threads import run_to_the_end

__all__ = ["GraphReading"]

SLICE_SECONDS = 0.02
"""How long a request reads before it is the turn of another one."""
EVENTS_AT_A_TIME = 500
"""The number of events that the event loop looks at before it turns to other requests."""
SMALL = 1 << 12
"""A document of up to this many characters is read at once if nobody else is reading, because a thread costs more."""
CHARACTERS_OF_A_STATEMENT = 40
"""The approximate length of an RDF statement. It is used only to limit their number."""


class _Lane:
    """A lane: a reader of graphs under the active vocabulary, and its lock."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self._canonicaliser: Canonicaliser | None = None
        self._vocabulary: Vocabulary | None = None

    def reader(self, vocabulary: Vocabulary) -> Canonicaliser:
        """Returns the reader. Only the holder of the lock may read with it; others may only ask it which events may
        hold a graph."""
        if self._canonicaliser is None or self._vocabulary is not vocabulary:
            self._canonicaliser, self._vocabulary = Canonicaliser(vocabulary), vocabulary
        return self._canonicaliser


class GraphReading:
    """Reads graphs for the broker, on one event loop."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._quick = _Lane()
        self._slow = _Lane()

    def budget(self) -> ReadingBudget:
        """Returns the budget of a new request."""
        settings = self._settings
        return ReadingBudget(
            values=settings.max_graph_values_per_request, seconds=settings.max_graph_seconds_per_request
        )

    async def read(
        self, events: Sequence[DecodedEvent], vocabulary: Vocabulary, budget: ReadingBudget | None = None
    ) -> Sequence[DecodedEvent]:
        """Returns the events. Those that are graphs are read under `vocabulary`, within `budget` (by default that of a
        new request), and have the result as `graph`."""
        reader = self._quick.reader(vocabulary)
        graphs = [number for number, each in enumerate(events) if reader.may_hold_graph(each.event)]
        if not graphs:
            return events
        first = events[graphs[0]]
        if len(events) == 1 and len(first.body) <= SMALL:
            if not reader.holds_graph(first.event):
                return events
            if not self._quick.lock.locked():
                read = _read_graph(reader, first.event, vocabulary, quickly=True)
                if read is not None:
                    return [_with_graph(first, read)]
        found = await self._read([events[number].event for number in graphs], vocabulary, budget or self.budget())
        known = dict(zip(graphs, found, strict=True))
        return [_with_graph(each, known.get(number)) for number, each in enumerate(events)]

    async def read_events(self, events: Sequence[Event], vocabulary: Vocabulary) -> list[ReadGraph | None]:
        """Reads the events that are graphs under `vocabulary`. Returns None for the others."""
        reader = self._quick.reader(vocabulary)
        graphs: list[int] = []
        for start in range(0, len(events), EVENTS_AT_A_TIME):
            some = enumerate(events[start : start + EVENTS_AT_A_TIME], start)
            graphs += [number for number, each in some if reader.may_hold_graph(each)]
            await asyncio.sleep(0)
        found = await self._read([events[number] for number in graphs], vocabulary, self.budget()) if graphs else []
        known = dict(zip(graphs, found, strict=True))
        return [known.get(number) for number in range(len(events))]

    async def _read(
        self, events: Sequence[Event], vocabulary: Vocabulary, budget: ReadingBudget
    ) -> list[ReadGraph | None]:
        """Reads the documents of one request. Returns the results in order, and None for documents without a graph."""
        found: list[ReadGraph | None] = []
        handed_over: list[int] = []

        def read_some(reader: Canonicaliser) -> None:
            until = time.perf_counter() + SLICE_SECONDS
            while len(found) < len(events) and time.perf_counter() < until:
                event, read = events[len(found)], None
                if reader.holds_graph(event):
                    read = self._refused(event, vocabulary, budget) or _read_graph(
                        reader, event, vocabulary, quickly=True
                    )
                    if read is None:
                        handed_over.append(len(found))
                found.append(read)

        while len(found) < len(events):
            async with self._quick.lock:
                await run_to_the_end(partial(read_some, self._quick.reader(vocabulary)))
        for number in handed_over:
            found[number] = await self._read_slowly(events[number], vocabulary, budget)
        return found

    def _refused(self, event: Event, vocabulary: Vocabulary, budget: ReadingBudget) -> ReadGraph | None:
        """Counts the values of a document. Returns the error if its request has too many; else None."""
        budget.values -= values_of(event.data, budget.values)
        if budget.values >= 0:
            return None
        most = self._settings.max_graph_values_per_request
        detail = f"the documents of the request hold more than {most:,} values: send fewer documents in one request"
        return ReadGraph(vocabulary, InvalidEvent([Problem("too-many-values", detail)]))

    async def _read_slowly(self, event: Event, vocabulary: Vocabulary, budget: ReadingBudget) -> ReadGraph | None:
        try:
            budget.check_seconds()
        except InvalidEvent as problem:
            return ReadGraph(vocabulary, problem)

        def timed(reader: Canonicaliser) -> tuple[ReadGraph | None, float]:
            began = time.thread_time()
            return _read_graph(reader, event, vocabulary), time.thread_time() - began

        async with self._slow.lock:
            read, seconds = await run_to_the_end(partial(timed, self._slow.reader(vocabulary)))
        budget.seconds -= seconds
        return read


def _with_graph(event: DecodedEvent, read: ReadGraph | None) -> DecodedEvent:
    """Returns an event with what was read. If it is a graph and has no id of the publisher, its digest becomes its id,
    so that the same document is the same event (rule 21)."""
    if read is None:
        return event
    if event.id_is_ours and isinstance(read.event, Event) and isinstance(read.event.data, Node):
        event = with_digest_as_id(event)
        read = dataclasses.replace(read, event=Event(read.event.data, {**read.event.context, "id": event.id}))
    return replace(event, graph=read)


def _read_graph(
    reader: Canonicaliser, event: Event, vocabulary: Vocabulary, *, quickly: bool = False
) -> ReadGraph | None:
    """Reads a graph; returns None if it takes long and is to be read `quickly`."""
    try:
        return ReadGraph(vocabulary, *reader.graph_event(event, quickly=quickly))
    except TakesLong:
        return None
    except InvalidEvent as problem:
        return ReadGraph(vocabulary, problem)


def values_of(data: Any, most: int) -> int:
    """Returns how many values a document holds. Counting stops at `most`. Cost: linear, without recursion."""
    if isinstance(data, str | bytes):
        return 1 + len(data) // CHARACTERS_OF_A_STATEMENT
    count, stack = 0, [data]
    while stack and count <= most:
        node = stack.pop()
        if isinstance(node, dict | list):
            count += len(node)
            stack.extend(node.values() if isinstance(node, dict) else node)
    return count
