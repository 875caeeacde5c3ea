"""Browser sessions and stream tokens: how a browser uses a key without storing it in its pages.

sign in with a key  ──▶ Sessions: a cookie, HttpOnly and SameSite=Strict; which pages may use it
a stream or socket  ──▶ StreamTokens: browsers send no headers there; one use, one minute, at any server"""

import base64
import binascii
import hmac
import secrets
import time
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlencode

import msgspec
from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.types import Scope

from kindcast.server.security.callers import Caller
from kindcast.server.security.keys import Role, hash_of
from kindcast.server.security.permissions import READING

__all__ = [
    "STREAM_TOKEN_SECONDS",
    "Session",
    "Sessions",
    "StreamClaims",
    "StreamTokens",
    "cookie_name",
    "is_of_own_page",
    "session_token",
    "take_token",
]

MAX_SESSIONS = 10_000
"""The maximum number of sessions. When there are more, the oldest one ends."""
MAX_SESSIONS_OF_KEY = 100
"""The maximum number of sessions of one key. When there are more, its oldest one ends. So nobody ends the sessions of
others by signing in often."""


@dataclass(slots=True)
class Session:
    """A session: its key, and the tenant in which it acts (None: that of the key). `tenant_made_at` tells it from a
    later tenant of the same name."""

    hash: str
    key: str
    ends_at: float
    tenant: str | None = None
    tenant_made_at: float | None = None


class Sessions:
    """The sessions of one server, by the hash of their token. For one event loop."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._open: dict[str, Session] = {}

    def open(self, key: str) -> tuple[str, Session]:
        """Opens a session of the key with this id. Returns its token and the session."""
        now = time.time()
        self._open = {hash: each for hash, each in self._open.items() if now < each.ends_at}
        own = [hash for hash, each in self._open.items() if each.key == key]
        if len(own) >= MAX_SESSIONS_OF_KEY:
            del self._open[own[0]]
        while len(self._open) >= MAX_SESSIONS:
            del self._open[next(iter(self._open))]
        token = secrets.token_urlsafe(32)
        made = Session(hash_of(token), key, now + self._seconds)
        self._open[made.hash] = made
        return token, made

    def find(self, token: str) -> Session | None:
        """Returns the session with this token; None if it has ended."""
        return self.of_hash(hash_of(token))

    def of_hash(self, hash: str) -> Session | None:
        """Returns the session with this hash; None if it has ended."""
        found = self._open.get(hash)
        return found if found is not None and time.time() < found.ends_at else None

    def close(self, token: str) -> None:
        """Ends a session, if there is one."""
        self._open.pop(hash_of(token), None)


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
    if scope.get("method") in READING:
        return site in (None, "same-origin", "none")
    if site is not None:
        return site == "same-origin"
    origin = headers.get("origin", "").lower()
    scheme = scope["scheme"].replace("ws", "http")
    return origin == f"{scheme}://{headers.get('host', '').lower()}"


STREAM_TOKEN_SECONDS = 60.0
MAX_STREAM_TOKEN_CHARACTERS = 4_096
PARAMETER = "token"


class StreamClaims(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """The content of a stream token: which stream it opens, as which caller, and until when. It contains no secret."""

    id: str
    """Identifies the token, so that it is used once."""
    until: float
    subscription: str
    tenant: str
    owner: str | None
    """The caller, as in `created_by`."""
    key: str | None
    session: str | None
    subject: str | None
    roles: frozenset[Role]
    of_all: bool
    expires_at: float | None
    """These four describe a subject of an identity provider, whose rights are only in its token."""


class StreamTokens:
    """Makes and reads stream tokens. A token is its claims and their HMAC-SHA256. Every server with the same secret
    accepts it, also after a restart. Whether it was used before is in the system database."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def issue(self, subscription: str, caller: Caller) -> tuple[str, float]:
        """Returns a token for reading this subscription as `caller`, and its end time."""
        until = time.time() + STREAM_TOKEN_SECONDS
        claims = StreamClaims(
            id=secrets.token_urlsafe(16),
            until=until,
            subscription=subscription,
            tenant=caller.tenant,
            owner=caller.owner,
            key=caller.key,
            session=caller.session,
            subject=caller.subject,
            roles=(caller.roles if caller.subject is not None else None) or frozenset(),
            of_all=caller.of_all,
            expires_at=caller.expires_at,
        )
        told = _encoded(msgspec.json.encode(claims))
        return f"{told}.{_encoded(self._sign(told))}", until

    def read(self, token: str, path: str) -> StreamClaims | None:
        """Returns the claims of a token; None if no server with this secret made it, if it has expired, or if it is for
        another stream than the one at `path`. Signatures are compared in constant time. Cost: some 10 µs."""
        told, _, signature = token.partition(".")
        if len(token) > MAX_STREAM_TOKEN_CHARACTERS or not token.isascii():
            return None
        if not hmac.compare_digest(signature, _encoded(self._sign(told))):
            return None
        try:
            claims = msgspec.json.decode(base64.urlsafe_b64decode(told + "=" * (-len(told) % 4)), type=StreamClaims)
        except (msgspec.DecodeError, binascii.Error):  # made by another version
            return None
        return claims if time.time() < claims.until and path in _paths(claims.subscription) else None

    def _sign(self, told: str) -> bytes:
        return hmac.digest(self._secret, f"stream token\n{told}".encode(), "sha256")


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


def _encoded(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode("ascii")
