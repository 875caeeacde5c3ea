"""Shards of the subscriptions, on PostgreSQL: the place of each shard in the log, and the log of changes of
subscriptions.

    shards          a row for each: events up to `position` are matched, changes up to `applied` are in its stored state
    shard_changes   each change of a subscription, in order: what it was before, and what it is after the events up to
                    a position. Kept until its shard has passed it

A subscription is in the shard of its number modulo the number of shards. Its row has its present state. To get the
state at the place of a shard, the later changes are undone. So the change of a deleted row keeps its tree.
"""

import logging
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Double,
    Index,
    Integer,
    Row,
    String,
    Table,
    Text,
    delete,
    insert,
    select,
    update,
)

from kindcast.server.errors import StoreInUse
from kindcast.server.store import subscriptions as subscription_rows
from kindcast.server.store.events import list_events
from kindcast.server.store.servers import leases, metadata, read_ledger
from kindcast.server.store.tables import insert_rows, subscriptions

__all__ = [
    "PAGE",
    "Lag",
    "Page",
    "Place",
    "ShardChange",
    "StoredSubscription",
    "as_it_was",
    "begin",
    "clean",
    "deleted_after",
    "find_place",
    "first_unmatched",
    "lags",
    "lease_of",
    "log_changes",
    "move",
    "page_after",
]

_log = logging.getLogger("kindcast.store")

shards = Table(
    "shards",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("position", BigInteger, nullable=False),  # the last matched event
    Column("applied", BigInteger, nullable=False),  # the last applied row of `shard_changes`
)

shard_changes = Table(
    "shard_changes",
    metadata,
    Column("number", BigInteger, primary_key=True, autoincrement=True),
    Column("position", BigInteger, nullable=False),  # it applies to the events after this one
    Column("shard", Integer, nullable=False),
    Column("subscription", BigInteger, nullable=False),
    Column("id", String, nullable=False),
    Column("was_matching", Boolean, nullable=False),
    Column("was_end", Double, nullable=False),
    Column("matching", Boolean, nullable=False),
    Column("ends_at", Double, nullable=False),
    Column("tree", Text),  # of a deleted subscription
    Index("shard_changes_shard", "shard", "number"),
)

PAGE = 1_000
"""The maximum number of events, or of changes, that a shard reads at one time."""


class Place(NamedTuple):
    """The place of a shard in the log: the last event that it matched, and the last change that it applied."""

    position: int
    applied: int


class ShardChange(NamedTuple):
    """A change of a subscription, after the events up to `position`. `tree` is JSON text if the subscription was
    deleted."""

    position: int
    subscription: int
    id: str
    was_matching: bool
    was_end: float
    matching: bool
    ends_at: float
    tree: str | None = None


class StoredSubscription(NamedTuple):
    """A subscription that matches at the place of a shard."""

    number: int
    id: str
    ends_at: float
    tree: Any


class Page(NamedTuple):
    """The next part of the log. `changes` are those before the last event, by number, or all if there are no events.
    `trees` has the trees of the subscriptions that begin to match. `commits` is the commit at which the page was
    read."""

    events: Sequence[Row[Any]]
    changes: Sequence[tuple[int, ShardChange]]
    trees: Mapping[int, Any]
    commits: int


class Lag(NamedTuple):
    """How far a shard is behind: the number of events that wait, and when the oldest of them was accepted. `server`
    holds the shard."""

    shard: int
    position: int
    events: int
    oldest: float | None
    server: str | None


def lease_of(shard: int) -> int:
    """Returns the key in `leases`, instead of a subscription, for a shard."""
    return -1 - shard


# ── the number of shards ────────────────────────────────────────────────────────────────────────────────────────────


def begin(connection: Connection, count: int | None, *, alone: bool) -> None:
    """Divides the subscriptions into `count` shards, or into none, if the database has another number of shards. All
    its events must be matched: without shards that was done when they were published. Raises `StoreInUse` if a shard
    has yet to match events, or if the server is not `alone`, that is, if other servers use the database."""
    there = len(connection.execute(select(shards.c.number)).all())
    if there == (count or 0):
        return
    asked = "without shards" if count is None else f"with {count}"
    if not alone and there:
        raise StoreInUse(
            f"other servers use the database with {there} shards, and this server was started {asked}: use --shards "
            f"{there}, or stop the other servers to change the number"
        )
    if not alone:
        raise StoreInUse("other servers use the database without shards: stop them first")
    if there and first_unmatched(connection) is not None:
        raise StoreInUse(
            f"the database has {there} shards that have yet to match some events, and this server was started {asked}: "
            f"use --shards {there} until `kindcast status` shows that no shard is behind; then change the number"
        )
    for table in (shard_changes, shards):
        connection.execute(delete(table))
    connection.execute(delete(leases).where(leases.c.subscription < 0))
    last = read_ledger(connection).sequence
    if count:
        connection.execute(insert(shards), [{"number": each, "position": last, "applied": 0} for each in range(count)])
    if there:
        _log.warning("the subscriptions are now divided into %s shards instead of %d", count or "no", there)


# ── the log ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def log_changes(connection: Connection, changes: Iterable[ShardChange], count: int) -> None:
    """Appends changes to the log. Must run in a group."""
    columns = ("shard", *ShardChange._fields)
    insert_rows(connection, shard_changes.name, columns, [(each.subscription % count, *each) for each in changes])


def page_after(connection: Connection, shard: int, place: Place) -> Page:
    """Returns the next events and changes for a shard. Raises `RecordDamaged` if the next event is damaged."""
    found = list_events(connection, after=place.position, type=None, limit=PAGE)
    mine = (shard_changes.c.shard == shard) & (shard_changes.c.number > place.applied)
    query = select(shard_changes).where(mine).order_by(shard_changes.c.number)
    query = query.where(shard_changes.c.position < found[-1].sequence) if found else query.limit(PAGE)
    changes = [(row.number, _change(row)) for row in connection.execute(query)]
    entering = {each.subscription for _, each in changes if each.matching}
    return Page(found, changes, _trees(connection, entering), read_ledger(connection).commits)


def _change(row: Row[Any]) -> ShardChange:
    return ShardChange(*(getattr(row, name) for name in ShardChange._fields))


def _trees(connection: Connection, numbers: Collection[int]) -> dict[int, Any]:
    """Returns the trees of these subscriptions, also of deleted ones."""
    wanted = sorted(numbers)
    found = {row.number: row.tree for row in subscription_rows.trees(connection, live_only=False, numbers=wanted)}
    gone = [number for number in wanted if number not in found]
    if gone:
        deleted = "SELECT subscription, tree FROM shard_changes WHERE subscription = ANY(%s) AND tree IS NOT NULL"
        rows = connection.exec_driver_sql(deleted, (gone,))
        found.update((number, msgspec.json.decode(tree)) for number, tree in rows)
    return found


def as_it_was(connection: Connection, shard: int, count: int, applied: int) -> Generator[StoredSubscription]:
    """Yields the subscriptions of a shard that match after the change `applied`: the rows with later changes undone.
    A caller that may stop before the end must close it."""
    later: dict[int, Row[Any]] = {}
    newer = (shard_changes.c.shard == shard) & (shard_changes.c.number > applied)
    for row in connection.execute(select(shard_changes).where(newer).order_by(shard_changes.c.number)):
        later.setdefault(row.subscription, row)
    columns = (subscriptions.c.number, subscriptions.c.id, subscriptions.c.expires_at, subscriptions.c.tree)
    matching = subscriptions.c.status.not_in(("paused", "expired"))
    query = select(*columns).where(subscriptions.c.number % count == shard, matching).order_by(subscriptions.c.number)
    with connection.execute(query, execution_options={"yield_per": PAGE}) as rows:
        for row in rows:
            if row.number not in later:
                yield StoredSubscription(*row)
    before = [row for row in later.values() if row.was_matching]
    trees = _trees(connection, [row.subscription for row in before])
    for row in before:
        yield StoredSubscription(row.subscription, row.id, row.was_end, trees[row.subscription])


# ── places ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def find_place(connection: Connection, shard: int) -> Place:
    """Returns the place of a shard."""
    return Place(*connection.execute(select(shards.c.position, shards.c.applied).where(shards.c.number == shard)).one())


def move(connection: Connection, shard: int, place: Place) -> None:
    """Stores the new place of a shard, in the group that stores its matches."""
    connection.execute(update(shards).where(shards.c.number == shard).values(place._asdict()))


def deleted_after(connection: Connection, shard: int, applied: int) -> set[int]:
    """Returns the subscriptions of a shard that were deleted after the change `applied`."""
    mine = (shard_changes.c.shard == shard) & (shard_changes.c.number > applied) & shard_changes.c.tree.is_not(None)
    return set(connection.execute(select(shard_changes.c.subscription).where(mine)).scalars())


def first_unmatched(connection: Connection) -> int | None:
    """Returns the first event that a shard has not matched yet; None if there is none, or if there are no shards."""
    query = "SELECT sequence FROM events WHERE sequence > (SELECT min(position) FROM shards) ORDER BY sequence LIMIT 1"
    found: int | None = connection.exec_driver_sql(query).scalar_one_or_none()
    return found


def clean(connection: Connection) -> None:
    """Deletes the changes that their shards have applied."""
    connection.exec_driver_sql(
        "DELETE FROM shard_changes USING shards WHERE shards.number = shard_changes.shard"
        " AND shard_changes.number <= shards.applied"
    )


def lags(connection: Connection) -> list[Lag]:
    """Returns how far each shard is behind. Cost: a scan of the events that the slowest shard has not matched."""
    query = (
        "SELECT number, position,"
        " (SELECT count(*) FROM events WHERE sequence > position),"
        " (SELECT accepted_at FROM events WHERE sequence > position ORDER BY sequence LIMIT 1),"
        " (SELECT server FROM leases JOIN servers ON servers.id = leases.server"
        " WHERE subscription = -1 - number AND alive_until > clock_timestamp())"
        " FROM shards ORDER BY number"
    )
    return [Lag(*row) for row in connection.exec_driver_sql(query)]
