"""DEXIN, Figure 11: from a tenth of point constraints to nine tenths."""

from collections.abc import Sequence
from typing import Any

from tests.benchmarks.harness.contestants import measured
from tests.benchmarks.harness.experiment import Axes, Scale, Task
from tests.benchmarks.workload_dexin import CONTESTANTS, SIZE, draw_dexin

NAME = "dexin_points"
TITLE = "DEXIN Figure 11: share of points"
PAPER = "DEXIN, Figure 11"
PAPER_SHAPE = (
    "REIN and DEXIN do not care whether a constraint is a point; TAMA, H-Tree, BE-Tree and OpIndex get faster "
    "with more points, and some of them pass DEXIN above 60 %."
)
AXES = Axes("share of point constraints", "microseconds an event", log_y=True)
SEED = 1

DEFAULT, FULL = (0.1, 0.5, 0.9), (0.1, 0.3, 0.5, 0.7, 0.9)
EVENTS = 1_000


def tasks(scale: Scale) -> Sequence[Task]:
    """Curve by curve."""
    points = FULL if scale == "full" else DEFAULT
    return [Task(who, x, {"who": who, "n": SIZE[scale], "x": x}) for who in CONTESTANTS for x in points]


def measure(*, who: str, n: int, x: float) -> dict[str, Any]:
    """`x` is λ."""
    return measured(who, draw_dexin(subscriptions=n, events=EVENTS, seed=SEED, points=x))
