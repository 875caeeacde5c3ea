"""A matcher with very many subscriptions: seconds to fill it, bytes of a subscription, and one more while all live."""

import gc
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from kindcast import Matcher
from tests.benchmarks.harness.contestants import resident
from tests.benchmarks.harness.drawn_clauses import drawn_clauses
from tests.benchmarks.harness.experiment import Axes, Scale, Task
from tests.benchmarks.harness.fused_runs import event_batches, filled, tree_of
from tests.benchmarks.workload_papers import Drawing, draw

NAME = "filling"
TITLE = "Filling a matcher, and its memory"
PAPER = ""
PAPER_SHAPE = ""
AXES = Axes("subscriptions", "bytes of the index, a subscription", log_x=True)
SEED = 1

SIZES: dict[Scale, tuple[int, ...]] = {
    "quick": (3_000,),
    "default": (100_000, 1_000_000),
    "full": (100_000, 1_000_000),
}
ASKED = {"y": 150, "add_many_seconds": 60, "add_median_us": 200}
"""On W3 at 10⁶."""
SINGLE = 2_000
"""Subscriptions that are added by themselves, each seen by the match after it."""


def tasks(scale: Scale) -> Sequence[Task]:
    """A curve a work; a million of concepts by default, of all in a full run."""
    return [
        Task(work, n, {"work": work, "n": n})
        for work in ("W1", "W2", "W3")
        for n in SIZES[scale]
        if scale == "full" or n < 1_000_000 or work == "W3"
    ]


def measure(*, work: str, n: int) -> dict[str, Any]:
    """Seconds of `Matcher.add_many` over trees, by the clock on the wall, less those of making the trees; bytes by the
    index's own account and, for a matcher as a whole, by what the process has more; the median of `Matcher.add`, and
    of `add` of the engine alone."""
    drawing = draw(work, subscriptions=n + SINGLE, events=10, seed=SEED)
    making = 0.0

    def trees() -> Iterator[tuple[str, dict[str, Any]]]:
        nonlocal making
        for number in range(n):
            began = time.perf_counter()
            tree = drawing.tree(number)
            making += time.perf_counter() - began
            yield f"s{number}", tree

    matcher = Matcher(drawing.vocabulary())
    gc.collect()
    before, began = resident(), time.perf_counter()
    matcher.add_many(trees())
    added = time.perf_counter() - began - making
    gc.collect()
    held = resident() - before
    event = {name: cells.tolist()[0] for name, cells in drawing.table(0, 1).items()}
    event = {name: cell for name, cell in event.items() if cell is not None and cell == cell}
    seconds = []
    for number in range(n, n + SINGLE):
        tree = drawing.tree(number)
        began = time.perf_counter()
        matcher.add(f"s{number}", tree)
        seconds.append(time.perf_counter() - began)
        matcher.match(event)
    assert len(matcher) == n + SINGLE
    del matcher
    gc.collect()
    index_bytes, index_add = _index(drawing, n)
    return {
        "y": round(index_bytes, 1),
        "matcher_bytes": round(held / n),
        "add_many_seconds": round(added, 1),
        "add_median_us": round(statistics.median(seconds) * 1e6, 1),
        "index_add_us": round(index_add * 1e6, 1),
    }


def _index(drawing: Drawing, n: int) -> tuple[float, float]:
    """The engine alone: bytes a subscription of `n`, with caches; the median of the seconds of one more, each seen by
    the match after it."""
    names = ("asked", "low", "high", "nodes")
    first, more = (
        replace(drawing, **{name: getattr(drawing, name)[part] for name in names})
        for part in (slice(n), slice(n, None))
    )
    engine = filled(first, tree_of(drawing))
    batch = event_batches(drawing, 10)[0]
    engine.match_columns(batch)
    held = engine.nbytes / n
    seconds = []
    for clause in drawn_clauses(more, 10).clauses:
        began = time.perf_counter()
        engine.add(clause)
        seconds.append(time.perf_counter() - began)
        engine.match_columns(batch)
    return held, statistics.median(seconds)
