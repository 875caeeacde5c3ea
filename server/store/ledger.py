"""The one row that says where the log ends, and the totals that must add up.

    accepted = matched + unmatched        events
    matches  = delivered + pending + dead + discarded        pairs of event and subscription
    parked   = matched + unmatched + given up + withdrawn + waiting        such pairs that an operator had to decide

`commits` grows by one with each group: after a commit that failed half-way, it alone tells whether it happened.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Connection, case, func, insert, select, update

from server.store import leftovers
from server.store.dead_letters import is_dead
from server.store.migrations import LAYOUT, migrate
from server.store.tables import events, late, ledger, matches, parked, subscriptions

__all__ = ["Totals", "count", "open_ledger", "position", "read_totals"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Since this database was made. `pending` and `dead` (letters: what waits for a disabled webhook) are counted, the
    others are kept. Attempts are those of webhooks."""

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


def open_ledger(connection: Connection) -> None:
    """Make the row if this database is new; bring the tables of an older one to the present layout.

    Raises `StoreUnreadable` for a layout that is newer than this server.
    """
    layout = connection.execute(select(ledger.c.layout)).scalar_one_or_none()
    if layout is None:
        zeros = {column.name: 0 for column in ledger.columns if not column.nullable}
        connection.execute(insert(ledger).values({**zeros, "id": 1, "layout": LAYOUT}))
    elif layout != LAYOUT:
        migrate(connection, layout)
        connection.execute(update(ledger).values(layout=LAYOUT))


def position(connection: Connection) -> tuple[int, int, float]:
    """How many groups were committed, the last sequence or position, and when it was given (0.0 if that is gone)."""
    commits, sequence = connection.execute(select(ledger.c.commits, ledger.c.sequence)).one()
    accepted = connection.execute(select(events.c.accepted_at).order_by(events.c.sequence.desc()).limit(1))
    decided = connection.execute(select(late.c.decided_at).order_by(late.c.position.desc()).limit(1))
    return commits, sequence, max(accepted.scalar_one_or_none() or 0.0, decided.scalar_one_or_none() or 0.0)


def count(connection: Connection, *, sequence: int, more: Mapping[str, int]) -> None:
    """Close a group: one commit more, the last sequence, and each total larger by what `more` says."""
    values = {name: ledger.c[name] + number for name, number in more.items() if number}
    connection.execute(update(ledger).values(commits=ledger.c.commits + 1, sequence=sequence, **values))


def read_totals(connection: Connection) -> Totals:
    """The totals. Counting what is pending costs one walk over the pending matches."""
    waiting = (
        select(func.count(), func.count(case((is_dead(), 1))))
        .select_from(subscriptions.join(matches, matches.c.subscription == subscriptions.c.number))
        .where(matches.c.position > subscriptions.c.acked)
    )
    sent, failed = func.sum(subscriptions.c.times_sent), func.sum(subscriptions.c.times_failed)
    attempts_sent, attempts_failed = connection.execute(select(func.coalesce(sent, 0), func.coalesce(failed, 0))).one()
    parked_waiting = select(func.count()).where(parked.c.next_try_at.is_not(None))
    row = connection.execute(select(ledger)).one()
    undelivered, dead = connection.execute(waiting).one()
    return Totals(
        sequence=row.sequence,
        accepted=row.accepted,
        duplicates=row.duplicates,
        matched=row.matched,
        matches=row.matches,
        delivered=row.delivered,
        dead=row.dead + dead,
        discarded=row.discarded,
        pending=undelivered - dead + leftovers.count_pending(connection),
        attempts_delivered=row.attempts_delivered + int(attempts_sent - attempts_failed),
        attempts_failed=row.attempts_failed + int(attempts_failed),
        parked=row.parked,
        parked_matched=row.parked_matched,
        parked_unmatched=row.parked_unmatched,
        parked_given_up=row.parked_given_up,
        parked_withdrawn=row.parked_withdrawn,
        parked_waiting=connection.execute(parked_waiting).scalar_one(),
    )
