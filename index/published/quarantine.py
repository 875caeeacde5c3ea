"""The `quarantine` engine: equality-preferred with nonequality quarantining, "Le Subscribe", section 3, Figure 5.

Clauses with an equality predicate are found by `eqsubmatch` and then verified one by one, their other predicates stored
with them (lines 3 to 8). Only those without any equality are counted (lines 9 to 21): they are in quarantine.
"""

import numpy as np
import numpy.typing as npt

from kindcast.index.compiling import announce_compilation
from kindcast.index.concept_graph import ConceptGraph
from kindcast.index.published.equality_clusters import EqualityClusters
from kindcast.index.published.le_subscribe import EQUALITY, Satisfied, quarantining
from kindcast.index.published.predicate_engine import PredicateEngine, RowPlaces, StoredPredicates

__all__ = ["QuarantineEngine"]

Rows = npt.NDArray[np.int32]
Numbers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class QuarantineEngine(PredicateEngine):
    """Exact matching, equalities first, the rest of them verified. `match` costs a look-up for each cluster, a check
    for each clause found there, and counting for the clauses without equality."""

    def __init__(self, graph: ConceptGraph) -> None:
        super().__init__(graph)
        self._clusters = EqualityClusters()
        self._quarantined = StoredPredicates()
        self._without = RowPlaces()
        announce_compilation(quarantining)

    def _enter(self, rows: Rows, first: Numbers, axis: Rows, operand: Floats) -> None:
        equal = self._kind[axis] == EQUALITY
        row_of = np.repeat(np.arange(rows.size), np.diff(first))
        clustered = np.bincount(row_of[equal], minlength=rows.size) > 0
        number = np.cumsum(clustered) - 1
        self._clusters.add(rows[clustered], number[row_of[equal]], axis[equal], operand[equal].astype(np.int32))
        alone = ~clustered[row_of]
        place = np.zeros(rows.size, dtype=np.int32)
        place[~clustered] = self._without.add(rows[~clustered], np.diff(first)[~clustered].astype(np.int32))
        self._quarantined.add(self._kind, place[row_of[alone]], axis[alone], operand[alone])

    def _leave(self, row: int, axis: Rows, operand: Floats) -> None:
        equal = self._kind[axis] == EQUALITY
        if equal.any():
            self._clusters.remove(row, axis[equal], operand[equal].astype(np.int32))
        else:
            self._quarantined.remove(self._kind, self._without.remove(row), axis, operand)

    def _find(self, satisfied: Satisfied) -> tuple[Numbers, Rows]:
        stored = self._quarantined.stored(self._kind, len(self._uses))
        clusters, own = self._clusters.clusters, self._own.table
        return quarantining(satisfied, stored, clusters, own, self._without.beside, self._without.rows)

    def check_invariants(self) -> None:
        """Raise AssertionError if the books of rows, of clusters or of predicates disagree."""
        super().check_invariants()
        self._clusters.check_invariants()
        self._quarantined.check_invariants()
        self._without.check_invariants()
