"""Entities that multiply, or that name something outside."""

from tests.harness.hostile.canary import Canary
from tests.harness.hostile.corpus import HEAD, OWL, Document, hostile, plain


def laughs(levels: int, root: str = "rdf:RDF") -> str:
    """Entities of ten entities of ten entities …"""
    declared = '<!ENTITY l0 "lolololola">' + "".join(
        f'<!ENTITY l{level} "{f"&l{level - 1};" * 10}">' for level in range(1, levels + 1)
    )
    return f"<!DOCTYPE {root} [{declared}]>"


@hostile
def entity_bomb_of_300_megabytes(canary: Canary) -> Document:
    body = '<owl:Class rdf:about="http://e/A"><rdfs:label>' + "&l7;" * 3 + "</rdfs:label></owl:Class>"
    return plain(laughs(7) + HEAD + body + "</rdf:RDF>", "rdf-xml")


@hostile
def entity_bomb_in_attributes(canary: Canary) -> Document:
    return plain(laughs(7) + HEAD + '<owl:Class rdf:about="&l7;"/></rdf:RDF>', "rdf-xml")


@hostile
def entity_bomb_in_utf_16(canary: Canary) -> Document:
    return (laughs(7) + HEAD + "<rdfs:Class><rdfs:label>&l7;</rdfs:label></rdfs:Class></rdf:RDF>").encode("utf-16"), ""


@hostile
def entity_bomb_in_owl_xml(canary: Canary) -> Document:
    body = f'<Ontology xmlns="{OWL}"><Declaration><Class IRI="http://e/&l7;"/></Declaration></Ontology>'
    return plain(laughs(7, "Ontology") + body, "owx")


@hostile
def quadratic_blow_up_to_300_megabytes(canary: Canary) -> Document:
    declared = f'<!DOCTYPE rdf:RDF [<!ENTITY a "{"a" * 1_000}">]>'
    body = f'<owl:Class rdf:about="http://e/A"><rdfs:label>{"&a;" * 300_000}</rdfs:label></owl:Class>'
    return plain(declared + HEAD + body + "</rdf:RDF>", "rdf-xml")


@hostile
def quadratic_blow_up_over_many_labels(canary: Canary) -> Document:
    declared = f'<!DOCTYPE rdf:RDF [<!ENTITY a "{"a" * 1_000}">]>'
    body = "".join(
        f'<owl:Class rdf:about="http://e/{number}"><rdfs:label>{"&a;" * 100}</rdfs:label></owl:Class>'
        for number in range(3_000)
    )
    return plain(declared + HEAD + body + "</rdf:RDF>", "rdf-xml")


@hostile
def text_of_references_to_characters(canary: Canary) -> Document:
    return plain(HEAD + f"<rdfs:Class><rdfs:label>{'&amp;x' * 750_000}</rdfs:label></rdfs:Class></rdf:RDF>", "rdf-xml")


@hostile
def entity_of_a_file(canary: Canary) -> Document:
    declared = f'<!DOCTYPE rdf:RDF [<!ENTITY x SYSTEM "{canary.file}">]>'
    return plain(declared + HEAD + "<rdfs:Class><rdfs:label>&x;</rdfs:label></rdfs:Class></rdf:RDF>", "rdf-xml")


@hostile
def entity_of_an_address(canary: Canary) -> Document:
    declared = f'<!DOCTYPE rdf:RDF [<!ENTITY x SYSTEM "{canary.http}">]>'
    return plain(declared + HEAD + "<rdfs:Class><rdfs:label>&x;</rdfs:label></rdfs:Class></rdf:RDF>", "rdf-xml")


@hostile
def entity_of_a_file_in_owl_xml(canary: Canary) -> Document:
    declared = f'<!DOCTYPE Ontology [<!ENTITY x SYSTEM "{canary.file}">]>'
    body = '<AnnotationAssertion><AnnotationProperty abbreviatedIRI="rdfs:label"/><IRI>http://e/A</IRI><Literal>&x;'
    return plain(
        f'{declared}<Ontology xmlns="{OWL}">{body}</Literal></AnnotationAssertion></Ontology>',
        "owx",
    )


@hostile
def parameter_entity_of_an_address(canary: Canary) -> Document:
    return plain(f'<!DOCTYPE rdf:RDF [<!ENTITY % x SYSTEM "{canary.http}"> %x;]>{HEAD}</rdf:RDF>', "rdf-xml")


@hostile
def dtd_of_an_address(canary: Canary) -> Document:
    return plain(f'<!DOCTYPE rdf:RDF SYSTEM "{canary.http}">{HEAD}</rdf:RDF>', "rdf-xml")


@hostile
def dtd_of_a_file(canary: Canary) -> Document:
    return plain(f'<!DOCTYPE rdf:RDF PUBLIC "x" "{canary.file}">{HEAD}</rdf:RDF>', "rdf-xml")


@hostile
def xml_inclusion_and_stylesheet(canary: Canary) -> Document:
    body = f'<?xml-stylesheet href="{canary.http}"?>{HEAD}<owl:Class rdf:about="http://e/A"><rdfs:label>'
    body += f'<xi:include xmlns:xi="http://www.w3.org/2001/XInclude" href="{canary.file}" parse="text"/>'
    return plain(body + "</rdfs:label></owl:Class></rdf:RDF>", "rdf-xml")
