"""CTPS, Figure 8 (d): microseconds an event over the share of subscriptions that it matches."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tests.benchmarks.experiments.ctps_time import ENGINES
from tests.benchmarks.harness.drawn_clauses import drawn_clauses
from tests.benchmarks.harness.engine_runs import BATCH, run_engine
from tests.benchmarks.harness.experiment import Axes, Scale, Task
from tests.benchmarks.workload_papers import CONCEPT, Drawing, draw

NAME = "ctps_matching_rate"
TITLE = "CTPS Figure 8 (d): matching time over the matching rate"
PAPER = "CTPS, Figure 8 (d)"
PAPER_SHAPE = "The time of CTPS grows slowly with the matching rate, and stays short."
AXES = Axes("subscriptions matched, %", "microseconds an event", log_x=True, log_y=True)
SEED = 1

SIZES: dict[Scale, int] = {"quick": 1_000, "default": 10_000, "full": 100_000}
RATES: dict[Scale, tuple[float, ...]] = {"quick": (0.1, 10), "default": (0.1, 1, 10, 30), "full": (0.1, 1, 5, 10, 30)}
HEIGHT = 5
EVENTS = 600


def tasks(scale: Scale) -> Sequence[Task]:
    """Curve by curve."""
    n = SIZES[scale]
    return [Task(who, rate, {"who": who, "n": n, "rate": rate}) for who in ENGINES for rate in RATES[scale]]


def measure(*, who: str, n: int, rate: float) -> dict[str, Any]:
    """Every subscription asks for concepts near the root and half of each interval, and for a string of a share of
    events that brings the rate about; what is really matched is in `matched_percent`."""
    drawing = _rated(draw("W3", subscriptions=n, events=EVENTS, seed=SEED, height=HEIGHT), rate / 100)
    drawn = drawn_clauses(drawing, BATCH)
    found = run_engine(who, drawn.graph, drawn.clauses, drawn.batches)
    return {**found, "matched_percent": round(100 * found.get("matches", 0) / BATCH / n, 3)}


def _rated(drawing: Drawing, rate: float) -> Drawing:
    """The same with concepts that all events are beneath (the root) in two attributes, and intervals of such a width
    that the two together hold with the chance `rate`."""
    chance = np.random.default_rng(SEED)
    n, most = len(drawing.asked), 10_000
    nodes, low, high, asked = drawing.nodes.copy(), drawing.low.copy(), drawing.high.copy(), drawing.asked.copy()
    concepts = [j for j, kind in enumerate(drawing.kinds) if kind == CONCEPT]
    nodes[:, concepts] = 0
    low[:, concepts], high[:, concepts] = 0, (1 << (drawing.height + 1)) - 2
    asked[:, 3] = False
    width = int(most * rate**0.5)
    least = chance.integers(0, most - width + 1, (n, 2))
    low[:, 4:], high[:, 4:] = least, least + width - 1
    return replace(drawing, nodes=nodes, low=low, high=high, asked=asked)
