"""The `fused` engine: immutable segments matched by compiled kernels, and a small memtable of new rows.

    add ─▶ memtable (masks, programs) ─▶ sealed ─▶ merged with smaller segments ─▶ Segment: clusters, lists, masks
    remove ─▶ out of the memtable, or a tombstone; a segment of half tombstones is merged without them

    events ─▶ Columns.encode ─▶ search: match_segment for each segment, match_memtable ─▶ distinct_rows ─▶ rows

From the literature: clusters by attribute set and one access path per row (Fabret et al., "Le Subscribe":
schemas, equality-preferred), columns cut into cells with one AND per column (GEM, DEXIN), visits through the concepts
above a value (CTPS), and exact bounds last, for what bits cannot decide.

Exact for the whole clause language; `kindcast.index.fused.conjuncts` says which predicates stand in records and masks,
and which are asked by programs of the rows that got so far. Clauses are not kept, only their compiled form.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from kindcast.index.clause import AttributeId, Clause, ClauseRow, LoweredEvent
from kindcast.index.columns import (
    ClauseColumns,
    ColumnBatch,
    ConceptOperands,
    IntervalOperands,
    KeyOperands,
    OperandColumn,
    in_order,
)
from kindcast.index.concept_graph import ConceptGraph
from kindcast.index.engine import Engine, RowTable
from kindcast.index.errors import IndexFull, UnknownRow
from kindcast.index.fused.arrays import BLOCK_ROWS, Bytes, Codes, Floats, Ints, Packed, Words
from kindcast.index.fused.columns import ColumnLayout, Columns, EventBatch
from kindcast.index.fused.compaction import Builder, Compaction, in_thread
from kindcast.index.fused.conjuncts import CONCEPT, KEY, ORDERED, decompose
from kindcast.index.fused.explain import explained
from kindcast.index.fused.graph_arrays import GraphArrays, graph_arrays
from kindcast.index.fused.kernels import match_segment
from kindcast.index.fused.layout import ClusterKey, Groups, Place, RowGroup, groups_of_places, merged, places_of
from kindcast.index.fused.memtable import FROZEN, IN_MEMTABLE, NEVER, NOWHERE, RowLocations, match_memtable
from kindcast.index.fused.residuals import GrowingRest, Rest
from kindcast.index.fused.search import Scratch, distinct_rows, search
from kindcast.index.fused.segment import Segment
from kindcast.index.fused.snapshot import Saved, open_saved, save
from kindcast.index.jit import announce_compilation, compiled

__all__ = ["FusedEngine"]


# Clauses in columns → rows by cluster: what `groups_of_parts` does clause by clause, done column by column.
#
# ClauseColumns ─▶ how and where each test is read ─▶ ends float64[n, slots, 2] ─▶ RowGroup under its cluster


def possible(clauses: ClauseColumns) -> npt.NDArray[np.bool_]:
    """Which of the clauses some event can match: all but those with an empty interval. `bool[n]`."""
    if not clauses.required.isdisjoint(clauses.forbidden):
        return np.zeros(len(clauses), dtype=np.bool_)
    good = np.ones(len(clauses), dtype=np.bool_)
    for test in clauses.tests:
        if isinstance(test, IntervalOperands):
            good &= test.low <= test.high
    return good


def groups_of_columns(
    bulk: Iterable[tuple[ClauseColumns, npt.NDArray[np.int32]]], columns: Columns
) -> dict[ClusterKey, RowGroup]:
    """Each of the `bulk` with the row of every clause, -1 where no event can match it. A few ns per test, and some µs
    for each form."""
    by_key: dict[ClusterKey, list[RowGroup]] = {}
    for clauses, rows in bulk:
        kept = np.flatnonzero(rows >= 0)
        if not kept.size:
            continue
        placed = sorted(enumerate(clauses.tests), key=lambda each: (*_slot(each[1], columns), each[0]))
        ends = np.empty((kept.size, len(placed), 2))
        for at, (_, test) in enumerate(placed):
            _write(test, columns, kept, ends[:, at])
        slots = tuple(_slot(test, columns) for _, test in placed)
        key = (clauses.required, clauses.forbidden, slots, False)
        by_key.setdefault(key, []).append(RowGroup(rows[kept], ends))
    return {
        key: RowGroup(np.concatenate([each.rows for each in found]), np.concatenate([each.ends for each in found]))
        for key, found in by_key.items()
    }


def _slot(test: OperandColumn, columns: Columns) -> tuple[int, int]:
    """How and where the engine reads it, as `kindcast.index.fused.conjuncts` says of single tests."""
    if isinstance(test, IntervalOperands):
        how = ORDERED
    elif isinstance(test, KeyOperands) or test.exactly:
        how = KEY
    else:
        how = CONCEPT
    return how, columns.number(test.column, how)


def _write(test: OperandColumn, columns: Columns, kept: npt.NDArray[np.int64], ends: npt.NDArray[np.float64]) -> None:
    """The two ends of `test` for the clauses `kept`, into `ends` of them."""
    match test:
        case IntervalOperands(low=low, high=high):
            ends[:, 0] = low[kept]
            ends[:, 1] = high[kept]
        case KeyOperands(column=column, keys=keys, places=places):
            number = columns.number(column, KEY)
            used, inverse = np.unique(places[kept], return_inverse=True)
            codes = np.array([columns.key(number, keys[place]) for place in used.tolist()], dtype=np.float64)
            ends[:] = codes[inverse, None]
        case ConceptOperands(column=column, concepts=concepts, exactly=exactly):
            found = concepts[kept]
            if exactly:
                number = columns.number(column, KEY)
                used, inverse = np.unique(found, return_inverse=True)
                codes = np.array([columns.key(number, each) for each in used.tolist()], dtype=np.float64)
                ends[:] = codes[inverse, None]
            else:
                ends[:] = found[:, None]


# The fast path for a single event and a single segment, in one kernel call.
#
# A batch of one costs some 15 µs before anything is matched: arrays that are made for one event, and several calls of
# kernels, each of which unpacks what it is given. Here the values of an event go into one array, and one call answers
# with its rows in order. All other cases (memtables with rows, several segments, programs, small clusters, several
# values in a column) take the batch path.
#
#     LoweredEvent ─▶ Columns.values_of ─▶ match_single: match_segment ─▶ distinct_rows ─▶ rows


@compiled
def match_single(
    ends: Ints,
    codes: Codes,
    ints: Ints,
    floats: Floats,
    bytes: Bytes,
    words: Words,
    parent_from: Ints,
    parents: Codes,
    entry_from: Ints,
    entries: Codes,
    columns: Codes,
    values: Floats,
    visits: Ints,
    cells_of: Bytes,
    marked: Bytes,
    above: Codes,
    passes: int,
    room: int,
    capacity: int,
) -> Codes:
    """The rows that match, ascending, each once, all below `capacity`. The first six arguments are a `Packed`, the next
    four a `GraphArrays`: a tuple of arrays costs the caller more than its arrays. `values` has the number or the code
    of each of `columns`; `room` is for so many rows at first. The rest is as in `match_segment`."""
    packed = Packed(ends, codes, ints, floats, bytes, words)
    graph = GraphArrays(parent_from, parents, entry_from, entries)
    own = np.full(values.size, -1, dtype=np.int32)
    for s in range(values.size):
        if 0.0 <= values[s] < 2147483648.0:
            own[s] = np.int32(values[s])
    kinds = np.zeros(1, dtype=np.int32)
    several_index = np.full(1, -1, dtype=np.int32)
    visits_from = np.zeros(2, dtype=np.int64)
    visits_from[1] = visits.size
    starts = np.empty(passes + 1, dtype=np.int64)
    buffer = match_segment(
        packed,
        graph,
        columns,
        own,
        values,
        kinds,
        several_index,
        np.zeros(1, dtype=np.int64),
        visits_from,
        visits,
        cells_of,
        marked,
        above,
        np.empty(0, dtype=np.int32),
        np.zeros(2, dtype=np.int64),
        np.empty(room, dtype=np.int32),
        starts,
    )
    offsets = np.zeros(2, dtype=np.int64)
    offsets[1] = starts[passes]
    return distinct_rows(offsets, buffer[: starts[passes]], capacity)[1]


MEMTABLE_ROWS = 2048
"""Entries of a memtable: their masks take 256 bytes per column of an event, and the fewer merges the better."""
BULK_ROWS = 256
"""So many rows that come together get a segment of their own: to add each costs more than to lay them out."""

Run = Callable[[Callable[[], None]], None]


class FusedEngine(Engine):
    """Exact matching by frozen segments.

    `match` costs what a batch of one costs; `match_batch` shares the walk over blocks. Any number of threads may match
    at once while none changes the engine. Merges run beside both, and are taken in by the next call.
    """

    reads_columns = True

    def __init__(
        self,
        graph: ConceptGraph,
        *,
        budget: int | None = None,
        run: Run = in_thread,
        memtable_rows: int = MEMTABLE_ROWS,
        block_rows: int = BLOCK_ROWS,
    ) -> None:
        """`budget`: how many bytes index and caches may have, without limit by default. When they are used, caches are
        given up, then masks, which costs time; then adding raises `IndexFull`. A merge needs room for its result beside
        that. `run` carries out merges: `in_thread` beside the owner, `at_once` within the call that makes one due.
        `memtable_rows` and `block_rows` are for tests, which want every structure with few rows."""
        self._begin(graph, None, budget=budget, run=run, memtable_rows=memtable_rows, block_rows=block_rows)

    def _begin(
        self,
        graph: ConceptGraph,
        folder: Path | None,
        *,
        budget: int | None,
        run: Run,
        memtable_rows: int,
        block_rows: int,
    ) -> None:
        self._graph = graph_arrays(graph)
        self._builder = Builder(self._graph, np.zeros(len(graph), dtype=np.uint8), block_rows)
        self._memtable_rows = memtable_rows
        self._columns = Columns()
        self._locations = RowLocations()
        known = None if folder is None else open_saved(folder, self._graph)
        if known is not None:
            self._columns = known.columns
            self._locations = RowLocations(known.state)
            self._locations.repeating = known.repeating
            self._builder.shape = known.shape
        segments = () if known is None else known.segments
        self._compaction = Compaction(
            self._builder, self._columns, self._locations, segments, memtable_rows=memtable_rows, run=run, budget=budget
        )
        self._compaction.make_room(0)
        self._compaction.advance(begin=True)

    def __len__(self) -> int:
        return len(self._locations)

    @property
    def nbytes(self) -> int:
        """The bytes of stored data and caches, partly estimated."""
        return self._compaction.nbytes

    @property
    def structure(self) -> Mapping[str, int]:
        return self._compaction.structure

    # ── rows ────────────────────────────────────────────────────────────────────────────────────────────────────

    def add(self, clause: Clause) -> ClauseRow:
        """Into the memtable, which is frozen when it is full. Some 50 µs, without the cost of merges. Raises
        `IndexFull`."""
        self._compaction.advance()
        self._compaction.make_room()
        row = self._locations.take()
        parts = decompose(clause)
        if parts is None:
            self._locations.put(row, NEVER)
        else:
            self._compaction.add(row, clause, parts)
        return ClauseRow(row)

    def add_many(self, clauses: Iterable[Clause]) -> list[ClauseRow]:
        """Few go into the memtable, many into a segment of their own. Raises `IndexFull`; then none is added."""
        clauses = list(clauses)
        if len(clauses) <= min(self._memtable_rows, BULK_ROWS):
            few: list[ClauseRow] = []
            try:
                few.extend(self.add(clause) for clause in clauses)
            except IndexFull:
                for row in few:
                    self.remove(row)
                raise
            return few
        rows = [ClauseRow(self._locations.take()) for _ in clauses]
        rest = GrowingRest()
        groups = groups_of_places(self._placed(zip(rows, clauses, strict=True), rest))
        self._freeze(rows, groups, rest.rest())
        return rows

    def add_columns(
        self, clauses: Sequence[tuple[int, Clause]], columns: Sequence[ClauseColumns], count: int
    ) -> npt.NDArray[np.int32]:
        """`add_many` for clauses in columns: some 10 ns per test, plus the layout."""
        if count <= min(self._memtable_rows, BULK_ROWS):
            return np.array(self.add_many(in_order(clauses, columns, count)), dtype=np.int32)
        rows = np.array([self._locations.take() for _ in range(count)], dtype=np.int32)
        rest = GrowingRest()
        by_one = groups_of_places(self._placed(((int(rows[place]), clause) for place, clause in clauses), rest))
        placed: list[tuple[ClauseColumns, npt.NDArray[np.int32]]] = []
        for each in columns:
            good = possible(each)
            own = rows[each.places]
            self._locations.put(own, np.where(good, FROZEN, NEVER))
            placed.append((each, np.where(good, own, np.int32(-1))))
        self._freeze(rows.tolist(), merged([by_one, groups_of_columns(placed, self._columns)]), rest.rest())
        return rows

    def remove(self, row: ClauseRow) -> None:
        """Forget the clause at `row`. Raises `UnknownRow`."""
        self._compaction.advance()
        where = self._locations.where(row)
        if where == NOWHERE:
            raise UnknownRow(row)
        self._locations.give_back(row)
        self._compaction.remove(row, where)

    # ── events ──────────────────────────────────────────────────────────────────────────────────────────────────

    def match(self, event: LoweredEvent) -> npt.NDArray[np.int32]:
        """The rows whose clauses match `event`, ascending. Takes the fast path where one segment holds all rows, else
        a batch of one."""
        self._compaction.advance()
        values = self._columns.values_of(event)
        if values is None:
            return self.match_batch([event]).rows
        segments, memtables = self._compaction.parts
        if len(segments) == 1 and segments[0].is_plain and not any(map(len, memtables)):
            return self._match_alone(segments[0], event.present, *values)
        return self._ordered(self._search(self._columns.batch_of(event.present, *values))).rows

    def _match_alone(
        self, segment: Segment, present: frozenset[AttributeId], layout: ColumnLayout, values: Floats
    ) -> npt.NDArray[np.int32]:
        visits = segment.visits(present)
        if not visits.size:
            return np.zeros(0, dtype=np.int32)
        announce_compilation(match_single)
        cells = self._builder.cells
        scratch = self._scratch((len(layout.concepts) + 1) * len(cells))
        rows = match_single(
            *segment.packed,
            *self._graph,
            layout.columns,
            values,
            visits,
            cells,
            scratch.marked,
            scratch.above,
            segment.passes,
            scratch.room(1),
            self._locations.size,
        )
        scratch.rows_an_event = rows.size
        self._compaction.keep(scratch)
        return rows

    def match_batch(self, events: Sequence[LoweredEvent]) -> RowTable:
        """The rows for each event, ascending."""
        return self._ordered(self._search(self._columns.encode(events)))

    def match_columns(self, batch: ColumnBatch) -> RowTable:
        """The rows for each event of a batch in columns, each once, in no order. Thread-safe beside other matches."""
        table = self._search(self._columns.encode_columns(batch))
        return self._ordered(table) if self._locations.repeating else table

    def _search(self, batch: EventBatch) -> RowTable:
        self._compaction.advance()
        segments, memtables = self._compaction.parts
        announce_compilation(match_memtable if len(memtables[-1]) else match_segment)
        cells = self._builder.cells
        scratch = self._scratch((len(batch.concept_places) + 1) * len(cells))
        table = search(segments, memtables, batch, self._graph, cells, scratch, len(self._columns))
        self._compaction.keep(scratch)
        return table

    def _scratch(self, size: int) -> Scratch:
        """What a search works with, with room for so many marks; `Compaction.keep` takes it back."""
        try:
            scratch = self._compaction.scratches.pop()  # one step, since others may take from it
        except IndexError:
            return Scratch(size, self._compaction.results)
        return scratch if scratch.size >= size else Scratch(size, self._compaction.results)

    def _ordered(self, table: RowTable) -> RowTable:
        return RowTable(*distinct_rows(table.offsets, table.rows, self._locations.size))

    def explain(self, event: LoweredEvent) -> dict[str, Any]:
        """What is done with `event`: clusters visited, columns in their order, rows left, checked and found; see
        `kindcast.index.fused.explain.explained`. Some ms."""
        self._compaction.advance()
        batch = self._columns.encode([event])
        return explained(*self._compaction.parts, batch, self._graph, self._builder.cells, self._columns.columns())

    # ── on disk ─────────────────────────────────────────────────────────────────────────────────────────────────

    def save(self, folder: Path) -> bool:
        """Write everything into one file in `folder`, whole or not at all; the engine stays as it is. Costs what
        writing its bytes costs. Raises `OSError`."""
        state = self._locations.state().copy()
        state[state == IN_MEMTABLE] = FROZEN
        segments = self._compaction.frozen()
        save(folder, self._graph, Saved(state, self._locations.repeating, self._columns, self._builder.shape, segments))
        return True

    @classmethod
    def open(
        cls,
        folder: Path,
        graph: ConceptGraph,
        *,
        budget: int | None = None,
        run: Run = in_thread,
        memtable_rows: int = MEMTABLE_ROWS,
        block_rows: int = BLOCK_ROWS,
    ) -> "FusedEngine":
        """The engine that was saved in `folder`, with the same rows; the file is mapped, and never changed. Costs one
        reading of it. Raises `DamagedIndex`, `OtherLayout`, `OtherGraph`, `IndexFull`, `OSError`."""
        engine = cls.__new__(cls)
        engine._begin(graph, Path(folder), budget=budget, run=run, memtable_rows=memtable_rows, block_rows=block_rows)
        return engine

    # ── structure ───────────────────────────────────────────────────────────────────────────────────────────────

    def merge_now(self) -> None:
        """Merge all rows into one segment without tombstones, in this thread; waits for a merge that runs. Raises what
        a merge has raised."""
        self._compaction.merge_now()

    def check_invariants(self) -> None:
        """Raise AssertionError if a structural invariant is broken."""
        self._locations.check_invariants()
        self._compaction.check_invariants()

    def _placed(
        self, stored: Iterable[tuple[int, Clause]], rest: GrowingRest
    ) -> Iterable[tuple[int, tuple[Place, ...]]]:
        """Where frozen rows stand; their residual predicates go to `rest`."""
        for row, clause in stored:
            parts = decompose(clause)
            self._locations.put(row, NEVER if parts is None else FROZEN)
            if parts is not None:
                self._locations.repeating += len(parts.alternatives) > 1
                if parts.rest:
                    rest.add(row, parts.rest, self._columns)
                yield row, places_of(parts, self._columns)

    def _freeze(self, rows: Sequence[int], groups: Groups, rest: Rest | None) -> None:
        """A segment of new rows; if there is no room for it, these are free again."""
        try:
            self._compaction.freeze(groups, rest)
        except IndexFull:
            repeated = np.concatenate([group.rows for group in groups.values()])
            self._locations.repeating -= int((np.unique(repeated, return_counts=True)[1] > 1).sum())
            for row in rows:
                self._locations.give_back(row)
            self._locations.shrink()
            raise
