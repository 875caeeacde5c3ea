"""The witness: a small file beside a SQLite database that knows the number of its last commit.

A database cannot tell that its newest part is gone: without its write-ahead log, or with a damaged one, it opens with
fewer commits, as it was some time ago. The witness is written apart from it, once a second, after a commit. A start
that finds fewer commits than the witness refuses, so that nothing that was acknowledged vanishes silently; a person
then decides (`kindcast repair`). At most the commits of the last second are beyond what it can tell.

It also keeps the offset between wall clock and machine's clock, so that a clock that jumped while the server did not
run is noticed at its start.
"""

import contextlib
import logging
import os
import sqlite3
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from kindcast.server.clock import CLOCK
from kindcast.server.cloudevents import is_whole
from kindcast.server.store.postings import DamagedBytes, Postings, unpack

__all__ = [
    "Seen",
    "Witness",
    "accept",
    "clock_ahead",
    "examine",
    "follow_clock",
    "mark_of_keys",
    "path_of",
    "unchanged",
]

WRITE_SECONDS = 1.0
BOOT = Path("/proc/sys/kernel/random/boot_id")
MAX_DAMAGE = 20
"""Lines of SQLite's own check that are shown."""

_log = logging.getLogger("kindcast.store")


class Seen(msgspec.Struct, frozen=True):
    """What was seen last: `boot` names the machine's run that `offset` belongs to."""

    commits: int
    boot: str
    offset: float


@dataclass(slots=True)
class Witness:
    """Of one database. The broker's thread. A witness that cannot be written is logged; nothing waits for it."""

    path: Path
    _written: int = -1
    _not_before: float = 0.0

    def read(self) -> Seen | None:
        """What it says; None without one, or where it was cut off itself."""
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=Seen)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError) as error:
            _log.warning("the witness of the last commit cannot be read and is written again: %s", error)
            return None

    def saw(self, commits: int, *, now: bool = False) -> None:
        """So many commits are on disk. Written once a second, or `now`."""
        if commits == self._written or (time.monotonic() < self._not_before and not now):
            return
        self._not_before = time.monotonic() + WRITE_SECONDS
        beside = self.path.with_name(self.path.name + ".new")
        try:
            with beside.open("wb") as file:
                os.chmod(beside, 0o600)
                file.write(msgspec.json.encode(Seen(commits, _boot(), CLOCK.offset)))
                file.flush()
                os.fsync(file.fileno())
            os.replace(beside, self.path)
            self._written = commits
        except OSError as error:
            _log.error("the witness of the last commit cannot be written: %s", error)


def path_of(database: str | Path) -> Path:
    """Where the witness of a database is."""
    return Path(f"{database}.witness")


def mark_of_keys(database: str | Path) -> Path:
    """The file beside a database that is there as long as there are keys: a server that lost its keys must not start as
    one that never had any."""
    return Path(f"{database}.keyed")


def follow_clock(seen: Seen | None) -> None:
    """Compare the clock with what was seen before, if the machine has run since."""
    CLOCK.restart(seen.offset if seen is not None and seen.boot and seen.boot == _boot() else None)
    CLOCK.now()


def clock_ahead(database: Path) -> float | None:
    """Seconds by which the clock has moved against the machine's own since a server last wrote to the database; None
    where none has since the machine started."""
    seen = Witness(path_of(database)).read()
    if seen is None or not seen.boot or seen.boot != _boot():
        return None
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) - seen.offset


def unchanged(database: Path) -> str:
    """The URI by which SQLite reads the file of a server that does not run. Without a write-ahead log it makes no file
    beside it: one of another user would keep the server from starting."""
    log = Path(f"{database}-wal")
    is_whole = not log.exists() or not log.stat().st_size
    return f"{database.absolute().as_uri()}?mode=ro{'&immutable=1' if is_whole else ''}"


def examine(database: Path) -> dict[str, Any]:
    """What SQLite finds wrong with the file, which stored events do not fit their digests, and how many commits the
    witness knows that are not there. Reads everything once."""
    damage: list[str] = []
    commits = 0
    if not database.is_file() or not database.stat().st_size:
        damage.append(f"{database} is empty, or not there")
    else:
        with contextlib.closing(sqlite3.connect(unchanged(database), uri=True)) as connection:
            try:
                damage += [row[0] for row in connection.execute(f"PRAGMA quick_check({MAX_DAMAGE})") if row[0] != "ok"]
                commits = connection.execute("SELECT commits FROM ledger").fetchone()[0]
                connection.text_factory = bytes  # a damaged text may be no text any more
                rows = connection.execute("SELECT sequence, body, digest FROM events")
                wrong = [
                    sequence for sequence, body, digest in rows if not is_whole(body, str(digest, "utf-8", "replace"))
                ]
                if wrong:
                    shown = ", ".join(map(str, wrong[:MAX_DAMAGE]))
                    damage.append(f"{len(wrong):,} stored events are not what was accepted: {shown}")
                damage += _damaged_matches(connection)
            except (sqlite3.DatabaseError, TypeError) as error:
                damage.append(f"{database} cannot be read: {error}")
    seen = Witness(path_of(database)).read()
    return {"damage": damage, "missing_commits": max(0, seen.commits - commits) if seen else 0, "commits": commits}


def _damaged_matches(connection: sqlite3.Connection) -> list[str]:
    """Lists and pages of matches that cannot be read; databases of layouts up to 5 have none."""
    there = {row[0].decode() for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if "match_lists" not in there:
        return []
    found = []
    for position, numbers in connection.execute("SELECT position, subscriptions FROM match_lists"):
        try:
            unpack(numbers)
        except DamagedBytes:
            found.append(f"the list of matches at position {position} is damaged")
    for block, last, data in connection.execute("SELECT block, last, data FROM posting_pages"):
        try:
            Postings.decoded(data, block, last)
        except DamagedBytes:
            found.append(f"a page of matches of the positions {block} to {last} is damaged")
    return found[:MAX_DAMAGE]


def accept(database: Path) -> None:
    """Forget what was seen, and that there were keys: the next start serves what is there."""
    path_of(database).unlink(missing_ok=True)
    mark_of_keys(database).unlink(missing_ok=True)


def _boot() -> str:
    try:
        return BOOT.read_text().strip()
    except OSError:
        return ""
