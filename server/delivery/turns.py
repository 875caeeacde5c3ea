"""Turns of readers: however many webhooks, streams and pulls there are, other requests get their turn at the store.

    streams at the same cursor ──▶ one question ──┐
    pulls, couriers ─────────────▶ one question ──┴─ those that wait ─▶ one look, one transaction ─▶ told one by one
    acknowledgements ──────────────────────────────── those that wait ─▶ one command of the writer
    clients with large pages ────▶ `Turns` of worker_threads.py: the next page of each client ──one at a time──▶ store

Nothing here decides what a reader may see: readers with other roles do not share a question.
"""

import asyncio
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import Connection

from kindcast.server.broker import Broker
from kindcast.server.delivery.message import parse_cursor
from kindcast.server.errors import ServerError, StoreDamaged, StoreUnavailable, UnknownSubscription
from kindcast.server.security.keys import Claim, check_ticket
from kindcast.server.store.deliveries import (
    MatchReader,
    StoredMatch,
    Subscriber,
    acknowledge,
    end_of_log,
    find_subscribers,
)

__all__ = ["Acknowledgements", "Look", "Looks"]

T = TypeVar("T")

AT_ONCE = 2
"""The maximum number of looks at the same time. Others need processor time, too, and half of the connections."""
MOST_TOGETHER = 32
"""The number of questions of a look: enough to share its cost, and few enough that the next ones do not wait."""
FULL_BYTES = 4 << 20
"""After so many bytes of messages, a look answers no other question."""
MOST_ACKNOWLEDGED = 256
"""The number of acknowledgements in one command, so that publishers wait only some tens of ms for it."""


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

    @property
    def is_wanted(self) -> bool:
        """Whether anybody still waits for the answer."""
        return not all(each.done() for each in self.askers)

    def answered_by(self, look: Look) -> Any:
        """Returns the answer, or the error that is the answer."""
        try:
            return self.work(look)
        except ServerError as error:
            return error

    def tell(self, answer: Any) -> None:
        for each in self.askers:
            _tell(each, answer)


def _tell(asker: "asyncio.Future[Any]", answer: Any) -> None:
    if asker.done():  # it was cancelled
        return
    if isinstance(answer, Exception):
        asker.set_exception(answer)
    else:
        asker.set_result(answer)


def _is_away(error: Exception) -> bool:
    """Whether the database cannot be reached, so that to ask again is of no use."""
    return isinstance(error, StoreUnavailable) and not isinstance(error, StoreDamaged)


class Looks:
    """Looks of the readers of one tenant into its store. What is asked while others look is answered by one look.
    Readers who want to see the same ask one question. For the event loop only."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._at_once = min(AT_ONCE, max(1, broker.settings.reader_connections // 2))
        self._waiting: dict[Hashable, _Question] = {}
        self._looking = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def look(self, wanted: Hashable, key: int | str, work: Callable[[Look], T]) -> T:
        """Returns what `work` returns for a look at the subscription with this number or id. `wanted` must differ if
        the results of `work` may differ. The result is shared, so nobody may change it. The snapshot is never older
        than the call."""
        told: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(wanted, _Question(key, work)).askers.append(told)
        if self._looking < self._at_once:
            self._looking += 1
            looking = asyncio.create_task(self._look(), name="look")
            self._tasks.add(looking)  # the event loop does not keep it
            looking.add_done_callback(self._tasks.discard)
        return await told

    async def _look(self) -> None:
        """Answers questions until there are none."""
        try:
            while some := list(islice(self._waiting, MOST_TOGETHER)):
                asked = {wanted: self._waiting.pop(wanted) for wanted in some}  # who comes later sees a later commit
                await self._answer({wanted: each for wanted, each in asked.items() if each.is_wanted})
        finally:
            self._looking -= 1

    async def _answer(self, asked: dict[Hashable, _Question]) -> None:
        """Answers questions in one look. If it is full before the last one, each of the rest gets a look of its own. If
        it fails, each question does."""
        questions = list(asked.values())

        def read(connection: Connection) -> list[Any]:
            look, answers = Look(connection, {each.key for each in questions}), []
            for each in questions:
                answers.append(each.answered_by(look))
                if look.is_full:
                    break
            return answers

        try:
            answers = await self._broker.read(read) if questions else []
        except Exception as error:
            answers = [error] * len(questions) if len(questions) == 1 or _is_away(error) else []
        for each, answer in zip(questions, answers, strict=False):
            each.tell(answer)
            await asyncio.sleep(0)  # hundreds of readers at once would leave no time for other connections
        for wanted in list(asked)[len(answers) :]:
            await self._answer({wanted: asked[wanted]})


# Acknowledgements: each would have a savepoint and some ten statements of its own.


class _Acknowledgement(NamedTuple):
    id: str
    cursor: str
    ticket: Claim | str | None


class Acknowledgements:
    """The acknowledgements of one tenant. Those that come while others are written are written together. For the event
    loop only."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._waiting: list[tuple[_Acknowledgement, asyncio.Future[int]]] = []
        self._writing: asyncio.Task[None] | None = None

    async def acknowledge(self, id: str, cursor: str, ticket: Claim | str | None) -> int:
        """Acknowledges everything up to the cursor. Returns the subscription's cursor, which never moves back. It is on
        disk when this returns.

        Raises `UnknownSubscription`, `TicketMissing`, `TicketWrong`, `InvalidCursor`.
        """
        told: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting.append((_Acknowledgement(id, cursor, ticket), told))
        if self._writing is None:
            self._writing = asyncio.create_task(self._write(), name="acknowledgements")
        return await told

    async def _write(self) -> None:
        try:
            while self._waiting:
                some, self._waiting = self._waiting[:MOST_ACKNOWLEDGED], self._waiting[MOST_ACKNOWLEDGED:]
                for (_, told), result in zip(some, await self._results([asked for asked, _ in some]), strict=True):
                    _tell(told, result)
        finally:
            self._writing = None

    async def _results(self, asked: Sequence[_Acknowledgement]) -> list[int | Exception]:
        try:
            results, _ = await self._broker.execute(lambda connection: _acknowledged(connection, asked), itemgetter(1))
            return results
        except Exception as error:
            if len(asked) == 1 or _is_away(error):
                return [error] * len(asked)
            return [result for each in asked for result in await self._results([each])]  # the others need not fail


def _acknowledged(connection: Connection, asked: Sequence[_Acknowledgement]) -> tuple[list[int | Exception], set[int]]:
    """Returns the cursor or the error of each, and the numbers of the subscriptions."""
    end = end_of_log(connection)
    known = {each.id: each for each in find_subscribers(connection, {each.id for each in asked})}
    results: list[int | Exception] = [0] * len(asked)
    valid: dict[int, tuple[Subscriber, int]] = {}
    for place, each in enumerate(asked):
        try:
            if (subscriber := known.get(each.id)) is None:
                raise UnknownSubscription(each.id)
            check_ticket(each.ticket, subscriber.ticket_hash, subscriber.created_by)
            valid[place] = subscriber, parse_cursor(connection, each.cursor, end)
        except ServerError as error:
            results[place] = error
    for place, cursor in zip(valid, acknowledge(connection, valid.values()), strict=True):
        results[place] = cursor
    return results, {subscriber.number for subscriber, _ in valid.values()}
