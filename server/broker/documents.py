"""Reading of documents outside the writer's thread: uploaded ontologies in child processes, linked data of events in
worker threads; with limits on their number, time and memory.

put_ontology ──bytes──▶ wait for a turn ──worker thread──▶ child process ──records──▶ Ontology
"""

import asyncio
import logging
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

import anyio
import anyio.to_thread
from msgspec.structs import replace
from sqlalchemy import Connection, Row

from kindcast.semantic import Event, InvalidEvent, OntologyError, Problem, Vocabulary
from kindcast.semantic.events import Canonicaliser, TakesLong
from kindcast.semantic.ontology import (
    Cancelled,
    Cost,
    Isolation,
    Limits,
    Ontology,
    Progress,
    Reason,
    decode,
    encode,
    silent,
)
from kindcast.server.cloudevents import DecodedEvent, ReadGraph, ReadingBudget
from kindcast.server.errors import BrokerBusy, StoreUnavailable, StoreUnreadable
from kindcast.server.settings import Settings
from kindcast.server.store import ontologies
from kindcast.server.worker_threads import run_to_the_end

__all__ = ["DocumentReader", "GraphReading", "Read", "active_ontologies", "decoded"]

_log = logging.getLogger("kindcast.documents")


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """An ontology that was read, and its records as bytes, the form in which it is stored."""

    ontology: Ontology
    records: bytes


def document_limits(settings: Settings) -> Limits:
    """Returns the limits of an ontology document. Its size is a setting."""
    return Limits(bytes=2 * settings.max_ontology_bytes)


def isolation(settings: Settings) -> Isolation:
    """Returns the limits of a child process that reads a document."""
    return Isolation(
        memory=settings.ontology_memory_bytes,
        cpu_seconds=settings.ontology_cpu_seconds,
        wall_seconds=settings.ontology_seconds,
    )


class DocumentReader:
    """One per broker; its coroutine runs on the broker's event loop."""

    def __init__(self, settings: Settings) -> None:
        self._limits = document_limits(settings)
        self._isolation = isolation(settings)
        self._settings = settings
        self._turns = anyio.CapacityLimiter(settings.ontology_readers)
        self._most = settings.max_queue_ontologies
        self._taken = 0
        self._stopped = threading.Event()

    def take_room(self) -> ExitStack:
        """Reserves room for one upload, until the stack is closed. Raises `BrokerBusy` if there is none."""
        if self._taken >= self._most:
            raise BrokerBusy("too many ontologies are waiting to be read: try again later")
        self._taken += 1
        room = ExitStack()
        room.callback(self._leave)
        return room

    async def read(
        self,
        document: bytes,
        *,
        name: str,
        format: str | None = None,
        reason: Reason = "none",
        relations: Sequence[str] = (),
        progress: Progress = silent,
    ) -> Read:
        """Reads a document. `progress` is called in another thread.

        Raises `StoreUnavailable` if the server stops, and the errors of `kindcast.semantic.ontology.read_isolated`.
        """

        def work() -> Read:
            from kindcast.semantic.ontology import Reasoner, read_encoded  # only when needed

            settings = self._settings
            reasoner = Reasoner(
                java=settings.java, heap_bytes=settings.reasoner_heap_bytes, seconds=settings.reasoner_seconds
            )
            records = read_encoded(
                document,
                format=format,
                name=name,
                limits=self._limits,
                reason=reason,
                relations=relations,
                reasoner=reasoner,
                isolation=self._isolation,
                progress=progress,
                cancelled=self._stopped,
                account=lambda cost: _tell(name, document, cost),
            )
            progress("decode", 0, None)
            return Read(ontology=decode(records), records=records)

        progress("wait", 0, None)
        try:
            return await anyio.to_thread.run_sync(work, limiter=self._turns)
        except Cancelled:
            raise StoreUnavailable("the server is stopping; nothing was changed: try again after its restart") from None

    def stop(self) -> None:
        """Ends every child process. Waiting documents are not read."""
        self._stopped.set()

    def _leave(self) -> None:
        self._taken -= 1


def _tell(name: str, document: bytes, cost: Cost) -> None:
    _log.info(
        "reading %s (%d KiB) took %.1f s, %.1f s of processor time, %d MiB",
        name,
        len(document) >> 10,
        cost.wall_seconds,
        cost.cpu_seconds,
        cost.peak_bytes >> 20,
    )


# ── records ───────────────────────────────────────────────────────────────────────────────────────────────────────────
# Stored records are decoded to ontologies at a start and at an activation, instead of reading documents.
#
# Nothing is parsed, and there is no reasoning. Only if the records of a version are missing (an older server stored
# none) or have another format, its document is read once, and its records are stored.

_broker_log = logging.getLogger("kindcast.broker")


def decoded(records: bytes | None) -> Ontology | None:
    """Returns the decoded ontology; None if the records are missing or in a format that this version does not read."""
    if records is None:
        return None
    try:
        return decode(records)
    except OntologyError:
        return None


def active_ontologies(connection: Connection, settings: Settings) -> list[Ontology]:
    """Returns all active ontologies by name. `connection` must be the writing one. Raises `StoreUnreadable` if one of
    them cannot be read."""
    return [decoded(row.records) or _read_again(connection, row, settings) for row in _rows(connection)]


def _rows(connection: Connection) -> list[Row[Any]]:
    return list(ontologies.active_records(connection))


def _read_again(connection: Connection, row: Row[Any], settings: Settings) -> Ontology:
    _broker_log.info("reading the stored ontology %s, version %d, from its document again", row.name, row.version)
    document = ontologies.find_document(connection, row.name, row.version)
    try:
        from kindcast.semantic.ontology import read_isolated

        ontology = read_isolated(
            document,
            format=row.format,
            name=row.name,
            limits=document_limits(settings),
            reason=row.reason,
            relations=row.relations,
            isolation=isolation(settings),
        )
    except OntologyError as error:
        detail = f"the stored ontology {row.name!r}, version {row.version}, cannot be read: {error}"
        raise StoreUnreadable(detail) from error
    ontologies.keep_records(connection, row.name, row.version, encode(ontology))
    return ontology


# ── linked data ───────────────────────────────────────────────────────────────────────────────────────────────────────
#
# It is read before its events enter the writer's queue, so that no document delays the events of others.
#
#     request ──quick lane: slices in turn──▶ compiled contexts read it ─────────▶ queue
#                    └──slow lane: one document at a time──▶ PyLD, large RDF ────▶ queue
#
# Each lane reads for one request at a time, in a worker thread, and requests take turns. So large or unusual documents
# wait only for each other, and other requests continue. A graph may be inside an envelope of plain JSON.

SLICE_SECONDS = 0.02
"""How long a request reads before it is the turn of another one."""
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
                read = _quickly(reader, first.event, vocabulary)
                if read is not None:
                    return [replace(first, graph=read)]
        found = await self._read([events[number].event for number in graphs], vocabulary, budget or self.budget())
        known = dict(zip(graphs, found, strict=True))
        return [replace(each, graph=known[number]) if number in known else each for number, each in enumerate(events)]

    async def read_events(self, events: Sequence[Event], vocabulary: Vocabulary) -> list[ReadGraph | None]:
        """Reads the events that are graphs under `vocabulary`. Returns None for the others."""
        reader = self._quick.reader(vocabulary)
        graphs = [number for number, each in enumerate(events) if reader.may_hold_graph(each)]
        found = await self._read([events[number] for number in graphs], vocabulary, self.budget()) if graphs else []
        known = dict(zip(graphs, found, strict=True))
        return [known.get(number) for number in range(len(events))]

    async def _read(
        self, events: Sequence[Event], vocabulary: Vocabulary, budget: ReadingBudget
    ) -> list[ReadGraph | None]:
        """Reads the documents of one request. Returns the results in order, and None for documents without a graph."""
        found: dict[int, ReadGraph | None] = {}
        handed_over: list[int] = []
        start = 0

        def some(reader: Canonicaliser) -> None:
            nonlocal start
            until = time.perf_counter() + SLICE_SECONDS
            while start < len(events) and time.perf_counter() < until:
                event = events[start]
                if not reader.holds_graph(event):
                    found[start] = None
                    start += 1
                    continue
                budget.values -= values_of(event.data, budget.values)
                if budget.values < 0:
                    most = self._settings.max_graph_values_per_request
                    detail = (
                        f"the documents of the request hold more than {most:,} values: send fewer documents in "
                        f"one request"
                    )
                    found[start] = ReadGraph(vocabulary, InvalidEvent([Problem("too-many-values", detail)]))
                elif (read := _quickly(reader, event, vocabulary)) is None:
                    handed_over.append(start)
                else:
                    found[start] = read
                start += 1

        while start < len(events):
            async with self._quick.lock:
                await run_to_the_end(partial(some, self._quick.reader(vocabulary)))

        def one(reader: Canonicaliser, event: Event) -> tuple[ReadGraph, float]:
            began = time.thread_time()
            try:
                read = ReadGraph(vocabulary, *reader.graph_event(event))
            except InvalidEvent as problem:
                read = ReadGraph(vocabulary, problem)
            return read, time.thread_time() - began

        for number in handed_over:
            try:
                budget.check_seconds()
            except InvalidEvent as problem:
                found[number] = ReadGraph(vocabulary, problem)
                continue
            async with self._slow.lock:
                reader = self._slow.reader(vocabulary)
                found[number], seconds = await run_to_the_end(partial(one, reader, events[number]))
            budget.seconds -= seconds
        return [found[number] for number in range(len(events))]


def _quickly(reader: Canonicaliser, event: Event, vocabulary: Vocabulary) -> ReadGraph | None:
    """Reads a graph; returns None if it takes long."""
    try:
        return ReadGraph(vocabulary, *reader.graph_event(event, quickly=True))
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
