"""The decision of one event's pending candidates, continued each time an operator's answer arrives.

pending rows ──▶ the event's vocabulary, its late matcher ──▶ case ──▶ decided candidates are written at once
                                                               ▲        │ some not answered yet
                                                               └─ woken ◀┘
failed ──▶ the next time of the schedule, or given up

If an operator fails, its candidates wait for the next try, which does not repeat answered calls. In the last try the
other calls are still made, because they may show that the event does not match.
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
from kindcast.semantic.operators import Failure
from kindcast.server.broker import Broker
from kindcast.server.broker.late_matches import LateDecisions, record_decisions
from kindcast.server.broker.publishing import bindings_json
from kindcast.server.broker.write_queue import WriteQueue
from kindcast.server.cloudevents import EventReader, arrived
from kindcast.server.errors import RecordDamaged
from kindcast.server.operators.answers import EventAnswers
from kindcast.server.pending.late_matchers import TURNED_AWAY, Case, LateMatchers, Verdicts
from kindcast.server.store.events import find_event
from kindcast.server.store.pending import Retry
from kindcast.server.store.subscriptions import trees
from kindcast.server.strict_json import decode

__all__ = ["Parked", "Schedule", "decide_event", "decision_queue", "wake"]


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
