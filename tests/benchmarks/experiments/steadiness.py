"""How even is the time of an event, and how does it grow with the attributes? DEXIN's workload, the engine alone."""

import statistics
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from kindcast.index.engine import ColumnBatch, ColumnValues
from kindcast.index.fused.engine import FusedEngine
from tests.benchmarks.harness.experiment import Axes, Scale, Task
from tests.benchmarks.harness.fused_runs import event_batches, filled, microseconds, tree_of
from tests.benchmarks.workload_dexin import draw_dexin

NAME = "steadiness"
TITLE = "fused: deviation among events, and time over attributes"
PAPER = ""
PAPER_SHAPE = ""
AXES = Axes("attributes", "microseconds an event; deviation, % of the mean")
SEED = 1

SIZES: dict[Scale, tuple[int, ...]] = {
    "quick": (3_000,),
    "default": (100_000,),
    "full": (100_000, 1_000_000),
}
ATTRIBUTES = (6, 10, 14, 18, 22)
EVENTS = 12_000
APART = 400
"""Events that are timed one by one."""
ROUNDS = 15
"""How often each of them is: the median leaves out what others do to the machine, and no event follows itself."""
COPIES = 100
"""Of one event in a batch, so that the call itself, which is the same for all events, is left out."""


def tasks(scale: Scale) -> Sequence[Task]:
    """A curve a size."""
    return [
        Task(f"{n:,} subscriptions", m, {"n": n, "m": m}, "time of an event, batches of 1,000")
        for n in SIZES[scale]
        for m in ATTRIBUTES
    ]


def measure(*, n: int, m: int) -> dict[str, Any]:
    """`y` over batches of 1,000 events. The deviation is among events that are matched by themselves: in calls of the
    engine with one event, which was read before; and in batches of copies of it, warm from the first."""
    drawing = draw_dexin(subscriptions=n, events=EVENTS, attributes=m, seed=SEED)
    engine = filled(drawing, tree_of(drawing))
    y, matches = microseconds(engine, event_batches(drawing))
    alone = [batch.part(0, 1) for batch in event_batches(drawing, EVENTS // APART)]
    mean, deviation = _spread(engine, alone)
    copied, among_copied = _spread(engine, [_copies(event) for event in alone])
    share = round(100 * deviation / mean, 1)
    return {
        "y": round(y, 3),
        "matches_an_event": round(matches, 2),
        "alone_us": round(mean, 2),
        "deviation_us": round(deviation, 2),
        "deviation_percent": share,
        "copies_us": round(copied, 3),
        "copies_percent": round(100 * among_copied / copied, 1),
        "also": {"deviation among single events, % of their mean": share},
    }


def _spread(engine: FusedEngine, batches: Sequence[ColumnBatch]) -> tuple[float, float]:
    """Mean and deviation of the batches, microseconds an event."""
    seconds: list[list[float]] = [[] for _ in batches]
    for _ in range(ROUNDS):
        for number, batch in enumerate(batches):
            began = time.perf_counter()
            engine.match_columns(batch)
            seconds[number].append((time.perf_counter() - began) / batch.events)
    each = [statistics.median(rounds) * 1e6 for rounds in seconds]
    return statistics.mean(each), statistics.pstdev(each)


def _copies(event: ColumnBatch) -> ColumnBatch:
    columns = [ColumnValues(each.column, np.repeat(each.numbers, COPIES)) for each in event.columns]
    return ColumnBatch(np.repeat(event.kinds, COPIES), event.presents, columns, {})
