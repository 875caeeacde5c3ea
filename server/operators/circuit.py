"""A circuit breaker: an operator that keeps failing is left alone for a while, then asked once to see.

closed ──FAILURES in a row──▶ open ──its pause is over──▶ half open: one call, the others wait for it
   ▲                            ▲                             │ failed: a longer pause
   └────────── answered ────────┴─────────────────────────────┘
"""

import asyncio
import time
from collections.abc import Callable
from typing import Literal

from semantic.operators.failures import OperatorFailed

__all__ = ["Circuit"]

FAILURES = 5
"""In a row: fewer may be chance, more would hold up candidates for so many timeouts."""
FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 60.0
"""Doubled from the first to the longest: a short hiccup costs a second, a dead service one call a minute."""


class Circuit:
    """One an operator; on one event loop."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._pause = FIRST_PAUSE_SECONDS
        self._until: float | None = None
        self._probe: asyncio.Future[None] | None = None
        self.failures = 0
        """In a row."""
        self.reason = ""
        """Of the last failure."""

    @property
    def state(self) -> Literal["closed", "open", "half_open"]:
        if self._until is None:
            return "closed"
        return "half_open" if self._probe is not None or self._clock() >= self._until else "open"

    @property
    def until(self) -> float | None:
        """When the pause is over; None while there is none."""
        return self._until

    async def enter(self) -> None:
        """Before a call: waits while another one tries whether it works again. Every `enter` that returns is followed
        by `succeeded`, `failed` or `left`. Raises `OperatorFailed` of the kind `circuit_open`."""
        while self._until is not None:
            if self._probe is not None:
                await asyncio.shield(self._probe)
                continue
            if self._clock() < self._until:
                reason = f"failed {self.failures} times in a row and is left alone for a while: {self.reason}"
                raise OperatorFailed(reason, kind="circuit_open", after=self._until - self._clock())
            self._probe = asyncio.get_running_loop().create_future()
            return

    def succeeded(self) -> None:
        """It answered."""
        self.failures, self._pause, self._until = 0, FIRST_PAUSE_SECONDS, None
        self.left()

    def failed(self, reason: str) -> None:
        """It did not, in time or at all."""
        self.failures += 1
        self.reason = reason
        if self._probe is not None:
            self._pause = min(2 * self._pause, LONGEST_PAUSE_SECONDS)
        if self._probe is not None or (self._until is None and self.failures >= FAILURES):
            self._until = self._clock() + self._pause
        self.left()

    def left(self) -> None:
        """The call ended; one that was cancelled says nothing of the operator."""
        if self._probe is not None and not self._probe.done():
            self._probe.set_result(None)
        self._probe = None
