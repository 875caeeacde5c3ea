"""Routes of events: publish, publish with matches that another program found, read back, and trace one event.

`kindcast spark stream --deliver` uses the route for matches that another program found.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from operator import itemgetter
from typing import Annotated, Any, Literal

import msgspec
from fastapi import APIRouter, Header, Path, Query, Request, Response
from sqlalchemy import Connection, Row
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send

from kindcast.semantic import InvalidEvent
from kindcast.semantic import Problem as Fault
from kindcast.semantic.events import MOST_OF_ONE, MOST_PROBLEMS
from kindcast.semantic.explanations import explain, without_values
from kindcast.semantic.subscriptions import restore_expression
from kindcast.semantic.vocabulary import View, is_linked
from kindcast.server import tracing
from kindcast.server.api.access import Gate, caller_of, count_events, services_of
from kindcast.server.api.operators import AppLateMatching
from kindcast.server.api.problem_types import Described, Problem, respond
from kindcast.server.api.request_guards import BodyLimit, host_check
from kindcast.server.api.requests import (
    JSON,
    LARGE_BODY,
    AppBroker,
    AppCaller,
    AppEventReader,
    AppSettings,
    Language,
    answer,
    check_encoding,
    moment,
    only_members,
    reader_of,
    turn_for_large_page,
    without_payload,
)
from kindcast.server.api.subscriptions import read_key
from kindcast.server.broker.broker import Broker
from kindcast.server.broker.publishing import DIFFERS, Outcome, Results
from kindcast.server.cloudevents import (
    LINES,
    SEVERAL,
    Decoded,
    DecodedEvent,
    EventReader,
    ReadingBudget,
    TooManyEvents,
    arrived,
    arrived_document,
    at_member,
    media_type_of,
    says_several,
)
from kindcast.server.delivery.protocols import DEFAULT_PROTOCOL
from kindcast.server.errors import (
    BrokerBusy,
    IdempotencyKeyReused,
    ServerError,
    StoreUnavailable,
    TooManyMatches,
    UnknownEvent,
    UnknownSubscription,
)
from kindcast.server.late_matching import explained
from kindcast.server.security.keys import Repeatable
from kindcast.server.security.limits import LimitReached
from kindcast.server.security.permissions import Reader, check_visible
from kindcast.server.settings import Settings
from kindcast.server.store import events, subscriptions
from kindcast.server.store import pending as pending_store
from kindcast.server.store.deliveries import DISABLED
from kindcast.server.store.matches import had_by
from kindcast.server.store.shards import find_place
from kindcast.server.strict_json import MalformedJson, decode, depth_within, numbered_lines
from kindcast.server.worker_threads import run_to_the_end

__all__ = ["PublishRoute", "matched_by", "matches_router", "router"]

router = APIRouter(prefix="/v1/events", tags=["events"])

PUBLISH_PATH = "/v1/events"
VERBOSE = {b"": True, b"verbose=true": True, b"verbose=false": False}
"""The query strings of `publish` that are recognised without a parser."""

HEADERS = "kindcast.headers"
"""The name in the scope of a request for its headers by name."""

MAX_PAGE = 1_000
TRACED = 1_000
"""The maximum number of subscriptions in a trace."""

MAX_SEQUENCE = 2**62

MANY_EVENTS = 1 << 12
"""A body of several events is read in a worker thread if it has at least so many bytes, because an event may have
three."""
DESCRIBED_TOGETHER = 100
"""The number of rejected events whose problems are described before other requests are served."""

BINARY_MODE = {
    "ce-specversion": "`1.0`: the request is an event in the binary mode of CloudEvents.",
    "ce-id": "The id of the event.",
    "ce-source": "The source of the event.",
    "ce-type": "The type of the event.",
    "ce-subject": "The subject of the event.",
    "ce-time": "The time of the event, as RFC 3339 writes it.",
}
"""The headers of the binary mode. Every other `ce-…` is an extension attribute."""

CLOUDEVENT = {"$ref": "#/components/schemas/CloudEvent"}
EVENTS = {
    "parameters": [
        {
            "name": name,
            "in": "header",
            "required": False,
            "schema": {"type": "string"},
            "description": f"{words} Percent-encoded.",
        }
        for name, words in BINARY_MODE.items()
    ],
    "requestBody": {
        "required": False,  # an empty body is an event without data
        "content": {
            "application/json": {"schema": {"type": "object"}, "example": {"target": "laptop", "price": 350}},
            "application/cloudevents+json": {"schema": CLOUDEVENT},
            # Without a schema: a generated client of Python fails for every body if one of several is an array or
            # anything.
            "application/cloudevents-batch+json": {
                "example": [{"specversion": "1.0", "id": "1", "source": "/till/3", "type": "offer", "data": {}}]
            },
            "application/x-ndjson": {"schema": {"type": "string"}},
            "application/ld+json": {"example": {"@context": {"price": "https://schema.org/price"}, "price": 350}},
            "text/turtle": {"schema": {"type": "string"}},
            "application/n-triples": {"schema": {"type": "string"}},
            "application/n-quads": {"schema": {"type": "string"}},
            "application/trig": {"schema": {"type": "string"}},
            "application/fhir+json": {"schema": {"type": "object"}},
        },
    },
}


class Rejected(msgspec.Struct, frozen=True, omit_defaults=True):
    """An event that was not accepted: its index (from 0), its line if the request had lines (from 1), and the
    problem."""

    index: int
    problem: dict[str, Any]
    line: int | None = None


_Refused = tuple[int, Exception, int | None]
"""An event that was not accepted: its index, why, and its line if the request had lines."""


class Accepted(msgspec.Struct, frozen=True, omit_defaults=True):
    """The answer to a publisher. `matched` is the total number of matches of the accepted events; None if shards match
    them later."""

    accepted: int
    duplicates: int
    matched: int | None
    rejected: Sequence[Rejected]
    events: Sequence[Outcome] | None = None


@router.post("", summary="Publish events", status_code=202, openapi_extra=EVENTS)
async def publish(
    request: Request,
    broker: AppBroker,
    reader: AppEventReader,
    verbose: Annotated[bool, Query(description="Whether the answer lists every event with its notes.")] = True,
    idempotency_key: Annotated[
        str | None,
        Header(
            max_length=4_096,
            description="A new UUID. Events without an id get an id that is derived from it. So you can repeat the "
            "request, and each event is accepted once.",
        ),
    ] = None,
) -> Response:
    """Accepts events: CloudEvents (binary, structured, batch), plain JSON, NDJSON. After the answer 202 the events are
    on disk and matched against every subscription that was acknowledged before. If matching is sharded, they are
    matched soon, and `matched` is null. An event that cannot be read does not stop the others of its request. If the
    store fails after it accepted some events, the other events are rejected. If no event is accepted, the answer is an
    error. Notes are made about all attributes of an event, at most 100, and about misspelt names among its first 200.
    With `verbose=false` no notes are made or kept, and only the attributes that subscriptions use are read."""
    encoding = request.headers.get("content-encoding")
    repeatable = read_key(idempotency_key, caller_of(request))
    content_type, headers = request.headers.get("content-type"), request.headers.items()
    body = await request.body()
    decoded = await _decoded(reader, encoding, content_type, headers, body, repeatable)
    content = await _accepted(request, decoded, broker, reader, verbose, len(body))
    return Response(content, 202, media_type=JSON)


async def _accepted(
    request: Request, decoded: Decoded, broker: Broker, reader: EventReader, verbose: bool, size: int
) -> bytes:
    """Publishes the events of a request of `size` bytes. Returns the answer, an `Accepted`, as JSON; raises if no event
    is accepted."""
    caller = caller_of(request)
    count_events(request, len(decoded.events))
    good = [each for each in decoded.events if isinstance(each, DecodedEvent)]
    most = caller.max_matches
    prepared: list[bytes] = []

    def prepare(results: Results) -> None:
        told = [each for each in results if isinstance(each, Outcome) and not each.duplicate]
        if len(told) == len(decoded.events):
            prepared[:] = [_answer_to(told, broker, verbose)]

    published = await broker.publish(
        good, verbose=verbose, max_matches=most, client=caller.owner, size=size, prepare=prepare
    )
    if prepared:
        return prepared[0]
    told, refused = await _results(request, decoded, published, broker, reader, verbose, most)
    if refused:
        broker.metrics.events_rejected.inc(len(refused))
    if all(each.duplicate for each in told) and any(_reuses_key(decoded.prefix, each) for each in told):
        raise IdempotencyKeyReused(
            "another request with this Idempotency-Key published other events, and no event of this one is new: send a "
            "new Idempotency-Key"
        )
    if refused and not told:
        raise await _none_accepted(refused, "no event can be read")
    if verbose and any(each.duplicate for each in told) and reader_of(caller, broker).view is not None:
        # These may be events of others: matches, and whether the body is the same, would show hidden values.
        told = [msgspec.structs.replace(each, matched=None, notes=[]) if each.duplicate else each for each in told]
    return _answer_to(told, broker, verbose, await _described(refused))


async def _results(
    request: Request,
    decoded: Decoded,
    published: Results,
    broker: Broker,
    reader: EventReader,
    verbose: bool,
    max_matches: int | None,
) -> tuple[list[Outcome], list[_Refused]]:
    """Returns the events of a request that are accepted, and those that are not. A document with several events could
    not be published as one: its events are published here. Raises the problem of a single event."""
    results = iter(published)
    budget: ReadingBudget | None = None
    told: list[Outcome] = []
    refused: list[_Refused] = []
    for index, each in enumerate(decoded.events):
        result: Outcome | ServerError | InvalidEvent = each if isinstance(each, InvalidEvent) else next(results)
        if isinstance(each, DecodedEvent) and isinstance(result, InvalidEvent):
            result = each.as_sent(result)
            if says_several(result):
                budget = budget or broker.reading_budget()
                try:
                    parts = await reader.take_apart(each, broker.vocabulary, budget)
                    count_events(request, max(0, len(parts) - 1))  # the document was counted as one
                    told += await broker.publish_together(
                        parts, verbose=verbose, max_matches=max_matches, budget=budget
                    )
                    continue
                except (InvalidEvent, TooManyMatches) as error:
                    result = error
                except (StoreUnavailable, BrokerBusy, LimitReached) as error:
                    if not told:
                        raise
                    result = error
                except TooManyEvents as error:
                    if decoded.single:
                        raise
                    result = InvalidEvent([Fault("too-many-events", str(error))])
        if isinstance(result, Outcome):
            told.append(result)
        elif decoded.single:
            broker.metrics.events_rejected.inc()
            raise result
        else:
            refused.append((index, result, None if decoded.lines is None else decoded.lines[index]))
    return told, refused


def _answer_to(told: Sequence[Outcome], broker: Broker, verbose: bool, rejected: Sequence[Rejected] = ()) -> bytes:
    """Returns the answer to a request as JSON. `told` are the events that were accepted, now or before."""
    duplicates = sum(each.duplicate for each in told)
    content = Accepted(
        accepted=len(told) - duplicates,
        duplicates=duplicates,
        matched=matched_by(told, broker.settings),
        rejected=rejected,
        events=told if verbose else None,
    )
    return msgspec.json.encode(content)


async def _described(refused: Sequence[_Refused]) -> list[Rejected]:
    """Returns what a publisher is told about these events."""
    told: list[Rejected] = []
    described = Described()
    for index, error, line in refused:
        told.append(Rejected(index, described.document(error), line))
        if len(told) % DESCRIBED_TOGETHER == 0:
            await asyncio.sleep(0)
    return told


async def _none_accepted(refused: Sequence[_Refused], what: str) -> Problem:
    """Returns the answer to a request of which nothing is accepted. It describes the first events."""
    told = await _described(refused[:MOST_PROBLEMS])
    first = f" (`rejected` has the first {len(told)} of {len(refused):,})" if len(told) < len(refused) else ""
    return Problem("no-event-accepted", f"{what}{first}: {told[0].problem['detail']}", rejected=told)


def _reuses_key(prefix: str | None, event: Outcome) -> bool:
    """Whether the id of an event is derived from an `Idempotency-Key`, with this prefix, and was that of another
    event."""
    return prefix is not None and event.id.startswith(prefix) and any(each.code == DIFFERS for each in event.notes)


def matched_by(told: Sequence[Outcome], settings: Settings) -> int | None:
    """Returns the total number of matches of these events; None if shards match them later."""
    if settings.shards is not None:
        return None
    return sum(each.matched or 0 for each in told if not each.duplicate)


class PublishRoute:
    """ASGI middleware that answers `POST /v1/events` before the framework, whose middleware, routing and parameters
    take longer than everything else for a single event. It makes the same checks as `HostGuard` and `BodyLimit`,
    and does the same as the route `publish` above, which describes it. These requests go to that route: with other
    parameters, with a header that occurs twice, from a page in a browser, and all requests if there are traces."""

    def __init__(self, app: ASGIApp, names: Collection[str], max_bytes: int) -> None:
        """`names` are the host names of this server. A body has at most `max_bytes`."""
        self._app = app
        self._checked = BodyLimit(Gate(self._publish), max_bytes, {})
        self._host = host_check(names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != PUBLISH_PATH or not self._is_usual(scope):
            await self._app(scope, receive, send)
            return
        try:
            await self._checked(scope, receive, send)
        except Exception as error:  # of the gate, as if a tenant cannot be opened: `_publish` answers all others
            response = await respond(Request(scope), error)
            await response(scope, receive, send)

    def _is_usual(self, scope: Scope) -> bool:
        if scope["method"] != "POST" or scope["query_string"] not in VERBOSE or tracing.is_wanted():
            return False
        headers = scope[HEADERS] = dict(scope["headers"])
        return (
            len(headers) == len(scope["headers"])
            and b"origin" not in headers
            and b"host" in headers
            and self._host(headers[b"host"]) is not None
        )

    async def _publish(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            content = await self._answer(request, scope[HEADERS])
        except ClientDisconnect:
            return
        except Exception as error:
            response = await respond(request, error)
            await response(scope, receive, send)
            return
        size = b"%d" % len(content)
        headers = [(b"content-length", size), (b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 202, "headers": headers})
        await send({"type": "http.response.body", "body": content})

    async def _answer(self, request: Request, given: Mapping[bytes, bytes]) -> bytes:
        def header(name: bytes) -> str | None:
            return given[name].decode("latin-1") if name in given else None

        services = services_of(request)
        body = await _body(request.receive)
        repeatable = read_key(header(b"idempotency-key"), caller_of(request))
        context = [
            (name.decode("latin-1"), value.decode("latin-1")) for name, value in given.items() if name[:3] == b"ce-"
        ]
        encoding, content_type = header(b"content-encoding"), header(b"content-type")
        decoded = await _decoded(services.reader, encoding, content_type, context, body, repeatable)
        verbose = VERBOSE[request.scope["query_string"]]
        return await _accepted(request, decoded, services.broker, services.reader, verbose, len(body))


async def _body(receive: Receive) -> bytes:
    """Returns the body of a request. Raises `ClientDisconnect`."""
    parts: list[bytes] = []
    more = True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        parts.append(message.get("body", b""))
        more = message.get("more_body", False)
    return b"".join(parts)


@router.get("", summary="Read back events")
async def list_events(
    request: Request,
    broker: AppBroker,
    caller: AppCaller,
    after: Annotated[int, Query(ge=0, le=MAX_SEQUENCE, description="The cursor of the previous page.")] = 0,
    type: Annotated[str | None, Query(max_length=2_048, description="Only events of this CloudEvents type.")] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 100,
    received: Annotated[
        bool, Query(description="Whether each event has the time of its acceptance as its attribute `received`.")
    ] = False,
) -> Response:
    """Lists accepted events, oldest first, as far back as the retention. An auditor sees which events there are, but
    not their data."""
    view = reader_of(caller, broker).view

    def page(connection: Connection) -> tuple[list[dict[str, Any]], int]:
        rows = events.list_events(connection, after=after, type=type, limit=limit)
        shown = [_shown(row, view, payload=caller.sees_payloads, received=received) for row in rows]
        return shown, rows[-1].sequence if rows else after

    async with turn_for_large_page(request):
        found, cursor = await broker.read(page)
    return answer({"events": found, "cursor": str(cursor)})


@router.get("/{sequence}/trace", summary="Follow an event")
async def trace(
    request: Request,
    broker: AppBroker,
    caller: AppCaller,
    reader: AppEventReader,
    late_matching: AppLateMatching,
    settings: AppSettings,
    sequence: Annotated[int, Path(ge=1, le=MAX_SEQUENCE)],
    subscription: Annotated[
        str | None, Query(max_length=100, description="Also explain the result for this subscription.")
    ] = None,
    lang: Language = "en",
) -> Response:
    """Returns when the event was accepted, which subscriptions it matched, what operators have not decided or could not
    decide, and every delivery attempt. With `subscription`, explains why it did or did not match, with the present
    expression and vocabulary and the state at that time (created later, paused, expired)."""

    sight = reader_of(caller, broker)

    def read(connection: Connection) -> tuple[Row[Any], list[Row[Any]], list[dict[str, Any]], _Recorded | None]:
        event = events.find_event(connection, sequence)
        if event is None:
            raise UnknownEvent
        asked = None
        if subscription is not None:
            asked = subscriptions.find_subscription(connection, subscription)
            if asked is None:
                raise UnknownSubscription(subscription)
        if asked is not None:
            check_visible(sight.view, asked.tree, explained=True)
        waiting = pending_store.of_event(connection, sequence, limit=TRACED)
        recorded = None if asked is None else _recorded(connection, event, asked, broker.settings.shards)
        return event, waiting, _deliveries(connection, sequence, sight, payload=caller.sees_payloads), recorded

    async with turn_for_large_page(request):
        event, waiting, deliveries, recorded = await broker.read(read)
    view = sight.view
    undecided = [] if view is not None else [_undecided(each) for each in waiting]  # operators see the whole event
    content = _shown(event, view, payload=caller.sees_payloads) | {"undecided": undecided}
    truncated = len(deliveries) >= TRACED if view is not None else event.matched > len(deliveries)
    content |= {"deliveries": deliveries, "deliveries_truncated": truncated}
    if recorded is not None and caller.sees_payloads:
        body = event.body if view is None else view.explainable(event.body, keeps_linked=True)
        if view is not None:
            recorded = replace(recorded, candidate=None)  # operators see the whole event
        why = partial(_why, broker, reader, event, body, recorded, lang, hides_linked=view is not None)
        until = asyncio.get_running_loop().time() + settings.max_match_seconds
        content["explanation"] = await explained(late_matching.late_matchers, why, len(event.body), caller.owner, until)
    return answer(content)


_READERS = ThreadPoolExecutor(2, thread_name_prefix="kindcast-reader")
"""Threads that read batches, which others need not wait for: the event loop's own threads also build vocabularies."""


async def _decoded(
    reader: EventReader,
    encoding: str | None,
    content_type: str | None,
    headers: Iterable[tuple[str, str]],
    body: bytes,
    repeatable: Repeatable | None,
) -> Decoded:
    """Returns the events of a request. Raises the errors of `EventReader.read`, and `Problem` for a compressed body."""
    check_encoding(encoding)
    if len(body) < (MANY_EVENTS if media_type_of(content_type) in SEVERAL else LARGE_BODY):
        return reader.read(content_type, headers, body, repeatable)
    if len(body) < LARGE_BODY:
        read = partial(reader.read, content_type, headers, body, repeatable)
        return await asyncio.get_running_loop().run_in_executor(_READERS, read)
    return await reader.read_large(content_type, headers, body, repeatable)


def _shown(row: Row[Any], view: View | None, *, payload: bool, received: bool = False) -> dict[str, Any]:
    """Returns an event as its reader may see it. With a `view`, notes and the number of matches are hidden too, because
    they may reveal hidden values."""
    body = row.body if view is None else view.readable(row.body)
    event = arrived_document(body, row.accepted_at) if received else msgspec.Raw(body.encode())
    return {
        "sequence": row.sequence,
        "event": event if payload else without_payload(event),
        "accepted_at": moment(row.accepted_at),
        "vocabulary_version": row.vocabulary_version,
        "matched": row.matched if view is None else None,
        "notes": msgspec.Raw((row.notes or "[]").encode()) if payload and view is None else [],
    }


def _deliveries(connection: Connection, sequence: int, reader: Reader, *, payload: bool) -> list[dict[str, Any]]:
    """Returns the subscriptions that got the event, with the protocol and the state of each delivery."""
    found = list(events.find_matches(connection, sequence, limit=TRACED))
    visible = reader.visible(connection, [row.number for row in found])
    attempts: dict[int, list[dict[str, Any]]] = {}
    for row in events.find_attempts(connection, sequence, limit=10 * TRACED):
        attempt = {
            "attempt": row.attempt,
            "at": moment(row.at),
            "outcome": row.outcome,
            "status_code": row.status_code,
            "detail": row.detail,
        }
        attempts.setdefault(row.subscription, []).append(attempt)
    return [
        {
            "subscription": row.id,
            "by": _way(row),
            "state": _state(row),
            "late": row.position != sequence,
            "bindings": msgspec.Raw((row.bindings or "[]").encode()) if payload else [],
            "attempts": attempts.get(row.number, []),
        }
        for row in found
        if row.number in visible
    ]


def _undecided(row: Row[Any]) -> dict[str, Any]:
    """Returns a candidate: a subscription that may still get the event, or whose decision was given up after all tries
    (`given_up`)."""
    return {
        "subscription": row.id,
        "state": "given_up" if row.next_try_at is None else "waiting",
        "reason": row.reason,
        "kind": row.kind,
        "tries": row.tries,
        "since": moment(row.parked_at),
        "next_try_at": moment(row.next_try_at),
    }


def _way(row: events.EventMatch) -> Literal["webhook", "broker", "pull or stream"]:
    if row.sink is None:
        return "pull or stream"
    return "webhook" if row.protocol in (None, DEFAULT_PROTOCOL) else "broker"


def _state(row: events.EventMatch) -> Literal["delivered", "pending", "dead letter"]:
    if row.acked >= row.position:
        return "delivered"
    return "dead letter" if row.status == DISABLED else "pending"


@dataclass(frozen=True, slots=True)
class _Recorded:
    """What is stored about an event and a subscription: whether it `got` the event, the candidate that is not decided
    yet, and whether its shard has `read` the event."""

    subscription: Row[Any]
    got: bool
    candidate: Row[Any] | None
    read: bool


def _recorded(connection: Connection, event: Row[Any], asked: Row[Any], shards: int | None) -> _Recorded:
    candidate = pending_store.find_candidate(connection, event.sequence, asked.number)
    is_later = asked.created_sequence >= event.sequence
    read = shards is None or is_later or find_place(connection, asked.number % shards).position >= event.sequence
    got = bool(had_by(connection, {event.sequence: [asked.number]})[event.sequence])
    return _Recorded(asked, got, candidate, read)


def _why(
    broker: AppBroker,
    reader: EventReader,
    event: Row[Any],
    body: str,
    recorded: _Recorded,
    language: str,
    *,
    hides_linked: bool,
) -> dict[str, Any]:
    vocabulary, asked, got = broker.vocabulary, recorded.subscription, recorded.got
    published = arrived(reader.stored(body), event.accepted_at)
    operators = broker.state.operators.known
    compiled = restore_expression(asked.tree, vocabulary, operators)
    hides = hides_linked and is_linked(published.context.get("datacontenttype"), published.data)
    try:
        said = explain(vocabulary, compiled, published, language=language, operators=operators.values())
    except InvalidEvent:
        if hides:  # the error may have hidden values
            raise InvalidEvent([Fault("unreadable", "the event cannot be read any more")]) from None
        raise
    said = without_values(said) if hides else said
    circumstances = [] if got else _not_decided(recorded)
    if asked.created_sequence >= event.sequence and not got and not circumstances:
        circumstances.append("the subscription was made after the event was accepted")
    if asked.expires_at <= event.accepted_at:
        circumstances.append("the subscription had expired when the event was accepted")
    if said["matches"] and not got and not circumstances:
        circumstances.append("the subscription was paused, or had another meaning, when the event was accepted")
    if vocabulary.version != event.vocabulary_version:
        circumstances.append(
            f"the event was matched under vocabulary {event.vocabulary_version}, but this explanation uses "
            f"{vocabulary.version}"
        )
    return said | {"subscription": asked.id, "recorded": got, "circumstances": circumstances}


def _not_decided(recorded: _Recorded) -> list[str]:
    """Returns why it is not decided yet whether the subscription gets the event."""
    if not recorded.read:
        return ["the shard of the subscription has not matched the event yet"]
    if recorded.candidate is None:
        return []
    if recorded.candidate.next_try_at is None:
        return [f"the last try decided nothing: {recorded.candidate.reason}"]
    return [f"not decided yet: {recorded.candidate.reason}"]


# ── events with matches that another program found ───────────────────────────────────────────────────────────────────

matches_router = APIRouter(prefix="/v1/matches", tags=["events"])

MOST_MATCHES = 50_000
"""The maximum number of matches of one request."""
MOST_NAMED = 100
"""The maximum number of subscriptions in `silent`."""

MEMBERS = frozenset({"event", "subscription", "subscriptions", "bindings"})
ITEM: dict[str, Any] = {
    "type": "object",
    "required": ["event"],
    "properties": {
        "event": {"type": "object", "description": "The CloudEvent. It needs an id and a source."},
        "subscription": {"type": "string", "description": "The id of a subscription that the event matches."},
        "subscriptions": {"type": "array", "items": {"type": "string"}, "description": "Or of several."},
        "bindings": {
            "type": "array",
            "items": {"type": "object"},
            "description": "With `subscription`: the values of the variables of its expression.",
        },
    },
    "additionalProperties": False,
    "example": {
        "event": {"specversion": "1.0", "id": "1", "source": "/shop", "type": "offer", "data": {"target": "laptop"}},
        "subscription": "0198f2b0-7c1d-7000-8000-000000000001",
    },
}
MATCHES = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "anyOf": [
                        ITEM,
                        {
                            "type": "object",
                            "required": ["matches"],
                            "properties": {"matches": {"type": "array", "items": ITEM}},
                            "additionalProperties": False,
                        },
                    ]
                }
            },
            "application/x-ndjson": {"schema": {"type": "string"}},
        },
    }
}


class AcceptedMatches(msgspec.Struct, frozen=True):
    """The answer. `accepted` and `duplicates` count new and known events. `matched`, `repeated` and `unmatched` count
    matches: new ones, known ones, and those of subscriptions that do not exist or get nothing now. `silent` lists the
    first of these subscriptions. If an attribute is hidden from the caller and an event is known, known matches count
    as `matched`."""

    accepted: int
    duplicates: int
    matched: int
    repeated: int
    unmatched: int
    silent: list[str]
    rejected: list[Rejected]


class _Match(msgspec.Struct):
    """An event with its matches: subscription → bindings as JSON. `index` and `line` are those of the first item with
    this event."""

    index: int
    line: int | None
    event: DecodedEvent
    wanted: dict[str, str | None]


@matches_router.post("", summary="Deliver matches that another program found", status_code=202, openapi_extra=MATCHES)
async def accept_matches(
    request: Request, broker: AppBroker, caller: AppCaller, reader: AppEventReader, settings: AppSettings
) -> Response:
    """Accepts events together with their matches, which another program found, for example a Spark job with the same
    matcher. They are delivered like matches of this server: by webhook, stream and pull. An event is stored once by its
    source and id, and is not matched here. A subscription gets it once, even if it is sent several times. Subscriptions
    that are deleted, paused or expired get nothing, and `silent` lists them. The body is one item, a list of items as
    `matches`, or NDJSON."""
    kind = media_type_of(request.headers.get("content-type"))
    check_encoding(request.headers.get("content-encoding"))
    items = await run_to_the_end(partial(_match_items, kind, await request.body(), reader.max_events + 1))
    reader.check_count(len(items))
    found, refused, single = await run_to_the_end(partial(_read_matches, reader, items, settings.max_json_depth))
    if sum(len(each.wanted) for each in found) > MOST_MATCHES:
        raise Problem("too-many-events", f"send at most {MOST_MATCHES:,} matches at a time")
    count_events(request, len(found))
    accepted = await broker.accept_matches(
        [each.event for each in found], [each.wanted for each in found], max_matches=caller.max_matches
    )
    outcomes = []
    for match, result in zip(found, accepted.results, strict=True):
        if isinstance(result, Outcome):
            outcomes.append(result)
        elif single:
            raise result
        else:
            refused.append((match.index, result, match.line))
    refused.sort(key=itemgetter(0))
    if refused and not outcomes:
        raise await _none_accepted(refused, "no match can be taken")
    known = sum(each.duplicate for each in outcomes)
    new, repeated = accepted.new, accepted.repeated
    if known and reader_of(caller, broker).view is not None:
        new, repeated = new + repeated, 0  # whether events of others matched already would show hidden values
    content = AcceptedMatches(
        accepted=len(outcomes) - known,
        duplicates=known,
        matched=new,
        repeated=repeated,
        unmatched=sum(accepted.silent.values()),
        silent=list(accepted.silent)[:MOST_NAMED],
        rejected=await _described(refused),
    )
    return answer(content, 202)


def _match_items(kind: str, body: bytes, most: int) -> list[tuple[int | None, bytes | Any]]:
    """Returns the items of a request, each with its line number if there are lines. Lines are not decoded yet, and at
    most `most` are read. Raises `Problem`, `MalformedJson`."""
    if kind in LINES:
        return list(islice(numbered_lines(body), most))
    if kind != "application/json":
        raise Problem(
            "unsupported-media-type", f"send application/json or application/x-ndjson, not {kind or 'nothing'}"
        )
    said = decode(body)
    if isinstance(said, dict) and "matches" in said:
        if not isinstance(said["matches"], list) or len(said) > 1:
            raise Problem("invalid-request", "`matches` must be a list and the only member")
        return [(None, each) for each in said["matches"]]
    return [(None, said)]


def _read_matches(
    reader: EventReader, items: list[tuple[int | None, Any]], depth: int
) -> tuple[list[_Match], list[_Refused], bool]:
    """Returns the matches, each event once, the invalid items, and whether there is only one item. The problem of a
    single item is raised."""
    single = len(items) == 1
    found: dict[tuple[str, str, str], _Match] = {}
    refused: list[_Refused] = []
    for index, (line, item) in enumerate(items):
        try:
            said = decode(item) if isinstance(item, bytes) else item
            event, wanted = _read_match(reader, said, depth)
        except (InvalidEvent, MalformedJson, Problem) as error:
            if single:
                raise
            kept = error.first(MOST_OF_ONE) if isinstance(error, InvalidEvent) else error
            refused.append((index, kept.with_traceback(None), line))
            continue
        known = found.setdefault((event.source, event.id, event.digest), _Match(index, line, event, {}))
        for id, bindings in wanted.items():
            known.wanted[id] = bindings if known.wanted.get(id) is None else known.wanted[id]
    return list(found.values()), refused, single


def _read_match(reader: EventReader, said: Any, depth: int) -> tuple[DecodedEvent, dict[str, str | None]]:
    """Reads one item. Raises `Problem`, `InvalidEvent`."""
    if not isinstance(said, dict):
        raise Problem("invalid-request", "a match must be an object with `event` and `subscription`")
    if not depth_within(said, depth):
        raise Problem("too-deep", f"the JSON is nested deeper than {depth} levels")
    only_members(said, MEMBERS)
    event = said.get("event")
    if not isinstance(event, dict) or "specversion" not in event:
        raise InvalidEvent(
            [
                Fault(
                    "missing-attribute",
                    "`event` must be a CloudEvent with specversion, id, source and type",
                    at_member("event"),
                )
            ]
        )
    return reader.from_object(event), _wanted(said)


def _wanted(said: dict[str, Any]) -> dict[str, str | None]:
    one, several = said.get("subscription"), said.get("subscriptions")
    if (one is None) == (several is None):
        raise _wrong("subscription", "give one subscription as `subscription`, or several as `subscriptions`")
    bindings = said.get("bindings")
    if bindings is not None:
        if not isinstance(bindings, list) or not all(isinstance(each, dict) for each in bindings):
            raise _wrong("bindings", "`bindings` must be a list of objects")
        if one is None and bindings:
            raise _wrong("bindings", "`bindings` belong to one `subscription`: send a match for each subscription")
    if one is not None:
        if not isinstance(one, str):
            raise _wrong("subscription", "`subscription` must be the id of a subscription, a text")
        return {one: msgspec.json.encode(bindings).decode() if bindings else None}
    if not isinstance(several, list) or not all(isinstance(each, str) for each in several):
        raise _wrong("subscriptions", "`subscriptions` must be a list of ids")
    return dict.fromkeys(several)


def _wrong(member: str, detail: str) -> Problem:
    return Problem("invalid-request", detail, errors=[{"pointer": f"/{member}", "detail": detail}])
