"""How much may go to one endpoint at a time, and to all together.

An endpoint is scheme, host and port; all subscriptions that point there share its slots, and its pause when it asks us
to slow down. The slots over all endpoints are split into three lanes, so that sinks that swallow every request until
the deadline can fill their own lane only:

    proven     one half      the endpoint has answered lately, whatever it said
    new        a quarter     it has not answered yet, as after a restart
    failing    a quarter     the subscription's last attempt failed
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

__all__ = ["Endpoints"]

ENDPOINT_SHARE = 8
"""One endpoint gets at most one slot in so many, whatever the settings say: half of the smallest lanes."""

MAX_PROVEN = 100_000
"""Endpoints remembered as proven; when there are more, all begin anew."""


@dataclass(slots=True)
class _Endpoint:
    slots: asyncio.Semaphore
    users: int = 0
    rests_until: float = 0.0


class Endpoints:
    """The slots. On one event loop. Endpoints without users and without a pause are forgotten."""

    def __init__(self, at_once: int, at_once_per_endpoint: int) -> None:
        quarter = max(1, at_once // 4)
        self._proven_lane = asyncio.Semaphore(max(1, at_once - 2 * quarter))
        self._new_lane = asyncio.Semaphore(quarter)
        self._failing_lane = asyncio.Semaphore(quarter)
        self._per_endpoint = max(1, min(at_once_per_endpoint, at_once // ENDPOINT_SHARE))
        self._proven: set[str] = set()
        self._known: dict[str, _Endpoint] = {}

    @asynccontextmanager
    async def slot(self, endpoint: str, *, failing: bool) -> AsyncIterator[None]:
        """Waits for a slot of the endpoint first, and only then for one of the lane: whoever waits for a busy endpoint
        holds nothing that others need."""
        known = self._endpoint(endpoint)
        known.users += 1
        try:
            async with known.slots, self._lane(endpoint, failing=failing):
                yield
        finally:
            known.users -= 1
            if not known.users and known.rests_until <= time.time():
                del self._known[endpoint]

    def note(self, endpoint: str, *, answered: bool) -> None:
        """Whether an attempt got an answer, good or bad: an endpoint that says nothing has to prove itself again."""
        if answered and len(self._proven) >= MAX_PROVEN:
            self._proven.clear()
        (self._proven.add if answered else self._proven.discard)(endpoint)

    def pause(self, endpoint: str, seconds: float) -> None:
        """Sends nothing to the endpoint for a while."""
        known = self._endpoint(endpoint)
        known.rests_until = max(known.rests_until, time.time() + seconds)

    def rests_until(self, endpoint: str) -> float:
        """When the endpoint may be called again, in seconds since 1970; 0 when it may now."""
        known = self._known.get(endpoint)
        return known.rests_until if known is not None and known.rests_until > time.time() else 0.0

    def _endpoint(self, endpoint: str) -> _Endpoint:
        return self._known.setdefault(endpoint, _Endpoint(asyncio.Semaphore(self._per_endpoint)))

    def _lane(self, endpoint: str, *, failing: bool) -> asyncio.Semaphore:
        if failing:
            return self._failing_lane
        return self._proven_lane if endpoint in self._proven else self._new_lane
