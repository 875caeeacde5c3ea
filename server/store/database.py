"""Opening of the database: one writing connection, a pool of readers, and a lock against servers that do not fit.

SQLite runs in WAL mode with `synchronous=FULL`: a commit that returned is on disk, and readers never wait for the
writer.

PostgreSQL is reached by its URL (`postgresql://…`, the extra `postgres`), with `synchronous_commit` on. Several servers
may use one database: each holds a shared advisory lock. A server that starts alone holds the lock exclusively until the
tables have the present layout. Versions without support for several servers always hold it exclusively.

There each tenant except `default` has a schema of its own, with the same tables and with its own locks and channel. The
URL of its database names the schema as the only one of the search path, so that no statement finds another tenant's
tables.
"""

import fcntl
import hashlib
import logging
import os
import re
import shlex
import sqlite3
import time
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
from sqlalchemy import URL, Connection, Engine, create_engine, event, inspect, make_url, select, text
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.pool import NullPool, QueuePool
from sqlalchemy.sql.compiler import Compiled
from sqlalchemy.util import LRUCache

from kindcast.server.clock import CLOCK
from kindcast.server.errors import StoreInUse, StoreUnavailable, StoreUnreadable
from kindcast.server.settings import Settings
from kindcast.server.store import event_days, servers
from kindcast.server.store.integrity import Damage, Witness, follow_clock, path_of, reading_uri
from kindcast.server.store.ledger import begin_ledger
from kindcast.server.store.matches import MatchCache
from kindcast.server.store.tables import ledger, run_plain

__all__ = [
    "COMPILED",
    "UNREACHABLE",
    "Database",
    "connect_arguments",
    "enter_schema",
    "hangs",
    "in_schema",
    "inode_of",
    "max_connections",
    "normalised",
    "read_only",
    "reason_of",
    "schema_of",
    "schema_of_tenant",
    "shown",
]

T = TypeVar("T")

_log = logging.getLogger("kindcast.store")
logging.getLogger("psycopg").setLevel(logging.ERROR)  # its warnings are about what follows from errors that it raises

ADVISORY_LOCK = 0x6B696E6463617374  # "kindcast": the key of the lock on PostgreSQL
ACTIVATION_LOCK = ADVISORY_LOCK + 1  # held while a vocabulary is built and activated
SHARING_LOCK = ADVISORY_LOCK + 2  # held while a shared ontology is changed; shared by other changes of tenants
TENANT_SCHEMA = "kindcast_tenant_"
LOCK_SECONDS = 60.0  # how long a start waits for the lock: another server may be starting
LOCK_PAUSE_SECONDS = 0.1
CLOSE_SECONDS = 5.0  # how long the end of a server waits for reads
CLOSE_PAUSE_SECONDS = 0.01
UNREACHABLE = "the database cannot be reached: try again"
UNDEFINED_TABLE = "42P01"  # the code of PostgreSQL
_WITH_VALUES = ("22", "23")  # its classes of codes whose messages may have values
LOCK = "kindcast.lock"  # in the data folder, if the database is elsewhere
STUCK_SECONDS = 30  # then PostgreSQL ends an inactive group, so that other servers go on
COMPILED_STATEMENTS = 1_000  # the store has a few hundred
JOURNAL_BYTES = 64 << 20  # the size of the write-ahead log after a burst
WRITER_CACHE_KIB = 65_536  # for the pages of indexes that every event uses


class CompiledStatements(LRUCache[Any, Compiled]):
    """A cache of compiled statements for the engines of a process, which all have the same kinds of values. SQLAlchemy
    has one for each engine, so each tenant would compile each statement twice, for its writer and for its readers. May
    be used in any thread."""

    def get(self, key: Any, default: Any = None) -> Any:
        return super().get(self._shared(key), default)

    def __setitem__(self, key: Any, value: Compiled) -> None:
        super().__setitem__(self._shared(key), value)

    @staticmethod
    def _shared(key: Any) -> Any:
        """Replaces the dialect of one engine in a key by what matters of it."""
        dialect, *statement = key
        return dialect.name, dialect.server_version_info, *statement


COMPILED: Final = CompiledStatements(COMPILED_STATEMENTS)


class Database:
    """The engines over one database. `read` may run in any number of threads; the writing connection has one owner."""

    def __init__(self, settings: Settings, *, sets_clock: bool = True, first: "Database | None" = None) -> None:
        """Does not open the database; `open` does. `sets_clock`: compare the clock with the witness of this database,
        to detect a jump while no server ran. `first`: the database of the tenant `default`, whose readers' connections
        a schema of the same PostgreSQL shares.

        Raises `StoreUnreadable` for a database that cannot serve.
        """
        self._url = normalised(settings.database_url)
        self.schema = schema_of(self._url)
        """The schema of a tenant on PostgreSQL; None for the tenant `default`, and with SQLite."""
        self.channel = self.schema or servers.CHANNEL
        """The channel of NOTIFY. PostgreSQL only."""
        self._data = settings.data
        self._sets_clock = sets_clock
        self._busy_seconds = settings.busy_timeout_seconds
        self._lock: int | None = None
        self._file: int | None = None
        self.witness = Witness(path_of(str(self._url.database))) if self.is_sqlite else None
        """The witness file, with the number of the last commit; None for PostgreSQL."""
        repair = f"kindcast repair --data {shlex.quote(str(settings.data))}"
        self.damage = Damage(repair if self.is_sqlite else "kindcast check --database URL")
        """The damage found in the database."""
        self.matches = MatchCache()
        """The cache of stored matches, shared by the connections."""
        self._partition = event_days.KnownPartition()
        self._writer: Engine = self._engine(poolclass=NullPool)
        self._borrowed = self.schema is not None and first is not None
        """Whether the connections of readers belong to `first`."""
        self._readers: Engine = (
            first._readers
            if first is not None and self._borrowed
            else self._engine(
                pool_size=settings.reader_connections, max_overflow=0, pool_timeout=settings.busy_timeout_seconds
            )
        )
        self._listen()
        self.alone = True
        """Whether no other server used the database when it was opened. False for PostgreSQL after `share`."""

    @property
    def is_sqlite(self) -> bool:
        return self._url.get_backend_name() == "sqlite"

    @property
    def url(self) -> str:
        """The URL of the database without its password."""
        return shown(self._url)

    def open(self) -> Connection:
        """Takes the lock, creates missing tables, and returns the writing connection.

        Raises `StoreInUse`, `StoreUnreadable`, OSError, and `StoreUnavailable` if PostgreSQL has no connection left for
        another tenant.
        """
        self._take_lock()
        try:
            connection = self._writer.connect()
            if not self.is_sqlite and not self._enter(connection):
                connection.close()
                raise StoreInUse(f"another server uses the database {self.url} and does not share it")
            if not self.is_sqlite:
                with connection.begin():
                    asked = CLOCK.running
                    CLOCK.compare(connection.exec_driver_sql(servers.TIME).scalar_one(), asked)
            if not self.alone:
                with connection.begin():
                    self._check_schema(connection)
                return connection
            with connection.begin():
                if self.schema is not None:
                    connection.exec_driver_sql(f"CREATE SCHEMA IF NOT EXISTS {self.schema}")
                self._check_schema(connection)
                if self.witness is not None:
                    self._compare(connection, self.witness)
                event_days.create_tables(connection)
                begin_ledger(connection)
                if not self.is_sqlite:
                    servers.metadata.create_all(connection)
            self._file = inode_of(self._url.database)
            return connection
        except DBAPIError as error:
            if self.schema is not None and isinstance(error, OperationalError):
                _log.error("the database %s cannot be opened for another tenant: %s", self.url, error.orig)
                raise StoreUnavailable("the database takes no connection for this tenant now: try again") from error
            raise StoreUnreadable(f"the database {self.url} cannot be opened: {error.orig}") from error

    @property
    def is_in_place(self) -> bool:
        """Whether the file of a SQLite database is still the one that was opened. What is written to a file that was
        deleted or moved away is lost."""
        return not self.is_sqlite or inode_of(self._url.database) == self._file

    def _check_schema(self, connection: Connection) -> None:
        """Refuses connections on which names would mean the tables of another tenant."""
        if self.schema is None:
            return
        found = connection.exec_driver_sql("SELECT current_setting('search_path')").scalar_one()
        if found != self.schema:
            raise StoreUnreadable(
                f"connections to {self._url.host or 'the database'} have the search path {found!r}, not"
                f" {self.schema!r}, perhaps because a connection pooler drops the parameter `options`: connect to"
                f" PostgreSQL directly"
            )

    def _compare(self, connection: Connection, witness: Witness) -> None:
        """Refuses a database that has lost commits."""
        seen = witness.read()
        if self._sets_clock:
            follow_clock(seen)
        there = inspect(connection).has_table(ledger.name)
        commits = connection.execute(select(ledger.c.commits)).scalar_one_or_none() if there else None
        if seen is not None and (commits or 0) < seen.commits:
            raise StoreUnreadable(
                f"the database {self.url} has {commits or 0:,} commits, but {seen.commits:,} were made: the newest"
                f" commits are missing. Put the missing files back, or see what is left: kindcast repair --data "
                f"{self._data}"
            )

    def connect(self) -> Connection:
        """Returns a new writing connection after the old one broke. Raises `StoreInUse`, `DBAPIError`."""
        connection = self._writer.connect()
        self._partition.forget()
        if not self.is_sqlite:
            if not _locks(connection, "pg_try_advisory_lock_shared", self._key(ADVISORY_LOCK)):
                connection.close()
                raise StoreInUse(f"another server uses the database {self.url} and does not share it")
            _end_when_stuck(connection)
        return connection

    def share(self, connection: Connection) -> None:
        """Called when the tables have the present layout: allows other servers. Does nothing with SQLite."""
        if self.is_sqlite:
            return
        if self.alone:
            _locks(connection, "pg_try_advisory_lock_shared", self._key(ADVISORY_LOCK))
            _locks(connection, "pg_advisory_unlock", self._key(ADVISORY_LOCK))
            self.alone = False
        _end_when_stuck(connection)

    def listening(self) -> Any:
        """Returns an additional connection of the driver, on which each statement is a transaction. PostgreSQL only."""
        connection = self._writer.raw_connection()
        driver: Any = connection.driver_connection
        connection.detach()
        driver.autocommit = True
        return driver

    def begin_activation(self) -> Connection:
        """Returns a connection for `may_activate`. PostgreSQL only. Raises `StoreUnavailable`."""
        try:
            return self._writer.connect()
        except DBAPIError as error:
            _log.error("the database takes no connection to change a vocabulary or open a tenant: %s", error.orig)
            raise StoreUnavailable("the database takes no further connection now: try again") from error

    def may_activate(self, connection: Connection) -> bool:
        """Tries to get the right to change the vocabulary for this connection, until it is closed. Only one connection
        of all servers has it. Returns whether it succeeded. Raises `StoreUnavailable`."""
        try:
            return _locks(connection, "pg_try_advisory_lock", self._key(ACTIVATION_LOCK))
        except DBAPIError as error:
            raise StoreUnavailable(UNREACHABLE) from error

    def may_share(self, connection: Connection, *, alone: bool) -> bool:
        """Tries to get the right to change what all tenants share (`alone`), or to change a tenant while that does not
        change, for this connection, until it is closed. Returns whether it succeeded. Raises `StoreUnavailable`."""
        function = "pg_try_advisory_lock" if alone else "pg_try_advisory_lock_shared"
        try:
            return _locks(connection, function, SHARING_LOCK)
        except DBAPIError as error:
            raise StoreUnavailable(UNREACHABLE) from error

    def _key(self, lock: int) -> int:
        """Returns the key of an advisory lock of this database or schema."""
        if self.schema is None:
            return lock
        return int.from_bytes(hashlib.sha256(f"{lock} {self.schema}".encode()).digest()[:8], signed=True)

    def _enter(self, connection: Connection) -> bool:
        """Takes the lock, exclusively if possible, else shared. Returns whether it succeeded. Waits for a server that
        is starting, and until PostgreSQL notices that a server has ended."""
        deadline = time.monotonic() + LOCK_SECONDS
        while True:
            if _locks(connection, "pg_try_advisory_lock", self._key(ADVISORY_LOCK)):
                return True
            if _locks(connection, "pg_try_advisory_lock_shared", self._key(ADVISORY_LOCK)):
                self.alone = False
                return True
            if time.monotonic() > deadline:
                return False
            time.sleep(LOCK_PAUSE_SECONDS)

    def read(self, work: Callable[[Connection], T]) -> T:
        """Runs `work` on a reader's connection, which has one snapshot and cannot write. Runs it again if the
        connection has ended, as after a restart of PostgreSQL, or if a table of an older layout was dropped meanwhile:
        on PostgreSQL a snapshot does not keep it. Raises `StoreDamaged`, `StoreUnavailable`, and the errors of
        `work`."""
        try:
            try:
                return self._read(work)
            except DBAPIError as error:
                if self.is_sqlite or not (error.connection_invalidated or _lacks_table(error)):
                    raise
                return self._read(work)
        except Exception as error:
            if not self.is_sqlite and isinstance(error, OperationalError):
                raise StoreUnavailable(UNREACHABLE) from error
            if (meant := self.damage.translated(error)) is error:
                raise
            raise meant from error

    def is_gone(self, error: BaseException | None) -> bool:
        """Whether an error says that the tables of a tenant are gone, because another server has deleted the tenant."""
        return self.schema is not None and _lacks_table(error)

    def _read(self, work: Callable[[Connection], T]) -> T:
        with self._readers.connect() as connection, connection.begin():
            if self._borrowed and self.schema is not None:
                enter_schema(connection, self.schema)
                connection.execution_options(matches=self.matches)
            return work(connection)

    def close(self) -> None:
        """Closes all connections, and releases the lock. Waits up to `CLOSE_SECONDS` for reads in other threads: the
        last connection that closes merges SQLite's write-ahead log into the database file."""
        if not self._borrowed:
            self._close_readers()
        self._writer.dispose()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
        if not self.is_sqlite and self._sets_clock:
            CLOCK.compare_no_more()

    def _close_readers(self) -> None:
        deadline, pool = time.monotonic() + CLOSE_SECONDS, self._readers.pool
        assert isinstance(pool, QueuePool)
        while pool.checkedout() and time.monotonic() < deadline:
            time.sleep(CLOSE_PAUSE_SECONDS)
        self._readers.dispose()

    # ── the lock ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _take_lock(self) -> None:
        """Takes an advisory lock on a file in the data folder, beside the database if it is SQLite. It ends with the
        process in any case. Tenants with a schema of their own have that of the first database."""
        if self.schema is not None:
            return
        self._data.mkdir(parents=True, exist_ok=True)
        path = Path(str(self._url.database) + ".lock") if self.is_sqlite else self._data / LOCK
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(lock)
            used = self._url.database if self.is_sqlite else f"the data folder {self._data}"
            raise StoreInUse(f"another server uses {used}: stop it, or choose another data folder") from error
        except OSError as error:
            os.close(lock)
            raise StoreUnreadable(
                f"{path} cannot be locked: {error.strerror}. Choose a data folder on a disk of this machine"
            ) from error
        self._lock = lock
        if self.is_sqlite:
            # Created here with access for the owner only: it holds webhook secrets. Its companions get the same rights.
            os.close(os.open(str(self._url.database), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))

    # ── engines ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _engine(self, **options: Any) -> Engine:
        options["connect_args"] = connect_arguments(self._url)
        options["execution_options"] = {
            "matches": self.matches,
            "compiled_cache": COMPILED,
            "partition": self._partition,
        }
        return create_engine(
            self._url,
            json_serializer=_to_json,
            json_deserializer=msgspec.json.decode,
            hide_parameters=True,  # errors that are logged must not show data of events or secrets
            **options,
        )

    def _listen(self) -> None:
        if self.is_sqlite:
            event.listen(self._writer, "connect", self._prepare_writer)
            event.listen(self._readers, "connect", self._prepare_reader)
            event.listen(self._writer, "begin", partial(run_plain, statement="BEGIN IMMEDIATE"))
            event.listen(self._readers, "begin", partial(run_plain, statement="BEGIN"))
            return
        event.listen(self._writer, "connect", _prepare_postgresql_writer)
        for undone in ("rollback", "rollback_savepoint"):
            event.listen(self._writer, undone, lambda *_: self._partition.forget())
        if not self._borrowed:
            event.listen(self._readers, "begin", lambda connection: connection.exec_driver_sql(servers.SNAPSHOT))

    def _prepare_writer(self, connection: Any, _: Any) -> None:
        connection.isolation_level = None  # we send BEGIN: the driver would send it late, and not for savepoints
        self._pragmas(
            connection,
            journal_mode="WAL",
            synchronous="FULL",
            journal_size_limit=JOURNAL_BYTES,
            cache_size=-WRITER_CACHE_KIB,
        )

    def _prepare_reader(self, connection: Any, _: Any) -> None:
        connection.isolation_level = None
        self._pragmas(connection, query_only="ON")

    def _pragmas(self, connection: Any, **pragmas: Any) -> None:
        connection.execute(f"PRAGMA busy_timeout={int(self._busy_seconds * 1000)}")
        for name, value in pragmas.items():
            connection.execute(f"PRAGMA {name}={value}")


def _lacks_table(error: BaseException | None) -> bool:
    return isinstance(error, DBAPIError) and getattr(error.orig, "sqlstate", None) == UNDEFINED_TABLE


def _locks(connection: Connection, function: str, key: int = ADVISORY_LOCK) -> bool:
    """Calls a function of PostgreSQL for advisory locks. The lock belongs to the connection until it is closed."""
    done = connection.execute(text(f"SELECT {function}(:key)"), {"key": key}).scalar_one()
    connection.rollback()
    return bool(done)


def _end_when_stuck(connection: Connection) -> None:
    connection.exec_driver_sql(f"SET idle_in_transaction_session_timeout = '{STUCK_SECONDS}s'")
    connection.commit()


def _prepare_postgresql_writer(connection: Any, _: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET synchronous_commit = on")
    connection.commit()


def inode_of(path: str | Path | None) -> int | None:
    """Returns the inode of the file of a SQLite database, by which SQLite too knows whether it was moved; None if there
    is none."""
    try:
        return os.stat(str(path)).st_ino
    except OSError:
        return None


def normalised(url: str) -> URL:
    """Parses the URL of a database. PostgreSQL is reached by psycopg, whatever driver is named. Raises
    `StoreUnreadable`."""
    parsed = make_url(url)
    if parsed.get_backend_name() == "sqlite" and parsed.database in (None, "", ":memory:"):
        raise StoreUnreadable("an in-memory database is not persistent: give sqlite:///path/to/file.db")
    if parsed.get_backend_name() in ("postgresql", "postgres"):
        if find_spec("psycopg") is None:
            raise StoreUnreadable("the library for PostgreSQL is not installed: pip install 'kindcast[postgres]'")
        return parsed.set(drivername="postgresql+psycopg")
    if parsed.get_backend_name() != "sqlite":
        raise StoreUnreadable(f"the database must be SQLite or PostgreSQL, not {parsed.get_backend_name()}")
    return parsed


def read_only(path: Path) -> URL:
    """Returns the URL with which a SQLite file is only read."""
    return URL.create("sqlite", database=reading_uri(path), query={"uri": "true"})


SILENCE = {
    "connect_timeout": 10,
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
"""How long a PostgreSQL that does not answer is waited for: seconds until a connection is made, seconds until one on
which nothing comes is tested, and milliseconds for what was sent on one. By default it would be minutes."""


def connect_arguments(url: URL) -> dict[str, Any]:
    """Returns the arguments of the driver's `connect`. Those that the URL has win."""
    if url.get_backend_name() == "sqlite":
        return {"check_same_thread": False}  # opened in one thread, used in another
    return {name: value for name, value in SILENCE.items() if name not in url.query}


def hangs(database: str, seconds: int) -> bool:
    """Returns whether the PostgreSQL with this URL takes no new connection and does not refuse one either, for this
    time. SQLite never does."""
    url = normalised(database)
    if url.get_backend_name() == "sqlite":
        return False
    from psycopg.errors import ConnectionTimeout

    engine = create_engine(url, poolclass=NullPool)
    positional, named = engine.dialect.create_connect_args(url)
    try:
        engine.dialect.connect(*positional, **{**named, "connect_timeout": seconds}).close()
    except ConnectionTimeout:
        return True
    except engine.dialect.loaded_dbapi.Error:
        return False
    return False


def reason_of(error: BaseException) -> str:
    """Returns what everybody may know of an error: nothing of addresses, statements and values.

    >>> reason_of(OperationalError("INSERT", {}, sqlite3.OperationalError("database or disk is full")))
    'database or disk is full'
    >>> reason_of(OperationalError("", {}, OSError("connection to server at 10.0.0.7 failed")))
    'its connection broke'
    """
    found = getattr(error, "orig", None)
    told = (
        str(found) if isinstance(found, sqlite3.Error) else getattr(getattr(found, "diag", None), "message_primary", "")
    )
    if told and not str(getattr(found, "sqlstate", "")).startswith(_WITH_VALUES):
        return str(told)
    return "its connection broke" if isinstance(error, OperationalError) else "the log of the server says why"


def shown(url: URL) -> str:
    """Returns a URL for messages: without its password, which may also be a parameter."""
    return url.difference_update_query(("password", "sslpassword")).render_as_string(hide_password=True)


# ── schemas of tenants ────────────────────────────────────────────────────────────────────────────────────────────────


def schema_of_tenant(name: str, created_at: float) -> str:
    """Returns the schema of a tenant on PostgreSQL. A tenant that is deleted and created again gets another one."""
    digest = hashlib.sha256(f"{name} {created_at!r}".encode()).hexdigest()
    return f"{TENANT_SCHEMA}{name.replace('-', '_')}_{digest[:6]}"


def in_schema(url: URL, schema: str) -> URL:
    """Returns the URL of the database whose names mean the tables of this schema alone."""
    given = url.query.get("options", ())
    options = " ".join([given] if isinstance(given, str) else given)
    return url.update_query_dict({"options": f"{options} -csearch_path={schema}".strip()})


def schema_of(url: URL) -> str | None:
    """Returns the schema of a tenant that a URL names; None for the tenant `default`."""
    found = re.search(rf"-csearch_path=({TENANT_SCHEMA}\w+)", str(url.query.get("options", "")))
    return None if found is None else found.group(1)


def enter_schema(connection: Connection, schema: str) -> None:
    """Makes names mean the tables of this schema alone, until the transaction ends."""
    connection.exec_driver_sql(f"SET LOCAL search_path TO {schema}")


def max_connections(connection: Connection) -> int:
    """Returns the greatest number of connections that this PostgreSQL allows."""
    return int(connection.exec_driver_sql("SELECT current_setting('max_connections')").scalar_one())


def _to_json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
