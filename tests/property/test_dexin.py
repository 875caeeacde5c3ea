"""The `dexin` engine by its other doors: clauses in columns, events in columns, rows that come and go."""

from typing import cast

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kindcast.index.clause import AttributeId, ColumnId, ConceptId, Key, LoweredEvent
from kindcast.index.concept_graph import ConceptGraph
from kindcast.index.engine import (
    ClauseColumns,
    ColumnBatch,
    ColumnValues,
    ConceptOperands,
    IntervalOperands,
    KeyOperands,
    KeyTable,
    OperandColumn,
)
from kindcast.index.published.dexin import DexinEngine
from kindcast.index.registry import new_engine
from tests.strategies import clauses, concept_graphs, lowered_events

TEXTS = ("a", "b", "c")
ends = st.integers(0, 6).map(float)


@st.composite
def clause_columns(draw: st.DrawFn) -> ClauseColumns:
    """Up to 40 clauses of one form over texts, numbers and concepts, and an attribute that must be there or away."""
    n = draw(st.integers(1, 40))
    tests: list[OperandColumn] = []
    attributes = [AttributeId(number) for number in range(3)]
    if draw(st.booleans()):
        places = draw(st.lists(st.integers(0, 2), min_size=n, max_size=n))
        tests.append(KeyOperands(attributes[0], ColumnId(0), TEXTS, np.array(places, dtype=np.int32)))
    for _ in range(draw(st.integers(0, 2))):
        low, high = (np.array(draw(st.lists(ends, min_size=n, max_size=n))) for _ in range(2))
        tests.append(IntervalOperands(attributes[1], ColumnId(1), low, high))
    if draw(st.booleans()):
        concepts = np.array(draw(st.lists(st.integers(0, 6), min_size=n, max_size=n)), dtype=np.int32)
        tests.append(ConceptOperands(attributes[2], ColumnId(2), concepts, exactly=draw(st.booleans())))
    extra = draw(st.frozensets(st.sampled_from([AttributeId(3), AttributeId(4)]), max_size=1))
    forbidden = draw(st.frozensets(st.just(AttributeId(5)), max_size=1))
    return ClauseColumns(np.arange(n), frozenset(test.attribute for test in tests) | extra, forbidden, tuple(tests))


@st.composite
def column_batches(draw: st.DrawFn) -> ColumnBatch:
    """Up to six events over the same attributes, some values absent."""
    n = draw(st.integers(1, 6))
    several = st.lists(st.integers(-1, 2), min_size=n, max_size=n)
    texts, concepts = np.array(draw(several), dtype=np.int32), np.array(draw(several), dtype=np.int32)
    maybe = st.one_of(ends, st.just(float("nan")))
    numbers = np.array(draw(st.lists(maybe, min_size=n, max_size=n)))
    presents, kinds = [], []
    for k in range(n):
        held = {AttributeId(0)} if texts[k] >= 0 else set()
        held |= {AttributeId(1)} if numbers[k] == numbers[k] else set()
        held |= {AttributeId(2)} if concepts[k] >= 0 else set()
        presents.append(frozenset(held | draw(st.sets(st.sampled_from([AttributeId(3), AttributeId(5)])))))
        kinds.append(k)
    nothing = np.full(n, np.nan)
    columns = (
        ColumnValues(ColumnId(0), nothing, KeyTable(list(TEXTS)), texts),
        ColumnValues(ColumnId(1), numbers),
        ColumnValues(ColumnId(2), nothing, KeyTable([cast(Key, ConceptId(c)) for c in (1, 4, 6)]), concepts),
    )
    return ColumnBatch(np.array(kinds, dtype=np.int32), presents, columns, {})


@given(graph=concept_graphs(), columns=st.lists(clause_columns(), max_size=3), batch=column_batches())
def test_dexin_in_columns_finds_what_naive_finds(
    graph: ConceptGraph, columns: list[ClauseColumns], batch: ColumnBatch
) -> None:
    """Clauses added as columns are those that they stand for, events in columns are those that they stand for."""
    engine, naive = DexinEngine(graph, slot_rows=1), new_engine("naive", graph)
    for each in columns:
        assert engine.add_columns([], [each], len(each)).tolist() == naive.add_many(each.clauses())
    engine.check_invariants()
    table, expected = engine.match_columns(batch), naive.match_batch(batch.lowered())
    assert table.offsets.tolist() == expected.offsets.tolist()
    assert table.rows.tolist() == expected.rows.tolist()


@given(
    graph=concept_graphs(),
    stored=st.lists(clauses(), min_size=1, max_size=60),
    gone=st.sets(st.integers(0, 59), max_size=20),
    more=st.lists(clauses(), max_size=10),
    events=st.lists(lowered_events(), min_size=1, max_size=4),
    plan=st.integers(0, 3),
)
def test_dexin_rows_that_come_and_go_leave_sound_slots(
    graph: ConceptGraph,
    stored: list[object],
    gone: set[int],
    more: list[object],
    events: list[LoweredEvent],
    plan: int,
) -> None:
    """By every plan, with a slot for every bound: internals are sound after each step, matches are those of naive."""
    engine, naive = DexinEngine(graph, plan=plan, slot_rows=1), new_engine("naive", graph)
    for each in (engine, naive):
        rows = each.add_many(stored)  # type: ignore[arg-type]
        for row in sorted(gone & set(rows)):
            each.remove(row)
        each.check_invariants()
        for clause in more:
            each.add(clause)  # type: ignore[arg-type]
        each.check_invariants()
    assert engine.match_batch(events).rows.tolist() == naive.match_batch(events).rows.tolist()
