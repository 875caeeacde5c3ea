"""DEXIN, Figures 15 and 16: Algorithm 4 against the best of all orders, in cost and in time."""

import statistics
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from kindcast.index.concept_graph import ConceptGraph
from kindcast.index.published.dexin import FIRST_FIT, OPTIMAL, DexinEngine, cost_of, first_fit, optimal
from tests.benchmarks.harness.contestants import clause_columns
from tests.benchmarks.harness.drawn_clauses import drawn_clauses
from tests.benchmarks.harness.experiment import Axes, Scale, Task
from tests.benchmarks.workload_dexin import SIZE, draw_dexin
from tests.benchmarks.workload_papers import Drawing

NAME = "dexin_orders"
TITLE = "DEXIN Figures 15 and 16: near-optimal and optimal order"
PAPER = "DEXIN, Figures 15 and 16"
PAPER_SHAPE = (
    "Figure 15: with few attributes the near-optimal order costs a little more than the optimal one, from 10 on "
    "the same. Figure 16: so do the times, if finding the order is not counted; with it, the optimal one grows "
    "exponentially."
)
AXES = Axes("attributes", "rows walked, as a share of all; microseconds an event", log_y=True)
SEED = 1

FIFTEEN, SIXTEEN = "Figure 15: cost", "Figure 16: time of an event"
NEAR, BEST, FOUND = "near-optimal", "optimal", "optimal, finding it not counted"
ATTRIBUTES = (2, 6, 10, 14, 18, 22)
EVENTS = 30
"""Few: the optimal order of 22 attributes is the best of four million."""


def tasks(scale: Scale) -> Sequence[Task]:
    """Curve by curve. The cost of an order does not depend on whether finding it is counted."""
    points = {"quick": ATTRIBUTES[:3], "default": ATTRIBUTES[:5], "full": ATTRIBUTES}[scale]
    panels = {NEAR: FIFTEEN, BEST: FIFTEEN, FOUND: SIXTEEN}
    return [Task(who, m, {"who": who, "m": m, "n": SIZE[scale]}, panels[who]) for who in panels for m in points]


def measure(*, who: str, m: int, n: int) -> dict[str, Any]:
    """Every other attribute after Zipf's law, so that their matching rates differ."""
    drawing = _mixed(n, m)
    engine = DexinEngine(ConceptGraph(0), plan=FIRST_FIT if who == NEAR else OPTIMAL)
    engine.add_columns([], list(clause_columns(drawing)), n)
    none = {name: getattr(drawing, name)[:0] for name in ("asked", "low", "high", "nodes")}
    events = drawn_clauses(replace(drawing, **none), EVENTS).batches[0].lowered()
    engine.match(events[0])
    choose = first_fit if who == NEAR else optimal
    costs, planning, seconds = [], [], []
    for event in events[1:]:
        failing = -np.sort(-engine.failing_rates(event))
        excludes = np.zeros(m, dtype=np.bool_)
        choose(failing, failing, excludes)
        began = time.thread_time()
        choose(failing, failing, excludes)
        planning.append(time.thread_time() - began)
        costs.append(cost_of(failing, failing, excludes))
        began = time.thread_time()
        engine.match(event)
        seconds.append(time.thread_time() - began)
    each = statistics.mean(seconds) - (statistics.mean(planning) if who == FOUND else 0.0)
    if who == FOUND:
        return {"y": round(each * 1e6, 2)}
    return {"y": round(statistics.mean(costs), 5), "also": {SIXTEEN: round(each * 1e6, 2)}}


def _mixed(n: int, m: int) -> Drawing:
    even, odd = (
        draw_dexin(subscriptions=n, events=EVENTS, attributes=m, skewed=skewed, seed=SEED) for skewed in (False, True)
    )
    is_odd = np.arange(m) % 2 == 1
    merged = {name: np.where(is_odd, getattr(odd, name), getattr(even, name)) for name in ("low", "high", "values")}
    return replace(even, **merged)
