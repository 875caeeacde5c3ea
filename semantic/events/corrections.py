"""Corrections: which revision of what an event is, and which earlier event it withdraws.

An event type says by annotations where that stands (`Correctable` of `semantic.vocabulary.event_types`): by names of
attributes as they are published, with dots between nested ones; `ce.` begins those of the context.

    EPCIS     {"subject": "eventID", "revision": "errorDeclaration.declarationTime", "retracts": "errorDeclaration"}
    STIX      {"subject": "id", "revision": "modified", "retracts": "revoked"}
    Undo      {"subject": "id", "retracts": ["object", "object.id"]}
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kindcast.semantic.model import Event, Node, Resource, TypedText
from kindcast.semantic.ontology.iris import local_name
from kindcast.semantic.units.instants import parse_instant
from kindcast.semantic.vocabulary.event_types import Correctable, EventType

__all__ = ["Correction", "correction_of", "is_newer", "text_at", "types_of", "values_at"]

MOST_WITHDRAWN = 100
"""Subjects that one event withdraws."""
_KEYWORDS = {"id": "@id", "type": "@type"}


@dataclass(frozen=True, slots=True)
class Correction:
    """What an event is about, in which revision (None: it has none), and the subjects that it withdraws."""

    subject: str
    revision: str | None = None
    withdraws: tuple[str, ...] = ()


def correction_of(event: Event, types: Mapping[str, EventType]) -> Correction | None:
    """The correction that an event is, by its declared types; None if none of them is correctable. Of several such
    types, the first in the order of their names that has something to say of a member says it. Linear in the names."""
    declared = sorted(name for name in types_of(event) if name in types)
    found = [each for name in declared if (each := types[name].correctable) is not None]
    if not found:
        return None
    subject = text_at(event, [each.subject for each in found if each.subject]) or str(event.context.get("id", ""))
    revision = text_at(event, [each.revision for each in found if each.revision])
    withdrawn = dict.fromkeys(name for each in found for name in _withdrawn(event, each, subject))
    return Correction(subject, revision, tuple(withdrawn)[:MOST_WITHDRAWN])


def is_newer(one: str | None, other: str | None) -> bool:
    """Whether a revision comes after another one: as date-times, as numbers, else as texts; one that has none does not.

    >>> is_newer("2026-01-01T00:00:00Z", "2026-01-01T02:00:00+01:00"), is_newer("10", "9"), is_newer(None, "1")
    (False, True, False)
    """
    if one is None or other is None:
        return False
    instants = parse_instant(one), parse_instant(other)
    if instants[0] is not None and instants[1] is not None:
        return instants[0] > instants[1]
    try:
        return float(one) > float(other)
    except ValueError:
        return one > other


def types_of(event: Event) -> set[str]:
    """The names of its types: that of the context, and what the data says as `@type`, or as the term `type` of a
    document with a context; IRIs also by their local names."""
    found = {str(event.context.get("type", ""))}
    data = event.data
    if isinstance(data, Mapping):
        names = ("@type", "type") if "@context" in data else ("@type",)
        found |= {text for name in names for text in map(_text, _listed(data.get(name))) if text}
    return found | {local_name(each) for each in found}


def _withdrawn(event: Event, declared: Correctable, subject: str) -> Iterator[str]:
    """The subjects that the event withdraws by one type: those that are named, or its own where the attribute only
    says that it does."""
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
    """The first text that is published under one of some dotted names."""
    return next((text for name in names for value in values_at(event, name) if (text := _text(value))), None)


def values_at(event: Event, name: str) -> list[Any]:
    """The values under a dotted name; elements of lists one by one."""
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
    """A scalar as text, an IRI for a resource; empty for anything else."""
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
