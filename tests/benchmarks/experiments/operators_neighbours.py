"""What it costs to weigh each chain against few neighbours, or to insert chains one by one, in place of all pairs."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from semantic.planner.linked_chains import LinkedChains, Node, order_chains
from semantic.planner.problem import Undecided
from semantic.planner.sub_order import sub_order
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
    nodes = [[Node(p, float(workload.holds[p]), 1.0) for p in chain] for chain in workload.chains]
    positions = _positions(way, nodes)
    asked, matched = [], 0
    for truth in workload.events(EVENTS):
        undecided = Undecided(workload.literals, workload.predicates)
        count = 0
        for predicate in sub_order(undecided, workload.estimates, positions):
            undecided.settle(predicate, bool(truth[predicate]))
            count += 1
        asked.append(count)
        matched += len(undecided.satisfied())
    return {"y": round(float(np.mean(asked)), 1), "matches": matched}


def _positions(way: str, nodes: list[list[Node]]) -> list[float]:
    if way == "as they came":
        return [float(number) for number in range(len(nodes))]
    if way == "one by one":
        linked = LinkedChains()
        for number, chain in enumerate(nodes):
            linked.add(number, chain)
        return [linked.position(number) for number in range(len(nodes))]
    found = [0.0] * len(nodes)
    most_pairs = 10**12 if way == "all pairs" else 0
    for place, number in enumerate(order_chains(nodes, most_pairs=most_pairs)):
        found[number] = float(place)
    return found
