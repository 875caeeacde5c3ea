"""Splitting of documents with several events (docs/matching-semantics.md, rule 21), and corrections of earlier events.

    document ─▶ declared envelope?        ─▶ elements with their inherited members ─┐
                several nodes of a graph? ─▶ a document for each node ──────────────┴▶ events, each with an id

Each of several events becomes a document that states only this event: its element as published with its inherited
members, or the statements that are reached from its node, in N-Triples. If a part of a JSON-LD document would be
incomplete, because other parts describe its nodes too, the event is the whole document with `graphroot`.
"""

import hashlib
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple

import msgspec

from kindcast.semantic.errors import InvalidEvent, Problem
from kindcast.semantic.events.linked_data import RDF_TYPES, media_type_of
from kindcast.semantic.events.linked_data.reader import (
    DEEPEST,
    LONGEST_ROOT,
    ROOT,
    GraphReader,
    top_level,
    within_contexts,
)
from kindcast.semantic.model import Event, Node, Resource, TypedText
from kindcast.semantic.ontology.records import local_name
from kindcast.semantic.units.kinds import parse_instant
from kindcast.semantic.vocabulary.event_schemas import EventSchemas
from kindcast.semantic.vocabulary.event_types import ANY, Correctable, EventType, Path, Split, Splits

__all__ = [
    "MOST_TOGETHER",
    "Correction",
    "DocumentReader",
    "correction_key",
    "correction_of",
    "digest_of",
    "is_newer",
    "published_id",
    "text_at",
    "types_of",
    "values_at",
    "without_keywords",
]

MOST_TOGETHER = 64 << 20
"""The maximum size in bytes of all events of one document as they are stored, with their inherited members. It can be
large if each of many events has a large context, or repeats the whole document. An envelope within an envelope counts
in addition to its own events."""
MOST_SECONDS = 5.0
"""The maximum processor time in seconds for splitting one document."""
LONGEST_ID = 2_000
"""The maximum length in characters of an id. A longer id of an envelope is replaced by its digest."""
CONTEXT = "@context"
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class _Part(NamedTuple):
    """One event of a document, with its `@id` and revision if it has them."""

    event: Event
    name: str | None
    revision: str | None


class _Allowance:
    """The remaining cost that splitting a document may have: bytes of events, and seconds of this thread."""

    def __init__(self, seconds: float) -> None:
        self._bytes = MOST_TOGETHER
        self._seconds = seconds
        self._until = time.thread_time() + seconds

    def take(self, data: Any) -> None:
        """Counts one more event. Raises `InvalidEvent`: `too-many-values`, `reading-too-slow`."""
        self._bytes -= len(data) if isinstance(data, str) else len(msgspec.json.encode(data, enc_hook=str))
        if self._bytes < 0:
            detail = f"the split events of the document have more than {MOST_TOGETHER:,} bytes: send smaller documents"
            raise InvalidEvent([Problem("too-many-values", detail)])
        if time.thread_time() > self._until:
            detail = f"splitting the document takes longer than {self._seconds:.2g} s: send smaller documents"
            raise InvalidEvent([Problem("reading-too-slow", detail)])


class DocumentReader:
    """Splits documents under one vocabulary. Not thread-safe."""

    def __init__(self, graphs: GraphReader, splits: Splits, schemas: EventSchemas) -> None:
        self._graphs = graphs
        self._splits = splits
        self._schemas = schemas
        self._names = splits.names.union(path[0] for each in schemas.splits for path in each.members)

    def may_split(self, data: object) -> bool:
        """Whether data may be an envelope. Only checks its top-level names."""
        return type(data) is dict and not self._names.isdisjoint(data)

    def single(self, event: Event) -> Event:
        """Returns the only event of an envelope, or `event` itself if it is no envelope. Raises `InvalidEvent`:
        `several-events`, `no-event`."""
        while self.may_split(event.data):
            parts = self._elements(event)
            if parts is None:
                break
            if len(parts) > 1:
                detail = f"the document holds {len(parts):,} events: split it with `Matcher.events_of`"
                raise InvalidEvent([Problem("several-events", detail)])
            event = Event(parts[0].event.data, event.context)
        return event

    def published(self, event: Event) -> Event:
        """Returns the event in its published form, without the rest of its document: a JSON object, or the tree of RDF.
        Raises `InvalidEvent` for a document of several events."""
        event = self.single(event)
        if media_type_of(event.context) in RDF_TYPES:
            return self._graphs.read(event)[0]
        nodes = top_level(event.data)
        return Event(nodes[0], event.context) if len(nodes) == 1 else event

    def events_of(self, event: Event, digest: str | None = None, *, seconds: float = MOST_SECONDS) -> list[Event]:
        """Returns the events of a document, in order, or `event` itself if it is a single event.

        If `event` has an `id`, the ids of its events are that id, `#`, and their `@id` with the declared revision, or
        else their position. Without it, their ids are `@id` and revision, or else the digest of the document and the
        position; `digest` is by default the digest of its content. Linear, unless events share statements or a context.
        Limited to `seconds` of processor time of this thread. Raises `InvalidEvent`.
        """
        if isinstance(event.data, Node) or ROOT in event.context:
            return [event]
        parts = list(self._taken(event, 0, _Allowance(seconds)))
        if len(parts) == 1:
            return [event]
        envelope = str(event.context["id"]) if "id" in event.context else None
        if envelope is None and digest is None:
            digest = digest_of(event)
        seen: dict[str, tuple[str | None, str | None]] = {}
        events = []
        for position, part in enumerate(parts):
            id = _id_of(part, position, envelope, digest or "", seen)
            seen[id] = part.name, part.revision
            events.append(Event(part.event.data, {**part.event.context, "id": id}))
        return events

    # ── envelopes ───────────────────────────────────────────────────────────────────────────────────────────────

    def _taken(self, event: Event, depth: int, allowed: _Allowance) -> Iterator[_Part]:
        """Yields the events of a document, including those of envelopes within envelopes."""
        if depth > DEEPEST:
            raise InvalidEvent([Problem("too-deep", f"more than {DEEPEST} nested envelopes")])
        parts = self._elements(event) if self.may_split(event.data) else None
        if parts is None:
            yield from self._nodes(event, allowed)
            return
        for part in parts:
            allowed.take(part.event.data)
            within = list(self._taken(part.event, depth + 1, allowed))
            if len(within) == 1:  # a graph states its IRI in any syntax
                yield part._replace(name=within[0].name or part.name)
            else:
                yield from within

    def _elements(self, event: Event) -> list[_Part] | None:
        """Returns the elements of an envelope, each with its inherited members; None if `event` is no envelope. Raises
        `InvalidEvent` for an empty envelope, and for one with elements that are not objects."""
        for split in self._applying(event):
            for path in split.members:
                found = list(_walk(event.data, path, ()))
                if not found and not _is_there(event.data, path):
                    continue
                if found and not any(isinstance(element, Mapping) for element, _ in found):
                    continue  # only references: a collection that names its members
                where = ".".join(path)
                if not found:
                    raise InvalidEvent([Problem("no-event", f"the document has no event: {where} is empty")])
                if not all(isinstance(element, Mapping) for element, _ in found):
                    raise InvalidEvent([Problem("no-object", f"{where} must have only objects")])
                return [self._part(event, split, path, element, around) for element, around in found]
        return None

    def _applying(self, event: Event) -> Iterator[Split]:
        """Yields the declared envelopes that this may be, those of its types first."""
        if self._schemas.splits:
            types = types_of(event)
            yield from (each for each in self._schemas.splits if each.name in types and _holds(each, event))
        yield from (each for each in self._splits.all if _holds(each, event))

    def _part(
        self, event: Event, split: Split, path: Path, element: Mapping[str, Any], around: tuple[Any, ...]
    ) -> _Part:
        data = dict(element)
        for inherited in split.inherit:
            if inherited == (CONTEXT,):
                data = within_contexts(around, data)
            else:
                _inherit(data, inherited, path, around)
        part = Event(data, {name: value for name, value in event.context.items() if name != "id"})
        names = split.id or (("@id", "id") if CONTEXT in data else ())
        return self._named(part, text_at(part, names), text_at(part, split.revision))

    def _named(self, part: Event, name: str | None, revision: str | None) -> _Part:
        """Returns the part with its name and revision. Declared types may state the revision
        (`x-kindcast-revision`)."""
        if self._schemas.corrects:
            said = correction_of(part, self._schemas.types)
            if said is not None:
                name, revision = name or said.subject, said.revision or revision
        usable = name and len(name) <= LONGEST_ROOT and not _CONTROL.search(name)
        return _Part(part, name if usable else None, revision)

    # ── graphs ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _nodes(self, event: Event, allowed: _Allowance) -> Iterator[_Part]:
        """Yields the events of a graph, each as a document."""
        media_type = media_type_of(event.context)
        whole = Event(event.data, {name: value for name, value in event.context.items() if name != "id"})
        if not self._graphs.is_graph(event.data, media_type):
            yield _Part(whole, None, None)
            return
        roots = self._graphs.roots(event.data, media_type)
        if len(roots) < 2:
            named = [each for each in roots if not each.startswith("_:") and len(each) <= LONGEST_ROOT]
            yield _Part(whole, named[0] if named else None, None)
            return
        documents = self._graphs.documents_of(event.data, media_type, roots, allowed.take)
        for number, root in enumerate(roots):
            if documents is None:
                allowed.take(event.data)
            part = (
                Event(event.data, {**whole.context, ROOT: root})
                if documents is None
                else Event(documents[number], whole.context)
            )
            yield self._named(part, None if root.startswith("_:") else root, None)


def _id_of(
    part: _Part, position: int, envelope: str | None, digest: str, seen: Mapping[str, tuple[str | None, str | None]]
) -> str:
    """Returns the id of a part. Two parts have the same id only if they have the same name and the same revision: the
    second repeats the first."""
    id = _own_id(part, position, envelope, digest)
    if id in seen and (part.revision is None or seen[id] != (part.name, part.revision)):
        id = f"{id}#{position}"
        while id in seen:
            id += "'"
    return id


def _own_id(part: _Part, position: int, envelope: str | None, digest: str) -> str:
    own = None
    if part.name is not None and (part.revision is not None or envelope is not None):
        own = part.name if part.revision is None else f"{part.name}#{part.revision.replace('#', '%23')}"
        own = own if len(own) <= LONGEST_ID // 2 and not _CONTROL.search(own) else None
    if envelope is None:
        return own if own is not None else f"{digest}#{position}"
    if len(envelope) > LONGEST_ID // 2:
        envelope = hashlib.blake2b(envelope.encode(), digest_size=16).hexdigest()
    return f"{envelope}#{position if own is None else own}"


def digest_of(event: Event) -> str:
    """Returns the digest of the content of an event, which is everything except its `id` and `source`."""
    rest = {name: value for name, value in event.context.items() if name not in ("id", "source")}
    content = msgspec.json.encode([rest, {"data": event.data}], order="deterministic")
    return hashlib.blake2b(content, digest_size=16).hexdigest()


# ── paths ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _walk(node: Any, path: Path, around: tuple[Any, ...]) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """Yields the values at a path, each with the objects on the way. Elements of lists are separate values."""
    for each in node if isinstance(node, list) else (node,):
        if not path:
            if each is not None:
                yield each, around
        elif isinstance(each, Mapping) and path[0] in each:
            yield from _walk(each[path[0]], path[1:], (*around, each))


def _is_there(node: Any, path: Path) -> bool:
    """Whether a path leads to an empty list, or there is one on the way."""
    for name in path:
        if isinstance(node, list):
            return not node
        if not isinstance(node, Mapping) or name not in node:
            return False
        node = node[name]
    return isinstance(node, list) and not node


def _holds(split: Split, event: Event) -> bool:
    """Whether the event satisfies the condition `where` of the declaration."""
    return all(
        any(_says(name, text, value) for value in values_at(event, name) if isinstance(value, str) for text in texts)
        for name, texts in split.where
    )


def _says(name: str, text: str, value: str) -> bool:
    if name == "ce.datacontenttype":  # media types have no case
        text, value = text.lower(), value.lower()
    return value.startswith(text[:-1]) if text.endswith(ANY) else value == text


def _inherit(data: dict[str, Any], inherited: Path, path: Path, around: tuple[Any, ...]) -> None:
    """Adds an inherited member of the envelope under its own name, if the element does not have it. If the element and
    the member are in the same list, the member is that of the same element."""
    shared = 0
    while shared < min(len(inherited), len(path)) - 1 and inherited[shared] == path[shared]:
        shared += 1
    value = around[shared]
    for name in inherited[shared:]:
        if not isinstance(value, Mapping) or name not in value:
            return
        value = value[name]
    inner = data
    for name in inherited[:-1]:
        below = inner.get(name, {})
        if not isinstance(below, Mapping):
            return
        inner[name] = dict(below)
        inner = inner[name]
    inner.setdefault(inherited[-1], value)


def without_keywords(data: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a JSON-LD object without keywords except `@type`: the part that the schema of an event type describes."""
    return {name: value for name, value in data.items() if not name.startswith("@") or name == "@type"}


# ── corrections: the subject and revision of an event, and the earlier events that it withdraws ───────────────────────

# Annotations of an event type declare where these are (`Correctable` of `semantic.vocabulary.event_types`): by names of
# attributes as published, with dots for nested ones; names of the context begin with `ce.`.
#
#     EPCIS     {"subject": "eventID", "revision": "errorDeclaration.declarationTime", "retracts": "errorDeclaration"}
#     STIX      {"subject": "id", "revision": "modified", "retracts": "revoked"}
#     Undo      {"subject": "id", "retracts": ["object", "object.id"]}


MOST_WITHDRAWN = 100
"""The maximum number of subjects that one event withdraws."""
_KEYWORDS = {"id": "@id", "type": "@type"}
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]{1,3})?")
_BELOW_MICROSECONDS = re.compile(r"\.[0-9]{6}([0-9]+)")
KEY_SEPARATOR = "\x1f"
"""The separator of id and revision in the key that identifies an event. Neither contains control characters."""


@dataclass(frozen=True, slots=True)
class Correction:
    """The subject of an event, its revision (None: it has none), and the subjects that it withdraws."""

    subject: str
    revision: str | None = None
    withdraws: tuple[str, ...] = ()


def correction_of(event: Event, types: Mapping[str, EventType]) -> Correction | None:
    """Returns the correction that an event is, by its declared types; None if none of them is correctable. If there are
    several such types, each member is taken from the first type, in the order of their names, that has a value for it.
    Linear in the names."""
    declared = sorted(name for name in types_of(event) if name in types)
    found = [each for name in declared if (each := types[name].correctable) is not None]
    if not found:
        return None
    subject = text_at(event, [each.subject for each in found if each.subject]) or str(event.context.get("id", ""))
    revision = text_at(event, [each.revision for each in found if each.revision])
    withdrawn = dict.fromkeys(name for each in found for name in _withdrawn(event, each, subject))
    return Correction(subject, revision, tuple(withdrawn)[:MOST_WITHDRAWN])


def correction_key(id: str, revision: str | None) -> str:
    """Returns the key that identifies an event of a source: its id, and its revision if it has one. Revisions that are
    the same date-time or number have one key.

    >>> correction_key("urn:e:1", None), correction_key("urn:e:1", "1.0") == correction_key("urn:e:1", "1")
    ('urn:e:1', True)
    """
    if revision is None:
        return id
    match _read_revision(revision):
        case (instant, finer):
            revision = f"{instant}.{finer} date-time"
        case Decimal() as number:
            text = f"{number:f}"  # exact; `normalize` would round
            revision = (text.rstrip("0").rstrip(".") if "." in text else text) if number else "0"
    return f"{id}{KEY_SEPARATOR}{revision}"


def published_id(key: str) -> str:
    """Returns the id of an event from its key.

    >>> published_id(correction_key("urn:e:1", "2"))
    'urn:e:1'
    """
    return key.partition(KEY_SEPARATOR)[0]


def is_newer(one: str | None, other: str | None) -> bool:
    """Whether a revision comes after another one. Revisions are compared as date-times, as numbers, or else as texts. A
    missing revision is not newer.

    >>> is_newer("2026-01-01T00:00:00Z", "2026-01-01T02:00:00+01:00"), is_newer("10", "9"), is_newer(None, "1")
    (False, True, False)
    """
    if one is None or other is None:
        return False
    match _read_revision(one), _read_revision(other):
        case (tuple() as first, tuple() as second):
            return first > second
        case (Decimal() as first, Decimal() as second):
            return first > second
    return one > other


def _read_revision(text: str) -> tuple[int, str] | Decimal | str:
    """Returns a revision as a date-time (microseconds since 1970, and the digits below), as a number, or else as its
    text."""
    instant = parse_instant(text)
    if instant is not None:
        below = _BELOW_MICROSECONDS.search(text)
        return instant, "" if below is None else below[1].rstrip("0")
    return Decimal(text) if _NUMBER.fullmatch(text) else text


def types_of(event: Event) -> set[str]:
    """Returns the names of the types of an event: the context attribute, and `@type` in the data, or the term `type` in
    a document with a context. IRIs are also returned by their local names."""
    found = {str(event.context.get("type", ""))}
    data = event.data
    if isinstance(data, Mapping):
        names = ("@type", "type") if "@context" in data else ("@type",)
        found |= {text for name in names for text in map(_text, _listed(data.get(name))) if text}
    return found | {local_name(each) for each in found}


def _withdrawn(event: Event, declared: Correctable, subject: str) -> Iterator[str]:
    """Yields the subjects that the event withdraws by one type: the named subjects, or its own if the attribute only
    marks a withdrawal."""
    for name in declared.retracts:
        for value in values_at(event, name):
            if value is True or (isinstance(value, Mapping) and not _identity(value)):
                yield subject
            elif isinstance(value, Mapping):
                yield _identity(value)
            elif value is not False and (text := _text(value)):
                yield text


def _identity(node: Mapping[str, Any]) -> str:
    return next((text for name in ("@id", "id") if (text := _text(node.get(name)))), "")


def text_at(event: Event, names: Iterable[str]) -> str | None:
    """Returns the first text that is published under one of some dotted names."""
    return next((text for name in names for value in values_at(event, name) if (text := _text(value))), None)


def values_at(event: Event, name: str) -> list[Any]:
    """Returns the values under a dotted name. Elements of lists are separate values."""
    if name.startswith("ce."):
        return _listed(event.context.get(name[3:]))
    found = _listed(event.data)
    linked = isinstance(event.data, Mapping) and "@context" in event.data
    for step in name.split("."):
        found = [value for each in found if isinstance(each, Mapping) for value in _members(each, step, linked)]
    return found


def _members(node: Mapping[str, Any], step: str, linked: bool) -> Iterator[Any]:
    if step in node:
        yield from _listed(node[step])
        return
    is_graph = isinstance(node, Node)
    if (linked or is_graph) and _KEYWORDS.get(step, step) in node:
        yield from _listed(node[_KEYWORDS.get(step, step)])
    elif is_graph:
        for key, value in node.items():
            if key.startswith("<") and key.endswith(">") and local_name(key[1:-1]) == step:
                yield from _listed(value)
    elif linked:
        for key, value in node.items():
            if key.rpartition(":")[2] == step:
                yield from _listed(value)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _text(value: Any) -> str:
    """Returns a scalar as text, and the IRI of a resource; empty for anything else."""
    match value:
        case Resource():
            return value.iri or ""
        case TypedText():
            return value.text
        case bool() | None:
            return ""
        case str():
            return value
        case int() | float():
            return str(value)
        case {"@value": inner}:
            return _text(inner)
        case {"@id": str(inner)}:
            return inner
    return ""
