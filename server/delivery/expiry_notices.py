"""Notices of expiry: a signed message to the sink, a day before the subscription ends.

    store ──who ends within a day and was not told?──▶ one attempt each ──taken──▶ noted as told
                                                          └─failed─▶ again, as webhooks are, until it ends

The `webhook-id` of a notice is derived from the subscription and its end time, so it is the same if the notice is sent
again after a crash. A notice has no cursor and moves none. It is neither a success nor a failure of the subscription.
Readers without a sink see the end time in their answers (`message.Page`, `stream`).
"""

import asyncio
import logging
import time
from typing import Any

from sqlalchemy import Connection

from kindcast.server.broker import Broker
from kindcast.server.clock import CLOCK, instant
from kindcast.server.delivery.message import EXPIRY_NOTICE
from kindcast.server.delivery.outbox import Outbox, RetrySchedule
from kindcast.server.errors import ServerError
from kindcast.server.store.deliveries import Subscriber, due_notices, find_subscriber, forget_notices, note_told

__all__ = ["EXPIRING_TYPE", "ExpiryNotices", "is_wanted"]

EXPIRING_TYPE = "io.kindcast.subscription.expiring"

LOOK_SECONDS = 300.0
"""The pause between two reads of the store. A read scans all subscriptions: some 0.1 s for 100,000."""
TOGETHER = 100
"""The number of notices that are recorded together. A sink that hangs delays the others of its group by one attempt."""
AT_ONCE = 32
"""The maximum number of notices that are sent at the same time."""

_log = logging.getLogger(__name__)


class ExpiryNotices:
    """The notices of one process. Runs on its event loop."""

    def __init__(self, broker: Broker, outbox: Outbox, schedule: RetrySchedule) -> None:
        self._broker = broker
        self._outbox = outbox
        self._schedule = schedule
        self._failed: dict[tuple[int, float], tuple[int, float]] = {}  # (number, end) → (failures, next attempt)

    async def run(self) -> None:
        """Sends due notices every five minutes, until it is cancelled."""
        while True:
            try:
                await self.look()
            except ServerError as error:
                _log.warning("notices of expiry wait, because the database cannot be reached: %s", error)
            except Exception:
                _log.exception("notices of expiry could not be sent; they are tried again in %g s", LOOK_SECONDS)
            await asyncio.sleep(LOOK_SECONDS)

    async def look(self) -> None:
        """Sends all notices that are due now. Raises `StoreUnavailable`."""
        self._failed = {key: value for key, value in self._failed.items() if key[1] > CLOCK.now()}
        after = 0.0, 0
        while True:

            def read(connection: Connection, after: tuple[float, int] = after) -> tuple[list[Subscriber], Any]:
                found = due_notices(connection, CLOCK.now(), after, TOGETHER)
                subscribers = (find_subscriber(connection, number) for _, number in found)
                return [each for each in subscribers if each is not None], found[-1] if found else None

            due, last = await self._broker.read(read)
            if last is None:
                return
            await self._tell([each for each in due if not self._waits(each)])
            after = last

    def _waits(self, subscriber: Subscriber) -> bool:
        """Whether an attempt failed and the next one is not due yet."""
        return self._failed.get((subscriber.number, subscriber.expires_at), (0, 0.0))[1] > time.time()

    async def _tell(self, subscribers: list[Subscriber]) -> None:
        due = {each.number: each for each in subscribers}
        mine = [due[number] for number in await self._broker.leases.take(list(due))]
        places = asyncio.Semaphore(AT_ONCE)

        async def one(subscriber: Subscriber) -> tuple[int, float, int] | None:
            async with places:
                return await self._told(subscriber)

        told = [each for each in await asyncio.gather(*map(one, mine)) if each is not None]
        if told:
            await self._broker.execute(lambda connection: self._note(connection, told))

    async def _told(self, subscriber: Subscriber) -> tuple[int, float, int] | None:
        """Sends one notice. Returns number, end time and fence if the notice is done (sent, given up or not wanted);
        None if it must be tried again."""
        key = subscriber.number, subscriber.expires_at
        failures, _ = self._failed.get(key, (0, 0.0))
        if (fence := self._broker.leases.fence(subscriber.number)) is None:
            return None
        if is_wanted(subscriber):
            id = f"msg_{subscriber.id}_expiring{subscriber.expires_at:.0f}"
            data = {"subscription": subscriber.id, "expires_at": instant(subscriber.expires_at)}
            trial = await self._outbox.notify(subscriber, EXPIRING_TYPE, id, data)
            if trial.outcome.kind == "failed" and (delay := self._schedule.delay(failures + 1)) is not None:
                self._failed[key] = failures + 1, time.time() + delay
                return None
        return *key, fence

    def _note(self, connection: Connection, told: list[tuple[int, float, int]]) -> None:
        valid = self._broker.leases.valid(connection, {(number, fence) for number, _, fence in told})
        mine = [(number, end) for number, end, fence in told if (number, fence) in valid]
        if mine:
            note_told(connection, mine, CLOCK.now())
        forget_notices(connection)


def is_wanted(subscriber: Subscriber) -> bool:
    """Whether the subscription wants a notice, which `protocolsettings` can switch off."""
    return (subscriber.protocolsettings or {}).get(EXPIRY_NOTICE, True) is not False
