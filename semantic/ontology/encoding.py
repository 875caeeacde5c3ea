"""Records as bytes and back: how an ontology is stored and passed between processes.

    names       every IRI and language tag once
    concepts    in pieces of `PIECE` records, whose names are places in `names`
    pairs       of each kind, as places in `names`, two int32 each
    rest        everything else, as it is

So a name that stands in a record, in ten pairs and beneath a million labels is one string again after decoding. In
MessagePack, compressed, behind a line that names the layout. Decoding checks every field against its type and every
place against its bounds, and runs no code.
"""

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final, get_args

import msgspec
import numpy as np

from kindcast.semantic.errors import OntologyError
from kindcast.semantic.ontology.records import ConceptKind, ConceptRecord, Label, Ontology

__all__ = ["decode", "encode", "is_readable"]

HEADER: Final = b"kindcast ontology records 4\n"
OLDER: Final = b"kindcast ontology records 3\n"
OLDEST: Final = b"kindcast ontology records 2\n"
"""As long as `HEADER`. The third layout has no notations, the second neither these nor schemes."""
PIECE: Final = 1 << 14
"""Records decoded at once: what they take on the way is a small part of all."""
LARGEST: Final = 4 << 30
"""Bytes that records may have before they are compressed: above anything that the limits of reading let through."""
KINDS: Final[tuple[ConceptKind, ...]] = get_args(ConceptKind)

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
        KINDS.index(record.kind),
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
        kind=KINDS[packed.kind],
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
