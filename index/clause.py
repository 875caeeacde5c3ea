"""The input of engines: lowered clauses and lowered events, in integers, floats and keys.

`kindcast.semantic.conditions.lowering` creates these from subscriptions and events, which engines do not know. A
*column* is one attribute in one reading (as concept, text, number, instant, …), so values of different types are never
compared.

    subscription ──compile──▶ Clause(required, forbidden, predicates)     event ──lower──▶ LoweredEvent(present, values)
                                          │                                                          column → values
                                          └── Predicate(attribute, tests, negated)
                                                            └── (column, ConceptTest | KeyTest | IntervalTest)

Meaning, for an event *e* and a clause *c* (docs/matching-semantics.md, rules 6 to 8 and 16):

* *c* matches if every required attribute is in `e.present`, no forbidden attribute is, and every predicate holds;
* a predicate holds if some value of the column of some test satisfies that test; a negated predicate holds if its
  attribute is present and no value of the column of any test satisfies that test.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NewType

__all__ = [
    "AttributeId",
    "Clause",
    "ClauseRow",
    "ColumnId",
    "ConceptId",
    "ConceptTest",
    "IntervalTest",
    "Key",
    "KeyTest",
    "LoweredEvent",
    "Predicate",
    "Test",
    "can_hold",
]

AttributeId = NewType("AttributeId", int)
"""The number of an attribute name."""
ColumnId = NewType("ColumnId", int)
"""The number of a column: one attribute in one reading."""
ConceptId = NewType("ConceptId", int)
"""The number of a concept of the vocabulary, 0 … len(ConceptGraph) - 1."""
ClauseRow = NewType("ClauseRow", int)
"""The number under which an engine stores a clause. A row is reused after its clause is removed."""

Key = str | int | float | bool
"""A value that a `KeyTest` compares by equality. All keys of a column have the same type."""


@dataclass(frozen=True, slots=True)
class ConceptTest:
    """Holds for a concept `v` if one of three conditions is true. The sets contain ids of `ConceptGraph`.

    * `within`: `v` is one of these or beneath one (`isa`);
    * `below`: `v` is properly beneath one of these (`below`);
    * `exactly`: `v` is one of these (`is`).
    """

    within: frozenset[ConceptId] = frozenset()
    below: frozenset[ConceptId] = frozenset()
    exactly: frozenset[ConceptId] = frozenset()


@dataclass(frozen=True, slots=True)
class KeyTest:
    """Holds for a value that is equal to one of `keys`. For a column of numbers, the keys are floats."""

    keys: frozenset[Key]


@dataclass(frozen=True, slots=True)
class IntervalTest:
    """Holds for a float `v` with `low <= v <= high`. Both ends are closed; open ends were moved by `nextafter`, and
    missing ends are infinite. `low > high` is legal and never holds."""

    low: float
    high: float


Test = ConceptTest | KeyTest | IntervalTest


def can_hold(test: Test) -> bool:
    """Whether any value satisfies `test`."""
    if isinstance(test, IntervalTest):
        return test.low <= test.high
    return bool(test.keys) if isinstance(test, KeyTest) else bool(test.within or test.below or test.exactly)


@dataclass(frozen=True, slots=True)
class Predicate:
    """A condition on one attribute: some value satisfies one of `tests`, or, if `negated`, no value does."""

    attribute: AttributeId
    tests: tuple[tuple[ColumnId, Test], ...]
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Clause:
    """A conjunction. `required` includes the attributes of all predicates, also of negated ones. `forbidden` are the
    attributes that must be absent. A clause without predicates and required attributes is legal; it matches every event
    that has no forbidden attribute."""

    predicates: tuple[Predicate, ...] = ()
    required: frozenset[AttributeId] = frozenset()
    forbidden: frozenset[AttributeId] = frozenset()


@dataclass(frozen=True, slots=True)
class LoweredEvent:
    """The values of one event by column: concept ids, keys, or floats, in tuples without duplicates. Engines find the
    ancestors of concepts. `present` has every attribute with a value, also attributes without a column."""

    present: frozenset[AttributeId] = frozenset()
    values: Mapping[ColumnId, tuple[Key, ...]] = field(default_factory=dict)
