"""The route for matches that another program found: `kindcast spark stream --deliver` uses it."""

import asyncio
from typing import Any

import msgspec
from fastapi import APIRouter, Request, Response

from kindcast.semantic import InvalidEvent
from kindcast.semantic import Problem as Fault
from kindcast.server.api.access import caller_of, count_events
from kindcast.server.api.events import Rejected
from kindcast.server.api.problem_types import Problem, as_document, problem_of
from kindcast.server.api.requests import AppBroker, AppEventReader, AppSettings, answer
from kindcast.server.broker.publishing import Outcome
from kindcast.server.cloudevents import LINES, DecodedEvent, EventReader, at_member
from kindcast.server.strict_json import MalformedJson, decode, depth_within

__all__ = ["router"]

router = APIRouter(prefix="/v1/matches", tags=["events"])

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
    first of these subscriptions."""

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


@router.post("", summary="Deliver matches that another program found", status_code=202, openapi_extra=MATCHES)
async def accept_matches(
    request: Request, broker: AppBroker, reader: AppEventReader, settings: AppSettings
) -> Response:
    """Accepts events together with their matches, which another program found, for example a Spark job with the same
    matcher. They are delivered like matches of this server: by webhook, stream and pull. An event is stored once by its
    source and id, and is not matched here. A subscription gets it once, even if it is sent several times. Subscriptions
    that are deleted, paused or expired get nothing, and `silent` lists them. The body is one item, a list of items as
    `matches`, or NDJSON."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    items = await asyncio.to_thread(_items, kind, await request.body())
    reader.check_count(len(items))
    found, refused, single = await asyncio.to_thread(_read, reader, items, settings.max_json_depth)
    if sum(len(each.wanted) for each in found) > MOST_MATCHES:
        raise Problem("too-many-events", f"send at most {MOST_MATCHES:,} matches at a time")
    count_events(request, len(found))
    accepted = await broker.accept_matches(
        [each.event for each in found], [each.wanted for each in found], max_matches=caller_of(request).max_matches
    )
    outcomes = []
    for match, result in zip(found, accepted.results, strict=True):
        if isinstance(result, Outcome):
            outcomes.append(result)
        elif single:
            raise result
        else:
            refused.append(Rejected(match.index, as_document(problem_of(result)), match.line))
    refused.sort(key=lambda each: each.index)
    if refused and not outcomes:
        detail = f"none of the {len(refused):,} matches can be taken: {refused[0].problem['detail']}"
        raise Problem("no-event-accepted", detail, rejected=msgspec.to_builtins(refused))
    known = sum(each.duplicate for each in outcomes)
    content = AcceptedMatches(
        accepted=len(outcomes) - known,
        duplicates=known,
        matched=accepted.new,
        repeated=accepted.repeated,
        unmatched=sum(accepted.silent.values()),
        silent=list(accepted.silent)[:MOST_NAMED],
        rejected=refused,
    )
    return answer(content, 202)


def _items(kind: str, body: bytes) -> list[tuple[int | None, bytes | Any]]:
    """Returns the items of a request, each with its line number if there are lines. Lines are not decoded yet. Raises
    `Problem`, `MalformedJson`."""
    if kind in LINES:
        numbered = enumerate(body.split(b"\n"), 1)
        return [(number, line) for number, line in numbered if line and not line.isspace()]
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


def _read(
    reader: EventReader, items: list[tuple[int | None, Any]], depth: int
) -> tuple[list[_Match], list[Rejected], bool]:
    """Returns the matches, each event once, the invalid items, and whether there is only one item. The problem of a
    single item is raised."""
    single = len(items) == 1
    found: dict[tuple[str, str, str], _Match] = {}
    refused: list[Rejected] = []
    for index, (line, item) in enumerate(items):
        try:
            said = decode(item) if isinstance(item, bytes) else item
            event, wanted = _match(reader, said, depth)
        except (InvalidEvent, MalformedJson, Problem) as error:
            if single:
                raise
            refused.append(Rejected(index, as_document(problem_of(error)), line))
            continue
        known = found.setdefault((event.source, event.id, event.digest), _Match(index, line, event, {}))
        for id, bindings in wanted.items():
            known.wanted[id] = bindings if known.wanted.get(id) is None else known.wanted[id]
    return list(found.values()), refused, single


def _match(reader: EventReader, said: Any, depth: int) -> tuple[DecodedEvent, dict[str, str | None]]:
    """Reads one item. Raises `Problem`, `InvalidEvent`."""
    if not isinstance(said, dict):
        raise Problem("invalid-request", "a match must be an object with `event` and `subscription`")
    if unknown := sorted(said.keys() - MEMBERS):
        errors = [{"pointer": f"/{name}", "detail": "unknown member"} for name in unknown[:20]]
        raise Problem("invalid-request", f"unknown member {unknown[0][:100]!r}", errors=errors)
    if not depth_within(said, depth):
        raise Problem("too-deep", f"the JSON is nested deeper than {depth} levels")
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
