"""What a role receives is the same for two events that differ only in what is hidden from it: by the oracle."""

import copy
import json
from contextlib import suppress
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kindcast.semantic import InvalidSubscription
from kindcast.semantic.changes import AttributePart, footprint
from kindcast.semantic.language import to_tree
from kindcast.semantic.model import Event, Expression
from kindcast.semantic.subscriptions import compile_expression
from kindcast.semantic.vocabulary import visibility
from kindcast.semantic.vocabulary.attributes import AttributeScheme, segments_of
from kindcast.semantic.vocabulary.visibility import View
from tests.oracle import World, holds
from tests.strategies import events, expressions, vocabulary_of, worlds

VALUES: st.SearchStrategy[Any] = st.one_of(
    st.integers(-3, 9), st.sampled_from(["x", "laptop", "5 kg"]), st.booleans(), st.just([1, 2]), st.just({"in": 7})
)


def names_in(node: Any) -> set[str]:
    """The keys of an event's data, also of what is inside."""
    if isinstance(node, list):
        return {name for each in node for name in names_in(each)}
    if not isinstance(node, dict):
        return set()
    return set(node) | {name for each in node.values() for name in names_in(each)}


def changed(node: Any, hidden: set[str], draw: Any) -> Any:
    """The data with other values wherever a hidden name stands."""
    if isinstance(node, list):
        return [changed(each, hidden, draw) for each in node]
    if not isinstance(node, dict):
        return node
    return {name: draw(VALUES) if name in hidden else changed(each, hidden, draw) for name, each in node.items()}


@given(
    data=st.data(),
    world=worlds(),
    asked=st.lists(expressions(), min_size=8, max_size=16),
    published=st.lists(events(), min_size=4, max_size=6),
)
def test_hidden_values_tell_nothing(
    data: st.DataObject, world: World, asked: list[Expression], published: list[Event]
) -> None:
    """A subscription that may be made decides the same for both, and both are read the same."""
    vocabulary = vocabulary_of(world)
    uses = []
    for expression in asked:
        with suppress(InvalidSubscription):
            tree = compile_expression(to_tree(expression), vocabulary).tree
            uses.append((expression, {part.attribute for part in footprint(tree) if isinstance(part, AttributePart)}))
    parts_of_values = {"value", "unit", "unitCode", "unitText", "currency", "@type", "@id", "@value", "@language"}
    for event in published:
        names = sorted(names_in(event.data) - parts_of_values)
        if not names:
            continue
        hidden = data.draw(st.sets(st.sampled_from(names), min_size=1, max_size=2))
        segments = frozenset(tuple(segments_of(vocabulary.attributes.resolve(each))) for each in hidden)
        view = View(vocabulary.attributes, vocabulary.derivations, segments, segments)
        assert isinstance(event.data, dict)
        other = Event(changed(copy.deepcopy(event.data), hidden, data.draw), event.context)
        bodies = [json.dumps({**each.context, "data": each.data}) for each in (event, other)]
        for read in (view.readable, view.matchable, view.explainable):
            assert read(bodies[0]) == read(bodies[1])
        for expression, attributes in uses:
            if not view.hidden_in(attributes):
                assert holds(expression, event, world) == holds(expression, other, world), (expression, hidden)


def test_what_is_not_hidden_is_read_as_it_stands() -> None:
    """A name hides what contains it, and nothing else."""
    vocabulary = vocabulary_of(World())
    hidden = frozenset({("ssn",)})
    view = View(vocabulary.attributes, vocabulary.derivations, hidden, hidden)
    data = {"ssn": 1, "ssns": 2, "patient": [{"ssn": 3, "name": "Ada"}], "a.ssn.b": 4, "text": "ssn"}
    body = json.dumps({"id": "1", "subject": "s", "data": data})
    kept = {"ssns": 2, "patient": [{"name": "Ada"}], "text": "ssn"}
    assert json.loads(view.readable(body)) == {"id": "1", "subject": "s", "data": kept}
    for whole in ({"@context": {"s": "http://e/ssn"}, "s": 1}, "text", [{"a": {"@id": "urn:x"}}]):
        assert "data" not in json.loads(view.readable(json.dumps({"id": "1", "data": whole})))
    assert json.loads(view.readable('{"id": "1", "data_base64": "AAAA"}')) == {"id": "1"}


def test_an_event_of_many_deep_names_is_looked_at_for_a_while() -> None:
    """Others wait meanwhile. The same names in a list are looked up once."""
    looked_up = 0

    class Counting(View):
        def _hides(self, name: str, hidden: frozenset[tuple[str, ...]]) -> bool:
            nonlocal looked_up
            looked_up += 1
            return super()._hides(name, hidden)

    view = Counting(AttributeScheme(), (), frozenset({("ssn",)}), frozenset({("ssn",)}))
    path = ".".join(f"p{number}" for number in range(63))
    data = {"a": 1, **{f"{path}.n{number}": 1 for number in range(1_000)}, "ssn": 2}
    shown = json.loads(view.readable(json.dumps({"data": data})))["data"]
    assert shown["a"] == 1
    assert 0 < len(shown) < len(data)
    assert not shown.keys() & {"ssn", f"{path}.n999"}
    assert looked_up <= visibility.MOST_LOOKED_UP

    looked_up, data = 0, {"items": [{"x": {"y": number}, "ssn": 3} for number in range(5_000)]}
    shown = json.loads(view.readable(json.dumps({"data": data})))["data"]
    assert shown == {"items": [{"x": {"y": number}} for number in range(5_000)]}
    assert looked_up < 10
