"""What a user would pick instead, beside `fused`: full scans, a join in DuckDB, PostgreSQL with the right indexes."""

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np

from kindcast import Matcher
from tests.benchmarks.baselines.duckdb import DuckDb
from tests.benchmarks.baselines.full_scan import CompiledScan
from tests.benchmarks.baselines.postgres import Postgres, PostgresServer, missing
from tests.benchmarks.harness.experiment import Axes, Scale, Task
from tests.benchmarks.workload_papers import Drawing, FullScan, draw

NAME = "scan_and_sql"
TITLE = "What else one would pick: scans, DuckDB, PostgreSQL"
PAPER = ""
PAPER_SHAPE = ""
AXES = Axes("subscriptions", "microseconds an event", log_x=True, log_y=True)
SEED = 1

FUSED, JOIN, QUERY, POSTGRES = "fused", "DuckDB, a join of 100 events", "DuckDB, a query an event", "PostgreSQL"
SCANS: dict[str, Callable[[Drawing], Any]] = {"scan (numpy)": FullScan, "scan (compiled)": CompiledScan}
WORKLOADS = {"W1": "W1: numbers", "W2": "W2: strings and numbers", "W3": "W3: concepts"}
SIZES: dict[Scale, tuple[int, ...]] = {
    "quick": (1_000, 3_000),
    "default": (10_000, 100_000),
    "full": (10_000, 100_000, 1_000_000),
}
BATCH = 100
"""Events of a join, and of those that are not counted."""
TABLE = 1_000
"""Events of one call of `match_table`."""
EVENTS = 4_100
ENOUGH = 2.0
"""Seconds after which no further batch is begun; those who are asked one event at a time stop within one."""


def tasks(scale: Scale) -> Sequence[Task]:
    """Work by work, curve by curve; without what is not installed."""
    absent = _absent()
    return [
        Task(who, n, {"who": who, "n": n, "work": work}, title)
        for work, title in WORKLOADS.items()
        for who in (FUSED, *SCANS, JOIN, QUERY, POSTGRES)
        for n in SIZES[scale]
        if who not in absent
    ]


def measure(*, who: str, n: int, work: str) -> dict[str, Any]:
    """Wall time on one thread, or one worker of the database; ids are fetched, and the first batch is checked against
    the full scan. `fused` starts from columns of texts and numbers (`match_table`), all others from integers."""
    drawing = draw(work, subscriptions=n, events=EVENTS, seed=SEED)
    if who == POSTGRES:
        with PostgresServer() as server:
            return _timed(drawing, Postgres(drawing, server).match)
    if who == FUSED:
        return _matcher(drawing)
    if who == JOIN:
        return _joined(drawing)
    return _timed(drawing, DuckDb(drawing).match if who == QUERY else SCANS[who](drawing).match)


@cache
def _absent() -> frozenset[str]:
    """Whose curves are left out, with a line for each that says why."""
    reasons = {POSTGRES: missing()}
    if find_spec("duckdb") is None:
        reasons |= dict.fromkeys((JOIN, QUERY), "duckdb is not installed: pip install -e '.[bench]'")
    found = {who: reason for who, reason in reasons.items() if reason}
    for who, reason in found.items():
        print(f"{NAME}: without {who}; {reason}", file=sys.stderr)  # noqa: T201 - a command
    return frozenset(found)


def _timed(drawing: Drawing, match: Callable[[Any], Any]) -> dict[str, Any]:
    """One event at a time."""
    scan = FullScan(drawing)
    for event in drawing.values[:5]:
        assert np.array_equal(match(event), scan.match(event)), drawing.name
    matches = sum(len(scan.match(event)) for event in drawing.values[:BATCH])
    seconds: list[float] = []
    for event in drawing.values[BATCH:]:
        began = time.perf_counter()
        match(event)
        seconds.append(time.perf_counter() - began)
        if sum(seconds) > ENOUGH:
            break
    return _told(seconds, matches)


def _joined(drawing: Drawing) -> dict[str, Any]:
    database, scan = DuckDb(drawing), FullScan(drawing)
    matches = database.join(drawing.values[:BATCH])
    assert matches == sum(len(scan.match(event)) for event in drawing.values[:BATCH]), drawing.name
    seconds: list[float] = []
    for start in range(BATCH, len(drawing.values), BATCH):
        began = time.perf_counter()
        database.join(drawing.values[start : start + BATCH])
        seconds.append((time.perf_counter() - began) / BATCH)
        if sum(seconds) * BATCH > ENOUGH:
            break
    return _told(seconds, matches)


def _matcher(drawing: Drawing) -> dict[str, Any]:
    matcher = Matcher(drawing.vocabulary(), engine=FUSED)
    matcher.add_many((f"s{number}", drawing.tree(number)) for number in range(len(drawing.asked)))
    matches = int(matcher.match_table(drawing.table(0, BATCH)).slots.size)
    seconds = []
    for start in range(BATCH, len(drawing.values), TABLE):
        table = drawing.table(start, start + TABLE)
        began = time.perf_counter()
        matcher.match_table(table)
        seconds.append((time.perf_counter() - began) / TABLE)
    return _told(seconds, matches)


def _told(seconds: Sequence[float], matches: int) -> dict[str, Any]:
    each = statistics.mean(seconds)
    return {"y": round(each * 1e6, 3), "seconds_an_event": each, "matches": matches}
