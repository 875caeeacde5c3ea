"""The engines over a database."""

import asyncio
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import Connection, insert, select

from kindcast.server.errors import StoreUnavailable
from kindcast.server.settings import Settings
from kindcast.server.store import integrity
from kindcast.server.store.database import COMPILED, Database
from kindcast.server.store.integrity import Damage, check_everything
from kindcast.server.store.tables import operators


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


def test_check_of_all_data_goes_on_when_the_database_can_be_reached_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One read in two fails, as while PostgreSQL is restarted; nothing is left out."""
    monkeypatch.setattr(integrity, "AWAY_PAUSE_SECONDS", 0.0)
    damage, calls = Damage("kindcast check"), 0
    with closing(Database(Settings(data=tmp_path))) as database, database.open():

        async def read(work: Callable[[Connection], object]) -> object:
            nonlocal calls
            calls += 1
            if calls % 2:
                raise StoreUnavailable
            return database.read(work)

        asyncio.run(check_everything(read, damage, 0.0))
    assert damage.progress == "0 records were checked"
    assert calls > 2
