"""Warnings about a document that is read nevertheless: the first few of a kind with their line, the others counted."""

from collections.abc import Iterator

__all__ = ["DocumentWarnings", "shown"]

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
                yield f"and {more:,} more like the last ({kind})"
        if self._beyond:
            yield f"and {self._beyond:,} more of other kinds"


def shown(text: str) -> str:
    """`text` as it is quoted in a warning.

    >>> shown("a" * 100).endswith("…'")
    True
    """
    return repr(text if len(text) <= LONGEST else text[:LONGEST] + "…")
