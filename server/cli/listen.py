"""The commands `kindcast listen` and `kindcast matches`: the messages of a subscription, as they come or as stored."""

import itertools
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kindcast.server.cli import output
from kindcast.server.cli.completion import expressions, ids
from kindcast.server.cli.connection import DEFAULT_SERVER, JsonOption, ServerOption, TicketOption, connected
from kindcast.server.cli.formats import ColumnsOption, Format, FormatOption, chosen, write_messages
from kindcast.server.cli.problems import InExpression
from kindcast.server.client import ProblemError

if TYPE_CHECKING:
    from kindcast.server.client import Client

__all__ = ["listen", "matches"]

PAGE = 100
"""Messages of one request."""
LONGEST_POLL_SECONDS = 30.0
"""What one request may wait on the server."""


def listen(
    id: Annotated[str | None, typer.Argument(metavar="ID", autocompletion=ids, help="The subscription.")] = None,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="EXPRESSION",
            autocompletion=expressions,
            help="Instead of an id: subscribe to this expression while you listen.",
        ),
    ] = None,
    after: Annotated[
        str | None, typer.Option(metavar="CURSOR", help="Start after this message; 0 starts at the oldest.")
    ] = None,
    count: Annotated[int | None, typer.Option(min=1, metavar="COUNT", help="Stop after this many messages.")] = None,
    wait: Annotated[
        float | None, typer.Option(min=0.0, metavar="SECONDS", help="Stop when no message came for this long.")
    ] = None,
    ack: Annotated[bool, typer.Option("--ack", help="Acknowledge each message; needs the ticket.")] = False,
    ticket: TicketOption = None,
    format: FormatOption = None,
    columns: ColumnsOption = "",
    server: ServerOption = DEFAULT_SERVER,
    json: JsonOption = False,
) -> None:
    """Show the messages of a subscription as they come, until Ctrl-C."""
    form = chosen(format, json)
    if (id is None) == (to is None):
        raise typer.BadParameter("give either the id of a subscription or --to with an expression", param_hint="ID")
    with connected(server) as client:
        if to is None:
            assert id is not None
            _follow(client, id, after, count, wait, ticket, ack, form, columns)
            return
        own = _subscribe(client, to)
        try:
            _follow(client, own, after, count, wait, None, ack, form, columns)
        finally:
            client.unsubscribe(own)


def _subscribe(client: "Client", expression: str) -> str:
    try:
        created = client.subscribe(expression)
    except ProblemError as error:
        raise InExpression(error, expression) from error
    output.hint(f"listening for {created['canonical']}; stop with Ctrl-C")
    return str(created["id"])


def _follow(
    client: "Client",
    id: str,
    after: str | None,
    count: int | None,
    wait: float | None,
    ticket: str | None,
    ack: bool,
    form: Format,
    columns: str,
) -> None:
    def acknowledge(message: Mapping[str, Any]) -> None:
        if ack:
            client.ack(id, message["cursor"], ticket=ticket)

    messages = client.listen(id, after=after) if wait is None else _while_they_come(client, id, after, wait)
    write_messages(itertools.islice(messages, count), form, columns, acknowledge)


def matches(
    id: Annotated[str, typer.Argument(metavar="ID", autocompletion=ids, help="The subscription.")],
    after: Annotated[
        str, typer.Option(metavar="CURSOR", help="Start after this message; 0 starts at the oldest.")
    ] = "0",
    limit: Annotated[int | None, typer.Option(min=1, metavar="COUNT", help="The largest number of matches.")] = None,
    format: FormatOption = None,
    columns: ColumnsOption = "",
    server: ServerOption = DEFAULT_SERVER,
    json: JsonOption = False,
) -> None:
    """Show what a subscription has matched so far and the server still keeps, oldest first. Nothing is acknowledged."""
    form = chosen(format, json)
    with connected(server) as client:
        count = write_messages(itertools.islice(_stored(client, id, after), limit), form, columns)
    if form is Format.LINE and not count:
        output.hint("Nothing that is kept has matched it." if after == "0" else f"Nothing is kept after {after}.")


def _stored(client: "Client", id: str, after: str) -> Iterator[Mapping[str, Any]]:
    """The messages that are there, a page at a time."""
    while (page := client.pull(id, after=after, limit=PAGE))["events"]:
        yield from page["events"]
        after = str(page["cursor"])


def _while_they_come(client: "Client", id: str, after: str | None, wait: float) -> Iterator[Mapping[str, Any]]:
    """Messages until none came for `wait` seconds."""
    deadline = time.monotonic() + wait
    while True:
        patience = min(max(deadline - time.monotonic(), 0.0), LONGEST_POLL_SECONDS)
        page = client.pull(id, after=after, wait=patience)
        if page["events"]:
            yield from page["events"]
            after, deadline = str(page["cursor"]), time.monotonic() + wait
        elif time.monotonic() >= deadline:
            return
