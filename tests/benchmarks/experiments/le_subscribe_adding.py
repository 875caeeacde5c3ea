"""Le Subscribe, end of section 4: what it costs to add one subscription to many."""

import statistics
import time
from collections.abc import Sequence
from typing import Any

from index.engines import new_engine
from tests.benchmarks.experiments.le_subscribe import drawing
from tests.benchmarks.harness.drawn_clauses import drawn_clauses
from tests.benchmarks.harness.experiment import Axes, Scale, Task

NAME = "le_subscribe_adding"
TITLE = "Le Subscribe: adding one subscription"
PAPER = "Le Subscribe, section 4"
PAPER_SHAPE = (
    "At 3,200,000 subscriptions adding one takes nonequality quarantining 32.2 ms on average, equality-preferred about "
    "as much, fair-predicate (counting) less."
)
AXES = Axes("subscriptions there", "microseconds to add one and match", log_x=True, log_y=True)
SEED = 1

ENGINES = ("fused", "quarantine", "equality", "counting", "matching_tree", "dexin", "ctps")
SIZES: dict[Scale, tuple[int, ...]] = {
    "quick": (1_000, 3_000),
    "default": (1_000, 10_000, 100_000),
    "full": (1_000, 10_000, 100_000, 1_000_000, 3_200_000),
}
ADDED = 100
"""Single subscriptions, each followed by an event that must see it."""


def tasks(scale: Scale) -> Sequence[Task]:
    """Curve by curve."""
    return [Task(who, n, {"who": who, "n": n}) for who in ENGINES for n in SIZES[scale]]


def measure(*, who: str, n: int) -> dict[str, Any]:
    """`y` is the median of adding one and matching an event, less that of matching alone, so that an engine that
    rebuilds only when it is asked next is not flattered; `mean_us` the same of the mean, which the paper has;
    `add_us` is the median of `add` by itself."""
    drawn = drawn_clauses(drawing(n + ADDED, 3 * ADDED, 0.5, SEED), 1)
    events = [batch.lowered()[0] for batch in drawn.batches]
    engine = new_engine(who, drawn.graph)
    engine.add_many(drawn.clauses[:n])
    alone: list[float] = []
    for event in events[:ADDED]:
        began = time.perf_counter()
        engine.match(event)
        alone.append(time.perf_counter() - began)
    adding: list[float] = []
    both: list[float] = []
    for clause, event in zip(drawn.clauses[n:], events[ADDED:], strict=False):
        began = time.perf_counter()
        engine.add(clause)
        adding.append(time.perf_counter() - began)
        engine.match(event)
        both.append(time.perf_counter() - began)
        if sum(both) > 5:
            break
    seconds = statistics.median(both) - statistics.median(alone)
    mean = statistics.mean(both) - statistics.mean(alone)
    return {
        "y": round(max(seconds, 0.0) * 1e6, 2),
        "mean_us": round(mean * 1e6, 2),
        "add_us": round(statistics.median(adding) * 1e6, 2),
        "worst_us": round(max(both) * 1e6, 1),
        "match_us": round(statistics.median(alone) * 1e6, 2),
        "added": len(both),
    }
