"""DEXIN, Figures 2, 3 and 14: over the number of subscriptions; time of an event, its deviation, memory."""

from collections.abc import Sequence
from typing import Any

from tests.benchmarks.harness.contestants import measured
from tests.benchmarks.harness.experiment import Axes, Scale, Task
from tests.benchmarks.workload_dexin import CONTESTANTS, draw_dexin

NAME = "dexin_subscriptions"
TITLE = "DEXIN Figures 2, 3 and 14: subscriptions"
PAPER = "DEXIN, Figures 2, 3 and 14"
PAPER_SHAPE = (
    "Figure 2: all grow with the subscriptions, DEXIN slowest of all and always fastest, at 20 % of the time of "
    "TAMA, 38 % of REIN, 68 % of BE-Tree. Figure 3: its deviation among events is nearly level and a quarter of "
    "the next best. Figure 14: memory grows linearly; REIN needs least, DEXIN a little more."
)
AXES = Axes("subscriptions", "microseconds an event; MiB", log_x=True, log_y=True)
SEED = 1

OTHERS = ("one by one (OPS)", "equality", "quarantine", "matching_tree", "naive")
TWO, THREE, FOURTEEN = (
    "Figure 2: mean time of an event",
    "Figure 3: standard deviation among events",
    "Figure 14: memory, MiB",
)
SIZES: dict[Scale, tuple[int, ...]] = {
    "quick": (1_000, 3_000),
    "default": (25_000, 50_000, 100_000, 175_000),
    "full": (250_000, 500_000, 750_000, 1_000_000, 1_250_000, 1_500_000, 1_750_000),
}
"""By default a tenth of the paper's."""
LARGEST = {"counting": 50_000, "equality": 25_000, "quarantine": 25_000, "matching_tree": 0, "naive": 0}
"""Where slow curves end by default; two are tried in a full run only."""
EVENTS = 1_000


def tasks(scale: Scale) -> Sequence[Task]:
    """Curve by curve, small sizes first."""
    return [
        Task(who, n, {"who": who, "n": n}, TWO)
        for who in (*CONTESTANTS, *OTHERS)
        for n in SIZES[scale]
        if scale != "default" or n <= LARGEST.get(who, n)
    ]


def measure(*, who: str, n: int) -> dict[str, Any]:
    """The default workload with `n` subscriptions."""
    found = measured(who, draw_dexin(subscriptions=n, events=EVENTS, seed=SEED))
    found["also"] = {FOURTEEN: found["memory_mib"]}
    if "deviation_us" in found:
        found["also"][THREE] = found["deviation_us"]
    return found
