"""CTPS, Figure 7: memory of the index over the number of subscriptions, at three heights of the tree."""

from collections.abc import Sequence
from typing import Any

from tests.benchmarks.experiments.ctps_time import BASELINES, ENGINES, HEIGHTS
from tests.benchmarks.harness.drawn_clauses import drawn_clauses
from tests.benchmarks.harness.engine_runs import engine_memory
from tests.benchmarks.harness.experiment import Axes, Scale, Task
from tests.benchmarks.workload_papers import draw

NAME = "ctps_memory"
TITLE = "CTPS Figure 7: memory of the index over subscriptions"
PAPER = "CTPS, Figure 7"
PAPER_SHAPE = (
    "At height 1 CTPS and G-ToPSS (tree walking) grow slowly, CTPS less; MIC (subscription expansion) grows steeply "
    "and runs out of memory at 8,500 subscriptions; OPS needs as much for any number. At height 5 only CTPS and "
    "G-ToPSS are left: both linear, CTPS under 3 MB at 10,000."
)
AXES = Axes("subscriptions", "MiB", log_x=True, log_y=True)
SEED = 1

SIZES: dict[Scale, tuple[int, ...]] = {
    "quick": (300, 1_000),
    "default": (1_000, 10_000),
    "full": (500, 1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000),
}


def tasks(scale: Scale) -> Sequence[Task]:
    """A panel a height, curve by curve; `naive` keeps nothing but the clauses."""
    heights = HEIGHTS if scale == "full" else HEIGHTS[:2]
    return [
        Task(who, n, {"who": who, "n": n, "height": height}, f"height {height}")
        for height in heights
        for who in (*ENGINES, *BASELINES)
        for n in SIZES[scale]
        if who != "naive"
    ]


def measure(*, who: str, n: int, height: int) -> dict[str, Any]:
    """What Python's account of memory has for an engine, the arrays of a baseline."""
    drawing = draw("W3", subscriptions=n, events=10, seed=SEED, height=height)
    if who in ENGINES:
        drawn = drawn_clauses(drawing, 1)
        return engine_memory(who, drawn.graph, drawn.clauses, drawn.batches[0])
    held = BASELINES[who](drawing).nbytes
    return {"y": round(held / 2**20, 3), "bytes_a_subscription": round(held / n, 1)}
