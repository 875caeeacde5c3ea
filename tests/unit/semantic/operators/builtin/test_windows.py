"""Times in calendar windows."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kindcast.semantic.errors import InvalidDeclaration
from kindcast.semantic.operators.builtin import Window, windows
from tests.unit.semantic.operators.builtin.asking import holds, refused

OFFICE = {"office hours": ["mon-thu 09:00-17:00 Europe/Vienna", "fri 09:00-13:00 Europe/Vienna"]}
OPERATORS = windows(OFFICE)


@pytest.mark.parametrize(
    ("window", "time", "inside"),
    [
        ("office hours", "2026-11-19T15:59:59Z", True),
        ("office hours", "2026-11-19T16:00:00Z", False),
        ("office hours", "2026-11-20T13:00:00Z", False),
        ("office hours", "2026-07-16T07:00:00Z", True),
        ("office hours", "2026-07-16T15:30:00Z", False),
        ("mon-fri UTC", "2026-11-21T00:00:00Z", False),
        ("fri-mon UTC", "2026-11-21T00:00:00Z", True),
        ("SAT,tue utc".replace("utc", "UTC"), "2026-11-21T12:00:00+02:00", True),
        ("22:00-06:00 UTC", "2026-11-21T23:00:00Z", True),
        ("22:00-06:00 UTC", "2026-11-21T05:59:00Z", True),
        ("22:00-06:00 UTC", "2026-11-21T06:00:00Z", False),
        ("fri 22:00-06:00 UTC", "2026-11-21T05:00:00Z", True),
        ("sat 22:00-06:00 UTC", "2026-11-21T05:00:00Z", False),
        ("2026-12-24..2027-01-06 Europe/Vienna", "2026-12-23T23:30:00Z", True),
        ("2026-12-24 Europe/Vienna", "2026-12-24T23:30:00Z", False),
        ("mon-fri UTC", "yesterday", False),
        ("18:00-24:00 UTC", "2026-11-21T23:59:59.9Z", True),
    ],
)
def test_in_window_time_by_the_clock_of_the_zone(window: str, time: str, inside: bool) -> None:
    """Summer time counts; the end does not belong to it; what passes midnight belongs to the day on which it began."""
    assert holds(OPERATORS, f'inWindow("{window}", @at)', at=time) is inside


@pytest.mark.parametrize(
    ("window", "why"),
    [
        ("lunch", "there is no time zone 'lunch'"),
        ("mon-fri 09:00-17:00", "is not a window"),
        ("mon 9-17 UTC", "is not a window"),
        ("mon 09:00-25:00 UTC", "hour must be in 0..23"),
        ("2026-02-30 UTC", "day"),
        ("mon ../../etc/passwd", "is not a window"),
        ("mon Europe/../UTC", "is not a window"),
        ("mon posixrules", "there is no time zone"),
    ],
)
def test_window_that_makes_no_sense_is_refused_when_subscribing(window: str, why: str) -> None:
    """And no text of a subscriber becomes the name of a file."""
    assert why in refused(OPERATORS, f'inWindow("{window}", @at)')


def test_windows_named_ones_are_data() -> None:
    """As a mapping or as JSON; a wrong one is told by its name."""
    assert windows('{"x": "mon UTC"}')[0].version == windows({"x": "mon UTC"})[0].version != OPERATORS[0].version
    for wrong in ('{"x": "mon Nowhere"}', '{"x": [5]}', "[1]", "no json"):
        with pytest.raises(InvalidDeclaration):
            windows(wrong)


@given(
    st.integers(0, 2_000_000_000),
    st.sampled_from(["UTC", "Europe/Vienna", "America/St_Johns"]),
)
def test_window_of_every_day_is_the_union_of_its_parts(second: int, zone: str) -> None:
    """Each moment lies in exactly one third of the day, and in exactly one day of the week."""
    instant = datetime.fromtimestamp(second, UTC)
    thirds = [Window.of(f"{hours} {zone}").holds(instant) for hours in ("00:00-08:00", "08:00-16:00", "16:00-24:00")]
    days = [Window.of(f"{day} {zone}").holds(instant) for day in ("mon", "tue", "wed", "thu", "fri", "sat", "sun")]
    assert sum(thirds) == sum(days) == 1
    assert days.index(True) == instant.astimezone(ZoneInfo(zone)).weekday()
    assert Window.of(zone).holds(instant + timedelta(days=1))
