"""The engine's segments and memtables, and the background compaction that merges them.

    add ─▶ newest memtable ─full─▶ sealed ─▶ Merge with segments that are not much larger ─▶ new segment swapped in
    remove ─▶ row deleted from its memtable, or tombstone in its segment; half tombstones: merged without them

Only one thread may change these objects. Other threads may match while it makes no change. They read `parts`, which is
replaced atomically.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from kindcast.index.clause import Clause
from kindcast.index.errors import IndexFull
from kindcast.index.fused.arrays import Bytes, GraphArrays, GraphShape, graph_shape
from kindcast.index.fused.columns import CONCEPT, Columns, Parts
from kindcast.index.fused.layout import Groups, groups_of_places, merged, no_pause
from kindcast.index.fused.memtable import FROZEN, IN_MEMTABLE, Memtable, RowLocations
from kindcast.index.fused.residuals import Rest, joined_rests
from kindcast.index.fused.search import ResultMemory, Scratch
from kindcast.index.fused.segment import Segment

__all__ = ["Builder", "Compaction", "at_once", "in_thread"]


# Merges: sealed memtables and segments become one new segment while matching continues.
#
#     due ─▶ Merge(sources) ─▶ run, any thread: groups of live rows ─▶ lay_out ─▶ result
#                    ▲                                                        │
#     rows removed meanwhile ─────────────────────────────▶ tombstones ◀──────┘ ─▶ swapped in by the owner
#
# The sources of a merge are immutable, except for tombstones, so a merge needs no lock. A row that is removed during
# the merge always gets a tombstone in the result. Until the swap, the sources are searched.

TIER = 8
"""A segment is merged with newer rows when they are at least an eighth of its size. So an event searches some log8(n)
segments at 7 µs each, and each row is rewritten a dozen times in total, at some 2 µs each."""

HELD = 200e-6
"""Maximum time in seconds for which a merge holds the GIL without a pause: a few times the time to match an event. A
waiting thread gets the GIL after 5 ms, or as soon as its holder releases it."""
PAUSE = 100e-6
"""Length of a pause in seconds: long enough for another thread to wake up; merges still get most of a core."""
THREAD = "kindcast-merge"

_logger = logging.getLogger(__name__)


class GilPauses:
    """Called between the small steps of a merge. Releases the GIL after `HELD` seconds, so that matching is not
    delayed."""

    def __init__(self) -> None:
        self._due = time.perf_counter() + HELD

    def __call__(self) -> None:
        if time.perf_counter() >= self._due:
            time.sleep(PAUSE)
            self._due = time.perf_counter() + HELD


class Builder:
    """Builds segments for one concept graph. Data derived from the graph is computed at first use."""

    def __init__(self, graph: GraphArrays, no_cells: Bytes, block_rows: int) -> None:
        self.shape: GraphShape | None = None
        self.masked = True
        """Whether segments get masks. Without masks they are smaller and slower."""
        self._graph = graph
        self._no_cells = no_cells
        self._block_rows = block_rows

    @property
    def cells(self) -> Bytes:
        """The cell of each concept. All zeros until a segment needs cells."""
        return self._no_cells if self.shape is None else self.shape.cells

    @property
    def nbytes(self) -> int:
        """Size in bytes of the data derived from the graph."""
        return self._no_cells.nbytes + sum(array.nbytes for array in self.shape or ())

    def segment(
        self,
        parts: Sequence[Groups],
        rests: Sequence[Rest | None],
        pause: Callable[[], None] = no_pause,
        room: int | None = None,
    ) -> Segment | None:
        """Builds one segment with all rows of `parts`; returns None if there are none. A segment of more than `room`
        bytes is built again without masks. Thread-safe."""
        groups = merged(parts)
        if not groups:
            return None
        if self.shape is None and any(how == CONCEPT for _, _, slots, _ in groups for how, _ in slots):
            self.shape = graph_shape(self._graph)
        rest = joined_rests(rests)
        size = {"block_rows": self._block_rows}
        segment = Segment.built(groups, rest, self.shape, **size, masked=self.masked, pause=pause)
        if room is not None and segment.nbytes > room and self.masked:
            segment = Segment.built(groups, rest, self.shape, **size, masked=False, pause=pause)
        return segment


class Merge:
    """One merge. The owner of the engine creates it, reports removals to it and takes its result. Any thread may call
    `run`; the first call does the work."""

    def __init__(
        self, builder: Builder, segments: Sequence[Segment], memtables: Sequence[Memtable], room: int | None = None
    ) -> None:
        """`memtables` must be sealed. `room` is the desired maximum size of the result in bytes."""
        self.segments = tuple(segments)
        self.memtables = tuple(memtables)
        self.removed: list[int] = []
        """Rows that were removed from the sources after the merge was created. Append-only."""
        self.result: Segment | None = None
        self.failed: BaseException | None = None
        self.done = False
        self._builder = builder
        self._room = room
        self._claim = threading.Lock()
        self._marked = 0
        # The owner continues to remove rows from the memtables, so their current content is copied.
        self._placed = [list(memtable.places.items()) for memtable in memtables]
        self._rests = [memtable.rest() for memtable in memtables]

    def run(self) -> None:
        """Runs the merge if it is not done. Waits if another thread runs it. An error is stored for the owner."""
        with self._claim:
            if self.done:
                return
            try:
                pause = GilPauses() if threading.current_thread().name == THREAD else no_pause
                pairs = [(segment, segment.living()) for segment in self.segments]
                parts = [groups_of_places(placed) for placed in self._placed]
                parts += [segment.groups(living, pause) for segment, living in pairs]
                rests = [*self._rests, *(segment.rest_of(living) for segment, living in pairs)]
                self.result = self._builder.segment(parts, rests, pause, self._room)
                self.mark_removed()
            except Exception as error:
                _logger.exception("merging segments failed; the index keeps the old segments")
                self.failed = error
            self.done = True

    def mark_removed(self) -> None:
        """Writes tombstones into the result for the rows that were removed since the last call. Called by the merging
        thread, then by the owner."""
        while self._marked < len(self.removed):
            row = self.removed[self._marked]
            self._marked += 1
            if self.result is not None:
                self.result.bury(row)


def due(segments: Sequence[Segment], sealed: int) -> list[Segment]:
    """Returns those of `segments`, ordered from large to small, that must be merged with `sealed` rows of memtables:
    segments that are not much larger than all newer rows together, and segments that are half tombstones."""
    taken: list[Segment] = []
    left = list(segments)
    count = sealed
    while left and count and left[-1].live <= TIER * count:
        taken.append(left.pop())
        count += taken[-1].live
    if not taken and not sealed and len(left) > 1 and left[-2].live <= TIER * left[-1].live:
        return due(left[:-1], left[-1].live) + left[-1:]
    return taken + [segment for segment in left if segment.half_tombstones]


def at_once(run: Callable[[], None]) -> None:
    """Runs each merge in the caller's thread as soon as it is due."""
    run()


def in_thread(run: Callable[[], None]) -> None:
    """Runs each merge in a new background thread, which ends with the merge."""
    threading.Thread(target=run, name=THREAD).start()


LATE = 4
"""While a merge runs, the memtable may grow to this multiple of its size. Then the owner freezes it separately."""
ONE_ROW = 4096
"""Estimated maximum size of a row in the memtable in bytes, for the budget: a clause of some dozen tests."""
MANY_TOMBSTONES = 16
"""When memory is short, a merge is due if more than one row in this number is a tombstone."""
LARGE_MEMTABLE = 4
"""When memory is short, a merge is due if the memtable takes more than one in this number of the bytes allowed."""


class IndexParts(NamedTuple):
    """Segments from large to small, and memtables. The last memtable takes new rows; the others are sealed."""

    segments: tuple[Segment, ...]
    memtables: tuple[Memtable, ...]


class Compaction:
    """The memtables and segments of an engine. Invariant: a stored row is in one memtable, or is live in exactly one
    segment, or no event can match it. Memtables exceed their size, and segments are half tombstones, only while a merge
    runs."""

    def __init__(
        self,
        builder: Builder,
        columns: Columns,
        locations: RowLocations,
        segments: Sequence[Segment],
        *,
        memtable_rows: int,
        run: Callable[[Callable[[], None]], None],
        budget: int | None,
    ) -> None:
        self.parts = IndexParts(tuple(segments), (Memtable(columns),))
        self.scratches: list[Scratch] = []
        """Scratch memory that no search currently uses."""
        self.results = ResultMemory()
        self._builder = builder
        self._columns = columns
        self._locations = locations
        self._memtable_rows = memtable_rows
        self._run = run
        self._budget = budget
        self._merge: Merge | None = None
        self._failed: BaseException | None = None
        self._advancing = threading.Lock()

    @property
    def nbytes(self) -> int:
        """Size in bytes of segments, memtables, row allocation, columns, data derived from the concept graph, and
        caches."""
        segments, memtables = self.parts
        parts = sum(each.nbytes for each in segments) + sum(each.nbytes for each in memtables)
        caches = sum(each.nbytes for each in list(self.scratches)) + self.results.nbytes
        return parts + caches + self._locations.nbytes + self._columns.nbytes + self._builder.nbytes

    @property
    def structure(self) -> Mapping[str, int]:
        """Counts of segments, of their clusters and live rows, and of the rows in memtables."""
        segments, memtables = self.parts
        return {
            "segments": len(segments),
            "clusters": sum(len(each.clusters) for each in segments),
            "segment_rows": sum(each.live for each in segments),
            "memtable_rows": sum(map(len, memtables)),
        }

    # ── rows ────────────────────────────────────────────────────────────────────────────────────────────────────

    def add(self, row: int, clause: Clause, parts: Parts) -> None:
        """Adds `row` to the newest memtable."""
        memtable = self.parts.memtables[-1]
        memtable.add(row, clause, parts)
        self._locations.put(row, IN_MEMTABLE)
        self._locations.repeating += len(parts.alternatives) > 1
        if memtable.entries > self._memtable_rows:
            self._seal()

    def freeze(self, groups: Groups, rest: Rest | None) -> None:
        """Adds new rows, already allocated as `FROZEN`, as one segment. Raises `IndexFull`; then none of them is
        stored."""
        segment = self._builder.segment([groups], [rest], room=self._room())
        if segment is not None:
            self.make_room(segment.nbytes)
            segments, memtables = self.parts
            self.parts = IndexParts(_ordered((*segments, segment)), memtables)
            self.advance(begin=True)

    def remove(self, row: int, where: int) -> None:
        """Removes `row`, which must be allocated."""
        if where == IN_MEMTABLE:
            memtable = next(each for each in self.parts.memtables if row in each)
            self._locations.repeating -= len(memtable.places[row]) > 1
            memtable.remove(row)
            if self._merge is not None and memtable in self._merge.memtables:
                self._merge.removed.append(row)
            elif not memtable:
                segments, memtables = self.parts
                self.parts = IndexParts(segments, (*memtables[:-1], Memtable(self._columns)))
        elif where == FROZEN:
            segment, positions = next(
                (each, positions) for each in self.parts.segments if (positions := each.bury(row))
            )
            self._locations.repeating -= positions > 1
            if self._merge is not None and segment in self._merge.segments:
                self._merge.removed.append(row)
            elif segment.half_tombstones:
                self.advance(begin=True)

    # ── merges ──────────────────────────────────────────────────────────────────────────────────────────────────

    def advance(self, *, begin: bool = False, wait: bool = False) -> None:
        """Swaps in the result of a finished merge. With `wait`, first runs an unfinished merge. With `begin`, starts
        the merges that are due, including those due after the swap. One thread does so; threads that match continue
        with the previous parts."""
        if (self._merge is None and not begin) or not (wait or begin or (self._merge and self._merge.done)):
            return
        if not self._advancing.acquire(blocking=wait):
            return
        try:
            while True:
                merge = self._merge
                if merge is not None:
                    if wait:
                        merge.run()
                    if not merge.done:
                        return
                    self._take_in(merge)
                    if merge.failed is not None:
                        return
                segments, memtables = self.parts
                if memtables[-1].entries > self._memtable_rows:
                    memtables = (*memtables, Memtable(self._columns))
                    self.parts = IndexParts(segments, memtables)
                sources = due(segments, sum(map(len, memtables[:-1])))
                if not sources and len(memtables) == 1:
                    return
                self._merge = Merge(self._builder, sources, memtables[:-1], self._room(sources))
                self._run(self._merge.run)
        finally:
            self._advancing.release()

    def merge_now(self) -> None:
        """Merges all rows into one segment without tombstones, in this thread. Waits for a running merge. Raises the
        error of a failed merge."""
        self.advance(begin=True, wait=True)
        segments, memtables = self.parts
        if any(memtables) or len(segments) > 1 or any(segment.live < segment.stored for segment in segments):
            self.parts = IndexParts(segments, (*memtables, Memtable(self._columns)))
            self._merge = Merge(self._builder, segments, memtables, self._room(segments))
            self.advance(wait=True)
        if self._failed is not None:
            raise self._failed

    def frozen(self) -> tuple[Segment, ...]:
        """Returns the segments, and an additional segment with the rows of the memtables."""
        segments, memtables = self.parts
        groups = [groups_of_places(memtable.places.items()) for memtable in memtables]
        newest = self._builder.segment(groups, [memtable.rest() for memtable in memtables])
        return segments if newest is None else (*segments, newest)

    # ── the budget ──────────────────────────────────────────────────────────────────────────────────────────────

    def make_room(self, needed: int | None = None) -> None:
        """Makes room for `needed` bytes, or for one row: drops caches, then masks and tombstones, and freezes a large
        memtable, whose rows take several times the memory of those in a segment. Raises `IndexFull`."""
        budget = self._budget
        if budget is None or self._has_room(needed, budget):
            return
        self.scratches.clear()
        self.results.clear()
        for segment in self.parts.segments:
            segment.forget()
        for memtable in self.parts.memtables:
            memtable.forget()
        rows = sum(segment.stored for segment in self.parts.segments)
        removed = rows - sum(segment.live for segment in self.parts.segments)
        is_large = LARGE_MEMTABLE * sum(memtable.nbytes for memtable in self.parts.memtables) > budget
        would_shrink = self._builder.masked or is_large or MANY_TOMBSTONES * removed > rows
        if would_shrink and not self._has_room(needed, budget):
            self._builder.masked = False
            self._rebuild()
        if not self._has_room(needed, budget):
            raise IndexFull(budget)

    def _has_room(self, needed: int | None, budget: int) -> bool:
        """Whether `budget` bytes have room for `needed` more, or for one row in the newest memtable as it is now."""
        if needed is None:  # arrays double when they are full
            needed = ONE_ROW + self.parts.memtables[-1].nbytes + self._locations.next_nbytes
        return self.nbytes + needed <= budget

    def keep(self, scratch: Scratch) -> None:
        """Keeps `scratch` for the next search, if the budget has room."""
        if self._budget is None or self.nbytes + scratch.nbytes <= self._budget:
            self.scratches.append(scratch)
        else:
            self.results.clear()

    def _rebuild(self) -> None:
        """Builds all segments again with the current settings of the builder."""
        self.merge_now()
        segments, memtables = self.parts
        self._merge = Merge(self._builder, segments, memtables[:-1])
        self.advance(wait=True)

    def _room(self, instead_of: Sequence[Segment] = ()) -> int | None:
        """Returns the maximum size in bytes of a segment that replaces the segments `instead_of`."""
        if self._budget is None:
            return None
        if 2 * self.nbytes < self._budget:
            self._builder.masked = True
        return self._budget - self.nbytes + sum(segment.nbytes for segment in instead_of)

    # ── structure ───────────────────────────────────────────────────────────────────────────────────────────────

    def check_invariants(self) -> None:
        """Raises AssertionError if a structural invariant is violated."""
        segments, memtables = self.parts
        locations, state = self._locations, self._locations.state()
        # Each stored row is where the row allocation has it.
        new = [row for memtable in memtables for row in memtable.places]
        assert sorted(new) == np.flatnonzero(state == IN_MEMTABLE).tolist(), (new, state)
        living = [set(segment.living_rows().tolist()) for segment in segments]
        together: set[int] = set().union(*living)
        assert sum(map(len, living)) == len(together), living
        assert sorted(together) == np.flatnonzero(state == FROZEN).tolist(), (living, state)
        # Rows that a search may find twice are counted.
        repeating = sum(len(places) > 1 for memtable in memtables for places in memtable.places.values())
        for segment in segments:
            repeating += int((np.unique(segment.living_rows(), return_counts=True)[1] > 1).sum())
        assert locations.repeating == repeating, (locations.repeating, repeating)
        assert self._failed is None, self._failed
        if self._merge is None:
            assert len(memtables) == 1, memtables
            assert memtables[0].entries <= self._memtable_rows, memtables[0].entries
            assert not any(segment.half_tombstones or not segment.rows.size for segment in segments), segments
        for memtable in memtables:
            memtable.check_invariants()
        for segment in segments:
            segment.check_invariants()
        assert not any(scratch.marked.any() for scratch in self.scratches)
        assert self._budget is None or self._merge is not None or self.nbytes <= self._budget, self.nbytes

    def _seal(self) -> None:
        """Seals the full memtable and adds an empty one. The sealed memtable is merged with segments that are not much
        larger."""
        memtable = self.parts.memtables[-1]
        if self._merge is None:
            self.advance(begin=True)
        elif memtable.entries > LATE * self._memtable_rows:
            segment = self._builder.segment(
                [groups_of_places(memtable.places.items())], [memtable.rest()], room=self._room()
            )
            segments, memtables = self.parts
            more = segments if segment is None else _ordered((*segments, segment))
            self.parts = IndexParts(more, (*memtables[:-1], Memtable(self._columns)))
            self._locations.put(list(memtable.places), FROZEN)

    def _take_in(self, merge: Merge) -> None:
        """Replaces the sources of `merge` by its result."""
        segments, memtables = self.parts
        self._merge = None
        self._failed = merge.failed
        if merge.failed is None:
            merge.mark_removed()
            for memtable in merge.memtables:
                self._locations.put(list(memtable.places), FROZEN)
            left = tuple(segment for segment in segments if segment not in merge.segments)
            if merge.result is not None and merge.result.live:
                left = _ordered((*left, merge.result))
            self.parts = IndexParts(left, tuple(each for each in memtables if each not in merge.memtables))


def _ordered(segments: Sequence[Segment]) -> tuple[Segment, ...]:
    return tuple(sorted(segments, key=lambda each: -each.live))
