"""Clauses in columns: an engine that takes them stores what one gets that takes them one by one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kindcast.index.clause import AttributeId, Clause, ColumnId, ConceptTest, IntervalTest, KeyTest, LoweredEvent
from kindcast.index.concept_graph import ConceptGraph
from kindcast.index.engine import ClauseColumns, ConceptOperands, Engine, IntervalOperands, KeyOperands, in_order
from kindcast.index.fused.engine import FusedEngine
from kindcast.index.naive import NaiveEngine
from kindcast.index.registry import ENGINES, new_engine

GRAPH = ConceptGraph(4, {(1, 0), (2, 1), (3, 0)}, set())
PRICE, NAME, KIND = AttributeId(0), AttributeId(1), AttributeId(2)
ALL = frozenset([PRICE, NAME, KIND])
BULK = [name for name in sorted(ENGINES) if type(new_engine(name, GRAPH)).add_columns is not Engine.add_columns]


def columns(places: list[int], numbers: list[tuple[float, float]], words: list[int], kinds: list[int]) -> ClauseColumns:
    """Clauses over price, name and kind."""
    low, high = (np.array([each[end] for each in numbers], dtype=np.float64) for end in (0, 1))
    return ClauseColumns(
        np.array(places, dtype=np.int64),
        ALL,
        frozenset(),
        (
            ConceptOperands(KIND, ColumnId(2), np.array(kinds, dtype=np.int32)),
            IntervalOperands(PRICE, ColumnId(0), low, high),
            KeyOperands(NAME, ColumnId(1), ["a", "b", "c"], np.array(words, dtype=np.int32)),
            IntervalOperands(PRICE, ColumnId(0), np.full(low.size, -5.0), high),
        ),
    )


def test_clause_of_columns_is_written_as_a_clause() -> None:
    """Each test by its own operand; equal ends that are a key are one."""
    few = columns([1, 0], [(0.0, 5.0), (2.0, 2.0)], [2, 0], [1, 3])
    points = IntervalOperands(PRICE, ColumnId(0), np.array([7.0]), np.array([7.0]), is_key=True)
    exact = ConceptOperands(KIND, ColumnId(2), np.array([2], dtype=np.int32), exactly=True)
    single = ClauseColumns(np.array([2]), ALL, frozenset(), (points, exact))
    alone = Clause(required=frozenset([NAME]))
    first, second, third, fourth = in_order([(3, alone)], [few, single], 4)
    assert [test for each in first.predicates for _, test in each.tests] == [
        ConceptTest(within=frozenset([3])),
        IntervalTest(2.0, 2.0),
        KeyTest(frozenset(["a"])),
        IntervalTest(-5.0, 2.0),
    ]
    assert second.predicates[2].tests == ((ColumnId(1), KeyTest(frozenset(["c"]))),)
    tests = [test for each in third.predicates for _, test in each.tests]
    assert tests == [KeyTest(frozenset([7.0])), ConceptTest(exactly=frozenset([2]))]
    assert third.required == ALL
    assert fourth == alone


@pytest.mark.parametrize("name", BULK)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([0.0, 1.0, 2.0, 5.0]),
            st.sampled_from([0.0, 2.0, 6.0]),
            st.integers(0, 2),
            st.integers(0, 3),
        ),
        min_size=1,
        max_size=40,
    ),
    st.lists(st.integers(0, 60), max_size=10),
    st.randoms(use_true_random=False),
)
def test_engine_with_columns_matches_as_the_naive_one(
    name: str, drawn: list[tuple[float, float, int, int]], gone: list[int], chance: object
) -> None:
    """In any places, among clauses that come alone, into rows that were free; intervals may be empty."""
    bulk = FusedEngine(GRAPH, memtable_rows=2, block_rows=64) if name == "fused" else new_engine(name, GRAPH)
    naive = NaiveEngine(GRAPH)
    for engine in (bulk, naive):
        rows = engine.add_many([Clause(required=frozenset([NAME]))] * 8)
        for row in sorted({number % 8 for number in gone}):
            engine.remove(rows[row])
    count = 2 * len(drawn)
    places = list(range(count))
    chance.shuffle(places)  # type: ignore[attr-defined]
    half = sorted(places[: len(drawn)])
    many = columns(half, [each[:2] for each in drawn], [each[2] for each in drawn], [each[3] for each in drawn])
    alone = [(place, many.clause(number)) for number, place in enumerate(sorted(places[len(drawn) :]))]
    assert bulk.add_columns(alone, [many], count).tolist() == naive.add_columns(alone, [many], count).tolist()
    for price in (0.0, 2.0, 4.0):
        for word, kind in (("a", 2), ("c", 3)):
            event = LoweredEvent(ALL, {ColumnId(0): (price,), ColumnId(1): (word,), ColumnId(2): (kind,)})
            assert bulk.match(event).tolist() == naive.match(event).tolist()
    bulk.check_invariants()
