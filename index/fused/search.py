"""A batch of events through delta and segments, and what they found as one table.

EventBatch ─▶ for each segment: clusters to visit ─▶ match_segment, match_several ─▶ settle ─┐
           ─▶ delta: match_delta ─────────────────────────────────────────────────────────────┴▶ gather ─▶ table
"""

from collections.abc import Sequence

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
from index.fused.segment import Segment
from index.fused.several import match_several

__all__ = ["Scratch", "search"]

FIRST_ROWS = 1 << 12
"""Room for so many rows at first; the kernels double it."""
KEPT_ROWS = 1 << 23
"""A buffer of at most so many rows (32 MB) is kept for the next search."""

Find = tuple[Codes, Ints]


class Scratch:
    """What a search works with and leaves to the next one: marks of concepts, all zero between uses, room to list
    them, and buffers for what is found. One for each search that runs; fresh memory costs more than matching does."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.marked = np.zeros(size, dtype=np.uint8)
        self.above = np.empty(size + 1, dtype=np.int32)
        self._buffers: list[Codes] = []
        self._lent = 0
        self.rows_an_event = 0.0

    def fresh(self, events: int) -> Codes:
        """Room that the result may keep, for as many rows as the last events had."""
        return np.empty(FIRST_ROWS + int(self.rows_an_event * 1.25 * events), dtype=np.int32)

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
    delta: Delta,
    batch: EventBatch,
    graph: GraphArrays,
    cells: Bytes,
    scratch: Scratch,
    columns: int,
) -> RowTable:
    """Every row that matches, in no order, and more than once where it has alternatives. `columns`: how many the
    engine has numbered."""
    events = batch.events
    several = batch.several_from.size > 1
    asked = several or len(delta) or any(segment.programs is not None for segment in segments)
    arrays = _arrays(batch, graph, columns) if asked else None
    alone = not several and not len(delta) and len(segments) == 1 and segments[0].passes == 1
    finds: list[Find] = []
    for segment in segments:
        visits_from, visits = _visits(segment, batch.presents)
        if not visits.size:
            continue
        starts = np.empty(segment.passes * events + 1, dtype=np.int64)
        buffer = match_segment(
            segment.packed,
            graph,
            batch.columns,
            batch.codes,
            batch.numbers,
            batch.kinds,
            batch.several_index,
            visits_from,
            visits,
            cells,
            scratch.marked,
            scratch.above,
            scratch.fresh(events) if alone else scratch.buffer(),
            starts,
        )
        found = [(buffer if alone else scratch.keep(buffer), starts)]
        if several and arrays is not None:
            starts = np.empty(events + 1, dtype=np.int64)
            buffer = match_several(
                segment.packed,
                graph,
                arrays,
                batch.kinds,
                visits_from,
                visits,
                cells,
                scratch.marked,
                scratch.above,
                scratch.buffer(),
                starts,
            )
            found.append((scratch.keep(buffer), starts))
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
    if len(delta) and arrays is not None:
        finds.append(_of_delta(delta, batch, arrays, graph, scratch))
    table = _table(finds, events, copy=not alone)
    scratch.give_back()
    scratch.rows_an_event = table.rows.size / max(events, 1)
    return table


def _of_delta(delta: Delta, batch: EventBatch, arrays: BatchArrays, graph: GraphArrays, scratch: Scratch) -> Find:
    entries, programs = delta.arrays()
    present_from = np.zeros(len(batch.presents) + 1, dtype=np.int64)
    np.cumsum([len(present) for present in batch.presents], out=present_from[1:])
    present = np.array([each for attributes in batch.presents for each in attributes], dtype=np.int64)
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


def _arrays(batch: EventBatch, graph: GraphArrays, columns: int) -> BatchArrays:
    concepts = graph.parent_from.size - 1
    where = np.full(columns, -1, dtype=np.int64)
    where[batch.columns] = np.arange(batch.columns.size)
    mark_base = np.full(batch.columns.size, -1, dtype=np.int64)
    holds_concepts = batch.concept_places
    mark_base[holds_concepts] = np.arange(len(holds_concepts)) * concepts
    return BatchArrays(
        batch.columns,
        batch.codes,
        batch.numbers,
        batch.several_index,
        batch.several_from,
        where,
        mark_base,
        len(holds_concepts) * concepts,
    )


def _visits(segment: Segment, presents: Sequence[frozenset[AttributeId]]) -> tuple[Ints, Ints]:
    found = [segment.visits(present) for present in presents]
    if len(found) == 1:
        return np.array([0, found[0].size], dtype=np.int64), found[0]
    visits_from = np.zeros(len(found) + 1, dtype=np.int64)
    np.cumsum([each.size for each in found], out=visits_from[1:])
    return visits_from, np.concatenate([*found, np.empty(0, dtype=np.int64)])


def _table(finds: Sequence[Find], events: int, *, copy: bool) -> RowTable:
    if len(finds) == 1 and finds[0][1].size == events + 1:
        buffer, starts = finds[0]
        rows = buffer[: starts[-1]]
        return RowTable(starts, rows.copy() if copy else rows)
    offsets = np.zeros(events + 1, dtype=np.int64)
    for _, starts in finds:
        count_rows(offsets, starts)
    np.cumsum(offsets, out=offsets)
    rows = np.empty(int(offsets[-1]), dtype=np.int32)
    place = offsets[:-1].copy()
    for buffer, starts in finds:
        gather_rows(place, rows, buffer, starts)
    return RowTable(offsets, rows)
