"""The command `kindcast backtest`: which events of a server or an archive an expression would have matched."""

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from kindcast.server.cli import output
from kindcast.server.cli.completion import expressions, ontology_files
from kindcast.server.cli.connection import DEFAULT_SERVER, JsonOption, connected
from kindcast.server.cli.documents import ontology_path
from kindcast.server.cli.problems import CommandFailed, InExpression
from kindcast.server.cli.spark import run_job
from kindcast.server.client import ProblemError

if TYPE_CHECKING:
    from kindcast.server.client import Client

__all__ = ["backtest"]

WAIT_SECONDS = 0.2


def backtest(
    expression: Annotated[
        str, typer.Argument(metavar="EXPRESSION", autocompletion=expressions, help="A subscription.")
    ],
    server: Annotated[
        str, typer.Option("--server", envvar="KINDCAST_SERVER", metavar="URL", help="The server whose events are used.")
    ] = DEFAULT_SERVER,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only events accepted at or after this time.")
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Only events accepted before this time.")] = None,
    version: Annotated[
        list[str] | None,
        typer.Option(
            "--version", metavar="NAME=NUMBER", help="Use this version of an ontology; may be given several times."
        ),
    ] = None,
    archive: Annotated[
        str | None, typer.Option("--archive", metavar="PATH", help="Use an archive instead of a server; runs Spark.")
    ] = None,
    ontology: Annotated[
        list[str] | None,
        typer.Option("--ontology", metavar="FILE", autocompletion=ontology_files, help="With --archive: an ontology."),
    ] = None,
    time_from: Annotated[
        str | None,
        typer.Option("--time", metavar="NAME", help="With --archive: the member that holds the time of plain JSON."),
    ] = None,
    lang: Annotated[str, typer.Option(metavar="TAG", help="The language of labels.")] = "en",
    json: JsonOption = False,
) -> None:
    """Show how often an expression would have matched stored events: on which days, with samples, and how many events
    each part of it excludes."""
    if archive is not None:
        files = [part for path in ontology or [] for part in ("--ontology", ontology_path(path))]
        given = ["--time", time_from] if time_from else []
        asked = ["--expression", expression, "--language", lang]
        report: Mapping[str, Any] = run_job(["backtest", "--archive", archive, *files, *given, *asked])
    else:
        with connected(server) as client:
            try:
                report = _by_server(client, expression, since, until, version or [], lang)
            except ProblemError as error:
                raise InExpression(error, expression) from error
    if json:
        output.print_json(report)
    else:
        _show(report)


def _by_server(
    client: "Client", expression: str, since: str | None, until: str | None, versions: list[str], lang: str
) -> Mapping[str, Any]:
    body: dict[str, Any] = {"expression": expression}
    body |= {name: value for name, value in (("since", since), ("until", until)) if value}
    if versions:
        body["ontologies"] = {}
        for each in versions:
            name, _, number = each.partition("=")
            if not number.isdigit():
                raise CommandFailed(f"{each!r} does not name a version of an ontology.", "Write it as shop=2.")
            body["ontologies"][name] = int(number)
    with output.progress() as bar:
        task = bar.add_task("backtest", total=None)
        job = client.start_backtest(body, lang=lang)
        while job["status"] == "running":
            told = job["progress"]
            bar.update(task, description=told["stage"], completed=told["done"], total=told["total"])
            time.sleep(WAIT_SECONDS)
            job = client.backtest(job["id"])
    if job["status"] == "failed":
        raise ProblemError.of(job["problem"])
    return job["result"]


def _show(report: Mapping[str, Any]) -> None:
    screen = output.screen()
    screen.print(Text(report["canonical"], style="bold"), soft_wrap=True)
    unread = f", {report['unreadable']:,} could not be read" if report["unreadable"] else ""
    open_ones = f", {report['undecided']:,} could not be decided" if report["undecided"] else ""
    output.paragraph(f"{report['matched']:,} of {report['events']:,} events match{unread}{open_ones}")
    if report["days"]:
        most = max(1, *(each["matched"] for each in report["days"]))
        rows = [
            [each["day"], f"{each['matched']:,}", f"{each['events']:,}", "█" * round(30 * each["matched"] / most)]
            for each in report["days"]
        ]
        output.table(["day", "matched", "events", ""], rows)
    for number, clause in enumerate(report["clauses"], 1):
        title = "predicate" if len(report["clauses"]) == 1 else f"predicate of clause {number}"
        rows = [
            [each["text"], f"{each['holds']:,}", f"{each['left']:,}", f"{each['cuts']:,}"]
            for each in clause["predicates"]
        ]
        output.table([title, "holds for", "left so far", "it alone keeps out"], rows)
    for sample in report["samples"]:
        output.paragraph(f"{sample['day']}  {sample['source']} {sample['id']}")
        output.paragraph(f"  {sample['explanation']['summary']}", style="dim")
