"""Membership of one server among the servers that share a PostgreSQL database: it sends heartbeats, is notified when
others commit or leave, and takes leases.

    every fifth of `lease_seconds` ──▶ "I live until …", by the clock of the database; who else does?
    NOTIFY of another server ──▶ wakes the broker's thread, which reads the log
    another one lives no more ──▶ listeners: the outbox and late matching look at all that waits

A lease is the right of a server to deliver for a subscription. It lasts while its server sends heartbeats. Its fence is
a number that grows when another server takes the lease. Each write of a delivery checks the fence, so a server that
lost its lease without noticing changes nothing. With SQLite this server holds every lease.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Collection
from typing import Any, Protocol, TypeVar

from sqlalchemy import Connection

from kindcast.server.store import servers
from kindcast.server.store.database import Database

__all__ = ["Leases", "Membership"]

BEATS_PER_LEASE = 5
PAUSE_SECONDS = 0.5
"""The pause before the database is tried again."""

T = TypeVar("T")

_log = logging.getLogger("kindcast.broker")


class Membership:
    """The membership of this server: a thread with its own connection. `woken` and `changed` are called on the event
    loop that created it."""

    def __init__(
        self,
        database: Database,
        id: str,
        program: str,
        lease_seconds: float,
        applied: Callable[[], int],
        woken: Callable[[], None],
        changed: Callable[[], None],
    ) -> None:
        self.id = id
        self._database = database
        self._program = program
        self._seconds = lease_seconds
        self._applied = applied
        self._woken = woken
        self._changed = changed
        self._loop = asyncio.get_running_loop()
        self._living: frozenset[str] = frozenset()
        self._lives_until = 0.0
        self.lapses = 0
        """How often a heartbeat was late, including the first one. Leases from before may belong to another server now.
        May be read in any thread."""
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kindcast-membership", daemon=True)

    @property
    def lives(self) -> bool:
        """Whether the other servers count this server as live, as far as it knows. May be read in any thread."""
        return time.monotonic() < self._lives_until

    def start(self) -> None:
        """Sends the first heartbeat and starts the thread. Raises the errors of the driver."""
        with self._database.listening() as connection:
            self._beat(connection)
        self._thread.start()

    async def stop(self) -> None:
        """Leaves the servers. The leases of this server are free at once."""
        if self._thread.is_alive():
            self._stopped.set()
            await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                with self._database.listening() as connection:
                    self._listen(connection)
            except Exception as error:  # an error of the driver, which is installed only for PostgreSQL
                _log.error("the database cannot be reached; trying again: %s", error)
                self._stopped.wait(PAUSE_SECONDS)

    def _listen(self, connection: Any) -> None:
        connection.execute("SET synchronous_commit = off")  # a lost heartbeat is followed by the next one
        connection.execute(f"LISTEN {servers.CHANNEL}")
        pause = self._seconds / BEATS_PER_LEASE
        while not self._stopped.is_set():
            self._beat(connection)
            self._tell(self._woken)  # a notification may have been missed
            until = time.monotonic() + pause
            while not self._stopped.is_set() and (left := until - time.monotonic()) > 0:
                payloads = {each.payload for each in connection.notifies(timeout=min(left, pause), stop_after=1)}
                if payloads - {self.id, ""}:
                    self._tell(self._woken)
                if "" in payloads:
                    break  # a server has left
        connection.execute(servers.LEAVE, (self.id,))
        connection.execute("SELECT pg_notify(%s, '')", (servers.CHANNEL,))

    def _beat(self, connection: Any) -> None:
        began = time.monotonic()
        connection.execute(servers.BEAT, (self.id, self._program, self._seconds, self._applied()))
        living = frozenset(id for id, _ in connection.execute(servers.LIVING).fetchall())
        lapsed = began > self._lives_until
        if lapsed:
            self.lapses += 1  # first: the old leases must not count when it is live again
        self._lives_until = began + self._seconds
        if lapsed or self._living - living:
            self._tell(self._changed)
        self._living = living

    def _tell(self, listener: Callable[[], None]) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(listener)


class BrokerAccess(Protocol):
    """The part of the broker's interface that leases use."""

    async def read(self, work: Callable[[Connection], T]) -> T: ...

    async def execute(
        self, work: Callable[[Connection], T], announce: Callable[[T], Collection[int]] | None = None
    ) -> T: ...


class Leases:
    """The leases of this server. For one event loop."""

    def __init__(self, broker: BrokerAccess) -> None:
        self._broker = broker
        self._held: dict[int, int] = {}
        self._since = 0
        """The value of `Membership.lapses` when the leases were taken."""
        self.membership: Membership | None = None
        """The membership; None with SQLite, where there are no other servers."""
        self.listeners: list[Callable[[], None]] = []
        """Called when leases of other servers may be free, or when this server may have lost its own."""

    def changed(self) -> None:
        """Called when another server has ended, or when a heartbeat of this server was late."""
        self._forget()  # leases that are still ours are read again
        for listener in self.listeners:
            listener()

    async def take(self, numbers: Collection[int]) -> list[int]:
        """Takes the leases of these subscriptions, if no other live server has them. Returns the subscriptions for
        which this server delivers now, in their order. Cost: one read, and one small transaction if some are new to it.
        Raises `StoreUnavailable`."""
        member = self.membership
        if member is None:
            return list(numbers)
        if not member.lives:
            return []
        if member.lapses != self._since:
            self._forget()
        since = self._since
        new = [number for number in numbers if number not in self._held]
        if new:
            others = await self._broker.read(lambda connection: servers.leased_to_others(connection, member.id, new))
            free = [number for number in new if number not in others]
            if free:
                taken = await self._broker.execute(lambda connection: servers.take_leases(connection, member.id, free))
                if since == member.lapses:
                    self._held |= taken
        return [number for number in numbers if self.fence(number) is not None]

    async def release(self, number: int) -> None:
        """Gives up a lease, which another server may take at once. Raises `StoreUnavailable`."""
        if (member := self.membership) is not None and self._held.pop(number, None) is not None:
            await self._broker.execute(lambda connection: servers.release_lease(connection, member.id, number))

    async def free_among(self, numbers: Collection[int]) -> tuple[list[int], int]:
        """Returns the leases that no other live server holds, and the number of live servers."""
        member = self.membership
        if member is None:
            return list(numbers), 1

        def look(connection: Connection) -> tuple[list[int], int]:
            others = servers.leased_to_others(connection, member.id, numbers)
            return [each for each in numbers if each not in others], len(servers.living(connection))

        return await self._broker.read(look)

    def fence(self, number: int) -> int | None:
        """Returns the fence of a lease; None if this server does not hold it."""
        if self.membership is None:
            return 0
        if not self.membership.lives or self._since != self.membership.lapses:
            return None
        return self._held.get(number)

    def _forget(self) -> None:
        self._held.clear()
        if self.membership is not None:
            self._since = self.membership.lapses

    def valid(self, connection: Connection, fences: Collection[tuple[int, int]]) -> set[tuple[int, int]]:
        """Returns those of these (subscription, fence) that are valid now. Must run in a group."""
        if self.membership is None:
            return set(fences)
        there = servers.held_leases(connection, self.membership.id, {number for number, _ in fences})
        return there.items() & set(fences)
