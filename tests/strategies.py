"""Hypothesis strategies that more than one test uses. All shrink towards few concepts, few attributes and short lists.

* For the index: concept graphs, clauses and lowered events; each of `ATTRIBUTES` has a column of every kind.
* For meaning: worlds (the oracle's plain lists; `vocabulary_of` makes the same vocabulary for the matcher), expressions
  over them and events. Expressions are legal under every world that has `CLASSES`; names, units and texts come from
  small pools, so that they often meet.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import reject
from hypothesis import strategies as st
from pyld import jsonld

from kindcast.index.clause import (
    AttributeId,
    Clause,
    ColumnId,
    ConceptId,
    ConceptTest,
    IntervalTest,
    KeyTest,
    LoweredEvent,
    Predicate,
    Test,
)
from kindcast.index.concept_graph import ConceptGraph
from kindcast.index.registry import ENGINES
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
    aggregate_name,
    aggregate_of,
)
from tests.harness.vocabularies import vocabulary_of
from tests.oracle import Declaration, World

__all__ = [
    "ATTRIBUTES",
    "CLASSES",
    "RELATIONS",
    "clauses",
    "concept_graphs",
    "events",
    "expressions",
    "fused_and_others",
    "graph_events",
    "graph_expressions",
    "lowered_events",
    "vocabulary_of",
    "worlds",
]

fused_and_others = pytest.mark.parametrize(
    "engines",
    [st.just("fused"), st.sampled_from(sorted(set(ENGINES) - {"fused"}))],
    ids=["fused", "others"],
)
"""A test draws its engine: all examples with the default engine, and as many with the others between them."""

# ── the index ───────────────────────────────────────────────────────────────────────────────────────────────────────

ATTRIBUTES = tuple(AttributeId(number) for number in range(4))
CONCEPTS = 7
"""Concepts of every graph: enough for diamonds and for individuals with two classes."""
KINDS = ("concept", "text", "number")

_texts = st.sampled_from(["a", "b", "c", ""])
_numbers = st.one_of(
    st.integers(-2, 10).map(float),
    st.floats(0, 10),
    st.sampled_from([-1e308, 1e308, 5e-324, 1e16, -0.0]),
)
_bounds = st.one_of(_numbers, st.sampled_from([-math.inf, math.inf]))
_concepts = st.integers(0, CONCEPTS - 1).map(ConceptId)


def column(attribute: AttributeId, kind: str) -> ColumnId:
    """The column in which `attribute` is read as `kind`."""
    return ColumnId(attribute * len(KINDS) + KINDS.index(kind))


@st.composite
def concept_graphs(draw: st.DrawFn) -> ConceptGraph:
    """DAGs with several parents, and individuals that enter them anywhere."""
    low_high = st.tuples(st.integers(0, CONCEPTS - 1), st.integers(0, CONCEPTS - 1))
    parents = [(max(pair), min(pair)) for pair in draw(st.lists(low_high, max_size=12))]
    entries = draw(st.lists(low_high, max_size=4))
    return ConceptGraph(CONCEPTS, parents, entries)


def _tests(kind: str) -> st.SearchStrategy[Test]:
    if kind == "concept":
        some = st.frozensets(_concepts, max_size=2)
        return st.builds(ConceptTest, some, some, some)
    if kind == "text":
        return st.builds(KeyTest, st.frozensets(_texts, max_size=2))
    ordered = st.tuples(_bounds, _bounds).map(sorted).map(lambda ends: IntervalTest(*ends))
    return st.one_of(
        ordered,
        st.builds(IntervalTest, _bounds, _bounds),
        _numbers.map(lambda point: IntervalTest(point, point)),
        st.builds(KeyTest, st.frozensets(_numbers, max_size=2)),
    )


@st.composite
def predicates(draw: st.DrawFn) -> Predicate:
    """One predicate with up to three tests, on the same or on several columns of its attribute."""
    attribute = draw(st.sampled_from(ATTRIBUTES))
    kinds = draw(st.lists(st.sampled_from(KINDS), max_size=3))
    tests = tuple((column(attribute, kind), draw(_tests(kind))) for kind in kinds)
    return Predicate(attribute, tests, draw(st.sampled_from([False, False, True])))


@st.composite
def clauses(draw: st.DrawFn) -> Clause:
    """Conjunctions, also without predicates, with several on one attribute, and with attributes that must be absent."""
    asked = tuple(draw(st.lists(predicates(), max_size=4)))
    some = st.frozensets(st.sampled_from(ATTRIBUTES), max_size=1)
    return Clause(asked, frozenset(p.attribute for p in asked) | draw(some), draw(some))


@st.composite
def lowered_events(draw: st.DrawFn) -> LoweredEvent:
    """Events with absent attributes, with several values, and with attributes that no column reads."""
    present = draw(st.frozensets(st.sampled_from(ATTRIBUTES)))
    values = {
        column(attribute, kind): tuple(draw(st.lists(of_kind, min_size=1, max_size=3, unique=True)))
        for attribute in sorted(present)
        for kind, of_kind in (("concept", _concepts), ("text", _texts), ("number", _numbers))
        if draw(st.booleans())
    }
    return LoweredEvent(present, values)


# ── meaning: vocabularies ───────────────────────────────────────────────────────────────────────────────────────────

EX = "http://example.org/"
CLASSES = tuple(f"{EX}C{number}" for number in range(5))
INDIVIDUALS = (f"{EX}i0", f"{EX}i1")
RELATIONS = (f"{EX}part_of", f"{EX}near")
UNION = "urn:kindcast:relation:any"
"""Of both relations, in every world."""
FOREIGN = ("http://other.org/D0", "http://other.org/D1")
"""Names of another vocabulary, which may be matched exactly with those of this one."""
SCHEMES = (f"{EX}s0", f"{EX}s1")
RETIRED = f"{EX}Old"
"""A deprecated name: events may use it, expressions do not."""
THING = "http://example.net/things/1"
"""An IRI that no vocabulary knows."""
WORDS = ("Laptop", "laptop", "Straße", "STRASSE", "タブレット", "red", "C1", "Hard disks")
DECLARATIONS = {
    "kind": Declaration("concept", range=(CLASSES[0], CLASSES[1])),
    "size": Declaration("number", labels=("Größe",)),
    "weight": Declaration("number", unit="kg"),
    "temp": Declaration("number", unit="degC", unit_from="unit"),
    "flag": Declaration("boolean"),
    "box.kind": Declaration("concept", range=(CLASSES[3],)),
    "box.size": Declaration("text"),
    "grade": Declaration("text", enum=("low", "x", "high", "nb"), order=(("low", "x", "high"), ("low", "nb"))),
    "load": Declaration("number", derived="weight / size"),
    "net": Declaration("number", unit="kg", derived="weight - 1 kg + load * size / 2"),
    "due": Declaration("instant"),
    "release": Declaration("version"),
    "box.release": Declaration("version"),
    "host": Declaration("ip"),
    "later": Declaration("instant", derived="b + 1.5 day"),
    "total": Declaration("number", derived="sum(size) * count(box) - max(load)"),
}
SUBPROPERTIES = (("email", "contact"), ("phone", "contact"), ("contact", "info"))
ALIASES = (
    ("iri", "http://example.net/things/one", THING),
    ("iri", "red", "x"),
    ("iri", FOREIGN[0], CLASSES[2]),
    ("prefix", "https://example.org/", EX),
    ("prefix", "https://example.org/old/", f"{EX}C"),
    ("pattern", r"urn:ex:(.+)", r"https://example.org/\1"),
)
ALIASED = (
    "https://example.org/C1",
    "https://example.org/old/2",
    "urn:ex:C3",
    "urn:ex:Old",
    "http://example.net/things/one",
)
"""Forms that stand for others where these are declared."""
SYNONYMS = {"nb": "Laptop", "Gewicht": "weight", "x": "y", "y": "z"}


@st.composite
def worlds(draw: st.DrawFn, *, complete: bool = True) -> World:
    """Vocabularies with several parents, cycles, individuals, equivalences, ambiguous and deprecated names, attribute
    hierarchies, relations that may run in circles, and declarations. Without `complete` some of `CLASSES` and of
    `RELATIONS` may be unknown."""
    classes = CLASSES if complete else tuple(name for name in CLASSES if draw(st.booleans()))
    names = (*classes, *INDIVIDUALS, *FOREIGN, RETIRED)
    name, a_class = st.sampled_from(names[:-1]), st.sampled_from(classes or INDIVIDUALS)
    exact = st.tuples(st.sampled_from(names), st.sampled_from(FOREIGN))
    upwards = st.tuples(a_class, a_class).map(lambda pair: (max(pair), min(pair)))
    individual = st.one_of(st.sampled_from(INDIVIDUALS), st.sampled_from(INDIVIDUALS), name)  # classes may be such, too
    narrower = draw(st.lists(upwards, min_size=2, max_size=8)) + draw(st.lists(st.tuples(name, name), max_size=1))
    related = st.lists(st.tuples(name, name), max_size=4).map(tuple)
    relations = RELATIONS if complete else tuple(each for each in RELATIONS if draw(st.booleans()))
    labels = st.tuples(
        st.sampled_from(names),
        st.sampled_from(WORDS),
        st.sampled_from([None, "en", "de"]),
        st.sampled_from(["preferred", "preferred", "synonym", "hidden"]),
    )
    return World(
        narrower=tuple(narrower),
        individuals=tuple(draw(st.lists(st.tuples(individual, a_class), min_size=1, max_size=4))),
        equivalent=tuple(draw(st.lists(st.tuples(name, name), max_size=1))),
        matches=tuple(draw(st.lists(exact, max_size=2))),
        schemes=tuple(draw(st.lists(st.tuples(name, st.sampled_from(SCHEMES)), max_size=2))),
        only=draw(st.frozensets(st.sampled_from((*INDIVIDUALS, *FOREIGN)), max_size=4)),
        labels=tuple(draw(st.lists(labels, max_size=5, unique_by=lambda label: label[:3]))),
        names=names,
        prefixes=(("ex", EX),),
        relations={each: draw(related) for each in relations},
        replaced=tuple(draw(st.lists(st.tuples(st.just(RETIRED), a_class), max_size=1))),
        subproperties=tuple(pair for pair in SUBPROPERTIES if draw(st.booleans())),
        declarations={name: DECLARATIONS[name] for name in DECLARATIONS if draw(st.booleans())},
        synonyms={word: SYNONYMS[word] for word in SYNONYMS if draw(st.booleans())},
        unions={"any": RELATIONS},
        inverses=((f"{EX}in", f"{EX}box"),) if draw(st.booleans()) else (),
        aliases=tuple(each for each in ALIASES if draw(st.booleans())) if draw(st.booleans()) else (),
        spelt=draw(st.booleans()),
    )


# ── meaning: what is compared ───────────────────────────────────────────────────────────────────────────────────────

_PLAIN = ("x", "y", "z", "", "nb", "red", "Red", "e\u0301a", "éa", "STRASSE")
_NAMED = (
    "C0",
    "C1",
    "ex:C2",
    CLASSES[3],
    "i0",
    INDIVIDUALS[1],
    RETIRED,
    "Old",
    THING,
    "Laptop",
    "laptop",
    "nb",
    "laptops",
    "Red-s",
    "HARD_DISK",
    "harddisks",
    "c0",
    *ALIASED,
)
_DATES = ("2026-01-01T00:00:00Z", "2026-01-01T01:00:00+01:00", "2026-01-02 00:00:00", "2026-01-01T00:00:00.5Z")
_DAYS = ("2026-01-01", "2026-01", "2026-01-02", "2025-12", "2026", "2026-02-30", "PT1H", "P1DT30M")
_VERSIONS = (
    "2.4.9",
    "2.4.50",
    "v2.4",
    "2.4.0",
    "2.4-rc.1",
    "2.4-rc.11",
    "120.0.6099.129",
    "120.0.6099.4294967299.1",
    "2.x",
)
_ADDRESSES = ("10.1.2.3", "10.1.2.4", "2001:db8::1", "2001:DB8:0::1", "2001:db8:0:1::1", "10.1.2", "10.0.0.0/8")
_NETWORKS = ("10.0.0.0/8", "10.1.2.3/32", "2001:db8::/32", "2001:db8::/64", "2001:db8::/63", "2001:db8::/52")
_SINCE_1970 = (1767225600, 1767225600.5, 1767225600000, 1767229200, 1e15)
_WEIGHED = ("5 kg", "5000 g", "5500 g", "1 lb")
_HEATED = ("86 degF", "30 degC", "303.15 K", "-40 degC")
_NUMERALS = ("5", "30", "5.5", "true")
_NUMBERS = (0, 1, -1, 5, 5.0, 5.5, 30, 86, 303.15, 5000, 1e16, 0.1, -0.0)
_MASSES = (Quantity(5, "kg"), Quantity(5000, "g"), Quantity(5.5, "kg"), Quantity(1, "lb"))
_TEMPERATURES = (Quantity(86, "degF"), Quantity(30, "degC"), Quantity(303.15, "K"), Quantity(-40, "degF"))
_PATTERNS = ("^x", "5", "[a-c]+$", "le?d", "^$", "(?:La|lap)top", "é", "C[0-9]")

_concept_terms = st.sampled_from(CLASSES).map(lambda iri: Term(iri, is_iri=True, iri=iri))
_instances = st.sampled_from((CLASSES[0], CLASSES[1], INDIVIDUALS[1], RETIRED, THING, *ALIASED)).map(Instance)
_instants = st.sampled_from(
    ["2026-01-01T00:00:00Z", "2026-01-01T06:00:00+05:00", "2026-01-01", "2026-01", "2025-12-31"]
).map(Instant)
_numbers_given = st.sampled_from(_NUMBERS)


def _objects(units: tuple[str, ...]) -> st.SearchStrategy[dict[str, Any]]:
    """Quantities as objects."""
    keys = st.sampled_from(["unit", "unitCode"])
    parts = st.tuples(_numbers_given, keys, st.sampled_from(units))
    return parts.map(lambda each: {"value": each[0], each[1]: each[2]})


_anything = st.one_of(
    st.sampled_from((*_PLAIN, *_NAMED, *_DATES, *_DAYS, *_WEIGHED, *_HEATED, *_NUMERALS)),
    _numbers_given,
    st.booleans(),
    st.none(),
)
_concept_values = st.sampled_from(_NAMED)
_text_values = st.one_of(
    st.sampled_from(_PLAIN), _concept_values, _numbers_given, st.sampled_from((*_DATES, *_WEIGHED, *_HEATED))
)
_date_values = st.one_of(st.sampled_from((*_DATES, *_DAYS, *_SINCE_1970)), st.sampled_from((*_PLAIN, *_WEIGHED)))
_number_values = st.one_of(_numbers_given, _numbers_given, st.sampled_from(_NUMERALS))
_mass_values = st.one_of(_numbers_given, st.sampled_from(_WEIGHED), _objects(("kg", "g", "USD")))
_heat_values = st.one_of(_numbers_given, st.sampled_from(_HEATED), _objects(("degC", "K", "degF", "kg")))
_flag_values = st.one_of(st.booleans(), st.booleans(), st.sampled_from(["true", 1, 0]))
_PUBLISHED = {
    "kind": _concept_values,
    "a": _text_values,
    "b": _date_values,
    "due": _date_values,
    "release": st.sampled_from((*_VERSIONS, 2)),
    "host": st.sampled_from((*_ADDRESSES, 10.1)),
    "email": _text_values,
    "phone": _text_values,
    "size": _number_values,
    "Größe": _number_values,
    "weight": _mass_values,
    "Gewicht": _mass_values,
    "temp": _heat_values,
    "flag": _flag_values,
    "grade": st.sampled_from(("low", "x", "y", "high", "nb", "Laptop", "other", 5)),
    "load": _number_values,
    "unit": st.sampled_from(["degF", "K", "kg", "unknown"]),
}
"""What is published under a name: mostly what fits it, so that events and expressions often meet."""

# ── meaning: expressions ────────────────────────────────────────────────────────────────────────────────────────────

_NUMERIC = ("size", "weight", "temp", "box.weight", "load", "net", "total")
_WORDY = ("kind", "a", "email", "contact", "info", "ce.type", "box.a")
_ASKED = (
    *_NUMERIC,
    *_WORDY,
    "b",
    "due",
    "release",
    "box.release",
    "host",
    "flag",
    "grade",
    "load",
    "net",
    "later",
    "total",
)


def _constants(attribute: str, *, ordered: bool) -> st.SearchStrategy[Constant]:
    """Constants that may be compared with `attribute` under every world: no quantity of a dimension that it may not be
    declared to have; where it may be declared to hold concepts, no string, which would be resolved as a term."""
    quantities = {"weight": _MASSES, "box.weight": _MASSES, "net": _MASSES, "temp": _TEMPERATURES}.get(
        attribute, (*_MASSES, *_TEMPERATURES)
    )
    numbers: st.SearchStrategy[Any] = st.one_of(_numbers_given, st.sampled_from(quantities))
    texts: st.SearchStrategy[Any] = st.sampled_from((*_PLAIN, *_NAMED, *_DATES, *_NUMERALS))
    kinds: list[st.SearchStrategy[Any]] = [numbers if attribute in _NUMERIC else texts, _instants]
    if attribute in ("release", "box.release"):  # what is no version would be refused
        return st.sampled_from(_VERSIONS[:-1]).map(Constant)
    if attribute == "host":
        return st.sampled_from(_ADDRESSES[:5]).map(Constant)
    if attribute == "due":
        numbers = st.one_of(st.sampled_from(_SINCE_1970[:4]), st.sampled_from((Quantity(1, "s"), Quantity(5, "kg"))))
        kinds = [st.sampled_from(("2026-01-01", "2026-01", "2026", *_DATES, "x")), _instants]
    if attribute == "kind":
        kinds = [numbers, _instants]
    if attribute == "grade":  # what is not a member of a declared enumeration has no order there, and is refused
        kinds = [st.sampled_from(DECLARATIONS["grade"].enum), numbers] if ordered else kinds
    if not ordered:
        kinds += [_concept_terms, _instances] if attribute in _WORDY else [st.booleans()]
    return st.one_of(kinds[0], *kinds, numbers).map(Constant)


@st.composite
def _of_aggregates(draw: st.DrawFn) -> Expression:
    """A comparison of an aggregate."""
    name = aggregate_name(
        draw(st.sampled_from(["count", "sum", "min", "max"])),
        draw(st.sampled_from(("size", "weight", "temp", "a", "b", "due", "box", "box.size", "contact"))),
    )
    order = draw(st.sampled_from(["=", "!=", "<", "<=", ">", ">="]))
    operand: Any = st.one_of(st.sampled_from((1, 2, 3, 5.5, 10, 35)).map(Constant), st.just(AttributeRef("size")))
    if name.endswith(("(weight)", "(temp)")) and "count" not in name:
        operand = st.sampled_from(_MASSES if "weight" in name else _TEMPERATURES).map(Constant) | operand
    found = Comparison(name, order, draw(operand))
    return found if (order, found.operand) != ("<", Constant(1)) else replace(found, order=">")


@st.composite
def atoms(draw: st.DrawFn, names: Sequence[str] = _ASKED) -> Expression:
    """One predicate on one of `names`."""
    name = draw(st.sampled_from(names))
    if names is _ASKED and not draw(st.integers(0, 11)):
        return draw(_of_aggregates())
    orders = st.sampled_from(["=", "!=", "<", "<=", ">", ">="])
    sorts = ["compare", "compare", "in", "between", "presence", "attribute"]
    if name == "host":  # an address has no order
        sorts, orders = ["compare", "in", "in", "presence"], st.sampled_from(["=", "!="])
    match draw(st.sampled_from([*sorts, *(["kind", "kind", "relation", "text"] if name in _WORDY else [])])):
        case "kind":
            terms = draw(st.lists(_concept_terms, min_size=1, max_size=2))
            return KindTest(name, draw(st.sampled_from(["isa", "isa", "below", "is"])), tuple(terms))
        case "relation":
            terms = draw(st.lists(_concept_terms, min_size=1, max_size=2))
            return RelationTest(name, draw(st.sampled_from((*RELATIONS, UNION))), tuple(terms))
        case "compare":
            order = draw(orders)
            return Comparison(name, order, draw(_constants(name, ordered=order not in ("=", "!="))))
        case "in":
            of_host = st.sampled_from((*_ADDRESSES[:5], *_NETWORKS)).map(Constant)
            constants = of_host if name == "host" else _constants(name, ordered=False)
            return Membership(name, tuple(draw(st.lists(constants, min_size=1, max_size=3))))
        case "between":
            low = draw(_constants(name, ordered=True))
            high = draw(_constants(name, ordered=True))
            high = high if _axis(name, high) == _axis(name, low) else low
            return Between(name, low, high, draw(st.sampled_from(["[]", "[)", "(]", "()"])))
        case "presence":
            return Presence(name, draw(st.booleans()))
        case "text":
            test = draw(st.sampled_from(["startswith", "endswith", "contains", "matches"]))
            text = draw(st.sampled_from(_PATTERNS if test == "matches" else (*_PLAIN, "C", "top", "E\u0301")))
            return TextTest(name, test, text, draw(st.booleans()))
        case _:
            return Comparison(name, draw(orders), AttributeRef(draw(st.sampled_from(names))))


def _axis(attribute: str, constant: Constant) -> str:
    """On which axis of an attribute a constant lies; both ends of `between` must lie on one."""
    value = constant.value
    if attribute in ("due", "later") and isinstance(value, float) and value > 1e15:
        return "beyond"  # of all date-times
    if isinstance(value, Instant) or value in _DATES:
        return "instant"
    if isinstance(value, str) and value in _DAYS:
        return "date"
    if isinstance(value, Quantity):
        return "mass" if value in _MASSES else "temperature" if value in _TEMPERATURES else "time"
    return "text" if isinstance(value, str) else "number"


def expressions() -> st.SearchStrategy[Expression]:
    """Expressions of at most six predicates, `some` over `box` among them, negated anywhere; now and then empty."""
    inner = st.recursive(atoms(("a", "b", "kind", "size")), _grouped, max_leaves=2)
    some = st.one_of(st.builds(SomeOf, st.just("box"), inner), st.builds(EveryOf, st.just("box"), inner))
    every = (
        atoms()
        .filter(lambda each: not isinstance(each, Presence) and aggregate_of(getattr(each, "attribute", "")) is None)
        .map(EveryValue)
    )
    grouped = st.recursive(st.one_of(atoms(), atoms(), atoms(), some, every), _grouped, max_leaves=6)
    return st.integers(0, 15).flatmap(lambda number: grouped if number else st.just(All(())))


def _grouped(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    several = st.lists(inner, min_size=2, max_size=3).map(tuple)
    return st.one_of(several.map(All), several.map(AnyOf), inner.map(Not))


# ── meaning: events ─────────────────────────────────────────────────────────────────────────────────────────────────


@st.composite
def _data(draw: st.DrawFn, *, most: int) -> dict[str, Any]:
    """An object with up to `most` attributes, some with several values, one now and then of another kind."""
    names = draw(st.lists(st.sampled_from(sorted(_PUBLISHED)), min_size=1, max_size=most, unique=True))
    data: dict[str, Any] = {}
    for name in names:
        values = draw(st.lists(st.one_of(*[_PUBLISHED[name]] * 4, _anything), min_size=1, max_size=3))
        data[name] = values if len(values) > 1 else values[0]
    return data


@st.composite
def events(draw: st.DrawFn) -> Event:
    """Events with several values, nested objects, arrays of objects, quantities and context attributes."""
    data = draw(_data(most=7))
    inner = _data(most=3)
    match draw(st.integers(0, 6)):
        case 0 | 1:
            data["box"] = draw(st.lists(inner, min_size=1, max_size=3))
        case 2:
            data["box"] = draw(inner)
        case 3:
            data["box"] = [draw(_anything), [draw(inner)]]
        case 4:
            data["box.a"] = draw(_text_values)
        case 5:
            data["@type"] = draw(_concept_values)
        case _:
            pass
    context = st.fixed_dictionaries({}, optional={"type": _concept_values, "source": st.just("/s")})
    return Event(data, draw(context))


# ── meaning: events that are graphs ───────────────────────────────────────────────────────────────────────────────────

_XSD = "http://www.w3.org/2001/XMLSchema#"
_CONTEXTS: tuple[Any, ...] = (
    {"@vocab": EX},
    {"@vocab": EX, "kind": {"@type": "@id"}, "a": {"@container": "@list"}, "ex": EX},
    [{"e": EX}, {"size": "e:size", "kind": {"@id": "e:kind", "@type": "@vocab"}, "@vocab": "http://other.org/"}],
    {"@vocab": EX, "weight": {"@type": f"{_XSD}decimal"}, "a": {"@language": "de"}, "id": "@id", "type": "@type"},
    {"@vocab": EX, "box": {"@type": "@id", "@container": "@set"}},
    {"@vocab": "https://example.org/", "size": "urn:ex:size", "weight": "http://other.org/weight"},
)
_NODES = st.sampled_from((*CLASSES, *INDIVIDUALS, *ALIASED, "urn:x:1", "urn:x:2", "_:b", "_:c"))


@st.composite
def graph_events(draw: st.DrawFn) -> Event:
    """An event with a context over it, nodes that are named or typed here and there, references and typed values."""
    event = draw(events())

    def node(value: Any, depth: int) -> Any:
        if isinstance(value, list):
            return [node(each, depth) for each in value if not isinstance(each, list)]
        if isinstance(value, str) and draw(st.integers(0, 5)) == 0:
            return {"@id": draw(_NODES)}
        if isinstance(value, int | float) and not isinstance(value, bool) and draw(st.integers(0, 5)) == 0:
            return {"@value": repr(value), "@type": _XSD + ("integer" if isinstance(value, int) else "double")}
        if not isinstance(value, dict):
            return value
        found = {key: node(each, depth + 1) for key, each in value.items()}
        if draw(st.integers(0, 2)) == 0:
            found["@type"] = draw(st.lists(st.sampled_from(CLASSES), min_size=1, max_size=2))
        if draw(st.integers(0, 2)) == 0:
            found["@id"] = draw(_NODES)
        return found

    data = node(event.data if isinstance(event.data, dict) else {}, 0)
    data = {"@context": draw(st.sampled_from(_CONTEXTS)), "@id": "urn:root", **data, "seen": 1}
    try:
        jsonld.expand(data)
    except jsonld.JsonLdError:
        reject()  # a list of lists, say, or a boolean where the context wants a name
    return Event(data, event.context)


_PROPERTIES = st.sampled_from(
    (
        *("<http://example.org/size>", "<https://example.org/size>", "<urn:ex:size>", "box.<https://example.org/kind>"),
        *("ex:size", "ex:weight", "ex:box.size", "box.ex:size", "ex:box.ex:size"),
    )
)
"""The pairs of one property."""


def graph_expressions() -> st.SearchStrategy[Expression]:
    """Expressions, some of which ask for the pairs of one property."""
    asked = st.one_of(
        st.builds(Presence, _PROPERTIES, st.booleans()),
        st.builds(Comparison, _PROPERTIES, st.sampled_from(["=", "<", ">="]), st.sampled_from([1, 5]).map(Constant)),
        st.builds(SomeOf, st.just("ex:box"), st.builds(Presence, st.just("ex:size"), st.just(True))),
    )
    return st.one_of(expressions(), expressions(), asked)
