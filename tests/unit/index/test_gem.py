"""Rows by interval: slots, range, regions and exact bounds."""

import math
import random
from itertools import pairwise

import pytest

from kindcast.index.published.ctps_rows import FEW_INTERVALS, FIRST_SPREAD, SLOTS, Bounds, GemIndex, empty_bits, rows_of

INFINITY = math.inf
CAPACITY = 1 << 10


def filled(intervals: list[tuple[float, float]], capacity: int = CAPACITY) -> GemIndex:
    """An index with `intervals[row]` at each row."""
    index = GemIndex(capacity)
    for row, (low, high) in enumerate(intervals):
        index.add(row, low, high)
    return index


def holding(index: GemIndex, value: float, capacity: int = CAPACITY) -> list[int]:
    """All rows whose interval holds `value`, as the engine finds them: surely, or perhaps and then checked."""
    surely, perhaps = empty_bits(capacity), empty_bits(capacity)
    index.union_into(surely, perhaps, value)
    rows = rows_of(perhaps)
    return sorted([*rows_of(surely).tolist(), *rows[index.holding(rows, value)].tolist()])


def random_intervals(count: int, seed: int) -> list[tuple[float, float]]:
    """Intervals of every kind: wide, narrow, points, open to either side or both."""
    draw = random.Random(seed)
    ends = [-INFINITY, INFINITY, 0.0, 50.0, 100.0]
    made = []
    for _ in range(count):
        pair = [draw.choice(ends) if draw.random() < 0.3 else round(draw.uniform(0, 100), 1) for _ in range(2)]
        made.append((pair[0], pair[0]) if draw.random() < 0.2 and math.isfinite(pair[0]) else (min(pair), max(pair)))
    return made


@pytest.mark.parametrize("count", [1, FIRST_SPREAD - 1, FIRST_SPREAD, 100, 700])
def test_gem_at_any_value_finds_exactly_the_intervals_that_hold_it(count: int) -> None:
    """Inside, outside, at bounds, next to bounds and at infinity: regions and checks together are exact."""
    intervals = random_intervals(count, seed=count)
    index = filled(intervals)
    index.check_invariants()
    bounds = {bound for interval in intervals for bound in interval if math.isfinite(bound)}
    values = {-INFINITY, INFINITY, -1e308, 1e308, -1.0, 101.0, 33.3}
    values |= {near for b in bounds for near in (b, math.nextafter(b, INFINITY), math.nextafter(b, -INFINITY))}
    for value in values:
        expected = [row for row, (low, high) in enumerate(intervals) if low <= value <= high]
        assert holding(index, value) == expected, value
    index.check_invariants()  # with every region remembered


def test_gem_slot_never_decreases_and_sends_infinities_to_the_ends() -> None:
    """What makes the regions sound: a greater value is never in a lower slot."""
    index = filled(random_intervals(200, seed=1))
    values = sorted([-INFINITY, -1e308, *[number / 7 for number in range(-100, 900)], 1e308, INFINITY])
    slots = [index.slot(value) for value in values]
    assert all(low <= high for low, high in pairwise(slots))
    assert (slots[0], slots[-1]) == (0, SLOTS - 1)


def test_gem_slots_of_many_and_of_one_bound_agree() -> None:
    """Placing all intervals anew uses the formula that places a single one; `check_invariants` compares the two."""
    awkward = [(0.1 * number, 0.1 * number + 0.3) for number in range(300)]
    awkward += [(-1e308, 1e308), (-INFINITY, INFINITY), (-1e308, -1e308), (5e-324, 1e-300)]
    for count in range(1, len(awkward), 17):
        filled(awkward[-count:]).check_invariants()


@pytest.mark.parametrize(
    "bounds", [[7.0] * 40, [1e308] * 20 + [-1e308] * 20, [INFINITY] * 40, [5e-324 * number for number in range(40)]]
)
def test_gem_with_a_degenerate_range_stays_exact(bounds: list[float]) -> None:
    """One single bound, bounds at the ends of the doubles, none that is finite, and denormal ones."""
    intervals = [(-INFINITY if bound == INFINITY else bound, bound) for bound in bounds]
    index = filled(intervals)
    index.check_invariants()
    for value in (0.0, 5e-324, 7.0, math.nextafter(7.0, 8.0), 1e308, -1e308):
        assert holding(index, value) == [row for row, (low, high) in enumerate(intervals) if low <= value <= high]


def test_gem_with_one_wild_bound_still_spreads_the_others() -> None:
    """A single outlier does not push all other intervals into one slot."""
    index = filled([(float(number), number + 1.0) for number in range(FIRST_SPREAD * 8)])
    index.add(FIRST_SPREAD * 8, 0.0, 1e300)
    for number in range(FIRST_SPREAD * 8):
        index.add(FIRST_SPREAD * 8 + 1 + number, float(number), number + 1.0)
    assert len({index.slot(float(number)) for number in range(FIRST_SPREAD * 8)}) == SLOTS


def test_gem_following_a_drift_spreads_anew_at_constant_size() -> None:
    """Intervals that move away while old ones are removed get slots again."""
    index = filled([(float(row), row + 1.0) for row in range(100)])
    for start in (1e6, 2e6, 2e6, 2e6):  # a range taken in mid-drift is taken again after as many insertions
        for row in range(100):
            index.remove(row)
            index.add(row, start + row, start + row + 1.0)
    assert len({index.slot(2e6 + row) for row in range(100)}) > SLOTS // 2
    index.check_invariants()


def test_gem_remembered_regions_follow_additions_and_removals() -> None:
    """Regions made for one event are right for the next one after the index changed."""
    intervals = random_intervals(60, seed=3)
    index = filled(intervals)
    draw = random.Random(4)
    stored = dict(enumerate(intervals))
    for _ in range(200):
        value = draw.uniform(-5, 105)
        assert holding(index, value) == sorted(r for r, (low, high) in stored.items() if low <= value <= high)
        row = draw.choice(list(stored))
        index.remove(row)
        del stored[row]
        fresh = random_intervals(1, seed=draw.randrange(1 << 30))[0]
        index.add(row, *fresh)
        stored[row] = fresh
    index.check_invariants()


def test_bounds_few_many_and_few_again_hold_the_same() -> None:
    """The dict and the arrays answer alike, also after growing turned arrays into a dict."""
    bounds = Bounds(1 << 12)
    count = 2 * FEW_INTERVALS + 10
    for row in range(count):
        bounds.put(row, float(row), row + 10.0)
    everything = [(row, float(row), row + 10.0) for row in range(count)]
    assert bounds.contents() == everything
    bounds.grow(1 << 13)
    assert bounds.contents() == everything
    bounds.grow(1 << 16)
    assert bounds.contents() == everything
    assert 5 in bounds
    assert bounds.drop(5) == (5.0, 15.0)
    assert 5 not in bounds
    assert len(bounds) == count - 1
