"""Readers of ontology documents: detection of the syntax, decompression, and parsing of bytes into triples.

The syntax is detected by content type, file extension, or the first characters. Gzip is inflated, within limits.

RDF is parsed by pyoxigraph, which opens no file and no socket, and does not follow imports. OBO, the two syntaxes of
OWL and SSSOM have readers of their own, which return the triples that the document means.

An RDF document with invalid IRIs or language tags is read again leniently, with a warning. A document with a syntax
error is rejected, with the line. A reader may return a triple several times; `Statements` counts it once.
"""

import csv
import io
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import IO, Final, Protocol, cast

import pyoxigraph as ox

from kindcast.semantic.errors import OntologyError, UnsupportedFormat
from kindcast.semantic.ontology import namespaces as ns
from kindcast.semantic.ontology.formats import NAMES, SYNTAXES
from kindcast.semantic.ontology.guards import inspect_json, inspect_turtle, inspect_xml, utf8_text
from kindcast.semantic.ontology.obo import OBO, OboDocument
from kindcast.semantic.ontology.owl_syntaxes import OwlDocument
from kindcast.semantic.ontology.quads import RDF_SYNTAXES, without_place
from kindcast.semantic.ontology.records import DocumentWarnings, Limits, shown

__all__ = [
    "Document",
    "RdfDocument",
    "SssomDocument",
    "document_of",
    "inflate",
    "syntax_of",
]

# ── SSSOM mapping files: equivalences and hierarchy between the terms of two vocabularies ─────────────────────────────

# An SSSOM file is a header in YAML and a table, separated by tabs or commas. Only the prefixes of the header are used.
#
#     #curie_map:
#     #  HP: http://purl.obolibrary.org/obo/HP_
#     subject_id    predicate_id     object_id         mapping_justification
#     HP:0008551    skos:exactMatch  MP:0000018        semapv:LexicalMatching
#
# A row whose predicate states an equivalence or a hierarchy becomes a triple. Rows with other predicates, negated rows
# and rows without a term are left out, with warnings.


COLUMNS: Final = ("subject_id", "predicate_id", "object_id")
COUNTED: Final = (
    ns.BROADER
    | ns.NARROWER
    | ns.INDIVIDUAL_EQUIVALENCES
    | {ns.EQUIVALENT_CLASS, ns.EQUIVALENT_PROPERTY, ns.SUB_PROPERTY}
)
"""The predicates that become triples: equivalences and hierarchy."""
LINE: Final = 1 << 20  # characters of a line of the table; real lines have some hundreds
PREDICATES: Final = 20  # predicates without effect that are reported, those with most rows first

_KEY = re.compile(r"(\s*)([\w.-]+)\s*:(?:\s+(.*))?$")
_PAIR = re.compile(r"""["']?([\w.-]+)["']?\s*:\s+(?:"([^"]*)"|'([^']*)'|([^\s,{}"']+))""")
_IRI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S+|urn:\S+", re.IGNORECASE)
_OBO_ID = re.compile(r"([A-Za-z][A-Za-z_]*):([0-9]+)")


class SssomDocument:
    """The reader of one SSSOM file. `prefixes` and `warnings` are complete after all triples were read. Linear.

    Reading raises OntologyError, with the line, if the document is not an SSSOM table.
    """

    def __init__(self, data: bytes, limits: Limits) -> None:
        self.prefixes: dict[str, str] = {}
        self.warnings: list[str] = []
        self._data = data.removeprefix(b"\xef\xbb\xbf")
        self._limits = limits

    def triples(self) -> Iterator[ox.Quad]:
        """Yields the mappings whose predicate is in `COUNTED`, in the order of the rows."""
        noted = DocumentWarnings()
        left_out: Counter[str] = Counter()
        self.prefixes = {}
        rows = self._rows(utf8_text(self._data))
        line, columns = next(rows, (1, []))
        places = [columns.index(each) for each in COLUMNS if each in columns]
        if len(places) < len(COLUMNS):
            missing = ", ".join(each for each in COLUMNS if each not in columns)
            raise OntologyError(f"this is not an SSSOM table: column {missing} is missing", line=line)
        modifier = columns.index("predicate_modifier") if "predicate_modifier" in columns else None
        for line, row in rows:
            if len(row) <= max(places):
                noted.add(line, "short row", f"the row has {len(row)} of {len(columns)} fields and was left out")
                continue
            if modifier is not None and len(row) > modifier and row[modifier].strip():
                left_out[f"{row[modifier].strip()[:40]} {row[places[1]].strip()[:80]}"] += 1
                continue
            names = [self._name(row[place].strip(), line, noted) for place in places]
            subject, predicate, value = names
            if subject is None or predicate is None or value is None:
                continue
            if predicate.value not in COUNTED:
                left_out[row[places[1]].strip()[:80]] += 1
            elif subject != value:
                yield ox.Quad(subject, predicate, value)
        self.warnings = [*noted.texts(), *_told(left_out)]

    def _rows(self, text: str) -> Iterator[tuple[int, list[str]]]:
        """Yields (line from 1, fields) for each row of the table, its column names first. Reads the header before."""
        file = io.StringIO(text, newline="")
        header: list[str] = []
        before = 0
        first = ""
        for first in file:
            before += 1
            if first.strip() and not first.startswith("#"):
                break
            header.append(first[1:].rstrip())
        self._header(header)
        table = csv.reader(_after(first, file, before), delimiter="\t" if "\t" in first else ",")
        try:
            for row in table:
                if row and not row[0].startswith("#"):
                    yield before - 1 + table.line_num, row
        except csv.Error as error:
            raise OntologyError(f"the table is damaged: {error}", line=before - 1 + table.line_num) from error

    def _header(self, lines: Sequence[str]) -> None:
        """Reads the prefixes of `curie_map`, in block or flow style."""
        inside: int | None = None  # the indentation of `curie_map` while its entries are read
        for number, line in enumerate(lines, 1):
            key = _KEY.match(line)
            indent = len(key[1]) if key else None
            if inside is not None and (indent is None or indent > inside or line.lstrip().startswith(("}", '"', "'"))):
                self._declare(line, number)
            elif key and key[2] == "curie_map":
                inside = len(key[1])
                self._declare(key[3] or "", number)
            elif key:
                inside = None

    def _declare(self, text: str, line: int) -> None:
        for found in _PAIR.finditer(text):
            iri = next(each for each in found.groups()[1:] if each is not None)
            if len(iri) > self._limits.iri:
                raise OntologyError(f"a prefix is longer than {self._limits.iri:,} characters", line=line)
            self.prefixes[found[1]] = iri

    def _name(self, text: str, line: int, noted: DocumentWarnings) -> ox.NamedNode | None:
        """Returns the node of a CURIE or an IRI. If `text` is neither, adds a warning and returns None."""
        prefix, colon, local = text.partition(":")
        iri = None
        if prefix in self.prefixes and colon:
            iri = self.prefixes[prefix] + local
        elif prefix in ns.WELL_KNOWN_PREFIXES and colon:
            iri = ns.WELL_KNOWN_PREFIXES[prefix] + local
        elif _IRI.fullmatch(text.strip("<>")):
            iri = text.strip("<>")
        elif short := _OBO_ID.fullmatch(text):
            iri = f"{OBO}{short[1]}_{short[2]}"
            noted.add(line, "prefix", f"prefix {shown(prefix)} is not in the curie_map and was read as an OBO prefix")
        if iri is None:
            noted.add(line, "no term", f"{shown(text)} is not a term: the row was left out")
            return None
        if prefix == "sssom" and local == "NoTermFound":
            noted.add(line, "no term found", "the row says that there is no such term; it was left out")
            return None
        try:
            if len(iri) > self._limits.iri:
                raise ValueError(f"it has more than {self._limits.iri:,} characters")
            return ox.NamedNode(iri)
        except ValueError as error:
            noted.add(line, "no IRI", f"{shown(iri)} is not an IRI, so the row was left out: {error}")
            return None


def _after(first: str, file: io.StringIO, number: int) -> Iterator[str]:
    """Yields the lines of the table. `number` is the line number of `first`. Raises OntologyError for a long line."""
    for at, line in enumerate(chain([first] if first and not first.startswith("#") else [], file), number):
        if len(line) > LINE:
            raise OntologyError(f"the line has more than {LINE:,} characters", line=at)
        yield line


def _told(left_out: Counter[str]) -> Iterator[str]:
    for predicate, count in sorted(left_out.items(), key=lambda item: (-item[1], item[0]))[:PREDICATES]:
        yield f"{count:,} mapping{'s' if count > 1 else ''} with {predicate} left out: no effect on the hierarchy"


# Detection of the syntax by the first characters, because many documents have no content type or a wrong one.

_LOOKED_AT: Final = 1 << 16  # bytes; real files begin with long licence comments

_UTF_16: Final = (b"\xff\xfe", b"\xfe\xff")
_XML_START = re.compile(rb"<(?:\?xml\b|!|[A-Za-z_][\w.-]*(?::[A-Za-z_][\w.-]*)?[\s>/])")
_PAGE_START = re.compile(rb"<html(?:\s[^>]*)?>\s*<(?:head|body|title|meta)\b", re.IGNORECASE)
"""A page without a DOCTYPE, as servers send it with an error. As Turtle it would be an IRI."""
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
    """Returns the syntax that `data` seems to have: one of `kindcast.semantic.ontology.formats.SYNTAXES`, or
    `manchester`, `html` or `zip`, which have no reader, or None if the syntax is not recognised. Reads at most 64
    KiB."""
    if data.startswith(b"PK\x03\x04"):
        return "zip"
    head = data[:_LOOKED_AT].removeprefix(b"\xef\xbb\xbf").lstrip()
    if data[:2] in _UTF_16:
        head = data[:_LOOKED_AT].decode("utf-16", "replace").encode().lstrip()
    if re.match(rb"\{\s*[\"}]|\[\s*[{\]]\s*(?:\"|$)", head):
        return "json-ld"
    if _PAGE_START.match(head):
        return "html"
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
"""Names that several syntaxes share (`owl`: all). The first characters decide; if they do not, it is RDF/XML."""
_IN_XML: Final = frozenset({"rdf-xml", "owl-xml"})
_SILENT: Final = frozenset(
    {"", "application/octet-stream", "application/gzip", "application/x-gzip", "text/plain", "gz"}
)
_READABLE: Final = (
    "Turtle, RDF/XML, N-Triples, JSON-LD, TriG, N-Quads, OBO, OWL/XML, OWL functional syntax or SSSOM, plain or gzip"
)
_LOOKS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("turtle", "n-triples", "n-quads", "trig"), "Turtle"),  # each is read as the others, or nearly
    "rdf-xml": "RDF/XML",
    "json-ld": "JSON-LD",
    "obo": "OBO",
    "owl-xml": "OWL/XML",
    "owl-functional": "OWL functional syntax",
    "manchester": "Manchester syntax",
    "sssom": "SSSOM",
}
_UNREAD: Final[Mapping[str, str]] = {
    "omn": "Manchester syntax",
    "text/owl-manchester": "Manchester syntax",
    "n3": "Notation 3",
    "text/n3": "Notation 3",
}

_FIRST_STEP = 4_096  # first bytes given to a gzip member; zlib copies the bytes after its end, so steps start small
_LARGEST_STEP = 1 << 20
_PADDING = re.compile(rb"\0*+")  # zeros after a member are legal


def inflate(data: bytes, limits: Limits) -> bytes:
    """Returns `data`, decompressed if it is gzip (recognised by its first bytes; it may have several members).

    Raises OntologyError if the data has more than `limits.bytes`, if it inflates more than `limits.inflation` times
    (1 MiB is always allowed), and if the gzip data is damaged.
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
    """Returns the syntax of `data` (not gzip), one of `SYNTAXES`. It is taken from `format` (a content type, extension
    or name), else from the extension of `name`, else from the first characters.

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
    """Returns `told`. If `told` is RDF/XML or OWL/XML, the root element decides between these two, because servers and
    people use the name of either for both. Raises UnsupportedFormat for an HTML page and a ZIP archive, which are often
    saved under the name of the document."""
    found = sniffed(data)
    _refuse_wrapping(found)
    return found if told in _IN_XML and found is not None and found in _IN_XML else told


def _sniffed(data: bytes) -> str | None:
    found = sniffed(data)
    _refuse_wrapping(found)
    if found == "manchester":
        raise _unsupported("Manchester syntax")
    return found


@contextmanager
def seeming(data: bytes, syntax: str) -> Iterator[None]:
    """A context manager in which `data` is read in `syntax`. If that fails, and the document seems to have another
    syntax, the error says so, because content types and extensions are often wrong."""
    try:
        yield
    except OntologyError as error:
        seen = _LOOKS.get(sniffed(data) or "")
        if error.line is None or type(error) is not OntologyError:
            raise
        if data[:2] in _UTF_16 and syntax not in _IN_XML:
            hint = "the document is in UTF-16: save it in UTF-8"
        elif seen in (None, _LOOKS[syntax]) or (syntax == "json-ld" and data.lstrip().startswith(b"{")):
            raise  # also for a mistake in JSON, such as a key without quotes
        else:
            advice = "name that format" if seen in (_LOOKS[each] for each in SYNTAXES) else "it is not supported"
            hint = f"the document looks like {seen}: {advice}"
        raise OntologyError(f"{error.detail}; {hint}", line=error.line, column=error.column) from error


def _refuse_wrapping(found: str | None) -> None:
    if found == "html":
        raise UnsupportedFormat("this is an HTML page, not an ontology; upload the document itself")
    if found == "zip":
        raise UnsupportedFormat("this is a ZIP archive, not an ontology; unpack it and upload the document in it")


def _unsupported(language: str) -> UnsupportedFormat:
    return UnsupportedFormat(f"{language} is not supported; convert the document to one of {_READABLE}")


def _check_size(size: int, limits: Limits) -> None:
    if size > limits.bytes:
        raise OntologyError(f"the document has {size:,} bytes; at most {limits.bytes:,} are read")


_CLEARER: Final = {  # from a part of the parser's message to a message for the author of the document
    "LoadDocumentCallback": (
        "the JSON-LD refers to a remote @context, but contexts are never fetched: write the context into the document"
    ),
    "Unexpected text event": "a text is in a place where only elements are allowed",
}


class Document(Protocol):
    """The reader of one document. `prefixes` and `warnings` are complete after all triples were read. The constructor
    and reading raise OntologyError."""

    prefixes: dict[str, str]
    warnings: list[str]

    def triples(self) -> Iterator[ox.Quad]:
        """Yields every triple, in document order. Raises OntologyError, with the line if it is known."""


def document_of(data: bytes, syntax: str, base: str, limits: Limits) -> Document:
    """Returns the reader of `data` (not gzip) in `syntax`. `base` is the base of relative IRIs. Raises OntologyError
    if a guard rejects the document."""
    return READERS[syntax](data, syntax, base, limits)


class RdfDocument:
    """The reader of one RDF document. The constructor checks the document, and converts RDF/XML to UTF-8.

    `prefixes` is complete after all triples were read. The constructor and reading raise OntologyError.
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
        """Yields every triple of all graphs, in document order. Raises OntologyError with the line."""
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
        detail = without_place(error)
        detail = next((clearer for word, clearer in _CLEARER.items() if word in detail), detail)
        line, column = error.lineno, error.offset
        if line is None:
            line = self._line_reached(lenient)
        return OntologyError(detail, line=line, column=column)

    def _line_reached(self, lenient: bool) -> int:
        """Returns the line at which parsing stops, for errors without a line. Feeds the parser one line at a time."""
        lines = _Lines(self._data)
        try:
            for _ in ox.parse(cast(IO[bytes], lines), RDF_SYNTAXES[self._syntax], base_iri=self._base, lenient=lenient):
                pass
        except SyntaxError:
            pass
        return max(lines.given, 1)


class _Lines:
    """A binary file that returns one line for each read, and counts the lines in `given`."""

    LONGEST = 4_096  # bytes returned at once; the next read returns the rest of a longer line

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
"""From each syntax to its reader, which takes (data, syntax, base of relative IRIs, limits)."""
