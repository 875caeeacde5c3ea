"""What waits for a subscriber, and what became of it: the matches after a cursor, acknowledgements, webhook attempts.

Every function takes a connection and runs in the transaction of its caller: reading ones on any reader's connection,
writing ones (`acknowledge`, `record_progress`) only on the writer's, that is, inside `Broker.execute`.

    matches --read_matches, after `acked`--> pull, stream, webhook --acknowledge, record_progress--> subscriptions.acked
    matches --too old, remember_discards--> discarded: up to where, so that nobody resumes silently after a loss
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
    "discarded",
    "end_of_log",
    "find_subscriber",
    "read_matches",
    "record_progress",
    "remember_discards",
]

NUMBERS_PER_QUERY = 500
"""Subscription numbers in one IN list: far below SQLite's limit of parameters, and enough to make the rest cheap."""

PUSHED_STATUSES = ("active", "failing")
"""Of a subscription whose webhook is called; paused, disabled and expired ones wait until they are resumed or
renewed."""

discarded = Table(
    "discarded",
    metadata,
    Column("subscription", sa.BigInteger, primary_key=True, autoincrement=False),
    Column("through", sa.BigInteger, nullable=False),  # the last match of it that was deleted for its age
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
    discarded.c.through.label("discarded_through"),
).join_from(subscriptions, discarded, discarded.c.subscription == subscriptions.c.number, isouter=True)

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
    `discarded_through`: the last match of it that grew too old and is gone, if any."""

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
    discarded_through: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """One webhook attempt and what it changes: the last four are the state of the subscription afterwards."""

    number: int
    sequence: int
    at: float
    outcome: Literal["delivered", "failed", "gone"]
    status_code: int | None
    detail: str
    status: str
    status_reason: str | None = None
    consecutive_errors: int = 0
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


def record_progress(connection: Connection, progress: Iterable[Progress]) -> set[int]:
    """Writes down webhook attempts, those of one subscription in their order: moves cursors, counts, keeps the last
    failure. Returns the numbers of the subscriptions whose status changed.

    A status that was chosen meanwhile (paused, expired) stays; of a subscription deleted meanwhile nothing is kept.
    Cost: a few statements per subscription, however many attempts, and a row per attempt.
    """
    attempted: dict[int, list[Progress]] = {}
    for each in progress:
        attempted.setdefault(each.number, []).append(each)
    changed: set[int] = set()
    for number, steps in attempted.items():
        subscriber = find_subscriber(connection, number)
        if subscriber is None:
            continue
        if delivered := [step.sequence for step in steps if step.outcome == "delivered"]:
            acknowledge(connection, subscriber, delivered[-1])
        values = _counters(steps)
        if subscriber.status in PUSHED_STATUSES and subscriber.status != steps[-1].status:
            changed.add(number)
            values |= {"status": steps[-1].status, "status_reason": steps[-1].status_reason}
        connection.execute(subscriptions.update().where(subscriptions.c.number == number).values(values))
        _record_attempts(connection, number, steps)
    return changed


def remember_discards(connection: Connection, before: int) -> int:
    """To be called before the matches of all events below `before` are deleted for their age: remembers, for each
    subscription, the last one it loses, so that a reader whose cursor is older learns of it. Returns how many of them
    are pending. Cost: one look into the key of `matches` for each subscription."""
    theirs = (matches.c.subscription == subscriptions.c.number) & (matches.c.sequence < before)
    last = sa.select(sa.func.max(matches.c.sequence)).where(theirs).scalar_subquery()
    waiting = matches.c.sequence > subscriptions.c.acked
    pending = sa.select(sa.func.count()).select_from(matches).where(theirs, waiting).scalar_subquery()
    # Subqueries, because as a join SQLite would walk through all matches, the new ones too.
    found = [row for row in connection.execute(sa.select(subscriptions.c.number, last, pending)) if row[1] is not None]
    if found:
        known = discarded.c.subscription == sa.bindparam("number")
        connection.execute(discarded.delete().where(known), [{"number": number} for number, _, _ in found])
        rows = [{"subscription": number, "through": through} for number, through, _ in found]
        connection.execute(discarded.insert(), rows)
    return sum(count for _, _, count in found)


def _count_delivered(connection: Connection, number: int, after: int, through: int) -> None:
    """Books matches as delivered in the ledger, whose parts must add up."""
    delivered = connection.execute(
        sa.select(sa.func.count())
        .select_from(matches)
        .where(matches.c.subscription == number, matches.c.sequence > after, matches.c.sequence <= through)
    ).scalar_one()
    connection.execute(ledger.update().values(delivered=ledger.c.delivered + delivered))


def _counters(steps: Sequence[Progress]) -> dict[str, Any]:
    """The columns of a subscription that count and describe its attempts, after these."""
    successes = [step for step in steps if step.outcome == "delivered"]
    failures = [step for step in steps if step.outcome != "delivered"]
    values: dict[str, Any] = {
        "times_sent": subscriptions.c.times_sent + len(steps),
        "times_failed": subscriptions.c.times_failed + len(failures),
        "consecutive_errors": steps[-1].consecutive_errors,
        "next_attempt_at": steps[-1].next_attempt_at,
    }
    if successes:
        values["last_success"] = successes[-1].at
    if failures:
        values |= {"last_failure": failures[-1].at, "last_error": failures[-1].detail}
    return values


def _record_attempts(connection: Connection, number: int, steps: Sequence[Progress]) -> None:
    """Attempts of one message are numbered from 1, on through restarts and resumptions."""
    first, last = min(step.sequence for step in steps), max(step.sequence for step in steps)
    known = connection.execute(
        sa.select(attempts.c.sequence, sa.func.max(attempts.c.attempt))
        .where(attempts.c.subscription == number, attempts.c.sequence.between(first, last))
        .group_by(attempts.c.sequence)
    )
    counts: dict[int, int] = {sequence: count for sequence, count in known}
    rows: list[dict[str, Any]] = []
    for step in steps:
        counts[step.sequence] = counts.get(step.sequence, 0) + 1
        rows.append(
            {
                "subscription": number,
                "sequence": step.sequence,
                "attempt": counts[step.sequence],
                "at": step.at,
                "outcome": step.outcome,
                "status_code": step.status_code,
                "detail": step.detail,
            }
        )
    connection.execute(attempts.insert(), rows)


def _portions(numbers: Sequence[int]) -> Iterable[Sequence[int]]:
    for start in range(0, len(numbers), NUMBERS_PER_QUERY):
        yield numbers[start : start + NUMBERS_PER_QUERY]
