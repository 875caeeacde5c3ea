"""One event through one segment in one call: the rows of a batch of one, and of the plain twin."""

import random
from collections.abc import Callable

import pytest

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
from kindcast.index.fused import segment as sharing
from kindcast.index.fused.compaction import at_once
from kindcast.index.fused.engine import FusedEngine
from kindcast.index.fused.search import FEW_UNSORTED
from kindcast.index.registry import new_engine

CONCEPTS = 40
ATTRIBUTES = tuple(AttributeId(number) for number in range(4))


@pytest.fixture
def graph() -> ConceptGraph:
    """A tree of three children each."""
    return ConceptGraph(CONCEPTS, [(ConceptId(each), ConceptId((each - 1) // 3)) for each in range(1, CONCEPTS)])


def clause_of(rng: random.Random) -> Clause:
    """Two of: a range, a key, a concept; all can stand in a segment without programs."""
    predicates = []
    for attribute in rng.sample(ATTRIBUTES, 2):
        tests: dict[int, Test] = {
            0: IntervalTest(float(rng.randint(-5, 5)), float(rng.randint(0, 60))),
            1: KeyTest(frozenset({rng.choice("abcdef")})),
            2: ConceptTest(within=frozenset({ConceptId(rng.randrange(CONCEPTS))})),
            3: KeyTest(frozenset({float(rng.randint(0, 9))})),
        }
        predicates.append(Predicate(attribute, ((ColumnId(attribute), tests[attribute]),)))
    return Clause(tuple(predicates), frozenset(each.attribute for each in predicates))


def event_of(rng: random.Random) -> LoweredEvent:
    """Some of the four attributes, now and then with a key that nobody knows or a number beyond all codes."""
    values = {
        ColumnId(0): (rng.choice([-1.0, 0.0, 7.0, 40.5, 1e300, -1e300]),),
        ColumnId(1): (rng.choice("abcdefxyz"),),
        ColumnId(2): (ConceptId(rng.randrange(CONCEPTS)),),
        ColumnId(3): (float(rng.randint(0, 12)),),
        ColumnId(9): (1.0,),
    }
    present = [column for column in values if rng.random() < 0.8]
    return LoweredEvent(
        frozenset(AttributeId(each) for each in present if each < 4), {each: values[each] for each in present}
    )


@pytest.mark.parametrize("block_rows", [8, 1 << 14])
def test_single_event_gives_the_rows_of_a_batch_in_order(
    graph: ConceptGraph, block_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few and many rows, one pass and several, rows that were removed, columns and keys that came later."""
    rng = random.Random(block_rows)
    monkeypatch.setattr(sharing, "SAVES", 0)  # where rows share, an event goes as a batch
    engine = FusedEngine(graph, memtable_rows=0, run=at_once, block_rows=block_rows)
    naive = new_engine("naive", graph)
    rows: list[ClauseRow] = []
    for _ in range(3):
        added = [clause_of(rng) for _ in range(900)]
        rows += engine.add_many(added)
        naive.add_many(added)
        for row in rng.sample(rows, 60):
            engine.remove(row)
            naive.remove(row)
            rows.remove(row)
        engine.merge_now()
        (segment,), _ = engine._compaction.parts
        assert segment.is_plain
        found = 0
        for event in (event_of(rng) for _ in range(40)):
            expected = naive.match(event).tolist()
            assert engine.match(event).tolist() == expected
            assert engine.match_batch([event]).rows.tolist() == expected
            found = max(found, len(expected))
        assert found > FEW_UNSORTED


def test_single_event_with_several_values_goes_as_a_batch(graph: ConceptGraph) -> None:
    """Two values in a column, a value that is none, and no value at all."""
    rng = random.Random(1)
    engine, naive = FusedEngine(graph, memtable_rows=0, run=at_once), new_engine("naive", graph)
    added = [clause_of(rng) for _ in range(300)]
    engine.add_many(added)
    naive.add_many(added)
    everything = frozenset(ATTRIBUTES)
    for event in (
        LoweredEvent(everything, {ColumnId(1): ("a", "b"), ColumnId(0): (3.0,)}),
        LoweredEvent(everything, {ColumnId(1): (), ColumnId(0): (3.0,)}),
        LoweredEvent(everything, {}),
        LoweredEvent(frozenset(), {}),
    ):
        assert engine.match(event).tolist() == naive.match(event).tolist()


def test_single_event_after_an_addition_is_matched_by_the_newest_rows_too(graph: ConceptGraph) -> None:
    """A row in the memtable, a reader of a column that had none, and a second segment are seen at once."""
    engine = FusedEngine(graph, memtable_rows=2, run=at_once)
    first = Clause((Predicate(ATTRIBUTES[0], ((ColumnId(0), IntervalTest(0.0, 5.0)),)),), frozenset({ATTRIBUTES[0]}))
    by_key = Clause(
        (Predicate(ATTRIBUTES[0], ((ColumnId(0), KeyTest(frozenset({3.0}))),)),), frozenset({ATTRIBUTES[0]})
    )
    event = LoweredEvent(frozenset({ATTRIBUTES[0]}), {ColumnId(0): (3.0,)})
    expected = [int(row) for row in engine.add_many([first] * 3)]
    assert engine.match(event).tolist() == expected
    for _ in range(6):
        expected.append(int(engine.add(by_key)))
        assert engine.match(event).tolist() == expected
    engine.merge_now()
    assert engine.match(event).tolist() == expected
    engine.check_invariants()


def test_single_event_gives_the_rows_of_several_segments_and_memtables_in_order(
    graph: ConceptGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Merges wait, so that segments stay apart and a sealed memtable is asked. New rows get numbers that were free."""
    rng = random.Random(3)
    monkeypatch.setattr(sharing, "SAVES", 0)
    waiting: list[Callable[[], None]] = []
    engine = FusedEngine(graph, memtable_rows=40, run=waiting.append)
    naive = new_engine("naive", graph)
    rows: list[ClauseRow] = []
    for count in (3_000, 300, *(1,) * 100):
        added = [clause_of(rng) for _ in range(count)]
        rows += engine.add_many(added)
        naive.add_many(added)
        for row in rng.sample(rows, max(1, count // 10)):
            engine.remove(row)
            naive.remove(row)
            rows.remove(row)
        event = event_of(rng)
        assert engine.match(event).tolist() == naive.match(event).tolist()
    segments, memtables = engine._compaction.parts
    assert len(segments) > 1, segments
    assert sum(map(bool, map(len, memtables))) > 1, memtables
    for event in (event_of(rng) for _ in range(40)):
        expected = naive.match(event).tolist()
        assert engine.match(event).tolist() == expected
        assert engine.match_batch([event]).rows.tolist() == expected
