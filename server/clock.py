"""The time for expiry: the wall clock, unless it jumps ahead of the clock since the start of the machine.

Subscriptions expire and old events are deleted by the wall clock. A clock that is set days ahead by mistake would end
all of them. So the wall clock is compared with CLOCK_BOOTTIME, which counts the seconds since the machine started,
including those while it slept, and which nobody can set. While the wall clock is ahead, time here continues at the pace
of CLOCK_BOOTTIME, so nothing ends early. A user who knows that the new time is right must confirm it.

    wall clock ──ahead of CLOCK_BOOTTIME by more than before?──no──▶ now()
                         └─yes, said in the log and by /readyz──▶ now() by CLOCK_BOOTTIME, until confirmed or back

A clock that is set back is accepted at once: then everything ends later.

Servers that share a database also compare their clocks with that of the database, so that they agree when something
ends. While the wall clock is ahead of it or behind it, time here is that of the database. A jump of that clock is not
believed either.
"""

import logging
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime

__all__ = ["CLOCK", "Clock", "instant"]

TOLERANCE_SECONDS = 60.0
DRIFT = 0.01
"""The share of the time since the start by which the clocks may drift apart in small steps."""

JUMPED = (
    "the clock{} jumped ahead by {:,.0f} s: nothing expires and nothing is deleted until the clock is set back, or"
    " until you confirm it with `kindcast clock confirm`"
)
DIFFERS = (
    "the clock of this machine is {:,.0f} s {} the database's: this server uses the time of the database until one of"
    " the clocks is set"
)

_log = logging.getLogger("kindcast.clock")


def _since_boot() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


LATEST = 253_402_300_799.0
"""The last second of the year 9999. RFC 3339 has no later times."""


def instant(at: float) -> str:
    """Seconds since 1970 as RFC 3339 has them, in UTC, to the millisecond. A later time than `LATEST` is that one.

    >>> instant(0.5)
    '1970-01-01T00:00:00.500Z'
    """
    return datetime.fromtimestamp(min(at, LATEST), UTC).isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"


class Clock:
    """The clock of a process. May be used in any thread. `wall` and `machine` are clocks in seconds."""

    def __init__(self, wall: Callable[[], float] = time.time, machine: Callable[[], float] = _since_boot) -> None:
        self._wall = wall
        self._machine = machine
        self._lock = threading.Lock()
        self._wrong = False
        self._database: tuple[float, float] | None = None
        """The least and the greatest difference of the database's clock and the machine's clock that its last answer
        allows; None without another clock."""
        self.restart()

    def restart(self, offset: float | None = None) -> None:
        """Accepts the present wall clock, and that of the database if it is later. With an `offset` from earlier since
        the machine started, accepts the wall clock of that time."""
        with self._lock:
            self._since = self._machine()
            self._offset = self._wall() - self._since
            if self._database is not None:
                self._offset = max(self._offset, self._database[0])
            if offset is not None:
                self._offset = min(self._offset, offset)
            self._wrong = False

    @property
    def offset(self) -> float:
        """The accepted difference of the wall clock and the machine's clock."""
        return self._offset

    @property
    def running(self) -> float:
        """The seconds since the machine started."""
        return self._machine()

    def compare(self, database: float, asked: float) -> None:
        """Notes the time of the database, in seconds since 1970. It was asked for when `running` was `asked`, so it is
        not known when within a slow answer. The first time is accepted. Holds until the next call, or
        `compare_no_more`."""
        first = self._database is None
        self._database = database - self._machine(), database - asked
        if first:
            self.restart()

    def compare_no_more(self) -> None:
        """Forgets the time of the database."""
        self._database = None

    def now(self) -> float:
        """Returns seconds since 1970, never far ahead of the time that has passed on the machine, and never far from
        the database's clock, unless that one jumped."""
        return self._read()[0]

    def _read(self) -> tuple[float, str | None]:
        """Returns the time, and the problem of the wall clock in words, if any."""
        wall, machine, database = self._wall(), self._machine(), self._database  # which other threads may change
        told, whose, trouble = wall, "", None
        if database is not None:
            least, most = machine + database[0], machine + database[1]
            if wall - most > TOLERANCE_SECONDS:
                told, whose, trouble = most, " of the database", DIFFERS.format(wall - most, "ahead of")
            elif least - wall > TOLERANCE_SECONDS:
                told, whose, trouble = least, " of the database", DIFFERS.format(least - wall, "behind")
        expected = machine + self._offset
        if told - expected > TOLERANCE_SECONDS + DRIFT * (machine - self._since):
            told, trouble = expected, JUMPED.format(whose, told - expected)
        if (trouble is not None) != self._wrong:
            self._tell(trouble)
        return told, trouble

    @property
    def trouble(self) -> str | None:
        """The problem of the wall clock in words; None if it is accepted."""
        return self._read()[1]

    def _tell(self, trouble: str | None) -> None:
        with self._lock:
            if (trouble is not None) == self._wrong:
                return
            self._wrong = trouble is not None
        if trouble is not None:
            _log.error("%s", trouble)
        else:
            _log.warning("the clock is right again")


CLOCK = Clock()
"""The clock of this process."""
