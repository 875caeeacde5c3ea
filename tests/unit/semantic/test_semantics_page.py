"""docs/matching-semantics.md holds: every worked event of every rule, through the matcher and through `explain`."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kindcast import Event, InvalidEvent, InvalidSubscription, Matcher, Operator, Vocabulary, explain, operator
from kindcast.semantic.explanations import as_json

PAGE = Path(__file__).resolve().parents[3] / "docs" / "matching-semantics.md"
BLOCK = re.compile(r"^### (?P<rule>\d+)\. |^```(?P<language>\w+)(?: (?P<use>[\w ]+))?\n(?P<body>.*?)^```$", re.M | re.S)
RULES = tuple(range(1, 27))
NOT_IN_THIS_VERSION: set[int] = set()
"""Rules whose examples nothing can run yet."""
ELSEWHERE = {19}
"""Rules of the server."""
VERDICTS = ("match", "no match")
KEYS = {"context", "data", "match", "no match", "refused", "invalid", "notes", "bindings"}


@operator("numbersIn")
def numbers_in(event: Mapping[str, tuple[Any, ...]], values: tuple[Any, ...]) -> list[Any]:
    """Finds every number, and every quantity, among the values of an attribute."""
    return [value for value in values if not isinstance(value, str | bool)]


@operator("hasWord")
def has_word(event: Mapping[str, tuple[Any, ...]], word: str) -> bool:
    """Whether some text of the event is this word."""
    return any(word in values for values in event.values())


OPERATORS: tuple[Operator, ...] = (numbers_in, has_word)
"""Those of the page."""

Subscription = str | Mapping[str, Any]


@dataclass(frozen=True)
class Example:
    """One worked event: `number` within its rule; `later` where it is matched under a later vocabulary."""

    rule: int
    number: int
    later: bool
    body: Mapping[str, Any]

    @property
    def event(self) -> Event:
        return Event(self.body["data"], self.body.get("context", {}))

    def __str__(self) -> str:
        return f"rule {self.rule}, example {self.number}"


@cache
def blocks() -> dict[str, str]:
    """The vocabularies and declarations of the page, by use."""
    found = BLOCK.finditer(PAGE.read_text(encoding="utf-8"))
    return {block["use"]: block["body"] for block in found if block["use"] in ("vocabulary", "later", "declarations")}


@cache
def examples() -> tuple[Example, ...]:
    """Every example that can be run, in the order of the page."""
    found: list[Example] = []
    rule = number = 0
    for block in BLOCK.finditer(PAGE.read_text(encoding="utf-8")):
        if block["rule"]:
            rule, number = int(block["rule"]), 0
        elif (block["use"] or "").startswith("example"):
            number += 1
            found.append(Example(rule, number, block["use"] == "example later", json.loads(block["body"])))
    return tuple(found)


@cache
def vocabulary(use: str) -> Vocabulary:
    """The vocabulary of the page, with its declarations."""
    declarations = json.loads(blocks()["declarations"])
    relations = ["part_of"] if use == "vocabulary" else []
    return Vocabulary.from_bytes(
        blocks()[use].encode(), format="turtle", name="shop", relations=relations, **declarations
    )


def cases(*kinds: str) -> list[Any]:
    """(example, subscription, whether it matches) for every subscription of these kinds."""
    return [
        pytest.param(example, subscription, kind == "match", id=f"{example}, {kind}: {subscription}")
        for example in examples()
        for kind in kinds
        for subscription in example.body.get(kind, ())
    ]


def test_semantics_page_has_every_rule_with_an_example() -> None:
    """No rule is lost, and each has a worked event, but for those that cannot run."""
    text = PAGE.read_text(encoding="utf-8")
    assert [int(number) for number in re.findall(r"^### (\d+)\. ", text, re.M)] == list(RULES)
    assert {example.rule for example in examples()} == set(RULES) - NOT_IN_THIS_VERSION - ELSEWHERE
    assert {key for example in examples() for key in example.body} <= KEYS
    for rule in NOT_IN_THIS_VERSION:
        assert "**Not in this version**" in re.split(r"^### \d+\. ", text, flags=re.M)[rule]


@pytest.mark.parametrize("example", [each for each in examples() if {"match", "no match"} & each.body.keys()], ids=str)
@pytest.mark.parametrize("engine", ["fused", "ctps", "naive"])
def test_semantics_page_example_is_what_the_matcher_says(example: Example, engine: str) -> None:
    """The verdicts of the page are those of the matcher, with every engine, for all subscriptions of an event
    together."""
    matcher = Matcher(vocabulary("vocabulary"), engine=engine, operators=OPERATORS)
    names = {kind: [f"{kind} {number}" for number, _ in enumerate(example.body.get(kind, ()))] for kind in VERDICTS}
    for kind in VERDICTS:
        for name, subscription in zip(names[kind], example.body.get(kind, ()), strict=True):
            matcher.add(name, subscription)
    if example.later:
        matcher = matcher.rebuilt(vocabulary("later"))
    assert sorted(match.subscription for match in matcher.match(example.event)) == sorted(names["match"])


@pytest.mark.parametrize(("example", "subscription", "expected"), cases(*VERDICTS))
def test_semantics_page_example_is_what_explain_says(
    example: Example, subscription: Subscription, expected: bool
) -> None:
    """A subscription alone matches as the page says, and its explanation agrees."""
    matcher = Matcher(vocabulary("vocabulary"), operators=OPERATORS)
    compiled = matcher.add("asked", subscription)
    if example.later:
        matcher = matcher.rebuilt(vocabulary("later"))
        compiled = matcher["asked"]
    assert [match.subscription for match in matcher.match(example.event)] == ["asked"] * expected
    assert explain(matcher.vocabulary, compiled, example.event, operators=OPERATORS)["matches"] is expected


@pytest.mark.parametrize(
    ("subscription", "code"),
    [
        pytest.param(text, code, id=f"{example}: {text[:60]}")
        for example in examples()
        for text, code in example.body.get("refused", {}).items()
    ],
)
def test_semantics_page_refused_subscription_is_refused(subscription: str, code: str) -> None:
    """With the code that the page gives, and in the text of a subscriber, not in a stack trace."""
    with pytest.raises(InvalidSubscription) as raised:
        Matcher(vocabulary("vocabulary"), operators=OPERATORS).compile(subscription)
    assert [problem.code for problem in raised.value.problems] == [code]


@pytest.mark.parametrize("example", [example for example in examples() if "bindings" in example.body], ids=str)
def test_semantics_page_bindings_are_those_of_the_match(example: Example) -> None:
    """A match carries exactly the bindings that the page gives, in this order."""
    matcher = Matcher(vocabulary("vocabulary"), operators=OPERATORS)
    for subscription, bindings in example.body["bindings"].items():
        matcher.add(subscription, subscription)
        [match] = [each for each in matcher.match(example.event) if each.subscription == subscription]
        assert [{name: as_json(value) for name, value in row} for row in match.bindings] == bindings
        assert not match.bindings_truncated


@pytest.mark.parametrize("example", [example for example in examples() if "invalid" in example.body], ids=str)
def test_semantics_page_invalid_event_is_refused(example: Example) -> None:
    """An event that breaks a rule is refused with its code."""
    with pytest.raises(InvalidEvent) as raised:
        Matcher(vocabulary("vocabulary")).canonicalise(example.event)
    assert [problem.code for problem in raised.value.problems] == [example.body["invalid"]]


@pytest.mark.parametrize("example", [example for example in examples() if "notes" in example.body], ids=str)
def test_semantics_page_notes_are_given(example: Example) -> None:
    """What the page says a publisher is told, he is told."""
    canonical = Matcher(vocabulary("vocabulary")).canonicalise(example.event)
    assert {note.code for note in canonical.notes} >= set(example.body["notes"])


def test_semantics_page_rule_14_flags_what_is_gone() -> None:
    """The subscription whose concept is gone carries a note; the one with a replacement says what is used instead."""
    matcher = Matcher(vocabulary("vocabulary"))
    matcher.add("gone", "target isa Tablet")
    matcher.add("replaced", "target isa Computer")
    rebuilt = matcher.rebuilt(vocabulary("later"))
    assert [note.code for note in rebuilt["gone"].notes] == ["gone-concept"]
    assert [note.code for note in rebuilt["replaced"].notes] == ["deprecated-term"]
    assert rebuilt["replaced"].canonical == "target isa <http://example.org/shop#Machine>"
