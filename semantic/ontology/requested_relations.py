"""Requested relations: which relation a name means, and its edges in a document. docs/matching-semantics.md, rule 11.

    names ──▶ relations ──▶ properties whose statements count ──▶ edges
              part_of       part_of, its sub-properties; has_part, backwards

An edge A R B comes from a triple `A R B`, from a restriction above A (`A subClassOf (R some B)`, also as a conjunct of
a definition, also `R value b`), and from a triple `B S A` where S is the inverse of R. A restriction on S is no edge of
R: that every hand is part of a body does not say that every body has a hand.

A name is resolved by levels, as terms are, when a document is uploaded and when a subscription is compiled:

iri     the IRI itself
short   CURIE (`brick:hasPart`), short form (`BFO_0000050`, `BFO:0000050`), local name (`hasPart`)
label   any label, folded: NFKC, case, white space, and `_` as a blank, as OBO writes labels (`part_of`)
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyoxigraph as ox

from kindcast.semantic.errors import OntologyError, UnknownRelation
from kindcast.semantic.ontology import namespaces as ns
from kindcast.semantic.ontology.extraction import Extracted, languages_of
from kindcast.semantic.ontology.iris import local_name
from kindcast.semantic.ontology.records import ConceptRecord, Label, Limits, RelationRecord
from kindcast.semantic.ontology.relation_names import RelationNames
from kindcast.semantic.ontology.statements import Statements
from kindcast.semantic.ontology.subsumption import Pairs, Subsumptions

__all__ = ["RelationSurvey", "with_relations"]


# What a document says that matters to relations only, noted while its triples pass by on their way to `Statements`.
#
# Class expressions are blank nodes, whose names may be others when the document is read again; so restrictions are
# noted
# in the same pass as the lists and pairs that lead to them. Triples between names can wait for a second pass.

_NOTED: Final = frozenset({ns.ON_PROPERTY, ns.SOME_VALUES, ns.HAS_VALUE, ns.INVERSE_OF, ns.SHORTHAND})


class RelationSurvey:
    """`used` counts the triples between names by predicate; `on` has the property of each restriction, `fillers` what
    it needs some of; `inverses` are pairs of properties, one of which may be a blank node; `shorthands` are what an OBO
    file calls its relations. Cost: one look-up a triple."""

    def __init__(self) -> None:
        self.used: Counter[str] = Counter()
        self.on: dict[str, str] = {}
        self.fillers: defaultdict[str, set[str]] = defaultdict(set)
        self.inverses: set[tuple[str, str]] = set()
        self.shorthands: defaultdict[str, set[str]] = defaultdict(set)

    def noting(self, quads: Iterable[ox.Quad]) -> Iterator[ox.Quad]:
        """`quads`, each noted before it is handed on."""
        for quad in quads:
            subject, value = quad.subject, quad.object
            predicate = quad.predicate.value
            if predicate in _NOTED:
                self._note(node_of(subject), predicate, value)
            elif isinstance(value, ox.NamedNode) and isinstance(subject, ox.NamedNode):
                self.used[predicate] += 1
            yield quad

    def _note(self, subject: str, predicate: str, value: object) -> None:
        if predicate == ns.SHORTHAND:
            if isinstance(value, ox.Literal) and value.value.strip():
                self.shorthands[subject].add(value.value.strip())
            return
        other = node_of(value)
        if not subject or not other:
            return
        if predicate == ns.ON_PROPERTY:
            self.on[subject] = other
        elif predicate == ns.INVERSE_OF:
            self.inverses.add((subject, other))
        else:
            self.fillers[subject].add(other)


def node_of(term: object) -> str:
    """A name as it is, a blank node as `_:…`; the empty string for anything else."""
    if isinstance(term, ox.NamedNode):
        return term.value
    return "_:" + term.value if isinstance(term, ox.BlankNode) else ""


TRANSITIVE = "transitive"
"""What is asked for to get every `owl:TransitiveProperty`."""

MOST = 256
"""Relations of one document: each may become a layer of the hierarchy. RO itself has some fifty transitive ones."""

LISTED = 20
"""Relations that an error lists, those with most statements first."""

Triples = Callable[[], Iterable[ox.Quad]]


def with_relations(
    asked: Sequence[str],
    survey: RelationSurvey,
    statements: Statements,
    triples: Triples,
    prefixes: Mapping[str, str],
    found: Extracted,
    limits: Limits,
) -> tuple[tuple[RelationRecord, ...], Extracted]:
    """The relations that are `asked` for, and `found` with the names that only they lead to as concepts.

    Cost: the class expressions once more, and where triples between names state edges, the document once more. Raises
    UnknownRelation, with what there is, and OntologyError where a limit is crossed.
    """
    document = _Document(survey, statements, found)
    iris = _meant(asked, document, prefixes)
    counted = {iri: document.counting(iri) for iri in iris}
    facts = _facts(counted, triples, document, limits)
    derived = _derived(counted, document, statements, limits)
    records = tuple(
        RelationRecord(
            iri=iri,
            labels=document.labels(iri),
            edges=tuple(sorted(facts[iri] | derived[iri])),
            derived=frozenset(derived[iri] - facts[iri]),
            narrower=tuple(sorted(each for each in counted[iri].forward - {iri} if each[:2] != "_:")),
            inverses=tuple(sorted(each for each in counted[iri].backward if each[:2] != "_:")),
        )
        for iri in iris
    )
    if sum(len(each.edges) for each in records) > limits.edges:
        raise _too_many(limits)
    return records, _with_ends(found, records, {node for pairs in facts.values() for pair in pairs for node in pair})


@dataclass(frozen=True, slots=True)
class _Counting:
    """Properties whose statements are edges of one relation, as they stand and backwards."""

    forward: frozenset[str]
    backward: frozenset[str]


class _Document:
    """The properties of one document."""

    def __init__(self, survey: RelationSurvey, statements: Statements, found: Extracted) -> None:
        self.survey = survey
        self._statements = statements
        self._concepts = {record.iri for record in found.concepts}
        self._properties = {record.iri for record in found.properties}
        understood = statements.understood
        declared = {node for node, types in statements.types.items() if types & _RELATION_TYPES}
        named = {*self._properties, *declared, *survey.used, *survey.on.values()}
        self.known = sorted(iri for iri in named if iri not in understood and _may_be_asked(iri))
        self._lower: dict[str, set[str]] = {}
        for low, high in statements.sub_properties:
            self._lower.setdefault(high, set()).add(low)
        for predicate, one, other in statements.same:
            if predicate == ns.EQUIVALENT_PROPERTY:
                self._lower.setdefault(one, set()).add(other)
                self._lower.setdefault(other, set()).add(one)
        self._inverse: dict[str, set[str]] = {}
        for one, other in survey.inverses:
            self._inverse.setdefault(one, set()).add(other)
            self._inverse.setdefault(other, set()).add(one)
        for node, types in statements.types.items():
            if ns.SYMMETRIC in types:
                self._inverse.setdefault(node, set()).add(node)

    @property
    def transitive(self) -> list[str]:
        types = self._statements.types
        return [iri for iri in self.known if ns.TRANSITIVE in types.get(iri, ())]

    def labels(self, iri: str) -> tuple[Label, ...]:
        statements = self._statements
        texts = statements.preferred.get(iri) | statements.alternative.get(iri)
        texts |= {(text, None) for text in self.survey.shorthands.get(iri, ())}
        return tuple(sorted(texts, key=lambda label: (label[1] or "", label[0])))

    def counting(self, iri: str) -> _Counting:
        """What counts as `iri`: sub-properties; of an inverse, its sub-properties backwards. Linear in what it
        finds."""
        seen = {(iri, False)}
        frontier = [(iri, False)]
        while frontier:
            node, backwards = frontier.pop()
            further = [(low, backwards) for low in self._lower.get(node, ())]
            further += [(other, not backwards) for other in self._inverse.get(node, ())]
            for each in further:
                if each not in seen:
                    seen.add(each)
                    frontier.append(each)
        return _Counting(
            frozenset(node for node, backwards in seen if not backwards),
            frozenset(node for node, backwards in seen if backwards),
        )

    def is_end(self, node: str) -> bool:
        """Whether an edge may lead from or to `node`: a name, and no part of the schema."""
        if not node or node.startswith("_:") or ns.is_vocabulary(node):
            return False
        if node in self._concepts:
            return True
        return node not in self._properties and not self._statements.types.get(node, set()) & ns.NOT_CONCEPT_TYPES

    def weights(self) -> Counter[str]:
        """How many statements use each property, for the order of a list."""
        return self.survey.used + Counter(self.survey.on.values())


_RELATION_TYPES = frozenset({*ns.PROPERTY_TYPES, ns.ANNOTATION_PROPERTY})


def _may_be_asked(iri: str) -> bool:
    """Names of properties that are no words of RDF itself; those of SKOS lead from concept to concept, too."""
    return bool(iri) and iri[:2] != "_:" and (not ns.is_vocabulary(iri) or iri.startswith(ns.SKOS_NAMESPACE))


def _meant(asked: Sequence[str], document: _Document, prefixes: Mapping[str, str]) -> list[str]:
    """The IRIs of the relations that are asked for, sorted."""
    spaces = {*prefixes.items(), *ns.WELL_KNOWN_PREFIXES.items()}
    names = RelationNames({iri: [text for text, _ in document.labels(iri)] for iri in document.known}, spaces)
    iris: set[str] = set()
    missing = []
    for name in asked:
        meant = document.transitive if name == TRANSITIVE else list(names.meant(name))
        if not meant:
            missing.append(name)
        elif len(meant) > 1 and name != TRANSITIVE:
            raise UnknownRelation(f"{name!r} may mean several relations: write one of {', '.join(meant[:LISTED])}")
        iris.update(meant)
    if missing:
        raise UnknownRelation(_not_there(missing, names, document), missing=tuple(missing))
    if len(iris) > MOST:
        raise OntologyError(f"{len(iris)} relations are requested; at most {MOST} are allowed for one document")
    return sorted(iris)


def _not_there(missing: list[str], names: RelationNames, document: _Document) -> str:
    text = f"the document has no relation with the name {', '.join(map(repr, missing[:LISTED]))}"
    if missing == [TRANSITIVE]:
        text = "the document declares no owl:TransitiveProperty"
    near = [each for name in missing for each in names.near(name, 2)]
    if near:
        text += f"; near: {', '.join(near)}"
    weights = document.weights()
    has = sorted((iri for iri in document.known if weights[iri]), key=lambda iri: (-weights[iri], iri))
    if not has:
        return f"{text}; it has no relations"
    listed = ", ".join(f"{local_name(iri)} ({_label(document, iri)}{weights[iri]})" for iri in has[:LISTED])
    more = f" and {len(has) - LISTED} more" if len(has) > LISTED else ""
    return f"{text}; it has (with their statements) {listed}{more}"


def _label(document: _Document, iri: str) -> str:
    texts = [text for text, _ in document.labels(iri)]
    return f"{texts[0]}: " if texts and texts[0] != local_name(iri) else ""


def _facts(counted: Mapping[str, _Counting], triples: Triples, document: _Document, limits: Limits) -> dict[str, Pairs]:
    """The edges that triples between names state, by relation."""
    facts: dict[str, Pairs] = {iri: set() for iri in counted}
    ahead: dict[str, list[Pairs]] = {}
    back: dict[str, list[Pairs]] = {}
    for iri, counting in counted.items():
        for each in counting.forward:
            ahead.setdefault(each, []).append(facts[iri])
        for each in counting.backward:
            back.setdefault(each, []).append(facts[iri])
    if not any(document.survey.used[each] for each in {*ahead, *back}):
        return facts
    work = 0
    for quad in triples():
        predicate = quad.predicate.value
        if predicate not in ahead and predicate not in back:
            continue
        subject, value = quad.subject, quad.object
        if not (isinstance(subject, ox.NamedNode) and isinstance(value, ox.NamedNode)):
            continue
        one, other = subject.value, value.value
        if document.is_end(one) and document.is_end(other):
            for pairs in ahead.get(predicate, ()):
                pairs.add((one, other))
            for pairs in back.get(predicate, ()):
                pairs.add((other, one))
            work += len(ahead.get(predicate, ())) + len(back.get(predicate, ()))
            if work > 4 * limits.edges:  # the same edge may be stated in both directions, and several times
                raise _too_many(limits)
    return facts


def _derived(
    counted: Mapping[str, _Counting], document: _Document, statements: Statements, limits: Limits
) -> dict[str, Pairs]:
    """The edges that class expressions state, by relation."""
    derived: dict[str, Pairs] = {iri: set() for iri in counted}
    survey = document.survey
    restrictions = {node for node in survey.on if survey.fillers.get(node)}
    if not restrictions:
        return derived
    subsumptions = Subsumptions(statements, limits)
    for name, expressions in subsumptions.expressions():
        if document.is_end(name) and not restrictions.isdisjoint(expressions):
            for iri, counting in counted.items():
                ends = _ends(expressions & restrictions, counting.forward, survey, subsumptions)
                derived[iri].update((name, end) for end in ends if document.is_end(end))
    return derived


def _ends(
    restrictions: Iterable[str], forward: frozenset[str], survey: RelationSurvey, subsumptions: Subsumptions
) -> Iterator[str]:
    """The names to which `restrictions` lead by properties of `forward`, also through fillers that are themselves
    expressions: `R some (B and (R some C))` leads to B, and by two steps to C. A filler is looked at once."""
    seen: set[str] = set()
    frontier = list(restrictions)
    while frontier:
        node = frontier.pop()
        if survey.on.get(node) not in forward:
            continue
        for filler in survey.fillers.get(node, ()):
            if filler in seen:
                continue
            seen.add(filler)
            if not filler.startswith("_:"):
                yield filler
                continue
            yield from subsumptions.named_above(filler)
            frontier.extend(subsumptions.through((filler,)))


def _too_many(limits: Limits) -> OntologyError:
    return OntologyError(f"the relations have more than {limits.edges:,} edges, the limit")


def _with_ends(found: Extracted, records: Iterable[RelationRecord], in_facts: set[str]) -> Extracted:
    """`found` with every end of an edge among its concepts. What stands in triples is a thing of its own, and so
    declared; what a restriction refers to is a class that stands elsewhere."""
    known = {record.iri for record in found.concepts}
    ends = {end for record in records for edge in record.edges for end in edge} - known
    if not ends:
        return found
    told = {record.iri: record for record in found.remarks}
    new = [
        replace(
            told.get(iri) or ConceptRecord(iri=iri),
            kind="individual" if iri in in_facts else "class",
            declared=iri in in_facts,
        )
        for iri in ends
    ]
    concepts = tuple(sorted([*found.concepts, *new], key=lambda record: record.iri))
    remarks = tuple(record for record in found.remarks if record.iri not in ends)
    return replace(found, concepts=concepts, remarks=remarks, languages=languages_of(concepts))
