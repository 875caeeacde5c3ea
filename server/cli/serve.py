"""The command `kindcast serve`: runs one server process until it is stopped."""

import contextlib
import gc
import logging
import os
import socket
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from kindcast.server.cli import background, output
from kindcast.server.cli.connection import JsonOption
from kindcast.server.cli.logs import logged
from kindcast.server.cli.problems import CommandFailed, in_words

__all__ = ["load_settings", "serve"]

_log = logging.getLogger("kindcast.server")

STOP_SECONDS = 5
"""How long running requests may continue after the server was told to stop."""
BACKLOG = 2_048


def serve(
    host: Annotated[
        str | None,
        typer.Option(
            metavar="HOST", help="The address to listen on; other than this machine's own need a key.  [127.0.0.1]"
        ),
    ] = None,
    port: Annotated[
        int | None, typer.Option(metavar="PORT", help="The port to listen on; 0 takes a free one.  [8080]")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The folder that everything is stored in.  [kindcast-data]")
    ] = None,
    database: Annotated[
        str | None, typer.Option(metavar="URL", help="Another database than SQLite in the data folder.")
    ] = None,
    tls_certificate: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A certificate (PEM); with one the server speaks https only.")
    ] = None,
    tls_key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Its key (PEM), without a passphrase.  [in the same file]")
    ] = None,
    planner: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="The order in which operators are asked: greedy, sub_order, sequential or naive.  [greedy]",
        ),
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
    """Run a server, until Ctrl-C; with --detach in the background, until kindcast stop. It continues where it stopped
    before."""
    # The server's libraries are imported here only: the other commands start without them. Nothing of what is imported
    # is garbage, and to look for some takes a fifth of the time; `announce` turns the collector on again.
    gc.disable()
    from kindcast.server.settings import unknown_variables

    settings = load_settings(
        config,
        host=host,
        port=port,
        data=data,
        database=database,
        tls_certificate=tls_certificate,
        tls_key=tls_key,
        planner=planner,
    )
    for name, near in unknown_variables(os.environ):
        output.warn(f"the variable {name} is not read by anything{f'; is {near} meant?' if near else ''}")
    if detach:
        flags = {
            "--host": host,
            "--port": port,
            "--data": data,
            "--database": database,
            "--tls-certificate": tls_certificate,
            "--tls-key": tls_key,
            "--planner": planner,
            "--config": config,
        }
        given = [text for flag, value in flags.items() if value is not None for text in (flag, str(value))]
        _show_started(background.start(given, settings.data, wait), settings.data, wait, json)
        return
    with logged(settings.log_format, settings.log_level):
        try:
            _serve(settings, json)
        except CommandFailed as error:
            if settings.log_format != "json":
                raise
            _log.critical("%s. %s", str(error).removesuffix("."), error.advice)
            raise typer.Exit(1) from error


def _serve(settings: Any, json: bool) -> None:
    try:
        listener = _listen(settings.host, settings.port)
    except OSError as error:
        raise CommandFailed(
            f"cannot listen on {settings.host} port {settings.port}: {error.strerror or error}",
            "Is a server running there already? Choose another: kindcast serve --port 0",
        ) from error
    with listener:
        _run(settings, listener, json)


def load_settings(config: Path | None, **flags: Any) -> Any:
    """The settings of a server. Raises typer.BadParameter, which names each that is wrong."""
    from tomllib import TOMLDecodeError

    from pydantic import ValidationError

    from kindcast.server.settings import Settings

    try:
        return Settings.load(config, **flags)
    except ValidationError as error:
        raise typer.BadParameter(_wrong_settings(error), param_hint="settings") from error
    except TOMLDecodeError as error:
        raise typer.BadParameter(f"{config} is not TOML: {error}", param_hint="--config") from error
    except OSError as error:
        raise typer.BadParameter(str(error), param_hint="--config") from error


def _show_started(started: dict[str, Any], data: Path, wait: float, json: bool) -> None:
    if json:
        output.print_json(started | {"data": str(data)})
    elif started["listening"] is None:
        output.paragraph(f"kindcast is still starting after {wait:g} s, as process {started['pid']}")
        output.hint(f"log: {started['log']}   stop: kindcast stop --data {data}")
    else:
        output.paragraph(f"kindcast listens on {started['listening']}", "bold green")
        output.hint(f"data: {data}   log: {started['log']}   stop: kindcast stop --data {data}")


def _run(settings: Any, listener: socket.socket, json: bool) -> None:
    import uvicorn

    from kindcast.server.api.http_protocol import uvicorn_config
    from kindcast.server.app import create_app
    from kindcast.server.broker.garbage_collection import collect_rarely
    from kindcast.server.errors import CertificateUnusable

    collect_rarely()
    failures: list[Exception] = []
    address = _address(listener, settings)

    def announce() -> None:
        gc.freeze()
        gc.enable()
        if json:
            output.print_json({"listening": address, "data": str(settings.data)})
        else:
            output.paragraph(f"kindcast listens on {address}", "bold green")
        if sys.stderr.isatty() and not json:
            stop = "Ctrl-C" if sys.stdin.isatty() else f"kindcast stop --data {settings.data}"
            output.hint(f"API to try out: {address}/docs   data: {settings.data}   stop: {stop}")
        else:
            _log.info("listens on %s, data in %s, process %d", address, settings.data, os.getpid())

    def farewell() -> None:
        if sys.stderr.isatty() and not json:
            output.hint("stopped")
        else:
            _log.info("stopped")

    app = create_app(settings)
    shown = background.running(settings.data, address)
    app.router.lifespan_context = _watched(app.router.lifespan_context, announce, farewell, shown, failures)
    logging.getLogger("uvicorn.error").addFilter(lambda record: not failures)  # told in our words, below
    try:
        config = uvicorn_config(app, settings, timeout_graceful_shutdown=STOP_SECONDS, log_config=None)
    except CertificateUnusable as error:
        raise CommandFailed(f"the server could not start: {error}") from error
    try:
        uvicorn.Server(config).run(sockets=[listener])
    except KeyboardInterrupt:
        pass  # the way to stop it
    except SystemExit:
        if not failures:  # else it could not start, and is told why below
            raise
    if failures:
        raise CommandFailed(f"the server could not start: {in_words(failures[0])}") from failures[0]


def _watched(
    lifespan: Any,
    announce: Callable[[], None],
    farewell: Callable[[], None],
    shown: contextlib.AbstractContextManager[None],
    failures: list[Exception],
) -> Any:
    """`lifespan`, with `announce` once it has begun and `farewell` once it has ended, `shown` around what is between,
    and the reason kept if it does not begin."""

    @contextlib.asynccontextmanager
    async def watched(app: Any) -> AsyncIterator[Any]:
        running = lifespan(app)
        try:
            state = await running.__aenter__()
        except Exception as error:
            failures.append(error)
            raise
        announce()
        with shown:  # until the data folder is free: `kindcast stop` waits for that
            try:
                yield state
            finally:
                await running.__aexit__(None, None, None)
                farewell()

    return watched


def _listen(host: str, port: int) -> socket.socket:
    """A socket that listens already, so that whoever reads the announcement can connect."""
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
    return "; ".join(f"{'.'.join(map(str, each['loc'])) or 'settings'}: {each['msg']}" for each in error.errors())
