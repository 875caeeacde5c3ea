"""The `equality` engine: the equality-preferred algorithm of Fabret et al., "Le Subscribe", section 3, Figure 4.

Clauses are clustered by their equality predicates, so that one look-up a cluster finds those whose equalities hold
(line 3, `eqsubmatch`). Their other predicates are counted as in `counting` (lines 4 to 11), and compared only for the
clauses that were found, and for those without any equality (`neqsub`, lines 12 to 16).
"""

from collections.abc import Mapping, Sequence

import numpy as np

from index.clause import Clause, ClauseRow, LoweredEvent
from index.concept_graph import ConceptGraph
from index.engine import RowTable
from index.published.built_engine import FEWEST_FRESH, BuiltEngine, Rows
from index.published.candidates import Candidates
from index.published.equality_clusters import EqualityClusters, is_equality
from index.published.satisfied import SatisfiedPredicates, counted

__all__ = ["EqualityEngine"]


class EqualityEngine(BuiltEngine):
    """Exact matching, equalities first. `match` costs a look-up for each cluster, an addition for each other predicate
    that is satisfied, a comparison for each clause that is left."""

    def __init__(self, graph: ConceptGraph, *, fewest_fresh: int = FEWEST_FRESH) -> None:
        super().__init__(graph, _EqualityPreferred, fewest_fresh)


class _EqualityPreferred:
    """Figure 4 over some clauses."""

    def __init__(self, graph: ConceptGraph, clauses: Mapping[ClauseRow, Clause]) -> None:
        self._candidates = Candidates(graph, clauses)
        parts = self._candidates.parts
        self._clusters = EqualityClusters(graph, {row: each.elementary for row, each in parts.items()})
        others = {row: [one for one in each.elementary if not is_equality(one)] for row, each in parts.items()}
        self._needed = np.full(self._candidates.size, -1, dtype=np.int32)
        for row, predicates in others.items():
            has_equality = len(predicates) < len(parts[row].elementary)
            self._needed[row] = -1 - len(predicates) if has_equality else len(predicates)
        self._predicates = SatisfiedPredicates(
            graph, ((predicate, row) for row, predicates in others.items() for predicate in predicates)
        )

    def match(self, event: LoweredEvent) -> Rows:
        return self.match_batch([event]).rows

    def match_batch(self, events: Sequence[LoweredEvent]) -> RowTable:
        partial = self._clusters.all_matching(events)
        found = RowTable(*counted(self._predicates.runs(events), self._needed, partial.offsets, partial.rows))
        return self._candidates.all_verified(found, events)
