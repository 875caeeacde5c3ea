"""The documents that describe the API: OpenAPI, with the types of all answers, and AsyncAPI, with all messages.

routes ──FastAPI──▶ paths, parameters, bodies ─┐
answers.ANSWERS ──pydantic──▶ JSON Schemas ────┼─▶ /openapi.json
                                               └─▶ /asyncapi.json
"""

from collections.abc import Callable
from functools import cache
from importlib.metadata import version
from typing import Any, Required

import msgspec
from fastapi import APIRouter, FastAPI, Request, Response
from pydantic import TypeAdapter
from starlette.routing import Route
from typing_extensions import TypedDict

from kindcast.server.answers import (
    ANSWERS,
    HEADERS,
    LIMITS,
    OF_ERRORS,
    ROUTE_HEADERS,
    Bytes,
    Lines,
    Message,
    ProblemDocument,
    Stream,
    Text,
    WatchedEvents,
)
from kindcast.server.api.http_protocol import WEBSOCKET_PATH
from kindcast.server.api.requests import answer
from kindcast.server.delivery.receiving import CLOUDEVENTS
from kindcast.server.security.permissions import Permission, needs_of

__all__ = [
    "asyncapi_document",
    "describe_answers",
    "openapi_route",
    "router",
]

JSON = "application/json"
REFERENCES = "#/components/schemas/{model}"
PLAIN = (Text, Lines, Bytes, Stream)
TENANT = {
    "name": "Kindcast-Tenant",
    "in": "header",
    "required": False,
    "schema": {"type": "string"},
    "description": "The tenant in which the request acts, for keys and tokens of all tenants.",
}
REQUEST_FAULTS = "422"
"""The framework's own description of refused requests. It is removed, because all our errors are problem documents,
described under `default`."""


def openapi_route(app: FastAPI) -> Route:
    """Returns the route of the OpenAPI document. The document is made and encoded once, without and with keys: anybody
    may ask for it, and the framework's own route encodes it on the event loop each time."""
    encoded: dict[bool, bytes] = {}

    async def get_openapi(request: Request) -> Response:
        has_keys = app.state.access is not None and app.state.access.ring.required
        if has_keys not in encoded:
            encoded[has_keys] = msgspec.json.encode(app.openapi())
        return Response(encoded[has_keys], media_type=JSON)

    return Route("/openapi.json", get_openapi, include_in_schema=False)


def describe_answers(app: FastAPI) -> Callable[[], dict[str, Any]]:
    """Returns a replacement of `app.openapi`."""
    made = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _with_answers(made())
        return app.openapi_schema

    return openapi


def _with_answers(document: dict[str, Any]) -> dict[str, Any]:
    schemas, definitions = _schemas()
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            route = f"{method.upper()} {path}"
            responses = operation["responses"]
            responses.pop(REQUEST_FAULTS, None)
            for status, kind in ANSWERS.get(route, {}).items():
                response = responses.setdefault(str(status), {"description": "Successful Response"})
                if isinstance(kind, PLAIN):
                    response["content"] = {str(kind): {"schema": _plain_schema(kind)}}
                elif kind is not None:
                    response["content"] = {JSON: {"schema": schemas[kind]}}
            _describe_headers(operation, route)
    components = document.setdefault("components", {})
    described = components.setdefault("schemas", {})
    described.update(definitions)
    for unused in ("HTTPValidationError", "ValidationError"):
        described.pop(unused, None)
    components["headers"] = {
        name: {"description": words, "schema": {"type": "string"}} for name, words in HEADERS.items()
    }
    components["parameters"] = {"tenant": TENANT}
    return document


def _plain_schema(kind: str) -> dict[str, Any]:
    if not isinstance(kind, Stream):
        return {"type": "string"}
    return {
        "type": "object",
        "description": "One event of the stream. `data` is JSON as text.",
        "properties": {
            "id": {"type": "string"},
            "event": {"enum": list(kind.events)},
            "data": {"type": "string"},
            "retry": {"type": ["integer", "string"]},
        },
    }


def _describe_headers(operation: dict[str, Any], route: str) -> None:
    """Adds the headers of the answers, and the header that every request with a key may have."""
    needs = needs_of(*route.split(" ", 1))
    with_key = needs is not None and Permission.PUBLIC not in needs
    if with_key:
        operation.setdefault("parameters", []).append({"$ref": "#/components/parameters/tenant"})
    for status, response in operation["responses"].items():
        names = OF_ERRORS if status == "default" else (*ROUTE_HEADERS.get(route, ()), *(LIMITS if with_key else ()))
        if names:
            response["headers"] = {name: {"$ref": f"#/components/headers/{name}"} for name in names}


class CloudEvent(TypedDict, total=False):
    """CloudEvents 1.0 in JSON, with any extension attributes. An attribute that is null is absent."""

    specversion: Required[str]
    id: Required[str]
    source: Required[str]
    type: Required[str]
    time: str | None
    subject: str | None
    datacontenttype: str | None
    dataschema: str | None
    data: Any
    data_base64: str | None


@cache
def _schemas() -> tuple[dict[Any, dict[str, Any]], dict[str, Any]]:
    """Returns the schema of each type, and the definitions that the schemas use."""
    kinds = {
        kind
        for statuses in ANSWERS.values()
        for kind in statuses.values()
        if kind is not None and not isinstance(kind, PLAIN)
    } | {ProblemDocument, CloudEvent}
    made, definitions = TypeAdapter.json_schemas(
        [(kind, "serialization", TypeAdapter(kind)) for kind in sorted(kinds, key=str)],
        ref_template=REFERENCES,
    )
    return {kind: schema for (kind, _), schema in made.items()}, definitions.get("$defs", {})


router = APIRouter(tags=["health"])


STREAM_PATH = "/v1/subscriptions/{id}/stream"
TAIL_PATH = "/v1/events/stream"


class Acknowledgement(TypedDict, total=False):
    """Acknowledges everything up to a cursor. `ticket` is that of the subscription, if the handshake did not have
    it."""

    ack: str
    ticket: str


class Acknowledged(TypedDict):
    acked: str


class Refused(TypedDict):
    problem: ProblemDocument


class Ended(TypedDict):
    end: str


class StreamEnded(TypedDict):
    reason: str


class Expiring(TypedDict):
    """The end time of the subscription, which is within a day."""

    expiring: str


class NoticeMessage(TypedDict):
    """A notice of the server about the subscription: an event whose type begins with `io.kindcast.subscription.`. It
    has no cursor."""

    event: CloudEvent
    bindings: list[Any]
    subscription: str
    vocabulary_version: None


PAYLOADS = {
    "event": (CloudEvent, "application/cloudevents+json", "An event, as it is published"),
    "events": (list[CloudEvent], "application/cloudevents-batch+json", "Several events in one request"),
    "match": (Message, JSON, "An event that a subscription gets"),
    "matches": (list[Message], JSON, "Several messages in one request, if `protocolsettings.batch` allows them"),
    "acknowledgement": (Acknowledgement, JSON, "The progress of a reader"),
    "acknowledged": (Acknowledged, JSON, "An acknowledgement is on disk"),
    "refused": (Refused, JSON, "What was wrong with a frame of a reader"),
    "expiring": (Expiring, JSON, "The subscription ends soon"),
    "notice": (NoticeMessage, JSON, "A test, or the notice that a subscription ends in a day"),
    "notices": (list[NoticeMessage], JSON, "Such a notice, if the subscription asks for batches: an array of one"),
    "ended": (Ended, JSON, "Why the connection ends"),
    "streamEnded": (StreamEnded, JSON, "Why the stream ends"),
    "watched": (WatchedEvents, JSON, "Accepted events, with the subscriptions that got them"),
}

SIGNED = {
    "signedMatch": "match",
    "signedMatches": "matches",
    "signedEvent": "event",
    "signedEvents": "events",
    "signedNotice": "notice",
    "signedNotices": "notices",
}
"""The message of a webhook → the same message without signature."""

WEBHOOK_HEADERS = {
    "type": "object",
    "required": ["webhook-id", "webhook-timestamp", "webhook-signature"],
    "properties": {
        "webhook-id": {"type": "string", "description": "The same on every attempt."},
        "webhook-timestamp": {"type": "string", "description": "Unix seconds of this attempt."},
        "webhook-signature": {"type": "string", "description": "Standard Webhooks: `v1,` and base64, one or more."},
        "traceparent": {"type": "string", "description": "W3C Trace Context, if the server records traces."},
    },
}


def _references(*messages: str) -> dict[str, Any]:
    return {name: {"$ref": f"#/components/messages/{name}"} for name in messages}


def _channel(address: str, server: str, *messages: str) -> dict[str, Any]:
    return {"address": address, "servers": [{"$ref": f"#/servers/{server}"}], "messages": _references(*messages)}


_ID = {"id": {"description": "The id of the subscription."}}
CHANNELS: dict[str, Any] = {
    "events": _channel("/v1/events", "http", "event", "events"),
    "stream": {**_channel(STREAM_PATH, "http", "match", "expiring", "streamEnded"), "parameters": _ID},
    "tail": _channel(TAIL_PATH, "http", "watched"),
    "websocket": {
        **_channel(
            WEBSOCKET_PATH,
            "websocket",
            *("match", "event", "acknowledgement", "acknowledged", "refused", "expiring", "ended"),
        ),
        "parameters": _ID,
        "description": f"With the subprotocol `{CLOUDEVENTS}` each message is the event itself.",
        "bindings": {"ws": {"method": "GET"}},
    },
    "webhook": {
        "address": None,
        "description": "The sink of a subscription. It receives matches, or with the format `cloudevents` "
        "events. If the subscription asks for batches, one request has several.",
        "messages": _references(*SIGNED),
    },
    "broker": {
        "address": None,
        "description": "The sink of a subscription at a message broker (MQTT, NATS, AMQP, Kafka). It receives "
        "events by the binding of CloudEvents for its protocol, in structured or binary mode.",
        "messages": _references("event"),
    },
}


def _operation(action: str, channel: str, *messages: str, method: str | None = None) -> dict[str, Any]:
    """Returns an operation with `messages` of a channel; without any, with all of them."""
    told: dict[str, Any] = {
        "action": action,
        "channel": {"$ref": f"#/channels/{channel}"},
        "messages": [
            {"$ref": f"#/channels/{channel}/messages/{name}"} for name in messages or CHANNELS[channel]["messages"]
        ],
    }
    return told if method is None else told | {"bindings": {"http": {"method": method}}}


OPERATIONS = {
    "publish": _operation("receive", "events", method="POST"),
    "stream": _operation("send", "stream", method="GET"),
    "watch": _operation("send", "tail", method="GET"),
    "push": _operation("send", "websocket", "match", "event", "acknowledged", "refused", "expiring", "ended"),
    "acknowledge": _operation("receive", "websocket", "acknowledgement"),
    "deliver": _operation("send", "webhook", method="POST"),
    "forward": _operation("send", "broker"),
}


@cache
def _components() -> dict[str, Any]:
    """Returns all messages with their schemas, which are the same for every server. Cost: some 10 ms."""
    made, definitions = TypeAdapter.json_schemas(
        [(name, "serialization", TypeAdapter(kind)) for name, (kind, _, _) in PAYLOADS.items()],
        ref_template="#/components/schemas/{model}",
    )
    messages: dict[str, Any] = {
        name: {"name": name, "title": title, "contentType": media_type, "payload": made[name, "serialization"]}
        for name, (_, media_type, title) in PAYLOADS.items()
    }
    for signed, plain in SIGNED.items():
        messages[signed] = {**messages[plain], "name": signed, "headers": WEBHOOK_HEADERS}
    for unsigned in ("matches", "notice", "notices"):
        del messages[unsigned]
    return {"schemas": definitions.get("$defs", {}), "messages": messages}


def asyncapi_document(host: str, *, secure: bool = False) -> dict[str, Any]:
    """Returns the document of a server with this host and port."""
    http, websocket = ("https", "wss") if secure else ("http", "ws")
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "kindcast",
            "version": version("kindcast"),
            "description": "How to publish events and how to receive matches. /openapi.json describes all other calls.",
        },
        "defaultContentType": JSON,
        "servers": {
            "http": {"host": host, "protocol": http},
            "websocket": {"host": host, "protocol": websocket, "protocolVersion": "13"},
        },
        "channels": CHANNELS,
        "operations": OPERATIONS,
        "components": _components(),
    }


@router.get("/asyncapi.json", summary="This interface as an AsyncAPI document")
async def get_asyncapi(request: Request) -> Response:
    """Returns the AsyncAPI document: the messages to and from the server, that is, events, messages and
    acknowledgements."""
    return answer(asyncapi_document(request.url.netloc, secure=request.url.scheme == "https"))
