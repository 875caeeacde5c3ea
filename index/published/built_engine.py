"""An engine whose structure is built over many clauses at once, and never changed.

    add ─▶ fresh clauses, asked by definition ─▶ enough of them: a structure over all clauses
    remove ─▶ out of the fresh ones, or taken out of what the structure finds

So `matching_tree` is the published structure and its matching, nothing else. Adding costs the building of the
structure, spread over as many additions as an eighth of the clauses.
"""

import heapq
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from index.clause import Clause, ClauseRow, LoweredEvent
from index.concept_graph import ConceptGraph
from index.definition import clause_matches
from index.engine import RowTable, row_table
from index.errors import UnknownRow

__all__ = ["FEWEST_FRESH", "BatchStructure", "BuiltEngine", "Structure"]

Rows = npt.NDArray[np.int32]

FEWEST_FRESH = 64
"""Fresh clauses before a structure is built at all: asking them costs some 100 µs an event."""
FRESH_SHARE = 8
"""A structure is built again when the fresh clauses are an eighth of all."""


class Structure(Protocol):
    """A published structure over some clauses, by row. Immutable."""

    def match(self, event: LoweredEvent) -> Rows:
        """The rows whose clauses match `event`, in any order, each once."""


@runtime_checkable
class BatchStructure(Structure, Protocol):
    """A structure that takes many events in one call."""

    def match_batch(self, events: Sequence[LoweredEvent]) -> RowTable:
        """`match` for each event, in order, the rows ascending."""


class StructureFactory(Protocol):
    def __call__(self, graph: ConceptGraph, clauses: Mapping[ClauseRow, Clause]) -> Structure: ...


class BuiltEngine:
    """Invariant: a stored row is fresh or in the structure, and never both; rows of the structure that were removed, or
    used again, are in `_gone`."""

    def __init__(self, graph: ConceptGraph, build: StructureFactory, fewest_fresh: int) -> None:
        self._graph = graph
        self._build = build
        self._fewest_fresh = fewest_fresh
        self._clauses: dict[ClauseRow, Clause] = {}
        self._free: list[ClauseRow] = []
        self._fresh: dict[ClauseRow, Clause] = {}
        self._built: set[ClauseRow] = set()
        self._gone = np.zeros(0, dtype=np.bool_)
        self._structure: Structure | None = None

    def __len__(self) -> int:
        return len(self._clauses)

    def add(self, clause: Clause) -> ClauseRow:
        """Store `clause` at the lowest free row."""
        row = heapq.heappop(self._free) if self._free else ClauseRow(len(self._clauses))
        self._clauses[row] = clause
        self._fresh[row] = clause
        return row

    def add_many(self, clauses: Iterable[Clause]) -> list[ClauseRow]:
        """`add` each in turn; the structure is built when the next event comes."""
        return [self.add(clause) for clause in clauses]

    def remove(self, row: ClauseRow) -> None:
        """Forget the clause at `row`. Raises `UnknownRow`."""
        if self._clauses.pop(row, None) is None:
            raise UnknownRow(row)
        if self._fresh.pop(row, None) is None:
            self._built.discard(row)
            self._gone[row] = True
        heapq.heappush(self._free, row)

    def match(self, event: LoweredEvent) -> Rows:
        """The rows whose clauses match `event`, ascending."""
        self._settle()
        fresh = [row for row, clause in self._fresh.items() if clause_matches(self._graph, clause, event)]
        if self._structure is None:
            return np.array(sorted(fresh), dtype=np.int32)
        found = self._structure.match(event)
        found = found[~self._gone[found]]
        return np.sort(np.concatenate([found, np.array(fresh, dtype=np.int32)]))

    def match_batch(self, events: Sequence[LoweredEvent]) -> RowTable:
        """`match` for each event, in order."""
        self._settle()
        if self._fresh or not isinstance(self._structure, BatchStructure):
            return row_table([self.match(event) for event in events])
        return self._alive(self._structure.match_batch(events))

    def check_invariants(self) -> None:
        """Raise AssertionError if the books of rows disagree."""
        assert self._fresh.keys().isdisjoint(self._built), (self._fresh.keys(), self._built)
        assert self._fresh.keys() | self._built == self._clauses.keys(), (self._fresh, self._built)
        assert sorted([*self._clauses, *self._free]) == list(range(len(self._clauses) + len(self._free)))
        assert not any(self._gone[row] for row in self._built), self._gone

    def _settle(self) -> None:
        """Build the structure again if too many clauses are not in it."""
        if len(self._fresh) > max(self._fewest_fresh, len(self._clauses) // FRESH_SHARE):
            self._rebuild()

    def _alive(self, found: RowTable) -> RowTable:
        """What the structure found, without the rows that were removed."""
        kept = ~self._gone[found.rows]
        if kept.all():
            return found
        offsets = np.concatenate([[0], np.cumsum(kept)])[found.offsets].astype(np.int64)
        return RowTable(offsets, found.rows[kept])

    def _rebuild(self) -> None:
        self._structure = self._build(self._graph, self._clauses)
        self._built = set(self._clauses)
        self._gone = np.zeros(len(self._clauses) + len(self._free), dtype=np.bool_)
        self._fresh = {}
