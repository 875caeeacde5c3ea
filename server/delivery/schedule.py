"""When a failed webhook is tried again: a policy over counters, apart from the outbox that carries it out.

The default follows Standard Webhooks: 5 s, 5 min, 30 min, 2, 5, 10, 14, 20 and 24 hours after the failure before, ten
attempts over a little more than three days. Jitter spreads what failed together.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["STANDARD_DELAYS", "RetrySchedule"]

STANDARD_DELAYS = (5.0, 300.0, 1_800.0, 7_200.0, 18_000.0, 36_000.0, 50_400.0, 72_000.0, 86_400.0)
"""Seconds after the first, second, … failure in a row."""

LONGEST_WISH_SECONDS = 86_400.0
"""A sink's Retry-After is obeyed up to one day; a longer one would park the subscription out of sight."""


@dataclass(frozen=True, slots=True)
class RetrySchedule:
    """`delays[n]`: seconds to wait after n + 1 failures in a row; after more failures we give up. `jitter`: the share
    by which a delay may be longer."""

    delays: Sequence[float] = STANDARD_DELAYS
    jitter: float = 0.1

    def delay(self, failures: int, retry_after: float | None = None) -> float | None:
        """Seconds to the next attempt after this many failures in a row, never before the sink wants it; None when that
        was the last attempt.

        >>> RetrySchedule(delays=(5.0, 60.0), jitter=0.0).delay(1, retry_after=20.0)
        20.0
        """
        if failures > len(self.delays):
            return None
        planned = self.delays[failures - 1] * random.uniform(1.0, 1.0 + self.jitter)
        return max(planned, min(retry_after or 0.0, LONGEST_WISH_SECONDS))
