"""The records of an ontology document, free of RDF: their types, their encoding as bytes, and warnings.

The records are the input of `kindcast.semantic.vocabulary.vocabulary`. The number of warnings is limited: the first few
of a kind are shown with their lines, the others are counted.
"""

import difflib
import time
import zlib
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeVar, get_args

import msgspec

from kindcast.semantic.errors import OntologyError
from kindcast.semantic.unicode_text import nfkc

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
    "sorted_labels",
]

# ── IRIs as text: local name and namespace; properties that hold codes ────────────────────────────────────────────────


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
    """Returns the part of `iri` after its last `#`, `/` or `:`. `#` and `/` at the end of `iri` are removed first.

    >>> local_name("https://brickschema.org/schema/Brick#Temperature_Sensor")
    'Temperature_Sensor'
    >>> local_name("http://purl.obolibrary.org/obo/CL_0000084"), local_name("urn:isbn:12")
    ('CL_0000084', '12')
    """
    text = iri.rstrip("/#")
    return text[max(text.rfind("#"), text.rfind("/"), text.rfind(":")) + 1 :]


def namespace(iri: str) -> str:
    """Returns the part of `iri` before its local name. In an OBO identifier the prefix (`CL_`) is part of the
    namespace, because all OBO ontologies share the text before the prefix.

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
"""A label and its language tag in lower case, or None if it has no language tag."""


def sorted_labels(labels: Iterable[Label]) -> tuple[Label, ...]:
    """Returns the labels by language tag, those without one first."""
    return tuple(sorted(labels, key=lambda label: (label[1] or "", label[0])))


Reason = Literal["none", "rdfs", "owl"]
"""What is added to the stated triples: nothing, the entailments of RDFS, or the findings of an OWL 2 DL reasoner."""

ConceptKind = Literal["class", "concept", "scheme", "individual", "retired"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConceptRecord:
    """One name of a concept. `kind` says what the name is in the document: an RDFS or OWL class, a SKOS concept (or
    any member of a SKOS hierarchy), a concept scheme with top concepts, an individual that only has a class, or a
    retired name of which the document only states the replacement.

    Names are resolved by `preferred` and `synonyms`. `hidden` (hidden labels; broad, narrow and related synonyms) is
    used only for suggestions. `declared` is False if the document only refers to the name. `replaced_by` is applied.
    `consider` (OBO: a possible replacement) is only reported. `schemes` are the stated schemes of the name
    (`skos:inScheme`). `notations` are its codes, each with the property that holds it (`NOTATIONS`).
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
    """A property, which becomes an attribute. `parents` are its stated super-properties and equivalent properties,
    `ranges` and `domains` are IRIs, `units` are its declared units, and `inverses` are its inverse properties."""

    iri: str
    labels: tuple[Label, ...] = ()
    parents: tuple[str, ...] = ()
    ranges: tuple[str, ...] = ()
    unit: str | None = None
    """In stored records of an earlier version: their only unit. It becomes one of `units`."""
    units: tuple[str, ...] = ()
    domains: tuple[str, ...] = ()
    inverses: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.unit is not None:
            object.__setattr__(self, "units", (*self.units, self.unit))
            object.__setattr__(self, "unit", None)


@dataclass(frozen=True, slots=True, kw_only=True)
class RelationRecord:
    """A relation that was requested for the reading of the document, as a hierarchy of its own. `edges` are (from, to)
    IRIs of concepts, stated by a triple, a restriction or an OBO relationship.

    `derived` are the edges that only class expressions state. They hold for every member of a class, so they cannot be
    read backwards. `narrower` are the other properties whose edges are edges of this relation. `inverses` are the
    properties whose reversed edges are. Both are as this document states them. Their edges in this document are already
    in `edges`, but other documents may use these properties."""

    iri: str
    labels: tuple[Label, ...] = ()
    edges: tuple[tuple[str, str], ...] = ()
    derived: frozenset[tuple[str, str]] = frozenset()
    narrower: tuple[str, ...] = ()
    inverses: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ontology:
    """One document as records. Each tuple is sorted, so two documents with the same triples give equal records.

    `edges` are (narrower, broader) IRIs. `derived` are the edges that no single triple states: conjuncts of a defined
    class, members of a union, top concepts below their scheme. `types` are (individual, class) pairs. `equivalences`
    are pairs of names of one thing. `matches` are pairs by `skos:exactMatch`; they name one thing only if the match is
    one-to-one between schemes in all documents together. `inferred` are the pairs of these four kinds that reasoning
    added (`reason` is the kind of reasoning). `unsatisfiable` are the classes that can have no member. `relations` are
    the requested relations. `remarks` hold labels, schemes and the like of names that the document does not use
    otherwise. They take effect if another ontology makes such a name a concept or an attribute (the document may be a
    translation). `declares` are the IRIs of the document itself, by which other documents import it. `languages` counts
    the labels of concepts per language ("" = no tag).
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
    """Limits for one document. Exceeding a limit is an error, except for `label`: a longer label is dropped, with a
    warning."""

    bytes: int = (
        256 << 20
    )  # plain or inflated; four times the largest thesaurus in common use; takes one core some seconds
    inflation: int = 200  # RDF is compressed by gzip 10 to 50 times; a higher ratio is a decompression bomb
    triples: int = 20_000_000
    concepts: int = 2_000_000
    edges: int = 10_000_000
    iri: int = 4_096  # characters of an IRI or prefix, because a short name must not expand to megabytes
    label: int = 4_096  # characters; a longer text is not a label
    depth: int = 256  # nesting of XML elements, JSON values and triple terms; parsers slow down or crash above it
    expansion: int = 16  # factor by which entities may expand an RDF/XML document; `&owl;` expands six times
    entity_characters: int = 4 << 20  # characters that are added to this limit, for small documents
    text_run: int = 1 << 20  # characters of one text in RDF/XML


T = TypeVar("T")

Progress = Callable[[str, int, int | None], None]
"""A callback with the stage (`parse`, `extract`, …), the number of items done, and the total, or None if unknown."""

EVERY = 8_192  # items between two reads of the clock, because a read costs more than counting
SECONDS = 0.1  # between two reports, because people read no faster


def silent(stage: str, done: int, total: int | None) -> None:
    """A `Progress` that ignores all reports."""


def counted(items: Iterator[T], progress: Progress, stage: str) -> Iterator[T]:
    """Yields `items`, and reports their number to `progress` at most every `SECONDS`."""
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


SHOWN = 5  # warnings of one kind that are shown with their line, because documents repeat their mistakes
KINDS = 50  # kinds that are shown; a document with more kinds is probably in another syntax
LONGEST = 80  # characters of the document that a warning quotes


class DocumentWarnings:
    """The warnings about a document, by kind. Their number is limited for every document.

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
        """Adds the warning `text` about `line` (from 1). Warnings of the same `kind` are reported together."""
        if kind not in self._counts and len(self._counts) == KINDS:
            self._beyond += 1
            return
        self._counts[kind] = self._counts.get(kind, 0) + 1
        if self._counts[kind] <= SHOWN:
            self._texts.setdefault(kind, []).append(f"line {line}: {text}")

    def texts(self) -> Iterator[str]:
        """Yields the warnings, kind by kind, each kind followed by the number of its warnings that are not shown."""
        for kind, texts in self._texts.items():
            yield from texts
            more = self._counts[kind] - len(texts)
            if more:
                yield f"and {more:,} more warnings of this kind ({kind})"
        if self._beyond:
            yield f"and {self._beyond:,} more warnings of other kinds"


def shown(text: str) -> str:
    """Returns `text` as a warning quotes it: at most `LONGEST` characters, in quotes.

    >>> shown("a" * 100).endswith("…'")
    True
    """
    return repr(text if len(text) <= LONGEST else text[:LONGEST] + "…")


# ── look-up of relations by IRI, CURIE, local name or label, for `kindcast.semantic.ontology.extraction` ─────────────


LONGEST_NAME = 4_096  # characters of a name that is looked up; no label is longer, and folding takes linear time


class RelationNames:
    """The names of all relations: IRIs, CURIEs, local names and labels. Immutable. A look-up costs a few dict accesses.

    >>> names = RelationNames({"http://purl.obolibrary.org/obo/BFO_0000050": ["part of"]}, [])
    >>> names.meant("part_of") == names.meant("BFO:0000050") == ("http://purl.obolibrary.org/obo/BFO_0000050",)
    True
    """

    def __init__(self, labels: Mapping[str, Iterable[str]], prefixes: Iterable[tuple[str, str]]) -> None:
        """`labels` maps the IRI of each relation to its labels. `prefixes` are (prefix, namespace) pairs."""
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
        """Returns the IRIs that `name` may mean, sorted. It is tried as an IRI, as a CURIE, as a local name, and as a
        label. The first of these with a result decides; the result has several IRIs if the name is ambiguous."""
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
        """Returns at most `most` names that are most similar to `name`, the most similar first."""
        folds = difflib.get_close_matches(_folded(name[:200]), self._shown, n=most, cutoff=0.6)
        return tuple(dict.fromkeys(self._shown[fold] for fold in folds))


def _folded(text: str) -> str:
    text = nfkc(text.replace("_", " "))
    return " ".join(nfkc(text.casefold()).split())


# ── encoding of an ontology as bytes, for storage and for other processes ─────────────────────────────────────────────

#     names       every IRI and language tag, once
#     concepts    in pieces of `PIECE` records, which refer to names by their positions in `names`
#     pairs       one array for each kind of pair: two positions in `names` for each pair, as int32
#     rest        all other fields of `Ontology`, unchanged
#
# After decoding, each name is one shared string, however many records, pairs and labels refer to it. The encoding is
# MessagePack, compressed by zlib, after a line that names the layout. Decoding checks the type of every field and the
# bounds of every position, and runs no code.


HEADER: Final = b"kindcast ontology records 4\n"
OLDER: Final = b"kindcast ontology records 3\n"
OLDEST: Final = b"kindcast ontology records 2\n"
"""Headers of the two older layouts, with the length of `HEADER`. Layout 3 has no notations, layout 2 no notations and
no schemes."""
PIECE: Final = 1 << 14
"""Records that are decoded at once, so that the temporary memory is a small part of the result."""
LARGEST: Final = 4 << 30
"""The maximum number of bytes before compression. No document within the limits of reading has records as large."""
CONCEPT_KINDS: Final[tuple[ConceptKind, ...]] = get_args(ConceptKind)

Schemes = dict[tuple[int, ...], tuple[str, ...]]
"""From positions in `names` to the IRIs of the schemes at these positions."""
PackedLabels = list[tuple[str, int]]
"""(text, position of its language tag in `names`, or -1 if it has none)."""


class _Packed(msgspec.Struct, array_like=True, frozen=True):
    """The encoded form of a `ConceptRecord`."""

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
    """The encoded form of an `Ontology`. `concepts` are encoded lists of `_Packed`."""

    names: list[str]
    concepts: list[bytes]
    pairs: list[bytes]
    rest: Ontology


_encoder = msgspec.msgpack.Encoder(order="deterministic")
_decoder = msgspec.msgpack.Decoder(_Stored)
_records = msgspec.msgpack.Decoder(list[_Packed])


def encode(ontology: Ontology) -> bytes:
    """Encodes `ontology` as bytes. Equal records give equal bytes. Linear."""
    places = _Places()
    concepts = [
        _encoder.encode([_packed(record, places) for record in ontology.concepts[start : start + PIECE]])
        for start in range(0, len(ontology.concepts), PIECE)
    ]
    pairs = [
        array("i", [places[name] for pair in found for name in pair]).tobytes()
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
    """Whether `data` has the header of the layout that `decode` reads. Damage is found by `decode` only."""
    return data.startswith(HEADER)


def decode(data: bytes, *, older: bool = False) -> Ontology:
    """Decodes the result of `encode`. With `older`, the two older layouts are read too, for callers that have no
    document to read again. Both have no notations. Layout 2 has no schemes, and has exact matches among the other
    equivalences. Raises OntologyError for any other bytes and for damaged ones."""
    before = older and data.startswith(OLDEST)
    if not is_readable(data) and not before and not (older and data.startswith(OLDER)):
        raise OntologyError("the stored records were written by another version of kindcast: read the document again")
    try:
        stored = _decoder.decode(_inflated(data[len(HEADER) :]))
        names = stored.names
        tags: list[str | None] = [*names, None]  # the last item is the tag at position -1
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
    """From each name to its position, in the order of first use."""

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
    """Decodes one record. `schemes` caches the tuples of schemes, because most records have the same schemes."""
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
    places = array("i", packed)
    if min(places, default=0) < 0:
        raise IndexError("a place below 0")
    return tuple([(names[one], names[other]) for one, other in zip(places[::2], places[1::2], strict=True)])


def _inflated(data: bytes) -> bytes:
    inflating = zlib.decompressobj()
    plain = inflating.decompress(data, LARGEST)
    if not inflating.eof:
        raise zlib.error("there are too few or too many")
    return plain
