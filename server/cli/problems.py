"""Rendering of problems: each with its place in the input, a caret under it, and the nearest known names.

One form for both worlds: the problems of `semantic` (offline commands) and the `errors` of a problem answer (HTTP).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rich.text import Text

from kindcast.semantic.errors import InvalidEvent, InvalidSubscription, OntologyError, property_in_words
from kindcast.server.cli import output
from kindcast.server.client import ProblemError

__all__ = ["CommandFailed", "InExpression", "as_json", "in_words", "show"]

TAB = "\t"


class CommandFailed(Exception):
    """The command cannot do what it was asked for. `advice` says what to do about it."""

    def __init__(self, message: str, advice: str = "") -> None:
        super().__init__(message)
        self.advice = advice


class InExpression(Exception):
    """Something is wrong with an expression whose text the user gave: the places of `error` speak of `text`."""

    def __init__(self, error: InvalidSubscription | ProblemError, text: str) -> None:
        super().__init__(str(error))
        self.error = error
        self.text = text


@dataclass(frozen=True, slots=True)
class _Fault:
    """One thing that is wrong; `place` is empty where the caret says it."""

    detail: str
    line: int | None
    column: int | None
    pointer: str
    suggestions: tuple[Mapping[str, Any], ...]


def show(failure: Exception) -> None:
    """Prints what went wrong on standard error."""
    console = output.errors()
    error, expression = _taken_apart(failure)
    faults = _faults(error)
    shown = [_source_line(fault, expression) is not None for fault in faults]
    # The detail of an answer repeats its first fault: it is told once, under the place where that is shown.
    said = error.title if isinstance(error, ProblemError) and faults and all(shown) else _headline(error)
    console.print(Text.assemble(("error: ", "bold red"), said), soft_wrap=True)
    for fault, has_place in zip(faults, shown, strict=True):
        first, *others = _lines(fault, expression)
        for line in [*([] if not has_place and fault.detail in said else [first]), *others]:
            console.print(line, soft_wrap=True)
    advice = getattr(error, "advice", "")
    if advice:
        output.hint(advice)


def as_json(failure: Exception) -> dict[str, Any]:
    """What went wrong as a problem: what `--json` prints."""
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
    return {"type": "about:blank", "title": _headline(error), "detail": str(error), "errors": errors}


def _taken_apart(failure: Exception) -> tuple[Exception, str | None]:
    """The error itself, and the text that its places speak of."""
    return (failure.error, failure.text) if isinstance(failure, InExpression) else (failure, None)


def _headline(error: Exception) -> str:
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
    """An error in words, without the number that the system has for it."""
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
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
        # Under characters that take two columns the caret moves with them.
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
