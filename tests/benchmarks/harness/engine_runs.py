"""One engine on one drawing of clauses: seconds and memory to add them, seconds to match events.

Engines are fed alike: clauses by `add_many`, batches of events that were read beforehand, in columns where an engine
takes columns and one by one where not. Only matching is timed; the first batch warms caches up and is not counted. No
two batches hold the same events.
"""

import gc
import resource
import statistics
import time
import tracemalloc
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from kindcast.index.clause import Clause
from kindcast.index.concept_graph import ConceptGraph
from kindcast.index.engine import ColumnBatch, Engine, RowTable
from kindcast.index.registry import new_engine

__all__ = ["BATCH", "engine_memory", "fill", "run_engine", "timed"]

BATCH = 100
"""Events of one batch: enough for an engine that shares work among events, few enough to time a slow one."""
ENOUGH = 1.5
"""Seconds of matching after which no further batch is begun. If the first batch takes as long, it is what counts."""
CHUNK = 50_000
"""Clauses that are made at a time."""
PATIENCE = 1.0
"""Seconds a single event may take before the engine is said to be beyond the limit, and no batch is tried."""


def run_engine(
    name: str, graph: ConceptGraph, clauses: Sequence[Clause], batches: Sequence[ColumnBatch]
) -> dict[str, Any]:
    """`y` is microseconds an event (median of the batches, thread CPU time), `matches` those of the first batch."""
    gc.collect()
    before = _memory()
    engine = new_engine(name, graph)
    added = fill(engine, clauses)
    began = time.perf_counter()
    engine.match(batches[0].part(0, 1).lowered()[0])  # an engine that builds at its first match builds now
    added += time.perf_counter() - began
    facts = {"add_seconds": round(added, 4), "memory_mib": round(_memory() - before, 1), "clauses": len(clauses)}
    event = batches[-1].part(0, 1).lowered()[0]
    began = time.perf_counter()
    engine.match(event)
    single = time.perf_counter() - began
    if single > PATIENCE:
        return {"y": round(single * 1e6, 1), "seconds_an_event": single, **facts}
    if engine.reads_columns:
        calls = [lambda batch=batch: engine.match_columns(batch) for batch in batches]
    else:
        lowered = [batch.lowered() for batch in batches]
        calls = [lambda batch=batch: engine.match_batch(batch) for batch in lowered]
    return {**timed(calls, [batch.events for batch in batches]), **facts}


def fill(engine: Engine, clauses: Sequence[Clause]) -> float:
    """Add all, some at a time; the seconds that adding them took, without making them."""
    seconds = 0.0
    for start in range(0, len(clauses), CHUNK):
        some = list(clauses[start : start + CHUNK])
        began = time.perf_counter()
        engine.add_many(some)
        seconds += time.perf_counter() - began
    return seconds


def engine_memory(name: str, graph: ConceptGraph, clauses: Sequence[Clause], event: ColumnBatch) -> dict[str, Any]:
    """`y` is MiB that the engine holds after it was filled and matched one event, as Python's own account of memory
    has it; the clauses themselves are not counted unless the engine keeps them alive by itself."""
    gc.collect()
    warm = new_engine(name, graph)
    warm.add_many(clauses[:10])
    warm.match(event.lowered()[0])
    del warm
    gc.collect()
    tracemalloc.start()
    engine = new_engine(name, graph)
    engine.add_many(clauses)
    engine.match(event.lowered()[0])
    gc.collect()
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return {"y": round(held / 2**20, 3), "bytes_a_subscription": round(held / len(clauses), 1)}


def timed(calls: Sequence[Callable[[], RowTable | npt.NDArray[np.int32]]], events: Sequence[int]) -> dict[str, Any]:
    """The same for anything else that matches: each call takes one batch, of so many events, and returns its rows."""
    began = time.thread_time()
    found = calls[0]()
    took = time.thread_time() - began
    matches = int(found.rows.size if isinstance(found, RowTable) else found.size)
    seconds: list[float] = []
    spent, counted = 0.0, 0
    if took > ENOUGH:
        calls, seconds, counted = calls[:1], [took / events[0]], events[0]
    for call, number in zip(calls[1:], events[1 : len(calls)], strict=True):
        began = time.thread_time()
        call()
        took = time.thread_time() - began
        seconds.append(took / number)
        spent, counted = spent + took, counted + number
        if spent > ENOUGH:
            break
    each = statistics.median(seconds)
    spread = statistics.pstdev(seconds) / each if each else 0.0
    return {
        "y": round(each * 1e6, 3),
        "seconds_an_event": each,
        "spread": round(spread, 3),
        "events": counted,
        "matches": matches,
    }


def _memory() -> float:
    """MiB at the highest so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
