"""The `fused` engine: frozen segments matched by compiled kernels, and a small delta of the newest rows.

    add ─▶ delta (programs) ─▶ frozen together with the smaller segments ─▶ Segment: clusters, lists, ranges, masks
    remove ─▶ out of the delta, or marked dead; a segment half dead is frozen again without them

    events ─▶ Columns.encode ─▶ search: match_segment for each segment, match_delta ─▶ distinct_rows ─▶ rows

What it takes from the literature: clusters by attribute set and one access path a row (Fabret et al., "Le Subscribe":
schemas, equality-preferred), columns cut into cells with one AND a column (GEM, DEXIN), visits through the concepts
above a value (CTPS), and exact bounds last, for what bits cannot decide.

Exact for the whole clause language; `index.fused.conjuncts` says which predicates stand in records and masks, and
which are asked by programs of the rows that got so far. No clause is kept once it is frozen, but for the predicates of
such rows.
"""

import heapq
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from index.clause import Clause, ClauseRow, LoweredEvent, Predicate
from index.column_batch import ColumnBatch
from index.compiling import announce_compilation
from index.concept_graph import ConceptGraph
from index.engine import RowTable
from index.errors import UnknownRow
from index.fused.arrays import BLOCK_ROWS
from index.fused.columns import Columns, EventBatch
from index.fused.conjuncts import CONCEPT, Parts, decompose
from index.fused.delta import Delta, match_delta
from index.fused.graph_arrays import GraphShape, graph_arrays, graph_shape
from index.fused.matching import match_segment
from index.fused.runs import distinct_rows
from index.fused.search import Scratch, search
from index.fused.segment import Groups, Segment, groups_of_parts, merged

__all__ = ["FusedEngine"]

DELTA_ROWS = 256
"""Entries of a delta: asking them costs some 10 µs an event at most, freezing them some ms."""
TIER = 4
"""A segment is frozen again together with newer rows once they are a fourth of it, so each row some log4(n) times."""
NOWHERE, IN_DELTA, FROZEN, NEVER = range(4)
"""Where a row is: free, in the delta, in a segment, or stored but unable to match anything."""


class FusedEngine:
    """Exact matching by frozen segments.

    Invariant: a stored row is in the delta, or lives in exactly one segment, or no event can match it. Segments are
    ordered from large to small. `match` costs what a batch of one costs; `match_batch` shares the walk over blocks.
    Any number of threads may match at once while none changes the engine.
    """

    def __init__(self, graph: ConceptGraph, *, delta_rows: int = DELTA_ROWS, block_rows: int = BLOCK_ROWS) -> None:
        """`delta_rows` and `block_rows` are for tests, which want every structure with few rows."""
        self._graph = graph_arrays(graph)
        self._shape: GraphShape | None = None
        self._cells = np.zeros(len(graph), dtype=np.uint8)
        self._delta_rows = delta_rows
        self._block_rows = block_rows
        self._columns = Columns()
        self._state = np.zeros(64, dtype=np.uint8)
        self._rows = 0
        self._free: list[int] = []
        self._delta = Delta(self._columns)
        self._segments: list[Segment] = []
        self._rest: dict[int, tuple[Predicate, ...]] = {}
        self._repeating: set[int] = set()
        self._scratches: list[Scratch] = []

    def __len__(self) -> int:
        return self._rows - len(self._free)

    @property
    def nbytes(self) -> int:
        """The bytes of all segments and of the books of rows; the delta aside."""
        return sum(segment.nbytes for segment in self._segments) + self._state.nbytes

    # ── rows ────────────────────────────────────────────────────────────────────────────────────────────────────

    def add(self, clause: Clause) -> ClauseRow:
        """Into the delta, which is frozen when it is full."""
        row = self._new_row()
        self._delta.add(row, clause)
        self._state[row] = IN_DELTA
        if self._delta.entries > self._delta_rows:
            self._freeze(())
        return row

    def add_many(self, clauses: Iterable[Clause]) -> list[ClauseRow]:
        """Few go into the delta, many into a segment of their own at once."""
        clauses = list(clauses)
        if len(clauses) <= self._delta_rows:
            return [self.add(clause) for clause in clauses]
        rows = [self._new_row() for _ in clauses]
        self._freeze(zip(rows, clauses, strict=True))
        return rows

    def remove(self, row: ClauseRow) -> None:
        """Forget the clause at `row`. Raises `UnknownRow`."""
        state = self._state[row] if 0 <= row < self._rows else NOWHERE
        if state == NOWHERE:
            raise UnknownRow(row)
        self._state[row] = NOWHERE
        heapq.heappush(self._free, row)
        if state == IN_DELTA:
            self._delta.remove(row)
            if not self._delta:
                self._delta = Delta(self._columns)
        elif state == FROZEN:
            self._rest.pop(row, None)
            self._repeating.discard(row)
            place = next(place for place, segment in enumerate(self._segments) if segment.kill(row))
            segment = self._segments[place]
            if 2 * segment.live < segment.rows.size:
                del self._segments[place]
                self._build([segment.groups(segment.alive())])

    # ── events ──────────────────────────────────────────────────────────────────────────────────────────────────

    def match(self, event: LoweredEvent) -> npt.NDArray[np.int32]:
        """The rows whose clauses match `event`, ascending: a batch of one."""
        return self.match_batch([event]).rows

    def match_batch(self, events: Sequence[LoweredEvent]) -> RowTable:
        """The rows for each event, ascending."""
        return self._ordered(self._search(self._columns.encode(events)))

    def match_columns(self, batch: ColumnBatch) -> RowTable:
        """The rows for each event of a batch in columns, each once, in no order. Thread-safe beside other matches."""
        table = self._search(self._columns.encode_columns(batch))
        return self._ordered(table) if self._repeating else table

    def _search(self, batch: EventBatch) -> RowTable:
        announce_compilation(match_delta if len(self._delta) else match_segment)
        size = (len(batch.concept_places) + 1) * len(self._cells)
        scratch = self._scratches.pop() if self._scratches else Scratch(size)
        if scratch.size < size:
            scratch = Scratch(size)
        table = search(self._segments, self._delta, batch, self._graph, self._cells, scratch, len(self._columns))
        self._scratches.append(scratch)
        return table

    def _ordered(self, table: RowTable) -> RowTable:
        return RowTable(*distinct_rows(table.offsets, table.rows, self._rows))

    # ── structure ───────────────────────────────────────────────────────────────────────────────────────────────

    def check_invariants(self) -> None:
        """Raise AssertionError if a structural invariant is broken."""
        state = self._state[: self._rows]
        # Rows are free or stored; each stored row is where the books say.
        assert sorted(self._free) == np.flatnonzero(state == NOWHERE).tolist(), (self._free, state)
        assert sorted(self._delta.clauses) == np.flatnonzero(state == IN_DELTA).tolist(), (self._delta.clauses, state)
        living = [set(segment.rows[segment.alive()].tolist()) for segment in self._segments]
        together: set[int] = set().union(*living)
        assert sum(map(len, living)) == len(together), living
        assert sorted(together) == np.flatnonzero(state == FROZEN).tolist(), (living, state)
        assert self._delta.entries <= self._delta_rows, self._delta.entries
        # What is asked by programs, or may be found twice, belongs to frozen rows.
        assert set(self._rest) <= together, (self._rest, living)
        assert self._repeating <= together, (self._repeating, living)
        # Segments get smaller, and none is half dead.
        sizes = [segment.live for segment in self._segments]
        assert sizes == sorted(sizes, reverse=True), sizes
        assert all(2 * segment.live >= segment.rows.size > 0 for segment in self._segments), sizes
        assert not any(scratch.marked.any() for scratch in self._scratches)
        self._delta.check_invariants()
        for segment in self._segments:
            segment.check_invariants()

    def _new_row(self) -> ClauseRow:
        if self._free:
            return ClauseRow(heapq.heappop(self._free))
        if self._rows == self._state.size:
            self._state = np.concatenate([self._state, np.zeros_like(self._state)])
        self._rows += 1
        return ClauseRow(self._rows - 1)

    def _freeze(self, more: Iterable[tuple[int, Clause]]) -> None:
        """The delta and `more`, with every segment that is not much larger, become one segment."""
        new = groups_of_parts(self._taken_apart([*self._delta.clauses.items()], more), self._columns)
        self._delta = Delta(self._columns)
        parts = [new]
        count = sum(group.rows.size for group in new.values())
        while self._segments and self._segments[-1].live <= TIER * count:
            segment = self._segments.pop()
            count += segment.live
            parts.append(segment.groups(segment.alive()))
        self._build(parts)

    def _taken_apart(self, *stored: Iterable[tuple[int, Clause]]) -> Iterable[tuple[int, Parts]]:
        for each in stored:
            for row, clause in each:
                parts = decompose(clause)
                self._state[row] = NEVER if parts is None else FROZEN
                if parts is not None:
                    if parts.rest:
                        self._rest[row] = parts.rest
                    if len(parts.alternatives) > 1:
                        self._repeating.add(row)
                    yield row, parts

    def _build(self, parts: Sequence[Groups]) -> None:
        groups = merged(parts)
        if not groups:
            return
        announce_compilation(match_segment)
        if self._shape is None and any(how == CONCEPT for _, _, slots, _ in groups for how, _ in slots):
            self._shape = graph_shape(self._graph)
            self._cells = self._shape.cells
        segment = Segment(groups, self._shape, self._columns, self._rest, block_rows=self._block_rows)
        self._segments.append(segment)
        self._segments.sort(key=lambda each: -each.live)
