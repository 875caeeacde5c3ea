"""The input of engines: lowered clauses and lowered events, in integers, floats and keys.

`kindcast.semantic.conditions.lowering` makes these from subscriptions and events; engines know nothing above them. A
*column* is one attribute read in one way (as concept, text, number, instant, …), so values of different kinds never
meet in one comparison.

    subscription ──compile──▶ Clause(required, forbidden, predicates)     event ──lower──▶ LoweredEvent(present, values)
                                          │                                                          column → values
                                          └── Predicate(attribute, tests, negated)
                                                            └── (column, ConceptTest | KeyTest | IntervalTest)

Meaning, for an event *e* and a clause *c* (docs/matching-semantics.md, rules 6 to 8 and 16):

* *c* matches when every required attribute is in `e.present`, no forbidden one is, and every predicate holds;
* a predicate holds when some value of some test's column satisfies that test; a negated one when its attribute is
  present and no value of any of its columns satisfies its test.
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
]

AttributeId = NewType("AttributeId", int)
"""An attribute name, numbered."""
ColumnId = NewType("ColumnId", int)
"""One attribute read in one way, numbered."""
ConceptId = NewType("ConceptId", int)
"""A concept of the vocabulary, numbered 0 … len(ConceptGraph) - 1."""
ClauseRow = NewType("ClauseRow", int)
"""Where an engine keeps a clause. A row is used again after its clause is removed."""

Key = str | int | float | bool
"""What a `KeyTest` compares by equality; one column holds keys of one type only."""


@dataclass(frozen=True, slots=True)
class ConceptTest:
    """Holds on a concept `v` when one of three sets says so (ids of `ConceptGraph`).

    * `within`: `v` is one of these or beneath one (`isa`);
    * `below`: `v` is properly beneath one of these (`below`);
    * `exactly`: `v` is one of these (`is`).
    """

    within: frozenset[ConceptId] = frozenset()
    below: frozenset[ConceptId] = frozenset()
    exactly: frozenset[ConceptId] = frozenset()


@dataclass(frozen=True, slots=True)
class KeyTest:
    """Holds on a value equal to one of `keys`. On a column of numbers the keys are floats."""

    keys: frozenset[Key]


@dataclass(frozen=True, slots=True)
class IntervalTest:
    """Holds on a float `v` with `low <= v <= high`. Both ends are closed; an open end has been moved by `nextafter`, a
    missing one is infinite. `low > high` is legal and never holds."""

    low: float
    high: float


Test = ConceptTest | KeyTest | IntervalTest


@dataclass(frozen=True, slots=True)
class Predicate:
    """One condition on one attribute: some value satisfies one of `tests`, or, if `negated`, none does."""

    attribute: AttributeId
    tests: tuple[tuple[ColumnId, Test], ...]
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Clause:
    """A conjunction. `required` includes the attribute of every predicate, also of the negated ones; `forbidden` are
    the attributes that must be absent. No predicates and nothing required is legal: such a clause matches every event
    that has no forbidden attribute."""

    predicates: tuple[Predicate, ...] = ()
    required: frozenset[AttributeId] = frozenset()
    forbidden: frozenset[AttributeId] = frozenset()


@dataclass(frozen=True, slots=True)
class LoweredEvent:
    """The values of one event by column, each tuple without duplicates: concept ids as read (their ancestors are the
    engine's business), keys, or floats. `present` has every attribute that has a value, also one that no column
    reads."""

    present: frozenset[AttributeId] = frozenset()
    values: Mapping[ColumnId, tuple[Key, ...]] = field(default_factory=dict)
