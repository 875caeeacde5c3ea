"""The short road of plain events: which events take it, what it remembers, and when it forgets."""

from collections import UserDict
from collections.abc import Iterator
from typing import Any

import pytest

from semantic import InvalidEvent, Matcher, Vocabulary, plain_events
from semantic.flatten import EventLimits

TREE = b"""
@prefix : <http://example.org/> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
:Laptop rdfs:subClassOf :Computer . :email rdfs:subPropertyOf :contact . :phone rdfs:subPropertyOf :contact .
"""


@pytest.fixture
def matcher() -> Matcher:
    """Subscriptions over a concept, numbers with and without unit, a text, a sibling unit and an attribute above."""
    attributes = {
        "weight": {"kind": "number", "unit": "g"},
        "temp": {"kind": "number", "unit_from": "scale"},
    }
    matcher = Matcher(Vocabulary.from_bytes(TREE, format="turtle", name="t", attributes=attributes))
    for name, text in {
        "kind": "kind isa Computer",
        "cheap": "price < 400",
        "heavy": "weight > 2 kg",
        "open": "flag = true",
        "warm": "temp > 20 degC",
        "mail": 'contact = "x"',
        "La": 'kind startswith "La"',
    }.items():
        matcher.add(name, text)
    return matcher


def names(matcher: Matcher, data: Any) -> list[str]:
    return sorted(match.subscription for match in matcher.match(data))


def test_plain_events_of_numbers_texts_and_truths_take_the_short_road(matcher: Matcher) -> None:
    """Also with attributes that nobody asks about, with units, with nulls, and with texts never seen before."""
    for data, expected in (
        ({"price": 350, "kind": "Laptop"}, ["La", "cheap", "kind"]),
        ({"price": 350.0, "flag": True, "other": "x", "more": 1}, ["cheap", "open"]),
        ({"weight": 2001, "price": None}, ["heavy"]),
        ({"weight": "3 kg", "flag": False}, ["heavy"]),
        ({"email": "x"}, ["mail"]),
        ({}, []),
    ):
        assert matcher._plain.lowered(data) is not None, data
        assert names(matcher, data) == expected, data


@pytest.mark.parametrize(
    "data",
    [
        {"price": {"value": 5, "unit": "USD"}},
        {"price": [1, 2]},
        {"price": float("nan")},
        {"price": 1 << 60},
        {"temp": 86, "scale": "degF"},
        {"email": "x", "phone": "y"},
        {"ce.type": "x"},
        {"@type": "x"},
        {"price": 1, 5: 1},
        {"n" * 300: 1},
        {str(number): 1 for number in range(300)},
        {"price": b"x"},
    ],
)
def test_plain_events_leave_what_is_not_plain_to_the_general_road(matcher: Matcher, data: Any) -> None:
    """Refusals and everything that hangs together are read in one place."""
    assert matcher._plain.lowered(data) is None


def test_plain_events_of_another_mapping_are_read_all_the_same(matcher: Matcher) -> None:
    """Only dicts take the short road; the meaning is the same."""
    assert names(matcher, UserDict({"price": 1})) == names(matcher, {"price": 1}) == ["cheap"]


def test_plain_events_with_derived_attributes_take_the_general_road() -> None:
    """What is derived from other values, or from the time, cannot be read value by value."""
    vocabulary = Vocabulary.from_ontologies([], attributes={"half": {"kind": "number", "derived": "price / 2"}})
    matcher = Matcher(vocabulary)
    matcher.add("half", "half < 10")
    assert matcher._plain.lowered({"price": 18}) is None
    assert names(matcher, {"price": 18}) == ["half"]


def test_plain_events_are_held_to_the_limits_of_events() -> None:
    """As few values as are allowed, and no depth at all where none is allowed."""
    for limits in (EventLimits(values=1), EventLimits(depth=0)):
        matcher = Matcher(Vocabulary.from_ontologies([]), limits=limits)
        with pytest.raises(InvalidEvent):
            matcher.match({"price": 1, "size": 2})


def test_plain_events_read_again_after_a_subscription_asks_for_more_know_it(matcher: Matcher) -> None:
    """What is remembered of names and values is forgotten when somebody asks about a new attribute or reading."""
    data = {"colour": "red", "price": 500, "kind": "Laptop"}
    assert names(matcher, data) == ["La", "kind"]
    matcher.add("red", 'colour = "red"')
    matcher.add("text", 'kind = "Laptop"')
    assert names(matcher, data) == ["La", "kind", "red", "text"]


def test_plain_events_with_ever_new_names_and_texts_keep_little(
    matcher: Matcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A publisher that never repeats itself cannot fill the memory."""
    monkeypatch.setattr(plain_events, "REMEMBERED", 50)
    plain = matcher._plain
    for number in range(400):
        matcher.match({f"n{number}": number, "kind": f"text {number}", "weight": number})
        texts = sum(len(each.texts) + len(each.cells) for each in plain._names.values() if each is not None)
        assert len(plain._names) + len(plain._shapes) + texts <= 60
    matcher.match({"kind": "K" * 100_000})
    assert not any(len(text) > 1_000 for each in plain._names.values() if each is not None for text in each.texts)


def test_plain_events_from_one_dict_that_is_filled_again_are_verified_as_they_were(matcher: Matcher) -> None:
    """What remains to be asked is asked of the event as it was read, also where its dict holds the next one by then."""

    def published() -> Iterator[dict[str, Any]]:
        event: dict[str, Any] = {}
        for text in ("Laptop", "other", "Ladder"):
            event["kind"] = text
            yield event

    found = [[match.subscription for match in matches] for matches in matcher.match_batch(published())]
    assert [sorted(each) for each in found] == [["La", "kind"], [], ["La"]]
