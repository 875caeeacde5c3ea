"""Clauses in columns → rows by cluster: what `groups_of_parts` does clause by clause, done column by column.

ClauseColumns ─▶ how and where each test is read ─▶ ends float64[n, slots, 2] ─▶ RowGroup under its cluster
"""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from index.clause_columns import ClauseColumns, ConceptOperands, IntervalOperands, KeyOperands, OperandColumn
from index.fused.columns import Columns
from index.fused.conjuncts import CONCEPT, KEY, ORDERED
from index.fused.layout import ClusterKey, RowGroup

__all__ = ["groups_of_columns", "possible"]


def possible(clauses: ClauseColumns) -> npt.NDArray[np.bool_]:
    """Which of the clauses some event can match: all but those with an empty interval. `bool[n]`."""
    if not clauses.required.isdisjoint(clauses.forbidden):
        return np.zeros(len(clauses), dtype=np.bool_)
    good = np.ones(len(clauses), dtype=np.bool_)
    for test in clauses.tests:
        if isinstance(test, IntervalOperands):
            good &= test.low <= test.high
    return good


def groups_of_columns(
    bulk: Iterable[tuple[ClauseColumns, npt.NDArray[np.int32]]], columns: Columns
) -> dict[ClusterKey, RowGroup]:
    """Each of the `bulk` with the row of every clause, -1 where no event can match it. A few ns a test, and some µs
    for each form."""
    by_key: dict[ClusterKey, list[RowGroup]] = {}
    for clauses, rows in bulk:
        kept = np.flatnonzero(rows >= 0)
        if not kept.size:
            continue
        placed = sorted(enumerate(clauses.tests), key=lambda each: (*_slot(each[1], columns), each[0]))
        ends = np.empty((kept.size, len(placed), 2))
        for at, (_, test) in enumerate(placed):
            _write(test, columns, kept, ends[:, at])
        slots = tuple(_slot(test, columns) for _, test in placed)
        key = (clauses.required, clauses.forbidden, slots, False)
        by_key.setdefault(key, []).append(RowGroup(rows[kept], ends))
    return {
        key: RowGroup(np.concatenate([each.rows for each in found]), np.concatenate([each.ends for each in found]))
        for key, found in by_key.items()
    }


def _slot(test: OperandColumn, columns: Columns) -> tuple[int, int]:
    """How and where the engine reads it, as `index.fused.conjuncts` says of single tests."""
    if isinstance(test, IntervalOperands):
        how = ORDERED
    elif isinstance(test, KeyOperands) or test.exactly:
        how = KEY
    else:
        how = CONCEPT
    return how, columns.number(test.column, how)


def _write(test: OperandColumn, columns: Columns, kept: npt.NDArray[np.int64], ends: npt.NDArray[np.float64]) -> None:
    """The two ends of `test` for the clauses `kept`, into `ends` of them."""
    match test:
        case IntervalOperands(low=low, high=high):
            ends[:, 0] = low[kept]
            ends[:, 1] = high[kept]
        case KeyOperands(column=column, keys=keys, places=places):
            number = columns.number(column, KEY)
            used, inverse = np.unique(places[kept], return_inverse=True)
            codes = np.array([columns.key(number, keys[place]) for place in used.tolist()], dtype=np.float64)
            ends[:] = codes[inverse, None]
        case ConceptOperands(column=column, concepts=concepts, exactly=exactly):
            found = concepts[kept]
            if exactly:
                number = columns.number(column, KEY)
                used, inverse = np.unique(found, return_inverse=True)
                codes = np.array([columns.key(number, each) for each in used.tolist()], dtype=np.float64)
                ends[:] = codes[inverse, None]
            else:
                ends[:] = found[:, None]
