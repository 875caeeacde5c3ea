"""What counts as a concept, as a name, as beneath: one small document for each rule of docs/ontologies.md."""

import pytest

from kindcast.semantic.ontology import ConceptRecord, Ontology, read

PREFIXES = """
@prefix : <http://e/> .
@prefix rdf: <http://www.w3.org/1999/02/22-rdf-syntax-ns#> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
@prefix owl: <http://www.w3.org/2002/07/owl#> .
@prefix skos: <http://www.w3.org/2004/02/skos/core#> .
@prefix skosxl: <http://www.w3.org/2008/05/skos-xl#> .
@prefix dcterms: <http://purl.org/dc/terms/> .
@prefix xsd: <http://www.w3.org/2001/XMLSchema#> .
@prefix sh: <http://www.w3.org/ns/shacl#> .
@prefix obo: <http://purl.obolibrary.org/obo/> .
@prefix oio: <http://www.geneontology.org/formats/oboInOwl#> .
@prefix brick: <https://brickschema.org/schema/Brick#> .
@prefix qudt: <http://qudt.org/schema/qudt/> .
"""


def loaded(turtle: str) -> Ontology:
    return read((PREFIXES + turtle).encode(), format="turtle")


def short(iri: str) -> str:
    return iri.removeprefix("http://e/")


def edges(turtle: str) -> set[str]:
    return {f"{short(low)} < {short(high)}" for low, high in loaded(turtle).edges}


def record(turtle: str, name: str = "A") -> ConceptRecord:
    return next(each for each in loaded(turtle).concepts if each.iri == f"http://e/{name}")


def kinds(turtle: str) -> dict[str, str]:
    return {short(each.iri): each.kind for each in loaded(turtle).concepts}


# ── what is beneath what ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("turtle", "expected"),
    [
        (":A rdfs:subClassOf :B, :C .", {"A < B", "A < C"}),
        (":A skos:broader :B .", {"A < B"}),
        (":B skos:narrower :A .", {"A < B"}),
        (":A skos:broaderTransitive :B .", {"A < B"}),
        (":B skos:narrowerTransitive :A .", {"A < B"}),
        (":A skos:broadMatch :B .", {"A < B"}),
        (":B skos:narrowMatch :A .", {"A < B"}),
        (":A skos:topConceptOf :S .", {"A < S"}),
        (":S skos:hasTopConcept :A .", {"A < S"}),
        (":A skos:inScheme :S ; skos:related :B ; rdfs:seeAlso :C .", set()),
        (":A rdfs:subClassOf :A .", set()),
        (":A rdfs:subClassOf owl:Thing, rdfs:Resource, skos:Concept . owl:Nothing rdfs:subClassOf :A .", set()),
    ],
)
def test_pairs_of_names_count_in_either_direction(turtle: str, expected: set[str]) -> None:
    """RDFS, SKOS upwards and downwards; the words of RDFS, OWL and SKOS themselves are nobody's ancestors."""
    assert edges(turtle) == expected


@pytest.mark.parametrize(
    ("turtle", "expected"),
    [
        (":A owl:equivalentClass [ owl:intersectionOf ( :B :C ) ] .", {"A < B", "A < C"}),
        (":A owl:intersectionOf ( :B :C ) .", {"A < B", "A < C"}),
        (":A rdfs:subClassOf [ owl:intersectionOf ( :B ) ] .", {"A < B"}),
        ("[] a owl:Class ; owl:intersectionOf ( :B :C ) ; owl:equivalentClass :A .", {"A < B", "A < C"}),
        (":A owl:equivalentClass [ owl:intersectionOf ( :B [ owl:intersectionOf ( :C ) ] ) ] .", {"A < B", "A < C"}),
        (
            ":A owl:equivalentClass [ owl:intersectionOf ( :B [ a owl:Restriction ; owl:onProperty :p ; "
            "owl:someValuesFrom :C ] ) ] .",
            {"A < B"},
        ),
        (":A owl:equivalentClass [ owl:unionOf ( :B :C ) ] .", {"B < A", "C < A"}),
        (":A owl:disjointUnionOf ( :B :C ) .", {"B < A", "C < A"}),
        (":A rdfs:subClassOf [ owl:unionOf ( :B :C ) ] .", set()),
        (":A owl:equivalentClass [ owl:intersectionOf ( :B [ owl:unionOf ( :C :D ) ] ) ] .", {"A < B"}),
        (":A owl:equivalentClass [ owl:unionOf ( :B [ owl:intersectionOf ( :C :D ) ] ) ] .", {"B < A"}),
        (":A owl:equivalentClass [ owl:complementOf :B ] . :C owl:disjointWith :D .", set()),
        (":A rdfs:subClassOf [ owl:onProperty :p ; owl:someValuesFrom :B ] .", set()),
        ("[ owl:unionOf ( :B :C ) ] rdfs:subClassOf :A .", {"B < A", "C < A"}),
        ("[ owl:intersectionOf ( :B :C ) ] rdfs:subClassOf :A .", set()),
        (":A owl:equivalentClass [ owl:intersectionOf ( owl:Thing :B ) ] .", {"A < B"}),
    ],
)
def test_class_expressions_give_what_every_reasoner_would(turtle: str, expected: set[str]) -> None:
    """Conjuncts are above what they define, members of a union beneath it; nothing that does not follow."""
    assert edges(turtle) == expected


@pytest.mark.parametrize(
    ("turtle", "expected"),
    [
        (":a a [ owl:intersectionOf ( :B :C ) ] .", {"a B", "a C"}),
        (":a a [ owl:intersectionOf ( :B [ owl:intersectionOf ( :C [ owl:complementOf :D ] ) ] ) ] .", {"a B", "a C"}),
        (":a a [ owl:unionOf ( :B :C ) ] .", set()),
        (":a a [ a owl:Restriction ; owl:onProperty :p ; owl:hasValue :b ] .", set()),
        (":a a [ owl:intersectionOf ( :B ) ] , :C .", {"a B", "a C"}),
        (":A owl:equivalentClass [ owl:oneOf ( :a :b ) ] .", {"a A", "b A"}),
        (":A owl:oneOf ( :a ) .", {"a A"}),
        ("[ owl:oneOf ( :a ) ] rdfs:subClassOf :A .", {"a A"}),
        (":A owl:equivalentClass [ owl:unionOf ( :B [ owl:oneOf ( :a ) ] ) ] .", {"a A"}),
        (":A rdfs:subClassOf [ owl:oneOf ( :a ) ] .", set()),
        (":A owl:equivalentClass [ owl:intersectionOf ( :B [ owl:oneOf ( :a ) ] ) ] .", set()),
        (":A owl:equivalentClass [ owl:oneOf ( 'a' 5 _:x owl:Thing ) ] .", set()),
        ("_:x a [ owl:intersectionOf ( :B :C ) ] .", set()),
        (":p a owl:ObjectProperty , [ owl:intersectionOf ( :B :C ) ] .", set()),
    ],
)
def test_class_expressions_tell_the_classes_of_individuals(turtle: str, expected: set[str]) -> None:
    """What is in both is in each; what a class lists is in it. What is in one of several is in nobody knows which."""
    assert {f"{short(one)} {short(each)}" for one, each in loaded(turtle).types} == expected


def test_derived_pairs_are_told_from_stated_ones() -> None:
    """A pair that a triple states is stated, even when it follows as well; a top concept's is derived."""
    ontology = loaded(
        ":A rdfs:subClassOf :B ; owl:equivalentClass [ owl:intersectionOf ( :B :C ) ] ; skos:topConceptOf :S ."
    )
    assert {short(high) for _, high in ontology.derived} == {"C", "S"}
    assert len(ontology.edges) == 3


# ── what is a concept ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("turtle", "expected"),
    [
        (":A a owl:Class . :B a rdfs:Class . :C a skos:Concept .", {"A": "class", "B": "class", "C": "concept"}),
        (":A skos:broader :B .", {"A": "concept", "B": "concept"}),
        (":a a :B .", {"a": "individual", "B": "class"}),
        (":a a :B, owl:NamedIndividual ; skos:broader :c .", {"a": "concept", "B": "class", "c": "concept"}),
        (":S a skos:ConceptScheme .", {}),
        (":S a skos:ConceptScheme ; skos:hasTopConcept :A .", {"S": "scheme", "A": "concept"}),
        (":G a skos:Collection ; skos:member :A . :A a skos:Concept .", {"A": "concept"}),
        (":G a skos:Collection, :Group .", {}),
        (":s a sh:NodeShape ; sh:property [ sh:path :p ] .", {}),
        (":s a sh:NodeShape, owl:Class .", {"s": "class"}),
        ("[] a owl:Restriction ; owl:onProperty :p . [] a owl:Class .", {}),
        (":p a owl:ObjectProperty, :KindOfProperty .", {}),
        (":n a owl:AnnotationProperty, :KindOfNote .", {}),
        ("<http://e/> a owl:Ontology, :Vocabulary .", {}),
        (":d a rdfs:Datatype .", {}),
        (":x rdfs:label 'only a label' .", {}),
        (":A a owl:DeprecatedClass .", {"A": "class"}),
    ],
)
def test_concepts_are_classes_skos_concepts_and_individuals(turtle: str, expected: dict[str, str]) -> None:
    """Restrictions, shapes, properties, collections, annotations and the ontology itself are no concepts."""
    assert kinds(turtle) == expected


def test_types_pair_an_individual_with_every_class_of_the_document() -> None:
    """Words of OWL, RDFS, SKOS and SHACL are types, and no classes to subscribe to."""
    ontology = loaded(":a a :B, :C, owl:NamedIndividual, skos:Concept, sh:NodeShape . [] a :D .")
    assert ontology.types == (("http://e/a", "http://e/B"), ("http://e/a", "http://e/C"))


def test_statements_with_objects_of_the_wrong_kind_are_ignored() -> None:
    """Texts where names belong and names where texts belong: sloppy documents have both."""
    ontology = loaded(
        """:A a owl:Class, "x" ; rdfs:subClassOf "B" ; skos:narrower 5 ; owl:equivalentClass "C" ;
        skos:topConceptOf [] ;
        rdfs:label :D ; skos:definition :E ; owl:deprecated :F ; skosxl:prefLabel "G" ; dcterms:isReplacedBy [] .
        :p a rdf:Property ; rdfs:range "x" ; rdfs:subPropertyOf "y" ; qudt:unit [] . <http://e/> owl:imports [] ."""
    )
    assert [(each.iri, each.preferred, each.deprecated) for each in ontology.concepts] == [("http://e/A", (), False)]
    assert (ontology.edges, ontology.equivalences, ontology.imports) == ((), (), ())
    assert [(each.ranges, each.parents, each.units) for each in ontology.properties] == [((), (), ())]


def test_names_that_are_merely_referred_to_are_concepts_and_warned_about() -> None:
    """Something is beneath them, so they can be subscribed to; that nobody declares them may be a slip of the pen."""
    ontology = loaded(
        ":A a owl:Class ; rdfs:subClassOf :Missing . :b a :Gone . :C skos:broader :Named . :Named rdfs:label 'x' ."
    )
    assert [short(each.iri) for each in ontology.concepts if not each.declared] == ["Gone", "Missing"]
    assert any("http://e/Gone, http://e/Missing" in text for text in ontology.warnings)


@pytest.mark.parametrize(
    ("turtle", "expected"),
    [
        (":A owl:equivalentClass :B .", {("A", "B")}),
        (":B owl:sameAs :A .", {("A", "B")}),
        (":A skos:exactMatch :B .", set()),
        (":A a rdfs:Class, rdf:Property ; owl:equivalentClass :B .", {("A", "B")}),
        (":A a owl:Class, rdf:Property ; owl:sameAs :B . :B a rdf:Property, rdfs:Class .", {("A", "B")}),
        (":A skos:closeMatch :B ; rdfs:seeAlso :C .", set()),
        (":A owl:equivalentClass :A, owl:Thing, [ owl:unionOf ( :C ) ] .", set()),
        (":p owl:equivalentProperty :q . :p a owl:ObjectProperty ; owl:sameAs :q . :q a owl:ObjectProperty .", set()),
    ],
)
def test_equivalences_of_names_are_pairs(turtle: str, expected: set[tuple[str, str]]) -> None:
    """Equivalent classes, the same individuals; close ones are not the same, and exact matches are kept apart."""
    assert {(short(one), short(other)) for one, other in loaded(turtle).equivalences} == expected


def test_exact_matches_are_pairs_and_schemes_are_kept() -> None:
    """Each pair once, whichever way it is stated; of concepts, and of names that are only said to be in a scheme."""
    ontology = loaded(
        ":A a skos:Concept ; skos:inScheme :T, :S, [] , 'x' ; skos:exactMatch :B, :A, [] . :B skos:exactMatch :A ."
        ":C a skos:Concept ; skos:inScheme :S . :D skos:inScheme :S ."
    )
    assert ontology.matches == (("http://e/A", "http://e/B"),)
    schemes = {short(each.iri): tuple(map(short, each.schemes)) for each in (*ontology.concepts, *ontology.remarks)}
    assert schemes == {"A": ("S", "T"), "C": ("S",), "D": ("S",)}


# ── what it is called ───────────────────────────────────────────────────────────────────────────────────────────────


def test_labels_are_sorted_into_preferred_exact_and_loose() -> None:
    """Only what means the same resolves; broad, narrow, related and hidden labels are hints."""
    found = record(
        """:A a owl:Class ; rdfs:label "laptop"@en ; skos:prefLabel "Laptop"@en-GB , "laptop"@en ;
        skos:altLabel "notebook"@en ; oio:hasExactSynonym "portable" ; oio:hasRelatedSynonym "tablet" ;
        oio:hasBroadSynonym "device" ; oio:hasNarrowSynonym "netbook" ; skos:hiddenLabel "labtop"@en ."""
    )
    assert found.preferred == (("laptop", "en"), ("Laptop", "en-gb"))
    assert found.synonyms == (("portable", None), ("notebook", "en"))
    assert {text for text, _ in found.hidden} == {"tablet", "device", "netbook", "labtop"}


def test_labels_of_skos_xl_count_like_plain_ones() -> None:
    """Large thesauri give every label a resource of its own."""
    found = record(
        """:A a skos:Concept ; skosxl:prefLabel [ skosxl:literalForm "laptop"@en ] ;
        skosxl:altLabel :l2 ; skosxl:hiddenLabel [ skosxl:literalForm "labtop" ] .
        :l2 a skosxl:Label ; skosxl:literalForm "notebook"@en ."""
    )
    assert (found.preferred, found.synonyms, found.hidden) == (
        (("laptop", "en"),),
        (("notebook", "en"),),
        (("labtop", None),),
    )


def test_label_that_is_preferred_and_alternative_is_preferred() -> None:
    """Said twice, the stronger word counts."""
    assert record(':A a skos:Concept ; skos:prefLabel "x"@en ; skos:altLabel "x"@en .').synonyms == ()


def test_scheme_is_called_by_its_title() -> None:
    """Concept schemes seldom have a label."""
    assert record(':A dcterms:title "Things"@en ; skos:hasTopConcept :B .').preferred == (("Things", "en"),)


def test_definition_is_the_most_definite_text() -> None:
    """A definition before a description before a comment; English before others."""
    assert (
        record(
            ':A a owl:Class ; rdfs:comment "c" ; dcterms:description "d" ; skos:definition "x"@de, "y"@en .'
        ).definition
        == "y"
    )
    assert record(':A a owl:Class ; rdfs:comment "c"@en ; obo:IAO_0000115 "o" .').definition == "o"
    assert record(":A a owl:Class .").definition is None


def test_languages_count_labels_of_concepts() -> None:
    """Tags in lower case, labels without one under the empty word; labels of properties do not count."""
    ontology = loaded(
        ':A a owl:Class ; rdfs:label "a"@en-GB, "b"@de, "c" ; skos:altLabel "d"@de . '
        ':p a rdf:Property ; rdfs:label "p"@fr .'
    )
    assert ontology.languages == (("", 1), ("de", 2), ("en-gb", 1))


# ── life and death ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("value", ["true", '"true"', '"1"', '"True"^^xsd:boolean'])
@pytest.mark.parametrize("predicate", ["dcterms:isReplacedBy", "brick:isReplacedBy", "obo:IAO_0100001"])
def test_deprecated_concept_names_its_replacement(value: str, predicate: str) -> None:
    """However the truth is written, and whoever's word for replacement it is; OBO writes a CURIE as text."""
    found = record(f':A a owl:Class ; owl:deprecated {value} ; {predicate} :B, "CL:0000084" .')
    assert (found.deprecated, found.replaced_by) == (True, ("CL:0000084", "http://e/B"))


def test_deprecated_name_of_which_only_the_replacement_is_told_is_kept() -> None:
    """Brick drops the class and leaves a forwarding address: events may still carry the old name."""
    assert kinds(":A owl:deprecated true ; brick:isReplacedBy :B . :B a owl:Class .") == {"A": "retired", "B": "class"}
    assert kinds(":A owl:deprecated false . :p a rdf:Property ; owl:deprecated true ; dcterms:isReplacedBy :q .") == {}


def test_deprecated_without_replacement_is_warned_about() -> None:
    """Events that carry it mean the old concept still."""
    ontology = loaded(":A a owl:Class ; owl:deprecated true .")
    assert any("without a replacement: http://e/A" in text for text in ontology.warnings)


# ── attributes and the document ─────────────────────────────────────────────────────────────────────────────────────


def test_properties_have_labels_parents_ranges_and_units() -> None:
    """Object, datatype and plain properties are attributes; annotation properties describe the document's own terms."""
    ontology = loaded(
        """:price a owl:DatatypeProperty ; rdfs:label "Preis"@de ; skos:altLabel "cost"@en ; rdfs:range xsd:decimal ;
        rdfs:subPropertyOf :amount ; qudt:hasUnit :EUR . :amount a rdf:Property . :cost owl:equivalentProperty :price .
        :cost a rdf:Property . :note a owl:AnnotationProperty . :implied rdfs:subPropertyOf :price .
        :ranged rdfs:range :A . :used rdfs:domain :A , :B , [ owl:unionOf ( :C :D ) ] .
        :note rdfs:domain :A ; rdfs:range xsd:string ."""
    )
    found = {short(each.iri): each for each in ontology.properties}
    assert set(found) == {"price", "amount", "cost", "implied", "ranged", "used"}
    assert (found["used"].domains, found["price"].domains) == (("http://e/A", "http://e/B"), ())
    assert found["price"].labels == (("Preis", "de"), ("cost", "en"))
    assert found["price"].parents == ("http://e/amount", "http://e/cost")
    assert found["price"].ranges == ("http://www.w3.org/2001/XMLSchema#decimal",)
    assert found["price"].units == ("http://e/EUR",)
    assert found["cost"].parents == ("http://e/price",)


def test_prefixes_are_kept_in_every_syntax() -> None:
    """CURIEs in subscriptions mean what they mean in the document."""
    xml = (
        b'<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns="http://e/">'
        b'<rdf:Description xmlns:f="http://f/" rdf:about="http://e/a"/></rdf:RDF>'
    )
    assert dict(loaded(":A a owl:Class .").prefixes)["brick"] == "https://brickschema.org/schema/Brick#"
    assert dict(read(xml, format="rdf-xml").prefixes) == {
        "": "http://e/",
        "f": "http://f/",
        "rdf": "http://www.w3.org/1999/02/22-rdf-syntax-ns#",
    }
    assert dict(read(b'{"@context": {"e": "http://e/"}, "@id": "e:a"}').prefixes) == {"e": "http://e/"}


def test_graphs_of_a_dataset_are_pooled() -> None:
    """TriG and N-Quads are read as one graph."""
    ontology = read((PREFIXES + ":g { :A rdfs:subClassOf :B } :h { :B rdfs:subClassOf :C }").encode(), format="trig")
    assert len(ontology.edges) == 2
