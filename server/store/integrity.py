"""Digests, checksums and the witness file. They show that stored data is unchanged and that no commit is missing.

    an event            its digest, from its body
    a list of matches   CRC-32 where it is short, Adler-32 (of zlib) where it is long; so are pages and bindings
    the file            PRAGMA quick_check, a table at a time
    the database        `Witness`: a file beside it holds the number of the last commit, written once a second

Data is checked whenever it is read, and all data once after each start. Damaged data is never returned. The answer, the
log, `/readyz` and `kindcast repair` report it.
"""

import asyncio
import contextlib
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from sqlalchemy import Connection, func, inspect, select
from sqlalchemy.exc import DBAPIError

from kindcast.server.clock import CLOCK
from kindcast.server.cloudevents import is_whole
from kindcast.server.errors import RecordDamaged, ServerError, StoreDamaged, StoreUnavailable
from kindcast.server.store.ledger import FITS_FROM, position
from kindcast.server.store.matches import check_bindings
from kindcast.server.store.postings import DamagedBytes, Postings, unpack
from kindcast.server.store.tables import events, match_lists, posting_pages

__all__ = [
    "CHECKS",
    "Check",
    "Damage",
    "Seen",
    "Witness",
    "accept",
    "check_everything",
    "clock_ahead",
    "examine",
    "examine_keys",
    "find_damage",
    "follow_clock",
    "mark_of_keys",
    "path_of",
    "reading_uri",
    "sync",
    "tables_of",
    "tenants_in",
    "unchanged",
    "write_witness",
]

SHOWN = 5
"""The maximum number of damaged records that `/readyz` names."""
REMEMBERED = 1_000
CORRUPT = (11, 26)
"""SQLITE_CORRUPT and SQLITE_NOTADB, in the lower byte of an extended code."""
CORRUPT_STATES = ("XX001", "XX002")
"""PostgreSQL: data corrupted, index corrupted."""

_log = logging.getLogger("kindcast.store")


class Damage:
    """The damage found in one database. May be used in any thread."""

    def __init__(self, command: str) -> None:
        """`command` says what is damaged. Messages name it."""
        self._command = command
        self._lock = threading.Lock()
        self._records: dict[str, None] = {}
        self.of_file: str | None = None
        """What is wrong with the database as a whole, so that it cannot be used; else None."""
        self.progress: str | None = None
        """The progress of the check after the start."""

    def note(self, record: str) -> None:
        """Notes a damaged record. It is logged once."""
        with self._lock:
            if record in self._records or len(self._records) >= REMEMBERED:
                return
            self._records[record] = None
        _log.error("damaged: %s; run %s", record, self._command)

    def note_file(self, what: str) -> None:
        """Notes that the whole database is damaged."""
        if self.of_file is None:
            self.of_file = f"the database is damaged ({what}): stop the server and run {self._command}"
            _log.error("%s", self.of_file)

    @property
    def summary(self) -> str | None:
        """The damaged records, in words; None if there is none."""
        with self._lock:
            if not self._records:
                return None
            shown = ", ".join(list(self._records)[:SHOWN])
            more = ", …" if len(self._records) > SHOWN else ""
            return f"damaged: {shown}{more}; run {self._command}"

    def translated(self, error: Exception) -> Exception:
        """Translates an error of the store: to `StoreDamaged` if the database or its matches cannot be read. Notes the
        damage."""
        if isinstance(error, DBAPIError) and _is_corrupt(error.orig):
            self.note_file(str(error.orig))
            return StoreDamaged(self.of_file)
        if isinstance(error, DamagedBytes):
            self.note(str(error))
            return StoreDamaged(f"{error}: kindcast check says what is damaged")
        if isinstance(error, RecordDamaged):
            self.note(error.record)
        return error


def _is_corrupt(error: BaseException | None) -> bool:
    code = getattr(error, "sqlite_errorcode", None)
    return (code is not None and code & 0xFF in CORRUPT) or getattr(error, "sqlstate", None) in CORRUPT_STATES


# ── everything, piece by piece ────────────────────────────────────────────────────────────────────────────────────────

Check = Callable[[Connection, int, int], tuple[int | None, list[str]]]
"""(connection, last key before, maximum number of rows) → the last checked key (None if there was none), and the
damage."""


def _check_events(connection: Connection, after: int, limit: int) -> tuple[int | None, list[str]]:
    columns = (events.c.sequence, events.c.body, events.c.digest)
    query = select(*columns).where(events.c.sequence > after).order_by(events.c.sequence).limit(limit)
    last, found = None, []
    for last, body, digest in connection.execute(query):
        if not is_whole(body, digest):
            found.append(f"event {last}")
    return last, found


def _check_lists(connection: Connection, after: int, limit: int) -> tuple[int | None, list[str]]:
    columns = (match_lists.c.position, match_lists.c.size, match_lists.c.subscriptions, match_lists.c.bindings)
    query = select(*columns).where(match_lists.c.position > after).order_by(match_lists.c.position).limit(limit)
    last, found = None, []
    for last, size, numbers, bindings in connection.execute(query):
        try:
            whole = unpack(bytes(numbers)).size == size and check_bindings(bindings, size)
        except DamagedBytes:
            whole = False
        if not whole:
            found.append(f"matches of position {last}")
    return last, found


def _check_pages(connection: Connection, after: int, limit: int) -> tuple[int | None, list[str]]:
    blocks = select(posting_pages.c.block).where(posting_pages.c.block > after).distinct()
    block = connection.execute(blocks.order_by(posting_pages.c.block).limit(1)).scalar_one_or_none()
    if block is None:
        return None, []
    found = []
    columns = (posting_pages.c.last, posting_pages.c.low, posting_pages.c.data)
    for last, low, data in connection.execute(select(*columns).where(posting_pages.c.block == block)):
        try:
            Postings.decoded(bytes(data), block, last)
        except DamagedBytes:
            found.append(f"the page of positions {block} to {last}, subscription {low} on")
    return block, found


CHECKS: Sequence[tuple[str, Check, Any]] = (
    ("events", _check_events, events),
    ("lists of matches", _check_lists, match_lists),
    ("pages of matches", _check_pages, posting_pages),
)
"""The checks of data with digests or checksums: (name, check, table)."""


def _extent(connection: Connection) -> tuple[int, list[int]]:
    """Returns the last position that was assigned, and the number of rows of the table of each check."""
    counts = [select(func.count()).select_from(table) for _, _, table in CHECKS]
    return position(connection)[1], [connection.execute(count).scalar_one() for count in counts]


def tables_of(connection: Connection) -> list[str]:
    """Returns the tables of a SQLite database. Returns none for other databases, which have their own tools."""
    return inspect(connection).get_table_names() if connection.dialect.name == "sqlite" else []


def find_damage(connection: Connection, table: str, at_most: int) -> list[str]:
    """Returns what SQLite's own check finds wrong with a table and its indexes. Reads the whole table. A table of an
    older layout may have been dropped meanwhile."""
    if table not in tables_of(connection):
        return []
    quoted = table.replace('"', '""')
    rows = connection.exec_driver_sql(f'PRAGMA quick_check("{quoted}")').scalars().all()
    return [each for each in rows if each != "ok"][:at_most]


WRITE_SECONDS = 1.0
BOOT = Path("/proc/sys/kernel/random/boot_id")
MAX_DAMAGE = 20
"""The maximum number of shown lines of SQLite's own check."""


class Seen(msgspec.Struct, frozen=True):
    """The content of the witness file. `boot` identifies the boot of the machine to which `offset` belongs."""

    commits: int
    boot: str
    offset: float


@dataclass(slots=True)
class Witness:
    """The witness file of one database: the number of the last commit. For the broker's thread. If it cannot be
    written, this is logged and has no other effect."""

    path: Path
    _written: int = -1
    _not_before: float = 0.0

    def read(self) -> Seen | None:
        """Returns the content of the file; None if it is missing or incomplete."""
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=Seen)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError) as error:
            _log.warning("the witness of the last commit cannot be read: %s", error)
            return None

    def saw(self, commits: int, *, now: bool = False) -> None:
        """Notes that this many commits are on disk. The file is written at most once a second, or `now`."""
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


def sync(path: Path) -> None:
    """Flushes a file, or the entries of a folder, to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_witness(database: Path, commits: int) -> None:
    """Writes the witness of a database that no server uses yet, with the number of its commits."""
    path = path_of(database)
    path.touch(0o600)
    path.write_bytes(msgspec.json.encode(Seen(commits, "", 0.0)))


def path_of(database: str | Path) -> Path:
    """Returns the path of the witness file of a database."""
    return Path(f"{database}.witness")


def mark_of_keys(database: str | Path) -> Path:
    """Returns the path of the file that exists while there are keys. A server that lost its keys must not start like
    one that never had any."""
    return Path(f"{database}.keyed")


def follow_clock(seen: Seen | None) -> None:
    """Compares the clock with the witness, if the machine has not been restarted since."""
    CLOCK.restart(seen.offset if seen is not None and seen.boot and seen.boot == _boot() else None)
    CLOCK.now()


def clock_ahead(database: Path) -> float | None:
    """Returns the seconds by which the clock was moved, compared with the machine's monotonic clock, since a server
    last wrote to the database. Returns None if no server has written since the machine started."""
    seen = Witness(path_of(database)).read()
    if seen is None or not seen.boot or seen.boot != _boot():
        return None
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) - seen.offset


def unchanged(database: Path) -> str:
    """Returns the URI with which SQLite reads the database of a stopped server. Without a write-ahead log, SQLite
    creates no file beside it: such a file of another user would prevent the server from starting."""
    log = Path(f"{database}-wal")
    is_whole = not log.exists() or not log.stat().st_size
    return f"{database.absolute().as_uri()}?mode=ro{'&immutable=1' if is_whole else ''}"


def reading_uri(database: Path) -> str:
    """Returns the URI with which SQLite reads a database, also while a server runs. Without a write-ahead log no server
    runs, and SQLite makes one: only a connection that may write removes it at its end. If SQLite may not make one, as
    on a read-only mount, it is told that nobody changes the database."""
    if Path(f"{database}-wal").exists():
        how = "mode=ro"
    else:
        how = "mode=rw" if os.access(database.absolute().parent, os.W_OK) else "mode=ro&immutable=1"
    return f"{database.absolute().as_uri()}?{how}"


def examine(database: Path) -> dict[str, Any]:
    """Checks the database of a stopped server: SQLite's own check, the digests of stored events and matches, and the
    number of commits that the witness knows and the database lacks. Reads everything once. `readable_from` is the
    oldest layout whose servers can work with it; 0 if every later one can. Raises PermissionError."""
    damage: list[str] = []
    commits = layout = readable_from = 0
    if not database.is_file() or not database.stat().st_size:
        damage.append(f"{database} is empty or missing")
    else:
        database.open("rb").close()  # SQLite would not say why it cannot
        with contextlib.closing(sqlite3.connect(unchanged(database), uri=True)) as connection:
            try:
                damage += [row[0] for row in connection.execute(f"PRAGMA quick_check({MAX_DAMAGE})") if row[0] != "ok"]
                commits, layout = connection.execute("SELECT commits, layout FROM ledger").fetchone()
                if layout >= FITS_FROM:
                    (readable_from,) = connection.execute("SELECT readable_from FROM ledger").fetchone()
                connection.text_factory = bytes  # a damaged text may not be valid UTF-8
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
    missing = max(0, seen.commits - commits) if seen else 0
    told = {"commits": commits, "layout": layout, "readable_from": readable_from}
    return {"damage": damage, "missing_commits": missing, **told}


def tenants_in(data: Path) -> list[tuple[str, Path]]:
    """Returns the names and databases of the tenants in a data folder, except `default`. Leaves out tenants whose files
    are being deleted, and those in which nothing was ever stored. A database that is missing may be among them."""
    folders = sorted({each.parent for each in data.glob("tenants/*/kindcast.db*")})
    found = [(each.name, each / "kindcast.db") for each in folders if "." not in each.name]
    return [(name, database) for name, database in found if _was_used(database)]


def _was_used(database: Path) -> bool:
    """Returns False if a database has no tables, as after a kill or with a full disk during the first use."""
    if path_of(database).exists():
        return True
    if not database.is_file():
        return False
    try:
        with contextlib.closing(sqlite3.connect(unchanged(database), uri=True)) as connection:
            return bool(connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0])
    except sqlite3.DatabaseError:
        return True  # it is damaged, or it cannot be read now


def examine_keys(database: Path, *, running: bool = False) -> list[str]:
    """Checks the file of the keys beside the database of a server, which may only run if this is said. Returns what is
    wrong with the file. Raises PermissionError."""
    keys = database.with_suffix(".system.db")
    had_keys = mark_of_keys(database).exists()
    if not keys.is_file():
        return [f"{keys} is missing, and with it the keys"] if had_keys else []
    address = reading_uri(keys) if running else unchanged(keys)
    damage = quick_check(keys, address)
    if had_keys and not damage and not _has_keys(address):
        damage.append(f"the keys in {keys} are missing: put the file of the keys back")
    return damage


def _has_keys(address: str) -> bool:
    """Returns whether the database of the keys has any. A start that is refused leaves one without."""
    with contextlib.closing(sqlite3.connect(address, uri=True)) as connection:
        try:
            return connection.execute("SELECT 1 FROM system_keys LIMIT 1").fetchone() is not None
        except sqlite3.OperationalError:  # there is no such table
            return False


def quick_check(database: Path, address: str) -> list[str]:
    """Returns what SQLite's own check of a file finds, if it is read with the URI `address`. Raises PermissionError."""
    database.open("rb").close()  # SQLite would not say why it cannot
    try:
        with contextlib.closing(sqlite3.connect(address, uri=True)) as connection:
            found = [str(row[0]) for row in connection.execute(f"PRAGMA quick_check({MAX_DAMAGE})") if row[0] != "ok"]
    except sqlite3.DatabaseError as error:
        found = [str(error)]
    return [f"{database}: {'; '.join(found)}"] if found else []


def _damaged_matches(connection: sqlite3.Connection) -> list[str]:
    """Returns the lists and pages of matches that cannot be read. Databases of layouts up to 5 have none."""
    there = {row[0].decode() for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if "match_lists" not in there:
        return []
    found = []
    for at, numbers in connection.execute("SELECT position, subscriptions FROM match_lists"):
        try:
            unpack(numbers)
        except DamagedBytes:
            found.append(f"the list of matches at position {at} is damaged")
    for block, last, data in connection.execute("SELECT block, last, data FROM posting_pages"):
        try:
            Postings.decoded(data, block, last)
        except DamagedBytes:
            found.append(f"a page of matches of the positions {block} to {last} is damaged")
    return found[:MAX_DAMAGE]


def accept(database: Path) -> None:
    """Deletes the witness and the mark of keys, so that the next start serves the remaining data."""
    path_of(database).unlink(missing_ok=True)
    mark_of_keys(database).unlink(missing_ok=True)


def _boot() -> str:
    try:
        return BOOT.read_text().strip()
    except OSError:
        return ""


# ── the check of all stored data, in the background after a start ─────────────────────────────────────────────────────
#
#     ready ──some seconds──▶ quick_check, table by table ──▶ digests, some thousand rows at a time ──▶ log, /readyz
#
# After each piece it pauses for several times as long as the piece took, so that it uses only a small share of one
# processor.


ROWS_AT_ONCE = 1_000
"""The number of rows of a piece."""
REST_FACTOR = 4.0
"""The length of a pause, as a multiple of the time of a piece."""

AWAY_PAUSE_SECONDS = 5.0
"""The time between two attempts while the database cannot be reached, as while PostgreSQL is restarted."""

Read = Callable[[Callable[[Connection], Any]], Awaitable[Any]]


async def check_everything(read: Read, damage: Damage, after_seconds: float) -> None:
    """Checks once all data that is there when it begins. Newer data is not followed: a server that stores events faster
    than it checks them would never end. `read` is the method of the broker. The damage is recorded in `damage`."""
    read = partial(_patient, read)
    await asyncio.sleep(after_seconds)
    began = time.monotonic()
    try:
        for table in await read(tables_of):
            damage.progress = f"checking the table {table}"
            if lines := await _rested(read, partial(find_damage, table=table, at_most=MAX_DAMAGE)):
                damage.note_file("; ".join(lines))
        last, totals = await read(_extent)
        for (name, check, _), total in zip(CHECKS, totals, strict=True):
            done = 0
            after: int | None = 0
            while after is not None and after < last:
                damage.progress = f"checking {name}: {done:,} of {total:,}"
                after, found = await _rested(read, _from(check, after))
                for each in found:
                    damage.note(each)
                done = min(total, done + ROWS_AT_ONCE)
    except StoreDamaged:
        damage.progress = "the check stopped at damaged pages"
        return
    except ServerError as error:
        damage.progress = f"the check stopped early: {error}"
        return
    except Exception:
        damage.progress = "the check stopped early because of an error: see the log of the server"
        _log.exception("the check of what is stored failed")
        return
    damage.progress = f"{sum(totals):,} records were checked"
    _log.info("%s in %.1f s after the start", damage.progress, time.monotonic() - began)


def _from(check: Check, after: int) -> Callable[[Connection], Any]:
    return lambda connection: check(connection, after, ROWS_AT_ONCE)


async def _patient(read: Read, work: Callable[[Connection], Any]) -> Any:
    """Does what `read` does, again and again while the database cannot be reached. Raises `StoreDamaged`."""
    while True:
        try:
            return await read(work)
        except StoreDamaged:
            raise
        except StoreUnavailable:
            await asyncio.sleep(AWAY_PAUSE_SECONDS)


async def _rested(read: Read, work: Callable[[Connection], Any]) -> Any:
    began = time.monotonic()
    found = await read(work)
    await asyncio.sleep(REST_FACTOR * (time.monotonic() - began))
    return found
