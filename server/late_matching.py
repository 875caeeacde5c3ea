"""Late matching: pending candidates, which wait for operators, are decided beside the broker.

    broker stores ──▶ decision, one task per event ◀──verdicts── late matchers (matcher, planner, statistics)
       ▲                 │
       └─────────────────┘ late matches, next tries

A late matcher is a matcher of the subscriptions with operators, under one version of the vocabulary. All late matchers
share the statistics of the operators. They run in one thread, which never waits: slow operators are called elsewhere,
and a `Case` continues when an answer arrives.

    event, candidates ──▶ cheap predicates again ──▶ planner ──▶ operators, through `EventAnswers`
                                                        └──▶ matched | does not match | undecided, and why

The decision of an event runs on the event loop, and is continued each time an operator's answer arrives. A service
decides what is due. Explanations use the same code for events that are not published.

    pending rows ──▶ the event's vocabulary, its late matcher ──▶ case ──▶ decided candidates are written at once
                                                                   ▲        │ some not answered yet
                                                                   └─ woken ◀┘
    failed ──▶ the next time of the schedule, or given up

If an operator fails, its candidates wait for the next try, which does not repeat answered calls. In the last try the
other calls are still made, because they may show that the event does not match.

This module knows the broker's commands and the operators. It does not touch the broker's matcher. The reasons are in
docs/decisions/20261121-operators-wait-beside-the-broker.md.
"""

import asyncio
import contextlib
import logging
import queue
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Collection, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from sqlalchemy import Connection, Row

from kindcast.semantic import CanonicalEvent, Event, InvalidEvent, InvalidSubscription, Match, Matcher, Vocabulary
from kindcast.semantic.events import EventLimits
from kindcast.semantic.explanations import chains
from kindcast.semantic.matching import (
    NOT_SEARCHED,
    SEARCH_SECONDS,
    CostlyTest,
    Decision,
    Link,
    OpenDecision,
    OperatorLayer,
    Step,
)
from kindcast.semantic.operators import Failure, Operator
from kindcast.semantic.planner import Experience
from kindcast.semantic.units import SearchBudget, searching_within
from kindcast.semantic.vocabulary import Declarations
from kindcast.server.broker import Broker
from kindcast.server.broker.late_matches import LateDecisions, record_decisions
from kindcast.server.broker.publishing import bindings_json
from kindcast.server.broker.write_queue import WriteQueue
from kindcast.server.clock import CLOCK
from kindcast.server.cloudevents import EventReader, arrived
from kindcast.server.errors import RecordDamaged, ServerError
from kindcast.server.operators.operator_clients import (
    AnswerCache,
    EventAnswers,
    OperatorClient,
    OperatorClients,
    SharedCircuits,
)
from kindcast.server.operators.registry import answering_from, first_expectations
from kindcast.server.settings import Settings
from kindcast.server.store import declarations, subscriptions
from kindcast.server.store import pending as pending_store
from kindcast.server.store.events import find_event
from kindcast.server.store.pending import Retry
from kindcast.server.store.servers import LATE_MATCHING
from kindcast.server.store.subscriptions import trees
from kindcast.server.worker_threads import LONG, run_in_turn

__all__ = [
    "TURNED_AWAY",
    "Case",
    "LateMatcher",
    "LateMatchers",
    "LateMatchingService",
    "Parked",
    "Schedule",
    "TextSearches",
    "Verdicts",
    "decide_event",
    "decide_now",
    "decision_queue",
    "explained",
    "running_late_matching",
    "subscription_plan",
    "wake",
]


_log = logging.getLogger("kindcast.late_matching")


# ── late matchers, each under one version of the vocabulary ──────────────────────────────────────────────────────────


@dataclass(slots=True)
class Verdicts:
    """The verdicts on the candidates of one event, by the id of the subscription. A candidate whose operators have not
    answered yet is undecided, with a failure of the kind `waiting`."""

    matched: dict[str, Match] = field(default_factory=dict)
    unmatched: list[str] = field(default_factory=list)
    undecided: dict[str, Failure] = field(default_factory=dict)


class Case:
    """The decision of the candidates of one event, in progress. For the thread of the late matchers only. Later changes
    of operators and subscriptions do not affect it."""

    def __init__(
        self,
        matcher: Matcher,
        open: OpenDecision,
        event_answers: EventAnswers,
        ids: Sequence[str],
        meaningless: Mapping[str, Failure],
    ) -> None:
        self._matcher = matcher
        self._open = open
        self._event_answers = event_answers
        self._ids = ids
        self._meaningless = meaningless
        self._begun = False
        self._not_searched: Failure | None = None

    @property
    def costly(self) -> Mapping[int, CostlyTest]:
        """Text tests that must run outside this thread before `advance`."""
        return self._open.costly

    def settle(self, verdicts: Mapping[int, bool], otherwise: Failure | None = None) -> None:
        """Adds the results of these tests. A candidate without a result is undecided for the reason `otherwise`."""
        self._open.settle(verdicts)
        self._not_searched = otherwise

    @property
    def pending(self) -> bool:
        """Whether an answer is still missing."""
        return self._open.pending

    @property
    def decision(self) -> Decision:
        """The state of the calls."""
        return self._open.decision

    def advance(self) -> Verdicts:
        """Returns the verdicts that are possible now. Only calls that the plan still needs are made."""
        with answering_from(self._event_answers), searching_within(SearchBudget(GROUP_SECONDS)):
            if not self._begun and self._event_answers.has_answers:
                self._open.take_known(self._event_answers.knows)
            self._begun = True
            decided = self._matcher.decided(self._open.advance())
        verdicts = Verdicts({each.subscription: each for each in decided.matches})
        verdicts.undecided = {each.subscription: each.failure for each in decided.undecided} | dict(self._meaningless)
        if self._not_searched is not None:
            for id, failure in verdicts.undecided.items():
                if failure is NOT_SEARCHED:
                    verdicts.undecided[id] = self._not_searched
        verdicts.unmatched = [id for id in self._ids if id not in verdicts.matched and id not in verdicts.undecided]
        return verdicts


class LateMatcher:
    """A matcher of the subscriptions with operators, under one version of the vocabulary. For one thread only."""

    def __init__(self, matcher: Matcher) -> None:
        self.matcher = matcher
        self._numbers: dict[str, int] = {}
        """The number of each subscription that is known here, by its id."""
        self._meaningless: dict[str, Failure] = {}
        self.counted_at = FEW
        """The number of known subscriptions at which it is asked how many there are in the store."""

    def __len__(self) -> int:
        """The number of subscriptions that are known here, deleted ones included."""
        return len(self._numbers)

    @property
    def layer(self) -> OperatorLayer:
        return self.matcher.layer

    def knows_others(self, numbers: Mapping[str, int]) -> bool:
        """Whether one of these ids was that of another subscription when it became known here. That one was deleted."""
        return any(self._numbers.get(id, number) != number for id, number in numbers.items())

    def lacks(self, ids: Collection[str]) -> list[str]:
        """Returns the subscriptions whose trees are not known here."""
        return [id for id in ids if id not in self._numbers]

    def learn_trees(self, rows: Iterable[Row[Any]]) -> None:
        """Adds these subscriptions. A subscription whose tree has no meaning here is undecided for that reason."""
        for row in rows:
            if row.id not in self._numbers:
                self._numbers[row.id] = row.number
                try:
                    self.matcher.restore(row.id, row.tree)
                except InvalidSubscription as error:
                    self._meaningless[row.id] = Failure("failed", str(error))

    def canonical(self, event: Event) -> CanonicalEvent | None:
        """Returns the canonical event under this version; None if it cannot be read, although it could when it was
        accepted."""
        try:
            return self.matcher.canonicalise(event)
        except InvalidEvent:
            return None

    def begin(
        self,
        event: CanonicalEvent,
        ids: Sequence[str],
        event_answers: EventAnswers,
        *,
        patient: bool = False,
        steps: bool = False,
        learns: bool = True,
    ) -> Case:
        """Begins the decision about `ids`, all of which must be known here. `patient`: a candidate with a temporary
        failure is left for a later try. Otherwise the other calls are still made, because they may show that it does
        not match."""
        budget = SearchBudget(SEARCH_SECONDS)
        open = self.matcher.open_decision(event, ids, steps=steps, patient=patient, learns=learns, within=budget)
        meaningless = {id: self._meaningless[id] for id in ids if id in self._meaningless}
        return Case(self.matcher, open, event_answers, ids, meaningless)


def late_matcher_factory(
    operators: Callable[[], Mapping[str, Operator]], experience: Experience, *, planner: str, depth: int
) -> Callable[[Vocabulary], LateMatcher]:
    """Returns a factory of late matchers with the present operators and statistics."""
    new_matcher = partial(Matcher, planner=planner, limits=EventLimits(depth=depth))

    def made(vocabulary: Vocabulary) -> LateMatcher:
        matcher = new_matcher(vocabulary, operators=operators().values())
        matcher.layer.learned(experience)
        return LateMatcher(matcher)

    return made


# ── the vocabularies of events ───────────────────────────────────────────────────────────────────────────────────────
#
# The vocabulary under which an event was accepted: the active one, an earlier one, or one that is rebuilt.

KEPT_VOCABULARIES = 2
"""The number of vocabularies kept in addition to the active one. They are large. An old one is needed if the vocabulary
changes while an operator is out of order."""


class Versions:
    """The vocabularies by version. For one event loop."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._kept: OrderedDict[str, Vocabulary] = OrderedDict()
        self._one_at_a_time = asyncio.Lock()

    async def get(self, version: str) -> Vocabulary:
        """Returns the vocabulary of this version. If its parts are missing in the store (which refuses to delete them),
        the active vocabulary is used and this is logged. A vocabulary from before a change of the matching rules
        (`kindcast.semantic.vocabulary.vocabulary.MEANING`) has the same parts with the present meaning."""
        self._keep(self._broker.vocabulary.version, self._broker.vocabulary)
        if version not in self._kept:
            async with self._one_at_a_time:
                if version not in self._kept:
                    self._keep(version, await self._made_again(version))
        return self._kept[version]

    def _keep(self, version: str, vocabulary: Vocabulary) -> None:
        self._kept[version] = vocabulary
        self._kept.move_to_end(version)
        while len(self._kept) > 1 + KEPT_VOCABULARIES:
            self._kept.popitem(last=False)

    async def _made_again(self, version: str) -> Vocabulary:
        def parts(connection: Connection) -> Row[Any] | None:
            return pending_store.vocabulary_parts(connection, version)

        row = await self._broker.read(parts)
        if row is None:
            _log.error(
                "the vocabulary %s is not in the database: its pending candidates use the active vocabulary", version
            )
            return self._broker.vocabulary
        ontologies = [
            await self._broker.vocabulary_commands.stored_ontology(name, number) for name, number in row.ontologies
        ]
        _log.info("rebuilding the vocabulary %s for events that wait for an operator", version)
        declared = Declarations.from_json(row.declarations)
        return await asyncio.to_thread(self._broker.vocabulary_commands.build, ontologies, declared)


# ── all late matchers, the one thread that runs them, and the operator clients ───────────────────────────────────────
#
# Late matchers are used only in that thread, with `run`. When operators change, all late matchers are rebuilt. The
# statistics stay.

T = TypeVar("T")

FEW = 1_000
"""Late matchers with fewer subscriptions keep those that were deleted."""
KEPT = 3
"""The number of late matchers kept: of the active vocabulary, and of earlier ones that parked events still need."""


GROUP_SECONDS = 0.5
"""The time limit for searches of texts in negated groups while the other events wait. They are part of the calls, so
they cannot be made by `TextSearches`."""

SECOND_STEPS = 200_000_000
"""The number of steps of a search that take about a second."""

TURNED_AWAY = Failure("busy", "too many long texts and values are being tested", after=5.0)
MAX_SEARCHED = 200
"""The maximum number of events whose texts are searched or wait to be searched. The others stay on disk, so that they
do not delay operators."""


class TextSearches:
    """Runs text tests that take too long for the writer's thread and for that of the late matchers. There are two
    threads: one for tests of up to a second, one for longer ones. An event has only one test at a time in them, so that
    events take turns. RE2 releases the GIL while it searches. The threads do not prevent the end of the process."""

    def __init__(self) -> None:
        self._lanes = [queue.SimpleQueue[tuple[CostlyTest, asyncio.Future[bool]] | None]() for _ in range(2)]
        for number, lane in enumerate(self._lanes):
            threading.Thread(target=self._serve, args=(lane,), name=f"kindcast-texts-{number}", daemon=True).start()
        self._loop = asyncio.get_running_loop()
        self._events = 0

    async def ask(self, tests: Mapping[int, CostlyTest]) -> dict[int, bool] | None:
        """Returns whether each test holds; None if too many events wait already. If it is cancelled, the tests that
        were not begun are skipped."""
        if self._events >= MAX_SEARCHED:
            return None
        self._events += 1
        try:
            verdicts = {}
            for row, test in sorted(tests.items(), key=lambda item: item[1].steps):
                answer: asyncio.Future[bool] = self._loop.create_future()
                self._lanes[test.steps > SECOND_STEPS].put((test, answer))
                verdicts[row] = await answer
            return verdicts
        finally:
            self._events -= 1

    def close(self) -> None:
        """Begins no more tests."""
        for lane in self._lanes:
            lane.put(None)

    def _serve(self, lane: "queue.SimpleQueue[tuple[CostlyTest, asyncio.Future[bool]] | None]") -> None:
        while (item := lane.get()) is not None:
            test, answer = item
            if answer.cancelled():
                continue
            try:
                told: Callable[[], None] = partial(_tell, answer, test.holds(), None)
            except Exception as error:
                told = partial(_tell, answer, False, error)
            with contextlib.suppress(RuntimeError):  # the event loop has ended
                self._loop.call_soon_threadsafe(told)


def _tell(answer: "asyncio.Future[bool]", holds: bool, error: Exception | None) -> None:
    if answer.done():
        return
    if error is None:
        answer.set_result(holds)
    else:
        answer.set_exception(error)


class LateMatchers:
    """The late matchers of one server. The coroutines run on its event loop; `at` may be called only inside `run`."""

    def __init__(self, broker: Broker, settings: Settings, experience: Experience) -> None:
        self.broker = broker
        self.circuits = None if broker.leases.membership is None else SharedCircuits(broker)
        self.clients = OperatorClients(settings, self.circuits)
        self.versions = Versions(broker)
        self.experience = experience
        self.planner = settings.planner
        self.is_patient = bool(settings.operator_delays_seconds)
        """Whether a candidate has more than one try."""
        self.answers = AnswerCache()
        self.texts = TextSearches()
        self._thread = ThreadPoolExecutor(1, "kindcast-decider")
        self._turns = asyncio.Semaphore(2)  # one runs, and the next one is ready
        self._turns_of_long = asyncio.Semaphore(2)
        self._matchers: OrderedDict[str, LateMatcher] = OrderedDict()
        self._registry = broker.state.operators
        self.clients.follow(self._registry)
        self._made = late_matcher_factory(
            lambda: broker.state.operators.known, experience, planner=settings.planner, depth=settings.max_json_depth
        )

    @property
    def operator_clients(self) -> Mapping[str, OperatorClient]:
        """The client of each present operator. For the event loop only."""
        self._follow()
        return self.clients.by_name

    async def run(self, work: Callable[[], T]) -> T:
        """Runs `work` in the thread of the late matchers, before what `run_in_background` has waiting."""
        self._follow()
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def run_in_background(self, work: Callable[[], T], size: int) -> T:
        """Like `run`, for a published event of `size` bytes. If many of them wait, previews and metrics do not wait for
        all of them, and short events do not wait for all long ones: built-in operators may search a long text, or look
        at a picture, for up to a second."""
        async with self._turns if size < LONG else self._turns_of_long:
            return await self.run(work)

    def at(self, vocabulary: Vocabulary, numbers: Mapping[str, int]) -> LateMatcher:
        """Returns the late matcher of a version. A new one has no subscriptions yet. There is a new one as well if one
        of the ids in `numbers` belongs to another subscription now; cases that were begun keep the old one."""
        late_matcher = self._matchers.get(vocabulary.version)
        if late_matcher is None or late_matcher.knows_others(numbers):
            late_matcher = self._matchers[vocabulary.version] = self._made(vocabulary)
        self._matchers.move_to_end(vocabulary.version)
        while len(self._matchers) > KEPT:
            self._matchers.popitem(last=False)
        return late_matcher

    async def give_up_deleted(self, late_matcher: LateMatcher) -> None:
        """Gives up a late matcher if most of its subscriptions were deleted: the next one reads those that are needed.
        Cases that were begun keep the old one."""
        if len(late_matcher) < late_matcher.counted_at:
            return
        stored, _ = await self.broker.read(subscriptions.numbers_of_all)
        late_matcher.counted_at = 2 * max(stored, FEW)
        if len(late_matcher) >= late_matcher.counted_at:
            version = late_matcher.matcher.vocabulary.version
            await self.run(lambda: self._matchers.pop(version, None))

    async def close(self) -> None:
        """Closes the threads and the clients. Nothing may be running."""
        self.texts.close()
        self._thread.shutdown(wait=True, cancel_futures=True)
        await self.clients.close()

    def _follow(self) -> None:
        """Applies changes of the registered operators."""
        registry = self.broker.state.operators
        if registry is not self._registry:
            self._registry = registry
            self.clients.follow(registry)
            self._thread.submit(self._matchers.clear)


# ── the decision of one event ────────────────────────────────────────────────────────────────────────────────────────


def decision_queue(broker: Broker) -> WriteQueue[LateDecisions]:
    """Returns the queue of decisions that are being written to disk."""

    async def write(decisions: list[LateDecisions]) -> None:
        await broker.submit(lambda group: record_decisions(group, decisions))

    return WriteQueue(write, _log, "late decisions about %d events could not be written; trying again: %s")


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
        await asyncio.gather(*open.written)
        return
    if row is None:
        return  # the event was deleted because of its age, with its candidates
    loop, woken = asyncio.get_running_loop(), asyncio.Event()
    vocabulary = await late_matchers.versions.get(parked.version)
    event, size = arrived(reader.stored(row.body), row.accepted_at), len(row.body)
    with late_matchers.answers.of(parked.event, open.numbers) as (answers, open.postponed):
        event_answers = EventAnswers(late_matchers.operator_clients, woken=lambda: wake(loop, woken), answers=answers)
        try:
            begin = partial(_begin, late_matchers, vocabulary, event, event_answers, patient=not parked.last)
            case = await _begun(late_matchers, vocabulary, open, begin, size)
            if case is not None and case.costly:
                verdicts = await late_matchers.texts.ask(case.costly)
                otherwise = TURNED_AWAY if verdicts is None else None
                await late_matchers.run_in_background(partial(case.settle, verdicts or {}, otherwise), size)
            while case is not None and open.numbers:
                woken.clear()
                decided = await late_matchers.run_in_background(case.advance, size)
                _queue_decisions(parked.event, decided, open, queue, schedule)
                if open.numbers:
                    await woken.wait()
            if case is None and open.numbers:
                unreadable = Verdicts(undecided=dict.fromkeys(open.numbers, UNREADABLE))
                _queue_decisions(parked.event, unreadable, open, queue, schedule)
        finally:
            event_answers.close()
    await asyncio.gather(*open.written)


def _begin(
    late_matchers: LateMatchers,
    vocabulary: Vocabulary,
    event: Event,
    event_answers: EventAnswers,
    numbers: Mapping[str, int],
    *,
    patient: bool,
) -> Case | list[str] | None:
    """Begins a case. Returns it, or a list of the subscriptions that the late matcher lacks (it may have been rebuilt),
    or None if the event cannot be read. Runs in the thread of the late matchers."""
    late_matcher = late_matchers.at(vocabulary, numbers)
    lacking = late_matcher.lacks(numbers)
    if lacking:
        return lacking
    canonical = late_matcher.canonical(event)
    return None if canonical is None else late_matcher.begin(canonical, list(numbers), event_answers, patient=patient)


async def _begun(
    late_matchers: LateMatchers,
    vocabulary: Vocabulary,
    open: _Open,
    begin: Callable[[Mapping[str, int]], Case | list[str] | None],
    size: int,
) -> Case | None:
    """Returns the case, after the late matcher has the subscriptions of all candidates; None if the event cannot be
    read. Candidates of deleted subscriptions are dropped."""
    while True:
        found = await late_matchers.run_in_background(partial(begin, dict(open.numbers)), size)
        if not isinstance(found, list):
            return found
        numbers = [open.numbers[id] for id in found]
        rows = await late_matchers.broker.read(partial(_trees, numbers=numbers))
        late_matcher = await late_matchers.run_in_background(partial(_learn, late_matchers, vocabulary, rows), size)
        await late_matchers.give_up_deleted(late_matcher)
        known = {row.id for row in rows}
        open.numbers = {id: number for id, number in open.numbers.items() if id in known or id not in found}


def _queue_decisions(
    event: int, verdicts: Verdicts, open: _Open, queue: WriteQueue[LateDecisions], schedule: Schedule
) -> None:
    """Adds the decisions made so far to the queue."""
    now = CLOCK.now()
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


def _learn(late_matchers: LateMatchers, vocabulary: Vocabulary, rows: Collection[Row[Any]]) -> LateMatcher:
    """Returns the late matcher, which knows these subscriptions then."""
    late_matcher = late_matchers.at(vocabulary, {row.id: row.number for row in rows})
    late_matcher.learn_trees(rows)
    return late_matcher


def _trees(connection: Connection, numbers: Sequence[int]) -> list[Row[Any]]:
    return list(trees(connection, live_only=False, numbers=numbers))


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
FULL_SECONDS = 0.5
"""The pause while no more events can be begun: a read costs as much as deciding some events, and finds room for those
that have ended meanwhile."""
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
                if len(self._tasks) >= EVENTS_AT_ONCE:
                    await asyncio.sleep(FULL_SECONDS)
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
            now = CLOCK.now()
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
            now = CLOCK.now()
            busy = frozenset(self._busy)  # of before the read, which may still see rows that are decided meanwhile
            limit = ROWS_PER_READ + len(busy)

            def read(connection: Connection) -> tuple[list[Row[Any]], float | None]:
                return pending_store.due(connection, now, limit=limit), pending_store.next_due(connection, after=now)

            rows, upcoming = await self.broker.read(read)
            free = [row for row in rows if (row.event, row.subscription) not in busy]
            self._begin(free)
            if len(rows) >= limit // 2 and free:  # there may be more
                return 0.0
            return LONGEST_SLEEP_SECONDS if upcoming is None else min(max(0.0, upcoming - now), LONGEST_SLEEP_SECONDS)
        except ServerError as error:
            _log.error("pending candidates cannot be read; next attempt in %g s: %s", FAULT_PAUSE_SECONDS, error)
            return FAULT_PAUSE_SECONDS
        except Exception:
            _log.exception("pending candidates cannot be read; next attempt in %g s", FAULT_PAUSE_SECONDS)
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
            _log.exception(
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
                _log.error("the statistics of operators could not be written; trying again: %s", error)


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
# that are shared with running calls. An explanation of one subscription makes all its calls. No thread waits for them:
# the explanation is made again when the answers have arrived.

EXPLAIN_SECONDS = 1.0
"""The time limit for all text tests of one explanation. A test that would exceed it is undecided."""

PREVIEW_SECONDS = 10.0
"""The time limit for tests of long texts of an unpublished event, because a user waits for them."""

NOT_IN_TIME = Failure("timed_out", "its texts could not be searched in time; a published event is decided later")


async def explained(
    late_matchers: LateMatchers, explain: Callable[[], T], size: int, client: Hashable, until: float
) -> T:
    """Returns the result of `explain`, which calls operators in a worker thread. It is called until all calls have an
    answer, and a last time at the time `until` of the event loop: what depends on the other calls is undecided then.
    `size` is that of the request of `client`, in bytes."""
    loop, woken = asyncio.get_running_loop(), asyncio.Event()
    event_answers = EventAnswers(late_matchers.operator_clients, woken=lambda: wake(loop, woken))

    def work() -> T:
        with answering_from(event_answers), searching_within(SearchBudget(EXPLAIN_SECONDS)):
            return explain()

    in_time = True
    try:
        while True:
            before = event_answers.not_answered
            told = await run_in_turn(work, size, client)
            if event_answers.not_answered == before or not in_time:
                return told
            in_time = await _answered(event_answers, woken, until)
    finally:
        event_answers.close()


async def _answered(event_answers: EventAnswers, woken: asyncio.Event, until: float) -> bool:
    """Waits until all calls have an answer. Returns whether they have before the time `until` of the event loop."""
    while event_answers.is_waiting:
        if not await _woken(woken, until):
            return False
        woken.clear()
    return True


async def _woken(woken: asyncio.Event, until: float) -> bool:
    """Waits for an answer. Returns False if the time `until` of the event loop comes first."""
    try:
        async with asyncio.timeout_at(until):
            await woken.wait()
    except TimeoutError:
        return False
    return True


async def decide_now(
    late_matchers: LateMatchers, vocabulary: Vocabulary, event: CanonicalEvent, ids: Sequence[str], until: float
) -> tuple[Verdicts, dict[str, Any]]:
    """Returns the verdicts on these candidates in their first try, and the plan: which calls were made, in which order,
    why, and how many were saved. What depends on calls without an answer at the time `until` of the event loop is
    undecided. Subscriptions in `ids` that were deleted meanwhile do not match."""

    rows = await late_matchers.broker.read(partial(subscriptions.find_subscriptions, ids=ids))
    loop, woken = asyncio.get_running_loop(), asyncio.Event()
    event_answers = EventAnswers(late_matchers.operator_clients, woken=lambda: wake(loop, woken))

    def begin() -> Case:
        return _learn(late_matchers, vocabulary, rows.values()).begin(
            event, list(rows), event_answers, patient=late_matchers.is_patient, steps=True, learns=False
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
            if not case.pending or not await _woken(woken, until):
                return verdicts, _plan_in_words(case.decision, late_matchers.planner)
    finally:
        event_answers.close()


async def subscription_plan(late_matchers: LateMatchers, row: Row[Any], vocabulary: Vocabulary) -> dict[str, Any]:
    """Returns, for each clause of a subscription with operators, its calls in the order of the planner for an event
    without other candidates. Each call has its expected cost, the probability that it holds, and the number of clauses
    of all subscriptions of this server that share it."""

    def work() -> list[list[Link]]:
        matcher = _learn(late_matchers, vocabulary, [row]).matcher
        return chains(matcher, row.id) if row.id in matcher else []

    found = await late_matchers.run(work)
    holders = iter(await late_matchers.broker.holders([link for chain in found for link in chain]))
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
                    "held_by_clauses": next(holders),
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
