"""Several servers on one PostgreSQL: their shared log, which of them run, and who delivers for which subscription.

    ledger          its row is locked by each group until the commit: positions and commits have one order, without gaps
    changes         what a commit changed beside events: subscriptions, the vocabulary, operators. Others apply it
    own_commits     the last commit of each server: one whose answer was lost is looked for here
    servers         a row for each that lives; it says until when, by the clock of the database
    leases          which server delivers for a subscription, and the number of that turn
    jobs            requests that are answered before they are done, so that every server can say how far they are

These tables are on PostgreSQL only: a SQLite database has one server.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from sqlalchemy import BigInteger, Column, Connection, DateTime, MetaData, PrimaryKeyConstraint, String, Table, text

from kindcast.server.store.driver_calls import insert_rows

__all__ = [
    "ACTIVATION",
    "CHANNEL",
    "KEPT_COMMITS",
    "LATE_MATCHING",
    "OPERATORS",
    "PARKED",
    "SNAPSHOT",
    "SUBSCRIPTION",
    "TOLD",
    "Change",
    "Locked",
    "Member",
    "behind",
    "changes_after",
    "clean",
    "commit_is_there",
    "find_job",
    "held_leases",
    "leased_to_others",
    "living",
    "lock_ledger",
    "members",
    "metadata",
    "note_applied",
    "note_changes",
    "read_ledger",
    "release_lease",
    "store_job",
    "take_leases",
]

metadata = MetaData()

changes = Table(
    "changes",
    metadata,
    Column("number", BigInteger, primary_key=True, autoincrement=True),
    Column("commit", BigInteger, nullable=False, index=True),  # `ledger.commits` after it
    Column("kind", String, nullable=False),
    Column("subscription", BigInteger, nullable=False),  # its number; 0 where it is about something else
    Column("id", String, nullable=False),  # of the subscription
)

own_commits = Table(
    "own_commits",
    metadata,
    Column("server", String, primary_key=True),
    Column("commit", BigInteger, nullable=False),  # `ledger.commits` after it
)

servers = Table(
    "servers",
    metadata,
    Column("id", String, primary_key=True),
    Column("program", String, nullable=False),  # by what it matches: all that live have the same
    Column("alive_until", DateTime(timezone=True), nullable=False),
    Column("applied", BigInteger, nullable=False),  # the commits up to which its vocabulary and operators are those
)

leases = Table(
    "leases",
    metadata,
    Column("subscription", BigInteger, nullable=False),  # 0: late matching; below: shards
    Column("server", String, nullable=False),
    Column("fence", BigInteger, nullable=False),  # grows with each other server that takes it
    PrimaryKeyConstraint("subscription"),
)

jobs = Table(
    "jobs",
    metadata,
    Column("id", String, primary_key=True),
    Column("server", String, nullable=False),  # that runs it
    Column("told", String, nullable=False),  # what its address answers, as JSON
    Column("ended_at", DateTime(timezone=True), index=True),
)

SUBSCRIPTION = "subscription"
"""A subscription was added, removed or changed: its row says what it is now."""
TOLD = "told"
"""Something of a subscription changed that matching does not depend on, its sink for example."""
ACTIVATION = "activation"
"""Another vocabulary is in force."""
OPERATORS = "operators"
PARKED = "parked"
"""Candidates wait for operators."""

CHANNEL = "kindcast"
"""Of NOTIFY. It only wakes: whoever misses it looks a moment later."""
KEPT_COMMITS = 100_000
"""Whose changes are kept. A server that is further behind reads everything again."""
LATE_MATCHING = 0
"""In the place of a subscription: the lease of deciding candidates that wait for operators."""


SNAPSHOT = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"
"""The first statement of a transaction that is to see one commit, and nothing after it."""


class Locked(NamedTuple):
    """What the ledger says."""

    layout: int
    commits: int
    sequence: int
    snapshot: str | None


class Change(NamedTuple):
    """A row of `changes`."""

    kind: str
    subscription: int = 0
    id: str = ""


_LEDGER = "SELECT layout, commits, sequence, snapshot FROM ledger"


# ── the log ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def lock_ledger(connection: Connection) -> Locked:
    """Wait for the groups of other servers; from now on until this transaction ends nobody else commits a group, and
    each statement sees all that were committed."""
    return Locked(*connection.exec_driver_sql(f"{_LEDGER} FOR UPDATE").one())


def read_ledger(connection: Connection) -> Locked:
    """Without a lock: what this transaction sees."""
    return Locked(*connection.exec_driver_sql(_LEDGER).one())


def note_changes(connection: Connection, commit: int, noted: Iterable[Change]) -> None:
    """Append to the log what this group changes."""
    rows = [(commit, *each) for each in noted]
    insert_rows(connection, changes.name, ("commit", "kind", "subscription", "id"), rows)


def changes_after(connection: Connection, commit: int) -> list[Change]:
    """What later commits changed, in their order."""
    query = "SELECT kind, subscription, id FROM changes WHERE commit > %s ORDER BY number"
    return [Change(*row) for row in connection.exec_driver_sql(query, (commit,))]


def commit_is_there(connection: Connection, server: str, commit: int) -> bool:
    """Whether a group of this server is on disk that was to be this commit. Waits until its transaction has ended. The
    names of transactions do not tell: after a crash PostgreSQL gives those that were not on disk once more."""
    lock_ledger(connection)
    mine = connection.exec_driver_sql("SELECT commit FROM own_commits WHERE server = %s", (server,))
    return mine.scalar_one_or_none() == commit


def clean(connection: Connection, commits: int) -> None:
    """Delete what nobody needs any more: old changes, leases of subscriptions that are gone, servers that ended long
    ago. In a group."""
    connection.execute(text("DELETE FROM changes WHERE commit <= :least"), {"least": commits - KEPT_COMMITS})
    connection.execute(text("DELETE FROM servers WHERE alive_until < clock_timestamp() - interval '1 hour'"))
    connection.execute(text("DELETE FROM own_commits WHERE server NOT IN (SELECT id FROM servers)"))
    connection.execute(text("DELETE FROM jobs WHERE ended_at IS NULL AND server NOT IN (SELECT id FROM servers)"))
    connection.execute(
        text(
            "DELETE FROM leases WHERE subscription > 0 AND NOT EXISTS"
            " (SELECT FROM subscriptions WHERE subscriptions.number = leases.subscription)"
        )
    )


# ── leases ──────────────────────────────────────────────────────────────────────────────────────────────────────────

_TAKE = text(
    "INSERT INTO leases (subscription, server, fence) SELECT number, :me, 1 FROM unnest(:numbers) AS number"
    " ON CONFLICT (subscription) DO UPDATE SET server = excluded.server, fence = leases.fence + 1"
    " WHERE leases.server <> excluded.server AND NOT EXISTS"
    " (SELECT FROM servers WHERE servers.id = leases.server AND servers.alive_until > clock_timestamp())"
)
_HELD = text("SELECT subscription, fence FROM leases WHERE server = :me AND subscription = ANY(:numbers)")
_OTHERS = text(
    "SELECT subscription FROM leases JOIN servers ON servers.id = leases.server"
    " WHERE subscription = ANY(:numbers) AND server <> :me AND alive_until > clock_timestamp()"
)


def take_leases(connection: Connection, me: str, numbers: Collection[int]) -> dict[int, int]:
    """Those of these subscriptions for which this server delivers from now on, with their fences: nobody did, or one
    that lives no more. In a group."""
    connection.execute(_TAKE, {"me": me, "numbers": list(numbers)})
    return held_leases(connection, me, numbers)


def release_lease(connection: Connection, me: str, number: int) -> None:
    """This server delivers no more for a subscription. Its row stays, so that the fence grows. In a group."""
    connection.exec_driver_sql("UPDATE leases SET server = '' WHERE subscription = %s AND server = %s", (number, me))


def held_leases(connection: Connection, me: str, numbers: Collection[int]) -> dict[int, int]:
    """Those of these subscriptions for which this server delivers, with their fences."""
    return {number: fence for number, fence in connection.execute(_HELD, {"me": me, "numbers": list(numbers)})}


def leased_to_others(connection: Connection, me: str, numbers: Collection[int]) -> set[int]:
    """Those of these subscriptions for which another server delivers that lives."""
    return set(connection.execute(_OTHERS, {"me": me, "numbers": list(numbers)}).scalars())


# ── who lives ───────────────────────────────────────────────────────────────────────────────────────────────────────

BEAT = (
    "INSERT INTO servers (id, program, alive_until, applied)"
    " VALUES (%s, %s, clock_timestamp() + make_interval(secs => %s), %s)"
    " ON CONFLICT (id) DO UPDATE SET alive_until = excluded.alive_until"
)
"""Say that a server lives: its id, its program, for how many seconds, what it has applied."""
LIVING = "SELECT id, program FROM servers WHERE alive_until > clock_timestamp() ORDER BY id"
LEAVE = "DELETE FROM servers WHERE id = %s"


def note_applied(connection: Connection, id: str, commits: int) -> None:
    """A server has the vocabulary and the operators of this commit."""
    connection.exec_driver_sql("UPDATE servers SET applied = %s WHERE id = %s", (commits, id))


def behind(connection: Connection, commits: int, but: str) -> int:
    """How many servers live, `but` for one, that have not applied what this commit put in force."""
    query = "SELECT count(*) FROM servers WHERE alive_until > clock_timestamp() AND applied < %s AND id <> %s"
    return int(connection.exec_driver_sql(query, (commits, but)).scalar_one())


class Member(NamedTuple):
    """A server that lives. `applied`: the commit whose vocabulary and operators it has; `commit`: its own last one;
    `leases`: for how many subscriptions it delivers."""

    id: str
    program: str
    lives_for_seconds: float
    applied: int
    commit: int | None
    leases: int


def members(connection: Connection) -> list[Member]:
    """The servers that live, by id."""
    query = (
        "SELECT servers.id, program, extract(epoch FROM alive_until - clock_timestamp())::float8, applied, own.commit,"
        " (SELECT count(*) FROM leases WHERE server = servers.id AND subscription > 0)"
        " FROM servers LEFT JOIN own_commits AS own ON own.server = servers.id"
        " WHERE alive_until > clock_timestamp() ORDER BY servers.id"
    )
    return [Member(*row) for row in connection.exec_driver_sql(query)]


def living(connection: Connection) -> Sequence[tuple[str, str]]:
    """Id and program of each server that lives."""
    return [(id, program) for id, program in connection.exec_driver_sql(LIVING)]


# ── jobs ────────────────────────────────────────────────────────────────────────────────────────────────────────────

_STORE_JOB = text(
    "INSERT INTO jobs (id, server, told, ended_at)"
    " VALUES (:id, :me, :told, CASE WHEN :ended THEN clock_timestamp() END)"
    " ON CONFLICT (id) DO UPDATE SET told = excluded.told, ended_at = excluded.ended_at"
)
_FORGET_JOBS = text(
    "DELETE FROM jobs WHERE ended_at < clock_timestamp() - make_interval(secs => :seconds)"
    " OR id IN (SELECT id FROM jobs WHERE ended_at IS NOT NULL ORDER BY ended_at DESC OFFSET :kept)"
)
_FIND_JOB = (
    "SELECT told FROM jobs WHERE id = %s AND (ended_at IS NOT NULL OR EXISTS"
    " (SELECT FROM servers WHERE servers.id = jobs.server AND alive_until > clock_timestamp()))"
)


def store_job(connection: Connection, me: str, id: str, told: str, *, ended: bool, kept: int, seconds: float) -> None:
    """Says how far a job of this server is; at its end those that ended long ago are forgotten. In a group."""
    connection.execute(_STORE_JOB, {"id": id, "me": me, "told": told, "ended": ended})
    if ended:
        connection.execute(_FORGET_JOBS, {"kept": kept, "seconds": seconds})


def find_job(connection: Connection, id: str) -> str | None:
    """What was said of a job last. None where there is none, or its server ended before it."""
    told: str | None = connection.exec_driver_sql(_FIND_JOB, (id,)).scalar_one_or_none()
    return told
