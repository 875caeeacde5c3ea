"""The workload is what it says, and the same every time."""

from kindcast.index.registry import ENGINES
from tests.benchmarks.experiments.kinds_engines import BATCH, measure
from tests.benchmarks.workload_kinds import kinds


def test_kinds_same_seed_draws_the_same_workload() -> None:
    """Figures of two days can be compared."""
    first, second = (kinds(subscriptions=20, events=20, depth=3, seed=7) for _ in range(2))
    assert (first.subscriptions, first.events) == (second.subscriptions, second.events)
    assert kinds(subscriptions=20, events=20, depth=3, seed=8).events != first.events


def test_kinds_engines_find_the_same_matches_and_some() -> None:
    """A workload without matches measures nothing; the report says how many there were."""
    counts = {measure(engine=engine, n=100, events=2 * BATCH)["matches"] for engine in ENGINES}
    assert len(counts) == 1
    assert counts.pop() > 10
