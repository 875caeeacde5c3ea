"""Values of Python and numpy in events: each is read as the JSON that it stands for."""

from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pytest

from kindcast import Event, InvalidEvent, Matcher, Vocabulary
from kindcast.semantic.flatten import as_json

NOON = "2026-01-31T12:30:00Z"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (datetime(2026, 1, 31, 12, 30), NOON),  # noqa: DTZ001
        (datetime(2026, 1, 31, 12, 30, tzinfo=UTC), NOON),
        (datetime(2026, 1, 31, 14, 30, tzinfo=timezone(timedelta(hours=2))), NOON),
        (datetime(2026, 1, 31, 12, 30, 0, 250_000), "2026-01-31T12:30:00.250000Z"),  # noqa: DTZ001
        (np.datetime64("2026-01-31T12:30", "m"), NOON),
        (np.datetime64("2026-01-31T12:30:00", "ns"), NOON),
        (np.datetime64("NaT"), None),
        (date(2026, 1, 31), "2026-01-31"),
        (np.datetime64("2026-01-31"), "2026-01-31"),
        (np.datetime64("2026-01"), "2026-01"),
        (time(8, 30), "08:30:00"),
        (timedelta(hours=1, minutes=30), "PT5400S"),
        (timedelta(milliseconds=-1_250), "-PT1.25S"),
        (np.timedelta64(90, "m"), "PT5400S"),
        (np.timedelta64(-1_250_000_000, "ns"), "-PT1.25S"),
        (np.timedelta64("NaT", "s"), None),
        (np.timedelta64(2**62, "s"), f"PT{2**62}S"),
        (np.timedelta64(-(2**62), "W"), f"-PT{604_800 * 2**62}S"),
        (np.timedelta64(1_500_000, "ps"), "PT0.000001S"),
        (np.array([5], dtype="timedelta64[ns]"), ["PT0S"]),
        (np.array(5, dtype="timedelta64[s]"), "PT5S"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (Decimal("9.50"), 9.5),
        (Decimal("9.00"), 9),
        (Decimal("-0.1"), -0.1),
        (np.float32(0.5), 0.5),
        (np.int8(3), 3),
        (np.bool_(True), True),
        (np.str_("x"), "x"),
        (np.array([1, 2]), [1, 2]),
        (np.array(5), 5),
        (np.ma.masked, None),
        (np.ma.array([1, 2], mask=[False, True]), [1, None]),
        ((1, [Decimal(2)]), [1, [2]]),
        ({"at": date(2026, 1, 31), "n": None}, {"at": "2026-01-31", "n": None}),
    ],
)
def test_as_json_gives_what_the_same_event_in_json_has(value: Any, expected: Any) -> None:
    """Dates are texts, date-times are in UTC, numbers are Python's own: 9 stays a whole number, 9.5 a double."""
    found = as_json(value)
    assert (found, type(found)) == (expected, type(expected))


@pytest.mark.parametrize("value", [b"x", 5j, object()])
def test_as_json_gives_back_what_has_no_form_in_json(value: Any) -> None:
    """It is refused where the event is read."""
    assert as_json(value) is value
    with pytest.raises(InvalidEvent, match="not a JSON value"):
        Matcher(Vocabulary.from_ontologies([])).match({"a": value})


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (Decimal("NaN"), "not-finite"),
        (Decimal("1E+400"), "not-finite"),
        (Decimal("9007199254740993"), "inexact-number"),
        (np.float64("inf"), "not-finite"),
        (np.int64(2**53 + 1), "inexact-number"),
    ],
)
def test_match_refuses_in_python_values_what_it_refuses_in_json(value: Any, code: str) -> None:
    """With the same code and place, nested or not, alone or in a batch."""
    matcher = Matcher(Vocabulary.from_ontologies([]))
    for data, pointer in (({"a": value}, "/a"), ({"a": {"b": [1, value]}}, "/a/b/1")):
        for call in (matcher.match, lambda data: matcher.match_batch([data])):
            with pytest.raises(InvalidEvent) as caught:
                call(data)
            assert [(each.code, str(each.at)) for each in caught.value.problems] == [(code, pointer)]


def test_match_reads_python_values_as_it_reads_json() -> None:
    """Conditions on date-times, dates, decimals and numbers of numpy."""
    matcher = Matcher(Vocabulary.from_ontologies([], attributes={"price": {"kind": "number", "unit": "USD"}}))
    for name, text in {
        "late": "at > 2026-01-31T12:00:00Z",
        "day": 'day = "2026-01-31"',
        "cheap": "price < 10 USD",
        "three": "n = 3",
        "yes": "flag = true",
        "inside": "box.at <= 2026-01-31T12:30:00Z",
        "then": "ce.time = 2026-01-31T12:30:00Z",
    }.items():
        matcher.add(name, text)
    at = datetime(2026, 1, 31, 12, 30)  # noqa: DTZ001
    event = {
        "at": at,
        "day": date(2026, 1, 31),
        "price": Decimal("9.50"),
        "n": np.array([1, 3]),
        "flag": np.bool_(True),
        "box": {"at": np.datetime64(at)},
    }
    expected = ["cheap", "day", "inside", "late", "three", "yes"]
    assert sorted(match.subscription for match in matcher.match(event)) == expected
    assert sorted(match.subscription for match in matcher.match_batch([event])[0]) == expected
    context = Event({}, {"time": at.replace(tzinfo=UTC)})  # type: ignore[dict-item]
    assert [match.subscription for match in matcher.match(context)] == ["then"]


def test_declared_types_check_python_values_as_json() -> None:
    """A schema that wants a date-time or a number gets what JSON would have."""
    schema = {
        "type": "object",
        "properties": {"at": {"type": "string", "format": "date-time"}, "price": {"type": "number"}},
    }
    matcher = Matcher(Vocabulary.from_ontologies([], schemas={"offer": schema}))
    matcher.add("cheap", "price < 10")
    event = {"@type": "offer", "at": datetime(2026, 1, 31, tzinfo=UTC), "price": Decimal("9.5")}
    assert [match.subscription for match in matcher.match(event)] == ["cheap"]


@pytest.mark.parametrize("event", [5, "x", None, [{"price": 1}], 1.5, b"{}"])
def test_what_is_no_mapping_is_refused(event: Any) -> None:
    """It has no attributes, and is not an event in which all are missing."""
    matcher = Matcher(Vocabulary.from_ontologies([]))
    matcher.add("none", "price missing")
    for call in (matcher.match, matcher.decide, matcher.canonicalise, lambda each: matcher.match_batch([each])):
        with pytest.raises(InvalidEvent, match="an event must be an object"):
            call(event)
    assert [match.subscription for match in matcher.match(Event(5))] == ["none"]
