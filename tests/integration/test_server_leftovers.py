"""A subscription that is deleted with very much that waits for it: gone at once, its attempts erased step by step."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, insert, select

from kindcast.server.broker import Broker
from kindcast.server.broker import expiry as sweeping
from kindcast.server.store import ledger, subscriptions
from kindcast.server.store.tables import attempts, leftovers
from tests.harness.broker import event, new, run, running, stored

EVENTS = 10
STEP = 3


async def counted(broker: Broker) -> tuple[int, int, ledger.Totals]:
    """Rows of attempts, subscriptions with something left, and the totals, which must add up."""

    def read(connection: Any) -> tuple[int, int, ledger.Totals]:
        rows = connection.execute(select(func.count()).select_from(attempts)).scalar_one()
        left = connection.execute(select(func.count()).select_from(leftovers)).scalar_one()
        assert ledger.uncounted(connection) == 0
        return rows, left, ledger.read_totals(connection)

    rows, left, totals = await broker.read(read)
    assert totals.matches == totals.delivered + totals.pending + totals.dead + totals.discarded
    return rows, left, totals


async def deleted(broker: Broker) -> None:
    """Two subscriptions with many matches and attempts each; one is deleted."""
    for name in ("goes", "stays"):
        row = await broker.create_subscription(new(name))
        tried = [
            {"subscription": row.number, "sequence": each, "attempt": 1, "at": 0.0, "outcome": "failed", "detail": ""}
            for each in range(EVENTS)
        ]
        await broker.execute(lambda connection, tried=tried: connection.execute(insert(attempts), tried) and None)  # type: ignore[misc]
    await broker.publish([event(n=number) for number in range(EVENTS)])
    await broker.delete_subscription("goes", "ticket")


def test_delete_with_many_attempts_erases_them_step_by_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its matches count as discarded at once; never more attempts than a step in one group; what waits for another one
    stays."""
    monkeypatch.setattr(sweeping, "ATTEMPTS_PER_SWEEP", STEP)
    steps: list[bool] = []
    erase = subscriptions.erase_attempts

    def watched(*arguments: Any, at_most: int) -> bool:
        assert at_most == STEP
        steps.append(erase(*arguments, at_most=at_most))
        return steps[-1]

    monkeypatch.setattr(subscriptions, "erase_attempts", watched)

    async def body() -> None:
        async with running(tmp_path) as broker:
            await deleted(broker)
            assert steps[0] is False, "the command itself: a first step"
            while (found := await counted(broker))[1]:
                assert (found[2].pending, found[2].discarded) == (EVENTS, EVENTS)
                await broker.execute(lambda connection: None)  # others are served between the steps
            assert (found[0], found[2].pending, found[2].discarded) == (EVENTS, EVENTS, EVENTS)
            assert len(steps) == EVENTS // STEP + 1
            assert len(await stored(broker)) == EVENTS

    run(body)


def test_start_goes_on_with_what_was_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server ended in between."""
    monkeypatch.setattr(sweeping, "ATTEMPTS_PER_SWEEP", STEP)

    async def body() -> None:
        with monkeypatch.context() as patched:
            patched.setattr(subscriptions, "erase_leftovers", lambda *_, **__: False)
            async with running(tmp_path) as broker:
                await deleted(broker)
                rows, left, totals = await counted(broker)
                assert (rows, left, totals.pending) == (2 * EVENTS - STEP, 1, EVENTS)
        async with running(tmp_path) as broker:
            while (found := await counted(broker))[1]:
                await asyncio.sleep(0.01)
            assert (found[0], found[2].discarded) == (EVENTS, EVENTS)

    run(body)
