"""The `equality` engine: the equality-preferred algorithm of Fabret et al., "Le Subscribe", section 3, Figure 4.

Clauses are clustered by their equality predicates, so that one look-up a cluster finds those whose equalities hold
(line 3, `eqsubmatch`). Their other predicates are counted as in `counting` (lines 4 to 11), and compared only for the
clauses that were found, and for those without any equality (`neqsub`, lines 12 to 16).
"""

import numpy as np
import numpy.typing as npt

from kindcast.index.compiling import announce_compilation
from kindcast.index.concept_graph import ConceptGraph
from kindcast.index.published.equality_clusters import EqualityClusters
from kindcast.index.published.le_subscribe import EQUALITY, Satisfied, equality_preferred
from kindcast.index.published.predicate_engine import PredicateEngine, RowPlaces, StoredPredicates, with_rows

__all__ = ["EqualityEngine"]

Rows = npt.NDArray[np.int32]
Numbers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class EqualityEngine(PredicateEngine):
    """Exact matching, equalities first. `match` costs a look-up for each cluster, an addition for each other predicate
    that is satisfied, a comparison for each clause that is left."""

    def __init__(self, graph: ConceptGraph) -> None:
        super().__init__(graph)
        self._clusters = EqualityClusters()
        self._others = StoredPredicates()
        self._without = RowPlaces()
        self._needed = np.zeros(0, dtype=np.int32)
        announce_compilation(equality_preferred)

    def _enter(self, rows: Rows, first: Numbers, axis: Rows, operand: Floats) -> None:
        equal = self._kind[axis] == EQUALITY
        row_of = np.repeat(np.arange(rows.size), np.diff(first))
        clustered = np.bincount(row_of[equal], minlength=rows.size) > 0
        number = np.cumsum(clustered) - 1
        self._clusters.add(rows[clustered], number[row_of[equal]], axis[equal], operand[equal].astype(np.int32))
        self._others.add(self._kind, rows[row_of[~equal]], axis[~equal], operand[~equal])
        self._needed = with_rows(self._needed, len(self._state), 0)
        self._needed[rows] = np.bincount(row_of[~equal], minlength=rows.size)
        self._without.add(rows[~clustered], self._needed[rows[~clustered]])

    def _leave(self, row: int, axis: Rows, operand: Floats) -> None:
        equal = self._kind[axis] == EQUALITY
        if equal.any():
            self._clusters.remove(row, axis[equal], operand[equal].astype(np.int32))
        else:
            self._without.remove(row)
        self._others.remove(self._kind, row, axis[~equal], operand[~equal])

    def _find(self, satisfied: Satisfied) -> tuple[Numbers, Rows]:
        stored = self._others.stored(self._kind, len(self._uses))
        return equality_preferred(satisfied, stored, self._clusters.clusters, self._needed, self._without.rows)

    def check_invariants(self) -> None:
        """Raise AssertionError if the books of rows, of clusters or of predicates disagree."""
        super().check_invariants()
        self._clusters.check_invariants()
        self._others.check_invariants()
        self._without.check_invariants()
