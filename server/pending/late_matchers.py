"""The late matcher: a matcher of the subscriptions with operators, under one version of the vocabulary.

    event, candidates ──▶ cheap predicates again ──▶ planner ──▶ operators, through `EventAnswers`
                                                        └──▶ matched | does not match | undecided, and why

All late matchers share the statistics of the operators. Everything here runs in one thread, which never waits: an
operator that takes its time is asked elsewhere, and a `Case` goes on when it has answered.
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
from kindcast.server.operators.operator_clients import OperatorClients
from kindcast.server.settings import Settings
from kindcast.server.store import pending as pending_store

__all__ = ["TURNED_AWAY", "Case", "LateMatcher", "LateMatchers", "TextSearches", "Verdicts"]


@dataclass(slots=True)
class Verdicts:
    """What is known of the candidates of one event, by the id of the subscription. What operators have not answered yet
    is undecided, with a failure of the kind `waiting`."""

    matched: dict[str, Match] = field(default_factory=dict)
    unmatched: list[str] = field(default_factory=list)
    undecided: dict[str, Failure] = field(default_factory=dict)


class Case:
    """Candidates of one event on their way to a decision. In the thread of the late matchers; it stays with the
    operators and subscriptions of its beginning."""

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
        """Tests of text to be asked outside this thread, before `advance`."""
        return self._open.costly

    def settle(self, verdicts: Mapping[int, bool], otherwise: Failure | None = None) -> None:
        """What these tests said. Where they said nothing, the candidate is undecided for the reason `otherwise`."""
        self._open.settle(verdicts)
        self._not_searched = otherwise

    @property
    def pending(self) -> bool:
        """Whether an answer is yet to come."""
        return self._open.pending

    @property
    def decision(self) -> Decision:
        """The state of the calls."""
        return self._open.decision

    def advance(self) -> Verdicts:
        """What can be said now. No call is made that the plan does not want by what was answered so far."""
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
    """One thread."""

    def __init__(self, matcher: Matcher) -> None:
        self.matcher = matcher
        self._meaningless: dict[str, Failure] = {}

    @property
    def layer(self) -> OperatorLayer:
        return self.matcher.layer

    def lacks(self, ids: Collection[str]) -> list[str]:
        """Subscriptions whose trees it has not seen."""
        return [id for id in ids if id not in self.matcher and id not in self._meaningless]

    def learn_trees(self, trees: Mapping[str, Any]) -> None:
        """Know these subscriptions. One whose tree has no meaning here (an operator takes other arguments now, say) is
        undecided, for that reason."""
        for id, tree in trees.items():
            if id not in self.matcher:
                try:
                    self.matcher.restore(id, tree)
                except InvalidSubscription as error:
                    self._meaningless[id] = Failure("failed", str(error))

    def canonical(self, event: Event) -> CanonicalEvent | None:
        """The event under this version; None where it cannot be read (it could when it was accepted)."""
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
        """The way to the verdicts on `ids`, none of which it may lack. `patient`: what failed for now is left for a
        later try; otherwise the other calls may still tell that it does not match."""
        budget = SearchBudget(SEARCH_SECONDS)
        open = self.matcher.open_decision(event, ids, steps=steps, patient=patient, learns=learns, within=budget)
        meaningless = {id: self._meaningless[id] for id in ids if id in self._meaningless}
        return Case(self.matcher, open, event_answers, ids, meaningless)


def late_matcher_factory(
    operators: Callable[[], Mapping[str, Operator]], experience: Experience, *, planner: str, depth: int
) -> Callable[[Vocabulary], LateMatcher]:
    """A factory of late matchers, with the present operators and the statistics so far."""
    new_matcher = partial(Matcher, planner=planner, limits=EventLimits(depth=depth))

    def made(vocabulary: Vocabulary) -> LateMatcher:
        matcher = new_matcher(vocabulary, operators=operators().values())
        matcher.layer.learned(experience)
        return LateMatcher(matcher)

    return made


# ── late matchers ─────────────────────────────────────────────────────────────────────────────────────────────────────
# The late matchers by version of the vocabulary, the one thread that runs them, and the operator clients.
#
# `run` is the only way in: a late matcher is only touched in that thread. When operators change, all late matchers
# are rebuilt; the statistics stay.

# The vocabulary that an event was accepted under: the active one, an earlier one, or one built again.

KEPT_VOCABULARIES = 2
"""Vocabularies kept beside the active one: they are large, and an old one is needed for as long as an operator is out
of order when words change."""

_log = logging.getLogger("kindcast.parking")


class Versions:
    """On one event loop."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._kept: OrderedDict[str, Vocabulary] = OrderedDict()
        self._one_at_a_time = asyncio.Lock()

    async def get(self, version: str) -> Vocabulary:
        """The vocabulary of this version. One whose parts are gone from the store (which refuses to let them go) is
        replaced by the one in force, and the log says so. One from before the rules of matching changed
        (`kindcast.semantic.vocabulary.vocabulary.MEANING`) has the same parts, and the present meaning."""
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
"""Late matchers of the active vocabulary, and of earlier ones that pending events still need."""


SECOND_STEPS = 200_000_000
"""Steps of a search that take a second, more or less."""

TURNED_AWAY = Failure("busy", "too many long texts are being searched", after=5.0)
MAX_SEARCHED = 200
"""Events whose texts are searched, or wait for it; the others stay on disk, so that they keep no operator waiting."""


class TextSearches:
    """Tests of text that take too long for the writer's thread and for that of the late matchers. Two threads: one for
    those of up to a second, one for all others. An event has one test at a time in them, so that events take turns.
    RE2 lets other threads run while it searches. The threads do not keep the process from ending."""

    def __init__(self) -> None:
        self._lanes = [queue.SimpleQueue[tuple[CostlyTest, asyncio.Future[bool]] | None]() for _ in range(2)]
        for number, lane in enumerate(self._lanes):
            threading.Thread(target=self._serve, args=(lane,), name=f"kindcast-texts-{number}", daemon=True).start()
        self._loop = asyncio.get_running_loop()
        self._events = 0

    async def ask(self, tests: Mapping[int, CostlyTest]) -> dict[int, bool] | None:
        """Whether each holds; None if too many events wait already. Cancelled, it leaves those that were not begun."""
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
        """No more is begun."""
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
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(told)


def _tell(answer: "asyncio.Future[bool]", holds: bool, error: Exception | None) -> None:
    if answer.done():
        return
    if error is None:
        answer.set_result(holds)
    else:
        answer.set_exception(error)


class LateMatchers:
    """One per server. Coroutines on its event loop; `at` only inside `run`."""

    def __init__(self, broker: Broker, settings: Settings, experience: Experience) -> None:
        self.broker = broker
        self.clients = OperatorClients(settings)
        self.versions = Versions(broker)
        self.experience = experience
        self.planner = settings.planner
        self.is_patient = bool(settings.operator_delays_seconds)
        """Whether the first try of a candidate is followed by others."""
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
        """The way to each operator that is there now. On the event loop."""
        self._follow()
        return self.clients.by_name

    async def run(self, work: Callable[[], T]) -> T:
        """`work` in the thread of the late matchers."""
        self._follow()
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def at(self, vocabulary: Vocabulary) -> LateMatcher:
        """The late matcher of a version; a new one has no subscriptions yet."""
        late_matcher = self._matchers.get(vocabulary.version)
        if late_matcher is None:
            late_matcher = self._matchers[vocabulary.version] = self._made(vocabulary)
        self._matchers.move_to_end(vocabulary.version)
        while len(self._matchers) > KEPT:
            self._matchers.popitem(last=False)
        return late_matcher

    async def close(self) -> None:
        """Nothing may run any more."""
        self.texts.close()
        self._thread.shutdown(wait=True, cancel_futures=True)
        await self.clients.close()

    def _follow(self) -> None:
        """Take up operators that came or went."""
        registry = self.broker.state.operators
        if registry is not self._registry:
            self._registry = registry
            self.clients.follow(registry)
            self._thread.submit(self._matchers.clear)
