"""`match_table` over tables as they really are: columns that nobody asks about, and several values in one.

The plain table is W3's: kinds, texts and numbers in columns of their own. The others are the same table with more, or
with two kinds in one attribute; each is read from Python's own objects and from Arrow.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from kindcast import Matcher
from tests.benchmarks.harness.experiment import Axes, Scale, Task
from tests.benchmarks.workload_papers import draw

NAME = "real_columns"
TITLE = "match_table: nested columns and several values"
PAPER = ""
PAPER_SHAPE = ""
AXES = Axes("table", "times the plain table", bars=True)
SEED = 1

SIZES: dict[Scale, int] = {"quick": 3_000, "default": 100_000, "full": 1_000_000}
TABLE = 10_000
"""Events of one call."""
CALLS = 8
"""Different tables, the first to warm up."""

Columns = dict[str, Any]


def _unasked(columns: Columns) -> Columns:
    """With a list, an object and a long text that nobody asks about."""
    rows = range(TABLE)
    return columns | {
        "tags": [["offer", "used", f"batch {row % 9}"] for row in rows],
        "seller": [{"name": "John", "rating": row % 50 / 10, "at": {"city": "Berlin"}} for row in rows],
        "text": [f"Number {row}: hardly used, complete, to be fetched in the evening" for row in rows],
    }


def _two_kinds(columns: Columns) -> Columns:
    """With two kinds in one attribute."""
    pairs = zip(columns["a0"].tolist(), columns["a1"].tolist(), strict=True)
    return columns | {"a0": [list(pair) for pair in pairs]}


def _as_arrow(columns: Columns) -> pa.Table:
    return pa.table(
        {name: pa.array(cells, from_pandas=isinstance(cells, np.ndarray)) for name, cells in columns.items()}
    )


TABLES: dict[str, tuple[Callable[[Columns], Columns], float]] = {
    "a list, an object and a text that nobody asks about": (_unasked, 1.5),
    "two kinds in one attribute": (_two_kinds, 3.0),
}


def tasks(scale: Scale) -> Sequence[Task]:
    """A bar a table, of Python's objects and of Arrow."""
    return [
        Task(source, table, {"table": table, "source": source, "n": SIZES[scale]})
        for source in ("objects of Python", "Arrow")
        for table in TABLES
    ]


def measure(*, table: str, source: str, n: int) -> dict[str, Any]:
    """Plain tables and the others in turn, thread CPU time an event, the fastest calls of each."""
    change, asked = TABLES[table]
    drawing = draw("W3", subscriptions=n, events=TABLE * CALLS, seed=SEED)
    matcher = Matcher(drawing.vocabulary())
    matcher.add_many((f"s{number}", drawing.tree(number)) for number in range(n))
    seconds: dict[bool, list[float]] = {False: [], True: []}
    matches = 0
    for start in range(0, TABLE * CALLS, TABLE):
        for changed in (False, True):
            columns: Any = drawing.table(start, start + TABLE)
            columns = change(columns) if changed else columns
            columns = _as_arrow(columns) if source == "Arrow" else columns
            began = time.thread_time()
            found = matcher.match_table(columns)
            if start:
                seconds[changed].append(time.thread_time() - began)
                matches += found.slots.size if changed else 0
    plain, other = (statistics.quantiles(seconds[changed], n=4)[0] / TABLE * 1e6 for changed in (False, True))
    return {
        "y": round(other / plain, 2),
        "asked": asked,
        "plain_us": round(plain, 3),
        "other_us": round(other, 3),
        "matches_an_event": round(matches / TABLE / (CALLS - 1), 1),
    }
