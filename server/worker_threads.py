"""Runs long work in worker threads, so that the event loop and the writer thread continue.

A thread cannot be stopped. Who is cancelled while it waits for one, because a client left, would give back what the
thread still uses; so it waits on, and is cancelled then.

Only one thread runs Python at a time. The others wait until it has had its turn, of five milliseconds by default, and
the writer's thread gives its own turn away at each statement of the database: beside a thread that computes, an event
of twenty statements would take a hundred milliseconds. So turns are short while long work runs.
"""

import asyncio
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, TypeVar

import anyio
import anyio.to_thread

__all__ = ["run_to_the_end", "short_turns"]

T = TypeVar("T")

SHORT_TURN: Final = 0.0005
"""Seconds. Shorter ones gain nothing; at all times they would cost a twentieth of the rate of publishing."""
_lock = threading.Lock()
_usual = [0.0]
_running = [0]


@contextmanager
def short_turns() -> Iterator[None]:
    """Threads take turns of `SHORT_TURN` as long as anybody is within. Any thread."""
    with _lock:
        if not _running[0]:
            _usual[0] = sys.getswitchinterval()
            sys.setswitchinterval(min(SHORT_TURN, _usual[0]))
        _running[0] += 1
    try:
        yield
    finally:
        with _lock:
            _running[0] -= 1
            if not _running[0]:
                sys.setswitchinterval(_usual[0])


async def run_to_the_end(work: Callable[[], T]) -> T:
    """What `work` returns, in a worker thread, in short turns. Returns or raises only after the thread has ended."""

    def working_thread() -> T:
        with short_turns():
            return work()

    working = asyncio.ensure_future(anyio.to_thread.run_sync(working_thread))
    try:
        return await asyncio.shield(working)
    finally:
        with anyio.CancelScope(shield=True):
            while not working.done():
                with suppress(asyncio.CancelledError):
                    await asyncio.wait((working,))
