"""Texts that compare by their kind: date-times, dates and durations; versions; network addresses.

Each has a number, or a key, under which an index finds it:

    version   2.4.9         an order-preserving code of its parts, 53 bits; what the code cannot hold lies strictly
                            between two versions that it can, so that comparisons with those are exact
    address   10.1.2.3      its 32 bits; of an IPv6 address the first 52 bits, and its networks of 56 and 64 bits
"""

import ipaddress
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction

__all__ = [
    "LONGER",
    "PERIODS",
    "Address",
    "Network",
    "Version",
    "format_instant",
    "instant_of_epoch",
    "interval_of_network",
    "keys_of_address",
    "last_start",
    "parse_address",
    "parse_dates",
    "parse_duration",
    "parse_instant",
    "parse_network",
    "parse_version",
    "period_of",
]

# ── date-times of RFC 3339 ↔ microseconds since 1970-01-01T00:00:00Z ──────────────────────────────────────────────────

# docs/matching-semantics.md, rules 4 and 9. Every string of an event comes by here and nearly none is a date-time, so
# the shape is looked at first: a refusal costs about 0.1 µs, a reading about 3 µs.
#
# Where RFC 3339 leaves a choice:
#
# - Without an offset the time is UTC. `t`, `z` and one space in place of `T` are read, as the RFC allows. A date alone
#   is an interval (rule 26, `parse_dates`). A time without seconds or an offset without a colon (ISO 8601, not RFC
#   3339) is not a date-time but a string.
# - Digits beyond microseconds are dropped, in events and in subscriptions, so both sides agree.
# - A leap second, 23:59:60 in UTC, is the instant at which the next day starts, as in POSIX; its fraction follows.
# - Instants lie within 2**53 µs of 1970 (July 1684 to June 2255), where each is exactly a double and so can stand in
#   the index. Anything outside, `9999-12-31T23:59:59Z` too, stays a string.


FURTHEST = 1 << 53
"""Microseconds either side of 1970 that a double holds exactly."""
SHORTEST = len("2026-01-31T12:30:00")
LONGEST_INSTANT = 64
"""Characters of a date-time; fractions have no end in the RFC."""
SHAPE = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt ]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]+))?"
    r"(?:[Zz]|([+-])([0-9]{2}):([0-9]{2}))?"
)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EPOCH_DAY = EPOCH.toordinal()
MINUTES_OF_DAY = 24 * 60
MICROSECOND = timedelta(microseconds=1)


def parse_instant(text: str) -> int | None:
    """The microseconds since 1970 that `text` names, or None if it is not a date-time.

    >>> parse_instant("1970-01-01T01:00:00.25+01:00")
    250000
    """
    if len(text) < SHORTEST or text[4] != "-" or text[10] not in "Tt " or len(text) > LONGEST_INSTANT:
        return None
    shape = SHAPE.fullmatch(text)
    if shape is None:
        return None
    year, month, day, hour, minute, second = map(int, shape.group(1, 2, 3, 4, 5, 6))
    fraction, sign, offset_hour, offset_minute = shape.group(7, 8, 9, 10)
    if hour > 23 or minute > 59:
        return None
    try:
        days = datetime(year, month, day).toordinal() - EPOCH_DAY  # noqa: DTZ001  only its ordinal is used
    except ValueError:
        return None
    minutes = days * MINUTES_OF_DAY + hour * 60 + minute
    if sign is not None:
        hours, rest = int(offset_hour), int(offset_minute)
        if hours > 23 or rest > 59:
            return None
        minutes += hours * -60 - rest if sign == "+" else hours * 60 + rest
    if second > 59 and (second > 60 or minutes % MINUTES_OF_DAY != MINUTES_OF_DAY - 1):
        return None
    instant = (minutes * 60 + second) * 1_000_000
    if fraction is not None:
        instant += int(fraction[:6].ljust(6, "0"))
    return instant if -FURTHEST <= instant <= FURTHEST else None


# ── dates ───────────────────────────────────────────────────────────────────────────────────────────────────────────

DATES = re.compile(r"([0-9]{4})(?:-([0-9]{2})(?:-([0-9]{2}))?)?")
DAY = 24 * 60 * 60 * 1_000_000
"""Microseconds."""
PERIODS = ("day", "month", "year")
"""What a date, a month and a year are, from the shortest to the longest."""


def parse_dates(text: str, *, year: bool = False) -> tuple[int, int] | None:
    """The first and the last microsecond of the date or partial date that `text` names, in UTC; None if it names none.
    A bare year is one only where `year` says so.

    >>> parse_dates("1970-01-01"), parse_dates("1970-01") == (0, 31 * DAY - 1), parse_dates("1970")
    ((0, 86399999999), True, None)
    """
    if not (len(text) in (7, 10) and text[4] == "-") and not (year and len(text) == 4):
        return None
    shape = DATES.fullmatch(text)
    if shape is None:
        return None
    years, month, day = int(shape[1]), int(shape[2] or 1), int(shape[3] or 1)
    try:
        low = _start(years, month, day)
        if shape[3]:
            high = low + DAY
        elif shape[2]:
            high = _start(years + month // 12, month % 12 + 1, 1)
        else:
            high = _start(years + 1, 1, 1)
    except ValueError:
        return None
    return (low, high - 1) if low >= -FURTHEST and high - 1 <= FURTHEST else None


def period_of(low: int, high: int) -> str:
    """Which of `PERIODS` a date from `low` to `high` is."""
    days = (high + 1 - low) // DAY
    return PERIODS[0] if days == 1 else PERIODS[1] if days < 32 else PERIODS[2]


def last_start(period: str, high: int) -> int:
    """When the last whole `period` begins that ends at or before `high`, the last microsecond that counts.

    >>> last_start("day", DAY - 1), last_start("month", DAY) == -31 * DAY
    (0, True)
    """
    end = EPOCH + (high + 1) // DAY * timedelta(days=1)  # the day in which the next microsecond lies
    if period == "day":
        return _start(end.year, end.month, end.day) - DAY
    if period == "month":
        return _start(end.year - (end.month == 1), (end.month + 10) % 12 + 1, 1)
    return _start(end.year - 1, 1, 1)


def _start(year: int, month: int, day: int) -> int:
    """When a day begins. Raises ValueError."""
    return (datetime(year, month, day).toordinal() - EPOCH_DAY) * DAY  # noqa: DTZ001  only its ordinal is used


def instant_of_epoch(number: int | float) -> int | None:
    """The microseconds since 1970 that a number of seconds, or else of milliseconds, is: of seconds where it then is a
    date-time between 1684 and 2255. Digits beyond microseconds are dropped.

    >>> instant_of_epoch(1347840000), instant_of_epoch(1347840000000), instant_of_epoch(1e15)
    (1347840000000000, 1347840000000000, None)
    """
    for scale in (1_000_000, 1_000):
        if abs(number) * scale <= FURTHEST:
            return math.floor(Fraction(Decimal(repr(number))) * scale)
    return None


DURATION = re.compile(
    r"(-)?P(?=[0-9T])(?:([0-9]+)W|(?:([0-9]+)D)?(?:T(?=[0-9])(?:([0-9]+)H)?(?:([0-9]+)M)?(?:([0-9]+(?:\.[0-9]+)?)S)?)?)"
)
SECONDS = (604_800, 86_400, 3_600, 60, 1)


def parse_duration(text: str) -> int | float | None:
    """The seconds of a duration of ISO 8601 (`PT2H`, `P1DT30M`), None if `text` is none. One with years or months is
    none: it has no length of its own.

    >>> parse_duration("PT2H"), parse_duration("-P1DT0.5S"), parse_duration("P1M")
    (7200, -86400.5, None)
    """
    if not 3 <= len(text) <= LONGEST_INSTANT or (text[0] != "P" and text[:2] != "-P"):
        return None
    shape = DURATION.fullmatch(text)
    if shape is None:
        return None
    total = sum(Fraction(part or 0) * scale for part, scale in zip(shape.groups()[1:], SECONDS, strict=True))
    total = -total if shape[1] else total
    return int(total) if total.denominator == 1 else float(total)


def format_instant(instant: int) -> str:
    """The shortest date-time in UTC that reads as `instant`, microseconds within 2**53 of 1970.

    >>> format_instant(1_250_000)
    '1970-01-01T00:00:01.25Z'
    """
    text = (EPOCH + instant * MICROSECOND).strftime("%Y-%m-%dT%H:%M:%S.%f")
    return text.rstrip("0").rstrip(".") + "Z"


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
