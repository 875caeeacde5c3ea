"""Ontologies: upload, list, activate, delete."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request, Response
from sqlalchemy import Row

from server.api.requests import AppBroker, answer, moment, not_yet
from server.broker.vocabularies import as_json
from server.errors import UnknownOntology
from server.store import ontologies

__all__ = ["router"]

router = APIRouter(prefix="/v1/ontologies", tags=["ontologies"])

Name = Annotated[
    str,
    Path(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$",
        description="Letters, digits, dots, hyphens and underscores; at most 100.",
    ),
]

UNTOLD = frozenset({"", "application/x-www-form-urlencoded", "application/octet-stream"})
"""Content types that say nothing about a document; the first is nobody's, the second is what curl sends by itself."""

DOCUMENT = {
    "requestBody": {
        "required": True,
        "content": {
            kind: {"schema": {"type": "string", "format": "binary"}}
            for kind in (
                *("text/turtle", "application/rdf+xml", "application/ld+json", "application/n-triples"),
                *("application/n-quads", "application/trig", "application/octet-stream"),
            )
        },
    }
}


@router.put("/{name}", summary="Upload an ontology", status_code=201, openapi_extra=DOCUMENT)
async def put_ontology(
    request: Request,
    name: Name,
    broker: AppBroker,
    format: Annotated[str | None, Query(max_length=100, description="The syntax: ttl, owl, nt, jsonld …")] = None,
    reason: Annotated[Literal["none", "rdfs", "owl"], Query(description="Only `none` in this version.")] = "none",
    relations: Annotated[str, Query(max_length=8_192, description="Not in this version.")] = "",
    activate: Annotated[bool, Query(description="Whether it is in force at once.")] = True,
) -> Response:
    """Stores the document, plain or gzip, as another version, and answers the load report. The same bytes again are the
    same version (200). Once active, every live subscription is compiled again, in one step; an event is matched under
    exactly one version. Nothing is fetched: imports are resolved against what was uploaded."""
    if reason != "none":
        raise not_yet(f"reason={reason}")
    if relations:
        raise not_yet("relations")
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    told = format or (None if media_type in UNTOLD else media_type)
    report, new = await broker.put_ontology(name, await request.body(), format=told, activate=activate)
    return answer(report, 201 if new else 200, {"Location": f"/v1/ontologies/{name}"})


@router.get("", summary="List ontologies")
async def list_ontologies(broker: AppBroker) -> Response:
    """Every ontology in its active version (the newest, where none is active), and the vocabulary that they make."""
    rows = await broker.read(ontologies.list_ontologies)
    vocabulary = broker.vocabulary
    return answer(
        {
            "ontologies": [_described(row) for row in rows],
            "vocabulary_version": vocabulary.version,
            "concepts": len(vocabulary),
        }
    )


@router.get("/{name}", summary="One ontology")
async def get_ontology(name: Name, broker: AppBroker) -> Response:
    """Its active version, or the newest where none is active, with its load report."""
    versions = await _versions(broker, name)
    return answer(_described(next((row for row in versions if row.active), versions[0])))


@router.get("/{name}/versions", summary="Versions of an ontology")
async def list_versions(name: Name, broker: AppBroker) -> Response:
    """Every version, newest first."""
    return answer({"name": name, "versions": [_described(row) for row in await _versions(broker, name)]})


@router.post("/{name}/activate", summary="Activate a version")
async def activate(
    name: Name,
    broker: AppBroker,
    version: Annotated[int, Query(ge=1, le=2**31 - 1)],
    dry_run: Annotated[bool, Query(description="Not in this version.")] = False,
) -> Response:
    """Makes a stored version the active one, which may be an earlier one; every live subscription is compiled again."""
    if dry_run:
        raise not_yet("dry_run")
    done = await broker.activate_ontology(name, version)
    return answer(
        {
            "name": name,
            "version": version,
            "active": True,
            "vocabulary_version": broker.vocabulary.version,
            "subscriptions": as_json(done),
        }
    )


@router.delete("/{name}", summary="Delete an ontology")
async def delete_ontology(name: Name, broker: AppBroker) -> Response:
    """Forgets every version. Refused (409) while a subscription names a concept that only this ontology has."""
    done = await broker.delete_ontology(name)
    return answer({"name": name, "vocabulary_version": broker.vocabulary.version, "subscriptions": as_json(done)})


async def _versions(broker: AppBroker, name: str) -> list[Row[Any]]:
    rows = await broker.read(lambda connection: ontologies.list_versions(connection, name))
    if not rows:
        raise UnknownOntology(f"there is no ontology {name!r}")
    return list(rows)


def _described(row: Row[Any]) -> dict[str, Any]:
    stored = {
        "name": row.name,
        "version": row.version,
        "active": row.active,
        "sha256": row.sha256,
        "format": row.format,
        "created_at": moment(row.created_at),
    }
    return stored | {key: value for key, value in row.report.items() if key not in stored}
