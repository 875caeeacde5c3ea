"""ASGI middleware that decides who may do what, before any route.

    request ──▶ Gate ──key──▶ Caller ──permission, limits──▶ route        refused: 401, 403, 404, 405, 429
                 │                                             │
                 └── usage ◀───────────────────────────────────┘ status ──▶ audit log, then the answer

Without keys every caller is `ANYBODY`, and nothing is counted or audited. The server then listens on this machine only.
"""

import asyncio
import contextlib
import logging
import secrets
import shlex
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import anyio.to_thread
import msgspec
from starlette.datastructures import Headers
from starlette.requests import HTTPConnection, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket

from kindcast.server.api.problem_types import Problem, problem_of, respond
from kindcast.server.broker.write_queue import WriteQueue
from kindcast.server.clock import CLOCK
from kindcast.server.errors import KeysNeeded, ServerError, StoreUnavailable, UnknownTenant
from kindcast.server.security.browser_sessions import (
    Session,
    Sessions,
    StreamClaims,
    StreamTokens,
    is_of_own_page,
    session_token,
    take_token,
)
from kindcast.server.security.callers import ANYBODY, Caller, KeyRing, Usage
from kindcast.server.security.identity_provider import Identity, IdentityProvider, ProviderUnavailable, TokenRefused
from kindcast.server.security.keys import DEFAULT_TENANT, TENANT, Key, id_of, without_secrets
from kindcast.server.security.limits import LimitReached
from kindcast.server.security.permissions import AUDITED, READING, Permission, RouteTable, needs_of
from kindcast.server.settings import Settings
from kindcast.server.store.system import AuditEntry, SystemStore, Tenant
from kindcast.server.worker_threads import ACTING_TENANT

if TYPE_CHECKING:
    from kindcast.server.tenants import Tenants, TenantServices

__all__ = [
    "TENANT_HEADER",
    "AccessControl",
    "Gate",
    "OtherTenant",
    "audit_detail",
    "caller_of",
    "count_events",
    "describe_security",
    "enter_until_answered",
    "entry_of",
    "only_default",
    "running_access",
]

TENANT_HEADER = "kindcast-tenant"
CALLER = "kindcast.caller"
SERVICES = "kindcast.services"
DETAIL = "kindcast.audit"
ENTERED = "kindcast.entered"
"""The names in the scope of a request for its caller, the services of its tenant, what the audit log adds to method
and path, and the context managers that are left after it."""

STREAM_TOKENS = "stream tokens"
"""The name of the secret that signs stream tokens."""
LOOK_SECONDS = 1.0
"""The interval of the checks for changes of keys by other processes, such as the command line."""
UNKNOWN_SECONDS = 0.1
"""The shortest interval of these checks, if requests name keys or tenants that this server does not know."""
USAGE_SECONDS = 10.0
USED_TOKENS_SECONDS = 60.0
FORGET_SECONDS = 3_600.0
REFUSALS_PER_SECOND = 10.0
MAX_REFUSALS = 100.0
"""The maximum number of refused requests of one tenant that the audit log records at one time. The others are counted
in the next entry. So nobody can fill the disk with refused requests, and many of them hide none of other tenants."""
MAX_WAITING_ENTRIES = 1_000
NO_TENANT = ""
"""The tenant of refused requests whose caller is not known."""
OF_SERVER = frozenset({Permission.SEE_OPERATIONS})
"""The permission of requests that only ask how the server does: metrics, measurements, usage, status."""
FORWARDED = frozenset(
    {b"forwarded", b"via", b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto", b"x-real-ip"}
)
"""Headers that show that a proxy forwarded the request."""
MAX_DETAIL = 2_000
MAX_ACTION = 200
PATH_CHARACTERS = "/:@,;=+~-._"
"""The characters of a path that the audit log does not escape. Control characters are always escaped, because a
terminal may show them."""
FIELDS = ("RateLimit-Policy", "RateLimit")
INVALID_TOKEN = {"WWW-Authenticate": 'Bearer realm="kindcast", error="invalid_token"'}

_log = logging.getLogger("kindcast.access")


class AccessControl:
    """Keys, sessions, limits and the audit log of one application, for the gate."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.store = SystemStore(settings)
        self.ring = KeyRing(self.store, settings)
        self.provider = None if settings.oidc_issuer is None else IdentityProvider(settings)
        self.usage = Usage()
        self.sessions = Sessions(settings.session_seconds)
        self.stream_tokens = StreamTokens(secrets.token_bytes())  # until the database is open
        self._entries: WriteQueue[AuditEntry] = WriteQueue(
            self._write, _log, "%d entries of the audit log cannot be written: %s"
        )
        self._refusals: dict[str, _Refusals] = {}
        self._looked_at = -1.0
        self._looking: asyncio.Task[None] | None = None

    async def refresh(self) -> None:
        """Reads the keys and tenants again. Drops the usage that was counted for tenants that are deleted since then,
        also if a tenant of the same name was created meanwhile."""
        before = self.ring.tenants
        await anyio.to_thread.run_sync(self.ring.load)
        after = self.ring.tenants
        if after is not before:
            for name, _ in _creations(before.values()) ^ _creations(after.values()):
                self.usage.forget(name)

    async def look_for_key(self, token: str | None) -> None:
        """Reads the keys again if this server does not know the key of a request: another server or the command line
        may have made it a moment ago."""
        id = None if token is None else id_of(token)
        if id is not None:
            await self._look_for(lambda: id in self.ring.keys)

    async def _look_for(self, is_known: Callable[[], bool]) -> None:
        """Reads keys and tenants again if something is not known. All requests that need this look together, once in
        `UNKNOWN_SECONDS`, so one waits for at most twice as long. Raises `StoreUnavailable`: a key that nobody could
        look for is not a wrong one."""
        asked = time.monotonic()
        while not is_known() and self._looked_at < asked:
            if self._looking is None or self._looking.done():
                self._looking = asyncio.create_task(self._look(), name="keys and tenants that are not known")
            await asyncio.shield(self._looking)

    async def _look(self) -> None:
        await asyncio.sleep(max(0.0, self._looked_at + UNKNOWN_SECONDS - time.monotonic()))
        self._looked_at = time.monotonic()
        await self.refresh()

    async def identify(self, scope: Scope) -> Caller:
        """Returns the caller of a request, from its key, from the session of its browser, or from a token of the
        identity provider. Raises `Problem`, `StoreUnavailable`."""
        headers = Headers(scope=scope)
        token = _bearer(scope)
        if self.provider is not None and token is not None and id_of(token) is None:
            return await self._subject(self.provider, token, headers)
        await self.look_for_key(token)
        key, session = self._key_of(scope)
        tenant = headers.get(TENANT_HEADER, None if session is None else self._tenant_of(session))
        if tenant is not None and not TENANT.fullmatch(tenant):
            raise Problem("invalid-request", "the header Kindcast-Tenant is not the name of a tenant")
        if tenant is not None and tenant != DEFAULT_TENANT and key.tenant is None:
            # Only for those who may act there: to others, the time that this takes would tell which tenants there are.
            await self._look_for(lambda: tenant in self.ring.tenants)
        return self.caller(key, tenant, session)

    def choose(self, session: Session, tenant: str | None) -> None:
        """Lets a session act in a tenant (None: that of its key)."""
        session.tenant, session.tenant_made_at = tenant, self._made_at(tenant)

    def _tenant_of(self, session: Session) -> str | None:
        """Returns the tenant in which a session acts; None if it was deleted meanwhile, even if a new one has
        its name."""
        made_at = self._made_at(session.tenant)
        return session.tenant if made_at is not None and made_at == session.tenant_made_at else None

    def _made_at(self, tenant: str | None) -> float | None:
        known = None if tenant is None else self.ring.tenants.get(tenant)
        return None if known is None else known.created_at

    async def redeem(self, token: str, scope: Scope) -> tuple[Caller, StreamClaims]:
        """Returns the caller who opens a stream with this token, and what to `use_up`. A token that no server made
        costs no look into the database. Raises `Problem`, `StoreUnavailable`."""
        claims = self.stream_tokens.read(token, scope["path"])
        caller = None if claims is None else await self._holder(claims)
        if claims is None or caller is None or not self.is_valid(caller):
            raise wrong_stream_token()
        return caller, claims

    async def use_up(self, claims: StreamClaims) -> None:
        """Makes a stream token invalid at all servers. Raises `Problem` if it was used before, `StoreUnavailable`."""
        if not await anyio.to_thread.run_sync(self.store.use_token, claims.id, claims.until):
            raise wrong_stream_token()

    async def _holder(self, claims: StreamClaims) -> Caller | None:
        """Returns the caller for whom a stream token was made; None if the key or the identity provider is gone."""
        caller: Caller | None = None
        if claims.key is not None:
            await self._look_for(lambda: claims.key in self.ring.keys)
            key = self.ring.keys.get(claims.key)
            caller = None if key is None else self.ring.caller(key, claims.tenant, claims.session)
        elif claims.subject is not None and claims.expires_at is not None and self.provider is not None:
            identity = Identity(
                subject=claims.subject,
                roles=claims.roles,
                of_all=claims.of_all,
                tenant=claims.tenant,
                expires_at=claims.expires_at,
            )
            caller = self.ring.subject(identity, self.provider.issuer, claims.tenant)
        return caller if caller is not None and caller.owner == claims.owner else None

    def caller(self, key: Key, tenant: str | None, session: Session | None = None) -> Caller:
        """Returns the caller with this key who acts in `tenant` (None: the tenant of the key). Raises `Problem`."""
        caller = self.ring.caller(key, tenant, None if session is None else session.hash)
        if caller is None:
            holder = self.ring.caller(key, None)
            raise OtherTenant("this key does not belong to the tenant in Kindcast-Tenant", holder)
        if caller.tenant != DEFAULT_TENANT and caller.tenant not in self.ring.tenants:
            raise problem_of(UnknownTenant(caller.tenant))
        return caller

    def is_valid(self, caller: Caller) -> bool:
        """Whether the key, token and session of a caller are still valid."""
        if caller.session is not None and self.sessions.of_hash(caller.session) is None:
            return False
        if caller.expires_at is not None:
            return time.time() < caller.expires_at
        return caller.key is None or self.ring.is_valid(caller.key)

    def check_valid(self, caller: Caller) -> None:
        """Raises `Problem` if the key, token or session of a caller has ended while its request was carried out."""
        if self.is_valid(caller):
            return
        if caller.expires_at is not None:
            raise Problem("token-wrong", "the token has expired meanwhile", headers=INVALID_TOKEN)
        raise wrong_key()

    async def _subject(self, provider: IdentityProvider, token: str, headers: Headers) -> Caller:
        try:
            identity = await provider.identify(token)
        except TokenRefused as error:
            raise Problem("token-wrong", str(error), headers=INVALID_TOKEN) from error
        tenant = headers.get(TENANT_HEADER)
        acts_in = tenant or identity.tenant or DEFAULT_TENANT
        if acts_in != DEFAULT_TENANT and (identity.of_all or tenant in (None, identity.tenant)):
            # Another server may have created it a moment ago. Only for those who may act there, as for keys.
            await self._look_for(lambda: acts_in in self.ring.tenants)
        caller = self.ring.subject(identity, provider.issuer, tenant)
        if caller is None:
            holder = self.ring.subject(identity, provider.issuer, None)
            detail = (
                "the token does not name the tenant in Kindcast-Tenant"
                if tenant
                else f"the token names no tenant: it needs the claim {self.settings.oidc_tenant_claim}"
            )
            raise OtherTenant(detail, holder)
        if caller.tenant != DEFAULT_TENANT and caller.tenant not in self.ring.tenants:
            raise problem_of(UnknownTenant(caller.tenant))
        if not caller.permissions:
            raise Problem("not-permitted", f"{caller.who} has no role that is listed in the setting oidc_roles")
        return caller

    def _key_of(self, scope: Scope) -> tuple[Key, Session | None]:
        sent = _bearer(scope)
        if sent is None and (token := session_token(scope)) is not None:
            session = self.sessions.find(token)
            if session is not None and self.ring.is_valid(session.key):
                if not is_of_own_page(scope):
                    detail = "only this server's own pages may use a session: send a key instead"
                    raise Problem("wrong-origin", detail)
                return self.ring.keys[session.key], session
        if sent is None:
            raise Problem("key-missing", "this server needs a key: send it as Authorization: Bearer …")
        key = self.ring.find(sent)
        if key is None:
            raise wrong_key()
        return key, None

    async def record(self, entry: AuditEntry) -> None:
        """Writes an entry to the audit log. It is on disk when this returns."""
        await self._entries.add(entry)

    def record_refusal(self, entry: AuditEntry) -> None:
        """Writes an entry about a refused request, without waiting and up to `REFUSALS_PER_SECOND` of its tenant. So
        clients without a key, and those who are told to come later, do not occupy connections while the log cannot be
        written."""
        refusals = self._refusals.setdefault(entry.tenant, _Refusals())
        if self._entries.waiting >= MAX_WAITING_ENTRIES or not refusals.take():
            refusals.unwritten += 1
            return
        if more := refusals.unwritten:
            entry = msgspec.structs.replace(entry, detail=f"{entry.detail}; {more:,} more requests were refused before")
            refusals.unwritten = 0
        self._entries.add(entry)

    async def flush(self) -> None:
        """Stores the usage counted since the last call. Raises `StoreUnavailable`; then the next call stores it."""
        await self.refresh()
        day, counted = self.usage.take()
        if counted:
            try:
                await anyio.to_thread.run_sync(self.store.add_usage, day, counted)
            except StoreUnavailable:
                self.usage.put_back(counted)
                raise

    async def run(self) -> None:
        """Runs the periodic tasks until it is cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._entries.run())
            group.create_task(self._repeat(LOOK_SECONDS, self.refresh))
            group.create_task(self._repeat(USAGE_SECONDS, self.flush))
            group.create_task(self._repeat(USED_TOKENS_SECONDS, self._forget_used_tokens))
            group.create_task(self._repeat(FORGET_SECONDS, self._forget))

    async def _forget(self) -> None:
        kept = self.ring.tenants.keys() | {NO_TENANT, DEFAULT_TENANT}
        self._refusals = {tenant: each for tenant, each in self._refusals.items() if tenant in kept}
        before = CLOCK.now() - self.settings.audit_retention_seconds
        await anyio.to_thread.run_sync(partial(self.store.forget_audited, before, keep=self.settings.audit_entries))

    async def _forget_used_tokens(self) -> None:
        # Clocks of other servers may be a little behind. If this one jumps ahead, their tokens must not count as ended.
        before = CLOCK.now() - USED_TOKENS_SECONDS
        await anyio.to_thread.run_sync(self.store.forget_used_tokens, before)

    async def _repeat(self, seconds: float, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(seconds)
            try:
                await work()
            except ServerError as error:
                _log.error("%s", error)
            except Exception:  # the other tasks, such as the writer of the audit log, must go on
                _log.exception("a periodic task of the access control failed; it runs again in %g s", seconds)

    async def _write(self, entries: list[AuditEntry]) -> None:
        await anyio.to_thread.run_sync(self.store.record, entries)


class _Refusals:
    """The refused requests of one tenant: how many may be written now, and how many were not written since the last
    one."""

    def __init__(self) -> None:
        self.unwritten = 0
        self._left = MAX_REFUSALS
        self._at = time.monotonic()

    def take(self) -> bool:
        """Returns whether one more may be written, and counts it."""
        now = time.monotonic()
        self._left = min(MAX_REFUSALS, self._left + (now - self._at) * REFUSALS_PER_SECOND)
        self._at = now
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True


@contextlib.asynccontextmanager
async def running_access(settings: Settings) -> AsyncIterator[AccessControl]:
    """A context manager that opens the system database. Raises `KeysLost`, `KeysNeeded`, `StoreUnreadable`."""
    access = AccessControl(settings)
    try:
        await anyio.to_thread.run_sync(access.store.open)
        await anyio.to_thread.run_sync(access.store.check_keys)
        access.stream_tokens = StreamTokens(await anyio.to_thread.run_sync(access.store.secret, STREAM_TOKENS))
        await access.refresh()
        if (
            settings.needs_keys
            and access.provider is None
            and not any(each.role == "admin" for each in access.ring.keys.values())
        ):
            elsewhere = "" if settings.database is None else " --database URL, with the URL of this server's database"
            raise KeysNeeded(
                f"{settings.host} can be reached from other machines, but there is no key yet: make the first key with"
                f" kindcast key create --role admin --data {shlex.quote(str(settings.data))}{elsewhere}"
            )
        running = asyncio.create_task(access.run(), name="access")
        try:
            yield access
        finally:
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running
            with contextlib.suppress(ServerError):
                await access.flush()
    finally:
        if access.provider is not None:
            await access.provider.close()
        access.store.close()


class OtherTenant(Problem):
    """A key or token was sent for a tenant that it may not use. `holder` is its caller in its own tenant, for the audit
    log; None if a token has no tenant."""

    def __init__(self, detail: str, holder: Caller | None) -> None:
        super().__init__("other-tenant", detail)
        self.holder = holder


def wrong_key(detail: str = "this key is unknown, revoked or expired") -> Problem:
    """Returns the answer to an invalid key."""
    return Problem("key-wrong", detail, headers=INVALID_TOKEN)


def wrong_stream_token() -> Problem:
    """Returns the answer to an invalid stream token."""
    detail = "this stream token is for another stream, already used, or expired after its minute: request a new token"
    return Problem("token-wrong", detail)


def _creations(tenants: Iterable[Tenant]) -> set[tuple[str, float]]:
    """Returns the names and times of creation of tenants, except of `default`, which exists before it has a row."""
    return {(each.name, each.created_at) for each in tenants if each.name != DEFAULT_TENANT}


def _bearer(scope: Scope) -> str | None:
    """Returns the key or token of a request. Other credentials, such as `Basic`, are for a proxy before this server."""
    for name, value in scope["headers"]:
        if name == b"authorization":
            scheme, _, text = value.decode("latin-1").partition(" ")
            return text.strip() or None if scheme.lower() == "bearer" else None
    return None


def caller_of(request: HTTPConnection) -> Caller:
    """Returns the caller of a request."""
    caller: Caller = request.scope.get(CALLER, ANYBODY)
    return caller


def services_of(request: HTTPConnection) -> "TenantServices":
    """Returns the broker and the other services of the tenant in which the request acts."""
    services: TenantServices = request.scope.get(SERVICES) or request.app.state.tenants.default
    return services


async def enter_until_answered(request: HTTPConnection, manager: AbstractAsyncContextManager[Any]) -> None:
    """Enters a context manager, which is left after the request. Does nothing on a server without keys."""
    entered: AsyncExitStack | None = request.scope.get(ENTERED)
    if entered is not None:
        await entered.enter_async_context(manager)


def count_events(request: Request, number: int) -> None:
    """Counts published events in the usage and limits of the caller. Raises `LimitReached`."""
    caller = caller_of(request)
    if caller is not ANYBODY:
        for meter in caller.meters:
            meter.check_again("events", request)
        access: AccessControl = request.app.state.access
        access.usage.count(caller, events=number)
        for meter in caller.meters:
            meter.take("events", number, request)


def describe_security(document: dict[str, Any], access: AccessControl | None) -> dict[str, Any]:
    """Adds to the OpenAPI document the permission that each route needs, and the key, if there are any keys."""
    required = access is not None and access.ring.required
    schemes = document.setdefault("components", {}).setdefault("securitySchemes", {})
    schemes["key"] = {
        "type": "http",
        "scheme": "bearer",
        "description": "An API key. A server without keys listens on its own machine only and needs none.",
    }
    accepted: list[dict[str, list[str]]] = [{"key": []}]
    if access is not None and access.provider is not None:
        schemes["token"] = {"type": "openIdConnect", "openIdConnectUrl": access.provider.discovery}
        accepted.append({"token": []})
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            needs = needs_of(method.upper(), path)
            if needs is not None and Permission.PUBLIC not in needs:
                operation["security"] = accepted if required else [*accepted, {}]
                operation["x-permissions"] = sorted(needs)
    return document


def audit_detail(request: Request, detail: str) -> None:
    """Sets what the audit log records about this request in addition to method and path. It must not contain a
    secret."""
    request.scope[DETAIL] = detail


class Gate:
    """ASGI middleware that admits or refuses requests. Cost: some µs per request."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._routes = RouteTable()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        access: AccessControl | None = scope["app"].state.access
        token = take_token(scope)
        method = scope.get("method", "WEBSOCKET")
        needs = self._routes.needs(method, scope["path"])
        try:
            needs_key = access is not None and await _needs_key(scope, access, needs)
        except (Problem, StoreUnavailable) as error:
            await self._answer(scope, receive, send, problem_of(error))
            return
        if access is None or not needs_key:
            await self._app(scope, receive, send)
            return
        claims = None
        try:
            if token is not None and method in ("GET", "WEBSOCKET"):  # HEAD and others must not use up the token
                caller, claims = await access.redeem(token, scope)
            else:
                caller = await access.identify(scope)
            scope[CALLER] = caller
        except (Problem, ProviderUnavailable, StoreUnavailable) as error:
            holder = error.holder if isinstance(error, OtherTenant) else None
            await self._refuse(scope, receive, send, problem_of(error), access, holder)
            return
        try:
            self._admit(scope, caller, needs)
            if claims is not None:  # a token whose stream a limit refuses can be used later
                await access.use_up(claims)
        except (Problem, LimitReached, StoreUnavailable) as error:
            await self._refuse(scope, receive, send, problem_of(error), access, caller)
            return
        for meter in caller.meters:  # at once: others ask while this one waits for its tenant to be opened
            meter.take("requests", 1)
            meter.under_way += 1
        try:
            await self._carry_out(scope, receive, send, access, caller, needs or frozenset())
        finally:
            for meter in caller.meters:
                meter.under_way -= 1

    def _admit(self, scope: Scope, caller: Caller, needs: frozenset[Permission] | None) -> None:
        """Admits a request. Raises `Problem`, `LimitReached`."""
        if needs is None:
            others = self._routes.methods(scope["path"])
            if others:
                detail = "this address does not support this method: the header Allow lists the supported methods"
                raise Problem("method-not-allowed", detail, headers={"Allow": ", ".join(others)})
            raise Problem("not-found", "there is nothing at this address: /openapi.json lists all addresses")
        if not needs & caller.permissions:
            raise Problem(
                "not-permitted",
                f"the role of this key does not allow this request: it needs {' or '.join(sorted(needs))}",
            )
        for meter in caller.meters:
            meter.check(publishes=Permission.PUBLISH in needs)

    async def _carry_out(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        access: AccessControl,
        caller: Caller,
        needs: frozenset[Permission],
    ) -> None:
        tenants: Tenants = scope["app"].state.tenants
        audited = scope.get("method") not in READING and bool(needs & AUDITED)
        ACTING_TENANT.set(caller.tenant)
        scope[ENTERED] = entered = AsyncExitStack()
        try:
            scope[SERVICES] = await entered.enter_async_context(tenants.enter(caller.tenant))
            _check_current(scope[SERVICES], needs)
        except ServerError as error:
            await entered.aclose()
            await self._refuse(scope, receive, send, problem_of(error), access, caller)
            return
        access.usage.count(caller, requests=1)

        ending = _EndsWithKey(scope, receive, send, access, caller) if _is_long(scope) else None
        receive, send = (receive, send) if ending is None else (ending.receive, ending.send)

        body = object()

        async def received() -> Message:
            message = await receive()
            if size := len(message.get("body") or message.get("bytes") or message.get("text") or b""):
                access.usage.count(caller, bytes=size)
                _check_part(scope, access, caller, body)
                for meter in caller.meters:
                    meter.take("content-bytes", size, body)
            return message

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start":
                if audited or message["status"] == 403:
                    await self._note(scope, access, caller, message["status"])
                if fields := _fields(caller):
                    more = [(name.lower().encode(), value.encode()) for name, value in fields.items()]
                    message = {**message, "headers": [*message.get("headers", ()), *more]}
            await send(message)

        try:
            await self._app(scope, received, sent)
        finally:
            if ending is not None:
                ending.close()
            await entered.aclose()

    async def _note(self, scope: Scope, access: AccessControl, caller: Caller, status: int) -> None:
        entry = entry_of(scope, caller, status, str(scope.get(DETAIL, "")))
        if 400 <= status < 500 or status == 503:  # nothing was changed
            access.record_refusal(entry)
        else:
            await access.record(entry)

    async def _refuse(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        problem: Problem,
        access: AccessControl,
        caller: Caller | None,
    ) -> None:
        if caller is not None:
            access.usage.count(caller, refused=1)
        if problem.status_code in (401, 403):
            access.record_refusal(entry_of(scope, caller, problem.status_code, problem.code))
        await self._answer(scope, receive, send, problem)

    async def _answer(self, scope: Scope, receive: Receive, send: Send, problem: Problem) -> None:
        if scope["type"] == "websocket":
            websocket = WebSocket(scope, receive, send)
            await websocket.send_denial_response(await respond(websocket, problem))
            return
        response = await respond(Request(scope), problem)
        await response(scope, receive, send)


class _EndsWithKey:
    """The connection of a stream or an export. When its key, token or session ends, the client's side is closed, and
    the application sees the same as when a client leaves. This is checked every `LOOK_SECONDS`. The answer of an export
    breaks off, so that nobody takes it for whole."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, access: AccessControl, caller: Caller) -> None:
        self._receive, self._send = receive, send
        self._access, self._caller = access, caller
        self._is_websocket = scope["type"] == "websocket"
        self._is_export = scope["path"].endswith("/export")
        self._pending: asyncio.Future[Message] | None = None
        self._started = self._ended = False

    async def receive(self) -> Message:
        while not self._ended:
            if self._pending is None:
                self._pending = asyncio.ensure_future(self._receive())
            if (await asyncio.wait({self._pending}, timeout=LOOK_SECONDS))[0]:
                message, self._pending = self._pending.result(), None
                return message
            if not self._access.is_valid(self._caller):
                await self._end()
        return {"type": "websocket.disconnect", "code": 1008} if self._is_websocket else {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        self._started = True
        if not self._ended:
            await self._send(message)

    async def _end(self) -> None:
        self._ended = True
        if self._is_websocket:
            await self._send({"type": "websocket.close", "code": 1008, "reason": "the key is not valid any more"})
        elif self._started and not self._is_export:
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    def close(self) -> None:
        """Called when the request has ended."""
        if self._pending is not None:
            self._pending.cancel()


async def _needs_key(scope: Scope, access: AccessControl, needs: frozenset[Permission] | None) -> bool:
    """Returns whether a request needs a key. Checks requests to a server without keys. Raises `Problem`,
    `StoreUnavailable`."""
    if not access.ring.required:  # the key that is sent may be the first one, made a moment ago
        await access.look_for_key(_bearer(scope))
    if not access.ring.required:
        _check_open(scope, access, needs)
        return False
    return needs is None or Permission.PUBLIC not in needs


def _check_open(scope: Scope, access: AccessControl, needs: frozenset[Permission] | None) -> None:
    """Checks a request to a server without keys. Raises `Problem`, `StoreUnavailable`."""
    if not access.settings.open_behind_proxy and _was_forwarded(scope):
        raise _forwarded_without_keys()
    if (
        needs
        and Permission.PUBLIC not in needs
        and Headers(scope=scope).get(TENANT_HEADER, DEFAULT_TENANT) != DEFAULT_TENANT
    ):
        raise only_default()
    _check_current(scope["app"].state.tenants.default, needs or frozenset())


def _check_current(services: "TenantServices", needs: frozenset[Permission]) -> None:
    """Raises `StoreUnavailable` if other servers may have gone on without this one: what it has in memory may be
    outdated. Requests that ask about the server itself are answered."""
    if needs and Permission.PUBLIC not in needs and needs != OF_SERVER:
        services.broker.check_current()


def _was_forwarded(scope: Scope) -> bool:
    """Whether headers show that a proxy forwarded the request."""
    return not FORWARDED.isdisjoint([name for name, _ in scope["headers"]])


def _forwarded_without_keys() -> Problem:
    return Problem(
        "keys-needed",
        "a proxy passed this request on, and this server has no keys, so it cannot know who sends it: make the first"
        " one with kindcast key create --role admin --data …, or allow it with the setting open_behind_proxy",
    )


def only_default() -> Problem:
    """Returns the answer of a server without keys to a request that concerns another tenant than `default`."""
    return Problem(
        "keys-needed",
        "this server has no keys, so it has only the tenant 'default': make the first key with kindcast key create"
        " --role admin",
    )


def _check_part(scope: Scope, access: AccessControl, caller: Caller, body: object) -> None:
    """Raises `Problem` if the limit of bytes is reached before this part of a body, or if the key or token has ended: a
    body may take hours. Frames of a WebSocket are checked as requests."""
    if scope["type"] != "http":
        return
    access.check_valid(caller)
    try:
        for meter in caller.meters:
            meter.check_again("content-bytes", body)
    except LimitReached as error:
        raise problem_of(error) from None  # the framework answers other errors of a body that it reads with 400


def _is_long(scope: Scope) -> bool:
    """Whether the answer may be endless, or as large as a table."""
    path: str = scope["path"]
    return scope["type"] == "websocket" or path.endswith(("/stream", "/export"))


def entry_of(scope: Scope, caller: Caller | None, status: int, detail: str) -> AuditEntry:
    """Returns the entry of the audit log about a request."""
    client = scope.get("client")
    path = without_secrets(quote(scope["path"], safe=PATH_CHARACTERS))
    return AuditEntry(
        at=time.time(),
        tenant=NO_TENANT if caller is None else caller.tenant,
        who="nobody known" if caller is None else caller.who,
        address=client[0] if client else "",
        action=f"{scope.get('method', 'WEBSOCKET')} {path}"[:MAX_ACTION],
        outcome=status,
        detail="".join(each if each.isprintable() else " " for each in detail[:MAX_DETAIL]),
    )


def _fields(caller: Caller) -> dict[str, str]:
    """Returns the limits of key and tenant as header fields of an answer."""
    told = [each.fields() for each in caller.meters]
    return {name: ", ".join(each[name] for each in told if each) for name in FIELDS if any(told)}
