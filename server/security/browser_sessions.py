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


STREAM_TOKEN_SECONDS = 60.0
MAX_STREAM_TOKENS = 10_000
"""At one time; when there are more, the oldest end."""
PARAMETER = "token"


class _Issued(NamedTuple):
    subscription: str
    caller: Caller
    until: float


class StreamTokens:
    """Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._issued: OrderedDict[str, _Issued] = OrderedDict()  # the oldest first

    def issue(self, subscription: str, caller: Caller) -> tuple[str, float]:
        """A token to read this subscription as `caller`, and when it expires."""
        token, until = secrets.token_urlsafe(32), time.time() + STREAM_TOKEN_SECONDS
        with self._lock:
            while self._issued and (len(self._issued) >= MAX_STREAM_TOKENS or self._oldest() <= time.time()):
                self._issued.popitem(last=False)
            self._issued[_hashed(token)] = _Issued(subscription, caller, until)
        return token, until

    def redeem(self, token: str, path: str) -> Caller | None:
        """Who opens this stream with the token, which is used up; None where it is not for that, or no more."""
        with self._lock:
            found = self._issued.pop(_hashed(token), None)
        if found is None or found.until <= time.time() or path not in _paths(found.subscription):
            return None
        return found.caller

    def _oldest(self) -> float:
        return next(iter(self._issued.values())).until


def take_token(scope: Scope) -> str | None:
    """The token in the query of a request, which has none from then on: no log of requests shows it."""
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
