"""Messages to subscribers, the same for pull, stream and webhook: an event with the cursor and bindings of a match.

The event is stored as JSON text and sent unchanged. It is parsed only if the subscription chose some of its attributes.
So a message has the same bytes at every attempt, and costs one copy.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from sqlalchemy import Connection

from kindcast.server.clock import CLOCK, instant
from kindcast.server.errors import ServerError, UnknownSubscription
from kindcast.server.store.deliveries import NOTICE_SECONDS, StoredMatch, Subscriber, end_of_log, find_subscriber

__all__ = [
    "EXPIRY_NOTICE",
    "CursorGone",
    "InvalidCursor",
    "Notice",
    "Page",
    "as_cloudevent",
    "chosen",
    "encode",
    "expiring",
    "message_id",
    "message_of",
    "notice_as_cloudevent",
    "notice_of",
    "parse_cursor",
    "refuse_gone",
    "start_of",
    "subscriber_of",
]


# Cursors: the check of a reader's position, with one rule for pull, acknowledgement and stream.
#
# A cursor is the position of the last message that the reader has seen, as text. It is valid only for its own
# subscription. Text that cannot be a cursor of this server is refused, and so is a cursor before the oldest kept
# message, because continuing silently would hide a loss.

MAX_CURSOR_DIGITS = 18
"""The value is less than 2⁶³, so the store can hold it."""


class InvalidCursor(ServerError):
    """This is no cursor of this server. Use one from a message, or leave it out to go on where you acknowledged."""


class CursorGone(ServerError):
    """Messages after this cursor are older than the retention and were deleted. `oldest` is the cursor after which all
    messages are stored."""

    def __init__(self, after: int, oldest: int) -> None:
        super().__init__(
            f"messages after the cursor {after} are older than the retention and were deleted; "
            f"the oldest remaining message comes after {oldest}: continue with after={oldest}, or acknowledge {oldest}"
        )
        self.oldest = oldest


def subscriber_of(connection: Connection, id: str) -> Subscriber:
    """Returns the subscription with this id. Raises `UnknownSubscription`."""
    subscriber = find_subscriber(connection, id)
    if subscriber is None:
        raise UnknownSubscription(id)
    return subscriber


def parse_cursor(connection: Connection, text: str, end: int | None = None) -> int:
    """Returns the position that a cursor names. `end` is the end of the log, if it is known. Raises `InvalidCursor` for
    other text, and for a position that was not assigned yet."""
    if not (text.isascii() and text.isdigit()) or len(text) > MAX_CURSOR_DIGITS:
        raise InvalidCursor
    if int(text) > (end_of_log(connection) if end is None else end):
        raise InvalidCursor
    return int(text)


def start_of(connection: Connection, subscriber: Subscriber, after: str | None) -> int:
    """Returns the position to read after: that of the given cursor, else the acknowledged one. Raises `InvalidCursor`,
    `CursorGone`."""
    start = subscriber.start if after is None else parse_cursor(connection, after)
    refuse_gone(subscriber, start)
    return start


def refuse_gone(subscriber: Subscriber, start: int) -> None:
    """Raises `CursorGone` if messages after this position were deleted because of their age."""
    if start < (subscriber.discarded_through or 0):
        raise CursorGone(start, subscriber.discarded_through or 0)


# ── message ───────────────────────────────────────────────────────────────────────────────────────────────────────────

_NO_BINDINGS = msgspec.Raw(b"[]")


class Retracted(msgspec.Struct, frozen=True):
    """The event that is withdrawn, with its source, id and sequence number at its delivery."""

    source: str
    id: str
    sequence: int


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message to a subscriber. `cursor` is the value to acknowledge or to continue after. `bindings` is a list of
    objects with the results of operators. `late`: the match was decided after the event was accepted, because an
    operator had to be called or the event is older than the subscription. So later events may have been delivered
    before it. `sequence` is the sequence number of the event where that is not the cursor. `retracted`: this is no
    match of `event`, but the news that `event` withdraws an earlier event that the subscription got."""

    cursor: str
    event: msgspec.Raw
    bindings: msgspec.Raw
    subscription: str
    vocabulary_version: str | None
    late: bool = False
    sequence: int | None = None
    retracted: Retracted | None = None


class Page(msgspec.Struct, frozen=True, omit_defaults=True):
    """The answer to a pull. `cursor` is that of the last message, or the requested one if there is no message.
    `expiring` is the end time of the subscription, if it ends within a day. `expired`: it has ended, so no new matches
    come until it is renewed."""

    events: list[Message]
    cursor: str
    expiring: str | None = None
    expired: bool = False


def expiring(subscriber: Subscriber) -> str | None:
    """Returns the end time of a subscription as text; None if it is more than a day ahead, or in the past."""
    left = subscriber.expires_at - CLOCK.now()
    return instant(subscriber.expires_at) if 0 < left <= NOTICE_SECONDS else None


def chosen(body: str, attributes: Sequence[str] | None) -> str:
    """Returns the event with the chosen members of its data and all context attributes. A dotted name selects in nested
    objects, and in each object of a list; the dots may also be part of the names of members (rule 1). Data that is no
    object and no list of objects is left out.

    >>> chosen('{"id":"1","data":{"a":1,"b":{"c":2,"d":3},"b.c":4}}', ["b.c", "x"])
    '{"id":"1","data":{"b":{"c":2},"b.c":4}}'
    """
    if attributes is None:
        return body
    event = msgspec.json.decode(body)
    event.pop("data_base64", None)
    if isinstance(event.get("data"), dict | list):
        event["data"] = _chosen_of(event["data"], [each.split(".") for each in attributes])
    else:
        event.pop("data", None)
    return msgspec.json.encode(event).decode()


def _chosen_of(data: Any, paths: list[list[str]]) -> Any:
    if isinstance(data, list):
        return [_chosen_of(each, paths) for each in data if isinstance(each, dict | list)]
    if not isinstance(data, dict):
        return {}
    found = {}
    for name, value in data.items():
        own = name.split(".")
        rests = [path[len(own) :] for path in paths if path[: len(own)] == own[: len(path)]]
        if not all(rests):
            found[name] = value
        elif rests and isinstance(value, dict | list):
            found[name] = _chosen_of(value, rests)
    return found


def message_of(
    subscription: str,
    match: StoredMatch,
    attributes: Sequence[str] | None = None,
    shown: Callable[[str], str] = str,
) -> Message:
    """Returns the message for one match of the subscription with this id, with its chosen attributes. `shown` removes
    from the event what its reader may not see."""
    return Message(
        cursor=str(match.position),
        event=msgspec.Raw(chosen(shown(match.body), attributes).encode()),
        bindings=_NO_BINDINGS if match.bindings is None else msgspec.Raw(match.bindings.encode()),
        subscription=subscription,
        vocabulary_version=match.vocabulary_version,
        late=match.position != match.sequence and match.retracted is None,
        sequence=None if match.position == match.sequence else match.sequence,
        retracted=_retracted(match),
    )


def _retracted(match: StoredMatch) -> Retracted | None:
    if match.retracted is None:
        return None
    sequence, source, id = match.retracted
    return Retracted(source, id, sequence)


def message_id(subscription: str, match: StoredMatch) -> str:
    """Returns the `webhook-id`. There is one for each event and subscription, and one for each retraction. It is the
    same at every attempt, also after a restart.

    >>> message_id("s1", StoredMatch(9, 7, "{}", None, "v"))
    'msg_s1_7'
    """
    return f"msg_{subscription}_{match.sequence if match.retracted is None else match.position}"


MEMBERS = ("kindcastcursor", "kindcastsubscription", "kindcastbindings", "kindcastretracted")
"""The extension attributes with the members of a message."""


def as_cloudevent(
    subscription: str,
    match: StoredMatch,
    attributes: Sequence[str] | None = None,
    shown: Callable[[str], str] = str,
) -> str:
    """Returns the stored event, a JSON object, with the members of the message as extension attributes at its
    beginning. If the publisher sent attributes with these names, they are left out.

    >>> as_cloudevent("s1", StoredMatch(9, 9, '{"specversion":"1.0"}', None, "v"))
    '{"kindcastcursor":"9","kindcastsubscription":"s1","specversion":"1.0"}'
    >>> retraction = StoredMatch(9, 7, '{"id":"2"}', None, "v", retracted=(5, "/s", "1"))
    >>> msgspec.json.decode(as_cloudevent("s1", retraction))["kindcastretracted"]
    '{"source":"/s","id":"1","sequence":5}'
    """
    cursor, number, bindings, retracted = MEMBERS
    more = {cursor: str(match.position), number: subscription}
    if match.bindings is not None:
        more[bindings] = match.bindings
    if (withdrawn := _retracted(match)) is not None:
        more[retracted] = msgspec.json.encode(withdrawn).decode()
    body = chosen(shown(match.body), attributes)
    if any(each in body for each in MEMBERS):
        event = msgspec.json.decode(body)
        body = msgspec.json.encode({name: value for name, value in event.items() if name not in MEMBERS}).decode()
    return msgspec.json.encode(more).decode()[:-1] + "," + body.lstrip().removeprefix("{")


class Notice(msgspec.Struct, frozen=True):
    """A notice of the server about a subscription, in the form of a message. It has no cursor, because it is no match
    and cannot be acknowledged."""

    event: msgspec.Raw
    bindings: msgspec.Raw
    subscription: str
    vocabulary_version: None = None


EXPIRY_NOTICE = "expiry_notice"
"""The member of protocolsettings, for every protocol, that switches off the notice of the subscription's end."""

SOURCE = "/v1/subscriptions/"
"""The source of the events of notices, followed by the id of the subscription."""


def notice_of(subscription: str, type: str, id: str, at: float, data: Mapping[str, Any]) -> Notice:
    """Returns a notice about a subscription: a CloudEvent of this type. `id` is the id of the event and the
    `webhook-id`.

    >>> bytes(notice_of("s1", "io.kindcast.subscription.test", "n1", 0.0, {}).event)[:44]
    b'{"specversion":"1.0","id":"n1","source":"/v1'
    """
    event = {
        "specversion": "1.0",
        "id": id,
        "source": SOURCE + subscription,
        "type": type,
        "time": instant(at),
        "datacontenttype": "application/json",
        "data": data,
    }
    return Notice(msgspec.Raw(msgspec.json.encode(event)), _NO_BINDINGS, subscription)


def notice_as_cloudevent(notice: Notice) -> str:
    """Returns the event of a notice, with its subscription as an extension attribute."""
    more = msgspec.json.encode({"kindcastsubscription": notice.subscription}).decode()
    return more[:-1] + "," + bytes(notice.event).decode().removeprefix("{")


def encode(value: Message | Page | Notice) -> bytes:
    """Encodes a value as JSON, in one line unless the stored event has several lines."""
    return _encoder.encode(value)


_encoder = msgspec.json.Encoder()
