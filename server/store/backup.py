"""Backups: a folder with all data of a server, from which a server can be restored.

    SQLite, also while a server runs ──SQLite's own backup, a file at a time──┐
                                                                              ├──▶ kindcast.db, kindcast.system.db,
    PostgreSQL ──all tables, as one snapshot sees them──▶ SQLite ─────────────┘    tenants/NAME/…, backup.json

    a backup ──copied beside, then renamed──▶ a data folder
             ──all rows; the last transaction makes them reachable──▶ PostgreSQL, and back by a backup of that

A backup or a restored server is complete or does not exist: a folder gets its name after everything is in it, and on
PostgreSQL one transaction has the tenant `default` and the keys, after the other tenants. Rows are copied unchanged:
cursors, tickets, end times, counters, matches and keys. The last assigned numbers are copied too, so that no number is
assigned twice.
"""

import errno
import hashlib
import os
import shutil
import sqlite3
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
from sqlalchemy import (
    URL,
    Connection,
    Engine,
    MetaData,
    Table,
    create_engine,
    event,
    insert,
    inspect,
    select,
    text,
)
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from kindcast.server.errors import StoreInUse, StoreUnreadable
from kindcast.server.store import event_days, shards, system
from kindcast.server.store.database import (
    ADVISORY_LOCK,
    connect_arguments,
    enter_schema,
    in_schema,
    normalised,
    read_only,
    shown,
)
from kindcast.server.store.deliveries import discarded
from kindcast.server.store.events import EventRow, insert_events
from kindcast.server.store.integrity import (
    CHECKS,
    Witness,
    examine_keys,
    find_damage,
    path_of,
    reading_uri,
    sync,
    tables_of,
    tenants_in,
    write_witness,
)
from kindcast.server.store.ledger import (
    LAYOUT,
    PACKED_FROM,
    Totals,
    check_readable,
    read_totals,
    readable_from,
    uncounted,
)
from kindcast.server.store.matches import MatchCache
from kindcast.server.store.servers import SNAPSHOT
from kindcast.server.store.servers import metadata as of_servers
from kindcast.server.store.tables import events, ledger, metadata, unsaved

__all__ = ["MAIN", "MANIFEST", "Backup", "backup", "check", "reading", "restore", "state_of"]

MANIFEST = "backup.json"
MAIN = "kindcast.db"
KEYS = "kindcast.system.db"
TENANTS = "tenants"
WITNESS = path_of(MAIN).name
UNFINISHED = ".unfinished"
IGNORED = (UNFINISHED, "lost+found")
"""What an empty folder may have."""
ROWS_AT_ONCE = 500
ROWS_CHECKED_AT_ONCE = 10_000
MAX_DAMAGE = 20
LOCK_SECONDS = 5
LOCK_NOT_AVAILABLE = "55P03"
"""PostgreSQL: the lock did not become free in time."""
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
NOT_COPIED = {unsaved.name, *system.NOT_IN_BACKUPS}
"""Tables that belong to a cache of the data folder, or that no backup may contain."""

assert discarded.metadata is metadata  # all of its tables are imported here


class Backup(msgspec.Struct, frozen=True, kw_only=True):
    """The content of `backup.json`: the state of the main database, and the SHA-256 of each file."""

    made_at: float
    program: str
    source: str
    """The kind of the source database: `sqlite` or `postgresql`."""
    layout: int
    commits: int
    sequence: int
    files: Mapping[str, str]

    @property
    def restores_anywhere(self) -> bool:
        """Whether it can be restored into another kind of database, which needs the layout of this version."""
        return self.layout == LAYOUT


# ── making one ──────────────────────────────────────────────────────────────────────────────────────────────────────


def backup(database: str, data: Path, folder: Path) -> Backup:
    """Copies all data of a server into a new folder: the database with this URL, and the tenants in `data`. Servers may
    run meanwhile: each file is a consistent snapshot. Cost: everything is read and written once. Raises
    `FileExistsError`, `StoreUnreadable`, OSError."""
    url = normalised(database)
    _refuse_existing(folder)
    with _made_beside(folder) as beside:
        if url.get_backend_name() == "sqlite":
            _copy_sqlite(Path(str(url.database)), beside / MAIN)
            keys = Path(str(url.database)).with_suffix(".system.db")
            if keys.exists():
                _copy_sqlite(keys, beside / KEYS, without=system.NOT_IN_BACKUPS)
            for name, tenant in {**_set_aside(data, beside / KEYS), **dict(tenants_in(data))}.items():
                (beside / TENANTS / name).mkdir(parents=True)
                _copy_sqlite(tenant, beside / TENANTS / name / MAIN)
        else:
            _export(url, beside)
        with reading(beside / MAIN) as connection:
            layout, commits, sequence = _ledger_of(connection, beside / MAIN)
        made = Backup(
            made_at=time.time(),
            program=f"kindcast {version('kindcast')}",
            source=url.get_backend_name(),
            layout=layout,
            commits=commits,
            sequence=sequence,
            files={str(each.relative_to(beside)): _sha256(each) for each in sorted(beside.rglob("*.db"))},
        )
        (beside / MANIFEST).write_bytes(msgspec.json.format(msgspec.json.encode(made)))
        os.chmod(beside / MANIFEST, 0o600)
    return made


def _set_aside(data: Path, keys: Path) -> dict[str, Path]:
    """Returns the names and databases of the tenants whose deletion a killed process did not commit, and no server has
    put back since."""
    if not keys.exists():
        return {}
    with reading(keys) as source:
        found = {each.name: data / TENANTS / each.aside / MAIN for each in system.created(source)}
    return {name: database for name, database in found.items() if database.is_file()}


def _copy_sqlite(source: Path, target: Path, *, without: Collection[str] = ()) -> None:
    """Copies a SQLite database in one step, so that it also ends if a server writes all the time. Readers do not block
    writers. The rows of the tables `without` are overwritten with zeros."""
    if not source.is_file() or not source.stat().st_size:
        raise StoreUnreadable(f"there is no database {source}")
    source.open("rb").close()  # SQLite would not say why it cannot
    address, seen = reading_uri(source), Witness(path_of(source)).read()  # which is read first, because commits go on
    os.close(os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    try:
        with (
            closing(sqlite3.connect(address, uri=True)) as reading,
            closing(sqlite3.connect(target)) as writing,
        ):
            reading.backup(writing)
            if "immutable" in address and address != reading_uri(source):
                raise StoreInUse(f"a server of {source} has started meanwhile: make the backup again")
            writing.execute("PRAGMA secure_delete=ON")
            there = {name for (name,) in writing.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
            if seen is not None:
                (commits,) = writing.execute("SELECT commits FROM ledger").fetchone() if ledger.name in there else (0,)
                if commits < seen.commits:
                    raise StoreUnreadable(
                        f"{source} lacks the newest {seen.commits - commits:,} commits: put its write-ahead log back, "
                        f"or see what is left with kindcast repair"
                    )
            for name in there.intersection(without):
                writing.execute(f"DELETE FROM {name}")
            writing.commit()
            writing.execute("PRAGMA journal_mode=DELETE")  # one file without a log; a server switches the log on again
    except sqlite3.DatabaseError as error:
        raise StoreUnreadable(f"the database {source} cannot be copied to {target}: {error}") from error


def _export(url: URL, folder: Path) -> None:
    """Copies all tables of a PostgreSQL database into SQLite files: each tenant from one snapshot."""
    arguments = connect_arguments(url)
    engine = create_engine(url, poolclass=NullPool, json_deserializer=msgspec.json.decode, connect_args=arguments)
    try:
        with engine.connect() as source:
            with source.begin():
                source.exec_driver_sql(SNAPSHOT)
                there = _names(source)
                if ledger.name not in there:
                    raise StoreUnreadable(f"there are no tables of kindcast in the database {shown(url)}")
                if shards.shards.name in there and shards.first_unmatched(source) is not None:
                    raise StoreInUse("some shards are behind: wait until kindcast status shows that no shard is behind")
                _export_tables(source, folder / MAIN, metadata, there)
                if system.about.name not in there:
                    return
                _export_tables(source, folder / KEYS, system.metadata, there)
                opened = system.with_tables(source)
                tenants = [each for each in system.created(source) if each.schema in opened]
            for each in tenants:
                with source.begin():
                    source.exec_driver_sql(SNAPSHOT)
                    enter_schema(source, each.schema)
                    (folder / TENANTS / each.name).mkdir(parents=True)
                    there = _names(source, each.schema)
                    _export_tables(source, folder / TENANTS / each.name / MAIN, metadata, there)
    except DBAPIError as error:
        raise StoreUnreadable(f"the database {shown(url)} cannot be read: {error.orig}") from error
    finally:
        engine.dispose()


def _names(source: Connection, schema: str | None = None) -> set[str]:
    """Returns the tables of a database. On PostgreSQL, the events are a view."""
    there = inspect(source)
    return {*there.get_table_names(schema=schema), *there.get_view_names(schema=schema)}


def _export_tables(source: Connection, path: Path, tables: MetaData, there: set[str]) -> None:
    if tables is metadata:
        _check_layout(source, "the database")
        event_days.hold(source)
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    with _writing(path) as target:
        tables.create_all(target)
        _copy_rows(source, target, tables, there)


# ── restoring ───────────────────────────────────────────────────────────────────────────────────────────────────────


def restore(folder: Path, database: str | None, data: Path) -> Backup:
    """Restores a server from a backup: into the empty PostgreSQL database with this URL or, if `database` is None, into
    the data folder, which must be empty or missing. A backup whose files differ from its manifest is refused.

    Raises `FileExistsError`, `StoreInUse`, `StoreUnreadable`, OSError.
    """
    made = read_manifest(folder)
    if damage := _changed_files(folder, made):
        raise StoreUnreadable(f"the backup {folder} is damaged: {damage[0]}")
    if database is None:
        _refuse_existing(data)
        with _made_beside(data) as beside:
            for name in made.files:
                (beside / name).parent.mkdir(parents=True, exist_ok=True)
                try:
                    shutil.copyfile(folder / name, beside / name)
                except OSError as error:  # of a full disk, it names the file that is read
                    full = error.errno in NO_ROOM
                    raise OSError(error.errno, error.strerror, str(data) if full else error.filename) from error
                os.chmod(beside / name, 0o600)
            write_witness(beside / MAIN, made.commits)
        return made
    url = normalised(database)
    if url.get_backend_name() == "sqlite":
        raise StoreUnreadable("a SQLite database is restored into a data folder: give --data")
    _import(folder, made, url)
    return made


def _import(folder: Path, made: Backup, url: URL) -> None:
    """Inserts all rows of a backup into PostgreSQL: the other tenants, one transaction each, then `default` and the
    keys. Only the last transaction makes them reachable. What an interrupted call left is deleted by the next one, and
    by a server."""
    engine = create_engine(url, poolclass=NullPool, json_serializer=_to_json, connect_args=connect_arguments(url))
    try:
        with engine.connect() as target:
            _check_free(target, shown(url))
            for tenant in _tenants_of(folder, made):
                with target.begin():
                    target.exec_driver_sql(f"DROP SCHEMA IF EXISTS {tenant.schema} CASCADE")
                    target.exec_driver_sql(f"CREATE SCHEMA {tenant.schema}")
                    enter_schema(target, tenant.schema)
                    of_servers.create_all(target)
                    _import_tables(folder / TENANTS / tenant.name / MAIN, target, metadata)
            with target.begin():
                of_servers.create_all(target)
                _import_tables(folder / MAIN, target, metadata)
                if KEYS in made.files:
                    _import_tables(folder / KEYS, target, system.metadata)
    except DBAPIError as error:
        raise StoreUnreadable(f"the database {shown(url)} cannot be written: {error.orig}") from error
    finally:
        engine.dispose()


def _check_free(target: Connection, address: str) -> None:
    """Refuses a database that a server uses, or that has tables. Other servers are kept out until the connection is
    closed. Waits a little: PostgreSQL may not have noticed yet that an earlier restore was killed."""
    with target.begin():
        target.exec_driver_sql(f"SET LOCAL lock_timeout = '{LOCK_SECONDS}s'")
        try:
            target.execute(text("SELECT pg_advisory_lock(:key)"), {"key": ADVISORY_LOCK})
        except DBAPIError as error:
            if getattr(error.orig, "sqlstate", None) != LOCK_NOT_AVAILABLE:
                raise
            raise StoreInUse(f"a server uses the database {address}: stop it first") from error
        there = {*metadata.tables, *system.metadata.tables} & set(inspect(target).get_table_names())
        if there:
            raise FileExistsError(f"the database {address} has tables of kindcast: restore into an empty one")


def _tenants_of(folder: Path, made: Backup) -> list[system.Tenant]:
    """Returns the tenants of a backup that have data."""
    if KEYS not in made.files:
        return []
    with reading(folder / KEYS) as source:
        return [each for each in system.created(source) if f"{TENANTS}/{each.name}/{MAIN}" in made.files]


def _import_tables(path: Path, target: Connection, tables: MetaData) -> None:
    with reading(path) as source:
        if tables is metadata:
            _check_layout(source, f"the backup {path}")
            event_days.create_tables(target)
        else:
            tables.create_all(target)
        _copy_rows(source, target, tables, set(inspect(source).get_table_names()))


def read_manifest(folder: Path) -> Backup:
    """Returns the content of the manifest of a backup. Raises `StoreUnreadable`."""
    try:
        made = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=Backup)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise StoreUnreadable(f"there is no backup at {folder}: give a folder that kindcast backup made") from error
    except (OSError, msgspec.DecodeError) as error:
        raise StoreUnreadable(f"{folder} is not a backup: {error}") from error
    for name in made.files:
        if Path(name).is_absolute() or ".." in Path(name).parts:
            raise StoreUnreadable(f"{folder} is not a backup: it names {name!r}, which is outside of it")
    return made


def _check_layout(connection: Connection, what: str) -> None:
    """Refuses other layouts: between databases of different kinds, rows are copied in the layout of this version."""
    layout = connection.execute(select(ledger.c.layout)).scalar_one()
    older = layout == LAYOUT and connection.execute(select(ledger.c.older_through)).scalar_one()
    if layout > LAYOUT:  # also where this version could serve it: it does not know all columns
        raise StoreUnreadable(
            f"{what} has layout {layout}, and this version copies layout {LAYOUT}: use the version of kindcast that"
            f" wrote it"
        )
    if layout < LAYOUT or older:
        raise StoreUnreadable(
            f"{what} has layout {layout}{' with matches of layout 5' if older else ''}, and this version copies layout"
            f" {LAYOUT}: start a server of this version with it once, then make a new backup"
        )


def _copy_rows(source: Connection, target: Connection, tables: MetaData, there: set[str]) -> None:
    for table in tables.sorted_tables:
        if table.name in NOT_COPIED or table.name not in there:
            continue
        query = select(table) if table is not events else select(events).order_by(events.c.sequence)
        with source.execute(query, execution_options={"yield_per": ROWS_AT_ONCE}) as rows:
            for some in rows.partitions():
                if table is events:
                    insert_events(target, [EventRow(**row._mapping) for row in some])
                else:
                    target.execute(insert(table), [dict(row._mapping) for row in some])
        _copy_last_number(source, target, table)
        if table is ledger:
            target.execute(ledger.update().values(snapshot=None))


def _copy_last_number(source: Connection, target: Connection, table: Table) -> None:
    """Copies the last automatically assigned number, perhaps of a deleted row."""
    column = table.autoincrement_column
    if column is None or not isinstance(column.autoincrement, bool):
        return
    sequence = text("SELECT pg_get_serial_sequence(:table, :column)").bindparams(table=table.name, column=column.name)
    known = text("SELECT seq FROM sqlite_sequence WHERE name = :table").bindparams(table=table.name)
    if source.dialect.name == "sqlite":
        last = source.execute(known).scalar_one_or_none() or 0
    else:
        name = source.execute(sequence).scalar_one()
        last = source.exec_driver_sql(f"SELECT last_value FROM {name} WHERE is_called").scalar_one_or_none() or 0
    if not last:
        return
    if target.dialect.name == "sqlite":
        target.execute(text("DELETE FROM sqlite_sequence WHERE name = :table"), {"table": table.name})
        row = {"table": table.name, "last": last}
        target.execute(text("INSERT INTO sqlite_sequence (name, seq) VALUES (:table, :last)"), row)
    else:
        target.execute(
            text("SELECT setval(:name, :last)"), {"name": target.execute(sequence).scalar_one(), "last": last}
        )


# ── checking ────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(slots=True)
class Checked:
    """The result of a check: the damage in words, the number of rows of each kind that has digests or checksums, and
    the totals."""

    damage: list[str] = field(default_factory=list)
    rows: dict[str, int] = field(default_factory=dict)
    totals: Totals | None = None


def check(database: str, data: Path | None = None) -> Checked:
    """Reads and checks everything once, each tenant in one snapshot; servers may run meanwhile. Checks the files of a
    backup (if `data` is one) against its manifest, the database and the file of the keys with SQLite's own check, each
    stored event and list of matches against its digest, and the totals of the ledger. Raises `StoreUnreadable`,
    PermissionError."""
    url, checked = normalised(database), Checked()
    if data is not None and (data / MANIFEST).exists():
        checked.damage += _changed_files(data, read_manifest(data))
    _check_one(url, checked)
    if url.get_backend_name() == "sqlite":
        checked.damage += examine_keys(Path(str(url.database)), running=True)
    for tenant, of_tenant in _other_tenants(url, data):
        found = Checked()
        try:
            _check_one(of_tenant, found)
        except StoreUnreadable as error:
            found.damage.append(str(error))
        checked.damage += [f"tenant {tenant}: {each}" for each in found.damage]
        for name, number in found.rows.items():
            checked.rows[name] += number
    return checked


def _other_tenants(url: URL, data: Path | None) -> Iterator[tuple[str, URL]]:
    """Yields the names and databases of the tenants that have data, except `default`."""
    if url.get_backend_name() == "sqlite":
        for name, path in tenants_in(data) if data is not None else ():
            yield name, URL.create("sqlite", database=str(path))
        return
    with reading(url) as connection:
        if not inspect(connection).has_table(system.about.name):
            return
        opened = system.with_tables(connection)
        tenants = [each for each in system.created(connection) if each.schema in opened]
    for each in tenants:
        yield each.name, in_schema(url, each.schema)


def _check_one(url: URL, checked: Checked) -> None:
    """Checks the database of one tenant."""
    if url.get_backend_name() == "sqlite":
        path = Path(str(url.database))
        if not path.is_file() or not path.stat().st_size:
            raise StoreUnreadable(f"there is no database {path}")
        path.open("rb").close()  # SQLite would not say why it cannot
        seen = Witness(path_of(path)).read()  # read this first, because commits go on
        source = reading(path)
    else:
        seen, source = None, reading(url)
    try:
        with source as connection:
            if seen is not None and seen.commits and not inspect(connection).has_table(ledger.name):
                raise StoreUnreadable(
                    f"the database {shown(url)} has none of its {seen.commits:,} commits: put its write-ahead log back,"
                    f" {path.name}-wal"
                )
            layout, commits, _ = _ledger_of(connection, shown(url))
            check_readable(readable_from(connection, layout), shown(url))
            if seen is not None and seen.commits > commits:
                checked.damage.append(f"{seen.commits - commits:,} commits are missing")
            _look(connection, layout, checked)
    except DBAPIError as error:
        checked.damage.append(f"the database {shown(url)} cannot be read: {error.orig}")


def _look(connection: Connection, layout: int, checked: Checked) -> None:
    """Checks one snapshot. In layouts before `PACKED_FROM` only events have digests, and the totals are in columns that
    this version does not read."""
    for table in tables_of(connection):
        checked.damage += find_damage(connection, table, MAX_DAMAGE)
    for name, look, table in CHECKS:
        if layout < PACKED_FROM and table is not events:
            checked.rows[name] = 0
            continue
        checked.rows[name] = connection.execute(select(text("count(*)")).select_from(table)).scalar_one()
        after: int | None = -1
        while after is not None and len(checked.damage) < MAX_DAMAGE:
            after, found = look(connection, after, ROWS_CHECKED_AT_ONCE)
            checked.damage += [f"damaged: {each}" for each in found]
    if layout < PACKED_FROM:
        return
    totals = checked.totals = read_totals(connection)
    if uncounted(connection):
        checked.damage.append("the ledger does not add up: matches = delivered + pending + dead + discarded")
    decided = totals.parked_matched + totals.parked_unmatched + totals.parked_given_up + totals.parked_withdrawn
    if totals.parked != decided + totals.parked_waiting:
        checked.damage.append("the ledger does not add up: parked = its four results + waiting")


# ── files and connections ───────────────────────────────────────────────────────────────────────────────────────────


def _refuse_existing(folder: Path) -> None:
    if folder.is_symlink() and not folder.exists():
        raise FileExistsError(f"{folder} is a link to {folder.readlink()}, which does not exist")
    if folder.exists() and not folder.is_dir():
        raise FileExistsError(f"{folder} is a file and not a folder")
    if folder.exists() and any(each.name not in IGNORED for each in folder.iterdir()):
        raise FileExistsError(f"{folder} exists and is not empty")


@contextmanager
def _made_beside(folder: Path) -> Iterator[Path]:
    """A context manager for a folder that gets its name after the block has ended and everything in it is on disk. What
    a killed process leaves behind is removed by the next call with the same name.

    An empty folder that exists is kept, because it may be a mount or a link, or its parent may not be writable. Its
    files are made in a folder within it, and moved up."""
    folder = folder.absolute()
    exists = folder.is_dir()
    beside = folder / UNFINISHED if exists else folder.with_name(f".{folder.name}{UNFINISHED}")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir(parents=True, mode=0o700)
    try:
        yield beside
        for each in (*beside.rglob("*"), beside):
            sync(each)
        if exists:
            _move_up(beside, folder)
            sync(folder)
        else:
            os.rename(beside, folder)
            sync(folder.parent)
    except BaseException:
        shutil.rmtree(beside, ignore_errors=True)
        raise


def _move_up(beside: Path, folder: Path) -> None:
    """Moves the files of a folder into the one above it. The witness comes first: with it, a server refuses to start
    until the main database is there. The manifest comes last: without it, there is no backup."""
    for name in sorted(os.listdir(beside), key=lambda name: (name == MANIFEST, name == MAIN, name != WITNESS)):
        os.rename(beside / name, folder / name)
    beside.rmdir()


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _changed_files(folder: Path, made: Backup) -> list[str]:
    """Returns the files that are missing or differ from the manifest, in words."""
    found = []
    for name, sha256 in made.files.items():
        path = folder / name
        if not path.is_file():
            found.append(f"{name} is missing")
        elif _sha256(path) != sha256:
            found.append(f"{name} has changed since the backup was made")
    return found


def _ledger_of(connection: Connection, what: object) -> tuple[int, int, int]:
    try:
        row = connection.execute(select(ledger.c.layout, ledger.c.commits, ledger.c.sequence)).one_or_none()
    except DBAPIError as error:
        why = str(error.orig).partition("\n")[0]  # PostgreSQL shows the statement below it
        raise StoreUnreadable(f"{what} is not a database of kindcast: {why}") from error
    if row is None:
        raise StoreUnreadable(f"{what} was never used by a server")
    return row.layout, row.commits, row.sequence


def state_of(url: URL) -> tuple[int, int, int] | None:
    """Returns the layout of a database, the oldest layout whose servers can work with it, and its number of commits;
    None if it has no tables of kindcast. Raises `StoreUnreadable`."""
    with reading(url) as connection:
        if not inspect(connection).has_table(ledger.name):
            return None
        layout, commits, _ = _ledger_of(connection, shown(url))
        return layout, readable_from(connection, layout), commits


@contextmanager
def reading(source: Path | URL) -> Iterator[Connection]:
    """A context manager for a read-only connection with one snapshot. Raises `StoreUnreadable` if it cannot be
    opened."""
    url = source if isinstance(source, URL) else read_only(source)
    engine = _engine(url)
    try:
        try:
            opened = engine.connect()
        except DBAPIError as error:
            what = shown(source) if isinstance(source, URL) else source
            raise StoreUnreadable(f"the database {what} cannot be opened: {error.orig}") from error
        with opened as connection, connection.begin():
            if connection.dialect.name == "postgresql":
                connection.exec_driver_sql(SNAPSHOT)
            yield connection
    finally:
        engine.dispose()


@contextmanager
def _writing(path: Path) -> Iterator[Connection]:
    """A context manager for one transaction on a SQLite file. It is committed at the end of the block."""
    engine = _engine(URL.create("sqlite", database=str(path)))
    try:
        with engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()


def _engine(url: URL) -> Engine:
    options: dict[str, Any] = {"execution_options": {"matches": MatchCache()}}
    engine = create_engine(
        url,
        poolclass=NullPool,
        json_serializer=_to_json,
        json_deserializer=msgspec.json.decode,
        connect_args=connect_arguments(url),
        **options,
    )
    if url.get_backend_name() == "sqlite":
        event.listen(engine, "connect", lambda driver, _: setattr(driver, "isolation_level", None))
        event.listen(engine, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
    return engine


def _to_json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
