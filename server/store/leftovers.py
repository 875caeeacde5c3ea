"""Deletion in steps of the attempts of deleted subscriptions: there may be millions.

    deleted ──a step at once──▶ nothing left
                  └──more──▶ leftovers: its number ──a step a sweep──▶ nothing left

Their matches stay where they are until they are too old: nobody reads the matches of a number that no subscription has.
"""

from sqlalchemy import Connection, delete, insert, select

from kindcast.server.store.tables import attempts, leftovers

__all__ = ["erase", "erase_some", "remember"]


def remember(connection: Connection, number: int) -> None:
    """Notes that attempts of a deleted subscription are left."""
    connection.execute(insert(leftovers).values(subscription=number))


def erase(connection: Connection, number: int, *, at_most: int) -> bool:
    """Deletes at most so many attempts of a deleted subscription. Returns whether nothing is left."""
    tried = select(attempts.c.sequence).where(attempts.c.subscription == number).order_by(attempts.c.sequence)
    sequences = connection.execute(tried.limit(at_most)).scalars().all()
    if sequences:
        theirs = (attempts.c.subscription == number) & (attempts.c.sequence <= sequences[-1])
        connection.execute(delete(attempts).where(theirs))
    return len(sequences) < at_most


def erase_some(connection: Connection, *, at_most: int) -> bool:
    """One step for one deleted subscription. Returns whether more may be left."""
    number = connection.execute(select(leftovers.c.subscription).limit(1)).scalar_one_or_none()
    if number is None:
        return False
    if erase(connection, number, at_most=at_most):
        connection.execute(delete(leftovers).where(leftovers.c.subscription == number))
    return True
