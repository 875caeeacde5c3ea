"""The commands `kindcast clock` and `kindcast repair`: what only a person can decide when a machine has failed."""

from pathlib import Path
from typing import Annotated

import typer

from kindcast.server.cli import output
from kindcast.server.cli.connection import DEFAULT_SERVER, JsonOption, ServerOption, connected
from kindcast.server.cli.help_pages import group, page

__all__ = ["clock", "repair"]

clock = group("clock", "The server's time, after the machine's clock jumped.")


@clock.command("confirm", epilog=page("kindcast clock confirm"))
def confirm(server: ServerOption = DEFAULT_SERVER, json: JsonOption = False) -> None:
    """Confirm that the clock of the server's machine is right, so that subscriptions and events expire by it again."""
    with connected(server) as client:
        told = client.confirm_clock()
    if json:
        output.print_json(told)
        return
    output.paragraph(f"the time is {told['time']}", "bold green")
    if told["was"]:
        output.hint(f"before: {told['was']}")


def repair(
    data: Annotated[Path, typer.Option(metavar="DIR", help="The data folder.")] = Path("kindcast-data"),
    accept_loss: Annotated[
        bool,
        typer.Option("--accept-loss", help="Accept that commits are missing: the next start serves what is there."),
    ] = False,
    json: JsonOption = False,
) -> None:
    """Check the database of a server that does not run, and say what is missing or damaged."""
    from kindcast.server.store.witness import accept, examine

    database = data / "kindcast.db"
    found = examine(database)
    if accept_loss:
        accept(database)
    if json:
        output.print_json(found | {"accepted": accept_loss})
    else:
        for line in found["damage"] or ["the database is whole"]:
            output.paragraph(line)
        output.paragraph(
            f"{found['missing_commits']:,} commits are missing", "bold" if found["missing_commits"] else ""
        )
        if accept_loss:
            output.hint("the next start serves what is there")
        elif found["missing_commits"]:
            output.hint(f"To serve what is there: kindcast repair --data {data} --accept-loss")
    if (found["damage"] or found["missing_commits"]) and not accept_loss:
        raise typer.Exit(1)
