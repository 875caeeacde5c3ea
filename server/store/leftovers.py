"""Deletion of the attempts of deleted subscriptions in steps, because there may be millions.

    deleted ──a step at once──▶ nothing left
                  └──more──▶ leftovers: its number ──a step a sweep──▶ nothing left

Their matches stay until they are deleted because of their age. They are never read, because no subscription has their
number.
"""

from sqlalchemy import Connection, delete, insert, select

from kindcast.server.store.tables import attempts, leftovers

__all__ = ["erase", "erase_some", "remember"]


def remember(connection: Connection, number: int) -> None:
    """Records that a deleted subscription still has attempts."""
    connection.execute(insert(leftovers).values(subscription=number))


def erase(connection: Connection, number: int, *, at_most: int) -> bool:
    """Deletes at most `at_most` attempts of a deleted subscription. Returns whether nothing is left."""
    tried = select(attempts.c.sequence).where(attempts.c.subscription == number).order_by(attempts.c.sequence)
    sequences = connection.execute(tried.limit(at_most)).scalars().all()
    if sequences:
        theirs = (attempts.c.subscription == number) & (attempts.c.sequence <= sequences[-1])
        connection.execute(delete(attempts).where(theirs))
    return len(sequences) < at_most


def erase_some(connection: Connection, *, at_most: int) -> bool:
    """Deletes some attempts of one deleted subscription. Returns whether more may be left."""
    number = connection.execute(select(leftovers.c.subscription).limit(1)).scalar_one_or_none()
    if number is None:
        return False
    if erase(connection, number, at_most=at_most):
        connection.execute(delete(leftovers).where(leftovers.c.subscription == number))
    return True
