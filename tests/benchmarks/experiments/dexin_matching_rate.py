"""DEXIN, Figure 12: subscriptions made around events, so that a chosen share of them matches each."""

from collections.abc import Sequence
from typing import Any

from tests.benchmarks.harness.contestants import measured
from tests.benchmarks.harness.experiment import Axes, Scale, Task
from tests.benchmarks.workload_dexin import CONTESTANTS, SIZE, draw_dexin

NAME = "dexin_matching_rate"
TITLE = "DEXIN Figure 12: matching rate"
PAPER = "DEXIN, Figure 12"
PAPER_SHAPE = (
    "From 0.1 % to 20 % of the subscriptions matching, TAMA, H-Tree, BE-Tree and OpIndex rise, REIN falls, DEXIN "
    "stays level and is the fastest, 42 % ahead of BE-Tree on average."
)
AXES = Axes("share of the subscriptions that match", "microseconds an event", log_x=True, log_y=True)
SEED = 1

DEFAULT, FULL = (0.001, 0.02, 0.2), (0.001, 0.005, 0.01, 0.05, 0.1, 0.2)
EVENTS = 1_000


def tasks(scale: Scale) -> Sequence[Task]:
    """Curve by curve."""
    points = FULL if scale == "full" else DEFAULT
    return [Task(who, x, {"who": who, "n": SIZE[scale], "x": x}) for who in CONTESTANTS for x in points]


def measure(*, who: str, n: int, x: float) -> dict[str, Any]:
    """`x` is ξ."""
    return measured(who, draw_dexin(subscriptions=n, events=EVENTS, seed=SEED, rate=x))
