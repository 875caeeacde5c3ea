"""Events whose data is a graph: the matcher decides as the oracle does, however the graph is written (rules 20, 21)."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from kindcast import Matcher
from kindcast.semantic.language import to_tree
from kindcast.semantic.model import Event, Expression
from tests.harness.graph_forms import forms
from tests.oracle import World, matching
from tests.strategies import EX, graph_events, graph_expressions, vocabulary_of, worlds

OTHER = {"p": EX, "weight": EX + "weight"}
"""A context under which every graph is compacted."""


@settings(max_examples=25)  # a world, a dozen subscriptions and five graphs in up to seven forms each
@given(
    world=worlds(),
    asked=st.lists(graph_expressions(), min_size=8, max_size=16),
    published=st.lists(graph_events(), min_size=4, max_size=6),
)
def test_graphs_match_as_the_oracle_says_in_every_form(
    world: World, asked: list[Expression], published: list[Event]
) -> None:
    """One by one and in a batch, as published and in every form that holds the same event."""
    matcher = Matcher(vocabulary_of(world))
    subscriptions = {str(number): expression for number, expression in enumerate(asked)}
    for name, expression in subscriptions.items():
        matcher.add(name, to_tree(expression))
    for event in published:
        expected = sorted(matching(subscriptions, event, world))
        written = {"published": event, **forms(event, OTHER)}
        for name, form in written.items():
            told = name, json.dumps(event.data)
            assert sorted(match.subscription for match in matcher.match(form)) == expected, told
            assert sorted(match.subscription for match in matcher.match(matcher.canonicalise(form))) == expected, told
        found = [sorted(match.subscription for match in each) for each in matcher.match_batch(written.values())]
        assert found == [expected] * len(written)
