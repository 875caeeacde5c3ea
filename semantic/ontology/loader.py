"""One call from a document's bytes to its records: unpack → recognise → guard → parse → collect → extract."""

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from urllib.parse import quote

import pyoxigraph as ox

from kindcast.semantic.errors import OntologyError, UnknownRelation
from kindcast.semantic.ontology import namespaces as ns
from kindcast.semantic.ontology.extraction import extract
from kindcast.semantic.ontology.formats import Document, RdfDocument, document_of, inflate, syntax_of
from kindcast.semantic.ontology.reasoning.axioms import Axioms, axioms_of
from kindcast.semantic.ontology.reasoning.owl import Reasoner, available, classified
from kindcast.semantic.ontology.reasoning.rdfs import entailed
from kindcast.semantic.ontology.records import Limits, Ontology, Progress, Reason, RelationRecord, counted, silent
from kindcast.semantic.ontology.requested_relations import RelationSurvey, with_relations
from kindcast.semantic.ontology.statements import Statements

__all__ = ["read", "read_several", "read_with_axioms"]


BASE = "https://kindcast.dev/ontologies/"  # what relative IRIs are relative to, where the document does not say

_IRI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[^\x00-\x20<>\"{}|^`\\\x7f\ud800-\udfff]*")


def read(
    data: bytes,
    *,
    format: str | None = None,
    name: str = "ontology",
    limits: Limits | None = None,
    reason: Reason = "none",
    relations: Sequence[str] = (),
    reasoner: Reasoner | None = None,
    progress: Progress = silent,
) -> Ontology:
    """The records of the document `data`, plain or gzip, with what `reason` adds to what it states, and with those
    `relations` as hierarchies of their own (IRIs, CURIEs, local names or labels; `transitive` for all such).

    `format` is a content type, an extension or the name of a syntax; without it the extension of `name` and the first
    characters decide. Nothing is fetched and no file is opened; imports are only listed. Cost: linear in the document,
    but for `reason="owl"`, which runs `reasoner` in a process of its own.

    Raises UnsupportedFormat, OntologyError with the line of what cannot be read or the limit that is crossed,
    UnknownRelation and ReasonerUnavailable.

    >>> read(b"<http://e/Laptop> <http://www.w3.org/2000/01/rdf-schema#subClassOf> <http://e/Computer> .").edges
    (('http://e/Laptop', 'http://e/Computer'),)
    """
    if reason == "owl":
        available(reasoner)  # before anything is read
    ontology, axioms = read_with_axioms(
        data, format=format, name=name, limits=limits, reason=reason, relations=relations, progress=progress
    )
    if axioms is None:
        return ontology
    return classified(ontology, axioms, reasoner=reasoner, progress=progress)


def read_with_axioms(
    data: bytes,
    *,
    format: str | None = None,
    name: str = "ontology",
    limits: Limits | None = None,
    reason: Reason = "none",
    relations: Sequence[str] = (),
    progress: Progress = silent,
) -> tuple[Ontology, Axioms | None]:
    """The same, but with `reason="owl"` only as far as RDFS goes, and with the axioms that are left to a reasoner."""
    limits = limits or Limits()
    progress("unpack", 0, None)
    plain = inflate(data, limits)
    syntax = syntax_of(plain, format, name)
    base = BASE + quote(name, safe="", errors="replace") + "/"
    document = document_of(plain, syntax, base, limits)
    warnings: list[str] = []
    triples = document.triples
    survey = RelationSurvey()
    try:
        quads = counted(triples(), progress, "parse")
        statements = Statements(survey.noting(quads) if relations else quads, limits)
    except OntologyError as strict:
        survey = RelationSurvey()
        statements, triples = _read_leniently(document, limits, warnings, strict, survey)
    progress("extract", 0, None)
    found = extract(statements, limits)
    warnings += document.warnings
    axioms = None
    if reason != "none":
        progress("reason", 0, None)
        axioms = axioms_of(triples, statements) if reason == "owl" else None
        found = entailed(found, triples, statements, limits)
    requested: tuple[RelationRecord, ...] = ()
    if relations:
        progress("relations", 0, None)
        requested, found = with_relations(relations, survey, statements, triples, document.prefixes, found, limits)
    if any(each.iri.startswith(base) for each in found.concepts):
        warnings.append(f"the document has relative IRIs but no base; they were read relative to {base}")
    ontology = Ontology(
        name=name,
        sha256=hashlib.sha256(data).hexdigest(),
        format=syntax,
        triples=statements.triples,
        concepts=found.concepts,
        edges=found.edges,
        derived=found.derived,
        types=found.types,
        equivalences=found.equivalences,
        matches=found.matches,
        properties=found.properties,
        remarks=found.remarks,
        prefixes=tuple(sorted(document.prefixes.items())),
        imports=tuple(sorted(statements.imports)),
        declares=tuple(
            sorted(node for node, types in statements.types.items() if ns.ONTOLOGY in types and node[:2] != "_:")
        ),
        warnings=(*warnings, *found.warnings),
        languages=found.languages,
        relations=requested,
        reason=reason,
        inferred=found.inferred,
    )
    return ontology, axioms


def _read_leniently(
    document: Document, limits: Limits, warnings: list[str], strict: OntologyError, survey: RelationSurvey
) -> tuple[Statements, Callable[[], Iterator[ox.Quad]]]:
    """A second reading that tolerates odd IRIs and language tags, with the triples about such IRIs left out, and how to
    read it so again; when that fails too, the first error stands."""
    if strict.line is None or not isinstance(document, RdfDocument):
        raise strict
    odd = _OddNames()
    try:
        statements = Statements(survey.noting(odd.left_out(document.triples(lenient=True))), limits)
    except OntologyError:
        raise strict from None
    left_out = f"; {odd.count} triples with invalid IRIs are left out" if odd.count else ""
    warnings.append(f"{strict}{left_out}")
    return statements, lambda: _OddNames().left_out(document.triples(lenient=True))


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


# Several documents that become one vocabulary, and share the relations that are asked for.


def read_several(
    documents: Iterable[tuple[str, bytes]],
    *,
    limits: Limits | None = None,
    reason: Reason = "none",
    relations: Sequence[str] = (),
) -> list[Ontology]:
    """The records of each (name, document); each of `relations` must be in one of them at least. A document that lacks
    some of them is read twice. Raises what `read` raises."""
    ontologies: list[Ontology] = []
    refusals: dict[str, list[str]] = {name: [] for name in relations}
    for name, data in documents:
        asked = list(relations)
        while True:
            try:
                ontologies.append(read(data, name=name, limits=limits, reason=reason, relations=asked))
                break
            except UnknownRelation as error:
                if not error.missing:
                    raise  # an ambiguous name
                asked = [each for each in asked if each not in error.missing]
                for each in error.missing:
                    refusals[each].append(f"{name}: {error.detail}")
    for relation, told in refusals.items():
        if len(told) == len(ontologies) > 0:
            detail = f"no document has a relation with the name {relation!r}; {'; '.join(told)}"
            raise UnknownRelation(detail, missing=(relation,))
    return ontologies
