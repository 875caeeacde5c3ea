"""How many times faster than a full scan is `fused`, through `match_table`? The targets of the project's own."""

import multiprocessing
from collections.abc import Sequence
from typing import Any

from tests.benchmarks.full_scan_ratios import ratio
from tests.benchmarks.harness.experiment import Axes, Scale, Task

NAME = "full_scan"
TITLE = "fused against the full scan"
PAPER = ""
PAPER_SHAPE = ""
AXES = Axes("subscriptions", "times faster than the full scan", log_x=True)
SEED = 1

ASKED = {
    ("W1", 100_000): 40,
    ("W1", 1_000_000): 110,
    ("W2", 100_000): 50,
    ("W2", 800_000): 110,
    ("W3", 100_000): 60,
    ("W3", 1_000_000): 200,
}
"""What `fused` is meant to reach, everything in."""
SEEDS = (1, 2, 3)
QUICK = 3_000
PROCESSES = 3
"""Of which the best counts, in a full run: a process may lie badly in memory from its first to its last event."""


def tasks(scale: Scale) -> Sequence[Task]:
    """Three drawings of 10⁵, and of the largest one (in a full run three)."""
    if scale == "quick":
        return [Task(f"{work}, seed 1", QUICK, _arguments(work, QUICK, 1, scale)) for work in ("W1", "W2", "W3")]
    return [
        Task(f"{work}, seed {seed}", n, _arguments(work, n, seed, scale))
        for work in ("W1", "W2", "W3")
        for seed in SEEDS
        for named, n in ASKED
        if named == work and (seed == SEEDS[0] or n == 100_000 or scale == "full")
    ]


def measure(*, work: str, n: int, seed: int, processes: int) -> dict[str, Any]:
    """Thread CPU time, microseconds an event: `match_table` of 11 different batches of 1,000 (mean), the scan of 20
    events before each (median); `match` of one dict at a time; `match_batch` of 1,000 dicts, results unread. Ids are
    compared before."""
    if processes == 1:
        return _ratio(work, n, seed)
    found = []
    for _ in range(processes):
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            found.append(pool.apply(_ratio, (work, n, seed)))
    best = max(found, key=lambda one: float(one["y"]))
    return {**best, "all_processes": [one["y"] for one in found]}


def _ratio(work: str, n: int, seed: int) -> dict[str, Any]:
    result = ratio(work, subscriptions=n, engine="fused", seed=seed)
    names = ("scan_us", "match_table_us", "match_us", "match_batch_us", "matches_an_event", "add_seconds")
    asked = ASKED.get((work, n))
    found = {"y": result["ratio"], "asked": asked, **{name: result[name] for name in names}}
    return found | {"match_adds_us": round(result["match_us"] - result["match_table_us"], 1)}


def _arguments(work: str, n: int, seed: int, scale: Scale) -> dict[str, Any]:
    return {"work": work, "n": n, "seed": seed, "processes": PROCESSES if scale == "full" else 1}
