"""Messages to subscribers, the same by pull, stream and webhook: the event with the cursor and bindings of a match.

The event is stored as JSON text and passed on as it is, never parsed again, unless a subscription chose some of it; so
a message has the same bytes on every attempt, and costs a copy.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from sqlalchemy import Connection

from kindcast.server.clock import CLOCK, instant
from kindcast.server.errors import ServerError, UnknownSubscription
from kindcast.server.store.deliveries import StoredMatch, Subscriber, end_of_log, find_subscriber
from kindcast.server.store.expiry_notices import NOTICE_SECONDS

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
    "start_of",
    "subscriber_of",
]


# Cursors: validation of a reader's position, by one rule for pull, acknowledgement and stream.
#
# A cursor is the position of the last message that the reader has seen, as text; it only means something to the
# subscription that it came from. What cannot be a cursor of this server is refused, and one from before the oldest
# kept
# message is too: going on silently would hide a loss.

MAX_CURSOR_DIGITS = 18
"""Below 2⁶³, which the store can hold."""


class InvalidCursor(ServerError):
    """This is no cursor of this server. Use one from a message, or leave it out to go on where you acknowledged."""


class CursorGone(ServerError):
    """Messages after this cursor are older than the retention and were deleted. `oldest`: from where on all are
    there."""

    def __init__(self, after: int, oldest: int) -> None:
        super().__init__(
            f"messages after the cursor {after} are older than the retention and were deleted; "
            f"the oldest remaining message comes after {oldest}: continue with after={oldest}, or acknowledge {oldest}"
        )
        self.oldest = oldest


def subscriber_of(connection: Connection, id: str) -> Subscriber:
    """The subscription of this id. Raises `UnknownSubscription`."""
    subscriber = find_subscriber(connection, id)
    if subscriber is None:
        raise UnknownSubscription(id)
    return subscriber


def parse_cursor(connection: Connection, text: str) -> int:
    """The position that a cursor names. Raises `InvalidCursor` for other text, and for one that was not given yet."""
    if not (text.isascii() and text.isdigit()) or len(text) > MAX_CURSOR_DIGITS or int(text) > end_of_log(connection):
        raise InvalidCursor
    return int(text)


def start_of(connection: Connection, subscriber: Subscriber, after: str | None) -> int:
    """The position to read after: the cursor given, else what was acknowledged. Raises `InvalidCursor`,
    `CursorGone`."""
    start = subscriber.start if after is None else parse_cursor(connection, after)
    if start < (subscriber.discarded_through or 0):
        raise CursorGone(start, subscriber.discarded_through or 0)
    return start


# ── message ───────────────────────────────────────────────────────────────────────────────────────────────────────────

_NO_BINDINGS = msgspec.Raw(b"[]")


class Retracted(msgspec.Struct, frozen=True):
    """The event that is withdrawn, as it was delivered before."""

    source: str
    id: str
    sequence: int


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """`cursor`: what to acknowledge, or to go on after. `bindings`: what operators found, a list of objects. `late`: an
    operator had to be asked first, so events that were published later may have come before; or the event is older than
    the subscription. `retracted`: no event for
    this subscription, but the news that one it got before is withdrawn, by `event`."""

    cursor: str
    event: msgspec.Raw
    bindings: msgspec.Raw
    subscription: str
    vocabulary_version: str | None
    late: bool = False
    retracted: Retracted | None = None


class Page(msgspec.Struct, frozen=True, omit_defaults=True):
    """The answer to a pull. `cursor` is that of the last message, or the one asked for when there is none. `expiring`:
    when the subscription ends, within a day of its end."""

    events: list[Message]
    cursor: str
    expiring: str | None = None


def expiring(subscriber: Subscriber) -> str | None:
    """When a subscription ends, as text; None where that is more than a day ahead, or over."""
    left = subscriber.expires_at - CLOCK.now()
    return instant(subscriber.expires_at) if 0 < left <= NOTICE_SECONDS else None


def chosen(body: str, attributes: Sequence[str] | None) -> str:
    """The event with the members of its data that were chosen, and all context attributes. A dotted name goes into
    objects, and into each object of a list. Data that is no object, or a list of them, has none of them.

    >>> chosen('{"id":"1","data":{"a":1,"b":{"c":2,"d":3}}}', ["b.c", "x"])
    '{"id":"1","data":{"b":{"c":2}}}'
    """
    if attributes is None:
        return body
    event = msgspec.json.decode(body)
    event.pop("data_base64", None)
    if "data" in event:
        event["data"] = _chosen_of(event["data"], [each.split(".") for each in attributes])
    return msgspec.json.encode(event).decode()


def _chosen_of(data: Any, paths: list[list[str]]) -> Any:
    if isinstance(data, list):
        return [_chosen_of(each, paths) for each in data if isinstance(each, dict | list)]
    if not isinstance(data, dict):
        return {}
    found = {}
    for name, value in data.items():
        rests = [path[1:] for path in paths if path[0] == name]
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
    """The message for one match of a subscription (its id), with the attributes that it chose. `shown` leaves out of
    the event what its reader may not see."""
    return Message(
        cursor=str(match.position),
        event=msgspec.Raw(chosen(shown(match.body), attributes).encode()),
        bindings=_NO_BINDINGS if match.bindings is None else msgspec.Raw(match.bindings.encode()),
        subscription=subscription,
        vocabulary_version=match.vocabulary_version,
        late=match.position != match.sequence and match.retracted is None,
        retracted=None
        if match.retracted is None
        else Retracted(match.retracted[1], match.retracted[2], match.retracted[0]),
    )


def message_id(subscription: str, match: StoredMatch) -> str:
    """The `webhook-id`: one for each event and subscription, and one for each retraction; the same on every attempt,
    also after a restart.

    >>> message_id("s1", StoredMatch(9, 7, "{}", None, "v"))
    'msg_s1_7'
    """
    return f"msg_{subscription}_{match.sequence if match.retracted is None else match.position}"


def as_cloudevent(
    subscription: str,
    match: StoredMatch,
    attributes: Sequence[str] | None = None,
    shown: Callable[[str], str] = str,
) -> str:
    """The stored event, which is a JSON object, with the members of the message as extension attributes before it.

    >>> as_cloudevent("s1", StoredMatch(9, 9, '{"specversion":"1.0"}', None, "v"))
    '{"kindcastcursor":"9","kindcastsubscription":"s1","specversion":"1.0"}'
    """
    more = {"kindcastcursor": str(match.position), "kindcastsubscription": subscription}
    if match.bindings is not None:
        more["kindcastbindings"] = match.bindings
    body = chosen(shown(match.body), attributes)
    return msgspec.json.encode(more).decode()[:-1] + "," + body.lstrip().removeprefix("{")


class Notice(msgspec.Struct, frozen=True):
    """What the server itself says of a subscription, in the form of a message. It has no cursor: it is no match, and
    there is nothing to acknowledge."""

    event: msgspec.Raw
    bindings: msgspec.Raw
    subscription: str
    vocabulary_version: None = None


EXPIRY_NOTICE = "expiry_notice"
"""The member of protocolsettings, of every protocol, that turns the notice of the end off."""

SOURCE = "/v1/subscriptions/"
"""Before the id of the subscription: the source of the events of notices."""


def notice_of(subscription: str, type: str, id: str, at: float, data: Mapping[str, Any]) -> Notice:
    """A notice about a subscription: a CloudEvent of this type. `id` is the id of the event and of the webhook.

    >>> notice_of("s1", "io.kindcast.subscription.test", "n1", 0.0, {}).event[:44]
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
    """The event of a notice, with its subscription as an extension attribute."""
    more = msgspec.json.encode({"kindcastsubscription": notice.subscription}).decode()
    return more[:-1] + "," + bytes(notice.event).decode().removeprefix("{")


def encode(value: Message | Page | Notice) -> bytes:
    """JSON, in one line unless the stored event has several."""
    return _encoder.encode(value)


_encoder = msgspec.json.Encoder()
