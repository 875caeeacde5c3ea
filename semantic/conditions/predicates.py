"""What a predicate means: which readings of a value it uses, the test of each reading, and its verdict on one event.

docs/matching-semantics.md, rules 3 and 6 to 9. The predicate decides how a value is read (rule 9), so no subscription
changes what another one means. `checks_of` is the one table of checks:
`kindcast.semantic.conditions.lowering` turns the checks into columns of the index, for millions of clauses at once, and
`AtomEvaluator` makes the same checks for one atom and one event. Besides, `AtomEvaluator` decides what no column can:
tests of text, comparisons of two attributes, conditions on one element of an array. Aggregates (`count(items)`, rule
26) range over occurrences, so that [5, 5] has the sum 10; without numbers of one dimension an aggregate is absent.

    price <= 400            → ("number", IntervalTest(-inf, 400))
    grade >= "B"            → ("text", KeyTest({"A", "B"}))       if grade is an enumeration with this order
    price in (3, "x")       → ("number", KeyTest({3.0})), ("text", KeyTest({"x"}))
    target isa Computer     → ("concept", ConceptTest(within={17}))
    target part_of Heart    → ("concept", ConceptTest(within={1042}))     the shadow of Heart in part_of
    name startswith "HP"    → None: no column can answer; verified on the candidates
"""

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import Any

from kindcast.index.clause import ConceptId, ConceptTest, IntervalTest, Key, KeyTest, Test
from kindcast.semantic.conditions.normal_form import Atom, elements_of, normal_form
from kindcast.semantic.errors import InvalidQuantity
from kindcast.semantic.model import (
    All,
    AnyOf,
    AttributeRef,
    Between,
    CanonicalEvent,
    Comparison,
    Constant,
    ConstantValue,
    EveryOf,
    EveryValue,
    Expression,
    Instance,
    Instant,
    KindTest,
    Membership,
    Not,
    Predicate,
    Presence,
    Quantity,
    RelationTest,
    SomeOf,
    Term,
    TextTest,
    Value,
    aggregate_of,
)
from kindcast.semantic.unicode_text import nfc
from kindcast.semantic.units.kinds import (
    LONGER,
    PERIODS,
    Network,
    instant_of_epoch,
    interval_of_network,
    last_start,
    parse_address,
    parse_dates,
    parse_duration,
    parse_instant,
    parse_network,
    parse_version,
    period_of,
)
from kindcast.semantic.units.patterns import LONG, compile_pattern, fold, worked_within
from kindcast.semantic.vocabulary.attributes import Enumeration
from kindcast.semantic.vocabulary.vocabulary import Vocabulary

__all__ = [
    "AtomEvaluator",
    "asks_what_is_gone",
    "checks_of",
    "enumeration_of",
    "holds_instants",
    "is_plain_number",
    "read_as",
    "readings_of",
    "text_test",
    "values_of",
    "why_no_aggregate",
]


def values_of(event: CanonicalEvent, name: str) -> tuple[Value, ...]:
    """Returns the values of an attribute or aggregate; empty if it is absent."""
    found = aggregate_of(name)
    if found is None:
        return event.attributes.get(name, ())
    function, attribute = found
    values = event.attributes.get(attribute, ())
    counts = event.repeated.get(attribute, ())
    counts += (1,) * (len(values) - len(counts))  # each once, and what was derived
    elements = event.elements.get(attribute, ())
    names = {value.text for element in elements for value in element.attributes.get("@id", ())} - {None}
    both = (isinstance(value.published, Mapping) or value.text in names for value in values)
    named = sum(count for count, is_element in zip(counts, both, strict=True) if is_element)
    others = max(len(elements) - named, 0)  # elements that are no values themselves
    if function == "count":
        total = sum(counts) + others
        return (Value(total, number=float(total)),) if total else ()
    if not values or others:
        return ()
    value = _sum(values, counts) if function == "sum" else _extreme(values, function == "max")
    return () if value is None else (value,)


def why_no_aggregate(name: str) -> str:
    """Returns the sentence that an aggregate of a present attribute has no value, and why (rule 26)."""
    function, inner = aggregate_of(name) or ("", name)
    like = "numbers, or quantities of one dimension" + ("" if function == "sum" else ", or date-times")
    return f"{function}({inner}) has no value, because {inner} has not only {like}"


def _sum(values: tuple[Value, ...], counts: tuple[int, ...]) -> Value | None:
    """Returns the exact sum, rounded once; None if the values have none."""
    dimension = _dimension(values)
    amounts = [each.amount for each in values if each.amount is not None] if dimension is not None else []
    numbers = [each.number for each in values if each.number is not None]
    amount = _added(amounts, counts) if amounts else None
    number = _added(numbers, counts) if len(numbers) == len(values) else None
    if amount is None and (number is None or any(each.amount is not None for each in values)):
        return None
    published = amount if number is None else number
    return Value(published or 0.0, number=number, amount=amount, dimension=dimension)


def _extreme(values: tuple[Value, ...], most: bool) -> Value | None:
    """Returns the least or the greatest value; None if the values have no common order."""
    choose = max if most else min
    dimension = _dimension(values)
    amounts = [each.amount for each in values if each.amount is not None] if dimension is not None else []
    numbers = [each.number for each in values if each.number is not None]
    instants = [each.instant for each in values if each.instant is not None]
    amount = choose(amounts) if amounts else None
    number = choose(numbers) if len(numbers) == len(values) else None
    if amount is None and any(each.amount is not None for each in values):
        number = None
    instant = choose(instants) if len(instants) == len(values) else None
    if amount is None and number is None and instant is None:
        return None
    published = next(each for each in (number, amount, instant) if each is not None)
    return Value(published, number=number, instant=instant, amount=amount, dimension=dimension)


def _dimension(values: tuple[Value, ...]) -> str | None:
    """Returns the dimension of all values; None if one of them has no dimension or another."""
    found = {each.dimension if each.amount is not None else None for each in values}
    return found.pop() if len(found) == 1 else None


def _added(numbers: list[float], counts: tuple[int, ...]) -> float | None:
    total = sum(Fraction(Decimal(repr(each))) * count for each, count in zip(numbers, counts, strict=True))
    try:
        return total.numerator / total.denominator + 0.0
    except OverflowError:
        return None


Reading = str
"""`text` (the root word of a string), `number`, `boolean`, `instant`, `concept`, or `amount:` and the dimension of a
quantity. `under:` and `above:` with the dimension: the finite end of an interval that has all amounts below or above
(rule 22). `since` and `until`: the ends of a date, both the same for a date-time; `day`, `month` and `year`: where
such a date begins; `version`, `ip`, `ip4`, `ip6` and networks of the latter: `semantic.units.kinds` (rule 26)."""
NO_ATTRIBUTE = "ce.()"
"""Of which nothing can be declared."""
AMOUNT, UNDER, ABOVE = "amount:", "under:", "above:"

Check = tuple[Reading, Test]


def checks_of(
    predicate: Predicate, vocabulary: Vocabulary, array: str = "", *, negated: bool = False
) -> tuple[Check, ...] | None:
    """Returns the checks of a predicate. The predicate holds if one check holds on one value. None means that no column
    can decide the predicate (tests of text, comparisons of attributes).

    An empty tuple means that neither the predicate nor its negation can ever hold: all its concepts, its relation or
    its member of an enumeration were removed (rule 14). If it is asked for its negation (`negated`), one removed
    concept of a list is enough.
    `predicate` is resolved and in negation normal form, so `!=` does not occur. Inside `some`, `array` is the full name
    of the array.
    """
    if negated and _lacks_a_concept(predicate, vocabulary):
        return ()
    if isinstance(predicate, SomeOf | EveryOf | EveryValue):
        return () if negated and asks_what_is_gone(predicate, vocabulary, array) else None
    name = getattr(predicate, "attribute", "")
    aggregate = aggregate_of(name)
    if aggregate is not None:
        like = _compared_like(*aggregate, vocabulary, array)
        return checks_of(replace(predicate, attribute=like), vocabulary, array)  # type: ignore[arg-type]  # it has one
    declared_as = vocabulary.attributes.declared_as(name, array)
    if declared_as != name:
        predicate = replace(predicate, attribute=declared_as)  # type: ignore[arg-type]  # it has one
    kind = read_as(declared_as, vocabulary)
    if kind is not None and isinstance(predicate, Comparison | Membership | Between):
        return _version_checks(predicate) if kind == "version" else _address_checks(predicate)
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
        case Comparison(attribute, order, Constant(value=bound)):
            return _order_checks(attribute, order, bound, vocabulary)
        case Between(attribute, Constant(value=lower), Constant(value=upper), closed):
            return _between_checks(attribute, lower, upper, closed, vocabulary)
        case _:
            return None


def asks_what_is_gone(expression: Expression, vocabulary: Vocabulary, array: str = "") -> bool:
    """Whether the negation of a predicate of `expression`, at any depth, can never hold because what it names was
    removed (rule 14)."""
    match expression:
        case All(items) | AnyOf(items):
            return any(asks_what_is_gone(item, vocabulary, array) for item in items)
        case Not(item) | EveryValue(item):
            return asks_what_is_gone(item, vocabulary, array)
        case SomeOf(attribute, item) | EveryOf(attribute, item):
            return asks_what_is_gone(item, vocabulary, f"{array}.{attribute}" if array else attribute)
        case Comparison(order="!="):
            return asks_what_is_gone(replace(expression, order="="), vocabulary, array)
        case _:
            return checks_of(expression, vocabulary, array, negated=True) == ()


def _compared_like(function: str, inner: str, vocabulary: Vocabulary, array: str) -> str:
    """Returns the attribute like which an aggregate is compared: numbers have the unit of the `inner` attribute, and if
    that holds date-times, so do `min` and `max`."""
    is_plain = function == "count" or is_plain_number(function, inner, vocabulary, array)
    return NO_ATTRIBUTE if is_plain else inner


def is_plain_number(function: str, inner: str, vocabulary: Vocabulary, array: str) -> bool:
    """Returns whether an aggregate is a plain number although the `inner` attribute is declared as something else: a
    sum of date-times, and any aggregate of versions or addresses."""
    declared_as = vocabulary.attributes.declared_as(inner, array)
    return read_as(declared_as, vocabulary) is not None or (
        function == "sum" and holds_instants(declared_as, vocabulary)
    )


def readings_of(value: Value) -> Iterator[tuple[Reading, Key]]:
    """Yields each (reading, key) of `value`. A value with several candidate concepts yields several."""
    if value.root_word is not None:
        yield "text", value.root_word
        for text in value.also:
            yield "text", text
    if value.number is not None:
        yield "number", value.number
    if value.boolean is not None:
        yield "boolean", value.boolean
    if value.instant is not None:
        moment = float(value.instant)
        yield "instant", moment
        yield "since", moment
        yield "until", moment
    elif value.dates is not None:
        begin, end = value.dates
        yield period_of(begin, end), float(begin)
        yield "since", float(begin)
        yield "until", float(end)
    if value.amount is not None:
        yield f"amount:{value.dimension}", value.amount
    if value.amounts is not None:
        low, high = value.amounts
        yield (f"{UNDER}{value.dimension}", high) if low == -math.inf else (f"{ABOVE}{value.dimension}", low)
    for concept in value.concepts:
        yield "concept", concept
    for concept in value.types:
        yield "concept", concept
    yield from value.keys


def enumeration_of(attribute: str, vocabulary: Vocabulary) -> Enumeration | None:
    """Returns the enumeration that `attribute` is declared as, or None."""
    declaration = vocabulary.attributes.declaration(attribute)
    return declaration.enumeration if declaration is not None else None


def _span(attribute: str, constant: ConstantValue, vocabulary: Vocabulary) -> tuple[int, int] | None:
    """Returns the first and the last microsecond of a constant that is a date-time or a date; None for other
    constants. If the attribute is declared `instant`, dates may be quoted, and numbers count from the epoch (rule
    26)."""
    match constant:
        case Instant(text):
            return _ends_of(text)
        case str(text):
            return _ends_of(text, dates=holds_instants(attribute, vocabulary), year=True)
        case bool():
            return None
        case int() | float() if holds_instants(attribute, vocabulary):
            moment = instant_of_epoch(constant)
            return None if moment is None else (moment, moment)
        case _:
            return None


def _ends_of(text: str, *, dates: bool = True, year: bool = False) -> tuple[int, int] | None:
    moment = parse_instant(text)
    if moment is not None:
        return moment, moment
    return parse_dates(text, year=year) if dates else None


def holds_instants(attribute: str, vocabulary: Vocabulary) -> bool:
    """Returns whether `attribute` is declared to hold date-times or dates."""
    declaration = vocabulary.attributes.declaration(attribute)
    return declaration is not None and declaration.kind == "instant"


def read_as(attribute: str, vocabulary: Vocabulary) -> str | None:
    """Returns `version` or `ip` if `attribute` is declared as such, else None. All comparisons of such an attribute
    read that kind (rule 26)."""
    declaration = vocabulary.attributes.declaration(attribute)
    kind = None if declaration is None else declaration.kind
    return kind if kind in ("version", "ip") else None


def _version_checks(predicate: Comparison | Membership | Between) -> tuple[Check, ...] | None:
    """Returns the checks of a predicate on versions. None if the number of one of its versions is not exact (other
    versions may have the same number), or if the operand is an attribute."""
    match predicate:
        case Comparison(operand=AttributeRef()):
            return None
        case Comparison(operand=Constant() as operand):
            constants: tuple[Constant, ...] = (operand,)
        case Membership(constants=constants):
            pass
        case Between(low=lower, high=upper):
            constants = (lower, upper)
    versions = [parse_version(each.value) if isinstance(each.value, str) else None for each in constants]
    numbers = [each.number for each in versions if each is not None]
    if len(numbers) < len(versions):
        return ()
    if not all(each.is_exact for each in versions if each is not None):
        return None
    if isinstance(predicate, Membership) or (isinstance(predicate, Comparison) and predicate.order == "="):
        return (("version", KeyTest(frozenset(numbers))),)
    if isinstance(predicate, Between):
        return (("version", _enclosed(numbers[0], numbers[1], predicate.closed)),)
    return (("version", _beyond(predicate.order, numbers[0])),)


def _address_checks(predicate: Comparison | Membership | Between) -> tuple[Check, ...] | None:
    """Returns the checks of a predicate on IP addresses and networks. None if a network has no key in a column, or if
    the operand is an attribute. Addresses have no order, so a comparison by order has no checks."""
    match predicate:
        case Comparison(operand=AttributeRef()):
            return None
        case Comparison(order="=", operand=Constant(value=str(text))):
            address = parse_address(text)
            return () if address is None else (("ip", KeyTest(frozenset({str(address)}))),)
        case Membership(constants=constants):
            keys: dict[Reading, set[Key]] = {}
            checks: list[Check] = []
            for constant in constants:
                text = constant.value if isinstance(constant.value, str) else ""
                address, network = parse_address(text), parse_network(text)
                if address is not None:
                    keys.setdefault("ip", set()).add(str(address))
                elif network is not None and (interval := interval_of_network(network)) is not None:
                    checks.append((interval[0], IntervalTest(interval[1], interval[2])))
                elif network is not None and network.prefixlen in LONGER:
                    keys.setdefault(f"ip6/{network.prefixlen}", set()).add(str(network))
                elif network is not None:
                    return None
            return (*((reading, KeyTest(frozenset(found))) for reading, found in keys.items()), *checks)
        case _:
            return ()


def _of_kind(kind: str, order: str, left: str | None, right: str | None) -> bool:
    """Compares two texts as versions or as IP addresses. If the right text is a network, `=` means that the address is
    in the network."""
    if left is None or right is None:
        return False
    if kind == "version":
        one, other = parse_version(left), parse_version(right)
        return one is not None and other is not None and _ordered(order, one, other)
    address, wanted = parse_address(left), parse_network(right) or parse_address(right)
    if address is None or wanted is None or order != "=":
        return False
    if isinstance(wanted, Network):
        return address.version == wanted.version and address in wanted
    return address == wanted


def _kind_test(predicate: Predicate, kind: str) -> Callable[[Value], bool]:
    """Returns the test of one value for a predicate on versions or addresses that no column can decide."""
    match predicate:
        case Comparison(order=order, operand=Constant(value=str(wanted))):
            return lambda value: _of_kind(kind, order, value.text, wanted)
        case Membership(constants=constants):
            texts = [each.value for each in constants if isinstance(each.value, str)]
            return lambda value: any(_of_kind(kind, "=", value.text, each) for each in texts)
        case Between(low=Constant(value=str(low)), high=Constant(value=str(high)), closed=closed):
            above, under = (">" if closed[0] == "(" else ">="), ("<" if closed[1] == ")" else "<=")
            return lambda value: _of_kind(kind, above, value.text, low) and _of_kind(kind, under, value.text, high)
        case _:
            return lambda value: False


def _within(low: int, high: int) -> tuple[Check, ...]:
    """Returns the checks for values between `low` and `high`: one check for date-times and one per kind of period. A
    period is found by its start: it is in the range if it starts at `low` or later, and not after the last period that
    ends in the range. (The starts of months are starts of days, and the starts of years are starts of months.)"""
    checks: list[Check] = [("instant", IntervalTest(low, high))]
    if low <= high:
        starts = ((period, last_start(period, high)) for period in PERIODS)
        checks += [(period, IntervalTest(low, last)) for period, last in starts if low <= last]
    return tuple(checks)


def _order_checks(attribute: str, order: str, bound: ConstantValue, vocabulary: Vocabulary) -> tuple[Check, ...] | None:
    """Returns the checks of a comparison by order; None if no column can decide it."""
    if isinstance(bound, str) and (listed := enumeration_of(attribute, vocabulary)):
        return _members(listed, ((order, bound),), vocabulary)
    if span := _span(attribute, bound, vocabulary):
        if order in ("<", "<="):
            return (("until", _beyond(order, span[0] if order == "<" else span[1])),)
        return (("since", _beyond(order, span[1] if order == ">" else span[0])),)
    point = _point(attribute, bound, vocabulary)
    if point is None:
        return None
    reading, number = point
    interval = _beyond(order, number)
    if reading.startswith(AMOUNT) and vocabulary.attributes.takes_comparators(attribute):
        side = UNDER if order in ("<", "<=") else ABOVE
        return (reading, interval), (side + reading.removeprefix(AMOUNT), interval)
    return ((reading, interval),)


def _between_checks(
    attribute: str, lower: ConstantValue, upper: ConstantValue, closed: str, vocabulary: Vocabulary
) -> tuple[Check, ...] | None:
    """Returns the checks of `between`; None if no column can decide it."""
    if isinstance(lower, str) and isinstance(upper, str) and (listed := enumeration_of(attribute, vocabulary)):
        ends = (">" if closed[0] == "(" else ">=", lower), ("<" if closed[1] == ")" else "<=", upper)
        return _members(listed, ends, vocabulary)
    first, last = _span(attribute, lower, vocabulary), _span(attribute, upper, vocabulary)
    if first is not None and last is not None:
        begin = first[1] + 1 if closed[0] == "(" else first[0]
        return _within(begin, last[0] - 1 if closed[1] == ")" else last[1])
    lowest, highest = _point(attribute, lower, vocabulary), _point(attribute, upper, vocabulary)
    if lowest is None or highest is None:
        return None
    if lowest[0] != highest[0]:
        return ()
    return ((lowest[0], _enclosed(lowest[1], highest[1], closed)),)


def _members(listed: Enumeration, ends: tuple[tuple[str, str], ...], vocabulary: Vocabulary) -> tuple[Check, ...]:
    """Returns the check for the members of an enumeration that satisfy the order to each bound (rule 9). No member
    satisfies it if a bound is not a member."""
    bounds = [(order, vocabulary.root_word(bound)) for order, bound in ends]
    if not listed.is_ordered or any(bound not in listed.members for _, bound in bounds):
        return ()
    return (("text", KeyTest(frozenset.intersection(*(listed.satisfying(*each) for each in bounds)))),)


def _lacks_a_concept(predicate: Predicate, vocabulary: Vocabulary) -> bool:
    """Whether a concept of a list was removed (rule 14)."""
    match predicate:
        case KindTest(terms=terms) | RelationTest(terms=terms):
            asked: Iterable[Term] = terms
        case Membership(constants=constants):
            asked = (each.value for each in constants if isinstance(each.value, Term))
        case _:
            return False
    return any(each.iri is not None and vocabulary.concept(each.iri) is None for each in asked)


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
    """Returns the test of a relation (rule 11). A concept that the relation never reaches still exists, so the negation
    of the predicate can hold."""
    shadows = (vocabulary.relations.shadow(relation, concept) for concept in concepts)
    return ConceptTest(within=frozenset(shadow for shadow in shadows if shadow is not None))


def _equal(attribute: str, constants: tuple[ConstantValue, ...], vocabulary: Vocabulary) -> tuple[Check, ...]:
    """Returns one `KeyTest` per reading, so that `in` with mixed constants remains one predicate."""
    keys: dict[Reading, set[Key]] = {}
    concepts: set[ConceptId] = set()
    dates: list[Check] = []
    for constant in constants:
        is_date = not isinstance(constant, str) or parse_instant(constant) is None  # a date-time in quotes is a text
        span = _span(attribute, constant, vocabulary) if is_date else None
        if span is not None:
            if span[0] == span[1]:
                keys.setdefault("instant", set()).add(float(span[0]))
            else:
                dates += _within(*span)
            continue
        match constant:
            case Term():
                concepts |= _concepts((constant,), vocabulary)
            case Instance(iri):
                concept = vocabulary.concept(vocabulary.replacement(iri) or iri)
                if concept is not None:
                    concepts.add(concept)
                else:
                    keys.setdefault("text", set()).update(vocabulary.words(iri))
            case bool():
                keys.setdefault("boolean", set()).add(constant)
            case str():
                keys.setdefault("text", set()).update(vocabulary.words(constant))
            case _:
                point = _point(attribute, constant, vocabulary)
                if point is not None:
                    keys.setdefault(point[0], set()).add(point[1])
    checks: list[Check] = [(reading, KeyTest(frozenset(found))) for reading, found in keys.items()]
    checks += dates
    if concepts:
        checks.append(("concept", ConceptTest(exactly=frozenset(concepts))))
    return tuple(checks)


def _point(attribute: str, constant: ConstantValue, vocabulary: Vocabulary) -> tuple[Reading, float] | None:
    """Returns the axis and the position of a number or quantity; None for other constants (strings are ordered by code
    point)."""
    match constant:
        case Quantity(number, unit):
            return _amount(number, unit, vocabulary)
        case bool() | str() | Instant() | Term() | Instance():
            return None
        case _:
            declaration = vocabulary.attributes.declaration(attribute)
            if declaration is not None and declaration.unit is not None:
                return _amount(constant, declaration.unit, vocabulary)
            return "number", float(constant)


def _amount(number: float, unit: str, vocabulary: Vocabulary) -> tuple[Reading, float]:
    """Returns the axis and the position of a quantity. An amount beyond the range of a double is infinite: all values
    are on one side of it."""
    units = vocabulary.units
    try:
        amount = units.measure(number, unit).amount
    except InvalidQuantity:
        amount = math.copysign(math.inf, number)
    return f"{AMOUNT}{units.dimension(unit)}", amount


def _beyond(order: str, bound: float) -> IntervalTest:
    """Returns the interval of the numbers that have this order (`<`, `<=`, `>` or `>=`) to `bound`."""
    if order in ("<", "<="):
        return _interval(-math.inf, bound, open_low=False, open_high=order == "<")
    return _interval(bound, math.inf, open_low=order == ">", open_high=False)


def _enclosed(low: float, high: float, closed: str) -> IntervalTest:
    """Returns the interval between two numbers. `closed` are its brackets, such as `[)`."""
    return _interval(low, high, open_low=closed[0] == "(", open_high=closed[1] == ")")


def _interval(low: float, high: float, *, open_low: bool, open_high: bool) -> IntervalTest:
    """Returns a closed interval. An open end is replaced by the next double inside the interval."""
    return IntervalTest(
        math.nextafter(low, math.inf) if open_low else low,
        math.nextafter(high, -math.inf) if open_high else high,
    )


# Which pairs of values decide a comparison of two attributes (rule 9). One pair is enough, and an event may have
# millions of pairs: they would take minutes, and nothing else happens while an event is matched.
#
# An order is decided by the least and the greatest of the values that are compared in the same way. For equality each
# value is compared with the values that have something in common with it, and with those that span several values.

Pairs = list[tuple[Value, Sequence[Sequence[Value]]]]
"""Values of one attribute, each with groups of values of the other. Groups are shared, because there may be millions of
pairs."""

Span = tuple[float, float]


def extremes(
    values: Sequence[Value], dates: Callable[[Value], Span | None], is_numeric: Callable[[Value], bool]
) -> list[Value]:
    """Returns the values that decide every order: if one of `values` is less (or greater, …) than some other value,
    one of these is. `dates` returns the ends of a date or date-time, if the value is compared as such, and `is_numeric`
    whether it is compared as a number or quantity."""
    alike: dict[Hashable, list[Value]] = {}
    for value in values:
        way = (is_numeric(value), value.dimension, value.amounts is None, dates(value) is None, value.number is None)
        alike.setdefault(way, []).append(value)
    found: dict[int, Value] = {}
    for group in alike.values():
        for key in (_number, _low, _high, _least_text, _greatest_text, _end_of(dates, 0), _end_of(dates, 1)):
            keyed = [(at, value) for value in group if (at := key(value)) is not None]
            if keyed:
                for decides in (min(keyed, key=_first)[1], max(keyed, key=_first)[1]):
                    found[id(decides)] = decides
    return list(found.values())


def equal_pairs(
    lefts: Sequence[Value],
    rights: Sequence[Value],
    left_dates: Callable[[Value], Span | None],
    right_dates: Callable[[Value], Span | None],
) -> Pairs:
    """Returns each of `lefts` with those of `rights` that may equal it."""
    having: dict[Hashable, list[Value]] = {}
    wide = []
    for right in rights:
        spans = (right.interval, right_dates(right))
        if any(span is not None and span[0] < span[1] for span in spans):
            wide.append(right)
        for key in _shared(right, right_dates):
            having.setdefault(key, []).append(right)
    return [(left, [wide, *(having[key] for key in _shared(left, left_dates) if key in having)]) for left in lefts]


def _shared(value: Value, dates: Callable[[Value], Span | None]) -> Iterator[Hashable]:
    """Yields what equal values have in common, unless one of them spans several values."""
    yield from (("concept", concept) for concept in value.concepts)
    if value.interval is not None:
        yield "amounts", value.dimension, value.interval
    if value.number is not None:
        yield "number", value.number
    if value.boolean is not None:
        yield "boolean", value.boolean
    if (span := dates(value)) is not None:
        yield "dates", span
    if value.root_word is not None:
        yield from (("word", word) for word in {value.root_word, *value.also})


def _first(keyed: tuple[float | str, Value]) -> float | str:
    return keyed[0]


def _number(value: Value) -> float | None:
    return value.number


def _low(value: Value) -> float | None:
    return None if value.interval is None else value.interval[0]


def _high(value: Value) -> float | None:
    return None if value.interval is None else value.interval[1]


def _least_text(value: Value) -> str | None:
    return min(value.texts, default=None)


def _greatest_text(value: Value) -> str | None:
    return max(value.texts, default=None)


def _end_of(dates: Callable[[Value], Span | None], end: int) -> Callable[[Value], float | None]:
    def of(value: Value) -> float | None:
        span = dates(value)
        return None if span is None else span[end]

    return of


FEW_PAIRS = 16
"""So many pairs of values of two attributes are compared without choosing among them."""
FEW_ELEMENTS = 64
"""With at most so many elements in all its arrays, an event is asked without a budget."""
ELEMENT_STEPS = 1_000
PAIR_STEPS = 1_000
"""What it costs to ask an element, to choose a value and to compare two, in the steps of a search of a text: 5 µs."""


class AtomEvaluator:
    """Evaluates one atom on events under one vocabulary. The cost of `holds` is linear in the values of its attribute.

    Inside `some`, `array` is the full name of the array whose elements are tested; names are relative to it."""

    def __init__(self, atom: Atom, vocabulary: Vocabulary, array: str = "") -> None:
        self.atom = atom
        self._vocabulary = vocabulary
        self._array = array
        self._checks: tuple[Check, ...] | None = checks_of(atom.predicate, vocabulary, array, negated=atom.negated)
        self.satisfied_by = self._value_test()
        """Whether one value satisfies the predicate, negation left aside (for explanations; pairs and elements
        apart)."""
        self._inner: list[list[AtomEvaluator]] = []
        self._each: AtomEvaluator | None = None
        """The evaluator of the condition that `every` applies to each value."""
        if isinstance(atom.predicate, EveryValue):
            ((inner,),) = normal_form(atom.predicate.item)
            self._each = AtomEvaluator(inner, vocabulary, array)
            if checks_of(inner.predicate, vocabulary, array, negated=atom.negated) == ():
                self._checks = ()
            self.satisfied_by = lambda value: inner.negated != self.asked_of_each.satisfied_by(value)
        if isinstance(atom.predicate, SomeOf | EveryOf):
            clauses = normal_form(atom.predicate.item)
            whole = f"{array}.{atom.predicate.attribute}" if array else atom.predicate.attribute
            self._inner = [[AtomEvaluator(inner, vocabulary, whole) for inner in clause] for clause in clauses]

    @property
    def never_holds(self) -> bool:
        """Whether the atom holds for no event, because something that it names was removed."""
        return self._checks == ()

    def holds(self, event: CanonicalEvent) -> bool:
        """Returns whether the atom holds (rules 6 to 8): the attribute is present and some value satisfies the
        predicate or, if the atom is negated, no value satisfies it."""
        predicate = self.atom.predicate
        if isinstance(predicate, Presence):
            return (predicate.attribute in event.attributes) == predicate.present
        if self.never_holds:
            return False
        if isinstance(predicate, SomeOf):
            elements = event.elements.get(predicate.attribute, ())
            if not elements:
                return False
            return self._in_time(event, lambda: any(map(self._element, elements))) != self.atom.negated
        values = values_of(event, getattr(predicate, "attribute", ""))
        if isinstance(predicate, EveryOf):
            elements = event.elements.get(predicate.attribute, ())
            requires = self.atom.requires
            asks_elements = requires == elements_of(predicate.attribute)
            if not (elements if asks_elements else values if requires else values or elements):
                return False
            return self._in_time(event, lambda: self._every_element(elements, values)) != self.atom.negated
        if not values:
            return False
        if self._each is not None:
            return self._each._of_all(values, event) != self.atom.negated
        if isinstance(predicate, Comparison) and isinstance(predicate.operand, AttributeRef):
            others = values_of(event, predicate.operand.name)
            return bool(others) and self._some_pair(predicate, values, others) != self.atom.negated
        return any(map(self.satisfied_by, values)) != self.atom.negated

    @property
    def asked_of_each(self) -> "AtomEvaluator":
        """The evaluator of the condition that `every` applies to each value. The atom must be an `every`."""
        assert self._each is not None
        return self._each

    def _of_all(self, values: tuple[Value, ...], event: CanonicalEvent) -> bool:
        """Returns whether the atom would hold for each of `values` if it were the only value of the attribute."""
        predicate, negated = self.atom.predicate, self.atom.negated
        if not isinstance(predicate, Comparison) or not isinstance(predicate.operand, AttributeRef):
            return all(self.satisfied_by(value) != negated for value in values)
        others = values_of(event, predicate.operand.name)
        if not others:
            return False
        pairs = self._pairs(predicate, values, others, each=True)

        def all_hold() -> bool:
            return all(
                any(self._compare(predicate, left, right) for near in groups for right in near) != negated
                for left, groups in pairs
            )

        return worked_within(_steps(pairs), all_hold)

    def _some_pair(self, predicate: Comparison, lefts: tuple[Value, ...], rights: tuple[Value, ...]) -> bool:
        if len(lefts) * len(rights) <= FEW_PAIRS:
            return any(self._compare(predicate, left, right) for left in lefts for right in rights)
        pairs = self._pairs(predicate, lefts, rights)

        def one_holds() -> bool:
            return any(
                self._compare(predicate, left, right) for left, groups in pairs for near in groups for right in near
            )

        return worked_within(_steps(pairs), one_holds)

    def _pairs(
        self, predicate: Comparison, lefts: tuple[Value, ...], rights: tuple[Value, ...], *, each: bool = False
    ) -> Pairs:
        """Returns the pairs of values that decide the comparison; with `each`, that decide it for each of `lefts`."""
        names = predicate.attribute, getattr(predicate.operand, "name", "")
        declared = [self._declared_as(name) for name in names]
        ordered = predicate.order != "="
        if any(
            read_as(name, self._vocabulary) or (ordered and enumeration_of(name, self._vocabulary)) for name in declared
        ):
            return [(left, [rights]) for left in lefts]
        left_dates, right_dates = (partial(self._dates, name) for name in names)

        def chosen() -> Pairs:
            if not ordered:
                return equal_pairs(lefts, rights, left_dates, right_dates)
            near = [extremes(rights, right_dates, partial(self._is_numeric, names[1]))]
            decisive = lefts if each else extremes(lefts, left_dates, partial(self._is_numeric, names[0]))
            return [(left, near) for left in decisive]

        return worked_within(PAIR_STEPS * (len(lefts) + len(rights)), chosen)

    def _in_time(self, event: CanonicalEvent, work: Callable[[], bool]) -> bool:
        """Returns `work()`, which asks the elements of an array. If the event has many elements, the budget for
        searches includes it."""
        count = 0 if self._array else sum(map(len, event.elements.values()))
        return work() if count <= FEW_ELEMENTS else worked_within(ELEMENT_STEPS * count, work)

    def _every_element(self, elements: tuple[CanonicalEvent, ...], values: tuple[Value, ...]) -> bool:
        """Returns whether there are elements, all elements satisfy the condition, and there are no other scalars (rule
        26). A scalar that is the `@id` of an element counts as that element."""
        if not elements or not all(map(self._element, elements)):
            return False
        scalars = [value for value in values if not isinstance(value.published, Mapping)]
        if not scalars:
            return True
        names = {value.text for element in elements for value in element.attributes.get("@id", ())} - {None}
        return all(value.text in names for value in scalars)

    def _element(self, element: CanonicalEvent) -> bool:
        return any(all(atom.holds(element) for atom in clause) for clause in self._inner)

    def _compare(self, predicate: Comparison, left: Value, right: Value) -> bool:
        """Compares two values (rule 9). Numbers, quantities and date-times are compared as such and never as texts.
        Other strings are compared by their root words for equality, and by code point of any of their texts for order.
        Members of an enumeration are compared by its order; if both attributes have an enumeration, by both orders.
        Concepts are compared if the attribute is declared to hold them."""
        order = predicate.order
        for each in (predicate.attribute, getattr(predicate.operand, "name", "")):
            kind = read_as(self._declared_as(each), self._vocabulary)
            if kind is not None:
                return _of_kind(kind, order, left.text, right.text)
        if order != "=" and left.root_word is not None and right.root_word is not None:
            names = (predicate.attribute, predicate.operand.name) if isinstance(predicate.operand, AttributeRef) else ()
            found = (enumeration_of(self._declared_as(name), self._vocabulary) for name in names)
            listed = [each for each in found if each is not None]
            if listed:
                return all(each.compares(left.root_word, order, right.root_word) for each in listed)
        if order == "=" and set(left.concepts) & set(right.concepts) and self._holds_concepts(predicate.attribute):
            return True
        if left.amounts is not None or right.amounts is not None:
            return _compare_intervals(order, left, right)
        name, other = predicate.attribute, getattr(predicate.operand, "name", "")
        one, two = self._dates(name, left), self._dates(other, right)
        if one is not None and two is not None:
            return _compare_spans(order, one, two)
        if self._is_numeric(name, left) and self._is_numeric(other, right):
            if left.dimension is not None:
                return left.dimension == right.dimension and _ordered(order, left.amount, right.amount)
            return right.dimension is None and _ordered(order, left.number, right.number)
        if order != "=":
            return any(_ordered(order, one, other) for one in left.texts for other in right.texts)
        if left.boolean is not None:
            return left.boolean == right.boolean
        if left.root_word is None or right.root_word is None:
            return False
        return not {left.root_word, *left.also}.isdisjoint((right.root_word, *right.also))

    def _dates(self, name: str, value: Value) -> tuple[int, int] | None:
        """Returns the ends of a date-time, or those of a date if the attribute is declared to hold dates (rule
        26)."""
        if value.instant is not None:
            return value.instant, value.instant
        return value.dates if value.dates and holds_instants(self._declared_as(name), self._vocabulary) else None

    def _is_numeric(self, name: str, value: Value) -> bool:
        """Returns whether `value` is a number or quantity. A duration is one only if the attribute is declared with a
        unit (rule 26)."""
        if value.is_numeric and value.text is not None and parse_duration(value.text) is not None:
            declaration = self._vocabulary.attributes.declaration(self._declared_as(name))
            return declaration is not None and declaration.unit is not None
        return value.is_numeric

    def _holds_concepts(self, name: str) -> bool:
        declaration = self._vocabulary.attributes.declaration(self._declared_as(name))
        return declaration is not None and declaration.kind == "concept"

    def _declared_as(self, name: str) -> str:
        return self._vocabulary.attributes.declared_as(name, self._array)

    def _value_test(self) -> Callable[[Value], bool]:
        predicate = self.atom.predicate
        checks = self._checks
        if checks is not None:
            return lambda value: any(
                reading == asked and self._test(test, key)
                for reading, key in readings_of(value)
                for asked, test in checks
            )
        if isinstance(predicate, Comparison | Membership | Between):
            kind = read_as(self._declared_as(predicate.attribute), self._vocabulary)
            if kind is not None:
                return _kind_test(predicate, kind)
        of_text = text_test(predicate)

        def some_text(value: Value) -> bool:  # as any(map(of_text, value.texts)), in a third of the time
            text, root = value.text, value.root_word
            if text is None:
                return False
            if len(text) >= LONG:
                return worked_within(len(text), lambda: any(map(of_text, value.texts)))
            return (
                of_text(text) or (root is not None and root != text and of_text(root)) or any(map(of_text, value.also))
            )

        return some_text

    def _test(self, test: Test, key: Any) -> bool:
        match test:
            case KeyTest(keys):
                return bool(key in keys)
            case IntervalTest(low, high):
                return bool(low <= key <= high)
            case ConceptTest(within, below, exactly):
                concept = ConceptId(key)
                above = self._vocabulary.graph.ancestors(concept)
                return (
                    concept in exactly
                    or any(upper in within for upper in above)
                    or any(upper in below for upper in above if upper != concept)
                )


def _steps(pairs: Pairs) -> int:
    return PAIR_STEPS * sum(len(near) for _, groups in pairs for near in groups)


def text_test(predicate: Expression) -> Callable[[str], bool]:
    """Returns the test of one text for a predicate that no column can decide: a test of text, or an order of
    strings."""
    match predicate:
        case TextTest(test="matches", text=pattern, nocase=nocase):
            return compile_pattern(pattern, nocase).search
        case TextTest(test=test, text=wanted, nocase=nocase):
            shape: Callable[[str], str] = fold if nocase else _as_is
            needle = shape(_nfc(wanted))
            match test:
                case "startswith":
                    return lambda text: shape(text).startswith(needle)
                case "endswith":
                    return lambda text: shape(text).endswith(needle)
                case _:
                    return lambda text: needle in shape(text)
        case Comparison(order=order, operand=Constant(value=str(wanted))):
            bound = _nfc(wanted)
            return lambda text: _ordered(order, text, bound)
        case Between(low=Constant(value=str(low)), high=Constant(value=str(high)), closed=closed):
            above, under = (">" if closed[0] == "(" else ">="), ("<" if closed[1] == ")" else "<=")
            least, most = _nfc(low), _nfc(high)
            return lambda text: _ordered(above, text, least) and _ordered(under, text, most)
        case _:
            return lambda text: False


def _compare_intervals(order: str, left: Value, right: Value) -> bool:
    """Returns whether the order holds for all amounts of the left quantity. `=` means that each amount of the left
    quantity is an amount of the right one."""
    one, other = left.interval, right.interval
    if one is None or other is None or left.dimension != right.dimension:
        return False
    return _compare_spans(order, one, other)


def _compare_spans(order: str, one: tuple[float, float], other: tuple[float, float]) -> bool:
    """Compares two closed intervals by their ends (rules 22 and 26)."""
    match order:
        case "<":
            return one[1] < other[0]
        case "<=":
            return one[1] <= other[1]
        case ">":
            return one[0] > other[1]
        case ">=":
            return one[0] >= other[0]
        case _:
            return other[0] <= one[0] and one[1] <= other[1]


def _as_is(text: str) -> str:
    return text


def _nfc(text: str) -> str:
    """Returns the NFC form of a constant, the form to which published strings are normalised."""
    return nfc(text)


def _ordered(order: str, left: Any, right: Any) -> bool:
    match order:
        case "=":
            return bool(left == right)
        case "<":
            return bool(left < right)
        case "<=":
            return bool(left <= right)
        case ">":
            return bool(left > right)
        case _:
            return bool(left >= right)
