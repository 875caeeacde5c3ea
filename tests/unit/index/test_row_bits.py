"""Sets of rows and the step between bits and row numbers."""

import numpy as np
import pytest

from kindcast.index.published.ctps_rows import (
    FEW_ROWS,
    MANY_ROWS,
    RowSet,
    clear_rows,
    empty_bits,
    rows_of,
    set_rows,
    sparse_limit,
)

CAPACITY = 1 << 15


def spread(count: int) -> list[int]:
    """`count` different rows over the whole capacity, ascending."""
    return sorted(np.random.default_rng(count).choice(CAPACITY, count, replace=False).tolist())


@pytest.mark.parametrize("count", [0, 1, FEW_ROWS, FEW_ROWS + 1, 60, 500, 5_000, CAPACITY])
def test_rows_of_any_density_gives_all_set_bits_ascending(count: int) -> None:
    """Each of the three ways of finding bits (one by one, by words, all unpacked) finds the same rows."""
    rows = spread(count)
    bits = empty_bits(CAPACITY)
    bits[rows] = 1
    found = rows_of(bits)
    assert found.tolist() == rows
    assert found.dtype == np.int32


@pytest.mark.parametrize("count", [0, 3, MANY_ROWS - 1, MANY_ROWS, 4_000])
def test_set_and_clear_rows_few_or_many_change_exactly_these(count: int) -> None:
    """Setting rows leaves the others as they are, and clearing undoes it."""
    rows = spread(count)
    bits = empty_bits(CAPACITY)
    others = sorted(set(range(0, CAPACITY, 7)) - set(rows))
    bits[others] = 1
    before = bits.copy()
    set_rows(bits, np.array(rows, dtype=np.int32))
    assert rows_of(bits).tolist() == sorted(rows + others)
    clear_rows(bits, np.array(rows, dtype=np.int32))
    assert bits == before


@pytest.mark.parametrize("count", [5, 200])
def test_row_set_sparse_or_dense_acts_as_a_set(count: int) -> None:
    """A set of few rows and one of many behave alike in every operation."""
    rows = spread(count)
    held = RowSet(CAPACITY)
    for row in [*rows, *rows]:
        held.add(row)
    held.check_invariants()
    assert (len(held), held.rows()) == (count, rows)
    assert rows[0] in held
    bits = empty_bits(CAPACITY)
    bits[CAPACITY - 1] = 1
    held.union_into(bits)
    assert rows_of(bits).tolist() == sorted({*rows, CAPACITY - 1})
    held.subtract_from(bits)
    assert rows_of(bits).tolist() == sorted({CAPACITY - 1} - set(rows))
    held.discard(rows[0])
    held.discard(rows[0])
    held.check_invariants()
    assert held.rows() == rows[1:]


@pytest.mark.parametrize("count", [6, 200])
def test_row_set_keep_matched_drops_only_its_own_unmatched_rows(count: int) -> None:
    """Rows of the set stay if matched; rows outside it stay whatever happens; rows that are not live stay dead."""
    rows = spread(count)
    held = RowSet.of(np.array(rows, dtype=np.int32), CAPACITY)
    live = empty_bits(CAPACITY)
    live[rows[1:]] = 1
    outside = next(row for row in range(CAPACITY) if row not in rows)
    live[outside] = 1
    matched = empty_bits(CAPACITY)
    matched[rows[:3]] = 1
    held.keep_matched(live, matched)
    assert rows_of(live).tolist() == sorted([*rows[1:3], outside])


def test_row_set_growing_past_its_worth_as_bits_becomes_a_list_again() -> None:
    """A set that is dense at a small capacity would waste memory at a large one, so growing turns it back."""
    held = RowSet(64)
    for row in range(sparse_limit(64) + 1):
        held.add(row)
    assert len(held) == 17
    for capacity in (128, CAPACITY, CAPACITY << 6):
        held.grow(capacity)
        held.check_invariants()
        assert held.rows() == list(range(17))
    held.add(CAPACITY + 5)
    assert held.rows() == [*range(17), CAPACITY + 5]


def test_row_set_union_of_sets_holds_each_row_once() -> None:
    """Overlapping sets unite without counting a row twice."""
    sets = [RowSet.of(np.array(rows, dtype=np.int32), 64) for rows in ([1, 2], [2, 3], [])]
    united = RowSet.union(sets, 64)
    united.check_invariants()
    assert united.rows() == [1, 2, 3]
