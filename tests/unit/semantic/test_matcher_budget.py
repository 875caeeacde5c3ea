"""A matcher whose index may have so many bytes."""

from pathlib import Path

import pytest

from kindcast import Matcher, Vocabulary
from kindcast.index.errors import IndexFull
from kindcast.semantic.errors import UnusableMatcher

EMPTY = Vocabulary.from_ontologies([])
SMALL = 40_000


def test_matcher_with_a_budget_adds_all_of_a_subscription_or_nothing() -> None:
    """Every clause has a row of its own; where one has no room, none is left behind, and what was there matches."""
    matcher = Matcher(EMPTY, budget=SMALL)

    def fill() -> None:
        for number in range(10_000):
            matcher.add(f"s{number}", " or ".join(f"price = {number * 7 + each}" for each in range(7)))

    with pytest.raises(IndexFull, match="40,000 bytes"):
        fill()
    matcher.check_invariants()
    assert [match.subscription for match in matcher.match({"price": 8})] == ["s1"]
    assert matcher.index_bytes is not None
    assert matcher.index_bytes <= SMALL
    with pytest.raises(IndexFull):
        matcher.add_many((f"t{number}", f"price = {number}") for number in range(3_000))
    matcher.check_invariants()
    for name in list(matcher)[: len(matcher) // 2]:
        matcher.remove(name)
    matcher.add("again", "price = 3")
    assert [match.subscription for match in matcher.match({"price": 3})] == ["again"]


def test_matcher_that_is_opened_or_rebuilt_keeps_its_budget(tmp_path: Path) -> None:
    """What is larger than the budget is told, not opened."""
    matcher = Matcher(EMPTY)
    matcher.add_many((f"s{number}", f"price = {number}") for number in range(3_000))
    matcher.save(tmp_path)
    with pytest.raises(UnusableMatcher, match="40,000 bytes"):
        Matcher.open(tmp_path, EMPTY, budget=SMALL)
    opened = Matcher.open(tmp_path, EMPTY, budget=SMALL * 100)
    assert [match.subscription for match in opened.match({"price": 3})] == ["s3"]
    few = Matcher(EMPTY, budget=SMALL)
    few.add("one", "price = 3")
    with pytest.raises(IndexFull):
        few.rebuilt(EMPTY).add_many((f"s{number}", f"price = {number}") for number in range(3_000))


def test_matcher_of_another_engine_takes_no_budget() -> None:
    """It would not be kept."""
    assert Matcher(EMPTY, engine="naive").index_bytes is None
    with pytest.raises(ValueError, match="'naive' has no byte limit"):
        Matcher(EMPTY, engine="naive", budget=SMALL)
