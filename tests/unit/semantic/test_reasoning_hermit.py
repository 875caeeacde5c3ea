"""What a reasoner is given of a document, what is known without it, and what becomes of its words. No Java here."""

import re
from pathlib import Path

import pytest

from kindcast.semantic.errors import InconsistentOntology, OntologyError, ReasonerUnavailable, TooCostly
from kindcast.semantic.ontology import extraction as known
from kindcast.semantic.ontology import reasoning
from kindcast.semantic.ontology.extraction import Known
from kindcast.semantic.ontology.loader import read_with_axioms
from kindcast.semantic.ontology.reasoning import Axioms, Reasoner

PREFIXES = """
@prefix : <http://e/> .
@prefix rdf: <http://www.w3.org/1999/02/22-rdf-syntax-ns#> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
@prefix owl: <http://www.w3.org/2002/07/owl#> .
@prefix skos: <http://www.w3.org/2004/02/skos/core#> .
@prefix sh: <http://www.w3.org/ns/shacl#> .
@prefix xsd: <http://www.w3.org/2001/XMLSchema#> .
"""


def axioms(turtle: str) -> Axioms:
    _, found = read_with_axioms((PREFIXES + turtle).encode(), format="turtle", reason="owl")
    assert found is not None
    return found


def lines(turtle: str) -> set[str]:
    """The triples that a reasoner is given, in short: names of the document by their own names again."""
    found = axioms(turtle)
    text = found.spelt_out(found.triples.decode("ascii"))
    text = re.sub(r"<http://(?:www\.w3\.org/[^#]*#|e/)([^>]*)>", r"\1", text)
    return {line.removesuffix(" .") for line in text.splitlines()}


@pytest.mark.parametrize(
    "turtle",
    [
        "<http://e/> a owl:Ontology ; owl:imports <http://f/> , <file:///etc/passwd> ; owl:versionInfo '1' .",
        ":A rdfs:label 'a' ; rdfs:comment 'b' ; skos:prefLabel 'c' ; skos:broader :B ; owl:deprecated true .",
        ":n a owl:AnnotationProperty ; rdfs:subPropertyOf :m ; rdfs:range xsd:string . :m a owl:AnnotationProperty .",
        ":A :unknown :B ; :told 'so' .",
        "[] a owl:Axiom ; owl:annotatedSource :A ; owl:annotatedProperty rdfs:subClassOf ; owl:annotatedTarget :B .",
        ":p a owl:ObjectProperty . :g a skos:Collection , :B ; :p :h . :h a skos:Collection ; :p :p .",
        ":s a sh:NodeShape ; sh:property [ sh:path :p ] . :C a skos:Concept . :S a skos:ConceptScheme .",
    ],
)
def test_axioms_hold_nothing_that_is_none(turtle: str) -> None:
    """No imports, labels and annotations, no SKOS and SHACL, and nothing about what is nobody's individual."""
    assert lines(turtle) <= {"A type Class", "B type Class", "p type ObjectProperty"}


def test_axioms_hold_what_bears_on_classes_properties_and_individuals() -> None:
    """Each as it stands in the document, classes and properties declared first."""
    assert lines(
        """:A rdfs:subClassOf :B . :p a owl:TransitiveProperty ; rdfs:domain :A . :d a owl:DatatypeProperty .
        :x a :A ; :p :y ; :d 5 ; :p 'no object' ; :d :no_data . :p rdfs:subPropertyOf :q . :A owl:disjointWith :C ."""
    ) == {
        *("A type Class", "B type Class", "C type Class", "d type DatatypeProperty", "p type ObjectProperty"),
        *("q type ObjectProperty", "A subClassOf B", "p type TransitiveProperty", "p domain A", "x type A", "x p y"),
        *('x d "5"^^integer', "p subPropertyOf q", "A disjointWith C"),
    }


@pytest.mark.parametrize(
    ("turtle", "kind"),
    [
        ("[] owl:onProperty :p ; owl:someValuesFrom :A .", "ObjectProperty"),
        ("[] owl:onProperty :p ; owl:someValuesFrom xsd:integer .", "DatatypeProperty"),
        ("[] owl:onProperty :p ; owl:hasValue 5 .", "DatatypeProperty"),
        ("[] owl:onProperty :p ; owl:hasValue :a .", "ObjectProperty"),
        ("[] owl:onProperty :p ; owl:someValuesFrom :T . :T a rdfs:Datatype .", "DatatypeProperty"),
        (":p a rdf:Property ; rdfs:range xsd:decimal .", "DatatypeProperty"),
        (":p a rdf:Property ; rdfs:range :A .", "ObjectProperty"),
        (":p a rdf:Property . :x :p 5 .", "DatatypeProperty"),
        (":p a owl:FunctionalProperty . :x :p :y .", "ObjectProperty"),
        (":p rdfs:subPropertyOf :q . :q a owl:DatatypeProperty .", "DatatypeProperty"),
        (":p owl:equivalentProperty :q . :r rdfs:subPropertyOf :q ; rdfs:range xsd:string .", "DatatypeProperty"),
        (":p rdfs:subPropertyOf :q .", "ObjectProperty"),
        (":p rdfs:domain :A .", "ObjectProperty"),
        (":p rdfs:domain [ owl:unionOf ( :A :B ) ] . :x :p 5 .", "DatatypeProperty"),
        (":p rdfs:range xsd:integer .", "DatatypeProperty"),
        (":q owl:inverseOf :p .", "ObjectProperty"),
        (":p owl:propertyDisjointWith :q .", "ObjectProperty"),
        (":p owl:propertyChainAxiom ( :q :r ) .", "ObjectProperty"),
        (":q owl:propertyChainAxiom ( :r :p ) .", "ObjectProperty"),
        (":A owl:hasKey ( :p ) . :x :p 5 .", "DatatypeProperty"),
    ],
)
def test_undeclared_property_is_what_it_is_used_as(turtle: str, kind: str) -> None:
    """Data where a range, a restriction, a value or a relative says so; else an object property."""
    assert f"p type {kind}" in lines(turtle)


@pytest.mark.parametrize(
    ("axiom", "is_class"),
    [
        (":p rdfs:domain [ owl:unionOf ( :A :B ) ] .", True),
        (":p rdfs:range [ owl:unionOf ( :A :B ) ] .", True),
        (":d rdfs:domain [ owl:onProperty :p ; owl:someValuesFrom :A ] .", True),
        (":d rdfs:range [ a rdfs:Datatype ; owl:unionOf ( xsd:integer xsd:string ) ] .", False),
    ],
)
def test_class_expression_without_a_type_is_a_class_as_a_domain_or_range(axiom: str, is_class: bool) -> None:
    """A reasoner would ignore it."""
    declared = ":p a owl:ObjectProperty . :d a owl:DatatypeProperty . "
    assert any(each.startswith("_:") and each.endswith(" type Class") for each in lines(declared + axiom)) == is_class


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ('" 5 "^^xsd:integer', '"5"^^integer'),
        ('"five"^^xsd:integer', None),
        ('"2020-02-29T00:00:00.5Z"^^xsd:dateTime', '"2020-02-29T00:00:00.5Z"^^dateTime'),
        ('"2021-02-29T00:00:00Z"^^xsd:dateTime', None),
        ('"soon"^^xsd:dateTime', None),
        ('"yes"^^xsd:boolean', None),
        ('"-INF"^^xsd:double', '"-INF"^^double'),
        ('"a b"^^xsd:anyURI', None),
        ('" a "', '" a "^^string'),
        ('"soon"^^xsd:date', '"soon"^^date'),
    ],
)
def test_values_that_are_none_are_left_out(value: str, expected: str | None) -> None:
    """HermiT would refuse the document; what it does not know anyway it ignores."""
    turtle = f":p a owl:DatatypeProperty . :x :p {value} ."
    assert lines(turtle) - {"p type DatatypeProperty"} == ({f"x p {expected}"} if expected else set())
    assert axioms(turtle).malformed == (expected is None)


def test_axioms_name_nothing_of_the_document() -> None:
    """A reasoner sees numbers: no IRI that it could fetch or misread, no letter beyond ASCII."""
    found = axioms(':größe a owl:DatatypeProperty . :漢 :größe "ü\\"\\n\\\\𐐀"@de . _:b1-x.y a :漢字 .')
    assert b"http://e/" not in found.triples
    assert found.triples.isascii()
    assert b'"\\u00FC\\"\\n\\\\\\U00010400"@de' in found.triples
    assert set(found.names) == {"http://e/größe", "http://e/漢", "http://e/漢字"}
    assert Axioms.unpacked(found.packed()) == found


def test_axioms_of_one_document_are_the_same_each_time() -> None:
    """Blank nodes have other names in every reading; numbers depend on the order only."""
    turtle = ":A owl:equivalentClass [ owl:intersectionOf ( :B [ owl:onProperty :p ; owl:someValuesFrom :C ] ) ] ."
    assert axioms(turtle) == axioms(turtle)


# ── what is known ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_known_tells_news_from_what_follows() -> None:
    """Walking upwards, over equivalences too."""
    found = Known([("a", "b"), ("c", "d")], [("b", "c")])
    assert found.above("a") == {"a", "b", "c", "d"}
    assert found.news({("a", "d"), ("d", "a"), ("c", "b"), ("x", "y")}) == {("d", "a"), ("x", "y")}


def test_known_keeps_the_most_specific_classes() -> None:
    """Of classes above each other the lowest, of equal ones the first, of those that stated ones imply none."""
    found = Known([("dog", "animal"), ("animal", "thing"), ("cat", "animal")], [("dog", "hound")])
    assert found.memberships([], {("rex", "thing"), ("rex", "hound"), ("rex", "dog"), ("rex", "cat")}) == {
        ("rex", "dog"),
        ("rex", "cat"),
    }
    assert found.memberships([("rex", "hound")], {("rex", "animal"), ("rex", "cat")}) == {("rex", "cat")}
    assert found.memberships([], {("dog", "animal")}) == set()


def test_known_walks_only_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the bound everything counts as news, in the order of the names: the same each time."""
    monkeypatch.setattr(known, "STEPS", 3)
    chain = [(f"c{n}", f"c{n + 1}") for n in range(5)]
    assert Known(chain, []).news({("c0", "c5"), ("c1", "c5"), ("c2", "c5")}) == {("c1", "c5"), ("c2", "c5")}


def test_known_compares_only_so_many_classes_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the bound superfluous ones stay."""
    monkeypatch.setattr(known, "COMPARED", 1)
    assert len(Known([("a", "b")], []).memberships([], {("x", "a"), ("x", "b")})) == 2


# ── the reasoner's words ────────────────────────────────────────────────────────────────────────────────────────────

JAVA = 'Exception in thread "main" '


@pytest.mark.parametrize(
    ("status", "said", "kind", "told"),
    [
        (1, JAVA + "org.semanticweb.owlapi.reasoner.InconsistentOntologyException: Inconsistent ontology", None, ""),
        (3, "Terminating due to java.lang.OutOfMemoryError: Java heap space", TooCostly, "64 MiB of Java heap"),
        (1, JAVA + "java.lang.StackOverflowError\n\tat x", TooCostly, "nested too deeply"),
        (1, "Error: Could not create the Java Virtual Machine.", ReasonerUnavailable, "could not be started"),
        (1, JAVA + "java.lang.IllegalArgumentException: Non-simple property 'x'\n\tat y", OntologyError, "Non-simple"),
        (134, "", OntologyError, "ended with status 134"),
    ],
)
def test_end_without_an_answer_is_explained(status: int, said: str, kind: type[Exception] | None, told: str) -> None:
    """What Java says on its standard error, as what it means for the document."""
    error = reasoning._error(status, said, 64 << 20)
    assert type(error) is (kind or InconsistentOntology)
    assert told in str(error)


def test_java_of_the_home_is_found_before_that_of_the_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """JAVA_HOME is how people choose among several."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\n", encoding="ascii")
    java.chmod(0o755)
    expected = str(java.resolve())
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert reasoning.find_java() == expected
    monkeypatch.setenv("JAVA_HOME", "/no/such/home")
    monkeypatch.setenv("PATH", str(java.parent))
    assert reasoning.find_java() == expected
    assert reasoning.find_java(str(java)) == expected
    assert Reasoner(java=str(java)).isolation(expected).programs == (expected,)
