"""Engines and baselines under one name each, over one drawing: filled, and timed on its events.

    Drawing ─┬─ engines     clauses in columns where an engine takes them so, else one by one; events likewise
             └─ baselines   the integer columns of the drawing, event by event

No clause is kept alive but by the engine itself, so its memory is its own.
"""

import contextlib
import ctypes
import gc
import os
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from kindcast.index.clause import AttributeId, ColumnId
from kindcast.index.engine import ClauseColumns, ConceptOperands, Engine, IntervalOperands, KeyOperands, OperandColumn
from kindcast.index.fused.engine import FusedEngine
from kindcast.index.registry import ENGINES, new_engine
from tests.benchmarks.baselines.full_scan import CompiledScan
from tests.benchmarks.baselines.ops_walk import OpsWalk
from tests.benchmarks.baselines.rein import Rein
from tests.benchmarks.baselines.tama import Tama
from tests.benchmarks.harness.drawn_clauses import drawn_clauses, ends
from tests.benchmarks.workload_papers import CONCEPT, NUMBER, Drawing, FullScan

__all__ = ["BASELINES", "Contestant", "clause_columns", "contestant", "measured", "resident"]

BASELINES: dict[str, Callable[[Drawing], Any]] = {
    "scan (numpy)": FullScan,
    "scan (compiled)": CompiledScan,
    "REIN": Rein,
    "TAMA, refined": Tama,
    "one by one (OPS)": OpsWalk,
}
BATCH = 100
"""Events of one call: enough for an engine that shares work among events, few enough to time a slow one."""
SINGLE = 100
"""Events that are timed one by one, for the deviation."""
WARM = 300
"""Subscriptions of the small one."""
ENOUGH = 1.0
"""Seconds of matching after which no further call is begun. If the first takes as long, it is what counts."""


@dataclass(slots=True)
class Contestant:
    """`batches[k]()` matches so many events as `BATCH` and returns the number of matches; `single(event)` one."""

    batches: list[Callable[[], int]]
    single: Callable[[int], int]
    add_seconds: float
    memory_mib: float


def contestant(who: str, drawing: Drawing) -> Contestant:
    """Filled with all subscriptions of the drawing. Raises `KeyError` for an unknown name. A small one is made first,
    so that what kernels and libraries take is not counted."""
    small = {name: getattr(drawing, name)[:WARM] for name in ("asked", "low", "high", "nodes")}
    warm = _contestant(who, replace(drawing, **small))
    warm.batches[0]()
    warm.single(0)
    del warm
    return _contestant(who, drawing)


def measured(who: str, drawing: Drawing) -> dict[str, Any]:
    """`y` is microseconds an event over batches, thread CPU time; `deviation_us` among events timed one by one."""
    found = contestant(who, drawing)
    facts = {"add_seconds": round(found.add_seconds, 3), "memory_mib": round(found.memory_mib, 1)}
    each = _seconds(lambda: found.single(0))
    if each > 1.0:
        return {"y": round(each * 1e6, 1), "seconds_an_event": each, **facts}
    began = time.thread_time()
    matches = found.batches[0]()
    took = [(time.thread_time() - began) / BATCH]
    slow = took[0] * BATCH > ENOUGH
    spent = 0.0
    if not slow:
        took.clear()
    for call in () if slow else found.batches[1:]:
        took.append(_seconds(call) / BATCH)
        spent += took[-1] * BATCH
        if spent > ENOUGH:
            break
    mean = statistics.mean(took)
    single = [_seconds(lambda event=event: found.single(event)) for event in range(min(SINGLE, int(ENOUGH / each) + 2))]
    return {
        "y": round(mean * 1e6, 3),
        "seconds_an_event": mean,
        "deviation_us": round(statistics.pstdev(single) * 1e6, 3),
        "single_us": round(statistics.mean(single) * 1e6, 3),
        "matches": matches,
        **facts,
    }


def resident() -> int:
    """Bytes in memory now, without what the allocator keeps for later."""
    with contextlib.suppress(OSError, AttributeError):  # only glibc has it
        ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def clause_columns(drawing: Drawing) -> Iterator[ClauseColumns]:
    """The subscriptions, those that ask about the same attributes together."""
    patterns, pattern_of = np.unique(drawing.asked, axis=0, return_inverse=True)
    concepts = [j for j, kind in enumerate(drawing.kinds) if kind == CONCEPT]
    for number, pattern in enumerate(patterns):
        places = np.flatnonzero(pattern_of.ravel() == number)
        tests: list[OperandColumn] = []
        for j in np.flatnonzero(pattern).tolist():
            attribute, column = AttributeId(j), ColumnId(j)
            low, high = drawing.low[places, j], drawing.high[places, j]
            if drawing.kinds[j] == NUMBER:
                tests.append(IntervalOperands(attribute, column, *ends(drawing, low, high)))
            elif drawing.kinds[j] == CONCEPT:
                tests.append(ConceptOperands(attribute, column, drawing.nodes[places, concepts.index(j)]))
            else:
                texts = [f"v{value}" for value in range(int(low.max(initial=0)) + 1)]
                tests.append(KeyOperands(attribute, column, texts, low))
        required = frozenset(AttributeId(j) for j in np.flatnonzero(pattern).tolist())
        yield ClauseColumns(places, required, frozenset(), tuple(tests))


def _contestant(who: str, drawing: Drawing) -> Contestant:
    gc.collect()
    before, began = resident(), time.perf_counter()
    if who in BASELINES:
        scan = BASELINES[who](drawing)
        scan.match(drawing.values[0])
        added = time.perf_counter() - began
        gc.collect()
        own = (resident() - before) / 2**20
        starts = range(0, len(drawing.values), BATCH)
        batches = [lambda start=start: _together(scan, drawing, start) for start in starts]
        return Contestant(batches, lambda event: int(scan.match(drawing.values[event]).size), added, own)
    if who not in ENGINES:
        raise KeyError(who)
    return _engine(who, drawing)


def _engine(who: str, drawing: Drawing) -> Contestant:
    none = {name: getattr(drawing, name)[:0] for name in ("asked", "low", "high", "nodes")}
    drawn = drawn_clauses(replace(drawing, **none), BATCH)
    columns = list(clause_columns(drawing))
    lowered = [event for batch in drawn.batches for event in batch.lowered()]
    gc.collect()
    before, began = resident(), time.perf_counter()
    engine: Engine = new_engine(who, drawn.graph)
    rows = engine.add_columns([], columns, len(drawing.asked))
    engine.match(lowered[0])  # an engine that builds at its first match builds now
    if isinstance(engine, FusedEngine):
        engine.merge_now()  # not beside what is timed
    added = time.perf_counter() - began
    del rows
    gc.collect()
    own = (resident() - before) / 2**20
    del columns
    if engine.reads_columns:
        batches = [lambda batch=batch: int(engine.match_columns(batch).rows.size) for batch in drawn.batches]
    else:
        starts = range(0, len(lowered), BATCH)
        batches = [lambda at=at: int(engine.match_batch(lowered[at : at + BATCH]).rows.size) for at in starts]
    return Contestant(batches, lambda event: int(engine.match(lowered[event]).size), added, own)


def _together(scan: Any, drawing: Drawing, start: int) -> int:
    return sum(int(scan.match(event).size) for event in drawing.values[start : start + BATCH])


def _seconds(call: Callable[[], int]) -> float:
    began = time.thread_time()
    call()
    return time.thread_time() - began
