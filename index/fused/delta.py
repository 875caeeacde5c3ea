"""The newest rows, not frozen yet: programs over the whole clause, asked one by one.

add ─▶ required and forbidden attributes, a program        match ─▶ those whose attributes fit ─▶ their programs
    ─▶ its places in a segment, for when it is frozen

A delta that is full is *sealed*: nothing is added to it any more, while a segment is made out of it.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from index.clause import AttributeId, Clause
from index.compiling import compiled
from index.fused.arrays import Bytes, Codes, Ints
from index.fused.columns import Columns
from index.fused.conjuncts import Parts
from index.fused.graph_arrays import GraphArrays
from index.fused.grouping import Place, places_of
from index.fused.programs import (
    BatchArrays,
    ProgramArrays,
    Programs,
    ask_programs,
    mark_concepts,
    unmark_concepts,
)
from index.fused.rest import GrowingRest, Rest

__all__ = ["Delta", "DeltaArrays", "match_delta"]


class DeltaArrays(NamedTuple):
    """n entries; the arrays may be longer."""

    rows: Codes  # [n] -1 where the row has been removed
    attribute_from: Ints  # [2n+1] required, then forbidden attributes of each entry
    attributes: Ints


class Delta:
    """Clauses by row. Invariant: `len` counts the entries that are not removed."""

    def __init__(self, columns: Columns) -> None:
        self.places: dict[int, Sequence[Place]] = {}
        """Where each row will stand in a segment."""
        self._columns = columns
        self._programs = Programs()
        self._rest = GrowingRest()
        self._entries: dict[int, int] = {}
        self._rows = np.full(16, -1, dtype=np.int32)
        self._attribute_from: list[int] = [0]
        self._attributes: list[int] = []
        self._arrays: tuple[DeltaArrays, ProgramArrays] | None = None

    def __len__(self) -> int:
        return len(self.places)

    def __contains__(self, row: int) -> bool:
        return row in self.places

    @property
    def entries(self) -> int:
        """How many entries an event is asked, removed ones included."""
        return len(self._programs)

    @property
    def nbytes(self) -> int:
        """About what it takes: its arrays, and some 300 bytes of objects a row."""
        arrays = (*self._programs.arrays(), self._rows)
        return sum(array.nbytes for array in arrays) + self._rest.nbytes + 300 * self.entries

    def add(self, row: int, clause: Clause, parts: Parts) -> None:
        """`parts` are those of `clause`. Some 20 to 40 µs, by the length of the clause."""
        entry = self._programs.add(dict.fromkeys(clause.predicates), self._columns)
        if entry == self._rows.size:
            self._rows = np.concatenate([self._rows, np.full_like(self._rows, -1)])
        self._rows[entry] = row
        self._entries[row] = entry
        for attributes in (clause.required, clause.forbidden):
            self._attributes += attributes
            self._attribute_from.append(len(self._attributes))
        self.places[row] = places_of(parts, self._columns)
        if parts.rest:
            self._rest.add(row, parts.rest, self._columns)
        self._arrays = None

    def remove(self, row: int) -> None:
        """Forget `row`, which is here."""
        del self.places[row]
        self._rest.discard(row)
        self._rows[self._entries.pop(row)] = -1

    def arrays(self) -> tuple[DeltaArrays, ProgramArrays]:
        """What kernels read; valid until the next `add`."""
        if self._arrays is None:
            entries = DeltaArrays(
                self._rows,
                np.array(self._attribute_from, dtype=np.int64),
                np.array(self._attributes, dtype=np.int64),
            )
            self._arrays = entries, self._programs.arrays()
        return self._arrays

    def fitting(self, present: frozenset[AttributeId]) -> int:
        """How many clauses an event with just these attributes has to be asked."""
        count = 0
        for entry in range(self.entries):
            first, middle, last = self._attribute_from[2 * entry : 2 * entry + 3]
            required, forbidden = self._attributes[first:middle], self._attributes[middle:last]
            count += self._rows[entry] >= 0 and present.issuperset(required) and present.isdisjoint(forbidden)
        return count

    def rest(self) -> Rest | None:
        """What remains to be asked of rows once they are frozen."""
        return self._rest.rest()

    def check_invariants(self) -> None:
        """Raise AssertionError if a structural invariant is broken."""
        live = {int(row): entry for entry, row in enumerate(self._rows[: self.entries]) if row >= 0}
        # Entries, their rows and their places agree.
        assert live == self._entries, (live, self._entries)
        assert set(live) == set(self.places), (live, self.places)
        assert len(self._attribute_from) == 2 * self.entries + 1, (self._attribute_from, self.entries)
        # What remains to be asked is asked where the place says so.
        assert all((row in self._rest) == places[0][0][3] for row, places in self.places.items()), self.places


@compiled
def match_delta(
    delta: DeltaArrays,
    programs: ProgramArrays,
    count: int,
    graph: GraphArrays,
    batch: BatchArrays,
    kinds: Codes,
    present_from: Ints,
    present: Ints,
    marked: Bytes,
    above: Codes,
    buffer: Codes,
    starts: Ints,
) -> Codes:
    """Ask the first `count` entries of every event; kind k has the attributes `present[present_from[k] : …]`. In one
    pass, results as `match_segment` gives them."""
    most = 0
    for i in range(delta.attribute_from[2 * count]):
        most = max(most, delta.attributes[i] + 1)
    has = np.zeros(most + 1, dtype=np.uint8)
    fits = np.zeros((present_from.size - 1, count), dtype=np.uint8)
    for kind in range(present_from.size - 1):
        for i in range(present_from[kind], present_from[kind + 1]):
            if present[i] < most:
                has[present[i]] = 1
        for entry in range(count):
            good = delta.rows[entry] >= 0
            for i in range(delta.attribute_from[2 * entry], delta.attribute_from[2 * entry + 1]):
                good &= has[delta.attributes[i]] != 0
            for i in range(delta.attribute_from[2 * entry + 1], delta.attribute_from[2 * entry + 2]):
                good &= has[delta.attributes[i]] == 0
            fits[kind, entry] = good
        for i in range(present_from[kind], present_from[kind + 1]):
            if present[i] < most:
                has[present[i]] = 0
    rows = delta.rows
    asked = np.empty(count + 1, dtype=np.int32)
    holds = np.empty(count + 1, dtype=np.uint8)
    used = 0
    for event in range(kinds.size):
        starts[event] = used
        if used + count > buffer.size:
            larger = np.empty(2 * buffer.size + count, dtype=np.int32)
            larger[:used] = buffer[:used]
            buffer = larger
        mark_concepts(graph, batch, event, marked, above)
        fitting = 0
        for entry in range(count):
            asked[fitting] = entry
            fitting += fits[kinds[event], entry]
        ask_programs(programs, graph, batch, event, marked, above, asked, fitting, holds)
        for place in range(fitting):
            buffer[used] = rows[asked[place]]
            used += holds[place]
        unmark_concepts(graph, batch, marked, above)
    starts[kinds.size] = used
    return buffer
