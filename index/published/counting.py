"""The `counting` engine: the fair predicate algorithm of Fabret et al., "Le Subscribe", section 3, Figure 2.

Every predicate is stored once. For an event, the predicates that it satisfies are found (lines 4 to 6), each adds one
to the count of every clause that holds it (lines 8 to 12), and a clause whose count is the number of its predicates has
matched (lines 13 to 17). The counts of all clauses are made for every event: errata 20 to 22.
"""

import numpy as np
import numpy.typing as npt

from kindcast.index.compiling import announce_compilation
from kindcast.index.concept_graph import ConceptGraph
from kindcast.index.published.le_subscribe import Satisfied, fair
from kindcast.index.published.predicate_engine import PredicateEngine, StoredPredicates, with_rows

__all__ = ["CountingEngine"]

Rows = npt.NDArray[np.int32]
Numbers = npt.NDArray[np.int64]


class CountingEngine(PredicateEngine):
    """Exact matching by counting. `match` costs an addition for each satisfied predicate of each clause, and a
    comparison for each clause."""

    def __init__(self, graph: ConceptGraph) -> None:
        super().__init__(graph)
        self._stored = StoredPredicates()
        self._needed = np.zeros(0, dtype=np.int32)
        """Predicates of each row; -1 for one that is not there or that nothing matches."""
        announce_compilation(fair)

    def _enter(self, rows: Rows, first: Numbers, axis: Rows, operand: npt.NDArray[np.float64]) -> None:
        self._stored.add(self._kind, np.repeat(rows, np.diff(first)), axis, operand)
        self._needed = with_rows(self._needed, len(self._state), -1)
        self._needed[rows] = np.diff(first)

    def _leave(self, row: int, axis: Rows, operand: npt.NDArray[np.float64]) -> None:
        self._stored.remove(self._kind, row, axis, operand)
        self._needed[row] = -1

    def _find(self, satisfied: Satisfied) -> tuple[Numbers, Rows]:
        stored = self._stored.stored(self._kind, len(self._uses))
        return fair(satisfied, stored, self._needed[: len(self._state)])

    def check_invariants(self) -> None:
        """Raise AssertionError if the books of rows or of predicates disagree."""
        super().check_invariants()
        self._stored.check_invariants()
