"""Wake-ups: after each commit the broker wakes the readers of the subscriptions concerned.

A wake-up carries no message. It only tells a reader to look into the store. So none is lost if a waiting reader first
clears its event and then looks:

    with wakeups.watch(number) as woken:
        while True:
            woken.clear()
            ... read the store; leave when there is something ...
            await woken.wait()

Everything here runs on the event loop.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from kindcast.server.broker.group import Touched
from kindcast.server.errors import BrokerBusy

__all__ = ["TooManyReaders", "Wakeups"]


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
