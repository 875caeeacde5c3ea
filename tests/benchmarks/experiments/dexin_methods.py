"""DEXIN, Figure 17: the engine with both methods, with excluding alone, and with including alone."""

from collections.abc import Sequence
from typing import Any

from kindcast.index.published.dexin import EXCLUSIVE, FIRST_FIT, INCLUSIVE, DexinEngine
from kindcast.index.registry import ENGINES
from tests.benchmarks.harness.contestants import measured
from tests.benchmarks.harness.experiment import Axes, Scale, Task
from tests.benchmarks.workload_dexin import SIZE, draw_dexin

NAME = "dexin_methods"
TITLE = "DEXIN Figure 17: one method or both"
PAPER = "DEXIN, Figure 17"
PAPER_SHAPE = (
    "The two methods are opposites: excluding alone gets faster as more subscriptions match, including alone "
    "slower, and DEXIN stays below both and level."
)
AXES = Axes("share of the subscriptions that match", "microseconds an event", log_x=True, log_y=True)
SEED = 1

PLANS = {"dexin": FIRST_FIT, "excluding alone": EXCLUSIVE, "including alone": INCLUSIVE}
RATES = (0.001, 0.01, 0.05, 0.2)
EVENTS = 1_000


def tasks(scale: Scale) -> Sequence[Task]:
    """Curve by curve."""
    return [Task(plan, rate, {"plan": plan, "rate": rate, "n": SIZE[scale]}) for plan in PLANS for rate in RATES]


def measure(*, plan: str, rate: float, n: int) -> dict[str, Any]:
    """A matching rate, as in Figure 12."""
    ENGINES["dexin"] = lambda graph: DexinEngine(graph, plan=PLANS[plan])
    return measured("dexin", draw_dexin(subscriptions=n, events=EVENTS, rate=rate, seed=SEED))
