"""`reason="rdfs"`: what follows from sub-properties, domains and ranges, and what does not."""

from pathlib import Path

import pytest

from kindcast import Vocabulary
from kindcast.semantic.errors import OntologyError
from kindcast.semantic.ontology import Limits, Ontology, loader, read

PREFIXES = """
@prefix : <http://e/> .
@prefix rdf: <http://www.w3.org/1999/02/22-rdf-syntax-ns#> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
@prefix owl: <http://www.w3.org/2002/07/owl#> .
@prefix skos: <http://www.w3.org/2004/02/skos/core#> .
@prefix xsd: <http://www.w3.org/2001/XMLSchema#> .
"""


def reasoned(turtle: str, limits: Limits | None = None) -> Ontology:
    return read((PREFIXES + turtle).encode(), format="turtle", reason="rdfs", limits=limits)


def pairs(found: object) -> set[str]:
    return {" ".join(name.removeprefix("http://e/") for name in pair) for pair in found}  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("turtle", "expected"),
    [
        (":p rdfs:domain :C . :a :p 5 .", {"a C"}),
        (":p rdfs:domain :C . :a :p :b .", {"a C"}),
        (":p rdfs:range :C . :a :p :b .", {"b C"}),
        (":p rdfs:range :C . :a :p 5 , [] .", set()),
        (":p rdfs:range xsd:integer . :a :p :b .", set()),
        (":q rdfs:domain :C . :p rdfs:subPropertyOf :q . :a :p 5 .", {"a C"}),
        (":r rdfs:range :C . :q rdfs:subPropertyOf :r . :p rdfs:subPropertyOf :q . :a :p :b .", {"b C"}),
        (":p rdfs:domain :C . :q rdfs:subPropertyOf :p . :p owl:equivalentProperty :s . :a :s 5 .", {"a C"}),
        (":p rdfs:domain :C . :p rdfs:subPropertyOf :q . :a :q 5 .", set()),
        (":p rdfs:domain :C , :D . :a :p 5 .", {"a C", "a D"}),
        (":p rdfs:domain :C . :q rdfs:range :D . :a :p :b . :c :q :b .", {"a C", "b D"}),
        (":p rdfs:domain [ owl:unionOf ( :C :D ) ] . :a :p 5 .", set()),
    ],
)
def test_use_of_a_property_tells_the_class_of_what_it_joins(turtle: str, expected: set[str]) -> None:
    """Domain and range, of the property and of all above it; a value that is text has no class."""
    ontology = reasoned(turtle)
    assert pairs(ontology.types) == expected
    assert pairs(ontology.inferred) == expected


def test_types_that_stated_ones_imply_are_no_news() -> None:
    """A class above the stated one, or above another entailed one, is reached anyway."""
    ontology = reasoned(
        """:Dog rdfs:subClassOf :Animal . :Animal rdfs:subClassOf :Thing . :rex a :Dog ; :eats :bone .
        :eats rdfs:domain :Animal , :Thing ; rdfs:range :Food . :Bone rdfs:subClassOf :Food . :chews rdfs:range :Bone .
        :rex :chews :bone ."""
    )
    assert pairs(ontology.types) == {"rex Dog", "bone Bone"}
    assert pairs(ontology.inferred) == {"bone Bone"}


def test_properties_beneath_a_word_of_the_hierarchy_make_pairs() -> None:
    """ISO 25964 and others refine skos:broader; what is beneath rdf:type or rdfs:label counts as well."""
    ontology = reasoned(
        """:broaderGeneric rdfs:subPropertyOf skos:broader . :A :broaderGeneric :B . :B skos:narrower :C .
        :species rdfs:subPropertyOf rdf:type . :rex :species :Dog .
        :common rdfs:subPropertyOf skos:altLabel . :A :common "ay" .
        :sameThing rdfs:subPropertyOf owl:sameAs . :A :sameThing :A2 ."""
    )
    assert pairs(ontology.edges) == {"A B", "C B"}
    assert pairs(ontology.types) == {"rex Dog"}
    assert pairs(ontology.equivalences) == {"A A2"}
    assert pairs(ontology.inferred) == {"A B", "rex Dog", "A A2"}
    assert next(each for each in ontology.concepts if each.iri == "http://e/A").synonyms == (("ay", None),)


def test_labels_stay_what_they_are_when_skos_itself_is_loaded() -> None:
    """SKOS puts hidden labels beneath rdfs:label; a hidden label must not become one that resolves."""
    ontology = reasoned(
        """skos:hiddenLabel rdfs:subPropertyOf rdfs:label . skos:altLabel rdfs:subPropertyOf rdfs:label .
        :slip rdfs:subPropertyOf skos:hiddenLabel .
        :A a skos:Concept ; skos:prefLabel "laptop" ; skos:hiddenLabel "labtop" ; skos:altLabel "notebook" ;
            :slip "lapdop" ."""
    )
    found = ontology.concepts[0]
    assert (found.preferred, found.synonyms) == ((("laptop", None),), (("notebook", None),))
    assert found.hidden == (("labtop", None), ("lapdop", None))


def test_schema_that_follows_from_the_schema_counts() -> None:
    """A property beneath rdfs:domain is a way to state domains; it takes one more reading."""
    ontology = reasoned(":usedBy rdfs:subPropertyOf rdfs:domain . :p :usedBy :C . :a :p 5 .")
    assert pairs(ontology.types) == {"a C"}


def test_schema_without_end_is_refused() -> None:
    """Each link of such a chain costs a reading of the document."""
    links = "rdfs:subPropertyOf" + "".join(f" . :p{n + 1} :p{n} :p{n - 1}" for n in range(1, 12))
    with pytest.raises(OntologyError, match="deeper than 8 levels"):
        reasoned(f":p0 rdfs:subPropertyOf rdfs:subPropertyOf . :p1 :p0 {links} .")


def test_circle_of_properties_ends() -> None:
    """Properties beneath each other are the same."""
    ontology = reasoned(":p rdfs:subPropertyOf :q . :q rdfs:subPropertyOf :p ; rdfs:domain :C . :a :p 5 .")
    assert pairs(ontology.types) == {"a C"}


def test_entailed_triples_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred domains for a hundred uses are ten thousand types: a document can grow by its square."""
    domains = " , ".join(f":C{n}" for n in range(100))
    document = f":p rdfs:domain {domains} . " + " ".join(f":a{n} :p {n} ." for n in range(100))
    assert len(reasoned(document).types) == 10_000
    monkeypatch.setattr(loader, "ENTAILED", 9_999)
    with pytest.raises(OntologyError, match="more than 9,999 triples follow"):
        reasoned(document)


def test_document_without_a_schema_is_as_without_reasoning() -> None:
    """Nothing but the level is another; triples are counted as stated in either case."""
    turtle = PREFIXES + ':A rdfs:subClassOf :B ; rdfs:label "a" . :a a :A .'
    plain, ontology = read(turtle.encode()), reasoned(":A rdfs:subClassOf :B ; rdfs:label 'a' . :a a :A .")
    assert (ontology.concepts, ontology.edges, ontology.types) == (plain.concepts, plain.edges, plain.types)
    assert (ontology.reason, plain.reason, ontology.inferred) == ("rdfs", "none", frozenset())
    assert reasoned(":p rdfs:domain :C . :a :p 5 .").triples == 2


def test_report_says_what_was_added() -> None:
    """The level, how many pairs, and some of them."""
    turtle = (PREFIXES + ":p rdfs:domain :C . :a :p 5 .").encode()
    plain = Vocabulary.from_bytes(turtle, format="turtle")
    found = Vocabulary.from_bytes(turtle, format="turtle", reason="rdfs")
    assert (plain.report["reason"], plain.report["inferred"]) == ("none", 0)
    assert (found.report["reason"], found.report["inferred"]) == ("rdfs", 1)
    assert found.report["inferred_examples"] == [["http://e/a", "http://e/C"]]
    assert found.report["unsatisfiable"] == []
    assert found.version != plain.version


def test_files_are_reasoned_about_one_by_one(tmp_path: Path) -> None:
    """What one file says of a property, and another one of an individual, does not meet; their hierarchies do."""
    schema, data = tmp_path / "schema.ttl", tmp_path / "data.ttl"
    schema.write_text(PREFIXES + ":p rdfs:domain :C . :C rdfs:subClassOf :D . :a :p 5 .", encoding="utf-8")
    data.write_text(PREFIXES + ":b :p 5 ; a :E .", encoding="utf-8")
    words = Vocabulary.from_files(schema, data, reason="rdfs")
    assert pairs(words.ontologies[0].inferred) == {"a C"}
    assert words.ontologies[1].inferred == frozenset()
    assert words.report["reason"] == "rdfs"


def test_individual_is_found_through_what_its_properties_say() -> None:
    """What reasoning adds is used as if it had been stated."""
    turtle = (
        PREFIXES + ":Sensor rdfs:subClassOf :Device . :measures rdfs:domain :Sensor . :x :measures :heat ."
    ).encode()
    words = Vocabulary.from_bytes(turtle, format="turtle", reason="rdfs")
    x, device = words.concept("http://e/x"), words.concept("http://e/Device")
    assert x is not None
    assert device is not None
    assert words.isa(x, device)
