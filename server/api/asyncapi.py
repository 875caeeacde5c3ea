"""`/asyncapi.json`: what is sent to the server and by it, as an AsyncAPI 3 document.

    channel         address                               who acts
    events          /v1/events                            publishers send events
    stream          /v1/subscriptions/{id}/stream         the server sends messages (server-sent events)
    websocket       /v1/subscriptions/{id}/ws             the server sends messages, readers acknowledge
    webhook         the sink of a subscription            the server sends signed messages

The payloads are the types of `kindcast.server.answers`, as in the OpenAPI document.
"""

from functools import cache
from importlib.metadata import version
from typing import Any, Required

from fastapi import APIRouter, Request, Response
from pydantic import TypeAdapter
from typing_extensions import TypedDict

from kindcast.server.answers import Message, ProblemDocument
from kindcast.server.api.http_protocol import WEBSOCKET_PATH
from kindcast.server.api.requests import answer
from kindcast.server.delivery.websocket import CLOUDEVENTS

__all__ = ["asyncapi_document", "router"]

router = APIRouter(tags=["health"])

JSON = "application/json"
STREAM_PATH = "/v1/subscriptions/{id}/stream"


class Acknowledgement(TypedDict, total=False):
    """Acknowledges everything up to a cursor. `ticket`: of the subscription, where the handshake did not carry it."""

    ack: str
    ticket: str


class Acknowledged(TypedDict):
    acked: str


class Refused(TypedDict):
    problem: ProblemDocument


class Ended(TypedDict):
    end: str


class Expiring(TypedDict):
    """When the subscription ends: within a day."""

    expiring: str


class NoticeMessage(TypedDict):
    """What the server says of a subscription itself: an event whose type begins with `io.kindcast.subscription.`. It
    has no cursor."""

    event: "CloudEvent"
    bindings: list[Any]
    subscription: str
    vocabulary_version: None


class CloudEvent(TypedDict, total=False):
    """CloudEvents 1.0 in JSON, with any extension attributes."""

    specversion: Required[str]
    id: Required[str]
    source: Required[str]
    type: Required[str]
    time: str
    subject: str
    datacontenttype: str
    dataschema: str
    data: Any


PAYLOADS = {
    "event": (CloudEvent, "application/cloudevents+json", "An event, as it is published"),
    "events": (list[CloudEvent], "application/cloudevents-batch+json", "Several events in one request"),
    "match": (Message, JSON, "An event that a subscription gets"),
    "matches": (list[Message], JSON, "Several messages in one request, where `protocolsettings.batch` allows them"),
    "acknowledgement": (Acknowledgement, JSON, "How far a reader has come"),
    "acknowledged": (Acknowledged, JSON, "An acknowledgement is on disk"),
    "refused": (Refused, JSON, "What was wrong with a frame of a reader"),
    "expiring": (Expiring, JSON, "The subscription ends soon"),
    "notice": (NoticeMessage, JSON, "A test, or the news that a subscription ends in a day"),
    "ended": (Ended, JSON, "Why no more comes"),
}

SIGNED = {
    "signedMatch": "match",
    "signedMatches": "matches",
    "signedEvent": "event",
    "signedEvents": "events",
    "signedNotice": "notice",
}
"""What a webhook gets, and what it is without its signature."""

WEBHOOK_HEADERS = {
    "type": "object",
    "required": ["webhook-id", "webhook-timestamp", "webhook-signature"],
    "properties": {
        "webhook-id": {"type": "string", "description": "The same on every attempt."},
        "webhook-timestamp": {"type": "string", "description": "Unix seconds of this attempt."},
        "webhook-signature": {"type": "string", "description": "Standard Webhooks: `v1,` and base64, one or more."},
        "traceparent": {"type": "string", "description": "W3C Trace Context, where the server records traces."},
    },
}


@router.get("/asyncapi.json", summary="This interface as an AsyncAPI document")
async def get_asyncapi(request: Request) -> Response:
    """What is sent to the server and by it: events, messages, acknowledgements."""
    return answer(asyncapi_document(request.url.netloc, secure=request.url.scheme == "https"))


@cache
def _schemas() -> tuple[dict[Any, Any], dict[str, Any]]:
    """Those of all messages; they are the same for every server. Making them takes some 10 ms."""
    return TypeAdapter.json_schemas(
        [(name, "serialization", TypeAdapter(kind)) for name, (kind, _, _) in PAYLOADS.items()],
        ref_template="#/components/schemas/{model}",
    )


def asyncapi_document(host: str, *, secure: bool = False) -> dict[str, Any]:
    """The document of a server that is reached under this name and port."""
    made, definitions = _schemas()
    messages: dict[str, Any] = {
        name: {"name": name, "title": title, "contentType": media_type, "payload": made[name, "serialization"]}
        for name, (_, media_type, title) in PAYLOADS.items()
    }
    for signed, plain in SIGNED.items():
        messages[signed] = {**messages[plain], "name": signed, "headers": WEBHOOK_HEADERS}
    del messages["notice"], messages["matches"]
    http, websocket = ("https", "wss") if secure else ("http", "ws")
    id_parameter = {"id": {"description": "The id of the subscription."}}
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "kindcast",
            "version": version("kindcast"),
            "description": "What is published, and how matches reach subscribers. All other calls: /openapi.json.",
        },
        "defaultContentType": JSON,
        "servers": {
            "http": {"host": host, "protocol": http},
            "websocket": {"host": host, "protocol": websocket, "protocolVersion": "13"},
        },
        "channels": {
            "events": _channel("/v1/events", "http", "event", "events"),
            "stream": {**_channel(STREAM_PATH, "http", "match", "expiring", "ended"), "parameters": id_parameter},
            "websocket": {
                **_channel(
                    WEBSOCKET_PATH,
                    "websocket",
                    *("match", "acknowledgement", "acknowledged", "refused", "expiring", "ended"),
                ),
                "parameters": id_parameter,
                "description": f"With the subprotocol `{CLOUDEVENTS}` each message is the event itself.",
                "bindings": {"ws": {"method": "GET"}},
            },
            "webhook": {
                "address": None,
                "description": "The sink of a subscription: matches, or with the format `cloudevents` events; several "
                "in one request where the subscription asks for batches.",
                "messages": {name: {"$ref": f"#/components/messages/{name}"} for name in SIGNED},
            },
        },
        "operations": {
            "publish": _operation("receive", "events", "event", "events", http={"method": "POST"}),
            "stream": _operation("send", "stream", "match", "expiring", "ended", http={"method": "GET"}),
            "push": _operation("send", "websocket", "match", "acknowledged", "refused", "expiring", "ended"),
            "acknowledge": _operation("receive", "websocket", "acknowledgement"),
            "deliver": _operation("send", "webhook", *SIGNED, http={"method": "POST"}),
        },
        "components": {"schemas": definitions.get("$defs", {}), "messages": messages},
    }


def _channel(address: str, server: str, *messages: str) -> dict[str, Any]:
    return {
        "address": address,
        "servers": [{"$ref": f"#/servers/{server}"}],
        "messages": {name: {"$ref": f"#/components/messages/{name}"} for name in messages},
    }


def _operation(action: str, channel: str, *messages: str, http: dict[str, str] | None = None) -> dict[str, Any]:
    told: dict[str, Any] = {
        "action": action,
        "channel": {"$ref": f"#/channels/{channel}"},
        "messages": [{"$ref": f"#/channels/{channel}/messages/{name}"} for name in messages],
    }
    return told if http is None else told | {"bindings": {"http": http}}
