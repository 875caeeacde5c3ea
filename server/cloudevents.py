"""CloudEvents 1.0 over HTTP: requests in every mode, plain JSON and NDJSON → events for the broker.

    Content-Type                          mode
    application/cloudevents+json          structured: the body is the event
    application/cloudevents-batch+json    batch: an array of events
    application/x-ndjson                  one event per line: a CloudEvent if it has `specversion`, else the data of one
    any other, with ce-* headers          binary: the headers are the event's attributes, the body is its data
    application/json, or …+json           plain: the object is the data; required attributes are filled in

A missing `id` is generated, and a missing `source` or `type` is filled in (`DEFAULTS`). A request with `ce-specversion`
claims to be a CloudEvent and must have all of them.
"""

import asyncio
import hashlib
import itertools
import re
import secrets
import threading
import time
from base64 import b64decode, b64encode
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

import msgspec

from kindcast.semantic import Event, InvalidEvent, InvalidSubscription, Note, Position, Problem, Vocabulary
from kindcast.semantic.events import (
    GRAPH_TYPES,
    JSON_LD,
    MOST_OF_ONE,
    MOST_PROBLEMS,
    MOST_TOGETHER,
    RDF_TYPES,
    Canonicaliser,
)
from kindcast.semantic.language import parse, to_tree
from kindcast.semantic.units import is_date_time
from kindcast.semantic.vocabulary import FHIR
from kindcast.server.connectors.bindings import header_text
from kindcast.server.security.keys import Repeatable
from kindcast.server.strict_json import MalformedJson, TooDeepJson, decode, numbered_lines
from kindcast.server.worker_threads import run_to_the_end

__all__ = [
    "DEFAULTS",
    "DIALECTS",
    "LINES",
    "RECEIVED",
    "SEMANTIC_DIALECT",
    "SEVERAL",
    "SPECVERSION",
    "BadRequestMode",
    "Decoded",
    "DecodedEvent",
    "EventReader",
    "ReadGraph",
    "ReadingBudget",
    "TooManyEvents",
    "UnknownContent",
    "arrived",
    "at_member",
    "filters_to_tree",
    "is_whole",
    "media_type_of",
    "says_several",
    "time_of_arrival",
    "with_digest_as_id",
]

# The context attributes of an event: read from headers, and checked by the rules of CloudEvents 1.0 and our limits.

SPECVERSION = "1.0"

ID_BYTES = 16
"""The size of an id that is derived from an `Idempotency-Key`."""
LONGEST_NAME = 64  # characters of an attribute's name; the specification recommends 20
LONGEST_VALUE = 2_048  # characters of id, source and type, which are in an index
MAX_ATTRIBUTES = 64
TEXTS = frozenset({"id", "source", "type", "subject", "time", "datacontenttype", "dataschema", "specversion"})
KEYS = frozenset({"id", "source", "type"})

_NAME = re.compile(r"[a-z0-9]+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class BadRequestMode(ValueError):
    """The headers contradict each other, or the body cannot be divided into events."""


def header_attributes(headers: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Returns the attributes in ce-* headers, decoded. Raises `BadRequestMode`."""
    found: dict[str, str] = {}
    for name, value in headers:
        if name.startswith("ce-"):
            if name[3:] in found:
                raise BadRequestMode(f"the header {name} occurs twice: send it once")
            try:
                found[name[3:]] = header_text(_unencoded(value))
            except UnicodeDecodeError:
                raise BadRequestMode(f"the header {name} is not percent-encoded UTF-8") from None
    return found


def _unencoded(value: str) -> str:
    """Returns the text of a header whose sender did not encode it. The framework gives a character for each byte, which
    is right for senders of ISO 8859-1. Most send UTF-8."""
    try:
        return value.encode("latin-1").decode()
    except UnicodeError:
        return value


def checked_context(given: Mapping[str, Any], *, partial: bool = False, most: int = MOST_PROBLEMS) -> dict[str, Any]:
    """Returns the checked context attributes; null means absent. With `partial`, required attributes may be missing.
    Raises `InvalidEvent` with the first `most` problems, and looks for no others."""
    context = {name: value for name, value in given.items() if value is not None}
    problems = list(itertools.islice(_problems(context, partial=partial), most + 1))
    if problems:
        raise InvalidEvent(problems[:most], is_cut=len(problems) > most)
    return context


def _problems(context: Mapping[str, Any], *, partial: bool) -> Iterator[Problem]:
    if len(context) > MAX_ATTRIBUTES:
        yield Problem("too-many-attributes", f"an event has at most {MAX_ATTRIBUTES} attributes", at_member(""))
    for name, value in context.items():
        if (problem := _wrong(name, value)) is not None:
            yield problem
    if context.get("specversion", SPECVERSION) != SPECVERSION:
        yield Problem("bad-attribute", f"specversion must be {SPECVERSION!r}", at_member("specversion"))
    for name in ("specversion", "id", "source", "type"):
        if name not in context and not partial:
            yield Problem("missing-attribute", f"a CloudEvent has the attribute {name}", at_member(name))


def at_member(name: str) -> Position:
    """Returns the place of a member of the event as a JSON pointer."""
    return Position(pointer="/" + name.replace("~", "~0").replace("/", "~1") if name else "")


def _wrong(name: str, value: Any) -> Problem | None:
    """Returns the problem of an attribute; None if there is none."""
    if not _NAME.fullmatch(name) or len(name) > LONGEST_NAME or name == "data":
        detail = (
            f"{name[:LONGEST_NAME]!r} is not an attribute name: lower-case letters and digits, at most {LONGEST_NAME}"
        )
        return Problem("bad-attribute", detail, at_member(name[:LONGEST_NAME]))
    if name in TEXTS:
        if not isinstance(value, str) or not value:
            return Problem("bad-attribute", f"{name} must be a non-empty text", at_member(name))
        if name in KEYS and len(value) > LONGEST_VALUE:
            return Problem("bad-attribute", f"{name} must have at most {LONGEST_VALUE} characters", at_member(name))
    elif not isinstance(value, str | bool | int) or (isinstance(value, int) and not -(2**31) <= value < 2**31):
        return Problem("bad-attribute", f"{name} must be a text, a boolean or a 32-bit integer", at_member(name))
    if isinstance(value, str) and _CONTROL.search(value):
        return Problem("bad-attribute", f"{name} must not have control characters", at_member(name))
    if name == "time" and not is_date_time(value):
        return Problem("bad-attribute", f"time must be a date-time of RFC 3339, not {value[:64]!r}", at_member(name))
    return None


# ── cloudevents ───────────────────────────────────────────────────────────────────────────────────────────────────────

DEFAULTS = {"source": "urn:kindcast:anonymous", "type": "kindcast.event"}
"""The attributes of events that were published without them."""

STRUCTURED = "application/cloudevents+json"
BATCH = "application/cloudevents-batch+json"
LINES = frozenset({"application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonlines"})
SEVERAL = LINES | {BATCH}
"""Content types of requests with several events."""

READ_BY_TYPE = frozenset({FHIR, JSON_LD})
"""Content types of JSON that determine how it is read (rules 20 and 22). Events that are sent as plain JSON keep them
too."""

_RESERVED = frozenset({"data", "data_base64"})
_ENCODER = msgspec.json.Encoder()
_SORTING_ENCODER = msgspec.json.Encoder(order="deterministic")
_NO_OBJECT = Problem(
    "no-object",
    "plain JSON must be an object: its members are the attributes of the event. Send several events as"
    " application/x-ndjson, one on each line",
)
_NO_ATTRIBUTES = Note("no-attributes", "", "the data is not JSON: only context attributes can match")
_LOOKS_STRUCTURED = Note(
    "looks-like-cloudevent",
    "",
    f"the object was taken as data; to publish it as the event itself, send it as {STRUCTURED}",
)


class UnknownContent(ValueError):
    """The content type is not supported."""


class TooManyEvents(ValueError):
    """The request has more events than allowed."""


RECEIVED = "received"
"""The context attribute with the time of arrival (rule 26). It is neither stored nor delivered."""


def arrived(event: Event, at: float) -> Event:
    """Returns `event` as it is matched: with the time of its acceptance, `at`, in seconds since 1970."""
    return Event(event.data, {**event.context, RECEIVED: time_of_arrival(at)})


def arrived_document(body: str, at: float) -> dict[str, Any]:
    """Returns the stored CloudEvent `body` as programs without this server match it alike: with `at` as its context
    attribute `received`."""
    return {**decode(body.encode()), RECEIVED: time_of_arrival(at)}


def media_type_of(content_type: str | None) -> str:
    """Returns the media type in a `Content-Type`, without parameters."""
    return (content_type or "").partition(";")[0].strip().lower()


def time_of_arrival(at: float) -> str:
    """Returns a time as text: RFC 3339 in UTC, to the microsecond.

    >>> time_of_arrival(0.25)
    '1970-01-01T00:00:00.250000+00:00'
    """
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="microseconds")


@dataclass(frozen=True, slots=True)
class ReadGraph:
    """The result of reading an event with linked data under a vocabulary: the event with its tree as data, or why it
    cannot be read; and notes."""

    vocabulary: Vocabulary
    event: Event | InvalidEvent
    notes: tuple[Note, ...] = ()


NAMES = frozenset({"source", "id"})
NOT_DIGESTED = NAMES | {"traceparent", "tracestate"}
"""Members of an event that may differ when it is sent again."""


class DecodedEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A decoded event for the broker. `body` is the whole CloudEvent as JSON. `digest` covers everything except
    `NOT_DIGESTED`. `id_is_ours`: the id was generated here, so the event cannot have been accepted before. `enveloped`:
    the publisher gave the id. `graph`: the event as it was read, if it is linked data. `data_at`: the JSON pointer to
    the data in what the publisher sent."""

    source: str
    id: str
    type: str
    body: str
    digest: str
    event: Event
    id_is_ours: bool = False
    enveloped: bool = True
    notes: tuple[Note, ...] = ()
    graph: ReadGraph | None = None
    data_at: str = ""

    def as_sent(self, error: InvalidEvent) -> InvalidEvent:
        """Returns a fault of the data with its places in what the publisher sent."""
        return error.below(self.data_at)


@contextmanager
def event_at(pointer: str) -> Iterator[None]:
    """Errors about an event that is at `pointer` in the body of a request get their places in the body."""
    try:
        yield
    except InvalidEvent as error:
        raise error.below(pointer) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """The events of a request; an event that cannot be read is the error that says why. `single`: the mode allows only
    one event. `lines` are the line numbers of the events, from 1, if the request had lines. `prefix` is that of ids
    that are derived from an `Idempotency-Key`."""

    events: list[DecodedEvent | InvalidEvent]
    single: bool
    lines: list[int] | None = None
    prefix: str | None = None


class _Plain:
    """The common parts of events that were published as plain data without an id: their context, the same as JSON
    without its end in `head`, and its digested form in `rest`."""

    __slots__ = ("context", "head", "rest")

    def __init__(self, context: Mapping[str, Any]) -> None:
        self.context = {"specversion": SPECVERSION, **DEFAULTS, **context}
        self.head = msgspec.json.encode(self.context)[:-1]
        rest = {name: value for name, value in self.context.items() if name not in NOT_DIGESTED}
        self.rest = msgspec.json.encode(rest, order="deterministic")


_PLAIN = _Plain({})


def says_several(error: InvalidEvent | None) -> bool:
    """Whether a document was not read because it holds several events, which `EventReader.parts_of` returns."""
    return error is not None and any(problem.code == "several-events" for problem in error.problems)


@dataclass(slots=True, kw_only=True)
class ReadingBudget:
    """The remaining budget for reading the linked data of one request: values, and seconds of processor time for
    documents that no compiled context reads or that hold several events."""

    values: int
    seconds: float

    def check_seconds(self) -> None:
        """Raises `InvalidEvent` if no time is left."""
        if self.seconds <= 0:
            detail = "reading the documents of the request takes too long: send fewer documents in one request"
            raise InvalidEvent([Problem("reading-too-slow", detail)])


class EventReader:
    """Reads requests. It has no state except the generated ids and the reader that splits documents. May be used in any
    thread."""

    def __init__(self, *, max_events: int) -> None:
        self.max_events = max_events
        # Ids are a prefix of this process and a counter: unique, and adjacent in the index if they are close in time.
        self._prefix = secrets.token_hex(8)
        self._numbers = itertools.count(1)
        self._turn = asyncio.Lock()
        self._reading = asyncio.Lock()
        self._lock = threading.Lock()
        self._canonicaliser: tuple[Vocabulary, Canonicaliser] | None = None

    def read(
        self,
        content_type: str | None,
        headers: Iterable[tuple[str, str]],
        body: bytes,
        repeatable: Repeatable | None = None,
    ) -> Decoded:
        """Reads the events of one request. Header names must be in lower case. Cost: linear in the body. If
        `repeatable` is given, events without an id get one that is derived from it, so that they are the same events
        when they are sent again.

        Raises `UnknownContent`, `BadRequestMode`, `TooManyEvents`. The error of a single event is in its place in the
        result.
        """
        media_type = media_type_of(content_type)
        given = header_attributes(headers)
        prefix = None if repeatable is None else repeatable.random("events", ID_BYTES).hex()
        if media_type == STRUCTURED:
            return Decoded(events=[self._structured(body)], single=True)
        if media_type == BATCH:
            return Decoded(events=self._batch(body), single=False)
        if media_type in LINES:
            return self._lines(body, given, prefix)
        if media_type.startswith("application/cloudevents"):
            raise UnknownContent(
                f"the only supported formats of CloudEvents are JSON ({STRUCTURED} and {BATCH}), not {media_type}"
            )
        if not given and not _is_json(media_type) and media_type not in RDF_TYPES:
            raise UnknownContent(
                f"events come as application/json, application/x-ndjson, {STRUCTURED}, {BATCH}, "
                f"{', '.join(sorted(GRAPH_TYPES))}, or as any content with ce-* headers; not as "
                f"{media_type or 'content without a Content-Type'}"
            )
        id = None if prefix is None else f"{prefix}-1"
        event = self._binary(content_type or "", media_type, given, body, id)
        return Decoded(events=[event], single=True, prefix=prefix)

    def from_object(self, value: Any, *, most: int = MOST_PROBLEMS) -> DecodedEvent:
        """Reads an event inside another JSON document: a CloudEvent if it has `specversion`, else the data of an event.
        Raises `InvalidEvent` with at most so many problems."""
        return self._from_object(value, most=most) if _is_event(value) else self._from_data(value, _PLAIN)

    def stored(self, body: str) -> Event:
        """Returns the event of a stored body, which was checked when it was accepted, perhaps by an earlier version
        that checked less. Else the result is that of `from_object`, in less time. Raises `InvalidEvent`,
        `MalformedJson`."""
        value = decode(body.encode())
        if not isinstance(value, dict) or "data_base64" in value:
            return self.from_object(value).event
        data = value.pop("data", None)
        return Event(data, value)

    def parts_of(self, document: DecodedEvent, vocabulary: Vocabulary, budget: ReadingBudget) -> list[DecodedEvent]:
        """Returns the events of a document (rule 21), or the document itself if it is one event. Raises `InvalidEvent`,
        `TooManyEvents`."""
        budget.check_seconds()
        began = time.thread_time()
        try:
            return self._parts_of(document, vocabulary, budget.seconds)
        except InvalidEvent as error:
            raise document.as_sent(error) from None
        finally:
            budget.seconds -= time.thread_time() - began

    def _parts_of(self, document: DecodedEvent, vocabulary: Vocabulary, seconds: float) -> list[DecodedEvent]:
        event, digest = document.event, None
        if not document.enveloped:
            event = Event(event.data, {name: value for name, value in event.context.items() if name != "id"})
            digest = document.digest if document.id_is_ours else document.id
        with self._lock:
            if self._canonicaliser is None or self._canonicaliser[0] is not vocabulary:
                self._canonicaliser = vocabulary, Canonicaliser(vocabulary)
            parts = self._canonicaliser[1].events_of(event, digest, seconds=seconds)
        if len(parts) == 1:
            return [document]
        self.check_count(len(parts))
        found: list[DecodedEvent] = []
        left = MOST_TOGETHER
        for each in parts:
            found.append(self._from_object({**each.context, "data": each.data}))
            left -= len(found[-1].body)
            if left < 0:
                detail = f"the {len(parts):,} events of the document have more than {MOST_TOGETHER:,} bytes: split it"
                raise InvalidEvent([Problem("too-many-values", detail)])
        return found

    async def take_apart(
        self, document: DecodedEvent, vocabulary: Vocabulary, budget: ReadingBudget
    ) -> list[DecodedEvent]:
        """Runs `parts_of` in a worker thread, for one document at a time, so that threads are left for other work. For
        one event loop."""
        async with self._turn:
            return await run_to_the_end(partial(self.parts_of, document, vocabulary, budget))

    async def read_large(
        self,
        content_type: str | None,
        headers: Iterable[tuple[str, str]],
        body: bytes,
        repeatable: Repeatable | None = None,
    ) -> Decoded:
        """Runs `read` in a worker thread, for one request at a time. Several threads would leave little time for other
        requests. For one event loop."""
        async with self._reading:
            return await run_to_the_end(partial(self.read, content_type, headers, body, repeatable))

    # ── modes ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _structured(self, body: bytes) -> DecodedEvent | InvalidEvent:
        try:
            return self._from_object(decode(body))
        except (MalformedJson, InvalidEvent) as error:
            return _kept(error)

    def _batch(self, body: bytes) -> list[DecodedEvent | InvalidEvent]:
        try:
            items = decode(body)
        except TooDeepJson:
            raise
        except MalformedJson as error:
            items = _parts_of_batch(body, error)
        if not isinstance(items, list):
            raise BadRequestMode("a batch is a JSON array of events")
        self.check_count(len(items))
        events: list[DecodedEvent | InvalidEvent] = []
        left = MOST_PROBLEMS
        for item in items:
            try:
                item = decode(bytes(item)) if isinstance(item, msgspec.Raw) else item
                events.append(self._from_object(item, most=max(1, min(left, MOST_OF_ONE))))
            except (MalformedJson, InvalidEvent) as error:
                events.append(found := _kept(error))
                left -= len(found.problems)
        return events

    def _lines(self, body: bytes, given: Mapping[str, str], prefix: str | None) -> Decoded:
        if "id" in given:
            raise BadRequestMode("ce-id would give every line the same id: put the id into each line, or leave it out")
        numbered = list(itertools.islice(numbered_lines(body), self.max_events + 1))
        self.check_count(len(numbered))
        plain = _Plain(checked_context({**DEFAULTS, **given}, partial=True)) if given else _PLAIN
        events: list[DecodedEvent | InvalidEvent] = []
        left = MOST_PROBLEMS
        for number, line in numbered:
            try:
                value = decode(line)
                if _is_event(value):
                    events.append(self._from_object(value, most=max(1, min(left, MOST_OF_ONE))))
                else:
                    events.append(self._from_data(value, plain, id=prefix and f"{prefix}-{number}"))
            except (MalformedJson, InvalidEvent) as error:
                events.append(found := _kept(error))
                left -= len(found.problems)
        return Decoded(events=events, single=False, lines=[number for number, _ in numbered], prefix=prefix)

    def _binary(
        self, content_type: str, media_type: str, given: Mapping[str, str], body: bytes, id: str | None
    ) -> DecodedEvent | InvalidEvent:
        """Reads binary mode, and plain JSON, which is binary mode without its headers. `id` is for an event without
        one."""
        if "datacontenttype" in given:
            raise BadRequestMode("in binary mode Content-Type says what the data is: leave ce-datacontenttype out")
        try:
            if not given and body and _is_json(media_type) and media_type not in READ_BY_TYPE:
                data = decode(body)
                return self._from_data(data, _PLAIN, (_LOOKS_STRUCTURED,) if _is_event(data) else (), id)
            if "specversion" in given:
                context = checked_context(given)
            else:
                context = checked_context({"specversion": SPECVERSION, **DEFAULTS, **given}, partial=True)
            if content_type and (given or not _is_json(media_type) or media_type in READ_BY_TYPE):
                context["datacontenttype"] = content_type
            enveloped = "id" in context
            if not enveloped and media_type in GRAPH_TYPES:  # the same document is the same event (rule 21)
                context["id"] = hashlib.blake2b(body, digest_size=16).hexdigest()
            elif not enveloped and id is not None:
                context["id"] = id
            notes: tuple[Note, ...] = ()
            if not body:
                members = {}
            elif _is_json(media_type):
                data = decode(body)
                if not given and not isinstance(data, dict) and media_type != JSON_LD:
                    raise InvalidEvent([_NO_OBJECT])
                if not given and _is_event(data):
                    notes = (_LOOKS_STRUCTURED,)
                members = {"data": data}
            elif media_type in RDF_TYPES:
                members = {"data": _rdf_text(body)}
            else:
                members = _opaque(media_type, body)
            return self._made(context, members, notes, enveloped=enveloped)
        except (MalformedJson, InvalidEvent) as error:
            return _kept(error)

    # ── one event ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _from_object(self, value: Any, *, most: int = MOST_PROBLEMS) -> DecodedEvent:
        """Reads a CloudEvent in the JSON format. Raises `InvalidEvent` with at most so many problems."""
        if not isinstance(value, dict):
            raise InvalidEvent([Problem("no-object", "an event is a JSON object", at_member(""))])
        context = checked_context({name: member for name, member in value.items() if name not in _RESERVED}, most=most)
        members: dict[str, Any] = {}
        media_type = media_type_of(str(context.get("datacontenttype", "")))
        if value.get("data_base64") is not None:
            if value.get("data") is not None:
                raise InvalidEvent(
                    [Problem("two-data", "an event must not have both data and data_base64", at_member("data_base64"))]
                )
            members = _from_base64(value["data_base64"], media_type)
        elif "data" in value:
            members = {"data": value["data"]}
        return self._made(context, members, data_at="/data")

    def _from_data(self, data: Any, plain: _Plain, notes: tuple[Note, ...] = (), id: str | None = None) -> DecodedEvent:
        """Makes an event from plain data, like `_made` but faster. Without `id` it gets a new one."""
        if not isinstance(data, dict):
            raise InvalidEvent([_NO_OBJECT])
        ours = id is None
        id = id or self._next_id()
        try:
            body = b'%b,"id":"%b","data":%b}' % (plain.head, id.encode(), _ENCODER.encode(data))
            content = b'[%b,{"data":%b}]' % (plain.rest, _SORTING_ENCODER.encode(data))
        except RecursionError:
            raise _too_deep() from None
        return DecodedEvent(
            source=plain.context["source"],
            id=id,
            type=plain.context["type"],
            body=body.decode(),
            digest=hashlib.blake2b(content, digest_size=16).hexdigest(),
            event=Event(data, {**plain.context, "id": id}),
            id_is_ours=ours,
            enveloped=False,
            notes=notes,
        )

    def _next_id(self) -> str:
        return f"{self._prefix}-{next(self._numbers):010x}"

    def _made(
        self,
        context: dict[str, Any],
        members: Mapping[str, Any],
        notes: tuple[Note, ...] = (),
        *,
        enveloped: bool = True,
        data_at: str = "",
    ) -> DecodedEvent:
        ours = "id" not in context
        if ours:
            context["id"] = self._next_id()
        rest = {name: value for name, value in context.items() if name not in NOT_DIGESTED}
        try:
            body = _ENCODER.encode({**context, **members})
            content = _SORTING_ENCODER.encode([rest, members])
        except RecursionError:
            raise _too_deep() from None
        return DecodedEvent(
            source=context["source"],
            id=context["id"],
            type=context["type"],
            body=body.decode(),
            digest=hashlib.blake2b(content, digest_size=16).hexdigest(),
            event=Event(members.get("data"), context),
            id_is_ours=ours,
            enveloped=enveloped and not ours,
            notes=(*notes, _NO_ATTRIBUTES) if "data_base64" in members else notes,  # the matcher gets no data
            data_at=data_at,
        )

    def check_count(self, count: int) -> None:
        """Raises `TooManyEvents` if there are more events than a request may have."""
        if count > self.max_events:
            raise TooManyEvents(f"the request holds more than {self.max_events:,} events: send fewer at a time")


def with_digest_as_id(event: DecodedEvent) -> DecodedEvent:
    """Returns an event whose id was generated here with its digest as its id. The context is before the data in its
    body, and has no quotes within texts, so the first such member is the id."""
    body = event.body.replace(f'"id":"{event.id}"', f'"id":"{event.digest}"', 1)
    told = Event(event.event.data, {**event.event.context, "id": event.digest})
    return msgspec.structs.replace(event, id=event.digest, body=body, event=told, id_is_ours=False)


def digest_of(body: str | bytes, without: Collection[str] = NOT_DIGESTED) -> str | None:
    """Returns the digest of a stored event, computed again from its body; None for a body that is no event."""
    try:
        whole = msgspec.json.decode(body)
        members = {name: whole.pop(name) for name in ("data", "data_base64") if name in whole}
        rest = {name: value for name, value in whole.items() if name not in without}
    except (msgspec.DecodeError, UnicodeError, AttributeError):
        return None
    content = msgspec.json.encode([rest, members], order="deterministic")
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def is_whole(body: str | bytes, digest: str) -> bool:
    """Whether a stored event is unchanged. In earlier versions the digest included traces, too."""
    return digest_of(body) == digest or digest_of(body, NAMES) == digest


# ── data ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _is_event(value: Any) -> bool:
    return isinstance(value, dict) and "specversion" in value


def _is_json(media_type: str) -> bool:
    """Whether data of this type is JSON, which is the default of CloudEvents."""
    return media_type in ("", "application/json", "text/json") or media_type.endswith("+json")


def _rdf_text(body: bytes) -> str:
    """Returns the text of an RDF document. Raises `InvalidEvent`."""
    try:
        return body.decode()
    except UnicodeDecodeError:
        raise InvalidEvent([Problem("malformed-rdf", "RDF is text in UTF-8", at_member("data"))]) from None


def _opaque(media_type: str, body: bytes) -> dict[str, Any]:
    """Returns data that is no JSON: text as text, everything else as base64."""
    if media_type.startswith("text/"):
        try:
            return {"data": body.decode()}
        except UnicodeDecodeError:
            pass
    return {"data_base64": b64encode(body).decode("ascii")}


def _from_base64(encoded: Any, media_type: str) -> dict[str, Any]:
    """Returns `data_base64` unchanged. JSON and RDF inside it become `data`."""
    try:
        raw = b64decode(encoded, validate=True)
    except (ValueError, TypeError):
        raise InvalidEvent([Problem("bad-base64", "data_base64 is not base64", at_member("data_base64"))]) from None
    if media_type in RDF_TYPES:
        return {"data": _rdf_text(raw)}
    if media_type and _is_json(media_type):
        try:
            return {"data": decode(raw)}
        except MalformedJson as error:
            raise InvalidEvent([Problem(error.code, str(error), at_member("data_base64"))]) from None
    return {"data_base64": encoded}


def _parts_of_batch(body: bytes, error: MalformedJson) -> list[msgspec.Raw]:
    """Returns the texts of the events of a batch of which one has a value that no event may have, such as `1e400`.
    Raises `BadRequestMode` with the `error` of the whole batch if it is no array of JSON values."""
    try:
        return msgspec.json.decode(body, type=list[msgspec.Raw])
    except (msgspec.DecodeError, UnicodeError):
        raise BadRequestMode(str(error)) from None


def _too_deep() -> InvalidEvent:
    return InvalidEvent([Problem("too-deep", "the data is nested too deeply", at_member("data"))])


def _kept(error: MalformedJson | InvalidEvent) -> InvalidEvent:
    """Returns the error of an event that cannot be read, without its traceback. The frames of the traceback would keep
    in memory what was read."""
    if isinstance(error, InvalidEvent):
        return error.with_traceback(None)
    return InvalidEvent([Problem(error.code, error.detail, Position(pointer=error.pointer) if error.pointer else None)])


# ── CloudEvents `filters`, translated to expression trees of the subscription language ────────────────────────────────
#
# These are the six dialects that every CloudEvents subscription service must support, and ours: `semantic`, by its
# short name or as `https://kindcast.dev/dialects/semantic/v1`. Its value is a text or a tree of the subscription
# language.
#
#     [{"exact": {"type": "com.example.offer"}}, {"semantic": "target isa Computer"}]
#         ──▶ {"all": [{"=": ["ce.type", "com.example.offer"]}, {"isa": ["target", "Computer"]}]}
#
# The `not` of the dialects is plain negation: it holds if the attribute is absent, unlike ours (rule 8 of
# matching-semantics.md). So `not` is pushed down here, and each negated test becomes `missing or not …`.

SEMANTIC_DIALECT = "https://kindcast.dev/dialects/semantic/v1"

DEPTH = 32  # nesting of all, any and not; the language also limits the resulting tree
_TESTS = {"exact": "=", "prefix": "startswith", "suffix": "endswith"}
_GROUPS = ("all", "any", "not")
DIALECTS = (*_TESTS, *_GROUPS)
"""The dialects that CloudEvents requires."""
_KNOWN = (*DIALECTS, "semantic")
_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,9}")

Tree = dict[str, Any]


def filters_to_tree(filters: Any) -> Tree:
    """Returns the tree of filters that must all hold. No filters give the tree that always holds. Raises
    `InvalidSubscription` with every problem."""
    translation = _Translation()
    tree = translation.group(filters, "/filters", negated=False, joined="all", depth=0)
    if translation.problems:
        raise InvalidSubscription(translation.problems)
    return tree


class _Translation:
    """Translates the filters and collects the problems."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def group(self, items: Any, pointer: str, *, negated: bool, joined: str, depth: int) -> Tree:
        """Translates a list of filters. Negation turns `all` into `any` (De Morgan)."""
        if not isinstance(items, list):
            return self._refuse("an array of filters is expected", pointer)
        if depth > DEPTH:
            return self._refuse(f"filters are nested deeper than {DEPTH} levels", pointer)
        if negated:
            joined = "any" if joined == "all" else "all"
        trees = [self.one(item, f"{pointer}/{index}", negated=negated, depth=depth) for index, item in enumerate(items)]
        return trees[0] if len(trees) == 1 else {joined: trees}

    def one(self, item: Any, pointer: str, *, negated: bool, depth: int) -> Tree:
        """Translates one filter, an object with one dialect."""
        if not isinstance(item, dict) or len(item) != 1:
            return self._refuse("a filter is an object with one member, its dialect", pointer)
        dialect, value = next(iter(item.items()))
        inside = f"{pointer}/{dialect.replace('~', '~0').replace('/', '~1')}"
        if dialect in _TESTS:
            return self._tests(dialect, value, inside, negated=negated)
        if dialect in ("all", "any"):
            if value == []:
                return self._refuse(f"{dialect} needs at least one filter", inside)
            return self.group(value, inside, negated=negated, joined=dialect, depth=depth + 1)
        if dialect == "not":
            if depth >= DEPTH:
                return self._refuse(f"filters are nested deeper than {DEPTH} levels", inside)
            return self.one(value, inside, negated=not negated, depth=depth + 1)
        if dialect in ("semantic", SEMANTIC_DIALECT):
            return self._semantic(value, inside, negated=negated)
        if dialect == "sql":
            return self._refuse("the dialect sql is not in this version", inside)
        return self._refuse(f"unknown dialect {dialect[:100]!r}; known are {', '.join(_KNOWN)}", inside)

    def _tests(self, dialect: str, value: Any, pointer: str, *, negated: bool) -> Tree:
        """Translates `{"exact": {attribute: value, …}}`, of which every pair must hold."""
        if not isinstance(value, dict) or not value:
            return self._refuse(f"{dialect} needs an object of attribute names and values", pointer)
        trees = []
        for name, text in value.items():
            if not _NAME.fullmatch(name):
                self._refuse(f"{name[:100]!r} is not a context attribute: use lower-case letters and digits", pointer)
            elif name == "data":
                detail = f"{dialect} compares context attributes, not the data: use the dialect semantic for the data"
                self._refuse(detail, pointer)
            elif not isinstance(text, str) or not text:
                self._refuse("the value must be a non-empty text", f"{pointer}/{name}")
            else:
                trees.append(_test(dialect, f"ce.{name}", text, negated=negated))
        return trees[0] if len(trees) == 1 else {"any" if negated else "all": trees}

    def _semantic(self, value: Any, pointer: str, *, negated: bool) -> Tree:
        """Translates our own language, with its own `not`."""
        if not isinstance(value, str | Mapping):
            return self._refuse("the dialect semantic needs a text or a tree of the subscription language", pointer)
        try:
            tree: Tree = to_tree(parse(value))
        except InvalidSubscription as error:
            self.problems.extend(_moved(problem, pointer) for problem in error.problems)
            return {}
        return {"not": tree} if negated else tree

    def _refuse(self, detail: str, pointer: str) -> Tree:
        self.problems.append(Problem("bad-filter", detail, Position(pointer=pointer)))
        return {}


def _test(dialect: str, attribute: str, text: str, *, negated: bool) -> Tree:
    """Returns one comparison. Dialects compare the canonical text of a value, but our language distinguishes "5" and 5,
    so `exact` tests both. A text such as `?n` is no variable here."""
    test: Tree = {_TESTS[dialect]: [attribute, {"value": text} if dialect == "exact" else text]}
    if dialect == "exact" and _INTEGER.fullmatch(text):
        test = {"in": [attribute, [text, int(text)]]}
    elif dialect == "exact" and text in ("true", "false"):
        test = {"in": [attribute, [text, text == "true"]]}
    return {"any": [{"missing": attribute}, {"not": test}]} if negated else test


def _moved(problem: Problem, pointer: str) -> Problem:
    """Returns the problem with its place in the whole request. A place inside a text becomes part of the message."""
    at = problem.at
    if at is None or at.pointer is None:
        detail = f"{at}: {problem.detail}" if at else problem.detail
        return Problem(problem.code, detail, Position(pointer=pointer), problem.suggestions)
    return Problem(problem.code, problem.detail, Position(pointer=pointer + at.pointer), problem.suggestions)
