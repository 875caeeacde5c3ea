"""Input and output of the commands: files (also gzip) of ontologies, events and lines of JSON; standard input; JSON on
the command line."""

import gzip
import itertools
import json
import os
import sys
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from enum import Enum
from io import TextIOWrapper
from pathlib import Path
from stat import S_IMODE
from typing import IO, Annotated, Any, cast

import typer

from kindcast.semantic.shipped_vocabularies import shipped, shipped_names
from kindcast.server.cli import output
from kindcast.server.cli.output import CommandFailed

__all__ = [
    "Line",
    "OutputOption",
    "RelationsOption",
    "csv_file",
    "event_lines",
    "file_at",
    "json_file",
    "listed",
    "one_event",
    "ontology_path",
    "open_for_owner",
    "opened",
    "read_ontology",
    "tell_written",
    "text_lines",
    "writable",
    "write_lines",
]

GZIP = b"\x1f"
"""The first byte of a gzip file, with which no text begins. The name of the file does not matter."""
TEXT = "utf-8-sig"
"""The encoding of texts that are read. Some editors begin a file with a byte order mark, which is no part of it."""
MAX_CHARACTERS = 128 << 20
"""The maximum length of one event, or of a document that is read as a whole, after unpacking. A small gzip file may
contain far more than fits into memory. No server accepts such a large request."""


RelationsOption = Annotated[
    str,
    typer.Option(
        "--relations",
        metavar="NAMES",
        help=(
            "Relations that subscriptions may follow, separated by commas: part_of,hasPoint; transitive for all "
            "transitive relations."
        ),
    ),
]


class Reasoning(Enum):
    """The reasoning that is applied to a document."""

    NONE = "none"
    RDFS = "rdfs"
    OWL = "owl"


ReasonOption = Annotated[
    Reasoning,
    typer.Option(
        "--reason", help="What to infer: nothing, what RDFS entails, or what an OWL 2 reasoner finds (needs Java)."
    ),
]
OutputOption = Annotated[
    Path | None,
    typer.Option(
        "--output", metavar="FILE", help="The file to write; compressed if its name ends with .gz.  [standard output]"
    ),
]


NO_EVENTS = (
    "Give a JSON object, an array of them, or one on each line (NDJSON). Tables (CSV, Parquet) are matched with "
    "kindcast spark match --archive FILE."
)


@dataclass(frozen=True, slots=True)
class Line:
    """One event of the input. `number` is its line, or its place in an array, from 1. `problem` says why it is no
    event."""

    number: int
    event: dict[str, Any] | None
    problem: str = ""


def read_ontology(name: str) -> Path:
    """Returns the file of an ontology. A name without a folder that is no file here means a shipped vocabulary:
    `shop.ttl`."""
    path = Path(name)
    known = path.parent == Path() and (name in shipped_names() or f"{name}.ttl" in shipped_names())
    if path.is_file() or not known:
        return file_at(name, f"Vocabularies shipped with kindcast, loaded by name: {', '.join(shipped_names())}")
    found = shipped(name)
    output.hint(f"{name}: the vocabulary shipped with kindcast")
    return found


def file_at(source: str, hint: str) -> Path:
    """Returns the path of a file to read, which may also be a pipe. Raises CommandFailed, with `hint` as the advice, if
    there is none."""
    path = Path(source)
    if not source:
        raise CommandFailed("the name of the file is empty.", hint)
    if path.is_dir():
        raise CommandFailed(f"{source} is a folder and not a file.", hint)
    if not path.exists():
        raise CommandFailed(f"there is no file {source}.", hint)
    return path


def ontology_path(name: str) -> str:
    """Returns the path of an ontology that a job opens. URLs of other file systems do not change."""
    return name if "://" in name else str(read_ontology(name))


def listed(names: str) -> list[str]:
    """Returns the names in a comma-separated text."""
    return [name for name in (each.strip() for each in names.split(",")) if name]


def event_lines(source: str) -> Iterator[Line]:
    """Yields the events of `source`: a file, `-` for standard input, or JSON text. An object is one event. An array has
    several, and so have lines of objects (NDJSON). Lines are read as they arrive, so a pipe may stay open.

    Raises CommandFailed when there is no such file.
    """
    if source.lstrip().startswith(("{", "[")):
        source.encode()  # `main` names the argument if it is no text
        return _parsed(iter(source.splitlines(keepends=True)))
    if source == "-":
        return _parsed(_standard_input())
    return _parsed(_file_lines(file_at(source, "Give a file, - for standard input, or JSON: '{\"price\": 350}'")))


def lines_of_all(sources: Sequence[str]) -> Iterator[Line]:
    """Yields the events of several sources. The numbers go on from one to the next."""
    before = 0
    for source in sources:
        last = before
        for line in event_lines(source):
            last = before + line.number
            yield replace(line, number=last)
        before = last


def text_lines(source: str) -> Iterator[str]:
    """Returns the lines of a file, or with `-` of standard input, plain or gzip, as they arrive. Raises
    CommandFailed."""
    return _standard_input() if source == "-" else _file_lines(file_at(source, "Give a file, or - for standard input."))


def one_event(sources: Sequence[str]) -> dict[str, Any]:
    """Returns the only event of `sources`. Raises CommandFailed if there is none, more than one, or something else."""
    lines = list(lines_of_all(sources))
    if len(lines) != 1:
        raise CommandFailed(f"one event was expected, but {len(lines)} were given.")
    return valid(lines[0])


def json_file(source: str) -> dict[str, Any]:
    """Returns the JSON object in a file or in the text itself. Raises CommandFailed if there is none."""
    if not source.lstrip().startswith("{"):
        source = _text(source, "Give a file or a JSON object.")
    try:
        value = _json(source)
    except ValueError as error:
        raise CommandFailed(str(error)) from error
    if not isinstance(value, dict):
        raise CommandFailed("expected a JSON object.")
    return value


@contextmanager
def opened(path: Path) -> Iterator[IO[str]]:
    """A context manager with the text of a file, plain or gzip. Raises CommandFailed if it is damaged or not UTF-8
    text, also while it is read."""
    with _readable(str(path)), path.open("rb") as raw:  # once: the path may be that of a pipe
        yield _text_of(raw)


def _text_of(raw: Any) -> TextIOWrapper:
    return TextIOWrapper(gzip.GzipFile(fileobj=raw) if raw.peek(1)[:1] == GZIP else raw, TEXT)


@contextmanager
def _readable(name: str) -> Iterator[None]:
    try:
        yield
    except UnicodeDecodeError as error:
        raise CommandFailed(f"{name} is not UTF-8 text: {error}") from error
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise CommandFailed(f"{name} is a damaged gzip file: {error}") from error
    except OSError as error:
        raise CommandFailed(f"{name} cannot be read: {error.strerror or error}") from error


def csv_file(source: str) -> bytes:
    """Returns a table in the form that the server accepts. Raises CommandFailed if there is no such file."""
    return _text(source, "Give a CSV file, or a JSON file or object.").encode()


def _text(source: str, hint: str) -> str:
    with opened(file_at(source, hint)) as file:
        text = file.read(MAX_CHARACTERS + 1)
    if len(text) > MAX_CHARACTERS:
        raise CommandFailed(f"{source} has more than {MAX_CHARACTERS:,} characters.")
    return text


def valid(line: Line) -> dict[str, Any]:
    """Returns the event of `line`. Raises CommandFailed if there is none."""
    if line.event is None:
        raise CommandFailed(f"line {line.number}: {line.problem}")
    return line.event


def _file_lines(path: Path) -> Iterator[str]:
    with opened(path) as file:
        yield from _lines(file)


def _standard_input() -> Iterator[str]:
    """Yields the lines of standard input, plain or gzip, as soon as they arrive."""
    if sys.stdin is None:
        raise CommandFailed("there is no standard input: it is closed.", "Give the name of a file.")
    with _readable("standard input"):
        file = _text_of(sys.stdin.buffer)
        try:
            yield from _lines(file)
        finally:
            file.detach()  # otherwise it would close standard input


def _lines(file: IO[str]) -> Iterator[str]:
    """Yields the lines of a file. Raises CommandFailed for a line that is too long."""
    while line := file.readline(MAX_CHARACTERS + 1):
        if len(line) > MAX_CHARACTERS:
            raise CommandFailed(
                f"one line has more than {MAX_CHARACTERS:,} characters.", "Write one event on each line (NDJSON)."
            )
        yield line


def _parsed(lines: Iterator[str]) -> Iterator[Line]:
    """Yields the events of lines if the first line is complete JSON; otherwise reads everything as one document."""
    numbered = ((number, text) for number, text in enumerate(lines, 1) if text.strip())
    number, first = next(numbered, (0, ""))
    if not first:
        return
    try:
        begun = isinstance(_json(first), dict)
    except ValueError:
        begun = False
    if not begun:
        yield from _document("".join(_bounded(first, (text for _, text in numbered))))
        return
    yield _line(number, first)
    for number, text in numbered:
        yield _line(number, text)


def _bounded(first: str, rest: Iterator[str]) -> Iterator[str]:
    size = len(first)
    yield first
    for text in rest:
        size += len(text)
        if size > MAX_CHARACTERS:
            raise CommandFailed(
                f"the document has more than {MAX_CHARACTERS:,} characters.",
                "Write one event on each line (NDJSON): lines are read one after the other.",
            )
        yield text


def _document(text: str) -> Iterator[Line]:
    """Yields the events of an object or an array in any number of lines. If it is neither, the text is treated as
    lines, of which the first is bad. Raises CommandFailed if all of several lines are bad."""
    try:
        value = _json(text)
    except ValueError as error:
        lines = [_line(number, each) for number, each in enumerate(text.splitlines(), 1)]
        if len(lines) > 1 and all(line.event is None for line in lines):
            raise CommandFailed(f"{error}. None of the lines is an event either.", NO_EVENTS) from error
        yield from lines
        return
    for number, item in enumerate(value if isinstance(value, list) else [value], 1):
        yield _item(number, item)


def _line(number: int, text: str) -> Line:
    try:
        return _item(number, _json(text))
    except ValueError as error:
        return Line(number, None, str(error))


def _item(number: int, value: Any) -> Line:
    return Line(number, value) if isinstance(value, dict) else Line(number, None, "an event is a JSON object")


def _json(text: str) -> Any:
    """Parses strict JSON. Raises ValueError with the place, also for NaN and Infinity, and without the place for half
    of a surrogate pair, which Python would accept."""
    try:
        value = json.loads(text, parse_constant=_refuse)
        if "\\ud" in text or "\\uD" in text:
            json.dumps(value, ensure_ascii=False).encode()
        return value
    except json.JSONDecodeError as error:
        said = error.msg.removesuffix(" at")
        raise ValueError(f"not JSON: {said} at line {error.lineno}, column {error.colno}") from error
    except UnicodeEncodeError as error:
        raise ValueError("not JSON: half of a surrogate pair is no character") from error
    except RecursionError as error:
        raise ValueError("not JSON: it is nested too deeply") from error


def _refuse(constant: str) -> None:
    raise ValueError(f"not JSON: {constant} is not a JSON number")


# ── output ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def write_lines(to: Path | None, lines: Iterator[str], *, private: bool = False) -> int:
    """Writes the lines and returns their number. The first line is read before the file is opened, so that a failed
    request overwrites nothing."""
    first = list(itertools.islice(lines, 1))
    count = 0
    with _target(to, private) as file:
        for line in itertools.chain(first, lines):
            file.write(line + "\n")
            count += 1
    return count


@contextmanager
def _target(to: Path | None, private: bool) -> Iterator[IO[str]]:
    """A context manager with the file `to`, or with standard output. Only the owner may read a private file."""
    if to is None or _is_standard_output(to):
        with writable("standard output"):
            yield sys.stdout
            sys.stdout.flush()
        return
    if not to.name:
        raise CommandFailed("--output is not a file: write its name, or leave --output out for standard output")
    with writable(to), _place(to, private) as raw:
        packed = cast("IO[bytes]", gzip.GzipFile("", "wb", fileobj=raw)) if to.suffix == ".gz" else raw
        with TextIOWrapper(packed, encoding="utf-8") as file:
            yield file


def _is_standard_output(to: Path) -> bool:
    """Returns whether `to` is another name of standard output: /dev/stdout. If it were opened again, a file to which
    the shell appends would lose its content."""
    try:
        return os.path.samestat(to.stat(), os.fstat(1))
    except OSError:
        return False


@contextmanager
def writable(to: Path | str) -> Iterator[None]:
    """A context manager that raises CommandFailed, with the name `to`, if a file cannot be written."""
    try:
        yield
    except (ConnectionError, TimeoutError):  # not of the file: its reader needs no more, or a server does not answer
        raise
    except OSError as error:
        raise CommandFailed(f"{to} cannot be written: {error.strerror or error}") from error


@contextmanager
def _place(to: Path, private: bool) -> Iterator[IO[bytes]]:
    """A context manager with a file that gets the name `to` when it is complete. A device or a pipe is written to
    directly: its readers would not see another file."""
    if to.exists() and not to.is_file():  # a folder too: it cannot be opened
        with to.open("wb") as raw:
            yield raw
        return
    place = Path(os.path.realpath(to))  # a symbolic link stays
    beside = place.with_name(place.name + ".part")
    beside.unlink(missing_ok=True)
    try:
        with open(beside, "xb", opener=open_for_owner if private else None) as raw:
            if place.exists():
                _make_like(raw.fileno(), place, private)
            yield raw
        beside.replace(place)
    finally:
        beside.unlink(missing_ok=True)


def open_for_owner(name: str, flags: int) -> int:
    """Opens a file, as `opener` of `open`. If it is created, only its owner may read it."""
    return os.open(name, flags, 0o600)


def _make_like(file: int, other: Path, private: bool) -> None:
    """Gives an open file the owner of another file, if this user may, and its mode unless the file is private."""
    there = other.stat()
    with suppress(OSError):
        os.chown(file, there.st_uid, there.st_gid)
    if not private:
        os.chmod(file, S_IMODE(there.st_mode))


def tell_written(count: int, noun: str, to: Path | None, json: bool) -> None:
    """Reports the result, on standard error if the lines went to standard output."""
    if json and to is not None:
        output.print_json({"written": count, "file": str(to)})
    else:
        output.hint(f"wrote {output.plural(count, noun)}{f' to {to}' if to else ''}")
