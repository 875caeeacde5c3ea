"""Routes of dead letters: list matches whose webhook was disabled before it took them, and redeliver them."""

import base64
import binascii
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import Connection

from kindcast.server.api.error_responses import Problem
from kindcast.server.api.requests import (
    AppBroker,
    AppCaller,
    AppSettings,
    Ticket,
    answer,
    body_schema,
    json_object,
    moment,
    reader_of,
    without_payload,
)
from kindcast.server.api.subscriptions import read_body
from kindcast.server.delivery.message import message_of
from kindcast.server.security.payloads import Reader
from kindcast.server.store.deliveries import DeadLetter, list_dead

__all__ = ["router"]

router = APIRouter(prefix="/v1/dead-letters", tags=["delivery"])

MAX_PAGE = 1_000
PAGE_BYTES = 16 << 20
"""The maximum size of the events in one page."""


class RedriveBody(BaseModel):
    """The subscription whose dead letters are sent again."""

    model_config = ConfigDict(extra="forbid")

    subscription: Annotated[str, Field(max_length=100, description="Its id.")]


@router.get("", summary="List dead letters")
async def list_all(
    broker: AppBroker,
    caller: AppCaller,
    subscription: Annotated[
        str | None, Query(max_length=100, description="Only dead letters of this subscription.")
    ] = None,
    cursor: Annotated[str | None, Query(max_length=64, description="The cursor of the previous page.")] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 100,
) -> Response:
    """Lists messages that wait for a webhook that was disabled by its failures, by subscription and in their order.
    They are kept until they are sent, acknowledged, or deleted because of their age."""
    after = _parsed(cursor)

    def read(connection: Connection) -> list[DeadLetter]:
        return list_dead(connection, after=after, limit=limit, byte_budget=PAGE_BYTES, only=subscription)

    found = await broker.read(read)
    last = f"{found[-1].subscriber.number}.{found[-1].match.position}" if found else None
    following = None if last is None else base64.urlsafe_b64encode(last.encode()).decode().rstrip("=")
    reader = reader_of(caller, broker)
    numbers = {each.subscriber.number for each in found}
    visible = await broker.read(lambda connection: reader.visible(connection, numbers))
    letters = [
        _shown(each, reader, payload=caller.sees_payloads) for each in found if each.subscriber.number in visible
    ]
    return answer({"dead_letters": letters, "cursor": following})


@router.post("/redrive", summary="Send dead letters again", openapi_extra=body_schema(RedriveBody.model_json_schema()))
async def redrive(request: Request, broker: AppBroker, settings: AppSettings, ticket: Ticket) -> Response:
    """Enables the webhook of a disabled subscription again. Its waiting messages are sent at once, in order. It needs
    the ticket of the subscription. `redriven` is the number of these messages. It is 0 if the webhook was not disabled;
    then nothing changes."""
    asked = read_body(RedriveBody, await json_object(request, settings))
    row, redriven = await broker.redrive(asked.subscription, ticket)
    return answer({"subscription": row.id, "status": row.status, "redriven": redriven})


def _shown(letter: DeadLetter, reader: Reader, *, payload: bool) -> dict[str, Any]:
    subscriber = letter.subscriber
    chosen = subscriber.id, letter.match, subscriber.attributes, reader.shown
    message: dict[str, Any] = msgspec.structs.asdict(message_of(*chosen))
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
