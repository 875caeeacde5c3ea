"""Connection pools of the webhooks: one small pool per endpoint, over the guarded network.

One pool per endpoint, because a pool of httpcore looks at all its connections for every request. Idle connections are
closed soon, so that a name that moves is resolved, and checked, again.
"""

import time
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from ssl import SSLContext

import httpcore

from kindcast.server.security.egress import GuardedBackend, Resolver, SystemResolver

__all__ = ["Connections"]

KEEPALIVE_SECONDS = 15.0
"""A connection or pool that was unused for this long is closed."""

MAX_POOLS = 1_024
"""Endpoints with open connections; above it the longest unused ones are closed at once."""


@dataclass(slots=True)
class _Pool:
    connections: httpcore.AsyncConnectionPool
    users: int = 0
    used_at: float = 0.0


class Connections:
    """One event loop; any number of `to` at a time. It sets no limits; its caller does."""

    def __init__(self, *, allow_private: bool, resolver: Resolver | None = None) -> None:
        self._resolver = resolver if resolver is not None else SystemResolver()
        self._network = GuardedBackend(allow_private=allow_private, resolver=self._resolver)
        self._tls = _authorities()
        self._pools: OrderedDict[str, _Pool] = OrderedDict()  # the longest unused first

    @asynccontextmanager
    async def to(self, endpoint: str) -> AsyncIterator[httpcore.AsyncConnectionPool]:
        """The pool of an endpoint, for one request. Pools that are no longer used are closed on the way."""
        pool = self._pools.get(endpoint)
        if pool is None:
            pool = self._pools[endpoint] = _Pool(self._new_pool())
        pool.users += 1
        self._pools.move_to_end(endpoint)
        try:
            await self._close_unused()
            yield pool.connections
        finally:
            pool.users -= 1
            pool.used_at = time.monotonic()
            self._pools.move_to_end(endpoint)

    async def close(self) -> None:
        """Closes all; nothing may be under way."""
        for pool in self._pools.values():
            await pool.connections.aclose()
        if isinstance(self._resolver, SystemResolver):
            self._resolver.close()

    async def _close_unused(self) -> None:
        """Cost: one step for each pool that is in use, and for each that is closed."""
        for endpoint, pool in list(self._pools.items()):
            if pool.users:
                continue
            if time.monotonic() - pool.used_at < KEEPALIVE_SECONDS and len(self._pools) <= MAX_POOLS:
                return  # all others were used later
            del self._pools[endpoint]
            await pool.connections.aclose()

    def _new_pool(self) -> httpcore.AsyncConnectionPool:
        return httpcore.AsyncConnectionPool(
            ssl_context=self._tls,
            max_connections=None,
            keepalive_expiry=KEEPALIVE_SECONDS,
            network_backend=self._network,
        )


@cache
def _authorities() -> SSLContext:
    """Whom TLS connections trust. Loading them takes some 40 ms: once for webhooks and operators."""
    return httpcore.default_ssl_context()
