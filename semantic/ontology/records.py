"""What a document says, without RDF: frozen records of names, labels and pairs; progress and warnings of reading it.

The records are the input of `kindcast.semantic.vocabulary.vocabulary`. Warnings are bounded: the first few of a kind
are shown with their lines, the others are counted.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeVar

__all__ = [
    "ConceptKind",
    "ConceptRecord",
    "DocumentWarnings",
    "Label",
    "Limits",
    "Ontology",
    "Progress",
    "PropertyRecord",
    "Reason",
    "RelationRecord",
    "counted",
    "shown",
    "silent",
]

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


T = TypeVar("T")

Progress = Callable[[str, int, int | None], None]
"""Called with a stage (`parse`, `extract`, …), what is done, and the total, or None where nobody knows it."""

EVERY = 8_192  # items between two looks at the clock, which costs more than to count
SECONDS = 0.1  # between two reports: people read no faster


def silent(stage: str, done: int, total: int | None) -> None:
    """Tells nobody."""


def counted(items: Iterator[T], progress: Progress, stage: str) -> Iterator[T]:
    """`items`, and now and then how many there were."""
    if progress is silent:
        yield from items
        return
    progress(stage, 0, None)
    last = time.monotonic()
    for number, item in enumerate(items, 1):
        if number % EVERY == 0:
            now = time.monotonic()
            if now - last >= SECONDS:
                last = now
                progress(stage, number, None)
        yield item


SHOWN = 5  # warnings of one kind that are shown with their line: a document repeats its mistakes
KINDS = 50  # kinds that are shown: a document with more kinds is probably in another syntax
LONGEST = 80  # characters of a piece of the document in a warning


class DocumentWarnings:
    """Warnings in the order in which they came up, bounded whatever the document.

    >>> noted = DocumentWarnings()
    >>> noted.add(3, "no id", "the stanza has no id")
    >>> list(noted.texts())
    ['line 3: the stanza has no id']
    """

    def __init__(self) -> None:
        self._texts: dict[str, list[str]] = {}
        self._counts: dict[str, int] = {}
        self._beyond = 0

    def add(self, line: int, kind: str, text: str) -> None:
        """Notes `text`, about `line` (from 1); warnings of the same `kind` are reported together."""
        if kind not in self._counts and len(self._counts) == KINDS:
            self._beyond += 1
            return
        self._counts[kind] = self._counts.get(kind, 0) + 1
        if self._counts[kind] <= SHOWN:
            self._texts.setdefault(kind, []).append(f"line {line}: {text}")

    def texts(self) -> Iterator[str]:
        """All that came up."""
        for kind, texts in self._texts.items():
            yield from texts
            more = self._counts[kind] - len(texts)
            if more:
                yield f"and {more:,} more warnings of this kind ({kind})"
        if self._beyond:
            yield f"and {self._beyond:,} more warnings of other kinds"


def shown(text: str) -> str:
    """`text` as it is quoted in a warning.

    >>> shown("a" * 100).endswith("…'")
    True
    """
    return repr(text if len(text) <= LONGEST else text[:LONGEST] + "…")
