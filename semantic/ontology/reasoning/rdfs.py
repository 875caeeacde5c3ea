"""`reason="rdfs"`: what a document says by the rules of RDFS beyond its triples, as far as it means anything here.

    p subPropertyOf q, x p y  ⇒  x q y          where q is the nearest word that reading knows: skos:broader, rdfs:label
    p domain C,        x p y  ⇒  x type C       for p and everything above it
    p range C,         x p y  ⇒  y type C       likewise, where y is a name

What is beneath a subclass needs no rule: the hierarchy is walked anyway. The document is read once more, each triple
followed by what it entails, and nothing is kept but what reading keeps; again, as long as what was entailed is itself
about properties. W3C, RDF 1.1 Semantics, rules rdfs2, rdfs3, rdfs5 and rdfs7.

The nearest word, and none above it: SKOS itself has hidden and alternative labels beneath rdfs:label, and who loads it
with a thesaurus does not want them to become preferred ones.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final

import pyoxigraph as ox

from kindcast.semantic.errors import OntologyError
from kindcast.semantic.ontology import namespaces as ns
from kindcast.semantic.ontology.extraction import Extracted, extract
from kindcast.semantic.ontology.records import Limits
from kindcast.semantic.ontology.statements import Statements
from kindcast.semantic.ontology.subsumption import Known

__all__ = ["entailed", "entailed_statements"]

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
