"""Clauses in a structure: their parts, and the verification of candidates that the structure cannot decide."""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from index.clause import Clause, ClauseRow, LoweredEvent
from index.concept_graph import ConceptGraph
from index.definition import clause_matches
from index.engine import RowTable
from index.published.elementary import AtLeast, AtMost, Parts, parts_of

__all__ = ["Candidates"]

Rows = npt.NDArray[np.int32]


class Candidates:
    """The clauses that some event can match, by row. Immutable.

    `parts[row]`; `size` is above every row; `inexact[row]` where a candidate is always verified, `bounded[row]` where
    it is if the event has several values in a column.
    """

    def __init__(self, graph: ConceptGraph, clauses: Mapping[ClauseRow, Clause]) -> None:
        self._graph = graph
        self._clauses = dict(clauses)
        self.size = max(clauses, default=-1) + 1
        self.parts: dict[ClauseRow, Parts] = {}
        self.inexact = np.zeros(self.size, dtype=np.bool_)
        self.bounded = np.zeros(self.size, dtype=np.bool_)
        for row, clause in clauses.items():
            parts = parts_of(clause)
            if parts is not None:
                self.parts[row] = parts
                self.inexact[row] = not parts.exact
                self.bounded[row] = any(isinstance(each, AtLeast | AtMost) for each in parts.elementary)

    def verified(self, rows: Rows, event: LoweredEvent) -> Rows:
        """Those of `rows` that match `event`: the exact ones as they are, the others by definition."""
        doubtful = self.inexact[rows]
        if any(len(values) > 1 for values in event.values.values()):
            doubtful = doubtful | self.bounded[rows]
        if not doubtful.any():
            return rows
        asked = rows[doubtful]
        graph, clauses = self._graph, self._clauses
        good = [row for row in asked.tolist() if clause_matches(graph, clauses[ClauseRow(row)], event)]
        return np.concatenate([rows[~doubtful], np.array(good, dtype=np.int32)])

    def all_verified(self, found: RowTable, events: Sequence[LoweredEvent]) -> RowTable:
        """The same for a batch; rows stay in their order."""
        several = np.array(
            [any(len(values) > 1 for values in event.values.values()) for event in events], dtype=np.bool_
        )
        event_of = np.repeat(np.arange(len(events)), np.diff(found.offsets))
        doubtful = self.inexact[found.rows] | (self.bounded[found.rows] & several[event_of])
        if not doubtful.any():
            return found
        kept = np.ones(found.rows.size, dtype=np.bool_)
        for at in np.flatnonzero(doubtful).tolist():
            clause = self._clauses[ClauseRow(int(found.rows[at]))]
            kept[at] = clause_matches(self._graph, clause, events[event_of[at]])
        offsets = np.concatenate([[0], np.cumsum(kept)])[found.offsets].astype(np.int64)
        return RowTable(offsets, found.rows[kept])
