"""What commands read: ontologies and events from files, from standard input, or given as JSON on the command line."""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from semantic.shipped_vocabularies import shipped, shipped_names
from server.cli import output
from server.cli.problems import CommandFailed

__all__ = ["Line", "event_lines", "one_event", "read_ontology"]


@dataclass(frozen=True, slots=True)
class Line:
    """One event as it was found: `number` is its line, or its place in an array, from 1. `problem`: why it is none."""

    number: int
    event: dict[str, Any] | None
    problem: str = ""


def read_ontology(name: str) -> Path:
    """The file of an ontology. A bare name that is no file here means one that is shipped: `shop.ttl`."""
    path = Path(name)
    if path.is_file():
        return path
    if path.parent == Path() and (name in shipped_names() or f"{name}.ttl" in shipped_names()):
        found = shipped(name)
        output.hint(f"{name}: the vocabulary that is shipped with kindcast")
        return found
    raise CommandFailed(
        f"there is no file {name}.", f"Shipped with kindcast, and loaded by name: {', '.join(shipped_names())}"
    )


def event_lines(source: str) -> Iterator[Line]:
    """The events of `source`: a file, `-` for standard input, or JSON as it is. An object is one event, an array holds
    several, and so do lines of objects (NDJSON); lines are read as they come, so a pipe may stay open.

    Raises CommandFailed when there is no such file.
    """
    if source.lstrip().startswith(("{", "[")):
        return _parsed(iter(source.splitlines(keepends=True)))
    if source == "-":
        return _parsed(iter(sys.stdin))
    path = Path(source)
    if not path.is_file():
        raise CommandFailed(
            f"there is no file {source}.", "Give a file, - for standard input, or JSON: '{\"price\": 350}'"
        )
    return _from_file(path)


def one_event(source: str) -> dict[str, Any]:
    """The only event of `source`. Raises CommandFailed when there is none, more than one, or something else."""
    lines = list(event_lines(source))
    if len(lines) != 1:
        raise CommandFailed(f"one event was expected, there are {len(lines)}.")
    return valid(lines[0])


def valid(line: Line) -> dict[str, Any]:
    """The event of `line`. Raises CommandFailed where there is none."""
    if line.event is None:
        raise CommandFailed(f"line {line.number}: {line.problem}")
    return line.event


def _from_file(path: Path) -> Iterator[Line]:
    try:
        with path.open(encoding="utf-8") as file:
            yield from _parsed(iter(file))
    except UnicodeDecodeError as error:
        raise CommandFailed(f"{path} is not UTF-8 text: {error}") from error


def _parsed(lines: Iterator[str]) -> Iterator[Line]:
    """Lines of objects, as long as each line is JSON by itself; else the whole as one document."""
    first = next((text for text in lines if text.strip()), None)
    if first is None:
        return
    try:
        value = json.loads(first)
    except json.JSONDecodeError:
        value = None
    if not isinstance(value, dict):
        yield from _document(first + "".join(lines))
        return
    yield Line(1, value)
    for number, text in enumerate(lines, 2):
        if text.strip():
            yield _line(number, text)


def _line(number: int, text: str) -> Line:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        return Line(number, None, f"not JSON: {error.msg} at column {error.colno}")
    return _item(number, value)


def _document(text: str) -> Iterator[Line]:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        if "\n" in text.strip():
            # Not one document either: then it is lines, and the first is the bad one.
            yield from (_line(number, each) for number, each in enumerate(text.splitlines(), 1) if each.strip())
        else:
            yield Line(1, None, f"not JSON: {error.msg} at column {error.colno}")
        return
    for number, item in enumerate(value if isinstance(value, list) else [value], 1):
        yield _item(number, item)


def _item(number: int, value: Any) -> Line:
    return Line(number, value) if isinstance(value, dict) else Line(number, None, "an event is a JSON object")
