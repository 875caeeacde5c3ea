"""The pages of the console: static files only. They read their data from the HTTP API.

The files are read once. `CONTENT_SECURITY_POLICY` allows scripts, styles and requests of this origin only, nothing
inline, and no frame around the page.
"""

import hashlib
from functools import cache
from importlib.resources import files
from typing import Final

from fastapi import APIRouter, Request, Response
from starlette.responses import RedirectResponse

from kindcast.server.api.problem_types import Problem

__all__ = ["CONTENT_SECURITY_POLICY", "router"]

router = APIRouter(include_in_schema=False)

CONTENT_SECURITY_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
HEADERS: Final = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-cache",
}
MEDIA_TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
    "json": "application/json",
}


@router.get("/")
async def root(request: Request) -> Response:
    """Redirects browsers to the console. Other clients get 404."""
    if "text/html" in request.headers.get("accept", ""):
        return RedirectResponse("console")
    raise Problem("not-found", "there is nothing at this address: /openapi.json lists all addresses")


@router.get("/console")
async def console(request: Request) -> Response:
    """Returns the page."""
    return _answer(request, "index.html")


@router.get("/console/{name}")
async def asset(request: Request, name: str) -> Response:
    """Returns a script, a style sheet or a picture of the page."""
    return _answer(request, name)


def _answer(request: Request, name: str) -> Response:
    """Returns a file. Raises `Problem` (404)."""
    found = _assets().get(name)
    if found is None:
        raise Problem("not-found", "the console has no such file")
    body, tag = found
    headers = HEADERS | {"ETag": tag}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(body, headers=headers, media_type=MEDIA_TYPES[name.rpartition(".")[2]])


@cache
def _assets() -> dict[str, tuple[bytes, str]]:
    """Returns name → content and ETag of all files."""
    found = {}
    for path in files("kindcast.server.console").joinpath("static").iterdir():
        if path.name.rpartition(".")[2] in MEDIA_TYPES:
            body = path.read_bytes()
            found[path.name] = body, f'"{hashlib.sha256(body).hexdigest()[:16]}"'
    return found
