"""Le Subscribe, end of section 4: what it costs to add one subscription to many."""

import statistics
import time
from collections.abc import Sequence
from typing import Any

from kindcast.index.registry import new_engine
from tests.benchmarks.experiments.le_subscribe import drawing
from tests.benchmarks.harness.drawn_clauses import drawn_clauses
from tests.benchmarks.harness.engine_runs import fill
from tests.benchmarks.harness.experiment import Axes, Scale, Task

NAME = "le_subscribe_adding"
TITLE = "Le Subscribe: adding one subscription"
PAPER = "Le Subscribe, section 4"
PAPER_SHAPE = (
    "At 3,200,000 subscriptions adding one takes nonequality quarantining 32.2 ms on average, equality-preferred about "
    "as much, fair-predicate (counting) less."
)
AXES = Axes("subscriptions there", "microseconds of CPU to add one, rebuilds included", log_x=True, log_y=True)
SEED = 1

ENGINES = ("fused", "quarantine", "equality", "counting", "matching_tree", "dexin", "ctps")
SIZES: dict[Scale, tuple[int, ...]] = {
    "quick": (1_000, 3_000),
    "default": (1_000, 10_000, 100_000),
    "full": (1_000, 10_000, 100_000, 1_000_000, 3_200_000),
}
GROWTH = 4
"""As many more as a quarter of those that are there are added one by one: an engine that builds its structure anew when
an eighth has come does so."""
EVENTS = 100
"""Between them, evenly: an engine that builds when it is asked next has to."""
WARM = 1_000
"""Subscriptions of the small one."""
PATIENCE = 120.0
"""Seconds after which no more are added; `rebuilt` tells whether an eighth came."""


def tasks(scale: Scale) -> Sequence[Task]:
    """Curve by curve."""
    return [Task(who, n, {"who": who, "n": n}) for who in ENGINES for n in SIZES[scale]]


def measure(*, who: str, n: int) -> dict[str, Any]:
    """`y` is the mean, over all that were added, of the CPU time of adding and of the events between, in all threads,
    less that of the same events before anything was added; `add_us` is the median of `add` alone, `worst_us` the
    longest step, adding or event. A small one goes first, so that no kernel is loaded or compiled in what counts."""
    _added(who, WARM)
    return _added(who, n)


def _added(who: str, n: int) -> dict[str, Any]:
    more = n // GROWTH
    drawn = drawn_clauses(drawing(n + more, EVENTS, 0.5, SEED), 1)
    events = [batch.lowered()[0] for batch in drawn.batches]
    engine = new_engine(who, drawn.graph)
    fill(engine, drawn.clauses[:n])
    for event in events[:3]:
        engine.match(event)
    began = time.process_time()
    for event in events:
        engine.match(event)
    alone = (time.process_time() - began) / EVENTS
    every = -(-more // EVENTS)
    spent, asked, added = 0.0, 0, 0
    took: list[float] = []
    worst, begun = 0.0, time.monotonic()
    for start in range(0, more, every):
        clauses = list(drawn.clauses[n + start : n + min(start + every, more)])
        busy = time.process_time()
        for clause in clauses:
            before = time.perf_counter()
            engine.add(clause)
            took.append(time.perf_counter() - before)
        added += len(clauses)
        before = time.perf_counter()
        engine.match(events[asked])
        worst = max(worst, time.perf_counter() - before)
        asked += 1
        spent += time.process_time() - busy
        if time.monotonic() - begun > PATIENCE:
            break
    return {
        "y": round(max(spent - asked * alone, 0.0) / added * 1e6, 2),
        "add_us": round(statistics.median(took) * 1e6, 2),
        "worst_us": round(max(worst, *took) * 1e6, 1),
        "match_us": round(alone * 1e6, 2),
        "added": added,
        "rebuilt": added > (n + added) // 8,
    }
