"""DEXIN, Figures 4 and 5: from 2 attributes to 22, mean and deviation of the time of an event."""

from collections.abc import Sequence
from typing import Any

from tests.benchmarks.harness.contestants import measured
from tests.benchmarks.harness.experiment import Axes, Scale, Task
from tests.benchmarks.workload_dexin import CONTESTANTS, SIZE, draw_dexin

NAME = "dexin_attributes"
TITLE = "DEXIN Figures 4 and 5: attributes"
PAPER = "DEXIN, Figures 4 and 5"
PAPER_SHAPE = (
    "Figure 4: DEXIN rises slightly up to 6 attributes and is level from there to 22, since the last stages see "
    "few rows; TAMA, BE-Tree, OpIndex and REIN keep rising, H-Tree falls up to 6 and rises after. Figure 5: the "
    "deviation among events falls slowly for DEXIN and grows for all others."
)
AXES = Axes("attributes", "microseconds an event", log_y=True)
SEED = 1

FOUR, FIVE = "Figure 4: mean", "Figure 5: standard deviation among events"
DEFAULT, FULL = (2, 6, 10, 22), (2, 6, 10, 14, 18, 22)
EVENTS = 1_000


def tasks(scale: Scale) -> Sequence[Task]:
    """Curve by curve."""
    points = FULL if scale == "full" else DEFAULT
    return [Task(who, x, {"who": who, "n": SIZE[scale], "x": x}, FOUR) for who in CONTESTANTS for x in points]


def measure(*, who: str, n: int, x: float) -> dict[str, Any]:
    """`x` is M."""
    found = measured(who, draw_dexin(subscriptions=n, events=EVENTS, seed=SEED, attributes=int(x)))
    if "deviation_us" in found:
        found["also"] = {FIVE: found["deviation_us"]}
    return found
