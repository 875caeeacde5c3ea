"""Liu et al. 2007, Figures 4 to 8: what each strategy spends on an event, beside what is needed at least.

With equal costs these are predicates asked, as in the paper; with unequal ones (section 4.3), in costs of the mean one.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from tests.benchmarks.harness.experiment import Axes, Scale, Task
from tests.benchmarks.operator_workload import Selectivities, Setting, Workload

NAME = "operators_evaluations"
TITLE = "Overlapping subscriptions: predicates asked per event, or their costs"
PAPER = "Liu et al. 2007, Figures 4 to 8, Table 1; unequal costs: section 4.3"
PAPER_SHAPE = (
    "Sub-Order asks less than Sequential, and that far less than naive, on every figure; naive grows with the "
    "subscriptions, the others much slower; the more skewed the popularity, the less they ask."
)
AXES = Axes("see the panel", "predicates asked an event (unequal costs: in mean costs)", log_x=True, log_y=True)
SEED = 1

STRATEGIES = ("naive", "sequential", "sub_order", "greedy")
LEAST = ("clairvoyant bound", "any strategy")
SELECTIVITIES: tuple[Selectivities, ...] = ("equal", "mixed", "calibrated")
EVENTS: dict[Scale, int] = {"quick": 2, "default": 5, "full": 50}
ENOUGH = 80_000
"""Events times subscriptions of a point at least: small ones vary more."""
Point = tuple[str, float, Setting]


def _figures(scale: Scale, selectivities: Selectivities) -> Iterator[Point]:
    """(panel, x, setting) of every figure. By default each figure of the paper, with the selectivities that tell most;
    `full`: all of Table 1 with all selectivities."""
    own = Setting(selectivities=selectivities)
    if scale == "quick":
        yield f"Figure 6, {selectivities}: predicates", 3_000, replace(own, subscriptions=2_000, predicates=3_000)
        return
    fine = scale == "full"
    if fine or selectivities == "calibrated":
        for n in (2_000, 5_000, 10_000, 20_000, 30_000) if fine else (2_000, 30_000):
            yield f"Figure 6, {selectivities}: predicates", n, replace(own, predicates=n)
    if selectivities == "calibrated" and not fine:
        return
    for n in (2_000, 10_000, 20_000, 40_000, 80_000) if fine else (2_000, 80_000):
        many = replace(own, subscriptions=n, predicates=40_000)
        if fine or selectivities == "equal":
            yield f"Figure 4, {selectivities}: subscriptions, uniform", n, replace(many, zipf=None)
        yield f"Figure 5, {selectivities}: subscriptions, Zipf 1", n, many
    few = replace(own, predicates=5_000)
    for n in (5, 7, 9, 11) if fine else (5, 11) if selectivities == "equal" else ():
        yield f"Figure 7, {selectivities}: longest subscription", n, replace(few, longest=n)
    for alpha in (0.8, 1.0, 1.2):
        yield f"Figure 8, {selectivities}: exponent of Zipf", alpha, replace(few, zipf=alpha)


def _unequal(scale: Scale) -> Iterator[Point]:
    """Unequal costs, with mixed selectivities: what neither count nor chance alone orders."""
    own = Setting(selectivities="mixed", costs="unequal")
    if scale == "quick":
        yield "Figure 6, unequal costs: predicates", 3_000, replace(own, subscriptions=2_000, predicates=3_000)
        return
    for n in (2_000, 10_000, 20_000, 40_000, 80_000) if scale == "full" else (2_000, 80_000):
        yield "Figure 5, unequal costs: subscriptions, Zipf 1", n, replace(own, subscriptions=n, predicates=40_000)
    for alpha in (0.8, 1.0, 1.2):
        yield "Figure 8, unequal costs: exponent of Zipf", alpha, replace(own, predicates=5_000, zipf=alpha)


def tasks(scale: Scale) -> Sequence[Task]:
    """Figure by figure."""
    found = []
    points = [point for selectivities in SELECTIVITIES for point in _figures(scale, selectivities)]
    for panel, x, setting in (*points, *_unequal(scale)):
        events = max(EVENTS[scale], ENOUGH // setting.subscriptions)
        for who in (*STRATEGIES, *LEAST):
            if who != "any strategy" or setting.selectivities == setting.costs == "equal":
                found.append(Task(who, x, {"who": who, "events": events, **asdict(setting)}, panel))
    return found


def measure(*, who: str, events: int, **setting: Any) -> dict[str, Any]:
    """The mean over events. All strategies see the same ones."""
    workload = Workload(Setting(**setting))
    spent, asked, matched = [], [], 0
    for truth in workload.events(events):
        if who in STRATEGIES:
            count, cost, matches = workload.asked(who, truth)
            asked.append(count)
        else:
            needed, apart, matches = workload.bound(truth)
            cost = needed + apart if who == "clairvoyant bound" else workload.any_strategy(truth)
        spent.append(cost)
        matched += matches
    found = {"y": round(float(np.mean(spent)), 1), "matches": matched, "predicates": workload.predicates}
    return found | ({"asked": round(float(np.mean(asked)), 1)} if asked else {})
