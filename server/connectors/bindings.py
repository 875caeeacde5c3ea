"""CloudEvents in broker messages: the protocol bindings, and how other messages become events.

    content type application/cloudevents+json    structured: the body is the event
    the attributes are beside the body         binary: each attribute is a header, the body is the data
    anything else that is JSON                   plain: a CloudEvent by its `specversion`, else the data of one

This module uses no client library and no connection. `Content` represents the message of any broker.
"""

import re
from base64 import b64decode, b64encode
from codecs import BOM_UTF8
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, unquote

import msgspec

__all__ = [
    "AMQP",
    "DEFAULT_TYPE",
    "KAFKA",
    "MQTT",
    "NATS",
    "NO_HEADER",
    "REDIS",
    "STRUCTURED",
    "BadMessage",
    "Binding",
    "Content",
    "Plain",
    "header_text",
]

STRUCTURED = "application/cloudevents+json"
MOST_HEADER_BYTES = 60_000
"""The maximum size of the headers of a message that we send. MQTT allows 65,535 bytes for each, and RabbitMQ by default
131,072 for all."""
NO_HEADER = re.compile(
    "[\x00-\x1f\x7f-\x9f\ufdd0-\ufdef"
    + "".join(f"{chr(end - 1)}{chr(end)}" for end in range(0xFFFF, 0x110000, 1 << 16))
    + "]"
)
"""Control characters and noncharacters of Unicode. A broker of MQTT may close the connection of a client that sends one
in a property or a topic."""
DEFAULT_TYPE = "kindcast.event"
"""The type of events without one, the same as the default of the server."""


class BadMessage(ValueError):
    """The message is no event. The text gives the reason."""


@dataclass(frozen=True, slots=True)
class Content:
    """The content of a message of any protocol. `content_type` is None or empty if there is none. `headers` are user
    properties, application properties or headers. `problem`: why the message cannot be read; empty if it can."""

    body: bytes
    content_type: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plain:
    """The attributes that an event gets from its message if it is no CloudEvent. `more` are extension attributes for
    every event that does not have them."""

    id: str
    source: str
    type: str = DEFAULT_TYPE
    time: str | None = None
    more: Mapping[str, str | int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Binding:
    """How a protocol names and encodes the attributes in binary mode. `prefixes` are accepted when reading; the first
    is written. `percent`: values are percent-encoded, as in HTTP. `content_type_is_data`: the content type of the
    message is `datacontenttype`, which is otherwise among the headers."""

    prefixes: tuple[str, ...]
    percent: bool = False
    content_type_is_data: bool = True

    def event(self, content: Content, plain: Plain) -> msgspec.Raw:
        """Returns the event of a message as JSON. Raises `BadMessage`.

        >>> bytes(MQTT.event(Content(b'{"a": 1}'), Plain(id="7", source="mqtt://host/t")))[:52]
        b'{"specversion":"1.0","id":"7","source":"mqtt://host/'
        """
        if content.problem:
            raise BadMessage(content.problem)
        kind = (content.content_type or "").partition(";")[0].strip().lower()
        body = content.body.removeprefix(BOM_UTF8)
        if kind == STRUCTURED:
            return _with(body, _object(body), plain.more)
        if kind.startswith("application/cloudevents"):
            raise BadMessage(f"{kind} cannot be read; a message must have one event, as {STRUCTURED} or in binary mode")
        for prefix in self.prefixes:
            if f"{prefix}specversion" in content.headers:
                return self._binary(content, prefix, plain.more)
        if not body:
            raise BadMessage("the message is empty")
        data = _json(body)
        if isinstance(data, dict) and "specversion" in data:
            return _with(body, data, plain.more)
        filled = {"specversion": "1.0", "id": plain.id, "source": plain.source, "type": plain.type}
        if plain.time is not None:
            filled["time"] = plain.time
        if content.content_type is not None and kind.endswith("+json"):
            filled["datacontenttype"] = content.content_type
        return _encoded(filled | dict(plain.more), msgspec.Raw(body))

    def binary(self, event: bytes) -> Content:
        """Returns the message of an event in binary mode, or in structured mode if headers cannot hold its
        attributes."""
        attributes: dict[str, Any] = msgspec.json.decode(event, type=dict[str, msgspec.Raw])
        data, encoded = attributes.pop("data", None), attributes.pop("data_base64", None)
        context = {name: msgspec.json.decode(value) for name, value in attributes.items()}
        kind = str(context.get("datacontenttype", "application/json"))
        body = b64decode(msgspec.json.decode(encoded)) if encoded is not None else bytes(data or b"")
        if data is not None and not _is_json(kind) and isinstance(text := msgspec.json.decode(data), str):
            body = text.encode()
        if self.content_type_is_data:
            context.pop("datacontenttype", None)
        headers = {self.prefixes[0] + name: self._written(value) for name, value in context.items()}
        size = sum(len(name) + len(value.encode()) for name, value in headers.items())
        if size > MOST_HEADER_BYTES or any(map(NO_HEADER.search, (kind, *headers.values()))):
            return Content(event, STRUCTURED)
        return Content(body, kind if self.content_type_is_data else None, headers)

    def _binary(self, content: Content, prefix: str, more: Mapping[str, str | int]) -> msgspec.Raw:
        names = {name: value for name, value in content.headers.items() if name.startswith(prefix)}
        if not prefix:  # other properties than attributes may be there, too
            names = {name: value for name, value in names.items() if _ATTRIBUTE.fullmatch(name)}
        context: dict[str, Any] = {name[len(prefix) :]: self._read(value) for name, value in names.items()}
        if content.content_type:
            context.setdefault("datacontenttype", content.content_type)
        context = dict(more) | context
        kind = str(context.get("datacontenttype", "application/json"))
        if not content.body:
            return msgspec.Raw(msgspec.json.encode(context))
        if _is_json(kind):
            body = content.body.removeprefix(BOM_UTF8)
            _json(body)
            return _encoded(context, msgspec.Raw(body))
        try:
            return _encoded(context, content.body.decode())
        except UnicodeDecodeError:
            return msgspec.Raw(msgspec.json.encode(context | {"data_base64": b64encode(content.body).decode()}))

    def _read(self, value: str) -> str:
        if not self.percent:
            return value
        try:
            return header_text(value)
        except UnicodeDecodeError:
            raise BadMessage(f"the header value {value[:100]!r} is not percent-encoded UTF-8") from None

    def _written(self, value: Any) -> str:
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        return quote(text, safe=_VISIBLE) if self.percent else text


def header_text(value: str) -> str:
    """Returns the text in a header of HTTP or NATS. Senders of older versions of CloudEvents quote it, too. Raises
    `UnicodeDecodeError`.

    >>> header_text("Euro%20%E2%82%AC"), header_text('"Euro \\\\"%E2%82%AC\\\\""')
    ('Euro €', 'Euro "€"')
    """
    quoted = _QUOTED.fullmatch(value)
    return unquote(value if quoted is None else _ESCAPED.sub(r"\1", quoted[1]), errors="strict")


_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"\\(.)")
_ATTRIBUTE = re.compile(r"[a-z0-9]{1,64}")
_VISIBLE = "".join(chr(code) for code in range(0x21, 0x7F) if chr(code) not in '"%')

MQTT = Binding(("",))
"""In MQTT 5, user properties have the names of the attributes without a prefix."""
NATS = Binding(("ce-",), percent=True, content_type_is_data=False)
AMQP = Binding(("cloudEvents:", "cloudEvents_"))
KAFKA = Binding(("ce_",))
REDIS = Binding(("ce-", "ce_", ""))
"""CloudEvents has no binding for Redis, so the names of other bindings are accepted for the fields of an entry."""


def _is_json(kind: str) -> bool:
    bare = kind.partition(";")[0].strip().lower()
    return bare == "application/json" or bare.endswith(("+json", "/json"))


def _json(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadMessage(f"the body is not JSON: {error}") from None


def _object(body: bytes) -> dict[str, Any]:
    found = _json(body)
    if not isinstance(found, dict):
        raise BadMessage("a structured CloudEvent is a JSON object")
    return found


def _with(body: bytes, event: Mapping[str, Any], more: Mapping[str, str | int]) -> msgspec.Raw:
    """Returns the event unchanged, with the missing attributes added at its beginning."""
    missing = {name: value for name, value in more.items() if name not in event}
    if not missing:
        return msgspec.Raw(body)
    comma = b"," if event else b""
    return msgspec.Raw(msgspec.json.encode(missing)[:-1] + comma + body.lstrip().removeprefix(b"{"))


def _encoded(context: Mapping[str, Any], data: msgspec.Raw | str) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode({**context, "data": data}))
