"""A join in DuckDB: subscriptions and events as tables, a match as a row of the join.

What somebody would pick who has both in Parquet anyway. One thread, in memory. Concepts stand as the interval of the
walk from the root (nested sets), which makes `beneath` a comparison: the best that SQL can be given for trees.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from tests.benchmarks.baselines.conditions import Ints, intervals
from tests.benchmarks.workload_papers import Drawing

__all__ = ["DuckDb"]


class DuckDb:
    """Exact. Raises `ImportError` where the extra `bench` is not installed."""

    def __init__(self, drawing: Drawing) -> None:
        import duckdb

        self._names = range(len(drawing.kinds))
        self._connection = duckdb.connect(":memory:", config={"threads": 1})
        low, high = intervals(drawing)
        columns: dict[str, npt.NDArray[Any]] = {"id": np.arange(low.shape[1], dtype=np.int32)}
        for j in self._names:
            columns |= {f"low{j}": low[j], f"high{j}": high[j]}
        self._connection.register("drawn", columns)
        self._connection.execute("CREATE TABLE subscriptions AS SELECT * FROM drawn")
        self._connection.unregister("drawn")

    def match(self, event: Ints) -> npt.NDArray[np.int32]:
        """One query for one event, its values as parameters."""
        conditions = " AND ".join(f"low{j} <= ? AND high{j} >= ?" for j in self._names)
        values = [value for each in event.tolist() for value in (each, each)]
        found = self._connection.execute(f"SELECT id FROM subscriptions WHERE {conditions}", values)
        return np.sort(found.fetchnumpy()["id"]).astype(np.int32)

    def join(self, events: Ints) -> int:
        """One query for many events: how many pairs match."""
        columns = {"number": np.arange(len(events))} | {
            f"v{j}": np.ascontiguousarray(events[:, j]) for j in self._names
        }
        self._connection.register("events", columns)
        conditions = " AND ".join(f"low{j} <= v{j} AND high{j} >= v{j}" for j in self._names)
        found = self._connection.execute(
            f"SELECT number, id FROM events JOIN subscriptions ON {conditions}"
        ).fetchnumpy()
        self._connection.unregister("events")
        return int(found["id"].size)

    def close(self) -> None:
        """Gives the memory back."""
        self._connection.close()
