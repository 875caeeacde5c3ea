"""Events of declared types: what is refused and told, what is derived; and what subscriptions are told of types."""

from typing import Any

import pytest

from kindcast import Event, InvalidEvent, InvalidSubscription, Matcher, Vocabulary
from kindcast.semantic.errors import InvalidDeclaration
from kindcast.semantic.subscriptions.compilation import restore_expression
from kindcast.semantic.vocabulary.derivation import MOST_ATTRIBUTES, MOST_NODES, names_in, parse_arithmetic

OFFER: dict[str, Any] = {
    "required": ["price"],
    "additionalProperties": False,
    "properties": {
        "price": {"type": ["number", "string", "object"], "x-kindcast-unit": "USD"},
        "seller": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}},
        "at": {"type": "string", "format": "date-time"},
        "state": {"enum": ["new", "used"], "x-kindcast-order": [["used", "new"]]},
    },
}


def matcher_of(**declarations: Any) -> Matcher:
    return Matcher(Vocabulary.from_ontologies([], **declarations))


def problems_of(matcher: Matcher, data: Any, **context: Any) -> dict[str, str]:
    try:
        matcher.canonicalise(Event(data, context))
    except InvalidEvent as error:
        return {str(problem.at): problem.code for problem in error.problems}
    return {}


# ── events ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"price": 5}, {}),
        ({"price": "5 USD"}, {}),
        ({"price": {"value": 5, "currency": "USD"}}, {}),
        ({"price": "5"}, {}),
        ({"price": "cheap"}, {"/price": "wrong-value"}),
        ({"price": {"amount": 5}}, {"/price": "wrong-value"}),
        ({"price": 5, "at": "2026-01-01T00:00:00Z"}, {}),
        ({"price": 5, "at": "yesterday"}, {"/at": "wrong-value"}),
        ({"price": 5, "seller.name": "x"}, {}),
        ({"price": 5, "seller": {}, "state": None}, {}),
        ({"price": 5, "seller": {"nam": "x"}}, {"/seller/name": "missing-attribute"}),
        ({"Preis": 5}, {}),
        ({"Preis": 5, "price": 6}, {"/price": "several-values"}),
        ({"price": 5, "state": "neu"}, {}),
        ({"price": 5, "seller": "x"}, {"/seller": "wrong-value"}),
        ({"price": [5]}, {"/price": "several-values"}),
        ({"price": None}, {"/price": "missing-attribute"}),
        ({"price": []}, {"/price": "missing-attribute"}),
        (None, {"/price": "missing-attribute"}),
        ([], {"/price": "missing-attribute"}),
    ],
)
def test_event_of_a_closed_type_is_checked_as_it_will_be_read(data: Any, expected: dict[str, str]) -> None:
    """Dots, synonyms of names and members, quantities in three shapes; null, [] and {} are no values."""
    matcher = matcher_of(schemas={"offer": OFFER}, synonyms={"Preis": "price", "neu": "new"})
    assert problems_of(matcher, data, type="offer") == expected


def test_event_of_an_attribute_above_is_checked_under_both_names() -> None:
    """Rule 2: an email makes contact exist, so it satisfies a mandatory contact."""
    turtle = b"""@prefix : <http://e/> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
    @prefix owl: <http://www.w3.org/2002/07/owl#> . :contact a owl:DatatypeProperty .
    :email a owl:DatatypeProperty ; rdfs:subPropertyOf :contact ."""
    schema = {"required": ["contact"], "properties": {"contact": {"type": "string"}}, "additionalProperties": False}
    matcher = Matcher(Vocabulary.from_bytes(turtle, format="turtle", schemas={"t": schema}))
    assert problems_of(matcher, {"email": "a@b"}, type="t") == {}
    assert problems_of(matcher, {"email": 5}, type="t") == {"/email": "wrong-value"}


def test_event_of_many_mistakes_tells_a_hundred() -> None:
    """In bounded time, however many names are strange."""
    matcher = matcher_of(schemas={"offer": OFFER})
    assert len(problems_of(matcher, {f"x{number}": 1 for number in range(5_000)}, type="offer")) == 100


def test_event_of_a_known_and_an_unknown_type_is_checked_and_told() -> None:
    """Open mode is for types that nobody declared at all."""
    matcher = matcher_of(schemas={"offer": OFFER})
    notes = matcher.canonicalise(Event({"price": 5, "@type": "sale"}, {"type": "offer"})).notes
    assert [note.code for note in notes] == ["undeclared-type"]
    notes = matcher.canonicalise(Event({"price": "any", "x": [1]}, {"type": "sale"})).notes
    assert [note.code for note in notes] == ["not-of-kind"]


def test_event_of_too_many_declared_types_is_refused() -> None:
    """Every new combination of types would cost a view of them all."""
    names = [f"t{number}" for number in range(17)]
    matcher = matcher_of(schemas={name: {"properties": {"a": {"type": "number"}}} for name in names})
    assert problems_of(matcher, {"@type": names}) == {"/@type": "too-many-types"}
    assert problems_of(matcher, {"@type": names[1:], "a": 1}) == {}


def test_event_value_of_an_unknown_concept_is_refused_once_its_ontology_is_there() -> None:
    """Le Subscribe's V ⊆ dom(A) for hierarchies; an ontology may come after the type."""
    schema = {"properties": {"kind": {"type": "string", "x-kindcast-concept": "http://e/Computer"}}}
    turtle = b"""@prefix : <http://e/> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
    :Laptop rdfs:subClassOf :Computer ; rdfs:label "laptop" . :Car rdfs:subClassOf :Thing ."""
    before = matcher_of(schemas={"t": schema})
    after = Matcher(Vocabulary.from_bytes(turtle, format="turtle", schemas={"t": schema}))
    assert problems_of(before, {"kind": "toaster"}, type="t") == {}
    assert problems_of(after, {"kind": "laptop"}, type="t") == {}
    assert problems_of(after, {"kind": "toaster"}, type="t") == {"/kind": "wrong-value"}
    assert problems_of(after, {"kind": "http://e/Car"}, type="t") == {"/kind": "wrong-value"}


def test_attribute_declared_unique_is_told_of_several_values() -> None:
    """A note: without a type nobody promised anything."""
    matcher = matcher_of(attributes={"size": {"values": "unique"}})
    assert [note.code for note in matcher.canonicalise({"size": [1, 2]}).notes] == ["several-values"]
    assert matcher.canonicalise({"size": [1]}).notes == ()


def test_table_with_types_refuses_the_row_that_does_not_fit() -> None:
    """A table is read as its rows would be."""
    matcher = matcher_of(schemas={"offer": OFFER})
    matcher.add("cheap", "price < 6 USD")
    table = matcher.match_table({"@type": ["offer", "other"], "price": [5, 7]})
    assert table.offsets.tolist() == [0, 1, 1]
    with pytest.raises(InvalidEvent):
        matcher.match_table({"@type": ["offer", "other"], "price": [None, 7]})


def test_table_whose_context_says_a_type_refuses_the_row_that_does_not_fit() -> None:
    """As `match` of an event with that context does."""
    matcher = matcher_of(schemas={"offer": OFFER})
    matcher.add("cheap", "price < 6 USD")
    assert problems_of(matcher, {"price": None}, type="offer")
    assert matcher.match_table({"ce.type": ["offer", "other"], "price": [5, 7]}).offsets.tolist() == [0, 1, 1]
    with pytest.raises(InvalidEvent):
        matcher.match_table({"ce.type": ["other", "offer"], "price": [7, None]})


def test_error_about_a_boolean_shows_it_as_json_does() -> None:
    """Publishers write `true`; `True` is Python."""
    matcher = matcher_of(schemas={"offer": {"properties": {"price": {"type": "number"}}}})
    with pytest.raises(InvalidEvent, match=r"price is number, not true \(R2\)"):
        matcher.match({"@type": "offer", "price": True})


# ── derived attributes ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "data",
    [{"a": 1, "b": 0}, {"a": "x", "b": 1}, {"a": "5 kg", "b": "x"}, {"a": 1e308, "b": 1e-308}],
)
def test_derived_attribute_that_is_undefined_is_absent_and_noted(data: dict[str, Any]) -> None:
    """Division by zero, a text, a result beyond a double."""
    matcher = matcher_of(attributes={"ratio": {"derived": "a / b"}})
    event = matcher.canonicalise(data)
    assert "ratio" not in event.attributes
    assert [note.code for note in event.notes] == ["derived-undefined"]


def test_derived_attribute_of_an_aggregate_without_value_is_noted() -> None:
    """Rule 26: an aggregate of unfit values is absent, and noted also where an attribute is derived from it."""
    matcher = matcher_of(attributes={"total": {"derived": "sum(items.price) * 2 + fee"}})
    (note,) = matcher.canonicalise({"items": [{"price": 1}, {"price": "2 kg"}], "fee": 1}).notes
    assert (note.code, note.attribute) == ("derived-undefined", "total")
    assert note.detail.endswith("is undefined for this event: sum(items.price) has no value, because items.price has "
                                "not only numbers, or quantities of one dimension")  # fmt: skip
    assert matcher.canonicalise({"fee": 1}).notes == ()


def test_derived_attribute_of_an_absent_one_is_absent_in_silence() -> None:
    """Most events are about something else."""
    matcher = matcher_of(attributes={"ratio": {"derived": "a / b"}})
    assert matcher.canonicalise({"a": 1}).notes == ()


def test_derived_attribute_of_many_values_stops_in_time() -> None:
    """100 times 100 combinations are not worked out; the publisher is told."""
    matcher = matcher_of(attributes={"sum": {"derived": "a + b"}})
    many = list(range(100))
    event = matcher.canonicalise({"a": many, "b": many})
    assert len(event.attributes["sum"]) <= 64
    assert [note.code for note in event.notes] == ["derived-undefined"]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("now - graduation", ("graduation",)),
        ("(a.b + `odd name`) * 2 / -c", ("a.b", "odd name", "c")),
        ('x - 5 "kg/m3"', ("x",)),
        ("year(now)-year(born)", ("born",)),
        ("-5 degC + t", ("t",)),
    ],
)
def test_expression_reads_attributes_in_order(text: str, names: tuple[str, ...]) -> None:
    """Dots, backquotes, quoted units, signs."""
    assert names_in(parse_arithmetic(text)) == names


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a +",
        "(a",
        "a)",
        "a b",
        "a ** b",
        "__import__('os')",
        "a; b",
        '"kg"',
        "(" * 100 + "a" + ")" * 100,
        "-" * 100 + "a",
        "+".join(["a"] * (MOST_NODES + 1)),
        "+".join(f"a{number}" for number in range(MOST_ATTRIBUTES + 1)),
        "a" * 501,
        "9" * 41,
    ],
)
def test_expression_that_is_none_or_too_large_is_refused(text: str) -> None:
    """Bounded in length, depth, size and names; nothing but arithmetic."""
    with pytest.raises(InvalidDeclaration):
        parse_arithmetic(text)


# ── subscriptions ───────────────────────────────────────────────────────────────────────────────────────────────────

OPEN = {"properties": {"price": OFFER["properties"]["price"], "gift": {"type": "boolean"}}}


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ('ce.type = "offer" and prize < 5', "unknown-attribute"),
        ('ce.type = "offer" and seller.nam = "x"', "unknown-attribute"),
        ('ce.type = "offer" and some lines (a = 1)', "unknown-attribute"),
        ('ce.type = "offer" and not prize < 5', "unknown-attribute"),
        ('ce.type = "offer" and seller.name = 5', "not-in-domain"),
        ('ce.type = "offer" and seller.name in (5, 6)', "not-in-domain"),
        ('ce.type = "offer" and state = "olde"', "not-in-domain"),
        ('ce.type = "offer" and seller.name between [1, 2]', "not-in-domain"),
        ('ce.type = "gifts" and gift startswith "y"', "not-in-domain"),
        ('state < "olde"', "not-in-enumeration"),
    ],
)
def test_subscription_to_a_type_that_can_never_hold_is_refused(text: str, code: str) -> None:
    """R2 and R3 from the subscriber's side, with the place."""
    matcher = matcher_of(schemas={"offer": OFFER, "gifts": OPEN})
    with pytest.raises(InvalidSubscription) as caught:
        matcher.compile(text)
    assert {problem.code for problem in caught.value.problems} == {code}
    assert all(problem.at is not None for problem in caught.value.problems)


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        ('ce.type = "offer" and price < 5 USD', []),
        ('ce.type = "offer" and price.value < 5', []),
        ('ce.type = "offer" and ce.source = "/x" and prize missing', ["near-attribute"]),
        ('ce.type = "offer" and gift = true', ["attribute-of-other-type"]),
        ('ce.type = "gifts" and gif = true', ["undeclared-attribute"]),
        ('ce.type = "offr"', ["undeclared-type"]),
        ('ce.type = "offer" and price missing', ["mandatory-attribute"]),
        ('ce.type in ("offer", "gifts") and gift = true', []),
        ('not ce.type = "offer" and prize < 5', ["near-attribute"]),
        ("prize < 5", ["near-attribute"]),
        ('state = "olde"', ["not-a-member"]),
    ],
)
def test_subscription_that_is_merely_unlikely_is_told(text: str, codes: list[str]) -> None:
    """The paper's own example asks one type for the attribute of another."""
    matcher = matcher_of(schemas={"offer": OFFER, "gifts": OPEN})
    assert [note.code for note in matcher.compile(text).notes] == codes


@pytest.mark.parametrize(
    ("text", "declared", "code"),
    [
        ('grade < "b"', {"attributes": {"grade": {"enum": ["b", "c"]}}}, "no-order"),
        ('grade < "b"', {"attributes": {"grade": {"enum": ["c"], "order": "listed"}}}, "not-in-enumeration"),
        ("mass < 5 kg", {"attributes": {"mass": {"unit": "degC"}}}, "wrong-dimension"),
        ('ce.type = "t" and gone = 1', {"schemas": {"t": {"additionalProperties": False}}}, "unknown-attribute"),
    ],
)
def test_stored_subscription_is_kept_whatever_is_declared_later(text: str, declared: Any, code: str) -> None:
    """Rule 14: told, never lost; what has no meaning any more holds for no event."""
    tree = matcher_of().compile(text).tree
    vocabulary = Vocabulary.from_ontologies([], **declared)
    restored = restore_expression(tree, vocabulary)
    assert code in {note.code for note in restored.notes}
    matcher = Matcher(vocabulary)
    matcher.add_compiled("s", restored)
    assert matcher.match({"grade": "a", "mass": 4}) == []


def test_derived_moment_is_a_moment_and_no_text() -> None:
    """It compares with date-times; strings have no order with it, whatever they are."""
    declared = {"later": {"kind": "instant", "derived": "b + 1.5 day"}}
    matcher = Matcher(Vocabulary.from_ontologies([], attributes=declared))
    matcher.add("moment", 'later < "2026-01-03T00:00:00Z"')
    matcher.add("text", 'later < "x"')
    found = matcher.match({"b": "2026-01-01T00:00:00Z"})
    assert [match.subscription for match in found] == ["moment"]


def test_aggregate_of_a_derived_attribute_needs_no_other_use_of_it() -> None:
    """In events and tables, declared for all events or for a type, and also after events were read without it."""
    schema = {"properties": {"half": {"type": "number", "x-kindcast-derived": "gross / 2"}}}
    vocabulary = Vocabulary(attributes={"net": {"derived": "gross - tare"}}, schemas={"box": schema})
    matcher = Matcher(vocabulary)
    event = {"@type": "box", "gross": 5, "tare": 1}
    matcher.add("gross", "gross = 5")
    assert len(matcher.match(event)) == 1
    matcher.add("sum", "sum(net) = 4")
    matcher.add("count", "count(half) = 1 and max(half) < 3")
    for found in (matcher.match(event), matcher.match_batch([event, event])[1]):
        assert sorted(match.subscription for match in found) == ["count", "gross", "sum"]
    table = matcher.match_table({name: [value] for name, value in event.items()})
    assert sorted(table.subscriptions(table.slots)) == ["count", "gross", "sum"]
    plain = matcher.match_table({"gross": [5], "tare": [1]})
    assert sorted(plain.subscriptions(plain.slots)) == ["gross", "sum"]


def test_derived_attribute_reads_aggregates_in_events_and_tables() -> None:
    """Over occurrences, also where only elements are asked; a name in backquotes; mistakes are named."""
    declared = {
        "total": {"derived": "sum(items.price) / count(items)"},
        "latest": {"derived": "max(`seen at`) - min(`seen at`)"},
        "late": {"derived": "count(total) + count"},
    }
    matcher = Matcher(Vocabulary(attributes=declared))
    matcher.add("five", "total = 5 and late = 3")
    matcher.add("hour", "latest = 1 h")
    event = {
        "items": [{"price": 5}, {"price": 5}],
        "count": 2,
        "seen at": ["2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z"],
    }
    assert sorted(match.subscription for match in matcher.match(event)) == ["five", "hour"]
    table = matcher.match_table({name: [value] for name, value in event.items()})
    assert sorted(table.subscriptions(table.slots)) == ["five", "hour"]
    for wrong in ("sum(", "sum()", "sum(2)", "sum(a b)", "sum(total2) + total2"):
        with pytest.raises(InvalidDeclaration):
            Vocabulary(attributes={"total2": {"derived": wrong}})
