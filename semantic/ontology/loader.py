"""One call from a document's bytes to its records: unpack → recognise → guard → parse → collect → extract."""

import hashlib
import re
from collections.abc import Iterator
from urllib.parse import quote

import pyoxigraph as ox

from semantic.errors import OntologyError
from semantic.ontology import namespaces as ns
from semantic.ontology.extraction import extract
from semantic.ontology.formats import inflate, syntax_of
from semantic.ontology.parsing import Document
from semantic.ontology.records import Limits, Ontology
from semantic.ontology.statements import Statements

__all__ = ["read"]

BASE = "https://kindcast.dev/ontologies/"  # what relative IRIs are relative to, where the document does not say

_IRI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[^\x00-\x20<>\"{}|^`\\\x7f\ud800-\udfff]*")


def read(data: bytes, *, format: str | None = None, name: str = "ontology", limits: Limits | None = None) -> Ontology:
    """The records of the document `data`, plain or gzip.

    `format` is a content type, an extension or the name of a syntax; without it the extension of `name` and the first
    characters decide. Nothing is fetched and no file is opened; imports are only listed. Cost: linear in the document.

    Raises UnsupportedFormat, and OntologyError with the line of what cannot be read or the limit that is crossed.

    >>> read(b"<http://e/Laptop> <http://www.w3.org/2000/01/rdf-schema#subClassOf> <http://e/Computer> .").edges
    (('http://e/Laptop', 'http://e/Computer'),)
    """
    limits = limits or Limits()
    plain = inflate(data, limits)
    syntax = syntax_of(plain, format, name)
    base = BASE + quote(name, safe="", errors="replace") + "/"
    document = Document(plain, syntax, base, limits)
    warnings: list[str] = []
    try:
        statements = Statements(document.triples(), limits)
    except OntologyError as strict:
        statements = _read_leniently(document, limits, warnings, strict)
    found = extract(statements, limits)
    if any(each.iri.startswith(base) for each in found.concepts):
        warnings.append(f"the document gives no base for its relative IRIs, which were read relative to {base}")
    return Ontology(
        name=name,
        sha256=hashlib.sha256(data).hexdigest(),
        format=syntax,
        triples=statements.triples,
        concepts=found.concepts,
        edges=found.edges,
        derived=found.derived,
        types=found.types,
        equivalences=found.equivalences,
        properties=found.properties,
        remarks=found.remarks,
        prefixes=tuple(sorted(document.prefixes.items())),
        imports=tuple(sorted(statements.imports)),
        declares=tuple(sorted(node for node, types in statements.types.items() if ns.ONTOLOGY in types)),
        warnings=(*warnings, *found.warnings),
        languages=found.languages,
    )


def _read_leniently(document: Document, limits: Limits, warnings: list[str], strict: OntologyError) -> Statements:
    """A second reading that tolerates odd IRIs and language tags, with the triples about such IRIs left out; when that
    fails too, the first error stands."""
    if strict.line is None:
        raise strict
    odd = _OddNames()
    try:
        statements = Statements(odd.left_out(document.triples(lenient=True)), limits)
    except OntologyError:
        raise strict from None
    left_out = f"; {odd.count} triples with invalid IRIs are left out" if odd.count else ""
    warnings.append(f"{strict}{left_out}")
    return statements


class _OddNames:
    """Counts the triples whose subject or object is an IRI that is none."""

    def __init__(self) -> None:
        self.count = 0

    def left_out(self, quads: Iterator[ox.Quad]) -> Iterator[ox.Quad]:
        for quad in quads:
            if _valid(quad.subject) and _valid(quad.object):
                yield quad
            else:
                self.count += 1


def _valid(term: object) -> bool:
    return not isinstance(term, ox.NamedNode) or _IRI.fullmatch(term.value) is not None
