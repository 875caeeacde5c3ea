"""`kindcast` as a later version of it: its tables have one more layout, with a column and a table that are new.

    python -m tests.harness.next_version serve --data …        KINDCAST_TEST_STEP="breaks"

With the variable, servers of this version cannot work with the new layout.
"""

import os
import sys

from sqlalchemy import Column, Connection, Integer, String, Table

from kindcast.server.cli import main
from kindcast.server.store import ledger, tables

__all__ = ["BREAKS", "COLUMN", "TABLE", "VARIABLE"]

VARIABLE, BREAKS = "KINDCAST_TEST_STEP", "breaks"
COLUMN, TABLE = "colour", "colours"


def _colour() -> Column[str]:
    return Column(COLUMN, String, nullable=False, server_default="grey")


def _add_colours(connection: Connection) -> None:
    """The table is there already: missing ones are created first."""
    ledger._add(connection, tables.subscriptions.name, _colour())


def _become_the_next() -> None:
    ledger._STEPS[ledger.LAYOUT] = _add_colours
    ledger.LAYOUT += 1
    if os.environ.get(VARIABLE) == BREAKS:
        ledger.READABLE_FROM = ledger.LAYOUT
    tables.subscriptions.append_column(_colour())
    Table(TABLE, tables.metadata, Column("number", Integer, primary_key=True))


if __name__ == "__main__":
    _become_the_next()
    sys.exit(main())
