"""The ledger: one row with the end of the log, and totals that must add up.

    accepted = matched + unmatched        events
    matches  = delivered + pending + dead + discarded        pairs of event and subscription
    parked   = matched + unmatched + given up + withdrawn + waiting        such pairs that an operator had to decide

`commits` grows by one with each group. After a commit whose answer was lost, it shows whether the group is on disk.
"""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Connection,
    Double,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    false,
    func,
    insert,
    inspect,
    select,
    update,
)
from sqlalchemy.exc import DBAPIError
from sqlalchemy.schema import CreateColumn

from kindcast.server.errors import StoreInUse, StoreUnreadable
from kindcast.server.store import event_days, older_matches, servers
from kindcast.server.store.deliveries import is_dead
from kindcast.server.store.matches import count_waiting
from kindcast.server.store.tables import events, late, ledger, mark_of, parked, run_plain, subscriptions

__all__ = [
    "FITS_FROM",
    "LAYOUT",
    "PACKED_FROM",
    "Totals",
    "begin_ledger",
    "check_readable",
    "read_totals",
    "readable_from",
    "uncounted",
]


# Migrations from older layouts of the tables to the present one, step by step, in the transaction of the start.
#
#     layout 1 ──▶ 2   ontologies keep their records; declarations; subscriptions are flagged
#            2 ──▶ 3   matches have positions, so that some may come late; candidates are parked; operators
#            3 ──▶ 4   events are found by type; what a snapshot lacks is noted; deleted subscriptions leave in steps
#            4 ──▶ 5   what is undecided has the kind of its failure
#            5 ──▶ 6   matches are packed; those that are there move while the server runs: `older_matches`
#            6 ──▶ 7   subscriptions know which key made them
#            7 ──▶ 8   subscriptions choose their payload, and may have two secrets
#            8 ──▶ 9   subscriptions may be throttled
#            9 ──▶ 10  on PostgreSQL, events are in partitions, and their keys in a table of their own
#           10 ──▶ 11  the ledger has the oldest layout whose servers can use the tables; each server stores its own
#
# A step contains the layout of its time and does not use `tables`, which has only the present layout. So a database of
# any age is migrated in the same way as when the step was new. Missing tables are created before, by `Database.open`. A
# start that is killed in between leaves the older layout unchanged.

LAYOUT = 11
"""The layout of the tables that this server reads and writes."""
READABLE_FROM = 11
"""The oldest layout whose servers can work with tables of `LAYOUT`. It stays as it is if a step only adds tables,
and columns that have a default, in constant time: then servers of both layouts run beside each other. Any other step
must raise it to the new layout; then all servers must stop before it. A step that needs time, such as an index of all
events, is divided: what is large is done in the background, as in `older_matches`."""
PACKED_FROM = 6
"""The first layout in which matches are packed, with checksums."""
FITS_FROM = 11
"""The first layout in which the ledger has `readable_from`."""

MIGRATION_SECONDS = 60.0
"""How long a start beside other servers tries to change the tables."""
LOCK_MILLISECONDS = 500
"""How long the other servers may wait while this one waits for the tables."""
LOCK_PAUSE_SECONDS = 2.0
TABLES_ARE_USED = ("55P03", "40P01")
"""PostgreSQL: the lock did not become free in time; there was a deadlock."""

_log = logging.getLogger("kindcast.store")


def migrate(connection: Connection, layout: int) -> None:
    """Migrates the tables from `layout` to `LAYOUT`. Raises `StoreUnreadable` if there is no step from a layout."""
    for number in range(layout, LAYOUT):
        if number not in _STEPS:
            break
        _log.info("the database has layout %d: converting it to layout %d", number, number + 1)
        _STEPS[number](connection)
        layout = number + 1
    if layout != LAYOUT:
        raise StoreUnreadable(f"the database has layout {layout}, this version reads layouts 1 to {LAYOUT}")


def _keep_records(connection: Connection) -> None:
    """Layout 2. The records are NULL until the document has been read again. The next step of the start determines
    which subscriptions are flagged. The time of the last activation of a version was not stored: the active version and
    earlier ones get the time of their upload."""
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
    """Layout 3. The position of a match that is not late is the sequence number of its event. So the column is only
    renamed, and cursors keep their meaning. Constant time."""
    connection.exec_driver_sql("ALTER TABLE matches RENAME COLUMN sequence TO position")
    _add(connection, "matches", Column("event", BigInteger))
    _add(connection, "subscriptions", Column("undecided", BigInteger, nullable=False, server_default="0"))
    _add(connection, "subscriptions", Column("last_undecided", Double))
    _add(connection, "subscriptions", Column("last_undecided_reason", Text))
    for total in ("parked", "parked_matched", "parked_unmatched", "parked_given_up", "parked_withdrawn"):
        _add(connection, "ledger", Column(total, BigInteger, nullable=False, server_default="0"))


def _index_types(connection: Connection) -> None:
    """Layout 4. Building the index scans the events once: some seconds per million. Older snapshots have no token, so
    the first start compiles the subscriptions again."""
    connection.exec_driver_sql("CREATE INDEX IF NOT EXISTS events_type ON events (type, sequence)")
    _add(connection, "ledger", Column("snapshot", String))


def _keep_failure_kinds(connection: Connection) -> None:
    """Layout 5. The kind of earlier failures is unknown, because only their reason was stored. A database of layout 1
    or 2 had no table `parked`, and just got the present one."""
    if "kind" not in {each["name"] for each in inspect(connection).get_columns("parked")}:
        _add(connection, "parked", Column("kind", String))
    _add(connection, "subscriptions", Column("last_undecided_kind", String))


def _pack_matches(connection: Connection) -> None:
    """Layout 6. Matches are moved later. Matches of deleted subscriptions that were not erased yet are counted as
    discarded from now on. Constant time except for these."""
    for name in ("kept_from", "folded_through", "folds", "older_from", "older_through"):
        _add(connection, "ledger", Column(name, BigInteger, nullable=False, server_default="0"))
    if "acked" in {each["name"] for each in inspect(connection).get_columns("leftovers")}:
        connection.exec_driver_sql(
            "UPDATE ledger SET discarded = discarded + (SELECT count(*) FROM leftovers JOIN matches"
            " ON matches.subscription = leftovers.subscription AND matches.position > leftovers.acked)"
        )
        connection.exec_driver_sql("ALTER TABLE leftovers DROP COLUMN acked")
    older_matches.begin(connection, connection.execute(select(ledger.c.sequence)).scalar_one())


def _keep_creators(connection: Connection) -> None:
    """Layout 7. Earlier subscriptions were created without keys. They can be changed with their tickets and by
    administrators."""
    _add(connection, "subscriptions", Column("created_by", String))


def _choose_payloads(connection: Connection) -> None:
    """Layout 8. All attributes are delivered, and no secret was rotated."""
    _add(connection, "subscriptions", Column("attributes", JSON))
    _add(connection, "subscriptions", Column("old_secret", String))
    _add(connection, "subscriptions", Column("old_secret_until", Double))


def _throttle(connection: Connection) -> None:
    """Layout 9. No subscription is throttled."""
    _add(connection, "subscriptions", Column("throttling", Double))


def _part_events(connection: Connection) -> None:
    """Layout 10. Costs two scans of the events on PostgreSQL, and nothing on SQLite. No event is hidden."""
    _add(connection, "ledger", Column("shown_from", BigInteger, nullable=False, server_default="0"))
    event_days.convert(connection)


def _say_who_fits(connection: Connection) -> None:
    """Layout 11. From this layout on, a step may leave older servers running."""
    _add(connection, "ledger", Column("readable_from", Integer, nullable=False, server_default="0"))
    if inspect(connection).has_table("servers"):
        known = {each["name"] for each in inspect(connection).get_columns("servers")}
        if "layout" not in known:  # the table was not created just now
            _add(connection, "servers", Column("layout", Integer, nullable=False, server_default="0"))


_STEPS: dict[int, Callable[[Connection], None]] = {
    1: _keep_records,
    2: _give_positions,
    3: _index_types,
    4: _keep_failure_kinds,
    5: _pack_matches,
    6: _keep_creators,
    7: _choose_payloads,
    8: _throttle,
    9: _part_events,
    10: _say_who_fits,
}
"""The step from each layout to the next one."""


def _add(connection: Connection, table: str, column: Column[object]) -> None:
    """Adds a column. SQLite and PostgreSQL both do this inside a transaction, without writing the rows again."""
    Table(table, MetaData(), column)
    written = CreateColumn(column).compile(dialect=connection.dialect)
    connection.exec_driver_sql(f"ALTER TABLE {table} ADD COLUMN {written}")


# ── ledger ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """The totals since this database was created. `pending` and `dead` (dead letters, which wait for a disabled
    webhook) are counted when they are read; the others are stored. Attempts are those of webhooks."""

    sequence: int
    accepted: int
    duplicates: int
    matched: int
    matches: int
    delivered: int
    dead: int
    discarded: int
    pending: int
    attempts_delivered: int
    attempts_failed: int
    parked: int
    parked_matched: int
    parked_unmatched: int
    parked_given_up: int
    parked_withdrawn: int
    parked_waiting: int


def begin_ledger(connection: Connection) -> None:
    """Creates the row of a new database, in the transaction that creates its tables."""
    if connection.execute(select(ledger.c.layout)).scalar_one_or_none() is None:
        zeros = {column.name: 0 for column in ledger.columns if not column.nullable}
        connection.execute(insert(ledger).values({**zeros, "id": 1, "layout": LAYOUT, "readable_from": READABLE_FROM}))


def open_ledger(connection: Connection) -> None:
    """Migrates the tables of an older database to the present layout.

    Raises `StoreUnreadable` for a newer layout with which this server cannot work.
    """
    layout = connection.execute(select(ledger.c.layout)).scalar_one()
    if layout < LAYOUT:
        _migrate_to_present(connection, layout)
    else:
        check_readable(readable_from(connection, layout))


def migrate_beside_others(connection: Connection) -> None:
    """Brings tables that other servers use to the present layout, if the layouts of these servers allow it. PostgreSQL
    only. The tables are locked for moments only: while a long query reads one, the others go on, and it is tried again.

    Raises `StoreInUse`, if the other servers must stop or the tables do not become free, and `StoreUnreadable`.
    """
    until = time.monotonic() + MIGRATION_SECONDS
    while True:
        try:
            with connection.begin():
                return _migrate_beside_others(connection)
        except DBAPIError as error:
            if getattr(error.orig, "sqlstate", None) not in TABLES_ARE_USED:
                raise
            if time.monotonic() > until:
                raise StoreInUse(
                    f"the tables cannot be changed to layout {LAYOUT}, because a query or a backup has read them for"
                    f" {MIGRATION_SECONDS:.0f} s: start this server again when it has ended"
                ) from error
        time.sleep(LOCK_PAUSE_SECONDS)


def _migrate_beside_others(connection: Connection) -> None:
    layout = connection.execute(select(ledger.c.layout)).scalar_one()
    if layout >= LAYOUT:
        return
    oldest = servers.oldest_layout(connection) if layout >= READABLE_FROM else layout
    if oldest is not None and oldest < READABLE_FROM:
        raise StoreInUse(
            f"other servers use the database in layout {oldest}, not {LAYOUT}: stop the other servers first"
        )
    connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{LOCK_MILLISECONDS}ms'")
    connection.exec_driver_sql("LOCK TABLE ledger IN ACCESS EXCLUSIVE MODE")  # no group of another server is open
    layout = connection.execute(select(ledger.c.layout)).scalar_one()
    if layout < LAYOUT:
        event_days.create_tables(connection)
        servers.metadata.create_all(connection)
        _migrate_to_present(connection, layout)


def _migrate_to_present(connection: Connection, layout: int) -> None:
    migrate(connection, layout)
    connection.execute(update(ledger).values(layout=LAYOUT, readable_from=READABLE_FROM))


def readable_from(connection: Connection, layout: int) -> int:
    """Returns the oldest layout whose servers can work with a database of this layout. Databases of the present layout
    and older ones are converted or read by this version."""
    return connection.execute(select(ledger.c.readable_from)).scalar_one() if layout > LAYOUT else LAYOUT


def check_readable(needed: int, database: str = "the database") -> None:
    """Raises `StoreUnreadable` if this version cannot work with a database that needs at least the layout `needed`."""
    if needed > LAYOUT:
        raise StoreUnreadable(
            f"{database} needs a version of kindcast that knows layout {needed} of its tables, and this one"
            f" knows layouts 1 to {LAYOUT}: install a newer version of kindcast"
        )


def position(connection: Connection) -> tuple[int, int, float]:
    """Returns the number of committed groups, the last sequence number or position, and when it was assigned (0.0 if
    its event was deleted)."""
    commits, sequence = connection.execute(select(ledger.c.commits, ledger.c.sequence)).one()
    accepted = connection.execute(select(events.c.accepted_at).order_by(events.c.sequence.desc()).limit(1))
    decided = connection.execute(select(late.c.decided_at).order_by(late.c.position.desc()).limit(1))
    return commits, sequence, max(accepted.scalar_one_or_none() or 0.0, decided.scalar_one_or_none() or 0.0)


def count(
    connection: Connection,
    *,
    sequence: int,
    more: Mapping[str, int],
    wakes: tuple[str, str] | None = None,
    commit: int = 0,
) -> None:
    """Closes a group: adds one commit, and `more` to the totals, and sets the last sequence number. `wakes` is the
    channel and the text of a NOTIFY on PostgreSQL. The text is the id of the server, whose `commit` this is."""
    mark = mark_of(connection)
    larger = {ledger.c[name].name: number for name, number in more.items() if number}
    sets = "".join(f", {name} = {name} + {mark}" for name in larger)
    statement = f"UPDATE ledger SET commits = commits + 1, sequence = {mark}{sets}"
    values: list[Any] = [sequence, *larger.values()]
    if wakes is not None:
        mine = (
            f"WITH mine AS (INSERT INTO own_commits (server, commit) VALUES ({mark}, {mark})"
            " ON CONFLICT (server) DO UPDATE SET commit = excluded.commit)"
        )
        statement = f"{mine} {statement} RETURNING pg_notify({mark}, {mark})"
        values = [wakes[1], commit, *values, *wakes]
    run_plain(connection, statement, [tuple(values)])


_COUNTED = select(
    *(
        ledger.c[name]
        for name in (
            "sequence",
            "accepted",
            "duplicates",
            "matched",
            "matches",
            "delivered",
            "dead",
            "discarded",
            "attempts_delivered",
            "attempts_failed",
            "parked",
            "parked_matched",
            "parked_unmatched",
            "parked_given_up",
            "parked_withdrawn",
        )
    )
)
"""The totals. Columns of later layouts are not read, because `kindcast check` also reads older databases."""
_CURSORS = select(subscriptions.c.number, subscriptions.c.acked)


def read_totals(connection: Connection) -> Totals:
    """Returns the totals. `pending` is what the other totals leave. Cost: one pass over the subscriptions, in the
    database, and one over the matches after the lowest cursor of a disabled subscription."""
    row = connection.execute(_COUNTED).one()
    dead = row.dead + sum(count_waiting(connection, _cursors(connection, disabled=True)).values())
    sent, failed = func.sum(subscriptions.c.times_sent), func.sum(subscriptions.c.times_failed)
    attempts_sent, attempts_failed = connection.execute(select(func.coalesce(sent, 0), func.coalesce(failed, 0))).one()
    parked_waiting = select(func.count()).where(parked.c.next_try_at.is_not(None))
    return Totals(
        sequence=row.sequence,
        accepted=row.accepted,
        duplicates=row.duplicates,
        matched=row.matched,
        matches=row.matches,
        delivered=row.delivered,
        dead=dead,
        discarded=row.discarded,
        pending=max(0, row.matches - row.delivered - row.discarded - dead),
        attempts_delivered=row.attempts_delivered + int(attempts_sent - attempts_failed),
        attempts_failed=row.attempts_failed + int(attempts_failed),
        parked=row.parked,
        parked_matched=row.parked_matched,
        parked_unmatched=row.parked_unmatched,
        parked_given_up=row.parked_given_up,
        parked_withdrawn=row.parked_withdrawn,
        parked_waiting=connection.execute(parked_waiting).scalar_one(),
    )


def uncounted(connection: Connection) -> int:
    """Returns how many matches more are stored for delivery than the ledger says; less than 0 if there are fewer. Cost:
    one pass over the cursors of all subscriptions and over the matches after the lowest."""
    row = connection.execute(_COUNTED).one()
    waiting = sum(count_waiting(connection, _cursors(connection)).values())
    return waiting - int(row.matches - row.delivered - row.discarded - row.dead)


def _cursors(connection: Connection, *, disabled: bool = False) -> dict[int, int]:
    return {number: acked for number, acked in connection.execute(_CURSORS.where(is_dead()) if disabled else _CURSORS)}
