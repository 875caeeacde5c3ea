"""What every engine does, beside finding the right rows: rows, batches, errors, growth, the registry."""

import math
import random

import numpy as np
import pytest

from kindcast.index.clause import (
    AttributeId,
    Clause,
    ClauseRow,
    ColumnId,
    ConceptTest,
    IntervalTest,
    KeyTest,
    LoweredEvent,
    Predicate,
)
from kindcast.index.concept_graph import ConceptGraph
from kindcast.index.engine import Engine
from kindcast.index.errors import UnknownEngine, UnknownRow
from kindcast.index.registry import ENGINES, new_engine

A, B = AttributeId(0), AttributeId(1)
TEXT, NUMBER, CONCEPT = ColumnId(0), ColumnId(1), ColumnId(2)
ANYTHING = Clause()


@pytest.fixture(params=sorted(ENGINES))
def engine(request: pytest.FixtureRequest) -> Engine:
    """An empty engine of each kind over three concepts, 2 beneath 1 beneath 0."""
    return new_engine(request.param, ConceptGraph(3, [(1, 0), (2, 1)]))


def named(key: str, *, negated: bool = False) -> Predicate:
    return Predicate(A, ((TEXT, KeyTest(frozenset([key]))),), negated)


def event(**texts: tuple[str, ...]) -> LoweredEvent:
    """An event with texts for the attribute `a`, and nothing else."""
    return LoweredEvent(frozenset([A]) if texts else frozenset(), {TEXT: texts["a"]} if texts else {})


def test_new_engine_with_an_unknown_name_lists_the_known_ones() -> None:
    """The message says which engines there are."""
    with pytest.raises(UnknownEngine, match=", ".join(sorted(ENGINES))) as caught:
        new_engine("fastest", ConceptGraph(0))
    assert caught.value.known == sorted(ENGINES)


def test_engine_without_clauses_matches_nothing(engine: Engine) -> None:
    """An empty engine answers with an empty array of the promised type."""
    found = engine.match(event(a=("x",)))
    assert (found.size, found.dtype, len(engine)) == (0, np.int32, 0)


def test_engine_gives_the_lowest_free_row(engine: Engine) -> None:
    """Rows are numbered from 0 without gaps, and removed ones are filled from below."""
    assert engine.add_many([ANYTHING] * 5) == [0, 1, 2, 3, 4]
    for row in (3, 1):
        engine.remove(ClauseRow(row))
    assert len(engine) == 3
    assert [engine.add(ANYTHING) for _ in range(3)] == [1, 3, 5]
    assert engine.match(event()).tolist() == [0, 1, 2, 3, 4, 5]
    engine.check_invariants()


@pytest.mark.parametrize("row", [-1, 1, 7, 10_000])
def test_engine_removing_an_unknown_row_refuses_and_changes_nothing(engine: Engine, row: int) -> None:
    """A row that was never used, one that is free already, and a negative one."""
    engine.add_many([ANYTHING] * 2)
    engine.remove(ClauseRow(1))
    with pytest.raises(UnknownRow):
        engine.remove(ClauseRow(row))
    assert engine.match(event()).tolist() == [0]


def test_engine_clause_without_predicates_matches_every_event(engine: Engine) -> None:
    """Nothing required: also an event without any attribute."""
    engine.add(ANYTHING)
    engine.add(Clause(forbidden=frozenset([A])))
    engine.add(Clause(required=frozenset([A])))
    assert engine.match(event()).tolist() == [0, 1]
    assert engine.match(event(a=("x",))).tolist() == [0, 2]


def test_engine_clause_that_requires_what_it_forbids_never_matches(engine: Engine) -> None:
    """A contradiction is legal and matches nothing."""
    engine.add(Clause(required=frozenset([A]), forbidden=frozenset([A])))
    assert engine.match(event()).tolist() == engine.match(event(a=("x",))).tolist() == []


def test_engine_predicate_over_several_columns_holds_when_one_does(engine: Engine) -> None:
    """`a in ("x", 5)` reads text and number; its negation wants neither."""
    tests = ((TEXT, KeyTest(frozenset(["x"]))), (NUMBER, KeyTest(frozenset([5.0]))), (NUMBER, IntervalTest(8.0, 9.0)))
    for negated in (False, True):
        engine.add(Clause((Predicate(A, tests, negated),), frozenset([A])))
    for values, expected in (
        ({TEXT: ("x",)}, [0]),
        ({NUMBER: (5.0,)}, [0]),
        ({NUMBER: (8.5,), TEXT: ("y",)}, [0]),
        ({NUMBER: (6.0,), TEXT: ("y",)}, [1]),
        ({}, [1]),
    ):
        assert engine.match(LoweredEvent(frozenset([A]), values)).tolist() == expected


def test_engine_predicate_without_tests_never_holds_but_its_negation_does(engine: Engine) -> None:
    """Nothing satisfies no test: false, and true under `not` when the attribute is there; empty tests alike."""
    empty = ((TEXT, KeyTest(frozenset())), (CONCEPT, ConceptTest()), (NUMBER, IntervalTest(2.0, 1.0)))
    for tests in ((), empty):
        for negated in (False, True):
            engine.add(Clause((Predicate(A, tests, negated),), frozenset([A])))
    full = LoweredEvent(frozenset([A]), {TEXT: ("x",), CONCEPT: (1,), NUMBER: (1.5,)})
    assert engine.match(full).tolist() == [1, 3]
    assert engine.match(event()).tolist() == []
    for row in range(4):
        engine.remove(ClauseRow(row))
    engine.check_invariants()


def test_engine_takes_both_zeros_as_one(engine: Engine) -> None:
    """0.0 and -0.0 are one key; what is kept of it does not depend on who came first, or went."""
    tests = [KeyTest(frozenset([key])) for key in (0.0, -0.0, -0.5)]
    first, *_ = (engine.add(Clause((Predicate(A, ((NUMBER, test),)),), frozenset([A]))) for test in tests)
    engine.check_invariants()
    engine.remove(first)
    engine.check_invariants()
    assert engine.match(LoweredEvent(frozenset([A]), {NUMBER: (0.0,)})).tolist() == [1]


def test_engine_several_negated_predicates_must_all_hold(engine: Engine) -> None:
    """`not a = "x" and not a = "y"`: neither may be among the values."""
    engine.add(Clause((named("x", negated=True), named("y", negated=True)), frozenset([A])))
    engine.add(Clause((named("x", negated=True), named("y")), frozenset([A])))
    assert engine.match(event(a=("z",))).tolist() == [0]
    assert engine.match(event(a=("y", "z"))).tolist() == [1]
    assert engine.match(event(a=("x", "y"))).tolist() == []


def test_engine_negated_interval_asks_all_values(engine: Engine) -> None:
    """`not a <= 5` fails as soon as one value is at most 5, also at the bound."""
    engine.add(Clause((Predicate(A, ((NUMBER, IntervalTest(-math.inf, 5.0)),), True),), frozenset([A])))
    for values, expected in (((6.0, 7.0), [0]), ((6.0, 5.0), []), ((-1e9,), []), ((math.nextafter(5.0, 6.0),), [0])):
        assert engine.match(LoweredEvent(frozenset([A]), {NUMBER: values})).tolist() == expected


def test_engine_same_predicate_twice_in_a_clause_is_one(engine: Engine) -> None:
    """Repeating a predicate changes nothing, and removing the clause leaves nothing."""
    row = engine.add(Clause((named("x"), named("x")), frozenset([A])))
    assert engine.match(event(a=("x",))).tolist() == [row]
    engine.remove(row)
    engine.check_invariants()
    assert engine.match(event(a=("x",))).tolist() == []


def test_engine_attribute_without_readable_value_is_still_present(engine: Engine) -> None:
    """`a exists` holds although no column reads the value, and so does a negated predicate on it."""
    engine.add(Clause(required=frozenset([A])))
    engine.add(Clause((named("x", negated=True),), frozenset([A])))
    engine.add(Clause((named("x"),), frozenset([A])))
    assert engine.match(LoweredEvent(frozenset([A]))).tolist() == [0, 1]


def test_engine_batch_gives_what_single_events_give(engine: Engine) -> None:
    """One table for all events, in order, also for none."""
    engine.add_many([Clause((named("x"),), frozenset([A])), ANYTHING])
    events = [event(a=("x",)), event(), event(a=("y", "x"))]
    table = engine.match_batch(events)
    assert (table.offsets.dtype, table.rows.dtype) == (np.int64, np.int32)
    assert table.offsets.tolist() == [0, 2, 3, 5]
    assert table.rows.tolist() == [0, 1, 1, 0, 1]
    empty = engine.match_batch([])
    assert (empty.offsets.tolist(), empty.rows.tolist()) == ([0], [])


def test_engine_growing_to_thousands_of_rows_stays_exact(engine: Engine) -> None:
    """Past every change of form: lists to bit sets, dicts to arrays, doubled capacity, thinned out again."""
    draw = random.Random(11)
    expected: dict[int, tuple[int, float, float, str]] = {}
    for _ in range(3_000):
        concept, key = draw.randrange(3), f"k{draw.randrange(draw.choice([3, 500]))}"
        low, high = sorted(draw.uniform(0, 100) for _ in range(2))
        predicates = (
            Predicate(B, ((CONCEPT, ConceptTest(within=frozenset([concept]))),)),
            Predicate(A, ((NUMBER, IntervalTest(low, high)), (TEXT, KeyTest(frozenset([key]))))),
        )
        expected[engine.add(Clause(predicates, frozenset([A, B])))] = (concept, low, high, key)
    for row in draw.sample(sorted(expected), 2_000):
        engine.remove(ClauseRow(row))
        del expected[row]
    for value, key, concept in ((50.0, "k1", 2), (0.0, "k2", 1), (99.9, "nothing", 0), (draw.uniform(0, 100), "k7", 2)):
        found = engine.match(LoweredEvent(frozenset([A, B]), {CONCEPT: (concept,), NUMBER: (value,), TEXT: (key,)}))
        assert found.tolist() == sorted(
            row
            for row, (wanted, low, high, name) in expected.items()
            if wanted <= concept and (low <= value <= high or name == key)
        )
    engine.check_invariants()
