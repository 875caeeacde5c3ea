"""What a document says, without RDF: frozen records, their names as IRIs, their encoding as bytes, and warnings.

The records are the input of `kindcast.semantic.vocabulary.vocabulary`. Warnings are bounded: the first few of a kind
are shown with their lines, the others are counted.
"""

import difflib
import time
import unicodedata
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeVar, get_args

import msgspec
import numpy as np

from kindcast.semantic.errors import OntologyError

__all__ = [
    "NOTATION",
    "NOTATIONS",
    "OBO",
    "ConceptKind",
    "ConceptRecord",
    "DocumentWarnings",
    "Label",
    "Limits",
    "Ontology",
    "Progress",
    "PropertyRecord",
    "Reason",
    "RelationNames",
    "RelationRecord",
    "counted",
    "decode",
    "encode",
    "is_readable",
    "local_name",
    "namespace",
    "shown",
    "silent",
]

# ── IRIs as text: their two ends, and the properties that hold codes ──────────────────────────────────────────────────


OBO: Final = "http://purl.obolibrary.org/obo/"

NOTATION: Final = "http://www.w3.org/2004/02/skos/core#notation"
NOTATIONS: Final = (  # properties that hold the code of a concept in a system of codes
    NOTATION,
    "http://www.geneontology.org/formats/oboInOwl#id",
    "http://purl.org/dc/elements/1.1/identifier",
    "http://purl.org/dc/terms/identifier",
    "http://schema.org/identifier",
    "https://schema.org/identifier",
)


def local_name(iri: str) -> str:
    """What follows the last `#` or `/` of `iri` (the last `:` of a URN), ends like `…/thing/` cut off first.

    >>> local_name("https://brickschema.org/schema/Brick#Temperature_Sensor")
    'Temperature_Sensor'
    >>> local_name("http://purl.obolibrary.org/obo/CL_0000084"), local_name("urn:isbn:12")
    ('CL_0000084', '12')
    """
    text = iri.rstrip("/#")
    return text[max(text.rfind("#"), text.rfind("/"), text.rfind(":")) + 1 :]


def namespace(iri: str) -> str:
    """What stands before the local name of `iri`; of an identifier of OBO the prefix belongs to it, for all of its
    ontologies share what is before that.

    >>> namespace("https://brickschema.org/schema/Brick#Temperature_Sensor")
    'https://brickschema.org/schema/Brick#'
    >>> namespace("http://purl.obolibrary.org/obo/CL_0000084")
    'http://purl.obolibrary.org/obo/CL_'
    """
    local = local_name(iri)
    if iri.startswith(OBO):
        local = local.rpartition("_")[2]
    return iri.rstrip("/#").removesuffix(local)


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


# ── every way to write the name of a relation: the levels of `kindcast.semantic.ontology.extraction` ─────────


LONGEST_NAME = 4_096  # characters of a name that is looked up: no label is longer, and folding costs by the character


class RelationNames:
    """Every way to write every relation. Immutable; a look-up costs a few dict accesses.

    >>> names = RelationNames({"http://purl.obolibrary.org/obo/BFO_0000050": ["part of"]}, [])
    >>> names.meant("part_of") == names.meant("BFO:0000050") == ("http://purl.obolibrary.org/obo/BFO_0000050",)
    True
    """

    def __init__(self, labels: Mapping[str, Iterable[str]], prefixes: Iterable[tuple[str, str]]) -> None:
        """`labels` are those of each relation, by IRI; `prefixes` are (prefix, namespace)."""
        self._known = frozenset(labels)
        self._local: defaultdict[str, list[str]] = defaultdict(list)
        self._labels: defaultdict[str, list[str]] = defaultdict(list)
        self._shown: dict[str, str] = {}
        for iri, texts in sorted(labels.items()):
            local = local_name(iri)
            self._local[local].append(iri)
            for text in (local, *texts):
                self._shown.setdefault(_folded(text), text)
            for fold in {_folded(text) for text in texts}:
                self._labels[fold].append(iri)
        self._prefixes: defaultdict[str, list[str]] = defaultdict(list)
        for prefix, namespace in sorted(set(prefixes)):
            self._prefixes[prefix].append(namespace)

    def meant(self, name: str) -> tuple[str, ...]:
        """The IRIs that `name` may mean, sorted: none, one, or several of the first level with a hit."""
        if name in self._known:
            return (name,)
        if not name or len(name) > LONGEST_NAME:
            return ()
        prefix, colon, rest = name.partition(":")
        if colon:
            spelt_out = {space + rest for space in self._prefixes.get(prefix, ())} & self._known
            if spelt_out:
                return tuple(sorted(spelt_out))
        found = self._local.get(f"{prefix}_{rest}" if colon else name) or self._labels.get(_folded(name))
        return tuple(sorted(found or ()))

    def near(self, name: str, most: int = 5) -> tuple[str, ...]:
        """The names that look most like `name`."""
        folds = difflib.get_close_matches(_folded(name[:200]), self._shown, n=most, cutoff=0.6)
        return tuple(dict.fromkeys(self._shown[fold] for fold in folds))


def _folded(text: str) -> str:
    text = unicodedata.normalize("NFKC", text.replace("_", " "))
    return " ".join(unicodedata.normalize("NFKC", text.casefold()).split())


# ── records as bytes and back: how an ontology is stored and passed between processes ─────────────────────────────────

#     names       every IRI and language tag once
#     concepts    in pieces of `PIECE` records, whose names are places in `names`
#     pairs       of each kind, as places in `names`, two int32 each
#     rest        everything else, as it is
#
# So a name that stands in a record, in ten pairs and beneath a million labels is one string again after decoding. In
# MessagePack, compressed, behind a line that names the layout. Decoding checks every field against its type and every
# place against its bounds, and runs no code.


HEADER: Final = b"kindcast ontology records 4\n"
OLDER: Final = b"kindcast ontology records 3\n"
OLDEST: Final = b"kindcast ontology records 2\n"
"""As long as `HEADER`. The third layout has no notations, the second neither these nor schemes."""
PIECE: Final = 1 << 14
"""Records decoded at once: what they take on the way is a small part of all."""
LARGEST: Final = 4 << 30
"""Bytes that records may have before they are compressed: above anything that the limits of reading let through."""
CONCEPT_KINDS: Final[tuple[ConceptKind, ...]] = get_args(ConceptKind)

Schemes = dict[tuple[int, ...], tuple[str, ...]]
"""The schemes that records are in, by their places in `names`."""
PackedLabels = list[tuple[str, int]]
"""Text and the place of its language tag; -1 for none."""


class _Packed(msgspec.Struct, array_like=True, frozen=True):
    """A `ConceptRecord`."""

    iri: int
    kind: int
    declared: bool
    deprecated: bool
    preferred: PackedLabels
    synonyms: PackedLabels
    hidden: PackedLabels
    replaced_by: tuple[str, ...]
    consider: tuple[str, ...]
    definition: str | None
    schemes: tuple[int, ...] = ()
    notations: list[tuple[int, str]] = []


class _Stored(msgspec.Struct, array_like=True, frozen=True):
    """An `Ontology`; `concepts` are encoded lists of `_Packed`."""

    names: list[str]
    concepts: list[bytes]
    pairs: list[bytes]
    rest: Ontology


_encoder = msgspec.msgpack.Encoder(order="deterministic")
_decoder = msgspec.msgpack.Decoder(_Stored)
_records = msgspec.msgpack.Decoder(list[_Packed])


def encode(ontology: Ontology) -> bytes:
    """`ontology` as bytes: equal records give equal bytes. Cost: linear."""
    places = _Places()
    concepts = [
        _encoder.encode([_packed(record, places) for record in ontology.concepts[start : start + PIECE]])
        for start in range(0, len(ontology.concepts), PIECE)
    ]
    pairs = [
        np.array([places[name] for pair in found for name in pair], dtype=np.int32).tobytes()
        for found in (
            ontology.edges,
            sorted(ontology.derived),
            ontology.types,
            ontology.equivalences,
            ontology.matches,
            sorted(ontology.inferred),
        )
    ]
    rest = replace(
        ontology,
        concepts=(),
        edges=(),
        derived=frozenset(),
        types=(),
        equivalences=(),
        matches=(),
        inferred=frozenset(),
    )
    return HEADER + zlib.compress(_encoder.encode(_Stored(list(places), concepts, pairs, rest)), 1)


def is_readable(data: bytes) -> bool:
    """Whether these are records in the layout that `decode` reads. Whether they are whole, only `decode` finds out."""
    return data.startswith(HEADER)


def decode(data: bytes, *, older: bool = False) -> Ontology:
    """The records again. With `older` those of the two layouts before too: both had no notations, the first no schemes,
    and exact matches among the other equivalences. For who has no document to read again. Raises OntologyError for
    bytes of another layout, or none of ours."""
    before = older and data.startswith(OLDEST)
    if not is_readable(data) and not before and not (older and data.startswith(OLDER)):
        raise OntologyError("the stored records were written by another version of kindcast: read the document again")
    try:
        stored = _decoder.decode(_inflated(data[len(HEADER) :]))
        names = stored.names
        tags: list[str | None] = [*names, None]  # the last one is that of place -1
        schemes: Schemes = {}
        concepts = [_record(each, names, tags, schemes) for piece in stored.concepts for each in _records.decode(piece)]
        pairs = [*stored.pairs[:4], b"", *stored.pairs[4:]] if before else stored.pairs
        edges, derived, types, equivalences, matches, inferred = (_pairs(each, names) for each in pairs)
    except (zlib.error, msgspec.MsgspecError, ValueError, IndexError) as error:
        raise OntologyError(f"the stored records are damaged: {error}") from error
    return replace(
        stored.rest,
        concepts=tuple(concepts),
        edges=edges,
        derived=frozenset(derived),
        types=types,
        equivalences=equivalences,
        matches=matches,
        inferred=frozenset(inferred),
    )


class _Places(dict[str, int]):
    """Name → its place, in the order in which names come."""

    def __missing__(self, name: str) -> int:
        self[name] = place = len(self)
        return place


def _packed(record: ConceptRecord, places: _Places) -> _Packed:
    return _Packed(
        places[record.iri],
        CONCEPT_KINDS.index(record.kind),
        record.declared,
        record.deprecated,
        _packed_labels(record.preferred, places),
        _packed_labels(record.synonyms, places),
        _packed_labels(record.hidden, places),
        record.replaced_by,
        record.consider,
        record.definition,
        tuple(places[scheme] for scheme in record.schemes),
        [(places[holder], code) for holder, code in record.notations],
    )


def _packed_labels(labels: Iterable[Label], places: _Places) -> PackedLabels:
    return [(text, -1 if tag is None else places[tag]) for text, tag in labels]


def _record(packed: _Packed, names: Sequence[str], tags: Sequence[str | None], schemes: Schemes) -> ConceptRecord:
    """`schemes` has those of the records before: most are in the same ones, and share the tuple."""
    holders = [holder for holder, _ in packed.notations]
    if packed.iri < 0 or packed.kind < 0 or min((*packed.schemes, *holders), default=0) < 0:
        raise IndexError("a place below 0")
    if packed.schemes not in schemes:
        schemes[packed.schemes] = tuple(names[place] for place in packed.schemes)
    return ConceptRecord(
        iri=names[packed.iri],
        kind=CONCEPT_KINDS[packed.kind],
        declared=packed.declared,
        preferred=_labels(packed.preferred, tags),
        synonyms=_labels(packed.synonyms, tags),
        hidden=_labels(packed.hidden, tags),
        deprecated=packed.deprecated,
        replaced_by=packed.replaced_by,
        consider=packed.consider,
        definition=packed.definition,
        schemes=schemes[packed.schemes],
        notations=tuple([(names[holder], code) for holder, code in packed.notations]),
    )


def _labels(packed: PackedLabels, tags: Sequence[str | None]) -> tuple[Label, ...]:
    if any(place < -1 for _, place in packed):
        raise IndexError("a place below -1")
    return tuple([(text, tags[place]) for text, place in packed])


def _pairs(packed: bytes, names: Sequence[str]) -> tuple[tuple[str, str], ...]:
    places = np.frombuffer(packed, dtype=np.int32).reshape(-1, 2)
    if places.size and places.min() < 0:
        raise IndexError("a place below 0")
    low, high = places[:, 0].tolist(), places[:, 1].tolist()
    return tuple([(names[one], names[other]) for one, other in zip(low, high, strict=True)])


def _inflated(data: bytes) -> bytes:
    inflating = zlib.decompressobj()
    plain = inflating.decompress(data, LARGEST)
    if not inflating.eof:
        raise zlib.error("there are too few or too many")
    return plain
