"""Routes of operators: list them with their statistics, register remote ones, and keep the data of built-in ones:
regions, tables and calendar windows. Changes are for administrators only.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Request, Response
from sqlalchemy import Connection

from kindcast.semantic.errors import InvalidDeclaration
from kindcast.semantic.operators import NAME, OperatorFailed
from kindcast.semantic.operators.builtin import Table
from kindcast.semantic.planner import Record
from kindcast.server.api.access import caller_of, services_of
from kindcast.server.api.problem_types import Problem
from kindcast.server.api.requests import (
    AppBroker,
    AppCaller,
    AppSettings,
    answer,
    body_schema,
    check_name,
    json_object,
    reader_of,
    server_of,
)
from kindcast.server.broker import Broker
from kindcast.server.broker.late_matches import retry_given_up
from kindcast.server.broker.operator_commands import forget_data, keep_data, register, unregister
from kindcast.server.errors import UnknownOperator
from kindcast.server.late_matching import LateMatchingService
from kindcast.server.operators.registry import DataKind as Kind
from kindcast.server.operators.registry import Entry, Key, OwnData, piece_size, read_piece, read_registration
from kindcast.server.security.callers import Caller
from kindcast.server.store import declarations as store
from kindcast.server.worker_threads import long_turns, run_to_the_end

__all__ = ["AppLateMatching", "data_router", "router"]

router = APIRouter(prefix="/v1/operators", tags=["operators"])

SEPARATED = re.compile("[;\t]")
"""In the name of the only column of a table: another program separated its columns so. Only new uploads are refused."""
MOST_PREDICATES = 100
"""The maximum number of calls in the description of an operator: the most frequent ones."""

REGISTRATION = {
    "type": "object",
    "required": ["url"],
    "properties": {
        "url": {
            "type": "string",
            "format": "uri",
            "description": "The URL of the operator. The server sends calls to it by POST.",
        },
        "version": {
            "type": "string",
            "description": "The version of the operator. Answers are shared only within one version.",
        },
        "arguments": {"description": "How many constants and @attributes a call has, or [least, most]."},
        "attributes": {
            "type": "array",
            "items": {"type": "string"},
            "description": "The attributes of an event to send.",
        },
        "cost": {"type": "number", "description": "The cost in seconds to assume before it is measured."},
        "selectivity": {"type": "number", "description": "The probability to assume before it is measured."},
        "timeout_seconds": {"type": "number"},
        "concurrency": {"type": "integer"},
        "speculate": {
            "type": "boolean",
            "description": "Start calls as soon as they may be needed, without waiting for other calls.",
        },
        "retries": {"type": "integer", "description": "Retries after a broken connection, within the timeout."},
        "cache_seconds": {"type": "number", "description": "How many seconds an answer is reused for the same call."},
        "headers": {"type": "object", "additionalProperties": {"type": "string"}},
    },
    "additionalProperties": False,
    "example": {"url": "https://crowds.example.org/ask", "arguments": 1, "cost": 0.3, "selectivity": 0.1},
}

Name = Annotated[str, Path(max_length=100, pattern=f"^{NAME}$", description="The name of the operator.")]


async def _late_matching(request: Request) -> LateMatchingService:
    service: LateMatchingService = services_of(request).late_matching
    return service


AppLateMatching = Annotated[LateMatchingService, Depends(_late_matching)]


@router.get("", summary="List operators")
async def list_all(broker: AppBroker, late_matching: AppLateMatching, caller: AppCaller) -> Response:
    """Lists all operators (built-in, from plug-ins, remote), with their declarations and statistics. An operator is
    `missing` if stored subscriptions call it but it is no longer provided; their events wait for it. Callers from whom
    attributes are hidden get no statistics: those depend on the values. Callers who may not see payloads get only the
    server of a URL."""
    listed = await _described(broker, late_matching, told=reader_of(caller, broker).view is None)
    return answer({"operators": [_for(caller, each) for each in listed]})


@router.get("/{name}", summary="One operator")
async def get_one(name: Name, broker: AppBroker, late_matching: AppLateMatching, caller: AppCaller) -> Response:
    """Returns one operator, with its declaration, its statistics and its most frequent calls. Callers from whom
    attributes are hidden get the declaration only."""
    told = reader_of(caller, broker).view is None
    found = [each for each in await _described(broker, late_matching, told=told) if each["name"] == name]
    if not found:
        raise UnknownOperator(name)
    predicates = await late_matching.late_matchers.run(lambda: _predicates(late_matching, name)) if told else []
    return answer(_for(caller, found[0]) | {"predicates": predicates})


@router.put("/{name}", summary="Register a remote operator", openapi_extra=body_schema(REGISTRATION))
async def put(
    request: Request, name: Name, broker: AppBroker, late_matching: AppLateMatching, settings: AppSettings
) -> Response:
    """Registers or changes a remote operator. Subscriptions may call it after the answer: 201 if it is new, 200 if it
    was changed. Its URL is checked like that of a webhook."""
    body = await json_object(request, settings)
    registration = read_registration(body, allow_private=settings.allow_private_sinks)
    new = await broker.submit(lambda group: register(group, name, registration, limit=settings.max_operators))
    described = [each for each in await _described(broker, late_matching) if each["name"] == name]
    return answer(described[0], 201 if new else 200)


@router.delete("/{name}", summary="Delete a remote operator")
async def delete(name: Name, broker: AppBroker) -> Response:
    """Deletes a remote operator. Refused (409) while subscriptions call it."""
    await broker.submit(lambda group: unregister(group, name))
    return answer({"name": name, "deleted": True})


@router.post("/retry", summary="Retry the candidates that were given up")
async def retry(broker: AppBroker) -> Response:
    """Tries again every candidate that operators could not decide in all their tries, from the first try, if its event
    is still stored. Use it after a service was repaired."""
    return answer({"again": await broker.submit(retry_given_up)})


# ── descriptions ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def _described(broker: AppBroker, late_matching: AppLateMatching, *, told: bool = True) -> list[dict[str, Any]]:
    """Describes all operators. `told`: with the statistics; without them as if nothing had been called."""
    uses = await broker.read(lambda connection: _uses(connection))
    entries, matchers = broker.state.operators.entries, late_matching.late_matchers
    records = await matchers.run(lambda: dict(matchers.experience.operators)) if told else {}
    clients = matchers.operator_clients if told else {}
    return [
        _shown(name, entry, records.get(name), clients[name].status() if name in clients else {}, uses.get(name, 0))
        for name, entry in sorted(entries.items())
    ]


def _for(caller: Caller, shown: dict[str, Any]) -> dict[str, Any]:
    """Returns the description of an operator as the caller may see it."""
    registration = shown.get("registration")
    if registration is None or caller.sees_payloads:
        return shown
    return shown | {"registration": registration | {"url": server_of(registration["url"])}}


def _uses(connection: Connection) -> dict[str, int]:
    return store.count_uses(connection)


def _shown(
    name: str, entry: Entry, record: Record | None, told: Mapping[str, Any], subscriptions: int
) -> dict[str, Any]:
    operator = entry.operator
    shown: dict[str, Any] = {
        "name": name,
        "kind": entry.kind,
        "version": operator.version,
        "arguments": list(operator.signature.parameters)[1:],
        "declared": {"cost": operator.cost, "selectivity": operator.selectivity},
        "learned": _learned(record, operator.selectivity, operator.cost),
        "subscriptions": subscriptions,
        **told,
    }
    if entry.registration is not None:
        shown["registration"] = entry.registration.shown()
    return shown


def _learned(record: Record | None, selectivity: float, cost: float) -> dict[str, Any]:
    """Returns the present expectations and the number of calls behind them. Recent calls count most, so `recent_*` are
    decayed counts."""
    record = record or Record()
    return {
        "calls": record.evaluations,
        "failures": record.failures,
        "recent_calls": round(record.asked, 3),
        "recent_trues": round(record.held, 3),
        "selectivity": round(record.selectivity(selectivity), 6),
        "cost": round(record.cost(cost), 9),
    }


def _predicates(late_matching: LateMatchingService, name: str) -> list[dict[str, Any]]:
    entry = late_matching.broker.state.operators.entries.get(name)
    if entry is None:
        raise InvalidDeclaration(f"no operator has the name {name!r}")
    operator = entry.operator
    own = [
        (each["predicate"], each["evaluations"])
        for each in late_matching.late_matchers.experience.as_records()
        if each["operator"] == name and each["predicate"] is not None
    ]
    own.sort(key=lambda each: (-each[1], each[0]))
    known = late_matching.late_matchers.experience.predicates
    return [
        {"call": text, **_learned(known[text], operator.selectivity, operator.cost)}
        for text, _ in own[:MOST_PREDICATES]
    ]


# ── the data of the built-in operators, for administrators ────────────────────────────────────────────────────────────


data_router = APIRouter(prefix="/v1/operator-data", tags=["operators"])

TableName = Annotated[
    str, Path(max_length=100, pattern=r"^[^/\x00-\x1f]+$", description="The table, as calls name it.")
]
MEDIA_TYPES: dict[Kind, str] = {
    "regions": "application/geo+json",
    "tables": "text/csv",
    "windows": "application/json",
}


def _data_body(kind: Kind) -> dict[str, Any]:
    content: dict[str, Any] = {MEDIA_TYPES[kind]: {"schema": {"type": "string" if kind == "tables" else "object"}}}
    if kind == "tables":  # generators of clients do not support CSV
        content["application/octet-stream"] = {"schema": {"type": "string", "format": "binary"}}
    return {"requestBody": {"required": True, "content": content}}


@data_router.get("", summary="List the data of the built-in operators", name="list_all")
async def list_data(broker: AppBroker) -> Response:
    """Lists regions, tables and windows, from the server's folder and from uploads, each with its size."""
    data = broker.state.operators.data
    return answer({"data": [_piece(data, key) for key in sorted(data.pieces)]})


@data_router.put("/regions", summary="Upload named regions", openapi_extra=_data_body("regions"))
async def put_regions(request: Request, broker: AppBroker) -> Response:
    """Replaces the regions by GeoJSON whose features have names (`properties.name`, else `id`)."""
    return await _put_data(request, broker, ("regions", ""))


@data_router.put("/windows", summary="Upload calendar windows", openapi_extra=_data_body("windows"))
async def put_windows(request: Request, broker: AppBroker) -> Response:
    """Replaces the calendar windows by a JSON object such as `{"office hours": ["mon-fri 09:00-17:00
    Europe/Vienna"]}`."""
    return await _put_data(request, broker, ("windows", ""))


@data_router.put("/tables/{name}", summary="Upload a table", openapi_extra=_data_body("tables"))
async def put_table(request: Request, name: TableName, broker: AppBroker) -> Response:
    """Creates or replaces a table from CSV (UTF-8) with a header. The first column is the key. A subscription whose
    call does not fit the new columns is undecided, with that reason."""
    check_name(name)
    return await _put_data(request, broker, ("tables", name))


@data_router.delete("/regions", summary="Delete uploaded regions")
async def delete_regions(broker: AppBroker) -> Response:
    """Deletes uploaded data. Refused (409) while subscriptions call an operator that reads it."""
    return await _delete_data(broker, ("regions", ""))


@data_router.delete("/windows", summary="Delete uploaded calendar windows")
async def delete_windows(broker: AppBroker) -> Response:
    """Deletes uploaded data. Refused (409) while subscriptions call an operator that reads it."""
    return await _delete_data(broker, ("windows", ""))


@data_router.delete("/tables/{name}", summary="Delete an uploaded table")
async def delete_table(name: TableName, broker: AppBroker) -> Response:
    """Deletes an uploaded table. Refused (409) while subscriptions call an operator that reads tables."""
    return await _delete_data(broker, ("tables", name))


async def _put_data(request: Request, broker: Broker, key: Key) -> Response:
    document = await request.body()
    try:
        async with long_turns().beside(caller_of(request).owner):
            piece = await run_to_the_end(lambda: read_piece(*key, document))
    except OperatorFailed as error:  # a library is not installed
        raise InvalidDeclaration(str(error)) from None
    if isinstance(piece, Table) and len(piece.columns) == 1 and SEPARATED.search(piece.columns[0]):
        raise InvalidDeclaration(
            f"table {piece.name!r}: commas separate the columns of CSV, but the first line has only one column, "
            f"{piece.columns[0][:100]!r}"
        )
    new = await broker.submit(lambda group: keep_data(group, key, piece, document))
    return answer(_piece(broker.state.operators.data, key), 201 if new else 200)


async def _delete_data(broker: Broker, key: Key) -> Response:
    if not await broker.submit(lambda group: forget_data(group, key)):
        raise Problem("unknown-operator-data", f"no data was uploaded as {'/'.join(filter(None, key))}")
    return answer({"kind": key[0], "name": key[1], "deleted": True})


def _piece(data: OwnData, key: Key) -> dict[str, Any]:
    kind, name = key
    named = {"name": name} if name else {}
    return {"kind": kind, **named, "entries": piece_size(data.pieces[key]), "uploaded": key in data.uploaded}
