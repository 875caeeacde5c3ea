"""Several servers on one PostgreSQL database: their shared log, the live servers, and the leases of subscriptions.

    ledger          its row is locked by each group until the commit: positions and commits have one order, without gaps
    changes         what a commit changed besides events: subscriptions, vocabulary, operators. Other servers apply it
    own_commits     the last commit of each server, to look up a commit whose answer was lost
    servers         one row per live server, with the time until which it counts as live, by the clock of the database
    leases          which server delivers for a subscription, and its fence
    circuits        which remote operators are not called for a while, because they failed repeatedly
    jobs            requests that are answered before they are done, so that every server can report their progress
    upcoming        the vocabulary that one server is about to activate, so that the others can prepare it
    preparations    which servers have prepared it

These tables are on PostgreSQL only: a SQLite database has one server.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    DateTime,
    Double,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    text,
)
from sqlalchemy.exc import DBAPIError

from kindcast.server.store.tables import insert_rows

__all__ = [
    "ACTIVATION",
    "CHANNEL",
    "EXCHANGE_FORMAT",
    "KEPT_COMMITS",
    "LATE_MATCHING",
    "OPERATORS",
    "PARKED",
    "SNAPSHOT",
    "SUBSCRIPTION",
    "TOLD",
    "UPCOMING",
    "UPCOMING_NOW",
    "Change",
    "CircuitState",
    "Locked",
    "Member",
    "Upcoming",
    "behind",
    "changes_after",
    "claim_probe",
    "clean",
    "commit_is_there",
    "find_circuits",
    "find_job",
    "find_upcoming",
    "forget_circuit",
    "forget_upcoming",
    "held_leases",
    "leased_to_others",
    "living",
    "lock_ledger",
    "members",
    "metadata",
    "note_applied",
    "note_changes",
    "note_prepared",
    "oldest_layout",
    "read_ledger",
    "release_lease",
    "store_circuit",
    "store_job",
    "store_upcoming",
    "take_leases",
    "timeline",
    "unprepared",
]

metadata = MetaData()

changes = Table(
    "changes",
    metadata,
    Column("number", BigInteger, primary_key=True, autoincrement=True),
    Column("commit", BigInteger, nullable=False, index=True),  # `ledger.commits` after it
    Column("kind", String, nullable=False),
    Column("subscription", BigInteger, nullable=False),  # its number; 0 if the change is about something else
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
    Column("program", String, nullable=False),  # shown to people; its end is the same for all live servers
    Column("alive_until", DateTime(timezone=True), nullable=False),
    Column("applied", BigInteger, nullable=False),  # its vocabulary and operators are those of this commit
    Column("layout", Integer, nullable=False, server_default="0"),  # the newest layout of the tables that it knows
)

leases = Table(
    "leases",
    metadata,
    Column("subscription", BigInteger, nullable=False),  # 0: late matching; below: shards
    Column("server", String, nullable=False),
    Column("fence", BigInteger, nullable=False),  # grows when another server takes the lease
    PrimaryKeyConstraint("subscription"),
)

circuits = Table(
    "circuits",
    metadata,
    Column("operator", String, primary_key=True),
    Column("failures", BigInteger, nullable=False),  # in a row
    Column("pause", Double, nullable=False),  # in seconds: the present one, or the next one
    Column("until", DateTime(timezone=True)),  # the end of the pause; NULL: the operator is called
    Column("reason", String, nullable=False),  # of the last failure
    Column("probe_until", DateTime(timezone=True)),  # until then one server tests whether the operator works again
)

jobs = Table(
    "jobs",
    metadata,
    Column("id", String, primary_key=True),
    Column("server", String, nullable=False),  # that runs the job
    Column("told", String, nullable=False),  # the answer at the job's URL, as JSON
    Column("ended_at", DateTime(timezone=True), index=True),
)

upcoming = Table(
    "upcoming",
    metadata,
    Column("token", String, primary_key=True),
    Column("server", String, nullable=False),  # that is about to activate this vocabulary
    Column("version", String, nullable=False),  # of the vocabulary
    Column("base", String, nullable=False),  # the version of the vocabulary that it replaces
    Column("content", LargeBinary, nullable=False),  # in what it differs from that one
)

preparations = Table(
    "preparations",
    metadata,
    Column("token", String, nullable=False),
    Column("server", String, nullable=False),  # that has prepared this vocabulary, or cannot
    PrimaryKeyConstraint("token", "server"),
)

EXCHANGE_FORMAT = 1
"""The number of the format in which servers tell each other what they changed: the contents of `changes`, `upcoming`,
`circuits` and `jobs`, and of notifications. It must be raised when a server of an earlier version would misread one."""

SUBSCRIPTION = "subscription"
"""A subscription was added, removed or changed. Its row has the new state."""
TOLD = "told"
"""A change of a subscription that does not affect matching, for example of its sink."""
ACTIVATION = "activation"
"""Another vocabulary was activated. `id` is its version."""
OPERATORS = "operators"
PARKED = "parked"
"""Candidates were parked or are due."""

CHANNEL = "kindcast"
"""The channel of NOTIFY of the tenant `default`; that of another tenant is its schema. It only wakes servers; a server
that misses it looks a moment later."""
UPCOMING = "upcoming"
"""The text of a NOTIFY if the row of `upcoming` has changed."""
KEPT_COMMITS = 100_000
"""The changes of this many commits are kept. A server that is further behind reads everything again."""
LATE_MATCHING = 0
"""The key in `leases`, instead of a subscription, for deciding candidates that wait for operators."""


SNAPSHOT = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"
"""The first statement of a transaction that must see one snapshot."""


class Locked(NamedTuple):
    """The values of the ledger that servers compare."""

    readable_from: int
    commits: int
    sequence: int
    snapshot: str | None


class Change(NamedTuple):
    """A row of `changes`. `id` is the id of the subscription."""

    kind: str
    subscription: int = 0
    id: str = ""


_LEDGER = "SELECT readable_from, commits, sequence, snapshot FROM ledger"


# ── the log ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def lock_ledger(connection: Connection) -> Locked:
    """Waits for the groups of other servers and locks the ledger. Until this transaction ends, no other server commits
    a group, and each statement sees all committed groups."""
    return Locked(*connection.exec_driver_sql(f"{_LEDGER} FOR UPDATE").one())


def read_ledger(connection: Connection) -> Locked:
    """Reads the ledger without a lock, as this transaction sees it."""
    return Locked(*connection.exec_driver_sql(_LEDGER).one())


def note_changes(connection: Connection, commit: int, noted: Iterable[Change]) -> None:
    """Appends the changes of this group to the log."""
    rows = [(commit, *each) for each in noted]
    insert_rows(connection, changes.name, ("commit", "kind", "subscription", "id"), rows)


def changes_after(connection: Connection, commit: int) -> list[Change]:
    """Returns the changes of later commits, in order."""
    query = "SELECT kind, subscription, id FROM changes WHERE commit > %s ORDER BY number"
    return [Change(*row) for row in connection.exec_driver_sql(query, (commit,))]


def only_events_since(connection: Connection, commit: int, last: int) -> bool:
    """Whether the commits after `commit`, up to the `last` one, changed neither what is matched nor how."""
    if not commit <= last <= commit + KEPT_COMMITS:
        return False
    return all(each.kind in (TOLD, PARKED) for each in changes_after(connection, commit))


def commit_is_there(connection: Connection, server: str, commit: int) -> bool:
    """Whether the group of this server that should be this commit is on disk. Waits until its transaction has ended.
    Transaction ids are not used, because after a crash PostgreSQL reuses those that were not on disk."""
    lock_ledger(connection)
    mine = connection.exec_driver_sql("SELECT commit FROM own_commits WHERE server = %s", (server,))
    return mine.scalar_one_or_none() == commit


def timeline(connection: Connection) -> str:
    """Returns the timeline of PostgreSQL, which is another one after a replica was promoted; an empty text if this
    database does not tell it. Must run in a transaction."""
    try:
        with connection.begin_nested():
            found = connection.exec_driver_sql("SELECT left(pg_walfile_name(pg_current_wal_lsn()), 8)").scalar_one()
    except DBAPIError:
        return ""
    return str(found)


def clean(connection: Connection, commits: int) -> None:
    """Deletes old changes, leases of deleted subscriptions, servers that ended long ago, and their jobs. Must run in a
    group."""
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
    """Takes the leases of these subscriptions that no live server has. Returns the subscriptions for which this server
    delivers now, with their fences. Must run in a group."""
    connection.execute(_TAKE, {"me": me, "numbers": list(numbers)})
    return held_leases(connection, me, numbers)


def release_lease(connection: Connection, me: str, number: int) -> None:
    """Gives up the lease of a subscription. The row stays, so that the fence keeps growing. Must run in a group."""
    connection.exec_driver_sql("UPDATE leases SET server = '' WHERE subscription = %s AND server = %s", (number, me))


def held_leases(connection: Connection, me: str, numbers: Collection[int]) -> dict[int, int]:
    """Returns the subscriptions for which this server delivers, with their fences."""
    return {number: fence for number, fence in connection.execute(_HELD, {"me": me, "numbers": list(numbers)})}


def leased_to_others(connection: Connection, me: str, numbers: Collection[int]) -> set[int]:
    """Returns the subscriptions for which another live server delivers."""
    return set(connection.execute(_OTHERS, {"me": me, "numbers": list(numbers)}).scalars())


# ── who lives ───────────────────────────────────────────────────────────────────────────────────────────────────────

TIME = "SELECT extract(epoch FROM clock_timestamp())::float8"
BEAT = (
    "INSERT INTO servers (id, program, layout, alive_until, applied)"
    " VALUES (%s, %s, %s, clock_timestamp() + make_interval(secs => %s), %s)"
    " ON CONFLICT (id) DO UPDATE SET alive_until = excluded.alive_until, applied = excluded.applied"
    " RETURNING extract(epoch FROM clock_timestamp())::float8"
)
"""The statement of a heartbeat, which returns the time of the database. Its parameters: the id of the server, its
program and its layout, for how many seconds it counts as live, what it has applied."""
LIVING = "SELECT id, program FROM servers WHERE alive_until > clock_timestamp() ORDER BY id"
COMMITS = "SELECT commits FROM ledger"
END_STUCK = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
    " WHERE datname = current_database() AND usename = current_user"
    " AND wait_event = 'ClientRead' AND state_change < clock_timestamp() - make_interval(secs => %s) AND pid IN"
    " (SELECT pid FROM pg_locks WHERE relation = 'ledger'::regclass AND mode = 'RowShareLock' AND granted)"
)
"""The statement that ends the groups whose server was silent for so many seconds, its parameter. PostgreSQL's own
`idle_in_transaction_session_timeout` does not end one that stopped within, or after, a pipeline of the driver. Only
groups of the same user: to end another's would be an error."""
LEAVE = "DELETE FROM servers WHERE id = %s"


def note_applied(connection: Connection, id: str, commits: int) -> None:
    """Stores that a server has the vocabulary and the operators of this commit."""
    connection.exec_driver_sql("UPDATE servers SET applied = %s WHERE id = %s", (commits, id))


def behind(connection: Connection, commits: int, but: str) -> int:
    """Returns how many live servers, not counting `but`, have not applied the vocabulary and operators of this
    commit."""
    query = "SELECT count(*) FROM servers WHERE alive_until > clock_timestamp() AND applied < %s AND id <> %s"
    return int(connection.exec_driver_sql(query, (commits, but)).scalar_one())


class Member(NamedTuple):
    """A live server. `applied` is the commit whose vocabulary and operators it has, `commit` its own last commit, and
    `leases` the number of subscriptions for which it delivers."""

    id: str
    program: str
    lives_for_seconds: float
    applied: int
    commit: int | None
    leases: int


def members(connection: Connection) -> list[Member]:
    """Returns the live servers, ordered by id."""
    query = (
        "SELECT servers.id, program, extract(epoch FROM alive_until - clock_timestamp())::float8, applied, own.commit,"
        " (SELECT count(*) FROM leases WHERE server = servers.id AND subscription > 0)"
        " FROM servers LEFT JOIN own_commits AS own ON own.server = servers.id"
        " WHERE alive_until > clock_timestamp() ORDER BY servers.id"
    )
    return [Member(*row) for row in connection.exec_driver_sql(query)]


def living(connection: Connection) -> Sequence[tuple[str, str]]:
    """Returns the id and program of each live server."""
    return [(id, program) for id, program in connection.exec_driver_sql(LIVING)]


def oldest_layout(connection: Connection) -> int | None:
    """Returns the oldest of the layouts that the live servers know; None if there are none."""
    query = "SELECT min(layout) FROM servers WHERE alive_until > clock_timestamp()"
    oldest: int | None = connection.exec_driver_sql(query).scalar_one()
    return oldest


# ── preparing a vocabulary ──────────────────────────────────────────────────────────────────────────────────────────


class Upcoming(NamedTuple):
    """The vocabulary that a server is about to activate: its version, the version that it replaces (`base`), and in
    what it differs from that one."""

    token: str
    server: str
    version: str
    base: str
    content: bytes


UPCOMING_NOW = (
    "SELECT token FROM upcoming JOIN servers ON servers.id = upcoming.server"
    " WHERE alive_until > clock_timestamp() AND server <> %s"
)
"""The statement that returns the token of the vocabulary that another live server is about to activate, if there is
one. Its parameter: the id of this server."""
_STORE_UPCOMING = text(
    "INSERT INTO upcoming (token, server, version, base, content) VALUES (:token, :server, :version, :base, :content)"
)


def store_upcoming(connection: Connection, channel: str, announced: Upcoming) -> None:
    """Announces a vocabulary to the other servers. Only the server that has the right to activate one may call this:
    what an earlier server left is deleted."""
    _clear_upcoming(connection)
    connection.execute(_STORE_UPCOMING, announced._asdict())
    connection.exec_driver_sql("SELECT pg_notify(%s, %s)", (channel, UPCOMING))


def forget_upcoming(connection: Connection, channel: str) -> None:
    """Tells the other servers that no vocabulary is about to be activated any more."""
    _clear_upcoming(connection)
    connection.exec_driver_sql("SELECT pg_notify(%s, %s)", (channel, UPCOMING))


def _clear_upcoming(connection: Connection) -> None:
    connection.exec_driver_sql("DELETE FROM upcoming")
    connection.exec_driver_sql("DELETE FROM preparations")


def find_upcoming(connection: Connection, token: str) -> Upcoming | None:
    """Returns the vocabulary with this token; None if it is no longer about to be activated."""
    query = "SELECT token, server, version, base, content FROM upcoming WHERE token = %s"
    row = connection.exec_driver_sql(query, (token,)).one_or_none()
    return None if row is None else Upcoming(*row)


def note_prepared(connection: Connection, token: str, me: str) -> None:
    """Stores that a server has prepared a vocabulary, or cannot. The activation does not wait for it any longer. Must
    run in a group."""
    connection.exec_driver_sql(
        "INSERT INTO preparations (token, server) SELECT token, %s FROM upcoming WHERE token = %s"
        " ON CONFLICT DO NOTHING",
        (me, token),
    )


def unprepared(connection: Connection, token: str, but: str) -> int:
    """Returns how many live servers, not counting `but`, are still preparing a vocabulary."""
    query = (
        "SELECT count(*) FROM servers WHERE alive_until > clock_timestamp() AND id <> %s AND NOT EXISTS"
        " (SELECT FROM preparations WHERE token = %s AND preparations.server = servers.id)"
    )
    return int(connection.exec_driver_sql(query, (but, token)).scalar_one())


# ── circuits ────────────────────────────────────────────────────────────────────────────────────────────────────────


class CircuitState(NamedTuple):
    """The state of the circuit of a remote operator. `left` is how many seconds the pause still lasts, zero or less if
    it is over, and None if the circuit is closed."""

    operator: str
    failures: int
    pause: float
    left: float | None
    reason: str


MAX_REASON = 1_000
_STORE_CIRCUIT = text(
    "INSERT INTO circuits (operator, failures, pause, until, reason) VALUES"
    " (:operator, :failures, :pause, clock_timestamp() + make_interval(secs => :left), :reason)"
    " ON CONFLICT (operator) DO UPDATE SET failures = excluded.failures, pause = excluded.pause,"
    " until = excluded.until, reason = excluded.reason, probe_until = NULL"
)
_CLAIM_PROBE = text(
    "UPDATE circuits SET probe_until = clock_timestamp() + make_interval(secs => :seconds) WHERE operator = :operator"
    " AND (until IS NULL OR until <= clock_timestamp() + interval '100 milliseconds')"
    " AND (probe_until IS NULL OR probe_until <= clock_timestamp())"
)


def store_circuit(connection: Connection, state: CircuitState) -> None:
    """Stores the state of a circuit, and ends the probe, if there is one. Must run in a group."""
    plain = state.reason.replace("\0", "")[:MAX_REASON]  # PostgreSQL stores no NUL, which an operator may have answered
    connection.execute(_STORE_CIRCUIT, state._replace(reason=plain)._asdict())


def find_circuits(connection: Connection) -> list[CircuitState]:
    """Returns the state of each circuit that was ever open."""
    query = (
        "SELECT operator, failures, pause, extract(epoch FROM until - clock_timestamp())::float8, reason FROM circuits"
    )
    return [CircuitState(*row) for row in connection.exec_driver_sql(query)]


def claim_probe(connection: Connection, operator: str, seconds: float) -> bool:
    """Claims the right to make the one call that tests an operator after its pause, for at most this time. Returns
    whether the caller has it. Must run in a group."""
    if connection.execute(_CLAIM_PROBE, {"operator": operator, "seconds": seconds}).rowcount:
        return True
    there = connection.exec_driver_sql("SELECT FROM circuits WHERE operator = %s", (operator,))
    return there.first() is None


def forget_circuit(connection: Connection, operator: str) -> None:
    """Deletes the state of a circuit, because the operator was deleted or registered again. Must run in a group."""
    connection.exec_driver_sql("DELETE FROM circuits WHERE operator = %s", (operator,))


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
    """Stores the progress of a job of this server. When it ends, jobs that ended long ago are deleted. Must run in a
    group."""
    connection.execute(_STORE_JOB, {"id": id, "me": me, "told": told, "ended": ended})
    if ended:
        connection.execute(_FORGET_JOBS, {"kept": kept, "seconds": seconds})


def find_job(connection: Connection, id: str) -> str | None:
    """Returns the last stored progress of a job; None if there is no such job, or if its server ended first."""
    told: str | None = connection.exec_driver_sql(_FIND_JOB, (id,)).scalar_one_or_none()
    return told
