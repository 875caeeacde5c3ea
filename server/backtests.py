"""Backtests: which stored events an expression would have matched, under a chosen vocabulary.

    few events    read in pages, matched in a worker thread       kindcast.semantic.backtest
    many events   written as Parquet, matched by a Spark job      a process of its own, whose progress is passed on

Spark is an extra: without it a server says what to install, and when.
"""

import asyncio
import importlib.util
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from sqlalchemy import Connection, Row

from kindcast.semantic import Vocabulary
from kindcast.semantic.backtest import Backtest, PastEvent
from kindcast.semantic.errors import InvalidEvent
from kindcast.semantic.events import published_id
from kindcast.semantic.ontology import Ontology, Progress, encode
from kindcast.semantic.operators import Operator, operators_by_name
from kindcast.semantic.subscriptions import compile_expression
from kindcast.semantic.units import parse_instant
from kindcast.server.broker import Broker
from kindcast.server.cloudevents import EventReader, arrived, arrived_document
from kindcast.server.errors import BacktestFailed, BrokerBusy, RecordDamaged, SparkMissing, StoreUnavailable
from kindcast.server.operators.registry import DataKind, data_documents, operators_of
from kindcast.server.security.permissions import Roles, check_visible
from kindcast.server.settings import Settings
from kindcast.server.store.events import count_between, last_sequence, list_whole_events
from kindcast.server.worker_threads import run_in_turn

__all__ = ["Asked", "Backtests"]

PAGE = 2_000
"""The number of events that are read and matched at one time. The event loop runs in between."""
FILE_EVENTS, FILE_BYTES = 25 * PAGE, 64 << 20
"""A file of events for Spark ends with the page that reaches one of these. It is in memory while it is written."""
FOLDER = "backtest-"
"""The beginning of the name of the folder, in the data folder, with the events of a backtest by Spark."""
WAITING = 8
"""The maximum number of waiting backtests. More are refused with `BrokerBusy`."""
FEWER = "ask for fewer events with since and until"
MISSING = f"pip install 'kindcast[spark]' (and Java 17 or newer), or {FEWER}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A requested backtest: an expression over the events accepted between two times (seconds since 1970), under the
    active vocabulary with other `versions` of some ontologies."""

    expression: str | Mapping[str, Any]
    versions: Mapping[str, int]
    since: float | None = None
    until: float | None = None
    language: str = "en"
    roles: Roles = None
    """The roles of the caller. Attributes that are hidden from them are removed from the events, and the expression may
    not use them."""


class Backtests:
    """Runs one backtest at a time, because each may read every stored event. On the application's event loop."""

    def __init__(self, broker: Broker, settings: Settings, reader: EventReader) -> None:
        self._broker = broker
        self._settings = settings
        self._reader = reader
        self._turn = asyncio.Lock()
        self._waiting = 0
        self._running: asyncio.subprocess.Process | None = None
        self._stopped = False

    async def check(self, asked: Asked, client: Hashable) -> None:
        """Checks a request before it begins, and that the stored events can be read now. Raises `InvalidSubscription`,
        `HiddenAttribute`, `UnknownOntology`, `BrokerBusy`, `StoreUnavailable`."""
        self._refuse_crowds()
        vocabulary = (await self._vocabulary(asked))[1]
        operators = operators_by_name(self._operators())
        compiled = await run_in_turn(
            lambda: compile_expression(asked.expression, vocabulary, operators),
            len(msgspec.json.encode(asked.expression)),
            client,
        )
        for each in (vocabulary, self._broker.vocabulary):
            check_visible(each.view_of_roles(asked.roles), compiled.tree, explained=True)
        await self._broker.read(last_sequence)

    @contextmanager
    def room(self) -> Iterator[None]:
        """A context manager that reserves room for one backtest. Raises `BrokerBusy` if there is none: many may have
        been checked at the same time."""
        self._refuse_crowds()
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1

    async def run(self, asked: Asked, progress: Progress) -> dict[str, Any]:
        """Returns the report of `kindcast.semantic.backtest`. Raises `SparkMissing`, `BacktestFailed`,
        `StoreUnavailable`."""
        async with self._turn:
            first, last, count = await self._broker.read(
                lambda connection: count_between(connection, asked.since, asked.until)
            )
            if count <= self._settings.backtest_events:
                return await self._here(asked, first, last, count, progress)
            if importlib.util.find_spec("pyspark") is None:
                most = self._settings.backtest_events
                raise SparkMissing(f"{count:,} events are in the interval; more than {most:,} need Spark: {MISSING}")
            return await self._by_spark(asked, first, last, count, progress)

    def remove_left_behind(self) -> None:
        """Removes what a killed server wrote for Spark: it has events that the retention may have dropped since."""
        for each in self._settings.data.glob(f"{FOLDER}*"):
            shutil.rmtree(each, ignore_errors=True)

    def _refuse_crowds(self) -> None:
        if self._waiting >= WAITING:
            raise BrokerBusy("too many backtests are waiting: try again later")

    def stop(self) -> None:
        """Ends the running backtest when the server stops."""
        self._stopped = True
        if self._running is not None:
            _kill(self._running)

    def _check_running(self) -> None:
        """Raises `StoreUnavailable` if the server stops: the counts of a part of the events are no result."""
        if self._stopped:
            raise StoreUnavailable("the server is stopping: ask for the backtest again after its restart")

    # ── in this process ─────────────────────────────────────────────────────────────────────────────────────────

    async def _here(self, asked: Asked, first: int, last: int, count: int, progress: Progress) -> dict[str, Any]:
        _, vocabulary = await self._vocabulary(asked)
        test = await asyncio.to_thread(Backtest, vocabulary, asked.expression, operators=self._operators())
        done, after = 0, first - 1
        while after < last:
            self._check_running()
            progress("backtest", done, count)
            page, unreadable, after = await self._broker.read(
                partial(self._page, after=after, last=last, roles=asked.roles)
            )
            await asyncio.to_thread(test.feed, page)
            test.counts.unreadable += unreadable
            done += len(page) + unreadable
        hides_linked = self._broker.vocabulary.view_of_roles(asked.roles) is not None
        return await asyncio.to_thread(test.report, language=asked.language, hides_linked=hides_linked)

    def _page(self, connection: Connection, after: int, last: int, roles: Roles) -> tuple[list[PastEvent], int, int]:
        """Returns the next events, the number of those that cannot be read, and the sequence number up to which they
        are complete. Runs in a worker thread."""
        rows, unreadable, through = self._whole(connection, after, last)
        page = []
        for row in rows:
            try:
                page.append(self._past(row, roles))
            except InvalidEvent:
                unreadable += 1
        return page, unreadable, through

    def _whole(self, connection: Connection, after: int, last: int) -> tuple[list[Row[Any]], int, int]:
        """Returns the next undamaged events, the number of damaged ones, which are noted, and the sequence number up to
        which they are complete."""
        found = list_whole_events(connection, after=after, last=last, limit=PAGE)
        for sequence in found.damaged:
            self._broker.damage.note(RecordDamaged(sequence).record)
        is_end = not found.rows and not found.damaged
        return found.rows, len(found.damaged), last if is_end else found.through

    def _past(self, row: Any, roles: Roles) -> PastEvent:
        event = arrived(self._reader.stored(self._body(row, roles)), row.accepted_at)
        return PastEvent(
            row.source,
            published_id(row.id),
            _day(_micros(event.context.get("time"), row.accepted_at)),
            event,
        )

    # ── by Spark ────────────────────────────────────────────────────────────────────────────────────────────────

    async def _by_spark(self, asked: Asked, first: int, last: int, count: int, progress: Progress) -> dict[str, Any]:
        ontologies, vocabulary = await self._vocabulary(asked)
        operators = operators_by_name(self._operators())
        compiled = await asyncio.to_thread(compile_expression, asked.expression, vocabulary, operators)
        documents = await self._broker.read(partial(self._documents, called=operators_of(compiled.tree)))
        folder = Path(tempfile.mkdtemp(prefix=FOLDER, dir=self._settings.data))
        try:
            await asyncio.to_thread(self._write_inputs, folder / "inputs", asked, ontologies, documents)
            written, unreadable, after, number = 0, 0, first - 1, 0
            (folder / "events").mkdir()
            while after < last:
                self._check_running()
                progress("export", written, count)
                rows, damaged, after = await self._broker.read(
                    partial(self._rows, after=after, last=last, roles=asked.roles)
                )
                await asyncio.to_thread(_write_rows, folder / "events" / f"{number:06}.parquet", rows)
                written, unreadable, number = written + len(rows), unreadable + damaged, number + 1
            self._check_running()
            report = await self._job(folder, progress)
            return {**report, "unreadable": report["unreadable"] + unreadable}
        finally:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    def _rows(
        self, connection: Connection, after: int, last: int, roles: Roles
    ) -> tuple[list[dict[str, Any]], int, int]:
        found: list[dict[str, Any]] = []
        unreadable, size = 0, 0
        while len(found) < FILE_EVENTS and size < FILE_BYTES and after < last:
            rows, damaged, after = self._whole(connection, after, last)
            unreadable += damaged
            for row in rows:
                event = arrived_document(self._body(row, roles), row.accepted_at)
                time = _micros(event.get("time"), row.accepted_at)
                body = msgspec.json.encode(event).decode()
                size += len(body)
                found.append({"source": row.source, "id": published_id(row.id), "time": time, "body": body})
        return found, unreadable, after

    def _body(self, row: Any, roles: Roles) -> str:
        view = self._broker.vocabulary.view_of_roles(roles)
        body: str = row.body
        return body if view is None else view.explainable(body, keeps_linked=True)

    def _documents(self, connection: Connection, called: set[str]) -> list[tuple[DataKind, str, bytes]]:
        """Returns the data of the operators that the expression calls. Raises `BacktestFailed`."""
        for name in sorted(called):
            entry = self._broker.state.operators.entries.get(name)  # None if it was deleted a moment ago
            if entry is not None and entry.kind == "remote":
                raise BacktestFailed(f"Spark jobs do not call remote operators such as {name}: {FEWER}")
        return data_documents(connection, self._settings.operator_data, called)

    def _write_inputs(
        self, folder: Path, asked: Asked, ontologies: list[Ontology], documents: list[tuple[DataKind, str, bytes]]
    ) -> None:
        folder.mkdir()
        (folder / "operator_data").write_bytes(msgspec.msgpack.encode(documents))
        hides_linked = self._broker.vocabulary.view_of_roles(asked.roles) is not None
        question = {"expression": asked.expression, "language": asked.language, "hides_linked": hides_linked}
        (folder / "asked.json").write_text(json.dumps(question, default=dict), encoding="utf-8")
        for number, ontology in enumerate(ontologies):
            (folder / f"{number:03}.records").write_bytes(encode(ontology))
        declared = json.dumps(self._broker.state.declarations.arguments(), default=dict)
        (folder / "declarations.json").write_text(declared, encoding="utf-8")

    async def _job(self, folder: Path, progress: Progress) -> dict[str, Any]:
        inputs = folder / "inputs"
        places = ["--inputs", inputs, "--archive", folder / "events", "--asked", inputs / "asked.json"]
        self._running = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "kindcast.spark_jobs", "backtest", *map(str, places)),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            start_new_session=True,
            limit=1 << 26,
        )
        try:
            self._check_running()
            assert self._running.stdout is not None
            async for line in self._running.stdout:
                said = json.loads(line)
                if "result" in said:
                    result: dict[str, Any] = said["result"]
                    return result
                if "problem" in said:
                    raise BacktestFailed(f"the Spark job failed: {said['problem']}")
                progress(said["stage"], said["done"], said["total"])
            self._check_running()
            raise BacktestFailed("the Spark job ended without a result or an error message")
        finally:
            _kill(self._running)
            await self._running.wait()
            self._running = None

    # ── what both need ──────────────────────────────────────────────────────────────────────────────────────────

    async def _vocabulary(self, asked: Asked) -> tuple[list[Ontology], Vocabulary]:
        """Returns the active vocabulary, or the one with other versions of ontologies. Raises `UnknownOntology`."""
        vocabulary = self._broker.vocabulary
        if not asked.versions:
            return list(vocabulary.ontologies), vocabulary
        ontologies = await self._broker.vocabulary_commands.with_versions(asked.versions)
        declared = self._broker.state.declarations.arguments()
        return ontologies, await asyncio.to_thread(lambda: Vocabulary(ontologies, **declared))

    def _operators(self) -> tuple[Operator, ...]:
        return tuple(self._broker.state.operators.decided_at_once.values())


def _write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    import pyarrow as pa  # installed with Spark, and needed only with it
    import pyarrow.parquet as pq

    time = pa.timestamp("us", tz="UTC")
    schema = pa.schema([("source", pa.string()), ("id", pa.string()), ("time", time), ("body", pa.string())])
    pq.write_table(pa.Table.from_pylist(rows, schema), path)


def _micros(said: Any, accepted_at: float) -> int:
    """Returns the time of an event: its own, else that of its acceptance."""
    instant = parse_instant(said) if isinstance(said, str) else None
    return instant if instant is not None else round(accepted_at * 1_000_000)


def _day(micros: int) -> str:
    return str(datetime.fromtimestamp(micros // 1_000_000, UTC).date())


def _kill(process: asyncio.subprocess.Process) -> None:
    """Kills a process with the Java process and the workers that it started."""
    if process.returncode is None:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return
