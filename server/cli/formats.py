"""Messages of subscriptions in the forms of `--format`: a line for people, JSON, NDJSON, or CSV for spreadsheets."""

import csv
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Annotated, Any

import typer
from rich.text import Text

from kindcast.server.cli import output

__all__ = ["ColumnsOption", "Format", "FormatOption", "cell", "chosen", "message_line", "write_messages"]


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
        help="With --format csv: attributes of the data, separated by commas (price,seller.email), each a column, in "
        "place of the column data.",
    ),
]

CONTEXT = ("cursor", "source", "id", "type", "subject", "time")
FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""What begins a formula in a spreadsheet."""


def chosen(format: Format | None, json: bool) -> Format:
    """The form that `--format` and `--json` ask for."""
    if json and format not in (None, Format.NDJSON):
        raise typer.BadParameter("--json means --format ndjson: give one of them", param_hint="--format")
    return Format.NDJSON if json else format or Format.LINE


def write_messages(
    messages: Iterable[Mapping[str, Any]],
    format: Format,
    columns: str = "",
    after_each: Callable[[Mapping[str, Any]], object] = lambda message: None,
) -> int:
    """Writes each message when it comes, and calls `after_each` with it. Returns their number."""
    names = [name for name in (each.strip() for each in columns.split(",")) if name]
    if names and format is not Format.CSV:
        raise typer.BadParameter("columns are those of --format csv", param_hint="--columns")
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
            end()  # also after Ctrl-C: what is written is whole
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
        lambda: _row([*CONTEXT, *(columns or ["data"]), "bindings"]),
        lambda message, _: _row(_cells(message, columns)),
        nothing,
    )


def _cells(message: Mapping[str, Any], columns: Sequence[str]) -> list[str]:
    event = message["event"]
    data = event.get("data", event.get("data_base64"))
    values = [message["cursor"], *(event.get(name) for name in CONTEXT[1:])]
    values += [_member(data, name) for name in columns] if columns else [data]
    return [cell(each) for each in (*values, message.get("bindings") or None)]


def cell(value: Any) -> str:
    """A value as a cell of CSV: text as it is, but an apostrophe before what a spreadsheet would carry out as a
    formula; objects, lists and booleans as JSON; nothing for null.

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
    """The attribute `name` of an object: its member of that name, else the way to it, as `seller.email`."""
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
    """A line of CSV, with CR LF at its end."""
    csv.writer(_Unchanged(), lineterminator="\r\n").writerow(cells)
    sys.stdout.flush()


class _Unchanged:
    """Standard output for `csv`, made when asked for, so that a redirected stream is honoured."""

    def write(self, text: str) -> int:
        return sys.stdout.write(text)


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def message_line(message: Mapping[str, Any]) -> Text:
    """A message on one line: its cursor, where the event is from, and its data."""
    event = message["event"]
    data = event.get("data", event)
    line = Text.assemble((f"{message['cursor']:>6}  ", "dim"), (f"{event.get('source', '')}  ", "dim"))
    line.append(json.dumps(data, ensure_ascii=False))
    for binding in message.get("bindings") or ():
        line.append(f"  {json.dumps(binding, ensure_ascii=False)}", style="cyan")
    return line
