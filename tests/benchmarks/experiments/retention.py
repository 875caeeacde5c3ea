"""What it costs PostgreSQL to store an event and to remove it again: partitions that are dropped, with keys in a table
of their own, as the server does it, beside one table from which rows are deleted."""

import random
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, create_engine

from kindcast.server.store import event_days, events, ledger
from kindcast.server.store.event_days import DAY_SECONDS, GRACE_SECONDS, KnownPartition
from kindcast.server.store.matches import MatchCache
from kindcast.server.store.tables import events as table
from kindcast.server.store.tables import insert_rows
from tests.benchmarks.harness.experiment import Axes, Scale, Task
from tests.harness.postgresql import driver_url, running_postgresql

NAME = "retention"
TITLE = "Storing and removing an event on PostgreSQL"
PAPER = ""
PAPER_SHAPE = ""
AXES = Axes("events kept", "processor µs an event", log_x=True)
SEED = 1

KEPT: dict[Scale, tuple[int, ...]] = {"quick": (2_000,), "default": (100_000, 400_000), "full": (100_000, 1_000_000)}
GROUP = 100
"""Events of a transaction."""
DELETED = 2_000
"""Events that one transaction deletes at most, as in the server."""
DAYS = 10
"""Partitions that are kept."""
DEAD = 0.2
"""The share of dead rows at which PostgreSQL's autovacuum begins by default; here VACUUM is called at it."""
CLOCK = 100
"""Ticks of a second in /proc."""


def tasks(scale: Scale) -> Sequence[Task]:
    """Both ways at each number of events."""
    ways = (("one table, rows deleted", False), ("partitions dropped, keys beside", True))
    return [Task(name, n, {"n": n, "parted": parted}) for name, parted in ways for n in KEPT[scale]]


def measure(*, n: int, parted: bool) -> dict[str, Any]:
    """Stores two times `n` events more than are kept, and removes the oldest of them in step. `y` is the processor time
    of the connection's process and `wal_bytes` what it logs, both an event; `longest_removal_ms` the longest
    transaction that removes, `megabytes` what the tables hold in the end."""
    with running_postgresql() as cluster:
        options: dict[str, Any] = {"execution_options": {"matches": MatchCache(), "partition": KnownPartition()}}
        engine = create_engine(driver_url(cluster.new_database()), isolation_level="AUTOCOMMIT", **options)
        with engine.connect() as connection:
            _create(connection, parted)
            rows = _rows(random.Random(SEED))
            _store(connection, rows, 1, n, n // DAYS, parted)
            process = int(connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one())
            began, logged, longest = _processor_seconds(process), _logged(connection), 0.0
            for first in range(n + 1, 3 * n + 1, n // DAYS):
                _store(connection, rows, first, n // DAYS, n // DAYS, parted)
                longest = max(longest, _remove(connection, first - n, n // DAYS, parted))
                if (first - 1) // (n // DAYS) % round(DAYS * DEAD) == 0:
                    connection.exec_driver_sql(f"VACUUM {'event_keys' if parted else 'events'}")
            spent = _processor_seconds(process) - began
            wal = _logged(connection) - logged
            held = connection.exec_driver_sql("SELECT pg_database_size(current_database())").scalar_one()
        engine.dispose()
    return {
        "y": round(spent / (2 * n) * 1e6, 1),
        "wal_bytes": round(wal / (2 * n)),
        "longest_removal_ms": round(longest * 1e3, 1),
        "megabytes": round(int(held) / 1e6),
    }


def _create(connection: Connection, parted: bool) -> None:
    if parted:
        connection.exec_driver_sql("BEGIN")
        event_days.create_tables(connection)
        ledger.begin_ledger(connection)
        connection.exec_driver_sql("COMMIT")
    else:
        table.create(connection)


def _rows(chance: random.Random) -> Iterator[events.EventRow]:
    """Events of 400 bytes with random ids, as most publishers give them; without their numbers and times."""
    while True:
        id = str(uuid.UUID(int=chance.getrandbits(128), version=4))
        body = '{"specversion": "1.0", "id": "' + id + '", "data": {"value": "' + f"{chance.random():<300}" + '"}}'
        digest = f"{chance.getrandbits(128):032x}"
        yield events.EventRow(0, "https://plant.example/sensors", id, "reading", digest, body, 0.0, "v1", 3, None)


def _store(
    connection: Connection, rows: Iterator[events.EventRow], first: int, count: int, a_day: int, parted: bool
) -> None:
    """Stores events in groups, one transaction each."""
    end = first + count
    for start in range(first, end, GROUP):
        group = [
            next(rows)._replace(sequence=number, accepted_at=_accepted_at(number, a_day))
            for number in range(start, min(start + GROUP, end))
        ]
        connection.exec_driver_sql("BEGIN")
        if parted:
            events.insert_events(connection, group)
        else:
            insert_rows(connection, table.name, events.EventRow._fields, group)
        connection.exec_driver_sql("COMMIT")


def _accepted_at(number: int, a_day: int) -> float:
    return 1.7e9 // DAY_SECONDS * DAY_SECONDS + (number - 1) / a_day * DAY_SECONDS


def _remove(connection: Connection, first: int, count: int, parted: bool) -> float:
    """Removes the oldest events. Returns the seconds of the longest transaction."""
    longest = 0.0
    for start in range(first, first + count, DELETED):
        end = min(start + DELETED, first + count)
        began = time.perf_counter()
        connection.exec_driver_sql("BEGIN")
        if parted:
            events.discard_before(connection, end)
        else:
            connection.exec_driver_sql(f"DELETE FROM events WHERE sequence < {end}")
        connection.exec_driver_sql("COMMIT")
        longest = max(longest, time.perf_counter() - began)
    if parted:
        began = time.perf_counter()
        connection.exec_driver_sql("BEGIN")
        assert event_days.drop_expired(connection, _accepted_at(first + count, count) + GRACE_SECONDS)
        connection.exec_driver_sql("COMMIT")
        longest = max(longest, time.perf_counter() - began)
    return longest


def _processor_seconds(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / CLOCK


def _logged(connection: Connection) -> int:
    return int(connection.exec_driver_sql("SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')").scalar_one())
