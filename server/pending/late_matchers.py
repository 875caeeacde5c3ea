"""The late matchers by version of the vocabulary, the one thread that runs them, and the operator clients.

`run` is the only way in: a late matcher is only touched in that thread. When operators change, all late matchers
are rebuilt; the statistics stay.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from sqlalchemy import Connection, Row

from kindcast.semantic import Vocabulary
from kindcast.semantic.planner.learning import Experience
from kindcast.semantic.vocabulary.declarations import Declarations
from kindcast.server.broker import Broker
from kindcast.server.operators.answers import AnswersByEvent, Caller
from kindcast.server.operators.operator_clients import Callers
from kindcast.server.pending.late_matcher import LateMatcher, desk_maker
from kindcast.server.settings import Settings
from kindcast.server.store import pending as parking

__all__ = ["LateMatchers"]


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
            return parking.vocabulary_parts(connection, version)

        row = await self._broker.read(parts)
        if row is None:
            _log.error(
                "the vocabulary %s is not in the store: its pending candidates use the active vocabulary", version
            )
            return self._broker.vocabulary
        ontologies = [await self._broker.meaning.stored_ontology(name, number) for name, number in row.ontologies]
        _log.info("rebuilding the vocabulary %s for events that wait for an operator", version)
        declared = Declarations.from_json(row.declarations)
        return await asyncio.to_thread(self._broker.meaning.build, ontologies, declared)


# ── late matchers ─────────────────────────────────────────────────────────────────────────────────────────────────────

T = TypeVar("T")

KEPT = 3
"""Late matchers of the active vocabulary, and of earlier ones that pending events still need."""


class LateMatchers:
    """One per server. Coroutines on its event loop; `at` only inside `run`."""

    def __init__(self, broker: Broker, settings: Settings, experience: Experience) -> None:
        self.broker = broker
        self.callers = Callers(settings)
        self.versions = Versions(broker)
        self.experience = experience
        self.planner = settings.planner
        self.is_patient = bool(settings.operator_delays_seconds)
        """Whether the first try of a candidate is followed by others."""
        self.answers = AnswersByEvent()
        self._thread = ThreadPoolExecutor(1, "kindcast-decider")
        self._desks: OrderedDict[str, LateMatcher] = OrderedDict()
        self._registry = broker.state.operators
        self.callers.follow(self._registry)
        self._made = desk_maker(
            lambda: broker.state.operators.known, experience, planner=settings.planner, depth=settings.max_json_depth
        )

    @property
    def ways(self) -> Mapping[str, Caller]:
        """The way to each operator that is there now. On the event loop."""
        self._follow()
        return self.callers.by_name

    async def run(self, work: Callable[[], T]) -> T:
        """`work` in the thread of the late matchers."""
        self._follow()
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def at(self, vocabulary: Vocabulary) -> LateMatcher:
        """The late matcher of a version; a new one has no subscriptions yet."""
        desk = self._desks.get(vocabulary.version)
        if desk is None:
            desk = self._desks[vocabulary.version] = self._made(vocabulary)
        self._desks.move_to_end(vocabulary.version)
        while len(self._desks) > KEPT:
            self._desks.popitem(last=False)
        return desk

    async def close(self) -> None:
        """Nothing may run any more."""
        self._thread.shutdown(wait=True, cancel_futures=True)
        await self.callers.close()

    def _follow(self) -> None:
        """Take up operators that came or went."""
        registry = self.broker.state.operators
        if registry is not self._registry:
            self._registry = registry
            self.callers.follow(registry)
            self._thread.submit(self._desks.clear)
