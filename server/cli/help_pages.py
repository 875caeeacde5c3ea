"""Help as plain text, in the form of a manual page: usage, what the command does, its options, examples, exit statuses.

typer's own boxes are not used: the libraries that draw them take a fifth of the time of `kindcast --help`.
"""

from difflib import get_close_matches
from typing import Any

import typer
from typer.core import TyperGroup

__all__ = ["WIDTH", "Commands", "group", "page"]

WIDTH = 100
"""Columns of a help page at most."""


OTHER_WORDS = {
    "ack": "listen",
    "consume": "listen",
    "pull": "matches",
    "run": "serve",
    "send": "publish",
    "start": "serve",
    "unsubscribe": "subscriptions delete",
}
"""What other programs call a command → the command."""
OTHER_WORDS_IN_GROUPS = {"add": ("create", "load", "put"), "get": ("show",), "remove": ("delete",), "rm": ("delete",)}
"""The same in a group of commands, of which it has some."""
LIKE = 0.7
"""How like a name is that is meant, of 1."""


class Commands(TyperGroup):
    """A group whose list of commands shows the first sentence of each in full, and which says where a command is that
    is not here."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that is named. Called by typer. Where there is none the error says what may be meant."""
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-"):
            hint = "."
            if self.invoke_without_command and name in ("list", "ls"):
                hint = f": {ctx.command_path!r} alone lists them."
            elif meant := self._meant(ctx, name):
                hint = f". Did you mean {' or '.join(map(repr, meant))}?"
            ctx.fail(f"No such command {name!r}{hint}")
        return super().resolve_command(ctx, args)

    def _meant(self, ctx: Any, name: str) -> list[str]:
        """Commands that do it: of another word, of a name like it, or of that name in a group."""
        near = get_close_matches(name, self.commands, cutoff=LIKE)
        if self is not ctx.find_root().command:
            return [each for each in OTHER_WORDS_IN_GROUPS.get(name, ()) if each in self.commands] or near
        if name in OTHER_WORDS:
            return [f"kindcast {OTHER_WORDS[name]}"]
        groups = ((each, getattr(command, "commands", {})) for each, command in self.commands.items())
        return [f"kindcast {each} {name}" for each, commands in groups if name in commands] or near

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Writes the list. Called by typer."""
        rows = [
            (name, command.get_short_help_str(limit=10 * WIDTH))
            for name, command in self.commands.items()
            if not command.hidden
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def group(name: str, help: str, *, no_args_is_help: bool = True) -> typer.Typer:
    """Commands under one name; `help` is a sentence about them all."""
    return typer.Typer(name=name, help=help, no_args_is_help=no_args_is_help, cls=Commands)


def page(*examples: str, statuses: str = "") -> str:
    """The end of a help page: examples, and what the exit status means where a script should know more than that 0 is
    success.

    >>> print(page("kindcast trace 17").replace("\\b", "*"))
    *
    Example: kindcast trace 17
    """
    if len(examples) == 1:
        text = f"\b\nExample: {examples[0]}"
    else:
        text = "\b\nExamples:" + "".join(f"\n  {each}" for each in examples)
    return f"{text}\n\nExit status: {statuses}" if statuses else text
