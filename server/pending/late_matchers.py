"""The late matcher: a matcher of the subscriptions with operators, under one version of the vocabulary.

    event, candidates ──▶ cheap predicates again ──▶ planner ──▶ operators, through `EventAnswers`
                                                        └──▶ matched | does not match | undecided, and why

All late matchers share the statistics of the operators. They run in one thread, which never waits: slow operators are
called elsewhere, and a `Case` continues when an answer arrives.
"""

import asyncio
import contextlib
import logging
import queue
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from sqlalchemy import Connection, Row

from kindcast.semantic import CanonicalEvent, Event, InvalidEvent, InvalidSubscription, Match, Matcher, Vocabulary
from kindcast.semantic.events import EventLimits
from kindcast.semantic.matching import NOT_SEARCHED, SEARCH_SECONDS, CostlyTest, Decision, OpenDecision, OperatorLayer
from kindcast.semantic.operators import Failure, Operator
from kindcast.semantic.planner import Experience
from kindcast.semantic.units import SearchBudget
from kindcast.semantic.vocabulary import Declarations
from kindcast.server.broker import Broker
from kindcast.server.operators.answers import AnswerCache, EventAnswers, OperatorClient, answering_from
from kindcast.server.operators.operator_clients import OperatorClients, SharedCircuits
from kindcast.server.settings import Settings
from kindcast.server.store import pending as pending_store

__all__ = ["TURNED_AWAY", "Case", "LateMatcher", "LateMatchers", "TextSearches", "Verdicts"]


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
        with answering_from(self._event_answers):
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
        self._meaningless: dict[str, Failure] = {}

    @property
    def layer(self) -> OperatorLayer:
        return self.matcher.layer

    def lacks(self, ids: Collection[str]) -> list[str]:
        """Returns the subscriptions whose trees are not known here."""
        return [id for id in ids if id not in self.matcher and id not in self._meaningless]

    def learn_trees(self, trees: Mapping[str, Any]) -> None:
        """Adds these subscriptions. A subscription whose tree has no meaning here, for example because an operator
        takes other arguments now, is undecided for that reason."""
        for id, tree in trees.items():
            if id not in self.matcher:
                try:
                    self.matcher.restore(id, tree)
                except InvalidSubscription as error:
                    self._meaningless[id] = Failure("failed", str(error))

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


# ── late matchers ─────────────────────────────────────────────────────────────────────────────────────────────────────
# The late matchers by version of the vocabulary, the one thread that runs them, and the operator clients.
#
# Late matchers are used only in that thread, with `run`. When operators change, all late matchers are rebuilt. The
# statistics stay.

# The vocabulary under which an event was accepted: the active one, an earlier one, or one that is rebuilt.

KEPT_VOCABULARIES = 2
"""The number of vocabularies kept in addition to the active one. They are large. An old one is needed if the vocabulary
changes while an operator is out of order."""

_log = logging.getLogger("kindcast.parking")


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


# ── late matchers ─────────────────────────────────────────────────────────────────────────────────────────────────────

T = TypeVar("T")

KEPT = 3
"""The number of late matchers kept: of the active vocabulary, and of earlier ones that parked events still need."""


SECOND_STEPS = 200_000_000
"""The number of steps of a search that take about a second."""

TURNED_AWAY = Failure("busy", "too many long texts are being searched", after=5.0)
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
        """Runs `work` in the thread of the late matchers."""
        self._follow()
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def at(self, vocabulary: Vocabulary) -> LateMatcher:
        """Returns the late matcher of a version. A new one has no subscriptions yet."""
        late_matcher = self._matchers.get(vocabulary.version)
        if late_matcher is None:
            late_matcher = self._matchers[vocabulary.version] = self._made(vocabulary)
        self._matchers.move_to_end(vocabulary.version)
        while len(self._matchers) > KEPT:
            self._matchers.popitem(last=False)
        return late_matcher

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
