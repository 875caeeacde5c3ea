"""What an engine stands on, segments and deltas, and how it is kept in order while rows come and go.

    add ─▶ newest delta ─full─▶ sealed ─▶ Merge with what is not much larger ─▶ taken in: segments
    remove ─▶ out of its delta, or dead in its segment; half dead: merged without them

One thread changes this. Others may match while it changes nothing; what they see, `parts`, is replaced at once, so that
it is never half of one state and half of another.
"""

import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from index.clause import Clause
from index.errors import IndexFull
from index.fused.columns import Columns
from index.fused.conjuncts import Parts
from index.fused.delta import Delta
from index.fused.grouping import Groups, groups_of_places
from index.fused.merging import Builder, Merge, due
from index.fused.rest import Rest
from index.fused.row_books import FROZEN, IN_DELTA, RowBooks
from index.fused.search import ResultMemory, Scratch
from index.fused.segment import Segment

__all__ = ["Standing", "Upkeep"]

LATE = 4
"""While a merge runs, the delta may grow to so many times its size; then it is frozen by itself, by the owner."""
ONE_ROW = 4096
"""Bytes that one row in the delta is reckoned at most, for the budget: clauses of some dozen tests."""
MANY_DEAD = 16
"""Dead rows are worth a merge when memory is short once they are one of so many."""


class Standing(NamedTuple):
    """Segments from large to small; the last delta takes new rows, those before it are sealed."""

    segments: tuple[Segment, ...]
    deltas: tuple[Delta, ...]


class Upkeep:
    """Invariant: a stored row is in one delta, or lives in exactly one segment, or no event can match it. Deltas are
    over-full, and segments half dead, only while a merge runs."""

    def __init__(
        self,
        builder: Builder,
        columns: Columns,
        books: RowBooks,
        segments: Sequence[Segment],
        *,
        delta_rows: int,
        run: Callable[[Callable[[], None]], None],
        budget: int | None,
    ) -> None:
        self.parts = Standing(tuple(segments), (Delta(columns),))
        self.scratches: list[Scratch] = []
        """What searches work with, while none uses it."""
        self.results = ResultMemory()
        self._builder = builder
        self._columns = columns
        self._books = books
        self._delta_rows = delta_rows
        self._run = run
        self._budget = budget
        self._merge: Merge | None = None
        self._failed: BaseException | None = None
        self._advancing = threading.Lock()

    @property
    def nbytes(self) -> int:
        """The bytes of segments, deltas, books, columns, what is derived from the concept graph, and caches."""
        segments, deltas = self.parts
        parts = sum(each.nbytes for each in segments) + sum(each.nbytes for each in deltas)
        caches = sum(each.nbytes for each in list(self.scratches)) + self.results.nbytes
        return parts + caches + self._books.nbytes + self._columns.nbytes + self._builder.nbytes

    # ── rows ────────────────────────────────────────────────────────────────────────────────────────────────────

    def add(self, row: int, clause: Clause, parts: Parts) -> None:
        """Into the newest delta."""
        delta = self.parts.deltas[-1]
        delta.add(row, clause, parts)
        self._books.put(row, IN_DELTA)
        self._books.repeating += len(parts.alternatives) > 1
        if delta.entries > self._delta_rows:
            self._seal()

    def freeze(self, groups: Groups, rest: Rest | None) -> None:
        """New rows, which stand in the books as `FROZEN`, in a segment of their own. Raises `IndexFull`, with nothing
        kept of them."""
        segment = self._builder.segment([groups], [rest], room=self._room())
        if segment is not None:
            self.make_room(segment.nbytes)
            segments, deltas = self.parts
            self.parts = Standing(_ordered((*segments, segment)), deltas)
            self.advance(begin=True)

    def remove(self, row: int, where: int) -> None:
        """Forget `row`, which the books say is there."""
        if where == IN_DELTA:
            delta = next(each for each in self.parts.deltas if row in each)
            self._books.repeating -= len(delta.places[row]) > 1
            delta.remove(row)
            if self._merge is not None and delta in self._merge.deltas:
                self._merge.removed.append(row)
            elif not delta:
                segments, deltas = self.parts
                self.parts = Standing(segments, (*deltas[:-1], Delta(self._columns)))
        elif where == FROZEN:
            segment, positions = next(
                (each, positions) for each in self.parts.segments if (positions := each.kill(row))
            )
            self._books.repeating -= positions > 1
            if self._merge is not None and segment in self._merge.segments:
                self._merge.removed.append(row)
            elif segment.half_dead:
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
                segments, deltas = self.parts
                if deltas[-1].entries > self._delta_rows:
                    deltas = (*deltas, Delta(self._columns))
                    self.parts = Standing(segments, deltas)
                sources = due(segments, sum(map(len, deltas[:-1])))
                if not sources and len(deltas) == 1:
                    return
                self._merge = Merge(self._builder, sources, deltas[:-1], self._room(sources))
                self._run(self._merge.run)
        finally:
            self._advancing.release()

    def merge_now(self) -> None:
        """Bring every row into one segment without dead rows, here; waits for a merge that runs. Raises what a merge
        has raised."""
        self.advance(begin=True, wait=True)
        segments, deltas = self.parts
        if any(deltas) or len(segments) > 1 or any(segment.live < segment.stored for segment in segments):
            self.parts = Standing(segments, (*deltas, Delta(self._columns)))
            self._merge = Merge(self._builder, segments, deltas, self._room(segments))
            self.advance(wait=True)
        if self._failed is not None:
            raise self._failed

    def frozen(self) -> tuple[Segment, ...]:
        """The segments, and one more of what the deltas hold."""
        segments, deltas = self.parts
        groups = [groups_of_places(delta.places.items()) for delta in deltas]
        newest = self._builder.segment(groups, [delta.rest() for delta in deltas])
        return segments if newest is None else (*segments, newest)

    # ── the budget ──────────────────────────────────────────────────────────────────────────────────────────────

    def make_room(self, needed: int | None = None) -> None:
        """For so many bytes more, or one row, by giving up caches, then masks and dead rows. Raises `IndexFull`."""
        if self._budget is None:
            return
        if needed is None:  # arrays double when they are full
            needed = ONE_ROW + self.parts.deltas[-1].nbytes + self._books.next_nbytes
        if self.nbytes + needed <= self._budget:
            return
        self.scratches.clear()
        self.results.clear()
        for segment in self.parts.segments:
            segment.forget()
        for delta in self.parts.deltas:
            delta.forget()
        rows = sum(segment.stored for segment in self.parts.segments)
        dead = rows - sum(segment.live for segment in self.parts.segments)
        if self.nbytes + needed > self._budget and (self._builder.masked or MANY_DEAD * dead > rows):
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
        segments, deltas = self.parts
        self._merge = Merge(self._builder, segments, deltas[:-1])
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
        segments, deltas = self.parts
        books, state = self._books, self._books.state()
        # Each stored row is where the books say.
        new = [row for delta in deltas for row in delta.places]
        assert sorted(new) == np.flatnonzero(state == IN_DELTA).tolist(), (new, state)
        living = [set(segment.living_rows().tolist()) for segment in segments]
        together: set[int] = set().union(*living)
        assert sum(map(len, living)) == len(together), living
        assert sorted(together) == np.flatnonzero(state == FROZEN).tolist(), (living, state)
        # What may be found twice is counted.
        repeating = sum(len(places) > 1 for delta in deltas for places in delta.places.values())
        for segment in segments:
            repeating += int((np.unique(segment.living_rows(), return_counts=True)[1] > 1).sum())
        assert books.repeating == repeating, (books.repeating, repeating)
        assert self._failed is None, self._failed
        if self._merge is None:
            assert len(deltas) == 1, deltas
            assert deltas[0].entries <= self._delta_rows, deltas[0].entries
            assert not any(segment.half_dead or not segment.rows.size for segment in segments), segments
        for delta in deltas:
            delta.check_invariants()
        for segment in segments:
            segment.check_invariants()
        assert not any(scratch.marked.any() for scratch in self.scratches)
        assert self._budget is None or self._merge is not None or self.nbytes <= self._budget, self.nbytes

    def _seal(self) -> None:
        """The delta is full: no more rows go into it, and it is merged with what is not much larger."""
        delta = self.parts.deltas[-1]
        if self._merge is None:
            self.advance(begin=True)
        elif delta.entries > LATE * self._delta_rows:
            segment = self._builder.segment([groups_of_places(delta.places.items())], [delta.rest()], room=self._room())
            segments, deltas = self.parts
            more = segments if segment is None else _ordered((*segments, segment))
            self.parts = Standing(more, (*deltas[:-1], Delta(self._columns)))
            self._books.put(list(delta.places), FROZEN)

    def _take_in(self, merge: Merge) -> None:
        """The result stands for its sources."""
        segments, deltas = self.parts
        self._merge = None
        self._failed = merge.failed
        if merge.failed is None:
            merge.mark_removed()
            for delta in merge.deltas:
                self._books.put(list(delta.places), FROZEN)
            left = tuple(segment for segment in segments if segment not in merge.segments)
            if merge.result is not None and merge.result.live:
                left = _ordered((*left, merge.result))
            self.parts = Standing(left, tuple(each for each in deltas if each not in merge.deltas))


def _ordered(segments: Sequence[Segment]) -> tuple[Segment, ...]:
    return tuple(sorted(segments, key=lambda each: -each.live))
