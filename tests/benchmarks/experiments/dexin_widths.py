"""DEXIN, Figure 6: one width for all ranges, from a tenth of the values to nine tenths."""

from collections.abc import Sequence
from typing import Any

from tests.benchmarks.harness.contestants import measured
from tests.benchmarks.harness.experiment import Axes, Scale, Task
from tests.benchmarks.workload_dexin import CONTESTANTS, SIZE, draw_dexin

NAME = "dexin_widths"
TITLE = "DEXIN Figure 6: widths of ranges"
PAPER = "DEXIN, Figure 6"
PAPER_SHAPE = (
    "DEXIN stays nearly level from 0.1 to 0.9: narrow ranges leave little to include, wide ones little to "
    "exclude. TAMA starts low and climbs fast, REIN falls with the width, BE-Tree and OpIndex rise slowly; H-Tree"
    " is best up to 0.3 and then grows exponentially."
)
AXES = Axes("width of ranges", "microseconds an event", log_y=True)
SEED = 1

DEFAULT, FULL = (0.1, 0.3, 0.6, 0.9), (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
EVENTS = 1_000


def tasks(scale: Scale) -> Sequence[Task]:
    """Curve by curve."""
    points = FULL if scale == "full" else DEFAULT
    return [Task(who, x, {"who": who, "n": SIZE[scale], "x": x}) for who in CONTESTANTS for x in points]


def measure(*, who: str, n: int, x: float) -> dict[str, Any]:
    """`x` is the width of all ranges."""
    return measured(who, draw_dexin(subscriptions=n, events=EVENTS, seed=SEED, width=x))
