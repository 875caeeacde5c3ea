"""The command `kindcast listen`: prints the messages of a subscription as they arrive."""

import itertools
import json as json_text
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from kindcast.server.cli import output
from kindcast.server.cli.connection import DEFAULT_SERVER, JsonOption, ServerOption, TicketOption, connected
from kindcast.server.cli.problems import InExpression
from kindcast.server.client import ProblemError

if TYPE_CHECKING:
    from kindcast.server.client import Client

__all__ = ["listen", "message_line"]

LONGEST_POLL_SECONDS = 30.0
"""What one request may wait on the server."""


def listen(
    id: Annotated[str | None, typer.Argument(metavar="ID", help="The subscription.")] = None,
    to: Annotated[
        str | None,
        typer.Option(
            "--to", metavar="EXPRESSION", help="Instead of an id: subscribe to this expression while you listen."
        ),
    ] = None,
    after: Annotated[
        str | None, typer.Option(metavar="CURSOR", help="Start after this message; 0 starts at the oldest.")
    ] = None,
    count: Annotated[int | None, typer.Option(min=1, help="Stop after this many messages.")] = None,
    wait: Annotated[
        float | None, typer.Option(min=0.0, metavar="SECONDS", help="Stop when no message came for this long.")
    ] = None,
    ack: Annotated[bool, typer.Option("--ack", help="Acknowledge each message; needs the ticket.")] = False,
    ticket: TicketOption = None,
    server: ServerOption = DEFAULT_SERVER,
    json: JsonOption = False,
) -> None:
    """Show the messages of a subscription as they come, until Ctrl-C."""
    if (id is None) == (to is None):
        raise typer.BadParameter("give either the id of a subscription or --to with an expression", param_hint="ID")
    with connected(server) as client:
        if to is None:
            assert id is not None
            _follow(client, id, after, count, wait, ticket if ack else None, ack, json)
            return
        own = _subscribe(client, to)
        try:
            _follow(client, own, after, count, wait, None, ack, json)
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
    json: bool,
) -> None:
    messages = client.listen(id, after=after) if wait is None else _while_they_come(client, id, after, wait)
    for message in itertools.islice(messages, count):
        if json:
            output.print_json(message)
        else:
            output.screen().print(message_line(message), soft_wrap=True)
        if ack:
            client.ack(id, message["cursor"], ticket=ticket)


def _while_they_come(client: "Client", id: str, after: str | None, wait: float) -> Iterator[dict[str, Any]]:
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


def message_line(message: dict[str, Any]) -> Text:
    """A message on one line: its cursor, where the event is from, and its data."""
    event = message["event"]
    data = event.get("data", event)
    line = Text.assemble((f"{message['cursor']:>6}  ", "dim"), (f"{event.get('source', '')}  ", "dim"))
    line.append(json_text.dumps(data, ensure_ascii=False))
    for binding in message.get("bindings") or ():
        line.append(f"  {json_text.dumps(binding, ensure_ascii=False)}", style="cyan")
    return line
