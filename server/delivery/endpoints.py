"""How much may go to one endpoint at a time, and to all together.

An endpoint is scheme, host and port; all subscriptions that point there share its slots, and its pause when it asks us
to slow down. Over all endpoints there are two lanes: one for subscriptions whose last attempt was fine, and a smaller
one for those that are failing, so that sinks that swallow every request until the deadline cannot occupy all slots.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

__all__ = ["Endpoints"]

FAILING_SHARE = 4
"""One slot in so many, over all endpoints, is for those that fail."""


@dataclass(slots=True)
class _Endpoint:
    slots: asyncio.Semaphore
    users: int = 0
    rests_until: float = 0.0


@dataclass(slots=True)
class Endpoints:
    """The slots. On one event loop. Endpoints without users and without a pause are forgotten."""

    at_once: int
    at_once_per_endpoint: int
    _known: dict[str, _Endpoint] = field(default_factory=dict)
    _healthy: asyncio.Semaphore = field(init=False)
    _failing: asyncio.Semaphore = field(init=False)

    def __post_init__(self) -> None:
        failing = max(1, self.at_once // FAILING_SHARE)
        self._failing = asyncio.Semaphore(failing)
        self._healthy = asyncio.Semaphore(max(1, self.at_once - failing))

    @asynccontextmanager
    async def slot(self, endpoint: str, *, failing: bool) -> AsyncIterator[None]:
        """Waits for a slot of the endpoint first, and only then for one of the lane: whoever waits for a busy endpoint
        holds nothing that others need."""
        known = self._known.setdefault(endpoint, _Endpoint(asyncio.Semaphore(self.at_once_per_endpoint)))
        known.users += 1
        try:
            async with known.slots, self._failing if failing else self._healthy:
                yield
        finally:
            known.users -= 1
            if not known.users and known.rests_until <= time.time():
                del self._known[endpoint]

    def pause(self, endpoint: str, seconds: float) -> None:
        """Sends nothing to the endpoint for a while."""
        known = self._known.setdefault(endpoint, _Endpoint(asyncio.Semaphore(self.at_once_per_endpoint)))
        known.rests_until = max(known.rests_until, time.time() + seconds)

    def rests_until(self, endpoint: str) -> float:
        """When the endpoint may be called again, in seconds since 1970; 0 when it may now."""
        known = self._known.get(endpoint)
        return known.rests_until if known is not None and known.rests_until > time.time() else 0.0
