"""What planning itself costs: milliseconds an event over live candidates, and of adding a subscription."""

import statistics
import time
from collections.abc import Sequence
from typing import Any

from kindcast.semantic.planner.problem import Literals, Undecided
from kindcast.semantic.planner.strategies import SubOrder
from tests.benchmarks.harness.experiment import Axes, Scale, Task
from tests.benchmarks.operator_workload import Setting, Workload

NAME = "operators_planning"
TITLE = "Planning: milliseconds an event, and of adding one subscription"
PAPER = "targets: under 20 ms for 10,000 live candidates, under 10 % of operators that take 1 ms; adding is incremental"
PAPER_SHAPE = ""
AXES = Axes("live candidates, or subscriptions", "milliseconds", log_x=True, log_y=True)
SEED = 1

SIZES: dict[Scale, tuple[int, ...]] = {
    "quick": (300, 1_000),
    "default": (1_000, 10_000, 80_000),
    "full": (1_000, 3_000, 10_000, 30_000, 80_000),
}
EVENTS = 7
ADDED = 1_000
"""Chains that come one by one at the end, each placed when the next event is planned."""
INCREMENTAL, ANEW = "incremental", "order of all anew"


def tasks(scale: Scale) -> Sequence[Task]:
    """Curve by curve."""
    events = [
        Task(who, n, {"who": who, "n": n}, "an event")
        for who in ("greedy", "sub_order", "sequential", "naive")
        for n in SIZES[scale]
    ]
    return events + [
        Task(who, n, {"who": who, "n": n}, "adding one subscription")
        for who in (INCREMENTAL, ANEW)
        for n in SIZES[scale]
    ]


def measure(*, who: str, n: int) -> dict[str, Any]:
    """The median of events (the first, which compiles, is left out); the mean of additions."""
    workload = Workload(Setting(subscriptions=n, predicates=max(n * 3 // 2, 3_000)))
    if who in (INCREMENTAL, ANEW):
        return _adding(who, workload)
    workload.strategy(who)
    spent, asked = [], []
    for truth in workload.events(EVENTS + 1):
        outcomes = truth.tolist()
        began = time.perf_counter()
        undecided = Undecided(workload.literals, workload.predicates)
        count = 0
        for predicate in workload.plan(who, undecided):
            undecided.settle(predicate, outcomes[predicate])
            count += 1
        spent.append(time.perf_counter() - began)
        asked.append(count)
    seconds = statistics.median(spent[1:])
    calls = statistics.median(asked[1:])
    return {
        "y": round(1e3 * seconds, 3),
        "calls": calls,
        "percent_of_calls_of_1_ms": round(100 * seconds / (calls * 1e-3), 2),
    }


def _adding(who: str, workload: Workload) -> dict[str, Any]:
    strategy = workload.filled(SubOrder(run=lambda make: None))
    assert isinstance(strategy, SubOrder)
    strategy.order_now()
    if who == ANEW:
        began = time.perf_counter()
        strategy.order_now()
        return {"y": round(1e3 * (time.perf_counter() - began), 3)}
    nothing = Undecided(Literals.of([]), 0), workload.estimates, ()
    last = range(len(workload.chains) - min(ADDED, len(workload.chains) // 2), len(workload.chains))
    for number in last:
        strategy.remove(number)
    strategy.order_now()
    strategy.plan(*nothing)
    began = time.perf_counter()
    for number in last:
        strategy.add(number, workload.chains[number], [True] * len(workload.chains[number]))
        strategy.plan(*nothing)
    return {"y": round(1e3 * (time.perf_counter() - began) / len(last), 4)}
