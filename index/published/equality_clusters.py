"""Clauses by their equality predicates: the clusters of Le Subscribe, section 3, and `eqsubmatch`.

    clause ─▶ schema: the columns of its equality predicates ─▶ cluster: tuple of operands ─▶ rows

A concept asked for is an equality as well: a value stands for itself and everything above it. A column that stands
twice in a clause stands twice in its schema.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import cast

import numpy as np
import numpy.typing as npt

from index.clause import ClauseRow, ColumnId, ConceptId, Key, LoweredEvent
from index.concept_graph import ConceptGraph
from index.engine import RowTable
from index.published.elementary import Elementary, Equal, Within

__all__ = ["EqualityClusters", "is_equality"]

Rows = npt.NDArray[np.int32]
Place = tuple[bool, ColumnId]
"""Whether a concept is asked for, and where."""


REMEMBERED = 1024
"""Sets of columns whose clusters are remembered; a stream has few."""


def is_equality(predicate: Elementary) -> bool:
    """Whether `predicate` belongs to a cluster."""
    return isinstance(predicate, Equal | Within)


class EqualityClusters:
    """Rows by schema and operands. Immutable. A clause without equality predicates is in none."""

    def __init__(self, graph: ConceptGraph, clauses: Mapping[ClauseRow, Iterable[Elementary]]) -> None:
        self._graph = graph
        found: dict[tuple[Place, ...], dict[tuple[Key, ...], list[int]]] = {}
        for row, predicates in clauses.items():
            operands = sorted(_operand(each) for each in predicates if is_equality(each))
            if operands:
                schema = tuple(place for place, _, _ in operands)
                found.setdefault(schema, {}).setdefault(tuple(key for _, _, key in operands), []).append(row)
        self._clusters = {
            schema: {key: np.array(rows, dtype=np.int32) for key, rows in cluster.items()}
            for schema, cluster in found.items()
        }
        self._covered: dict[frozenset[ColumnId], list[tuple[tuple[Place, ...], dict[tuple[Key, ...], Rows]]]] = {}

    def all_matching(self, events: Sequence[LoweredEvent]) -> RowTable:
        """The rows of each event whose equality predicates all hold, in no order: `eqsubmatch`. One look-up for each
        cluster whose schema the event has, times the combinations of its values and the concepts above them."""
        nothing = np.zeros(0, dtype=np.int32)
        found: list[Rows] = []
        offsets = np.zeros(len(events) + 1, dtype=np.int64)
        for number, event in enumerate(events):
            found += self._matching(event)
            offsets[number + 1] = len(found)
        sizes = np.cumsum([0, *(rows.size for rows in found)])
        return RowTable(sizes[offsets], np.concatenate([nothing, *found]))

    def _matching(self, event: LoweredEvent) -> list[Rows]:
        columns = frozenset(event.values)
        clusters = self._covered.get(columns)
        if clusters is None:
            clusters = [each for each in self._clusters.items() if all(column in columns for _, column in each[0])]
            if len(self._covered) >= REMEMBERED:
                self._covered.clear()
            self._covered[columns] = clusters
        values: dict[Place, tuple[Key, ...]] = {(False, column): keys for column, keys in event.values.items()}
        found = []
        for schema, cluster in clusters:
            choices = [values.get(place) or self._above(place, values) for place in schema]
            for key in product(*choices):
                rows = cluster.get(key)
                if rows is not None:
                    found.append(rows)
        return found

    def _above(self, place: Place, values: dict[Place, tuple[Key, ...]]) -> tuple[Key, ...]:
        """The concepts above the values at `place`; remembered for this event."""
        is_concept, column = place
        known = values.get((False, column), ())
        if not is_concept or not known:
            return ()
        above = {upper for value in known for upper in self._graph.ancestors(cast(ConceptId, value))}
        values[place] = tuple(cast(Iterable[Key], above))
        return values[place]


def _operand(predicate: Elementary) -> tuple[Place, str, Key]:
    """Sorts by place, then by operand, whatever its type."""
    if isinstance(predicate, Equal):
        return (False, predicate.column), repr(predicate.key), predicate.key
    concept = cast(Key, cast(Within, predicate).concept)
    return (True, cast(Within, predicate).column), repr(concept), concept
