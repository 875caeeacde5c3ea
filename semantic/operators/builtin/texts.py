"""Texts: a regular expression over several attributes, and text similarity. Uses rapidfuzz; nothing else does.

    anyMatches("(?i)urgent|asap", @subject, @body)      RE2, as `matches`
    similar("pump 7 leaks", @title, ?score)             0 to 1: how alike, whatever the order of words

A score compares words (folded, punctuation aside): 1 for the same words in any order. `?score >= 0.9` finds what is
nearly a duplicate.
"""

from typing import Any

from kindcast.semantic.errors import InvalidPattern
from kindcast.semantic.operators.declaration import Operator
from kindcast.semantic.operators.failures import needed
from kindcast.semantic.units.patterns import check_size, compile_pattern, fold

__all__ = ["LONGEST", "texts"]

LONGEST = 10_000
"""Characters that are compared: the work grows with the product of both lengths."""


def texts() -> list[Operator]:
    """`anyMatches` and `similar`."""
    said: dict[str, Any] = {"cache_key": "arguments", "concurrency": 64}
    return [
        Operator(name="anyMatches", function=_any_matches, cost=2e-5, binds=(), check=_wrong_pattern, **said),
        Operator(name="similar", function=_similar, cost=1e-4, selectivity=0.9, binds=(float,), **said),
    ]


def _wrong_pattern(pattern: str, *attributes: Any) -> str | None:
    try:
        check_size(compile_pattern(pattern))
    except InvalidPattern as error:
        return str(error)
    return None


def _any_matches(event: Any, pattern: str, *attributes: tuple[Any, ...]) -> bool:
    compiled = compile_pattern(pattern)
    return any(compiled.search(text) for values in attributes for text in values if isinstance(text, str))


def _similar(event: Any, text: str, values: tuple[Any, ...]) -> list[float]:
    fuzz = needed("rapidfuzz.fuzz", "similar")
    wanted = _words(text)
    return [round(fuzz.token_sort_ratio(wanted, _words(value)) / 100, 4) for value in values if isinstance(value, str)]


def _words(text: str) -> str:
    return " ".join("".join(each if each.isalnum() else " " for each in fold(text[:LONGEST])).split())
