"""Rows of small clusters: hundreds of attribute sets, found together by masks."""

import random
import sys
from pathlib import Path

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
from kindcast.index.fused import columns, segment
from kindcast.index.fused import small_clusters as scattered
from kindcast.index.fused.compaction import at_once
from kindcast.index.fused.engine import FusedEngine
from kindcast.index.naive import NaiveEngine

ATTRIBUTES, CONCEPTS = 12, 30
GRAPH = ConceptGraph(CONCEPTS, ((low, (low - 1) // 2) for low in range(1, CONCEPTS)))


def a_test(chance: random.Random, attribute: int) -> Test:
    """Texts, numbers and concepts, by attribute."""
    if attribute % 3 == 0:
        return KeyTest(frozenset([chance.choice("abcd")]))
    if attribute % 3 == 1:
        low = chance.randrange(20)
        return IntervalTest(float(low), float(low + chance.randrange(10)))
    return ConceptTest(within=frozenset([ConceptId(chance.randrange(CONCEPTS))]))


def a_clause(chance: random.Random) -> Clause:
    """Some attributes asked, one perhaps required and not asked, one perhaps forbidden."""
    asked = chance.sample(range(ATTRIBUTES), chance.randrange(1, 5))
    others = [each for each in range(ATTRIBUTES) if each not in asked]
    twice = chance.sample(asked, chance.random() < 0.3)  # different values of an event may satisfy the two
    predicates = [Predicate(AttributeId(each), ((ColumnId(each), a_test(chance, each)),)) for each in (*asked, *twice)]
    bare = chance.sample(others, chance.randrange(2))
    if chance.random() < 0.1:  # a program has to be asked as well
        predicates.append(Predicate(AttributeId(0), ((ColumnId(0), KeyTest(frozenset("a"))),), negated=True))
        bare.append(0)
    forbidden = chance.sample([each for each in others if each not in bare], chance.randrange(2))
    return Clause(
        tuple(predicates), frozenset(map(AttributeId, (*asked, *bare))), frozenset(map(AttributeId, forbidden))
    )


def an_event(chance: random.Random, *, several: bool) -> LoweredEvent:
    """Most attributes, one value each or up to three."""
    present = chance.sample(range(ATTRIBUTES), chance.randrange(4, ATTRIBUTES + 1))

    def value(attribute: int) -> str | float | int:
        kind = attribute % 3
        return (
            chance.choice("abcde") if kind == 0 else float(chance.randrange(30)) if kind == 1 else chance.randrange(30)
        )

    values = {
        ColumnId(each): tuple(dict.fromkeys(value(each) for _ in range(chance.randrange(1, 4) if several else 1)))
        for each in present
    }
    return LoweredEvent(frozenset(map(AttributeId, present)), values)


@pytest.mark.parametrize("limit", [64, 2, 0])
def test_scattered_rows_are_found_as_by_the_plain_twin(
    limit: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With masks for all columns and attributes, for two, for none; thinned out; saved, opened; told by `explain`."""
    monkeypatch.setattr(scattered, "MOST_COLUMNS", limit)
    monkeypatch.setattr(scattered, "MOST_ATTRIBUTES", limit)
    chance = random.Random(limit)
    stored = [a_clause(chance) for _ in range(800)]
    fused, naive = FusedEngine(GRAPH, memtable_rows=50, run=at_once), NaiveEngine(GRAPH)
    assert fused.add_many(stored) == naive.add_many(stored)
    assert fused._compaction.parts.segments[0].scattered is not None
    events = [
        *(an_event(chance, several=False) for _ in range(60)),
        *(an_event(chance, several=True) for _ in range(20)),
    ]

    def same(engine: FusedEngine) -> None:
        for event, rows in zip(events, expected, strict=True):
            assert engine.match(event).tolist() == rows
        for event, rows in list(zip(events, expected, strict=True))[::8]:  # in Python, so a few of each sort
            assert engine.explain(event)["found"] == len(rows)
        assert engine.match_batch(events).rows.tolist() == [row for rows in expected for row in rows]
        engine.check_invariants()

    expected = [naive.match(event).tolist() for event in events]
    same(fused)
    for row in chance.sample(range(800), 300):
        fused.remove(ClauseRow(row))
        naive.remove(ClauseRow(row))
    expected = [naive.match(event).tolist() for event in events]
    same(fused)
    fused.save(tmp_path)
    same(FusedEngine.open(tmp_path, GRAPH, memtable_rows=50, run=at_once))
    fused.merge_now()
    same(fused)


def test_cached_sets_of_many_attributes_keep_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Events of hundreds of attributes, of which others are absent each time: the cached sets count as they are."""
    most, width = 100_000, 400
    for module in (scattered, segment):
        monkeypatch.setattr(module, "REMEMBERED_BYTES", most)
    fused = FusedEngine(GRAPH, memtable_rows=50, run=at_once)
    exists = [Clause((), frozenset([AttributeId(number)]), frozenset()) for number in range(width)]
    fused.add_many(exists + [exists[0]] * 200)  # a cluster that is not small
    fused.merge_now()
    (only,) = fused._compaction.parts.segments
    assert only.scattered is not None
    caches = (only.scattered._known, only.visiting._known)
    before = fused.nbytes
    for absent in range(1, 40):
        present = frozenset(AttributeId(number) for number in range(width) if number != absent)
        assert fused.match(LoweredEvent(present, {})).size == width - 1 + 200
        for cached in caches:
            assert cached
            assert sum(sys.getsizeof(each) for each in cached) <= most
    assert fused.nbytes > before
    fused.check_invariants()


def test_cached_layouts_of_many_columns_keep_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same for the columns of such events."""
    monkeypatch.setattr(columns, "REMEMBERED_COLUMNS", 200)
    width = 50
    fused = FusedEngine(GRAPH, memtable_rows=50, run=at_once)
    test = KeyTest(frozenset("a"))
    fused.add_many(
        Clause((Predicate(AttributeId(each), ((ColumnId(each), test),)),), frozenset([AttributeId(each)]), frozenset())
        for each in range(width)
    )
    for absent in (*range(20), *range(20)):
        there = [number for number in range(width) if number != absent]
        values = {ColumnId(number): ("a",) for number in there}
        assert fused.match(LoweredEvent(frozenset(map(AttributeId, there)), values)).size == width - 1
        assert 0 < sum(map(len, fused._columns._layouts)) <= 200
