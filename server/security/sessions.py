"""Sessions of browsers: who signed in with a key, so that the key itself is not kept in the browser.

    POST /v1/session {"key"} ──▶ Sessions.open ──token──▶ cookie (HttpOnly, SameSite=Strict) ──▶ Sessions.find ──▶ key

A session is held in memory: it ends with the server, with its key, and after `session_seconds`.
"""

import hashlib
import secrets
import time
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.types import Scope

__all__ = ["Session", "Sessions", "cookie_name", "is_of_own_page", "session_token"]

MAX_SESSIONS = 10_000
"""When there are more, the oldest one ends."""
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


@dataclass(slots=True)
class Session:
    """Whose it is, and in which tenant it acts (None: the key's own)."""

    hash: str
    key: str
    tenant: str | None
    ends_at: float


class Sessions:
    """The sessions of one server, by the hash of their token. On one event loop."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._open: dict[str, Session] = {}

    def open(self, key: str, tenant: str | None) -> tuple[str, Session]:
        """A new session of the key with this id, and its token."""
        now = time.time()
        self._open = {hash: each for hash, each in self._open.items() if now < each.ends_at}
        while len(self._open) >= MAX_SESSIONS:
            del self._open[next(iter(self._open))]
        token = secrets.token_urlsafe(32)
        made = Session(_hash(token), key, tenant, now + self._seconds)
        self._open[made.hash] = made
        return token, made

    def find(self, token: str) -> Session | None:
        """The session with this token, if it has not ended."""
        return self.of_hash(_hash(token))

    def of_hash(self, hash: str) -> Session | None:
        """The session, if it has not ended."""
        found = self._open.get(hash)
        return found if found is not None and time.time() < found.ends_at else None

    def close(self, token: str) -> None:
        """End a session, if there is one."""
        self._open.pop(_hash(token), None)


def cookie_name(scope: Scope) -> str:
    """Of the cookie with the token. Cookies are shared by all ports of a host: the name has the port, so that two
    servers on one machine keep their sessions apart. `__Host-` makes browsers refuse it without TLS or with a domain.

    >>> cookie_name({"scheme": "http", "headers": [(b"host", b"127.0.0.1:8080")]})
    'kindcast-8080'
    >>> cookie_name({"scheme": "https", "headers": [(b"host", b"events.example.org")]})
    '__Host-kindcast'
    """
    _, _, port = Headers(scope=scope).get("host", "").rpartition("]")[2].partition(":")
    prefix = "__Host-" if scope["scheme"] in ("https", "wss") else ""
    return f"{prefix}kindcast" + (f"-{port}" if port else "")


def session_token(scope: Scope) -> str | None:
    """What the browser sent as its session's token."""
    said = Headers(scope=scope).get("cookie")
    return None if said is None else cookie_parser(said).get(cookie_name(scope))


def is_of_own_page(scope: Scope) -> bool:
    """Whether a page of this server sends the request, as the browser says. A request that may change something must
    say it; one that only reads must not say the contrary. `Sec-Fetch-Site` is absent in old browsers, and without TLS
    on other addresses than loopback; then the Origin decides."""
    headers = Headers(scope=scope)
    site = headers.get("sec-fetch-site")
    if scope.get("method") in SAFE_METHODS:
        return site in (None, "same-origin", "none")
    if site is not None:
        return site == "same-origin"
    origin = headers.get("origin", "").lower()
    scheme = scope["scheme"].replace("ws", "http")
    return origin == f"{scheme}://{headers.get('host', '').lower()}"


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
