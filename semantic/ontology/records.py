"""What a document says, without RDF: frozen records of names, labels and pairs. The input of
`kindcast.semantic.vocabulary.vocabulary`."""

from dataclasses import dataclass
from typing import Literal

__all__ = ["ConceptKind", "ConceptRecord", "Label", "Limits", "Ontology", "PropertyRecord", "Reason", "RelationRecord"]

Label = tuple[str, str | None]
"""A label and its language tag in lower case, or None where it has none."""

Reason = Literal["none", "rdfs", "owl"]
"""How much a document means beyond what it states: structure only, RDFS entailments, or what a DL reasoner finds."""

ConceptKind = Literal["class", "concept", "scheme", "individual", "retired"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConceptRecord:
    """One name for a concept. `kind` says how the document knows it: an RDFS or OWL class, a SKOS concept (or anything
    that stands in a SKOS hierarchy), a concept scheme with top concepts, an individual that only has a class, or a
    retired name of which only its replacement is told.

    `preferred` and `synonyms` resolve; `hidden` (hidden labels; broad, narrow and related synonyms) only feeds
    suggestions. `declared` is False for a name that the document merely refers to. `replaced_by` is acted on,
    `consider` (OBO: perhaps this one instead) only told. `schemes` are those that it is stated to be in
    (`skos:inScheme`). `notations` are its codes, each with the property that holds it (`namespaces.NOTATIONS`).
    """

    iri: str
    kind: ConceptKind = "class"
    declared: bool = True
    preferred: tuple[Label, ...] = ()
    synonyms: tuple[Label, ...] = ()
    hidden: tuple[Label, ...] = ()
    deprecated: bool = False
    replaced_by: tuple[str, ...] = ()
    consider: tuple[str, ...] = ()
    definition: str | None = None
    schemes: tuple[str, ...] = ()
    notations: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PropertyRecord:
    """A property, hence an attribute: its labels, the properties above it, the IRIs of its range and domain, its unit
    if declared, and the properties that are its inverse."""

    iri: str
    labels: tuple[Label, ...] = ()
    parents: tuple[str, ...] = ()
    ranges: tuple[str, ...] = ()
    unit: str | None = None
    domains: tuple[str, ...] = ()
    inverses: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RelationRecord:
    """A relation that was asked for when the document was read, as a hierarchy of its own: `edges` are (from, to) IRIs
    of concepts, whichever way the document states them (a triple, a restriction, an OBO relationship).

    `derived` names those of them that only class expressions state: they hold of every member of a class, so they
    cannot be read backwards. `narrower` are the other properties whose edges are edges of this one, `inverses` those
    whose edges are, backwards, as far as this document says: its own edges are in `edges` already, but other documents
    may use these properties."""

    iri: str
    labels: tuple[Label, ...] = ()
    edges: tuple[tuple[str, str], ...] = ()
    derived: frozenset[tuple[str, str]] = frozenset()
    narrower: tuple[str, ...] = ()
    inverses: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ontology:
    """One document as records, each tuple sorted, so that two documents with the same triples give equal records.

    `edges` are (narrower, broader) IRIs; `derived` names those of them that no single triple states: conjuncts of a
    defined class, members of a union, top concepts under their scheme. `types` are (individual, class); `equivalences`
    are pairs of names for one thing; `matches` are pairs by `skos:exactMatch`, which are names for one thing only where
    that is one-to-one between schemes, over all documents together. `inferred` are the pairs among these four that
    reasoning added (`reason` says how much of it), `unsatisfiable` the classes that can have no member. `relations` are
    those that were asked for. `remarks` are labels, schemes and the like of names that the document does not use
    otherwise: they count where another ontology makes such a name a concept or an attribute (a translation, say).
    `declares` are the document's own names as an ontology, by which others import it. `languages` counts the labels of
    concepts per language ("" = no tag).
    """

    name: str
    sha256: str = ""
    format: str = ""
    triples: int = 0
    concepts: tuple[ConceptRecord, ...] = ()
    edges: tuple[tuple[str, str], ...] = ()
    derived: frozenset[tuple[str, str]] = frozenset()
    types: tuple[tuple[str, str], ...] = ()
    equivalences: tuple[tuple[str, str], ...] = ()
    matches: tuple[tuple[str, str], ...] = ()
    properties: tuple[PropertyRecord, ...] = ()
    remarks: tuple[ConceptRecord, ...] = ()
    prefixes: tuple[tuple[str, str], ...] = ()
    imports: tuple[str, ...] = ()
    declares: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    languages: tuple[tuple[str, int], ...] = ()
    relations: tuple[RelationRecord, ...] = ()
    reason: Reason = "none"
    inferred: frozenset[tuple[str, str]] = frozenset()
    unsatisfiable: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds on one document; each is an error when crossed, except the label length, which drops the label and
    warns."""

    bytes: int = (
        256 << 20
    )  # plain or inflated: four times the largest thesaurus in common use, one core for some seconds
    inflation: int = 200  # gzip of RDF shrinks 10 to 50 times; more than this is a bomb
    triples: int = 20_000_000
    concepts: int = 2_000_000
    edges: int = 10_000_000
    iri: int = 4_096  # characters of an IRI or prefix: short names must not stand for megabytes
    label: int = 4_096  # characters; longer ones are texts, not labels
    depth: int = 256  # nesting of XML elements, JSON values and triple terms: the parsers slow down or crash above it
    expansion: int = 16  # times its own size that an RDF/XML document may grow by entities; `&owl;` grows six times
    entity_characters: int = 4 << 20  # characters that it may grow to in any case
    text_run: int = 1 << 20  # characters of one text in RDF/XML
