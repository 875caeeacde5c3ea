"""OWL functional syntax and OWL/XML: every axiom becomes its triples; what is malformed is refused with its line."""

import pyoxigraph as ox
import pytest
from rdflib import Graph
from rdflib.compare import to_isomorphic

from kindcast.semantic.errors import OntologyError
from kindcast.semantic.ontology import Limits, Ontology, read
from kindcast.semantic.ontology.document_readers import document_of

PREFIXES = "Prefix(:=<http://e/>)\nPrefix(owl:=<http://www.w3.org/2002/07/owl#>)\n"
TURTLE = (
    "@prefix : <http://e/> . @prefix owl: <http://www.w3.org/2002/07/owl#> ."
    "@prefix rdf: <http://www.w3.org/1999/02/22-rdf-syntax-ns#> . @prefix xsd: <http://www.w3.org/2001/XMLSchema#> ."
    "@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .\n<http://e/o> a owl:Ontology .\n"
)
XML = '<?xml version="1.0"?>\n<Ontology xmlns="http://www.w3.org/2002/07/owl#" xml:base="http://e/" ontologyIRI="http://e/o">\n'


def functional(axioms: str) -> bytes:
    return f"{PREFIXES}Ontology(<http://e/o>\n{axioms}\n)".encode()


def xml(axioms: str) -> bytes:
    return f"{XML}{axioms}</Ontology>".encode()


def triples(data: bytes, syntax: str) -> Graph:
    """The graph of a document, as rdflib sees it."""
    quads = document_of(data, syntax, "http://base/", Limits()).triples()
    text = ox.serialize((quad.triple for quad in quads), format=ox.RdfFormat.N_TRIPLES)
    return Graph().parse(data=text, format="nt")


def owl(axioms: str) -> Ontology:
    return read(functional(axioms), format="ofn")


# ── every axiom of OWL 2 ────────────────────────────────────────────────────────────────────────────────────────────

ON = "a owl:Restriction ; owl:onProperty"  # short for these in the table below
NOT = "a owl:NegativePropertyAssertion ; owl:assertionProperty"
MAPPING = [
    ("Declaration(Class(:A))", ":A a owl:Class ."),
    ("Declaration(ObjectProperty(:p)) Declaration(DataProperty(:q))",
     ":p a owl:ObjectProperty . :q a owl:DatatypeProperty ."),
    ("Declaration(AnnotationProperty(:r)) Declaration(Datatype(:D))",
     ":r a owl:AnnotationProperty . :D a rdfs:Datatype ."),
    ("Declaration(NamedIndividual(:i))", ":i a owl:NamedIndividual ."),
    ("SubClassOf(:A :B)", ":A rdfs:subClassOf :B ."),
    ('SubClassOf(Annotation(rdfs:comment "x") :A :B)', ":A rdfs:subClassOf :B ."),
    ("EquivalentClasses(:A :B :C)", ":A owl:equivalentClass :B . :B owl:equivalentClass :C ."),
    ("EquivalentClasses(:A ObjectIntersectionOf(:B :C))",
     ":A owl:equivalentClass [ a owl:Class ; owl:intersectionOf ( :B :C ) ] ."),
    ("SubClassOf(ObjectUnionOf(:A :B) ObjectComplementOf(:C))",
     "[ a owl:Class ; owl:unionOf ( :A :B ) ] rdfs:subClassOf [ a owl:Class ; owl:complementOf :C ] ."),
    ("SubClassOf(:A ObjectOneOf(:i :j))", ":A rdfs:subClassOf [ a owl:Class ; owl:oneOf ( :i :j ) ] ."),
    ("SubClassOf(:A ObjectSomeValuesFrom(:p ObjectAllValuesFrom(ObjectInverseOf(:q) :B)))",
     ":A rdfs:subClassOf [ ON :p ; owl:someValuesFrom [ a owl:Restriction ;"
     " owl:onProperty [ owl:inverseOf :q ] ; owl:allValuesFrom :B ] ] ."),
    ("SubClassOf(:A ObjectHasValue(:p :i))", ":A rdfs:subClassOf [ ON :p ; owl:hasValue :i ] ."),
    ("SubClassOf(:A ObjectHasSelf(:p))", ":A rdfs:subClassOf [ ON :p ; owl:hasSelf true ] ."),
    ("SubClassOf(:A ObjectMinCardinality(2 :p))",
     ':A rdfs:subClassOf [ ON :p ; owl:minCardinality "2"^^xsd:nonNegativeInteger ] .'),
    ("SubClassOf(:A ObjectExactCardinality(2 :p :B))",
     ":A rdfs:subClassOf [ ON :p ; owl:onClass :B ;"
     ' owl:qualifiedCardinality "2"^^xsd:nonNegativeInteger ] .'),
    ("SubClassOf(:A DataMaxCardinality(2 :p xsd:string))",
     ":A rdfs:subClassOf [ ON :p ; owl:onDataRange xsd:string ;"
     ' owl:maxQualifiedCardinality "2"^^xsd:nonNegativeInteger ] .'),
    ('SubClassOf(:A DataHasValue(:p "x"@en))', ':A rdfs:subClassOf [ ON :p ; owl:hasValue "x"@en ] .'),
    ("SubClassOf(:A DataSomeValuesFrom(:p DataUnionOf(DataComplementOf(xsd:int) DataOneOf(\"a\"))))",
     ":A rdfs:subClassOf [ ON :p ; owl:someValuesFrom [ a rdfs:Datatype ; owl:unionOf ("
     ' [ a rdfs:Datatype ; owl:datatypeComplementOf xsd:int ] [ a rdfs:Datatype ; owl:oneOf ( "a" ) ] ) ] ] .'),
    ('DataPropertyRange(:p DatatypeRestriction(xsd:int xsd:minInclusive "1"^^xsd:int xsd:maxExclusive "5"^^xsd:int))',
     ":p rdfs:range [ a rdfs:Datatype ; owl:onDatatype xsd:int ; owl:withRestrictions ("
     ' [ xsd:minInclusive "1"^^xsd:int ] [ xsd:maxExclusive "5"^^xsd:int ] ) ] .'),
    ("SubClassOf(:A DataAllValuesFrom(:p :q xsd:int))",
     ":A rdfs:subClassOf [ a owl:Restriction ; owl:onProperties ( :p :q ) ; owl:allValuesFrom xsd:int ] ."),
    ("DisjointClasses(:A :B)", ":A owl:disjointWith :B ."),
    ("DisjointClasses(:A :B :C)", "[ a owl:AllDisjointClasses ; owl:members ( :A :B :C ) ] ."),
    ("DisjointUnion(:A :B :C)", ":A owl:disjointUnionOf ( :B :C ) ."),
    ("SubObjectPropertyOf(:p :q) SubDataPropertyOf(:r :s)", ":p rdfs:subPropertyOf :q . :r rdfs:subPropertyOf :s ."),
    ("SubObjectPropertyOf(ObjectPropertyChain(:p :q) :r)", ":r owl:propertyChainAxiom ( :p :q ) ."),
    ("EquivalentObjectProperties(:p :q) EquivalentDataProperties(:r :s)",
     ":p owl:equivalentProperty :q . :r owl:equivalentProperty :s ."),
    ("DisjointObjectProperties(:p :q)", ":p owl:propertyDisjointWith :q ."),
    ("DisjointDataProperties(:p :q :r)", "[ a owl:AllDisjointProperties ; owl:members ( :p :q :r ) ] ."),
    ("InverseObjectProperties(:p :q)", ":p owl:inverseOf :q ."),
    ("ObjectPropertyDomain(:p :A) ObjectPropertyRange(:p :B)", ":p rdfs:domain :A ; rdfs:range :B ."),
    ("DataPropertyDomain(:p :A) DataPropertyRange(:p xsd:int)", ":p rdfs:domain :A ; rdfs:range xsd:int ."),
    ("FunctionalObjectProperty(:p) InverseFunctionalObjectProperty(:p)",
     ":p a owl:FunctionalProperty, owl:InverseFunctionalProperty ."),
    ("ReflexiveObjectProperty(:p) IrreflexiveObjectProperty(:q) FunctionalDataProperty(:r)",
     ":p a owl:ReflexiveProperty . :q a owl:IrreflexiveProperty . :r a owl:FunctionalProperty ."),
    ("SymmetricObjectProperty(:p) AsymmetricObjectProperty(:q) TransitiveObjectProperty(:r)",
     ":p a owl:SymmetricProperty . :q a owl:AsymmetricProperty . :r a owl:TransitiveProperty ."),
    ("DatatypeDefinition(:D xsd:int)", ":D owl:equivalentClass xsd:int ."),
    ("HasKey(:A (:p) (:q :r))", ":A owl:hasKey ( :p :q :r ) ."),
    ("SameIndividual(:i :j :k)", ":i owl:sameAs :j . :j owl:sameAs :k ."),
    ("DifferentIndividuals(:i :j)", ":i owl:differentFrom :j ."),
    ("DifferentIndividuals(:i :j :k)", "[ a owl:AllDifferent ; owl:distinctMembers ( :i :j :k ) ] ."),
    ("ClassAssertion(:A _:x) ObjectPropertyAssertion(:p _:x :i)", "_:y a :A ; :p :i ."),
    ("ObjectPropertyAssertion(ObjectInverseOf(:p) :i :j)", ":j :p :i ."),
    ('DataPropertyAssertion(:p :i "1"^^xsd:int)', ':i :p "1"^^xsd:int .'),
    ("NegativeObjectPropertyAssertion(:p :i :j)",
     "[ NOT :p ; owl:sourceIndividual :i ; owl:targetIndividual :j ] ."),
    ('NegativeDataPropertyAssertion(:p :i "a")',
     '[ NOT :p ; owl:sourceIndividual :i ; owl:targetValue "a" ] .'),
    ('AnnotationAssertion(rdfs:label :A "a \\"b\\" \\\\ c"@en-gb)', ':A rdfs:label "a \\"b\\" \\\\ c"@en-gb .'),
    ('AnnotationAssertion(rdfs:label :A "plain@de"^^rdf:PlainLiteral)', ':A rdfs:label "plain"@de .'),
    ("SubAnnotationPropertyOf(:p :q) AnnotationPropertyDomain(:p :A) AnnotationPropertyRange(:p :B)",
     ":p rdfs:subPropertyOf :q ; rdfs:domain :A ; rdfs:range :B ."),
    ('Import(<http://e/other>) Annotation(Annotation(rdfs:label "x") rdfs:comment "y")',
     '<http://e/o> owl:imports <http://e/other> ; rdfs:comment "y" .'),
]  # fmt: skip


@pytest.mark.parametrize(("axioms", "turtle"), MAPPING)
def test_axiom_becomes_the_triples_of_the_standard(axioms: str, turtle: str) -> None:
    """The W3C mapping, case by case, written down in Turtle."""
    spelt_out = TURTLE + turtle.replace("ON", ON).replace("NOT", NOT)
    found, expected = triples(functional(axioms), "owl-functional"), Graph().parse(data=spelt_out, format="turtle")
    assert to_isomorphic(found) == to_isomorphic(expected), found.serialize(format="turtle")


@pytest.mark.parametrize(
    ("axioms", "turtle"),
    [
        ('<Declaration><Class IRI="#A"/></Declaration>', "<http://e/#A> a owl:Class ."),
        ('<SubClassOf><Class IRI="A"/><Class IRI="http://e/B"/></SubClassOf>', ":A rdfs:subClassOf :B ."),
        (
            '<Prefix name="x" IRI="http://e/"/><SubClassOf><Class abbreviatedIRI="x:A"/>'
            '<Class abbreviatedIRI="owl:Thing"/></SubClassOf>',
            ":A rdfs:subClassOf owl:Thing .",
        ),
        (
            '<AnnotationAssertion><AnnotationProperty abbreviatedIRI="rdfs:label"/><IRI>A</IRI>'
            '<Literal xml:lang="en"> a <!-- no --><![CDATA[<b>]]>&amp;c</Literal></AnnotationAssertion>',
            ':A rdfs:label " a <b>&c"@en .',
        ),
        (
            '<DataPropertyAssertion><DataProperty IRI="p"/><AnonymousIndividual nodeID="_:x"/>'
            '<Literal datatypeIRI="http://www.w3.org/2001/XMLSchema#int">5</Literal></DataPropertyAssertion>',
            '[] :p "5"^^xsd:int .',
        ),
        (
            '<HasKey><Class IRI="A"/><ObjectProperty IRI="p"/><DataProperty IRI="q"/></HasKey>',
            ":A owl:hasKey ( :p :q ) .",
        ),
        (
            '<SubClassOf><Annotation><AnnotationProperty abbreviatedIRI="rdfs:comment"/><Literal>x</Literal>'
            '</Annotation><Class IRI="A"/><ObjectMinCardinality cardinality="2"><ObjectInverseOf>'
            '<ObjectProperty IRI="p"/></ObjectInverseOf><Class IRI="B"/></ObjectMinCardinality></SubClassOf>',
            ":A rdfs:subClassOf [ a owl:Restriction ; owl:onProperty [ owl:inverseOf :p ] ; owl:onClass :B ;"
            ' owl:minQualifiedCardinality "2"^^xsd:nonNegativeInteger ] .',
        ),
        (
            '<DataPropertyRange><DataProperty IRI="p"/><DatatypeRestriction><Datatype abbreviatedIRI="xsd:int"/>'
            '<FacetRestriction facet="http://www.w3.org/2001/XMLSchema#minInclusive"><Literal>1</Literal>'
            "</FacetRestriction></DatatypeRestriction></DataPropertyRange>",
            ":p rdfs:range [ a rdfs:Datatype ; owl:onDatatype xsd:int ; owl:withRestrictions ("
            ' [ xsd:minInclusive "1" ] ) ] .',
        ),
        (
            '<ObjectPropertyAssertion><ObjectInverseOf><ObjectProperty IRI="p"/></ObjectInverseOf>'
            '<NamedIndividual IRI="i"/><NamedIndividual IRI="j"/></ObjectPropertyAssertion>',
            ":j :p :i .",
        ),
        (
            '<Import>http://e/other</Import><Annotation><AnnotationProperty abbreviatedIRI="rdfs:comment"/>'
            "<AbbreviatedIRI>rdfs:label</AbbreviatedIRI></Annotation>",
            "<http://e/o> owl:imports <http://e/other> ; rdfs:comment rdfs:label .",
        ),
    ],
)
def test_element_becomes_the_triples_of_the_standard(axioms: str, turtle: str) -> None:
    """Relative and abbreviated names, texts in pieces, what stands in attributes."""
    found, expected = triples(xml(axioms), "owl-xml"), Graph().parse(data=TURTLE + turtle, format="turtle")
    assert to_isomorphic(found) == to_isomorphic(expected), found.serialize(format="turtle")


# ── documents ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("data", "declares"),
    [
        ("Ontology()", ()),
        ("Ontology(<http://e/o>)", ("http://e/o",)),
        (
            "# c )(\nPrefix( : = <http://e/> )\nOntology(<http://e/o> <http://e/o/1> # d\nSubClassOf(:A :B))",
            ("http://e/o",),
        ),
        ("Ontology(SubClassOf(<http://e/A> <http://e/B>))", ()),
    ],
)
def test_ontology_is_named_by_its_first_iri(data: str, declares: tuple[str, ...]) -> None:
    """The second is its version; both may be missing."""
    assert read(data.encode(), format="ofn").declares == declares


def test_prefixes_of_the_document_are_kept() -> None:
    """For subscriptions; the four that OWL knows by itself are not the document's."""
    assert dict(owl("SubClassOf(:A :B)").prefixes) == {"": "http://e/", "owl": "http://www.w3.org/2002/07/owl#"}
    assert dict(read(xml('<Prefix name="x" IRI="http://x/"/>'), format="owx").prefixes) == {"x": "http://x/"}


def test_imports_are_listed_and_not_followed() -> None:
    """Whatever they point to."""
    assert owl("Import(<file:///etc/passwd>) Import(<http://127.0.0.1:1/>)").imports == (
        "file:///etc/passwd",
        "http://127.0.0.1:1/",
    )


def test_protege_entities_are_read() -> None:
    """A DOCTYPE with an entity per namespace, as the OWL API writes it."""
    data = (
        '<?xml version="1.0"?>\n<!DOCTYPE Ontology [ <!ENTITY e "http://e/" > ]>\n'
        '<Ontology xmlns="http://www.w3.org/2002/07/owl#" ontologyIRI="http://e/o">'
        '<SubClassOf><Class IRI="&e;A"/><Class IRI="&e;B"/></SubClassOf></Ontology>'
    )
    assert read(data.encode()).edges == (("http://e/A", "http://e/B"),)


@pytest.mark.parametrize(
    ("data", "warning"),
    [
        (functional("SubClassOf(:A <http://e/a b>) SubClassOf(:A :B)"), "line 4: this SubClassOf was left out"),
        (functional("DLSafeRule(Body() Head()) SubClassOf(:A :B)"), "line 4: 'DLSafeRule' was left out"),
        (xml('<SubClassOf><Class IRI="http://e/ x"/><Class IRI="B"/></SubClassOf><SubClassOf><Class IRI="A"/>'
             '<Class IRI="B"/></SubClassOf>'), "line 3: this 'SubClassOf' was left out"),
        (xml('<Rule xmlns="http://x/"/><SubClassOf><Class IRI="A"/><Class IRI="B"/></SubClassOf>'), "line 3: this"),
    ],
)  # fmt: skip
def test_axiom_that_cannot_be_understood_is_left_out(data: bytes, warning: str) -> None:
    """With a warning; the others are read."""
    ontology = read(data)
    assert ontology.edges == (("http://e/A", "http://e/B"),)
    assert ontology.warnings[0].startswith(warning)


def test_odd_language_tag_is_put_right_or_left_out() -> None:
    """An underscore is common; what is no tag at all costs the tag and not the label."""
    ontology = owl(
        'Declaration(Class(:A)) AnnotationAssertion(rdfs:label :A "a"@en_GB)'
        ' AnnotationAssertion(rdfs:label :A "b"@toolongforatag)'
    )
    assert ontology.concepts[0].preferred == (("b", None), ("a", "en-gb"))


@pytest.mark.parametrize(
    ("data", "line", "word"),
    [
        (b"", 1, "no Ontology"),
        (b"Prefix(:=<http://e/>)", 1, "no Ontology"),
        (b"Prefix(<http://e/>)\nOntology()", 1, "write a prefix as"),
        (b"\nSubClassOf(<http://e/A> <http://e/B>)", 2, "outside Ontology"),
        (b"Ontology()\n<http://e/x>", 2, "outside Ontology"),
        (b"Ontology())", 1, "closing bracket has no opening bracket"),
        (b"Ontology(\nSubClassOf(", 2, "ends within SubClassOf"),
        (functional("SubClassOf(:A)"), 4, "SubClassOf needs 2 arguments, not 1"),
        (functional("\n\nSubClassOf(:A x:B)"), 6, "prefix 'x:' is not declared"),
        (functional("SubClassOf(:A ?)"), 4, "cannot read '?"),
        (functional('SubClassOf(:A "open)'), 4, "cannot read"),
        (functional('SubClassOf(:A "x")'), 4, "literal"),
        (functional("SubClassOf(:A 5)"), 4, "number 5"),
        (functional("SubClassOf(:A Foo(:B))"), 4, "Foo is not an expression"),
        (functional("SubClassOf(:A ObjectSomeValuesFrom(:p))"), 4, "needs a property and a value"),
        (functional("SubClassOf(:A ObjectMinCardinality(:p :B))"), 4, "needs a number"),
        (functional("SubClassOf(:A ObjectMinCardinality(99999999999999999999 :p))"), 4, "cannot read"),
        (functional("Declaration(:A)"), 4, "a declaration must name"),
        (functional("ObjectPropertyAssertion(_:p :i :j)"), 4, "named property"),
        (functional("SubClassOf = :A"), 4, "cannot read"),
        ('Ontology(<http://e/ü>)'.encode("latin-1"), 1, "not in UTF-8"),
        (xml("<SubClassOf><Class IRI='A'/></SubClassOf>"), 3, "SubClassOf needs 2 arguments, not 1"),
        (xml("\n<SubClassOf>words</SubClassOf>"), 4, "has a text"),
        (xml("<SubClassOf>"), 3, "not well-formed"),
        (xml("<Declaration><Class abbreviatedIRI='x:A'/></Declaration>"), 3, "not declared"),
        (xml("<SubClassOf><Class IRI='A'/><ObjectMinCardinality cardinality='many'><ObjectProperty IRI='p'/>"
             "</ObjectMinCardinality></SubClassOf>"), 3, "whole number"),
        (b"<?xml version='1.0'?>\n<Ontology xmlns='http://e/'/>", 2, "must begin with <Ontology>"),
    ],
)  # fmt: skip
def test_malformed_document_is_refused_with_its_line(data: bytes, line: int, word: str) -> None:
    """Where, and what is wrong."""
    format = "owx" if data.startswith(b"<?xml") else "ofn"
    with pytest.raises(OntologyError, match=word) as caught:
        read(data, format=format)
    assert caught.value.line == line


# ── documents made to hurt ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("deep", [300, 100_000])
def test_nesting_beyond_the_limit_is_refused(deep: int) -> None:
    """A hundred thousand brackets overflow the stack of other readers; here they are counted."""
    inner = "ObjectComplementOf(" * deep + ":B" + ")" * deep
    with pytest.raises(OntologyError, match="nested more than 256 deep"):
        owl(f"SubClassOf(:A {inner})")
    element = "<ObjectComplementOf>" * deep + '<Class IRI="B"/>' + "</ObjectComplementOf>" * deep
    with pytest.raises(OntologyError, match="nested more than 256 deep"):
        read(xml(f'<SubClassOf><Class IRI="A"/>{element}</SubClassOf>'), format="owx")


def test_nesting_within_the_limit_is_read() -> None:
    """Two hundred levels of conjunction are a pair like any other."""
    inner = "ObjectIntersectionOf(:B " * 200 + ":C" + ")" * 200
    assert set(owl(f"SubClassOf(:A {inner})").edges) == {("http://e/A", "http://e/B"), ("http://e/A", "http://e/C")}


def test_entity_bomb_in_xml_is_refused() -> None:
    """The guard of RDF/XML stands before OWL/XML as well."""
    levels = "".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 9))
    data = f'<!DOCTYPE Ontology [<!ENTITY a0 "ha">{levels}]><Ontology xmlns="http://www.w3.org/2002/07/owl#">&a8;</Ontology>'
    with pytest.raises(OntologyError, match="entity"):
        read(data.encode(), format="owx")


def test_prefix_for_a_megabyte_is_refused() -> None:
    """Three characters would stand for it, again and again."""
    with pytest.raises(OntologyError, match="prefix is longer than"):
        read(f"Prefix(:=<http://e/{'x' * 5_000}>)\nOntology()".encode(), format="ofn")
    with pytest.raises(OntologyError, match="prefix is longer than"):
        read(xml(f'<Prefix name="x" IRI="http://e/{"x" * 5_000}"/>'), format="owx")


@pytest.mark.parametrize("piece", ['"', "(", "\\", '"\\', "<", ":", "a(", "_:", "#", " ", '"@', '"^^', "a:b^^", "1"])
def test_tokens_without_end_cost_linear_time(piece: str) -> None:
    """Quadratic reading would be noticed, for it takes hours."""
    with pytest.raises(OntologyError):
        owl(f"SubClassOf(:A {piece * 300_000}")
