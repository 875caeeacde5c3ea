"""The `equality` engine: the equality-preferred algorithm of Fabret et al., "Le Subscribe", section 3, Figure 4.

Clauses are clustered by their equality predicates, so that one look-up a cluster finds those whose equalities hold
(line 3, `eqsubmatch`). Their other predicates are counted as in `counting` (lines 4 to 11), and compared only for the
clauses that were found, and for those without any equality (`neqsub`, lines 12 to 16).
"""

from collections.abc import Mapping

import numpy as np

from index.clause import Clause, ClauseRow, LoweredEvent
from index.concept_graph import ConceptGraph
from index.published.built_engine import FEWEST_FRESH, BuiltEngine, Rows
from index.published.candidates import Candidates
from index.published.equality_clusters import EqualityClusters, is_equality
from index.published.satisfied import SatisfiedPredicates, hits

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
        self._needed = np.zeros(self._candidates.size, dtype=np.int32)
        for row, predicates in others.items():
            self._needed[row] = len(predicates)
        self._needed_alone = np.full(self._candidates.size, -1, dtype=np.int32)  # -1: has an equality
        for row, each in parts.items():
            if not any(map(is_equality, each.elementary)):
                self._needed_alone[row] = self._needed[row]
        self._predicates = SatisfiedPredicates(
            graph, ((predicate, row) for row, predicates in others.items() for predicate in predicates)
        )

    def match(self, event: LoweredEvent) -> Rows:
        partial = np.concatenate([np.zeros(0, dtype=np.int32), *self._clusters.matching(event)])
        hitcount = hits(self._predicates.runs(event), self._candidates.size)
        alone = np.flatnonzero(hitcount == self._needed_alone).astype(np.int32)
        complete = partial[hitcount[partial] == self._needed[partial]]
        return self._candidates.verified(np.concatenate([complete, alone]), event)
