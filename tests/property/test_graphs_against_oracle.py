"""Events whose data is a graph: the matcher decides as the oracle does, however the graph is written (rules 20, 21)."""

import json

from hypothesis import given
from hypothesis import strategies as st

from kindcast import Matcher
from kindcast.semantic.language import parse, to_tree
from kindcast.semantic.model import Event, Expression, Not
from tests.harness.graph_forms import forms
from tests.oracle import World, matching
from tests.oracle.linked_data import XSD
from tests.strategies import EX, graph_events, graph_expressions, vocabulary_of, worlds

OTHER = {"p": EX, "weight": EX + "weight"}
"""A context under which every graph is compacted."""


@given(
    world=worlds(),
    asked=st.lists(graph_expressions(), min_size=8, max_size=16),
    published=st.lists(graph_events(), min_size=4, max_size=6),
)
def test_graphs_match_as_the_oracle_says_in_every_form(
    world: World, asked: list[Expression], published: list[Event]
) -> None:
    """One by one and in a batch, as published and in every form that holds the same event."""
    _agree(world, asked, published)


def test_equal_numbers_are_one_statement_however_they_are_written() -> None:
    """5 and 5.0 are stated once, 1 and true are two, and lists are counted by their members (rule 26)."""
    count = parse("count(size) = 3")
    numbers = {"@context": {"@vocab": EX}, "size": [5, 5.0, 1, True]}
    lists = {"@context": {"@vocab": EX}, "size": [{"@list": [5, 5.0, 1]}]}
    _agree(World(), [count, Not(count)], [Event(numbers, {}), Event(lists, {})])


def test_years_are_dates_if_they_are_typed_as_such() -> None:
    """In every form, and no other text of four digits (rule 26)."""
    texts = (
        "made >= 2012-01-01",
        "made < 2013-01-01",
        "made > 2012-06-01",
        'made = "2012"',
        "made < due",
        "every made = 2012-01",
    )
    asked = [parse(text) for text in texts]
    built = {"@context": {"@vocab": EX, "made": {"@type": f"{XSD}gYear"}}, "due": "2014-01-01"}
    published = [{**built, "made": "2012"}, {**built, "made": ["2012", "2015"]}, {**built, "made": {"@value": "2012"}}]
    _agree(World(), [*asked, *map(Not, asked)], [Event(each, {}) for each in published])


def _agree(world: World, asked: list[Expression], published: list[Event]) -> None:
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
