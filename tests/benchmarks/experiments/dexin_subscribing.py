"""DEXIN, Figure 13: what it costs to add subscriptions, one after the other, and to remove them again."""

import statistics
import time
from collections.abc import Sequence
from typing import Any

from kindcast.index.clause import AttributeId, Clause, ColumnId, IntervalTest, Predicate
from kindcast.index.concept_graph import ConceptGraph
from kindcast.index.registry import ENGINES, new_engine
from tests.benchmarks.harness.contestants import BASELINES
from tests.benchmarks.harness.drawn_clauses import drawn_clauses
from tests.benchmarks.harness.experiment import Axes, Scale, Task
from tests.benchmarks.workload_dexin import draw_dexin
from tests.benchmarks.workload_papers import Drawing

NAME = "dexin_subscribing"
TITLE = "DEXIN Figure 13: adding and removing"
PAPER = "DEXIN, Figure 13"
PAPER_SHAPE = (
    "The total time grows a little faster than linearly; REIN is fastest, DEXIN a little slower for the order "
    "inside its slots (with lists instead of trees the two are alike), TAMA, H-Tree, BE-Tree and OpIndex are "
    "slower. Removing is said to be like adding."
)
AXES = Axes("subscriptions", "seconds; microseconds", log_x=True, log_y=True)
SEED = 1

CONTESTANTS = ("fused", "dexin", "ctps", "counting", "REIN", "TAMA, refined")
TOTAL, ONE, REMOVED = (
    "Figure 13: all of them, seconds (baselines: built at once)",
    "one more, microseconds (median)",
    "one less, microseconds (median)",
)
SIZES: dict[Scale, tuple[int, ...]] = {
    "quick": (1_000, 3_000),
    "default": (10_000, 30_000),
    "full": (250_000, 500_000, 1_000_000, 1_750_000),
}
CHUNK = 10_000
"""Clauses made at a time; making them is not counted."""
SINGLE = 300


def tasks(scale: Scale) -> Sequence[Task]:
    """Curve by curve, small sizes first."""
    return [Task(who, n, {"who": who, "n": n}, TOTAL) for who in CONTESTANTS for n in SIZES[scale]]


def measure(*, who: str, n: int) -> dict[str, Any]:
    """Clauses as objects, for every engine alike; an event is matched after the last, and after each of the others
    that are timed by themselves, but not counted there."""
    drawing = draw_dexin(subscriptions=n + SINGLE, events=2, seed=SEED)
    if who in BASELINES:
        BASELINES[who](draw_dexin(subscriptions=100, events=2, seed=SEED))  # kernels are there now
        began = time.thread_time()
        BASELINES[who](drawing)
        return {"y": round(time.thread_time() - began, 4)}
    event = drawn_clauses(draw_dexin(subscriptions=1, events=2, seed=SEED), 1).batches[0].lowered()[0]
    warm = new_engine(who, ConceptGraph(0))
    warm.add_many([_clause(drawing, number) for number in range(200)])
    warm.match(event)
    engine = ENGINES[who](ConceptGraph(0))
    seconds = 0.0
    for start in range(0, n, CHUNK):
        clauses = [_clause(drawing, number) for number in range(start, min(start + CHUNK, n))]
        began = time.thread_time()
        engine.add_many(clauses)
        seconds += time.thread_time() - began
    began = time.thread_time()
    engine.match(event)
    seconds += time.thread_time() - began
    added, removed, rows = [], [], []
    for number in range(n, n + SINGLE):
        clause = _clause(drawing, number)
        began = time.thread_time()
        rows.append(engine.add(clause))
        added.append(time.thread_time() - began)
    for row in rows:
        began = time.thread_time()
        engine.remove(row)
        removed.append(time.thread_time() - began)
    also = {ONE: round(statistics.median(added) * 1e6, 2), REMOVED: round(statistics.median(removed) * 1e6, 2)}
    return {"y": round(seconds, 4), "also": also}


def _clause(drawing: Drawing, number: int) -> Clause:
    ends = zip(drawing.low[number].tolist(), drawing.high[number].tolist(), strict=True)
    tests = [IntervalTest(float(low), float(high)) for low, high in ends]
    predicates = (Predicate(AttributeId(j), ((ColumnId(j), test),)) for j, test in enumerate(tests))
    return Clause(tuple(predicates), frozenset(map(AttributeId, range(len(tests)))))
