"""Terminal output of all commands: tables, colour, JSON, error messages, and the form of help pages.

Results go to standard output, everything else to standard error. Colour and width are those of the terminal; a pipe
gets plain text that is not cut. Text from a server or a file is never interpreted as markup.
"""

import codecs
import io
import json
import os
import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Any

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.segment import Segment
from rich.table import Table
from rich.text import Text
from typer.core import TyperGroup
from typer.exceptions import TyperException

from kindcast.semantic.errors import InvalidEvent, InvalidSubscription, OntologyError, property_in_words
from kindcast.server.client import ProblemError

__all__ = [
    "WIDTH",
    "CommandFailed",
    "Commands",
    "InExpression",
    "accept_any_text",
    "ago",
    "as_json",
    "errors",
    "expression",
    "group",
    "hint",
    "in_words",
    "leave",
    "page",
    "paragraph",
    "plural",
    "print_json",
    "print_json_error",
    "progress",
    "screen",
    "show",
    "table",
    "warn",
    "word",
]

PIPE_WIDTH = 10_000
"""The width without a terminal, so that lines are not wrapped."""


def screen() -> Console:
    """Returns a console for standard output. It is created at each call, so that a redirected stream is used."""
    return _console(sys.stdout)


def errors() -> Console:
    """Returns a console for standard error."""
    return _console(sys.stderr)


def accept_any_text() -> None:
    """Makes the outputs escape, as JSON does, each character that their encoding lacks, such as Chinese in Latin-1. An
    output that the caller has closed (`>&-`) takes everything and keeps nothing."""
    codecs.register_error("kindcast", _escaped)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            setattr(sys, name, os.fdopen(nowhere, "w", encoding="utf-8"))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.encoding.lower() not in ("utf-8", "utf8"):
            stream.reconfigure(errors="kindcast")


def leave(number: int, _: object) -> None:
    """Handles a signal: ends the command with an exception, so that it cleans up."""
    sys.exit(128 + number)


def _escaped(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


def print_json(value: Any) -> None:
    """Writes a JSON value on one line of standard output and flushes it."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def print_json_error(value: Any) -> None:
    """Writes a JSON value on one line of standard error."""
    sys.stderr.write(json.dumps(value, ensure_ascii=False) + "\n")


def paragraph(text: str, style: str = "") -> None:
    """Writes a line to standard output."""
    screen().print(Text(text, style=style), soft_wrap=True)


def hint(text: str) -> None:
    """Writes what to do next to standard error, for people."""
    errors().print(Text(text, style="dim"), soft_wrap=True)


def warn(text: str) -> None:
    """Writes a warning, which does not stop the command, to standard error."""
    errors().print(Text.assemble(("note: ", "yellow"), text), soft_wrap=True)


NARROW = 60
"""With fewer columns, a table would break ids in their middle, so that they cannot be copied."""


def table(columns: Sequence[str], rows: Iterable[Sequence[str | Text]]) -> None:
    """Writes rows under headings to standard output. On a narrow screen each cell has a line of its own."""
    if screen().width < NARROW and any(columns):
        for row in rows:
            for column, cell in zip(columns, row, strict=True):
                told = cell if isinstance(cell, Text) else Text(cell)
                indent = "" if column == columns[0] else "  "
                if told.plain:
                    screen().print(Text.assemble(indent, (f"{column}: ", "dim"), told), soft_wrap=True)
        return
    shown = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0), show_header=any(columns))
    for column in columns:
        shown.add_column(column, overflow="fold")
    for row in rows:
        shown.add_row(*(cell if isinstance(cell, Text) else Text(cell) for cell in row))
    screen().print(shown)


def progress() -> Progress:
    """Returns a progress bar on standard error. Without a terminal it shows nothing."""
    console = errors()
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not sys.stderr.isatty(),  # also if FORCE_COLOR makes a pipe look like a terminal
    )


def ago(moment: str | float | None, now: datetime | None = None) -> str:
    """Returns a time of the API (RFC 3339 text or Unix seconds) in relative form for people.

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


def expression(text: str) -> str:
    """Returns an expression for people. The empty one, which every event satisfies, is said in words.

    >>> expression("price < 400"), expression("")
    ('price < 400', 'every event')
    """
    return text or "every event"


def word(value: object) -> str:
    """Returns a value as one word of a command that can be copied into a shell.

    >>> word("shop"), word("my shop")
    ('shop', "'my shop'")
    """
    return shlex.quote(str(value))


class _Console(Console):
    """Shows no control characters but its own: others choose the names and values that it shows, and a terminal may
    obey them."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else _harmless(text), style, control)


def plural(count: int, noun: str, ending: str = "s") -> str:
    """Returns a number with its noun: `1 match`, `1,200 matches`."""
    return f"{count:,} {noun}{'' if count == 1 else ending}"


def _harmless(text: str) -> str:
    """Returns a text without control characters, and without those that turn the direction of what follows.

    >>> _harmless("a\\x1b[2J\\nb")
    'a\ufffd[2J\\nb'
    >>> _harmless("\\u202egpj.exe")
    '\ufffdgpj.exe'
    """
    return text.translate(_CONTROLS)


_TURNING = *range(0x202A, 0x202F), *range(0x2066, 0x206A)
_CONTROLS = {code: "\ufffd" for code in (*range(32), *range(127, 160), *_TURNING) if chr(code) not in "\n\t"}


def _console(stream: Any) -> Console:
    width = None if stream.isatty() else PIPE_WIDTH
    return _Console(
        file=stream, width=width, highlight=False, markup=False, emoji=False, force_interactive=stream.isatty()
    )


TAB = "\t"


class CommandFailed(Exception):
    """The command failed. `advice` says what to do about it."""

    def __init__(self, message: str, advice: str = "") -> None:
        super().__init__(message)
        self.advice = advice


class InExpression(Exception):
    """An error in an expression of the user. The places in `error` refer to `text`."""

    def __init__(self, error: InvalidSubscription | ProblemError, text: str) -> None:
        super().__init__(str(error))
        self.error = error
        self.text = text


@dataclass(frozen=True, slots=True)
class _Fault:
    """One fault. `place` is empty if the caret shows it."""

    detail: str
    line: int | None
    column: int | None
    pointer: str
    suggestions: tuple[Mapping[str, Any], ...]


def show(failure: Exception, about: str = "") -> None:
    """Prints a failure on standard error. `about` names what failed, such as `event 3`, in place of the title of the
    problem."""
    console = errors()
    error, expression = _taken_apart(failure)
    faults = _faults(error)
    shown = [_source_line(fault, expression) is not None for fault in faults]
    # The detail of an answer repeats its first fault. It is shown only once, under its place if possible.
    said = error.title if isinstance(error, ProblemError) and faults and all(shown) else _headline(error, about)
    said = said.removesuffix(f" (and {len(faults) - 1} more, see errors)")
    console.print(Text.assemble(("error: ", "bold red"), said), soft_wrap=True)
    for number, (fault, has_place) in enumerate(zip(faults, shown, strict=True)):
        first, *others = _lines(fault, expression)
        for line in [*([] if number == 0 and not has_place and fault.detail in said else [first]), *others]:
            console.print(line, soft_wrap=True)
    advice = (
        _ADVICE.get(error.type.rpartition("/")[2]) if isinstance(error, ProblemError) else getattr(error, "advice", "")
    )
    if advice:
        hint(advice)


_ADVICE = {
    "key-missing": "Put your key into the variable KINDCAST_KEY, or give --key KEY.",
    "ticket-missing": "Give the ticket of the subscription: --ticket TICKET or KINDCAST_TICKET.",
}
"""What to do at the command line, where the problem says what to do over HTTP."""


def as_json(failure: Exception) -> dict[str, Any]:
    """Returns a failure as a problem document, which `--json` prints."""
    error, _ = _taken_apart(failure)
    if isinstance(error, ProblemError):
        return {
            "type": error.type,
            "title": error.title,
            "status": error.status,
            "detail": error.detail,
            "errors": error.errors,
        }
    errors = [
        {
            name: value
            for name, value in (
                ("line", fault.line),
                ("column", fault.column),
                ("pointer", fault.pointer or None),
                ("detail", fault.detail),
                ("suggestions", list(fault.suggestions) or None),
            )
            if value is not None
        }
        for fault in _faults(error)
    ]
    return {"type": "about:blank", "title": _headline(error), "detail": in_words(error), "errors": errors}


def _taken_apart(failure: Exception) -> tuple[Exception, str | None]:
    """Returns the error itself, and the text to which its places refer."""
    return (failure.error, failure.text) if isinstance(failure, InExpression) else (failure, None)


def _headline(error: Exception, about: str = "") -> str:
    if about:
        return f"{about}: {error.detail or error.title if isinstance(error, ProblemError) else in_words(error)}"
    if isinstance(error, ProblemError):
        return f"{error.title}: {error.detail}" if error.detail else error.title
    if isinstance(error, InvalidSubscription):
        return "the subscription cannot be understood"
    if isinstance(error, InvalidEvent):
        return "the event cannot be understood"
    if isinstance(error, OntologyError):
        return f"the ontology cannot be read: {error}"
    return in_words(error)


def in_words(error: Exception) -> str:
    """Returns the message of an error, without the error number of the system."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"
    return str(error) or type(error).__name__


def _faults(error: Exception) -> list[_Fault]:
    if isinstance(error, InvalidSubscription | InvalidEvent):
        return [
            _Fault(
                detail=problem.detail,
                line=problem.at.line if problem.at else None,
                column=problem.at.column if problem.at else None,
                pointer=(problem.at.pointer or "") if problem.at else "",
                suggestions=problem.suggestions,
            )
            for problem in error.problems
        ]
    if isinstance(error, ProblemError):
        return [
            _Fault(
                detail=str(fault.get("detail", "")),
                line=fault.get("line"),
                column=fault.get("column"),
                pointer=str(fault.get("pointer") or ""),
                suggestions=tuple(each for each in fault.get("suggestions") or () if isinstance(each, Mapping)),
            )
            for fault in error.errors
        ]
    return []


def _lines(fault: _Fault, expression: str | None) -> Iterable[Text]:
    source = _source_line(fault, expression)
    if source is not None:
        assert fault.column is not None
        before = source[: fault.column - 1]
        yield Text(f"  {source}")
        # Wide characters before the caret move it by two columns.
        blank = "".join(TAB if char == TAB else " " * Text(char).cell_len for char in before)
        yield Text.assemble("  ", blank, ("^", "bold red"))
        yield Text(f"  {fault.detail}")
    else:
        place = f"line {fault.line}, column {fault.column or 1}: " if fault.line else ""
        yield Text(f"  {place or (fault.pointer + ': ' if fault.pointer else '')}{fault.detail}")
    for each in fault.suggestions:
        label, iri = str(each.get("label") or ""), str(each.get("iri") or "")
        tongue = f" ({each['lang']})" if each.get("lang") else ""
        known = each.get("property")
        about = property_in_words(label, known).removeprefix(label) if isinstance(known, Mapping) else ""
        yield Text.assemble(
            "    did you mean ", (label or iri, "bold"), tongue, (f"  {iri}" if label and iri else about, "dim")
        )


def _source_line(fault: _Fault, expression: str | None) -> str | None:
    if expression is None or fault.line is None or fault.column is None:
        return None
    lines = expression.splitlines() or [""]
    return lines[fault.line - 1] if fault.line <= len(lines) else ""


WIDTH = 100
"""The maximum width of a help page."""


OTHER_WORDS = {
    "ack": "listen",
    "consume": "listen",
    "pull": "matches",
    "run": "serve",
    "send": "publish",
    "start": "serve",
    "unsubscribe": "subscriptions delete",
}
"""Names of commands in other programs → the command."""
OTHER_WORDS_IN_GROUPS = {
    "add": ("create", "load", "put"),
    "get": ("show",),
    "ls": ("list",),
    "make": ("create",),
    "new": ("create", "load", "put"),
    "remove": ("delete",),
    "rm": ("delete",),
    "search": ("find",),
    "show": ("list",),
}
"""The same for commands in groups, if the group has them."""
LIKE = 0.7
"""The minimum similarity of a suggested name, from 0 to 1."""
WRONG_CHOICE = " is not one of "
EXTRA_ARGUMENTS = "Got unexpected extra argument"
QUOTES = ". An argument with spaces needs quotes."
_QUOTED = re.compile(r"'([^']*)'")


class Commands(TyperGroup):
    """A group of commands. Its list shows the first sentence of each command in full, and for an unknown command it
    suggests others."""

    def invoke(self, ctx: Any) -> Any:
        """Runs the named command. Called by typer. If a value is none of its choices, or if there are too
        many arguments, the error has a suggestion."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = error.message.removeprefix("Value error, ")
            before, is_choice, choices = error.message.partition(WRONG_CHOICE)
            if is_choice and "Did you mean" not in choices:
                near = get_close_matches(before.strip("'"), _QUOTED.findall(choices), n=1)
                error.message += f" Did you mean {near[0]!r}?" if near else ""
            raise
        except TyperException as error:
            if error.message.startswith(EXTRA_ARGUMENTS) and not error.message.endswith(QUOTES):
                error.message += QUOTES
            raise

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Returns the named command. Called by typer. If there is none, the error has suggestions."""
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-"):
            if self.invoke_without_command and name in ("list", "ls"):
                hint = f": {ctx.command_path!r} lists them."
            elif meant := self._meant(ctx, *args):
                hint = f". Did you mean {' or '.join(map(repr, meant))}?"
            elif self is ctx.find_root().command:
                hint = f": {ctx.command_path + ' --help'!r} lists all commands."
            else:
                hint = f". The commands of {ctx.command_path!r} are {', '.join(self.commands)}."
            ctx.fail(f"No such command {name!r}{hint}")
        return super().resolve_command(ctx, args)

    def _meant(self, ctx: Any, name: str, *after: str) -> list[str]:
        """Returns suggestions: a command with another name for the same, with a similar name, or with this name in a
        group. If the words after it are a group or a command, they are in the wrong order."""
        near = get_close_matches(name, self.commands, cutoff=LIKE)
        if self is not ctx.find_root().command:
            known = [each for each in OTHER_WORDS_IN_GROUPS.get(name, ()) if each in self.commands] or near
            swapped = [f"{ctx.command_path} {each} {name}" for each in after[:1] if each in self.commands]
            return known or swapped
        if name in OTHER_WORDS:
            return [f"kindcast {OTHER_WORDS[name]}"]
        groups = {each: getattr(command, "commands", {}) for each, command in self.commands.items()}
        named = get_close_matches(after[0], groups, n=1, cutoff=LIKE) if after else []
        for word in (name, *OTHER_WORDS_IN_GROUPS.get(name, ())):
            if named and word in groups[named[0]]:
                return [f"kindcast {named[0]} {word}"]
        return [f"kindcast {each} {name}" for each, commands in groups.items() if name in commands] or near

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Writes the list of commands. Called by typer."""
        rows = [
            (name, command.get_short_help_str(limit=10 * WIDTH))
            for name, command in self.commands.items()
            if not command.hidden
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def group(name: str, help: str, *, no_args_is_help: bool = True) -> typer.Typer:
    """Returns a group of commands. `help` is a sentence about all of them."""
    return typer.Typer(name=name, help=help, no_args_is_help=no_args_is_help, cls=Commands)


def page(*examples: str, statuses: str = "") -> str:
    """Returns the end of a help page: examples, and the meaning of exit statuses if there are others than 0 and 1.

    >>> print(page("kindcast trace 17").replace("\\b", "*"))
    *
    Example: kindcast trace 17
    """
    if len(examples) == 1:
        text = f"\b\nExample: {examples[0]}"
    else:
        text = "\b\nExamples:" + "".join(f"\n  {each}" for each in examples)
    return f"{text}\n\nExit status: {statuses}" if statuses else text
