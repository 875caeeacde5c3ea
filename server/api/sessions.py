"""Routes of browsers that sign in; and who somebody is."""

from typing import Annotated

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from kindcast.server.api.access import AccessControl, audit_detail, entry_of, wrong_key
from kindcast.server.api.error_responses import Problem
from kindcast.server.api.keys import AppAccess
from kindcast.server.api.requests import AppCaller, AppSettings, answer, body_schema, json_object, moment
from kindcast.server.api.subscriptions import read_body
from kindcast.server.security.callers import ANYBODY, Caller
from kindcast.server.security.keys import TENANT
from kindcast.server.security.sessions import Session, cookie_name, is_of_own_page, session_token

__all__ = ["router"]

router = APIRouter(prefix="/v1", tags=["keys"])

NO_STORE = {"Cache-Control": "no-store"}


class SignIn(BaseModel):
    """Who signs in."""

    model_config = ConfigDict(extra="forbid")

    key: Annotated[str, Field(max_length=1_000, description="The key. It is not kept.")]
    tenant: Annotated[str | None, Field(description="In which an administrator of all tenants wants to act.")] = None


class Choice(BaseModel):
    """What is changed of a session."""

    model_config = ConfigDict(extra="forbid")

    tenant: Annotated[str, Field(description="In which an administrator of all tenants wants to act.")]


@router.get("/session", summary="Who am I?")
async def read_session(request: Request, access: AppAccess) -> Response:
    """Who sends this request, and what it may do: by its key, or by the session of its browser. `who` is null where the
    server needs a key and the request has none."""
    if not access.ring.required:
        return _answer(access, ANYBODY)
    try:
        caller = await access.identify(request.scope)
    except Problem as problem:
        if problem.code != "key-missing":
            raise
        return _answer(access, None)
    return _answer(access, caller)


@router.post("/session", summary="Sign in", openapi_extra=body_schema(SignIn.model_json_schema()))
async def sign_in(request: Request, access: AppAccess, settings: AppSettings) -> Response:
    """Begin a session of a browser: the answer sets a cookie that scripts cannot read and that no other site's page can
    send. The session ends with its key, after `session_seconds`, and with the server."""
    asked = read_body(SignIn, await json_object(request, settings))
    if not access.ring.required:
        raise Problem("invalid-request", "this server has no keys: everybody on its machine may use it")
    key = access.ring.find(asked.key.strip())
    if key is None:
        problem = wrong_key()
        access.record_refusal(entry_of(request.scope, None, problem.status_code, problem.code))
        raise problem
    _check_name(asked.tenant)
    caller = access.caller(key, asked.tenant)
    _end(request, access)
    token, session = access.sessions.open(key.id, asked.tenant)
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
    """For the session of an administrator of all tenants."""
    asked = read_body(Choice, await json_object(request, settings))
    session = None if caller.session is None else access.sessions.of_hash(caller.session)
    if session is None:
        raise Problem("invalid-request", "this request has no session: send the header Kindcast-Tenant instead")
    _check_name(asked.tenant)
    changed = access.caller(access.ring.keys[session.key], asked.tenant, session)
    session.tenant = asked.tenant
    audit_detail(request, f"acts in {asked.tenant}")
    return _answer(access, changed)


@router.delete("/session", summary="Sign out")
async def sign_out(request: Request, access: AppAccess) -> Response:
    """End the session of this browser, if it has one; its streams end within two seconds."""
    if session_token(request.scope) is not None and not is_of_own_page(request.scope):
        raise Problem("wrong-origin", "a session is ended by this server's own pages")
    _end(request, access)
    response = _answer(access, None if access.ring.required else ANYBODY)
    response.delete_cookie(
        cookie_name(request.scope), secure=request.url.scheme == "https", httponly=True, samesite="strict"
    )
    return response


def _check_name(tenant: str | None) -> None:
    if tenant is not None and not TENANT.fullmatch(tenant):
        detail = "a tenant is named by up to 40 of a-z, 0-9 and -, no - first or last"
        raise Problem("invalid-request", detail, errors=[{"pointer": "/tenant", "detail": detail}])


def _end(request: Request, access: AccessControl) -> None:
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
