"""What cannot be read is refused with its place; what is merely odd is read, with a warning."""

import pytest

from kindcast.semantic.errors import OntologyError
from kindcast.semantic.ontology import Limits, read

HEAD = (
    b'<?xml version="1.0"?>\n'
    b'<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"'
    b' xmlns:rdfs="http://www.w3.org/2000/01/rdf-schema#" xmlns:owl="http://www.w3.org/2002/07/owl#">\n'
)
END = b"</rdf:RDF>"
PREFIX = b"@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .\n"
SUB_CLASS = b"<http://www.w3.org/2000/01/rdf-schema#subClassOf>"


@pytest.mark.parametrize(
    ("format", "data", "line", "column"),
    [
        ("turtle", PREFIX + b'<http://e/a> rdfs:label "x" .\n<http://e/a> rdfs:label "x"', 3, 28),
        ("turtle", PREFIX + b"<http://e/a> rdfs:label .\n", 2, 25),
        ("turtle", PREFIX + b"\n\n<http://e/a> skos:broader <http://e/b> .", 4, 14),
        ("turtle", PREFIX + b'<http://e/a> rdfs:label "\xff" .', 2, 25),
        ("n-triples", b"<http://e/a> " + SUB_CLASS + b" <http://e/b> .\n<http://e/a> x .", 2, 14),
        ("trig", b"<http://e/g> { <http://e/a> a <http://e/b> \n", 2, 1),
        ("n-quads", b"<http://e/a> <http://e/p> <http://e/b> <http://e/g> <http://e/h> .", 1, None),
        ("json-ld", b'{"@id": "http://e/a",\n  "http://e/p": }', 2, 17),
        ("json-ld", b'{"@id": "http://e/a"', 1, None),
        ("rdf-xml", HEAD + b'<owl:Class rdf:about="http://e/a">\n' + END, 4, 3),
        ("rdf-xml", HEAD + b"\n<rdfs:label>&nbsp;</rdfs:label>\n" + END, 4, 13),
        ("rdf-xml", HEAD + b"\n<e:Class/>\n" + END, 4, None),
        ("rdf-xml", HEAD + b'<owl:Class rdf:about="http://e/a"/>\n<owl:Class rdf:ID="a b"/>\n' + END, 4, None),
        ("rdf-xml", b"", 1, None),
    ],
)
def test_read_malformed_names_the_line(format: str, data: bytes, line: int, column: int | None) -> None:
    """In every syntax the error says where; the column too where the parser knows it."""
    with pytest.raises(OntologyError) as caught:
        read(data, format=format)
    assert caught.value.line == line
    if column is not None:
        assert caught.value.column is not None
        assert abs(caught.value.column - column) <= 1
    assert str(caught.value).startswith(f"line {line}")


@pytest.mark.parametrize(
    ("format", "data", "hint"),
    [
        ("turtle", HEAD + END, "the document looks like RDF/XML: name that format"),
        ("rdf-xml", PREFIX, "the document looks like Turtle: name that format"),
        ("turtle", b"format-version: 1.2\n\n[Term]\nid: X:1\n", "the document looks like OBO: name that format"),
        ("turtle", b"Prefix(:=<http://e/>)\nOntology(<http://e>)", "looks like OWL functional syntax: name that"),
        (
            "owl-functional",
            b"Prefix: : <http://e/>\nOntology: <http://e>",
            "looks like Manchester syntax: it is not supported",
        ),
        ("turtle", PREFIX.decode().encode("utf-16"), "the document is in UTF-16: save it in UTF-8"),
        ("", PREFIX.decode().encode("utf-16"), "the document is in UTF-16: save it in UTF-8"),
    ],
)
def test_read_in_the_wrong_syntax_says_what_the_document_looks_like(format: str, data: bytes, hint: str) -> None:
    """The error about the first character in the named syntax is of no use to who named the wrong one."""
    with pytest.raises(OntologyError, match=hint) as caught:
        read(data, format=format)
    assert caught.value.line == 1 or format == "rdf-xml"


STATEMENTS = b"<http://e/a> <http://e/p> <http://e/b> .\n<http://e/a> ."


@pytest.mark.parametrize(
    ("format", "data"), [("turtle", STATEMENTS), ("trig", STATEMENTS), ("json-ld", b'{ @id: "http://e/a" }')]
)
def test_read_malformed_in_the_right_syntax_gives_no_hint(format: str, data: bytes) -> None:
    """Turtle that looks like N-Triples is Turtle. JSON and a graph of TriG begin with the same brace."""
    with pytest.raises(OntologyError) as caught:
        read(data, format=format)
    assert "looks like" not in str(caught.value)


def test_read_xml_text_in_the_wrong_place_is_refused_in_plain_words() -> None:
    """The parser says so in words of its own, we in the writer's."""
    body = '<owl:Class rdf:about="http://e/a">\na <rdfs:label>b</rdfs:label></owl:Class>'
    with pytest.raises(OntologyError, match="a text is in a place where only elements are allowed") as caught:
        read(HEAD + body.encode() + END)
    assert caught.value.line == 4


def test_read_json_ld_of_wrong_shape_names_a_line() -> None:
    """Well-formed JSON that is not JSON-LD: the parser does not say where, we find out."""
    data = b'{"@context": {"name": "http://e/name"},\n "@id": "http://e/a",\n "name": {"@value": 1, "@id": "x"}\n}'
    with pytest.raises(OntologyError, match="incompatible") as caught:
        read(data, format="json-ld")
    assert caught.value.line in (3, 4)  # the parser has taken in the next line when it finds out


@pytest.mark.parametrize(
    ("format", "data", "place"),
    [
        ("turtle", PREFIX + b"<http://e/a> rdfs:subClassOf <http://e/b c>, <http://e/d> .", "line 2, column "),
        (
            "rdf-xml",
            HEAD
            + b'<rdfs:Class rdf:about="http://e/a"><rdfs:subClassOf rdf:resource="http://e/d"/></rdfs:Class>\n'
            + b'<rdfs:Class rdf:about="http://e/b c"/>\n'
            + END,
            "line 4: ",
        ),
    ],
)
def test_read_odd_iri_is_left_out_with_a_warning(format: str, data: bytes, place: str) -> None:
    """An IRI with a space is no reason to refuse a thesaurus: what speaks of it is left out, and the line named."""
    ontology = read(data, format=format)
    assert ontology.edges == (("http://e/a", "http://e/d"),)
    assert {record.iri for record in ontology.concepts} == {"http://e/a", "http://e/d"}
    warning = next(text for text in ontology.warnings if "invalid IRI" in text)
    assert warning.startswith(place)
    assert warning.endswith("; 1 triple with an invalid IRI is left out")


def test_read_odd_language_tag_warns() -> None:
    """The label counts, the odd tag stays with it."""
    ontology = read(PREFIX + b'<http://e/a> rdfs:label "x"@nosuchlanguage ; rdfs:subClassOf <http://e/b> .')
    assert ontology.concepts[0].preferred == (("x", "nosuchlanguage"),)
    assert any(text.startswith("line 2") for text in ontology.warnings)


def test_read_syntax_error_behind_an_odd_iri_is_still_refused() -> None:
    """Being lenient about names is not being lenient about syntax."""
    with pytest.raises(OntologyError) as caught:
        read(PREFIX + b"<http://e/a b> rdfs:subClassOf <http://e/b> .\n<http://e/a> rdfs:subClassOf", format="turtle")
    assert caught.value.line in (2, 3)


@pytest.mark.parametrize(
    "escaped", [b'"a\\uD800b"', b'"\\uDC00"', b'"\\UFFFFFFFF"'], ids=["high surrogate", "low surrogate", "beyond"]
)
def test_read_lone_surrogate_is_refused_with_its_line(escaped: bytes) -> None:
    """What no Unicode text can hold is an error of the document."""
    with pytest.raises(OntologyError) as caught:
        read(PREFIX + b"<http://e/a> rdfs:label " + escaped + b" .", format="turtle")
    assert caught.value.line == 2


def test_read_label_with_nul_or_beyond_the_limit_is_left_out() -> None:
    """Such labels help nobody; the concept stays, and the report says how many went."""
    data = PREFIX + b'<http://e/a> rdfs:subClassOf <http://e/b> ; rdfs:label "a\\u0000", "long label", "", "ok" .'
    ontology = read(data, limits=Limits(label=5))
    assert ontology.concepts[0].preferred == (("ok", None),)
    assert any(text.startswith("3 labels") for text in ontology.warnings)


def test_read_relative_iris_get_a_base_and_a_warning() -> None:
    """Without a base the names depend on nothing but the name of the upload."""
    ontology = read(PREFIX + b"<#Laptop> rdfs:subClassOf <#Computer> .", name="my shop")
    assert ontology.edges == (
        (
            "https://kindcast.dev/ontologies/my%20shop/#Laptop",
            "https://kindcast.dev/ontologies/my%20shop/#Computer",
        ),
    )
    assert any("no base" in text for text in ontology.warnings)


def test_read_empty_document_warns_that_it_holds_nothing() -> None:
    """An empty Turtle file is legal, and surely not what was meant."""
    ontology = read(b"", format="turtle")
    assert (ontology.triples, ontology.concepts) == (0, ())
    assert any("has no concept" in text for text in ontology.warnings)


@pytest.mark.parametrize(
    ("limits", "word"),
    [(Limits(triples=2), "2 triples"), (Limits(concepts=2), "3 concepts"), (Limits(edges=1), "1 pairs")],
)
def test_read_beyond_a_limit_is_refused_with_the_limit(limits: Limits, word: str) -> None:
    """The message has the number, so that somebody can decide to raise it."""
    names = [b"<http://e/%d>" % number for number in range(4)]
    data = b"\n".join(low + b" " + SUB_CLASS + b" " + names[0] + b" ." for low in names[1:3])
    data += b"\n" + names[1] + b" " + SUB_CLASS + b" " + names[2] + b" ."
    assert read(data).triples == 3
    with pytest.raises(OntologyError, match=word):
        read(data, limits=limits)


def test_read_triple_said_twice_counts_once() -> None:
    """Streams of parsers repeat themselves; a graph does not."""
    statement = b"<http://e/a> " + SUB_CLASS + b" <http://e/b> .\n"
    assert read(statement * 3, limits=Limits(triples=1)).triples == 1


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "iso-8859-1", "windows-1252"])
def test_read_xml_in_other_encodings_is_understood(encoding: str) -> None:
    """XML says its encoding; the RDF parser behind knows only UTF-8."""
    name = "utf-8" if encoding == "utf-8-sig" else encoding
    text = HEAD.decode().replace('"1.0"?>', f'"1.0" encoding="{name}"?>')
    text += '<owl:Class rdf:about="http://e/a"><rdfs:label>Café</rdfs:label></owl:Class>' + END.decode()
    assert read(text.encode(encoding), format="rdf-xml").concepts[0].preferred == (("Café", None),)


@pytest.mark.parametrize(
    ("declared", "data_encoding"),
    [("utf-8", "latin-1"), ("shift_jis", "shift_jis"), ("nonsense", "utf-8"), ("iso-8859-99", "utf-8")],
)
def test_read_xml_in_a_wrong_or_unread_encoding_is_refused(declared: str, data_encoding: str) -> None:
    """Guessing would turn names into other names."""
    text = HEAD.decode().replace('"1.0"?>', f'"1.0" encoding="{declared}"?>')
    text += f'<owl:Class rdf:about="http://e/{"é" if data_encoding == "latin-1" else "a"}"/>' + END.decode()
    with pytest.raises(OntologyError):
        read(text.encode(data_encoding), format="rdf-xml")


@pytest.mark.parametrize(("encoding", "before"), [("utf-32", ""), ("shift_jis", " " * 300)])
def test_read_xml_in_an_encoding_that_is_found_late_is_refused(encoding: str, before: str) -> None:
    """UTF-32 begins like UTF-16, and a declaration may be longer than what is searched for its encoding. It is a
    mistake of the document, not of its reader."""
    text = HEAD.decode().replace('"1.0"?>', f'"1.0"{before} encoding="{encoding}"?>')
    with pytest.raises(OntologyError, match=r"not supported|not well-formed|Only UTF-8"):
        read((text + END.decode()).encode(encoding), format="rdf-xml")
