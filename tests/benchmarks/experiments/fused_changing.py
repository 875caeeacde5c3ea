"""How long does `match` take while subscriptions come and go? One thread does both, as the writer of the server does.

Quiet: events alone, one after the other. Changing: between them, so many times a second, one subscription is added and
another removed; merges run in their thread. Every call is measured by the clock on the wall, so that what others do to
the machine is in both.
"""

import gc
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from kindcast import Matcher
from tests.benchmarks.harness.experiment import Axes, Scale, Task
from tests.benchmarks.workload_papers import Drawing, draw

NAME = "fused_changing"
TITLE = "One event while 1,000 subscriptions a second are added and 1,000 removed"
PAPER = ""
PAPER_SHAPE = ""
AXES = Axes("subscriptions", "99th percentile of match, microseconds", log_x=True, log_y=True)
SEED = 1

SIZES: dict[Scale, tuple[int, ...]] = {
    "quick": (1_000,),
    "default": (10_000, 100_000),
    "full": (10_000, 100_000, 1_000_000),
}
SECONDS: dict[Scale, float] = {"quick": 1.0, "default": 5.0, "full": 60.0}
RATE = 1_000
EVENTS = 2_000
WORKLOADS = ("W1", "W2", "W3")


def tasks(scale: Scale) -> Sequence[Task]:
    """Quiet and changing are measured one after the other on the same matcher; each is a series of its own."""
    return [
        Task(series, n, {"workload": name, "n": n, "changing": series == "changing", "seconds": SECONDS[scale]}, name)
        for name in WORKLOADS
        for series in ("quiet", "changing")
        for n in SIZES[scale]
    ]


def measure(*, workload: str, n: int, changing: bool, seconds: float) -> dict[str, Any]:
    """Percentiles of `match`, `add` and `remove` in microseconds, after a second to warm up."""
    more = int(RATE * (seconds + 1) * 1.1)
    drawing = draw(workload, subscriptions=n + more, events=EVENTS, seed=SEED)
    matcher = Matcher(drawing.vocabulary())
    matcher.add_many((f"s{number}", drawing.tree(number)) for number in range(n))
    waiting = [(f"s{number}", drawing.tree(number)) for number in range(n, n + more)]
    events = _events(drawing)
    gc.collect()
    gc.freeze()
    rate = RATE if changing else 0
    live = list(matcher)
    _run(matcher, events, waiting, live, 1.0, rate)
    matched, added, removed = _run(matcher, events, waiting, live, seconds, rate)
    result: dict[str, Any] = {"y": _microseconds(matched, 99), "match_median": _microseconds(matched, 50)}
    result |= {"match_99.9": _microseconds(matched, 99.9), "calls": len(matched)}
    if changing:
        result |= {"add_median": _microseconds(added, 50), "add_99": _microseconds(added, 99)}
        result |= {"remove_median": _microseconds(removed, 50), "remove_99": _microseconds(removed, 99)}
    return {**result, "seconds_an_event": float(np.median(matched))}


def _run(
    matcher: Matcher,
    events: list[dict[str, Any]],
    waiting: list[tuple[str, Any]],
    live: list[str],
    seconds: float,
    rate: int,
) -> tuple[list[float], list[float], list[float]]:
    """Seconds of each call of match, add and remove."""
    matched: list[float] = []
    added: list[float] = []
    removed: list[float] = []
    clock = time.perf_counter
    chance = np.random.default_rng(SEED)
    due = clock()
    end = due + seconds
    while clock() < end:
        if rate and clock() >= due and waiting:
            due += 1 / rate
            name, tree = waiting.pop()
            start = clock()
            matcher.add(name, tree)
            added.append(clock() - start)
            place = int(chance.integers(len(live)))
            live[place], gone = name, live[place]
            start = clock()
            matcher.remove(gone)
            removed.append(clock() - start)
        event = events[len(matched) % len(events)]
        start = clock()
        matcher.match(event)
        matched.append(clock() - start)
    return matched, added, removed


def _events(drawing: Drawing) -> list[dict[str, Any]]:
    columns = {name: cells.tolist() for name, cells in drawing.table(0, EVENTS).items()}
    return [
        {name: cells[row] for name, cells in columns.items() if cells[row] is not None and cells[row] == cells[row]}
        for row in range(EVENTS)
    ]


def _microseconds(seconds: list[float], percentile: float) -> float:
    return round(float(np.percentile(seconds, percentile)) * 1e6, 1)
