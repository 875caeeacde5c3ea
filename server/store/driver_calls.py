"""Statements of the publish path as direct calls of the database driver.

SQLAlchemy needs more time for an expression and its values than the database needs to execute it. The statements here
are the same on SQLite and PostgreSQL except for the placeholder of a value.
"""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection

__all__ = ["insert_rows", "mark_of"]


def mark_of(connection: Connection) -> str:
    """Returns the placeholder of a value in a statement: `?` or `%s`."""
    return "?" if connection.dialect.paramstyle == "qmark" else "%s"


def insert_rows(connection: Connection, table: str, columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> None:
    """Inserts rows whose values are in the order of `columns`. Raises `sqlalchemy.exc.DBAPIError`."""
    if rows:
        marks = ", ".join([mark_of(connection)] * len(columns))
        connection.exec_driver_sql(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})", list(rows))
