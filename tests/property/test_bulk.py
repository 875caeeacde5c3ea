"""Adding many subscriptions is adding one after the other: the same slots, clauses, notes, errors and matches."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kindcast import InvalidSubscription, Matcher, Vocabulary
from kindcast.semantic.errors import DuplicateSubscription
from kindcast.semantic.language import to_tree
from kindcast.semantic.model import Event, Note
from kindcast.semantic.subscriptions import BulkCompiler, Described, compile_expression
from kindcast.semantic.subscriptions import bulk_compilation as bulk_module
from kindcast.semantic.subscriptions import bulk_compilation as repeated_module
from kindcast.semantic.subscriptions.bulk_compilation import Restored
from tests.oracle import World
from tests.oracle.world import Declaration
from tests.strategies import CLASSES, RETIRED, events, expressions, vocabulary_of, worlds

_NUMBERS = [0, 1, -1, 5, 5.0, 5.5, -0.0, 0.0, 30, 5000, 1e16, 2**53]
_ODD_NUMBERS = [2**53 + 1, 2**60, 10**400, float("nan"), float("inf")]
_TEXTS = ["x", "y", "nb", "5 kg", "EUR 5", "Laptop", "red", "high", "low", "é", "", "2026-01-01T00:00:00Z", "x" * 2000]
_TERMS = ["C0", "C1", "ex:C2", "i0", "Laptop"]
_ODD_TERMS = ["no such", "Old", RETIRED]
_INSTANTS = ["2026-01-01T00:00:00Z", "2026-01-02T06:00:00+05:00", "2026-01-01T01:00:00.5Z"]


def _sometimes(usual: list[Any], odd: list[Any]) -> st.SearchStrategy[Any]:
    return st.integers(0, 29).flatmap(lambda n: st.sampled_from(usual if n else odd))


_number = _sometimes(_NUMBERS, _ODD_NUMBERS)
_text = _sometimes(_TEXTS, ["?n"])
_iri = _sometimes(list(CLASSES), ["urn:gone", RETIRED]).map(lambda iri: {"iri": iri})
_term = _sometimes(_TERMS, _ODD_TERMS)
_instant = _sometimes(_INSTANTS, ["2026-13-01T00:00:00Z"]).map(lambda text: {"instant": text})
_mass = st.tuples(_number, st.sampled_from(["kg", "g"])).map(lambda each: {"value": each[0], "unit": each[1]})
_heat = _number.map(lambda number: {"value": number, "unit": "degF"})
_kilograms = _number.map(lambda number: {"value": number, "unit": "kg"})
_truth = st.booleans()

_POINTS = {
    "size": [_number, _truth],
    "weight": [_number, _kilograms, _mass],
    "temp": [_heat, _number],
    "b": [_instant, _text],
    "a": [_text, _iri, _truth, _number],
    "kind": [_iri, _number],
    "grade": [_text],
    "flag": [_truth],
    "nb": [_number],
    "Gewicht": [_kilograms],
    "email": [_text],
    "ce.type": [_text, _iri],
}
_LINES = {
    "size": [_number],
    "weight": [_kilograms, _mass, _number],
    "temp": [_heat],
    "b": [_instant],
    "Größe": [_number],
}


def a_form(draw: st.DrawFn, depth: int = 0) -> st.SearchStrategy[Any]:
    """A strategy for trees of one shape (nearly: units and odd constants differ)."""
    sort = draw(
        st.sampled_from(["=", "order", "between", "kind", "in", "presence", *["group", "group", "not"] * (depth < 3)])
    )
    match sort:
        case "group":
            inner = [a_form(draw, depth + 1) for _ in range(draw(st.integers(1, 3)))]
            key = draw(st.sampled_from(["all", "all", "any"]))
            return st.tuples(*inner).map(lambda items: {key: list(items)})
        case "not":
            return a_form(draw, depth + 1).map(lambda item: {"not": item})
        case "presence":
            name, key = draw(st.sampled_from(["a", "size", "kind"])), draw(st.sampled_from(["exists", "missing"]))
            return st.just({key: name})
        case "kind":
            test, kind = (
                draw(st.sampled_from(["isa", "isa", "below", "is"])),
                draw(st.sampled_from([_iri, _iri, _term])),
            )
            name = draw(st.sampled_from(["kind", "a", "ce.type"]))
            terms = st.tuples(*[kind] * draw(st.integers(1, 2))).map(list)
            single = draw(st.booleans())
            return terms.map(lambda found: {test: [name, found[0] if single else found]})
        case "order" | "between":
            name = draw(st.sampled_from(sorted(_LINES)))
            kind = draw(st.sampled_from(_LINES[name]))
            if sort == "order":
                key = draw(st.sampled_from(["<", "<=", ">", ">="]))
                return kind.map(lambda value: {key: [name, value]})
            closed = draw(st.sampled_from([["[]"], ["[)"], ["(]"], ["()"], []]))
            return st.tuples(kind, kind).map(lambda ends: {"between": [name, list(ends), *closed]})
        case _:
            name = draw(st.sampled_from(sorted(_POINTS)))
            kinds = [draw(st.sampled_from(_POINTS[name])) for _ in range(draw(st.integers(1, 3)))]
            if sort == "in":
                return st.tuples(*kinds).map(lambda values: {"in": [name, list(values)]})
            key = draw(st.sampled_from(["=", "=", "!="]))
            return kinds[0].map(lambda value: {key: [name, value]})


@st.composite
def alike(draw: st.DrawFn) -> list[Any]:
    """Trees, many of which have the shape of another, in any order."""
    made = [to_tree(draw(expressions()))]
    for _ in range(draw(st.integers(1, 3))):
        made += draw(st.lists(a_form(draw), min_size=2, max_size=8))
    return draw(st.permutations(made))


def compiled_one_by_one(matcher: Matcher, subscriptions: list[tuple[str, Any]]) -> Exception | None:
    """Each compiled by itself; what ended it."""
    for name, tree in subscriptions:
        try:
            matcher.add_compiled(name, matcher.compile(tree))
        except (InvalidSubscription, DuplicateSubscription) as error:
            return error
    return None


def told(error: Exception | None) -> Any:
    """What can be compared of an error."""
    return type(error), repr(getattr(error, "problems", error))


def assert_same(many: Matcher, single: Matcher, published: list[Event]) -> None:
    """Both hold the same subscriptions in the same slots, and match the same."""
    assert list(many) == list(single)
    for name in single:
        left, right = many[name], single[name]
        assert repr(left.tree) == repr(right.tree)
        assert left.canonical == right.canonical
        assert left.notes == right.notes
        assert left.clauses == right.clauses
        assert left.cost == right.cost
    for event in published:
        assert many.match(event) == single.match(event)
    many.check_invariants()
    single.check_invariants()


@pytest.mark.parametrize("engine", ["fused", "ctps"])
@given(
    world=worlds(),
    subscribed=alike(),
    published=st.lists(events(), min_size=4, max_size=6),
    chunk=st.sampled_from([5, 99]),
)
def test_add_many_of_trees_alike_is_adding_each(
    engine: str, world: World, subscribed: list[Any], published: list[Event], chunk: int
) -> None:
    """Whatever the constants: what is refused is refused at the same place, in the same words."""
    vocabulary = vocabulary_of(world)
    many, single = Matcher(vocabulary, engine=engine), Matcher(vocabulary, engine=engine)
    named = [(f"s{number}", tree) for number, tree in enumerate(subscribed)]
    before = bulk_module.CHUNK, bulk_module.LEAST
    bulk_module.CHUNK, bulk_module.LEAST = chunk, 2
    try:
        ended: Exception | None = None
        try:
            found = many.add_many(named)
        except (InvalidSubscription, DuplicateSubscription) as error:
            ended = error
        else:
            assert [each.canonical for each in found] == [single.compile(tree).canonical for _, tree in named]
    finally:
        bulk_module.CHUNK, bulk_module.LEAST = before
    assert told(ended) == told(compiled_one_by_one(single, named))
    assert_same(many, single, published)


@pytest.mark.parametrize("name", ["free", "typed", "worded"])
def test_texts_in_one_shape_are_read_as_the_compiler_reads_them(name: str) -> None:
    """Quantities and date-times in quotes get a note, synonyms and aliases have other texts, whatever else is there."""
    world = World(
        declarations={"typed": Declaration(kind="number"), "worded": Declaration(kind="text")},
        synonyms={"x": "why"},
        aliases=(("iri", "red", "x"),),
    )
    vocabulary = vocabulary_of(world)
    texts = ["plain", "other", "more", "yet", "5 kg", "EUR 5", "2026-01-01T00:00:00Z", "x", "red", "e\u0301", "", "C0"]
    subscribed = [{"=": [name, text]} for text in texts]
    found = BulkCompiler().compile(subscribed, vocabulary, {}).results
    each = [Described.of(compile_expression(tree, vocabulary)) for tree in subscribed]
    assert list(map(repr, found)) == list(map(repr, each))
    assert [bool(one.notes) for one in each[:6]] == [*[False] * 4, *[name != "worded"] * 2]
    many, single = Matcher(vocabulary), Matcher(vocabulary)
    many.add_many([(str(number), tree) for number, tree in enumerate(subscribed)])
    for number, tree in enumerate(subscribed):
        single.add_compiled(str(number), single.compile(tree))
    assert_same(many, single, [Event({name: text}) for text in (*texts, "why")])


@given(world=worlds(), subscribed=alike())
def test_describing_trees_alike_is_compiling_each(world: World, subscribed: list[Any]) -> None:
    """What is stored of many is what is stored of each: its canonical text, tree and cost, or what is wrong with it."""
    vocabulary = vocabulary_of(world)
    before = bulk_module.LEAST
    bulk_module.LEAST = 2
    try:
        found = BulkCompiler().compile(subscribed, vocabulary, {}).results
    finally:
        bulk_module.LEAST = before
    for tree, became in zip(subscribed, found, strict=True):
        if isinstance(became, InvalidSubscription):
            with pytest.raises(InvalidSubscription) as refused:
                compile_expression(tree, vocabulary)
            assert told(became) == told(refused.value)
        else:
            assert repr(became) == repr(Described.of(compile_expression(tree, vocabulary)))


@given(
    world=worlds(),
    subscribed=alike(),
    published=st.lists(events(), min_size=4, max_size=6),
    draw=st.data(),
)
def test_adding_some_of_those_described_is_adding_each(
    world: World, subscribed: list[Any], published: list[Event], draw: st.DataObject
) -> None:
    """What was compiled to be described is added as it is: any of those that are valid, under other names."""
    vocabulary = vocabulary_of(world)
    many, single = Matcher(vocabulary), Matcher(vocabulary)
    before = bulk_module.LEAST
    bulk_module.LEAST = 2
    try:
        described = BulkCompiler().compile(subscribed, vocabulary, {})
    finally:
        bulk_module.LEAST = before
    valid = [place for place, each in enumerate(described.results) if isinstance(each, Described)]
    chosen = [place for place in valid if draw.draw(st.integers(0, 3))]
    many.add_described(described, {place: f"s{place}" for place in chosen})
    for place in chosen:
        single.add_compiled(f"s{place}", single.compile(subscribed[place]))
    assert_same(many, single, published)
    if chosen:
        with pytest.raises(DuplicateSubscription):
            many.add_described(described, {chosen[0]: f"s{chosen[-1]}"})


@given(
    world=worlds(),
    subscribed=alike(),
    published=st.lists(events(), min_size=4, max_size=6),
    most=st.sampled_from([2, 10, 1_000]),
)
def test_adding_trees_alike_is_compiling_each(
    world: World, subscribed: list[Any], published: list[Event], most: int
) -> None:
    """One by one, by what those of their shape became: the same answers, errors, clauses and matches, also when what
    was remembered is forgotten in between."""
    vocabulary = vocabulary_of(world)
    alone, repeated = Matcher(vocabulary), Matcher(vocabulary)
    named = [(f"s{number}", tree) for number, tree in enumerate(subscribed)]
    ended = compiled_one_by_one(alone, named)
    before = repeated_module.LEAST, repeated_module.MOST_REMEMBERED
    repeated_module.LEAST, repeated_module.MOST_REMEMBERED = 2, most
    try:
        for name, tree in named:
            if name not in alone:
                with pytest.raises(InvalidSubscription) as refused:
                    repeated.add(name, tree)
                assert told(refused.value) == told(ended)
                break
            compiled, wanted = repeated.add(name, tree), alone[name]
            assert repr(compiled.tree) == repr(wanted.tree)
            assert (compiled.canonical, compiled.clause_count) == (wanted.canonical, wanted.clause_count)
            assert compiled.cost == wanted.cost
            with pytest.raises(DuplicateSubscription):
                repeated.add(name, tree)
    finally:
        repeated_module.LEAST, repeated_module.MOST_REMEMBERED = before
    assert_same(repeated, alone, published)


@given(world=worlds(complete=False), subscribed=alike(), published=st.lists(events(), min_size=4, max_size=6))
def test_restore_many_of_trees_alike_is_restoring_each(
    world: World, subscribed: list[Any], published: list[Event]
) -> None:
    """Under a vocabulary that lost concepts: the notes are those of each, and what has no meaning is left out."""
    vocabulary = vocabulary_of(world)
    many, single = Matcher(vocabulary), Matcher(vocabulary)
    named = [(f"s{number}", tree) for number, tree in enumerate(subscribed)]
    before = bulk_module.LEAST
    bulk_module.LEAST = 2
    try:
        restored = many.restore_many(named)
    finally:
        bulk_module.LEAST = before
    notes: dict[str, tuple[Note, ...]] = {}
    refused: dict[str, Any] = {}
    for name, tree in named:
        try:
            compiled = single.restore(name, tree)
        except InvalidSubscription as error:
            refused[name] = told(error)
        else:
            notes |= {name: compiled.notes} if compiled.notes else {}
    assert isinstance(restored, Restored)
    assert restored.notes == notes
    assert {name: told(error) for name, error in restored.refused.items()} == refused
    assert_same(many, single, published)


@pytest.mark.parametrize("order", ["<", "<=", ">", ">="])
def test_add_many_of_dates_compares_with_the_dates(order: str) -> None:
    """The constants of a column are instants, not numbers of the event."""
    tree = {order: ["at", {"instant": "2026-01-02T06:00:00Z"}]}
    named = [(f"s{number}", tree) for number in range(5)]
    many, single = Matcher(Vocabulary()), Matcher(Vocabulary())
    before = bulk_module.CHUNK, bulk_module.LEAST
    bulk_module.CHUNK, bulk_module.LEAST = 5, 2
    try:
        many.add_many(named)
    finally:
        bulk_module.CHUNK, bulk_module.LEAST = before
    assert compiled_one_by_one(single, named) is None
    published = [Event({"at": f"2026-01-0{day}T06:00:00Z"}, {}) for day in (1, 2, 3)]
    assert any(single.match(event) for event in published)
    assert_same(many, single, published)
