"""Calendar windows: whether a time lies in given hours of given days, in a time zone.

    inWindow("office hours", @ce.time)                                   a window by name
    inWindow("mon-fri 09:00-17:00 Europe/Vienna", @ce.time)              or written out
    inWindow("2026-12-24..2027-01-06 Europe/Vienna", @due)

A window is days of the week, dates, hours and a time zone, in this order, each but the zone may be missing; hours end
before their end and may pass midnight (`22:00-06:00`, of the day on which they begin). Named windows are data, too:
{"office hours": ["mon-thu 09:00-17:00 Europe/Vienna", "fri 09:00-13:00 Europe/Vienna"]}.
"""

import hashlib
import json
import re
import zoneinfo
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import cache, lru_cache
from typing import Any

from kindcast.semantic.errors import InvalidDeclaration
from kindcast.semantic.operators.declaration import Operator
from kindcast.semantic.units.instants import parse_instant

__all__ = ["MOST_WINDOWS", "Window", "windows"]

MOST_WINDOWS = 1_000
DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
DAY = f"(?:{'|'.join(DAYS)})"
FORM = re.compile(
    rf"(?:(?P<days>{DAY}(?:-{DAY})?(?:,{DAY}(?:-{DAY})?)*)\s+)?"
    r"(?:(?P<first>\d{4}-\d{2}-\d{2})(?:\.\.(?P<last>\d{4}-\d{2}-\d{2}))?\s+)?"
    r"(?:(?P<begin>\d{2}:\d{2})-(?P<end>\d{2}:\d{2})\s+)?"
    r"(?P<zone>[A-Za-z0-9_+/-]{1,64})",
    re.ASCII | re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Window:
    """Hours of some days in one time zone; `begin == end` is the whole day."""

    zone: zoneinfo.ZoneInfo
    days: frozenset[int]
    first: date
    last: date
    begin: time
    end: time

    @classmethod
    def of(cls, text: str) -> "Window":
        """Raises ValueError with what is wrong.

        >>> Window.of("mon-fri 09:00-17:00 Europe/Vienna").holds(datetime(2026, 11, 20, 8, 30, tzinfo=UTC))
        True
        """
        found = FORM.fullmatch(text.strip())
        if found is None:
            raise ValueError(
                f"{text!r} is not a window: write 'mon-fri 2026-01-01..2026-12-31 09:00-17:00 Europe/Vienna'"
            )
        if found["zone"] not in _zones():  # a name that is not in the list never becomes a file name
            raise ValueError(f"there is no time zone {found['zone']!r}; write a name such as Europe/Vienna or UTC")
        first = date.fromisoformat(found["first"]) if found["first"] else date.min
        last = date.fromisoformat(found["last"]) if found["last"] else first if found["first"] else date.max
        begin, end = (_clock(found[each] or "00:00") for each in ("begin", "end"))
        return cls(zoneinfo.ZoneInfo(found["zone"]), _days(found["days"]), first, last, begin, end)

    def holds(self, instant: datetime) -> bool:
        """Whether `instant`, with its offset, lies in the window."""
        here = instant.astimezone(self.zone)
        clock, day = here.time(), here.date()
        if self.begin < self.end:
            return self.begin <= clock < self.end and self._on(day)
        if clock >= self.begin and self._on(day):
            return True
        return clock < self.end and day > date.min and self._on(day - timedelta(days=1))

    def _on(self, day: date) -> bool:
        return day.weekday() in self.days and self.first <= day <= self.last


def windows(named: Mapping[str, Sequence[str]] | bytes | str | None = None) -> list[Operator]:
    """`inWindow` over these named windows, as a mapping or as its JSON. Raises `InvalidDeclaration`."""
    known, version = _named(named)

    def found(window: str) -> Sequence[Window]:
        return known[window] if window in known else (_written(window),)

    def wrong(window: str, *_: Any) -> str | None:
        try:
            found(window)
        except ValueError as error:
            return str(error)
        return None

    def in_window(event: Any, window: str, times: tuple[Any, ...]) -> bool:
        instants = [parse_instant(each) for each in times if isinstance(each, str)]
        moments = [_EPOCH + timedelta(microseconds=each) for each in instants if each is not None]
        return any(each.holds(moment) for moment in moments for each in found(window))

    said: dict[str, Any] = {"version": version, "cost": 1e-5, "selectivity": 0.3, "binds": (), "concurrency": 64}
    return [Operator(name="inWindow", function=in_window, check=wrong, cache_key="arguments", **said)]


def _named(given: Mapping[str, Sequence[str]] | bytes | str | None) -> tuple[dict[str, tuple[Window, ...]], str]:
    try:
        read = json.loads(given) if isinstance(given, bytes | str) else dict(given or {})
        if not isinstance(read, dict) or len(read) > MOST_WINDOWS:
            raise ValueError(f"an object from names to windows is expected, with at most {MOST_WINDOWS:,} names")
        found = {}
        for name, texts in read.items():
            try:
                found[name] = tuple(Window.of(each) for each in ([texts] if isinstance(texts, str) else texts))
            except (ValueError, TypeError, AttributeError) as error:
                raise ValueError(f"window {name!r}: {error}") from error
    except (ValueError, TypeError, RecursionError) as error:
        raise InvalidDeclaration(str(error)) from error
    return found, hashlib.sha256(json.dumps(read, sort_keys=True).encode()).hexdigest()[:12]


@lru_cache(maxsize=1_024)
def _written(text: str) -> Window:
    return Window.of(text)


@cache
def _zones() -> frozenset[str]:
    return frozenset(zoneinfo.available_timezones())


def _clock(text: str) -> time:
    return time(0, 0) if text == "24:00" else time.fromisoformat(text)


def _days(text: str | None) -> frozenset[int]:
    if text is None:
        return frozenset(range(7))
    found: set[int] = set()
    for part in text.lower().split(","):
        first, _, last = part.partition("-")
        begin, end = DAYS.index(first), DAYS.index(last or first)
        found.update(each % 7 for each in range(begin, end + 1 if end >= begin else end + 8))
    return frozenset(found)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
