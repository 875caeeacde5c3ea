"""The vocabulary: an immutable object with the hierarchies, names, attributes and units of one version.

    documents ──kindcast.semantic.ontology──▶ records ──hierarchy, labels, terms, attributes──▶ Vocabulary

Each change builds a new vocabulary. Its `version` is a digest of everything that it was built from.

The load report of an upload has, as JSON, the numbers that an ontologist checks first (docs/ontologies.md). Names and
pairs are counted as the documents state them, before equivalent names are merged. So the counts agree with those of an
ontology editor. `roots` and `max_depth` are those of the merged hierarchy.

Notes tell a subscriber how a term was read, and a publisher how a string was read (rules 12 and 13). A note never
changes the meaning of a term.
"""

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import chain, combinations
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from kindcast.index.clause import ConceptId
from kindcast.index.concept_graph import ConceptGraph
from kindcast.semantic.model import Note
from kindcast.semantic.ontology import ConceptRecord, Limits, Ontology, PropertyRecord, Reason
from kindcast.semantic.ontology.records import local_name
from kindcast.semantic.shipped_vocabularies import file_or_shipped
from kindcast.semantic.unicode_text import nfc
from kindcast.semantic.units import Units
from kindcast.semantic.vocabulary.attributes import AttributeScheme
from kindcast.semantic.vocabulary.contexts import compact_prefixes, shipped_contexts
from kindcast.semantic.vocabulary.declarations import root_words
from kindcast.semantic.vocabulary.derivation import Derivations
from kindcast.semantic.vocabulary.event_schemas import EventSchemas
from kindcast.semantic.vocabulary.event_types import Splits
from kindcast.semantic.vocabulary.identifiers import Aliases, CodeSystems, main_forms
from kindcast.semantic.vocabulary.labels import (
    FoundLabel,
    LabelIndex,
    Names,
    NearNames,
    Resolution,
    TermIndex,
    best_label,
)
from kindcast.semantic.vocabulary.relations import Hierarchy, Relations
from kindcast.semantic.vocabulary.visibility import View, view_of_roles

__all__ = ["MEANING", "Vocabulary", "notes_on_event_term", "notes_on_term", "overlap", "unknown_term"]


LISTED = 100  # the maximum length of a list in the report; the numbers are complete
EXAMPLES = 20  # examples of pairs that a reasoner added


def report(
    ontologies: Sequence[Ontology], names: Names, hierarchy: Hierarchy, relations: Relations, units: Units
) -> dict[str, Any]:
    """Returns the load report of all `ontologies` together, for JSON."""
    edges = {pair for each in ontologies for pair in each.edges}
    derived = {pair for each in ontologies for pair in each.derived} - {
        pair for each in ontologies for pair in set(each.edges) - each.derived
    }
    parents = Counter(low for low, _ in edges)
    records = names.records.values()
    kinds = Counter(record.kind for record in records)
    languages = Counter(tag or "" for each in records for _, tag in (*each.preferred, *each.synonyms, *each.hidden))
    return {
        "name": ", ".join(each.name for each in ontologies),
        "sha256": ontologies[0].sha256 if len(ontologies) == 1 else _digest(ontologies),
        "triples": sum(each.triples for each in ontologies),
        "concepts": len(records) - kinds["individual"] - kinds["retired"],
        "individuals": kinds["individual"],
        "retired": kinds["retired"],
        "undeclared": sum(not record.declared for record in records),
        "edges": len(edges),
        "derived_edges": len(derived),
        "roots": _roots(names, hierarchy),
        "max_depth": hierarchy.depth,
        "multi_parent": sum(count > 1 for count in parents.values()),
        "synonyms": sum(len(record.synonyms) for record in records),
        "languages": {tag: languages[tag] for tag in sorted(languages)},
        "merged": len(hierarchy.concept_of) - len(hierarchy),
        "merged_across": _merges_across(names, hierarchy),
        "unmerged": [list(group) for group in hierarchy.unmerged[:LISTED]],
        "deprecated": sum(record.deprecated for record in records),
        "relations": [
            {"iri": iri, "label": relations.label(iri), "edges": relations.edge_count(iri)} for iri in relations
        ],
        **_reasoned(ontologies),
        "unresolved_imports": _unresolved(ontologies),
        "warnings": _warnings(ontologies, hierarchy, units),
    }


def _roots(names: Names, hierarchy: Hierarchy) -> int:
    """Returns the number of concepts without a broader one. Individuals and retired names do not count."""
    graph = hierarchy.graph
    return sum(
        not graph.parents(concept) and names.places(hierarchy.names[concept])
        for concept in map(ConceptId, range(len(hierarchy)))
    )


def _reasoned(ontologies: Sequence[Ontology]) -> dict[str, Any]:
    """Returns the reasoning levels, the number of inferred pairs, examples of them, and the unsatisfiable classes."""
    inferred = sorted({pair for each in ontologies for pair in each.inferred})
    reasons = sorted({each.reason for each in ontologies})
    return {
        "reason": ", ".join(reasons) or "none",
        "inferred": len(inferred),
        "inferred_examples": [list(pair) for pair in inferred[:EXAMPLES]],
        "unsatisfiable": sorted({name for each in ontologies for name in each.unsatisfiable})[:LISTED],
    }


def _digest(ontologies: Sequence[Ontology]) -> str:
    return hashlib.sha256("\n".join(sorted(each.sha256 for each in ontologies)).encode()).hexdigest()


def _merges_across(names: Names, hierarchy: Hierarchy) -> list[list[str]]:
    """Returns groups of names of one concept that are declared by different ontologies."""
    groups = []
    for group in hierarchy.names:
        if len(group) > 1 and len({names.origins[iri] for iri in group if iri in names.origins}) > 1:
            groups.append(list(group))
            if len(groups) == LISTED:
                break
    return groups


def _unresolved(ontologies: Sequence[Ontology]) -> list[str]:
    """Returns the imports that no ontology here satisfies. A final `#` or `/` is ignored."""
    there = {iri.rstrip("#/") for each in ontologies for iri in each.declares}
    return sorted({iri for each in ontologies for iri in each.imports if iri.rstrip("#/") not in there})


def _warnings(ontologies: Sequence[Ontology], hierarchy: Hierarchy, units: Units) -> list[str]:
    several = len(ontologies) > 1
    warnings = [f"{each.name}: {text}" if several else text for each in ontologies for text in each.warnings]
    for one, other in combinations(ontologies, 2):
        if shared := overlap(one, other):
            told = f"{one.name} and {other.name} both declare {shared:,} concepts, and both are used"
            warnings.append(f"{told}: if one is a newer version of the other, leave the older one out")
    for cycle in hierarchy.cycles[:LISTED]:
        warnings.append(f"these concepts are beneath each other, so they are one concept: {_shown(cycle)}")
    if hierarchy.unmerged:
        count, first = len(hierarchy.unmerged), _shown(hierarchy.unmerged[0])
        warnings.append(
            f"skos:exactMatch is not one-to-one in {count} groups of names, which were not merged; for example: {first}"
        )
    properties = [record for each in ontologies for record in each.properties]
    strange = [f"{each.iri} ({unit})" for each in properties for unit in each.units if not units.knows(unit)]
    if strange:
        warnings.append(f"numbers of these properties have no unit, because theirs is not known: {_shown(strange)}")
    differing = [f"{name} ({_shown(said)})" for name, said in _units_of(properties, units).items() if len(said) > 1]
    if differing:
        warnings.append(f"numbers of these attributes have no unit, because theirs differ: {_shown(differing)}")
    return warnings


def _units_of(properties: Iterable[PropertyRecord], units: Units) -> dict[str, list[str]]:
    """Returns attribute → its units that are known. Of several names of one unit there is only the first."""
    found: defaultdict[str, dict[Any, str]] = defaultdict(dict)
    for record in properties:
        for unit in filter(units.knows, record.units):
            same = units.measure(0, unit), units.measure(1, unit)
            name = found[local_name(record.iri)]
            name[same] = min(unit, name.get(same, unit))
    return {name: sorted(said.values()) for name, said in found.items()}


def overlap(ontology: Ontology, other: Ontology) -> int:
    """Returns the number of concepts that both ontologies declare if it is more than half of the smaller one, else 0.
    In that case they are probably versions of one document, and one was meant to replace the other."""
    declared = [{each.iri for each in one.concepts if each.declared} for one in (ontology, other)]
    shared, least = len(declared[0] & declared[1]), min(map(len, declared))
    return shared if 2 * shared > least else 0


def _shown(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


MEANING = 9
"""The version of the rules in docs/matching-semantics.md. It is increased whenever the same documents, subscriptions
and events get another meaning. This changes the versions of all vocabularies, so nothing that was compiled,
canonicalised or counted under the old rules is reused."""
KEPT_TEXT = 1_000  # the maximum length of a cached text, so that publishers cannot fill the memory
_CLASSES = frozenset({"class", "concept"})  # kinds of records that go before individuals of the same name
READINGS = 1 << 16  # the size of the cache of readings: more than the distinct strings of a busy stream, about 10 MB


class Vocabulary:
    """The concepts, names, attributes and units of one version. Immutable except for caches, and safe for threads.

    >>> turtle = b"@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> . @prefix : <http://example.org/> . "
    >>> turtle += b':Laptop rdfs:subClassOf :Computer ; rdfs:label "Notebook"@de .'
    >>> words = Vocabulary.from_bytes(turtle)
    >>> laptop, computer = words.concept("http://example.org/Laptop"), words.concept("http://example.org/Computer")
    >>> words.readings("notebook") == (laptop,), words.isa(laptop, computer)
    (True, True)
    """

    def __init__(
        self,
        ontologies: Sequence[Ontology] = (),
        *,
        attributes: Mapping[str, Mapping[str, Any]] | None = None,
        synonyms: Mapping[str, str] | None = None,
        rates: Mapping[str, Any] | None = None,
        schemas: Mapping[str, Any] | None = None,
        contexts: Mapping[str, Any] | None = None,
        code_systems: Mapping[str, Any] | None = None,
        aliases: Mapping[str, Any] | None = None,
        splits: Mapping[str, Any] | None = None,
        unions: Mapping[str, Any] | None = None,
        reading: Mapping[str, str] | None = None,
    ) -> None:
        """`attributes` are declarations in addition to those of the ontologies (`{"price": {"kind": "number", "unit":
        "USD"}}`). `synonyms` maps words to root words. `rates` are exchange rates, `schemas` maps event types to JSON
        Schemas, and `contexts` maps URLs to JSON-LD contexts in addition to the shipped ones;
        `kindcast.semantic.vocabulary.contexts` must have checked them. `code_systems` are systems of codes, `splits`
        envelopes of events, `unions` unions of relations by name, and `aliases` tables of forms that stand for others.
        `reading` says how JSON-LD is read (rule 20): `{"linked_data": "plain"}` as plain JSON, `{"unknown_contexts":
        "plain"}` as plain JSON where it needs an unknown context.

        Raises InvalidDeclaration.
        """
        self._ontologies = tuple(ontologies)
        self._reading = dict(reading or {})
        self._roots = root_words(synonyms or {})
        self._units = Units(rates)
        self._aliases = Aliases(aliases)
        stated = Names.of(self._ontologies)
        self._hierarchy = _hierarchy(self._ontologies, stated, self._aliases)
        names = self._names = stated.including(self._hierarchy.concept_of)
        self._relations = Relations.build(self._ontologies, self._hierarchy, unions)
        self._code_systems = CodeSystems(code_systems, names.records.values, self._aliases.main)
        self._contexts = {**shipped_contexts(), **(contexts or {})}
        self._graph = self._relations.graph.with_instances(len(self._hierarchy))
        self._terms = TermIndex(
            names.records.values(),
            self._hierarchy.concept_of,
            {pair for each in self._ontologies for pair in each.prefixes},
            self._successors,
            self._prefer,
            set(compact_prefixes(self._contexts.values())),
            self._aliases,
        )
        self._schemas = EventSchemas(schemas)
        self._splits = Splits(splits, shipped=self.reads_linked_data)
        domains = self._schemas.owned_domains()
        self._attributes = AttributeScheme.build(
            _properties(self._ontologies, self._units),
            attributes,
            self._roots,
            domains,
            self._aliases.main,
            self._terms.spelt_out,
        )
        self._derivations = Derivations.of(self._attributes, self._schemas, self._units)
        self._version = _version_of(
            self._ontologies,
            attributes=attributes,
            synonyms=synonyms,
            rates=rates,
            schemas=schemas,
            contexts=contexts,
            code_systems=code_systems,
            aliases=aliases,
            splits=splits,
            unions=unions,
            reading=reading,
        )
        self._report = report(self._ontologies, stated, self._hierarchy, self._relations, self._units)
        self._readings: dict[str, Resolution] = {}
        self._views: dict[frozenset[str], View | None] = {}

    # ── where it comes from ─────────────────────────────────────────────────────────────────────────────────────────

    @classmethod
    def from_ontologies(cls, ontologies: Iterable[Ontology], **declarations: Any) -> "Vocabulary":
        """Returns the vocabulary of ontologies that were read before. Without ontologies it is the empty vocabulary."""
        return cls(tuple(ontologies), **declarations)

    @classmethod
    def shared(cls, ontologies: Iterable[Ontology], **declarations: Any) -> "Vocabulary":
        """As `from_ontologies`, but returns one shared object for equal ontologies and declarations, as long as it is
        in use. The cost is then a digest of the declarations. Raises InvalidDeclaration."""
        these = sorted(ontologies, key=lambda each: each.name)
        version = _version_of(these, **declarations)
        known = _SHARED.get(version)
        return known if known is not None else _SHARED.setdefault(version, cls(these, **declarations))

    @classmethod
    def from_bytes(
        cls,
        data: bytes,
        *,
        format: str | None = None,
        name: str = "ontology",
        limits: Limits | None = None,
        reason: Reason = "none",
        relations: Sequence[str] = (),
        **declarations: Any,
    ) -> "Vocabulary":
        """Reads one document in this process; `reason="owl"` starts another process for the reasoner. `relations` are
        kept as hierarchies of their own: IRIs, CURIEs, local names, labels, or `transitive`.

        Raises OntologyError, UnsupportedFormat, UnknownRelation, ReasonerUnavailable, InvalidDeclaration.
        """
        if not isinstance(data, bytes | bytearray | memoryview):
            raise TypeError(f"the document must be bytes, not {type(data).__name__}: from_files reads files")
        from kindcast.semantic.ontology import read  # the parsers: a vocabulary that was read before needs none

        ontology = read(data, format=format, name=name, limits=limits, reason=reason, relations=relations)
        return cls((ontology,), **declarations)

    @classmethod
    def from_files(
        cls,
        *paths: str | Path,
        limits: Limits | None = None,
        reason: Reason = "none",
        relations: Sequence[str] = (),
        **declarations: Any,
    ) -> "Vocabulary":
        """Reads several files into one vocabulary. Each is named by its file name and is reasoned about separately.
        Each of `relations` must be in at least one of them. A bare name that is not a file here is the name of a
        shipped vocabulary (`shop.ttl`). Raises the errors of `from_bytes`, and OSError."""
        from kindcast.semantic.ontology import read_several

        documents = [(file.name, file.read_bytes()) for file in map(file_or_shipped, paths)]
        ontologies = read_several(documents, limits=limits, reason=reason, relations=relations)
        return cls(ontologies, **declarations)

    # ── what it is ──────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def version(self) -> str:
        """A digest of the documents, the declarations and `MEANING`: the same input gives the same version."""
        return self._version

    @property
    def meaning(self) -> int:
        """The version of the rules by which everything is read (`MEANING`)."""
        return MEANING

    @property
    def ontologies(self) -> tuple[Ontology, ...]:
        return self._ontologies

    @property
    def report(self) -> dict[str, Any]:
        """Returns a copy of the load report, as `PUT /v1/ontologies/{name}` returns it (without version)."""
        return json.loads(json.dumps(self._report))  # type: ignore[no-any-return]

    @property
    def reads_linked_data(self) -> bool:
        """Whether JSON-LD events are read as graphs instead of plain JSON."""
        return self._reading.get("linked_data") != "plain"

    @property
    def unknown_contexts(self) -> str:
        """The treatment of JSON-LD events that need an unknown context: `refuse`, or `plain` (read as plain JSON)."""
        return self._reading.get("unknown_contexts", "refuse")

    @property
    def graph(self) -> ConceptGraph:
        """The graph that engines walk: first the concepts, then the shadows of `relations`, then one instance of each
        concept."""
        return self._graph

    def instance_of(self, concept: ConceptId) -> ConceptId:
        """Returns the node of `graph` for a thing that an event states to be of this class (rule 21). All classes above
        the class are above the node, but the class is not the node itself."""
        return ConceptId(len(self._relations.graph) + concept)

    @property
    def relations(self) -> Relations:
        """The relations that were requested when the documents were read; false if there are none."""
        return self._relations

    @property
    def attributes(self) -> AttributeScheme:
        return self._attributes

    def view_of_roles(self, roles: frozenset[str] | None) -> View | None:
        """Returns which parts of events a user with these roles may see. None as `roles` means everything."""
        if roles is None:
            return None
        if roles not in self._views:
            self._views[roles] = view_of_roles(self._attributes, self._derivations, roles)
        return self._views[roles]

    @property
    def units(self) -> Units:
        return self._units

    @property
    def schemas(self) -> EventSchemas:
        """The declared event types; false if there are none (open mode)."""
        return self._schemas

    @property
    def derivations(self) -> Derivations:
        """The derived attributes; false if there are none."""
        return self._derivations

    @cached_property
    def declared_names(self) -> tuple[str, ...]:
        """The names of the declared attributes, and the names that their declarations use: of a unit beside a number,
        of the members of quantities and codes, and of what derived attributes are computed from."""
        names: dict[str | None, None] = dict.fromkeys(self._attributes.declarations)
        for each in self._attributes.declarations.values():
            names[each.unit_from] = None
            if each.quantity is not None:
                names.update(dict.fromkeys((each.quantity.number, each.quantity.unit)))
            if each.code is not None:
                names.update(dict.fromkeys((each.code.code, each.code.system)))
        for derivation in self._derivations:
            names.update(dict.fromkeys(derivation.reads))
        return tuple(name for name in names if name)

    @cached_property
    def near_names(self) -> NearNames:
        """The index of the declared names, for suggestions. Built at the first use."""
        return NearNames(self.declared_names)

    @property
    def contexts(self) -> Mapping[str, Any]:
        """The JSON-LD contexts that events may refer to, shipped and uploaded: URL → document with `@context`."""
        return self._contexts

    @property
    def synonyms(self) -> Mapping[str, str]:
        """The user's table: word → root word."""
        return self._roots

    @property
    def aliases(self) -> Aliases:
        """The aliases of IRIs; false without a declaration."""
        return self._aliases

    def __len__(self) -> int:
        return len(self._hierarchy)

    # ── names of concepts ───────────────────────────────────────────────────────────────────────────────────────────

    def concept(self, iri: str) -> ConceptId | None:
        """Returns the concept that has this IRI, or its main form, among its names; None if there is none."""
        found = self._hierarchy.concept_of.get(iri)
        if found is None and (main := self._aliases.other(iri)) is not None:
            return self._hierarchy.concept_of.get(main)
        return found

    def names(self, iri: str) -> bool:
        """Whether a concept has exactly this IRI among its names. Aliases are not resolved."""
        return iri in self._hierarchy.concept_of

    def iri(self, concept: ConceptId) -> str:
        """Returns the preferred IRI of `concept`."""
        return self._hierarchy.names[concept][0]

    def iris(self, concept: ConceptId) -> tuple[str, ...]:
        """Returns all IRIs of `concept`, the preferred one first."""
        return self._hierarchy.names[concept]

    def label(self, concept: ConceptId, lang: str = "en") -> str:
        """Returns the label to show: in `lang`, in its base language, without a language, or in any language, in this
        order; else the local name of the IRI."""
        return best_label(self._records(concept), self.iri(concept), lang)

    def summary(self, concept: ConceptId, lang: str = "en") -> dict[str, Any]:
        """Returns the description of `concept` for users, as JSON values."""
        records = self._records(concept)
        graph = self._hierarchy.graph
        return {
            "iri": self.iri(concept),
            "iris": list(self.iris(concept)),
            "label": self.label(concept, lang),
            "labels": [{"value": text, "lang": tag} for record in records for text, tag in record.preferred],
            "synonyms": [{"value": text, "lang": tag} for record in records for text, tag in record.synonyms],
            "definition": next((record.definition for record in records if record.definition), None),
            "deprecated": bool(records) and all(record.deprecated for record in records),
            "ontology": next((self._names.origins[record.iri] for record in records), None),
            "parents": [self.iri(each) for each in (*graph.parents(concept), *graph.entries(concept))],
            "children_count": len(self.children(concept)),
        }

    def _records(self, concept: ConceptId) -> list[ConceptRecord]:
        records = self._names.records
        return [records[iri] for iri in self.iris(concept) if iri in records]

    # ── resolution of terms ─────────────────────────────────────────────────────────────────────────────────────────

    def resolve(
        self, term: str, *, is_iri: bool = False, within: Sequence[ConceptId] = (), asked: bool = False
    ) -> Resolution:
        """Returns what `term` may mean, by the levels of `kindcast.semantic.vocabulary.labels`. Deprecated names are
        already replaced. Several candidates are reduced to the one at or beneath one of `within` (the declared range of
        an attribute) if exactly one remains; else to the only class or SKOS concept if all others are individuals. A
        term without a meaning is tried again as its root word, and then, if that is declared, in other spellings.
        `asked` means that a person wrote the term, so that prefixes of contexts count too."""
        found = self._terms.resolve(term, is_iri=is_iri, asked=asked)
        if not found.candidates and not is_iri and self._roots:
            found = self._terms.resolve(self.root_word(term), asked=asked)
        if not found.candidates and not is_iri and self._aliases.spelt:
            found = self._terms.spelt_otherwise(term)
        if len(found.candidates) > 1:
            kept = (
                [each for each in found.candidates if any(self.isa(each, upper) for upper in within)] if within else []
            )
            if len(kept) == 1:
                return found.only(kept[0], frozenset(self.iris(kept[0])))
            return found.preferred or found
        return found

    def _prefer(self, found: Resolution) -> Resolution | None:
        """Returns the resolution without individuals, if they have the same name as one class or SKOS concept."""
        preferred = None
        for each in found.candidates:
            kinds = {record.kind for record in self._records(each)} - {"retired"}
            if kinds.isdisjoint(_CLASSES):
                if kinds != {"individual"}:
                    return None
            elif preferred is not None:
                return None
            else:
                preferred = each
        if preferred is None:
            return None
        others = tuple(each for each in found.candidates if each != preferred)
        return found.only(preferred, frozenset(self.iris(preferred)), others)

    def readings(self, text: str) -> tuple[ConceptId, ...]:
        """Returns the concepts that a published string may mean. One dict access for cached strings."""
        return self.reading(text).candidates

    def reading(self, text: str) -> Resolution:
        """Returns `resolve(text)`: the concepts, and how they were found, for notes. One dict access for cached
        strings."""
        found = self._readings.get(text)
        if found is None:
            found = self.resolve(text)
            if len(text) > KEPT_TEXT:
                return found
            if len(self._readings) >= READINGS:
                self._readings.clear()
            self._readings[text] = found
        return found

    def respelt(self, text: str) -> Resolution:
        """Returns what another spelling of `text` means, or the same IRI with `http` and `https` exchanged. For
        suggestions. Empty if several concepts have that spelling. Costs about 20 to 200 look-ups."""
        scheme, colon, rest = text.partition("://")
        if colon and scheme in ("http", "https"):
            return self._terms.resolve(f"{'http' if scheme == 'https' else 'https'}://{rest}", is_iri=True)
        found = self._terms.spelt_otherwise(text)
        return found if len(found.candidates) == 1 else Resolution()

    def with_local_name(self, term: str) -> Resolution:
        """Returns the concepts with the local name `term`. If there are several, it is a name of none of them."""
        return self._terms.with_local_name(term)

    def aliased(self, text: str) -> Resolution:
        """Returns what `text` means as an alias of a name (rule 24). Empty if there are no aliases."""
        return self._terms.aliased(text)

    def words(self, text: str) -> tuple[str, ...]:
        """Returns the root words of a constant: of the constant itself, and of its main form (rules 9 and 24)."""
        main = self._aliases.other(text)
        own = self.root_word(text)
        return (own,) if main is None else tuple(dict.fromkeys((own, self.root_word(main))))

    def coded(self, system: str, code: str) -> Resolution:
        """Returns the concepts that a code of a system means (rule 22). Deprecated ones are replaced."""
        return self._terms.known(self._code_systems.iris(system, code))

    def coded_names(self, systems: Iterable[str]) -> Iterator[tuple[str, str]]:
        """Yields (system, IRI) for each concept that a code of one of these declared systems may mean."""
        for name in sorted(set(systems) & self._code_systems.declared.keys()):
            for iri in self._code_systems.names_in(name, self._names.records):
                yield name, iri

    @property
    def code_systems(self) -> CodeSystems:
        """The systems of codes: declared ones and SKOS schemes."""
        return self._code_systems

    @property
    def splits(self) -> Splits:
        """The envelopes of events: declared ones and, if linked data is read, shipped ones (rule 21)."""
        return self._splits

    @property
    def envelope_names(self) -> frozenset[str]:
        """The members of data that may contain several events. Data without any of them is no envelope."""
        return self._splits.names.union(path[0] for each in self._schemas.splits for path in each.members)

    def curie(self, concept: ConceptId) -> str | None:
        """Returns a CURIE that resolves only to `concept`, with a prefix of the documents; None if there is none."""
        for iri in self.iris(concept):
            for curie in self._terms.curies(iri):
                if self.resolve(curie).candidates == (concept,):
                    return curie
        return None

    def spelt_out(self, curie: str) -> tuple[str, ...]:
        """Returns the IRIs, known or not, that a CURIE in a subscription may stand for: by the prefixes of ontologies,
        else by those of contexts, else by the last part of a namespace to which an ontology gives the empty prefix."""
        return self._terms.spelt_out(curie)

    def root_word(self, text: str) -> str:
        """Returns the user's root word for `text`, else `text` itself; in NFC."""
        text = nfc(text)
        return self._roots.get(text, text)

    def texts(self, text: str) -> tuple[str, ...]:
        """Returns the texts that tests of text read if `text` is published (rule 9): `text` in NFC and its root
        words."""
        return tuple(dict.fromkeys((nfc(text), *self.words(text))))

    def shared_labels(self) -> set[str]:
        """Returns the labels, exact and folded, that several names have. Linear in the number of labels."""
        return self._terms.shared()

    def replacement(self, iri: str) -> str | None:
        """Returns the replacement of a deprecated name. None if the name is not deprecated, or has no or several
        replacements."""
        successors = self._successors(iri)
        return successors[0] if len(successors) == 1 else None

    def _successors(self, iri: str) -> tuple[str, ...]:
        """Returns the preferred names that finally replace `iri`. Empty if it is not deprecated, or if its replacements
        only lead back to it."""
        ends: set[str] = set()
        seen = {iri}
        frontier = list(self._replaced_by(iri))
        while frontier:
            successor = frontier.pop()
            if successor in seen:
                continue
            seen.add(successor)
            later = self._replaced_by(successor)
            frontier.extend(later)
            if not later:
                ends.add(self.iri(self._hierarchy.concept_of[successor]))
        return tuple(sorted(ends))

    def _replaced_by(self, iri: str) -> tuple[str, ...]:
        """Returns the known names that a document states as replacements of a deprecated name."""
        record = self._names.records.get(iri)
        return self._known(record.replaced_by) if record is not None and record.deprecated else ()

    def considered(self, iri: str) -> tuple[str, ...]:
        """Returns the known names that a document suggests (`consider`) for a deprecated name without a replacement.
        People choose from them; the server does not."""
        record = self._names.records.get(iri)
        if record is None or not record.deprecated or self._successors(iri):
            return ()
        return self._known(record.consider)

    def _known(self, written: Iterable[str]) -> tuple[str, ...]:
        """Returns the known IRIs among `written`, including those of short forms."""
        known = self._hierarchy.concept_of
        return tuple(name for each in written for name in ((each,) if each in known else self._terms.short_form(each)))

    def relation(self, name: str) -> tuple[str, ...]:
        """Returns the IRIs of the relations that `name` may mean: none, one, or several if it is ambiguous."""
        found = self._relations.meant(name)
        if found or not self._aliases:
            return found
        main = self._aliases.main(name)
        return tuple(iri for iri in self._relations if self._aliases.main(iri) == main)

    # ── the hierarchy ───────────────────────────────────────────────────────────────────────────────────────────────

    def isa(self, concept: ConceptId, upper: ConceptId) -> bool:
        """Returns whether `concept` is `upper` or beneath it."""
        return self._hierarchy.isa(concept, upper)

    def children(self, concept: ConceptId) -> tuple[ConceptId, ...]:
        """Returns the concepts directly beneath `concept`, including individuals."""
        hierarchy = self._hierarchy
        return tuple(sorted({*hierarchy.children.get(concept, ()), *hierarchy.individuals.get(concept, ())}))

    def parents(self, concept: ConceptId) -> tuple[ConceptId, ...]:
        """Returns the concepts directly above `concept`; for an individual also its classes."""
        graph = self._hierarchy.graph
        return tuple(sorted({*graph.parents(concept), *graph.entries(concept)}))

    @cached_property
    def roots(self) -> tuple[ConceptId, ...]:
        """The concepts without parents: first those with children, because some ontologies have hundreds of roots that
        are obsolete and alone. Computed once, by a walk over all concepts."""
        found = [ConceptId(each) for each in range(len(self)) if not self.parents(ConceptId(each))]
        return tuple(sorted(found, key=lambda each: not self.children(each)))

    def ancestors(self, concept: ConceptId) -> tuple[ConceptId, ...]:
        """Returns all concepts above `concept`, without `concept`."""
        return tuple(each for each in self._hierarchy.graph.ancestors(concept) if each != concept)

    def descendants(self, concept: ConceptId) -> tuple[ConceptId, ...]:
        """Returns all concepts beneath `concept`, without `concept`."""
        return self._hierarchy.descendants(concept)

    def path(self, concept: ConceptId, upper: ConceptId) -> tuple[ConceptId, ...] | None:
        """Returns a shortest chain from `concept` up to `upper`, including both; None if there is none."""
        return self._hierarchy.path(concept, upper)

    # ── search for names ────────────────────────────────────────────────────────────────────────────────────────────

    def suggest(self, term: str, limit: int = 5) -> tuple[dict[str, Any], ...]:
        """Returns the known names nearest to `term`, each concept once: `{"label", "lang", "iri"}`. Hidden labels and
        loose synonyms are searched too. Takes some milliseconds at a hundred thousand labels."""
        return tuple(self._listed(self._index.nearest(term, 8 * limit), limit))

    def search(self, q: str, *, lang: str | None = None, limit: int = 20) -> list[dict[str, Any]]:
        """Returns concepts with `q` in a label, best first, each as `{"label", "lang", "iri"}`; the nearest ones if
        there is none. With `lang`, only labels in that language (`en` also finds `en-GB`, and `en-GB` finds `en`) or
        without a language."""
        wanted = (lang or "").lower()
        base = wanted.partition("-")[0]

        def fits(found: FoundLabel) -> bool:
            tag = found.language
            return not wanted or tag is None or tag in (wanted, base) or tag.startswith(wanted + "-")

        hits = filter(fits, self._index.containing(q))  # read lazily: a short text is in most labels
        first = next(hits, None)
        if first is None:
            return self._listed(filter(fits, self._index.nearest(q, 8 * limit)), limit)
        return self._listed(chain((first,), hits), limit)

    def index_labels(self) -> None:
        """Builds the index of `suggest` and `search`, which is otherwise built at their first call: some seconds at a
        million labels."""
        _ = self._index

    def _listed(self, labels: Iterable[FoundLabel], limit: int) -> list[dict[str, Any]]:
        found: dict[ConceptId, dict[str, Any]] = {}
        for each in labels:
            concept = self._hierarchy.concept_of[self.replacement(each.iri) or each.iri]
            if concept not in found:
                if len(found) == limit:
                    break
                found[concept] = {**self._told(each, concept), "iri": self.iri(concept)}
        return list(found.values())

    def _told(self, found: FoundLabel, concept: ConceptId) -> dict[str, str | None]:
        """Returns the label to show: the label found, unless it does not resolve (a hidden label or a loose
        synonym)."""
        if concept in self.readings(found.text):
            return {"label": found.text, "lang": found.language}
        label = self.label(concept, found.language or "en")
        return {"label": label if concept in self.readings(label) else self.iri(concept), "lang": found.language}

    @cached_property
    def _index(self) -> LabelIndex:
        """The index of all labels, with hidden ones and short forms. Built at first use; two threads may both build
        it."""
        return LabelIndex(record for _, record in sorted(self._names.records.items()))


def _hierarchy(ontologies: Sequence[Ontology], stated: Names, aliases: Aliases) -> Hierarchy:
    """Returns what all documents state together. A name that stands for another is equivalent to it (rule 24)."""
    return Hierarchy.build(
        stated.records,
        pairs=(pair for each in ontologies for pair in each.edges),
        types=(pair for each in ontologies for pair in each.types),
        equivalences=chain(
            (pair for each in ontologies for pair in each.equivalences),
            main_forms(aliases, _all_names(stated, ontologies) if aliases else ()),
        ),
        matches=(pair for each in ontologies for pair in each.matches),
        schemes=stated.schemes,
        preference=stated.preference,
    )


def _all_names(names: Names, ontologies: Sequence[Ontology]) -> set[str]:
    """Returns all names that the documents have, or may have, for a concept."""
    pairs = (pairs for each in ontologies for pairs in (each.edges, each.types, each.equivalences, each.matches))
    return {*names.records, *(name for each in pairs for pair in each for name in pair)}


def _properties(ontologies: Sequence[Ontology], units: Units) -> list[PropertyRecord]:
    """Returns all properties, with the labels that other documents give them, and without units that are not known or
    differ between the properties of one attribute."""
    properties = [record for each in ontologies for record in each.properties]
    agreed = {name: tuple(said) for name, said in _units_of(properties, units).items() if len(said) == 1}
    properties = [
        replace(record, units=agreed.get(local_name(record.iri), ())) if record.units else record
        for record in properties
    ]
    known = {record.iri for record in properties}
    return properties + [
        PropertyRecord(iri=remark.iri, labels=(*remark.preferred, *remark.synonyms))
        for each in ontologies
        for remark in each.remarks
        if remark.iri in known
    ]


def _version_of(
    ontologies: Sequence[Ontology],
    *,
    attributes: Any = None,
    synonyms: Any = None,
    rates: Any = None,
    schemas: Any = None,
    **others: Any,
) -> str:
    """Returns sixteen hex digits over the names and digests of the documents, their reading options, the declarations,
    and `MEANING`. Kinds of declarations that were added later are in `others` and count only if present, so that older
    versions keep their value."""
    documents = sorted(
        (
            each.name,
            each.sha256 or hashlib.sha256(repr(each).encode(errors="replace")).hexdigest(),
            each.reason,
            [relation.iri for relation in each.relations],
        )
        for each in ontologies
    )
    later = {name: declared for name, declared in others.items() if declared}
    counted = [
        MEANING,
        documents,
        *[each or {} for each in (attributes, synonyms, rates, schemas)],
        *([later] if later else []),
    ]
    digest = hashlib.sha256()
    for part in json.JSONEncoder(sort_keys=True, default=str).iterencode(counted):  # in parts, so that others may run
        digest.update(part.encode())
    return digest.hexdigest()[:16]


NAMED = 5
"""The maximum number of concepts that one note names. The note also has their total number."""


def notes_on_term(attribute: str, term: str, found: Resolution, vocabulary: Vocabulary) -> Iterator[Note]:
    """Yields the notes about `term` at `attribute`, which resolved to `found`: on deprecated names and their
    replacements, and on individuals of the same name that were set aside."""
    for old, new in found.replaced:
        yield Note("deprecated-term", attribute, f"{old} is deprecated: {new} is used instead")
    for iri in found.iris:
        if considered := vocabulary.considered(iri):
            detail = f"{iri} is deprecated, nothing replaces it; consider {', '.join(considered)}"
            yield Note("deprecated-term", attribute, detail)
    if found.level == "spelling" and len(found.candidates) == 1:
        detail = f"{term!r} is read as another spelling of {vocabulary.label(found.candidates[0])!r}"
        yield Note("other-spelling", attribute, detail)
    if found.set_aside:
        others = _named(found.set_aside, vocabulary.iri)
        detail = (
            f"{term!r} is read as the class {vocabulary.iri(found.candidates[0])}; individuals have the same "
            f"name: {others}"
        )
        yield Note("class-preferred", attribute, detail)


def notes_on_event_term(
    attribute: str, published: str, found: Resolution, vocabulary: Vocabulary, *, holds_concepts: bool
) -> Iterator[Note]:
    """Yields the notes about a published string: those of `notes_on_term`, and that it may mean several concepts or, if
    the attribute is declared to hold concepts, none."""
    if not found.candidates:
        if holds_concepts:
            yield unknown_term(attribute, published, vocabulary)
        return
    if len(found.candidates) > 1:
        named = _named(found.candidates, partial(_told_apart, among=found.candidates, vocabulary=vocabulary))
        yield Note("ambiguous-term", attribute, f"{published!r} may mean {named}: it counts as all of them")
    yield from notes_on_term(attribute, published, found, vocabulary)


def unknown_term(attribute: str, published: str, vocabulary: Vocabulary) -> Note:
    """Returns the note that a published string is not a concept, with the concept that another spelling of it means."""
    meant = vocabulary.respelt(published).candidates
    near = ""
    if meant:
        iri = vocabulary.iri(meant[0])
        near = f"; did you mean {iri if '://' in published else vocabulary.label(meant[0])}?"
    return Note("unknown-term", attribute, f"{published!r} is not a known concept, so it is a string{near}")


def _named(concepts: Sequence[ConceptId], name: Callable[[ConceptId], str]) -> str:
    more = f" and {len(concepts) - NAMED} more" if len(concepts) > NAMED else ""
    return ", ".join(map(name, concepts[:NAMED])) + more


def _told_apart(concept: ConceptId, among: Sequence[ConceptId], vocabulary: Vocabulary) -> str:
    """Returns the label of a concept, with its CURIE or IRI if another of the first concepts `among` has this label."""
    label = vocabulary.label(concept)
    if sum(vocabulary.label(each) == label for each in among[: NAMED + 1]) == 1:
        return label
    return f"{label} ({vocabulary.curie(concept) or vocabulary.iri(concept)})"


_SHARED: WeakValueDictionary[str, Vocabulary] = WeakValueDictionary()
"""The vocabularies in use, by version. Tenants with equal ontologies and declarations share one object."""
