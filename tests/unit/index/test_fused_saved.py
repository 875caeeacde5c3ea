"""The fused engine on disk: what is opened is what was saved, and what is not whole is refused."""

import os
import random
from pathlib import Path

import numpy as np
import pytest

from kindcast.index.array_file import read_arrays, write_arrays
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
)
from kindcast.index.concept_graph import ConceptGraph
from kindcast.index.errors import DamagedIndex, OtherGraph, OtherLayout, UnusableIndex
from kindcast.index.fused import engine as saved
from kindcast.index.fused.compaction import at_once
from kindcast.index.fused.engine import FusedEngine

TEXT, NUMBER, CONCEPT = (ColumnId(number) for number in range(3))
PARENTS = [(low, (low - 1) // 2) for low in range(1, 31)]


@pytest.fixture
def engine() -> FusedEngine:
    """Segments, dead rows, a memtable, programs, free rows, rows that never match."""
    chance = random.Random(5)
    engine = FusedEngine(ConceptGraph(31, PARENTS), memtable_rows=20, run=at_once)
    engine.add_many(clause(chance) for _ in range(600))
    engine.add(Clause(required=frozenset([AttributeId(0)]), forbidden=frozenset([AttributeId(0)])))
    for row in chance.sample(range(600), 120):
        engine.remove(ClauseRow(row))
    for _ in range(50):
        engine.add(clause(chance))
    return engine


def clause(chance: random.Random) -> Clause:
    """One that a tenth of the events match, at times with a predicate that only a program can ask."""
    low = chance.randint(0, 50)
    tests = [
        (AttributeId(0), TEXT, KeyTest(frozenset(chance.sample(["a", "b", "\ud800", "ü"], chance.randint(1, 2))))),
        (AttributeId(1), NUMBER, IntervalTest(low, low + 40.0)),
        (AttributeId(2), CONCEPT, ConceptTest(within=frozenset([ConceptId(chance.randint(0, 14))]))),
    ]
    asked = [Predicate(attribute, ((column, test),)) for attribute, column, test in chance.sample(tests, 2)]
    if chance.random() < 0.3:
        asked.append(Predicate(AttributeId(1), ((NUMBER, IntervalTest(7.0, 8.0)),), negated=True))
    return Clause(tuple(asked), frozenset(predicate.attribute for predicate in asked))


def events(count: int = 60) -> list[LoweredEvent]:
    """With all three attributes."""
    chance = random.Random(7)
    return [
        LoweredEvent(
            frozenset(AttributeId(number) for number in range(3)),
            {
                TEXT: (chance.choice(["a", "b", "c", "\ud800", "ü"]),),
                NUMBER: (float(chance.randint(0, 100)),),
                CONCEPT: (ConceptId(chance.randint(0, 30)),),
            },
        )
        for _ in range(count)
    ]


def test_fused_saved_and_opened_goes_on_as_the_one_that_was_saved(engine: FusedEngine, tmp_path: Path) -> None:
    """Same rows found, same free rows given out, and the same again after both have changed alike."""
    engine.save(tmp_path / "new" / "folder")
    opened = opened_from(tmp_path / "new" / "folder")
    opened.check_invariants()
    assert engine.match_batch(events()).rows.size > 100
    assert found(opened) == found(engine)
    chance = random.Random(9)
    more = [clause(chance) for _ in range(200)]
    rows = [engine.add(each) for each in more]
    assert [opened.add(each) for each in more] == rows
    for row in rows[::3]:
        engine.remove(row)
        opened.remove(row)
    assert opened.add_many(more[:50]) == engine.add_many(more[:50])
    opened.check_invariants()
    assert found(opened) == found(engine)


def test_fused_opened_and_changed_leaves_its_file_as_it_was(engine: FusedEngine, tmp_path: Path) -> None:
    """Rows that are removed afterwards are back when the file is opened again; two may have it open."""
    engine.save(tmp_path)
    before = found(engine)
    first, second = opened_from(tmp_path), opened_from(tmp_path)
    for row in {row for rows in before for row in rows}:
        first.remove(ClauseRow(row))
    assert [rows for rows in found(first) if rows] == []
    assert found(second) == before
    assert found(opened_from(tmp_path)) == before


def test_fused_saved_over_the_file_it_was_opened_from_replaces_it(engine: FusedEngine, tmp_path: Path) -> None:
    """The old pages stay with who has them; the name leads to the new file, and nothing else is left there."""
    engine.save(tmp_path)
    opened = opened_from(tmp_path)
    opened.remove(ClauseRow(next(row for rows in found(engine) for row in rows)))
    opened.save(tmp_path)
    assert found(opened_from(tmp_path)) == found(opened) != found(engine)
    assert os.listdir(tmp_path) == [saved.FILE]


def test_fused_without_rows_saved_and_opened_takes_some(tmp_path: Path) -> None:
    """Nothing is a state like any other."""
    FusedEngine(ConceptGraph(31, PARENTS)).save(tmp_path)
    opened = opened_from(tmp_path)
    assert found(opened) == [[]] * len(events())
    assert opened.add(Clause()) == 0
    assert found(opened) == [[0]] * len(events())


@pytest.mark.parametrize("seed", range(4))
def test_fused_file_with_changed_bytes_is_refused_or_the_same(engine: FusedEngine, tmp_path: Path, seed: int) -> None:
    """Some bytes do not count, those between arrays; any other one is noticed, and so is a missing end."""
    engine.save(tmp_path)
    path = tmp_path / saved.FILE
    whole = path.read_bytes()
    chance = random.Random(seed)
    expected = found(engine)
    refused = 0
    for _ in range(60):
        damaged = bytearray(whole)
        at = chance.choice([chance.randrange(len(whole)), chance.randrange(64), len(whole) - 1 - chance.randrange(500)])
        damaged[at] ^= 1 << chance.randrange(8)
        path.write_bytes(damaged)
        try:
            assert found(opened_from(tmp_path)) == expected
        except DamagedIndex:
            refused += 1
    assert refused > 30
    for _ in range(30):
        path.write_bytes(whole[: chance.randrange(len(whole))])
        with pytest.raises(DamagedIndex, match="build the index from the subscriptions"):
            opened_from(tmp_path)


def test_fused_file_that_something_else_wrote_is_refused(tmp_path: Path) -> None:
    """Text, nothing, or arrays of another kind: each error says which."""
    path = tmp_path / saved.FILE
    with pytest.raises(FileNotFoundError):
        opened_from(tmp_path)
    path.write_bytes(b"")
    with pytest.raises(DamagedIndex, match="0 bytes"):
        opened_from(tmp_path)
    path.write_bytes(b"subscriptions" * 100)
    with pytest.raises(DamagedIndex, match="not a file of arrays"):
        opened_from(tmp_path)
    write_arrays(path, "books", {}, {})
    with pytest.raises(OtherLayout, match="'books'"):
        opened_from(tmp_path)


def test_fused_file_of_another_layout_is_refused(
    engine: FusedEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A version that lays arrays out differently does not guess."""
    engine.save(tmp_path)
    monkeypatch.setattr(saved, "LAYOUT", saved.LAYOUT + 1)
    with pytest.raises(OtherLayout):
        opened_from(tmp_path)


@pytest.mark.parametrize("graph", [ConceptGraph(32, PARENTS), ConceptGraph(31, [*PARENTS, (5, 1)]), ConceptGraph(0)])
def test_fused_file_under_another_graph_is_refused(engine: FusedEngine, tmp_path: Path, graph: ConceptGraph) -> None:
    """Its numbers would mean other concepts."""
    engine.save(tmp_path)
    with pytest.raises(OtherGraph, match="another concept graph"):
        FusedEngine.open(tmp_path, graph)


def test_arrays_written_halfway_leave_the_file_that_was_there(tmp_path: Path) -> None:
    """An error while writing, here an array of objects, costs neither the old file nor room on the disk."""
    path = tmp_path / "file"
    write_arrays(path, "kind", {"a": 1}, {"x": np.arange(5)})
    with pytest.raises(TypeError, match="the array y"):
        write_arrays(path, "kind", {"a": 2}, {"x": np.arange(9), "y": np.array([None])})
    facts, arrays = read_arrays(path, "kind")
    assert facts == {"a": 1}
    assert arrays["x"].tolist() == [0, 1, 2, 3, 4]
    assert os.listdir(tmp_path) == ["file"]


def test_arrays_read_are_those_written_and_may_be_changed(tmp_path: Path) -> None:
    """Types, shapes, emptiness; a change stays with the reader."""
    arrays = {
        "none": np.zeros((0, 3), dtype=np.int32),
        "plane": np.arange(6, dtype=np.float64).reshape(2, 3),
        "bytes": np.frombuffer("zwölf".encode(), dtype=np.uint8),
        "every other": np.arange(10, dtype=np.int64)[::2],
    }
    write_arrays(tmp_path / "file", "kind", {}, arrays)
    _, read = read_arrays(tmp_path / "file", "kind")
    for name, array in arrays.items():
        assert (read[name].dtype, read[name].shape, read[name].tolist()) == (array.dtype, array.shape, array.tolist())
    read["plane"][0, 0] = 7.0
    assert read_arrays(tmp_path / "file", "kind")[1]["plane"][0, 0] == 0.0
    with pytest.raises(UnusableIndex):
        read_arrays(tmp_path / "file", "another kind")


def opened_from(folder: Path) -> FusedEngine:
    return FusedEngine.open(folder, ConceptGraph(31, PARENTS), memtable_rows=20, run=at_once)


def found(engine: FusedEngine) -> list[list[int]]:
    table = engine.match_batch(events())
    return [rows.tolist() for rows in np.split(table.rows, table.offsets[1:-1])]
