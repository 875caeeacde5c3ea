"""What came of the webhook attempts, on its way to disk: collected while the broker is busy, written together.

Couriers go on with the next message while the last success is still being written; if the process dies in between, that
message is sent again with the same id, which is what "at least once" means. Before a courier ends it waits for its last
progress, so that the next one starts from what is on disk.
"""

import asyncio
import logging

from server.broker import Broker
from server.store.deliveries import Progress, record_progress

__all__ = ["ProgressLog"]

log = logging.getLogger(__name__)

RETRY_SECONDS = 1.0
"""After a failed write (a full disk, most likely), until the next try."""


class ProgressLog:
    """A queue in front of `record_progress`. On one event loop."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._waiting: list[tuple[Progress, asyncio.Future[None]]] = []
        self._filled = asyncio.Event()
        self._closing = False

    def add(self, progress: Progress) -> asyncio.Future[None]:
        """Takes a step; the future is done when it is on disk."""
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((progress, written))
        self._filled.set()
        return written

    def close(self) -> None:
        """Makes `run` end as soon as nothing waits."""
        self._closing = True
        self._filled.set()

    async def run(self) -> None:
        """Writes until `close`. A write that fails is tried again, for what was delivered stays delivered."""
        while self._waiting or not self._closing:
            await self._filled.wait()
            self._filled.clear()
            steps, self._waiting = self._waiting, []
            if steps and not await self._write(steps):
                if self._closing:
                    return  # sent again after the restart, with the same ids
                self._waiting = steps + self._waiting
                await asyncio.sleep(RETRY_SECONDS)
                self._filled.set()

    async def _write(self, steps: list[tuple[Progress, asyncio.Future[None]]]) -> bool:
        try:
            await self._broker.execute(
                lambda connection: record_progress(connection, [step for step, _ in steps]), lambda changed: changed
            )
        except Exception as error:  # whatever it is: the outbox must outlive it, and says so again and again
            log.error("the outcome of %d webhook attempts could not be written yet: %s", len(steps), error)
            return False
        for _, written in steps:
            if not written.done():
                written.set_result(None)
        return True
