"""Texts, names, numbers and bytes that are too long, too many, or none."""

import json
import random
import struct

from tests.harness.hostile.canary import Canary
from tests.harness.hostile.corpus import HEAD, MILLION, RDF, RDFS, TURTLE, Document, hostile, many, plain, rdfs


@hostile
def label_of_20_megabytes(canary: Canary) -> Document:
    return plain(TURTLE + ':A rdfs:subClassOf :B ; rdfs:label """' + "x" * 20_000_000 + '""" .', "turtle")


@hostile
def text_that_does_not_end(canary: Canary) -> Document:
    return plain(TURTLE + ':A rdfs:label """' + '\\"' * 10_000_000, "turtle")


@hostile
def labels_by_the_hundred_thousand_on_one_concept(canary: Canary) -> Document:
    labels = ", ".join(f'"label {number}"' for number in range(many(100_000)))
    return plain(TURTLE + f":A rdfs:subClassOf :B ; rdfs:label {labels} .", "turtle")


@hostile
def prefixes_by_the_hundred_thousand(canary: Canary) -> Document:
    prefixes = "".join(f"@prefix p{number}: <http://e/{number}/> .\n" for number in range(many(100_000)))
    return plain(prefixes + "p0:A p1:b p2:C .", "turtle")


@hostile
def prefix_of_a_megabyte_used_often(canary: Canary) -> Document:
    uses = "".join(f"p:{number} <{RDFS}subClassOf> p:A .\n" for number in range(5_000))
    return plain(f"@prefix p: <http://e/{'x' * MILLION}> .\n{uses}", "turtle")


@hostile
def prefixes_in_functional_syntax(canary: Canary) -> Document:
    prefixes = "".join(f"Prefix(p{number}:=<http://e/{number}/>)\n" for number in range(many(100_000)))
    return plain(prefixes + "Ontology(<http://e/o> Declaration(Class(p1:A)))", "ofn")


@hostile
def namespaces_by_the_hundred_thousand(canary: Canary) -> Document:
    names = " ".join(f'xmlns:p{number}="http://e/{number}/"' for number in range(many(100_000)))
    return plain(f"<rdf:RDF xmlns:rdf='{RDF}' {names}></rdf:RDF>", "rdf-xml")


@hostile
def bases_that_grow(canary: Canary) -> Document:
    return plain("@base <http://e/> .\n" + "@base <aaaaaaaaaaaaaaaaaaaa/> .\n<b> <p> <o> .\n" * 100_000, "turtle")


@hostile
def bases_that_grow_in_xml(canary: Canary) -> Document:
    deep = "".join(f'<rdfs:Class xml:base="{"a" * 200}/"><rdfs:subClassOf>' for _ in range(120))
    return plain(HEAD + deep, "rdf-xml")


@hostile
def terms_upon_terms_in_a_context(canary: Canary) -> Document:
    terms = {f"t{number}": f"t{number + 1}:x" for number in range(50_000)}
    return plain(json.dumps({"@context": terms, "t0": 1}), "json-ld")


@hostile
def contexts_in_every_object(canary: Canary) -> Document:
    context = {f"t{number}": f"http://e/{number}" for number in range(1_000)}
    objects = [{"@context": {"x": "http://e/x"}, "x": 1} for _ in range(100_000)]
    return plain(json.dumps({"@context": context, "@graph": objects}), "json-ld")


@hostile
def number_of_a_million_digits(canary: Canary) -> Document:
    context = '"@context": {"x": ' + "9" * MILLION + "}"
    return plain("{" + context + ', "http://e/p": ' + "9" * MILLION + "}", "json-ld")


@hostile
def lone_surrogates_in_json(canary: Canary) -> Document:
    return plain('{"@id": "http://e/\\ud800", "http://www.w3.org/2000/01/rdf-schema#label": "\\udc00 a"}', "json-ld")


@hostile
def lone_surrogates_in_turtle(canary: Canary) -> Document:
    return plain(TURTLE + ':A rdfs:subClassOf :B ; rdfs:label "\\uD800", "\ud800" .', "turtle")


@hostile
def nul_in_names_and_labels(canary: Canary) -> Document:
    return plain(TURTLE + '<http://e/a\0b> rdfs:label "a\0b", "a\\u0000b" ; rdfs:subClassOf :A\0 .', "turtle")


@hostile
def iris_with_spaces(canary: Canary) -> Document:
    lines = "".join(f"<http://e/a b {number}> {rdfs('subClassOf')} <http://e/ c> .\n" for number in range(50_000))
    return plain(lines, "n-triples")


@hostile
def lines_that_are_all_wrong(canary: Canary) -> Document:
    return plain("<http://e/A> <nonsense> .\n" * 500_000, "n-triples")


@hostile
def turtle_in_utf_16(canary: Canary) -> Document:
    return (TURTLE + ":A rdfs:subClassOf :B .").encode("utf-16"), "turtle"


@hostile
def bytes_that_are_no_utf_8(canary: Canary) -> Document:
    return TURTLE.encode() + b':A rdfs:label "' + bytes(range(128, 256)) * 1_000 + b'" .', "turtle"


@hostile
def encoding_that_nobody_knows(canary: Canary) -> Document:
    return plain(f'<?xml version="1.0" encoding="idna"?>{HEAD}</rdf:RDF>', "rdf-xml")


@hostile
def spaces_only(canary: Canary) -> Document:
    return b" \n" * 10_000_000, ""


@hostile
def comments_only(canary: Canary) -> Document:
    return b"# a comment\n" * 1_000_000, ""


@hostile
def angles_only(canary: Canary) -> Document:
    return b"<" * 10_000_000, ""


@hostile
def random_bytes(canary: Canary) -> Document:
    return random.Random(7).randbytes(5_000_000), ""


@hostile
def program_of_this_machine(canary: Canary) -> Document:
    return b"\x7fELF" + struct.pack("<I", 1) * 100_000, ""
