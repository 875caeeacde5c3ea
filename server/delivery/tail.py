"""The live tail: accepted events as they come, with the subscriptions that got them, for people who watch.

    store ──the newest few of each interval──▶ one reader a filter ──▶ every watcher of that filter

It is a sample above `EVENTS_PER_SECOND`, and says how many it left out. It promises nothing: who must have every event
subscribes. All watchers of a filter share one reader, so twenty open pages read the store as often as one.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import msgspec
from fastapi.sse import KEEPALIVE_COMMENT, format_sse_event
from sqlalchemy import Connection

from kindcast.server.broker import Broker
from kindcast.server.delivery.wakeup import Wakeups
from kindcast.server.errors import ServerError
from kindcast.server.security.payloads import Reader, Roles
from kindcast.server.store.events import count_after, find_matches, last_sequence, newest_events
from kindcast.server.worker_threads import short_turns

__all__ = ["EVENTS_PER_SECOND", "Filter", "Tails", "newest"]

log = logging.getLogger(__name__)

EVENTS_PER_SECOND = 50
INTERVAL_SECONDS = 0.25
PER_INTERVAL = int(EVENTS_PER_SECOND * INTERVAL_SECONDS)
SUBSCRIPTIONS = 20
"""Named with one event; `matched` counts them all."""
BODY_CHARACTERS = 8_192
"""Of an event that is sent along; `GET /v1/events/{sequence}/trace` has larger ones."""
WAITING = 40
"""Messages that a slow watcher may have waiting; more are left out."""


class Filter(NamedTuple):
    """Events of one source, or all where it is None; with their payload, or without; for somebody with these roles."""

    source: str | None
    payload: bool
    roles: Roles = None


class Tails:
    """The readers of one application, by filter. On its event loop."""

    def __init__(self, broker: Broker, wakeups: Wakeups) -> None:
        self._broker = broker
        self._wakeups = wakeups
        self._watchers: dict[Filter, set[asyncio.Queue[bytes]]] = {}
        self._readers: set[asyncio.Task[None]] = set()

    async def watch(self, wanted: Filter, ping_seconds: float) -> AsyncIterator[bytes]:
        """The lines of one answer: messages with events from now on, until the server stops or the watcher leaves."""
        queue: asyncio.Queue[bytes] = asyncio.Queue(WAITING)
        if not self._watchers.get(wanted):
            after = await self._broker.read(last_sequence)
            if not self._watchers.get(wanted):  # nobody else came meanwhile; a set that became empty ends its reader
                self._watchers[wanted] = {queue}
                reading = asyncio.create_task(self._read(wanted, after, self._watchers[wanted]), name="live tail")
                self._readers.add(reading)
                reading.add_done_callback(self._ended)
        watchers = self._watchers[wanted]
        watchers.add(queue)
        quiet = 0.0
        try:
            yield format_sse_event(retry=2_000)
            while not self._wakeups.closed:
                try:
                    async with asyncio.timeout(INTERVAL_SECONDS):
                        message = await queue.get()
                except TimeoutError:
                    quiet += INTERVAL_SECONDS
                    if quiet >= ping_seconds:
                        quiet = 0.0
                        yield KEEPALIVE_COMMENT
                    continue
                quiet = 0.0
                yield message
        finally:
            watchers.discard(queue)

    async def _read(self, wanted: Filter, after: int, watchers: set[asyncio.Queue[bytes]]) -> None:
        """Reads for the watchers of a filter for as long as there are any."""
        reader = Reader(wanted.roles, lambda: self._broker.vocabulary)
        try:
            while watchers and not self._wakeups.closed:
                await asyncio.sleep(INTERVAL_SECONDS)
                if self._broker.state.sequence <= after:
                    continue
                began = after

                def read(connection: Connection, began: int = began) -> tuple[int, int, list[dict[str, Any]]]:
                    with short_turns():
                        found = newest(connection, began, wanted, PER_INTERVAL, reader)
                        some = len(found) < PER_INTERVAL
                        count = len(found) if some else count_after(connection, began, wanted.source)
                        return max(last_sequence(connection), began), count, found

                try:
                    after, count, found = await self._broker.read(read)
                except ServerError as error:
                    log.warning("the live tail could not be read and goes on: %s", error)
                    continue
                if found:
                    data = msgspec.json.encode({"events": found, "skipped": count - len(found)}).decode()
                    message = format_sse_event(event="events", data_str=data)
                    for queue in watchers:
                        if not queue.full():
                            queue.put_nowait(message)
        finally:
            if self._watchers.get(wanted) is watchers:
                del self._watchers[wanted]

    def _ended(self, reader: asyncio.Task[None]) -> None:
        self._readers.discard(reader)
        if not reader.cancelled() and (error := reader.exception()) is not None:
            log.warning("the live tail ended: %s", error)


def newest(connection: Connection, after: int, wanted: Filter, limit: int, reader: Reader) -> list[dict[str, Any]]:
    """The newest fitting events after `after`, in their order, as their reader may see them."""
    view = reader.view
    rows = newest_events(connection, limit, after=after, source=wanted.source)
    found = []
    for row in reversed(rows):
        got = find_matches(connection, row.sequence, limit=SUBSCRIPTIONS) if row.matched else []
        visible = reader.visible(connection, [each.number for each in got])
        body = row.body if view is None or not wanted.payload else view.readable(row.body)
        found.append(
            {
                "sequence": row.sequence,
                "accepted_at": row.accepted_at,
                "source": row.source,
                "type": row.type,
                "matched": row.matched if view is None else None,
                "subscriptions": [each.id for each in got if each.number in visible],
                "event": msgspec.Raw(body.encode()) if wanted.payload and len(body) <= BODY_CHARACTERS else None,
            }
        )
    return found
