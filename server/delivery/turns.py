"""Turns of readers: however many streams and pulls there are, other requests get their turn at the store.

    streams at the same cursor ──▶ one look ──half of the connections at most──▶ store ──▶ told one after another
    clients with large pages ────▶ `Turns` of worker_threads.py: the next page of each client ──one at a time──▶ store

Nothing here decides what a reader may see: readers with other roles do not share.
"""

import asyncio
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from sqlalchemy import Connection

from kindcast.server.broker import Broker

__all__ = ["Looks"]

T = TypeVar("T")


class Looks:
    """Looks of the readers of one tenant into its store. Readers that want to see the same share one. For the event
    loop only."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._turns = asyncio.Semaphore(max(1, broker.settings.reader_connections // 2))
        self._waiting: dict[Hashable, list[asyncio.Future[Any]]] = {}
        self._looking: set[asyncio.Task[None]] = set()

    async def look(self, wanted: Hashable, work: Callable[[Connection], T]) -> T:
        """Does what `Broker.read` does. `wanted` must differ if the results of `work` may differ. The result is shared,
        so nobody may change it. The snapshot is never older than the call."""
        told: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        if wanted not in self._waiting:
            self._waiting[wanted] = []
            looking = asyncio.create_task(self._look(wanted, work), name="look")
            self._looking.add(looking)
            looking.add_done_callback(self._looking.discard)
        self._waiting[wanted].append(told)
        return await told

    async def _look(self, wanted: Hashable, work: Callable[[Connection], Any]) -> None:
        async with self._turns:
            waiting = self._waiting.pop(wanted)  # who comes later may have been woken by a later commit
            if all(each.done() for each in waiting):
                return  # they have left
            try:
                found, error = await self._broker.read(work), None
            except Exception as problem:
                found, error = None, problem
        for each in waiting:
            if not each.done():
                each.set_result(found) if error is None else each.set_exception(error)
                await asyncio.sleep(0)  # hundreds of readers at once would leave no time for other connections
