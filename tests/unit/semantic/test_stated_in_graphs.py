"""Nodes of graphs that state quantities and codes (rule 22), in the vocabularies of several standards."""

from typing import Any

import pytest

from kindcast import Matcher, Vocabulary, explain
from kindcast.semantic.model import Event

ONTOLOGY = b"""
@prefix skos: <http://www.w3.org/2004/02/skos/core#> . @prefix : <http://e/> .
@prefix owl: <http://www.w3.org/2002/07/owl#> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
:c1 a skos:Concept ; skos:inScheme :s ; skos:notation "A" ; skos:prefLabel "heart" .
:c2 a skos:Concept ; skos:inScheme :s ; skos:notation "A1" ; skos:broader :c1 .
:Mass rdfs:subClassOf :Measured . :Measured a owl:Class .
"""
CONTEXT = {
    "@vocab": "http://e/",
    "cargo": "https://onerecord.iata.org/ns/cargo#",
    "schema": "https://schema.org/",
    "qudt": "http://qudt.org/schema/qudt/",
    "om": "http://www.ontology-of-units-of-measure.org/resource/om-2/",
    "fhir": "http://hl7.org/fhir/",
    "xsd": "http://www.w3.org/2001/XMLSchema#",
}
QUANTITIES: dict[str, Any] = {
    "ONE Record": {
        "cargo:numericalValue": {"@value": "20.0", "@type": "xsd:double"},
        "cargo:unit": {"@id": "https://onerecord.iata.org/ns/code-lists/MeasurementUnitCode#KGM"},
    },
    "schema.org": {"schema:value": 20, "schema:unitCode": "KGM", "schema:unitText": "kilos", "schema:name": "gross"},
    "QUDT": {
        "qudt:numericValue": {"@value": "20", "@type": "xsd:decimal"},
        "qudt:hasUnit": {"@id": "http://qudt.org/vocab/unit/KiloGM"},
    },
    "SOSA with QUDT 1.1": {"qudt:numericValue": 20, "qudt:unit": {"@id": "http://qudt.org/1.1/vocab/unit#Kilogram"}},
    "OM": {"om:hasNumericalValue": 20, "om:hasUnit": {"@id": "om:kilogram"}},
}
CODES: dict[str, Any] = {
    "typed": {"@value": "A1", "@type": "http://e/s"},
    "coding": {"fhir:code": "A1", "fhir:system": {"@id": "http://e/s"}},
    "codeable": {
        "fhir:coding": [{"fhir:code": "x", "fhir:system": "urn:none"}, {"fhir:code": "A1", "fhir:system": "http://e/s"}]
    },
    "defined": {"schema:termCode": "A1", "schema:inDefinedTermSet": {"@id": "http://e/s", "schema:name": "all"}},
}


def verdicts(data: dict[str, Any], *asked: str) -> list[bool]:
    """What is matched, by a plan, in a batch, and in explanations alike."""
    vocabulary = Vocabulary.from_bytes(ONTOLOGY, format="turtle")
    matcher = Matcher(vocabulary)
    for each in asked:
        matcher.add(each, each)
    event = Event({"@context": CONTEXT, **data}, {"datacontenttype": "application/ld+json"})
    found = {each.subscription for each in matcher.match(event)}
    assert found == {each.subscription for each in matcher.match_batch([event])[0]}
    told = [explain(vocabulary, each, event)["matches"] for each in asked]
    assert [each in found for each in asked] == told
    return told


@pytest.mark.parametrize("standard", QUANTITIES)
def test_node_states_a_quantity(standard: str) -> None:
    """Under its own name, one value with its types; members stay; alone and among several, and of one element."""
    node = {"@type": "Mass", **QUANTITIES[standard]}
    right = ("weight > 19 kg", "weight = 20000 g", "weight isa Measured", "some weight (@type isa Mass)")
    wrong = ("not weight < 30 kg", "weight > 20 m", "weight.@type missing", "not weight isa Measured")
    assert verdicts({"weight": node}, *right, *wrong) == [True] * len(right) + [False] * len(wrong)
    others = {"weight": [node, {"schema:value": 3, "schema:unitCode": "KGM"}], "other": "20 kg"}
    assert verdicts(others, "weight < 4 kg and weight > 19 kg", "weight = other", "weight > 21 kg") == [
        True,
        True,
        False,
    ]


@pytest.mark.parametrize("shape", CODES)
def test_node_or_literal_states_a_code(shape: str) -> None:
    """In the system that its scheme is; a code of another one means nothing."""
    assert verdicts({"finding": CODES[shape]}, "finding isa heart", "not finding isa heart") == [True, False]
    assert verdicts(
        {"finding": {"fhir:code": "A1", "fhir:system": "urn:x"}}, "finding isa heart", "finding exists"
    ) == [False, True]


def test_number_of_a_quantity_is_read_with_its_unit() -> None:
    """Under its own name too, and without the unit it stays a number."""
    data = {"weight": QUANTITIES["schema.org"]}
    asked = ("weight.value > 19 kg", "weight.value = 20", "weight.value > 21 kg", 'weight.unitText = "kilos"')
    assert verdicts(data, *asked) == [True, True, False, True]


@pytest.mark.parametrize("comparator", [{"@id": "urn:x:less"}, ["<"], {"value": "<"}, 5, "about"])
def test_comparator_of_no_standard_leaves_the_amount_unknown(comparator: Any) -> None:
    """Whatever it is: the object states no quantity. In FHIR's JSON and in graphs."""
    weight = {"value": 20, "unit": "kg", "comparator": comparator}
    matcher = Matcher(Vocabulary())
    for each in ("weight.value = 20", "weight > 1 kg", "weight < 99 kg"):
        matcher.add(each, each)
    graph = {"@context": {"@vocab": "http://hl7.org/fhir/"}, "weight": weight}
    for event in (Event({"weight": weight}, {"datacontenttype": "application/fhir+json"}), Event(graph)):
        matched = [match.subscription for match in matcher.match(event)]
        assert matched == ["weight.value = 20"]
