"""DEXIN, Figure 10: from a hundred distinct values of an attribute to a million."""

from collections.abc import Sequence
from typing import Any

from tests.benchmarks.harness.contestants import measured
from tests.benchmarks.harness.experiment import Axes, Scale, Task
from tests.benchmarks.workload_dexin import CONTESTANTS, SIZE, draw_dexin

NAME = "dexin_cardinality"
TITLE = "DEXIN Figure 10: cardinality of values"
PAPER = "DEXIN, Figure 10"
PAPER_SHAPE = (
    "All six rise a little below a thousand distinct values and are level above; DEXIN is the fastest by a "
    "quarter or more."
)
AXES = Axes("distinct values", "microseconds an event", log_x=True, log_y=True)
SEED = 1

DEFAULT, FULL = (100, 10_000, 1_000_000), (100, 1_000, 10_000, 100_000, 1_000_000)
EVENTS = 1_000


def tasks(scale: Scale) -> Sequence[Task]:
    """Curve by curve."""
    points = FULL if scale == "full" else DEFAULT
    return [Task(who, x, {"who": who, "n": SIZE[scale], "x": x}) for who in CONTESTANTS for x in points]


def measure(*, who: str, n: int, x: float) -> dict[str, Any]:
    """`x` is η."""
    return measured(who, draw_dexin(subscriptions=n, events=EVENTS, seed=SEED, values=int(x)))
