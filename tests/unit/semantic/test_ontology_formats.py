"""Documents are recognised by what is said of them, by their names, and by their looks; gzip comes off, bounded."""

import gzip
from dataclasses import replace

import pytest

from kindcast.semantic.errors import OntologyError, UnsupportedFormat
from kindcast.semantic.ontology import Limits, read
from kindcast.semantic.ontology.document_readers import inflate, syntax_of

TURTLE = b"@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .\n<http://e/a> rdfs:subClassOf <http://e/b> ."
XML = b"""<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:owl="http://www.w3.org/2002/07/owl#">
<owl:Class rdf:about="http://e/a"/></rdf:RDF>"""
STATEMENT = b"<http://e/a> <http://www.w3.org/2000/01/rdf-schema#subClassOf> <http://e/b> .\n"


@pytest.mark.parametrize(
    ("format", "syntax"),
    [
        ("text/turtle", "turtle"),
        ("text/turtle; charset=utf-8", "turtle"),
        ("Application/RDF+XML", "rdf-xml"),
        ("application/n-triples", "n-triples"),
        ("application/ld+json;profile=x", "json-ld"),
        ("application/trig", "trig"),
        ("application/n-quads", "n-quads"),
        ("ttl", "turtle"),
        (".owl", "rdf-xml"),
        ("nt", "n-triples"),
        ("text/obo", "obo"),
        ("obo", "obo"),
        ("application/owl+xml", "owl-xml"),
        ("owx", "owl-xml"),
        ("text/owl-functional; charset=utf-8", "owl-functional"),
        ("ofn", "owl-functional"),
        ("text/tab-separated-values", "sssom"),
        ("sssom", "sssom"),
    ],
)
def test_syntax_of_declared_format_is_believed(format: str, syntax: str) -> None:
    """A content type or an extension decides, whatever the text looks like."""
    assert syntax_of(b"anything", format, "ontology") == syntax


@pytest.mark.parametrize(
    ("name", "syntax"),
    [
        ("a.ttl", "turtle"),
        ("a.ttl.gz", "turtle"),
        ("A.RDF", "rdf-xml"),
        ("a.jsonld", "json-ld"),
        ("a.nt", "n-triples"),
        ("a.obo.gz", "obo"),
        ("a.ofn", "owl-functional"),
        ("a.owx", "owl-xml"),
        ("a.sssom.tsv", "sssom"),
    ],
)
@pytest.mark.parametrize("format", [None, "application/octet-stream", "application/gzip"])
def test_syntax_of_silent_content_type_is_taken_from_the_name(name: str, syntax: str, format: str | None) -> None:
    """Browsers and tools often send no content type, or one that says nothing."""
    assert syntax_of(b"anything", format, name) == syntax


@pytest.mark.parametrize(
    ("data", "syntax"),
    [
        (TURTLE, "turtle"),
        (b"\xef\xbb\xbf# a comment\n\n" + TURTLE, "turtle"),
        (b"PREFIX e: <http://e/>\ne:a a e:b .", "turtle"),
        (b"e:a a e:b .", "turtle"),
        (b"[] a <http://e/b> .", "turtle"),
        (STATEMENT, "n-triples"),
        (b'# a comment\n_:x <http://e/p> "a \\" b"@en .\n', "n-triples"),
        (b'<http://e/a> <http://e/p> "1"^^<http://e/t> .\n', "n-triples"),
        (b"<http://e/a> <http://e/p> <http://e/b> <http://e/g> .\n", "n-quads"),
        (b"<http://e/a> a <http://e/b> .\n", "turtle"),
        (b"@prefix e: <http://e/> .\ne:g { e:a a e:b }", "trig"),
        (b"GRAPH <http://e/g> { <http://e/a> a <http://e/b> }", "trig"),
        (XML, "rdf-xml"),
        (b"<?xml version='1.0'?><!-- x --><!DOCTYPE rdf:RDF [<!ENTITY a 'b'>]>" + XML, "rdf-xml"),
        (XML.decode().encode("utf-16"), "rdf-xml"),
        ("<Ontology xmlns='http://www.w3.org/2002/07/owl#'/>".encode("utf-16"), "owl-xml"),
        ("[Term]\nid: CL:1\n".encode("utf-16"), "obo"),
        (b'{"@id": "http://e/a"}', "json-ld"),
        (b' [ {"@id": "http://e/a"} ]', "json-ld"),
        (b"{}", "json-ld"),
        (b"format-version: 1.4\nontology: x\n", "obo"),
        (b"\xef\xbb\xbf! a comment\r\nontology: x\r\n\r\n[Term]\r\nid: a\r\n", "obo"),
        (b"[Term]\nid: CL:1\n", "obo"),
        (b"# a licence\nPrefix(:=<http://e/>)\nOntology(<http://e/>)", "owl-functional"),
        (b"Ontology()", "owl-functional"),
        (b"<?xml version='1.0'?>\n<Ontology xmlns='http://www.w3.org/2002/07/owl#'/>", "owl-xml"),
        (b"<!DOCTYPE Ontology [<!ENTITY a 'b'>]><Ontology xmlns='http://www.w3.org/2002/07/owl#'/>", "owl-xml"),
        (b"#curie_map:\n#  a: http://a/\nsubject_id\tpredicate_id\tobject_id\n", "sssom"),
        (b"subject_label,subject_id,predicate_id,object_id\n", "sssom"),
    ],
)
def test_syntax_of_undeclared_is_sniffed(data: bytes, syntax: str) -> None:
    """Without a word about the format the first characters decide."""
    assert syntax_of(data, None, "ontology") == syntax


def test_syntax_of_owl_file_is_sniffed() -> None:
    """The extension .owl is given to every syntax of OWL, so it decides nothing."""
    assert syntax_of(TURTLE, None, "pizza.owl") == "turtle"
    assert syntax_of(XML, None, "pizza.owl") == "rdf-xml"
    assert syntax_of(b"Ontology()", "owl", "pizza") == "owl-functional"
    assert syntax_of(b"<Ontology xmlns='http://www.w3.org/2002/07/owl#'/>", "application/xml", "pizza") == "owl-xml"


@pytest.mark.parametrize("format", ["application/rdf+xml", "application/owl+xml", "owx", "rdf"])
def test_syntax_in_xml_is_decided_by_its_root(format: str) -> None:
    """Each of the two is often called by the name of the other."""
    assert syntax_of(XML, format, "x") == "rdf-xml"
    assert syntax_of(b"<Ontology xmlns='http://www.w3.org/2002/07/owl#'/>", format, "x") == "owl-xml"
    node = b"<owl:Ontology xmlns:owl='http://www.w3.org/2002/07/owl#' xmlns:rdf='http://r/' rdf:about='http://e/'/>"
    assert syntax_of(node, format, "x") == "rdf-xml"


@pytest.mark.parametrize(
    ("data", "format", "name", "word"),
    [
        (b"x", "omn", "x", "Manchester"),
        (b"x", None, "x.n3", "Notation 3"),
        (b"Prefix: e: <http://e/>\n", None, "x", "Manchester"),
        (b"<!DOCTYPE html>\n<html><body>Not found</body></html>", None, "x", "HTML"),
        (b"<!DOCTYPE html>\n<html><body>Not found</body></html>", "text/turtle", "x.ttl", "HTML"),
        (b"<html>\r\n<head><title>404 Not Found</title></head></html>", "text/turtle", "x.ttl", "HTML"),
        (b"<html xmlns='http://www.w3.org/1999/xhtml'/>", None, "x.owl", "HTML"),
        (b"PK\x03\x04rest", None, "x.zip", "ZIP archive"),
        (b"PK\x03\x04rest", None, "x.ttl", "ZIP archive"),
        (b"x", "application/pdf", "x", "application/pdf"),
        (b"name,price\nlaptop,350\n", None, "x", "does not look like"),
        (b"Lorem ipsum dolor sit amet", None, "x", "does not look like"),
        (bytes(range(256)), None, "x", "does not look like"),
    ],
)
def test_syntax_of_what_nobody_reads_is_refused_by_name(data: bytes, format: str | None, name: str, word: str) -> None:
    """The error says what the document seems to be and what could be sent instead."""
    with pytest.raises(UnsupportedFormat, match=word) as caught:
        syntax_of(data, format, name)
    assert any(each in str(caught.value) for each in ("Turtle", "HTML", "unpack it"))


def test_inflate_plain_is_returned_as_it_is() -> None:
    """What is not gzip is not touched."""
    assert inflate(TURTLE, Limits()) is TURTLE


def test_inflate_members_are_joined() -> None:
    """A gzip file may consist of several, with padding after them."""
    assert inflate(gzip.compress(b"one ") + gzip.compress(b"two") + b"\0\0", Limits()) == b"one two"


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (gzip.compress(b"x" * 1000, mtime=0)[:-4], "incomplete"),
        (gzip.compress(STATEMENT * 50, mtime=0)[:40] + b"\xff" * 40, "damaged|incomplete"),
        (b"\x1f\x8b", "incomplete"),
        (gzip.compress(b"x", mtime=0) + b"garbage", "damaged"),
    ],
)
def test_inflate_damaged_gzip_is_refused(data: bytes, word: str) -> None:
    """A broken upload is told apart from a broken ontology."""
    with pytest.raises(OntologyError, match=word):
        inflate(data, Limits())


def test_inflate_bomb_is_stopped_early() -> None:
    """A hundred megabytes of nothing in a hundred kilobytes: refused by ratio, long before the total."""
    bomb = gzip.compress(b"\n" * (100 << 20))
    with pytest.raises(OntologyError, match="inflates to more than"):
        inflate(bomb, Limits())


def test_inflate_members_together_keep_the_limit() -> None:
    """Many small members are no way around it."""
    members = gzip.compress(b"\n" * (512 << 10)) * 4
    with pytest.raises(OntologyError, match="inflates to more than"):
        inflate(members, replace(Limits(), inflation=1))


def test_read_too_many_bytes_is_refused() -> None:
    """Plain and inflated alike."""
    limits = Limits(bytes=len(STATEMENT))
    assert read(STATEMENT, limits=limits).triples == 1
    for data in (STATEMENT + b"\n", gzip.compress(STATEMENT + b"\n")):
        with pytest.raises(OntologyError, match=f"{len(STATEMENT)}"):
            read(data, limits=limits)


def test_read_gzip_is_recognised_without_a_name() -> None:
    """The first two bytes say it; the digest is that of the bytes as they came."""
    packed = read(gzip.compress(STATEMENT, mtime=0))
    plain = read(STATEMENT)
    assert packed.edges == plain.edges
    assert packed.format == "n-triples"
    assert packed.sha256 != plain.sha256
