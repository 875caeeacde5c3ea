"""Databases as older servers left them, for the tests of migrations."""

import time
from typing import Any

from sqlalchemy import Column, Engine, MetaData, Table, insert

from server.store.tables import ledger, metadata

__all__ = ["make_layout_1"]

DROPPED = {
    "ontologies": {"records", "reason", "relations", "activated_at"},
    "subscriptions": {"flagged"},
}
"""Columns that layout 1 did not have; it did not have the table of declarations either."""


def make_layout_1(
    engine: Engine, documents: dict[str, list[str]], trees: dict[str, dict[str, Any]], *, active: int
) -> None:
    """A database of layout 1 with ontologies in Turtle (by name, every version; number `active` is in force), and
    subscriptions by their ids."""
    old = MetaData()
    tables = {name: _without(table, old) for name, table in metadata.tables.items() if name != "declarations"}
    old.create_all(engine)
    with engine.begin() as connection:
        zeros = {column.name: 0 for column in ledger.columns}
        connection.execute(insert(tables["ledger"]).values({**zeros, "id": 1, "layout": 1}))
        for name, versions in documents.items():
            for number, document in enumerate(versions, 1):
                connection.execute(
                    insert(tables["ontologies"]).values(
                        name=name,
                        version=number,
                        sha256=f"{number:064x}",
                        format="turtle",
                        document=document.encode(),
                        report={"name": name},
                        active=number == active,
                        created_at=float(number),
                    )
                )
        for id, tree in trees.items():
            connection.execute(
                insert(tables["subscriptions"]).values(
                    id=id,
                    expression={"where": tree},
                    tree=tree,
                    canonical="",
                    clauses=1,
                    cost=1.0,
                    notes=[],
                    status="active",
                    ticket_hash="",
                    created_at=1.0,
                    expires_at=time.time() + 600,
                    acked=0,
                    created_sequence=0,
                    times_sent=0,
                    times_failed=0,
                    consecutive_errors=0,
                )
            )


def _without(table: Table, old: MetaData) -> Table:
    dropped = DROPPED.get(table.name, set())
    columns = [_copied(column) for column in table.columns if column.name not in dropped]
    return Table(table.name, old, *columns)


def _copied(column: Column[Any]) -> Column[Any]:
    return Column(
        column.name,
        column.type,
        primary_key=column.primary_key,
        autoincrement=column.autoincrement if column.primary_key else "auto",
        nullable=column.nullable,
    )
