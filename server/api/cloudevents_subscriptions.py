"""The CloudEvents Subscriptions API: the same subscriptions, in the form of that specification.

    POST, GET, OPTIONS /v1/cloudevents/subscriptions        GET, PUT, DELETE, OPTIONS /v1/cloudevents/subscriptions/{id}

`filters` may use the six dialects that the specification requires, and ours. The sink of a subscription that is created
here gets CloudEvents, not messages (`protocolsettings.format`). Everything else is the same as at /v1/subscriptions:
tickets, secrets, signatures, expiry. Bad requests have the status 400 here, as in the specification.
"""

from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from sqlalchemy import Row

from kindcast.semantic import SemanticError
from kindcast.server.api.problem_types import Problem, problem_of
from kindcast.server.api.requests import (
    AppBroker,
    AppCaller,
    AppSettings,
    Cursor,
    Ticket,
    answer,
    body_schema,
    json_object,
    moment,
    next_page,
    reader_of,
)
from kindcast.server.api.subscriptions import (
    MAX_PAGE,
    Id,
    IdempotencyKey,
    IfMatch,
    check_size,
    credential_shown,
    entity_tags,
    read_change,
    read_key,
    read_new,
    read_page,
    settings_shown,
    sink_for,
)
from kindcast.server.broker import Broker
from kindcast.server.broker.subscription_commands import entity_tag
from kindcast.server.clock import CLOCK
from kindcast.server.cloudevents import DIALECTS, SEMANTIC_DIALECT
from kindcast.server.delivery.protocols import DEFAULT_PROTOCOL, PROTOCOLS
from kindcast.server.errors import UnknownSubscription
from kindcast.server.security.callers import Caller
from kindcast.server.security.egress import SinkRefused
from kindcast.server.security.keys import Claim
from kindcast.server.security.permissions import hidden_in
from kindcast.server.store import subscriptions
from kindcast.server.worker_threads import run_to_the_end

__all__ = ["router"]

router = APIRouter(prefix="/v1/cloudevents/subscriptions", tags=["CloudEvents Subscriptions API"])

MEMBERS = ("source", "types", "config", "filters", "sink", "protocol", "protocolsettings", "sinkcredential")
SUBSCRIPTION = {
    "type": "object",
    "required": ["sink", "protocol"],
    "properties": {
        "id": {"type": "string", "description": "Ignored when you create a subscription."},
        "source": {"type": "string"},
        "types": {"type": "array", "items": {"type": "string"}},
        "config": {"type": "object", "maxProperties": 0},
        "filters": {"type": "array", "items": {"type": "object"}, "description": "All must hold."},
        "sink": {"type": "string"},
        "protocol": {"enum": sorted(PROTOCOLS)},
        "protocolsettings": {"type": "object", "description": "`headers`, `method`, `format`."},
        "sinkcredential": {"type": "object", "description": "PLAIN or ACCESSTOKEN; write-only."},
    },
    "additionalProperties": False,
}
SHOWN = ("status", "expires_at", "ticket", "secret")
"""Members of our answers that the specification does not have. They are ignored in requests."""

FEATURES = {
    "dialects": [*DIALECTS, SEMANTIC_DIALECT],
    "protocols": sorted(PROTOCOLS),
    "credentialtypes": ["PLAIN", "ACCESSTOKEN"],
    "specversions": ["1.0"],
}


@router.options("", summary="What this endpoint supports")
async def features() -> Response:
    """Returns the supported dialects of filters, protocols and types of credentials."""
    return answer(FEATURES, headers={"Allow": "GET, HEAD, OPTIONS, POST"})


@router.post("", summary="Create a subscription", status_code=201, openapi_extra=body_schema(SUBSCRIPTION))
async def create(
    request: Request,
    broker: AppBroker,
    settings: AppSettings,
    caller: AppCaller,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Creates a subscription. The answer also has its `ticket` and the `secret` that signs its deliveries. Both are
    shown again only for the same request with the same `Idempotency-Key`."""
    body = _members(await json_object(request, settings))
    check_size(body, settings)
    body.pop("id", None)
    body.setdefault("filters", [])
    if body["protocol"] == DEFAULT_PROTOCOL:
        body["protocolsettings"] = {"format": "cloudevents"} | body.get("protocolsettings", {})
    try:
        new, ticket = await run_to_the_end(partial(read_new, body, settings, caller, read_key(idempotency_key, caller)))
        row = await broker.create_subscription(new, caller.quota)
    except (Problem, RequestValidationError, SemanticError, SinkRefused) as error:
        raise _bad_request(error) from None
    told = _shown(row) | {"ticket": ticket, "secret": row.secret}
    return answer(told, 201, {"Location": f"{router.prefix}/{row.id}", "ETag": f'"{entity_tag(row)}"'})


@router.get("", summary="Retrieve subscriptions")
async def list_all(
    request: Request,
    broker: AppBroker,
    caller: AppCaller,
    cursor: Cursor = None,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 100,
) -> Response:
    """Lists a page of subscriptions that have a sink. The header Link has the next page. A page of large subscriptions
    has fewer than `limit`."""
    rows = partial(subscriptions.list_subscriptions, with_sink=True)

    def shown(row: Row[Any]) -> dict[str, Any]:
        return _shown(row) | _kept_back(caller, broker, row) | sink_for(caller, row)

    listed, following = await read_page(broker, rows, shown, cursor, limit)
    return answer(listed, headers=next_page(request, following))


@router.options("/{id}", summary="What a subscription supports")
async def features_of_one(id: Id) -> Response:
    """Returns the same as for the endpoint."""
    return answer(FEATURES, headers={"Allow": "DELETE, GET, HEAD, OPTIONS, PUT"})


@router.get("/{id}", summary="Retrieve a subscription")
async def get_one(id: Id, broker: AppBroker, caller: AppCaller) -> Response:
    """Returns a subscription that has a sink."""
    row = await _row(broker, id)
    told = _shown(row) | _kept_back(caller, broker, row) | sink_for(caller, row)
    return answer(told, headers={"ETag": f'"{entity_tag(row)}"'})


@router.put("/{id}", summary="Update a subscription", openapi_extra=body_schema(SUBSCRIPTION))
async def update(
    request: Request,
    id: Id,
    broker: AppBroker,
    settings: AppSettings,
    ticket: Ticket,
    if_match: IfMatch = None,
) -> Response:
    """Changes sink and delivery options. `source`, `types` and `filters` must be the present ones, because the
    expression cannot be changed. Values that are shown as `(hidden)`, and a credential without its secret, do not
    change. They are refused (400) if the sink is at another server."""
    row = await _row(broker, id)
    body = _members(await json_object(request, settings))
    if body.pop("id", id) != id:
        raise _bad("the id differs from the id in the address", "/id")
    present = _shown(row)
    for name in ("source", "types", "filters"):
        if (body.get(name) or None) != present.get(name):
            raise _bad(f"{name} cannot be changed: make a new subscription", f"/{name}")
    change = {name: body.get(name) for name in ("sink", "protocol", "protocolsettings", "sinkcredential")}
    format = (row.protocolsettings or {}).get("format")
    if format is not None and body["protocol"] == DEFAULT_PROTOCOL:  # members that are not given stay
        change["protocolsettings"] = {"format": format} | (change["protocolsettings"] or {})
    if change["sinkcredential"] == present.get("sinkcredential"):
        del change["sinkcredential"]
    try:
        values = await run_to_the_end(partial(read_change, change, settings, row))
        row = await broker.update_subscription(id, ticket, values, entity_tags(if_match))
    except (Problem, RequestValidationError, SinkRefused) as error:
        raise _bad_request(error) from None
    return answer(_shown(row) | _kept_back(ticket, broker, row), headers={"ETag": f'"{entity_tag(row)}"'})


@router.delete("/{id}", summary="Delete a subscription")
async def delete(id: Id, broker: AppBroker, ticket: Ticket, if_match: IfMatch = None) -> Response:
    """Deletes a subscription and returns it."""
    await _row(broker, id)
    row = await broker.delete_subscription(id, ticket, entity_tags(if_match))
    return answer(_shown(row) | _kept_back(ticket, broker, row))


def _kept_back(caller: Caller | Claim, broker: Broker, row: Row[Any]) -> dict[str, Any]:
    """Replaces a failing status by `active` if it would reveal a match with attributes that are hidden from the
    caller."""
    hidden = hidden_in(reader_of(caller, broker).view, row.tree)
    return {"status": "active"} if hidden and row.status in ("failing", "disabled_by_failures") else {}


async def _row(broker: AppBroker, id: str) -> Row[Any]:
    row = await broker.read(lambda connection: subscriptions.find_subscription(connection, id))
    if row is None or row.sink is None:
        raise UnknownSubscription(id)
    return row


def _members(body: dict[str, Any]) -> dict[str, Any]:
    """Returns the members of the specification. A member that is null is absent. Raises `Problem` (400)."""
    for name in body:
        if name not in ("id", *MEMBERS, *SHOWN):
            raise _bad("unknown member", f"/{name[:100]}")
    for name in ("sink", "protocol"):
        if not isinstance(body.get(name), str):
            raise _bad(f"{name} is required: a text", f"/{name}")
    if not isinstance(body.get("protocolsettings"), dict | None):
        raise _bad("protocolsettings must be an object", "/protocolsettings")
    return {name: body[name] for name in ("id", *MEMBERS) if body.get(name) is not None}


def _shown(row: Row[Any]) -> dict[str, Any]:
    over = row.expires_at <= CLOCK.now()
    asked = row.expression
    filters = asked["filters"] if "filters" in asked else [{SEMANTIC_DIALECT: each} for each in asked.values()]
    told = {
        "id": row.id,
        "source": row.source,
        "types": row.types,
        "filters": filters or None,
        "sink": row.sink,
        "protocol": row.protocol,
        "protocolsettings": settings_shown(row.protocolsettings),
        "sinkcredential": credential_shown(row.sinkcredential),
        "status": "expired" if over else row.status,
        "expires_at": moment(row.expires_at),
    }
    return {name: value for name, value in told.items() if value is not None}


def _bad(detail: str, pointer: str) -> Problem:
    return Problem("invalid-request", detail, status=400, errors=[{"pointer": pointer, "detail": detail}])


def _bad_request(error: Exception) -> Problem:
    problem = problem_of(error)
    if problem.status_code in (422, 501):
        problem.status_code = 400
    return problem
