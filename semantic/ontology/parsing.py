"""Bytes of a known syntax to triples. RDF is read by pyoxigraph: it opens no file and no socket, and nothing is done
about imports; OBO, the two syntaxes of OWL and SSSOM have readers of their own, and become the triples that they mean.

An RDF document with odd IRIs or language tags is read again leniently and warned about; one with broken syntax is
refused, with the line. The stream may hold a triple several times, which the collector of statements does not mind.
"""

import re
from collections.abc import Iterator
from typing import IO, Final, Protocol, cast

import pyoxigraph as ox

from kindcast.semantic.errors import OntologyError
from kindcast.semantic.ontology import json_guard, turtle_guard, xml_guard
from kindcast.semantic.ontology.formats import RDF_SYNTAXES
from kindcast.semantic.ontology.obo import OboDocument
from kindcast.semantic.ontology.owl_syntaxes import OwlDocument
from kindcast.semantic.ontology.records import Limits
from kindcast.semantic.ontology.sssom import SssomDocument

__all__ = ["Document", "RdfDocument", "document_of"]

_CLEARER: Final = {  # what the parser says → what it means for the writer of the document
    "LoadDocumentCallback": (
        "the JSON-LD names a remote @context, which is never fetched: write the context into the document"
    ),
    "Unexpected text event": "there is a text where only elements may be, or beside elements",
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
    if syntax == "obo":
        return OboDocument(data, base, limits)
    if syntax in ("owl-xml", "owl-functional"):
        return OwlDocument(data, syntax, base, limits)
    if syntax == "sssom":
        return SssomDocument(data, limits)
    return RdfDocument(data, syntax, base, limits)


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
            inspected = xml_guard.inspect(data, limits)
            data = inspected.data
            self.prefixes.update(inspected.prefixes)
        else:
            data = data.removeprefix(b"\xef\xbb\xbf")
            (json_guard if syntax == "json-ld" else turtle_guard).inspect(data, limits)
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
            raise OntologyError("a name or text of the document is longer than any that are read (16 MiB)") from error
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
