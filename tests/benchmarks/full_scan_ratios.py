"""How many times faster than the full scan is `match_table`? Both in one run, in turn, over the same events."""

import statistics
import sys
import time
from typing import Any

from kindcast import Matcher
from tests.benchmarks.workload_papers import Drawing, FullScan, draw

__all__ = ["ratio", "summary"]

BATCHES = 12
"""Different batches, one of them to warm up: a loop over one batch flatters up to five times."""
EVENTS = 1_000
SCANNED = 20
"""Events of each batch that the full scan is asked, before the batch."""
SINGLE = 200
"""Events that `match` is asked one by one."""


def ratio(
    name: str,
    *,
    subscriptions: int,
    engine: str,
    seed: int,
    height: int = 5,
    threads: int = 1,
    batches: int = BATCHES,
) -> dict[str, Any]:
    """One workload on one engine: microseconds an event, thread CPU time. Raises AssertionError when the engine's
    matches are not the scan's."""
    drawing = draw(name, subscriptions=subscriptions, events=batches * EVENTS, seed=seed, height=height)
    matcher = Matcher(drawing.vocabulary(), engine=engine)
    began = time.perf_counter()
    matcher.add_many((f"s{number}", drawing.tree(number)) for number in range(subscriptions))
    added = time.perf_counter() - began
    scan = FullScan(drawing)
    _same(matcher, drawing, scan)
    scanned: list[float] = []
    matched: list[float] = []
    wall: list[float] = []
    matches = 0
    for batch in range(1, batches):
        for event in range(batch * EVENTS, batch * EVENTS + SCANNED):
            start = time.thread_time()
            scan.match(drawing.values[event])
            scanned.append(time.thread_time() - start)
        table = drawing.table(batch * EVENTS, (batch + 1) * EVENTS)
        start, clock = time.thread_time(), time.perf_counter()
        found = matcher.match_table(table, threads=threads)
        matched.append((time.thread_time() - start) / EVENTS)
        wall.append((time.perf_counter() - clock) / EVENTS)
        matches += found.slots.size
    engine_seconds = statistics.mean(matched if threads == 1 else wall)
    return {
        "workload": name,
        "height": height if name in ("W3", "W4") else None,
        "subscriptions": subscriptions,
        "seed": seed,
        "engine": engine,
        "threads": threads,
        "matches_an_event": round(matches / (batches - 1) / EVENTS, 2),
        "add_seconds": round(added, 2),
        "scan_us": round(statistics.median(scanned) * 1e6, 2),
        "match_table_us": round(engine_seconds * 1e6, 3),
        "ratio": round(statistics.median(scanned) / engine_seconds, 1),
        "match_us": round(_single(matcher, drawing) * 1e6, 1),
        "match_batch_us": round(_batch(matcher, drawing) * 1e6, 2),
    }


def _same(matcher: Matcher, drawing: Drawing, scan: FullScan) -> None:
    """The ids of the first events, by both; the first batch also warms up."""
    table = matcher.match_table(drawing.table(0, EVENTS))
    for event in range(SCANNED):
        slots = table.slots[table.offsets[event] : table.offsets[event + 1]]
        found = sorted(int(name[1:]) for name in table.subscriptions(slots.tolist()))
        assert found == scan.match(drawing.values[event]).tolist(), (drawing.name, drawing.seed, event)


def _single(matcher: Matcher, drawing: Drawing) -> float:
    """Seconds of one `match` of a dict, with reading it and with its `Match` objects."""
    events = _dicts(drawing, 0, SINGLE)
    for event in events[:20]:
        matcher.match(event)
    start = time.thread_time()
    for event in events:
        matcher.match(event)
    return (time.thread_time() - start) / SINGLE


def _batch(matcher: Matcher, drawing: Drawing) -> float:
    """Seconds an event of one `match_batch` of dicts, before its results are read; the first batch warms up."""
    first, second = (_dicts(drawing, batch * EVENTS, (batch + 1) * EVENTS) for batch in range(2))
    matcher.match_batch(first)
    start = time.thread_time()
    matcher.match_batch(second)
    return (time.thread_time() - start) / EVENTS


def _dicts(drawing: Drawing, start: int, stop: int) -> list[dict[str, Any]]:
    """Events as objects, without what is absent."""
    columns = {name: cells.tolist() for name, cells in drawing.table(start, stop).items()}
    return [
        {name: cells[row] for name, cells in columns.items() if cells[row] is not None and cells[row] == cells[row]}
        for row in range(stop - start)
    ]


def summary(result: dict[str, Any]) -> None:
    """One line for whoever waits, on standard error."""
    line = "{workload} {subscriptions:,} {engine}: {ratio} times the full scan ({match_table_us} µs)"
    print(line.format(**result), file=sys.stderr)  # noqa: T201 - a command
