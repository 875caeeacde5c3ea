"""Routes of delivery: pull, acknowledge, stream and WebSocket; dead letters, which list matches that no webhook took,
and deliver them again; and the live tail of all events. `kindcast.server.delivery` does the work.
"""

import asyncio
import base64
import binascii
from collections.abc import AsyncGenerator, Sequence
from functools import partial
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response, WebSocket
from fastapi.sse import EventSourceResponse
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import Connection, Row
from starlette.requests import HTTPConnection
from starlette.types import Receive, Scope, Send

from kindcast.server.api.access import AccessControl, caller_of, services_of
from kindcast.server.api.problem_types import Problem, as_document, problem_of, respond
from kindcast.server.api.requests import (
    PRINTABLE,
    AppBroker,
    AppCaller,
    AppSettings,
    Cursor,
    Ticket,
    answer,
    body_schema,
    json_object,
    large_turn_of,
    moment,
    reader_of,
    turn_for_large_page,
    unless_left,
    without_payload,
)
from kindcast.server.api.subscriptions import read_body
from kindcast.server.broker import Broker
from kindcast.server.clock import CLOCK
from kindcast.server.delivery.message import message_of, subscriber_of
from kindcast.server.delivery.receiving import (
    DEFAULT_LIMIT,
    MAX_LIMIT,
    find_start,
    pull,
    serve_websocket,
    stream,
)
from kindcast.server.delivery.service import DeliveryService, TooManyReaders
from kindcast.server.delivery.tail import Filter, LiveTail, Look
from kindcast.server.errors import SinkMissing, SubscriptionGone
from kindcast.server.security.keys import TICKET_HEADER, Claim, check_ticket
from kindcast.server.security.permissions import Reader
from kindcast.server.store.deliveries import DeadLetter, list_dead
from kindcast.server.store.events import last_sequence, read_attempts

__all__ = ["dead_letter_router", "live_router", "router"]

router = APIRouter(prefix="/v1/subscriptions/{id}", tags=["delivery"])


class _EventStream(EventSourceResponse):
    """Like the framework's own, but it does not hold the last message until the next one comes. That one holds it also
    after the client has left, until the garbage collector looks. Messages may be large."""

    def __init__(self, lines: AsyncGenerator[bytes]) -> None:
        super().__init__(lines, headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        self._lines = lines

    async def stream_response(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async for line in self._lines:
            await send({"type": "http.response.body", "body": line, "more_body": True})
            del line
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sending = asyncio.ensure_future(self.stream_response(send))
        leaving = asyncio.ensure_future(self.listen_for_disconnect(receive))
        try:
            await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
        finally:
            sending.cancel()
            leaving.cancel()
            await asyncio.wait((sending, leaving))
            await self._lines.aclose()
        if not sending.cancelled():
            sending.result()


MAX_WAIT_SECONDS = 30.0
"""The longest wait that a client may request. The settings of a server may be lower."""

MAX_WATCHING = 10_000
"""The maximum number of open streams and long polls. Each holds a connection and some 50 KB."""

SubscriptionId = Annotated[str, Path(description="The id of the subscription.")]
After = Annotated[
    str | None, Query(description="A cursor: start after this message. Default: after the last acknowledged message.")
]


class Acknowledgement(BaseModel):
    """The cursor that the reader acknowledges."""

    model_config = ConfigDict(extra="forbid")

    cursor: str


@router.get("/events", summary="Pull messages")
async def pull_messages(
    request: Request,
    id: SubscriptionId,
    after: After = None,
    limit: Annotated[int, Query(ge=1, le=MAX_LIMIT, description="Messages at most.")] = DEFAULT_LIMIT,
    wait: Annotated[
        float,
        Query(ge=0, le=MAX_WAIT_SECONDS, allow_inf_nan=False, description="Seconds to wait for the first message."),
    ] = 0.0,
) -> Response:
    """Returns the next messages of a subscription, and the cursor after which to continue. Reading acknowledges
    nothing."""
    delivery = _delivery(request)
    wait = min(wait, delivery.settings.max_wait_seconds)
    if wait > 0:
        _refuse_crowds(delivery)
    caller = caller_of(request)
    reader = reader_of(caller, delivery.broker)
    turn = partial(turn_for_large_page, request)
    pulled = pull(delivery, id, reader, after=after, limit=limit, wait=wait, turn=turn)
    page = await (unless_left(request, pulled) if wait > 0 else pulled)
    access: AccessControl = request.app.state.access
    access.check_valid(caller)
    return Response(page, media_type="application/json")


@router.post("/ack", summary="Acknowledge messages", openapi_extra=body_schema(Acknowledgement.model_json_schema()))
async def acknowledge_messages(
    request: Request, id: SubscriptionId, settings: AppSettings, ticket: Ticket
) -> Acknowledgement:
    """Acknowledges everything up to the cursor. Returns the subscription's cursor, which never moves back."""
    asked = read_body(Acknowledgement, await json_object(request, settings))
    delivery = _delivery(request)
    await _check_reader(delivery.broker, id, ticket)
    acked = await delivery.acknowledgements.acknowledge(id, asked.cursor, ticket)
    return Acknowledgement(cursor=str(acked))


@router.get("/attempts", summary="Webhook attempts")
async def list_attempts(
    broker: AppBroker, caller: AppCaller, id: SubscriptionId, limit: Annotated[int, Query(ge=1, le=1_000)] = 100
) -> Response:
    """Lists the delivery attempts to the webhook, newest event first, with the answers of the sink. They are kept as
    long as their events."""

    def read(connection: Connection) -> Sequence[Row[Any]]:
        number = subscriber_of(connection, id).number
        reader_of(caller, broker).check(connection, number)
        return read_attempts(connection, number, limit=limit)

    rows = await broker.read(read)
    listed = [
        {
            "sequence": row.sequence,
            "attempt": row.attempt,
            "at": moment(row.at),
            "outcome": row.outcome,
            "status_code": row.status_code,
            "detail": row.detail,
        }
        for row in rows
    ]
    return answer({"subscription": id, "attempts": listed})


@router.post("/stream-tokens", summary="A token for a browser's stream", status_code=201)
async def make_stream_token(request: Request, id: SubscriptionId, caller: AppCaller) -> Response:
    """Returns a token that opens one stream or WebSocket of this subscription, once, within a minute, as `?token=…`. It
    is for `EventSource` and `WebSocket` in browsers, which cannot send headers. It has the rights of the key of this
    request and ends with it."""
    await _delivery(request).broker.read(lambda connection: subscriber_of(connection, id))
    access: AccessControl = request.app.state.access
    token, until = access.stream_tokens.issue(id, caller)
    return answer({"token": token, "expires_at": moment(until)}, 201, {"Cache-Control": "no-store"})


@router.post("/test", summary="Send a test message")
async def send_test(request: Request, id: SubscriptionId, ticket: Ticket) -> Response:
    """Sends a signed message of the type `io.kindcast.subscription.test` to the sink, once, and returns the result. It
    also works while the subscription is paused or disabled. Status, counters and attempts do not change."""
    delivery = _delivery(request)
    subscriber = await delivery.broker.read(lambda connection: subscriber_of(connection, id))
    check_ticket(ticket, subscriber.ticket_hash, subscriber.created_by)
    if subscriber.expires_at <= CLOCK.now():
        raise SubscriptionGone("the subscription has expired: renew it first")
    if subscriber.sink is None:
        raise SinkMissing("only a subscription with a sink can be tested")
    trial = await delivery.outbox.test(subscriber)
    return answer(
        {
            "subscription": id,
            "webhook_id": trial.message_id,
            "at": moment(trial.outcome.at),
            "outcome": trial.outcome.kind,
            "status_code": trial.outcome.status_code,
            "detail": trial.outcome.detail,
            "seconds": round(trial.seconds, 6),
        }
    )


STREAM_TOKEN = {
    "name": "token",
    "in": "query",
    "required": False,
    "schema": {"type": "string"},
    "description": "Instead of a key, a token from `POST /v1/subscriptions/{id}/stream-tokens`: for `EventSource`.",
}


# Without `response_class=EventSourceResponse`: with it, FastAPI treats the function itself as the generator of events.
@router.get(
    "/stream",
    summary="Stream messages",
    response_class=Response,
    responses={200: {"content": {"text/event-stream": {}}, "description": "The stream"}, 204: {"description": "Over"}},
    openapi_extra={"parameters": [STREAM_TOKEN]},
)
async def stream_messages(
    request: Request,
    id: SubscriptionId,
    after: After = None,
    last_event_id: Annotated[
        str | None, Header(description="Sent by browsers that connect again; it takes precedence.")
    ] = None,
) -> Response:
    """Streams server-sent events: each message is an event `match` whose id is its cursor. 204 if the subscription has
    expired and nothing is left to send."""
    delivery = _delivery(request)
    _refuse_crowds(delivery)
    start = await find_start(delivery.looks, id, last_event_id or after, reader_of(caller_of(request), delivery.broker))
    if start.over:
        return Response(status_code=204)
    pings = delivery.settings.stream_ping_seconds
    lines = stream(delivery.looks, delivery.wakeups, start, pings, partial(large_turn_of, request))
    return _EventStream(lines)


@router.websocket("/ws")
async def exchange_messages(
    websocket: WebSocket,
    id: SubscriptionId,
    after: After = None,
    ticket: Annotated[str | None, Header(alias=TICKET_HEADER)] = None,
) -> None:
    """Serves a WebSocket: each message is a text frame, and the reader sends acknowledgements."""
    delivery = _delivery(websocket)
    try:
        _refuse_crowds(delivery)
        start = await find_start(delivery.looks, id, after, reader_of(caller_of(websocket), delivery.broker))
    except Exception as error:
        await websocket.send_denial_response(await respond(websocket, error))
        return
    caller = caller_of(websocket)
    await serve_websocket(
        delivery,
        websocket,
        start,
        caller.claim(ticket),
        lambda error: as_document(problem_of(error)),
        caller.charge,
        partial(large_turn_of, websocket),
    )


async def _check_reader(broker: Broker, id: str, ticket: Claim) -> None:
    """Raises `HiddenAttribute` if the holder of a ticket may not see the matches of the subscription, and then
    `UnknownSubscription`, too."""
    reader = reader_of(ticket, broker)
    if reader.view is not None:
        await broker.read(lambda connection: reader.check(connection, subscriber_of(connection, id).number))


def _delivery(request: HTTPConnection) -> DeliveryService:
    service: DeliveryService = services_of(request).delivery
    return service


def _refuse_crowds(delivery: DeliveryService) -> None:
    if delivery.wakeups.watching >= MAX_WATCHING:
        raise TooManyReaders


# ── routes of dead letters: list matches whose webhook was disabled before it took them, and redeliver them ───────────


dead_letter_router = APIRouter(prefix="/v1/dead-letters", tags=["delivery"])

MAX_PAGE = 1_000
PAGE_BYTES = 16 << 20
"""The maximum size of the events in one page."""


class RedriveBody(BaseModel):
    """The subscription whose dead letters are sent again."""

    model_config = ConfigDict(extra="forbid")

    subscription: Annotated[str, Field(max_length=100, pattern=PRINTABLE, description="Its id.")]


@dead_letter_router.get("", summary="List dead letters")
async def list_all(
    request: Request,
    broker: AppBroker,
    caller: AppCaller,
    subscription: Annotated[
        str | None, Query(max_length=100, description="Only dead letters of this subscription.")
    ] = None,
    cursor: Cursor = None,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 100,
) -> Response:
    """Lists messages that wait for a webhook that was disabled by its failures, by subscription and in their order.
    They are kept until they are sent, acknowledged, or deleted because of their age."""
    after = _parsed(cursor)
    reader = reader_of(caller, broker)

    def read(connection: Connection) -> list[DeadLetter]:
        if subscription is not None:
            subscriber_of(connection, subscription)

        def is_visible(number: int) -> bool:
            return number in reader.visible(connection, [number])

        return list_dead(
            connection,
            after=after,
            limit=limit,
            byte_budget=PAGE_BYTES,
            is_visible=is_visible,
            only=subscription,
        )

    async with turn_for_large_page(request):
        found = await broker.read(read)
    last = f"{found[-1].subscriber.number}.{found[-1].match.position}" if found else None
    following = None if last is None else base64.urlsafe_b64encode(last.encode()).decode().rstrip("=")
    letters = [_shown(each, reader, payload=caller.sees_payloads) for each in found]
    return answer({"dead_letters": letters, "cursor": following})


@dead_letter_router.post(
    "/redrive", summary="Send dead letters again", openapi_extra=body_schema(RedriveBody.model_json_schema())
)
async def redrive(request: Request, broker: AppBroker, settings: AppSettings, ticket: Ticket) -> Response:
    """Enables the webhook of a disabled subscription again. Its waiting messages are sent at once, in order. It needs
    the ticket of the subscription. `redriven` is the number of these messages. It is 0 if the webhook was not disabled;
    then nothing changes."""
    asked = read_body(RedriveBody, await json_object(request, settings))
    await _check_reader(broker, asked.subscription, ticket)  # `redriven` counts matches
    row, redriven = await broker.redrive(asked.subscription, ticket)
    return answer({"subscription": row.id, "status": row.status, "redriven": redriven})


def _shown(letter: DeadLetter, reader: Reader, *, payload: bool) -> dict[str, Any]:
    subscriber = letter.subscriber
    chosen = subscriber.id, letter.match, subscriber.attributes, reader.shown
    message: dict[str, Any] = msgspec.structs.asdict(message_of(*chosen))
    for name in ("late", "sequence", "retracted"):
        if not message[name]:
            del message[name]  # as in all other messages
    if not payload:
        message |= {"event": without_payload(message["event"]), "bindings": []}
    return message | {"reason": subscriber.status_reason, "last_failure": moment(subscriber.last_failure)}


def _parsed(cursor: str | None) -> tuple[int, int]:
    """Returns (number, position) of a cursor. Raises `Problem` (400) for an invalid cursor."""
    if cursor is None:
        return 0, 0
    try:
        number, dot, position = (
            base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode("ascii").partition(".")
        )
        if dot and number.isdigit() and position.isdigit() and max(len(number), len(position)) <= 18:
            return int(number), int(position)
    except (ValueError, binascii.Error):
        pass
    raise Problem("invalid-cursor", "the cursor is not from this list: leave it out to start from the beginning")


# ── the live tail: events as they arrive ──────────────────────────────────────────────────────────────────────────────


live_router = APIRouter(prefix="/v1", tags=["events"])

LOOKED_AT = 10_000
"""The number of events among which those of one source are searched."""


async def _live_tail(request: Request) -> LiveTail:
    tail: LiveTail = services_of(request).tail
    return tail


# Without `response_class=EventSourceResponse`: with it, FastAPI treats the function itself as the generator of events.
@live_router.get(
    "/events/stream",
    summary="Watch events",
    response_class=Response,
    responses={200: {"content": {"text/event-stream": {}}, "description": "The stream"}},
)
async def watch_events(
    tail: Annotated[LiveTail, Depends(_live_tail)],
    settings: AppSettings,
    caller: AppCaller,
    source: Annotated[str | None, Query(max_length=2_048, description="Only events of this source.")] = None,
) -> Response:
    """Streams server-sent events of the type `events`: the events accepted since the last one, with the subscriptions
    that got them. Above 50 events per second it is a sample, and `skipped` is the number of missing events. It begins
    now and repeats nothing."""
    lines = tail.watch(Filter(source, caller.sees_payloads, caller.roles), settings.stream_ping_seconds)
    return _EventStream(lines)


@live_router.get("/events/recent", summary="The newest events")
async def recent(
    broker: AppBroker,
    caller: AppCaller,
    source: Annotated[str | None, Query(max_length=2_048, description="Only events of this source.")] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> Response:
    """Lists the newest events, newest first, with the subscriptions that got them, in the form of the stream. With
    `source`, they are those among the newest 10,000 events."""
    wanted, vocabulary = Filter(source, caller.sees_payloads, caller.roles), broker.vocabulary

    def read(connection: Connection) -> list[msgspec.Raw]:
        after = 0 if source is None else last_sequence(connection) - LOOKED_AT
        return Look(connection, vocabulary, after).newest(wanted, limit)

    return answer({"events": (await broker.read(read))[::-1]})
