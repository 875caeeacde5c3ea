"""What the papers on DEXIN, Le Subscribe and the matching tree get wrong in print, one regression test each.

By the numbers of our list: 20, 21 and 22 are of Le Subscribe, 9 to 13 of DEXIN, 24 and 25 of the matching tree. Every
engine that follows one of them is asked, with its structure built from the first clause on.
"""

import math
from functools import partial

import pytest

from index.clause import AttributeId, Clause, ColumnId, IntervalTest, KeyTest, LoweredEvent, Predicate, Test
from index.concept_graph import ConceptGraph
from index.engine import Engine
from index.engines import ENGINES
from index.engines.dexin import _first_fit, _Numbers

A, B = AttributeId(0), AttributeId(1)
NUMBER, TEXT = ColumnId(0), ColumnId(1)


@pytest.fixture(params=["counting", "dexin", "equality", "matching_tree", "quarantine"])
def engine(request: pytest.FixtureRequest) -> Engine:
    """An empty engine of a paper."""
    found: Engine = partial(ENGINES[request.param], fewest_fresh=0)(ConceptGraph(0))
    return found


def asking(*tests: tuple[AttributeId, ColumnId, Test], negated: bool = False) -> Clause:
    """A clause with one predicate for each test."""
    predicates = tuple(Predicate(attribute, ((column, test),), negated) for attribute, column, test in tests)
    return Clause(predicates, frozenset(attribute for attribute, _, _ in tests))


def between(low: float, high: float, *, negated: bool = False) -> Clause:
    return asking((A, NUMBER, IntervalTest(low, high)), negated=negated)


def numbers(*values: float) -> LoweredEvent:
    return LoweredEvent(frozenset({A}), {NUMBER: values})


def matched(engine: Engine, event: LoweredEvent) -> list[int]:
    found: list[int] = engine.match(event).tolist()
    return found


def test_bounds_of_every_kind_decide_at_their_ends(engine: Engine) -> None:
    """Erratum 9: [v, v) and (v, v] hold nothing, [v, v] holds v, and an interval without bounds holds everything."""
    below, above = math.nextafter(5.0, -math.inf), math.nextafter(5.0, math.inf)
    empty = [engine.add(between(5.0, below)), engine.add(between(above, 5.0))]
    point, unbounded = engine.add(between(5.0, 5.0)), engine.add(between(-math.inf, math.inf))
    closed_low, open_low = engine.add(between(5.0, 9.0)), engine.add(between(above, 9.0))
    assert matched(engine, numbers(5.0)) == sorted([point, unbounded, closed_low])
    assert matched(engine, numbers(6.0)) == sorted([unbounded, closed_low, open_low])
    assert not set(empty) & set(matched(engine, numbers(5.0)))


def test_unequal_is_not_two_intervals(engine: Engine) -> None:
    """Erratum 10: `!= 5` holds on everything but 5, instead of on nothing."""
    unequal = engine.add(between(5.0, 5.0, negated=True))
    assert [matched(engine, numbers(value)) for value in (4.0, 5.0, 6.0)] == [[unequal], [], [unequal]]
    assert matched(engine, LoweredEvent()) == []


def test_value_at_a_closed_upper_end_keeps_its_clause(engine: Engine) -> None:
    """Erratum 11: what stands before the value's place is excluded, not what ends exactly there; also at both ends of
    the array."""
    rows = [engine.add(between(0.0, float(high))) for high in range(1, 6)]
    for value in range(6):
        assert matched(engine, numbers(float(value))) == [row for high, row in enumerate(rows, 1) if value <= high]


def test_matching_rate_under_skew_stays_a_rate() -> None:
    """Erratum 12: rows are counted once, whatever their width, so the rate lies in [0, 1]."""
    axis = _Numbers(NUMBER, {row: (5.0, 5.0) for row in range(10)}, 10)
    for value, failing in ((4.0, 10), (5.0, 0), (6.0, 10)):
        assert axis.stage(numbers(value)).failing == failing


class Stage:
    """A stage that would exclude so many rows."""

    def __init__(self, failing: int) -> None:
        self.failing = failing


def test_first_fit_excludes_while_more_is_left_than_a_stage_excludes() -> None:
    """Erratum 13: ε > δ decides, and the lowest matching rate comes first."""
    exclusive, inclusive = _first_fit([Stage(10), Stage(90), Stage(50)], 100)  # type: ignore[list-item]
    assert [stage.failing for stage in exclusive] == [90]
    assert [stage.failing for stage in inclusive] == [50, 10]
    exclusive, inclusive = _first_fit([Stage(10), Stage(20), Stage(0)], 100)  # type: ignore[list-item]
    assert [stage.failing for stage in exclusive] == [20, 10]
    assert inclusive == ()


def test_optional_attribute_of_another_clause_is_not_asked_for(engine: Engine) -> None:
    """Erratum 20: an attribute that a clause does not mention may be absent, twice as well as once."""
    row = engine.add(asking((B, TEXT, KeyTest(frozenset({"x"})))))
    engine.add(between(0.0, 1.0))
    assert matched(engine, LoweredEvent(frozenset({B}), {TEXT: ("x",)})) == [row]


def test_one_sided_bounds_hold_on_their_own_side(engine: Engine) -> None:
    """Erratum 21: `a <= c` holds for all c not below the value, `a >= c` for all c not above it."""
    at_most = [engine.add(between(-math.inf, float(bound))) for bound in (1, 2, 3)]
    at_least = [engine.add(between(float(bound), math.inf)) for bound in (1, 2, 3)]
    assert matched(engine, numbers(2.0)) == [*at_most[1:], *at_least[:2]]


def test_counts_start_from_zero_and_two_values_count_once(engine: Engine) -> None:
    """Erratum 22: an event leaves nothing behind, and two values that satisfy one predicate do not stand for two."""
    both = engine.add(asking((A, NUMBER, IntervalTest(1.0, math.inf)), (B, TEXT, KeyTest(frozenset({"x"})))))
    for _ in range(3):
        assert matched(engine, numbers(5.0, 6.0)) == []
    event = LoweredEvent(frozenset({A, B}), {NUMBER: (5.0, 6.0), TEXT: ("x", "y")})
    assert [matched(engine, event) for _ in range(2)] == [[both], [both]]


def test_two_bounds_are_not_met_by_two_values(engine: Engine) -> None:
    """Rule 6: one and the same value lies between them."""
    engine.add(between(10.0, 20.0))
    assert matched(engine, numbers(5.0, 25.0)) == []
