"""The fused engine with small memtables, so that segments, merges, tombstones, lists, masks, blocks take part."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kindcast.index.clause import (
    AttributeId,
    Clause,
    ClauseRow,
    ColumnId,
    ConceptId,
    ConceptTest,
    IntervalTest,
    KeyTest,
    LoweredEvent,
    Predicate,
    Test,
)
from kindcast.index.concept_graph import ConceptGraph
from kindcast.index.errors import IndexFull
from kindcast.index.fused import layout
from kindcast.index.fused.arrays import BLOCK_ROWS
from kindcast.index.fused.columns import KEY, ORDERED
from kindcast.index.fused.compaction import at_once
from kindcast.index.fused.engine import FusedEngine
from kindcast.index.fused.search import REMEMBERED_PLACES
from kindcast.index.naive import NaiveEngine
from tests.strategies import clauses, concept_graphs, lowered_events

CONCEPTS = 40
TEXT, NUMBER, CONCEPT, OTHER = (ColumnId(number) for number in range(4))


@pytest.fixture(params=["as it is", "masks and far blocks everywhere"])
def block_rows(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """The engine as it is, and with limits so low that a few hundred rows use every structure."""
    if request.param == "as it is":
        return BLOCK_ROWS
    monkeypatch.setattr(layout, "MASKED_ROWS", 2)
    monkeypatch.setattr(layout, "FAR_BLOCKS", 1)
    monkeypatch.setattr(layout, "FEW_ROWS", 1)
    return 128


@given(
    graph=concept_graphs(),
    stored=st.lists(clauses(), max_size=60),
    removed=st.sets(st.integers(0, 59)),
    events=st.lists(lowered_events(), min_size=1, max_size=6),
    memtable_rows=st.sampled_from([0, 1, 5]),
)
def test_fused_over_random_clauses_finds_what_naive_finds(
    graph: ConceptGraph, stored: list[Clause], removed: set[int], events: list[LoweredEvent], memtable_rows: int
) -> None:
    """One by one through memtables and merges, then thinned out, then filled again: the same rows at every stage."""
    fused, naive = FusedEngine(graph, memtable_rows=memtable_rows), NaiveEngine(graph)
    for clause in stored:
        assert fused.add(clause) == naive.add(clause)
    _assert_same(fused, naive, events)
    for row in sorted(removed):
        if row < len(stored):
            fused.remove(ClauseRow(row))
            naive.remove(ClauseRow(row))
    _assert_same(fused, naive, events)
    assert fused.add_many(stored) == naive.add_many(stored)
    _assert_same(fused, naive, events)


@pytest.mark.parametrize("seed", range(4))
def test_fused_over_many_rows_of_few_shapes_finds_what_naive_finds(seed: int, block_rows: int) -> None:
    """Long lists, masks over several words, several blocks: what a few clauses never reach."""
    chance = random.Random(seed)
    parents = [(low, chance.randrange(low)) for low in range(1, CONCEPTS) for _ in range(chance.randint(1, 2))]
    graph = ConceptGraph(CONCEPTS, parents, [(0, 5)] if seed == 0 else [])
    fused, naive = FusedEngine(graph, memtable_rows=10, block_rows=block_rows), NaiveEngine(graph)
    stored = [_clause(chance) for _ in range(1500)]
    assert fused.add_many(stored) == naive.add_many(stored)
    events = [_event(chance) for _ in range(40)]
    _assert_same(fused, naive, events)
    for row in chance.sample(range(1500), 1100):
        fused.remove(ClauseRow(row))
        naive.remove(ClauseRow(row))
    _assert_same(fused, naive, events)


def test_fused_batch_where_one_event_has_two_values_and_one_none_keeps_them_apart() -> None:
    """As many values as events says nothing about each of them."""
    fused = FusedEngine(ConceptGraph(0), memtable_rows=0)
    a = AttributeId(0)
    fused.add(Clause((Predicate(a, ((TEXT, KeyTest(frozenset(["y"]))),)),), frozenset([a])))
    events = [LoweredEvent(frozenset([a]), {TEXT: ("x", "y")}), LoweredEvent(frozenset([a]), {TEXT: ()})]
    assert fused.match_batch(events).offsets.tolist() == [0, 1, 1]


def test_fused_with_bounds_at_the_ends_of_the_floats_decides_them_exactly() -> None:
    """Infinite and extreme bounds have no equal steps; a value between two neighbours is in neither."""
    fused, naive = FusedEngine(ConceptGraph(0), memtable_rows=0), NaiveEngine(ConceptGraph(0))
    a = AttributeId(0)
    ends = [float("-inf"), -1.7e308, -1.0, -5e-324, 0.0, 5e-324, 1.0, 1.7e308, float("inf")]
    stored = [
        Clause((Predicate(a, ((NUMBER, IntervalTest(low, high)),)),), frozenset([a]))
        for low in ends
        for high in ends
        for _ in range(3)
    ]
    assert fused.add_many(stored) == naive.add_many(stored)
    values = [*ends, -0.0, 0.5, -2.0, 1e-320, float("nan")]
    _assert_same(fused, naive, [LoweredEvent(frozenset([a]), {NUMBER: (value,)}) for value in values])


def test_fused_reads_no_keys_of_numbers_for_equalities() -> None:
    """A number is compared as an interval, in a memtable as in a segment. As a key it would be looked up for every
    event from then on. Only long sets are keys."""
    fused, naive = FusedEngine(ConceptGraph(0), memtable_rows=100), NaiveEngine(ConceptGraph(0))
    a = AttributeId(0)
    predicates = [Predicate(a, ((NUMBER, KeyTest(frozenset(keys))),)) for keys in ([5.0], [1.0, 2.0, -0.0])]
    predicates.append(Predicate(a, ((NUMBER, KeyTest(frozenset([5.0]))),), negated=True))
    events = [LoweredEvent(frozenset([a]), {NUMBER: values}) for values in ((5.0,), (0.0, 3.0), (5.0, 2.0), ())]
    for engine in (fused, naive):
        for predicate in predicates:
            engine.add(Clause((predicate,), frozenset([a])))
    _assert_same(fused, naive, events)
    assert fused._columns.how == [ORDERED]
    many = Clause((Predicate(a, ((NUMBER, KeyTest(frozenset(map(float, range(50))))),)),), frozenset([a]))
    for engine in (fused, naive):
        engine.add(many)
    _assert_same(fused, naive, events)
    assert fused._columns.how == [ORDERED, KEY]


def test_fused_with_many_columns_caches_the_places_of_few_sets() -> None:
    """The places of a set of columns are as many as the engine has columns."""
    fused = FusedEngine(ConceptGraph(0), memtable_rows=5_000)
    count = 3_000
    for number in range(count):
        a = AttributeId(number)
        fused.add(Clause((Predicate(a, ((ColumnId(number), IntervalTest(0.0, 1.0)),)),), frozenset([a])))
    before = fused.nbytes
    for number in range(1_000):
        event = LoweredEvent(frozenset([AttributeId(number)]), {ColumnId(number): (0.5,)})
        assert fused.match_batch([event]).rows.tolist() == [number]
    assert fused.nbytes < before + 16 * REMEMBERED_PLACES


def _assert_same(fused: FusedEngine, naive: NaiveEngine, events: list[LoweredEvent]) -> None:
    table, expected = fused.match_batch(events), naive.match_batch(events)
    assert (table.offsets.tolist(), table.rows.tolist()) == (expected.offsets.tolist(), expected.rows.tolist())
    assert fused.match(events[0]).tolist() == naive.match(events[0]).tolist()
    fused.check_invariants()


def _clause(chance: random.Random) -> Clause:
    """One of a few shapes over one attribute a column; a tenth has a negated predicate as well."""
    tests: list[tuple[ColumnId, Test]] = []
    if chance.random() < 0.5:
        tests.append((CONCEPT, ConceptTest(frozenset([ConceptId(chance.randrange(CONCEPTS))]))))
    if chance.random() < 0.3:
        tests.append((TEXT, KeyTest(frozenset([chance.choice("abc")]))))
    for column in (NUMBER, OTHER):
        if chance.random() < 0.8:
            low = float(chance.randrange(90))
            tests.append((column, IntervalTest(low, low + chance.choice([0, 0, 20, 60]))))
    asked = [Predicate(AttributeId(column), ((column, test),)) for column, test in tests]
    if chance.random() < 0.1:
        asked.append(Predicate(AttributeId(TEXT), ((TEXT, KeyTest(frozenset("a"))),), negated=True))
    return Clause(tuple(asked), frozenset(predicate.attribute for predicate in asked))


def _event(chance: random.Random) -> LoweredEvent:
    """Mostly one value in every column; sometimes two, sometimes none."""
    drawn = {
        TEXT: lambda: chance.choice("abcd"),
        NUMBER: lambda: float(chance.randrange(100)),
        CONCEPT: lambda: ConceptId(chance.randrange(CONCEPTS)),
        OTHER: lambda: chance.uniform(0, 100),
    }
    values = {
        column: tuple({draw() for _ in range(chance.choice([1] * 12 + [2]))})
        for column, draw in drawn.items()
        if chance.random() < 0.9
    }
    return LoweredEvent(frozenset(AttributeId(column) for column in values), values)


@pytest.mark.parametrize("budget", [60_000, 90_000])
def test_fused_with_a_budget_keeps_it_and_finds_what_naive_finds(budget: int) -> None:
    """Caches and masks go first; then adding is refused and nothing is lost, until something is removed."""
    chance = random.Random(budget)
    graph = ConceptGraph(CONCEPTS, [(low, (low - 1) // 2) for low in range(1, CONCEPTS)])
    fused = FusedEngine(graph, budget=budget, run=at_once, memtable_rows=20, block_rows=128)
    naive = NaiveEngine(graph)
    events = [_event(chance) for _ in range(20)]
    stored: list[ClauseRow] = []
    for _ in range(3):
        with pytest.raises(IndexFull, match=f"{budget:,} bytes"):
            _fill(fused, naive, stored, chance, budget)
        assert len(fused) == len(naive) == len(stored)
        with pytest.raises(IndexFull):
            fused.add_many([_clause(chance) for _ in range(5_000)])
        fused.check_invariants()
        _assert_same(fused, naive, events)
        chance.shuffle(stored)
        for row in stored[len(stored) // 2 :]:
            fused.remove(row)
            naive.remove(row)
        del stored[len(stored) // 2 :]
    _assert_same(fused, naive, events)


def _fill(fused: FusedEngine, naive: NaiveEngine, stored: list[ClauseRow], chance: random.Random, budget: int) -> None:
    while True:
        clause = _clause(chance)
        stored.append(fused.add(clause))
        assert naive.add(clause) == stored[-1]
        assert fused.nbytes <= budget


def test_fused_with_room_for_rows_but_not_for_masks_goes_without() -> None:
    """The same rows with and without; the segment without is the smaller."""
    chance = random.Random(3)
    stored = [_clause(chance) for _ in range(3_000)]
    free = FusedEngine(ConceptGraph(CONCEPTS), run=at_once)
    free.add_many(stored)
    tight = FusedEngine(ConceptGraph(CONCEPTS), run=at_once, budget=free.nbytes - 1_000)
    tight.add_many(stored)
    assert tight.nbytes < free.nbytes
    events = [_event(chance) for _ in range(40)]
    assert tight.match_batch(events).rows.tolist() == free.match_batch(events).rows.tolist()
