"""One event and its candidates, from parked to settled: looked at as often as answers come in.

parked rows ──▶ the event's vocabulary, its desk ──▶ look ──▶ settled ones written at once
                                                      ▲        │ some not answered yet
                                                      └─ woken ◀┘
failed ──▶ the next time of the schedule, or given up
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from sqlalchemy import Connection, Row

from semantic import CanonicalEvent, Event, Vocabulary
from semantic.operators.screened import EITHER
from server.broker.late_matches import Settlement
from server.broker.publishing import bindings_json
from server.cloudevents import EventReader
from server.operators.asking import Asking
from server.parking.desk import Verdicts
from server.parking.desks import Desks
from server.parking.settling import SettlingLog
from server.store.events import find_event
from server.store.parking import Retry
from server.store.subscriptions import trees
from server.strict_json import decode

__all__ = ["Parked", "Schedule", "decide_event"]

UNREADABLE = "the event cannot be read under the vocabulary that it was accepted under"


@dataclass(frozen=True, slots=True)
class Parked:
    """The due candidates of one event: (number, id, tries so far) each."""

    event: int
    version: str
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


@dataclass(slots=True)
class _Open:
    """Candidates that are not settled yet, by id."""

    numbers: dict[str, int]
    tries: dict[str, int]
    written: "list[asyncio.Future[None]]" = field(default_factory=list)


async def decide_event(
    parked: Parked, desks: Desks, settling: SettlingLog, schedule: Schedule, reader: EventReader
) -> None:
    """Returns when every candidate is settled or postponed, on disk. Cancelled, it leaves the rest parked."""
    row = await desks.broker.read(lambda connection: find_event(connection, parked.event))
    if row is None:
        return  # too old meanwhile: its candidates are gone with it
    loop, woken = asyncio.get_running_loop(), asyncio.Event()
    asking = Asking(desks.ways, woken=lambda: _wake(loop, woken))
    open = _Open(
        numbers={id: number for number, id, _ in parked.candidates},
        tries={id: tries for _, id, tries in parked.candidates},
    )
    look = _Look(await desks.versions.get(parked.version), reader.from_object(decode(row.body.encode())).event, asking)
    try:
        while open.numbers:
            woken.clear()
            verdicts = await desks.run(partial(look.verdicts, desks, tuple(open.numbers)))
            if isinstance(verdicts, Verdicts):
                _settle(parked.event, verdicts, open, asking, settling, schedule)
                if open.numbers:
                    await woken.wait()
            else:
                await _bring_trees(desks, look, verdicts, open)
    finally:
        asking.cancel()
    await asyncio.gather(*open.written)


@dataclass(slots=True)
class _Look:
    """One event under its vocabulary, and how to look at its candidates. In the thread of the desks."""

    vocabulary: Vocabulary
    event: Event
    asking: Asking
    _canonical: CanonicalEvent | None = None

    def verdicts(self, desks: Desks, ids: Sequence[str]) -> Verdicts | list[str]:
        """What can be said now; or which subscriptions the desk does not know (it may have been made anew)."""
        desk = desks.at(self.vocabulary)
        lacking = desk.lacks(ids)
        if lacking:
            return lacking
        if self._canonical is None:
            self._canonical = desk.canonical(self.event)
        if self._canonical is None:
            return Verdicts(reasons=dict.fromkeys(ids, UNREADABLE))
        return desk.decide(self._canonical, ids, self.asking)


async def _bring_trees(desks: Desks, look: _Look, lacking: Sequence[str], open: _Open) -> None:
    """Teach the desk what it lacks; a subscription that is gone took its candidates with it."""
    numbers = [open.numbers[id] for id in lacking]
    found = await desks.broker.read(lambda connection: _trees(connection, numbers))
    await desks.run(lambda: desks.at(look.vocabulary).learn_trees(found))
    open.numbers = {id: number for id, number in open.numbers.items() if id in found or id not in lacking}


def _settle(
    event: int, verdicts: Verdicts, open: _Open, asking: Asking, settling: SettlingLog, schedule: Schedule
) -> None:
    """Hand on what is settled now."""
    now = time.time()
    retries: list[Retry] = []
    for id, reason in {**verdicts.reasons, **verdicts.turned_away}.items():
        tried = id in verdicts.reasons
        tries = open.tries[id] + tried
        ways = reason.split(EITHER)
        hopeless = tried and all(any(each in way for each in asking.for_good) for way in ways)
        if tried:
            at = None if hopeless else schedule.next_try(tries, now, not_before=asking.not_before)
        else:
            at = now + asking.busy_seconds
        retries.append(_retry(event, open.numbers[id], reason, tries, at))
    settlement = Settlement(
        event=event,
        matched={open.numbers[id]: bindings_json(match) for id, match in verdicts.matched.items()},
        unmatched=[open.numbers[id] for id in verdicts.unmatched],
        retries=retries,
    )
    if settlement.matched or settlement.unmatched or retries:
        open.written.append(settling.add(settlement))
    open.numbers = {id: open.numbers[id] for id in verdicts.pending}


def _retry(event: int, number: int, reason: str, tries: int, at: float | None) -> Retry:
    return {
        "of_event": event,
        "of_subscription": number,
        "of_reason": reason,
        "of_tries": tries,
        "of_next_try_at": at,
    }


def _trees(connection: Connection, numbers: Sequence[int]) -> dict[str, Any]:
    rows: list[Row[Any]] = list(trees(connection, live_only=False, numbers=numbers))
    return {row.id: row.tree for row in rows}


def _wake(loop: asyncio.AbstractEventLoop, woken: asyncio.Event) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(woken.set)
