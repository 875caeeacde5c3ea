"""Pauses in background work that release the GIL, so that matching is not held up.

A thread that waits for the GIL gets it after 5 ms, or as soon as its holder releases it. Matching an event takes some
ten µs, so a merge releases the GIL between its many small steps.
"""

import time

__all__ = ["GilPauses", "no_pause"]

HELD = 200e-6
"""Seconds that the lock may be held at a stretch: a few times what matching an event takes."""
PAUSE = 100e-6
"""Seconds of a pause: long enough for another thread to wake up, and merges still get most of a core."""


class GilPauses:
    """Called between steps; pauses when it is time."""

    def __init__(self) -> None:
        self._due = time.perf_counter() + HELD

    def __call__(self) -> None:
        if time.perf_counter() >= self._due:
            time.sleep(PAUSE)
            self._due = time.perf_counter() + HELD


def no_pause() -> None:
    """No pause: for work that somebody waits for."""
