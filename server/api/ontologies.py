"""Routes of ontologies: upload, list, compare, activate, roll back and delete; the shipped ones, for beginners."""

import asyncio
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response
from sqlalchemy import Row
from starlette.requests import ClientDisconnect

from kindcast.semantic.ontology import CONTENT_TYPES, Progress, encode
from kindcast.semantic.shipped_vocabularies import shipped, shipped_names
from kindcast.server.api.jobs import PREFER, AppJobs, accepted, wants_a_job
from kindcast.server.api.problem_types import Problem
from kindcast.server.api.requests import AppBroker, AppCaller, DryRun, answer, has_left, moment
from kindcast.server.broker.vocabulary_commands import Sharing, Versions
from kindcast.server.cloudevents import media_type_of
from kindcast.server.errors import UnknownOntology
from kindcast.server.security.keys import DEFAULT_TENANT
from kindcast.server.store import ontologies
from kindcast.server.worker_threads import LONG, run_in_turn

__all__ = [
    "MOST",
    "router",
    "shipped_router",
]

router = APIRouter(prefix="/v1/ontologies", tags=["ontologies"])

Name = Annotated[
    str,
    Path(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$",
        description="Letters, digits, dots, hyphens and underscores; at most 100.",
    ),
]


async def _sharing(
    request: Request,
    caller: AppCaller,
    shared: Annotated[
        bool,
        Query(description="It is one that all tenants share. Only an administrator of all tenants may say so."),
    ] = False,
) -> Sharing | None:
    """Raises `Problem` if the caller may not change shared ontologies."""
    if not shared:
        return None
    if not caller.of_all:
        raise Problem("not-permitted", "only an administrator of all tenants changes what all tenants share")
    if caller.tenant != DEFAULT_TENANT:
        detail = f"what all tenants share is not changed in the tenant {caller.tenant!r}: leave out Kindcast-Tenant"
        raise Problem("not-permitted", detail)
    sharing: Sharing = request.app.state.tenants.shared
    return sharing


AppSharing = Annotated[Sharing | None, Depends(_sharing)]


async def _seen(
    if_match: Annotated[
        str | None,
        Header(max_length=4_096, description="Change the ontology only if its ETag is one of these (412 otherwise)."),
    ] = None,
) -> Versions:
    """Returns the versions in `If-Match`."""
    if if_match is None:
        return None
    tags = (each.strip().removeprefix("W/").strip('"') for each in if_match.split(","))
    return [tag for tag in tags if tag]


Seen = Annotated[Versions, Depends(_seen)]
"""The versions of which one must be active, if the request has `If-Match`."""

UNTOLD = frozenset({"", "application/x-www-form-urlencoded", "application/octet-stream"})
"""Content types that do not tell the format of a document: none, and the default of curl."""

MOST = 2**31 - 1
"""The highest possible number of a version."""

DOCUMENT = {
    "parameters": [PREFER],
    "requestBody": {
        "required": False,  # an empty body is a document without concepts
        "content": {
            kind: {"schema": {"type": "string", "format": "binary"}}
            for kind in (*CONTENT_TYPES, "application/octet-stream")
        },
    },
}


@router.put("/{name}", summary="Upload an ontology", status_code=201, openapi_extra=DOCUMENT)
async def put_ontology(
    request: Request,
    name: Name,
    broker: AppBroker,
    jobs: AppJobs,
    sharing: AppSharing,
    seen: Seen,
    format: Annotated[
        str | None, Query(max_length=100, description="The syntax: ttl, owl, nt, jsonld, obo, ofn …")
    ] = None,
    reason: Annotated[
        Literal["none", "rdfs", "owl"],
        Query(
            description="What to infer: nothing; what follows from sub-properties, domains and "
            "ranges; or also what an OWL 2 reasoner finds, which may take minutes."
        ),
    ] = "none",
    relations: Annotated[
        str,
        Query(
            max_length=8_192,
            description="Relations that subscriptions may follow beside is-a, separated by commas: IRIs, CURIEs, short "
            "names or labels, or `transitive` for every owl:TransitiveProperty.",
        ),
    ] = "",
    activate: Annotated[bool, Query(description="Whether the new version is activated at once.")] = True,
    dry_run: Annotated[bool, Query(description="Only read the document and report the effect; store nothing.")] = False,
    if_none_match: Annotated[
        str | None, Header(max_length=4_096, description="`*`: accept it only if there is no version (412 otherwise).")
    ] = None,
) -> Response:
    """Stores the document, plain or gzip, as a new version, and returns the load report. The same bytes again are the
    same version (200). When the version is activated, every live subscription is compiled again, in one step. An event
    is matched under exactly one version. With `dry_run` nothing is stored or activated (200): the load report includes
    the subscriptions whose meaning would change. Nothing is fetched: imports are resolved with uploaded documents. With
    `Prefer: respond-async` the answer is 202 at once, and the job at `Location` has the progress. Without it, the
    document is not read further if the client leaves. With `If-Match` the
    document is accepted only as the successor of the version with that ETag, and with `If-None-Match: *` only if there
    is no version (412 otherwise). With `shared` all tenants get it; the answer counts their subscriptions
    (`others`)."""
    media_type = media_type_of(request.headers.get("content-type"))
    told = format or (None if media_type in UNTOLD else media_type)
    asked = [iri for iri in (each.strip() for each in relations.split(",")) if iri]
    replaces = _absent(if_none_match) if if_none_match is not None else seen
    document = await request.body()
    room = broker.documents.take_room(len(document))

    async def put(progress: Progress) -> tuple[dict[str, Any], bool]:
        with room:
            return await broker.put_ontology(
                name,
                document,
                format=told,
                activate=activate,
                reason=reason,
                relations=asked,
                replaces=replaces,
                dry_run=dry_run,
                progress=progress,
                sharing=sharing,
            )

    if wants_a_job(request):
        return await accepted(jobs, put)
    leaving = asyncio.ensure_future(has_left(request))

    def check_wanted(*_: object) -> None:
        if leaving.done():
            raise ClientDisconnect

    try:
        report, new = await put(check_wanted)
    finally:
        leaving.cancel()
    headers = {"Location": f"/v1/ontologies/{name}"}
    if report["active"] and not dry_run:
        headers["ETag"] = f'"{report["version"]}"'
    return answer(report, 201 if new else 200, headers)


@router.get("", summary="List ontologies")
async def list_ontologies(broker: AppBroker) -> Response:
    """Lists every ontology with its active version (or the newest, if none is active), and the vocabulary that they
    form."""
    rows = await broker.read(ontologies.list_ontologies)
    shared = await broker.read(ontologies.shared_names)
    vocabulary = broker.vocabulary
    return answer(
        {
            "ontologies": [_described(row, shared) for row in rows],
            "vocabulary_version": vocabulary.version,
            "concepts": vocabulary.report["concepts"],  # as each row counts them: without individuals
        }
    )


@router.get("/{name}", summary="One ontology")
async def get_ontology(name: Name, broker: AppBroker) -> Response:
    """Returns the active version of an ontology (or the newest, if none is active) with its load report."""
    versions = await _versions(broker, name)
    shared = await broker.read(ontologies.shared_names)
    shown = next((row for row in versions if row.active), versions[0])
    return answer(_described(shown, shared), headers={"ETag": f'"{shown.version}"'})


@router.get("/{name}/versions", summary="Versions of an ontology")
async def list_versions(name: Name, broker: AppBroker) -> Response:
    """Lists every version of an ontology, newest first."""
    versions = await _versions(broker, name)
    shared = await broker.read(ontologies.shared_names)
    return answer({"name": name, "versions": [_described(row, shared) for row in versions]})


@router.get("/{name}/records", summary="The load report of an ontology", response_class=Response)
async def get_records(name: Name, broker: AppBroker, caller: AppCaller) -> Response:
    """Returns the records of the active version in the internal format of this program, for jobs outside the server."""
    ontology = next((each for each in broker.vocabulary.ontologies if each.name == name), None)
    if ontology is None:
        raise UnknownOntology(f"no version of an ontology {name!r} is active")
    content = await run_in_turn(lambda: encode(ontology), LONG, caller.owner)
    return Response(content, media_type="application/octet-stream")


@router.get("/{name}/diff", summary="The differences between two versions")
async def diff(
    name: Name,
    broker: AppBroker,
    caller: AppCaller,
    before: Annotated[
        int | None, Query(alias="from", ge=1, le=MOST, description="The older version. Default: the active version.")
    ] = None,
    to: Annotated[
        int | None, Query(ge=1, le=MOST, description="The newer version. Default: the newest version.")
    ] = None,
    limit: Annotated[
        int, Query(ge=0, le=1_000, description="The largest number of entries in a list; counts are complete.")
    ] = 100,
) -> Response:
    """Lists the differences between two versions: concepts that were added, removed, moved (with other parents),
    merged, split, deprecated or restored, and concepts with other labels."""
    versions = await _versions(broker, name)
    old = before or next((row.version for row in versions if row.active), versions[-1].version)
    new = to or versions[0].version
    found = await broker.vocabulary_commands.ontology_difference(name, old, new, limit, caller.owner)
    return answer({"name": name, "from": old, "to": new, **found})


@router.post("/{name}/activate", summary="Activate a version")
async def activate(
    name: Name,
    broker: AppBroker,
    sharing: AppSharing,
    seen: Seen,
    version: Annotated[int, Query(ge=1, le=MOST)],
    dry_run: DryRun = False,
) -> Response:
    """Activates a stored version, which may be an earlier one. Returns the live subscriptions whose meaning changes,
    and what they gain and lose. `dry_run` returns the same and changes nothing."""
    told = await broker.vocabulary_commands.activate_ontology(
        name, version, replaces=seen, dry_run=dry_run, sharing=sharing
    )
    return await _changed(broker, name, dry_run, told)


@router.post("/{name}/rollback", summary="Go back to the previous version")
async def rollback(
    name: Name,
    broker: AppBroker,
    sharing: AppSharing,
    seen: Seen,
    dry_run: DryRun = False,
) -> Response:
    """Activates the version that was active before the current one. A second rollback undoes the first. 409 if there
    was none."""
    told = await broker.vocabulary_commands.activate_ontology(
        name, None, replaces=seen, dry_run=dry_run, sharing=sharing
    )
    return await _changed(broker, name, dry_run, told)


@router.delete("/{name}", summary="Delete an ontology")
async def delete_ontology(
    name: Name,
    broker: AppBroker,
    sharing: AppSharing,
    seen: Seen,
    dry_run: DryRun = False,
) -> Response:
    """Deletes every version of an ontology. Refused (409) while a subscription names a concept that only this ontology
    has. `dry_run` returns the same and changes nothing."""
    told = await broker.vocabulary_commands.delete_ontology(name, replaces=seen, dry_run=dry_run, sharing=sharing)
    return await _changed(broker, name, dry_run, told)


async def _changed(broker: AppBroker, name: str, dry_run: bool, told: dict[str, Any]) -> Response:
    """Returns the effect of a change."""
    state = {"name": name, "dry_run": dry_run, "vocabulary_version": broker.vocabulary.version}
    return answer(state | told)


def _absent(if_none_match: str) -> Versions:
    """Returns the condition that there is no version. Raises `Problem` for other tags."""
    if if_none_match.strip() == "*":
        return ("",)
    raise Problem(
        "malformed-request", "If-None-Match of an upload can only be *: create the ontology if it does not exist"
    )


async def _versions(broker: AppBroker, name: str) -> list[Row[Any]]:
    rows = await broker.read(lambda connection: ontologies.list_versions(connection, name))
    if not rows:
        raise UnknownOntology(f"there is no ontology {name!r}")
    return list(rows)


def _described(row: Row[Any], shared: set[str]) -> dict[str, Any]:
    stored = {
        "name": row.name,
        "version": row.version,
        "active": row.active,
        "shared": row.name in shared,
        "sha256": row.sha256,
        "format": row.format,
        "reason": row.reason,
        "relations": row.relations,
        "created_at": moment(row.created_at),
        "activated_at": moment(row.activated_at),
    }
    return stored | {key: value for key, value in row.report.items() if key not in stored}


# ── routes of the shipped vocabularies, for beginners ─────────────────────────────────────────────────────────────────


shipped_router = APIRouter(prefix="/v1/shipped", tags=["ontologies"])


@shipped_router.get("", summary="List shipped vocabularies")
async def list_shipped() -> Response:
    """Lists the vocabularies that are shipped with kindcast. They are not active: to use one, get it and upload it."""
    listed: list[dict[str, Any]] = [
        {"name": name.removesuffix(".ttl"), "bytes": shipped(name).stat().st_size, "format": "turtle"}
        for name in shipped_names()
    ]
    return answer({"vocabularies": listed})


@shipped_router.get("/{name}", summary="A shipped vocabulary", response_class=Response)
async def get_shipped(
    name: Annotated[str, Path(max_length=100, description="The name of the vocabulary, such as shop.")],
) -> Response:
    """Returns the document in Turtle. `PUT /v1/ontologies/{name}` accepts it unchanged."""
    if f"{name}.ttl" not in shipped_names():
        raise UnknownOntology(f"no vocabulary {name!r} is shipped")
    return Response(shipped(name).read_bytes(), media_type="text/turtle")
