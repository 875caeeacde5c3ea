"""Clauses on their way to the axes of DEXIN: what stands on which axis, in arrays.

rows and clauses ───────▶ constraints_of each ─┐
rows and ClauseColumns ─▶ a column at a time ──┴─▶ rows that can match, Intervals, Points
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from index.clause_columns import ClauseColumns, ConceptOperands, IntervalOperands, KeyOperands
from index.published.axes import Axes, Intervals, Points
from index.published.constraints import Constraints, NameAxis, NumberAxis, free_copy

__all__ = ["of_clauses", "of_columns"]

Rows = npt.NDArray[np.int32]


def of_clauses(axes: Axes, clauses: Sequence[tuple[int, Constraints]]) -> tuple[Rows, Intervals, Points]:
    """What (row, constraints) pairs ask. Some µs a clause."""
    axis, row, low, high = [], [], [], []
    name_axis, name_row, run = [], [], []
    for number, found in clauses:
        for place, least, most in found.intervals:
            axis.append(axes.number_axis(place))
            row.append(number)
            low.append(least)
            high.append(most)
        for name, key in found.points:
            p = axes.name_axis(name)
            name_axis.append(p)
            name_row.append(number)
            run.append(axes.run_of(p, key))
    rows = np.array([number for number, _ in clauses], dtype=np.int32)
    return (
        rows,
        Intervals(np.array(axis, np.int64), np.array(row, np.int32), np.array(low, float), np.array(high, float)),
        Points(np.array(name_axis, np.int64), np.array(name_row, np.int32), np.array(run, np.int64)),
    )


def of_columns(axes: Axes, columns: ClauseColumns, rows: Rows) -> tuple[Rows, Intervals, Points]:
    """What `columns` ask, whose clause `i` gets `rows[i]`; without the rows that no event matches. Some ns a test."""
    alive = np.full(rows.size, columns.required.isdisjoint(columns.forbidden))
    for test in columns.tests:
        if isinstance(test, IntervalOperands):
            alive &= test.low <= test.high
    kept = rows[alive]
    used: set[NumberAxis | NameAxis] = set()
    intervals, points = [_NO_INTERVALS], [_NO_POINTS]
    for test in columns.tests:
        if isinstance(test, IntervalOperands):
            i = axes.number_axis(free_copy(NumberAxis(test.column), used))
            intervals.append(Intervals(np.full(kept.size, i), kept, test.low[alive], test.high[alive]))
            continue
        is_within = isinstance(test, ConceptOperands) and not test.exactly
        p = axes.name_axis(free_copy(NameAxis("concept" if is_within else "key", test.column), used))
        if isinstance(test, KeyOperands):
            places, keys = test.places[alive], test.keys
            distinct, at = np.unique(places, return_inverse=True)
            runs = [axes.run_of(p, keys[place]) for place in distinct.tolist()]
        else:
            distinct, at = np.unique(test.concepts[alive], return_inverse=True)
            runs = [axes.run_of(p, concept) for concept in distinct.tolist()]
        points.append(Points(np.full(kept.size, p), kept, np.array(runs, dtype=np.int64)[at]))
    for attribute in sorted(columns.required - {test.attribute for test in columns.tests}):
        p = axes.name_axis(NameAxis("present", attribute))
        points.append(Points(np.full(kept.size, p), kept, np.full(kept.size, axes.run_of(p, True))))
    return (
        kept,
        Intervals(*(np.concatenate(each) for each in zip(*intervals, strict=True))),
        Points(*(np.concatenate(each) for each in zip(*points, strict=True))),
    )


_NO_ROWS = np.zeros(0, dtype=np.int32)
_NO_NUMBERS = np.zeros(0, dtype=np.int64)
_NO_INTERVALS = Intervals(_NO_NUMBERS, _NO_ROWS, np.zeros(0), np.zeros(0))
_NO_POINTS = Points(_NO_NUMBERS, _NO_ROWS, _NO_NUMBERS)
