"""The matches of layouts up to 5, one row per match, and their move to lists and pages while the server runs.

    rows of `older_from` … `older_through` ──a pass: one walk over the table──▶ blocks in memory ──a transaction each──▶
        lists and pages, and `older_from` behind them ──all moved──▶ rows erased step by step ──▶ the table is dropped

If the process is killed in between, `older_from` has the value of the last transaction. Moved matches are read from
their lists and pages, the others from the rows. New positions are after `older_through`.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    Row,
    Table,
    Text,
    func,
    inspect,
    select,
)

from kindcast.server.store.postings import Numbers
from kindcast.server.store.tables import events, late, ledger, mark_of, retractions, subscriptions

__all__ = ["begin", "count_waiting", "erase_some", "matches", "next_rows", "positions_of", "recipients_of"]

NUMBERS_PER_QUERY = 500
"""The maximum number of values in one IN list, far below the parameter limit of every database."""
MATCHES_A_PASS = 1_000_000
"""The number of rows in memory at a time. Each pass scans the table once."""
ROWS_AT_ONCE = 10_000
"""The number of rows that the database driver holds at a time."""
STREAMED = {"stream_results": True, "max_row_buffer": ROWS_AT_ONCE}
"""Options for the driver of PostgreSQL, which otherwise fetches a whole result at once."""
ERASED_AT_ONCE = 20_000
"""The number of rows that are erased at a time."""

_Number = BigInteger().with_variant(Integer, "sqlite")

matches = Table(
    "matches",
    MetaData(),
    Column("subscription", _Number, nullable=False),
    Column("position", _Number, nullable=False),
    Column("bindings", Text),  # JSON list, or NULL for none
    Column("event", _Number),  # the sequence number of the event of a late match; NULL: the position
    PrimaryKeyConstraint("subscription", "position"),
    sqlite_with_rowid=False,
)
"""The table of layouts 3 to 5."""


class OlderMatches(NamedTuple):
    """Rows, ordered by subscription and position. `bindings` are keyed by both, and `events` by position, if there are
    any."""

    subscriptions: Numbers
    positions: Numbers
    bindings: Mapping[tuple[int, int], str]
    events: Mapping[int, int]


def begin(connection: Connection, sequence: int) -> None:
    """The migration from layout 5: from now on, the rows up to the last position are read from this table."""
    if not inspect(connection).has_table(matches.name):
        return
    if connection.execute(select(matches.c.position).limit(1)).first() is None:
        connection.exec_driver_sql(f"DROP TABLE {matches.name}")
        return
    through = {"older_from": 1, "older_through": sequence, "folded_through": sequence}
    connection.execute(ledger.update().values(through))


# ── reading ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def positions_of(connection: Connection, subscription: int, first: int, last: int) -> Numbers:
    """Returns the positions of a subscription, ascending."""
    mine = (matches.c.subscription == subscription) & matches.c.position.between(first, last)
    rows = connection.execute(select(matches.c.position).where(mine).order_by(matches.c.position)).scalars()
    return np.fromiter(rows, dtype=np.int64)


def count_waiting(connection: Connection, numbers: Collection[int], first: int, last: int) -> dict[int, int]:
    """Returns how many rows each of these subscriptions has not acknowledged. Subscriptions without such rows are left
    out."""
    query = (
        select(matches.c.subscription, func.count())
        .join_from(subscriptions, matches, matches.c.subscription == subscriptions.c.number)
        .where(matches.c.position > subscriptions.c.acked, matches.c.position.between(first, last))
        .group_by(matches.c.subscription)
    )
    if len(numbers) > NUMBERS_PER_QUERY:
        return {number: count for number, count in connection.execute(query) if number in numbers}
    return {number: count for number, count in connection.execute(query.where(subscriptions.c.number.in_(numbers)))}


def recipients_of(
    connection: Connection, sequence: int, first: int, last: int, *, retractions_too: bool
) -> Sequence[Row[Any, Any, Any]]:
    """Returns the subscriptions that got an event, like `matches.recipients_of`."""
    positions = [sequence, *connection.execute(select(late.c.position).where(late.c.event == sequence)).scalars()]
    mine = matches.c.subscription.in_(select(subscriptions.c.number))  # so that the primary key is used
    query = select(matches.c.subscription, matches.c.position, matches.c.bindings).where(
        mine,
        matches.c.position.in_(positions),
        matches.c.position.between(first, last),
        func.coalesce(matches.c.event, matches.c.position) == sequence,
    )
    if not retractions_too:
        query = query.where(~select(retractions).where(retractions.c.position == matches.c.position).exists())
    return connection.execute(query).all()


# ── moving ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def next_rows(connection: Connection, first: int, last: int) -> tuple[OlderMatches, int]:
    """Returns the rows at the next positions from `first` on, and the last position up to which they are complete.
    Cost: one scan of the table."""
    through = _through(connection, first, last)
    mark = mark_of(connection)
    query = (
        f"SELECT subscription, position, bindings, event FROM {matches.name} "
        f"WHERE position >= {mark} AND position <= {mark} ORDER BY subscription, position"
    )
    pairs: list[npt.NDArray[np.int64]] = [np.zeros((0, 2), dtype=np.int64)]
    bindings: dict[tuple[int, int], str] = {}
    of_event: dict[int, int] = {}
    with connection.exec_driver_sql(query, (first, through), execution_options=STREAMED) as found:
        for rows in found.partitions(ROWS_AT_ONCE):
            pairs.append(np.array([(row[0], row[1]) for row in rows], dtype=np.int64))
            bindings |= {(row[0], row[1]): row[2] for row in rows if row[2] is not None}
            of_event |= {row[1]: row[3] for row in rows if row[3] is not None}
    subscriptions, positions = np.concatenate(pairs).T
    return OlderMatches(subscriptions, positions, bindings, of_event), through


def _through(connection: Connection, first: int, last: int) -> int:
    """Returns the position up to which there are not too many rows, by the numbers of matches of the events."""
    room = MATCHES_A_PASS
    query = select(events.c.sequence, events.c.matched).where(events.c.sequence.between(first, last))
    with connection.execute(query.order_by(events.c.sequence), execution_options=STREAMED) as rows:
        for sequence, matched in rows:
            room -= matched
            if room < 0:
                return int(sequence)
    return last


def erase_some(connection: Connection) -> bool:
    """Erases some moved rows, and finally drops the table. Returns whether there are more."""
    keys = select(matches.c.subscription, matches.c.position).order_by(matches.c.subscription, matches.c.position)
    end = connection.execute(keys.limit(1).offset(ERASED_AT_ONCE)).one_or_none()
    if end is None:
        connection.exec_driver_sql(f"DROP TABLE {matches.name}")
        connection.execute(ledger.update().values(older_from=0, older_through=0))
        return False
    before = (matches.c.subscription < end[0]) | ((matches.c.subscription == end[0]) & (matches.c.position < end[1]))
    connection.execute(matches.delete().where(before))
    return True
