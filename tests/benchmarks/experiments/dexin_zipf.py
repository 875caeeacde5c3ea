"""DEXIN, Figures 7, 8 and 9: Figures 2, 4 and 6 again, with lower ends and events after Zipf's law."""

from collections.abc import Sequence
from typing import Any

from tests.benchmarks.harness.contestants import measured
from tests.benchmarks.harness.experiment import Axes, Scale, Task
from tests.benchmarks.workload_dexin import SIZE, draw_dexin

NAME = "dexin_zipf"
TITLE = "DEXIN Figures 7, 8 and 9: Zipf's law"
PAPER = "DEXIN, Figures 7, 8 and 9"
PAPER_SHAPE = (
    "All six are slower than under the uniform law, over subscriptions, attributes and widths alike, since the "
    "rows crowd in a few places of each index; DEXIN loses least."
)
AXES = Axes("subscriptions (7), attributes (8), width of ranges (9)", "microseconds an event", log_y=True)
SEED = 1

CONTESTANTS = ("fused", "dexin", "ctps", "scan (numpy)", "REIN", "TAMA, refined")
SEVEN, EIGHT, NINE = "Figure 7: subscriptions", "Figure 8: attributes", "Figure 9: width of ranges"
SIZES: dict[Scale, tuple[int, ...]] = {
    "quick": (1_000, 3_000),
    "default": (10_000, 20_000, 40_000),
    "full": (250_000, 500_000, 1_000_000, 1_750_000),
}
ATTRIBUTES, WIDTHS = (2, 10, 22), (0.1, 0.5, 0.9)
EVENTS = 1_000


def tasks(scale: Scale) -> Sequence[Task]:
    """Curve by curve."""
    found = []
    for who in CONTESTANTS:
        usual = {"who": who, "n": SIZE[scale]}
        found += [Task(who, n, {"who": who, "n": n}, SEVEN) for n in SIZES[scale]]
        found += [Task(who, m, {**usual, "attributes": m}, EIGHT) for m in ATTRIBUTES]
        found += [Task(who, width, {**usual, "width": width}, NINE) for width in WIDTHS]
    return found


def measure(*, who: str, n: int, attributes: int = 10, width: float | None = None) -> dict[str, Any]:
    """The skewed workload."""
    drawing = draw_dexin(subscriptions=n, events=EVENTS, attributes=attributes, width=width, skewed=True, seed=SEED)
    return measured(who, drawing)
