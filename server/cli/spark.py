"""The commands `kindcast spark`: match archives and streams as Spark jobs, with the inputs of a server or of files.

`spark stream --deliver` sends the matches of a stream to a server, from an outbox beside the stream.
"""

import fcntl
import filecmp
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from kindcast.server.cli import output
from kindcast.server.cli.completion import ontology_files
from kindcast.server.cli.connection import JsonOption, connected, credentials
from kindcast.server.cli.documents import Reasoning, ReasonOption, file_at, ontology_path
from kindcast.server.cli.output import CommandFailed, group, page
from kindcast.server.client import ProblemError, UnexpectedAnswer

if TYPE_CHECKING:
    from kindcast.server.client import Client

__all__ = [
    "Outbox",
    "run_job",
]

LOOKED_EVERY = 0.5
TRIED_AGAIN_AFTER = (0.5, 1.0, 2.0, 5.0)
"""The pauses between attempts in seconds. The last one is repeated."""
GIVEN_UP_AFTER = 10.0
"""After the stream has ended, delivery is given up if the server accepted nothing for this time."""
NEVER_TAKEN = (400, 413, 422)
"""Status codes that would be the same if the match were sent again."""

EVENTS_SENT = 500
MATCHES_SENT = 20_000
BYTES_SENT = 1 << 20
"""The maximum size of one request, unless one line has more."""

REFUSED = "_refused"


class _Line(msgspec.Struct):
    """The part of a line that is needed for counting."""

    subscriptions: list[str] = []


_COUNTED = msgspec.json.Decoder(_Line)


@dataclass(slots=True)
class Delivered:
    """The counts of what the server accepted. `events` and `matches` are new there; `repeated` matches existed before;
    `unmatched` matches have a subscription that does not exist, is paused or has expired; `refused` lines are in
    `_refused` of their batch."""

    events: int = 0
    matches: int = 0
    repeated: int = 0
    unmatched: int = 0
    refused: int = 0


@dataclass(slots=True)
class _InHand:
    """A file that is being delivered, and how many of its lines the server has accepted or refused."""

    path: Path
    lines: int = 0
    refused: list[bytes] = field(default_factory=list)


class Outbox:
    """Delivers the batches of a stream's output in order, in a thread beside the stream."""

    def __init__(self, folder: Path, server: str) -> None:
        self._folder, self._server = folder, server
        self._told = Delivered()
        self._ended = threading.Event()
        self._given_up = threading.Event()
        self._in_hand: _InHand | None = None
        self._progress = 0.0
        """When the server last accepted something."""
        self._failure: Exception | None = None
        """Why the last try failed."""
        context = copy_context()  # it contains the key
        self._thread = threading.Thread(target=context.run, args=(self._run,), daemon=True)

    def __enter__(self) -> "Outbox":
        self._thread.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self._given_up.set()
        self._ended.set()
        self._thread.join()

    def rest(self) -> dict[str, Any]:
        """Delivers the remaining files and returns the counts. Raises CommandFailed if the server does not accept them;
        then the files are kept."""
        self._ended.set()
        self._thread.join()
        if left := len(self._files()):
            raise CommandFailed(
                f"{left:,} file{'s' if left > 1 else ''} of matches could not be delivered to {self._server}: "
                f"{self._failure}",
                "They are kept in _outbox folders of the output: run the command again to deliver them.",
            )
        return asdict(self._told)

    def _run(self) -> None:
        """Delivers until the stream has ended and everything is delivered, or until the server has accepted nothing for
        a while after the end."""
        failures, last = 0, 0.0
        while not self._given_up.is_set():
            ended = self._ended.is_set()
            last = last or (time.monotonic() if ended else 0.0)
            try:
                for path in self._files():
                    with connected(self._server) as client:
                        self._deliver(client, path)
                    failures = 0
                    if self._given_up.is_set():
                        return
                if ended:
                    return
                self._ended.wait(LOOKED_EVERY)
            except (CommandFailed, ProblemError, UnexpectedAnswer, OSError) as error:
                self._failure = error
                if ended and time.monotonic() - max(self._progress, last) > GIVEN_UP_AFTER:
                    return
                if failures == 0:
                    output.warn(f"matches wait in {self._folder}: {error}")
                time.sleep(TRIED_AGAIN_AFTER[min(failures, len(TRIED_AGAIN_AFTER) - 1)])
                failures += 1

    def _files(self) -> list[Path]:
        return sorted(self._folder.glob("batch=*/_outbox/*.ndjson"))

    def _deliver(self, client: "Client", path: Path) -> None:
        """Delivers one file, from where the last attempt ended. Raises `ProblemError`, and the errors that `connected`
        converts to CommandFailed."""
        if self._in_hand is None or self._in_hand.path != path:
            self._in_hand = _InHand(path)
        file = self._in_hand
        for lines in _requests(path, file.lines):
            file.refused += self._send(client, lines)
            file.lines += len(lines)
        if file.refused:
            place = path.parent.parent / REFUSED
            place.mkdir(exist_ok=True)
            with (place / path.name).open("wb") as kept:
                kept.writelines(file.refused)
                kept.flush()
                os.fsync(kept.fileno())
        path.unlink()
        if not any(path.parent.iterdir()):
            path.parent.rmdir()

    def _send(self, client: "Client", lines: list[bytes]) -> list[bytes]:
        """Sends one request. Returns the lines that the server refuses, with the reason. Raises `ProblemError`."""
        try:
            answer = client.deliver_matches(b"".join(lines))
        except ProblemError as error:
            if error.status not in NEVER_TAKEN:
                raise
            if len(lines) > 1:
                return [each for line in lines for each in self._send(client, [line])]
            self._told.refused += 1
            return [_refused(lines[0], error.detail)]
        self._progress = time.monotonic()
        self._told.events += answer["accepted"]
        self._told.matches += answer["matched"]
        self._told.repeated += answer["repeated"]
        self._told.unmatched += answer["unmatched"]
        self._told.refused += len(answer["rejected"])
        return [_refused(lines[each["index"]], each["problem"]["detail"]) for each in answer["rejected"]]


def _refused(line: bytes, reason: str) -> bytes:
    return msgspec.json.encode({"reason": reason, "match": msgspec.Raw(line.strip())}) + b"\n"


def _requests(path: Path, done: int) -> Iterator[list[bytes]]:
    """Yields the lines of a file after the first `done`, in parts of one request."""
    some: list[bytes] = []
    size = matches = 0
    with path.open("rb") as file:
        for line in islice(file, done, None):
            count = len(_COUNTED.decode(line).subscriptions) or 1
            over = len(some) >= EVENTS_SENT or matches + count > MATCHES_SENT or size + len(line) > BYTES_SENT
            if some and over:
                yield some
                some, size, matches = [], 0, 0
            some.append(line)
            size += len(line)
            matches += count
    if some:
        yield some


# Input files of Spark jobs, exported from a server: ontology records, declarations and subscriptions.
#
# --server URL   over HTTP, of a server that runs here or elsewhere
# --data DIR     from the data folder of one, which may run or not


def fetch_inputs(client: "Client", folder: Path) -> None:
    """Writes what is active on the server into `folder`. Raises `ProblemError`, and the errors of the client."""
    from kindcast.server.client.calls import path_of

    folder.mkdir(parents=True, exist_ok=True)
    names = [each["name"] for each in client.ontologies()["ontologies"] if each["active"]]
    for number, name in enumerate(sorted(names)):
        (folder / f"{number:03}.records").write_bytes(b"".join(client.download(path_of("ontologies", name, "records"))))
    declared = {kind: _bodies(client, kind) for kind in ("attributes", "schemas", "contexts", "aliases", "splits")}
    declared["code_systems"] = _bodies(client, "code-systems")
    declared["unions"] = _bodies(client, "relations")
    tables = _bodies(client, "synonyms").values()
    declared["synonyms"] = {word: root for table in tables for word, root in table.items()}
    declared["rates"] = _rates(client)
    reading = client.rules().get("reading", {})  # older servers do not have it
    declared["reading"] = {setting: value for setting, value in reading.items() if value == "plain"}
    (folder / "declarations.json").write_bytes(json.dumps(declared).encode())
    (folder / "subscriptions.ndjson").write_bytes(b"".join(client.download(path_of("subscriptions", "export"))))


def read_inputs(data: Path, folder: Path) -> None:
    """Writes what is active in a data folder into `folder`, as of one moment. Raises CommandFailed."""
    from sqlalchemy.exc import DBAPIError  # the libraries of a server: no other command needs them

    from kindcast.semantic.ontology import is_readable
    from kindcast.server.broker.vocabulary_commands import active_declarations
    from kindcast.server.errors import StoreUnreadable
    from kindcast.server.store import ontologies, subscriptions
    from kindcast.server.store.backup import reading

    database = data / "kindcast.db"
    if not database.is_file():
        raise CommandFailed(
            f"{data} has no database of a server (kindcast.db).",
            "Give the data folder of kindcast serve. If its database is PostgreSQL, use --server.",
        )
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with reading(database) as connection:
            for number, row in enumerate(ontologies.active_records(connection)):
                if row.records is None or not is_readable(row.records):
                    raise CommandFailed(
                        f"{data} was written by an older version.",
                        "Start the server with this folder once to upgrade it.",
                    )
                (folder / f"{number:03}.records").write_bytes(row.records)
            declared = active_declarations(connection).arguments()
            (folder / "declarations.json").write_bytes(json.dumps(declared, default=dict).encode())
            with subscriptions.all_trees(connection, live_only=True) as rows:
                (folder / "subscriptions.ndjson").write_bytes(b"".join(_lines(rows)))
    except (DBAPIError, StoreUnreadable) as error:
        why = error.orig if isinstance(error, DBAPIError) else error
        raise CommandFailed(
            f"{database} cannot be read: {why}.",
            "If an older version wrote it, start the server with this folder once. Otherwise see what kindcast check "
            f"--data {data} says.",
        ) from error


def _lines(rows: Iterable[Any]) -> Iterable[bytes]:
    for row in rows:
        if row.status != "paused":
            yield json.dumps({"id": row.id, "where": row.tree}, ensure_ascii=False).encode() + b"\n"


def _bodies(client: "Client", kind: str) -> dict[str, Any]:
    """Returns the declarations of a kind, by name."""
    return {each["name"]: each["declaration"] for each in client.declarations(kind)[kind]}


def _rates(client: "Client") -> Any:
    try:
        return client.declaration("rates")["declaration"]
    except ProblemError as error:
        if error.status == 404:
            return {}
        raise


# ── child jobs ────────────────────────────────────────────────────────────────────────────────────────────────────────
# Spark jobs in a child process: this module never imports `spark_jobs`, so it can report that Spark is missing. The
# progress lines of the job become a progress bar.

SHOWN = 2_000
"""The maximum number of characters of a failed job's output that are shown if the job gave no reason."""
WRONG_USE = 2
PASSED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

STAGES = {
    "compile": "compiling subscriptions",
    "start": "starting Spark",
    "number": "counting lines",
    "join": "joining shards",
    "terms": "adding up terms",
}


def run_job(arguments: Sequence[str]) -> dict[str, Any]:
    """Runs `python -m kindcast.spark_jobs …` and returns its result. Signals that end it are passed to the job, which
    is then waited for. Raises CommandFailed, and KeyboardInterrupt if an interrupted job has no result."""
    with tempfile.TemporaryFile() as errors:  # Java writes a lot; it is shown if the job gives no reason
        command = [sys.executable, "-m", "kindcast.spark_jobs", *arguments]
        children: list[subprocess.Popen[str]] = []
        with _signals_passed_to(children) as got:
            child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
            children.append(child)
            for number in got:  # before it was there
                child.send_signal(number)
            result, problem = _watched(child)
            status = child.wait()
        if result is None and got:
            raise KeyboardInterrupt
        if result is None:
            errors.seek(0)
            said = errors.read().decode("utf-8", "replace")
            if status == WRONG_USE:
                sys.stderr.write(said)
                raise SystemExit(WRONG_USE)
            raise CommandFailed(
                problem or f"the job ended without a result or an error message. Its last output:\n{said[-SHOWN:]}"
            )
    return result


@contextmanager
def _signals_passed_to(children: "Sequence[subprocess.Popen[str]]") -> Iterator[Sequence[int]]:
    """A context manager in which an interrupt, SIGTERM or SIGHUP goes to the children instead of this process:
    otherwise a job would go on alone. Its value has the signals so far. Only the main thread gets signals."""
    got: list[int] = []

    def interrupt(number: int, _: object) -> None:
        got.append(number)
        for child in children:
            child.send_signal(number)

    if threading.current_thread() is not threading.main_thread():
        yield got
        return
    heard = [number for number in PASSED if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, interrupt) for number in heard}
    try:
        yield got
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _watched(child: "subprocess.Popen[str]") -> tuple[dict[str, Any] | None, str]:
    """Returns the result and the problem that the job reports at its end. Updates the progress bar until then."""
    result: dict[str, Any] | None = None
    problem = ""
    assert child.stdout is not None
    with output.progress() as bar, child.stdout as lines:
        task = bar.add_task("starting", total=None)
        for line in lines:
            said = json.loads(line)
            if "note" in said:
                output.warn(said["note"])
            if "stage" in said:
                told = STAGES.get(said["stage"], said["stage"])
                bar.update(task, description=told, completed=said["done"], total=said["total"])
            result = said.get("result", result)
            problem = said.get("problem", problem)
    return result, problem


# ── spark ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

commands = group("spark", "Match archives and streams with Spark (pip install 'kindcast[spark]', Java 17 or newer).")

REFRESH_SECONDS = 5.0
"""How often a stream reads the active version from the server."""

Archive = Annotated[str, typer.Option("--archive", metavar="PATH", help="A file or folder: JSON lines, CSV, Parquet.")]
Output = Annotated[str, typer.Option("--output", metavar="DIR", help="The folder to write.")]
Server = Annotated[
    str | None, typer.Option("--server", metavar="URL", help="The server whose ontologies and subscriptions are used.")
]
Data = Annotated[
    str | None, typer.Option("--data", metavar="DIR", help="The data folder of a server, instead of --server.")
]
Ontology = Annotated[
    list[str] | None,
    typer.Option("--ontology", metavar="FILE", autocompletion=ontology_files, help="An ontology; may be repeated."),
]
Relations = Annotated[
    str, typer.Option("--relations", metavar="NAMES", help="Relations to keep as hierarchies, separated by commas.")
]
Declarations = Annotated[
    str | None,
    typer.Option(
        "--declarations",
        metavar="FILE",
        help="JSON: attributes, synonyms, rates, schemas, contexts, code_systems, aliases, splits, unions, reading.",
    ),
]
Subscriptions = Annotated[
    str | None,
    typer.Option("--subscriptions", metavar="FILE", help="NDJSON: an object with id and expression on each line."),
]
Master = Annotated[
    str | None, typer.Option("--master", metavar="MASTER", help="The Spark master.  [all cores of this machine]")
]
Time = Annotated[
    str | None,
    typer.Option("--time", metavar="NAME", help="The member of plain JSON or CSV that holds the time of the event."),
]
Numbers = Annotated[str, typer.Option("--numbers", metavar="NAMES", help="Columns of CSV that hold numbers.")]
Explode = Annotated[bool, typer.Option("--explode", help="One row per match instead of per event.")]
MatchedOnly = Annotated[bool, typer.Option("--matched-only", help="Write no rows for events without matches.")]
Distinct = Annotated[
    bool,
    typer.Option(
        "--distinct", help="Keep only the first of several events with the same source, id and declared revision."
    ),
]
Shards = Annotated[
    int | None,
    typer.Option(
        "--shards",
        min=1,
        metavar="COUNT",
        help="The number of parts that the subscriptions are split into.  [depends on how many there are]",
    ),
]


@commands.command(epilog=page("kindcast spark normalise --archive raw/ --output clean/ --ontology shop.ttl"))
def normalise(
    archive: Archive,
    output: Output,
    server: Server = None,
    data: Data = None,
    ontology: Ontology = None,
    relations: Relations = "",
    reason: ReasonOption = Reasoning.NONE,
    declarations: Declarations = None,
    time: Time = None,
    numbers: Numbers = "",
    master: Master = None,
    json: JsonOption = False,
) -> None:
    """Turn raw archives into canonical events; report what changed and why, and the unknown terms."""
    files = _files(ontology, relations, reason, declarations, None)
    with _inputs(server, data, files) as inputs:
        _show(run_job(["normalise", *inputs, *_given(archive, output, time, numbers, master)]), json, time)


@commands.command(
    epilog=page("kindcast spark match --archive events/ --output matches/ --server http://127.0.0.1:8080")
)
def match(
    archive: Archive,
    output: Output,
    server: Server = None,
    data: Data = None,
    ontology: Ontology = None,
    relations: Relations = "",
    reason: ReasonOption = Reasoning.NONE,
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
    """Match archives against all subscriptions; write Parquet by day. Run it again to continue, or after a change."""
    files = _files(ontology, relations, reason, declarations, subscriptions)
    with _inputs(server, data, files) as inputs:
        flags = [*_flags(explode, matched_only, shards), *(["--distinct"] if distinct else [])]
        _show(run_job(["match", *inputs, *flags, *_given(archive, output, time, numbers, master)]), json, time)


@commands.command(epilog=page("kindcast spark learn --archive events/ --output learned/ --data kindcast-data"))
def learn(
    archive: Archive,
    output: Output,
    server: Server = None,
    data: Data = None,
    ontology: Ontology = None,
    relations: Relations = "",
    reason: ReasonOption = Reasoning.NONE,
    declarations: Declarations = None,
    subscriptions: Subscriptions = None,
    time: Time = None,
    numbers: Numbers = "",
    master: Master = None,
    json: JsonOption = False,
) -> None:
    """Measure how often predicates hold, alone and together, which values occur, and how that changes day by day."""
    files = _files(ontology, relations, reason, declarations, subscriptions)
    with _inputs(server, data, files) as inputs:
        _show(run_job(["learn", *inputs, *_given(archive, output, time, numbers, master)]), json)


@commands.command(
    epilog=page("kindcast spark stream --archive incoming/ --output matches/ --server http://127.0.0.1:8080")
)
def stream(
    output: Output,
    archive: Annotated[
        str | None, typer.Option("--archive", metavar="DIR", help="The folder where files arrive.")
    ] = None,
    server: Server = None,
    data: Data = None,
    ontology: Ontology = None,
    relations: Relations = "",
    reason: ReasonOption = Reasoning.NONE,
    declarations: Declarations = None,
    subscriptions: Subscriptions = None,
    source: Annotated[
        str,
        typer.Option(
            "--source", metavar="NAME", help="Where events come from: files, socket, kafka, or another source of Spark."
        ),
    ] = "files",
    option: Annotated[
        list[str] | None,
        typer.Option("--option", metavar="NAME=VALUE", help="An option of the source, name=value; may be repeated."),
    ] = None,
    window: Annotated[
        str,
        typer.Option(
            metavar="TIME",
            help="How long a second event with the same source, id and declared revision is a repetition.",
        ),
    ] = "1 hour",
    every: Annotated[float, typer.Option(metavar="SECONDS", help="The time between two micro-batches.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Stop when all present data is matched.")] = False,
    explode: Explode = False,
    matched_only: MatchedOnly = False,
    deliver: Annotated[
        str | None,
        typer.Option(
            "--deliver",
            metavar="URL",
            help="The server that delivers the matches, by webhook, stream and pull: often that of --server.",
        ),
    ] = None,
    shards: Shards = None,
    time: Time = None,
    numbers: Numbers = "",
    master: Master = None,
    json: JsonOption = False,
) -> None:
    """Match a stream against all subscriptions until interrupted. Changes on the server take effect with the next
    micro-batch. With --deliver the matches go into the queues of a server, each once."""
    files = _files(ontology, relations, reason, declarations, subscriptions)
    options = [part for each in option or [] for part in ("--option", each)]
    with _inputs(server, data, files, refresh=True) as inputs:
        told = ["--source", source, "--window", window, "--every", str(every), *options, *(["--once"] if once else [])]
        flags = [*_flags(explode, matched_only, shards), *(["--outbox"] if deliver else [])]
        job = ["stream", *inputs, *told, *flags, *_given(archive, output, time, numbers, master)]
        if deliver is None:
            _show(run_job(job), json)
            return
        with Outbox(Path(output), deliver) as outbox:
            result = run_job(job)
            _show(result | {"delivered": outbox.rest()}, json)


def _given(archive: str | None, output: str, time: str | None, numbers: str, master: str | None) -> list[str]:
    options = {"--archive": archive, "--output": output, "--time": time, "--numbers": numbers, "--master": master}
    return [part for name, value in options.items() if value for part in (name, value)]


def _flags(explode: bool, matched_only: bool, shards: int | None) -> list[str]:
    flags = ["--explode"] if explode else []
    flags += ["--matched-only"] if matched_only else []
    return flags + (["--shards", str(shards)] if shards else [])


def _files(
    ontology: list[str] | None,
    relations: str,
    reason: Reasoning,
    declarations: str | None,
    subscriptions: str | None,
) -> list[str]:
    options = {"--relations": relations, "--declarations": declarations, "--subscriptions": subscriptions}
    options["--reason"] = reason.value if reason is not Reasoning.NONE else None
    for path in (declarations, subscriptions):
        if path is not None:
            file_at(path, "Give the path of a file on this machine.")
    found = [part for path in ontology or [] for part in ("--ontology", ontology_path(path))]
    return found + [part for name, value in options.items() if value for part in (name, value)]


@contextmanager
def _inputs(server: str | None, data: str | None, files: list[str], *, refresh: bool = False) -> Iterator[list[str]]:
    """A context manager with the options for the inputs of a job. The inputs of a server are fetched into a folder,
    with `refresh` repeatedly."""
    if sum((server is not None, data is not None, bool(files))) != 1:
        raise CommandFailed(
            "name the ontologies and subscriptions in exactly one way.",
            "Use --server URL, or --data DIR, or --ontology FILE with --subscriptions FILE.",
        )
    if files:
        yield files
        return
    with tempfile.TemporaryDirectory(prefix="kindcast-") as name:
        folder = Path(name) / "inputs"
        _read(server, data, folder)
        ended = threading.Event()
        context = copy_context()  # it contains the key
        again = threading.Thread(target=context.run, args=(_read_again, server, data, folder, ended), daemon=True)
        if refresh:
            again.start()
        try:
            yield ["--inputs", str(folder)]
        finally:
            ended.set()
            if refresh:
                again.join()


def _read(server: str | None, data: str | None, folder: Path) -> None:
    """Makes the inputs in `folder` those that are active now."""
    with tempfile.TemporaryDirectory(dir=folder.parent) as name:
        if server is None:
            read_inputs(_of_tenant(Path(data or "")), Path(name))
        else:
            with connected(server) as client:
                fetch_inputs(client, Path(name))
        _put_in_place(Path(name), folder)


def _of_tenant(data: Path) -> Path:
    """Returns the folder of the tenant in `--tenant`, in the data folder of a server or that folder itself."""
    from kindcast.server.security.keys import DEFAULT_TENANT

    tenant = credentials()["tenant"]
    if tenant in (None, "", DEFAULT_TENANT) or data.absolute().parts[-2:] == ("tenants", tenant):
        return data
    return data / "tenants" / str(tenant)


def _put_in_place(fetched: Path, folder: Path) -> None:
    """Moves the fetched files into `folder`, and removes the files of deleted ontologies. The job locks the same file
    while it reads. Files without a change stay, because a stream compiles anew if their times change."""
    folder.mkdir(exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for path in folder.iterdir():
            if not (fetched / path.name).exists():
                path.unlink()
        for path in fetched.iterdir():
            place = folder / path.name
            if not (place.exists() and filecmp.cmp(path, place, shallow=False)):
                path.replace(place)


def _read_again(server: str | None, data: str | None, folder: Path, ended: threading.Event) -> None:
    import httpx

    while not ended.wait(REFRESH_SECONDS):
        try:
            _read(server, data, folder)
        except (CommandFailed, ProblemError, UnexpectedAnswer, httpx.HTTPError, OSError) as error:
            output.warn(f"the subscriptions stay as they are: {error}")


def _show(result: dict[str, Any], json: bool, time: str | None = None) -> None:
    """Shows the result of a job. `time` is the member that should have the time of an event. Raises CommandFailed if
    something was left out, because a scheduler reads only the exit status."""
    if time is not None and result.get("events", 0) and result.get("days") == ["unknown"]:
        outer = " --time names a member of the event itself, not one inside an object." if "." in time else ""
        output.warn(f"no event has a time in {time}: the day of all events is unknown.{outer}")
    if json:
        output.print_json(result)
    else:
        _show_table(dict(result))
    if result.get("subscriptions") == 0 and not result.get("refused"):
        output.warn("there are no subscriptions, so no event matches.")
    if left_out := [each["subscription"] for each in result.get("refused", [])]:
        raise CommandFailed(
            f"not all subscriptions were used: {output.plural(len(left_out), 'subscription')} left out."
        )
    if result.get("events", 0):
        return
    if quarantined := result.get("quarantined", 0):
        raise CommandFailed(f"no event could be read: {quarantined:,} lines are in _quarantine of the output.")
    if unreadable := result.get("unreadable", 0):
        raise CommandFailed(f"no event could be read: {unreadable:,} lines are not events.")


def _show_table(result: dict[str, Any]) -> None:
    for refused in result.pop("refused", []):
        output.warn(f"{refused['subscription']} was left out: {refused['reason']}")
    days = result.get("days")
    if days == []:
        del result["days"]
    elif isinstance(days, list):
        known = [day for day in days if day != "unknown"]
        told = [f"{known[0]} to {known[-1]} ({len(known)})"] if len(known) > 1 else known
        result["days"] = ", ".join(told + days[len(known) :])
    output.table(["", ""], ([name.replace("_", " "), _told(value)] for name, value in result.items()))


def _told(value: Any) -> str:
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, dict):
        return ", ".join(f"{name} {_told(each)}" for name, each in value.items())
    return "none" if value is None else str(value)
