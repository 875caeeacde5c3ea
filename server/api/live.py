"""Routes for users who watch a server: events as they arrive, and the measurements of one day."""

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.sse import EventSourceResponse

from kindcast.server.api.access import services_of
from kindcast.server.api.requests import JSON, AppBroker, AppCaller, AppSettings, answer
from kindcast.server.delivery.tail import Filter, LiveTail, Look
from kindcast.server.history import History

__all__ = ["router"]

router = APIRouter(prefix="/v1", tags=["events"])


async def _tail(request: Request) -> LiveTail:
    tail: LiveTail = services_of(request).tail
    return tail


async def _history(request: Request) -> History:
    history: History = services_of(request).history
    return history


# Without `response_class=EventSourceResponse`: with it, FastAPI treats the function itself as the generator of events.
@router.get(
    "/events/stream",
    summary="Watch events",
    response_class=Response,
    responses={200: {"content": {"text/event-stream": {}}, "description": "The stream"}},
)
async def watch_events(
    tail: Annotated[LiveTail, Depends(_tail)],
    settings: AppSettings,
    caller: AppCaller,
    source: Annotated[str | None, Query(max_length=2_048, description="Only events of this source.")] = None,
) -> Response:
    """Streams server-sent events of the type `events`: the events accepted since the last one, with the subscriptions
    that got them. Above 50 events per second it is a sample, and `skipped` is the number of missing events. It begins
    now and repeats nothing."""
    lines = tail.watch(Filter(source, caller.sees_payloads, caller.roles), settings.stream_ping_seconds)
    return EventSourceResponse(lines, headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})


@router.get("/events/recent", summary="The newest events")
async def recent(broker: AppBroker, caller: AppCaller, limit: Annotated[int, Query(ge=1, le=200)] = 50) -> Response:
    """Lists the newest events, newest first, with the subscriptions that got them, in the form of the stream."""
    wanted, vocabulary = Filter(None, caller.sees_payloads, caller.roles), broker.vocabulary
    rows = await broker.read(lambda connection: Look(connection, vocabulary).newest(wanted, limit))
    return answer({"events": rows[::-1]})


@router.get("/series", summary="The last day", tags=["health"])
async def series(
    history: Annotated[History, Depends(_history)],
    caller: AppCaller,
    points: Annotated[int, Query(ge=2, le=2_880, description="Samples at most.")] = 720,
) -> Response:
    """Returns rates, times, queues and sizes of the last day, measured by this process every 30 seconds. They are lost
    at a restart. Values of the whole process, and so of all tenants, are shown only to callers who may act in all
    tenants; others get null."""
    return Response(history.encoded(points, whole_process=caller.of_all), media_type=JSON)
