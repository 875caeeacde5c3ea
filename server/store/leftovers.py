"""Deletion in steps of the matches and attempts of deleted subscriptions: there may be millions.

    deleted ──a step at once──▶ nothing left
                  └──more──▶ leftovers: number and cursor ──a step a sweep──▶ nothing left

These matches are no longer visible, because matches are only read through their subscription. The ledger counts those
that were never delivered as pending until they are erased, and then as discarded.
"""

from sqlalchemy import Connection, delete, func, insert, select

from kindcast.server.store.tables import attempts, leftovers, matches

__all__ = ["count_pending", "erase", "erase_some", "remember"]


def remember(connection: Connection, number: int, acked: int) -> None:
    """Notes that matches of a deleted subscription are left. `acked` was its cursor."""
    connection.execute(insert(leftovers).values(subscription=number, acked=acked))


def erase(connection: Connection, number: int, acked: int, *, at_most: int) -> tuple[int, bool]:
    """Deletes at most so many matches, and as many attempts, of a deleted subscription. Returns how many of the matches
    were never delivered, and whether nothing is left."""
    first = select(matches.c.position).where(matches.c.subscription == number).order_by(matches.c.position)
    positions = connection.execute(first.limit(at_most)).scalars().all()
    if positions:
        theirs = (matches.c.subscription == number) & (matches.c.position <= positions[-1])
        connection.execute(delete(matches).where(theirs))
    tried = select(attempts.c.sequence).where(attempts.c.subscription == number).order_by(attempts.c.sequence)
    sequences = connection.execute(tried.limit(at_most)).scalars().all()
    if sequences:
        theirs = (attempts.c.subscription == number) & (attempts.c.sequence <= sequences[-1])
        connection.execute(delete(attempts).where(theirs))
    discarded = sum(position > acked for position in positions)
    return discarded, len(positions) < at_most and len(sequences) < at_most


def erase_some(connection: Connection, *, at_most: int) -> tuple[int, bool]:
    """One step for one deleted subscription. Returns how many matches were discarded, and whether more may be left."""
    one = connection.execute(select(leftovers).order_by(leftovers.c.subscription).limit(1)).one_or_none()
    if one is None:
        return 0, False
    discarded, over = erase(connection, one.subscription, one.acked, at_most=at_most)
    if over:
        connection.execute(delete(leftovers).where(leftovers.c.subscription == one.subscription))
    return discarded, True


def count_pending(connection: Connection) -> int:
    """How many matches of deleted subscriptions are left that were never delivered."""
    joined = leftovers.join(matches, matches.c.subscription == leftovers.c.subscription)
    query = select(func.count()).select_from(joined).where(matches.c.position > leftovers.c.acked)
    return connection.execute(query).scalar_one()
