"""The late-matching service of one server process: decides due candidates, a bounded number of events at a time.

    broker parks ──▶ woken ──▶ due rows, each read once ──▶ one task per event ──▶ decided
    start ─────────▶            ▲
    timer, the next try ────────┘

Rows are read in the order of their next try. A row belongs to its task until it is decided or postponed. If the process
is killed, nothing is lost: the rows are read again.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from sqlalchemy import Connection, Row

from kindcast.semantic.planner import Experience
from kindcast.server.broker import Broker
from kindcast.server.cloudevents import EventReader
from kindcast.server.operators.registry import first_expectations
from kindcast.server.pending.decision import Parked, Schedule, decide_event, decision_queue
from kindcast.server.pending.late_matchers import LateMatchers
from kindcast.server.settings import Settings
from kindcast.server.store import declarations
from kindcast.server.store import pending as pending_store
from kindcast.server.store.servers import LATE_MATCHING

__all__ = ["LateMatchingService", "running_late_matching"]

log = logging.getLogger("kindcast.parking")

EVENTS_AT_ONCE = 1_000
"""The maximum number of events that are decided at the same time. Each holds its body in memory."""
ROWS_PER_READ = 2_000
LONGEST_SLEEP_SECONDS = 30.0
"""After this time the store is read again in any case, because clocks are set and machines sleep."""
FAULT_PAUSE_SECONDS = 5.0
"""The pause after an error of the server itself, for example when the store cannot be read."""
KEEP_SECONDS = 30.0
"""How often new statistics of operators are stored."""


class LateMatchingService:
    """The late matching of one process. Runs on one event loop."""

    def __init__(self, broker: Broker, settings: Settings, experience: Experience) -> None:
        self.broker = broker
        self.late_matchers = LateMatchers(broker, settings, experience)
        self._queue = decision_queue(broker)
        self._schedule = Schedule(settings.operator_delays_seconds)
        self._reader = EventReader(max_events=1)
        self._loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()
        self._woken.set()
        self._stopping = False
        self._busy: set[tuple[int, int]] = set()  # (event, subscription) of rows that belong to a task
        self._tasks: set[asyncio.Task[None]] = set()
        self._kept_evaluations = -1

    def announce(self) -> None:
        """Called when a candidate was parked. May be called in any thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._woken.set)

    def stop(self) -> None:
        """Makes `run` end."""
        self._stopping = True
        self._woken.set()

    async def run(self) -> None:
        """Decides until `stop`. Then it writes the decisions so far; other candidates stay parked."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._queue.run())
            keeper = group.create_task(self._keep_learned())
            while not self._stopping:
                self._woken.clear()
                sleep = await self._begin_due()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._woken.wait(), sleep)
            for task in self._tasks:
                task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks)
            keeper.cancel()
            self._queue.close()
        with contextlib.suppress(Exception):  # statistics that are lost are measured again
            await self.keep_learned()
        await self.late_matchers.close()

    async def keep_learned(self) -> None:
        """Stores the statistics of operators, if they have changed."""
        evaluations, records = await self.late_matchers.run(self._records)
        if evaluations != self._kept_evaluations:
            now = time.time()
            await self.broker.execute(lambda connection: declarations.keep_learned(connection, records, now))
            self._kept_evaluations = evaluations

    def _records(self) -> tuple[int, list[dict[str, Any]]]:
        known = self.late_matchers.experience
        return sum(each.evaluations + each.failures for each in known.operators.values()), known.as_records()

    # ── what is due ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def _begin_due(self) -> float:
        """Starts tasks for the candidates that are due. Returns the seconds until the next ones are due."""
        try:
            if len(self._tasks) >= EVENTS_AT_ONCE:
                return LONGEST_SLEEP_SECONDS  # the next task that ends wakes this
            if not await self.broker.leases.take([LATE_MATCHING]):
                return LONGEST_SLEEP_SECONDS  # another server decides; its end wakes this
            now = time.time()
            limit = ROWS_PER_READ + len(self._busy)

            def read(connection: Connection) -> tuple[list[Row[Any]], float | None]:
                return pending_store.due(connection, now, limit=limit), pending_store.next_due(connection, after=now)

            rows, upcoming = await self.broker.read(read)
            free = [row for row in rows if (row.event, row.subscription) not in self._busy]
            self._begin(free)
            if len(rows) == limit and free:
                return 0.0
            return LONGEST_SLEEP_SECONDS if upcoming is None else min(max(0.0, upcoming - now), LONGEST_SLEEP_SECONDS)
        except Exception:
            log.exception("pending candidates cannot be read; next attempt in %g s", FAULT_PAUSE_SECONDS)
            return FAULT_PAUSE_SECONDS

    def _begin(self, rows: Iterable[Row[Any]]) -> None:
        by_event: dict[tuple[int, str, bool], list[tuple[int, str, int]]] = {}
        for row in rows:
            key = (row.event, row.vocabulary_version, self._schedule.is_last(row.tries))
            by_event.setdefault(key, []).append((row.subscription, row.id, row.tries))
        for (event, version, last), candidates in by_event.items():
            if len(self._tasks) >= EVENTS_AT_ONCE:
                return
            taken = {(event, number) for number, _, _ in candidates}
            self._busy |= taken
            task = asyncio.create_task(self._decide(Parked(event, version, last, candidates), taken))
            self._tasks.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        self._woken.set()

    async def _decide(self, parked: Parked, taken: set[tuple[int, int]]) -> None:
        try:
            await decide_event(parked, self.late_matchers, self._queue, self._schedule, self._reader)
        except Exception:
            log.exception(
                "late matching of event %d failed unexpectedly; next attempt in %g s", parked.event, FAULT_PAUSE_SECONDS
            )
            await asyncio.sleep(FAULT_PAUSE_SECONDS)
        finally:
            self._busy -= taken

    async def _keep_learned(self) -> None:
        while True:
            await asyncio.sleep(KEEP_SECONDS)
            try:
                await self.keep_learned()
            except Exception as error:
                log.error("the statistics of operators could not be written; trying again: %s", error)


@asynccontextmanager
async def running_late_matching(broker: Broker, settings: Settings) -> AsyncIterator[LateMatchingService]:
    """A context manager that decides candidates while its block runs. The broker must run before and after."""
    records = await broker.read(declarations.find_learned)
    experience = Experience.from_records(records)
    experience.begin_with(first_expectations(settings.operator_priors))
    service = LateMatchingService(broker, settings, experience)
    broker.pending_listeners.append(service.announce)
    running = asyncio.create_task(service.run(), name="late matching")
    try:
        yield service
    finally:
        service.stop()
        await running
        broker.pending_listeners.remove(service.announce)
