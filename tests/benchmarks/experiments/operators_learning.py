"""What events cost while selectivities and costs are learned, beside what they cost where both are known."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from kindcast.semantic.planner.learning import Experience
from kindcast.semantic.planner.problem import Estimates, Undecided
from kindcast.semantic.planner.strategies import greedy
from tests.benchmarks.harness.experiment import Axes, Scale, Task
from tests.benchmarks.operator_workload import Setting, Workload

NAME = "operators_learning"
TITLE = "Learned statistics: seconds of operators an event, over the events seen"
PAPER = "Liu et al. 2007 assume selectivities that are known or learned online"
PAPER_SHAPE = ""
AXES = Axes("events seen", "simulated operator seconds an event", log_x=True)
SEED = 1

SIZES: dict[Scale, int] = {"quick": 300, "default": 2_000, "full": 5_000}
SEEN = (10, 30, 100, 400, 800)
OPERATORS = 20
"""Predicates are calls of so many operators; calls of one are alike."""
PRIOR = (0.5, 0.001)
"""What every operator declares: an even chance, a millisecond."""
WINDOW = 10
"""Events whose mean is a point."""


def tasks(scale: Scale) -> Sequence[Task]:
    """Curve by curve."""
    return [
        Task(who, seen, {"who": who, "seen": seen, "n": SIZES[scale]})
        for who in ("declared", "learned", "known")
        for seen in (SEEN[:3] if scale == "quick" else SEEN if scale == "full" else SEEN[:4])
    ]


def measure(*, who: str, seen: int, n: int) -> dict[str, Any]:
    """The mean of the last `WINDOW` of so many events; every call takes its true cost."""
    workload = Workload(Setting(subscriptions=n, predicates=n, selectivities="mixed"))
    chance = np.random.default_rng([SEED, 2])
    operator = chance.integers(0, OPERATORS, workload.predicates)
    cost = np.exp(chance.normal(np.log(0.003), 1.0, OPERATORS))[operator] * chance.uniform(
        0.5, 2.0, workload.predicates
    )
    known = Estimates(workload.holds, cost)
    experience = Experience()
    believed = Estimates(np.full(workload.predicates, PRIOR[0]), np.full(workload.predicates, PRIOR[1]))
    names = [(f"operator {operator[p]}", f"predicate {p}") for p in range(workload.predicates)]
    spent: list[float] = []
    for truth in workload.events(seen):
        undecided = Undecided(workload.literals, workload.predicates)
        total = 0.0
        for predicate in greedy(undecided, known if who == "known" else believed):
            held = bool(truth[predicate])
            undecided.settle(predicate, held)
            total += float(cost[predicate])
            if who == "learned":
                experience.note(*names[predicate], held, float(cost[predicate]))
        spent.append(total)
        if who == "learned":
            for predicate in range(workload.predicates):
                expected = experience.expected(*names[predicate], *PRIOR)
                believed.holds[predicate], believed.cost[predicate] = expected
    return {"y": round(float(np.mean(spent[-WINDOW:])), 4), "first": round(spent[0], 4)}
