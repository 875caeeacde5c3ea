"""Date-times of RFC 3339 ↔ microseconds since 1970-01-01T00:00:00Z.

docs/matching-semantics.md, rules 4 and 9. Every string of an event comes by here and nearly none is a date-time, so the
shape is looked at first: a refusal costs about 0.1 µs, a reading about 3 µs.

Where RFC 3339 leaves a choice:

- Without an offset the time is UTC. `t`, `z` and one space in place of `T` are read, as the RFC allows. A date alone,
  a time without seconds or an offset without a colon (all ISO 8601, not RFC 3339) is no date-time but a string.
- Digits beyond microseconds are dropped, in events and in subscriptions, so both sides agree.
- A leap second, 23:59:60 in UTC, is the instant at which the next day starts, as in POSIX; its fraction follows.
- Instants lie within 2**53 µs of 1970 (July 1684 to June 2255), where each is exactly a double and so can stand in the
  index. Anything outside, `9999-12-31T23:59:59Z` too, stays a string.
"""

import re
from datetime import UTC, datetime, timedelta

__all__ = ["format_instant", "parse_instant"]

FURTHEST = 1 << 53
"""Microseconds either side of 1970 that a double holds exactly."""
SHORTEST = len("2026-01-31T12:30:00")
LONGEST = 64
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
    """The microseconds since 1970 that `text` names, or None if it is no date-time.

    >>> parse_instant("1970-01-01T01:00:00.25+01:00")
    250000
    """
    if len(text) < SHORTEST or text[4] != "-" or text[10] not in "Tt " or len(text) > LONGEST:
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


def format_instant(instant: int) -> str:
    """The shortest date-time in UTC that reads as `instant`, microseconds within 2**53 of 1970.

    >>> format_instant(1_250_000)
    '1970-01-01T00:00:01.25Z'
    """
    text = (EPOCH + instant * MICROSECOND).strftime("%Y-%m-%dT%H:%M:%S.%f")
    return text.rstrip("0").rstrip(".") + "Z"
