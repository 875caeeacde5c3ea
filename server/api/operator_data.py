"""Routes of the built-in operators' data: regions, tables and calendar windows. For administrators."""

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response

from kindcast.semantic.errors import InvalidDeclaration
from kindcast.semantic.operators import OperatorFailed
from kindcast.server.api.error_responses import Problem
from kindcast.server.api.requests import AppBroker, answer
from kindcast.server.broker import Broker
from kindcast.server.broker.operator_commands import forget_data, keep_data
from kindcast.server.operators.registry import DataKind as Kind
from kindcast.server.operators.registry import Key, OwnData, piece_size, read_piece

__all__ = ["router"]

router = APIRouter(prefix="/v1/operator-data", tags=["operators"])

Name = Annotated[str, Path(max_length=100, pattern=r"^[^/\x00-\x1f]+$", description="The table, as calls name it.")]
MEDIA_TYPES: dict[Kind, str] = {
    "regions": "application/geo+json",
    "tables": "text/csv",
    "windows": "application/json",
}


def _body(kind: Kind) -> dict[str, Any]:
    content: dict[str, Any] = {MEDIA_TYPES[kind]: {"schema": {"type": "string" if kind == "tables" else "object"}}}
    if kind == "tables":  # generators of clients do not support CSV
        content["application/octet-stream"] = {"schema": {"type": "string", "format": "binary"}}
    return {"requestBody": {"required": True, "content": content}}


@router.get("", summary="List the data of the built-in operators")
async def list_all(broker: AppBroker) -> Response:
    """Lists regions, tables and windows, from the server's folder and from uploads, each with its size."""
    data = broker.state.operators.data
    return answer({"data": [_described(data, key) for key in sorted(data.pieces)]})


@router.put("/regions", summary="Upload named regions", openapi_extra=_body("regions"))
async def put_regions(request: Request, broker: AppBroker) -> Response:
    """Replaces the regions by GeoJSON whose features have names (`properties.name`, else `id`)."""
    return await _put(request, broker, ("regions", ""))


@router.put("/windows", summary="Upload calendar windows", openapi_extra=_body("windows"))
async def put_windows(request: Request, broker: AppBroker) -> Response:
    """Replaces the calendar windows by a JSON object such as `{"office hours": ["mon-fri 09:00-17:00
    Europe/Vienna"]}`."""
    return await _put(request, broker, ("windows", ""))


@router.put("/tables/{name}", summary="Upload a table", openapi_extra=_body("tables"))
async def put_table(request: Request, name: Name, broker: AppBroker) -> Response:
    """Creates or replaces a table from CSV (UTF-8) with a header. The first column is the key. A subscription whose
    call does not fit the new columns is undecided, with that reason."""
    return await _put(request, broker, ("tables", name))


@router.delete("/regions", summary="Delete uploaded regions")
async def delete_regions(broker: AppBroker) -> Response:
    """Deletes uploaded data. Refused (409) while subscriptions call an operator that reads it."""
    return await _delete(broker, ("regions", ""))


@router.delete("/windows", summary="Delete uploaded calendar windows")
async def delete_windows(broker: AppBroker) -> Response:
    """Deletes uploaded data. Refused (409) while subscriptions call an operator that reads it."""
    return await _delete(broker, ("windows", ""))


@router.delete("/tables/{name}", summary="Delete an uploaded table")
async def delete_table(name: Name, broker: AppBroker) -> Response:
    """Deletes an uploaded table. Refused (409) while subscriptions call an operator that reads tables."""
    return await _delete(broker, ("tables", name))


async def _put(request: Request, broker: Broker, key: Key) -> Response:
    document = await request.body()
    try:
        piece = await asyncio.to_thread(read_piece, *key, document)
    except OperatorFailed as error:  # a library is not installed
        raise InvalidDeclaration(str(error)) from None
    new = await broker.submit(lambda group: keep_data(group, key, piece, document))
    return answer(_described(broker.state.operators.data, key), 201 if new else 200)


async def _delete(broker: Broker, key: Key) -> Response:
    if not await broker.submit(lambda group: forget_data(group, key)):
        raise Problem("unknown-operator-data", f"no data was uploaded as {'/'.join(filter(None, key))}")
    return answer({"kind": key[0], "name": key[1], "deleted": True})


def _described(data: OwnData, key: Key) -> dict[str, Any]:
    kind, name = key
    named = {"name": name} if name else {}
    return {"kind": kind, **named, "entries": piece_size(data.pieces[key]), "uploaded": key in data.uploaded}
