"""The system database: keys, tenants, the audit log, usage and used tokens. It holds no data of any tenant.

With SQLite it is a separate file beside the main one (`kindcast.system.db`), in WAL mode with `synchronous=FULL`. So
the command line can create keys while a server runs. With PostgreSQL it is the tables `system_…` of the same database.
"""

import hashlib
import logging
import os
import shlex
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from secrets import token_bytes
from typing import Any, TypeVar

import msgspec
from sqlalchemy import (
    JSON,
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    Double,
    Engine,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Row,
    String,
    Table,
    Text,
    create_engine,
    delete,
    event,
    func,
    insert,
    select,
    text,
    true,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from kindcast.server.errors import (
    IdempotencyKeyReused,
    KeyMade,
    KeysLost,
    LastKey,
    StoreInDoubt,
    StoreUnavailable,
    StoreUnreadable,
    TenantExists,
    TenantInUse,
    UnknownKey,
    UnknownTenant,
)
from kindcast.server.security.keys import DEFAULT_TENANT, Key
from kindcast.server.security.limits import QUOTA_SECONDS, LimitReached
from kindcast.server.settings import Settings
from kindcast.server.store.database import (
    COMPILED,
    STUCK_SECONDS,
    TENANT_SCHEMA,
    connect_arguments,
    inode_of,
    normalised,
    reason_of,
    schema_of_tenant,
)
from kindcast.server.store.integrity import mark_of_keys

__all__ = ["DELETED", "KEYS_MOVED", "AuditEntry", "SystemStore", "Tenant"]

T = TypeVar("T")

_log = logging.getLogger("kindcast.access")

SYSTEM_LOCK = 0x6B696E64_73797374  # "kindsyst": the key of a lock on PostgreSQL, held while tables are made and dropped
KEYS_MOVED = "the file of the keys and tenants was deleted or moved away: stop the server, and restore a backup"
LAYOUT = 1
SECRET_BYTES = 32
AUDIT_NUMBERS = "audit numbers"
"""The name of the secret that hides the numbers of the audit log."""
ASKED_TOGETHER = 100
"""The maximum number of schemas in one query."""
DROPPED_AT_ONCE = 10
"""The maximum number of schemas in one transaction: PostgreSQL locks each table and each index of them."""
SETTLE_SECONDS = 5.0
"""How long a reader of the audit log waits for other servers that are adding entries."""
SETTLE_PAUSE_SECONDS = 0.005
DROP_SECONDS = 1
"""How long a deletion may wait for statements of other servers."""
READ_ONLY = "25006"
"""PostgreSQL's code for a write in a read-only transaction. A session that began while the database was read-only stays
read-only."""
RULER_SECONDS = 86_400.0
"""How long another key of an administrator of all tenants must be valid when one is revoked: long enough to make a
further one."""
REFUSALS = (401, 403)
"""The status codes of requests that were refused because of their sender."""
DELETED = ".deleted-"
"""A part of the folder's name while the files of a deleted tenant are removed. No tenant has a name with a dot."""
metadata = MetaData()
_Json = JSON(none_as_null=True)
_Number = BigInteger().with_variant(Integer, "sqlite")

about = Table(
    "system",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),  # always 1
    Column("layout", Integer, nullable=False),
    Column("changes", _Number, nullable=False),  # counts changes of keys and tenants, for caches of them
)
keys = Table(
    "system_keys",
    metadata,
    Column("id", String, primary_key=True),
    Column("hash", String, nullable=False),
    Column("role", String, nullable=False),
    Column("tenant", String),  # NULL: a key for all tenants
    Column("name", Text, nullable=False),
    Column("created_at", Double, nullable=False),
    Column("expires_at", Double),
    Column("limits", _Json, nullable=False),
    Column("created_by", String),
    Column("origin", String, nullable=False),
)
tenants = Table(
    "system_tenants",
    metadata,
    Column("name", String, primary_key=True),
    Column("created_at", Double, nullable=False),
    Column("limits", _Json, nullable=False),
    Column("awake", Integer, nullable=False),  # not 0: work may be due without a request: opened at the next start
)
audit = Table(
    "system_audit",
    metadata,
    Column("number", _Number, primary_key=True, autoincrement=True),
    Column("at", Double, nullable=False),
    Column("tenant", String, nullable=False),
    Column("who", String, nullable=False),  # a key, a subject of an identity provider, a command
    Column("address", String, nullable=False),
    Column("action", Text, nullable=False),  # method and path
    Column("outcome", Integer, nullable=False),  # the status of the answer
    Column("detail", Text, nullable=False),
    Index("system_audit_tenant", "tenant", "number"),
    sqlite_autoincrement=True,
)
usage = Table(
    "system_usage",
    metadata,
    Column("who", String, nullable=False),
    Column("tenant", String, nullable=False),
    Column("day", String, nullable=False),
    Column("requests", _Number, nullable=False),
    Column("refused", _Number, nullable=False),
    Column("events", _Number, nullable=False),
    Column("bytes", _Number, nullable=False),
    PrimaryKeyConstraint("who", "tenant", "day"),
)

secrets = Table(
    "system_secrets",
    metadata,
    Column("name", String, primary_key=True),
    Column("secret", LargeBinary, nullable=False),
)
used_tokens = Table(
    "system_used_tokens",
    metadata,
    Column("id", String, primary_key=True),
    Column("until", Double, nullable=False, index=True),
)
NOT_IN_BACKUPS = (secrets.name, used_tokens.name)
"""Tables whose rows no backup contains: whoever reads a backup must not be able to sign tokens. A restored server makes
a new secret."""


class Tenant(msgspec.Struct, frozen=True, kw_only=True):
    """A tenant, its limits, and how often it was opened since it last had no due work. If that is not zero, a start
    opens it."""

    name: str
    created_at: float
    limits: Mapping[str, float]
    awake: int = 0

    @property
    def schema(self) -> str:
        """The name of its schema on PostgreSQL."""
        return schema_of_tenant(self.name, self.created_at)

    @property
    def aside(self) -> str:
        """The name of its folder while it is deleted, with SQLite. A later tenant with its name has another one."""
        return f"{self.name}{DELETED}{self.created_at!r}"


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of the audit log: who did what, from where, and with what result."""

    at: float
    tenant: str
    who: str
    address: str
    action: str
    outcome: int
    detail: str = ""


class SystemStore:
    """The system database. May be used by any number of threads. Transactions run one after the other."""

    def __init__(self, settings: Settings) -> None:
        """Does not open the database; `open` does."""
        url = normalised(settings.database_url)
        self.path: Path | None = None
        self._mark_of_keys: Path | None = None
        if url.get_backend_name() == "sqlite":
            self.path = Path(str(url.database)).with_suffix(".system.db")
            self._mark_of_keys = mark_of_keys(str(url.database))
            url = url.set(database=str(self.path))
        self._engine: Engine = create_engine(
            url,
            poolclass=NullPool,
            json_serializer=lambda value: msgspec.json.encode(value).decode(),
            json_deserializer=msgspec.json.decode,
            hide_parameters=True,
            execution_options={"compiled_cache": COMPILED},
            connect_args=connect_arguments(url),
        )
        if self.path is not None:
            event.listen(self._engine, "connect", _prepare_sqlite)
            event.listen(self._engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
        else:
            event.listen(self._engine, "connect", _prepare_postgresql)
        self.connections = 0
        """How many connections were made. A new one may lead to a promoted replica, which lacks changes."""
        event.listen(self._engine, "connect", self._count)
        self._connection: Connection | None = None
        self._file: int | None = None
        self._lock = threading.Lock()

    def open(self) -> None:
        """Opens the database and creates missing tables. Raises `StoreUnreadable`, OSError."""
        try:
            if self.path is not None:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
                self._file = inode_of(self.path)
            self._connection = self._engine.connect()
            with self._connection.begin():
                if self.path is None:  # another server may start at the same time
                    self._connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({SYSTEM_LOCK})")
                metadata.create_all(self._connection)
                layout = self._connection.execute(select(about.c.layout)).scalar_one_or_none()
                if layout is None:
                    self._connection.execute(insert(about).values(id=1, layout=LAYOUT, changes=0))
                elif layout != LAYOUT:
                    raise StoreUnreadable(f"{self.path or 'the database'} has keys in layout {layout}, not {LAYOUT}")
        except DBAPIError as error:
            raise StoreUnreadable(f"the database of the keys cannot be opened: {error.orig}") from error

    def close(self) -> None:
        """Closes the database. May be called more than once."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None
            self._engine.dispose()

    def _count(self, *_: Any) -> None:
        self.connections += 1

    @property
    def is_in_place(self) -> bool:
        """Whether the file of a SQLite database is still the one that was opened."""
        return self.path is None or inode_of(self.path) == self._file

    def run(self, work: Callable[[Connection], T]) -> T:
        """Runs `work` in a transaction and commits it. Runs it again on a new connection if the connection has ended
        before the commit, as after a restart of PostgreSQL, or is read-only. Raises `StoreUnavailable`."""
        with self._lock:
            if self._connection is None:
                raise StoreUnavailable("the database of the keys is closed")
            if not self.is_in_place:
                raise StoreUnavailable(KEYS_MOVED)
            try:
                return _in_transaction(self._connection, work)
            except DBAPIError as error:
                if error.connection_invalidated:  # after the commit was sent
                    raise StoreInDoubt from error
                _log.error("the database of the keys reports an error: %s", error.orig)
                raise StoreUnavailable.because(reason_of(error)) from error

    # ── keys and tenants ────────────────────────────────────────────────────────────────────────────────────────────

    def check_keys(self) -> None:
        """Checks that a database that had keys still has some. Raises `KeysLost`."""
        if self._mark() or self.path is None or self._mark_of_keys is None or not self._mark_of_keys.exists():
            return
        data = shlex.quote(str(self.path.parent))
        raise KeysLost(
            f"the keys in {self.path} are missing, so everybody on this machine could do everything. Put the file back,"
            f" or make a new key: kindcast key create --role admin --data {data}; or continue without keys:"
            f" kindcast repair --data {data} --accept-loss"
        )

    def _mark(self) -> bool:
        """Returns whether there are keys. If so, creates the file that marks this."""
        there = self.run(lambda connection: connection.execute(select(func.count()).select_from(keys)).scalar_one()) > 0
        if there and self._mark_of_keys is not None:
            self._mark_of_keys.touch(mode=0o600)
        return there

    def changes(self) -> int:
        """Returns a number that grows with every change of keys or tenants."""
        return self.run(lambda connection: int(connection.execute(select(about.c.changes)).scalar_one()))

    def load(self) -> tuple[int, list[Key], list[Tenant]]:
        """Returns `changes`, all keys and all tenants."""

        def read(connection: Connection) -> tuple[int, list[Key], list[Tenant]]:
            changes = int(connection.execute(select(about.c.changes)).scalar_one())
            known = [Key(**row._mapping) for row in connection.execute(select(keys).order_by(keys.c.created_at))]
            named = [_tenant(row) for row in connection.execute(select(tenants).order_by(tenants.c.name))]
            return changes, known, named

        return self.run(read)

    def add_key(self, key: Key, *, replaces: str | None = None, until: float = 0.0, most: int | None = None) -> None:
        """Stores a key, and its tenant if it is new. The key that it `replaces` expires at `until`, unless it expires
        earlier; raises `UnknownKey` if it was revoked meanwhile. If there is a key with this id, raises `KeyMade`, or
        `IdempotencyKeyReused` if that one differs. Raises `LimitReached` if the tenant has `most` keys."""

        def write(connection: Connection) -> None:
            made = connection.execute(select(keys).where(keys.c.id == key.id)).one_or_none()
            if made is not None:
                asked = ("role", "tenant", "name", "expires_at", "limits")
                if any(getattr(made, name) != getattr(key, name) for name in asked):
                    raise IdempotencyKeyReused(
                        f"another request with this Idempotency-Key made the key {key.id!r}, or that key was changed "
                        "since: send a new Idempotency-Key"
                    )
                raise KeyMade(key.id)
            if replaces is not None:
                there = select(keys.c.id).where(keys.c.id == replaces).with_for_update()
                if connection.execute(there).one_or_none() is None:
                    raise UnknownKey(replaces)
            if most is not None:
                _check_room(connection, key.tenant, most)
            if key.tenant is not None:
                _add_tenant(connection, key.tenant, key.created_at)
            connection.execute(insert(keys).values(msgspec.structs.asdict(key)))
            if replaces is not None:
                ends = keys.c.expires_at.is_(None) | (keys.c.expires_at > until)
                connection.execute(update(keys).where(keys.c.id == replaces, ends).values(expires_at=until))
            _changed(connection)

        self.run(write)
        self._mark()

    def delete_key(self, id: str, *, keep_ruler_at: float | None = None) -> bool:
        """Deletes a key. Returns whether it existed. If `keep_ruler_at` is given, raises `LastKey` for an
        administrator's key for all tenants if no other such key is valid for a day from that time, or for as long."""

        def write(connection: Connection) -> bool:
            if keep_ruler_at is not None:
                _check_ruler_left(connection, id, keep_ruler_at)
            gone = connection.execute(delete(keys).where(keys.c.id == id)).rowcount > 0
            _changed(connection)
            return gone

        gone = self.run(write)
        if not self._mark() and self._mark_of_keys is not None:
            self._mark_of_keys.unlink(missing_ok=True)
        return gone

    def add_tenant(self, name: str, limits: Mapping[str, float], now: float) -> None:
        """Creates a tenant. Raises `TenantExists`."""

        def write(connection: Connection) -> None:
            if not _add_tenant(connection, name, now):
                raise TenantExists(name)
            _set_limits(connection, name, limits)
            _changed(connection)

        self.run(write)

    def set_tenant_limits(self, name: str, limits: Mapping[str, float], now: float) -> None:
        """Replaces the limits of a tenant. Raises `UnknownTenant`."""

        def write(connection: Connection) -> None:
            if name == DEFAULT_TENANT:
                _add_tenant(connection, name, now)  # it exists before it has a row
            if not _set_limits(connection, name, limits):
                raise UnknownTenant(name)
            _changed(connection)

        self.run(write)

    def delete_tenant(self, name: str, set_aside: Callable[[Tenant], None]) -> Tenant:
        """Deletes a tenant and its usage, and returns it. Calls `set_aside`, which takes its data away, before the
        commit: if that fails or the process ends, the tenant still exists. Raises `UnknownTenant`, `TenantInUse`."""

        def write(connection: Connection) -> Tenant:
            _check_unused(connection, name)
            deleted = _tenant(connection.execute(select(tenants).where(tenants.c.name == name)).one())
            connection.execute(delete(usage).where(usage.c.tenant == name))
            connection.execute(delete(tenants).where(tenants.c.name == name))
            _changed(connection)
            set_aside(deleted)
            return deleted

        return self.run(write)

    def check_unused(self, name: str) -> None:
        """Checks that a tenant can be deleted. Raises `UnknownTenant`, `TenantInUse`."""
        self.run(lambda connection: _check_unused(connection, name))

    def wake(self, name: str) -> Tenant:
        """Stores that a tenant may have due work: a start opens it, and so does another server when no server has it
        open any more. Returns the tenant. Its `awake` is the argument of `rest`. Raises `UnknownTenant`."""
        chosen = tenants.c.name == name

        def write(connection: Connection) -> Tenant:
            connection.execute(update(tenants).where(chosen).values(awake=tenants.c.awake + 1))
            row = connection.execute(select(tenants).where(chosen)).one_or_none()
            if row is None:
                raise UnknownTenant(name)
            return _tenant(row)

        return self.run(write)

    def rest(self, tenant: Tenant) -> None:
        """Stores that a tenant has no due work, unless `wake` was called since, or a live server has it open."""
        chosen = (tenants.c.name == tenant.name) & (tenants.c.awake == tenant.awake)

        def write(connection: Connection) -> None:
            if self.path is not None or not _served(connection, [tenant.schema]):
                connection.execute(update(tenants).where(chosen).values(awake=0))

        self.run(write)

    def awake(self) -> list[Tenant]:
        """Returns the tenants that may have due work, by name."""
        chosen = select(tenants).where(tenants.c.awake > 0).order_by(tenants.c.name)
        return self.run(lambda connection: [_tenant(row) for row in connection.execute(chosen)])

    def tenants(self) -> list[Tenant]:
        """Returns all created tenants, by name."""
        return self.run(created)

    def existing(self, among: Sequence[Tenant]) -> set[str]:
        """Returns the schemas of those tenants that are not deleted."""
        chosen = select(tenants).where(tenants.c.name.in_([each.name for each in among]))
        return self.run(lambda connection: {_tenant(row).schema for row in connection.execute(chosen)})

    def with_tables(self) -> set[str]:
        """Returns the schemas of all tenants that were ever opened. PostgreSQL only."""
        return self.run(with_tables)

    def served(self, among: Sequence[Tenant]) -> set[str]:
        """Returns the names of those tenants that a live server has open. PostgreSQL only. Cost: one look into each."""
        found = self.run(lambda connection: _served(connection, [each.schema for each in among]))
        return {each.name for each in among if each.schema in found}

    def drop_deleted(self) -> tuple[list[str], int]:
        """Deletes the data of some deleted tenants that no live server has open. Returns the names of their schemas,
        and how many are left, at least. PostgreSQL only. Cost: a look at all tenants."""

        def write(connection: Connection) -> tuple[list[str], int]:
            alone = connection.exec_driver_sql(f"SELECT pg_try_advisory_xact_lock({SYSTEM_LOCK})").scalar_one()
            if not alone:
                return [], 1  # another server does it: a schema that disappears during a look is an error
            connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{DROP_SECONDS}s'")
            # The schemas first: a tenant that is created meanwhile has its row before its schema.
            there = schemas(connection)
            gone = sorted(there - {each.schema for each in created(connection)})
            busy = _served(connection, gone)
            dropped = [each for each in gone if each not in busy][:DROPPED_AT_ONCE]
            for each in dropped:
                connection.exec_driver_sql(f"DROP SCHEMA IF EXISTS {each} CASCADE")
            return dropped, len(gone) - len(dropped)

        return self.run(write)

    # ── secrets and tokens ──────────────────────────────────────────────────────────────────────────────────────────

    def secret(self, name: str) -> bytes:
        """Returns the secret with this name: 32 random bytes, the same for every server of the database."""

        return self.run(lambda connection: _secret(connection, name))

    def use_token(self, id: str, until: float) -> bool:
        """Stores that a token was used. Returns whether this is the first use, at any server."""
        row = {"id": id, "until": until}
        return self.run(lambda connection: connection.execute(_INSERT_USED, row).rowcount > 0)

    def forget_used_tokens(self, before: float) -> None:
        """Deletes what is stored about tokens that ended before this time."""
        chosen = delete(used_tokens).where(used_tokens.c.until < before)
        self.run(lambda connection: connection.execute(chosen))

    # ── the audit log ───────────────────────────────────────────────────────────────────────────────────────────────

    def record(self, entries: Sequence[AuditEntry]) -> None:
        """Appends entries to the audit log. They are on disk when it returns."""
        rows = [msgspec.structs.asdict(each) for each in entries]
        self.run(lambda connection: connection.execute(insert(audit), rows))

    def audited(
        self,
        *,
        tenant: str | None,
        after: int,
        limit: int,
        who: str | None = None,
        since: float = 0.0,
        newest_first: bool = False,
    ) -> list[dict[str, Any]]:
        """Returns entries of the audit log, from its begin or, with `newest_first`, from its end if `after` is 0.
        `tenant=None` stands for all tenants. To one tenant, numbers tell nothing about the entries of others: `after`
        and the numbers of the entries are hidden ones. Raises LookupError if `after` is no number of this list, and
        `StoreUnavailable` if another server does not end what it adds."""
        newest = None if self.path is not None or newest_first else self._newest_settled()

        def read(connection: Connection) -> list[dict[str, Any]]:
            hidden = None if tenant is None else _HiddenNumbers(_secret(connection, AUDIT_NUMBERS), tenant)
            begin = after
            if hidden is not None and after:
                begin = hidden.revealed(after)
                if begin > (connection.execute(select(func.max(audit.c.number))).scalar() or begin):
                    raise LookupError(after)
            query = select(audit).where(audit.c.at >= since)
            if newest is not None:
                query = query.where(audit.c.number <= newest)
            if begin:
                query = query.where(audit.c.number < begin if newest_first else audit.c.number > begin)
            if tenant is not None:
                query = query.where(audit.c.tenant == tenant)
            if who is not None:
                query = query.where(audit.c.who == who)
            order = audit.c.number.desc() if newest_first else audit.c.number
            rows = [dict(row._mapping) for row in connection.execute(query.order_by(order).limit(limit))]
            return rows if hidden is None else [row | {"number": hidden.hidden(row["number"])} for row in rows]

        return self.run(read)

    def _newest_settled(self) -> int:
        """Returns the newest number of the audit log, as soon as all entries before it are stored. On PostgreSQL
        another server may have a lower number and commit later. A reader who continues after the higher one would miss
        it. Raises `StoreUnavailable`."""
        newest = self.run(lambda connection: int(connection.execute(select(func.max(audit.c.number))).scalar() or 0))
        adding = self.run(_adding)
        deadline = time.monotonic() + SETTLE_SECONDS
        while adding:
            if time.monotonic() > deadline:
                raise StoreUnavailable("another server takes too long to change the audit log: try again")
            time.sleep(SETTLE_PAUSE_SECONDS)
            adding &= self.run(_adding)
        return newest

    def forget_audited(self, before: float, *, keep: int) -> int:
        """Deletes entries older than `before`, and of the rest the oldest entries of the tenants with the most entries,
        until `keep` are left. Entries of refused requests may be at most a tenth of `keep`. So nobody can displace the
        entries of other tenants, nor somebody without a key those of changes. Returns how many were deleted. Cost: two
        scans of the log."""

        def write(connection: Connection) -> int:
            gone = connection.execute(delete(audit).where(audit.c.at < before)).rowcount
            gone += _forget_oldest(connection, audit.c.outcome.in_(REFUSALS), keep // 10)
            return gone + _forget_oldest(connection, true(), keep)

        return self.run(write)

    # ── usage ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def add_usage(self, day: str, counted: Iterable[tuple[str, str, Mapping[str, int]]]) -> None:
        """Adds to the usage of each (who, tenant) on a day. Other servers may do so at the same time: all of them write
        the rows in the same order, so that none waits for another one that waits for it."""
        rows = sorted(counted, key=lambda row: row[:2])

        def write(connection: Connection) -> None:
            dialect = sqlite if connection.dialect.name == "sqlite" else postgresql
            for who, tenant, more in rows:
                statement = dialect.insert(usage).values(who=who, tenant=tenant, day=day, **more)
                larger = {name: usage.c[name] + number for name, number in more.items()}
                connection.execute(
                    statement.on_conflict_do_update(index_elements=["who", "tenant", "day"], set_=larger)
                )

        self.run(write)

    def used(self, *, tenant: str | None, since: str) -> list[dict[str, Any]]:
        """Returns the usage from a day on, by day, tenant and key."""
        query = select(usage).where(usage.c.day >= since).order_by(usage.c.day, usage.c.tenant, usage.c.who)
        if tenant is not None:
            query = query.where(usage.c.tenant == tenant)
        return self.run(lambda connection: [dict(row._mapping) for row in connection.execute(query)])


def _forget_oldest(connection: Connection, chosen: ColumnElement[bool], keep: int) -> int:
    """Deletes the oldest of the chosen audit entries of each tenant that has more than its share. At least one entry of
    each tenant is kept."""
    counts = select(audit.c.tenant, func.count()).where(chosen).group_by(audit.c.tenant)
    found = {tenant: count for tenant, count in connection.execute(counts)}
    share, gone = max(1, _fair_share(found.values(), keep)), 0
    for tenant, count in found.items():
        if count > share:
            its = chosen & (audit.c.tenant == tenant)
            newest = select(audit.c.number).where(its).order_by(audit.c.number.desc())
            last = connection.execute(newest.offset(share).limit(1)).scalar_one()
            gone += connection.execute(delete(audit).where(its, audit.c.number <= last)).rowcount
    return gone


def _fair_share(counts: Iterable[int], most: int) -> int:
    """Returns how many each may keep of its count, so that all together keep at most `most`.

    >>> _fair_share([1, 50, 20], 31), _fair_share([1, 2], 31)
    (15, 2)
    """
    ordered = sorted(counts)
    for place, count in enumerate(ordered):
        share = most // (len(ordered) - place)
        if count > share:
            return share
        most -= count
    return max(ordered, default=0)


class _HiddenNumbers:
    """A permutation of the numbers below 2 ** 52 (exact in every JSON parser): a Feistel network whose key is a secret.
    One tenant cannot count from the numbers of its entries those of others."""

    HALF = 26
    ROUNDS = range(4)

    def __init__(self, secret: bytes, tenant: str) -> None:
        self._key = hashlib.blake2b(tenant.encode(), key=secret).digest()

    def hidden(self, number: int) -> int:
        left, right = divmod(number, 1 << self.HALF)
        for turn in self.ROUNDS:
            left, right = right, left ^ self._mixed(turn, right)
        return left << self.HALF | right

    def revealed(self, number: int) -> int:
        left, right = divmod(number, 1 << self.HALF)
        for turn in reversed(self.ROUNDS):
            left, right = right ^ self._mixed(turn, left), left
        return left << self.HALF | right

    def _mixed(self, turn: int, half: int) -> int:
        digest = hashlib.blake2b(b"%d %d" % (turn, half), key=self._key, digest_size=4).digest()
        return int.from_bytes(digest) >> (32 - self.HALF)


def _secret(connection: Connection, name: str) -> bytes:
    chosen = select(secrets.c.secret).where(secrets.c.name == name)
    found = connection.execute(chosen).scalar_one_or_none()
    if found is None:
        connection.execute(_INSERT_SECRET, {"name": name, "secret": token_bytes(SECRET_BYTES)})
        found = connection.execute(chosen).scalar_one()  # another server may have been first
    return bytes(found)


_INSERT_SECRET = text("INSERT INTO system_secrets (name, secret) VALUES (:name, :secret) ON CONFLICT DO NOTHING")
_INSERT_USED = text("INSERT INTO system_used_tokens (id, until) VALUES (:id, :until) ON CONFLICT DO NOTHING")


_PREFIX = {"prefix": TENANT_SCHEMA}
_SCHEMAS = text("SELECT nspname FROM pg_namespace WHERE starts_with(CAST(nspname AS text), :prefix)")
_THERE = text("SELECT schemaname FROM pg_tables WHERE tablename = 'servers' AND schemaname = ANY(:among)")
_WITH_TABLES = text(
    "SELECT schemaname FROM pg_tables WHERE starts_with(CAST(schemaname AS text), :prefix) AND tablename = 'servers'"
)


def created(connection: Connection) -> list[Tenant]:
    """Returns all created tenants, by name."""
    return [_tenant(row) for row in connection.execute(select(tenants).order_by(tenants.c.name))]


def schemas(connection: Connection) -> set[str]:
    """Returns the schemas of all tenants, deleted or not. PostgreSQL only."""
    return set(connection.execute(_SCHEMAS, _PREFIX).scalars())


def with_tables(connection: Connection) -> set[str]:
    """Returns the schemas of all tenants that were ever opened. PostgreSQL only."""
    return set(connection.execute(_WITH_TABLES, _PREFIX).scalars())


def _add_tenant(connection: Connection, name: str, now: float) -> bool:
    """Creates a tenant if it does not exist, without the usage that a server stored late for a deleted tenant of this
    name. Returns whether it was created. Another server may create it at the same time."""
    dialect = sqlite if connection.dialect.name == "sqlite" else postgresql
    statement = dialect.insert(tenants).values(name=name, created_at=now, limits={}, awake=0)
    is_new = connection.execute(statement.on_conflict_do_nothing().returning(tenants.c.name)).first() is not None
    if is_new and name != DEFAULT_TENANT:  # which exists before it has a row
        connection.execute(delete(usage).where(usage.c.tenant == name))
    return is_new


def _check_room(connection: Connection, tenant: str | None, most: int) -> None:
    """Raises `LimitReached` if a tenant has `most` keys."""
    if connection.execute(select(func.count()).where(keys.c.tenant == tenant)).scalar_one() >= most:
        detail = f"this tenant has {most:,} keys, which is its limit: revoke one, or ask for more"
        raise LimitReached(detail, {"Retry-After": str(QUOTA_SECONDS)})


def _check_unused(connection: Connection, name: str) -> None:
    if not connection.execute(select(func.count()).where(tenants.c.name == name)).scalar_one():
        raise UnknownTenant(name)
    left = connection.execute(select(func.count()).where(keys.c.tenant == name)).scalar_one()
    if left:
        raise TenantInUse(f"the tenant {name!r} still has keys ({left:,}): revoke them first")


def _set_limits(connection: Connection, name: str, limits: Mapping[str, float]) -> bool:
    """Sets the limits of a tenant. Returns whether the tenant exists."""
    return connection.execute(update(tenants).where(tenants.c.name == name).values(limits=dict(limits))).rowcount > 0


def _tenant(row: Row[Any]) -> Tenant:
    return Tenant(name=row.name, created_at=row.created_at, limits=row.limits, awake=row.awake)


def _served(connection: Connection, among: Sequence[str]) -> set[str]:
    """Returns those schemas that a live server has open. Cost: one query for each `ASKED_TOGETHER`."""
    there = sorted(connection.execute(_THERE, {"among": list(among)}).scalars())
    served: set[str] = set()
    alive = "SELECT '{0}' WHERE EXISTS (SELECT FROM {0}.servers WHERE alive_until > clock_timestamp())"
    for start in range(0, len(there), ASKED_TOGETHER):
        asked = there[start : start + ASKED_TOGETHER]
        served.update(connection.exec_driver_sql(" UNION ALL ".join(map(alive.format, asked))).scalars())
    return served


def _check_ruler_left(connection: Connection, id: str, now: float) -> None:
    """Raises `LastKey` if `id` is an administrator's key for all tenants and no other such key is valid for a day more,
    or for as long as this one."""
    ruler = (keys.c.role == "admin") & keys.c.tenant.is_(None)
    one = connection.execute(select(keys.c.expires_at).where(ruler, keys.c.id == id)).first()
    if one is None:
        return
    least = now + RULER_SECONDS if one.expires_at is None else min(now + RULER_SECONDS, one.expires_at)
    lasts = keys.c.expires_at.is_(None) | ((keys.c.expires_at >= least) & (keys.c.expires_at > now))
    if not connection.execute(select(keys.c.id).where(ruler, lasts, keys.c.id != id).limit(1)).first():
        raise LastKey


def _changed(connection: Connection) -> None:
    connection.execute(update(about).values(changes=about.c.changes + 1))


def _adding(connection: Connection) -> set[str]:
    """Returns the transactions that change the audit log now. PostgreSQL only."""
    rows = connection.exec_driver_sql(
        "SELECT virtualtransaction FROM pg_locks JOIN pg_database ON pg_database.oid = database AND datname ="
        f" current_database() WHERE relation = '{audit.name}'::regclass AND mode = 'RowExclusiveLock' AND granted"
    )
    return set(rows.scalars())


def _in_transaction(connection: Connection, work: Callable[[Connection], T]) -> T:
    is_done = False
    try:
        with connection.begin():
            result = work(connection)
            is_done = True
        return result
    except DBAPIError as error:
        if getattr(error.orig, "sqlstate", None) == READ_ONLY:
            connection.invalidate()
        elif is_done or not error.connection_invalidated:  # a commit that failed may be on disk
            raise
    with connection.begin():  # connects again
        return work(connection)


def _prepare_postgresql(connection: Any, _: Any) -> None:
    """A commit is on disk when it returns, and a server that stops within a transaction does not stop the others."""
    with connection.cursor() as cursor:
        cursor.execute("SET synchronous_commit = on")
        cursor.execute(f"SET idle_in_transaction_session_timeout = '{STUCK_SECONDS}s'")
    connection.commit()


def _prepare_sqlite(connection: Any, _: Any) -> None:
    connection.isolation_level = None
    for pragma in ("busy_timeout=10000", "journal_mode=WAL", "synchronous=FULL", "cache_size=-1024"):
        connection.execute(f"PRAGMA {pragma}")
