"""Routes of notifications: what NGSI-LD brokers and ONE Record servers send to their subscribers, as events.

    NGSI-LD      {"type": "Notification", "data": [entities]}     of Orion-LD, Scorpio, Stellio, …
    ONE Record   {"@type": "api:Notification", "api:hasLogisticsObject": …}

Each entity or object becomes one event. Its data is the entity or object in JSON-LD, with the context from the
notification. Members of the notification itself become context attributes. The `id` is derived from that of the
notification, so a notification that is sent again is a duplicate.
"""

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

import msgspec
from fastapi import APIRouter, Header, Query, Request, Response

from kindcast.semantic import InvalidEvent, Position
from kindcast.semantic import Problem as Fault
from kindcast.semantic.units import is_date_time
from kindcast.server.api.access import caller_of, count_events
from kindcast.server.api.events import Accepted, matched_by
from kindcast.server.api.requests import (
    AppBroker,
    AppEventReader,
    answer,
    body_schema,
    check_encoding,
    turn_for_huge_body,
)
from kindcast.server.cloudevents import SPECVERSION, DecodedEvent, EventReader
from kindcast.server.strict_json import decode
from kindcast.server.worker_threads import run_to_the_end

__all__ = ["CORE_CONTEXT", "ngsi_ld_events", "one_record_events", "router"]

CORE_CONTEXT: Final = "https://uri.etsi.org/ngsi-ld/v1/ngsi-ld-core-context-v1.8.jsonld"
"""Added to every entity without it, because NGSI-LD includes it in each context."""
CORE_CONTEXTS: Final = "https://uri.etsi.org/ngsi-ld/v1/ngsi-ld-core-context"
JSON_LD: Final = "application/ld+json"
NO_SOURCE: Final = "urn:kindcast:ngsi-ld"
NOTIFICATION_TYPE: Final = "https://onerecord.iata.org/ns/api#Notification"
LOGISTICS_OBJECT: Final = "https://onerecord.iata.org/ns/cargo#LogisticsObject"
"""The class of all logistics objects. It is the type of an object if the notification says no other."""
MOST_LINKS: Final = 10_000
"""The maximum of a flattened notification with several objects: their number times the references between nodes."""

_LINK = re.compile(r'<([^<>]*)>\s*((?:;\s*[\w-]+\s*=\s*(?:"[^"]*"|[^\s",;]+)\s*)*)')
_CONTEXT_RELATION = re.compile(r';\s*rel\s*=\s*"?http://www\.w3\.org/ns/json-ld#context"?', re.IGNORECASE)


# ── NGSI-LD ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def ngsi_ld_events(
    body: Any, *, link: str | None = None, source: str | None = None, digest: str = ""
) -> list[dict[str, Any]]:
    """Returns a CloudEvent for each entity of an NGSI-LD notification. `link` is the header `Link`. `source` is that of
    the events, by default the subscription's id at the broker. `digest` is used as id of a notification without one.
    Cost: linear.

    Raises `InvalidEvent` if the body is no notification.

    >>> body = {"id": "urn:n:1", "type": "Notification", "data": [{"id": "urn:r:1", "type": "Room", "t": 21}]}
    >>> (event,) = ngsi_ld_events(body)
    >>> event["id"], event["type"], event["subject"]
    ('urn:n:1', 'Room', 'urn:r:1')
    """
    if not isinstance(body, Mapping) or _named(body, "type") != "Notification" or "data" not in body:
        raise _refused("an NGSI-LD notification must be an object of type Notification with the member data")
    entities = list(_entities(body["data"]))
    for index, entity in enumerate(entities):
        if not isinstance(entity, Mapping):
            raise _refused("an entity must be a JSON object", f"/data/{index}")
    subscription, notification = _text(body, "subscriptionId"), _text(body, "id", "@id") or digest
    shared = {
        "specversion": SPECVERSION,
        "source": source or subscription or NO_SOURCE,
        "datacontenttype": JSON_LD,
        "notificationid": notification or None,
        "subscriptionid": subscription or None,
        "time": _time(body),
    }
    shared = {name: value for name, value in shared.items() if value is not None}
    context = body.get("@context", _linked_context(link))
    known: dict[str, Any] = {}  # of the shared context: computed once for all entities
    events = []
    for index, entity in enumerate(entities):
        own = entity.get("@context")
        if own is None:
            if not known:
                known["@context"] = _with_core(context)
            data = {**known, **entity}
        else:
            data = {**entity, "@context": _with_core(own)}
        id, kind = _text(entity, "id", "@id"), _named(entity, "type") or "Entity"
        event = {**shared, "id": _event_id(notification, id, index, len(entities)), "type": kind, "data": data}
        if id:
            event["subject"] = id
        events.append(event)
    return events


def _entities(data: Any) -> Iterator[Any]:
    """Yields the entities of `data`: a list, a single entity, or the features of GeoJSON, whose properties are the
    attributes of the entity."""
    if isinstance(data, Mapping) and data.get("type") == "FeatureCollection":
        data = data.get("features", [])
    for each in data if isinstance(data, list) else [data]:
        if isinstance(each, Mapping) and each.get("type") == "Feature" and isinstance(each.get("properties"), Mapping):
            own = {"id": each["id"]} if "id" in each else {}
            context = {"@context": each["@context"]} if "@context" in each else {}
            yield {**context, **own, **each["properties"]}
        else:
            yield each


def _with_core(context: Any) -> Any:
    """Returns a context followed by the core context, unless that is included."""
    if context is None or context == [] or context == {}:
        return CORE_CONTEXT
    listed = context if isinstance(context, list) else [context]
    if any(isinstance(each, str) and each.startswith(CORE_CONTEXTS) for each in listed):
        return context
    return [*listed, CORE_CONTEXT]


def _linked_context(link: str | None) -> str | None:
    """Returns the URL of the context in a header `Link` (JSON-LD 1.1, section 6.1)."""
    for found in _LINK.finditer(link or ""):
        if _CONTEXT_RELATION.search(found[2]):
            return found[1]
    return None


def _time(body: Mapping[str, Any]) -> str | None:
    written = body.get("notifiedAt")
    return written if isinstance(written, str) and is_date_time(written) else None


# ── ONE Record ──────────────────────────────────────────────────────────────────────────────────────────────────────


def one_record_events(body: Any, *, source: str | None = None, digest: str = "") -> list[dict[str, Any]]:
    """Returns a CloudEvent for each logistics object of a ONE Record notification. The data is the object if it is
    embedded, else its IRI and type. A notification without an object, such as one about a request for a subscription,
    is itself the data. `source` is that of the events, by default the origin of the object's IRI.

    Raises `InvalidEvent` if the body is no notification.

    >>> body = {"@context": {"api": "https://onerecord.iata.org/ns/api#"}, "@type": "api:Notification",
    ...         "api:hasLogisticsObject": {"@id": "https://1r.example.com/logistics-objects/957e"},
    ...         "api:hasEventType": {"@id": "api:LOGISTICS_OBJECT_CREATED"}}
    >>> (event,) = one_record_events(body, digest="d1")
    >>> event["id"], event["source"], event["notificationtype"]
    ('d1', 'https://1r.example.com', 'LOGISTICS_OBJECT_CREATED')
    """
    nodes = list(_nodes(body))
    notifications = [each for each in nodes if "Notification" in map(_local, _listed(each.get("@type")))]
    if len(notifications) != 1:
        raise _refused("a ONE Record notification must be one JSON-LD object of the type Notification")
    node = notifications[0]
    described = {id: each for each in nodes if each is not node and (id := _text(each, "@id"))}
    links = {id: _references(each, described) for id, each in described.items()}
    members = {_local(name): value for name, value in node.items() if not name.startswith("@")}
    objects, kind = _objects(node, members)
    if len(objects) > 1 and len(objects) * sum(map(len, links.values())) > MOST_LINKS:
        raise _refused("the notification has too many objects that refer to too many others: send them one by one")
    said = {
        "notificationtype": _local(_scalar(members.get("hasEventType"))),
        "triggeredby": _scalar(members.get("isTriggeredBy")),
        "logisticsevent": _scalar(members.get("hasLogisticsEvent")),
        "changedproperties": " ".join(filter(None, map(_scalar, _listed(members.get("hasChangedProperty"))))),
    }
    notification = _text(node, "@id") or digest
    context = body.get("@context") if isinstance(body, Mapping) else None
    events = []
    for index, found in enumerate(objects):
        object = _described(_embedded(found), described, links)
        if "@type" not in object:
            object = {"@type": kind or LOGISTICS_OBJECT, **object}
        if context is not None and "@context" not in object:
            object = {"@context": context, **object}
        id = _text(object, "@id")
        event = {
            "specversion": SPECVERSION,
            "id": _event_id(notification, id, index, len(objects)),
            "source": source or _origin(id) or _origin(said["triggeredby"]) or "urn:kindcast:one-record",
            "type": kind or next(filter(None, map(_scalar, _listed(object["@type"]))), LOGISTICS_OBJECT),
            "datacontenttype": JSON_LD,
            **{name: value for name, value in said.items() if value},
            "data": object,
        }
        if id:
            event["subject"] = id
        events.append(event)
    return events


def _objects(node: Mapping[str, Any], members: Mapping[str, Any]) -> tuple[list[Any], str]:
    """Returns the objects of a notification and their type. A notification without an object is itself the object."""
    if objects := _listed(members.get("hasLogisticsObject")):
        return objects, _scalar(members.get("hasLogisticsObjectType"))
    if "hasEventType" not in members:
        raise _refused("the ONE Record notification has neither hasEventType nor hasLogisticsObject")
    return [node], NOTIFICATION_TYPE


def _embedded(found: Any) -> dict[str, Any]:
    """Returns an object of a notification; one with only its IRI if it is a reference."""
    object = dict(found) if isinstance(found, Mapping) else {"@id": found}
    if isinstance(object.get("@id"), list | Mapping) or not all(isinstance(name, str) for name in object):
        raise _refused("an object must be embedded or have an IRI")
    return object


def _nodes(body: Any) -> Iterator[Mapping[str, Any]]:
    """Yields the top-level nodes of a document: an object, those in lists (the expanded form), and those in `@graph`
    (the flattened form)."""
    waiting = [body]
    while waiting:
        each = waiting.pop()
        if isinstance(each, list):
            waiting.extend(reversed(each))
        elif isinstance(each, Mapping) and "@type" not in each and "@graph" in each:
            waiting.append(each["@graph"])
        elif isinstance(each, Mapping):
            yield each


def _references(value: Any, described: Mapping[str, Any]) -> dict[str, None]:
    """Returns the nodes of `described` that a value refers to. Linear."""
    found: dict[str, None] = {}
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, Mapping):
            if (id := _text(each, "@id")) in described:
                found[id] = None
            waiting.extend(each.values())
        elif isinstance(each, list):
            waiting.extend(each)
    return found


def _described(
    object: Mapping[str, Any], described: Mapping[str, Any], links: Mapping[str, Mapping[str, None]]
) -> dict[str, Any]:
    """Returns an object with its members from the other nodes of the document. The nodes that it refers to, directly or
    through others, are beside them under `@included`."""
    root = _text(object, "@id")
    object = {**described.get(root, {}), **object}
    included: dict[str, Any] = {}
    waiting = list(_references(object, described))
    while waiting:
        id = waiting.pop()
        if id != root and id not in included:
            included[id] = described[id]
            waiting.extend(links[id])
    return {**object, "@included": list(included.values())} if included else object


def _origin(iri: str) -> str:
    """Returns scheme and host of a URL; an empty text if it is no URL."""
    try:
        parts = urlsplit(iri)
    except ValueError:
        return ""
    return f"{parts.scheme}://{parts.netloc}" if parts.scheme in ("http", "https") and parts.netloc else ""


# ── both ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def digest_of(body: bytes) -> str:
    """Returns the id for a notification without an id: a digest."""
    return f"urn:kindcast:digest:{hashlib.blake2b(body, digest_size=16).hexdigest()}"


def _event_id(notification: str, entity: str, index: int, count: int) -> str:
    """Returns the id of an event (rule 21): that of the envelope if it has one event; else with the event's own id, or
    its index."""
    if count == 1:
        return notification
    return f"{notification}#{index}:{entity}" if entity else f"{notification}#{index}"


def _named(node: Mapping[str, Any], name: str) -> str:
    """Returns the first text in a member, which may also be named like a keyword (`@…`)."""
    return next((each for each in _listed(node.get(name, node.get(f"@{name}"))) if isinstance(each, str)), "")


def _text(node: Mapping[str, Any], *names: str) -> str:
    return next((value for name in names if isinstance(value := node.get(name), str) and value), "")


def _scalar(value: Any) -> str:
    """Returns the text of a value, a typed value or a reference, or of the first of several."""
    while isinstance(value, list | Mapping):
        value = (*value, "")[0] if isinstance(value, list) else value.get("@id", value.get("@value", ""))
    return value if isinstance(value, str) else "" if value is None else msgspec.json.encode(value).decode()


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _local(name: Any) -> str:
    """Returns the local name of a term, a CURIE or an IRI."""
    return re.split(r"[:#/]", name)[-1] if isinstance(name, str) else ""


def _refused(detail: str, pointer: str | None = None) -> InvalidEvent:
    return InvalidEvent([Fault("no-notification", detail, None if pointer is None else Position(pointer=pointer))])


# ── routes ────────────────────────────────────────────────────────────────────────────────────────────────────────────

router = APIRouter(prefix="/v1", tags=["events"])

Source = Annotated[
    str | None,
    Query(max_length=2_048, description="The source of the events, instead of the source in the notification."),
]
Verbose = Annotated[bool, Query(description="Whether the answer lists every event with its notes.")]
NOTIFICATION = {"type": "object"}


@router.post(
    "/ngsi-ld/notifications",
    summary="Publish a notification of an NGSI-LD broker",
    status_code=202,
    openapi_extra=body_schema(NOTIFICATION),
)
async def take_ngsi_ld(
    request: Request,
    broker: AppBroker,
    reader: AppEventReader,
    source: Source = None,
    verbose: Verbose = False,
    link: Annotated[str | None, Header(description="The context, as NGSI-LD brokers send it.")] = None,
) -> Response:
    """Accepts one event for each entity in `data`, all or none. The context is that of the entity, of the notification,
    or of the header `Link`; NGSI-LD's core context is added. A notification that is sent again is a duplicate."""
    return await _taken(
        request,
        broker,
        reader,
        verbose,
        lambda body, digest: ngsi_ld_events(body, link=link, source=source, digest=digest),
    )


@router.post(
    "/onerecord/notifications",
    summary="Publish a notification of a ONE Record server",
    status_code=202,
    openapi_extra=body_schema(NOTIFICATION),
)
async def take_one_record(
    request: Request, broker: AppBroker, reader: AppEventReader, source: Source = None, verbose: Verbose = False
) -> Response:
    """Accepts one event for the logistics object, with the data that the notification embeds, or else with its IRI and
    type. The members of the notification are in `ce.notificationtype`, `ce.triggeredby`, `ce.logisticsevent`,
    `ce.changedproperties`."""
    return await _taken(
        request, broker, reader, verbose, lambda body, digest: one_record_events(body, source=source, digest=digest)
    )


async def _taken(
    request: Request,
    broker: AppBroker,
    reader: EventReader,
    verbose: bool,
    events_of: Callable[[Any, str], list[dict[str, Any]]],
) -> Response:
    """Accepts the events of a notification in one transaction. Raises `InvalidEvent` if one cannot be read."""
    check_encoding(request.headers.get("content-encoding"))
    raw = await request.body()

    def read() -> list[DecodedEvent]:
        found = events_of(decode(raw), digest_of(raw))
        reader.check_count(len(found))
        return [reader.from_object(each) for each in found]

    await turn_for_huge_body(request)
    try:
        decoded = await run_to_the_end(read)
        count_events(request, len(decoded))
        most = caller_of(request).max_matches
        told = await broker.publish_together(decoded, verbose=verbose, max_matches=most)
    except InvalidEvent:
        broker.metrics.events_rejected.inc()
        raise
    duplicates = sum(each.duplicate for each in told)
    content = Accepted(
        accepted=len(told) - duplicates,
        duplicates=duplicates,
        matched=matched_by(told, broker.settings),
        rejected=[],
        events=told if verbose else None,
    )
    return answer(content, 202)
