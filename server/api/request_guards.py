"""ASGI middleware that checks each request before routing: Host header, origin and size of the body.

    HostGuard     only this machine's names in the Host header, and no changes asked by another site's pages: a page on
                  the web must not reach a server on the visitor's own machine (DNS rebinding, cross-site requests)
    BodyLimit     counts the body while it comes in, whatever Content-Length says

Both are plain ASGI and cost microseconds.
"""

from collections.abc import Collection, Mapping
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kindcast.server.api.error_responses import Problem, respond

__all__ = ["LOOPBACK_NAMES", "BodyLimit", "HostGuard"]

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


class HostGuard:
    """Refuses requests that were not meant for this server, or that another site sends. `names` are host names without
    a port."""

    def __init__(self, app: ASGIApp, names: Collection[str]) -> None:
        self._app = app
        self._names = frozenset(name.lower() for name in names) | LOOPBACK_NAMES

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (problem := self._refusal(scope)) is not None:
            response = await respond(Request(scope), problem)
            await response(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _refusal(self, scope: Scope) -> Problem | None:
        headers = Headers(scope=scope)
        if _host_name(headers.get("host", "")) not in self._names:
            detail = "the Host header names another server: use this one's address, or add the name to allowed_hosts"
            return Problem(421, "wrong-host", detail)
        origin = headers.get("origin")
        if origin is not None and scope["method"] not in SAFE_METHODS and not self._is_ours(origin):
            return Problem(403, "wrong-origin", "pages of other sites may not change anything here")
        return None

    def _is_ours(self, origin: str) -> bool:
        try:
            return (urlsplit(origin).hostname or "") in self._names
        except ValueError:
            return False


class BodyLimit:
    """Refuses bodies of more bytes than allowed: `default`, or what `prefixes` says for paths that begin so."""

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
        declared = Headers(scope=scope).get("content-length", "")
        if declared.isascii() and declared.isdigit() and int(declared) > limit:
            response = await respond(Request(scope), _too_large(limit))
            response.headers["Connection"] = "close"  # the body is not read
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
    return Problem(413, "body-too-large", f"the body has more than {limit:,} bytes: send it in parts")


def _host_name(host: str) -> str:
    """The name in a Host header, without its port, in lower case.

    >>> _host_name("[::1]:8080"), _host_name("LocalHost:80"), _host_name("127.0.0.1")
    ('::1', 'localhost', '127.0.0.1')
    """
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower()
