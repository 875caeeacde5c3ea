"""The syntaxes of ontologies: their names, how a document's syntax is recognised, and how its bytes become triples.

The syntax is found by content type, file extension, or the first characters. Gzip is removed, within bounds.

pyoxigraph reads RDF: it opens no file and no socket, and does not follow imports. OBO, the two syntaxes of OWL and
SSSOM have readers of their own, which give the triples that the document means.

An RDF document with invalid IRIs or language tags is read again leniently, with a warning. A document with a syntax
error is refused, with the line. A triple may come several times; the collector of statements allows it.
"""

import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import IO, Final, Protocol, cast

import pyoxigraph as ox

from kindcast.semantic.errors import OntologyError, UnsupportedFormat
from kindcast.semantic.ontology.guards import inspect_json, inspect_turtle, inspect_xml
from kindcast.semantic.ontology.obo import OboDocument
from kindcast.semantic.ontology.owl_syntaxes import OwlDocument
from kindcast.semantic.ontology.quads import RDF_SYNTAXES
from kindcast.semantic.ontology.records import Limits
from kindcast.semantic.ontology.sssom import SssomDocument
from kindcast.semantic.ontology.syntaxes import NAMES

__all__ = ["Document", "RdfDocument", "document_of", "inflate", "syntax_of"]


# What the first characters of a document suggest: for the many that come without a type or with a wrong one.

_LOOKED_AT: Final = 1 << 16  # bytes: long licence comments stand at the top of real files

_XML_START = re.compile(rb"<(?:\?xml\b|!|[A-Za-z_][\w.-]*(?::[A-Za-z_][\w.-]*)?[\s>/])")
_XML_ROOT = re.compile(rb"<(?:[A-Za-z_][\w.-]*:)?([A-Za-z_][\w.-]*)[\s>/]")
_RDF_NODE = re.compile(rb"<[^<>]*?\srdf:(?:about|ID|nodeID)\s*=")
_XML_NOISE = re.compile(rb"<\?.*?\?>|<!--.*?-->|<!DOCTYPE[^\[>]*(?:\[.*?\]\s*)?>", re.DOTALL)
_COMMENTS = re.compile(rb"(?:\s+|#[^\n]*(?:\n|$))*+")
_STATEMENT = re.compile(
    rb"(?:<[^<>\"\s]*>|_:\S+)[ \t]+<[^<>\"\s]*>[ \t]+(?:<[^<>\"\s]*>|_:\S+|\".*\"\S*)"
    rb"[ \t]*(<[^<>\"\s]*>|_:\S+)?[ \t]*\."
)
_TURTLE = re.compile(rb"(?i:@prefix|@base|prefix|base)\s|[<\[(]|_:|[\w.-]*:\S*\s")
_NAMED_GRAPH = re.compile(rb"(?m)^\s*(?:GRAPH\s+)?(?:<[^<>\"\s]*>|[\w.-]*:[\w.-]*)?\s*\{")
_FUNCTIONAL = re.compile(rb"(?:Prefix|Ontology)\s*\(")
_MANCHESTER = re.compile(rb"(?:Prefix|Ontology):\s")
_OBO_START = re.compile(rb"format-version\s*:|\[(?:Term|Typedef|Instance)\][ \t]*\r?(?:\n|$)")
_OBO_HEADER = re.compile(rb"[a-z][\w-]*:[ \t]|!")
_OBO_STANZA = re.compile(rb"(?m)^\[(?:Term|Typedef|Instance)\][ \t]*\r?$")
_TABLE = re.compile(rb"[^\n]*\b(?:subject_id[\t,][^\n]*\bobject_id|object_id[\t,][^\n]*\bsubject_id)\b")


def sniffed(data: bytes) -> str | None:
    """The syntax that `data` seems to be in, one of `kindcast.semantic.ontology.syntaxes.SYNTAXES`; `manchester` or
    `html`, which nobody reads here; None when it suggests nothing. Looks at 64 KiB at most."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "rdf-xml"  # of our syntaxes only XML is usual in UTF-16
    head = data[:_LOOKED_AT].removeprefix(b"\xef\xbb\xbf").lstrip()
    if re.match(rb"\{\s*[\"}]|\[\s*[{\]]\s*(?:\"|$)", head):
        return "json-ld"
    if re.match(rb"<(?:\?xml\b|!)", head) or (_XML_START.match(head) and b"xmlns" in head):
        return _xml(head)
    if _OBO_START.match(head) or (_OBO_HEADER.match(head) and _OBO_STANZA.search(head)):
        return "obo"
    text = head[comments.end() :] if (comments := _COMMENTS.match(head)) else head
    for pattern, syntax in ((_FUNCTIONAL, "owl-functional"), (_MANCHESTER, "manchester"), (_TABLE, "sssom")):
        if pattern.match(text):
            return syntax
    statement = _STATEMENT.match(text)
    if statement:
        return "n-quads" if statement[1] else "n-triples"
    if _NAMED_GRAPH.search(text):
        return "trig"
    return "turtle" if not text or _TURTLE.match(text) else None


def _xml(head: bytes) -> str:
    root = _XML_ROOT.search(_XML_NOISE.sub(b"", head))
    name = root[1] if root else b"RDF"
    if root and name == b"Ontology" and not _RDF_NODE.match(root.string, root.start()):
        return "owl-xml"
    return "html" if name.lower() == b"html" else "rdf-xml"


_SEVERAL: Final = frozenset({"application/xml", "text/xml", "xml", "owl"})
"""Names of more than one syntax, `owl` of every one: the text decides, and what it leaves open is RDF/XML."""
_IN_XML: Final = frozenset({"rdf-xml", "owl-xml"})
_SILENT: Final = frozenset(
    {"", "application/octet-stream", "application/gzip", "application/x-gzip", "text/plain", "gz"}
)
_READABLE: Final = (
    "Turtle, RDF/XML, N-Triples, JSON-LD, TriG, N-Quads, OBO, OWL/XML, OWL functional syntax and SSSOM, plain or gzip"
)
_UNREAD: Final[Mapping[str, str]] = {
    "omn": "Manchester syntax",
    "text/owl-manchester": "Manchester syntax",
    "n3": "Notation 3",
    "text/n3": "Notation 3",
}

_FIRST_STEP = 4_096  # bytes given to a member of gzip at first: what is left over is copied, so not all that remains
_LARGEST_STEP = 1 << 20
_PADDING = re.compile(rb"\0*+")  # zeros after a member are legal


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
    at = 0
    while at < len(data):
        member = zlib.decompressobj(wbits=31)
        step = _FIRST_STEP
        while not member.eof:
            given = memoryview(data)[at : at + step]
            if not given:
                raise OntologyError("the gzip data ends too early: the upload or the file is incomplete")
            try:
                piece = member.decompress(given, room + 1)
            except zlib.error as error:
                raise OntologyError(f"the gzip data is damaged: {error}") from error
            room -= len(piece)
            if room < 0:
                raise OntologyError(
                    f"the gzip data inflates to more than {most:,} bytes; upload it in parts or raise the limit"
                )
            pieces.append(piece)
            at += len(given) - len(member.unused_data)
            step = min(2 * step, _LARGEST_STEP)
        padding = _PADDING.match(data, at)
        at = padding.end() if padding else at
    return b"".join(pieces)


def syntax_of(data: bytes, format: str | None, name: str) -> str:
    """One of `SYNTAXES` for `data` (not gzip): what `format` (content type, extension, name) says, else the extension
    of `name`, else what the text looks like.

    Raises UnsupportedFormat.
    """
    declared = (format or "").split(";")[0].strip().lower().removeprefix(".")
    stem, _, extension = name.lower().removesuffix(".gz").rpartition(".")
    for told in (declared, extension if stem else ""):
        if told in NAMES:
            return _by_root(data, NAMES[told])
        if told in _UNREAD:
            raise _unsupported(_UNREAD[told])
        if told == declared and told not in _SEVERAL | _SILENT:
            raise _unsupported(repr(told))
    found = _sniffed(data) or ("rdf-xml" if declared in _SEVERAL else None)
    if found is None:
        raise UnsupportedFormat(
            f"this does not look like {_READABLE}; name its format with the content type or the option format"
        )
    return found


def _by_root(data: bytes, told: str) -> str:
    """`told`, unless it is one of the two syntaxes in XML and the document plainly the other: servers and people call
    both by either name."""
    if told in _IN_XML and (found := sniffed(data)) in _IN_XML and found is not None:
        return found
    return told


def _sniffed(data: bytes) -> str | None:
    found = sniffed(data)
    if found == "html":
        raise UnsupportedFormat("this is an HTML page, not an ontology; upload the document itself")
    if found == "manchester":
        raise _unsupported("Manchester syntax")
    return found


def _unsupported(language: str) -> UnsupportedFormat:
    return UnsupportedFormat(f"{language} is not supported; convert the document to one of {_READABLE}")


def _check_size(size: int, limits: Limits) -> None:
    if size > limits.bytes:
        raise OntologyError(f"the document has {size:,} bytes; at most {limits.bytes:,} are read")


_CLEARER: Final = {  # what the parser says → what it means for the writer of the document
    "LoadDocumentCallback": (
        "the JSON-LD refers to a remote @context, but contexts are never fetched: write the context into the document"
    ),
    "Unexpected text event": "a text is in a place where only elements are allowed",
}
_NOISE = re.compile(r"^Parser error (?:at|between) line.*?columns? [\d and]+: |^Parser error: | \(line \d+\)$")


class Document(Protocol):
    """One document, ready to be read. `prefixes` and `warnings` are complete after all triples were read. What the
    constructor raises, and reading, is OntologyError."""

    prefixes: dict[str, str]
    warnings: list[str]

    def triples(self) -> Iterator[ox.Quad]:
        """Every triple, in document order. Raises OntologyError, with the line where it is known."""


def document_of(data: bytes, syntax: str, base: str, limits: Limits) -> Document:
    """`data` (not gzip), in the syntax that `kindcast.semantic.ontology.formats` told, as a document; `base` begins
    what it calls by relative names. Raises OntologyError where a guard refuses it."""
    return READERS[syntax](data, syntax, base, limits)


class RdfDocument:
    """One RDF document, ready to be read: guarded, in UTF-8, with a base for relative IRIs.

    `prefixes` is complete after all triples were read. Raises OntologyError from the constructor and while reading.
    """

    def __init__(self, data: bytes, syntax: str, base: str, limits: Limits) -> None:
        self.prefixes: dict[str, str] = {}
        self.warnings: list[str] = []
        self._syntax = syntax
        self._base = base
        if syntax == "rdf-xml":
            inspected = inspect_xml(data, limits)
            data = inspected.data
            self.prefixes.update(inspected.prefixes)
        else:
            data = data.removeprefix(b"\xef\xbb\xbf")
            (inspect_json if syntax == "json-ld" else inspect_turtle)(data, limits)
        self._data = data

    def triples(self, *, lenient: bool = False) -> Iterator[ox.Quad]:
        """Every triple, in document order, graphs pooled. Raises OntologyError with the line."""
        parser = ox.parse(self._data, RDF_SYNTAXES[self._syntax], base_iri=self._base, lenient=lenient)
        try:
            yield from parser
        except SyntaxError as error:
            raise self._placed(error, lenient) from error
        except MemoryError as error:
            if "buffer" not in str(error):
                raise
            raise OntologyError("a name or text of the document is longer than 16 MiB") from error
        found: dict[str, str] = parser.prefixes
        self.prefixes.update(found)

    def _placed(self, error: SyntaxError, lenient: bool) -> OntologyError:
        detail = _NOISE.sub("", _NOISE.sub("", str(error)))
        detail = next((clearer for word, clearer in _CLEARER.items() if word in detail), detail)
        line, column = error.lineno, error.offset
        if line is None:
            line = self._line_reached(lenient)
        return OntologyError(detail, line=line, column=column)

    def _line_reached(self, lenient: bool) -> int:
        """The line at which reading stops, found by feeding the parser one line at a time: not every error says it."""
        lines = _Lines(self._data)
        try:
            for _ in ox.parse(cast(IO[bytes], lines), RDF_SYNTAXES[self._syntax], base_iri=self._base, lenient=lenient):
                pass
        except SyntaxError:
            pass
        return max(lines.given, 1)


class _Lines:
    """A binary file that gives one line a read, and counts them."""

    LONGEST = 4_096  # bytes given at once; the rest of a longer line comes with the next read

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._fresh = True
        self.given = 0

    def read(self, size: int = -1, /) -> bytes:
        most = self.LONGEST if size < 0 else min(size, self.LONGEST)
        end = self._data.find(b"\n", self._at, self._at + most) + 1 or min(self._at + most, len(self._data))
        piece = self._data[self._at : end]
        self._at = end
        self.given += self._fresh and bool(piece)
        self._fresh = piece.endswith(b"\n")
        return piece


READERS: Final[Mapping[str, Callable[[bytes, str, str, Limits], Document]]] = {
    **dict.fromkeys(RDF_SYNTAXES, RdfDocument),
    "obo": lambda data, _, base, limits: OboDocument(data, base, limits),
    "owl-xml": OwlDocument,
    "owl-functional": OwlDocument,
    "sssom": lambda data, _syntax, _base, limits: SssomDocument(data, limits),
}
"""Syntax → its reader, of document, syntax, base of relative names, limits."""
