"""The short road of plain events and the general road are one: the same lowered events, matches and refusals."""

import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from semantic import InvalidEvent, Matcher
from semantic.flatten import EventLimits
from semantic.language import to_tree
from semantic.model import CanonicalEvent, Expression
from tests.oracle import World
from tests.strategies import events, expressions, vocabulary_of, worlds

NAMES = ("a", "b", "kind", "size", "Größe", "weight", "temp", "unit", "email", "phone", "flag", "grade", "load")
ODD_NAMES = ("@type", "ce", "ce.type", "ce.", "", "box.a", "unasked", "e\u0301", "\ud800", "n" * 300, 5, None, ("a",))
PLAIN = (0, 1, True, False, 1.0, -0.0, 5.5, 1 << 53, 1e16, "x", "Laptop", "5 kg", "5", "2026-01-01T00:00:00Z", "", None)
ODD: tuple[Any, ...] = (
    *(math.nan, math.inf, -math.inf, (1 << 53) + 1, -(1 << 53), 10**400, 1e308, 5e-324),
    *("\ud800", "y" * 300, "e\u0301a", b"x", [], ["x", 1.0], {}, {"value": 5, "unit": "kg"}, {"a": {"a": 1}}),
    *(([[]],), {1: 2}, {"value": math.nan, "unit": "kg"}, object()),
)

plain = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(PLAIN), max_size=6)
odd = st.dictionaries(
    st.one_of(st.sampled_from(NAMES), st.sampled_from(ODD_NAMES)),
    st.one_of(st.sampled_from(PLAIN), st.sampled_from(ODD), st.floats(), st.text(max_size=3)),
    max_size=4,
)
bare = events().map(lambda event: event.data)
limits = st.sampled_from([None, None, None, EventLimits(depth=0), EventLimits(depth=1, values=2)])


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
    published=st.lists(st.one_of(plain, plain, odd, bare), min_size=1, max_size=12),
    bounds=limits,
)
def test_plain_events_mean_what_the_general_road_reads(
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
            short = matcher._plain.lowered(data)
            if short is not None:
                general = matcher._lowering.event(matcher.canonicalise(data))
                assert short.present == general.present
                assert {column: set(keys) for column, keys in short.values.items()} == {
                    column: set(keys) for column, keys in general.values.items()
                }
        valid = [data for data in published if isinstance(outcome(matcher.canonicalise, data), CanonicalEvent)]
        assert list(matcher.match_batch(valid)) == [matcher.match(matcher.canonicalise(data)) for data in valid]
