"""One meaning, many syntaxes: random ontologies of OWL written in all of them, and random OBO files and their twins.

The syntaxes of OWL are written by py-horned-owl, those of RDF by rdflib; the twin of an OBO file is made here, from the
rules of OBO's mapping to OWL.
"""

from dataclasses import dataclass, field, replace

import pyhornedowl
from hypothesis import given
from hypothesis import strategies as st
from pyhornedowl import model
from rdflib import RDF, RDFS, BNode, Graph, Literal, URIRef
from rdflib.collection import Collection
from rdflib.namespace import OWL

from kindcast.index.clause import ConceptId
from kindcast.semantic.ontology import Ontology, read
from kindcast.semantic.vocabulary.vocabulary import Vocabulary

OBO = "http://purl.obolibrary.org/obo/"
OIO = "http://www.geneontology.org/formats/oboInOwl#"
IAO = OBO + "IAO_"


def meaning(ontology: Ontology) -> Ontology:
    """All of a document but its bytes, the prefixes of its syntax, and what the syntax itself is warned about."""
    return replace(ontology, sha256="", format="", prefixes=(), triples=0)


def numbered(ontology: Ontology) -> list[tuple[str, ...]]:
    """The names of every concept of the vocabulary, in its order."""
    vocabulary = Vocabulary.from_ontologies([ontology])
    return [vocabulary.iris(ConceptId(each)) for each in range(len(vocabulary))]


# ── OWL ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

texts = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Co", "Cn"]), min_size=1, max_size=12)
classes = st.integers(0, 6).map(lambda number: model.Class(model.IRI.parse(f"http://e.org/C{number}")))
relations = st.integers(0, 2).map(lambda number: model.ObjectProperty(model.IRI.parse(f"http://e.org/p{number}")))
things = st.integers(0, 2).map(lambda number: model.NamedIndividual(model.IRI.parse(f"http://e.org/i{number}")))


def _larger(inner: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    several = st.lists(inner, min_size=2, max_size=3, unique_by=repr)
    return st.one_of(
        st.builds(model.ObjectIntersectionOf, several),
        st.builds(model.ObjectUnionOf, several),
        st.builds(model.ObjectComplementOf, inner),
        st.builds(model.ObjectSomeValuesFrom, relations, inner),
        st.builds(model.ObjectAllValuesFrom, relations, inner),
        st.builds(model.ObjectHasValue, relations, things),
        st.builds(model.ObjectMinCardinality, st.integers(0, 3), relations, inner),
        st.builds(model.ObjectOneOf, st.lists(things, min_size=1, max_size=2, unique_by=repr)),
    )


expressions = st.recursive(classes, _larger, max_leaves=4)


def annotation(name: str, text: str, language: str | None) -> model.Annotation:
    literal = model.LanguageLiteral(text, language) if language else model.SimpleLiteral(text)
    return model.Annotation(model.AnnotationProperty(model.IRI.parse(name)), literal)


axioms = st.one_of(
    st.builds(model.DeclareClass, classes),
    st.builds(model.SubClassOf, classes, expressions),
    st.builds(model.SubClassOf, expressions, classes),
    st.builds(lambda one, other: model.EquivalentClasses([one, other]), classes, expressions),
    st.builds(model.DisjointUnion, classes, st.lists(classes, min_size=2, max_size=2, unique_by=repr)),
    st.builds(model.ClassAssertion, classes, things),
    st.builds(model.ObjectPropertyAssertion, relations, things, things),
    st.builds(model.SubObjectPropertyOf, relations, relations),
    st.builds(model.ObjectPropertyRange, relations, classes),
    st.builds(lambda one, other: model.SameIndividual([one, other]), things, things),
    st.builds(
        lambda name, predicate, text, language: model.AnnotationAssertion(
            name.first, annotation(predicate, text, language)
        ),
        classes,
        st.sampled_from([str(RDFS.label), OIO + "hasExactSynonym", OIO + "hasBroadSynonym", IAO + "0000115"]),
        texts,
        st.sampled_from([None, "en", "de-AT"]),
    ),
)


@given(st.lists(axioms, max_size=12))
def test_ontology_of_owl_is_the_same_in_every_syntax(found: list[model.Component]) -> None:
    """Functional syntax, OWL/XML, RDF/XML; and from that Turtle, N-Triples and JSON-LD."""
    ontology = pyhornedowl.open_ontology_from_string("Ontology(<http://e.org/o>)", "ofn")
    for each in found:
        ontology.add_component(each)
    graph = Graph().parse(data=ontology.save_to_string("rdf"), format="xml")
    written = {
        "ofn": ontology.save_to_string("ofn").encode(),
        "owx": ontology.save_to_string("owx").encode(),
        **{each: graph.serialize(format=each, encoding="utf-8") for each in ("xml", "turtle", "nt", "json-ld")},
    }
    readings = {each: read(data, format=each) for each, data in written.items()}
    for syntax, reading in readings.items():
        assert meaning(reading) == meaning(readings["turtle"]), syntax
        assert numbered(reading) == numbered(readings["turtle"]), syntax


# ── OBO ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

ids = st.integers(1, 7).map(lambda number: f"CL:{number:07}")
names = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Co", "Cn", "Zl", "Zp"]), min_size=1, max_size=10
)
labels = names.map(lambda text: " ".join(text.split())).filter(bool)


@dataclass
class Term:
    """A term of the random file."""

    id: str
    name: str | None
    is_a: list[str] = field(default_factory=list)
    relations: list[tuple[str, str]] = field(default_factory=list)
    genus: list[str] = field(default_factory=list)
    differentia: list[tuple[str, str]] = field(default_factory=list)
    parts: list[str] = field(default_factory=list)
    same: list[str] = field(default_factory=list)
    synonyms: list[tuple[str, str]] = field(default_factory=list)
    obsolete: bool = False
    replaced_by: list[str] = field(default_factory=list)
    consider: list[str] = field(default_factory=list)
    definition: str | None = None


pairs = st.tuples(st.sampled_from(["part_of", "RO:0000001"]), ids)
terms = st.builds(
    Term,
    id=ids,
    name=st.none() | labels,
    is_a=st.lists(ids, max_size=2, unique=True),
    relations=st.lists(pairs, max_size=2, unique=True),
    genus=st.lists(ids, max_size=2, unique=True),
    differentia=st.lists(pairs, max_size=2, unique=True),
    parts=st.lists(ids, max_size=2, unique=True),
    same=st.lists(ids, max_size=1),
    synonyms=st.lists(
        st.tuples(labels, st.sampled_from(["EXACT", "BROAD", "NARROW", "RELATED"])), max_size=2, unique=True
    ),
    obsolete=st.booleans(),
    replaced_by=st.lists(ids, max_size=1),
    consider=st.lists(ids, max_size=1),
    definition=st.none() | labels,
)


def escaped(text: str) -> str:
    """As a careful program writes it."""
    for character in '\\"!{}':
        text = text.replace(character, "\\" + character)
    return text


def as_obo(found: list[Term], end: str) -> bytes:
    """The file, with what real files have behind their clauses."""
    lines = ["format-version: 1.2", "ontology: cl", ""]
    for term in found:
        lines += ["[Term]", f"id: {term.id}"]
        lines += [f"name: {escaped(term.name)}"] if term.name else []
        lines += [f'def: "{escaped(term.definition)}" [PMID:1]'] if term.definition else []
        lines += [f'synonym: "{escaped(text)}" {scope} [] {{x="y"}}' for text, scope in term.synonyms]
        lines += [f"is_a: {each} ! a name" for each in term.is_a]
        if len(term.genus) + len(term.differentia) > 1:
            lines += [f"intersection_of: {each} ! a name" for each in term.genus]
            lines += [f"intersection_of: {relation} {each}" for relation, each in term.differentia]
        lines += [f"union_of: {each}" for each in term.parts] if len(term.parts) > 1 else []
        lines += [f"equivalent_to: {each}" for each in term.same]
        lines += [f'relationship: {relation} {each} {{source="a ! b"}} ! b' for relation, each in term.relations]
        lines += ["is_obsolete: true"] if term.obsolete else []
        lines += [f"replaced_by: {each}" for each in term.replaced_by] + [f"consider: {each}" for each in term.consider]
        lines.append("")
    lines += ["[Typedef]", "id: part_of", "name: part of", "xref: BFO:0000050", "is_transitive: true", ""]
    return end.join(lines).encode()


def iri(name: str) -> URIRef:
    return URIRef(OBO + {"part_of": "BFO_0000050"}.get(name, name.replace(":", "_")))


def some(graph: Graph, relation: str, filler: str) -> BNode:
    node = BNode()
    graph.add((node, RDF.type, OWL.Restriction))
    graph.add((node, OWL.onProperty, iri(relation)))
    graph.add((node, OWL.someValuesFrom, iri(filler)))
    return node


def joined(graph: Graph, predicate: URIRef, members: list[URIRef | BNode]) -> BNode:
    node, head = BNode(), BNode()
    graph.add((node, RDF.type, OWL.Class))
    graph.add((node, predicate, head))
    Collection(graph, head, members)  # type: ignore[arg-type]
    return node


def as_owl(found: list[Term]) -> Graph:
    """The twin, by the mapping of OBO 1.4."""
    graph = Graph()
    graph.add((URIRef(OBO + "cl.owl"), RDF.type, OWL.Ontology))
    for property in (OWL.ObjectProperty, OWL.TransitiveProperty):
        graph.add((iri("part_of"), RDF.type, property))
    graph.add((iri("part_of"), RDFS.label, Literal("part of")))
    graph.add((iri("part_of"), URIRef(OIO + "shorthand"), Literal("part_of")))
    for term in found:
        subject = iri(term.id)
        graph.add((subject, RDF.type, OWL.Class))
        graph.add((subject, URIRef(OIO + "id"), Literal(term.id)))
        for predicate, text in ((RDFS.label, term.name), (URIRef(IAO + "0000115"), term.definition)):
            if text:
                graph.add((subject, predicate, Literal(text)))
        for text, scope in term.synonyms:
            graph.add((subject, URIRef(f"{OIO}has{scope.title()}Synonym"), Literal(text)))
        for each in term.is_a:
            graph.add((subject, RDFS.subClassOf, iri(each)))
        for relation, each in term.relations:
            graph.add((subject, RDFS.subClassOf, some(graph, relation, each)))
        if len(term.genus) + len(term.differentia) > 1:
            members = [*map(iri, term.genus), *(some(graph, relation, each) for relation, each in term.differentia)]
            graph.add((subject, OWL.equivalentClass, joined(graph, OWL.intersectionOf, members)))
        if len(term.parts) > 1:
            graph.add((subject, OWL.equivalentClass, joined(graph, OWL.unionOf, [*map(iri, term.parts)])))
        for each in term.same:
            graph.add((subject, OWL.equivalentClass, iri(each)))
        if term.obsolete:
            graph.add((subject, OWL.deprecated, Literal(True)))
        for each in term.replaced_by:
            graph.add((subject, URIRef(IAO + "0100001"), iri(each)))
        for each in term.consider:
            graph.add((subject, URIRef(OIO + "consider"), iri(each)))
    return graph


@given(st.lists(terms, max_size=5, unique_by=lambda term: term.id), st.sampled_from(["\n", "\r\n"]))
def test_obo_file_means_what_its_owl_twin_means(found: list[Term], end: str) -> None:
    """Hierarchy, definitions by conjunction and union, names, synonyms, what is obsolete, a relation: every record."""
    plain = read(as_obo(found, end), format="obo", relations=["part_of"])
    twin = read(as_owl(found).serialize(format="xml", encoding="utf-8"), format="rdf-xml", relations=["part_of"])
    assert meaning(plain) == meaning(twin)
    assert numbered(plain) == numbered(twin)
