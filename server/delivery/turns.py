"""Turns of readers: however many webhooks, streams and pulls there are, other requests get their turn at the store.

    streams at the same cursor ──▶ one question ──┐
    pulls, couriers ─────────────▶ one question ──┴─ those that wait ─▶ one look, one transaction ─▶ told one by one
    clients with large pages ────▶ `Turns` of worker_threads.py: the next page of each client ──one at a time──▶ store

Nothing here decides what a reader may see: readers with other roles do not share a question.
"""

import asyncio
from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypeVar

from sqlalchemy import Connection

from kindcast.server.broker import Broker
from kindcast.server.store.deliveries import MatchReader, StoredMatch, Subscriber, find_subscribers

__all__ = ["Look", "Looks"]

T = TypeVar("T")

AT_ONCE = 2
"""The maximum number of looks at the same time. Others need processor time, too, and half of the connections."""
MOST_TOGETHER = 32
"""The number of questions of a look: enough to share its cost, and few enough that the next ones do not wait."""
FULL_BYTES = 4 << 20
"""After so many bytes of messages, the other questions wait for the next look."""


class Look:
    """One transaction for the questions about some subscriptions, given by number or id. What they have in common is
    read once."""

    def __init__(self, connection: Connection, keys: Collection[int | str]) -> None:
        self.connection = connection
        self._subscribers: dict[int | str, Subscriber] = {}
        for each in find_subscribers(connection, keys):
            self._subscribers |= {each.number: each, each.id: each}
        self._matches: MatchReader | None = None
        self._bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether no other question may be answered."""
        return self._bytes > FULL_BYTES

    def subscriber(self, key: int | str) -> Subscriber | None:
        """Returns the subscription with this number or id; None if there is none."""
        return self._subscribers.get(key)

    def read(self, number: int, *, after: int, limit: int, byte_budget: int) -> list[StoredMatch]:
        """Returns what `MatchReader.read` returns."""
        found = self._reader().read(number, after=after, limit=limit, byte_budget=byte_budget)
        self._bytes += sum(len(each.body) for each in found)
        return found

    def has_more(self, number: int, after: int) -> bool:
        """Whether a subscription has a match after this position."""
        return self._reader().has_more(number, after)

    def _reader(self) -> MatchReader:
        self._matches = self._matches or MatchReader(self.connection)
        return self._matches


@dataclass(slots=True)
class _Question:
    key: int | str
    work: Callable[[Look], Any]
    askers: list["asyncio.Future[Any]"] = field(default_factory=list)

    def answer(self, found: Any, error: Exception | None = None) -> None:
        for each in self.askers:
            if not each.done():
                each.set_result(found) if error is None else each.set_exception(error)


class Looks:
    """Looks of the readers of one tenant into its store. What is asked while others look is answered by one look.
    Readers who want to see the same ask one question. For the event loop only."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._at_once = min(AT_ONCE, max(1, broker.settings.reader_connections // 2))
        self._waiting: dict[Hashable, _Question] = {}
        self._looking: set[asyncio.Task[None]] = set()

    async def look(self, wanted: Hashable, key: int | str, work: Callable[[Look], T]) -> T:
        """Returns what `work` returns for a look at the subscription with this number or id. `wanted` must differ if
        the results of `work` may differ. The result is shared, so nobody may change it. The snapshot is never older
        than the call."""
        told: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(wanted, _Question(key, work)).askers.append(told)
        if len(self._looking) < self._at_once:
            looking = asyncio.create_task(self._look(), name="look")
            self._looking.add(looking)
            looking.add_done_callback(self._looking.discard)
        return await told

    async def _look(self) -> None:
        """Answers questions until there are none."""
        while some := {wanted: self._waiting[wanted] for wanted in islice(self._waiting, MOST_TOGETHER)}:
            for wanted in some:
                del self._waiting[wanted]  # who comes later may have been woken by a later commit
            asked = {wanted: each for wanted, each in some.items() if not all(it.done() for it in each.askers)}
            await self._answer(asked)

    async def _answer(self, asked: dict[Hashable, _Question]) -> None:
        """Answers questions in one look. If it is full, or fails, the others are asked again."""
        questions = list(asked.values())

        def read(connection: Connection) -> list[Any]:
            look, answers = Look(connection, {each.key for each in questions}), []
            for each in questions:
                answers.append(each.work(look))
                if look.is_full:
                    break
            return answers

        try:
            answers = await self._broker.read(read) if questions else []
        except Exception as error:
            if len(questions) == 1:
                questions[0].answer(None, error)
                return
            for wanted, each in asked.items():  # the others need not fail
                await self._answer({wanted: each})
            return
        for each, found in zip(questions, answers, strict=False):
            each.answer(found)
            await asyncio.sleep(0)  # hundreds of readers at once would leave no time for other connections
        for wanted in list(asked)[len(answers) :]:
            await self._answer({wanted: asked[wanted]})
