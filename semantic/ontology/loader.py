"""Reading of ontology documents, from bytes to records: with RDFS entailment, and in a child process.

    read             unpack → detect the syntax → guard → parse → entail (RDFS) → extract
    read_isolated    options, document ──▶ child: read → encode ──bytes──▶ decode ──▶ Ontology

A hostile document that is read in a child process can cause no more than an error.
"""

import hashlib
import re
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, NamedTuple, get_args
from urllib.parse import quote

import pyoxigraph as ox

from kindcast.semantic.errors import OntologyError, UnknownRelation
from kindcast.semantic.ontology import framing
from kindcast.semantic.ontology import namespaces as ns
from kindcast.semantic.ontology.document_readers import Document, RdfDocument, document_of, inflate, seeming, syntax_of
from kindcast.semantic.ontology.extraction import Extracted, Known, RelationSurvey, extract, with_relations
from kindcast.semantic.ontology.isolation import Cost, Isolation, run_isolated
from kindcast.semantic.ontology.reasoning import Axioms, Reasoner, available, axioms_of, classified, classified_encoded
from kindcast.semantic.ontology.records import (
    Limits,
    Ontology,
    Progress,
    Reason,
    RelationRecord,
    counted,
    decode,
    encode,
    silent,
)
from kindcast.semantic.ontology.statements import Statements

__all__ = [
    "entailed",
    "entailed_statements",
    "read",
    "read_encoded",
    "read_isolated",
    "read_several",
    "read_task",
    "read_with_axioms",
]

# ── `reason="rdfs"`: the RDFS entailments of a document ───────────────────────────────────────────────────────────────

#     p subPropertyOf q, x p y  ⇒  x q y         where q is the nearest predicate that reading uses: skos:broader, …
#     p domain C,        x p y  ⇒  x type C      for p and its super-properties
#     p range C,         x p y  ⇒  y type C      for p and its super-properties, if y is an IRI
#
# Subclasses need no rule, because the hierarchy is walked when it is used. The document is read once more, and each
# triple is followed by the triples that it entails. No more is stored than in a reading without entailment. This is
# repeated as long as the entailed triples change the schema, that is, they are about properties. The rules are rdfs2,
# rdfs3, rdfs5 and rdfs7 of W3C, RDF 1.1 Semantics.
#
# Only the nearest predicate is entailed, and none above it. In SKOS, hidden and alternative labels are sub-properties
# of rdfs:label, and must not become preferred labels when SKOS is loaded with a thesaurus.


ENTAILED = 20_000_000
"""The maximum number of entailed triples, as many as may be read. Each costs as much as a triple of the document."""

ROUNDS = 8
"""The maximum number of readings while the entailed triples are about properties. Real documents need one or two. A
chain of sub-properties of rdfs:subPropertyOf needs one reading for each link."""

_TYPE: Final = ox.NamedNode(ns.TYPE)

Triples = Callable[[], Iterable[ox.Quad]]
"""A function that returns all triples of the document, from the start in each call."""


def entailed(found: Extracted, triples: Triples, statements: Statements, limits: Limits) -> Extracted:
    """Returns the records of the document with its RDFS entailments. `found` are the records without them, extracted
    from `statements`. `inferred` of the result are the new pairs; a new type is left out if stated types imply it.
    Raises the errors of `entailed_statements`."""
    closed = entailed_statements(triples, statements, limits)
    if closed is statements:
        return found
    result = extract(closed, limits)
    beneath, same = set(result.edges) - set(found.edges), set(result.equivalences) - set(found.equivalences)
    same |= set(result.matches) - set(found.matches)
    members = Known(result.edges, result.equivalences).memberships(found.types, set(result.types) - set(found.types))
    result.types = tuple(sorted({*found.types, *members}))
    result.inferred = frozenset(beneath | same | members)
    return result


def entailed_statements(triples: Triples, statements: Statements, limits: Limits) -> Statements:
    """Returns the statements of the document with their entailments. `statements` are those without them. The attribute
    `triples` of the result counts only the document's own triples. Cost: one reading of the document for each round,
    usually one or two.

    Raises OntologyError for more than `ENTAILED` entailed triples or `ROUNDS` rounds, and the errors of reading.
    """
    known = _Schema.of(statements)
    if not known.says_anything:
        return statements
    understood = statements.understood
    roomy = replace(limits, triples=2 * limits.triples)  # entailed triples have their own limit
    for _ in range(ROUNDS):
        closed = Statements(_Entailment(known, understood, limits).followed(triples()), roomy)
        closed.triples = statements.triples
        schema = _Schema.of(closed)
        if schema == known:
            return closed
        known = schema
    raise OntologyError(
        f"its properties of properties (sub-properties of rdfs:subPropertyOf, say) go deeper than {ROUNDS} levels; "
        "state what they mean, or load it without reasoning"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Schema:
    """The schema of a document: the super-properties, domains and ranges of its properties."""

    above: dict[str, frozenset[str]]
    domains: dict[str, frozenset[str]]
    ranges: dict[str, frozenset[str]]

    @classmethod
    def of(cls, statements: Statements) -> "_Schema":
        above: defaultdict[str, set[str]] = defaultdict(set)
        for low, high in statements.sub_properties:
            above[low].add(high)
        for predicate, one, other in statements.same:
            if predicate == ns.EQUIVALENT_PROPERTY:
                above[one].add(other)
                above[other].add(one)
        return cls(
            above={low: frozenset(high) for low, high in above.items()},
            domains={each: frozenset(classes) for each, classes in statements.domains.items() if classes},
            ranges={each: frozenset(classes) for each, classes in statements.ranges.items() if classes},
        )

    @property
    def says_anything(self) -> bool:
        return bool(self.above or self.domains or self.ranges)


@dataclass(slots=True)
class _Meaning:
    """The entailments of a triple with one predicate: other predicates, and types of its subject and object."""

    predicates: tuple[ox.NamedNode, ...]
    subject_types: tuple[ox.NamedNode, ...]
    object_types: tuple[ox.NamedNode, ...]


class _Entailment:
    """Computes the entailments of triples under one schema."""

    def __init__(self, schema: _Schema, understood: frozenset[str], limits: Limits) -> None:
        self._schema = schema
        self._understood = understood
        self._most = min(ENTAILED, limits.triples)
        self._meanings: dict[str, _Meaning | None] = {}
        self._work = 0

    def followed(self, quads: Iterable[ox.Quad]) -> Iterator[ox.Quad]:
        meanings = self._meanings
        for quad in quads:
            yield quad
            predicate = quad.predicate.value
            if predicate not in meanings:
                meanings[predicate] = self._meaning(predicate)
            meaning = meanings[predicate]
            if meaning is not None:
                yield from self._entailed(quad, meaning)

    def _entailed(self, quad: ox.Quad, meaning: _Meaning) -> Iterator[ox.Quad]:
        subject, value = quad.subject, quad.object
        for predicate in meaning.predicates:
            self._count(1)
            yield ox.Quad(subject, predicate, value)
        if isinstance(subject, ox.NamedNode):
            for each in meaning.subject_types:
                self._count(1)
                yield ox.Quad(subject, _TYPE, each)
        if isinstance(value, ox.NamedNode):
            for each in meaning.object_types:
                self._count(1)
                yield ox.Quad(value, _TYPE, each)

    def _meaning(self, predicate: str) -> _Meaning | None:
        """Returns the entailments of `predicate` and its super-properties, or None if there are none. Linear in the
        number of super-properties."""
        schema = self._schema
        uppers = self._above(predicate, short_of=frozenset())
        nearest = self._above(predicate, short_of=self._understood) & self._understood
        found = _Meaning(
            predicates=_nodes(nearest - {predicate}),
            subject_types=_nodes(each for upper in uppers for each in schema.domains.get(upper, ())),
            object_types=_nodes(each for upper in uppers for each in schema.ranges.get(upper, ())),
        )
        return found if found.predicates or found.subject_types or found.object_types else None

    def _above(self, predicate: str, *, short_of: frozenset[str]) -> set[str]:
        """Returns `predicate` and its super-properties, without those that are only above a name in `short_of`."""
        uppers = {predicate}
        frontier = [predicate]
        while frontier:
            lower = frontier.pop()
            if lower in short_of:
                continue
            for upper in self._schema.above.get(lower, ()):
                self._count(1)
                if upper not in uppers:
                    uppers.add(upper)
                    frontier.append(upper)
        return uppers

    def _count(self, steps: int) -> None:
        self._work += steps
        if self._work > self._most:
            raise OntologyError(
                f"more than {self._most:,} triples follow from its sub-properties, domains and ranges; "
                "load it without reasoning, or in parts"
            )


def _nodes(names: Iterable[str]) -> tuple[ox.NamedNode, ...]:
    return tuple(ox.NamedNode(name) for name in sorted(set(names)))


BASE = "https://kindcast.dev/ontologies/"  # the base of relative IRIs in documents that declare no base

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
    """Returns the records of the document `data`, which is plain or gzip. `reason` selects the reasoning that adds to
    the stated triples. `relations` (IRIs, CURIEs, local names or labels; `transitive` means all transitive ones) are
    read as hierarchies of their own.

    `format` is a content type, an extension or the name of a syntax. Without it, the extension of `name` and the first
    characters decide. Nothing is fetched and no file is opened. Imports are only listed. Cost: linear in the document,
    except for `reason="owl"`, which runs `reasoner` in a process of its own.

    Raises ValueError for another `reason`; UnsupportedFormat; OntologyError with the line of the error, or for a limit;
    UnknownRelation; ReasonerUnavailable.

    >>> read(b"<http://e/Laptop> <http://www.w3.org/2000/01/rdf-schema#subClassOf> <http://e/Computer> .").edges
    (('http://e/Laptop', 'http://e/Computer'),)
    """
    _check_asked(reason, relations)
    if reason == "owl":
        available(reasoner)  # before anything is read
    ontology, axioms = read_with_axioms(
        data, format=format, name=name, limits=limits, reason=reason, relations=relations, progress=progress
    )
    if axioms is None:
        return ontology
    return classified(ontology, axioms, reasoner=reasoner, progress=progress)


def _check_asked(reason: str, relations: object) -> None:
    """Raises `ValueError` or `TypeError` for a misspelt level of reasoning, which would mean none, and for one name in
    place of several, which would mean its letters."""
    if reason not in get_args(Reason):
        raise ValueError(f"reason is one of {', '.join(get_args(Reason))}, not {reason!r}")
    if isinstance(relations, str):
        raise TypeError(f"relations are several names: write [{relations!r}]")


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
    """Reads a document like `read`, but runs no reasoner. With `reason="owl"`, the records have only the entailments of
    RDFS, and the axioms for the reasoner are returned too; otherwise the axioms are None."""
    limits = limits or Limits()
    progress("unpack", 0, None)
    plain = inflate(data, limits)
    syntax = syntax_of(plain, format, name)
    base = BASE + quote(name, safe="", errors="replace") + "/"
    with seeming(plain, syntax):
        document = document_of(plain, syntax, base, limits)
        statements, survey, triples, warnings = _parsed(document, limits, progress, surveys=bool(relations))
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
        declares=statements.ontologies,
        warnings=(*warnings, *found.warnings),
        languages=found.languages,
        relations=requested,
        reason=reason,
        inferred=found.inferred,
    )
    return ontology, axioms


class _Parsed(NamedTuple):
    """The statements of a document, the predicates that may be relations, and a function that reads the triples again
    in the same way."""

    statements: Statements
    survey: RelationSurvey
    triples: Triples
    warnings: list[str]


def _parsed(document: Document, limits: Limits, progress: Progress, *, surveys: bool) -> _Parsed:
    survey = RelationSurvey()
    try:
        quads = counted(document.triples(), progress, "parse")
        statements = Statements(survey.noting(quads) if surveys else quads, limits)
    except OntologyError as error:
        return _leniently_parsed(document, limits, error)
    return _Parsed(statements, survey, document.triples, [])


def _leniently_parsed(document: Document, limits: Limits, strict: OntologyError) -> _Parsed:
    """Reads the document again and tolerates invalid IRIs and language tags. Triples with an invalid IRI are left out.
    If this fails too, the first error is raised."""
    if strict.line is None or not isinstance(document, RdfDocument):
        raise strict
    odd, survey = _OddNames(), RelationSurvey()
    try:
        statements = Statements(survey.noting(odd.left_out(document.triples(lenient=True))), limits)
    except OntologyError:
        raise strict from None
    count = "1 triple with an invalid IRI is" if odd.count == 1 else f"{odd.count} triples with invalid IRIs are"
    left_out = f"; {count} left out" if odd.count else ""
    return _Parsed(
        statements, survey, lambda: _OddNames().left_out(document.triples(lenient=True)), [f"{strict}{left_out}"]
    )


class _OddNames:
    """Leaves out the triples whose subject or object is an invalid IRI, and counts them."""

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


# Reading of several documents for one vocabulary, with the same requested relations.


def read_several(
    documents: Iterable[tuple[str, bytes]],
    *,
    limits: Limits | None = None,
    reason: Reason = "none",
    relations: Sequence[str] = (),
) -> list[Ontology]:
    """Returns the records of each (name, document). Each of `relations` must be in at least one document. A document
    that lacks some of them is read twice. Raises the errors of `read`."""
    _check_asked(reason, relations)
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


# ── reading in a child process ───────────────────────────────────────────────────────────────────────────────────────


def read_isolated(
    data: bytes,
    *,
    format: str | None = None,
    name: str = "ontology",
    limits: Limits | None = None,
    reason: Reason = "none",
    relations: Sequence[str] = (),
    reasoner: Reasoner | None = None,
    isolation: Isolation | None = None,
    progress: Progress | None = None,
    cancelled: threading.Event | None = None,
    account: Callable[[Cost], None] | None = None,
) -> Ontology:
    """Reads the document `data` in a child process within `isolation`, and returns the same records as `read`.

    Blocks. Any number of threads may call it at the same time. Cost: the reading, and the start of a child (tenths of
    a second).

    Raises the errors of `read`; TooCostly for a limit of `isolation` or a crash; Cancelled; RuntimeError if no child
    can be started.
    """
    encoded = read_encoded(
        data,
        format=format,
        name=name,
        limits=limits,
        reason=reason,
        relations=relations,
        reasoner=reasoner,
        isolation=isolation,
        progress=progress,
        cancelled=cancelled,
        account=account,
    )
    return decode(encoded)


def read_encoded(
    data: bytes,
    *,
    format: str | None = None,
    name: str = "ontology",
    limits: Limits | None = None,
    reason: Reason = "none",
    relations: Sequence[str] = (),
    reasoner: Reasoner | None = None,
    isolation: Isolation | None = None,
    progress: Progress | None = None,
    cancelled: threading.Event | None = None,
    account: Callable[[Cost], None] | None = None,
) -> bytes:
    """Does the same as `read_isolated`, but returns the records encoded for `decode`, the form in which they are
    stored."""
    options: dict[str, Any] = {"format": format, "name": name, "limits": asdict(limits or Limits())}
    options |= {"reason": reason} if reason != "none" else {}
    options |= {"relations": list(relations)} if relations else {}
    if reason == "owl":
        available(reasoner)  # before anything is read
    answer = run_isolated(
        f"{__name__}:{read_task.__name__}",
        framing.joined(framing.packed(options), data),
        isolation,
        progress=progress,
        cancelled=cancelled,
        account=account,
    )
    if reason != "owl":
        return answer
    encoded, axioms = framing.parted(answer)
    return classified_encoded(
        encoded,
        Axioms.unpacked(axioms),
        reasoner=reasoner,
        progress=progress,
        cancelled=cancelled,
        account=account,
    )


def read_task(payload: bytes, progress: Progress) -> bytes:
    """The task of the child: from (options, document) to encoded records. With `reason="owl"` the result also has the
    axioms for a reasoner, which runs in another child. This child may not start Java, and the other one does not get
    the document."""
    told, document = framing.parted(payload)
    options = framing.unpacked(told)
    options["limits"] = Limits(**options["limits"])
    del payload
    ontology, axioms = read_with_axioms(document, progress=progress, **options)
    progress("encode", 0, None)
    encoded = encode(ontology)
    return encoded if axioms is None else framing.joined(encoded, axioms.packed())
