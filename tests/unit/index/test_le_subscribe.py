"""What the engines of Le Subscribe store: bounds in blocks, clusters in a hash table, predicates with numbers."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kindcast.index.clause import AttributeId, Clause, ColumnId, IntervalTest, KeyTest, LoweredEvent, Predicate
from kindcast.index.concept_graph import ConceptGraph
from kindcast.index.engine import ColumnBatch, ColumnValues, KeyTable
from kindcast.index.errors import UnknownRow
from kindcast.index.naive import NaiveEngine
from kindcast.index.published.le_subscribe_kernels import BLOCK, BoundBlocks, EqualityClusters, entry_of
from kindcast.index.registry import ENGINES

LE_SUBSCRIBE = ("counting", "equality", "quarantine")
A, B = AttributeId(0), AttributeId(1)
TEXT, NUMBER = ColumnId(0), ColumnId(1)


@pytest.fixture(params=LE_SUBSCRIBE)
def engine(request: pytest.FixtureRequest) -> Any:
    """An empty engine of the paper."""
    return ENGINES[request.param](ConceptGraph(0))


def clause(text: str | None = None, low: float = -math.inf, high: float = math.inf) -> Clause:
    """`a = text and b between [low, high]`, without what is not given."""
    predicates = [Predicate(A, ((TEXT, KeyTest(frozenset({text}))),))] if text is not None else []
    if low > -math.inf or high < math.inf:
        predicates.append(Predicate(B, ((NUMBER, IntervalTest(low, high)),)))
    return Clause(tuple(predicates), frozenset(each.attribute for each in predicates))


def event(text: str | None = None, *numbers: float) -> LoweredEvent:
    values: dict[ColumnId, Any] = {} if text is None else {TEXT: (text,)}
    present = set() if text is None else {A}
    if numbers:
        values[NUMBER] = numbers
        present.add(B)
    return LoweredEvent(frozenset(present), values)


def pairs_of(bounds: BoundBlocks, axis: int) -> list[tuple[float, int]]:
    blocks = bounds.blocks
    found: list[tuple[float, int]] = []
    for block in blocks.order[axis, : blocks.blocks[axis]].tolist():
        size = int(blocks.size[block])
        found += zip(blocks.bounds[block, :size].tolist(), blocks.rows[block, :size].tolist(), strict=True)
    return found


@pytest.mark.parametrize("values", [3, 50, 1_000_000])
def test_bound_blocks_split_and_empty_keep_every_axis_in_order(values: int) -> None:
    """Many alike, some alike, none alike; two axes share the pool, and blocks that were empty are used again."""
    chance = np.random.default_rng(values)
    bounds = BoundBlocks()
    bounds.grow(2)
    size = 5 * BLOCK
    axis = chance.integers(0, 2, size).astype(np.int32)
    bound = chance.integers(0, values, size).astype(np.float64)
    rows = chance.permutation(size).astype(np.int32)
    bounds.insert(axis[: size // 2], bound[: size // 2], rows[: size // 2])
    for i in range(size // 2, size):
        bounds.insert(axis[i : i + 1], bound[i : i + 1], rows[i : i + 1])
    bounds.check_invariants()
    for each in range(2):
        own = axis == each
        assert pairs_of(bounds, each) == sorted(zip(bound[own].tolist(), rows[own].tolist(), strict=True))
    gone = chance.permutation(size)[: size - 10]
    bounds.remove(axis[gone], bound[gone], rows[gone])
    bounds.check_invariants()
    left = np.setdiff1d(np.arange(size), gone)
    assert sorted(pairs_of(bounds, 0) + pairs_of(bounds, 1)) == sorted(
        zip(bound[left].tolist(), rows[left].tolist(), strict=True)
    )
    pool = len(bounds.blocks.size)
    bounds.insert(axis[gone], bound[gone], rows[gone])
    bounds.check_invariants()
    assert len(bounds.blocks.size) == pool


def test_equality_clusters_empty_entries_are_dropped() -> None:
    """Operands that nobody asks for any more take no room for ever, and the others are still found."""
    clusters = EqualityClusters()
    first = np.zeros(1, dtype=np.int64)
    zero = np.zeros(1, dtype=np.int32)
    for number in range(2_000):
        clusters.add(np.array([number], dtype=np.int32), first, zero, np.array([number], dtype=np.int32))
        if number >= 10:
            clusters.remove(number, zero, np.array([number], dtype=np.int32))
    clusters.check_invariants()
    known = clusters.clusters
    assert known.slots.size < 1_000
    for number in range(10):
        own = np.array([number], dtype=np.int32)
        entry = entry_of(known.slots, known.cluster, known.keys, known.width, 0, own)
        assert known.rows[known.start[entry]] == number


def test_numbers_of_predicates_are_given_again(engine: Any) -> None:
    """Churn of ever new operands leaves nothing behind, and a number means what it was given for last."""
    for number in range(300):
        row = engine.add(clause(f"v{number}", low=float(number)))
        assert engine.match(event(f"v{number}", 300.0)).tolist() == [row]
        assert engine.match(event(f"v{number - 1}", 300.0)).tolist() == []
        engine.remove(row)
    engine.check_invariants()
    assert len(engine._uses) == 1
    with pytest.raises(UnknownRow):
        engine.remove(row)


def test_two_bounds_of_one_test_are_met_by_one_value_and_two_tests_by_any(engine: Any) -> None:
    """Rule 6; also where both clauses share their bounds."""
    between = engine.add(clause(low=10.0, high=20.0))
    apart = engine.add(
        Clause(
            (*clause(low=10.0).predicates, *clause(high=20.0).predicates),
            frozenset({B}),
        )
    )
    both = engine.add(Clause((*clause(low=10.0).predicates, *clause(low=10.0, high=20.0).predicates), frozenset({B})))
    assert engine.match(event(None, 5.0, 25.0)).tolist() == [apart]
    assert engine.match(event(None, 5.0, 15.0)).tolist() == [between, apart, both]
    assert engine.match(event(None, 25.0)).tolist() == []


texts = st.sampled_from(["x", "y", "z"])
asked = st.builds(
    lambda text, low, high: clause(text, low, high),
    st.none() | texts,
    st.sampled_from([-math.inf, 0.0, 1.0, 2.0]),
    st.sampled_from([math.inf, 1.0, 2.0, 3.0]),
)


@settings(deadline=None)
@given(st.lists(asked, max_size=20), st.lists(st.tuples(st.none() | texts, st.none() | st.integers(0, 3)), max_size=6))
def test_events_in_columns_match_as_one_by_one(stored: list[Clause], published: list[tuple[Any, Any]]) -> None:
    """Numbers as they are, texts by place in a table."""
    table = KeyTable(["x", "y", "z"])
    present = [
        frozenset(each for each, value in zip((A, B), pair, strict=True) if value is not None) for pair in published
    ]
    batch = ColumnBatch(
        np.arange(len(published), dtype=np.int32),
        present,
        [
            ColumnValues(
                TEXT,
                np.zeros(len(published)),
                table,
                np.array([-1 if text is None else "xyz".index(text) for text, _ in published], dtype=np.int32),
            ),
            ColumnValues(NUMBER, np.array([math.nan if value is None else value for _, value in published])),
        ],
        {},
    )
    naive = NaiveEngine(ConceptGraph(0))
    naive.add_many(stored)
    expected = naive.match_batch(batch.lowered())
    for name in LE_SUBSCRIBE:
        engine: Any = ENGINES[name](ConceptGraph(0))
        engine.add_many(stored)
        assert engine.reads_columns
        found = engine.match_columns(batch)
        assert found.offsets.tolist() == expected.offsets.tolist()
        for number in range(len(published)):
            own = slice(found.offsets[number], found.offsets[number + 1])
            assert sorted(found.rows[own].tolist()) == expected.rows[own].tolist()
