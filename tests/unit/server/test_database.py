"""The engines over a database."""

from contextlib import closing
from pathlib import Path

from sqlalchemy import insert, select

from kindcast.server.settings import Settings
from kindcast.server.store.database import COMPILED, Database
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
