"""Laws of instants, against the standard library's date-times."""

from datetime import UTC, datetime, timedelta, timezone

from hypothesis import given
from hypothesis import strategies as st

from kindcast.semantic.units.kinds import format_instant, parse_instant

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
offsets = st.integers(-23 * 60 - 59, 23 * 60 + 59).map(lambda minutes: timezone(timedelta(minutes=minutes)))
date_times = st.datetimes(datetime(1685, 1, 1), datetime(2255, 1, 1), timezones=offsets)  # noqa: DTZ001
instants = st.integers(-(2**53), 2**53)


@given(date_times, st.sampled_from("Tt "), st.text("0123456789", max_size=5))
def test_parse_instant_agrees_with_datetime(moment: datetime, separator: str, more: str) -> None:
    """Every date-time with its offset and six digits, and further digits that are dropped."""
    text = moment.isoformat(sep=separator, timespec="microseconds")
    text = text[:26] + more + text[26:]
    assert parse_instant(text) == (moment - EPOCH) // timedelta(microseconds=1)


@given(date_times)
def test_parse_instant_without_offset_is_utc(moment: datetime) -> None:
    """A local time is read as UTC."""
    plain = moment.replace(tzinfo=UTC)
    assert parse_instant(plain.replace(tzinfo=None).isoformat()) == parse_instant(plain.isoformat())


@given(instants)
def test_format_instant_reads_back(instant: int) -> None:
    """What is written is read as the same instant, and is exactly a double."""
    assert parse_instant(format_instant(instant)) == instant
    assert int(float(instant)) == instant


@given(instants, instants)
def test_instants_order_is_the_order_of_time(one: int, other: int) -> None:
    """In UTC and with as many digits, text and instants sort alike."""
    first, second = (f"{EPOCH + timedelta(microseconds=each):%Y-%m-%dT%H:%M:%S.%fZ}" for each in (one, other))
    assert (one < other) == (first < second)


@given(st.one_of(st.text(max_size=40), st.text("0123456789-:.TZ+ ", min_size=17, max_size=40)))
def test_parse_instant_any_text_is_an_instant_or_none(text: str) -> None:
    """Nothing raises, and every instant stays within bounds."""
    found = parse_instant(text)
    assert found is None or -(2**53) <= found <= 2**53
