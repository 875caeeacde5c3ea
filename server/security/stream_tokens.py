"""Tokens for browsers' `EventSource` and `WebSocket`, which send no headers: each opens one stream of one subscription,
once, within a minute. They are held in this process, as SHA-256, and end with it.
"""

import hashlib
import secrets
import threading
import time
from collections import OrderedDict
from typing import NamedTuple
from urllib.parse import parse_qsl, urlencode

from starlette.types import Scope

from kindcast.server.security.callers import Caller

__all__ = ["LIFETIME_SECONDS", "StreamTokens", "take_token"]

LIFETIME_SECONDS = 60.0
MAX_TOKENS = 10_000
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
        """A token with which whoever has it reads this subscription as `caller`, and when it ends."""
        token, until = secrets.token_urlsafe(32), time.time() + LIFETIME_SECONDS
        with self._lock:
            while self._issued and (len(self._issued) >= MAX_TOKENS or self._oldest() <= time.time()):
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
