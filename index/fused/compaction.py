"""The engine's segments and memtables, and the background compaction that merges them.

    add ─▶ newest memtable ─full─▶ sealed ─▶ Merge with what is not much larger ─▶ taken in: segments
    remove ─▶ out of its memtable, or a tombstone in its segment; half tombstones: merged without them

Only one thread changes this. Other threads may match while it makes no change. What they read, `parts`, is
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


# Merges: sealed memtables and segments become one new segment while events are still matched.
#
#     due ─▶ Merge(sources) ─▶ run, wherever: groups of the living ─▶ lay_out ─▶ result
#                    ▲                                                        │
#     rows removed meanwhile ─────────────────────────────▶ tombstones ◀──────┘ ─▶ swapped in by the owner
#
# What a merge reads never changes, except for tombstones, so it needs no lock. A row that is removed while the merge
# runs gets a tombstone in the result in any case. Until the swap the sources answer.

TIER = 8
"""A segment is frozen again together with newer rows once they are an eighth of it: an event asks some log8(n)
segments, each 7 µs, and each row is written anew a dozen times in all, some 2 µs each."""

HELD = 200e-6
"""Seconds that a merge may hold the GIL at a stretch: a few times what matching an event takes. A thread that waits for
the GIL gets it after 5 ms, or as soon as its holder releases it."""
PAUSE = 100e-6
"""Seconds of a pause: long enough for another thread to wake up, and merges still get most of a core."""
THREAD = "kindcast-merge"

_logger = logging.getLogger(__name__)


class GilPauses:
    """Called between the small steps of a merge; releases the GIL when it is time, so that matching is not held up."""

    def __init__(self) -> None:
        self._due = time.perf_counter() + HELD

    def __call__(self) -> None:
        if time.perf_counter() >= self._due:
            time.sleep(PAUSE)
            self._due = time.perf_counter() + HELD


class Builder:
    """Makes segments under one concept graph; what it derives from the graph, it derives when it is first needed."""

    def __init__(self, graph: GraphArrays, no_cells: Bytes, block_rows: int) -> None:
        self.shape: GraphShape | None = None
        self.masked = True
        """Whether segments get masks; without, they are smaller and slower."""
        self._graph = graph
        self._no_cells = no_cells
        self._block_rows = block_rows

    @property
    def cells(self) -> Bytes:
        """The cell of each concept; zeros until a segment needs them."""
        return self._no_cells if self.shape is None else self.shape.cells

    @property
    def nbytes(self) -> int:
        """The bytes of what is derived from the graph."""
        return self._no_cells.nbytes + sum(array.nbytes for array in self.shape or ())

    def segment(
        self,
        parts: Sequence[Groups],
        rests: Sequence[Rest | None],
        pause: Callable[[], None] = no_pause,
        room: int | None = None,
    ) -> Segment | None:
        """All rows of `parts` in one segment, None if there are none. One that has more than `room` bytes is made again
        without masks. Any thread may call this."""
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
    """One merge. The owner of the engine makes it, tells it of removals and takes the result; any thread may run it,
    and the first to do so does."""

    def __init__(
        self, builder: Builder, segments: Sequence[Segment], memtables: Sequence[Memtable], room: int | None = None
    ) -> None:
        """`memtables` are sealed; `room` is how many bytes the result should have at most."""
        self.segments = tuple(segments)
        self.memtables = tuple(memtables)
        self.removed: list[int] = []
        """Rows that were removed from the sources since; grows only."""
        self.result: Segment | None = None
        self.failed: BaseException | None = None
        self.done = False
        self._builder = builder
        self._room = room
        self._claim = threading.Lock()
        self._marked = 0
        # The owner goes on removing rows from the memtables, so what they hold now is copied.
        self._placed = [list(memtable.places.items()) for memtable in memtables]
        self._rests = [memtable.rest() for memtable in memtables]

    def run(self) -> None:
        """Do it, unless it is done; waits if another thread is at it. An error is kept for the owner."""
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
        """Put tombstones into the result for rows removed since the last call. Called by the merging thread, then by
        the owner."""
        while self._marked < len(self.removed):
            row = self.removed[self._marked]
            self._marked += 1
            if self.result is not None:
                self.result.bury(row)


def due(segments: Sequence[Segment], sealed: int) -> list[Segment]:
    """Which of `segments`, ordered from large to small, are to be merged with `sealed` rows of memtables: those
    that are not much larger than all that is newer, and those that are half tombstones."""
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
    """Each merge runs in the caller's thread as soon as it is due."""
    run()


def in_thread(run: Callable[[], None]) -> None:
    """Each merge runs in its own background thread, which ends with it."""
    threading.Thread(target=run, name=THREAD).start()


LATE = 4
"""While a merge runs, the memtable may grow to so many times its size; then it is frozen by itself, by the owner."""
ONE_ROW = 4096
"""Bytes that one row in the memtable is reckoned at most, for the budget: clauses of some dozen tests."""
MANY_TOMBSTONES = 16
"""When memory is short, a merge is due once one row in this many is a tombstone."""


class IndexParts(NamedTuple):
    """Segments from large to small; the last memtable takes new rows, those before it are sealed."""

    segments: tuple[Segment, ...]
    memtables: tuple[Memtable, ...]


class Compaction:
    """Invariant: a stored row is in one memtable, or lives in exactly one segment, or no event can match it.
    Memtables are over-full, and segments half tombstones, only while a merge runs."""

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
        """What searches work with, while none uses it."""
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
        """The bytes of segments, memtables, row allocation, columns, what is derived from the concept graph, and
        caches."""
        segments, memtables = self.parts
        parts = sum(each.nbytes for each in segments) + sum(each.nbytes for each in memtables)
        caches = sum(each.nbytes for each in list(self.scratches)) + self.results.nbytes
        return parts + caches + self._locations.nbytes + self._columns.nbytes + self._builder.nbytes

    @property
    def structure(self) -> Mapping[str, int]:
        """Segments, their clusters and living rows, and the rows of the memtables."""
        segments, memtables = self.parts
        return {
            "segments": len(segments),
            "clusters": sum(len(each.clusters) for each in segments),
            "segment_rows": sum(each.live for each in segments),
            "memtable_rows": sum(map(len, memtables)),
        }

    # ── rows ────────────────────────────────────────────────────────────────────────────────────────────────────

    def add(self, row: int, clause: Clause, parts: Parts) -> None:
        """Into the newest memtable."""
        memtable = self.parts.memtables[-1]
        memtable.add(row, clause, parts)
        self._locations.put(row, IN_MEMTABLE)
        self._locations.repeating += len(parts.alternatives) > 1
        if memtable.entries > self._memtable_rows:
            self._seal()

    def freeze(self, groups: Groups, rest: Rest | None) -> None:
        """Add new rows, already allocated as `FROZEN`, as one segment. Raises `IndexFull`, with nothing
        kept of them."""
        segment = self._builder.segment([groups], [rest], room=self._room())
        if segment is not None:
            self.make_room(segment.nbytes)
            segments, memtables = self.parts
            self.parts = IndexParts(_ordered((*segments, segment)), memtables)
            self.advance(begin=True)

    def remove(self, row: int, where: int) -> None:
        """Remove `row`, which must be allocated."""
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
        """Take in a merge that is done (`wait`: and do it, if it is not), and `begin` what is due, or is due by that.
        One thread does so, while others that match go on with what there was."""
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
        """Merge all rows into one segment without tombstones, in this thread; waits for a merge that runs. Raises what
        a merge has raised."""
        self.advance(begin=True, wait=True)
        segments, memtables = self.parts
        if any(memtables) or len(segments) > 1 or any(segment.live < segment.stored for segment in segments):
            self.parts = IndexParts(segments, (*memtables, Memtable(self._columns)))
            self._merge = Merge(self._builder, segments, memtables, self._room(segments))
            self.advance(wait=True)
        if self._failed is not None:
            raise self._failed

    def frozen(self) -> tuple[Segment, ...]:
        """The segments, and one more of what the memtables hold."""
        segments, memtables = self.parts
        groups = [groups_of_places(memtable.places.items()) for memtable in memtables]
        newest = self._builder.segment(groups, [memtable.rest() for memtable in memtables])
        return segments if newest is None else (*segments, newest)

    # ── the budget ──────────────────────────────────────────────────────────────────────────────────────────────

    def make_room(self, needed: int | None = None) -> None:
        """For so many bytes more, or one row, by giving up caches, then masks and tombstones. Raises `IndexFull`."""
        if self._budget is None:
            return
        if needed is None:  # arrays double when they are full
            needed = ONE_ROW + self.parts.memtables[-1].nbytes + self._locations.next_nbytes
        if self.nbytes + needed <= self._budget:
            return
        self.scratches.clear()
        self.results.clear()
        for segment in self.parts.segments:
            segment.forget()
        for memtable in self.parts.memtables:
            memtable.forget()
        rows = sum(segment.stored for segment in self.parts.segments)
        removed = rows - sum(segment.live for segment in self.parts.segments)
        if self.nbytes + needed > self._budget and (self._builder.masked or MANY_TOMBSTONES * removed > rows):
            self._builder.masked = False
            self._rebuild()
        if self.nbytes + needed > self._budget:
            raise IndexFull(self._budget)

    def keep(self, scratch: Scratch) -> None:
        """For the next search, if there is room."""
        if self._budget is None or self.nbytes + scratch.nbytes <= self._budget:
            self.scratches.append(scratch)
        else:
            self.results.clear()

    def _rebuild(self) -> None:
        """Everything once more, as the builder builds now."""
        self.merge_now()
        segments, memtables = self.parts
        self._merge = Merge(self._builder, segments, memtables[:-1])
        self.advance(wait=True)

    def _room(self, instead_of: Sequence[Segment] = ()) -> int | None:
        """How many bytes a segment may have that replaces others."""
        if self._budget is None:
            return None
        if 2 * self.nbytes < self._budget:
            self._builder.masked = True
        return self._budget - self.nbytes + sum(segment.nbytes for segment in instead_of)

    # ── structure ───────────────────────────────────────────────────────────────────────────────────────────────

    def check_invariants(self) -> None:
        """Raise AssertionError if a structural invariant is broken."""
        segments, memtables = self.parts
        locations, state = self._locations, self._locations.state()
        # Each stored row is where the row allocation says.
        new = [row for memtable in memtables for row in memtable.places]
        assert sorted(new) == np.flatnonzero(state == IN_MEMTABLE).tolist(), (new, state)
        living = [set(segment.living_rows().tolist()) for segment in segments]
        together: set[int] = set().union(*living)
        assert sum(map(len, living)) == len(together), living
        assert sorted(together) == np.flatnonzero(state == FROZEN).tolist(), (living, state)
        # What may be found twice is counted.
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
        """The memtable is full: no more rows go into it, and it is merged with what is not much larger."""
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
        """Replace the sources by the result."""
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
