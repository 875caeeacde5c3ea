"""Shards of the subscriptions, on PostgreSQL: how far each has matched the log, and what changed there beside events.

    shards          a row for each: events up to `position` are matched, changes up to `applied` are in its stored state
    shard_changes   each change of a subscription, in order: what it was before, and what it is after the events up to
                    a position. Kept until its shard has passed it

A subscription is in the shard of its number modulo the number of shards. Its row says what it is now; the changes after
a shard's own position, taken back from the last one on, say what it was there. So a row that is deleted leaves its tree
in the change.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
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
    insert,
    select,
    update,
)

from kindcast.server.errors import StoreInUse
from kindcast.server.store import subscriptions as subscription_rows
from kindcast.server.store.driver_calls import insert_rows
from kindcast.server.store.events import list_events
from kindcast.server.store.servers import metadata, read_ledger
from kindcast.server.store.tables import subscriptions

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

shards = Table(
    "shards",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("position", BigInteger, nullable=False),  # the last event that it matched
    Column("applied", BigInteger, nullable=False),  # the last of `shard_changes` that it applied
)

shard_changes = Table(
    "shard_changes",
    metadata,
    Column("number", BigInteger, primary_key=True, autoincrement=True),
    Column("position", BigInteger, nullable=False),  # it counts for the events after this one
    Column("shard", Integer, nullable=False),
    Column("subscription", BigInteger, nullable=False),
    Column("id", String, nullable=False),
    Column("was_matching", Boolean, nullable=False),
    Column("was_end", Double, nullable=False),
    Column("matching", Boolean, nullable=False),
    Column("ends_at", Double, nullable=False),
    Column("tree", Text),  # of a subscription that was deleted
    Index("shard_changes_shard", "shard", "number"),
)

PAGE = 1_000
"""Events, or changes, that a shard reads at one time."""


class Place(NamedTuple):
    """How far a shard is: the last event that it matched, and the last change that it applied."""

    position: int
    applied: int


class ShardChange(NamedTuple):
    """A change of a subscription, after the events up to `position`. `tree` is JSON text where it was deleted."""

    position: int
    subscription: int
    id: str
    was_matching: bool
    was_end: float
    matching: bool
    ends_at: float
    tree: str | None = None


class StoredSubscription(NamedTuple):
    """A subscription that matches at a shard's place."""

    number: int
    id: str
    ends_at: float
    tree: Any


class Page(NamedTuple):
    """What comes next in the log: events; the changes before the last of them, by number, or all where there are no
    more events; the trees of the subscriptions that begin to match by them; and the commit at which it was read."""

    events: Sequence[Row[Any]]
    changes: Sequence[tuple[int, ShardChange]]
    trees: Mapping[int, Any]
    commits: int


class Lag(NamedTuple):
    """How far a shard is behind: so many events, the oldest of which was accepted then. `server` holds it."""

    shard: int
    position: int
    events: int
    oldest: float | None
    server: str | None


def lease_of(shard: int) -> int:
    """In the place of a subscription: the lease of a shard."""
    return -1 - shard


# ── the number of shards ────────────────────────────────────────────────────────────────────────────────────────────


def begin(connection: Connection, count: int | None, *, alone: bool) -> None:
    """Make the shards of a database that has none; what it holds was matched when it was published. Raises `StoreInUse`
    where it has another number of them. Not `alone`: other servers use it, and nothing is made."""
    there = len(connection.execute(select(shards.c.number)).all())
    if there == (count or 0):
        return
    if there:
        asked = "without shards" if count is None else f"with {count}"
        raise StoreInUse(f"the database has {there} shards, and this server was started {asked}: use --shards {there}")
    if not alone:
        raise StoreInUse("other servers use the database without shards: stop them first")
    last = read_ledger(connection).sequence
    connection.execute(insert(shards), [{"number": each, "position": last, "applied": 0} for each in range(count or 0)])


# ── the log ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def log_changes(connection: Connection, changes: Iterable[ShardChange], count: int) -> None:
    """Append to the log, in a group."""
    columns = ("shard", *ShardChange._fields)
    insert_rows(connection, shard_changes.name, columns, [(each.subscription % count, *each) for each in changes])


def page_after(connection: Connection, shard: int, place: Place) -> Page:
    """The next events and changes for a shard. Raises `RecordDamaged` where the next event is."""
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
    """The trees of these subscriptions, also of those that were deleted since."""
    wanted = sorted(numbers)
    found = {row.number: row.tree for row in subscription_rows.trees(connection, live_only=False, numbers=wanted)}
    gone = [number for number in wanted if number not in found]
    if gone:
        deleted = "SELECT subscription, tree FROM shard_changes WHERE subscription = ANY(%s) AND tree IS NOT NULL"
        rows = connection.exec_driver_sql(deleted, (gone,))
        found.update((number, msgspec.json.decode(tree)) for number, tree in rows)
    return found


def as_it_was(connection: Connection, shard: int, count: int, applied: int) -> Iterator[StoredSubscription]:
    """The subscriptions of a shard that match after this change: the rows, without what came later."""
    later: dict[int, Row[Any]] = {}
    newer = (shard_changes.c.shard == shard) & (shard_changes.c.number > applied)
    for row in connection.execute(select(shard_changes).where(newer).order_by(shard_changes.c.number)):
        later.setdefault(row.subscription, row)
    columns = (subscriptions.c.number, subscriptions.c.id, subscriptions.c.expires_at, subscriptions.c.tree)
    matching = subscriptions.c.status.not_in(("paused", "expired"))
    query = select(*columns).where(subscriptions.c.number % count == shard, matching).order_by(subscriptions.c.number)
    for row in connection.execute(query, execution_options={"yield_per": PAGE}):
        if row.number not in later:
            yield StoredSubscription(*row)
    before = [row for row in later.values() if row.was_matching]
    trees = _trees(connection, [row.subscription for row in before])
    for row in before:
        yield StoredSubscription(row.subscription, row.id, row.was_end, trees[row.subscription])


# ── places ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def find_place(connection: Connection, shard: int) -> Place:
    """How far a shard is."""
    return Place(*connection.execute(select(shards.c.position, shards.c.applied).where(shards.c.number == shard)).one())


def move(connection: Connection, shard: int, place: Place) -> None:
    """A shard is further, in the group that has its matches."""
    connection.execute(update(shards).where(shards.c.number == shard).values(place._asdict()))


def deleted_after(connection: Connection, shard: int, applied: int) -> set[int]:
    """The subscriptions of a shard that were deleted by later changes."""
    mine = (shard_changes.c.shard == shard) & (shard_changes.c.number > applied) & shard_changes.c.tree.is_not(None)
    return set(connection.execute(select(shard_changes.c.subscription).where(mine)).scalars())


def first_unmatched(connection: Connection) -> int | None:
    """The first event that some shard has yet to match; None where there is none, and where there are no shards."""
    query = "SELECT sequence FROM events WHERE sequence > (SELECT min(position) FROM shards) ORDER BY sequence LIMIT 1"
    found: int | None = connection.exec_driver_sql(query).scalar_one_or_none()
    return found


def clean(connection: Connection) -> None:
    """Delete the changes that their shards have passed."""
    connection.exec_driver_sql(
        "DELETE FROM shard_changes USING shards WHERE shards.number = shard_changes.shard"
        " AND shard_changes.number <= shards.applied"
    )


def lags(connection: Connection) -> list[Lag]:
    """How far each shard is behind. Costs a walk over the events that the slowest has yet to match."""
    query = (
        "SELECT number, position,"
        " (SELECT count(*) FROM events WHERE sequence > position),"
        " (SELECT accepted_at FROM events WHERE sequence > position ORDER BY sequence LIMIT 1),"
        " (SELECT server FROM leases JOIN servers ON servers.id = leases.server"
        " WHERE subscription = -1 - number AND alive_until > clock_timestamp())"
        " FROM shards ORDER BY number"
    )
    return [Lag(*row) for row in connection.exec_driver_sql(query)]
