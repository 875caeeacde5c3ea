"""Does an event match an expression? Asked of one expression and one event at a time, as the rules say it.

`expression` is made of `kindcast.semantic.model` values whose terms have their `iri`; the event is raw JSON. There are
no clauses: negation travels inwards as a flag (rule 8), and everything else is evaluated where it stands.

Where the rules leave a choice, the oracle states it: `some` needs an array with an object in it.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

from kindcast.semantic.model import (
    All,
    AnyOf,
    AttributeRef,
    Between,
    Comparison,
    Constant,
    Event,
    EveryOf,
    EveryValue,
    Expression,
    Instance,
    Instant,
    KindTest,
    Membership,
    Not,
    Presence,
    Quantity,
    RelationTest,
    SomeOf,
    Term,
    TextTest,
)
from tests.oracle.derived import with_derived
from tests.oracle.linked_data import event_of
from tests.oracle.reading import (
    Dimension,
    Reading,
    attributes_of,
    dates,
    elements_of,
    instant,
    measure,
    of_epoch,
    of_kind,
)
from tests.oracle.world import World

__all__ = ["holds", "matching"]


def matching(subscriptions: Mapping[str, Expression], event: Mapping[str, Any] | Event, world: World) -> set[str]:
    """The ids of the subscriptions that `event` matches; a bare mapping is the event's data."""
    event = event if isinstance(event, Event) else Event(event)
    whole = _Evaluation(world, _told_by(event), event.context, whole=True)
    return {name for name, expression in subscriptions.items() if whole.holds(expression, negated=False)}


def holds(expression: Expression, event: Mapping[str, Any] | Event, world: World) -> bool:
    """Whether `event` satisfies `expression`."""
    event = event if isinstance(event, Event) else Event(event)
    return _Evaluation(world, _told_by(event), event.context, whole=True).holds(expression, negated=False)


def _told_by(event: Event) -> Any:
    """The data of an event, or the node that it tells of where its data is JSON-LD (rule 20)."""
    is_graph = event.context.get("datacontenttype") == "application/ld+json"
    return (
        event_of(event.data) if is_graph or (isinstance(event.data, dict) and "@context" in event.data) else event.data
    )


class _Evaluation:
    """One event, or one element of an array in it, and the questions put to it."""

    def __init__(
        self,
        world: World,
        data: Any,
        context: Mapping[str, Any],
        *,
        whole: bool = False,
        everywhere: bool = False,
        stated: Any = None,
    ) -> None:
        self.world = world
        self.data = data
        self.inner: dict[str, list[_Evaluation]] = {}
        self.everywhere = everywhere or context.get("datacontenttype") == "application/fhir+json"
        self.attributes = attributes_of(data, context, world, everywhere=self.everywhere, whole=stated)
        if whole:
            self.attributes = with_derived(self.attributes, world, self.aggregate)

    def holds(self, node: Expression, *, negated: bool) -> bool:
        """Whether `node`, or its negation in the sense of rule 8, holds."""
        match node:
            case Not(item):
                return self.holds(item, negated=not negated)
            case All(items):
                return (any if negated else all)(self.holds(item, negated=negated) for item in items)
            case AnyOf(items):
                return (all if negated else any)(self.holds(item, negated=negated) for item in items)
            case Presence(attribute, present):
                return bool(self.values(attribute)) is (present is not negated)
            case Comparison(order="!="):
                return self.holds(replace(node, order="="), negated=not negated)
            case SomeOf(attribute, item):
                if negated and self.asks_what_is_gone(item):
                    return False
                inner = [each.holds(item, negated=False) for each in self.elements(self.world.attribute(attribute))]
                return bool(inner) and any(inner) is not negated
            case EveryOf(attribute, item):
                elements, values = self.elements(self.world.attribute(attribute)), self.values(attribute)
                if (not elements and not values) or (negated and self.asks_what_is_gone(item)):
                    return False
                names = {value.text for each in elements for value in each.values("@id")}
                scalars = [each for each in values if (each.text, each.number, each.boolean) != (None, None, None)]
                fails = [each for each in scalars if each.text is None or each.text not in names]
                every = bool(elements) and not fails and all(each.holds(item, negated=False) for each in elements)
                return every is not negated
            case EveryValue(item):
                values = self.values(item.attribute)
                if not values or self.is_gone(item, negated=negated):
                    return False
                return all(self.holds_on(value, item) for value in values) is not negated
            case Comparison(attribute, order, AttributeRef(other)):
                left, right = self.values(attribute), self.values(other)
                if not left or not right:
                    return False
                return any(self.compares(attribute, other, order, a, b) for a in left for b in right) is not negated
            case _:
                values = self.values(node.attribute)  # type: ignore[union-attr]
                if not values or self.is_gone(node, negated=negated):
                    return False
                return any(self.satisfies(value, node) for value in values) is not negated

    def holds_on(self, value: Reading, node: Any) -> bool:
        """Whether a predicate holds where its attribute has this value alone."""
        match node:
            case Comparison(attribute, order, AttributeRef(other)):
                right, equal = self.values(other), "=" if order == "!=" else order
                found = any(self.compares(attribute, other, equal, value, each) for each in right)
                return bool(right) and found is not (order == "!=")
            case Comparison(order="!="):
                return not self.satisfies(value, replace(node, order="="))
            case _:
                return self.satisfies(value, node)

    def elements(self, name: str) -> list["_Evaluation"]:
        """The elements of the array `name`; of many expressions about one event each is read once."""
        if name not in self.inner:
            elements = elements_of(self.data, name, self.world, everywhere=self.everywhere)
            self.inner[name] = [
                _Evaluation(self.world.inside(name), each, {}, everywhere=self.everywhere, stated=stated)
                for each, stated in elements
            ]
        return self.inner[name]

    def values(self, attribute: str) -> list[Reading]:
        attribute = re.sub(r"<([^>]*)>", lambda found: f"<{self.world.main(found[1])}>", attribute)
        function, _, inner = attribute.removeprefix("ce.").removesuffix(")").partition("(")
        if attribute == f"ce.{function}({inner})":
            return self.aggregate(function, self.world.attribute(inner), self.attributes)
        return self.attributes.get(self.world.attribute(attribute), [])

    def aggregate(self, function: str, name: str, attributes: Mapping[str, list[Reading]]) -> list[Reading]:
        """Rule 26: over occurrences; a quantity in an array, or a node with an IRI, is one, not an element beside
        it."""
        readings = attributes.get(name, [])
        elements = self.elements(name)
        names = {value.text for each in elements for value in each.values("@id")} - {None}
        both = [(r.text, r.number, r.boolean) == (None, None, None) or r.text in names for r in readings]
        others = max(len(elements) - sum(both), 0)
        if function == "count":
            return [Reading(number=len(readings) + others)] if readings or others else []
        if not readings or others:
            return []
        combine = {"sum": _exact_sum, "min": min, "max": max}[function]
        number, amount, moment = None, None, None
        if all(each.amount is not None and each.amount[0] == readings[0].amount[0] for each in readings):  # type: ignore[index]
            amount = readings[0].amount[0], combine([each.amount[1] for each in readings])  # type: ignore[index]
        if all(each.number is not None for each in readings):
            number = combine([each.number for each in readings])
        if amount is None and any(each.amount for each in readings):
            number = None
        if function != "sum" and all(each.instant is not None for each in readings):
            moment = combine([each.instant for each in readings])
        found = Reading(number=number, instant=moment, amount=amount)
        return [] if found == Reading() else [found]

    def is_gone(self, node: Any, *, negated: bool) -> bool:
        """Rule 14: the relation, or all that it asks for, are names that the vocabulary does not have; of a list that
        is negated, one is enough."""
        match node:
            case RelationTest(relation=relation) if self.world.edges(relation) is None:
                return True
            case KindTest(terms=asked) | RelationTest(terms=asked):
                terms: Iterable[Any] = asked
            case Membership(constants=constants):
                terms = [constant.value for constant in constants]
            case Comparison(operand=Constant(value)):
                terms = [value]
            case _:
                return False
        gone = [isinstance(term, Term) and self.meant(term) not in self.world.concepts() for term in terms]
        return any(gone) if negated else all(gone)

    def asks_what_is_gone(self, node: Any) -> bool:
        """Rule 14: whether some predicate of an expression, negated, asks for a name that the vocabulary does not
        have."""
        match node:
            case All(items) | AnyOf(items):
                return any(map(self.asks_what_is_gone, items))
            case Not(item) | EveryValue(item) | SomeOf(_, item) | EveryOf(_, item):
                return self.asks_what_is_gone(item)
            case _:
                return self.is_gone(node, negated=True)

    def meant(self, term: Term) -> str:
        """The name that a stored term has now."""
        iri = self.world.successor(term.iri or term.text)
        return self.known(iri) or iri

    def known(self, iri: str) -> str | None:
        """The name of a concept that `iri` is, or is an alias of."""
        concepts = self.world.concepts()
        return next((each for each in (iri, self.world.main(iri)) if each in concepts), None)

    def satisfies(self, value: Reading, node: Any) -> bool:
        """Whether one value satisfies a positive predicate."""
        match node:
            case KindTest(test=test, terms=terms):
                pairs = [(concept, self.meant(term)) for concept in value.concepts for term in terms]
                stated = [(each, self.meant(term)) for each in value.types for term in terms if test != "is"]
                return any(self.is_kind(concept, test, iri) for concept, iri in pairs) or any(
                    iri in self.world.above(each) for each, iri in stated if iri in self.world.concepts()
                )
            case RelationTest(relation=relation, terms=terms):
                known = [iri for term in terms if (iri := self.meant(term)) in self.world.concepts()]
                kinds = [self.world.kinds(each) for each in value.concepts]
                kinds += [self.world.above(each) for each in value.types]  # the one step to a class was taken
                return any(self.world.related(each, relation, iri) for each in kinds for iri in known)
            case Comparison(attribute, "=", Constant(constant)):
                return self.equals(attribute, value, constant)
            case Comparison(attribute, order, Constant(constant)):
                return self.is_ordered(attribute, value, order, constant)
            case Membership(attribute, constants):
                return any(self.equals(attribute, value, constant.value) for constant in constants)
            case Between(attribute, low, high, closed):
                above, under = ">=" if closed[0] == "[" else ">", "<=" if closed[1] == "]" else "<"
                return any(
                    self.is_ordered(attribute, each, above, low.value)
                    and self.is_ordered(attribute, each, under, high.value)
                    for each in spellings(value)
                )
            case TextTest():
                return any(_text_test(each.text, node) for each in spellings(value) if each.text is not None)
            case _:
                raise NotImplementedError(f"the oracle does not know {node!r}")

    def is_kind(self, concept: str, test: str, iri: str) -> bool:
        """Rule 10: C or beneath, properly beneath, or C itself under any of its names."""
        if test == "is":
            return self.world.same(concept, iri)
        return self.world.isa(concept, iri) and not (test == "below" and self.world.same(concept, iri))

    def equals(self, attribute: str, value: Reading, constant: Any) -> bool:
        """Rule 9 for `=` and `in`."""
        kind = self.kind_of(attribute)
        if kind is not None:
            return of_kind(kind, "=", value.text, constant)
        match constant:
            case Term():
                return any(self.world.same(concept, self.meant(constant)) for concept in value.concepts)
            case Instance(iri):
                meant = self.known(self.world.successor(iri))
                if meant is not None:
                    return any(self.world.same(concept, meant) for concept in value.concepts)
                return bool({value.root, *value.also} & self.world.words(iri))
            case bool():
                return value.boolean is constant
            case str() if instant(constant) is None and self.span_of(attribute, constant) is not None:
                return self.is_ordered(attribute, value, "=", constant)
            case str():
                return bool(self.world.words(constant) & {value.root, *value.also})
            case _:
                return self.is_ordered(attribute, value, "=", constant)

    def is_ordered(self, attribute: str, value: Reading, order: str, constant: Any) -> bool:
        """Rules 9 and 15: numbers with numbers, quantities of one dimension, date-times, strings by code point."""
        kind = self.kind_of(attribute)
        if kind is not None:
            return of_kind(kind, order, value.text, constant)
        members = self.world.members(self.world.attribute(attribute))
        if members and isinstance(constant, str):
            words = {value.root, *value.also}
            return any(self.is_ordered_member(attribute, each, order, self.world.root_word(constant)) for each in words)
        span = self.span_of(attribute, constant)
        if span is not None:
            return _spans(order, _span(value), span)
        match constant:
            case Instant():
                return False
            case str():
                bound = unicodedata.normalize("NFC", constant)
                return any(_ordered(order, each.text, bound) for each in spellings(value))
            case Quantity(number, unit) if value.amounts is not None:
                return _all_amounts(order, value, Reading(amount=measure(number, unit)))
            case Quantity(number, unit):
                return _amounts(order, value.amount, measure(number, unit))
            case _:
                inner = attribute.partition("(")[2].removesuffix(")") if attribute.startswith("ce.") else attribute
                is_count = attribute.startswith("ce.count(")
                unit = None if is_count else self.world.declaration(self.world.attribute(inner or attribute)).unit
                if unit is not None:
                    return _amounts(order, value.amount, measure(constant, unit))
                return _ordered(order, value.number, constant)

    def span_of(self, attribute: str, constant: Any) -> tuple[Any, Any] | None:
        """Rule 26: the ends of a date-time or date; in quotes a date is one where the attribute is declared `instant`,
        where numbers are such as well."""
        is_declared = self.holds_instants(attribute)
        moment, ends = None, None
        match constant:
            case Instant(text):
                moment, ends = instant(text), dates(text, year=False)
            case str():
                moment, ends = instant(constant), dates(constant, year=True) if is_declared else None
            case int() | float() if is_declared and not isinstance(constant, bool):
                moment = of_epoch(constant)
        return (moment, moment) if moment is not None else ends

    def holds_instants(self, attribute: str) -> bool:
        if attribute.startswith(("ce.min(", "ce.max(")):
            attribute = attribute[7:-1]
        return self.world.declaration(self.world.attribute(attribute)).kind == "instant"

    def is_ordered_member(self, attribute: str, left: str | None, order: str, right: str | None) -> bool:
        """Rule 9: two members of an enumeration, by its partial order."""
        name = self.world.attribute(attribute)
        if left is None or right is None or not {left, right} <= self.world.members(name):
            return False
        if order in ("<=", ">=") and left == right:
            return True
        return self.world.is_above(name, *((right, left) if order in ("<", "<=") else (left, right)))

    def kind_of(self, attribute: str) -> str | None:
        """Rule 26: `version` or `ip`, where all comparisons read that."""
        kind = self.world.declaration(self.world.attribute(attribute)).kind
        return kind if kind in ("version", "ip") else None

    def compares(self, attribute: str, other: str, order: str, left: Reading, right: Reading) -> bool:
        """Two published values: of one kind, and in that order (rules 5 and 9)."""
        kind = self.kind_of(attribute) or self.kind_of(other)
        if kind is not None:
            return of_kind(kind, order, left.text, right.text)
        if order != "=" and left.text is not None and right.text is not None:
            listed = [name for name in (attribute, other) if self.world.members(self.world.attribute(name))]
            if listed:
                return all(self.is_ordered_member(name, left.root, order, right.root) for name in listed)
        if left.amounts is not None or right.amounts is not None:
            return _all_amounts(order, left, right)
        is_concept = self.world.declaration(self.world.attribute(attribute)).kind == "concept"
        if order == "=" and is_concept and any(self.world.same(a, b) for a in left.concepts for b in right.concepts):
            return True
        spans = [
            _span(each) if each.instant is not None or self.holds_instants(name) else None
            for name, each in ((attribute, left), (other, right))
        ]
        if spans[0] is not None and spans[1] is not None:
            return _spans(order, spans[0], spans[1])
        if self.is_numeric(attribute, left) and self.is_numeric(other, right):
            if left.amount and right.amount:
                return _amounts(order, left.amount, right.amount)
            return not left.amount and not right.amount and _ordered(order, left.number, right.number)
        if order == "=":
            roots = [{each.root, *each.also} - {None} for each in (left, right)]
            return _ordered("=", left.boolean, right.boolean) or bool(roots[0] & roots[1])
        return any(_ordered(order, a.text, b.text) for a in spellings(left) for b in spellings(right))

    def is_numeric(self, attribute: str, value: Reading) -> bool:
        """Rule 26: a duration is a text unless the attribute is declared with a unit."""
        if value.is_duration and self.world.declaration(self.world.attribute(attribute)).unit is None:
            return False
        return value.is_numeric


def _exact_sum(numbers: list[Any]) -> float:
    return float(sum(Fraction(repr(each)) for each in numbers))


def _span(value: Reading) -> tuple[Any, Any] | None:
    return (value.instant, value.instant) if value.instant is not None else value.dates


def _spans(order: str, left: tuple[Any, Any] | None, right: tuple[Any, Any]) -> bool:
    """Rule 26, word for word; V is left, C is right."""
    if left is None:
        return False
    tests = {
        "<": left[1] < right[0],
        "<=": left[1] <= right[1],
        ">": left[0] > right[1],
        ">=": left[0] >= right[0],
        "=": right[0] <= left[0] and left[1] <= right[1],
    }
    return tests[order]


def spellings(value: Reading) -> list[Reading]:
    """One for each text that tests of text and orders look at (rule 9): published, root word, by patterns (rule 4)."""
    return [replace(value, text=each, root=each, also=frozenset()) for each in (value.text, value.root, *value.also)]


def _all_amounts(order: str, left: Reading, right: Reading) -> bool:
    """Rule 22: whether intervals of amounts compare so; one amount is an interval of itself."""
    ends = [each.amounts or (each.amount and (*each.amount, each.amount[1])) for each in (left, right)]
    if not ends[0] or not ends[1] or ends[0][0] != ends[1][0]:
        return False
    (_, low, high), (_, lowest, highest) = ends
    tests = {
        "<": high < lowest,
        "<=": high <= highest,
        ">": low > highest,
        ">=": low >= lowest,
        "=": lowest <= low and high <= highest,
    }
    return tests[order]


def _amounts(order: str, left: tuple[Dimension, float] | None, right: tuple[Dimension, float] | None) -> bool:
    return left is not None and right is not None and left[0] == right[0] and _ordered(order, left[1], right[1])


def _ordered(order: str, left: Any, right: Any) -> bool:
    """Values of another kind (here: None) satisfy nothing."""
    if left is None or right is None:
        return False
    tests: dict[str, Callable[[Any, Any], bool]] = {
        "=": lambda a, b: a == b,
        "<": lambda a, b: a < b,
        "<=": lambda a, b: a <= b,
        ">": lambda a, b: a > b,
        ">=": lambda a, b: a >= b,
    }
    return bool(tests[order](left, right))


def _text_test(text: str, node: TextTest) -> bool:
    wanted = unicodedata.normalize("NFC", node.text)
    if node.test == "matches":  # the tests keep to patterns that mean the same here and in RE2
        return re.search(wanted, text, re.IGNORECASE if node.nocase else 0) is not None
    if node.nocase:
        text, wanted = (unicodedata.normalize("NFC", each.casefold()) for each in (text, wanted))
    if node.test == "contains":
        return wanted in text
    return text.startswith(wanted) if node.test == "startswith" else text.endswith(wanted)
