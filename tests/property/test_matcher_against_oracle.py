"""The matcher, with every engine, decides as the oracle does: random vocabularies, expressions and events."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from index.engines import ENGINES
from semantic import Matcher
from semantic.language import to_tree
from semantic.model import Event, Expression
from tests.oracle import World, matching
from tests.strategies import events, expressions, vocabulary_of, worlds


@pytest.mark.parametrize("engine", sorted(ENGINES))
@given(
    world=worlds(),
    asked=st.lists(expressions(), min_size=1, max_size=6),
    published=st.lists(events(), min_size=1, max_size=4),
)
def test_matcher_over_a_random_vocabulary_decides_as_the_oracle(
    engine: str, world: World, asked: list[Expression], published: list[Event]
) -> None:
    """One by one and in a batch, each subscription is reported exactly if the rules say so, and once."""
    matcher = Matcher(vocabulary_of(world), engine=engine)
    subscriptions = {str(number): expression for number, expression in enumerate(asked)}
    for name, expression in subscriptions.items():
        matcher.add(name, to_tree(expression))
    expected = [matching(subscriptions, event, world) for event in published]
    found = [[match.subscription for match in matcher.match(event)] for event in published]
    assert [sorted(names) for names in found] == [sorted(names) for names in expected]
    batch = [[match.subscription for match in matches] for matches in matcher.match_batch(published)]
    assert batch == found
    matcher.check_invariants()
