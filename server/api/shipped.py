"""Routes of the shipped vocabularies, for beginners."""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Response

from kindcast.semantic.shipped_vocabularies import shipped, shipped_names
from kindcast.server.api.requests import answer
from kindcast.server.errors import UnknownOntology

__all__ = ["router"]

router = APIRouter(prefix="/v1/shipped", tags=["ontologies"])


@router.get("", summary="List shipped vocabularies")
async def list_shipped() -> Response:
    """Lists the vocabularies that are shipped with kindcast. They are not active: to use one, get it and upload it."""
    listed: list[dict[str, Any]] = [
        {"name": name.removesuffix(".ttl"), "bytes": shipped(name).stat().st_size, "format": "turtle"}
        for name in shipped_names()
    ]
    return answer({"vocabularies": listed})


@router.get("/{name}", summary="A shipped vocabulary", response_class=Response)
async def get_shipped(
    name: Annotated[str, Path(max_length=100, description="The name of the vocabulary, such as shop.")],
) -> Response:
    """Returns the document in Turtle. `PUT /v1/ontologies/{name}` accepts it unchanged."""
    if f"{name}.ttl" not in shipped_names():
        raise UnknownOntology(f"no vocabulary {name!r} is shipped")
    return Response(shipped(name).read_bytes(), media_type="text/turtle")
