"""The desks by version of the vocabulary, their one thread, and the ways to the operators.

`run` is the only way in: whatever touches a desk runs in that thread. Operators that come or go make all desks anew;
what was learned stays.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from semantic import Vocabulary
from semantic.planner.learning import Experience
from server.broker import Broker
from server.operators.asking import AnswersByEvent, Caller
from server.operators.callers import Callers
from server.parking.desk import Desk, desk_maker
from server.parking.versions import Versions
from server.settings import Settings

__all__ = ["Desks"]

T = TypeVar("T")

KEPT = 3
"""Desks: of the vocabulary in force, and of some from before that events still wait under."""


class Desks:
    """One a server. Coroutines on its event loop; `at` only inside `run`."""

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
        self._desks: OrderedDict[str, Desk] = OrderedDict()
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
        """`work` in the thread of the desks."""
        self._follow()
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def at(self, vocabulary: Vocabulary) -> Desk:
        """The desk of a version; a new one knows no subscriptions yet."""
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
