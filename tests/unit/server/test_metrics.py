"""The measurements of the last day."""

import asyncio
from unittest.mock import AsyncMock, Mock

import pytest

from kindcast.server import metrics
from kindcast.server.metrics import History


def test_a_sample_that_fails_does_not_end_the_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    async def drive() -> None:
        history = History(Mock(), Mock())
        sample = AsyncMock(side_effect=[OSError("the file is away"), *[None] * 1_000])
        monkeypatch.setattr(history, "sample", sample)
        monkeypatch.setattr(metrics, "STEP_SECONDS", 0.0)
        sampling = asyncio.create_task(history.run())
        while sample.await_count < 2 and not sampling.done():
            await asyncio.sleep(0)
        assert not sampling.done()
        sampling.cancel()

    asyncio.run(drive())
