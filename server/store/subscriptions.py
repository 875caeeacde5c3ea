"""Stored subscriptions. The rows are authoritative; the matcher only has the subscriptions that match now."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import repeat
from typing import Any

import msgspec
from sqlalchemy import (
    JSON,
    Column,
    ColumnDefault,
    Connection,
    CursorResult,
    Row,
    Select,
    Text,
    bindparam,
    case,
    cast,
    delete,
    func,
    insert,
    or_,
    select,
    update,
)

from kindcast.server.store import pending as pending_store
from kindcast.server.store.deliveries import discarded, undelivered
from kindcast.server.store.matches import count_matches
from kindcast.server.store.tables import (
    attempts,
    insert_rows,
    ledger,
    leftovers,
    mark_of,
    operator_uses,
    subscriptions,
    unsaved,
)

__all__ = [
    "NOT_RENEWED",
    "all_trees",
    "count_by_creator",
    "count_by_status",
    "count_flagged",
    "erase_attempts",
    "erase_leftovers",
    "find_subscription",
    "find_subscriptions",
    "note_leftovers",
    "trees",
]

# Changes since the last snapshot: which subscriptions were added, removed or changed after it was written.
#
#     ledger.snapshot    the token of the snapshot that belongs to these tables; NULL if there is none
#     unsaved            number and id of each subscription that was added, removed or changed since
#
# The snapshot has the token too. So a restored backup or another database never uses a foreign snapshot, and a start
# need not read the subscriptions that did not change.


def snapshot_token(connection: Connection) -> str | None:
    """The token of the snapshot that belongs to this database, if there is one."""
    found: str | None = connection.execute(select(ledger.c.snapshot)).scalar_one()
    return found


def begin_snapshot(connection: Connection, snapshot: str | None) -> None:
    """Stores the token of a snapshot of the present state. None: no snapshot may be used from now on."""
    connection.execute(delete(unsaved))
    connection.execute(update(ledger).values(snapshot=snapshot))


def note_changed(connection: Connection, noted: Mapping[int, str]) -> None:
    """Records that these subscriptions, by number and id, were added, removed or changed. One row for each."""
    mark = mark_of(connection)
    statement = f"INSERT INTO {unsaved.name} (number, id) VALUES ({mark}, {mark}) ON CONFLICT (number) DO NOTHING"
    connection.exec_driver_sql(statement, list(noted.items()))


def changed_since_snapshot(connection: Connection) -> list[Row[Any]]:
    """Returns (number, id, status, expires_at) of all recorded subscriptions. Status and end time are None for deleted
    ones."""
    query = select(unsaved.c.number, unsaved.c.id, subscriptions.c.status, subscriptions.c.expires_at)
    joined = query.join_from(unsaved, subscriptions, subscriptions.c.number == unsaved.c.number, isouter=True)
    return list(connection.execute(joined.order_by(unsaved.c.number)))


def numbers_of_all(connection: Connection) -> tuple[int, int]:
    """Returns the number of subscriptions and the sum of their numbers. Cost: one scan of an index, not of the rows."""
    count, total = connection.execute(select(func.count(), func.sum(subscriptions.c.number))).one()
    return count, int(total or 0)


# ── subscriptions ─────────────────────────────────────────────────────────────────────────────────────────────────────

FETCHED = 32
"""The number of whole subscriptions that are fetched together, because they may be large."""
NEWEST_BYTES = 4 << 20
"""The size of the expressions that a report reads. In memory their trees are larger."""
ROWS_AT_ONCE = 1_000
"""The number of rows in memory while all trees are read. All trees together may need more memory than the matcher."""
NUMBERS_PER_QUERY = 500
"""The maximum number of values in one IN list, far below the parameter limit of every database."""


def insert_subscription(connection: Connection, values: dict[str, Any]) -> int:
    """Stores a new subscription. Returns its number."""
    result = connection.execute(insert(subscriptions).values(values).returning(subscriptions.c.number))
    number: int = result.scalar_one()
    return number


def insert_subscriptions(connection: Connection, rows: Sequence[dict[str, Any]]) -> Sequence[int]:
    """Stores many new subscriptions, all with values for the same columns. Returns their numbers, in the order of
    `rows`."""
    if not rows:
        return []
    if connection.dialect.name == "sqlite":
        return _insert_numbered(connection, rows)
    numbered = insert(subscriptions).returning(subscriptions.c.number, sort_by_parameter_order=True)
    return connection.execute(numbered, rows).scalars().all()


def _insert_numbered(connection: Connection, rows: Sequence[dict[str, Any]]) -> Sequence[int]:
    """`insert_subscriptions` for SQLite. Only this transaction assigns numbers there, so it takes the next ones itself,
    and the rows go to the driver unchanged."""
    last = connection.exec_driver_sql("SELECT seq FROM sqlite_sequence WHERE name = ?", (subscriptions.name,)).scalar()
    numbers = range((last or 0) + 1, (last or 0) + 1 + len(rows))
    given = list(rows[0])
    fixed = {each.name: each.default.arg for each in subscriptions.c if isinstance(each.default, ColumnDefault)}
    columns: dict[str, Iterable[Any]] = {subscriptions.c.number.name: numbers}
    columns |= {name: repeat(value) for name, value in fixed.items() if name not in given}
    for name, values in zip(given, zip(*map(dict.values, rows), strict=True), strict=True):
        if values.count(None) == len(rows):
            continue  # the default of these columns is NULL
        if isinstance(subscriptions.c[name].type, JSON):
            columns[name] = [None if each is None else msgspec.json.encode(each).decode() for each in values]
        else:
            columns[name] = values
    insert_rows(connection, subscriptions.name, tuple(columns), list(zip(*columns.values(), strict=False)))
    return numbers


def change(connection: Connection, number: int, **values: Any) -> None:
    """Sets columns of one subscription."""
    connection.execute(update(subscriptions).where(subscriptions.c.number == number).values(values))


def change_notes(connection: Connection, changed: Sequence[tuple[int, list[dict[str, str]], bool]]) -> None:
    """Sets the notes and the flag of many subscriptions: (number, notes, flagged) each."""
    if changed:
        connection.execute(
            update(subscriptions)
            .where(subscriptions.c.number == bindparam("of"))
            .values(notes=bindparam("notes"), flagged=bindparam("flagged")),
            [{"of": number, "notes": notes, "flagged": flagged} for number, notes, flagged in changed],
        )


def delete_subscription(connection: Connection, number: int, *, at_most: int) -> tuple[dict[str, int], bool]:
    """Deletes a subscription with its candidates and waiting matches. Returns what the ledger must count for it, and
    whether it has more than `at_most` attempts: then `erase_attempts` must be called for the others."""
    counters = (subscriptions.c.times_sent, subscriptions.c.times_failed, subscriptions.c.acked)
    sent, failed, acked = connection.execute(select(*counters).where(subscriptions.c.number == number)).one()
    gone = {
        "attempts_delivered": sent - failed,
        "attempts_failed": failed,
        "parked_withdrawn": pending_store.withdraw_subscription(connection, number),
        "discarded": count_matches(connection, number, after=acked),
    }
    for table in (discarded, undelivered):
        connection.execute(delete(table).where(table.c.subscription == number))
    connection.execute(delete(operator_uses).where(operator_uses.c.subscription == number))
    connection.execute(delete(subscriptions).where(subscriptions.c.number == number))
    over = erase_attempts(connection, number, at_most=at_most)
    if not over:
        note_leftovers(connection, number)
    return gone, not over


NOT_RENEWED = "not renewed in time"
"""The reason of an expired subscription. One that was paused keeps the reason of its pause, so that a renewal does not
end the pause."""


def expire(connection: Connection, numbers: Sequence[int]) -> None:
    """Marks these subscriptions as expired."""
    paused = subscriptions.c.status == "paused"
    reason = case((paused, func.coalesce(subscriptions.c.status_reason, "paused")), else_=NOT_RENEWED)
    for start in range(0, len(numbers), NUMBERS_PER_QUERY):
        those = subscriptions.c.number.in_(numbers[start : start + NUMBERS_PER_QUERY])
        connection.execute(update(subscriptions).where(those).values(status="expired", status_reason=reason))


def find_subscription(connection: Connection, id: str) -> Row[Any] | None:
    """The subscription with this id, if there is one."""
    return connection.execute(select(subscriptions).where(subscriptions.c.id == id)).one_or_none()


def find_subscriptions(connection: Connection, ids: Sequence[str]) -> dict[str, Row[Any]]:
    """The subscriptions with these ids, by id. Ids of no subscription are left out."""
    found: dict[str, Row[Any]] = {}
    for start in range(0, len(ids), NUMBERS_PER_QUERY):
        some = tuple(ids[start : start + NUMBERS_PER_QUERY])
        marks = ", ".join([mark_of(connection)] * len(some))
        # A plain statement, because usually there are none, and SQLAlchemy takes longer for the values than SQLite.
        numbers = connection.exec_driver_sql(f"SELECT number FROM {subscriptions.name} WHERE id IN ({marks})", some)
        if there := numbers.scalars().all():
            query = select(subscriptions).where(subscriptions.c.number.in_(there))
            found |= {row.id: row for row in connection.execute(query)}
    return found


def list_subscriptions(
    connection: Connection,
    *,
    after: int,
    limit: int,
    statuses: Collection[str] = (),
    flagged: bool | None = None,
    with_sink: bool = False,
    newest_first: bool = False,
    text: str = "",
    now: float = 0.0,
) -> CursorResult[Any]:
    """Returns one page, in the order of creation or newest first, of subscriptions with one of `statuses`; of all
    without any. Each has `text` in its id, expression or metadata. `after` is the last number of the page before, or 0.
    A subscription after its end time counts as expired, even before a sweep. The caller must close the result, best
    with `with`."""
    number = subscriptions.c.number
    query = select(subscriptions).where(number < after if newest_first and after else number > after).limit(limit)
    query = query.order_by(number.desc() if newest_first else number)
    if flagged is not None:
        query = query.where(subscriptions.c.flagged == flagged)
    if with_sink:
        query = query.where(subscriptions.c.sink.is_not(None))
    if text:
        columns, escaped = subscriptions.c, msgspec.json.encode(text).decode()[1:-1]  # as JSON is stored
        texts = [each.icontains(text, autoescape=True) for each in (columns.id, columns.canonical)]
        documents = (cast(each, Text) for each in (columns.expression, columns.metadata))
        query = query.where(or_(*texts, *(each.icontains(escaped, autoescape=True) for each in documents)))
    if statuses:
        is_live = subscriptions.c.status.in_(statuses) & (subscriptions.c.expires_at > now)
        has_ended = (subscriptions.c.status == "expired") | (subscriptions.c.expires_at <= now)
        query = query.where(is_live | has_ended if "expired" in statuses else is_live)
    return connection.execute(query, execution_options={"yield_per": FETCHED})


def newest_subscriptions(connection: Connection, limit: int) -> Sequence[Row[Any]]:
    """Returns (id, status, canonical, tree) of the newest subscriptions that have not expired, newest first, until
    their expressions have `NEWEST_BYTES`."""
    columns = (subscriptions.c.id, subscriptions.c.status, subscriptions.c.canonical, subscriptions.c.tree)
    live = select(*columns).where(subscriptions.c.status != "expired").order_by(subscriptions.c.number.desc())
    found: list[Row[Any]] = []
    room = NEWEST_BYTES
    result: CursorResult[Any] = connection.execute(live.limit(limit), execution_options={"yield_per": FETCHED})
    with result as rows:
        for row in rows:
            found.append(row)
            room -= len(row.canonical)
            if room <= 0:
                break
    return found


def renewable(connection: Connection) -> Iterable[Row[Any]]:
    """(number, id, status, expires_at) of all subscriptions that are not purged."""
    columns = (subscriptions.c.number, subscriptions.c.id, subscriptions.c.status, subscriptions.c.expires_at)
    return connection.execute(select(*columns).order_by(subscriptions.c.number))


def expired_before(connection: Connection, over: float, limit: int) -> Sequence[Row[Any]]:
    """Subscriptions that have expired and ended by `over`."""
    query = select(subscriptions).where(subscriptions.c.status == "expired", subscriptions.c.expires_at <= over)
    return connection.execute(query.limit(limit)).all()


def soonest_to_end(connection: Connection, limit: int) -> Sequence[Row[Any]]:
    """Returns (id, expires_at) of the subscriptions that end next, among those that have not expired. Cost: a scan of
    the rows."""
    columns: tuple[Column[Any], ...] = (subscriptions.c.id, subscriptions.c.expires_at)
    query = select(*columns).where(subscriptions.c.status != "expired").order_by(subscriptions.c.expires_at)
    return connection.execute(query.limit(limit)).all()


def numbers_of(connection: Connection, ids: Sequence[str]) -> dict[int, str]:
    """Returns the subscriptions among `ids` that exist: number → id."""
    found: dict[int, str] = {}
    for start in range(0, len(ids), NUMBERS_PER_QUERY):
        those = subscriptions.c.id.in_(ids[start : start + NUMBERS_PER_QUERY])
        rows = connection.execute(select(subscriptions.c.number, subscriptions.c.id).where(those))
        found.update((number, id) for number, id in rows)
    return found


def tree_of(connection: Connection, number: int) -> Any:
    """The stored tree of a subscription."""
    return connection.execute(select(subscriptions.c.tree).where(subscriptions.c.number == number)).scalar_one()


def states(connection: Connection, numbers: Sequence[int]) -> list[Row[Any]]:
    """Returns (number, id, status, expires_at) of the subscriptions among `numbers` that exist."""
    columns = (subscriptions.c.number, subscriptions.c.id, subscriptions.c.status, subscriptions.c.expires_at)
    found: list[Row[Any]] = []
    for start in range(0, len(numbers), NUMBERS_PER_QUERY):
        those = subscriptions.c.number.in_(numbers[start : start + NUMBERS_PER_QUERY])
        found.extend(connection.execute(select(*columns).where(those)))
    return found


def all_trees(connection: Connection, *, live_only: bool) -> CursorResult[Any]:
    """(number, id, status, tree, notes, flagged, created_by) of all subscriptions, or only of those that have not
    expired. The caller must close the result, best with `with`: PostgreSQL keeps its rows until then."""
    return connection.execute(_trees(live_only), execution_options={"yield_per": ROWS_AT_ONCE})


def trees(connection: Connection, *, live_only: bool, numbers: Sequence[int]) -> Iterable[Row[Any]]:
    """Like `all_trees`, for the subscriptions with these numbers."""
    query = _trees(live_only)
    portions = (numbers[start : start + NUMBERS_PER_QUERY] for start in range(0, len(numbers), NUMBERS_PER_QUERY))
    return (row for some in portions for row in connection.execute(query.where(subscriptions.c.number.in_(some))))


def _trees(live_only: bool) -> Select[Any]:
    columns: tuple[Column[Any], ...] = (
        subscriptions.c.number,
        subscriptions.c.id,
        subscriptions.c.status,
        subscriptions.c.tree,
        subscriptions.c.notes,
        subscriptions.c.flagged,
        subscriptions.c.created_by,
    )
    query = select(*columns).order_by(subscriptions.c.number)
    if live_only:
        query = query.where(subscriptions.c.status != "expired")
    return query


def count_pending(connection: Connection, number: int) -> int:
    """How many matches of a subscription wait after its cursor."""
    acked = connection.execute(select(subscriptions.c.acked).where(subscriptions.c.number == number)).scalar_one()
    return count_matches(connection, number, after=acked)


def count_created_by(connection: Connection, created_by: str) -> int:
    """How many subscriptions of one key there are."""
    query = select(func.count()).where(subscriptions.c.created_by == created_by)
    return connection.execute(query).scalar_one()


def count_by_creator(connection: Connection) -> dict[str, int]:
    """How many subscriptions of each key, or subject of an identity provider, there are. Cost: a scan."""
    query = select(subscriptions.c.created_by, func.count()).where(subscriptions.c.created_by.is_not(None))
    return {creator: count for creator, count in connection.execute(query.group_by(subscriptions.c.created_by))}


def count_by_status(connection: Connection) -> dict[str, int]:
    """How many subscriptions have each status."""
    query = select(subscriptions.c.status, func.count()).group_by(subscriptions.c.status)
    return {status: number for status, number in connection.execute(query)}


def count_flagged(connection: Connection) -> int:
    """How many subscriptions are flagged, that is, use something that was removed. Expired ones do not count."""
    query = select(func.count()).where(subscriptions.c.flagged, subscriptions.c.status != "expired")
    return connection.execute(query).scalar_one()


# ── leftovers: the attempts of deleted subscriptions are deleted in steps, as there may be millions ───────────────────
#
#     deleted ──a step at once──▶ nothing left
#                   └──more──▶ leftovers: its number ──a step a sweep──▶ nothing left
#
# Their matches stay until they are deleted because of their age. They are never read, because no subscription has their
# number.


def note_leftovers(connection: Connection, number: int) -> None:
    """Records that a deleted subscription still has attempts."""
    connection.execute(insert(leftovers).values(subscription=number))


def erase_attempts(connection: Connection, number: int, *, at_most: int) -> bool:
    """Deletes at most `at_most` attempts of a deleted subscription. Returns whether nothing is left."""
    tried = select(attempts.c.sequence).where(attempts.c.subscription == number).order_by(attempts.c.sequence)
    sequences = connection.execute(tried.limit(at_most)).scalars().all()
    if sequences:
        theirs = (attempts.c.subscription == number) & (attempts.c.sequence <= sequences[-1])
        connection.execute(delete(attempts).where(theirs))
    return len(sequences) < at_most


def erase_leftovers(connection: Connection, *, at_most: int) -> bool:
    """Deletes some attempts of one deleted subscription. Returns whether more may be left."""
    number = connection.execute(select(leftovers.c.subscription).limit(1)).scalar_one_or_none()
    if number is None:
        return False
    if erase_attempts(connection, number, at_most=at_most):
        connection.execute(delete(leftovers).where(leftovers.c.subscription == number))
    return True
