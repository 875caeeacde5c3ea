"""The commands `kindcast listen` and `kindcast matches`: a subscription's messages, as they arrive or as stored.

They are written as lines, JSON, NDJSON or CSV.
"""

import csv
import itertools
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from threading import Thread
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from kindcast.server.cli import output
from kindcast.server.cli.completion import expressions, ids
from kindcast.server.cli.connection import DEFAULT_SERVER, JsonOption, ServerOption, TicketOption, connected
from kindcast.server.cli.output import InExpression
from kindcast.server.client import ProblemError, UnexpectedAnswer

if TYPE_CHECKING:
    from kindcast.server.client import Client

__all__ = [
    "ColumnsOption",
    "Format",
    "FormatOption",
    "cell",
    "chosen",
    "listen",
    "matches",
    "message_line",
    "write_messages",
]


class Format(Enum):
    """A form of output."""

    LINE = "line"
    JSON = "json"
    NDJSON = "ndjson"
    CSV = "csv"


FormatOption = Annotated[
    Format | None,
    typer.Option(
        "--format",
        help="line for people; ndjson, one JSON object on each line; json, one array; csv, as RFC 4180 describes it.  "
        "[line]",
        show_default=False,
    ),
]
ColumnsOption = Annotated[
    str,
    typer.Option(
        metavar="NAMES",
        help="With --format csv: attributes of the event, separated by commas (price,seller.email,ce.room), each a "
        "column, in place of the column data.",
    ),
]

CONTEXT = ("cursor", "source", "id", "type", "subject", "time")
FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""The characters that begin a formula in a spreadsheet."""


def chosen(format: Format | None, json: bool) -> Format:
    """Returns the format that `--format` and `--json` request."""
    if json and format not in (None, Format.NDJSON):
        raise typer.BadParameter("--json means --format ndjson: give one of them", param_hint="--format")
    return Format.NDJSON if json else format or Format.LINE


def write_messages(
    messages: Iterable[Mapping[str, Any]],
    format: Format,
    columns: str = "",
    after_each: Callable[[Mapping[str, Any]], object] = lambda message: None,
) -> int:
    """Writes each message when it arrives, and calls `after_each` with it. Returns the number of messages."""
    names = [name for name in (each.strip() for each in columns.split(",")) if name]
    if names and format is not Format.CSV:
        raise typer.BadParameter("--columns needs --format csv", param_hint="--columns")
    begin, write, end = _writer(format, names)
    count = 0
    try:
        for message in messages:
            if not count:
                begin()
            write(message, count)
            count += 1
            after_each(message)
    finally:
        if count:
            end()  # also after Ctrl-C, so that the output is complete
    if not count:
        begin()
        end()
    return count


Writer = tuple[Callable[[], None], Callable[[Mapping[str, Any], int], None], Callable[[], None]]


def _writer(format: Format, columns: Sequence[str]) -> Writer:
    def nothing() -> None:
        pass

    if format is Format.NDJSON:
        return nothing, lambda message, _: output.print_json(message), nothing
    if format is Format.LINE:
        return nothing, lambda message, _: output.screen().print(message_line(message), soft_wrap=True), nothing
    if format is Format.JSON:

        def item(message: Mapping[str, Any], number: int) -> None:
            _write(("\n" if number == 0 else ",\n") + json.dumps(message, ensure_ascii=False))

        return lambda: _write("["), item, lambda: _write("\n]\n")
    return (
        lambda: _row([*CONTEXT, *(columns or ["data"]), "bindings", "retracted"]),
        lambda message, _: _row(_cells(message, columns)),
        nothing,
    )


def _cells(message: Mapping[str, Any], columns: Sequence[str]) -> list[str]:
    event = message["event"]
    data = event.get("data", event.get("data_base64"))
    values = [message["cursor"], *(event.get(name) for name in CONTEXT[1:])]
    if not columns:
        values.append(data)
    for name in columns:
        values.append(event.get(name.removeprefix("ce.")) if name.startswith("ce.") else _member(data, name))
    return [cell(each) for each in (*values, message.get("bindings") or None, message.get("retracted"))]


def cell(value: Any) -> str:
    """Returns a value as a cell of CSV: text unchanged, but with an apostrophe before text that a spreadsheet would
    execute as a formula; objects, lists and booleans as JSON; an empty text for null.

    >>> [cell(value) for value in ("=1+1", -5, "-5", "blue", ["a"], None, True)]
    ["'=1+1", '-5', '-5', 'blue', '["a"]', '', 'true']
    """
    if value is None:
        return ""
    if not isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    return f"'{value}" if value.startswith(FORMULA) and not _is_number(value) else value


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return text.strip() == text and text.isascii()


def _member(data: Any, name: str) -> Any:
    """Returns the attribute `name` of an object: its member with this name, else by its path, such as
    `seller.email`."""
    if not isinstance(data, dict):
        return None
    if name in data:
        return data[name]
    first, dot, rest = name.partition(".")
    if not dot:
        return None
    beneath = data.get(first)
    if isinstance(beneath, list):
        found = [each for each in (_member(one, rest) for one in beneath) if each is not None]
        return found or None
    return _member(beneath, rest)


def _row(cells: Sequence[str]) -> None:
    """Writes a line of CSV that ends with CR LF."""
    csv.writer(_Unchanged(), lineterminator="\r\n").writerow(cells)
    sys.stdout.flush()


class _Unchanged:
    """Standard output for `csv`, read at each write, so that a redirected stream is used."""

    def write(self, text: str) -> int:
        return sys.stdout.write(text)


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def message_line(message: Mapping[str, Any]) -> Text:
    """Returns a message as one line: its cursor, the source of the event, its data, and which event it withdraws."""
    event = message["event"]
    data = event.get("data", event)
    line = Text.assemble((f"{message['cursor']:>6}  ", "dim"), (f"{event.get('source', '')}  ", "dim"))
    line.append(json.dumps(data, ensure_ascii=False))
    for binding in message.get("bindings") or ():
        line.append(f"  {json.dumps(binding, ensure_ascii=False)}", style="cyan")
    if withdrawn := message.get("retracted"):
        line.append(f"  withdraws event {withdrawn['sequence']} ({withdrawn['source']} {withdrawn['id']})", "yellow")
    return line


PAGE = 100
"""The number of messages of one request."""
LONGEST_POLL_SECONDS = 30.0
"""How long one request may wait at the server."""


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
    """Show the messages of a subscription as they arrive, until Ctrl-C."""
    form = chosen(format, json)
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, output.leave)
    Thread(target=_leave_with_the_reader, daemon=True).start()
    if (id is None) == (to is None):
        raise typer.BadParameter("give either the id of a subscription or --to with an expression", param_hint="ID")
    with connected(server, repeating=True) as client:
        if to is None:
            assert id is not None
            _follow(client, id, after, count, wait, ticket, ack, form, columns)
            return
        created: Mapping[str, Any] = {}
        try:
            created = _subscribe(client, to)
            output.hint(f"listening for {output.expression(created['canonical'])}; stop with Ctrl-C")
            _follow(client, created["id"], after, count, wait, None, ack, form, columns)
        finally:
            if created:
                _unsubscribe(client, created["id"], created["ticket"])


def _leave_with_the_reader() -> None:
    """Ends the command when the reader of its output has gone, as `head -1` does. Only the next message, which may
    never come, would tell otherwise."""
    with suppress(OSError, ValueError):  # the output is no file
        left = select.poll()
        left.register(sys.stdout, 0)
        left.poll()
        os.kill(os.getpid(), signal.SIGTERM)


def _subscribe(client: "Client", expression: str) -> Mapping[str, Any]:
    try:
        return client.subscribe(expression)
    except ProblemError as error:
        raise InExpression(error, expression) from error


def _unsubscribe(client: "Client", id: str, ticket: str) -> None:
    try:
        client.unsubscribe(id)
    except (OSError, KeyboardInterrupt):  # no answer
        output.warn(f"the subscription may still be there: kindcast subscriptions delete {id} --ticket {ticket}")
        raise


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

    after = _kept(client, id, after)
    _check_reachable(client)
    messages = client.listen(id, after=after) if wait is None else _while_they_come(client, id, after, wait)
    found = write_messages(_first(messages, count), form, columns, acknowledge)
    if wait is None and found != count:
        output.hint(f"{id} has expired: no more messages come until it is renewed")


def _check_reachable(client: "Client") -> None:
    """Raises an error of `httpx` if nothing answers at the address. `Client.listen` would wait for it without end."""
    with suppress(ProblemError, UnexpectedAnswer):  # something answers, and may be ready soon
        client.ready()


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
    """Show the messages of a subscription that the server still has, oldest first. Nothing is acknowledged."""
    form = chosen(format, json)
    with connected(server) as client:
        count = write_messages(_first(_stored(client, id, after), limit), form, columns)
    if form is Format.LINE and not count:
        output.hint("No stored event matched it." if after == "0" else f"No stored match comes after {after}.")


def _first(messages: Iterator[Mapping[str, Any]], count: int | None) -> Iterator[Mapping[str, Any]]:
    """Returns the first messages: all if `count` is None."""
    return itertools.islice(messages, count if count is None else min(count, sys.maxsize))


def _stored(client: "Client", id: str, after: str | None) -> Iterator[Mapping[str, Any]]:
    """Yields the stored messages. They are read page by page."""
    after = _kept(client, id, after)
    while (page := client.pull(id, after=after, limit=PAGE))["events"]:
        yield from page["events"]
        after = str(page["cursor"])


def _kept(client: "Client", id: str, after: str | None) -> str | None:
    """Returns the cursor to start after. 0 means the oldest message that the server still has."""
    if after != "0":
        return after
    try:
        client.pull(id, after=after, limit=1)
    except ProblemError as error:
        if "oldest" not in error.document:
            raise
        return str(error.document["oldest"])
    return after


def _while_they_come(client: "Client", id: str, after: str | None, wait: float) -> Iterator[Mapping[str, Any]]:
    """Yields messages until none arrived for `wait` seconds."""
    deadline = time.monotonic() + wait
    while True:
        patience = min(max(deadline - time.monotonic(), 0.0), LONGEST_POLL_SECONDS)
        page = client.pull(id, after=after, wait=patience)
        if page["events"]:
            yield from page["events"]
            after, deadline = str(page["cursor"]), time.monotonic() + wait
        elif time.monotonic() >= deadline:
            return
