"""Routes of subscriptions: create, read, renew, pause, resume, change, delete, export and import."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Literal

import msgspec
from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from sqlalchemy import Connection, Row
from starlette.responses import StreamingResponse

from kindcast.semantic import SemanticError
from kindcast.server.api.error_responses import Problem, as_document, problem_of
from kindcast.server.api.operators import AppParking
from kindcast.server.api.requests import (
    AppBroker,
    AppSettings,
    Ticket,
    answer,
    body_schema,
    json_object,
    moment,
    page_cursor,
    parse_page_cursor,
)
from kindcast.server.api.subscription_body import (
    RenewBody,
    SubscriptionBody,
    SubscriptionChange,
    ending,
    read_body,
    read_change,
    read_new,
)
from kindcast.server.broker import Broker
from kindcast.server.broker.subscription_commands import NewSubscription
from kindcast.server.errors import ServerError, UnknownSubscription
from kindcast.server.pending.explanation import subscription_plan
from kindcast.server.security.egress import SinkRefused
from kindcast.server.settings import Settings
from kindcast.server.store import pending as parking
from kindcast.server.store import subscriptions
from kindcast.server.strict_json import MalformedJson, decode, depth_within

__all__ = ["router"]

router = APIRouter(prefix="/v1/subscriptions", tags=["subscriptions"])

MAX_PAGE = 1_000
HIDDEN = "(hidden)"
IMPORTED_TOGETHER = 1_000
"""Lines of an import in one command: enough for many to be of one shape, few enough that publishers wait for some tens
of ms only."""

Id = Annotated[str, Path(max_length=100, description="The id of the subscription.")]
Status = Literal["active", "paused", "failing", "disabled_by_failures", "expired"]


@router.post("", summary="Subscribe", status_code=201, openapi_extra=body_schema(SubscriptionBody.model_json_schema()))
async def subscribe(request: Request, broker: AppBroker, settings: AppSettings) -> Response:
    """Makes a subscription. The answer holds the `ticket` and, with a sink, the webhook `secret`: neither is shown
    again. Every event that is accepted after this answer is matched against it."""
    created = await _create(await json_object(request, settings), broker, settings)
    return answer(created, 201, {"Location": f"/v1/subscriptions/{created['id']}"})


@router.get("", summary="List subscriptions")
async def list_all(
    request: Request,
    broker: AppBroker,
    cursor: Annotated[str | None, Query(max_length=64, description="Where the page before ended.")] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 100,
    status: Annotated[Status | None, Query(description="Only those of this status.")] = None,
    flagged: Annotated[
        bool | None, Query(description="Only those that use something removed from the vocabulary, or only the others.")
    ] = None,
) -> Response:
    """A page of subscriptions in the order in which they were made; the header Link leads to the next one."""
    after, now = parse_page_cursor(cursor), time.time()

    def read(connection: Connection) -> list[Row[Any]]:
        page = subscriptions.list_subscriptions(
            connection, after=after, limit=limit + 1, status=status, flagged=flagged, now=now
        )
        return list(page)

    rows = await broker.read(read)
    following = page_cursor(rows[limit - 1].number) if len(rows) > limit else None
    headers = {}
    if following is not None:
        headers["Link"] = f'<{request.url.include_query_params(cursor=following)}>; rel="next"'
    version = broker.vocabulary.version
    listed = [_shown(row, version, now) for row in rows[:limit]]
    return answer({"subscriptions": listed, "cursor": following}, headers=headers)


@router.get("/export", summary="Export subscriptions", response_class=StreamingResponse)
async def export(broker: AppBroker) -> Response:
    """NDJSON: one subscription per line, its expression with IRIs in place of labels, so that it means the same
    elsewhere. Sinks, secrets and tickets are left out; what is exported can be imported."""
    return StreamingResponse(_exported(broker), media_type="application/x-ndjson")


@router.post("/import", summary="Import subscriptions")
async def import_lines(request: Request, broker: AppBroker, settings: AppSettings) -> Response:
    """NDJSON: one subscription per line; its `id`, if any, is returned as `was`. A bad line does not stop the rest."""
    lines = (await request.body()).split(b"\n")
    numbered = [(number, line) for number, line in enumerate(lines, 1) if line and not line.isspace()]
    if len(numbered) > settings.max_events_per_request:
        raise Problem(413, "too-many-lines", f"send at most {settings.max_events_per_request:,} lines at a time")
    created, rejected = [], []
    for start in range(0, len(numbered), IMPORTED_TOGETHER):
        some = numbered[start : start + IMPORTED_TOGETHER]
        results = await _import([line for _, line in some], broker, settings)
        for (number, _), result in zip(some, results, strict=True):
            if isinstance(result, dict):
                created.append({"line": number, **result})
            else:
                rejected.append({"line": number, "problem": as_document(problem_of(result))})
    return answer({"created": created, "rejected": rejected})


@router.get("/{id}", summary="One subscription")
async def get_one(id: Id, broker: AppBroker) -> Response:
    """What it asks, its status, its counters, its last failure, and how many messages wait."""

    def read(connection: Connection) -> tuple[Row[Any], int, int]:
        row = subscriptions.find_subscription(connection, id)
        if row is None:
            raise UnknownSubscription(id)
        waiting = parking.count_waiting(connection, row.number)
        return row, subscriptions.count_pending(connection, row.number), waiting

    row, pending, waiting = await broker.read(read)
    counts = {"pending": pending, "waiting_for_operators": waiting}
    return answer(_shown(row, broker.vocabulary.version, time.time()) | counts)


@router.get("/{id}/plan", summary="What its operators are expected to cost")
async def plan(id: Id, broker: AppBroker, parking_service: AppParking) -> Response:
    """The calls of each of its clauses in the order that is cheapest for it alone, what each is expected to cost, how
    likely it holds, and how many clauses of all subscriptions share it."""
    row = await broker.read(lambda connection: subscriptions.find_subscription(connection, id))
    if row is None:
        raise UnknownSubscription(id)
    told = await subscription_plan(parking_service.desks, row.id, row.tree, broker.vocabulary)
    return answer({"subscription": row.id, **told})


@router.patch(
    "/{id}", summary="Change a subscription", openapi_extra=body_schema(SubscriptionChange.model_json_schema())
)
async def change(request: Request, id: Id, broker: AppBroker, settings: AppSettings, ticket: Ticket = None) -> Response:
    """Changes where and how it is delivered, its metadata, or when it ends; its first sink comes with the webhook
    `secret`. What it asks is fixed: make another one."""
    values = read_change(await json_object(request, settings), settings)
    row = await broker.update_subscription(id, ticket, values)
    told = _shown(row, broker.vocabulary.version, time.time())
    if row.secret is not None and row.secret == values.get("secret"):
        told["secret"] = row.secret
    return answer(told)


@router.delete("/{id}", summary="Unsubscribe")
async def unsubscribe(id: Id, broker: AppBroker, ticket: Ticket = None) -> Response:
    """Deletes it with all that waits for it, and answers what it was."""
    return _current(await broker.delete_subscription(id, ticket), broker)


@router.post("/{id}/renew", summary="Renew", openapi_extra=body_schema(RenewBody.model_json_schema(), required=False))
async def renew(request: Request, id: Id, broker: AppBroker, settings: AppSettings, ticket: Ticket = None) -> Response:
    """Sets when it ends; one that has expired in the last days matches again, from now on."""
    asked = read_body(RenewBody, await json_object(request, settings, optional=True))
    return _current(await broker.renew(id, ticket, ending(asked, settings)), broker)


@router.post("/{id}/pause", summary="Pause")
async def pause(id: Id, broker: AppBroker, ticket: Ticket = None) -> Response:
    """Stops matching: events accepted while it is paused are not for it. What waits already stays."""
    return _current(await broker.pause(id, ticket), broker)


@router.post("/{id}/resume", summary="Resume")
async def resume(id: Id, broker: AppBroker, ticket: Ticket = None) -> Response:
    """Resumes after a pause, or after the webhook was disabled; waiting matches are sent at once."""
    return _current(await broker.resume(id, ticket), broker)


# ── creation ────────────────────────────────────────────────────────────────────────────────────────────────────────


async def _create(body: dict[str, Any], broker: Broker, settings: Settings) -> dict[str, Any]:
    _check_size(body, settings)
    new, ticket = await asyncio.to_thread(read_new, body, settings)
    row = await broker.create_subscription(new)
    created = {"id": row.id, "ticket": ticket}
    if row.secret is not None:
        created["secret"] = row.secret
    return created | _shown(row, broker.vocabulary.version, time.time())


def _check_size(body: dict[str, Any], settings: Settings) -> None:
    if len(msgspec.json.encode(body)) > settings.max_subscription_bytes:
        raise Problem(413, "body-too-large", f"a subscription has at most {settings.max_subscription_bytes:,} bytes")


async def _import(lines: Sequence[bytes], broker: Broker, settings: Settings) -> list[dict[str, Any] | Exception]:
    """What was made of each line, or what is wrong with it; also `StoreUnavailable`, for other lines may be stored."""
    read = await asyncio.to_thread(lambda: [_read_line(line, settings) for line in lines])
    asked = [each for each in read if not isinstance(each, Exception)]
    made: Sequence[Exception | None]
    try:
        made = await broker.create_subscriptions([new for new, _, _ in asked])
    except ServerError as error:
        made = [error] * len(asked)
    refused = {new.id: error for (new, _, _), error in zip(asked, made, strict=True) if error is not None}
    results: list[dict[str, Any] | Exception] = []
    for each in read:
        if isinstance(each, Exception):
            results.append(each)
            continue
        new, ticket, was = each
        shown = {"was": was, "id": new.id, "ticket": ticket} | ({} if new.secret is None else {"secret": new.secret})
        results.append(refused.get(new.id, shown))
    return results


def _read_line(line: bytes, settings: Settings) -> tuple[NewSubscription, str, Any] | Exception:
    """The request in a line, its ticket, and the id that it had; or what is wrong with the line."""
    try:
        body = decode(line)
        if not isinstance(body, dict) or not depth_within(body, settings.max_json_depth):
            return Problem(422, "invalid-request", "a line is a JSON object, not nested too deeply")
        _check_size(body, settings)
        return *read_new(body, settings), body.get("id")
    except (Problem, RequestValidationError, SemanticError, ServerError, SinkRefused, MalformedJson) as error:
        return error


async def _exported(broker: Broker) -> AsyncIterator[bytes]:
    """The lines of an export, a page at a time."""
    rows: list[Row[Any]] = []
    while True:
        after = rows[-1].number if rows else 0
        rows = await broker.read(partial(_page, after=after))
        if not rows:
            return
        said = ({"id": row.id, "expression": row.canonical, "metadata": row.metadata} for row in rows)
        yield b"".join(msgspec.json.encode(each) + b"\n" for each in said)


def _page(connection: Connection, after: int) -> list[Row[Any]]:
    return list(subscriptions.list_subscriptions(connection, after=after, limit=MAX_PAGE))


# ── responses ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _current(row: Row[Any], broker: Broker) -> Response:
    return answer(_shown(row, broker.vocabulary.version, time.time()))


def _shown(row: Row[Any], vocabulary_version: str, now: float) -> dict[str, Any]:
    """A subscription as anybody may see it: without ticket, secret, credential, and values of extra headers."""
    over = row.expires_at <= now
    return {
        "id": row.id,
        "status": "expired" if over else row.status,
        "status_reason": "not renewed in time" if over else row.status_reason,
        **row.expression,
        "types": row.types,
        "source": row.source,
        "canonical": row.canonical,
        "clauses": row.clauses,
        "cost": row.cost,
        "notes": row.notes,
        "flagged": row.flagged,
        "sink": row.sink,
        "protocol": row.protocol,
        "protocolsettings": _settings_shown(row.protocolsettings),
        "sinkcredential": _credential_shown(row.sinkcredential),
        "metadata": row.metadata,
        "created_at": moment(row.created_at),
        "expires_at": moment(row.expires_at),
        "vocabulary_version": vocabulary_version,
        "cursor": str(max(row.acked, row.created_sequence)),
        "times_sent": row.times_sent,
        "times_failed": row.times_failed,
        "last_success": moment(row.last_success),
        "last_failure": moment(row.last_failure),
        "last_error": row.last_error,
        "consecutive_errors": row.consecutive_errors,
        "next_attempt_at": moment(row.next_attempt_at),
        "undecided": row.undecided,
        "last_undecided": moment(row.last_undecided),
        "last_undecided_reason": row.last_undecided_reason,
        "last_undecided_kind": row.last_undecided_kind,
    }


def _settings_shown(protocolsettings: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Headers may hold secrets, so their values are not shown."""
    if protocolsettings is None:
        return None
    headers = protocolsettings.get("headers")
    return {**protocolsettings, "headers": dict.fromkeys(headers, HIDDEN)} if headers else dict(protocolsettings)


def _credential_shown(credential: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if credential is None else {"credentialtype": credential.get("credentialtype")}
