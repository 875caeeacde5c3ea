"""Versions and network addresses: how texts of attributes that are declared so are read (docs/matching-semantics.md,
rule 26).

Each has a number, or a key, under which an index finds it:

    version   2.4.9         an order-preserving code of its parts, 53 bits; what the code cannot hold lies strictly
                            between two versions that it can, so that comparisons with those are exact
    address   10.1.2.3      its 32 bits; of an IPv6 address the first 52 bits, and its networks of 56 and 64 bits
"""

import ipaddress
import re
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = [
    "LONGER",
    "Address",
    "Network",
    "Version",
    "interval_of_network",
    "keys_of_address",
    "parse_address",
    "parse_network",
    "parse_version",
]

LONGEST = 200
"""Characters of a version or address."""
MOST_PARTS = 32
"""Numeric parts of a version."""
VERSION = re.compile(r"[vV]?([0-9]+(?:\.[0-9]+)*)(?:-([0-9A-Za-z\-]+(?:\.[0-9A-Za-z\-]+)*))?(?:\+[0-9A-Za-z.\-]+)?")
LENGTH_BITS = 5
"""Of a part: how many bits follow. A part of 31 bits or more is cut."""
CODE_BITS = 51
BEFORE, EXACTLY, BEYOND = 1, 2, 3
"""Where a version lies by its code: before the version of that code (a pre-release), it, or after it and before the
next (further parts that the code cannot hold)."""


@dataclass(frozen=True, slots=True, order=True)
class Version:
    """`parts` without zeros at their end; `released` is false for a pre-release, whose identifiers are `labels`, each
    numeric ones first. Ordered as Semantic Versioning 2.0.0 has it, with any number of parts."""

    parts: tuple[int, ...]
    released: bool
    labels: tuple[tuple[bool, int, str], ...] = ()

    @property
    def number(self) -> float:
        """A number that is in the order of versions; equal only where at least one of them is not `is_exact`."""
        return float(4 * self._code[0] + self._code[1])

    @property
    def is_exact(self) -> bool:
        """Whether no other version has this `number`."""
        return self._code[1] == EXACTLY

    @property
    def _code(self) -> tuple[int, int]:
        code, left = 0, CODE_BITS
        for part in self.parts:
            length = part.bit_length()
            is_cut = length > 31
            if is_cut:
                length, part = 31, (1 << 31) - 1
            bits = length << max(length - 1, 0) | (part & ((1 << max(length - 1, 0)) - 1))  # the first bit is 1 always
            width = LENGTH_BITS + max(length - 1, 0)
            if width > left:
                return code << left | bits >> (width - left), BEYOND
            code, left = code << width | bits, left - width
            if is_cut:
                return code << left, BEYOND
        return code << left, EXACTLY if self.released else BEFORE


def parse_version(text: str) -> Version | None:
    """The version that `text` is, perhaps after a `v`; None if it is none. What follows a `+` is ignored.

    >>> parse_version("2.4.9") < parse_version("2.4.50"), parse_version("1.0-rc.1") < parse_version("v1+build")
    (True, True)
    """
    if not text or len(text) > LONGEST:
        return None
    shape = VERSION.fullmatch(text)
    if shape is None or shape[1].count(".") >= MOST_PARTS:
        return None
    parts = [int(part) for part in shape[1].split(".")]
    while parts and parts[-1] == 0:
        parts.pop()
    if shape[2] is None:
        return Version(tuple(parts), released=True)
    labels = tuple((not each.isdigit(), int(each) if each.isdigit() else 0, each) for each in shape[2].split("."))
    return Version(tuple(parts), released=False, labels=labels)


Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
FIRST_BITS = 52
"""Of an IPv6 address, as a number."""
LONGER = (56, 64)
"""Lengths of IPv6 networks that have keys of their own."""


def parse_address(text: str) -> Address | None:
    """The IPv4 or IPv6 address that `text` is; None for another text.

    >>> parse_address("2001:DB8:0::1") == parse_address("2001:db8::1"), parse_address("10.0.0.0/8")
    (True, None)
    """
    if not 2 <= len(text) <= LONGEST:
        return None
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def parse_network(text: str) -> Network | None:
    """The network that `text` is, with its length (`10.0.0.0/8`) and no bit of an address in it; None for another
    text."""
    if "/" not in text or len(text) > LONGEST:
        return None
    try:
        return ipaddress.ip_network(text)
    except ValueError:
        return None


def keys_of_address(address: Address) -> Iterator[tuple[str, str | float]]:
    """Under which readings and keys an address is found."""
    yield "ip", str(address)
    if isinstance(address, ipaddress.IPv4Address):
        yield "ip4", float(int(address))
        return
    yield "ip6", float(int(address) >> (128 - FIRST_BITS))
    for length in LONGER:
        yield f"ip6/{length}", str(ipaddress.ip_network((address, length), strict=False))


def interval_of_network(network: Network) -> tuple[str, float, float] | None:
    """The reading, and the first and the last number in it of the addresses of a network; None for an IPv6 network that
    is longer than the number is."""
    first, last = int(network.network_address), int(network.broadcast_address)
    if isinstance(network, ipaddress.IPv4Network):
        return "ip4", float(first), float(last)
    if network.prefixlen > FIRST_BITS:
        return None
    return "ip6", float(first >> (128 - FIRST_BITS)), float(last >> (128 - FIRST_BITS))
