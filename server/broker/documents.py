"""Parsing of uploaded documents in child processes, with limits on their number, time and memory.

put_ontology ──bytes──▶ wait for a turn ──worker thread──▶ child process ──records──▶ Ontology
"""

import logging
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import anyio
import anyio.to_thread
from sqlalchemy import Connection, Row

from kindcast.semantic import OntologyError
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
from kindcast.server.errors import BrokerBusy, StoreUnavailable, StoreUnreadable
from kindcast.server.settings import Settings
from kindcast.server.store import ontologies

__all__ = ["DocumentReader", "Read", "active_ontologies", "decoded"]


_log = logging.getLogger("kindcast.documents")

LARGE_BYTES = 1 << 20
"""Documents beyond this size share a part of `max_reading_bytes`."""


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

    def __init__(self, settings: Settings, first: "DocumentReader | None" = None) -> None:
        """`first` is the reader of the first broker of this process, with whom others share the child processes."""
        self._limits = document_limits(settings)
        self._isolation = isolation(settings)
        self._settings = settings
        self._turns = anyio.CapacityLimiter(settings.ontology_readers)  # no tenant fills the queue of all
        self._turns_of_all: anyio.CapacityLimiter = (
            anyio.CapacityLimiter(settings.ontology_readers) if first is None else first._turns_of_all
        )
        self._most = settings.max_queue_ontologies
        self._taken = 0
        self._large: list[int] = [] if first is None else first._large
        """The sizes of the large documents of all tenants that are being read or wait."""
        self._stopped = threading.Event()

    def take_room(self, size: int) -> ExitStack:
        """Reserves room for one upload of so many bytes, until the stack is closed. Large documents get half of
        `max_reading_bytes`, because they are in memory for minutes, and the bodies of all other requests need room; one
        is always allowed. Raises `BrokerBusy` if there is no room."""
        if self._taken >= self._most:
            raise BrokerBusy("too many ontologies are waiting to be read: try again later")
        large = [size] if size > LARGE_BYTES else []
        if large and self._large and sum(self._large) + size > self._settings.max_reading_bytes // 2:
            raise BrokerBusy("too many large ontologies are being read: try again later")
        self._taken += 1
        self._large += large
        room = ExitStack()
        room.callback(self._leave, large)
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
        """Reads a document. `progress` is called in another thread. What it raises ends the reading.

        Raises `StoreUnavailable` if the server stops, and the errors of `kindcast.semantic.ontology.read_isolated`.
        """

        def work() -> Read:
            from kindcast.semantic.ontology import Reasoner, read_encoded  # only when needed

            progress("wait", 0, None)
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
            async with self._turns:
                return await anyio.to_thread.run_sync(work, limiter=self._turns_of_all)
        except Cancelled:
            raise StoreUnavailable("the server is stopping; nothing was changed: try again after its restart") from None

    def stop(self) -> None:
        """Ends every child process. Waiting documents are not read."""
        self._stopped.set()

    def _leave(self, large: Sequence[int]) -> None:
        self._taken -= 1
        for size in large:
            self._large.remove(size)


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
