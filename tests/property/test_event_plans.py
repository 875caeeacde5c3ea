"""Events that are read by plans, and those that are read whole, are one: the same lowered events, notes, matches and
refusals; and both decide as the oracle, also while subscriptions come and go."""

import math
from collections.abc import Iterator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kindcast import InvalidEvent, Matcher
from kindcast.semantic.events.event_plans import ReadEvent
from kindcast.semantic.flatten import EventLimits
from kindcast.semantic.language import to_tree
from kindcast.semantic.model import CanonicalEvent, Event, Expression
from tests.oracle import World, matching
from tests.strategies import events, expressions, vocabulary_of, worlds

NAMES = (
    "a",
    "b",
    "kind",
    "size",
    "Größe",
    "weight",
    "temp",
    "unit",
    "email",
    "phone",
    "flag",
    "grade",
    "load",
    "value",
)
ODD_NAMES = ("@type", "ce", "ce.type", "ce.", "", "box.a", "unasked", "e\u0301", "\ud800", "n" * 300, 5, None, ("a",))
PLAIN = (0, 1, True, False, 1.0, -0.0, 5.5, 1 << 53, 1e16, "x", "Laptop", "5 kg", "5", "2026-01-01T00:00:00Z", "", None)
ODD: tuple[Any, ...] = (
    *(math.nan, math.inf, -math.inf, (1 << 53) + 1, -(1 << 53), 10**400, 1e308, 5e-324),
    *("\ud800", "y" * 300, "e\u0301a", b"x", [], ["x", 1.0], {}, {"value": 5, "unit": "kg"}, {"a": {"a": 1}}),
    *(([[]],), {1: 2}, {"value": math.nan, "unit": "kg"}, object(), {"value": 1, "unit": 5}, [{}], [[{"a": "x"}]]),
)
UNITS = ("kg", "g", "degF", "K", "USD", "no unit", "")
VALUES = (*PLAIN, *UNITS, math.nan, math.inf, 1 << 60)

plain = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(PLAIN), max_size=6)
odd = st.dictionaries(
    st.one_of(st.sampled_from(NAMES), st.sampled_from(ODD_NAMES)),
    st.one_of(st.sampled_from(PLAIN), st.sampled_from(ODD), st.floats(), st.text(max_size=3)),
    max_size=4,
)
quantities = st.builds(
    lambda number, key, unit: {"value": number, key: unit},
    st.sampled_from((0, 5, 5.5, -0.0, 1e308, True, "5", None)),
    st.sampled_from(("unit", "currency", "unitCode", "other")),
    st.sampled_from((*UNITS, 5)),
)
scalars = st.one_of(st.sampled_from(PLAIN), st.sampled_from(UNITS), quantities)
nested = st.dictionaries(
    st.sampled_from((*NAMES, "box", "box.a", "@type")),
    st.recursive(
        scalars,
        lambda inner: st.one_of(
            st.lists(inner, max_size=3), st.dictionaries(st.sampled_from((*NAMES, "box")), inner, max_size=3)
        ),
        max_leaves=6,
    ),
    max_size=5,
)
enveloped = st.builds(
    Event,
    st.one_of(plain, nested, odd, st.sampled_from((None, 5, "x"))),
    st.dictionaries(
        st.sampled_from(("type", "source", "subject", "time", "id")),
        st.sampled_from(("Laptop", "x", "2026-01-01T00:00:00Z", 5, True)),
        max_size=3,
    ),
)
published_events = st.one_of(plain, nested, nested, odd, enveloped, events(), events().map(lambda event: event.data))
limits = st.sampled_from(
    [None, None, None, EventLimits(depth=0), EventLimits(depth=1, values=2), EventLimits(values=5)]
)


def outcome(of: Any, data: Any) -> Any:
    """What `of` answers, or what it has against `data`."""
    try:
        return of(data)
    except InvalidEvent as error:
        return [(problem.code, problem.detail, problem.at) for problem in error.problems]


@given(
    world=worlds(),
    asked=st.lists(expressions(), min_size=4, max_size=12),
    later=expressions(),
    published=st.lists(published_events, min_size=1, max_size=12),
    bounds=limits,
)
def test_events_read_by_plans_mean_what_those_read_whole_do(
    world: World, asked: list[Expression], later: Expression, published: list[Any], bounds: EventLimits | None
) -> None:
    """Seen for the first time or again, before and after a subscription asks about more; one by one and in a batch."""
    matcher = Matcher(vocabulary_of(world), limits=bounds)
    for number, expression in enumerate(asked):
        matcher.add(str(number), to_tree(expression))
    for step in range(3):
        if step == 2:
            matcher.add("later", to_tree(later))
        for data in published:
            expected = outcome(lambda data: matcher.match(matcher.canonicalise(data)), data)
            assert outcome(matcher.match, data) == expected
            assert outcome(lambda data: matcher.match_batch([data])[0], data) == expected
            planned = matcher._plans.planned(data)
            if planned is not None:
                agrees(matcher, planned, matcher.canonicalise(data))
        valid = [data for data in published if isinstance(outcome(matcher.canonicalise, data), CanonicalEvent)]
        assert list(matcher.match_batch(valid)) == [matcher.match(matcher.canonicalise(data)) for data in valid]


@st.composite
def batches(draw: st.DrawFn) -> list[Any]:
    """Events of a few shapes, whose values differ: each is one of the first events with other values at its places."""
    firsts = draw(st.lists(published_events, min_size=1, max_size=3))
    made = draw(
        st.lists(
            st.tuples(st.sampled_from(firsts), st.lists(st.sampled_from(VALUES), max_size=8)),
            min_size=4,
            max_size=24,
        )
    )
    return [revalued(first, iter(values)) for first, values in made]


def revalued(value: Any, values: Iterator[Any]) -> Any:
    """`value` with the next of `values` at its places, where that has the same type, until there are no more."""
    if isinstance(value, Event):
        return Event(revalued(value.data, values), value.context)
    if type(value) is dict:
        return {name: revalued(each, values) for name, each in value.items()}
    if type(value) is list:
        return [revalued(each, values) for each in value]
    other = next(values, value)
    return other if type(other) is type(value) or value is None else value


@given(
    world=worlds(),
    asked=st.lists(expressions(), min_size=4, max_size=12),
    batch=batches(),
    bounds=limits,
)
def test_events_read_together_are_read_as_each_alone_is(
    world: World, asked: list[Expression], batch: list[Any], bounds: EventLimits | None
) -> None:
    """With notes and without; those that are left out are read alone."""
    matcher = Matcher(vocabulary_of(world), limits=bounds)
    for number, expression in enumerate(asked):
        matcher.add(str(number), to_tree(expression))
    for noted in (False, True):
        for data, read in zip(batch, matcher.read_together(batch, noted=noted), strict=True):
            if read is not None:
                agrees(matcher, read, matcher.canonicalise(data))
    valid = [data for data in batch if isinstance(outcome(matcher.canonicalise, data), CanonicalEvent)]
    assert list(matcher.match_batch(valid)) == [matcher.match(matcher.canonicalise(data)) for data in valid]


def agrees(matcher: Matcher, planned: ReadEvent, canonical: CanonicalEvent) -> None:
    """The same attributes are present, with the same keys in the same columns, and the same is noted."""
    general = matcher._lowering.event(canonical)
    assert planned.lowered.present == general.present
    assert {column: set(keys) for column, keys in planned.lowered.values.items()} == {
        column: set(keys) for column, keys in general.values.items()
    }
    assert all(len(set(keys)) == len(keys) for keys in planned.lowered.values.values())
    noted = matcher.read(canonical).notes(1_000)  # with what subscriptions ask about
    assert set(planned.notes(1_000)) == set(noted)
    assert len(planned.notes(1)) == min(len(noted), 1)


@given(
    world=worlds(),
    asked=st.lists(expressions(), min_size=3, max_size=8),
    published=st.lists(events(), min_size=1, max_size=4),
    steps=st.lists(st.tuples(st.integers(0, 7), st.integers(0, 3)), min_size=4, max_size=16),
)
def test_plans_follow_the_oracle_while_subscriptions_come_and_go(
    world: World, asked: list[Expression], published: list[Event], steps: list[tuple[int, int]]
) -> None:
    """The same events again and again, with one subscription more or less each time: what was remembered of a shape or
    a value when nobody asked about it does not stay."""
    matcher = Matcher(vocabulary_of(world))
    subscribed: dict[str, Expression] = {}
    for which, seen in steps:
        name = str(which % len(asked))
        if name in subscribed:
            matcher.remove(name)
            del subscribed[name]
        else:
            subscribed[name] = asked[int(name)]
            matcher.add(name, to_tree(subscribed[name]))
        for event in (published[seen % len(published)], *published):
            expected = matching(subscribed, event, world)
            assert {match.subscription for match in matcher.match(event)} == expected
