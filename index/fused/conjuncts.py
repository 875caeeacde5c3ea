"""Splitting of a clause: conjuncts that are stored in segment records, and residual predicates checked later.

    Clause ──▶ required, forbidden      the attribute sets: which cluster
           ──▶ alternatives             conjunctions of conjuncts, one of which holds on every event that matches
           ──▶ rest                     residual predicates, checked by a program on the remaining rows

| test of a predicate that is not negated | conjunct |
|---|---|
| interval, one key that is a number | `ORDERED`: low, high |
| one key of another type; exactly one concept | `KEY`: the key |
| within one concept | `CONCEPT`: the concept |
| properly below one concept | the same, and the predicate itself in the rest |

Several predicates on one attribute are several conjuncts, each of which some value has to satisfy (erratum 3). Sets
and predicates of several tests become alternatives, each a row of its own in a segment, as long as there are few; what
is left, and every negated predicate, is the rest.
"""

from dataclasses import dataclass
from typing import cast

from kindcast.index.clause import AttributeId, Clause, ColumnId, IntervalTest, Key, KeyTest, Predicate, Test

__all__ = ["CONCEPT", "KEY", "ORDERED", "Conjunct", "Parts", "can_hold", "decompose"]

ORDERED, KEY, CONCEPT = 0, 1, 2
"""How a column is read: by its order, by equality, by the concepts above. In this order within a cluster."""
MOST_ALTERNATIVES = 16
"""Rows that one clause may take in a segment: more cost memory, and a long set is seldom selective."""

Conjunct = tuple[int, ColumnId, Key, Key]
"""How, where, and the two ends; equal ends for keys and concepts."""


@dataclass(frozen=True, slots=True)
class Parts:
    """A clause taken apart; see above. The conjuncts of an alternative are sorted by how and where they are read."""

    required: frozenset[AttributeId]
    forbidden: frozenset[AttributeId]
    alternatives: tuple[tuple[Conjunct, ...], ...]
    rest: tuple[Predicate, ...]


def decompose(clause: Clause) -> Parts | None:
    """`clause` taken apart, or None if no event can match it."""
    required = clause.required
    if not required.isdisjoint(clause.forbidden):
        return None
    alternatives: list[tuple[Conjunct, ...]] = [()]
    rest: list[Predicate] = []
    several: list[tuple[Predicate, list[Conjunct]]] = []
    for predicate in dict.fromkeys(clause.predicates):
        if predicate.negated:
            if any(can_hold(test) for _, test in predicate.tests):
                rest.append(predicate)
            continue
        options, exact = _options(predicate)
        if not options:
            return None
        if not exact:
            rest.append(predicate)
        if len(options) > 1:
            several.append((predicate, options))
        else:
            alternatives[0] += (options[0],)
    several.sort(key=lambda each: len(each[1]))
    for predicate, options in several:
        if len(alternatives) * len(options) <= MOST_ALTERNATIVES:
            alternatives = [(*known, option) for known in alternatives for option in options]
        elif predicate not in rest:
            rest.append(predicate)
    ordered = (tuple(sorted(dict.fromkeys(each), key=_place)) for each in alternatives)
    return Parts(required, clause.forbidden, tuple(dict.fromkeys(ordered)), tuple(rest))


def can_hold(test: Test) -> bool:
    """Whether any value satisfies `test`."""
    if isinstance(test, IntervalTest):
        return test.low <= test.high
    return bool(test.keys) if isinstance(test, KeyTest) else bool(test.within or test.below or test.exactly)


def _options(predicate: Predicate) -> tuple[list[Conjunct], bool]:
    """Conjuncts of which one holds wherever `predicate` does, and whether the reverse is true as well."""
    exact = True
    options: dict[Conjunct, None] = {}
    for column, test in predicate.tests:
        if isinstance(test, IntervalTest):
            if test.low <= test.high:
                options[ORDERED, column, test.low, test.high] = None
        elif isinstance(test, KeyTest):
            for key in test.keys:
                options[ORDERED if type(key) is float else KEY, column, key, key] = None
        else:
            exact = exact and not test.below
            for concept in (*test.within, *test.below):
                options[CONCEPT, column, cast(Key, concept), cast(Key, concept)] = None
            for concept in test.exactly:
                options[KEY, column, cast(Key, concept), cast(Key, concept)] = None
    return list(options), exact


def _place(conjunct: Conjunct) -> tuple[int, int]:
    return conjunct[0], conjunct[1]
