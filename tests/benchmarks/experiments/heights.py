"""What the height of the tree costs `fused`, with the matches held (W4); and `fused` beside walking the tree."""

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from kindcast import Matcher
from tests.benchmarks.baselines.tree_walk import TreeWalk
from tests.benchmarks.harness.experiment import Axes, Scale, Task
from tests.benchmarks.harness.fused_runs import BATCH, event_batches, filled, tree_of
from tests.benchmarks.workload_papers import Drawing, draw

NAME = "heights"
TITLE = "Height of the tree: fused, and walking the tree"
PAPER = "CTPS, section 5: some 70 times faster than G-ToPSS at height 5 and 10,000 subscriptions"
PAPER_SHAPE = "G-ToPSS gets slower with the height, CTPS does not."
AXES = Axes("height", "microseconds an event", log_y=True)
SEED = 1

FUSED, TABLE, WALK = "fused", "fused, with reading the table", "tree walking (G-ToPSS)"
HEIGHTS = (5, 12)
SIZES: dict[Scale, tuple[int, ...]] = {
    "quick": (1_000,),
    "default": (10_000, 100_000),
    "full": (10_000, 100_000, 1_000_000),
}
EVENTS = 12_000


def tasks(scale: Scale) -> Sequence[Task]:
    """W4 for the height, W3 for the paper's claim."""
    return [
        Task(who, height, {"who": who, "work": work, "n": n, "height": height}, f"{work}, {n:,} subscriptions")
        for work in ("W4", "W3")
        for n in SIZES[scale]
        for who in (FUSED, TABLE, WALK)
        for height in HEIGHTS
        if work == "W4" or (who != TABLE and n <= 100_000)
    ]


def measure(*, who: str, work: str, n: int, height: int) -> dict[str, Any]:
    """Batches of 1,000 different events, thread CPU time; both return the rows that match. With reading: from IRIs,
    texts and numbers in columns to slots."""
    drawing = draw(work, subscriptions=n, events=EVENTS, seed=SEED, height=height)
    calls: list[Callable[[], int]]
    if who == TABLE:
        calls = _tables(drawing)
    elif who == FUSED:
        engine = filled(drawing, tree_of(drawing))
        calls = [lambda batch=batch: int(engine.match_columns(batch).rows.size) for batch in event_batches(drawing)]
    else:
        walk = TreeWalk(drawing)
        calls = [lambda at=at: int(walk.match(at, at + BATCH).size) for at in range(0, EVENTS, BATCH)]
    matches = calls[0]()
    seconds, others = [], 0
    for call in calls[1:]:
        began = time.thread_time()
        others += call()
        seconds.append(time.thread_time() - began)
    each = statistics.mean(seconds) / BATCH
    told = round(others / BATCH / len(seconds), 2)
    return {"y": round(each * 1e6, 3), "seconds_an_event": each, "matches": matches, "matches_an_event": told}


def _tables(drawing: Drawing) -> list[Callable[[], int]]:
    """A call of `match_table` a batch. Every value has been read once: a concept is learnt when it is seen first."""
    matcher = Matcher(drawing.vocabulary())
    matcher.add_many((f"s{number}", drawing.tree(number)) for number in range(len(drawing.asked)))
    matcher.match_table(drawing.table(0, EVENTS))
    tables = [drawing.table(at, at + BATCH) for at in range(0, EVENTS, BATCH)]
    return [lambda table=table: int(matcher.match_table(table).slots.size) for table in tables]
