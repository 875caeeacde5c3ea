"""The search of a batch of events in memtables and segments, with its results as one table.

EventBatch ─▶ for each segment: match_segment, match_scattered ─▶ check_residuals ─────────┐
           ─▶ memtable: match_memtable ─────────────────────────────────────────────────────┴▶ gather ─▶ table

Each pass gives a *find*: a buffer of rows and the offsets of each pass and event in it. Pass p found for event e
`buffer[starts[p * events + e] : starts[p * events + e + 1]]`. Kernels check the residual programs, merge the passes
into one table and order its rows.
"""

from collections import deque
from collections.abc import Sequence

import numpy as np

from kindcast.index.clause import AttributeId
from kindcast.index.engine import RowTable
from kindcast.index.fused.arrays import Bytes, Codes, GraphArrays, Ints, joined
from kindcast.index.fused.columns import EventBatch
from kindcast.index.fused.kernels import match_segment
from kindcast.index.fused.memtable import Memtable, match_memtable
from kindcast.index.fused.residuals import BatchArrays, ProgramArrays, ask_programs
from kindcast.index.fused.segment import Segment
from kindcast.index.fused.small_clusters import Scattered, match_scattered
from kindcast.index.jit import compiled, lowest_bit, nth

__all__ = ["ResultMemory", "Scratch", "check_residuals", "distinct_rows", "in_memtables", "search"]


FEW_UNSORTED = 24
"""So many rows are sorted by insertion; more go through one bit each, found again by a summary of the words."""


@compiled
def check_residuals(
    buffer: Codes,
    starts: Ints,
    rows: Codes,
    program_of: Codes,
    programs: ProgramArrays,
    graph: GraphArrays,
    batch: BatchArrays,
    marked: Bytes,
    above: Codes,
) -> None:
    """Replaces each `~position` in `buffer` by its row if the residual program of the position holds, and drops it
    otherwise. Groups are not changed. `buffer` and `starts` are changed in place."""
    asked_from = np.zeros(starts.size, dtype=np.int64)
    count = 0
    for item in range(starts.size - 1):
        for i in range(starts[item], starts[item + 1]):
            count += buffer[i] < 0 and ~buffer[i] < rows.size
        asked_from[item + 1] = count
    if not count:
        return
    asked = np.empty(count, dtype=np.int32)
    holds = np.empty(count, dtype=np.uint8)
    count = 0
    for i in range(starts[starts.size - 1]):
        if buffer[i] < 0 and ~buffer[i] < rows.size:
            asked[count] = program_of[~buffer[i]]
            count += 1
    ask_programs(programs, graph, batch, asked_from, asked, marked, above, holds)
    used = 0
    at = 0
    count = 0
    for item in range(starts.size - 1):
        stop = starts[item + 1]
        starts[item] = used
        while at < stop:
            row = buffer[at]
            at += 1
            if row < 0 and ~row < rows.size:
                row = rows[~row]
                count += 1
                if not holds[count - 1]:
                    continue
            buffer[used] = row
            used += 1
    starts[starts.size - 1] = used


@compiled
def count_rows(offsets: Ints, starts: Ints) -> None:
    """Adds the number of rows that a find has for event e to `offsets[e + 1]`."""
    events = offsets.size - 1
    for item in range(starts.size - 1):
        offsets[item % events + 1] += starts[item + 1] - starts[item]


@compiled
def gather_rows(place: Ints, rows: Codes, buffer: Codes, starts: Ints) -> None:
    """Copies a find to `rows`: the rows of event e from `place[e]` on. Advances `place`."""
    events = place.size
    for item in range(starts.size - 1):
        event = item % events
        first, last = starts[item], starts[item + 1]
        at = place[event]
        for i in range(first, last):
            rows[nth(at + i - first)] = buffer[nth(i)]
        place[event] = at + last - first


@compiled
def distinct_rows(offsets: Ints, rows: Codes, capacity: int) -> tuple[Ints, Codes]:
    """Returns the table with the rows of each event in ascending order and without duplicates. All rows are below
    `capacity`. Costs a few ns per row and, for events with more than a few rows, capacity / 4,096 steps per event."""
    events = offsets.size - 1
    new_offsets = np.zeros(events + 1, dtype=np.int64)
    found = np.empty(rows.size, dtype=np.int32)
    bits = np.zeros((capacity >> 6) + 1, dtype=np.uint64)
    summary = np.zeros((capacity >> 12) + 1, dtype=np.uint64)
    one = np.uint64(1)
    at = 0
    for event in range(events):
        first = at
        if offsets[event + 1] - offsets[event] <= FEW_UNSORTED:
            for source in range(offsets[event], offsets[event + 1]):
                row = rows[source]
                to = at
                while to > first and found[to - 1] > row:
                    to -= 1
                if to > first and found[to - 1] == row:
                    continue
                for i in range(at, to, -1):
                    found[i] = found[i - 1]
                found[to] = row
                at += 1
        else:
            for source in range(offsets[event], offsets[event + 1]):
                number = int(rows[source])
                bits[number >> 6] |= one << np.uint64(number & 63)
                summary[number >> 12] |= one << np.uint64((number >> 6) & 63)
            for s in range(summary.size):
                filled = summary[s]
                summary[s] = 0
                while filled:
                    w = s * 64 + int(lowest_bit(filled))
                    filled &= filled - one
                    word = bits[w]
                    bits[w] = 0
                    while word:
                        found[at] = w * 64 + int(lowest_bit(word))
                        at += 1
                        word &= word - one
        new_offsets[event + 1] = at
    return new_offsets, found[:at]


FIRST_ROWS = 1 << 12
"""Room for so many rows at first; the kernels double it."""
FEW_ROWS = 1 << 14
"""Results of fewer rows take new memory: it is at hand, and to keep it in mind costs more."""
KEPT_ROWS = 1 << 23
"""A buffer of at most so many rows (32 MB) is kept for the next search."""

FREE_RESULTS = 2
"""Blocks kept for results: one search's, and that of the next, whose caller holds the first until then."""
REMEMBERED = 1024
"""Sets of columns and of attributes whose arrays are cached; a stream has few."""
REMEMBERED_PLACES = 1 << 20
"""The maximum number of places in the cached arrays together. The array of a set of columns has one place for each
column of the engine."""

Find = tuple[Codes, Ints]

NOTHING = np.zeros(0, dtype=np.int32)


class ResultMemory:
    """A pool of memory for results. A result owns its memory until the result and all views of it are deleted; then the
    next result can reuse the memory. Without the pool, allocation of new memory would take longer than matching. Any
    thread may release a result."""

    def __init__(self) -> None:
        self._free: deque[Codes] = deque(maxlen=FREE_RESULTS)
        self._lent: dict[int, int] = {}

    @property
    def nbytes(self) -> int:
        """The bytes in the pool: free memory, and lent memory that returns to the pool."""
        return sum(each.nbytes for each in list(self._free)) + sum(list(self._lent.values()))

    def lend(self, rows: int) -> Codes:
        """Returns memory for `rows` rows."""
        if rows < FEW_ROWS:
            return np.empty(rows, dtype=np.int32)
        try:
            memory = self._free.popleft()
        except IndexError:
            memory = np.empty(0, dtype=np.int32)
        if memory.size < rows:
            memory = np.empty(rows + rows // 8, dtype=np.int32)
        return self.owned(memory)

    def owned(self, memory: Codes) -> Codes:
        """Returns `memory` as a result. The memory is reused when the result is no longer referenced, unless it is
        large."""
        if not FEW_ROWS <= memory.size <= KEPT_ROWS:
            return memory
        return np.asarray(_Loan(memory, self._free, self._lent))

    def clear(self) -> None:
        """Releases the free memory. Lent memory does not return to the pool."""
        self._free, self._lent = deque(maxlen=FREE_RESULTS), {}


class _Loan:
    """The base object of the arrays of one result. It lives as long as the last of these arrays."""

    __slots__ = ("__array_interface__", "_free", "_lent", "_memory")

    def __init__(self, memory: Codes, free: deque[Codes], lent: dict[int, int]) -> None:
        self.__array_interface__ = memory.__array_interface__
        self._memory = memory
        self._free = free
        self._lent = lent
        lent[id(self)] = memory.nbytes

    def __del__(self) -> None:
        del self._lent[id(self)]
        self._free.append(self._memory)


class Scratch:
    """The working memory of a search, reused by the next search: marks of concepts (all zero between uses), space for
    lists of concepts, buffers for found rows, and small arrays that many batches share. Each running search has its
    own. It is reused because new memory costs more than matching."""

    def __init__(self, size: int, results: ResultMemory) -> None:
        self.size = size
        self.results = results
        self.marked = np.zeros(size, dtype=np.uint8)
        self.above = np.empty(size + 1, dtype=np.int32)
        self._buffers: list[Codes] = []
        self._lent = 0
        self.rows_an_event = 0.0
        self._places: dict[tuple[bytes, int], tuple[Ints, Ints, int]] = {}
        self._attributes: dict[frozenset[AttributeId], Ints] = {}

    @property
    def nbytes(self) -> int:
        """The bytes of marks, buffers and places of columns."""
        places = sum(where.nbytes for where, *_ in list(self._places.values()))
        return self.marked.nbytes + self.above.nbytes + sum(each.nbytes for each in self._buffers) + places

    def batch_arrays(self, batch: EventBatch, concepts: int, columns: int) -> BatchArrays:
        """Returns the arrays of `batch` that programs read, with the positions of its columns and the start of the
        concept marks of each."""
        key = batch.columns.tobytes(), columns
        known = self._places.get(key)
        if known is None:
            where = np.full(columns, -1, dtype=np.int64)
            where[batch.columns] = np.arange(batch.columns.size)
            mark_base = np.full(batch.columns.size, -1, dtype=np.int64)
            mark_base[batch.concept_places] = np.arange(len(batch.concept_places)) * concepts
            known = where, mark_base, len(batch.concept_places) * concepts
            if len(self._places) >= min(REMEMBERED, max(1, REMEMBERED_PLACES // max(columns, 1))):
                self._places.clear()
            self._places[key] = known
        return BatchArrays(batch.columns, batch.codes, batch.numbers, batch.several_index, batch.several_from, *known)

    def attributes(self, present: frozenset[AttributeId]) -> Ints:
        """Returns the attributes of a kind of event as an array, in any order."""
        known = self._attributes.get(present)
        if known is None:
            if len(self._attributes) >= REMEMBERED:
                self._attributes.clear()
            known = self._attributes[present] = np.array(list(present), dtype=np.int64)
        return known

    def room(self, events: int) -> int:
        """Returns the number of rows to allocate for `events` events."""
        return FIRST_ROWS + int(self.rows_an_event * 1.25 * events)

    def buffer(self) -> Codes:
        """Lends a buffer for rows until `give_back`."""
        if self._lent == len(self._buffers):
            self._buffers.append(np.empty(FIRST_ROWS, dtype=np.int32))
        self._lent += 1
        return self._buffers[self._lent - 1]

    def keep(self, buffer: Codes) -> Codes:
        """Replaces the buffer that was lent last by `buffer`, which a kernel may have reallocated."""
        self._buffers[self._lent - 1] = buffer
        return buffer

    def give_back(self) -> None:
        """Takes all buffers back. Large buffers are released."""
        self._lent = 0
        self._buffers = [buffer for buffer in self._buffers if buffer.size <= KEPT_ROWS]


def search(
    segments: Sequence[Segment],
    memtables: Sequence[Memtable],
    batch: EventBatch,
    graph: GraphArrays,
    cells: Bytes,
    scratch: Scratch,
    columns: int,
) -> RowTable:
    """Returns all rows that match each event, in no order. A row with alternatives may occur repeatedly. `columns` is
    the number of columns that the engine has numbered."""
    events = batch.events
    memtables = [memtable for memtable in memtables if len(memtable)]
    asked = memtables or any(segment.programs is not None for segment in segments)
    concepts = graph.parent_from.size - 1
    arrays = scratch.batch_arrays(batch, concepts, columns) if asked else None
    finds: list[Find] = []
    if arrays is not None:
        finds += [_of_memtable(memtable, batch, arrays, graph, scratch) for memtable in memtables]
    # The largest segment is the last, so that what it finds is written behind what the others did, and copied no more.
    for place, segment in reversed(list(enumerate(segments))):
        last = place == 0 and segment.passes == 1 and segment.scattered is None
        before, before_from = NOTHING, np.zeros(events + 1, dtype=np.int64)
        if last and finds:
            one = len(finds) == 1 and finds[0][1].size == events + 1
            before, before_from = finds[0] if one else _table(finds, events, scratch)
        visits_from, visits = joined([segment.visits(present) for present in batch.presents])
        found: list[Find] = []
        if visits.size or last:
            starts = np.empty(segment.passes * events + 1, dtype=np.int64)
            given = last and segment.shared is None
            lent = scratch.results.lend(scratch.room(events)) if given else scratch.buffer()
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
                before,
                before_from,
                lent,
                starts,
            )
            if not given:
                scratch.keep(buffer)
            elif buffer.size > lent.size:  # what the kernel made instead is memory of results as well
                buffer = scratch.results.owned(buffer)
            found.append((buffer, starts))
        if segment.scattered is not None:
            found.append(_scattered(segment, segment.scattered, batch, graph, cells, scratch))
        if segment.programs is not None and arrays is not None:
            for buffer, starts in found:
                check_residuals(
                    buffer,
                    starts,
                    segment.rows,
                    segment.program_of,
                    segment.programs,
                    graph,
                    arrays,
                    scratch.marked,
                    scratch.above,
                )
        if segment.shared is not None:
            room = scratch.results.lend if last else _new_rows
            found = [segment.shared.expanded(*each, room) for each in found]
        finds = found if last else finds + found
    if segments and last:
        rows, offsets = finds[0]
        rows = rows[: offsets[-1]]
    else:
        rows, offsets = _table(finds, events, scratch)
    table = RowTable(offsets, rows)
    scratch.give_back()
    scratch.rows_an_event = table.rows.size / max(events, 1)
    return table


def _new_rows(rows: int) -> Codes:
    return np.empty(rows, dtype=np.int32)


def _scattered(
    segment: Segment, scattered: Scattered, batch: EventBatch, graph: GraphArrays, cells: Bytes, scratch: Scratch
) -> Find:
    present_from, present = joined([scratch.attributes(present) for present in batch.presents])
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


def in_memtables(
    memtables: Sequence[Memtable], batch: EventBatch, graph: GraphArrays, scratch: Scratch, columns: int
) -> list[Codes]:
    """Returns the rows of each memtable that match a batch of one event, in no order. `columns` is the number of
    columns that the engine has numbered."""
    arrays = scratch.batch_arrays(batch, graph.parent_from.size - 1, columns)
    found = [_of_memtable(memtable, batch, arrays, graph, scratch) for memtable in memtables]
    scratch.give_back()
    return [buffer[: starts[-1]] for buffer, starts in found]


def _of_memtable(
    memtable: Memtable, batch: EventBatch, arrays: BatchArrays, graph: GraphArrays, scratch: Scratch
) -> Find:
    entries, programs = memtable.arrays()
    sieves = memtable.sieves()
    starts = np.empty(batch.events + 1, dtype=np.int64)
    buffer = match_memtable(
        entries.rows,
        sieves,
        memtable.fits(batch.presents, scratch.attributes, sieves.masks.shape[2]),
        programs,
        graph,
        arrays,
        batch.kinds,
        scratch.marked,
        scratch.above,
        scratch.buffer(),
        starts,
    )
    return scratch.keep(buffer), starts


def _table(finds: Sequence[Find], events: int, scratch: Scratch) -> Find:
    """Merges finds of several passes into one find with a single pass."""
    offsets = np.zeros(events + 1, dtype=np.int64)
    for _, starts in finds:
        count_rows(offsets, starts)
    np.cumsum(offsets, out=offsets)
    rows = scratch.results.lend(int(offsets[-1]))[: offsets[-1]]
    place = offsets[:-1].copy()
    for buffer, starts in finds:
        gather_rows(place, rows, buffer, starts)
    return rows, offsets
