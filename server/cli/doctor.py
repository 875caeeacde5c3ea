"""The command `kindcast doctor`: checks everything that a server needs, and gives advice.

    settings, environment ─▶ versions, libraries, Java ─▶ kernel cache ─▶ port, disk, clock ─▶ data folder
                                                                          a server that runs is asked over HTTP ┘

Nothing is changed. The findings of a check are ok, a warning (it works, but not well) or a problem.
"""

import ctypes
import os
import re
import shutil
import socket
import sqlite3
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass
from errno import EADDRINUSE
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import typer
from rich.text import Text

from kindcast.server.cli import output, serve
from kindcast.server.cli.connection import JsonOption

__all__ = ["Finding", "doctor"]

OK, WARNING, PROBLEM = "ok", "warning", "problem"
STYLES = {OK: "green", WARNING: "yellow", PROBLEM: "bold red"}

SHOWN = ("numpy", "numba", "pyoxigraph", "sqlalchemy", "uvicorn")
"""Libraries whose versions are always shown, for bug reports. Others are shown only if something is wrong."""
WRITTEN_IN_PLACE = (".db", "-wal", "-shm", ".lock", serve.STATE, serve.LOG)
"""The ends of the names of files that a server must be able to write. It replaces its other files."""
LITTLE_SPACE, TOO_LITTLE_SPACE = 2 << 30, 200 << 20
"""Limits of free space in bytes. A start copies nothing, but the write-ahead log and snapshots need space besides the
database."""
FEW_FILES = 4_096
JAVA_OF_SPARK = 17
JUMP_SECONDS = 60.0
OLDEST = 1_767_225_600.0
"""The first second of 2026. No correct clock is before it."""
TIMEOUT_SECONDS = 5.0
RENEWAL_SECONDS = 7 * 86_400.0
"""A certificate that ends sooner should have been renewed. Clients for renewal, such as certbot, do it weeks before."""
LARGE_DATABASE = 4 << 30


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check. `advice` says what to do."""

    check: str
    state: str
    detail: str
    advice: str = ""


Findings = Iterator[Finding]


def doctor(
    data: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The data folder of a server.  [KINDCAST_DATA, or kindcast-data]")
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(envvar="KINDCAST_CONFIG", metavar="FILE", help="The TOML file of settings that serve is given."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Check this machine and a data folder: versions, Java, compiled kernels, port, disk, clock, and whether the stored
    data is undamaged. Nothing is changed. A running server is asked over HTTP; otherwise the whole database is read
    once."""
    found: list[Finding] = []
    for each in _all(config, data):
        found.append(each)
        if not json:
            _show(each)
    problems, warnings = (sum(each.state == state for each in found) for state in (PROBLEM, WARNING))
    if json:
        output.print_json({"problems": problems, "warnings": warnings, "checks": [asdict(each) for each in found]})
    else:
        output.paragraph(f"{output.plural(problems, 'problem')}, {output.plural(warnings, 'warning')}", "bold")
    if problems:
        raise typer.Exit(1)


def _show(finding: Finding) -> None:
    state = (f"{finding.state:<8} ", STYLES[finding.state])
    output.screen().print(Text.assemble(state, f"{finding.check:<13} {finding.detail}"), soft_wrap=True)
    if finding.advice:
        output.paragraph(f"{'':<22} {finding.advice}")


def _all(config: Path | None, data: Path | None) -> Findings:
    settings = None
    yield from versions()
    try:
        settings, findings = _settings(config, data)
        yield from findings
    except ImportError as error:
        yield Finding("settings", PROBLEM, f"the settings cannot be read: {error}", "Install kindcast again.")
    yield from _guarded("Java", lambda: java(settings and settings.java))
    yield from _guarded("kernels", lambda: kernels(settings and settings.cache))
    yield from _guarded("files", files)
    yield from _guarded("clock", lambda: clock(settings and _database(settings)))
    if settings is None:
        return
    running = serve.found_server(settings.data)
    yield from _guarded("port", lambda: port(settings.host, settings.port, running))
    yield from _guarded("certificate", lambda: certificate(settings.tls_certificate, running))
    yield from _guarded("disk", lambda: disk(settings.data))
    yield from _guarded("data", lambda: stored(settings, running))


def _guarded(check: str, findings: Callable[[], Findings]) -> Findings:
    """Yields the findings of a check. If the check itself fails, this is a finding too, and the other checks
    continue."""
    try:
        yield from findings()
    except Exception as error:
        yield Finding(check, WARNING, f"this could not be checked: {type(error).__name__}: {error}")


# ── what is installed ────────────────────────────────────────────────────────────────────────────────────────────────


def versions() -> Findings:
    """Checks kindcast, Python, SQLite and the libraries: which are missing or older than kindcast needs."""
    python = ".".join(map(str, sys.version_info[:3]))
    yield Finding("kindcast", OK, f"{metadata.version('kindcast')}, Python {python}, SQLite {sqlite3.sqlite_version}")
    there, wrong = [], []
    for requirement in metadata.requires("kindcast") or ():
        parts = re.match(r"([A-Za-z0-9._-]+)(?:\[[^]]*\])?\s*([^;]*)(?:;(.*))?", requirement)
        if parts is None or "extra" in (parts[3] or ""):
            continue
        name, bounds = parts[1], parts[2]
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            wrong.append(f"{name} is not installed")
            continue
        if name.lower() in SHOWN:
            there.append(f"{name} {version}")
        floor = re.search(r">=\s*([0-9.]+)", bounds)
        if floor is not None and _numbers(version) < _numbers(floor[1]):
            wrong.append(f"{name} is {version}, and kindcast needs {floor[1]}")
    if wrong:
        yield Finding("libraries", PROBLEM, "; ".join(wrong), "pip install --upgrade kindcast")
    else:
        yield Finding("libraries", OK, ", ".join(there))


def _numbers(version: str) -> tuple[int, ...]:
    """
    >>> _numbers("2.0.10") > _numbers("2.0.9"), _numbers("3.1.0rc1")
    (True, (3, 1, 0))
    """
    return tuple(int(each) for each in re.findall(r"\d+", re.split(r"[a-z+-]", version)[0]))


def java(wanted: str | None) -> Findings:
    """Checks Java, which some features need, but not a server."""
    from kindcast.semantic.errors import SemanticError
    from kindcast.semantic.ontology import find_java

    spark = find_spec("pyspark") is not None
    needs = "reason=owl (8 or later)" + (f" and kindcast spark ({JAVA_OF_SPARK} or later)" if spark else "")
    try:
        path = find_java(wanted)
    except SemanticError:
        state = WARNING if wanted or spark else OK
        advice = "" if state == OK else "On Debian: apt-get install default-jre-headless; or set JAVA_HOME."
        where = f" at {wanted}" if wanted else ""
        yield Finding("Java", state, f"there is none{where}; only {needs} needs it", advice)
        return
    told = subprocess.run([path, "-version"], capture_output=True, text=True, timeout=30, check=False)
    version = re.search(r'version "(?:1\.)?(\d+)[^"]*"', told.stderr + told.stdout)
    if version is None:
        yield Finding(
            "Java", WARNING, f"{path} does not run: {told.stderr.strip()[:200]}", "Install another, or set JAVA_HOME."
        )
    elif spark and int(version[1]) < JAVA_OF_SPARK:
        advice = f"Set JAVA_HOME to a Java {JAVA_OF_SPARK} or later."
        yield Finding("Java", WARNING, f"{version[1]} at {path} is too old for kindcast spark", advice)
    else:
        yield Finding("Java", OK, f"{version[1]} at {path}")


def kernels(folder: Path | None) -> Findings:
    """Checks whether compiled kernels can be stored, and exist."""
    from kindcast.semantic.matching import kernel_cache, use_cache

    if folder is not None:
        use_cache(folder)
    found = kernel_cache()
    if found.folder is None:
        advice = "Set KINDCAST_CACHE to a writable folder, for example on a volume."
        yield Finding("kernels", WARNING, "no folder is writable for them: every start compiles them again", advice)
    elif found.compiled < found.kernels:
        detail = f"{found.compiled} of {found.kernels} are compiled, in {found.folder}"
        advice = "The others are compiled once, in about 20 s, when a server first needs them."
        yield Finding("kernels", OK, detail, advice)
    else:
        yield Finding("kernels", OK, f"all {found.kernels} are compiled, in {found.folder}")


# ── settings ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _settings(config: Path | None, data: Path | None) -> tuple[Any, list[Finding]]:
    """Returns the settings of `kindcast serve` (None if they are wrong), and findings about them."""
    from kindcast.server.cli.serve import load_settings
    from kindcast.server.settings import unknown_variables

    found = [
        Finding(
            "settings",
            WARNING,
            f"the variable {name} has no effect",
            f"Did you mean {near}?" if near else "Unset it.",
        )
        for name, near in unknown_variables(os.environ)
    ]
    try:
        settings = load_settings(config, data=data)
    except typer.BadParameter as error:
        return None, [*found, Finding("settings", PROBLEM, str(error), "See docs/operations.md, Settings.")]
    except output.CommandFailed as error:
        return None, [*found, Finding("settings", PROBLEM, str(error), error.advice)]
    if not found:
        source = f"{config}, then " if config else ""
        found.append(Finding("settings", OK, f"read from the variables KINDCAST_…, then {source}the defaults"))
    return settings, found


# ── the machine ──────────────────────────────────────────────────────────────────────────────────────────────────────


def files() -> Findings:
    """Checks how many files and connections a process may have open."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= soft < FEW_FILES:
        advice = f"Raise it before the start: ulimit -n {FEW_FILES if hard < 0 else min(hard, 1 << 16)}"
        yield Finding(
            "files", WARNING, f"a process may open only {soft:,} files, so a server accepts fewer connections", advice
        )
    else:
        yield Finding("files", OK, "a process may open any number" if soft < 0 else f"a process may open {soft:,}")


def port(host: str, number: int, running: Mapping[str, Any] | None) -> Findings:
    """Checks whether a server could listen, or which one does."""
    if running is not None:
        yield Finding("port", OK, f"the server of this data folder listens on {running['listening']}")
        return
    if number == 0:
        yield Finding("port", OK, "any free one")
        return
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(host, number, type=socket.SOCK_STREAM)[0]
        with closing(socket.socket(family, kind, protocol)) as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            tried.bind(where)
    except OSError as error:
        whose = "a kindcast server" if _is_kindcast(host, number) else "another program"
        detail = f"{host} port {number} is not available: {error.strerror or error}"
        if error.errno == EADDRINUSE:
            detail = f"{host} port {number} is used by {whose}"
        yield Finding("port", PROBLEM, detail, "Stop it, or choose another port: kindcast serve --port 0")
    else:
        yield Finding("port", OK, f"{host} port {number} is free")


def _is_kindcast(host: str, number: int) -> bool:
    try:
        return _asked(f"http://{host}:{number}", "/healthz").get("status") == "alive"
    except (OSError, ValueError, RuntimeError):
        return False


def _asked(address: str, path: str) -> dict[str, Any]:
    """Returns the answer of a server on this machine. Its certificate is not verified, because the server itself wrote
    the address. Raises RuntimeError, ValueError."""
    import httpx

    try:
        answer = httpx.get(address + path, timeout=TIMEOUT_SECONDS, trust_env=False, verify=False)
    except httpx.HTTPError as error:
        raise RuntimeError(str(error) or type(error).__name__) from error
    told: dict[str, Any] = answer.json()
    return told | {"status_code": answer.status_code}


def certificate(file: Path | None, running: Mapping[str, Any] | None) -> Findings:
    """Checks when the certificate ends: that of the server that runs, else that of the settings, if there is any."""
    from cryptography.x509 import load_pem_x509_certificate

    address = urlsplit("" if running is None else running["listening"])
    if address.scheme == "https" and address.hostname is not None and address.port is not None:
        shown = ssl.get_server_certificate((address.hostname, address.port), timeout=TIMEOUT_SECONDS).encode()
    elif file is not None and running is None:
        shown = file.read_bytes()
    else:
        return
    ends = load_pem_x509_certificate(shown).not_valid_after_utc
    left, detail = ends.timestamp() - time.time(), f"it is valid until {ends:%Y-%m-%d %H:%M:%S} UTC"
    advice = "Renew it. The server uses the new files without a restart."
    if left <= 0:
        yield Finding("certificate", PROBLEM, f"it was valid until {ends:%Y-%m-%d %H:%M:%S} UTC", advice)
    elif left < RENEWAL_SECONDS:
        yield Finding("certificate", WARNING, detail, advice)
    else:
        yield Finding("certificate", OK, detail)


def disk(data: Path) -> Findings:
    """Checks free space, and whether the folder and the files of a server in it are writable."""
    there = data.absolute()
    while not there.exists():
        there = there.parent
    if not os.access(there, os.W_OK | os.X_OK):
        yield Finding("disk", PROBLEM, f"{there} cannot be written by this user", "Choose another folder: --data DIR")
        return
    for each in sorted(data.glob("*")):
        if each.name.endswith(WRITTEN_IN_PLACE) and not os.access(each, os.R_OK | os.W_OK):
            advice = "Run the command as the user of the server. If you did, give this user the file (chown)."
            yield Finding("disk", PROBLEM, f"{each} cannot be written by this user", advice)
    free = shutil.disk_usage(there).free
    detail = f"{free / (1 << 30):,.1f} GiB are free for {data}"
    if free < TOO_LITTLE_SPACE:
        yield Finding("disk", PROBLEM, detail, "Make room: a server that cannot write accepts no event.")
    elif free < LITTLE_SPACE:
        yield Finding("disk", WARNING, detail, "Make room, or shorten retention_seconds.")
    else:
        yield Finding("disk", OK, detail)


def clock(database: Path | None) -> Findings:
    """Checks whether the clock jumped since a server last ran, and whether it is synchronised."""
    from kindcast.server.store.integrity import clock_ahead

    now = time.time()
    said = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(now))
    ahead = None if database is None else clock_ahead(database)
    if now < OLDEST:
        yield Finding("clock", PROBLEM, f"it says {said}", "Set the clock: subscriptions expire by it.")
    elif ahead is not None and abs(ahead) > JUMP_SECONDS:
        way = "ahead" if ahead > 0 else "back"
        advice = "Set the clock. If it is right, run kindcast clock confirm while a server runs."
        detail = f"it says {said}; it jumped {way} by {abs(ahead):,.0f} s since a server wrote to {database}"
        yield Finding("clock", PROBLEM if ahead > 0 else WARNING, detail, advice)
    elif (kept := _synchronised()) is None:
        yield Finding("clock", OK, f"it says {said}; this system does not show whether NTP adjusts it")
    elif kept:
        yield Finding("clock", OK, f"it says {said} and is synchronised")
    else:
        advice = (
            "Run chrony or systemd-timesyncd (NTP), unless the host of this virtual machine or container adjusts "
            "the clock."
        )
        yield Finding("clock", WARNING, f"it says {said}; the system does not know whether it is synchronised", advice)


def _synchronised() -> bool | None:
    """Returns whether the kernel's clock is synchronised (adjtimex); None if this cannot be determined."""
    try:
        library = ctypes.CDLL(None, use_errno=True)
        state: int = library.adjtimex(ctypes.create_string_buffer(512))  # modes = 0: only asked
    except (OSError, AttributeError):
        return None
    return None if state < 0 else state != 5  # TIME_ERROR


# ── the data folder ──────────────────────────────────────────────────────────────────────────────────────────────────


def stored(settings: Any, running: Mapping[str, Any] | None) -> Findings:
    """Checks whether the stored data is undamaged: the running server reports it, otherwise the files are read."""
    from kindcast.server.store.integrity import path_of

    if running is not None:
        yield from _of_server(str(running["listening"]), settings.data)
    elif (database := _database(settings)) is None:
        yield from _of_postgresql(settings.database_url)
    elif not database.is_file() and not path_of(database).exists():
        yield Finding("data", OK, f"nothing is stored in {settings.data} yet")
    else:
        try:
            yield from _of_files(settings.data, database)
        except PermissionError as error:
            yield Finding("data", PROBLEM, output.in_words(error), "Run the command as the user of the server.")


def _database(settings: Any) -> Path | None:
    """Returns the file of the SQLite database; None for another database."""
    from sqlalchemy import make_url

    url = make_url(settings.database_url)
    return Path(url.database) if url.get_backend_name() == "sqlite" and url.database else None


def _of_server(address: str, data: Path) -> Findings:
    try:
        told = _asked(address, "/readyz")
    except (RuntimeError, ValueError) as error:
        log = data / serve.LOG
        yield Finding("server", PROBLEM, f"{address} does not answer: {error}", f"See {log}." if log.exists() else "")
        return
    if told["status_code"] != 200:
        yield Finding("server", PROBLEM, str(told.get("detail") or told.get("title")), f"More: {address}/readyz")
    elif told.get("warning"):
        yield Finding("server", PROBLEM, str(told["warning"]), "See docs/operations.md, When stored data is damaged.")
    else:
        checked = f"; the check of all that is stored: {told['check']}" if told.get("check") else ""
        yield Finding("server", OK, f"{address} is ready{checked}")


def _of_files(data: Path, database: Path) -> Findings:
    from kindcast.server.store.integrity import examine_keys, tenants_in

    if database.is_file() and database.stat().st_size > LARGE_DATABASE:
        output.hint(f"reading all of {database} …")
    yield from _of_file(data, database)
    system = database.with_suffix(".system.db")
    for damage in (wrong := examine_keys(database)):
        yield Finding("data", PROBLEM, damage, "Put a back-up of this file back.")
    if system.is_file() and not wrong:
        yield Finding("data", OK, f"{system} is intact")
    for _, tenant in tenants_in(data):
        yield from _of_file(data, tenant)


def _of_file(data: Path, database: Path) -> Findings:
    from kindcast.server.store.integrity import examine

    found = examine(database)
    for damage in found["damage"]:
        yield Finding("data", PROBLEM, damage, f"kindcast repair --data {output.word(data)} says what can be done.")
    if found["missing_commits"]:
        detail = f"{found['missing_commits']:,} commits are missing in {database}"
        yield Finding(
            "data",
            PROBLEM,
            detail,
            f"Put the newest file back, or: kindcast repair --data {output.word(data)} --accept-loss",
        )
    yield from _too_new(found["layout"], found["readable_from"], str(database))
    if not found["damage"] and not found["missing_commits"]:
        yield Finding("data", OK, f"{database} is intact, {found['commits']:,} commits")


def _of_postgresql(address: str) -> Findings:
    from kindcast.server.errors import ServerError
    from kindcast.server.store.backup import state_of
    from kindcast.server.store.database import normalised, shown

    try:
        url = normalised(address)
        found = state_of(url)
    except ServerError as error:
        yield Finding("data", PROBLEM, str(error), "See docs/operations.md, Several servers on one PostgreSQL.")
        return
    if found is None:
        yield Finding("data", OK, f"nothing is stored in {shown(url)} yet")
        return
    if refused := list(_too_new(found[0], found[1], shown(url))):
        yield from refused
        return
    detail = f"{shown(url)} has layout {found[0]}, {found[2]:,} commits"
    yield Finding("data", OK, detail, "kindcast check reads and checks everything in it.")


def _too_new(layout: int, readable_from: int, database: str) -> Findings:
    from kindcast.server.store.ledger import LAYOUT

    if readable_from > LAYOUT:
        detail = f"{database} has layout {layout}; this version knows layouts up to {LAYOUT}"
        yield Finding("data", PROBLEM, detail, "Install a newer version of kindcast.")
