"""Contexts and imports that name an address or a file of this machine."""

import json

from tests.harness.hostile.canary import Canary
from tests.harness.hostile.corpus import HEAD, OWL, TURTLE, Document, hostile, plain


@hostile
def context_of_an_address(canary: Canary) -> Document:
    return plain(json.dumps({"@context": canary.http, "@id": "http://e/A"}), "json-ld")


@hostile
def context_of_a_file(canary: Canary) -> Document:
    return plain(json.dumps({"@context": canary.file, "@id": "http://e/A"}), "json-ld")


@hostile
def context_of_a_path(canary: Canary) -> Document:
    return plain(json.dumps({"@context": ["relative.jsonld", str(canary.path)], "@id": "http://e/A"}), "json-ld")


@hostile
def context_that_imports(canary: Canary) -> Document:
    context = {"@version": 1.1, "@import": canary.http, "a": {"@id": "http://e/a", "@context": canary.file}}
    return plain(json.dumps({"@context": context, "a": {"a": 1}}), "json-ld")


@hostile
def imports_in_turtle(canary: Canary) -> Document:
    imports = f"<http://e/o> a owl:Ontology ; owl:imports <{canary.http}> , <{canary.file}> ."
    return plain(TURTLE + imports + ":A rdfs:subClassOf :B .", "turtle")


@hostile
def imports_in_rdf_xml(canary: Canary) -> Document:
    imports = "".join(f'<owl:imports rdf:resource="{iri}"/>' for iri in (canary.http, canary.file))
    return plain(f'{HEAD}<owl:Ontology rdf:about="http://e/o">{imports}</owl:Ontology></rdf:RDF>', "rdf-xml")


@hostile
def imports_in_owl_xml(canary: Canary) -> Document:
    imports = f"<Import>{canary.http}</Import><Import>{canary.file}</Import>"
    return plain(f'<Ontology xmlns="{OWL}" ontologyIRI="http://e/o">{imports}</Ontology>', "owx")


@hostile
def imports_in_functional_syntax(canary: Canary) -> Document:
    return plain(f"Ontology(<http://e/o> Import(<{canary.http}>) Import(<{canary.file}>))", "ofn")


@hostile
def imports_in_obo(canary: Canary) -> Document:
    return plain(f"format-version: 1.2\nimport: {canary.http}\nimport: {canary.path}\n\n[Term]\nid: E:1\n", "obo")
