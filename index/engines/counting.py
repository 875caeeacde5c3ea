"""The `counting` engine: the fair predicate algorithm of Fabret et al., "Le Subscribe", section 3, Figure 2.

Every predicate is stored once. For an event, the predicates that it satisfies are found (lines 4 to 6), each adds one
to the count of every clause that holds it (lines 8 to 12), and a clause whose count is the number of its predicates has
matched (lines 13 to 17). The counts of all clauses are made for every event: errata 20 to 22.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from index.clause import Clause, ClauseRow, LoweredEvent
from index.concept_graph import ConceptGraph
from index.engine import RowTable
from index.published.built_engine import FEWEST_FRESH, BuiltEngine, Rows
from index.published.candidates import Candidates
from index.published.satisfied import SatisfiedPredicates, counted

__all__ = ["CountingEngine"]


class CountingEngine(BuiltEngine):
    """Exact matching by counting. `match` costs an addition for each satisfied predicate of each clause, and a
    comparison for each clause."""

    def __init__(self, graph: ConceptGraph, *, fewest_fresh: int = FEWEST_FRESH) -> None:
        super().__init__(graph, _FairPredicates, fewest_fresh)


class _FairPredicates:
    """Figure 2 over some clauses."""

    def __init__(self, graph: ConceptGraph, clauses: Mapping[ClauseRow, Clause]) -> None:
        self._candidates = Candidates(graph, clauses)
        parts = self._candidates.parts
        self._needed = np.full(self._candidates.size, -1, dtype=np.int32)  # -1: no clause that could match
        for row, each in parts.items():
            self._needed[row] = len(each.elementary)
        self._predicates = SatisfiedPredicates(
            graph, ((predicate, row) for row, each in parts.items() for predicate in each.elementary)
        )

    def match(self, event: LoweredEvent) -> Rows:
        return self.match_batch([event]).rows

    def match_batch(self, events: Sequence[LoweredEvent]) -> RowTable:
        found = RowTable(*counted(self._predicates.runs(events), self._needed))
        return self._candidates.all_verified(found, events)
