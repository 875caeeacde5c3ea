"""What a reader says of a document while it reads: how far it is, and what it read in spite of a mistake.

Warnings are bounded: the first few of a kind are shown with their lines, the others are counted.
"""

import time
from collections.abc import Callable, Iterator
from typing import TypeVar

__all__ = ["DocumentWarnings", "Progress", "counted", "shown", "silent"]

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


SHOWN = 5  # warnings of one kind that are shown with their line: a document repeats its mistakes
KINDS = 50  # kinds that are shown: a document with more kinds is probably in another syntax
LONGEST = 80  # characters of a piece of the document in a warning


class DocumentWarnings:
    """Warnings in the order in which they came up, bounded whatever the document.

    >>> noted = DocumentWarnings()
    >>> noted.add(3, "no id", "the stanza has no id")
    >>> list(noted.texts())
    ['line 3: the stanza has no id']
    """

    def __init__(self) -> None:
        self._texts: dict[str, list[str]] = {}
        self._counts: dict[str, int] = {}
        self._beyond = 0

    def add(self, line: int, kind: str, text: str) -> None:
        """Notes `text`, about `line` (from 1); warnings of the same `kind` are reported together."""
        if kind not in self._counts and len(self._counts) == KINDS:
            self._beyond += 1
            return
        self._counts[kind] = self._counts.get(kind, 0) + 1
        if self._counts[kind] <= SHOWN:
            self._texts.setdefault(kind, []).append(f"line {line}: {text}")

    def texts(self) -> Iterator[str]:
        """All that came up."""
        for kind, texts in self._texts.items():
            yield from texts
            more = self._counts[kind] - len(texts)
            if more:
                yield f"and {more:,} more like the one before ({kind})"
        if self._beyond:
            yield f"and {self._beyond:,} more warnings of other kinds"


def shown(text: str) -> str:
    """`text` as it is quoted in a warning.

    >>> shown("a" * 100).endswith("…'")
    True
    """
    return repr(text if len(text) <= LONGEST else text[:LONGEST] + "…")
