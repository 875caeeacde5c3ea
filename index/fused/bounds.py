"""Numbers to codes, by the bounds of a segment.

A number's code says where it stands among the sorted distinct bounds b0 < b1 < …: 2i + 1 if it equals bi, else twice
the number of bounds below it. So `low <= v <= high` is one comparison of integers on each side:

    value      … b0 … b1 …            row with bounds bi, bj:  [2i + 1, 2j + 1]
    code       0  1 2  3 4
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from index.compiling import compiled, nth
from index.fused.arrays import Codes, Floats, Ints

__all__ = ["Bounds", "bounds_of", "number_code"]


class Bounds(NamedTuple):
    """The sorted distinct bounds of one segment in each of its ordered columns, the first of its columns.

    Column k of the segment has `values[start[k] : start[k + 1]]`. `table[table_start[k] + bucket]` counts the bounds
    in lower buckets, the buckets being equal steps. `steps[3k : 3k + 3]` are where they begin, where they end, and how
    many go to a unit: zero where equal steps make no sense.
    """

    start: Ints
    values: Floats
    steps: Floats
    table: Codes
    table_start: Ints


def bounds_of(seen: Mapping[int, list[Floats]], count: int) -> Bounds:
    """The bounds of `count` columns; `seen`: column k → arrays of all its bounds in any order."""
    sorted_values = [np.unique(np.concatenate(seen.get(k, [np.empty(0)]))) for k in range(count)]
    steps: list[float] = []
    tables = []
    for values in sorted_values:
        finite = values[np.isfinite(values)]
        least, most = (float(finite[0]), float(finite[-1])) if finite.size else (0.0, 0.0)
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            scale = float(np.float64(values.size) / (np.float64(most) - np.float64(least))) if most > least else 0.0
        if not 0.0 < scale < 1e300:
            scale = 0.0
        steps += (least, most, scale)
        tables.append(_bucket_table(values, least, most, scale, values.size + 2))
    return Bounds(
        _starts([values.size for values in sorted_values]),
        np.concatenate([*sorted_values, np.empty(0)]),
        np.array(steps, dtype=np.float64),
        np.concatenate([*tables, np.empty(0, dtype=np.int32)]),
        _starts([table.size for table in tables]),
    )


@compiled
def _bucket(value: float, least: float, most: float, scale: float) -> int:
    if scale == 0.0 or value <= least:
        return 0
    return int((min(value, most) - least) * scale)


@compiled
def _bucket_table(values: Floats, least: float, most: float, scale: float, size: int) -> Codes:
    """`int32[size + 1]`: how many of the sorted `values` are in lower buckets; `size` is above every bucket."""
    table = np.zeros(size + 1, dtype=np.int32)
    for value in values:
        table[_bucket(value, least, most, scale) + 1] += 1
    for bucket in range(size):
        table[bucket + 1] += table[bucket]
    return table


@compiled
def number_code(value: float, bounds: Floats, table: Codes, least: float, most: float, scale: float) -> int:
    """The code of `value` among the `bounds` of one column, with its own `table` and steps; -1 for NaN. Exact under any
    distribution, since what shares a bucket is bisected. Takes few arrays: each costs time in every call."""
    if np.isnan(value):
        return -1
    bucket = 0
    if scale != 0.0 and value > least:
        bucket = int((min(value, most) - least) * scale)
    low, high = int(table[nth(bucket)]), int(table[nth(bucket + 1)])
    end = high
    while low < high:
        middle = (low + high) >> 1
        if bounds[nth(middle)] < value:
            low = middle + 1
        else:
            high = middle
    code = 2 * low
    if low < end and bounds[nth(low)] == value:
        code += 1
    return code


def _starts(sizes: list[int]) -> Ints:
    starts = np.zeros(len(sizes) + 1, dtype=np.int64)
    np.cumsum(np.array(sizes, dtype=np.int64), out=starts[1:])
    return starts
