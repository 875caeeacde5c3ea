"""Merges: out of sealed deltas and segments one new segment, beside the events that go on being matched.

    due ─▶ Merge(sources) ─▶ run, wherever: groups of the living ─▶ lay_out ─▶ result
                   ▲                                                        │
    rows removed meanwhile ─────────────────────────────▶ dead in it ◀──────┘ ─▶ swapped in by the owner

What a merge reads never changes but for marks of the dead, so it needs no lock: a row that is removed while it runs is
found alive or dead by it, and is marked in the result afterwards in either case. Until the swap the sources answer.
"""

import logging
import threading
from collections.abc import Callable, Sequence

from index.fused.arrays import Bytes
from index.fused.breathing import Breath, hold
from index.fused.conjuncts import CONCEPT
from index.fused.delta import Delta
from index.fused.graph_arrays import GraphArrays, GraphShape, graph_shape
from index.fused.grouping import Groups, groups_of_places, merged
from index.fused.rest import Rest, joined_rests
from index.fused.segment import Segment

__all__ = ["Builder", "Merge", "at_once", "due", "in_thread"]

TIER = 8
"""A segment is frozen again together with newer rows once they are an eighth of it: an event asks some log8(n)
segments, each 7 µs, and each row is written anew a dozen times in all, some 2 µs each."""

THREAD = "kindcast-merge"

_logger = logging.getLogger(__name__)


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
        breathe: Callable[[], None] = hold,
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
        segment = Segment.built(groups, rest, self.shape, **size, masked=self.masked, breathe=breathe)
        if room is not None and segment.nbytes > room and self.masked:
            segment = Segment.built(groups, rest, self.shape, **size, masked=False, breathe=breathe)
        return segment


class Merge:
    """One merge. The owner of the engine makes it, tells it of removals and takes the result; any thread may run it,
    and the first to do so does."""

    def __init__(
        self, builder: Builder, segments: Sequence[Segment], deltas: Sequence[Delta], room: int | None = None
    ) -> None:
        """`deltas` are sealed; `room` is how many bytes the result should have at most."""
        self.segments = tuple(segments)
        self.deltas = tuple(deltas)
        self.removed: list[int] = []
        """Rows that were removed from the sources since; grows only."""
        self.result: Segment | None = None
        self.failed: BaseException | None = None
        self.done = False
        self._builder = builder
        self._room = room
        self._claim = threading.Lock()
        self._marked = 0
        # The owner goes on removing rows from the deltas, so what they hold now is copied.
        self._placed = [list(delta.places.items()) for delta in deltas]
        self._rests = [delta.rest() for delta in deltas]

    def run(self) -> None:
        """Do it, unless it is done; waits if another thread is at it. An error is kept for the owner."""
        with self._claim:
            if self.done:
                return
            try:
                breathe = Breath() if threading.current_thread().name == THREAD else hold
                pairs = [(segment, segment.living()) for segment in self.segments]
                parts = [groups_of_places(placed) for placed in self._placed]
                parts += [segment.groups(living, breathe) for segment, living in pairs]
                rests = [*self._rests, *(segment.rest_of(living) for segment, living in pairs)]
                self.result = self._builder.segment(parts, rests, breathe, self._room)
                self.mark_removed()
            except Exception as error:
                _logger.exception("a merge of segments failed; the index goes on with what it merges")
                self.failed = error
            self.done = True

    def mark_removed(self) -> None:
        """Mark in the result what was removed since the last time. By whoever runs it, then by the owner."""
        while self._marked < len(self.removed):
            row = self.removed[self._marked]
            self._marked += 1
            if self.result is not None:
                self.result.kill(row)


def due(segments: Sequence[Segment], sealed: int) -> list[Segment]:
    """Which of `segments`, ordered from large to small, are to be merged with `sealed` rows of deltas: those that are
    not much larger than all that is newer, and those that are half dead."""
    taken: list[Segment] = []
    left = list(segments)
    count = sealed
    while left and count and left[-1].live <= TIER * count:
        taken.append(left.pop())
        count += taken[-1].live
    if not taken and not sealed and len(left) > 1 and left[-2].live <= TIER * left[-1].live:
        return due(left[:-1], left[-1].live) + left[-1:]
    return taken + [segment for segment in left if segment.half_dead]


def at_once(run: Callable[[], None]) -> None:
    """Merges run where they become due: nothing happens beside the owner, who waits."""
    run()


def in_thread(run: Callable[[], None]) -> None:
    """Each merge has a thread of its own, and there is none between merges."""
    threading.Thread(target=run, name=THREAD).start()
