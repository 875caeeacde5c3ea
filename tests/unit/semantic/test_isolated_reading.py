"""`read_isolated` is `read`: the same records and errors from every syntax, with nothing refused on the way."""

import gzip

import pytest

from kindcast.semantic.errors import OntologyError, TooCostly, UnknownRelation, UnsupportedFormat
from kindcast.semantic.ontology import Isolation, Limits, read, read_isolated
from kindcast.semantic.ontology.isolation import Cost

RDFS = "http://www.w3.org/2000/01/rdf-schema#"
OWL = "http://www.w3.org/2002/07/owl#"
TURTLE = f"""@prefix : <http://e/> . @prefix rdfs: <{RDFS}> . @prefix owl: <{OWL}> .
:Laptop a owl:Class ; rdfs:subClassOf :Computer ; rdfs:label "laptop"@en , "Straße \U0001f4bb"@de .
:mine a :Laptop . :ram rdfs:subPropertyOf :partOf ; rdfs:range :Memory . :partOf a owl:TransitiveProperty .
:Memory rdfs:subClassOf [ a owl:Restriction ; owl:onProperty :partOf ; owl:someValuesFrom :Laptop ] .
"""
DOCUMENTS = {
    "turtle": TURTLE,
    "trig": TURTLE.replace(":mine a", "<http://g> { :mine a").replace("TransitiveProperty .", "TransitiveProperty . }"),
    "n-triples": f"<http://e/Laptop> <{RDFS}subClassOf> <http://e/Computer> .",
    "n-quads": f"<http://e/Laptop> <{RDFS}subClassOf> <http://e/Computer> <http://g> .",
    "json-ld": f'{{"@id": "http://e/Laptop", "{RDFS}subClassOf": {{"@id": "http://e/Computer"}}}}',
    "rdf-xml": f"""<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:rdfs="{RDFS}">
        <rdfs:Class rdf:about="http://e/Laptop"><rdfs:subClassOf rdf:resource="http://e/Computer"/></rdfs:Class>
        </rdf:RDF>""",
    "obo": 'format-version: 1.2\n\n[Term]\nid: E:1\nname: laptop\nsynonym: "Notebook" EXACT []\nis_a: E:2\n',
    "owx": f"""<Ontology xmlns="{OWL}"><SubClassOf><Class IRI="http://e/Laptop"/><Class IRI="http://e/Computer"/>
        </SubClassOf></Ontology>""",
    "ofn": "Ontology(<http://e/o> SubClassOf(<http://e/Laptop> <http://e/Computer>))",
    "sssom": "#curie_map:\n#  e: http://e/\nsubject_id\tpredicate_id\tobject_id\tmapping_justification\n"
    "e:Laptop\tskos:exactMatch\te:Notebook\tsemapv:ManualMappingCuration\n",
}
BROKEN = {
    "turtle": "@prefix : <http://e/> .\n:A :b",
    "rdf-xml": "<rdf:RDF>\n<a></b>",
    "json-ld": '{"@id":\n,}',
    "ofn": "Ontology(<http://e/o>\n SubClassOf(",
    "owx": f'<Ontology xmlns="{OWL}">\n<SubClassOf></Ontology>',
}


@pytest.mark.parametrize("syntax", DOCUMENTS)
def test_read_isolated_gives_what_read_gives(syntax: str) -> None:
    """Record for record; and the child lacked nothing that it would have had to load."""
    document = gzip.compress(DOCUMENTS[syntax].encode())
    costs: list[Cost] = []
    found = read_isolated(document, format=syntax, name="x", account=costs.append)
    assert found == read(document, format=syntax, name="x")
    assert found.triples > 0
    assert costs[0].refused == ()


@pytest.mark.parametrize("syntax", BROKEN)
def test_read_isolated_raises_what_read_raises(syntax: str) -> None:
    """The same words about the same place."""
    with pytest.raises(OntologyError) as here:
        read(BROKEN[syntax].encode(), format=syntax)
    with pytest.raises(OntologyError) as there:
        read_isolated(BROKEN[syntax].encode(), format=syntax)
    assert (str(there.value), there.value.line, there.value.column) == (
        str(here.value),
        here.value.line,
        here.value.column,
    )


def test_read_isolated_hands_every_option_on() -> None:
    """Limits, name, reasoning and relations mean there what they mean here."""
    document = TURTLE.encode()
    assert read_isolated(document, reason="rdfs", name="x") == read(document, reason="rdfs", name="x")
    asked = read_isolated(document, relations=("http://e/partOf",), name="x")
    assert asked.relations[0].edges == (("http://e/Memory", "http://e/Laptop"),)
    with pytest.raises(UnknownRelation, match="madeOf"):
        read_isolated(document, relations=("http://e/madeOf",))
    with pytest.raises(OntologyError, match="more than 3 triples"):
        read_isolated(document, limits=Limits(triples=3))
    with pytest.raises(UnsupportedFormat):
        read_isolated(document, format="application/pdf")


def test_read_isolated_too_little_memory_is_an_error() -> None:
    """A document that is too large for its reader says so, and how large its reader may be."""
    lines = "".join(f"<http://e/{number}> <{RDFS}subClassOf> <http://e/A> .\n" for number in range(150_000))
    with pytest.raises(TooCostly, match="more than 200 MiB of memory") as caught:
        read_isolated(lines.encode() * 2, format="nt", isolation=Isolation(memory=200 << 20))
    assert caught.value.limit == "memory"
