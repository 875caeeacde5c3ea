"""Which syntax a document is in: by content type, file extension, first characters. Gzip is taken off, bounded."""

import re
import zlib
from collections.abc import Mapping
from typing import Final

from pyoxigraph import RdfFormat

from semantic.errors import OntologyError, UnsupportedFormat
from semantic.ontology.records import Limits

__all__ = ["SYNTAXES", "inflate", "syntax_of"]

SYNTAXES: Final[Mapping[str, RdfFormat]] = {
    "turtle": RdfFormat.TURTLE,
    "rdf-xml": RdfFormat.RDF_XML,
    "n-triples": RdfFormat.N_TRIPLES,
    "json-ld": RdfFormat.JSON_LD,
    "trig": RdfFormat.TRIG,
    "n-quads": RdfFormat.N_QUADS,
}
_NAMES: Final[Mapping[str, str]] = {
    # content types
    "text/turtle": "turtle",
    "application/x-turtle": "turtle",
    "application/turtle": "turtle",
    "application/rdf+xml": "rdf-xml",
    "application/xml": "rdf-xml",
    "text/xml": "rdf-xml",
    "application/n-triples": "n-triples",
    "application/ld+json": "json-ld",
    "application/json": "json-ld",
    "application/trig": "trig",
    "application/x-trig": "trig",
    "application/n-quads": "n-quads",
    # extensions, and what people call the syntaxes
    "ttl": "turtle",
    "turtle": "turtle",
    "rdf": "rdf-xml",
    "owl": "rdf-xml",
    "xml": "rdf-xml",
    "rdfs": "rdf-xml",
    "rdfxml": "rdf-xml",
    "rdf/xml": "rdf-xml",
    "rdf-xml": "rdf-xml",
    "nt": "n-triples",
    "ntriples": "n-triples",
    "n-triples": "n-triples",
    "jsonld": "json-ld",
    "json": "json-ld",
    "json-ld": "json-ld",
    "trig": "trig",
    "nq": "n-quads",
    "nquads": "n-quads",
    "n-quads": "n-quads",
}
_SILENT: Final = frozenset(
    {"", "application/octet-stream", "application/gzip", "application/x-gzip", "text/plain", "gz"}
)
_READABLE: Final = "Turtle, RDF/XML, N-Triples, JSON-LD, TriG and N-Quads, plain or gzip"
_UNREAD: Final[Mapping[str, str]] = {
    "obo": "OBO",
    "ofn": "OWL functional syntax",
    "omn": "Manchester syntax",
    "owx": "OWL/XML",
    "n3": "Notation 3",
}

_SNIFFED = 1 << 16  # bytes looked at: long licence comments stand at the top of real files
_XML_START = re.compile(rb"<(?:\?xml\b|!|[A-Za-z_][\w.-]*(?::[A-Za-z_][\w.-]*)?[\s>/])")
_XML_ROOT = re.compile(rb"<(?:[A-Za-z_][\w.-]*:)?([A-Za-z_][\w.-]*)[\s>/]")
_XML_NOISE = re.compile(rb"<\?.*?\?>|<!--.*?-->|<!DOCTYPE[^\[>]*(?:\[.*?\]\s*)?>", re.DOTALL)
_COMMENTS = re.compile(rb"(?:\s+|#[^\n]*(?:\n|$))*")
_STATEMENT = re.compile(
    rb"(?:<[^<>\"\s]*>|_:\S+)[ \t]+<[^<>\"\s]*>[ \t]+(?:<[^<>\"\s]*>|_:\S+|\".*\"\S*)"
    rb"[ \t]*(<[^<>\"\s]*>|_:\S+)?[ \t]*\."
)
_TURTLE = re.compile(rb"(?i:@prefix|@base|prefix|base)\s|[<\[(]|_:|[\w.-]*:\S*\s")
_NAMED_GRAPH = re.compile(rb"(?m)^\s*(?:GRAPH\s+)?(?:<[^<>\"\s]*>|[\w.-]*:[\w.-]*)?\s*\{")
_OTHERS: Final = (
    (re.compile(rb"(?:Prefix|Ontology)\s*\("), "OWL functional syntax"),
    (re.compile(rb"(?:Prefix|Ontology):\s"), "Manchester syntax"),
    (re.compile(rb"format-version:"), "OBO"),
)


def inflate(data: bytes, limits: Limits) -> bytes:
    """`data` itself, or what it holds when it is gzip (recognised by its first bytes, several members allowed).

    Raises OntologyError when it is more than `limits.bytes`, or inflates more than `limits.inflation` times.
    """
    if data[:2] != b"\x1f\x8b":
        _check_size(len(data), limits)
        return data
    _check_size(len(data), limits)
    most = min(limits.bytes, max(len(data) * limits.inflation, 1 << 20))
    pieces: list[bytes] = []
    room = most
    rest = data
    while rest:
        member = zlib.decompressobj(wbits=31)
        try:
            piece = member.decompress(rest, room + 1)
        except zlib.error as error:
            raise OntologyError(f"the gzip data is damaged: {error}") from error
        room -= len(piece)
        if room < 0:
            raise OntologyError(
                f"the gzip data inflates to more than {most:,} bytes; upload it in parts or raise the limit"
            )
        if not member.eof:
            raise OntologyError("the gzip data ends too early: the upload or the file is cut off")
        pieces.append(piece)
        rest = member.unused_data.lstrip(b"\0")  # padding after a member is legal
    return b"".join(pieces)


def syntax_of(data: bytes, format: str | None, name: str) -> str:
    """The key of `SYNTAXES` for `data` (not gzip): what `format` (content type, extension, name) says, else the
    extension of `name`, else what the text looks like.

    Raises UnsupportedFormat.
    """
    declared = (format or "").split(";")[0].strip().lower().removeprefix(".")
    if declared not in _SILENT:
        if declared in _NAMES:
            return _NAMES[declared]
        raise _unsupported(_UNREAD.get(declared, repr(declared)))
    stem, _, extension = name.lower().removesuffix(".gz").rpartition(".")
    if stem and extension in _NAMES and extension != "owl":  # people give this one to every syntax of OWL
        return _NAMES[extension]
    if stem and extension in _UNREAD:
        raise _unsupported(_UNREAD[extension])
    sniffed = _sniff(data)
    if sniffed is None:
        raise UnsupportedFormat(f"this does not look like {_READABLE}; say which it is by content type or format")
    return sniffed


def _sniff(data: bytes) -> str | None:
    """The syntax that the first characters suggest; None when they suggest nothing. Raises UnsupportedFormat for a
    syntax that is recognised and not read."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "rdf-xml"  # of our syntaxes only XML may be UTF-16
    head = data[:_SNIFFED].removeprefix(b"\xef\xbb\xbf").lstrip()
    if re.match(rb"\{\s*[\"}]|\[\s*[{\]]\s*(?:\"|$)", head):
        return "json-ld"
    if re.match(rb"<(?:\?xml\b|!)", head) or (_XML_START.match(head) and b"xmlns" in head):
        return _xml(head)
    for pattern, language in _OTHERS:
        if pattern.match(head):
            raise _unsupported(language)
    text = head[comments.end() :] if (comments := _COMMENTS.match(head)) else head
    statement = _STATEMENT.match(text)
    if statement:
        return "n-quads" if statement[1] else "n-triples"
    if _NAMED_GRAPH.search(text):
        return "trig"
    return "turtle" if not text or _TURTLE.match(text) else None


def _xml(head: bytes) -> str:
    root = _XML_ROOT.search(_XML_NOISE.sub(b"", head))
    name = root[1] if root else b"RDF"
    if name == b"Ontology":
        raise _unsupported("OWL/XML")
    if name.lower() == b"html":
        raise UnsupportedFormat("this is an HTML page, not an ontology; give the address of the document itself")
    return "rdf-xml"


def _unsupported(language: str) -> UnsupportedFormat:
    return UnsupportedFormat(f"{language} is not read here; convert the document to one of {_READABLE}")


def _check_size(size: int, limits: Limits) -> None:
    if size > limits.bytes:
        raise OntologyError(f"the document has {size:,} bytes; at most {limits.bytes:,} are read")
