"""WebSocket: each match of a subscription as a frame of text, and acknowledgements on the way back.

    server ──▶ {"cursor": "42", "event": …}        a message, as pull and stream have it
    reader ──▶ {"ack": "42"}                       acknowledges everything up to the cursor
    server ──▶ {"acked": "42"}                     it is on disk
    server ──▶ {"problem": {"type": …, …}}         what was wrong with a frame of the reader; the connection stays
    server ──▶ {"expiring": "2026-…Z"}             the subscription ends then, within a day
    server ──▶ {"end": "expired"}                  last: `expired` or `deleted` (1000), `shutdown` (1012: connect
                                                   again), `damaged` (1011: the next message cannot be given out),
                                                   `hidden` (1008: its role may not match on this any more)

With the subprotocol `cloudevents.json` each frame is the CloudEvent itself, with the extension attributes
`kindcastcursor`, `kindcastsubscription` and, where there are any, `kindcastbindings` (JSON text); the end is told by
the close frame alone, and not before.

Reading costs no memory: a page is held until the connection has taken it. The server pings; who does not answer, or
takes nothing of what is sent for too long, is disconnected (`kindcast.server.api.http_protocol`).
"""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import replace

import msgspec
from starlette.websockets import WebSocket, WebSocketDisconnect

from kindcast.server.delivery.message import as_cloudevent, encode, message_of
from kindcast.server.delivery.pull import acknowledge_cursor
from kindcast.server.delivery.service import DeliveryService
from kindcast.server.delivery.stream import Expiring, Start, follow
from kindcast.server.errors import ServerError
from kindcast.server.security.tickets import Claim
from kindcast.server.strict_json import MalformedJson

__all__ = ["CLOUDEVENTS", "BadFrame", "serve_websocket"]

CLOUDEVENTS = "cloudevents.json"
"""The subprotocol of CloudEvents' WebSocket binding, with events in JSON."""

_CLOSE_CODES = {"shutdown": 1012, "deleted": 1000, "expired": 1000, "damaged": 1011, "hidden": 1008}


class BadFrame(ServerError):
    """A frame is a JSON object with `ack`, a cursor, or `ticket`, or both."""


class _Asked(msgspec.Struct, forbid_unknown_fields=True):
    """A frame of the reader. `ticket`: of the subscription, where the handshake could not carry it; it stands for the
    frames that follow as well."""

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
) -> None:
    """Accepts the connection and serves it until the reader leaves or the subscription ends. `problem`: what an error
    looks like to a client. `charge` is called for each frame of the reader: raises `LimitReached`."""
    bare = CLOUDEVENTS in websocket.scope["subprotocols"]
    await websocket.accept(CLOUDEVENTS if bare else None)
    sending = asyncio.create_task(_send(delivery, websocket, start, bare))
    reading = asyncio.create_task(_read(delivery, websocket, start.subscriber.id, claim, problem, charge))
    try:
        await asyncio.wait((sending, reading), return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (sending, reading):
            task.cancel()
        ended = await asyncio.gather(sending, reading, return_exceptions=True)
    for error in ended:
        if isinstance(error, Exception) and not isinstance(error, WebSocketDisconnect | OSError):
            with contextlib.suppress(RuntimeError, OSError):  # the connection may be gone
                await websocket.close(1011)
            raise error


async def _send(delivery: DeliveryService, websocket: WebSocket, start: Start, bare: bool) -> None:
    id, attributes, shown = start.subscriber.id, start.subscriber.attributes, start.reader.shown
    pings = delivery.settings.stream_ping_seconds
    async for step in follow(delivery.broker, delivery.wakeups, start, pings):
        if isinstance(step, str):
            if not bare:
                await websocket.send_text(f'{{"end":"{step}"}}')
            await websocket.close(_CLOSE_CODES[step], step)
        elif isinstance(step, Expiring):
            if not bare:
                await websocket.send_text(f'{{"expiring":"{step.at}"}}')
        elif step is not None:
            for match in step:
                chosen = id, match, attributes, shown
                await websocket.send_text(as_cloudevent(*chosen) if bare else encode(message_of(*chosen)).decode())


async def _read(
    delivery: DeliveryService,
    websocket: WebSocket,
    id: str,
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
            claim = replace(claim, ticket=asked.ticket or claim.ticket)
            if asked.ack is not None:
                told: dict[str, object] = {
                    "acked": str(await acknowledge_cursor(delivery.broker, id, asked.ack, claim))
                }
            else:
                continue
        except Exception as error:
            told = {"problem": problem(error)}
        await websocket.send_text(msgspec.json.encode(told).decode())


def _asked(frame: str | bytes) -> _Asked:
    try:
        return _decoder.decode(frame)
    except msgspec.ValidationError:
        raise BadFrame from None
    except (msgspec.DecodeError, UnicodeError):
        raise MalformedJson("the frame is no JSON") from None
