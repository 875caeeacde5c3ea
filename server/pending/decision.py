"""The decision of one event's pending candidates, continued each time an operator's answer arrives.

pending rows ──▶ the event's vocabulary, its late matcher ──▶ case ──▶ decided ones written at once
                                                               ▲        │ some not answered yet
                                                               └─ woken ◀┘
failed ──▶ the next time of the schedule, or given up

An operator that fails leaves its candidates for the next try, in which what others answered is not asked again. In the
last try the other calls are asked all the same: they may still tell that an event is not for a subscription.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from sqlalchemy import Connection, Row

from kindcast.semantic import Event, Vocabulary
from kindcast.semantic.operators.failures import Failure
from kindcast.server.broker import Broker
from kindcast.server.broker.late_matches import Settlement, settle
from kindcast.server.broker.publishing import bindings_json
from kindcast.server.cloudevents import EventReader
from kindcast.server.operators.answers import Asking
from kindcast.server.pending.late_matchers import TURNED_AWAY, Case, LateMatchers, Verdicts
from kindcast.server.store.events import find_event
from kindcast.server.store.pending import Retry
from kindcast.server.store.subscriptions import trees
from kindcast.server.strict_json import decode

__all__ = ["Parked", "Schedule", "SettlingLog", "decide_event", "wake"]


# What was decided, on its way to disk: collected while the broker is busy, written together.
#
# If the process dies before it is written, the candidates are still parked, and are decided again after the start.

log = logging.getLogger("kindcast.parking")

RETRY_SECONDS = 1.0
"""After a failed write (a full disk, most likely), until the next try."""


class SettlingLog:
    """A queue in front of `settle`. On one event loop."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._waiting: list[tuple[Settlement, asyncio.Future[None]]] = []
        self._filled = asyncio.Event()
        self._closing = False

    def add(self, settlement: Settlement) -> "asyncio.Future[None]":
        """Takes what came of an event; the future is done when it is on disk."""
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((settlement, written))
        self._filled.set()
        return written

    def close(self) -> None:
        """Makes `run` end as soon as nothing waits."""
        self._closing = True
        self._filled.set()

    async def run(self) -> None:
        """Writes until `close`; a write that fails is tried again."""
        while self._waiting or not self._closing:
            await self._filled.wait()
            self._filled.clear()
            some, self._waiting = self._waiting, []
            if some and not await self._write(some):
                if self._closing:
                    return  # decided again after the start
                self._waiting = some + self._waiting
                await asyncio.sleep(RETRY_SECONDS)
                self._filled.set()

    async def _write(self, some: "list[tuple[Settlement, asyncio.Future[None]]]") -> bool:
        try:
            await self._broker.submit(lambda group: settle(group, [each for each, _ in some]))
        except Exception as error:  # whatever it is: what was decided stays decided
            log.error("late decisions about %d events could not be written; trying again: %s", len(some), error)
            return False
        for _, written in some:
            if not written.done():
                written.set_result(None)
        return True


# ── decision ──────────────────────────────────────────────────────────────────────────────────────────────────────────

UNREADABLE = Failure("failed", "the event cannot be read under the vocabulary that it was accepted under")


@dataclass(frozen=True, slots=True)
class Parked:
    """The due candidates of one event: (number, id, tries so far) each. `last`: this is their last try."""

    event: int
    version: str
    last: bool
    candidates: Sequence[tuple[int, str, int]]


@dataclass(frozen=True, slots=True)
class Schedule:
    """When a failed candidate is tried again."""

    delays: Sequence[float]

    def next_try(self, tries: int, now: float, *, not_before: float = 0.0) -> float | None:
        """After so many failed tries; None: no more.

        >>> Schedule((1.0, 5.0)).next_try(1, 100.0), Schedule((1.0, 5.0)).next_try(3, 100.0)
        (101.0, None)
        """
        return None if tries > len(self.delays) else max(now + self.delays[tries - 1], not_before)

    def is_last(self, tries: int) -> bool:
        """Whether the try after so many failed ones is the last."""
        return tries >= len(self.delays)


@dataclass(slots=True)
class _Open:
    """Candidates that are not settled yet, by id."""

    numbers: dict[str, int]
    tries: dict[str, int]
    written: "list[asyncio.Future[None]]" = field(default_factory=list)
    postponed: set[str] = field(default_factory=set)
    """Those that are to be tried again."""


async def decide_event(
    parked: Parked, desks: LateMatchers, settling: SettlingLog, schedule: Schedule, reader: EventReader
) -> None:
    """Returns when every candidate is settled or postponed, on disk. Cancelled, it leaves the rest parked."""
    row = await desks.broker.read(lambda connection: find_event(connection, parked.event))
    if row is None:
        return  # too old meanwhile: its candidates are gone with it
    loop, woken = asyncio.get_running_loop(), asyncio.Event()
    vocabulary = await desks.versions.get(parked.version)
    event = reader.from_object(decode(row.body.encode())).event
    open = _Open(
        numbers={id: number for number, id, _ in parked.candidates},
        tries={id: tries for _, id, tries in parked.candidates},
    )
    with desks.answers.of(parked.event, open.numbers) as (answers, open.postponed):
        asking = Asking(desks.ways, woken=lambda: wake(loop, woken), answers=answers)
        try:
            begin = partial(_begin, desks, vocabulary, event, asking, patient=not parked.last)
            case = await _begun(desks, vocabulary, open, begin)
            if case is not None and case.costly:
                verdicts = await desks.texts.ask(case.costly)
                otherwise = TURNED_AWAY if verdicts is None else None
                await desks.run(partial(case.settle, verdicts or {}, otherwise))
            while case is not None and open.numbers:
                woken.clear()
                _settle(parked.event, await desks.run(case.advance), open, settling, schedule)
                if open.numbers:
                    await woken.wait()
            if case is None and open.numbers:
                unreadable = Verdicts(undecided=dict.fromkeys(open.numbers, UNREADABLE))
                _settle(parked.event, unreadable, open, settling, schedule)
        finally:
            asking.cancel()
    await asyncio.gather(*open.written)


def _begin(
    desks: LateMatchers, vocabulary: Vocabulary, event: Event, asking: Asking, ids: Sequence[str], *, patient: bool
) -> Case | list[str] | None:
    """The case; or which subscriptions the late matcher lacks (it may have been rebuilt); None where the event cannot
    be read. In the thread of the late matchers."""
    desk = desks.at(vocabulary)
    lacking = desk.lacks(ids)
    if lacking:
        return lacking
    canonical = desk.canonical(event)
    return None if canonical is None else desk.begin(canonical, ids, asking, patient=patient)


async def _begun(
    desks: LateMatchers, vocabulary: Vocabulary, open: _Open, begin: Callable[[Sequence[str]], Case | list[str] | None]
) -> Case | None:
    """The case, once the late matcher has all candidates; those of deleted subscriptions are dropped."""
    while True:
        found = await desks.run(partial(begin, tuple(open.numbers)))
        if not isinstance(found, list):
            return found
        numbers = [open.numbers[id] for id in found]
        known = await desks.broker.read(partial(_trees, numbers=numbers))
        await desks.run(partial(_learn, desks, vocabulary, known))
        open.numbers = {id: number for id, number in open.numbers.items() if id in known or id not in found}


def _settle(event: int, verdicts: Verdicts, open: _Open, settling: SettlingLog, schedule: Schedule) -> None:
    """Queue the decisions made so far for writing."""
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
        settlement = Settlement(
            event=event,
            matched={open.numbers[id]: bindings_json(match) for id, match in matched.items()},
            unmatched=[open.numbers[id] for id in unmatched],
            retries=retries,
        )
        open.written.append(settling.add(settlement))
        settled = {*matched, *unmatched, *failed}
        open.numbers = {id: number for id, number in open.numbers.items() if id not in settled}


def _retry(event: int, number: int, failure: Failure, tries: int, schedule: Schedule, now: float) -> Retry:
    """A try that failed; one that was turned away since the operator has too much to do counts for nothing."""
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


def _learn(desks: LateMatchers, vocabulary: Vocabulary, trees: Mapping[str, Any]) -> None:
    desks.at(vocabulary).learn_trees(trees)


def _trees(connection: Connection, numbers: Sequence[int]) -> dict[str, Any]:
    rows: list[Row[Any]] = list(trees(connection, live_only=False, numbers=numbers))
    return {row.id: row.tree for row in rows}


def wake(loop: asyncio.AbstractEventLoop, woken: asyncio.Event) -> None:
    """An answer has come. Any thread."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(woken.set)
