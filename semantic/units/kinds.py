"""Parsing of date-times, dates, durations, versions, network addresses and networks, which do not compare as strings.

Each value has a number or a key in the index:

    version   2.4.9         an order-preserving code of its parts, 53 bits. A version that the code cannot hold lies
                            strictly between two versions that it can, so comparisons with those are exact
    address   10.1.2.3      its 32 bits; for an IPv6 address the first 52 bits, and its networks of 56 and 64 bits
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
    "is_date_time",
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

# ── date-times of RFC 3339 as microseconds since 1970-01-01T00:00:00Z ─────────────────────────────────────────────────

# docs/matching-semantics.md, rules 4 and 9. Every string of an event is parsed here, and nearly none is a date-time. So
# the form is checked first: rejecting a string takes about 0.1 µs, parsing a date-time about 3 µs.
#
# Where RFC 3339 leaves a choice:
#
# - Without an offset the time is UTC. `t`, `z` and one space in place of `T` are read, as the RFC allows. A date alone
#   is an interval (rule 26, `parse_dates`). A time without seconds or an offset without a colon (ISO 8601, not RFC
#   3339) is not a date-time but a string.
# - Digits beyond microseconds are dropped, in events and in subscriptions, so both sides agree.
# - A leap second, 23:59:60 in UTC, is the instant at which the next day starts, as in POSIX, plus its fraction.
# - Instants are within 2**53 µs of 1970 (July 1684 to June 2255), where a double represents each exactly, so that the
#   index can hold it. Any other date-time, such as `9999-12-31T23:59:59Z`, is a string.


FURTHEST = 1 << 53
"""The maximum distance from 1970 in microseconds, up to which a double is exact."""
SHORTEST = len("2026-01-31T12:30:00")
LONGEST_INSTANT = 64
"""The maximum number of characters of a date-time, because the RFC does not limit the digits of a fraction."""
SHAPE = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt ]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]+))?"
    r"(?:[Zz]|([+-])([0-9]{2}):([0-9]{2}))?"
)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EPOCH_DAY = EPOCH.toordinal()
MINUTES_OF_DAY = 24 * 60
MICROSECOND = timedelta(microseconds=1)


def parse_instant(text: str, furthest: float = FURTHEST) -> int | None:
    """Returns the date-time `text` in microseconds since 1970, or None if it is not a date-time, or more than
    `furthest` microseconds away from 1970.

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
    return instant if -furthest <= instant <= furthest else None


def is_date_time(text: str) -> bool:
    """Whether `text` is a date-time of RFC 3339, of any year.

    >>> is_date_time("9999-12-31T23:59:59Z"), parse_instant("9999-12-31T23:59:59Z")
    (True, None)
    """
    return parse_instant(text, math.inf) is not None


# ── dates ───────────────────────────────────────────────────────────────────────────────────────────────────────────

DATES = re.compile(r"([0-9]{4})(?:-([0-9]{2})(?:-([0-9]{2}))?)?")
DAY = 24 * 60 * 60 * 1_000_000
"""The microseconds of a day."""
PERIODS = ("day", "month", "year")
"""The kinds of dates and partial dates, from the shortest to the longest."""


def parse_dates(text: str, *, year: bool = False) -> tuple[int, int] | None:
    """Returns the first and the last microsecond of the date or partial date `text`, in UTC, or None if it is neither.
    A year alone is a partial date only with `year`.

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
    """Returns the kind of the date from `low` to `high`, one of `PERIODS`."""
    days = (high + 1 - low) // DAY
    return PERIODS[0] if days == 1 else PERIODS[1] if days < 32 else PERIODS[2]


def last_start(period: str, high: int) -> int:
    """Returns the start of the last whole `period` that ends at or before `high`. `high` is the last microsecond of a
    range.

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
    """Returns the start of a day. Raises ValueError."""
    return (datetime(year, month, day).toordinal() - EPOCH_DAY) * DAY  # noqa: DTZ001  only its ordinal is used


def instant_of_epoch(number: int | float) -> int | None:
    """Converts a number of seconds or milliseconds since 1970 to microseconds. It counts as seconds if it is then a
    date-time between 1684 and 2255, else as milliseconds if it is then one, else the result is None. Digits beyond
    microseconds are dropped.

    >>> instant_of_epoch(1347840000), instant_of_epoch(1347840000000), instant_of_epoch(1e15)
    (1347840000000000, 1347840000000000, None)
    """
    for scale in (1_000_000, 1_000):
        if abs(number) * scale <= FURTHEST:
            return math.floor(Fraction(Decimal(repr(number))) * scale)
    return None


NUMBER = r"([0-9]+(?:\.[0-9]+)?)"
DURATION = re.compile(
    r"(-)?P(?=[0-9T])(?![0-9DTHM]*\.[0-9]+[DHM]T?[0-9])"  # only the last number may have decimals
    rf"(?:{NUMBER}W|(?:{NUMBER}D)?(?:T(?=[0-9])(?:{NUMBER}H)?(?:{NUMBER}M)?(?:{NUMBER}S)?)?)"
)
SECONDS = (604_800, 86_400, 3_600, 60, 1)


def parse_duration(text: str) -> int | float | None:
    """Returns the seconds of the ISO 8601 duration `text` (`PT2H`, `P1DT30M`), or None if `text` is not a duration. A
    text with years or months is not one, because their length varies. The last number may have decimals.

    >>> parse_duration("PT2H"), parse_duration("-P1DT0.5S"), parse_duration("P1M"), parse_duration("PT1.5H")
    (7200, -86400.5, None, 5400)
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
    """Returns the shortest date-time in UTC that is parsed as `instant`, which is in microseconds within 2**53 of 1970.

    >>> format_instant(1_250_000)
    '1970-01-01T00:00:01.25Z'
    """
    text = (EPOCH + instant * MICROSECOND).strftime("%Y-%m-%dT%H:%M:%S.%f")
    return text.rstrip("0").rstrip(".") + "Z"


LONGEST = 200
"""The maximum number of characters of a version, an address or a network."""
MOST_PARTS = 32
"""The maximum number of numeric parts of a version."""
VERSION = re.compile(r"[vV]?([0-9]+(?:\.[0-9]+)*)(?:-([0-9A-Za-z\-]+(?:\.[0-9A-Za-z\-]+)*))?(?:\+[0-9A-Za-z.\-]+)?")
LENGTH_BITS = 5
"""The bits of the code that hold the length of a part in bits. A part with more than 31 bits is cut."""
CODE_BITS = 51
"""The bits of the code, without the two bits for one of the constants below."""
BEFORE, EXACTLY, BEYOND = 1, 2, 3
"""The position of a version relative to its code: before the version with that code (a pre-release), exactly that
version, or between it and the next code (the code cannot hold all parts)."""


@dataclass(frozen=True, slots=True, order=True)
class Version:
    """A version. `parts` are its numeric parts without zeros at the end. `released` is False for a pre-release, whose
    identifiers are `labels`, as tuples that sort numeric identifiers first. The order is that of Semantic Versioning
    2.0.0, but with any number of parts."""

    parts: tuple[int, ...]
    released: bool
    labels: tuple[tuple[bool, int, str], ...] = ()

    @property
    def number(self) -> float:
        """A number in the order of versions. Different versions share a number only if neither of them `is_exact`."""
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
            bits = length << max(length - 1, 0) | (part & ((1 << max(length - 1, 0)) - 1))  # without the first bit, 1
            width = LENGTH_BITS + max(length - 1, 0)
            if width > left:
                return code << left | bits >> (width - left), BEYOND
            code, left = code << width | bits, left - width
            if is_cut:
                return code << left, BEYOND
        return code << left, EXACTLY if self.released else BEFORE


def parse_version(text: str) -> Version | None:
    """Parses a version, with or without a `v` before it. Build metadata after a `+` is ignored. Returns None if `text`
    is not a version.

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
"""The number of leading bits of an IPv6 address that are its number in the index."""
LONGER = (56, 64)
"""The prefix lengths of IPv6 networks with keys of their own."""


def parse_address(text: str) -> Address | None:
    """Parses an IPv4 or IPv6 address. Returns None for any other text.

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
    """Parses a network with its prefix length (`10.0.0.0/8`). Returns None for any other text, also if a host bit is
    set."""
    if "/" not in text or len(text) > LONGEST:
        return None
    try:
        return ipaddress.ip_network(text)
    except ValueError:
        return None


def keys_of_address(address: Address) -> Iterator[tuple[str, str | float]]:
    """Yields the readings of an address and its key in each."""
    yield "ip", str(address)
    if isinstance(address, ipaddress.IPv4Address):
        yield "ip4", float(int(address))
        return
    yield "ip6", float(int(address) >> (128 - FIRST_BITS))
    for length in LONGER:
        yield f"ip6/{length}", str(ipaddress.ip_network((address, length), strict=False))


def interval_of_network(network: Network) -> tuple[str, float, float] | None:
    """Returns the reading of the addresses of a network, and their first and last number in it. Returns None for an
    IPv6 network whose prefix is longer than `FIRST_BITS`."""
    first, last = int(network.network_address), int(network.broadcast_address)
    if isinstance(network, ipaddress.IPv4Network):
        return "ip4", float(first), float(last)
    if network.prefixlen > FIRST_BITS:
        return None
    return "ip6", float(first >> (128 - FIRST_BITS)), float(last >> (128 - FIRST_BITS))
