"""The `naive` engine: evaluates every clause in turn, by the definitions in `kindcast.index.clause`.

It has no state between events and shares no data structure with the other engines. So it is the slow reference against
which they are tested, and a good choice for a few subscriptions.

>>> from kindcast.index.clause import AttributeId, Clause, ColumnId, IntervalTest, LoweredEvent, Predicate
>>> engine = NaiveEngine(ConceptGraph(0))
>>> price, price_as_number = AttributeId(0), ColumnId(0)
>>> cheap = Predicate(price, ((price_as_number, IntervalTest(0.0, 400.0)),))
>>> engine.add(Clause((cheap,), required=frozenset({price})))
0
>>> engine.match(LoweredEvent(frozenset({price}), {price_as_number: (350.0,)})).tolist()
[0]
"""

from typing import cast

import numpy as np
import numpy.typing as npt

from kindcast.index.clause import Clause, ClauseRow, ConceptId, ConceptTest, Key, KeyTest, LoweredEvent, Predicate, Test
from kindcast.index.concept_graph import ConceptGraph
from kindcast.index.engine import Engine
from kindcast.index.errors import UnknownRow

__all__ = ["NaiveEngine", "clause_matches"]


# Evaluation of a clause for an event, for cases that the data structure of an engine cannot decide.
#
# Follows the definitions in `kindcast.index.clause`. Some microseconds per clause.


def clause_matches(graph: ConceptGraph, clause: Clause, event: LoweredEvent) -> bool:
    """Whether `event` has all required and no forbidden attributes of `clause`, and satisfies all its predicates."""
    return (
        clause.required <= event.present
        and clause.forbidden.isdisjoint(event.present)
        and all(_holds(graph, predicate, event) for predicate in clause.predicates)
    )


def _holds(graph: ConceptGraph, predicate: Predicate, event: LoweredEvent) -> bool:
    if predicate.attribute not in event.present:
        return False
    found = any(
        _satisfies(graph, test, value) for column, test in predicate.tests for value in event.values.get(column, ())
    )
    return found is not predicate.negated


def _satisfies(graph: ConceptGraph, test: Test, value: Key) -> bool:
    match test:
        case KeyTest(keys):
            return value in keys
        case ConceptTest(within, below, exactly):
            concept = cast(ConceptId, value)
            above = graph.ancestors(concept)
            return (
                concept in exactly
                or not within.isdisjoint(above)
                or any(upper in below for upper in above if upper != concept)
            )
        case _:
            return test.low <= cast(float, value) <= test.high


class NaiveEngine(Engine):
    """Clauses by row. `match` evaluates every clause."""

    def __init__(self, graph: ConceptGraph) -> None:
        self._graph = graph
        self._clauses: dict[ClauseRow, Clause] = {}
        self._free: set[ClauseRow] = set()

    def __len__(self) -> int:
        return len(self._clauses)

    def add(self, clause: Clause) -> ClauseRow:
        """Stores `clause` at the lowest free row."""
        row = min(self._free, default=ClauseRow(len(self)))
        self._free.discard(row)
        self._clauses[row] = clause
        return row

    def remove(self, row: ClauseRow) -> None:
        """Removes the clause at `row`. Raises `UnknownRow`."""
        if row not in self._clauses:
            raise UnknownRow(row)
        del self._clauses[row]
        self._free.add(row)

    def match(self, event: LoweredEvent) -> npt.NDArray[np.int32]:
        """Returns the rows whose clauses match `event`, in ascending order."""
        rows = sorted(row for row, clause in self._clauses.items() if self._matches(clause, event))
        return np.array(rows, dtype=np.int32)

    def check_invariants(self) -> None:
        """Raises AssertionError if a row is neither stored nor free, or both."""
        rows = range(len(self._clauses) + len(self._free))
        assert sorted([*self._clauses, *self._free]) == list(rows), (self._clauses.keys(), self._free)

    def _matches(self, clause: Clause, event: LoweredEvent) -> bool:
        return (
            clause.required <= event.present
            and not clause.forbidden & event.present
            and all(self._holds(predicate, event) for predicate in clause.predicates)
        )

    def _holds(self, predicate: Predicate, event: LoweredEvent) -> bool:
        if predicate.attribute not in event.present:
            return False
        satisfied = any(
            self._satisfies(value, test) for column, test in predicate.tests for value in event.values.get(column, ())
        )
        return satisfied is not predicate.negated

    def _satisfies(self, value: Key, test: Test) -> bool:
        if isinstance(test, KeyTest):
            return value in test.keys
        if isinstance(test, ConceptTest):
            concept = cast(ConceptId, value)
            ancestors = frozenset(self._graph.ancestors(concept))
            return bool(ancestors & test.within or (ancestors - {concept}) & test.below or concept in test.exactly)
        return test.low <= cast(float, value) <= test.high
