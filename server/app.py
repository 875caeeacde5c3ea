"""The application factory: assembles the broker, the delivery and the routes.

request ─▶ HostGuard ─▶ HeadAsGet ─▶ BodyLimit ─▶ Gate ─▶ route ─▶ broker, delivery    what goes wrong ─▶ problem_types
        └─▶ PublishRoute: events, past the framework's middleware
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from importlib.metadata import version

from fastapi import APIRouter, Depends, FastAPI
from fastapi_offline import FastAPIOffline
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import BaseRoute

from kindcast.server import console, tracing
from kindcast.server.answers import HEADERS
from kindcast.server.api import (
    checks,
    cloudevents_subscriptions,
    concepts,
    declarations,
    deliveries,
    descriptions,
    events,
    health,
    keys,
    matching,
    notifications,
    ontologies,
    operators,
    problem_types,
    subscriptions,
)
from kindcast.server.api import jobs as job_routes
from kindcast.server.api.access import Gate, describe_security, running_access
from kindcast.server.api.descriptions import describe_answers
from kindcast.server.api.request_guards import BodyLimit, HeadAsGet, HostGuard
from kindcast.server.api.requests import only_parameters
from kindcast.server.settings import Settings
from kindcast.server.tenants import running_tenants

__all__ = ["create_app", "routes"]

DESCRIPTION = """A publish/subscribe server that understands *kinds*: subscribe to a concept of an ontology, and receive
every event about it or anything beneath it, whatever synonym, language or unit its publisher used.

Errors are `application/problem+json` (RFC 9457)."""

SMALL_BODY = 1 << 16
"""The limit of a body about keys, tenants or a session. To sign in needs no key, so it must cost little."""

PROBLEM = {
    "description": "An error",
    "content": {problem_types.MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemDocument"}}},
}


def create_app(settings: Settings) -> FastAPI:
    """Returns the application. Its lifespan starts and stops broker and delivery."""
    app = FastAPIOffline(  # /docs works without a content delivery network
        title="kindcast",
        version=version("kindcast"),
        description=DESCRIPTION,
        license_info={"name": "Apache License 2.0", "identifier": "Apache-2.0"},
        lifespan=_lifespan,
        redoc_url=None,
        redirect_slashes=False,  # it would name this server as the proxy in front of it does not
        telemetry=tracing.telemetry(),
    )
    app.state.settings = settings
    app.state.access = None
    app.router.routes.extend(routes())
    app.router.routes.insert(0, descriptions.openapi_route(app))  # before that of the framework
    app.openapi = describe_answers(app)  # type: ignore[method-assign]
    problem_types.install(app)
    described = app.openapi
    app.openapi = lambda: describe_security(described(), app.state.access)  # type: ignore[method-assign]
    # The middleware that is added last runs first.
    app.add_middleware(Gate)
    small = dict.fromkeys(("/v1/session", "/v1/keys", "/v1/tenants"), min(SMALL_BODY, settings.max_body_bytes))
    prefixes = {"/v1/ontologies/": settings.max_ontology_bytes} | small
    app.add_middleware(BodyLimit, default=settings.max_body_bytes, prefixes=prefixes)
    if settings.allowed_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.allowed_origins,
            allow_methods=("GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"),
            allow_headers=("*",),
            expose_headers=tuple(HEADERS),
        )
    app.add_middleware(HeadAsGet)
    names = (settings.host, *settings.allowed_hosts)
    app.add_middleware(HostGuard, names=names, origins=settings.allowed_origins)
    framework = app.build_middleware_stack
    app.build_middleware_stack = lambda: events.PublishRoute(  # type: ignore[method-assign]
        framework(), names, settings.max_body_bytes
    )
    return app


@cache
def routes() -> list[BaseRoute]:
    """Returns the routes of all applications. FastAPI prepares a router anew for each application that includes it,
    which takes some 50 ms. A handler finds its application through the request."""
    api = APIRouter(responses={"default": PROBLEM})
    # The order matters: /v1/subscriptions/export is no id.
    routers = (
        ontologies.router,
        declarations.router,
        job_routes.router,
        ontologies.shipped_router,
        checks.router,
        concepts.router,
        subscriptions.router,
        deliveries.live_router,
        events.router,
        events.matches_router,
        notifications.router,
        matching.router,
        operators.router,
        operators.data_router,
        matching.backtest_router,
        health.router,
        keys.router,
        deliveries.router,
        deliveries.dead_letter_router,
        console.router,
        cloudevents_subscriptions.router,
        descriptions.router,
    )
    # Probes, collectors of metrics and browsers may add parameters of their own.
    open_to_others = (health.router, console.router, descriptions.router)
    for each in routers:
        api.include_router(each, dependencies=[] if each in open_to_others else [Depends(only_parameters)])
    return api.routes


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    settings: Settings = app.state.settings
    async with running_access(settings) as access:
        app.state.access = access
        ring = access.ring
        async with running_tenants(
            settings, access.store, ring.roles_of, lambda name: ring.tenants.get(name)
        ) as app.state.tenants:
            yield
