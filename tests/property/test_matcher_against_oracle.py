"""The matcher, with every engine, decides as the oracle does: random vocabularies, expressions and events."""

import tempfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from kindcast import InvalidSubscription, Matcher
from kindcast.index.fused.engine import FusedEngine
from kindcast.semantic.language import to_tree
from kindcast.semantic.model import (
    All,
    AnyOf,
    Comparison,
    Constant,
    Event,
    EveryOf,
    EveryValue,
    Expression,
    Instance,
    Match,
    Membership,
    Not,
    SomeOf,
    Term,
)
from tests.oracle import World, matching
from tests.strategies import CLASSES, RELATIONS, UNION, events, expressions, fused_and_others, vocabulary_of, worlds


def names(matches: Iterable[Match]) -> list[str]:
    """The ids of `matches`, sorted; a subscription reported twice stands there twice."""
    return sorted(match.subscription for match in matches)


@fused_and_others
@given(
    data=st.data(),
    world=worlds(),
    asked=st.lists(expressions(), min_size=8, max_size=16),  # many of each: building a vocabulary is what costs
    published=st.lists(events(), min_size=5, max_size=8),
)
def test_matcher_over_a_random_vocabulary_decides_as_the_oracle(
    engines: st.SearchStrategy[str],
    data: st.DataObject,
    world: World,
    asked: list[Expression],
    published: list[Event],
) -> None:
    """One by one, in a batch and from a table, each subscription is reported exactly if the rules say so, and once."""
    matcher = Matcher(vocabulary_of(world), engine=data.draw(engines))
    subscriptions = {str(number): expression for number, expression in enumerate(asked)}
    for name, expression in subscriptions.items():
        matcher.add(name, to_tree(expression))
    expected = [sorted(matching(subscriptions, event, world)) for event in published]
    assert [names(matcher.match(event)) for event in published] == expected
    assert [names(matches) for matches in matcher.match_batch(published)] == expected
    bare = [event.data for event in published if not event.context]
    columns = {name: [each.get(name) for each in bare] for found in bare for name in found}
    if columns:
        table = matcher.match_table(columns)
        found = [table.slots[low:high] for low, high in zip(table.offsets, table.offsets[1:], strict=False)]
        assert [sorted(table.subscriptions(slots)) for slots in found] == [
            wanted for event, wanted in zip(published, expected, strict=True) if not event.context
        ]
    matcher.check_invariants()


@given(
    data=st.data(),
    world=worlds(),
    between=worlds(complete=False),
    asked=st.lists(expressions(), min_size=4, max_size=8),
    published=st.lists(events(), min_size=3, max_size=5),
)
def test_matcher_rebuilt_twice_decides_as_if_there_was_nothing_between(
    data: st.DataObject, world: World, between: World, asked: list[Expression], published: list[Event]
) -> None:
    """Rule 14: whatever is replaced, gone, or called otherwise for a time, a subscription keeps what it resolved to."""
    pair = st.tuples(st.sampled_from(CLASSES), st.sampled_from(CLASSES)).filter(lambda found: found[0] != found[1])
    replaced = data.draw(st.lists(pair, max_size=3))
    between = replace(between, names=tuple({*between.names, *CLASSES}), replaced=tuple(replaced))
    matcher = Matcher(vocabulary_of(world))
    subscriptions = {str(number): expression for number, expression in enumerate(asked)}
    for name, expression in subscriptions.items():
        matcher.add(name, to_tree(expression))
    again = matcher.rebuilt(vocabulary_of(between)).rebuilt(matcher.vocabulary)
    for event in published:
        assert names(again.match(event)) == sorted(matching(subscriptions, event, world))


def resolved(node: Expression, world: World) -> Expression:
    """What is stored of an expression: a constant whose IRI no concept has is an instance (rule 25)."""

    def constant(each: Any) -> Any:
        known = not isinstance(each, Constant) or not isinstance(each.value, Term) or each.value.iri in world.concepts()
        return each if known else Constant(Instance(each.value.text))

    match node:
        case All(items) | AnyOf(items):
            return replace(node, items=tuple(resolved(item, world) for item in items))
        case Not(item) | EveryValue(item) | SomeOf(_, item) | EveryOf(_, item):
            return replace(node, item=resolved(item, world))
        case Comparison(operand=operand):
            return replace(node, operand=constant(operand))
        case Membership(constants=constants):
            return replace(node, constants=tuple(map(constant, constants)))
        case _:
            return node


class MatchersFollowTheOracle(RuleBasedStateMachine):
    """Matchers with three engines through additions, removals, merges, restarts, events and changes of the vocabulary,
    in any order."""

    subscribed: Bundle[str] = Bundle("subscribed")

    @initialize(world=worlds(complete=False))
    def begin(self, world: World) -> None:
        """Empty matchers under one vocabulary."""
        self.world = world
        vocabulary = vocabulary_of(world)
        self.matchers = [Matcher(vocabulary, engine=engine) for engine in ("ctps", "fused", "naive")]
        self.expressions: dict[str, Expression] = {}
        self.count = 0

    @rule(target=subscribed, expression=expressions())
    def add(self, expression: Expression) -> str:
        """Each matcher takes what names known concepts only, and refuses the rest."""
        self.count += 1
        name = f"s{self.count}"
        expression = resolved(expression, self.world)
        unknown = {f", iri={iri!r}" for iri in set(CLASSES) - self.world.concepts()}
        unknown |= {f"relation={iri!r}" for iri in (*RELATIONS, UNION) if self.world.edges(iri) is None}
        if any(each in repr(expression) for each in unknown):
            for matcher in self.matchers:
                with pytest.raises(InvalidSubscription):
                    matcher.add(name, to_tree(expression))
                assert name not in matcher
        else:
            for matcher in self.matchers:
                matcher.add(name, to_tree(expression))
            self.expressions[name] = expression
        return name

    @rule(name=consumes(subscribed))
    def remove(self, name: str) -> None:
        """What is removed never matches again."""
        if self.expressions.pop(name, None) is not None:
            for matcher in self.matchers:
                matcher.remove(name)

    @rule(published=st.lists(events(), min_size=1, max_size=3))
    def match(self, published: list[Event]) -> None:
        """Every engine decides as the oracle, one by one and in a batch."""
        expected = [sorted(matching(self.expressions, event, self.world)) for event in published]
        for matcher in self.matchers:
            assert [names(matcher.match(event)) for event in published] == expected
            assert [names(matches) for matches in matcher.match_batch(published)] == expected

    @rule(world=worlds(complete=False))
    def change_vocabulary(self, world: World) -> None:
        """Rule 14: subscriptions keep their IRIs; what is gone never holds, also under `not`, until it is back."""
        self.world = world
        vocabulary = vocabulary_of(world)
        self.matchers = [matcher.rebuilt(vocabulary) for matcher in self.matchers]

    @rule()
    def merge(self) -> None:
        """What is new in the default engine becomes part of one segment."""
        for matcher in self.matchers:
            if isinstance(matcher._engine, FusedEngine):
                matcher._engine.merge_now()

    @rule()
    def save_and_open(self) -> None:
        """What is opened goes on in the place of what was saved."""
        opened = []
        for matcher in self.matchers:
            with tempfile.TemporaryDirectory() as folder:
                matcher.save(Path(folder))
                opened.append(Matcher.open(Path(folder), matcher.vocabulary))
        self.matchers = opened

    @invariant()
    def books_are_in_order(self) -> None:
        """Each matcher holds the same subscriptions, with sound internals."""
        for matcher in getattr(self, "matchers", ()):
            assert set(matcher) == self.expressions.keys()
            matcher.check_invariants()


TestMatchersFollowTheOracle: Any = MatchersFollowTheOracle.TestCase
# Twenty steps meet every rule several times; with more, a run spends its time in building vocabularies.
TestMatchersFollowTheOracle.settings = settings(stateful_step_count=20)
