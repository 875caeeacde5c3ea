"""CTPS, Figure 8: microseconds an event over the number of subscriptions, at three heights of the tree."""

from collections.abc import Sequence
from typing import Any

from tests.benchmarks.baselines.event_expansion import EventExpansion
from tests.benchmarks.baselines.subscription_expansion import SubscriptionExpansion
from tests.benchmarks.baselines.tree_walk import TreeWalk
from tests.benchmarks.harness.drawn_clauses import drawn_clauses
from tests.benchmarks.harness.engine_runs import BATCH, run_engine, timed
from tests.benchmarks.harness.experiment import Axes, Scale, Task
from tests.benchmarks.workload_papers import draw

NAME = "ctps_time"
TITLE = "CTPS Figure 8: matching time over subscriptions"
PAPER = "CTPS, Figure 8 (a, b, c)"
PAPER_SHAPE = (
    "At height 1 CTPS stays almost flat and lies far below G-ToPSS (tree walking), which grows slowly; MIC "
    "(subscription expansion) rises sharply from 7,000 subscriptions on; OPS, one by one, is slowest by far. At "
    "height 5 G-ToPSS gets slower, CTPS does not, and is about 70 times faster."
)
AXES = Axes("subscriptions", "microseconds an event", log_x=True, log_y=True)
SEED = 1

ENGINES = ("fused", "ctps", "dexin", "matching_tree", "counting", "equality", "quarantine", "naive")
BASELINES: dict[str, type[TreeWalk] | type[EventExpansion] | type[SubscriptionExpansion]] = {
    "tree walking (G-ToPSS)": TreeWalk,
    "event expansion (S-ToPSS)": EventExpansion,
    "subscription expansion (MIC)": SubscriptionExpansion,
}
HEIGHTS = (1, 5, 12)
SIZES: dict[Scale, tuple[int, ...]] = {
    "quick": (300, 1_000),
    "default": (1_000, 10_000, 50_000),
    "full": (500, 1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000),
}
LARGEST = {"naive": 10_000, "equality": 10_000, "quarantine": 10_000}
"""Where slow curves end by default."""
EVENTS = 1_000


def tasks(scale: Scale) -> Sequence[Task]:
    """A panel a height, curve by curve."""
    heights = HEIGHTS[:2] if scale == "quick" else HEIGHTS
    return [
        Task(who, n, {"who": who, "n": n, "height": height}, f"height {height}")
        for height in heights
        for who in (*ENGINES, *BASELINES)
        for n in SIZES[scale]
        if scale != "default" or n <= LARGEST.get(who, n)
    ]


def measure(*, who: str, n: int, height: int) -> dict[str, Any]:
    """One engine or baseline over three concepts, a string and two intervals."""
    drawing = draw("W3", subscriptions=n, events=EVENTS, seed=SEED, height=height)
    if who in ENGINES:
        drawn = drawn_clauses(drawing, BATCH)
        return run_engine(who, drawn.graph, drawn.clauses, drawn.batches)
    baseline = BASELINES[who](drawing)
    calls = [lambda start=start: baseline.match(start, start + BATCH) for start in range(0, EVENTS, BATCH)]
    return {**timed(calls, [BATCH] * len(calls)), "index_mib": round(baseline.nbytes / 2**20, 3)}
