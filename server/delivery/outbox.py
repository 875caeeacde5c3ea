"""The outbox: delivers every match of a subscription with a sink, in order, and retries after failures.

    broker commits ──announcement──▶ woken ──which of them wait?──▶ a courier per subscription (at most one at a time)
    start ──────────all that wait────▶                                   │ failed: come again at …
                                          timers ◀───────────────────────┘

The outbox has no queue of its own: the queue is the matches after `acked` in the store. So nothing must be restored
after a crash and nothing can be lost, and a resumed or renewed subscription continues where it stopped. Everything runs
in one task group on the event loop. Couriers share the connections of the senders and the slots of the endpoints.
"""

import asyncio
import contextlib
import logging
import random
import secrets
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
from sqlalchemy import Connection

from kindcast.server import tracing
from kindcast.server.broker import Broker
from kindcast.server.broker.group import Touched
from kindcast.server.broker.write_queue import WriteQueue
from kindcast.server.clock import CLOCK
from kindcast.server.delivery.message import (
    Notice,
    as_cloudevent,
    encode,
    message_id,
    message_of,
    notice_as_cloudevent,
    notice_of,
)
from kindcast.server.delivery.protocols import DEFAULT_PROTOCOL, PROTOCOLS, Sender
from kindcast.server.delivery.turns import Look, Looks
from kindcast.server.delivery.webhook import Delivery, Outcome
from kindcast.server.errors import HiddenAttribute, RecordDamaged, ServerError, StoreDamaged, StoreUnavailable
from kindcast.server.security.egress import SinkRefused, check_sink
from kindcast.server.security.permissions import Reader
from kindcast.server.settings import Settings
from kindcast.server.store.deliveries import (
    PUSHED_STATUSES,
    Progress,
    StoredMatch,
    Subscriber,
    awaiting_webhooks,
    record_progress,
    with_sinks,
)
from kindcast.server.store.postings import Numbers
from kindcast.server.worker_threads import Share

__all__ = ["Endpoints", "Outbox", "RetrySchedule", "Trial", "progress_queue"]


log = logging.getLogger(__name__)

T = TypeVar("T")

# The retry schedule of failed webhooks. The delays are the setting `webhook_delays_seconds`. Jitter spreads the
# attempts of webhooks that failed at the same time.

LONGEST_WISH_SECONDS = 86_400.0
"""The longest Retry-After of a sink that is obeyed. A longer one would stop the subscription without notice."""


@dataclass(frozen=True, slots=True)
class RetrySchedule:
    """`delays[n]` is the number of seconds to wait after n + 1 failures in a row. After more failures the webhook is
    disabled. A delay is lengthened by a random share of up to `jitter`."""

    delays: Sequence[float]
    jitter: float

    def delay(self, failures: int, retry_after: float | None = None) -> float | None:
        """Returns the seconds until the next attempt after this many failures in a row, but not less than
        `retry_after`. Returns None if that was the last attempt.

        >>> RetrySchedule(delays=(5.0, 60.0), jitter=0.0).delay(1, retry_after=20.0)
        20.0
        """
        if failures > len(self.delays):
            return None
        planned = self.delays[failures - 1] * random.uniform(1.0, 1.0 + self.jitter)
        return max(planned, min(retry_after or 0.0, LONGEST_WISH_SECONDS))


# ── endpoints ─────────────────────────────────────────────────────────────────────────────────────────────────────────
# Limits on concurrent requests, per endpoint and in total.
#
# An endpoint is scheme, host and port. All subscriptions with sinks there share its slots, and its pause after a 429 or
# 502. The slots of all endpoints are divided into three lanes, so that sinks that never answer can fill only their own
# lane:
#
#     proven     one half      the endpoint has answered lately, whatever it said
#     new        a quarter     it has not answered yet
#     failing    a quarter     the subscription's last attempt failed
#
# Attempts to endpoints that are slow, that failed, or whose answers do not end, also begin one after the other.
# Beginning an attempt is work of this process, and deliveries to fast endpoints must not wait for it.

ENDPOINT_SHARE = 8
"""One endpoint gets at most one of this many slots, whatever the settings say: half of the smallest lanes."""

PLACE_BYTES = 1 << 17
"""The size of a place in a lane. A larger message takes as many as it fills. So large ones do not fill the memory."""

HANGING_SECONDS = 1.0
"""An attempt without an answer for this long gives its place in the lane to others, and is counted as hanging."""
MAX_HANGING = 1_024
"""The maximum number of places of hanging attempts. Each attempt holds a connection and one message."""

MAX_PROVEN = 100_000
"""The maximum number of endpoints remembered as proven or as slow. When there are more, the list is cleared."""

SLOW_AT_ONCE = 2
"""How many attempts to slow endpoints may begin at the same time. Connecting and signing cost as much as a successful
delivery, and deliveries to fast endpoints must not wait for them."""
BEGIN_SECONDS = 0.1
"""After this time such an attempt counts as begun, and the next one may begin."""


@dataclass(slots=True)
class _Endpoint:
    slots: asyncio.Semaphore
    users: int = 0
    rests_until: float = 0.0


class Endpoints:
    """The slots of all endpoints. Runs on one event loop. Endpoints without users and without a pause are forgotten."""

    def __init__(self, at_once: int, at_once_per_endpoint: int) -> None:
        quarter = max(1, at_once // 4)
        self._proven_lane = Share(max(1, at_once - 2 * quarter) * PLACE_BYTES)
        self._new_lane = Share(quarter * PLACE_BYTES)
        self._failing_lane = Share(quarter * PLACE_BYTES)
        self._per_endpoint = max(1, min(at_once_per_endpoint, at_once // ENDPOINT_SHARE))
        self._hanging_bytes = 0
        self._turns = asyncio.Semaphore(SLOW_AT_ONCE)
        self._slow: set[str] = set()
        self._proven: set[str] = set()
        self._known: dict[str, _Endpoint] = {}

    @asynccontextmanager
    async def slot(self, endpoint: str, *, failing: bool, size: int = 0) -> AsyncIterator[None]:
        """Waits for a slot of the endpoint, and only then for a place in the lane, or several for a message of this
        `size` in bytes. So a courier that waits for a busy endpoint holds nothing that others need."""
        known = self._endpoint(endpoint)
        known.users += 1
        try:
            async with (
                known.slots,
                self._place(self._lane(endpoint, failing=failing), max(PLACE_BYTES, size)),
                self._turn(slow=failing or endpoint in self._slow),
            ):
                yield
        finally:
            known.users -= 1
            if not known.users and known.rests_until <= CLOCK.now():
                del self._known[endpoint]

    @asynccontextmanager
    async def _place(self, lane: Share, size: int) -> AsyncIterator[None]:
        """A place in the lane. After `HANGING_SECONDS` the attempt is counted as hanging, if there is room, and the
        place is free for others."""
        await lane.take(size)
        loop, hangs = asyncio.get_running_loop(), False
        timer: asyncio.TimerHandle

        def move() -> None:
            nonlocal hangs, timer
            if self._hanging_bytes + size <= MAX_HANGING * PLACE_BYTES:
                self._hanging_bytes += size
                hangs = True
                lane.give_back(size)
            else:
                timer = loop.call_later(HANGING_SECONDS, move)

        timer = loop.call_later(HANGING_SECONDS, move)
        try:
            yield
        finally:
            timer.cancel()
            if hangs:
                self._hanging_bytes -= size
            else:
                lane.give_back(size)

    @asynccontextmanager
    async def _turn(self, *, slow: bool) -> AsyncIterator[None]:
        """A turn to begin. Attempts to slow endpoints begin one after the other."""
        if not slow:
            yield
            return
        await self._turns.acquire()
        begun = False

        def end() -> None:
            nonlocal begun
            if not begun:
                begun = True
                self._turns.release()

        timer = asyncio.get_running_loop().call_later(BEGIN_SECONDS, end)
        try:
            yield
        finally:
            timer.cancel()
            end()

    def note(self, endpoint: str, *, answered: bool, slow: bool = False) -> None:
        """Records whether an attempt got an answer, good or bad. An endpoint without an answer must prove itself again.
        `slow`: the answer took long, or did not end."""
        if slow and len(self._slow) >= MAX_PROVEN:
            self._slow.clear()
        (self._slow.add if slow else self._slow.discard)(endpoint)
        if answered and len(self._proven) >= MAX_PROVEN:
            self._proven.clear()
        (self._proven.add if answered else self._proven.discard)(endpoint)

    def pause(self, endpoint: str, seconds: float) -> None:
        """Pauses all requests to the endpoint for some seconds."""
        known = self._endpoint(endpoint)
        known.rests_until = max(known.rests_until, CLOCK.now() + seconds)

    def rests_until(self, endpoint: str) -> float:
        """Returns when the pause of the endpoint ends, in seconds since 1970; 0 if there is none."""
        known = self._known.get(endpoint)
        return known.rests_until if known is not None and known.rests_until > CLOCK.now() else 0.0

    def _endpoint(self, endpoint: str) -> _Endpoint:
        return self._known.setdefault(endpoint, _Endpoint(asyncio.Semaphore(self._per_endpoint)))

    def _lane(self, endpoint: str, *, failing: bool) -> Share:
        if failing:
            return self._failing_lane
        return self._proven_lane if endpoint in self._proven else self._new_lane


# ── courier ───────────────────────────────────────────────────────────────────────────────────────────────────────────
# The webhook queue of one subscription, strictly in order: a message is sent after the previous one was delivered.
#
#     read state and a page ──▶ slot of the endpoint ──▶ Sender.send ──▶ progress ──▶ next message
#                                                         │ failed
#                                                               ▼
#                                         status, next time (on disk) ──▶ the outbox sets a timer
#
# A courier ends when nothing waits, when the sink must not be called any more, or at the first failure. All its state
# is on disk, except the progress that is being written.

PAGE_MESSAGES = 64
PAGE_BYTES = 1 << 20
"""The maximum memory of one queue, unless one event is larger."""
PAGES_BYTES = 64 << 20
"""The maximum memory of all queues. Above it, a courier waits for its slot first, and then reads."""

LONGEST_SHARED_PAUSE_SECONDS = 60.0
"""How long the 429 or 502 of one subscription stops the others at its endpoint. It is short, because an endpoint may be
a large host with unrelated customers. The subscription itself obeys Retry-After in full."""


READS_ALONE = 2
"""How many couriers may read the messages of one request at the same time."""

QUIET_SECONDS = 0.02
"""How long the courier of a slow endpoint waits for the other couriers to finish before it reads."""


class _Hidden(ServerError):
    """The creator of the subscription may not see its matches any more. `match` is the next one."""

    def __init__(self, subscriber: Subscriber, match: StoredMatch, reason: str) -> None:
        super().__init__(reason)
        self.subscriber, self.match = subscriber, match


@dataclass(slots=True)
class _Page:
    """The next messages of a subscription, and how far their delivery is."""

    subscriber: Subscriber
    messages: list[StoredMatch]
    whole: bool
    """Whether these are all messages that wait."""
    errors: int
    """How many attempts failed in a row before."""
    after: int
    """The position of the message that was delivered last."""
    written: asyncio.Future[None] | None = None
    """Done when the progress so far is on disk."""


@dataclass(slots=True)
class Courier:
    """Delivers for any number of subscriptions, each in its own task, on one event loop. After `stopping` is set,
    nothing more is sent."""

    broker: Broker
    senders: Mapping[str, Sender]
    endpoints: Endpoints
    looks: Looks
    progress: WriteQueue[Progress]
    schedule: RetrySchedule
    stopping: bool = False
    changed: set[int] = field(default_factory=set)
    """Subscriptions whose messages are being delivered, and that changed meanwhile: not only matches were added."""
    _reading_for_slow: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(1))
    _reading_alone: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(READS_ALONE))
    _failed_group: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Subscription number → first and last position of the failed request. It is tried again with the same messages."""
    _pages_bytes: int = 0  # in memory
    _slow: set[int] = field(default_factory=set)  # subscriptions whose endpoint was slow at the last attempt
    _prompt: int = 0  # number of running couriers of the other subscriptions
    _quiet: asyncio.Event = field(default_factory=asyncio.Event)

    def forget(self, numbers: Iterable[int]) -> None:
        """Called with subscriptions that have no sink any more."""
        for number in numbers:
            self._failed_group.pop(number, None)
            self._slow.discard(number)

    async def deliver(self, number: int, announced: asyncio.Event) -> float | None:
        """Delivers the waiting messages of a subscription. `announced` is set when a commit concerns the subscription.

        Returns when to call this again, in seconds since 1970; None if there is nothing to do before the next
        announcement.
        """
        if number in self._slow:
            return await self._deliver(number, announced)
        self._prompt += 1
        self._quiet.clear()
        try:
            return await self._deliver(number, announced)
        finally:
            self._prompt -= 1
            if not self._prompt:
                self._quiet.set()

    async def _deliver(self, number: int, announced: asyncio.Event) -> float | None:
        async with AsyncExitStack() as early:  # the slot for the first request, if it is taken before it is read
            alone = False
            while True:
                announced.clear()
                try:
                    page = await self._read(number, alone=alone)
                except RecordDamaged as error:
                    return await self._stopped_by(number, error)
                except _Hidden as error:
                    return await self._not_sent(error.subscriber, error.match, str(error))
                if page is None:
                    return None
                if (due := self._due(page.subscriber, page.errors)) > CLOCK.now():
                    return due
                if not alone and self._pages_bytes + _size(page.messages) > PAGES_BYTES:
                    slot = self._slot(page, next(_groups(page, self._failed_group.get(number))))
                    del page
                    await early.enter_async_context(slot)
                    alone = True
                    continue
                taken = early.pop_all() if alone else None
                alone = False
                again = await self._deliver_page(page, announced, taken)
                del page
                if again is None or again > CLOCK.now():
                    return again

    async def _deliver_page(self, page: _Page, announced: asyncio.Event, slot: AsyncExitStack | None) -> float | None:
        """Delivers messages. `slot` is for the first request, if it was taken before. Returns when to read again, like
        `deliver`."""
        number = page.subscriber.number
        if page.subscriber.last_success is not None and not page.errors:  # perhaps from before a restart
            self.endpoints.note(_endpoint(page.subscriber), answered=True)
        size = _size(page.messages)
        self._pages_bytes += size
        try:
            for group in _groups(page, self._failed_group.get(number)):
                async with slot or self._slot(page, group):
                    slot = None
                    if not await self._may_continue(page, announced):
                        return CLOCK.now()
                    if not (group := [match for match in group if match.position > page.subscriber.start]):
                        continue
                    if (fence := self.broker.leases.fence(number)) is None:
                        return None  # another server delivers
                    if (due := self._due(page.subscriber, page.errors)) > CLOCK.now():
                        return due
                    outcome = await self._attempt(page.subscriber, group)
                if outcome.kind != "delivered":
                    self._failed_group[number] = group[0].position, group[-1].position
                    step = self._step(page.subscriber, page.after, group[0], outcome, page.errors, fence)
                    await self.progress.add(step)
                    return step.next_attempt_at
                self._note_delivered(page, group, outcome, fence)
                if page.subscriber.throttling is not None:
                    return outcome.at + page.subscriber.throttling
        finally:
            self._pages_bytes -= size
            if page.written is not None:
                await page.written  # the next page begins after what is on disk
        # Later messages would have been announced.
        return None if page.whole and not announced.is_set() else CLOCK.now()

    async def _may_continue(self, page: _Page, announced: asyncio.Event) -> bool:
        """Whether the rest of the page may be sent as it is. Waiting for a slot may have taken long: the subscription
        is read again if it was announced meanwhile."""
        if not (announced.is_set() or self.stopping):
            return True
        announced.clear()
        page.whole = False  # the announcement may be about a message after the page
        number, start = page.subscriber.number, page.subscriber.start
        if number in self.changed:
            self.changed.discard(number)
            if page.written is not None:
                await page.written
            start = page.after  # what is on disk, unless a replay began
        called = await self._called(number)
        if called is None or _batch(called) != _batch(page.subscriber) or called.start < start:
            return False  # it ends, the page must be grouped differently, or a replay began
        page.subscriber = called
        return True

    def _note_delivered(self, page: _Page, group: Sequence[StoredMatch], outcome: Outcome, fence: int) -> None:
        """Has the progress written while the next request is sent."""
        self._failed_group.pop(page.subscriber.number, None)
        for match in group:
            page.written = self.progress.add(self._step(page.subscriber, page.after, match, outcome, 0, fence))
            page.after = match.position
        page.errors = 0

    def _slot(self, page: _Page, group: Sequence[StoredMatch]) -> contextlib.AbstractAsyncContextManager[None]:
        """Returns a slot for a request with these messages."""
        return self.endpoints.slot(_endpoint(page.subscriber), failing=page.errors > 0, size=_size(group))

    async def _attempt(self, subscriber: Subscriber, group: Sequence[StoredMatch]) -> Outcome:
        """Sends one request with these messages. Notes whether the endpoint answered, and how fast."""
        sender = self.senders[subscriber.protocol or DEFAULT_PROTOCOL]
        began = time.monotonic()
        delivery = _delivery(subscriber, group, self._reader(subscriber).shown)
        with tracing.attempt(subscriber.id, delivery.message_id, [each.body for each in group]) as attempt:
            if attempt.traceparent is not None:
                delivery = replace(delivery, traceparent=attempt.traceparent)
            outcome = await sender.send(delivery)
            attempt.ended(outcome)
        slow = outcome.unfinished or time.monotonic() - began > HANGING_SECONDS
        self.endpoints.note(_endpoint(subscriber), answered=_answered(outcome), slow=slow)
        (self._slow.add if slow or outcome.kind == "failed" else self._slow.discard)(subscriber.number)
        return outcome

    async def _stopped_by(self, number: int, damaged: RecordDamaged) -> float | None:
        """Handles a damaged next message. It counts as a failed attempt, so that the subscriber sees why nothing comes.
        This ends when the message is repaired or acknowledged, or the webhook is disabled."""
        if (subscriber := await self._called(number)) is None:
            return None
        gone = StoredMatch(damaged.position or subscriber.start, damaged.sequence, "", None, "")
        return await self._not_sent(subscriber, gone, str(damaged))

    async def _not_sent(self, subscriber: Subscriber, match: StoredMatch, detail: str) -> float | None:
        """Records a failed attempt for the next message, which cannot be sent. Returns when to try again."""
        errors = _errors(subscriber)
        if (due := self._due(subscriber, errors)) > CLOCK.now():
            return due
        if (fence := self.broker.leases.fence(subscriber.number)) is None:
            return None
        outcome = Outcome(kind="failed", at=CLOCK.now(), detail=detail)
        step = self._step(subscriber, subscriber.start, match, outcome, errors, fence)
        await self.progress.add(step)
        return step.next_attempt_at

    def _due(self, subscriber: Subscriber, errors: int) -> float:
        """Returns when the next attempt may begin, in seconds since 1970: the latest of the time of the retry schedule,
        the end of the endpoint's pause, and the next times allowed by the subscription's throttling and by the sink's
        rate. A failure in the future is ignored, like its schedule: the clock was set back since."""
        planned = subscriber.next_attempt_at if errors and (subscriber.last_failure or 0.0) <= CLOCK.now() else None
        ready_at = self.senders[subscriber.protocol or DEFAULT_PROTOCOL].ready_at(subscriber.sink or "")
        return max(
            planned or 0.0, _throttled_until(subscriber), ready_at, self.endpoints.rests_until(_endpoint(subscriber))
        )

    async def _called(self, number: int) -> Subscriber | None:
        """Returns the subscription if its sink may be called and its creator may see its matches, else None."""

        def read(look: Look) -> Subscriber | None:
            called = _if_called(look.subscriber(number))
            return None if called is None or self._hidden(look.connection, called) is not None else called

        return None if self.stopping else await self._ask(number, read)

    def _reader(self, subscriber: Subscriber) -> Reader:
        """Returns the reader whose roles decide what is hidden: the creator of the subscription."""
        return Reader(self.broker.roles_of(subscriber.created_by), lambda: self.broker.vocabulary)

    def _hidden(self, connection: Connection, subscriber: Subscriber) -> str | None:
        """Returns why the creator of the subscription may not see its matches; None if it may."""
        try:
            self._reader(subscriber).check(connection, subscriber.number)
        except HiddenAttribute as error:
            return (
                f"not sent, because of the role of the key that made the subscription (a revoked key has none): {error}"
            )
        return None

    async def _read(self, number: int, *, alone: bool) -> _Page | None:
        """Returns the next messages of the subscription (`alone`: those of one request). Returns None if there are
        none, or its sink may not be called."""

        def read(look: Look) -> _Page | None:
            subscriber = _if_called(look.subscriber(number))
            if subscriber is None:
                return None
            most = _batch(subscriber) or 1
            if not alone:
                most = max(PAGE_MESSAGES, most)
            page = look.read(number, after=subscriber.start, limit=most, byte_budget=PAGE_BYTES)
            if not page:
                return None
            if (reason := self._hidden(look.connection, subscriber)) is not None:
                raise _Hidden(subscriber, page[0], reason)
            whole = len(page) < most and _size(page) < PAGE_BYTES
            return _Page(subscriber, page, whole, _errors(subscriber), after=subscriber.start)

        if self.stopping:
            return None
        if not alone:
            return await self._ask(number, read)
        async with self._reading_alone:  # it holds a slot, which others wait for
            return await self.broker.read(lambda connection: read(Look(connection, [number])))

    async def _ask(self, number: int, question: Callable[[Look], T]) -> T:
        """Asks the store about a subscription. Couriers of slow endpoints ask one after the other, so that the others
        do not wait for them."""
        if number not in self._slow:
            return await self.looks.look(number, number, question)
        async with self._reading_for_slow:
            if self._prompt:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._quiet.wait(), QUIET_SECONDS)
            return await self.looks.look(number, number, question)

    def _step(
        self, subscriber: Subscriber, after: int, match: StoredMatch, outcome: Outcome, errors: int, fence: int
    ) -> Progress:
        """Returns the effect of an outcome on a subscription that had failed `errors` times in a row before. `after` is
        the position of the message before."""
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
            after=after,
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
            fence=fence,
            destination=subscriber.destination,
        )


def _throttled_until(subscriber: Subscriber) -> float:
    """Returns the earliest time of the next request by the subscription's throttling. A last attempt in the future is
    ignored: the clock was set back since."""
    if subscriber.throttling is None:
        return 0.0
    last = max(subscriber.last_success or 0.0, subscriber.last_failure or 0.0)
    return last + subscriber.throttling if last <= CLOCK.now() else 0.0


def _if_called(subscriber: Subscriber | None) -> Subscriber | None:
    if subscriber is None or subscriber.sink is None or subscriber.expires_at <= CLOCK.now():
        return None
    return subscriber if subscriber.status in PUSHED_STATUSES else None


def _size(messages: Sequence[StoredMatch]) -> int:
    return sum(len(each.body) for each in messages)


def _batch(subscriber: Subscriber) -> int | None:
    """Returns the maximum number of messages in one request; None if each is sent alone."""
    return (subscriber.protocolsettings or {}).get("batch")


def _errors(subscriber: Subscriber) -> int:
    """Returns how many attempts have failed in a row."""
    return subscriber.consecutive_errors if subscriber.status == "failing" else 0


def _groups(page: _Page, failed: tuple[int, int] | None) -> Iterator[list[StoredMatch]]:
    """Yields the page in groups, one per request. A request that `failed` before, given by its first and last position,
    has the same messages again."""
    messages, size, start = page.messages, _batch(page.subscriber) or 1, 0
    while start < len(messages):
        end = start + size
        if failed is not None and messages[start].position == failed[0]:
            again = sum(match.position <= failed[1] for match in messages[start:end])
            end = start + max(1, again)
        yield messages[start:end]
        start = end


def _delivery(subscriber: Subscriber, group: Sequence[StoredMatch], shown: Callable[[str], str]) -> Delivery:
    """Makes the request with these messages: a single message, or a list if the subscriber wants batches. `shown`
    removes what is hidden from the subscriber from an event."""
    bare = _is_bare(subscriber)

    def body(match: StoredMatch) -> bytes:
        chosen = subscriber.id, match, subscriber.attributes, shown
        return as_cloudevent(*chosen).encode() if bare else encode(message_of(*chosen))

    if _batch(subscriber) is None:
        return _addressed(subscriber, message_id(subscriber.id, group[0]), body(group[0]))
    id = f"msg_{subscriber.id}_{group[0].position}_to_{group[-1].position}"
    return _addressed(subscriber, id, b"[" + b",".join(map(body, group)) + b"]", batch=True)


def _noticed(subscriber: Subscriber, id: str, notice: Notice) -> Delivery:
    body = notice_as_cloudevent(notice).encode() if _is_bare(subscriber) else encode(notice)
    if _batch(subscriber) is None:
        return _addressed(subscriber, id, body)
    return _addressed(subscriber, id, b"[" + body + b"]", batch=True)


def _answered(outcome: Outcome) -> bool:
    """Whether the endpoint answered. Brokers confirm without a status code."""
    return outcome.status_code is not None or outcome.kind == "delivered"


def _is_bare(subscriber: Subscriber) -> bool:
    """Whether the sink gets the CloudEvent itself, without the message around it."""
    if PROTOCOLS[subscriber.protocol or DEFAULT_PROTOCOL].bare:
        return True
    return (subscriber.protocolsettings or {}).get("format") == "cloudevents"


def _addressed(subscriber: Subscriber, id: str, body: bytes, *, batch: bool = False) -> Delivery:
    protocolsettings, bare = subscriber.protocolsettings or {}, _is_bare(subscriber)
    rotated = subscriber.old_secret is not None and (subscriber.old_secret_until or 0.0) > CLOCK.now()
    return Delivery(
        sink=subscriber.sink or "",
        secret=subscriber.secret or "",
        message_id=id,
        old_secret=subscriber.old_secret if rotated else None,
        body=body,
        content_type=f"application/cloudevents{'-batch' if batch else ''}+json" if bare else "application/json",
        protocolsettings=protocolsettings,
        sinkcredential=subscriber.sinkcredential or {},
    )


def _endpoint(subscriber: Subscriber) -> str:
    """Returns the endpoint of the sink."""
    return _endpoint_of(subscriber.sink or "")


@lru_cache(maxsize=1_024)
def _endpoint_of(sink: str) -> str:
    """Returns the endpoint of a sink. A sink that is refused today, though it was accepted when it was stored, is its
    own endpoint."""
    try:
        return check_sink(sink, allow_private=True).endpoint
    except SinkRefused:
        return sink


# ── outbox ────────────────────────────────────────────────────────────────────────────────────────────────────────────


FAULT_PAUSE_SECONDS = 30.0
"""The pause of a subscription after an internal error."""

UNAVAILABLE_PAUSE_SECONDS = 1.0
"""The pause while the database cannot be reached."""

LONGEST_TIMER_SECONDS = 3_600.0
"""The longest timer. After it the time is checked again, because clocks may be set and machines may sleep."""

STOP_SECONDS = 2.0
"""How long running attempts may take at shutdown. What they deliver later is delivered again after the restart."""


def _pause_of(error: Exception) -> float:
    """Returns the pause if the error means that the database cannot be reached; 0.0 for other errors."""
    away = isinstance(error, StoreUnavailable) and not isinstance(error, StoreDamaged)
    return UNAVAILABLE_PAUSE_SECONDS if away else 0.0


def progress_queue(broker: Broker) -> WriteQueue[Progress]:
    """Returns the queue of results of attempts that are being written to disk.

    A courier sends the next message while the last result is still being written. Before it ends, it waits for its last
    result, so that the next courier starts from what is on disk.
    """

    def record(connection: Connection, steps: list[Progress]) -> set[int]:
        valid = broker.leases.valid(connection, {(step.number, step.fence) for step in steps})
        mine = [step for step in steps if (step.number, step.fence) in valid]
        if len(mine) < len(steps):
            log.info(
                "%d webhook attempts are ignored: another server now delivers for these subscriptions",
                len(steps) - len(mine),
            )
        return record_progress(connection, mine)

    async def write(steps: list[Progress]) -> None:
        await broker.execute(lambda connection: record(connection, steps), lambda changed: changed)

    return WriteQueue(write, log, "the results of %d webhook attempts could not be written; trying again: %s")


class SinkNumbers:
    """The subscriptions that may have a sink: those that had one when the store was last read, and those that changed
    since. So matches of other subscriptions, which are the most if readers pull, need no query. Memory: one byte for
    each number that was ever assigned."""

    def __init__(self) -> None:
        self._may = np.zeros(1_024, dtype=np.bool_)
        self._changed: set[int] = set()

    def add(self, changed: Collection[int]) -> None:
        """Notes changed subscriptions. Most groups change none."""
        if changed:
            self._changed.update(changed)
            self._mark(changed, may=True)

    def among(self, numbers: Numbers) -> list[int]:
        """Returns those of `numbers` that may have a sink, with duplicates."""
        may: list[int] = numbers[self._may[np.minimum(numbers, self._may.size - 1)]].tolist()
        return may

    def take_changed(self) -> set[int]:
        """Returns the subscriptions that changed since the last call. The next read of the store shows which of them
        have a sink."""
        changed, self._changed = self._changed, set()
        return changed

    def learn(self, asked: set[int], found: set[int]) -> None:
        """Records the result of a read. Subscriptions that changed again meanwhile are kept."""
        self._mark(asked - found - self._changed, may=False)
        self._mark(found, may=True)

    def _mark(self, numbers: Iterable[int], *, may: bool) -> None:
        some = np.fromiter(numbers, dtype=np.int64)
        most = int(some.max(initial=0))
        if most >= self._may.size - 1:  # the last entry stands for all greater numbers, and is False
            more = max(most + 2, 2 * self._may.size) - self._may.size
            self._may = np.concatenate([self._may, np.zeros(more, dtype=np.bool_)])
        self._may[some] = may


TEST_TYPE = "io.kindcast.subscription.test"


@dataclass(frozen=True, slots=True)
class Trial:
    """The result of sending a notice. `seconds` is the time until the status of the answer, or until the failure."""

    message_id: str
    outcome: Outcome
    seconds: float


class Outbox:
    """The outbox of one broker. `run` delivers until `stop`. All methods must be called on the same event loop."""

    def __init__(self, broker: Broker, settings: Settings) -> None:
        self._broker = broker
        self._senders = {name: each.open_sender(settings) for name, each in PROTOCOLS.items()}
        self._progress = progress_queue(broker)
        self._courier = Courier(
            broker,
            self._senders,
            Endpoints(settings.webhook_concurrency, settings.webhook_concurrency_per_endpoint),
            Looks(broker),
            self._progress,
            RetrySchedule(settings.webhook_delays_seconds, settings.webhook_jitter),
        )
        self._announced: set[int] | None = None  # None: all subscriptions
        self._longest_wait = settings.webhook_timeout_seconds
        self._sinks = SinkNumbers()
        self._knows_sinks = False
        self._woken = asyncio.Event()
        self._woken.set()
        self._stopping = False
        self._under_way: dict[int, asyncio.Event] = {}
        self._timers: dict[int, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def announce(self, touched: Touched) -> None:
        """Called after a commit with the subscriptions that it concerns."""
        if self._under_way:
            for number in [each for each in self._under_way if each in touched]:
                self._under_way[number].set()
            self._courier.changed |= self._under_way.keys() & touched.changed
        self._sinks.add(touched.changed)
        if self._announced is not None:
            self._announced.update(touched.changed)
            self._announced.update(self._sinks.among(touched.matched) if self._knows_sinks else touched)
            if not self._announced:
                return
        self._woken.set()

    def look_again(self) -> None:
        """Looks at all waiting matches again, because leases may be free."""
        self._announced = None
        self._woken.set()

    def stop(self) -> None:
        """Makes `run` end."""
        self._stopping = self._courier.stopping = True
        self._woken.set()

    async def test(self, subscriber: Subscriber) -> Trial:
        """Makes one attempt to deliver a test message, in any status of the subscription. The subscription must have a
        sink."""
        id = f"msg_{subscriber.id}_test{secrets.token_hex(8)}"
        return await self.notify(subscriber, TEST_TYPE, id, {"subscription": subscriber.id})

    async def notify(self, subscriber: Subscriber, type: str, id: str, data: Mapping[str, Any]) -> Trial:
        """Makes one attempt to send a notice, a CloudEvent of this type. It is no match and changes nothing in the
        subscription. It waits for the rate that the sink allows, and for a slot of the endpoint, at most as long as
        an attempt may take. The subscription must have a sink."""
        notice = notice_of(subscriber.id, type, id, CLOCK.now(), data)
        failing, sink = subscriber.consecutive_errors > 0, subscriber.sink or ""
        sender = self._senders[subscriber.protocol or DEFAULT_PROTOCOL]
        try:
            async with AsyncExitStack() as slot:
                async with asyncio.timeout(self._longest_wait):
                    while (pause := sender.ready_at(sink) - CLOCK.now()) > 0:
                        if pause > self._longest_wait:
                            raise TimeoutError
                        await asyncio.sleep(pause)
                    place = self._courier.endpoints.slot(_endpoint(subscriber), failing=failing)
                    await slot.enter_async_context(place)
                began = time.monotonic()
                outcome = await sender.send(_noticed(subscriber, id, notice))
                return Trial(id, outcome, time.monotonic() - began)
        except TimeoutError:
            waits_for_rate = sender.ready_at(sink) > CLOCK.now()
            why = "the sink allows no other message now (WebHook-Allowed-Rate)"
            other = "earlier messages to this address still wait for their answers"
            detail = f"not sent: {why if waits_for_rate else other}"
            return Trial(id, Outcome(kind="failed", at=CLOCK.now(), detail=detail), 0.0)

    async def run(self) -> None:
        """Delivers until `stop`. Then waits a moment for running attempts and stores their outcomes."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._progress.run())
            while not self._stopping:
                await self._woken.wait()
                self._woken.clear()
                for number in await self._waiting():
                    self._start(number, group)
            for timer in self._timers.values():
                timer.cancel()
            if self._tasks:
                _, late = await asyncio.wait(self._tasks, timeout=STOP_SECONDS)
                for task in late:
                    task.cancel()
            self._progress.close()
        for sender in self._senders.values():
            await sender.close()

    async def _waiting(self) -> list[int]:
        """Returns the announced subscriptions with something to deliver. A subscription with a timer waits for its
        retry or its throttling, and another match does not change that."""
        announced, self._announced = self._announced, set()
        changed, due_at = self._sinks.take_changed(), None if announced is None else CLOCK.now()
        if announced is not None:
            announced -= self._timers.keys() - changed
            if not announced and not changed:
                return []

        def look(connection: Connection) -> tuple[list[int], set[int]]:
            waiting = awaiting_webhooks(connection, announced, due_at=due_at)
            return waiting, with_sinks(connection, None if announced is None else changed)

        try:
            waiting, found = await self._broker.read(look)
            self._sinks.learn(changed, found)
            self._courier.forget(changed - found)
            self._knows_sinks = True
            return await self._broker.leases.take(waiting)
        except Exception as error:
            if pause := _pause_of(error):
                log.warning("the outbox cannot reach the database; next attempt in %g s: %s", pause, error)
            else:
                pause = FAULT_PAUSE_SECONDS
                log.exception("the outbox cannot read the database; next attempt in %g s", pause)
        self._announced = None
        asyncio.get_running_loop().call_later(pause, self._woken.set)
        return []

    def _start(self, number: int, group: asyncio.TaskGroup) -> None:
        """Starts a courier for a subscription, unless one is running; `announce` has woken that one."""
        if (timer := self._timers.pop(number, None)) is not None:
            timer.cancel()
        if number not in self._under_way and not self._stopping:
            self._under_way[number] = asyncio.Event()
            task = group.create_task(self._deliver(number, group))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _deliver(self, number: int, group: asyncio.TaskGroup) -> None:
        """Runs a courier, again while something was announced meanwhile, and then sets the timer of the
        subscription."""
        announced = self._under_way[number]
        try:
            again = await self._courier.deliver(number, announced)
            while announced.is_set() and not self._stopping:
                again = await self._courier.deliver(number, announced)
        except Exception as error:
            pause = _pause_of(error)
            if not pause:
                pause = FAULT_PAUSE_SECONDS
                log.exception(
                    "delivery to subscription number %d failed unexpectedly; next attempt in %g s", number, pause
                )
            again = CLOCK.now() + pause
        finally:
            del self._under_way[number]
            self._courier.changed.discard(number)
        if again is not None and not self._stopping:
            seconds = min(max(0.0, again - CLOCK.now()), LONGEST_TIMER_SECONDS)
            self._timers[number] = asyncio.get_running_loop().call_later(seconds, self._start, number, group)
