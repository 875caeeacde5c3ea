"""Events that tell of corrections: what each is about, what withdraws it, and the messages that said so.

corrections   (source, subject) ──▶ events about it, and events that withdraw it
retractions   position ──▶ the event that is withdrawn: the message there says so, and shows the event that withdraws it
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
"""Numbers in one IN list: far below every database's limit on parameters."""

KEY_SEPARATOR = "\x1f"
"""Between id and revision in the key by which an event is known again; neither has control characters."""


class About(NamedTuple):
    """An event that is about a subject, or withdraws it."""

    event: int
    revision: str | None


def correction_key(id: str, revision: str | None) -> str:
    """By which an event of a source is known again: its id, and the revision where it has one.

    >>> correction_key("urn:e:1", None)
    'urn:e:1'
    """
    return id if revision is None else f"{id}{KEY_SEPARATOR}{revision}"


def add_correction(
    connection: Connection, source: str, subject: str, event: int, revision: str | None, *, withdraws: bool
) -> None:
    """Note what an event is about, or what it withdraws."""
    row = {"source": source, "subject": subject, "event": event, "revision": revision, "withdraws": withdraws}
    connection.execute(insert(corrections).values(row))


def published_id(key: str) -> str:
    """The id of an event by the key that it is kept under.

    >>> published_id(correction_key("urn:e:1", "2"))
    'urn:e:1'
    """
    return key.partition(KEY_SEPARATOR)[0]


def find_about(connection: Connection, source: str, subject: str) -> list[About]:
    """The events about a subject that nothing withdrew yet, oldest first."""
    return [About(*row) for row in connection.execute(_of(source, subject, False).where(_STANDING))]


def find_withdrawing(connection: Connection, source: str, subject: str) -> list[About]:
    """The events that withdraw a subject, oldest first."""
    return [About(*row) for row in connection.execute(_of(source, subject, True))]


def mark_withdrawn(connection: Connection, event: int, by: int) -> None:
    """From now on, late matches of this event are followed by a retraction."""
    mine = (corrections.c.event == event) & ~corrections.c.withdraws
    connection.execute(update(corrections).where(mine).values(withdrawn_by=by))


def withdrawn_among(connection: Connection, sequences: Collection[int]) -> dict[int, int]:
    """Of these events, those that are withdrawn: which event withdrew each."""
    query = select(corrections.c.event, corrections.c.withdrawn_by)
    if connection.dialect.name == "postgresql":  # one text, however many they are
        these = corrections.c.event == func.any(literal(sorted(sequences), ARRAY(BigInteger)))
    else:
        these = corrections.c.event.in_(sorted(sequences))
    mine = these & ~corrections.c.withdraws
    return {row.event: row.withdrawn_by for row in connection.execute(query.where(mine, ~_STANDING))}


def recipients(connection: Connection, sequence: int, now: float) -> list[int]:
    """The numbers of the subscriptions that have a match of an event, or a message of its own retracting nothing, and
    that are not over."""
    live = (subscriptions.c.status != "expired") & (subscriptions.c.expires_at > now)
    numbers = [each.number for each in recipients_of(connection, sequence)]
    found: list[int] = []
    for start in range(0, len(numbers), NUMBERS_PER_QUERY):
        some = subscriptions.c.number.in_(numbers[start : start + NUMBERS_PER_QUERY])
        found += connection.execute(select(subscriptions.c.number).where(some, live)).scalars()
    return sorted(set(found))


def add_retraction(connection: Connection, position: int, withdrawn: int) -> None:
    """The message at this position says that an event is withdrawn."""
    found = connection.execute(select(events.c.source, events.c.id).where(events.c.sequence == withdrawn)).one()
    row = {"position": position, "event": withdrawn, "source": found.source, "id": published_id(found.id)}
    connection.execute(insert(retractions).values(row))


def discard_corrections_before(connection: Connection, number: int) -> None:
    """Delete corrections and messages below a number."""
    connection.execute(delete(retractions).where(retractions.c.position < number))
    connection.execute(delete(corrections).where(corrections.c.event < number))


_STANDING = corrections.c.withdrawn_by.is_(None)


def _of(source: str, subject: str, withdraws: bool) -> Select[Any]:
    mine = (corrections.c.source == source) & (corrections.c.subject == subject)
    kind = corrections.c.withdraws if withdraws else ~corrections.c.withdraws
    return select(corrections.c.event, corrections.c.revision).where(mine, kind).order_by(corrections.c.event)
