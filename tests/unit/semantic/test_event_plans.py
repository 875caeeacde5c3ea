"""Plans of events: which events are read by them, what they remember, and when they forget."""

import math
from collections import UserDict
from collections.abc import Iterator
from itertools import chain, pairwise, repeat
from typing import Any

import pytest

from kindcast import Event, InvalidEvent, Matcher, Vocabulary
from kindcast.semantic.events import advice, event_plans
from kindcast.semantic.events.canonical_events import Canonicaliser
from kindcast.semantic.flatten import EventLimits
from kindcast.semantic.units.measure import not_a_quantity

TREE = b"""
@prefix : <http://example.org/> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
:Laptop rdfs:subClassOf :Computer . :email rdfs:subPropertyOf :contact . :phone rdfs:subPropertyOf :contact .
"""


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is read together does not depend on the machine."""
    monkeypatch.setattr(event_plans, "TOGETHER_SECONDS", 60)


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
        "rated": "seller.rating > 3",
        "one": "some seller (rating > 3)",
        "offer": 'ce.type = "Offer"',
    }.items():
        matcher.add(name, text)
    return matcher


def names(matcher: Matcher, data: Any) -> list[str]:
    return sorted(match.subscription for match in matcher.match(data))


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"price": 350, "kind": "Laptop"}, ["La", "cheap", "kind"]),
        ({"price": 350.0, "flag": True, "other": "x", "more": 1}, ["cheap", "open"]),
        ({"weight": 2001, "price": None}, ["heavy"]),
        ({"weight": "3 kg", "flag": False}, ["heavy"]),
        ({"weight": {"value": 3, "unit": "kg"}}, ["heavy"]),
        ({"weight": {"value": 3, "unit": "g"}}, []),
        ({"weight": [{"value": 3, "unit": "g"}, 2001]}, ["heavy"]),
        ({"temp": 86, "scale": "degF"}, ["warm"]),
        ({"temp": [5, 86], "scale": "degF"}, ["warm"]),
        ({"temp": 86}, []),
        ({"email": "x"}, ["mail"]),
        ({"email": "y", "phone": "x"}, ["mail"]),
        ({"box": {"contact": {"x": 1}}, "kind": ["Sofa", "Laptop"], "price": [500, [300]]}, ["La", "cheap", "kind"]),
        ({"seller.rating": 4, "text": "words " * 100}, ["rated"]),
        ({"seller": {"rating": 4, "address": {"city": "Bonn"}}}, ["rated"]),
        ({"seller": [{"rating": 1}, {"rating": 4}], "tags": ["a", None, "b"]}, ["one", "rated"]),
        (dict.fromkeys(map(str, range(3_000)), None) | {"price": 5, "seller": {"rating": 4}}, ["cheap", "rated"]),
        ({"seller": dict.fromkeys(map(str, range(3_000)), "x") | {"rating": 4}}, ["rated"]),
        ({"@type": "Offer"}, ["offer"]),
        ({"@type": ["Other", "Offer"], "price": {}}, ["offer"]),
        (Event({"price": 5}, {"type": "Offer"}), ["cheap", "offer"]),
        (Event({"@type": "Offer"}, {"type": "Other", "id": "5"}), ["offer"]),
        ({}, []),
    ],
)
def test_events_of_json_are_read_by_plans(matcher: Matcher, data: Any, expected: list[str]) -> None:
    """Nested, with several values, with units in each of their forms, with attributes that nobody asks about; for the
    first time and again."""
    for _ in range(2):
        assert matcher._plans.planned(data) is not None, data
        assert names(matcher, data) == expected, data


@pytest.mark.parametrize(
    "data",
    [
        {"price": float("nan")},
        {"price": 1 << 60},
        {"other": {"more": [1, float("inf")]}},
        {"price": {"value": float("inf"), "unit": "USD"}},
        {"ce.type": "x"},
        {"@type": 5},
        {"price": 1, 5: 1},
        {"n" * 300: 1},
        {"price": b"x"},
        {"other": {"price": b"x"}},
        Event({"price": 1}, {"time": None}),  # type: ignore[dict-item]
        Event([1], {}),
    ],
)
def test_what_is_refused_or_odd_is_left_to_be_read_whole(matcher: Matcher, data: Any) -> None:
    """There is one place that refuses events, and says where and why."""
    assert matcher._plans.planned(data) is None


@pytest.mark.parametrize(
    "data",
    [
        {"price": 5},
        {"price": "5 USD", "kind": "Laptop", "other": "x"},
        {"seller": {"rating": 4}, "temp": 86},
        {"temp": 2.5, "scale": "degF"},
        {"@type": "Offer", "email": "y", "phone": "x"},
    ],
)
def test_the_only_item_of_an_array_is_read_as_if_it_stood_alone(matcher: Matcher, data: dict[str, Any]) -> None:
    """In an event and in an object, also if two names mean one attribute."""

    def listed(value: Any) -> Any:
        return {name: listed(each) for name, each in value.items()} if isinstance(value, dict) else [value]

    arrays = listed(data) | ({"scale": data["scale"]} if "scale" in data else {})
    by_plan = matcher._plans.planned(arrays)
    assert by_plan is not None
    whole = matcher._lowering.event(matcher.canonicalise(arrays))
    assert by_plan.lowered.present == whole.present == matcher._lowering.event(matcher.canonicalise(data)).present
    for column, keys in whole.values.items():
        assert sorted(map(str, by_plan.lowered.values.get(column, ()))) == sorted(map(str, keys)), column
    assert names(matcher, arrays) == names(matcher, data)


def test_the_only_item_of_an_array_counts_and_is_one_level_deeper() -> None:
    """As for longer arrays; a context has none."""
    plain = Matcher(Vocabulary.from_ontologies([]))
    assert plain._plans.planned(Event({"a": 1}, {"b": "x"})) is not None
    assert plain._plans.planned(Event({"a": 1}, {"b": ["x"]})) is None
    for limits, data in ((EventLimits(values=3), {"a": [1], "b": [2]}), (EventLimits(depth=1), {"a": [1]})):
        matcher = Matcher(Vocabulary.from_ontologies([]), limits=limits)
        assert matcher._plans.planned(data) is None
        with pytest.raises(InvalidEvent):
            matcher.match(data)


def test_events_of_another_mapping_are_read_all_the_same(matcher: Matcher) -> None:
    """Only dicts are read by plans; the meaning is the same."""
    assert names(matcher, UserDict({"price": 1})) == names(matcher, {"price": 1}) == ["cheap"]


def test_events_are_read_whole_only_where_a_derived_attribute_is_asked_about() -> None:
    """What is derived from other values, or from the time, cannot be read value by value."""
    vocabulary = Vocabulary.from_ontologies([], attributes={"half": {"kind": "number", "derived": "price / 2"}})
    matcher = Matcher(vocabulary)
    matcher.add("cheap", "price < 20")
    assert matcher._plans.planned({"price": 18}) is not None
    matcher.add("half", "half < 10")
    assert matcher._plans.planned({"price": 18}) is None
    assert names(matcher, {"price": 18}) == ["cheap", "half"]


def test_events_of_declared_types_are_checked_and_read_by_plans() -> None:
    """What does not fit its types is refused with every problem, as ever."""
    schema = {"type": "object", "properties": {"price": {"type": "number"}}, "required": ["price"]}
    matcher = Matcher(Vocabulary.from_ontologies([], schemas={"offer": schema}))
    matcher.add("cheap", "price < 10")
    good = Event({"price": 5}, {"type": "offer"})
    assert matcher._plans.planned(good) is not None
    assert names(matcher, good) == ["cheap"]
    bad = Event({"prise": 5}, {"type": "offer"})
    assert matcher._plans.planned(bad) is None
    with pytest.raises(InvalidEvent, match="mandatory"):
        matcher.match(bad)


def test_notes_cover_every_value_up_to_a_bound(matcher: Matcher) -> None:
    """Also those that nobody asks about, inside objects and arrays; each note once."""
    data = {"weight": ["5 USD", {"value": 5, "unit": "no unit"}], "box": {"weight": [{"value": 5, "unit": "USD"}]}}
    read = matcher.read(data)
    codes = [(note.code, note.attribute) for note in read.notes(100)]
    expected = [("wrong-dimension", "box.weight"), ("unknown-unit", "weight"), ("wrong-dimension", "weight")]
    assert set(expected) <= set(codes)
    assert len(codes) == len(set(read.notes(100)))
    assert set(read.notes(100)) >= set(matcher.canonicalise(data).notes)
    assert len(read.notes(2)) == 2


def test_notes_leave_out_the_id_and_the_time_unless_somebody_asks() -> None:
    """A declaration asks as well. The notes are the same for an event that is read by a plan and for one read whole."""
    two = b"@prefix : <urn:e:> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .\n"
    two += b':A rdfs:subClassOf :C ; rdfs:label "spring" . :B rdfs:subClassOf :C ; rdfs:label "spring" .'
    plain = Vocabulary.from_bytes(two, format="turtle")
    declared = Vocabulary.from_bytes(two, format="turtle", attributes={"ce.id": {"kind": "text"}})
    asks, silent, told = Matcher(plain), Matcher(plain), Matcher(declared)
    asks.add("id", 'ce.id = "x"')
    event = Event({"season": "summer"}, {"id": "spring", "time": "spring", "subject": "spring", "type": "t"})
    for matcher, attributes in (
        (silent, {"ce.subject"}),
        (asks, {"ce.id", "ce.subject"}),
        (told, {"ce.id", "ce.subject"}),
    ):
        assert matcher._plans.planned(event) is not None
        for read in (matcher.read(event), matcher.read(matcher.canonicalise(event))):
            assert {note.attribute for note in read.notes(100)} == attributes
    assert not silent._plans._names["ce.id"].noted


@pytest.mark.parametrize(
    ("text", "code"),
    [("86 F", "surprising-unit"), ("5 bananas", None), ("$5", "not-a-quantity"), ("spring", "ambiguous-term")]
    + [
        (text, None)
        for text in ("summer", "5 kg", "P1D", "2026-01-31", "5e10abcd-1234-1234-1234-123456789abc", "", "12")
    ],
)
def test_notes_about_texts_that_nobody_asks_about(text: str, code: str | None) -> None:
    """The notes are the same whether the event is read by a plan or whole."""
    two = b"@prefix : <urn:e:> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .\n"
    two += b':A rdfs:subClassOf :C ; rdfs:label "spring" . :B rdfs:subClassOf :C ; rdfs:label "spring" .'
    matcher = Matcher(Vocabulary.from_bytes(two, format="turtle"))
    event = {"season": text}
    assert [note.code for note in matcher.read(event).notes(100)] == ([] if code is None else [code])
    assert set(matcher.read(event).notes(100)) == set(matcher.read(matcher.canonicalise(event)).notes(100))


@pytest.mark.parametrize("kind", ["number", "instant", "version", "ip"])
def test_true_and_false_are_no_numbers_dates_versions_or_addresses(kind: str) -> None:
    """The notes about true are not those about 1, which equals it in Python, whichever comes first."""
    matcher = Matcher(Vocabulary(attributes={"x": {"kind": kind}, "y": {"kind": "text"}}))
    of_number = ["not-of-kind"] if kind in ("version", "ip") else []
    for value, expected in ((1, of_number), (True, ["not-of-kind"]), (1.0, of_number), (False, ["not-of-kind"])):
        event = {"x": value, "y": value}
        assert matcher._plans.planned(event) is not None
        for read in (matcher.read(event), matcher.read(matcher.canonicalise(event))):
            assert [note.code for note in read.notes(100)] == expected
    (note,) = matcher.read({"x": True}).notes(100)
    assert "but true is not one" in note.detail


@pytest.mark.parametrize("first", [0, 250])
def test_misspelt_names_are_looked_for_among_the_first_ones(matcher: Matcher, first: int) -> None:
    """However many an event has: each costs more than reading its value. The same by a plan and of an event that is
    read whole."""
    many = {f"part{part}": {f"filler{part}x{number}": 1 for number in range(50)} for part in range(first // 50)}
    data = {**many, "seller": {"ratin": 5}}
    assert matcher._plans.planned(data) is not None
    for read in (matcher.read(data), matcher.read(matcher.canonicalise(data))):
        assert [note.attribute for note in read.notes(100)] == ["seller.ratin"] * (first == 0)


def test_events_are_held_to_the_limits_of_events() -> None:
    """As few values as are allowed, and no depth at all where none is allowed."""
    for limits in (EventLimits(values=1), EventLimits(depth=0)):
        matcher = Matcher(Vocabulary.from_ontologies([]), limits=limits)
        with pytest.raises(InvalidEvent):
            matcher.match({"price": 1, "size": 2})


def test_events_read_again_after_a_subscription_asks_for_more_know_it(matcher: Matcher) -> None:
    """What is remembered of names and values is forgotten when somebody asks about a new attribute or reading."""
    data = {"colour": "red", "price": 500, "kind": "Laptop"}
    assert names(matcher, data) == ["La", "kind"]
    matcher.add("red", 'colour = "red"')
    matcher.add("text", 'kind = "Laptop"')
    assert names(matcher, data) == ["La", "kind", "red", "text"]


def test_texts_that_are_only_compared_as_texts_have_no_other_readings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Identifiers do not repeat, and looking for concepts, quantities and dates in each takes most of the time. If a
    subscription uses another reading, it is made."""
    vocabulary = Vocabulary.from_bytes(TREE, format="turtle", name="t", synonyms={"Notebook": "Laptop"})
    matcher = Matcher(vocabulary)
    for text in ("Laptop", "\u00e9", "5 kg"):
        matcher.add(text, f'thing = "{text}"')
    read: list[Any] = []
    whole = Canonicaliser.read
    monkeypatch.setattr(Canonicaliser, "read", lambda self, *given: read.append(given) or whole(self, *given))
    events = [{"thing": text} for text in ("Notebook", "e\u0301", "5 kg", "other")]
    expected = [["Laptop"], ["\u00e9"], ["5 kg"], []]
    assert [names(matcher, each) for each in events] == expected
    found = matcher.match_table({"thing": [each["thing"] for each in events]})
    assert [sorted(found.subscriptions(found.slots[a:b])) for a, b in pairwise(found.offsets)] == expected
    assert not read
    matcher.add("kind", "thing isa Computer")
    assert names(matcher, events[0]) == ["Laptop", "kind"]
    assert read


def test_events_with_ever_new_names_and_texts_keep_little(matcher: Matcher, monkeypatch: pytest.MonkeyPatch) -> None:
    """A publisher that never repeats itself cannot fill the memory."""
    monkeypatch.setattr(event_plans, "REMEMBERED", 50)
    plans = matcher._plans
    for number in range(400):
        data = {
            f"n{number}": number,
            "kind": f"text {number}",
            "weight": {"value": number, "unit": "kg"},
            "temp": number,
            "scale": f"unit {number}",
            "tags": [{f"m{number}": "x"}],
        }
        matcher.read(data).notes(100)
        assert remembered(plans._root) + remembered(plans._context) + len(plans._unions) <= 60
    matcher.match({"kind": "K" * 100_000})
    assert not any(len(text) > 1_000 for each in plans._names.values() for text in each.texts)


def test_ever_new_large_objects_do_not_displace_other_plans(matcher: Matcher, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some are cached, the others are read whole, and all match. The cached ones are forgotten after a while, and
    others are cached."""
    monkeypatch.setattr(event_plans, "MOST_OF_LARGE", 2_000)
    monkeypatch.setattr(event_plans, "LARGE_REFUSED", 5)
    plans = matcher._plans
    small = {"price": 1, "kind": "Sofa"}
    assert plans.planned(small) is not None
    planned = []
    for number in range(20):
        data = {f"n{number}_{part}": part for part in range(400)} | {"price": 5}
        planned.append(plans.planned(data) is not None)
        assert names(matcher, data) == ["cheap"]
        if not any(map(bool, planned[2:])):
            assert tuple(small) in plans._root.shapes
    assert planned[:3] == [True, True, False]
    assert 4 <= sum(planned) <= 10, "further ones, after some were not"
    assert plans.planned({str(number): 1 for number in range(1_001)}) is None


@pytest.mark.parametrize("width", [90, 300])
def test_wide_objects_with_ever_new_nulls_keep_little(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each new place of a null makes other attributes present together. These sets cannot fill the memory."""
    monkeypatch.setattr(event_plans, "REMEMBERED", 1_000)
    matcher = Matcher(Vocabulary.from_ontologies([]))
    matcher.add_many([(str(number), f"a{number} = 1 and b = 1") for number in range(width)])
    plans = matcher._plans
    for number in range(2 * width):
        absent = {number % width, number * 7 % width}
        data = {f"a{each}": None if each in absent else 1 for each in range(width)}
        assert len(matcher.match(Event({**data, "in": {"b": 1}, "b": 1}, {"type": "t"}))) == width - len(absent)
        kept = sum(len(gaps) + len(found) for each in plans._root.shapes.values() for gaps, found in each.gaps.items())
        kept += sum(len(found) + sum(map(len, presents)) for presents, found in plans._unions.items())
        assert kept <= 4_000


def test_large_objects_have_the_notes_of_smaller_ones(matcher: Matcher) -> None:
    """About a misspelt name only if it is among the first, as for an event that is read whole."""
    filler = {f"filler{number}": 1 for number in range(1_000)}
    for seller, expected in (({"ratin": 5, **filler}, 1), ({**filler, "ratin": 5}, 0)):
        data = {"seller": seller}
        assert matcher._plans.planned(data) is not None
        for read in (matcher.read(data), matcher.read(matcher.canonicalise(data))):
            assert [note.attribute for note in read.notes(100)] == ["seller.ratin"] * expected


def test_notes_about_a_large_object_whose_plan_is_forgotten(matcher: Matcher, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the reading of an event and its notes, other large objects may have taken its place."""
    monkeypatch.setattr(event_plans, "MOST_OF_LARGE", 1_000)
    monkeypatch.setattr(event_plans, "LARGE_REFUSED", 3)
    read = matcher.read({"ratin": 1, "seller": {"ratin": 5}} | {f"n{number}": 1 for number in range(300)})
    plans = matcher._plans
    plans._forget()
    assert plans.planned({f"m{number}": 1 for number in range(450)}) is not None
    assert [note.attribute for note in read.notes(100)] == ["ratin", "seller.ratin"]


@pytest.mark.parametrize(
    ("data", "code"),
    [
        ({"price": {"value": 5, "unit": "kg"}}, "quantity-for-number"),
        ({"price": [{"value": 5, "unit": "kg", "by": None}]}, "quantity-for-number"),
        (Event({"price": 5}, {"type": "Laptob"}), "unknown-term"),
        (Event({"price": 5}, {"id": "Laptob", "typ": "Laptop"}), None),
    ],
)
def test_notes_about_an_event_are_those_about_one_that_is_read_whole(
    matcher: Matcher, data: Any, code: str | None
) -> None:
    """About objects that are quantities, and about attributes of the context."""
    matcher.add("typed", "ce.type isa Laptop")
    assert matcher._plans.planned(data) is not None
    for read in (matcher.read(data), matcher.read(data), matcher.read(matcher.canonicalise(data))):
        assert [note.code for note in read.notes(100)] == ([code] if code else [])


def remembered(member: Any) -> int:
    """What is kept of the shapes under a name and of their members, without what members share."""
    count = 0
    for shape in member.shapes.values():
        count += 1 + len(shape.gaps) + sum(len(each.cells) for each in shape.quantities.values())
        for each in shape.members:
            count += len(each.texts) + len(each.cells) + len(each.noted) + len(each.units) + remembered(each)
    return count


def test_events_from_one_dict_that_is_filled_again_are_verified_as_they_were(matcher: Matcher) -> None:
    """What remains to be asked is asked of the event as it was read, also where its dict holds the next one by then."""

    def published() -> Iterator[dict[str, Any]]:
        event: dict[str, Any] = {}
        for text in ("Laptop", "other", "Ladder"):
            event["kind"] = text
            yield event

    found = [[match.subscription for match in matches] for matches in matcher.match_batch(published())]
    assert [sorted(each) for each in found] == [["La", "kind"], [], ["La"]]


def test_events_from_nested_objects_that_are_filled_again_are_verified_as_they_were(matcher: Matcher) -> None:
    """Likewise where objects and arrays inside hold the next event."""
    matcher.add("in", 'box.kind startswith "La"')

    def published() -> Iterator[Any]:
        event: dict[str, Any] = {"box": [{"kind": [""]}]}
        for text in ("Laptop", "other", "Ladder"):
            event["box"][0]["kind"][0] = text
            yield event
            yield Event(event, {})

    found = [[match.subscription for match in matches] for matches in matcher.match_batch(published())]
    assert found == [["in"], ["in"], [], [], ["in"], ["in"]]


def test_notes_look_at_a_bounded_number_of_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever one event holds, by a plan or read whole; notes about its first values are there."""
    looks = 0

    def looked(*arguments: Any) -> str | None:
        nonlocal looks
        looks += 1
        return not_a_quantity(*arguments)

    monkeypatch.setattr(event_plans, "VALUES_ADVISED", 20)
    for module in (advice, event_plans):
        monkeypatch.setattr(module, "not_a_quantity", looked)
    data = {"names": ["$5", *(f"{number} qwxyz" for number in range(100))]}
    matcher = Matcher(Vocabulary())
    for event in (Event(data), matcher.canonicalise(data)):
        looks = 0
        assert [note.code for note in matcher.read(event).notes(100)] == ["not-a-quantity"]
        assert 10 <= looks <= 22


def test_names_that_declarations_use_are_known() -> None:
    """Of the unit beside a number, of members of quantities, and of what derived attributes are computed from."""
    attributes = {
        "slope": {"derived": "rise / span"},
        "risen": {"kind": "number"},
        "offer.value": {"kind": "number", "unit_from": "offer.currency"},
        "currencies": {"kind": "text"},
        "draught": {"quantity": {"number": "reading", "unit": "scale"}},
        "readings": {"kind": "number"},
    }
    matcher = Matcher(Vocabulary(attributes=attributes))
    data = {"rise": 6, "span": 2, "offer": {"value": 5, "currency": "EUR"}, "draught": {"reading": 1, "scale": "m"}}
    for event in (Event(data), matcher.canonicalise(data)):
        assert matcher.read(event).notes(100) == []
    (note,) = matcher.read(Event({"risse": 6})).notes(100)
    assert note.detail.endswith("did you mean rise?")


ALIKE: list[dict[str, Any]] = [
    {"price": 350, "kind": "Laptop", "flag": True, "more": None},
    {"weight": {"value": 2.5, "unit": "kg"}, "seller": {"rating": 4, "place": {"town": "x"}}},
    {"kind": ["Laptop", "Computer"], "price": [5], "tags": []},
    {"temp": 86, "scale": "degF", "contact": "x"},
]


@pytest.mark.parametrize("data", ALIKE)
@pytest.mark.parametrize("noted", [False, True])
def test_events_of_one_shape_are_read_together(matcher: Matcher, data: dict[str, Any], noted: bool) -> None:
    """Bare, and in an envelope that says that they are JSON. The first of them decides nothing about the others."""
    context = {"type": "Offer", "datacontenttype": "application/json"}
    events: list[Any] = [
        *({**data, "number": number} for number in range(4)),
        *(Event({**data, "number": number / 2}, context) for number in range(4)),
    ]
    together = matcher.read_together(events, noted=noted)
    assert None not in together
    for event, read in zip(events, together, strict=True):
        assert read is not None
        alone = matcher.read(event)
        assert read.lowered == alone.lowered
        assert list(read.notes(100)) == list(alone.notes(100))


@pytest.mark.parametrize("values", [(350, None), ("Laptop", None, None), (350, "5 EUR", None), (None, {"rating": 4})])
def test_events_with_other_types_of_values_are_read_together(matcher: Matcher, values: tuple[Any, ...]) -> None:
    """Null beside values, and values of several types."""
    count = 4 * len(values)
    for name in ("price", "kind", "seller"):
        events: list[Any] = [{name: values[number % len(values)], "flag": True} for number in range(count)]
        read = matcher.read_together(events)
        assert [each and each.lowered for each in read] == [matcher.read(each).lowered for each in events]


@pytest.mark.parametrize(
    ("data", "context"),
    [
        ({"kind": "Laptop"}, {"datacontenttype": "application/ld+json"}),
        ({"price": 5}, {"datacontenttype": "application/fhir+json"}),
        ({"@context": {}, "price": 5}, {}),
        ({"more": (1 << 53) + 1}, {}),
        ({"kind": "Laptop" * 100}, {}),
        ({"tags": [["x"]]}, {}),
    ],
)
def test_what_must_be_read_alone_is_left_out(matcher: Matcher, data: Any, context: dict[str, str]) -> None:
    ordinary = [Event({"price": number}, {}) for number in range(4)]
    read = matcher.read_together([*ordinary, *(Event(data, context) for _ in range(4))])
    assert [each is None for each in read] == [False] * 4 + [True] * 4


def test_events_with_ever_other_inner_names_are_not_tried_again_and_again(matcher: Matcher) -> None:
    """For a while. An event that is unlike the others does not decide for them."""
    various = [{"seller": {f"rating{number}": 4}} for number in range(12)]
    alike: list[Any] = [{"seller": {"rating": number}} for number in range(12)]
    assert matcher.read_together([*alike, {"seller": 5}]).count(None) == 1
    assert None not in matcher.read_together(alike)
    assert matcher.read_together(various) == [None] * 12
    for _ in range(event_plans.CALLS_ALONE):
        assert matcher.read_together(alike) == [None] * 12
    assert None not in matcher.read_together(alike)


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf, (1 << 53) + 1, -(10**400)])
@pytest.mark.parametrize("name", ["price", "more"])
def test_no_number_hides_one_that_is_refused(matcher: Matcher, name: str, odd: float) -> None:
    for place in range(5):
        events = [{name: odd if number == place else 0.5 * number} for number in range(5)]
        assert matcher.read_together(events)[place] is None
        with pytest.raises(InvalidEvent):
            matcher.match_batch(events)


def test_reading_together_stops_after_a_time(matcher: Matcher, monkeypatch: pytest.MonkeyPatch) -> None:
    """If values are new. What is cached does not count."""
    known, new = ([{"kind": f"{name} {number}"} for number in range(20)] for name in ("a", "b"))
    assert None not in matcher.read_together(known, noted=True)
    forward = chain((0.0, 0.0), repeat(100.0))  # when the call begins, at the first shape, and at each value
    monkeypatch.setattr(event_plans.time, "perf_counter", lambda: next(forward))
    assert None not in matcher.read_together(known, noted=True)
    forward = chain((0.0, 0.0), repeat(100.0))
    assert matcher.read_together(new) == [None] * 20
    forward = chain((0.0,), repeat(100.0))
    assert matcher.read_together(known) == [None] * 20
