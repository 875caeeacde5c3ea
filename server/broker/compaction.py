"""Background compaction of stored matches: they are folded by subscription, merged into larger blocks, and moved from
an older layout.

    commits ──wake──▶ a worker thread reads and makes blocks ──a command of the writer──▶ stored

It is not needed for correctness. It limits how much data a reader must read.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from sqlalchemy import Connection

from kindcast.server.broker.group import Group, Touched
from kindcast.server.errors import StoreUnavailable
from kindcast.server.store import matches
from kindcast.server.store.matches import MatchCache

__all__ = ["Compaction"]

_log = logging.getLogger("kindcast.broker")

PAUSE_SECONDS = 0.2
"""The pause between two checks of the tail."""
PATIENCE_SECONDS = 5.0
"""The pause after an error."""

Read = Callable[[Callable[[Connection], Any]], Any]
Submit = Callable[[Callable[[Group], Any]], Any]


class Compaction:
    """The compaction of one broker, on its event loop. `announce` is a listener of the broker."""

    def __init__(self, read: Read, submit: Submit, cache: MatchCache) -> None:
        """`read` and `submit` are coroutines of the broker: they run work on a reader's connection, and a command."""
        self._read = read
        self._submit = submit
        self._cache = cache
        self._woken = asyncio.Event()
        self._woken.set()
        self._stopping = asyncio.Event()

    def announce(self, touched: Touched) -> None:
        """Called after a commit."""
        self._woken.set()

    def stop(self) -> None:
        """Makes `run` end after the current step."""
        self._stopping.set()
        self._woken.set()

    async def run(self) -> None:
        """Compacts until `stop`."""
        while not self._stopping.is_set():
            await self._woken.wait()
            self._woken.clear()
            pause = PAUSE_SECONDS
            try:
                while not self._stopping.is_set() and await self.step():
                    pass
            except StoreUnavailable:
                pause = PATIENCE_SECONDS
            except Exception:
                _log.exception("stored matches could not be compacted; next attempt in %g s", PATIENCE_SECONDS)
                pause = PATIENCE_SECONDS
                self._woken.set()
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._stopping.wait()

    async def step(self) -> bool:
        """Does the work that is due. Returns whether there may be more."""
        folded = await self._fold()
        for move in await self._read(matches.find_moves):
            if self._stopping.is_set() or not await self._store(partial(matches.store_move, move=move)):
                return True
            await self._fold()  # the moves take long, and events arrive meanwhile
        if await self._read(matches.has_older):
            await self._store(matches.erase_moved)
            return True
        if folded:
            return True
        if (block := await self._read(matches.find_merge)) is not None:
            await self._store(partial(matches.store_merge, block=block))
            return True
        return False

    async def _fold(self) -> bool:
        """Folds one block, if the tail is long enough. The tail is in memory, so this comes before all other work."""
        if (block := await self._read(matches.find_fold)) is None:
            return False
        await self._store(partial(matches.store_fold, block=block))
        return True

    async def _store(self, change: Callable[[Connection], bool]) -> bool:
        def work(group: Group) -> bool:
            group.on_undo(self._cache.forget)
            return change(group.connection)

        done: bool = await self._submit(work)
        return done
