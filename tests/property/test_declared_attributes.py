"""Enumerations with a partial order and derived attributes: the matcher decides as the oracle does.

The general test (`test_matcher_against_oracle`) has them among much else; here nothing else is asked.
"""

from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kindcast import Matcher
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
    Instant,
    Membership,
    Not,
    Presence,
    Quantity,
)
from tests.oracle import Declaration, World, matching
from tests.strategies import fused_and_others, vocabulary_of

MEMBERS = ("a", "b", "c", "d")

# ── enumerations ────────────────────────────────────────────────────────────────────────────────────────────────────

pairs = st.tuples(st.sampled_from(MEMBERS), st.sampled_from(MEMBERS)).filter(lambda pair: pair[0] < pair[1])
chains = st.lists(pairs, min_size=1, max_size=4).map(tuple)
"""Any order without a circle: each pair leads upwards in the alphabet."""
orders = st.sampled_from(["=", "<", "<=", ">", ">="])
members = st.sampled_from(MEMBERS).map(Constant)
ends = st.sampled_from(["[]", "[)", "(]", "()"])
graded: st.SearchStrategy[Expression] = st.one_of(
    st.builds(Comparison, st.just("grade"), orders, members),
    st.builds(Between, st.just("grade"), members, members, ends),
    st.builds(Membership, st.just("grade"), st.tuples(members, members)),
    st.builds(Comparison, st.just("grade"), orders, st.just(AttributeRef("other"))),
    st.builds(Comparison, st.just("plain"), orders, st.just(AttributeRef("grade"))),
)


def negated(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    both = st.tuples(inner, inner)
    return st.one_of(inner, inner.map(Not), both.map(All), both.map(AnyOf))


values = st.lists(st.sampled_from((*MEMBERS, "A", "z", 1)), min_size=1, max_size=3)
graded_events = st.fixed_dictionaries({}, optional={"grade": values, "other": values, "plain": values})


@fused_and_others
@given(
    data=st.data(),
    order=chains,
    other=chains,
    asked=st.lists(negated(graded), min_size=6, max_size=10),
    published=st.lists(graded_events, min_size=4, max_size=6),
)
def test_matcher_compares_members_by_their_partial_order(
    engines: st.SearchStrategy[str],
    data: st.DataObject,
    order: Any,
    other: Any,
    asked: list[Expression],
    published: list[dict[str, Any]],
) -> None:
    """Against constants and other attributes, negated or not; "A" stands for "a" by a table of synonyms."""
    world = World(
        declarations={
            "grade": Declaration("text", enum=MEMBERS, order=order),
            "other": Declaration("text", enum=MEMBERS, order=other),
        },
        synonyms={"A": "a"},
    )
    decides_as_the_oracle(data.draw(engines), world, asked, [Event(data) for data in published])


# ── derived attributes ──────────────────────────────────────────────────────────────────────────────────────────────

MASSES = tuple(Quantity(number, unit) for number, unit in ((1, "kg"), (5, "kg"), (500, "g"), (-1, "kg")))
SPANS = tuple(Quantity(number, "day") for number in (0, 1, 30, -30))
DAYS = ("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z", "2025-12-31T00:00:00Z")
WORLD = World(
    declarations={
        "mass": Declaration("number", unit="kg"),
        "net": Declaration("number", unit="kg", derived="mass - 1 kg"),
        "each": Declaration("number", derived="mass / count"),
        "half": Declaration("number", derived="-(count / 2) + count * count"),
        "share": Declaration("number", derived="net / mass"),
        "age": Declaration("number", unit="day", derived="now - born"),
        "due": Declaration("instant", derived="born + 30 day"),
        "old": Declaration("number", derived="year(now) - year(born)"),
        "odd": Declaration(derived="mass + count", of_types=()),
        "load": Declaration("number", derived="mass / heat"),
        "back": Declaration("number", unit="kg", derived="mass - 1 kg + load * heat / 2"),
    }
)
ASKED: dict[str, tuple[Any, ...]] = {
    "net": (*MASSES, 0, 4),
    "each": MASSES,
    "half": (0, 0.5, 1, -0.25, 6),
    "share": (0.8, 0, 1, -1),
    "age": (*SPANS, 1),
    "due": tuple(map(Instant, ("2026-01-31T00:00:00Z", "2026-02-01T00:00:00Z"))),
    "old": (0, 1),
    "odd": (6, Quantity(6, "kg")),
    "load": (0, 5, 2.5, Quantity(5, "kg")),
    "back": (0, Quantity(-1, "kg"), Quantity(6.5, "kg"), 6.5, 4),
}


def asked_of(name: str) -> st.SearchStrategy[Expression]:
    constants = st.sampled_from(ASKED[name]).map(Constant)
    return st.one_of(
        st.builds(Comparison, st.just(name), orders, constants),
        st.builds(Presence, st.just(name), st.booleans()),
        st.builds(Comparison, st.just(name), orders, st.sampled_from(["mass", "net", "half"]).map(AttributeRef)),
    )


derived = st.sampled_from(sorted(ASKED)).flatmap(asked_of)
counts = st.sampled_from([0, 1, 2, 0.5, 3, "two", True])
weights = st.sampled_from([0, 1, 5, 0.1, "5 kg", "500 g", {"value": 5, "unit": "g"}, "heavy", "5 degC"])
several = st.lists(weights, min_size=1, max_size=2)
measured = st.fixed_dictionaries(
    {"mass": st.one_of(weights, several)},
    optional={
        "count": st.one_of(counts, st.lists(counts, min_size=1, max_size=3)),
        "heat": st.sampled_from(["2 K", "86 degF", {"value": 2, "unit": "K"}, 2, 0, "5 kg"]),
        "born": st.sampled_from([*DAYS, "long ago"]),
        "net": st.sampled_from([7, "7 kg"]),
    },
)


@fused_and_others
@given(
    data=st.data(),
    asked=st.lists(negated(derived), min_size=6, max_size=10),
    published=st.lists(st.tuples(measured, st.sampled_from(DAYS)), min_size=4, max_size=6),
)
def test_matcher_derives_what_the_oracle_derives(
    engines: st.SearchStrategy[str],
    data: st.DataObject,
    asked: list[Expression],
    published: list[tuple[dict[str, Any], str]],
) -> None:
    """Amounts, plain numbers, date-times, several values, what is undefined, and what was published already."""
    events = [Event(data, {"time": time}) for data, time in published]
    decides_as_the_oracle(data.draw(engines), WORLD, asked, events)


TIMELESS = World(
    declarations={name: each for name, each in WORLD.declarations.items() if "now" not in str(each.derived)}
)
timeless = st.sampled_from(sorted(ASKED.keys() - {"age", "old"})).flatmap(asked_of)


@given(
    asked=st.lists(negated(timeless), min_size=6, max_size=10),
    published=st.lists(measured, min_size=4, max_size=6),
)
def test_table_derives_what_single_events_derive(asked: list[Expression], published: list[dict[str, Any]]) -> None:
    """A cell from which others are derived cannot be read alone."""
    decides_as_the_oracle("fused", TIMELESS, asked, [Event(data) for data in published])


def decides_as_the_oracle(engine: str, world: World, asked: list[Expression], published: list[Event]) -> None:
    """One by one and from a table."""
    vocabulary = vocabulary_of(world)
    matcher = Matcher(vocabulary, engine=engine)
    subscriptions = {str(number): expression for number, expression in enumerate(asked)}
    for name, expression in subscriptions.items():
        matcher.add(name, to_tree(expression))
    expected = [sorted(matching(subscriptions, event, world)) for event in published]
    assert [sorted(match.subscription for match in matcher.match(event)) for event in published] == expected
    if not any(event.context for event in published):
        names = {name for event in published for name in event.data}
        columns = {name: [event.data.get(name) for event in published] for name in sorted(names)}
        table = matcher.match_table(columns | {"idle": [0] * len(published)})
        slots = [table.slots[low:high] for low, high in pairwise(table.offsets)]
        assert [sorted(table.subscriptions(each)) for each in slots] == expected
