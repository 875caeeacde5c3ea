"""Long work in worker threads, so that the event loop and the writer thread continue; turns and shares of the clients.

A thread cannot be stopped. A task that is cancelled while it waits for a thread, because a client left, would release
what the thread still uses. So the task waits until the thread has ended, and is cancelled then.

Only one thread holds the GIL at a time. By default the others wait up to five milliseconds for it, and the writer's
thread releases it at each statement of the database. Beside a computing thread, an event with twenty statements would
take a hundred milliseconds. So the switch interval is short while long work runs.
"""

import asyncio
import sys
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Hashable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from typing import Final, TypeVar
from weakref import WeakKeyDictionary, WeakValueDictionary

import anyio
import anyio.to_thread

__all__ = [
    "ACTING_TENANT",
    "LONG",
    "MOST_BESIDE",
    "Share",
    "Shares",
    "Turns",
    "long_turns",
    "run_in_turn",
    "run_to_the_end",
    "short_turns",
]

T = TypeVar("T")

SHORT_TURN: Final = 0.0005
"""The switch interval in seconds. A shorter one gains nothing. Used all the time, it would cost a twentieth of the rate
of publishing."""
LONG: Final = 4_096
"""Work on this many bytes of a request takes its turn. Usual expressions and events are shorter."""
MOST_BESIDE: Final = 4
"""The maximum number of threads that do short work of one tenant. Each takes a part of the time of all other threads,
and a tenant may have many keys."""
ACTING_TENANT: Final[ContextVar[str]] = ContextVar("tenant", default="")
"""The tenant for which a request is carried out. The gate sets it."""
_lock = threading.Lock()
_usual = [0.0]
_running = [0]


class Turns:
    """Turns for work that takes much time or memory: one at a time. Each tenant waits at most for one turn of each
    other tenant, however many keys that has, and each client for one turn of each other client of its tenant. For the
    event loop only."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._own: WeakValueDictionary[Hashable, asyncio.Lock] = WeakValueDictionary()
        self._beside: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    @asynccontextmanager
    async def of(self, client: Hashable) -> AsyncIterator[None]:
        """A context manager that is entered when it is this client's turn."""
        own = self._own.setdefault(client, asyncio.Lock())
        of_tenant = self._own.setdefault((ACTING_TENANT.get(), "tenant"), asyncio.Lock())
        async with own, of_tenant, self._turn:
            yield

    def of_huge_body(self) -> asyncio.Lock:
        """A context manager that is entered by one task of the tenant at a time, before any turn."""
        return self._own.setdefault((ACTING_TENANT.get(), "huge body"), asyncio.Lock())

    @asynccontextmanager
    async def beside(self, client: Hashable) -> AsyncIterator[None]:
        """A context manager that is entered beside the turns, by one task of this client and by `MOST_BESIDE` tasks of
        its tenant at a time."""
        own = self._own.setdefault((client, "beside"), asyncio.Lock())
        of_tenant = self._beside.setdefault(ACTING_TENANT.get(), asyncio.Semaphore(MOST_BESIDE))
        async with own, of_tenant:
            yield


class Shares:
    """Shares of a queue: each client has at most so many bytes in it, or one request of any size. Its other requests
    wait in order. For the event loop only."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._shares: WeakValueDictionary[Hashable, Share] = WeakValueDictionary()

    @asynccontextmanager
    async def of(self, client: Hashable, size: int) -> AsyncIterator[None]:
        """A context manager that is entered when this client may have `size` more bytes in the queue."""
        share = self._shares.setdefault(client, Share(self._most))
        await share.take(size)
        try:
            yield
        finally:
            share.give_back(size)


class Share:
    """At most so many bytes at one time, or one request of any size. The others wait in order. For the event loop
    only."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._used = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def take(self, size: int) -> None:
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size, place))
        self._let_in()
        try:
            await place
        except asyncio.CancelledError:
            # If it was let in meanwhile, it has its share.
            self.give_back(0 if place.cancelled() else size)
            raise

    def give_back(self, size: int) -> None:
        self._used -= size
        self._let_in()

    def _let_in(self) -> None:
        while self._waiting:
            size, place = self._waiting[0]
            if not place.cancelled():
                if self._used and self._used + size > self._most:
                    return
                self._used += size
                place.set_result(None)
            self._waiting.popleft()


_turns: "WeakKeyDictionary[asyncio.AbstractEventLoop, Turns]" = WeakKeyDictionary()


@contextmanager
def short_turns() -> Iterator[None]:
    """A context manager: the switch interval is `SHORT_TURN` while any thread is inside. May be used in any thread."""
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
    """Runs `work` in a worker thread, with short turns, and returns its result. Returns or raises only after the thread
    has ended."""

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


async def run_in_turn(work: Callable[[], T], size: int, client: Hashable) -> T:
    """Does what `run_to_the_end` does, for work whose time depends on `size` bytes that `client` sent. `LONG` work runs
    one after another, in turns of the clients. Other work of one client does so too, and a few threads do that of one
    tenant. Otherwise a few clients with long texts, or one with many, would keep as many threads computing, and all
    other requests would get a small part of the time."""
    turns = long_turns()
    async with turns.beside(client) if size < LONG else turns.of(client):
        return await run_to_the_end(work)


def long_turns() -> Turns:
    """Returns the turns of `LONG` work, for work that has to read from the store in its turn."""
    return _turns.setdefault(asyncio.get_running_loop(), Turns())
