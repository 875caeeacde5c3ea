"""From an older layout of the tables to the present one, step by step, in the transaction of the start.

    layout 1 ──▶ 2   ontologies keep their records; declarations; subscriptions are flagged
           2 ──▶ 3   matches have positions, so that some may come late; candidates are parked; operators
           3 ──▶ 4   events are found by type; what a snapshot lacks is noted; deleted subscriptions leave in steps

A step says what a layout was when it was made, apart from `tables`, which only knows the present: a database of any age
takes the same road as those that were migrated when the step was new. Tables that are missing are made before, by
`Database.open`. A start that is killed half-way leaves the older layout, whole.
"""

import logging
from collections.abc import Callable

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Connection,
    Double,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    false,
)
from sqlalchemy.schema import CreateColumn

from server.errors import StoreUnreadable

__all__ = ["LAYOUT", "migrate"]

LAYOUT = 4
"""Of the tables, as this server reads and writes them."""

_log = logging.getLogger("kindcast.store")


def migrate(connection: Connection, layout: int) -> None:
    """Bring the tables from `layout` to `LAYOUT`. Raises `StoreUnreadable` for one that no step leads from."""
    for number in range(layout, LAYOUT):
        if number not in _STEPS:
            break
        _log.info("the database has layout %d: bringing it to layout %d", number, number + 1)
        _STEPS[number](connection)
        layout = number + 1
    if layout != LAYOUT:
        raise StoreUnreadable(f"the database has layout {layout}, this version reads layouts 1 to {LAYOUT}")


def _keep_records(connection: Connection) -> None:
    """Layout 2. The records are NULL until the document has been read again; whom to flag, the next step of the start
    finds out. When a version was last in force was not written down: the active one and those before it take the moment
    of their upload."""
    _add(connection, "ontologies", Column("records", LargeBinary))
    _add(connection, "ontologies", Column("reason", String, nullable=False, server_default="none"))
    _add(connection, "ontologies", Column("relations", JSON, nullable=False, server_default="[]"))
    _add(connection, "ontologies", Column("activated_at", Double))
    connection.exec_driver_sql(
        "UPDATE ontologies SET activated_at = created_at WHERE version <= "
        "(SELECT max(one.version) FROM ontologies AS one WHERE one.name = ontologies.name AND one.active)"
    )
    _add(connection, "subscriptions", Column("flagged", Boolean, nullable=False, server_default=false()))


def _give_positions(connection: Connection) -> None:
    """Layout 3. The position of a match that was never late is the sequence of its event, so the column only changes
    its name, and cursors keep their meaning. Constant time, whatever the number of matches."""
    connection.exec_driver_sql("ALTER TABLE matches RENAME COLUMN sequence TO position")
    _add(connection, "matches", Column("event", BigInteger))
    _add(connection, "subscriptions", Column("undecided", BigInteger, nullable=False, server_default="0"))
    _add(connection, "subscriptions", Column("last_undecided", Double))
    _add(connection, "subscriptions", Column("last_undecided_reason", Text))
    for total in ("parked", "parked_matched", "parked_unmatched", "parked_given_up", "parked_withdrawn"):
        _add(connection, "ledger", Column(total, BigInteger, nullable=False, server_default="0"))


def _index_types(connection: Connection) -> None:
    """Layout 4. Building the index walks over the events once: some seconds a million. Snapshots of before have no
    token, so the first start compiles the subscriptions again."""
    connection.exec_driver_sql("CREATE INDEX IF NOT EXISTS events_type ON events (type, sequence)")
    _add(connection, "ledger", Column("snapshot", String))


_STEPS: dict[int, Callable[[Connection], None]] = {1: _keep_records, 2: _give_positions, 3: _index_types}
"""What leads from a layout to the next one."""


def _add(connection: Connection, table: str, column: Column[object]) -> None:
    """A column more. SQLite and PostgreSQL both do it inside a transaction, without writing the rows again."""
    Table(table, MetaData(), column)
    written = CreateColumn(column).compile(dialect=connection.dialect)
    connection.exec_driver_sql(f"ALTER TABLE {table} ADD COLUMN {written}")
