"""Events become attribute → values with readings."""

from typing import Any

import pytest

from kindcast import Event, InvalidEvent, Vocabulary
from kindcast.semantic.events import canonical_events
from kindcast.semantic.events.canonical_events import Canonicaliser, EventLimits
from kindcast.semantic.flatten import flatten

TURTLE = b"""
@prefix : <http://example.org/> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
@prefix owl: <http://www.w3.org/2002/07/owl#> . @prefix xsd: <http://www.w3.org/2001/XMLSchema#> .
:Laptop rdfs:subClassOf :Computer ; rdfs:label "laptop"@en .
:JaguarCar rdfs:subClassOf :Car ; rdfs:label "jaguar"@en .
:JaguarCat rdfs:subClassOf :Cat ; rdfs:label "jaguar"@en .
:email a owl:DatatypeProperty ; rdfs:subPropertyOf :contact .
:contact a owl:DatatypeProperty .
:price a owl:DatatypeProperty ; rdfs:label "Preis"@de ; rdfs:range xsd:decimal .
:pet a owl:ObjectProperty ; rdfs:range :Cat .
"""


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return Vocabulary.from_bytes(TURTLE, format="turtle")


def published(vocabulary: Vocabulary, data: Any, **context: str) -> dict[str, list[Any]]:
    """Attribute → published values."""
    event = Canonicaliser(vocabulary).canonicalise(Event(data, context))
    return {name: [value.published for value in values] for name, values in event.attributes.items()}


def problems(vocabulary: Vocabulary, data: Any, **limits: int) -> list[tuple[str, str | None]]:
    """The codes and pointers of what is wrong with `data`."""
    with pytest.raises(InvalidEvent) as caught:
        Canonicaliser(vocabulary, limits=EventLimits(**limits)).canonicalise(data)
    return [(each.code, each.at.pointer if each.at else None) for each in caught.value.problems]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"a": {"b": 1}}, {"a.b": [1]}),
        ({"a.b": 1, "a": {"b": 2}}, {"a.b": [1, 2]}),
        ({"a": [1, [2, 3]], "b": []}, {"a": [1, 2, 3]}),
        ({"a": None, "b": {}, "c": [None, {}]}, {}),
        ({"a": ""}, {"a": [""]}),
        ({"a": [{"x": 1}, {"x": 2, "y": 3}]}, {"a.x": [1, 2], "a.y": [3]}),
        ({"a": [1, 1, 1.0, True]}, {"a": [1, 1.0, True]}),
        ({"": {"": 1}}, {".": [1]}),
    ],
)
def test_canonicalise_nested_data_is_flattened(
    vocabulary: Vocabulary, data: dict[str, Any], expected: dict[str, list[Any]]
) -> None:
    """Objects join names with a dot, arrays give several values, null and empty ones none (rule 1)."""
    assert published(vocabulary, data) == expected


def test_canonicalise_context_and_types_stand_under_ce(vocabulary: Vocabulary) -> None:
    """Context attributes get the prefix `ce.`; the types in `@type` are types of the event as well (rule 1)."""
    found = published(vocabulary, {"@type": ["b", "c"]}, type="a", source="s")
    assert found == {"ce.type": ["a", "b", "c"], "ce.source": ["s"], "@type": ["b", "c"]}


def test_canonicalise_pair_is_copied_to_broader_attributes(vocabulary: Vocabulary) -> None:
    """An email makes a contact exist, at any segment of the name (rule 2)."""
    found = published(vocabulary, {"seller": {"email": "x"}})
    assert found == {"seller.email": ["x"], "seller.contact": ["x"]}


def test_canonicalise_attribute_label_resolves_to_its_name(vocabulary: Vocabulary) -> None:
    """`Preis` is `price` (rule 2); a name that nobody declared stays."""
    assert published(vocabulary, {"Preis": 3, "Farbe": "rot"}) == {"price": [3], "Farbe": ["rot"]}


def test_canonicalise_readings_are_added_to_the_string(vocabulary: Vocabulary) -> None:
    """A string keeps its text and may be a concept, a date-time, or a number where that is declared (rule 4)."""
    canonical = Canonicaliser(vocabulary).canonicalise(
        {"target": "laptop", "at": "1970-01-01T00:00:01Z", "price": "350", "size": "350"}
    )
    target, at, price, size = (canonical.attributes[name][0] for name in ("target", "at", "price", "size"))
    laptop = vocabulary.concept("http://example.org/Laptop")
    assert (target.text, target.concepts) == ("laptop", (laptop,))
    assert (at.text, at.instant) == ("1970-01-01T00:00:01Z", 1_000_000)
    assert (price.text, price.number) == ("350", 350.0)
    assert (size.text, size.number) == ("350", None)


def test_canonicalise_root_word_is_added_to_the_published_text() -> None:
    """The table of synonyms adds a reading; a term is looked for as published, and by its root word only without a hit
    (rule 9)."""
    roots = {"Hewlett-Packard": "HP", "jaguar": "laptop", "portable": "laptop"}
    vocabulary = Vocabulary.from_bytes(TURTLE, format="turtle", synonyms=roots)
    canonical = Canonicaliser(vocabulary).canonicalise(
        {"a": "Hewlett-Packard", "b": "jaguar", "c": "portable", "d": "x"}
    )
    brand, published, rooted, plain = (canonical.attributes[name][0] for name in "abcd")
    assert (brand.text, brand.root_word, brand.texts) == ("Hewlett-Packard", "HP", ("Hewlett-Packard", "HP"))
    assert (plain.text, plain.root_word, plain.texts) == ("x", "x", ("x",))
    assert [vocabulary.iri(each) for each in published.concepts] == [
        "http://example.org/JaguarCar",
        "http://example.org/JaguarCat",
    ]
    assert [vocabulary.iri(each) for each in rooted.concepts] == ["http://example.org/Laptop"]


def test_canonicalise_ambiguous_term_counts_all_and_says_so(vocabulary: Vocabulary) -> None:
    """Both jaguars are readings, noted; a declared range leaves one (rules 12, 13)."""
    canonical = Canonicaliser(vocabulary).canonicalise({"seen": "jaguar", "pet": "jaguar"})
    assert len(canonical.attributes["seen"][0].concepts) == 2
    assert canonical.attributes["pet"][0].concepts == (vocabulary.concept("http://example.org/JaguarCat"),)
    assert [(note.code, note.attribute) for note in canonical.notes] == [("ambiguous-term", "seen")]
    both = "jaguar (http://example.org/JaguarCar), jaguar (http://example.org/JaguarCat)"  # their labels are equal
    assert canonical.notes[0].detail == f"'jaguar' may mean {both}: it counts as all of them"


def test_canonicalise_deprecated_term_is_noted() -> None:
    """Rule 12: the replacement is read, and the publisher hears of it; also that nothing replaces it, but something may
    be considered."""
    turtle = b"""
        @prefix : <http://e/> . @prefix owl: <http://www.w3.org/2002/07/owl#> .
        @prefix dct: <http://purl.org/dc/terms/> . @prefix oio: <http://www.geneontology.org/formats/oboInOwl#> .
        :Phone a owl:Class ; owl:deprecated true ; dct:isReplacedBy :Smartphone . :Smartphone a owl:Class .
        :Pager a owl:Class ; owl:deprecated true ; oio:consider :Smartphone .
    """
    vocabulary = Vocabulary.from_bytes(turtle)
    canonical = Canonicaliser(vocabulary).canonicalise({"a": "Phone", "b": ["Pager", "Smartphone"]})
    assert canonical.attributes["a"][0].concepts == (vocabulary.concept("http://e/Smartphone"),)
    assert [(note.code, note.attribute, note.detail) for note in canonical.notes] == [
        ("deprecated-term", "a", "http://e/Phone is deprecated: http://e/Smartphone is used instead"),
        ("deprecated-term", "b", "http://e/Pager is deprecated, nothing replaces it; consider http://e/Smartphone"),
    ]


def test_canonicalise_name_of_a_class_and_of_individuals_is_the_class() -> None:
    """Rule 12, in events as in subscriptions: individuals of the same name are no readings, noted."""
    turtle = b"""
        @prefix : <http://e/> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
        :Sensor a rdfs:Class ; rdfs:label "sensor" . :tag a :Tag ; rdfs:label "sensor" .
    """
    vocabulary = Vocabulary.from_bytes(turtle)
    canonical = Canonicaliser(vocabulary).canonicalise({"t": "sensor"})
    assert canonical.attributes["t"][0].concepts == (vocabulary.concept("http://e/Sensor"),)
    assert [(note.code, note.attribute) for note in canonical.notes] == [("class-preferred", "t")]


def test_canonicalise_unknown_term_of_a_declared_attribute_is_noted(vocabulary: Vocabulary) -> None:
    """An unknown term stays a string, and the publisher hears of it (rule 13)."""
    canonical = Canonicaliser(vocabulary).canonicalise({"pet": "zebra", "name": "zebra"})
    assert canonical.attributes["pet"][0].text == "zebra"
    assert [(note.code, note.attribute) for note in canonical.notes] == [("unknown-term", "pet")]


def test_canonicalise_array_of_objects_keeps_its_elements(vocabulary: Vocabulary) -> None:
    """Each element is an event of its own, also inside elements."""
    canonical = Canonicaliser(vocabulary).canonicalise({"items": [{"x": 1}, {"x": 2, "parts": [{"y": 3}]}]})
    first, second = canonical.elements["items"]
    assert [each.attributes["x"][0].number for each in (first, second)] == [1.0, 2.0]
    assert second.elements["parts"][0].attributes["y"][0].number == 3.0
    assert [value.number for value in canonical.attributes["items.parts.y"]] == [3.0]


@pytest.mark.parametrize(
    "data",
    [
        {"@context": {"@vocab": "http://e/"}, "a": {"a": {"a": {"a": {"a": {"a": {"a": {"n": 1}}}}}}}},
        {"email": [{"email": [{"email": [{"email": [{"email": [{"email": [{"email": [{"n": 1}]}]}]}]}]}]}]},
    ],
)
def test_canonicalise_nested_elements_whose_names_have_others_cost_one_reading_each(
    vocabulary: Vocabulary, data: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twice as many with each level, because each object was read under all names of the arrays around it: to explain
    a small event took hours."""
    read = []
    monkeypatch.setattr(canonical_events, "flatten", lambda *arguments: read.append(1) or flatten(*arguments))
    event = Canonicaliser(vocabulary).canonicalise(data)
    assert len(read) == 8
    name = "a" if "@context" in data else "contact"
    for _ in range(7):
        (event,) = event.elements[name]
    assert event.attributes["n"][0].number == 1


@pytest.mark.parametrize("name", ["x.contact.n", "x.email.n", "contact.n", "other.n"])
def test_canonicalise_names_declared_in_elements_hold_in_these_only(name: str) -> None:
    """Under the whole dotted name of their array, also where an array has several names."""
    words = Vocabulary.from_bytes(TURTLE, format="turtle", attributes={name: {"kind": "number", "unit": "kg"}})
    event = Canonicaliser(words).canonicalise({"x": [{"email": [{"n": 1}]}], "y": [{"email": [{"n": 1}]}]})
    dimensions = [event.elements[one][0].elements["email"][0].attributes["n"][0].dimension for one in ("x", "y")]
    assert dimensions == ["mass" if name == "x.email.n" else None, None]


def test_canonicalise_deeply_nested_arrays_of_objects_cost_one_reading_each(vocabulary: Vocabulary) -> None:
    """Thirty arrays inside each other are thirty elements, not 2^30."""
    data: dict[str, Any] = {"x": 1}
    for _ in range(30):
        data = {"a": [data]}
    canonical = Canonicaliser(vocabulary).canonicalise(data)
    assert len(canonical.elements) == 30


def test_canonicalise_quantity_object_is_one_value_under_two_names(vocabulary: Vocabulary) -> None:
    """`{"value", "unit"}` is readable under its own name and as `name.value` (rule 15)."""
    canonical = Canonicaliser(vocabulary).canonicalise({"cost": {"value": 5, "currency": "USD"}})
    assert canonical.attributes["cost"][0].dimension == "currency:USD"
    assert canonical.attributes["cost"][0].amount == 5.0
    assert canonical.attributes["cost.value"][0].number == 5.0
    assert canonical.attributes["cost.currency"][0].text == "USD"


def test_canonicalise_object_whose_value_is_null_is_no_quantity(vocabulary: Vocabulary) -> None:
    """However many members it has beside it."""
    humidity = {"value": None, "unit": "kg", "at": "10:30"}
    expected = {"humidity.unit": ["kg"], "humidity.at": ["10:30"]}
    assert published(vocabulary, {"humidity": humidity}) == expected
    assert published(vocabulary, {"humidity": [humidity]}) == expected


def test_canonicalise_data_that_is_no_object_has_context_only(vocabulary: Vocabulary) -> None:
    """An array or a text as data is legal: only the context can match, and the publisher hears of it."""
    canonical = Canonicaliser(vocabulary).canonicalise(Event([1, 2], {"type": "t"}))
    assert list(canonical.attributes) == ["ce.type"]
    assert [note.code for note in canonical.notes] == ["no-attributes"]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"ce": {"type": "x"}}, [("reserved-name", "/ce")]),
        ({"ce.type": "x"}, [("reserved-name", "/ce.type")]),
        ({"a": {"b~/c": float("nan")}, "d": [1, float("inf")]}, [("not-finite", "/a/b~0~1c"), ("not-finite", "/d/1")]),
        ({"a": 2**53 + 1}, [("inexact-number", "/a")]),
        ({"a": 10**400}, [("inexact-number", "/a")]),
        ({"a": {1: 2}}, [("bad-name", "/a")]),
        ({"a": b"bytes"}, [("bad-value", "/a")]),
    ],
)
def test_canonicalise_bad_data_is_refused_with_every_place(
    vocabulary: Vocabulary, data: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    """Each problem has a code and a JSON pointer (rules 1 and 4)."""
    assert problems(vocabulary, data) == expected


def test_canonicalise_large_integer_that_a_double_holds_is_kept(vocabulary: Vocabulary) -> None:
    """2^60 is exactly a double."""
    assert Canonicaliser(vocabulary).canonicalise({"a": 2**60}).attributes["a"][0].number == float(2**60)


def test_canonicalise_nesting_beyond_the_limit_is_refused(vocabulary: Vocabulary) -> None:
    """A hundred thousand levels cost a bounded walk, not the interpreter's stack."""
    data: Any = 1
    for _ in range(100_000):
        data = {"a": data}
    assert problems(vocabulary, data, depth=4) == [("too-deep", "/a/a/a/a/a")]
    assert problems(vocabulary, {"a": [1, 2, 3]}, values=3) == [("too-many-values", "/a")]
    assert problems(vocabulary, {"a": [[]] * 1_000_000}) == [("too-many-values", "/a")]


@pytest.mark.parametrize("name", ["a." * 65 + "a", "." * 1_000_000, "a" * 10_001, "<." * 300_000])
def test_canonicalise_name_beyond_the_limit_is_refused(vocabulary: Vocabulary, name: str) -> None:
    """Each part of a name is looked up, and each value below a name has a copy of it."""
    assert problems(vocabulary, {"b": {name: 1}}) == [("long-name", "/b")]
    assert problems(vocabulary, {name: {f"m{number}": number for number in range(9_000)}}) == [("long-name", "")]


def test_canonicalise_name_within_the_limit_is_read(vocabulary: Vocabulary) -> None:
    """A dotted name may have as many parts as nested objects have names (rule 1)."""
    for name in ("a." * 64 + "a", "a" * 10_000):
        assert list(Canonicaliser(vocabulary).canonicalise({name: 1}).attributes) == [name]
