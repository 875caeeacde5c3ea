"""Routes of notifications: what NGSI-LD brokers and ONE Record servers send to their subscribers, as events."""

import asyncio
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from kindcast.semantic import InvalidEvent
from kindcast.server.api.access import caller_of, count_events
from kindcast.server.api.events import Accepted, matched_by
from kindcast.server.api.requests import AppBroker, AppEventReader, answer, body_schema
from kindcast.server.cloudevents import DecodedEvent, EventReader
from kindcast.server.notifications import digest_of, ngsi_ld_events, one_record_events
from kindcast.server.strict_json import decode

__all__ = ["router"]

router = APIRouter(prefix="/v1", tags=["events"])

Source = Annotated[
    str | None,
    Query(max_length=2_048, description="The source of the events, instead of the source in the notification."),
]
Verbose = Annotated[bool, Query(description="Whether the answer lists every event with its notes.")]
NOTIFICATION = {"type": "object"}


@router.post(
    "/ngsi-ld/notifications",
    summary="Publish a notification of an NGSI-LD broker",
    status_code=202,
    openapi_extra=body_schema(NOTIFICATION),
)
async def take_ngsi_ld(
    request: Request, broker: AppBroker, reader: AppEventReader, source: Source = None, verbose: Verbose = False
) -> Response:
    """Accepts one event for each entity in `data`, all or none. The context is that of the entity, of the notification,
    or of the header `Link`; NGSI-LD's core context is added. A notification that is sent again is a duplicate."""
    link = request.headers.get("link")
    return await _taken(
        request,
        broker,
        reader,
        verbose,
        lambda body, digest: ngsi_ld_events(body, link=link, source=source, digest=digest),
    )


@router.post(
    "/onerecord/notifications",
    summary="Publish a notification of a ONE Record server",
    status_code=202,
    openapi_extra=body_schema(NOTIFICATION),
)
async def take_one_record(
    request: Request, broker: AppBroker, reader: AppEventReader, source: Source = None, verbose: Verbose = False
) -> Response:
    """Accepts one event for the logistics object, with the data that the notification embeds, or else with its IRI and
    type. The members of the notification are in `ce.notificationtype`, `ce.triggeredby`, `ce.logisticsevent`,
    `ce.changedproperties`."""
    return await _taken(
        request, broker, reader, verbose, lambda body, digest: one_record_events(body, source=source, digest=digest)
    )


async def _taken(
    request: Request,
    broker: AppBroker,
    reader: EventReader,
    verbose: bool,
    events_of: Callable[[Any, str], list[dict[str, Any]]],
) -> Response:
    """Accepts the events of a notification in one transaction. Raises `InvalidEvent` if one cannot be read."""
    raw = await request.body()

    def read() -> list[DecodedEvent]:
        found = events_of(decode(raw), digest_of(raw))
        reader.check_count(len(found))
        return [reader.from_object(each) for each in found]

    try:
        decoded = await asyncio.to_thread(read)
        count_events(request, len(decoded))
        most = caller_of(request).max_matches
        told = await broker.publish_together(decoded, verbose=verbose, max_matches=most)
    except InvalidEvent:
        broker.metrics.events_rejected.inc()
        raise
    duplicates = sum(each.duplicate for each in told)
    content = Accepted(
        accepted=len(told) - duplicates,
        duplicates=duplicates,
        matched=matched_by(told, broker.settings),
        rejected=[],
        events=told if verbose else None,
    )
    return answer(content, 202)
