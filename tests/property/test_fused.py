"""The fused engine with tiny limits, so that a few steps freeze, merge, kill and rebuild: it finds what the plain twin
finds, by rows and by columns, while merges run, and after it was saved and opened."""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule

from kindcast.index.clause import AttributeId, Clause, ClauseRow, ColumnId, Key, LoweredEvent
from kindcast.index.concept_graph import ConceptGraph
from kindcast.index.engine import ColumnBatch, ColumnValues, KeyTable
from kindcast.index.fused import search, segment
from kindcast.index.fused import segment as sharing
from kindcast.index.fused import small_clusters as scattered
from kindcast.index.fused.compaction import at_once, in_thread
from kindcast.index.fused.engine import FusedEngine
from kindcast.index.naive import NaiveEngine
from tests.strategies import clauses, concept_graphs, lowered_events


class FusedFollowsNaive(RuleBasedStateMachine):
    """Additions, removals, merges, matches, batches and columns in any order; now and then the engine is saved, and
    what is opened goes on in its place, or beside it for one comparison."""

    rows: Bundle[ClauseRow] = Bundle("rows")

    @initialize(
        graph=concept_graphs(),
        memtable_rows=st.sampled_from([0, 1, 4, 100]),
        runs=st.sampled_from(["at once", "later", "later", "in a thread"]),
        small=st.sampled_from([None, 1, 3]),
        masks=st.sampled_from([0, 1, 64]),
        saves=st.sampled_from([sharing.SAVES, 1_000]),
    )
    def begin(
        self, graph: ConceptGraph, memtable_rows: int, runs: str, small: int | None, masks: int, saves: int
    ) -> None:
        """An empty engine whose memtable is full after a few rows; merges run at once, when a rule says so, or beside.
        Small clusters are visited, or found together, with few masks or all. Equal clauses share a position, where that
        saves a quarter of the rows or any."""
        self.patched = pytest.MonkeyPatch()
        self.patched.setattr(sharing, "SAVES", saves)
        self.patched.setattr(sharing, "COPIED", 0 if saves == 1_000 else sharing.COPIED)
        self.patched.setattr(search, "FEW_ROWS", 0)
        if small is not None:
            self.patched.setattr(segment, "FEWEST_SCATTERED", small)
            self.patched.setattr(scattered, "MOST_COLUMNS", masks)
            self.patched.setattr(scattered, "MOST_ATTRIBUTES", masks)
        self.waiting: list[Callable[[], None]] = []
        run = {"at once": at_once, "later": self.waiting.append, "in a thread": in_thread}[runs]
        self.limits: dict[str, Any] = {"memtable_rows": memtable_rows, "block_rows": 64, "run": run}
        self.graph = graph
        self.fused, self.naive = FusedEngine(graph, **self.limits), NaiveEngine(graph)
        self.tables: dict[ColumnId, KeyTable] = {}

    def teardown(self) -> None:
        """The limits are what they were."""
        self.patched.undo()

    @rule(target=rows, clause=clauses())
    def add(self, clause: Clause) -> ClauseRow:
        """One row; the memtable freezes and segments merge as they are due."""
        row = self.naive.add(clause)
        assert self.fused.add(clause) == row
        return row

    @rule(target=rows, stored=st.lists(clauses(), min_size=1, max_size=20), times=st.integers(1, 3))
    def add_many(self, stored: list[Clause], times: int) -> object:
        """Many at once, and each as often."""
        stored = stored * times
        added = self.naive.add_many(stored)
        assert self.fused.add_many(stored) == added
        return multiple(*added)

    @rule(row=consumes(rows))
    def remove(self, row: ClauseRow) -> None:
        """Out of the memtable, or dead in a segment, which may be rebuilt."""
        self.fused.remove(row)
        self.naive.remove(row)

    @rule(event=lowered_events())
    def match(self, event: LoweredEvent) -> None:
        """One event."""
        expected = self.naive.match(event).tolist()
        assert self.fused.match(event).tolist() == expected
        # Each row once for each of its alternatives that holds.
        told = self.fused.explain(event)
        assert told["found"] >= len(expected)
        assert (told["found"] == 0) == (expected == [])
        if self.fused._locations.repeating == 0:
            assert told["found"] == len(expected)

    @rule(events=st.lists(lowered_events(), max_size=4), apart=st.frozensets(st.integers(0, 3), max_size=2))
    def match_batch(self, events: list[LoweredEvent], apart: frozenset[int]) -> None:
        """Several events, as rows and as columns, whose tables of keys live on from batch to batch."""
        expected = self.naive.match_batch(events)
        table = self.fused.match_batch(events)
        assert (table.offsets.tolist(), table.rows.tolist()) == (expected.offsets.tolist(), expected.rows.tolist())
        whole = in_columns(events, self.tables, apart)
        for first in range(min(2, len(events) + 1)):  # all of it, and a part
            batch = whole.part(first, len(events))
            assert [_as_sets(event) for event in batch.lowered()] == [_as_sets(event) for event in events[first:]]
            found = self.fused.match_columns(batch)
            assert np.diff(found.offsets).tolist() == np.diff(expected.offsets)[first:].tolist()
            for event, (low, high) in enumerate(zip(found.offsets, found.offsets[1:], strict=False), first):
                begin, end = expected.offsets[event : event + 2]
                assert sorted(found.rows[low:high].tolist()) == expected.rows[begin:end].tolist()

    @rule()
    def merges_run(self) -> None:
        """What waited runs; the next call takes it in."""
        while self.waiting:
            self.waiting.pop()()

    @rule()
    def merge_now(self) -> None:
        """Everything in one segment."""
        self.fused.merge_now()
        assert len(self.fused._compaction.parts.segments) <= 1

    @rule(event=lowered_events(), goes_on=st.booleans())
    def save_and_open(self, event: LoweredEvent, goes_on: bool) -> None:
        """The same rows; what is opened may take the place of what was saved, whose merges are forgotten."""
        with tempfile.TemporaryDirectory() as folder:
            self.fused.save(Path(folder))
            opened = FusedEngine.open(Path(folder), self.graph, **self.limits)
        opened.check_invariants()
        assert len(opened) == len(self.fused)
        assert opened.match(event).tolist() == self.naive.match(event).tolist()
        if goes_on:
            self.fused = opened
            self.waiting.clear()

    @invariant()
    def structure_is_sound(self) -> None:
        """After every step."""
        if hasattr(self, "fused"):
            self.fused.check_invariants()
            assert len(self.fused) == len(self.naive)


TestFusedFollowsNaive = FusedFollowsNaive.TestCase
TestFusedFollowsNaive.settings = settings(stateful_step_count=20)


def in_columns(
    events: Sequence[LoweredEvent], tables: dict[ColumnId, KeyTable], apart: frozenset[int] = frozenset()
) -> ColumnBatch:
    """The same events as a batch in columns; columns of numbers as numbers, others by tables of keys, which grow.
    Events in `apart` stand beside the columns. A column in which some event has several values has offsets; every other
    of these is there twice, with the first value of each event and with the others."""
    presents: dict[frozenset[AttributeId], int] = {}
    kinds = np.array([presents.setdefault(event.present, len(presents)) for event in events], dtype=np.int32)
    several = {row: events[row] for row in apart if row < len(events)}
    columns: list[ColumnValues] = []
    for column in sorted({column for event in events for column in event.values}):
        cells = [() if row in several else event.values.get(column, ()) for row, event in enumerate(events)]
        if all(len(keys) <= 1 for keys in cells):
            columns.append(_column(column, [(*keys, None)[0] for keys in cells], None, tables))
        elif column % 2:
            columns.append(_column(column, [(*keys, None)[0] for keys in cells], None, tables))
            others: list[tuple[Key | None, ...]] = [(None, *keys[1:]) for keys in cells]
            columns.append(_column(column, [key for keys in others for key in keys], others, tables))
        else:
            columns.append(_column(column, [key for keys in cells for key in keys], cells, tables))
    return ColumnBatch(kinds, list(presents), columns, several)


def _column(
    column: ColumnId,
    keys: Sequence[Key | None],
    of_events: Sequence[Sequence[Key | None]] | None,
    tables: dict[ColumnId, KeyTable],
) -> ColumnValues:
    offsets = None if of_events is None else np.cumsum([0, *map(len, of_events)], dtype=np.int64)
    if all(key is None or isinstance(key, float) for key in keys):
        numbers = np.array([np.nan if key is None else key for key in keys], dtype=np.float64)
        return ColumnValues(column, numbers, offsets=offsets)
    table = tables.setdefault(column, KeyTable())
    places = []
    for key in keys:
        if key is not None and key not in table.keys:
            table.keys.append(key)
        places.append(-1 if key is None else table.keys.index(key))
    return ColumnValues(column, np.zeros(0), table, np.array(places, dtype=np.int32), offsets)


def _as_sets(event: LoweredEvent) -> tuple[frozenset[AttributeId], dict[ColumnId, frozenset[Key]]]:
    return event.present, {column: frozenset(keys) for column, keys in event.values.items() if keys}
