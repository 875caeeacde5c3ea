"""The papers' workloads mean the same as expressions and as columns, and the same every time."""

import numpy as np
import pytest

from tests.benchmarks.full_scan_ratios import ratio
from tests.benchmarks.workload_papers import WORKLOADS, draw


@pytest.mark.parametrize("name", WORKLOADS)
def test_papers_same_seed_draws_the_same_workload(name: str) -> None:
    """Figures of two days can be compared; another seed draws another."""
    first, second, other = (draw(name, subscriptions=50, events=20, seed=seed) for seed in (3, 3, 4))
    assert np.array_equal(first.low, second.low)
    assert np.array_equal(first.values, second.values)
    assert not np.array_equal(first.values, other.values)


@pytest.mark.parametrize("name", WORKLOADS)
def test_papers_engine_finds_what_the_full_scan_finds(name: str) -> None:
    """The measurement compares ids before it measures; there are matches to compare."""
    result = ratio(name, subscriptions=400, engine="fused", seed=2, batches=2)
    assert result["matches_an_event"] > 0
