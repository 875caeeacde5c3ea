"""How far a long reading is: a function that is told a stage, how much of it is done, and of how much."""

import time
from collections.abc import Callable, Iterator
from typing import TypeVar

__all__ = ["Progress", "counted", "silent"]

T = TypeVar("T")

Progress = Callable[[str, int, int | None], None]
"""Called with a stage (`parse`, `extract`, …), what is done, and the total, or None where nobody knows it."""

EVERY = 8_192  # items between two looks at the clock, which costs more than to count
SECONDS = 0.1  # between two reports: people read no faster


def silent(stage: str, done: int, total: int | None) -> None:
    """Tells nobody."""


def counted(items: Iterator[T], progress: Progress, stage: str) -> Iterator[T]:
    """`items`, and now and then how many there were."""
    if progress is silent:
        yield from items
        return
    progress(stage, 0, None)
    last = time.monotonic()
    for number, item in enumerate(items, 1):
        if number % EVERY == 0:
            now = time.monotonic()
            if now - last >= SECONDS:
                last = now
                progress(stage, number, None)
        yield item
