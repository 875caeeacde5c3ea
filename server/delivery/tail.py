"""The live tail: accepted events with their matching subscriptions, for users who watch them.

    store ──one look each interval──▶ Look ──each event encoded once──▶ a message a filter ──▶ all followers of it

Above `EVENTS_PER_SECOND` it is a sample, with the number of events left out. It guarantees nothing: to get every event,
create a subscription. All followers of a tenant share one reader, with any filters. So twenty open pages read the store
as often as one. At most `WAITING` messages are kept for a follower that does not read.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Collection, Sequence
from typing import Any, NamedTuple

import msgspec
from fastapi.sse import KEEPALIVE_COMMENT, format_sse_event
from sqlalchemy import Connection, Row

from kindcast.semantic import Vocabulary
from kindcast.server.broker import Broker
from kindcast.server.delivery.service import Wakeups
from kindcast.server.errors import ServerError
from kindcast.server.security.permissions import Reader, Roles
from kindcast.server.store.events import count_after, first_recipients, last_sequence, newest_events
from kindcast.server.worker_threads import short_turns

__all__ = ["EVENTS_PER_SECOND", "Filter", "LiveTail", "Look"]

log = logging.getLogger(__name__)

EVENTS_PER_SECOND = 50
INTERVAL_SECONDS = 0.25
PER_INTERVAL = int(EVENTS_PER_SECOND * INTERVAL_SECONDS)
SUBSCRIPTIONS = 20
"""The maximum number of subscriptions named with an event. `matched` counts all."""
BODY_CHARACTERS = 8_192
"""The maximum length of an event that is included. `GET /v1/events/{sequence}/trace` returns longer ones."""
WAITING = 8
"""The maximum number of messages that wait for a follower that does not read. The oldest are dropped and counted."""


class Filter(NamedTuple):
    """A filter: events of one source (None: of all), with or without their payload, for a reader with these roles."""

    source: str | None
    payload: bool
    roles: Roles = None


class Message(NamedTuple):
    """Events as a JSON list, how many are `shown`, and how many `came`, including those that the sample leaves out."""

    events: bytes
    shown: int
    came: int


class Follower:
    """One open stream. For the event loop only."""

    def __init__(self) -> None:
        self._waiting: asyncio.Queue[Message | None] = asyncio.Queue(WAITING)
        self._missed = 0

    def tell(self, message: Message) -> None:
        """Adds a message without waiting. If the follower does not read, the oldest message is dropped and its events
        are counted."""
        if self._waiting.full() and (dropped := self._waiting.get_nowait()) is not None:
            self._missed += dropped.came
        self._waiting.put_nowait(message)

    def close(self) -> None:
        """Ends the stream."""
        while not self._waiting.empty():
            self._waiting.get_nowait()
        self._waiting.put_nowait(None)

    async def next(self) -> bytes | None:
        """Returns the next message as a server-sent event; None at the end."""
        message = await self._waiting.get()
        if message is None:
            return None
        skipped, self._missed = message.came - message.shown + self._missed, 0
        return b'event: events\ndata: {"events":%b,"skipped":%d}\n\n' % (message.events, skipped)


class LiveTail:
    """The followers of one tenant, by filter, and the reader that they share. For the event loop only."""

    def __init__(self, broker: Broker, wakeups: Wakeups) -> None:
        self._broker = broker
        self._wakeups = wakeups
        self._followers: dict[Filter, set[Follower]] = {}
        self._reading: asyncio.Task[None] | None = None
        wakeups.also_closes(self._close)

    async def watch(self, wanted: Filter, ping_seconds: float) -> AsyncGenerator[bytes]:
        """Yields the lines of one answer: messages with events from now on, until the server stops or the follower
        leaves."""
        now = await self._broker.read(last_sequence)
        follower = Follower()
        self._followers.setdefault(wanted, set()).add(follower)
        if self._reading is None:
            self._reading = asyncio.create_task(self._read(now), name="live tail")
            self._reading.add_done_callback(_ended)
        try:
            yield format_sse_event(retry=2_000)
            while not self._wakeups.closed:
                try:
                    async with asyncio.timeout(ping_seconds):
                        message = await follower.next()
                except TimeoutError:
                    yield KEEPALIVE_COMMENT
                    continue
                if message is None:
                    return
                yield message
        finally:
            self._leave(wanted, follower)

    def _leave(self, wanted: Filter, follower: Follower) -> None:
        others = self._followers[wanted]
        others.discard(follower)
        if not others:
            del self._followers[wanted]

    async def _read(self, after: int) -> None:
        """Reads events for all followers, while there are any. An unexpected error ends their streams: browsers and
        clients then connect again, which starts another reader."""
        try:
            while self._followers and not self._wakeups.closed:
                await asyncio.sleep(INTERVAL_SECONDS)
                if self._broker.state.sequence <= after or not self._followers:
                    continue
                try:
                    after, messages = await self._look(after, tuple(self._followers))
                except ServerError as error:
                    log.warning("the live tail could not be read; trying again: %s", error)
                    continue
                for wanted, message in messages.items():
                    for follower in self._followers.get(wanted, ()):
                        follower.tell(message)
        finally:
            self._reading = None
            self._close()

    async def _look(self, after: int, wanted: Collection[Filter]) -> tuple[int, dict[Filter, Message]]:
        """Returns the sequence number up to which events were read, and the message for each filter. Raises
        `StoreUnavailable`."""
        vocabulary = self._broker.vocabulary

        def read(connection: Connection) -> tuple[int, dict[Filter, Message]]:
            with short_turns():
                look = Look(connection, vocabulary, after)
                return max(last_sequence(connection), after), look.messages(wanted)

        return await self._broker.read(read)

    def _close(self) -> None:
        for followers in self._followers.values():
            for each in followers:
                each.close()


def _ended(reading: asyncio.Task[None]) -> None:
    if not reading.cancelled() and (error := reading.exception()) is not None:
        log.error("the live tail ended: %s", error)


class Look:
    """The newest events after a sequence number, in one snapshot of the store. What several filters have in common is
    read and encoded once."""

    def __init__(self, connection: Connection, vocabulary: Vocabulary, after: int = 0) -> None:
        self._connection = connection
        self._vocabulary = vocabulary
        self._after = after
        self._recipients: dict[int, dict[int, str]] = {}
        self._visible: dict[tuple[Roles, int], bool] = {}
        self._encoded: dict[tuple[int, bool, Roles], msgspec.Raw] = {}

    def messages(self, wanted: Collection[Filter]) -> dict[Filter, Message]:
        """Returns the message for each filter that has events."""
        rows = {each: self._rows(each, PER_INTERVAL) for each in {each.source for each in wanted}}
        self._read_recipients([row for some in rows.values() for row in some])
        counts = {
            source: len(some) if len(some) < PER_INTERVAL else count_after(self._connection, self._after, source)
            for source, some in rows.items()
        }
        same: dict[Filter, Message] = {}
        found: dict[Filter, Message] = {}
        for each in wanted:
            if some := rows[each.source]:
                seen = each._replace(roles=self._seen_as(each.roles))
                if seen not in same:
                    events = msgspec.json.encode(self._events(some, seen))
                    line = b" ".join(events.splitlines())  # one line of the stream
                    same[seen] = Message(line, len(some), counts[each.source])
                found[each] = same[seen]
        return found

    def newest(self, wanted: Filter, limit: int) -> list[msgspec.Raw]:
        """Returns the newest events that pass the filter, in order, as JSON."""
        rows = self._rows(wanted.source, limit)
        self._read_recipients(rows)
        return self._events(rows, wanted._replace(roles=self._seen_as(wanted.roles)))

    def _rows(self, source: str | None, limit: int) -> Sequence[Row[Any]]:
        return newest_events(self._connection, limit, after=self._after, source=source)[::-1]

    def _read_recipients(self, rows: Sequence[Row[Any]]) -> None:
        matched = {row.sequence for row in rows if row.matched}
        self._recipients = first_recipients(self._connection, matched, limit=SUBSCRIPTIONS)

    def _seen_as(self, roles: Roles) -> Roles:
        """Returns None for all roles from which nothing is hidden, because they see the same."""
        return None if self._vocabulary.view_of_roles(roles) is None else roles

    def _events(self, rows: Sequence[Row[Any]], wanted: Filter) -> list[msgspec.Raw]:
        self._judge(rows, wanted.roles)
        found = []
        for row in rows:
            key = row.sequence, wanted.payload, wanted.roles
            if key not in self._encoded:
                event = self._event(row, wanted.roles, payload=wanted.payload)
                self._encoded[key] = msgspec.Raw(msgspec.json.encode(event))
            found.append(self._encoded[key])
        return found

    def _judge(self, rows: Sequence[Row[Any]], roles: Roles) -> None:
        """Determines which recipients of these events a reader with these roles may see: those whose expression uses no
        hidden attribute."""
        got = {number for row in rows for number in self._recipients.get(row.sequence, ())}
        if unknown := [each for each in got if (roles, each) not in self._visible]:
            seen = Reader(roles, lambda: self._vocabulary).visible(self._connection, unknown)
            self._visible |= {(roles, each): each in seen for each in unknown}

    def _event(self, row: Row[Any], roles: Roles, *, payload: bool) -> dict[str, Any]:
        """Returns an event as a reader with these roles may see it."""
        view = self._vocabulary.view_of_roles(roles)
        body = row.body if view is None or not payload else view.readable(row.body)
        got = self._recipients.get(row.sequence, {})
        return {
            "sequence": row.sequence,
            "accepted_at": row.accepted_at,
            "source": row.source,
            "type": row.type,
            "matched": row.matched if view is None else None,
            "subscriptions": [id for number, id in got.items() if self._visible[roles, number]],
            "event": msgspec.Raw(body.encode()) if payload and len(body) <= BODY_CHARACTERS else None,
        }
