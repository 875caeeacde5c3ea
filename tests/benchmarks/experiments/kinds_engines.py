"""Every engine on subscriptions by kind and interval, through the whole matcher, from JSON objects to matches."""

import statistics
import time
from collections.abc import Sequence
from typing import Any

from kindcast import Matcher
from kindcast.index.registry import ENGINES
from tests.benchmarks.harness.experiment import Axes, Scale, Task
from tests.benchmarks.workload_kinds import kinds

NAME = "kinds_engines"
TITLE = "Engines through the matcher: subscriptions by kind"
PAPER = ""
PAPER_SHAPE = ""
AXES = Axes("subscriptions", "microseconds an event", log_x=True, log_y=True)
SEED = 1

SIZES: dict[Scale, tuple[int, ...]] = {
    "quick": (300, 1_000),
    "default": (1_000, 5_000),
    "full": (1_000, 10_000, 100_000, 1_000_000),
}
EVENTS = 200
BATCH = 50
"""Events of one call; the first call is not counted."""


def tasks(scale: Scale) -> Sequence[Task]:
    """Engine by engine, small sizes first."""
    return [Task(engine, n, {"engine": engine, "n": n}) for engine in sorted(ENGINES) for n in SIZES[scale]]


def measure(*, engine: str, n: int, events: int = EVENTS) -> dict[str, Any]:
    """Median of the batches."""
    workload = kinds(subscriptions=n, events=events, seed=SEED)
    matcher = Matcher(workload.vocabulary, engine=engine)
    began = time.perf_counter()
    matcher.add_many(workload.subscriptions)
    added = time.perf_counter() - began
    seconds: list[float] = []
    matches = 0
    for start in range(0, events, BATCH):
        began = time.perf_counter()
        found = matcher.match_batch(workload.events[start : start + BATCH])
        seconds.append((time.perf_counter() - began) / BATCH)
        matches += sum(map(len, found))
    each = statistics.median(seconds[1:])
    return {"y": round(each * 1e6, 2), "seconds_an_event": each, "matches": matches, "add_seconds": round(added, 3)}
