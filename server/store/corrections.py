"""Stored corrections: which events are about a subject, which withdraw it, and the retraction messages.

corrections   (source, subject) ──▶ events about it, and events that withdraw it
retractions   position ──▶ the withdrawn event; the message at this position has the event that withdraws it
"""

from collections.abc import Collection
from typing import Any, NamedTuple

from sqlalchemy import ARRAY, BigInteger, Connection, Select, delete, func, insert, literal, select, update

from kindcast.server.store.matches import recipients_of
from kindcast.server.store.tables import corrections, events, retractions, subscriptions

__all__ = [
    "add_correction",
    "add_retraction",
    "correction_key",
    "discard_corrections_before",
    "find_about",
    "find_withdrawing",
    "mark_withdrawn",
    "published_id",
    "recipients",
    "withdrawn_among",
]

NUMBERS_PER_QUERY = 500
"""The maximum number of values in one IN list, far below the parameter limit of every database."""

KEY_SEPARATOR = "\x1f"
"""The separator of id and revision in the key that identifies an event. Neither contains control characters."""


class About(NamedTuple):
    """An event that is about a subject, or withdraws it."""

    event: int
    revision: str | None


def correction_key(id: str, revision: str | None) -> str:
    """Returns the key that identifies an event of a source: its id, and its revision if it has one.

    >>> correction_key("urn:e:1", None)
    'urn:e:1'
    """
    return id if revision is None else f"{id}{KEY_SEPARATOR}{revision}"


def add_correction(
    connection: Connection, source: str, subject: str, event: int, revision: str | None, *, withdraws: bool
) -> None:
    """Stores the subject that an event is about or withdraws."""
    row = {"source": source, "subject": subject, "event": event, "revision": revision, "withdraws": withdraws}
    connection.execute(insert(corrections).values(row))


def published_id(key: str) -> str:
    """Returns the id of an event from its key.

    >>> published_id(correction_key("urn:e:1", "2"))
    'urn:e:1'
    """
    return key.partition(KEY_SEPARATOR)[0]


def find_about(connection: Connection, source: str, subject: str) -> list[About]:
    """Returns the events about a subject that are not withdrawn, oldest first."""
    return [About(*row) for row in connection.execute(_of(source, subject, False).where(_STANDING))]


def find_withdrawing(connection: Connection, source: str, subject: str) -> list[About]:
    """Returns the events that withdraw a subject, oldest first."""
    return [About(*row) for row in connection.execute(_of(source, subject, True))]


def mark_withdrawn(connection: Connection, event: int, by: int) -> None:
    """Marks an event as withdrawn. Late matches of it are followed by a retraction."""
    mine = (corrections.c.event == event) & ~corrections.c.withdraws
    connection.execute(update(corrections).where(mine).values(withdrawn_by=by))


def withdrawn_among(connection: Connection, sequences: Collection[int]) -> dict[int, int]:
    """Returns the withdrawn events among these: event → the event that withdrew it."""
    query = select(corrections.c.event, corrections.c.withdrawn_by)
    if connection.dialect.name == "postgresql":  # the same statement for any number of events
        these = corrections.c.event == func.any(literal(sorted(sequences), ARRAY(BigInteger)))
    else:
        these = corrections.c.event.in_(sorted(sequences))
    mine = these & ~corrections.c.withdraws
    return {row.event: row.withdrawn_by for row in connection.execute(query.where(mine, ~_STANDING))}


def recipients(connection: Connection, sequence: int, now: float) -> list[int]:
    """Returns the numbers of the subscriptions that got an event and have not expired. Retraction messages do not
    count."""
    live = (subscriptions.c.status != "expired") & (subscriptions.c.expires_at > now)
    numbers = [each.number for each in recipients_of(connection, sequence)]
    found: list[int] = []
    for start in range(0, len(numbers), NUMBERS_PER_QUERY):
        some = subscriptions.c.number.in_(numbers[start : start + NUMBERS_PER_QUERY])
        found += connection.execute(select(subscriptions.c.number).where(some, live)).scalars()
    return sorted(set(found))


def add_retraction(connection: Connection, position: int, withdrawn: int) -> None:
    """Stores that the message at this position is the retraction of an event."""
    found = connection.execute(select(events.c.source, events.c.id).where(events.c.sequence == withdrawn)).one()
    row = {"position": position, "event": withdrawn, "source": found.source, "id": published_id(found.id)}
    connection.execute(insert(retractions).values(row))


def discard_corrections_before(connection: Connection, number: int) -> None:
    """Deletes corrections and retractions below a number."""
    connection.execute(delete(retractions).where(retractions.c.position < number))
    connection.execute(delete(corrections).where(corrections.c.event < number))


_STANDING = corrections.c.withdrawn_by.is_(None)


def _of(source: str, subject: str, withdraws: bool) -> Select[Any]:
    mine = (corrections.c.source == source) & (corrections.c.subject == subject)
    kind = corrections.c.withdraws if withdraws else ~corrections.c.withdraws
    return select(corrections.c.event, corrections.c.revision).where(mine, kind).order_by(corrections.c.event)
