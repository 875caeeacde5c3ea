"""A queue in front of the broker: records are collected while it is busy, and written together in one command.

If the process stops before a record is written, its work is repeated after the start: a webhook is sent again with the
same id, and a pending candidate is decided again.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

__all__ = ["WriteQueue"]

RETRY_SECONDS = 1.0
"""The pause after a write that failed, most likely because the disk is full."""

T = TypeVar("T")


class WriteQueue(Generic[T]):
    """Runs on one event loop. Records are written in the order in which they were added."""

    def __init__(self, write: Callable[[list[T]], Awaitable[object]], log: logging.Logger, failure: str) -> None:
        """`write` stores records in one transaction. `failure` is the message for `log` when it raises; it has one %d,
        for the number of records, and one %s, for the error."""
        self._write_all = write
        self._log = log
        self._failure = failure
        self._waiting: list[tuple[T, asyncio.Future[None]]] = []
        self._filled = asyncio.Event()
        self._closing = False

    def add(self, record: T) -> "asyncio.Future[None]":
        """Queues a record. The future is done when the record is on disk, and cancelled if it will not be written."""
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((record, written))
        self._filled.set()
        return written

    @property
    def waiting(self) -> int:
        """The number of records that are not being written yet."""
        return len(self._waiting)

    def close(self) -> None:
        """Makes `run` end as soon as the queue is empty."""
        self._closing = True
        self._filled.set()

    async def run(self) -> None:
        """Writes until `close`. A write that fails is tried again; after `close` it is not."""
        while self._waiting or not self._closing:
            await self._filled.wait()
            self._filled.clear()
            batch, self._waiting = self._waiting, []
            if batch and not await self._write(batch):
                if self._closing:
                    for _, written in batch + self._waiting:
                        written.cancel()  # otherwise a task that waits for it would never end
                    return
                self._waiting = batch + self._waiting
                await asyncio.sleep(RETRY_SECONDS)
                self._filled.set()

    async def _write(self, batch: "list[tuple[T, asyncio.Future[None]]]") -> bool:
        try:
            await self._write_all([record for record, _ in batch])
        except Exception as error:  # the queue continues after any error
            self._log.error(self._failure, len(batch), error)
            return False
        for _, written in batch:
            if not written.done():
                written.set_result(None)
        return True
