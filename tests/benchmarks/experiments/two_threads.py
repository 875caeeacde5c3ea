"""`match_table` with two threads against one, by the clock on the wall; and two processes that share nothing, which is
what the machine itself gives."""

import multiprocessing
import statistics
import time
from collections.abc import Sequence
from typing import Any

from kindcast import Matcher
from tests.benchmarks.harness.experiment import Axes, Scale, Task
from tests.benchmarks.workload_papers import draw

NAME = "two_threads"
TITLE = "match_table with two threads"
PAPER = ""
PAPER_SHAPE = ""
AXES = Axes("work", "times faster than with one thread", bars=True)
SEED = 1

ASKED = 1.7
SIZES: dict[Scale, int] = {"quick": 3_000, "default": 100_000, "full": 100_000}
TABLE = 10_000
"""Events of one call, which the threads share equally."""
CALLS = 16
"""Tables, all different, each matched once with one thread and once with two."""


ROUNDS = 5
"""Of all tables, by one process and by two."""


def tasks(scale: Scale) -> Sequence[Task]:
    """A bar a work."""
    return [Task("two threads", work, {"work": work, "n": SIZES[scale]}) for work in ("W1", "W2", "W3")]


def measure(*, work: str, n: int) -> dict[str, Any]:
    """All tables in turn, by one thread and by two alternately, then all again, the other way round: neither sees a
    table while it is warm from the other. The quarter of the calls that were fastest ends at what is compared: a
    neighbour on one of two cores takes from two threads more than from one."""
    drawing = draw(work, subscriptions=n, events=TABLE * CALLS, seed=SEED)
    matcher = Matcher(drawing.vocabulary())
    matcher.add_many((f"s{number}", drawing.tree(number)) for number in range(n))
    tables = [drawing.table(start, start + TABLE) for start in range(0, TABLE * CALLS, TABLE)]
    matcher.match_table(tables[-1], threads=2)
    seconds: dict[int, list[float]] = {1: [], 2: []}
    matches: dict[int, int] = {1: 0, 2: 0}
    for first in (0, 1):
        for number, table in enumerate(tables):
            threads = 1 + (number + first) % 2
            began = time.perf_counter()
            found = matcher.match_table(table, threads=threads)
            seconds[threads].append(time.perf_counter() - began)
            matches[threads] += found.slots.size
    assert matches[1] == matches[2], matches
    one, two = (statistics.quantiles(seconds[threads], n=4)[0] / TABLE * 1e6 for threads in (1, 2))
    machine = statistics.median(_by_two_processes(matcher, tables) for _ in range(ROUNDS))
    return {
        "y": round(one / two, 2),
        "asked": ASKED,
        "two_processes": round(machine, 2),
        "one_us": round(one, 3),
        "two_us": round(two, 3),
    }


def _by_two_processes(matcher: Matcher, tables: Sequence[Any]) -> float:
    """How much faster two processes match all tables, one half each, than this one does."""
    forking = multiprocessing.get_context("fork")
    together = forking.Barrier(3)

    def match(some: Sequence[Any]) -> None:
        for table in some:
            matcher.match_table(table, threads=1)

    def work(some: Sequence[Any]) -> None:
        match(some)  # copies the pages that it writes to
        together.wait()
        match(some)
        together.wait()

    began = time.perf_counter()
    match(tables)
    alone = time.perf_counter() - began
    processes = [forking.Process(target=work, args=(tables[half::2],)) for half in (0, 1)]
    for process in processes:
        process.start()
    together.wait()
    began = time.perf_counter()
    together.wait()
    beside = time.perf_counter() - began
    for process in processes:
        process.join()
    return alone / beside
