"""The decision of pending candidates, continued each time an operator's answer arrives; the service that decides what
is due; and explanations, which use the same code for events that are not published.

pending rows ──▶ the event's vocabulary, its late matcher ──▶ case ──▶ decided candidates are written at once
                                                               ▲        │ some not answered yet
                                                               └─ woken ◀┘
failed ──▶ the next time of the schedule, or given up

If an operator fails, its candidates wait for the next try, which does not repeat answered calls. In the last try the
other calls are still made, because they may show that the event does not match.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from sqlalchemy import Connection, Row

from kindcast.semantic import CanonicalEvent, Event, Vocabulary
from kindcast.semantic.explanations import chains
from kindcast.semantic.matching import Decision, Link, Step
from kindcast.semantic.operators import Failure
from kindcast.semantic.planner import Experience
from kindcast.server.broker import Broker
from kindcast.server.broker.late_matches import LateDecisions, record_decisions
from kindcast.server.broker.publishing import bindings_json
from kindcast.server.broker.write_queue import WriteQueue
from kindcast.server.cloudevents import EventReader, arrived
from kindcast.server.errors import RecordDamaged
from kindcast.server.operators.answers import EventAnswers
from kindcast.server.operators.registry import first_expectations
from kindcast.server.pending.late_matchers import TURNED_AWAY, Case, LateMatchers, Verdicts
from kindcast.server.settings import Settings
from kindcast.server.store import declarations, subscriptions
from kindcast.server.store import pending as pending_store
from kindcast.server.store.events import find_event
from kindcast.server.store.pending import Retry
from kindcast.server.store.servers import LATE_MATCHING
from kindcast.server.store.subscriptions import trees
from kindcast.server.strict_json import decode

__all__ = [
    "LateMatchingService",
    "Parked",
    "Schedule",
    "blocking_answers",
    "decide_event",
    "decide_now",
    "decision_queue",
    "running_late_matching",
    "subscription_plan",
    "wake",
]

log = logging.getLogger("kindcast.parking")


def decision_queue(broker: Broker) -> WriteQueue[LateDecisions]:
    """Returns the queue of decisions that are being written to disk."""

    async def write(decisions: list[LateDecisions]) -> None:
        await broker.submit(lambda group: record_decisions(group, decisions))

    return WriteQueue(write, log, "late decisions about %d events could not be written; trying again: %s")


UNREADABLE = Failure("failed", "the event cannot be read under the vocabulary that it was accepted under")
DAMAGED = Failure("failed", "the stored event is damaged")


@dataclass(frozen=True, slots=True)
class Parked:
    """The due candidates of one event: (number, id, tries so far) each. `last`: this is their last try."""

    event: int
    version: str
    last: bool
    candidates: Sequence[tuple[int, str, int]]


@dataclass(frozen=True, slots=True)
class Schedule:
    """The retry schedule of failed candidates."""

    delays: Sequence[float]

    def next_try(self, tries: int, now: float, *, not_before: float = 0.0) -> float | None:
        """Returns the time of the next try after this many failed tries; None if there is none.

        >>> Schedule((1.0, 5.0)).next_try(1, 100.0), Schedule((1.0, 5.0)).next_try(3, 100.0)
        (101.0, None)
        """
        return None if tries > len(self.delays) else max(now + self.delays[tries - 1], not_before)

    def is_last(self, tries: int) -> bool:
        """Whether the try after this many failed tries is the last."""
        return tries >= len(self.delays)


@dataclass(slots=True)
class _Open:
    """Candidates that are not decided yet, by id."""

    numbers: dict[str, int]
    tries: dict[str, int]
    written: "list[asyncio.Future[None]]" = field(default_factory=list)
    postponed: set[str] = field(default_factory=set)
    """Candidates that are tried again later."""


async def decide_event(
    parked: Parked,
    late_matchers: LateMatchers,
    queue: WriteQueue[LateDecisions],
    schedule: Schedule,
    reader: EventReader,
) -> None:
    """Decides the candidates of one event. Returns when each is decided or postponed, on disk. If it is cancelled, the
    others stay parked."""
    open = _Open(
        numbers={id: number for number, id, _ in parked.candidates},
        tries={id: tries for _, id, tries in parked.candidates},
    )
    try:
        row = await late_matchers.broker.read(lambda connection: find_event(connection, parked.event))
    except RecordDamaged:
        damaged = Verdicts(undecided=dict.fromkeys(open.numbers, DAMAGED))
        _queue_decisions(parked.event, damaged, open, queue, schedule)
        return
    if row is None:
        return  # the event was deleted because of its age, with its candidates
    loop, woken = asyncio.get_running_loop(), asyncio.Event()
    vocabulary = await late_matchers.versions.get(parked.version)
    event = arrived(reader.from_object(decode(row.body.encode())).event, row.accepted_at)
    with late_matchers.answers.of(parked.event, open.numbers) as (answers, open.postponed):
        event_answers = EventAnswers(late_matchers.operator_clients, woken=lambda: wake(loop, woken), answers=answers)
        try:
            begin = partial(_begin, late_matchers, vocabulary, event, event_answers, patient=not parked.last)
            case = await _begun(late_matchers, vocabulary, open, begin)
            if case is not None and case.costly:
                verdicts = await late_matchers.texts.ask(case.costly)
                otherwise = TURNED_AWAY if verdicts is None else None
                await late_matchers.run(partial(case.settle, verdicts or {}, otherwise))
            while case is not None and open.numbers:
                woken.clear()
                _queue_decisions(parked.event, await late_matchers.run(case.advance), open, queue, schedule)
                if open.numbers:
                    await woken.wait()
            if case is None and open.numbers:
                unreadable = Verdicts(undecided=dict.fromkeys(open.numbers, UNREADABLE))
                _queue_decisions(parked.event, unreadable, open, queue, schedule)
        finally:
            event_answers.cancel()
    await asyncio.gather(*open.written)


def _begin(
    late_matchers: LateMatchers,
    vocabulary: Vocabulary,
    event: Event,
    event_answers: EventAnswers,
    ids: Sequence[str],
    *,
    patient: bool,
) -> Case | list[str] | None:
    """Begins a case. Returns it, or a list of the subscriptions that the late matcher lacks (it may have been rebuilt),
    or None if the event cannot be read. Runs in the thread of the late matchers."""
    late_matcher = late_matchers.at(vocabulary)
    lacking = late_matcher.lacks(ids)
    if lacking:
        return lacking
    canonical = late_matcher.canonical(event)
    return None if canonical is None else late_matcher.begin(canonical, ids, event_answers, patient=patient)


async def _begun(
    late_matchers: LateMatchers,
    vocabulary: Vocabulary,
    open: _Open,
    begin: Callable[[Sequence[str]], Case | list[str] | None],
) -> Case | None:
    """Returns the case, after the late matcher has the subscriptions of all candidates; None if the event cannot be
    read. Candidates of deleted subscriptions are dropped."""
    while True:
        found = await late_matchers.run(partial(begin, tuple(open.numbers)))
        if not isinstance(found, list):
            return found
        numbers = [open.numbers[id] for id in found]
        known = await late_matchers.broker.read(partial(_trees, numbers=numbers))
        await late_matchers.run(partial(_learn, late_matchers, vocabulary, known))
        open.numbers = {id: number for id, number in open.numbers.items() if id in known or id not in found}


def _queue_decisions(
    event: int, verdicts: Verdicts, open: _Open, queue: WriteQueue[LateDecisions], schedule: Schedule
) -> None:
    """Adds the decisions made so far to the queue."""
    now = time.time()
    matched = {id: match for id, match in verdicts.matched.items() if id in open.numbers}
    unmatched = [id for id in verdicts.unmatched if id in open.numbers]
    failed = {
        id: failure for id, failure in verdicts.undecided.items() if id in open.numbers and failure.kind != "waiting"
    }
    retries = []
    for id, failure in failed.items():
        retries.append(_retry(event, open.numbers[id], failure, open.tries[id], schedule, now))
        if retries[-1]["of_next_try_at"] is not None:
            open.postponed.add(id)
    if matched or unmatched or retries:
        decisions = LateDecisions(
            event=event,
            matched={open.numbers[id]: bindings_json(match) for id, match in matched.items()},
            unmatched=[open.numbers[id] for id in unmatched],
            retries=retries,
        )
        open.written.append(queue.add(decisions))
        settled = {*matched, *unmatched, *failed}
        open.numbers = {id: number for id, number in open.numbers.items() if id not in settled}


def _retry(event: int, number: int, failure: Failure, tries: int, schedule: Schedule, now: float) -> Retry:
    """Returns the row of a failed try. A call that was refused because the operator is busy does not count as a try."""
    after = now + (failure.after or 0.0)
    if failure.kind != "busy":
        tries += 1
        at = None if failure.for_good else schedule.next_try(tries, now, not_before=after)
    else:
        at = after
    return {
        "of_event": event,
        "of_subscription": number,
        "of_reason": failure.reason,
        "of_kind": failure.kind,
        "of_tries": tries,
        "of_next_try_at": at,
    }


def _learn(late_matchers: LateMatchers, vocabulary: Vocabulary, trees: Mapping[str, Any]) -> None:
    late_matchers.at(vocabulary).learn_trees(trees)


def _trees(connection: Connection, numbers: Sequence[int]) -> dict[str, Any]:
    rows: list[Row[Any]] = list(trees(connection, live_only=False, numbers=numbers))
    return {row.id: row.tree for row in rows}


def wake(loop: asyncio.AbstractEventLoop, woken: asyncio.Event) -> None:
    """Wakes the task of an event when an answer has arrived. May be called in any thread."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(woken.set)


# ── the service: due candidates are decided, a bounded number of events at a time ─────────────────────────────────────
#
#     broker parks ──▶ woken ──▶ due rows, each read once ──▶ one task per event ──▶ decided
#     start ─────────▶            ▲
#     timer, the next try ────────┘
#
# Rows are read in the order of their next try. A row belongs to its task until it is decided or postponed. If the
# process is killed, nothing is lost: the rows are read again.

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
            beside = [group.create_task(self._keep_learned())]
            if self.late_matchers.circuits is not None:
                beside.append(group.create_task(self.late_matchers.circuits.run()))
            while not self._stopping:
                self._woken.clear()
                sleep = await self._begin_due()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._woken.wait(), sleep)
            for task in self._tasks:
                task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks)
            for each in beside:
                each.cancel()
            self._queue.close()
        with contextlib.suppress(Exception):  # statistics that are lost are measured again
            await self.keep_learned()
        await self.late_matchers.close()

    async def keep_learned(self) -> None:
        """Stores the statistics of operators, if they have changed. If another server decides, and so measures, reads
        its statistics instead."""
        if self.broker.leases.fence(LATE_MATCHING) is None:
            records = await self.broker.read(declarations.find_learned)
            await self.late_matchers.run(lambda: self.late_matchers.experience.replace(records))
            return
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
            busy = frozenset(self._busy)  # of before the read, which may still see rows that are decided meanwhile
            limit = ROWS_PER_READ + len(busy)

            def read(connection: Connection) -> tuple[list[Row[Any]], float | None]:
                return pending_store.due(connection, now, limit=limit), pending_store.next_due(connection, after=now)

            rows, upcoming = await self.broker.read(read)
            free = [row for row in rows if (row.event, row.subscription) not in busy]
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


# ── explanations: answers of operators about an unpublished event, and plans of the planner ───────────────────────────
#
# Explanations use the code of published events: the same late matcher, the same planner with its statistics, and calls
# that are shared with running calls. An explanation of one subscription makes all its calls and waits for them in a
# worker thread.

PREVIEW_SECONDS = 10.0
"""The time limit for tests of long texts of an unpublished event, because a user waits for them."""

NOT_IN_TIME = Failure("timed_out", "its texts could not be searched in time; a published event is decided later")


def blocking_answers(late_matchers: LateMatchers) -> EventAnswers:
    """Returns answers that wait for operators, for use with `answering_from` in a thread that may wait. Must be called
    on the event loop."""
    return EventAnswers(late_matchers.operator_clients)


async def decide_now(
    late_matchers: LateMatchers, vocabulary: Vocabulary, event: CanonicalEvent, ids: Sequence[str]
) -> tuple[Verdicts, dict[str, Any]]:
    """Returns the verdicts on these candidates in their first try, and the plan: which calls were made, in which order,
    why, and how many were saved. Subscriptions in `ids` that were deleted meanwhile do not match."""

    def read(connection: Connection) -> dict[str, Any]:
        found = (subscriptions.find_subscription(connection, id) for id in ids)
        return {row.id: row.tree for row in found if row is not None}

    trees = await late_matchers.broker.read(read)
    loop, woken = asyncio.get_running_loop(), asyncio.Event()
    event_answers = EventAnswers(late_matchers.operator_clients, woken=lambda: wake(loop, woken))

    def begin() -> Case:
        late_matcher = late_matchers.at(vocabulary)
        late_matcher.learn_trees(trees)
        return late_matcher.begin(
            event, list(trees), event_answers, patient=late_matchers.is_patient, steps=True, learns=False
        )

    try:
        case = await late_matchers.run(begin)
        if case.costly:
            try:
                async with asyncio.timeout(PREVIEW_SECONDS):
                    searched = await late_matchers.texts.ask(case.costly)
            except TimeoutError:
                searched = None
            await late_matchers.run(partial(case.settle, searched or {}, NOT_IN_TIME))
        while True:
            woken.clear()
            verdicts = await late_matchers.run(case.advance)
            if not case.pending:
                return verdicts, _plan_in_words(case.decision, late_matchers.planner)
            await woken.wait()
    finally:
        event_answers.cancel()


async def subscription_plan(
    late_matchers: LateMatchers, id: str, tree: Mapping[str, Any], vocabulary: Vocabulary
) -> dict[str, Any]:
    """Returns, for each clause of a subscription with operators, its calls in the order of the planner for an event
    without other candidates. Each call has its expected cost, the probability that it holds, and the number of clauses
    of all subscriptions that share it."""

    def work() -> list[list[Link]]:
        late_matcher = late_matchers.at(vocabulary)
        late_matcher.learn_trees({id: tree})
        return chains(late_matcher.matcher, id) if id in late_matcher.matcher else []

    found = await late_matchers.run(work)
    layer = late_matchers.broker.state.matcher.layer
    told, seconds = [], 0.0
    for chain in found:
        total, reached, calls = 0.0, 1.0, []
        for link in chain:
            total += reached * link.seconds
            calls.append(
                {
                    "call": str(link.call) if link.wanted else f"not {link.call}",
                    "expected_seconds": link.seconds,
                    "expected_true": link.chance,
                    "asked_with_probability": reached,
                    "held_by_clauses": layer.holders(link.call),
                }
            )
            reached *= link.passing
        told.append({"calls": calls, "expected_seconds": total, "expected_true": reached})
        seconds += total
    return {"planner": late_matchers.planner, "clauses": told, "expected_seconds": seconds}


def _plan_in_words(decision: Decision, planner: str) -> dict[str, Any]:
    steps = [_step(each) for each in decision.steps or ()]
    asked = len(decision.asked)
    return {"planner": planner, "calls": steps, "asked": asked, "saved": max(0, decision.literals - asked)}


def _step(step: Step) -> dict[str, Any]:
    why = (
        f"{step.popularity} open clauses contained it, {step.work} of their calls depended on it; expected cost "
        f"{step.seconds:.3g} s, probability {step.chance:.2g}"
    )
    return {
        "call": str(step.call),
        "why": why,
        "expected_seconds": step.seconds,
        "expected_true": step.chance,
        "held": step.outcome,
        "failure": None if step.failure is None else {"kind": step.failure.kind, "reason": step.failure.reason},
        "settled": step.settled,
    }
