"""Routes of keys, tenants, the audit log, usage and browser sessions: who may use this server, and what they did."""

import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Annotated, Any

import anyio.to_thread
import msgspec
from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import StreamingResponse

from kindcast.server.api.access import (
    TENANT_HEADER,
    AccessControl,
    OtherTenant,
    audit_detail,
    entry_of,
    only_default,
    wrong_key,
)
from kindcast.server.api.problem_types import Problem, problem_of
from kindcast.server.api.requests import (
    PRINTABLE,
    AppCaller,
    AppSettings,
    Moment,
    Number,
    answer,
    body_schema,
    json_object,
    moment,
)
from kindcast.server.api.subscriptions import read_body, read_key
from kindcast.server.errors import TenantExists, UnknownKey, UnknownTenant
from kindcast.server.security.browser_sessions import Session, cookie_name, is_of_own_page, session_token
from kindcast.server.security.callers import ANYBODY, Caller
from kindcast.server.security.keys import DEFAULT_TENANT, TENANT, Key, Role, hash_of, id_of, new_key
from kindcast.server.security.limits import bad_limit
from kindcast.server.settings import Settings
from kindcast.server.tenants import Tenants

__all__ = [
    "router",
]

router = APIRouter(prefix="/v1", tags=["keys"])

MAX_PAGE = 1_000
MAX_NUMBER = 2**62
OVERLAP_SECONDS = 86_400.0
"""How long a rotated key stays valid, unless the request specifies it."""
MAX_SECONDS = 100 * 366 * 86_400.0

TenantName = Annotated[str, Path(max_length=40, description="The name of the tenant.")]
KeyId = Annotated[str, Path(max_length=100, description="The id of the key: the part after `kindcast_`.")]


class KeyBody(BaseModel):
    """The request for a new key."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    role: Annotated[Role, Field(description="What it may do.")]
    tenant: Annotated[
        str | None,
        Field(
            description=(
                "The tenant of the key. Without it, it is the tenant of the header `Kindcast-Tenant`. Without both, "
                "the key of an administrator is for all tenants, and any other key is for the tenant in which the "
                "caller acts: that of its session, or else `default`."
            )
        ),
    ] = None
    name: Annotated[
        str, Field(max_length=200, pattern=PRINTABLE, description="A name of your choice, to tell keys apart.")
    ] = ""
    expires_at: Annotated[Moment | None, Field(description="RFC 3339; without an offset it is UTC.")] = None
    limits: Annotated[dict[str, Number], Field(description="Replaces the setting `key_limits`.")] = {}


class RotationBody(BaseModel):
    """The options for replacing a key."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    overlap_seconds: Annotated[
        Number, Field(ge=0, le=366 * 86_400.0, description="How long the old key still works, in seconds.")
    ] = OVERLAP_SECONDS


class TenantBody(BaseModel):
    """The request for a new tenant."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    name: Annotated[str, Field(max_length=40, description="Up to 40 of a-z, 0-9 and -, no - first or last.")]
    limits: Annotated[dict[str, Number], Field(description="Replaces the setting `tenant_limits`.")] = {}


class LimitsBody(BaseModel):
    """The limits of a tenant."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    limits: Annotated[dict[str, Number], Field(description="Replaces its earlier limits.")]


async def _access(request: Request) -> AccessControl:
    access: AccessControl = request.app.state.access
    return access


async def _tenants(request: Request) -> Tenants:
    tenants: Tenants = request.app.state.tenants
    return tenants


AppAccess = Annotated[AccessControl, Depends(_access)]
AppTenants = Annotated[Tenants, Depends(_tenants)]


@router.get("/keys", summary="List keys")
async def list_keys(access: AppAccess, tenants: AppTenants, caller: AppCaller) -> Response:
    """Lists every key of the tenant, or of all tenants for an administrator of all tenants. The secrets themselves are
    not listed; each is shown only once. `used` is how much of each limit is in use now. Subscriptions are counted while
    the tenant is open and can be read; for a key of all tenants, those in `default`."""
    await access.refresh()
    counted: dict[str, dict[str, int] | None] = {}
    listed = []
    for each in list(access.ring.keys.values()):
        if not _reaches(caller, each):
            continue
        meter, tenant = access.ring.key_meter(each), each.tenant or DEFAULT_TENANT
        used = meter.used()
        if "subscriptions" in meter.limits:
            if tenant not in counted:
                counted[tenant] = await tenants.subscriptions_by_creator(tenant)
            if (by_creator := counted[tenant]) is not None:
                used["subscriptions"] = by_creator.get(each.owner, 0)
        listed.append(each.shown() | {"used": used})
    return answer({"keys": listed})


@router.post("/keys", summary="Make a key", status_code=201, openapi_extra=body_schema(KeyBody.model_json_schema()))
async def create(
    request: Request,
    access: AppAccess,
    settings: AppSettings,
    caller: AppCaller,
    idempotency_key: Annotated[
        str | None,
        Header(
            max_length=4_096,
            description="A new UUID of yours. Sent again, it makes no other key: 409 `key-made`. With another request "
            "the answer is 422.",
        ),
    ] = None,
) -> Response:
    """Creates a key. The answer shows its secret, only this once. After the first key of a server was created, every
    request needs a key. So the first key must be that of an administrator of all tenants. If the answer is lost, send
    the request again with the same `Idempotency-Key`: 409 names the key that was created, so that it can be rotated or
    revoked."""
    repeatable = read_key(idempotency_key, caller)
    asked = read_body(KeyBody, await json_object(request, settings))
    _check(asked, caller, settings)
    named = asked.tenant or request.headers.get(TENANT_HEADER)
    if not access.ring.keys and (asked.role != "admin" or named is not None):
        raise _invalid("/role", "the first key must be for an administrator of all tenants: role admin, no tenant")
    is_for_all = asked.role == "admin" and caller.of_all
    tenant = named or (None if is_for_all else caller.tenant)
    id, key = new_key(repeatable)
    made = Key(
        id=id,
        hash=hash_of(key),
        role=asked.role,
        tenant=tenant,
        name=asked.name,
        created_at=time.time(),
        expires_at=_end(asked.expires_at),
        limits=asked.limits,
        created_by=caller.who,
        origin=id,
    )
    await anyio.to_thread.run_sync(partial(access.store.add_key, made, most=_most_keys(caller, settings)))
    await access.refresh()
    audit_detail(request, f"made key {id}, {made.role} of {made.tenant or 'all tenants'}")
    return answer({**made.shown(), "key": key}, 201, {"Cache-Control": "no-store"})


@router.post(
    "/keys/{id}/rotate",
    summary="Replace a key",
    status_code=201,
    openapi_extra=body_schema(RotationBody.model_json_schema(), required=False),
)
async def rotate(id: KeyId, request: Request, access: AppAccess, settings: AppSettings, caller: AppCaller) -> Response:
    """Creates another key with the same role, tenant, name, limits and lifetime. It also owns what the old key created.
    The old key stays valid for `overlap_seconds`."""
    asked = read_body(RotationBody, await json_object(request, settings, optional=True))
    before = await _found(access, caller, id)
    now = time.time()
    new_id, key = new_key()
    ends_at = None if before.expires_at is None else now + before.expires_at - before.created_at
    made = msgspec.structs.replace(
        before, id=new_id, hash=hash_of(key), created_at=now, expires_at=ends_at, created_by=caller.who
    )
    until = now + asked.overlap_seconds

    store = partial(access.store.add_key, made, replaces=id, until=until, most=_most_keys(caller, settings))
    await anyio.to_thread.run_sync(store)
    await access.refresh()
    audit_detail(request, f"made key {new_id} in place of {id}")
    ends = until if before.expires_at is None else min(until, before.expires_at)
    return answer(
        {**made.shown(), "key": key, "replaces": id, "replaced_until": moment(ends)}, 201, {"Cache-Control": "no-store"}
    )


@router.delete("/keys/{id}", summary="Revoke a key")
async def revoke(id: KeyId, access: AppAccess, caller: AppCaller) -> Response:
    """The key is not accepted any more. What was created with it stays."""
    known = await _found(access, caller, id)
    await anyio.to_thread.run_sync(partial(access.store.delete_key, id, keep_ruler_at=time.time()))
    await access.refresh()
    return answer(known.shown())


# ── tenants ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@router.get("/tenants", summary="List tenants")
async def list_tenants(access: AppAccess, tenants: AppTenants, caller: AppCaller) -> Response:
    """Lists the tenants of this server by name. An administrator of one tenant sees only that tenant."""
    await access.refresh()
    names = [each for each in sorted({DEFAULT_TENANT, *access.ring.tenants}) if _only(caller) in (None, each)]
    return answer({"tenants": [await _tenant(access, tenants, each) for each in names]})


@router.post(
    "/tenants", summary="Make a tenant", status_code=201, openapi_extra=body_schema(TenantBody.model_json_schema())
)
async def create_tenant(
    request: Request, access: AppAccess, settings: AppSettings, tenants: AppTenants, caller: AppCaller
) -> Response:
    """Creates a tenant. It is used with its own keys, and by administrators of all tenants. A server without keys has
    only the tenant `default`."""
    if not access.ring.required:
        raise only_default()
    asked = read_body(TenantBody, await json_object(request, settings))
    _check_name(asked.name, "/name")
    _check_limits(asked.limits)
    if asked.name == DEFAULT_TENANT:
        raise problem_of(TenantExists(asked.name))
    await anyio.to_thread.run_sync(access.store.add_tenant, asked.name, asked.limits, time.time())
    await access.refresh()
    audit_detail(request, f"made tenant {asked.name}")
    return answer(await _tenant(access, tenants, asked.name), 201)


@router.patch("/tenants/{name}", summary="Limit a tenant", openapi_extra=body_schema(LimitsBody.model_json_schema()))
async def limit_tenant(
    name: TenantName, request: Request, access: AppAccess, settings: AppSettings, tenants: AppTenants
) -> Response:
    """Sets the limits of a tenant. They apply at once. Only an administrator of all tenants may do this."""
    asked = read_body(LimitsBody, await json_object(request, settings))
    _check_limits(asked.limits)
    await anyio.to_thread.run_sync(access.store.set_tenant_limits, name, asked.limits, time.time())
    await access.refresh()
    audit_detail(request, f"limits {msgspec.json.encode(asked.limits).decode()}")
    return answer(await _tenant(access, tenants, name))


@router.delete("/tenants/{name}", summary="Delete a tenant")
async def delete_tenant(name: TenantName, access: AppAccess, tenants: AppTenants) -> Response:
    """Deletes a tenant with all its data. All its keys must be revoked first. This cannot be undone. The entries of the
    audit log about it stay."""
    await access.refresh()
    known = await _tenant(access, tenants, name)
    await tenants.delete(name)
    await access.refresh()
    return answer(known | {"open": False})


# ── the audit log and usage ──────────────────────────────────────────────────────────────────────────────────────────


@router.get("/audit", summary="Read the audit log")
async def read_audit(
    access: AppAccess,
    caller: AppCaller,
    after: Annotated[int, Query(ge=0, le=MAX_NUMBER, description="The cursor of the previous page.")] = 0,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 100,
    who: Annotated[str | None, Query(max_length=300, description="Only requests of this caller: `key ID`.")] = None,
    since: Annotated[Moment | None, Query(description="Only entries since this time; RFC 3339.")] = None,
    newest_first: Annotated[bool, Query(description="Newest entries first; otherwise oldest first.")] = False,
) -> Response:
    """Lists who changed what, from where and with which outcome, and which requests were refused.
    Publishing is not listed but counted: see `/v1/usage`. The numbers of entries are cursors. For callers of one tenant
    they are not in order."""
    seconds = max(_begin(access, caller), 0.0 if since is None else _seconds(since))

    def read() -> list[dict[str, Any]]:
        return access.store.audited(
            tenant=_only(caller), after=after, limit=limit, who=who, since=seconds, newest_first=newest_first
        )

    try:
        rows = await anyio.to_thread.run_sync(read)
    except LookupError:
        detail = "the cursor is not from this list: leave it out to start from the beginning"
        raise Problem("invalid-cursor", detail) from None
    return answer({"entries": [_entry(each) for each in rows], "cursor": str(rows[-1]["number"] if rows else after)})


@router.get("/audit/export", summary="Export the audit log", response_class=StreamingResponse)
async def export_audit(access: AppAccess, caller: AppCaller) -> Response:
    """Returns the audit log as NDJSON: one entry per line, oldest first."""
    begin = _begin(access, caller)

    async def lines() -> AsyncIterator[bytes]:
        after = 0
        while True:
            rows = await anyio.to_thread.run_sync(
                lambda start: access.store.audited(tenant=_only(caller), after=start, limit=MAX_PAGE, since=begin),
                after,
            )
            if not rows:
                return
            after = rows[-1]["number"]
            yield b"".join(msgspec.json.encode(_entry(each)) + b"\n" for each in rows)

    return StreamingResponse(lines(), media_type="application/x-ndjson")


@router.get("/usage", summary="What was used")
async def read_usage(
    access: AppAccess,
    caller: AppCaller,
    days: Annotated[int, Query(ge=1, le=3_660, description="Today and the days before it.")] = 30,
) -> Response:
    """Returns the number of requests, refused requests, events and bytes by day (UTC) and key."""
    await access.flush()
    since = (datetime.now(UTC) - timedelta(days=days - 1)).date().isoformat()
    rows = await anyio.to_thread.run_sync(lambda: access.store.used(tenant=_only(caller), since=since))
    return answer({"usage": rows})


def _entry(row: dict[str, Any]) -> dict[str, Any]:
    return row | {"at": moment(row["at"])}


def _only(caller: Caller) -> str | None:
    """Returns the tenant whose entries a caller sees; None for all tenants."""
    return None if caller.of_all else caller.tenant


def _begin(access: AccessControl, caller: Caller) -> float:
    """Returns the time from which on a caller sees entries. Entries of a deleted tenant with the same name are
    hidden."""
    if caller.of_all or caller.tenant == DEFAULT_TENANT:
        return 0.0
    return access.ring.tenants[caller.tenant].created_at


async def _tenant(access: AccessControl, tenants: Tenants, name: str) -> dict[str, Any]:
    known = access.ring.tenants.get(name)
    if known is None and name != DEFAULT_TENANT:
        raise problem_of(UnknownTenant(name))
    meter, held = access.ring.tenant_meter(name), await tenants.subscriptions(name)
    return {
        "name": name,
        "created_at": None if known is None else moment(known.created_at),
        "keys": access.ring.number_of_keys(name),
        "open": tenants.is_open(name),
        "limits": dict(meter.limits),
        "used": meter.used() | ({} if held is None or "subscriptions" not in meter.limits else {"subscriptions": held}),
    }


def _check_name(name: str, pointer: str) -> None:
    if not TENANT.fullmatch(name):
        raise _invalid(
            pointer, "the name of a tenant has up to 40 characters of a-z, 0-9 and -, and does not begin or end with -"
        )


def _check_limits(limits: dict[str, float]) -> None:
    if (wrong := bad_limit(limits)) is not None:
        raise _invalid("/limits", wrong)


def _reaches(caller: Caller, key: Key) -> bool:
    return caller.of_all or key.tenant == caller.tenant


async def _found(access: AccessControl, caller: Caller, id: str) -> Key:
    """Returns a key as it is now: another server may have made or revoked it a moment ago. Raises `UnknownKey`."""
    await access.refresh()
    known = access.ring.keys.get(id)
    if known is None or not _reaches(caller, known):
        raise UnknownKey(id)
    return known


def _check(asked: KeyBody, caller: Caller, settings: Settings) -> None:
    """Checks the request for a new key. Raises `Problem`."""
    if asked.tenant is not None:
        _check_name(asked.tenant, "/tenant")
    if not caller.of_all and asked.tenant not in (None, caller.tenant):
        raise Problem("other-tenant", "an administrator of one tenant can make keys only for that tenant")
    _check_limits(asked.limits)
    for name, most in settings.key_limits.items():
        if not caller.of_all and asked.limits.get(name, most) > most:
            raise Problem(
                "not-permitted",
                f"the limit {name} of a key is at most {most:g}: only an administrator of all tenants may set more",
            )
    if asked.expires_at is not None and not time.time() < _seconds(asked.expires_at) < time.time() + MAX_SECONDS:
        raise _invalid("/expires_at", "this time is in the past or too far in the future")


def _most_keys(caller: Caller, settings: Settings) -> int | None:
    """Returns the number of keys at which a caller can make no more for its tenant; None if there is none."""
    return None if caller.of_all else settings.max_tenant_keys


def _end(at: datetime | None) -> float | None:
    return None if at is None else _seconds(at)


def _seconds(at: datetime) -> float:
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


def _invalid(pointer: str, detail: str) -> Problem:
    return Problem("invalid-request", detail, errors=[{"pointer": pointer, "detail": detail}])


NO_STORE = {"Cache-Control": "no-store"}


class SignIn(BaseModel):
    """The request to sign in."""

    model_config = ConfigDict(extra="forbid")

    key: Annotated[str, Field(max_length=16_384, description="The key. The session does not store it.")]
    tenant: Annotated[str | None, Field(description="The tenant in which an administrator of all tenants acts.")] = None


class Choice(BaseModel):
    """The change of a session."""

    model_config = ConfigDict(extra="forbid")

    tenant: Annotated[str, Field(description="The tenant in which an administrator of all tenants acts.")]


@router.get("/session", summary="Who am I?")
async def read_session(request: Request, access: AppAccess) -> Response:
    """Returns who sends this request and what it may do, from its key or the session of its browser. `who` is null if
    the server needs a key and the request has none."""
    if not access.ring.required:
        return _answer(access, ANYBODY)
    try:
        caller = await access.identify(request.scope)
    except Problem as problem:
        if problem.code != "key-missing":
            _log_refusal(request, access, problem)
            raise
        return _answer(access, None)
    return _answer(access, caller)


@router.post("/session", summary="Sign in", openapi_extra=body_schema(SignIn.model_json_schema()))
async def sign_in(request: Request, access: AppAccess, settings: AppSettings) -> Response:
    """Begins a session of a browser. The answer sets a cookie that scripts cannot read and that pages of other sites
    cannot send. The session ends with its key, after `session_seconds`, and with the server."""
    asked = read_body(SignIn, await json_object(request, settings))
    if not access.ring.required:
        raise Problem(
            "invalid-request", "this server has no keys, so it needs no session: everybody on its machine may use it"
        )
    sent = asked.key.strip()
    key = access.ring.find(sent)
    if key is None:
        is_token = access.provider is not None and id_of(sent) is None
        problem = wrong_key("a session needs a key: a token cannot begin one") if is_token else wrong_key()
        _log_refusal(request, access, problem)
        raise problem
    _check_tenant_name(asked.tenant)
    try:
        caller = access.caller(key, asked.tenant)
    except OtherTenant as refused:
        _log_refusal(request, access, refused)
        raise
    _end_session(request, access)
    token, session = access.sessions.open(key.id)
    access.choose(session, asked.tenant)
    await access.record(entry_of(request.scope, caller, 200, "signed in"))
    response = _answer(access, access.caller(key, asked.tenant, session))
    response.set_cookie(
        cookie_name(request.scope),
        token,
        max_age=int(settings.session_seconds),
        secure=request.url.scheme == "https",
        httponly=True,
        samesite="strict",
    )
    return response


@router.patch("/session", summary="Act in another tenant", openapi_extra=body_schema(Choice.model_json_schema()))
async def change_session(request: Request, access: AppAccess, settings: AppSettings, caller: AppCaller) -> Response:
    """Changes the tenant in which the session of an administrator of all tenants acts."""
    asked = read_body(Choice, await json_object(request, settings))
    session = None if caller.session is None else access.sessions.of_hash(caller.session)
    if session is None:
        raise Problem("invalid-request", "this request has no session: send the header Kindcast-Tenant instead")
    _check_tenant_name(asked.tenant)
    changed = access.caller(access.ring.keys[session.key], asked.tenant, session)
    access.choose(session, asked.tenant)
    audit_detail(request, f"acts in {asked.tenant}")
    return _answer(access, changed)


@router.delete("/session", summary="Sign out")
async def sign_out(request: Request, access: AppAccess) -> Response:
    """Ends the session of this browser, if it has one. Its streams end within two seconds."""
    if session_token(request.scope) is not None and not is_of_own_page(request.scope):
        problem = Problem("wrong-origin", "only this server's own pages can end a session")
        _log_refusal(request, access, problem)
        raise problem
    _end_session(request, access)
    response = _answer(access, None if access.ring.required else ANYBODY)
    response.delete_cookie(
        cookie_name(request.scope), secure=request.url.scheme == "https", httponly=True, samesite="strict"
    )
    return response


def _log_refusal(request: Request, access: AccessControl, problem: Problem) -> None:
    """Writes a refusal to the audit log. The gate does not see refusals of routes that need no key."""
    holder = problem.holder if isinstance(problem, OtherTenant) else None
    access.record_refusal(entry_of(request.scope, holder, problem.status_code, problem.code))


def _check_tenant_name(tenant: str | None) -> None:
    if tenant is not None and not TENANT.fullmatch(tenant):
        detail = "the name of a tenant has up to 40 characters of a-z, 0-9 and -, and does not begin or end with -"
        raise Problem("invalid-request", detail, errors=[{"pointer": "/tenant", "detail": detail}])


def _end_session(request: Request, access: AccessControl) -> None:
    if (token := session_token(request.scope)) is not None:
        access.sessions.close(token)


def _answer(access: AccessControl, caller: Caller | None) -> Response:
    session: Session | None = None
    if caller is not None and caller.session is not None:
        session = access.sessions.of_hash(caller.session)
    key = None if caller is None or caller.key is None else access.ring.keys.get(caller.key)
    ends = [] if session is None else [session.ends_at]
    if caller is not None and caller.expires_at is not None:
        ends.append(caller.expires_at)
    if key is not None and key.expires_at is not None:
        ends.append(key.expires_at)
    return answer(
        {
            "needs_key": access.ring.required,
            "who": None if caller is None else caller.who,
            "name": None if key is None else key.name,
            "role": None if key is None else key.role,
            "tenant": None if caller is None else caller.tenant,
            "all_tenants": caller is not None and caller.of_all,
            "permissions": [] if caller is None else sorted(caller.permissions),
            "ends_at": moment(min(ends)) if ends else None,
        },
        headers=NO_STORE,
    )
