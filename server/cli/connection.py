"""Connection options of the commands (server address, key, ticket), and the message for an unreachable server."""

import re
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.main import get_command

from kindcast.server.cli import output
from kindcast.server.cli.output import CommandFailed

if TYPE_CHECKING:
    from kindcast.server.client import AsyncClient, Client

__all__ = [
    "DEFAULT_SERVER",
    "JsonOption",
    "ServerOption",
    "TicketOption",
    "add_key_options",
    "connected",
    "credentials",
    "new_client",
    "wait_for",
]

# httpx imports the libraries of a command of its own where they are installed, as they are with typer. Without it, a
# command that talks to a server starts faster.
sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]

DEFAULT_SERVER = "http://127.0.0.1:8080"

ServerOption = Annotated[
    str, typer.Option("--server", envvar="KINDCAST_SERVER", metavar="URL", help="The server to talk to.")
]
TicketOption = Annotated[
    str | None,
    typer.Option(
        "--ticket", envvar="KINDCAST_TICKET", metavar="TICKET", help="What subscribing returned; changes need it."
    ),
]
RETRY_SECONDS = 10.0
"""How long a server is waited for. A server that was just started in the background listens by then."""
TRIED_EVERY = 0.2
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]


_key: ContextVar[str | None] = ContextVar("key", default=None)
_tenant: ContextVar[str | None] = ContextVar("tenant", default=None)
_retry: ContextVar[float] = ContextVar("retry", default=0.0)
_ca: ContextVar[str | None] = ContextVar("ca", default=None)


def _kept(kept: ContextVar[Any], variable: str, metavar: str, help: str, **more: Any) -> Any:
    """Returns an option whose value is stored in `kept`, so that no command needs a parameter for it."""
    return typer.Option(
        envvar=variable, metavar=metavar, help=help, expose_value=False, callback=lambda value: kept.set(value), **more
    )


def _options(
    key: Annotated[
        str | None,
        _kept(
            _key, "KINDCAST_KEY", "KEY", "Your API key. Use the variable, so that no list of processes shows the key."
        ),
    ] = None,
    tenant: Annotated[
        str | None,
        _kept(_tenant, "KINDCAST_TENANT", "NAME", "The tenant to act in, with a key for all tenants."),
    ] = None,
    retry: Annotated[
        float,
        _kept(
            *(_retry, "KINDCAST_RETRY_SECONDS", "SECONDS", "How long to wait for a server that is starting."),
            min=0.0,
        ),
    ] = RETRY_SECONDS,
    ca: Annotated[
        str | None,
        _kept(
            *(_ca, "KINDCAST_CA", "FILE"),
            "PEM file of the authorities that are trusted, for a server with your own certificate.",
        ),
    ] = None,
) -> None:
    """Has the options of all commands that use a server."""


def add_key_options(command: Any) -> None:
    """Adds `--key`, `--tenant`, `--retry` and `--ca` to every command below `command` that has `--server`."""
    template = typer.Typer(add_completion=False)
    template.command()(_options)
    _extend(command, get_command(template).params)


def _extend(command: Any, options: Sequence[Any]) -> None:
    for each in getattr(command, "commands", {}).values():
        _extend(each, options)
    if any("--server" in parameter.opts for parameter in command.params):
        command.params.extend(options)


@contextmanager
def connected(server: str, *, repeating: bool = False, **more: Any) -> "Iterator[Client]":
    """A context manager with a client of `server`. Waits while nothing listens there. If `repeating`, calls are sent
    again, as often as the client allows, for the same time. `more` replaces credentials of the command. Raises
    CommandFailed, with advice, if there is no answer."""
    import httpx

    from kindcast.server.client import Client

    wait_for(server, _retry.get())
    try:
        with (
            _an_address(server),
            Client(server, retry_seconds=_retry.get() if repeating else 0.0, **credentials() | more) as client,
        ):
            yield client
    except httpx.TimeoutException as error:
        raise CommandFailed(f"{server} did not answer in time.", f"Check its state: {server}/readyz") from error
    except httpx.TransportError as error:
        if "CERTIFICATE_VERIFY_FAILED" in str(error):
            raise CommandFailed(
                f"the certificate of {server} is not trusted ({error.__cause__ or error}).",
                "Name the file of its authority: --ca FILE or KINDCAST_CA.",
            ) from error
        raise CommandFailed(f"no server answers at {server} ({_reason(error)}).", _advice(server, error)) from error


def _advice(server: str, error: Exception) -> str:
    """Returns what to do if there is no answer. Something that listens but is not understood may need the other
    scheme."""
    reason = _reason(error)
    if "WRONG_VERSION_NUMBER" in reason:
        return f"Does it speak http? --server {server.replace('https:', 'http:', 1)}"
    if server.startswith("http:") and "disconnected without sending a response" in reason:
        return f"Does it speak https? --server {server.replace('http:', 'https:', 1)}"
    return "Start one with kindcast serve, or name another with --server URL or KINDCAST_SERVER."


def _reason(error: Exception) -> str:
    """Returns the reason of an error, without the error number of the system."""
    return re.sub(r"^\[Errno -?\d+\] ", "", str(error.__cause__ or error))


def new_client(server: str) -> "AsyncClient":
    """Returns a client for an event loop, with the options of the command. It does not wait for the server."""
    from kindcast.server.client import AsyncClient

    with _an_address(server):
        return AsyncClient(server, retry_seconds=0.0, **credentials())


def credentials() -> dict[str, Any]:
    """Returns the credentials in the options of the command."""
    return {"key": _key.get(), "tenant": _tenant.get(), "ca": _ca.get()}


@contextmanager
def _an_address(server: str) -> Iterator[None]:
    """A context manager that raises CommandFailed if `server` is no valid address."""
    import httpx

    try:
        yield
    except httpx.UnsupportedProtocol as error:
        raise CommandFailed(str(error)) from error
    except httpx.InvalidURL as error:
        raise CommandFailed(
            f"{server} is not the address of a server: {error}", f"An address looks like {DEFAULT_SERVER}."
        ) from error


def wait_for(server: str, seconds: float) -> None:
    """Waits until something listens at the address, for at most this many seconds. Returns at once if the address is
    invalid, or belongs to another machine that does not answer."""
    import httpx

    try:
        url = httpx.URL(server)
    except httpx.InvalidURL:
        return
    until = time.monotonic() + seconds
    told = False
    while url.host and (left := until - time.monotonic()) > 0:
        try:
            socket.create_connection((url.host, url.port or (443 if url.scheme == "https" else 80)), left).close()
        except ConnectionRefusedError:
            if not told and left < seconds - 1.0:
                output.hint(f"waiting for a server at {server} …")
                told = True
            time.sleep(min(TRIED_EVERY, left))
        except OSError:
            return
        else:
            return
