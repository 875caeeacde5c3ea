"""Warm-up, repetitions, median and spread."""

import gc
import statistics
import time
from collections.abc import Callable
from typing import Any

__all__ = ["repeated"]

REPETITIONS = 5
"""Enough for a median; the spread says how much to trust it."""


def repeated(work: Callable[[], Any], *, repetitions: int = REPETITIONS) -> dict[str, float]:
    """Runs `work` once unmeasured (caches fill), then `repetitions` times: seconds as median, fastest and slowest."""
    work()
    seconds = []
    for _ in range(repetitions):
        gc.collect()
        began = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - began)
    return {"median": statistics.median(seconds), "fastest": min(seconds), "slowest": max(seconds)}
