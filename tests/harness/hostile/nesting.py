"""Everything that can stand in itself, nested as deep as a parser's stack."""

from tests.harness.hostile.canary import Canary
from tests.harness.hostile.corpus import DEEP, HEAD, MILLION, OWL, TURTLE, Document, hostile, plain


@hostile
def depth_of_elements(canary: Canary) -> Document:
    return plain(HEAD + "<rdfs:Class><rdfs:subClassOf>" * 500_000, "rdf-xml")


@hostile
def depth_of_elements_in_owl_xml(canary: Canary) -> Document:
    deep = "<ObjectIntersectionOf>" * 500_000
    return plain(f'<Ontology xmlns="{OWL}"><SubClassOf><Class IRI="http://e/A"/>{deep}', "owx")


@hostile
def depth_of_brackets_in_turtle(canary: Canary) -> Document:
    return plain(TURTLE + ":A rdfs:subClassOf " + "[ rdfs:subClassOf " * DEEP + ":B" + " ]" * DEEP + " .", "turtle")


@hostile
def depth_of_brackets_that_stay_open(canary: Canary) -> Document:
    return plain(TURTLE + ":A rdfs:subClassOf " + "[ rdfs:subClassOf " * DEEP, "turtle")


@hostile
def depth_of_lists_in_turtle(canary: Canary) -> Document:
    return plain(TURTLE + ":A owl:intersectionOf " + "( " * DEEP + ":B" + " )" * DEEP + " .", "turtle")


@hostile
def depth_of_graphs_in_trig(canary: Canary) -> Document:
    return plain(TURTLE + ":g { " * 300_000, "trig")


@hostile
def depth_of_triple_terms(canary: Canary) -> Document:
    return plain("<<( <urn:s> <urn:p> " * 300_000, "n-triples")


@hostile
def depth_of_reified_triples(canary: Canary) -> Document:
    deep = "<< <urn:s> <urn:p> " * 300_000 + "<urn:o>" + " >>" * 300_000
    return plain(deep + " <urn:p> <urn:o> .", "turtle")


@hostile
def depth_of_arrays_in_json(canary: Canary) -> Document:
    return plain("[" * MILLION + "]" * MILLION, "json-ld")


@hostile
def depth_of_objects_in_json(canary: Canary) -> Document:
    return plain('{"http://e/p":' * 500_000 + "1" + "}" * 500_000, "json-ld")


@hostile
def depth_of_contexts_in_json(canary: Canary) -> Document:
    scoped = '{"@context":{"a":{"@id":"http://e/a","@context":'
    return plain(scoped * 100_000 + "null" + "}}}" * 100_000, "json-ld")


@hostile
def depth_of_expressions_in_functional_syntax(canary: Canary) -> Document:
    deep = "ObjectIntersectionOf(<http://e/A> " * 300_000 + "<http://e/B>" + ")" * 300_000
    return plain(f"Ontology(<http://e/o> SubClassOf(<http://e/C> {deep}))", "ofn")


@hostile
def depth_of_annotations_in_functional_syntax(canary: Canary) -> Document:
    return plain("Ontology(<http://e/o> " + "Annotation(" * 300_000, "ofn")


@hostile
def depth_of_modifiers_in_obo(canary: Canary) -> Document:
    return plain("format-version: 1.2\n\n[Term]\nid: E:1\nis_a: E:2 " + '{a="' * MILLION + "\n", "obo")


@hostile
def depth_of_references_in_obo(canary: Canary) -> Document:
    return plain('format-version: 1.2\n\n[Term]\nid: E:1\nsynonym: "a" EXACT ' + "[" * MILLION + "\n", "obo")
