"""Extraction of records from statements: concepts, their labels, the hierarchy, and the requested relations."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import pyoxigraph as ox

from kindcast.semantic.errors import OntologyError, UnknownRelation
from kindcast.semantic.ontology import namespaces as ns
from kindcast.semantic.ontology.records import (
    ConceptKind,
    ConceptRecord,
    Label,
    Limits,
    PropertyRecord,
    RelationNames,
    RelationRecord,
    local_name,
    sorted_labels,
)
from kindcast.semantic.ontology.statements import NO_TYPES, Statements

__all__ = [
    "Extracted",
    "Known",
    "Pairs",
    "RelationSurvey",
    "Subsumptions",
    "extract",
    "languages_of",
    "serves",
    "with_relations",
]

# ── the hierarchy of names: the stated pairs, and those that follow from class expressions without a reasoner ───────

# Class expressions are blank nodes. Each of these statements makes one step upwards. A path of steps from name to name
# through blank nodes only is a pair that every reasoner would find too:
#
#     A subClassOf B                      A → B
#     A equivalentClass _:x               A → _:x, _:x → A
#     x intersectionOf (B C _:y)          x → B, x → C, x → _:y
#     x unionOf (B C)                     B → x, C → x
#     x oneOf (a b)                       a ⇒ x, b ⇒ x
#     a type _:x                          a ⇒ _:x
#
# So `A ≡ B ⊓ (R some C)` puts A beneath B; restrictions themselves have no steps upwards. A double arrow is the step of
# an individual to its class, which is taken once, at the start. All pairs found are right, but not all right pairs are
# found: that needs `reason="owl"`.
#
# `Known` walks upwards by name, to separate new pairs from pairs that the records of a document imply already.


Pairs = set[tuple[str, str]]

DERIVED = 2_000_000
"""The maximum number of steps through class expressions. Real ontologies need one or two per class, but expressions can
be shared, and then the steps multiply."""


class Subsumptions:
    """The hierarchy of one document, from its structure alone: pairs (narrower, broader) of names, without loops.

    `stated` are the pairs that a triple states, `derived` the pairs that follow, and `members` the (individual, class)
    pairs that follow. Cost: linear in the statements and the steps. Raises OntologyError if there are more than
    `limits.edges` stated pairs or more than `DERIVED` steps.
    """

    def __init__(self, statements: Statements, limits: Limits) -> None:
        self.stated: Pairs = {
            (low, high) for low, high in statements.broader if _named(low) and _named(high) and low != high
        }
        if len(self.stated) > limits.edges:
            raise OntologyError(f"the hierarchy has more than {limits.edges:,} pairs, the limit")
        lists = _Lists(statements)
        self._upwards = _steps(statements, lists)
        self._expressed = _expressed(statements, lists)
        self._work = 0
        self.derived: Pairs = {
            (name, above) for name in self._upwards if _named(name) for above in self._reached(name, (name,))
        } - self.stated
        self.members: Pairs = {
            (individual, above)
            for individual, expressions in self._expressed.items()
            for above in self._reached(individual, expressions - {individual})
        }

    def expressions(self) -> Iterator[tuple[str, set[str]]]:
        """Yields each name with the class expressions (blank nodes) that it is beneath or, as an individual, in."""
        for name in sorted({*self._upwards, *self._expressed}):
            if _named(name):
                yield name, self.through([name, *(each for each in self._expressed.get(name, ()) if each[:2] == "_:")])

    def through(self, start: Iterable[str]) -> set[str]:
        """Returns the blank nodes in `start` and those that are reachable from it through blank nodes only."""
        frontier = list(start)
        seen = {node for node in frontier if node.startswith("_:")}
        while frontier:
            for above in self._upwards.get(frontier.pop(), ()):
                self._work += 1
                if above.startswith("_:") and above not in seen:
                    seen.add(above)
                    frontier.append(above)
            if self._work > DERIVED:
                raise OntologyError(f"the class expressions lead to more than {DERIVED:,} pairs, the limit")
        return seen

    def named_above(self, expression: str) -> Iterator[str]:
        """Yields the names that a class expression is beneath."""
        return self._reached("", (expression,))

    def _reached(self, name: str, start: Iterable[str]) -> Iterator[str]:
        """Yields the names other than `name` that are in `start` or reachable from it through blank nodes only."""
        seen = {name}
        frontier: list[str] = []
        for node in start:
            if node.startswith("_:") or node == name:
                frontier.append(node)
            elif _named(node):
                seen.add(node)
                yield node
        while frontier:
            for above in self._upwards.get(frontier.pop(), ()):
                self._work += 1
                if above in seen:
                    continue
                seen.add(above)
                if above.startswith("_:"):
                    frontier.append(above)
                elif _named(above):
                    yield above
            if self._work > DERIVED:
                raise OntologyError(f"the class expressions lead to more than {DERIVED:,} pairs, the limit")


def _steps(statements: Statements, lists: "_Lists") -> dict[str, list[str]]:
    """Returns the steps that start or end at a class expression. Pairs of two names are left out."""
    upwards: defaultdict[str, list[str]] = defaultdict(list)
    for low, high in statements.broader:
        if low.startswith("_:") or high.startswith("_:"):
            upwards[low].append(high)
    for predicate, one, other in statements.same:
        if predicate == ns.EQUIVALENT_CLASS and (one.startswith("_:") or other.startswith("_:")):
            upwards[one].append(other)
            upwards[other].append(one)
    for node, heads in statements.conjunctions.items():
        for head in heads:
            upwards[node].extend(lists.members(head))
    for node, heads in statements.disjunctions.items():
        for head in heads:
            for member in lists.members(head):
                upwards[member].append(node)
    return dict(upwards)


def _expressed(statements: Statements, lists: "_Lists") -> dict[str, set[str]]:
    """Returns a map: individual → the classes and class expressions that it is in, except those of `a type Name`."""
    expressed: defaultdict[str, set[str]] = defaultdict(set)
    for individual, expression in statements.expressed:
        if _named(individual):
            expressed[individual].add(expression)
    for node, heads in statements.enumerations.items():
        for head in heads:
            for member in lists.members(head):
                if _named(member):
                    expressed[member].add(node)
    return expressed


class _Lists:
    """The RDF lists of a document. A list that several expressions share is walked for each, so the steps are
    limited."""

    def __init__(self, statements: Statements) -> None:
        self._first, self._rest = statements.first, statements.rest
        self._room = len(statements.rest) + DERIVED

    def members(self, head: str) -> Iterator[str]:
        """Yields the items of a list. A circular list ends before its first repeated cell."""
        seen: set[str] = set()
        while head and head != ns.NIL and head not in seen:
            seen.add(head)
            item = self._first.get(head)
            if item:
                yield item
            head = self._rest.get(head, "")
            self._room -= 1
            if self._room < 0:
                raise OntologyError(f"the lists of class expressions lead to more than {DERIVED:,} pairs, the limit")


def _named(node: str) -> bool:
    return bool(node) and not node.startswith("_:") and not ns.is_vocabulary(node)


COMPARED = 256
"""The maximum number of classes of one individual that are compared with each other. The cost is quadratic, and
superfluous classes do no harm."""

STEPS = 50_000_000
"""The number of steps upwards (names found) after which walks end: some tens of seconds. Real hierarchies are some tens
of levels deep, so this is enough for a million names. In a hierarchy that is made to be deep, the pairs left after
these steps count as new, even if they are superfluous."""


class Known:
    """The reflexive and transitive closure of pairs and equivalences, computed for one name at a time.

    Each walk is linear in the pairs above the name; no result is kept. After `STEPS` steps in total, no further walk is
    started.
    """

    def __init__(self, edges: Iterable[tuple[str, str]], equivalences: Iterable[tuple[str, str]]) -> None:
        upwards: defaultdict[str, list[str]] = defaultdict(list)
        for low, high in edges:
            upwards[low].append(high)
        for one, other in equivalences:
            upwards[one].append(other)
            upwards[other].append(one)
        self._upwards = dict(upwards)
        self._room = STEPS

    def above(self, *names: str) -> set[str]:
        """Returns all names that one of `names` equals or is beneath. Returns only `names` if the steps are used up."""
        found = set(names)
        frontier = list(names) if self._room > 0 else []
        while frontier:
            for upper in self._upwards.get(frontier.pop(), ()):
                if upper not in found:
                    found.add(upper)
                    frontier.append(upper)
        self._room -= len(found)
        return found

    def news(self, pairs: Pairs) -> Pairs:
        """Returns those of `pairs` (narrower, broader) that do not follow from the known pairs."""
        return {(low, high) for low, highs in _grouped(pairs).items() for high in highs - self.above(low)}

    def memberships(self, stated: Iterable[tuple[str, str]], found: Pairs) -> Pairs:
        """Returns those pairs of `found` (individual, class) that the `stated` ones do not imply, and of these only the
        most specific. If an individual has more than `COMPARED` of them, all are returned."""
        classes = _grouped(stated)
        news: Pairs = set()
        for individual, candidates in _grouped(found).items():
            left = candidates - self.above(individual, *classes.get(individual, ()))
            if 1 < len(left) <= COMPARED:
                above = {each: self.above(each) for each in left}
                left = {each for each in left if not _implied(each, left, above)}
            news.update((individual, each) for each in left)
        return news


def _implied(upper: str, candidates: set[str], above: dict[str, set[str]]) -> bool:
    """Returns whether another candidate is strictly beneath `upper`, or is equivalent to it and comes first."""
    return any(
        upper in above[other] and (other not in above[upper] or other < upper) for other in candidates if other != upper
    )


def _grouped(pairs: Iterable[tuple[str, str]]) -> dict[str, set[str]]:
    groups: defaultdict[str, set[str]] = defaultdict(set)
    for one, other in pairs:
        groups[one].add(other)
    return dict(sorted(groups.items()))


DEFINITION_LENGTH = 4_096  # the maximum length of a stored definition: it is shown, never matched

_CONCEPT_TYPES = ns.CLASS_TYPES | {ns.SKOS_CONCEPT}


@dataclass(slots=True, kw_only=True)
class Extracted:
    """The parts of an `Ontology` that come from its statements."""

    concepts: tuple[ConceptRecord, ...]
    edges: tuple[tuple[str, str], ...]
    derived: frozenset[tuple[str, str]]
    types: tuple[tuple[str, str], ...]
    equivalences: tuple[tuple[str, str], ...]
    matches: tuple[tuple[str, str], ...]
    properties: tuple[PropertyRecord, ...]
    remarks: tuple[ConceptRecord, ...]
    languages: tuple[tuple[str, int], ...]
    inferred: frozenset[tuple[str, str]] = frozenset()
    warnings: list[str] = field(default_factory=list)


def extract(statements: Statements, limits: Limits) -> Extracted:
    """Returns the records of one document, sorted. Raises OntologyError if a limit is exceeded."""
    properties = _property_names(statements)
    found = Subsumptions(statements, limits)
    stated, derived = found.stated, found.derived
    derived |= {(top, scheme) for top, scheme in statements.tops if _named(top) and _named(scheme)} - stated
    edges = stated | derived
    types = _types(statements, found.members, properties)
    equivalences, matches = _same(statements, properties)
    kinds = _kinds(statements, edges, types, properties)
    if len(kinds) > limits.concepts:
        raise OntologyError(f"the document has {len(kinds):,} concepts; at most {limits.concepts:,} are read")
    labels = _Labels(statements)
    concepts = tuple(labels.record(iri, kind, declared) for iri, (kind, declared) in sorted(kinds.items()))
    remarks = tuple(labels.record(iri, "retired", False) for iri in sorted(_remarked(statements, kinds, properties)))
    return Extracted(
        concepts=concepts,
        edges=tuple(sorted(edges)),
        derived=frozenset(derived),
        types=tuple(sorted(types)),
        equivalences=equivalences,
        matches=matches,
        properties=_properties(statements, properties, labels),
        remarks=remarks,
        languages=languages_of(concepts),
        warnings=_warnings(statements, concepts),
    )


def _same(statements: Statements, properties: set[str]) -> tuple[tuple[tuple[str, str], ...], ...]:
    """Returns the pairs of names for one thing, and separately those of `skos:exactMatch`. A name that is only a
    property is an attribute and not a concept."""
    attributes = {each for each in properties if not statements.types.get(each, NO_TYPES) & _CONCEPT_TYPES}
    equivalences: Pairs = set()
    matches: Pairs = set()
    for predicate, one, other in statements.same:
        of_properties = predicate == ns.EQUIVALENT_PROPERTY or (
            predicate != ns.EQUIVALENT_CLASS and not attributes.isdisjoint((one, other))
        )
        if not of_properties and one != other and _named(one) and _named(other):
            (matches if predicate == ns.EXACT_MATCH else equivalences).add((min(one, other), max(one, other)))
    return tuple(sorted(equivalences)), tuple(sorted(matches))


def _property_names(statements: Statements) -> set[str]:
    """Returns all attributes: names that are declared as a property, related to a property, or have a domain or range.
    Annotation properties are left out."""
    found = {node for node, types in statements.types.items() if types & ns.PROPERTY_TYPES}
    annotations = {node for node, types in statements.types.items() if ns.ANNOTATION_PROPERTY in types} - found
    for low, high in statements.sub_properties:
        found.update({low, high} - annotations)
    found.update({*statements.ranges, *statements.domains} - annotations)
    return {node for node in found if _named(node)}


def _types(statements: Statements, members: Pairs, properties: set[str]) -> Pairs:
    """Returns the (individual, class) pairs: the stated ones and `members`. Classes of RDF, OWL and the like are left
    out, and so are individuals that are part of a schema."""
    pairs = {
        (node, each)
        for node, types in statements.types.items()
        for each in types
        if each != node and _named(node) and not ns.is_vocabulary(each)
    }
    return {pair for pair in pairs | members if pair[0] not in properties and not serves(pair[0], statements)}


def serves(node: str, statements: Statements) -> bool:
    """Returns whether a name is a part of the document itself or a group for display. It is then no individual."""
    types = statements.types.get(node, set())
    return bool(types & ns.NOT_CONCEPT_TYPES or (types & ns.COLLECTION_TYPES and ns.SKOS_CONCEPT not in types))


def _kinds(
    statements: Statements, edges: Pairs, types: Pairs, properties: set[str]
) -> dict[str, tuple[ConceptKind, bool]]:
    """Returns a map: name of a concept → (kind, whether the document declares it)."""
    kinds: dict[str, tuple[ConceptKind, bool]] = {}
    for individual, _ in types:
        kinds[individual] = ("individual", True)
    for _, scheme in statements.tops:
        if _named(scheme):
            kinds[scheme] = ("scheme", True)
    for node, each in statements.types.items():
        if _named(node):
            if ns.SKOS_CONCEPT in each:
                kinds[node] = ("concept", True)
            if each & ns.CLASS_TYPES:
                kinds[node] = ("class", True)
    for predicate, one, other in statements.same:
        if predicate == ns.EQUIVALENT_CLASS:
            for node in (one, other):
                if _named(node) and node not in kinds:
                    kinds[node] = ("class", False)
    for _, each_class in types:
        if each_class not in kinds:
            kinds[each_class] = ("class", False)
    beneath = {low for low, _ in edges}
    for node in {node for pair in edges for node in pair}:
        if node not in kinds:
            kinds[node] = ("concept", node in beneath or node in statements.preferred)
        elif kinds[node][0] == "individual":
            kinds[node] = ("concept", True)
    for node in statements.deprecated:
        if statements.replaced.get(node) and node not in kinds and node not in properties and _named(node):
            kinds[node] = ("retired", True)
    return kinds


def _remarked(statements: Statements, kinds: Mapping[str, object], properties: set[str]) -> set[str]:
    """Returns names of which the document states labels, definition, schemes or deprecation, but not what they are."""
    labelled = (statements.preferred, statements.alternative, statements.hidden, statements.definitions)
    told = statements.deprecated.union(*labelled, statements.schemes, statements.notations)
    return {
        node
        for node in told
        if node not in kinds
        and node not in properties
        and statements.types.get(node, NO_TYPES) <= {ns.NAMED_INDIVIDUAL}
        and _named(node)
    }


class _Labels:
    """The labels, definitions and other descriptions of names. The labels of SKOS-XL are merged with the plain ones."""

    def __init__(self, statements: Statements) -> None:
        self._statements = statements
        self._schemes: dict[frozenset[str], tuple[str, ...]] = {}  # set of schemes -> the same sorted, to be shared
        kept = {
            ns.XL_PREFERRED: statements.preferred,
            ns.XL_ALT: statements.alternative,
            ns.XL_HIDDEN: statements.hidden,
        }
        for node, predicate, resource in statements.xl:
            kept[predicate].update(node, statements.xl_forms.get(resource))

    def record(self, iri: str, kind: ConceptKind, declared: bool) -> ConceptRecord:
        """Returns the record of a name."""
        statements = self._statements
        return ConceptRecord(
            iri=iri,
            kind=kind,
            declared=declared,
            preferred=self.preferred(iri, kind),
            synonyms=self.synonyms(iri),
            hidden=self.hidden(iri),
            deprecated=iri in statements.deprecated or ns.DEPRECATED_CLASS in statements.types.get(iri, ()),
            replaced_by=tuple(sorted(statements.replaced.get(iri, ()))),
            consider=tuple(sorted(statements.consider.get(iri, ()))),
            definition=statements.definitions[iri][2][:DEFINITION_LENGTH] if iri in statements.definitions else None,
            schemes=self._in_schemes(iri),
            notations=tuple(sorted(statements.notations.get(iri, ()))),
        )

    def _in_schemes(self, iri: str) -> tuple[str, ...]:
        found = frozenset(self._statements.schemes.get(iri, ()))
        if found not in self._schemes:
            self._schemes[found] = tuple(sorted(found))
        return self._schemes[found]

    def preferred(self, iri: str, kind: ConceptKind | None = None) -> tuple[Label, ...]:
        found = self._statements.preferred.get(iri)
        if not found and kind == "scheme":
            found = self._statements.titles.get(iri)
        return sorted_labels(found)

    def synonyms(self, iri: str) -> tuple[Label, ...]:
        return sorted_labels(self._statements.alternative.get(iri) - self._statements.preferred.get(iri))

    def hidden(self, iri: str) -> tuple[Label, ...]:
        return sorted_labels(self._statements.hidden.get(iri))


def languages_of(concepts: tuple[ConceptRecord, ...]) -> tuple[tuple[str, int], ...]:
    """Returns the number of labels of `concepts` by language tag."""
    counts = Counter(tag or "" for each in concepts for _, tag in (*each.preferred, *each.synonyms, *each.hidden))
    return tuple(sorted(counts.items()))


def _properties(statements: Statements, names: set[str], labels: _Labels) -> tuple[PropertyRecord, ...]:
    parents: defaultdict[str, set[str]] = defaultdict(set)
    for low, high in statements.sub_properties:
        parents[low].add(high)
    for predicate, one, other in statements.same:
        if predicate == ns.EQUIVALENT_PROPERTY:
            parents[one].add(other)
            parents[other].add(one)
    inverses: defaultdict[str, set[str]] = defaultdict(set)
    for one, other in statements.inverses:
        inverses[one].add(other)
        inverses[other].add(one)
    return tuple(
        PropertyRecord(
            iri=name,
            labels=(*labels.preferred(name), *labels.synonyms(name)),
            parents=tuple(sorted((parents[name] & names) - {name})),
            ranges=tuple(sorted(statements.ranges.get(name, ()))),
            units=tuple(sorted(statements.units.get(name, ()))),
            domains=tuple(sorted(statements.domains.get(name, ()))),
            inverses=tuple(sorted(inverses.get(name, ()))),
        )
        for name in sorted(names)
    )


def _warnings(statements: Statements, concepts: tuple[ConceptRecord, ...]) -> list[str]:
    warnings = []
    if statements.dropped_labels:
        warnings.append(
            f"{statements.dropped_labels} labels are left out, because they are empty, too long or contain NUL"
        )
    missing = [each.iri for each in concepts if not each.declared]
    if missing:
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        warnings.append(f"referred to but not declared: {', '.join(missing[:3])}{more}")
    lost = [each.iri for each in concepts if each.deprecated and not each.replaced_by]
    if lost:
        more = f" and {len(lost) - 3} more" if len(lost) > 3 else ""
        warnings.append(f"deprecated without a replacement: {', '.join(lost[:3])}{more}")
    if not concepts and not statements.same:
        warnings.append("the document has no concept: no class, no SKOS concept, no hierarchy")
    return warnings


# Requested relations: which relation a name means, and its edges in a document (docs/matching-semantics.md, rule 11).

#     names ──▶ relations ──▶ properties whose statements count ──▶ edges
#               part_of       part_of, its sub-properties; has_part, backwards
#
# An edge A R B comes from a triple `A R B`, from a restriction above A (`A subClassOf (R some B)`, also as a conjunct
# of a definition, and `R value b`), and from a triple `B S A` if S is the inverse of R. A restriction on S is no edge
# of R: if every hand is part of a body, not every body needs to have a hand.
#
# A name is resolved by levels, as terms are, when a document is uploaded and when a subscription is compiled:
#
# iri     the IRI itself
# short   CURIE (`brick:hasPart`), short form (`BFO_0000050`, `BFO:0000050`), local name (`hasPart`)
# label   any label, folded: NFKC, case, white space, and `_` as a blank, as OBO writes labels (`part_of`)


# The facts about relations in a document. They are collected while its triples are read into `Statements`.
#
# Class expressions are blank nodes, whose names may differ when the document is read again. So restrictions are
# collected in the same pass as the lists and pairs that lead to them. Triples between names can be read in a second
# pass.

_NOTED: Final = frozenset({ns.ON_PROPERTY, ns.SOME_VALUES, ns.HAS_VALUE, ns.INVERSE_OF, ns.SHORTHAND})


class RelationSurvey:
    """`used` counts the triples between names by predicate. `on` has the property of each restriction, and `fillers`
    its fillers. `inverses` are pairs of properties, one of which may be a blank node. `shorthands` are the names of
    relations in an OBO file. Cost: one look-up per triple."""

    def __init__(self) -> None:
        self.used: Counter[str] = Counter()
        self.on: dict[str, str] = {}
        self.fillers: defaultdict[str, set[str]] = defaultdict(set)
        self.inverses: set[tuple[str, str]] = set()
        self.shorthands: defaultdict[str, set[str]] = defaultdict(set)

    def noting(self, quads: Iterable[ox.Quad]) -> Iterator[ox.Quad]:
        """Yields all `quads`; each is recorded before it is yielded."""
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
    """Returns an IRI as it is, a blank node as `_:…`, and the empty string for anything else."""
    if isinstance(term, ox.NamedNode):
        return term.value
    return "_:" + term.value if isinstance(term, ox.BlankNode) else ""


TRANSITIVE = "transitive"
"""The name that requests all relations that are an `owl:TransitiveProperty`."""

MOST = 256
"""The maximum number of relations of one document: each may become a layer of the hierarchy. RO itself has about fifty
transitive ones."""

LISTED = 20
"""The maximum number of relations that an error lists. Those with most statements come first."""

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
    """Returns the requested relations (`asked`), and `found` with the names that only these relations refer to as
    concepts.

    Cost: the class expressions once more and, if triples between names state edges, a second pass over the document.
    Raises UnknownRelation, with the known relations, and OntologyError if a limit is exceeded.
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
    """The properties whose statements are edges of one relation, forwards and backwards."""

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
        """Returns the properties that count as `iri`: its sub-properties, and the sub-properties of its inverses
        backwards. Linear in the result."""
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
        """Returns whether `node` may be the end of an edge: it is a name and no part of the schema."""
        if not node or node.startswith("_:") or ns.is_vocabulary(node):
            return False
        if node in self._concepts:
            return True
        return node not in self._properties and not self._statements.types.get(node, set()) & ns.NOT_CONCEPT_TYPES

    def weights(self) -> Counter[str]:
        """Returns the number of statements that use each property, to sort a list of relations."""
        return self.survey.used + Counter(self.survey.on.values())


_RELATION_TYPES = frozenset({*ns.PROPERTY_TYPES, ns.ANNOTATION_PROPERTY})


def _may_be_asked(iri: str) -> bool:
    """Returns whether a property may be requested: it is no word of RDF itself. Those of SKOS relate concepts, so they
    may."""
    return bool(iri) and iri[:2] != "_:" and (not ns.is_vocabulary(iri) or iri.startswith(ns.SKOS_NAMESPACE))


def _meant(asked: Sequence[str], document: _Document, prefixes: Mapping[str, str]) -> list[str]:
    """Returns the sorted IRIs of the requested relations."""
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
    """Returns the edges of each relation that are stated by triples between names."""
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
    """Returns the edges of each relation that are stated by class expressions."""
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
    """Yields the names to which `restrictions` lead by properties of `forward`, also through fillers that are
    expressions: `R some (B and (R some C))` leads to B and, in two steps, to C. Each filler is visited once."""
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
    """Returns `found` with all ends of edges among its concepts. The end of a triple is a declared individual. The end
    of a restriction is a class that is declared elsewhere."""
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
