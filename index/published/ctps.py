"""The `ctps` engine: bit sets of rows, narrowed attribute by attribute. Zhang et al., "CTPS", Sci. Prog. 2022.

Each clause has one bit. Matching starts with the rows whose required attributes are all in the event. Every attribute
of the event then removes the rows whose predicate on it fails. The remaining rows match (Algorithm 6).

    event ─▶ Presence.live ─▶ AttributeCopy.narrow for each copy of each attribute present ─▶ Doubt.settle ─▶ rows_of
             errata 4 and 5   errata 2 and 3: concept trees, string maps, GEM regions         exact bounds

| in the paper | here |
|---|---|
| subscription id, `sid` (a bit set of ids) | `ClauseRow`, `RowSet` or `bitarray`: a list while it has few rows |
| `m1`, the trees of attribute names | `Presence`: which rows require an attribute (see below) |
| `m2`, `TreeIndex`, `TreeNode`, `hashTable` | `ConceptTree` and its nodes, per (attribute, copy, column) |
| `m3` and its second-level maps | `StringMap` |
| the any entry of `m3`; `SID` of a tree | `AttributeCopy`'s set of constrained rows |
| `m4`, `GEMIndex`, `cell[y][x]`, `Rm`, `T` | `GemIndex`, `GemIndex.slot`, `Bounds.range`, `SLOTS` |
| Algorithm 1 buildTreeIndex, initTreeIndex | `ConceptGraph` (built once for all columns) |
| Algorithm 2 insertSubscribe | `CtpsEngine.add`, `AttributeCopy.add` |
| Algorithm 3 insertTreeConstraint | `ConceptTree.add` |
| Algorithm 4 insertStringConstraint | `StringMap.add` |
| Algorithm 5 insertGEMConstraint | `GemIndex.add` |
| Algorithm 6 match | `CtpsEngine.match`, `AttributeCopy.narrow` |
| Algorithm 7 treeMatch | `ConceptTree.union_into` |
| Algorithm 8 stringMatch | `StringMap.union_into` |
| Algorithm 9 gemMatch | `GemIndex.union_into`, then `Doubt.settle` |

Attribute hierarchies are applied when an event is brought into canonical form: each pair is copied to every attribute
above its own. So the walk up `m1` becomes the test whether the event has an attribute.

The paper has conjunctions of "this concept or beneath", "this string" and one interval. This engine adds `below` and
`is` (additional bit sets of a node), alternatives over several columns, negation (separate copies, whose matched rows
are removed) and forbidden attributes (`Presence`).

`AttributeCopy` is one copy of the indexes of an attribute. It finds the rows that satisfy a predicate on the attribute.

CTPS has one index per attribute. Two predicates of a subscription on the same attribute become an OR (trees and
strings) or contradict each other (GEM); this is erratum 3. Here a copy holds at most one predicate of each row, and a
second predicate goes to another copy. Within a copy all sets are united, because one value that satisfies one test is
enough:

    event value ─▶ column read as concept ─▶ ConceptTree ─┐
    event value ─▶ column read as text ────▶ StringMap ───┼─ OR ─▶ matched        live &= ~constrained | matched
    event value ─▶ column read as number ──▶ GemIndex … ──┘                       (negated: live &= ~matched)

Erratum 2: the rows of all values of the attribute are united first, followed by one AND with `live`. An AND for each
pair would require that every value satisfies the predicate.

`Presence` is the first filter, by the attributes that a row requires and forbids.

CTPS as printed starts with all bits set and reads only the pairs of the event. So deleted rows match (erratum 4), and
so do rows that constrain an attribute that the event lacks (erratum 5). Here matching starts with the live rows, and
keeps those whose required attributes are all present and whose forbidden attributes are all absent.

The simple form, `live &= ~required[a]` for every known attribute *a* that the event lacks, costs one operation for each
of possibly thousands of attributes. This is avoided in three ways:

* The result depends only on the set of known attributes that are present, and the events of a stream repeat these sets.
  So results are cached per set until the next change.
* If few known attributes are absent, they are subtracted as above.
* Otherwise the *present* attributes are counted for all rows at once in bit planes: plane *i* has bit *i* of the count
  of each row, and adding an attribute is an addition with carry. Rows with as many attributes as they require are kept:

      row            0 1 2 3
      count, bit 0   1 0 1 0        needed, bit 0   1 0 0 0       rows 0 and 1 have all attributes,
      count, bit 1   0 1 1 0        needed, bit 1   0 1 1 1       rows 2 and 3 lack some
"""

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np
import numpy.typing as npt
from bitarray import bitarray

from kindcast.index.clause import (
    AttributeId,
    Clause,
    ClauseRow,
    ColumnId,
    ConceptId,
    ConceptTest,
    Key,
    KeyTest,
    LoweredEvent,
    Predicate,
    Test,
    can_hold,
)
from kindcast.index.concept_graph import ConceptGraph
from kindcast.index.engine import Engine
from kindcast.index.errors import UnknownRow
from kindcast.index.published.ctps_rows import (
    FIRST_CAPACITY,
    ConceptTree,
    GemIndex,
    RowSet,
    StringMap,
    clear_rows,
    empty_bits,
    rows_of,
)

__all__ = ["CtpsEngine", "Presence"]


@dataclass(slots=True)
class _ColumnTests:
    """The tests of one row on one column, as alternatives."""

    concepts: ConceptTest = field(default_factory=ConceptTest)
    keys: frozenset[Key] = frozenset()
    intervals: list[tuple[float, float]] = field(default_factory=list)


class _ColumnIndex:
    """The indexes of one column. The intervals of a row are in separate GEM layers."""

    __slots__ = ("capacity", "keys", "layers", "tree")

    def __init__(self, graph: ConceptGraph, capacity: int) -> None:
        self.capacity = capacity
        self.tree = ConceptTree(graph, capacity)
        self.keys = StringMap(capacity)
        self.layers: list[GemIndex] = []

    def add(self, row: int, tests: _ColumnTests) -> None:
        self.tree.add(row, tests.concepts)
        self.keys.add(row, tests.keys)
        for place, (low, high) in enumerate(tests.intervals):
            if place == len(self.layers):
                self.layers.append(GemIndex(self.capacity))
            self.layers[place].add(row, low, high)

    def remove(self, row: int, tests: _ColumnTests) -> None:
        self.tree.remove(row, tests.concepts)
        self.keys.remove(row, tests.keys)
        for layer in self.layers[: len(tests.intervals)]:
            layer.remove(row)
        while self.layers and not self.layers[-1]:
            self.layers.pop()

    def parts(self) -> tuple[ConceptTree | StringMap | GemIndex, ...]:
        return self.tree, self.keys, *self.layers

    def is_empty(self) -> bool:
        return not any(self.parts())

    def grow(self, capacity: int) -> None:
        self.capacity = capacity
        for part in self.parts():
            part.grow(capacity)


@dataclass(frozen=True, slots=True)
class Doubt:
    """Rows of a copy that have a bound in the slot of a value, with the (index, value) pairs that decide them."""

    rows: bitarray
    layers: list[tuple[GemIndex, float]]
    negated: bool

    def settle(self, live: bitarray) -> None:
        """Algorithm 9, lines 11 to 30. Compares the bounds of the doubtful rows that are still in `live`, and removes
        the rows whose predicate fails from `live`, in place. Can be called only once."""
        doubtful = self.rows
        doubtful &= live
        rows = rows_of(doubtful)
        if rows.size:
            held = np.zeros(rows.size, dtype=np.bool_)
            for layer, value in self.layers:
                held |= layer.holding(rows, value)
            clear_rows(live, rows[held] if self.negated else rows[~held])


class AttributeCopy:
    """At most one predicate per row. All are on one attribute, and all are positive or all are negated.

    Invariant: a row is in an index if and only if its predicate has that test, and in `constrained` if and only if it
    has a predicate here. `narrow` costs the look-ups of the event's values, one union for each set found, and one AND.
    """

    def __init__(self, graph: ConceptGraph, capacity: int, *, negated: bool) -> None:
        self._graph = graph
        self._capacity = capacity
        self._negated = negated
        self._constrained = RowSet(capacity)
        self._columns: dict[ColumnId, _ColumnIndex] = {}

    def __len__(self) -> int:
        """The number of rows that have a predicate here."""
        return len(self._constrained)

    def add(self, row: int, predicates: Iterable[Predicate]) -> None:
        """Algorithm 2 for one attribute: indexes the tests of `row`. Several predicates are treated as their
        disjunction, which is correct for negated predicates: none of p and none of q is none of (p or q)."""
        self._constrained.add(row)
        for column, tests in _by_column(predicates).items():
            index = self._columns.get(column)
            if index is None:
                index = self._columns[column] = _ColumnIndex(self._graph, self._capacity)
            index.add(row, tests)

    def remove(self, row: int, predicates: Iterable[Predicate]) -> None:
        """Reverts `add(row, predicates)`."""
        self._constrained.discard(row)
        for column, tests in _by_column(predicates).items():
            index = self._columns[column]
            index.remove(row, tests)
            if index.is_empty():
                del self._columns[column]

    def narrow(self, live: bitarray, values: Mapping[ColumnId, tuple[Key, ...]]) -> Doubt | None:
        """Algorithm 6 for one attribute of the event. Removes from `live`, in place, the rows whose predicate fails, as
        far as bit sets can decide. Rows whose bounds must be compared stay in `live`, and are returned."""
        matched = empty_bits(self._capacity)
        layers: list[tuple[GemIndex, float]] = []
        for column, index in self._columns.items():
            found = values.get(column)
            if not found:
                continue
            if index.tree:
                for value in found:
                    index.tree.union_into(matched, cast(ConceptId, value))
            if index.keys:
                for value in found:
                    index.keys.union_into(matched, value)
            layers += [(layer, cast(float, value)) for layer in index.layers for value in found]
        if not layers:
            self._keep(live, matched)
            return None
        perhaps = empty_bits(self._capacity)
        for layer, value in layers:
            layer.union_into(matched, perhaps, value)
        possible = matched | perhaps
        doubtful = possible ^ matched  # rows that match by another test of the same predicate are decided
        self._keep(live, matched if self._negated else possible)
        return Doubt(doubtful, layers, self._negated)

    def _keep(self, live: bitarray, matched: bitarray) -> None:
        if self._negated:
            matched.invert()
            live &= matched
        else:
            self._constrained.keep_matched(live, matched)

    def grow(self, capacity: int) -> None:
        """Makes room for rows below `capacity`."""
        self._capacity = capacity
        self._constrained.grow(capacity)
        for index in self._columns.values():
            index.grow(capacity)

    def check_invariants(self, expected: Mapping[int, Iterable[Predicate]]) -> None:
        """Raises AssertionError if an invariant is violated. `expected` maps each row to its predicates here."""
        # Exactly the rows that have a predicate here are marked.
        assert self._constrained.rows() == sorted(expected), (self._constrained.rows(), expected)
        self._constrained.check_invariants()
        # The indexes are equal to new ones with the same predicates: nothing of removed rows is left.
        fresh = AttributeCopy(self._graph, self._capacity, negated=self._negated)
        for row, predicates in sorted(expected.items()):
            fresh.add(row, predicates)
        assert self._contents() == fresh._contents(), (self._contents(), fresh._contents())
        # Each index is consistent.
        for index in self._columns.values():
            for part in index.parts():
                part.check_invariants()

    def _contents(self) -> dict[object, object]:
        return {
            column: (
                sorted(index.tree.contents()),
                dict(index.keys.contents()),  # as a mapping, because 0.0 and -0.0 are one key, in either order
                [layer.contents() for layer in index.layers],
            )
            for column, index in self._columns.items()
        }


def _by_column(predicates: Iterable[Predicate]) -> dict[ColumnId, _ColumnTests]:
    """Unites the satisfiable tests of `predicates` by column, without duplicate concepts, keys and intervals."""
    united: dict[ColumnId, _ColumnTests] = {}
    for column, test in _tests(predicates):
        tests = united.setdefault(column, _ColumnTests())
        if isinstance(test, ConceptTest):
            known = tests.concepts
            tests.concepts = ConceptTest(
                known.within | test.within, known.below | test.below, known.exactly | test.exactly
            )
        elif isinstance(test, KeyTest):
            tests.keys |= test.keys
        elif (test.low, test.high) not in tests.intervals:
            tests.intervals.append((test.low, test.high))
    return united


def _tests(predicates: Iterable[Predicate]) -> Iterable[tuple[ColumnId, Test]]:
    for predicate in predicates:
        for column, test in predicate.tests:
            if can_hold(test):
                yield column, test


REMEMBERED_BYTES = 1 << 24
"""Maximum memory for cached results: 16 MB are some 1,000 sets of attributes at 10⁵ rows."""
COUNTING_COST = 6
"""Bit operations to count one present attribute: two for each of about three planes. Subtracting an attribute costs one
operation."""


class Presence:
    """The live rows, with the attributes that each of them requires and forbids.

    Invariants: `required[a]` and `forbidden[a]` are never empty and hold live rows only; bit *r* of plane *i* of
    `needed` is bit *i* of the number of attributes that row *r* requires; cached results are equal to new results of
    `_find`.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._live = empty_bits(capacity)
        self._required: dict[AttributeId, RowSet] = {}
        self._forbidden: dict[AttributeId, RowSet] = {}
        self._needed: list[bitarray] = []
        self._remembered: dict[frozenset[AttributeId], bitarray] = {}

    def add(self, row: int, required: frozenset[AttributeId], forbidden: frozenset[AttributeId]) -> None:
        """Makes `row` live. It must not be live yet."""
        self._remembered.clear()
        self._live[row] = 1
        for attributes, sets in ((required, self._required), (forbidden, self._forbidden)):
            for attribute in attributes:
                if attribute not in sets:
                    sets[attribute] = RowSet(self._capacity)
                sets[attribute].add(row)
        self._write_need(row, len(required))

    def remove(self, row: int, required: frozenset[AttributeId], forbidden: frozenset[AttributeId]) -> None:
        """Reverts `add` with the same arguments."""
        self._remembered.clear()
        self._live[row] = 0
        for attributes, sets in ((required, self._required), (forbidden, self._forbidden)):
            for attribute in attributes:
                sets[attribute].discard(row)
                if not sets[attribute]:
                    del sets[attribute]
        self._write_need(row, 0)

    def live(self, present: frozenset[AttributeId]) -> bitarray:
        """Returns the rows that an event with the attributes `present` can match. The caller may change the bits."""
        required, forbidden = self._required, self._forbidden
        known = frozenset([a for a in present if a in required or a in forbidden])
        found = self._remembered.get(known)
        if found is None:
            found = self._find(known)
            if (len(self._remembered) + 1) * self._capacity > REMEMBERED_BYTES * 8:
                self._remembered.clear()
            self._remembered[known] = found
        return found.copy()

    def grow(self, capacity: int) -> None:
        """Makes room for rows below `capacity`."""
        more = empty_bits(capacity - self._capacity)
        for bits in (self._live, *self._needed):
            bits.extend(more)
        for sets in (self._required, self._forbidden):
            for rows in sets.values():
                rows.grow(capacity)
        self._remembered.clear()
        self._capacity = capacity

    def check_invariants(self, expected: dict[int, tuple[frozenset[AttributeId], frozenset[AttributeId]]]) -> None:
        """Raises AssertionError if an invariant is violated. `expected` maps each live row to its attributes (required,
        forbidden)."""
        # Exactly the stored rows are live.
        assert list(self._live.search(1)) == sorted(expected), (self._live, expected)
        # Each attribute has exactly the rows that name it.
        for which, sets in enumerate((self._required, self._forbidden)):
            rows_of_attribute: dict[AttributeId, list[int]] = {}
            for row in sorted(expected):
                for attribute in expected[row][which]:
                    rows_of_attribute.setdefault(attribute, []).append(row)
            assert {a: rows.rows() for a, rows in sets.items()} == rows_of_attribute, (which, sets)
            for rows in sets.values():
                rows.check_invariants()
        # The planes encode the number of required attributes; rows without a clause require none.
        for row in range(self._capacity):
            need = sum(plane[row] << place for place, plane in enumerate(self._needed))
            assert need == len(expected.get(row, ((),))[0]), (row, need)
        # Cached results are correct.
        for known, bits in self._remembered.items():
            assert bits == self._find(known), (known, bits)

    def _write_need(self, row: int, need: int) -> None:
        while need >> len(self._needed):
            self._needed.append(empty_bits(self._capacity))
        for place, plane in enumerate(self._needed):
            plane[row] = need >> place & 1

    def _find(self, present: frozenset[AttributeId]) -> bitarray:
        live = self._live.copy()
        wanted = [attribute for attribute in present if attribute in self._required]
        if len(self._required) - len(wanted) <= COUNTING_COST * len(wanted):
            for attribute, rows in self._required.items():
                if attribute not in present:
                    rows.subtract_from(live)
        else:
            self._keep_satisfied(live, [self._required[attribute] for attribute in wanted])
        for attribute in present:
            if attribute in self._forbidden:
                self._forbidden[attribute].subtract_from(live)
        return live

    def _keep_satisfied(self, live: bitarray, wanted: Sequence[RowSet]) -> None:
        """Keeps in `live` the rows that are in as many sets of `wanted` as they have required attributes."""
        counts = _counted(wanted, self._capacity)
        for place, needed in enumerate(self._needed):
            same = needed ^ counts[place] if place < len(counts) else needed.copy()
            same.invert()
            live &= same


def _counted(sets: Iterable[RowSet], capacity: int) -> list[bitarray]:
    """Counts for each row the `sets` that contain it. Returns the counts as bit planes, lowest bit first."""
    planes: list[bitarray] = []
    for each in sets:
        carry = empty_bits(capacity)
        each.union_into(carry)
        for plane in planes:
            overflow = plane & carry
            plane ^= carry
            carry = overflow
            if not carry.any():
                break
        else:
            planes.append(carry)
    return planes


CopyKey = tuple[bool, int]
"""The copy of an attribute: (negated, number)."""


@dataclass(frozen=True, slots=True)
class _Placement:
    """The copies that hold the predicates of a clause. It depends on the clause only, for `add` and `remove` alike."""

    required: frozenset[AttributeId]
    copies: dict[AttributeId, dict[CopyKey, list[Predicate]]]


class CtpsEngine(Engine):
    """Exact matching on bit sets.

    Invariant: every structure holds bits of stored rows only, as their clauses require; so no bit of a free row is set,
    and the row can be reused. The capacity is a power of two and doubles when it is full.

    Cost of `match` with capacity N: one pass over N bits for each copy of each attribute of the event and for each set
    of rows that a value selects; 10 to 20 ns for each live row that has a bound in the slot of a value; 10 to 45 ns for
    each match. Absent attributes cost nothing if an event with the same attributes was matched since the last change.
    `add` and `remove` cost some 10 µs for each test of the clause.
    """

    def __init__(self, graph: ConceptGraph) -> None:
        self._graph = graph
        self._capacity = FIRST_CAPACITY
        self._clauses: list[Clause | None] = []
        self._free: list[ClauseRow] = []
        self._presence = Presence(FIRST_CAPACITY)
        self._copies: dict[AttributeId, dict[CopyKey, AttributeCopy]] = {}

    def __len__(self) -> int:
        return len(self._clauses) - len(self._free)

    def add(self, clause: Clause) -> ClauseRow:
        """Algorithm 2: indexes `clause` and returns its row, which is the lowest free row."""
        if self._free:
            row = heapq.heappop(self._free)
            self._clauses[row] = clause
        else:
            row = ClauseRow(len(self._clauses))
            self._clauses.append(clause)
            if row >= self._capacity:
                self._grow()
        placement = _place(clause)
        self._presence.add(row, placement.required, clause.forbidden)
        for attribute, placed in placement.copies.items():
            copies = self._copies.setdefault(attribute, {})
            for key, predicates in placed.items():
                if key not in copies:
                    copies[key] = AttributeCopy(self._graph, self._capacity, negated=key[0])
                copies[key].add(row, predicates)
        return row

    def remove(self, row: ClauseRow) -> None:
        """Clears all bits of `row`, so that it can be reused. Raises `UnknownRow`."""
        clause = self._clauses[row] if 0 <= row < len(self._clauses) else None
        if clause is None:
            raise UnknownRow(row)
        placement = _place(clause)
        self._presence.remove(row, placement.required, clause.forbidden)
        for attribute, placed in placement.copies.items():
            copies = self._copies[attribute]
            for key, predicates in placed.items():
                copies[key].remove(row, predicates)
                if not copies[key]:
                    del copies[key]
            if not copies:
                del self._copies[attribute]
        self._clauses[row] = None
        heapq.heappush(self._free, row)

    def match(self, event: LoweredEvent) -> npt.NDArray[np.int32]:
        """Algorithm 6: returns the rows whose clauses match `event`, ascending. The hot path of this engine."""
        live = self._presence.live(event.present)
        doubts: list[Doubt] = []
        copies_by_attribute, values = self._copies, event.values
        for attribute in event.present:
            for copy in copies_by_attribute.get(attribute, {}).values():
                doubt = copy.narrow(live, values)
                if doubt is not None:
                    doubts.append(doubt)
        for doubt in doubts:  # last, because this compares live rows one by one
            doubt.settle(live)
        return rows_of(live)

    def check_invariants(self) -> None:
        """Raises AssertionError if a structural invariant is violated."""
        stored = {ClauseRow(row): clause for row, clause in enumerate(self._clauses) if clause is not None}
        placements = {row: _place(clause) for row, clause in stored.items()}
        # Rows are either stored or free, and fit the capacity, a power of two.
        assert sorted(self._free) == sorted(set(range(len(self._clauses))) - stored.keys()), self._free
        assert len(self._clauses) <= self._capacity == 1 << (self._capacity.bit_length() - 1), self._capacity
        # Presence holds exactly the stored rows and their attributes.
        self._presence.check_invariants({row: (placements[row].required, stored[row].forbidden) for row in stored})
        # Each copy holds exactly the predicates of the clauses; no copy is empty.
        expected: dict[AttributeId, dict[CopyKey, dict[int, list[Predicate]]]] = {}
        for row, placement in placements.items():
            for attribute, placed in placement.copies.items():
                for key, predicates in placed.items():
                    expected.setdefault(attribute, {}).setdefault(key, {})[row] = predicates
        assert {a: set(copies) for a, copies in self._copies.items()} == {a: set(e) for a, e in expected.items()}
        for attribute, copies in self._copies.items():
            for key, copy in copies.items():
                copy.check_invariants(expected[attribute][key])

    def _grow(self) -> None:
        self._capacity *= 2
        self._presence.grow(self._capacity)
        for copies in self._copies.values():
            for copy in copies.values():
                copy.grow(self._capacity)


def _place(clause: Clause) -> _Placement:
    """Assigns each positive predicate to a separate copy of its attribute, in order (erratum 3), and all negated
    predicates of an attribute to one copy."""
    copies: dict[AttributeId, dict[CopyKey, list[Predicate]]] = {}
    for predicate in dict.fromkeys(clause.predicates):
        placed = copies.setdefault(predicate.attribute, {})
        if predicate.negated:
            placed.setdefault((True, 0), []).append(predicate)
        else:
            placed[False, sum(not negated for negated, _ in placed)] = [predicate]
    return _Placement(clause.required | copies.keys(), copies)
