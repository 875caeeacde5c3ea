"""What a clause means, asked of one event: for what an engine's structure cannot decide by itself.

Straight from the definitions in `index.clause`; some microseconds a clause.
"""

from typing import cast

from index.clause import Clause, ConceptId, ConceptTest, Key, KeyTest, LoweredEvent, Predicate, Test
from index.concept_graph import ConceptGraph

__all__ = ["clause_matches"]


def clause_matches(graph: ConceptGraph, clause: Clause, event: LoweredEvent) -> bool:
    """Whether `event` has what `clause` requires, nothing that it forbids, and satisfies every predicate."""
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
