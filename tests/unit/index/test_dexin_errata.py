"""What the paper on DEXIN gets wrong in print, one regression test each (9 to 13 of our list).

Where print says something that can be run, it is here as well, and shown to be wrong on the same case.
"""

import math
from collections.abc import Sequence

import numpy as np
import pytest

from kindcast.index.clause import AttributeId, Clause, ColumnId, IntervalTest, LoweredEvent, Predicate
from kindcast.index.concept_graph import ConceptGraph
from kindcast.index.published.dexin import (
    EXCLUSIVE,
    FIRST_FIT,
    INCLUSIVE,
    OPTIMAL,
    DexinEngine,
    cost_of,
    first_fit,
    optimal,
)

A, NUMBER = AttributeId(0), ColumnId(0)
OPEN, CLOSED = "open", "closed"


@pytest.fixture(params=[FIRST_FIT, OPTIMAL, EXCLUSIVE, INCLUSIVE])
def engine(request: pytest.FixtureRequest) -> DexinEngine:
    """An empty engine for each plan: both methods, and each by itself; a slot for every bound."""
    return DexinEngine(ConceptGraph(0), plan=request.param, slot_rows=1)


def between(low: float, high: float, *, negated: bool = False) -> Clause:
    return Clause((Predicate(A, ((NUMBER, IntervalTest(low, high)),), negated),), frozenset({A}))


def at(value: float) -> LoweredEvent:
    return LoweredEvent(frozenset({A}), {NUMBER: (value,)})


def printed_rule_3(low: float | None, low_type: str, high: float | None, high_type: str, value: float) -> bool:
    """Rule 3 of the paper, whose five cases are said to be all."""
    return (
        (low is not None and high is not None and low < value < high)
        or (low is not None and high is None and low < value)
        or (low is None and high is not None and high > value)
        or (low == value and low_type == CLOSED)
        or (high == value and high_type == CLOSED)
    )


@pytest.mark.parametrize(
    ("low", "low_type", "high", "high_type", "holds", "printed_is_right"),
    [
        (5.0, CLOSED, 5.0, OPEN, False, False),
        (5.0, OPEN, 5.0, CLOSED, False, False),
        (None, OPEN, None, OPEN, True, False),
        (5.0, CLOSED, 5.0, CLOSED, True, True),
        (5.0, OPEN, 9.0, CLOSED, False, True),
        (5.0, CLOSED, 9.0, CLOSED, True, True),
        (1.0, CLOSED, 5.0, OPEN, False, True),
        (1.0, CLOSED, 5.0, CLOSED, True, True),
        (None, OPEN, 5.0, CLOSED, True, True),
        (5.0, CLOSED, None, OPEN, True, True),
    ],
)
def test_bounds_of_every_kind_decide_at_their_ends(
    engine: DexinEngine,
    low: float | None,
    low_type: str,
    high: float | None,
    high_type: str,
    holds: bool,
    printed_is_right: bool,
) -> None:
    """Erratum 9: [5, 5) and (5, 5] hold nothing although an end is closed, no bounds at all hold everything."""
    lower = -math.inf if low is None else low if low_type == CLOSED else math.nextafter(low, math.inf)
    upper = math.inf if high is None else high if high_type == CLOSED else math.nextafter(high, -math.inf)
    row = engine.add(between(lower, upper))
    assert engine.match(at(5.0)).tolist() == ([row] if holds else [])
    assert (printed_rule_3(low, low_type, high, high_type, 5.0) == holds) is printed_is_right


def test_unequal_is_not_two_intervals(engine: DexinEngine) -> None:
    """Erratum 10: `!= 5` holds on everything but 5. As two intervals of one subscription, each excludes it where the
    other holds, so nothing is left."""
    unequal = engine.add(between(5.0, 5.0, negated=True))
    assert [engine.match(at(value)).tolist() for value in (4.0, 5.0, 6.0)] == [[unequal], [], [unequal]]
    assert engine.match(LoweredEvent()).tolist() == []
    intervals = (-math.inf, math.nextafter(5.0, -math.inf)), (math.nextafter(5.0, math.inf), math.inf)
    for value in (4.0, 5.0, 6.0):
        assert any(not low <= value <= high for low, high in intervals)  # Rule 2: one is enough to exclude it


def printed_exclusion_by_upper_end(slots: Sequence[Sequence[float]], value: float) -> list[float]:
    """Lines 18 to 24 of Algorithm 1: what is removed when whole slots up to the value's own are."""
    beta = next(place for place, slot in enumerate(slots) if value <= max(slot))
    return [end for slot in slots[: beta + 1] for end in slot]


def test_value_at_a_closed_upper_end_keeps_its_clause(engine: DexinEngine) -> None:
    """Erratum 11: whole slots are excluded up to the one before the value's; also at both ends of the array."""
    highs = [1.0, 2.0, 3.0, 4.0, 5.0]
    rows = [engine.add(between(0.0, high)) for high in highs]
    for value in range(6):
        assert engine.match(at(float(value))).tolist() == [
            row for high, row in zip(highs, rows, strict=True) if value <= high
        ]
    assert 3.0 in printed_exclusion_by_upper_end([[1.0, 2.0], [3.0, 4.0], [5.0]], 3.0)
    assert engine.match(at(-1.0)).tolist() == engine.match(at(7.0)).tolist() == []


def test_value_in_a_slot_of_many_ends_divides_it(engine: DexinEngine) -> None:
    """Erratum 11: of the value's own slots only what fails goes, whichever side is walked."""
    crowded = DexinEngine(ConceptGraph(0), plan=engine._plan, slot_rows=40)
    rng = np.random.default_rng(3)
    low = rng.integers(0, 30, 200).astype(float)
    high = low + rng.integers(0, 12, 200)
    crowded.add_many(between(*ends) for ends in zip(low.tolist(), high.tolist(), strict=True))
    for value in np.arange(-1.0, 45.0, 0.5).tolist():
        assert crowded.match(at(value)).tolist() == np.flatnonzero((low <= value) & (value <= high)).tolist()
    crowded.check_invariants()


def test_matching_rate_under_skew_stays_a_rate(engine: DexinEngine) -> None:
    """Erratum 12: a row is counted once, so the rate lies in [0, 1]. Formula (3) counts the slots of the value whole,
    on both sides, and gives -1 where all rows are one point."""
    engine.add_many(between(5.0, 5.0) for _ in range(10))
    for value, failing in ((4.0, 1.0), (5.0, 0.0), (6.0, 1.0)):
        assert engine.failing_rates(at(value)).tolist() == [failing]


def test_matching_rates_are_close_to_the_truth_and_in_bounds() -> None:
    """Erratum 12: with a share of the value's own slots, the rate is right to within those two slots."""
    rng = np.random.default_rng(5)
    low = np.floor(np.exp(rng.random(2_000) * 6))
    high = low + np.floor(rng.random(2_000) * 40)
    engine = DexinEngine(ConceptGraph(0), slot_rows=20)
    engine.add_many(between(*ends) for ends in zip(low.tolist(), high.tolist(), strict=True))
    for value in rng.uniform(-5, 450, 100).tolist():
        [rate] = engine.failing_rates(at(value)).tolist()
        truth = float(np.mean((low > value) | (high < value)))
        assert 0.0 <= rate <= 1.0
        assert abs(rate - truth) < 0.1, (value, rate, truth)


def planned(failing: Sequence[float]) -> list[bool]:
    rates = np.array(failing)
    excludes = np.zeros(rates.size, dtype=np.bool_)
    first_fit(rates, rates, excludes)
    return excludes.tolist()


@pytest.mark.parametrize(
    ("failing", "excludes"),
    [([0.9, 0.5, 0.1], [True, False, False]), ([0.2, 0.1], [True, True]), ([1.0, 1.0], [True, False]), ([], [])],
)
def test_first_fit_excludes_while_more_is_left_than_a_stage_excludes(
    failing: list[float], excludes: list[bool]
) -> None:
    """Erratum 13: ε > δ decides (line 8), and the first always excludes."""
    assert planned(failing) == excludes


def test_first_fit_compares_what_is_left_with_what_fails_not_with_what_matches() -> None:
    """Erratum 13: after δ = 0.6 a share of 0.4 is left. It is more than the δ = 0.3 of the next, which excludes; the
    text compares it with the matching rate 0.7, and would include."""
    failing = [0.6, 0.3]
    left = 1 - failing[0]
    assert planned(failing) == [True, True]
    assert not left > 1 - failing[1]


def test_including_alone_starts_with_all_rows() -> None:
    """Erratum 13: formula (9) lacks its first term, the rows that the first stage looks at."""
    failing = np.array([0.5, 0.25])
    neither = np.zeros(2, dtype=np.bool_)
    assert cost_of(failing, failing, neither) == 1.0 + 0.5
    printed = sum(math.prod(1 - rate for rate in failing[:k]) for k in range(1, failing.size))
    assert printed == 0.5


def test_optimal_order_is_never_dearer_than_any_other() -> None:
    """Observations 1 to 3 with δ at most 1: no subset is cheaper than `optimal`, and first-fit comes near it."""
    rng = np.random.default_rng(7)
    for _ in range(50):
        failing = -np.sort(-rng.random(6))
        best, near = np.zeros(6, dtype=np.bool_), np.zeros(6, dtype=np.bool_)
        optimal(failing, failing, best)
        first_fit(failing, failing, near)
        costs = [
            cost_of(failing, failing, np.array([bool(subset >> k & 1) for k in range(6)])) for subset in range(1, 64)
        ]
        assert cost_of(failing, failing, best) == min(costs)
        assert cost_of(failing, failing, near) <= 1.5 * min(costs)


def test_batch_counts_in_integers_however_its_events_are_narrowed(engine: DexinEngine) -> None:
    """Nothing narrows the first event, and either method the second. While kernels run as Python, unsigned numbers of
    the one and signed ones of the other must not meet: NumPy makes their sum a float."""
    engine.add_many([Clause((), frozenset()), between(1.0, 9.0), between(8.0, 9.0)])
    table = engine.match_batch([LoweredEvent(frozenset(), {}), at(5.0), at(8.5)])
    assert table.offsets.tolist() == [0, 1, 3, 6]
    assert table.rows.tolist() == [0, 0, 1, 0, 1, 2]
