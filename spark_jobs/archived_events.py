"""One archived object → an event: a CloudEvent where it has `specversion`, else the data of one.

The same rules as when it is published over HTTP, so that an archive of what a server accepted means here what it meant
there. What has no name gets one: its place in the archive.
"""

import re
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from semantic import Event
from semantic.instants import parse_instant

__all__ = ["ANONYMOUS", "PLAIN_TYPE", "ArchivedEvent", "Unreadable", "event_of", "json_of", "keyed"]

ANONYMOUS = "urn:kindcast:anonymous"
"""The source of an event that names none."""
PLAIN_TYPE = "kindcast.event"
"""The type of an event that names none."""
SPECVERSION = "1.0"
TEXTS = frozenset({"id", "source", "type", "subject", "time", "datacontenttype", "dataschema", "specversion"})
BOM = b"\xef\xbb\xbf"
_NAME = re.compile(r"[a-z0-9]{1,64}")


class Unreadable(ValueError):
    """This is no event; the text says why."""


@dataclass(slots=True)
class ArchivedEvent:
    """An event with its name and, where it says one, its time in microseconds since 1970."""

    source: str
    id: str
    time: int | None
    event: Event


def json_of(line: bytes) -> Any:
    """The value of a JSON text. Raises `Unreadable`."""
    try:
        return msgspec.json.decode(line.removeprefix(BOM))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:  # a ValidationError, too: a number beyond any double
        raise Unreadable(f"no JSON: {error}") from None
    except RecursionError:
        raise Unreadable("no JSON that we read: it is nested too deeply") from None


def event_of(value: Any, place: str, time_from: str | None = None) -> ArchivedEvent:
    """The event that `value` is, or is the data of; `place` is its id if it has none, `time_from` the member of plain
    data that says its time. Raises `Unreadable`."""
    if not isinstance(value, dict):
        raise Unreadable("an event is a JSON object")
    if "specversion" in value:
        return _cloud_event(value)
    return keyed(value, place, time_from)


def keyed(data: Mapping[str, Any], place: str, time_from: str | None) -> ArchivedEvent:
    """The event around plain data. Raises `Unreadable`."""
    _refuse_context(data)
    context = {"specversion": SPECVERSION, "source": ANONYMOUS, "type": PLAIN_TYPE, "id": place}
    time = None if time_from is None else _instant(data.get(time_from), time_from)
    return ArchivedEvent(ANONYMOUS, place, time, Event(data, context))


def _cloud_event(value: dict[str, Any]) -> ArchivedEvent:
    context: dict[str, Any] = {}
    for name, member in value.items():
        if member is not None and name not in ("data", "data_base64"):
            _check(name, member)
            context[name] = member
    for name in ("id", "source", "type"):
        if name not in context:
            raise Unreadable(f"a CloudEvent has the attribute {name}")
    data = value.get("data")
    if value.get("data_base64") is not None:
        data = _from_base64(value["data_base64"], context)
    if isinstance(data, dict):
        _refuse_context(data)
    time = parse_instant(context["time"]) if "time" in context else None
    return ArchivedEvent(context["source"], context["id"], time, Event(data, context))


def _check(name: str, member: Any) -> None:
    if not _NAME.fullmatch(name):
        raise Unreadable(f"{name[:64]!r} is no name of a context attribute: lower-case letters and digits")
    if name in TEXTS:
        if not isinstance(member, str) or not member:
            raise Unreadable(f"{name} must be a text that is not empty")
        if name == "time" and parse_instant(member) is None:
            raise Unreadable(f"time must be a date-time of RFC 3339, not {member[:64]!r}")
        if name == "specversion" and member != SPECVERSION:
            raise Unreadable(f"specversion must be {SPECVERSION!r}")
    elif not isinstance(member, str | bool | int):
        raise Unreadable(f"{name} must be a text, a boolean or an integer")


def _from_base64(encoded: Any, context: Mapping[str, Any]) -> Any:
    """The JSON inside `data_base64`; None where it is none."""
    media_type = str(context.get("datacontenttype", "")).partition(";")[0].strip().lower()
    try:
        raw = b64decode(encoded, validate=True)
    except (ValueError, TypeError):
        raise Unreadable("data_base64 is not base64") from None
    return json_of(raw) if media_type.endswith(("/json", "+json")) else None


def _refuse_context(data: Mapping[str, Any]) -> None:
    for name in data:
        if name == "ce" or name.startswith("ce."):
            raise Unreadable(f"/{name}: this name is kept for context attributes such as ce.type")


def _instant(said: Any, name: str) -> int | None:
    """The time that a member says: RFC 3339, or seconds since 1970."""
    if said is None:
        return None
    if isinstance(said, str):
        found = parse_instant(said)
        if found is not None:
            return found
    elif isinstance(said, int | float) and not isinstance(said, bool) and abs(said) < 1e10:
        return round(said * 1_000_000)
    raise Unreadable(f"{name} must be a date-time of RFC 3339 or seconds since 1970, not {str(said)[:64]!r}")
