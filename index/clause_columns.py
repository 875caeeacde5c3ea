"""Many clauses of one form, their operands in columns: what a bulk of subscriptions is lowered to.

    ClauseColumns ── required, forbidden     the same for all
                  ├─ places                  which clause of the bulk each is
                  └─ tests                   one column each: intervals, keys or concepts, an operand a clause

An engine that is a `BulkEngine` takes them as they are; for any other, `clauses` writes each as a `Clause`. Only tests
that are not negated and ask for one interval, one key or one concept stand in columns.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from index.clause import AttributeId, Clause, ColumnId, ConceptId, ConceptTest, IntervalTest, Key, KeyTest, Predicate
from index.clause import Test as ClauseTest

__all__ = ["ClauseColumns", "ConceptOperands", "IntervalOperands", "KeyOperands", "OperandColumn", "in_order"]


@dataclass(frozen=True, slots=True)
class IntervalOperands:
    """An `IntervalTest` a clause, `low[i] <= v <= high[i]`: both `float64[n]`. With `is_key` the ends are equal,
    and the test is a `KeyTest` of one number."""

    attribute: AttributeId
    column: ColumnId
    low: npt.NDArray[np.float64]
    high: npt.NDArray[np.float64]
    is_key: bool = False

    def test(self, number: int) -> ClauseTest:
        """The test of clause `number`."""
        low = float(self.low[number])
        return KeyTest(frozenset([low])) if self.is_key else IntervalTest(low, float(self.high[number]))


@dataclass(frozen=True, slots=True)
class KeyOperands:
    """A `KeyTest` of one key a clause: `keys[places[i]]`, `places` is `int32[n]`. Keys of one type, none a float."""

    attribute: AttributeId
    column: ColumnId
    keys: Sequence[Key]
    places: npt.NDArray[np.int32]

    def test(self, number: int) -> ClauseTest:
        """The test of clause `number`."""
        return KeyTest(frozenset([self.keys[self.places[number]]]))


@dataclass(frozen=True, slots=True)
class ConceptOperands:
    """A `ConceptTest` of one concept a clause, `int32[n]`: within it, or with `exactly` it alone."""

    attribute: AttributeId
    column: ColumnId
    concepts: npt.NDArray[np.int32]
    exactly: bool = False

    def test(self, number: int) -> ClauseTest:
        """The test of clause `number`."""
        concept = frozenset([ConceptId(int(self.concepts[number]))])
        return ConceptTest(exactly=concept) if self.exactly else ConceptTest(within=concept)


OperandColumn = IntervalOperands | KeyOperands | ConceptOperands


@dataclass(frozen=True, slots=True)
class ClauseColumns:
    """n clauses; `places` is `int64[n]`, ascending: where each stands among all clauses of a bulk."""

    places: npt.NDArray[np.int64]
    required: frozenset[AttributeId]
    forbidden: frozenset[AttributeId]
    tests: tuple[OperandColumn, ...]

    def __len__(self) -> int:
        return self.places.size

    def clause(self, number: int) -> Clause:
        """Clause `number` of these by itself."""
        predicates = (Predicate(each.attribute, ((each.column, each.test(number)),)) for each in self.tests)
        return Clause(tuple(predicates), self.required, self.forbidden)

    def clauses(self) -> Iterator[Clause]:
        """Each by itself, in order: some µs a test."""
        return map(self.clause, range(len(self)))


def in_order(clauses: Iterable[tuple[int, Clause]], columns: Iterable[ClauseColumns], count: int) -> list[Clause]:
    """All `count` clauses of a bulk by their places: (place, clause) each, and those in columns."""
    found = dict(clauses)
    for each in columns:
        found.update(zip(each.places.tolist(), each.clauses(), strict=True))
    return [found[place] for place in range(count)]
