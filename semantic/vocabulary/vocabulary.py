"""The vocabulary: an immutable bundle of hierarchies, names, attributes and units. One object per version.

    documents ──kindcast.semantic.ontology──▶ records ──hierarchy, labels, terms, attributes──▶ Vocabulary

A change builds another vocabulary; its `version` is a digest of everything that it was built from.

The load report of an upload has the numbers that an ontologist checks first, as JSON (docs/ontologies.md). Names and
pairs are counted as the documents state them, before equivalent names are merged, so the counts agree with an ontology
editor; `roots` and `max_depth` are those of the merged hierarchy.

Notes say how a term was read, to the subscriber who wrote it or to the publisher of the string (rules 12 and 13).
A note never changes what a term means.
"""

import hashlib
import json
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain, combinations
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from kindcast.index.clause import ConceptId
from kindcast.index.concept_graph import ConceptGraph
from kindcast.semantic.model import Note
from kindcast.semantic.ontology import ConceptRecord, Limits, Ontology, PropertyRecord, Reason
from kindcast.semantic.shipped_vocabularies import file_or_shipped
from kindcast.semantic.units import Units
from kindcast.semantic.vocabulary.attributes import AttributeScheme
from kindcast.semantic.vocabulary.contexts import compact_prefixes, shipped_contexts
from kindcast.semantic.vocabulary.derivation import Derivations
from kindcast.semantic.vocabulary.event_schemas import EventSchemas
from kindcast.semantic.vocabulary.event_types import Splits
from kindcast.semantic.vocabulary.identifiers import CodeSystems
from kindcast.semantic.vocabulary.labels import FoundLabel, LabelIndex, Names, Resolution, TermIndex, best_label
from kindcast.semantic.vocabulary.relations import Hierarchy, Relations
from kindcast.semantic.vocabulary.synonyms import Aliases, main_forms, root_words
from kindcast.semantic.vocabulary.visibility import View, view_of_roles

__all__ = ["MEANING", "Vocabulary", "notes_on_event_term", "notes_on_term", "overlap", "unknown_term"]


LISTED = 100  # entries of a list in the report; the numbers are complete
EXAMPLES = 20  # pairs that a reasoner added


def report(ontologies: Sequence[Ontology], names: Names, hierarchy: Hierarchy, relations: Relations) -> dict[str, Any]:
    """The load report of `ontologies` together. JSON-able."""
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
        "warnings": _warnings(ontologies, hierarchy),
    }


def _roots(names: Names, hierarchy: Hierarchy) -> int:
    """Concepts with nothing above them; an individual without a broader concept is no root, nor is a retired name."""
    graph = hierarchy.graph
    return sum(
        not graph.parents(concept) and names.places(hierarchy.names[concept])
        for concept in map(ConceptId, range(len(hierarchy)))
    )


def _reasoned(ontologies: Sequence[Ontology]) -> dict[str, Any]:
    """How far it was reasoned, how many pairs that gave, some of them, and what can have no member."""
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
    """Groups of names of one concept that different ontologies declare."""
    groups = []
    for group in hierarchy.names:
        if len(group) > 1 and len({names.origins[iri] for iri in group if iri in names.origins}) > 1:
            groups.append(list(group))
            if len(groups) == LISTED:
                break
    return groups


def _unresolved(ontologies: Sequence[Ontology]) -> list[str]:
    """Imports that no ontology here satisfies; the last `#` or `/` does not matter."""
    there = {iri.rstrip("#/") for each in ontologies for iri in each.declares}
    return sorted({iri for each in ontologies for iri in each.imports if iri.rstrip("#/") not in there})


def _warnings(ontologies: Sequence[Ontology], hierarchy: Hierarchy) -> list[str]:
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
    return warnings


def overlap(ontology: Ontology, other: Ontology) -> int:
    """How many concepts both declare, where that is more than half of the smaller one: another version of a document,
    most likely, that was meant to take its place. Else 0."""
    declared = [{each.iri for each in one.concepts if each.declared} for one in (ontology, other)]
    shared, least = len(declared[0] & declared[1]), min(map(len, declared))
    return shared if 2 * shared > least else 0


def _shown(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


MEANING = 3
"""Counts the meanings of docs/matching-semantics.md. Raised whenever the same documents, subscriptions and events mean
something else than before: versions of vocabularies are others then, and nothing that was compiled, canonicalised or
counted under the old meaning is taken for the new one."""
KEPT_TEXT = 1_000  # characters of a text whose meaning is kept: what publishers send must not fill the memory
_CLASSES = frozenset({"class", "concept"})  # kinds of records that go before individuals of the same name
READINGS = 1 << 16  # texts whose meaning is kept: more than the distinct strings of a busy stream, some 10 MB


class Vocabulary:
    """Concepts, names, attributes and units of one version. Immutable but for caches: any number of threads may read.

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
        """`attributes` are declarations beside the ontologies' own (`{"price": {"kind": "number", "unit": "USD"}}`),
        `synonyms` the user's table of words → root words, `rates` that of currencies, `schemas` event type → JSON
        Schema, `contexts` URL → JSON-LD context, beside those that are shipped; checked before, by
        `kindcast.semantic.vocabulary.contexts`; `code_systems` are systems of codes, `splits` envelopes of events,
        `unions` unions of relations by name, `aliases` tables of forms that stand for others.
        `reading` says how JSON-LD is read (rule 20): `{"linked_data": "plain"}` as plain JSON, `{"unknown_contexts":
        "plain"}` as plain JSON where it needs an unknown context.

        Raises InvalidDeclaration.
        """
        self._ontologies = tuple(ontologies)
        self._reading = dict(reading or {})
        self._roots = root_words(synonyms or {})
        self._units = Units(rates)
        self._aliases = Aliases(aliases)
        names = self._names = Names.of(self._ontologies)
        self._hierarchy = Hierarchy.build(
            names.records,
            pairs=(pair for each in self._ontologies for pair in each.edges),
            types=(pair for each in self._ontologies for pair in each.types),
            equivalences=chain(
                (pair for each in self._ontologies for pair in each.equivalences),
                main_forms(self._aliases, _all_names(names, self._ontologies) if self._aliases else ()),
            ),
            matches=(pair for each in self._ontologies for pair in each.matches),
            schemes=names.schemes,
            preference=names.preference,
        )
        self._relations = Relations.build(self._ontologies, self._hierarchy, unions)
        self._code_systems = CodeSystems(code_systems, names.records.values, self._aliases.main)
        self._contexts = {**shipped_contexts(), **(contexts or {})}
        self._graph = self._relations.graph.with_instances(len(self._hierarchy))
        self._terms = TermIndex(
            names.records.values(),
            self._hierarchy.concept_of,
            {pair for each in self._ontologies for pair in each.prefixes},
            self._successors,
            set(compact_prefixes(self._contexts.values())),
            self._aliases,
        )
        self._schemas = EventSchemas(schemas)
        self._splits = Splits(splits, shipped=self.reads_linked_data)
        domains = self._schemas.owned_domains()
        self._attributes = AttributeScheme.build(
            _properties(self._ontologies), attributes, self._roots, domains, self._aliases.main, self._terms.spelt_out
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
        self._report = report(self._ontologies, names, self._hierarchy, self._relations)
        self._readings: dict[str, Resolution] = {}
        self._views: dict[frozenset[str], View | None] = {}

    # ── where it comes from ─────────────────────────────────────────────────────────────────────────────────────────

    @classmethod
    def from_ontologies(cls, ontologies: Iterable[Ontology], **declarations: Any) -> "Vocabulary":
        """The vocabulary of documents that were read already; none gives the empty vocabulary."""
        return cls(tuple(ontologies), **declarations)

    @classmethod
    def shared(cls, ontologies: Iterable[Ontology], **declarations: Any) -> "Vocabulary":
        """The same, and of equal ontologies and declarations always one object, for as long as somebody has it: costs a
        digest of the declarations then. Raises InvalidDeclaration."""
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
        """The vocabulary of one document, read in this process; `reason="owl"` starts another one for the reasoner.
        `relations` are kept as hierarchies of their own: IRIs, CURIEs, local names, labels, or `transitive`.

        Raises OntologyError, UnsupportedFormat, UnknownRelation, ReasonerUnavailable, InvalidDeclaration.
        """
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
        """One vocabulary of several files, each named by its file name, and reasoned about by itself; each of
        `relations` must be in one of them at least. A bare name that is no file here is that of a shipped vocabulary
        (`shop.ttl`). Raises as `from_bytes`, and OSError."""
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
        """The number of the rules by which all this is read."""
        return MEANING

    @property
    def ontologies(self) -> tuple[Ontology, ...]:
        return self._ontologies

    @property
    def report(self) -> dict[str, Any]:
        """The load report, as `PUT /v1/ontologies/{name}` answers it (without version). A fresh copy."""
        return json.loads(json.dumps(self._report))  # type: ignore[no-any-return]

    @property
    def reads_linked_data(self) -> bool:
        """Whether JSON-LD events are read as graphs, and not as plain JSON."""
        return self._reading.get("linked_data") != "plain"

    @property
    def unknown_contexts(self) -> str:
        """What becomes of a JSON-LD event that needs an unknown context: `refuse`, or `plain`, read as plain JSON."""
        return self._reading.get("unknown_contexts", "refuse")

    @property
    def graph(self) -> ConceptGraph:
        """What engines walk: the concepts; after them the shadows of `relations`; after these one instance of each
        concept."""
        return self._graph

    def instance_of(self, concept: ConceptId) -> ConceptId:
        """The node of `graph` that stands for what an event says to be of this class (rule 21): all that is above the
        class is above it, and the class is not itself."""
        return ConceptId(len(self._relations.graph) + concept)

    @property
    def relations(self) -> Relations:
        """The relations that were asked for when documents were read; false where there are none."""
        return self._relations

    @property
    def attributes(self) -> AttributeScheme:
        return self._attributes

    def view_of_roles(self, roles: frozenset[str] | None) -> View | None:
        """What somebody with these roles may see of events; None: everything."""
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
        """The declared event types; false where there are none (open mode)."""
        return self._schemas

    @property
    def derivations(self) -> Derivations:
        """The derived attributes; false where there are none."""
        return self._derivations

    @property
    def contexts(self) -> Mapping[str, Any]:
        """The JSON-LD contexts that may be referred to, shipped and uploaded: URL → document with `@context`."""
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
        """The concept that has this name, or an alias of it, among its names."""
        found = self._hierarchy.concept_of.get(iri)
        if found is None and (main := self._aliases.other(iri)) is not None:
            return self._hierarchy.concept_of.get(main)
        return found

    def names(self, iri: str) -> bool:
        """Whether a concept has this very name, aliases left aside."""
        return iri in self._hierarchy.concept_of

    def iri(self, concept: ConceptId) -> str:
        """The preferred name of `concept`."""
        return self._hierarchy.names[concept][0]

    def iris(self, concept: ConceptId) -> tuple[str, ...]:
        """All names of `concept`, the preferred one first."""
        return self._hierarchy.names[concept]

    def label(self, concept: ConceptId, lang: str = "en") -> str:
        """The label to show: in `lang`, its base language, no language, any language; else the short end of the IRI."""
        return best_label(self._records(concept), self.iri(concept), lang)

    def summary(self, concept: ConceptId, lang: str = "en") -> dict[str, Any]:
        """What to show of `concept`, JSON-able."""
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

    # ── what terms mean ─────────────────────────────────────────────────────────────────────────────────────────────

    def resolve(
        self, term: str, *, is_iri: bool = False, within: Sequence[ConceptId] = (), asked: bool = False
    ) -> Resolution:
        """What `term` may mean, by the levels of `kindcast.semantic.vocabulary.labels`; deprecated names are replaced
        already. Of several candidates it is the one at or beneath one of `within` (the declared range of an attribute),
        if that leaves exactly one; else the one class or SKOS concept, if all others are individuals. A term that means
        nothing is tried again as its root word, and then, where that is declared, in other spellings. `asked`: a person
        wrote it, so that prefixes of contexts count too."""
        found = self._terms.resolve(term, is_iri=is_iri, asked=asked)
        if not found.candidates and not is_iri and self._roots:
            found = self._terms.resolve(self.root_word(term), asked=asked)
        if not found.candidates and not is_iri and self._aliases.spelt:
            found = self._terms.spelt_otherwise(term)
        if len(found.candidates) > 1:
            kept = [each for each in found.candidates if any(self.isa(each, upper) for upper in within)]
            if len(kept) == 1:
                return found.only(kept[0], frozenset(self.iris(kept[0])))
            kinds = [{record.kind for record in self._records(each)} for each in found.candidates]
            classes = [
                each for each, kind in zip(found.candidates, kinds, strict=True) if not kind.isdisjoint(_CLASSES)
            ]
            if len(classes) == 1 and kinds.count({"individual"}) == len(kinds) - 1:
                others = tuple(each for each in found.candidates if each != classes[0])
                return found.only(classes[0], frozenset(self.iris(classes[0])), others)
        return found

    def readings(self, text: str) -> tuple[ConceptId, ...]:
        """The concepts that a published string may mean. One dict access for strings seen lately."""
        return self.reading(text).candidates

    def reading(self, text: str) -> Resolution:
        """The same with how it was found, for notes: `resolve(text)`. One dict access for strings seen lately."""
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
        """What another spelling of `text` means, or the same IRI with the other of `http` and `https`: for suggestions.
        Nothing where several concepts are spelt so. Costs some 20 to 200 look-ups."""
        scheme, colon, rest = text.partition("://")
        if colon and scheme in ("http", "https"):
            return self._terms.resolve(f"{'http' if scheme == 'https' else 'https'}://{rest}", is_iri=True)
        found = self._terms.spelt_otherwise(text)
        return found if len(found.candidates) == 1 else Resolution()

    def aliased(self, text: str) -> Resolution:
        """What `text` means as an alias of a name (rule 24): nothing where there are no aliases."""
        return self._terms.aliased(text)

    def words(self, text: str) -> tuple[str, ...]:
        """The root words of a constant: its own, and that of its main form (rules 9 and 24)."""
        main = self._aliases.other(text)
        own = self.root_word(text)
        return (own,) if main is None else tuple(dict.fromkeys((own, self.root_word(main))))

    def coded(self, system: str, code: str) -> Resolution:
        """The concepts that a code of a system means (rule 22); deprecated ones are replaced."""
        return self._terms.known(self._code_systems.iris(system, code))

    def coded_names(self, systems: Iterable[str]) -> Iterator[tuple[str, str]]:
        """(system, IRI) for each concept that some code of these systems may mean, of those that are declared."""
        for name in sorted(set(systems) & self._code_systems.declared.keys()):
            for iri in self._code_systems.names_in(name, self._names.records):
                yield name, iri

    @property
    def code_systems(self) -> CodeSystems:
        """The systems of codes, declared ones and schemes."""
        return self._code_systems

    @property
    def splits(self) -> Splits:
        """The envelopes in which events come: declared ones, and shipped ones where linked data is read (rule 21)."""
        return self._splits

    @property
    def envelope_names(self) -> frozenset[str]:
        """The members of data that may lead to several events: data that has none of these is no envelope."""
        return self._splits.names.union(path[0] for each in self._schemas.splits for path in each.members)

    def curie(self, concept: ConceptId) -> str | None:
        """A CURIE that resolves to `concept` alone, by the prefixes of the documents; None where there is none."""
        for iri in self.iris(concept):
            for curie in self._terms.curies(iri):
                if self.resolve(curie).candidates == (concept,):
                    return curie
        return None

    def spelt_out(self, curie: str) -> tuple[str, ...]:
        """The IRIs that a CURIE in a subscription may stand for, known or not: by the prefixes of ontologies, else by
        those of contexts, else by the last part of a namespace that an ontology has the empty prefix for."""
        return self._terms.spelt_out(curie)

    def root_word(self, text: str) -> str:
        """The user's root word for `text`, else `text` itself; in NFC."""
        text = unicodedata.normalize("NFC", text)
        return self._roots.get(text, text)

    def texts(self, text: str) -> tuple[str, ...]:
        """What tests of text look at where `text` is published (rule 9): itself, in NFC, and its root words."""
        return tuple(dict.fromkeys((unicodedata.normalize("NFC", text), *self.words(text))))

    def shared_labels(self) -> set[str]:
        """Labels that several names have: exact ones, and folded ones. Linear in the labels."""
        return self._terms.shared()

    def replacement(self, iri: str) -> str | None:
        """The name to use instead of a deprecated one; None when it is not deprecated, or nothing or no one thing
        replaces it."""
        successors = self._successors(iri)
        return successors[0] if len(successors) == 1 else None

    def _successors(self, iri: str) -> tuple[str, ...]:
        """The preferred names of what replaces `iri`, followed to the end; none if it is not deprecated, or if its
        replacements only lead back to it."""
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
        """The known names that a document gives as replacements of a deprecated one."""
        record = self._names.records.get(iri)
        return self._known(record.replaced_by) if record is not None and record.deprecated else ()

    def considered(self, iri: str) -> tuple[str, ...]:
        """The known names that a document says to consider instead of a deprecated one that nothing replaces: for
        people, who choose; nothing here does."""
        record = self._names.records.get(iri)
        if record is None or not record.deprecated or self._successors(iri):
            return ()
        return self._known(record.consider)

    def _known(self, written: Iterable[str]) -> tuple[str, ...]:
        """IRIs that are known, those of short forms among them."""
        known = self._hierarchy.concept_of
        return tuple(name for each in written for name in ((each,) if each in known else self._terms.short_form(each)))

    def relation(self, name: str) -> tuple[str, ...]:
        """The IRIs of the relations that `name` may mean: none, one, or several where it is ambiguous."""
        found = self._relations.meant(name)
        if found or not self._aliases:
            return found
        main = self._aliases.main(name)
        return tuple(iri for iri in self._relations if self._aliases.main(iri) == main)

    # ── the hierarchy ───────────────────────────────────────────────────────────────────────────────────────────────

    def isa(self, concept: ConceptId, upper: ConceptId) -> bool:
        """Whether `concept` is `upper` or beneath it."""
        return self._hierarchy.isa(concept, upper)

    def children(self, concept: ConceptId) -> tuple[ConceptId, ...]:
        """What is directly beneath `concept`, individuals too."""
        hierarchy = self._hierarchy
        return tuple(sorted({*hierarchy.children.get(concept, ()), *hierarchy.individuals.get(concept, ())}))

    def parents(self, concept: ConceptId) -> tuple[ConceptId, ...]:
        """What is directly above `concept`; the classes of an individual too."""
        graph = self._hierarchy.graph
        return tuple(sorted({*graph.parents(concept), *graph.entries(concept)}))

    @cached_property
    def roots(self) -> tuple[ConceptId, ...]:
        """The concepts that nothing is above. One walk over all concepts, once."""
        return tuple(ConceptId(each) for each in range(len(self)) if not self.parents(ConceptId(each)))

    def ancestors(self, concept: ConceptId) -> tuple[ConceptId, ...]:
        """All above `concept`, itself not included."""
        return tuple(each for each in self._hierarchy.graph.ancestors(concept) if each != concept)

    def descendants(self, concept: ConceptId) -> tuple[ConceptId, ...]:
        """All beneath `concept`, itself not included."""
        return self._hierarchy.descendants(concept)

    def path(self, concept: ConceptId, upper: ConceptId) -> tuple[ConceptId, ...] | None:
        """A shortest chain from `concept` up to `upper`, both included; None where there is none."""
        return self._hierarchy.path(concept, upper)

    # ── for people who look for a name ──────────────────────────────────────────────────────────────────────────────

    def suggest(self, term: str, limit: int = 5) -> tuple[dict[str, Any], ...]:
        """The known names nearest to `term`, each concept once: `{"label", "lang", "iri"}`. Hidden labels and loose
        synonyms lead here as well. Bounded: some milliseconds at a hundred thousand labels."""
        return tuple(self._listed(self._index.nearest(term, 8 * limit), limit))

    def search(self, q: str, *, lang: str | None = None, limit: int = 20) -> list[dict[str, Any]]:
        """Concepts with `q` in a label, best first, each `{"label", "lang", "iri"}`; the nearest ones if there is none.
        With `lang` only labels in that language (`en` finds `en-GB` too, and `en-GB` finds `en`) or without any."""
        wanted = (lang or "").lower()
        base = wanted.partition("-")[0]

        def fits(found: FoundLabel) -> bool:
            tag = found.language
            return not wanted or tag is None or tag in (wanted, base) or tag.startswith(wanted + "-")

        hits = filter(fits, self._index.containing(q))  # as far as they are asked for: a short text is in most labels
        first = next(hits, None)
        if first is None:
            return self._listed(filter(fits, self._index.nearest(q, 8 * limit)), limit)
        return self._listed(chain((first,), hits), limit)

    def index_labels(self) -> None:
        """Make `suggest` and `search` ready, which the first of them does otherwise: some seconds at a million
        labels."""
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
        """The label to show: the one found, unless it would not resolve (a hidden label, a loose synonym)."""
        if concept in self.readings(found.text):
            return {"label": found.text, "lang": found.language}
        label = self.label(concept, found.language or "en")
        return {"label": label if concept in self.readings(label) else self.iri(concept), "lang": found.language}

    @cached_property
    def _index(self) -> LabelIndex:
        """All labels, hidden ones and short forms too. Built when first needed; two threads may both build it."""
        return LabelIndex(record for _, record in sorted(self._names.records.items()))


def _all_names(names: Names, ontologies: Sequence[Ontology]) -> set[str]:
    """Every name that the documents have for a concept, or may have for one."""
    pairs = (pairs for each in ontologies for pairs in (each.edges, each.types, each.equivalences, each.matches))
    return {*names.records, *(name for each in pairs for pair in each for name in pair)}


def _properties(ontologies: Sequence[Ontology]) -> list[PropertyRecord]:
    """All properties, and the labels that other documents give them."""
    properties = [record for each in ontologies for record in each.properties]
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
    """Sixteen hex digits over names and digests of the documents, how they were read, the declarations, and what all
    that means. Kinds of declarations that came later are `others`, and count where there are any: so versions of before
    stay what they are."""
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
    text = json.dumps(counted, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


NAMED = 5
"""Concepts that one note names; it tells how many there are."""


def notes_on_term(attribute: str, term: str, found: Resolution, vocabulary: Vocabulary) -> Iterator[Note]:
    """The notes about `term` at `attribute`, which resolved to `found`: that names are deprecated, with their
    replacements, and that individuals of the same name were set aside."""
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
        others = _named([vocabulary.iri(concept) for concept in found.set_aside])
        detail = (
            f"{term!r} is read as the class {vocabulary.iri(found.candidates[0])}; individuals have the same "
            f"name: {others}"
        )
        yield Note("class-preferred", attribute, detail)


def notes_on_event_term(
    attribute: str, published: str, found: Resolution, vocabulary: Vocabulary, *, holds_concepts: bool
) -> Iterator[Note]:
    """The same for a published string, and that it may mean several concepts, or, where the attribute is declared to
    hold concepts, none."""
    if not found.candidates:
        if holds_concepts:
            yield unknown_term(attribute, published, vocabulary)
        return
    if len(found.candidates) > 1:
        labels = _named([vocabulary.label(concept) for concept in found.candidates])
        yield Note("ambiguous-term", attribute, f"{published!r} may mean {labels}: it counts as all of them")
    yield from notes_on_term(attribute, published, found, vocabulary)


def unknown_term(attribute: str, published: str, vocabulary: Vocabulary) -> Note:
    """That a published string is not a concept, and which concept it would be in another spelling."""
    meant = vocabulary.respelt(published).candidates
    near = ""
    if meant:
        iri = vocabulary.iri(meant[0])
        near = f"; did you mean {iri if '://' in published else vocabulary.label(meant[0])}?"
    return Note("unknown-term", attribute, f"{published!r} is not a known concept, so it is a string{near}")


def _named(names: list[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


_SHARED: WeakValueDictionary[str, Vocabulary] = WeakValueDictionary()
"""Those in use, by version: tenants with equal ontologies and declarations share one object."""
