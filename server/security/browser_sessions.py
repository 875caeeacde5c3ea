"""Browser sessions and stream tokens: how a browser uses a key without storing it in its pages.

sign in with a key  ──▶ Sessions: a cookie, HttpOnly and SameSite=Strict; which pages may use it
a stream or socket  ──▶ StreamTokens: browsers send no headers there; one use, one minute"""

import hashlib
import secrets
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.types import Scope

from kindcast.server.security.callers import Caller

__all__ = [
    "STREAM_TOKEN_SECONDS",
    "Session",
    "Sessions",
    "StreamTokens",
    "cookie_name",
    "is_of_own_page",
    "session_token",
    "take_token",
]

MAX_SESSIONS = 10_000
"""The maximum number of sessions. When there are more, the oldest one ends."""
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


@dataclass(slots=True)
class Session:
    """A session: its key, and the tenant in which it acts (None: that of the key)."""

    hash: str
    key: str
    tenant: str | None
    ends_at: float


class Sessions:
    """The sessions of one server, by the hash of their token. For one event loop."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._open: dict[str, Session] = {}

    def open(self, key: str, tenant: str | None) -> tuple[str, Session]:
        """Opens a session of the key with this id. Returns its token and the session."""
        now = time.time()
        self._open = {hash: each for hash, each in self._open.items() if now < each.ends_at}
        while len(self._open) >= MAX_SESSIONS:
            del self._open[next(iter(self._open))]
        token = secrets.token_urlsafe(32)
        made = Session(_hash(token), key, tenant, now + self._seconds)
        self._open[made.hash] = made
        return token, made

    def find(self, token: str) -> Session | None:
        """Returns the session with this token; None if it has ended."""
        return self.of_hash(_hash(token))

    def of_hash(self, hash: str) -> Session | None:
        """Returns the session with this hash; None if it has ended."""
        found = self._open.get(hash)
        return found if found is not None and time.time() < found.ends_at else None

    def close(self, token: str) -> None:
        """Ends a session, if there is one."""
        self._open.pop(_hash(token), None)


def cookie_name(scope: Scope) -> str:
    """Returns the name of the cookie with the token. All ports of a host share cookies, so the name includes the port,
    to separate the sessions of two servers on one machine. With `__Host-`, browsers refuse it without TLS or with a
    domain.

    >>> cookie_name({"scheme": "http", "headers": [(b"host", b"127.0.0.1:8080")]})
    'kindcast-8080'
    >>> cookie_name({"scheme": "https", "headers": [(b"host", b"events.example.org")]})
    '__Host-kindcast'
    """
    _, _, port = Headers(scope=scope).get("host", "").rpartition("]")[2].partition(":")
    prefix = "__Host-" if scope["scheme"] in ("https", "wss") else ""
    return f"{prefix}kindcast" + (f"-{port}" if port else "")


def session_token(scope: Scope) -> str | None:
    """Returns the token of the session in the cookie of a request."""
    said = Headers(scope=scope).get("cookie")
    return None if said is None else cookie_parser(said).get(cookie_name(scope))


def is_of_own_page(scope: Scope) -> bool:
    """Whether a page of this server sends the request, according to the browser. A request that may change something
    must say so; a request that only reads must not say the contrary. `Sec-Fetch-Site` is missing in old browsers, and
    without TLS except on loopback; then the Origin decides."""
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


STREAM_TOKEN_SECONDS = 60.0
MAX_STREAM_TOKENS = 10_000
"""The maximum number of valid stream tokens. When there are more, the oldest end."""
PARAMETER = "token"


class _Issued(NamedTuple):
    subscription: str
    caller: Caller
    until: float


class StreamTokens:
    """The stream tokens of one server. May be used in any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._issued: OrderedDict[str, _Issued] = OrderedDict()  # oldest first

    def issue(self, subscription: str, caller: Caller) -> tuple[str, float]:
        """Returns a token for reading this subscription as `caller`, and its end time."""
        token, until = secrets.token_urlsafe(32), time.time() + STREAM_TOKEN_SECONDS
        with self._lock:
            while self._issued and (len(self._issued) >= MAX_STREAM_TOKENS or self._oldest() <= time.time()):
                self._issued.popitem(last=False)
            self._issued[_hashed(token)] = _Issued(subscription, caller, until)
        return token, until

    def redeem(self, token: str, path: str) -> Caller | None:
        """Returns the caller who opens this stream with the token, which becomes invalid. Returns None if the token is
        not valid for the stream."""
        with self._lock:
            found = self._issued.pop(_hashed(token), None)
        if found is None or found.until <= time.time() or path not in _paths(found.subscription):
            return None
        return found.caller

    def _oldest(self) -> float:
        return next(iter(self._issued.values())).until


def take_token(scope: Scope) -> str | None:
    """Removes the token from the query of a request and returns it, so that no log of requests shows it."""
    query = scope["query_string"].decode("latin-1")
    if f"{PARAMETER}=" not in query or not scope["path"].endswith(("/stream", "/ws")):
        return None
    pairs = parse_qsl(query, keep_blank_values=True)
    scope["query_string"] = urlencode([pair for pair in pairs if pair[0] != PARAMETER]).encode("latin-1")
    return next((value for name, value in pairs if name == PARAMETER), None)


def _paths(subscription: str) -> tuple[str, str]:
    return f"/v1/subscriptions/{subscription}/stream", f"/v1/subscriptions/{subscription}/ws"


def _hashed(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()
