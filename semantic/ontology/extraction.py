"""Statements to records: which names are concepts, what they are called, what they are beneath."""

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from kindcast.semantic.errors import OntologyError
from kindcast.semantic.ontology import namespaces as ns
from kindcast.semantic.ontology.records import ConceptKind, ConceptRecord, Label, Limits, PropertyRecord
from kindcast.semantic.ontology.statements import NO_TYPES, Statements
from kindcast.semantic.ontology.subsumption import Pairs, Subsumptions

__all__ = ["Extracted", "extract", "languages_of", "serves"]

DEFINITION_LENGTH = 4_096  # characters of a definition that are kept: it is shown, never matched

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
    """The records of one document; everything sorted. Raises OntologyError where a limit is crossed."""
    properties = _property_names(statements)
    found = Subsumptions(statements, limits)
    stated, derived = found.stated, found.derived
    derived |= {(top, scheme) for top, scheme in statements.tops if _name(top) and _name(scheme)} - stated
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
    """Pairs of names for one thing, those by `skos:exactMatch` apart. What is a property and nothing else is an
    attribute, and no concept."""
    attributes = {each for each in properties if not statements.types.get(each, NO_TYPES) & _CONCEPT_TYPES}
    equivalences: Pairs = set()
    matches: Pairs = set()
    for predicate, one, other in statements.same:
        of_properties = predicate == ns.EQUIVALENT_PROPERTY or (
            predicate != ns.EQUIVALENT_CLASS and not attributes.isdisjoint((one, other))
        )
        if not of_properties and one != other and _name(one) and _name(other):
            (matches if predicate == ns.EXACT_MATCH else equivalences).add((min(one, other), max(one, other)))
    return tuple(sorted(equivalences)), tuple(sorted(matches))


def _name(node: str) -> bool:
    return bool(node) and not node.startswith("_:") and not ns.is_vocabulary(node)


def _property_names(statements: Statements) -> set[str]:
    """Every attribute: declared as a property, related to one, or with a domain or range; annotations of the document's
    own terms are none."""
    found = {node for node, types in statements.types.items() if types & ns.PROPERTY_TYPES}
    annotations = {node for node, types in statements.types.items() if ns.ANNOTATION_PROPERTY in types} - found
    for low, high in statements.sub_properties:
        found.update({low, high} - annotations)
    found.update({*statements.ranges, *statements.domains} - annotations)
    return {node for node in found if _name(node)}


def _types(statements: Statements, members: Pairs, properties: set[str]) -> Pairs:
    """(individual, class) pairs, stated ones and `members`: the class is a name of the document's own world, the
    individual no part of a schema."""
    pairs = {
        (node, each)
        for node, types in statements.types.items()
        for each in types
        if each != node and _name(node) and not ns.is_vocabulary(each)
    }
    return {pair for pair in pairs | members if pair[0] not in properties and not serves(pair[0], statements)}


def serves(node: str, statements: Statements) -> bool:
    """Whether a name is a part of the document itself or a group for display, and so nobody's individual."""
    types = statements.types.get(node, set())
    return bool(types & ns.NOT_CONCEPT_TYPES or (types & ns.COLLECTION_TYPES and ns.SKOS_CONCEPT not in types))


def _kinds(
    statements: Statements, edges: Pairs, types: Pairs, properties: set[str]
) -> dict[str, tuple[ConceptKind, bool]]:
    """Every concept name → (kind, whether the document declares it)."""
    kinds: dict[str, tuple[ConceptKind, bool]] = {}
    for individual, _ in types:
        kinds[individual] = ("individual", True)
    for _, scheme in statements.tops:
        if _name(scheme):
            kinds[scheme] = ("scheme", True)
    for node, each in statements.types.items():
        if _name(node):
            if ns.SKOS_CONCEPT in each:
                kinds[node] = ("concept", True)
            if each & ns.CLASS_TYPES:
                kinds[node] = ("class", True)
    for predicate, one, other in statements.same:
        if predicate == ns.EQUIVALENT_CLASS:
            for node in (one, other):
                if _name(node) and node not in kinds:
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
        if statements.replaced.get(node) and node not in kinds and node not in properties and _name(node):
            kinds[node] = ("retired", True)
    return kinds


def _remarked(statements: Statements, kinds: Mapping[str, object], properties: set[str]) -> set[str]:
    """Names of which the document only tells labels, definition, schemes or deprecation, and not what they are."""
    labelled = (statements.preferred, statements.alternative, statements.hidden, statements.definitions)
    told = statements.deprecated.union(*labelled, statements.schemes, statements.notations)
    return {
        node
        for node in told
        if node not in kinds and node not in properties and node not in statements.types and _name(node)
    }


class _Labels:
    """What is told of a name, with the labels of SKOS-XL put where they belong."""

    def __init__(self, statements: Statements) -> None:
        self._statements = statements
        self._schemes: dict[frozenset[str], tuple[str, ...]] = {}  # sorted once, shared by those in the same ones
        kept = {
            ns.XL_PREFERRED: statements.preferred,
            ns.XL_ALT: statements.alternative,
            ns.XL_HIDDEN: statements.hidden,
        }
        for node, predicate, resource in statements.xl:
            kept[predicate].update(node, statements.xl_forms.get(resource))

    def record(self, iri: str, kind: ConceptKind, declared: bool) -> ConceptRecord:
        """The record of a name."""
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
        return _sorted(found)

    def synonyms(self, iri: str) -> tuple[Label, ...]:
        return _sorted(self._statements.alternative.get(iri) - self._statements.preferred.get(iri))

    def hidden(self, iri: str) -> tuple[Label, ...]:
        return _sorted(self._statements.hidden.get(iri))


def _sorted(labels: set[Label]) -> tuple[Label, ...]:
    return tuple(sorted(labels, key=lambda label: (label[1] or "", label[0])))


def languages_of(concepts: tuple[ConceptRecord, ...]) -> tuple[tuple[str, int], ...]:
    """The labels of `concepts`, counted by language tag."""
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
            unit=statements.units.get(name),
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
