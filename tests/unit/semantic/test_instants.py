"""Date-times of RFC 3339: what is one, what is none, and which instant it is."""

import pytest

from kindcast.semantic.units.kinds import format_instant, parse_instant

SECOND = 1_000_000
NEW_YEAR = 1_767_225_600 * SECOND  # 2026-01-01T00:00:00Z


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("2026-01-01T00:00:00Z", NEW_YEAR),
        ("2026-01-01T00:00:00", NEW_YEAR),
        ("2026-01-01t00:00:00z", NEW_YEAR),
        ("2026-01-01 00:00:00Z", NEW_YEAR),
        ("2026-01-01T00:00:00-00:00", NEW_YEAR),
        ("2026-01-01T02:00:00+02:00", NEW_YEAR),
        ("2025-12-31T18:30:00-05:30", NEW_YEAR),
        ("2026-01-01T00:00:00.5Z", NEW_YEAR + SECOND // 2),
        ("2026-01-01T00:00:00.000001Z", NEW_YEAR + 1),
        ("2026-01-01T00:00:00.0000019999Z", NEW_YEAR + 1),
        ("1969-12-31T23:59:59.9999999Z", -1),
        ("2024-02-29T00:00:00Z", 1_709_164_800 * SECOND),
    ],
)
def test_parse_instant_date_time_gives_microseconds(text: str, instant: int) -> None:
    """Offsets are applied, none means UTC, digits beyond microseconds are dropped."""
    assert parse_instant(text) == instant


@pytest.mark.parametrize(
    "text",
    ["", "laptop", "2026-01-01", "2026-01-01T00:00Z", "2026-01-01T00:00:00+0200", "2026-01-01T00:00:00+02",
     "2026-1-1T00:00:00Z", "20260101T000000Z", "2026-W01-1T00:00:00Z", "2026-02-29T00:00:00Z", "2026-13-01T00:00:00Z",
     "2026-00-01T00:00:00Z", "2026-01-32T00:00:00Z", "2026-01-01T24:00:00Z", "2026-01-01T00:60:00Z",
     "2026-01-01T00:00:61Z", "2026-01-01T00:00:00+24:00", "2026-01-01T00:00:00+00:60", "2026-01-01T00:00:00.Z",
     "2026-01-01T00:00:00,5Z", " 2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z ", "2026-01-01T00:00:00Z\n",
     "2026-01-01  00:00:00Z", "٢٠٢٦-01-01T00:00:00Z", "-2026-01-01T00:00:00Z", "0000-01-01T00:00:00Z",
     "2026-01-01T00:00:00." + "0" * 60 + "Z", "2026-01-01T00:00:00 Z", "2026-01-01T00:00:00Europe/Berlin"],
)  # fmt: skip
def test_parse_instant_anything_else_is_none(text: str) -> None:
    """Other forms of ISO 8601, impossible dates and names stay strings."""
    assert parse_instant(text) is None


def test_parse_instant_leap_second_is_the_next_midnight() -> None:
    """As in POSIX; allowed in the last minute of a day in UTC, whatever the offset."""
    midnight = parse_instant("2017-01-01T00:00:00Z")
    assert midnight is not None
    assert parse_instant("2016-12-31T23:59:60Z") == midnight
    assert parse_instant("2016-12-31T23:59:60.25Z") == midnight + SECOND // 4
    assert parse_instant("2017-01-01T01:59:60+02:00") == midnight
    assert parse_instant("2017-01-01T00:59:60Z") is None
    assert parse_instant("2016-12-31T23:59:60+01:00") is None


def test_parse_instant_ends_where_doubles_cease_to_be_exact() -> None:
    """Every instant is exactly a double; what lies beyond stays a string."""
    assert parse_instant("2255-06-05T23:47:34.740992Z") == 2**53
    assert parse_instant("2255-06-05T23:47:34.740993Z") is None
    assert parse_instant("1684-07-28T00:12:25.259008Z") == -(2**53)
    assert parse_instant("1684-07-28T00:12:25.259007Z") is None
    assert parse_instant("9999-12-31T23:59:59Z") is None


@pytest.mark.parametrize(
    ("instant", "text"),
    [
        (0, "1970-01-01T00:00:00Z"),
        (NEW_YEAR + 1, "2026-01-01T00:00:00.000001Z"),
        (NEW_YEAR + SECOND // 2, "2026-01-01T00:00:00.5Z"),
        (10 * SECOND, "1970-01-01T00:00:10Z"),
        (-1, "1969-12-31T23:59:59.999999Z"),
        (2**53, "2255-06-05T23:47:34.740992Z"),
    ],
)
def test_format_instant_is_short_and_in_utc(instant: int, text: str) -> None:
    """No digits that say nothing, and zeros of seconds are kept."""
    assert format_instant(instant) == text
