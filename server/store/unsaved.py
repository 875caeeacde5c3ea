"""What a snapshot of the subscriptions does not know: which of them came, went or changed since it was written.

    ledger.snapshot    the token of the snapshot that these tables go with; NULL: none
    unsaved            number and id of each subscription that is not as it was in that snapshot

The token is in the snapshot too. So a database that came from a back-up, or another one, never takes a snapshot for its
own; and a start need not read the subscriptions that did not change.
"""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, Row, delete, func, select, text, update

from server.store.tables import ledger, subscriptions, unsaved

__all__ = ["begin", "changed", "note", "numbers_of_all", "token"]

_NOTE = text("INSERT INTO unsaved (number, id) VALUES (:number, :id) ON CONFLICT (number) DO NOTHING")


def token(connection: Connection) -> str | None:
    """That of the snapshot that goes with this database, if there is one."""
    found: str | None = connection.execute(select(ledger.c.snapshot)).scalar_one()
    return found


def begin(connection: Connection, snapshot: str | None) -> None:
    """A snapshot of this token was written of what is here now; None: no snapshot may be used from now on."""
    connection.execute(delete(unsaved))
    connection.execute(update(ledger).values(snapshot=snapshot))


def note(connection: Connection, noted: Mapping[int, str]) -> None:
    """These subscriptions, by number and id, came, went or changed. A row each, once."""
    connection.execute(_NOTE, [{"number": number, "id": id} for number, id in noted.items()])


def changed(connection: Connection) -> list[Row[Any]]:
    """(number, id, status, expires_at) of all that were noted, status and end None for those that are gone."""
    query = select(unsaved.c.number, unsaved.c.id, subscriptions.c.status, subscriptions.c.expires_at)
    joined = query.join_from(unsaved, subscriptions, subscriptions.c.number == unsaved.c.number, isouter=True)
    return list(connection.execute(joined.order_by(unsaved.c.number)))


def numbers_of_all(connection: Connection) -> tuple[int, int]:
    """How many subscriptions there are, and the sum of their numbers: one walk over an index, not over the rows."""
    count, total = connection.execute(select(func.count(), func.sum(subscriptions.c.number))).one()
    return count, int(total or 0)
