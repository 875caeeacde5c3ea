"""Aguilera et al., the simulation of their section 5: expected time of matching, equality tests alone."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.benchmarks.harness.drawn_clauses import drawn_clauses
from tests.benchmarks.harness.engine_runs import BATCH, run_engine
from tests.benchmarks.harness.experiment import Axes, Scale, Task
from tests.benchmarks.workload_papers import STRING, Drawing

NAME = "aguilera_expected_time"
TITLE = "Aguilera et al.: expected time over subscriptions"
PAPER = "Aguilera et al. 1999, section 5"
PAPER_SHAPE = (
    "Time grows sublinearly with the subscriptions (the theory: at most N to the power 1 - 1/(K + 1), with many "
    "attributes), space linearly; 25,000 subscriptions match in some milliseconds. Values are Zipf's, attributes are "
    "of falling popularity, the number of matches is held."
)
AXES = Axes("subscriptions", "microseconds an event", log_x=True, log_y=True)
SEED = 1

ENGINES = ("fused", "matching_tree", "equality", "counting", "dexin", "ctps", "naive")
SIZES: dict[Scale, tuple[int, ...]] = {
    "quick": (1_000, 3_000),
    "default": (1_000, 5_000, 25_000, 100_000),
    "full": (1_000, 5_000, 25_000, 100_000, 300_000, 1_000_000),
}
LARGEST = {"naive": 25_000, "equality": 25_000, "matching_tree": 25_000}
"""Where curves end by default that are slow, to match or to build."""
EVENTS = 1_000
ATTRIBUTES = 30
POPULAR = 0.98
"""Chance that the most popular attribute is tested."""
DEGRADATION = 0.9
"""Each next one is tested so much less often."""


def tasks(scale: Scale) -> Sequence[Task]:
    """Curve by curve."""
    return [Task(who, n, {"who": who, "n": n}) for who in ENGINES for n in SIZES[scale] if _reaches(who, n, scale)]


def _reaches(who: str, n: int, scale: Scale) -> bool:
    return scale != "default" or n <= LARGEST.get(who, n)


def measure(*, who: str, n: int) -> dict[str, Any]:
    """The number of values of an attribute is chosen so that an event matches few subscriptions at any size."""
    drawn = drawn_clauses(drawing(n, EVENTS), BATCH)
    return run_engine(who, drawn.graph, drawn.clauses, drawn.batches)


def drawing(n: int, e: int) -> Drawing:
    """Every event has all attributes, uniformly; a subscription asks for values by Zipf's law."""
    chance = np.random.default_rng([SEED, n])
    values = 3 + round(np.log10(n))
    popularity = POPULAR * DEGRADATION ** np.arange(ATTRIBUTES)
    asked = chance.random((n, ATTRIBUTES)) < popularity
    asked[~asked.any(axis=1), 0] = True
    weights = 1 / np.arange(1, values + 1)
    wanted = chance.choice(values, (n, ATTRIBUTES), p=weights / weights.sum()).astype(np.int32)
    events = chance.integers(0, values, (e, ATTRIBUTES)).astype(np.int32)
    empty = np.zeros((0, 0), dtype=np.int32)
    return Drawing("popular", SEED, 0, (STRING,) * ATTRIBUTES, values, asked, wanted, wanted, events, empty, empty)
