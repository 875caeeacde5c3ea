"""Le Subscribe, Figures 9 to 11: three optional strings (only `=`) and three optional numbers, half of them there."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.benchmarks.harness.drawn_clauses import drawn_clauses
from tests.benchmarks.harness.engine_runs import BATCH, run_engine
from tests.benchmarks.harness.experiment import Axes, Scale, Task
from tests.benchmarks.workload_papers import NUMBER, STRING, Drawing

NAME = "le_subscribe"
TITLE = "Le Subscribe Figures 9, 10 and 11: matching time"
PAPER = "Le Subscribe, Figures 9, 10 and 11"
PAPER_SHAPE = (
    "Figure 9, half of the predicates on numbers equalities: nonequality quarantining is fastest, equality-preferred "
    "close, fair-predicate (counting) far above, all growing with the subscriptions. Figure 10, 800,000 subscriptions: "
    "the fewer inequalities, the faster; without any, quarantining and equality-preferred are the same. Figure 11, "
    "equalities alone: a first threshold, then slow, logarithmic growth."
)
AXES = Axes("subscriptions (Figure 10: share of equalities on numbers)", "microseconds an event", log_y=True)
SEED = 1

ENGINES = ("fused", "quarantine", "equality", "counting", "matching_tree", "dexin", "ctps", "naive")
NINE, TEN, ELEVEN = (
    "Figure 9: half equalities",
    "Figure 10: over the share of equalities",
    "Figure 11: equalities alone",
)
SIZES: dict[Scale, tuple[int, ...]] = {
    "quick": (1_000, 3_000),
    "default": (10_000, 30_000, 100_000),
    "full": (10_000, 100_000, 200_000, 400_000, 800_000),
}
LARGEST = {"naive": 10_000, "matching_tree": 30_000}
"""Where slow curves end by default."""
SHARES: dict[Scale, tuple[float, ...]] = {
    "quick": (0.0, 1.0),
    "default": (0.0, 0.5, 1.0),
    "full": (0.0, 0.25, 0.5, 0.75, 1.0),
}
EVENTS = 1_000


def tasks(scale: Scale) -> Sequence[Task]:
    """Figure by figure, curve by curve."""
    found = []
    for who in ENGINES:
        sizes = [n for n in SIZES[scale] if scale != "default" or n <= LARGEST.get(who, n)]
        found += [Task(who, n, {"who": who, "n": n, "equalities": 0.5}, NINE) for n in sizes]
        if sizes[-1] == SIZES[scale][-1]:
            found += [Task(who, p, {"who": who, "n": sizes[-1], "equalities": p}, TEN) for p in reversed(SHARES[scale])]
        found += [Task(who, n, {"who": who, "n": n, "equalities": 1.0}, ELEVEN) for n in sizes]
    return found


def measure(*, who: str, n: int, equalities: float) -> dict[str, Any]:
    """`add_seconds` is what adding all of them took."""
    drawn = drawn_clauses(drawing(n, EVENTS, equalities, SEED), BATCH)
    return run_engine(who, drawn.graph, drawn.clauses, drawn.batches)


def drawing(n: int, e: int, equalities: float, seed: int) -> Drawing:
    """Six optional attributes: strings of 200 values, numbers of 5,000; a predicate on a number is `=` with the chance
    `equalities`, else `<=` or `>=`. A subscription without any attribute is drawn again."""
    chance = np.random.default_rng([seed, n, int(1000 * equalities)])
    sizes = np.array([200] * 3 + [5_000] * 3)
    asked = chance.random((n, 6)) < 0.5
    while not asked.any(axis=1).all():
        empty = ~asked.any(axis=1)
        asked[empty] = chance.random((int(empty.sum()), 6)) < 0.5
    bound = chance.integers(0, sizes, (n, 6))
    kind, side = chance.random((n, 6)) >= equalities, chance.random((n, 6)) < 0.5
    kind[:, :3] = False
    low = np.where(kind & side, 0, bound)
    high = np.where(kind & ~side, sizes - 1, bound)
    values = np.where(chance.random((e, 6)) < 0.5, chance.integers(0, sizes, (e, 6)), -1)
    columns = [each.astype(np.int32) for each in (low, high, values)]
    nothing = np.zeros((0, 0), dtype=np.int32)
    kinds = (STRING,) * 3 + (NUMBER,) * 3
    return Drawing("sparse", seed, 0, kinds, 5_000, asked, columns[0], columns[1], columns[2], nothing, nothing)
