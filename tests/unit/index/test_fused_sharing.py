"""Equal clauses of different subscriptions: one position of a segment, all of their rows."""

import random
from pathlib import Path

import pytest

from kindcast.index.array_file import read_arrays
from kindcast.index.clause import (
    AttributeId,
    Clause,
    ClauseRow,
    ColumnId,
    ConceptId,
    ConceptTest,
    IntervalTest,
    Key,
    KeyTest,
    LoweredEvent,
    Predicate,
)
from kindcast.index.concept_graph import ConceptGraph
from kindcast.index.errors import OtherLayout
from kindcast.index.fused import engine as saved
from kindcast.index.fused.compaction import at_once
from kindcast.index.fused.engine import FusedEngine
from kindcast.index.naive import NaiveEngine

A, B, C = AttributeId(0), AttributeId(1), AttributeId(2)
NUMBER, KEY, CONCEPT = ColumnId(0), ColumnId(1), ColumnId(2)
GRAPH = ConceptGraph(7, [(ConceptId(node), ConceptId((node - 1) // 2)) for node in range(1, 7)])


def different(count: int) -> list[Clause]:
    """Clauses over two and three attributes, some with an attribute that must be absent."""
    chance = random.Random(1)
    found = []
    for number in range(count):
        low = float(chance.randrange(50))
        predicates = (
            Predicate(A, ((NUMBER, IntervalTest(low, low + chance.randrange(30))),)),
            Predicate(B, ((KEY, KeyTest(frozenset({"xyz"[number % 3]}))),)),
            Predicate(C, ((CONCEPT, ConceptTest(within=frozenset({ConceptId(chance.randrange(7))}))),)),
        )
        chosen = predicates if number % 2 else predicates[:2]
        required = frozenset(each.attribute for each in chosen)
        found.append(Clause(chosen, required, frozenset({C} - required) if number % 4 == 0 else frozenset()))
    return found


def events() -> list[LoweredEvent]:
    """With one value and with several, with and without the third attribute."""
    chance = random.Random(2)
    found = []
    for number in range(60):
        numbers = tuple({float(chance.randrange(80)) for _ in range(1 + number % 2)})
        values: dict[ColumnId, tuple[Key, ...]] = {NUMBER: numbers, KEY: (chance.choice("xyz"),)}
        if number % 3:
            values[CONCEPT] = (ConceptId(chance.randrange(7)),)
        found.append(LoweredEvent(frozenset({A, B, C} if number % 3 else {A, B}), values))
    return found


def engine_of(clauses: list[Clause], *, block_rows: int = 128) -> tuple[FusedEngine, NaiveEngine, list[ClauseRow]]:
    """All in one segment, and the plain twin."""
    engine, naive = FusedEngine(GRAPH, run=at_once, block_rows=block_rows), NaiveEngine(GRAPH)
    rows = naive.add_many(clauses)
    assert engine.add_many(clauses) == rows
    engine.merge_now()
    return engine, naive, rows


def same(engine: FusedEngine, naive: NaiveEngine) -> None:
    """Both find the same, event by event and together."""
    engine.check_invariants()
    expected = naive.match_batch(events())
    table = engine.match_batch(events())
    assert (table.offsets.tolist(), table.rows.tolist()) == (expected.offsets.tolist(), expected.rows.tolist())
    for event in events():
        rows = naive.match(event).tolist()
        assert engine.match(event).tolist() == rows
        assert engine.explain(event)["found"] == len(rows)


@pytest.mark.parametrize("clusters", ["large", "small"])
def test_equal_clauses_share_a_position_and_are_all_found(clusters: str) -> None:
    """Five subscriptions each: a fifth of the positions; and it goes on so while rows come and go."""
    count = 150 if clusters == "large" else 20
    clauses = different(count) * 5
    random.Random(3).shuffle(clauses)
    engine, naive, rows = engine_of(clauses)
    (segment,) = engine._compaction.parts.segments
    assert segment.shared is not None
    assert segment.rows.size < 0.3 * len(clauses)
    assert segment.live == len(clauses)
    same(engine, naive)
    for row in random.Random(4).sample(rows, len(rows) * 2 // 5):
        engine.remove(row)
        naive.remove(row)
    assert segment.live == len(naive)
    same(engine, naive)
    for clause in different(30) * 2:
        assert engine.add(clause) == naive.add(clause)
    same(engine, naive)
    engine.merge_now()
    same(engine, naive)


def test_position_dies_with_the_last_of_its_rows() -> None:
    """Not before; then nothing finds it, and the merge forgets it."""
    engine, naive, rows = engine_of(different(1) * 3 + different(40))
    for row in rows[:3]:
        engine.remove(row)
        naive.remove(row)
        same(engine, naive)
    engine.merge_now()
    same(engine, naive)


def test_clauses_that_differ_do_not_share() -> None:
    """And nothing is copied once more for them."""
    engine, naive, _ = engine_of(different(300))
    (segment,) = engine._compaction.parts.segments
    assert segment.shared is None
    same(engine, naive)


def test_shared_positions_are_saved_and_opened_with_what_was_removed(tmp_path: Path) -> None:
    """A version that knows no shared positions refuses the file, instead of reading it wrongly."""
    engine, naive, rows = engine_of(different(50) * 4)
    for row in rows[::3]:
        engine.remove(row)
        naive.remove(row)
    engine.save(tmp_path)
    opened = FusedEngine.open(tmp_path, GRAPH, run=at_once)
    same(opened, naive)
    with pytest.raises(OtherLayout):
        read_arrays(tmp_path / saved.FILE, saved.kind_of(shares=False))
