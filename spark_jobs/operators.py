"""Expensive operators in jobs: built-in ones and those installed on the driver and every worker; and the statistics
of their calls."""

from collections.abc import Iterable, Mapping
from typing import Any

from kindcast.semantic import Matcher, Operator
from kindcast.semantic.operators.builtin import builtin_operators
from kindcast.semantic.operators.plugins import load_operators

__all__ = ["added_up", "operators_for_jobs", "records_of"]


def operators_for_jobs() -> Iterable[Operator]:
    """The built-in ones, without regions, tables and windows, and those of the entry point group `kindcast.operators`,
    which come before built-in ones of the same name."""
    installed = load_operators()
    return (*(each for each in builtin_operators() if each.name not in installed), *installed.values())


def records_of(matcher: Matcher) -> list[dict[str, Any]]:
    """What a matcher has learned of each operator predicate, as the planner keeps it."""
    return matcher.layer.experience.as_records()


def added_up(records: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Records of several workers as one: numbers of the same predicate are added."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for record in records:
        key = tuple((name, value) for name, value in record.items() if not _is_number(value))
        mine = found.setdefault(key, dict(key))
        for name, value in record.items():
            if _is_number(value):
                mine[name] = mine.get(name, 0) + value
    return list(found.values())


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
