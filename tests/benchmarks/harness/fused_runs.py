"""The `fused` engine by itself, on a drawing: filled from columns, timed on different batches of events.

What is timed is the engine alone, from a batch that was read before to rows; what a table costs to read is not in it.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from kindcast.index.concept_graph import ConceptGraph
from kindcast.index.engine import ColumnBatch
from kindcast.index.fused.compaction import in_thread
from kindcast.index.fused.engine import FusedEngine, Run
from tests.benchmarks.harness.contestants import clause_columns
from tests.benchmarks.harness.drawn_clauses import drawn_clauses
from tests.benchmarks.workload_papers import CONCEPT, Drawing

__all__ = ["BATCH", "event_batches", "filled", "first_of", "held_off", "microseconds", "tree_of"]

BATCH = 1_000
"""Events of one call, as `Matcher.match_table` makes of a table."""


def tree_of(drawing: Drawing) -> ConceptGraph:
    """The complete binary tree of a drawing with concepts; nothing for others."""
    size = (1 << (drawing.height + 1)) - 1 if CONCEPT in drawing.kinds else 0
    return ConceptGraph(size, ((node, (node - 1) // 2) for node in range(1, size)))


def filled(drawing: Drawing, graph: ConceptGraph, *, run: Run = in_thread, parts: int = 1) -> FusedEngine:
    """With every subscription, added in so many parts. Merges run to their end, unless they are `held_off`."""
    engine = FusedEngine(graph, run=run)
    for part in range(parts):
        own = {name: getattr(drawing, name)[part::parts] for name in ("asked", "low", "high", "nodes")}
        some = replace(drawing, **own)
        engine.add_columns([], list(clause_columns(some)), len(some.asked))
    if run is not held_off:
        engine.merge_now()
    return engine


def first_of(drawing: Drawing, stop: int, start: int = 0) -> Drawing:
    """The subscriptions `start … stop-1`."""
    own = {name: getattr(drawing, name)[start:stop] for name in ("asked", "low", "high", "nodes")}
    return replace(drawing, **own)


def held_off(merge: Callable[[], None]) -> None:
    """Merges that never come about, so that what they would mend can be measured."""


def event_batches(drawing: Drawing, size: int = BATCH) -> Sequence[ColumnBatch]:
    """Its events, read."""
    none = {name: getattr(drawing, name)[:0] for name in ("asked", "low", "high", "nodes")}
    return drawn_clauses(replace(drawing, **none), size).batches


def microseconds(engine: FusedEngine, batches: Sequence[ColumnBatch]) -> tuple[float, float]:
    """An event, thread CPU time, the mean over all batches but the first, which warms up; and matches of an event."""
    engine.match_columns(batches[0])
    seconds, matches, events = [], 0, 0
    for batch in batches[1:]:
        began = time.thread_time()
        found = engine.match_columns(batch)
        seconds.append((time.thread_time() - began) / batch.events)
        matches, events = matches + found.rows.size, events + batch.events
    return statistics.mean(seconds) * 1e6, matches / events
