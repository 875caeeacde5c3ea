"""What do changes cost the events that come after them? 200 before each 1,000 events, merges included.

The settled engine gets the same batches in turn. What the processor does for the changed one is counted: the thread
that matches, and those that merge; the adding and removing itself is counted apart.
"""

import gc
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from kindcast.index.clause import ClauseRow
from tests.benchmarks.harness.drawn_clauses import drawn_clauses
from tests.benchmarks.harness.experiment import Axes, Scale, Task
from tests.benchmarks.harness.fused_runs import BATCH, event_batches, filled, first_of, tree_of
from tests.benchmarks.workload_papers import draw

NAME = "changed_batches"
TITLE = "fused: batches of events between changes"
PAPER = ""
PAPER_SHAPE = ""
AXES = Axes("work", "times the settled engine", bars=True)
SEED = 1

SIZES: dict[Scale, int] = {"quick": 3_000, "default": 100_000, "full": 1_000_000}
ROUNDS: dict[Scale, int] = {"quick": 5, "default": 200, "full": 400}
CHANGES = 200
"""Before each batch: half of them additions, half removals."""


def tasks(scale: Scale) -> Sequence[Task]:
    """A bar a work."""
    arguments = {"n": SIZES[scale], "rounds": ROUNDS[scale]}
    return [Task("200 changes before 1,000 events", work, {"work": work, **arguments}) for work in ("W1", "W2", "W3")]


def measure(*, work: str, n: int, rounds: int) -> dict[str, Any]:
    """CPU time of all rounds over that of the settled engine; a merge that still runs is waited for at the end."""
    added = rounds * CHANGES // 2
    drawing = draw(work, subscriptions=n + added, events=12 * BATCH, seed=SEED)
    live, graph, batches = first_of(drawing, n), tree_of(drawing), event_batches(drawing)
    settled, changing = filled(live, graph), filled(live, graph)
    clauses = drawn_clauses(first_of(drawing, n + added, n), 1).clauses
    chance = np.random.default_rng(SEED)
    rows = list(map(ClauseRow, range(n)))
    for batch in batches:
        settled.match_columns(batch)
        changing.match_columns(batch)
    gc.collect()
    usual = changes = matching = 0.0
    began = time.process_time()
    for number in range(rounds):
        batch = batches[number % len(batches)]
        at = time.thread_time()
        settled.match_columns(batch)
        usual, at = usual + time.thread_time() - at, time.thread_time()
        for clause in clauses[number * CHANGES // 2 : (number + 1) * CHANGES // 2]:
            place = int(chance.integers(len(rows)))
            changing.remove(rows[place])
            rows[place] = changing.add(clause)
        changes, at = changes + time.thread_time() - at, time.thread_time()
        changing.match_columns(batch)
        matching += time.thread_time() - at
    changing._compaction.advance(wait=True)
    whole = time.process_time() - began - usual - changes
    events = rounds * BATCH
    return {
        "y": round(whole / usual, 2),
        "settled_us": round(usual / events * 1e6, 3),
        "us": round(whole / events * 1e6, 3),
        "without_merges": round(matching / usual, 2),
        "us_a_change": round(changes / (rounds * CHANGES) * 1e6, 1),
        "segments": len(changing._compaction.parts.segments),
    }
