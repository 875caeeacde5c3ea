"""The engines over a database."""

import asyncio
import errno
import fcntl
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from sqlalchemy import Connection, insert, select
from sqlalchemy.exc import IntegrityError, OperationalError

from kindcast.server.cloudevents import digest_of
from kindcast.server.errors import StoreUnavailable, StoreUnreadable
from kindcast.server.settings import Settings
from kindcast.server.store import integrity, ledger
from kindcast.server.store.database import COMPILED, Database
from kindcast.server.store.events import EventRow, insert_events
from kindcast.server.store.integrity import Damage, check_everything
from kindcast.server.store.tables import LENGTH_TOGETHER, insert_rows, operators


def test_statements_are_compiled_once_for_all_databases(tmp_path: Path) -> None:
    """By the writer of the first; readers and later databases compile none, and have their own rows and values."""
    seen = []
    for name in ("one", "two"):
        with closing(Database(Settings(data=tmp_path / name))) as database, database.open() as connection:
            with connection.begin():
                row = {"name": name, "body": {"url": name}, "created_at": 0.0, "changed_at": 0.0}
                connection.execute(insert(operators).values(row))
                connection.execute(select(operators)).all()
            compiled = len(COMPILED)
            (found,) = database.read(lambda connection: connection.execute(select(operators)).all())
            assert (found.name, found.body) == (name, {"url": name})
            seen += [compiled, len(COMPILED)]
    assert seen[0] > 0
    assert len(set(seen)) == 1


def test_folder_that_cannot_be_locked_is_not_called_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a network share without locks: there is no other server that somebody could stop."""

    def refuse(file: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    refused = pytest.raises(StoreUnreadable, match="cannot be locked: No locks available")
    with closing(Database(Settings(data=tmp_path))) as database, refused:
        database.open()


def test_check_of_all_data_goes_on_when_the_database_can_be_reached_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One read in two fails, as while PostgreSQL is restarted; nothing is left out."""
    monkeypatch.setattr(integrity, "AWAY_PAUSE_SECONDS", 0.0)
    damage, calls = Damage("kindcast check"), 0
    with closing(Database(Settings(data=tmp_path))) as database, database.open() as connection:
        with connection.begin():
            ledger.open_ledger(connection)

        async def read(work: Callable[[Connection], object]) -> object:
            nonlocal calls
            calls += 1
            if calls % 2:
                raise StoreUnavailable
            return database.read(work)

        asyncio.run(check_everything(read, damage, 0.0))
    assert damage.progress == "0 records were checked"
    assert calls > 2


def test_check_that_fails_does_not_seem_to_go_on(caplog: pytest.LogCaptureFixture) -> None:
    damage = Damage("kindcast check")

    async def read(work: Callable[[Connection], object]) -> object:
        raise ValueError("an error of the check itself")

    asyncio.run(check_everything(read, damage, 0.0))
    assert damage.progress == "the check stopped early because of an error: see the log of the server"
    assert "an error of the check itself" in caplog.text


def test_check_goes_on_when_a_table_of_an_older_layout_is_dropped(tmp_path: Path) -> None:
    """As after an upgrade, when the server has moved what was in it."""
    damage = Damage("kindcast repair")
    with closing(Database(Settings(data=tmp_path))) as database, database.open() as connection:
        with connection.begin():
            ledger.open_ledger(connection)
            connection.exec_driver_sql("CREATE TABLE matches (position INTEGER)")

        async def read(work: Callable[[Connection], object]) -> object:
            found = database.read(work)
            with connection.begin():
                connection.exec_driver_sql("DROP TABLE IF EXISTS matches")
            return found

        asyncio.run(check_everything(read, damage, 0.0))
    assert damage.progress == "0 records were checked"


def test_check_of_all_data_ends_while_events_are_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each piece of the check is followed by as many new events. They are not followed, but the old ones are checked:
    one of them is damaged."""
    monkeypatch.setattr(integrity, "ROWS_AT_ONCE", 10)
    damage, stored = Damage("kindcast check"), 0
    with closing(Database(Settings(data=tmp_path))) as database, database.open() as connection:
        with connection.begin():
            ledger.open_ledger(connection)

        def store(count: int) -> None:
            nonlocal stored
            rows = [_event(stored + number, damaged=stored + number == 15) for number in range(1, count + 1)]
            stored += count
            with connection.begin():
                insert_events(connection, rows)
                ledger.count(connection, sequence=stored, more={})

        async def read(work: Callable[[Connection], object]) -> object:
            assert stored < 1_000, "the check does not end"
            found = database.read(work)
            store(10)
            return found

        store(20)
        asyncio.run(check_everything(read, damage, 0.0))
    assert damage.summary is not None
    assert "event 15" in damage.summary
    assert damage.progress is not None
    assert damage.progress.endswith("records were checked")


def test_errors_of_plain_statements_are_those_of_sqlalchemy(tmp_path: Path) -> None:
    """One row or many: a broken rule of a table, a table that is not there, and a lock that another program has."""
    settings = Settings(data=tmp_path, busy_timeout_seconds=0.05)
    with closing(Database(settings)) as database, database.open() as connection:
        with connection.begin():
            insert_events(connection, [_event(1, damaged=False), _event(2, damaged=False)])
            with pytest.raises(IntegrityError, match="UNIQUE"):
                insert_events(connection, [_event(1, damaged=False)])
            with pytest.raises(IntegrityError, match="UNIQUE"):
                insert_events(connection, [_event(3, damaged=False), _event(2, damaged=False)])
            with pytest.raises(OperationalError, match="no such table"):
                insert_rows(connection, "nowhere", ("a",), [(1,)])
        with closing(sqlite3.connect(tmp_path / "kindcast.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(OperationalError, match="locked"):
                connection.begin()


@pytest.mark.parametrize("count", [0, 1, 2, 63, 64, 65, 200])
@pytest.mark.parametrize("length", [10, 5_000], ids=["small", "large"])
def test_any_number_of_rows_is_inserted_in_order(tmp_path: Path, count: int, length: int) -> None:
    """In statements with many rows, or with one row each if they are large."""
    rows = [(number, f"{number} " * length, None if number % 3 else number / 2) for number in range(count)]
    with closing(Database(Settings(data=tmp_path))) as database, database.open() as connection, connection.begin():
        connection.exec_driver_sql("CREATE TABLE numbered (place INTEGER PRIMARY KEY, number, name, half)")
        insert_rows(connection, "numbered", ("number", "name", "half"), rows)
        found = connection.exec_driver_sql("SELECT number, name, half FROM numbered ORDER BY place").all()
    assert list(map(tuple, found)) == rows


@pytest.mark.parametrize("length", [10, 100_000], ids=["small", "large"])
def test_inserting_many_rows_takes_few_steps_of_the_driver(tmp_path: Path, length: int) -> None:
    """Each step releases the GIL. A row with a large value has a step of its own, because the values of a statement
    stay in memory with it."""
    steps: list[str] = []
    with closing(Database(Settings(data=tmp_path))) as database, database.open() as connection, connection.begin():
        connection.exec_driver_sql("CREATE TABLE named (name)")
        driver: Any = connection.connection.dbapi_connection
        driver.set_trace_callback(steps.append)
        insert_rows(connection, "named", ("name",), [("x" * length,)] * 100)
    inserting = sum(step.startswith("INSERT INTO named") for step in steps)
    assert inserting == (100 if length > LENGTH_TOGETHER // 64 else 3)


def _event(sequence: int, *, damaged: bool) -> EventRow:
    body = msgspec.json.encode({"data": {"n": sequence}}).decode()
    digest = digest_of(body)
    assert digest is not None
    return EventRow(sequence, "/s", str(sequence), "t", digest[::-1] if damaged else digest, body, 0.0, "v", 0, None)
