"""The commands `kindcast spark`: match archives and streams as Spark jobs, with a server's or a file's inputs."""

import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import httpx
import typer

from kindcast.server.cli import output
from kindcast.server.cli.child_jobs import run_job
from kindcast.server.cli.connection import JsonOption, connected
from kindcast.server.cli.problems import CommandFailed
from kindcast.server.cli.spark_inputs import fetch_inputs, read_inputs
from kindcast.server.client import ProblemError

__all__ = ["commands"]

commands = typer.Typer(
    name="spark",
    help="Archives and streams through the matcher, on Spark (pip install 'kindcast\\[spark]', Java 17 or newer).",
    no_args_is_help=True,
)

REFRESH_SECONDS = 5.0
"""How often a stream asks the server for its active version."""

Archive = Annotated[str, typer.Option("--archive", metavar="PATH", help="A file or folder: JSON lines, CSV, Parquet.")]
Output = Annotated[str, typer.Option("--output", metavar="DIR", help="The folder to write.")]
Server = Annotated[str | None, typer.Option("--server", metavar="URL", help="Whose ontologies and subscriptions.")]
Data = Annotated[str | None, typer.Option("--data", metavar="DIR", help="The same, from a server's data folder.")]
Ontology = Annotated[list[str] | None, typer.Option("--ontology", metavar="FILE", help="An ontology; may be repeated.")]
Relations = Annotated[str, typer.Option("--relations", metavar="NAMES", help="Kept as hierarchies, with commas.")]
Declarations = Annotated[
    str | None, typer.Option("--declarations", metavar="FILE", help="JSON: attributes, synonyms, rates, schemas.")
]
Subscriptions = Annotated[
    str | None, typer.Option("--subscriptions", metavar="FILE", help="NDJSON: id and expression a line.")
]
Master = Annotated[str | None, typer.Option("--master", metavar="MASTER", help="Spark's master; all cores here.")]
Time = Annotated[
    str | None, typer.Option("--time", metavar="NAME", help="The member of plain data that says its time.")
]
Numbers = Annotated[str, typer.Option("--numbers", metavar="NAMES", help="Columns of CSV that hold numbers.")]
Explode = Annotated[bool, typer.Option("--explode", help="One row per match instead of per event.")]
MatchedOnly = Annotated[bool, typer.Option("--matched-only", help="No rows for events without matches.")]
Distinct = Annotated[bool, typer.Option("--distinct", help="Of events with the same source and id only the first.")]
Shards = Annotated[
    int | None, typer.Option("--shards", min=1, help="Parts of the subscriptions; told by their number.")
]


@commands.command(epilog="Example: kindcast spark normalise --archive raw/ --output clean/ --ontology shop.ttl")
def normalise(
    archive: Archive,
    output: Output,
    server: Server = None,
    data: Data = None,
    ontology: Ontology = None,
    relations: Relations = "",
    declarations: Declarations = None,
    time: Time = None,
    numbers: Numbers = "",
    master: Master = None,
    json: JsonOption = False,
) -> None:
    """Raw archives to canonical events, with what changed and why, and the terms that mean nothing."""
    files = _files(ontology, relations, declarations, None)
    with _inputs(server, data, files) as inputs:
        _show(run_job(["normalise", *inputs, *_given(archive, output, time, numbers, master)]), json)


@commands.command(
    epilog="Example: kindcast spark match --archive events/ --output matches/ --server http://127.0.0.1:8080"
)
def match(
    archive: Archive,
    output: Output,
    server: Server = None,
    data: Data = None,
    ontology: Ontology = None,
    relations: Relations = "",
    declarations: Declarations = None,
    subscriptions: Subscriptions = None,
    explode: Explode = False,
    matched_only: MatchedOnly = False,
    distinct: Distinct = False,
    shards: Shards = None,
    time: Time = None,
    numbers: Numbers = "",
    master: Master = None,
    json: JsonOption = False,
) -> None:
    """Archives against all subscriptions: Parquet by day. Run again to carry on, or after something changed."""
    files = _files(ontology, relations, declarations, subscriptions)
    with _inputs(server, data, files) as inputs:
        flags = [*_flags(explode, matched_only, shards), *(["--distinct"] if distinct else [])]
        _show(run_job(["match", *inputs, *flags, *_given(archive, output, time, numbers, master)]), json)


@commands.command(epilog="Example: kindcast spark learn --archive events/ --output learned/ --data kindcast-data")
def learn(
    archive: Archive,
    output: Output,
    server: Server = None,
    data: Data = None,
    ontology: Ontology = None,
    relations: Relations = "",
    declarations: Declarations = None,
    subscriptions: Subscriptions = None,
    time: Time = None,
    numbers: Numbers = "",
    master: Master = None,
    json: JsonOption = False,
) -> None:
    """How often predicates hold, what values there are, what goes together, what drifts from day to day."""
    files = _files(ontology, relations, declarations, subscriptions)
    with _inputs(server, data, files) as inputs:
        _show(run_job(["learn", *inputs, *_given(archive, output, time, numbers, master)]), json)


@commands.command(
    epilog="Example: kindcast spark stream --archive incoming/ --output matches/ --server http://127.0.0.1:8080"
)
def stream(
    output: Output,
    archive: Annotated[str | None, typer.Option("--archive", metavar="DIR", help="Where files are put.")] = None,
    server: Server = None,
    data: Data = None,
    ontology: Ontology = None,
    relations: Relations = "",
    declarations: Declarations = None,
    subscriptions: Subscriptions = None,
    source: Annotated[str, typer.Option("--source", metavar="NAME", help="files, socket, kafka, …")] = "files",
    option: Annotated[
        list[str] | None, typer.Option("--option", metavar="NAME=VALUE", help="Of the source; may be repeated.")
    ] = None,
    window: Annotated[str, typer.Option(help="Within which an event counts as repeated.")] = "1 hour",
    every: Annotated[float, typer.Option(metavar="SECONDS", help="Between micro-batches.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="End when all that is there is matched.")] = False,
    explode: Explode = False,
    matched_only: MatchedOnly = False,
    shards: Shards = None,
    time: Time = None,
    master: Master = None,
    json: JsonOption = False,
) -> None:
    """A stream against all subscriptions, until interrupted. What changes on the server counts from the next
    micro-batch on."""
    files = _files(ontology, relations, declarations, subscriptions)
    options = [part for each in option or [] for part in ("--option", each)]
    with _inputs(server, data, files, refresh=True) as inputs:
        told = ["--source", source, "--window", window, "--every", str(every), *options, *(["--once"] if once else [])]
        flags = _flags(explode, matched_only, shards)
        _show(run_job(["stream", *inputs, *told, *flags, *_given(archive, output, time, "", master)]), json)


def _given(archive: str | None, output: str, time: str | None, numbers: str, master: str | None) -> list[str]:
    options = {"--archive": archive, "--output": output, "--time": time, "--numbers": numbers, "--master": master}
    return [part for name, value in options.items() if value for part in (name, value)]


def _flags(explode: bool, matched_only: bool, shards: int | None) -> list[str]:
    flags = ["--explode"] if explode else []
    flags += ["--matched-only"] if matched_only else []
    return flags + (["--shards", str(shards)] if shards else [])


def _files(
    ontology: list[str] | None, relations: str, declarations: str | None, subscriptions: str | None
) -> list[str]:
    options = {"--relations": relations, "--declarations": declarations, "--subscriptions": subscriptions}
    found = [part for path in ontology or [] for part in ("--ontology", path)]
    return found + [part for name, value in options.items() if value for part in (name, value)]


@contextmanager
def _inputs(server: str | None, data: str | None, files: list[str], *, refresh: bool = False) -> Iterator[list[str]]:
    """The options that say what to match by. What a server has is fetched into a folder, with `refresh` again and
    again."""
    if sum((server is not None, data is not None, bool(files))) != 1:
        raise CommandFailed(
            "say what to match by, in one way.",
            "Use --server URL, or --data DIR, or --ontology FILE with --subscriptions FILE.",
        )
    if files:
        yield files
        return
    with tempfile.TemporaryDirectory(prefix="kindcast-") as name:
        folder = Path(name) / "inputs"
        _read(server, data, folder)
        ended = threading.Event()
        again = threading.Thread(target=_read_again, args=(server, data, folder, ended), daemon=True)
        if refresh:
            again.start()
        try:
            yield ["--inputs", str(folder)]
        finally:
            ended.set()
            if refresh:
                again.join()


def _read(server: str | None, data: str | None, folder: Path) -> None:
    if server is None:
        read_inputs(Path(data or ""), folder)
        return
    with connected(server) as client:
        fetch_inputs(client, folder)


def _read_again(server: str | None, data: str | None, folder: Path, ended: threading.Event) -> None:
    while not ended.wait(REFRESH_SECONDS):
        try:
            _read(server, data, folder)
        except (CommandFailed, ProblemError, httpx.HTTPError, OSError) as error:
            output.warn(f"the subscriptions stay as they are: {error}")


def _show(result: dict[str, Any], json: bool) -> None:
    if json:
        output.print_json(result)
        return
    for refused in result.pop("refused", []):
        output.warn(f"{refused['subscription']} was left out: {refused['reason']}")
    days = result.pop("days", None)
    if days:
        result["days"] = f"{days[0]} to {days[-1]} ({len(days)})" if len(days) > 1 else days[0]
    output.table(["", ""], ([name.replace("_", " "), _told(value)] for name, value in result.items()))


def _told(value: Any) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    return ", ".join(f"{name} {_told(each)}" for name, each in value.items()) if isinstance(value, dict) else str(value)
