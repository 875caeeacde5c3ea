"""What waits for a subscriber, and what became of it: the matches after a cursor, acknowledgements, webhook attempts.

Every function takes a connection and runs in the transaction of its caller: reading ones on any reader's connection,
writing ones (`acknowledge`, `record_progress`) only on the writer's, that is, inside `Broker.execute`.

    matches --read_matches, after `acked`--> pull, stream, webhook --acknowledge, record_progress--> subscriptions.acked
    matches --discard_through, too old--> gaps: who lost something unread, so that nobody resumes silently after a loss
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import sqlalchemy as sa
from sqlalchemy import Column, Connection, Table

from server.store.tables import attempts, events, ledger, matches, metadata, subscriptions

__all__ = [
    "Progress",
    "StoredMatch",
    "Subscriber",
    "acknowledge",
    "awaiting_webhooks",
    "discard_through",
    "end_of_log",
    "find_subscriber",
    "gaps",
    "read_matches",
    "record_progress",
]

NUMBERS_PER_QUERY = 500
"""Subscription numbers in one IN list: far below SQLite's limit of parameters, and enough to make the rest cheap."""

PUSHED_STATUSES = ("active", "failing")
"""Of a subscription whose webhook is called; paused, disabled and expired ones wait until they are resumed or
renewed."""

gaps = Table(
    "gaps",
    metadata,
    Column("subscription", sa.BigInteger, primary_key=True, autoincrement=False),
    Column("through", sa.BigInteger, nullable=False),  # the last match that was discarded before it was acknowledged
)


_START = sa.case(
    (subscriptions.c.acked > subscriptions.c.created_sequence, subscriptions.c.acked),
    else_=subscriptions.c.created_sequence,
)
"""The cursor of a subscription: what it acknowledged, and nothing from before its time."""

_SUBSCRIBER = sa.select(
    subscriptions.c.number,
    subscriptions.c.id,
    subscriptions.c.status,
    subscriptions.c.expires_at,
    subscriptions.c.ticket_hash,
    subscriptions.c.sink,
    subscriptions.c.secret,
    subscriptions.c.protocolsettings,
    subscriptions.c.sinkcredential,
    subscriptions.c.consecutive_errors,
    subscriptions.c.next_attempt_at,
    _START.label("start"),
    gaps.c.through.label("lost_through"),
).join_from(subscriptions, gaps, gaps.c.subscription == subscriptions.c.number, isouter=True)

_MATCHES = (
    sa.select(matches.c.sequence, events.c.body, matches.c.bindings, events.c.vocabulary_version)
    .join_from(matches, events, events.c.sequence == matches.c.sequence)
    .order_by(matches.c.sequence)
)


@dataclass(frozen=True, slots=True)
class StoredMatch:
    """One match with its event: `body` is the CloudEvent as JSON text, `bindings` JSON text or None."""

    sequence: int
    body: str
    bindings: str | None
    vocabulary_version: str


@dataclass(frozen=True, slots=True)
class Subscriber:
    """A subscription, as far as delivery needs it. `start` is its cursor: acknowledged, or delivered, up to there.
    `lost_through`: the last match that grew too old before it was acknowledged."""

    number: int
    id: str
    status: str
    expires_at: float
    ticket_hash: str
    sink: str | None
    secret: str | None
    protocolsettings: dict[str, Any] | None
    sinkcredential: dict[str, Any] | None
    consecutive_errors: int
    next_attempt_at: float | None
    start: int
    lost_through: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """One webhook attempt and what it changes: `status`, `status_reason` and `next_attempt_at` are those afterwards."""

    number: int
    sequence: int
    at: float
    outcome: Literal["delivered", "failed", "gone"]
    status_code: int | None
    detail: str
    status: str
    status_reason: str | None = None
    next_attempt_at: float | None = None


def find_subscriber(connection: Connection, key: str | int) -> Subscriber | None:
    """The subscription of this id, or of this number."""
    condition = subscriptions.c.id == key if isinstance(key, str) else subscriptions.c.number == key
    row = connection.execute(_SUBSCRIBER.where(condition)).one_or_none()
    return None if row is None else Subscriber(**row._mapping)


def read_matches(connection: Connection, number: int, *, after: int, limit: int, byte_budget: int) -> list[StoredMatch]:
    """The next matches of a subscription after a cursor, in order. Fewer than `limit` when their events fill the byte
    budget (at least one comes). Cost: one walk of the key (subscription, sequence), and an event looked up for each."""
    statement = _MATCHES.where(matches.c.subscription == number, matches.c.sequence > after).limit(limit)
    found: list[StoredMatch] = []
    with connection.execute(statement) as rows:
        for row in rows:
            found.append(StoredMatch(row.sequence, row.body, row.bindings, row.vocabulary_version))
            byte_budget -= len(row.body)
            if byte_budget <= 0:
                break
    return found


def end_of_log(connection: Connection) -> int:
    """The sequence of the last event accepted; no cursor is beyond it."""
    return connection.execute(sa.select(ledger.c.sequence)).scalar_one_or_none() or 0


def oldest_event(connection: Connection) -> int:
    """The sequence of the oldest event still kept, or of the next one to come."""
    oldest = connection.execute(sa.select(sa.func.min(events.c.sequence))).scalar_one()
    return end_of_log(connection) + 1 if oldest is None else int(oldest)


def awaiting_webhooks(connection: Connection, numbers: Collection[int] | None = None) -> list[int]:
    """Which of these subscriptions (of all, when None) have a sink to be called and a match that waits for it."""
    waits = sa.exists().where(
        matches.c.subscription == subscriptions.c.number,
        matches.c.sequence > _START,
    )
    statement = sa.select(subscriptions.c.number).where(
        subscriptions.c.sink.is_not(None), subscriptions.c.status.in_(PUSHED_STATUSES), waits
    )
    if numbers is None:
        return list(connection.execute(statement).scalars())
    found: list[int] = []
    for some in _portions(sorted(numbers)):
        found += connection.execute(statement.where(subscriptions.c.number.in_(some))).scalars()
    return found


def acknowledge(connection: Connection, subscriber: Subscriber, sequence: int) -> int:
    """Moves the cursor forward to `sequence`, never back; returns where it stands. Keeps the ledger's sum."""
    if sequence <= subscriber.start:
        return subscriber.start
    _count_delivered(connection, subscriber.number, subscriber.start, sequence)
    connection.execute(subscriptions.update().where(subscriptions.c.number == subscriber.number).values(acked=sequence))
    return sequence


def record_progress(connection: Connection, progress: Sequence[Progress]) -> set[int]:
    """Writes down webhook attempts, several of one subscription in their order: moves cursors, counts, keeps the last
    failure. Returns the numbers of the subscriptions whose status changed.

    A status that a person chose meanwhile (paused, expired) stays; of a subscription deleted meanwhile nothing is kept.
    """
    changed: set[int] = set()
    for each in progress:
        subscriber = find_subscriber(connection, each.number)
        if subscriber is None:
            continue
        pushed = subscriber.status in PUSHED_STATUSES
        status = each.status if pushed else subscriber.status
        values: dict[Any, Any] = {"times_sent": subscriptions.c.times_sent + 1}
        if each.outcome == "delivered":
            acknowledge(connection, subscriber, each.sequence)
            values |= {"last_success": each.at, "consecutive_errors": 0, "next_attempt_at": None}
        else:
            values |= {
                "times_failed": subscriptions.c.times_failed + 1,
                "last_failure": each.at,
                "last_error": each.detail,
                "consecutive_errors": subscriptions.c.consecutive_errors + 1,
                "next_attempt_at": each.next_attempt_at,
            }
        if status != subscriber.status:
            changed.add(each.number)
            values |= {"status": status, "status_reason": each.status_reason}
        connection.execute(subscriptions.update().where(subscriptions.c.number == each.number).values(values))
        _record_attempt(connection, each)
    return changed


def discard_through(connection: Connection, sequence: int) -> int:
    """Deletes the matches of all events up to `sequence`, which are too old to keep; returns how many of them nobody
    had acknowledged, and remembers who lost them. For the sweep that deletes the events themselves; keeps no
    ledger."""
    lost = (
        sa.select(matches.c.subscription, sa.func.max(matches.c.sequence), sa.func.count())
        .join(subscriptions, subscriptions.c.number == matches.c.subscription)
        .where(matches.c.sequence <= sequence, matches.c.sequence > _START)
        .group_by(matches.c.subscription)
    )
    losers = connection.execute(lost).all()
    for number, through, _ in losers:
        connection.execute(gaps.delete().where(gaps.c.subscription == number))
        connection.execute(gaps.insert().values(subscription=number, through=through))
    connection.execute(matches.delete().where(matches.c.sequence <= sequence))
    connection.execute(attempts.delete().where(attempts.c.sequence <= sequence))
    return sum(count for _, _, count in losers)


def _count_delivered(connection: Connection, number: int, after: int, through: int) -> None:
    """Books matches as delivered in the ledger, whose parts must add up."""
    delivered = connection.execute(
        sa.select(sa.func.count())
        .select_from(matches)
        .where(matches.c.subscription == number, matches.c.sequence > after, matches.c.sequence <= through)
    ).scalar_one()
    connection.execute(ledger.update().values(delivered=ledger.c.delivered + delivered))


def _record_attempt(connection: Connection, progress: Progress) -> None:
    """Attempts of one message are numbered from 1, on through restarts and resumptions."""
    key = (attempts.c.subscription == progress.number, attempts.c.sequence == progress.sequence)
    last = connection.execute(sa.select(sa.func.max(attempts.c.attempt)).where(*key)).scalar_one()
    connection.execute(
        attempts.insert().values(
            subscription=progress.number,
            sequence=progress.sequence,
            attempt=(last or 0) + 1,
            at=progress.at,
            outcome=progress.outcome,
            status_code=progress.status_code,
            detail=progress.detail,
        )
    )


def _portions(numbers: Sequence[int]) -> Iterable[Sequence[int]]:
    for start in range(0, len(numbers), NUMBERS_PER_QUERY):
        yield numbers[start : start + NUMBERS_PER_QUERY]
