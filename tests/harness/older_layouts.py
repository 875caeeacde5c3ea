"""Databases as older servers left them, for the tests of migrations."""

import json
import time
from typing import Any

from sqlalchemy import Column, Engine, MetaData, Table, insert

from kindcast.server.cloudevents import digest_of
from kindcast.server.security.keys import hash_of
from kindcast.server.store.older_matches import matches
from kindcast.server.store.tables import metadata

__all__ = ["DROPPED", "DROPPED_BY_2", "make_layout_1", "make_layout_2", "make_layout_3"]

TOTALS = {"parked", "parked_matched", "parked_unmatched", "parked_given_up", "parked_withdrawn"}
TABLES_OF_6 = {"match_lists", "posting_pages"}
ADDED_BY_6 = {"kept_from", "shown_from", "folded_through", "folds", "older_from", "older_through", "readable_from"}
"""Columns of the ledger that layout 5 did not have; `shown_from` is of layout 10, `readable_from` of layout 11."""
TABLES_OF_4 = {"leftovers", "meanings", "operator_data", "unsaved", *TABLES_OF_6}
TABLES_OF_3 = {"late", "parked", "vocabularies", "operators", "operator_uses", "learned", *TABLES_OF_4}
ADDED_BY_8 = {"attributes", "old_secret", "old_secret_until", "throttling"}
"""Columns of subscriptions that layout 7 did not have; the last is of layout 9."""
ADDED_BY_5 = {"parked": {"kind"}, "subscriptions": {"last_undecided_kind", "created_by", *ADDED_BY_8}}
"""Columns that layout 4 did not have."""

DROPPED_BY_3 = {**ADDED_BY_5, "ledger": {"snapshot", *ADDED_BY_6}}
"""Columns that layout 3 did not have; nor the tables of layout 4, and no index of event types."""

DROPPED_BY_2 = {
    "subscriptions": {"undecided", "last_undecided", "last_undecided_reason", *ADDED_BY_5["subscriptions"]},
    "matches": {"event"},
    "ledger": {*TOTALS, *DROPPED_BY_3["ledger"]},
}
"""Columns that layout 2 did not have; nor the tables of layout 3."""

DROPPED = {
    **DROPPED_BY_2,
    "ontologies": {"records", "reason", "relations", "activated_at"},
    "subscriptions": {"flagged", *DROPPED_BY_2["subscriptions"]},
}
"""Columns that layout 1 did not have; it did not have the table of declarations either."""

TABLES = {**metadata.tables, "matches": matches}
"""With the one that layout 6 does not have any more."""

RENAMED = {("matches", "position"): "sequence"}
"""What they were called up to layout 2."""


def make_layout_1(
    engine: Engine, documents: dict[str, list[str]], trees: dict[str, dict[str, Any]], *, active: int
) -> None:
    """A database of layout 1 with ontologies in Turtle (by name, every version; number `active` is in force), and
    subscriptions by their ids."""
    old = MetaData()
    later = {"declarations", *TABLES_OF_3}
    tables = {name: _without(table, old, DROPPED) for name, table in TABLES.items() if name not in later}
    old.create_all(engine)
    with engine.begin() as connection:
        zeros = {column.name: 0 for column in tables["ledger"].columns}
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


def make_layout_2(engine: Engine, events: int, *, acked: int) -> None:
    """A database of layout 2 with a subscription "s" that got each of so many events and acknowledged the first
    `acked`."""
    old = MetaData()
    tables = {name: _without(table, old, DROPPED_BY_2) for name, table in TABLES.items() if name not in TABLES_OF_3}
    old.create_all(engine)
    counted = {"commits": events, "sequence": events, "accepted": events, "matched": events, "matches": events}
    zeros = {column.name: 0 for column in tables["ledger"].columns}
    with engine.begin() as connection:
        connection.execute(
            insert(tables["ledger"]).values({**zeros, **counted, "delivered": acked, "id": 1, "layout": 2})
        )
        connection.execute(
            insert(tables["subscriptions"]).values(
                id="s",
                number=1,
                expression={"expression": "n >= 0"},
                tree={">=": ["n", 0]},
                canonical="n >= 0",
                clauses=1,
                cost=1.0,
                notes=[],
                flagged=False,
                status="active",
                ticket_hash=hash_of("ticket"),
                created_at=1.0,
                expires_at=time.time() + 600,
                acked=acked,
                created_sequence=0,
                times_sent=0,
                times_failed=0,
                consecutive_errors=0,
            )
        )
        for number in range(1, events + 1):
            event = {"specversion": "1.0", "id": str(number), "source": "s", "type": "t", "data": {"n": number}}
            body = json.dumps(event)
            connection.execute(
                insert(tables["events"]).values(
                    sequence=number,
                    source="s",
                    id=str(number),
                    type="t",
                    digest=digest_of(body),
                    body=body,
                    accepted_at=time.time(),
                    vocabulary_version="older",
                    matched=1,
                )
            )
            connection.execute(insert(tables["matches"]).values(subscription=1, sequence=number))


def make_layout_3(engine: Engine, types: list[str]) -> None:
    """A database of layout 3 with an event of each of the `types`."""
    old = MetaData()
    tables = {name: _without(table, old, DROPPED_BY_3, {}) for name, table in TABLES.items() if name not in TABLES_OF_4}
    old.create_all(engine)
    zeros = {column.name: 0 for column in tables["ledger"].columns}
    with engine.begin() as connection:
        counted = {"id": 1, "layout": 3, "sequence": len(types), "accepted": len(types)}
        connection.execute(insert(tables["ledger"]).values({**zeros, **counted}))
        for number, type in enumerate(types, 1):
            body = json.dumps({"specversion": "1.0", "id": str(number), "source": "s", "type": type})
            row = {"sequence": number, "source": "s", "id": str(number), "type": type, "matched": 0}
            row |= {"body": body, "digest": digest_of(body), "accepted_at": time.time(), "vocabulary_version": "older"}
            connection.execute(insert(tables["events"]).values(row))


def _without(
    table: Table, old: MetaData, missing: dict[str, set[str]], renamed: dict[tuple[str, str], str] = RENAMED
) -> Table:
    dropped = missing.get(table.name, set())
    columns = [_copied(column, renamed) for column in table.columns if column.name not in dropped]
    return Table(table.name, old, *columns)


def _copied(column: Column[Any], renamed: dict[tuple[str, str], str]) -> Column[Any]:
    return Column(
        renamed.get((column.table.name, column.name), column.name),
        column.type,
        primary_key=column.primary_key,
        autoincrement=column.autoincrement if column.primary_key else "auto",
        nullable=column.nullable,
    )
