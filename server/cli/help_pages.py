"""Help as plain text, in the form of a manual page: usage, what the command does, its options, examples, exit statuses.

typer's own boxes are not used: the libraries that draw them take a fifth of the time of `kindcast --help`.
"""

from typing import Any

import typer
from typer.core import TyperGroup

__all__ = ["WIDTH", "Commands", "group", "page"]

WIDTH = 100
"""Columns of a help page at most."""


class Commands(TyperGroup):
    """A group whose list of commands shows the first sentence of each in full."""

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
