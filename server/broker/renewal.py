"""Forgetting attribute names and texts that no subscription uses any more.

A matcher numbers each name that a subscription uses, and each text, and keeps the number when the subscription is
removed: the numbers are part of all that is compiled. A client that subscribes and unsubscribes with ever new names
would fill the memory. So when there are many, all subscriptions are compiled again in the background, and the new
matcher replaces the old one in one step. Here, names are what `Matcher.names` counts.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress

from kindcast.server.broker import garbage_collection
from kindcast.server.broker.group import Touched
from kindcast.server.broker.state import State

__all__ = ["Renewal"]

_log = logging.getLogger("kindcast.broker")

FEWEST_NAMES = 20_000
"""So many names take some 12 MB. Each open tenant may have them."""
NAMES_A_SUBSCRIPTION = 8
"""With at most so many names for each subscription, most of them are probably used."""
GROWTH = 4
"""The names have grown so many times since the last renewal before the next one."""


class Renewal:
    """The renewals of one broker, on its event loop. `announce` is a listener of the broker."""

    def __init__(self, state: State, renew: Callable[[], Awaitable[None]]) -> None:
        """`renew` replaces the matcher of `state` by a new one with the same subscriptions."""
        self._state = state
        self._renew = renew
        self._allowed = FEWEST_NAMES
        self._task: asyncio.Task[None] | None = None

    def announce(self, touched: Touched) -> None:
        """Called after a commit. Starts a renewal if there are too many names."""
        matcher = self._state.matcher
        if self._task is None and matcher.names > max(self._allowed, NAMES_A_SUBSCRIPTION * len(matcher)):
            self._task = asyncio.create_task(self._run(), name="renewal of the matcher")

    async def stop(self) -> None:
        """Breaks a renewal off."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        before = self._state.matcher.names
        try:
            await self._renew()
            garbage_collection.collect_and_freeze(before)
            _log.info("names and texts that no subscription uses are forgotten: %d of %d", *self._gone(before))
        except Exception:
            _log.exception("the names and texts that no subscription uses could not be forgotten")
        self._allowed = max(FEWEST_NAMES, GROWTH * self._state.matcher.names)
        self._task = None

    def _gone(self, before: int) -> tuple[int, int]:
        return before - self._state.matcher.names, before
