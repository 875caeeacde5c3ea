"""Permissions: what each route needs, what each role has, and what a reader may see of events. The only place that
defines them.

    request ──method, path──▶ ROUTES ──▶ permission ──▶ ROLES[role of the key] has it? ──▶ the route, else 403

A route that is not listed here cannot be reached while there are keys, and a test fails.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, get_args

from sqlalchemy import Connection
from starlette.routing import compile_path

from kindcast.semantic import Vocabulary
from kindcast.semantic.changes import AttributePart, footprint
from kindcast.semantic.vocabulary import View
from kindcast.server.errors import HiddenAttribute
from kindcast.server.operators.registry import operators_of
from kindcast.server.security.keys import Role
from kindcast.server.store import subscriptions

__all__ = [
    "AUDITED",
    "EVERYBODY",
    "READING",
    "ROLES",
    "ROUTES",
    "Permission",
    "Reader",
    "Roles",
    "RolesOf",
    "RouteTable",
    "check_visible",
    "hidden_in",
    "needs_of",
    "permissions_of",
]


class Permission(StrEnum):
    """The permission that a route needs."""

    PUBLIC = "public"
    """No permission: liveness, readiness and the description of the API are not confidential."""
    PUBLISH = "publish"
    MATCH = "match"
    """Match events without publishing them."""
    SUBSCRIBE = "subscribe"
    """Create and change subscriptions. A change also needs the ticket, the creating key, or an administrator."""
    RECEIVE = "receive"
    """Read messages, with their payloads, and acknowledge them."""
    EXPLAIN = "explain"
    """Explain why an event matches or not; evaluate expressions over stored events."""
    SEE_SUBSCRIPTIONS = "see-subscriptions"
    SEE_EVENTS = "see-events"
    """Read accepted events; payloads only with `SEE_PAYLOADS`."""
    SEE_PAYLOADS = "see-payloads"
    SEE_VOCABULARY = "see-vocabulary"
    CHANGE_VOCABULARY = "change-vocabulary"
    SEE_OPERATIONS = "see-operations"
    """Read metrics, operators, dead letters and usage."""
    AUDIT = "audit"
    """Read the audit log."""
    ADMINISTER = "administer"
    """Manage keys, tenants, operators, and the subscriptions of others."""
    ADMINISTER_SERVER = "administer-server"
    """Manage what all tenants share: the clock, and the list of tenants; act in any tenant. No role of one tenant has
    it."""


ROLES: Mapping[Role, frozenset[Permission]] = {
    "publisher": frozenset({Permission.PUBLISH, Permission.MATCH}),
    "subscriber": (
        _SUBSCRIBER := frozenset(
            {
                Permission.SUBSCRIBE,
                Permission.RECEIVE,
                Permission.EXPLAIN,
                Permission.SEE_SUBSCRIPTIONS,
                Permission.SEE_PAYLOADS,
                Permission.SEE_VOCABULARY,
            }
        )
    ),
    "ontologist": _SUBSCRIBER | {Permission.CHANGE_VOCABULARY},
    "auditor": frozenset(
        {
            Permission.SEE_SUBSCRIPTIONS,
            Permission.SEE_EVENTS,
            Permission.SEE_VOCABULARY,
            Permission.SEE_OPERATIONS,
            Permission.AUDIT,
        }
    ),
    "admin": frozenset(Permission) - {Permission.ADMINISTER_SERVER},
}
"""The permissions of each role. An auditor reads everything of a tenant, without payloads."""

assert set(ROLES) == set(get_args(Role))

ROUTES: Mapping[str, Permission | tuple[Permission, ...]] = {
    # ── ontologies and declarations
    "PUT /v1/ontologies/{name}": Permission.CHANGE_VOCABULARY,
    "GET /v1/ontologies/{name}": Permission.SEE_VOCABULARY,
    "DELETE /v1/ontologies/{name}": Permission.CHANGE_VOCABULARY,
    "GET /v1/ontologies": Permission.SEE_VOCABULARY,
    "GET /v1/ontologies/{name}/versions": Permission.SEE_VOCABULARY,
    "GET /v1/ontologies/{name}/records": Permission.SEE_VOCABULARY,
    "GET /v1/ontologies/{name}/diff": Permission.SEE_VOCABULARY,
    "POST /v1/ontologies/{name}/activate": Permission.CHANGE_VOCABULARY,
    "POST /v1/ontologies/{name}/rollback": Permission.CHANGE_VOCABULARY,
    "GET /v1/rules": Permission.SEE_VOCABULARY,
    "PUT /v1/attributes/{name:path}": Permission.CHANGE_VOCABULARY,
    "GET /v1/attributes/{name:path}": Permission.SEE_VOCABULARY,
    "DELETE /v1/attributes/{name:path}": Permission.CHANGE_VOCABULARY,
    "GET /v1/attributes": Permission.SEE_VOCABULARY,
    "PUT /v1/synonyms/{name:path}": Permission.CHANGE_VOCABULARY,
    "GET /v1/synonyms/{name:path}": Permission.SEE_VOCABULARY,
    "DELETE /v1/synonyms/{name:path}": Permission.CHANGE_VOCABULARY,
    "GET /v1/synonyms": Permission.SEE_VOCABULARY,
    "PUT /v1/aliases/{name:path}": Permission.CHANGE_VOCABULARY,
    "PUT /v1/relations/{name:path}": Permission.CHANGE_VOCABULARY,
    "GET /v1/aliases/{name:path}": Permission.SEE_VOCABULARY,
    "GET /v1/relations/{name:path}": Permission.SEE_VOCABULARY,
    "DELETE /v1/aliases/{name:path}": Permission.CHANGE_VOCABULARY,
    "DELETE /v1/relations/{name:path}": Permission.CHANGE_VOCABULARY,
    "GET /v1/aliases": Permission.SEE_VOCABULARY,
    "GET /v1/relations": Permission.SEE_VOCABULARY,
    "PUT /v1/splits/{name:path}": Permission.CHANGE_VOCABULARY,
    "GET /v1/splits/{name:path}": Permission.SEE_VOCABULARY,
    "DELETE /v1/splits/{name:path}": Permission.CHANGE_VOCABULARY,
    "GET /v1/splits": Permission.SEE_VOCABULARY,
    "PUT /v1/rates": Permission.CHANGE_VOCABULARY,
    "GET /v1/rates": Permission.SEE_VOCABULARY,
    "DELETE /v1/rates": Permission.CHANGE_VOCABULARY,
    "PUT /v1/schemas/{type:path}": Permission.CHANGE_VOCABULARY,
    "GET /v1/schemas/{type:path}": Permission.SEE_VOCABULARY,
    "DELETE /v1/schemas/{type:path}": Permission.CHANGE_VOCABULARY,
    "GET /v1/schemas": Permission.SEE_VOCABULARY,
    "PUT /v1/contexts": Permission.CHANGE_VOCABULARY,
    "GET /v1/contexts": Permission.SEE_VOCABULARY,
    "DELETE /v1/contexts": Permission.CHANGE_VOCABULARY,
    "PUT /v1/code-systems/{name:path}": Permission.CHANGE_VOCABULARY,
    "GET /v1/code-systems/{name:path}": Permission.SEE_VOCABULARY,
    "DELETE /v1/code-systems/{name:path}": Permission.CHANGE_VOCABULARY,
    "GET /v1/code-systems": Permission.SEE_VOCABULARY,
    "GET /v1/jobs/{id}": Permission.CHANGE_VOCABULARY,
    "GET /v1/concepts": Permission.SEE_VOCABULARY,
    "GET /v1/concepts/resolve": Permission.SEE_VOCABULARY,
    "GET /v1/concepts/ancestors": Permission.SEE_VOCABULARY,
    "GET /v1/concepts/descendants": Permission.SEE_VOCABULARY,
    "GET /v1/concepts/children": Permission.SEE_VOCABULARY,
    "GET /v1/concepts/parents": Permission.SEE_VOCABULARY,
    "GET /v1/concepts/roots": Permission.SEE_VOCABULARY,
    "GET /v1/concepts/around": Permission.SEE_VOCABULARY,
    "GET /v1/concepts/usage": Permission.SEE_SUBSCRIPTIONS,
    "GET /v1/terms/unknown": Permission.CHANGE_VOCABULARY,
    "GET /v1/shipped": Permission.SEE_VOCABULARY,
    "GET /v1/shipped/{name}": Permission.SEE_VOCABULARY,
    "POST /v1/check": Permission.EXPLAIN,
    # ── subscriptions and delivery
    "POST /v1/subscriptions": Permission.SUBSCRIBE,
    "GET /v1/subscriptions": Permission.SEE_SUBSCRIPTIONS,
    "GET /v1/subscriptions/export": Permission.SEE_SUBSCRIPTIONS,
    "POST /v1/subscriptions/export": Permission.ADMINISTER,
    "POST /v1/subscriptions/import": Permission.SUBSCRIBE,
    "GET /v1/subscriptions/{id}": Permission.SEE_SUBSCRIPTIONS,
    "GET /v1/subscriptions/{id}/attempts": Permission.SEE_SUBSCRIPTIONS,
    "PATCH /v1/subscriptions/{id}": Permission.SUBSCRIBE,
    "DELETE /v1/subscriptions/{id}": Permission.SUBSCRIBE,
    "GET /v1/subscriptions/{id}/plan": Permission.SEE_SUBSCRIPTIONS,
    "POST /v1/subscriptions/{id}/renew": Permission.SUBSCRIBE,
    "POST /v1/subscriptions/{id}/pause": Permission.SUBSCRIBE,
    "POST /v1/subscriptions/{id}/resume": Permission.SUBSCRIBE,
    "POST /v1/subscriptions/{id}/replay": Permission.SUBSCRIBE,
    "POST /v1/subscriptions/{id}/rotate-secret": Permission.SUBSCRIBE,
    "POST /v1/subscriptions/{id}/test": Permission.SUBSCRIBE,
    "GET /v1/subscriptions/{id}/events": Permission.RECEIVE,
    "POST /v1/subscriptions/{id}/ack": Permission.RECEIVE,
    "GET /v1/subscriptions/{id}/stream": Permission.RECEIVE,
    "POST /v1/subscriptions/{id}/stream-tokens": Permission.RECEIVE,
    "WEBSOCKET /v1/subscriptions/{id}/ws": Permission.RECEIVE,
    "OPTIONS /v1/cloudevents/subscriptions": Permission.PUBLIC,
    "GET /v1/cloudevents/subscriptions": Permission.SEE_SUBSCRIPTIONS,
    "POST /v1/cloudevents/subscriptions": Permission.SUBSCRIBE,
    "OPTIONS /v1/cloudevents/subscriptions/{id}": Permission.PUBLIC,
    "GET /v1/cloudevents/subscriptions/{id}": Permission.SEE_SUBSCRIPTIONS,
    "PUT /v1/cloudevents/subscriptions/{id}": Permission.SUBSCRIBE,
    "DELETE /v1/cloudevents/subscriptions/{id}": Permission.SUBSCRIBE,
    "GET /v1/dead-letters": Permission.SEE_SUBSCRIPTIONS,
    "POST /v1/dead-letters/redrive": Permission.SUBSCRIBE,
    # ── events
    "POST /v1/events": Permission.PUBLISH,
    "GET /v1/events": Permission.SEE_EVENTS,
    "GET /v1/events/stream": Permission.SEE_EVENTS,
    "GET /v1/events/recent": Permission.SEE_EVENTS,
    "GET /v1/series": Permission.SEE_OPERATIONS,
    "GET /v1/events/{sequence}/trace": (Permission.SEE_EVENTS, Permission.EXPLAIN),
    "POST /v1/ngsi-ld/notifications": Permission.PUBLISH,
    "POST /v1/onerecord/notifications": Permission.PUBLISH,
    "POST /v1/matches": Permission.PUBLISH,
    "POST /v1/match": Permission.MATCH,
    "POST /v1/explain": Permission.EXPLAIN,
    "POST /v1/backtests": Permission.EXPLAIN,
    "GET /v1/backtests/{id}": Permission.EXPLAIN,
    # ── operators
    "GET /v1/operators": (Permission.SEE_VOCABULARY, Permission.SEE_OPERATIONS),
    "GET /v1/operators/{name}": (Permission.SEE_VOCABULARY, Permission.SEE_OPERATIONS),
    "PUT /v1/operators/{name}": Permission.ADMINISTER,
    "DELETE /v1/operators/{name}": Permission.ADMINISTER,
    "POST /v1/operators/retry": Permission.ADMINISTER,
    "GET /v1/operator-data": (Permission.SEE_VOCABULARY, Permission.SEE_OPERATIONS),
    "PUT /v1/operator-data/regions": Permission.CHANGE_VOCABULARY,
    "DELETE /v1/operator-data/regions": Permission.CHANGE_VOCABULARY,
    "PUT /v1/operator-data/windows": Permission.CHANGE_VOCABULARY,
    "DELETE /v1/operator-data/windows": Permission.CHANGE_VOCABULARY,
    "PUT /v1/operator-data/tables/{name}": Permission.CHANGE_VOCABULARY,
    "DELETE /v1/operator-data/tables/{name}": Permission.CHANGE_VOCABULARY,
    # ── the server
    "GET /v1/keys": Permission.ADMINISTER,
    "POST /v1/keys": Permission.ADMINISTER,
    "POST /v1/keys/{id}/rotate": Permission.ADMINISTER,
    "DELETE /v1/keys/{id}": Permission.ADMINISTER,
    "GET /v1/session": Permission.PUBLIC,
    "POST /v1/session": Permission.PUBLIC,
    "PATCH /v1/session": Permission.ADMINISTER_SERVER,
    "DELETE /v1/session": Permission.PUBLIC,
    "GET /v1/tenants": Permission.ADMINISTER,
    "POST /v1/tenants": Permission.ADMINISTER_SERVER,
    "PATCH /v1/tenants/{name}": Permission.ADMINISTER_SERVER,
    "DELETE /v1/tenants/{name}": Permission.ADMINISTER_SERVER,
    "GET /v1/audit": Permission.AUDIT,
    "GET /v1/audit/export": Permission.AUDIT,
    "GET /v1/usage": Permission.SEE_OPERATIONS,
    "GET /v1/status": Permission.SEE_OPERATIONS,
    "POST /v1/clock/confirm": Permission.ADMINISTER_SERVER,
    "GET /metrics": Permission.SEE_OPERATIONS,
    "GET /healthz": Permission.PUBLIC,
    "GET /readyz": Permission.PUBLIC,
    "GET /openapi.json": Permission.PUBLIC,
    "HEAD /openapi.json": Permission.PUBLIC,
    "GET /asyncapi.json": Permission.PUBLIC,
    "GET /": Permission.PUBLIC,
    "GET /console": Permission.PUBLIC,
    "GET /console/{name}": Permission.PUBLIC,
    "GET /docs": Permission.PUBLIC,
    "GET /docs/oauth2-redirect": Permission.PUBLIC,
    "GET /static-offline-docs/{path:path}": Permission.PUBLIC,
}
"""The permissions of each route, of which a caller needs one. Keys are `METHOD path`, with the path as the route
declares it."""

AUDITED = frozenset(
    {Permission.SUBSCRIBE, Permission.CHANGE_VOCABULARY, Permission.ADMINISTER, Permission.ADMINISTER_SERVER}
)
"""Requests with these permissions are written to the audit log, whatever their result, unless they only read. Every
refusal is written too. Publishing is only counted."""

READING = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods of requests that change nothing."""


def needs_of(method: str, path: str) -> frozenset[Permission] | None:
    """Returns the permissions of which a route needs one, by its path in OpenAPI; None for a route that is not
    listed."""
    for route, needs in ROUTES.items():
        if route.replace(":path}", "}") == f"{method} {path}":
            return frozenset(needs if isinstance(needs, tuple) else (needs,))
    return None


class RouteTable:
    """Finds the permissions for a request. A path without parameters costs one lookup, others some µs."""

    def __init__(self) -> None:
        self._exact: dict[tuple[str, str], frozenset[Permission]] = {}
        self._patterns = []
        for route, needs in ROUTES.items():
            method, path = route.split(" ", 1)
            permissions = frozenset(needs if isinstance(needs, tuple) else (needs,))
            if "{" in path:
                self._patterns.append((method, compile_path(path)[0], permissions))
            else:
                self._exact[method, path] = permissions

    def needs(self, method: str, path: str) -> frozenset[Permission] | None:
        """Returns the permissions of which the request needs one; None if there is no route."""
        found = self._exact.get((method, path))
        if found is not None:
            return found
        for each, pattern, permissions in self._patterns:
            if each == method and pattern.match(path):
                return permissions
        return None

    def methods(self, path: str) -> list[str]:
        """Returns the methods that the path supports."""
        found = [method for method, exact in self._exact if exact == path]
        return sorted(found + [method for method, pattern, _ in self._patterns if pattern.match(path)])


def permissions_of(roles: Iterable[Role]) -> frozenset[Permission]:
    """Returns the permissions of these roles."""
    return frozenset().union(*(ROLES[role] for role in roles))


# ── visibility of payloads ────────────────────────────────────────────────────────────────────────────────────────────
#
# Hidden attributes are removed from payloads, and matches that would reveal them are not shown. docs/security.md has
# the rules, `kindcast.semantic.vocabulary.visibility` what follows from a declaration.
#
#     Caller.roles, or those of who made a subscription ──▶ Reader ──vocabulary in force──▶ View (None: sees everything)

Roles = frozenset[str] | None
"""The roles of a reader; None for a reader who sees everything, as without keys."""
RolesOf = Callable[[str | None], Roles]
"""A function that returns the roles of the creator of a subscription, by its `created_by`."""


def EVERYBODY(owner: str | None) -> Roles:  # noqa: N802 - a constant that is called
    """Returns the roles of the caller of a server without keys."""
    return None


def hidden_in(view: View | None, tree: Any, *, explained: bool = False) -> list[str]:
    """Returns the attributes and operator calls in the tree of a subscription that a view hides. `explained`: also
    those that only may not be read. Cost: linear in the tree."""
    if view is None:
        return []
    attributes = [part.attribute for part in footprint(tree) if isinstance(part, AttributePart)]
    return view.hidden_in(dict.fromkeys(attributes), sorted(operators_of(tree)), explained=explained)


def check_visible(view: View | None, tree: Any, *, explained: bool = False) -> None:
    """Raises `HiddenAttribute` if a view hides a part of the tree."""
    if hidden := hidden_in(view, tree, explained=explained):
        raise HiddenAttribute(hidden)


@dataclass(frozen=True, slots=True)
class Reader:
    """A reader of a tenant's data, under the active vocabulary."""

    roles: Roles
    vocabulary: Callable[[], Vocabulary]

    @property
    def view(self) -> View | None:
        return self.vocabulary().view_of_roles(self.roles)

    def shown(self, body: str) -> str:
        """Returns an event as this reader may see it."""
        view = self.view
        return body if view is None else view.readable(body)

    def check(self, connection: Connection, number: int) -> None:
        """Raises `HiddenAttribute` if the matches of a subscription would reveal hidden values."""
        view = self.view
        if view is not None:
            for row in subscriptions.trees(connection, live_only=False, numbers=[number]):
                check_visible(view, row.tree)

    def visible(self, connection: Connection, numbers: Iterable[int]) -> set[int]:
        """Returns the subscriptions whose matches reveal no hidden value."""
        view, numbers = self.view, list(numbers)
        if view is None:
            return set(numbers)
        rows = subscriptions.trees(connection, live_only=False, numbers=numbers)
        return {row.number for row in rows if not hidden_in(view, row.tree)}
