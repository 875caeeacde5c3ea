"""Delivery state in the store: the matches after a cursor, acknowledgements, webhook attempts and notices of expiry.

Every function takes a connection and runs in the transaction of its caller. Functions that only read may use any
reader's connection. Functions that write (such as `acknowledge`, `record_progress`) must use the writer's, that is, run
inside `Broker.execute`.

    matches --MatchReader, after `acked`--> pull, stream, webhook --acknowledge, record_progress--> subscriptions.acked
    matches --too old, discard_matches--> discarded: up to where; undelivered: how many; so that no loss goes unnoticed
"""

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import groupby
from typing import Any, Literal, TypeVar

import sqlalchemy as sa
from sqlalchemy import Column, ColumnElement, Connection, Row, Select, Table, bindparam, select
from sqlalchemy.dialects import postgresql, sqlite

from kindcast.server.cloudevents import is_whole
from kindcast.server.errors import RecordDamaged
from kindcast.server.store import event_days
from kindcast.server.store import matches as match_store
from kindcast.server.store.matches import bindings_of, count_matches, discard_before, find_positions, matched_after
from kindcast.server.store.older_matches import matches as older_table
from kindcast.server.store.tables import (
    attempts,
    events,
    ledger,
    mark_of,
    match_lists,
    metadata,
    retractions,
    run_plain,
    subscriptions,
)
from kindcast.server.store.tables import expiry_notices as notices

__all__ = [
    "DISABLED",
    "NOTICE_SECONDS",
    "DeadLetter",
    "MatchReader",
    "Progress",
    "StoredMatch",
    "Subscriber",
    "acknowledge",
    "awaiting_webhooks",
    "count_undelivered",
    "discard_matches",
    "discarded",
    "due_notices",
    "end_of_log",
    "find_subscriber",
    "find_subscribers",
    "forget_notices",
    "is_dead",
    "list_dead",
    "next_attempt",
    "note_told",
    "position_before",
    "record_progress",
    "replay",
    "undelivered",
    "waits_since",
    "webhooks_wait_since",
    "with_sinks",
]

_log = logging.getLogger("kindcast.store")

T = TypeVar("T")

NUMBERS_PER_QUERY = 500
"""The maximum number of subscription numbers in one IN list. It is far below SQLite's limit of parameters, and large
enough that the other costs do not matter."""
FIRST_PORTION = 8
"""The number of events that a page reads first. PostgreSQL's driver holds all rows of a query, so one query for a whole
page could take the memory of hundreds of large events."""

SHARED_BYTES = 4 << 20
"""How much of the events that were read last is kept for the next subscription of the same transaction."""

MANY_NUMBERS = 5_000
"""For more numbers than this, all subscriptions with a sink are read instead."""

PUSHED_STATUSES = ("active", "failing")
"""The statuses in which the webhook is called. Messages of paused, disabled and expired subscriptions wait until these
are resumed or renewed."""

discarded = Table(
    "discarded",
    metadata,
    Column("subscription", sa.BigInteger, primary_key=True, autoincrement=False),
    Column("through", sa.BigInteger, nullable=False),  # its last match deleted for its age
)

undelivered = Table(
    "undelivered",
    metadata,
    Column("subscription", sa.BigInteger, primary_key=True, autoincrement=False),
    Column("matches", sa.BigInteger, nullable=False),  # deleted for their age before they were delivered
)

_START = sa.case(
    (subscriptions.c.acked > subscriptions.c.created_sequence, subscriptions.c.acked),
    else_=subscriptions.c.created_sequence,
)
"""The cursor of a subscription: the last acknowledged position, but not before its creation."""

_SUBSCRIBER = sa.select(
    subscriptions.c.number,
    subscriptions.c.id,
    subscriptions.c.status,
    subscriptions.c.expires_at,
    subscriptions.c.ticket_hash,
    subscriptions.c.created_by,
    subscriptions.c.sink,
    subscriptions.c.secret,
    subscriptions.c.protocol,
    subscriptions.c.protocolsettings,
    subscriptions.c.sinkcredential,
    subscriptions.c.consecutive_errors,
    subscriptions.c.next_attempt_at,
    subscriptions.c.status_reason,
    subscriptions.c.acked,
    subscriptions.c.last_success,
    subscriptions.c.last_failure,
    subscriptions.c.last_error,
    subscriptions.c.attributes,
    subscriptions.c.throttling,
    subscriptions.c.old_secret,
    subscriptions.c.old_secret_until,
    _START.label("start"),
    discarded.c.through.label("discarded_through"),
).join_from(subscriptions, discarded, discarded.c.subscription == subscriptions.c.number, isouter=True)


def _events_of(table: Table, subscriptions: ColumnElement[Any], *, days: bool) -> Select[Any]:
    """Selects the events at positions of a table of matches, in order. `subscriptions` is NULL if `bindings` are those
    of one match. `days`: the events are in partitions."""
    number = sa.func.coalesce(table.c.event, table.c.position)
    found = event_days.event_at(number) if days else events
    return (
        sa.select(
            found.c.sequence,
            found.c.body,
            found.c.digest,
            found.c.vocabulary_version,
            table.c.position,
            table.c.bindings,
            subscriptions.label("subscriptions"),
            retractions.c.event.label("withdrawn"),
            retractions.c.source.label("withdrawn_source"),
            retractions.c.id.label("withdrawn_id"),
        )
        .join_from(table, found, found.c.sequence == number)
        .join(retractions, retractions.c.position == table.c.position, isouter=True)
        .order_by(table.c.position)
    )


_SUBSCRIPTIONS = sa.case((match_lists.c.bindings.is_not(None), match_lists.c.subscriptions))
_EVENTS = {days: _events_of(match_lists, _SUBSCRIPTIONS, days=days) for days in (False, True)}
_OLDER_EVENTS = {days: _events_of(older_table, sa.null(), days=days) for days in (False, True)}
"""The statements by whether the events are in partitions."""

_UPDATE = (
    subscriptions.update()
    .where(subscriptions.c.number == bindparam("_number"))
    .values(
        acked=bindparam("_acked"),
        status=bindparam("_status"),
        status_reason=bindparam("_reason"),
        times_sent=subscriptions.c.times_sent + bindparam("_sent"),
        times_failed=subscriptions.c.times_failed + bindparam("_failed"),
        last_success=bindparam("_last_success"),
        last_failure=bindparam("_last_failure"),
        last_error=bindparam("_last_error"),
        consecutive_errors=bindparam("_errors"),
        next_attempt_at=bindparam("_next"),
    )
)

_ATTEMPT = attempts.insert().values(
    subscription=bindparam("_number"),
    sequence=bindparam("_sequence"),
    # The attempts of one message are numbered from 1. The numbers go on after restarts and resumptions.
    attempt=sa.select(sa.func.coalesce(sa.func.max(attempts.c.attempt), 0) + 1)
    .where(attempts.c.subscription == bindparam("_number"), attempts.c.sequence == bindparam("_sequence"))
    .scalar_subquery(),
    at=bindparam("_at"),
    outcome=bindparam("_outcome"),
    status_code=bindparam("_status_code"),
    detail=bindparam("_detail"),
)


_DISCARDED = sa.text(
    "INSERT INTO discarded (subscription, through) VALUES (:number, :through) "
    "ON CONFLICT (subscription) DO UPDATE SET through = excluded.through"
)

_UNDELIVERED = sa.text(
    "INSERT INTO undelivered (subscription, matches) VALUES (:number, :matches) "
    "ON CONFLICT (subscription) DO UPDATE SET matches = undelivered.matches + excluded.matches"
)


@dataclass(frozen=True, slots=True)
class StoredMatch:
    """One match with its event. `body` is the CloudEvent as JSON text. `bindings` is JSON text or None. `position` is
    the place of the match in the queue, and `sequence` that of the event. They differ for a late match and for a
    retraction. For a retraction, `retracted` is (sequence, source, id) of the event that the event in `body`
    withdraws."""

    position: int
    sequence: int
    body: str
    bindings: str | None
    vocabulary_version: str
    retracted: tuple[int, str, str] | None = None


Destination = tuple[str | None, str | None, dict[str, Any] | None, dict[str, Any] | None]
"""Sink, protocol, settings of the protocol, and credential."""


@dataclass(frozen=True, slots=True)
class Subscriber:
    """The columns of a subscription that delivery needs. `start` is its cursor: everything up to this position is
    acknowledged or delivered. `discarded_through` is the position of its last match that was deleted because of its
    age, if any."""

    number: int
    id: str
    status: str
    expires_at: float
    ticket_hash: str
    created_by: str | None
    sink: str | None
    secret: str | None
    protocol: str | None
    protocolsettings: dict[str, Any] | None
    sinkcredential: dict[str, Any] | None
    consecutive_errors: int
    next_attempt_at: float | None
    status_reason: str | None
    acked: int
    last_success: float | None
    last_failure: float | None
    last_error: str | None
    attributes: list[str] | None
    throttling: float | None
    old_secret: str | None
    old_secret_until: float | None
    start: int
    discarded_through: int | None

    @property
    def destination(self) -> Destination:
        """Where messages are sent, and how."""
        return self.sink, self.protocol, self.protocolsettings, self.sinkcredential


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """One webhook attempt and its effect. The members from `status` to `next_attempt_at` are the state of the
    subscription after it. `after` is the position of the message before it. A success moves a cursor that is there or
    later, and not one that a replay moved back meanwhile."""

    number: int
    after: int
    position: int
    sequence: int
    at: float
    outcome: Literal["delivered", "failed", "gone"]
    status_code: int | None
    detail: str
    status: str
    status_reason: str | None = None
    consecutive_errors: int = 0
    next_attempt_at: float | None = None
    fence: int = 0
    """The fence of the lease under which the attempt was made, if several servers share the database."""
    destination: Destination | None = None
    """Where the message was sent, and how; None if that cannot have changed."""


MOST_BEHIND = 1_000
MOST_WAITING = 100
"""`webhooks_wait_since` looks at this many subscriptions with waiting matches, among the `MOST_BEHIND` with the lowest
cursors."""


def find_subscriber(connection: Connection, key: str | int) -> Subscriber | None:
    """Returns the subscription with this id or this number."""
    condition = subscriptions.c.id == key if isinstance(key, str) else subscriptions.c.number == key
    row = connection.execute(_SUBSCRIBER.where(condition)).one_or_none()
    return None if row is None else Subscriber(**row._mapping)


def find_subscribers(connection: Connection, keys: Collection[int | str]) -> Iterator[Subscriber]:
    """Yields the subscriptions with these numbers or ids."""
    numbers = sorted(key for key in keys if isinstance(key, int))
    ids = sorted(key for key in keys if isinstance(key, str))
    for column, mine in ((subscriptions.c.number, numbers), (subscriptions.c.id, ids)):
        for some in _portions(mine):
            for row in connection.execute(_SUBSCRIBER.where(column.in_(some))):
                yield Subscriber(**row._mapping)


class MatchReader:
    """Reads the matches of some subscriptions in one transaction. An event that several of them got is read and checked
    once."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._snapshot = match_store.Snapshot(connection)
        self._has_older = self._snapshot.reach.older_from > 0
        self._read_last: dict[int, _Event] = {}
        """The events that were read last, by position, up to `SHARED_BYTES`."""
        self._bytes = 0

    def read(self, number: int, *, after: int, limit: int, byte_budget: int) -> list[StoredMatch]:
        """Returns the next matches of a subscription after a cursor, in order. There are fewer than `limit` if their
        events fill the byte budget (there is at least one), or if one is damaged: then the result ends before it. Cost:
        that of `find_positions`, and one lookup per event. Raises `RecordDamaged` if the first event is damaged."""
        found: list[StoredMatch] = []
        positions = self._snapshot.positions(number, after=after, limit=limit)
        try:
            for some in _portions(positions, FIRST_PORTION):
                for match in self._read_at(number, some):
                    found.append(match)
                    byte_budget -= len(match.body)
                    if byte_budget <= 0:
                        return found
        except RecordDamaged:
            if not found:
                raise
        return found

    def has_more(self, number: int, after: int) -> bool:
        """Whether a subscription has a match after this position."""
        return bool(self._snapshot.positions(number, after=after, limit=1))

    def _read_at(self, number: int, positions: Sequence[int]) -> Iterator[StoredMatch]:
        """Yields the matches of a subscription at these positions. It must have a match at each."""
        if not self._has_older:
            return self._shared(number, positions)
        days = event_days.has_days(self._connection)
        mine = (older_table.c.subscription == number) & older_table.c.position.in_(positions)
        older = (_Event.of(row).match(number) for row in _rows(self._connection, _OLDER_EVENTS[days].where(mine)))
        both = merge(self._shared(number, positions), older, key=_position)
        return (next(same) for _, same in groupby(both, key=_position))

    def _shared(self, number: int, positions: Sequence[int]) -> Iterator[StoredMatch]:
        if self._read_last.keys() >= set(positions):
            yield from (self._read_last[position].match(number) for position in positions)
            return
        query = _EVENTS[event_days.has_days(self._connection)].where(match_lists.c.position.in_(positions))
        for row in _rows(self._connection, query):
            event = _Event.of(row)
            self._keep(event)
            yield event.match(number)

    def _keep(self, event: "_Event") -> None:
        if self._bytes + event.size > SHARED_BYTES:
            self._read_last, self._bytes = {}, 0
        self._read_last[event.row.position] = event
        self._bytes += event.size


@dataclass(frozen=True, slots=True)
class _Event:
    """An event at a position, with the bindings of its matches by subscription. Those of an older layout are the
    bindings of one match."""

    row: Row[Any]
    bindings: Mapping[int, str | None] | None

    @classmethod
    def of(cls, row: Row[Any]) -> "_Event":
        """Raises `RecordDamaged` if the event is damaged."""
        if not is_whole(row.body, row.digest):
            raise RecordDamaged(row.sequence, row.position)
        return cls(row, None if row.subscriptions is None else bindings_of(row.subscriptions, row.bindings))

    @property
    def size(self) -> int:
        """About the bytes of its texts."""
        return len(self.row.body) + sum(len(each or "") for each in (self.bindings or {}).values())

    def match(self, number: int) -> StoredMatch:
        """Returns the match of a subscription."""
        row = self.row
        gone = None if row.withdrawn is None else (row.withdrawn, row.withdrawn_source, row.withdrawn_id)
        bindings = row.bindings if self.bindings is None else self.bindings.get(number)
        return StoredMatch(row.position, row.sequence, row.body, bindings, row.vocabulary_version, gone)


def _position(match: StoredMatch) -> int:
    return match.position


def _rows(connection: Connection, query: Select[Any]) -> Iterator[Row[Any]]:
    with connection.execute(query) as rows:
        yield from rows


def end_of_log(connection: Connection) -> int:
    """Returns the last sequence number or position that was assigned. No cursor is after it."""
    return connection.execute(sa.select(ledger.c.sequence)).scalar_one_or_none() or 0


def awaiting_webhooks(
    connection: Connection, numbers: Collection[int] | None = None, *, due_at: float | None = None
) -> list[int]:
    """Returns the subscriptions among `numbers` (None: among all) that have a sink to call and a match that waits for
    it. With `due_at`, subscriptions whose next attempt after a failure is later are left out, unless that failure is
    later, too: then the clock was set back since."""
    statement = sa.select(subscriptions.c.number, _START).where(
        subscriptions.c.sink.is_not(None), subscriptions.c.status.in_(PUSHED_STATUSES)
    )
    if due_at is not None:
        failing = (subscriptions.c.status == "failing") & (sa.func.coalesce(subscriptions.c.last_failure, 0) <= due_at)
        statement = statement.where(~(failing & (sa.func.coalesce(subscriptions.c.next_attempt_at, 0) > due_at)))
    if numbers is None or len(numbers) > MANY_NUMBERS:
        called = {
            number: start for number, start in connection.execute(statement) if numbers is None or number in numbers
        }
    else:
        called = {}
        for some in _portions(sorted(numbers)):
            rows = connection.execute(statement.where(subscriptions.c.number.in_(some)))
            called |= {number: start for number, start in rows}
    return sorted(matched_after(connection, called))


def next_attempt(connection: Connection, *, after: float) -> float | None:
    """Returns when the first attempt after `after` is planned to a sink that failed; None if there is none."""
    failing = (subscriptions.c.status == "failing") & (subscriptions.c.next_attempt_at > after)
    found: float | None = connection.execute(
        sa.select(sa.func.min(subscriptions.c.next_attempt_at)).where(failing)
    ).scalar_one()
    return found


def with_sinks(connection: Connection, numbers: Collection[int] | None) -> set[int]:
    """Returns the subscriptions among `numbers` (None: among all) that have a sink, in any status."""
    statement = sa.select(subscriptions.c.number).where(subscriptions.c.sink.is_not(None))
    if numbers is None or len(numbers) > MANY_NUMBERS:
        found = set(connection.execute(statement).scalars())
        return found if numbers is None else found & set(numbers)
    found = set()
    for some in _portions(sorted(numbers)):
        found.update(connection.execute(statement.where(subscriptions.c.number.in_(some))).scalars())
    return found


def waits_since(connection: Connection, number: int) -> float | None:
    """Returns when the oldest event that waits for a subscription was accepted; None if none waits. Cost: that of
    `find_positions`, and some lookups. The event is not read."""
    subscriber = find_subscriber(connection, number)
    if subscriber is None:
        return None
    positions = find_positions(connection, number, after=subscriber.start, limit=1)
    if not positions:
        return None
    sequence = _event_at(connection, number, positions[0])
    accepted = sa.select(events.c.accepted_at).where(events.c.sequence == sequence)
    return connection.execute(accepted).scalar_one_or_none()


def _event_at(connection: Connection, number: int, position: int) -> int:
    """Returns the sequence number of the event that a subscription has at a position, without reading the event."""
    found = sa.select(match_lists.c.event).where(match_lists.c.position == position).limit(1)
    row = connection.execute(found).one_or_none()
    if row is None and match_store.has_older(connection):
        mine = (older_table.c.subscription == number) & (older_table.c.position == position)
        row = connection.execute(sa.select(older_table.c.event).where(mine).limit(1)).one_or_none()
    return position if row is None or row.event is None else int(row.event)


def webhooks_wait_since(connection: Connection) -> float | None:
    """Returns when the oldest event that waits for any webhook was accepted; None if none waits. Only webhooks that may
    be called count. To bound the cost, it looks at the 1,000 subscriptions with the lowest cursors, and among those at
    the first 100 that have waiting matches."""
    pushed = sa.select(subscriptions.c.number, _START.label("start")).where(
        subscriptions.c.sink.is_not(None), subscriptions.c.status.in_(PUSHED_STATUSES)
    )
    behind = {number: start for number, start in connection.execute(pushed.order_by("start").limit(MOST_BEHIND))}
    waiting = sorted(matched_after(connection, behind), key=lambda number: behind[number])
    found = (waits_since(connection, number) for number in waiting[:MOST_WAITING])
    return min((each for each in found if each is not None), default=None)


def acknowledge(connection: Connection, asked: Iterable[tuple[Subscriber, int]]) -> list[int]:
    """Moves the cursors of subscriptions forward to a position, never back. Returns the cursors. Updates the totals of
    the ledger."""
    snapshot, delivered, cursors, told = match_store.Snapshot(connection), 0, dict[int, int](), list[int]()
    for subscriber, position in asked:
        start = cursors.get(subscriber.number, subscriber.start)
        if position > start:
            delivered += snapshot.count(subscriber.number, after=start, through=position)
            start = cursors[subscriber.number] = position
        told.append(start)
    if cursors:
        connection.execute(ledger.update().values(delivered=ledger.c.delivered + delivered))
        mark = mark_of(connection)
        statement = f"UPDATE {subscriptions.name} SET acked = {mark} WHERE number = {mark}"
        run_plain(connection, statement, [(cursor, number) for number, cursor in cursors.items()])
    return told


def replay(connection: Connection, number: int, position: int) -> int:
    """Moves the cursor back to `position`, or to the first message that is kept. Returns the cursor. Updates the totals
    of the ledger. The failures of the webhook are reset, whether the cursor moves or not."""
    subscriber = find_subscriber(connection, number)
    assert subscriber is not None
    first = connection.execute(sa.select(subscriptions.c.created_sequence).where(subscriptions.c.number == number))
    start: int = max(position, first.scalar_one(), subscriber.discarded_through or 0)
    again: dict[str, Any] = {"consecutive_errors": 0, "next_attempt_at": None}
    if start < subscriber.start:
        undone = count_matches(connection, number, after=start, through=subscriber.start)
        connection.execute(ledger.update().values(delivered=ledger.c.delivered - undone))
        again["acked"] = start
    connection.execute(subscriptions.update().where(subscriptions.c.number == number).values(again))
    return min(start, subscriber.start)


def position_before(connection: Connection, moment: float) -> int:
    """Returns the position after which everything was accepted at `moment` or later. Cost: some forty lookups by
    key."""
    low, high = 0, end_of_log(connection)
    while low < high:  # all events up to `low` are earlier, none after `high` is
        middle = (low + high) // 2
        following = sa.select(events.c.sequence, events.c.accepted_at).where(events.c.sequence > middle)
        found = connection.execute(following.order_by(events.c.sequence).limit(1)).one_or_none()
        if found is None or found.accepted_at >= moment:
            high = middle
        else:
            low = found.sequence
    return low


def record_progress(connection: Connection, progress: Iterable[Progress]) -> set[int]:
    """Stores webhook attempts; those of one subscription must be in order. Moves the cursors, updates the counters and
    keeps the last failure. Returns the numbers of the subscriptions whose status changed.

    A status that was set meanwhile (paused, expired) stays. Nothing is stored for a subscription that was deleted
    meanwhile. Cost: a few statements, two rows written per subscription and one per attempt.
    """
    attempted: dict[int, list[Progress]] = {}
    for each in progress:
        attempted.setdefault(each.number, []).append(each)
    changed: set[int] = set()
    updates: list[dict[str, Any]] = []
    delivered = 0
    rescued: Counter[int] = Counter()
    for subscriber in find_subscribers(connection, attempted):
        steps = attempted[subscriber.number]
        state = _state_after(subscriber, steps)
        if state["_status"] != subscriber.status:
            changed.add(subscriber.number)
        # Every match up to the last delivered one was delivered here, or acknowledged by the subscriber and counted
        # then.
        cursor = subscriber.start
        for step in steps:
            if step.outcome == "delivered" and step.after <= cursor < step.position:
                cursor = step.position
                delivered += 1
                # It was deleted because of its age while it was under way, and counted as discarded then.
                rescued[subscriber.number] += step.position <= (subscriber.discarded_through or 0)
        updates.append(_counters(subscriber, steps) | state | {"_acked": cursor})
    if updates:
        connection.execute(_UPDATE, updates)
        known = {update["_number"] for update in updates}
        connection.execute(_ATTEMPT, [_attempt(step) for number in known for step in attempted[number]])
        connection.execute(ledger.update().values(delivered=ledger.c.delivered + delivered))
    _count_rescued(connection, +rescued)
    return changed


def discard_matches(connection: Connection, before: int) -> int:
    """Deletes all matches below the position `before`, which `end_of_discard` returned. Stores the last deleted match
    of each subscription, so that a reader with an older cursor is told of the loss, and how many were pending. Returns
    how many of all matches were pending."""
    lost = discard_before(connection, before)
    if lost:
        connection.execute(_DISCARDED, [{"number": number, "through": each} for number, (each, _) in lost.items()])
    pending = {number: count for number, (_, count) in lost.items() if count}
    if pending:
        connection.execute(_UNDELIVERED, [{"number": number, "matches": count} for number, count in pending.items()])
        webhooks = with_sinks(connection, pending)
        if webhooks:
            count = sum(pending[number] for number in webhooks)
            _log.warning(
                "%d messages of %d subscriptions with a sink were deleted because of their age, undelivered",
                count,
                len(webhooks),
            )
    return sum(pending.values())


def _count_rescued(connection: Connection, rescued: Mapping[int, int]) -> None:
    """Takes matches that were delivered after all off the counts of discarded ones: how many of each subscription."""
    if not rescued:
        return
    connection.execute(ledger.update().values(discarded=ledger.c.discarded - sum(rescued.values())))
    connection.execute(_UNDELIVERED, [{"number": each, "matches": -count} for each, count in rescued.items()])


def count_undelivered(connection: Connection, number: int) -> int:
    """Returns how many matches of a subscription were deleted because of their age before they were delivered."""
    found = connection.execute(sa.select(undelivered.c.matches).where(undelivered.c.subscription == number))
    return found.scalar_one_or_none() or 0


def _counters(subscriber: Subscriber, steps: Sequence[Progress]) -> dict[str, Any]:
    """Returns the parameters of `_UPDATE` that count attempts and keep the last ones."""
    successes = [step for step in steps if step.outcome == "delivered"]
    failures = [step for step in steps if step.outcome != "delivered"]
    return {
        "_number": subscriber.number,
        "_sent": len(steps),
        "_failed": len(failures),
        "_last_success": successes[-1].at if successes else subscriber.last_success,
        "_last_failure": failures[-1].at if failures else subscriber.last_failure,
        "_last_error": failures[-1].detail if failures else subscriber.last_error,
    }


def _state_after(subscriber: Subscriber, steps: Sequence[Progress]) -> dict[str, Any]:
    """Returns the parameters of `_UPDATE` with the status and the next attempt. The last step decides, unless it is a
    failure at another destination than the present one, or a replay reset the failures while the attempt was under
    way."""
    last = steps[-1]
    before = 0 if any(step.outcome == "delivered" for step in steps) else subscriber.consecutive_errors
    moved = last.outcome != "delivered" and last.destination not in (None, subscriber.destination)
    state: Progress | Subscriber = subscriber if moved or last.consecutive_errors > before + 1 else last
    told: Progress | Subscriber = state if subscriber.status in PUSHED_STATUSES else subscriber
    return {
        "_status": told.status,
        "_reason": told.status_reason,
        "_errors": state.consecutive_errors,
        "_next": state.next_attempt_at,
    }


def _attempt(step: Progress) -> dict[str, Any]:
    """Returns the parameters of `_ATTEMPT`."""
    return {
        "_number": step.number,
        "_sequence": step.sequence,
        "_at": step.at,
        "_outcome": step.outcome,
        "_status_code": step.status_code,
        "_detail": step.detail,
    }


def _portions(numbers: Sequence[T], first: int = NUMBERS_PER_QUERY) -> Iterator[Sequence[T]]:
    """Yields the numbers in portions: `first` numbers, then four times as many each time, up to `NUMBERS_PER_QUERY`."""
    start, size = 0, first
    while start < len(numbers):
        yield numbers[start : start + size]
        start, size = start + size, min(4 * size, NUMBERS_PER_QUERY)


# ── dead letters ──────────────────────────────────────────────────────────────────────────────────────────────────────
# Dead letters are the matches of a webhook that was disabled by its failures. They are sent only on request.
#
# Dead letters are the matches after the cursor. Only the status of the subscription distinguishes them from pending
# matches. So no row of a match changes when a webhook is disabled or enabled.

DISABLED = "disabled_by_failures"


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A match that was not delivered, and its subscription."""

    subscriber: Subscriber
    match: StoredMatch


def is_dead() -> ColumnElement[bool]:
    """Whether the waiting matches of a subscription are dead letters."""
    return subscriptions.c.status == DISABLED


def list_dead(
    connection: Connection,
    *,
    after: tuple[int, int],
    limit: int,
    byte_budget: int,
    is_visible: Callable[[int], bool],
    only: str | None = None,
) -> list[DeadLetter]:
    """Returns the next dead letters after (number of a subscription, position), in that order, of the subscriptions
    that are visible. With `only`, those of the subscription with this id. There are fewer than `limit` if their events
    fill the byte budget (there is at least one)."""
    number, position = after
    query = select(subscriptions.c.number).where(is_dead(), subscriptions.c.number >= number)
    if only is not None:
        query = query.where(subscriptions.c.id == only)
    found: list[DeadLetter] = []
    reader = MatchReader(connection)
    for each in connection.execute(query.order_by(subscriptions.c.number)).scalars().all():
        if not is_visible(each):
            continue
        subscriber = find_subscriber(connection, each)
        assert subscriber is not None, each
        start = max(subscriber.start, position) if each == number else subscriber.start
        left = limit - len(found)
        try:
            matches = reader.read(each, after=start, limit=left, byte_budget=byte_budget)
        except RecordDamaged:
            continue  # its subscriber is told, and `/readyz` after the next start
        found += (DeadLetter(subscriber, match) for match in matches)
        byte_budget -= sum(len(match.body) for match in matches)
        if len(found) >= limit or byte_budget <= 0:
            break
    return found


# ── sent notices of expiry: one row per notice, with the announced end ────────────────────────────────────────────────


NOTICE_SECONDS = 86_400.0
"""How long before the end a notice is sent. A subscription with a shorter total lifetime gets none. A subscription that
is renewed repeatedly for less gets one notice per such period."""


def due_notices(connection: Connection, now: float, after: tuple[float, int], limit: int) -> list[tuple[float, int]]:
    """Returns (end time, number) of the subscriptions with a sink that end within a day of `now` and whose notice was
    not sent yet, in order, those after `after`. Cost: a scan of all subscriptions."""
    of, told = subscriptions.c, notices.c
    statement = (
        sa.select(of.expires_at, of.number)
        .outerjoin(notices, told.subscription == of.number)
        .where(
            of.sink.is_not(None),
            of.status.in_(PUSHED_STATUSES),
            of.expires_at > now,
            of.expires_at <= now + NOTICE_SECONDS,
            of.expires_at > of.created_at + NOTICE_SECONDS,
            sa.tuple_(of.expires_at, of.number) > sa.tuple_(sa.literal(after[0]), sa.literal(after[1])),
            told.subscription.is_(None) | ((told.ends_at != of.expires_at) & (told.told_at <= now - NOTICE_SECONDS)),
        )
        .order_by(of.expires_at, of.number)
        .limit(limit)
    )
    return [(end, number) for end, number in connection.execute(statement)]


def note_told(connection: Connection, told: Iterable[tuple[int, float]], now: float) -> None:
    """Stores that these notices were sent: (subscription, announced end time)."""
    dialect = sqlite if connection.dialect.name == "sqlite" else postgresql
    rows = [{"subscription": number, "ends_at": ends_at, "told_at": now} for number, ends_at in told]
    statement = dialect.insert(notices)
    changed = {"ends_at": statement.excluded.ends_at, "told_at": statement.excluded.told_at}
    connection.execute(statement.on_conflict_do_update(index_elements=["subscription"], set_=changed), rows)


def forget_notices(connection: Connection) -> None:
    """Deletes the rows of deleted subscriptions."""
    there = sa.select(subscriptions.c.number).where(subscriptions.c.number == notices.c.subscription)
    connection.execute(notices.delete().where(~there.exists()))
