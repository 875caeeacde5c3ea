"""A batch of events through delta and segments, and what they found as one table.

EventBatch ─▶ for each segment: match_segment, match_scattered ─▶ settle ────────────────┐
           ─▶ delta: match_delta ─────────────────────────────────────────────────────────┴▶ gather ─▶ table
"""

from collections.abc import Sequence
from sys import getrefcount

import numpy as np

from index.clause import AttributeId
from index.engine import RowTable
from index.fused.arrays import Bytes, Codes, Ints
from index.fused.columns import EventBatch
from index.fused.delta import Delta, match_delta
from index.fused.graph_arrays import GraphArrays
from index.fused.matching import match_segment
from index.fused.programs import BatchArrays
from index.fused.runs import count_rows, gather_rows, settle
from index.fused.scattered import Scattered, match_scattered
from index.fused.segment import Segment

__all__ = ["Scratch", "search"]

FIRST_ROWS = 1 << 12
"""Room for so many rows at first; the kernels double it."""
KEPT_ROWS = 1 << 23
"""A buffer of at most so many rows (32 MB) is kept for the next search."""

GIVEN = 2
"""Results whose memory is kept: the last one, and the one before, which its caller holds until the next is there."""
UNHELD = 3
"""References to a buffer that nobody else has: the list of those given, the loop over it, and the question."""
REMEMBERED = 1024
"""Sets of columns and of attributes whose arrays are remembered; a stream has few."""

Find = tuple[Codes, Ints]


class Scratch:
    """What a search works with and leaves to the next one: marks of concepts, all zero between uses, room to list
    them, buffers for what is found, and small arrays that many batches share. One for each search that runs; fresh
    memory costs more than matching does."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.marked = np.zeros(size, dtype=np.uint8)
        self.above = np.empty(size + 1, dtype=np.int32)
        self._buffers: list[Codes] = []
        self._lent = 0
        self._given: list[Codes] = []
        self.rows_an_event = 0.0
        self._places: dict[tuple[bytes, int], tuple[Ints, Ints, int]] = {}
        self._attributes: dict[frozenset[AttributeId], Ints] = {}

    @property
    def nbytes(self) -> int:
        """The bytes of marks and buffers."""
        return self.marked.nbytes + self.above.nbytes + sum(each.nbytes for each in self._buffers + self._given)

    def batch_arrays(self, batch: EventBatch, concepts: int, columns: int) -> BatchArrays:
        """`batch` for programs: where columns stand in it, and where the marks of its concepts begin."""
        key = batch.columns.tobytes(), columns
        known = self._places.get(key)
        if known is None:
            where = np.full(columns, -1, dtype=np.int64)
            where[batch.columns] = np.arange(batch.columns.size)
            mark_base = np.full(batch.columns.size, -1, dtype=np.int64)
            mark_base[batch.concept_places] = np.arange(len(batch.concept_places)) * concepts
            known = where, mark_base, len(batch.concept_places) * concepts
            if len(self._places) >= REMEMBERED:
                self._places.clear()
            self._places[key] = known
        return BatchArrays(batch.columns, batch.codes, batch.numbers, batch.several_index, batch.several_from, *known)

    def attributes(self, present: frozenset[AttributeId]) -> Ints:
        """The attributes of a kind of event, in any order."""
        known = self._attributes.get(present)
        if known is None:
            if len(self._attributes) >= REMEMBERED:
                self._attributes.clear()
            known = self._attributes[present] = np.array(list(present), dtype=np.int64)
        return known

    def fresh(self, rows: int) -> Codes:
        """Room for so many rows that the result may keep. A result that nobody holds any more, nor any view of it,
        leaves its memory to the next: the system takes longer to hand out new memory than matching takes to fill it."""
        for buffer in self._given:
            if buffer.size >= rows and getrefcount(buffer) == UNHELD:
                return buffer
        return self.given(np.empty(rows + rows // 8, dtype=np.int32))

    def given(self, buffer: Codes) -> Codes:
        """Remember the memory of a result."""
        if buffer.size <= KEPT_ROWS and not any(each is buffer for each in self._given):
            self._given = [*self._given[1 - GIVEN :], buffer]
        return buffer

    def room(self, events: int) -> int:
        """How many rows to make room for."""
        return FIRST_ROWS + int(self.rows_an_event * 1.25 * events)

    def buffer(self) -> Codes:
        """Room for rows, until `give_back`."""
        if self._lent == len(self._buffers):
            self._buffers.append(np.empty(FIRST_ROWS, dtype=np.int32))
        self._lent += 1
        return self._buffers[self._lent - 1]

    def keep(self, buffer: Codes) -> Codes:
        """Remember what became of the buffer that was lent last."""
        self._buffers[self._lent - 1] = buffer
        return buffer

    def give_back(self) -> None:
        """All buffers are free again; large ones are forgotten."""
        self._lent = 0
        self._buffers = [buffer for buffer in self._buffers if buffer.size <= KEPT_ROWS]


def search(
    segments: Sequence[Segment],
    deltas: Sequence[Delta],
    batch: EventBatch,
    graph: GraphArrays,
    cells: Bytes,
    scratch: Scratch,
    columns: int,
) -> RowTable:
    """Every row that matches, in no order, and more than once where it has alternatives. `columns`: how many the
    engine has numbered."""
    events = batch.events
    deltas = [delta for delta in deltas if len(delta)]
    asked = deltas or any(segment.programs is not None for segment in segments)
    concepts = graph.parent_from.size - 1
    arrays = scratch.batch_arrays(batch, concepts, columns) if asked else None
    alone = not deltas and len(segments) == 1
    alone = alone and segments[0].passes == 1 and segments[0].scattered is None
    finds: list[Find] = []
    for segment in segments:
        visits_from, visits = _joined([segment.visits(present) for present in batch.presents])
        found: list[Find] = []
        if visits.size:
            starts = np.empty(segment.passes * events + 1, dtype=np.int64)
            buffer = match_segment(
                segment.packed,
                graph,
                batch.columns,
                batch.codes,
                batch.numbers,
                batch.kinds,
                batch.several_index,
                batch.several_from,
                visits_from,
                visits,
                cells,
                scratch.marked,
                scratch.above,
                scratch.fresh(scratch.room(events)) if alone else scratch.buffer(),
                starts,
            )
            found.append((scratch.given(buffer) if alone else scratch.keep(buffer), starts))
        if segment.scattered is not None:
            found.append(_scattered(segment, segment.scattered, batch, graph, cells, scratch))
        if segment.programs is not None and arrays is not None:
            for buffer, starts in found:
                settle(
                    buffer,
                    starts,
                    events,
                    segment.rows,
                    segment.program_of,
                    segment.programs,
                    graph,
                    arrays,
                    scratch.marked,
                    scratch.above,
                )
        finds += found
    if arrays is not None:
        finds += [_of_delta(delta, batch, arrays, graph, scratch) for delta in deltas]
    table = _table(finds, events, scratch, copy=not alone)
    scratch.give_back()
    scratch.rows_an_event = table.rows.size / max(events, 1)
    return table


def _scattered(
    segment: Segment, scattered: Scattered, batch: EventBatch, graph: GraphArrays, cells: Bytes, scratch: Scratch
) -> Find:
    present_from, present = _joined([scratch.attributes(present) for present in batch.presents])
    starts = np.empty(batch.events + 1, dtype=np.int64)
    buffer = match_scattered(
        segment.packed,
        scattered.arrays,
        scattered.left_by(batch.presents),
        graph,
        batch.columns,
        batch.codes,
        batch.numbers,
        batch.kinds,
        present_from,
        present,
        batch.several_index,
        batch.several_from,
        cells,
        scratch.marked,
        scratch.above,
        scratch.buffer(),
        starts,
    )
    return scratch.keep(buffer), starts


def _of_delta(delta: Delta, batch: EventBatch, arrays: BatchArrays, graph: GraphArrays, scratch: Scratch) -> Find:
    entries, programs = delta.arrays()
    present_from, present = _joined([scratch.attributes(present) for present in batch.presents])
    starts = np.empty(batch.events + 1, dtype=np.int64)
    buffer = match_delta(
        entries,
        programs,
        delta.entries,
        graph,
        arrays,
        batch.kinds,
        present_from,
        present,
        scratch.marked,
        scratch.above,
        scratch.buffer(),
        starts,
    )
    return scratch.keep(buffer), starts


def _joined(parts: Sequence[Ints]) -> tuple[Ints, Ints]:
    """One after the other, and where each begins."""
    if len(parts) == 1:
        return np.array([0, parts[0].size], dtype=np.int64), parts[0]
    starts = np.zeros(len(parts) + 1, dtype=np.int64)
    np.cumsum([each.size for each in parts], out=starts[1:])
    return starts, np.concatenate([*parts, np.empty(0, dtype=np.int64)])


def _table(finds: Sequence[Find], events: int, scratch: Scratch, *, copy: bool) -> RowTable:
    if len(finds) == 1 and finds[0][1].size == events + 1:
        buffer, starts = finds[0]
        rows = buffer[: starts[-1]]
        if copy:
            rows = scratch.fresh(rows.size)[: rows.size]
            rows[:] = buffer[: starts[-1]]
        return RowTable(starts, rows)
    if events == 1 and finds:  # of whatever pass, it is the one event's
        rows = np.concatenate([buffer[: starts[-1]] for buffer, starts in finds])
        return RowTable(np.array([0, rows.size], dtype=np.int64), rows)
    offsets = np.zeros(events + 1, dtype=np.int64)
    for _, starts in finds:
        count_rows(offsets, starts)
    np.cumsum(offsets, out=offsets)
    rows = scratch.fresh(int(offsets[-1]))[: offsets[-1]]
    place = offsets[:-1].copy()
    for buffer, starts in finds:
        gather_rows(place, rows, buffer, starts)
    return RowTable(offsets, rows)
