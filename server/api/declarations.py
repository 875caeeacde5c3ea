"""Routes of declarations: attributes, synonyms, exchange rates, event types, JSON-LD contexts and others, in addition
to the ontologies.

Each change makes a new version of the vocabulary. `?dry_run=true` reports its effect on the subscriptions and changes
nothing.
"""

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response
from sqlalchemy import Row

from kindcast.semantic.units import read_rate_table
from kindcast.semantic.vocabulary import (
    LONGEST_URL,
    SHIPPED_SPLITS,
    SPLIT_BY,
    Correctable,
    DeclarationKind,
    EventType,
    View,
    check_table,
    document_of,
    read_event_type,
    read_table,
    shipped_contexts,
    view_of,
)
from kindcast.server.api.problem_types import Problem
from kindcast.server.api.requests import (
    AppBroker,
    AppCaller,
    AppSettings,
    DryRun,
    answer,
    body_schema,
    check_name,
    json_object,
    moment,
    reader_of,
)
from kindcast.server.broker import Broker
from kindcast.server.cloudevents import media_type_of
from kindcast.server.errors import HiddenAttribute, UnknownDeclaration
from kindcast.server.security.callers import Caller
from kindcast.server.security.permissions import ROLES, Permission
from kindcast.server.store import declarations, ontologies
from kindcast.server.worker_threads import run_in_turn

__all__ = ["router"]

router = APIRouter(prefix="/v1", tags=["declarations"])

THE_RATES = "rates"
"""The name under which the only table of rates is stored."""

Name = Annotated[str, Path(min_length=1, max_length=200)]
Url = Annotated[str, Query(min_length=1, max_length=LONGEST_URL, description="The URL by which documents refer to it.")]

TEXTS = {"oneOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}
"""One text, or several. Generators of clients support `oneOf`, but not all support a list of types."""


def _named_members(*names: str) -> dict[str, Any]:
    """Returns the schema of a boolean, or of an object with these members."""
    members = {"type": "object", "properties": {name: {"type": "string"} for name in names}}
    return {"oneOf": [{"type": "boolean"}, members]}


ATTRIBUTE = {
    "type": "object",
    "properties": {
        "kind": {"enum": ["concept", "text", "number", "instant", "boolean", "version", "ip"]},
        "range": TEXTS | {"description": "IRIs of concepts"},
        "unit": {"type": "string", "description": "of bare numbers"},
        "unit_from": {"type": "string", "description": "the sibling attribute that holds the unit"},
        "values": {"enum": ["unique", "multiple"]},
        "enum": {"type": "array", "items": {"type": "string"}, "description": "the members of an enumeration"},
        "order": {"description": "the order of the members: chains from low to high, or listed"},
        "derived": {
            "type": "string",
            "description": "the expression for its value if an event does not have it: gross - tare",
        },
        "labels": {
            "oneOf": [*TEXTS["oneOf"], {"type": "object"}],
            "description": "other names, by language or in a list",
        },
        "quantity": _named_members("number", "unit")
        | {"description": "its objects are quantities, with the known members or with these"},
        "code": _named_members("code", "system", "in")
        | {"description": "its objects are codes, with the known members or with these; in: the system of plain texts"},
        "readable_by": {"type": "array", "items": {"enum": list(ROLES)}, "description": "the roles that may read it"},
        "matchable_by": {
            "type": "array",
            "items": {"enum": list(ROLES)},
            "description": "the roles that may subscribe to it",
        },
        "reads": {
            "description": 'more readings of its texts: a list of {"match": pattern, "as": text with {1}} or "gtin-14"'
        },
    },
}
WORDS = {"type": "object", "additionalProperties": {"type": "string"}, "description": "word → root word"}
CONTEXT = {"type": "object", "required": ["@context"], "examples": [{"@context": {"ex": "https://example.com/ns#"}}]}
CODE_SYSTEM = {
    "type": "object",
    "required": ["identifiers"],
    "properties": {
        "identifiers": TEXTS | {"description": "URIs, OIDs"},
        "iri": {"description": 'the IRI of a code: a text with {code}, or {"match": pattern, "as": text with {1}}'},
        "notation": {"type": "string", "description": "the property that holds codes, by default skos:notation"},
    },
}
ALIASES = {
    "type": "object",
    "properties": {
        "iris": {"type": "object", "additionalProperties": {"type": "string"}, "description": "IRI → IRI"},
        "prefixes": {
            "type": "object",
            "additionalProperties": {"type": "string"},
            "description": "beginning → beginning",
        },
        "patterns": {"description": 'a list of {"match": pattern, "as": text with {1}} or "gs1-digital-link"'},
        "spellings": {
            "type": "array",
            "items": {"enum": ["en"]},
            "description": "languages whose plurals are known: other spellings of labels then mean their concepts",
        },
    },
    "examples": [{"prefixes": {"http://schema.org/": "https://schema.org/"}}, {"spellings": ["en"]}],
}
SPLIT = {
    "type": "object",
    "required": ["split"],
    "properties": {
        "split": {"description": "the path to the events, such as epcisBody.eventList, <IRI>, or a list; [] for none"},
        "inherit": {"description": "members of the document that each event gets: a path, or a list"},
        "where": {
            "type": "object",
            "description": "attribute → a text or a list of texts; the document must have one of them",
        },
        "id": {"description": "the member with the id of an event: a path, or a list"},
        "revision": {"description": "the member with the revision of an event: a path, or a list"},
    },
    "example": {"split": "order.lines", "inherit": ["order.customer"], "id": "number"},
}
RELATION = {
    "type": "object",
    "required": ["union"],
    "properties": {"union": {"type": "array", "items": {"type": "string"}, "description": "names of relations"}},
}
RATES = {"type": "object", "examples": [{"EUR": {"USD": "1.08"}}]}


# ── rules of matching ───────────────────────────────────────────────────────────────────────────────────────────────


@router.get("/rules", summary="The rules of matching")
async def get_rules(broker: AppBroker) -> Response:
    """Returns the number of the matching rules in use, since when they are used here, and their effect on the
    subscriptions that existed then, in the form of a dry run; null if there were none. `reading` is how linked data is
    read here, by the settings `linked_data` and `unknown_contexts`."""
    row = await broker.read(ontologies.latest)
    vocabulary = broker.vocabulary
    reading = {
        "linked_data": "graphs" if vocabulary.reads_linked_data else "plain",
        "unknown_contexts": vocabulary.unknown_contexts,
    }
    if row is None:
        return answer({"meaning": vocabulary.meaning, "since": None, "impact": None, "reading": reading})
    return answer({"meaning": row.meaning, "since": moment(row.since), "impact": row.impact, "reading": reading})


# ── attributes ──────────────────────────────────────────────────────────────────────────────────────────────────────


@router.put("/attributes/{name:path}", summary="Declare an attribute", openapi_extra=body_schema(ATTRIBUTE))
async def put_attribute(
    request: Request, name: Name, broker: AppBroker, settings: AppSettings, caller: AppCaller, dry_run: DryRun = False
) -> Response:
    """Declares what an attribute holds: its kind, its range, the unit of its bare numbers, or the sibling attribute
    that has the unit. 201 for a new version, 200 if the declaration is the same. Only an administrator may change who
    may see its values."""
    body = await json_object(request, settings)
    _check_privacy(broker, caller, name, body)
    return await _put(broker, "attribute", name, body, dry_run)


def _check_privacy(broker: Broker, caller: Caller, name: str, body: Mapping[str, Any]) -> None:
    """Raises `Problem` if the declaration changes who may see the values of an attribute and the caller is no
    administrator."""
    before = broker.state.declarations.attributes.get(name, {})
    same = all(before.get(each) == body.get(each) for each in ("readable_by", "matchable_by"))
    if not same and Permission.ADMINISTER not in caller.permissions:
        detail = "only an administrator changes who may see the values of an attribute (readable_by, matchable_by)"
        raise Problem("not-permitted", detail)


@router.get("/attributes", summary="List declared attributes")
async def list_attributes(broker: AppBroker) -> Response:
    """Lists every active declaration by name. What ontologies state about their properties is not included."""
    return await _listed(broker, "attribute")


@router.get("/attributes/{name:path}", summary="One declared attribute")
async def get_attribute(name: Name, broker: AppBroker) -> Response:
    """Returns the active declaration, and when each version was created."""
    return await _shown(broker, "attribute", name)


@router.delete("/attributes/{name:path}", summary="Delete a declaration")
async def delete_attribute(name: Name, broker: AppBroker, caller: AppCaller, dry_run: DryRun = False) -> Response:
    """Deletes every version of the declaration. What ontologies state about the attribute is used again."""
    _check_privacy(broker, caller, name, {})
    return await _deleted(broker, "attribute", name, dry_run)


# ── synonyms ────────────────────────────────────────────────────────────────────────────────────────────────────────


@router.put("/synonyms/{name:path}", summary="Upload a table of synonyms", openapi_extra=body_schema(WORDS))
async def put_synonyms(
    request: Request, name: Name, broker: AppBroker, settings: AppSettings, caller: AppCaller, dry_run: DryRun = False
) -> Response:
    """Uploads a table of words → root words, for strings and names of attributes: a JSON object, or `text/csv` with a
    word and its root word per line. All tables are used together."""
    if media_type_of(request.headers.get("content-type")) == "text/csv":
        body = await request.body()
        table = await run_in_turn(partial(read_table, body), len(body), caller.owner)
    else:
        words = await json_object(request, settings)
        table = await run_in_turn(partial(check_table, words), len(await request.body()), caller.owner)
    return await _put(broker, "synonyms", name, table, dry_run)


@router.get("/synonyms", summary="List tables of synonyms")
async def list_synonyms(broker: AppBroker) -> Response:
    """Lists every active table by name."""
    return await _listed(broker, "synonyms")


@router.get("/synonyms/{name:path}", summary="One table of synonyms")
async def get_synonyms(name: Name, broker: AppBroker) -> Response:
    """Returns the active table, and when each version was created."""
    return await _shown(broker, "synonyms", name)


@router.delete("/synonyms/{name:path}", summary="Delete a table of synonyms")
async def delete_synonyms(name: Name, broker: AppBroker, dry_run: DryRun = False) -> Response:
    """Deletes every version."""
    return await _deleted(broker, "synonyms", name, dry_run)


# ── rates ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@router.put("/rates", summary="Upload exchange rates", openapi_extra=body_schema(RATES))
async def put_rates(
    request: Request, broker: AppBroker, settings: AppSettings, caller: AppCaller, dry_run: DryRun = False
) -> Response:
    """Replaces the table of exchange rates: a JSON object, or `text/csv` with a base, a currency and a rate per line.
    Currencies that the table connects can be compared. No rate is assumed."""
    if media_type_of(request.headers.get("content-type")) == "text/csv":
        body = await request.body()
        table = await run_in_turn(partial(read_rate_table, body), len(body), caller.owner)
        return await _put(broker, "rates", THE_RATES, table, dry_run)
    return await _put(broker, "rates", THE_RATES, await json_object(request, settings), dry_run)


@router.get("/rates", summary="The exchange rates")
async def get_rates(broker: AppBroker) -> Response:
    """Returns the active table, and when each version was created."""
    return await _shown(broker, "rates", THE_RATES)


@router.delete("/rates", summary="Delete the exchange rates")
async def delete_rates(broker: AppBroker, dry_run: DryRun = False) -> Response:
    """Deletes every version. Different currencies can no longer be compared."""
    return await _deleted(broker, "rates", THE_RATES, dry_run)


# ── event types ─────────────────────────────────────────────────────────────────────────────────────────────────────


@router.put("/schemas/{type:path}", summary="Declare or extend an event type", openapi_extra=body_schema({}))
async def put_schema(
    request: Request,
    type: Name,
    broker: AppBroker,
    settings: AppSettings,
    caller: AppCaller,
    dry_run: DryRun = False,
    replace: Annotated[bool, Query(description="Allow changes that are not extensions.")] = False,
) -> Response:
    """Declares a JSON Schema for the events of a type. An existing type may only be extended, so that publishers and
    subscribers can rely on it. Each change that is no extension is an error with its place. The schema of a caller from
    whom attributes are hidden may not restrict these."""
    body = await json_object(request, settings)
    if SPLIT_BY in body or _has_envelope(broker, type):
        _check_renaming(broker, caller, "an envelope")
    if (view := reader_of(caller, broker).view) is not None:
        schemas = broker.state.declarations.schemas
        size = len(await request.body())
        await run_in_turn(lambda: _check_restrictions(view, read_event_type(type, body, schemas)), size, caller.owner)
    return await _put(broker, "schema", type, body, dry_run, replace)


def _has_envelope(broker: Broker, type: str) -> bool:
    return SPLIT_BY in broker.state.declarations.schemas.get(type, {})


def _check_restrictions(view: View, declared: EventType) -> None:
    """Raises `HiddenAttribute`, `Problem` if hidden values decide whether events have this type: other events are
    refused, so who declares it could find the values out."""
    corrected = declared.correctable or Correctable()
    named = [*declared.uses, *filter(None, (corrected.subject, corrected.revision)), *corrected.retracts]
    if hidden := view.hidden_in(named, explained=True):
        raise HiddenAttribute(hidden)
    if declared.refers_to_all:
        detail = "additionalProperties: false and uniqueItems would test attributes that are hidden from you, too"
        raise Problem("not-permitted", f"{detail}: leave them out, or ask an administrator")


@router.get("/schemas", summary="List event types, or view several as one")
async def list_schemas(
    broker: AppBroker,
    type: Annotated[list[str], Query(default_factory=list, max_length=16, description="Types to view as one.")],
    attribute: Annotated[
        list[str], Query(default_factory=list, max_length=200, description="Only these attributes of the view.")
    ],
) -> Response:
    """Lists every declared event type by name. With `type`, which may be repeated, returns the JSON Schema of an event
    that has all these types, with all their attributes or those chosen by `attribute`."""
    if not type:
        return await _listed(broker, "schema")
    vocabulary = broker.vocabulary
    known = vocabulary.schemas.types
    for name in type:
        if name not in known:
            raise UnknownDeclaration("schema", name)
    view = view_of([known[name] for name in dict.fromkeys(type)], attribute or None)
    return answer({"types": list(view.types), "view": document_of(view), "vocabulary_version": vocabulary.version})


@router.get("/schemas/{type:path}", summary="One event type")
async def get_schema(type: Name, broker: AppBroker) -> Response:
    """Returns the active schema, and when each version was created."""
    return await _shown(broker, "schema", type)


@router.delete("/schemas/{type:path}", summary="Delete an event type")
async def delete_schema(type: Name, broker: AppBroker, caller: AppCaller, dry_run: DryRun = False) -> Response:
    """Deletes every version. Events of this type have no restrictions any more. If the type has an envelope and
    attributes are hidden from the caller, only an administrator may do this."""
    if _has_envelope(broker, type):
        _check_renaming(broker, caller, "an envelope")
    return await _deleted(broker, "schema", type, dry_run)


# ── JSON-LD contexts ────────────────────────────────────────────────────────────────────────────────────────────────


@router.put("/contexts", summary="Upload a JSON-LD context", openapi_extra=body_schema(CONTEXT))
async def put_context(
    request: Request, url: Url, broker: AppBroker, settings: AppSettings, caller: AppCaller, dry_run: DryRun = False
) -> Response:
    """Uploads a context in the form in which its publisher serves it at `url`. No context is ever fetched. Contexts
    that it refers to must be uploaded before it (422 `unknown-context` lists all that are missing). 201 for a new
    version, 200 if the context is the same. If attributes are hidden from the caller, only an administrator may do
    this."""
    _check_renaming(broker, caller, "a context")
    return await _put(broker, "context", url, await json_object(request, settings), dry_run)


@router.get("/contexts", summary="List JSON-LD contexts, or one of them")
async def get_contexts(
    broker: AppBroker,
    url: Annotated[str | None, Query(max_length=LONGEST_URL, description="Only this one.")] = None,
) -> Response:
    """Lists every uploaded context, and the URLs of the shipped contexts. With `url`, returns that context and its
    versions."""
    if url is None:
        rows = await broker.read(lambda connection: declarations.list_active(connection, "context"))
        return answer(
            {
                "contexts": [_described(row) for row in rows],
                "shipped": list(shipped_contexts()),
                "vocabulary_version": broker.vocabulary.version,
            }
        )
    try:
        return await _shown(broker, "context", url)
    except UnknownDeclaration:
        if (document := shipped_contexts().get(url)) is None:
            raise
        return answer({"name": url, "shipped": True, "declaration": document, "versions": []})


@router.delete("/contexts", summary="Delete a JSON-LD context")
async def delete_context(url: Url, broker: AppBroker, caller: AppCaller, dry_run: DryRun = False) -> Response:
    """Deletes every version. Refused (422 `unknown-context`) while another context refers to it. If it replaced a
    shipped context, the shipped one is active again. If attributes are hidden from the caller, only an administrator
    may do this."""
    _check_renaming(broker, caller, "a context")
    return await _deleted(broker, "context", url, dry_run)


# ── systems of codes ────────────────────────────────────────────────────────────────────────────────────────────────


@router.put("/code-systems/{name:path}", summary="Declare a system of codes", openapi_extra=body_schema(CODE_SYSTEM))
async def put_code_system(
    request: Request, name: Name, broker: AppBroker, settings: AppSettings, dry_run: DryRun = False
) -> Response:
    """Declares which concepts the codes of a system mean, and the URIs or OIDs by which events name the system. 201 for
    a new version, 200 if the declaration is the same."""
    return await _put(broker, "code-system", name, await json_object(request, settings), dry_run)


@router.get("/code-systems", summary="List systems of codes")
async def list_code_systems(broker: AppBroker) -> Response:
    """Lists every declared system of codes by name. Concept schemes of ontologies, which are systems under their own
    IRIs, are not included."""
    return await _listed(broker, "code-system")


@router.get("/code-systems/{name:path}", summary="One system of codes")
async def get_code_system(name: Name, broker: AppBroker) -> Response:
    """Returns the active declaration, and when each version was created."""
    return await _shown(broker, "code-system", name)


@router.delete("/code-systems/{name:path}", summary="Delete a system of codes")
async def delete_code_system(name: Name, broker: AppBroker, dry_run: DryRun = False) -> Response:
    """Deletes every version. The codes of the system have no meaning any more."""
    return await _deleted(broker, "code-system", name, dry_run)


# ── aliases ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@router.put("/aliases/{name:path}", summary="Declare aliases of IRIs", openapi_extra=body_schema(ALIASES))
async def put_aliases(
    request: Request, name: Name, broker: AppBroker, settings: AppSettings, caller: AppCaller, dry_run: DryRun = False
) -> Response:
    """Declares which forms of IRIs are aliases: of concepts, instances, properties and code systems. All tables are
    used together. 201 for a new version, 200 if the declaration is the same. If attributes are hidden from the caller,
    only an administrator may do this."""
    _check_renaming(broker, caller, "aliases")
    return await _put(broker, "aliases", name, await json_object(request, settings), dry_run)


@router.get("/aliases", summary="List tables of aliases")
async def list_aliases(broker: AppBroker) -> Response:
    """Lists every active table by name."""
    return await _listed(broker, "aliases")


@router.get("/aliases/{name:path}", summary="One table of aliases")
async def get_aliases(name: Name, broker: AppBroker) -> Response:
    """Returns the active table, and when each version was created."""
    return await _shown(broker, "aliases", name)


@router.delete("/aliases/{name:path}", summary="Delete a table of aliases")
async def delete_aliases(name: Name, broker: AppBroker, caller: AppCaller, dry_run: DryRun = False) -> Response:
    """Deletes every version. If attributes are hidden from the caller, only an administrator may do this."""
    _check_renaming(broker, caller, "aliases")
    return await _deleted(broker, "aliases", name, dry_run)


# ── envelopes of events ─────────────────────────────────────────────────────────────────────────────────────────────


@router.put("/splits/{name:path}", summary="Declare an envelope of events", openapi_extra=body_schema(SPLIT))
async def put_split(
    request: Request, name: Name, broker: AppBroker, settings: AppSettings, caller: AppCaller, dry_run: DryRun = False
) -> Response:
    """Declares where documents contain several events, and what each event inherits from the document. It replaces a
    shipped envelope with the same name. 201 for a new version, 200 if the declaration is the same. If attributes are
    hidden from the caller, only an administrator may do this."""
    _check_renaming(broker, caller, "an envelope")
    return await _put(broker, "split", name, await json_object(request, settings), dry_run)


@router.get("/splits", summary="List envelopes of events")
async def list_splits(broker: AppBroker) -> Response:
    """Lists every declared envelope, and as `shipped` those that need no declaration."""
    rows = await broker.read(lambda connection: declarations.list_active(connection, "split"))
    vocabulary = broker.vocabulary
    return answer(
        {
            "splits": [_described(row) for row in rows],
            "shipped": SHIPPED_SPLITS if vocabulary.reads_linked_data else {},
            "vocabulary_version": vocabulary.version,
        }
    )


@router.get("/splits/{name:path}", summary="One envelope of events")
async def get_split(name: Name, broker: AppBroker) -> Response:
    """Returns the active declaration, or the shipped one, and when each version was created."""
    try:
        return await _shown(broker, "split", name)
    except UnknownDeclaration:
        if name not in SHIPPED_SPLITS or not broker.vocabulary.reads_linked_data:
            raise
        return answer({"name": name, "shipped": True, "declaration": SHIPPED_SPLITS[name], "versions": []})


@router.delete("/splits/{name:path}", summary="Delete an envelope of events")
async def delete_split(name: Name, broker: AppBroker, caller: AppCaller, dry_run: DryRun = False) -> Response:
    """Deletes every version. If it replaced a shipped envelope, the shipped one is active again. If attributes are
    hidden from the caller, only an administrator may do this."""
    _check_renaming(broker, caller, "an envelope")
    return await _deleted(broker, "split", name, dry_run)


# ── relations ───────────────────────────────────────────────────────────────────────────────────────────────────────


@router.put("/relations/{name:path}", summary="Declare a union of relations", openapi_extra=body_schema(RELATION))
async def put_relation(
    request: Request, name: Name, broker: AppBroker, settings: AppSettings, dry_run: DryRun = False
) -> Response:
    """Declares a name for the union of several relations, which were requested when ontologies were uploaded. 201 for a
    new version, 200 if the declaration is the same."""
    return await _put(broker, "relation", name, await json_object(request, settings), dry_run)


@router.get("/relations", summary="List unions of relations")
async def list_relations(broker: AppBroker) -> Response:
    """Lists every declared union by name. The relations of ontologies are in their load reports."""
    return await _listed(broker, "relation")


@router.get("/relations/{name:path}", summary="One union of relations")
async def get_relation(name: Name, broker: AppBroker) -> Response:
    """Returns the active declaration, and when each version was created."""
    return await _shown(broker, "relation", name)


@router.delete("/relations/{name:path}", summary="Delete a union of relations")
async def delete_relation(name: Name, broker: AppBroker, dry_run: DryRun = False) -> Response:
    """Deletes every version. Subscriptions that use the union are flagged."""
    return await _deleted(broker, "relation", name, dry_run)


def _check_renaming(broker: Broker, caller: Caller, what: str) -> None:
    """Raises `Problem` if attributes are hidden from the caller. Envelopes, aliases and contexts decide what attributes
    are called, and an envelope what becomes part of the ids of its events. So they could show hidden values."""
    if reader_of(caller, broker).view is not None:
        detail = f"{what} could show attributes that are hidden from you: only an administrator changes this"
        raise Problem("not-permitted", detail)


# ── all kinds ───────────────────────────────────────────────────────────────────────────────────────────────────────


async def _put(
    broker: AppBroker, kind: DeclarationKind, name: str, body: Any, dry_run: bool, replace: bool = False
) -> Response:
    if not name.strip():
        detail = f"the name of this {kind} must not be blank"
        raise Problem("invalid-request", detail, errors=[{"pointer": "", "detail": detail}], status=400)
    check_name(name)
    told, new = await broker.declaration_commands.put(kind, name, body, dry_run=dry_run, replace=replace)
    return answer({"dry_run": dry_run, **told}, 201 if new else 200)


async def _deleted(broker: AppBroker, kind: DeclarationKind, name: str, dry_run: bool) -> Response:
    return answer({"dry_run": dry_run, **await broker.declaration_commands.delete(kind, name, dry_run=dry_run)})


async def _listed(broker: AppBroker, kind: DeclarationKind) -> Response:
    rows = await broker.read(lambda connection: declarations.list_active(connection, kind))
    return answer({_plural(kind): [_described(row) for row in rows], "vocabulary_version": broker.vocabulary.version})


async def _shown(broker: AppBroker, kind: DeclarationKind, name: str) -> Response:
    versions = await broker.declaration_commands.versions(kind, name)
    active = next((row for row in versions if row.active), None)
    if active is None:
        raise UnknownDeclaration(kind, name)
    history = [{"version": row.version, "active": row.active, "created_at": moment(row.created_at)} for row in versions]
    return answer(_described(active) | {"versions": history})


def _described(row: Row[Any]) -> dict[str, Any]:
    return {
        "name": row.name,
        "version": row.version,
        "created_at": moment(row.created_at),
        "declaration": row.body,
    }


def _plural(kind: DeclarationKind) -> str:
    """Returns the name of the member with a list of this kind."""
    plurals = {"attribute": "attributes", "schema": "schemas", "code-system": "code-systems"}
    return {**plurals, "split": "splits", "relation": "relations"}.get(kind, kind)
