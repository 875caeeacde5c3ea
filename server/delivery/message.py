"""Messages to subscribers, the same by pull, stream and webhook: the event with the cursor and bindings of a match.

The event is stored as JSON text and passed on as it is, never parsed again; so a message has the same bytes on every
attempt, and costs a copy.
"""

import msgspec

from kindcast.server.store.deliveries import StoredMatch

__all__ = ["Message", "Page", "encode", "message_id", "message_of"]

_NO_BINDINGS = msgspec.Raw(b"[]")


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """`cursor`: what to acknowledge, or to go on after. `bindings`: what operators found, a list of objects. `late`: an
    operator had to be asked first, so events that were published later may have come before."""

    cursor: str
    event: msgspec.Raw
    bindings: msgspec.Raw
    subscription: str
    vocabulary_version: str | None
    late: bool = False


class Page(msgspec.Struct, frozen=True):
    """The answer to a pull. `cursor` is that of the last message, or the one asked for when there is none."""

    events: list[Message]
    cursor: str


def message_of(subscription: str, match: StoredMatch) -> Message:
    """The message for one match of a subscription (its id)."""
    return Message(
        cursor=str(match.position),
        event=msgspec.Raw(match.body.encode()),
        bindings=_NO_BINDINGS if match.bindings is None else msgspec.Raw(match.bindings.encode()),
        subscription=subscription,
        vocabulary_version=match.vocabulary_version,
        late=match.position != match.sequence,
    )


def message_id(subscription: str, sequence: int) -> str:
    """The `webhook-id`: one for each event and subscription, the same on every attempt, also after a restart.

    >>> message_id("s1", 7)
    'msg_s1_7'
    """
    return f"msg_{subscription}_{sequence}"


def encode(value: Message | Page) -> bytes:
    """JSON, in one line unless the stored event has several."""
    return _encoder.encode(value)


_encoder = msgspec.json.Encoder()
