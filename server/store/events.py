"""Stored events: written in bulk by the broker, read by any connection.

Writing functions belong to the broker's thread. Rows go in with one call of the driver for many.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import groupby, islice
from typing import Any, NamedTuple

from sqlalchemy import (
    ARRAY,
    BigInteger,
    ColumnElement,
    Connection,
    Row,
    Select,
    bindparam,
    delete,
    exists,
    func,
    insert,
    literal,
    select,
    update,
)

from kindcast.semantic.events import published_id
from kindcast.server.cloudevents import is_whole
from kindcast.server.errors import RecordDamaged
from kindcast.server.store import event_days
from kindcast.server.store import pending as pending_store
from kindcast.server.store.deliveries import discard_matches
from kindcast.server.store.matches import end_of_discard, numbers_of_recipients, recipients_of
from kindcast.server.store.tables import attempts, corrections, events, insert_rows, late, retractions, subscriptions

__all__ = [
    "EventMatch",
    "EventRow",
    "Known",
    "WholeEvents",
    "add_correction",
    "add_retraction",
    "count_after",
    "count_between",
    "discard_before",
    "find_about",
    "find_attempts",
    "find_event",
    "find_known",
    "find_matches",
    "find_recipients",
    "find_withdrawing",
    "first_recipients",
    "first_to_keep",
    "insert_events",
    "last_sequence",
    "list_events",
    "list_whole_events",
    "mark_withdrawn",
    "newest_events",
    "newest_page",
    "read_attempts",
    "withdrawn_among",
]


IDS_PER_QUERY = 500
"""The maximum number of values in one IN list, far below the parameter limit of every database."""

MATCHES_AT_ONCE = 1_000_000
"""The maximum number of matches that are deleted in one transaction because of their age, unless one event has more.
They are in memory while they are counted."""

PAGE_BYTES = 16 << 20
"""The maximum size of the events in one page."""
FETCHED = 16
"""The number of events that PostgreSQL sends at a time. They may be large."""

_AFTER = events.c.sequence > bindparam("after")
_OF_SOURCE = events.c.source.concat("") == bindparam("source")  # its index would sort all events of the source
NEWEST = select(events).where(_AFTER).order_by(events.c.sequence.desc()).limit(bindparam("limit"))
COUNT = select(func.count()).select_from(events).where(_AFTER)
NEWEST_OF_SOURCE, COUNT_OF_SOURCE = NEWEST.where(_OF_SOURCE), COUNT.where(_OF_SOURCE)
IDS = select(subscriptions.c.number, subscriptions.c.id).where(
    subscriptions.c.number.in_(bindparam("numbers", expanding=True))
)
"""The statements of the live tail, which runs them four times a second. A prepared statement costs a third of a new
one."""

Known = tuple[int, str, int]
"""The sequence number, digest, and number of matches of an event that was accepted before."""


class EventRow(NamedTuple):
    """A row of `events`; `notes` is JSON text or None."""

    sequence: int
    source: str
    id: str
    type: str
    digest: str
    body: str
    accepted_at: float
    vocabulary_version: str
    matched: int
    notes: str | None


# ── writing ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def insert_events(connection: Connection, rows: Sequence[EventRow]) -> None:
    """Stores new events, in the order of their numbers."""
    if event_days.has_days(connection):
        event_days.insert(connection, EventRow._fields, rows)
    else:
        insert_rows(connection, events.name, EventRow._fields, rows)


def find_known(connection: Connection, keys: Iterable[tuple[str, str]]) -> dict[tuple[str, str], Known]:
    """Returns which of these (source, id) pairs were accepted before. Cost: one lookup in the unique index per pair."""
    by_source: dict[str, list[str]] = {}
    for source, id in keys:
        by_source.setdefault(source, []).append(id)
    found: dict[tuple[str, str], Known] = {}
    for source, ids in by_source.items():
        for start in range(0, len(ids), IDS_PER_QUERY):
            wanted = _with_ids(connection, source, ids[start : start + IDS_PER_QUERY])
            if wanted is None:
                continue
            query = select(events.c.id, events.c.sequence, events.c.digest, events.c.matched).where(wanted)
            for id, sequence, digest, matched in connection.execute(query):
                found[source, id] = (sequence, digest, matched)
    return found


def _with_ids(connection: Connection, source: str, ids: Sequence[str]) -> ColumnElement[bool] | None:
    """Returns the condition for the events of a source with one of these ids; None if it is known that there are
    none."""
    if not event_days.has_days(connection):
        return (events.c.source == source) & events.c.id.in_(ids)
    sequences = event_days.find_sequences(connection, source, ids)
    return events.c.sequence.in_(sequences) if sequences else None


def first_to_keep(connection: Connection, since: float, *, at_most: int, but_from: int | None = None) -> int | None:
    """Returns the number before which all sequence numbers and positions were assigned before `since`, at most
    `at_most` of each, and without very many matches. Returns None if there is nothing to delete, or if the rest must
    first be moved from an older layout. Times never decrease with their numbers, so only these few rows are read. An
    event that a late match still needs is skipped; it is deleted with that match. Nothing from the number `but_from` on
    is deleted."""
    decided = select(late.c.position, late.c.decided_at).order_by(late.c.position)
    if but_from is not None:
        decided = decided.where(late.c.position < but_from)
    positions = list(connection.execute(decided.limit(at_most)))
    has_late = exists().where(late.c.event == events.c.sequence)
    accepted = select(events.c.sequence, events.c.accepted_at).where(~has_late).order_by(events.c.sequence)
    bounds = [] if but_from is None else [but_from]
    bounds += [number for number, at in positions if at >= since][:1]  # later events are not older
    bounds += [positions[-1][0] + 1] if len(positions) == at_most else []  # the end is there at the latest
    if bounds:  # most events may have late matches, and they are not all skipped
        accepted = accepted.where(events.c.sequence < min(bounds))
    ends, cut = [], []
    for rows in (connection.execute(accepted.limit(at_most)), positions):
        old = [number for number, at in rows if at < since]
        ends += old[-1:]
        cut += old[-1:] if len(old) == at_most else []  # there may be more; all before them may be deleted
    if not ends:
        return None
    return end_of_discard(connection, (min(cut) if cut else max(ends)) + 1, at_most=MATCHES_AT_ONCE)


def discard_before(connection: Connection, number: int) -> Counter[str]:
    """Deletes the matches at positions below `number`, which `first_to_keep` returned, and the events below it without
    remaining matches, with their attempts and candidates. On PostgreSQL these events are hidden: `event_days`.
    Returns what the ledger must count."""
    gone = Counter(discarded=discard_matches(connection, number))
    connection.execute(delete(late).where(late.c.position < number))
    gone["parked_withdrawn"] = pending_store.withdraw_before(connection, number)
    over = (events.c.sequence < number) & ~exists().where(late.c.event == events.c.sequence)
    kept = select(late.c.event).where(late.c.event < number)
    connection.execute(delete(attempts).where(attempts.c.sequence < number, attempts.c.sequence.not_in(kept)))
    connection.execute(delete(corrections).where(corrections.c.event < number, corrections.c.event.not_in(kept)))
    connection.execute(delete(retractions).where(retractions.c.position < number))
    if event_days.has_days(connection):
        event_days.hide(connection, number)
    else:
        connection.execute(delete(events).where(over))
    return gone


# ── reading ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def list_events(connection: Connection, *, after: int, type: str | None, limit: int) -> Sequence[Row[Any]]:
    """Returns events after a sequence number, oldest first; with `type`, only those of this CloudEvents type. There are
    fewer than `limit` if their bodies fill the byte budget of a page (there is at least one), or if one is damaged.
    Raises `RecordDamaged` if the first one is damaged."""
    query = select(events).where(events.c.sequence > after)
    if type is not None:
        query = query.where(events.c.type == type)
    found: list[Row[Any]] = []
    for row in _page(connection, query, limit):
        if not is_whole(row.body, row.digest):
            if not found:
                raise RecordDamaged(row.sequence)
            break
        found.append(row)
    return found


class WholeEvents(NamedTuple):
    """The next events, oldest first, without damaged ones. `through`: all events up to this sequence number are among
    `rows` or `damaged`, which has sequence numbers."""

    rows: list[Row[Any]]
    damaged: list[int]
    through: int


def list_whole_events(connection: Connection, *, after: int, last: int | None = None, limit: int) -> WholeEvents:
    """Returns events after a sequence number and up to `last`, for readers of a whole archive: one damaged event must
    not end their work. There are fewer than `limit` if they fill the byte budget of a page."""
    query = select(events).where(events.c.sequence > after)
    if last is not None:
        query = query.where(events.c.sequence <= last)
    rows: list[Row[Any]] = []
    damaged: list[int] = []
    through = after
    for row in _page(connection, query, limit):
        through = row.sequence
        if is_whole(row.body, row.digest):
            rows.append(row)
        else:
            damaged.append(row.sequence)
    return WholeEvents(rows, damaged, through)


def _page(connection: Connection, query: Select[Any], limit: int, *, newest_first: bool = False) -> Iterator[Row[Any]]:
    """Yields the first events of a query, at least one, up to `limit` and up to the byte budget of a page."""
    room = PAGE_BYTES
    order = events.c.sequence.desc() if newest_first else events.c.sequence
    with connection.execute(query.order_by(order).limit(limit), execution_options={"yield_per": FETCHED}) as rows:
        for row in rows:
            yield row
            room -= len(row.body)
            if room <= 0:
                return


def last_sequence(connection: Connection) -> int:
    """Returns the sequence number of the newest event; 0 if there is none."""
    return connection.execute(select(func.max(events.c.sequence))).scalar() or 0


def newest_events(
    connection: Connection, limit: int, *, after: int = 0, source: str | None = None
) -> Sequence[Row[Any]]:
    """Returns the newest events after a sequence number, newest first, without damaged ones. With `source`, only events
    of this source, which costs a scan."""
    values = {"after": after, "source": source, "limit": limit}
    rows = connection.execute(NEWEST if source is None else NEWEST_OF_SOURCE, values)
    return [row for row in rows if is_whole(row.body, row.digest)]


def newest_page(connection: Connection, limit: int, *, after: int) -> Sequence[Row[Any]]:
    """Returns the newest events after a sequence number, newest first, without damaged ones. There are fewer than
    `limit` if they fill the byte budget of a page."""
    page = _page(connection, select(events).where(_AFTER).params(after=after), limit, newest_first=True)
    return [row for row in page if is_whole(row.body, row.digest)]


def count_after(connection: Connection, after: int, source: str | None = None) -> int:
    """Returns how many events there are after a sequence number. Cost: a scan of these events."""
    values = {"after": after, "source": source}
    count: int = connection.execute(COUNT if source is None else COUNT_OF_SOURCE, values).scalar_one()
    return count


def count_between(connection: Connection, since: float | None, until: float | None) -> tuple[int, int, int]:
    """Returns the first and the last sequence number of the events accepted from `since` on and before `until`, and
    their number; (0, -1, 0) if there are none."""
    query = select(func.min(events.c.sequence), func.max(events.c.sequence), func.count())
    if since is not None:
        query = query.where(events.c.accepted_at >= since)
    if until is not None:
        query = query.where(events.c.accepted_at < until)
    first, last, count = connection.execute(query).one()
    return (first, last, count) if count else (0, -1, 0)


def find_event(connection: Connection, sequence: int) -> Row[Any] | None:
    """Returns one event; None if there is none. Raises `RecordDamaged`."""
    row = connection.execute(select(events).where(events.c.sequence == sequence)).one_or_none()
    if row is not None and not is_whole(row.body, row.digest):
        raise RecordDamaged(sequence)
    return row


class EventMatch(NamedTuple):
    """A subscription that got an event. `bindings` is JSON text or None."""

    number: int
    id: str
    sink: str | None
    protocol: str | None
    status: str
    acked: int
    bindings: str | None
    position: int


def find_matches(connection: Connection, sequence: int, *, limit: int) -> list[EventMatch]:
    """Returns the subscriptions that got an event, or got it as a retraction of another event, in the order of their
    creation. Deleted subscriptions are left out."""
    by_number = groupby(recipients_of(connection, sequence, retractions_too=True), key=lambda each: each.number)
    received = ((number, list(each)) for number, each in by_number)
    own = subscriptions.c
    query = select(own.number, own.id, own.sink, own.protocol, own.status, own.acked).order_by(own.number)
    found: list[EventMatch] = []
    size = limit
    while len(found) < limit and (got := dict(islice(received, min(size, IDS_PER_QUERY)))):
        some = subscriptions.c.number.in_(list(got))
        for row in connection.execute(query.where(some).limit(limit - len(found))):
            found += [EventMatch(*row, each.bindings, each.position) for each in got[row.number]]
        size *= 2  # some were deleted, perhaps most of them
    return found[:limit]


def first_recipients(connection: Connection, sequences: Collection[int], *, limit: int) -> dict[int, dict[int, str]]:
    """Returns, for each event, the subscriptions that `find_matches` would return, as number → id, with one read for
    all. Events without subscriptions are left out or empty."""
    received = numbers_of_recipients(connection, sequences)
    first: dict[int, list[int]] = {each: numbers[:limit].tolist() for each, numbers in received.items()}
    wanted = sorted({number for numbers in first.values() for number in numbers})
    ids: dict[int, str] = {}
    for start in range(0, len(wanted), IDS_PER_QUERY):
        rows = connection.execute(IDS, {"numbers": wanted[start : start + IDS_PER_QUERY]})
        ids |= {number: id for number, id in rows}
    found: dict[int, dict[int, str]] = {}
    for sequence, numbers in first.items():
        found[sequence] = {number: ids[number] for number in numbers if number in ids}
        if len(found[sequence]) < len(numbers):  # some were deleted
            found[sequence] = {each.number: each.id for each in find_matches(connection, sequence, limit=limit)}
    return found


def find_attempts(connection: Connection, sequence: int, *, limit: int) -> Sequence[Row[Any]]:
    """Returns the webhook attempts for an event, oldest first."""
    query = select(attempts).where(attempts.c.sequence == sequence).order_by(attempts.c.at, attempts.c.attempt)
    return connection.execute(query.limit(limit)).all()


def read_attempts(connection: Connection, subscription: int, *, limit: int) -> Sequence[Row[Any]]:
    """Returns the webhook attempts of a subscription, newest event first."""
    query = select(attempts).where(attempts.c.subscription == subscription)
    newest = query.order_by(attempts.c.sequence.desc(), attempts.c.attempt.desc()).limit(limit)
    return connection.execute(newest).all()


# ── corrections: which events are about a subject, which withdraw it, and the retraction messages ─────────────────────
#
# corrections   (source, subject) ──▶ events about it, and events that withdraw it
# retractions   position ──▶ the withdrawn event; the message at this position has the event that withdraws it


class About(NamedTuple):
    """An event that is about a subject, or withdraws it."""

    event: int
    revision: str | None


def add_correction(
    connection: Connection, source: str, subject: str, event: int, revision: str | None, *, withdraws: bool
) -> None:
    """Stores the subject that an event is about or withdraws."""
    row = {"source": source, "subject": subject, "event": event, "revision": revision, "withdraws": withdraws}
    connection.execute(insert(corrections).values(row))


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


def find_recipients(connection: Connection, sequence: int) -> list[int]:
    """Returns the numbers of the subscriptions that got an event and still exist, also of expired ones, which may be
    renewed. Retraction messages do not count."""
    numbers = [each.number for each in recipients_of(connection, sequence)]
    found: list[int] = []
    for start in range(0, len(numbers), IDS_PER_QUERY):
        some = subscriptions.c.number.in_(numbers[start : start + IDS_PER_QUERY])
        found += connection.execute(select(subscriptions.c.number).where(some)).scalars()
    return sorted(set(found))


def add_retraction(connection: Connection, position: int, withdrawn: int) -> None:
    """Stores that the message at this position is the retraction of an event."""
    found = connection.execute(select(events.c.source, events.c.id).where(events.c.sequence == withdrawn)).one()
    row = {"position": position, "event": withdrawn, "source": found.source, "id": published_id(found.id)}
    connection.execute(insert(retractions).values(row))


_STANDING = corrections.c.withdrawn_by.is_(None)


def _of(source: str, subject: str, withdraws: bool) -> Select[Any]:
    mine = (corrections.c.source == source) & (corrections.c.subject == subject)
    kind = corrections.c.withdraws if withdraws else ~corrections.c.withdraws
    return select(corrections.c.event, corrections.c.revision).where(mine, kind).order_by(corrections.c.event)
