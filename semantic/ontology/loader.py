"""One call from a document's bytes to its records: unpack → recognise → guard → parse → entail (RDFS) → extract."""

import hashlib
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import quote

import pyoxigraph as ox

from kindcast.semantic.errors import OntologyError, UnknownRelation
from kindcast.semantic.ontology import namespaces as ns
from kindcast.semantic.ontology.extraction import Extracted, Known, RelationSurvey, extract, with_relations
from kindcast.semantic.ontology.formats import Document, RdfDocument, document_of, inflate, syntax_of
from kindcast.semantic.ontology.reasoning.axioms import Axioms, axioms_of
from kindcast.semantic.ontology.reasoning.owl import Reasoner, available, classified
from kindcast.semantic.ontology.records import Limits, Ontology, Progress, Reason, RelationRecord, counted, silent
from kindcast.semantic.ontology.statements import Statements

__all__ = [
    "entailed",
    "entailed_statements",
    "read",
    "read_several",
    "read_with_axioms",
]

# ── `reason="rdfs"`: what a document says by the rules of RDFS beyond its triples ─────────────────────────────────────

#     p subPropertyOf q, x p y  ⇒  x q y         where q is the nearest word that reading knows: skos:broader, …
#     p domain C,        x p y  ⇒  x type C      for p and everything above it
#     p range C,         x p y  ⇒  y type C      likewise, where y is a name
#
# What is beneath a subclass needs no rule: the hierarchy is walked anyway. The document is read once more, each triple
# followed by what it entails, and nothing is kept but what reading keeps; again, as long as what was entailed is itself
# about properties. W3C, RDF 1.1 Semantics, rules rdfs2, rdfs3, rdfs5 and rdfs7.
#
# The nearest word, and none above it: SKOS itself has hidden and alternative labels beneath rdfs:label, and who loads
# it with a thesaurus does not want them to become preferred ones.


ENTAILED = 20_000_000
"""Triples that may follow: as many as are read at most. Each costs what a triple of the document costs."""

ROUNDS = 8
"""Readings while entailed triples are about properties themselves. Real documents need one or two; a chain of
sub-properties of rdfs:subPropertyOf needs one a link."""

_TYPE: Final = ox.NamedNode(ns.TYPE)

Triples = Callable[[], Iterable[ox.Quad]]
"""Gives all triples of the document, afresh each time."""


def entailed(found: Extracted, triples: Triples, statements: Statements, limits: Limits) -> Extracted:
    """The records of the document with what it entails: `found` are those without, from `statements`. `inferred` are
    the pairs that are new, and types only where stated ones do not imply them. Raises as `entailed_statements`."""
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
    """The statements of the document with what they entail; `statements` are those without, `triples` counts the
    document's own. Cost: one reading of the document a round, mostly one or two.

    Raises OntologyError beyond `ENTAILED` entailed triples or `ROUNDS` rounds, and what reading raises.
    """
    known = _Schema.of(statements)
    if not known.says_anything:
        return statements
    understood = statements.understood
    roomy = replace(limits, triples=2 * limits.triples)  # the entailed ones have their own limit
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
    """What a document says about properties."""

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
    """What follows from the use of one property."""

    predicates: tuple[ox.NamedNode, ...]
    subject_types: tuple[ox.NamedNode, ...]
    object_types: tuple[ox.NamedNode, ...]


class _Entailment:
    """Triples followed by those that they entail under one schema."""

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
        """What follows from `predicate` and everything above it; None if nothing does. Cost: the properties above."""
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
        """`predicate` and what is above it, and nothing above a name in `short_of`."""
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
