"""The `quarantine` engine: equality-preferred with nonequality quarantining, "Le Subscribe", section 3, Figure 5.

Clauses with an equality predicate are found by `eqsubmatch` and then verified one by one, their other predicates stored
with them (lines 3 to 8). Only those without any equality are counted (lines 9 to 21): they are in quarantine.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from index.clause import Clause, ClauseRow, LoweredEvent
from index.concept_graph import ConceptGraph
from index.engine import RowTable, row_table
from index.published.built_engine import FEWEST_FRESH, BuiltEngine, Rows
from index.published.candidates import Candidates
from index.published.conditions import Conditions
from index.published.equality_clusters import EqualityClusters, is_equality
from index.published.satisfied import SatisfiedPredicates, counted

__all__ = ["QuarantineEngine"]


class QuarantineEngine(BuiltEngine):
    """Exact matching, equalities first, the rest of them verified. `match` costs a look-up for each cluster, a check
    for each clause found there, and counting for the clauses without equality."""

    def __init__(self, graph: ConceptGraph, *, fewest_fresh: int = FEWEST_FRESH) -> None:
        super().__init__(graph, _Quarantining, fewest_fresh)


class _Quarantining:
    """Figure 5 over some clauses."""

    def __init__(self, graph: ConceptGraph, clauses: Mapping[ClauseRow, Clause]) -> None:
        self._candidates = Candidates(graph, clauses)
        parts = self._candidates.parts
        self._clusters = EqualityClusters(graph, {row: each.elementary for row, each in parts.items()})
        quarantined = {row for row, each in parts.items() if not any(map(is_equality, each.elementary))}
        self._conditions = Conditions(
            {
                row: [one for one in each.elementary if not is_equality(one)]
                for row, each in parts.items()
                if row not in quarantined
            },
            self._candidates.size,
        )
        self._quarantined = np.array(sorted(quarantined), dtype=np.int32)
        self._needed = np.array([len(parts[row].elementary) for row in sorted(quarantined)], dtype=np.int32)
        number = {row: at for at, row in enumerate(sorted(quarantined))}
        self._predicates = SatisfiedPredicates(
            graph, ((predicate, number[row]) for row in quarantined for predicate in parts[row].elementary)
        )

    def match(self, event: LoweredEvent) -> Rows:
        return self.match_batch([event]).rows

    def match_batch(self, events: Sequence[LoweredEvent]) -> RowTable:
        partial = self._clusters.all_matching(events)
        offsets, numbers = counted(self._predicates.runs(events), self._needed)
        alone = self._quarantined[numbers]
        found = []
        for number, event in enumerate(events):
            equal = partial.rows[partial.offsets[number] : partial.offsets[number + 1]]
            own = alone[offsets[number] : offsets[number + 1]]
            found.append(np.sort(np.concatenate([self._conditions.holding(equal, event), own])))
        return self._candidates.all_verified(row_table(found), events)
