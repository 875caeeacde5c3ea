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


@pytest.mark.parametrize(
    ("fast", "slow", "expected"),
    [(0, 0, None), (100, 0, 0.001), (99, 1, 0.001), (98, 2, 0.1), (0, 100, 0.1)],
)
def test_99th_percentile_is_the_bound_of_its_bucket(fast: int, slow: int, expected: float | None) -> None:
    """Buckets count all that is below their bound."""
    counts = {"match_le_0.001": fast, "match_le_0.1": fast + slow, "match_le_+Inf": fast + slow}
    assert metrics._p99(counts) == expected


def test_99th_percentile_above_all_bounds_is_unknown() -> None:
    """It is not infinite, which JSON could not say."""
    assert metrics._p99({"match_le_0.001": 1.0, "match_le_+Inf": 100.0}) is None
