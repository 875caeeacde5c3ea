"""One subscription's webhook queue, strictly in order: the next message leaves when the one before has arrived.

    read state and a page ──▶ slot of the endpoint ──▶ WebhookSender.send ──▶ progress ──▶ next message
                                                              │ failed
                                                              ▼
                                        status, next time (on disk) ──▶ the outbox sets a timer

It ends when nothing waits, when the subscription is no longer to be called, or at the first failure. What it holds is
on disk, save the progress being written.
"""

import asyncio
import time
from dataclasses import dataclass, field

from sqlalchemy import Connection

from server.broker import Broker
from server.delivery.endpoints import Endpoints
from server.delivery.message import encode, message_id, message_of
from server.delivery.progress import ProgressLog
from server.delivery.schedule import RetrySchedule
from server.delivery.webhook import Delivery, Outcome, WebhookSender
from server.security.egress import SinkRefused, check_sink
from server.store.deliveries import PUSHED_STATUSES, Progress, StoredMatch, Subscriber, find_subscriber, read_matches

__all__ = ["Courier"]

PAGE_MESSAGES = 64
PAGE_BYTES = 1 << 20
"""Held per queue at most, save for one event that is larger."""

LONGEST_SHARED_PAUSE_SECONDS = 60.0
"""How long the 429 or 502 of one subscription holds up the others at its endpoint. Short, because an endpoint may be a
large host whose customers have nothing to do with each other; the subscription itself obeys Retry-After in full."""


READS_AT_ONCE = 2
"""Of the store, by all couriers together: a burst for thousands of webhooks must leave connections to those who
pull."""


@dataclass(slots=True)
class Courier:
    """Delivers for any number of subscriptions, each in a task of its own. On one event loop. Once `stopping`, nothing
    new leaves."""

    broker: Broker
    sender: WebhookSender
    endpoints: Endpoints
    progress: ProgressLog
    schedule: RetrySchedule
    stopping: bool = False
    _reading: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(READS_AT_ONCE))

    async def deliver(self, number: int, announced: asyncio.Event) -> float | None:
        """Delivers what waits for a subscription; `announced` is set when something about it was committed.

        Returns when to come again, in seconds since 1970; None when there is nothing to come for until an announcement.
        """
        after = 0
        while True:
            announced.clear()
            subscriber = await self._called(number)
            if subscriber is None:
                return None
            page = await self._page(number, max(after, subscriber.start))
            if not page:
                return None
            errors = subscriber.consecutive_errors if subscriber.status == "failing" else 0
            if (due := self._due(subscriber, errors)) > time.time():
                return due
            written: asyncio.Future[None] | None = None
            for match in page:
                async with self.endpoints.slot(_endpoint(subscriber), failing=errors > 0):
                    # Waiting for the slot may have taken long: paused, deleted, acknowledged by hand meanwhile?
                    if announced.is_set() or self.stopping:
                        announced.clear()
                        if (subscriber := await self._called(number)) is None:
                            return None
                    if match.position <= subscriber.start:
                        continue
                    if (due := self._due(subscriber, errors)) > time.time():
                        return due
                    outcome = await self.sender.send(_delivery(subscriber, match))
                self.endpoints.note(_endpoint(subscriber), answered=outcome.status_code is not None)
                step = self._step(subscriber, match, outcome, errors)
                written = self.progress.add(step)
                if outcome.kind != "delivered":
                    await written
                    return step.next_attempt_at
                after, errors = match.position, 0
            if written is not None:
                await written

    def _due(self, subscriber: Subscriber, errors: int) -> float:
        """When the next attempt may begin, in seconds since 1970: the schedule's time, or the end of a pause."""
        planned = subscriber.next_attempt_at if errors else None
        return max(planned or 0.0, self.endpoints.rests_until(_endpoint(subscriber)))

    async def _called(self, number: int) -> Subscriber | None:
        """The subscription, if its sink is to be called at all."""
        if self.stopping:
            return None
        async with self._reading:
            subscriber = await self.broker.read(lambda connection: find_subscriber(connection, number))
        if subscriber is None or subscriber.sink is None or subscriber.expires_at <= time.time():
            return None
        return subscriber if subscriber.status in PUSHED_STATUSES else None

    async def _page(self, number: int, after: int) -> list[StoredMatch]:
        def read(connection: Connection) -> list[StoredMatch]:
            return read_matches(connection, number, after=after, limit=PAGE_MESSAGES, byte_budget=PAGE_BYTES)

        async with self._reading:
            return await self.broker.read(read)

    def _step(self, subscriber: Subscriber, match: StoredMatch, outcome: Outcome, errors: int) -> Progress:
        """What the outcome means for the subscription, which had failed `errors` times in a row before."""
        status, reason, next_attempt_at = "active", None, None
        if outcome.kind != "delivered":
            errors += 1
            delay = self.schedule.delay(errors, outcome.retry_after)
            if outcome.slow_down:
                pause = LONGEST_SHARED_PAUSE_SECONDS if delay is None else delay
                self.endpoints.pause(_endpoint(subscriber), min(pause, LONGEST_SHARED_PAUSE_SECONDS))
            if outcome.kind == "gone" or delay is None:
                status = "disabled_by_failures"
                reason = outcome.detail if outcome.kind == "gone" else f"{errors} failures in a row: {outcome.detail}"
            else:
                status, reason, next_attempt_at = "failing", outcome.detail, outcome.at + delay
        return Progress(
            number=subscriber.number,
            position=match.position,
            sequence=match.sequence,
            at=outcome.at,
            outcome=outcome.kind,
            status_code=outcome.status_code,
            detail=outcome.detail,
            status=status,
            status_reason=reason,
            consecutive_errors=0 if outcome.kind == "delivered" else errors,
            next_attempt_at=next_attempt_at,
        )


def _delivery(subscriber: Subscriber, match: StoredMatch) -> Delivery:
    return Delivery(
        sink=subscriber.sink or "",
        secret=subscriber.secret or "",
        message_id=message_id(subscriber.id, match.sequence),
        body=encode(message_of(subscriber.id, match)),
        protocolsettings=subscriber.protocolsettings or {},
        sinkcredential=subscriber.sinkcredential or {},
    )


def _endpoint(subscriber: Subscriber) -> str:
    """What its sink shares with others. A sink that is refused today (it was not when it was stored) stands for
    itself."""
    sink = subscriber.sink or ""
    try:
        return check_sink(sink, allow_private=True).endpoint
    except SinkRefused:
        return sink
