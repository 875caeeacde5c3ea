"""The delivery service of one server process: its start and stop, together with the broker; wake-ups, which tell
readers that there is something new; and notices of expiry, which tell the owner of a subscription a day before it ends.

`running_delivery` is what the application's lifespan enters after the broker has started, and leaves before it stops.
"""

import asyncio
import contextlib
import logging
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

from sqlalchemy import Connection

from kindcast.server.broker import Broker
from kindcast.server.broker.group import Touched
from kindcast.server.clock import CLOCK, instant
from kindcast.server.delivery.message import EXPIRY_NOTICE
from kindcast.server.delivery.outbox import Outbox, RetrySchedule
from kindcast.server.delivery.turns import Acknowledgements, Looks
from kindcast.server.errors import BrokerBusy, ServerError
from kindcast.server.settings import Settings
from kindcast.server.store.deliveries import Subscriber, due_notices, find_subscriber, forget_notices, note_told
from kindcast.server.worker_threads import Turns

__all__ = [
    "EXPIRING_TYPE",
    "DeliveryService",
    "ExpiryNotices",
    "TooManyReaders",
    "Wakeups",
    "is_wanted",
    "running_delivery",
]

# ── wake-ups: after each commit the readers of the subscriptions concerned are woken ──────────────────────────────────
#
# A wake-up carries no message. It only tells a reader to look into the store. So none is lost if a waiting reader first
# clears its event and then looks:
#
#     with wakeups.watch(number) as woken:
#         while True:
#             woken.clear()
#             ... read the store; leave when there is something ...
#             await woken.wait()
#
# Everything here runs on the event loop.


class TooManyReaders(BrokerBusy):
    """Too many streams and long polls are open. Try again in a moment, or pull without waiting."""


class Wakeups:
    """The waiting readers, by subscription number. `watching` is their number. `closed` becomes true once, at shutdown,
    and wakes all of them."""

    def __init__(self) -> None:
        self.closed = False
        self.watching = 0
        self._waiting: dict[int, set[asyncio.Event]] = {}
        self._followers: list[Callable[[Touched], None]] = []
        self._closers: list[Callable[[], None]] = []

    def announce(self, touched: Touched) -> None:
        """Wakes the readers of these subscriptions after a commit: matches, a status, a deletion."""
        if self._waiting:
            for number in [each for each in self._waiting if each in touched]:
                for woken in self._waiting[number]:
                    woken.set()
        for follower in self._followers:
            follower(touched)

    def follow(self, follower: Callable[[Touched], None]) -> None:
        """Registers a function that is called with every announcement."""
        self._followers.append(follower)

    def also_closes(self, closer: Callable[[], None]) -> None:
        """Registers a function that is called, on the event loop, when this is closed."""
        self._closers.append(closer)

    @contextmanager
    def watch(self, number: int) -> Iterator[asyncio.Event]:
        """A context manager with an event that is set when this subscription is announced, and at shutdown."""
        woken = asyncio.Event()
        self._waiting.setdefault(number, set()).add(woken)
        self.watching += 1
        try:
            yield woken
        finally:
            self.watching -= 1
            self._waiting[number].discard(woken)
            if not self._waiting[number]:
                del self._waiting[number]

    def close(self) -> None:
        """Ends every stream and long poll. Must be called on the event loop. May be called again."""
        self.closed = True
        for waiting in self._waiting.values():
            for woken in waiting:
                woken.set()
        for closer in self._closers:
            closer()


# ── notices of expiry: a signed message to the sink, a day before the subscription ends ───────────────────────────────

#     store ──who ends within a day and was not told?──▶ one attempt each ──taken──▶ noted as told
#                                                           └─failed─▶ again, as webhooks are, until it ends
#
# The `webhook-id` of a notice is derived from the subscription and its end time, so it is the same if the notice is
# sent again after a crash. A notice has no cursor and moves none. It is neither a success nor a failure of the
# subscription. Readers without a sink see the end time in their answers (`message.Page`, `stream`).


EXPIRING_TYPE = "io.kindcast.subscription.expiring"

LOOK_SECONDS = 300.0
"""The pause between two reads of the store. A read scans all subscriptions: some 0.1 s for 100,000."""
TOGETHER = 100
"""The number of notices that are recorded together. A sink that hangs delays the others of its group by one attempt."""
AT_ONCE = 32
"""The maximum number of notices that are sent at the same time."""

_log = logging.getLogger(__name__)


class ExpiryNotices:
    """The notices of one process. Runs on its event loop."""

    def __init__(self, broker: Broker, outbox: Outbox, schedule: RetrySchedule) -> None:
        self._broker = broker
        self._outbox = outbox
        self._schedule = schedule
        self._failed: dict[tuple[int, float], tuple[int, float]] = {}  # (number, end) → (failures, next attempt)

    async def run(self) -> None:
        """Sends due notices every five minutes, until it is cancelled."""
        while True:
            try:
                await self.look()
            except ServerError as error:
                _log.warning("notices of expiry wait, because the database cannot be reached: %s", error)
            except Exception:
                _log.exception("notices of expiry could not be sent; they are tried again in %g s", LOOK_SECONDS)
            await asyncio.sleep(LOOK_SECONDS)

    async def look(self) -> None:
        """Sends all notices that are due now. Raises `StoreUnavailable`."""
        self._failed = {key: value for key, value in self._failed.items() if key[1] > CLOCK.now()}
        after = 0.0, 0
        while True:

            def read(connection: Connection, after: tuple[float, int] = after) -> tuple[list[Subscriber], Any]:
                found = due_notices(connection, CLOCK.now(), after, TOGETHER)
                subscribers = (find_subscriber(connection, number) for _, number in found)
                return [each for each in subscribers if each is not None], found[-1] if found else None

            due, last = await self._broker.read(read)
            if last is None:
                return
            await self._tell([each for each in due if not self._waits(each)])
            after = last

    def _waits(self, subscriber: Subscriber) -> bool:
        """Whether an attempt failed and the next one is not due yet."""
        return self._failed.get((subscriber.number, subscriber.expires_at), (0, 0.0))[1] > CLOCK.now()

    async def _tell(self, subscribers: list[Subscriber]) -> None:
        due = {each.number: each for each in subscribers}
        mine = [due[number] for number in await self._broker.leases.take(list(due))]
        places = asyncio.Semaphore(AT_ONCE)

        async def one(subscriber: Subscriber) -> tuple[int, float, int] | None:
            async with places:
                return await self._told(subscriber)

        told = [each for each in await asyncio.gather(*map(one, mine)) if each is not None]
        if told:
            await self._broker.execute(lambda connection: self._note(connection, told))

    async def _told(self, subscriber: Subscriber) -> tuple[int, float, int] | None:
        """Sends one notice. Returns number, end time and fence if the notice is done (sent, given up or not wanted);
        None if it must be tried again."""
        key = subscriber.number, subscriber.expires_at
        failures, _ = self._failed.get(key, (0, 0.0))
        if (fence := self._broker.leases.fence(subscriber.number)) is None:
            return None
        if is_wanted(subscriber):
            id = f"msg_{subscriber.id}_expiring{subscriber.expires_at:.0f}"
            data = {"subscription": subscriber.id, "expires_at": instant(subscriber.expires_at)}
            trial = await self._outbox.notify(subscriber, EXPIRING_TYPE, id, data)
            if trial.outcome.kind == "failed" and (delay := self._schedule.delay(failures + 1)) is not None:
                self._failed[key] = failures + 1, CLOCK.now() + delay
                return None
        return *key, fence

    def _note(self, connection: Connection, told: list[tuple[int, float, int]]) -> None:
        valid = self._broker.leases.valid(connection, {(number, fence) for number, _, fence in told})
        mine = [(number, end) for number, end, fence in told if (number, fence) in valid]
        if mine:
            note_told(connection, mine, CLOCK.now())
        forget_notices(connection)


def is_wanted(subscriber: Subscriber) -> bool:
    """Whether the subscription wants a notice, which `protocolsettings` can switch off."""
    return (subscriber.protocolsettings or {}).get(EXPIRY_NOTICE, True) is not False


@dataclass(frozen=True, slots=True)
class DeliveryService:
    """The parts of the delivery service that the routes use."""

    broker: Broker
    wakeups: Wakeups
    outbox: Outbox
    settings: Settings
    looks: Looks
    acknowledgements: Acknowledgements
    large_pages: Turns


@asynccontextmanager
async def running_delivery(
    broker: Broker, settings: Settings, *, hears_signals: bool = True
) -> AsyncIterator[DeliveryService]:
    """A context manager that delivers while its block runs. At the end, streams and long polls end, and running
    attempts get a moment to finish. Their results are written, so the broker must still run."""
    wakeups = Wakeups()
    outbox = Outbox(broker, settings)
    wakeups.follow(outbox.announce)
    broker.listeners.append(wakeups.announce)
    broker.leases.listeners.append(outbox.look_again)
    delivering = asyncio.create_task(outbox.run(), name="outbox")
    schedule = RetrySchedule(settings.webhook_delays_seconds, settings.webhook_jitter)
    telling = asyncio.create_task(ExpiryNotices(broker, outbox, schedule).run(), name="expiry notices")
    try:
        with _closing_on_signal(wakeups) if hears_signals else contextlib.nullcontext():
            yield DeliveryService(broker, wakeups, outbox, settings, Looks(broker), Acknowledgements(broker), Turns())
    finally:
        wakeups.close()
        telling.cancel()
        await asyncio.gather(telling, return_exceptions=True)
        outbox.stop()
        await delivering
        broker.listeners.remove(wakeups.announce)


@contextmanager
def _closing_on_signal(wakeups: Wakeups) -> Iterator[None]:
    """Ends streams as soon as the process is told to stop.

    The HTTP server tells the application only when all answers are complete, and a stream never is. So the application
    must handle the signal itself. The handler of the server is still called. Outside the main thread there are no
    signals, and nothing is done.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    chained: dict[signal.Signals, Callable[[int, FrameType | None], object]] = {}

    def handle(number: int, frame: FrameType | None) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended already
            loop.call_soon_threadsafe(wakeups.close)
        chained[signal.Signals(number)](number, frame)

    for number in (signal.SIGINT, signal.SIGTERM):
        before = signal.getsignal(number)
        if callable(before):
            chained[number] = before
            signal.signal(number, handle)
    try:
        yield
    finally:
        for number, before in chained.items():
            if signal.getsignal(number) is handle:
                signal.signal(number, before)
