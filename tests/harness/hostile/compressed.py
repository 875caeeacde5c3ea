"""Gzip that inflates a thousand times, comes in a million pieces, or does not end."""

import gzip
import zlib

from tests.harness.hostile.canary import Canary
from tests.harness.hostile.corpus import MILLION, Document, hostile


def zeros(megabytes: int) -> bytes:
    """Gzip of so many spaces."""
    packer = zlib.compressobj(9, wbits=31)
    block = b" " * (1 << 20)
    return b"".join([*(packer.compress(block) for _ in range(megabytes)), packer.flush()])


@hostile
def gzip_bomb(canary: Canary) -> Document:
    return zeros(400), "turtle"


@hostile
def gzip_bomb_of_many_members(canary: Canary) -> Document:
    return zeros(10) * 200, "turtle"


@hostile
def gzip_of_a_million_empty_members(canary: Canary) -> Document:
    return gzip.compress(b"", mtime=0) * MILLION, "turtle"


@hostile
def gzip_of_a_hundred_thousand_members(canary: Canary) -> Document:
    return gzip.compress(b"<urn:s> <urn:p> <urn:o> .\n", mtime=0) * 100_000, "turtle"


@hostile
def gzip_in_gzip_in_gzip(canary: Canary) -> Document:
    return gzip.compress(gzip.compress(zeros(100))), "turtle"


@hostile
def gzip_that_ends_too_early(canary: Canary) -> Document:
    return zeros(100)[:-20], ""


@hostile
def gzip_with_an_endless_name(canary: Canary) -> Document:
    return b"\x1f\x8b\x08\x08" + b"\0" * 6 + b"a" * 20_000_000, ""


@hostile
def gzip_with_padding(canary: Canary) -> Document:
    return (gzip.compress(b"") + b"\0" * 1_000) * 10_000, "turtle"
