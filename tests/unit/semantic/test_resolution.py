"""Names in expressions become IRIs and canonical attribute names, or clear problems."""

import tracemalloc

import pytest

from kindcast import InvalidSubscription, Matcher, Vocabulary
from kindcast.semantic.errors import Problem
from kindcast.semantic.language import parse, to_text, to_tree
from kindcast.semantic.ontology import read
from kindcast.semantic.subscriptions.compilation import SUGGESTED, as_new, resolve

PREFIXES = b"""
@prefix : <http://example.org/> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
@prefix owl: <http://www.w3.org/2002/07/owl#> . @prefix dcterms: <http://purl.org/dc/terms/> .
"""
TURTLE = (
    PREFIXES
    + b"""
:Laptop rdfs:subClassOf :Computer ; rdfs:label "laptop"@en .
:JaguarCar rdfs:subClassOf :Car ; rdfs:label "jaguar"@en .
:JaguarCat rdfs:subClassOf :Cat ; rdfs:label "jaguar"@en .
:Notebook a owl:Class ; owl:deprecated true ; dcterms:isReplacedBy :Laptop .
:price a owl:DatatypeProperty ; rdfs:label "Preis"@de .
:kind a owl:ObjectProperty ; rdfs:range :Computer .
"""
)


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return Vocabulary.from_bytes(TURTLE, format="turtle", attributes={"weight": {"kind": "number", "unit": "kg"}})


def resolved(text: str, vocabulary: Vocabulary) -> str:
    return to_text(resolve(parse(text), vocabulary).expression)


def problems(text: str, vocabulary: Vocabulary) -> list[Problem]:
    with pytest.raises(InvalidSubscription) as caught:
        resolve(parse(text), vocabulary)
    return caught.value.problems


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x isa laptop", "x isa <http://example.org/Laptop>"),
        ("x isa Laptop", "x isa <http://example.org/Laptop>"),
        ("x isa Notebook", "x isa <http://example.org/Laptop>"),
        ("Preis < 3", "price < 3"),
        ('kind = "laptop"', "kind = <http://example.org/Laptop>"),
        ('kind in ("laptop", "Computer")', "kind in (<http://example.org/Laptop>, <http://example.org/Computer>)"),
        ('x = "laptop"', 'x = "laptop"'),
        ("some a (Preis < 3)", "some a (price < 3)"),
    ],
)
def test_resolve_names_become_what_they_mean(vocabulary: Vocabulary, text: str, expected: str) -> None:
    """Terms become IRIs, attribute labels names, and strings concepts only where the attribute is declared so (rule
    9)."""
    assert resolved(text, vocabulary) == expected


def test_resolve_deprecated_term_is_noted(vocabulary: Vocabulary) -> None:
    """The reply says which term was replaced by which (rule 12)."""
    notes = resolve(parse("x isa Notebook"), vocabulary).notes
    assert [note.code for note in notes] == ["deprecated-term"]
    assert "http://example.org/Laptop" in notes[0].detail


def test_resolve_ambiguous_label_is_refused_with_its_candidates(vocabulary: Vocabulary) -> None:
    """Both jaguars are named, with the place in the text (rule 13)."""
    (problem,) = problems("price < 3 and x isa jaguar", vocabulary)
    assert problem.code == "ambiguous-term"
    assert problem.at is not None
    assert (problem.at.line, problem.at.column) == (1, 21)
    assert {each["iri"] for each in problem.suggestions} == {
        "http://example.org/JaguarCar",
        "http://example.org/JaguarCat",
    }


def test_resolve_ambiguous_label_offers_curies(vocabulary: Vocabulary) -> None:
    """As they may be written: where a prefix stands for several namespaces, or the rest is no name, the IRI."""
    turtle = """
        @prefix a: <http://a.org/> . @prefix b: <http://b.org/x#> . @prefix owl: <http://www.w3.org/2002/07/owl#> .
        @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> . @prefix c: <http://c.org/> .
        a:Bank a owl:Class ; rdfs:label "bank" . b:Bank a owl:Class ; rdfs:label "bank" .
        <http://c.org/the/bench> a owl:Class ; rdfs:label "bank" .
    """
    words = Vocabulary.from_bytes(turtle.encode(), format="turtle")
    [problem] = problems("x isa bank", words)
    assert "write the one that you mean, as a:Bank or b:Bank or <http://c.org/the/bench>" in problem.detail
    assert [each["curie"] for each in problem.suggestions] == ["a:Bank", "b:Bank", None]
    for each in ("a:Bank", "b:Bank"):
        assert resolved(f"x isa {each}", words) == f"x isa <{words.iri(words.resolve(each).candidates[0])}>"


def test_resolve_name_of_a_class_and_of_individuals_is_the_class() -> None:
    """Brick's tags are called as the classes that they mark. Noted; several classes, or none, stay ambiguous."""
    words = Vocabulary.from_bytes(
        PREFIXES
        + b"""
        :SensorClass a owl:Class ; rdfs:label "Sensor" . :tag_sensor a :Tag ; rdfs:label "Sensor" .
        :Point1 a owl:Class ; rdfs:label "Point" . :Point2 a owl:Class ; rdfs:label "Point" .
        :tag_point a :Tag ; rdfs:label "Point" . :h1 a :Tag ; rdfs:label "Hot" . :h2 a :Tag ; rdfs:label "Hot" .
        """
    )
    found = resolve(parse("type isa Sensor"), words)
    assert to_text(found.expression) == "type isa <http://example.org/SensorClass>"
    [note] = found.notes
    assert (note.code, note.attribute) == ("class-preferred", "type")
    assert "individuals have the same name: http://example.org/tag_sensor" in note.detail
    for term in ("Point", "Hot"):
        assert [problem.code for problem in problems(f"type isa {term}", words)] == ["ambiguous-term"]


def test_resolve_unknown_concept_is_refused_with_the_nearest(vocabulary: Vocabulary) -> None:
    """A slip of the pen is met with the label that was meant."""
    (problem,) = problems("x isa lapotp", vocabulary)
    assert problem.code == "unknown-concept"
    assert "http://example.org/Laptop" in {each["iri"] for each in problem.suggestions}


def test_resolve_local_name_of_several_concepts_is_ambiguous() -> None:
    """It is refused with the CURIEs that it may stand for. A label decides before."""
    pumps = (
        PREFIXES
        + b"""@prefix a: <http://a.example/> . @prefix b: <http://b.example/> .
        a:Pump rdfs:subClassOf a:Thing . b:Pump rdfs:subClassOf b:Tool ."""
    )
    (problem,) = problems("x isa Pump", Vocabulary.from_bytes(pumps, format="turtle"))
    assert problem.code == "ambiguous-term"
    assert problem.detail == "'Pump' may mean several concepts: write the one that you mean, as a:Pump or b:Pump"
    assert [each["curie"] for each in problem.suggestions] == ["a:Pump", "b:Pump"]
    labelled = Vocabulary.from_bytes(pumps + b'b:P a owl:Class ; rdfs:label "Pump" .', format="turtle")
    assert resolved("x isa Pump", labelled) == "x isa <http://b.example/P>"


def test_resolve_similar_names_are_searched_for_the_first_unknown_concepts_only(vocabulary: Vocabulary) -> None:
    """All are reported. Each search takes milliseconds at a hundred thousand labels."""
    found = problems(f"x isa ({', '.join(f'lapotp{each}' for each in range(30))})", vocabulary)
    assert [bool(each.suggestions) for each in found] == [each < SUGGESTED for each in range(30)]


def test_similar_units_are_searched_for_the_first_problems_only() -> None:
    """The search takes half a millisecond, and others wait meanwhile; all units are named."""
    expression = " and ".join(f"price < 5 metr{number}" for number in range(30))
    with pytest.raises(InvalidSubscription) as refused:
        Matcher(Vocabulary()).compile(expression)
    found = refused.value.problems
    assert [each.detail for each in found] == [
        f"unknown unit 'metr{number}': no unit has this name" for number in range(30)
    ]
    assert [bool(each.suggestions) for each in found] == [each < SUGGESTED for each in range(30)]


@pytest.mark.parametrize(
    "text",
    ["`` = 1", "`` exists", "some `` (a = 1)", "a < ``", "`` isa Computer", '`` startswith "a"', "`` in (1, 2)"],
)
def test_resolve_empty_name_of_an_attribute_is_refused(vocabulary: Vocabulary, text: str) -> None:
    """With its place; a stored tree that has one keeps it."""
    [problem] = problems(f"x = 1 and {text}", vocabulary)
    assert problem.code == "empty-name"
    assert problem.at is not None
    assert to_text(resolve(parse("`` = 1"), vocabulary, stored=True).expression) == "`` = 1"


def test_resolve_all_problems_are_collected(vocabulary: Vocabulary) -> None:
    """One reply names everything that is wrong."""
    text = 'x isa Nope and a matches /(/ and b < true and c between [1, "z"] and weight < 3 s and d < 2 blurbs and f(1)'
    codes = [problem.code for problem in problems(text, vocabulary)]
    assert codes == [
        "unknown-concept",
        "bad-pattern",
        "no-order",
        "mixed-ends",
        "wrong-dimension",
        "unknown-unit",
        "unknown-operator",
    ]


def test_resolve_attributes_of_the_envelope_in_elements_are_noted(vocabulary: Vocabulary) -> None:
    """`some pieces (isa Computer)` never holds, because `isa` alone asks the type of the event."""
    notes = resolve(parse("some pieces (isa Computer) and every pieces (ce.id = 'x')"), vocabulary).notes
    assert [(note.code, note.attribute) for note in notes] == [
        ("context-of-element", "ce.type"),
        ("context-of-element", "ce.id"),
    ]
    assert notes[0].detail == "only the event has ce.type, elements of pieces have not; the type of an element is @type"
    assert resolve(parse("isa Computer and some pieces (@type isa Computer)"), vocabulary).notes == ()


def test_resolve_bare_word_on_the_right_is_noted_as_an_attribute(vocabulary: Vocabulary) -> None:
    """`room = Bathroom` compares two attributes; who meant a string is told to quote it."""
    notes = resolve(parse("room = Bathroom"), vocabulary).notes
    assert [note.code for note in notes] == ["attribute-operand"]


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ('host = "10.0.0.0/8"', "10.0.0.0/8 is a network: write host in 10.0.0.0/8"),
        ('host in ("10.0.0.1/8")', "'10.0.0.1/8' is neither an IP address nor a network"),
        ("host = 10", "write it in quotes, or write a network such as 10.0.0.0/8 after in"),
        ('made > "newest"', """'newest' is not a version such as "2.4.50\""""),
        ("made > 2.4", 'write it in quotes, such as "2.4.50"'),
    ],
)
def test_resolve_constant_that_is_not_of_the_kind_has_its_own_advice(text: str, advice: str) -> None:
    """Quotes are advised only where there are none."""
    vocabulary = Vocabulary(attributes={"host": {"kind": "ip"}, "made": {"kind": "version"}})
    (problem,) = problems(text, vocabulary)
    assert problem.detail.endswith(advice)


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("room = null", "write room exists or room missing"),
        ("room != None", "write room exists or room missing"),
        ("room = True", "a truth value is true"),
    ],
)
def test_resolve_words_of_other_languages_are_noted_with_what_to_write(
    vocabulary: Vocabulary, text: str, advice: str
) -> None:
    """Quotes would make them texts, which no null and no truth value is."""
    assert [note.detail.endswith(advice) for note in resolve(parse(text), vocabulary).notes] == [True]


@pytest.mark.parametrize(
    ("text", "codes"),
    [
        ('x < "5 kg"', ["quoted-quantity"]),
        ('x between ["1 kg", "5 kg"]', ["quoted-quantity"] * 2),
        ('weight = "400 USD"', ["quoted-quantity"]),
        ('x in ("5 kg", "heavy")', ["quoted-quantity"]),
        ("x < 5 kg", []),
        ('x contains "5 kg"', []),
        ('x = "5"', []),
        ('made = "5 kg"', []),
        ('x < "2026-01-31T12:00:00Z" and x < "2026-01-31"', []),
    ],
)
def test_resolve_quantity_in_quotes_is_noted(text: str, codes: list[str]) -> None:
    """A quoted constant is a text: who meant a quantity is told to leave out the quotes (rule 9)."""
    vocabulary = Vocabulary(attributes={"weight": {"kind": "number", "unit": "kg"}, "made": {"kind": "text"}})
    assert [note.code for note in resolve(parse(text), vocabulary).notes] == codes


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        ("price between [10, 5]", "no value lies between 10 and 5: write the lower end first"),
        ("price between (5, 5]", "no value lies between 5 and 5: a round bracket excludes its end"),
        ("weight between [1 kg, 5 g]", "no value lies between 1 kg and 5 g: write the lower end first"),
        ("made between [2024-02, 2024-01]", "no value lies between 2024-02 and 2024-01: write the lower end first"),
        ("price between [5, 5]", None),
        ("weight between [5 g, 1 kg]", None),
        ('name between ["b", "a"]', None),  # texts are compared as such, or as their root words
    ],
)
def test_bounds_that_no_value_satisfies_are_noted(text: str, detail: str | None) -> None:
    notes = Matcher(Vocabulary()).add("s", text).notes
    assert [(note.code, note.detail) for note in notes] == ([] if detail is None else [("empty-interval", detail)])


@pytest.mark.parametrize(
    ("text", "is_noted"),
    [
        ("not count(tags) > 0", True),
        ("a = 1 and not count(tags) >= 1", True),
        ("not count(tags) != 0", True),
        ("not count(tags) > 1", False),
        ("not sum(tags) > 0", False),
        ("count(tags) > 0 and count(tags) != 0", False),
    ],
)
def test_counts_that_no_event_has_are_noted(text: str, is_noted: bool) -> None:
    """What is absent has no count, so `not count(tags) > 0` is not `tags missing` (rule 26)."""
    matcher = Matcher(Vocabulary())
    notes = matcher.add("s", text).notes
    assert [(note.code, note.attribute) for note in notes] == [("absent-count", "tags")] * is_noted
    if is_noted:
        assert notes[0].detail == "this never holds, because what is absent has no count: write tags missing"
        assert not any(matcher.match({"a": 1, **tags}) for tags in ({}, {"tags": []}, {"tags": [1]}))


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("price > Preis", "price"),
        ("x.Preis = x.price", "x.price"),
        ("price > weight", None),
        ("x.price > price", None),
        ("some items (weight = weight)", "weight"),
    ],
)
def test_attribute_that_is_compared_with_itself_is_noted(vocabulary: Vocabulary, text: str, name: str | None) -> None:
    """Two names may mean one attribute: `price > Preis` holds for an event with several prices."""
    notes = Matcher(vocabulary).add("s", text).notes
    detail = f"both sides are {name}, so this compares its values with each other"
    assert [(note.code, note.detail) for note in notes] == ([] if name is None else [("same-attribute", detail)])


def test_resolve_stored_iri_that_is_gone_is_flagged_not_refused(vocabulary: Vocabulary) -> None:
    """A stored subscription keeps its IRI, follows a replacement, and never looks at labels again (rule 14)."""
    stored = resolve(parse("x isa laptop or x isa Notebook"), vocabulary)
    renamed = PREFIXES + b':Tablet rdfs:label "laptop"@en ; rdfs:subClassOf :Thing .'
    other = Vocabulary.from_bytes(renamed, format="turtle")
    again = resolve(stored.expression, other, stored=True)
    assert to_text(again.expression) == to_text(stored.expression)
    assert {note.code for note in again.notes} == {"gone-concept"}
    successor = PREFIXES + b":Laptop owl:deprecated true ; dcterms:isReplacedBy :Tablet . :Tablet a owl:Class ."
    moved = resolve(stored.expression, Vocabulary.from_bytes(successor, format="turtle"), stored=True)
    assert "<http://example.org/Tablet>" in to_text(moved.expression)


def test_resolve_stored_text_stays_a_text_if_its_attribute_holds_concepts_later(vocabulary: Vocabulary) -> None:
    """A stored subscription never looks at labels again (rule 14), also where the text names no concept."""
    for text in ('other = "laptop"', 'other in ("laptop", "no such label")'):
        stored = resolve(parse(text), vocabulary).expression
        later = Vocabulary.from_bytes(TURTLE, format="turtle", attributes={"other": {"kind": "concept"}})
        again = resolve(stored, later, stored=True)
        assert (to_text(again.expression), again.kept, again.notes) == (text, stored, ())
        written = as_new(to_tree(stored), later)
        assert to_text(resolve(parse(written), later).expression) == text
        assert as_new(written, later) == written


def test_resolve_misspelt_comparison_is_met_with_the_keyword(vocabulary: Vocabulary) -> None:
    """`x issa laptop` reads as a relation; who meant isa is told so."""
    (problem,) = problems("x issa laptop", vocabulary)
    assert problem.code == "unknown-relation"
    assert [each["label"] for each in problem.suggestions] == ["isa"]


def test_resolve_ends_of_different_dimensions_are_refused(vocabulary: Vocabulary) -> None:
    """A range from kilograms to metres holds nothing; one from grams to kilograms is fine."""
    (problem,) = problems("a between [4 kg, 5 m]", vocabulary)
    assert problem.code == "mixed-ends"
    assert resolved("a between [4 g, 5 kg]", vocabulary) == "a between [4 g, 5 kg]"


def test_resolve_number_beyond_all_times_between_date_times_is_named() -> None:
    """The message names the number; both ends are numbers, so their kinds explain nothing."""
    vocabulary = Vocabulary(attributes={"due": {"kind": "instant"}})
    (problem,) = problems("due between [0, 1e16]", vocabulary)
    assert problem.code == "mixed-ends"
    assert "due holds date-times, but 1e+16 is not a date-time" in str(problem)


@pytest.mark.parametrize(
    "said",
    [
        ":i a :A ; owl:sameAs :j .",
        ":i a :A . :j owl:sameAs :i .",
        ":i a :A ; owl:sameAs :j . :j a owl:NamedIndividual .",
        ":i a skos:Concept ; skos:inScheme :S ; skos:broader :A . :j skos:exactMatch :i ; skos:inScheme :T .",
    ],
)
def test_labels_of_another_name_of_a_concept_mean_it(said: str) -> None:
    """Whatever else the document says of that name, and in whichever document the labels stand (rules 10 and 12)."""
    prefixes = PREFIXES.decode().replace("<http://example.org/>", "<http://e.org/>")
    prefixes += "@prefix skos: <http://www.w3.org/2004/02/skos/core#> . :A a owl:Class . "
    label = ':j rdfs:label "jay" .'
    for documents in ([said + label], [said, label]):
        ontologies = [
            read((prefixes + text).encode(), format="turtle", name=str(number)) for number, text in enumerate(documents)
        ]
        matcher = Matcher(Vocabulary.from_ontologies(ontologies))
        matcher.add("above", "x isa A")
        matcher.add("same", "x is jay")
        for word in ("jay", "i"):
            assert [match.subscription for match in matcher.match({"x": word})] == ["above", "same"]


def test_spellings_of_a_label_of_very_many_concepts_share_their_memory() -> None:
    """A publisher could otherwise fill the memory: each spelling would have its own list of the concepts."""
    classes = "".join(f':C{number} a owl:Class ; rdfs:label "same" .\n' for number in range(5_000))
    matcher = Matcher(Vocabulary.from_bytes(PREFIXES + classes.encode() + b":Other a owl:Class .", format="turtle"))
    matcher.add("other", "not kind isa Other")
    assert matcher.match({"kind": "same"})
    tracemalloc.start()
    try:
        for blanks in range(1, 190):
            assert matcher.match({"kind": " " * blanks + "same"})
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()
