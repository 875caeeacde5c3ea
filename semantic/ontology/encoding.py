"""Records as bytes and back: how an ontology is stored, and how it comes from the process that read it.

MessagePack behind a line that names the layout. Decoding checks every field against its type, and runs no code.
"""

import zlib
from typing import Final

import msgspec

from semantic.errors import OntologyError
from semantic.ontology.records import Ontology

__all__ = ["decode", "encode"]

HEADER: Final = b"kindcast ontology records 1\n"

_encoder = msgspec.msgpack.Encoder(order="deterministic")
_decoder = msgspec.msgpack.Decoder(Ontology)


def encode(ontology: Ontology) -> bytes:
    """`ontology` as bytes: equal records give equal bytes. Cost: linear."""
    return HEADER + zlib.compress(_encoder.encode(ontology), 1)


def decode(data: bytes) -> Ontology:
    """The records again. Raises OntologyError for bytes of another layout, or none of ours."""
    if not data.startswith(HEADER):
        raise OntologyError("the stored records are of another version of kindcast: read the document again")
    try:
        return _decoder.decode(zlib.decompress(data[len(HEADER) :]))
    except (zlib.error, msgspec.MsgspecError) as error:
        raise OntologyError(f"the stored records are damaged: {error}") from error
