"""Readers of a subscription's queue: pull with long poll, server-sent events, WebSocket, and acknowledgement.

    pull(after, limit, wait) ──▶ messages, cursor      as often as wanted: reading changes nothing
    stream, WebSocket        ──▶ messages as they come, from the same cursor
    acknowledge(cursor)      ──▶ acked                 the next reader starts there, also after a restart

A reader without messages sleeps until the broker announces a commit that concerns its subscription. Nothing polls the
store. Readers that want the same look into the store together, and large pages are read one at a time (`turns`).
"""

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import Generic, Literal, NamedTuple, TypeVar

import msgspec
from fastapi.sse import KEEPALIVE_COMMENT, format_sse_event
from sqlalchemy import Connection
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from kindcast.server.clock import CLOCK
from kindcast.server.delivery.message import (
    CursorGone,
    Page,
    as_cloudevent,
    encode,
    expiring,
    message_of,
    refuse_gone,
    start_of,
)
from kindcast.server.delivery.service import DeliveryService, Wakeups
from kindcast.server.delivery.turns import Look, Looks
from kindcast.server.errors import (
    HiddenAttribute,
    RecordDamaged,
    ServerError,
    StoreDamaged,
    StoreUnavailable,
    UnknownSubscription,
)
from kindcast.server.security.keys import Claim, check_ticket
from kindcast.server.security.permissions import Reader
from kindcast.server.store.deliveries import (
    NOTICE_SECONDS,
    StoredMatch,
    Subscriber,
)
from kindcast.server.strict_json import MalformedJson
from kindcast.server.worker_threads import run_to_the_end, short_turns

__all__ = [
    "CLOUDEVENTS",
    "DEFAULT_LIMIT",
    "MAX_LIMIT",
    "BadFrame",
    "End",
    "Expiring",
    "Found",
    "Start",
    "find_start",
    "follow",
    "pull",
    "serve_websocket",
    "stream",
]

Turn = Callable[[], AbstractAsyncContextManager[None]]
"""Returns a context manager that is entered when it is the turn of a client to read a large page."""

DEFAULT_LIMIT = 100
MAX_LIMIT = 10_000
"""The maximum number of messages of one pull."""

MAX_PAGE_BYTES = 16 << 20
"""The maximum size of the events of one pull. A page ends early rather than fill the memory of both sides."""

SMALL_PAGE_BYTES = 1 << 20
"""Pages with fewer bytes of events are read beside others. Larger ones are read one at a time: each takes several times
its size until it is sent."""

CLOCKS_DIFFER = 0.05
"""Seconds by which the clock of the event loop may be ahead of the wall clock."""


class _Pulled(NamedTuple):
    """A page as JSON, and its subscription. `body` is None if the page is too large to be read beside others. `over`:
    nothing is waited for."""

    subscriber: Subscriber
    over: bool
    body: bytes | None


async def pull(
    delivery: DeliveryService,
    id: str,
    reader: Reader,
    *,
    after: str | None,
    limit: int,
    wait: float,
    turn: Turn,
) -> bytes:
    """Returns the next messages, a `Page` as JSON. Waits up to `wait` seconds for the first one, unless the
    subscription has expired. A large page is read within a `turn`.

    Raises `UnknownSubscription`, `HiddenAttribute`, `InvalidCursor`, `CursorGone`, and what `turn` raises.
    """

    def read(look: Look, most: int = SMALL_PAGE_BYTES) -> _Pulled:
        subscriber = _known(look, id)
        reader.check(look.connection, subscriber.number)
        start = start_of(look.connection, subscriber, after)
        found = look.read(subscriber.number, after=start, limit=limit, byte_budget=most)
        over = bool(found) or _has_expired(subscriber)
        if most == SMALL_PAGE_BYTES and sum(len(match.body) for match in found) >= most:
            return _Pulled(subscriber, over, None)
        messages = [message_of(id, match, subscriber.attributes, reader.shown) for match in found]
        cursor = messages[-1].cursor if messages else str(start)
        page = Page(messages, cursor, expiring(subscriber), _has_expired(subscriber))
        return _Pulled(subscriber, over, encode(page))

    def read_large(connection: Connection) -> _Pulled:
        with short_turns():
            return read(Look(connection, [id]), MAX_PAGE_BYTES)

    async def look() -> _Pulled:
        return await delivery.looks.look(("pull", id, after, limit, reader.roles), id, read)

    found = await look()
    if wait > 0 and not found.over:
        found = await _wait_for(look, delivery.wakeups, found, wait)
    if found.body is not None:
        return found.body
    async with turn():
        whole = (await delivery.broker.read(read_large)).body
    assert whole is not None, "any page may be read in its turn"
    return whole


def _known(look: Look, id: str) -> Subscriber:
    subscriber = look.subscriber(id)
    if subscriber is None:
        raise UnknownSubscription(id)
    return subscriber


async def _wait_for(look: Callable[[], Awaitable[_Pulled]], wakeups: Wakeups, found: _Pulled, wait: float) -> _Pulled:
    """Looks again after each commit, and when the subscription ends or its last day begins, up to `wait` seconds."""
    deadline = time.monotonic() + wait
    with wakeups.watch(found.subscriber.number) as woken:
        while not wakeups.closed:
            woken.clear()
            found = await look()
            left, unchanged = deadline - time.monotonic(), _seconds_unchanged(found.subscriber)
            if found.over or left <= 0:
                break
            try:
                async with asyncio.timeout(min(left, unchanged)):
                    await woken.wait()
            except TimeoutError:
                if left <= unchanged:
                    break
    return found


def _seconds_unchanged(subscriber: Subscriber) -> float:
    """Returns the time until the last day of a subscription begins, or until it ends if that comes first."""
    left = subscriber.expires_at - CLOCK.now()
    return (left - NOTICE_SECONDS if left > NOTICE_SECONDS else max(0.0, left)) + CLOCKS_DIFFER


End = Literal["shutdown", "deleted", "expired", "damaged", "hidden", "gone"]
"""Why a stream ends. `gone`: the next messages were deleted because of their age."""

PAGE_MESSAGES = 256
PAGE_BYTES = 256 << 10
"""The maximum size of the events of one page, unless one event is larger. A stream holds what is left of a page while
its reader does not read."""

RETRY_MILLISECONDS = 1_000
"""How long a reader is asked to wait before it connects again."""

AWAY_SECONDS = 30.0
"""How long a stream stays open while the database cannot be reached, as while PostgreSQL is restarted. Then its reader
connects again, possibly to another server."""
AWAY_PAUSE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Expiring:
    """The news that the subscription ends within a day, at the time `at`."""

    at: str


T = TypeVar("T")
Frame = TypeVar("Frame", bytes, str)
"""A message as a line of a stream, or as the text of a WebSocket."""


@dataclass(frozen=True, slots=True)
class Found(Generic[Frame]):
    """Some messages. Those that were taken are no longer held."""

    frames: Iterator[Frame]


@dataclass(frozen=True, slots=True)
class Start:
    """The start of a stream. `over`: the subscription has expired and there is nothing left to send."""

    subscriber: Subscriber
    after: int
    reader: Reader
    over: bool


async def find_start(looks: Looks, id: str, after: str | None, reader: Reader) -> Start:
    """Checks the request of a reader before the answer begins. Raises `UnknownSubscription`, `HiddenAttribute`,
    `InvalidCursor`, `CursorGone`."""

    def read(look: Look) -> Start:
        subscriber = _known(look, id)
        reader.check(look.connection, subscriber.number)
        start = start_of(look.connection, subscriber, after)
        over = _has_expired(subscriber) and not look.has_more(subscriber.number, start)
        return Start(subscriber, start, reader, over)

    return await looks.look(("start", id, after, reader.roles), id, read)


async def follow(
    looks: Looks,
    wakeups: Wakeups,
    start: Start,
    ping_seconds: float,
    turn: Turn,
    frame: Callable[[Subscriber, StoredMatch], Frame],
) -> AsyncGenerator[Found[Frame] | Expiring | End | None]:
    """Yields what a reader gets from `start` on: pages of messages, which `frame` makes; once for each end time, that
    the subscription will end soon; None when nothing has come for `ping_seconds`; and finally the reason why the stream
    ends. The next page is read after the previous one was taken. While the database cannot be reached, it is tried
    again."""
    number, after, told = start.subscriber.number, start.after, None
    away_since: float | None = None
    with wakeups.watch(number) as woken:
        while not wakeups.closed:
            woken.clear()
            try:
                subscriber, end, frames, has_more = await _next_page(looks, start, after, turn, frame)
            except (RecordDamaged, StoreDamaged):
                yield "damaged"
                return
            except StoreUnavailable:
                away_since = away_since or time.monotonic()
                if time.monotonic() - away_since > AWAY_SECONDS:
                    break
                await asyncio.sleep(AWAY_PAUSE_SECONDS)
                yield None
                continue
            except HiddenAttribute:
                yield "hidden"
                return
            except CursorGone:
                yield "gone"
                return
            away_since = None
            if subscriber is None:
                yield "deleted"
                return
            if end > after:
                after = end
                yield Found(frames)
                has_more = has_more or _has_expired(subscriber)  # it may have been renewed meanwhile
            if (soon := expiring(subscriber)) is not None and soon != told:
                told = soon
                yield Expiring(soon)
            if has_more:
                continue
            if _has_expired(subscriber):
                yield "expired"
                return
            try:
                async with asyncio.timeout(min(ping_seconds, max(0.0, subscriber.expires_at - CLOCK.now()))):
                    await woken.wait()
            except TimeoutError:
                yield None
    yield "shutdown"


async def _next_page(
    looks: Looks, start: Start, after: int, turn: Turn, frame: Callable[[Subscriber, StoredMatch], Frame]
) -> tuple[Subscriber | None, int, Iterator[Frame], bool]:
    """Returns the subscription (None if it was deleted), the messages behind `after` with the position of the last one,
    and whether there are more. A large event is read, and its message is made, within a `turn`."""
    number = start.subscriber.number

    def read(look: Look) -> tuple[Subscriber | None, list[StoredMatch], bool]:
        start.reader.check(look.connection, number)  # an attribute may have been hidden meanwhile
        if (subscriber := look.subscriber(number)) is None:
            return None, [], False
        refuse_gone(subscriber, after)
        found = look.read(number, after=after, limit=PAGE_MESSAGES, byte_budget=PAGE_BYTES)
        return subscriber, found, bool(found) and look.has_more(number, found[-1].position)

    look = partial(looks.look, ("follow", number, after, start.reader.roles), number, read)
    subscriber, found, more = await look()
    if subscriber is None or not found:
        return subscriber, after, iter(()), more
    if len(found[-1].body) <= PAGE_BYTES:
        return subscriber, found[-1].position, map(partial(frame, subscriber), _taken(deque(found))), more
    del found  # while this waits
    async with turn():
        subscriber, found, more = await look()
        if subscriber is None or not found:
            return subscriber, after, iter(()), more
        made = partial(frame, subscriber)
        frames = await run_to_the_end(lambda: deque(map(made, found)))
        return subscriber, found[-1].position, _taken(frames), more


def _taken(page: deque[T]) -> Iterator[T]:
    """Yields the items, and holds only those that are left."""
    while page:
        yield page.popleft()


async def stream(
    looks: Looks, wakeups: Wakeups, start: Start, ping_seconds: float, turn: Turn
) -> AsyncGenerator[bytes]:
    """Yields the lines of the answer, from `start` until the subscription ends, the server stops or the reader
    leaves."""
    yield format_sse_event(retry=RETRY_MILLISECONDS)
    async for step in follow(looks, wakeups, start, ping_seconds, turn, partial(_sse_event, reader=start.reader)):
        if step is None:
            yield KEEPALIVE_COMMENT
        elif isinstance(step, str):
            yield format_sse_event(event="end", data_str=f'{{"reason":"{step}"}}')
        elif isinstance(step, Expiring):
            yield format_sse_event(event="expiring", data_str=f'{{"expiring":"{step.at}"}}')
        else:
            for frame in step.frames:
                yield frame
                del frame  # the next one may come much later


def _sse_event(subscriber: Subscriber, match: StoredMatch, reader: Reader) -> bytes:
    data = encode(message_of(subscriber.id, match, subscriber.attributes, reader.shown))
    return b"event: match\ndata: %b\nid: %d\n\n" % (b" ".join(data.splitlines()), match.position)


def _has_expired(subscriber: Subscriber) -> bool:
    return subscriber.status == "expired" or subscriber.expires_at <= CLOCK.now()


CLOUDEVENTS = "cloudevents.json"
"""The subprotocol of CloudEvents' WebSocket binding, with events in JSON."""

_CLOSE_CODES = {"shutdown": 1012, "deleted": 1000, "expired": 1000, "damaged": 1011, "hidden": 1008, "gone": 1011}


class BadFrame(ServerError):
    """A frame is a JSON object with `ack`, a cursor, or `ticket`, or both."""


class _Asked(msgspec.Struct, forbid_unknown_fields=True):
    """A frame of the reader. `ticket` is that of the subscription, if the handshake could not carry it. A right one is
    also used for later frames."""

    ack: str | None = None
    ticket: str | None = None


_decoder = msgspec.json.Decoder(_Asked)


async def serve_websocket(
    delivery: DeliveryService,
    websocket: WebSocket,
    start: Start,
    claim: Claim,
    problem: Callable[[Exception], dict[str, object]],
    charge: Callable[[], None],
    turn: Turn,
) -> None:
    """Accepts the connection and serves it until the reader leaves or the subscription ends. `problem` converts an
    error to what a client sees. `charge` is called for each frame of the reader and raises `LimitReached`. `turn` is
    that of `follow`."""
    bare = CLOUDEVENTS in websocket.scope["subprotocols"]
    await websocket.accept(CLOUDEVENTS if bare else None)
    sending = asyncio.create_task(_send(delivery, websocket, start, bare, turn))
    reading = asyncio.create_task(_read(delivery, websocket, start.subscriber, claim, problem, charge))
    try:
        await asyncio.wait((sending, reading), return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (sending, reading):
            task.cancel()
        ended = await asyncio.gather(sending, reading, return_exceptions=True)
    if websocket.application_state is WebSocketState.DISCONNECTED:
        return  # one task has closed the connection, so the other could not send
    for error in ended:
        if isinstance(error, Exception) and not isinstance(error, WebSocketDisconnect | OSError):
            with contextlib.suppress(RuntimeError, OSError):  # the connection may be gone
                await websocket.close(1011)
            raise error


async def _send(delivery: DeliveryService, websocket: WebSocket, start: Start, bare: bool, turn: Turn) -> None:
    pings, frame = delivery.settings.stream_ping_seconds, partial(_frame, reader=start.reader, bare=bare)
    async for step in follow(delivery.looks, delivery.wakeups, start, pings, turn, frame):
        if isinstance(step, str):
            if not bare:
                await websocket.send_text(f'{{"end":"{step}"}}')
            await websocket.close(_CLOSE_CODES[step], step)
        elif isinstance(step, Expiring):
            if not bare:
                await websocket.send_text(f'{{"expiring":"{step.at}"}}')
        elif step is not None:
            for text in step.frames:
                await websocket.send_text(text)
                del text  # the next one may come much later


def _frame(subscriber: Subscriber, match: StoredMatch, reader: Reader, bare: bool) -> str:
    chosen = subscriber.id, match, subscriber.attributes, reader.shown
    return as_cloudevent(*chosen) if bare else encode(message_of(*chosen)).decode()


async def _read(
    delivery: DeliveryService,
    websocket: WebSocket,
    subscriber: Subscriber,
    claim: Claim,
    problem: Callable[[Exception], dict[str, object]],
    charge: Callable[[], None],
) -> None:
    while True:
        frame = await websocket.receive()
        if frame["type"] == "websocket.disconnect":
            return
        try:
            charge()
            asked = _asked(frame.get("text") or frame.get("bytes") or b"")
            if asked.ack is None and asked.ticket is None:
                raise BadFrame
            if asked.ticket:
                offered = replace(claim, ticket=asked.ticket)
                check_ticket(offered, subscriber.ticket_hash, subscriber.created_by)
                claim = offered
            if asked.ack is None:
                continue
            acked = await delivery.acknowledgements.acknowledge(subscriber.id, asked.ack, claim)
            told: dict[str, object] = {"acked": str(acked)}
        except Exception as error:
            told = {"problem": problem(error)}
        await websocket.send_text(msgspec.json.encode(told).decode())


def _asked(frame: str | bytes) -> _Asked:
    try:
        return _decoder.decode(frame)
    except msgspec.ValidationError:
        raise BadFrame from None
    except (msgspec.DecodeError, UnicodeError):
        raise MalformedJson("the frame is not JSON") from None
