"""How strings are read (rule 9): root words, quantities as text, instants with offsets, two attributes compared.

The general test (`test_matcher_against_oracle`) has them among much else; here nothing else is asked, by every way in.
"""

from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kindcast import Matcher, explain
from kindcast.semantic.language import to_tree
from kindcast.semantic.model import (
    All,
    AnyOf,
    AttributeRef,
    Between,
    Comparison,
    Constant,
    Event,
    Expression,
    KindTest,
    Membership,
    Not,
    Quantity,
    SomeOf,
    Term,
    TextTest,
)
from tests.oracle import Declaration, World, matching
from tests.strategies import fused_and_others, vocabulary_of

EX = "http://example.org/"
WORDS = ("Hewlett-Packard", "HP", "HP Inc.", "laptop", "disk", "e\u0301", "é", "", "5")
QUANTITIES = ("10 EUR", "9 USD", "10 kg", "9 m", "9000 g", "5 kg", "5000 g", "86 degF", "30 degC")
INSTANTS = (
    "2026-01-31T12:00:00+01:00",
    "2026-01-31T11:00:00Z",
    "2026-01-31 11:00:00",
    "2026-01-31T11:00:00.5Z",
    "2026-01-31",
)
STRINGS = (*WORDS, *QUANTITIES, *INSTANTS)
NAMES = ("a", "b", "size", "weight", "kind", "grade", "note")
DECLARATIONS = {
    "size": Declaration("number"),
    "weight": Declaration("number", unit="kg"),
    "grade": Declaration("text", enum=("HP", "laptop", "5 kg"), order=(("HP", "laptop", "5 kg"),)),
    "note": Declaration("text"),
    "b": Declaration(reads=({"match": "([0-9]+) (kg|m)", "as": r"\1 EUR"}, {"match": "(lap|di).*", "as": "HP"})),
    "kind": Declaration("concept", range=(f"{EX}Product",), reads=({"match": "([A-Z]*) Inc.", "as": f"{EX}Laptop"},)),
}

roots = st.dictionaries(st.sampled_from(STRINGS), st.sampled_from(STRINGS), max_size=5)


def without_circles(table: dict[str, str]) -> dict[str, str]:
    """`table` without the words that lead back to themselves; a chain leads on."""
    kept: dict[str, str] = {}
    for word, root in sorted(table.items()):
        end = root
        while end in kept:
            end = kept[end]
        if end != word and {word, root} != {"é", "e\u0301"}:
            kept[word] = root
    return {word: root for word, root in kept.items() if "e\u0301" not in (word, root)}


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Two concepts and a table of synonyms over anything; attributes declared or not."""
    labels = ((f"{EX}Laptop", "laptop", None, "preferred"), (f"{EX}Disk", "disk", None, "preferred"))
    return World(
        names=(f"{EX}Product", f"{EX}Laptop", f"{EX}Disk"),
        narrower=((f"{EX}Laptop", f"{EX}Product"), (f"{EX}Disk", f"{EX}Product")),
        labels=labels[: draw(st.integers(0, 2))],
        declarations={name: each for name, each in DECLARATIONS.items() if draw(st.booleans())},
        synonyms=without_circles(draw(roots)),
    )


texts = st.sampled_from(STRINGS)
names = st.sampled_from(NAMES)
orders = st.sampled_from(["=", "!=", "<", "<=", ">", ">="])
needles = st.sampled_from([*STRINGS, "Packard", "HP", "kg", "2026", "1"])
patterns = st.sampled_from(["^HP", "[0-9]+ kg$", "^$", "Z$", "p"])
terms = st.sampled_from([Term(iri, is_iri=True, iri=iri) for iri in (f"{EX}Product", f"{EX}Laptop", f"{EX}Disk")])
plain_names = st.sampled_from(["a", "b", "note", "size", "weight"])
"""Those on which any constant may stand: no concepts, no members."""
quoted = st.sampled_from([*WORDS, *QUANTITIES, "2026-01-31"]).map(Constant)
timed = st.sampled_from(INSTANTS[:4]).map(Constant)
quantities = st.sampled_from([Quantity(5, "kg"), Quantity(9000, "g"), Quantity(10, "kg")]).map(Constant)
ends = st.sampled_from(["[]", "[)", "(]", "()"])

predicates: st.SearchStrategy[Expression] = st.one_of(
    st.builds(Comparison, plain_names, orders, st.one_of(quoted, timed, quantities)),
    st.builds(Between, plain_names, quoted, quoted, ends),
    st.builds(Between, plain_names, timed, timed, ends),
    st.builds(Membership, plain_names, st.lists(quoted, min_size=1, max_size=3).map(tuple)),
    st.builds(TextTest, names, st.sampled_from(["startswith", "endswith", "contains"]), needles, st.booleans()),
    st.builds(TextTest, names, st.just("matches"), patterns, st.booleans()),
    st.builds(KindTest, names, st.sampled_from(["isa", "below", "is"]), st.tuples(terms)),
    *[st.builds(Comparison, names, orders, names.map(AttributeRef))] * 3,
)


def grouped(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    both = st.tuples(inner, inner)
    return st.one_of(inner, inner.map(Not), both.map(All), both.map(AnyOf))


expressions = st.one_of(
    grouped(predicates), grouped(predicates), st.builds(SomeOf, st.just("box"), grouped(predicates))
)
objects = st.builds(
    lambda number, unit: {"value": number, "unit": unit}, st.sampled_from([5, 9, 10]), st.sampled_from(["kg", "m"])
)
values = st.one_of(texts, texts, texts, st.sampled_from([5, 9.0, True]), objects)
flat = st.dictionaries(names, st.one_of(values, st.lists(values, min_size=1, max_size=2)), min_size=1, max_size=5)


@st.composite
def published(draw: st.DrawFn) -> dict[str, Any]:
    """Mostly flat data, now and then with elements."""
    data: dict[str, Any] = draw(flat)
    return {**data, "box": draw(st.lists(flat, min_size=1, max_size=2))} if draw(st.booleans()) else data


@fused_and_others
@given(
    data=st.data(),
    world=worlds(),
    asked=st.lists(expressions, min_size=8, max_size=16),
    events=st.lists(published(), min_size=4, max_size=8),
)
def test_strings_are_read_as_the_oracle_reads_them(
    engines: st.SearchStrategy[str],
    data: st.DataObject,
    world: World,
    asked: list[Expression],
    events: list[dict[str, Any]],
) -> None:
    """One by one, in a batch, from a table, and in explanations."""
    vocabulary = vocabulary_of(world)
    matcher = Matcher(vocabulary, engine=data.draw(engines))
    subscriptions = {str(number): expression for number, expression in enumerate(asked)}
    matcher.add_many([(name, to_tree(expression)) for name, expression in subscriptions.items()])
    expected = [sorted(matching(subscriptions, Event(each), world)) for each in events]
    assert [sorted(match.subscription for match in matcher.match(each)) for each in events] == expected
    assert [sorted(match.subscription for match in each) for each in matcher.match_batch(events)] == expected
    columns = {name: [row.get(name) for row in events] for each in events for name in each}
    table = matcher.match_table(columns)
    found = [table.slots[low:high] for low, high in pairwise(table.offsets)]
    assert [sorted(table.subscriptions(slots)) for slots in found] == expected
    told = {name: explain(vocabulary, to_tree(subscriptions[name]), events[0])["matches"] for name in subscriptions}
    assert sorted(name for name, matches in told.items() if matches) == expected[0]
