"""The commands `kindcast serve` and `kindcast stop`: run one server process, in this terminal or in the background."""

import contextlib
import errno
import fcntl
import gc
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

import typer

from kindcast.server.cli import output
from kindcast.server.cli.connection import JsonOption
from kindcast.server.cli.logs import logged
from kindcast.server.cli.output import CommandFailed, in_words

__all__ = [
    "LOG",
    "STATE",
    "check_database",
    "data_folder",
    "found_server",
    "is_elsewhere",
    "load_settings",
    "running",
    "serve",
    "start",
    "stop",
    "stopped",
]

_log = logging.getLogger("kindcast.server")

STOP_SECONDS = 5
"""How long running requests may continue after the server was told to stop."""
HANGS_SECONDS = 5
"""If PostgreSQL takes no new connection for this time, a server that stops ends without waiting for it."""
BACKLOG = 2_048


def serve(
    context: typer.Context,
    host: Annotated[
        str | None,
        typer.Option(
            metavar="HOST", help="The address to listen on; addresses beyond this machine need a key.  [127.0.0.1]"
        ),
    ] = None,
    port: Annotated[
        int | None, typer.Option(metavar="PORT", help="The port to listen on; 0 chooses a free port.  [8080]")
    ] = None,
    data: Annotated[Path | None, typer.Option(metavar="DIR", help="The folder for all data.  [kindcast-data]")] = None,
    database: Annotated[
        str | None, typer.Option(metavar="URL", help="The URL of a database.  [SQLite in the data folder]")
    ] = None,
    tls_certificate: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A certificate (PEM); with it the server accepts only https.")
    ] = None,
    tls_key: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="The key of the certificate (PEM), without a passphrase.  [in the same file]"
        ),
    ] = None,
    planner: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The order in which operators are called: greedy, sub_order, sequential or naive.  [greedy]",
        ),
    ] = None,
    shards: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="On PostgreSQL: the number of shards, the same at all servers."),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            envvar="KINDCAST_CONFIG",
            metavar="FILE",
            help="A TOML file of settings; flags and KINDCAST_* variables take precedence.",
        ),
    ] = None,
    detach: Annotated[
        bool, typer.Option("--detach", help="Run in the background; return when the server is ready.")
    ] = False,
    wait: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.0, help="With --detach: how long to wait until it is ready.")
    ] = 60.0,
    json: JsonOption = False,
) -> None:
    """Run a server until Ctrl-C, or with --detach in the background until kindcast stop. It continues where it stopped
    before."""
    # The libraries of the server are imported only here, so that the other commands start without them. What is
    # imported is no garbage, and searching it takes a fifth of the time. So the collector is enabled again when the
    # server has started, or when the command ends.
    gc.disable()
    context.call_on_close(gc.enable)
    flags = {
        "host": host,
        "port": port,
        "data": data,
        "database": database,
        "tls_certificate": tls_certificate,
        "tls_key": tls_key,
        "planner": planner,
        "shards": shards,
    }
    settings = load_settings(config, **flags)
    if detach:
        _warn_of_variables(output.warn)
        options = {f"--{name.replace('_', '-')}": value for name, value in (flags | {"config": config}).items()}
        given = [text for option, value in options.items() if value is not None for text in (option, str(value))]
        _show_started(start(given, settings.data, wait), settings.data, wait, json)
    else:
        _serve_logged(settings, json)


def _warn_of_variables(warn: Callable[[str], None]) -> None:
    """Warns of each variable of the environment that looks like a setting, but is none."""
    from kindcast.server.settings import unknown_variables

    for name, near in unknown_variables(os.environ):
        warn(f"the variable {name} has no effect{f'; did you mean {near}?' if near else ''}")


def _serve_logged(settings: Any, json: bool) -> None:
    """Runs the server until it is stopped. If the log is JSON, all that is said about the server is in the log."""
    logs_json = settings.log_format == "json"
    if not logs_json:
        _warn_of_variables(output.warn)
    with logged(settings.log_format, settings.log_level):
        if logs_json:
            _warn_of_variables(_log.warning)
        try:
            _serve(settings, json)
        except CommandFailed as error:
            if not logs_json:
                raise
            _log.critical("%s. %s", str(error).removesuffix("."), error.advice)
            raise typer.Exit(1) from error


def _serve(settings: Any, json: bool) -> None:
    try:
        listener = _listen(settings.host, settings.port)
    except OSError as error:
        advice = "Choose another port: kindcast serve --port 0"
        if error.errno == errno.EADDRINUSE:
            advice = f"Is a server already running there? {advice}"
        elif error.errno != errno.EACCES:
            advice = "Name an address of this machine: kindcast serve --host 127.0.0.1"
        raise CommandFailed(
            f"cannot listen on {settings.host} port {settings.port}: {error.strerror or error}", advice
        ) from error
    with listener:
        _run(settings, listener, json)


def load_settings(config: Path | None, **flags: Any) -> Any:
    """Returns the settings of a server. Raises typer.BadParameter, which names each wrong setting, and CommandFailed if
    the data folder is a file."""
    from tomllib import TOMLDecodeError

    from pydantic import ValidationError

    from kindcast.server.settings import Settings

    try:
        settings = Settings.load(config, **flags)
    except ValidationError as error:
        raise typer.BadParameter(_wrong_settings(error), param_hint="settings") from error
    except (TOMLDecodeError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"{config} is not TOML: {error}", param_hint="--config") from error
    except OSError as error:
        raise typer.BadParameter(str(error), param_hint="--config") from error
    _check_folder(settings.data)
    return settings


def data_folder(data: Path | None) -> Path:
    """Returns the data folder: the given one, else that of the settings. If it is given, no setting is read, so a wrong
    one does no harm. Raises as `load_settings`."""
    if data is None:
        return Path(load_settings(None).data)
    _check_folder(data)
    return data


def _check_folder(data: Path) -> None:
    """Raises CommandFailed if a data folder, or a folder above it, is a file."""
    there = next((each for each in (data, *data.parents) if each.exists()), None)
    if there is not None and not there.is_dir():
        raise CommandFailed(f"{there} is a file and not a folder", "Give the path of a data folder: --data DIR")


def _show_started(started: dict[str, Any], data: Path, wait: float, json: bool) -> None:
    if json:
        output.print_json(started | {"data": str(data)})
    elif started["listening"] is None:
        output.paragraph(f"kindcast is still starting after {wait:g} s, as process {started['pid']}")
        output.hint(f"log: {started['log']}   stop: kindcast stop --data {output.word(data)}")
    else:
        output.paragraph(f"kindcast listens on {started['listening']}", "bold green")
        output.hint(f"data: {data}   log: {started['log']}   stop: kindcast stop --data {output.word(data)}")


def _run(settings: Any, listener: socket.socket, json: bool) -> None:
    import uvicorn

    from kindcast.server.api.http_protocol import uvicorn_config
    from kindcast.server.app import create_app
    from kindcast.server.broker.garbage_collection import collect_rarely
    from kindcast.server.errors import CertificateUnusable

    collect_rarely()
    failures: list[Exception] = []
    app = create_app(settings)
    messages = _Messages(settings, _address(listener, settings), json)
    app.router.lifespan_context = _watched(app.router.lifespan_context, messages, failures)
    logging.getLogger("uvicorn.error").addFilter(lambda record: not failures)  # reported below
    try:
        config = uvicorn_config(app, settings, timeout_graceful_shutdown=STOP_SECONDS, log_config=None)
    except CertificateUnusable as error:
        raise CommandFailed(f"the server could not start: {error}") from error
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # which nohup sets
        signal.signal(signal.SIGHUP, lambda *_: signal.raise_signal(signal.SIGTERM))
    server = uvicorn.Server(config)
    threading.Thread(target=_end_if_start_hangs, args=(server, failures), name="kindcast-start", daemon=True).start()
    try:
        server.run(sockets=[listener])
    except KeyboardInterrupt:
        pass  # the usual way to stop
    except SystemExit:
        if not failures:  # otherwise it could not start, as reported below
            raise
    if failures:
        raise CommandFailed(f"the server could not start: {in_words(failures[0])}") from failures[0]


@dataclass(frozen=True, slots=True)
class _Messages:
    """What is said about a server: to a terminal, as JSON, or in the log."""

    settings: Any
    address: str
    json: bool

    def started(self) -> None:
        data = self.settings.data
        if self.json:
            output.print_json({"listening": self.address, "data": str(data)})
        else:
            output.paragraph(f"kindcast listens on {self.address}", "bold green")
        if self._to_terminal():
            stop = "Ctrl-C" if sys.stdin.isatty() else f"kindcast stop --data {output.word(data)}"
            output.hint(f"API to try out: {self.address}/docs   data: {data}   stop: {stop}")
        else:
            _log.info("listens on %s, data in %s, process %d", self.address, data, os.getpid())

    def stopped(self) -> None:
        if self._to_terminal():
            output.hint("stopped")
        else:
            _log.info("stopped")

    def _to_terminal(self) -> bool:
        return sys.stderr.isatty() and not self.json


def _watched(lifespan: Any, messages: _Messages, failures: list[Exception]) -> Any:
    """Returns `lifespan` with messages after its beginning and its end. Between these, other commands find the server.
    If it does not begin, or its file cannot be written, the reason is kept in `failures`."""
    settings = messages.settings

    @contextlib.asynccontextmanager
    async def watched(app: Any) -> AsyncIterator[Any]:
        whole = lifespan(app)
        try:
            state = await whole.__aenter__()
        except Exception as error:
            failures.append(error)
            raise
        with contextlib.ExitStack() as opened:
            try:
                # `kindcast stop` waits until the data folder is free
                opened.enter_context(running(settings.data, messages.address))
            except OSError as error:
                failures.append(error)
                await whole.__aexit__(None, None, None)
                raise
            gc.freeze()
            gc.enable()
            messages.started()
            try:
                yield state
            finally:
                arguments = (settings.database_url,)
                threading.Thread(
                    target=_end_if_database_hangs, args=arguments, name="kindcast-end", daemon=True
                ).start()
                await whole.__aexit__(None, None, None)
                messages.stopped()

    return watched


def _end_if_start_hangs(server: Any, failures: list[Exception]) -> None:
    """Ends the process, as a kill does, if it was told to stop but is still starting: a plug-in whose import hangs
    cannot be interrupted. Runs in a thread while the server starts."""
    while not server.started and not failures:
        time.sleep(STOP_SECONDS)
        if server.should_exit and not server.started and not failures:
            _log.critical("the server was told to stop while it was starting, and ends without waiting for the start")
            os._exit(1)


def _end_if_database_hangs(database: str) -> None:
    """Ends the process if PostgreSQL hangs, as a kill does: threads that wait for it cannot be interrupted. Runs in a
    thread while the server stops."""
    from kindcast.server.store.database import hangs

    while not hangs(database, HANGS_SECONDS):
        time.sleep(HANGS_SECONDS)
    _log.critical("PostgreSQL does not answer: the server ends without waiting for it. What it accepted is stored")
    os._exit(1)


def _listen(host: str, port: int) -> socket.socket:
    """Returns a socket that already listens, so that anybody who reads the announcement can connect."""
    family, kind, protocol, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(where)
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def _address(listener: socket.socket, settings: Any) -> str:
    scheme = "http" if settings.tls_certificate is None else "https"
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"{scheme}://{host}:{listener.getsockname()[1]}"


def _wrong_settings(error: Any) -> str:
    from kindcast.server.settings import Settings

    told = []
    for each in error.errors():
        name, said = ".".join(map(str, each["loc"])) or "settings", each["msg"].removeprefix("Value error, ")
        if each["type"] == "extra_forbidden":
            near = get_close_matches(name, sorted(Settings.model_fields), n=1, cutoff=0.6)
            said = f"there is no such setting{f'; did you mean {near[0]}?' if near else ''}"
        told.append(f"{name}: {said}")
    return "; ".join(told)


LOG = "server.log"
STATE = "server.json"
ERROR = "error: "
LOOKED_EVERY = 0.05
TOLD_LINES = 5
"""The number of last lines of the log that are shown if a server could not start."""


@contextlib.contextmanager
def running(data: Path, address: str) -> Iterator[None]:
    """A context manager that publishes the server of this process for other commands while the body runs. A second
    server in the folder, which will be refused, changes nothing."""
    data.mkdir(parents=True, exist_ok=True)
    path = data / STATE
    with path.open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield
            return
        try:
            file.truncate(0)
            os.write(file.fileno(), json.dumps({"pid": os.getpid(), "listening": address}).encode())
        except OSError as error:
            path.unlink(missing_ok=True)
            raise OSError(error.errno, error.strerror, str(path)) from error
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def start(arguments: Sequence[str], data: Path, wait: float) -> dict[str, Any]:
    """Starts `kindcast serve` with these arguments as a separate process. Returns its process id, address and log when
    it is ready. The address is None if it is not ready after `wait` seconds.

    Raises CommandFailed if a server runs already or the new one could not start.
    """
    data.mkdir(parents=True, exist_ok=True)
    if found := found_server(data):
        raise _runs(data, found)
    log = data / LOG
    with log.open("ab") as written:
        begin = written.tell()
        process = subprocess.Popen(
            [sys.executable, "-m", "kindcast.server.cli", "serve", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # it prints only its address, which is known
            stderr=written,
            start_new_session=True,
        )
    until = time.monotonic() + wait
    while True:
        if process.poll() is not None:
            raise CommandFailed(*_why(log, begin))
        found = found_server(data)
        if (found and found["pid"] == process.pid) or time.monotonic() >= until:
            address = found["listening"] if found else None
            return {"pid": process.pid, "listening": address, "log": str(log)}
        time.sleep(LOOKED_EVERY)


def stop(
    data: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="The data folder of the server.  [KINDCAST_DATA, or kindcast-data]"),
    ] = None,
    wait: Annotated[
        float, typer.Option(metavar="SECONDS", min=0.0, help="How long to wait until the server has stopped.")
    ] = 60.0,
    json: JsonOption = False,
) -> None:
    """Stop the server of a data folder on this machine. It finishes running requests, and nothing is lost."""
    data = data_folder(data)
    found = found_server(data)
    if found is None:
        with stopped(data):
            raise CommandFailed(f"no server runs in {data}", "Name its data folder: kindcast stop --data DIR")
    with contextlib.suppress(ProcessLookupError):
        os.kill(found["pid"], signal.SIGTERM)
    until = time.monotonic() + wait
    while found_server(data) is not None:
        if time.monotonic() >= until:
            raise CommandFailed(f"process {found['pid']} has not stopped after {wait:g} s", f"See {data / LOG}.")
        time.sleep(LOOKED_EVERY)
    if json:
        output.print_json({"stopped": found["pid"]})
    else:
        output.paragraph(f"stopped the server at {found['listening']}")


def found_server(data: Path) -> dict[str, Any] | None:
    """Returns the process id and address of the server that runs in `data`; None if there is none."""
    try:
        with (data / STATE).open(encoding="utf-8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return _state(file.read())
    except FileNotFoundError:
        pass
    return None


@contextmanager
def stopped(data: Path) -> Iterator[None]:
    """A context manager for commands that need a stopped server: none can start in the folder meanwhile. Raises
    CommandFailed if one runs. No file is created: one of another user would prevent the server from starting."""
    from kindcast.server.store.database import LOCK

    with contextlib.ExitStack() as held:
        for path in (data / "kindcast.db.lock", data / LOCK):
            if path.exists():
                file = held.enter_context(path.open("rb"))
                try:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except BlockingIOError as error:
                    raise _runs(data, found_server(data)) from error
        yield


def _runs(data: Path, found: dict[str, Any] | None) -> CommandFailed:
    """Returns the error that a server runs in the folder. `found` is None while the server starts."""
    if found is None:
        return CommandFailed(f"a server is starting in {data}", "Try again when it is ready, or end its process.")
    where = f"{data}, at {found['listening']}"
    return CommandFailed(f"a server runs in {where}", f"To stop it: kindcast stop --data {output.word(data)}")


def check_database(settings: Any) -> None:
    """Raises CommandFailed if no database is named, but the server of the data folder has its database elsewhere. The
    command would then change a database that the server does not use."""
    if settings.database is None and is_elsewhere(settings.data):
        raise CommandFailed(
            f"{settings.data} is the data folder of a server whose database is elsewhere",
            "Name the database: --database URL, as in kindcast serve",
        )


def is_elsewhere(data: Path) -> bool:
    """Whether a server uses, or used, this data folder with a database elsewhere. One on PostgreSQL leaves a file."""
    from kindcast.server.store.database import LOCK

    used = (data / LOCK).exists() or found_server(data) is not None
    return used and not (data / "kindcast.db").exists()


def _state(text: str) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads(text)
    except ValueError:
        return None  # the file is being written
    return found


def _why(log: Path, begin: int) -> tuple[str, str]:
    """Returns the last output of a server that could not start, and where the rest is."""
    with log.open("rb") as file:
        file.seek(begin)
        lines = file.read().decode(errors="replace").strip().splitlines()
    told = [number for number, line in enumerate(lines) if line.startswith(ERROR)]
    said = "\n".join(lines[told[-1] :] if told else map(_message, lines[-TOLD_LINES:])).removeprefix(ERROR)
    return said or "the server stopped before it was ready", f"Its log: {log}"


def _message(line: str) -> str:
    """Returns the message of a line of the log, without its time if it is JSON."""
    try:
        return str(json.loads(line)["message"])
    except (ValueError, KeyError, TypeError):
        return line
