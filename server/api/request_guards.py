"""ASGI middleware before routing: it checks Host header, origin and size of the body, and answers HEAD.

    HostGuard     only this machine's names in the Host header, and no changes asked by another site's pages: a page on
                  the web must not reach a server on the visitor's own machine (DNS rebinding, cross-site requests);
                  no NUL character in the address, because PostgreSQL does not store it; and no header of `ONCE` with
                  two values
    HeadAsGet     answers HEAD as GET, without the content
    BodyLimit     counts the bytes of the body while it arrives, regardless of Content-Length

All are plain ASGI. Cost: some microseconds per request.
"""

import re
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache

from starlette.requests import HTTPConnection, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kindcast.server.api.problem_types import Problem, has_head, respond
from kindcast.server.security.permissions import READING

__all__ = ["LOOPBACK_NAMES", "BodyLimit", "HeadAsGet", "HostGuard", "host_check"]

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
HOSTS_REMEMBERED = 64
"""The number of Host headers whose check is remembered. Clients of one server send few different ones."""

ONCE = (b"content-type", b"idempotency-key", b"authorization", b"kindcast-tenant", b"kindcast-ticket")
"""Headers that have one value. Of two, one would be ignored."""

_NAME = r"(?P<name>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::(?P<port>[0-9]{1,5}))?"
_HOST = re.compile(_NAME)
_ORIGIN = re.compile(r"(https?)://" + _NAME)


def host_check(names: Collection[str]) -> Callable[[bytes], tuple[str, str | None] | None]:
    """Returns a function that reads a Host header. It returns the name and the port, or None if the header names none
    of `names` and not this machine. Names have no port."""
    accepted = frozenset(name.lower() for name in names) | LOOPBACK_NAMES

    @lru_cache(maxsize=HOSTS_REMEMBERED)
    def check(header: bytes) -> tuple[str, str | None] | None:
        host = _HOST.fullmatch(header.decode("latin-1").strip(" \t"))
        if host is None or host["name"].strip("[]").lower() not in accepted:
            return None
        return host["name"], host["port"]

    return check


class HostGuard:
    """Refuses requests that were not meant for this server or that another site sends. `names` are host names without a
    port. `origins` are the other sites that may make changes, as browsers write them."""

    def __init__(self, app: ASGIApp, names: Collection[str], origins: Collection[str] = ()) -> None:
        self._app = app
        self._check = host_check(names)
        parsed = (_ORIGIN.fullmatch(each) for each in origins)
        self._origins = frozenset(_origin(*each.groups()) for each in parsed if each is not None)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket") and (problem := self._refusal(scope)) is not None:
            response = await respond(HTTPConnection(scope), problem)
            await response(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _refusal(self, scope: Scope) -> Problem | None:
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        if len(hosts) != 1:
            count = "several Host headers" if hosts else "no Host header"
            return Problem("wrong-host", f"the request has {count}: send one, with the address of this server")
        host = self._check(hosts[0])
        if host is None:
            detail = (
                "the Host header names another server: use the address of this server, or add the name to the "
                "setting allowed_hosts"
            )
            return Problem("wrong-host", detail)
        if "\0" in scope["path"] or b"%00" in scope["query_string"]:
            return Problem("malformed-request", "the address has a NUL character (%00): leave it out")
        for name in ONCE:
            if len({value for each, value in scope["headers"] if each == name}) > 1:
                header = name.decode().title()
                return Problem("malformed-request", f"the header {header} has two values: send one")
        if scope.get("method") not in READING:  # a WebSocket has no method, and a page could read all its messages
            own = _origin(scope["scheme"].replace("ws", "http"), *host)
            for origin in (value.decode("latin-1") for name, value in scope["headers"] if name == b"origin"):
                found = _ORIGIN.fullmatch(origin)
                if found is None or _origin(*found.groups()) not in (own, *self._origins):
                    detail = (
                        "pages of other sites may not change anything on this server: to allow a site, add its "
                        "origin to the setting allowed_origins"
                    )
                    return Problem("wrong-origin", detail)
        return None


class HeadAsGet:
    """Answers HEAD as GET without the content (RFC 9110, 9.3.2), for all routes except streams."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD" or not has_head(scope["path"]):
            await self._app(scope, receive, send)
            return

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.body":
                message = {**message, "body": b""}
            await send(message)

        await self._app({**scope, "method": "GET"}, receive, sent)


class BodyLimit:
    """Refuses bodies that are too large. The limit is `default`, or that of the first of `prefixes` with which the path
    begins."""

    def __init__(self, app: ASGIApp, default: int, prefixes: Mapping[str, int]) -> None:
        self._app = app
        self._default = default
        self._prefixes = prefixes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path = scope["path"]
        limit = next((size for prefix, size in self._prefixes.items() if path.startswith(prefix)), self._default)
        declared = next((value for name, value in scope["headers"] if name == b"content-length"), b"")
        if declared.isdigit() and int(declared) > limit:
            response = await respond(Request(scope), _too_large(limit))
            await response(scope, receive, send)
            return
        seen = 0

        async def counted() -> Message:
            nonlocal seen
            message = await receive()
            if message["type"] == "http.request":
                seen += len(message.get("body", b""))
                if seen > limit:
                    raise _too_large(limit)
            return message

        await self._app(scope, counted, send)


def _too_large(limit: int) -> Problem:
    return Problem("body-too-large", f"the body has more than {limit:,} bytes: send several smaller requests")


def _origin(scheme: str, host: str, port: str | None) -> str:
    """Returns an origin in the form of browsers.

    >>> _origin("http", "LocalHost", "80"), _origin("https", "[::1]", "8443")
    ('http://localhost', 'https://[::1]:8443')
    """
    standard = "443" if scheme == "https" else "80"
    return f"{scheme}://{host.lower()}" + (f":{port}" if port and port != standard else "")
