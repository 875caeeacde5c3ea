"""Aguilera et al., the measures of their section 5: edges followed and successors visited by an event, and space."""

from collections.abc import Sequence
from typing import Any

from kindcast.index.published.matching_tree import MatchingTreeEngine
from tests.benchmarks.experiments.aguilera_expected_time import EVENTS, drawing
from tests.benchmarks.harness.drawn_clauses import drawn_clauses
from tests.benchmarks.harness.engine_runs import BATCH
from tests.benchmarks.harness.experiment import Axes, Scale, Task

NAME = "aguilera_visits"
TITLE = "Aguilera et al.: edges and successors, by index attributes"
PAPER = "Aguilera et al. 1999, sections 4 and 5"
PAPER_SHAPE = (
    "Nodes visited grow sublinearly with the subscriptions, space (edges and sizes of successor sets) linearly;"
    " factoring by index attributes buys fewer visits with space."
)
AXES = Axes("subscriptions", "see the panel", log_x=True, log_y=True)
SEED = 1

VISITED, SPACE = "edges followed and successors visited by an event", "space: edges and sizes of successor sets"
SIZES: dict[Scale, tuple[int, ...]] = {
    "quick": (300, 1_000),
    "default": (1_000, 3_000, 10_000),
    "full": (1_000, 5_000, 25_000, 100_000),
}
INDEXED = {"no index attribute": 0, "one": 1, "two": 2}


def tasks(scale: Scale) -> Sequence[Task]:
    """Curve by curve."""
    return [Task(name, n, {"n": n, "most": most}, VISITED) for name, most in INDEXED.items() for n in SIZES[scale]]


def measure(*, n: int, most: int) -> dict[str, Any]:
    """The mean over the events of `aguilera_expected_time`; `index_axes` is how many attributes were factored."""
    drawn = drawn_clauses(drawing(n, EVENTS), BATCH)
    engine = MatchingTreeEngine(drawn.graph, most_index_axes=most)
    engine.add_many(drawn.clauses)
    events = [event for batch in drawn.batches for event in batch.lowered()]
    visits = engine.visits(events)
    return {
        "y": round(float(visits.mean()), 1),
        "also": {SPACE: engine.space},
        "index_axes": engine.index_axes,
        "matches": int(engine.match_batch(events).rows.size),
    }
