"""A batch of events as columns for `Matcher.match_table`, and the schemas of all data that jobs read and write.

lines     columns that Arrow has read of them, made into events when asked for; or events, made into columns
Parquet   columns as they were stored, made into events when asked for
"""

import re
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from kindcast.semantic import Event
from kindcast.semantic.errors import InvalidEvent
from kindcast.semantic.events import GRAPH_TYPES, RDF_TYPES, media_type_of
from kindcast.semantic.flatten import as_json, cells_of
from kindcast.semantic.units import is_date_time, parse_instant
from kindcast.semantic.vocabulary import FHIR

__all__ = [
    "ANONYMOUS",
    "ARRAY_GOES_ON",
    "BOM",
    "CHANGES",
    "EVENTS",
    "EXPLODED",
    "MATCHES",
    "NORMALISED",
    "NO_DAY",
    "PART_PROBLEM",
    "PLAIN_TYPE",
    "QUARANTINE",
    "TERMS",
    "ArchivedEvent",
    "EventBatch",
    "Rejected",
    "Unreadable",
    "days_of",
    "event_of",
    "from_events",
    "instant_of",
    "json_of",
    "keyed",
    "reason_of",
    "spark_schema",
    "unnamed",
    "without_nothing",
]

# ── the schemas of all data that jobs read and write. Fixed here: nothing is inferred from data ───────────────────────

# Each is a list of (name, type, nullable) in Spark's words; `pyspark.sql.types.StructType` and `pyarrow.Schema` are
# made of it.


NO_DAY = "unknown"
"""The day of an event that says no time."""

_TIME = pa.timestamp("us", tz="UTC")


def _schema(*fields: tuple[str, Any] | tuple[str, Any, bool]) -> pa.Schema:
    return pa.schema([pa.field(*field) for field in fields])


_KEY: tuple[tuple[str, Any], ...] = (
    ("source", pa.string()),
    ("id", pa.string()),
    ("time", _TIME),
    ("day", pa.string()),
)
"""An event: `source` and `id` name it, `day` is that of its time in UTC, or `NO_DAY`."""

EVENTS = _schema(*_KEY, ("body", pa.string()), ("file", pa.string()), ("line", pa.int64()))
"""Events as archived. `body` is the line: a CloudEvent where it has `specversion`, else the data of one."""

READING = pa.struct(
    [
        ("published", pa.string()),
        ("text", pa.string()),
        ("root_word", pa.string()),
        ("number", pa.float64()),
        ("boolean", pa.bool_()),
        ("instant", _TIME),
        ("amount", pa.float64()),
        ("dimension", pa.string()),
        ("concepts", pa.list_(pa.string())),
    ]
)
"""A value with all its readings; `published` is JSON, `text` a published string in NFC and `root_word` its root word by
the user's table of synonyms (the same where there is none), `amount` is in the base unit of `dimension`, `concepts` are
IRIs."""

CHANGES = pa.list_(
    pa.struct([("attribute", pa.string()), ("published", pa.string()), ("became", pa.string()), ("why", pa.string())])
)
"""What is read otherwise than it stands there, and why: attribute-name, concept, deprecated, synonym, unit, number."""

NORMALISED = _schema(
    *_KEY,
    ("body", pa.string()),
    ("attributes", pa.map_(pa.string(), pa.list_(READING))),
    ("changes", CHANGES),
    (
        "notes",
        pa.list_(pa.struct([("code", pa.string()), ("attribute", pa.string()), ("detail", pa.string())])),
    ),
    ("vocabulary_version", pa.string()),
)
"""Canonical events, with the events as published."""

MATCHES = _schema(*_KEY, ("subscriptions", pa.list_(pa.string())), ("vocabulary_version", pa.string()))
"""One row per event, with the subscriptions that match it."""

EXPLODED = _schema(*_KEY, ("subscription", pa.string()), ("bindings", pa.string()), ("vocabulary_version", pa.string()))
"""A match a row; `bindings` is the JSON of a server, `[{"n": 3}]`, null where the subscription has no variables."""

QUARANTINE = _schema(("file", pa.string()), ("line", pa.int64()), ("reason", pa.string()), ("text", pa.string()))
"""What could not be read: where it stands, why, and how it begins. Without `line` it is the whole file."""

TERMS = _schema(
    ("attribute", pa.string()),
    ("term", pa.string()),
    ("problem", pa.string()),
    ("events", pa.int64()),
    ("suggestions", pa.list_(pa.string())),
    ("example", pa.string()),
)
"""What an ontologist should look at: a term, its `problem` (unknown or ambiguous), in how many events, what it may
mean, and one event (its source and id)."""


def spark_schema(schema: pa.Schema) -> StructType:
    """The same columns for Spark."""
    return from_arrow_schema(schema)


# One archived object → an event: a CloudEvent where it has `specversion`, else the data of one.
#
# The rules are those of publishing over HTTP, so an archive of events that a server accepted has the same meaning here.
# An event without an id gets its place in the archive as its id.

ANONYMOUS = "urn:kindcast:anonymous"
"""The source of an event that names none."""
PLAIN_TYPE = "kindcast.event"
"""The type of an event that names none."""
SPECVERSION = "1.0"
TEXTS = frozenset({"id", "source", "type", "subject", "time", "datacontenttype", "dataschema", "specversion"})
BOM = b"\xef\xbb\xbf"
PART_OF_JSON = re.compile(rb"[\[{,]\s*$|^\s*[\]}]\s*$")
"""A line of a JSON text with line breaks."""
ARRAY_GOES_ON = re.compile(rb"(^\s*\[|[}\]]\s*,)\s*$")
"""A line after which an array goes on: so the next line is a part of it."""
ONE_PER_LINE = "write each event as one line, for example with jq -c . or, from an array, with jq -c '.[]'"
PART_PROBLEM = f"this is not a whole JSON text: {ONE_PER_LINE}"
SECONDS = re.compile(r"-?[0-9]{1,10}(\.[0-9]{1,9})?", re.ASCII)
"""Seconds since 1970 as text."""
DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
_NAME = re.compile(r"[a-z0-9]{1,64}")


class Unreadable(ValueError):
    """A record is not an event. The message gives the reason."""


@dataclass(slots=True)
class ArchivedEvent:
    """An event with its name and, if it has one, its time in microseconds since 1970. `plain`: whether it was archived
    as the data of an event, without a context."""

    source: str
    id: str
    time: int | None
    event: Event
    plain: bool = False


def json_of(line: bytes) -> Any:
    """The value of a JSON text. Raises `Unreadable`."""
    try:
        return msgspec.json.decode(line.removeprefix(BOM))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:  # a ValidationError, too: a number beyond any double
        if PART_OF_JSON.search(line):
            raise Unreadable(PART_PROBLEM) from None
        raise Unreadable(f"this is not JSON: {error}") from None
    except RecursionError:
        raise Unreadable("the JSON is nested too deeply") from None


def event_of(value: Any, place: str, time_from: str | None = None) -> ArchivedEvent:
    """Converts a JSON value to an event: a CloudEvent, or the data of an event. `place` is used as the id if there is
    none. `time_from` is the member of plain data that contains the time. Raises `Unreadable`."""
    if not isinstance(value, dict):
        advice = f", and this is an array: {ONE_PER_LINE}" if isinstance(value, list) else ""
        raise Unreadable(f"an event is a JSON object{advice}")
    if "specversion" in value:
        return _cloud_event(value)
    return keyed(value, place, time_from)


def keyed(data: Mapping[str, Any], place: str, time_from: str | None) -> ArchivedEvent:
    """Makes an event of plain data. Raises `Unreadable`."""
    _refuse_context(data)
    context = {"specversion": SPECVERSION, "source": ANONYMOUS, "type": PLAIN_TYPE, "id": place}
    time = None if time_from is None else _instant(data.get(time_from), time_from)
    return ArchivedEvent(ANONYMOUS, place, time, Event(data, context), plain=True)


def _cloud_event(value: dict[str, Any]) -> ArchivedEvent:
    context: dict[str, Any] = {}
    for name, member in value.items():
        if member is not None and name not in ("data", "data_base64"):
            _check(name, member)
            context[name] = member
    for name in ("id", "source", "type"):
        if name not in context:
            raise Unreadable(f"the CloudEvents attribute {name} is missing")
    data = value.get("data")
    if value.get("data_base64") is not None:
        if data is not None:
            raise Unreadable("an event must not have both data and data_base64")
        data = _from_base64(value["data_base64"], context)
    if isinstance(data, dict):
        _refuse_context(data)
    time = parse_instant(context["time"]) if "time" in context else None
    return ArchivedEvent(context["source"], context["id"], time, Event(data, context))


def _check(name: str, member: Any) -> None:
    if not _NAME.fullmatch(name):
        raise Unreadable(f"{name[:64]!r} is not a valid name of a context attribute: use lower-case letters and digits")
    if name in TEXTS:
        if not isinstance(member, str) or not member:
            raise Unreadable(f"{name} must be a non-empty text")
        if name == "time" and not is_date_time(member):
            raise Unreadable(f"time must be a date-time of RFC 3339, not {member[:64]!r}")
        if name == "specversion" and member != SPECVERSION:
            raise Unreadable(f"specversion must be {SPECVERSION!r}")
    elif not isinstance(member, str | bool | int) or (isinstance(member, int) and not -(2**31) <= member < 2**31):
        raise Unreadable(f"{name} must be a text, a boolean or a 32-bit integer")


def _from_base64(encoded: Any, context: Mapping[str, Any]) -> Any:
    """Returns the JSON value or the RDF text in `data_base64`; None if it is neither."""
    media_type = media_type_of(context)
    try:
        raw = b64decode(encoded, validate=True)
    except (ValueError, TypeError):
        raise Unreadable("data_base64 is not base64") from None
    if media_type in RDF_TYPES:
        try:
            return raw.decode()
        except UnicodeDecodeError:
            raise Unreadable("RDF is text in UTF-8") from None
    return json_of(raw) if media_type.endswith(("/json", "+json")) else None


def _refuse_context(data: Mapping[str, Any]) -> None:
    for name in data:
        if name == "ce" or name.startswith("ce."):
            raise Unreadable(f"/{name}: this name is reserved for context attributes such as ce.type")


def _instant(said: Any, name: str) -> int | None:
    """Reads the time in a member: RFC 3339, a date, or seconds since 1970 as a number or a text."""
    if said is None:
        return None
    if isinstance(said, str):
        found = instant_of(said)
        if found is not None:
            return found
        if SECONDS.fullmatch(said):  # of CSV, where all is text
            return round(float(said) * 1_000_000)
    elif isinstance(said, int | float) and not isinstance(said, bool) and abs(said) < 1e10:
        return round(said * 1_000_000)
    raise Unreadable(f"{name} must be a date-time of RFC 3339, a date or seconds since 1970, not {str(said)[:64]!r}")


def instant_of(text: str) -> int | None:
    """Reads a date-time of RFC 3339, or a date as its beginning in UTC; None for any other text."""
    found = parse_instant(text)
    return parse_instant(f"{text}T00:00:00Z") if found is None and DATE.fullmatch(text) else found


# ── event batch ───────────────────────────────────────────────────────────────────────────────────────────────────────

TEXT_SHOWN = 200
"""Characters of a bad line that the quarantine shows."""
READ_ALONE = GRAPH_TYPES | {FHIR}
"""Content types that say how the data is read."""
EXACT = 1 << 53
DAY = 86_400_000_000
MOST_NAMES, SPARSE = 1_000, 8
"""Events with more names than this are not made into columns if that gives more than `SPARSE` cells for each value."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Rejected:
    """A record that could not be read, for the quarantine. Without `line`, it is the whole file."""

    file: str
    line: int | None
    reason: str
    text: str | None = None

    def row(self) -> dict[str, Any]:
        text = None if self.text is None else self.text[:TEXT_SHOWN]
        return {"file": self.file, "line": self.line, "reason": self.reason, "text": text}


@dataclass(slots=True)
class EventBatch:
    """A batch of events. `keys` has the columns source, id, time and day. `lines` are the line numbers in `file`, or in
    `files`, which has the file of each event. The batch has either `events` or `table`. If the table was read from
    lines, `read` returns a row as an event. `bodies` are the lines themselves, if a job needs them."""

    keys: pa.Table
    file: str
    lines: npt.NDArray[np.int64]
    events: list[Event] | None = None
    table: pa.Table | None = None
    bodies: list[str] = field(default_factory=list)
    read: Callable[[int], Event] | None = None
    files: Sequence[str] = ()

    def __len__(self) -> int:
        return len(self.lines)

    @property
    def needs_reading(self) -> bool:
        """Whether some event is a graph, or is interpreted by its content type. Such events cannot be matched as
        columns. Events with names of their own should not: nearly all cells would be empty."""
        return self.events is not None and (any(map(_is_read_alone, self.events)) or _is_sparse(self.events))

    def has_names(self, names: AbstractSet[str]) -> bool:
        """Returns whether the data of some event has a member with one of these names."""
        if self.events is None:
            return self.table is not None and not names.isdisjoint(self.table.column_names)
        return any(type(each.data) is dict and not names.isdisjoint(each.data) for each in self.events)

    def columns(self, *, with_context: bool) -> Any:
        """Returns the columns for `Matcher.match_table`; with `with_context`, also the context attributes as `ce.…`."""
        if self.events is not None:
            return _columns(self.events, with_context=with_context)
        assert self.table is not None
        if not with_context:
            return self.table
        context = {"ce.specversion": "1.0", "ce.source": ANONYMOUS, "ce.type": PLAIN_TYPE}
        table = self.table.append_column("ce.id", self.keys["id"])
        for name, text in context.items():
            table = table.append_column(name, pa.repeat(text, len(self)))
        return table

    def rejected(self, row: int, reason: str, text: str) -> "Rejected":
        """Returns what the quarantine shows of an event that cannot be read."""
        return Rejected(self.files[row] if self.files else self.file, int(self.lines[row]), reason, text)

    def each(self) -> Iterator[Event]:
        """Yields the events one by one."""
        if self.events is not None:
            yield from self.events
            return
        if self.read is not None:
            yield from map(self.read, range(len(self)))
            return
        assert self.table is not None
        for data, id in zip(cells_of(self.table), self.keys["id"].to_pylist(), strict=True):
            yield Event(
                without_nothing(data), {"specversion": "1.0", "source": ANONYMOUS, "type": PLAIN_TYPE, "id": id}
            )

    def take(self, rows: Sequence[int]) -> "EventBatch":
        """Returns a batch of the given rows, in the given order."""
        chosen = np.asarray(rows, dtype=np.int64)
        events = None if self.events is None else [self.events[row] for row in chosen]
        if self.read is not None:  # a member that an object lacks is null in columns: read the lines themselves
            events = [self.read(row) for row in chosen.tolist()]
        return EventBatch(
            keys=self.keys.take(pa.array(chosen)),
            file=self.file,
            lines=self.lines[chosen],
            events=events,
            table=None if events is not None or self.table is None else self.table.take(pa.array(chosen)),
            bodies=[self.bodies[row] for row in chosen] if self.bodies else [],
            files=[self.files[row] for row in chosen] if self.files else (),
        )

    def expanded(self, rows: Sequence[tuple[int, Event | None]]) -> "EventBatch":
        """Returns a batch of some rows. A row that is a document of several events is repeated once per event; `None`
        means that the row is a single event. The events of a document keep its line number and have their own
        bodies."""
        found = self.take([row for row, _ in rows])
        parts = [part for _, part in rows]
        if any(part is not None for part in parts):
            found.events = [
                event if part is None else part for event, part in zip(list(found.each()), parts, strict=True)
            ]
            found.table = found.read = None
            ids = [
                id if part is None else part.context["id"]
                for id, part in zip(found.keys["id"].to_pylist(), parts, strict=True)
            ]
            place = found.keys.column_names.index("id")
            found.keys = found.keys.set_column(place, "id", pa.array(ids, pa.string()))
            if found.bodies:
                found.bodies = [
                    body if part is None else msgspec.json.encode({**part.context, "data": part.data}).decode()
                    for body, part in zip(found.bodies, parts, strict=True)
                ]
        return found


def unnamed(event: Event, line: int) -> Event:
    """Removes the id of `event` if it is only its place in the archive. Events that are split from it are then named by
    rule 21, as on a server."""
    context = event.context
    if context.get("source") == ANONYMOUS and str(context.get("id", "")).endswith(f":{line}"):
        return Event(event.data, {name: value for name, value in context.items() if name != "id"})
    return event


def _is_read_alone(event: Event) -> bool:
    data, context = event.data, event.context
    if type(data) is dict and "@context" in data:
        return True
    return "datacontenttype" in context and media_type_of(context) in READ_ALONE


def _is_sparse(events: Sequence[Event]) -> bool:
    data = [each.data for each in events if type(each.data) is dict]
    names = len(set(chain.from_iterable(data)))
    return names > MOST_NAMES and names * len(events) > SPARSE * sum(map(len, data))


def from_events(found: Sequence[ArchivedEvent], file: str, lines: Sequence[int], bodies: list[str]) -> EventBatch:
    """Makes a batch of events that were read from lines."""
    time = pa.array([each.time for each in found], pa.timestamp("us", tz="UTC"))
    keys = pa.table(
        {
            "source": pa.array([each.source for each in found], pa.string()),
            "id": pa.array([each.id for each in found], pa.string()),
            "time": time,
            "day": days_of(time),
        }
    )
    return EventBatch(keys, file, np.array(lines, dtype=np.int64), [each.event for each in found], None, bodies)


def days_of(time: Any) -> Any:
    """Returns the UTC day of each time as `2026-01-31`, or `NO_DAY` if there is no time. Each distinct day is formatted
    once, not once per row."""
    days = pc.divide(pc.cast(pc.floor_temporal(time, unit="day"), pa.int64()), DAY)
    encoded = (days.combine_chunks() if isinstance(days, pa.ChunkedArray) else days).dictionary_encode()
    texts = [str((EPOCH + timedelta(days=number)).date()) for number in encoded.dictionary.to_pylist()]
    named = pa.DictionaryArray.from_arrays(encoded.indices, pa.array(texts, pa.string()))
    return named.cast(pa.string()).fill_null(NO_DAY)


def _columns(events: Sequence[Event], *, with_context: bool) -> dict[str, Any]:
    """Returns one column for each top-level name in the data. Numbers become doubles if doubles hold them exactly."""
    cells: dict[str, list[Any]] = {}
    count = len(events)
    for row, event in enumerate(events):
        if isinstance(event.data, dict):
            for name, value in event.data.items():
                column = cells.get(name)
                if column is None:
                    column = cells[name] = [None] * count
                column[row] = value
        if with_context:
            for name, value in event.context.items():
                column = cells.setdefault(f"ce.{name}", [None] * count)
                column[row] = value
    if not cells:  # a table without columns would have no rows
        cells[""] = [None] * count
    return {name: _as_numbers(column) for name, column in cells.items()}


def _as_numbers(column: list[Any]) -> Any:
    kinds = set(map(type, column))
    if kinds <= {float, int, type(None)} and kinds != {type(None)}:
        if int in kinds and any(type(each) is int and not -EXACT < each < EXACT for each in column):
            return column
        return np.array([np.nan if each is None else each for each in column], dtype=np.float64)
    return column


def reason_of(error: InvalidEvent) -> str:
    """Returns every problem with its place."""
    return "; ".join(f"{problem.at}: {problem.detail}" if problem.at else problem.detail for problem in error.problems)


def without_nothing(value: Any) -> Any:
    """Converts a value from Arrow to JSON, as `as_json` does, except that NaN becomes null."""
    if isinstance(value, dict):
        return {name: without_nothing(each) for name, each in value.items()}
    if isinstance(value, list):
        return [without_nothing(each) for each in value]
    return None if isinstance(value, float) and value != value else as_json(value)
