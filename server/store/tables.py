"""The database schema, in SQLAlchemy Core, for SQLite and PostgreSQL alike.

    ontologies      uploaded documents, every version, and the records read from them. The active versions
                    are the vocabulary after a restart
    declarations    attributes, synonyms, rates and event types that were declared beside them, every version
    subscriptions   the expression as written and as compiled (IRIs, no labels); status, ticket, cursor, counters
    events          accepted events, in the order of their sequence numbers. On PostgreSQL a view: `event_days`
    match_lists     position → the subscriptions with a match there; the cursor of a message is its position
    posting_pages   the same matches by subscription, for blocks of positions; made from the lists in the background
    late            positions of matches that were decided after their event was accepted
    attempts        each webhook attempt, for traces
    parked          (event, subscription): an undecided candidate
    vocabularies    the parts of a version of the vocabulary, while candidates are parked under it
    operators       remote operators, as they were registered
    operator_uses   which subscriptions call which operators
    operator_data   regions, tables and calendar windows that were uploaded for the built-in operators
    learned         the measured cost and selectivity of operators
    leftovers       deleted subscriptions with attempts that are not erased yet
    unsaved         subscriptions that were added, removed or changed since the last snapshot
    meanings        the matching rules under which this database was served, and the effect of each change of them
    ledger          one row: the last commit, the last sequence number, and totals that must add up

Times are float seconds since 1970 UTC. Only the broker's thread writes.
"""

import sqlite3
from collections.abc import Sequence
from itertools import chain
from operator import length_hint
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Connection,
    Double,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    Text,
    UniqueConstraint,
    false,
)
from sqlalchemy.exc import DBAPIError

__all__ = [
    "LENGTH_TOGETHER",
    "attempts",
    "declarations",
    "events",
    "expiry_notices",
    "insert_rows",
    "late",
    "learned",
    "ledger",
    "leftovers",
    "mark_of",
    "match_lists",
    "meanings",
    "metadata",
    "ontologies",
    "operator_data",
    "operator_uses",
    "operators",
    "parked",
    "posting_pages",
    "run_plain",
    "subscriptions",
    "unsaved",
    "vocabularies",
]

metadata = MetaData()

_Number = BigInteger().with_variant(Integer, "sqlite")
"""A 64-bit integer. For SQLite's rowid the type must be named INTEGER, which has 64 bits there."""

_Json = JSON(none_as_null=True)

ontologies = Table(
    "ontologies",
    metadata,
    Column("name", String, nullable=False),
    Column("version", Integer, nullable=False),
    Column("sha256", String, nullable=False),
    Column("format", String, nullable=False),
    Column("document", LargeBinary, nullable=False),
    Column("report", _Json, nullable=False),
    Column("active", Boolean, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("records", LargeBinary),  # records read from the document; NULL: written in an older layout
    Column("reason", String, nullable=False, server_default="none"),
    Column("relations", _Json, nullable=False, server_default="[]"),  # IRIs, sorted
    Column("activated_at", Double),  # when it was last activated; a rollback uses it
    PrimaryKeyConstraint("name", "version"),
)

shared_ontologies = Table(  # the ontologies that all tenants share; only the tenant `default` changes them
    "shared_ontologies",
    metadata,
    Column("name", String, primary_key=True),
)

declarations = Table(
    "declarations",
    metadata,
    Column(
        "kind", String, nullable=False
    ),  # attribute | synonyms | rates | schema | context | code-system | split | reading
    Column("name", String, nullable=False),
    Column("version", Integer, nullable=False),
    Column("sha256", String, nullable=False),  # of the body in canonical form
    Column("body", _Json, nullable=False),
    Column("active", Boolean, nullable=False),
    Column("created_at", Double, nullable=False),
    PrimaryKeyConstraint("kind", "name", "version"),
)

subscriptions = Table(
    "subscriptions",
    metadata,
    Column("number", _Number, primary_key=True, autoincrement=True),
    Column("id", String, nullable=False, unique=True),
    Column("expression", _Json, nullable=False),  # {"expression": text} | {"where": tree} | {"filters": [...]}
    Column("tree", _Json, nullable=False),
    Column("canonical", Text, nullable=False),
    Column("clauses", Integer, nullable=False),
    Column("cost", Double, nullable=False),
    Column("notes", _Json, nullable=False),
    Column("flagged", Boolean, nullable=False, server_default=false()),  # a part has no meaning at present
    Column("status", String, nullable=False),  # active | paused | failing | disabled_by_failures | expired
    Column("status_reason", Text),
    Column("ticket_hash", String, nullable=False),
    Column("sink", Text),
    Column("protocol", String),
    Column("protocolsettings", _Json),
    Column("sinkcredential", _Json),
    Column("secret", String),
    Column("types", _Json),
    Column("source", Text),
    Column("metadata", _Json),
    Column("created_at", Double, nullable=False),
    Column("expires_at", Double, nullable=False),
    Column("acked", _Number, nullable=False, default=0),  # the cursor: acknowledged or delivered up to here
    Column("created_sequence", _Number, nullable=False),  # the last event before its creation; it gets only later ones
    Column("times_sent", _Number, nullable=False, default=0),
    Column("times_failed", _Number, nullable=False, default=0),
    Column("last_success", Double),
    Column("last_failure", Double),
    Column("last_error", Text),
    Column("consecutive_errors", Integer, nullable=False, default=0),
    Column("next_attempt_at", Double),
    Column("undecided", _Number, nullable=False, server_default="0"),  # events that operators finally could not decide
    Column("last_undecided", Double),
    Column("last_undecided_reason", Text),
    Column("last_undecided_kind", String),  # kind of failure; NULL with a reason: from a version without kinds
    Column("created_by", String),  # the key or subject that created it; NULL: there were no keys
    Column("attributes", _Json),  # attributes of the data that are delivered; NULL: all
    Column("old_secret", String),  # the previous secret, which also signs until then
    Column("old_secret_until", Double),
    Column("throttling", Double),  # seconds between two requests to the sink; NULL: none
    sqlite_autoincrement=True,  # numbers are never reused, so that old matches cannot belong to a new subscription
)

events = Table(
    "events",
    metadata,
    Column("sequence", _Number, primary_key=True, autoincrement=False),
    Column("source", Text, nullable=False),
    Column("id", Text, nullable=False),  # followed by U+001F and a revision, if its type declares one
    Column("type", Text, nullable=False),
    Column("digest", String, nullable=False),  # of all but source and id; shows whether a repeated id has another body
    Column("body", Text, nullable=False),  # the CloudEvent as JSON
    Column("accepted_at", Double, nullable=False),  # never less than that of the previous event
    Column("vocabulary_version", String, nullable=False),
    Column("matched", Integer, nullable=False),  # number of subscriptions
    Column("notes", Text),  # JSON list, or NULL for none
    UniqueConstraint("source", "id"),
    Index("events_type", "type", "sequence"),
)

match_lists = Table(
    "match_lists",
    metadata,
    Column("position", _Number, primary_key=True, autoincrement=False),  # from the counter of sequence numbers
    Column("event", _Number),  # the sequence number of the event of a late match; NULL: the position
    Column("size", Integer, nullable=False),
    Column("subscriptions", LargeBinary, nullable=False),  # their numbers: `postings.pack_lists`
    Column("bindings", LargeBinary),  # a compressed JSON list, in the order of the numbers; NULL: no bindings
)

posting_pages = Table(
    "posting_pages",
    metadata,
    Column("block", _Number, nullable=False),  # its first position
    Column("low", _Number, nullable=False),  # the first subscription of the page
    Column("last", _Number, nullable=False),  # the last position of the block
    Column("high", _Number, nullable=False),  # the last subscription
    Column("level", Integer, nullable=False),  # how often blocks were merged into this one
    Column("size", Integer, nullable=False),  # number of matches
    Column("data", LargeBinary, nullable=False),  # `Postings.encoded`
    PrimaryKeyConstraint("block", "low"),
)

late = Table(
    "late",
    metadata,
    Column("position", _Number, primary_key=True, autoincrement=False),
    Column("event", _Number, nullable=False),
    Column("decided_at", Double, nullable=False),  # never less than that of the previous position
    Index("late_event", "event"),
)

corrections = Table(
    "corrections",
    metadata,
    Column("source", Text, nullable=False),
    Column("subject", Text, nullable=False),
    Column("event", _Number, nullable=False),
    Column("withdraws", Boolean, nullable=False),  # whether the event withdraws the subject, or is only about it
    Column("revision", Text),
    Column("withdrawn_by", _Number),  # the event that withdrew this one
    PrimaryKeyConstraint("source", "subject", "event", "withdraws"),
    Index("corrections_event", "event"),
    sqlite_with_rowid=False,
)

retractions = Table(
    "retractions",
    metadata,
    Column("position", _Number, primary_key=True, autoincrement=False),
    Column("event", _Number, nullable=False),  # the withdrawn event; the event of the matches there withdraws it
    Column("source", Text, nullable=False),
    Column("id", Text, nullable=False),
)

parked = Table(
    "parked",
    metadata,
    Column("event", _Number, nullable=False),
    Column("subscription", _Number, nullable=False),
    Column("vocabulary_version", String, nullable=False),
    Column("reason", Text, nullable=False),
    Column("kind", String),  # kind of failure; NULL: from a version without kinds
    Column("tries", Integer, nullable=False),
    Column("parked_at", Double, nullable=False),
    Column("next_try_at", Double),  # NULL: given up
    PrimaryKeyConstraint("event", "subscription"),
    Index("parked_due", "next_try_at"),
    Index("parked_subscription", "subscription"),
    sqlite_with_rowid=False,
)

vocabularies = Table(
    "vocabularies",
    metadata,
    Column("version", String, primary_key=True),
    Column("ontologies", _Json, nullable=False),  # [[name, version], …]
    Column("declarations", _Json, nullable=False),  # stored in full, because all their versions may be deleted
)

operators = Table(
    "operators",
    metadata,
    Column("name", String, primary_key=True),
    Column("body", _Json, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("changed_at", Double, nullable=False),
)

operator_uses = Table(
    "operator_uses",
    metadata,
    Column("operator", String, nullable=False),
    Column("subscription", _Number, nullable=False),
    PrimaryKeyConstraint("operator", "subscription"),
    Index("operator_uses_subscription", "subscription"),
    sqlite_with_rowid=False,
)

operator_data = Table(
    "operator_data",
    metadata,
    Column("kind", String, nullable=False),
    Column("name", String, nullable=False),
    Column("document", LargeBinary, nullable=False),
    Column("changed_at", Double, nullable=False),
    PrimaryKeyConstraint("kind", "name"),
)

learned = Table(
    "learned",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),  # always 1
    Column("records", _Json, nullable=False),
    Column("kept_at", Double, nullable=False),
)

attempts = Table(
    "attempts",
    metadata,
    Column("subscription", _Number, nullable=False),
    Column("sequence", _Number, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("at", Double, nullable=False),
    Column("outcome", String, nullable=False),
    Column("status_code", Integer),
    Column("detail", Text, nullable=False),
    PrimaryKeyConstraint("subscription", "sequence", "attempt"),
    Index("attempts_sequence", "sequence"),
    sqlite_with_rowid=False,
)

leftovers = Table(
    "leftovers",
    metadata,
    Column("subscription", _Number, primary_key=True, autoincrement=False),
)

expiry_notices = Table(
    "expiry_notices",
    metadata,
    Column("subscription", _Number, primary_key=True, autoincrement=False),
    Column("ends_at", Double, nullable=False),  # the end time in the notice
    Column("told_at", Double, nullable=False),
)

unsaved = Table(
    "unsaved",
    metadata,
    Column("number", _Number, primary_key=True, autoincrement=False),
    Column("id", String, nullable=False),
)

meanings = Table(
    "meanings",
    metadata,
    Column("meaning", Integer, primary_key=True, autoincrement=False),  # the number of the rules of matching
    Column("since", Double, nullable=False),  # when a server with these rules was first started here
    Column("impact", _Json),  # effect on the subscriptions; NULL: there were none
)

ledger = Table(
    "ledger",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),  # always 1
    Column("layout", Integer, nullable=False),  # of these tables
    Column("readable_from", Integer, nullable=False, server_default="0"),  # the oldest layout that servers must know
    Column("commits", _Number, nullable=False),  # shows whether a failed commit is on disk
    Column("sequence", _Number, nullable=False),
    Column("accepted", _Number, nullable=False),  # events; accepted = matched + unmatched
    Column("duplicates", _Number, nullable=False),
    Column("matched", _Number, nullable=False),  # events with at least one match
    Column("matches", _Number, nullable=False),  # matches = delivered + pending + dead + discarded
    Column("delivered", _Number, nullable=False),  # acknowledged by a reader, or accepted by a sink
    Column("dead", _Number, nullable=False),  # always 0: dead letters are counted when they are read
    Column("discarded", _Number, nullable=False),  # pending when their subscription or their event was deleted
    # Webhook attempts of deleted subscriptions. Those of the others are counted in their rows.
    Column("attempts_delivered", _Number, nullable=False),
    Column("attempts_failed", _Number, nullable=False),
    # Candidates that an operator had to decide: parked = the four below + those still waiting.
    Column("parked", _Number, nullable=False, server_default="0"),
    Column("parked_matched", _Number, nullable=False, server_default="0"),
    Column("parked_unmatched", _Number, nullable=False, server_default="0"),
    Column("parked_given_up", _Number, nullable=False, server_default="0"),
    Column("parked_withdrawn", _Number, nullable=False, server_default="0"),  # subscription or event was deleted
    Column("snapshot", String),  # the token of the snapshot that `unsaved` belongs to; NULL: none
    Column("kept_from", _Number, nullable=False, server_default="0"),  # matches at earlier positions are deleted
    Column("shown_from", _Number, nullable=False, server_default="0"),  # on PostgreSQL, all earlier events are hidden
    Column("folded_through", _Number, nullable=False, server_default="0"),  # the last position in a block
    Column("folds", _Number, nullable=False, server_default="0"),  # number of changes of the blocks
    # The table of layout 5 still has the matches between these positions. It is deleted when they are 0.
    Column("older_from", _Number, nullable=False, server_default="0"),
    Column("older_through", _Number, nullable=False, server_default="0"),
)


# ── statements of publishing as plain calls of the driver ─────────────────────────────────────────────────────────────
#
# SQLAlchemy needs more time for an expression and its values than the database needs to execute it. The statements here
# are the same on SQLite and PostgreSQL except for the placeholder of a value.


def mark_of(connection: Connection) -> str:
    """Returns the placeholder of a value in a statement: `?` or `%s`."""
    return "?" if connection.dialect.paramstyle == "qmark" else "%s"


def run_plain(connection: Connection, statement: str, rows: Sequence[tuple[Any, ...]] = ((),)) -> None:
    """Executes a statement without a result, for each of the rows of values. SQLite's driver is called directly,
    because SQLAlchemy's own part of a call takes longer than a short statement. Raises `sqlalchemy.exc.DBAPIError`."""
    if connection.dialect.name != "sqlite":
        connection.exec_driver_sql(statement, rows[0] if len(rows) == 1 else list(rows)).close()
        return
    driver: Any = connection.connection.dbapi_connection
    try:
        if len(rows) == 1:
            driver.execute(statement, rows[0]).close()
        else:
            driver.executemany(statement, rows).close()
    except sqlite3.Error as error:
        raise DBAPIError.instance(statement, None, error, sqlite3.Error, dialect=connection.dialect) from error


ROWS_TOGETHER = 64
VALUES_TOGETHER = 999
LENGTH_TOGETHER = 1 << 17
"""How many rows and values SQLite gets in one statement at most, and how long these texts may be together. More rows
gain nothing. The values of the last call stay in memory with each prepared statement."""


def insert_rows(connection: Connection, table: str, columns: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> None:
    """Inserts rows whose values are in the order of `columns`. Raises `sqlalchemy.exc.DBAPIError`.

    SQLite gets many rows in one statement. Its driver releases the GIL for each step, and with `executemany` each row
    is a step, which waits for a turn of a thread that computes."""
    if not rows:
        return
    one = _insertion(connection, table, columns, 1)
    if connection.dialect.name != "sqlite":
        run_plain(connection, one, rows)
        return
    most, start = min(ROWS_TOGETHER, VALUES_TOGETHER // len(columns)), 0
    while left := len(rows) - start:
        count = 1 << min(most, left).bit_length() - 1  # powers of two: few statements, which stay prepared
        some = rows[start : start + count]
        values = tuple(chain.from_iterable(some))
        if sum(map(length_hint, values)) > LENGTH_TOGETHER:  # 0 for a value without a length
            run_plain(connection, one, some)
        else:
            run_plain(connection, _insertion(connection, table, columns, count), [values])
        start += count


def _insertion(connection: Connection, table: str, columns: Sequence[str], rows: int) -> str:
    marks = f"({', '.join([mark_of(connection)] * len(columns))})"
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES {', '.join([marks] * rows)}"
