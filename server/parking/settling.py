"""What was decided, on its way to disk: collected while the broker is busy, written together.

If the process dies before it is written, the candidates are still parked, and are decided again after the start.
"""

import asyncio
import logging

from server.broker import Broker
from server.broker.late_matches import Settlement, settle

__all__ = ["SettlingLog"]

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
            log.error("what operators decided about %d events could not be written yet: %s", len(some), error)
            return False
        for _, written in some:
            if not written.done():
                written.set_result(None)
        return True
