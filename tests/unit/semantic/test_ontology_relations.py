"""Which statements of a document are edges of a relation that was asked for, and by which names it can be asked for."""

import pytest

from kindcast.semantic.errors import OntologyError, UnknownRelation
from kindcast.semantic.ontology import Limits, RelationRecord, read
from kindcast.semantic.ontology.loader import read_isolated
from kindcast.semantic.ontology.records import decode, encode

HEAD = """@prefix : <http://e/> . @prefix owl: <http://www.w3.org/2002/07/owl#> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> . @prefix skos: <http://www.w3.org/2004/02/skos/core#> .
:R a owl:ObjectProperty ; rdfs:label "leads to"@en . :S a owl:ObjectProperty ; owl:inverseOf :R .
:low a owl:ObjectProperty ; rdfs:subPropertyOf :R . :lowest rdfs:subPropertyOf :low . :under rdfs:subPropertyOf :S .
:same owl:equivalentProperty :R . :T a owl:TransitiveProperty . :U a owl:ObjectProperty , owl:SymmetricProperty .
:A a owl:Class . :B a owl:Class . :C a owl:Class . :D a owl:Class .
"""
SOME = "[ a owl:Restriction ; owl:onProperty :{} ; owl:someValuesFrom {} ]"


def relation(statements: str, asked: str = "R") -> RelationRecord:
    [found] = read((HEAD + statements).encode(), format="turtle", relations=[asked]).relations
    return found


def edges(statements: str, asked: str = "R") -> set[str]:
    """The edges, written short: `A B`."""
    return {" ".join(name.removeprefix("http://e/") for name in edge) for edge in relation(statements, asked).edges}


def some(relation: str, filler: str) -> str:
    return SOME.format(relation, filler)


@pytest.mark.parametrize(
    ("statements", "expected"),
    [
        (":A :R :B .", {"A B"}),
        (f":A rdfs:subClassOf {some('R', ':B')} .", {"A B"}),
        (f":A owl:equivalentClass {some('R', ':B')} .", {"A B"}),
        (f":A owl:equivalentClass [ owl:intersectionOf ( :C {some('R', ':B')} ) ] .", {"A B"}),
        (f":A rdfs:subClassOf [ owl:intersectionOf ( :C [ owl:intersectionOf ( {some('R', ':B')} ) ] ) ] .", {"A B"}),
        (f":A rdfs:subClassOf {some('R', '[ owl:intersectionOf ( :B :C ) ]')} .", {"A B", "A C"}),
        (f":A rdfs:subClassOf {some('R', some('R', ':B'))} .", {"A B"}),
        (f":A rdfs:subClassOf {some('R', some('T', ':B'))} .", set()),
        (f":A rdfs:subClassOf {some('T', some('R', ':B'))} .", set()),
        (":A rdfs:subClassOf [ a owl:Restriction ; owl:onProperty :R ; owl:hasValue :b ] .", {"A b"}),
        (f":a a {some('R', ':B')} .", {"a B"}),
        (":a :R :b .", {"a b"}),
        (":A :low :B . :B :lowest :C . :C :same :D .", {"A B", "B C", "C D"}),
        (":A :S :B .", {"B A"}),
        (":A :under :B .", {"B A"}),
        (f":A rdfs:subClassOf {some('S', ':B')} .", set()),
        (f":A rdfs:subClassOf {some('[ owl:inverseOf :S ]', ':B').replace(':[', '[')} .", {"A B"}),
        (":A rdfs:subClassOf [ a owl:Restriction ; owl:onProperty :R ; owl:allValuesFrom :B ] .", set()),
        (f":A rdfs:subClassOf [ owl:unionOf ( {some('R', ':B')} :C ) ] .", set()),
        (f"[ owl:intersectionOf ( :C {some('R', ':B')} ) ] rdfs:subClassOf :A .", set()),
        (f":A owl:disjointWith {some('R', ':B')} .", set()),
        (f"[ owl:unionOf ( :A :D ) ] rdfs:subClassOf {some('R', ':B')} .", {"A B", "D B"}),
        (':A :R "B" . :A :R [] . [] :R :B . :A :R :T .', set()),
        (":A :R :A .", {"A A"}),
        (":A :T :B .", set()),
    ],
)  # fmt: skip
def test_statements_are_the_edges_that_they_mean(statements: str, expected: set[str]) -> None:
    """Triples, restrictions, sub-properties and inverses of triples; never what only looks alike."""
    assert edges(statements) == expected


def test_symmetric_relation_counts_in_both_directions() -> None:
    """Where a triple states it."""
    assert edges(":A :U :B .", "U") == {"A B", "B A"}


def test_record_tells_stated_edges_from_derived_ones() -> None:
    """Only what triples state may be read backwards by another document; what a document says of properties is kept."""
    found = relation(f":A rdfs:subClassOf {some('R', ':B')} . :C :R :D . :A :low :D .")
    assert found.derived == {("http://e/A", "http://e/B")}
    assert found.labels == (("leads to", "en"),)
    assert found.narrower == ("http://e/low", "http://e/lowest", "http://e/same")
    assert found.inverses == ("http://e/S", "http://e/under")


@pytest.mark.parametrize("asked", ["http://e/R", "x:R", "R", "leads to", "Leads_To"])
def test_relation_is_asked_for_by_iri_curie_local_name_or_label(asked: str) -> None:
    """By levels, as terms are."""
    assert relation("@prefix x: <http://e/> . :A :R :B .", asked).iri == "http://e/R"


def test_obo_relation_is_asked_for_by_its_shorthand() -> None:
    """`part_of` stands for BFO:0000050, and is found by either, and by its label."""
    document = b"""format-version: 1.4
ontology: x

[Term]
id: X:1
relationship: part_of X:2

[Term]
id: X:2

[Typedef]
id: part_of
name: is part of
xref: BFO:0000050
"""
    for asked in ("part_of", "BFO:0000050", "BFO_0000050", "is part of"):
        [found] = read(document, format="obo", relations=[asked]).relations
        assert found.iri == "http://purl.obolibrary.org/obo/BFO_0000050"
        assert found.edges == (("http://purl.obolibrary.org/obo/X_1", "http://purl.obolibrary.org/obo/X_2"),)


def test_transitive_asks_for_every_transitive_property() -> None:
    """And no other."""
    document = (HEAD + ":V a owl:TransitiveProperty . :A :T :B , :C .").encode()
    found = read(document, format="turtle", relations=["transitive"]).relations
    assert [(each.iri, len(each.edges)) for each in found] == [("http://e/T", 2), ("http://e/V", 0)]


def test_thesaurus_may_be_asked_for_its_related_concepts() -> None:
    """skos:related is not a word for is-a, and leads from concept to concept."""
    assert edges(":A skos:related :B .", "skos:related") == {"A B"}


@pytest.mark.parametrize("asked", ["rdfs:subClassOf", "rdf:type", "owl:sameAs", "skos:broader", "rdfs:label", "A"])
def test_words_that_mean_something_else_are_no_relations(asked: str) -> None:
    """What the hierarchy is made of is followed by `isa`; a concept is no relation."""
    with pytest.raises(UnknownRelation):
        relation(":A :R :B .", asked)


def test_unknown_relation_is_refused_with_what_there_is() -> None:
    """All that are missing at once; the most used ones first."""
    with pytest.raises(UnknownRelation) as raised:
        read((HEAD + ":A :R :B , :C . :A :T :B .").encode(), format="turtle", relations=["R", "leads_two", "X"])
    assert raised.value.missing == ("leads_two", "X")
    assert "with the name 'leads_two', 'X'; near: leads to" in str(raised.value)
    assert "R (leads to: 2), T (1)" in str(raised.value)


def test_ambiguous_relation_is_refused_with_the_candidates() -> None:
    """A local name that two properties have decides nothing."""
    with pytest.raises(UnknownRelation, match="may mean several relations: write one of http://e/R, http://other/R"):
        relation(":A <http://other/R> :B .")


def test_edges_beyond_the_limit_are_refused() -> None:
    """As pairs of the hierarchy are."""
    statements = " ".join(f":A :R :B{number} ." for number in range(20))
    with pytest.raises(OntologyError, match="more than 10 edges"):
        read((HEAD + statements).encode(), format="turtle", relations=["R"], limits=Limits(edges=10))


def test_document_read_without_relations_keeps_none() -> None:
    """Nor does it know more concepts for them."""
    document = (HEAD + ":A :R :b .").encode()
    plain, related = read(document, format="turtle"), read(document, format="turtle", relations=["R"])
    assert plain.relations == ()
    assert {each.iri for each in related.concepts} - {each.iri for each in plain.concepts} == {"http://e/b"}
    assert related.edges == plain.edges


def test_relations_survive_isolation_and_storage() -> None:
    """The child reads the same; encoded records are the same records; errors come back as themselves."""
    document = (HEAD + f":A rdfs:subClassOf {some('R', ':B')} . :C :R :D .").encode()
    related = read(document, format="turtle", relations=["R"])
    assert read_isolated(document, format="turtle", relations=["R"]) == related == decode(encode(related))
    with pytest.raises(UnknownRelation, match="no relation with the name 'Q'"):
        read_isolated(document, format="turtle", relations=["Q"])


def test_document_with_an_odd_iri_keeps_its_relations() -> None:
    """Read a second time, leniently, it is surveyed afresh."""
    assert edges(f":A rdfs:subClassOf {some('R', ':B')} . :C :R :D . <http://e/a b> :R :D .") == {"A B", "C D"}


def test_relation_with_reasoning_has_the_same_edges() -> None:
    """What RDFS entails of properties counts anyway."""
    document = (HEAD + ":A :low :B . :low rdfs:domain :C .").encode()
    [plain] = read(document, format="turtle", relations=["R"]).relations
    [reasoned] = read(document, format="turtle", relations=["R"], reason="rdfs").relations
    assert plain == reasoned
