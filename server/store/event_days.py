"""Events on PostgreSQL: a partition for each day, dropped when the retention of all its events has ended.

    event_log    the events, partitioned by `accepted_at`, which never decreases with their numbers
    event_keys   source and id of each event → its number: by these repeated events are found. A unique index of
                 `event_log` would have to contain `accepted_at`
    events       a view: the events of `event_log` whose retention has not ended, and those that late matches need

        retention ──▶ `kept_from` in the ledger grows, keys are deleted ──▶ the view hides the events
        no event of a partition is needed, for an hour at least ──▶ the partition is dropped

Everything else reads the view. On SQLite, `events` is the table itself: this module is for PostgreSQL only, except for
`create_tables` and `convert`.

A partition is attached beside readers and writers. To drop one, PostgreSQL needs the table for itself for a moment. It
waits only `LOCK_MILLISECONDS` for readers, because all others wait behind it; then it is tried again at the next sweep.
"""

import logging
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    FromClause,
    MetaData,
    Table,
    Text,
    delete,
    exists,
    inspect,
    select,
)
from sqlalchemy.exc import DBAPIError

from kindcast.server.store.tables import events, insert_rows, late, metadata

__all__ = [
    "DAY_SECONDS",
    "KnownPartition",
    "convert",
    "create_tables",
    "drop_expired",
    "event_at",
    "find_expired",
    "find_sequences",
    "has_days",
    "hide",
    "hold",
    "insert",
    "partitions",
]

_log = logging.getLogger("kindcast.store")

DAY_SECONDS = 86_400
MOST_DAYS = 31
"""The longest partition, in days."""
PARTS = 10
"""A new partition has as many days as this part of the time since the first event: a day, or more if events are kept
for more than 20 days. A query by number looks into every partition, so there must not be hundreds."""
GRACE_SECONDS = 3_600.0
"""How long a partition stands after the retention of its last event. A reader's snapshot from before sees its events,
and a group that was late may still write into it if the retention is very short."""
LOCK_MILLISECONDS = 100
"""How long publishers may wait for a partition to be dropped."""
LOCK_NOT_AVAILABLE = "55P03"
"""PostgreSQL: the lock did not become free in time."""

keys = Table(
    "event_keys",
    MetaData(),
    Column("source", Text, primary_key=True),
    Column("id", Text, primary_key=True),
    Column("sequence", BigInteger, nullable=False, index=True),
)

_COLUMNS = (
    "sequence bigint NOT NULL, source text NOT NULL, id text NOT NULL, type text NOT NULL, digest varchar NOT NULL,"
    " body text NOT NULL, accepted_at double precision NOT NULL, vocabulary_version varchar NOT NULL,"
    " matched integer NOT NULL, notes text"
)
_LOG = f"CREATE TABLE event_log ({_COLUMNS}) PARTITION BY RANGE (accepted_at)"
_VIEW = (
    "CREATE VIEW events AS SELECT sequence, source, id, type, digest, body, accepted_at, vocabulary_version, matched,"
    " notes FROM event_log"
    " WHERE sequence >= (SELECT shown_from FROM ledger)"
    " AND (sequence >= (SELECT kept_from FROM ledger)"
    " OR EXISTS (SELECT FROM late WHERE late.event = event_log.sequence))"
)
"""The first condition follows from the second one. An index can use it, so that readers do not pass over the hidden
events one by one."""
_BEFORE = "events_before"
"""The partition with the events of a database of an older layout."""


class Partition(NamedTuple):
    """A partition with the events that were accepted from `start` on and before `end`."""

    name: str
    start: float
    end: float


@dataclass(slots=True)
class KnownPartition:
    """The bounds of the partition into which a writing connection last wrote: its option `partition`. It must be
    forgotten when a transaction or a part of it is undone, which may have created the partition."""

    start: float = 0.0
    end: float = 0.0

    def forget(self) -> None:
        self.start = self.end = 0.0


def has_days(connection: Connection) -> bool:
    """Whether the events of this database are in partitions."""
    return connection.dialect.name == "postgresql"


# ── tables ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def create_tables(connection: Connection) -> None:
    """Creates the missing tables of a database, except for those of `servers`. Events of an older layout stay in one
    table until `convert`."""
    if not has_days(connection):
        metadata.create_all(connection)
        return
    metadata.create_all(connection, tables=[each for each in metadata.sorted_tables if each is not events])
    if not inspect(connection).has_table(events.name):
        connection.exec_driver_sql(_LOG)
        keys.create(connection)
        connection.exec_driver_sql(_VIEW)


def convert(connection: Connection) -> None:
    """The migration to layout 10: the table of events becomes the first partition. On SQLite it stays as it is. Cost on
    PostgreSQL: two scans of the events, and the indexes of their keys."""
    if not has_days(connection):
        return
    for each in inspect(connection).get_unique_constraints(events.name):
        connection.exec_driver_sql(f'ALTER TABLE events DROP CONSTRAINT "{each["name"]}"')
    connection.exec_driver_sql(f"ALTER TABLE events RENAME TO {_BEFORE}")
    connection.exec_driver_sql(_LOG)
    connection.exec_driver_sql(f"CREATE TABLE event_keys AS SELECT source, id, sequence FROM {_BEFORE}")
    connection.exec_driver_sql("ALTER TABLE event_keys ALTER sequence SET NOT NULL, ADD PRIMARY KEY (source, id)")
    for index in keys.indexes:
        index.create(connection)
    bounds = connection.exec_driver_sql(f"SELECT min(accepted_at), max(accepted_at) FROM {_BEFORE}").one()
    if bounds[0] is None:
        connection.exec_driver_sql(f"DROP TABLE {_BEFORE}")
    else:
        _attach(connection, Partition(_BEFORE, _midnight(bounds[0]), _midnight(bounds[1]) + DAY_SECONDS))
    connection.exec_driver_sql(_VIEW)


def hold(connection: Connection) -> None:
    """Keeps all partitions until the transaction ends, for a reader of everything."""
    if has_days(connection):
        connection.exec_driver_sql("LOCK TABLE event_log IN ACCESS SHARE MODE")


# ── writing ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def insert(connection: Connection, columns: Sequence[str], rows: Sequence[Any]) -> None:
    """Stores new events, in the order of their numbers, with their keys. `columns` are those of a row, which is a named
    tuple. Must run in a group, or alone."""
    if not rows:
        return
    known = connection.get_execution_options().get("partition") or KnownPartition()
    for each in rows:
        if not known.start <= each.accepted_at < known.end:
            found = _prepared(connection, each.accepted_at)
            known.start, known.end = found.start, found.end
    insert_rows(connection, "event_log", columns, rows)
    connection.exec_driver_sql(
        "INSERT INTO event_keys (source, id, sequence) SELECT * FROM unnest(%s::text[], %s::text[], %s::bigint[])",
        ([each.source for each in rows], [each.id for each in rows], [each.sequence for each in rows]),
    )


def _prepared(connection: Connection, at: float) -> Partition:
    """Returns the partition for events that are accepted at this time. Creates it if there is none."""
    there = partitions(connection)
    found = next((each for each in there if each.start <= at < each.end), None)
    if found is None:
        found = _next_partition(there, at)
        connection.exec_driver_sql(f"CREATE TABLE {found.name} (LIKE event_log)")
        connection.exec_driver_sql(f"ALTER TABLE {found.name} ADD PRIMARY KEY (sequence)")
        connection.exec_driver_sql(f"CREATE INDEX {found.name}_type ON {found.name} (type, sequence)")
        _attach(connection, found)
    return found


def _next_partition(there: Sequence[Partition], at: float) -> Partition:
    """Returns the partition to create for the time `at`, which none of those that are there has."""
    start = _midnight(at)
    days = int(at - there[0].start) // DAY_SECONDS // PARTS if there else 1
    end = start + DAY_SECONDS * min(MOST_DAYS, max(1, days))
    end = min([end, *(each.start for each in there if each.start > at)])
    return Partition(f"events_{datetime.fromtimestamp(start, UTC):%Y%m%d}", start, end)


def _attach(connection: Connection, partition: Partition) -> None:
    connection.exec_driver_sql(
        f"ALTER TABLE event_log ATTACH PARTITION {partition.name}"
        f" FOR VALUES FROM ({partition.start!r}) TO ({partition.end!r})"
    )


def _midnight(at: float) -> float:
    """Returns the beginning of a day, in UTC."""
    return float(at // DAY_SECONDS * DAY_SECONDS)


# ── retention ───────────────────────────────────────────────────────────────────────────────────────────────────────


def hide(connection: Connection, number: int) -> None:
    """Called when the retention of all events below a number has ended, and matches before it are deleted."""
    connection.exec_driver_sql(
        "UPDATE ledger SET shown_from = least(%s, (SELECT min(event) FROM late WHERE event >= shown_from))", (number,)
    )
    unneeded = ~exists().where(late.c.event == keys.c.sequence)
    connection.execute(delete(keys).where(keys.c.sequence < number, unneeded))


def find_expired(connection: Connection, since: float) -> str | None:
    """Returns a partition that may be dropped, because the retention of its events ended before `since`."""
    for each in partitions(connection):
        if each.end > since - GRACE_SECONDS:
            return None
        first, last = connection.exec_driver_sql(f"SELECT min(sequence), max(sequence) FROM {each.name}").one()
        if first is None or not _is_needed(connection, first, last):
            return each.name
    return None


def _is_needed(connection: Connection, first: int, last: int) -> bool:
    """Whether there is an event between these numbers that is not hidden."""
    shown_from, kept_from = connection.exec_driver_sql("SELECT shown_from, kept_from FROM ledger").one()
    if last < shown_from or last >= kept_from:
        return bool(last >= kept_from)
    found = connection.exec_driver_sql("SELECT FROM late WHERE event BETWEEN %s AND %s LIMIT 1", (first, last))
    return found.first() is not None


def drop_expired(connection: Connection, since: float) -> bool:
    """Drops a partition, unless it is read now. Returns whether it did. Until the transaction ends, nobody reads or
    writes events."""
    name = find_expired(connection, since)
    if name is None:
        return False
    try:
        with connection.begin_nested():
            connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{LOCK_MILLISECONDS}ms'")
            connection.exec_driver_sql(f"DROP TABLE {name}")
            connection.exec_driver_sql("SET LOCAL lock_timeout TO DEFAULT")
    except DBAPIError as error:
        if getattr(error.orig, "sqlstate", None) != LOCK_NOT_AVAILABLE:
            raise
        _log.info("the old events of %s are read now: it will be dropped later", name)
        return False
    _log.info("dropped the old events of %s", name)
    return True


# ── reading ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def find_sequences(connection: Connection, source: str, ids: Iterable[str]) -> list[int]:
    """Returns the numbers of the events of a source that have one of these ids."""
    query = "SELECT sequence FROM event_keys WHERE source = %s AND id = ANY(%s)"
    return list(connection.exec_driver_sql(query, (source, list(ids))).scalars())


def event_at(sequence: ColumnElement[int]) -> FromClause:
    """Returns the event with the number in another column, for a join. PostgreSQL does not know that only one partition
    has it: for a page of messages, it would rather read all events than look into each partition for each message."""
    return select(events).where(events.c.sequence == sequence).limit(1).lateral("event")


_PARTITIONS = (
    "SELECT relname, pg_get_expr(relpartbound, pg_class.oid) FROM pg_inherits"
    " JOIN pg_class ON pg_class.oid = inhrelid WHERE inhparent = 'event_log'::regclass"
)
_BOUNDS = re.compile(r"FROM \('(.+)'\) TO \('(.+)'\)")


def partitions(connection: Connection) -> list[Partition]:
    """Returns the partitions, oldest first."""
    found = []
    for name, bounds in connection.exec_driver_sql(_PARTITIONS):
        if (said := _BOUNDS.search(bounds or "")) is not None:  # without a lock, it may just have been dropped
            found.append(Partition(name, float(said[1]), float(said[2])))
    return sorted(found, key=lambda each: each.start)
