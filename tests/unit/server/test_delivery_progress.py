"""Outcomes of webhooks on their way to disk, when the store refuses them for a while."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from kindcast.server.broker import Broker, write_queue
from kindcast.server.broker.membership import Leases
from kindcast.server.delivery import outbox
from kindcast.server.delivery.outbox import progress_queue
from kindcast.server.errors import StoreUnavailable
from kindcast.server.store.deliveries import Progress


class FullDisk:
    """The doors of the broker that are used here; it refuses the first `refusals` writes."""

    def __init__(self, refusals: int, patch: pytest.MonkeyPatch) -> None:
        self.refusals = refusals
        self.written: list[int] = []
        self.leases = Leases(cast("Broker", self))
        patch.setattr(write_queue, "RETRY_SECONDS", 0.0)
        patch.setattr(outbox, "record_progress", self._record)

    async def execute(self, work: Callable[[Any], Any], announce: Callable[[Any], Any]) -> None:
        await asyncio.sleep(0)
        if self.refusals:
            self.refusals -= 1
            raise StoreUnavailable
        announce(work(None))

    def _record(self, connection: object, steps: list[Progress]) -> set[int]:
        self.written += [step.sequence for step in steps]
        return set()


def step(sequence: int) -> Progress:
    return Progress(
        number=1,
        after=sequence - 1,
        position=sequence,
        sequence=sequence,
        at=0.0,
        outcome="delivered",
        status_code=200,
        detail="",
        status="active",
    )


def test_progress_refused_writes_are_tried_again_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is lost or overtaken while the store refuses; each future is done when its step is on disk."""
    disk = FullDisk(3, monkeypatch)

    async def scenario() -> list[bool]:
        log = progress_queue(cast("Broker", disk))
        running = asyncio.create_task(log.run())
        first = [log.add(step(n)) for n in (1, 2)]
        for _ in range(3):
            await asyncio.sleep(0)
        early = first[0].done()
        last = log.add(step(3))
        await asyncio.wait_for(last, 30)
        log.close()
        await asyncio.wait_for(running, 30)
        return [early, *(each.done() for each in first)]

    assert asyncio.run(scenario()) == [False, True, True]
    assert disk.written == [1, 2, 3]


def test_progress_close_writes_what_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing ends the log only after a last write."""
    disk = FullDisk(0, monkeypatch)

    async def scenario() -> None:
        log = progress_queue(cast("Broker", disk))
        log.add(step(1))
        log.close()
        await asyncio.wait_for(log.run(), 30)

    asyncio.run(scenario())
    assert disk.written == [1]


def test_progress_close_does_not_wait_for_a_broken_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """At shutdown a store that refuses is not waited for: those messages are sent again after the restart."""
    disk = FullDisk(1_000_000, monkeypatch)

    async def scenario() -> None:
        log = progress_queue(cast("Broker", disk))
        log.add(step(1))
        log.close()
        await asyncio.wait_for(log.run(), 30)

    asyncio.run(scenario())
    assert disk.written == []
