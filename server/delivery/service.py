"""The delivery service of one server process: its start and stop, together with the broker.

`running_delivery` is what the application's lifespan enters after the broker has started, and leaves before it stops.
"""

import asyncio
import contextlib
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from types import FrameType

from kindcast.server.broker import Broker
from kindcast.server.delivery.expiry_notices import ExpiryNotices
from kindcast.server.delivery.outbox import Outbox, RetrySchedule
from kindcast.server.delivery.wakeup import Wakeups
from kindcast.server.settings import Settings

__all__ = ["DeliveryService", "running_delivery"]


@dataclass(frozen=True, slots=True)
class DeliveryService:
    """The parts of the delivery service that the routes use."""

    broker: Broker
    wakeups: Wakeups
    outbox: Outbox
    settings: Settings


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
            yield DeliveryService(broker, wakeups, outbox, settings)
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
