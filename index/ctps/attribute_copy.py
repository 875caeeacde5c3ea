"""One copy of an attribute's indexes: which rows does one predicate on that attribute let through?

CTPS keeps one index an attribute, where two predicates of a subscription on the same attribute become an OR (trees and
strings) or contradict each other (GEM); that is erratum 3. Here a copy holds at most one predicate of each row, and a
second one goes to another copy. Within a copy everything unites, because one value that satisfies one test is enough:

    event value ─▶ column read as concept ─▶ ConceptTree ─┐
    event value ─▶ column read as text ────▶ StringMap ───┼─ OR ─▶ matched        live &= ~constrained | matched
    event value ─▶ column read as number ──▶ GemIndex … ──┘                       (negated: live &= ~matched)

Erratum 2: all values of the attribute are united first and then meet `live` in one AND; an AND for each pair would
demand that every value satisfy the predicate.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import cast

import numpy as np
from bitarray import bitarray

from kindcast.index.clause import ColumnId, ConceptId, ConceptTest, IntervalTest, Key, KeyTest, Predicate, Test
from kindcast.index.concept_graph import ConceptGraph
from kindcast.index.ctps.concept_tree import ConceptTree
from kindcast.index.ctps.gem import GemIndex
from kindcast.index.ctps.row_bits import RowSet, clear_rows, empty_bits, rows_of
from kindcast.index.ctps.string_map import StringMap

__all__ = ["AttributeCopy", "Doubt"]


@dataclass(slots=True)
class _ColumnTests:
    """What one row asks of one column: any of these."""

    concepts: ConceptTest = field(default_factory=ConceptTest)
    keys: frozenset[Key] = frozenset()
    intervals: list[tuple[float, float]] = field(default_factory=list)


class _ColumnIndex:
    """The indexes over one column. A row with several intervals has each in a GEM layer of its own."""

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
    """Rows of one copy that have a bound in the slot of a value, and the (index, value) pairs that decide them."""

    rows: bitarray
    layers: list[tuple[GemIndex, float]]
    negated: bool

    def settle(self, live: bitarray) -> None:
        """Algorithm 9, lines 11 to 30: check the bounds of the doubtful rows that are still in `live`, and take from
        it, in place, those whose predicate fails. Uses itself up."""
        doubtful = self.rows
        doubtful &= live
        rows = rows_of(doubtful)
        if rows.size:
            held = np.zeros(rows.size, dtype=np.bool_)
            for layer, value in self.layers:
                held |= layer.holding(rows, value)
            clear_rows(live, rows[held] if self.negated else rows[~held])


class AttributeCopy:
    """At most one predicate a row, all on one attribute, all positive or all negated.

    Invariant: a row is in an index exactly if its predicate has that test, and in `constrained` exactly if it has a
    predicate here. `narrow` costs the look-ups of the event's values, one union for each index set hit, one AND.
    """

    def __init__(self, graph: ConceptGraph, capacity: int, *, negated: bool) -> None:
        self._graph = graph
        self._capacity = capacity
        self._negated = negated
        self._constrained = RowSet(capacity)
        self._columns: dict[ColumnId, _ColumnIndex] = {}

    def __len__(self) -> int:
        """How many rows have a predicate here."""
        return len(self._constrained)

    def add(self, row: int, predicates: Iterable[Predicate]) -> None:
        """Algorithm 2 for one attribute: index the tests of `row`. Several predicates count as one that holds when
        any of them does, which is right for negated ones: none of p and none of q is none of (p or q)."""
        self._constrained.add(row)
        for column, tests in _by_column(predicates).items():
            index = self._columns.get(column)
            if index is None:
                index = self._columns[column] = _ColumnIndex(self._graph, self._capacity)
            index.add(row, tests)

    def remove(self, row: int, predicates: Iterable[Predicate]) -> None:
        """Undo `add(row, predicates)`."""
        self._constrained.discard(row)
        for column, tests in _by_column(predicates).items():
            index = self._columns[column]
            index.remove(row, tests)
            if index.is_empty():
                del self._columns[column]

    def narrow(self, live: bitarray, values: Mapping[ColumnId, tuple[Key, ...]]) -> Doubt | None:
        """Algorithm 6 for one attribute that the event has: take from `live`, in place, the rows whose predicate
        fails as far as bit sets can tell. Rows that only a look at their bounds can decide stay in `live` and are
        returned."""
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
        doubtful = possible ^ matched  # what another test of the same predicate has settled is no longer in doubt
        self._keep(live, matched if self._negated else possible)
        return Doubt(doubtful, layers, self._negated)

    def _keep(self, live: bitarray, matched: bitarray) -> None:
        if self._negated:
            matched.invert()
            live &= matched
        else:
            self._constrained.keep_matched(live, matched)

    def grow(self, capacity: int) -> None:
        """Make room for rows below `capacity`."""
        self._capacity = capacity
        self._constrained.grow(capacity)
        for index in self._columns.values():
            index.grow(capacity)

    def check_invariants(self, expected: Mapping[int, Iterable[Predicate]]) -> None:
        """Raise AssertionError if an invariant is broken; `expected` is row → its predicates here."""
        # The rows that have a predicate here are marked, and nobody else.
        assert self._constrained.rows() == sorted(expected), (self._constrained.rows(), expected)
        self._constrained.check_invariants()
        # Built afresh from the same predicates, the indexes hold the same: nothing is left of removed rows.
        fresh = AttributeCopy(self._graph, self._capacity, negated=self._negated)
        for row, predicates in sorted(expected.items()):
            fresh.add(row, predicates)
        assert self._contents() == fresh._contents(), (self._contents(), fresh._contents())
        # Each index is sound by itself.
        for index in self._columns.values():
            for part in index.parts():
                part.check_invariants()

    def _contents(self) -> dict[object, object]:
        return {
            column: (
                sorted(index.tree.contents()),
                dict(index.keys.contents()),  # as a mapping: 0.0 and -0.0 are one key, whichever came first
                [layer.contents() for layer in index.layers],
            )
            for column, index in self._columns.items()
        }


def _by_column(predicates: Iterable[Predicate]) -> dict[ColumnId, _ColumnTests]:
    """All tests of `predicates` that some value can satisfy, united by column: each concept, key and interval once."""
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
            if _is_satisfiable(test):
                yield column, test


def _is_satisfiable(test: Test) -> bool:
    if isinstance(test, IntervalTest):
        return test.low <= test.high
    return bool(test.keys) if isinstance(test, KeyTest) else bool(test.within or test.below or test.exactly)
