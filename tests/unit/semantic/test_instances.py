"""IRIs of instances as constants (rule 25): no object property refuses one, whatever its range says."""

import pytest

from kindcast import Event, InvalidSubscription, Matcher, Vocabulary

SUPPLY = """
@prefix : <https://supply.example/ns#> . @prefix owl: <http://www.w3.org/2002/07/owl#> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> . @prefix xsd: <http://www.w3.org/2001/XMLSchema#> .

:Event a owl:Class . :ObjectEvent a owl:Class ; rdfs:subClassOf :Event .
:Place a owl:Class . :Dock rdfs:subClassOf :Place . :Party a owl:Class . :Document a owl:Class .
:Step a owl:Class ; rdfs:label "business step"@en . :shipping a :Step ; rdfs:label "shipping"@en . :receiving a :Step .
:State a owl:Class ; owl:equivalentClass [ a owl:Class ; owl:oneOf ( :in_transit :sellable ) ] .
:in_transit a :State . :sellable a :State . :Check rdfs:subClassOf :Document .
:quiet a owl:ObjectProperty .
:readPoint a owl:ObjectProperty ; rdfs:domain :Event ; rdfs:range :Place .
:origin a owl:ObjectProperty ; rdfs:subPropertyOf :readPoint ; rdfs:label "point of origin"@en .
:step a owl:ObjectProperty ; rdfs:domain :Event ; rdfs:range :Step .
:state a owl:ObjectProperty ; rdfs:domain :Event ; rdfs:range :State .
:party a owl:ObjectProperty ; rdfs:range :Party , :Place .
:item a owl:ObjectProperty ; rdfs:domain :ObjectEvent ; rdfs:range xsd:anyURI .
:paper a owl:ObjectProperty ; rdfs:range [ a owl:Class ; owl:unionOf ( :Document :Check ) ] .
:holds a owl:ObjectProperty ; rdfs:range owl:Thing . :parent a owl:ObjectProperty ; rdfs:range rdfs:Resource .
:carrier a owl:ObjectProperty ; owl:inverseOf :carries ; rdfs:range <https://elsewhere.example/Ship> .
"""
"""An ontology of our own in the shape of EPCIS's, which may not be copied here: properties of events whose ranges are
classes without known individuals (places), classes that list theirs (steps, states), several, unions, or nothing."""
PROPERTIES = ("quiet", "readPoint", "origin", "step", "state", "party", "item", "paper", "holds", "parent", "carrier")
UNKNOWN = (
    "https://1r.example.com/logistics-objects/957e",
    "urn:epc:id:sgln:0614141.07346.1234",
    "https://supply.example/ns#unlisted_step",
)


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return Vocabulary.from_bytes(SUPPLY.encode(), format="turtle")


@pytest.mark.parametrize("name", PROPERTIES)
def test_no_object_property_refuses_the_iri_of_an_instance(name: str, vocabulary: Vocabulary) -> None:
    """By local name, IRI and CURIE, quoted and not; it matches the reference in JSON-LD, and the text in plain JSON."""
    matcher = Matcher(vocabulary)
    spelt = (name, f"<https://supply.example/ns#{name}>", f"ns:{name}")
    asked = [
        f"{each} {test}"
        for each in spelt
        for iri in UNKNOWN
        for test in (f'= "{iri}"', f"= <{iri}>", f'in ("{iri}", <urn:x:other>)')
    ]
    for text in asked:
        matcher.add(text, text)
        matcher.add(f"not {text}", f"not {text}")
    for iri in UNKNOWN:
        graph = {"@context": {"@vocab": "https://supply.example/ns#"}, "@type": "ObjectEvent", name: {"@id": iri}}
        found = {each.subscription for each in matcher.match(graph)}
        assert found == {text if iri in text else f"not {text}" for text in asked}
        plain = {each.subscription for each in matcher.match(Event({name: iri}))}
        assert plain == {each for each in found if each.removeprefix("not ").startswith(f"{name} ")}


def test_known_instances_stay_concepts_and_unknown_words_are_refused(vocabulary: Vocabulary) -> None:
    """A step that the ontology lists is meant by its label; one that it does not list needs its IRI."""
    matcher = Matcher(vocabulary)
    matcher.add("label", 'step = "shipping"')
    matcher.add("kind", 'step isa "business step"')
    graph = {
        "@context": {"@vocab": "https://supply.example/ns#"},
        "step": {"@id": "https://supply.example/ns#shipping"},
    }
    assert {each.subscription for each in matcher.match(graph)} == {"label", "kind"}
    for text in ('step = "shiping"', "step isa <https://1r.example.com/957e>", "step = ns:unheard"):
        with pytest.raises(InvalidSubscription, match="no concept has the name"):
            matcher.add("x", text)
