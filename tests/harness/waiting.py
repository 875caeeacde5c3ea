"""Waiting until something is true, which happens in another thread or process."""

import time
from collections.abc import Callable
from typing import TypeVar

__all__ = ["until"]

T = TypeVar("T")

SHORTEST, LONGEST = 0.02, 0.1
"""Seconds between two questions: more as time goes on, since most questions are requests, which cost both sides."""


def until(holds: Callable[[], T], seconds: float = 60.0, told: Callable[[], object] = lambda: "not in time") -> T:
    """Waits until `holds()` is true, and returns what it gave. Raises `AssertionError` with `told()` if that takes
    longer than `seconds`."""
    began = time.monotonic()
    while not (found := holds()):
        waited = time.monotonic() - began
        assert waited < seconds, told()
        time.sleep(min(LONGEST, SHORTEST + waited / 20))
    return found
