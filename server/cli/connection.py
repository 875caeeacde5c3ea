"""Connection options of the commands (server address, ticket), and the message for an unreachable server."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import httpx
import typer

from kindcast.server.cli.problems import CommandFailed
from kindcast.server.client import Client

__all__ = ["DEFAULT_SERVER", "JsonOption", "ServerOption", "TicketOption", "connected"]

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
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]


@contextmanager
def connected(server: str) -> Iterator[Client]:
    """A client of `server`. Raises CommandFailed, with what to do, when there is no answer."""
    try:
        with Client(server) as client:
            yield client
    except (httpx.UnsupportedProtocol, httpx.InvalidURL) as error:
        raise CommandFailed(
            f"{server} is not the address of a server: {error}", f"An address looks like {DEFAULT_SERVER}."
        ) from error
    except httpx.TimeoutException as error:
        raise CommandFailed(f"{server} did not answer in time.", f"Check its state: {server}/readyz") from error
    except httpx.TransportError as error:
        raise CommandFailed(
            f"no server answers at {server} ({error}).",
            "Start one with kindcast serve, or name another with --server URL or KINDCAST_SERVER.",
        ) from error
