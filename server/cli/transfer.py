"""The commands `kindcast archive export` and `kindcast subscriptions export|import`, as JSON lines (NDJSON).

server ──pages, or a stream──▶ lines ──▶ FILE, FILE.gz or standard output
FILE, FILE.gz or standard input ──▶ requests of some thousand lines ──▶ server
"""

import gzip
import itertools
import json as json_text
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any, cast

import typer

from kindcast.server.cli import output
from kindcast.server.cli.connection import DEFAULT_SERVER, JsonOption, ServerOption, connected
from kindcast.server.cli.documents import text_lines
from kindcast.server.cli.output import CommandFailed, group, page
from kindcast.server.cli.subscriptions import commands as of_subscriptions

if TYPE_CHECKING:
    from kindcast.server.client import Client

__all__ = ["archive"]

archive = group("archive", "The stored events of a server as an archive, for Spark and other programs.")

PAGE = 1_000
LINES, CHARACTERS = 5_000, 4 << 20
"""The maximum size of one request of an import: below the default limits of a server."""
REQUESTS = 2
"""Requests of an import at the same time: the server reads the lines of one while it stores those of the other."""
SECONDS = 300.0

OutputOption = Annotated[
    Path | None,
    typer.Option(
        "--output", metavar="FILE", help="The file to write; compressed if its name ends with .gz.  [standard output]"
    ),
]


@archive.command(
    "export",
    epilog=page(
        "kindcast archive export --output events.ndjson.gz",
        "kindcast archive export --after 1000 --type offer > offers.ndjson",
    ),
)
def export_events(
    to: OutputOption = None,
    after: Annotated[str, typer.Option(metavar="EVENT", help="Start after the event with this number.")] = "0",
    type: Annotated[str | None, typer.Option(metavar="TYPE", help="Only those of this CloudEvents type.")] = None,
    server: ServerOption = DEFAULT_SERVER,
    json: JsonOption = False,
) -> None:
    """Write the events that the server still stores, oldest first, one CloudEvent per line. kindcast spark reads such
    files, and kindcast publish accepts them."""
    with connected(server) as client, output.progress() as bar:
        task = bar.add_task("events", total=None)

        def lines() -> Iterator[str]:
            at = after
            while (found := client.events(after=at, type=type, limit=PAGE))["events"]:
                for each in found["events"]:
                    yield json_text.dumps(each["event"], ensure_ascii=False)
                at = str(found["cursor"])
                bar.advance(task, len(found["events"]))

        count = _write(to, lines())
    _tell(count, "event", to, json)


@of_subscriptions.command(
    "export",
    epilog=page(
        "kindcast subscriptions export --output wishes.ndjson",
        "kindcast subscriptions export | kindcast subscriptions import - --server http://127.0.0.1:9000",
    ),
)
def export_subscriptions(
    to: OutputOption = None,
    secrets: Annotated[
        bool,
        typer.Option(
            "--secrets", help="With webhook secrets, credentials and hashes of tickets; needs an administrator's key."
        ),
    ] = False,
    server: ServerOption = DEFAULT_SERVER,
    json: JsonOption = False,
) -> None:
    """Write all subscriptions in a form that can be imported, one per line. Secrets, credentials and tickets are left
    out unless --secrets is given: then ids and tickets stay valid after the import."""
    with connected(server) as client:
        answer = client.download("/v1/subscriptions/export", method="POST" if secrets else "GET")
        count = _write(to, _lines(answer), private=secrets)
    _tell(count, "subscription", to, json)


@of_subscriptions.command(
    "import",
    epilog=page(
        "kindcast subscriptions import wishes.ndjson --tickets tickets.ndjson",
        statuses="0 if every line became a subscription, 1 if a line was refused (the others are still imported).",
    ),
)
def import_subscriptions(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Lines of JSON (also gzip); - is standard input.")],
    tickets: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The file for the tickets, as lines of JSON; by default they are printed."),
    ] = None,
    server: ServerOption = DEFAULT_SERVER,
    json: JsonOption = False,
) -> None:
    """Create a subscription from each line, with a new id and ticket, unless the line has those of an export with
    --secrets. A line has the form of subscriptions export or of POST /v1/subscriptions. A line that is refused does not
    stop the others."""
    made = refused = 0
    with connected(server) as client, _kept(tickets) as kept, output.progress() as bar:
        task = bar.add_task("subscriptions", total=None, visible=kept is not None)
        for start, answer in _answers(client, file):
            for each in answer["created"]:
                made += 1
                told = {
                    name: each[name] for name in ("line", "was", "id", "ticket", "secret") if each.get(name) is not None
                }
                told["line"] += start
                if kept is not None:
                    kept.write(json_text.dumps(told, ensure_ascii=False) + "\n")
                elif json:
                    output.print_json(told)
                else:
                    output.paragraph(f"{told.get('was', '')}  {told['id']}  {told.get('ticket', '')}".strip())
            for each in answer["rejected"]:
                refused += 1
                problem = each["problem"]
                detail = problem.get("detail") or problem.get("title")
                output.show(CommandFailed(f"line {each['line'] + start}: {detail}"))
            bar.update(task, completed=made)
    if kept is not None or not json:
        output.hint(f"made {_plural(made, 'subscription')}")
    if refused:
        raise CommandFailed(f"{_plural(refused, 'line')} of {file} {'was' if refused == 1 else 'were'} refused.")
    if not made:
        raise CommandFailed(f"there is no subscription in {file}.")


def _answers(client: "Client", file: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Sends the lines of a file, and yields the answers in order, each with the number of lines before its request. If
    a request fails, no other is sent. The error is raised after the answers to those that were sent, because they have
    tickets."""
    requests = _requests(text_lines(file))
    sent: deque[tuple[int, Future[dict[str, Any]]]] = deque()
    failure: Exception | None = None
    with ThreadPoolExecutor(REQUESTS) as pool:
        while True:
            try:
                while failure is None and len(sent) < REQUESTS and (request := next(requests, None)) is not None:
                    sent.append((request[0], pool.submit(_send, client, request[1])))
                if not sent:
                    break
                start, answer = sent.popleft()
                told = answer.result()
            except Exception as error:
                failure = failure or error
            else:
                yield start, told
    if failure is not None:
        raise failure


def _send(client: "Client", lines: list[str]) -> dict[str, Any]:
    from kindcast.server.client.calls import Call, path_of

    return client.send(
        Call(
            method="POST",
            path=path_of("subscriptions", "import"),
            read=dict,
            headers={"Content-Type": "application/x-ndjson"},
            content="".join(lines).encode(),
            timeout=SECONDS,
        )
    )


def _requests(lines: Iterator[str]) -> Iterator[tuple[int, list[str]]]:
    """Yields the lines of each request, and the number of lines before them."""
    before, batch, size = 0, list[str](), 0
    for line in lines:
        if batch and (len(batch) == LINES or size + len(line) > CHARACTERS):
            yield before, batch
            before, batch, size = before + len(batch), [], 0
        batch.append(line if line.endswith("\n") else line + "\n")
        size += len(line)
    if batch:
        yield before, batch


def _lines(chunks: Iterable[bytes]) -> Iterator[str]:
    """Yields the lines of a text that arrives in chunks."""
    rest = b""
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        yield from (line.decode() for line in whole if line)
    if rest:
        yield rest.decode()


def _write(to: Path | None, lines: Iterator[str], *, private: bool = False) -> int:
    """Writes the lines and returns their number. The first line is read before the file is opened, so that a failed
    request overwrites nothing."""
    first = list(itertools.islice(lines, 1))
    count = 0
    with _opened(to, private) as file:
        for line in itertools.chain(first, lines):
            file.write(line + "\n")
            count += 1
    return count


@contextmanager
def _opened(to: Path | None, private: bool) -> Iterator[IO[str]]:
    """A context manager with a file that gets its name when it is complete, or with standard output. Only the owner may
    read a private file."""
    if to is None:
        yield sys.stdout
        return
    if not to.name:
        raise CommandFailed("--output is not a file: write its name, or leave --output out for standard output")
    beside = to.with_name(to.name + ".part")
    try:
        if private:
            beside.touch(mode=0o600)
        with beside.open("wb") as raw:
            packed = cast("IO[bytes]", gzip.GzipFile("", "wb", fileobj=raw)) if to.suffix == ".gz" else raw
            with TextIOWrapper(packed, encoding="utf-8") as file:
                yield file
        beside.replace(to)
    finally:
        beside.unlink(missing_ok=True)


@contextmanager
def _kept(tickets: Path | None) -> Iterator[IO[str] | None]:
    """A context manager with the file of the tickets, which only its owner may read. It is created before anything is
    sent."""
    if tickets is None:
        yield None
        return
    tickets.touch(mode=0o600)
    with tickets.open("a", encoding="utf-8", buffering=1) as file:
        yield file


def _tell(count: int, noun: str, to: Path | None, json: bool) -> None:
    """Reports the result, on standard error if the lines went to standard output."""
    if json and to is not None:
        output.print_json({"written": count, "file": str(to)})
    else:
        output.hint(f"wrote {_plural(count, noun)}{f' to {to}' if to else ''}")


def _plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
