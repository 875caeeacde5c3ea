"""Rows whose required attributes are all present and whose forbidden ones are absent."""

import random

import pytest

from kindcast.index.clause import AttributeId
from kindcast.index.published import ctps as presence
from kindcast.index.published.ctps import Presence
from kindcast.index.published.ctps_rows import rows_of


def attributes(*numbers: int) -> frozenset[AttributeId]:
    return frozenset(AttributeId(number) for number in numbers)


@pytest.mark.parametrize("cost", [0, 6, 1_000])
def test_presence_by_counting_or_by_subtracting_keeps_the_same_rows(cost: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways, whichever is cheaper, keep exactly the rows that have all they require and nothing they forbid."""
    monkeypatch.setattr(presence, "COUNTING_COST", cost)
    draw = random.Random(5)
    rows = {
        row: (attributes(*draw.sample(range(12), draw.randint(0, 9))), attributes(*draw.sample(range(12), 1)))
        for row in range(60)
    }
    index = Presence(64)
    for row, (required, forbidden) in rows.items():
        index.add(row, required, forbidden if row % 3 == 0 else frozenset())
    for _ in range(100):
        present = attributes(*draw.sample(range(14), draw.randint(0, 14)))
        expected = [
            row
            for row, (required, forbidden) in rows.items()
            if required <= present and not (row % 3 == 0 and forbidden & present)
        ]
        assert rows_of(index.live(present)).tolist() == expected


def test_presence_remembered_results_do_not_outlive_a_change() -> None:
    """The same set of attributes asked again after an addition or a removal sees it."""
    index = Presence(64)
    index.add(0, attributes(1), attributes())
    assert rows_of(index.live(attributes(1))).tolist() == [0]
    index.add(1, attributes(1), attributes(2))
    assert rows_of(index.live(attributes(1))).tolist() == [0, 1]
    assert rows_of(index.live(attributes(1, 2))).tolist() == [0]
    index.remove(0, attributes(1), attributes())
    assert rows_of(index.live(attributes(1))).tolist() == [1]
    index.check_invariants({1: (attributes(1), attributes(2))})


def test_presence_hands_out_bits_that_the_caller_may_change() -> None:
    """What a caller does to its result does not reach what is remembered."""
    index = Presence(64)
    index.add(3, attributes(1), attributes())
    index.live(attributes(1)).setall(0)
    assert rows_of(index.live(attributes(1))).tolist() == [3]


def test_presence_with_a_full_memory_forgets_and_stays_right(monkeypatch: pytest.MonkeyPatch) -> None:
    """More sets of attributes than memory allows are simply found again."""
    monkeypatch.setattr(presence, "REMEMBERED_BYTES", 16)
    index = Presence(64)
    for row in range(4):
        index.add(row, attributes(row), attributes())
    for _ in range(2):
        for row in range(4):
            assert rows_of(index.live(attributes(row))).tolist() == [row]
