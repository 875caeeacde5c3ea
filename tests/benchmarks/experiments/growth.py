"""How does the time of an event grow with the subscriptions, if an event matches as many of them at any size?"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tests.benchmarks.harness.experiment import Axes, Scale, Task
from tests.benchmarks.harness.fused_runs import event_batches, filled, microseconds, tree_of
from tests.benchmarks.workload_papers import STRING, Drawing, draw

NAME = "growth"
TITLE = "fused: growth with the number of matches held"
PAPER = ""
PAPER_SHAPE = ""
AXES = Axes("subscriptions", "microseconds an event", log_x=True, log_y=True)
SEED = 1

CONCEPTS, EQUALITIES = "concepts", "equalities"
SIZES: dict[Scale, tuple[int, ...]] = {
    "quick": (1_000, 10_000),
    "default": (10_000, 100_000, 1_000_000),
    "full": (10_000, 30_000, 100_000, 300_000, 1_000_000),
}
EVENTS = 12_000
HEIGHT = 12
DEPTH = 2
"""Of the concepts that 10,000 subscriptions ask for; more subscriptions ask for deeper ones."""
VALUES = 30
"""Of each attribute, for 10,000 subscriptions that ask for two of six; more have more values."""
BASE = 10_000


def tasks(scale: Scale) -> Sequence[Task]:
    """Both curves."""
    return [Task(kind, n, {"kind": kind, "n": n}) for kind in (CONCEPTS, EQUALITIES) for n in SIZES[scale]]


def measure(*, kind: str, n: int) -> dict[str, Any]:
    """The engine alone, batches of 1,000 different events."""
    drawing = (_concepts if kind == CONCEPTS else _equalities)(n, EVENTS)
    engine = filled(drawing, tree_of(drawing))
    y, matches = microseconds(engine, event_batches(drawing))
    return {"y": round(y, 3), "matches_an_event": round(matches, 2)}


def _concepts(n: int, e: int) -> Drawing:
    """W4, with concepts at such a depth, or at that or one more, at random, that each holds `(n / BASE) ** (-1 / 3)`
    times as often as at the base. The intervals for a scan are not those of these concepts: none is asked."""
    chance = np.random.default_rng([SEED, n])
    exact = DEPTH + float(np.log2(n / BASE)) / 3
    above = int(np.floor(exact))
    deeper = 2 - 2.0 ** (1 - (exact - above))  # the share of one more that gives 2 ** -exact in the mean
    depth = above + (chance.random((n, 3)) < deeper)
    nodes = (1 << depth) - 1 + (chance.random((n, 3)) * (1 << depth)).astype(np.int64)
    drawing = draw("W4", subscriptions=n, events=e, seed=SEED, height=HEIGHT)
    return replace(drawing, nodes=nodes.astype(np.int32))


def _equalities(n: int, e: int) -> Drawing:
    """Two of six strings asked for, all six in an event; the values of each grow with the root of `n`."""
    chance = np.random.default_rng([SEED, n])
    values = max(2, round(VALUES * (n / BASE) ** 0.5))
    asked = chance.random((n, 6)).argsort(axis=1) < 2
    wanted = chance.integers(0, values, (n, 6)).astype(np.int32)
    events = chance.integers(0, values, (e, 6)).astype(np.int32)
    nothing = np.zeros((0, 0), dtype=np.int32)
    return Drawing("growing", SEED, 0, (STRING,) * 6, values, asked, wanted, wanted, events, nothing, nothing)
