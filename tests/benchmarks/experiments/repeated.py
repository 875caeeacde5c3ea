"""What is it worth that equal clauses of different subscriptions share a row of a segment?"""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from kindcast.index.fused import segment as sharing
from tests.benchmarks.harness.experiment import Axes, Scale, Task
from tests.benchmarks.harness.fused_runs import event_batches, filled, tree_of
from tests.benchmarks.workload_papers import draw

NAME = "repeated"
TITLE = "fused: subscriptions that repeat"
PAPER = ""
PAPER_SHAPE = ""
AXES = Axes("times that each clause is subscribed to", "microseconds an event", log_x=True, log_y=True)
SEED = 1

SIZES: dict[Scale, int] = {"quick": 3_000, "default": 100_000, "full": 1_000_000}
TIMES = (1, 2, 5, 20, 100)
EVENTS = 6_000
APART, SHARED = "a position each", "shared positions"


def tasks(scale: Scale) -> Sequence[Task]:
    """Both series over the repetitions, for each work."""
    return [
        Task(series, times, {"work": work, "n": SIZES[scale], "times": times, "shared": series == SHARED}, work)
        for work in ("W1", "W2", "W3")
        for series in (APART, SHARED)
        for times in TIMES
    ]


def measure(*, work: str, n: int, times: int, shared: bool) -> dict[str, Any]:
    """`n` subscriptions, of which an n-th over `times` differ; the engine alone, thread CPU time."""
    drawing = draw(work, subscriptions=n // times, events=EVENTS, seed=SEED)
    own = {name: np.repeat(getattr(drawing, name), times, axis=0) for name in ("asked", "low", "high")}
    if len(drawing.nodes):
        own["nodes"] = np.repeat(drawing.nodes, times, axis=0)
    drawing = replace(drawing, **own)
    saves, sharing.SAVES = sharing.SAVES, sharing.SAVES if shared else 0
    try:
        engine = filled(drawing, tree_of(drawing))
    finally:
        sharing.SAVES = saves
    batches = event_batches(drawing)
    seconds, matches = [], 0
    for turn in range(3):
        for number, batch in enumerate(batches):
            began = time.thread_time()
            found = engine.match_columns(batch)
            took = time.thread_time() - began
            if turn:
                seconds.append(took / batch.events)
            else:
                matches += found.rows.size * (number > 0)
    events = sum(batch.events for batch in batches[1:])
    return {
        "y": round(float(np.mean(seconds)) * 1e6, 3),
        "matches": matches,
        "matches_an_event": round(matches / events, 2),
        "bytes_a_subscription": round(engine.nbytes / (n // times * times)),
    }
