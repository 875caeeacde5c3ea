"""Identifiers read by patterns (rule 4): GTINs in every spelling, and declarations that are refused."""

from typing import Any

import pytest

from kindcast import Matcher, Vocabulary
from kindcast.semantic.errors import InvalidDeclaration
from kindcast.semantic.vocabulary.declarations import Declarations

GTIN = "09506000134352"


@pytest.mark.parametrize(
    "written",
    [
        "urn:epc:id:sgtin:9506000.013435.42",
        "urn:epc:idpat:sgtin:9506000.013435.*",
        "urn:epc:tag:sgtin-96:3.9506000.013435.42",
        "urn:epc:class:lgtin:9506000.013435.AB12",
        "https://id.gs1.org/01/09506000134352/21/42",
        "https://example.com/some/path/01/9506000134352?linkType=all",
        "(01)09506000134352(21)42",
        "9506000134352",
        "09506000134352",
    ],
)
def test_trade_item_is_read_as_its_gtin(written: str) -> None:
    """By the GTIN-14, and as the individual of a catalogue that has its Digital Link as name."""
    turtle = f"<https://id.gs1.org/01/{GTIN}> a <http://e/Milk> . <http://e/Milk> a owl:Class ; "
    turtle = "@prefix owl: <http://www.w3.org/2002/07/owl#> . " + turtle
    turtle += "<http://www.w3.org/2000/01/rdf-schema#subClassOf> <http://e/Dairy> . <http://e/Dairy> a owl:Class ."
    vocabulary = Vocabulary.from_bytes(turtle.encode(), format="turtle", attributes={"epcList": {"reads": ["gtin-14"]}})
    matcher = Matcher(vocabulary)
    matcher.add("dairy", "epcList isa Dairy")
    matcher.add("item", f'epcList = "{GTIN}"')
    matcher.add("written", f'epcList = "{written}"')
    assert {each.subscription for each in matcher.match({"epcList": [written]})} == {"dairy", "item", "written"}
    assert [each.subscription for each in matcher.match({"other": written})] == []


@pytest.mark.parametrize(
    "written",
    [
        "9506000134353",
        "urn:epc:id:sgtin:9506000.01343.42",
        "urn:epc:id:sscc:9506000.0134352",
        "https://id.gs1.org/01/09506000134353",
        "0950600013435",
        "9" * 600,
        "٩٥٠٦٠٠٠١٣٤٣٥٢",
    ],
)
def test_other_text_is_no_gtin(written: str) -> None:
    """Wrong check digits, lengths and digits."""
    matcher = Matcher(Vocabulary.from_ontologies([], attributes={"epc": {"reads": "gtin-14"}}))
    matcher.add("any", 'epc startswith "https://id.gs1.org/01/0"')
    matcher.add("item", f'epc = "{GTIN}"')
    found = {each.subscription for each in matcher.match({"epc": written})}
    assert found <= ({"any"} if written.startswith("https://id.gs1.org/01/0") else set())


@pytest.mark.parametrize(
    "reads",
    [
        [],
        ["gtin"],
        [{"match": "a"}],
        [{"match": "(a", "as": "b"}],
        [{"match": "(?=a)", "as": "b"}],
        [{"match": "a", "as": "{1}"}],
        [{"match": "a", "as": "{x}"}],
        [{"match": "a" * 501, "as": "b"}],
        [{"match": "a", "as": "b"}] * 17,
        7,
    ],
)
def test_declaration_that_makes_no_sense_is_refused(reads: Any) -> None:
    """Each by its own message."""
    with pytest.raises(InvalidDeclaration, match=r"reads|pattern"):
        Declarations().extended("attribute", "epc", {"reads": reads})


def test_what_a_code_or_a_pattern_knows_is_not_noted_as_unknown() -> None:
    """A tariff number of a declared scheme, and an article that a pattern reads; another one is noted."""
    document = b"""@prefix skos: <http://www.w3.org/2004/02/skos/core#> . @prefix : <http://customs.example/> .
    :s a skos:ConceptScheme . :c84 a skos:Concept ; skos:inScheme :s ; skos:notation "84" ; skos:prefLabel "Machinery" .
    :c8471 a skos:Concept ; skos:inScheme :s ; skos:broader :c84 ; skos:notation "8471" ."""
    attributes = {
        "tariff": {"kind": "concept", "code": {"in": "http://customs.example/s"}},
        "article": {"kind": "concept", "reads": [{"match": "hs-([0-9]+)", "as": "http://customs.example/c{1}"}]},
    }
    matcher = Matcher(Vocabulary.from_bytes(document, attributes=attributes))
    matcher.add("s", "tariff isa Machinery and article isa Machinery")
    event = matcher.canonicalise({"tariff": "8471", "article": "hs-8471"})
    assert [match.subscription for match in matcher.match(event)] == ["s"]
    assert event.notes == ()
    unknown = matcher.canonicalise({"tariff": "99", "article": "hs-99"})
    assert {note.attribute for note in unknown.notes} == {"tariff", "article"}
