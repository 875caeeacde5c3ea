"""Events whose data is a graph: the matcher decides as the oracle does, however the graph is written (rules 20, 21)."""

import json
from typing import Any

from hypothesis import given, reject, settings
from hypothesis import strategies as st
from pyld import jsonld

from kindcast import Matcher
from kindcast.semantic.language import to_tree
from kindcast.semantic.model import Comparison, Constant, Event, Expression, Presence
from tests.oracle import World, matching
from tests.strategies import ALIASED, CLASSES, EX, INDIVIDUALS, events, expressions, vocabulary_of, worlds

XSD = "http://www.w3.org/2001/XMLSchema#"
CONTEXTS: tuple[Any, ...] = (
    {"@vocab": EX},
    {"@vocab": EX, "kind": {"@type": "@id"}, "a": {"@container": "@list"}, "ex": EX},
    [{"e": EX}, {"size": "e:size", "kind": {"@id": "e:kind", "@type": "@vocab"}, "@vocab": "http://other.org/"}],
    {"@vocab": EX, "weight": {"@type": f"{XSD}decimal"}, "a": {"@language": "de"}, "id": "@id", "type": "@type"},
    {"@vocab": EX, "box": {"@type": "@id", "@container": "@set"}},
    {"@vocab": "https://example.org/", "size": "urn:ex:size", "weight": "http://other.org/weight"},
)
NAMES = st.sampled_from((*CLASSES, *INDIVIDUALS, *ALIASED, "urn:x:1", "urn:x:2", "_:b", "_:c"))
OF_PROPERTIES = st.sampled_from(
    ("<http://example.org/size>", "<https://example.org/size>", "<urn:ex:size>", "box.<https://example.org/kind>")
)
"""The pairs of one property."""
asked_of_properties = st.one_of(
    st.builds(Presence, OF_PROPERTIES, st.booleans()),
    st.builds(Comparison, OF_PROPERTIES, st.sampled_from(["=", "<", ">="]), st.sampled_from([1, 5]).map(Constant)),
)


@st.composite
def graph_events(draw: st.DrawFn) -> Event:
    """An event with a context over it, nodes that are named or typed here and there, references and typed values."""
    event = draw(events())

    def node(value: Any, depth: int) -> Any:
        if isinstance(value, list):
            return [node(each, depth) for each in value if not isinstance(each, list)]
        if isinstance(value, str) and draw(st.integers(0, 5)) == 0:
            return {"@id": draw(NAMES)}
        if isinstance(value, int | float) and not isinstance(value, bool) and draw(st.integers(0, 5)) == 0:
            return {"@value": repr(value), "@type": XSD + ("integer" if isinstance(value, int) else "double")}
        if not isinstance(value, dict):
            return value
        found = {key: node(each, depth + 1) for key, each in value.items()}
        if draw(st.integers(0, 2)) == 0:
            found["@type"] = draw(st.lists(st.sampled_from(CLASSES), min_size=1, max_size=2))
        if draw(st.integers(0, 2)) == 0:
            found["@id"] = draw(NAMES)
        return found

    data = node(event.data if isinstance(event.data, dict) else {}, 0)
    data = {"@context": draw(st.sampled_from(CONTEXTS)), "@id": "urn:root", **data, "seen": 1}
    try:
        jsonld.expand(data)
    except jsonld.JsonLdError:
        reject()  # a list of lists, say, or a boolean where the context wants a name
    return Event(data, event.context)


def written_otherwise(data: dict[str, Any]) -> list[Event]:
    """The same graph expanded, compacted under another context, and as N-Quads where nothing is lost in them."""
    expanded = jsonld.expand(data)
    other = jsonld.compact(expanded, {"@context": {"p": EX, "weight": EX + "weight"}})
    kind = {"datacontenttype": "application/ld+json"}
    return [Event(expanded, kind), Event(other, kind)]


@settings(max_examples=25)  # a world, a dozen subscriptions and five graphs in three forms each
@given(
    world=worlds(),
    asked=st.lists(st.one_of(expressions(), expressions(), asked_of_properties), min_size=8, max_size=16),
    published=st.lists(graph_events(), min_size=4, max_size=6),
)
def test_graphs_match_as_the_oracle_says_in_every_form(
    world: World, asked: list[Expression], published: list[Event]
) -> None:
    """One by one and in a batch, as published, expanded, and under another context."""
    matcher = Matcher(vocabulary_of(world))
    subscriptions = {str(number): expression for number, expression in enumerate(asked)}
    for name, expression in subscriptions.items():
        matcher.add(name, to_tree(expression))
    for event in published:
        expected = sorted(matching(subscriptions, event, world))
        forms = [
            event,
            *(Event(each.data, {**event.context, **each.context}) for each in written_otherwise(event.data)),
        ]
        told = json.dumps(event.data)
        for form in forms:
            assert sorted(match.subscription for match in matcher.match(form)) == expected, told
            assert sorted(match.subscription for match in matcher.match(matcher.canonicalise(form))) == expected, told
        found = [sorted(match.subscription for match in each) for each in matcher.match_batch(forms)]
        assert found == [expected] * len(forms)
