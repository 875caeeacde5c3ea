"""Work in a worker thread that has something to itself for as long as it runs.

A thread cannot be stopped. Who is cancelled while it waits for one, because a client left, would give back what the
thread still uses; so it waits on, and is cancelled then.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

import anyio
import anyio.to_thread

__all__ = ["run_to_the_end"]

T = TypeVar("T")


async def run_to_the_end(work: Callable[[], T]) -> T:
    """What `work` returns, in a worker thread. Returns or raises only after the thread has ended."""
    working = asyncio.ensure_future(anyio.to_thread.run_sync(work))
    try:
        return await asyncio.shield(working)
    finally:
        with anyio.CancelScope(shield=True):
            while not working.done():
                with suppress(asyncio.CancelledError):
                    await asyncio.wait((working,))
