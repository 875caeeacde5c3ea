"""What is stored is what was accepted: digests and checksums, looked at wherever something is read, and all of them
once after each start.

    an event            its digest, from its body
    a list of matches   CRC-32 where it is short, Adler-32 (of zlib) where it is long; so are pages and bindings
    the file            PRAGMA quick_check, a table at a time

What is damaged is not given out. It is told to who asks for it, by the log, by `/readyz`, and by `kindcast repair`.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import Connection, func, inspect, select
from sqlalchemy.exc import DBAPIError

from kindcast.server.cloudevents import is_whole
from kindcast.server.errors import RecordDamaged, StoreDamaged
from kindcast.server.store.matches import check_bindings
from kindcast.server.store.postings import DamagedBytes, Postings, unpack
from kindcast.server.store.tables import events, match_lists, posting_pages

__all__ = ["CHECKS", "Check", "Damage", "count_of", "find_damage", "tables_of"]

SHOWN = 5
"""Damaged records that `/readyz` names."""
REMEMBERED = 1_000
CORRUPT = (11, 26)
"""SQLITE_CORRUPT and SQLITE_NOTADB, in the lower byte of an extended code."""
CORRUPT_STATES = ("XX001", "XX002")
"""PostgreSQL: data corrupted, index corrupted."""

_log = logging.getLogger("kindcast.store")


class Damage:
    """What was found damaged in one database. Any thread."""

    def __init__(self, data: object) -> None:
        """`data`: the folder to name."""
        self._data = data
        self._lock = threading.Lock()
        self._records: dict[str, None] = {}
        self.of_file: str | None = None
        """What is wrong with the database itself, so that it cannot be used."""
        self.progress: str | None = None
        """How far the check after the start has come."""

    def note(self, record: str) -> None:
        """A record is damaged. Logged once."""
        with self._lock:
            if record in self._records or len(self._records) >= REMEMBERED:
                return
            self._records[record] = None
        _log.error("damaged: %s; see kindcast repair --data %s", record, self._data)

    def note_file(self, what: str) -> None:
        """The database is damaged."""
        if self.of_file is None:
            self.of_file = (
                f"the database is damaged ({what}): stop the server and see kindcast repair --data {self._data}"
            )
            _log.error("%s", self.of_file)

    @property
    def summary(self) -> str | None:
        """The damaged records, in words; None if there is none."""
        with self._lock:
            if not self._records:
                return None
            shown = ", ".join(list(self._records)[:SHOWN])
            more = ", …" if len(self._records) > SHOWN else ""
            return f"damaged: {shown}{more}; see kindcast repair --data {self._data}"

    def translated(self, error: Exception) -> Exception:
        """What an error of the store means: `StoreDamaged` where the database, or its matches, cannot be read."""
        if isinstance(error, DBAPIError) and _is_corrupt(error.orig):
            self.note_file(str(error.orig))
            return StoreDamaged(self.of_file)
        if isinstance(error, DamagedBytes):
            self.note(str(error))
            return StoreDamaged(f"{error}: kindcast repair says what is damaged")
        if isinstance(error, RecordDamaged):
            self.note(error.record)
        return error


def _is_corrupt(error: BaseException | None) -> bool:
    code = getattr(error, "sqlite_errorcode", None)
    return (code is not None and code & 0xFF in CORRUPT) or getattr(error, "sqlstate", None) in CORRUPT_STATES


# ── everything, piece by piece ────────────────────────────────────────────────────────────────────────────────────────

Check = Callable[[Connection, int, int], tuple[int | None, list[str]]]
"""(connection, after, at most so many rows) → the last key, None where there was none, and what is damaged."""


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
"""What has digests or checksums: its name, its check, its table."""


def count_of(connection: Connection, table: Any) -> int:
    """The rows of a table."""
    count: int = connection.execute(select(func.count()).select_from(table)).scalar_one()
    return count


def tables_of(connection: Connection) -> list[str]:
    """The tables of a SQLite database; none of another one, which has tools of its own."""
    return inspect(connection).get_table_names() if connection.dialect.name == "sqlite" else []


def find_damage(connection: Connection, table: str, at_most: int) -> list[str]:
    """What SQLite finds wrong with a table and its indexes. Reads all of it."""
    quoted = table.replace('"', '""')
    rows = connection.exec_driver_sql(f'PRAGMA quick_check("{quoted}")').scalars().all()
    return [each for each in rows if each != "ok"][:at_most]
