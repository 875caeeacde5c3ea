"""The outbox: sees to it that every match of a subscription with a sink is delivered, in order, whatever happens.

    broker commits ──announcement──▶ woken ──which of them wait?──▶ a courier per subscription (at most one at a time)
    start ──────────all that wait────▶                                   │ failed: come again at …
                                          timers ◀───────────────────────┘

The queue itself is not here: it is the matches after `acked` in the store. So there is nothing to restore after a
crash, nothing to lose, and a subscription that is resumed or renewed simply goes on. Everything runs in one task group
on the event loop; couriers share the sender's connections and the endpoints' slots.
"""

import asyncio
import logging
import time
from collections.abc import Collection

from server.broker import Broker
from server.delivery.courier import Courier
from server.delivery.endpoints import Endpoints
from server.delivery.progress import ProgressLog
from server.delivery.schedule import RetrySchedule
from server.delivery.webhook import WebhookSender
from server.settings import Settings
from server.store.deliveries import awaiting_webhooks

__all__ = ["Outbox"]

log = logging.getLogger(__name__)

FAULT_PAUSE_SECONDS = 30.0
"""After an error of our own (the store cannot be read, say) a subscription is tried again so much later."""

LONGEST_TIMER_SECONDS = 3_600.0
"""A timer looks again at least once an hour: clocks are set, machines sleep."""

STOP_SECONDS = 2.0
"""For attempts under way at shutdown. What they deliver later is delivered again after the restart."""


class Outbox:
    """One a process. `run` is its life; everything else is called on the same event loop."""

    def __init__(self, broker: Broker, settings: Settings) -> None:
        self._broker = broker
        self._sender = WebhookSender(
            allow_private=settings.allow_private_sinks, timeout=settings.webhook_timeout_seconds
        )
        self._progress = ProgressLog(broker)
        self._courier = Courier(
            broker,
            self._sender,
            Endpoints(settings.webhook_concurrency, settings.webhook_concurrency_per_endpoint),
            self._progress,
            RetrySchedule(settings.webhook_delays_seconds, settings.webhook_jitter),
        )
        self._announced: set[int] | None = None  # None: look at all of them
        self._woken = asyncio.Event()
        self._woken.set()
        self._stopping = False
        self._under_way: dict[int, asyncio.Event] = {}
        self._timers: dict[int, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def announce(self, numbers: Collection[int]) -> None:
        """Something about these subscriptions was committed."""
        for number in self._under_way.keys() & numbers:
            self._under_way[number].set()
        if self._announced is not None:
            self._announced.update(numbers)
        self._woken.set()

    def stop(self) -> None:
        """Makes `run` end."""
        self._stopping = self._courier.stopping = True
        self._woken.set()

    async def run(self) -> None:
        """Delivers until `stop`; then gives attempts under way a moment, and writes down what came of them."""
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
        await self._sender.close()

    async def _waiting(self) -> list[int]:
        """Which of the announced subscriptions have something to deliver."""
        announced, self._announced = self._announced, set()
        try:
            return await self._broker.read(lambda connection: awaiting_webhooks(connection, announced))
        except Exception:
            log.exception("the outbox cannot read the store; it tries again in %g s", FAULT_PAUSE_SECONDS)
            self._announced = None
            asyncio.get_running_loop().call_later(FAULT_PAUSE_SECONDS, self._woken.set)
            return []

    def _start(self, number: int, group: asyncio.TaskGroup) -> None:
        """Sends a courier, unless one is under way: that one was told by `announce`."""
        if (timer := self._timers.pop(number, None)) is not None:
            timer.cancel()
        if number not in self._under_way and not self._stopping:
            self._under_way[number] = asyncio.Event()
            task = group.create_task(self._deliver(number, group))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _deliver(self, number: int, group: asyncio.TaskGroup) -> None:
        """One courier's way, again as long as something was announced while it was under way; then its timer."""
        announced = self._under_way[number]
        try:
            again = await self._courier.deliver(number, announced)
            while announced.is_set() and not self._stopping:
                again = await self._courier.deliver(number, announced)
        except Exception:
            log.exception("delivery to subscription number %d stumbled; again in %g s", number, FAULT_PAUSE_SECONDS)
            again = time.time() + FAULT_PAUSE_SECONDS
        finally:
            del self._under_way[number]
        if again is not None and not self._stopping:
            seconds = min(max(0.0, again - time.time()), LONGEST_TIMER_SECONDS)
            self._timers[number] = asyncio.get_running_loop().call_later(seconds, self._start, number, group)
