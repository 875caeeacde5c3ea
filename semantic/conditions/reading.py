"""How a predicate reads a value: which of the value's readings it looks at, and the test it puts to that reading.

docs/matching-semantics.md, rule 9: the predicate decides how a value is read, so no subscription changes what another
means. One table of checks serves both roads: `kindcast.semantic.conditions.lowering` turns them into columns of the
index, and `kindcast.semantic.conditions.evaluation` asks them of one event at a time.

    price <= 400            → ("number", IntervalTest(-inf, 400))
    grade >= "B"            → ("text", KeyTest({"A", "B"}))       where grade is an enumeration with this order
    price in (3, "x")       → ("number", KeyTest({3.0})), ("text", KeyTest({"x"}))
    target isa Computer     → ("concept", ConceptTest(within={17}))
    target part_of Heart    → ("concept", ConceptTest(within={1042}))     the shadow of Heart in part_of
    name startswith "HP"    → no check that a column can answer: None, verified on the candidates
"""

import math
from collections.abc import Iterator
from dataclasses import replace

from kindcast.index.clause import ConceptId, ConceptTest, IntervalTest, Key, KeyTest, Test
from kindcast.semantic.model import (
    Between,
    Comparison,
    Constant,
    ConstantValue,
    Instant,
    KindTest,
    Membership,
    Predicate,
    Quantity,
    RelationTest,
    Term,
    Value,
)
from kindcast.semantic.units.instants import parse_instant
from kindcast.semantic.vocabulary.enumerations import Enumeration
from kindcast.semantic.vocabulary.vocabulary import Vocabulary

__all__ = ["Check", "Reading", "checks_of", "enumeration_of", "readings_of"]

Reading = str
"""`text` (the root word of a string), `number`, `boolean`, `instant`, `concept`, or `amount:` and the dimension of a
quantity."""

Check = tuple[Reading, Test]


def checks_of(predicate: Predicate, vocabulary: Vocabulary, array: str = "") -> tuple[Check, ...] | None:
    """The checks of which one must hold on one value, or None where no column can decide (texts, attributes compared).

    An empty tuple means that the predicate can never hold, nor its negation: all its concepts, its relation or its
    member of an enumeration are gone (rule 14).
    `predicate` is resolved, in negation normal form: `!=` does not occur. Inside `some`, `array` is the whole name of
    the array.
    """
    name = getattr(predicate, "attribute", "")
    declared_as = vocabulary.attributes.declared_as(name, array)
    if declared_as != name:
        predicate = replace(predicate, attribute=declared_as)  # type: ignore[arg-type]  # it has one
    match predicate:
        case KindTest(test=test, terms=terms):
            concepts = _concepts(terms, vocabulary)
            return (("concept", _concept_test(test, concepts)),) if concepts else ()
        case RelationTest(relation=relation, terms=terms):
            concepts = _concepts(terms, vocabulary) if relation in vocabulary.relations else frozenset()
            return (("concept", _relation_test(relation, concepts, vocabulary)),) if concepts else ()
        case Comparison(attribute, "=", Constant() as operand):
            return _equal(attribute, (operand.value,), vocabulary)
        case Membership(attribute, constants):
            return _equal(attribute, tuple(constant.value for constant in constants), vocabulary)
        case Comparison(attribute, order, Constant(value=str(bound))) if listed := enumeration_of(
            attribute, vocabulary
        ):
            return _members(listed, ((order, bound),), vocabulary)
        case Between(attribute, Constant(value=str(least)), Constant(value=str(most)), closed) if listed := (
            enumeration_of(attribute, vocabulary)
        ):
            ends = (">" if closed[0] == "(" else ">=", least), ("<" if closed[1] == ")" else "<=", most)
            return _members(listed, ends, vocabulary)
        case Comparison(attribute, order, Constant() as operand):
            point = _point(attribute, operand.value, vocabulary)
            if point is None:
                return None
            reading, number = point
            low, high = (-math.inf, number) if order in ("<", "<=") else (number, math.inf)
            return ((reading, _interval(low, high, open_low=order == ">", open_high=order == "<")),)
        case Between(attribute, low, high, closed):
            first = _point(attribute, low.value, vocabulary)
            last = _point(attribute, high.value, vocabulary)
            if first is None or last is None:
                return None
            if first[0] != last[0]:
                return ()
            interval = _interval(first[1], last[1], open_low=closed[0] == "(", open_high=closed[1] == ")")
            return ((first[0], interval),)
        case _:
            return None


def readings_of(value: Value) -> Iterator[tuple[Reading, Key]]:
    """Every (reading, key) of `value`; a concept of several candidates gives several."""
    if value.root_word is not None:
        yield "text", value.root_word
    if value.number is not None:
        yield "number", value.number
    if value.boolean is not None:
        yield "boolean", value.boolean
    if value.instant is not None:
        yield "instant", float(value.instant)
    if value.amount is not None:
        yield f"amount:{value.dimension}", value.amount
    for concept in value.concepts:
        yield "concept", concept


def enumeration_of(attribute: str, vocabulary: Vocabulary) -> Enumeration | None:
    """The members that `attribute` is declared to have, if it is declared as an enumeration."""
    declaration = vocabulary.attributes.declaration(attribute)
    return declaration.enumeration if declaration is not None else None


def _members(listed: Enumeration, ends: tuple[tuple[str, str], ...], vocabulary: Vocabulary) -> tuple[Check, ...]:
    """Rule 9: the members that compare so with every end; a bound that is no member has no order, so nothing does."""
    bounds = [(order, vocabulary.root_word(bound)) for order, bound in ends]
    if not listed.is_ordered or any(bound not in listed.members for _, bound in bounds):
        return ()
    return (("text", KeyTest(frozenset.intersection(*(listed.satisfying(*each) for each in bounds)))),)


def _concepts(terms: tuple[Term, ...], vocabulary: Vocabulary) -> frozenset[ConceptId]:
    found = (vocabulary.concept(term.iri) for term in terms if term.iri is not None)
    return frozenset(concept for concept in found if concept is not None)


def _concept_test(test: str, concepts: frozenset[ConceptId]) -> ConceptTest:
    match test:
        case "isa":
            return ConceptTest(within=concepts)
        case "below":
            return ConceptTest(below=concepts)
        case _:
            return ConceptTest(exactly=concepts)


def _relation_test(relation: str, concepts: frozenset[ConceptId], vocabulary: Vocabulary) -> ConceptTest:
    """Rule 11; a concept to which the relation never leads is there all the same, so the negation may hold."""
    shadows = (vocabulary.relations.shadow(relation, concept) for concept in concepts)
    return ConceptTest(within=frozenset(shadow for shadow in shadows if shadow is not None))


def _equal(attribute: str, constants: tuple[ConstantValue, ...], vocabulary: Vocabulary) -> tuple[Check, ...]:
    """One `KeyTest` a reading, so that `in` over mixed constants stays one predicate."""
    keys: dict[Reading, set[Key]] = {}
    concepts: set[ConceptId] = set()
    for constant in constants:
        match constant:
            case Term():
                concepts |= _concepts((constant,), vocabulary)
            case bool():
                keys.setdefault("boolean", set()).add(constant)
            case str():
                keys.setdefault("text", set()).add(vocabulary.root_word(constant))
            case _:
                point = _point(attribute, constant, vocabulary)
                if point is not None:
                    keys.setdefault(point[0], set()).add(point[1])
    checks: list[Check] = [(reading, KeyTest(frozenset(found))) for reading, found in keys.items()]
    if concepts:
        checks.append(("concept", ConceptTest(exactly=frozenset(concepts))))
    return tuple(checks)


def _point(attribute: str, constant: ConstantValue, vocabulary: Vocabulary) -> tuple[Reading, float] | None:
    """Where `constant` lies on which axis; None for a string that is no date-time (it compares by code point)."""
    match constant:
        case Quantity(number, unit):
            measure = vocabulary.units.measure(number, unit)
            return f"amount:{measure.dimension}", measure.amount
        case Instant(text) | str(text):
            instant = parse_instant(text)
            return None if instant is None else ("instant", float(instant))
        case bool() | Term():
            return None
        case _:
            declaration = vocabulary.attributes.declaration(attribute)
            if declaration is not None and declaration.unit is not None:
                measure = vocabulary.units.measure(constant, declaration.unit)
                return f"amount:{measure.dimension}", measure.amount
            return "number", float(constant)


def _interval(low: float, high: float, *, open_low: bool, open_high: bool) -> IntervalTest:
    """Closed ends: the next double inside stands for an open one."""
    return IntervalTest(
        math.nextafter(low, math.inf) if open_low else low,
        math.nextafter(high, -math.inf) if open_high else high,
    )
