"""A dry run of the rules: which subscriptions mean something else by those of meaning 2, and why; no others."""

from typing import Any

import pytest

from kindcast import Vocabulary
from kindcast.semantic.changes.impact import FormerVocabulary, impact_of_rules, impact_report
from kindcast.semantic.language import parse, to_tree
from kindcast.semantic.ontology import read
from kindcast.semantic.subscriptions.compilation import compile_expression

TURTLE = """
@prefix : <http://e/> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
@prefix owl: <http://www.w3.org/2002/07/owl#> .
@prefix skos: <http://www.w3.org/2004/02/skos/core#> .
:Laptop a owl:Class ; rdfs:subClassOf :Computer ; rdfs:label "laptop" . :Computer a owl:Class ; rdfs:label "computer" .
:Disk a owl:Class ; rdfs:label "disk" . :Animal a owl:Class .
:Sensor a owl:Class ; rdfs:label "probe" . :tag1 a :Tag ; rdfs:label "probe" . :Tag a owl:Class .
:War a skos:Concept ; skos:exactMatch <http://w/conflict> .
:WarCrime a skos:Concept ; skos:exactMatch <http://w/conflict> .
"""
DECLARED: dict[str, Any] = {
    "synonyms": {"Hewlett-Packard": "HP", "disk": "laptop", "grün": "green"},
    "attributes": {
        "size": {"kind": "number"},
        "width": {"kind": "number"},
        "done": {"kind": "boolean"},
        "due": {"kind": "instant"},
        "release": {"kind": "version"},
        "colour": {"enum": ["grün", "red"], "order": "listed"},
    },
}


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return Vocabulary.from_ontologies([read(TURTLE.encode(), format="turtle")], **DECLARED)


def changes(vocabulary: Vocabulary, text: str) -> list[str]:
    """What the report says of one subscription."""
    tree = compile_expression(text, vocabulary).tree
    report = impact_report(impact_of_rules(vocabulary, DECLARED, [("s", tree)]))
    assert report["subscriptions"]["live"] == 1
    return [each for listed in report["subscriptions"]["listed"] for each in listed["changes"]]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('not brand startswith "Hew"', ['brand startswith "Hew": gains 1 words']),
        ('brand < "I" and brand >= "Hf"', []),
        ('brand < "HF"', []),
        ('brand > "Ha"', ['brand > "Ha": gains 1 words']),
        ('some offers (brand contains "Packard")', ['brand contains "Packard": gains 1 words']),
        ('brand startswith "HP"', []),
        ('brand = "Hewlett-Packard"', []),
        (
            'brand > "2026-01-31T12:00:00Z"',
            ["brand: compares dates as all the time that they last, not as texts"],
        ),
        ('colour >= "red"', []),
        ("a < b", ["a < b: compares quantities and date-times as such, not as texts"]),
        ("not a = size", ["a = size: compares quantities and date-times as such, not as texts"]),
        ("size < width", []),
        ("a = done", []),
        ("a < 5 kg and a exists and not a in (1, 2)", []),
        ("x isa Laptop", ["isa laptop: loses 1 words"]),
        ("x isa Disk", ["isa disk: gains 1 words"]),
        ("not x isa <http://e/Tag>", ["isa Tag: loses 1 words"]),
        ("x isa <http://e/Sensor>", []),
        ("x isa <http://e/War>", ["isa War: loses 2, loses 2 words"]),
        ("x isa Animal and price < 3", []),
    ],
)
def test_rules_change_what_the_page_says(vocabulary: Vocabulary, text: str, expected: list[str]) -> None:
    """Root words (rule 9), two attributes (9), individuals beside a class (12), exact matches (10)."""
    assert changes(vocabulary, text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("made < 2026-01-31T12:00:00Z", ["made: compares dates as all the time that they last, not as texts"]),
        ("made = 2026-01-31T12:00:00Z", []),
        ('made < "2026-01-31" and due = "2026-01-31T12:00:00Z"', []),
        ('due = "2026-01-31"', ["due: compares dates with date-times"]),
        ("due > 1347840000", ["due: compares numbers as seconds or milliseconds since 1970 with date-times"]),
        (
            "some lines (due < 5 and size < 5)",
            ["due: compares numbers as seconds or milliseconds since 1970 with date-times"],
        ),
        ("due < made", ["due < made: compares dates as such, not as texts"]),
        ('a < b and brand startswith "Hew" and x isa Laptop', []),
    ],
)
def test_rules_of_meaning_3_change_dates_alone(vocabulary: Vocabulary, text: str, expected: list[str]) -> None:
    """Rule 26, for who had the rules of meaning 2; what those changed is not told again."""
    tree = compile_expression(text, vocabulary).tree
    report = impact_report(impact_of_rules(vocabulary, DECLARED, [("s", tree)], former=2))
    assert [each for listed in report["subscriptions"]["listed"] for each in listed["changes"]] == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("sum(due) > 10", ["due: compares its sum as a plain number"]),
        ("some lines (max(release) = 5)", ["release: compares its max as a plain number"]),
        ("max(due) > 10 and sum(size) > 3 and count(due) = 2 and count(release) > 1 and due > 5 and due < made", []),
    ],
)
def test_rules_of_meaning_4_change_aggregates_alone(vocabulary: Vocabulary, text: str, expected: list[str]) -> None:
    """Rule 26, for who had the rules of meaning 3."""
    tree = compile_expression(text, vocabulary).tree
    report = impact_report(impact_of_rules(vocabulary, DECLARED, [("s", tree)], former=3))
    assert [each for listed in report["subscriptions"]["listed"] for each in listed["changes"]] == expected


@pytest.mark.parametrize(
    ("unit", "changes"),
    [
        ("mil", True),
        ("http://qudt.org/vocab/unit/MIL", True),
        ("http://qudt.org/vocab/unit/CUP", True),
        ("CUP", False),
        ("cup", False),
        ("thou", False),
    ],
)
def test_rules_of_meaning_5_change_units_alone(vocabulary: Vocabulary, unit: str, changes: bool) -> None:
    """Rule 15, for who had the rules of meaning 4."""
    tree = compile_expression(f'a > 5 "{unit}" and b < 2026-01-31 and c < d', vocabulary).tree
    report = impact_report(impact_of_rules(vocabulary, DECLARED, [("s", tree)], former=4))
    found = [each for listed in report["subscriptions"]["listed"] for each in listed["changes"]]
    assert found == [f"unit {unit}: compares amounts of another unit"] * changes


def test_rules_of_meaning_6_change_lists_that_exclude_removed_concepts(vocabulary: Vocabulary) -> None:
    """Rule 14, for who had the rules of meaning 5."""
    stored = [
        ("gone", "not a isa (<urn:gone>, <http://e/Laptop>)"),
        ("alone", "not a isa <urn:gone>"),
        ("asked", "a isa (<urn:gone>, <http://e/Laptop>)"),
        ("there", "not a isa (<http://e/Laptop>, <http://e/Disk>)"),
    ]
    report = impact_report(
        impact_of_rules(vocabulary, DECLARED, [(id, to_tree(parse(text))) for id, text in stored], former=5)
    )
    assert report["subscriptions"]["listed"] == [{"id": "gone", "changes": ["not of a list with urn:gone: gone"]}]


def test_rules_of_meaning_7_change_parentheses_that_exclude_removed_concepts(vocabulary: Vocabulary) -> None:
    """Rule 14, for who had the rules of meaning 6."""
    stored = [
        ("some", "not some items (a isa <urn:gone>)"),
        ("every", "not (b = 1 or every items (some parts (a is <urn:gone>)))"),
        ("group", "not (p(?n) and a isa <urn:gone>)"),
        ("list", "not a isa (<urn:gone>, <http://e/Laptop>)"),
        ("asked", "some items (a isa <urn:gone> and not b isa <urn:gone>)"),
        ("there", "not some items (a isa <http://e/Laptop>)"),
    ]
    report = impact_report(
        impact_of_rules(vocabulary, DECLARED, [(id, to_tree(parse(text))) for id, text in stored], former=6)
    )
    changes = ["not of parentheses with urn:gone: gone"]
    assert report["subscriptions"]["listed"] == [{"id": id, "changes": changes} for id in ("some", "every", "group")]


def test_report_names_words_and_predicates(vocabulary: Vocabulary) -> None:
    """As the dry run of another version does."""
    tree = compile_expression('brand contains "Packard" or a < b', vocabulary).tree
    report = impact_report(impact_of_rules(vocabulary, DECLARED, [("s", tree), ("t", {"exists": "a"})]))
    assert (report["subscriptions"]["changed"], report["subscriptions"]["live"]) == (1, 2)
    (text,) = report["texts"]["listed"]
    assert (text["predicate"], text["words"]) == (
        'brand contains "Packard"',
        {"count": 1, "listed": ["Hewlett-Packard"]},
    )
    assert [each["predicate"] for each in report["pairs"]["listed"]] == ["a < b"]


def test_former_vocabulary_reads_as_the_former_rules(vocabulary: Vocabulary) -> None:
    """Root words first, every exact match merged, individuals beside the class; and it is another version."""
    former = FormerVocabulary.of(vocabulary, DECLARED)
    assert former.version != vocabulary.version
    assert former.texts("Hewlett-Packard") == ("HP",)
    assert former.concept("http://e/War") == former.concept("http://e/WarCrime")
    assert [former.iri(each) for each in former.resolve("disk").candidates] == ["http://e/Laptop"]
    assert {former.iri(each) for each in former.resolve("probe").candidates} == {"http://e/Sensor", "http://e/tag1"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('made = "laptop"', ["made: compares texts, not the concepts with these labels"]),
        ('some lines (made in ("laptop", "x"))', ["made: compares texts, not the concepts with these labels"]),
        ('brand = "laptop" and made isa Laptop and made = <http://e/Laptop> and made > "a"', []),
    ],
)
def test_rules_of_meaning_9_change_stored_texts_alone(vocabulary: Vocabulary, text: str, expected: list[str]) -> None:
    """Rule 14, for who had the rules of meaning 8: `made` is declared to hold concepts later."""
    tree = compile_expression(text, vocabulary).tree
    later: dict[str, Any] = {"attributes": {"made": {"kind": "concept"}}}
    report = impact_report(impact_of_rules(Vocabulary(vocabulary.ontologies, **later), later, [("s", tree)], former=8))
    assert [each for listed in report["subscriptions"]["listed"] for each in listed["changes"]] == expected
