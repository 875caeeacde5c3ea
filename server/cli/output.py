"""Terminal output: results go to standard output, everything else to standard error.

Colour and width follow the terminal; into a pipe goes plain text that is not cut. Nothing a server or a file sent is
read as markup.
"""

import json
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

__all__ = [
    "ago",
    "errors",
    "hint",
    "paragraph",
    "print_json",
    "print_json_error",
    "progress",
    "screen",
    "table",
    "warn",
]

PIPE_WIDTH = 10_000
"""Columns where there is no terminal: a line of output stays a line."""


def screen() -> Console:
    """Standard output. Made when asked for, so that a redirected stream is honoured."""
    return _console(sys.stdout)


def errors() -> Console:
    """Standard error."""
    return _console(sys.stderr)


def print_json(value: Any) -> None:
    """One JSON value on one line of standard output, at once."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def print_json_error(value: Any) -> None:
    """One JSON value on one line of standard error."""
    sys.stderr.write(json.dumps(value, ensure_ascii=False) + "\n")


def paragraph(text: str, style: str = "") -> None:
    """A line of standard output."""
    screen().print(Text(text, style=style), soft_wrap=True)


def hint(text: str) -> None:
    """What one may do next, on standard error: it is for people."""
    errors().print(Text(text, style="dim"), soft_wrap=True)


def warn(text: str) -> None:
    """Something that did not stop the command, on standard error."""
    errors().print(Text.assemble(("note: ", "yellow"), text), soft_wrap=True)


def table(columns: Sequence[str], rows: Iterable[Sequence[str | Text]]) -> None:
    """Rows under headings, on standard output."""
    shown = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0), show_header=any(columns))
    for column in columns:
        shown.add_column(column, overflow="fold")
    for row in rows:
        shown.add_row(*(cell if isinstance(cell, Text) else Text(cell) for cell in row))
    screen().print(shown)


def progress() -> Progress:
    """A progress bar on standard error; without a terminal it stays silent."""
    console = errors()
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not sys.stderr.isatty(),  # also where FORCE_COLOR calls a pipe a terminal
    )


def ago(moment: str | float | None, now: datetime | None = None) -> str:
    """A moment of the API (RFC 3339 text or Unix seconds) as people say it.

    >>> ago("2026-01-01T10:00:00Z", datetime(2026, 1, 1, 8, tzinfo=UTC)), ago(None)
    ('in 2 h', '')
    """
    if moment is None or moment == "":
        return ""
    then = datetime.fromtimestamp(moment, UTC) if isinstance(moment, int | float) else datetime.fromisoformat(moment)
    seconds = (then - (now or datetime.now(UTC))).total_seconds()
    size = abs(seconds)
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        if size >= length or unit == "s":
            told = f"{round(size / length)} {unit}"
            break
    return f"in {told}" if seconds > 0 else f"{told} ago"


def _console(stream: Any) -> Console:
    width = None if stream.isatty() else PIPE_WIDTH
    return Console(
        file=stream, width=width, highlight=False, markup=False, emoji=False, force_interactive=stream.isatty()
    )
