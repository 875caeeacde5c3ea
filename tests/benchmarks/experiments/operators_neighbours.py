"""What it costs to weigh each chain against few neighbours, or to insert chains one by one, in place of all pairs."""

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np

from kindcast.semantic.planner.problem import Undecided
from kindcast.semantic.planner.strategies import LinkedChains, Node, SubOrder, sub_order
from tests.benchmarks.harness.experiment import Axes, Scale, Task
from tests.benchmarks.operator_workload import Setting, Workload

NAME = "operators_neighbours"
TITLE = "Sub-Order: all pairs, near pairs, one by one (5,000 subscriptions)"
PAPER = "Liu et al. 2007, section 4.2.5; the paper weighs all pairs"
PAPER_SHAPE = ""
AXES = Axes("popularity and selectivities", "predicates asked an event", bars=True)
SEED = 1

SIZES: dict[Scale, int] = {"quick": 500, "default": 5_000, "full": 5_000}
WAYS = ("all pairs", "near pairs", "one by one", "as they came")
EVENTS = 40


def tasks(scale: Scale) -> Sequence[Task]:
    """Popularity by popularity."""
    n = SIZES[scale]
    found = []
    for kind in ("equal", "mixed"):
        for zipf in (None, 0.8, 1.0, 1.2) if scale == "full" else (None, 1.0):
            name = f"{'uniform' if zipf is None else f'Zipf {zipf}'}, {kind}"
            found += [Task(way, name, {"way": way, "zipf": zipf, "kind": kind, "n": n}) for way in WAYS]
    return found


def measure(*, way: str, zipf: float | None, kind: Any, n: int) -> dict[str, Any]:
    """The mean over the same events."""
    workload = Workload(Setting(subscriptions=n, predicates=n, zipf=zipf, selectivities=kind))
    asked, matched = [], 0
    for truth in workload.events(EVENTS):
        undecided = Undecided(workload.literals, workload.predicates)
        plan = _plan(way, workload)(undecided)
        count, _, matches = workload.spent(plan, undecided, truth)
        asked.append(count)
        matched += matches
    return {"y": round(float(np.mean(asked)), 1), "matches": matched}


@cache
def _plan(way: str, workload: Workload) -> Callable[[Undecided], Iterator[int]]:
    """The strategy of the product with its order of all, or one that walks other orders."""
    if way in ("all pairs", "near pairs"):
        strategy = SubOrder(most_pairs=10**12 if way == "all pairs" else 0)
        workload.filled(strategy)
        strategy.order_now()
        return lambda undecided: strategy.plan(undecided, workload.estimates, range(len(workload.chains)))
    positions = np.arange(len(workload.chains), dtype=np.float64)
    if way == "one by one":
        linked = LinkedChains()
        for number, chain in enumerate(workload.chains):
            linked.add(number, [Node(2 * p, float(workload.holds[p]), float(workload.cost[p])) for p in chain])
        positions = linked.positions(range(len(workload.chains)))
    return lambda undecided: sub_order(undecided, workload.estimates, positions)
