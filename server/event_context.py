"""The context attributes of an event: taken from headers, checked by the rules of CloudEvents 1.0 and our bounds."""

import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import unquote

from semantic import InvalidEvent, Position, Problem
from semantic.instants import parse_instant

__all__ = ["SPECVERSION", "BadRequestMode", "at_member", "checked_context", "header_attributes"]

SPECVERSION = "1.0"

LONGEST_NAME = 64  # characters of an attribute's name; the specification advises 20
LONGEST_VALUE = 2_048  # characters of id, source and type, which stand in an index
MAX_ATTRIBUTES = 64
TEXTS = frozenset({"id", "source", "type", "subject", "time", "datacontenttype", "dataschema", "specversion"})
KEYS = frozenset({"id", "source", "type"})

_NAME = re.compile(r"[a-z0-9]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class BadRequestMode(ValueError):
    """The headers contradict each other, or the body as a whole cannot be taken apart."""


def header_attributes(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The attributes in ce-* headers, percent-decoded. Raises `BadRequestMode`."""
    found: dict[str, str] = {}
    for name, value in headers:
        if name.startswith("ce-"):
            try:
                found[name[3:]] = unquote(value, errors="strict")
            except UnicodeDecodeError:
                raise BadRequestMode(f"the header {name} is not percent-encoded UTF-8") from None
    return found


def checked_context(given: Mapping[str, Any], *, partial: bool = False) -> dict[str, Any]:
    """The context attributes, checked; null means absent. With `partial`, `id` may be absent. Raises `InvalidEvent`
    with every problem."""
    context = {name: value for name, value in given.items() if value is not None}
    problems = [problem for name, value in context.items() if (problem := _wrong(name, value)) is not None]
    if context.get("specversion", SPECVERSION) != SPECVERSION:
        problems.append(Problem("bad-attribute", f"specversion must be {SPECVERSION!r}", at_member("specversion")))
    if len(context) > MAX_ATTRIBUTES:
        problems.append(
            Problem("too-many-attributes", f"an event has at most {MAX_ATTRIBUTES} attributes", at_member(""))
        )
    for name in ("specversion", "id", "source", "type"):
        if name not in context and not partial:
            problems.append(Problem("missing-attribute", f"a CloudEvent has the attribute {name}", at_member(name)))
    if problems:
        raise InvalidEvent(problems)
    return context


def at_member(name: str) -> Position:
    """Where a member of the event stands, as a JSON pointer."""
    return Position(pointer="/" + name.replace("~", "~0").replace("/", "~1") if name else "")


def _wrong(name: str, value: Any) -> Problem | None:
    """What is wrong with an attribute, if anything."""
    if not _NAME.fullmatch(name) or len(name) > LONGEST_NAME or name == "data":
        detail = f"{name[:LONGEST_NAME]!r} is no attribute name: lower-case letters and digits, at most {LONGEST_NAME}"
        return Problem("bad-attribute", detail, at_member(name[:LONGEST_NAME]))
    if name in TEXTS:
        if not isinstance(value, str) or not value:
            return Problem("bad-attribute", f"{name} must be a text that is not empty", at_member(name))
        if name in KEYS and (len(value) > LONGEST_VALUE or _CONTROL.search(value)):
            detail = f"{name} must have at most {LONGEST_VALUE} characters, none of them a control character"
            return Problem("bad-attribute", detail, at_member(name))
        if name == "time" and parse_instant(value) is None:
            return Problem(
                "bad-attribute", f"time must be a date-time of RFC 3339, not {value[:64]!r}", at_member(name)
            )
    elif not isinstance(value, str | bool | int) or (isinstance(value, int) and not -(2**31) <= value < 2**31):
        return Problem("bad-attribute", f"{name} must be a text, a boolean or a 32-bit integer", at_member(name))
    return None
