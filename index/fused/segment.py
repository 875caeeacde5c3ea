"""A segment: rows that never change, except that a removed row gets a tombstone.

groups of rows, and what is asked of them ─▶ lay_out ─▶ Segment          Segment ─▶ groups of its live rows ─▶ merge
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from typing import NamedTuple, cast

import numpy as np
import numpy.typing as npt

from kindcast.index.clause import AttributeId
from kindcast.index.fused.arrays import BLOCK_ROWS, Bytes, Codes, Ints, Packed, SegmentArrays, pack, unpack
from kindcast.index.fused.cluster_selection import Visiting
from kindcast.index.fused.conjuncts import ORDERED
from kindcast.index.fused.gil_pauses import hold
from kindcast.index.fused.graph_arrays import GraphShape
from kindcast.index.fused.layout import ClusterKey, Groups, RowGroup, lay_out
from kindcast.index.fused.residuals import ProgramArrays, Rest, rest_of_rows
from kindcast.index.fused.sharing import Shared, SharedArrays, share
from kindcast.index.fused.small_clusters import (
    FEWEST_SCATTERED,
    SCATTERED_ROWS,
    Scattered,
    ScatteredArrays,
    scattered_arrays,
)

__all__ = ["Living", "Segment"]

Bools = npt.NDArray[np.bool_]


class Living(NamedTuple):
    """What was not removed from a segment at some moment."""

    positions: Bools  # [positions] those without a tombstone
    gone: Bytes  # [members] 1 where a row was removed that shares its position with others


class Segment:
    """Immutable, except for the tombstones (`arrays.dead`) and the cache of `visiting`.

    Invariant: `live` counts the rows that were not removed; lists, ranges and blocks cover every position once.
    """

    def __init__(
        self,
        packed: Packed,
        rows: Codes,
        by_row: Codes,
        program_of: Codes,
        columns: list[int],
        clusters: list[ClusterKey],
        rest: Rest | None,
        scattered: ScatteredArrays | None = None,
        shared: SharedArrays | None = None,
        breathe: Callable[[], None] = hold,
    ) -> None:
        """From what it is made of: the row at each position, the positions by row, the program of each position that
        has one, the engine's numbers of the columns, the programs of rows whose cluster asks some, the masks of the
        small clusters, if they are found together, and the rows that share positions, if some do."""
        self.packed = packed
        self.arrays: SegmentArrays = getattr(unpack, "py_func", unpack)(packed)
        self.rows = rows
        self.by_row = by_row
        self.program_of = program_of
        self.columns = columns
        self.clusters = clusters
        self.rest = rest
        self.shared = None if shared is None else Shared(shared, rows)
        self.stored = rows.size
        """How many rows it was made of, one that has several positions counted at each."""
        self.live = rows.size - int(self.arrays.sizes[3])
        if shared is not None:
            self.stored += shared.rows.size - int(np.count_nonzero(rows < 0))
            self.live = int(np.count_nonzero(self.arrays.dead[rows >= 0] == 0) + np.count_nonzero(shared.gone == 0))
        self.passes = 1 + self.arrays.far.size
        self.scattered = None if scattered is None else Scattered(scattered)
        dense = len(clusters) if scattered is None else int(scattered.first[0])
        self.visiting = Visiting(clusters[:dense], breathe)

    @classmethod
    def built(
        cls,
        groups: Groups,
        rest: Rest | None,
        shape: GraphShape | None,
        *,
        block_rows: int = BLOCK_ROWS,
        masked: bool = True,
        breathe: Callable[[], None] = hold,
    ) -> "Segment":
        """Laid out for `groups`. Costs about 1 µs per row and slot. `breathe` is called between small steps, so that
        other threads get the interpreter."""
        groups, shared = share(groups)
        groups, dense = _small_ones_last(groups, masked)
        layout = lay_out(groups, shape, block_rows, masked=masked, dense=dense, breathe=breathe)
        clusters = list(groups)
        packed, arrays = pack(layout.arrays)
        program_of = np.zeros(0, dtype=np.int32)
        if rest is not None:
            program_of = np.full(layout.rows.size, -1, dtype=np.int32)
            asked = np.repeat([key[3] for key in clusters], np.diff(arrays.cluster_from))
            program_of[asked] = np.searchsorted(rest.rows, layout.rows[asked])
        by_row = np.argsort(layout.rows, kind="stable").astype(np.int32)
        scattered = scattered_arrays(clusters, arrays, shape, dense) if dense < len(clusters) else None
        columns = layout.columns
        return cls(packed, layout.rows, by_row, program_of, columns, clusters, rest, scattered, shared, breathe)

    @property
    def programs(self) -> ProgramArrays | None:
        """What is asked of rows in clusters that ask programs."""
        return None if self.rest is None else self.rest.programs

    @property
    def nbytes(self) -> int:
        """The bytes of all arrays."""
        rest = () if self.rest is None else (self.rest.rows, *self.rest.programs)
        arrays = sum(part.nbytes for part in (*self.packed, self.rows, self.by_row, self.program_of, *rest))
        scattered = 0 if self.scattered is None else self.scattered.nbytes
        shared = 0 if self.shared is None else self.shared.nbytes
        return int(arrays + self.visiting.nbytes + scattered + shared)

    @property
    def half_dead(self) -> bool:
        """Whether half of the rows are tombstones, so that compaction is due."""
        return 2 * self.live < self.stored

    @property
    def is_plain(self) -> bool:
        """Whether all clusters are visited one by one, and no row has a program or a shared position."""
        return self.scattered is None and self.rest is None and self.shared is None

    def visits(self, present: frozenset[AttributeId]) -> Ints:
        """The clusters that an event with just these attributes may match, ascending, without those found together."""
        return self.visiting.clusters(present)

    def forget(self) -> None:
        """Give up what is remembered of kinds of events."""
        self.visiting.forget()
        if self.scattered is not None:
            self.scattered.forget()

    def kill(self, row: int) -> int:
        """Put a tombstone on every position that `row` has alone, and remove it from shared ones; returns how many
        there were, 0 if it does not live here."""
        row_at = self.rows.__getitem__
        first = bisect_left(self.by_row, row, key=row_at)  # numpy's own would copy the whole order
        last = bisect_right(self.by_row, row, lo=first, key=row_at)
        positions = self.by_row[first:last]
        positions = positions[self.arrays.dead[positions] == 0]
        count = int(positions.size)
        if self.shared is not None:
            gone, empty = self.shared.kill(row)
            count += gone
            positions = np.concatenate([positions, empty]).astype(np.int64)
        if positions.size:
            self.arrays.dead[positions] = 1
            self.arrays.sizes[3] += positions.size
        self.live -= count
        return count

    def groups(self, living: Living, breathe: Callable[[], None] = hold) -> Groups:
        """The rows in `living`, as they were given."""
        arrays = self.arrays
        groups: Groups = {}
        for number, key in enumerate(self.clusters):
            breathe()
            begin, end = arrays.cluster_from[number : number + 2].tolist()
            kept = living.positions[begin:end]
            if not kept.any():
                continue
            slots = key[2]
            ordered = sum(how == ORDERED for how, _ in slots)
            at = int(arrays.record_from[number])
            records = arrays.records[at : at + (end - begin) * (len(slots) + ordered + 1)]
            records = records.reshape(end - begin, len(slots) + ordered + 1)[kept]
            ends = np.empty((len(records), len(slots), 2))
            for j, slot in enumerate(slots):
                if j < ordered:
                    first = int(arrays.bound_from[self.columns.index(slot[1])])
                    ends[:, j] = arrays.bounds[first + (records[:, 2 * j : 2 * j + 2] >> 1)]
                else:
                    ends[:, j] = records[:, ordered + j, None]
            groups[key] = RowGroup(self.rows[begin:end][kept], ends)
            if self.shared is not None and (groups[key].rows < 0).any():
                groups[key] = self.shared.with_rows(groups[key].rows, ends, living.gone)
                if not groups[key].rows.size:
                    del groups[key]
        return groups

    def rest_of(self, living: Living) -> Rest | None:
        """The residual predicates of the rows in `living`."""
        if self.rest is None:
            return None
        asked = np.flatnonzero(living.positions & (self.program_of >= 0))
        return rest_of_rows(self.rows[asked], self.program_of[asked], self.rest.programs)

    def living(self) -> Living:
        """What was not removed, as of now."""
        gone = np.zeros(0, dtype=np.uint8) if self.shared is None else self.shared.arrays.gone.copy()
        return Living(cast(Bools, self.arrays.dead == 0), gone)

    def living_rows(self) -> Codes:
        """The rows without a tombstone, each once per position."""
        own: Codes = self.rows[(self.arrays.dead == 0) & (self.rows >= 0)]
        if self.shared is None:
            return own
        arrays = self.shared.arrays
        return np.concatenate([own, arrays.rows[arrays.gone == 0]])

    def check_invariants(self) -> None:
        """Raise AssertionError if a structural invariant is broken."""
        arrays = self.arrays
        # The living are counted.
        assert self.live == self.living_rows().size, (self.live, arrays.dead)
        if self.shared is not None:
            self.shared.check_invariants(arrays.dead, self.rows)
        assert arrays.sizes[3] == np.count_nonzero(arrays.dead), (arrays.sizes, arrays.dead)
        # Lists, ranges and blocks cover every position exactly once.
        spans = [
            *map(tuple, arrays.lists.reshape(-1, 4)[:, 1:3].tolist()),
            *zip(arrays.block_begin.tolist(), arrays.block_end.tolist(), strict=True),
            *zip(arrays.upper_from.tolist(), arrays.lower_from.tolist(), strict=True),
            *zip(arrays.lower_from.tolist(), arrays.cluster_from[1:].tolist(), strict=True),
        ]
        spans = sorted(span for span in spans if span[0] < span[1])
        assert [begin for begin, _ in spans] == [0, *(end for _, end in spans)][: len(spans)], spans
        assert not spans or spans[-1][1] == self.rows.size, (spans, self.rows.size)
        # The lists of a slot ascend by code.
        for begin, end in zip(arrays.list_from[:-1].tolist(), arrays.list_from[1:].tolist(), strict=True):
            codes = arrays.lists[4 * begin : 4 * end : 4]
            assert (np.diff(codes) > 0).all(), codes
        # A position gives its row, or itself where a program is asked.
        for number, key in enumerate(self.clusters):
            begin, end = arrays.cluster_from[number : number + 2].tolist()
            own, itself = self.rows[begin:end], ~np.arange(begin, end)
            expected = itself if key[3] else np.where(own < 0, own - self.rows.size, own)
            assert (arrays.emit[begin:end] == expected).all(), (key, arrays.emit[begin:end])
            # Where a program is asked, it is that of the row.
            if key[3]:
                assert self.rest is not None, key
                of_rows = self.rest.rows[self.program_of[begin:end]]
                assert (of_rows == self.rows[begin:end]).all(), (key, of_rows)
        assert (np.diff(self.rows[self.by_row]) >= 0).all(), self.by_row


def _small_ones_last(groups: Groups, masked: bool) -> tuple[Groups, int]:
    """The clusters in the order of the segment, and how many are visited by themselves."""
    small = [key for key, group in groups.items() if group.rows.size < SCATTERED_ROWS]
    if not masked or len(small) < FEWEST_SCATTERED:
        return groups, len(groups)
    large = {key: group for key, group in groups.items() if group.rows.size >= SCATTERED_ROWS}
    return large | {key: groups[key] for key in small}, len(large)
