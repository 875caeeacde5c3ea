"""Answers that may be used again: those of operators that say what their answer depends on (`cache_key`)."""

import time
from collections.abc import Hashable, Sequence
from typing import Any

from semantic.operators.calls import Answer, Call
from semantic.operators.declaration import Operator
from semantic.operators.readings import EventView

__all__ = ["MOST_ANSWERS", "Answers"]

MOST_ANSWERS = 20_000
"""Answers kept, those used longest ago go first. Some tens of megabytes where images are arguments' digests."""
LONGEST_KEY = 200
"""Characters of a text in a key that are kept as they are; of a longer one, its hash and its length."""


class Answers:
    """Answers by call and key. One owner."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, tuple[Answer, float]] = {}
        self.used = 0

    def __len__(self) -> int:
        return len(self._kept)

    def key(self, call: Call, operator: Operator, event: EventView) -> Hashable | None:
        """Under what the answer of this call is kept; None where it is not."""
        if operator.cache_key is None or any(name not in event for name in call.attributes):
            return None
        try:
            key = operator.key(event, call.given(event))
            return None if key is None else (call, _exact(key))
        except Exception:  # a function of a plug-in, which has no answer here: the call itself will tell
            return None

    def get(self, key: Hashable | None) -> Answer | None:
        """A kept answer, as one from which nothing is learned."""
        if key is None:
            return None
        found = self._kept.pop(key, None)
        if found is None or found[1] < time.monotonic():
            return None
        self._kept[key] = found
        self.used += 1
        return found[0]

    def keep(self, key: Hashable | None, answer: Answer, operator: Operator) -> None:
        """Note an answer that was just found."""
        if key is None:
            return
        until = float("inf") if operator.cache_seconds is None else time.monotonic() + operator.cache_seconds
        self._kept[key] = (Answer(answer.holds, answer.bindings, seconds=0.0), until)
        if len(self._kept) > MOST_ANSWERS:
            del self._kept[next(iter(self._kept))]


def _exact(key: Any) -> Hashable:
    """A key in which 1, 1.0 and true differ, and long texts take little room. Raises TypeError."""
    if isinstance(key, str) and len(key) > LONGEST_KEY:
        return "long text", len(key), key[:LONGEST_KEY], hash(key), hash(key[::-1])
    if isinstance(key, Sequence) and not isinstance(key, str | bytes):
        return tuple(map(_exact, key))
    hash(key)
    return type(key).__name__, key
