"""Who owns the memory of results: whoever holds them, or any view of them; then the next result."""

import numpy as np
import pytest

from kindcast.index.clause import AttributeId, Clause, ColumnId, IntervalTest, LoweredEvent, Predicate
from kindcast.index.concept_graph import ConceptGraph
from kindcast.index.fused import search
from kindcast.index.fused.engine import FusedEngine
from kindcast.index.fused.search import ResultMemory

PRICE, NUMBER = AttributeId(0), ColumnId(0)


@pytest.mark.parametrize("memtable_rows", [0, 1_000])
def test_results_that_are_held_never_change(memtable_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of many results, and a view of a view of each, is what it was when it was given."""
    engine = FusedEngine(ConceptGraph(0), memtable_rows=memtable_rows)
    for end in range(100):
        test = IntervalTest(0.0, float(end))
        engine.add(Clause((Predicate(PRICE, ((NUMBER, test),)),), frozenset({PRICE})))
    engine.merge_now() if not memtable_rows else None
    monkeypatch.setattr(search, "FEW_ROWS", 10)
    events = [LoweredEvent(frozenset({PRICE}), {NUMBER: (float(value),)}) for value in range(100)]
    held = [engine.match_batch(events[start:]) for start in range(20)]
    views = [table.rows[1:][:-1] for table in held]
    for start, (table, view) in enumerate(zip(held, views, strict=True)):
        expected = [row for value in range(start, 100) for row in range(value, 100)]
        assert table.rows.tolist() == expected
        assert view.tolist() == expected[1:-1]


def test_memory_of_a_result_is_lent_again_once_no_view_of_it_is_left() -> None:
    """Not while a view of a view lives, and not twice at once."""
    memory = ResultMemory()
    first = memory.lend(100_000)
    place = first.ctypes.data
    view = first[10:][5:]
    del first
    second = memory.lend(100_000)
    assert second.ctypes.data != place
    del view
    third, fourth = memory.lend(50_000), memory.lend(50_000)
    assert third.ctypes.data == place
    assert len({each.ctypes.data for each in (second, third, fourth)}) == 3


def test_free_memory_of_results_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """At most two blocks, none of them large; and none after it is given up."""
    monkeypatch.setattr(search, "KEPT_ROWS", 200_000)
    memory = ResultMemory()
    results = [memory.lend(100_000) for _ in range(10)] + [memory.lend(1_000_000)]
    del results
    assert 0 < memory.nbytes <= 2 * 200_000 * np.dtype(np.int32).itemsize
    held = memory.lend(100_000)
    memory.clear()
    del held
    assert memory.nbytes == 0
