"""Helpers that all routes share: access to the application's parts, strict JSON, times and cursors as text."""

import asyncio
import base64
import binascii
import re
from collections.abc import AsyncIterator, Collection, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime
from difflib import get_close_matches
from functools import partial
from typing import Annotated, Any, TypeVar
from urllib.parse import urlsplit

import msgspec
from fastapi import Depends, Header, Query, Request, Response
from fastapi.dependencies.models import Dependant
from pydantic import BeforeValidator, Field
from starlette.requests import ClientDisconnect, HTTPConnection

from kindcast.server.api.access import caller_of, enter_until_answered, services_of
from kindcast.server.api.problem_types import Problem
from kindcast.server.broker import Broker
from kindcast.server.clock import instant
from kindcast.server.cloudevents import EventReader, media_type_of
from kindcast.server.security.callers import Caller
from kindcast.server.security.keys import TICKET_HEADER, Claim
from kindcast.server.security.permissions import Reader
from kindcast.server.settings import Settings
from kindcast.server.strict_json import decode, depth_within
from kindcast.server.worker_threads import Turns, long_turns, run_to_the_end

__all__ = [
    "CUT",
    "LARGE_BODY",
    "MOST_ERRORS",
    "PRINTABLE",
    "SUBSCRIPTION_ID",
    "AppBroker",
    "AppCaller",
    "AppEventReader",
    "AppSettings",
    "Cursor",
    "DryRun",
    "Language",
    "Moment",
    "Number",
    "Ticket",
    "answer",
    "body_schema",
    "check_encoding",
    "check_name",
    "has_left",
    "json_object",
    "large_turn_of",
    "moment",
    "next_page",
    "not_yet",
    "only_members",
    "only_parameters",
    "page_cursor",
    "parse_page_cursor",
    "reader_of",
    "server_of",
    "turn_for_huge_body",
    "turn_for_large_page",
    "unless_left",
    "without_payload",
]

T = TypeVar("T")

JSON = "application/json"

MOST_ERRORS = 20
"""The maximum number of unknown members or parameters that an answer lists."""

LARGE_BODY = 1 << 16
"""A body of at least this many bytes is read in a worker thread, because reading it would block the event loop for
milliseconds."""

HUGE_BODY = 1 << 20
"""One request of each tenant with a body of at least this many bytes is carried out at a time: as objects of Python, a
body takes up to twenty times the memory, and every collection of garbage visits them."""

SUBSCRIPTION_ID = re.compile(r"sub_[0-9a-f]{16}")
"""The ids that servers give to subscriptions. No expression looks like this."""


def check_name(name: str) -> None:
    """Raises `Problem` (400) for a new name that many clients cannot send later, because they resolve dots in paths."""
    if name in (".", ".."):
        detail = f"{name!r} cannot be a name, because many clients resolve it as a part of the path: choose another one"
        raise Problem("invalid-request", detail, errors=[{"pointer": "", "detail": detail}], status=400)


async def _broker(request: Request) -> Broker:
    broker: Broker = services_of(request).broker
    return broker


async def _settings(request: Request) -> Settings:
    settings: Settings = request.app.state.settings
    return settings


async def _event_reader(request: Request) -> EventReader:
    reader: EventReader = services_of(request).reader
    return reader


async def _caller(request: Request) -> Caller:
    return caller_of(request)


AppBroker = Annotated[Broker, Depends(_broker)]
AppSettings = Annotated[Settings, Depends(_settings)]
AppEventReader = Annotated[EventReader, Depends(_event_reader)]


async def _claim(
    request: Request,
    ticket: Annotated[
        str | None,
        Header(alias=TICKET_HEADER, description="The ticket of the subscription, from the answer to its creation."),
    ] = None,
) -> Claim:
    return caller_of(request).claim(ticket)


AppCaller = Annotated[Caller, Depends(_caller)]
"""The caller who sends the request."""
Ticket = Annotated[Claim, Depends(_claim)]
"""The ticket, key and roles by which the request may change a subscription."""


def _is_text(given: object) -> object:
    """Refuses numbers, of which nobody can say whether they are seconds or milliseconds."""
    if isinstance(given, int | float) or (isinstance(given, str) and _NUMBER.fullmatch(given.strip())):
        raise ValueError("send a date and a time such as 2026-01-31T12:00:00Z, not a number")
    return given


_NUMBER = re.compile(r"[+-]?[0-9.]+")
Moment = Annotated[datetime, BeforeValidator(_is_text)]
"""A date-time of a request, as RFC 3339 writes it."""
Number = Annotated[float, Field(strict=True)]
"""A number of a request, and neither a text nor true or false."""

PRINTABLE = r"^[^\x00-\x1f\x7f-\x9f]*$"
"""Texts without control characters: PostgreSQL does not store NUL, and a terminal may obey the others."""

Language = Annotated[str, Query(max_length=35, description="Language of the labels, such as en, de, zh.")]
Cursor = Annotated[str | None, Query(max_length=64, description="The cursor of the previous page.")]
DryRun = Annotated[bool, Query(description="Only report the effect; change nothing.")]


def reader_of(caller: Caller | Claim, broker: Broker) -> Reader:
    """Returns the reader that decides what the caller may see of events."""
    return Reader(caller.roles, lambda: broker.vocabulary)


@asynccontextmanager
async def turn_for_large_page(request: Request) -> AsyncIterator[None]:
    """A context manager that is entered when the client of a request may read a large page. Raises `ClientDisconnect`
    if the client left meanwhile."""
    async with large_turn_of(request):
        if await request.is_disconnected():
            raise ClientDisconnect
        yield


def large_turn_of(request: HTTPConnection) -> AbstractAsyncContextManager[None]:
    """Returns a context manager that is entered when it is the client's turn to read something large."""
    client = caller_of(request).owner or (request.client and request.client.host)
    turns: Turns = services_of(request).delivery.large_pages
    return turns.of(client)


async def has_left(request: Request) -> None:
    """Returns when the client has left. The body must be read before."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def unless_left(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Returns the result of `work`, which is cancelled if the client leaves. The body must be read before. Raises
    `ClientDisconnect`."""
    working, leaving = asyncio.ensure_future(work), asyncio.ensure_future(has_left(request))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return working.result()
    finally:
        working.cancel()
        leaving.cancel()


def answer(content: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Returns a JSON answer."""
    return Response(msgspec.json.encode(content), status, headers, JSON)


async def json_object(request: Request, settings: Settings, *, optional: bool = False) -> dict[str, Any]:
    """Reads the body of a request, which must be a JSON object. With `optional`, an empty body stands for `{}`.
    Formats of patches are refused, because a change replaces each member as a whole.

    Raises `Problem` (415, 400), `MalformedJson`.
    """
    body = await request.body()
    if optional and not body:
        return {}
    check_encoding(request.headers.get("content-encoding"))
    media_type = media_type_of(request.headers.get("content-type"))
    if media_type != JSON and (not media_type.endswith("+json") or media_type.endswith("-patch+json")):
        raise Problem("unsupported-media-type", f"send {JSON}, not {media_type or 'a body without Content-Type'}")
    if len(body) < LARGE_BODY:
        return _object(body, settings.max_json_depth)
    await turn_for_huge_body(request)
    return await run_to_the_end(partial(_object, body, settings.max_json_depth))


async def turn_for_huge_body(request: Request) -> None:
    """Waits until the other requests of this tenant with bodies of `HUGE_BODY` bytes are answered, if this one has such
    a body."""
    if len(await request.body()) >= HUGE_BODY:
        await enter_until_answered(request, long_turns().of_huge_body())


def _object(body: bytes, depth: int) -> dict[str, Any]:
    value = decode(body)
    if not isinstance(value, dict):
        raise Problem("malformed-request", "the body must be a JSON object")
    if not depth_within(value, depth):
        raise Problem("too-deep", f"the JSON is nested deeper than {depth} levels")
    return value


def check_encoding(encoding: str | None) -> None:
    """Raises `Problem` for a body with this Content-Encoding, unless it is none."""
    if encoding is not None and encoding.strip().lower() != "identity":
        detail = f"the Content-Encoding {encoding.strip().lower()} is not supported: send the body uncompressed"
        raise Problem("unsupported-encoding", detail)


def only_members(body: Mapping[str, Any], known: Collection[str]) -> None:
    """Raises `Problem` if a body has members that are not among the `known` ones."""
    unknown = [name for name in body if name not in known]
    if unknown:
        escaped = (name[:100].replace("~", "~0").replace("/", "~1") for name in unknown[:MOST_ERRORS])
        errors = [{"pointer": f"/{name}", "detail": "unknown member"} for name in escaped]
        detail = f"unknown member {unknown[0][:100]!r}; known are {', '.join(sorted(known))}"
        raise Problem("invalid-request", detail, errors=errors)


async def only_parameters(request: HTTPConnection) -> None:
    """A dependency of routes. Raises `Problem` for query parameters that the route does not have. If a misspelt
    `dry_run` were ignored, the request would change something."""
    if not request.query_params:
        return
    known = _parameters(request.scope["route"].dependant)
    errors = []
    for name in [each for each in request.query_params if each not in known][:MOST_ERRORS]:
        near = get_close_matches(name[:100], known, n=1)
        hint = f"known are {', '.join(known)}" if known else "this route has none"
        if near:
            hint = f"did you mean {near[0]}?"
        errors.append({"parameter": f"query: {name[:100]}", "detail": f"unknown parameter; {hint}"})
    if errors:
        raise Problem("invalid-request", f"{errors[0]['parameter']}: {errors[0]['detail']}", errors=errors)


def _parameters(dependant: Dependant) -> list[str]:
    """Returns the names of a route's query parameters, with those of its dependencies."""
    own = [each.alias for each in dependant.query_params]
    return [*own, *(name for each in dependant.dependencies for name in _parameters(each))]


def without_payload(event: Any) -> dict[str, Any]:
    """Returns what an auditor sees of an event: its identity, but no data.

    >>> without_payload({"id": "1", "source": "s", "type": "t", "data": {"name": "Ada"}, "subject": "Ada"})
    {'id': '1', 'source': 's', 'type': 't'}
    """
    told = msgspec.json.decode(event) if isinstance(event, msgspec.Raw) else event
    return {name: told[name] for name in ("specversion", "id", "source", "type", "time") if name in told}


CUT = "/…"
"""The end of a URL that is shown to a caller who may not see all of it."""


def server_of(url: str) -> str:
    """Returns the scheme and the server of a URL. Its path, query and user often allow others to send requests there.

    >>> server_of("https://user:secret@hooks.example.org:8443/T0/secret?token=x")
    'https://hooks.example.org:8443/…'
    """
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{CUT}"


def body_schema(schema: Mapping[str, Any], *, required: bool = True) -> dict[str, Any]:
    """Returns the OpenAPI description of a JSON body that the route reads itself."""
    return {"requestBody": {"required": required, "content": {JSON: {"schema": dict(schema)}}}}


def not_yet(member: str) -> Problem:
    """Returns the answer for a member of the contract that this version does not support."""
    detail = f"{member} is not in this version"
    return Problem(
        "not-in-this-version", f"{detail}: leave it out", errors=[{"pointer": f"/{member}", "detail": detail}]
    )


def moment(seconds: float | None) -> str | None:
    """Returns a time as text: RFC 3339, in UTC, to the millisecond.

    >>> moment(0.5)
    '1970-01-01T00:00:00.500Z'
    """
    return None if seconds is None else instant(seconds)


def page_cursor(number: int) -> str:
    """Returns an opaque cursor for lists.

    >>> parse_page_cursor(page_cursor(7))
    7
    """
    return base64.urlsafe_b64encode(str(number).encode()).decode().rstrip("=")


def next_page(request: Request, cursor: str | None) -> dict[str, str]:
    """Returns the header Link with the next page of a list, if there is one. Its address has no scheme and no server: a
    proxy may have others, and a client must not follow it from https to http."""
    if cursor is None:
        return {}
    url = request.url.include_query_params(cursor=cursor)
    return {"Link": f'<{url.path}?{url.query}>; rel="next"'}


def parse_page_cursor(cursor: str | None) -> int:
    """Returns the number in a cursor of a list. Raises `Problem` (400) for an invalid cursor."""
    if cursor is None:
        return 0
    try:
        text = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        if text.isdigit() and len(text) <= 18:
            return int(text)
    except (ValueError, binascii.Error):
        pass
    raise Problem("invalid-cursor", "the cursor is not from this list: leave it out to start from the beginning")
